//! A rank that `rmarun` started, and its side of the control connection.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::ids::Rank;

use crate::control::Control;
use crate::environment::Place;
use crate::member::{Member, Sharing};
use crate::requests::{Ask, Requests};
use crate::wire::{fit_text, Reply, Request, KEY_BYTES_MAX, VERSION};
use crate::{Fetch, ADDRESS_KEY};

/// The bootstrap of a rank that `rmarun` started.
///
/// [`LauncherClient::connect`] first; then put and get in any order; `finalize` last. Dropping it
/// without `finalize` tells the launcher that the rank was cut off.
#[derive(Debug)]
pub struct LauncherClient {
    control: Control,
    place: Place,
    requests: Requests,
    limit: Duration,
    epoch: Instant,
    /// When this rank finalized, since `epoch`.
    finalized_at: Option<Duration>,
    all_finalized: bool,
    /// Ranks that have died, and of which the caller does not know yet.
    losses: VecDeque<Rank>,
    /// Why the launcher cannot be talked to any more.
    lost: Option<String>,
    /// What the launcher refused and nobody has been told yet.
    refusal: Option<String>,
    /// Where others may try to reach this rank, until all have finalized.
    open: Vec<TcpListener>,
}

impl LauncherClient {
    /// Says hello over `control` and waits for the welcome, at most `limit`. Later gets that stay
    /// unanswered for `limit` fail.
    ///
    /// # Errors
    /// When the launcher does not answer in time, is gone, or refuses this process.
    pub fn connect(control: Control, place: Place, limit: Duration) -> Result<Self, BootstrapError> {
        let (rank, process, job) = (place.rank, std::process::id(), place.job_id.clone());
        let hello = Request::Hello { version: VERSION, rank, process, job };
        let mut client = Self {
            control,
            place,
            requests: Requests::new(limit),
            limit,
            epoch: Instant::now(),
            finalized_at: None,
            all_finalized: false,
            losses: VecDeque::new(),
            lost: None,
            refusal: None,
            open: Vec::new(),
        };
        client.control.send(&hello).map_err(|error| client.error("joining the job", &error.to_string()))?;
        client.await_welcome()?;
        Ok(client)
    }

    /// Sends and takes what can be sent and taken now.
    fn exchange(&mut self) {
        if self.lost.is_some() {
            return;
        }
        if let Err(error) = self.control.flush() {
            self.lost = Some(error.to_string());
        }
        // Also after a failed flush: what the launcher said before it went away counts.
        loop {
            match self.control.receive() {
                Ok(Some(reply)) => self.on_reply(reply),
                Ok(None) => return,
                Err(error) => {
                    self.lost = Some(error.to_string());
                    return;
                }
            }
        }
    }

    fn on_reply(&mut self, reply: Reply) {
        match reply {
            // Only a hello is welcomed, and that one has been by `connect`.
            Reply::Welcome { .. } => {}
            Reply::Value { request, value } => {
                self.requests.answer(request, Ok(value));
            }
            Reply::Missing { request, reason } => {
                self.requests.answer(request, Err(reason));
            }
            Reply::AllFinalized => {
                self.all_finalized = true;
                self.open.clear();
            }
            // Of itself, and of ranks that are not there, it has nothing to learn.
            Reply::Lost { rank } => {
                if rank < self.place.size && rank != self.place.rank {
                    self.losses.push_back(Rank(rank));
                }
            }
            Reply::Refused { request, reason } => {
                if !self.requests.answer(request, Err(reason.clone())) {
                    self.refusal = Some(reason);
                }
            }
        }
    }

    fn await_welcome(&mut self) -> Result<(), BootstrapError> {
        const CALL: &str = "joining the job";
        loop {
            match self.control.receive() {
                Ok(Some(Reply::Welcome { version: VERSION, size })) if size == self.place.size => {
                    return Ok(())
                }
                Ok(Some(Reply::Welcome { version, size })) => {
                    let expected = self.place.size;
                    let what = format!(
                        "the launcher speaks version {version} of the control protocol for {size} ranks, this \
                         program version {VERSION} for {expected}; use the rmarun that belongs to this program"
                    );
                    return Err(self.error(CALL, &what));
                }
                Ok(Some(Reply::Refused { reason, .. })) => return Err(self.error(CALL, &reason)),
                // Left over from a process that was this rank before; the refusal of the hello follows.
                Ok(Some(Reply::AllFinalized | Reply::Lost { .. })) => {}
                Ok(Some(_)) => {
                    return Err(self.error(CALL, "the launcher answered a question that was not asked"))
                }
                Ok(None) => {}
                Err(error) => return Err(self.error(CALL, &error.to_string())),
            }
            let remaining = self.limit.saturating_sub(self.epoch.elapsed());
            if remaining.is_zero() {
                let what = format!("no answer within {} (RMA_BOOTSTRAP_TIMEOUT)", seconds(self.limit));
                return Err(self.error(CALL, &what));
            }
            let waited = self.control.wait(self.control.has_unsent(), remaining);
            waited.map_err(|error| self.error(CALL, &error.to_string()))?;
            self.control.flush().map_err(|error| self.error(CALL, &error.to_string()))?;
        }
    }

    /// Sends `message` and everything before it, waiting for the launcher to read if it must.
    fn send_to_the_end(&mut self, call: &str, message: &Request) -> Result<(), BootstrapError> {
        let begun = self.epoch.elapsed();
        self.control.send(message).map_err(|error| self.error(call, &error.to_string()))?;
        while self.control.has_unsent() {
            let remaining = self.limit.saturating_sub(self.epoch.elapsed().saturating_sub(begun));
            if remaining.is_zero() {
                let what = format!("the launcher does not read (waited {})", seconds(self.limit));
                return Err(self.error(call, &what));
            }
            let waited = self.control.wait(true, remaining);
            waited.map_err(|error| self.error(call, &error.to_string()))?;
            self.control.flush().map_err(|error| self.error(call, &error.to_string()))?;
        }
        Ok(())
    }

    fn check_alive(&mut self, call: &str) -> Result<(), BootstrapError> {
        if let Some(reason) = self.refusal.take() {
            return Err(self.error(call, &format!("the launcher refused an earlier request: {reason}")));
        }
        match &self.lost {
            None => Ok(()),
            Some(why) => Err(self.error(call, &format!("the connection to rmarun is lost ({why})"))),
        }
    }

    fn error(&self, call: &str, what: &str) -> BootstrapError {
        BootstrapError { message: format!("rank {}: {call}: {what}", self.place.rank) }
    }
}

impl Member for LauncherClient {
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
        self.exchange();
        self.check_alive("put")?;
        let request = self.requests.take_number();
        let message = Request::Put { request, key: key.to_owned(), value: value.to_vec() };
        self.control
            .send(&message)
            .map_err(|error| self.error(&format!("put of key '{key}'"), &error.to_string()))
    }

    fn get(&mut self, rank: Rank, key: &str) -> Result<Fetch, BootstrapError> {
        check_key("get", key)?;
        check_rank("get", rank, self.place.size)?;
        self.exchange();
        match self.requests.ask(rank.0, key, self.epoch.elapsed()) {
            Ask::Answered(Ok(value)) => Ok(Fetch::Found(value)),
            Ask::Answered(Err(reason)) => Err(self.error(&get_name(rank, key), &reason)),
            Ask::Expired => Err(self.error(&get_name(rank, key), &expired(rank, self.limit))),
            Ask::Waiting => self.check_alive("get").map(|()| Fetch::Pending),
            Ask::Send(request) => {
                self.check_alive("get")?;
                let message = Request::Get { request, rank: rank.0, key: key.to_owned() };
                let sent = self.control.send(&message);
                sent.map_err(|error| self.error(&get_name(rank, key), &error.to_string()))?;
                Ok(Fetch::Pending)
            }
        }
    }

    fn wait_readable(&mut self, timeout: Duration) -> Result<bool, BootstrapError> {
        // A launcher that is gone has nothing more to say, and the next call reports it.
        if self.lost.is_some() {
            return Ok(true);
        }
        let waited = self.control.wait(self.control.has_unsent(), timeout);
        waited.map_err(|error| self.error("waiting for the launcher", &error.to_string()))
    }

    fn receive(&mut self) {
        self.exchange();
    }

    fn wait_fd(&self) -> Option<i32> {
        self.lost.is_none().then(|| self.control.as_fd().as_raw_fd())
    }

    fn finalize(&mut self) -> Result<(), BootstrapError> {
        if self.finalized_at.is_some() {
            return Ok(());
        }
        self.exchange();
        self.check_alive("finalize")?;
        self.send_to_the_end("finalize", &Request::Finalize)?;
        self.finalized_at = Some(self.epoch.elapsed());
        Ok(())
    }

    fn poll_all_finalized(&mut self) -> Result<bool, BootstrapError> {
        const CALL: &str = "waiting for all ranks to finalize";
        self.exchange();
        if self.all_finalized {
            return Ok(true);
        }
        self.check_alive(CALL)?;
        match not_all_finalized(self.finalized_at, self.epoch.elapsed(), self.limit) {
            Some(what) => Err(self.error(CALL, &what)),
            None => Ok(false),
        }
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), BootstrapError> {
        self.send_to_the_end("abort", &Request::Abort { code, message: fit_text(message).to_owned() })
    }
}

impl Sharing for LauncherClient {
    /// Here look-ups wait for the value, and no barrier is needed.
    fn share(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), BootstrapError> {
        value.map_or(Ok(()), |value| self.put(key, value))
    }

    fn keep_open(&mut self, listeners: Vec<TcpListener>) {
        self.open = listeners;
    }
}

impl Bootstrap for LauncherClient {
    fn rank(&self) -> Rank {
        Rank(self.place.rank)
    }

    fn size(&self) -> u32 {
        self.place.size
    }

    fn publish(&mut self, address: &AddressBytes) -> Result<(), BootstrapError> {
        self.put(ADDRESS_KEY, address.as_slice())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        let fetch = self.get(rank, ADDRESS_KEY)?;
        found_address(rank, fetch)
    }

    fn poll_lost(&mut self) -> Option<Rank> {
        self.losses.pop_front()
    }
}

/// A key that the protocol can carry.
pub(crate) fn check_key(call: &str, key: &str) -> Result<(), BootstrapError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        let message = format!("{call} of key '{}': a key has 1 to {KEY_BYTES_MAX} bytes", fit_text(key));
        return Err(BootstrapError { message });
    }
    Ok(())
}

/// A rank of the job.
pub(crate) fn check_rank(call: &str, rank: Rank, size: u32) -> Result<(), BootstrapError> {
    if rank.0 < size {
        return Ok(());
    }
    Err(BootstrapError { message: format!("{call}: rank {rank} is not in this job of {size} ranks") })
}

/// A published value as an address.
pub(crate) fn found_address(rank: Rank, fetch: Fetch) -> Result<Lookup, BootstrapError> {
    match fetch {
        Fetch::Pending => Ok(Lookup::Pending),
        Fetch::Found(value) => AddressBytes::new(&value).map(Lookup::Found).ok_or_else(|| BootstrapError {
            message: format!(
                "lookup: rank {rank} published {} bytes, which is no provider address",
                value.len()
            ),
        }),
    }
}

/// Why a value whose time limit has passed is not there.
#[cold]
#[inline(never)]
pub(crate) fn expired(rank: Rank, limit: Duration) -> String {
    format!(
        "rank {rank} has not published it within {}; see whether rank {rank} hangs before it joins the job, or \
         raise RMA_BOOTSTRAP_TIMEOUT (seconds)",
        seconds(limit)
    )
}

/// Why ranks that have not finalized are waited for no longer, when the time limit has passed.
pub(crate) fn not_all_finalized(since: Option<Duration>, now: Duration, limit: Duration) -> Option<String> {
    let waited = since.map_or(Duration::ZERO, |since| now.saturating_sub(since));
    (waited >= limit).then(|| {
        format!(
            "some rank has not within {}; each must call finalize, or raise RMA_BOOTSTRAP_TIMEOUT (seconds)",
            seconds(limit)
        )
    })
}

/// What is being done when a value is asked for.
pub(crate) fn get_name(rank: Rank, key: &str) -> String {
    match key {
        ADDRESS_KEY => format!("looking up the address of rank {rank}"),
        _ => format!("get of key '{key}' of rank {rank}"),
    }
}

/// A time limit for people.
pub(crate) fn seconds(limit: Duration) -> String {
    format!("{} s", limit.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// Far above what any of this takes on a busy machine.
    const LIMIT: Duration = Duration::from_secs(60);

    /// What is waited for that does not come.
    const SHORT: Duration = Duration::from_millis(200);

    fn place() -> Place {
        Place {
            rank: 1,
            size: 4,
            local_rank: 1,
            local_size: 4,
            local_ranks: [0, 1, 2, 3].into(),
            job_id: "j".into(),
        }
    }

    /// A client and the launcher's end, which has sent `replies` before the client began.
    fn with_replies(limit: Duration, replies: &[Reply]) -> (Result<LauncherClient, BootstrapError>, Control) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut launcher = Control::new(theirs.into()).unwrap();
        for reply in replies {
            launcher.send(reply).unwrap();
        }
        (LauncherClient::connect(Control::new(ours.into()).unwrap(), place(), limit), launcher)
    }

    fn welcomed(limit: Duration) -> (LauncherClient, Control) {
        let (client, mut launcher) = with_replies(limit, &[Reply::Welcome { version: VERSION, size: 4 }]);
        let hello = launcher.receive::<Request>().unwrap();
        let process = std::process::id();
        assert_eq!(hello, Some(Request::Hello { version: VERSION, rank: 1, process, job: "j".into() }));
        (client.unwrap(), launcher)
    }

    #[test]
    fn asks_once_and_finds() {
        let (mut client, mut launcher) = welcomed(LIMIT);
        assert!(matches!(client.lookup(Rank(2)), Ok(Lookup::Pending)));
        assert!(matches!(client.lookup(Rank(2)), Ok(Lookup::Pending)));
        let Ok(Some(Request::Get { request, rank: 2, key })) = launcher.receive::<Request>() else {
            panic!("one get")
        };
        assert_eq!(key, ADDRESS_KEY);
        assert!(matches!(launcher.receive::<Request>(), Ok(None)));
        launcher.send(&Reply::Value { request, value: b"there".to_vec() }).unwrap();
        assert!(client.wait_readable(LIMIT).unwrap());
        let Ok(Lookup::Found(address)) = client.lookup(Rank(2)) else { panic!("answered") };
        assert_eq!(address.as_slice(), b"there");
    }

    #[test]
    fn an_unanswered_lookup_fails_and_names_the_rank() {
        let (mut client, _launcher) = welcomed(SHORT);
        let begun = Instant::now();
        let error = loop {
            match client.lookup(Rank(3)) {
                Ok(Lookup::Pending) => assert!(!client.wait_readable(Duration::from_millis(10)).unwrap()),
                Ok(Lookup::Found(_)) => panic!("nobody published"),
                Err(error) => break error,
            }
            assert!(begun.elapsed() < LIMIT);
        };
        assert!(begun.elapsed() >= SHORT);
        assert!(error.message.contains("rank 3 has not published"), "{error}");
        assert!(error.message.contains("RMA_BOOTSTRAP_TIMEOUT"), "{error}");
    }

    #[test]
    fn a_lost_launcher_is_an_error_after_its_last_words() {
        let (mut client, mut launcher) = welcomed(LIMIT);
        assert!(matches!(client.get(Rank(0), "k"), Ok(Fetch::Pending)));
        let Ok(Some(Request::Get { request, .. })) = launcher.receive::<Request>() else { panic!("one get") };
        launcher.send(&Reply::Value { request, value: vec![1] }).unwrap();
        drop(launcher);
        assert_eq!(client.get(Rank(0), "k"), Ok(Fetch::Found(vec![1])));
        let error = client.get(Rank(0), "k").unwrap_err();
        assert!(error.message.contains("rmarun is lost"), "{error}");
        assert!(client.put("k", b"").is_err());
        assert!(client.finalize().is_err());
    }

    #[test]
    fn refusals_reach_the_next_call() {
        let (mut client, mut launcher) = welcomed(LIMIT);
        client.put("k", b"v").unwrap();
        let Ok(Some(Request::Put { request, .. })) = launcher.receive::<Request>() else { panic!("one put") };
        launcher.send(&Reply::Refused { request, reason: "put twice".into() }).unwrap();
        assert!(client.finalize().unwrap_err().message.contains("put twice"));
        assert_eq!(client.finalize(), Ok(()));
        assert_eq!(client.finalize(), Ok(()));
        assert!(matches!(launcher.receive::<Request>(), Ok(Some(Request::Finalize))));
        assert!(matches!(launcher.receive::<Request>(), Ok(None)));
    }

    #[test]
    fn hello_may_fail() {
        let unanswered = with_replies(SHORT, &[]).0.unwrap_err().message;
        assert!(unanswered.contains("no answer within 0.2 s"), "{unanswered}");
        let message = |replies: &[Reply]| with_replies(LIMIT, replies).0.unwrap_err().message;
        assert!(message(&[Reply::Welcome { version: VERSION + 1, size: 4 }]).contains("version"));
        assert!(message(&[Reply::Welcome { version: VERSION, size: 5 }]).contains("5 ranks"));
        assert!(message(&[Reply::Refused { request: 0, reason: "other job".into() }]).contains("other job"));
        assert!(message(&[Reply::Value { request: 0, value: vec![] }]).contains("not asked"));
    }

    #[test]
    fn waits_for_all_to_finalize_and_not_for_ever() {
        let (mut client, mut launcher) = welcomed(LIMIT);
        assert_eq!(client.poll_all_finalized(), Ok(false));
        client.finalize().unwrap();
        assert_eq!(client.poll_all_finalized(), Ok(false));
        client.limit = Duration::ZERO;
        assert!(client.poll_all_finalized().unwrap_err().message.contains("some rank has not within 0 s"));
        launcher.send(&Reply::AllFinalized).unwrap();
        assert!(client.wait_readable(LIMIT).unwrap());
        assert_eq!(client.poll_all_finalized(), Ok(true));
        drop(launcher);
        assert_eq!(client.poll_all_finalized(), Ok(true), "nothing is needed of the launcher any more");
    }

    #[test]
    fn who_has_not_finalized_is_waited_for_until_the_limit() {
        let (since, tick) = (Duration::from_secs(7), Duration::from_nanos(1));
        assert_eq!(not_all_finalized(None, 2 * LIMIT, LIMIT), None, "this rank has not either");
        assert_eq!(not_all_finalized(Some(since), since + SHORT - tick, SHORT), None);
        let what = not_all_finalized(Some(since), since + SHORT, SHORT).unwrap();
        assert!(what.contains("some rank has not within 0.2 s"), "{what}");
    }

    #[test]
    fn losses_are_told_once_and_only_of_others() {
        let (mut client, mut launcher) = welcomed(LIMIT);
        assert_eq!(client.poll_lost(), None);
        for rank in [3, 1, 4, 0] {
            launcher.send(&Reply::Lost { rank }).unwrap();
        }
        assert!(client.wait_readable(LIMIT).unwrap());
        client.receive();
        let told: Vec<Rank> = std::iter::from_fn(|| client.poll_lost()).collect();
        assert_eq!(told, [Rank(3), Rank(0)], "rank 1 is the client, and rank 4 is nobody");
    }

    #[test]
    fn wrong_arguments_never_reach_the_launcher() {
        let (mut client, mut launcher) = welcomed(LIMIT);
        assert!(client.get(Rank(4), "k").unwrap_err().message.contains("job of 4"));
        assert!(client.get(Rank(0), "").is_err());
        assert!(client.put(&"k".repeat(KEY_BYTES_MAX + 1), b"").is_err());
        assert!(client.put("k", &[0; 5000]).unwrap_err().message.contains("value"));
        assert!(matches!(launcher.receive::<Request>(), Ok(None)));
    }
}
