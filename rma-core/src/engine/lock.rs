//! lock and unlock of one rank (MPI-4.1 section 13.5.3).

use core::task::Poll;

use super::bounded::Scope;
use super::pscw::Opening;
use super::{epoch_error, Engine, Stage, SyncCall, EXPOSED};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, RmaError, Rule};
use crate::flush::Phase;
use crate::ids::{Rank, WindowId};
use crate::info::Flavor;
use crate::lock::words::Claim;
use crate::lock::{LockType, Request, Waiter};
use crate::mutation::Mutation;
use crate::provider::Endpoint;
use crate::state::{TargetLockState, WindowState};
use crate::table::{LeftCall, ParkedLock, Shortcut, Sync};
use crate::window::{SelfLock, Window};

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Begins a lock epoch to `target`. No packet leaves before an operation or a synchronization call
    /// needs it, except that this process's own window is locked at once, because its memory may be
    /// accessed directly. With `no_check` the user promises that nobody holds or asks for a conflicting
    /// lock (`MPI_MODE_NOCHECK`).
    ///
    /// # Errors
    /// When another kind of epoch is open, or the rank is locked already by this process.
    ///
    /// Implements: MPI_Win_lock, MPI_MODE_NOCHECK/lock, seed: LOCK-UNLOCK.
    pub fn start_lock(
        &mut self,
        window: WindowId,
        target: Rank,
        lock_type: LockType,
        no_check: bool,
    ) -> Result<SyncCall, RmaError> {
        let call = Call::Lock;
        if !no_check && self.lock_at_once(window, target, lock_type) {
            return Ok(SyncCall::new(call, window, Stage::Done));
        }
        self.check_endpoint(call)?;
        self.check_rank(call, target)?;
        if self.has_leftover(window, Some(target)) {
            return Ok(Self::after_leftover(call, window, Opening::Lock { target, lock_type, no_check }));
        }
        let own = target == self.process.rank;
        let w = self.windows.get_mut(window).filter(|w| w.usable).ok_or(RmaError::Window { call, window })?;
        let state = w.state();
        if w.options.no_locks {
            return Err(epoch_error(call, Some(target), state, Rule::NoLocks));
        }
        if state.is_fence() && w.fence_active {
            return Err(epoch_error(call, Some(target), state, Rule::OtherEpochOpen));
        }
        if own && w.exposure.is_open() {
            let (target, rule) = (Some(target), Rule::LockedAndExposed);
            return Err(RmaError::Epoch { call, target, state: EXPOSED, rule });
        }
        let own = own && !w.is_served;
        let is_locked = match own {
            true => w.self_lock != SelfLock::None,
            false => w.find(&self.process.targets, target).is_some() || w.parked.contains(target),
        };
        if is_locked && state == WindowState::PerTarget {
            return Err(epoch_error(call, Some(target), state, Rule::AlreadyLocked));
        }
        // Whichever element is given up later, the lock that it was for can be written down.
        let locks = w.slots.count() + 1;
        if !w.parked.make_room(locks) {
            return Err(RmaError::Memory { call, bytes: locks as usize * size_of::<ParkedLock>() });
        }
        w.transition(|state| state.on_lock())
            .map_err(|_| epoch_error(call, Some(target), state, Rule::OtherEpochOpen))?;
        let stage = match (own, no_check) {
            (true, true) => {
                w.self_lock = SelfLock::NoCheck;
                // Which has nothing to wait for, and passes the barrier.
                Stage::LockGrant { target }
            }
            (true, false) => {
                w.self_lock = SelfLock::Waiting;
                Stage::SelfLock { lock_type, queued: false }
            }
            (false, _) => {
                self.process.open_lock(w, ParkedLock::called(target, lock_type, no_check));
                // Its memory may be accessed as soon as the call returns.
                let is_direct = w.flavor == Flavor::Shared && !Mutation::SharedLockUnawaited.is_on();
                match is_direct || target == self.process.rank {
                    true => Stage::LockGrant { target },
                    false => Stage::Done,
                }
            }
        };
        Ok(SyncCall::new(call, window, stage))
    }

    pub(super) fn poll_self_lock(
        &mut self,
        sync: &mut SyncCall,
        lock_type: LockType,
        queued: bool,
    ) -> Poll<Result<(), RmaError>> {
        let rank = self.process.rank;
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        let mut is_asked = queued;
        if w.words.is_some() {
            let claim = Claim::of(lock_type, sync.call == Call::LockAll);
            if self.process.poll_own_words(w, claim, &mut is_asked) {
                w.self_lock = SelfLock::Held;
            }
            sync.stage = Stage::SelfLock { lock_type, queued: is_asked };
            if is_asked && w.is_own_lock_lost() {
                return Poll::Ready(Err(self.lose_own_lock(sync)));
            }
        }
        let is_free = |w: &mut Window<E::Region>| w.words.is_none() && w.try_self_lock(rank, lock_type);
        if w.self_lock == SelfLock::Held || (!queued && is_free(w)) {
            // Seed table: LOCK of the own rank, MEM_SYNC after PROC_SYNC.
            w.mem_sync();
            if sync.call == Call::LockAll && w.flavor == Flavor::Shared {
                sync.stage = Stage::LockAllGrant;
                return self.poll_lock_all_grant(sync);
            }
            return Poll::Ready(Ok(()));
        }
        if w.words.is_some() {
            return self.wait(sync, Phase::Grant);
        }
        if !queued {
            let waiter = Waiter {
                origin: rank,
                lock_type,
                flags: 0,
                token: 0,
                count: 0,
                payload: None,
                overtakes: false,
                seat: None,
            };
            // A full queue is asked again at the next poll.
            let queued = w.lock.enqueue(waiter) == Request::Queued;
            sync.stage = Stage::SelfLock { lock_type, queued };
        }
        Poll::Pending
    }

    /// The own window's lock was lost with a rank that has died: no epoch is opened.
    #[cold]
    fn lose_own_lock(&mut self, sync: &SyncCall) -> RmaError {
        self.process.shortcut = Shortcut::NONE;
        if let Some(w) = self.windows.get_mut(sync.window) {
            w.self_lock = SelfLock::None;
            if sync.call == Call::LockAll {
                let _ = w.transition(|state| state.on_unlock_all());
            }
            self.process.leave_per_target(w);
        }
        RmaError::LockLost { call: sync.call, target: self.process.rank }
    }

    /// Gives up a call that did not become ready in the caller's time. A lock or lock_all has then opened
    /// no epoch, and nobody waits for it. A flush of several targets is not to be polled any more. Unlock, unlock_all and
    /// complete are under way, and are called again to be polled to their end. Any other call has to be polled to its end all
    /// the same. (A request that has left cannot be taken back: the lock is given back when it comes, and the next epoch that
    /// it is in the way of begins after that.)
    #[cold]
    #[inline(never)]
    pub fn abandon(&mut self, sync: &SyncCall) {
        self.process.shortcut = Shortcut::NONE;
        let Some(w) = self.windows.get_mut(sync.window) else { return };
        match sync.stage {
            Stage::SelfLock { .. } if sync.call == Call::LockAll => {
                let _ = w.transition(|state| state.on_unlock_all());
                self.process.release_self(w);
            }
            Stage::SelfLock { .. } => self.process.release_self(w),
            // Others may have been told of it: it counts, as one that was given up in its barrier does, and what follows
            // belongs to the next epoch.
            Stage::FenceComplete { .. } => self.process.give_up_begun(w),
            Stage::LockGrant { target } if w.parked.find(target).is_some_and(|lock| !lock.is_known()) => {
                w.parked.remove(target);
                self.process.leave_per_target(w);
            }
            Stage::LockGrant { target } => {
                if let Some(t) = w.find(&self.process.targets, target) {
                    self.process.give_up_lock(w, t);
                }
            }
            Stage::LockAllGrant | Stage::OwnGrant => self.process.give_up_lock_all(w),
            Stage::FlushTargets { group } | Stage::Watched { scope: Scope::Several { group }, .. } => {
                self.leave_several(sync.window, group);
            }
            Stage::Unlock { target } => match w.find(&self.process.targets, target) {
                Some(t) => self.process.targets[t].left = LeftCall::Unlock,
                None => {
                    if let Some(lock) = w.parked.find_mut(target) {
                        lock.is_closing = false;
                    }
                }
            },
            Stage::Complete => w.access.leave_complete(),
            // May be called again, and goes on; ranks that were asked already have given the lock back.
            Stage::UnlockWalk => w.is_closing = false,
            // May be called again.
            Stage::UnlockAll | Stage::Free { .. } => {
                w.is_closing = false;
                // Recomputes what may go directly.
                w.transition(|_| ());
            }
            _ => {}
        }
    }

    /// Ends the lock epoch to `target`: all its operations are complete at origin and target, and the
    /// lock is released, when the call is done.
    ///
    /// # Errors
    /// When this process has not locked the rank.
    ///
    /// Implements: MPI_Win_unlock.
    pub fn start_unlock(&mut self, window: WindowId, target: Rank) -> Result<SyncCall, RmaError> {
        let call = Call::Unlock;
        if self.unlock_at_once(window, target) {
            return Ok(SyncCall::new(call, window, Stage::AtOnce { target }));
        }
        self.check_endpoint(call)?;
        self.check_rank(call, target)?;
        let w = self.windows.get_mut(window).filter(|w| w.usable).ok_or(RmaError::Window { call, window })?;
        let own = w.is_own(self.process.rank, target);
        let state = w.state();
        let missing = Err(epoch_error(call, Some(target), state, Rule::NoSuchEpoch));
        if state != WindowState::PerTarget {
            return missing;
        }
        // Seed table: UNLOCK, MEM_SYNC before PROC_SYNC.
        w.mem_sync();
        let found = w.find(&self.process.targets, target);
        if own && w.self_lock == SelfLock::None || !own && found.is_none() && !w.parked.contains(target) {
            return missing;
        }
        if let Some(t) = found {
            let te = &mut self.process.targets[t];
            match te.sync == Sync::Unlock {
                true if te.left == LeftCall::Unlock => te.left = LeftCall::None,
                true => return Err(epoch_error(call, Some(target), state, Rule::Busy)),
                false => self.process.want_unlock(w, t),
            }
        } else if let Some(parked) = w.parked.find_mut(target) {
            self.process.shortcut.forget_rank(window, target);
            if core::mem::replace(&mut parked.is_closing, true) {
                return Err(epoch_error(call, Some(target), state, Rule::Busy));
            }
        }
        Ok(SyncCall::new(call, window, Stage::Unlock { target }))
    }

    pub(super) fn poll_unlock(&mut self, sync: &mut SyncCall, target: Rank) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        let own = w.is_own(self.process.rank, target);
        let t = match w.find(&self.process.targets, target) {
            Some(t) => t,
            None if own => {
                return Poll::Ready({
                    self.process.release_self(w);
                    Ok(())
                })
            }
            None => match self.process.poll_unlock_parked(w, sync.call, target) {
                Poll::Ready(Ok(Some(t))) => t,
                Poll::Ready(done) => return Poll::Ready(done.map(|_| ())),
                Poll::Pending => return Poll::Pending,
            },
        };
        if self.process.sync_phase(t).is_some() {
            return Poll::Pending;
        }
        self.process.count_phases(&mut sync.counted, t);
        let result = self.process.take_error(t, sync.call);
        let late = self.process.late_error(w, sync.call, target);
        self.process.free_target(w, t);
        if own {
            self.process.release_self(w);
        }
        self.process.leave_per_target(w);
        Poll::Ready(result.and(late))
    }
}

impl<E: Endpoint, B: Bootstrap> crate::progress::Process<E, B> {
    /// An error that came when its target had no element, or after a complete had returned; the last lock's unlock
    /// reports it whosever it is. Locks that were given up are nobody's to unlock.
    fn late_error(&self, w: &mut Window<E::Region>, call: Call, target: Rank) -> Result<(), RmaError> {
        let given_up = if w.is_given_up { self.count_given_up(w) } else { 0 };
        let is_last = w.remote_locks() == 1 + given_up;
        let late = if is_last { w.take_all_late() } else { w.take_late(target) };
        late.map_or(Ok(()), |(rank, error)| Err(error.report(call, rank)))
    }

    /// Opens the epoch of a lock on another rank: with an element if there is one, without if not. Whoever posts to
    /// the rank waits for one then.
    #[inline]
    pub(super) fn open_lock(&mut self, w: &mut Window<E::Region>, lock: ParkedLock) {
        match self.take_target_element(w, lock.rank) {
            Some(t) => self.unpark(w, t, lock),
            None => w.parked.insert(lock),
        }
    }

    /// Closes the lock of a target without element: everything to it is complete. Where it is held, the element that
    /// has to tell the target.
    #[cold]
    #[inline(never)]
    fn poll_unlock_parked(
        &mut self,
        w: &mut Window<E::Region>,
        call: Call,
        target: Rank,
    ) -> Poll<Result<Option<u32>, RmaError>> {
        if w.parked.find(target).is_some_and(|lock| lock.is_known()) {
            let Some(t) = self.poll_target_element(w, target) else { return Poll::Pending };
            self.adopt_target(w, t, false);
            self.want_unlock(w, t);
            return Poll::Ready(Ok(Some(t)));
        }
        let late = self.late_error(w, call, target);
        w.parked.remove(target);
        self.leave_per_target(w);
        Poll::Ready(late.map(|()| None))
    }

    /// Tells a target's element that its epoch ends, and sends what can go at once.
    pub(crate) fn want_unlock(&mut self, w: &mut Window<E::Region>, t: u32) {
        // Another thread's operation must not follow the UNLOCK.
        self.close_direct(t);
        let te = &mut self.targets[t];
        te.sync = Sync::Unlock;
        if te.lock == TargetLockState::Called && te.pending.is_empty() && !te.lock_wanted {
            // Nothing was done and no packet has gone out: there is nothing to lock or unlock.
            te.no_check = true;
            te.lock = TargetLockState::Granted;
        }
        if w.words.is_some() && self.leave_near_lock(w, t) {
            return;
        }
        self.make_rma_progress_target(w, t);
        let te = &self.targets[t];
        w.dirty |= !te.sync_sent || !te.marks.is_empty();
    }

    /// Releases this process's lock on its own window, or no longer waits for it.
    pub(crate) fn release_self(&mut self, w: &mut Window<E::Region>) {
        match w.self_lock {
            SelfLock::Held | SelfLock::Waiting if w.words.is_some() => self.leave_own_words(w),
            // It is held, so the release is one that the lock knows.
            SelfLock::Held => {
                let _ = w.lock.release(self.rank, false);
            }
            SelfLock::Waiting => w.lock.forget(self.rank),
            SelfLock::None | SelfLock::NoCheck => {}
        }
        w.self_lock = SelfLock::None;
        self.serve_grants(w);
        self.leave_per_target(w);
    }

    pub(crate) fn leave_per_target(&mut self, w: &mut Window<E::Region>) {
        if w.state() == WindowState::PerTarget && w.remote_locks() == 0 && w.self_lock == SelfLock::None {
            let _ = w.transition(|state| state.on_last_unlock());
        }
    }
}
