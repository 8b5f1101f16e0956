//! By which of its addresses other hosts reach this one, where nobody has said it: it is tried. Each rank of a job on
//! several hosts listens at all addresses that its fabric could bind to, says in the job's key-value space where, and
//! connects from each of them to a rank of another host. The first address of its own that gets through anywhere, and is
//! of the family that all ranks use (`family.rs`), is the one. The kernel makes these connections; nothing is sent on them.

use std::fmt::Write;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rma_core::bootstrap::BootstrapError;
use rma_core::ids::Rank;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{sockopt, AddressFamily, SocketFlags, SocketType};

use crate::family::{agree, name_of_host, Ballot, Chance, Family, FAMILIES};
use crate::member::Sharing;
use crate::Fetch;

/// The key under which a rank says where it listens.
const KEY: &str = "reach";

/// Most addresses of a rank that are tried: those that lead elsewhere come first.
const ADDRESSES_MAX: usize = 8;

/// How much longer an address that comes earlier may take than one that has got through: the order is the same on
/// hosts that are alike, and who arrives first is not.
const GRACE: Duration = Duration::from_millis(250);

/// How long all attempts together may take. That nobody answers to a link's questions is found out by the kernel
/// within about 3 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to sleep while the launcher says nothing.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Where a rank listens, and on which host.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Notice {
    host: HostName,
    places: Vec<SocketAddr>,
}

/// What tells one host's network from another's: the boot of its kernel and the number of its network namespace.
type HostName = [u8; 24];

/// Finds out by which of `addresses`, the best first, ranks on other hosts reach this one. Every rank of the job
/// calls it, also one that has nothing to choose from, and before it publishes its address. Blocks until all
/// ranks have called it, and for some seconds at most after that.
///
/// # Errors
/// When the launcher is gone, a rank does not call it within the time limit, nothing gets through (then the message
/// lists what was tried and how it failed), or no family of addresses serves all hosts.
pub(crate) fn prove_address(
    member: &mut dyn Sharing,
    addresses: &[IpAddr],
) -> Result<Option<IpAddr>, BootstrapError> {
    let listeners: Vec<TcpListener> = (first_of_each(addresses).into_iter())
        .filter_map(|address| TcpListener::bind(SocketAddr::new(address, 0)).ok())
        .collect();
    let places: Vec<SocketAddr> =
        listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
    let own = Notice { host: host_name(), places };
    member.keep_open(listeners);
    member.share(KEY, Some(&own.encode()))?;
    let found = elsewhere(member, &own.host)?;
    let own: Vec<IpAddr> = own.places.iter().map(SocketAddr::ip).collect();
    let trial = match &found {
        Some((_, notice)) if own.len() > 1 => try_all(&own, &notice.places),
        _ => Outcome::default(),
    };
    if let (Some((rank, _)), true) = (&found, trial.is_hopeless()) {
        let message = format!(
            "rank {}: none of this host's addresses gets through to rank {rank} on another host:{}\n\
             RMA_INTERFACE names the interface by which hosts reach each other; is there a firewall?",
            member.rank(),
            trial.tried
        );
        return Err(BootstrapError { message });
    }
    let ballot = ballot(member.rank(), &own, found.as_ref().map(|(rank, _)| *rank), &trial);
    let family = agree(member, ballot)?.verdict();
    let family =
        family.map_err(|what| BootstrapError { message: format!("rank {}: {what}", member.rank()) })?;
    let first = own.iter().find(|address| Family::of(**address) == family);
    Ok(trial.best[family as usize].map(|index| own[index]).or_else(|| first.copied()))
}

/// The first of these addresses, and no family's so many that the other has no room.
fn first_of_each(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let first = |family| {
        let ones = addresses.iter().filter(move |address| Family::of(**address) == family);
        ones.take(ADDRESSES_MAX / 2).copied().collect::<Vec<_>>()
    };
    let taken = FAMILIES.map(first).concat();
    let more = addresses.iter().filter(|address| !taken.contains(address)).take(ADDRESSES_MAX - taken.len());
    let all: Vec<IpAddr> = taken.iter().chain(more).copied().collect();
    addresses.iter().filter(|address| all.contains(address)).copied().collect()
}

/// What this rank says about the families, which has these addresses and has tried to reach `other`.
fn ballot(rank: Rank, own: &[IpAddr], other: Option<Rank>, trial: &Outcome) -> Ballot {
    let mut ballot = Ballot::blank();
    // Who has no address does not listen, and stands in nobody's way.
    let Some(first) = own.first() else { return ballot };
    let name = format!("{} (rank {rank})", name_of_host());
    for family in FAMILIES {
        let index = family as usize;
        if !own.iter().any(|address| Family::of(*address) == family) {
            let others = if own.len() > 1 { " and others of its kind" } else { "" };
            ballot.say(family, Chance::None, &format!("{name} has only {first}{others}"));
        } else if trial.best[index].is_some() || !trial.has_begun[index] {
            ballot.say(family, Chance::Good, "");
        } else if trial.is_open[index] {
            ballot.say(family, Chance::Open, "");
        } else {
            let to = other.map_or_else(String::new, |other| format!(" to rank {other}"));
            ballot.say(family, Chance::None, &format!("{name} does not get through{to}"));
        }
    }
    ballot
}

/// A rank on another host than this one's; `None` when there is none.
fn elsewhere(member: &mut dyn Sharing, host: &HostName) -> Result<Option<(Rank, Notice)>, BootstrapError> {
    for rank in candidates(member.rank().0, member.size(), member.local_size()) {
        let value = await_values(member, &[rank], KEY)?.concat();
        // One that says what nobody can read is as good as one that is not there.
        if let Some(notice) = Notice::decode(&value).filter(|notice| notice.host != *host) {
            return Ok(Some((rank, notice)));
        }
    }
    Ok(None)
}

/// Waits for the values that these ranks put under a key, no more than there are requests; the time limit of the
/// look-ups ends it.
pub(crate) fn await_values(
    member: &mut dyn Sharing,
    ranks: &[Rank],
    key: &str,
) -> Result<Vec<Vec<u8>>, BootstrapError> {
    let mut values = vec![None; ranks.len()];
    loop {
        for (value, rank) in values.iter_mut().zip(ranks).filter(|(value, _)| value.is_none()) {
            if let Fetch::Found(found) = member.get(*rank, key)? {
                *value = Some(found);
            }
        }
        if values.iter().all(Option::is_some) {
            return Ok(values.into_iter().flatten().collect());
        }
        member.wait_readable(LOOK_INTERVAL)?;
    }
}

/// The ranks to ask for another host's addresses, one after the other: with `local_size` ranks on a host, one of as
/// many others is elsewhere. The first is, where hosts are filled one after the other.
fn candidates(rank: u32, size: u32, local_size: u32) -> impl Iterator<Item = Rank> {
    let next = move |distance: u32| Rank(((u64::from(rank) + u64::from(distance)) % u64::from(size)) as u32);
    std::iter::once(local_size).chain(1..local_size).map(next).filter(move |other| other.0 != rank)
}

fn host_name() -> HostName {
    let mut name = HostName::default();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = boot.bytes().filter(u8::is_ascii_hexdigit).collect();
    for (byte, digits) in name.iter_mut().zip(digits.chunks_exact(2)) {
        *byte =
            std::str::from_utf8(digits).ok().and_then(|text| u8::from_str_radix(text, 16).ok()).unwrap_or(0);
    }
    let network = fs::metadata("/proc/self/ns/net").map_or(0, |metadata| metadata.ino());
    name[16..].copy_from_slice(&network.to_le_bytes());
    name
}

/// Bytes of a place: an IPv6 address, or an IPv4 address as one, and a port.
const PLACE_BYTES: usize = 18;

impl Notice {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.host.to_vec();
        for place in &self.places {
            let address = match place.ip() {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            bytes.extend(address.octets());
            bytes.extend(place.port().to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (host, rest) = bytes.split_first_chunk()?;
        if rest.len() % PLACE_BYTES != 0 || rest.len() > ADDRESSES_MAX * PLACE_BYTES {
            return None;
        }
        let place = |bytes: &[u8]| {
            let (address, port) = bytes.split_first_chunk::<16>()?;
            let port = u16::from_le_bytes(port.try_into().ok()?);
            Some(SocketAddr::new(IpAddr::from(*address).to_canonical(), port))
        };
        let places = rest.chunks_exact(PLACE_BYTES).map(place).collect::<Option<_>>()?;
        Some(Self { host: *host, places })
    }
}

/// A connection that is being made.
struct Attempt {
    /// Index of this side's address.
    own: usize,
    to: SocketAddr,
    socket: OwnedFd,
}

impl Attempt {
    /// The index of its family.
    fn family(&self) -> usize {
        Family::of(self.to.ip()) as usize
    }
}

/// What is known about all connections from one side's addresses to the other's.
struct Trial<'a> {
    own: &'a [IpAddr],
    attempts: Vec<Attempt>,
    outcome: Outcome,
}

/// What has become of the attempts, for each family.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Outcome {
    /// There were addresses to connect from and to.
    has_begun: [bool; 2],
    /// The first of this side's addresses that has got through.
    best: [Option<usize>; 2],
    /// Nothing has got through, and not everything has failed, when there was no time any more.
    is_open: [bool; 2],
    /// What has failed, and how.
    tried: String,
}

impl Outcome {
    fn has_success(&self) -> bool {
        self.best != [None; 2]
    }

    /// Something was tried, and nothing got through.
    fn is_hopeless(&self) -> bool {
        self.has_begun != [false; 2] && !self.has_success()
    }
}

/// Connects from each address to all others of its family at the same time. Of those that get through, the first of each
/// family.
fn try_all(own: &[IpAddr], places: &[SocketAddr]) -> Outcome {
    let mut trial = Trial { own, attempts: Vec::new(), outcome: Outcome::default() };
    for (index, from) in own.iter().enumerate() {
        for to in places {
            // What every host may have is this host's own when it is called from here.
            if from.is_ipv4() == to.is_ipv4() && !own.contains(&to.ip()) {
                trial.begin(index, *from, *to);
            }
        }
    }
    let mut ends_at = Instant::now() + PATIENCE;
    loop {
        let had_one = trial.outcome.has_success();
        trial.look();
        if trial.outcome.has_success() && !had_one {
            ends_at = Instant::now() + GRACE;
        }
        let remaining = ends_at.saturating_duration_since(Instant::now());
        if trial.attempts.is_empty() || remaining.is_zero() {
            return trial.end();
        }
        trial.sleep(remaining);
    }
}

impl Trial<'_> {
    fn begin(&mut self, own: usize, from: IpAddr, to: SocketAddr) {
        self.outcome.has_begun[Family::of(from) as usize] = true;
        match start(from, to) {
            Ok(socket) => self.attempts.push(Attempt { own, to, socket }),
            Err(error) => self.fail(own, to, &error.to_string()),
        }
    }

    fn fail(&mut self, own: usize, to: SocketAddr, why: &str) {
        // Writing to a String does not fail.
        let _ = write!(self.outcome.tried, "\n  {} to {to}: {why}", self.own[own]);
    }

    /// Takes what has become of the attempts. Those that could only be second best are given up.
    fn look(&mut self) {
        for attempt in std::mem::take(&mut self.attempts) {
            let Attempt { own, to, ref socket } = attempt;
            match outcome(socket) {
                Ok(true) => {
                    let best = &mut self.outcome.best[Family::of(to.ip()) as usize];
                    *best = Some(best.map_or(own, |best| best.min(own)));
                }
                Ok(false) => self.attempts.push(attempt),
                Err(error) => self.fail(own, to, &error.to_string()),
            }
        }
        let best = self.outcome.best;
        self.attempts.retain(|attempt| best[attempt.family()].is_none_or(|best| attempt.own < best));
    }

    /// Sleeps until one of the attempts has an outcome.
    fn sleep(&self, limit: Duration) {
        let watch = |attempt| PollFd::new(attempt, PollFlags::OUT);
        let mut fds: Vec<PollFd<'_>> =
            self.attempts.iter().map(|attempt| &attempt.socket).map(watch).collect();
        let timeout = Timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        // Whatever it says, the caller looks for itself; the time limit is there in any case.
        let _ = rustix::event::poll(&mut fds, Some(&timeout));
    }

    fn end(mut self) -> Outcome {
        for attempt in std::mem::take(&mut self.attempts) {
            let family = attempt.family();
            self.outcome.is_open[family] |= self.outcome.best[family].is_none();
            self.fail(attempt.own, attempt.to, &format!("no answer within {} s", PATIENCE.as_secs()));
        }
        self.outcome
    }
}

/// Begins to connect.
fn start(from: IpAddr, to: SocketAddr) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddr::new(from, 0))?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether the connection is made; `false`: not yet.
fn outcome(socket: &OwnedFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut fds, Some(&NOW)).unwrap_or(0) == 0 {
        return Ok(false);
    }
    sockopt::socket_error(socket)??;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(address: &str) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let place = listener.local_addr().unwrap();
        (listener, place)
    }

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_first_address_that_gets_through_is_taken() {
        let (_listener, place) = listener("127.0.0.9");
        let own = addresses(&["127.0.0.1", "127.0.0.2"]);
        assert_eq!(try_all(&own, &[place]).best, [Some(0), None]);
        // One that is none of this host's is no way out.
        let own = addresses(&["192.0.2.1", "127.0.0.2", "127.0.0.3"]);
        assert_eq!(try_all(&own, &[place]).best, [Some(1), None]);
        // Any of the other side's will do.
        let (gone, closed) = listener("127.0.0.8");
        drop(gone);
        assert_eq!(try_all(&own, &[closed, place]).best, [Some(1), None]);
    }

    #[test]
    fn all_that_was_tried_is_listed() {
        let (gone, closed) = listener("127.0.0.9");
        drop(gone);
        let outcome = try_all(&addresses(&["127.0.0.1", "127.0.0.2"]), &[closed]);
        assert!(outcome.is_hopeless());
        for from in ["127.0.0.1", "127.0.0.2"] {
            assert!(outcome.tried.contains(&format!("{from} to {closed}: ")), "{outcome:?}");
        }
        assert!(outcome.tried.contains("refused"), "{outcome:?}");
        let outcome = try_all(&addresses(&["127.0.0.1"]), &["[::1]:9".parse().unwrap()]);
        assert_eq!(outcome, Outcome::default(), "nothing to connect from and to");
    }

    /// Every host may have the same address on a bridge to its containers.
    #[test]
    fn an_address_of_this_host_is_not_another_hosts() {
        let (_listener, place) = listener("127.0.0.1");
        assert_eq!(try_all(&addresses(&["127.0.0.1", "127.0.0.2"]), &[place]), Outcome::default());
    }

    #[test]
    fn a_rank_says_of_each_family_whether_it_serves() {
        let own = addresses(&["10.0.0.1", "fd00::1"]);
        let mut outcome = Outcome { has_begun: [true; 2], best: [None, Some(1)], ..Outcome::default() };
        let verdict =
            |own: &[IpAddr], outcome: &Outcome| ballot(Rank(1), own, Some(Rank(2)), outcome).verdict();
        assert_eq!(verdict(&own, &outcome), Ok(Family::V6), "IPv4 has failed");
        outcome.best = [Some(0), Some(1)];
        assert_eq!(verdict(&own, &outcome), Ok(Family::V4));
        outcome = Outcome { best: [None, Some(1)], is_open: [true, false], ..outcome };
        assert_eq!(verdict(&own, &outcome), Ok(Family::V6), "IPv4 takes longer");
        // The other rank has only one of them: it says so itself.
        outcome = Outcome { has_begun: [false, true], is_open: [false; 2], ..outcome };
        assert_eq!(verdict(&own, &outcome), Ok(Family::V4));
        assert_eq!(verdict(&own[1..], &Outcome::default()), Ok(Family::V6));
        assert_eq!(verdict(&[], &Outcome::default()), Ok(Family::V4));
    }

    #[test]
    fn both_families_have_room_among_those_that_are_tried() {
        let mut all: Vec<IpAddr> = (1..=9).map(|last| [10, 0, 0, last].into()).collect();
        assert_eq!(first_of_each(&all), all[..8]);
        all.push("fd00::1".parse().unwrap());
        let tried = first_of_each(&all);
        assert_eq!((tried.len(), tried.last(), tried.first()), (8, all.last(), all.first()));
    }

    #[test]
    fn notices_survive_the_trip_and_others_are_none() {
        let places = vec!["10.0.0.1:80".parse().unwrap(), "[fd00::1]:65535".parse().unwrap()];
        let notice = Notice { host: [7; 24], places };
        let mut bytes = notice.encode();
        assert_eq!(Notice::decode(&bytes), Some(notice));
        bytes.pop();
        assert_eq!(Notice::decode(&bytes), None);
        assert_eq!(Notice::decode(&[1; 5]), None);
        assert_eq!(Notice::decode(&[0; 24 + 9 * PLACE_BYTES]), None);
        assert_eq!(Notice::decode(&[0; 24]), Some(Notice { host: [0; 24], places: Vec::new() }));
    }

    #[test]
    fn one_of_those_that_are_asked_is_elsewhere() {
        let asked = |rank, size, local| candidates(rank, size, local).map(|rank| rank.0).collect::<Vec<_>>();
        // Hosts filled one after the other: the first is. One rank on each in turn: the second is.
        assert_eq!(asked(1, 8, 2), [3, 2]);
        assert_eq!(asked(7, 8, 2), [1, 0]);
        assert_eq!(asked(2, 3, 1), [0]);
        assert_eq!(asked(0, 1, 1), []);
        assert_eq!(host_name(), host_name());
    }
}
