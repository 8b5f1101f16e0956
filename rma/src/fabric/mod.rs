//! The fabric that a job communicates over: one of three providers, or shared memory and a network together, chosen
//! when the job is joined.
//!
//! The engine is compiled once, over [`FabricEndpoint`]. Which provider it drives is known when it is opened and never
//! changes, so that a `match` at each call is a branch that the processor predicts, and no table of functions is
//! looked up.

mod both;
mod choice;
mod description;
mod options;

use core::ptr::NonNull;
use std::sync::Arc;

use rma_composite::{CompositeEndpoint, CompositeRegion};
use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::mem::Changes;
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Allocation, Atomic, CompletionBatch, Endpoint, FabricCode, Limits, LocalPiece, MemoryRegion, NativeOps,
    Post, PostError, ProviderError, ReceivedPacket, RemoteAddr, RemotePiece, SendClass, Swapped, WordSwap,
};
use rma_ofi::{OfiEndpoint, OfiRegion};
use rma_shm::{ShmEndpoint, ShmPassage, ShmRegion};
#[cfg(feature = "verbs")]
use rma_verbs::{VerbsEndpoint, VerbsRegion};

pub(crate) use choice::{open, Opened, Place};
pub(crate) use description::no_lock_atomics;
pub use description::Description;
pub use options::{FabricOptions, VerbsOptions};

/// The endpoint of a job, on the fabric that was chosen.
#[derive(Debug)]
pub struct FabricEndpoint(Fabric);

// There is one in a process, and a pointer to it would cost a load in each call.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Fabric {
    Ofi(OfiEndpoint),
    #[cfg(feature = "verbs")]
    Verbs(VerbsEndpoint),
    Shm(ShmEndpoint),
    ShmOfi(CompositeEndpoint<OfiEndpoint>),
    #[cfg(feature = "verbs")]
    ShmVerbs(CompositeEndpoint<VerbsEndpoint>),
}

/// A registered region, of the fabric that was chosen.
#[derive(Debug)]
pub struct FabricRegion(Region);

#[derive(Debug)]
enum Region {
    Ofi(OfiRegion),
    #[cfg(feature = "verbs")]
    Verbs(VerbsRegion),
    Shm(ShmRegion),
    ShmOfi(CompositeRegion<OfiRegion>),
    #[cfg(feature = "verbs")]
    ShmVerbs(CompositeRegion<VerbsRegion>),
}

/// The same expression for whichever variant there is.
macro_rules! each {
    ($kind:ident, $value:expr, $inner:ident => $body:expr) => {
        match $value {
            $kind::Ofi($inner) => $body,
            #[cfg(feature = "verbs")]
            $kind::Verbs($inner) => $body,
            $kind::Shm($inner) => $body,
            $kind::ShmOfi($inner) => $body,
            #[cfg(feature = "verbs")]
            $kind::ShmVerbs($inner) => $body,
        }
    };
}

/// The same for a region of whichever endpoint there is.
macro_rules! registered {
    ($value:expr, $inner:ident => $body:expr) => {
        match $value {
            Fabric::Ofi($inner) => $body.map(Region::Ofi),
            #[cfg(feature = "verbs")]
            Fabric::Verbs($inner) => $body.map(Region::Verbs),
            Fabric::Shm($inner) => $body.map(Region::Shm),
            Fabric::ShmOfi($inner) => $body.map(Region::ShmOfi),
            #[cfg(feature = "verbs")]
            Fabric::ShmVerbs($inner) => $body.map(Region::ShmVerbs),
        }
        .map(FabricRegion)
    };
}

impl FabricEndpoint {
    /// Why there was no memory when shared memory was last asked for some.
    pub(crate) fn refusal(&self) -> Option<&str> {
        match &self.0 {
            Fabric::Shm(endpoint) => endpoint.refusal(),
            Fabric::ShmOfi(both) => both.shm().ok()?.refusal(),
            #[cfg(feature = "verbs")]
            Fabric::ShmVerbs(both) => both.shm().ok()?.refusal(),
            Fabric::Ofi(_) => None,
            #[cfg(feature = "verbs")]
            Fabric::Verbs(_) => None,
        }
    }
}

impl MemoryRegion for FabricRegion {
    fn remote_key(&self) -> RemoteKey {
        each!(Region, &self.0, region => region.remote_key())
    }

    fn remote_base(&self) -> u64 {
        each!(Region, &self.0, region => region.remote_base())
    }

    fn changes(&self) -> Option<Arc<dyn Changes>> {
        each!(Region, &self.0, region => region.changes())
    }
}

// SAFETY: every call goes to an endpoint that keeps the contract, and always to the same one. What is called for each
// operation is inlined always: what the compiler leaves a call costs 20 instructions more.
unsafe impl Endpoint for FabricEndpoint {
    type Region = FabricRegion;
    type Passage = ShmPassage;

    #[inline]
    fn limits(&self) -> &Limits {
        each!(Fabric, &self.0, endpoint => endpoint.limits())
    }

    #[inline]
    fn native(&self) -> &NativeOps {
        each!(Fabric, &self.0, endpoint => endpoint.native())
    }

    fn native_allocated(&self) -> &NativeOps {
        each!(Fabric, &self.0, endpoint => endpoint.native_allocated())
    }

    fn native_near(&self) -> &NativeOps {
        each!(Fabric, &self.0, endpoint => endpoint.native_near())
    }

    fn allocate(&mut self, len: usize, alignment: usize) -> Allocation {
        each!(Fabric, &mut self.0, endpoint => endpoint.allocate(len, alignment))
    }

    fn address(&self) -> AddressBytes {
        each!(Fabric, &self.0, endpoint => endpoint.address())
    }

    fn connect(&mut self, address: &AddressBytes) -> Result<PeerAddr, ProviderError> {
        each!(Fabric, &mut self.0, endpoint => endpoint.connect(address))
    }

    fn disconnect(&mut self, peer: PeerAddr) {
        each!(Fabric, &mut self.0, endpoint => endpoint.disconnect(peer));
    }

    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<FabricRegion, ProviderError> {
        // SAFETY: the caller's promise.
        registered!(&mut self.0, endpoint => unsafe { endpoint.register(base, len, key) })
    }

    unsafe fn register_near(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<FabricRegion, ProviderError> {
        // SAFETY: the caller's promise.
        registered!(&mut self.0, endpoint => unsafe { endpoint.register_near(base, len, key) })
    }

    #[inline(always)]
    fn put_inject(&mut self, to: PeerAddr, src: &[u8], at: RemoteAddr) -> Result<(), PostError> {
        each!(Fabric, &mut self.0, endpoint => endpoint.put_inject(to, src, at))
    }

    #[inline(always)]
    unsafe fn put(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        // SAFETY: the caller's promise.
        each!(Fabric, &mut self.0, endpoint => unsafe { endpoint.put(to, src, len, at, tag) })
    }

    #[inline(always)]
    unsafe fn get(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        // SAFETY: the caller's promise.
        each!(Fabric, &mut self.0, endpoint => unsafe { endpoint.get(to, dst, len, at, tag) })
    }

    fn data_bytes(&self, peer: PeerAddr) -> usize {
        each!(Fabric, &self.0, endpoint => endpoint.data_bytes(peer))
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
        // SAFETY: the caller's promise.
        each!(Fabric, &mut self.0, endpoint => unsafe { endpoint.put_with_data(to, src, len, at, tag, data) })
    }

    #[inline(always)]
    unsafe fn put_vector(
        &mut self,
        to: PeerAddr,
        from: &[LocalPiece],
        into: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        // SAFETY: the caller's promise.
        each!(Fabric, &mut self.0, endpoint => unsafe { endpoint.put_vector(to, from, into, tag) })
    }

    #[inline(always)]
    unsafe fn get_vector(
        &mut self,
        to: PeerAddr,
        into: &[LocalPiece],
        from: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        // SAFETY: the caller's promise.
        each!(Fabric, &mut self.0, endpoint => unsafe { endpoint.get_vector(to, into, from, tag) })
    }

    #[inline(always)]
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
        each!(Fabric, &mut self.0, endpoint => {
            // SAFETY: the caller's promise.
            unsafe { endpoint.atomic(to, operand, count, at, dtype, op, tag) }
        })
    }

    #[inline(always)]
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
        each!(Fabric, &mut self.0, endpoint => {
            // SAFETY: the caller's promise.
            unsafe { endpoint.fetch_atomic(to, operand, result, count, at, dtype, op, tag) }
        })
    }

    #[inline(always)]
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
        each!(Fabric, &mut self.0, endpoint => {
            // SAFETY: the caller's promise.
            unsafe { endpoint.compare_atomic(to, operand, compare, result, at, dtype, tag) }
        })
    }

    #[inline]
    unsafe fn assist(
        &mut self,
        to: PeerAddr,
        atomic: Atomic,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    ) -> bool {
        each!(Fabric, &mut self.0, endpoint => {
            // SAFETY: the caller's promise.
            unsafe { endpoint.assist(to, atomic, at, dtype, op) }
        })
    }

    #[inline(always)]
    fn send(
        &mut self,
        to: PeerAddr,
        header: &[u8],
        payload: &[u8],
        class: SendClass,
    ) -> Result<(), PostError> {
        each!(Fabric, &mut self.0, endpoint => endpoint.send(to, header, payload, class))
    }

    #[inline(always)]
    fn flush(&mut self, to: PeerAddr, tag: Tag) -> Post {
        each!(Fabric, &mut self.0, endpoint => endpoint.flush(to, tag))
    }

    #[inline(always)]
    fn puts_cost_packets(&self) -> bool {
        each!(Fabric, &self.0, endpoint => endpoint.puts_cost_packets())
    }

    fn packet_put_bytes_max(&self, peer: PeerAddr) -> usize {
        each!(Fabric, &self.0, endpoint => endpoint.packet_put_bytes_max(peer))
    }

    #[inline(always)]
    fn completes_at_once(&self, peer: PeerAddr) -> bool {
        each!(Fabric, &self.0, endpoint => endpoint.completes_at_once(peer))
    }

    #[inline(always)]
    fn has_news(&self) -> bool {
        each!(Fabric, &self.0, endpoint => endpoint.has_news())
    }

    fn may_complete_at_once(&self) -> bool {
        each!(Fabric, &self.0, endpoint => endpoint.may_complete_at_once())
    }

    #[inline(always)]
    fn tell(&mut self, to: PeerAddr, at: RemoteAddr, word: u64) -> Result<bool, PostError> {
        each!(Fabric, &mut self.0, endpoint => endpoint.tell(to, at, word))
    }

    #[inline(always)]
    unsafe fn put_now(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr) -> bool {
        // SAFETY: the caller's promise.
        each!(Fabric, &mut self.0, endpoint => unsafe { endpoint.put_now(to, src, len, at) })
    }

    #[inline(always)]
    unsafe fn get_now(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr) -> bool {
        // SAFETY: the caller's promise.
        each!(Fabric, &mut self.0, endpoint => unsafe { endpoint.get_now(to, dst, len, at) })
    }

    #[inline(always)]
    unsafe fn atomic_now(
        &mut self,
        to: PeerAddr,
        (atomic, count): (Atomic, usize),
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    ) -> bool {
        // SAFETY: the caller's promise.
        each!(Fabric, &mut self.0, endpoint => unsafe { endpoint.atomic_now(to, (atomic, count), at, dtype, op) })
    }

    #[inline(always)]
    fn swap_now<const N: usize>(&mut self, to: PeerAddr, swaps: [WordSwap; N]) -> Option<Swapped> {
        each!(Fabric, &mut self.0, endpoint => endpoint.swap_now(to, swaps))
    }

    #[inline(always)]
    unsafe fn swap_and_put_now<const N: usize>(
        &mut self,
        to: PeerAddr,
        swaps: [WordSwap; N],
        from: (*const u8, usize),
        at: RemoteAddr,
    ) -> Option<(Swapped, bool)> {
        // SAFETY: the caller's promise.
        each!(Fabric, &mut self.0, endpoint => unsafe { endpoint.swap_and_put_now(to, swaps, from, at) })
    }

    fn passage(
        &mut self,
        to: PeerAddr,
        words: Option<RemoteAddr>,
        memory: RemotePiece,
    ) -> Option<ShmPassage> {
        match &mut self.0 {
            Fabric::Shm(endpoint) => endpoint.passage(to, words, memory),
            Fabric::ShmOfi(both) => both.passage(to, words, memory),
            #[cfg(feature = "verbs")]
            Fabric::ShmVerbs(both) => both.passage(to, words, memory),
            Fabric::Ofi(_) => None,
            #[cfg(feature = "verbs")]
            Fabric::Verbs(_) => None,
        }
    }

    fn may_tell(&self) -> bool {
        each!(Fabric, &self.0, endpoint => endpoint.may_tell())
    }

    fn reaches(&mut self, to: PeerAddr, at: RemoteAddr) -> bool {
        each!(Fabric, &mut self.0, endpoint => endpoint.reaches(to, at))
    }

    #[inline(always)]
    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        each!(Fabric, &mut self.0, endpoint => endpoint.poll(out))
    }

    #[inline(always)]
    fn release(&mut self, packet: ReceivedPacket) {
        each!(Fabric, &mut self.0, endpoint => endpoint.release(packet));
    }

    fn abandon(&mut self, peer: PeerAddr, code: FabricCode) {
        each!(Fabric, &mut self.0, endpoint => endpoint.abandon(peer, code));
    }

    fn wait_fd(&self) -> Option<i32> {
        each!(Fabric, &self.0, endpoint => endpoint.wait_fd())
    }

    fn wait_fd_settles(&self) -> bool {
        each!(Fabric, &self.0, endpoint => endpoint.wait_fd_settles())
    }

    fn arm_wait(&mut self) -> bool {
        each!(Fabric, &mut self.0, endpoint => endpoint.arm_wait())
    }
}
