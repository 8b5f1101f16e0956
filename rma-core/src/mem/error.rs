//! Why an access to window memory was refused. Nothing was read or written in any of these cases.

use core::error::Error;
use core::fmt;

use crate::dtype::Dtype;
use crate::op::ReduceOp;

/// The access does not lie inside the window (MPI-4.1 section 13.6.2: `MPI_ERR_RMA_RANGE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfWindow {
    /// Where the access begins, bytes from the base of the window.
    pub offset: u64,
    /// How long it is, bytes.
    pub len: u64,
    /// How long the window is, bytes.
    pub window_len: u64,
}

impl fmt::Display for OutOfWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, len, window_len } = self;
        write!(f, "access to {len} bytes at byte {offset} is outside of the window of {window_len} bytes")
    }
}

impl Error for OutOfWindow {}

/// Why an accumulate-family operation was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AccumulateError {
    /// The elements do not all lie inside the window.
    OutOfWindow(OutOfWindow),
    /// MPI does not define the reduction on this type (MPI-4.1, Predefined Reduction Operations).
    UndefinedReduction {
        /// The reduction asked for.
        op: ReduceOp,
        /// The type of the elements.
        dtype: Dtype,
    },
    /// MPI defines compare-and-swap on integers and truth values only (MPI-4.1 section 13.3.4).
    UndefinedCompareAndSwap {
        /// The type of the element.
        dtype: Dtype,
    },
    /// A buffer does not hold the bytes that the elements need.
    BufferLength {
        /// Which buffer: `"operand"`, `"compare"` or `"result"`.
        buffer: &'static str,
        /// How many bytes it has.
        len: usize,
        /// How many it should have; a multiple of it where the number of elements is free.
        expected: usize,
    },
}

impl From<OutOfWindow> for AccumulateError {
    fn from(error: OutOfWindow) -> Self {
        Self::OutOfWindow(error)
    }
}

impl fmt::Display for AccumulateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfWindow(error) => error.fmt(f),
            Self::UndefinedReduction { op, dtype } => {
                write!(f, "reduction {} is not defined on {}", op.name(), dtype.name())
            }
            Self::UndefinedCompareAndSwap { dtype } => {
                write!(f, "compare_and_swap is not defined on {}: use an integer type", dtype.name())
            }
            Self::BufferLength { buffer, len, expected } => {
                write!(f, "{buffer} buffer has {len} bytes where the elements need {expected}")
            }
        }
    }
}

impl Error for AccumulateError {}
