//! Opening an endpoint: what is allocated, what is believed, what is left for later.

use core::ffi::c_void;
use core::ptr::{self, NonNull};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use ofi_sys as fi;
use rma_core::bootstrap::{AddressBytes, ADDRESS_BYTES_MAX};
use rma_core::ids::Tag;
use rma_core::provider::{
    Completion, CompletionBatch, CompletionScope, FabricCode, Limits, NativeOps, Order,
};
use rma_core::provider::{ProviderError, VECTOR_PIECES_MAX};

use crate::abandon::Abandoned;
use crate::address::{self, Kind, Particulars, ReadBackRegion};
use crate::atomics::{self, AtomicLimits};
use crate::data::Cells;
use crate::describe::Description;
use crate::discover::Choice;
use crate::gather::Gather;
use crate::handles::{CompletionQueue, Domain, Ep, Info, Mr};
use crate::lane::{Lane, Links, CLASSES};
use crate::ledger::Ledger;
use crate::memory::{Memory, Purpose, Sizes};
use crate::nonce::{Keys, Nonce};
use crate::origin::Origins;
use crate::probe::{Probe, Suspicion};
use crate::profile::{Profile, Quirks, RemoteCompletion};
use crate::region::register;
use crate::Options;

/// Everything that libfabric knows of one endpoint, closed in the order of the fields.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) links: Links,
    pub(crate) read_back: Option<ReadBack>,
    pub(crate) cq: CompletionQueue,
    /// The registration of the memory, where the provider wants one.
    pub(crate) own: Option<Mr>,
    pub(crate) memory: Memory,
    pub(crate) domain: Arc<Domain>,
    pub(crate) mr_mode: u64,
    /// The endpoint's own number.
    pub(crate) nonce: Nonce,
    /// How keys are formed, here and at the peers.
    pub(crate) keys: Keys,
}

impl Live {
    /// For the endpoint and its regions; and for the fabric, which goes on to use the buffers where nothing is closed.
    fn shared(self, profile: &Profile) -> Arc<Self> {
        let live = Arc::new(self);
        if profile.quirks.stays_open {
            core::mem::forget(Arc::clone(&live));
        }
        live
    }

    /// See [`Keys::salt`]; of this endpoint's memory.
    pub(crate) fn key_salt(&self) -> u64 {
        self.keys.salt(self.nonce)
    }
}

// SAFETY: the endpoint's owner uses the handles, one thread at a time (`&mut OfiEndpoint`); other
// holders of the Arc (regions) only keep it alive.
unsafe impl Sync for Live {}

/// A few bytes that peers may read to learn that their writes have arrived, and a place for what is
/// read from a peer. Nobody cares what the bytes are.
#[derive(Debug)]
pub(crate) struct ReadBack {
    mr: Mr,
    words: Words,
}

/// The bytes, freed after their region is closed (order of the fields of [`ReadBack`]) and after the
/// endpoint that could touch them is (order of the fields of [`Live`]).
#[derive(Debug)]
struct Words(NonNull<[u64; READ_BACK_WORDS]>);

// SAFETY: the words are owned, and touched by libfabric only.
unsafe impl Send for Words {}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: made from a Box of this type, and freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// What is known of one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Times that its address was inserted; 0: not a peer.
    pub(crate) connections: u32,
    /// Where packets of each class go: the peer as a target, and as an origin.
    pub(crate) entries: [fi::fi_addr_t; CLASSES],
    /// Tracked operations in flight.
    pub(crate) outstanding: u32,
    /// Flushes that wait for `outstanding` to become 0.
    pub(crate) flushes: u32,
    /// Why nothing can be posted to it any more.
    pub(crate) down: Option<FabricCode>,
    /// Where it listens, if it does.
    pub(crate) listens_at: Option<SocketAddr>,
    /// How often posting to it was refused.
    pub(crate) suspicion: Suspicion,
    /// Whether poll has said that it is down.
    pub(crate) is_announced: bool,
    /// Where to read so that the peer's writes are known to have arrived.
    pub(crate) read_back: ReadBackRegion,
    /// The number that its address came with.
    pub(crate) nonce: Nonce,
}

impl Peer {
    pub(crate) const NONE: Self = Self {
        connections: 0,
        entries: [0; CLASSES],
        outstanding: 0,
        flushes: 0,
        down: None,
        listens_at: None,
        suspicion: Suspicion::NONE,
        is_announced: false,
        read_back: ReadBackRegion::NONE,
        nonce: Nonce::NONE,
    };
}

/// One endpoint of the engine: a libfabric endpoint as an origin, one as a target, their completion
/// queue, packet buffers and peers.
///
/// Puts and gets go straight to the provider. Packets are copied once into a buffer of the
/// endpoint's; arriving ones are lent to the caller where libfabric put them.
#[derive(Debug)]
pub struct OfiEndpoint {
    pub(crate) limits: Limits,
    pub(crate) native: NativeOps,
    pub(crate) atomic_limits: Box<AtomicLimits>,
    /// What puts, gets and atomics travel on.
    pub(crate) ep: *mut fi::fid_ep,
    pub(crate) cq: *mut fi::fid_cq,
    /// Flags of puts and atomics.
    pub(crate) put_flags: u64,
    /// Largest put that had better be injected, though it is waited for like any other.
    pub(crate) whole_put_bytes_max: usize,
    pub(crate) flush_reads_back: bool,
    /// Bytes of data that puts carry, and those that the last poll has lent.
    pub(crate) data_bytes: usize,
    /// Largest put that had better ride in a packet.
    pub(crate) packet_put_bytes_max: usize,
    pub(crate) cells: Cells,
    /// Slots of tracked operations that are free.
    pub(crate) free_tracked: Vec<u32>,
    /// By class.
    pub(crate) lanes: [Lane; CLASSES],
    /// What poll has to say before it asks the provider.
    pub(crate) ready: VecDeque<Completion>,
    /// Flushes that wait for the operations before them, by peer.
    pub(crate) flush_waiters: Vec<(u32, Tag)>,
    pub(crate) peers: Vec<Peer>,
    /// Whether peers listen on a tcp socket at their address.
    pub(crate) peers_listen: bool,
    /// Whether addresses stay in the tables for good, and the endpoint stays open.
    pub(crate) quirks: Quirks,
    /// The question whether a peer still listens, one at a time.
    pub(crate) probe: Option<Probe>,
    /// Peers that are known to be dead, while operations to them may be in flight.
    pub(crate) abandoned: Vec<Abandoned>,
    pub(crate) is_down: bool,
    /// Packets that arrived and were for another endpoint.
    pub(crate) strays: u64,
    pub(crate) wait_fd: Option<i32>,
    pub(crate) wait_fd_settles: bool,
    address: AddressBytes,
    description: Description,
    pub(crate) live: Arc<Live>,
    /// Describes the endpoint's own memory; null where nobody asks for it.
    pub(crate) own_desc: *mut c_void,
    /// Puts that wait for each other.
    pub(crate) gather: Gather,
    /// What operations hold of the program's memory, where that must be registered; closed after the endpoint.
    pub(crate) origins: Option<Box<Origins>>,
}

// SAFETY: the raw pointers are those of `live`, whose handles may move between threads; whoever
// holds the endpoint is its only user.
unsafe impl Send for OfiEndpoint {}

impl OfiEndpoint {
    /// Opens what was chosen, posts the receive buffers, and allocates everything that the endpoint
    /// will ever need except a few bytes for each peer that is connected.
    ///
    /// # Errors
    /// When libfabric refuses; the message names the call and the code.
    pub fn open(choice: &Choice, options: &Options) -> Result<Self, ProviderError> {
        options.check()?;
        let claims = Claims::of(&choice.info, options);
        let sizes = sizes(options, &claims, choice.profile);
        let name = choice.candidate().provider.as_str();
        let domain = Domain::open(&choice.library, &choice.info, name, Ledger::new(claims.registers))?;
        let (cq, wait_fd) = open_queue(&domain, &sizes)?;
        let memory = Memory::new(sizes).ok_or_else(|| no_memory(&sizes))?;
        let (nonce, keys, mr_mode) = (Nonce::draw()?, claims.keys(), claims.mr_mode);
        let own = register_own(&domain, &memory, &claims, nonce)?;
        let links = Links::open(&domain, &choice.info, &cq, name)?;
        let remote_completion = options.remote_completion.unwrap_or(choice.profile.remote_completion);
        let reads_back = remote_completion == RemoteCompletion::ReadBack;
        let read_back =
            reads_back.then(|| ReadBack::open(&domain, &links.target.ep, &claims, nonce)).transpose()?;
        let name_of = |ep: &Ep| address::published(ep.name()?, claims.has_text_addresses);
        let address = address::encode(
            name,
            [&name_of(&links.target.ep)?, &name_of(&links.origin.ep)?],
            Kind { has_region: read_back.is_some(), is_text: claims.has_text_addresses, keys },
            Particulars { nonce, read_back: ReadBack::published(read_back.as_ref(), &claims) },
        )?;
        let live = Live { links, read_back, cq, own, memory, domain, mr_mode, nonce, keys };
        let live = live.shared(choice.profile);
        let wants_atomics = options.native_atomics && claims.has_atomics();
        let (native, atomic_limits) = atomics::query(&live.domain, wants_atomics);
        let limits = limits(&claims, &sizes, remote_completion, choice.profile);
        let mut description =
            Description::new(choice, &claims, &limits, &native, remote_completion, wait_fd.is_some());
        description.memory_bytes = live.memory.bytes();
        let own_desc = live.own.as_ref().map_or(ptr::null_mut(), Mr::desc);
        let origins = claims.registers.then(|| Box::new(Origins::new(&live, own_desc, claims.largest_key())));
        let gather = Gather::new(&limits, choice.profile, options.gather && origins.is_none());
        let mut endpoint = Self {
            limits,
            native,
            atomic_limits: Box::new(atomic_limits),
            ep: live.links.origin.ep.as_ptr(),
            cq: live.cq.as_ptr(),
            put_flags: put_flags(remote_completion),
            whole_put_bytes_max: whole_put_bytes_max(&claims, choice.profile),
            data_bytes: data_bytes(&claims, choice.profile),
            packet_put_bytes_max: packet_put_bytes_max(&sizes, choice.profile),
            cells: Cells::new(),
            flush_reads_back: reads_back,
            free_tracked: (0..sizes.tracked as u32).rev().collect(),
            lanes: Lane::both(&live.links, &sizes),
            // Each tracked slot may leave one entry, each poll a few about peers and errors.
            ready: VecDeque::with_capacity(sizes.tracked + 2 * CompletionBatch::CAPACITY),
            flush_waiters: Vec::with_capacity(sizes.tracked),
            peers: Vec::new(),
            peers_listen: choice.profile.listens_on_tcp,
            quirks: choice.profile.quirks,
            probe: None,
            abandoned: Vec::new(),
            is_down: false,
            strays: 0,
            wait_fd,
            wait_fd_settles: choice.profile.settles(choice.library.version()),
            address,
            description,
            live,
            own_desc,
            gather,
            origins,
        };
        endpoint.post_receives();
        Ok(endpoint)
    }

    /// What this endpoint is, for people.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// How many packets have arrived that were for another endpoint, one that used to listen where this one
    /// does; they were dropped.
    pub fn stray_packets(&self) -> u64 {
        self.strays
    }

    pub(crate) fn own_address(&self) -> AddressBytes {
        self.address
    }

    /// What the slot is for.
    #[inline]
    pub(crate) fn purpose(&self, slot: usize) -> Purpose {
        self.live.memory.sizes().purpose(slot)
    }
}

impl ReadBack {
    fn open(domain: &Arc<Domain>, ep: &Ep, claims: &Claims, nonce: Nonce) -> Result<Self, ProviderError> {
        let words = Words(NonNull::from(Box::leak(Box::new([0; READ_BACK_WORDS]))));
        let bytes = READ_BACK_WORDS * READ_BACK_BYTES;
        let key = claims.largest_key() ^ claims.keys().salt(nonce);
        // The word that is read into is a local buffer like others.
        let access = fi::FI_REMOTE_READ | if claims.registers { fi::FI_READ } else { 0 };
        // SAFETY: the words live until the region is closed.
        let mr = unsafe { register(domain, words.0.cast(), bytes, access, key) }?;
        if claims.mr_mode & fi::FI_MR_ENDPOINT != 0 {
            mr.attach(ep).map_err(|code| crate::error::registration_failed(bytes, code))?;
        }
        Ok(Self { mr, words })
    }

    /// The word that peers read, with the fabric's key.
    fn published(this: Option<&Self>, claims: &Claims) -> ReadBackRegion {
        let Some(Self { mr, words }) = this else { return ReadBackRegion::NONE };
        let base = if claims.mr_mode & fi::FI_MR_VIRT_ADDR != 0 { words.0.as_ptr() as u64 } else { 0 };
        ReadBackRegion { base, key: mr.key() }
    }

    /// Describes both words.
    pub(crate) fn desc(&self) -> *mut c_void {
        self.mr.desc()
    }

    /// Where what is read from a peer goes.
    pub(crate) fn sink(&self) -> *mut u64 {
        // SAFETY: the second of the words.
        unsafe { self.words.0.as_ptr().cast::<u64>().add(1) }
    }
}

#[cold]
fn no_memory(sizes: &Sizes) -> ProviderError {
    let (count, bytes) = (sizes.buffers(), sizes.buffer_bytes());
    ProviderError { message: format!("no memory for {count} packet buffers of {bytes} bytes") }
}

/// Registers what the fabric reads and writes of the endpoint's own memory, where that is to be.
fn register_own(
    domain: &Arc<Domain>,
    memory: &Memory,
    claims: &Claims,
    nonce: Nonce,
) -> Result<Option<Mr>, ProviderError> {
    if !claims.registers {
        return Ok(None);
    }
    let (base, bytes) = memory.shown();
    let access = fi::FI_SEND | fi::FI_RECV | fi::FI_READ | fi::FI_WRITE;
    let key = (claims.largest_key() - 1) ^ claims.keys().salt(nonce);
    // SAFETY: the memory is freed after its region is closed (order of the fields of `Live`).
    unsafe { register(domain, base, bytes, access, key) }.map(Some)
}

/// What the returned `fi_info` says, copied out of it.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) mr_mode: u64,
    pub(crate) key_bytes: usize,
    pub(crate) order: u64,
    pub(crate) order_raw_bytes: usize,
    pub(crate) message_bytes: usize,
    pub(crate) inject_bytes: usize,
    pub(crate) iov_limit: usize,
    pub(crate) rma_iov_limit: usize,
    pub(crate) queue_entries: usize,
    pub(crate) data_progress: fi::fi_progress,
    pub(crate) has_text_addresses: bool,
    pub(crate) data_bytes: usize,
    /// All that libfabric is given is to be registered: claimed, or asked for by the user.
    pub(crate) registers: bool,
}

impl Claims {
    pub(crate) fn of(info: &Info, options: &Options) -> Self {
        // SAFETY: an info that fi_getinfo returned is valid, with all its parts.
        let info = unsafe { &*info.as_ptr() };
        // SAFETY: as above.
        let tx = unsafe { &*info.tx_attr };
        // SAFETY: as above.
        let ep = unsafe { &*info.ep_attr };
        // SAFETY: as above.
        let domain = unsafe { &*info.domain_attr };
        Self {
            caps: info.caps,
            mode: info.mode,
            mr_mode: domain.mr_mode as u64,
            key_bytes: domain.mr_key_size,
            order: tx.msg_order,
            order_raw_bytes: ep.max_order_raw_size,
            message_bytes: ep.max_msg_size,
            inject_bytes: tx.inject_size,
            iov_limit: tx.iov_limit,
            rma_iov_limit: tx.rma_iov_limit,
            queue_entries: tx.size,
            data_progress: domain.data_progress,
            has_text_addresses: info.addr_format == fi::FI_ADDR_STR,
            data_bytes: domain.cq_data_size,
            registers: options.register_buffers || domain.mr_mode as u64 & fi::FI_MR_LOCAL != 0,
        }
    }

    fn has_atomics(&self) -> bool {
        self.caps & fi::FI_ATOMIC != 0
    }

    fn keys(&self) -> Keys {
        if self.mr_mode & fi::FI_MR_PROV_KEY != 0 {
            Keys::OF_PROVIDER
        } else {
            Keys::of_owner(self.key_bytes)
        }
    }

    /// The largest key that fits: users number theirs from below.
    fn largest_key(&self) -> u64 {
        let bits = (self.key_bytes.clamp(1, 4) * 8) as u32;
        (1u64 << bits) - 1
    }
}

/// Tracked operations get what the provider's queue leaves beside the requests, so that those find room
/// there.
fn sizes(options: &Options, claims: &Claims, profile: &Profile) -> Sizes {
    let wanted = options.outstanding.min(profile.outstanding_max);
    let room = claims.queue_entries.saturating_sub(options.send_buffers).max(1);
    let tracked = if claims.queue_entries == 0 { wanted } else { wanted.min(room) };
    Sizes {
        tracked,
        outgoing: options.send_buffers,
        incoming: options.receive_buffers,
        packet_bytes: options.packet_bytes,
        places: if claims.registers { tracked.clamp(VECTOR_PIECES_MAX, PLACES_MAX) } else { 0 },
    }
}

fn limits(claims: &Claims, sizes: &Sizes, completion: RemoteCompletion, profile: &Profile) -> Limits {
    let message_bytes_max = claims.message_bytes.min(MESSAGE_BYTES_MAX);
    let order = if profile.quirks.disorders { 0 } else { claims.order };
    Limits {
        // Injected puts report nothing, not even their loss, on the providers that matter here.
        inject_bytes_max: 0,
        send_bytes_max: sizes.packet_bytes,
        message_bytes_max,
        outstanding_max: sizes.tracked,
        receive_buffers: sizes.incoming,
        order: Order {
            put_before_send: order & fi::FI_ORDER_SAW != 0,
            put_before_get: order & (fi::FI_ORDER_RAW | fi::FI_ORDER_RMA_RAW) != 0
                && claims.order_raw_bytes >= message_bytes_max,
        },
        put_completes: match completion {
            RemoteCompletion::DeliveryComplete => CompletionScope::Remote,
            RemoteCompletion::ReadBack => CompletionScope::Local,
        },
        needs_target_progress: profile.needs_target_progress,
        vector_local_max: vector_max(claims.iov_limit, profile),
        vector_remote_max: vector_max(claims.rma_iov_limit, profile),
    }
}

/// Bytes of data that puts carry: 4 or 8, where that has been seen to keep the contract.
fn data_bytes(claims: &Claims, profile: &Profile) -> usize {
    let takes_buffers = claims.mode & fi::FI_RX_CQ_DATA != 0;
    match claims.data_bytes {
        _ if takes_buffers || !profile.carries_data() => 0,
        8.. => 8,
        4.. => 4,
        _ => 0,
    }
}

/// Largest put that costs as much as a packet with it, and fits one.
fn packet_put_bytes_max(sizes: &Sizes, profile: &Profile) -> usize {
    if profile.writes_cost_packets() {
        sizes.packet_bytes.saturating_sub(PACKET_OVERHEAD)
    } else {
        0
    }
}

/// Largest put that is one piece for the kernel when it is injected.
fn whole_put_bytes_max(claims: &Claims, profile: &Profile) -> usize {
    if profile.sends_short_writes_whole() {
        claims.inject_bytes
    } else {
        0
    }
}

/// How many pieces one put or get may name at a side.
fn vector_max(claimed: usize, profile: &Profile) -> usize {
    if profile.quirks.single_pieces {
        1
    } else {
        claimed.clamp(1, VECTOR_PIECES_MAX)
    }
}

fn put_flags(completion: RemoteCompletion) -> u64 {
    match completion {
        RemoteCompletion::DeliveryComplete => fi::FI_COMPLETION | fi::FI_DELIVERY_COMPLETE,
        RemoteCompletion::ReadBack => fi::FI_COMPLETION,
    }
}

/// A queue with a descriptor to sleep on, or without one where the provider has none.
fn open_queue(domain: &Arc<Domain>, sizes: &Sizes) -> Result<(CompletionQueue, Option<i32>), ProviderError> {
    // An entry for everything that can be in flight, and some for errors: an overrun is fatal.
    let entries = sizes.slots() + CompletionBatch::CAPACITY;
    if let Ok(cq) = CompletionQueue::open(domain, entries, fi::FI_WAIT_FD) {
        let descriptor = cq.wait_fd();
        if descriptor.is_some() {
            return Ok((cq, descriptor));
        }
    }
    CompletionQueue::open(domain, entries, fi::FI_WAIT_NONE).map(|cq| (cq, None))
}

/// Room beside the bytes of a put that rides in a packet: more than headers and a record.
const PACKET_OVERHEAD: usize = 64;

/// Most places for small buffers of the program's.
const PLACES_MAX: usize = 256;

/// Puts and gets of more are split by the engine.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// One word that peers read, one that takes what is read from them.
const READ_BACK_WORDS: usize = 2;

/// Bytes of one word.
pub(crate) const READ_BACK_BYTES: usize = size_of::<u64>();

const _: () = assert!(ADDRESS_BYTES_MAX > address::HEADER_BYTES);
