//! This rank's own window memory.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{fence, Ordering};

use rma_core::error::{Call, RmaError};

use crate::element::Element;
use crate::error::Result;
use crate::platform::Engine;
use crate::raw::RawWindow;

/// Access to this rank's own part of a window, by copies: it is never lent as a slice, because other ranks
/// may write it at any time.
///
/// Each element is read and written whole: towards accumulates always, towards puts and gets up to 8 bytes.
/// Where a ghost serves the window (`RMA_PROGRESS=ghost`, docs/progress.md) whole means up to 8 bytes towards
/// accumulates, too, since the ghost is another process: read larger elements by a `fetch_and_op` of oneself with
/// [`ReduceOp::NoOp`](crate::ReduceOp::NoOp) there, and replace those that others may accumulate to meanwhile with
/// [`ReduceOp::Replace`](crate::ReduceOp::Replace).
/// Which of several values that ranks write at the same time is
/// found is not defined, and neither is the order of different elements: synchronize first (a fence, a
/// barrier after unlock or flush), as MPI asks for.
pub struct Local<'w, T: Element> {
    raw: &'w RawWindow,
    base: *mut T,
    len: usize,
}

impl<'w, T: Element> Local<'w, T> {
    /// The window has been made of whole elements of this type.
    pub(crate) fn new(raw: &'w RawWindow) -> Self {
        Self { raw, base: raw.base().cast(), len: raw.len() / size_of::<T>() }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether this rank's window has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at `index`.
    ///
    /// # Errors
    /// When there is none, or the access conflicts with another rank's (`RMA_CHECK`).
    pub fn get(&self, index: usize) -> Result<T> {
        let mut element = [T::default()];
        self.read(index, &mut element)?;
        Ok(element[0])
    }

    /// Writes the element at `index`.
    ///
    /// # Errors
    /// When there is none, or the access conflicts with another rank's (`RMA_CHECK`).
    pub fn set(&self, index: usize, value: T) -> Result<()> {
        self.write(index, &[value])
    }

    /// Copies the elements from `index` on to `result`.
    ///
    /// # Errors
    /// When there are not as many, or the read conflicts with another rank's access (`RMA_CHECK`).
    pub fn read(&self, index: usize, result: &mut [T]) -> Result<()> {
        let range = self.range(Call::LocalRead, index, result.len())?;
        // The guard keeps the library's threads from the memory meanwhile.
        let mut guarded = self.raw.core().enter_anyway();
        self.check(&mut guarded.engine, false, &range)?;
        for (at, element) in range.zip(result) {
            // SAFETY: inside of the window, whose memory is aligned for `T` and lives as long as it does.
            *element = unsafe { T::load(self.base.wrapping_add(at)) };
        }
        Ok(())
    }

    /// Copies `source` to the elements from `index` on.
    ///
    /// # Errors
    /// When there are not as many, or the write conflicts with another rank's access (`RMA_CHECK`).
    pub fn write(&self, index: usize, source: &[T]) -> Result<()> {
        let range = self.range(Call::LocalWrite, index, source.len())?;
        self.store(range, source.iter().copied())
    }

    /// Writes `value` to every element.
    ///
    /// # Errors
    /// When it conflicts with another rank's access (`RMA_CHECK`).
    pub fn fill(&self, value: T) -> Result<()> {
        self.store(0..self.len, std::iter::repeat(value))
    }

    /// All elements.
    ///
    /// # Errors
    /// When the read conflicts with another rank's access (`RMA_CHECK`).
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::default(); self.len];
        self.read(0, &mut elements)?;
        Ok(elements)
    }

    /// Writes `values` to the elements of `range`, which are in the window.
    fn store(&self, range: Range<usize>, values: impl Iterator<Item = T>) -> Result<()> {
        let mut guarded = self.raw.core().enter_anyway();
        self.check(&mut guarded.engine, true, &range)?;
        for (at, value) in range.zip(values) {
            // SAFETY: as in `read`.
            unsafe { T::store(self.base.wrapping_add(at), value) };
        }
        // Others see it before this thread reads anything of theirs: neither the guard nor an access fences.
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Compares the access with those of other ranks, where conflicts are looked for.
    fn check(&self, engine: &mut Engine, is_store: bool, range: &Range<usize>) -> Result<()> {
        let (offset, len) = (range.start * size_of::<T>(), range.len() * size_of::<T>());
        let checked = engine.check_local(self.raw.id(), is_store, offset as u64, len as u64);
        checked.map_err(|error| self.raw.fail(error))
    }

    fn range(&self, call: Call, index: usize, count: usize) -> Result<Range<usize>> {
        match index.checked_add(count) {
            Some(end) if end <= self.len => Ok(index..end),
            _ => Err(self.outside(call, index, count)),
        }
    }

    #[cold]
    #[inline(never)]
    fn outside(&self, call: Call, index: usize, count: usize) -> crate::Error {
        let bytes =
            |elements: usize| (elements as u64).saturating_mul(size_of::<T>() as u64).min(i64::MAX as u64);
        self.raw.fail(RmaError::Range {
            call,
            target: self.raw.job().rank(),
            offset_bytes: bytes(index),
            len_bytes: bytes(count),
            window_bytes: bytes(self.len),
        })
    }
}

impl<T: Element> fmt::Debug for Local<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Local({} elements of {})", self.len, T::DTYPE.name())
    }
}
