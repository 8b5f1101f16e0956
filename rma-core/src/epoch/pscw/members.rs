//! A bit for each member of a group.

use alloc::vec;
use alloc::vec::Vec;

const WORD: usize = u64::BITS as usize;

/// A set of a group's members, by their places.
#[derive(Debug)]
pub(super) struct Members {
    /// The first of its words: most groups need no more.
    first: u64,
    /// The others.
    more: Vec<u64>,
    /// Of those that may not be 0: those of the group.
    used: usize,
    count: usize,
}

impl Members {
    /// Nobody, with room for this many.
    pub(super) fn with_room(members: usize) -> Self {
        Self { first: 0, more: vec![0; words_behind_first(members)], used: 0, count: 0 }
    }

    /// Nobody, of a group of `len`. Allocates only for a group larger than any before and than the room.
    #[inline]
    pub(super) fn clear(&mut self, len: usize) {
        (self.first, self.count) = (0, 0);
        let used = words_behind_first(len);
        if self.used != 0 || used != 0 {
            self.clear_more(used);
        }
    }

    #[cold]
    #[inline(never)]
    fn clear_more(&mut self, used: usize) {
        self.more[..self.used].fill(0);
        self.used = used;
        if used > self.more.len() {
            self.more.resize(used, 0);
        }
    }

    /// A word; `None`: no member is there.
    #[inline]
    fn word(&self, index: usize) -> Option<u64> {
        match index.checked_sub(1) {
            None => Some(self.first),
            Some(index) => self.more[..self.used].get(index).copied(),
        }
    }

    #[inline]
    pub(super) fn contains(&self, place: usize) -> bool {
        self.word(place / WORD).is_some_and(|word| word & (1 << (place % WORD)) != 0)
    }

    /// Adds a member; `false` when it was there.
    #[inline]
    pub(super) fn insert(&mut self, place: usize) -> bool {
        let word = match (place / WORD).checked_sub(1) {
            None => Some(&mut self.first),
            Some(index) => self.more.get_mut(index),
        };
        let Some(word) = word else { return false };
        let bit = 1 << (place % WORD);
        let is_new = *word & bit == 0;
        *word |= bit;
        self.count += usize::from(is_new);
        is_new
    }

    /// Adds all `len` members.
    pub(super) fn fill(&mut self, len: usize) {
        for place in 0..len {
            self.insert(place);
        }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The first place from `from` on that is in here and not in `other`.
    #[inline]
    pub(super) fn next_without(&self, other: &Self, from: usize) -> Option<usize> {
        let mut at = from / WORD;
        let mut mask = u64::MAX << (from % WORD);
        loop {
            // There is room for more members, as a rule, than the group has.
            let word = self.word(at)? & !other.word(at).unwrap_or(0) & mask;
            if word != 0 {
                return Some(at * WORD + word.trailing_zeros() as usize);
            }
            (at, mask) = (at + 1, u64::MAX);
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.more.capacity() * size_of::<u64>()
    }
}

/// Words of this many members but for the first.
#[inline]
const fn words_behind_first(members: usize) -> usize {
    members.div_ceil(WORD).saturating_sub(1)
}
