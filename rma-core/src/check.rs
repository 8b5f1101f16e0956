//! Finds accesses that conflict (MPI-4.1 section 13.7): a table, at the target, of what the open epochs have
//! accessed so far. It reports only what no legal program does, so it forgets what may be complete.
//!
//! * Operations of a fence epoch are kept until the target has left it; any two that overlap conflict, unless
//!   both read, or both accumulate in a way that MPI allows.
//! * Updates under locks are kept until their origin has them completed (DONE, UNLOCK): until then no other
//!   rank can know of them, so one that touches the same bytes races with them. What one origin does itself
//!   under a lock is not compared: requests and order calls order it in ways that the target does not see.
//! * Updates between post and wait are kept until the target has waited, whether their origins have completed or
//!   not. What one origin does itself is not compared there either.
//! * A notified put that was executed ends what is kept of its origin: whoever has seen the notification may go on.
//! * Stores by the target's own program conflict with updates. In the separate memory model they conflict
//!   with every access, and its loads with updates; in the unified one both are allowed, for polling.
//! * NOPUT of post and fence is an access to the whole window that puts and accumulates conflict with, until the epoch
//!   ends.

use alloc::vec::Vec;

use crate::dtype::Dtype;
use crate::error::NO_PUT;
use crate::ids::Rank;
use crate::info::{AccumulateOps, AccumulateOrdering, MemoryModel, WindowOptions};
use crate::op::ReduceOp;
use crate::wire::OpKind;

/// What is done to the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// By an operation.
    Operation(OpKind),
    /// By the target's own program.
    Load,
    /// By the target's own program.
    Store,
    /// None at all: the target has promised that nobody puts or accumulates.
    NoPut,
}

impl AccessKind {
    const ALL: [Self; 8] = [
        Self::Operation(OpKind::Put),
        Self::Operation(OpKind::Get),
        Self::Operation(OpKind::Accumulate),
        Self::Operation(OpKind::GetAccumulate),
        Self::Operation(OpKind::CompareAndSwap),
        Self::Load,
        Self::Store,
        Self::NoPut,
    ];

    /// As a number for the wire.
    pub fn code(self) -> u8 {
        Self::ALL.iter().position(|&kind| kind == self).map_or(0, |at| at as u8)
    }

    /// The kind with this number.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// The name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operation(OpKind::Put) => "put",
            Self::Operation(OpKind::Get) => "get",
            Self::Operation(OpKind::Accumulate) => "accumulate",
            Self::Operation(OpKind::GetAccumulate) => "get_accumulate",
            Self::Operation(OpKind::CompareAndSwap) => "compare_and_swap",
            Self::Load => "local load",
            Self::Store => "local store",
            Self::NoPut => NO_PUT,
        }
    }

    const fn is_local(self) -> bool {
        matches!(self, Self::Load | Self::Store)
    }

    const fn accumulates(self) -> bool {
        matches!(self, Self::Operation(OpKind::Accumulate | OpKind::GetAccumulate | OpKind::CompareAndSwap))
    }
}

/// One access to the target's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Whose it is.
    pub origin: Rank,
    /// What it does.
    pub kind: AccessKind,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Reduction of an accumulate.
    pub op: ReduceOp,
    /// First byte in the window.
    pub first: u64,
    /// Bytes.
    pub len: u64,
}

impl Access {
    fn updates(&self) -> bool {
        match self.kind {
            AccessKind::Operation(OpKind::Get) | AccessKind::Load | AccessKind::NoPut => false,
            AccessKind::Operation(OpKind::Accumulate | OpKind::GetAccumulate) => self.op != ReduceOp::NoOp,
            AccessKind::Operation(_) | AccessKind::Store => true,
        }
    }

    fn end(&self) -> u64 {
        self.first.saturating_add(self.len)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.first < other.end() && other.first < self.end()
    }

    /// Extends it by `other` where together they are one run of bytes, alike in everything else.
    fn absorb(&mut self, other: &Self) -> bool {
        let alike = Self { first: other.first, len: other.len, ..*self } == *other;
        let touch = self.first <= other.end() && other.first <= self.end();
        if alike && touch {
            let end = self.end().max(other.end());
            self.first = self.first.min(other.first);
            self.len = end - self.first;
        }
        alike && touch
    }
}

/// The epochs whose accesses are compared with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Locks.
    Passive,
    /// From post to wait.
    Exposed,
    /// The fence epoch with this parity.
    Fence(u8),
}

impl Group {
    /// Whether operations are complete only when the whole epoch is.
    pub(crate) const fn is_fence(self) -> bool {
        matches!(self, Self::Fence(_))
    }
}

/// What the window's options say about conflicts.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    ops: AccumulateOps,
    ordering: AccumulateOrdering,
    model: MemoryModel,
    /// The origin has ordered its operations, in ways that the target does not see.
    is_ordered: bool,
}

impl Rules {
    /// What `options` say.
    pub fn of(options: &WindowOptions) -> Self {
        Self {
            ops: options.accumulate_ops,
            ordering: options.accumulate_ordering,
            model: options.model.unwrap_or_default(),
            is_ordered: false,
        }
    }

    /// The same for operations that their origin may have ordered.
    #[must_use]
    pub fn ordered(self, is_ordered: bool) -> Self {
        Self { is_ordered, ..self }
    }

    fn conflict(&self, group: Group, one: &Access, other: &Access) -> bool {
        if !one.overlaps(other) || !(one.updates() || other.updates()) {
            return false;
        }
        if one.kind == AccessKind::NoPut || other.kind == AccessKind::NoPut {
            return !one.kind.is_local() && !other.kind.is_local();
        }
        let same_origin = one.origin == other.origin;
        if one.kind.is_local() || other.kind.is_local() {
            // A process orders its own accesses; between two ranks the model decides.
            let both_update = one.updates() && other.updates();
            return !same_origin && (both_update || self.model == MemoryModel::Separate);
        }
        if same_origin && (!group.is_fence() || self.is_ordered) {
            return false;
        }
        !(one.kind.accumulates() && other.kind.accumulates() && self.may_meet(same_origin, one, other))
    }

    /// Whether two accumulates may meet at one location.
    fn may_meet(&self, same_origin: bool, one: &Access, other: &Access) -> bool {
        if same_origin && self.ordering == AccumulateOrdering::STRICT {
            return true;
        }
        let is_swap = |access: &Access| access.kind == AccessKind::Operation(OpKind::CompareAndSwap);
        let same = one.op == other.op && is_swap(one) == is_swap(other);
        let reads = one.op == ReduceOp::NoOp || other.op == ReduceOp::NoOp;
        one.dtype == other.dtype && (same || (reads && self.ops == AccumulateOps::SameOpNoOp))
    }
}

/// Accesses that are kept at most; the oldest make room.
const ENTRIES_MAX: usize = 1024;

/// The accesses of the epochs that are open at one window of this rank.
#[derive(Debug)]
pub struct Checker {
    entries: Vec<(Group, Access)>,
    /// Barriers of fences that were complete when it was used last.
    fences: u32,
    /// Accesses that had to make room: conflicts with them are not found.
    forgotten: u64,
}

impl Checker {
    /// Nothing accessed yet. Allocates all that it will ever hold.
    pub fn new() -> Self {
        Self { entries: Vec::with_capacity(ENTRIES_MAX), fences: 0, forgotten: 0 }
    }

    /// Compares an access with those that are kept, and keeps it if `keep`. Returns one that it conflicts with.
    pub fn note(&mut self, group: Group, access: Access, keep: bool, rules: &Rules) -> Option<Access> {
        if access.len == 0 {
            return None;
        }
        let of_group = |(in_group, _): &&(Group, Access)| *in_group == group;
        let found =
            self.entries.iter().filter(of_group).find(|(_, kept)| rules.conflict(group, kept, &access));
        let found = found.map(|(_, kept)| *kept);
        if keep {
            self.keep(group, access);
        }
        found
    }

    /// `target`, this rank, has promised that its window is not put or accumulated to in an epoch.
    pub(crate) fn promise_no_put(&mut self, group: Group, target: Rank) {
        let (dtype, op) = (Dtype::U8, ReduceOp::NoOp);
        let whole = Access { origin: target, kind: AccessKind::NoPut, dtype, op, first: 0, len: u64::MAX };
        self.keep(group, whole);
    }

    /// What this rank has promised about an epoch that is over.
    pub(crate) fn end_promise(&mut self, over: Group) {
        self.entries.retain(|(group, access)| *group != over || access.kind != AccessKind::NoPut);
    }

    fn keep(&mut self, group: Group, access: Access) {
        let mut of_group = self.entries.iter_mut().filter(|(in_group, _)| *in_group == group);
        if of_group.any(|(_, kept)| kept.absorb(&access)) {
            return;
        }
        if self.entries.len() == ENTRIES_MAX {
            // Promises are few, and hold until their epoch ends.
            let oldest = self.entries.iter().position(|(_, kept)| kept.kind != AccessKind::NoPut);
            self.entries.remove(oldest.unwrap_or(0));
            self.forgotten += 1;
        }
        self.entries.push((group, access));
    }

    /// So many barriers of fences are complete at this rank: the epochs before are over.
    pub fn on_fences(&mut self, completed: u32) {
        let passed = completed.wrapping_sub(self.fences);
        self.fences = completed;
        match passed {
            0 => {}
            1 => self.forget(Group::Fence(completed.wrapping_sub(1) as u8 & 1)),
            _ => self.entries.retain(|(group, _)| !group.is_fence()),
        }
    }

    /// All that `origin` did so far under locks is complete.
    pub fn on_complete(&mut self, origin: Rank) {
        self.entries.retain(|(group, access)| *group != Group::Passive || access.origin != origin);
    }

    /// The target has waited: all that was done since its post is complete.
    pub fn on_waited(&mut self) {
        self.forget(Group::Exposed);
    }

    /// A notification of `origin` was executed: its data are there, and others may know.
    pub fn on_notified(&mut self, origin: Rank) {
        let is_promise = |access: &Access| access.kind == AccessKind::NoPut;
        self.entries.retain(|(_, access)| access.origin != origin || is_promise(access));
    }

    /// Accesses that were forgotten because there was no room.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Bytes held beyond the structure itself.
    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(Group, Access)>()
    }

    fn forget(&mut self, over: Group) {
        self.entries.retain(|(group, _)| *group != over);
    }
}

impl Default for Checker {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FENCE: Group = Group::Fence(0);

    fn access(origin: u32, kind: OpKind, first: u64, len: u64) -> Access {
        let (dtype, op) = (Dtype::U64, ReduceOp::Sum);
        Access { origin: Rank(origin), kind: AccessKind::Operation(kind), dtype, op, first, len }
    }

    fn rules() -> Rules {
        Rules::of(&WindowOptions::DEFAULT)
    }

    /// Whether two accesses conflict, whichever comes first.
    fn conflict(group: Group, one: Access, other: Access, rules: &Rules) -> bool {
        let of = |first, second| {
            let mut checker = Checker::new();
            assert_eq!(checker.note(group, first, true, rules), None);
            checker.note(group, second, true, rules).is_some()
        };
        let both = [of(one, other), of(other, one)];
        assert_eq!(both[0], both[1]);
        both[0]
    }

    #[test]
    fn pairs_of_operations_in_a_fence_epoch() {
        use OpKind::{Accumulate, CompareAndSwap, Get, GetAccumulate, Put};
        for (one, other, expected) in [
            (Put, Put, true),
            (Put, Get, true),
            (Put, Accumulate, true),
            (Get, Get, false),
            (Get, Accumulate, true),
            (Accumulate, Accumulate, false),
            (Accumulate, GetAccumulate, false),
            (Accumulate, CompareAndSwap, true),
            (CompareAndSwap, CompareAndSwap, false),
        ] {
            let (one, other) = (access(1, one, 0, 8), access(2, other, 0, 8));
            assert_eq!(conflict(FENCE, one, other, &rules()), expected, "{one:?} {other:?}");
            let apart = Access { first: 8, ..other };
            assert!(!conflict(FENCE, one, apart, &rules()));
        }
        let (one, other) = (access(1, Put, 0, 8), access(1, Put, 7, 8));
        assert!(conflict(FENCE, one, other, &rules()), "of one origin too");
        assert!(!conflict(Group::Passive, one, other, &rules()), "but not under a lock");
    }

    #[test]
    fn reductions_meet_as_the_options_say() {
        let sum = access(1, OpKind::Accumulate, 0, 8);
        let read = Access { origin: Rank(2), op: ReduceOp::NoOp, ..sum };
        let product = Access { origin: Rank(2), op: ReduceOp::Prod, ..sum };
        let other_type = Access { origin: Rank(2), dtype: Dtype::I64, ..sum };
        let own_product = Access { origin: Rank(1), ..product };
        let same_op = WindowOptions { accumulate_ops: AccumulateOps::SameOp, ..WindowOptions::DEFAULT };
        let none = AccumulateOrdering::NONE;
        let relaxed = WindowOptions { accumulate_ordering: none, ..WindowOptions::DEFAULT };
        assert!(!conflict(FENCE, sum, read, &rules()));
        assert!(conflict(FENCE, sum, read, &Rules::of(&same_op)));
        assert!(conflict(FENCE, sum, product, &rules()) && conflict(FENCE, sum, other_type, &rules()));
        assert!(!conflict(FENCE, sum, own_product, &rules()));
        assert!(conflict(FENCE, sum, own_product, &Rules::of(&relaxed)));
    }

    #[test]
    fn local_accesses_follow_the_model() {
        let store = Access { kind: AccessKind::Store, ..access(0, OpKind::Put, 0, 8) };
        let load = Access { kind: AccessKind::Load, ..store };
        let (put, get) = (access(1, OpKind::Put, 0, 8), access(1, OpKind::Get, 0, 8));
        let model = Some(MemoryModel::Separate);
        let separate = Rules::of(&WindowOptions { model, ..WindowOptions::DEFAULT });
        for (one, other, unified_too) in [(store, put, true), (load, put, false), (store, get, false)] {
            assert!(conflict(FENCE, one, other, &separate));
            assert_eq!(conflict(FENCE, one, other, &rules()), unified_too);
        }
        assert!(!conflict(FENCE, load, get, &separate) && !conflict(FENCE, load, store, &separate));
    }

    #[test]
    fn a_promise_holds_for_updates_by_operations_until_its_epoch_ends() {
        let mut checker = Checker::new();
        let (put, get) = (access(1, OpKind::Put, 8, 8), access(1, OpKind::Get, 8, 8));
        let read = Access { op: ReduceOp::NoOp, ..access(1, OpKind::GetAccumulate, 8, 8) };
        let store = Access { kind: AccessKind::Store, ..access(0, OpKind::Put, 8, 8) };
        checker.on_fences(1);
        checker.promise_no_put(Group::Fence(0), Rank(0));
        // It is the one of the epoch that begins when the barrier is complete.
        checker.on_fences(2);
        checker.on_notified(Rank(0));
        for (access, is_broken) in [(put, true), (get, false), (read, false), (store, false)] {
            let found = checker.note(FENCE, access, false, &rules()).map(|found| found.kind);
            assert_eq!(found, is_broken.then_some(AccessKind::NoPut), "{access:?}");
        }
        assert!(
            checker.note(FENCE, access(0, OpKind::Accumulate, 0, 1), false, &rules()).is_some(),
            "one's own too"
        );
        assert_eq!(checker.note(Group::Passive, put, false, &rules()), None);
        checker.on_fences(3);
        assert_eq!(checker.note(FENCE, put, false, &rules()), None);
    }

    #[test]
    fn epochs_end() {
        let (one, other) = (access(1, OpKind::Put, 0, 8), access(2, OpKind::Put, 0, 8));
        let mut checker = Checker::new();
        checker.note(Group::Passive, one, true, &rules());
        checker.on_complete(Rank(2));
        assert_eq!(checker.note(Group::Passive, other, false, &rules()), Some(one));
        checker.on_complete(Rank(1));
        assert_eq!(checker.note(Group::Passive, other, false, &rules()), None);
        checker.note(Group::Fence(0), one, true, &rules());
        checker.note(Group::Fence(1), one, true, &rules());
        checker.on_fences(1);
        assert_eq!(checker.note(Group::Fence(0), other, false, &rules()), None);
        assert_eq!(checker.note(Group::Fence(1), other, false, &rules()), Some(one));
        checker.on_fences(3);
        assert_eq!(checker.note(Group::Fence(1), other, false, &rules()), None);
    }

    #[test]
    fn exposure_epochs_end_with_wait_and_notifications_end_what_they_follow() {
        let (one, other) = (access(1, OpKind::Put, 0, 8), access(2, OpKind::Put, 4, 8));
        let mut checker = Checker::new();
        checker.note(Group::Exposed, one, true, &rules());
        checker.on_complete(Rank(1));
        assert_eq!(checker.note(Group::Exposed, other, false, &rules()), Some(one));
        assert_eq!(checker.note(Group::Exposed, Access { origin: Rank(1), ..other }, false, &rules()), None);
        checker.on_fences(5);
        assert_eq!(checker.note(Group::Exposed, other, false, &rules()), Some(one));
        checker.on_waited();
        assert_eq!(checker.note(Group::Exposed, other, false, &rules()), None);
        checker.note(Group::Passive, one, true, &rules());
        checker.on_notified(Rank(2));
        assert_eq!(checker.note(Group::Passive, other, false, &rules()), Some(one));
        checker.on_notified(Rank(1));
        assert_eq!(checker.note(Group::Passive, other, false, &rules()), None);
    }

    #[test]
    fn memory_is_bounded_and_runs_are_one_entry() {
        let mut checker = Checker::new();
        let held = checker.heap_bytes();
        for at in 0..10_000 {
            checker.note(FENCE, access(1, OpKind::Put, 8 * at, 8), true, &rules());
        }
        assert_eq!((checker.entries.len(), checker.forgotten()), (1, 0));
        for at in 0..3000 {
            checker.note(FENCE, access(1, OpKind::Put, 1_000_000 + 16 * at, 8), true, &rules());
        }
        assert_eq!((checker.entries.len(), checker.forgotten()), (1024, 3001 - 1024));
        assert_eq!(checker.heap_bytes(), held);
    }

    #[test]
    fn kinds_have_codes() {
        for (code, kind) in AccessKind::ALL.into_iter().enumerate() {
            assert_eq!((kind.code() as usize, AccessKind::from_code(code as u8)), (code, Some(kind)));
        }
        assert_eq!(AccessKind::from_code(8), None);
    }
}
