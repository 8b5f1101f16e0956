//! post, start, complete, wait and test (MPI-4.1 section 13.5.2).

use core::task::Poll;

use super::{epoch_error, Engine, FenceAssert, Stage, SyncCall, EXPOSED, LOCKED, NOT_EXPOSED};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, RmaError, Rule};
use crate::flush::Phase;
use crate::group::Group;
use crate::ids::{Rank, WindowId};
use crate::info::Flavor;
use crate::lock::LockType;
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::provider::Endpoint;
use crate::state::WindowState;
use crate::table::{Shortcut, Sync};

/// The promises of a post call (MPI-4.1 section 13.5.5).
///
/// Implements: MPI_MODE_NOCHECK/post, MPI_MODE_NOSTORE/post, MPI_MODE_NOPUT/post.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PostAssert {
    /// No member has called start yet, and each will call it with NOCHECK when it knows of this call: no
    /// notice is sent. Either all of the matching calls say so or none.
    pub no_check: bool,
    /// This rank's window memory was not stored to since the last synchronization. Accepted as a hint; changes
    /// nothing, as there is no second copy of the window.
    pub no_store: bool,
    /// This rank's window will not be the target of put or accumulate until wait. Accepted as a hint; changes
    /// nothing, but that a window that is checked reports operations that break it.
    pub no_put: bool,
}

/// The promises of a start call (MPI-4.1 section 13.5.5).
///
/// Implements: MPI_MODE_NOCHECK/start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct StartAssert {
    /// Every member has called post already, with NOCHECK: no notice is waited for.
    pub no_check: bool,
}

/// A call that opens an epoch, or frees the window, and first has to wait for what a complete left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    Lock { target: Rank, lock_type: LockType, no_check: bool },
    LockAll { no_check: bool },
    Fence { assert: FenceAssert },
    Start { assert: StartAssert },
    Free,
}

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Opens an exposure epoch: the members of `group` may access this rank's window. Done at once; one
    /// notice goes to each member, by and by.
    ///
    /// Implements: MPI_Win_post, MPI_ERR_RMA_SYNC, seed: PSCW.
    ///
    /// # Errors
    /// When an exposure or fence epoch is open, or this rank's window is locked, or a member is not a rank
    /// of the job. Nothing has happened then.
    pub fn start_post(
        &mut self,
        window: WindowId,
        group: &Group,
        assert: PostAssert,
    ) -> Result<SyncCall, RmaError> {
        let call = Call::Post;
        if !assert.no_check && !assert.no_put && self.post_at_once(window, group) {
            return Ok(SyncCall::new(call, window, Stage::Done));
        }
        self.check_endpoint(call)?;
        self.check_group(call, group)?;
        let w = self.windows.get_mut(window).filter(|w| w.usable).ok_or(RmaError::Window { call, window })?;
        let state = w.state();
        // Where a ghost has the lock, this rank knows of those that it holds itself.
        let rank = self.process.rank;
        let is_known = w.slots.find(&self.process.targets, rank).is_some() || w.parked.contains(rank);
        let is_locked_here = state.is_lock_all() || state == WindowState::PerTarget && is_known;
        let has_own_lock = w.is_served && is_locked_here;
        let broken = match () {
            () if w.exposure.is_open() => Some((EXPOSED, Rule::ExposureOpen)),
            () if state.is_fence() && w.fence_active => Some((state.name(), Rule::OtherEpochOpen)),
            () if w.is_locked() || has_own_lock => Some((LOCKED, Rule::LockedAndExposed)),
            () => None,
        };
        if let Some((state, rule)) = broken {
            return Err(RmaError::Epoch { call, target: None, state, rule });
        }
        // Seed table: POST, MEM_SYNC before PROC_SYNC.
        w.mem_sync();
        w.exposure.open(group, assert.no_check);
        if assert.no_put {
            w.promise_no_put_until_wait(rank);
        }
        self.process.send_notices(w);
        self.process.lose_the_dead(w);
        Ok(SyncCall::new(call, window, Stage::Done))
    }

    /// Begins to wait until every member of the exposure epoch's group has completed; the epoch is over
    /// then, and all their operations are complete and visible here.
    ///
    /// Implements: MPI_Win_wait, MPI_ERR_RMA_SYNC.
    ///
    /// # Errors
    /// When no exposure epoch is open; when polled, after a member was lost.
    pub fn start_wait(&mut self, window: WindowId) -> Result<SyncCall, RmaError> {
        if self.wait_at_once(window) == Some(true) {
            return Ok(SyncCall::new(Call::Wait, window, Stage::Done));
        }
        self.check_exposed(Call::Wait, window)?;
        Ok(SyncCall::new(Call::Wait, window, Stage::Wait))
    }

    /// Whether every member has completed, without waiting. When it is true the exposure epoch is over, as
    /// after wait. Makes no progress itself.
    ///
    /// Implements: MPI_Win_test, MPI_ERR_RMA_SYNC.
    ///
    /// # Errors
    /// As for [`Engine::start_wait`].
    pub fn test(&mut self, window: WindowId) -> Result<bool, RmaError> {
        self.check_exposed(Call::Test, window)?;
        match self.poll_exposure(Call::Test, window) {
            Poll::Ready(result) => result.map(|()| true),
            Poll::Pending if self.process.unanswered.is_some() && self.process.is_cut_off() => {
                let Poll::Ready(result) = self.process.failure(Call::Test) else { return Ok(false) };
                result.map(|()| false)
            }
            Poll::Pending => Ok(false),
        }
    }

    fn check_exposed(&mut self, call: Call, window: WindowId) -> Result<(), RmaError> {
        self.check_endpoint(call)?;
        let w = self.window(call, window)?;
        if w.exposure.is_open() {
            Ok(())
        } else {
            Err(RmaError::Epoch { call, target: None, state: NOT_EXPOSED, rule: Rule::NoSuchEpoch })
        }
    }

    pub(super) fn poll_exposure(&mut self, call: Call, window: WindowId) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(window) else {
            return Poll::Ready(Err(RmaError::Window { call, window }));
        };
        self.process.hear_epochs(w);
        if !w.exposure.is_over() {
            return Poll::Pending;
        }
        // Seed table: WAIT/TEST, MEM_SYNC after PROC_SYNC.
        w.mem_sync();
        if let Some(checker) = &mut w.checker {
            checker.on_waited();
        }
        Poll::Ready(match w.exposure.end() {
            Some((target, code)) => Err(RmaError::Peer { call, target, code }),
            None => Ok(()),
        })
    }

    /// Begins an access epoch to the members of `group`. It does not wait for their posts: operations to a
    /// member are kept until its notice has come.
    ///
    /// Implements: MPI_Win_start, MPI_ERR_RMA_SYNC, seed: PSCW.
    ///
    /// # Errors
    /// When another access epoch is open, or a member is not a rank of the job.
    pub fn start_start(
        &mut self,
        window: WindowId,
        group: &Group,
        assert: StartAssert,
    ) -> Result<SyncCall, RmaError> {
        let call = Call::Start;
        if !assert.no_check && self.start_at_once(window, group) {
            return Ok(SyncCall::new(call, window, Stage::Done));
        }
        self.check_endpoint(call)?;
        self.check_group(call, group)?;
        if self.has_leftover(window, None) {
            let mut sync = Self::after_leftover(call, window, Opening::Start { assert });
            sync.group = Some(group.clone());
            return Ok(sync);
        }
        let w = self.windows.get_mut(window).filter(|w| w.usable).ok_or(RmaError::Window { call, window })?;
        let state = w.state();
        if state.is_fence() && w.fence_active {
            return Err(epoch_error(call, None, state, Rule::OtherEpochOpen));
        }
        w.transition(WindowState::on_start)
            .map_err(|_| epoch_error(call, None, state, Rule::OtherEpochOpen))?;
        self.process.access_sequence = self.process.access_sequence.wrapping_add(1);
        w.access.open(group, assert.no_check, self.process.access_sequence);
        self.process.begin_access(w);
        // Shared memory may be accessed as soon as the call returns.
        let is_direct = w.flavor == Flavor::Shared && !Mutation::SharedStartUnawaited.is_on();
        let stage = if is_direct { Stage::StartGrant } else { Stage::Done };
        Ok(SyncCall::new(call, window, stage))
    }

    /// Begins to end the access epoch. When the call is done no operation refers to the user's memory any
    /// more; a target that has not posted yet gets what was kept for it later (weak synchronization).
    ///
    /// Implements: MPI_Win_complete, MPI_ERR_RMA_SYNC, seed: PSCW.
    ///
    /// # Errors
    /// When no epoch of start is open; when polled, after an operation failed, of this epoch or of what an
    /// earlier one left behind.
    pub fn start_complete(&mut self, window: WindowId) -> Result<SyncCall, RmaError> {
        let call = Call::Complete;
        if self.complete_at_once(window) {
            return Ok(SyncCall::new(call, window, Stage::Done));
        }
        self.check_endpoint(call)?;
        let w = self.windows.get_mut(window).filter(|w| w.usable).ok_or(RmaError::Window { call, window })?;
        let state = w.state();
        if !state.is_pscw() {
            return Err(epoch_error(call, None, state, Rule::NoSuchEpoch));
        }
        // Seed table: COMPLETE, MEM_SYNC before PROC_SYNC.
        w.mem_sync();
        if w.access.is_completing() {
            return match w.access.resume_complete() {
                true => Ok(SyncCall::new(call, window, Stage::Complete)),
                false => Err(epoch_error(call, None, state, Rule::Busy)),
            };
        }
        self.process.hear_epochs(w);
        w.access.complete();
        w.dirty = true;
        let mut t = w.slots.next(&self.process.targets, NONE);
        while let Some(index) = t {
            let te = &mut self.process.targets[index];
            te.sync = te.sync.max(Sync::Complete);
            self.process.make_rma_progress_target(w, index);
            t = w.slots.next(&self.process.targets, index);
        }
        Ok(SyncCall::new(call, window, Stage::Complete))
    }

    /// Whether the open epoch of start has operations for targets that have not posted yet, as far as is known.
    pub fn keeps_for_posts(&self, window: WindowId) -> bool {
        let window = self.windows.peek(window);
        window.is_some_and(|w| w.state() == WindowState::PscwIssued && w.slots.count() > 0)
    }

    pub(super) fn poll_complete(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        if !w.access.is_over() {
            self.process.hear_late_posts(w);
            self.process.complete_untouched(w);
        }
        if !w.acks.is_empty() {
            return self.wait(sync, Phase::Acknowledgement);
        }
        let mut t = w.slots.next(&self.process.targets, NONE);
        while let Some(index) = t {
            self.process.cleanup_ops_target(w, index);
            if !self.process.may_return_from_complete(index) {
                return Poll::Pending;
            }
            t = w.slots.next(&self.process.targets, index);
        }
        // COMPLETE for a member without element that the fabric had no room for.
        let is_over = w.access.is_over();
        let mut from = 0;
        while let Some((place, rank)) = if is_over { None } else { w.access.poll_close(from) } {
            if w.is_served || w.slots.find(&self.process.targets, rank).is_none() {
                return Poll::Pending;
            }
            from = place + 1;
        }
        self.process.free_completed(w, &mut sync.counted);
        let error = w.take_all_late();
        if is_over && w.slots.count() == 0 {
            w.access.end();
        }
        let _ = w.transition(WindowState::on_complete);
        // An element that is left for later may have been where it leads.
        self.process.shortcut = Shortcut::NONE;
        Poll::Ready(error.map_or(Ok(()), |(rank, error)| Err(error.report(sync.call, rank))))
    }

    fn check_group(&self, call: Call, group: &Group) -> Result<(), RmaError> {
        group.iter().next_back().map_or(Ok(()), |last| self.check_rank(call, last))
    }

    /// Whether the window's last complete has left something that must be done before the next epoch.
    /// Or a lock that was given up, which keeps those of other targets (`None`: all) waiting only as far as all are
    /// locked together.
    pub(super) fn has_leftover(&self, window: WindowId, target: Option<Rank>) -> bool {
        let Some(w) = self.windows.peek(window) else { return false };
        w.has_leftover() || (w.is_given_up && self.process.has_given_up(w, target))
    }

    /// A call that begins when nothing is left of the window's last access epoch.
    pub(super) fn after_leftover(call: Call, window: WindowId, opening: Opening) -> SyncCall {
        SyncCall::new(call, window, Stage::Leftover { opening })
    }

    /// Begins the call when the leftover is done. What went wrong in it is reported by the call that closes
    /// the next epoch, so that this one can be opened, and those who wait for it get what they wait for.
    pub(super) fn poll_leftover(
        &mut self,
        sync: &mut SyncCall,
        opening: Opening,
    ) -> Poll<Result<(), RmaError>> {
        let target = match opening {
            Opening::Lock { target, .. } => Some(target),
            _ => None,
        };
        if self.has_leftover(sync.window, target) {
            return Poll::Pending;
        }
        let begun = match (opening, sync.group.take()) {
            (Opening::Lock { target, lock_type, no_check }, _) => {
                self.start_lock(sync.window, target, lock_type, no_check)
            }
            (Opening::LockAll { no_check }, _) => self.start_lock_all(sync.window, no_check),
            (Opening::Fence { assert }, _) => self.start_fence(sync.window, assert),
            (Opening::Start { assert }, Some(group)) => self.start_start(sync.window, &group, assert),
            (Opening::Start { .. }, None) => return Poll::Ready(Ok(())),
            (Opening::Free, _) => self.start_free(sync.window),
        };
        match begun {
            Ok(begun) => {
                sync.stage = begun.stage;
                self.poll(sync)
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}
