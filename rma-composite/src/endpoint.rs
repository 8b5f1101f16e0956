//! One endpoint made of two.

use core::ptr::NonNull;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Allocation, CompletionBatch, Endpoint, FabricCode, Limits, LocalPiece, NativeOps, Post, PostError,
    ProviderError, ReceivedPacket, RemoteAddr, RemotePiece, SendClass,
};
use rma_shm::{Reach, ShmEndpoint};
use rustix::event::epoll;

use crate::address::Addresses;
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
    /// Peers of this host that shared memory did not reach. They stay with the network: packets that take another way
    /// than those before could overtake them.
    unreached: Vec<Box<[u8]>>,
    /// Polls since the network's last one.
    skipped: u32,
    /// What a thread that wants to hear of both sleeps on.
    events: Option<OwnedFd>,
}

impl<N: Endpoint> CompositeEndpoint<N> {
    /// Joins two endpoints. `host` is a number that ranks of one host have in common: who has another is reached over the
    /// network, wherever it is. `room`: bytes that the address of both may have.
    ///
    /// Where `shm` is an error, or reaches no memory but its own, or the addresses are too long, the network reaches
    /// all; what is offered is no more for that, as all ranks have to agree on it.
    ///
    /// # Errors
    /// When the network's address alone is too long, or the kernel gives no descriptor.
    pub fn new(
        network: N,
        shm: Result<ShmEndpoint, ProviderError>,
        host: u64,
        room: usize,
    ) -> Result<Self, ProviderError> {
        let fits = |shm| Addresses { host, network: network.address(), shm }.encode(room);
        let shm = shm.and_then(|shm| match shm.reach() {
            Reach::Attached | Reach::Mapped => Ok(shm),
            Reach::Allocated | Reach::Packets => Err(refused(
                "the kernel does not let processes of one user at each other's memory (process_vm_readv)",
            )),
        });
        let shm = shm.and_then(|shm| match fits(Some(shm.address())) {
            Some(address) => Ok((shm, address)),
            None => {
                Err(refused(&format!("its address and the network's are longer than {room} bytes together")))
            }
        });
        let (shm, address) = match shm {
            Ok((shm, address)) => (Ok(shm), address),
            Err(error) => {
                (Err(error), fits(None).ok_or_else(|| refused("the network's address is too long"))?)
            }
        };
        let (limits, events) = match &shm {
            Ok(shm) => (limits::limits(network.limits(), shm.limits()), descriptors_of_both(&network, shm)?),
            Err(_) => (*network.limits(), None),
        };
        let native = limits::native(network.native());
        Ok(Self { network, shm, limits, native, host, address, unreached: Vec::new(), skipped: 0, events })
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
    fn check_pieces(&self, local: &[LocalPiece], remote: &[RemotePiece]) -> Post {
        if local.len() > self.limits.vector_local_max || remote.len() > self.limits.vector_remote_max {
            return Err(PostError::Failed(TOO_MANY_PIECES));
        }
        Ok(())
    }

    /// A peer of this host, if shared memory reaches it.
    fn connect_near(&mut self, address: &AddressBytes, of_shm: &AddressBytes) -> Option<PeerAddr> {
        let shm = self.shm.as_mut().ok()?;
        if self.unreached.iter().any(|known| **known == *address.as_slice()) {
            return None;
        }
        let reached = shm.connect(of_shm);
        if reached.is_err() {
            self.unreached.push(address.as_slice().into());
        }
        reached.ok()
    }
}

/// Something that becomes readable when one of both does; `None` where the network has nothing to sleep on.
fn descriptors_of_both(network: &impl Endpoint, shm: &ShmEndpoint) -> Result<Option<OwnedFd>, ProviderError> {
    let (Some(network), Some(shm)) = (network.wait_fd(), shm.wait_fd()) else { return Ok(None) };
    let failed = |what, error| refused(&format!("{what}: {error}"));
    let events = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| failed("epoll_create", error))?;
    for descriptor in [network, shm] {
        // SAFETY: open as long as the endpoint is that has just named it.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let data = epoll::EventData::new_u64(0);
        epoll::add(&events, descriptor, data, epoll::EventFlags::IN)
            .map_err(|error| failed("epoll_ctl", error))?;
    }
    Ok(Some(events))
}

#[cold]
fn refused(message: &str) -> ProviderError {
    ProviderError { message: message.to_owned() }
}

/// What is published is not of this provider.
const OTHER_PROVIDER: &str =
    "connect: the peer's endpoint is not one of shared memory and a network together: \
                              RMA_PROVIDER and the like must be the same at all ranks";

/// Polls in a row that shared memory answers alone. It completes at once, and who waits for nothing else should not pay
/// for looking at the network each time.
const SKIPS_MAX: u32 = 16;

// SAFETY: an operation goes to one of two endpoints that keep the contract, which one follows from the peer's name, so
// that its tag comes back from that one, and all packets to a peer take one way. Packets are told apart by their
// buffers' numbers. What only one of both keeps is not promised (`limits`), and regions are registered with both.
unsafe impl<N: Endpoint> Endpoint for CompositeEndpoint<N> {
    type Region = CompositeRegion<N::Region>;

    #[inline]
    fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline]
    fn native(&self) -> &NativeOps {
        &self.native
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
        let Some(Addresses { host, network, shm }) = Addresses::decode(address) else {
            return Err(refused(OTHER_PROVIDER));
        };
        let of_shm = shm.filter(|_| host == self.host);
        match of_shm.and_then(|of_shm| self.connect_near(address, &of_shm)) {
            Some(peer) => Ok(peer),
            None => self.network.connect(&network),
        }
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
            Ok(shm) => Some(unsafe { shm.register_like(base, len, &network) }?),
            Err(_) => None,
        };
        Ok(CompositeRegion { network, _shm: shm })
    }

    #[inline]
    fn put_inject(&mut self, to: PeerAddr, src: &[u8], at: RemoteAddr) -> Post {
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
        _to: PeerAddr,
        _operand: *const u8,
        _count: usize,
        _at: RemoteAddr,
        _dtype: Dtype,
        _op: ReduceOp,
        _tag: Tag,
    ) -> Post {
        Err(PostError::Failed(NO_ATOMICS))
    }

    unsafe fn fetch_atomic(
        &mut self,
        _to: PeerAddr,
        _operand: *const u8,
        _result: *mut u8,
        _count: usize,
        _at: RemoteAddr,
        _dtype: Dtype,
        _op: ReduceOp,
        _tag: Tag,
    ) -> Post {
        Err(PostError::Failed(NO_ATOMICS))
    }

    unsafe fn compare_atomic(
        &mut self,
        _to: PeerAddr,
        _operand: *const u8,
        _compare: *const u8,
        _result: *mut u8,
        _at: RemoteAddr,
        _dtype: Dtype,
        _tag: Tag,
    ) -> Post {
        Err(PostError::Failed(NO_ATOMICS))
    }

    #[inline]
    fn send(&mut self, to: PeerAddr, header: &[u8], payload: &[u8], class: SendClass) -> Post {
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
    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        let Ok(shm) = &mut self.shm else { return self.network.poll(out) };
        if self.skipped == SKIPS_MAX {
            self.skipped = 0;
            // First, so that much traffic on this host leaves room for what it says.
            return self.network.poll(out) + shm.poll(out);
        }
        let near = shm.poll(out);
        if near > 0 {
            self.skipped += 1;
            return near;
        }
        self.skipped = 0;
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
        let is_quiet = match &mut self.shm {
            Ok(shm) => shm.arm_wait(),
            Err(_) => true,
        };
        is_quiet && self.network.arm_wait()
    }
}

/// The answer to vectors beyond the limits.
const TOO_MANY_PIECES: FabricCode = FabricCode { code: 0, text: "more pieces than the endpoint takes" };
/// The answer to atomics, which are not offered.
const NO_ATOMICS: FabricCode =
    FabricCode { code: 0, text: "shared memory and a network together offer no atomics" };
