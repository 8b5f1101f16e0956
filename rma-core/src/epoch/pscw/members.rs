//! A bit for each member of a group.

use alloc::vec;
use alloc::vec::Vec;

const WORD: usize = u64::BITS as usize;

/// A set of a group's members, by their places.
#[derive(Debug)]
pub(super) struct Members {
    words: Vec<u64>,
    /// Words that may not be 0: those of the group.
    used: usize,
    count: usize,
}

impl Members {
    /// Nobody, with room for this many.
    pub(super) fn with_room(members: usize) -> Self {
        Self { words: vec![0; members.div_ceil(WORD)], used: 0, count: 0 }
    }

    /// Nobody, of a group of `len`. Allocates only for a group larger than any before and than the room.
    pub(super) fn clear(&mut self, len: usize) {
        self.words[..self.used].fill(0);
        self.used = len.div_ceil(WORD);
        if self.used > self.words.len() {
            self.words.resize(self.used, 0);
        }
        self.count = 0;
    }

    pub(super) fn contains(&self, place: usize) -> bool {
        self.words.get(place / WORD).is_some_and(|word| word & (1 << (place % WORD)) != 0)
    }

    /// Adds a member; `false` when it was there.
    pub(super) fn insert(&mut self, place: usize) -> bool {
        let Some(word) = self.words.get_mut(place / WORD) else { return false };
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

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The first place from `from` on that is in here and not in `other`.
    pub(super) fn next_without(&self, other: &Self, from: usize) -> Option<usize> {
        let mut at = from / WORD;
        let mut mask = u64::MAX << (from % WORD);
        // There is room for more members, as a rule, than the group has.
        let words = self.words.get(..self.used)?;
        loop {
            let word = words.get(at)? & !other.words.get(at).copied().unwrap_or(0) & mask;
            if word != 0 {
                return Some(at * WORD + word.trailing_zeros() as usize);
            }
            (at, mask) = (at + 1, u64::MAX);
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}
