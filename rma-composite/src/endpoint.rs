//! One endpoint made of two.

use core::ptr::NonNull;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Allocation, Atomic, CompletionBatch, Endpoint, FabricCode, Limits, LocalPiece, NativeOps, Post,
    PostError, ProviderError, ReceivedPacket, RemoteAddr, RemotePiece, SendClass, Swapped, WordSwap,
};
use rma_shm::{Reach, ShmEndpoint, ShmPassage};
use rustix::event::epoll;

use crate::address::Addresses;
use crate::clock;
use crate::limits;
use crate::region::CompositeRegion;

/// Shared memory for peers of the same host, and the network `N` for all others.
#[derive(Debug)]
pub struct CompositeEndpoint<N: Endpoint> {
    network: N,
    /// Or why memory is not shared.
    shm: Result<ShmEndpoint, ProviderError>,
    limits: Limits,
    native: NativeOps,
    host: u64,
    address: AddressBytes,
    /// Of each peer of this host that was ever connected, whether shared memory reached it. That stays as it was: packets
    /// that take another way than those before could overtake them.
    neighbours: HashMap<Box<[u8]>, bool>,
    /// When the network was polled.
    polled: u64,
    /// What a thread that wants to hear of both sleeps on.
    events: Option<OwnedFd>,
}

impl<N: Endpoint> CompositeEndpoint<N> {
    /// Joins two endpoints. `host` is a number that ranks of one host have in common: who has another is reached over the
    /// network, wherever it is; and so is who has the same on another machine. `room`: bytes that the addresses of both
    /// may have together.
    ///
    /// Where `shm` is an error, or reaches no memory but its own, or the addresses are too long, the network reaches
    /// all. The native operations are the same then, as all ranks have to agree on them; sizes are the network's. All
    /// ranks' packets have the same size, over the network and in shared memory.
    ///
    /// # Safety
    /// `network` calls no peer by a number of 2^63 or more, and no packet's buffer by one of 2^31 or more.
    pub unsafe fn new(network: N, shm: Result<ShmEndpoint, ProviderError>, host: u64, room: usize) -> Self {
        let shm = shm.and_then(|shm| match shm.reach() {
            Reach::Attached | Reach::Mapped => Ok(shm),
            Reach::Allocated | Reach::Packets => Err(refused(
                "processes of one user do not get at each other's memory (process_vm_readv): the kernel forbids it, as in \
                 some containers, or RMA_SHM_ATTACH=0 does",
            )),
        });
        let shm = shm.and_then(|shm| {
            let both = Addresses { host, network: network.address(), shm: shm.address() };
            match both.encode(room) {
                Some(address) => Ok((shm, address)),
                None => Err(refused(&format!(
                    "its address and the network's are longer than {room} bytes together"
                ))),
            }
        });
        let (shm, address) = match shm {
            Ok((shm, address)) => (Ok(shm), address),
            Err(error) => (Err(error), network.address()),
        };
        let (limits, events) = match &shm {
            Ok(shm) => (limits::limits(network.limits(), shm.limits()), descriptors_of_both(&network, shm)),
            Err(_) => (*network.limits(), None),
        };
        let native = limits::native(network.native());
        let neighbours = HashMap::new();
        Self { network, shm, limits, native, host, address, neighbours, polled: clock::now(), events }
    }

    /// The endpoint of the network.
    pub fn network(&self) -> &N {
        &self.network
    }

    /// The endpoint in shared memory.
    ///
    /// # Errors
    /// Why there is none.
    pub fn shm(&self) -> Result<&ShmEndpoint, &ProviderError> {
        self.shm.as_ref()
    }

    /// Whether a peer of such an endpoint is reached through shared memory.
    #[inline]
    pub fn is_near(peer: PeerAddr) -> bool {
        ShmEndpoint::is_peer(peer)
    }

    /// Peers that are near are only where memory is shared; a call for any other is the network's.
    ///
    /// Implements: seed: SHM operations.
    #[inline]
    fn near(&mut self, peer: PeerAddr) -> Option<&mut ShmEndpoint> {
        match &mut self.shm {
            Ok(shm) if ShmEndpoint::is_peer(peer) => Some(shm),
            _ => None,
        }
    }

    /// What one of both takes, and the other does not, is not offered.
    #[inline]
    fn check_pieces(&self, local: &[LocalPiece], remote: &[RemotePiece]) -> Result<(), PostError> {
        if local.len() > self.limits.vector_local_max || remote.len() > self.limits.vector_remote_max {
            return Err(PostError::Failed(TOO_MANY_PIECES));
        }
        Ok(())
    }

    /// A peer of this host, if shared memory reaches it; `None`: the network does.
    fn connect_near(&mut self, addresses: &Addresses) -> Option<Result<PeerAddr, ProviderError>> {
        let shm = self.shm.as_mut().ok()?;
        if addresses.host != self.host || !shm.is_of_this_host(&addresses.shm) {
            return None;
        }
        let known = self.neighbours.get(addresses.shm.as_slice()).copied();
        if known == Some(false) {
            return None;
        }
        let reached = shm.connect(&addresses.shm);
        // It is over with it, whatever the network may find out later.
        let is_final = known == Some(true) || reached.is_ok() || shm.has_ended(&addresses.shm);
        if known.is_none() {
            self.neighbours.insert(addresses.shm.as_slice().into(), is_final);
        }
        is_final.then_some(reached)
    }
}

/// Something that becomes readable when one of both does; `None` where the network has nothing to sleep on, or the kernel
/// refuses, as it does when descriptors watch each other in too many levels.
fn descriptors_of_both(network: &impl Endpoint, shm: &ShmEndpoint) -> Option<OwnedFd> {
    let both = [network.wait_fd()?, shm.wait_fd()?];
    let events = epoll::create(epoll::CreateFlags::CLOEXEC).ok()?;
    for descriptor in both {
        // SAFETY: open as long as the endpoint is that has just named it.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        epoll::add(&events, descriptor, epoll::EventData::new_u64(0), epoll::EventFlags::IN).ok()?;
    }
    Some(events)
}

/// The key in shared memory of what the network knows nothing of: one that no network has. Those of ibverbs, and those that
/// the engine wishes for, have 32 bits; a provider of libfabric's that makes longer ones sets other bits of theirs. Should one
/// be the same all the same, whoever comes second is refused it, or has another.
fn near_key(wish: RemoteKey) -> RemoteKey {
    RemoteKey(wish.0 ^ NEAR_KEYS)
}

/// Of the bits of `near`, the highest is not set: it marks the keys that `rma-shm` chooses, and those of some NICs.
const NEAR_KEYS: u64 = 0x6e65_6172 << 32;

#[cold]
fn refused(message: &str) -> ProviderError {
    ProviderError { message: message.to_owned() }
}

// SAFETY: an operation goes to one of two endpoints that keep the contract, which one follows from the peer's name, so
// that its tag comes back from that one, and all packets to a peer take one way. Packets are told apart by their
// buffers' numbers. What only one of both keeps is not promised (`limits`), and regions are registered with both, or with the
// one that reaches whom they are for.
unsafe impl<N: Endpoint> Endpoint for CompositeEndpoint<N> {
    type Region = CompositeRegion<N::Region>;
    type Passage = ShmPassage;

    #[inline]
    fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline]
    fn native(&self) -> &NativeOps {
        &self.native
    }

    fn native_near(&self) -> &NativeOps {
        match &self.shm {
            Ok(shm) => shm.native_near(),
            Err(_) => &self.native,
        }
    }

    fn allocate(&mut self, len: usize, alignment: usize) -> Allocation {
        match &mut self.shm {
            Ok(shm) => shm.allocate(len, alignment),
            Err(_) => Allocation::Anywhere,
        }
    }

    fn address(&self) -> AddressBytes {
        self.address
    }

    fn connect(&mut self, address: &AddressBytes) -> Result<PeerAddr, ProviderError> {
        // Who has no shared memory publishes what the network alone would.
        let Some(addresses) = Addresses::decode(address) else { return self.network.connect(address) };
        self.connect_near(&addresses).unwrap_or_else(|| self.network.connect(&addresses.network))
    }

    fn disconnect(&mut self, peer: PeerAddr) {
        match self.near(peer) {
            Some(shm) => shm.disconnect(peer),
            None => self.network.disconnect(peer),
        }
    }

    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<Self::Region, ProviderError> {
        // SAFETY: by the caller's promise; so below.
        let network = unsafe { self.network.register(base, len, key) }?;
        let shm = match &mut self.shm {
            // SAFETY: as above.
            Ok(shm) if len > 0 => Some(unsafe { shm.register_like(base, len, &network) }?),
            // Some networks give all that is empty the same key.
            _ => None,
        };
        Ok(CompositeRegion::of_both(shm, network))
    }

    unsafe fn register_near(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<Self::Region, ProviderError> {
        let Ok(shm) = &mut self.shm else {
            // SAFETY: by the caller's promise.
            return unsafe { self.network.register_near(base, len, key) }.map(CompositeRegion::of_network);
        };
        // SAFETY: as above.
        unsafe { shm.register(base, len, near_key(key)) }.map(CompositeRegion::of_shm)
    }

    #[inline]
    fn put_inject(&mut self, to: PeerAddr, src: &[u8], at: RemoteAddr) -> Result<(), PostError> {
        match self.near(to) {
            Some(shm) => shm.put_inject(to, src, at),
            None => self.network.put_inject(to, src, at),
        }
    }

    #[inline]
    unsafe fn put(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        match self.near(to) {
            // SAFETY: the caller's promise.
            Some(shm) => unsafe { shm.put(to, src, len, at, tag) },
            // SAFETY: as above.
            None => unsafe { self.network.put(to, src, len, at, tag) },
        }
    }

    #[inline]
    fn packet_put_bytes_max(&self, peer: PeerAddr) -> usize {
        match &self.shm {
            Ok(shm) if ShmEndpoint::is_peer(peer) => shm.packet_put_bytes_max(peer),
            _ => self.network.packet_put_bytes_max(peer),
        }
    }

    fn puts_cost_packets(&self) -> bool {
        self.network.puts_cost_packets()
    }

    fn data_bytes(&self, peer: PeerAddr) -> usize {
        match &self.shm {
            Ok(shm) if ShmEndpoint::is_peer(peer) => shm.data_bytes(peer),
            _ => self.network.data_bytes(peer),
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
        match self.near(to) {
            // SAFETY: the caller's promise.
            Some(shm) => unsafe { shm.put_with_data(to, src, len, at, tag, data) },
            // SAFETY: as above.
            None => unsafe { self.network.put_with_data(to, src, len, at, tag, data) },
        }
    }

    #[inline]
    unsafe fn get(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        match self.near(to) {
            // SAFETY: the caller's promise.
            Some(shm) => unsafe { shm.get(to, dst, len, at, tag) },
            // SAFETY: as above.
            None => unsafe { self.network.get(to, dst, len, at, tag) },
        }
    }

    #[inline]
    unsafe fn put_vector(
        &mut self,
        to: PeerAddr,
        from: &[LocalPiece],
        into: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        self.check_pieces(from, into)?;
        match self.near(to) {
            // SAFETY: the caller's promise.
            Some(shm) => unsafe { shm.put_vector(to, from, into, tag) },
            // SAFETY: as above.
            None => unsafe { self.network.put_vector(to, from, into, tag) },
        }
    }

    #[inline]
    unsafe fn get_vector(
        &mut self,
        to: PeerAddr,
        into: &[LocalPiece],
        from: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        self.check_pieces(into, from)?;
        match self.near(to) {
            // SAFETY: the caller's promise.
            Some(shm) => unsafe { shm.get_vector(to, into, from, tag) },
            // SAFETY: as above.
            None => unsafe { self.network.get_vector(to, into, from, tag) },
        }
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
        let Some(shm) = self.near(to) else { return Err(PostError::Failed(NO_ATOMICS)) };
        // SAFETY: the caller's promise is the same.
        unsafe { shm.atomic(to, operand, count, at, dtype, op, tag) }
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
        let Some(shm) = self.near(to) else { return Err(PostError::Failed(NO_ATOMICS)) };
        // SAFETY: the caller's promise is the same.
        unsafe { shm.fetch_atomic(to, operand, result, count, at, dtype, op, tag) }
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
        let Some(shm) = self.near(to) else { return Err(PostError::Failed(NO_ATOMICS)) };
        // SAFETY: the caller's promise is the same.
        unsafe { shm.compare_atomic(to, operand, compare, result, at, dtype, tag) }
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
        match self.near(to) {
            // SAFETY: the caller's promise.
            Some(shm) => unsafe { shm.assist(to, atomic, at, dtype, op) },
            // SAFETY: as above.
            None => unsafe { self.network.assist(to, atomic, at, dtype, op) },
        }
    }

    #[inline]
    fn send(
        &mut self,
        to: PeerAddr,
        header: &[u8],
        payload: &[u8],
        class: SendClass,
    ) -> Result<(), PostError> {
        match self.near(to) {
            Some(shm) => shm.send(to, header, payload, class),
            None => self.network.send(to, header, payload, class),
        }
    }

    #[inline]
    fn flush(&mut self, to: PeerAddr, tag: Tag) -> Post {
        match self.near(to) {
            Some(shm) => shm.flush(to, tag),
            None => self.network.flush(to, tag),
        }
    }

    #[inline]
    fn completes_at_once(&self, peer: PeerAddr) -> bool {
        match &self.shm {
            Ok(shm) if ShmEndpoint::is_peer(peer) => shm.completes_at_once(peer),
            _ => self.network.completes_at_once(peer),
        }
    }

    #[inline]
    fn has_news(&self) -> bool {
        self.shm.as_ref().is_ok_and(Endpoint::has_news) || self.network.has_news()
    }

    fn may_complete_at_once(&self) -> bool {
        self.shm.as_ref().is_ok_and(Endpoint::may_complete_at_once) || self.network.may_complete_at_once()
    }

    #[inline]
    fn tell(&mut self, to: PeerAddr, at: RemoteAddr, word: u64) -> Result<bool, PostError> {
        match self.near(to) {
            Some(shm) => shm.tell(to, at, word),
            None => self.network.tell(to, at, word),
        }
    }

    #[inline]
    unsafe fn put_now(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr) -> bool {
        match self.near(to) {
            // SAFETY: the caller's promise is each endpoint's.
            Some(shm) => unsafe { shm.put_now(to, src, len, at) },
            // SAFETY: as above.
            None => unsafe { self.network.put_now(to, src, len, at) },
        }
    }

    #[inline]
    unsafe fn get_now(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr) -> bool {
        match self.near(to) {
            // SAFETY: the caller's promise is each endpoint's.
            Some(shm) => unsafe { shm.get_now(to, dst, len, at) },
            // SAFETY: as above.
            None => unsafe { self.network.get_now(to, dst, len, at) },
        }
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
        match self.near(to) {
            // SAFETY: the caller's promise is each endpoint's.
            Some(shm) => unsafe { shm.atomic_now(to, (atomic, count), at, dtype, op) },
            // SAFETY: as above.
            None => unsafe { self.network.atomic_now(to, (atomic, count), at, dtype, op) },
        }
    }

    #[inline]
    fn swap_now<const WORDS: usize>(&mut self, to: PeerAddr, swaps: [WordSwap; WORDS]) -> Option<Swapped> {
        match self.near(to) {
            Some(shm) => shm.swap_now(to, swaps),
            None => self.network.swap_now(to, swaps),
        }
    }

    #[inline]
    unsafe fn swap_and_put_now<const WORDS: usize>(
        &mut self,
        to: PeerAddr,
        swaps: [WordSwap; WORDS],
        from: (*const u8, usize),
        at: RemoteAddr,
    ) -> Option<(Swapped, bool)> {
        match self.near(to) {
            // SAFETY: the caller's promise is each endpoint's.
            Some(shm) => unsafe { shm.swap_and_put_now(to, swaps, from, at) },
            // SAFETY: as above.
            None => unsafe { self.network.swap_and_put_now(to, swaps, from, at) },
        }
    }

    fn passage(
        &mut self,
        to: PeerAddr,
        words: Option<RemoteAddr>,
        memory: RemotePiece,
    ) -> Option<ShmPassage> {
        self.near(to)?.passage(to, words, memory)
    }

    fn may_tell(&self) -> bool {
        self.shm.as_ref().is_ok_and(Endpoint::may_tell) || self.network.may_tell()
    }

    fn reaches(&mut self, to: PeerAddr, at: RemoteAddr) -> bool {
        match self.near(to) {
            Some(shm) => shm.reaches(to, at),
            None => self.network.reaches(to, at),
        }
    }

    #[inline]
    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        let Ok(shm) = &mut self.shm else { return self.network.poll(out) };
        let now = clock::now();
        if clock::has_passed(self.polled, now) {
            self.polled = now;
            // First, so that much traffic on this host leaves room for what it says.
            return self.network.poll(out) + shm.poll(out);
        }
        // Shared memory completes at once: who waits for nothing else should not pay for the network each time.
        let near = shm.poll(out);
        if near > 0 {
            return near;
        }
        self.polled = now;
        self.network.poll(out)
    }

    #[inline]
    fn release(&mut self, packet: ReceivedPacket) {
        match &mut self.shm {
            Ok(shm) if ShmEndpoint::is_packet(&packet) => shm.release(packet),
            _ => self.network.release(packet),
        }
    }

    fn abandon(&mut self, peer: PeerAddr, code: FabricCode) {
        match self.near(peer) {
            Some(shm) => shm.abandon(peer, code),
            None => self.network.abandon(peer, code),
        }
    }

    fn wait_fd(&self) -> Option<RawFd> {
        match &self.shm {
            Ok(_) => self.events.as_ref().map(AsRawFd::as_raw_fd),
            Err(_) => self.network.wait_fd(),
        }
    }

    fn arm_wait(&mut self) -> bool {
        // Shared memory last: who says there that it sleeps is woken by a system call.
        let is_quiet = self.network.arm_wait();
        match &mut self.shm {
            Ok(shm) => is_quiet && shm.arm_wait(),
            Err(_) => is_quiet,
        }
    }
}

/// The answer to vectors beyond the limits.
const TOO_MANY_PIECES: FabricCode = FabricCode { code: 0, text: "more pieces than the endpoint takes" };
/// The answer to atomics of peers that are reached over the network.
const NO_ATOMICS: FabricCode =
    FabricCode { code: 0, text: "beside shared memory a network offers no atomics" };
