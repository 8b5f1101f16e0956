//! The connecting side: tries all addresses, and keeps the first behind which its own job is.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rma_bootstrap::interfaces::Interface;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{sockopt, AddressFamily, SocketFlags, SocketType};

use super::addresses::Candidate;
use super::proof::{Guest, Heard, Secret};
use super::{local_address, prepare, HANDSHAKE_PATIENCE};

/// How long one attempt is alone before the next address is tried as well.
const STAGGER: Duration = Duration::from_millis(250);

/// Before addresses that have failed, in a way that may pass, are tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// How often this side looks whether anybody still hears it.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Bytes read at once; no message of the other side is longer.
const READ_BYTES: usize = 128;

/// A connection to the job.
#[derive(Debug)]
pub(crate) struct Connected {
    /// The connection, which blocks.
    pub(crate) stream: TcpStream,
    /// This side's address on it, and so one by which the other host reaches this one.
    pub(crate) local: IpAddr,
}

/// No address leads to the job.
#[derive(Debug)]
pub(crate) struct Unreachable {
    took: Duration,
    /// Each address, and how it failed the last time.
    tried: Vec<(SocketAddr, String)>,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { took, tried } = self;
        if tried.is_empty() {
            return f.write_str("there is no address to connect to");
        }
        let count = if tried.len() == 1 {
            "the one address".into()
        } else {
            format!("any of {} addresses", tried.len())
        };
        write!(f, "the job cannot be reached by {count}, tried for {:.1} s:", took.as_secs_f64())?;
        for (address, failure) in tried {
            write!(f, "\n  {address}: {failure}")?;
        }
        f.write_str("\n--iface names the interface by which hosts reach each other; is there a firewall?")
    }
}

/// Connects to whoever listens at one of `candidates` and knows `secret`, as number `id` of the job. Takes at most
/// about `bound`. Addresses are tried in their order, each [`STAGGER`] after the one before or as soon as that has
/// failed, and again if they failed in a way that may pass. When whoever reads this process's standard error has gone,
/// nobody waits for it any more, and it gives up.
///
/// # Errors
/// All that was tried, and how each failed.
pub(crate) fn connect(
    candidates: &[Candidate],
    secret: &Secret,
    id: u32,
    bound: Duration,
) -> Result<Connected, Unreachable> {
    // Without the list link-local addresses lead nowhere, and the others as before.
    let own = rma_bootstrap::interfaces::interfaces().unwrap_or_default();
    let started_at = Instant::now();
    let mut race = Race::new(candidates, &own, secret, id, started_at + bound);
    match race.run() {
        Some(connected) => Ok(connected),
        None => Err(Unreachable { took: started_at.elapsed(), tried: race.outcomes() }),
    }
}

/// All attempts of one call.
struct Race<'a> {
    ways: Vec<Way>,
    secret: &'a Secret,
    id: u32,
    ends_at: Instant,
    /// When the next address may be tried.
    next_at: Instant,
}

/// One address, and what is known about it.
struct Way {
    address: SocketAddr,
    /// Not tried before; `None`: never again.
    tries_at: Option<Instant>,
    attempt: Option<Attempt>,
    failure: String,
}

/// A connection that is being made or is being proved.
struct Attempt {
    stream: TcpStream,
    guest: Guest,
    stage: Stage,
    ends_at: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The kernel connects.
    Connects,
    /// The other side has to prove itself.
    Asks,
    /// The other side has to take this side's proof.
    Claims,
}

/// Why an attempt failed.
struct Failure {
    message: String,
    /// It may pass: nobody listens yet, too many connect.
    may_pass: bool,
}

impl Failure {
    fn of(error: &io::Error) -> Self {
        Self { message: error.to_string(), may_pass: true }
    }
}

impl<'a> Race<'a> {
    fn new(
        candidates: &[Candidate],
        own: &[Interface],
        secret: &'a Secret,
        id: u32,
        ends_at: Instant,
    ) -> Self {
        let now = Instant::now();
        let mut ways: Vec<Way> = Vec::new();
        for address in candidates.iter().flat_map(|candidate| candidate.ways(own)) {
            if ways.iter().all(|way| way.address != address) {
                ways.push(Way { address, tries_at: Some(now), attempt: None, failure: "not tried".into() });
            }
        }
        Self { ways, secret, id, ends_at, next_at: now }
    }

    fn run(&mut self) -> Option<Connected> {
        loop {
            let now = Instant::now();
            self.start_next(now);
            if let Some(connected) = self.advance(now) {
                return Some(connected);
            }
            let is_over = |way: &Way| way.tries_at.is_none() && way.attempt.is_none();
            if now >= self.ends_at || self.ways.iter().all(is_over) || !is_heard() {
                return None;
            }
            self.wait(now);
        }
    }

    /// Starts the next attempt, if it is time for one.
    fn start_next(&mut self, now: Instant) {
        // While one has proved itself, the others only would make work.
        if now < self.next_at || self.has_claim() {
            return;
        }
        let due = |way: &&mut Way| way.attempt.is_none() && way.tries_at.is_some_and(|at| at <= now);
        let Some(way) = self.ways.iter_mut().filter(due).min_by_key(|way| way.tries_at) else { return };
        match Attempt::start(way.address, self.id, now) {
            Ok(attempt) => {
                way.attempt = Some(attempt);
                self.next_at = now + STAGGER;
            }
            Err(failure) => way.fail(failure, now),
        }
    }

    fn has_claim(&self) -> bool {
        self.ways.iter().any(|way| way.attempt.as_ref().is_some_and(|attempt| attempt.stage == Stage::Claims))
    }

    /// Carries every attempt on as far as it goes.
    fn advance(&mut self, now: Instant) -> Option<Connected> {
        for index in 0..self.ways.len() {
            let has_claim = self.has_claim();
            let way = &mut self.ways[index];
            let Some(attempt) = &mut way.attempt else { continue };
            let may_claim = !has_claim || attempt.stage == Stage::Claims;
            match attempt.advance(self.secret, may_claim, now) {
                Ok(false) => {}
                Ok(true) => {
                    let Attempt { stream, .. } = way.attempt.take()?;
                    match prepare(&stream).and_then(|()| local_address(&stream)) {
                        Ok(local) => return Some(Connected { stream, local }),
                        Err(error) => way.fail(Failure::of(&error), now),
                    }
                }
                Err(failure) => {
                    way.fail(failure, now);
                    self.next_at = now;
                }
            }
        }
        None
    }

    /// Sleeps until something can be done.
    fn wait(&self, now: Instant) {
        let attempts = || self.ways.iter().filter_map(|way| way.attempt.as_ref());
        let has_claim = self.has_claim();
        let next = self.ways.iter().filter(|way| way.attempt.is_none()).filter_map(|way| way.tries_at).min();
        let next = next.filter(|_| !has_claim).map(|at| at.max(self.next_at));
        let until = attempts().map(|attempt| attempt.ends_at).chain(next).chain([self.ends_at]).min();
        let left = until.unwrap_or(now).saturating_duration_since(now).min(LOOK_INTERVAL);
        let left = left + Duration::from_millis(1);
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let watched = attempts().filter(|attempt| !has_claim || attempt.stage != Stage::Asks);
        let mut fds: Vec<PollFd<'_>> = watched.map(Attempt::poll_fd).collect();
        // A signal only makes it look earlier.
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
    }

    fn outcomes(&mut self) -> Vec<(SocketAddr, String)> {
        let outcome = |way: &mut Way| {
            let failure = match &way.attempt {
                Some(attempt) => attempt.stage.silence().into(),
                None => std::mem::take(&mut way.failure),
            };
            (way.address, failure)
        };
        self.ways.iter_mut().map(outcome).collect()
    }
}

impl Way {
    fn fail(&mut self, failure: Failure, now: Instant) {
        self.attempt = None;
        self.tries_at = failure.may_pass.then_some(now + PAUSE);
        self.failure = failure.message;
    }
}

impl Stage {
    /// What it means that nothing has come in this stage.
    fn silence(self) -> &'static str {
        match self {
            Self::Connects => "no answer",
            Self::Asks => "somebody listens and does not answer as rmarun does",
            Self::Claims => "the job's launcher answers and does not go on",
        }
    }
}

impl Attempt {
    fn start(address: SocketAddr, id: u32, now: Instant) -> Result<Self, Failure> {
        let guest = Guest::new(id).map_err(|error| Failure::of(&error))?;
        let stream = begin(address).map_err(|error| Failure::of(&error))?;
        Ok(Self { stream, guest, stage: Stage::Connects, ends_at: now + HANDSHAKE_PATIENCE })
    }

    fn poll_fd(&self) -> PollFd<'_> {
        let flags = if self.stage == Stage::Connects { PollFlags::OUT } else { PollFlags::IN };
        PollFd::from_borrowed_fd(self.stream.as_fd(), flags)
    }

    /// Goes on as far as it can without waiting; whether it is through. `may_claim` says whether this side may
    /// say who it is, which it does on one connection at a time.
    fn advance(&mut self, secret: &Secret, may_claim: bool, now: Instant) -> Result<bool, Failure> {
        if self.stage == Stage::Connects && self.is_connected()? {
            self.say(&self.guest.hello())?;
            self.stage = Stage::Asks;
        }
        while self.stage != Stage::Connects && may_claim {
            let mut bytes = [0; READ_BYTES];
            let wanted = self.guest.wanted().min(READ_BYTES);
            let len = match self.stream.read(&mut bytes[..wanted]) {
                Ok(0) => return Err(Failure { message: self.stage.end().into(), may_pass: true }),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(Failure::of(&error)),
            };
            match self.guest.on_bytes(secret, &bytes[..len]) {
                Ok(Heard::Nothing) => {}
                Ok(Heard::Host) => {
                    let claim = self.guest.claim(secret).unwrap_or_default();
                    self.say(&claim)?;
                    self.stage = Stage::Claims;
                }
                Ok(Heard::Welcome) => return Ok(true),
                // Whoever it is, it will not become another one.
                Err(refusal) => return Err(Failure { message: refusal.to_string(), may_pass: false }),
            }
        }
        if now >= self.ends_at {
            let message = format!("{} within {} s", self.stage.silence(), HANDSHAKE_PATIENCE.as_secs());
            return Err(Failure { message, may_pass: true });
        }
        Ok(false)
    }

    fn is_connected(&self) -> Result<bool, Failure> {
        let mut fds = [self.poll_fd()];
        match rustix::event::poll(&mut fds, Some(&Timespec::default())) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => return Err(Failure::of(&errno.into())),
        }
        match sockopt::socket_error(&self.stream) {
            Ok(Ok(())) => Ok(true),
            Ok(Err(errno)) | Err(errno) => Err(Failure::of(&errno.into())),
        }
    }

    fn say(&self, message: &[u8]) -> Result<(), Failure> {
        // The first bytes on a connection always find room in its buffer.
        (&self.stream).write_all(message).map_err(|error| Failure::of(&error))
    }
}

impl Stage {
    /// What it means that the other side has closed the connection in this stage.
    fn end(self) -> &'static str {
        match self {
            Self::Connects | Self::Asks => {
                "the connection was closed at once, by another program or for too many at a time"
            }
            Self::Claims => "the job's launcher has refused this part of it",
        }
    }
}

/// Whether somebody reads standard error, if it is a pipe: that of an agent goes to ssh, and ends with it.
fn is_heard() -> bool {
    let stderr = io::stderr();
    // Whether it is broken is told unasked.
    let mut fds = [PollFd::new(&stderr, PollFlags::empty())];
    let polled = rustix::event::poll(&mut fds, Some(&Timespec::default()));
    polled.is_err() || !fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Starts to connect, without waiting.
fn begin(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket.into()),
        Err(errno) => Err(errno.into()),
    }
}
