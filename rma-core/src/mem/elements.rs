//! The loops over the elements of one accumulate-family operation, with and without result.

use core::ptr;

use super::kernel::Visit;
use super::word::Word;

/// Elements in window memory, inside of the window and the window alive: see [`Elements::new`].
#[derive(Clone, Copy)]
pub(super) struct Elements {
    base: *mut u8,
    bytes: usize,
}

impl Elements {
    /// # Safety
    /// `base` is valid for reads and writes of `bytes` bytes while the value is in use, and no Rust
    /// reference covers them meanwhile, other than to atomics.
    pub(super) unsafe fn new(base: *mut u8, bytes: usize) -> Self {
        Self { base, bytes }
    }

    /// Whether elements of type `W` can be accessed atomically: one answer for all, as their distance is
    /// a multiple of their alignment.
    #[inline]
    fn is_aligned<W: Word>(self) -> bool {
        self.base.addr() & (W::ALIGN - 1) == 0
    }

    /// Where the element at byte `at` is.
    #[inline]
    fn pointer<W: Word>(self, at: usize) -> *mut u8 {
        debug_assert!(at + W::BYTES <= self.bytes, "element outside of the checked span");
        // SAFETY: the loops below step through `bytes` in whole elements, so `at` is inside.
        unsafe { self.base.add(at) }
    }

    /// The element at byte `at` as an atomic.
    ///
    /// # Safety
    /// `is_aligned::<W>()`, and `at` is a multiple of `W::BYTES` with the element inside.
    #[inline]
    unsafe fn atomic<W: Word>(&self, at: usize) -> &W::Atomic {
        // SAFETY: aligned and inside by the caller's word; valid by the contract of `new`, which
        // outlasts the borrow of `self`.
        unsafe { W::at(self.pointer::<W>(at)) }
    }

    /// Plain read-modify-write of the element at byte `at`, at any alignment; the value before. What
    /// does not change is not written, so that a read never undoes another's write.
    ///
    /// # Safety
    /// The element at `at` is inside.
    #[inline]
    unsafe fn update_unaligned<W: Word>(self, at: usize, change: impl Fn(W) -> W) -> W {
        let pointer = self.pointer::<W>(at).cast::<W>();
        // SAFETY: inside by the caller's word, valid by the contract of `new`; words are plain bits.
        let old = unsafe { pointer.read_unaligned() };
        let new = change(old);
        if new != old {
            // SAFETY: as above.
            unsafe { pointer.write_unaligned(new) };
        }
        old
    }

    /// Atomic writes of the operand's elements: a replace whose result nobody wants needs no
    /// read-modify-write.
    #[inline]
    pub(super) fn store<W: Word>(self, operand: &[u8]) {
        debug_assert_eq!(operand.len(), self.bytes);
        let steps = (0..self.bytes).step_by(W::BYTES).zip(operand.chunks_exact(W::BYTES));
        if self.is_aligned::<W>() {
            for (at, o) in steps {
                // SAFETY: aligned as asked above; the step is inside and a multiple of the size.
                let atomic = unsafe { self.atomic::<W>(at) };
                W::store(atomic, W::from_bytes(o));
            }
        } else {
            for (at, o) in steps {
                let pointer = self.pointer::<W>(at).cast::<W>();
                // SAFETY: inside, valid by the contract of `new`, and any alignment is allowed.
                unsafe { pointer.write_unaligned(W::from_bytes(o)) };
            }
        }
    }

    /// Copies the operand's bytes over the elements, which nobody else changes.
    #[inline]
    pub(super) fn replace(self, operand: &[u8]) {
        debug_assert_eq!(operand.len(), self.bytes);
        // SAFETY: both have as many bytes, valid by the contract of `new`; `copy` allows overlap.
        unsafe { ptr::copy(operand.as_ptr(), self.base, self.bytes.min(operand.len())) };
    }

    /// Copies the elements, which nobody else changes.
    #[inline]
    pub(super) fn read(self, result: &mut [u8]) {
        debug_assert_eq!(result.len(), self.bytes);
        // SAFETY: as in `replace`.
        unsafe { ptr::copy(self.base, result.as_mut_ptr(), self.bytes.min(result.len())) };
    }

    /// Changes every element, which nobody else does: by a plain loop, of which the compiler makes one over vectors.
    #[inline]
    fn combine<W: Word>(self, operand: &[u8], combine: impl Fn(W, W) -> W) {
        for (index, o) in operand.chunks_exact(W::BYTES).enumerate() {
            let pointer = self.pointer::<W>(index * W::BYTES).cast::<W>();
            // SAFETY: inside, as the operand is no longer; valid by the contract of `new`; words are plain bits.
            let old = unsafe { pointer.read_unaligned() };
            let new = combine(old, W::from_bytes(o));
            // SAFETY: as above.
            unsafe { pointer.write_unaligned(new) };
        }
    }

    /// The same, and keeps what was there before.
    #[inline]
    fn fetch<W: Word>(self, operand: &[u8], result: &mut [u8], combine: impl Fn(W, W) -> W) {
        let steps = operand.chunks_exact(W::BYTES).zip(result.chunks_exact_mut(W::BYTES));
        for (index, (o, r)) in steps.enumerate() {
            let pointer = self.pointer::<W>(index * W::BYTES).cast::<W>();
            // SAFETY: as in `combine`.
            let old = unsafe { pointer.read_unaligned() };
            let new = combine(old, W::from_bytes(o));
            // SAFETY: as above.
            unsafe { pointer.write_unaligned(new) };
            old.to_bytes(r);
        }
    }

    /// Compare-and-swap of the only element; `result` gets the value before.
    #[inline]
    pub(super) fn compare_and_swap<W: Word>(self, compare: &[u8], operand: &[u8], result: &mut [u8]) {
        debug_assert_eq!(self.bytes, W::BYTES);
        let (compare, new) = (W::from_bytes(compare), W::from_bytes(operand));
        let old = if self.is_aligned::<W>() {
            // SAFETY: aligned as asked above; the caller made the span one element long.
            let atomic = unsafe { self.atomic::<W>(0) };
            W::compare_and_swap(atomic, compare, new)
        } else {
            // SAFETY: the caller made the span one element long.
            unsafe { self.update_unaligned::<W>(0, |t| if t == compare { new } else { t }) }
        };
        old.to_bytes(result);
    }
}

/// Accumulate: combines and forgets.
pub(super) struct Accumulate<'a> {
    pub(super) elements: Elements,
    pub(super) operand: &'a [u8],
    /// Nobody else changes them.
    pub(super) is_alone: bool,
}

impl Visit for Accumulate<'_> {
    type Output = ();

    #[inline]
    fn visit<W: Word>(self, combine: impl Fn(W, W) -> W, atomic: impl Fn(&W::Atomic, W) -> W) {
        let Self { elements, operand, is_alone } = self;
        debug_assert_eq!(operand.len(), elements.bytes);
        if is_alone && elements.bytes > W::BYTES {
            return elements.combine(operand, combine);
        }
        let steps = (0..elements.bytes).step_by(W::BYTES).zip(operand.chunks_exact(W::BYTES));
        if elements.is_aligned::<W>() {
            for (at, o) in steps {
                // SAFETY: aligned as asked above; the step is inside and a multiple of the size.
                let element = unsafe { elements.atomic::<W>(at) };
                atomic(element, W::from_bytes(o));
            }
        } else {
            for (at, o) in steps {
                let o = W::from_bytes(o);
                // SAFETY: the step is inside.
                unsafe { elements.update_unaligned::<W>(at, |t| combine(t, o)) };
            }
        }
    }
}

/// Get-accumulate: combines, and keeps what was there before.
pub(super) struct GetAccumulate<'a> {
    pub(super) elements: Elements,
    /// Empty for `NoOp`, which has no operand: zeros are combined, and ignored.
    pub(super) operand: &'a [u8],
    pub(super) result: &'a mut [u8],
    /// Nobody else changes the elements.
    pub(super) is_alone: bool,
}

impl Visit for GetAccumulate<'_> {
    type Output = ();

    #[inline]
    fn visit<W: Word>(self, combine: impl Fn(W, W) -> W, atomic: impl Fn(&W::Atomic, W) -> W) {
        let Self { elements, operand, result, is_alone } = self;
        debug_assert_eq!(result.len(), elements.bytes);
        debug_assert!(operand.is_empty() || operand.len() == elements.bytes);
        if is_alone && operand.len() > W::BYTES {
            return elements.fetch(operand, result, combine);
        }
        let operands = operand.chunks_exact(W::BYTES).map(W::from_bytes).chain(core::iter::repeat(W::ZERO));
        let offsets = (0..elements.bytes).step_by(W::BYTES);
        let steps = offsets.zip(operands).zip(result.chunks_exact_mut(W::BYTES));
        if elements.is_aligned::<W>() {
            for ((at, o), r) in steps {
                // SAFETY: aligned as asked above; the step is inside and a multiple of the size.
                let element = unsafe { elements.atomic::<W>(at) };
                atomic(element, o).to_bytes(r);
            }
        } else {
            for ((at, o), r) in steps {
                // SAFETY: the step is inside.
                let old = unsafe { elements.update_unaligned::<W>(at, |t| combine(t, o)) };
                old.to_bytes(r);
            }
        }
    }
}
