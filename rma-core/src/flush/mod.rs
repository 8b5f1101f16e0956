//! When a synchronization call may return, and which answer it waits for until then.

use core::task::Poll;

use crate::bootstrap::Bootstrap;
use crate::error::{Call, RmaError};
use crate::ids::Rank;
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::progress::{Failure, Process};
use crate::provider::Endpoint;
use crate::state::TargetLockState;
use crate::table::{Sync, TargetError};
use crate::window::Window;

/// What a call waits for. Each of the first three that it has to wait for, one after the other, is a
/// blocking round trip.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Phase {
    /// The lock's grant, before operations can leave.
    Grant,
    /// Completion of operations, before DONE or UNLOCK can leave.
    Operations,
    /// The last acknowledgements and results.
    Acknowledgement,
}

impl Phase {
    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// What the call that set the target's `sync` still waits for; `None` when it is done.
    pub(crate) fn sync_phase(&self, t: u32) -> Option<Phase> {
        let te = &self.targets[t];
        if te.is_dead() {
            // What the fabric still has must come back first; then cleanup frees its elements.
            return (!te.is_at_rest()).then_some(Phase::Acknowledgement);
        }
        let locked = te.lock == TargetLockState::Granted;
        match te.sync {
            Sync::Unlock | Sync::Complete if !locked && !te.sync_sent => Some(Phase::Grant),
            Sync::Unlock | Sync::Complete if !te.no_check && !te.sync_sent => Some(Phase::Operations),
            Sync::Unlock if !te.no_check && !te.unlock_acked => Some(Phase::Acknowledgement),
            // Its words are given back when everything is complete.
            Sync::Unlock if !te.words.is_idle() && !te.is_flushed() => Some(Phase::Operations),
            Sync::Unlock if !te.words.is_idle() => Some(Phase::Acknowledgement),
            // What is still out left before COMPLETE did; only a DONE that went with it is answered.
            Sync::Complete if te.done_acked == te.done_sent => {
                (!te.is_flushed()).then_some(Phase::Operations)
            }
            _ if !locked && !te.pending.is_empty() => Some(Phase::Grant),
            _ => (!te.is_flushed()).then_some(Phase::Acknowledgement),
        }
    }

    /// The latest thing that any target of the window still waits for.
    pub(crate) fn sync_phase_win(&mut self, w: &mut Window<E::Region>) -> Option<Phase> {
        let is_awaited = !w.acks.is_empty() && !Mutation::DetachedAckIgnored.is_on();
        let mut phase = is_awaited.then_some(Phase::Acknowledgement);
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            if let Some(waiting) = self.sync_phase(index) {
                phase = Some(phase.map_or(waiting, |other| other.min(waiting)));
            }
            t = w.slots.next(&self.targets, index);
        }
        phase
    }

    /// Remembers what the call that set the target's `sync` waits for now. Called after every change,
    /// so that a phase is counted even when its answer is there before the call is polled again.
    pub(crate) fn note_phase(&mut self, w: &Window<E::Region>, t: u32) {
        // What a fence's own barrier holds back waits for no answer of the target.
        let phase = if w.state().may_issue() { self.sync_phase(t) } else { None };
        let waits = match (self.targets[t].sync, phase) {
            (Sync::Issue, Some(_)) => !self.targets[t].is_locally_complete(),
            // A post is the target's own call, and no answer to anything.
            (Sync::Complete, phase) => phase.is_some_and(|phase| phase != Phase::Grant),
            (_, phase) => phase.is_some(),
        };
        if let (true, Some(phase)) = (waits, phase) {
            self.targets[t].phases |= phase.bit();
        }
    }

    /// Counts what was remembered for a target whose call is done.
    pub(crate) fn count_phases(&mut self, counted: &mut u8, t: u32) {
        let phases = core::mem::take(&mut self.targets[t].phases);
        for phase in [Phase::Grant, Phase::Operations, Phase::Acknowledgement] {
            if phases & phase.bit() != 0 {
                self.count_phase(counted, phase);
            }
        }
    }

    /// The same for all targets of the window.
    pub(crate) fn count_phases_win(&mut self, w: &Window<E::Region>, counted: &mut u8) {
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            self.count_phases(counted, index);
            t = w.slots.next(&self.targets, index);
        }
    }

    /// Counts a phase that a call begins to wait for.
    pub(crate) fn count_phase(&mut self, counted: &mut u8, phase: Phase) {
        if *counted & phase.bit() == 0 {
            *counted |= phase.bit();
            self.counters.round_trips += 1;
        }
    }

    /// The error that operations to a target met since the last synchronization call.
    pub(crate) fn take_error(&mut self, t: u32, call: Call) -> Result<(), RmaError> {
        let te = &mut self.targets[t];
        let rank = te.rank;
        let Some(error) = te.error else { return Ok(()) };
        if !te.is_dead() {
            te.error = None;
        }
        if let (true, Some(Failure::Bootstrap(_))) = (self.targets[t].is_dead(), &self.failure) {
            return Err(self.failure.as_ref().map_or_else(|| error.report(call, rank), |f| f.report(call)));
        }
        self.refresh_direct(t);
        Err(error.report(call, rank))
    }

    /// An error about a rank that has no element: kept for the next call that covers it.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_late_error(&mut self, w: &mut Window<E::Region>, rank: Rank, error: TargetError) {
        // A flush has something to report.
        self.shortcut.note_posted();
        w.keep_late_error(rank, error);
    }

    /// The same of targets that have no element.
    pub(crate) fn take_late_error(&mut self, w: &mut Window<E::Region>, call: Call) -> Result<(), RmaError> {
        w.take_all_late().map_or(Ok(()), |(rank, error)| Err(error.report(call, rank)))
    }

    /// The same for all targets of the window: the first error, and none is left.
    pub(crate) fn take_errors(&mut self, w: &mut Window<E::Region>, call: Call) -> Result<(), RmaError> {
        let mut result = self.take_late_error(w, call);
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            let error = self.take_error(index, call);
            result = result.and(error);
            t = w.slots.next(&self.targets, index);
        }
        result
    }

    /// What a call reports when it waits for somebody who may never answer.
    pub(crate) fn failure(&self, call: Call) -> Poll<Result<(), RmaError>> {
        match &self.failure {
            Some(failure) => Poll::Ready(Err(failure.report(call))),
            None => Poll::Pending,
        }
    }
}
