//! Predefined reduction operations (MPI-4.1, Predefined Reduction Operations; the last two: section 13.3.4).

use crate::dtype::Dtype;

/// What an accumulate-family operation does with the target's element `t` and the origin's `o`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum ReduceOp {
    /// `t + o`, wrapping for integers
    Sum = 0,
    /// `t * o`, wrapping for integers
    Prod = 1,
    /// the smaller
    Min = 2,
    /// the larger
    Max = 3,
    /// logical and: 1 if both are non-zero, else 0 (integers only)
    LogicalAnd = 4,
    /// logical or (integers only)
    LogicalOr = 5,
    /// logical exclusive or (integers only)
    LogicalXor = 6,
    /// bitwise and (integers only)
    BitAnd = 7,
    /// bitwise or (integers only)
    BitOr = 8,
    /// bitwise exclusive or (integers only)
    BitXor = 9,
    /// `o`
    Replace = 10,
    /// `t` unchanged: an atomic read when it fetches
    NoOp = 11,
}

impl ReduceOp {
    /// Every operation, in wire order.
    pub const ALL: [Self; 12] = [
        Self::Sum,
        Self::Prod,
        Self::Min,
        Self::Max,
        Self::LogicalAnd,
        Self::LogicalOr,
        Self::LogicalXor,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
        Self::Replace,
        Self::NoOp,
    ];

    /// The operation with this wire code, if there is one.
    #[inline]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// MPI's name, for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::LogicalAnd => "land",
            Self::LogicalOr => "lor",
            Self::LogicalXor => "lxor",
            Self::BitAnd => "band",
            Self::BitOr => "bor",
            Self::BitXor => "bxor",
            Self::Replace => "replace",
            Self::NoOp => "no_op",
        }
    }

    /// Whether MPI defines the operation on this type: logical and bitwise ones want integers
    /// (MPI-4.1, Predefined Reduction Operations).
    #[inline]
    pub const fn is_defined_for(self, dtype: Dtype) -> bool {
        match self {
            Self::Sum | Self::Prod | Self::Min | Self::Max | Self::Replace | Self::NoOp => true,
            Self::LogicalAnd
            | Self::LogicalOr
            | Self::LogicalXor
            | Self::BitAnd
            | Self::BitOr
            | Self::BitXor => !dtype.is_float(),
        }
    }
}
