//! Predefined element types (MPI-4.1 section 3.2.2): those that Rust has, those that one-sided programs
//! exchange beside them, and the pairs of MPI_MINLOC and MPI_MAXLOC (MPI-4.1 section 6.9.4).
//!
//! Every size is a power of two, so that whole elements are counted without a division. A pair has the
//! layout of the C struct that MPI names, padding included; an element travels and is stored whole, with
//! its padding, so the padding of a result is that of the operand whose value it is.

/// The type of one element of an accumulate-family operation, and the unit of a put or get.
///
/// Implements: MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T, MPI_FLOAT, MPI_DOUBLE, MPI_BYTE, MPI_C_BOOL, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_LONG_INT, MPI_2INT, MPI_SHORT_INT, i128, u128, f16, bf16.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Dtype {
    /// `i8`
    I8 = 0,
    /// `i16`
    I16 = 1,
    /// `i32`
    I32 = 2,
    /// `i64`
    I64 = 3,
    /// `u8`, also plain bytes (MPI's `MPI_BYTE`)
    U8 = 4,
    /// `u16`
    U16 = 5,
    /// `u32`
    U32 = 6,
    /// `u64`
    U64 = 7,
    /// `f32`
    F32 = 8,
    /// `f64`
    F64 = 9,
    /// `i128`
    I128 = 10,
    /// `u128`
    U128 = 11,
    /// IEEE 754 binary16; arithmetic goes through `f32` and rounds to nearest even
    F16 = 12,
    /// The upper half of an `f32`; arithmetic goes through `f32` and rounds to nearest even
    Bf16 = 13,
    /// A truth value in one byte: 0 is false, anything else true; results are 0 or 1
    Bool = 14,
    /// Two `f32`: real part, imaginary part
    ComplexF32 = 15,
    /// Two `f64`: real part, imaginary part
    ComplexF64 = 16,
    /// C's `struct { float value; int32_t index; }` (`MPI_FLOAT_INT`): index at byte 4
    F32Index = 17,
    /// C's `struct { double value; int32_t index; }` (`MPI_DOUBLE_INT`): index at byte 8, 4 bytes of padding
    F64Index = 18,
    /// C's `struct { int64_t value; int32_t index; }` (`MPI_LONG_INT`): index at byte 8, 4 bytes of padding
    I64Index = 19,
    /// C's `struct { int32_t value; int32_t index; }` (`MPI_2INT`): index at byte 4
    I32Index = 20,
    /// C's `struct { int16_t value; int32_t index; }` (`MPI_SHORT_INT`): 2 bytes of padding, index at byte 4
    I16Index = 21,
}

/// What kind of value a type holds; reductions are defined by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DtypeClass {
    /// Signed and unsigned integers of 1 to 16 bytes.
    Integer,
    /// Floating point.
    Float,
    /// A truth value.
    Logical,
    /// A complex number.
    Complex,
    /// A value with an index.
    Pair,
}

impl Dtype {
    /// Every type, in wire order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::I128,
        Self::U128,
        Self::F16,
        Self::Bf16,
        Self::Bool,
        Self::ComplexF32,
        Self::ComplexF64,
        Self::F32Index,
        Self::F64Index,
        Self::I64Index,
        Self::I32Index,
        Self::I16Index,
    ];

    /// How many types there are: the length of tables by type.
    pub const COUNT: usize = 22;

    /// Bytes of the largest element.
    pub const SIZE_MAX: usize = 16;

    /// Bytes of one element: 1, 2, 4, 8 or 16.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64
            | Self::U64
            | Self::F64
            | Self::ComplexF32
            | Self::F32Index
            | Self::I32Index
            | Self::I16Index => 8,
            Self::I128 | Self::U128 | Self::ComplexF64 | Self::F64Index | Self::I64Index => 16,
        }
    }

    /// The type with this wire code, if there is one.
    #[inline]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// Whether so many bytes are a whole number of elements. Sizes are powers of two, so that nothing is divided.
    #[inline]
    pub const fn fills(self, len: usize) -> bool {
        len & (self.size() - 1) == 0
    }

    /// The name for messages; where Rust has the type, Rust's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I128 => "i128",
            Self::U128 => "u128",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Bool => "bool",
            Self::ComplexF32 => "complex_f32",
            Self::ComplexF64 => "complex_f64",
            Self::F32Index => "f32_index",
            Self::F64Index => "f64_index",
            Self::I64Index => "i64_index",
            Self::I32Index => "i32_index",
            Self::I16Index => "i16_index",
        }
    }

    /// What kind of value it holds.
    #[inline]
    pub const fn class(self) -> DtypeClass {
        match self {
            Self::I8 | Self::I16 | Self::I32 | Self::I64 | Self::I128 => DtypeClass::Integer,
            Self::U8 | Self::U16 | Self::U32 | Self::U64 | Self::U128 => DtypeClass::Integer,
            Self::F16 | Self::Bf16 | Self::F32 | Self::F64 => DtypeClass::Float,
            Self::Bool => DtypeClass::Logical,
            Self::ComplexF32 | Self::ComplexF64 => DtypeClass::Complex,
            Self::F32Index | Self::F64Index | Self::I64Index | Self::I32Index | Self::I16Index => {
                DtypeClass::Pair
            }
        }
    }

    /// Whether the type is an integer.
    #[inline]
    pub const fn is_integer(self) -> bool {
        matches!(self.class(), DtypeClass::Integer)
    }

    /// Whether compare-and-swap is defined: on integers, logical values and bytes (MPI-4.1 section 13.3.4). Bytes are
    /// compared: of a truth value 1 and 2 are both true, and not equal.
    #[inline]
    pub const fn has_compare_and_swap(self) -> bool {
        matches!(self.class(), DtypeClass::Integer | DtypeClass::Logical)
    }

    /// Bytes to the index of a pair; `None` for other types.
    pub const fn index_offset(self) -> Option<usize> {
        match self {
            Self::F32Index | Self::I32Index | Self::I16Index => Some(4),
            Self::F64Index | Self::I64Index => Some(8),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_names_and_sizes_agree() {
        for (code, dtype) in Dtype::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, code);
            assert_eq!(Dtype::from_code(code as u8), Some(dtype));
            assert!(dtype.size().is_power_of_two() && dtype.size() <= Dtype::SIZE_MAX);
            assert_eq!(Dtype::ALL.iter().filter(|other| other.name() == dtype.name()).count(), 1);
            assert_eq!(dtype.index_offset().is_some(), dtype.class() == DtypeClass::Pair);
        }
        assert_eq!(Dtype::from_code(Dtype::COUNT as u8), None);
    }
}
