//! lock_all and unlock_all: per-target protocol, and the window protocol when target elements run out.

use core::task::Poll;

use super::pscw::Opening;
use super::{epoch_error, Engine, Stage, SyncCall, EXPOSED};
use crate::bootstrap::Bootstrap;
use crate::epoch::LockAllCursor;
use crate::error::{Call, RmaError, Rule};
use crate::flush::Phase;
use crate::ids::WindowId;
use crate::lock::LockType;
use crate::pool::NONE;
use crate::progress::Process;
use crate::provider::Endpoint;
use crate::state::WindowState;
use crate::table::{Shortcut, Sync};
use crate::window::{SelfLock, Walk, Window};

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Begins a shared lock epoch to all ranks. Ranks are locked when the first operation to them
    /// leaves; this process's own window at once, because its memory may be accessed directly.
    ///
    /// # Errors
    /// When another epoch is open.
    ///
    /// Implements: MPI_Win_lock_all, MPI_MODE_NOCHECK/lock_all, seed: LOCK_ALL per-target protocol.
    pub fn start_lock_all(&mut self, window: WindowId, no_check: bool) -> Result<SyncCall, RmaError> {
        let call = Call::LockAll;
        if !no_check && self.lock_all_at_once(window) {
            return Ok(SyncCall::new(call, window, Stage::Done));
        }
        self.check_endpoint(call)?;
        if self.has_leftover(window, None) {
            return Ok(Self::after_leftover(call, window, Opening::LockAll { no_check }));
        }
        let w = self.window(call, window)?;
        let state = w.state();
        if w.options.no_locks {
            return Err(epoch_error(call, None, state, Rule::NoLocks));
        }
        if state.is_fence() && w.fence_active {
            return Err(epoch_error(call, None, state, Rule::OtherEpochOpen));
        }
        if w.exposure.is_open() {
            return Err(RmaError::Epoch { call, target: None, state: EXPOSED, rule: Rule::LockedAndExposed });
        }
        let event = if no_check { WindowState::on_lock_all_no_check } else { WindowState::on_lock_all };
        w.transition(event).map_err(|_| epoch_error(call, None, state, Rule::OtherEpochOpen))?;
        w.lock_all_no_check = no_check;
        let stage = match (no_check, w.is_served) {
            (true, _) => {
                // Seed table: LOCK_ALL, MEM_SYNC after PROC_SYNC, which the user has passed before.
                w.mem_sync();
                Stage::Done
            }
            (false, true) => Stage::OwnGrant,
            (false, false) => Stage::SelfLock { lock_type: LockType::Shared, queued: false },
        };
        w.self_lock = match (no_check, w.is_served) {
            (_, true) => SelfLock::None,
            (true, false) => SelfLock::NoCheck,
            (false, false) => SelfLock::Waiting,
        };
        Ok(SyncCall::new(call, window, stage))
    }

    /// Ends it: all operations are complete at origin and targets, and all locks released.
    ///
    /// # Errors
    /// When no lock_all epoch is open.
    ///
    /// Implements: MPI_Win_unlock_all.
    pub fn start_unlock_all(&mut self, window: WindowId) -> Result<SyncCall, RmaError> {
        let call = Call::UnlockAll;
        if self.unlock_all_at_once(window) {
            return Ok(SyncCall::new(call, window, Stage::Done));
        }
        self.check_endpoint(call)?;
        let w = self.window(call, window)?;
        let state = w.state();
        if !state.is_lock_all() || w.self_lock == SelfLock::Waiting {
            return Err(epoch_error(call, None, state, Rule::NoSuchEpoch));
        }
        if core::mem::replace(&mut w.is_closing, true) {
            return Err(epoch_error(call, None, state, Rule::Busy));
        }
        // Seed table: UNLOCK_ALL, MEM_SYNC before PROC_SYNC.
        w.mem_sync();
        let sync = SyncCall::new(call, window, Stage::UnlockAll);
        self.begin_unlock_all(window);
        Ok(sync)
    }

    /// Tells every target's element what it is to do, by the protocol in force. Nothing is posted any more.
    fn begin_unlock_all(&mut self, window: WindowId) {
        let Some(w) = self.windows.get_mut(window) else { return };
        (w.direct_put, w.direct_get) = (false, false);
        self.process.shortcut = Shortcut::NONE;
        let per_target = w.state() == WindowState::LockAllCalled;
        let mut t = w.slots.next(&self.process.targets, NONE);
        while let Some(index) = t {
            if per_target {
                self.process.want_unlock(w, index);
            } else {
                let te = &mut self.process.targets[index];
                te.sync = te.sync.max(Sync::Flush);
                w.dirty = true;
            }
            t = w.slots.next(&self.process.targets, index);
        }
        if !per_target {
            self.process.make_rma_progress_win(w);
        }
    }

    pub(super) fn poll_unlock_all(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        self.process.settle(w);
        if w.state() == WindowState::LockAllCalled && self.process.poll_leave_shares(w).is_pending() {
            return Poll::Pending;
        }
        if w.state() == WindowState::LockAllIssued {
            return self.wait(sync, Phase::Grant);
        }
        if self.process.sync_phase_win(w).is_some() {
            return Poll::Pending;
        }
        self.process.count_phases_win(w, &mut sync.counted);
        sync.error = self.process.take_errors(w, sync.call).err();
        while let Some(t) = w.slots.next(&self.process.targets, NONE) {
            self.process.free_target(w, t);
        }
        if w.state() == WindowState::LockAllGranted && !w.lock_all_no_check {
            // One that was given up goes on where it was: nobody is to give a lock back twice.
            if w.walk != Walk::Unlock {
                w.walk = Walk::Unlock;
                w.cursor = LockAllCursor::over(self.process.size);
            }
            w.dirty = true;
            let _ = self.process.walk(w);
            sync.stage = Stage::UnlockWalk;
            return self.poll_unlock_walk(sync);
        }
        self.process.end_lock_all(w);
        Poll::Ready(sync.error.take().map_or(Ok(()), Err))
    }

    pub(super) fn poll_unlock_walk(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        if !w.cursor.is_done() {
            // Asking everybody is one more round trip after the flush.
            self.process.count_phase(&mut sync.counted, Phase::Operations);
            return Poll::Pending;
        }
        w.walk = Walk::None;
        let result = self.process.take_errors(w, sync.call);
        self.process.end_lock_all(w);
        Poll::Ready(sync.error.take().map_or(result, Err))
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Gives back the locks of neighbours without element.
    fn poll_leave_shares(&mut self, w: &mut Window<E::Region>) -> Poll<()> {
        while let Some(rank) = w.parked.last() {
            if self.leave_parked(w, rank) {
                continue;
            }
            if self.poll_leave_share(w, rank).is_pending() {
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Everything of the epoch is over.
    pub(crate) fn end_lock_all(&mut self, w: &mut Window<E::Region>) {
        let _ = w.transition(|state| state.on_unlock_all());
        w.is_closing = false;
        self.shortcut = Shortcut::NONE;
        self.release_self(w);
    }
}
