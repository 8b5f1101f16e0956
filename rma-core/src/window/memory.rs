//! Memory that belongs to a window.
#![allow(unsafe_code)] // the allocator's interface

use alloc::boxed::Box;
use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

/// Alignment of allocated windows: a page, so that registration covers nothing else.
const ALIGN: usize = 4096;

/// What keeps memory mapped; dropped when the window is gone, after its registration.
pub trait Mapping: Send + fmt::Debug {}

impl<T: Send + fmt::Debug> Mapping for T {}

/// Memory that a window keeps, freed when dropped.
#[derive(Debug)]
pub(crate) enum OwnedMemory {
    /// Zeroed and aligned, from the allocator.
    Allocated(AllocatedMemory),
    /// Mapped by the layer above.
    Mapped { _mapping: Box<dyn Mapping> },
}

impl OwnedMemory {
    /// `len` bytes, at least one page, at a multiple of `alignment` (0 or a power of two) and of a page;
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

/// Zeroed, aligned memory.
#[derive(Debug)]
pub(crate) struct AllocatedMemory {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone; nothing in it is bound to a thread.
unsafe impl Send for AllocatedMemory {}

impl AllocatedMemory {
    fn new(len: usize, alignment: usize) -> Option<Self> {
        let bytes = len.max(1).checked_next_multiple_of(ALIGN)?;
        let layout = Layout::from_size_align(bytes, alignment.max(ALIGN)).ok()?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { alloc::alloc::alloc_zeroed(layout) })?;
        Some(Self { base, layout })
    }
}

impl Drop for AllocatedMemory {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed` with this layout and is freed once.
        unsafe { alloc::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}
