//! A window at this rank: its memory, its operation table, and its part of every protocol.

mod board;
mod busy;
mod checking;
mod dynamic;
mod late;
mod memory;
mod near;
mod words;

use alloc::boxed::Box;
use core::sync::atomic::{fence, Ordering};

pub(crate) use board::{Boards, Line, Told};
pub(crate) use dynamic::{Dynamic, Owed};
pub(crate) use late::LateErrors;
pub(crate) use memory::{OwnedMemory, Remains};
pub(crate) use near::{NearTarget, NearTargets};
pub(crate) use words::{
    has_atomics, offset_of, offset_of_waiter, Pages, Seat, Words, FIRST_PROXY, OWN_SEAT, PROXIES,
    RELEASE_SEAT, SEATS,
};

use crate::check::Checker;
use crate::config::Config;
use crate::epoch::{Access, Dissemination, Exposure, FewRanks, LockAllCursor, Notices};
use crate::ids::{Rank, WindowId};
use crate::info::{Flavor, WindowOptions};
use crate::lock::words::{Claim, Memo, WordLock};
use crate::lock::{DeferredRing, LockType, WindowLock};
use crate::mem::WindowMemory;
use crate::mutation::Mutation;
use crate::path::Paths;
use crate::pool::{Arena, FreeList, NONE};
use crate::state::WindowState;
use crate::table::{
    FlushedAlone, OpenFlushes, OperationArena, ParkedLock, ParkedLocks, RepeatedLock, RepeatedStage, Slots,
    TargetElement,
};
use crate::wire::{BatchFlags, Metadata};

/// This process's lock on its own window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SelfLock {
    None,
    Waiting,
    Held,
    NoCheck,
}

/// Which walk over all ranks is under way (window protocol of lock_all).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Walk {
    None,
    Lock,
    Unlock,
    /// None, and locks are to be given back that nobody waits for any more.
    GivenUp,
}

/// One window. Nothing in it grows with the number of ranks.
#[derive(Debug)]
pub(crate) struct Window<R> {
    /// Kept alive, and dropped before the memory that it registers.
    _region: Option<R>,
    pub(crate) memory: WindowMemory,
    /// Kept alive when the memory is the library's.
    pub(crate) owned: Option<OwnedMemory>,
    pub(crate) id: WindowId,
    state: WindowState,
    /// Native puts, and gets, are possible as far as the window is concerned.
    pub(crate) direct_put: bool,
    pub(crate) direct_get: bool,
    /// The target used last, and its element: the fast path's memory.
    pub(crate) last_rank: Rank,
    pub(crate) last_target: u32,
    /// What a flush has sent alone last, if it was an atomic of one element.
    pub(crate) flushed_alone: Option<FlushedAlone>,
    /// Something may be issued; progress looks only at windows where this is set.
    pub(crate) dirty: bool,
    /// Elements have run out: nothing is kept back until they are there again.
    ///
    /// Implements: seed: optimizations off under pressure.
    pub(crate) pressure: bool,
    pub(crate) usable: bool,
    /// The ghosts of the ranks have its target role.
    pub(crate) is_served: bool,
    /// What is remembered may answer a flush. One of shared memory also orders stores that the engine knows nothing of.
    pub(crate) remembers_flushes: bool,
    /// And there is nothing that a flush has to report.
    pub(crate) may_skip_flush: bool,
    pub(crate) own: Metadata,
    /// One record for everybody, when all ranks have the same.
    pub(crate) symmetric: Option<Metadata>,
    /// Size and displacement unit are everybody's, if it is there; base and key need not be.
    pub(crate) uniform: Option<Metadata>,
    /// So is the misalignment of its base.
    pub(crate) is_aligned_alike: bool,
    /// What the program said about the window, as far as it is in force.
    pub(crate) options: WindowOptions,
    pub(crate) flavor: Flavor,
    /// What is attached here and known of others; only in dynamic windows, which have no other memory.
    pub(crate) dynamic: Option<Box<Dynamic<R>>>,
    /// Looks for conflicts; only where the program wants it.
    pub(crate) checker: Option<Box<Checker>>,
    pub(crate) paths: Paths,
    pub(crate) slots: Slots,
    pub(crate) operations: FreeList,
    pub(crate) targets: FreeList,
    /// Where round-robin issue goes on.
    pub(crate) issue_cursor: u32,
    pub(crate) barrier: Dissemination<0>,
    /// The barrier of the last fence, while it runs (the design's `fence_req`).
    ///
    /// Implements: seed: fence_req.
    pub(crate) fence_sequence: Option<u32>,
    /// The barrier of a fence that still waits for its puts, behind which the first round was told.
    pub(crate) fence_begun: Option<u32>,
    /// Operations were posted since the last fence.
    pub(crate) fence_active: bool,
    /// What this process accesses by start, and what it exposes by post.
    pub(crate) access: Access,
    pub(crate) exposure: Exposure,
    pub(crate) notices: Notices,
    pub(crate) lock: WindowLock,
    pub(crate) deferred: DeferredRing,
    /// Where the window is locked by the fabric's atomics: who holds the lock is said there, and those two serve the
    /// ranks that ask by packets.
    pub(crate) words: Option<Box<Words<R>>>,
    /// The words by which neighbours are told, and tell, how far they are.
    pub(crate) line: Option<Line>,
    pub(crate) self_lock: SelfLock,
    pub(crate) lock_all_no_check: bool,
    /// A thread is in unlock_all or free: no other one may be.
    pub(crate) is_closing: bool,
    /// Locks that nobody waits for any more are not given back yet: those of a lock_all, or those of single targets.
    pub(crate) is_given_up: bool,
    /// Locks, called or held one by one, on targets without element.
    pub(crate) parked: ParkedLocks,
    /// Neighbours whose part of the window was accessed at once; none where no fabric's operations can be.
    pub(crate) near: Option<Box<NearTargets>>,
    pub(crate) walk: Walk,
    pub(crate) cursor: LockAllCursor,
    /// Acknowledgements awaited for targets whose element was given up.
    ///
    /// Implements: seed: ack_count.
    pub(crate) acks: FewRanks,
    /// An order call was about them.
    pub(crate) ordered_detached: bool,
    /// There was an order call since the last fence: where conflicts are looked for, not those of one origin.
    pub(crate) has_ordered: bool,
    /// Flushes that targets have to know, and are under way.
    pub(crate) flushes: OpenFlushes,
    /// Errors of targets that have no element.
    pub(crate) late: LateErrors,
    /// The target element being won back.
    pub(crate) restore_victim: u32,
}

impl<R> Window<R> {
    /// A window with empty tables; the levels are its part of the pools.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        id: WindowId,
        rank: Rank,
        size: u32,
        config: &Config,
        memory: WindowMemory,
        owned: Option<OwnedMemory>,
        region: Option<R>,
        own: Metadata,
        (operations, targets): (FreeList, FreeList),
    ) -> Self {
        Self {
            _region: region,
            memory,
            owned,
            id,
            state: WindowState::Unset,
            direct_put: false,
            direct_get: false,
            last_rank: Rank(NONE),
            last_target: NONE,
            flushed_alone: None,
            dirty: false,
            pressure: false,
            usable: false,
            is_served: false,
            remembers_flushes: false,
            may_skip_flush: false,
            own,
            symmetric: None,
            uniform: None,
            is_aligned_alike: false,
            options: WindowOptions::DEFAULT,
            flavor: Flavor::Create,
            dynamic: None,
            checker: None,
            paths: Paths::default(),
            slots: Slots::new(config.slots),
            operations,
            targets,
            issue_cursor: NONE,
            barrier: Dissemination::new(rank, size),
            fence_sequence: None,
            fence_begun: None,
            fence_active: false,
            access: Access::with_room(config.group_members),
            exposure: Exposure::with_room(config.group_members),
            notices: Notices::with_room(config.notices),
            lock: WindowLock::new(config.lock_waiters),
            deferred: DeferredRing::new(config.deferred_bytes),
            words: None,
            line: None,
            self_lock: SelfLock::None,
            lock_all_no_check: false,
            is_closing: false,
            is_given_up: false,
            // As many as the window has elements of its own cost no allocation.
            parked: ParkedLocks::with_room(config.target_pool),
            near: None,
            walk: Walk::None,
            cursor: LockAllCursor::idle(),
            acks: FewRanks::default(),
            ordered_detached: false,
            has_ordered: false,
            flushes: OpenFlushes::NONE,
            late: LateErrors::NONE,
            restore_victim: NONE,
        }
    }

    /// Drops the lock's queue and what requests bring with them: nobody locks this window.
    pub(crate) fn drop_lock(&mut self) {
        self.lock = WindowLock::new(0);
        self.deferred = DeferredRing::new(0);
    }

    /// What goes with UNLOCK among `flags`: under lock_all, where those locks are counted apart, that it is one.
    pub(crate) fn unlock_flags(&self, flags: BatchFlags) -> BatchFlags {
        if self.words.is_some()
            && flags.has(BatchFlags::UNLOCK)
            && self.state.is_lock_all()
            && !Mutation::ProxySharesAlike.is_on()
        {
            BatchFlags::OVERTAKE
        } else {
            BatchFlags::default()
        }
    }

    /// Whether a batch with these flags breaks the promise that nobody locks the window.
    pub(crate) fn refuses_lock(&self, flags: BatchFlags) -> bool {
        let asks = BatchFlags::LOCK_SHARED | BatchFlags::LOCK_EXCLUSIVE;
        self.usable && self.options.no_locks && flags.any(asks)
    }

    #[inline]
    pub(crate) fn state(&self) -> WindowState {
        self.state
    }

    /// Changes the state through one of its table's events.
    #[inline]
    pub(crate) fn transition<T>(&mut self, event: impl FnOnce(&mut WindowState) -> T) -> T {
        let result = event(&mut self.state);
        self.direct_put = self.state.may_issue() && self.paths.put;
        self.direct_get = self.state.may_issue() && self.paths.get;
        self.dirty = true;
        result
    }

    /// Writes down the lock epoch that was repeated without the window's knowledge, as one of a target without element.
    pub(crate) fn write_down<P>(&mut self, repeated: &RepeatedLock<P>) {
        let rank = repeated.near.rank();
        if let Some(near) = &mut self.near {
            near.keep(repeated.near);
        }
        let end: fn(&mut ParkedLock) = match repeated.stage {
            RepeatedStage::Ended => return,
            RepeatedStage::AllEnded | RepeatedStage::AllCalled | RepeatedStage::AllHeld => {
                return self.write_down_everywhere(repeated)
            }
            RepeatedStage::Called => |_| (),
            RepeatedStage::Drawn => ParkedLock::on_drawn,
            RepeatedStage::Held => ParkedLock::on_taken,
            RepeatedStage::Noted => ParkedLock::on_half_left,
        };
        let _ = self.transition(|state| state.on_lock());
        self.parked.insert_called(rank, repeated.lock_type);
        if let Some(lock) = self.parked.find_mut(rank) {
            end(lock);
        }
    }

    /// The same of one of lock_all, of which the own share is held, and that of the target behind the first operation.
    fn write_down_everywhere<P>(&mut self, repeated: &RepeatedLock<P>) {
        let (rank, own) = (repeated.near.rank(), repeated.own.rank());
        if let Some(near) = &mut self.near {
            near.keep(repeated.own);
        }
        if repeated.stage == RepeatedStage::AllEnded {
            return;
        }
        if let (Some(words), false) = (&mut self.words, Mutation::RepeatedShareForgotten.is_on()) {
            debug_assert!(words.seat(OWN_SEAT).lock.is_idle(), "the share of an earlier epoch");
            words.sit(OWN_SEAT, own, WordLock::resumed(Claim::Everywhere, own, Memo::Held));
        }
        (self.self_lock, self.lock_all_no_check) = (SelfLock::Held, false);
        let _ = self.transition(|state| state.on_lock_all());
        if repeated.stage == RepeatedStage::AllHeld {
            let called = ParkedLock::called(rank, LockType::Shared, true);
            self.parked.insert(ParkedLock { words: Memo::Held, ..called });
        }
    }

    /// Whether a complete that has returned has left something to be done.
    #[inline]
    pub(crate) fn has_leftover(&self) -> bool {
        self.access.is_open() && !self.state.is_pscw()
    }

    /// Whether operations on `target`'s part are this process's own loads and stores, `rank` being its own.
    #[inline]
    pub(crate) fn is_own(&self, rank: Rank, target: Rank) -> bool {
        target == rank && !self.is_served
    }

    /// Whether this rank's window is locked, by whomever.
    pub(crate) fn is_locked(&self) -> bool {
        self.self_lock != SelfLock::None || self.lock.is_held()
    }

    /// The element of `rank`; remembers it for next time.
    #[inline]
    pub(crate) fn find(&mut self, arena: &Arena<TargetElement>, rank: Rank) -> Option<u32> {
        if self.last_rank == rank {
            return Some(self.last_target);
        }
        let found = self.slots.find(arena, rank)?;
        (self.last_rank, self.last_target) = (rank, found);
        Some(found)
    }

    /// Forgets an element that is given up, so that nobody finds it by what was remembered.
    pub(crate) fn forget(&mut self, t: u32) {
        if self.last_target == t {
            (self.last_rank, self.last_target) = (Rank(NONE), NONE);
        }
    }

    /// The memory that holds all of `len` bytes at `offset` of the window, and where in it they begin; `None`
    /// when they are not all attached. The offset in a dynamic window is an address.
    #[inline]
    pub(crate) fn place(&self, offset: u64, len: u64) -> Option<(&WindowMemory, u64)> {
        match &self.dynamic {
            None => Some((&self.memory, offset)),
            Some(dynamic) => dynamic.regions.find(offset, len),
        }
    }

    /// MEM_SYNC, where memory is accessed by other means than this library. Elsewhere the release and the acquire of
    /// PROC_SYNC order what is before and behind it, and `Process::pass_fence` what was complete at once.
    ///
    /// Implements: seed: MEM_SYNC.
    #[inline]
    pub(crate) fn mem_sync(&self) {
        if self.flavor == Flavor::Shared {
            fence(Ordering::SeqCst);
        }
    }

    /// Locks of this process on remote ranks one by one, whether they are held or were only called.
    pub(crate) fn remote_locks(&self) -> u32 {
        self.slots.count() + self.parked.count()
    }

    /// Whether the own window's lock will never be had.
    pub(crate) fn is_own_lock_lost(&self) -> bool {
        self.words.as_ref().is_some_and(|words| {
            let lock = &words.seat(OWN_SEAT).lock;
            lock.is_lost() && !lock.is_busy()
        })
    }

    /// Locks the lock type of a request on behalf of this process itself.
    pub(crate) fn try_self_lock(&mut self, rank: Rank, lock_type: LockType) -> bool {
        let granted = self.lock.try_acquire(rank, lock_type, false) || Mutation::SelfLockUnasked.is_on();
        if granted {
            self.self_lock = SelfLock::Held;
        }
        granted
    }

    /// Bytes that this window holds at this rank, its user's memory not counted.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.slots.heap_bytes()
            + self.parked.heap_bytes()
            + self.access.heap_bytes()
            + self.exposure.heap_bytes()
            + self.notices.heap_bytes()
            + self.lock.heap_bytes()
            + self.deferred.heap_bytes()
            + self.near.as_ref().map_or(0, |near| size_of_val(&**near))
            + self.words.as_ref().map_or(0, |words| size_of::<Words<R>>() + words.heap_bytes())
            + self.dynamic.as_ref().map_or(0, |dynamic| dynamic.bytes())
            + self.checker.as_ref().map_or(0, |checker| size_of::<Checker>() + checker.heap_bytes())
            + self.operations.capacity() as usize * OperationArena::element_bytes()
            + self.targets.capacity() as usize * Arena::<TargetElement>::element_bytes()
    }
}
