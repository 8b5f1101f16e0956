//! What a random run consists of, as plain data: windows, and for each phase the part of every rank.

use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::Change;
use rma_core::info::WindowOptions;
use rma_core::op::ReduceOp;

use crate::fabric::FabricConfig;
use crate::world::Schedule;

/// Most threads of a rank.
pub const THREADS_MAX: usize = 3;

/// One run, complete: the same plan runs the same way.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// What it was drawn from.
    pub seed: u64,
    /// The fabric.
    pub fabric: FabricConfig,
    /// The engines' settings, the same at all ranks.
    pub config: Config,
    /// The order of events.
    pub schedule: Schedule,
    /// Windows, all created at the start.
    pub windows: Vec<WindowPlan>,
    /// One after the other; all ranks meet between two of them.
    pub phases: Vec<Phase>,
}

/// A window, with each rank's part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WindowPlan {
    /// Bytes at each rank; 0 is legal.
    pub bytes: Vec<usize>,
    /// Displacement unit of each rank, in bytes.
    pub disp_unit: Vec<u32>,
    /// The library allocates the memory.
    pub is_allocated: bool,
    /// The window is made without memory: each rank attaches regions of its own, and detaches them.
    pub is_dynamic: bool,
    /// The ranks load and store each other's memory directly.
    pub is_shared: bool,
    /// The memory is that of another window.
    pub over: Option<Over>,
    /// What the program says about it.
    pub options: WindowOptions,
}

/// Where a window lies that has its memory in common with another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Over {
    /// The other, which was made before, of memory of its own.
    pub window: usize,
    /// Bytes of the other one's in front.
    pub skip: usize,
}

/// What all ranks do between two meetings.
#[derive(Clone, PartialEq, Debug)]
pub struct Phase {
    /// For people.
    pub name: &'static str,
    /// Stores by the owners before it begins.
    pub stores: Vec<Store>,
    /// Who may do what where. Nothing else is touched.
    pub spans: Vec<Span>,
    /// The part of each rank.
    pub scripts: Vec<Vec<Action>>,
}

/// A store by a rank to its own window memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Store {
    /// Which window.
    pub window: usize,
    /// At which rank.
    pub rank: u32,
    /// First byte.
    pub offset: usize,
    /// What is stored.
    pub bytes: Vec<u8>,
}

/// A span of one rank's window memory and the use that a phase makes of it. Spans do not overlap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Which window.
    pub window: usize,
    /// At which rank.
    pub rank: u32,
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    /// The use.
    pub role: Role,
    /// In a phase of several fences: which half of the epochs uses it (epochs of equal parity). In one of
    /// post and start: which round.
    pub parity: u8,
}

/// The uses of a span for which MPI defines the outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Only this rank accesses it, in any way: its values are known at every moment.
    Owned(u32),
    /// Everybody accumulates with one commutative reduction: the value at the end is known.
    Shared(Dtype, ReduceOp),
    /// A `u64` to which everybody fetches-and-adds 1: every old value is seen once.
    Ticket,
    /// A `u64` on which everybody compares-and-swaps unique values: the swaps form one chain.
    Swap,
    /// A `u64` incremented by get and put, or load and store, under an exclusive lock: no increment is lost.
    Counter,
    /// Everybody reads.
    ReadOnly,
    /// A `u64` that counts this rank's notified puts to the rest of the span, each to a place of its own.
    Noted(u32),
    /// Not attached: what this rank tries is an error, and changes nothing.
    Absent(u32),
    /// A region that is detached in the phase. What this rank tries is done, or is an error. From the moment at
    /// which detach returns the memory is its owner's alone.
    Vanishing(u32),
}

/// One call of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// `fence`.
    Fence {
        /// Which window.
        window: usize,
        /// Its assertions.
        assertions: FenceAssertions,
        /// The epochs of this parity are complete when it returns.
        closes: Option<u8>,
    },
    /// `lock`.
    Lock {
        /// Which window.
        window: usize,
        /// Which rank.
        target: u32,
        /// Exclusive, not shared.
        is_exclusive: bool,
        /// No conflicting lock is held or asked for.
        no_check: bool,
    },
    /// `unlock`.
    Unlock {
        /// Which window.
        window: usize,
        /// Which rank.
        target: u32,
    },
    /// `lock_all`.
    LockAll {
        /// Which window.
        window: usize,
        /// No conflicting lock is held or asked for.
        no_check: bool,
    },
    /// `unlock_all`.
    UnlockAll {
        /// Which window.
        window: usize,
    },
    /// `post`.
    Post {
        /// Which window.
        window: usize,
        /// The origins.
        group: Members,
        /// The origins start after it, with the same promise.
        no_check: bool,
    },
    /// `start`.
    Start {
        /// Which window.
        window: usize,
        /// The targets.
        group: Members,
        /// The targets have posted with the same promise.
        no_check: bool,
    },
    /// `complete`.
    Complete {
        /// Which window.
        window: usize,
    },
    /// `wait`.
    Wait {
        /// Which window.
        window: usize,
        /// The spans of this parity are as the origins have left them when it returns.
        closes: u8,
        /// `test`, again and again.
        by_test: bool,
    },
    /// The four flushes.
    Flush {
        /// Which window.
        window: usize,
        /// Which rank; `None`: all.
        target: Option<u32>,
        /// Only at the origin.
        is_local: bool,
    },
    /// Flush of several ranks.
    FlushTargets {
        /// Which window.
        window: usize,
        /// Which ranks.
        targets: Members,
    },
    /// A flush that nobody waits for, with a request.
    RequestFlush {
        /// Which window.
        window: usize,
        /// Which rank; `None`: all.
        target: Option<u32>,
        /// Only at the origin.
        is_local: bool,
    },
    /// Waits for requests.
    Await {
        /// For which of those that were not reported done.
        which: Which,
        /// `test`, again and again.
        by_test: bool,
    },
    /// What follows is ordered behind what was posted.
    Order {
        /// Which window.
        window: usize,
        /// Which rank; `None`: all.
        target: Option<u32>,
    },
    /// Waits for notified puts to this rank.
    AwaitNotice {
        /// Which window.
        window: usize,
        /// Which span of the phase, at whose beginning the word is.
        span: usize,
        /// The word's first byte.
        offset: usize,
        /// Until the word is so much.
        until: u64,
    },
    /// `attach`.
    Attach {
        /// Which window.
        window: usize,
        /// The region's first byte.
        offset: usize,
        /// Bytes.
        len: usize,
    },
    /// `detach`.
    Detach {
        /// Which window.
        window: usize,
        /// The region's first byte.
        offset: usize,
        /// A span that the owner overwrites when the call has returned.
        overwrites: Option<usize>,
    },
    /// Threads: so many of the following actions are each one's, those of one behind those of another. The rank
    /// goes on behind them when all are done. The first thread goes on with the requests of the rank.
    Fork {
        /// Actions of each thread.
        lengths: [usize; THREADS_MAX],
    },
    /// A load from memory that is shared, by this rank: complete at once.
    Load {
        /// What is loaded.
        at: DirectPlan,
        /// It must be what its rank has stored there from this seed; `None`: what this rank has left.
        stored: Option<u64>,
    },
    /// A store to such memory, as complete.
    Store {
        /// What is stored to.
        at: DirectPlan,
        /// What is stored.
        payload: Payload,
    },
    /// `sync`.
    Sync {
        /// Which window.
        window: usize,
    },
    /// An operation.
    Operation(OperationPlan),
    /// Computation: the rank is away for so many steps, without a call to the library.
    Away(u32),
}

/// Which of a rank's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// Every one (MPI_Waitall, MPI_Testall).
    All,
    /// Whichever is done first (MPI_Waitany, MPI_Testany).
    Any,
    /// That which was made first.
    Oldest,
    /// That which was made last.
    Newest,
}

/// A group of ranks below 256, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Members([u64; 4]);

impl Members {
    /// Ranks that can be members.
    pub const RANKS_MAX: u32 = 4 * u64::BITS;

    /// Whether the rank is one of them.
    pub fn contains(self, rank: u32) -> bool {
        self.0[(rank / u64::BITS) as usize] >> (rank % u64::BITS) & 1 != 0
    }

    /// Makes a rank a member.
    pub fn insert(&mut self, rank: u32) {
        self.0[(rank / u64::BITS) as usize] |= 1 << (rank % u64::BITS);
    }

    /// Makes a rank none.
    pub fn remove(&mut self, rank: u32) {
        self.0[(rank / u64::BITS) as usize] &= !(1 << (rank % u64::BITS));
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// All of them, lowest first.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..Self::RANKS_MAX).filter(move |&rank| self.contains(rank))
    }
}

/// MPI's assertions of a fence.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[allow(missing_docs)] // MPI's names
pub struct FenceAssertions {
    pub no_store: bool,
    pub no_put: bool,
    pub no_precede: bool,
    pub no_succeed: bool,
}

/// The operations of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // MPI's names
pub enum Verb {
    Put,
    Get,
    Accumulate,
    GetAccumulate,
    FetchAndOp,
    CompareAndSwap,
}

impl Verb {
    /// Whether bytes come back to the origin.
    pub fn has_result(self) -> bool {
        !matches!(self, Self::Put | Self::Accumulate)
    }
}

/// One operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationPlan {
    /// What it does.
    pub verb: Verb,
    /// Which window.
    pub window: usize,
    /// Which rank.
    pub target: u32,
    /// First byte at the target.
    pub offset: usize,
    /// Bytes at the target.
    pub len: usize,
    /// Of its elements.
    pub dtype: Dtype,
    /// Of accumulates.
    pub op: ReduceOp,
    /// Which span of the phase it is inside of.
    pub span: usize,
    /// What it writes.
    pub payload: Payload,
    /// How it is called.
    pub form: Form,
}

/// Memory of a shared window that a rank loads or stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectPlan {
    /// Which window.
    pub window: usize,
    /// Whose part.
    pub target: u32,
    /// First byte there.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    /// Which span of the phase it is inside of.
    pub span: usize,
}

/// How an operation is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The calls of its epoch complete it.
    Plain,
    /// With a request.
    Request,
    /// A put that changes a word behind its data.
    Notified {
        /// The word's first byte.
        word: usize,
        /// What becomes of it.
        change: Change,
    },
}

/// Where the written bytes come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// Chance: any bytes for puts, small numbers for arithmetic.
    Seed(u64),
    /// One `u64`.
    Number(u64),
    /// One more than the `u64` that this rank got last.
    LastResultPlusOne,
}
