//! The rules that errors name: what is demanded of a program, and where MPI-4.1 demands it.

macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $section:expr;)+) => {
        /// A rule of the one-sided chapter (MPI-4.1 chapter 13), of what it builds upon, or of this library, that a
        /// call broke.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum Rule { $($(#[$doc])* $variant),+ }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// What the rule demands; of epochs also what to do.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Where MPI-4.1 states it; of what MPI does not have, that it is this library's own.
            pub const fn section(self) -> &'static str {
                match self { $(Self::$variant => $section),+ }
            }
        }
    };
}

/// Of calls and limits that MPI does not have.
const OWN: &str = "not MPI's but this library's";

rules! {
    // Those that have to do with epochs.

    /// An operation needs an open access epoch.
    NoEpoch = "an operation needs an open access epoch; call fence, start, lock or lock_all first",
        "MPI-4.1 section 13.5";
    /// In a lock epoch an operation may go only to ranks that were locked.
    NotLocked = "in a lock epoch operations may go only to locked ranks; lock this rank first, or use lock_all",
        "MPI-4.1 section 13.5.3";
    /// A rank that is locked must be unlocked before it is locked again.
    AlreadyLocked = "this rank is locked already by this process; unlock it first",
        "MPI-4.1 section 13.5.3";
    /// This call cannot open an epoch while another is open.
    OtherEpochOpen = "another epoch is open on this window (the state names its kind); close it first",
        "MPI-4.1 section 13.5";
    /// The call closes or completes an epoch of a kind that is not open.
    NoSuchEpoch = "there is no such epoch to close; the opening call (lock, lock_all, start, post) is missing",
        "MPI-4.1 section 13.5";
    /// Flush calls belong to passive-target epochs.
    FlushOutsidePassive = "flush needs a lock or lock_all epoch; other epochs complete operations by the call that \
        closes them (fence, complete)",
        "MPI-4.1 section 13.5.4";
    /// Operations with a request belong to passive-target epochs.
    RequestOutsidePassive = "operations with a request need a lock or lock_all epoch; use put, get and the others here",
        "MPI-4.1 section 13.3.5";
    /// A fence that promises that nothing precedes was called with operations outstanding.
    NoPrecedeBroken = "NOPRECEDE promises that no operation was issued since the last fence, but some were; drop the \
        assertion",
        "MPI-4.1 section 13.5.5";
    /// A window may be freed only when no epoch is open on it.
    FreeInsideEpoch = "close the open epoch (unlock, unlock_all, complete, wait, or a fence with NOSUCCEED) before \
        freeing the window",
        "MPI-4.1 section 13.2.5";
    /// Another call of this kind on the window has not finished.
    Busy = "a synchronization call on this window is not over: another thread is in it, or it took longer than its limit \
        (RMA_TIMEOUT); wait for it, or call it again",
        "MPI-4.1 section 13.5";
    /// The window was made with the promise that nobody locks it.
    NoLocks = "the window was made with no_locks, so that it has no lock; make it without",
        "MPI-4.1 section 13.2.1";
    /// sync belongs to passive-target epochs, and to windows of shared memory.
    SyncOutsidePassive = "sync needs a lock or lock_all epoch, unless the window's memory is shared",
        "MPI-4.1 section 13.5.4";
    /// In a start epoch an operation may go only to the group's members.
    NotInGroup = "after start operations may go only to the ranks of its group; put this rank into the group",
        "MPI-4.1 section 13.5.2";
    /// Exposure epochs on one window do not overlap, whichever calls open them.
    ExposureOpen = "post has opened an exposure epoch on this window; close it first, by wait or by test until it is \
        true",
        "MPI-4.1 section 13.5";
    /// A rank must not expose its window by post while anybody has it locked, nor lock it itself while it is exposed.
    /// Locks of other ranks are not refused meanwhile.
    LockedAndExposed = "a rank must not expose its own window by post while the window is locked, nor lock it while it \
        is exposed; have it unlocked, or wait, first",
        "MPI-4.1 section 13.5.3";
    /// What is unlocked was locked.
    LockHeld = "unlock releases a lock that the process has",
        "MPI-4.1 section 13.5.3";
    /// A start with NOCHECK promises that the targets have posted.
    StartChecked = "start with NOCHECK promises that every target has called post, with NOCHECK too",
        "MPI-4.1 section 13.5.5";
    /// Accesses that conflict have synchronization between them.
    NoConflict = "a location that is put to or stored to is not accessed otherwise in the same epoch; accumulates of one \
        type and reduction may meet",
        "MPI-4.1 section 13.7";
    /// A post or fence with NOPUT promises that nobody puts.
    NoPutKept = "NOPUT promises that the window is not put or accumulated to until wait or the next fence",
        "MPI-4.1 section 13.5.5";
    /// The calls of several ranks that belong together are made by all of them.
    OthersCall = "a blocking call ends when the ranks that it waits for have made the calls that match it",
        "MPI-4.1 section 13.7.3";

    // Making windows and freeing them.

    /// All ranks make the same collective calls, in the same order.
    SameCalls = "windows are made and freed by the same call at every rank, in the same order",
        "MPI-4.1 section 13.2";
    /// What one rank cannot do fails everywhere.
    AllRanksOrNone = "a collective call is one call of all ranks: what one cannot do, none does",
        "MPI-4.1 section 13.2";
    /// A window with a size has a base.
    BaseThere = "memory of a length that is not 0 has an address",
        "MPI-4.1 section 13.2.1";
    /// Memory of a window can be addressed.
    SizeFits = "a window's size is that of memory that can be there",
        "MPI-4.1 section 13.2.1";
    /// A displacement unit counts bytes.
    UnitPositive = "a displacement unit is a positive number of bytes",
        "MPI-4.1 section 13.2.1";
    /// same_size promises that.
    SameSize = "with same_size every rank gives the same size",
        "MPI-4.1 section 13.2.1";
    /// same_disp_unit promises that.
    SameUnit = "with same_disp_unit every rank gives the same displacement unit",
        "MPI-4.1 section 13.2.1";
    /// A known info key has a value out of those that it can have.
    InfoValue = "a key that is known takes the values that are listed for it",
        "MPI-4.1 section 13.2.1";
    /// Memory could be had.
    MemoryThere = "every rank has memory for its part of the window",
        "MPI-4.1 section 13.2.2";
    /// The ranks of a host share memory.
    HostShares = "in a window of shared memory the ranks of each host have memory that all of them can map",
        "MPI-4.1 section 13.2.3";
    /// What is asked where there is no shared memory.
    HasOwnMemory = "shared_query is for windows that are made with memory",
        "MPI-4.1 section 13.2.3";
    /// Regions belong to dynamic windows.
    DynamicWindow = "attach and detach are for windows that are made by create_dynamic",
        "MPI-4.1 section 13.2.4";
    /// Memory is attached once.
    AttachedOnce = "memory is attached that is valid, and no part of it, and no region that begins there, is attached already",
        "MPI-4.1 section 13.2.4";
    /// What is detached was attached.
    DetachAttached = "detach takes the base of a region that is attached",
        "MPI-4.1 section 13.2.4";
    /// Windows end before the job.
    FreeBeforeEnd = "every window is freed, outside of epochs, before the job ends",
        "MPI-4.1 section 13.2.5";
    /// A window is used while it exists.
    WindowExists = "a window is used between the call that makes it and the one that frees it",
        "MPI-4.1 section 13.2.5";

    // Operations and their arguments.

    /// An access is inside of the target's window.
    InsideWindow = "an access lies inside of the memory that the target gave to the window",
        "MPI-4.1 section 13.3";
    /// A rank's own loads and stores are inside of its window.
    OwnMemory = "a rank's loads and stores lie inside of its own part of the window",
        "MPI-4.1 section 13.4";
    /// An access to a dynamic window is inside of what is attached.
    InsideRegion = "an access to a dynamic window lies inside of one region that is attached at the target",
        "MPI-4.1 section 13.2.4";
    /// A target is a rank.
    RankOfWindow = "a target is a rank of the window, or, of an operation, Rank::NULL",
        "MPI-4.1 section 13.3";
    /// Members of groups are ranks.
    GroupOfRanks = "the members of a group are ranks of the job",
        "MPI-4.1 section 7.3.2";
    /// Members of groups are distinct.
    GroupDistinct = "the members of a group are distinct",
        "MPI-4.1 section 7.3.2";
    /// Data are whole elements.
    WholeElements = "an operation moves a whole number of elements, as many at its origin as at its target",
        "MPI-4.1 section 13.3";
    /// Buffers hold the operation's data.
    BuffersFit = "the buffers hold all data of the operation",
        "MPI-4.1 section 13.3";
    /// A compare-and-swap is of one element.
    OneElement = "compare_and_swap is of one element of a predefined type",
        "MPI-4.1 section 13.3.4";
    /// Accumulates are of one predefined type.
    OneType = "an accumulate's elements are of one predefined type, the same at origin and target",
        "MPI-4.1 section 13.3.4";
    /// Only a call that returns something reads only.
    NoOpFetches = "no_op is for the calls that return what was there, and only it goes without origin data",
        "MPI-4.1 section 13.3.4";
    /// Compare-and-swap is of integers, logical values and bytes.
    SwapType = "compare_and_swap is defined for integers, logical values and bytes",
        "MPI-4.1 section 13.3.4";
    /// Reductions are defined for some types.
    DefinedReduction = "accumulates take predefined reductions, and types for which they are defined",
        "MPI-4.1 sections 13.3.4, 6.9.2 and 6.9.4";
    /// A layout can be described.
    LayoutFits = "a layout's counts and displacements describe bytes that memory can have",
        "MPI-4.1 section 5.1";
    /// Requests that are waited for are of one job, the one that is asked.
    OneJob = "requests that are waited for together belong to one job, the one that is asked",
        "MPI-4.1 section 3.7.5";

    // What MPI does not have.

    /// A notified word is where the processor's atomics can reach it.
    AlignedWord = "a word that is notified lies at a multiple of 8 bytes", OWN;
    /// Settings have limits.
    SettingInLimits = "sizes of tables and pools are at most their limits", OWN;
}
