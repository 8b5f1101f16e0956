//! A fabric of packets with a clock after LogGP, at whose far end everybody is.
#![allow(unsafe_code)] // an implementation of the provider's unsafe trait

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, Rank, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Completion, CompletionBatch, CompletionScope, Endpoint, FabricCode, Limits, MemoryRegion, NativeOps,
    NoPassage, Order, Post, PostError, ProviderError, ReceivedPacket, RemoteAddr, SendClass,
};
use rma_core::wire::{Header, PacketKind, Reader};

/// Packets that an endpoint lends at one time, of each class.
const RECEIVE_BUFFERS: usize = 64;

/// What messages cost (Alexandrov et al., LogGP). Times are picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogGp {
    /// One way through the network.
    pub latency_ps: u64,
    /// What a process is busy for, with each packet that it sends or receives.
    pub overhead_ps: u64,
    /// Least time between two packets of one process.
    pub gap_ps: u64,
    /// The same for each byte of a packet.
    pub byte_gap_ps: u64,
}

impl LogGp {
    /// Only the latency counts: time is the number of packets on the critical path.
    pub const LATENCY_ONLY: Self = Self { latency_ps: 1, overhead_ps: 0, gap_ps: 0, byte_gap_ps: 0 };
}

/// Which part an endpoint plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// It is everybody: what it sends to rank d comes back as what rank P - d sends.
    Mirror,
    /// It is rank 0, and the other endpoint is all others.
    Origin,
    /// It is all others, one after the other.
    StandIn,
}

/// A packet on its way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Flying {
    arrival_ps: u64,
    number: u64,
    /// Whom it is for.
    target: u32,
    is_reply: bool,
    bytes: Vec<u8>,
}

/// One process: its clock and what is on the way to it.
#[derive(Default, Debug)]
struct Side {
    now_ps: u64,
    link_free_ps: u64,
    inbox: BinaryHeap<Reverse<Flying>>,
    /// In whose name a stand-in answers.
    plays: u32,
}

/// What both sides share.
#[derive(Debug)]
struct Net {
    model: LogGp,
    size: u32,
    sides: [Side; 2],
    packets: u64,
    packet_bytes: u64,
    sent: u64,
}

/// The fabric.
#[derive(Clone, Debug)]
pub(super) struct ScaleNet {
    shared: Arc<Mutex<Net>>,
}

impl ScaleNet {
    pub(super) fn new(size: u32, model: LogGp) -> Self {
        let sides = [Side::default(), Side::default()];
        let net = Net { model, size, sides, packets: 0, packet_bytes: 0, sent: 0 };
        Self { shared: Arc::new(Mutex::new(net)) }
    }

    pub(super) fn open(&self, part: Part) -> ScaleEndpoint {
        let limits = Limits {
            inject_bytes_max: 0,
            send_bytes_max: 4096,
            message_bytes_max: 1 << 20,
            outstanding_max: 256,
            receive_buffers: RECEIVE_BUFFERS,
            order: Order::default(),
            put_completes: CompletionScope::Remote,
            needs_target_progress: false,
            vector_local_max: 1,
            vector_remote_max: 1,
        };
        ScaleEndpoint { net: self.clone(), part, limits, native: NativeOps::default(), lent: Vec::new() }
    }

    fn net(&self) -> MutexGuard<'_, Net> {
        // A panic in one test must not become a second one here.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The origin's time; packets and bytes that it has sent.
    pub(super) fn figures(&self) -> (u64, u64, u64) {
        let net = self.net();
        (net.sides[0].now_ps, net.packets, net.packet_bytes)
    }

    /// Moves the origin's clock to the next packet; `false`: none is on the way to it.
    pub(super) fn advance_origin(&self) -> bool {
        let mut net = self.net();
        let side = &mut net.sides[0];
        let Some(Reverse(next)) = side.inbox.peek() else { return false };
        side.now_ps = side.now_ps.max(next.arrival_ps);
        true
    }

    /// Makes the stand-in the rank for which the next packet is, at the time when it arrives; `false`: there
    /// is none.
    pub(super) fn advance_stand_in(&self) -> bool {
        let mut net = self.net();
        let side = &mut net.sides[1];
        let Some(Reverse(next)) = side.inbox.peek() else { return false };
        // Each target has a processor and a link of its own, and nothing else to do.
        (side.now_ps, side.link_free_ps, side.plays) = (next.arrival_ps, 0, next.target);
        true
    }
}

impl Net {
    fn send(&mut self, part: Part, to: u32, bytes: Vec<u8>, class: SendClass) {
        let from_origin = part != Part::StandIn;
        let is_collective = is_collective(&bytes);
        let own = usize::from(!from_origin);
        let model = self.model;
        let side = &mut self.sides[own];
        side.now_ps += model.overhead_ps;
        let transfer_ps = model.byte_gap_ps * bytes.len() as u64;
        let start_ps = side.now_ps.max(side.link_free_ps);
        side.link_free_ps = start_ps + model.gap_ps.max(transfer_ps);
        let arrival_ps = start_ps + transfer_ps + model.latency_ps;
        let plays = side.plays;
        if from_origin {
            self.packets += 1;
            self.packet_bytes += bytes.len() as u64;
        }
        self.sent += 1;
        let mut flying =
            Flying { arrival_ps, number: self.sent, target: to, is_reply: class == SendClass::Reply, bytes };
        let destination = match part {
            Part::Mirror => {
                rename(&mut flying.bytes, (self.size - to) % self.size);
                0
            }
            // Making a window concerns everybody: there each side is the mirror of itself.
            Part::Origin | Part::StandIn if is_collective => {
                let me = u32::from(part == Part::StandIn);
                rename(&mut flying.bytes, (self.size + 2 * me - to) % self.size);
                own
            }
            Part::Origin => 1,
            Part::StandIn => {
                rename(&mut flying.bytes, plays);
                0
            }
        };
        self.sides[destination].inbox.push(Reverse(flying));
    }
}

/// Changes who a packet says has sent it.
fn rename(packet: &mut [u8], sender: u32) {
    packet[8..12].copy_from_slice(&sender.to_le_bytes());
}

/// One side's endpoint.
#[derive(Debug)]
pub(super) struct ScaleEndpoint {
    net: ScaleNet,
    part: Part,
    limits: Limits,
    native: NativeOps,
    lent: Vec<Option<Vec<u8>>>,
}

impl ScaleEndpoint {
    fn refuse() -> Post {
        Err(PostError::Failed(FabricCode { code: 1, text: "only packets travel here" }))
    }
}

// SAFETY: no native operation is ever accepted, so that no tag and no user memory is kept (line 3); a packet
// is copied in `send` (line 4), and a lent one is a vector that stays in `lent`, untouched, until released.
unsafe impl Endpoint for ScaleEndpoint {
    type Region = NoRegion;
    type Passage = NoPassage;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn native(&self) -> &NativeOps {
        &self.native
    }

    fn address(&self) -> AddressBytes {
        address(0)
    }

    fn connect(&mut self, address: &AddressBytes) -> Result<PeerAddr, ProviderError> {
        let raw = address.as_slice().try_into().map(u32::from_le_bytes);
        raw.map(|rank| PeerAddr(rank.into()))
            .map_err(|_| ProviderError { message: "connect: an address here has four bytes".into() })
    }

    fn disconnect(&mut self, _peer: PeerAddr) {}

    unsafe fn register(
        &mut self,
        _base: NonNull<u8>,
        _len: usize,
        key: RemoteKey,
    ) -> Result<NoRegion, ProviderError> {
        Ok(NoRegion(key))
    }

    fn put_inject(&mut self, _to: PeerAddr, _src: &[u8], _at: RemoteAddr) -> Result<(), PostError> {
        Self::refuse().map(|_| ())
    }

    unsafe fn put(
        &mut self,
        _to: PeerAddr,
        _src: *const u8,
        _len: usize,
        _at: RemoteAddr,
        _tag: Tag,
    ) -> Post {
        Self::refuse()
    }

    unsafe fn get(&mut self, _to: PeerAddr, _dst: *mut u8, _len: usize, _at: RemoteAddr, _tag: Tag) -> Post {
        Self::refuse()
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
        Self::refuse()
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
        Self::refuse()
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
        Self::refuse()
    }

    fn send(
        &mut self,
        to: PeerAddr,
        header: &[u8],
        payload: &[u8],
        class: SendClass,
    ) -> Result<(), PostError> {
        self.net.net().send(self.part, to.0 as u32, [header, payload].concat(), class);
        Ok(())
    }

    fn flush(&mut self, _to: PeerAddr, _tag: Tag) -> Post {
        Self::refuse()
    }

    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        let mut net = self.net.net();
        let overhead_ps = net.model.overhead_ps;
        let side = &mut net.sides[usize::from(self.part == Part::StandIn)];
        let mut added = 0;
        while out.room() > 0 {
            let Some(Reverse(next)) = side.inbox.peek() else { break };
            let is_for_another = self.part == Part::StandIn && (added > 0 || next.target != side.plays);
            if next.arrival_ps > side.now_ps || (is_for_another && !is_collective(&next.bytes)) {
                break;
            }
            let Some(Reverse(mut flying)) = side.inbox.pop() else { break };
            side.now_ps += overhead_ps;
            let Some(data) = NonNull::new(flying.bytes.as_mut_ptr()) else { break };
            let len = flying.bytes.len();
            let free = self.lent.iter().position(Option::is_none).unwrap_or_else(|| {
                self.lent.push(None);
                self.lent.len() - 1
            });
            // Moving the vector does not move its heap memory.
            self.lent[free] = Some(flying.bytes);
            if out.push(Completion::Packet(ReceivedPacket { data, len, buffer: free as u32 })).is_err() {
                break;
            }
            added += 1;
        }
        added
    }

    fn release(&mut self, packet: ReceivedPacket) {
        if let Some(lent) = self.lent.get_mut(packet.buffer as usize) {
            *lent = None;
        }
    }
}

/// Whether a packet is one of a barrier or a reduction.
fn is_collective(packet: &[u8]) -> bool {
    let header = Header::decode(&mut Reader::new(packet));
    header.is_ok_and(|header| matches!(header.kind, PacketKind::Barrier | PacketKind::Reduce))
}

/// Memory that nobody reaches but through packets.
#[derive(Debug)]
pub(super) struct NoRegion(RemoteKey);

impl MemoryRegion for NoRegion {
    fn remote_key(&self) -> RemoteKey {
        self.0
    }

    fn remote_base(&self) -> u64 {
        0
    }
}

/// Rank, size, and addresses that are ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScaleBootstrap {
    pub(super) rank: u32,
    pub(super) size: u32,
}

impl Bootstrap for ScaleBootstrap {
    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn publish(&mut self, _address: &AddressBytes) -> Result<(), BootstrapError> {
        Ok(())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        Ok(Lookup::Found(address(rank.0)))
    }
}

fn address(rank: u32) -> AddressBytes {
    match AddressBytes::new(&rank.to_le_bytes()) {
        Some(address) => address,
        None => unreachable!("four bytes fit an address"),
    }
}
