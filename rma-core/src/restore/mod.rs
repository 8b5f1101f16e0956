//! RESTORE_TARGET_ELEM_RESOURCES and RESTORE_OP_ELEM_RESOURCES, as steps: the caller polls, and makes
//! progress between two steps, until an element is there. No program can deadlock on the pools: what
//! the optimizations keep back is let go as soon as somebody needs its elements.

use crate::bootstrap::Bootstrap;
use crate::ids::Rank;
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::progress::Process;
use crate::provider::Endpoint;
use crate::state::{TargetLockState, WindowState};
use crate::table::{Sync, TargetElement};
use crate::window::{Walk, Window};

use crate::epoch::LockAllCursor;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// A new target element for `rank`, in the table, its lock state called; `None`: not yet.
    ///
    /// Implements: seed: RESTORE_TARGET_ELEM_RESOURCES.
    pub(crate) fn poll_target_element(&mut self, w: &mut Window<E::Region>, rank: Rank) -> Option<u32> {
        if let Some(t) = self.take_target_element(w, rank) {
            return Some(t);
        }
        self.restore_target_elem_resources(w);
        self.take_target_element(w, rank)
    }

    fn take_target_element(&mut self, w: &mut Window<E::Region>, rank: Rank) -> Option<u32> {
        let t = self.targets.take(&mut w.targets)?;
        self.targets[t] = TargetElement::new(w.id, rank);
        let own = (rank == self.rank).then_some(w.own);
        self.targets[t].metadata = w.symmetric.or(own);
        w.slots.insert(&mut self.targets, t);
        Some(t)
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
                if w.restore_victim == NONE {
                    self.pick_victim(w);
                }
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
    pub(crate) fn settle(&mut self, w: &mut Window<E::Region>) {
        if w.walk == Walk::Lock && self.walk_is_done(w) {
            w.walk = Walk::None;
            let _ = w.transition(|state| state.on_all_granted());
        }
        if w.pressure && self.operations.available(&w.operations) * 2 >= w.operations.capacity() {
            w.pressure = false;
        }
    }

    /// Which element to win back: one with nothing pending if there is one, and those whose lock is
    /// granted before issued before called (seed: priority order).
    fn pick_victim(&mut self, w: &mut Window<E::Region>) {
        let order = |te: &TargetElement| {
            let state = match te.lock {
                TargetLockState::Granted => 0,
                TargetLockState::Issued => 1,
                TargetLockState::Called => 2,
            };
            (state, te.no_check, te.pending.count + te.issued.count)
        };
        let mut best = None;
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            let te = &self.targets[index];
            // One whose epoch ends goes by itself, and one that waits for a post cannot go before it.
            let goes_by_itself = matches!(te.sync, Sync::Unlock | Sync::Complete);
            let waits_for_post = w.state().is_pscw() && te.lock == TargetLockState::Issued && !te.is_dead();
            let may_be_freed = !goes_by_itself && (!waits_for_post || te.pending.is_empty());
            if may_be_freed && best.is_none_or(|(key, _)| order(te) < key) {
                best = Some((order(te), index));
            }
            t = w.slots.next(&self.targets, index);
        }
        if let Some((_, index)) = best {
            self.counters.restored_targets += 1;
            w.restore_victim = index;
        }
    }

    /// Brings one element to where it can be freed, and frees it.
    fn recycle_step(&mut self, w: &mut Window<E::Region>, t: u32) {
        // This process's lock on its own window is no business of its element's.
        let is_own = w.is_own(self.rank, self.targets[t].rank);
        let per_target = w.state() == WindowState::PerTarget && !is_own;
        let te = &mut self.targets[t];
        if te.is_dead() {
            if let (None, Some(error)) = (w.detached_error, te.error) {
                w.detached_error = Some((te.rank, error));
            }
            // What the fabric still has must come back first: its tag names the element.
            if te.native_outstanding() == 0 && te.issued.is_empty() && !te.flush_outstanding {
                w.locks_recycled += u32::from(per_target);
                self.free_target(w, t);
            }
            return;
        }
        if per_target && te.no_check && te.is_flushed() && !Mutation::UncheckedLockRestored.is_on() {
            // Without the element nobody would know that there is nothing to unlock. So the lock is
            // taken after all, once nothing is under way without it: the user promised that nobody
            // contends for it.
            te.no_check = false;
            te.direct = None;
            te.lock = TargetLockState::Called;
        }
        te.lock_wanted |= te.lock == TargetLockState::Called;
        let acknowledged = per_target || te.unflushed || te.done_acked != te.done_sent || !te.is_unmarked();
        te.sync = te.sync.max(if acknowledged { Sync::Flush } else { Sync::Issue });
        w.dirty = true;
        self.make_rma_progress_target(w, t);
        let te = &self.targets[t];
        let rank = te.rank;
        if per_target {
            let is_unchecked = te.no_check && !Mutation::UncheckedLockRestored.is_on();
            if !te.is_flushed() || is_unchecked || te.lock != TargetLockState::Granted {
                return;
            }
            w.locks_recycled += 1;
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
        if let Some(error) = self.targets[t].error {
            w.detached_error.get_or_insert((rank, error));
        }
        self.free_target(w, t);
    }

    /// Frees an element at the end of a flush when `lazy_targets` is off.
    pub(crate) fn release_eagerly(&mut self, w: &mut Window<E::Region>, t: u32) {
        let te = &self.targets[t];
        let state = w.state();
        let may_go =
            te.is_flushed() && te.error.is_none() && te.lock == TargetLockState::Granted && !te.no_check;
        if may_go && (state == WindowState::PerTarget || state == WindowState::LockAllGranted) {
            w.locks_recycled += u32::from(state == WindowState::PerTarget);
            self.free_target(w, t);
        }
    }

    /// An operation element, if there is one now. RESTORE_OP_ELEM_RESOURCES otherwise: what is kept
    /// back for later packets must leave, so that elements come back.
    ///
    /// Implements: seed: RESTORE_OP_ELEM_RESOURCES.
    pub(crate) fn poll_operation_element(&mut self, w: &mut Window<E::Region>, t: u32) -> Option<u32> {
        if let Some(op) = self.operations.take(&mut w.operations) {
            return Some(op);
        }
        if !w.pressure && !Mutation::PressureIgnored.is_on() {
            self.counters.restored_operations += 1;
            w.pressure = true;
        }
        w.dirty = true;
        self.make_rma_progress_target(w, t);
        self.operations.take(&mut w.operations)
    }
}
