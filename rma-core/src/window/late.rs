//! Errors of targets that have no element which could keep them, until a call that covers the target reports them.

use crate::ids::Rank;
use crate::table::{is_before, TargetError};

use super::Window;

/// Ranks whose errors are kept apart.
const KEPT_MAX: usize = 8;

/// The error of one rank: the first, if there are several.
#[derive(Clone, Copy, Debug)]
struct LateError {
    rank: Rank,
    error: TargetError,
    /// The last call about several targets that covers it, or may do so.
    group: u32,
    /// That call has named the rank, or the element that was given up with the error.
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
                // Whichever call comes last is still to see it.
                if known.group == 0 || late.group != 0 && is_before(known.group, late.group) {
                    known.group = late.group;
                }
                known.is_named &= late.is_named;
            }
            Some(place) => *place = Some(late),
            None => {
                self.more.get_or_insert((late.rank, late.error));
            }
        }
    }

    /// Takes those out that are meant; the first of them.
    fn take_where(&mut self, is_meant: impl Fn(&LateError) -> bool) -> Option<(Rank, TargetError)> {
        let (mut first, mut left) = (None, 0);
        for index in 0..KEPT_MAX {
            let Some(late) = self.kept[index].take() else { break };
            if is_meant(&late) {
                first = first.or(Some((late.rank, late.error)));
            } else {
                self.kept[left] = Some(late);
                left += 1;
            }
        }
        self.is_empty = left == 0 && self.more.is_none();
        first
    }

    /// What the call about several targets with this number is to report. What it has named, and no later call, is taken out.
    fn take_of(&mut self, group: u32) -> Option<(Rank, TargetError)> {
        let is_meant = |late: &&LateError| late.group != 0 && !is_before(late.group, group);
        let taken = self.take_where(|late| late.is_named && late.group == group);
        let mut others = self.kept.iter().flatten().filter(is_meant);
        taken.or_else(|| others.next().map(|late| (late.rank, late.error))).or(self.more)
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
    /// Keeps the error of an element that is given up, which the call with this number was about last.
    #[cold]
    pub(crate) fn keep_error(&mut self, rank: Rank, error: TargetError, group: u32) {
        self.may_skip_flush = false;
        self.late.add(LateError { rank, error, group, is_named: true });
    }

    /// Keeps an error that has come when its rank had no element: a call about several targets that is under way may be
    /// about this one.
    #[cold]
    pub(crate) fn keep_late_error(&mut self, rank: Rank, error: TargetError) {
        self.may_skip_flush = false;
        self.late.add(LateError { rank, error, group: self.ticket, is_named: false });
    }

    /// A call about several targets, of which this is one.
    pub(crate) fn name_late(&mut self, rank: Rank, group: u32) {
        for late in self.late.kept.iter_mut().flatten().filter(|late| late.rank == rank) {
            (late.group, late.is_named) = (group, true);
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
        let taken = self.late.take_where(|late| late.rank == rank);
        self.remember_flushes(self.remembers_flushes);
        taken.or(self.late.more)
    }

    /// The error that the call about several targets with this number is to report. What may be another rank's, or is a later
    /// call's, too, stays.
    pub(crate) fn take_late_of(&mut self, group: u32) -> Option<(Rank, TargetError)> {
        let error = self.late.take_of(group);
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

    fn late(rank: u32, group: u32, is_named: bool) -> LateError {
        LateError { rank: Rank(rank), error: TargetError::LockLost, group, is_named }
    }

    #[test]
    fn each_rank_has_a_place_and_what_is_beyond_is_everybodys() {
        let mut errors = LateErrors::NONE;
        assert!(errors.is_empty());
        for rank in 0..KEPT_MAX as u32 {
            errors.add(late(rank, 0, true));
            errors.add(late(rank, 0, true));
        }
        assert_eq!((errors.of(Rank(7)), errors.of(Rank(8))), (Some((Rank(7), TargetError::LockLost)), None));
        errors.add(late(20, 0, true));
        errors.add(late(21, 0, true));
        assert_eq!(errors.of(Rank(3)).map(|(rank, _)| rank), Some(Rank(3)));
        for rank in [8, 20, 21] {
            assert_eq!(
                errors.of(Rank(rank)).map(|(rank, _)| rank),
                Some(Rank(20)),
                "whose it is, is not known"
            );
        }
        let taken = errors.take_where(|late| late.rank.0 < 7);
        assert_eq!(taken.map(|(rank, _)| rank), Some(Rank(0)));
        assert_eq!(errors.first().map(|(rank, _)| rank), Some(Rank(7)), "the others stay in order");
        errors.take_where(|_| true);
        assert!(!errors.is_empty(), "what found no room is not forgotten");
    }

    #[test]
    fn calls_about_several_targets_leave_what_later_ones_are_about() {
        let mut errors = LateErrors::NONE;
        errors.add(late(1, 5, true));
        errors.add(late(2, 6, true));
        let rank_of = |errors: &mut LateErrors, group| errors.take_of(group).map(|(rank, _)| rank.0);
        assert_eq!(rank_of(&mut errors, 5), Some(1));
        assert_eq!(rank_of(&mut errors, 5), Some(2), "told, and kept");
        assert_eq!((rank_of(&mut errors, 7), rank_of(&mut errors, 6)), (None, Some(2)));
        assert!(errors.is_empty());
        // An element that no such call was about fails behind an error that one may be about.
        errors.add(late(3, 8, false));
        errors.add(late(3, 0, true));
        assert_eq!(
            (rank_of(&mut errors, 8), rank_of(&mut errors, 8)),
            (Some(3), Some(3)),
            "the rank's own call is to come"
        );
    }
}
