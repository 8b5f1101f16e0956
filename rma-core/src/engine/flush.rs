//! flush, flush_all, flush_local, flush_local_all (MPI-4.1 section 13.5.4).

use core::task::Poll;

use super::bounded::LOOKS;
use super::{epoch_error, Engine, Stage, SyncCall};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, RmaError, Rule};
use crate::flush::Phase;
use crate::ids::{Rank, WindowId};
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::provider::Endpoint;
use crate::state::WindowState;
use crate::table::{FlushGroups, Sync, TargetElement};
use crate::window::{SelfLock, Window};

/// What a flush of the target used last finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// All is complete.
    Nothing,
    /// Puts and gets under way that are only counted, at the target's element.
    Counted(u32),
    /// Something else, or that is not known.
    Unknown,
}

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Begins to complete, at origin and target, all operations that were posted to `target`.
    ///
    /// # Errors
    /// When no passive-target epoch to the rank is open.
    ///
    /// Implements: MPI_Win_flush, seed: FLUSH.
    pub fn start_flush(&mut self, window: WindowId, target: Rank) -> Result<SyncCall, RmaError> {
        if let Some(sync) = self.flush_by_shortcut(window, target) {
            return Ok(sync);
        }
        let is_near = !self.process.at_once.is_nothing();
        let left =
            if self.is_flushed(window, target) { Left::Nothing } else { self.find_left(window, target) };
        match left {
            Left::Counted(element) => {
                return Ok(SyncCall::new(Call::Flush, window, Stage::FlushCounted { target, element }));
            }
            Left::Unknown if !(is_near && self.flush_parked(window, target)) => {}
            Left::Nothing | Left::Unknown => {
                return Ok(SyncCall::new(Call::Flush, window, Stage::AtOnce { target }));
            }
        }
        self.begin_flush(Call::Flush, window, Some(target))?;
        Ok(SyncCall::new(Call::Flush, window, Stage::Flush { target }))
    }

    /// Whether a flush is known to have nothing left to do: nothing was posted since the last one found that, or only what was
    /// complete at once, behind which it passes a fence. A blocking flush asks this first; `false` says nothing.
    #[inline]
    pub fn is_flushed(&mut self, window: WindowId, target: Rank) -> bool {
        let process = &mut self.process;
        let is_known = process.shortcut.is_flushed(window, target) && process.failure.is_none();
        if is_known {
            // Seed table: FLUSH, MEM_SYNC of what was complete at once.
            process.pass_fence();
        }
        is_known
    }

    /// The same from what is under way, without a call that waits for it: true when `target` is the one used last, in
    /// a passive-target epoch without an error, and everything posted to it is complete. It is remembered, but of shared
    /// memory, where stores that the engine knows nothing of are to be ordered by each flush.
    #[inline]
    pub(super) fn find_flushed(&mut self, window: WindowId, target: Rank) -> bool {
        self.find_left(window, target) == Left::Nothing
    }

    /// What is left of all that was posted to the target used last.
    #[inline(never)]
    fn find_left(&mut self, window: WindowId, target: Rank) -> Left {
        let Some(w) = self.windows.get_mut(window) else { return Left::Unknown };
        let is_known = w.last_rank == target && w.acks.is_empty();
        if !is_known || !w.state().is_passive() || !w.may_skip_flush {
            return w.begin_unknown_flush();
        }
        let Some(te) = self.process.targets.get(w.last_target) else { return Left::Unknown };
        let is_quiet = te.sync == Sync::None && self.process.failure.is_none();
        if !is_quiet || !te.has_only_counted_under_way() {
            return Left::Unknown;
        }
        let last = w.last_target;
        if te.native_outstanding() > 0 {
            return Left::Counted(last);
        }
        self.process.shortcut.note_flushed(window, (target, last));
        // Seed table: FLUSH, MEM_SYNC of what was complete at once.
        self.process.pass_fence();
        Left::Nothing
    }

    /// A flush that waits for puts and gets which the fabric has, and for nothing else: nothing must be issued for it.
    pub(super) fn poll_flush_counted(
        &mut self,
        sync: &mut SyncCall,
        (target, t): (Rank, u32),
    ) -> Poll<Result<(), RmaError>> {
        let is_of = |te: &&TargetElement| te.rank == target && te.window == sync.window;
        let left = self.process.targets.get(t).filter(is_of).filter(|te| te.has_only_counted_under_way());
        let Some(te) = left else { return self.flush_what_has_come(sync, target) };
        if te.native_outstanding() > 0 {
            sync.looks = sync.looks.wrapping_add(1);
            // Others may go on to post in this way.
            return if sync.looks % LOOKS == 0 {
                self.flush_what_has_come(sync, target)
            } else {
                Poll::Pending
            };
        }
        let Some(w) = self.windows.get_mut(sync.window) else { return gone(sync) };
        self.process.count_phase(&mut sync.counted, Phase::Acknowledgement);
        Poll::Ready(self.process.end_flush(w, t, sync.call))
    }

    /// Something else has come to what such a flush waits for, or it takes long: it becomes one like others.
    #[cold]
    #[inline(never)]
    pub(super) fn flush_what_has_come(
        &mut self,
        sync: &mut SyncCall,
        target: Rank,
    ) -> Poll<Result<(), RmaError>> {
        sync.stage = Stage::Flush { target };
        if let Some(w) = self.windows.get_mut(sync.window) {
            if let Some(t) = w.find(&self.process.targets, target) {
                self.process.want_flush(w, t, false);
            }
        }
        self.poll_flush(sync, target)
    }

    /// The same for all ranks.
    ///
    /// # Errors
    /// When no passive-target epoch is open.
    ///
    /// Implements: MPI_Win_flush_all.
    pub fn start_flush_all(&mut self, window: WindowId) -> Result<SyncCall, RmaError> {
        self.begin_flush(Call::FlushAll, window, None)?;
        self.order_stores(window);
        Ok(SyncCall::new(Call::FlushAll, window, Stage::FlushAll))
    }

    /// Begins to complete, at the origin, all operations that were posted to `target`: their buffers
    /// may be reused.
    ///
    /// # Errors
    /// As for [`Engine::start_flush`].
    ///
    /// Implements: MPI_Win_flush_local.
    pub fn start_flush_local(&mut self, window: WindowId, target: Rank) -> Result<SyncCall, RmaError> {
        self.begin_flush(Call::FlushLocal, window, Some(target))?;
        self.order_stores(window);
        Ok(SyncCall::new(Call::FlushLocal, window, Stage::FlushLocal { target }))
    }

    /// The same for all ranks.
    ///
    /// # Errors
    /// As for [`Engine::start_flush_all`].
    ///
    /// Implements: MPI_Win_flush_local_all.
    pub fn start_flush_local_all(&mut self, window: WindowId) -> Result<SyncCall, RmaError> {
        self.begin_flush(Call::FlushLocalAll, window, None)?;
        self.order_stores(window);
        Ok(SyncCall::new(Call::FlushLocalAll, window, Stage::FlushLocalAll))
    }

    /// Begins to complete, at origin and targets, all operations that were posted to any of `targets`: one
    /// wait for all of them together, where a flush of each would be one after the other.
    ///
    /// Implements: ours: flush_targets.
    ///
    /// # Errors
    /// As for [`Engine::start_flush`], of any of them; then none is flushed.
    pub fn start_flush_targets(&mut self, window: WindowId, targets: &[Rank]) -> Result<SyncCall, RmaError> {
        let call = Call::FlushTargets;
        self.window(call, window)?;
        for &target in targets {
            self.check_flush(call, window, Some(target))?;
        }
        self.order_stores(window);
        let w = self.windows.get_mut(window).ok_or(RmaError::Window { call, window })?;
        let group = w.flushes.begin();
        for &target in targets {
            w.name_late(target, group);
            if let Some(t) = w.find(&self.process.targets, target) {
                self.process.targets[t].flush_groups.add(group);
                self.process.want_flush(w, t, false);
            }
        }
        Ok(SyncCall::new(call, window, Stage::FlushTargets { group }))
    }

    /// Seed table: FLUSH, MEM_SYNC of direct stores, for the other flushes.
    fn order_stores(&self, window: WindowId) {
        if let Some(w) = self.windows.peek(window) {
            w.mem_sync();
        }
    }

    /// A number for a call that opens marks.
    pub(super) fn next_ticket(&mut self, window: WindowId) -> u32 {
        self.windows.get_mut(window).map_or(0, |w| w.flushes.next_ticket())
    }

    /// Whether a flush of the target, or of all, fits the epoch; the target's element.
    pub(super) fn check_flush(
        &mut self,
        call: Call,
        window: WindowId,
        target: Option<Rank>,
    ) -> Result<Option<u32>, RmaError> {
        self.check_endpoint(call)?;
        if let Some(target) = target {
            self.check_rank(call, target)?;
        }
        let w = self.windows.get_mut(window).filter(|w| w.usable).ok_or(RmaError::Window { call, window })?;
        let own = target.is_some_and(|target| w.is_own(self.process.rank, target));
        let state = w.state();
        if !state.is_passive() {
            return Err(epoch_error(call, target, state, Rule::FlushOutsidePassive));
        }
        let found = target.and_then(|target| w.find(&self.process.targets, target));
        let is_locked = |target| match own {
            true => w.self_lock != SelfLock::None,
            false => found.is_some() || w.parked.contains(target),
        };
        if state == WindowState::PerTarget && !target.is_none_or(is_locked) {
            return Err(epoch_error(call, target, state, Rule::NotLocked));
        }
        Ok(found)
    }

    fn begin_flush(&mut self, call: Call, window: WindowId, target: Option<Rank>) -> Result<(), RmaError> {
        let found = self.check_flush(call, window, target)?;
        let local = matches!(call, Call::FlushLocal | Call::FlushLocalAll);
        let w = self.windows.get_mut(window).ok_or(RmaError::Window { call, window })?;
        match (target, found) {
            (Some(_), Some(t)) => self.process.want_flush(w, t, local),
            (None, _) => {
                let mut t = w.slots.next(&self.process.targets, NONE);
                while let Some(index) = t {
                    self.process.want_flush(w, index, local);
                    t = w.slots.next(&self.process.targets, index);
                }
            }
            (Some(_), None) => {}
        }
        Ok(())
    }

    pub(super) fn poll_flush(&mut self, sync: &mut SyncCall, target: Rank) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else { return gone(sync) };
        let Some(t) = w.find(&self.process.targets, target) else {
            // Its element was given up: in a lock epoch after everything was complete; under lock_all
            // with an acknowledgement on its way, which the window counts.
            if w.acks.contains(target) {
                return self.wait(sync, Phase::Acknowledgement);
            }
            return Poll::Ready(self.end_one(sync, target));
        };
        if self.process.sync_phase(t).is_some() {
            self.process.insist(w, t, Sync::Flush);
            return self.keep_watch(sync);
        }
        // It may have had another element before, what was posted to which is not acknowledged.
        if w.acks.contains(target) {
            return self.wait(sync, Phase::Acknowledgement);
        }
        self.process.count_phases(&mut sync.counted, t);
        let ended = self.process.end_flush(w, t, sync.call);
        if w.flushed_alone.is_some_and(|sent| sent.is_again) {
            self.learn_packet_shortcut(sync.window, t);
        }
        Poll::Ready(ended)
    }

    /// Everything that a flush of one target is about is complete.
    pub(super) fn end_one(&mut self, sync: &mut SyncCall, target: Rank) -> Result<(), RmaError> {
        let Some(w) = self.windows.get_mut(sync.window) else { return Ok(()) };
        match w.find(&self.process.targets, target) {
            Some(t) => {
                self.process.count_phases(&mut sync.counted, t);
                self.process.end_flush(w, t, sync.call)
            }
            None => w.take_late(target).map_or(Ok(()), |(rank, error)| Err(error.report(sync.call, rank))),
        }
    }

    pub(super) fn poll_flush_all(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else { return gone(sync) };
        if self.process.sync_phase_win(w).is_some() {
            self.process.insist_win(w, Sync::Flush);
            return self.keep_watch(sync);
        }
        Poll::Ready(self.end_all(sync))
    }

    /// The same of all targets.
    pub(super) fn end_all(&mut self, sync: &mut SyncCall) -> Result<(), RmaError> {
        let Some(w) = self.windows.get_mut(sync.window) else { return Ok(()) };
        self.process.count_phases_win(w, &mut sync.counted);
        let mut result = self.process.take_errors(w, sync.call);
        let mut t = w.slots.next(&self.process.targets, NONE);
        while let Some(index) = t {
            t = w.slots.next(&self.process.targets, index);
            let ended = self.process.end_flush(w, index, sync.call);
            result = result.and(ended);
        }
        result
    }

    pub(super) fn poll_flush_targets(
        &mut self,
        sync: &mut SyncCall,
        group: FlushGroups,
    ) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else { return gone(sync) };
        // Elements that were given up meanwhile, or before.
        if !w.acks.is_empty() {
            return self.wait(sync, Phase::Acknowledgement);
        }
        let mut t = w.slots.next(&self.process.targets, NONE);
        while let Some(index) = t {
            if self.process.targets[index].flush_groups.has(group) && self.process.sync_phase(index).is_some()
            {
                self.process.insist(w, index, Sync::Flush);
                return self.keep_watch(sync);
            }
            t = w.slots.next(&self.process.targets, index);
        }
        Poll::Ready(self.end_several(sync, group))
    }

    /// The same of several targets.
    pub(super) fn end_several(&mut self, sync: &mut SyncCall, group: FlushGroups) -> Result<(), RmaError> {
        let Some(w) = self.windows.get_mut(sync.window) else { return Ok(()) };
        let is_last = w.flushes.end(group);
        let late = w.take_late_of(group, is_last);
        let mut result = late.map_or(Ok(()), |(rank, error)| Err(error.report(sync.call, rank)));
        let mut t = w.slots.next(&self.process.targets, NONE);
        while let Some(index) = t {
            t = w.slots.next(&self.process.targets, index);
            let te = &mut self.process.targets[index];
            if !te.flush_groups.has(group) {
                continue;
            }
            if is_last {
                te.flush_groups.remove(group);
            }
            if te.flush_groups.is_empty() {
                self.process.count_phases(&mut sync.counted, index);
                let ended = self.process.end_flush(w, index, sync.call);
                result = result.and(ended);
            } else if let (Some(error), Ok(())) = (te.error, &result) {
                // It stays for the other calls.
                result = Err(error.report(sync.call, te.rank));
            }
        }
        result
    }

    /// Nobody waits for the call about several targets any more. What it has not told stays for who asks for the ranks.
    #[cold]
    pub(super) fn leave_several(&mut self, window: WindowId, group: FlushGroups) {
        let Some(w) = self.windows.get_mut(window) else { return };
        if !w.flushes.end(group) {
            return;
        }
        w.late.forget(group);
        let mut t = w.slots.next(&self.process.targets, NONE);
        while let Some(index) = t {
            self.process.targets[index].flush_groups.remove(group);
            t = w.slots.next(&self.process.targets, index);
        }
    }

    pub(super) fn poll_flush_local(
        &mut self,
        sync: &mut SyncCall,
        target: Rank,
    ) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else { return gone(sync) };
        let Some(t) = w.find(&self.process.targets, target) else {
            return Poll::Ready(Ok(()));
        };
        self.process.cleanup_ops_target(w, t);
        if !self.process.targets[t].is_locally_complete() {
            self.process.insist(w, t, Sync::Issue);
            return self.keep_watch(sync);
        }
        Poll::Ready(self.end_one_locally(sync, target))
    }

    /// The user's buffers of what one target is about are free.
    pub(super) fn end_one_locally(&mut self, sync: &mut SyncCall, target: Rank) -> Result<(), RmaError> {
        let Some(w) = self.windows.get_mut(sync.window) else { return Ok(()) };
        let Some(t) = w.find(&self.process.targets, target) else { return Ok(()) };
        self.process.count_phases(&mut sync.counted, t);
        self.process.end_flush_local(t, sync.call)
    }

    pub(super) fn poll_flush_local_all(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else { return gone(sync) };
        self.process.cleanup_ops_win(w);
        let mut t = w.slots.next(&self.process.targets, NONE);
        while let Some(index) = t {
            if !self.process.targets[index].is_locally_complete() {
                self.process.insist_win(w, Sync::Issue);
                return self.keep_watch(sync);
            }
            t = w.slots.next(&self.process.targets, index);
        }
        Poll::Ready(self.end_all_locally(sync))
    }

    /// The same of all targets.
    pub(super) fn end_all_locally(&mut self, sync: &mut SyncCall) -> Result<(), RmaError> {
        let Some(w) = self.windows.get_mut(sync.window) else { return Ok(()) };
        self.process.count_phases_win(w, &mut sync.counted);
        let mut result = Ok(());
        let mut t = w.slots.next(&self.process.targets, NONE);
        while let Some(index) = t {
            let ended = self.process.end_flush_local(index, sync.call);
            result = result.and(ended);
            t = w.slots.next(&self.process.targets, index);
        }
        result
    }
}

/// The window was freed meanwhile.
#[cold]
fn gone(sync: &SyncCall) -> Poll<Result<(), RmaError>> {
    Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }))
}

impl<R> Window<R> {
    /// Of a flush of which nothing is known.
    #[cold]
    #[inline(never)]
    fn begin_unknown_flush(&self) -> Left {
        // Seed table: FLUSH, MEM_SYNC of direct stores.
        self.mem_sync();
        Left::Unknown
    }
}

impl<E: Endpoint, B: Bootstrap> crate::progress::Process<E, B> {
    /// Says again what a call that is not done wants of a target. Another thread's call of the same kind
    /// has ended and taken it back, or another thread has posted since: what it posted is counted by this
    /// call, and must not be kept back behind it.
    pub(super) fn insist(&mut self, w: &mut Window<E::Region>, t: u32, sync: Sync) {
        let te = &mut self.targets[t];
        if te.sync < sync && !te.is_dead() && !Mutation::FlushNotRepeated.is_on() {
            te.sync = sync;
            te.lock_wanted |= te.lock == crate::state::TargetLockState::Called && w.state().is_passive();
            w.dirty = true;
            self.make_rma_progress_target(w, t);
        }
    }

    /// The same for all targets of the window.
    pub(super) fn insist_win(&mut self, w: &mut Window<E::Region>, sync: Sync) {
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            if !self.targets[index].is_flushed() {
                self.insist(w, index, sync);
            }
            t = w.slots.next(&self.targets, index);
        }
    }

    fn want_flush(&mut self, w: &mut Window<E::Region>, t: u32, local: bool) {
        self.cleanup_ops_target(w, t);
        let te = &mut self.targets[t];
        let wanted = if local {
            // Operations whose data were copied need not even leave.
            if te.is_locally_complete() {
                Sync::None
            } else {
                Sync::Issue
            }
        } else if te.is_flushed() {
            Sync::None
        } else {
            Sync::Flush
        };
        if wanted == Sync::None {
            return;
        }
        te.sync = te.sync.max(wanted);
        te.lock_wanted |= te.lock == crate::state::TargetLockState::Called;
        if !self.flush_alone(w, t) {
            w.dirty = true;
            self.make_rma_progress_target(w, t);
        }
    }

    fn end_flush(&mut self, w: &mut Window<E::Region>, t: u32, call: Call) -> Result<(), RmaError> {
        let te = &mut self.targets[t];
        if te.sync == Sync::Flush || te.sync == Sync::Issue {
            te.sync = Sync::None;
        }
        let rank = te.rank;
        let result = self.take_error(t, call);
        // Of an element that it had before.
        let late = w.take_late(rank).map_or(Ok(()), |(rank, error)| Err(error.report(call, rank)));
        if !self.config.lazy_targets {
            self.release_eagerly(w, t);
        }
        result.and(late)
    }

    fn end_flush_local(&mut self, t: u32, call: Call) -> Result<(), RmaError> {
        let te = &mut self.targets[t];
        if te.sync == Sync::Issue {
            te.sync = Sync::None;
        }
        if te.is_dead() {
            return self.take_error(t, call);
        }
        Ok(())
    }
}
