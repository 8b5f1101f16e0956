//! The listening side.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::addresses::{places, Candidate, Place};
use super::proof::{Host, Secret, Step};
use super::{local_address, prepare, HANDSHAKE_PATIENCE};

/// Most connections that may wait for their proof. One more costs the oldest one from the address that has most:
/// whoever belongs to the job is through in an instant, and tries again.
pub(crate) const PENDING_MAX: usize = 128;

/// How many connections are accepted in a second, on average; also how many at once.
pub(crate) const ACCEPTED_PER_SECOND: u32 = 256;

/// Bytes that one of this side's messages has at most, and so what is read at once.
const READ_BYTES: usize = 64;

/// Listens for the other parts of the job. It never blocks: whoever owns it polls [`Listener::fds`] for reading
/// until [`Listener::deadline`], and then calls [`Listener::progress`].
#[derive(Debug)]
pub(crate) struct Listener {
    sockets: Vec<TcpListener>,
    candidates: Vec<Candidate>,
    secret: Secret,
    pending: Vec<Pending>,
    budget: Budget,
    refused: u64,
}

/// A part of the job that has proved itself.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// The number that it says it has, and by its proof nobody else has said so. Whether it is expected is for
    /// the caller to know, who closes the stream if not.
    pub(crate) id: u32,
    /// The connection, which blocks.
    pub(crate) stream: TcpStream,
    /// This side's address on it, and so one by which the other host reaches this one.
    pub(crate) local: IpAddr,
}

/// A connection before its proof.
#[derive(Debug)]
struct Pending {
    stream: TcpStream,
    peer: IpAddr,
    host: Host,
    ends_at: Instant,
}

/// What is to be done with a connection before its proof.
enum Verdict {
    Wait,
    Close,
    Arrived(u32),
}

impl Listener {
    /// Listens on each of this host's addresses that may be used: `interface` names one (or an address), and
    /// otherwise see [`places`].
    ///
    /// # Errors
    /// A message: the interface is not there, or none of the addresses can be listened on.
    pub(crate) fn open(
        secret: &Secret,
        interface: Option<&str>,
        all_ranks_here: bool,
    ) -> Result<Self, String> {
        let all = rma_bootstrap::interfaces::interfaces()
            .map_err(|error| format!("the network interfaces cannot be listed: {error}"))?;
        Self::open_at(secret, &places(&all, interface, all_ranks_here)?)
    }

    fn open_at(secret: &Secret, places: &[Place]) -> Result<Self, String> {
        let (mut sockets, mut candidates, mut failures) = (Vec::new(), Vec::new(), Vec::new());
        for place in places {
            match listen(place) {
                Ok((socket, candidate)) => {
                    sockets.push(socket);
                    candidates.push(candidate);
                }
                // Such as an address that the network has not confirmed yet; the others will do.
                Err(error) => failures.push(format!("{} ({}): {error}", place.address.ip(), place.interface)),
            }
        }
        if sockets.is_empty() {
            return Err(format!("none of this host's addresses can be listened on: {}", failures.join("; ")));
        }
        let (secret, budget) = (secret.clone(), Budget::full(Instant::now()));
        Ok(Self { sockets, candidates, secret, pending: Vec::new(), budget, refused: 0 })
    }

    /// Where it listens, in the order in which to try.
    pub(crate) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// What to poll for reading.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        // While too many come they wait in the kernel.
        let may_accept = self.budget.has_some();
        let sockets = self.sockets.iter().filter(move |_| may_accept).map(AsFd::as_fd);
        sockets.chain(self.pending.iter().map(|pending| pending.stream.as_fd()))
    }

    /// When to call [`Listener::progress`] even if nothing can be read.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let of_pending = self.pending.iter().map(|pending| pending.ends_at).min();
        let of_budget = (!self.budget.has_some()).then(|| self.budget.next());
        of_pending.into_iter().chain(of_budget).min()
    }

    /// Connections that were closed without a proof.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes what has come; returns who has proved to belong to the job. Never blocks.
    pub(crate) fn progress(&mut self, now: Instant) -> Vec<Arrival> {
        self.budget.refill(now);
        self.accept(now);
        let mut arrivals = Vec::new();
        let mut index = 0;
        while index < self.pending.len() {
            match self.pending[index].advance(&self.secret, now) {
                Verdict::Wait => index += 1,
                Verdict::Close => self.refuse(index),
                Verdict::Arrived(id) => {
                    let Pending { stream, .. } = self.pending.swap_remove(index);
                    // It has come and gone.
                    let Ok(local) = prepare(&stream).and_then(|()| local_address(&stream)) else { continue };
                    arrivals.push(Arrival { id, stream, local });
                }
            }
        }
        arrivals
    }

    fn accept(&mut self, now: Instant) {
        for index in 0..self.sockets.len() {
            while self.budget.take() {
                match self.sockets[index].accept() {
                    Ok((stream, from)) => self.admit(stream, from.ip(), now),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.budget.give_back();
                        break;
                    }
                    // A connection that ended in the queue, or no file left: the next turn will see.
                    Err(_) => break,
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: IpAddr, now: Instant) {
        let (Ok(()), Ok(host)) = (stream.set_nonblocking(true), Host::new()) else {
            self.refused += 1;
            return;
        };
        if self.pending.len() >= PENDING_MAX {
            self.evict();
        }
        self.pending.push(Pending { stream, peer, host, ends_at: now + HANDSHAKE_PATIENCE });
    }

    /// Closes the oldest connection of the address that has most of them.
    fn evict(&mut self) {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for pending in &self.pending {
            *counts.entry(pending.peer).or_default() += 1;
        }
        let Some(most) = counts.values().max() else { return };
        let of_busiest =
            self.pending.iter().enumerate().filter(|(_, pending)| counts.get(&pending.peer) == Some(most));
        if let Some((oldest, _)) = of_busiest.min_by_key(|(_, pending)| pending.ends_at) {
            self.refuse(oldest);
        }
    }

    fn refuse(&mut self, index: usize) {
        self.pending.swap_remove(index);
        self.refused += 1;
    }
}

fn listen(place: &Place) -> io::Result<(TcpListener, Candidate)> {
    let socket = TcpListener::bind(place.address)?;
    socket.set_nonblocking(true)?;
    let candidate = Candidate::of(socket.local_addr()?);
    Ok((socket, candidate))
}

impl Pending {
    fn advance(&mut self, secret: &Secret, now: Instant) -> Verdict {
        loop {
            let mut bytes = [0; READ_BYTES];
            let wanted = self.host.wanted().min(READ_BYTES);
            let step = match self.stream.read(&mut bytes[..wanted]) {
                Ok(0) => return Verdict::Close,
                Ok(len) => self.host.on_bytes(secret, &bytes[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && now < self.ends_at => {
                    return Verdict::Wait
                }
                Err(_) => return Verdict::Close,
            };
            // The first bytes on a connection always find room in its buffer; less means that it is broken.
            match step {
                Ok(Step::Wait) => {}
                Ok(Step::Send(answer)) if self.stream.write(&answer).ok() == Some(answer.len()) => {}
                Ok(Step::Welcome(id, answer)) if self.stream.write(&answer).ok() == Some(answer.len()) => {
                    return Verdict::Arrived(id);
                }
                Ok(_) | Err(_) => return Verdict::Close,
            }
        }
    }
}

/// How many connections may be accepted now: so many at once, and as many each second.
#[derive(Debug)]
struct Budget {
    left: u32,
    refilled_at: Instant,
}

impl Budget {
    /// The time in which one more may be accepted.
    const INTERVAL: Duration = Duration::from_micros(1_000_000 / ACCEPTED_PER_SECOND as u64);

    fn full(now: Instant) -> Self {
        Self { left: ACCEPTED_PER_SECOND, refilled_at: now }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled_at);
        let more = passed.as_micros() / Self::INTERVAL.as_micros();
        if u128::from(self.left) + more >= u128::from(ACCEPTED_PER_SECOND) {
            (self.left, self.refilled_at) = (ACCEPTED_PER_SECOND, now);
        } else {
            self.left += more as u32;
            self.refilled_at += Self::INTERVAL * more as u32;
        }
    }

    fn has_some(&self) -> bool {
        self.left > 0
    }

    fn next(&self) -> Instant {
        self.refilled_at + Self::INTERVAL
    }

    fn take(&mut self) -> bool {
        let has_some = self.has_some();
        self.left = self.left.saturating_sub(1);
        has_some
    }

    fn give_back(&mut self) {
        self.left += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_spent_and_comes_back_with_time() {
        let start = Instant::now();
        let mut budget = Budget::full(start);
        assert_eq!((0..1000).filter(|_| budget.take()).count(), ACCEPTED_PER_SECOND as usize);
        assert!(!budget.has_some() && budget.next() > start);
        budget.refill(budget.next());
        assert!(budget.take() && !budget.take());
        budget.refill(start + Duration::from_millis(500));
        let half = (0..1000).filter(|_| budget.take()).count();
        assert!((120..=128).contains(&half), "{half}");
        budget.refill(start + Duration::from_secs(1000));
        assert_eq!(budget.left, ACCEPTED_PER_SECOND);
    }
}
