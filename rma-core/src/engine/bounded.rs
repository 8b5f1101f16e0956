//! Flushes that are waited for end when what was posted before them is complete, whatever other threads go on to post:
//! a flush that has looked in vain for a while, as somebody posts meanwhile, opens the marks of a flush with a request
//! (`progress/marks.rs`) and ends behind them, too. Marks close the fast path to their target while they last, so that none
//! is opened where nobody else posts.

use core::task::Poll;

use super::{Engine, Stage, SyncCall};
use crate::bootstrap::Bootstrap;
use crate::error::RmaError;
use crate::ids::{Rank, WindowId};
use crate::pool::NONE;
use crate::provider::Endpoint;
use crate::table::{FlushGroups, TargetElement};

/// Looks after which a flush asks whether anything was posted since it asked last.
pub(super) const LOOKS: u8 = 64;

/// Which targets a flush is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    One(Rank),
    All,
    Several { group: FlushGroups },
    OneLocally(Rank),
    AllLocally,
}

impl Scope {
    fn is_local(self) -> bool {
        matches!(self, Self::OneLocally(_) | Self::AllLocally)
    }

    fn covers(self, te: &TargetElement) -> bool {
        match self {
            Self::One(target) | Self::OneLocally(target) => te.rank == target,
            Self::All | Self::AllLocally => true,
            Self::Several { group } => te.flush_groups.has(group),
        }
    }
}

/// What a flush that waits has seen so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Watch {
    /// What was posted by then.
    posted: u32,
    /// The ticket of its marks; 0: there are none yet.
    mark: u32,
}

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// A flush has looked and is not over.
    #[inline]
    pub(super) fn keep_watch(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        sync.looks = sync.looks.wrapping_add(1);
        if sync.looks % LOOKS == 0 {
            self.look_around(sync);
        }
        Poll::Pending
    }

    /// Opens the marks of a flush if anything was posted since it was here before. Where one has no room for them, they
    /// are opened another time.
    #[cold]
    #[inline(never)]
    fn look_around(&mut self, sync: &mut SyncCall) {
        let posted = self.posted();
        let (scope, before) = match sync.stage {
            Stage::Flush { target } => (Scope::One(target), None),
            Stage::FlushAll => (Scope::All, None),
            Stage::FlushTargets { group } => (Scope::Several { group }, None),
            Stage::FlushLocal { target } => (Scope::OneLocally(target), None),
            Stage::FlushLocalAll => (Scope::AllLocally, None),
            Stage::Watched { scope, watch: Watch { posted, mark: 0 } } => (scope, Some(posted)),
            _ => return,
        };
        let is_alone = before.is_none_or(|before| before == posted);
        let mark = if is_alone { 0 } else { self.open_marks(sync.window, scope) };
        sync.stage = Stage::Watched { scope, watch: Watch { posted, mark } };
    }

    /// A number that changes with each operation that leaves.
    fn posted(&self) -> u32 {
        let counters = &self.process.counters;
        let natives = counters.native_puts + counters.native_gets + counters.native_atomics;
        natives.wrapping_add(counters.message_operations) as u32
    }

    /// Opens a mark behind what was posted to each of these targets. 0: one has no room for it yet.
    #[cold]
    fn open_marks(&mut self, window: WindowId, scope: Scope) -> u32 {
        let ticket = self.next_ticket(window);
        let Some(w) = self.windows.get_mut(window) else { return 0 };
        let process = &mut self.process;
        let mut t = w.slots.next(&process.targets, NONE);
        while let Some(index) = t {
            let te = &process.targets[index];
            if scope.covers(te) && !te.marks.has_room(te.posted, scope.is_local()) {
                return 0;
            }
            t = w.slots.next(&process.targets, index);
        }
        let mut t = w.slots.next(&process.targets, NONE);
        while let Some(index) = t {
            if scope.covers(&process.targets[index]) {
                process.open_mark(w, index, ticket, scope.is_local());
            }
            t = w.slots.next(&process.targets, index);
        }
        ticket
    }

    /// Whether everything before the marks is complete. What was given up before its packets were acknowledged is counted by
    /// the window.
    fn is_behind_marks(&mut self, window: WindowId, scope: Scope, ticket: u32) -> bool {
        let Some(w) = self.windows.get_mut(window) else { return true };
        let is_acknowledged = match scope {
            Scope::One(target) => !w.acks.contains(target),
            _ => scope.is_local() || w.acks.is_empty(),
        };
        let (process, mut is_over) = (&mut self.process, is_acknowledged);
        let mut t = w.slots.next(&process.targets, NONE);
        while let Some(index) = t {
            t = w.slots.next(&process.targets, index);
            if scope.covers(&process.targets[index]) {
                is_over &= process.is_behind_mark(w, index, ticket);
            }
        }
        is_over
    }

    /// A flush that has looked in vain before.
    #[cold]
    #[inline(never)]
    pub(super) fn poll_watched(
        &mut self,
        sync: &mut SyncCall,
        scope: Scope,
        watch: Watch,
    ) -> Poll<Result<(), RmaError>> {
        let is_over = watch.mark != 0 && self.is_behind_marks(sync.window, scope, watch.mark);
        match scope {
            Scope::One(target) if is_over => Poll::Ready(self.end_one(sync, target)),
            Scope::One(target) => self.poll_flush(sync, target),
            Scope::All if is_over => Poll::Ready(self.end_all(sync)),
            Scope::All => self.poll_flush_all(sync),
            Scope::Several { group } if is_over => Poll::Ready(self.end_several(sync, group)),
            Scope::Several { group } => self.poll_flush_targets(sync, group),
            Scope::OneLocally(target) if is_over => Poll::Ready(self.end_one_locally(sync, target)),
            Scope::OneLocally(target) => self.poll_flush_local(sync, target),
            Scope::AllLocally if is_over => Poll::Ready(self.end_all_locally(sync)),
            Scope::AllLocally => self.poll_flush_local_all(sync),
        }
    }
}
