//! The provider's calls. Whatever is posted is done when the call returns; `poll` only says what failed.

use core::ptr::NonNull;

use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Accepted, Allocation, Atomic, CompletionBatch, Endpoint, FabricCode, Limits, LocalPiece, MemoryRegion,
    NativeOps, Post, PostError, ProviderError, ReceivedPacket, RemoteAddr, RemotePiece, SendClass, Swapped,
    WordSwap,
};

use crate::assist::BYTES_MAX;
use crate::atomics::{self, Change};
use crate::attach::Direction;
use crate::bell::{self, Bell};
use crate::endpoint::ShmEndpoint;
use crate::error::{refused, ENDED, NONSENSE, NOT_OFFERED, NO_FILE, TOO_LONG};
use crate::memory::Memory;
use crate::options::Reach;
use crate::own::{ShmRegion, Terms};
use crate::passage::ShmPassage;
use crate::peer::{Peer, Place};
use crate::ring::WORD;
use crate::transfer;

impl ShmEndpoint {
    /// Does an operation.
    #[inline]
    fn operate(
        &mut self,
        to: PeerAddr,
        tag: Tag,
        operation: impl FnOnce(&mut Peer) -> Result<(), FabricCode>,
    ) -> Post {
        match operation(self.live(to)?) {
            Ok(()) => Ok(Accepted::Complete),
            Err(code) => self.failed(to, tag, code),
        }
    }

    /// An operation that was accepted has failed.
    #[cold]
    #[inline(never)]
    fn failed(&mut self, to: PeerAddr, tag: Tag, code: FabricCode) -> Post {
        if code == ENDED {
            self.peer_lost(to, ENDED);
            return Err(PostError::Failed(ENDED));
        }
        if self.failures.len() >= self.limits_of().outstanding_max {
            return Err(PostError::Again);
        }
        self.failures.push_back((tag, code));
        Ok(Accepted::Tracked)
    }

    /// A contiguous put or get.
    ///
    /// # Safety
    /// The local piece is readable, for gets writable.
    #[inline]
    unsafe fn transfer(
        &mut self,
        to: PeerAddr,
        direction: Direction,
        local: LocalPiece,
        at: RemoteAddr,
        tag: Tag,
    ) -> Post {
        self.check_transfer(local.len)?;
        let peer = self.live(to)?;
        let found = match transfer::find(peer, RemotePiece { at, len: local.len }) {
            Ok(found) => found,
            Err(code) => return self.failed(to, tag, code),
        };
        if let (known, Place::Attached(base)) = found {
            let request = (known, base);
            // SAFETY: by the caller's promise.
            if local.len <= BYTES_MAX && unsafe { self.ask_for_copy(to, direction, local, request) }? {
                return Ok(Accepted::Complete);
            }
        }
        // SAFETY: by the caller's promise.
        self.operate(to, tag, |peer| unsafe { transfer::one(peer, direction, local, found) })
    }

    /// The same, by what is known of the region already, and complete when this returns. `false`: nothing has happened that
    /// the same put or get would not do again.
    ///
    /// # Safety
    /// As for [`ShmEndpoint::transfer`].
    #[inline]
    unsafe fn now(&mut self, to: PeerAddr, direction: Direction, local: LocalPiece, at: RemoteAddr) -> bool {
        // SAFETY: by the caller's promise.
        let is_done =
            self.present(to).is_some_and(|peer| unsafe { transfer::now(peer, direction, local, at) });
        // SAFETY: as above.
        is_done || unsafe { self.now_attached(to, direction, local, at) }
    }

    /// The same of memory that is not mapped here.
    ///
    /// # Safety
    /// As for [`ShmEndpoint::transfer`].
    #[inline(never)]
    unsafe fn now_attached(
        &mut self,
        to: PeerAddr,
        direction: Direction,
        local: LocalPiece,
        at: RemoteAddr,
    ) -> bool {
        let Some(found) = self.present(to).and_then(|peer| transfer::find_attached(peer, at, local.len))
        else {
            return false;
        };
        let (known, base) = found;
        if (1..=BYTES_MAX).contains(&local.len) {
            // SAFETY: by the caller's promise.
            match unsafe { self.ask_for_copy(to, direction, local, (known, base)) } {
                Ok(true) => return true,
                Ok(false) => {}
                Err(_) => return false,
            }
        }
        let place = (known, Place::Attached(base));
        // SAFETY: by the caller's promise, of the place that was found.
        self.present(to).is_some_and(|peer| unsafe { transfer::one(peer, direction, local, place) }.is_ok())
    }

    /// Swaps words, and then, if all were swapped, puts; whether that was done.
    ///
    /// # Safety
    /// The local piece is readable.
    #[inline(never)]
    unsafe fn swap_then_put<const N: usize>(
        &mut self,
        to: PeerAddr,
        swaps: [WordSwap; N],
        local: LocalPiece,
        at: RemoteAddr,
    ) -> Option<(Swapped, bool)> {
        let swapped = self.swap_now(to, swaps)?;
        // SAFETY: by the caller's promise.
        let is_put = swapped.count == N && unsafe { self.now(to, Direction::Put, local, at) };
        Some((swapped, is_put))
    }

    /// Tells a peer that has gone, or in a region that is not known, or another one by now.
    #[cold]
    #[inline(never)]
    fn tell_anew(&mut self, to: PeerAddr, at: RemoteAddr, word: u64) -> Result<bool, PostError> {
        let peer = self.live(to)?;
        Ok(peer.region(at.key).is_ok() && peer.tell_known(at, word))
    }

    #[inline]
    fn check_transfer(&self, len: usize) -> Result<(), PostError> {
        if self.reach == Reach::Packets {
            return Err(PostError::Failed(NOT_OFFERED));
        }
        if len > self.limits_of().message_bytes_max {
            return Err(PostError::Failed(TOO_LONG));
        }
        Ok(())
    }

    fn must_be_mapped(&self) -> bool {
        matches!(self.reach, Reach::Mapped | Reach::Allocated)
    }

    /// Registers memory under the key and the addresses that the region `like` has, which another provider's endpoint
    /// made of the same memory: peers name it to both endpoints alike.
    ///
    /// # Safety
    /// See [`Endpoint::register`].
    ///
    /// # Errors
    /// Those of [`Endpoint::register`]; and where the key is another region's here.
    pub unsafe fn register_like(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        like: &impl MemoryRegion,
    ) -> Result<ShmRegion, ProviderError> {
        let by_address = like.remote_base() != 0;
        let terms = Terms { must_be_mapped: self.must_be_mapped(), by_address };
        let region = ShmRegion::new(&self.own, base, len, like.remote_key(), terms)?;
        if (region.remote_key(), region.remote_base()) != (like.remote_key(), like.remote_base()) {
            return Err(refused(format!(
                "register: a region with the key {:#x} and the first address {:#x} cannot be had in shared memory, too: \
                 the key is taken, or the address is not the memory's",
                like.remote_key().0,
                like.remote_base()
            )));
        }
        Ok(region)
    }

    /// # Safety
    /// As the provider's atomics, whose buffers `atomic` has.
    unsafe fn atomically(
        &mut self,
        to: PeerAddr,
        atomic: Atomic,
        count: usize,
        at: RemoteAddr,
        (dtype, op): (Dtype, ReduceOp),
        tag: Tag,
    ) -> Post {
        // SAFETY: by the caller's promise.
        if count == 1 && unsafe { self.atomic_now(to, (atomic, count), at, dtype, op) } {
            return Ok(Accepted::Complete);
        }
        let native = self.native_allocated_of();
        let is_offered = match atomic {
            Atomic::Reduce { .. } => NativeOps::has(&native.atomic, dtype, op),
            Atomic::Fetch { .. } => NativeOps::has(&native.fetch_atomic, dtype, op),
            Atomic::Swap { .. } => native.compare_atomic & (1 << dtype as u32) != 0,
        };
        if !is_offered {
            return Err(PostError::Failed(NOT_OFFERED));
        }
        let len = count.checked_mul(dtype.size()).ok_or(PostError::Failed(TOO_LONG))?;
        self.check_transfer(len)?;
        let has_turn = self.take_turn(to, at, dtype)?;
        // SAFETY: by the caller's promise.
        let done = unsafe { atomics::execute(self.live(to)?, atomic, len, at, dtype, op) };
        let posted = match done {
            Ok(Change::Done) => Ok(Accepted::Complete),
            Ok(Change::Not) => {
                self.waits_for_turn = true;
                Err(PostError::Again)
            }
            Err(code) => self.failed(to, tag, code),
        };
        if has_turn {
            let own = self.own.identity;
            self.peer(to)?.head.give_turn(own);
        }
        posted
    }

    /// At addresses for which the processor has no atomics one origin after the other changes elements, as if the
    /// target's engine did. Whether this is such an address, and so this origin's turn.
    fn take_turn(&mut self, to: PeerAddr, at: RemoteAddr, dtype: Dtype) -> Result<bool, PostError> {
        let own = self.own.identity;
        let peer = self.live(to)?;
        // Locks go by packets where it is so, and nothing of them is under way then.
        if peer.region(at.key).err() == Some(NO_FILE) {
            return Err(PostError::Failed(NO_FILE));
        }
        if atomics::is_aligned(peer, at, dtype) {
            return Ok(false);
        }
        if peer.head.take_turn(own) {
            Ok(true)
        } else {
            self.waits_for_turn = true;
            Err(PostError::Again)
        }
    }
}

// SAFETY: line 3: an operation is over when its call returns, so that its memory is not touched any more; the tag of one
// that failed is put into `failures` once. Line 4: packets are copied in the call. Received packets point to `len`
// bytes of a buffer that is not lent again until it is released. The tests in tests/contract show every line.
unsafe impl Endpoint for ShmEndpoint {
    type Region = ShmRegion;
    type Passage = ShmPassage;

    fn limits(&self) -> &Limits {
        self.limits_of()
    }

    fn native(&self) -> &NativeOps {
        self.native_of()
    }

    fn native_allocated(&self) -> &NativeOps {
        self.native_allocated_of()
    }

    fn allocate(&mut self, len: usize, alignment: usize) -> Allocation {
        if self.reach == Reach::Packets {
            return Allocation::Anywhere;
        }
        self.refusal = None;
        Memory::for_window(len, alignment, self.pages).unwrap_or_else(|error| {
            self.refusal = Some(error.message);
            Allocation::OutOfMemory
        })
    }

    fn address(&self) -> AddressBytes {
        self.own_address()
    }

    fn connect(&mut self, address: &AddressBytes) -> Result<PeerAddr, ProviderError> {
        self.connect_to(address)
    }

    fn disconnect(&mut self, peer: PeerAddr) {
        self.disconnect_from(peer);
    }

    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<ShmRegion, ProviderError> {
        ShmRegion::new(
            &self.own,
            base,
            len,
            key,
            Terms { must_be_mapped: self.must_be_mapped(), by_address: false },
        )
    }

    fn put_inject(&mut self, _to: PeerAddr, _src: &[u8], _at: RemoteAddr) -> Result<(), PostError> {
        Err(PostError::Failed(NOT_OFFERED))
    }

    #[inline]
    unsafe fn put(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        let local = LocalPiece { base: src.cast_mut(), len };
        // SAFETY: the source is readable, by the caller's promise.
        unsafe { self.transfer(to, Direction::Put, local, at, tag) }
    }

    #[inline]
    unsafe fn get(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        let local = LocalPiece { base: dst, len };
        // SAFETY: the destination is writable, by the caller's promise.
        unsafe { self.transfer(to, Direction::Get, local, at, tag) }
    }

    #[inline]
    unsafe fn put_now(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr) -> bool {
        let local = LocalPiece { base: src.cast_mut(), len };
        // SAFETY: the source is readable, by the caller's promise.
        unsafe { self.now(to, Direction::Put, local, at) }
    }

    #[inline]
    unsafe fn get_now(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr) -> bool {
        let local = LocalPiece { base: dst, len };
        // SAFETY: the destination is writable, by the caller's promise.
        unsafe { self.now(to, Direction::Get, local, at) }
    }

    #[inline]
    unsafe fn atomic_now(
        &mut self,
        to: PeerAddr,
        (atomic, count): (Atomic, usize),
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    ) -> bool {
        // SAFETY: the caller's promise.
        self.present(to).is_some_and(|peer| unsafe { atomics::now(peer, (atomic, count), at, (dtype, op)) })
    }

    #[inline]
    fn swap_now<const N: usize>(&mut self, to: PeerAddr, swaps: [WordSwap; N]) -> Option<Swapped> {
        let peer = self.present(to)?;
        match atomics::swap_in_one_go(peer, swaps) {
            None => atomics::swap_one_by_one(peer, &swaps),
            swapped => swapped,
        }
    }

    #[inline]
    unsafe fn swap_and_put_now<const N: usize>(
        &mut self,
        to: PeerAddr,
        swaps: [WordSwap; N],
        (src, len): (*const u8, usize),
        at: RemoteAddr,
    ) -> Option<(Swapped, bool)> {
        let local = LocalPiece { base: src.cast_mut(), len };
        // SAFETY: the source is readable, by the caller's promise.
        let done = unsafe { atomics::swap_and_put_in_one_go(self.present(to)?, swaps, local, at) };
        if done.is_some() {
            return done;
        }
        // SAFETY: as above.
        unsafe { self.swap_then_put(to, swaps, local, at) }
    }

    fn passage(
        &mut self,
        to: PeerAddr,
        words: Option<RemoteAddr>,
        memory: RemotePiece,
    ) -> Option<ShmPassage> {
        ShmPassage::new(to, self.present(to)?, words, memory)
    }

    unsafe fn put_vector(
        &mut self,
        to: PeerAddr,
        from: &[LocalPiece],
        into: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        self.check_transfer(0)?;
        transfer::check(from, into, self.limits_of().message_bytes_max)?;
        // SAFETY: the sources are readable, by the caller's promise.
        self.operate(to, tag, |peer| unsafe { transfer::vector(peer, Direction::Put, from, into) })
    }

    unsafe fn get_vector(
        &mut self,
        to: PeerAddr,
        into: &[LocalPiece],
        from: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        self.check_transfer(0)?;
        transfer::check(into, from, self.limits_of().message_bytes_max)?;
        // SAFETY: the destinations are writable, by the caller's promise.
        self.operate(to, tag, |peer| unsafe { transfer::vector(peer, Direction::Get, into, from) })
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
        unsafe { self.atomically(to, Atomic::Reduce { operand }, count, at, (dtype, op), tag) }
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
        unsafe { self.atomically(to, Atomic::Fetch { operand, result }, count, at, (dtype, op), tag) }
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
        let swap = Atomic::Swap { operand, compare, result };
        // SAFETY: by the caller's promise.
        unsafe { self.atomically(to, swap, 1, at, (dtype, ReduceOp::Replace), tag) }
    }

    unsafe fn assist(
        &mut self,
        to: PeerAddr,
        atomic: Atomic,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    ) -> bool {
        // SAFETY: by the caller's promise.
        unsafe { self.ask_for_atomic(to, atomic, at, (dtype, op)) }
    }

    #[inline]
    fn send(
        &mut self,
        to: PeerAddr,
        header: &[u8],
        payload: &[u8],
        class: SendClass,
    ) -> Result<(), PostError> {
        let len = header.len().saturating_add(payload.len());
        if len > self.limits_of().send_bytes_max {
            return Err(PostError::Failed(TOO_LONG));
        }
        let class = class as usize;
        let peer = self.live(to)?;
        let (ring, writer) = peer.ring(class);
        match writer.push(&ring, [header, payload]) {
            Ok(true) => {
                peer.refused[class] = None;
                if let Some(word) = bell::announce(&peer.head, peer.lane) {
                    if peer.wake() {
                        peer.head.take_back(word);
                    }
                }
                Ok(())
            }
            Ok(false) => {
                peer.refused[class] = Some(WORD + len.next_multiple_of(WORD));
                self.is_refused = true;
                Err(PostError::Again)
            }
            Err(_) => {
                self.peer_lost(to, NONSENSE);
                Err(PostError::Failed(NONSENSE))
            }
        }
    }

    fn flush(&mut self, to: PeerAddr, _tag: Tag) -> Post {
        self.live(to).map(|_| Accepted::Complete)
    }

    #[inline]
    fn completes_at_once(&self, _peer: PeerAddr) -> bool {
        true
    }

    fn may_complete_at_once(&self) -> bool {
        true
    }

    #[inline(always)]
    fn tell(&mut self, to: PeerAddr, at: RemoteAddr, word: u64) -> Result<bool, PostError> {
        match self.present(to).is_some_and(|peer| peer.tell_known(at, word)) {
            true => Ok(true),
            false => self.tell_anew(to, at, word),
        }
    }

    fn may_tell(&self) -> bool {
        self.reach != Reach::Packets
    }

    fn reaches(&mut self, to: PeerAddr, at: RemoteAddr) -> bool {
        // Of one that is gone whatever is posted says so.
        self.live(to).map_or(true, |peer| peer.region(at.key).err() != Some(NO_FILE))
    }

    #[inline]
    fn has_news(&self) -> bool {
        self.own.head.has_marks()
    }

    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        self.poll_all(out)
    }

    fn release(&mut self, packet: ReceivedPacket) {
        self.take_back(&packet);
    }

    fn abandon(&mut self, peer: PeerAddr, code: FabricCode) {
        self.peer_lost(peer, code);
    }

    fn wait_fd(&self) -> Option<i32> {
        Some(std::os::fd::AsRawFd::as_raw_fd(&self.events))
    }

    fn arm_wait(&mut self) -> bool {
        self.arm()
    }
}
