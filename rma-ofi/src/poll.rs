//! Reading completions, and what becomes of errors.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use ofi_sys as fi;
use ofi_sys::calls::{cq_read, cq_readerr};
use rma_core::ids::{PeerAddr, Tag};
use rma_core::provider::{Completion, CompletionBatch, FabricCode, ReceivedPacket};

use crate::calls;
use crate::endpoint::OfiEndpoint;
use crate::error::{fabric_code, is_peer_loss};
use crate::lane::CLASSES;
use crate::memory::{Purpose, NO_SLOT};
use crate::nonce::Nonce;

/// Entries read from the queue at a time.
pub(crate) const BATCH: usize = 16;

/// The part of the receive buffers that the provider may be without while packets come one behind the other.
pub(crate) const UNPOSTED_PART: usize = 4;

impl OfiEndpoint {
    /// See [`rma_core::provider::Endpoint::poll`].
    #[inline]
    pub(crate) fn poll_queue(&mut self, out: &mut CompletionBatch) -> usize {
        let room_before = out.room();
        if !self.ready.is_empty() {
            self.drain_ready(out);
        }
        if !self.gather.is_empty() {
            // What finds no room now goes with the next poll.
            let _ = self.post_gathered();
        }
        if self.lanes.iter().any(|lane| lane.is_refused) {
            self.post_refused();
        }
        // What one entry ends had better have room: data do not wait in `ready`.
        let count = match out.room() {
            0 => 0,
            room => (room / self.gather.puts_max()).clamp(1, BATCH),
        };
        // Entries are not initialized: only those that libfabric has written are read.
        let mut entries = [const { MaybeUninit::<fi::fi_cq_data_entry>::uninit() }; BATCH];
        // Reading no entries does not make every provider progress, so a full batch is for the
        // caller to empty first.
        if count == 0 {
            return room_before - out.room();
        }
        // SAFETY: the queue is open, of the format of the entries, and there is room for `count`.
        let read = unsafe { cq_read(self.cq, entries.as_mut_ptr().cast(), count) };
        if read > 0 {
            for entry in &entries[..(read as usize).min(count)] {
                // SAFETY: libfabric has written this entry.
                let entry = unsafe { entry.assume_init_ref() };
                self.on_completion(entry, out);
            }
        } else if read != -(fi::FI_EAGAIN as isize) {
            self.on_queue_error(read);
        } else if self.has_unposted() {
            // Nothing has come, so nobody waits for what this takes.
            self.post_receives();
        }
        if !self.abandoned.is_empty() {
            self.settle_abandoned();
        }
        if !self.ready.is_empty() {
            self.drain_ready(out);
        }
        room_before - out.room()
    }

    #[inline]
    fn on_completion(&mut self, entry: &fi::fi_cq_data_entry, out: &mut CompletionBatch) {
        // Of a put's data the context may be anything. A message with data, which none of ours sends, has taken a
        // buffer: it is a packet like others.
        const DATA: u64 = fi::FI_REMOTE_CQ_DATA | fi::FI_REMOTE_WRITE;
        if entry.flags & DATA == DATA {
            return self.on_data(entry.data, out);
        }
        let Some(slot) = self.live.memory.index_of(entry.op_context) else { return };
        match self.purpose(slot) {
            Purpose::Tracked => {
                let next = self.take_next(slot);
                if let Some(tag) = self.retire(slot, true) {
                    self.say(out, Completion::Done(tag));
                }
                if next != NO_SLOT {
                    self.say_chain(next, out);
                }
            }
            Purpose::Outgoing(index) => self.retire_outgoing(slot, index),
            Purpose::Incoming(index) => {
                let data = self.live.memory.incoming(index);
                match self.packet_for_this(data, entry.len) {
                    Some(len) => {
                        self.say(out, Completion::Packet(ReceivedPacket { data, len, buffer: index as u32 }));
                    }
                    None => self.drop_stray(index),
                }
            }
        }
    }

    /// Bytes of the engine's packet in this buffer, into which so many bytes have come; `None` if they are for
    /// another endpoint.
    #[inline]
    fn packet_for_this(&self, data: NonNull<u8>, arrived: usize) -> Option<usize> {
        // No provider reports more than the buffer holds; nobody must have to trust that.
        let len = arrived.min(self.live.memory.sizes().buffer_bytes()).checked_sub(Nonce::BYTES)?;
        // SAFETY: within the buffer.
        let at = unsafe { data.add(len) };
        // SAFETY: the last bytes that arrived, within the buffer, which the provider has given back.
        let bytes = unsafe { at.cast::<[u8; Nonce::BYTES]>().read() };
        (Nonce::from_bytes(bytes) == self.live.nonce).then_some(len)
    }

    /// Gives the buffer of a packet that is for another endpoint back to the provider. The order of the others
    /// does not depend on it: its sender takes this endpoint for another one.
    #[cold]
    #[inline(never)]
    fn drop_stray(&mut self, index: usize) {
        self.strays += 1;
        self.take_back(index as u32);
    }

    /// Hands a completion out. There is room, as no more entries were read than that, but for the last puts of one message.
    #[inline]
    pub(crate) fn say(&mut self, out: &mut CompletionBatch, completion: Completion) {
        if let Err(completion) = out.push(completion) {
            self.ready.push_back(completion);
        }
    }

    /// Frees the slot of a tracked operation, which has succeeded or not. `None` if it was not in flight: said before.
    #[inline]
    pub(crate) fn retire(&mut self, slot: usize, has_succeeded: bool) -> Option<Tag> {
        if !self.leaves_flight(slot) {
            self.retire_given_up(slot);
            return None;
        }
        if self.origins.is_some() {
            self.end_loan(slot, has_succeeded);
        }
        let raw = self.live.memory.slot(slot);
        // SAFETY: the slot exists, and the provider does not touch this member of it.
        let tag = unsafe { (*raw).tag };
        // SAFETY: as above.
        let peer = unsafe { (*raw).peer } as usize;
        self.free_tracked.push(slot as u32);
        if let Some(known) = self.peers.get_mut(peer) {
            known.outstanding = known.outstanding.saturating_sub(1);
            if known.flushes > 0 && known.outstanding == 0 {
                self.finish_flushes(peer);
            }
        }
        Some(Tag(tag))
    }

    /// The provider lets go of what has been said to have failed.
    #[cold]
    #[inline(never)]
    fn retire_given_up(&mut self, slot: usize) {
        let raw = self.live.memory.slot(slot);
        // SAFETY: the slot exists, and the provider does not touch this member of it.
        let flag = unsafe { &mut (*raw).is_given_up };
        if core::mem::replace(flag, false) {
            self.end_loan(slot, false);
            self.free_tracked.push(slot as u32);
        }
    }

    #[inline]
    fn retire_outgoing(&mut self, slot: usize, index: usize) {
        if self.leaves_flight(slot) {
            let class = self.live.memory.sizes().class_of_outgoing(index);
            self.lanes[class].free_outgoing.push(index as u32);
        }
    }

    /// Whether the slot was in flight; it is not any more.
    #[inline]
    pub(crate) fn leaves_flight(&mut self, slot: usize) -> bool {
        let raw = self.live.memory.slot(slot);
        // SAFETY: the slot exists, and the provider does not touch this member of it.
        let flag = unsafe { &mut (*raw).is_in_flight };
        core::mem::replace(flag, false)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn finish_flushes(&mut self, peer: usize) {
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
            self.say(out, completion);
        }
    }

    /// Whether there are receive buffers that the provider does not have.
    #[inline]
    pub(crate) fn has_unposted(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.unposted.is_empty())
    }

    /// Takes a receive buffer whose message is done with. A packet's answer does not wait until the provider has it: that is left
    /// to the next poll that finds nothing, up to a part of all buffers.
    #[inline]
    pub(crate) fn take_back(&mut self, buffer: u32) {
        let class = self.live.memory.sizes().class_of_incoming(buffer as usize);
        let lane = &mut self.lanes[class];
        lane.unposted.push(buffer);
        if lane.unposted.len() >= self.limits.receive_buffers.div_ceil(UNPOSTED_PART) {
            self.post_receives_of(class);
        }
    }

    /// Gives receive buffers back to the provider; what it does not take now is tried again by the next poll.
    pub(crate) fn post_receives(&mut self) {
        for class in 0..CLASSES {
            self.post_receives_of(class);
        }
    }

    /// The same where it did not take one before.
    #[cold]
    #[inline(never)]
    fn post_refused(&mut self) {
        for class in 0..CLASSES {
            if self.lanes[class].is_refused {
                self.post_receives_of(class);
            }
        }
    }

    /// The same for the buffers of one class.
    #[inline]
    pub(crate) fn post_receives_of(&mut self, class: usize) {
        self.lanes[class].is_refused = false;
        while let Some(&index) = self.lanes[class].unposted.last() {
            let sizes = self.live.memory.sizes();
            let buffer = self.live.memory.incoming(index as usize);
            let slot = self.live.memory.slot(sizes.slot_of_incoming(index as usize));
            // SAFETY: the endpoint is open, the buffer holds `buffer_bytes`, and nobody else uses it
            // until its completion.
            let result = unsafe {
                calls::recv(
                    self.live.domain.ledger(),
                    self.lanes[class].receive_ep,
                    (buffer.as_ptr().cast(), sizes.buffer_bytes()),
                    self.own_desc,
                    FI_ADDR_UNSPEC,
                    slot.cast(),
                )
            };
            if result != 0 {
                self.lanes[class].is_refused = result == -(fi::FI_EAGAIN as isize);
                if !self.lanes[class].is_refused {
                    self.endpoint_lost(fabric_code(-result as i32));
                }
                return;
            }
            self.lanes[class].unposted.pop();
        }
    }

    #[cold]
    #[inline(never)]
    fn on_queue_error(&mut self, read: isize) {
        if read != -(fi::FI_EAVAIL as isize) {
            self.endpoint_lost(fabric_code(-read as i32));
            return;
        }
        // Bounded by the room that `ready` keeps for the words of one poll.
        for _ in 0..BATCH {
            let mut error = ErrorEntry::new();
            // SAFETY: the queue is open; the entry is larger than any version of the structure.
            let read = unsafe { cq_readerr(self.cq, &mut error.entry, 0) };
            match read {
                1.. => self.on_error(&error.entry),
                _ => return,
            }
        }
    }

    fn on_error(&mut self, error: &fi::fi_cq_err_entry) {
        let code = fabric_code(error.err);
        let Some(slot) = self.live.memory.index_of(error.op_context) else { return };
        // SAFETY: the slot exists, and the provider does not touch this member of it.
        let peer = unsafe { (*self.live.memory.slot(slot)).peer } as usize;
        match self.purpose(slot) {
            Purpose::Tracked => {
                if is_peer_loss(code.code) {
                    self.mark_down(peer, code);
                }
                self.end_chain(slot as u32, code);
                self.announce_down(peer);
            }
            Purpose::Outgoing(index) => {
                // A packet is lost, so the order to this peer is broken, whatever the reason.
                self.retire_outgoing(slot, index);
                self.peer_lost(peer, code);
            }
            // A message that was cut off half-way, or longer than the buffer: the buffer is still
            // good, and the sender learns of it on its side.
            Purpose::Incoming(index) => self.take_back(index as u32),
        }
    }

    /// Nothing will be posted to this peer any more.
    #[cold]
    #[inline(never)]
    pub(crate) fn peer_lost(&mut self, peer: usize, code: FabricCode) {
        self.mark_down(peer, code);
        self.announce_down(peer);
    }

    fn mark_down(&mut self, peer: usize, code: FabricCode) {
        if let Some(known) = self.peers.get_mut(peer) {
            known.down.get_or_insert(code);
        }
    }

    /// Says once that a peer is down.
    fn announce_down(&mut self, peer: usize) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        if let (Some(code), false) = (known.down, known.is_announced) {
            known.is_announced = true;
            self.ready.push_back(Completion::PeerDown(PeerAddr(peer as u64), code));
        }
    }

    #[cold]
    #[inline(never)]
    fn endpoint_lost(&mut self, code: FabricCode) {
        if !core::mem::replace(&mut self.is_down, true) {
            self.ready.push_back(Completion::EndpointDown(code));
        }
    }

    /// How many entries `ready` must be able to take: for each tracked operation one, one for each
    /// peer, and those of one poll.
    pub(crate) fn ready_room(&self) -> usize {
        let room = self.limits.outstanding_max + self.peers.len() + 2 * CompletionBatch::CAPACITY;
        room.saturating_sub(self.ready.len())
    }
}

/// Later versions of libfabric have more members at the end of the structure.
#[repr(C)]
struct ErrorEntry {
    entry: fi::fi_cq_err_entry,
    later: [u64; 8],
}

impl ErrorEntry {
    fn new() -> Self {
        Self {
            entry: fi::fi_cq_err_entry {
                op_context: ptr::null_mut(),
                flags: 0,
                len: 0,
                buf: ptr::null_mut(),
                data: 0,
                tag: 0,
                olen: 0,
                err: 0,
                prov_errno: 0,
                err_data: ptr::null_mut(),
                err_data_size: 0,
            },
            later: [0; 8],
        }
    }
}

/// `FI_ADDR_UNSPEC`: from anybody.
const FI_ADDR_UNSPEC: fi::fi_addr_t = !0;
