//! The endpoint that stands between the engine and one that can do more.

use std::ptr::NonNull;

use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Accepted, Atomic, ByAddress, Completion, CompletionBatch, Endpoint, FabricCode, Limits, LocalPiece,
    MemoryRegion, NativeOps, Post, PostError, ProviderError, ReceivedPacket, RemoteAddr, RemotePiece,
    SendClass, Swapped, WordSwap,
};
use rma_sim::Random;

use super::held::{Call, Held, Pieces, INJECT_BYTES_MAX};
use super::{Addresses, Fabric};

/// An endpoint with the restrictions of a [`Fabric`].
///
/// Where the fabric keeps no order, operations are held until the next poll and then posted in random order:
/// packets sent meanwhile overtake them. Where it chooses keys, each endpoint wishes for others. Where it counts by
/// addresses, each region begins at an address that follows from its key.
#[derive(Debug)]
pub struct Imposed<E> {
    inner: E,
    fabric: Fabric,
    limits: Limits,
    native: NativeOps,
    random: Random,
    /// What this endpoint's keys differ in from those of others.
    salt: u64,
    held: Vec<Held>,
    /// What the endpoint will not say of operations that were held: that it did not take them, or did them at once.
    over: Vec<Completion>,
}

/// A region of an [`Imposed`] endpoint.
#[derive(Debug)]
pub struct ImposedRegion<R> {
    inner: R,
    fabric: Fabric,
}

impl<R: MemoryRegion> MemoryRegion for ImposedRegion<R> {
    fn remote_key(&self) -> RemoteKey {
        self.inner.remote_key()
    }

    fn remote_base(&self) -> u64 {
        self.inner.remote_base().wrapping_add(self.fabric.base_of(self.remote_key()))
    }
}

impl Fabric {
    /// What is added to the addresses of a region: anything, as long as all ranks know it.
    fn base_of(&self, key: RemoteKey) -> u64 {
        match self.addresses {
            Addresses::Offsets => 0,
            // Page-aligned, below 2^47, and never 0.
            Addresses::Virtual => (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17 | 1 << 40) & !0xfff,
        }
    }

    /// Where a remote address is for the endpoint below.
    fn below(&self, at: RemoteAddr) -> RemoteAddr {
        RemoteAddr { addr: at.addr.wrapping_sub(self.base_of(at.key)), ..at }
    }
}

impl<E: Endpoint> Imposed<E> {
    /// Puts the restrictions of a fabric on an endpoint. `seed` names the disorder, and differs between the
    /// endpoints of a job.
    pub fn new(inner: E, fabric: Fabric, seed: u32) -> Self {
        let mut limits = fabric.limits(inner.limits());
        limits.inject_bytes_max = limits.inject_bytes_max.min(INJECT_BYTES_MAX);
        let native = fabric.native(inner.native());
        let room = if fabric.disorders() { limits.outstanding_max.min(HELD_MAX) } else { 0 };
        Self {
            inner,
            fabric,
            limits,
            native,
            random: Random::new(seed.into()),
            salt: u64::from(fabric.chooses_keys) * (u64::from(seed) + 1),
            held: Vec::with_capacity(room),
            over: Vec::with_capacity(room),
        }
    }

    /// Posts a call, now or later.
    ///
    /// # Safety
    /// The memory that the call names is there until the tag comes back.
    unsafe fn post(&mut self, to: PeerAddr, tag: Option<Tag>, call: Call) -> Post {
        let held = Held { to, tag, call };
        if !self.fabric.disorders() {
            // SAFETY: by the caller's promise.
            return unsafe { held.post(&mut self.inner) };
        }
        if self.held.len() + self.over.len() == self.held.capacity() {
            return Err(PostError::Again);
        }
        self.held.push(held);
        Ok(Accepted::Tracked)
    }

    /// The key that is wished for in place of this one.
    fn wish(&self, key: RemoteKey) -> RemoteKey {
        RemoteKey(key.0 ^ self.salt << KEY_BITS)
    }

    /// Swaps the first of several words, and sees what the second is.
    fn swap_first(&mut self, to: PeerAddr, first: WordSwap, second: WordSwap) -> Option<Swapped> {
        let swapped = self.inner.swap_now(to, [first])?;
        if swapped.count == 0 {
            return Some(swapped);
        }
        let look = WordSwap { into: second.from, ..second };
        let seen = self.inner.swap_now(to, [look]).expect("the word beside it was swapped");
        Some(Swapped { count: 1, other: if seen.count == 1 { second.from } else { seen.other } })
    }

    /// Posts what is held for `peer`, or all, in random order, as far as the endpoint takes it.
    fn post_held(&mut self, peer: Option<PeerAddr>) {
        let mut first = 0;
        // What is refused or for others is put in front of `first`.
        while first < self.held.len() {
            let index = first + self.random.index(self.held.len() - first);
            let held = self.held[index];
            let is_wanted = peer.is_none_or(|peer| peer == held.to);
            // SAFETY: who posted it promised that the memory stays until its tag has come back, which it has not.
            match is_wanted.then(|| unsafe { held.post(&mut self.inner) }) {
                Some(Ok(Accepted::Tracked)) => drop(self.held.swap_remove(index)),
                Some(Ok(Accepted::Complete)) => {
                    self.held.swap_remove(index);
                    self.over.extend(held.tag.map(Completion::Done));
                }
                Some(Err(PostError::Failed(code))) => {
                    self.held.swap_remove(index);
                    self.over.extend(held.tag.map(|tag| Completion::Failed(tag, code)));
                }
                Some(Err(PostError::Again)) | None => {
                    self.held.swap(first, index);
                    first += 1;
                }
            }
        }
    }
}

/// Operations held by an endpoint at one time.
const HELD_MAX: usize = 64;

// SAFETY: tags come back once, from the inner endpoint or from `over`, where they get only when the inner one will not
// say them; held operations name memory that stays until their tag comes back, and held injects have a copy.
// Packets are the inner endpoint's.
unsafe impl<E: Endpoint> Endpoint for Imposed<E> {
    type Region = ImposedRegion<E::Region>;
    type Passage = ByAddress;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn native(&self) -> &NativeOps {
        &self.native
    }

    fn address(&self) -> AddressBytes {
        self.inner.address()
    }

    fn connect(&mut self, address: &AddressBytes) -> Result<PeerAddr, ProviderError> {
        self.inner.connect(address)
    }

    fn disconnect(&mut self, peer: PeerAddr) {
        self.inner.disconnect(peer);
    }

    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<Self::Region, ProviderError> {
        // SAFETY: by the caller's promise.
        let inner = unsafe { self.inner.register(base, len, self.wish(key)) }?;
        Ok(ImposedRegion { inner, fabric: self.fabric })
    }

    unsafe fn register_near(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<Self::Region, ProviderError> {
        // SAFETY: by the caller's promise.
        let inner = unsafe { self.inner.register_near(base, len, self.wish(key)) }?;
        Ok(ImposedRegion { inner, fabric: self.fabric })
    }

    fn put_inject(&mut self, to: PeerAddr, src: &[u8], at: RemoteAddr) -> Result<(), PostError> {
        let mut bytes = [0; INJECT_BYTES_MAX];
        bytes[..src.len()].copy_from_slice(src);
        let call = Call::PutInject { bytes, len: src.len(), at: self.fabric.below(at) };
        // SAFETY: it has its bytes with it.
        unsafe { self.post(to, None, call) }.map(|_| ())
    }

    unsafe fn put(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        let at = self.fabric.below(at);
        // SAFETY: by the caller's promise.
        unsafe { self.post(to, Some(tag), Call::Put { src, len, at }) }
    }

    fn data_bytes(&self, peer: PeerAddr) -> usize {
        match self.fabric.data_bytes {
            0 => 0,
            // As many as the endpoint below hands out.
            _ => self.inner.data_bytes(peer),
        }
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
        // Not held: a packet that is sent now must not pass it. Puts that are held it passes.
        let at = self.fabric.below(at);
        // SAFETY: by the caller's promise.
        unsafe { self.inner.put_with_data(to, src, len, at, tag, data) }
    }

    unsafe fn get(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        let at = self.fabric.below(at);
        // SAFETY: by the caller's promise.
        unsafe { self.post(to, Some(tag), Call::Get { dst, len, at }) }
    }

    unsafe fn put_vector(
        &mut self,
        to: PeerAddr,
        from: &[LocalPiece],
        into: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        let mut pieces = Pieces::new(from, into);
        pieces.change_remote(|at| self.fabric.below(at));
        // SAFETY: by the caller's promise.
        unsafe { self.post(to, Some(tag), Call::PutVector(pieces)) }
    }

    unsafe fn get_vector(
        &mut self,
        to: PeerAddr,
        into: &[LocalPiece],
        from: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        let mut pieces = Pieces::new(into, from);
        pieces.change_remote(|at| self.fabric.below(at));
        // SAFETY: by the caller's promise.
        unsafe { self.post(to, Some(tag), Call::GetVector(pieces)) }
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
        let at = self.fabric.below(at);
        // SAFETY: by the caller's promise.
        unsafe { self.post(to, Some(tag), Call::Atomic { operand, count, at, dtype, op }) }
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
        let at = self.fabric.below(at);
        // SAFETY: by the caller's promise.
        unsafe { self.post(to, Some(tag), Call::FetchAtomic { operand, result, count, at, dtype, op }) }
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
        let at = self.fabric.below(at);
        // SAFETY: by the caller's promise.
        unsafe { self.post(to, Some(tag), Call::CompareAtomic { operand, compare, result, at, dtype }) }
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
        unsafe { self.inner.assist(to, atomic, self.fabric.below(at), dtype, op) }
    }

    fn send(
        &mut self,
        to: PeerAddr,
        header: &[u8],
        payload: &[u8],
        class: SendClass,
    ) -> Result<(), PostError> {
        self.inner.send(to, header, payload, class)
    }

    fn flush(&mut self, to: PeerAddr, tag: Tag) -> Post {
        self.post_held(Some(to));
        if self.held.iter().any(|held| held.to == to) {
            return Err(PostError::Again);
        }
        self.inner.flush(to, tag)
    }

    fn completes_at_once(&self, peer: PeerAddr) -> bool {
        !self.fabric.disorders() && self.inner.completes_at_once(peer)
    }

    fn has_news(&self) -> bool {
        self.inner.has_news()
    }

    fn may_complete_at_once(&self) -> bool {
        !self.fabric.disorders() && self.inner.may_complete_at_once()
    }

    fn tell(&mut self, to: PeerAddr, at: RemoteAddr, word: u64) -> Result<bool, PostError> {
        self.inner.tell(to, self.fabric.below(at), word)
    }

    unsafe fn put_now(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr) -> bool {
        // SAFETY: the caller's promise.
        !self.fabric.disorders() && unsafe { self.inner.put_now(to, src, len, self.fabric.below(at)) }
    }

    unsafe fn get_now(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr) -> bool {
        // SAFETY: the caller's promise.
        !self.fabric.disorders() && unsafe { self.inner.get_now(to, dst, len, self.fabric.below(at)) }
    }

    unsafe fn atomic_now(
        &mut self,
        to: PeerAddr,
        (atomic, count): (Atomic, usize),
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    ) -> bool {
        // SAFETY: the caller's promise.
        !self.fabric.disorders()
            && unsafe { self.inner.atomic_now(to, (atomic, count), self.fabric.below(at), dtype, op) }
    }

    fn swap_now<const N: usize>(&mut self, to: PeerAddr, swaps: [WordSwap; N]) -> Option<Swapped> {
        if self.fabric.disorders() {
            return None;
        }
        let swaps = swaps.map(|swap| WordSwap { at: self.fabric.below(swap.at), ..swap });
        match swaps.as_slice() {
            [first, second, ..] if self.fabric.halves_swaps && self.random.index(3) == 0 => {
                self.swap_first(to, *first, *second)
            }
            _ => self.inner.swap_now(to, swaps),
        }
    }

    fn passage(&mut self, to: PeerAddr, words: Option<RemoteAddr>, memory: RemotePiece) -> Option<ByAddress> {
        Some(ByAddress::new(to, words, memory.at))
    }

    fn may_tell(&self) -> bool {
        !self.fabric.disorders() && self.inner.may_tell()
    }

    fn reaches(&mut self, to: PeerAddr, at: RemoteAddr) -> bool {
        self.inner.reaches(to, at)
    }

    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        self.post_held(None);
        let mut added = 0;
        while out.room() > 0 {
            let Some(completion) = self.over.pop() else { break };
            out.push(completion).expect("there is room");
            added += 1;
        }
        added + self.inner.poll(out)
    }

    fn release(&mut self, packet: ReceivedPacket) {
        self.inner.release(packet);
    }

    fn abandon(&mut self, peer: PeerAddr, code: FabricCode) {
        self.inner.abandon(peer, code);
    }

    fn wait_fd(&self) -> Option<i32> {
        self.inner.wait_fd()
    }

    fn arm_wait(&mut self) -> bool {
        self.held.is_empty() && self.over.is_empty() && self.inner.arm_wait()
    }
}

/// Where in keys the salt begins: above what the engine wishes for.
const KEY_BITS: u32 = 40;
