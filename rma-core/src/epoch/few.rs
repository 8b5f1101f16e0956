//! The few ranks from which something is awaited, so that one that dies is not waited for.

use crate::ids::Rank;

/// Up to [`FewRanks::CAPACITY`] ranks, each as often as it was put in. Holds no memory of its own.
#[derive(Clone, Debug, Default)]
pub struct FewRanks {
    ranks: [u32; Self::CAPACITY],
    count: usize,
}

impl FewRanks {
    /// Most entries.
    pub const CAPACITY: usize = 16;

    /// Entries.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether nothing is awaited.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether nothing can be put in.
    pub fn is_full(&self) -> bool {
        self.count == Self::CAPACITY
    }

    /// Whether the rank is awaited.
    pub fn contains(&self, rank: Rank) -> bool {
        self.iter().any(|entry| entry == rank)
    }

    /// The entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        self.ranks[..self.count].iter().copied().map(Rank)
    }

    /// Puts a rank in. `false`: there is no room.
    pub fn insert(&mut self, rank: Rank) -> bool {
        let Some(entry) = self.ranks.get_mut(self.count) else { return false };
        *entry = rank.0;
        self.count += 1;
        true
    }

    /// Takes a rank out once. `false`: it is not there.
    pub fn remove(&mut self, rank: Rank) -> bool {
        let Some(place) = self.ranks[..self.count].iter().position(|&entry| entry == rank.0) else {
            return false;
        };
        self.count -= 1;
        self.ranks[place] = self.ranks[self.count];
        // Nothing is left of what was there: equal states look equal.
        self.ranks[self.count] = 0;
        true
    }

    /// Takes a rank out as often as it is there; how often that was.
    pub fn remove_all(&mut self, rank: Rank) -> usize {
        let before = self.count;
        while self.remove(rank) {}
        before - self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: seed: ack_count.
    #[test]
    fn ranks_are_there_as_often_as_they_were_put_in() {
        let mut few = FewRanks::default();
        assert!((0..16).all(|index| few.insert(Rank(index % 3))));
        assert!(few.is_full() && !few.insert(Rank(9)));
        assert!(few.remove(Rank(2)) && !few.remove(Rank(9)));
        assert_eq!((few.remove_all(Rank(0)), few.remove_all(Rank(2)), few.count()), (6, 4, 5));
        assert_eq!((few.remove_all(Rank(1)), few.is_empty()), (5, true));
    }
}
