//! Predefined element types (MPI-4.1, Message Data, the numeric ones that Rust has).

/// The type of one element of an accumulate-family operation, and the unit of a put or get.
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
    /// `u8`, also plain bytes
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
}

impl Dtype {
    /// Every type, in wire order.
    pub const ALL: [Self; 10] = [
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
    ];

    /// Bytes of one element: 1, 2, 4 or 8.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// The type with this wire code, if there is one.
    #[inline]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// The name users know it by in Rust.
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
        }
    }

    /// Whether the type is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}
