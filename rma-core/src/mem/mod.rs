//! A window's memory, as the engine touches it: at the target for packets, at the origin for
//! operations on itself.
//!
//! **Atomicity.** [`Sharing`] says who changes elements. Where others do, each element of an accumulate-family
//! operation whose address is a multiple of its size is accessed by one CPU atomic (of 16 bytes: see `word::Wide`), so
//! it is atomic against every thread and process of the node that uses CPU atomics of the same size on it. It is not
//! atomic against a NIC: one window, one atomicity domain. Where nobody else does, as all accumulates on the window are
//! executed by one engine, or as the provider keeps peers out meanwhile, several elements are changed by a plain loop,
//! or a copy, which is ten times as fast. What reads an element by other means at that time (the owner's program, which
//! MPI allows to poll) finds it whole, if it has up to 8 bytes, on every processor that we know: their vector stores
//! and copies tear none that is aligned, though no manual promises it of all. An element at another address is read and
//! written back plainly: operations executed by one engine stay atomic among each other, as the engine executes them
//! one after the other, but another thread or process may see half of it or lose an update. MPI-4.1 section 13.7.1
//! wants element-wise atomicity for accumulates of the same predefined type without saying at which addresses; C and
//! Fortran make no misaligned variables, so that only byte-addressed layouts get there. Copies ([`WindowMemory::read`],
//! [`WindowMemory::write`]) are never atomic: MPI leaves the outcome of conflicting puts and gets undefined.
//!
//! **Ordering.** The atomics are `Relaxed`. Nothing is published through an element: a program may
//! conclude anything about *other* memory only after a synchronization (the completion of a flush or
//! unlock, a barrier, `sync`), and those carry acquire and release themselves. What MPI orders
//! without one, accumulates from one origin to one location (MPI-4.1 section 13.7.2), is the order in
//! which one thread touches one atomic, which every ordering keeps.
//!
//! **Floating point.** Minimum and maximum are IEEE 754 minNum and maxNum: a number wins over a NaN;
//! of equal values, also of zeros of different sign, the target's stays. MPI leaves this open. The located
//! extrema take whole elements, and of equal values the smaller index, as MPI asks; two NaN count as equal.
//!
//! **Byte order** is native on both sides; all ranks of a job have the same.
#![allow(unsafe_code)] // raw access to memory that others write too

mod compound;
mod elements;
mod error;
mod kernel;
mod regions;
mod sharing;
#[cfg(test)]
mod tests;
mod word;

use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};

use elements::{Accumulate, Elements, GetAccumulate};

use crate::dtype::Dtype;
use crate::op::ReduceOp;

pub use error::{AccumulateError, OutOfWindow};
pub use regions::{AttachError, Regions};
pub use sharing::{Begun, Changes, Sharing};

/// Bytes of the longest elements.
const ELEMENT_BYTES_MAX: usize = size_of::<u128>();

/// The memory of one window in this process; knows nothing of who owns it.
///
/// Offsets and lengths are bytes, and `u64` because peers send them: every method refuses what is not
/// inside the window, whatever the numbers, and then touches nothing.
pub struct WindowMemory {
    base: NonNull<u8>,
    len: usize,
    sharing: Sharing,
}

// SAFETY: the value is an address and a length; `new` obliges its caller for the lifetime of the
// value, not for a thread. It is not `Sync`, as copies are not atomic.
unsafe impl Send for WindowMemory {}

impl WindowMemory {
    /// A window over `len` bytes at `base`, of elements that others change by atomics, too. With `len` 0, or a null `base`, it
    /// is empty.
    ///
    /// Several may exist over the same bytes, for instance one per thread or process.
    ///
    /// # Safety
    /// Until the value is dropped,
    /// * `base` is valid for reads and writes of `len` bytes, and initialised;
    /// * everyone else accesses these bytes as shared mutable memory: through raw pointers, atomics or
    ///   devices. No `&` or `&mut` to them, other than to atomics or cells, lives across a call of a
    ///   method.
    /// * no thread of this process accesses bytes in a conflicting way while [`Self::read`] or
    ///   [`Self::write`] copies them. The epochs of MPI forbid it; a program that does it anyway reads
    ///   torn values.
    pub unsafe fn new(base: *mut u8, len: usize) -> Self {
        let sharing = Sharing::Atomics;
        match NonNull::new(base) {
            Some(base) => Self { base, len, sharing },
            None => Self { base: NonNull::dangling(), len: 0, sharing },
        }
    }

    /// The same memory, of elements that others change as said.
    #[must_use]
    pub fn shared(self, sharing: Sharing) -> Self {
        Self { sharing, ..self }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte; dangling when the window is empty.
    #[inline]
    pub fn base_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Whether `len` bytes at `offset` are inside. Zero bytes at the end are.
    ///
    /// # Errors
    /// [`OutOfWindow`] if a byte is not.
    #[inline]
    pub fn check(&self, offset: u64, len: u64) -> Result<(), OutOfWindow> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len as u64 => Ok(()),
            _ => Err(self.out_of_window(offset, len)),
        }
    }

    /// Put: copies `src` to `offset`.
    ///
    /// # Errors
    /// [`OutOfWindow`] if it does not fit.
    #[inline]
    pub fn write(&self, offset: u64, src: &[u8]) -> Result<(), OutOfWindow> {
        // SAFETY: `src` is a slice.
        unsafe { self.write_from_ptr(offset, src.as_ptr(), src.len()) }
    }

    /// Get: copies the bytes at `offset` to `dst`.
    ///
    /// # Errors
    /// [`OutOfWindow`] if there are not as many.
    #[inline]
    pub fn read(&self, offset: u64, dst: &mut [u8]) -> Result<(), OutOfWindow> {
        // SAFETY: `dst` is a slice.
        unsafe { self.read_to_ptr(offset, dst.as_mut_ptr(), dst.len()) }
    }

    /// [`Self::write`] from a buffer of the user that may overlap the window (origin and target are
    /// the same rank); then the window holds what `src` held before the call.
    ///
    /// # Errors
    /// [`OutOfWindow`] if it does not fit.
    ///
    /// # Safety
    /// `src` is valid for reads of `len` bytes, also null if `len` is 0.
    #[inline]
    pub unsafe fn write_from_ptr(&self, offset: u64, src: *const u8, len: usize) -> Result<(), OutOfWindow> {
        let dst = self.span(offset, len)?;
        if len > 0 {
            // SAFETY: `src` by the caller's word, `dst` as checked; `copy` allows overlap.
            unsafe { ptr::copy(src, dst, len) };
        }
        Ok(())
    }

    /// [`Self::read`] to a buffer of the user that may overlap the window; then the buffer holds what
    /// the window held before the call.
    ///
    /// # Errors
    /// [`OutOfWindow`] if there are not as many bytes.
    ///
    /// # Safety
    /// `dst` is valid for writes of `len` bytes, also null if `len` is 0.
    #[inline]
    pub unsafe fn read_to_ptr(&self, offset: u64, dst: *mut u8, len: usize) -> Result<(), OutOfWindow> {
        let src = self.span(offset, len)?;
        if len > 0 {
            // SAFETY: `dst` by the caller's word, `src` as checked; `copy` allows overlap.
            unsafe { ptr::copy(src, dst, len) };
        }
        Ok(())
    }

    /// Accumulate: combines each element of `operand` (packed, at any address) into the window's
    /// elements from `offset` on. `NoOp` changes nothing, but is checked alike.
    ///
    /// # Errors
    /// [`AccumulateError`] if the reduction is not defined on the type, `operand` is not whole
    /// elements, or they do not fit.
    #[inline]
    pub fn accumulate(
        &self,
        offset: u64,
        dtype: Dtype,
        op: ReduceOp,
        operand: &[u8],
    ) -> Result<(), AccumulateError> {
        check_reduction(dtype, op)?;
        check_whole(dtype, "operand", operand.len())?;
        let elements = self.elements(offset, operand.len())?;
        if operand.len() > self.sharing.bytes_max() {
            let pieces = operand.chunks(self.sharing.bytes_max());
            return positions(offset)
                .zip(pieces)
                .try_for_each(|(at, piece)| self.accumulate(at, dtype, op, piece));
        }
        self.sharing.change(operand.len(), |is_alone| {
            match (op, dtype.size()) {
                (ReduceOp::NoOp, _) => {}
                (ReduceOp::Replace, _) if is_alone && operand.len() > ELEMENT_BYTES_MAX => {
                    elements.replace(operand)
                }
                (ReduceOp::Replace, 1) => elements.store::<u8>(operand),
                (ReduceOp::Replace, 2) => elements.store::<u16>(operand),
                (ReduceOp::Replace, 4) => elements.store::<u32>(operand),
                (ReduceOp::Replace, 8) => elements.store::<u64>(operand),
                (ReduceOp::Replace, _) => elements.store::<u128>(operand),
                _ => kernel::with_reduction(dtype, op, Accumulate { elements, operand, is_alone })
                    .ok_or(AccumulateError::UndefinedReduction { op, dtype })?,
            }
            Ok(())
        })
    }

    /// Get-accumulate: as [`Self::accumulate`], and `result` gets the elements as they were before,
    /// each atomically with its change. With `NoOp` the operand is ignored and may be empty: an atomic
    /// read. One element of it is fetch-and-op.
    ///
    /// # Errors
    /// [`AccumulateError`] if the reduction is not defined on the type, `result` is not whole
    /// elements, `operand` is not as long, or they do not fit.
    #[inline]
    pub fn get_accumulate(
        &self,
        offset: u64,
        dtype: Dtype,
        op: ReduceOp,
        operand: &[u8],
        result: &mut [u8],
    ) -> Result<(), AccumulateError> {
        check_reduction(dtype, op)?;
        check_whole(dtype, "result", result.len())?;
        let operand = if op == ReduceOp::NoOp { &[] } else { operand };
        if op != ReduceOp::NoOp && operand.len() != result.len() {
            return Err(buffer_length("operand", operand.len(), result.len()));
        }
        let elements = self.elements(offset, result.len())?;
        let most = self.sharing.bytes_max();
        if result.len() > most {
            // Without an operand there are none for any piece.
            let operands = operand.chunks(most).chain(core::iter::repeat(&[][..]));
            let mut pieces = positions(offset).zip(operands).zip(result.chunks_mut(most));
            return pieces
                .try_for_each(|((at, operand), result)| self.get_accumulate(at, dtype, op, operand, result));
        }
        self.sharing.change(result.len(), |is_alone| {
            if op == ReduceOp::NoOp && is_alone && result.len() > ELEMENT_BYTES_MAX {
                elements.read(result);
                return Ok(());
            }
            kernel::with_reduction(dtype, op, GetAccumulate { elements, operand, result, is_alone })
                .ok_or(AccumulateError::UndefinedReduction { op, dtype })
        })
    }

    /// The address of the first byte modulo 8; 0 when there is none.
    pub fn misalignment(&self) -> u8 {
        if self.is_empty() {
            return 0;
        }
        (self.base.as_ptr().addr() % size_of::<u64>()) as u8
    }

    /// Whether the address of `offset` is a multiple of 8.
    pub fn is_word_at(&self, offset: u64) -> bool {
        offset.wrapping_add(self.misalignment().into()) % size_of::<u64>() as u64 == 0
    }

    /// The `u64` at `offset`, read in one step; what was written before it by who wrote it is seen then.
    /// `None` when its address is no multiple of 8.
    ///
    /// # Errors
    /// [`OutOfWindow`] if it is not inside.
    pub fn load_acquire(&self, offset: u64) -> Result<Option<u64>, OutOfWindow> {
        let place = self.span(offset, size_of::<u64>())?.cast::<u64>();
        if !place.is_aligned() {
            return Ok(None);
        }
        // SAFETY: inside of the window, aligned, and under no reference by the contract of `new`.
        let word = unsafe { AtomicU64::from_ptr(place) };
        Ok(Some(word.load(Ordering::Acquire)))
    }

    /// Compare-and-swap of one element: becomes `operand` if it equals `compare`; `result` gets the
    /// element as it was before.
    ///
    /// # Errors
    /// [`AccumulateError`] if the type is not an integer or a truth value (MPI-4.1 section 13.3.4), a buffer
    /// is not one element long, or the element is not inside.
    #[inline]
    pub fn compare_and_swap(
        &self,
        offset: u64,
        dtype: Dtype,
        compare: &[u8],
        operand: &[u8],
        result: &mut [u8],
    ) -> Result<(), AccumulateError> {
        if !dtype.has_compare_and_swap() {
            return Err(AccumulateError::UndefinedCompareAndSwap { dtype });
        }
        let size = dtype.size();
        check_one("compare", compare.len(), size)?;
        check_one("operand", operand.len(), size)?;
        check_one("result", result.len(), size)?;
        let elements = self.elements(offset, size)?;
        self.sharing.change(size, |_| match size {
            1 => elements.compare_and_swap::<u8>(compare, operand, result),
            2 => elements.compare_and_swap::<u16>(compare, operand, result),
            4 => elements.compare_and_swap::<u32>(compare, operand, result),
            8 => elements.compare_and_swap::<u64>(compare, operand, result),
            _ => elements.compare_and_swap::<u128>(compare, operand, result),
        });
        Ok(())
    }

    /// The address of `offset`, if `len` bytes at it are inside.
    #[inline]
    fn span(&self, offset: u64, len: usize) -> Result<*mut u8, OutOfWindow> {
        self.check(offset, len as u64)?;
        // SAFETY: `offset` is at most `self.len`, which is the length of one allocation at `base`.
        Ok(unsafe { self.base.as_ptr().add(offset as usize) })
    }

    /// `bytes` bytes of elements at `offset`, if they are inside.
    #[inline]
    fn elements(&self, offset: u64, bytes: usize) -> Result<Elements, OutOfWindow> {
        let base = self.span(offset, bytes)?;
        // SAFETY: inside of the window, whose bytes are valid and under no reference by the contract
        // of `new`; the methods above drop the elements before they return.
        Ok(unsafe { Elements::new(base, bytes) })
    }

    #[cold]
    #[inline(never)]
    fn out_of_window(&self, offset: u64, len: u64) -> OutOfWindow {
        OutOfWindow { offset, len, window_len: self.len as u64 }
    }
}

impl fmt::Debug for WindowMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WindowMemory({:p}, {} bytes)", self.base, self.len)
    }
}

/// Where pieces of [`sharing::PIECE_BYTES`] begin.
fn positions(first: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |piece: u64| first + piece * sharing::PIECE_BYTES as u64)
}

#[inline]
fn check_reduction(dtype: Dtype, op: ReduceOp) -> Result<(), AccumulateError> {
    if op.is_defined_for(dtype) {
        Ok(())
    } else {
        Err(AccumulateError::UndefinedReduction { op, dtype })
    }
}

#[inline]
fn check_whole(dtype: Dtype, buffer: &'static str, len: usize) -> Result<(), AccumulateError> {
    // A power of two, so that this is no division.
    if len & (dtype.size() - 1) == 0 {
        Ok(())
    } else {
        Err(buffer_length(buffer, len, dtype.size()))
    }
}

#[inline]
fn check_one(buffer: &'static str, len: usize, expected: usize) -> Result<(), AccumulateError> {
    if len == expected {
        Ok(())
    } else {
        Err(buffer_length(buffer, len, expected))
    }
}

#[cold]
#[inline(never)]
fn buffer_length(buffer: &'static str, len: usize, expected: usize) -> AccumulateError {
    AccumulateError::BufferLength { buffer, len, expected }
}
