//! The operation elements of a process, and what they keep for the fabric.
#![allow(unsafe_code)] // memory that the fabric reads while the elements move

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};

use super::OperationElement;
use crate::pool::{Arena, FreeList};

/// Payload bytes that are kept for an operation, so that the user's buffer is free at once.
pub(crate) const INLINE_BYTES: usize = 64;

type Bytes = [u8; INLINE_BYTES];

/// Where an element keeps a small payload. It stays where it is when the element moves, because the fabric may read
/// it until the operation is complete.
pub(crate) struct Place(NonNull<Bytes>);

impl Place {
    /// Writes bytes at an offset. The two have to end within [`INLINE_BYTES`].
    #[inline]
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= INLINE_BYTES);
        let place = self.0.as_ptr().cast::<u8>().wrapping_add(at);
        // SAFETY: it ends within the bytes of the place, which live as long as the arena of this element and belong
        // to this element alone; the fabric reads them only while an operation of it is under way, and then nobody
        // writes. `bytes` are elsewhere: nothing hands out a reference into a place.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    pub(super) fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr().cast()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the bytes live as long as the arena of this element, and are written through `&mut self` only.
        let bytes = unsafe { self.0.read() };
        bytes.fmt(f)
    }
}

/// The memory of all places, by the calls that made some.
#[derive(Debug)]
struct Places(Vec<NonNull<[Bytes]>>);

// SAFETY: it owns the memory, and uses it only when it is dropped.
unsafe impl Send for Places {}

impl Places {
    /// Makes places; allocates.
    fn add(&mut self, count: u32) -> impl Iterator<Item = Place> {
        let made = NonNull::from(Box::leak(vec![[0; INLINE_BYTES]; count as usize].into_boxed_slice()));
        // Most windows find the elements of one that was freed.
        if !made.is_empty() {
            self.0.push(made);
        }
        let first = made.cast::<Bytes>();
        (0..made.len()).map(move |n| {
            // SAFETY: the n-th of the `made.len()` that were made.
            Place(unsafe { first.add(n) })
        })
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        for made in self.0.drain(..) {
            // SAFETY: `add` has leaked it. The elements that point into it are dropped with this arena, and the
            // fabric reads no more: a process gives up its endpoint before its elements.
            drop(unsafe { Box::from_raw(made.as_ptr()) });
        }
    }
}

/// All operation elements of a process.
///
/// The elements may move when a window is made; where they keep small payloads does not.
#[derive(Debug)]
pub(crate) struct OperationArena {
    elements: Arena<OperationElement>,
    places: Places,
}

impl OperationArena {
    /// An arena whose shared level has `global` elements.
    pub(crate) fn new(global: u32) -> Self {
        let mut places = Places(Vec::new());
        let elements = Arena::new_with(global, places.add(global).map(OperationElement::new));
        Self { elements, places }
    }

    /// Makes the level of a new window, as [`Arena::reserve`].
    pub(crate) fn reserve(&mut self, count: u32) -> FreeList {
        let new = self.places.add(self.elements.missing(count));
        self.elements.reserve_with(count, new.map(OperationElement::new))
    }

    /// Bytes of one element with its link and what it keeps.
    pub(crate) const fn element_bytes() -> usize {
        Arena::<OperationElement>::element_bytes() + INLINE_BYTES
    }
}

impl Deref for OperationArena {
    type Target = Arena<OperationElement>;
    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.elements
    }
}

impl DerefMut for OperationArena {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.elements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_new_places_takes_no_memory() {
        let mut arena = OperationArena::new(4);
        let _level = arena.reserve(8);
        let made = arena.places.0.len();
        let _empty = arena.reserve(0);
        assert_eq!((made, arena.places.0.len()), (2, 2));
    }
}
