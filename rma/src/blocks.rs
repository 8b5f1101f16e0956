//! Elements that are not in a row: layouts for the typed layer.

use std::fmt;
use std::marker::PhantomData;

use rma_core::error::{Call, RmaError, Rule};
use rma_core::ids::Rank;
use rma_core::layout::{ArrayOrder, Layout, LayoutError};
use rma_core::op::ReduceOp;

use crate::element::Element;
use crate::epoch::{Epoch, LockEpoch};
use crate::error::Result;
use crate::raw::{Buffer, TargetBuffer};

/// Which elements of a slice, or of a target's window, an operation has, and in which order. Made once, outside
/// of epochs, and used as often as one likes; nothing is allocated then.
///
/// ```
/// use rma::{Blocks, Job, Rank};
///
/// let job = Job::init()?;
/// let window = job.allocate::<f64>(24)?;
/// // A column of a matrix of 4 rows and 6 columns in the window, from a slice with nothing between.
/// let column = Blocks::<f64>::vector(4, 1, 6)?;
/// let values = [1.0, 2.0, 3.0, 4.0];
/// window.fence(|epoch| epoch.put_blocks(Rank(0), 2, &column, &values, &Blocks::row(4)?))?;
/// assert_eq!(window.local().get(2 + 6)?, 2.0);
/// # Ok::<(), rma::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Blocks<T: Element> {
    layout: Layout,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Blocks<T> {
    /// `count` elements in a row.
    ///
    /// # Errors
    /// When memory cannot be as large, as for all constructors.
    pub fn row(count: usize) -> Result<Self> {
        Self::of(Layout::contiguous(count as u64, &Layout::of(T::DTYPE)))
    }

    /// `count` blocks of `block` elements, `stride` elements from the beginning of one to that of the next. A
    /// negative stride goes back.
    ///
    /// # Errors
    /// See [`Blocks::row`].
    pub fn vector(count: usize, block: usize, stride: isize) -> Result<Self> {
        Self::of(Layout::vector(count as u64, block as u64, stride as i64, &Layout::of(T::DTYPE)))
    }

    /// Blocks of any lengths at any places, in this order: `(elements, first element)`.
    ///
    /// # Errors
    /// See [`Blocks::row`].
    pub fn indexed(blocks: &[(usize, isize)]) -> Result<Self> {
        let blocks: Vec<_> = blocks.iter().map(|&(len, first)| (len as u64, first as i64)).collect();
        Self::of(Layout::indexed(&blocks, &Layout::of(T::DTYPE)))
    }

    /// The part of an array that begins at `starts` and has `subsizes` elements in each dimension; the array has
    /// `sizes`. The last index changes fastest.
    ///
    /// # Errors
    /// See [`Blocks::row`], and when the part is not inside of the array.
    pub fn subarray(sizes: &[usize], subsizes: &[usize], starts: &[usize]) -> Result<Self> {
        let wide = |numbers: &[usize]| -> Vec<u64> { numbers.iter().map(|&number| number as u64).collect() };
        let order = ArrayOrder::RowMajor;
        let element = Layout::of(T::DTYPE);
        Self::of(Layout::subarray(&wide(sizes), &wide(subsizes), &wide(starts), order, &element))
    }

    /// Elements of data.
    pub fn len(&self) -> usize {
        (self.layout.size() / T::DTYPE.size() as u64) as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.layout.size() == 0
    }

    /// The same for the raw layer.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn of(layout: std::result::Result<Layout, LayoutError>) -> Result<Self> {
        match layout {
            Ok(layout) => Ok(Self { layout, element: PhantomData }),
            Err(error) => {
                Err(RmaError::Argument { call: Call::Layout, what: error.text(), rule: Rule::LayoutFits }
                    .into())
            }
        }
    }

    /// Whether all elements are among the first `len` of a slice.
    fn is_inside(&self, len: usize) -> bool {
        let (low, high) = self.layout.true_bounds();
        let bytes = (len as u64).saturating_mul(T::DTYPE.size() as u64);
        low >= 0 && high as u64 <= bytes
    }
}

impl<T: Element> fmt::Debug for Blocks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blocks({} elements of {}: {:?})", self.len(), T::DTYPE.name(), self.layout)
    }
}

impl<'scope, T: Element> Epoch<'scope, '_, T> {
    /// Writes elements of `source` to elements of the target: `places` there, from `disp` on, get what is at
    /// `elements` of the slice.
    ///
    /// # Errors
    /// As for [`Epoch::put`], and when both have not as many elements, or `elements` are not in the slice.
    pub fn put_blocks(
        &self,
        target: Rank,
        disp: u64,
        places: &Blocks<T>,
        source: &'scope [T],
        elements: &Blocks<T>,
    ) -> Result<()> {
        let origin = self.origin_of(Call::Put, source, elements)?;
        // SAFETY: the elements are in the slice, which is borrowed for 'scope, at whose end the operation is
        // complete; see `Epoch::put`.
        unsafe { self.lend().put_layout(origin, at(target, disp, places)) }
    }

    /// Reads elements of the target to elements of `result`.
    ///
    /// # Errors
    /// As for [`Epoch::put_blocks`].
    pub fn get_blocks(
        &self,
        target: Rank,
        disp: u64,
        places: &Blocks<T>,
        result: &'scope mut [T],
        elements: &Blocks<T>,
    ) -> Result<()> {
        self.check_blocks(Call::Get, elements, result.len())?;
        let buffer = Buffer::new(result.as_mut_ptr().cast(), 1, &elements.layout);
        // SAFETY: as in `put_blocks`, and borrowed exclusively.
        unsafe { self.lend().get_layout(buffer, at(target, disp, places)) }
    }

    /// Combines elements of `source` into elements of the target, each atomically.
    ///
    /// # Errors
    /// As for [`Epoch::put_blocks`], and when `op` is not defined for the type.
    pub fn accumulate_blocks(
        &self,
        target: Rank,
        disp: u64,
        places: &Blocks<T>,
        source: &'scope [T],
        elements: &Blocks<T>,
        op: ReduceOp,
    ) -> Result<()> {
        let origin = self.origin_of(Call::Accumulate, source, elements)?;
        // SAFETY: as in `put_blocks`.
        unsafe { self.lend().accumulate_layout(origin, at(target, disp, places), op) }
    }

    /// What an operation reads.
    fn origin_of<'b>(
        &self,
        call: Call,
        source: &[T],
        elements: &'b Blocks<T>,
    ) -> Result<Buffer<'b, *const u8>> {
        self.check_blocks(call, elements, source.len())?;
        Ok(Buffer::new(source.as_ptr().cast(), 1, &elements.layout))
    }

    fn check_blocks(&self, call: Call, elements: &Blocks<T>, len: usize) -> Result<()> {
        if elements.is_inside(len) {
            return Ok(());
        }
        let what = "the blocks reach outside of the slice; give a longer one, or fewer blocks";
        Err(self.raw().fail(RmaError::Argument { call, what, rule: Rule::BuffersFit }))
    }
}

impl<'scope, T: Element> LockEpoch<'scope, '_, T> {
    /// See [`Epoch::put_blocks`].
    ///
    /// # Errors
    /// See [`Epoch::put_blocks`].
    pub fn put_blocks(
        &self,
        disp: u64,
        places: &Blocks<T>,
        source: &'scope [T],
        elements: &Blocks<T>,
    ) -> Result<()> {
        self.epoch().put_blocks(self.target(), disp, places, source, elements)
    }

    /// See [`Epoch::get_blocks`].
    ///
    /// # Errors
    /// See [`Epoch::put_blocks`].
    pub fn get_blocks(
        &self,
        disp: u64,
        places: &Blocks<T>,
        result: &'scope mut [T],
        elements: &Blocks<T>,
    ) -> Result<()> {
        self.epoch().get_blocks(self.target(), disp, places, result, elements)
    }

    /// See [`Epoch::accumulate_blocks`].
    ///
    /// # Errors
    /// See [`Epoch::accumulate_blocks`].
    pub fn accumulate_blocks(
        &self,
        disp: u64,
        places: &Blocks<T>,
        source: &'scope [T],
        elements: &Blocks<T>,
        op: ReduceOp,
    ) -> Result<()> {
        self.epoch().accumulate_blocks(self.target(), disp, places, source, elements, op)
    }
}

/// The places of a target, from a displacement on.
fn at<T: Element>(rank: Rank, disp: u64, places: &Blocks<T>) -> TargetBuffer<'_> {
    TargetBuffer { rank, disp, count: 1, layout: &places.layout }
}
