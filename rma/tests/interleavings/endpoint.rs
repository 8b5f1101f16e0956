//! The simulated endpoint with a descriptor, which tells the network of what is posted.

use std::ptr::NonNull;

use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Atomic, CompletionBatch, Endpoint, Limits, LocalPiece, NativeOps, NoPassage, Post, PostError,
    ProviderError, ReceivedPacket, RemoteAddr, RemotePiece, SendClass,
};
use rma_sim::{SimEndpoint, SimRegion};

use crate::platform::{Arc, Network};

#[derive(Debug)]
pub(crate) struct ModelEndpoint {
    inner: SimEndpoint,
    network: Arc<Network>,
    rank: u32,
}

impl ModelEndpoint {
    pub(crate) fn new(inner: SimEndpoint, network: Arc<Network>, rank: u32) -> Self {
        Self { inner, network, rank }
    }

    fn told<T>(&self, post: Result<T, PostError>) -> Result<T, PostError> {
        if post.is_ok() {
            self.network.change();
        }
        post
    }
}

// SAFETY: every call is that of the simulated endpoint, which keeps the contract.
unsafe impl Endpoint for ModelEndpoint {
    type Region = SimRegion;
    type Passage = NoPassage;

    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn native(&self) -> &NativeOps {
        self.inner.native()
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
    ) -> Result<SimRegion, ProviderError> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.register(base, len, key) }
    }

    unsafe fn register_near(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<SimRegion, ProviderError> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.register_near(base, len, key) }
    }

    fn put_inject(&mut self, to: PeerAddr, src: &[u8], at: RemoteAddr) -> Result<(), PostError> {
        let post = self.inner.put_inject(to, src, at);
        self.told(post)
    }

    unsafe fn put(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        // SAFETY: the caller's promise.
        let post = unsafe { self.inner.put(to, src, len, at, tag) };
        self.told(post)
    }

    unsafe fn get(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        // SAFETY: the caller's promise.
        let post = unsafe { self.inner.get(to, dst, len, at, tag) };
        self.told(post)
    }

    unsafe fn put_vector(
        &mut self,
        to: PeerAddr,
        from: &[LocalPiece],
        into: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        // SAFETY: the caller's promise.
        let post = unsafe { self.inner.put_vector(to, from, into, tag) };
        self.told(post)
    }

    unsafe fn get_vector(
        &mut self,
        to: PeerAddr,
        into: &[LocalPiece],
        from: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        // SAFETY: the caller's promise.
        let post = unsafe { self.inner.get_vector(to, into, from, tag) };
        self.told(post)
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
        // SAFETY: the caller's promise.
        let post = unsafe { self.inner.atomic(to, operand, count, at, dtype, op, tag) };
        self.told(post)
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
        // SAFETY: the caller's promise.
        let post = unsafe { self.inner.fetch_atomic(to, operand, result, count, at, dtype, op, tag) };
        self.told(post)
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
        // SAFETY: the caller's promise.
        let post = unsafe { self.inner.compare_atomic(to, operand, compare, result, at, dtype, tag) };
        self.told(post)
    }

    unsafe fn assist(
        &mut self,
        to: PeerAddr,
        atomic: Atomic,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    ) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.inner.assist(to, atomic, at, dtype, op) }
    }

    fn send(
        &mut self,
        to: PeerAddr,
        header: &[u8],
        payload: &[u8],
        class: SendClass,
    ) -> Result<(), PostError> {
        let post = self.inner.send(to, header, payload, class);
        self.told(post)
    }

    fn flush(&mut self, to: PeerAddr, tag: Tag) -> Post {
        let post = self.inner.flush(to, tag);
        self.told(post)
    }

    fn completes_at_once(&self, peer: PeerAddr) -> bool {
        self.inner.completes_at_once(peer)
    }

    fn may_complete_at_once(&self) -> bool {
        self.inner.may_complete_at_once()
    }

    unsafe fn put_now(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.inner.put_now(to, src, len, at) }
    }

    unsafe fn get_now(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.inner.get_now(to, dst, len, at) }
    }

    fn tell(&mut self, to: PeerAddr, at: RemoteAddr, word: u64) -> Result<bool, PostError> {
        self.inner.tell(to, at, word)
    }

    fn may_tell(&self) -> bool {
        self.inner.may_tell()
    }

    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        self.inner.poll(out)
    }

    fn release(&mut self, packet: ReceivedPacket) {
        self.inner.release(packet);
        self.network.change();
    }

    fn has_news(&self) -> bool {
        self.network.fabric.is_ready(self.rank)
    }

    fn wait_fd(&self) -> Option<i32> {
        Some(self.rank as i32)
    }

    fn arm_wait(&mut self) -> bool {
        let is_ready = self.network.fabric.is_ready(self.rank);
        self.network.fabric.clear_retry(self.rank);
        !is_ready
    }
}
