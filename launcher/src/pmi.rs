//! The PMI server: ranks that are programs of others find each other by PMI-1 or PMI-2. Pure: messages go in,
//! replies and what they mean for the job come out; values are in the job's [`Kvs`].
//!
//! What it keeps for each rank does not depend on the number of ranks: where the rank stands, and the number
//! of what it waits for, which is one thing at a time.

use std::collections::VecDeque;

use rma_bootstrap::pmi::mapping;
use rma_bootstrap::pmi::wire::{Message, Syntax};

use crate::kvs::Kvs;

/// Longest name of a key-value space, with its terminator, as PMI-1 counts.
const SPACE_NAME_BYTES_MAX: usize = 256;

/// Longest key, with its terminator.
const KEY_BYTES_MAX: usize = 64;

/// Longest value, with its terminator.
const VALUE_BYTES_MAX: usize = 1024;

/// Where servers say which ranks share a host.
const MAPPING_KEY: &str = "PMI_process_mapping";

/// In front of the names of a host's attributes, which share the space with the job's values.
const HOST_PREFIX: &str = "host:";

/// Longest of these with the number of a host.
const HOST_PREFIX_BYTES_MAX: usize = 16;

/// What is to be done, and what it means for the job.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Send this to that rank.
    Reply(u32, Message),
    /// What follows, from and to that rank, is in this syntax.
    Speak(u32, Syntax),
    /// The rank has joined.
    Joined,
    /// The rank has finalized.
    Finalized,
    /// The rank asks for the job to be ended with this code, and says why.
    Abort(i32, String),
}

/// Where a rank stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It has not said anything; it may be a program that never will.
    Silent,
    /// It speaks PMI-1.
    One,
    /// It speaks PMI-2.
    Two,
    /// It has finalized, or ended.
    Gone,
}

/// What a rank waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Wait {
    Barrier,
    /// An attribute of its host.
    Attribute(String),
}

/// What is kept for each rank.
#[derive(Clone, Debug)]
struct Rank {
    stage: Stage,
    /// What it waits for, and its number for that if it gave one.
    wait: Option<(Wait, Option<String>)>,
}

/// The server.
#[derive(Debug)]
pub(crate) struct PmiServer {
    job: String,
    /// What [`MAPPING_KEY`] says.
    mapping: String,
    /// The host of each rank.
    hosts: Vec<u32>,
    /// The program of each rank, which PMI calls its application number; nothing if there is one.
    programs: Vec<u32>,
    ranks: Vec<Rank>,
    in_barrier_count: u32,
    gone_count: u32,
    outcomes: VecDeque<Outcome>,
}

impl PmiServer {
    /// The server of the job `job` of `size` ranks, with the host of each rank, or nothing if all are on one.
    pub(crate) fn new(job: &str, size: u32, hosts: &[u32]) -> Self {
        let hosts = if hosts.is_empty() { vec![0; size as usize] } else { hosts.to_vec() };
        Self {
            job: job.to_owned(),
            mapping: mapping::describe(&hosts),
            hosts,
            programs: Vec::new(),
            ranks: vec![Rank { stage: Stage::Silent, wait: None }; size as usize],
            in_barrier_count: 0,
            gone_count: 0,
            outcomes: VecDeque::new(),
        }
    }

    /// Says which program each rank runs.
    pub(crate) fn set_programs(&mut self, programs: Vec<u32>) {
        self.programs = programs;
    }

    fn program(&self, rank: u32) -> u32 {
        self.programs.get(rank as usize).copied().unwrap_or(0)
    }

    /// The next thing to do, in order.
    pub(crate) fn poll_outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// Whether the rank has joined by PMI and not finalized.
    pub(crate) fn is_joined(&self, rank: u32) -> bool {
        matches!(self.ranks[rank as usize].stage, Stage::One | Stage::Two)
    }

    /// A rank said something.
    ///
    /// # Errors
    /// A message that says why it is out of order. The connection is to be closed.
    pub(crate) fn on_message(&mut self, rank: u32, message: &Message, kvs: &mut Kvs) -> Result<(), String> {
        let Rank { stage, wait } = &self.ranks[rank as usize];
        if wait.is_some() {
            return Err(format!("PMI command '{}' while the last one is not answered", message.name()));
        }
        match (stage, message.name()) {
            (Stage::Silent, "init") => self.on_init(rank, message),
            (Stage::Silent | Stage::Gone, name) => {
                return Err(format!(
                    "PMI command '{name}' is out of order: init first and once, nothing after finalize"
                ))
            }
            (_, "abort") => {
                let code = message.number("exitcode").unwrap_or(1);
                let why = message.get("msg").or_else(|| message.get("message")).unwrap_or("by PMI");
                self.outcomes.push_back(Outcome::Abort(code, why.to_owned()));
            }
            (Stage::One, _) => self.on_one(rank, message, kvs),
            (Stage::Two, _) => self.on_two(rank, message, kvs),
        }
        Ok(())
    }

    /// The rank's process or its connection has ended: it enters no barrier any more.
    pub(crate) fn on_gone(&mut self, rank: u32) {
        let rank = &mut self.ranks[rank as usize];
        if rank.stage == Stage::Gone {
            return;
        }
        rank.stage = Stage::Gone;
        self.gone_count += 1;
        if matches!(rank.wait.take(), Some((Wait::Barrier, _))) {
            self.in_barrier_count -= 1;
        }
        self.end_barrier();
    }

    fn on_init(&mut self, rank: u32, message: &Message) {
        let version = message.number::<u32>("pmi_version");
        let (stage, spoken) = match version {
            Some(1) => (Stage::One, Some((1, 1))),
            Some(2) => (Stage::Two, Some((2, 0))),
            _ => (Stage::Silent, None),
        };
        let reply = Message::new("response_to_init");
        let Some((version, subversion)) = spoken else {
            let refusal = reply.with("pmi_version", 2).with("pmi_subversion", 0).with("rc", -1);
            return self.outcomes.push_back(Outcome::Reply(rank, refusal));
        };
        self.ranks[rank as usize].stage = stage;
        let reply = reply.with("pmi_version", version).with("pmi_subversion", subversion).with("rc", 0);
        self.outcomes.push_back(Outcome::Reply(rank, reply));
        if stage == Stage::Two {
            self.outcomes.push_back(Outcome::Speak(rank, Syntax::Counted));
        }
        self.outcomes.push_back(Outcome::Joined);
    }

    fn on_one(&mut self, rank: u32, message: &Message, kvs: &mut Kvs) {
        let size = self.ranks.len();
        let key = message.get("key").unwrap_or_default();
        let is_ours = message.get("kvsname").is_none_or(|name| name == self.job);
        let reply = match message.name() {
            "get_maxes" => {
                let maxes = Message::new("maxes").with("rc", 0).with("kvsname_max", SPACE_NAME_BYTES_MAX);
                maxes.with("keylen_max", KEY_BYTES_MAX).with("vallen_max", VALUE_BYTES_MAX)
            }
            "get_universe_size" => Message::new("universe_size").with("rc", 0).with("size", size),
            "get_appnum" => Message::new("appnum").with("rc", 0).with("appnum", self.program(rank)),
            "get_my_kvsname" => Message::new("my_kvsname").with("rc", 0).with("kvsname", &self.job),
            "put" => {
                let value = message.get("value").unwrap_or_default();
                let put = if is_ours { put(kvs, rank, key, value) } else { Err(UNKNOWN_SPACE.into()) };
                let reply = Message::new("put_result").with("rc", if put.is_ok() { 0 } else { -1 });
                reply.with_text("msg", &put.err().unwrap_or_else(|| "success".into()))
            }
            "get" => match self.find(kvs, key).filter(|_| is_ours) {
                Some(value) => {
                    Message::new("get_result").with("rc", 0).with("msg", "success").with("value", value)
                }
                None => {
                    let reply = Message::new("get_result").with("rc", -1);
                    reply.with_text("msg", &format!("key {key} not found")).with("value", "unknown")
                }
            },
            "barrier_in" => return self.on_barrier(rank, None),
            "finalize" => return self.on_finalize(rank, Message::new("finalize_ack").with("rc", 0)),
            name => refusal(&one_reply_name(name), name),
        };
        self.outcomes.push_back(Outcome::Reply(rank, reply));
    }

    fn on_two(&mut self, rank: u32, message: &Message, kvs: &mut Kvs) {
        let key = message.get("key").unwrap_or_default();
        let value = message.get("value").unwrap_or_default();
        let number = message.get("thrid").map(str::to_owned);
        let name = format!("{}-response", message.name());
        let reply = numbered(Message::new(&name), number.as_deref());
        let found = |reply: Message, value: Option<String>| match value {
            Some(value) => reply.with("found", "TRUE").with("value", value).with("rc", 0),
            None => reply.with("found", "FALSE").with("rc", 0),
        };
        let done = |reply: Message, result: Result<(), String>| match result {
            Ok(()) => reply.with("rc", 0),
            Err(why) => reply.with("rc", -1).with("errmsg", why),
        };
        let reply = match message.name() {
            "fullinit" => {
                let reply = reply.with("pmi-version", 2).with("pmi-subversion", 0).with("rank", rank);
                let reply = reply.with("size", self.ranks.len()).with("appnum", self.program(rank));
                reply.with("debugged", "FALSE").with("pmiverbose", "FALSE").with("rc", 0)
            }
            "job-getid" => reply.with("jobid", &self.job).with("rc", 0),
            "info-getjobattr" if key == "universeSize" => found(reply, Some(self.ranks.len().to_string())),
            "info-getjobattr" => found(reply, self.find(kvs, key).filter(|_| key == MAPPING_KEY)),
            "info-putnodeattr" => {
                let result = put(kvs, rank, &self.attribute(rank, key), value);
                if result.is_ok() {
                    self.answer_attribute(rank, key, value);
                }
                done(reply, result)
            }
            "info-getnodeattr" => {
                let value = self.find(kvs, &self.attribute(rank, key));
                let waits = message.get("wait").is_some_and(|wait| wait.eq_ignore_ascii_case("true"));
                if value.is_none() && waits {
                    self.ranks[rank as usize].wait = Some((Wait::Attribute(key.to_owned()), number));
                    return;
                }
                found(reply, value)
            }
            "kvs-put" => done(reply, put(kvs, rank, key, value)),
            "kvs-get" => found(reply, self.find(kvs, key)),
            "kvs-fence" => return self.on_barrier(rank, number),
            "finalize" => return self.on_finalize(rank, reply.with("rc", 0)),
            command => {
                let refusal = refusal(&name, command);
                numbered(refusal, number.as_deref())
            }
        };
        self.outcomes.push_back(Outcome::Reply(rank, reply));
    }

    /// The value under `key` that a rank or this server has put.
    fn find(&self, kvs: &Kvs, key: &str) -> Option<String> {
        if key == MAPPING_KEY {
            return Some(self.mapping.clone());
        }
        kvs.shared(key).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    fn on_finalize(&mut self, rank: u32, reply: Message) {
        self.outcomes.push_back(Outcome::Reply(rank, reply));
        self.outcomes.push_back(Outcome::Finalized);
        self.on_gone(rank);
    }

    fn on_barrier(&mut self, rank: u32, number: Option<String>) {
        self.ranks[rank as usize].wait = Some((Wait::Barrier, number));
        self.in_barrier_count += 1;
        self.end_barrier();
    }

    /// Lets the ranks out of the barrier when all are in it, and also, with an error, when some never will
    /// be.
    fn end_barrier(&mut self) {
        let is_broken = self.gone_count > 0;
        if self.in_barrier_count == 0 || !is_broken && (self.in_barrier_count as usize) < self.ranks.len() {
            return;
        }
        self.in_barrier_count = 0;
        for (index, rank) in (0..).zip(&mut self.ranks) {
            let Some((_, number)) = rank.wait.take_if(|(wait, _)| *wait == Wait::Barrier) else { continue };
            let reply = match rank.stage {
                Stage::Two => numbered(Message::new("kvs-fence-response"), number.as_deref()),
                _ => Message::new("barrier_out"),
            };
            let reply = reply.with("rc", if is_broken { -1 } else { 0 });
            let text = if rank.stage == Stage::Two { "errmsg" } else { "msg" };
            let reply = if is_broken { reply.with_text(text, "a rank has ended") } else { reply };
            self.outcomes.push_back(Outcome::Reply(index, reply));
        }
    }

    fn host(&self, rank: u32) -> u32 {
        self.hosts.get(rank as usize).copied().unwrap_or(0)
    }

    /// Under what name the job's values have an attribute of the rank's host.
    fn attribute(&self, rank: u32, key: &str) -> String {
        format!("{HOST_PREFIX}{}:{key}", self.host(rank))
    }

    /// Answers whoever waits for this attribute on the host of `putter`.
    fn answer_attribute(&mut self, putter: u32, key: &str, value: &str) {
        let host = self.host(putter);
        let hosts = &self.hosts;
        let is_there = |index: u32| hosts.get(index as usize) == Some(&host);
        for (index, rank) in (0..).zip(&mut self.ranks).filter(|(index, _)| is_there(*index)) {
            let waits_for_it =
                |wait: &mut (Wait, Option<String>)| matches!(&wait.0, Wait::Attribute(name) if name == key);
            let Some((_, number)) = rank.wait.take_if(waits_for_it) else { continue };
            let reply = numbered(Message::new("info-getnodeattr-response"), number.as_deref());
            let reply = reply.with("found", "TRUE").with("value", value).with("rc", 0);
            self.outcomes.push_back(Outcome::Reply(index, reply));
        }
    }
}

const UNKNOWN_SPACE: &str = "there is no such key-value space";

fn put(kvs: &mut Kvs, rank: u32, key: &str, value: &str) -> Result<(), String> {
    if key.is_empty() || key.len() >= KEY_BYTES_MAX + HOST_PREFIX_BYTES_MAX || value.len() >= VALUE_BYTES_MAX
    {
        return Err(format!(
            "a key has 1 to {} bytes, a value less than {VALUE_BYTES_MAX}",
            KEY_BYTES_MAX - 1
        ));
    }
    kvs.put_shared(rank, key, value.as_bytes().to_vec())
}

/// The name of the reply to a PMI-1 command that is refused.
fn one_reply_name(command: &str) -> String {
    // `publish_name` is answered by `publish_result`, `spawn` by `spawn_result`.
    format!("{}_result", command.strip_suffix("_name").unwrap_or(command))
}

fn refusal(reply: &str, command: &str) -> Message {
    let why = format!("rmarun does not serve {command}");
    Message::new(reply).with("rc", -1).with_text("msg", &why).with_text("errmsg", &why)
}

/// The reply with the number that the request had, if it had one.
fn numbered(reply: Message, number: Option<&str>) -> Message {
    match number {
        Some(number) => reply.with("thrid", number),
        None => reply,
    }
}

#[cfg(test)]
#[path = "pmi_tests.rs"]
mod tests;
