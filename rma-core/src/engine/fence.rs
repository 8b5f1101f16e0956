//! fence (MPI-4.1 section 13.5.1) on a nonblocking dissemination barrier.

use core::task::Poll;

use super::pscw::Opening;
use super::{epoch_error, Engine, Stage, SyncCall, EXPOSED};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, RmaError, Rule};
use crate::ids::WindowId;
use crate::info::Flavor;
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::progress::{Failure, LEFT};
use crate::provider::Endpoint;
use crate::state::WindowState;
use crate::table::{Shortcut, Sync, TargetError};
use crate::wire::Purposes;

/// The promises of a fence call (MPI-4.1 section 13.5.5). `no_precede` and `no_succeed` must be given by
/// all ranks or by none; the others are each rank's own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FenceAssert {
    /// No operation of this process is to be completed by this fence.
    ///
    /// Implements: MPI_MODE_NOPRECEDE.
    pub no_precede: bool,
    /// No operation follows until another epoch is opened.
    ///
    /// Implements: MPI_MODE_NOSUCCEED.
    pub no_succeed: bool,
    /// This rank's window memory was not stored to since the last synchronization. Accepted as a hint; changes
    /// nothing, as there is no second copy of the window.
    ///
    /// Implements: MPI_MODE_NOSTORE/fence.
    pub no_store: bool,
    /// This rank's window will not be the target of put or accumulate until the next fence. Accepted as a hint;
    /// changes nothing, but that a window that is checked reports operations that break it.
    ///
    /// Implements: MPI_MODE_NOPUT/fence.
    pub no_put: bool,
}

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Begins a fence: completes the operations of the epoch that it ends, unless `no_precede`, and
    /// opens the next, unless `no_succeed`. Collective. With `no_precede` it is done at once: the barrier
    /// goes on behind it, and operations wait for it.
    ///
    /// # Errors
    /// When an epoch of lock, lock_all, start or post is open, or `no_precede` is not true.
    ///
    /// Implements: MPI_Win_fence, seed: FENCE.
    pub fn start_fence(&mut self, window: WindowId, assert: FenceAssert) -> Result<SyncCall, RmaError> {
        let call = Call::Fence;
        self.check_endpoint(call)?;
        if self.has_leftover(window, None) {
            return Ok(Self::after_leftover(call, window, Opening::Fence { assert }));
        }
        let w = self.windows.get_mut(window).filter(|w| w.usable).ok_or(RmaError::Window { call, window })?;
        let state = w.state();
        if !(state == WindowState::Unset || state.is_fence()) {
            return Err(epoch_error(call, None, state, Rule::OtherEpochOpen));
        }
        if w.exposure.is_open() {
            return Err(RmaError::Epoch { call, target: None, state: EXPOSED, rule: Rule::ExposureOpen });
        }
        if assert.no_precede && state.is_fence() && w.fence_active {
            return Err(epoch_error(call, None, state, Rule::NoPrecedeBroken));
        }
        // Seed table: FENCE, MEM_SYNC before PROC_SYNC.
        w.mem_sync();
        let stage =
            if assert.no_precede { Stage::FenceBegin { assert } } else { Stage::FenceComplete { assert } };
        // What was complete at once has left nothing to be done.
        if !assert.no_precede && self.process.sync_phase_win(w).is_some() {
            self.process.set_sync_all(w, Sync::Flush);
            self.process.make_rma_progress_win(w);
        }
        Ok(SyncCall::new(call, window, stage))
    }

    /// Waits for the operations of the epoch that ends.
    pub(super) fn poll_fence_complete(
        &mut self,
        sync: &mut SyncCall,
        assert: FenceAssert,
    ) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        if self.process.sync_phase_win(w).is_some() && !Mutation::FenceSkipsFlush.is_on() {
            self.process.insist_win(w, Sync::Flush);
            self.process.begin_barrier_behind_puts(w);
            return if w.state() == WindowState::FenceIssued { self.fail_fence(sync) } else { Poll::Pending };
        }
        let mut result = self.process.take_late_error(w, sync.call);
        while let Some(t) = w.slots.next(&self.process.targets, NONE) {
            self.process.count_phases(&mut sync.counted, t);
            let error = self.process.take_error(t, sync.call);
            result = result.and(error);
            self.process.free_target(w, t);
        }
        // Everybody else waits in the barrier, so an error is kept until it is over.
        sync.error = result.err();
        sync.stage = Stage::FenceBegin { assert };
        self.poll_fence_begin(sync, assert)
    }

    /// Starts the barrier.
    pub(super) fn poll_fence_begin(
        &mut self,
        sync: &mut SyncCall,
        assert: FenceAssert,
    ) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        let Some(sequence) = w.fence_begun.take().or_else(|| w.barrier.start(Purposes::FENCE, [])) else {
            return self.leave_barrier(sync);
        };
        w.barrier.release(sequence);
        let state = w.state();
        if w.transition(|state| state.on_fence()).is_err() {
            return Poll::Ready(Err(epoch_error(sync.call, None, state, Rule::OtherEpochOpen)));
        }
        w.fence_sequence = Some(sequence);
        if w.checker.is_some() {
            w.promise_after_fence(self.process.rank, assert.no_put);
        }
        (w.fence_active, w.has_ordered) = (false, false);
        // Who goes it does not note that there were operations: that was noted when it was found.
        self.process.shortcut = Shortcut::NONE;
        self.process.advance_barrier(w);
        // While the others come: who goes from here has passed it. For them the release with which a round is told is enough.
        self.process.pass_fence();
        // Shared memory may be accessed as soon as the call returns, by everybody's leave.
        let is_direct = w.flavor == Flavor::Shared && !Mutation::SharedFenceUnawaited.is_on();
        if assert.no_precede && !is_direct {
            if assert.no_succeed {
                let _ = w.transition(|state| state.on_fence_no_succeed());
            }
            return Poll::Ready(Ok(()));
        }
        sync.stage = Stage::FenceBarrier { assert, sequence };
        let result = self.poll_fence_barrier(sync, assert, sequence);
        if result.is_pending() {
            self.process.counters.barriers_waited += 1;
        }
        result
    }

    /// Waits for everybody.
    pub(super) fn poll_fence_barrier(
        &mut self,
        sync: &mut SyncCall,
        assert: FenceAssert,
        sequence: u32,
    ) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        self.process.advance_barrier(w);
        if w.barrier.is_mixed() {
            return self.leave_barrier(sync);
        }
        if !w.barrier.is_complete(sequence) {
            if Mutation::FenceAwaitsTheDead.is_on() {
                return Poll::Pending;
            }
            return self.fail_fence(sync);
        }
        // Seed table: FENCE, MEM_SYNC after PROC_SYNC.
        w.mem_sync();
        if w.fence_sequence == Some(sequence) {
            w.fence_sequence = None;
            let _ = w.transition(|state| state.on_fence_barrier());
        }
        if assert.no_succeed {
            let _ = w.transition(|state| state.on_fence_no_succeed());
            self.process.shortcut = Shortcut::NONE;
        }
        if let Some(RmaError::Peer { .. }) = sync.error {
            w.barrier.leave();
        }
        Poll::Ready(sync.error.take().map_or(Ok(()), Err))
    }

    /// The fence fails when a rank has died, perhaps before it has begun its barrier, and the caller may leave out those that
    /// follow: no later call on the window is a barrier. So it is where ranks met in the barrier that had come to free the window,
    /// or one is lost to somebody: who would come to another one?
    #[cold]
    fn leave_barrier(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        if let Some(w) = self.windows.get_mut(sync.window).filter(|w| w.barrier.is_broken()) {
            (w.fence_sequence, w.fence_active, w.has_ordered) = (None, false, false);
            if w.barrier.lost().is_some() {
                self.process.give_up_kept(w);
            }
            let _ = w.transition(|state| state.on_fence_barrier());
            // What says that others did not come says less than why.
            let own = sync.error.take().filter(|error| !matches!(error, RmaError::Peer { code: LEFT, .. }));
            let error = own.unwrap_or_else(|| self.process.broken(sync.call, &w.barrier));
            return Poll::Ready(Err(error));
        }
        let failed = self.process.failure(sync.call);
        if let (Poll::Ready(_), Some(w)) = (&failed, self.windows.get_mut(sync.window)) {
            w.barrier.leave();
        }
        failed
    }

    /// The barrier is not complete, and fails when a rank has died. What the fence keeps is given up with it: its
    /// buffers are the caller's again, and nothing may leave when the barrier's last packet comes after all, as the
    /// others may have freed the window by then.
    #[cold]
    fn fail_fence(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        let (Some(w), Some(Failure::Peer(_, code))) =
            (self.windows.get_mut(sync.window), &self.process.failure)
        else {
            return self.leave_barrier(sync);
        };
        let code = *code;
        w.fence_sequence = None;
        while let Some(t) = w.slots.next(&self.process.targets, NONE) {
            self.process.give_up_operations(w, t, TargetError::Peer(code));
            self.process.cleanup_ops_target(w, t);
            if self.process.sync_phase(t).is_some() {
                return Poll::Pending;
            }
            self.process.free_target(w, t);
        }
        self.leave_barrier(sync)
    }
}
