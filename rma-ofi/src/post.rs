//! The data path: posting operations and packets. Nothing here allocates, waits, or takes a lock.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use std::net::SocketAddr;

use ofi_sys as fi;
use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Accepted, CompletionBatch, Endpoint, FabricCode, Limits, LocalPiece, NativeOps, NoPassage, Post,
    PostError, ProviderError, ReceivedPacket, RemoteAddr, RemotePiece, SendClass,
};

use crate::address::Particulars;
use crate::calls;
use crate::endpoint::{OfiEndpoint, Peer, READ_BACK_BYTES};
use crate::error::{call_failed, fabric_code, is_peer_loss, say};
use crate::interface::socket_address;
use crate::lane::{Links, CLASSES, REPLIES, REQUESTS};
use crate::memory::NO_SLOT;
use crate::nonce::Nonce;
use crate::probe::{Answer, Probe};
use crate::region::OfiRegion;
use crate::vector::Direction;

/// A tracked operation that has been given a slot and not yet been posted.
pub(crate) struct Ticket {
    slot: u32,
    pub(crate) context: *mut c_void,
    key_salt: u64,
}

impl Ticket {
    /// The fabric's key for this location at the peer.
    #[inline]
    pub(crate) fn key(&self, at: RemoteAddr) -> u64 {
        at.key.0 ^ self.key_salt
    }

    /// Index of the slot.
    #[inline]
    pub(crate) fn slot(&self) -> usize {
        self.slot as usize
    }
}

impl OfiEndpoint {
    /// Checks the peer and finds a slot. Nothing is taken until [`OfiEndpoint::posted`].
    #[inline]
    pub(crate) fn ticket(&self, to: PeerAddr, len: usize) -> Result<Ticket, PostError> {
        let peer = self.check_peer(to)?;
        if len > self.limits.message_bytes_max {
            return Err(PostError::Failed(fabric_code(fi::FI_EMSGSIZE)));
        }
        let Some(&slot) = self.free_tracked.last() else { return Err(PostError::Again) };
        let key_salt = self.live.keys.salt(peer.nonce);
        Ok(Ticket { slot, context: self.live.memory.slot(slot as usize).cast(), key_salt })
    }

    /// Takes the slot if the provider took the operation.
    #[inline]
    pub(crate) fn posted(&mut self, ticket: &Ticket, to: PeerAddr, tag: Tag, result: isize) -> Post {
        if result != 0 {
            return Err(self.refused(to, result));
        }
        self.takes_flight(ticket, to, tag);
        Ok(Accepted::Tracked)
    }

    /// The slot is the operation's, until its end is said.
    #[inline]
    pub(crate) fn takes_flight(&mut self, ticket: &Ticket, to: PeerAddr, tag: Tag) {
        let taken = self.free_tracked.pop();
        debug_assert_eq!(taken, Some(ticket.slot), "slots were given back behind the ticket");
        let slot = self.live.memory.slot(ticket.slot as usize);
        // SAFETY: the slot exists, and the provider does not touch these members of it.
        unsafe { (*slot).tag = tag.0 };
        // SAFETY: as above.
        unsafe { (*slot).peer = to.0 as u32 };
        // SAFETY: as above.
        unsafe { (*slot).next = NO_SLOT };
        // SAFETY: as above.
        unsafe { (*slot).is_in_flight = true };
        self.peers[to.0 as usize].outstanding += 1;
    }

    #[inline]
    pub(crate) fn check_peer(&self, to: PeerAddr) -> Result<&Peer, PostError> {
        match self.peers.get(to.0 as usize) {
            Some(peer) if peer.down.is_none() && peer.connections > 0 && !self.is_down => Ok(peer),
            _ => Err(self.peer_unusable(to)),
        }
    }

    #[cold]
    #[inline(never)]
    fn peer_unusable(&self, to: PeerAddr) -> PostError {
        let peer = self.peers.get(to.0 as usize).copied().unwrap_or(Peer::NONE);
        PostError::Failed(match peer.down {
            Some(code) => code,
            None if self.is_down => fabric_code(fi::FI_ESHUTDOWN),
            None => fabric_code(fi::FI_ENOENT),
        })
    }

    /// What the provider's refusal means.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(&mut self, to: PeerAddr, result: isize) -> PostError {
        let code = -result as i32;
        // Out of memory while posting is a full pool of the provider's: it drains as others complete.
        if matches!(code, fi::FI_EAGAIN | fi::FI_ENOMEM | fi::FI_ENOBUFS) {
            return self.refused_for_now(to.0 as usize);
        }
        let code = fabric_code(code);
        if is_peer_loss(code.code) {
            self.peer_lost(to.0 as usize, code);
        }
        PostError::Failed(code)
    }

    /// The provider has no resources now, or hides that the peer is gone.
    fn refused_for_now(&mut self, index: usize) -> PostError {
        let is_time = match self.peers.get_mut(index) {
            Some(peer) => peer.suspicion.grow(),
            None => false,
        };
        if !is_time || !self.peers_listen {
            return PostError::Again;
        }
        let answer = match self.probe.take() {
            // One question at a time: this one's asker will be back for its answer.
            Some(probe) if probe.peer != index && probe.answer() == Answer::Pending => {
                self.probe = Some(probe);
                return PostError::Again;
            }
            Some(probe) if probe.peer == index => Some((probe.answer(), probe)),
            _ => {
                let address = self.peers[index].listens_at;
                address
                    .and_then(|address| Probe::start(index, address))
                    .map(|(probe, answer)| (answer, probe))
            }
        };
        match answer {
            Some((Answer::Refused(code), _)) => {
                let code = fabric_code(code);
                self.peer_lost(index, code);
                PostError::Failed(code)
            }
            Some((Answer::Pending, probe)) => {
                self.probe = Some(probe);
                PostError::Again
            }
            Some((Answer::Listens, _)) | None => PostError::Again,
        }
    }

    /// Makes a peer of the entries of its address. Its entry as a target is what it is called by.
    fn admit(
        &mut self,
        entries: [fi::fi_addr_t; CLASSES],
        listens_at: Option<SocketAddr>,
        Particulars { nonce, read_back }: Particulars,
    ) -> Result<PeerAddr, ProviderError> {
        let refused = |what| Err(call_failed("fi_av_insert", what, fi::FI_EINVAL));
        // Tables number their entries from 0, so this is an index; one that is not would make the
        // vector below huge.
        let Some(index) = usize::try_from(entries[REQUESTS]).ok().filter(|&index| index < PEERS_MAX) else {
            return refused("a table that does not number its entries");
        };
        if index >= self.peers.len() {
            self.peers.resize(index + 1, Peer::NONE);
        }
        let known = &mut self.peers[index];
        if known.connections == 0 {
            *known = Peer { entries, read_back, listens_at, nonce, ..Peer::NONE };
        } else if known.entries != entries {
            return refused("an address that is known with another second half");
        } else if known.nonce != nonce {
            return refused("an address that is known as another endpoint's");
        }
        known.connections += 1;
        // Room for this peer's last word.
        self.ready.reserve(self.ready_room());
        Ok(PeerAddr(entries[REQUESTS]))
    }

    /// Takes the entries of an address out of the tables.
    fn forget(&self, entries: [fi::fi_addr_t; CLASSES]) {
        let Links { origin, target } = &self.live.links;
        for (link, entry) in [origin, target].into_iter().zip(entries) {
            if let Err(result) = link.av.remove(entry) {
                say(format_args!("forgetting an address failed: {}", fabric_code(-result)));
            }
        }
    }

    /// An operation that needs no fabric.
    #[cold]
    #[inline(never)]
    fn nothing_to_do(&self, to: PeerAddr) -> Post {
        self.check_peer(to).map(|_| Accepted::Complete)
    }

    /// Completes the flush when the operations in flight to the peer have.
    fn flush_by_counting(&mut self, to: PeerAddr, tag: Tag) -> Post {
        self.check_peer(to)?;
        let peer = &mut self.peers[to.0 as usize];
        if peer.outstanding == 0 {
            return Ok(Accepted::Complete);
        }
        if self.flush_waiters.len() == self.flush_waiters.capacity() {
            return Err(PostError::Again);
        }
        peer.flushes += 1;
        self.flush_waiters.push((to.0 as u32, tag));
        Ok(Accepted::Tracked)
    }

    /// Reads a word from the peer: the fabric does not let it overtake the writes before it.
    fn flush_by_reading(&mut self, to: PeerAddr, tag: Tag) -> Post {
        let ticket = self.ticket(to, READ_BACK_BYTES)?;
        let Some(read_back) = &self.live.read_back else {
            return Err(PostError::Failed(fabric_code(fi::FI_EOPNOTSUPP)));
        };
        // Its key was published as the fabric's.
        let from = self.peers[to.0 as usize].read_back;
        let sink = (read_back.sink().cast(), READ_BACK_BYTES);
        let desc = if self.origins.is_some() { read_back.desc() } else { ptr::null_mut() };
        let ledger = self.live.domain.ledger();
        // SAFETY: the sink lives as long as the endpoint; nobody looks at what is read.
        let result =
            unsafe { calls::read(ledger, self.ep, sink, desc, to.0, (from.base, from.key), ticket.context) };
        self.posted(&ticket, to, tag, result)
    }
}

// SAFETY: line 3 (tags): a tag lives in its slot from the post that the provider accepted until the
// slot's completion is read, once; libfabric completes each accepted operation once and does not
// touch its memory afterwards. Line 4: `send` copies. Packets point into buffers that are posted again
// only by `release`.
unsafe impl Endpoint for OfiEndpoint {
    type Region = OfiRegion;
    type Passage = NoPassage;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn native(&self) -> &NativeOps {
        &self.native
    }

    fn address(&self) -> AddressBytes {
        self.own_address()
    }

    fn connect(&mut self, address: &AddressBytes) -> Result<PeerAddr, ProviderError> {
        let (names, particulars) = crate::address::decode(address, &self.own_address())?;
        let Links { origin, target } = &self.live.links;
        let as_target = origin.av.insert(names[REQUESTS])?;
        let entries = match target.av.insert(names[REPLIES]) {
            Ok(as_origin) => [as_target, as_origin],
            Err(error) => {
                // Nothing was posted to it: whether the table forgets it now changes nothing.
                let _ = origin.av.remove(as_target);
                return Err(error);
            }
        };
        let admitted = self.admit(entries, socket_address(names[REQUESTS]), particulars);
        if admitted.is_err() {
            self.forget(entries);
        }
        admitted
    }

    fn disconnect(&mut self, peer: PeerAddr) {
        let Some(known) = self.peers.get_mut(peer.0 as usize).filter(|peer| peer.connections > 0) else {
            return;
        };
        known.connections -= 1;
        let entries = known.entries;
        if !self.quirks.keeps_addresses {
            self.forget(entries);
        }
    }

    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<Self::Region, ProviderError> {
        // SAFETY: by the caller's promise.
        unsafe { OfiRegion::open(&self.live, base, len, key) }
    }

    fn put_inject(&mut self, to: PeerAddr, src: &[u8], _at: RemoteAddr) -> Result<(), PostError> {
        // `inject_bytes_max` is 0: there are no injected puts but empty ones.
        self.check_peer(to)?;
        if src.is_empty() {
            Ok(())
        } else {
            Err(PostError::Failed(fabric_code(fi::FI_EMSGSIZE)))
        }
    }

    #[inline]
    unsafe fn put(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        // Not every provider completes an empty write.
        if len == 0 {
            return self.nothing_to_do(to);
        }
        if self.origins.is_some() {
            let (local, remote) = (LocalPiece { base: src.cast_mut(), len }, RemotePiece { at, len });
            // SAFETY: by the caller's promise.
            return unsafe { self.post_pieces(Direction::Put, to, (&[local], &[remote], len), tag, None) };
        }
        if self.gathers(to, len) {
            // SAFETY: by the caller's promise.
            return unsafe { self.gather(to, (src, len), at, tag) };
        }
        // One that waits for no other passes none.
        self.post_gathered_to(to)?;
        let ticket = self.ticket(to, len)?;
        let local = fi::iovec { iov_base: src.cast_mut().cast(), iov_len: len };
        let remote = fi::fi_rma_iov { addr: at.addr, len, key: ticket.key(at) };
        let message = fi::fi_msg_rma {
            msg_iov: &local,
            desc: ptr::null_mut(),
            iov_count: 1,
            addr: to.0,
            rma_iov: &remote,
            rma_iov_count: 1,
            context: ticket.context,
            data: 0,
        };
        let ledger = self.live.domain.ledger();
        let is_whole = len <= self.whole_put_bytes_max;
        let flags = self.put_flags | if is_whole { fi::FI_INJECT } else { 0 };
        // SAFETY: the endpoint is open; the message is read during the call; the source is the
        // caller's promise.
        let result = unsafe { calls::writemsg(ledger, self.ep, &message, flags) };
        self.posted(&ticket, to, tag, result)
    }

    #[inline]
    fn packet_put_bytes_max(&self, _peer: PeerAddr) -> usize {
        self.packet_put_bytes_max
    }

    fn puts_cost_packets(&self) -> bool {
        self.packet_put_bytes_max > 0
    }

    fn data_bytes(&self, _peer: PeerAddr) -> usize {
        self.data_bytes
    }

    unsafe fn put_with_data(
        &mut self,
        to: PeerAddr,
        src: *const u8,
        len: usize,
        at: RemoteAddr,
        tag: Tag,
        data: u64,
    ) -> Post {
        // SAFETY: by the caller's promise.
        unsafe { self.post_with_data(to, (src, len), at, tag, data) }
    }

    #[inline]
    unsafe fn get(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        if len == 0 {
            return self.nothing_to_do(to);
        }
        if self.origins.is_some() {
            let (local, remote) = (LocalPiece { base: dst, len }, RemotePiece { at, len });
            // SAFETY: by the caller's promise.
            return unsafe { self.post_pieces(Direction::Get, to, (&[local], &[remote], len), tag, None) };
        }
        self.post_gathered_to(to)?;
        let ticket = self.ticket(to, len)?;
        let (ledger, from) = (self.live.domain.ledger(), (at.addr, ticket.key(at)));
        // SAFETY: the endpoint is open; the destination is the caller's promise.
        let result = unsafe {
            calls::read(ledger, self.ep, (dst.cast(), len), ptr::null_mut(), to.0, from, ticket.context)
        };
        self.posted(&ticket, to, tag, result)
    }

    unsafe fn put_vector(
        &mut self,
        to: PeerAddr,
        from: &[LocalPiece],
        into: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        // SAFETY: by the caller's promise.
        unsafe { self.post_vector(Direction::Put, to, from, into, tag) }
    }

    unsafe fn get_vector(
        &mut self,
        to: PeerAddr,
        into: &[LocalPiece],
        from: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        // SAFETY: by the caller's promise.
        unsafe { self.post_vector(Direction::Get, to, into, from, tag) }
    }

    unsafe fn atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        count: usize,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
        tag: Tag,
    ) -> Post {
        // SAFETY: by the caller's promise.
        unsafe { self.post_atomic(to, operand, count, at, dtype, op, tag) }
    }

    unsafe fn fetch_atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        result: *mut u8,
        count: usize,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
        tag: Tag,
    ) -> Post {
        // SAFETY: by the caller's promise.
        unsafe { self.post_fetch_atomic(to, operand, result, count, at, dtype, op, tag) }
    }

    unsafe fn compare_atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        compare: *const u8,
        result: *mut u8,
        at: RemoteAddr,
        dtype: Dtype,
        tag: Tag,
    ) -> Post {
        // SAFETY: by the caller's promise.
        unsafe { self.post_compare_atomic(to, operand, compare, result, at, dtype, tag) }
    }

    #[inline]
    fn send(
        &mut self,
        to: PeerAddr,
        header: &[u8],
        payload: &[u8],
        class: SendClass,
    ) -> Result<(), PostError> {
        if class == SendClass::Request {
            self.post_gathered_to(to)?;
        }
        let peer = self.check_peer(to)?;
        let len = header.len() + payload.len();
        if len > self.limits.send_bytes_max {
            return Err(PostError::Failed(fabric_code(fi::FI_EMSGSIZE)));
        }
        let lane = &self.lanes[class as usize];
        let Some(&index) = lane.free_outgoing.last() else { return Err(PostError::Again) };
        let buffer = self.live.memory.outgoing(index as usize);
        // SAFETY: the buffer is free, so nobody else uses it, and holds `buffer_bytes`: `send_bytes_max` and the
        // number behind them.
        unsafe { ptr::copy_nonoverlapping(header.as_ptr(), buffer.as_ptr(), header.len()) };
        // SAFETY: the payload follows the header; together they are at most `send_bytes_max` bytes.
        let rest = unsafe { buffer.add(header.len()) };
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(payload.as_ptr(), rest.as_ptr(), payload.len()) };
        // SAFETY: the receiver's number follows the packet, within the buffer.
        let end = unsafe { rest.add(payload.len()) };
        // SAFETY: as above; bytes have no alignment.
        unsafe { end.cast().write(peer.nonce.to_bytes()) };
        let slot = self.live.memory.slot(self.live.memory.sizes().slot_of_outgoing(index as usize));
        let (entry, bytes) = (peer.entries[class as usize], len + Nonce::BYTES);
        let (ledger, packet) = (self.live.domain.ledger(), (buffer.as_ptr().cast_const().cast(), bytes));
        // SAFETY: the endpoint is open, and the buffer stays as it is until the completion.
        let result = unsafe { calls::send(ledger, lane.send_ep, packet, self.own_desc, entry, slot.cast()) };
        if result != 0 {
            return Err(self.refused(to, result));
        }
        self.lanes[class as usize].free_outgoing.pop();
        // SAFETY: the slot exists, and the provider does not touch these members of it.
        unsafe { (*slot).peer = to.0 as u32 };
        // SAFETY: as above.
        unsafe { (*slot).is_in_flight = true };
        Ok(())
    }

    fn flush(&mut self, to: PeerAddr, tag: Tag) -> Post {
        self.post_gathered_to(to)?;
        if self.flush_reads_back {
            self.flush_by_reading(to, tag)
        } else {
            self.flush_by_counting(to, tag)
        }
    }

    #[inline]
    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        self.poll_queue(out)
    }

    #[inline]
    fn release(&mut self, packet: ReceivedPacket) {
        if self.is_of_data(&packet) {
            return;
        }
        self.take_back(packet.buffer);
    }

    fn abandon(&mut self, peer: PeerAddr, code: FabricCode) {
        self.abandon_peer(peer, code);
    }

    fn wait_fd(&self) -> Option<i32> {
        self.wait_fd
    }

    fn wait_fd_settles(&self) -> bool {
        self.wait_fd_settles
    }

    fn arm_wait(&mut self) -> bool {
        if self.wait_fd.is_none() || !self.ready.is_empty() || self.has_unposted() || !self.gather.is_empty()
        {
            return false;
        }
        let mut queue: *mut fi::fid = self.cq.cast();
        // SAFETY: fabric and queue are open, and the queue has a descriptor.
        unsafe { ofi_sys::calls::trywait(self.live.domain.fabric_ptr(), &mut queue, 1) == 0 }
    }
}

/// More peers than this is a mistake of the provider's.
const PEERS_MAX: usize = 1 << 26;
