//! RESTORE_TARGET_ELEM_RESOURCES and RESTORE_OP_ELEM_RESOURCES, as steps: the caller polls, and makes
//! progress between two steps, until an element is there. No program can deadlock on the pools: what
//! the optimizations keep back is let go as soon as somebody needs its elements; and the last element of each kind that
//! a window has of its own is not for a lock that has yet to come. Who holds that one may wait for what another thread is
//! to do under a lock that it has, which takes an element, too.

mod given_up;

use crate::bootstrap::Bootstrap;
use crate::ids::Rank;
use crate::lock::words::{Claim, Memo, WordLock};
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::progress::{Process, TargetNews};
use crate::provider::Endpoint;
use crate::state::{TargetLockState, WindowState};
use crate::table::{ParkedLock, Sync, TargetElement, TargetError};
use crate::window::{Walk, Window};

use crate::epoch::LockAllCursor;

/// Target elements that a window has at least: one may wait for a lock, and another thread go on with one that it has.
pub(crate) const TARGETS_LEAST: u32 = 2;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// A new target element for `rank`, in the table, its lock state called; `None`: not yet.
    ///
    /// Implements: seed: RESTORE_TARGET_ELEM_RESOURCES.
    pub(crate) fn poll_target_element(&mut self, w: &mut Window<E::Region>, rank: Rank) -> Option<u32> {
        if let Some(t) = self.take_target_element(w, rank) {
            return Some(t);
        }
        self.poll_last_target(w, rank)
    }

    /// The same where there is no more than one left.
    #[cold]
    #[inline(never)]
    fn poll_last_target(&mut self, w: &mut Window<E::Region>, rank: Rank) -> Option<u32> {
        if let Some(t) = self.take_last_target(w, rank) {
            return Some(t);
        }
        self.restore_target_elem_resources(w);
        let taken = self.take_target_element(w, rank).or_else(|| self.take_last_target(w, rank));
        if taken.is_none() {
            self.target_news = TargetNews::Wanted;
            self.forgo_drawn(w, rank);
        }
        taken
    }

    /// A target element that is not the last.
    #[inline]
    pub(crate) fn take_target_element(&mut self, w: &mut Window<E::Region>, rank: Rank) -> Option<u32> {
        let t = self.targets.take_but_last(&mut w.targets)?;
        self.begin_target(w, rank, t);
        Some(t)
    }

    /// The last one, if it will come back whatever becomes of locks that were not granted yet, or another one will.
    #[cold]
    fn take_last_target(&mut self, w: &mut Window<E::Region>, rank: Rank) -> Option<u32> {
        let is_granted = |lock: TargetLockState| lock == TargetLockState::Granted;
        let is_awaited = w.state() == WindowState::PerTarget
            && w.parked.find(rank).is_some_and(|lock| !is_granted(lock.lock));
        if is_awaited {
            let mut t = w.slots.next(&self.targets, NONE);
            while let Some(index) = t.filter(|&index| !is_granted(self.targets[index].lock)) {
                t = w.slots.next(&self.targets, index);
            }
            t?;
        }
        let t = self.targets.take(&mut w.targets)?;
        self.begin_target(w, rank, t);
        Some(t)
    }

    #[inline]
    fn begin_target(&mut self, w: &mut Window<E::Region>, rank: Rank, t: u32) {
        let own = (rank == self.rank).then_some(w.own);
        let known = || w.words.as_ref().and_then(|words| words.metadata_of(rank));
        let metadata = w.symmetric.or(own).or_else(known);
        // Free elements are new.
        let te = &mut self.targets[t];
        (te.window, te.rank, te.metadata) = (w.id, rank, metadata);
        w.slots.insert(&mut self.targets, t);
        // What goes to the rank past the element would go past what is kept there.
        self.shortcut.forget_rank(w.id, rank);
    }

    /// One step of RESTORE_TARGET_ELEM_RESOURCES.
    #[cold]
    fn restore_target_elem_resources(&mut self, w: &mut Window<E::Region>) {
        match w.state() {
            // A freed element would lose whether its target is locked, so the window protocol locks all.
            WindowState::LockAllCalled => {
                if self.lock_all_ranks(w) {
                    self.counters.restored_targets += 1;
                }
            }
            WindowState::LockAllIssued => self.settle(w),
            _ => {
                self.pick_victim(w);
                if w.restore_victim != NONE {
                    self.recycle_step(w, w.restore_victim);
                }
            }
        }
    }

    /// Begins to lock every rank, under lock_all (the window protocol). `false`: not in this state.
    pub(crate) fn lock_all_ranks(&mut self, w: &mut Window<E::Region>) -> bool {
        let begins = w.transition(|state| state.on_out_of_targets()).is_ok();
        if begins {
            w.walk = Walk::Lock;
            w.cursor = LockAllCursor::over(self.size);
        }
        begins
    }

    /// Window-level conditions that something other than a call on this window may have fulfilled.
    #[inline]
    pub(crate) fn settle(&mut self, w: &mut Window<E::Region>) {
        if w.walk != Walk::None || w.pressure {
            self.settle_walk_and_pressure(w);
        }
    }

    #[inline(never)]
    fn settle_walk_and_pressure(&mut self, w: &mut Window<E::Region>) {
        if w.walk == Walk::Lock && self.walk_is_done(w) {
            w.walk = Walk::None;
            let _ = w.transition(|state| state.on_all_granted());
        }
        if w.is_given_up {
            self.settle_given_up(w);
        }
        if w.pressure && self.operations.available(&w.operations) * 2 >= w.operations.capacity() {
            w.pressure = false;
        }
    }

    /// Which element to win back: one that can go now if there is one, then one with nothing pending, and those
    /// whose lock is granted before issued before called (seed: priority order). The choice stands while nobody else
    /// has to do something for it: who waits for a lock may wait long, and another element may come free.
    fn pick_victim(&mut self, w: &mut Window<E::Region>) {
        let last = w.restore_victim;
        let is_good = |te: &TargetElement| te.lock == TargetLockState::Granted && may_be_freed(w, te);
        if last != NONE && is_good(&self.targets[last]) {
            return;
        }
        let order = |te: &TargetElement| {
            let state = match te.lock {
                TargetLockState::Called if te.is_untouched() => 0,
                TargetLockState::Granted => 1,
                TargetLockState::Issued => 2,
                TargetLockState::Called => 3,
            };
            (state, te.no_check, te.pending.count + te.issued.count)
        };
        let mut best = None;
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            let te = &self.targets[index];
            if may_be_freed(w, te) && best.is_none_or(|(key, _)| order(te) < key) {
                best = Some((order(te), index));
            }
            t = w.slots.next(&self.targets, index);
        }
        w.restore_victim = best.map_or(NONE, |(_, index)| index);
        self.counters.restored_targets += u64::from(w.restore_victim != NONE && w.restore_victim != last);
    }

    /// Brings one element to where it can be freed, and frees it.
    fn recycle_step(&mut self, w: &mut Window<E::Region>, t: u32) {
        // This process's lock on its own window is no business of its element's.
        let is_own = w.is_own(self.rank, self.targets[t].rank);
        let per_target = w.state() == WindowState::PerTarget && !is_own;
        let te = &mut self.targets[t];
        if te.is_dead() {
            // What the fabric still has must come back first: its tag names the element.
            if te.is_at_rest() {
                self.give_up_target(w, t, per_target);
            }
            return;
        }
        if per_target && te.is_untouched() {
            return self.give_up_target(w, t, per_target);
        }
        te.lock_wanted |= te.lock == TargetLockState::Called;
        let acknowledged = per_target || te.unflushed || te.done_acked != te.done_sent || !te.is_unmarked();
        te.sync = te.sync.max(if acknowledged { Sync::Flush } else { Sync::Issue });
        w.dirty = true;
        self.make_rma_progress_target(w, t);
        let te = &self.targets[t];
        let rank = te.rank;
        if !te.words.is_settled() {
            return;
        }
        if per_target {
            if !te.is_flushed() || te.lock != TargetLockState::Granted {
                return;
            }
        } else {
            let complete = te.pending.is_empty() && te.issued.is_empty() && te.is_locally_complete();
            if !complete || te.unflushed || te.flush_outstanding || te.done_acked != te.done_sent {
                return;
            }
            if !te.is_unmarked() && te.needs_done {
                return;
            }
            // Fence and lock_all count the acknowledgements; nobody waits here.
            if te.needs_done && self.send_detached_done(w, rank).is_err() {
                return;
            }
        }
        self.give_up_target(w, t, per_target);
    }

    /// Frees an element of which nothing is under way. Where its target is locked by itself, the lock is written down.
    fn give_up_target(&mut self, w: &mut Window<E::Region>, t: u32, is_locked: bool) {
        let te = &self.targets[t];
        let rank = te.rank;
        if let Some(error) = te.error {
            let groups = te.flush_groups;
            self.shortcut.note_posted();
            w.keep_error(rank, error, groups);
        }
        if is_locked {
            // The unlock of what is dead is to meet that again, should there be no room for its error.
            let lock = if te.is_dead() { TargetLockState::Granted } else { te.lock };
            let no_check = te.no_check && !matches!(te.error, Some(TargetError::Peer(_)));
            let is_lost = te.error == Some(TargetError::LockLost);
            let words = if is_lost { Memo::Lost } else { te.words.memo() };
            let lock_type = te.lock_type;
            w.parked.insert(ParkedLock { rank, lock_type, no_check, lock, words, is_closing: false });
        }
        self.free_target(w, t);
    }

    /// Gives an element what was known of its target's lock while there was none.
    #[inline]
    pub(crate) fn unpark(&mut self, w: &mut Window<E::Region>, t: u32, lock: ParkedLock) {
        let (me, is_lock_all) = (self.rank, w.state().is_lock_all());
        let te = &mut self.targets[t];
        (te.lock, te.lock_type, te.no_check) = (lock.lock, lock.lock_type, lock.no_check);
        if lock.words != Memo::None {
            te.words = WordLock::resumed(Claim::of(lock.lock_type, is_lock_all), me, lock.words);
        }
        if lock.words == Memo::Lost {
            te.error = Some(TargetError::LockLost);
        }
        if te.lock != TargetLockState::Called {
            self.resolve(w, t);
        }
    }

    /// Frees an element at the end of a flush when `lazy_targets` is off.
    pub(crate) fn release_eagerly(&mut self, w: &mut Window<E::Region>, t: u32) {
        let te = &self.targets[t];
        let state = w.state();
        // One whose epoch ends goes by itself.
        let may_go = te.is_flushed()
            && te.error.is_none()
            && te.lock == TargetLockState::Granted
            && (!te.no_check || te.words.is_held())
            && te.words.is_settled()
            && te.sync == Sync::None;
        if may_go && (state == WindowState::PerTarget || state == WindowState::LockAllGranted) {
            self.give_up_target(w, t, state == WindowState::PerTarget);
        }
    }

    /// An operation element, if there is one now. RESTORE_OP_ELEM_RESOURCES otherwise: what is kept
    /// back for later packets must leave, so that elements come back.
    ///
    /// Implements: seed: RESTORE_OP_ELEM_RESOURCES.
    #[inline]
    pub(crate) fn poll_operation_element(&mut self, w: &mut Window<E::Region>, t: u32) -> Option<u32> {
        if let Some(op) = self.take_operation_element(w, t) {
            return Some(op);
        }
        self.restore_operation_elem_resources(w, t)
    }

    #[cold]
    #[inline(never)]
    fn restore_operation_elem_resources(&mut self, w: &mut Window<E::Region>, t: u32) -> Option<u32> {
        if !w.pressure && !Mutation::PressureIgnored.is_on() {
            self.counters.restored_operations += 1;
            w.pressure = true;
        }
        w.dirty = true;
        // Without an operation nothing else may ask for it.
        self.targets[t].lock_wanted |= self.targets[t].lock == TargetLockState::Called;
        self.make_rma_progress_target(w, t);
        self.take_operation_element(w, t)
    }

    #[inline]
    fn take_operation_element(&mut self, w: &mut Window<E::Region>, t: u32) -> Option<u32> {
        if w.operations.count() > 1 || self.targets[t].lock == TargetLockState::Granted {
            return self.operations.take(&mut w.operations);
        }
        self.take_for_waiting(w)
    }

    #[cold]
    #[inline(never)]
    fn take_for_waiting(&mut self, w: &mut Window<E::Region>) -> Option<u32> {
        match w.state() {
            state if state.is_lock_all() || state == WindowState::PerTarget => {
                self.operations.take_but_last(&mut w.operations)
            }
            _ => self.operations.take(&mut w.operations),
        }
    }
}

/// Whether an element may be won back. One whose epoch ends goes by itself, and one that waits for a post cannot go
/// before it.
fn may_be_freed<R>(w: &Window<R>, te: &TargetElement) -> bool {
    let goes_by_itself = matches!(te.sync, Sync::Unlock | Sync::Complete);
    let waits_for_post = w.state().is_pscw() && te.lock == TargetLockState::Issued && !te.is_dead();
    !goes_by_itself && (!waits_for_post || te.pending.is_empty())
}
