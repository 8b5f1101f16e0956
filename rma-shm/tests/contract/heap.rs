//! An allocator whose memory peers can map, so that the windows are mapped whoever allocates them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rma_shm::Memory;

/// What is allocated from [`Heap::begin`] on lies in one [`Memory`]: pieces of powers of two, each size with
/// a list of those that came back.
pub(crate) struct Heap {
    memory: OnceLock<Memory>,
    /// Bytes that were ever handed out.
    used: AtomicUsize,
    /// By the logarithm of the size, the address of the first free piece, which has that of the next; 0:
    /// none.
    free: [Mutex<usize>; usize::BITS as usize],
}

/// Of which pages are taken when they are touched.
const HEAP_BYTES: usize = 16 << 30;
/// The smallest piece; it holds the address of another.
const PIECE_MIN: usize = 16;

impl Heap {
    pub(crate) const fn new() -> Self {
        Self {
            memory: OnceLock::new(),
            used: AtomicUsize::new(0),
            free: [const { Mutex::new(0) }; usize::BITS as usize],
        }
    }

    /// From now on memory is taken from there.
    pub(crate) fn begin(&self) {
        self.memory.get_or_init(|| Memory::new(HEAP_BYTES).expect("address space for the heap"));
    }

    fn piece(layout: Layout) -> usize {
        layout.size().max(layout.align()).max(PIECE_MIN).next_power_of_two()
    }

    fn owns(&self, piece: *mut u8) -> bool {
        self.memory
            .get()
            .is_some_and(|memory| piece.addr().wrapping_sub(memory.base().as_ptr().addr()) < memory.len())
    }

    fn take(&self, memory: &Memory, bytes: usize) -> *mut u8 {
        let base = memory.base().as_ptr();
        let list = &self.free[bytes.trailing_zeros() as usize];
        let mut first = list.lock().unwrap_or_else(PoisonError::into_inner);
        if *first != 0 {
            let piece = base.with_addr(*first);
            // SAFETY: a free piece, which begins with the address of the next.
            *first = unsafe { piece.cast::<usize>().read() };
            return piece;
        }
        // Pieces are aligned to their size, as the memory's beginning is to a page and their order does not
        // matter.
        let add = |used: usize| {
            used.checked_next_multiple_of(bytes)?.checked_add(bytes).filter(|&end| end <= memory.len())
        };
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(used) => base.wrapping_add(used.next_multiple_of(bytes)),
            Err(_) => ptr::null_mut(),
        }
    }
}

// SAFETY: a piece is handed out once until it comes back, is as long as its layout wants, and as aligned up
// to a page, above which the system's allocator serves.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.memory.get() {
            Some(memory) if layout.align() <= 4096 => self.take(memory, Self::piece(layout)),
            // SAFETY: the caller's promises are the same.
            _ => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        if !self.owns(piece) {
            // SAFETY: from the system's allocator, with this layout.
            return unsafe { System.dealloc(piece, layout) };
        }
        let list = &self.free[Self::piece(layout).trailing_zeros() as usize];
        let mut first = list.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the piece is the allocator's again, and long enough.
        unsafe { piece.cast::<usize>().write(*first) };
        *first = piece.addr();
    }
}
