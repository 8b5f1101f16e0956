//! Layouts: which bytes of a buffer or window an operation touches, and in which order (MPI-4.1 chapter 5,
//! Datatypes, as far as one-sided operations use them).
//!
//! A layout is made once, outside of epochs, where it allocates; operations only count references to it. It
//! is kept as it was built, loops as loops, so that a vector of a million blocks takes as much room as one
//! of two, and adjacent bytes are merged while it is built. An operation walks it without a state of its
//! own: [`Layout::run_at`] finds the bytes of any position in the data by descending from the top.
//!
//! Two departures from MPI's type constructors. The size of an element is its extent, padding included
//! (see [`Dtype`]). And the extent of a structure is not rounded up to the alignment of its members, because
//! a layout does not know what a compiler aligns: [`Layout::resized`] says it where it matters.

mod build;
mod node;
#[cfg(test)]
mod tests;

use alloc::sync::Arc;
use core::ops::Range;

pub use build::{ArrayOrder, LayoutError};
use node::Placed;

use crate::dtype::Dtype;

/// An immutable description of bytes; cloning it counts a reference.
///
/// Implements: MPI_Type_contiguous, MPI_Type_vector, MPI_Type_create_hvector, MPI_Type_indexed, MPI_Type_create_hindexed, MPI_Type_create_indexed_block, MPI_Type_create_hindexed_block, MPI_Type_create_struct, MPI_Type_create_subarray, MPI_Type_create_resized.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout(Arc<Shape>);

/// What is known of a layout.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shape {
    body: Placed,
    /// Bytes of data.
    size: u64,
    /// Where it begins and ends for those that are put before and behind it.
    lower: i64,
    upper: i64,
    /// First byte that is data, and the byte behind the last.
    true_lower: i64,
    true_upper: i64,
    /// The element type of all data; `None` when there are several, or no data.
    dtype: Option<Dtype>,
    /// Contiguous pieces.
    blocks: u64,
    depth: u32,
}

/// Blocks of equal length at equal distances, in the order of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First byte of the first block, from where the layout is placed.
    pub offset: i64,
    /// Bytes of a block, at least 1.
    pub len: u64,
    /// Blocks, at least 1.
    pub count: u64,
    /// Bytes from the beginning of a block to that of the next.
    pub stride: i64,
}

impl Run {
    /// Bytes of all blocks; `None` when no operation could be as large.
    pub fn size(&self) -> Option<u64> {
        self.len.checked_mul(self.count)
    }

    /// First byte, and the byte behind the last; `None` when they cannot be counted.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        let steps = i64::try_from(self.count).ok()?.checked_sub(1)?;
        let last = self.offset.checked_add(self.stride.checked_mul(steps)?)?;
        let end = self.offset.max(last).checked_add(i64::try_from(self.len).ok()?)?;
        Some((self.offset.min(last), end))
    }

    /// First byte of a block; `index` is less than `count`, and [`Run::bounds`] are known to exist.
    #[inline]
    pub fn block(&self, index: u64) -> i64 {
        self.offset.wrapping_add(self.stride.wrapping_mul(index as i64))
    }
}

impl Layout {
    /// Bytes of data in one layout (`MPI_Type_size`).
    #[inline]
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Bytes from one layout to the next when several are put one behind the other
    /// (`MPI_Type_get_extent`). May be negative after [`Layout::resized`].
    #[inline]
    pub fn extent(&self) -> i64 {
        self.0.upper - self.0.lower
    }

    /// Where it begins, in bytes from its place (`MPI_Type_get_extent`).
    pub fn lower_bound(&self) -> i64 {
        self.0.lower
    }

    /// First byte of data and the byte behind the last, from its place (`MPI_Type_get_true_extent`).
    pub fn true_bounds(&self) -> (i64, i64) {
        (self.0.true_lower, self.0.true_upper)
    }

    /// Contiguous pieces of one layout.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// The type of its elements, if all have the same: what accumulates ask for.
    pub fn dtype(&self) -> Option<Dtype> {
        self.0.dtype
    }

    /// Whether any number of them are one piece that begins at its place: nothing to describe.
    pub fn is_contiguous(&self) -> bool {
        let shape = &*self.0;
        shape.blocks <= 1 && shape.true_lower == 0 && self.extent() == shape.size as i64
    }

    /// Contiguous pieces of `size` bytes of data, at most: whole layouts one behind the other.
    pub fn blocks_of(&self, size: u64) -> u64 {
        self.instances(size).saturating_mul(self.0.blocks)
    }

    /// First byte of data, and the byte behind the last, of `size` bytes of data: of whole layouts one behind
    /// the other. `None` when they cannot be counted.
    pub fn span_of(&self, size: u64) -> Option<(i64, i64)> {
        let steps = i64::try_from(self.instances(size)).ok()?.checked_sub(1);
        let Some(steps) = steps.filter(|&steps| steps >= 0) else { return Some((0, 0)) };
        let last = self.extent().checked_mul(steps)?;
        let low = self.0.true_lower.checked_add(last.min(0))?;
        Some((low, self.0.true_upper.checked_add(last.max(0))?))
    }

    /// The blocks from position `at` of the data on, as many as are equally far apart, but none of them
    /// beyond position `end`. `at < end`, and the layout has data.
    ///
    /// Only for positions that [`Layout::span_of`] could count.
    #[inline]
    pub fn run_at(&self, at: u64, end: u64) -> Run {
        let shape = &*self.0;
        let (instance, rest) = (at / shape.size, at % shape.size);
        let mut run = shape.body.run_at(rest);
        run.offset += self.extent() * instance as i64;
        if shape.blocks == 1 && rest == 0 {
            // Whole blocks one behind the other, as far as the data go.
            (run.count, run.stride) = (u64::MAX, self.extent());
        }
        let left = end - at;
        if left < run.len {
            (run.len, run.count) = (left, 1);
        }
        run.count = run.count.min(left / run.len);
        run
    }

    fn instances(&self, size: u64) -> u64 {
        size.checked_div(self.0.size).unwrap_or(0)
    }
}

/// The layouts of an operation's buffers; where there is none the bytes are contiguous. What an operation
/// moves is as many whole layouts as its length has bytes for.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Layouts {
    /// Of the origin's data.
    pub origin: Option<Layout>,
    /// Of the buffer for results.
    pub result: Option<Layout>,
    /// Of the data in the target's window.
    pub target: Option<Layout>,
}

impl Layouts {
    /// Everything contiguous.
    pub const NONE: Self = Self { origin: None, result: None, target: None };

    /// Whether everything is contiguous.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.origin.is_none() && self.result.is_none() && self.target.is_none()
    }

    /// Those that there are.
    pub fn all(&self) -> impl Iterator<Item = &Layout> {
        self.origin.iter().chain(&self.result).chain(&self.target)
    }

    /// Leaves out layouts that describe nothing.
    pub fn drop_contiguous(&mut self) {
        for layout in [&mut self.origin, &mut self.result, &mut self.target] {
            layout.take_if(|layout| layout.is_contiguous());
        }
    }

    /// The largest number of contiguous pieces that one of the buffers has in `size` bytes.
    pub fn blocks_of(&self, size: u64) -> u64 {
        self.all().map(|layout| layout.blocks_of(size)).max().unwrap_or(1)
    }
}

/// The first block of `layout`, or of contiguous data, from position `at` on: where it begins, and its bytes.
#[inline]
pub(crate) fn block_at(layout: Option<&Layout>, at: u64, end: u64) -> (i64, u64) {
    match layout {
        None => (at as i64, end - at),
        Some(layout) => {
            let run = layout.run_at(at, end);
            (run.offset, run.len)
        }
    }
}

/// Calls `visit` with every block of `layout`, or of contiguous data, from position `at` to `end`: where the
/// block begins, and which positions it has, counted from `at`.
#[inline]
pub(crate) fn each_block(
    layout: Option<&Layout>,
    at: u64,
    end: u64,
    mut visit: impl FnMut(i64, Range<usize>),
) {
    let Some(layout) = layout else {
        return visit(at as i64, 0..(end - at) as usize);
    };
    let mut position = at;
    while position < end {
        let run = layout.run_at(position, end);
        for index in 0..run.count {
            let start = (position - at) as usize;
            visit(run.block(index), start..start + run.len as usize);
            position += run.len;
        }
    }
}
