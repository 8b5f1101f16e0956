//! Slots: a fixed array of lists of target elements; ranks are spread over it round-robin.

use alloc::boxed::Box;
use alloc::vec;

use super::TargetElement;
use crate::ids::Rank;
use crate::pool::{Arena, NONE};

/// The slots of one window, and which of them are not empty.
///
/// Implements: seed: SLOT, seed: non-empty slots.
#[derive(Debug)]
pub(crate) struct Slots {
    heads: Box<[u32]>,
    /// Bit `slot % 64` of word `slot / 64`: the slot is not empty. A walk over few elements looks at
    /// these and not at every slot.
    occupied: Box<[u64]>,
    count: u32,
}

impl Slots {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            heads: vec![NONE; slots].into_boxed_slice(),
            occupied: vec![0; slots.div_ceil(WORD)].into_boxed_slice(),
            count: 0,
        }
    }

    #[inline]
    fn slot_of(&self, rank: Rank) -> usize {
        rank.index() % self.heads.len()
    }

    /// The element of `rank`, if there is one. Linear in the targets that share the slot.
    #[inline]
    pub(crate) fn find(&self, arena: &Arena<TargetElement>, rank: Rank) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        self.search(arena, rank)
    }

    fn search(&self, arena: &Arena<TargetElement>, rank: Rank) -> Option<u32> {
        let mut index = self.heads[self.slot_of(rank)];
        while index != NONE {
            if arena[index].rank == rank {
                return Some(index);
            }
            index = arena[index].next;
        }
        None
    }

    pub(crate) fn insert(&mut self, arena: &mut Arena<TargetElement>, index: u32) {
        let slot = self.slot_of(arena[index].rank);
        self.occupied[slot / WORD] |= 1 << (slot % WORD);
        arena[index].next = self.heads[slot];
        self.heads[slot] = index;
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, arena: &mut Arena<TargetElement>, index: u32) {
        let slot = self.slot_of(arena[index].rank);
        let next = arena[index].next;
        if self.heads[slot] == index {
            self.heads[slot] = next;
            if next == NONE {
                self.occupied[slot / WORD] &= !(1 << (slot % WORD));
            }
        } else {
            let mut before = self.heads[slot];
            while arena[before].next != index {
                before = arena[before].next;
            }
            arena[before].next = next;
        }
        self.count -= 1;
    }

    /// Number of elements.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The element after `index` in the order of slots, beginning with the first for [`NONE`].
    pub(crate) fn next(&self, arena: &Arena<TargetElement>, index: u32) -> Option<u32> {
        let mut slot = 0;
        if index != NONE {
            if self.count == 1 {
                return None;
            }
            let next = arena[index].next;
            if next != NONE {
                return Some(next);
            }
            slot = self.slot_of(arena[index].rank) + 1;
        }
        self.next_occupied(slot).map(|slot| self.heads[slot])
    }

    /// The first slot from `slot` on that is not empty.
    #[inline]
    fn next_occupied(&self, slot: usize) -> Option<usize> {
        let mut word = slot / WORD;
        let mut bits = self.occupied.get(word)? & (u64::MAX << (slot % WORD));
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        Some(word * WORD + bits.trailing_zeros() as usize)
    }

    /// Bytes held beyond the structure itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.heads) + size_of_val(&*self.occupied)
    }
}

/// Slots in one word of the bitmap.
const WORD: usize = u64::BITS as usize;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::ids::WindowId;

    fn walk(slots: &Slots, arena: &Arena<TargetElement>) -> Vec<u32> {
        let mut ranks = Vec::new();
        let mut t = slots.next(arena, NONE);
        while let Some(index) = t {
            ranks.push(arena[index].rank.0);
            t = slots.next(arena, index);
        }
        ranks
    }

    /// Shows: seed: SLOT, seed: non-empty slots.
    #[test]
    fn a_walk_meets_every_element_in_the_order_of_slots() {
        for size in [1, 63, 64, 65, 130] {
            let mut arena = Arena::new(0);
            let mut level = arena.reserve(4);
            let mut slots = Slots::new(size);
            let ranks = [0, 63, 64, 129];
            let taken: Vec<u32> = ranks.iter().filter_map(|_| arena.take(&mut level)).collect();
            for (&index, rank) in taken.iter().zip(ranks) {
                arena[index] = TargetElement::new(WindowId(0), Rank(rank));
                slots.insert(&mut arena, index);
            }
            let mut expected: Vec<u32> = ranks.to_vec();
            // The last one put into a slot is its first.
            expected.sort_by_key(|&rank| (rank as usize % size, core::cmp::Reverse(rank)));
            assert_eq!(walk(&slots, &arena), expected, "{size} slots");
            for &index in &taken {
                expected.retain(|&rank| rank != arena[index].rank.0);
                slots.remove(&mut arena, index);
                assert_eq!(walk(&slots, &arena), expected, "{size} slots");
                assert_eq!(slots.next(&arena, NONE).is_none(), slots.count() == 0);
            }
        }
    }
}
