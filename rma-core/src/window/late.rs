//! Errors of targets that have no element which could keep them, until a call that covers the target reports them.

use crate::ids::Rank;
use crate::table::{FlushGroups, TargetError};

use super::Window;

/// Ranks whose errors are kept apart.
const KEPT_MAX: usize = 8;

/// The error of one rank: the first, if there are several.
#[derive(Clone, Copy, Debug)]
struct LateError {
    rank: Rank,
    error: TargetError,
    /// The calls about several targets that cover it, or may do so, and have not been told.
    groups: FlushGroups,
    /// They have named the rank, or the element that was given up with the error.
    is_named: bool,
}

/// Such errors of one window. What is beyond their room is reported by every call that could be meant until one covers
/// all ranks: an error that is told twice, or to who has not asked for this rank, but never success in place of one.
#[derive(Debug)]
pub(crate) struct LateErrors {
    /// Oldest first.
    kept: [Option<LateError>; KEPT_MAX],
    /// The first for which there was no room.
    more: Option<(Rank, TargetError)>,
    is_empty: bool,
}

impl LateErrors {
    pub(crate) const NONE: Self = Self { kept: [None; KEPT_MAX], more: None, is_empty: true };

    /// Whether there is nothing to report.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    fn add(&mut self, late: LateError) {
        self.is_empty = false;
        let is_place = |place: &&mut Option<LateError>| place.is_none_or(|other| other.rank == late.rank);
        match self.kept.iter_mut().find(is_place) {
            Some(Some(known)) => {
                known.groups.add(late.groups);
                known.is_named &= late.is_named;
            }
            Some(place) => *place = Some(late),
            None => {
                self.more.get_or_insert((late.rank, late.error));
            }
        }
    }

    /// Takes those out that are meant.
    fn drop_where(&mut self, is_meant: impl Fn(&LateError) -> bool) {
        let mut left = 0;
        for index in 0..KEPT_MAX {
            let Some(late) = self.kept[index].take() else { break };
            if !is_meant(&late) {
                self.kept[left] = Some(late);
                left += 1;
            }
        }
        self.is_empty = left == 0 && self.more.is_none();
    }

    /// What a call about this rank is to report. It is taken out, but for what other threads' calls about several targets
    /// are still to be told.
    fn take(&mut self, rank: Rank) -> Option<(Rank, TargetError)> {
        let first = self.of(rank);
        self.drop_where(|late| late.rank == rank && late.groups.is_empty());
        first
    }

    /// What this call about several targets is to report. What it has named, and none that is under way, is taken out if it
    /// `is_last` in its place.
    fn take_of(&mut self, call: FlushGroups, is_last: bool) -> Option<(Rank, TargetError)> {
        let mut kept = self.kept.iter().flatten();
        let first = kept.find(|late| late.groups.has(call)).map(|late| (late.rank, late.error));
        if is_last {
            self.drop_where(|late| late.is_named && late.groups == call);
            self.forget(call);
        }
        first.or(self.more)
    }

    /// The call is not to be told any more.
    pub(crate) fn forget(&mut self, call: FlushGroups) {
        for late in self.kept.iter_mut().flatten() {
            late.groups.remove(call);
        }
    }

    /// What is known of this rank, or may be its own for want of room; it stays.
    pub(crate) fn of(&self, rank: Rank) -> Option<(Rank, TargetError)> {
        let kept = self.kept.iter().flatten().find(|late| late.rank == rank);
        kept.map(|late| (late.rank, late.error)).or(self.more)
    }

    /// The first of any rank; it stays.
    pub(crate) fn first(&self) -> Option<(Rank, TargetError)> {
        self.kept[0].map(|late| (late.rank, late.error)).or(self.more)
    }
}

impl<R> Window<R> {
    /// Keeps the error of an element that is given up, which these calls are about.
    #[cold]
    pub(crate) fn keep_error(&mut self, rank: Rank, error: TargetError, groups: FlushGroups) {
        self.may_skip_flush = false;
        self.late.add(LateError { rank, error, groups, is_named: true });
    }

    /// Keeps an error that has come when its rank had no element: a call about several targets that is under way may be
    /// about this one.
    #[cold]
    pub(crate) fn keep_late_error(&mut self, rank: Rank, error: TargetError) {
        self.may_skip_flush = false;
        self.late.add(LateError { rank, error, groups: self.flushes.all(), is_named: false });
    }

    /// A call about several targets, of which this is one.
    pub(crate) fn name_late(&mut self, rank: Rank, call: FlushGroups) {
        for late in self.late.kept.iter_mut().flatten().filter(|late| late.rank == rank) {
            late.groups.add(call);
            late.is_named = true;
        }
    }

    /// The error that a call about this rank is to report.
    #[inline]
    pub(crate) fn take_late(&mut self, rank: Rank) -> Option<(Rank, TargetError)> {
        if self.late.is_empty() {
            return None;
        }
        self.take_known(rank)
    }

    #[cold]
    #[inline(never)]
    fn take_known(&mut self, rank: Rank) -> Option<(Rank, TargetError)> {
        let taken = self.late.take(rank);
        self.remember_flushes(self.remembers_flushes);
        taken
    }

    /// The error that this call about several targets is to report. What may be another rank's, or is another call's, too,
    /// stays.
    pub(crate) fn take_late_of(&mut self, call: FlushGroups, is_last: bool) -> Option<(Rank, TargetError)> {
        let error = self.late.take_of(call, is_last);
        self.remember_flushes(self.remembers_flushes);
        error
    }

    /// The error that a call about all ranks is to report: the first, and none is left.
    #[inline]
    pub(crate) fn take_all_late(&mut self) -> Option<(Rank, TargetError)> {
        if self.late.is_empty() {
            return None;
        }
        self.take_everybodys()
    }

    #[cold]
    #[inline(never)]
    fn take_everybodys(&mut self) -> Option<(Rank, TargetError)> {
        let first = self.late.first();
        self.late = LateErrors::NONE;
        self.remember_flushes(self.remembers_flushes);
        first
    }

    /// Whether what is remembered may answer a flush of this window, as long as there is nothing to report.
    pub(crate) fn remember_flushes(&mut self, remembers: bool) {
        self.remembers_flushes = remembers;
        self.may_skip_flush = remembers && self.late.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::OpenFlushes;

    const NONE: FlushGroups = FlushGroups::NONE;

    fn late(rank: u32, groups: FlushGroups, is_named: bool) -> LateError {
        LateError { rank: Rank(rank), error: TargetError::LockLost, groups, is_named }
    }

    #[test]
    fn each_rank_has_a_place_and_what_is_beyond_is_everybodys() {
        let mut errors = LateErrors::NONE;
        assert!(errors.is_empty());
        for rank in 0..KEPT_MAX as u32 {
            errors.add(late(rank, NONE, true));
            errors.add(late(rank, NONE, true));
        }
        assert_eq!((errors.of(Rank(7)), errors.of(Rank(8))), (Some((Rank(7), TargetError::LockLost)), None));
        errors.add(late(20, NONE, true));
        errors.add(late(21, NONE, true));
        assert_eq!(errors.of(Rank(3)).map(|(rank, _)| rank), Some(Rank(3)));
        for rank in [8, 20, 21] {
            assert_eq!(
                errors.of(Rank(rank)).map(|(rank, _)| rank),
                Some(Rank(20)),
                "whose it is, is not known"
            );
        }
        errors.drop_where(|late| late.rank.0 < 7);
        assert_eq!(errors.first().map(|(rank, _)| rank), Some(Rank(7)), "the others stay in order");
        errors.drop_where(|_| true);
        assert!(!errors.is_empty(), "what found no room is not forgotten");
    }

    #[test]
    fn calls_about_several_targets_leave_what_others_are_about() {
        let (mut errors, mut open) = (LateErrors::NONE, OpenFlushes::NONE);
        let (first, second) = (open.begin(), open.begin());
        let mut both = first;
        both.add(second);
        errors.add(late(1, first, true));
        errors.add(late(2, both, true));
        let rank_of = |errors: &mut LateErrors, call| errors.take_of(call, true).map(|(rank, _)| rank.0);
        assert_eq!(rank_of(&mut errors, first), Some(1));
        assert_eq!(rank_of(&mut errors, first), None, "it was told, and the second rank's is kept");
        // A call about the rank alone is told, and leaves it to who has named it, too.
        assert_eq!(errors.take(Rank(2)).map(|(rank, _)| rank.0), Some(2));
        assert_eq!((rank_of(&mut errors, second), errors.is_empty()), (Some(2), true));
        // Of two that share a place the last one ends for both.
        errors.add(late(4, first, true));
        assert_eq!(errors.take_of(first, false).map(|(rank, _)| rank.0), Some(4));
        assert_eq!((rank_of(&mut errors, first), errors.is_empty()), (Some(4), true));
        // An element that no such call was about fails behind an error that one may be about.
        errors.add(late(3, second, false));
        errors.add(late(3, NONE, true));
        assert_eq!((rank_of(&mut errors, second), rank_of(&mut errors, second)), (Some(3), None));
        assert_eq!(errors.of(Rank(3)).map(|(rank, _)| rank.0), Some(3), "the rank's own call is to come");
    }
}
