//! Opening an endpoint: what is allocated, and what is promised.

use std::collections::{HashMap, VecDeque};

use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::Tag;
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Completion, CompletionBatch, CompletionScope, Limits, NativeOps, Order, ProviderError,
};

use crate::close::{Connections, RETIRED_MAX};
use crate::connect::{Waiting, PROBES_MAX};
use crate::datagram::Datagrams;
use crate::device::Device;
use crate::error::call_failed;
use crate::events::{Events, Waker};
use crate::list::{List, NONE, PIECES_MAX};
use crate::memory::{Memory, Sizes, BOUNCE_BYTES, CLASSES, DATAGRAMS_IN, DATAGRAMS_OUT};
use crate::objects::{Channel, Cq, Depths, Qp, Srq};
use crate::origin::{Bundles, Holding, Registrations};
use crate::peer::Peer;
use crate::sys;
use crate::wire::{Location, QUEUE_MASK};
use crate::{Options, RemoteCompletion};

/// A put, get, atomic or flush in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracked {
    pub(crate) tag: Tag,
    pub(crate) peer: u32,
    pub(crate) holding: Holding,
    /// Where the bytes in a bounce buffer go when they have arrived; null for what is written.
    pub(crate) into: *mut u8,
    pub(crate) len: u32,
    pub(crate) is_in_flight: bool,
}

impl Tracked {
    const FREE: Self = Self {
        tag: Tag(0),
        peer: 0,
        holding: Holding::Nothing,
        into: core::ptr::null_mut(),
        len: 0,
        is_in_flight: false,
    };
}

/// The packets of one class.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Where they arrive.
    pub(crate) srq: Srq,
    /// Buffers of outgoing packets that are free.
    pub(crate) free_outgoing: Vec<u32>,
    /// Receive buffers that the device did not take.
    pub(crate) unposted: Vec<u32>,
}

/// One endpoint of the engine, on one port of one device. The fields are dropped in their order: queue pairs
/// before the queues that they use, these before the memory and the device.
#[derive(Debug)]
pub struct VerbsEndpoint {
    pub(crate) limits: Limits,
    pub(crate) native: NativeOps,
    pub(crate) location: Location,
    pub(crate) depths: Depths,
    /// Bytes that queue pairs for connections send inline.
    pub(crate) inline_bytes: usize,
    pub(crate) tracked: Vec<Tracked>,
    /// Entries of `tracked` that are free.
    pub(crate) free_tracked: Vec<u32>,
    pub(crate) free_bounces: Vec<u32>,
    /// Requests that the device has not been told of.
    pub(crate) list: List,
    /// The request after each, in the order of its connection: slots of operations, then buffers of requests.
    pub(crate) order: Vec<u32>,
    /// The peer to whom each outgoing packet goes.
    pub(crate) outgoing: Vec<u32>,
    /// What poll has to say before it asks the device.
    pub(crate) ready: VecDeque<Completion>,
    /// Flushes that wait for the operations before them, by peer.
    pub(crate) flush_waiters: Vec<(u32, Tag)>,
    pub(crate) waiting: Vec<Waiting>,
    /// Connections whose first packet would say that the peer's half receives.
    pub(crate) answered: u32,
    /// Peers that are being asked whether they live.
    pub(crate) probes: usize,
    pub(crate) by_nonce: HashMap<u64, u32>,
    pub(crate) random: u64,
    pub(crate) is_down: bool,
    pub(crate) events: Events,
    /// Completions read while preparing to sleep.
    pub(crate) stash: VecDeque<sys::ibv_wc>,
    address: AddressBytes,
    pub(crate) peers: Vec<Peer>,
    pub(crate) connections: Connections,
    pub(crate) registrations: Registrations,
    pub(crate) bundles: Bundles,
    pub(crate) datagrams: Datagrams,
    pub(crate) lanes: [Lane; CLASSES],
    pub(crate) cq: Cq,
    pub(crate) waker: Waker,
    pub(crate) channel: Channel,
    pub(crate) memory: Memory,
    pub(crate) device: Device,
}

// SAFETY: the raw pointers are those of operations in flight, whose memory the engine keeps, and those of
// libibverbs' objects, which any thread may use; whoever holds the endpoint is its only user.
unsafe impl Send for VerbsEndpoint {}

impl VerbsEndpoint {
    /// Opens the device that the options name, or the nearest with an active port, and allocates everything but
    /// the queue pairs, which are made when a peer is first used.
    ///
    /// # Errors
    /// Where there is no libibverbs, no device, or not enough memory that may be locked; the message says what
    /// can be done.
    pub fn open(options: &Options) -> Result<Self, ProviderError> {
        options.check()?;
        let device = Device::choose(options)?;
        let sizes = sizes(options, &device);
        let memory = Memory::new(&device.domain, sizes)?;
        let channel = Channel::open(&device.domain)?;
        let waker = Waker::open([channel.fd(), device.domain.stop_waiting_for_events()])?;
        let entries = sizes.completions() + PROBES_MAX + RETIRED_MAX;
        let cq = Cq::open(&device.domain, &channel, entries)?;
        let lanes = open_lanes(&device, &sizes)?;
        let mut random = seed()?;
        let queue_key = next_random(&mut random) as u32 & QUEUE_KEY_MASK;
        let datagrams = Datagrams::open(&device, &cq, queue_key)?;
        let location = location(&device, &datagrams.qp, queue_key, next_random(&mut random));
        let address = AddressBytes::new(&location.encode()).ok_or_else(|| ProviderError {
            message: "the bootstrap carries no address of this length".to_owned(),
        })?;
        let limits = limits(options, &sizes, &device);
        let depths = depths(&sizes, &device, limits.vector_local_max);
        let mut endpoint = Self {
            limits,
            native: native(options, &device),
            location,
            depths,
            inline_bytes: 0,
            tracked: vec![Tracked::FREE; sizes.tracked],
            free_tracked: (0..sizes.tracked as u32).rev().collect(),
            free_bounces: (0..sizes.bounces() as u32).rev().collect(),
            list: List::new(),
            order: vec![NONE; sizes.tracked + sizes.outgoing],
            outgoing: vec![0; CLASSES * sizes.outgoing],
            ready: VecDeque::with_capacity(sizes.tracked + 2 * CompletionBatch::CAPACITY),
            flush_waiters: Vec::with_capacity(sizes.tracked),
            waiting: Vec::with_capacity(CompletionBatch::CAPACITY),
            answered: 0,
            probes: 0,
            by_nonce: HashMap::new(),
            random,
            is_down: false,
            events: Events::new(),
            stash: VecDeque::with_capacity(STASH),
            address,
            peers: Vec::new(),
            connections: Connections::new(options.connections_max),
            registrations: Registrations::new(&device.domain),
            bundles: Bundles::new(),
            datagrams,
            lanes,
            cq,
            waker,
            channel,
            memory,
            device,
        };
        endpoint.find_inline_bytes()?;
        endpoint.post_receives();
        for index in 0..DATAGRAMS_IN {
            endpoint.post_datagram_receive(index);
        }
        Ok(endpoint)
    }

    /// Device, port and address in one line, for people.
    pub fn description(&self) -> String {
        let Device { name, port, gid_index, .. } = &self.device;
        format!(
            "verbs: {name} port {port}, {}, gid {gid_index}, path MTU {} bytes, {} bytes inline, {} of packet and \
             bounce buffers",
            if self.device.is_ethernet() { "RoCE" } else { "InfiniBand" },
            128u32 << self.location.mtu,
            self.inline_bytes,
            self.memory.bytes(),
        )
    }

    /// The device's name.
    pub fn device_name(&self) -> &str {
        &self.device.name
    }

    /// Bytes of packet and bounce buffers.
    pub fn memory_bytes(&self) -> usize {
        self.memory.bytes()
    }

    pub(crate) fn own_address(&self) -> AddressBytes {
        self.address
    }

    /// What devices send inline they say when a queue pair is made: one is, and goes.
    fn find_inline_bytes(&mut self) -> Result<(), ProviderError> {
        let open = |depths| {
            Qp::open(&self.device.domain, &self.cq, Some(&self.lanes[0].srq), sys::IBV_QPT_RC, depths)
        };
        let (_, inline) = match open(self.depths) {
            Ok(opened) => opened,
            // Some devices refuse more than they have instead of saying it.
            Err(_) => {
                self.depths.inline_bytes = 0;
                open(self.depths).map_err(|code| {
                    call_failed("ibv_create_qp", &format!("{} operations", self.depths.sends), code)
                })?
            }
        };
        self.inline_bytes = inline.min(INLINE_BYTES) as usize;
        Ok(())
    }
}

/// What the endpoint publishes.
fn location(device: &Device, datagrams: &Qp, queue_key: u32, nonce: u64) -> Location {
    Location {
        nonce,
        gid: device.gid,
        lid: device.port_attributes.lid,
        mtu: device.port_attributes.active_mtu.clamp(1, 5) as u8,
        is_ethernet: device.is_ethernet(),
        queue: datagrams.number(),
        queue_key,
        reads: device.attributes.max_qp_rd_atom.clamp(0, READS_MAX) as u8,
    }
}

/// Both lanes, by class; all buffers are here.
fn open_lanes(device: &Device, sizes: &Sizes) -> Result<[Lane; CLASSES], ProviderError> {
    let lane = |class: usize| -> Result<Lane, ProviderError> {
        let buffers = |count: usize| (class * count) as u32..((class + 1) * count) as u32;
        Ok(Lane {
            srq: Srq::open(&device.domain, sizes.incoming)?,
            free_outgoing: buffers(sizes.outgoing).rev().collect(),
            unposted: buffers(sizes.incoming).collect(),
        })
    };
    Ok([lane(0)?, lane(1)?])
}

/// What is sent inline at most.
const INLINE_BYTES: u32 = 128;
/// Work requests that a queue pair holds at most.
const SENDS_MAX: usize = 256;
/// Completions that are read at a time while preparing to sleep.
pub(crate) const STASH: usize = 16;
/// Keys with the highest bit set are for privileged users.
const QUEUE_KEY_MASK: u32 = 0x7fff_ffff;

/// Reads and atomics that a queue pair has under way at most.
pub(crate) const READS_MAX: i32 = 16;

fn device_depth(device: &Device) -> usize {
    device.attributes.max_qp_wr.max(1) as usize
}

/// How large queue pairs for connections are.
fn depths(sizes: &Sizes, device: &Device, pieces: usize) -> Depths {
    let sends = (sizes.tracked + sizes.outgoing + 1).min(SENDS_MAX).min(device_depth(device));
    Depths { sends: sends as u32, receives: 0, pieces: pieces as u32, inline_bytes: INLINE_BYTES }
}

/// What the options ask for, as far as the device's queues are so long.
fn sizes(options: &Options, device: &Device) -> Sizes {
    let completions = device.attributes.max_cqe.max(1) as usize;
    let receives = device.attributes.max_srq_wr.max(1) as usize;
    let (outgoing, incoming) = (options.send_buffers, options.receive_buffers.min(receives));
    let datagrams = DATAGRAMS_IN + DATAGRAMS_OUT;
    let others = CLASSES * (outgoing + incoming) + datagrams + PROBES_MAX + RETIRED_MAX;
    let tracked = options.outstanding.min(completions.saturating_sub(others).max(1));
    Sizes { tracked, outgoing, incoming, packet_bytes: options.packet_bytes }
}

fn limits(options: &Options, sizes: &Sizes, device: &Device) -> Limits {
    let longest = device.port_attributes.max_msg_sz as usize;
    Limits {
        inject_bytes_max: 0,
        send_bytes_max: options.packet_bytes,
        message_bytes_max: longest.clamp(BOUNCE_BYTES, MESSAGE_BYTES_MAX),
        outstanding_max: sizes.tracked,
        receive_buffers: sizes.incoming,
        // One queue pair carries an origin's writes, reads and requests, and keeps them in order.
        order: Order { put_before_send: true, put_before_get: true },
        put_completes: match options.remote_completion {
            RemoteCompletion::Acknowledged => CompletionScope::Remote,
            RemoteCompletion::ReadBack => CompletionScope::Local,
        },
        needs_target_progress: false,
        vector_local_max: pieces_of(device),
        vector_remote_max: 1,
    }
}

/// Pieces of memory that one request may name. Devices that say nothing of reads take as many there.
fn pieces_of(device: &Device) -> usize {
    let any = device.attributes.max_sge.max(1);
    let reads = if device.attributes.max_sge_rd > 0 { device.attributes.max_sge_rd } else { any };
    (any.min(reads) as usize).min(PIECES_MAX)
}

/// The atomics of 64 bits that every device with atomics has.
fn native(options: &Options, device: &Device) -> NativeOps {
    let mut native = NativeOps { put: true, get: true, ..NativeOps::default() };
    if options.native_atomics && device.attributes.atomic_cap != sys::IBV_ATOMIC_NONE {
        for dtype in [Dtype::I64, Dtype::U64] {
            native.fetch_atomic[dtype as usize] = 1 << ReduceOp::Sum as u16 | 1 << ReduceOp::NoOp as u16;
            native.compare_atomic |= 1 << dtype as u32;
        }
    }
    native
}

/// Eight bytes that nobody can guess.
fn seed() -> Result<u64, ProviderError> {
    let mut bytes = [0u8; 8];
    // SAFETY: the bytes are written during the call.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != bytes.len() as isize {
        return Err(call_failed("getrandom", "the endpoint", crate::error::last_errno()));
    }
    Ok(u64::from_ne_bytes(bytes))
}

/// The next of a row of numbers without visible order (splitmix64).
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A first packet sequence number.
pub(crate) fn random_sequence(state: &mut u64) -> u32 {
    next_random(state) as u32 & QUEUE_MASK
}

/// Larger operations are split by the engine, so that none holds a connection for long.
const MESSAGE_BYTES_MAX: usize = 1 << 30;
