//! Memory that belongs to a window.
#![allow(unsafe_code)] // the allocator's interface

use alloc::boxed::Box;
use core::alloc::Layout;
use core::ptr::NonNull;

use super::words::{Words, WordsMemory};
use crate::provider::Mapping;

/// Alignment of allocated windows: a page, so that registration covers nothing else.
const ALIGN: usize = 4096;

/// An alignment that every allocator gives to pieces of at least a page.
const ALLOCATOR_ALIGN: usize = 16;

/// Memory that a window keeps, freed when dropped.
#[derive(Debug)]
pub(crate) enum OwnedMemory {
    /// Zeroed and aligned, from the allocator.
    Allocated(AllocatedMemory),
    /// Mapped by the provider, or by the layer above.
    Mapped { _mapping: Box<dyn Mapping> },
}

impl OwnedMemory {
    /// `len` bytes, at least one page, at a multiple of `alignment`, rounded up to a power of two, and of a page;
    /// `None` when they cannot be had.
    pub(crate) fn new(len: usize, alignment: usize) -> Option<Self> {
        AllocatedMemory::new(len, alignment).map(Self::Allocated)
    }

    /// What keeps a mapping.
    pub(crate) fn mapped(mapping: Box<dyn Mapping>) -> Self {
        Self::Mapped { _mapping: mapping }
    }

    /// The first byte of what was allocated.
    pub(crate) fn base(&self) -> *mut u8 {
        match self {
            Self::Allocated(memory) => memory.base.as_ptr(),
            Self::Mapped { .. } => core::ptr::null_mut(),
        }
    }
}

/// Memory of a window that is gone, to be dropped behind the endpoint: others may still access it.
#[derive(Debug)]
pub(crate) struct Remains {
    _owned: Option<OwnedMemory>,
    _words: Option<WordsMemory>,
}

impl Remains {
    /// What is left of a window: its own memory, and that of its lock's words.
    pub(crate) fn of<R>(owned: Option<OwnedMemory>, words: Option<Box<Words<R>>>) -> Self {
        Self { _owned: owned, _words: words.map(|words| words.into_memory()) }
    }
}

/// Zeroed, aligned memory: a part of what the allocator gave.
#[derive(Debug)]
pub(crate) struct AllocatedMemory {
    base: NonNull<u8>,
    whole: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone; nothing in it is bound to a thread.
unsafe impl Send for AllocatedMemory {}

impl AllocatedMemory {
    /// The alignment is made here, by asking for as much more: of the allocator's functions `calloc` alone knows
    /// memory that is zero already, and so touches no page of a large piece, and it takes no alignment.
    fn new(len: usize, alignment: usize) -> Option<Self> {
        // What follows is sound for powers of two only, whatever the user has asked for.
        let alignment = alignment.max(ALIGN).checked_next_power_of_two()?;
        let bytes = len.max(1).checked_next_multiple_of(ALIGN)?.checked_add(alignment - ALLOCATOR_ALIGN)?;
        let layout = Layout::from_size_align(bytes, ALLOCATOR_ALIGN).ok()?;
        // SAFETY: the layout's size is not zero.
        let whole = NonNull::new(unsafe { alloc::alloc::alloc_zeroed(layout) })?;
        let aligned = whole.as_ptr().map_addr(|address| address.next_multiple_of(alignment));
        Some(Self { base: NonNull::new(aligned)?, whole, layout })
    }
}

impl Drop for AllocatedMemory {
    fn drop(&mut self) {
        // SAFETY: `whole` came from `alloc_zeroed` with this layout and is freed once.
        unsafe { alloc::alloc::dealloc(self.whole.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    /// Bytes of this process that are in memory.
    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads a file of the kernel's")]
    fn memory_that_nobody_touches_is_not_taken() {
        const LEN: usize = 1 << 30;
        let before = resident();
        let memory = AllocatedMemory::new(LEN, 1 << 21).unwrap();
        let taken = resident().saturating_sub(before);
        assert!(taken < LEN / 8, "{taken} bytes");
        assert_eq!(memory.base.as_ptr().addr() % (1 << 21), 0);
    }

    #[test]
    fn pieces_are_aligned_and_zero_to_their_ends() {
        for (len, alignment) in [(0, 0), (1, 64), (4096, 4096), (5000, 1 << 14), (70_000, 0), (4096, 4097)] {
            for _ in 0..2 {
                let memory = AllocatedMemory::new(len, alignment).unwrap();
                assert_eq!(memory.base.as_ptr().addr() % alignment.max(ALIGN).next_power_of_two(), 0);
                // SAFETY: of this piece, which nobody else has; the page's rest belongs to it.
                let bytes = unsafe {
                    core::slice::from_raw_parts_mut(memory.base.as_ptr(), len.max(1).next_multiple_of(ALIGN))
                };
                assert!(bytes.iter().all(|byte| *byte == 0));
                bytes.fill(7);
            }
        }
        assert!(AllocatedMemory::new(usize::MAX, 0).is_none());
        assert!(AllocatedMemory::new(usize::MAX - ALIGN, 1 << 30).is_none());
        assert!(AllocatedMemory::new(isize::MAX as usize, 0).is_none());
    }
}
