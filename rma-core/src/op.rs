//! Predefined reduction operations (MPI-4.1 sections 6.9.2 and 6.9.4; replace and no_op: section 13.3.4).

use crate::dtype::{Dtype, DtypeClass};

/// What an accumulate-family operation does with the target's element `t` and the origin's `o`.
///
/// Implements: MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_REPLACE, MPI_NO_OP, MPI_MINLOC, MPI_MAXLOC.
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
    /// logical and: 1 if both are non-zero, else 0 (integers and truth values)
    LogicalAnd = 4,
    /// logical or (integers and truth values)
    LogicalOr = 5,
    /// logical exclusive or (integers and truth values)
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
    /// the pair with the smaller value; of equal values the smaller index
    MinLoc = 12,
    /// the pair with the larger value; of equal values the smaller index
    MaxLoc = 13,
}

impl ReduceOp {
    /// Every operation, in wire order.
    pub const ALL: [Self; 14] = [
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
        Self::MinLoc,
        Self::MaxLoc,
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
            Self::MinLoc => "minloc",
            Self::MaxLoc => "maxloc",
        }
    }

    /// Whether MPI defines the operation on this type (MPI-4.1 sections 6.9.2 and 6.9.4): ordering wants
    /// integers or floats, arithmetic also takes complex numbers, logic integers or truth values, bits
    /// integers, and the located extrema pairs. Replacing and reading are defined on everything.
    #[inline]
    pub const fn is_defined_for(self, dtype: Dtype) -> bool {
        let class = dtype.class();
        match self {
            Self::Replace | Self::NoOp => true,
            Self::Sum | Self::Prod => {
                matches!(class, DtypeClass::Integer | DtypeClass::Float | DtypeClass::Complex)
            }
            Self::Min | Self::Max => matches!(class, DtypeClass::Integer | DtypeClass::Float),
            Self::LogicalAnd | Self::LogicalOr | Self::LogicalXor => {
                matches!(class, DtypeClass::Integer | DtypeClass::Logical)
            }
            Self::BitAnd | Self::BitOr | Self::BitXor => matches!(class, DtypeClass::Integer),
            Self::MinLoc | Self::MaxLoc => matches!(class, DtypeClass::Pair),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of MPI-4.1 section 6.9.2, one row for each class.
    #[test]
    fn reductions_are_defined_as_the_standard_has_it() {
        let row = |dtype: Dtype| ReduceOp::ALL.map(|op| u8::from(op.is_defined_for(dtype)));
        for dtype in Dtype::ALL {
            let expected = match dtype.class() {
                DtypeClass::Integer => [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0],
                DtypeClass::Float => [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0],
                DtypeClass::Logical => [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0],
                DtypeClass::Complex => [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0],
                DtypeClass::Pair => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1],
            };
            assert_eq!(row(dtype), expected, "{}", dtype.name());
        }
        assert_eq!(ReduceOp::from_code(13), Some(ReduceOp::MaxLoc));
        assert_eq!(ReduceOp::from_code(14), None);
    }
}
