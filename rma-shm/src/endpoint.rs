//! Opening an endpoint: what is allocated, and what is promised.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Completion, CompletionScope, FabricCode, Limits, NativeOps, OpTable, Order, PostError, ProviderError,
    ReceivedPacket, VECTOR_PIECES_MAX,
};
use rustix::event::epoll;

use crate::address::Location;
use crate::attach::{self, Allowed};
use crate::buffers::{Buffers, BUFFERS};
use crate::error::{call_failed, refused, ENDED, NO_PEER};
use crate::head::{Shape, CLASSES};
use crate::options::{HugePages, Options, Pages, Reach};
use crate::own::Own;
use crate::peer::Peer;
use crate::process;
use crate::ring::Reader;

/// A place for a peer, and the name of who has it, or had it last. A name's upper half counts those that had the place, so
/// that the name of one is not another's; its highest bit is set, so that no name is one of a provider's that numbers its
/// peers from 0.
#[derive(Debug)]
struct PeerSlot {
    name: PeerAddr,
    peer: Option<Box<Peer>>,
}

/// One endpoint of the engine, for ranks of one host.
#[derive(Debug)]
pub struct ShmEndpoint {
    limits: Limits,
    native: NativeOps,
    native_allocated: NativeOps,
    pub(crate) reach: Reach,
    pub(crate) pages: Pages,
    /// Why there was no memory when it was last asked for.
    pub(crate) refusal: Option<String>,
    pub(crate) own: Arc<Own>,
    address: AddressBytes,
    slots: Vec<PeerSlot>,
    /// Peers whose processes are watched.
    pub(crate) watched: usize,
    /// Where the next look for forgotten regions begins.
    pub(crate) next_swept: usize,
    /// Operations of which poll has to say that they failed.
    pub(crate) failures: VecDeque<(Tag, FabricCode)>,
    /// Peers that poll has to say are down.
    pub(crate) downs: VecDeque<(PeerAddr, FabricCode)>,
    pub(crate) buffers: Buffers,
    pub(crate) inbox: Inbox,
    /// Sends were refused since the last sleep.
    pub(crate) is_refused: bool,
    /// An atomic was refused since the last attempt to sleep, as it was another's turn: nobody says when that is over.
    pub(crate) waits_for_turn: bool,
    pub(crate) polls: u32,
    pub(crate) sleeps: u32,
    /// The bell and the watched processes.
    pub(crate) events: OwnedFd,
}

/// What this endpoint knows of the lanes to it.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) readers: Vec<[Reader; CLASSES]>,
    /// A bit for each lane that may have packets.
    pub(crate) todo: Vec<u64>,
    /// By class: lanes with packets for which there was no buffer.
    pub(crate) blocked: [Vec<u64>; CLASSES],
    /// By class: the lane that was the first of these.
    pub(crate) held: [Option<usize>; CLASSES],
    /// The lane that is next.
    pub(crate) next: usize,
    /// Small copies that were done for peers since the last poll.
    pub(crate) served: usize,
}

impl ShmEndpoint {
    /// Makes the endpoint's shared memory. Pages are taken when they are used.
    ///
    /// # Errors
    /// When an option is out of range, or the kernel refuses what is needed; the message says what can be
    /// done.
    pub fn open(options: &Options) -> Result<Self, ProviderError> {
        options.check()?;
        let shape = Shape::of(options);
        let own = Arc::new(Own::new(shape)?);
        let wants_copies = matches!(options.reach, None | Some(Reach::Attached));
        if wants_copies {
            attach::admit();
        }
        let allowed = *ALLOWED[usize::from(wants_copies)].get_or_init(|| attach::ask(own.location.fd));
        if !allowed.open {
            return Err(refused(
                "the kernel does not let processes open each other's files in /proc/PID/fd, or hear of each other's \
                 end (pidfd_open): it is old, or this is a sandbox or valgrind, or the program may not be inspected",
            ));
        }
        let reach = match options.reach {
            Some(reach) => reach,
            None if allowed.copy => Reach::Attached,
            None => Reach::Allocated,
        };
        let address = own
            .location
            .encode()
            .ok_or_else(|| refused("the bootstrap carries no address of this length"))?;
        let events =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| call_failed("epoll_create", error))?;
        let bell = epoll::EventData::new_u64(BELL);
        epoll::add(&events, own.listener.as_fd(), bell, epoll::EventFlags::IN)
            .map_err(|error| call_failed("epoll_ctl", error))?;
        let words = || vec![0; shape.marks()];
        Ok(Self {
            limits: limits(options, reach),
            native: native(reach),
            native_allocated: native(if reach == Reach::Packets { reach } else { Reach::Mapped }),
            reach,
            pages: options.pages,
            refusal: None,
            own,
            address,
            slots: Vec::new(),
            watched: 0,
            next_swept: 0,
            failures: VecDeque::with_capacity(options.outstanding),
            downs: VecDeque::new(),
            buffers: Buffers::new(options)?,
            inbox: Inbox {
                readers: (0..shape.lanes).map(|_| [Reader::new(), Reader::new()]).collect(),
                todo: words(),
                blocked: [words(), words()],
                held: [None; CLASSES],
                next: 0,
                served: 0,
            },
            is_refused: false,
            waits_for_turn: false,
            polls: 0,
            sleeps: 0,
            events,
        })
    }

    /// Whether this is a name that an endpoint of this kind gave to a peer. Providers that number their peers from 0 give
    /// no such name: who drives both as one tells by it whose a peer is.
    #[inline]
    pub fn is_peer(name: PeerAddr) -> bool {
        name.0 >> 32 & u64::from(NAMES) != 0
    }

    /// Whether a packet is in a buffer of an endpoint of this kind; other providers number theirs from 0.
    #[inline]
    pub fn is_packet(packet: &ReceivedPacket) -> bool {
        packet.buffer & BUFFERS != 0
    }

    /// Whether this is the address of an endpoint of this kind, on this host.
    pub fn is_of_this_host(&self, address: &AddressBytes) -> bool {
        Location::decode(address).is_some_and(|location| location.host == self.own.location.host)
    }

    /// Whether the process has ended that published this address on this host.
    pub fn has_ended(&self, address: &AddressBytes) -> bool {
        Location::decode(address).is_some_and(|location| !process::is_running(location.pid))
    }

    /// How peers get at registered memory.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// The endpoint in one line, for people.
    pub fn description(&self) -> String {
        let Shape { lanes, ring_bytes, .. } = self.own.head.shape;
        let reach = match self.reach {
            Reach::Mapped => "memory mapped",
            Reach::Attached => "memory of the library's mapped, other copied by the kernel",
            Reach::Allocated => "memory of the library's mapped, packets for other",
            Reach::Packets => "packets only",
        };
        format!("shared memory: {reach}, up to {lanes} senders with rings of {CLASSES} x {ring_bytes} bytes")
    }

    /// How the pages of memory that it allocates are taken here, in one line, for people.
    pub fn memory_description(&self) -> String {
        self.pages.describe()
    }

    /// Why [`rma_core::provider::Endpoint::allocate`] found no memory the last time: what was asked for, and what there
    /// is.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Bytes of receive buffers. What peers send through is beside it, and is taken by those that send.
    pub fn memory_bytes(&self) -> usize {
        self.buffers.bytes()
    }

    pub(crate) fn limits_of(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn native_of(&self) -> &NativeOps {
        &self.native
    }

    pub(crate) fn native_allocated_of(&self) -> &NativeOps {
        &self.native_allocated
    }

    pub(crate) fn own_address(&self) -> AddressBytes {
        self.address
    }

    /// See [`rma_core::provider::Endpoint::connect`].
    pub(crate) fn connect_to(&mut self, address: &AddressBytes) -> Result<PeerAddr, ProviderError> {
        let location = Location::decode(address);
        let is_it = |peer: &Peer| Some(peer.location) == location;
        let known = self.slots.iter().position(|slot| slot.peer.as_deref().is_some_and(is_it));
        if let Some(index) = known {
            if let Some(peer) = &mut self.slots[index].peer {
                peer.references += 1;
            }
            return Ok(self.slots[index].name);
        }
        let mut peer = Box::new(Peer::connect(&self.own, address, self.reach)?);
        peer.asks_for_huge = self.pages.huge == HugePages::Transparent;
        let free = self.slots.iter().position(|slot| slot.peer.is_none());
        let index = free.unwrap_or_else(|| {
            let index = self.slots.len();
            self.slots.push(PeerSlot { name: name_of(0, index), peer: None });
            index
        });
        let slot = &mut self.slots[index];
        let name = name_of(generation_of(slot.name).wrapping_add(1), index);
        slot.name = name;
        let process = slot.peer.insert(peer).process.as_ref();
        if let Some(process) = process {
            self.watched += 1;
            let data = epoll::EventData::new_u64(name.0);
            if let Err(error) = epoll::add(&self.events, process, data, epoll::EventFlags::IN) {
                self.disconnect_from(name);
                return Err(call_failed("epoll_ctl", error));
            }
        }
        // So that poll never has to allocate to say that a peer is down.
        self.downs.reserve(self.slots.len().saturating_sub(self.downs.len()));
        Ok(name)
    }

    /// See [`rma_core::provider::Endpoint::disconnect`].
    pub(crate) fn disconnect_from(&mut self, name: PeerAddr) {
        let Ok(peer) = self.peer(name) else { return };
        peer.references -= 1;
        if peer.references > 0 {
            return;
        }
        let was_watched = peer.process.is_some();
        let own = Arc::clone(&self.own);
        if let Ok(peer) = self.peer(name) {
            peer.leave(&own);
        }
        self.slots[index_of(name)].peer = None;
        self.watched -= usize::from(was_watched);
        self.downs.retain(|(down, _)| *down != name);
    }

    /// A connected peer, also one that is down.
    #[inline]
    pub(crate) fn peer(&mut self, name: PeerAddr) -> Result<&mut Peer, PostError> {
        let slot = self.slots.get_mut(index_of(name));
        let slot = slot.filter(|slot| slot.name == name);
        slot.and_then(|slot| slot.peer.as_deref_mut()).ok_or(PostError::Failed(NO_PEER))
    }

    /// A peer, and what this endpoint does for others while it waits for that one.
    #[inline]
    pub(crate) fn apart(&mut self, name: PeerAddr) -> Result<(&mut Peer, &mut Inbox, &Own), PostError> {
        let Self { slots, inbox, own, .. } = self;
        let slot = slots.get_mut(index_of(name));
        let peer = slot.and_then(|slot| slot.peer.as_deref_mut()).ok_or(PostError::Failed(NO_PEER))?;
        Ok((peer, inbox, own))
    }

    /// A peer that can be posted to.
    #[inline]
    pub(crate) fn live(&mut self, name: PeerAddr) -> Result<&mut Peer, PostError> {
        let peer = self.peer(name)?;
        if let Some(code) = peer.down {
            return Err(PostError::Failed(code));
        }
        if let Some(code) = peer.loss() {
            self.peer_lost(name, code);
            return Err(PostError::Failed(code));
        }
        self.peer(name)
    }

    /// The same, where nothing is to be said of one that is not.
    #[inline]
    pub(crate) fn present(&mut self, name: PeerAddr) -> Option<&mut Peer> {
        self.peer(name).ok().filter(|peer| peer.down.is_none() && peer.loss().is_none())
    }

    /// Nothing will be posted to this peer any more.
    #[cold]
    #[inline(never)]
    pub(crate) fn peer_lost(&mut self, name: PeerAddr, code: FabricCode) {
        let own = Arc::clone(&self.own);
        let Ok(peer) = self.peer(name) else { return };
        if peer.down.is_none() {
            let was_watched = peer.process.is_some();
            peer.lose(&own, code);
            self.watched -= usize::from(was_watched);
            self.downs.push_back((name, code));
        }
    }

    /// How many places for peers there are, and the peer at one.
    pub(crate) fn places(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn at_place(&mut self, index: usize) -> Option<(PeerAddr, &mut Peer)> {
        let PeerSlot { name, peer } = &mut self.slots[index];
        peer.as_deref_mut().map(|peer| (*name, peer))
    }

    /// What the epoll set says of processes that have ended.
    pub(crate) fn process_ended(&mut self, data: u64) {
        if data != BELL {
            self.peer_lost(PeerAddr(data), ENDED);
        }
    }

    /// One more thing to say.
    #[inline]
    pub(crate) fn next_ready(&mut self) -> Option<Completion> {
        if let Some((tag, code)) = self.failures.pop_front() {
            return Some(Completion::Failed(tag, code));
        }
        let (peer, code) = self.downs.pop_front()?;
        Some(Completion::PeerDown(peer, code))
    }
}

impl Drop for ShmEndpoint {
    fn drop(&mut self) {
        self.own.head.close();
        for peer in self.slots.iter().filter_map(|slot| slot.peer.as_deref()) {
            peer.leave(&self.own);
        }
        self.own.wake_senders();
    }
}

#[inline]
fn index_of(name: PeerAddr) -> usize {
    (name.0 & u64::from(u32::MAX)) as usize
}

fn generation_of(name: PeerAddr) -> u32 {
    (name.0 >> 32) as u32
}

fn name_of(generation: u32, index: usize) -> PeerAddr {
    PeerAddr(u64::from(generation | NAMES) << 32 | index as u64)
}

fn limits(options: &Options, reach: Reach) -> Limits {
    let pieces = if reach == Reach::Packets { 1 } else { VECTOR_PIECES_MAX };
    Limits {
        inject_bytes_max: 0,
        send_bytes_max: options.packet_bytes,
        message_bytes_max: MESSAGE_BYTES,
        outstanding_max: options.outstanding,
        receive_buffers: options.receive_buffers,
        // A copy is made when the call returns, and what is sent later is published later.
        order: Order { put_before_send: true, put_before_get: true },
        put_completes: CompletionScope::Remote,
        needs_target_progress: false,
        vector_local_max: pieces,
        vector_remote_max: pieces,
    }
}

/// What works on any memory that can be registered. The processors' atomics are those of the target's engine, too:
/// what is executed here and what is executed there are atomic towards each other.
fn native(reach: Reach) -> NativeOps {
    let is_reached = matches!(reach, Reach::Mapped | Reach::Attached);
    let mut native = NativeOps { put: is_reached, get: is_reached, ..NativeOps::default() };
    if reach != Reach::Mapped {
        return native;
    }
    let mut table: OpTable = [0; Dtype::COUNT];
    for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.size() <= size_of::<u64>()) {
        let defined = ReduceOp::ALL.into_iter().filter(|op| op.is_defined_for(dtype));
        table[dtype as usize] = defined.fold(0, |bits, op| bits | 1 << op as u16);
        native.compare_atomic |= u32::from(dtype.has_compare_and_swap()) << dtype as u32;
    }
    (native.atomic, native.fetch_atomic) = (table, table);
    native
}

/// What the kernel has said, asked once in a process before it has admitted others to its memory, and once after that.
static ALLOWED: [OnceLock<Allowed>; 2] = [OnceLock::new(), OnceLock::new()];
/// The highest bit of a name's upper half.
const NAMES: u32 = 1 << 31;
/// Names the bell among the watched processes; no peer has this name.
const BELL: u64 = u64::MAX;
/// Largest put or get: one call copies no more.
const MESSAGE_BYTES: usize = 4 << 20;
