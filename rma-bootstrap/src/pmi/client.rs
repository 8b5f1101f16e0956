//! A rank whose launcher speaks PMI, and its side of the connection.

use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::ids::Rank;

use super::channel::Channel;
use super::session::{Session, Version};
use crate::client::{check_key, check_rank, expired, found_address, get_name, not_all_finalized, seconds};
use crate::environment::Place;
use crate::last_words::say_abort;
use crate::member::{Member, Sharing};
use crate::requests::{Ask, Requests};
use crate::{Fetch, ADDRESS_KEY};

/// How long a rank that leaves without a word waits for the server's answer: to some it answers when another rank has come.
const LAST_ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Where the PMI server is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PmiTarget {
    /// At the other end of an inherited socket.
    Inherited {
        /// The socket's number, from PMI_FD.
        fd: i32,
        /// This rank, from PMI_RANK.
        rank: u32,
        /// The number of ranks, from PMI_SIZE.
        size: u32,
        /// The server's name for the job, from PMI_JOBID, where it wants it back.
        job: Option<String>,
    },
    /// Behind a TCP port.
    Port {
        /// Host and port, from PMI_PORT.
        address: String,
        /// The number by which the server knows this process, from PMI_ID.
        id: u32,
    },
}

/// The bootstrap of a rank whose launcher speaks PMI-1 or PMI-2.
///
/// [`PmiClient::join`] first; then whatever is to be put, and [`Bootstrap::publish`], which enters the
/// barrier behind which look-ups are answered; `finalize` last.
#[derive(Debug)]
pub struct PmiClient {
    channel: Channel,
    session: Session,
    place: Place,
    requests: Requests,
    limit: Duration,
    epoch: Instant,
    /// When this rank entered the barrier behind its values, since `epoch`.
    committed_at: Duration,
    /// When this rank finalized, since `epoch`.
    finalized_at: Option<Duration>,
    /// Messages to and from the server so far.
    message_count: u64,
    /// The barrier that was entered last is that of values which are needed before the addresses.
    is_sharing: bool,
    /// Where others may try to reach this rank.
    open: Vec<TcpListener>,
    /// Why the server cannot be talked to any more.
    lost: Option<String>,
}

impl PmiClient {
    /// Joins the job, in this version of the protocol or in the highest that the server speaks. Blocks for a
    /// few exchanges with the server, at most `limit` together. `local_place` is what the environment says
    /// about the ranks on this host, for servers that do not.
    ///
    /// # Errors
    /// When there is no server, it does not answer in time, or speaks something else.
    pub fn join(
        target: &PmiTarget,
        version: Option<Version>,
        local_place: Option<(u32, u32)>,
        limit: Duration,
    ) -> Result<Self, BootstrapError> {
        let begun = Instant::now();
        let (socket, session) = match target {
            PmiTarget::Inherited { fd, rank, size, job } => {
                let socket =
                    crate::socket::adopt(*fd, "PMI_FD").map_err(|message| BootstrapError { message })?;
                (socket, Session::new(version, Some((*rank, *size)), 0).with_job(job.as_deref()))
            }
            PmiTarget::Port { address, id } => (connect(address, limit)?, Session::new(version, None, *id)),
        };
        Self::join_over(socket, session, local_place, limit, begun)
    }

    fn join_over(
        socket: OwnedFd,
        session: Session,
        local_place: Option<(u32, u32)>,
        limit: Duration,
        epoch: Instant,
    ) -> Result<Self, BootstrapError> {
        let failed = |what: &str| BootstrapError { message: format!("joining the job by PMI: {what}") };
        let (local_ranks, job_id) = (Arc::default(), String::new());
        let place = Place { rank: 0, size: 0, local_rank: 0, local_size: 1, local_ranks, job_id };
        let mut client = Self {
            channel: Channel::new(socket).map_err(|error| failed(&error.to_string()))?,
            session,
            place,
            requests: Requests::new(limit),
            limit,
            epoch,
            committed_at: Duration::ZERO,
            finalized_at: None,
            message_count: 0,
            is_sharing: false,
            open: Vec::new(),
            lost: None,
        };
        loop {
            client.exchange();
            if let Some(why) = &client.lost {
                return Err(failed(why));
            }
            if client.session.is_idle() {
                break;
            }
            let remaining = limit.saturating_sub(client.epoch.elapsed());
            if remaining.is_zero() {
                return Err(failed(&format!("no answer within {} (RMA_BOOTSTRAP_TIMEOUT)", seconds(limit))));
            }
            let waited = client.channel.wait(client.channel.has_unsent(), remaining);
            waited.map_err(|error| failed(&error.to_string()))?;
        }
        let (rank, size) = client
            .session
            .place()
            .ok_or_else(|| failed("the server said no rank below the number of ranks"))?;
        let (local_rank, local_size) = place_on_host(client.session.local_place(), local_place, size);
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let job_id = format!("pmi-{}", client.session.job().chars().filter(is_plain).collect::<String>());
        let local_ranks = client.session.local_ranks();
        client.place = Place { rank, size, local_rank, local_size, local_ranks, job_id };
        Ok(client)
    }

    /// The version of the protocol that is spoken.
    pub fn version(&self) -> Version {
        self.session.version()
    }

    /// Whether the ranks of the job are on several hosts.
    pub(crate) fn is_spread(&self) -> bool {
        self.place.local_size != self.place.size
    }

    /// Messages to and from the server so far: what this rank costs it.
    pub fn message_count(&self) -> u64 {
        self.message_count
    }

    /// Sends and takes what can be sent and taken now.
    fn exchange(&mut self) {
        if self.lost.is_some() {
            return;
        }
        if let Err(why) = self.try_exchange() {
            self.lost = Some(why);
        }
        while let Some((number, answer)) = self.session.poll_answer() {
            self.requests.answer(number, answer);
        }
    }

    fn try_exchange(&mut self) -> Result<(), String> {
        // Also after a failed flush: what the server said before it went away counts.
        let flushed = self.channel.flush().map_err(|error| error.to_string());
        loop {
            self.channel.set_syntax(self.session.syntax());
            if let Some(request) = self.session.poll_request() {
                self.message_count += 1;
                self.channel.send(&request).map_err(|error| error.to_string())?;
            }
            // Its last words were the leave that this rank took.
            if self.session.is_finalized() {
                return Ok(());
            }
            match self.channel.receive() {
                Ok(Some(reply)) => {
                    self.message_count += 1;
                    self.session.on_reply(&reply)?;
                }
                Ok(None) => return flushed,
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn commit(&mut self) {
        if !self.session.is_committing() {
            self.session.commit();
            self.committed_at = self.epoch.elapsed();
            self.exchange();
        }
    }

    /// Waits until the barrier that was entered is over.
    fn await_commit(&mut self, call: &str) -> Result<(), BootstrapError> {
        loop {
            self.exchange();
            if self.session.is_committed() {
                return Ok(());
            }
            self.check_alive(call)?;
            let passed = self.epoch.elapsed().saturating_sub(self.committed_at);
            let remaining = self.limit.saturating_sub(passed);
            if remaining.is_zero() {
                return Err(self.uncommitted(call));
            }
            self.wait_readable(remaining)?;
        }
    }

    /// The barrier of [`Sharing::share`] is not that of the addresses.
    fn end_sharing(&mut self) {
        if std::mem::take(&mut self.is_sharing) {
            self.session.begin_round();
        }
    }

    /// Asks for nothing more, and waits a while for the answer to what was asked for: one of Hydra's proxies that cannot answer a rank
    /// ends, and what the ranks of its host have written last, such as why they fail, is lost with it.
    fn take_last_answer(&mut self) {
        let since = self.epoch.elapsed();
        while self.session.ask_no_more() && self.lost.is_none() {
            let left = LAST_ANSWER_LIMIT.saturating_sub(self.epoch.elapsed().saturating_sub(since));
            if left.is_zero() || self.wait_readable(left).is_err() {
                return;
            }
            self.exchange();
        }
    }

    fn check_alive(&self, call: &str) -> Result<(), BootstrapError> {
        match &self.lost {
            None => Ok(()),
            Some(why) => Err(self.error(call, &format!("the connection to the PMI server is lost ({why})"))),
        }
    }

    #[cold]
    #[inline(never)]
    fn uncommitted(&self, call: &str) -> BootstrapError {
        let what = format!(
            "not all ranks have published within {}, which PMI waits for; see whether one hangs or never starts, or \
             raise RMA_BOOTSTRAP_TIMEOUT (seconds)",
            seconds(self.limit)
        );
        self.error(call, &what)
    }

    fn error(&self, call: &str, what: &str) -> BootstrapError {
        BootstrapError { message: format!("rank {}: {call}: {what}", self.place.rank) }
    }
}

impl Drop for PmiClient {
    /// To a server the end of a connection without leave is the end of the rank. Hydra's proxies kill the ranks of their
    /// host for it, this one among them, at once: before the program has written why it fails, which it does when
    /// this value is gone. So the connection ends with the process.
    fn drop(&mut self) {
        if !self.session.is_finalized() {
            self.take_last_answer();
            self.channel.keep_until_exit();
        }
    }
}

impl Member for PmiClient {
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
        self.check_alive("put")?;
        let put = self.session.put(key, value);
        put.map_err(|what| self.error(&format!("put of key '{key}'"), &what))?;
        self.exchange();
        Ok(())
    }

    fn get(&mut self, rank: Rank, key: &str) -> Result<Fetch, BootstrapError> {
        check_key("get", key)?;
        check_rank("get", rank, self.place.size)?;
        self.exchange();
        self.commit();
        let now = self.epoch.elapsed();
        if !self.session.is_committed() {
            self.check_alive(&get_name(rank, key))?;
            return match now.saturating_sub(self.committed_at) < self.limit {
                true => Ok(Fetch::Pending),
                false => Err(self.uncommitted(&get_name(rank, key))),
            };
        }
        match self.requests.ask(rank.0, key, now) {
            Ask::Answered(Ok(value)) => Ok(Fetch::Found(value)),
            Ask::Answered(Err(reason)) => Err(self.error(&get_name(rank, key), &reason)),
            Ask::Expired => Err(self.error(&get_name(rank, key), &expired(rank, self.limit))),
            Ask::Waiting => self.check_alive("get").map(|()| Fetch::Pending),
            Ask::Send(number) => {
                self.check_alive("get")?;
                self.session.get(number, rank.0, key);
                self.exchange();
                Ok(Fetch::Pending)
            }
        }
    }

    fn wait_readable(&mut self, timeout: Duration) -> Result<bool, BootstrapError> {
        // A server that is gone has nothing more to say, and the next call reports it.
        if self.lost.is_some() {
            return Ok(true);
        }
        let waited = self.channel.wait(self.channel.has_unsent(), timeout);
        waited.map_err(|error| self.error("waiting for the PMI server", &error.to_string()))
    }

    fn receive(&mut self) {
        self.exchange();
    }

    fn wait_fd(&self) -> Option<i32> {
        self.lost.is_none().then(|| self.channel.as_fd().as_raw_fd())
    }

    fn finalize(&mut self) -> Result<(), BootstrapError> {
        if self.finalized_at.is_some() {
            return Ok(());
        }
        self.check_alive("finalize")?;
        self.end_sharing();
        self.session.finalize();
        self.finalized_at = Some(self.epoch.elapsed());
        self.exchange();
        Ok(())
    }

    fn poll_all_finalized(&mut self) -> Result<bool, BootstrapError> {
        const CALL: &str = "waiting for all ranks to finalize";
        self.exchange();
        if self.session.is_finalized() {
            self.open.clear();
            return Ok(true);
        }
        self.check_alive(CALL)?;
        match not_all_finalized(self.finalized_at, self.epoch.elapsed(), self.limit) {
            Some(what) => Err(self.error(CALL, &what)),
            None => Ok(false),
        }
    }

    fn abort(&mut self, code: i32, message: &str) -> Result<(), BootstrapError> {
        // PMI servers show no message.
        say_abort(self.place.rank, message);
        let abort = self.session.abort(code, message);
        self.channel.send(&abort).map_err(|error| self.error("abort", &error.to_string()))
    }
}

impl Sharing for PmiClient {
    fn share(&mut self, key: &str, value: Option<&[u8]>) -> Result<(), BootstrapError> {
        if self.is_sharing {
            self.await_commit("trying addresses")?;
        }
        self.end_sharing();
        if let Some(value) = value {
            self.put(key, value)?;
        }
        self.commit();
        self.is_sharing = true;
        Ok(())
    }

    /// They stay open until all have finalized: there are servers that call their fences over before all ranks have come.
    fn keep_open(&mut self, listeners: Vec<TcpListener>) {
        self.open = listeners;
    }
}

/// Rank among those on the host, and their number: what the server has said, else what the environment says, unless that
/// is another job's. A rank whose host nobody knows counts as alone on it: that costs speed where it is wrong, and the
/// opposite would cost the connection.
fn place_on_host(said: Option<(u32, u32)>, environment: Option<(u32, u32)>, size: u32) -> (u32, u32) {
    let of_this_job = environment.filter(|(_, local_size)| *local_size <= size);
    said.or(of_this_job).unwrap_or((0, 1))
}

impl Bootstrap for PmiClient {
    fn rank(&self) -> Rank {
        Rank(self.place.rank)
    }

    fn size(&self) -> u32 {
        self.place.size
    }

    fn publish(&mut self, address: &AddressBytes) -> Result<(), BootstrapError> {
        self.end_sharing();
        self.put(ADDRESS_KEY, address.as_slice())?;
        self.commit();
        Ok(())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        let fetch = self.get(rank, ADDRESS_KEY)?;
        found_address(rank, fetch)
    }
}

/// A connection to the server at `address`, the first of its addresses that answers.
fn connect(address: &str, limit: Duration) -> Result<OwnedFd, BootstrapError> {
    let failed = |what: String| BootstrapError { message: format!("PMI_PORT={address}: {what}") };
    let candidates = address.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    let mut tried = String::new();
    for candidate in candidates {
        match TcpStream::connect_timeout(&candidate, limit) {
            Ok(stream) => {
                // Small requests, each waiting for its reply; a failure costs speed only.
                let _ = stream.set_nodelay(true);
                return Ok(stream.into());
            }
            Err(error) => tried += &format!("\n  {candidate}: {error}"),
        }
    }
    Err(failed(format!("no PMI server answers. Tried:{tried}")))
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
