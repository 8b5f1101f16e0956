//! Slots: a fixed array of lists of target elements; ranks are spread over it round-robin.

use alloc::boxed::Box;
use alloc::vec;

use super::TargetElement;
use crate::ids::Rank;
use crate::pool::{Arena, NONE};

/// The slots of one window, and how many of them are not empty.
#[derive(Debug)]
pub(crate) struct Slots {
    heads: Box<[u32]>,
    non_empty: u32,
    count: u32,
}

impl Slots {
    pub(crate) fn new(slots: usize) -> Self {
        Self { heads: vec![NONE; slots].into_boxed_slice(), non_empty: 0, count: 0 }
    }

    #[inline]
    fn slot_of(&self, rank: Rank) -> usize {
        rank.index() % self.heads.len()
    }

    /// The element of `rank`, if there is one. Linear in the targets that share the slot.
    #[inline]
    pub(crate) fn find(&self, arena: &Arena<TargetElement>, rank: Rank) -> Option<u32> {
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
        self.non_empty += u32::from(self.heads[slot] == NONE);
        arena[index].next = self.heads[slot];
        self.heads[slot] = index;
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, arena: &mut Arena<TargetElement>, index: u32) {
        let slot = self.slot_of(arena[index].rank);
        let next = arena[index].next;
        if self.heads[slot] == index {
            self.heads[slot] = next;
            self.non_empty -= u32::from(next == NONE);
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
            let next = arena[index].next;
            if next != NONE {
                return Some(next);
            }
            slot = self.slot_of(arena[index].rank) + 1;
        }
        if self.non_empty == 0 {
            return None;
        }
        self.heads[slot..].iter().copied().find(|&head| head != NONE)
    }

    /// Bytes held beyond the structure itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.heads)
    }
}
