//! The client's side of a PMI connection, as requests and replies: one request at a time, in order. Pure: no
//! socket, no clock.

use std::collections::VecDeque;
use std::sync::Arc;

use super::mapping::Mapping;
use super::value::{decode, encode, segment_key, Decoded, SEGMENT_BYTES_MAX};
use super::wire::{Message, Syntax};
use crate::wire::VALUE_BYTES_MAX;

/// A version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// PMI-1: version 1.1.
    One,
    /// PMI-2: version 2.0.
    Two,
}

/// The longest key that every server takes, in bytes, with its terminator.
const KEY_BYTES_MAX: usize = 64;

/// The longest value of PMI-2, in bytes, with its terminator.
const PMI2_VALUE_BYTES_MAX: usize = 1024;

/// The key under which servers say which ranks share a host.
const MAPPING_KEY: &str = "PMI_process_mapping";

/// A key that nobody puts.
const NOBODYS_KEY: &str = "rma-all-done";

/// One request.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// To a server that is reached by PMI_PORT: who this is, by the number in PMI_ID.
    Hello(u32),
    Init(Version),
    FullInit,
    Maxes,
    SpaceName,
    Mapping,
    Put {
        key: String,
        value: String,
    },
    /// The barrier behind which values can be asked for.
    Commit,
    Get(Get),
    /// The barrier that says that all ranks have finalized.
    AllDone,
    /// Whether the last fence of version 2 has been a barrier. Hydra's answers at once, but whoever asks behind it for
    /// what was never put is told so when all ranks have come to it; the other servers say it at once.
    AllDoneTruly,
    Finalize,
}

/// A value that is being asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Get {
    number: u32,
    rank: u32,
    key: String,
    segment: usize,
    text: String,
}

/// How far a barrier is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Barrier {
    Ahead,
    Entered,
    Over,
}

/// The answer to a get: its number, and the value or why there is none.
pub(crate) type Answer = (u32, Result<Vec<u8>, String>);

/// The session.
#[derive(Debug)]
pub(crate) struct Session {
    version: Version,
    /// Whether version 1 may be asked for when version 2 is refused.
    may_fall_back: bool,
    rank: Option<u32>,
    size: Option<u32>,
    job: String,
    mapping: Option<Mapping>,
    segment_bytes_max: usize,
    steps: VecDeque<Step>,
    in_flight: Option<Step>,
    /// Lines of the reply to a hello, which has several.
    hello_lines: u32,
    commit: Barrier,
    all_done: Barrier,
    is_finalized: bool,
    answers: Vec<Answer>,
}

/// Most lines of the reply to a hello.
const HELLO_LINES_MAX: u32 = 16;

impl Session {
    /// A session in this version, or, without one, in the highest that the server speaks. `place` is the rank
    /// and the size from the environment; without it the server at PMI_PORT, which knows this process as
    /// number `id`, is asked.
    pub(crate) fn new(version: Option<Version>, place: Option<(u32, u32)>, id: u32) -> Self {
        let mut steps = VecDeque::new();
        if place.is_none() {
            steps.push_back(Step::Hello(id));
        }
        let version_asked = version.unwrap_or(Version::Two);
        steps.push_back(Step::Init(version_asked));
        Self {
            version: version_asked,
            may_fall_back: version.is_none(),
            rank: place.map(|(rank, _)| rank),
            size: place.map(|(_, size)| size),
            job: String::new(),
            mapping: None,
            segment_bytes_max: SEGMENT_BYTES_MAX,
            steps,
            in_flight: None,
            hello_lines: 0,
            commit: Barrier::Ahead,
            all_done: Barrier::Ahead,
            is_finalized: false,
            answers: Vec::new(),
        }
    }

    /// The session of a process that was told the server's name for the job.
    pub(crate) fn with_job(mut self, job: Option<&str>) -> Self {
        self.job = job.unwrap_or_default().to_owned();
        self
    }

    /// How messages look now.
    pub(crate) fn syntax(&self) -> Syntax {
        let is_agreed = !matches!(
            self.in_flight.as_ref().or_else(|| self.steps.front()),
            Some(Step::Hello(_) | Step::Init(_))
        );
        if is_agreed && self.version == Version::Two {
            Syntax::Counted
        } else {
            Syntax::Lines
        }
    }

    /// Whether nothing is under way and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.steps.is_empty()
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// The rank and the number of ranks, once joined.
    pub(crate) fn place(&self) -> Option<(u32, u32)> {
        let (rank, size) = (self.rank?, self.size?);
        (rank < size).then_some((rank, size))
    }

    /// Rank among those on the same host and their number, if the server has said it.
    pub(crate) fn local_place(&self) -> Option<(u32, u32)> {
        let (rank, size) = self.place()?;
        self.mapping.as_ref()?.place(rank, size)
    }

    /// The ranks on the same host, in order, if the server has said them.
    pub(crate) fn local_ranks(&self) -> Arc<[u32]> {
        let (Some((rank, size)), Some(mapping)) = (self.place(), &self.mapping) else {
            return Arc::default();
        };
        mapping.neighbours(rank, size).into()
    }

    /// The server's name for the job.
    pub(crate) fn job(&self) -> &str {
        &self.job
    }

    /// Whether the barrier behind which values can be asked for has been entered.
    pub(crate) fn is_committing(&self) -> bool {
        self.commit != Barrier::Ahead
    }

    /// Whether it is over.
    pub(crate) fn is_committed(&self) -> bool {
        self.commit == Barrier::Over
    }

    /// Whether all ranks have finalized, and this one has taken leave of the server.
    pub(crate) fn is_finalized(&self) -> bool {
        self.is_finalized
    }

    /// Puts a value under (this rank, `key`).
    pub(crate) fn put(&mut self, key: &str, value: &[u8]) -> Result<(), String> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(format!("{} bytes are more than the {VALUE_BYTES_MAX} of a value", value.len()));
        }
        if self.is_committing() {
            return Err(
                "PMI carries what is put before the address is published, and nothing after it".into()
            );
        }
        let text = encode(value);
        let segments = text.as_bytes().chunks(self.segment_bytes_max).enumerate();
        let rank = self.rank.unwrap_or_default();
        let steps = segments.map(|(segment, bytes)| {
            let key = segment_key(rank, key, segment);
            let is_carried = key.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b';' | b'='));
            if key.len() >= KEY_BYTES_MAX || !is_carried {
                return Err(format!(
                    "PMI cannot carry it: '{key}' is too long, or has characters beyond ASCII"
                ));
            }
            Ok(Step::Put { key, value: String::from_utf8_lossy(bytes).into_owned() })
        });
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        self.steps.extend(steps);
        Ok(())
    }

    /// Enters the barrier behind which values can be asked for, unless that has been done.
    pub(crate) fn commit(&mut self) {
        if self.commit == Barrier::Ahead {
            self.commit = Barrier::Entered;
            self.steps.push_back(Step::Commit);
        }
    }

    /// When the barrier is over: what is put from now on can be asked for behind another one, which all ranks enter.
    pub(crate) fn begin_round(&mut self) {
        if self.commit == Barrier::Over {
            self.commit = Barrier::Ahead;
        }
    }

    /// Asks for the value of (`rank`, `key`); the answer comes by [`Session::poll_answer`].
    pub(crate) fn get(&mut self, number: u32, rank: u32, key: &str) {
        let get = Get { number, rank, key: key.to_owned(), segment: 0, text: String::new() };
        self.steps.push_back(Step::Get(get));
    }

    /// This rank needs nobody any more; takes leave when the others do not need it either.
    pub(crate) fn finalize(&mut self) {
        if self.all_done == Barrier::Ahead {
            // Ranks that published are in that barrier: whoever leaves without it would keep them there.
            self.commit();
            self.all_done = Barrier::Entered;
            self.steps.push_back(Step::AllDone);
            if self.version == Version::Two {
                self.steps.push_back(Step::AllDoneTruly);
            }
            self.steps.push_back(Step::Finalize);
        }
    }

    /// What to say to have the job ended. There is no reply.
    pub(crate) fn abort(&self, code: i32, message: &str) -> Message {
        match self.version {
            Version::One => Message::new("abort").with("exitcode", code),
            Version::Two => {
                let abort = Message::new("abort").with("isworld", "TRUE").with("exitcode", code);
                abort.with_text("msg", message)
            }
        }
    }

    /// The next request, if the last one was answered.
    pub(crate) fn poll_request(&mut self) -> Option<Message> {
        if self.in_flight.is_some() {
            return None;
        }
        let step = self.steps.pop_front()?;
        let message = self.request(&step);
        self.in_flight = Some(step);
        Some(message)
    }

    /// Nothing more is asked for. `true`: what was asked for last is answered without the other ranks' leaving, but not yet.
    pub(crate) fn ask_no_more(&mut self) -> bool {
        self.steps.clear();
        !matches!(&self.in_flight, None | Some(Step::Commit | Step::AllDone | Step::AllDoneTruly))
    }

    /// The next answer to a get.
    pub(crate) fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop()
    }

    fn request(&self, step: &Step) -> Message {
        let is_one = self.version == Version::One;
        let named = |one: &str, two: &str| Message::new(if is_one { one } else { two });
        match step {
            Step::Hello(id) => Message::new("initack").with("pmiid", id),
            Step::Init(Version::One) => Message::new("init").with("pmi_version", 1).with("pmi_subversion", 1),
            Step::Init(Version::Two) => Message::new("init").with("pmi_version", 2).with("pmi_subversion", 0),
            Step::FullInit => {
                let rank = self.rank.unwrap_or_default();
                let fullinit = Message::new("fullinit").with("pmijobid", &self.job);
                fullinit.with("pmirank", rank).with("threaded", "FALSE")
            }
            Step::Maxes => Message::new("get_maxes"),
            Step::SpaceName => named("get_my_kvsname", "job-getid"),
            Step::Mapping if is_one => {
                Message::new("get").with("kvsname", &self.job).with("key", MAPPING_KEY)
            }
            Step::Mapping => Message::new("info-getjobattr").with("key", MAPPING_KEY),
            Step::Put { key, value } => {
                let put = named("put", "kvs-put");
                let put = if is_one { put.with("kvsname", &self.job) } else { put };
                put.with("key", key).with("value", value)
            }
            Step::Commit | Step::AllDone => named("barrier_in", "kvs-fence"),
            Step::Get(get) => {
                let key = segment_key(get.rank, &get.key, get.segment);
                self.get_request(&key)
            }
            Step::AllDoneTruly => self.get_request(NOBODYS_KEY),
            Step::Finalize => Message::new("finalize"),
        }
    }

    fn get_request(&self, key: &str) -> Message {
        match self.version {
            Version::One => Message::new("get").with("kvsname", &self.job).with("key", key),
            Version::Two => {
                Message::new("kvs-get").with("jobid", &self.job).with("srcid", -1).with("key", key)
            }
        }
    }

    /// The name that the reply to this request has.
    fn reply_name(&self, step: &Step) -> &'static str {
        let named = |one, two| if self.version == Version::One { one } else { two };
        match step {
            Step::Hello(_) => "initack",
            Step::Init(_) => "response_to_init",
            Step::FullInit => "fullinit-response",
            Step::Maxes => "maxes",
            Step::SpaceName => named("my_kvsname", "job-getid-response"),
            Step::Mapping => named("get_result", "info-getjobattr-response"),
            Step::Put { .. } => named("put_result", "kvs-put-response"),
            Step::Commit | Step::AllDone => named("barrier_out", "kvs-fence-response"),
            Step::Get(_) | Step::AllDoneTruly => named("get_result", "kvs-get-response"),
            Step::Finalize => named("finalize_ack", "finalize-response"),
        }
    }

    /// The server said something.
    ///
    /// # Errors
    /// When it is not what the last request asks for, or refuses what nothing can be done without.
    pub(crate) fn on_reply(&mut self, reply: &Message) -> Result<(), String> {
        let Some(step) = self.in_flight.take() else {
            return Err(format!("the server said '{}' without having been asked", reply.name()));
        };
        if let Step::Hello(_) = step {
            return self.on_hello_line(step, reply);
        }
        let expected = self.reply_name(&step);
        if reply.name() != expected {
            return Err(format!("the server said '{}' instead of '{expected}'", reply.name()));
        }
        let code = reply.number("rc").unwrap_or(0);
        match step {
            Step::Init(asked) => self.on_init(asked, code, reply),
            Step::Mapping => {
                self.mapping = reply.get("value").and_then(Mapping::parse);
                Ok(())
            }
            Step::Get(get) => {
                self.on_get(get, code, reply);
                Ok(())
            }
            // That it is not there is what is expected, and counts as an error with some servers.
            Step::AllDoneTruly => Ok(()),
            _ if code != 0 => {
                let why = reply.get("msg").or_else(|| reply.get("errmsg")).unwrap_or("no reason given");
                Err(format!("the server refused a request ('{expected}', {code}: {why})"))
            }
            _ => self.on_success(&step, reply),
        }
    }

    fn on_success(&mut self, step: &Step, reply: &Message) -> Result<(), String> {
        match step {
            Step::FullInit => {
                self.rank = reply.number("rank").or(self.rank);
                self.size = reply.number("size").or(self.size);
            }
            Step::Maxes => {
                let value_max = reply.number::<usize>("vallen_max").unwrap_or(PMI2_VALUE_BYTES_MAX);
                // With a terminator; and a server that takes next to nothing would need keys without end.
                self.segment_bytes_max = value_max.saturating_sub(1).clamp(16, SEGMENT_BYTES_MAX);
            }
            Step::SpaceName => {
                let name = reply.get("kvsname").or_else(|| reply.get("jobid"));
                self.job = name.ok_or("the server has no name for the job")?.to_owned();
            }
            Step::Commit => self.commit = Barrier::Over,
            Step::AllDone => self.all_done = Barrier::Over,
            Step::Finalize => self.is_finalized = true,
            _ => {}
        }
        Ok(())
    }

    fn on_hello_line(&mut self, step: Step, line: &Message) -> Result<(), String> {
        self.hello_lines += 1;
        self.rank = line.number("rank").or(self.rank);
        self.size = line.number("size").or(self.size);
        let is_part = matches!(line.name(), "initack" | "set");
        if !is_part || line.number("rc").unwrap_or(0) != 0 || self.hello_lines > HELLO_LINES_MAX {
            return Err("the server at PMI_PORT does not know this process".into());
        }
        // This line is the last one.
        if line.get("debug").is_none() {
            self.in_flight = Some(step);
        }
        Ok(())
    }

    fn on_init(&mut self, asked: Version, code: i32, reply: &Message) -> Result<(), String> {
        let spoken = match reply.number("pmi_version") {
            Some(2) => Some(Version::Two),
            Some(1) => Some(Version::One),
            _ => None,
        };
        if code != 0 || spoken != Some(asked) {
            if !self.may_fall_back {
                let version = if asked == Version::One { 1 } else { 2 };
                return Err(format!("the server does not speak PMI-{version}; leave RMA_BOOTSTRAP at auto"));
            }
            self.may_fall_back = false;
            self.version = Version::One;
            self.steps.push_back(Step::Init(Version::One));
            return Ok(());
        }
        match asked {
            Version::One => self.steps.extend([Step::Maxes, Step::SpaceName, Step::Mapping]),
            Version::Two => self.steps.extend([Step::FullInit, Step::SpaceName, Step::Mapping]),
        }
        Ok(())
    }

    fn on_get(&mut self, mut get: Get, code: i32, reply: &Message) {
        let is_found = code == 0 && reply.get("found").is_none_or(|found| found.eq_ignore_ascii_case("true"));
        let answer = match reply.get("value").filter(|value| is_found && !value.is_empty()) {
            None => Err("it was not published before all ranks had, and now it cannot be".into()),
            Some(text) => {
                get.text += text;
                match decode(&get.text) {
                    Decoded::Value(value) => Ok(value),
                    Decoded::Malformed => Err("it was not published by this library".into()),
                    Decoded::More => {
                        get.segment += 1;
                        return self.steps.push_front(Step::Get(get));
                    }
                }
            }
        };
        self.answers.push((get.number, answer));
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
