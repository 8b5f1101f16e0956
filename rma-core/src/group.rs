//! Groups of ranks, for post and start (MPI-4.1 section 13.5.2).

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::error::{Call, RmaError, Rule};
use crate::ids::Rank;

/// Distinct ranks of a job, sorted. Made once, outside of epochs, because making it allocates; clones share
/// the list.
///
/// Implements: MPI_Win_post, MPI_Win_start.
#[derive(Clone, Debug)]
pub struct Group {
    members: Members,
}

/// Who is in a group.
#[derive(Clone, Debug)]
enum Members {
    /// Every rank below this.
    Below(u32),
    /// These, lowest first.
    List(Arc<[Rank]>),
}

impl Group {
    /// The group of these ranks, in any order; none at all is legal.
    ///
    /// # Errors
    /// When a rank is not below `size`, the number of ranks of the job, or is there twice.
    pub fn new(ranks: &[Rank], size: u32) -> Result<Self, RmaError> {
        let call = Call::Group;
        let mut sorted: Vec<Rank> = ranks.to_vec();
        sorted.sort_unstable();
        if let Some(&target) = sorted.last().filter(|last| last.0 >= size) {
            return Err(RmaError::Rank { call, target, size });
        }
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            let what = "a rank is in the group twice; the ranks of a group are distinct";
            return Err(RmaError::Argument { call, what, rule: Rule::GroupDistinct });
        }
        Ok(Self { members: Members::List(sorted.into()) })
    }

    /// The group of all ranks of a job of `size`. Nothing is allocated, whatever the size.
    pub const fn all(size: u32) -> Self {
        Self { members: Members::Below(size) }
    }

    /// Number of members.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.members {
            Members::Below(size) => *size as usize,
            Members::List(ranks) => ranks.len(),
        }
    }

    /// Whether there is no member.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the rank is a member.
    pub fn contains(&self, rank: Rank) -> bool {
        self.place(rank).is_some()
    }

    /// The members, lowest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Rank> + DoubleEndedIterator + '_ {
        // Every place below the length has a member.
        (0..self.len()).map(|place| self.at(place).unwrap_or(Rank::NULL))
    }

    /// Whether the two are known to be the same without a look at their members.
    #[inline]
    pub(crate) fn is_clone_of(&self, other: &Self) -> bool {
        match (&self.members, &other.members) {
            (Members::Below(size), Members::Below(other)) => size == other,
            (Members::List(ranks), Members::List(other)) => Arc::ptr_eq(ranks, other),
            _ => false,
        }
    }

    /// Where a member stands in the order of [`Group::iter`].
    #[inline]
    pub(crate) fn place(&self, rank: Rank) -> Option<usize> {
        match &self.members {
            Members::Below(size) => (rank.0 < *size).then_some(rank.index()),
            Members::List(ranks) => match &ranks[..] {
                [only] => (*only == rank).then_some(0),
                ranks => ranks.binary_search(&rank).ok(),
            },
        }
    }

    /// The member at a place.
    #[inline]
    pub(crate) fn at(&self, place: usize) -> Option<Rank> {
        match &self.members {
            Members::Below(size) => (place < *size as usize).then_some(Rank(place as u32)),
            Members::List(ranks) => ranks.get(place).copied(),
        }
    }
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Group {}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(ranks: &[u32]) -> Result<Group, RmaError> {
        let ranks: Vec<Rank> = ranks.iter().map(|&rank| Rank(rank)).collect();
        Group::new(&ranks, 10)
    }

    #[test]
    fn members_are_sorted_and_found() {
        let group = group(&[7, 0, 3]).unwrap();
        assert_eq!(group.iter().map(|rank| rank.0).collect::<Vec<_>>(), [0, 3, 7]);
        assert_eq!((group.len(), group.is_empty()), (3, false));
        assert!(group.contains(Rank(3)) && !group.contains(Rank(4)));
        assert_eq!((group.place(Rank(7)), group.at(2), group.at(3)), (Some(2), Some(Rank(7)), None));
    }

    /// Shows: MPI_Win_get_group.
    #[test]
    fn all_ranks_are_a_group_without_a_list() {
        let all = Group::all(3);
        assert_eq!(all, Group::new(&[Rank(2), Rank(0), Rank(1)], 3).unwrap());
        assert!(all.contains(Rank(2)) && !all.contains(Rank(3)) && !all.is_empty());
        assert_eq!((all.place(Rank(1)), all.at(2), all.at(3)), (Some(1), Some(Rank(2)), None));
        assert_eq!(all.iter().rev().map(|rank| rank.0).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(Group::all(u32::MAX).len(), u32::MAX as usize);
    }

    #[test]
    fn nobody_is_a_group_and_strangers_and_twins_are_not() {
        assert!(group(&[]).unwrap().is_empty());
        assert!(matches!(group(&[1, 10]), Err(RmaError::Rank { target: Rank(10), size: 10, .. })));
        let stranger = alloc::string::ToString::to_string(&group(&[200]).unwrap_err());
        assert!(stranger.contains("there is no rank 200; ranks are 0 to 9"), "{stranger}");
        assert!(matches!(group(&[1, 2, 1]), Err(RmaError::Argument { call: Call::Group, .. })));
    }
}
