//! Reading completions, and what becomes of errors.

use core::mem::MaybeUninit;
use std::time::{Duration, Instant};

use rma_core::provider::{Completion, CompletionBatch, FabricCode, ReceivedPacket};

use crate::connect::{Waiting, ORIGIN};
use crate::endpoint::{Tracked, VerbsEndpoint, STASH};
use crate::error::{errno_code, status_code};
use crate::list::NONE;
use crate::memory::CLASSES;
use crate::objects::piece;
use crate::origin::{Holding, Part};
use crate::sys;

/// Entries read from the queue at a time.
const BATCH: usize = 16;

/// What a work request was for; the upper half of its number.
pub(crate) const TRACKED: u32 = 0;
pub(crate) const OUTGOING: u32 = 1;
pub(crate) const INCOMING: u32 = 2;
pub(crate) const DATAGRAM_IN: u32 = 3;
pub(crate) const DATAGRAM_OUT: u32 = 4;
pub(crate) const PROBE: u32 = 5;
pub(crate) const END: u32 = 6;
pub(crate) const RETIRED: u32 = 7;

/// Bytes that a put carries besides its own, as ibverbs has it.
pub(crate) const DATA_BYTES: usize = 4;

/// The number of a work request.
#[inline]
pub(crate) fn work_id(purpose: u32, index: u32) -> u64 {
    u64::from(purpose) << 32 | u64::from(index)
}

impl VerbsEndpoint {
    /// See [`rma_core::provider::Endpoint::poll`].
    #[inline]
    pub(crate) fn poll_queue(&mut self, out: &mut CompletionBatch) -> usize {
        let room_before = out.room();
        self.listen();
        self.ring();
        if !self.ready.is_empty() {
            self.drain_ready(out);
        }
        if self.lanes.iter().any(|lane| !lane.unposted.is_empty()) {
            self.post_receives();
        }
        if !self.waiting.is_empty() {
            self.settle_waiting();
        }
        if !self.connections.lost.is_empty() {
            self.retire_lost();
        }
        if !self.stash.is_empty() {
            self.drain_stash(out);
        }
        if self.connections.is_over() {
            self.keep_to_bound();
        }
        let count = out.room().min(BATCH);
        if count > 0 {
            // Entries are not initialized: only those that the device has written are read.
            let mut entries = [const { MaybeUninit::<sys::ibv_wc>::uninit() }; BATCH];
            let read = self.cq.poll(&mut entries[..count]);
            if read < 0 {
                self.endpoint_lost(errno_code(libc::EIO));
            }
            if read == 0 && self.events.is_due() {
                self.lose_stuck();
            }
            if read == 0 && self.datagrams.is_broken() {
                self.mend_datagrams();
            }
            for entry in &entries[..(read.max(0) as usize).min(count)] {
                // SAFETY: the device has written this entry.
                let entry = unsafe { entry.assume_init_ref() };
                self.on_completion(entry, out);
            }
        }
        if !self.ready.is_empty() {
            self.drain_ready(out);
        }
        room_before - out.room()
    }

    #[inline]
    fn on_completion(&mut self, entry: &sys::ibv_wc, out: &mut CompletionBatch) {
        let index = entry.wr_id as u32 as usize;
        match (entry.wr_id >> 32) as u32 {
            TRACKED => self.on_tracked(index, entry, out),
            OUTGOING => self.on_outgoing(index, entry, out),
            INCOMING => self.on_incoming(index, entry, out),
            DATAGRAM_IN => self.on_datagram_in(entry),
            DATAGRAM_OUT => self.on_datagram_out(entry),
            PROBE => self.on_probe(index / CLASSES, index % CLASSES, entry),
            RETIRED => self.on_retired(index),
            _ => self.on_end(index, out),
        }
    }

    #[inline]
    fn on_tracked(&mut self, slot: usize, entry: &sys::ibv_wc, out: &mut CompletionBatch) {
        let Some(operation) = self.tracked.get(slot).filter(|operation| operation.is_in_flight) else {
            return;
        };
        let peer = operation.peer as usize;
        let is_good = entry.status == sys::IBV_WC_SUCCESS;
        let outcome = if is_good { Ok(()) } else { Err(self.on_error(peer, entry)) };
        self.settle(peer, slot as u32, outcome, out);
    }

    /// An operation is complete: gives back what it held, and says its tag.
    #[inline]
    pub(crate) fn finish_tracked(&mut self, slot: u32, outcome: Result<(), FabricCode>) -> Completion {
        let operation = &mut self.tracked[slot as usize];
        operation.is_in_flight = false;
        let Tracked { tag, peer, holding, into, len, .. } = *operation;
        self.free_tracked.push(slot);
        if holding != Holding::Nothing {
            // SAFETY: the destination is the caller's promise until the tag is said.
            unsafe { self.give_back(Part { holding, into, len }, outcome.is_ok()) };
        }
        let peer = peer as usize;
        let known = &mut self.peers[peer];
        known.links[ORIGIN].complete();
        known.outstanding -= 1;
        if known.flushes > 0 && known.outstanding == 0 {
            self.finish_flushes(peer);
        }
        match outcome {
            Ok(()) => Completion::Done(tag),
            Err(code) => Completion::Failed(tag, code),
        }
    }

    #[inline]
    fn on_outgoing(&mut self, index: usize, entry: &sys::ibv_wc, out: &mut CompletionBatch) {
        let class = self.memory.sizes().class_of_outgoing(index);
        let peer = self.outgoing[index] as usize;
        if entry.status != sys::IBV_WC_SUCCESS {
            // A packet is lost, so the order to this peer is broken, whatever the reason.
            self.on_error(peer, entry);
        }
        if class == ORIGIN {
            self.settle(peer, self.number_of_packet(index as u32), Ok(()), out);
        } else {
            self.finish_packet(index as u32, class);
        }
    }

    /// The buffer of an outgoing packet is free.
    #[inline]
    pub(crate) fn finish_packet(&mut self, buffer: u32, class: usize) {
        self.lanes[class].free_outgoing.push(buffer);
        let peer = self.outgoing[buffer as usize] as usize;
        self.peers[peer].links[class].complete();
    }

    #[inline]
    fn on_incoming(&mut self, index: usize, entry: &sys::ibv_wc, out: &mut CompletionBatch) {
        if entry.status != sys::IBV_WC_SUCCESS {
            // The connection broke under the packet: the buffer is still good.
            let class = self.memory.sizes().class_of_incoming(index);
            self.lanes[class].unposted.push(index as u32);
            return;
        }
        if self.answered > 0 {
            self.on_first_packet(entry.qp_num);
        }
        let data = self.memory.incoming(index);
        // No device reports more than the buffer holds; the engine must not have to trust that.
        let mut len = (entry.byte_len as usize).min(self.limits.send_bytes_max);
        if entry.opcode == sys::IBV_WC_RECV_RDMA_WITH_IMM {
            // The bytes went elsewhere: the buffer is there for the data.
            len = DATA_BYTES;
            let bytes = u32::from_be(entry.imm_data).to_le_bytes();
            // SAFETY: the buffer holds far more, and is ours until the engine gives it back.
            unsafe { data.as_ptr().cast::<[u8; DATA_BYTES]>().write(bytes) };
        }
        self.say_completion(out, Completion::Packet(ReceivedPacket { data, len, buffer: index as u32 }));
    }

    #[cold]
    #[inline(never)]
    fn on_probe(&mut self, peer: usize, role: usize, entry: &sys::ibv_wc) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        self.probes -= 1;
        known.is_probed = false;
        known.links[role].complete();
        if entry.status != sys::IBV_WC_SUCCESS {
            self.on_error(peer, entry);
        }
    }

    /// The last request of a connection that the device refused to go on with: what it did not report before is
    /// complete.
    #[cold]
    #[inline(never)]
    fn on_end(&mut self, peer: usize, out: &mut CompletionBatch) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        known.links[ORIGIN].complete();
        self.probes -= 1;
        self.settle(peer, NONE, Ok(()), out);
    }

    /// An error breaks the connection, and with it goes the peer. What is said of what was flushed by that is the
    /// reason why.
    #[cold]
    #[inline(never)]
    fn on_error(&mut self, peer: usize, entry: &sys::ibv_wc) -> FabricCode {
        let code = status_code(entry.status, entry.vendor_err);
        let down = self.peers[peer].down;
        self.peer_lost(peer, code);
        match down {
            Some(reason) if entry.status == sys::IBV_WC_WR_FLUSH_ERR => reason,
            _ => code,
        }
    }

    /// Hands a completion out; there is room, as no more entries were read than that.
    #[inline]
    pub(crate) fn say_completion(&mut self, out: &mut CompletionBatch, completion: Completion) {
        if let Err(completion) = out.push(completion) {
            self.ready.push_back(completion);
        }
    }

    #[cold]
    #[inline(never)]
    fn finish_flushes(&mut self, peer: usize) {
        let down = self.peers[peer].down;
        let ready = &mut self.ready;
        self.flush_waiters.retain(|&(waits_for, tag)| {
            if waits_for as usize != peer {
                return true;
            }
            ready.push_back(match down {
                Some(code) => Completion::Failed(tag, code),
                None => Completion::Done(tag),
            });
            false
        });
        self.peers[peer].flushes = 0;
    }

    #[cold]
    #[inline(never)]
    fn drain_ready(&mut self, out: &mut CompletionBatch) {
        while out.room() > 0 {
            let Some(completion) = self.ready.pop_front() else { return };
            self.say_completion(out, completion);
        }
    }

    #[cold]
    #[inline(never)]
    fn drain_stash(&mut self, out: &mut CompletionBatch) {
        while out.room() > 0 {
            let Some(entry) = self.stash.pop_front() else { return };
            self.on_completion(&entry, out);
        }
    }

    /// How many entries `ready` must be able to take: for each tracked operation one, one for each peer, and
    /// those of one poll.
    pub(crate) fn ready_room(&self) -> usize {
        let room = self.limits.outstanding_max + self.peers.len() + 2 * CompletionBatch::CAPACITY;
        room.saturating_sub(self.ready.len())
    }

    /// Gives receive buffers to the device; what it does not take now is tried again by the next poll.
    pub(crate) fn post_receives(&mut self) {
        for class in 0..CLASSES {
            self.post_receives_of(class);
        }
    }

    /// The same for the buffers of one class.
    #[inline]
    pub(crate) fn post_receives_of(&mut self, class: usize) {
        while let Some(&index) = self.lanes[class].unposted.last() {
            let buffer = self.memory.incoming(index as usize);
            let mut place = piece(buffer.as_ptr(), self.limits.send_bytes_max, self.memory.lkey());
            // SAFETY: the buffer holds so many bytes, and nobody else uses it until its completion.
            let result = unsafe { self.lanes[class].srq.post(work_id(INCOMING, index), &mut place) };
            if result != 0 {
                if result != libc::ENOMEM {
                    self.endpoint_lost(errno_code(result));
                }
                return;
            }
            self.lanes[class].unposted.pop();
        }
    }

    /// See [`rma_core::provider::Endpoint::arm_wait`].
    pub(crate) fn arm(&mut self) -> bool {
        self.take_events();
        self.ring();
        let is_pressing = |waiting: &Waiting| {
            let known = &self.peers[waiting.peer as usize];
            known.down.is_none() && known.links[waiting.role].is_pressing()
        };
        let must_poll = !self.ready.is_empty()
            || !self.list.is_empty()
            || !self.stash.is_empty()
            || self.waiting.iter().any(is_pressing)
            || self.datagrams.is_broken()
            || self.connections.is_closing()
            || !self.connections.lost.is_empty()
            || self.events.is_waiting()
            || self.lanes.iter().any(|lane| !lane.unposted.is_empty());
        if must_poll {
            return false;
        }
        self.channel.drain(&self.cq);
        if !self.cq.request_notice() {
            return false;
        }
        // What came before the request wakes nobody.
        let mut entries = [const { MaybeUninit::<sys::ibv_wc>::uninit() }; STASH];
        let read = self.cq.poll(&mut entries);
        for entry in &entries[..(read.max(0) as usize).min(STASH)] {
            // SAFETY: the device has written this entry.
            self.stash.push_back(unsafe { *entry.assume_init_ref() });
        }
        read == 0
    }

    /// Packets that were taken still arrive when the endpoint is dropped: waits for their acknowledgement, but
    /// not for ever.
    fn linger(&mut self) {
        let deadline = Instant::now() + LINGER;
        let mut out = CompletionBatch::new();
        let is_busy = |endpoint: &Self| {
            let sizes = endpoint.memory.sizes();
            endpoint.lanes.iter().any(|lane| lane.free_outgoing.len() < sizes.outgoing)
        };
        while is_busy(self) && !self.is_down && Instant::now() < deadline {
            if self.poll_queue(&mut out) == 0 {
                std::thread::yield_now();
            }
            while out.pop().is_some() {}
        }
    }
}

/// How long dropping an endpoint may take.
const LINGER: Duration = Duration::from_secs(2);

impl Drop for VerbsEndpoint {
    fn drop(&mut self) {
        self.linger();
    }
}
