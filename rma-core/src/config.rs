//! What the user may set: the optimizations' switches, thresholds, and the sizes of everything.

use crate::error::{Call, RmaError};
use crate::info::{LockProtocol, MemoryModel};

/// Most elements, slots, records, waiters, peers or members of one kind. With this many of one kind joining a job takes
/// about a second longer, and elements take hundreds of MiB; more are a mistake, not a wish.
pub const THINGS_MAX: u32 = 1 << 20;

/// Largest threshold, in bytes: far above every size from which on another way of doing the same pays.
pub const THRESHOLD_BYTES_MAX: usize = 16 << 20;

/// Largest ring, in bytes, that a window has for operations that wait with their lock request: every window has one.
pub const DEFERRED_BYTES_MAX: usize = 16 << 20;

/// Most reply buffers. Each is a packet, which may have 64 KiB: together they are 256 MiB then.
pub const REPLY_BUFFERS_MAX: usize = 4096;

/// Settings of an engine and of the windows made with it. Every switch only changes cost, never
/// results. Sizes above their limits are refused when a job is joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// LOCK, operations and UNLOCK travel in one packet when they fit (`RMA_SINGLE_OP_LOCK`).
    pub single_op_lock: bool,
    /// DONE and UNLOCK ride on the last packet of operations, or follow native ones without waiting
    /// where the fabric keeps them behind (`RMA_PIGGYBACK`).
    ///
    /// Implements: seed: piggyback RMA_DONE.
    pub piggyback: bool,
    /// UNLOCK and COMPLETE are the data of the epoch's last native put, where the fabric carries data with puts
    /// (`RMA_PUT_DATA`). Only with [`Config::piggyback`]. `None`: where a put costs the fabric as much as a packet
    /// ([`Endpoint::puts_cost_packets`](crate::provider::Endpoint::puts_cost_packets)); an engine's own is never so.
    ///
    /// Implements: ours: put with data.
    pub put_data: Option<bool>,
    /// Most operations kept back for one packet (`RMA_PIGGYBACK_THRESHOLD`).
    ///
    /// Implements: seed: piggyback_threshold.
    ///
    /// At most [`THINGS_MAX`].
    pub piggyback_threshold: u32,
    /// Several small operations of one epoch share a packet (`RMA_COALESCE`).
    ///
    /// Implements: seed: RMA_COALESCE.
    pub coalesce: bool,
    /// GETs go to the end of an epoch's packet so that their reply carries the acknowledgement
    /// (`RMA_GET_TO_TAIL`).
    ///
    /// Implements: seed: GET to tail.
    pub get_to_tail: bool,
    /// Target elements stay until the epoch ends or somebody needs them (`RMA_LAZY_TARGETS`).
    ///
    /// Implements: seed: lazy deallocation.
    pub lazy_targets: bool,
    /// Put, get and atomics travel as packets even where the fabric could do them
    /// (`RMA_FORCE_MESSAGE_PATH`).
    pub force_message_path: bool,
    /// Largest payload, in bytes, of an operation that may be kept back and share a packet (`RMA_SINGLE_OP_THRESHOLD`).
    /// Puts wait up to a packet's size where the fabric's own take a round trip more.
    ///
    /// Implements: seed: single_op_opt_threshold.
    ///
    /// At most [`THRESHOLD_BYTES_MAX`].
    pub small_bytes_max: usize,
    /// Smallest average piece, in bytes, of a put or get with layouts that the fabric moves piece by piece;
    /// smaller ones are packed, and unpacked by the target's process (`RMA_NATIVE_BLOCK_BYTES`).
    ///
    /// At most [`THRESHOLD_BYTES_MAX`].
    pub native_block_bytes_min: usize,
    /// Smallest put or get, in bytes, that goes natively to a region of a dynamic window, and smallest region
    /// that is registered for it (`RMA_NATIVE_REGION_BYTES`).
    ///
    /// At most [`THRESHOLD_BYTES_MAX`].
    pub native_region_bytes_min: usize,
    /// Regions of other ranks that each dynamic window remembers how to access (`RMA_REGION_RECORDS`), at
    /// least 1; the oldest makes room.
    ///
    /// At most [`THINGS_MAX`].
    pub region_records: usize,
    /// Ranks that may access the regions of a dynamic window at this rank natively (`RMA_REGION_HOLDERS`);
    /// the others use messages.
    ///
    /// At most [`THINGS_MAX`].
    pub region_holders: usize,
    /// Slots of the operation table of each window (`RMA_SLOTS`), at least 1.
    ///
    /// At most [`THINGS_MAX`].
    pub slots: usize,
    /// Operation elements of each window (`RMA_OPERATION_POOL`), at least 1.
    ///
    /// At most [`THINGS_MAX`].
    pub operation_pool: u32,
    /// Operation elements shared by all windows (`RMA_OPERATION_POOL_GLOBAL`).
    ///
    /// At most [`THINGS_MAX`].
    pub operation_pool_global: u32,
    /// Target elements of each window (`RMA_TARGET_POOL`), at least 1.
    ///
    /// At most [`THINGS_MAX`].
    pub target_pool: u32,
    /// Target elements shared by all windows (`RMA_TARGET_POOL_GLOBAL`).
    ///
    /// At most [`THINGS_MAX`].
    pub target_pool_global: u32,
    /// Lock requests that may wait at one window (`RMA_LOCK_WAITERS`); more are told to ask again.
    ///
    /// At most [`THINGS_MAX`].
    pub lock_waiters: usize,
    /// Post notices that a window keeps until start (`RMA_NOTICES`); a start asks for those that found no
    /// room.
    ///
    /// At most [`THINGS_MAX`].
    pub notices: usize,
    /// Members of the largest group for which a window has room from the beginning (`RMA_GROUP_MEMBERS`). A
    /// larger group makes room when it is used for the first time.
    ///
    /// At most [`THINGS_MAX`].
    pub group_members: usize,
    /// Bytes, at one window, for operations that came with a lock request that has to wait.
    ///
    /// At most [`DEFERRED_BYTES_MAX`].
    pub deferred_bytes: usize,
    /// Peers whose address is kept (`RMA_PEERS`); the least recently used one makes room.
    ///
    /// At most [`THINGS_MAX`].
    pub peers: usize,
    /// Packets that may wait at this process for room in the fabric, as a target.
    ///
    /// At most [`REPLY_BUFFERS_MAX`].
    pub reply_buffers: usize,
    /// Windows look for conflicting accesses, unless their options say otherwise (`RMA_CHECK`).
    pub check: bool,
    /// The memory model of windows whose options do not say (`RMA_MEMORY_MODEL`).
    pub memory_model: MemoryModel,
    /// How windows are locked whose options do not say (`RMA_LOCK_PROTOCOL`). By itself an engine takes messages, which
    /// every fabric has; the setting is [`LockProtocol::Auto`] unless something else is said.
    pub lock_protocol: LockProtocol,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            single_op_lock: true,
            piggyback: true,
            put_data: None,
            piggyback_threshold: 64,
            coalesce: true,
            get_to_tail: true,
            lazy_targets: true,
            force_message_path: false,
            small_bytes_max: 2048,
            native_block_bytes_min: 512,
            native_region_bytes_min: 16 << 10,
            region_records: 64,
            region_holders: 64,
            slots: 64,
            operation_pool: 128,
            operation_pool_global: 256,
            target_pool: 32,
            target_pool_global: 128,
            lock_waiters: 64,
            notices: 32,
            group_members: 1024,
            deferred_bytes: 8192,
            peers: 1024,
            reply_buffers: 16,
            check: false,
            memory_model: MemoryModel::Unified,
            lock_protocol: LockProtocol::Message,
        }
    }
}

impl Config {
    /// Every optimization off: what the epochs cost without the design's ideas.
    pub fn all_off() -> Self {
        Self {
            single_op_lock: false,
            piggyback: false,
            put_data: Some(false),
            coalesce: false,
            get_to_tail: false,
            lazy_targets: false,
            ..Self::default()
        }
    }

    /// The same with every size raised to the least that works.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        self.slots = self.slots.max(1);
        self.operation_pool = self.operation_pool.max(1);
        self.target_pool = self.target_pool.max(1);
        self.lock_waiters = self.lock_waiters.max(1);
        self.region_records = self.region_records.max(1);
        self.peers = self.peers.max(2);
        self.reply_buffers = self.reply_buffers.max(1);
        self.piggyback_threshold = self.piggyback_threshold.max(1);
        self
    }

    /// Whether no size is above its limit.
    ///
    /// # Errors
    /// [`RmaError::Setting`] of the first that is.
    pub fn check(&self) -> Result<(), RmaError> {
        let things = THINGS_MAX as usize;
        let sizes = [
            ("piggyback_threshold (RMA_PIGGYBACK_THRESHOLD)", self.piggyback_threshold as usize, things),
            ("small_bytes_max (RMA_SINGLE_OP_THRESHOLD)", self.small_bytes_max, THRESHOLD_BYTES_MAX),
            (
                "native_block_bytes_min (RMA_NATIVE_BLOCK_BYTES)",
                self.native_block_bytes_min,
                THRESHOLD_BYTES_MAX,
            ),
            (
                "native_region_bytes_min (RMA_NATIVE_REGION_BYTES)",
                self.native_region_bytes_min,
                THRESHOLD_BYTES_MAX,
            ),
            ("region_records (RMA_REGION_RECORDS)", self.region_records, things),
            ("region_holders (RMA_REGION_HOLDERS)", self.region_holders, things),
            ("slots (RMA_SLOTS)", self.slots, things),
            ("operation_pool (RMA_OPERATION_POOL)", self.operation_pool as usize, things),
            (
                "operation_pool_global (RMA_OPERATION_POOL_GLOBAL)",
                self.operation_pool_global as usize,
                things,
            ),
            ("target_pool (RMA_TARGET_POOL)", self.target_pool as usize, things),
            ("target_pool_global (RMA_TARGET_POOL_GLOBAL)", self.target_pool_global as usize, things),
            ("lock_waiters (RMA_LOCK_WAITERS)", self.lock_waiters, things),
            ("notices (RMA_NOTICES)", self.notices, things),
            ("group_members (RMA_GROUP_MEMBERS)", self.group_members, things),
            ("deferred_bytes", self.deferred_bytes, DEFERRED_BYTES_MAX),
            ("peers (RMA_PEERS)", self.peers, things),
            ("reply_buffers", self.reply_buffers, REPLY_BUFFERS_MAX),
        ];
        match sizes.into_iter().find(|(_, asked, most)| asked > most) {
            Some((name, asked, most)) => Err(RmaError::Setting { call: Call::Init, name, asked, most }),
            None => Ok(()),
        }
    }
}
