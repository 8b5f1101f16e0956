//! What a simulated fabric remembers: counters, a trace of the latest events, broken rules.

use std::collections::VecDeque;
use std::fmt;

/// What went from one rank to another (or, summed up, between any two).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// Packets of `send`.
    pub packets: u64,
    /// Bytes in them, headers included.
    pub packet_bytes: u64,
    /// Puts, injected ones included.
    pub puts: u64,
    /// Bytes put.
    pub put_bytes: u64,
    /// Puts with data.
    pub puts_with_data: u64,
    /// Gets.
    pub gets: u64,
    /// Bytes got.
    pub get_bytes: u64,
    /// Atomics of every kind.
    pub atomics: u64,
    /// Flushes.
    pub flushes: u64,
}

impl Traffic {
    /// Adds what another counted.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.packet_bytes += other.packet_bytes;
        self.puts += other.puts;
        self.put_bytes += other.put_bytes;
        self.puts_with_data += other.puts_with_data;
        self.gets += other.gets;
        self.get_bytes += other.get_bytes;
        self.atomics += other.atomics;
        self.flushes += other.flushes;
    }
}

/// A rule of the provider contract that the engine broke.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// When, in virtual time.
    pub time_ns: u64,
    /// The rank that broke it.
    pub rank: u32,
    /// The rule.
    pub rule: &'static str,
    /// What it did.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} ns rank {}: {} ({})", self.time_ns, self.rank, self.rule, self.detail)
    }
}

/// One line of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    /// When, in virtual time.
    pub time_ns: u64,
    /// What happened, in one word.
    pub what: &'static str,
    /// The rank that caused it.
    pub origin: u32,
    /// The rank at the other end.
    pub target: u32,
    /// Bytes concerned.
    pub bytes: usize,
    /// The tag of an operation, or the first eight bytes of a packet.
    pub detail: u64,
}

impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time_ns, what, origin, target, bytes, detail } = self;
        write!(f, "{time_ns:>12} ns  {origin:>4} -> {target:<4} {what:<10} {bytes:>7} B  {detail:#018x}")
    }
}

/// The latest events, a bounded number of them.
#[derive(Debug)]
pub(super) struct Trace {
    events: VecDeque<TraceEvent>,
    len_max: usize,
}

impl Trace {
    pub(super) fn new(len_max: usize) -> Self {
        Self { events: VecDeque::with_capacity(len_max), len_max }
    }

    pub(super) fn add(&mut self, event: TraceEvent) {
        if self.len_max == 0 {
            return;
        }
        if self.events.len() == self.len_max {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &TraceEvent> {
        self.events.iter()
    }
}

/// A packet as it went over the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketRecord {
    /// When it was sent, in virtual time.
    pub time_ns: u64,
    /// Who sent it.
    pub origin: u32,
    /// To whom.
    pub target: u32,
    /// All of it.
    pub bytes: Vec<u8>,
}

/// What becomes of a packet that an interceptor has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes on, with the changes made.
    Deliver,
    /// It is lost. No real fabric below us does this: it is how tests break the engine's world.
    Drop,
}

/// The ends of a packet on its way, shown to an interceptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketRoute {
    /// When it was sent, in virtual time.
    pub time_ns: u64,
    /// Who sent it.
    pub origin: u32,
    /// To whom.
    pub target: u32,
}

/// Lies that a test may make the fabric tell, to see them found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sabotage {
    /// A flush completes at once, whatever is still on the way.
    pub flush_early: bool,
    /// The data of a put do not wait for its bytes.
    pub data_early: bool,
    /// A put completes remotely at once, and its bytes follow later.
    pub put_early: bool,
}
