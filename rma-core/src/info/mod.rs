//! What a program may say about a window when it makes one (MPI-4.1 section 13.2.1): as typed fields, and
//! as MPI's strings.

mod text;

pub use text::WindowInfo;

/// Which accumulate-family operations of one origin on one location keep their order (MPI-4.1 section
/// 13.7.2). A field that is `true` is kept; the default keeps all.
///
/// Implements: accumulate_ordering.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AccumulateOrdering {
    /// Read after read.
    pub rar: bool,
    /// Read after write.
    pub raw: bool,
    /// Write after read.
    pub war: bool,
    /// Write after write.
    pub waw: bool,
}

impl AccumulateOrdering {
    /// Everything is kept: MPI's default.
    pub const STRICT: Self = Self { rar: true, raw: true, war: true, waw: true };

    /// Nothing is kept (`none`).
    pub const NONE: Self = Self { rar: false, raw: false, war: false, waw: false };

    const fn to_bits(self) -> u64 {
        self.rar as u64 | (self.raw as u64) << 1 | (self.war as u64) << 2 | (self.waw as u64) << 3
    }
}

impl Default for AccumulateOrdering {
    fn default() -> Self {
        Self::STRICT
    }
}

/// Which reductions may meet at one location at one time.
///
/// Implements: accumulate_ops.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum AccumulateOps {
    /// The same reduction, and no_op beside it (`same_op_no_op`): MPI's default.
    #[default]
    SameOpNoOp,
    /// The same reduction only (`same_op`), also of one rank's operations between which there is no
    /// synchronization. Reductions that the fabric has go natively then, though it has not all of them;
    /// compare-and-swap counts as a reduction of its own.
    SameOp,
}

/// How a window's private and public copies relate (MPI-4.1 section 13.4).
///
/// Implements: MPI_WIN_MODEL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum MemoryModel {
    /// They are the same memory. What this library always has.
    #[default]
    Unified,
    /// They count as two, so that programs which must also run elsewhere can be checked against the
    /// stricter rules.
    Separate,
}

impl MemoryModel {
    /// MPI's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unified => "unified",
            Self::Separate => "separate",
        }
    }
}

/// How a window is locked (docs/locks.md).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum LockProtocol {
    /// By packets, which the target's process answers.
    #[default]
    Message,
    /// By the fabric's atomics on two words of the target's memory, where every rank's fabric has them; else by
    /// packets.
    Nic,
    /// By such words as well, which each origin changes or asks for by a packet, as suits the target and the epoch: those
    /// of a neighbour always, as in shared memory, and where all ranks reach the words those of others for epochs that
    /// fit no packet. By packets alone where nobody reaches words, or all do but puts and gets need the target's process.
    Auto,
}

impl LockProtocol {
    /// Every protocol.
    pub const ALL: [Self; 3] = [Self::Message, Self::Nic, Self::Auto];

    /// Its name in settings and hints.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Nic => "nic",
            Self::Auto => "auto",
        }
    }

    /// That of a name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
    }
}

/// How a window got its memory.
///
/// Implements: MPI_WIN_CREATE_FLAVOR.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flavor {
    /// The program's memory.
    Create,
    /// The library's memory.
    Allocate,
    /// Memory is attached and detached later.
    Dynamic,
    /// The library's memory, which the ranks of the host load and store directly.
    Shared,
}

impl Flavor {
    /// MPI's word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Allocate => "allocate",
            Self::Dynamic => "dynamic",
            Self::Shared => "shared",
        }
    }
}

/// Kinds of memory that a program uses for its windows and buffers (MPI-4.1 section 12.4.3). Others, such
/// as those of accelerators, are not supported, and so not reported back.
///
/// Implements: mpi_memory_alloc_kinds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct MemoryKinds(u8);

impl MemoryKinds {
    /// The names of the supported kinds, each a bit.
    const NAMES: [&'static str; 5] =
        ["system", "mpi", "mpi:alloc_mem", "mpi:win_allocate", "mpi:win_allocate_shared"];

    /// The supported kinds among those that `list` names, separated by commas.
    pub fn supported_of(list: &str) -> Self {
        Self(list.split(',').filter_map(Self::bit).fold(0, |bits, bit| bits | bit))
    }

    /// The kinds that `list` names, if all of them are supported. An empty list names none.
    pub fn all_of(list: &str) -> Option<Self> {
        if list.trim().is_empty() {
            return Some(Self(0));
        }
        list.split(',').map(Self::bit).try_fold(0, |bits, bit| Some(bits | bit?)).map(Self)
    }

    fn bit(kind: &str) -> Option<u8> {
        Self::NAMES.iter().position(|name| *name == kind.trim()).map(|at| 1 << at)
    }

    /// The names of the kinds.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .into_iter()
            .enumerate()
            .filter(move |(at, _)| self.0 & (1 << at) != 0)
            .map(|(_, name)| name)
    }

    /// Whether none was named.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What the program says about a window when it makes it; the default says nothing.
///
/// Where MPI wants every rank to say the same and they do not, what they said is not in force
/// ([`crate::engine::Engine::window_options`] tells), and the default holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowOptions {
    /// Nobody will lock the window: it has no lock, and lock calls are errors.
    ///
    /// Implements: no_locks.
    pub no_locks: bool,
    /// Which accumulates keep their order.
    pub accumulate_ordering: AccumulateOrdering,
    /// Which reductions meet at one location.
    pub accumulate_ops: AccumulateOps,
    /// Bytes that one atomic update should cover; 0 leaves it to the library. More than the fabric's atomics
    /// cover (8) makes the target's process execute accumulates, a whole packet at a time; less, those of several smaller
    /// elements that are messages.
    ///
    /// Implements: mpi_accumulate_granularity.
    pub accumulate_granularity: u32,
    /// All ranks give the same size, which then need not be compared or asked for.
    ///
    /// Implements: same_size.
    pub same_size: bool,
    /// All ranks give the same displacement unit, which then need not be compared or asked for.
    ///
    /// Implements: same_disp_unit.
    pub same_disp_unit: bool,
    /// The parts of a shared window need not be next to each other: each begins on a page of its own.
    ///
    /// Implements: alloc_shared_noncontig.
    pub alloc_shared_noncontig: bool,
    /// Bytes to whose multiple memory of the library's is aligned at least; what is no power of two is rounded
    /// up to one.
    ///
    /// Implements: mpi_minimum_memory_alignment.
    pub memory_alignment: u32,
    /// The kinds of memory that the program asked for and that are supported.
    pub memory_kinds: MemoryKinds,
    /// The only kinds of memory that this rank's buffers are of, if the program asserts that (MPI-4.1 section
    /// 12.4.3). All that is supported is the host's memory, so nothing is gained by it.
    ///
    /// Implements: mpi_assert_memory_alloc_kinds.
    pub asserted_kinds: Option<MemoryKinds>,
    /// The memory model; `None`: as [`crate::config::Config::memory_model`] says.
    pub model: Option<MemoryModel>,
    /// Whether conflicting accesses are looked for; `None`: as [`crate::config::Config::check`] says.
    pub check: Option<bool>,
    /// How the window is locked; `None`: as [`crate::config::Config::lock_protocol`] says. Of a window that exists:
    /// how it is: [`LockProtocol::Message`] where words were wanted and are not there, and [`LockProtocol::Auto`] where
    /// only neighbours reach them. A window has packets that one rank wants to have packets.
    ///
    /// Implements: ours: rma_lock_protocol.
    pub lock_protocol: Option<LockProtocol>,
}

impl WindowOptions {
    /// What the default of every field says, for a constant.
    pub const DEFAULT: Self = Self {
        no_locks: false,
        accumulate_ordering: AccumulateOrdering::STRICT,
        accumulate_ops: AccumulateOps::SameOpNoOp,
        accumulate_granularity: 0,
        same_size: false,
        same_disp_unit: false,
        alloc_shared_noncontig: false,
        memory_alignment: 0,
        memory_kinds: MemoryKinds(0),
        asserted_kinds: None,
        model: None,
        check: None,
        lock_protocol: None,
    };

    /// What all ranks must say alike, as a number for the agreement.
    pub(crate) fn agreement(&self) -> u64 {
        u64::from(self.no_locks)
            | u64::from(self.same_size) << 1
            | u64::from(self.same_disp_unit) << 2
            | u64::from(self.alloc_shared_noncontig) << 3
            | u64::from(self.accumulate_ops == AccumulateOps::SameOp) << 4
            | self.accumulate_ordering.to_bits() << 8
            | u64::from(self.accumulate_granularity) << 16
    }

    /// Takes back what all ranks must say alike and did not.
    pub(crate) fn disagree(&mut self) {
        let own = *self;
        *self = Self {
            memory_alignment: own.memory_alignment,
            memory_kinds: own.memory_kinds,
            asserted_kinds: own.asserted_kinds,
            model: own.model,
            check: own.check,
            lock_protocol: own.lock_protocol,
            ..Self::DEFAULT
        };
    }
}

impl Default for WindowOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_to_agree_on_changes_the_number() {
        let default = WindowOptions::DEFAULT;
        let changed = [
            WindowOptions { no_locks: true, ..default },
            WindowOptions { same_size: true, ..default },
            WindowOptions { same_disp_unit: true, ..default },
            WindowOptions { alloc_shared_noncontig: true, ..default },
            WindowOptions { accumulate_ops: AccumulateOps::SameOp, ..default },
            WindowOptions { accumulate_ordering: AccumulateOrdering::NONE, ..default },
            WindowOptions { accumulate_granularity: u32::MAX, ..default },
        ];
        for (at, options) in changed.iter().enumerate() {
            assert_ne!(options.agreement(), default.agreement(), "{options:?}");
            assert!(changed[..at].iter().all(|other| other.agreement() != options.agreement()));
            let mut taken_back = *options;
            taken_back.disagree();
            assert_eq!(taken_back, default);
        }
    }

    /// Shows: mpi_memory_alloc_kinds.
    #[test]
    fn only_supported_kinds_are_kept() {
        let kinds = MemoryKinds::supported_of("cuda, mpi:win_allocate,system");
        assert_eq!(kinds.names().collect::<alloc::vec::Vec<_>>(), ["system", "mpi:win_allocate"]);
        assert!(MemoryKinds::supported_of("rocm").is_empty());
        assert_eq!(MemoryKinds::all_of("cuda,system"), None);
        assert_eq!(MemoryKinds::all_of(" mpi , system "), Some(MemoryKinds::supported_of("system,mpi")));
        assert_eq!(MemoryKinds::all_of(""), Some(MemoryKinds::default()));
    }
}
