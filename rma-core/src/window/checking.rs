//! The window's part in looking for conflicts.

use super::Window;
use crate::check::{Access, AccessKind, Checker, Group, Rules};
use crate::dtype::Dtype;
use crate::ids::Rank;
use crate::message::Watch;
use crate::op::ReduceOp;
use crate::wire::{BatchFlags, Conflict};

impl<R> Window<R> {
    /// What the target must know of the operations that leave now, to compare them.
    pub(crate) fn check_flags(&self, is_ordered: bool) -> BatchFlags {
        if self.checker.is_none() {
            return BatchFlags::default();
        }
        if self.state.is_fence() {
            let (_, completed) = self.barrier.progress();
            let odd = if completed & 1 == 1 { BatchFlags::PASSIVE } else { BatchFlags::default() };
            let ordered =
                if is_ordered || self.has_ordered { BatchFlags::ORDERED } else { BatchFlags::default() };
            BatchFlags::FENCE | odd | ordered
        } else if !self.state.is_passive() {
            BatchFlags::default()
        } else if is_ordered {
            BatchFlags::PASSIVE | BatchFlags::ORDERED
        } else {
            BatchFlags::PASSIVE
        }
    }

    /// Who looks at the operations of a batch that arrived with these flags.
    pub(crate) fn watch<'c>(
        &self,
        checker: &'c mut Checker,
        origin: Rank,
        flags: BatchFlags,
    ) -> Option<Watch<'c>> {
        checker.on_fences(self.barrier.progress().1);
        let (is_fence, is_passive) = (flags.has(BatchFlags::FENCE), flags.has(BatchFlags::PASSIVE));
        let group = match (is_fence, is_passive) {
            (true, is_odd) => Group::Fence(is_odd.into()),
            (false, true) => Group::Passive,
            (false, false) if self.exposure.is_exposed_to(origin) => Group::Exposed,
            (false, false) => return None,
        };
        let is_ordered = flags.has(BatchFlags::ORDERED);
        if is_ordered && !is_fence {
            checker.on_complete(origin);
        }
        let rules = Rules::of(&self.options).ordered(is_ordered);
        // Those of a fence epoch are still compared with what others do.
        Some(Watch { checker, rules, group, origin, is_ordered: is_ordered && !is_fence })
    }

    /// This process has just started the barrier of a fence. NOPUT, if it has said that, is about the epoch behind it.
    #[cold]
    pub(crate) fn promise_after_fence(&mut self, rank: Rank, no_put: bool) {
        let (started, completed) = self.barrier.progress();
        if let Some(checker) = &mut self.checker {
            let group = Group::Fence(started as u8 & 1);
            checker.on_fences(completed);
            // The last but one epoch's has ended, whether the barrier behind that is complete or not.
            checker.end_promise(group);
            if no_put {
                checker.promise_no_put(group, rank);
            }
        }
    }

    /// This process has said NOPUT at post.
    #[cold]
    pub(crate) fn promise_no_put_until_wait(&mut self, rank: Rank) {
        if let Some(checker) = &mut self.checker {
            checker.promise_no_put(Group::Exposed, rank);
        }
    }

    /// A batch with these flags was executed: what its origin asked to be told of is complete.
    pub(crate) fn on_batch_executed(&mut self, origin: Rank, flags: BatchFlags) {
        if let Some(checker) = &mut self.checker {
            if flags.any(BatchFlags::DONE | BatchFlags::UNLOCK) {
                checker.on_complete(origin);
            }
        }
    }

    /// Compares an access of this process itself to its own window, at `first` for `len` bytes.
    pub(crate) fn check_own(
        &mut self,
        rank: Rank,
        kind: AccessKind,
        (dtype, op): (Dtype, ReduceOp),
        first: u64,
        len: u64,
    ) -> Option<Conflict> {
        let checker = self.checker.as_deref_mut()?;
        let (started, completed) = self.barrier.progress();
        checker.on_fences(completed);
        // Own operations do not wait for the barrier of the fence before them.
        let is_fence = self.state.is_fence();
        let group = match () {
            () if is_fence => Group::Fence(started as u8 & 1),
            () if self.exposure.is_open() => Group::Exposed,
            () => Group::Passive,
        };
        let access = Access { origin: rank, kind, dtype, op, first, len };
        let rules = Rules::of(&self.options).ordered(self.has_ordered);
        // Elsewhere it is complete at once, and what others do later may be ordered behind it.
        let earlier = checker.note(group, access, is_fence, &rules)?;
        Some(Conflict::of(&access, &earlier))
    }
}
