//! Making layouts: MPI's type constructors. Everything is checked here, so that what uses a layout need not.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use super::node::{Node, Placed};
use super::{Layout, Shape};
use crate::dtype::Dtype;

/// Layouts within layouts, at most: a walk descends as deep.
const DEPTH_MAX: u32 = 32;

/// Why a layout cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LayoutError {
    /// Sizes or displacements do not fit 63 bits.
    TooLarge,
    /// More than 32 layouts within each other.
    TooDeep,
    /// The lists of a subarray differ in length, or a part reaches beyond its dimension.
    Subarray,
}

impl LayoutError {
    /// What is wrong, and what to do.
    pub const fn text(self) -> &'static str {
        match self {
            Self::TooLarge => {
                "the layout reaches further than 63 bits can count; use smaller counts or displacements"
            }
            Self::TooDeep => {
                "more than 32 layouts within each other; describe the bytes with fewer constructors"
            }
            Self::Subarray => {
                "a subarray wants sizes, subsizes and starts of equal number, and start + subsize within size"
            }
        }
    }
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Error for LayoutError {}

/// Which index of an array changes fastest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArrayOrder {
    /// The last, as in Rust and C (`MPI_ORDER_C`).
    RowMajor,
    /// The first, as in Fortran (`MPI_ORDER_FORTRAN`).
    ColumnMajor,
}

/// A layout that is being put together from placed ones.
struct Builder {
    parts: Vec<Placed>,
    size: i128,
    blocks: u64,
    bounds: Option<[i128; 4]>,
    dtype: Option<Option<Dtype>>,
    depth: u32,
}

impl Builder {
    fn new() -> Self {
        Self { parts: Vec::new(), size: 0, blocks: 0, bounds: None, dtype: None, depth: 0 }
    }

    /// Adds `count` of `old`, `stride` bytes apart, from `offset` on.
    fn add(&mut self, old: &Layout, offset: i128, count: u64, stride: i128) -> Result<(), LayoutError> {
        let shape = &*old.0;
        // What has neither data nor bounds of its own leaves no trace.
        if count == 0 || (shape.size == 0 && (shape.lower, shape.upper) == (0, 0)) {
            return Ok(());
        }
        let last = stride.checked_mul(i128::from(count) - 1).ok_or(LayoutError::TooLarge)?;
        let (low, high) = (offset + last.min(0), offset + last.max(0));
        let own = [
            low + i128::from(shape.lower),
            high + i128::from(shape.upper),
            low + i128::from(shape.true_lower),
            high + i128::from(shape.true_upper),
        ];
        for bound in own {
            fits(bound)?;
        }
        self.size += i128::from(shape.size) * i128::from(count);
        fits(self.size)?;
        // What has no data has bounds, but no true ones.
        let own = if shape.size == 0 { [own[0], own[1], i128::MAX, i128::MIN] } else { own };
        self.bounds = Some(self.bounds.map_or(own, |bounds| {
            [bounds[0].min(own[0]), bounds[1].max(own[1]), bounds[2].min(own[2]), bounds[3].max(own[3])]
        }));
        if shape.size > 0 {
            let known = self.dtype.get_or_insert(shape.dtype);
            *known = known.filter(|_| *known == shape.dtype);
        }
        self.depth = self.depth.max(shape.depth + 1);
        self.blocks = self.blocks.saturating_add(shape.blocks.saturating_mul(count));
        let body = &shape.body;
        let placed = Placed { offset: fits(offset + i128::from(body.offset))?, node: body.node.clone() };
        self.parts.push(placed.repeated(count, fits(stride)?));
        Ok(())
    }

    fn finish(self) -> Result<Layout, LayoutError> {
        if self.depth > DEPTH_MAX {
            return Err(LayoutError::TooDeep);
        }
        let [lower, upper, true_lower, true_upper] = self.bounds.unwrap_or([0; 4]);
        let body = Placed::sequence(self.parts);
        let has_data = self.size > 0;
        let blocks = match body.node {
            Node::Block(_) => u64::from(has_data),
            _ => self.blocks,
        };
        Ok(Layout(Arc::new(Shape {
            body,
            size: self.size as u64,
            lower: fits(lower)?,
            upper: fits(upper)?,
            true_lower: if has_data { fits(true_lower)? } else { 0 },
            true_upper: if has_data { fits(true_upper)? } else { 0 },
            dtype: self.dtype.flatten(),
            blocks,
            depth: self.depth,
        })))
    }
}

/// A number of bytes that everything else can count with: sums of two of them do not overflow either.
fn fits(value: i128) -> Result<i64, LayoutError> {
    i64::try_from(value).ok().filter(|value| value.unsigned_abs() < 1 << 62).ok_or(LayoutError::TooLarge)
}

impl Layout {
    /// One element of a predefined type.
    pub fn of(dtype: Dtype) -> Self {
        let size = dtype.size() as i64;
        Self(Arc::new(Shape {
            body: Placed { offset: 0, node: Node::Block(size as u64) },
            size: size as u64,
            lower: 0,
            upper: size,
            true_lower: 0,
            true_upper: size,
            dtype: Some(dtype),
            blocks: 1,
            depth: 0,
        }))
    }

    /// `count` of `old`, one behind the other (`MPI_Type_contiguous`).
    ///
    /// # Errors
    /// When it would be too large or too deep, as for all constructors.
    pub fn contiguous(count: u64, old: &Self) -> Result<Self, LayoutError> {
        Self::hvector(count, 1, old.extent(), old)
    }

    /// `count` blocks of `block` times `old`, which begin `stride` extents of `old` apart
    /// (`MPI_Type_vector`).
    ///
    /// # Errors
    /// See [`Layout::contiguous`].
    pub fn vector(count: u64, block: u64, stride: i64, old: &Self) -> Result<Self, LayoutError> {
        let stride = fits(i128::from(stride) * i128::from(old.extent()))?;
        Self::hvector(count, block, stride, old)
    }

    /// The same with `stride` in bytes (`MPI_Type_create_hvector`).
    ///
    /// # Errors
    /// See [`Layout::contiguous`].
    pub fn hvector(count: u64, block: u64, stride: i64, old: &Self) -> Result<Self, LayoutError> {
        let block = Self::block(block, old)?;
        let mut builder = Builder::new();
        builder.add(&block, 0, count, stride.into())?;
        builder.finish()
    }

    /// Blocks of any lengths, at displacements in extents of `old`, in this order: `(length, displacement)`
    /// (`MPI_Type_indexed`).
    ///
    /// # Errors
    /// See [`Layout::contiguous`].
    pub fn indexed(blocks: &[(u64, i64)], old: &Self) -> Result<Self, LayoutError> {
        let extent = i128::from(old.extent());
        Self::at_bytes(blocks.iter().map(|&(len, disp)| (len, i128::from(disp) * extent)), old)
    }

    /// The same with displacements in bytes (`MPI_Type_create_hindexed`).
    ///
    /// # Errors
    /// See [`Layout::contiguous`].
    pub fn hindexed(blocks: &[(u64, i64)], old: &Self) -> Result<Self, LayoutError> {
        Self::at_bytes(blocks.iter().map(|&(len, disp)| (len, disp.into())), old)
    }

    /// Blocks of `block` times `old` at displacements in extents of `old`
    /// (`MPI_Type_create_indexed_block`).
    ///
    /// # Errors
    /// See [`Layout::contiguous`].
    pub fn indexed_block(block: u64, displacements: &[i64], old: &Self) -> Result<Self, LayoutError> {
        let extent = i128::from(old.extent());
        Self::at_bytes(displacements.iter().map(|&disp| (block, i128::from(disp) * extent)), old)
    }

    /// The same with displacements in bytes (`MPI_Type_create_hindexed_block`).
    ///
    /// # Errors
    /// See [`Layout::contiguous`].
    pub fn hindexed_block(block: u64, displacements: &[i64], old: &Self) -> Result<Self, LayoutError> {
        Self::at_bytes(displacements.iter().map(|&disp| (block, disp.into())), old)
    }

    /// Blocks of several layouts at displacements in bytes: `(length, displacement, layout)`
    /// (`MPI_Type_create_struct`).
    ///
    /// # Errors
    /// See [`Layout::contiguous`].
    pub fn structure(members: &[(u64, i64, &Self)]) -> Result<Self, LayoutError> {
        let mut builder = Builder::new();
        for &(count, disp, layout) in members {
            builder.add(layout, disp.into(), count, layout.extent().into())?;
        }
        builder.finish()
    }

    /// The part of an array of `old` that begins at `starts` and has `subsizes` elements in each dimension;
    /// its extent is that of the whole array (`MPI_Type_create_subarray`).
    ///
    /// # Errors
    /// See [`Layout::contiguous`], and when the part is not inside of the array.
    pub fn subarray(
        sizes: &[u64],
        subsizes: &[u64],
        starts: &[u64],
        order: ArrayOrder,
        old: &Self,
    ) -> Result<Self, LayoutError> {
        let dimensions = sizes.len();
        let is_inside = |dimension: usize| match starts[dimension].checked_add(subsizes[dimension]) {
            Some(end) => end <= sizes[dimension],
            None => false,
        };
        let is_sound = dimensions > 0 && subsizes.len() == dimensions && starts.len() == dimensions;
        if !is_sound || !(0..dimensions).all(is_inside) {
            return Err(LayoutError::Subarray);
        }
        let (mut part, mut stride, mut first) = (old.clone(), i128::from(old.extent()), 0_i128);
        for step in 0..dimensions {
            // From the index that changes fastest to the one that changes slowest.
            let dimension = match order {
                ArrayOrder::RowMajor => dimensions - 1 - step,
                ArrayOrder::ColumnMajor => step,
            };
            first += i128::from(starts[dimension]) * stride;
            part = Self::hvector(subsizes[dimension], 1, fits(stride)?, &part)?;
            stride = i128::from(fits(stride * i128::from(sizes[dimension]))?);
        }
        Self::hindexed(&[(1, fits(first)?)], &part)?.resized(0, fits(stride)?)
    }

    /// The same bytes with another beginning and extent (`MPI_Type_create_resized`).
    ///
    /// # Errors
    /// See [`Layout::contiguous`].
    pub fn resized(&self, lower_bound: i64, extent: i64) -> Result<Self, LayoutError> {
        let lower = fits(lower_bound.into())?;
        let upper = fits(i128::from(lower_bound) + i128::from(extent))?;
        Ok(Self(Arc::new(Shape { lower, upper, ..(*self.0).clone() })))
    }

    /// One behind the other, as the block of other constructors.
    fn block(count: u64, old: &Self) -> Result<Self, LayoutError> {
        if count == 1 {
            return Ok(old.clone());
        }
        let mut builder = Builder::new();
        builder.add(old, 0, count, old.extent().into())?;
        builder.finish()
    }

    fn at_bytes(blocks: impl Iterator<Item = (u64, i128)>, old: &Self) -> Result<Self, LayoutError> {
        let mut builder = Builder::new();
        for (count, disp) in blocks {
            builder.add(old, disp, count, old.extent().into())?;
        }
        builder.finish()
    }
}
