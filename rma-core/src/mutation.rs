//! Deliberate mistakes in the protocols, to see that the tests find them (docs/model-checking.md).
//!
//! Without the feature `mutations`, which no build but `ci/mutations.sh` asks for, [`Mutation::is_on`] is the
//! constant `false`, and nothing of this is left in the library.

#[cfg(feature = "mutations")]
use core::sync::atomic::{AtomicUsize, Ordering};

macro_rules! mutations {
    ($($(#[doc = $what:literal])+ $name:ident),+ $(,)?) => {
        /// A mistake. What each does is also its description in the table.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutation { $($(#[doc = $what])+ $name),+ }

        #[cfg(feature = "mutations")]
        impl Mutation {
            /// Every mistake.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// What it does.
            pub const fn what(self) -> &'static str {
                match self { $(Self::$name => concat!($($what),+)),+ }
            }
        }
    };
}

mutations! {
    /// A lock is granted while somebody else holds it exclusively.
    LockAdmitsTwo,
    /// A released lock stays held.
    ReleaseForgotten,
    /// Requests of lock_all wait behind exclusive ones that only wait.
    NoOvertaking,
    /// Requests of lock_all pass an exclusive holder too.
    OvertakesHolder,
    /// One's own window is locked without asking who holds it.
    SelfLockUnasked,
    /// Operations that were refused with their lock request count as executed.
    RetryLosesOperations,
    /// Operations that were not kept while the request waited count as executed.
    NotKeptCountsAsExecuted,
    /// Operations that come back with a refused request are pending in reverse order.
    TakeBackReversed,
    /// UNLOCK leaves while native operations are under way.
    UnlockOvertakesPuts,
    /// The data of a put, which release a lock, pass the puts before it.
    DataOvertakePuts,
    /// A put that is complete at the origin counts as complete at the target.
    LocalCountsAsRemote,
    /// Any answer acknowledges every DONE that was sent.
    DoneAckedByAnything,
    /// Nobody waits for acknowledgements to the window.
    DetachedAckIgnored,
    /// The walk of lock_all is over when everybody was asked.
    WalkIgnoresAnswers,
    /// A rank that was too busy for the walk is not asked again.
    WalkForgetsRetry,
    /// That a lock needs no check is forgotten while its target has no element.
    UncheckedLockForgotten,
    /// Nothing is let go when operation elements run out.
    PressureIgnored,
    /// A fence does not wait for its operations.
    FenceSkipsFlush,
    /// Operations of a fence epoch leave before everybody has come.
    FenceIssuesEarly,
    /// A barrier's slot is not emptied before it is used again.
    BarrierSlotReused,
    /// A neighbour is asked for an atomic though packets with others are under way to it.
    AskedPastPackets,
    /// What a neighbour's word said of a barrier counts for the next one, too.
    NeighbourHeardTwice,
    /// What a neighbour's word said of an epoch of post and start counts for the next one, too.
    NeighbourWordKept,
    /// Everything with a result goes to the end of the packet, not only gets.
    AccumulatesToTail,
    /// Operations are pending in reverse order.
    PendingReversed,
    /// A COMPLETE that arrives is not counted.
    CompleteNotCounted,
    /// wait is over when all members but one have completed.
    WaitMissesOne,
    /// Operations leave for a target that has not posted.
    OperationsBeforePost,
    /// A notice of the target's next exposure epoch is taken for one more of this.
    NextNoticeLost,
    /// Who has completed is told, when it asks, that the window is exposed to it.
    CompletedAnsweredAgain,
    /// The answer to a question of an earlier epoch grants this one.
    AnswerOfAnyEpoch,
    /// A request is done when its operation was issued.
    RequestDoneEarly,
    /// An operation that is pending alone leaves whatever is under way before it.
    AloneOvertakes,
    /// Results and acknowledgements let nothing else go on.
    AnswersMoveNothing,
    /// A flush with a request is over when nothing is under way, whatever is pending before it.
    MarkForgetsPending,
    /// The notification of a native put does not wait for its data.
    NoteBeforeData,
    /// A notification without data passes those of native puts before it.
    NotesOvertake,
    /// Order calls do nothing.
    OrderIgnored,
    /// What a flush wants is not said again when that of another thread has ended.
    FlushNotRepeated,
    /// A region's registration is closed while others have records of it.
    DetachUnwaited,
    /// A record that was taken back is used on.
    RevokedRecordKept,
    /// Records are given back while the fabric uses them.
    RevokeAnsweredEarly,
    /// The failure of a peer is noted and its operations are not ended.
    DeathIgnored,
    /// An operation waits for room in a fence epoch that a death keeps from its beginning.
    RoomAwaitedFromDead,
    /// A fence waits for ever for a rank that has died.
    FenceAwaitsTheDead,
    /// A notification is awaited whoever has died.
    NoteAwaitedFromDead,
    /// Records of regions are never given back by a rank that has died, and detach waits for them.
    RecordsAwaitedFromDead,
    /// A lock of shared memory is not awaited.
    SharedLockUnawaited,
    /// Nobody waits for posts before shared memory is accessed.
    SharedStartUnawaited,
    /// A fence that nothing precedes waits for nobody, though memory is shared.
    SharedFenceUnawaited,
    /// COMPLETE goes to a rank before its ghost has acknowledged what comes before it.
    CompleteBeforeGhosts,
    /// Who got the word of a lock's holder before its turn keeps it.
    WordKeptEarly,
    /// A shared holder of a lock that is words does not let the next shared one in.
    WordShareKept,
    /// lock_all takes a lock that is words though somebody is alone.
    WordHolderIgnored,
    /// What a ticket's number carries into the next one, when it begins again, stays there.
    WordCarryKept,
    /// A neighbour's lock is taken alone in one go where one rank has locked all.
    NowPassesLockAll,
    /// A neighbour is locked under lock_all in one go where another rank is alone.
    NowPassesAlone,
    /// A lock epoch that is repeated is forgotten when its window is asked for anything else.
    RepeatedForgotten,
    /// So is the own share in such an epoch of lock_all, and nothing else of it.
    RepeatedShareForgotten,
    /// The way of an operation by packet is taken though its window was asked for something else meanwhile.
    PacketShortcutKept,
    /// It is taken in one go beside others though somebody waits to be alone, or is.
    NowShareUnasked,
    /// A lock that is words, asked for by a packet, is granted before its turn has come.
    ProxyHoldsEarly,
    /// UNLOCK does not say that it ends lock_all, where the target counts such locks apart.
    ProxySharesAlike,
    /// A lock that is words is released while operations are under way.
    WordLeftEarly,
}

impl Mutation {
    /// Whether the engine is to make this mistake.
    #[cfg(not(feature = "mutations"))]
    #[inline(always)]
    #[must_use]
    pub const fn is_on(self) -> bool {
        false
    }

    /// Whether the engine is to make this mistake.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn is_on(self) -> bool {
        SELECTED.load(Ordering::Relaxed) == self as usize + 1
    }

    /// Makes every engine of this process make one mistake from now on, or none.
    #[cfg(feature = "mutations")]
    pub fn select(mutation: Option<Self>) {
        SELECTED.store(mutation.map_or(0, |mutation| mutation as usize + 1), Ordering::Relaxed);
    }
}

/// 0, or one more than the mistake.
#[cfg(feature = "mutations")]
static SELECTED: AtomicUsize = AtomicUsize::new(0);
