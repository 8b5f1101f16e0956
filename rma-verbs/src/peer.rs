//! What is known of one peer, and the connections to it.

use std::time::{Duration, Instant};

use rma_core::provider::FabricCode;

use crate::datagram::Refusals;
use crate::list::NONE;
use crate::memory::CLASSES;
use crate::objects::{Ah, Qp};
use crate::wire::Location;

/// How far a connection has come. Index 0 of a peer's links is where we are the origin and ask, index 1 where we
/// are the target and answer: a link sends the packets of the class with its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// There is none.
    Idle,
    /// As a target: the peer was told to ask.
    Calling,
    /// As an origin: our queue pair was named, and the target's is not known.
    Asking,
    /// As a target: our queue pair receives, and nothing says that the origin's does.
    Answered,
    /// Both receive.
    Ready,
    /// As an origin: we post nothing more, and the target was told to close its half.
    Closing,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stage: Stage,
    pub(crate) qp: Option<Qp>,
    /// The peer's queue pair from which ours receives already, and the first sequence number there.
    pub(crate) receives_from: Option<(u32, u32)>,
    /// First packet sequence number that we send.
    pub(crate) sequence: u32,
    /// The peer's queue pair.
    pub(crate) remote_queue: u32,
    /// First packet sequence number that it sends.
    pub(crate) remote_sequence: u32,
    /// Whether something was posted since the hand came by that looks for idle ones.
    pub(crate) is_used: bool,
    /// Work requests that the queue pair holds.
    pub(crate) posted: u32,
    /// How many it has completed.
    pub(crate) completed: u32,
    /// The same when the port came back with some under way, until they have been looked after.
    pub(crate) under_way: Option<u32>,
    /// Whether somebody waits for the connection.
    pub(crate) is_wanted: bool,
    /// Since when the peer owes an answer.
    pub(crate) asked: Option<Instant>,
    /// When to repeat what was said last.
    pub(crate) next_try: Option<Instant>,
    /// What the time until then is.
    pub(crate) interval: Duration,
}

/// Datagrams are repeated after so long at first, and after twice as long each time.
pub(crate) const FIRST_INTERVAL: Duration = Duration::from_millis(20);
pub(crate) const LAST_INTERVAL: Duration = Duration::from_millis(500);

impl Link {
    pub(crate) const fn new() -> Self {
        Self {
            stage: Stage::Idle,
            qp: None,
            receives_from: None,
            sequence: 0,
            remote_queue: 0,
            remote_sequence: 0,
            is_used: false,
            posted: 0,
            completed: 0,
            under_way: None,
            is_wanted: false,
            asked: None,
            next_try: None,
            interval: FIRST_INTERVAL,
        }
    }

    /// Number of our queue pair, 0 when there is none.
    pub(crate) fn queue(&self) -> u32 {
        self.qp.as_ref().map_or(0, Qp::number)
    }

    /// The device has completed one.
    #[inline]
    pub(crate) fn complete(&mut self) {
        self.posted -= 1;
        self.completed = self.completed.wrapping_add(1);
    }

    /// Whether the next word must come from the peer, and we repeat ours until it does.
    pub(crate) fn is_waiting(&self) -> bool {
        match self.stage {
            Stage::Idle | Stage::Ready => false,
            Stage::Calling | Stage::Asking | Stage::Answered | Stage::Closing => true,
        }
    }

    /// Whether somebody has to stay up for that word. A target that has nothing to say need not: what the origin sends
    /// first wakes it.
    pub(crate) fn is_pressing(&self) -> bool {
        self.is_waiting() && (self.stage != Stage::Answered || self.is_wanted)
    }
}

/// A piece of a peer's memory that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastPut {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
    pub(crate) len: u32,
}

/// One peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) location: Location,
    /// Times that its address was connected; 0: it connected to us, and we do not know it.
    pub(crate) connections: u32,
    pub(crate) links: [Link; CLASSES],
    /// Number of the last connection on which we are the origin.
    pub(crate) asked: u32,
    /// The same as the peer numbers those on which we are the target.
    pub(crate) answered: u32,
    /// What the device has refused for it, by [`crate::datagram::Cause`].
    pub(crate) refusals: [Option<Refusals>; 2],
    /// How datagrams reach it.
    pub(crate) ah: Option<Ah>,
    /// Tracked operations in flight.
    pub(crate) outstanding: u32,
    /// Numbers of the oldest and the newest request that the connection to it has not completed, as its origin.
    pub(crate) oldest: u32,
    pub(crate) newest: u32,
    /// Where the last put went that no read came after; what a flush reads back.
    pub(crate) last_put: Option<LastPut>,
    /// Flushes that wait for `outstanding` to become 0.
    pub(crate) flushes: u32,
    /// Why nothing can be posted to it any more.
    pub(crate) down: Option<FabricCode>,
    /// Whether poll has said that it is down.
    pub(crate) is_announced: bool,
    /// Whether a question whether it lives is under way.
    pub(crate) is_probed: bool,
    pub(crate) last_probe: Option<Instant>,
}

impl Peer {
    pub(crate) fn new(location: Location) -> Self {
        Self {
            location,
            connections: 0,
            links: [Link::new(), Link::new()],
            asked: 0,
            answered: 0,
            refusals: [None; 2],
            ah: None,
            outstanding: 0,
            oldest: NONE,
            newest: NONE,
            last_put: None,
            flushes: 0,
            down: None,
            is_announced: false,
            is_probed: false,
            last_probe: None,
        }
    }
}
