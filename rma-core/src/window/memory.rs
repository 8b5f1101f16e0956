//! Memory that the library allocates for a window.
#![allow(unsafe_code)] // the allocator's interface

use core::alloc::Layout;
use core::ptr::NonNull;

/// Alignment of allocated windows: a page, so that registration covers nothing else.
const ALIGN: usize = 4096;

/// Zeroed, page-aligned memory, freed when dropped.
#[derive(Debug)]
pub(crate) struct OwnedMemory {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone; nothing in it is bound to a thread.
unsafe impl Send for OwnedMemory {}

impl OwnedMemory {
    /// `len` bytes, at least one page, at a multiple of `alignment` (0 or a power of two) and of a page;
    /// `None` when they cannot be had.
    pub(crate) fn new(len: usize, alignment: usize) -> Option<Self> {
        let bytes = len.max(1).checked_next_multiple_of(ALIGN)?;
        let layout = Layout::from_size_align(bytes, alignment.max(ALIGN)).ok()?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc::alloc::alloc_zeroed(layout) })?;
        Some(Self { base, layout })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for OwnedMemory {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed` with this layout and is freed once.
        unsafe { alloc::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}
