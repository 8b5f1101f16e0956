//! Who shares a lock: known by rank, so that what a dead rank holds can be released.

use alloc::boxed::Box;
use core::fmt;

use crate::epoch::FewRanks;
use crate::ids::Rank;

/// Bits of a word of the set.
const WORD_BITS: u32 = u64::BITS;

/// Ranks of which each has a bit. More ranks share one list, so that the size is the same in every job.
const RANKS: u32 = 8192;

/// Ranks that hold a lock together: each below [`RANKS`], and a few of those above.
pub(super) struct Sharers {
    /// Empty where nothing can be locked.
    words: Box<[u64]>,
    others: FewRanks,
}

impl Sharers {
    /// Nobody, with room for ranks if the lock is used at all.
    pub(super) fn new(is_used: bool) -> Self {
        let words = if is_used { (RANKS / WORD_BITS) as usize } else { 0 };
        Self { words: alloc::vec![0; words].into_boxed_slice(), others: FewRanks::default() }
    }

    fn word(&mut self, rank: Rank) -> Option<(&mut u64, u64)> {
        let word = self.words.get_mut((rank.0 / WORD_BITS) as usize)?;
        Some((word, 1 << (rank.0 % WORD_BITS)))
    }

    /// Puts a rank in. `false`: it is there already, or there is no room for it.
    pub(super) fn insert(&mut self, rank: Rank) -> bool {
        match self.word(rank) {
            Some((word, bit)) => {
                let is_new = *word & bit == 0;
                *word |= bit;
                is_new
            }
            None => self.others.insert(rank),
        }
    }

    /// Takes a rank out. `false`: it is not there.
    pub(super) fn remove(&mut self, rank: Rank) -> bool {
        match self.word(rank) {
            Some((word, bit)) => {
                let was_there = *word & bit != 0;
                *word &= !bit;
                was_there
            }
            None => self.others.remove(rank),
        }
    }

    /// Whether a rank is in; `None`: there may have been no room for it.
    pub(super) fn has(&self, rank: Rank) -> Option<bool> {
        match self.words.get((rank.0 / WORD_BITS) as usize) {
            Some(word) => Some(word >> (rank.0 % WORD_BITS) & 1 == 1),
            None => self.others.contains(rank).then_some(true),
        }
    }

    /// Bytes held beyond the structure itself.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

impl fmt::Debug for Sharers {
    /// The ranks, and not 8192 bits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = |word: u64| (0..WORD_BITS).filter(move |bit| word >> bit & 1 == 1);
        let words = (0u32..).zip(&*self.words);
        let ranks = words.flat_map(|(index, &word)| bits(word).map(move |bit| index * WORD_BITS + bit));
        f.debug_set().entries(ranks).entry(&self.others).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_of_a_job_of_8192_is_known_and_a_few_of_larger_ones() {
        let mut sharers = Sharers::new(true);
        assert!((0..RANKS + 16).all(|rank| sharers.insert(Rank(rank))));
        assert!(!sharers.insert(Rank(RANKS + 16)) && !sharers.insert(Rank(5)));
        let has = [RANKS - 1, RANKS + 15, RANKS + 16].map(|rank| sharers.has(Rank(rank)));
        assert_eq!(has, [Some(true), Some(true), None]);
        assert!((0..RANKS + 16).rev().all(|rank| sharers.remove(Rank(rank))));
        assert!(!sharers.remove(Rank(5)) && !sharers.remove(Rank(RANKS + 5)));
        assert_eq!(sharers.has(Rank(5)), Some(false));
        assert_eq!(sharers.heap_bytes(), 1024);
    }

    #[test]
    fn it_prints_who_is_in() {
        let mut sharers = Sharers::new(true);
        assert!(sharers.insert(Rank(3)) && sharers.insert(Rank(200)));
        let text = alloc::format!("{sharers:?}");
        assert!(text.starts_with("{3, 200, "), "{text}");
    }
}
