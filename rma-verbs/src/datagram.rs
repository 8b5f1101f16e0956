//! The queue pair for datagrams: what is sent and received by it, and how it is brought back when it broke.
//!
//! A device breaks it when it cannot send, as the software device does while its port is down, and throws away what is
//! sent and received by it from then on. So it is reset and made ready again, now and then until something was sent. What
//! was given to it before comes back, or does not, as the device likes: each time that the queue pair is made ready its
//! buffers have other numbers, and what has old ones is ignored.

use std::time::{Duration, Instant};

use rma_core::provider::{FabricCode, ProviderError};

use crate::connect::{may_pass, TARGET};
use crate::device::Device;
use crate::endpoint::VerbsEndpoint;
use crate::error::{call_failed, errno_code, refusal, status_code};
use crate::memory::{DATAGRAMS_IN, DATAGRAMS_OUT, DATAGRAM_BYTES};
use crate::objects::{blank_attributes, piece, Ah, Cq, Depths, Qp};
use crate::poll::{work_id, DATAGRAM_IN, DATAGRAM_OUT};
use crate::sys;
use crate::wire::{Kind, Message};

/// The queue pair for datagrams.
#[derive(Debug)]
pub(crate) struct Datagrams {
    pub(crate) qp: Qp,
    queue_key: u32,
    /// Buffers to send from that are free.
    free: Vec<u32>,
    /// The peers to whom the others go.
    to: [u32; DATAGRAMS_OUT],
    /// Times that the queue pair was made ready again.
    round: u32,
    /// Why it is broken, if it is.
    broken: Option<FabricCode>,
    /// Times that it was brought back, or that this failed, since something was sent.
    mends: u32,
    next_mend: Option<Instant>,
    /// How long a peer is kept for whom the device refuses everything.
    pub(crate) refused_for: Duration,
    /// After so long without another a refusal says nothing of those that come.
    pub(crate) forgotten_after: Duration,
}

/// Half of a work request's number: the buffer in the lowest bits.
const BUFFER_BITS: u32 = 8;
const ROUND_MASK: u32 = u32::MAX >> BUFFER_BITS;

impl Datagrams {
    /// Opens the queue pair and makes it ready to receive and send.
    pub(crate) fn open(device: &Device, cq: &Cq, queue_key: u32) -> Result<Self, ProviderError> {
        let depths =
            Depths { sends: DATAGRAMS_OUT as u32, receives: DATAGRAMS_IN as u32, pieces: 1, inline_bytes: 0 };
        let (qp, _) = Qp::open(&device.domain, cq, None, sys::IBV_QPT_UD, depths)
            .map_err(|code| call_failed("ibv_create_qp", "datagrams", code))?;
        make_ready(&qp, device, queue_key)
            .map_err(|code| call_failed("ibv_modify_qp", "the queue pair for datagrams", code))?;
        Ok(Self {
            qp,
            queue_key,
            free: (0..DATAGRAMS_OUT as u32).rev().collect(),
            to: [0; DATAGRAMS_OUT],
            round: 0,
            broken: None,
            mends: 0,
            next_mend: None,
            refused_for: REFUSED_FOR,
            forgotten_after: FORGOTTEN_AFTER,
        })
    }

    /// Whether the queue pair waits to be brought back.
    #[inline]
    pub(crate) const fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Whether a datagram can be handed to the device now.
    #[inline]
    pub(crate) fn can_send(&self) -> bool {
        !self.is_broken() && !self.free.is_empty()
    }

    /// As if it had been brought back in vain for as often as it may be.
    #[cfg(test)]
    pub(crate) fn exhaust_mends(&mut self) {
        (self.mends, self.next_mend) = (MENDS_MAX, None);
    }

    fn id(&self, purpose: u32, index: usize) -> u64 {
        work_id(purpose, (self.round & ROUND_MASK) << BUFFER_BITS | index as u32)
    }

    /// The buffer that a completion is about; `None` when it was given to the queue pair before that was reset.
    fn buffer_of(&self, entry: &sys::ibv_wc, count: usize) -> Option<usize> {
        let number = entry.wr_id as u32;
        let index = (number & ((1 << BUFFER_BITS) - 1)) as usize;
        (number >> BUFFER_BITS == self.round & ROUND_MASK && index < count).then_some(index)
    }
}

/// Makes a queue pair for datagrams, which is new or was reset, ready to receive and send.
fn make_ready(qp: &Qp, device: &Device, queue_key: u32) -> Result<(), i32> {
    let mut attributes = blank_attributes();
    attributes.qp_state = sys::IBV_QPS_INIT;
    attributes.port_num = device.port;
    attributes.pkey_index = device.partition_index;
    attributes.qkey = queue_key;
    let mask = sys::IBV_QP_STATE | sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_QKEY;
    qp.modify(&mut attributes, mask)?;
    attributes.qp_state = sys::IBV_QPS_RTR;
    qp.modify(&mut attributes, sys::IBV_QP_STATE)?;
    attributes.qp_state = sys::IBV_QPS_RTS;
    qp.modify(&mut attributes, sys::IBV_QP_STATE | sys::IBV_QP_SQ_PSN)
}

impl VerbsEndpoint {
    /// Sends a datagram about the connection; where nothing is free, repeating comes later.
    pub(crate) fn say(&mut self, peer: usize, role: usize, kind: Kind) {
        let known = &self.peers[peer];
        let link = &known.links[role];
        let message = Message {
            kind,
            to: known.location.nonce,
            from: self.location,
            number: if role == TARGET { known.answered } else { known.asked },
            queue: link.queue(),
            sequence: link.sequence,
            of_queue: link.remote_queue,
        };
        self.say_message(peer, &message);
    }

    /// Sends the peer this datagram.
    pub(crate) fn say_message(&mut self, peer: usize, message: &Message) {
        if !self.datagrams.can_send() {
            return;
        }
        let known = &mut self.peers[peer];
        if known.ah.is_none() {
            match Ah::open(&self.device.domain, &self.device.way_to(&known.location)) {
                Ok(ah) => known.ah = Some(ah),
                Err(code) => return self.on_refusal(peer, Cause::Way, code),
            }
        }
        let (Some(ah), Some(&index)) = (&known.ah, self.datagrams.free.last()) else { return };
        let buffer = self.memory.datagram_out(index as usize);
        let bytes = message.encode();
        // SAFETY: the buffer is free, so nobody else uses it, and is longer than a message.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.as_ptr(), bytes.len()) };
        let mut pieces = [piece(buffer.as_ptr(), bytes.len(), self.memory.lkey())];
        let way = sys::Datagram {
            ah: ah.as_ptr(),
            remote_qpn: known.location.queue,
            remote_qkey: known.location.queue_key,
        };
        let mut request = sys::ibv_send_wr::new(
            self.datagrams.id(DATAGRAM_OUT, index as usize),
            sys::IBV_WR_SEND,
            sys::IBV_SEND_SIGNALED,
            &mut pieces,
            sys::Wr { ud: way },
        );
        // SAFETY: the buffer stays as it is until its completion, or until the queue pair was reset.
        if unsafe { self.datagrams.qp.post(&mut request) } == 0 {
            self.datagrams.free.pop();
            self.datagrams.to[index as usize] = peer as u32;
        }
    }

    /// Gives a buffer to the queue pair for datagrams.
    pub(crate) fn post_datagram_receive(&mut self, index: usize) {
        let buffer = self.memory.datagram_in(index).as_ptr();
        let mut wanted = piece(buffer, DATAGRAM_BYTES, self.memory.lkey());
        let id = self.datagrams.id(DATAGRAM_IN, index);
        // SAFETY: nobody else uses the buffer until its completion, or until the queue pair was reset.
        let result = unsafe { self.datagrams.qp.post_receive(id, &mut wanted) };
        if result != 0 {
            self.endpoint_lost(errno_code(result));
        }
    }

    /// Something has come, or the queue pair broke.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_datagram_in(&mut self, entry: &sys::ibv_wc) {
        let Some(index) = self.datagrams.buffer_of(entry, DATAGRAMS_IN) else { return };
        if entry.status == sys::IBV_WC_SUCCESS {
            self.on_datagram(index, entry.byte_len as usize);
        } else {
            self.datagrams.broken.get_or_insert_with(|| status_code(entry.status, entry.vendor_err));
        }
    }

    /// A datagram is sent, or was not.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_datagram_out(&mut self, entry: &sys::ibv_wc) {
        let Some(index) = self.datagrams.buffer_of(entry, DATAGRAMS_OUT) else { return };
        self.datagrams.free.push(index as u32);
        let peer = self.datagrams.to[index] as usize;
        if entry.status == sys::IBV_WC_SUCCESS {
            (self.datagrams.mends, self.datagrams.next_mend) = (0, None);
            self.peers[peer].refusals[Cause::Way as usize] = None;
            return;
        }
        self.datagrams.broken.get_or_insert_with(|| status_code(entry.status, entry.vendor_err));
        // Those behind the one that broke it say nothing of their peers.
        if entry.status != sys::IBV_WC_WR_FLUSH_ERR {
            self.on_refusal(peer, Cause::Way, libc::ENETUNREACH);
        }
    }

    /// Everything that came back from the broken queue pair was read: brings it back, after a while if nothing was sent
    /// since it was last.
    #[cold]
    #[inline(never)]
    pub(crate) fn mend_datagrams(&mut self) {
        let Some(code) = self.datagrams.broken else { return };
        let now = Instant::now();
        if self.is_down || self.datagrams.next_mend.is_some_and(|time| now < time) {
            return;
        }
        if self.datagrams.mends == MENDS_MAX {
            return self.endpoint_lost(code);
        }
        self.datagrams.mends += 1;
        self.datagrams.next_mend = Some(now + MEND_INTERVAL);
        self.datagrams.round = self.datagrams.round.wrapping_add(1);
        let mut attributes = blank_attributes();
        attributes.qp_state = sys::IBV_QPS_RESET;
        let qp = &self.datagrams.qp;
        let is_back = qp
            .modify(&mut attributes, sys::IBV_QP_STATE)
            .and_then(|()| make_ready(qp, &self.device, self.datagrams.queue_key));
        if is_back.is_err() {
            return;
        }
        self.datagrams.broken = None;
        self.datagrams.free.clear();
        self.datagrams.free.extend((0..DATAGRAMS_OUT as u32).rev());
        for index in 0..DATAGRAMS_IN {
            self.post_datagram_receive(index);
        }
    }

    /// The device has refused something that a connection to this peer takes. What may pass is tried again, as nothing that
    /// a connection takes is said only once; the peer is given up when the device has refused everything for long.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_refusal(&mut self, peer: usize, cause: Cause, code: i32) {
        let now = Instant::now();
        let none = Refusals { since: now, latest: now, count: 0 };
        let refusals = self.peers[peer].refusals[cause as usize].get_or_insert(none);
        if now.duration_since(refusals.latest) >= self.datagrams.forgotten_after {
            *refusals = none;
        }
        refusals.count += 1;
        refusals.latest = now;
        let is_long = refusals.count >= REFUSALS_LEAST
            && now.duration_since(refusals.since) >= self.datagrams.refused_for;
        if is_long || !may_pass(code) {
            self.peer_lost(peer, refusal(code));
            // What is wrong may be wrong with the way to this one peer.
            self.datagrams.mends = 0;
        }
    }
}

/// What of a connection the device has refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Datagrams find no way.
    Way,
    /// A queue pair cannot be made, or not joined with the peer's.
    Queue,
}

/// What the device has refused for a peer since it last did not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusals {
    since: Instant,
    latest: Instant,
    count: u32,
}

/// The queue pair is brought back this often without anything being sent,
const MENDS_MAX: u32 = 100;
/// at such intervals: longer than a peer that cannot be reached is waited for.
const MEND_INTERVAL: Duration = Duration::from_millis(200);
/// A peer for whom the device has refused everything for so long,
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// and so often, as a process may not poll for longer than that, is lost.
const REFUSALS_LEAST: u32 = 8;
/// What was refused longer ago was refused when nobody went on asking: whoever asks repeats it more often, whatever else
/// the process does.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);
