//! The data path: posting operations and packets. Nothing here waits, takes a lock, or allocates, except that
//! the device's driver does when a large origin buffer is registered.

use core::ptr::{self, NonNull};

use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Accepted, CompletionBatch, CompletionScope, Endpoint, FabricCode, Limits, LocalPiece, NativeOps,
    NoPassage, Post, PostError, ProviderError, ReceivedPacket, RemoteAddr, RemotePiece, SendClass,
};

use crate::connect::ORIGIN;
use crate::endpoint::{Tracked, VerbsEndpoint};
use crate::error::errno_code;
use crate::list::Request;
use crate::memory::BOUNCE_BYTES;
use crate::objects::piece;
use crate::origin::{Holding, Part};
use crate::peer::{LastPut, Stage};
use crate::poll::{work_id, DATA_BYTES, OUTGOING};
use crate::region::VerbsRegion;
use crate::sys;
use crate::wire::Location;

/// The origin's side of an operation, as the device is told of it.
pub(crate) struct Local {
    pub(crate) piece: sys::ibv_sge,
    pub(crate) holding: Holding,
    pub(crate) flags: u32,
    /// Where bytes go from a bounce buffer; null where none go.
    pub(crate) into: *mut u8,
}

impl VerbsEndpoint {
    /// Whether something can be posted to the peer now, on the link with this index.
    #[inline]
    fn check_link(&mut self, to: PeerAddr, role: usize) -> Result<(), PostError> {
        let Some(peer) = self.peers.get(to.0 as usize) else { return Err(self.unusable(to)) };
        if peer.down.is_some() || peer.connections == 0 || self.is_down {
            return Err(self.unusable(to));
        }
        let link = &peer.links[role];
        if link.stage != Stage::Ready {
            return Err(self.want(to.0 as usize, role));
        }
        if link.posted >= self.depths.sends {
            return Err(PostError::Again);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn unusable(&self, to: PeerAddr) -> PostError {
        PostError::Failed(match self.peers.get(to.0 as usize).and_then(|peer| peer.down) {
            Some(code) => code,
            None if self.is_down => errno_code(libc::ESHUTDOWN),
            None => errno_code(libc::ENOENT),
        })
    }

    /// Checks the operation and that there is a slot for it; returns the key of the peer's memory.
    #[inline]
    pub(crate) fn check(&mut self, to: PeerAddr, len: usize, key: RemoteKey) -> Result<u32, PostError> {
        self.check_link(to, ORIGIN)?;
        if len > self.limits.message_bytes_max {
            return Err(PostError::Failed(errno_code(libc::EMSGSIZE)));
        }
        if self.free_tracked.is_empty() {
            return Err(PostError::Again);
        }
        self.make_room(to)?;
        u32::try_from(key.0).map_err(|_| PostError::Failed(errno_code(libc::EINVAL)))
    }

    /// A place for a small origin buffer; it is taken.
    #[inline]
    fn bounce(&mut self, len: usize) -> Result<(NonNull<u8>, Local), PostError> {
        let Some(index) = self.free_bounces.pop() else { return Err(PostError::Again) };
        let place = self.memory.bounce(index as usize);
        let piece = piece(place.as_ptr(), len, self.memory.lkey());
        Ok((place, Local { piece, holding: Holding::Bounce(index), flags: 0, into: ptr::null_mut() }))
    }

    /// # Safety
    /// The source is readable until the operation is complete.
    #[inline]
    unsafe fn source(&mut self, src: *const u8, len: usize) -> Result<Local, PostError> {
        if len <= self.inline_bytes {
            let flags = sys::IBV_SEND_INLINE;
            let (piece, holding) = (piece(src, len, 0), Holding::Nothing);
            return Ok(Local { piece, holding, flags, into: ptr::null_mut() });
        }
        // SAFETY: by the caller's promise.
        unsafe { self.source_in_memory(src, len) }
    }

    /// The same where the bytes do not fit into the request.
    ///
    /// # Safety
    /// As for [`Self::source`].
    #[inline]
    pub(crate) unsafe fn source_in_memory(&mut self, src: *const u8, len: usize) -> Result<Local, PostError> {
        if len <= BOUNCE_BYTES {
            let (place, local) = self.bounce(len)?;
            // SAFETY: the place is ours and holds so many bytes; the source is the caller's promise.
            unsafe { ptr::copy_nonoverlapping(src, place.as_ptr(), len) };
            return Ok(local);
        }
        // SAFETY: by the caller's promise.
        let (taken, lkey) = unsafe { self.registrations.take(src, len, false) }?;
        let (piece, holding) = (piece(src, len, lkey), Holding::Registered(taken));
        Ok(Local { piece, holding, flags: 0, into: ptr::null_mut() })
    }

    /// # Safety
    /// The destination is writable until the operation is complete.
    #[inline]
    pub(crate) unsafe fn destination(&mut self, dst: *mut u8, len: usize) -> Result<Local, PostError> {
        if len <= BOUNCE_BYTES {
            let (_, local) = self.bounce(len)?;
            return Ok(Local { into: dst, ..local });
        }
        // SAFETY: by the caller's promise.
        let (taken, lkey) = unsafe { self.registrations.take(dst, len, true) }?;
        let (piece, holding) = (piece(dst, len, lkey), Holding::Registered(taken));
        Ok(Local { piece, holding, flags: 0, into: ptr::null_mut() })
    }

    /// Posts what was checked, with what it holds.
    #[inline]
    pub(crate) fn track(&mut self, to: PeerAddr, request: &Request<'_>, held: Part, tag: Tag) {
        let Part { holding, into, len } = held;
        // The check found one free.
        let Some(slot) = self.free_tracked.pop() else { return };
        self.peers[to.0 as usize].outstanding += 1;
        self.tracked[slot as usize] =
            Tracked { tag, peer: to.0 as u32, holding, into, len, is_in_flight: true };
        self.submit(to, slot, request);
    }

    /// The same for one piece of memory. Small puts may wait for others.
    #[inline]
    fn post(&mut self, to: PeerAddr, opcode: u32, local: &Local, wr: sys::Wr, tag: Tag) {
        let held = Part { holding: local.holding, into: local.into, len: local.piece.length };
        let may_wait = opcode == sys::IBV_WR_RDMA_WRITE && held.len as usize <= BOUNCE_BYTES;
        let pieces = core::slice::from_ref(&local.piece);
        let request = Request { opcode, flags: local.flags, pieces, wr, data: 0, may_wait };
        self.track(to, &request, held, tag);
    }

    /// Gives back what an operation held; with `has_arrived`, what was read goes where it belongs.
    ///
    /// # Safety
    /// With `has_arrived`, the places of what was read are writable.
    #[inline]
    pub(crate) unsafe fn give_back(&mut self, part: Part, has_arrived: bool) {
        let Part { holding, into, len } = part;
        match holding {
            Holding::Nothing => {}
            Holding::Bounce(index) => {
                if has_arrived && !into.is_null() {
                    let from = self.memory.bounce(index as usize);
                    // SAFETY: the device has written so many bytes to the place, which is ours until it is given
                    // back below; the destination is the caller's promise.
                    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into, len as usize) };
                }
                self.free_bounces.push(index);
            }
            Holding::Registered(taken) => self.registrations.give_back(taken),
            // SAFETY: by the caller's promise.
            Holding::Bundle(index) => unsafe { self.give_back_bundle(index, has_arrived) },
        }
    }

    /// Remembers where a flush reads back, if it does.
    #[inline]
    pub(crate) fn remember_put(&mut self, to: PeerAddr, at: RemoteAddr, rkey: u32, len: usize) {
        if self.limits.put_completes == CompletionScope::Local {
            self.peers[to.0 as usize].last_put = Some(LastPut { addr: at.addr, rkey, len: len as u32 });
        }
    }

    /// Reads a word of what was put last: it comes when everything before is in memory.
    fn read_back(&mut self, to: PeerAddr, put: LastPut, tag: Tag) -> Post {
        self.check(to, 0, RemoteKey(u64::from(put.rkey)))?;
        let len = put.len.min(8) as usize;
        let (_, local) = self.bounce(len)?;
        let wr = sys::Wr { rdma: sys::Rdma { remote_addr: put.addr, rkey: put.rkey } };
        self.post(to, sys::IBV_WR_RDMA_READ, &local, wr, tag);
        self.peers[to.0 as usize].last_put = None;
        Ok(Accepted::Tracked)
    }

    /// An operation that needs no fabric.
    #[cold]
    #[inline(never)]
    fn nothing_to_do(&self, to: PeerAddr) -> Post {
        self.check_peer(to).map(|()| Accepted::Complete)
    }

    fn check_peer(&self, to: PeerAddr) -> Result<(), PostError> {
        match self.peers.get(to.0 as usize) {
            Some(peer) if peer.down.is_none() && peer.connections > 0 && !self.is_down => Ok(()),
            _ => Err(self.unusable(to)),
        }
    }

    /// A fetch-add or compare-and-swap of 8 bytes; the old value goes to `result`.
    ///
    /// # Safety
    /// `result` is writable until the tag comes back.
    #[allow(clippy::too_many_arguments)]
    unsafe fn post_atomic(
        &mut self,
        to: PeerAddr,
        opcode: u32,
        [compare_add, swap]: [u64; 2],
        result: *mut u8,
        at: RemoteAddr,
        tag: Tag,
    ) -> Post {
        // The device would break the connection.
        if at.addr % 8 != 0 {
            return Err(PostError::Failed(errno_code(libc::EINVAL)));
        }
        let rkey = self.check(to, 8, at.key)?;
        let (_, local) = self.bounce(8)?;
        let wr = sys::Wr { atomic: sys::Atomic { remote_addr: at.addr, compare_add, swap, rkey } };
        self.post(to, opcode, &Local { into: result, ..local }, wr, tag);
        Ok(Accepted::Tracked)
    }
}

/// What the device's refusal to take a work request means.
#[cold]
#[inline(never)]
fn refused(result: i32) -> PostError {
    match result {
        // Its queue is full: it drains as others complete.
        libc::ENOMEM | libc::EAGAIN => PostError::Again,
        code => PostError::Failed(errno_code(code)),
    }
}

fn not_offered() -> Post {
    Err(PostError::Failed(errno_code(libc::EOPNOTSUPP)))
}

/// # Safety
/// Eight bytes are readable.
unsafe fn word_at(from: *const u8) -> u64 {
    // SAFETY: by the caller's promise; alignment is not asked for.
    unsafe { from.cast::<u64>().read_unaligned() }
}

// SAFETY: line 3 (tags): a tag lives in its slot from the post that the device accepted until the completion with
// the slot's number is read, once; a queue pair completes each request once, also when it breaks, and the device
// does not touch the request's memory afterwards. Line 4: `send` copies. Packets point into buffers that are given
// to the device again only by `release`.
unsafe impl Endpoint for VerbsEndpoint {
    type Region = VerbsRegion;
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
        let location = Location::of(address, &self.location)?;
        self.admit(location)
    }

    fn disconnect(&mut self, peer: PeerAddr) {
        if let Some(known) = self.peers.get_mut(peer.0 as usize) {
            known.connections = known.connections.saturating_sub(1);
        }
        self.on_forgotten(peer.0 as usize);
    }

    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        _key: RemoteKey,
    ) -> Result<Self::Region, ProviderError> {
        // SAFETY: by the caller's promise.
        unsafe { VerbsRegion::open(&self.device.domain, base, len) }
    }

    fn put_inject(&mut self, to: PeerAddr, src: &[u8], _at: RemoteAddr) -> Result<(), PostError> {
        // `inject_bytes_max` is 0: there are no injected puts but empty ones.
        self.check_peer(to)?;
        if src.is_empty() {
            Ok(())
        } else {
            Err(PostError::Failed(errno_code(libc::EMSGSIZE)))
        }
    }

    #[inline]
    unsafe fn put(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        if len == 0 {
            return self.nothing_to_do(to);
        }
        let rkey = self.check(to, len, at.key)?;
        // SAFETY: by the caller's promise.
        let local = unsafe { self.source(src, len) }?;
        let wr = sys::Wr { rdma: sys::Rdma { remote_addr: at.addr, rkey } };
        self.post(to, sys::IBV_WR_RDMA_WRITE, &local, wr, tag);
        self.remember_put(to, at, rkey, len);
        Ok(Accepted::Tracked)
    }

    fn data_bytes(&self, _peer: PeerAddr) -> usize {
        DATA_BYTES
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
        let rkey = self.check(to, len, at.key)?;
        // SAFETY: by the caller's promise.
        let local = unsafe { self.source(src, len) }?;
        let held = Part { holding: local.holding, into: local.into, len: local.piece.length };
        let request = Request {
            opcode: sys::IBV_WR_RDMA_WRITE_WITH_IMM,
            flags: local.flags,
            pieces: core::slice::from_ref(&local.piece),
            wr: sys::Wr { rdma: sys::Rdma { remote_addr: at.addr, rkey } },
            data: data as u32,
            may_wait: false,
        };
        self.track(to, &request, held, tag);
        self.remember_put(to, at, rkey, len);
        Ok(Accepted::Tracked)
    }

    #[inline]
    unsafe fn get(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        if len == 0 {
            return self.nothing_to_do(to);
        }
        let rkey = self.check(to, len, at.key)?;
        // SAFETY: by the caller's promise.
        let local = unsafe { self.destination(dst, len) }?;
        let wr = sys::Wr { rdma: sys::Rdma { remote_addr: at.addr, rkey } };
        self.post(to, sys::IBV_WR_RDMA_READ, &local, wr, tag);
        Ok(Accepted::Tracked)
    }

    unsafe fn put_vector(
        &mut self,
        to: PeerAddr,
        from: &[LocalPiece],
        into: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        // SAFETY: by the caller's promise.
        unsafe { self.post_vector(sys::IBV_WR_RDMA_WRITE, to, from, into, tag) }
    }

    unsafe fn get_vector(
        &mut self,
        to: PeerAddr,
        into: &[LocalPiece],
        from: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        // SAFETY: by the caller's promise.
        unsafe { self.post_vector(sys::IBV_WR_RDMA_READ, to, into, from, tag) }
    }

    unsafe fn atomic(
        &mut self,
        _to: PeerAddr,
        _operand: *const u8,
        _count: usize,
        _at: RemoteAddr,
        _dtype: Dtype,
        _op: ReduceOp,
        _tag: Tag,
    ) -> Post {
        not_offered()
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
        if count != 1 || !NativeOps::has(&self.native.fetch_atomic, dtype, op) {
            return not_offered();
        }
        let add = match op {
            // Adding nothing reads atomically.
            ReduceOp::NoOp => 0,
            // SAFETY: by the caller's promise: one element of 8 bytes.
            _ => unsafe { word_at(operand) },
        };
        // SAFETY: by the caller's promise.
        unsafe { self.post_atomic(to, sys::IBV_WR_ATOMIC_FETCH_AND_ADD, [add, 0], result, at, tag) }
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
        if self.native.compare_atomic & (1 << dtype as u32) == 0 {
            return not_offered();
        }
        // SAFETY: by the caller's promise: one element of 8 bytes.
        let (compare, swap) = (unsafe { word_at(compare) }, unsafe { word_at(operand) });
        // SAFETY: by the caller's promise.
        unsafe { self.post_atomic(to, sys::IBV_WR_ATOMIC_CMP_AND_SWP, [compare, swap], result, at, tag) }
    }

    #[inline]
    fn send(
        &mut self,
        to: PeerAddr,
        header: &[u8],
        payload: &[u8],
        class: SendClass,
    ) -> Result<(), PostError> {
        let role = class as usize;
        self.check_link(to, role)?;
        let len = header.len() + payload.len();
        if len > self.limits.send_bytes_max {
            return Err(PostError::Failed(errno_code(libc::EMSGSIZE)));
        }
        let Some(&index) = self.lanes[role].free_outgoing.last() else { return Err(PostError::Again) };
        let buffer = self.memory.outgoing(index as usize);
        // SAFETY: the buffer is free, so nobody else uses it, and holds `send_bytes_max` bytes.
        unsafe { ptr::copy_nonoverlapping(header.as_ptr(), buffer.as_ptr(), header.len()) };
        // SAFETY: the payload follows the header; together they are at most `send_bytes_max` bytes.
        let rest = unsafe { buffer.add(header.len()) };
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(payload.as_ptr(), rest.as_ptr(), payload.len()) };
        let flags = if len <= self.inline_bytes { sys::IBV_SEND_INLINE } else { 0 };
        let mut pieces = [piece(buffer.as_ptr(), len, self.memory.lkey())];
        let nowhere = sys::Wr { rdma: sys::Rdma { remote_addr: 0, rkey: 0 } };
        if class == SendClass::Request {
            self.make_room(to)?;
            self.lanes[role].free_outgoing.pop();
            self.outgoing[index as usize] = to.0 as u32;
            let number = self.number_of_packet(index);
            let (opcode, pieces) = (sys::IBV_WR_SEND, &pieces[..]);
            let request = Request { opcode, flags, pieces, wr: nowhere, data: 0, may_wait: false };
            self.submit(to, number, &request);
            return Ok(());
        }
        let (id, flags) = (work_id(OUTGOING, index), flags | sys::IBV_SEND_SIGNALED);
        let mut request = sys::ibv_send_wr::new(id, sys::IBV_WR_SEND, flags, &mut pieces, nowhere);
        let link = &mut self.peers[to.0 as usize].links[role];
        let Some(qp) = &link.qp else { return Err(PostError::Again) };
        // SAFETY: the buffer stays as it is until the completion.
        let result = unsafe { qp.post(&mut request) };
        if result != 0 {
            return Err(refused(result));
        }
        link.posted += 1;
        link.is_used = true;
        self.lanes[role].free_outgoing.pop();
        self.outgoing[index as usize] = to.0 as u32;
        Ok(())
    }

    fn flush(&mut self, to: PeerAddr, tag: Tag) -> Post {
        self.check_peer(to)?;
        if let Some(put) = self.peers[to.0 as usize].last_put {
            return self.read_back(to, put, tag);
        }
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

    #[inline]
    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        self.poll_queue(out)
    }

    #[inline]
    fn release(&mut self, packet: ReceivedPacket) {
        let class = self.memory.sizes().class_of_incoming(packet.buffer as usize);
        self.lanes[class].unposted.push(packet.buffer);
        self.post_receives_of(class);
    }

    fn abandon(&mut self, peer: PeerAddr, code: FabricCode) {
        self.peer_lost(peer.0 as usize, code);
    }

    fn wait_fd(&self) -> Option<i32> {
        Some(self.waker.fd())
    }

    fn arm_wait(&mut self) -> bool {
        self.arm()
    }
}
