//! A fabric that costs nothing: two endpoints in one process that complete everything at once.
//!
//! What an engine costs above it is what the engine costs. Its data calls are functions of their own
//! (`null_*`, never inlined, with plain names), so that a profiler can leave them out of a count.
//!
//! Packets are delivered. Native puts, gets and atomics complete at the next poll but move no byte. Of a pair that is
//! [near](near_pair) they are complete when the call returns, as over shared memory; words of 8 bytes are set and changed, as
//! locks are made of them and neighbours tell by them.
#![allow(clippy::too_many_arguments)] // the provider's interface

mod passage;

use std::cell::UnsafeCell;
use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, Rank, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Accepted, Atomic, Completion, CompletionBatch, CompletionScope, Endpoint, Limits, MemoryRegion,
    NativeOps, Order, Post, PostError, ProviderError, ReceivedPacket, RemoteAddr, RemotePiece, SendClass,
    Swapped, WordSwap,
};

pub use passage::NullPassage;

/// Ranks of the job.
const RANKS: usize = 2;
/// Largest packet, bytes.
const PACKET_BYTES: usize = 4096;
/// Packets that an endpoint can hold.
const BUFFERS: usize = 16;
/// Operations whose completion has not been polled.
const OUTSTANDING: usize = 64;

/// Both endpoints of a new fabric; the first is rank 0's. `native` says what goes without packets.
pub fn pair(native: NativeOps) -> [NullEndpoint; RANKS] {
    endpoints(native, false)
}

/// The same of a fabric where all is complete at once.
pub fn near_pair() -> [NullEndpoint; RANKS] {
    endpoints(all_native(), true)
}

fn endpoints(native: NativeOps, is_near: bool) -> [NullEndpoint; RANKS] {
    let inboxes = Arc::new([Inbox::new(), Inbox::new()]);
    [0, 1].map(|rank| NullEndpoint {
        rank,
        inboxes: Arc::clone(&inboxes),
        completed: VecDeque::with_capacity(OUTSTANDING),
        limits: Limits {
            inject_bytes_max: 0,
            send_bytes_max: PACKET_BYTES,
            message_bytes_max: 1 << 30,
            outstanding_max: OUTSTANDING,
            receive_buffers: BUFFERS,
            order: Order { put_before_send: true, put_before_get: true },
            put_completes: CompletionScope::Remote,
            needs_target_progress: false,
            vector_local_max: 1,
            vector_remote_max: 1,
        },
        native,
        is_near,
    })
}

/// Every operation that the null fabric can pretend to execute.
pub fn all_native() -> NativeOps {
    NativeOps {
        put: true,
        get: true,
        atomic: [u16::MAX; Dtype::COUNT],
        fetch_atomic: [u16::MAX; Dtype::COUNT],
        compare_atomic: u32::MAX,
    }
}

/// Packets on their way to one rank.
#[derive(Debug)]
struct Inbox {
    buffers: Box<[Buffer]>,
    queues: Mutex<Queues>,
    /// Where the rank's regions begin, by their keys.
    regions: Mutex<BTreeMap<RemoteKey, (usize, usize)>>,
}

/// Which buffers hold arrived packets, oldest first, and which are free.
#[derive(Debug)]
struct Queues {
    arrived: VecDeque<(u32, usize)>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Buffer(UnsafeCell<[u8; PACKET_BYTES]>);

// SAFETY: a buffer is written by the sender that took it off the free list, then read by whoever took
// it off the arrived list; both lists are behind one mutex, so there is one holder at a time.
unsafe impl Sync for Buffer {}

impl Inbox {
    fn new() -> Self {
        Self {
            buffers: (0..BUFFERS).map(|_| Buffer(UnsafeCell::new([0; PACKET_BYTES]))).collect(),
            queues: Mutex::new(Queues {
                arrived: VecDeque::with_capacity(BUFFERS),
                free: (0..BUFFERS as u32).collect(),
            }),
            regions: Mutex::new(BTreeMap::new()),
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, header: &[u8], payload: &[u8]) -> Result<(), PostError> {
        let mut queues = self.queues();
        let index = queues.free.pop().ok_or(PostError::Again)?;
        // SAFETY: taken off the free list, the buffer is this call's alone until it is in the other list.
        let bytes = unsafe { &mut *self.buffers[index as usize].0.get() };
        bytes[..header.len()].copy_from_slice(header);
        bytes[header.len()..header.len() + payload.len()].copy_from_slice(payload);
        queues.arrived.push_back((index, header.len() + payload.len()));
        Ok(())
    }
}

/// What is done to a word of 8 bytes.
#[derive(Clone, Copy, Debug)]
enum Change {
    Add(*const u8),
    Swap { compare: *const u8, operand: *const u8 },
}

impl Change {
    /// The word before.
    fn apply(self, word: &AtomicU64) -> u64 {
        // SAFETY: the endpoint's caller gives places of one element.
        let read = |place: *const u8| unsafe { place.cast::<u64>().read_unaligned() };
        match self {
            Self::Add(operand) => word.fetch_add(read(operand), Ordering::SeqCst),
            Self::Swap { compare, operand } => {
                let (before, after) = (read(compare), read(operand));
                let swapped = word.compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst);
                swapped.unwrap_or_else(|other| other)
            }
        }
    }
}

/// One rank's end of the null fabric.
#[derive(Debug)]
pub struct NullEndpoint {
    rank: usize,
    inboxes: Arc<[Inbox; RANKS]>,
    completed: VecDeque<Tag>,
    limits: Limits,
    native: NativeOps,
    is_near: bool,
}

impl NullEndpoint {
    fn complete(&mut self, tag: Tag) -> Post {
        if self.is_near {
            return Ok(Accepted::Complete);
        }
        if self.completed.len() == OUTSTANDING {
            return Err(PostError::Again);
        }
        self.completed.push_back(tag);
        Ok(Accepted::Tracked)
    }

    /// The word of a peer that is near.
    fn word(&self, of: PeerAddr, at: RemoteAddr) -> Option<&AtomicU64> {
        let regions = self.inboxes[of.0 as usize].regions.lock().unwrap_or_else(PoisonError::into_inner);
        let &(base, len) = regions.get(&at.key)?;
        let offset = at.addr as usize;
        if offset % size_of::<u64>() != 0 || offset.checked_add(size_of::<u64>())? > len {
            return None;
        }
        let place = std::ptr::with_exposed_provenance_mut(base + offset);
        // SAFETY: aligned and inside of a region that is registered, whose words of this kind are all accessed by atomics.
        Some(unsafe { AtomicU64::from_ptr(place) })
    }
}

/// What the null fabric does for a put, get or atomic: it takes every argument that a real one needs, so
/// that the engine has to have it at hand, and completes the operation.
#[inline(never)]
#[no_mangle]
fn null_operation(
    endpoint: &mut NullEndpoint,
    to: PeerAddr,
    bytes: *const u8,
    len: usize,
    at: RemoteAddr,
    tag: Tag,
) -> Post {
    black_box((to, bytes, len, at));
    endpoint.complete(tag)
}

/// The same for an atomic on a word that is near, which is done.
#[inline(never)]
#[no_mangle]
fn null_atomic(
    endpoint: &mut NullEndpoint,
    to: PeerAddr,
    change: Change,
    result: *mut u8,
    at: RemoteAddr,
    tag: Tag,
) -> Post {
    if let Some(word) = endpoint.word(to, at) {
        let old = change.apply(word);
        // SAFETY: the endpoint's caller gives the place of one element.
        unsafe { result.cast::<u64>().write_unaligned(old) };
    }
    endpoint.complete(tag)
}

#[inline(never)]
#[no_mangle]
fn null_flush(endpoint: &mut NullEndpoint, to: PeerAddr, tag: Tag) -> Post {
    black_box(to);
    endpoint.complete(tag)
}

/// Sets a word of the other rank's, which is in this process, too.
#[inline(never)]
#[no_mangle]
fn null_tell(endpoint: &mut NullEndpoint, to: PeerAddr, at: RemoteAddr, word: u64) -> bool {
    let place = endpoint.word(to, at);
    if let Some(place) = place {
        place.store(word, Ordering::Release);
    }
    place.is_some()
}

/// A put or get that is over at once.
#[inline(never)]
#[no_mangle]
fn null_now(endpoint: &mut NullEndpoint, to: PeerAddr, bytes: *const u8, len: usize, at: RemoteAddr) -> bool {
    black_box((to, bytes, len, at));
    endpoint.is_near
}

/// Swaps words of the other rank's.
#[inline(never)]
#[no_mangle]
fn null_swap(endpoint: &mut NullEndpoint, to: PeerAddr, swaps: &[WordSwap]) -> Option<Swapped> {
    if !endpoint.is_near {
        return None;
    }
    let mut swapped = Swapped { count: 0, other: 0 };
    for WordSwap { at, from, into } in swaps {
        let place = endpoint.word(to, *at)?;
        if let Err(other) = place.compare_exchange(*from, *into, Ordering::SeqCst, Ordering::SeqCst) {
            swapped.other = other;
            break;
        }
        swapped.count += 1;
    }
    Some(swapped)
}

#[inline(never)]
#[no_mangle]
fn null_send(
    endpoint: &mut NullEndpoint,
    to: PeerAddr,
    header: &[u8],
    payload: &[u8],
) -> Result<(), PostError> {
    endpoint.inboxes[to.0 as usize].deliver(header, payload)
}

#[inline(never)]
#[no_mangle]
fn null_poll(endpoint: &mut NullEndpoint, out: &mut CompletionBatch) -> usize {
    let before = out.room();
    while out.room() > 0 {
        let Some(tag) = endpoint.completed.pop_front() else { break };
        let _ = out.push(Completion::Done(tag));
    }
    let inbox = &endpoint.inboxes[endpoint.rank];
    let mut queues = inbox.queues();
    while out.room() > 0 {
        let Some((index, len)) = queues.arrived.pop_front() else { break };
        let data = NonNull::from(&inbox.buffers[index as usize]).cast();
        let _ = out.push(Completion::Packet(ReceivedPacket { data, len, buffer: index }));
    }
    before - out.room()
}

#[inline(never)]
#[no_mangle]
fn null_release(endpoint: &mut NullEndpoint, packet: ReceivedPacket) {
    endpoint.inboxes[endpoint.rank].queues().free.push(packet.buffer);
}

// SAFETY: a tag comes back once, from `completed`; no memory of an operation is ever touched; packets
// are copied by `send`, arrive in order, and a buffer is lent until `release` puts it on the free list.
unsafe impl Endpoint for NullEndpoint {
    type Region = NullRegion;
    type Passage = NullPassage;

    #[inline]
    fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline]
    fn native(&self) -> &NativeOps {
        &self.native
    }

    fn address(&self) -> AddressBytes {
        address_of(self.rank as u32)
    }

    fn connect(&mut self, address: &AddressBytes) -> Result<PeerAddr, ProviderError> {
        match address.as_slice() {
            &[rank] if usize::from(rank) < RANKS => Ok(PeerAddr(rank.into())),
            other => Err(ProviderError { message: format!("no endpoint has the address {other:?}") }),
        }
    }

    fn disconnect(&mut self, _peer: PeerAddr) {}

    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<NullRegion, ProviderError> {
        let (rank, inboxes) = (self.rank, Arc::clone(&self.inboxes));
        let region = NullRegion { key, rank, inboxes };
        region.regions().insert(key, (base.as_ptr().expose_provenance(), len));
        Ok(region)
    }

    fn put_inject(&mut self, _to: PeerAddr, _src: &[u8], _at: RemoteAddr) -> Result<(), PostError> {
        Ok(())
    }

    #[inline]
    unsafe fn put(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        null_operation(self, to, src, len, at, tag)
    }

    #[inline]
    unsafe fn get(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        null_operation(self, to, dst, len, at, tag)
    }

    #[inline]
    unsafe fn atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        count: usize,
        at: RemoteAddr,
        _dtype: Dtype,
        _op: ReduceOp,
        tag: Tag,
    ) -> Post {
        null_operation(self, to, operand, count, at, tag)
    }

    #[inline]
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
        if self.is_near && (dtype, op) == (Dtype::U64, ReduceOp::Sum) {
            return null_atomic(self, to, Change::Add(operand), result, at, tag);
        }
        null_operation(self, to, operand, count, at, tag)
    }

    #[inline]
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
        if self.is_near && dtype == Dtype::U64 {
            return null_atomic(self, to, Change::Swap { compare, operand }, result, at, tag);
        }
        null_operation(self, to, operand, 1, at, tag)
    }

    #[inline]
    fn send(
        &mut self,
        to: PeerAddr,
        header: &[u8],
        payload: &[u8],
        _class: SendClass,
    ) -> Result<(), PostError> {
        null_send(self, to, header, payload)
    }

    #[inline]
    fn flush(&mut self, to: PeerAddr, tag: Tag) -> Post {
        null_flush(self, to, tag)
    }

    #[inline]
    fn completes_at_once(&self, _peer: PeerAddr) -> bool {
        self.is_near
    }

    fn may_complete_at_once(&self) -> bool {
        self.is_near
    }

    #[inline]
    fn tell(&mut self, to: PeerAddr, at: RemoteAddr, word: u64) -> Result<bool, PostError> {
        Ok(null_tell(self, to, at, word))
    }

    #[inline]
    unsafe fn put_now(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr) -> bool {
        null_now(self, to, src, len, at)
    }

    #[inline]
    unsafe fn get_now(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr) -> bool {
        null_now(self, to, dst, len, at)
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
        if !self.is_near || dtype != Dtype::U64 || count != 1 {
            return false;
        }
        let (change, result) = match atomic {
            Atomic::Fetch { operand, result } if op == ReduceOp::Sum => (Change::Add(operand), result),
            Atomic::Swap { operand, compare, result } => (Change::Swap { compare, operand }, result),
            Atomic::Reduce { .. } | Atomic::Fetch { .. } => return false,
        };
        null_atomic(self, to, change, result, at, Tag(0)).is_ok()
    }

    #[inline]
    fn swap_now<const N: usize>(&mut self, to: PeerAddr, swaps: [WordSwap; N]) -> Option<Swapped> {
        null_swap(self, to, &swaps)
    }

    fn passage(
        &mut self,
        to: PeerAddr,
        words: Option<RemoteAddr>,
        memory: RemotePiece,
    ) -> Option<NullPassage> {
        Some(NullPassage::new(to, words, memory.at))
    }

    fn may_tell(&self) -> bool {
        self.is_near
    }

    #[inline]
    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        null_poll(self, out)
    }

    #[inline]
    fn release(&mut self, packet: ReceivedPacket) {
        null_release(self, packet);
    }
}

/// A region, of which nobody accesses more than words.
#[derive(Debug)]
pub struct NullRegion {
    key: RemoteKey,
    rank: usize,
    inboxes: Arc<[Inbox; RANKS]>,
}

impl NullRegion {
    fn regions(&self) -> MutexGuard<'_, BTreeMap<RemoteKey, (usize, usize)>> {
        self.inboxes[self.rank].regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NullRegion {
    fn drop(&mut self) {
        self.regions().remove(&self.key);
    }
}

impl MemoryRegion for NullRegion {
    fn remote_key(&self) -> RemoteKey {
        self.key
    }

    fn remote_base(&self) -> u64 {
        0
    }
}

/// The bootstrap of the null fabric's two ranks, whose addresses everybody knows.
#[derive(Debug)]
pub struct NullBootstrap(pub Rank);

/// What the library's runtime asks of its launcher, beside what the engine does.
impl NullBootstrap {
    /// All ranks are in this process.
    pub fn local_size(&self) -> u32 {
        RANKS as u32
    }

    /// Nobody sends anything.
    pub fn wait_fd(&self) -> Option<i32> {
        None
    }

    /// See [`NullBootstrap::wait_fd`].
    pub fn receive(&mut self) {}

    /// Nobody waits for this rank's end.
    ///
    /// # Errors
    /// Never.
    pub fn finalize(&mut self) -> Result<(), BootstrapError> {
        Ok(())
    }

    /// Nobody has split it off.
    pub fn is_part(&self) -> bool {
        false
    }

    /// See [`NullBootstrap::finalize`].
    ///
    /// # Errors
    /// Never.
    pub fn poll_all_finalized(&mut self) -> Result<bool, BootstrapError> {
        Ok(true)
    }
}

impl Bootstrap for NullBootstrap {
    fn rank(&self) -> Rank {
        self.0
    }

    fn size(&self) -> u32 {
        RANKS as u32
    }

    fn publish(&mut self, _address: &AddressBytes) -> Result<(), BootstrapError> {
        Ok(())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        Ok(Lookup::Found(address_of(rank.0)))
    }
}

fn address_of(rank: u32) -> AddressBytes {
    AddressBytes::new(&[rank as u8]).unwrap_or_else(|| unreachable!("one byte is short enough"))
}
