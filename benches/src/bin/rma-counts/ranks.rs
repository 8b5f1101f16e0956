//! All ranks of a job in one thread. Nothing here allocates or calls the system while an epoch is counted.
#![allow(unsafe_code)] // the engine's operation calls

use std::task::Poll;
use std::time::{Duration, Instant};

use rma_core::bootstrap::Bootstrap;
use rma_core::counters::Counters;
use rma_core::dtype::Dtype;
use rma_core::engine::{Engine, Notification, Operation, SyncCall};
use rma_core::error::{Call, RmaError};
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::wire::OpKind;

/// The engines, and what their operations read and write.
pub(crate) struct Ranks<E: Endpoint, B: Bootstrap> {
    pub(crate) engines: Vec<Engine<E, B>>,
    pub(crate) window: WindowId,
    /// Of each rank alone.
    pub(crate) groups: Vec<Group>,
    /// Moves the fabric when no rank has anything to do: whether it has.
    advance: Box<dyn Fn() -> bool>,
    operand: [u8; OPERAND_BYTES],
    result: [u8; OPERAND_BYTES],
    ends: Instant,
}

impl<E: Endpoint, B: Bootstrap> Ranks<E, B> {
    /// Ranks with a window that all have allocated.
    pub(crate) fn new(engines: Vec<Engine<E, B>>, advance: Box<dyn Fn() -> bool>) -> Result<Self, RmaError> {
        let size = engines.len() as u32;
        let groups = (0..size).filter_map(|rank| Group::new(&[Rank(rank)], size).ok()).collect();
        let mut ranks = Self {
            engines,
            window: WindowId(0),
            groups,
            advance,
            operand: [1; OPERAND_BYTES],
            result: [0; OPERAND_BYTES],
            ends: Instant::now() + LIMIT,
        };
        let mut calls = Vec::new();
        for (rank, engine) in ranks.engines.iter_mut().enumerate() {
            let (window, call) = engine.start_allocate(WINDOW_BYTES, 1)?;
            ranks.window = window;
            calls.push((rank, call));
        }
        ranks.wait_all(&mut calls)?;
        Ok(ranks)
    }

    /// Progress of every rank, or a step of the fabric: whether anything has moved.
    pub(crate) fn step(&mut self) -> bool {
        assert!(Instant::now() < self.ends, "no end after {LIMIT:?}");
        let events: usize = self.engines.iter_mut().map(Engine::progress).sum();
        events > 0 || (self.advance)()
    }

    /// Steps until all packets have come, and nothing moves.
    pub(crate) fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < QUIET_STEPS || self.has_packets_under_way() {
            quiet = if self.step() { 0 } else { quiet + 1 };
        }
    }

    fn has_packets_under_way(&self) -> bool {
        let (mut sent, mut received) = (0, 0);
        for counters in self.engines.iter().map(Engine::counters) {
            sent += counters.packets_sent.iter().sum::<u64>();
            received += counters.packets_received.iter().sum::<u64>();
        }
        received < sent
    }

    /// The counters of one rank.
    pub(crate) fn counters(&self, rank: usize) -> Counters {
        self.engines[rank].counters()
    }

    /// Polls calls of several ranks to their ends. A call is its rank's next as soon as it is done there.
    pub(crate) fn wait_all(&mut self, calls: &mut [(usize, SyncCall)]) -> Result<(), RmaError> {
        let mut done = 0u64;
        loop {
            for (index, (rank, call)) in calls.iter_mut().enumerate() {
                if done >> index & 1 == 0 {
                    if let Poll::Ready(result) = self.engines[*rank].poll(call) {
                        result?;
                        done |= 1 << index;
                    }
                }
            }
            if done.count_ones() as usize == calls.len() {
                return Ok(());
            }
            self.step();
        }
    }

    /// Polls a call of one rank to its end.
    pub(crate) fn wait(&mut self, rank: usize, call: SyncCall) -> Result<(), RmaError> {
        self.wait_all(&mut [(rank, call)])
    }

    /// Completes what rank 0 has posted to rank 1, as the blocking call does.
    pub(crate) fn flush(&mut self) -> Result<(), RmaError> {
        let call = self.engines[0].start_flush(self.window, Rank(1))?;
        self.wait(0, call)
    }

    /// A put of rank 0, at displacement 0.
    pub(crate) fn put(&mut self, target: u32) -> Result<(), RmaError> {
        let (window, origin) = (self.window, self.operand.as_ptr());
        loop {
            // SAFETY: the operand is not written, and outlives every epoch.
            let put = unsafe { self.engines[0].put(window, Rank(target), 0, origin, ELEMENT_BYTES) };
            if let Poll::Ready(result) = put {
                return result;
            }
            self.step();
        }
    }

    /// A put of rank 0 to rank 1 that tells of itself.
    pub(crate) fn put_notify(&mut self, note: &Notification) -> Result<(), RmaError> {
        let (window, origin, len) = (self.window, self.operand.as_ptr(), ELEMENT_BYTES);
        loop {
            // SAFETY: the operand is not written, and outlives every epoch.
            let put = unsafe { self.engines[0].put_notify(window, Rank(1), 0, origin, len, note) };
            if let Poll::Ready(result) = put {
                return result;
            }
            self.step();
        }
    }

    /// Any other operation of rank 0 on the first element of rank 1.
    pub(crate) fn post(&mut self, call: Call, kind: OpKind) -> Result<(), RmaError> {
        let has_result = !matches!(kind, OpKind::Put | OpKind::Accumulate);
        let operation = Operation {
            call,
            kind,
            dtype: Dtype::U64,
            op: ReduceOp::Sum,
            target: Rank(1),
            disp: 0,
            len: ELEMENT_BYTES,
            origin: self.operand.as_ptr(),
            result: if has_result { self.result.as_mut_ptr() } else { std::ptr::null_mut() },
            compare: self.operand.as_ptr(),
        };
        loop {
            // SAFETY: the operand is not written, both buffers outlive every epoch, and nobody reads the result.
            if let Poll::Ready(result) = unsafe { self.engines[0].post(self.window, &operation) } {
                return result;
            }
            self.step();
        }
    }
}

/// Where notified puts tell of themselves.
pub(crate) const NOTE_DISP: u64 = 64;
/// Bytes of each rank's window.
const WINDOW_BYTES: usize = 4096;
/// Bytes of what an operation moves.
pub(crate) const ELEMENT_BYTES: usize = 8;
/// Of an operation's buffer.
const OPERAND_BYTES: usize = 8;
/// Steps in a row without an event after which nothing is under way but packets.
const QUIET_STEPS: u32 = 8;
/// Nothing here takes a second.
const LIMIT: Duration = Duration::from_secs(120);
