//! Elements that Rust has no stable primitive type for: 16-bit floats, truth values of any bits, complex
//! numbers, and values with an index. They are this crate's own because other processes write window memory:
//! an element must have a value for any bits (`bool` has not), and all of its bytes are copied, so that none
//! may be padding that the compiler leaves uninitialised (a tuple or a plain C struct has such).

use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering};

use rma_core::dtype::Dtype;
use rma_core::half;

use super::{Access, Element, Integer};

/// A truth value in one byte: 0 is false, anything else true. For the logical reductions and
/// compare-and-swap.
///
/// Implements: MPI_C_BOOL.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Logical(u8);

impl Logical {
    /// False.
    pub const FALSE: Self = Self(0);
    /// True, as reductions write it.
    pub const TRUE: Self = Self(1);

    /// Whether it is true.
    pub const fn is_true(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Logical {
    fn from(value: bool) -> Self {
        Self(value.into())
    }
}

impl From<Logical> for bool {
    fn from(value: Logical) -> Self {
        value.is_true()
    }
}

impl PartialEq for Logical {
    fn eq(&self, other: &Self) -> bool {
        self.is_true() == other.is_true()
    }
}

impl fmt::Debug for Logical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.is_true(), f)
    }
}

macro_rules! half_float {
    ($(#[$meta:meta])* $name:ident, $to:path, $from:path) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $name(u16);

        impl $name {
            /// The nearest value; of two equally near the one with an even last bit.
            pub const fn from_f32(value: f32) -> Self {
                Self($from(value))
            }

            /// The value, exactly.
            pub const fn to_f32(self) -> f32 {
                $to(self.0)
            }

            /// The element of these bits.
            pub const fn from_bits(bits: u16) -> Self {
                Self(bits)
            }

            /// Its bits.
            pub const fn to_bits(self) -> u16 {
                self.0
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }
    };
}

half_float! {
    /// IEEE 754 binary16: 5 bits of exponent, 10 of fraction.
    F16, half::f16_to_f32, half::f16_from_f32
}

half_float! {
    /// The upper half of an `f32`: 8 bits of exponent, 7 of fraction.
    Bf16, half::bf16_to_f32, half::bf16_from_f32
}

/// A complex number, as C and Fortran lay it out.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
#[repr(C)]
pub struct Complex<T> {
    /// Real part.
    pub re: T,
    /// Imaginary part.
    pub im: T,
}

/// A value with an index, for the located extrema [`MinLoc`](crate::ReduceOp::MinLoc) and
/// [`MaxLoc`](crate::ReduceOp::MaxLoc): the layout of C's `struct { V value; int32_t index; }`, its padding
/// being bytes that are zero.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct ValueIndex<V: IndexedValue> {
    value: V,
    gap: V::Gap,
    index: i32,
    tail: V::Tail,
}

/// The values of [`ValueIndex`]: `f32`, `f64`, `i16`, `i32`, `i64`.
pub trait IndexedValue: Copy + Default + PartialEq + fmt::Debug + sealed::Sealed {
    /// Bytes between value and index.
    #[doc(hidden)]
    type Gap: Copy + Default + fmt::Debug + Send + Sync;
    /// Bytes behind the index.
    #[doc(hidden)]
    type Tail: Copy + Default + fmt::Debug + Send + Sync;
}

mod sealed {
    pub trait Sealed {}
}

impl<V: IndexedValue> ValueIndex<V> {
    /// The pair of a value and an index.
    pub fn new(value: V, index: i32) -> Self {
        Self { value, gap: V::Gap::default(), index, tail: V::Tail::default() }
    }

    /// The value.
    pub fn value(&self) -> V {
        self.value
    }

    /// The index.
    pub fn index(&self) -> i32 {
        self.index
    }
}

impl<V: IndexedValue> PartialEq for ValueIndex<V> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value && self.index == other.index
    }
}

impl<V: IndexedValue> fmt::Debug for ValueIndex<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({:?}, index {})", self.value, self.index)
    }
}

/// The word that an element of 8 bytes is, where it lies as one: a neighbour's processor changes it as a whole, and no guard
/// keeps that away.
///
/// # Safety
/// If the element is as large as a word, it is valid for atomic accesses.
#[inline]
unsafe fn word_of<'a, T>(at: *mut T) -> Option<&'a AtomicU64> {
    let is_word = size_of::<T>() == size_of::<u64>() && at.addr() % size_of::<u64>() == 0;
    // SAFETY: as large, aligned, and valid by the caller's promise.
    is_word.then(|| unsafe { AtomicU64::from_ptr(at.cast()) })
}

/// Elements that are made of atomics of another type, one behind the other. Between the parts the guard keeps
/// the engine away, which executes other ranks' accumulates.
macro_rules! made_of {
    ($($type:ty, $atomic:ty, $bits:ty, $dtype:ident;)+) => {$(
        const _: () = assert!(size_of::<$type>() % size_of::<$atomic>() == 0);
        const _: () = assert!(align_of::<$type>() >= align_of::<$atomic>());

        impl Access for $type {
            #[inline]
            unsafe fn load(from: *mut Self) -> Self {
                let mut value = Self::default();
                // SAFETY: valid by the caller's promise.
                if let Some(word) = unsafe { word_of(from) } {
                    // SAFETY: `value` is as large, and initialised in all its bytes.
                    unsafe { (&raw mut value).cast::<u64>().write_unaligned(word.load(Ordering::Relaxed)) };
                    return value;
                }
                for part in 0..size_of::<Self>() / size_of::<$bits>() {
                    // SAFETY: a part of the element, valid by the caller's promise, and as every element of a
                    // window it is aligned for the atomic.
                    let atomic = unsafe { <$atomic>::from_ptr(from.cast::<$bits>().wrapping_add(part)) };
                    let to = (&raw mut value).cast::<$bits>().wrapping_add(part);
                    // SAFETY: a part of `value`, which is initialised in all its bytes.
                    unsafe { to.write_unaligned(atomic.load(Ordering::Relaxed)) };
                }
                value
            }

            #[inline]
            unsafe fn store(to: *mut Self, value: Self) {
                // SAFETY: valid by the caller's promise.
                if let Some(word) = unsafe { word_of(to) } {
                    // SAFETY: `value` is as large; no element has bytes that are not initialised.
                    word.store(unsafe { (&raw const value).cast::<u64>().read_unaligned() }, Ordering::Relaxed);
                    return;
                }
                for part in 0..size_of::<Self>() / size_of::<$bits>() {
                    // SAFETY: as in `load`.
                    let atomic = unsafe { <$atomic>::from_ptr(to.cast::<$bits>().wrapping_add(part)) };
                    let from = (&raw const value).cast::<$bits>().wrapping_add(part);
                    // SAFETY: a part of `value`; no element has bytes that are not initialised.
                    atomic.store(unsafe { from.read_unaligned() }, Ordering::Relaxed);
                }
            }
        }

        impl Element for $type {
            const DTYPE: Dtype = {
                assert!(Dtype::$dtype.size() == size_of::<$type>());
                Dtype::$dtype
            };
        }
    )+};
}

made_of! {
    Logical, AtomicU8, u8, Bool;
    F16, AtomicU16, u16, F16;
    Bf16, AtomicU16, u16, Bf16;
    i128, AtomicU64, u64, I128;
    u128, AtomicU64, u64, U128;
    Complex<f32>, AtomicU32, u32, ComplexF32;
    Complex<f64>, AtomicU64, u64, ComplexF64;
}

impl Integer for i128 {}
impl Integer for u128 {}
impl Integer for Logical {}

macro_rules! indexed {
    ($($value:ty, gap $gap:literal, tail $tail:literal, $atomic:ty, $bits:ty, $dtype:ident;)+) => {$(
        impl sealed::Sealed for $value {}

        impl IndexedValue for $value {
            type Gap = [u8; $gap];
            type Tail = [u8; $tail];
        }

        made_of! { ValueIndex<$value>, $atomic, $bits, $dtype; }
    )+};
}

indexed! {
    f32, gap 0, tail 0, AtomicU32, u32, F32Index;
    f64, gap 0, tail 4, AtomicU64, u64, F64Index;
    i64, gap 0, tail 4, AtomicU64, u64, I64Index;
    i32, gap 0, tail 0, AtomicU32, u32, I32Index;
    i16, gap 2, tail 0, AtomicU32, u32, I16Index;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives<T: Element>(value: T) {
        let mut memory = [T::default(); 3];
        let middle = memory.as_mut_ptr().wrapping_add(1);
        // SAFETY: aligned, and nobody else has the array.
        unsafe { T::store(middle, value) };
        // SAFETY: as above.
        assert_eq!(unsafe { T::load(middle) }, value);
        assert_eq!(memory, [T::default(), value, T::default()]);
    }

    #[test]
    fn every_type_is_stored_and_loaded_as_itself() {
        survives(Logical::TRUE);
        survives(F16::from_f32(-1.5));
        survives(Bf16::from_f32(3e38));
        survives(i128::MIN);
        survives(u128::MAX - 1);
        survives(Complex { re: 1.5_f32, im: -2.5 });
        survives(Complex { re: f64::MAX, im: -0.1 });
        survives(ValueIndex::new(-1.5_f32, 7));
        survives(ValueIndex::new(-1.5_f64, -7));
        survives(ValueIndex::new(i64::MIN, 7));
        survives(ValueIndex::new(-70_000_i32, i32::MIN));
        survives(ValueIndex::new(-500_i16, 7));
    }

    #[test]
    fn pairs_are_laid_out_as_c_does_it() {
        #[repr(C)]
        struct Plain<V>(V, i32);
        fn check<V: IndexedValue>()
        where
            ValueIndex<V>: Element,
        {
            let at = std::mem::offset_of!(ValueIndex<V>, index);
            assert_eq!(Some(at), <ValueIndex<V> as Element>::DTYPE.index_offset());
            assert_eq!(at, std::mem::offset_of!(Plain<V>, 1));
            assert_eq!(size_of::<ValueIndex<V>>(), size_of::<Plain<V>>());
            assert_eq!(align_of::<ValueIndex<V>>(), align_of::<Plain<V>>());
        }
        check::<f32>();
        check::<f64>();
        check::<i64>();
        check::<i32>();
        check::<i16>();
    }

    #[test]
    fn any_byte_is_a_truth_value() {
        let odd: Logical = Logical(7);
        assert_eq!((odd, bool::from(odd)), (Logical::TRUE, true));
        assert_ne!(odd, Logical::from(false));
    }
}
