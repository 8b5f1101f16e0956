//! The types that windows are made of.

use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering};

use rma_core::dtype::Dtype;

mod compound;

pub use compound::{Bf16, Complex, IndexedValue, Logical, ValueIndex, F16};

/// The type of a window's elements: `i8` to `i128`, `u8` to `u128`, `f32`, `f64`, [`F16`], [`Bf16`],
/// [`Logical`], [`Complex`], [`ValueIndex`]. All of them have any bits as a value, so that what other
/// processes write is always one.
pub trait Element: Access + Copy + Default + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The type as operations name it.
    const DTYPE: Dtype;
}

/// The elements on which compare-and-swap is defined: integers and truth values (MPI-4.1 section 13.3.4).
pub trait Integer: Element {}

/// How this process's own window memory is accessed while others may access it too. Cannot be implemented
/// outside of this crate.
#[doc(hidden)]
pub trait Access: Sized {
    /// # Safety
    /// `from` is aligned and points to an element of a window.
    unsafe fn load(from: *mut Self) -> Self;

    /// # Safety
    /// `to` is aligned and points to an element of a window.
    unsafe fn store(to: *mut Self, value: Self);
}

macro_rules! element {
    ($($type:ty as $bits:ty, $atomic:ty, $dtype:ident, $to:expr, $from:expr;)+) => {$(
        const _: () = assert!(align_of::<$type>() >= align_of::<$atomic>());

        impl Access for $type {
            #[inline]
            unsafe fn load(from: *mut Self) -> Self {
                // SAFETY: aligned by the caller's promise; an atomic has the layout of its bits.
                let element = unsafe { <$atomic>::from_ptr(from.cast::<$bits>()) };
                $from(element.load(Ordering::Relaxed))
            }

            #[inline]
            unsafe fn store(to: *mut Self, value: Self) {
                // SAFETY: as above.
                let element = unsafe { <$atomic>::from_ptr(to.cast::<$bits>()) };
                element.store($to(value), Ordering::Relaxed);
            }
        }

        impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )+};
}

element! {
    i8 as u8, AtomicU8, I8, |value| value as u8, |bits| bits as i8;
    i16 as u16, AtomicU16, I16, |value| value as u16, |bits| bits as i16;
    i32 as u32, AtomicU32, I32, |value| value as u32, |bits| bits as i32;
    i64 as u64, AtomicU64, I64, |value| value as u64, |bits| bits as i64;
    u8 as u8, AtomicU8, U8, |value| value, |bits| bits;
    u16 as u16, AtomicU16, U16, |value| value, |bits| bits;
    u32 as u32, AtomicU32, U32, |value| value, |bits| bits;
    u64 as u64, AtomicU64, U64, |value| value, |bits| bits;
    f32 as u32, AtomicU32, F32, f32::to_bits, f32::from_bits;
    f64 as u64, AtomicU64, F64, f64::to_bits, f64::from_bits;
}

macro_rules! integer {
    ($($type:ty),+) => { $(impl Integer for $type {})+ };
}

integer!(i8, i16, i32, i64, u8, u16, u32, u64);

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
        assert_eq!(T::DTYPE.size(), size_of::<T>());
        assert_eq!(T::DTYPE.name(), std::any::type_name::<T>());
    }

    #[test]
    fn every_type_is_stored_and_loaded_as_itself() {
        survives(-5i8);
        survives(-500i16);
        survives(-70_000i32);
        survives(i64::MIN);
        survives(200u8);
        survives(60_000u16);
        survives(u32::MAX);
        survives(u64::MAX - 1);
        survives(-1.5f32);
        survives(f64::MIN_POSITIVE);
    }
}
