//! Where the fabric finds the operands of locks' atomics, and leaves what it fetches.
#![allow(unsafe_code)] // memory that the fabric reads and writes

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;

use crate::lock::words::{Atomic, Word};

/// For each of the two words: operand, what it is compared with, what was there before.
type Cell = [u64; 6];

const CELLS: usize = 32;

/// Addresses for one atomic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellPlace {
    pub(crate) operand: *const u8,
    pub(crate) compare: *const u8,
    pub(crate) result: *mut u8,
}

/// A cell for each lock that there may be. They stay where they are when more are made.
#[derive(Debug)]
pub(crate) struct LockCells {
    blocks: Vec<NonNull<[Cell; CELLS]>>,
}

// SAFETY: the memory belongs to this value alone; nothing in it is bound to a thread.
unsafe impl Send for LockCells {}

impl LockCells {
    pub(crate) const fn new() -> Self {
        Self { blocks: Vec::new() }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Makes as many cells as are missing for `count`; allocates.
    pub(crate) fn make(&mut self, count: usize) {
        while self.blocks.len() * CELLS < count {
            self.blocks.push(NonNull::from(Box::leak(Box::new([[0; 6]; CELLS]))));
        }
    }

    /// The first number for a word in a cell that was made.
    fn place(&self, index: usize, word: Word) -> *mut u64 {
        let block = self.blocks[index / CELLS].as_ptr().cast::<u64>();
        block.wrapping_add(6 * (index % CELLS) + 3 * word as usize)
    }

    /// Puts down what an atomic needs. None of this cell and word is under way.
    pub(crate) fn put(&mut self, index: usize, word: Word, atomic: Atomic) -> CellPlace {
        let place = self.place(index, word);
        let (operand, compare) = match atomic {
            Atomic::Add(operand) => (operand, 0),
            Atomic::Swap(compare, operand) => (operand, compare),
        };
        // SAFETY: inside of a block, which lives as long as this; nobody else uses the place now.
        unsafe { place.write(operand) };
        // SAFETY: the next of the three numbers, as above.
        unsafe { place.wrapping_add(1).write(compare) };
        CellPlace {
            operand: place.cast_const().cast(),
            compare: place.wrapping_add(1).cast_const().cast(),
            result: place.wrapping_add(2).cast(),
        }
    }

    /// What the word was before the atomic that is complete.
    pub(crate) fn result(&self, index: usize, word: Word) -> u64 {
        // SAFETY: inside of a block, which lives as long as this; the fabric is done with it.
        unsafe { self.place(index, word).wrapping_add(2).read() }
    }

    /// Bytes of the cells.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * size_of::<[Cell; CELLS]>()
    }
}

impl Drop for LockCells {
    fn drop(&mut self) {
        for block in self.blocks.drain(..) {
            // SAFETY: `make` has leaked it, and the fabric uses it no more: a process gives up its endpoint before.
            drop(unsafe { Box::from_raw(block.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_its_own() {
        let mut cells = LockCells::new();
        cells.make(1);
        let first = cells.put(0, Word::Tickets, Atomic::Add(7));
        cells.make(40);
        assert_eq!(cells.bytes(), 2 * 32 * 48);
        let mut places = alloc::collections::BTreeSet::new();
        for index in 0..40 {
            for word in Word::BOTH {
                let place = cells.put(index, word, Atomic::Swap(index as u64, 100));
                // SAFETY: a result's place, which nobody uses.
                unsafe { place.result.cast::<u64>().write(index as u64 + 1) };
                assert!(places.insert(place.operand) && places.insert(place.result));
                assert_eq!(cells.result(index, word), index as u64 + 1);
            }
        }
        assert_eq!(places.len(), 160);
        assert!(places.contains(&first.operand), "they stay where they are");
    }
}
