//! Memory for the values of operations that are complete when they return. It is the library's, so that a
//! target that does not answer within the time limit costs an error, and neither the process nor the stack.

use std::cell::Cell;
use std::ptr::NonNull;

use crate::element::Element;

/// What the operation brings, what it compares with, and what it finds.
#[derive(Clone, Copy)]
#[repr(C)]
struct Values<T> {
    origin: T,
    compare: T,
    result: T,
}

/// The values of one operation after the other: those of a window, which one thread uses at a time.
pub(crate) struct Operands<T>(Cell<NonNull<Values<T>>>);

// SAFETY: it owns the values as a box does.
unsafe impl<T: Send> Send for Operands<T> {}

/// Where the values of the operation that is under way are.
#[derive(Clone, Copy)]
pub(crate) struct Pointers {
    pub(crate) origin: *const u8,
    pub(crate) compare: *const u8,
    pub(crate) result: *mut u8,
}

impl<T: Element> Operands<T> {
    pub(crate) fn new() -> Self {
        let zero = T::default();
        let values = Box::new(Values { origin: zero, compare: zero, result: zero });
        Self(Cell::new(NonNull::from(Box::leak(values))))
    }

    /// Takes over what the next operation brings; the last one is complete.
    pub(crate) fn set(&self, origin: T, compare: T) -> Pointers {
        let values = self.0.get().as_ptr();
        // SAFETY: made by `new` and not freed before `self` is dropped. Nothing else accesses them: an operation
        // that may is not complete, and its values were taken out.
        unsafe { values.write(Values { origin, compare, result: T::default() }) };
        Pointers {
            // SAFETY: inside of the values, which are as above; no reference is made.
            origin: unsafe { &raw const (*values).origin }.cast(),
            // SAFETY: as for `origin`.
            compare: unsafe { &raw const (*values).compare }.cast(),
            // SAFETY: as for `origin`.
            result: unsafe { &raw mut (*values).result }.cast(),
        }
    }

    /// What the operation has found, when it is complete.
    pub(crate) fn result(&self) -> T {
        // SAFETY: as in `set`; an element may have any bits.
        unsafe { self.0.get().read() }.result
    }

    /// The values of an operation that is not complete, and will be dropped by who gets them; others take
    /// their place.
    #[cold]
    pub(crate) fn take(&self) -> Self {
        let others = Self::new();
        self.0.swap(&others.0);
        others
    }
}

impl<T> Drop for Operands<T> {
    fn drop(&mut self) {
        // SAFETY: from a box, in `new`, and dropped once.
        drop(unsafe { Box::from_raw(self.0.get().as_ptr()) });
    }
}
