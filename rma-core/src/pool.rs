//! Two-level element pools: a part of its own for each window, and one part for all.
//!
//! An element is taken from the window's part first, then from the shared one; it goes back to the
//! window's part first. So a window can never be starved by the others (seed: "Operation and Target
//! Element Pools"). All elements of one kind live in one arena and are named by index; lists link
//! through the arena, so nothing is allocated after a window is made.
#![allow(unsafe_code)] // an index that was checked before

use alloc::vec::Vec;
use core::iter;
use core::ops::{Index, IndexMut};

/// Index of no element.
pub const NONE: u32 = u32::MAX;

/// A list of free elements.
///
/// Implements: seed: operation pools, seed: target pools.
#[derive(Debug)]
pub struct FreeList {
    head: u32,
    count: u32,
    capacity: u32,
}

impl FreeList {
    const fn empty(capacity: u32) -> Self {
        Self { head: NONE, count: 0, capacity }
    }

    /// Free elements in the list.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Elements that the list can hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }
}

/// All elements of one kind, and the shared level of the pool.
#[derive(Debug)]
pub struct Arena<T> {
    items: Vec<T>,
    links: Vec<u32>,
    global: FreeList,
    spare: FreeList,
    in_use: u32,
    in_use_max: u32,
}

impl<T: Default> Arena<T> {
    /// An arena whose shared level has `global` elements.
    pub fn new(global: u32) -> Self {
        Self::new_with(global, iter::repeat_with(T::default))
    }

    /// Makes the level of a new window: `count` elements. Allocates, and may move the elements there are; called at
    /// window creation only.
    pub fn reserve(&mut self, count: u32) -> FreeList {
        self.reserve_with(count, iter::repeat_with(T::default))
    }
}

impl<T> Arena<T> {
    /// As [`Arena::new`], with elements that are given: `global`, or more.
    pub fn new_with(global: u32, elements: impl Iterator<Item = T>) -> Self {
        let mut arena = Self {
            items: Vec::new(),
            links: Vec::new(),
            global: FreeList::empty(global),
            spare: FreeList::empty(NONE),
            in_use: 0,
            in_use_max: 0,
        };
        let mut level = FreeList::empty(global);
        arena.fill(&mut level, elements);
        arena.global = level;
        arena
    }

    /// How many elements a new level of `count` needs that no window has left behind.
    pub fn missing(&self, count: u32) -> u32 {
        count.saturating_sub(self.spare.count)
    }

    /// As [`Arena::reserve`], with elements that are given: as many as are [missing](Arena::missing), or more.
    pub fn reserve_with(&mut self, count: u32, elements: impl Iterator<Item = T>) -> FreeList {
        let mut level = FreeList::empty(count);
        while level.count < count && self.spare.count > 0 {
            let index = Self::pop(&mut self.links, &mut self.spare);
            Self::push(&mut self.links, &mut level, index);
        }
        self.fill(&mut level, elements);
        level
    }

    /// Keeps the elements of a window that is gone for the next one.
    pub fn retire(&mut self, mut level: FreeList) {
        while level.count > 0 {
            let index = Self::pop(&mut self.links, &mut level);
            Self::push(&mut self.links, &mut self.spare, index);
        }
    }

    fn fill(&mut self, level: &mut FreeList, elements: impl Iterator<Item = T>) {
        let missing = level.capacity - level.count;
        self.items.reserve_exact(missing as usize);
        self.links.reserve_exact(missing as usize);
        for element in elements.take(missing as usize) {
            let index = u32::try_from(self.items.len()).unwrap_or(NONE);
            self.items.push(element);
            self.links.push(NONE);
            Self::push(&mut self.links, level, index);
        }
    }

    /// Takes a free element, from the window's level or the shared one.
    #[inline]
    pub fn take(&mut self, local: &mut FreeList) -> Option<u32> {
        let index = if local.count > 0 {
            Self::pop(&mut self.links, local)
        } else if self.global.count > 0 {
            Self::pop(&mut self.links, &mut self.global)
        } else {
            return None;
        };
        self.in_use += 1;
        self.in_use_max = self.in_use_max.max(self.in_use);
        Some(index)
    }

    /// The same, but not the last of the window's level: that is left to who needs nobody else's doing to give it back.
    #[inline]
    pub fn take_but_last(&mut self, local: &mut FreeList) -> Option<u32> {
        if local.count <= 1 {
            return self.take_shared();
        }
        let index = Self::pop(&mut self.links, local);
        self.in_use += 1;
        self.in_use_max = self.in_use_max.max(self.in_use);
        Some(index)
    }

    #[cold]
    #[inline(never)]
    fn take_shared(&mut self) -> Option<u32> {
        self.take(&mut FreeList::empty(0))
    }

    /// Gives an element back, to the window's level or the shared one.
    #[inline]
    pub fn give(&mut self, local: &mut FreeList, index: u32) {
        self.in_use -= 1;
        let level = if local.count < local.capacity { local } else { &mut self.global };
        Self::push(&mut self.links, level, index);
    }

    /// Whether [`Arena::take`] would succeed.
    #[inline]
    pub fn available(&self, local: &FreeList) -> u32 {
        local.count + self.global.count
    }

    /// Elements that there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Elements taken and not given back.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// The most that were in use at one time.
    pub fn in_use_max(&self) -> u32 {
        self.in_use_max
    }

    /// Bytes of one element with its link.
    pub const fn element_bytes() -> usize {
        size_of::<T>() + size_of::<u32>()
    }

    fn pop(links: &mut [u32], list: &mut FreeList) -> u32 {
        let index = list.head;
        list.head = links[index as usize];
        list.count -= 1;
        index
    }

    fn push(links: &mut [u32], list: &mut FreeList, index: u32) {
        links[index as usize] = list.head;
        list.head = index;
        list.count += 1;
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        &self.items[index as usize]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        &mut self.items[index as usize]
    }
}

impl<T> Arena<T> {
    /// The element with this index, if the arena has one: for indexes that may be none.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        self.items.get(index as usize)
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.items.get_mut(index as usize)
    }

    /// The element with an index that is known to be one.
    ///
    /// # Safety
    /// The arena has, or had at any time, an element with this index.
    #[inline]
    pub unsafe fn at_mut(&mut self, index: u32) -> &mut T {
        debug_assert!((index as usize) < self.items.len());
        // SAFETY: the caller's promise; there are never fewer elements than there were.
        unsafe { self.items.get_unchecked_mut(index as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: seed: operation pools, seed: target pools.
    #[test]
    fn own_part_first_then_the_shared_one_and_back_in_that_order() {
        let mut arena: Arena<u64> = Arena::new(2);
        let mut a = arena.reserve(1);
        let mut b = arena.reserve(1);
        let taken: Vec<u32> = (0..3).filter_map(|_| arena.take(&mut a)).collect();
        assert_eq!(taken.len(), 3);
        assert_eq!(arena.take(&mut a), None);
        // Window b is not starved by a.
        let own = arena.take(&mut b).unwrap();
        assert_eq!(arena.take(&mut b), None);
        arena.give(&mut b, own);
        for index in taken {
            arena.give(&mut a, index);
        }
        assert_eq!((a.count(), b.count(), arena.global.count()), (1, 1, 2));
        assert_eq!((arena.in_use(), arena.in_use_max()), (0, 4));
    }

    /// Shows: seed: operation pools, seed: target pools.
    #[test]
    fn the_last_of_a_windows_own_is_left() {
        let mut arena: Arena<u64> = Arena::new(1);
        let (mut one, mut three) = (arena.reserve(1), arena.reserve(3));
        let taken: Vec<u32> = (0..4).filter_map(|_| arena.take_but_last(&mut three)).collect();
        assert_eq!((taken.len(), three.count(), arena.global.count()), (3, 1, 0));
        assert_eq!((arena.take_but_last(&mut one), one.count()), (None, 1));
        arena.give(&mut three, taken[0]);
        assert_eq!((three.count(), arena.in_use()), (2, 2));
        assert!(arena.take_but_last(&mut three).is_some() && arena.take(&mut three).is_some());
    }

    #[test]
    fn a_retired_level_serves_the_next_window_without_growth() {
        let mut arena: Arena<u64> = Arena::new(0);
        let level = arena.reserve(8);
        let bytes = arena.items.capacity();
        arena.retire(level);
        let again = arena.reserve(8);
        assert_eq!(again.count(), 8);
        assert_eq!(arena.items.capacity(), bytes);
    }
}
