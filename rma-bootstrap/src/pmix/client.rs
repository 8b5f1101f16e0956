//! A rank whose launcher speaks PMIx.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::ids::Rank;
use rustix::event::PollFlags;

use super::abi::{self, Proc};
use super::answers::{self, Answer};
use super::library::{self, Library, Started};
use super::questions::Questions;
use crate::client::{check_key, check_rank, expired, found_address, get_name, not_all_finalized, seconds};
use crate::environment::Place;
use crate::last_words::say_abort;
use crate::launch::PmixIdentity;
use crate::member::{Member, Sharing};
use crate::requests::{Ask, Requests};
use crate::{Fetch, ADDRESS_KEY};

/// The number of the fence at the end, which no get has: they begin at 1.
const FENCE: u32 = 0;

/// The number of the fence behind publishing, which gets do not reach in the life of a process.
const PUBLISHED: u32 = u32::MAX;

/// The oldest server that answers a get for what is not there yet with "timeout" after two seconds, and the
/// next ones as well when it has come long since.
const FORGETFUL_SERVER_MIN: u32 = 5;

/// The oldest server that asks a rank's host again for what the rank has published since the last time.
const RENEWING_SERVER_MIN: u32 = 4;

/// What gets wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Door {
    /// Nothing: they wait at the rank that they are about.
    Open,
    /// That this rank publishes, and enters a fence then.
    Closed,
    /// That all ranks have published, which the end of the fence says.
    Fence,
}

/// The bootstrap of a rank whose launcher speaks PMIx.
///
/// The library is one for the process, so a process joins once.
#[derive(Debug)]
pub struct PmixClient {
    library: Library,
    place: Place,
    namespace: [u8; abi::NAMESPACE_BYTES],
    requests: Requests,
    questions: Questions,
    limit: Duration,
    epoch: Instant,
    /// The server does so.
    forgets: bool,
    /// The server knows values of a rank that are published after others of it were asked for.
    renews: bool,
    /// What gets wait for.
    door: Door,
    /// Something was asked for before the addresses, which are asked for behind another fence then.
    has_shared: bool,
    /// Where others may try to reach this rank, until all have published.
    open: Vec<TcpListener>,
    /// This rank's address is there.
    is_published: bool,
    /// When this rank finalized, since `epoch`.
    finalized_at: Option<Duration>,
    /// Whether all ranks have, or why it cannot be known.
    all_finalized: Option<Result<(), String>>,
    is_closed: bool,
}

impl PmixClient {
    /// Joins the job with the library at `path`, or the system's. Blocks for a few exchanges with the server
    /// on this host.
    ///
    /// # Errors
    /// The first message says why there is no library to use, and whoever has another way may take it. The
    /// second says why joining failed.
    pub(crate) fn join(
        identity: &PmixIdentity,
        path: Option<&str>,
        limit: Duration,
    ) -> Result<Result<Self, BootstrapError>, String> {
        let library = Library::open(path)?;
        let joined = Self::join_with(library, identity, limit);
        Ok(joined.map_err(|what| BootstrapError { message: format!("joining the job by PMIx: {what}") }))
    }

    fn join_with(library: Library, identity: &PmixIdentity, limit: Duration) -> Result<Self, String> {
        // Before anything can be answered.
        answers::event()?;
        let epoch = Instant::now();
        let me = library.init()?;
        let namespace = library::namespace(&me);
        // Without a server, some versions make up a job of one rank.
        if namespace != identity.namespace || me.rank != identity.rank {
            return Err(format!(
                "the library says rank {} of job '{namespace}', the launcher rank {} of job '{}': do they belong \
                 together? RMA_PMIX chooses another library",
                me.rank, identity.rank, identity.namespace
            ));
        }
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let job_id = format!("pmix-{}", namespace.chars().filter(is_plain).collect::<String>());
        let job = Proc { rank: abi::RANK_WILDCARD, ..me };
        let number = |of: &Proc, key| await_number(&library, of, key, epoch, limit);
        let size = number(&job, abi::KEY_JOB_SIZE)?;
        if me.rank >= size {
            return Err(format!("rank {} is not below the number of ranks, {size}", me.rank));
        }
        // As in PMI: whose host nobody knows counts as alone on it.
        let local_size = number(&job, abi::KEY_LOCAL_SIZE).unwrap_or(1).clamp(1, size);
        let local_rank = number(&me, abi::KEY_LOCAL_RANK).unwrap_or(0).min(local_size - 1);
        let server = identity.server_version.as_deref().and_then(library::major_version);
        let forgets = server.is_some_and(|major| major >= FORGETFUL_SERVER_MIN);
        let peers =
            || await_answer(&library, &job, abi::KEY_LOCAL_PEERS, epoch, limit).map(|said| ranks(&said));
        let neighbours = match forgets {
            true => peers()?,
            // Who is alone, or with all, knows them.
            false if 1 < local_size && local_size < size => peers().unwrap_or_default(),
            false => Vec::new(),
        };
        let renews = server.is_some_and(|major| major >= RENEWING_SERVER_MIN);
        Ok(Self {
            library,
            place: Place {
                rank: me.rank,
                size,
                local_rank,
                local_size,
                local_ranks: neighbours.into(),
                job_id,
            },
            namespace: me.namespace,
            requests: Requests::new(limit),
            questions: Questions::default(),
            limit,
            epoch,
            forgets,
            renews,
            has_shared: false,
            open: Vec::new(),
            is_published: false,
            door: if forgets { Door::Closed } else { Door::Open },
            finalized_at: None,
            all_finalized: None,
            is_closed: false,
        })
    }

    /// What the library says about its version.
    pub fn version(&self) -> &str {
        self.library.version()
    }

    /// Whether the ranks of the job are on several hosts, and can tell each other something before their addresses.
    pub(crate) fn can_share(&self) -> bool {
        self.renews && self.place.local_size != self.place.size
    }

    /// Hands on what the library has answered, and asks what is to be asked next.
    fn exchange(&mut self) {
        let now = self.epoch.elapsed();
        for (number, answer) in answers::take() {
            if number == FENCE {
                self.all_finalized = Some(match answer {
                    Answer::Failed(status) => Err(self.library.describe(status)),
                    _ => Ok(()),
                });
                continue;
            }
            if number == PUBLISHED {
                // Should it have failed, the gets will say what is missing.
                self.open_door();
                continue;
            }
            let answer = match answer {
                Answer::Bytes(bytes) => Ok(bytes),
                Answer::Failed(abi::ERR_NOT_FOUND) if self.forgets => {
                    self.questions.ask_again(number, now);
                    continue;
                }
                Answer::Failed(abi::ERR_NOT_FOUND) => {
                    self.questions.on_not_found(number, now);
                    continue;
                }
                Answer::Failed(abi::ERR_TIMEOUT) => {
                    self.questions.ask_again(number, now);
                    continue;
                }
                Answer::Failed(status) if status != abi::SUCCESS => Err(self.library.describe(status)),
                _ => Err("it was not published by this library".to_owned()),
            };
            self.questions.on_answer(number);
            self.requests.answer(number, answer);
        }
        if self.door != Door::Open {
            return;
        }
        while let Some(question) = self.questions.poll(now, self.limit) {
            let (number, rank, key) = (question.number, question.rank, question.key.clone());
            // A server that forgets is asked about ranks on this host for what it has now.
            let at_once = self.forgets && self.place.local_ranks.binary_search(&rank).is_ok();
            if let Err(what) = self.ask(number, rank, &key, at_once) {
                self.questions.on_answer(number);
                self.requests.answer(number, Err(what));
            }
        }
    }

    /// Lets the gets go, and the fence at the end if it had to wait: two at the same time are one to the server.
    fn open_door(&mut self) {
        self.door = Door::Open;
        if self.is_published {
            self.open.clear();
        }
        if self.finalized_at.is_some() && self.all_finalized.is_none() {
            if let Err(what) = self.enter_last_fence() {
                self.all_finalized = Some(Err(what));
            }
        }
    }

    /// What this rank has put can be asked for behind a fence, which the gets wait for from now on.
    fn enter_fence(&mut self) -> Result<(), String> {
        self.door = Door::Fence;
        if self.library.fence(PUBLISHED)? == Started::Done {
            self.open_door();
        }
        Ok(())
    }

    fn enter_last_fence(&mut self) -> Result<(), String> {
        if self.library.fence(FENCE)? == Started::Done {
            self.all_finalized = Some(Ok(()));
        }
        Ok(())
    }

    fn error(&self, call: &str, what: &str) -> BootstrapError {
        BootstrapError { message: format!("rank {}: {call}: {what}", self.place.rank) }
    }

    fn ask(&self, number: u32, rank: u32, key: &str, at_once: bool) -> Result<(), String> {
        let of = Proc { namespace: self.namespace, rank };
        match self.library.get(&of, pmix_key(key)?, number, at_once)? {
            Started::Waiting => Ok(()),
            Started::Done => Err("the PMIx library answered a get without a value".to_owned()),
        }
    }

    fn publish_value(&self, key: &str, value: &[u8]) -> Result<(), String> {
        self.library.put(pmix_key(key)?, value)?;
        self.library.commit()
    }
}

/// A number that the server on this host knows; waits for it.
fn await_number(
    library: &Library,
    of: &Proc,
    key: &'static CStr,
    epoch: Instant,
    limit: Duration,
) -> Result<u32, String> {
    match await_answer(library, of, key, epoch, limit)? {
        Answer::Number(number) => Ok(number),
        _ => Err(format!("asking for {}: the answer is no number", key.to_string_lossy())),
    }
}

/// What the server on this host knows; waits for it.
fn await_answer(
    library: &Library,
    of: &Proc,
    key: &'static CStr,
    epoch: Instant,
    limit: Duration,
) -> Result<Answer, String> {
    const NUMBER: u32 = 1;
    let failed = |what: &str| format!("asking for {}: {what}", key.to_string_lossy());
    library.get(of, key, NUMBER, false).map_err(|what| failed(&what))?;
    loop {
        match answers::take().pop() {
            Some((_, Answer::Failed(status))) => return Err(failed(&library.describe(status))),
            Some((_, answer)) => return Ok(answer),
            None => {}
        }
        let remaining = limit.saturating_sub(epoch.elapsed());
        if remaining.is_zero() {
            return Err(failed(&format!("no answer within {} (RMA_BOOTSTRAP_TIMEOUT)", seconds(limit))));
        }
        let waited = crate::socket::wait_fd(answers::event()?.as_fd(), PollFlags::IN, remaining);
        waited.map_err(|error| failed(&error.to_string()))?;
    }
}

/// The ranks in a text such as `0,1,2`, in order.
fn ranks(answer: &Answer) -> Vec<u32> {
    let Answer::Bytes(text) = answer else { return Vec::new() };
    let text = String::from_utf8_lossy(text);
    let mut ranks: Vec<u32> = text.split(',').filter_map(|rank| rank.trim().parse().ok()).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}

/// Our keys under a prefix of their own: those of PMIx itself begin with `pmix`. Each is made once and stays, as the
/// library looks at it later; a job has few.
fn pmix_key(key: &str) -> Result<&'static CStr, String> {
    static MADE: Mutex<BTreeMap<String, &CStr>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = made.get(key) {
        return Ok(kept);
    }
    let name = format!("rma.{key}");
    if name.len() >= abi::KEY_BYTES {
        return Err("the key is too long for PMIx".into());
    }
    let name = CString::new(name).map_err(|_| "PMIx cannot carry a key with a zero byte in it".to_owned())?;
    let kept: &CStr = Box::leak(name.into_boxed_c_str());
    made.insert(key.to_owned(), kept);
    Ok(kept)
}

impl Member for PmixClient {
    fn local_rank(&self) -> u32 {
        self.place.local_rank
    }

    fn local_size(&self) -> u32 {
        self.place.local_size
    }

    fn local_ranks(&self) -> &[u32] {
        &self.place.local_ranks
    }

    fn job_id(&self) -> &str {
        &self.place.job_id
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        check_key("put", key)?;
        let max = crate::wire::VALUE_BYTES_MAX;
        let put = if value.len() > max {
            Err(format!("{} bytes are more than the {max} of a value", value.len()))
        } else {
            self.publish_value(key, value)
        };
        put.map_err(|what| self.error(&format!("put of key '{key}'"), &what))
    }

    fn get(&mut self, rank: Rank, key: &str) -> Result<Fetch, BootstrapError> {
        check_key("get", key)?;
        check_rank("get", rank, self.place.size)?;
        self.exchange();
        match self.requests.ask(rank.0, key, self.epoch.elapsed()) {
            Ask::Answered(Ok(value)) => Ok(Fetch::Found(value)),
            Ask::Answered(Err(reason)) => Err(self.error(&get_name(rank, key), &reason)),
            Ask::Expired => Err(self.error(&get_name(rank, key), &expired(rank, self.limit))),
            Ask::Waiting => Ok(Fetch::Pending),
            Ask::Send(number) => {
                self.questions.push(number, rank.0, key, self.epoch.elapsed());
                self.exchange();
                Ok(Fetch::Pending)
            }
        }
    }

    fn wait_readable(&mut self, timeout: Duration) -> Result<bool, BootstrapError> {
        let event = answers::event().map_err(|what| self.error("waiting for the PMIx library", &what))?;
        let waited = crate::socket::wait_fd(event.as_fd(), PollFlags::IN, timeout);
        waited.map_err(|error| self.error("waiting for the PMIx library", &error.to_string()))
    }

    fn receive(&mut self) {
        self.exchange();
    }

    fn wait_fd(&self) -> Option<i32> {
        answers::event().ok().map(|event| event.as_raw_fd())
    }

    fn finalize(&mut self) -> Result<(), BootstrapError> {
        if self.finalized_at.is_some() {
            return Ok(());
        }
        if self.door != Door::Fence {
            self.enter_last_fence().map_err(|what| self.error("finalize", &what))?;
        }
        self.finalized_at = Some(self.epoch.elapsed());
        Ok(())
    }

    fn poll_all_finalized(&mut self) -> Result<bool, BootstrapError> {
        const CALL: &str = "waiting for all ranks to finalize";
        self.exchange();
        match &self.all_finalized {
            Some(Ok(())) if self.is_closed => Ok(true),
            Some(Ok(())) => {
                // A second call would not be answered.
                self.is_closed = true;
                self.library.finalize().map_err(|what| self.error("finalize", &what))?;
                Ok(true)
            }
            Some(Err(what)) => Err(self.error(CALL, what)),
            None => match not_all_finalized(self.finalized_at, self.epoch.elapsed(), self.limit) {
                Some(what) => Err(self.error(CALL, &what)),
                None => Ok(false),
            },
        }
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), BootstrapError> {
        // Not every launcher shows it.
        say_abort(self.place.rank, message);
        let message = CString::new(message.replace('\0', "")).unwrap_or_default();
        self.library.abort(code, &message).map_err(|what| self.error("abort", &what))
    }
}

impl Sharing for PmixClient {
    fn keep_open(&mut self, listeners: Vec<TcpListener>) {
        self.open = listeners;
    }

    fn share(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), BootstrapError> {
        self.has_shared = true;
        if let Some(value) = value {
            self.put(key, value)?;
        }
        self.enter_fence().map_err(|what| self.error("share", &what))?;
        let begun = Instant::now();
        while self.door != Door::Open {
            let remaining = self.limit.saturating_sub(begun.elapsed());
            if remaining.is_zero() {
                let what = format!(
                    "not all ranks have said what their addresses are within {}; see whether one hangs or never starts, or \
                     raise RMA_BOOTSTRAP_TIMEOUT (seconds)",
                    seconds(self.limit)
                );
                return Err(self.error("trying addresses", &what));
            }
            self.wait_readable(remaining)?;
            self.exchange();
        }
        Ok(())
    }
}

impl Bootstrap for PmixClient {
    fn rank(&self) -> Rank {
        Rank(self.place.rank)
    }

    fn size(&self) -> u32 {
        self.place.size
    }

    fn publish(&mut self, address: &AddressBytes) -> Result<(), BootstrapError> {
        self.put(ADDRESS_KEY, address.as_slice())?;
        self.is_published = true;
        if self.door == Door::Closed || self.has_shared {
            self.enter_fence().map_err(|what| self.error("publish", &what))?;
        }
        Ok(())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        let fetch = self.get(rank, ADDRESS_KEY)?;
        found_address(rank, fetch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranks_of_a_host() {
        assert_eq!(ranks(&Answer::Bytes(b"2,0, 11,x\n".to_vec())), [0, 2, 11]);
        assert!(ranks(&Answer::Number(3)).is_empty());
    }

    #[test]
    fn a_key_stays_and_is_made_once() {
        let key = pmix_key("a").unwrap();
        assert_eq!(key, c"rma.a");
        assert_eq!(pmix_key("a").unwrap().as_ptr(), key.as_ptr());
        assert_eq!(pmix_key("b").unwrap(), c"rma.b");
        assert!(pmix_key("\0").is_err() && pmix_key(&"k".repeat(abi::KEY_BYTES)).is_err());
    }
}
