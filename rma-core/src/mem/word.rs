//! One element as the processor sees it: 1, 2, 4 or 8 bytes, accessed atomically where its address
//! allows it, or 16 bytes, accessed in two halves under the engine ([`Wide`]).
//!
//! Implements: rule: registers, rule: atomic-accumulate.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering::Relaxed};

/// An unsigned integer of the width of an element. Signed and floating-point elements are words too:
/// their reductions work on bit patterns (see `kernel`).
pub(super) trait Word: Copy + Eq {
    /// The atomic type of the same size.
    type Atomic;
    /// Bytes of the word.
    const BYTES: usize;
    /// The alignment at which it is accessed atomically, a power of two: the processor's, as on some
    /// targets `align_of` of the integer is less than its atomics need.
    const ALIGN: usize;
    /// The word with all bits zero, to make buffers of.
    const ZERO: Self;

    /// The word at `at`, as an atomic.
    ///
    /// # Safety
    /// `at` is a multiple of `ALIGN`, valid for reads and writes of `BYTES` bytes during `'a`, and
    /// the bytes are under no Rust reference other than to atomics during `'a`.
    unsafe fn at<'a>(at: *mut u8) -> &'a Self::Atomic;
    /// Atomic write.
    fn store(atomic: &Self::Atomic, value: Self);
    /// Atomic read-modify-write by a compare-exchange loop; the value before. Lock-free: a failed
    /// exchange means that another one succeeded.
    fn update(atomic: &Self::Atomic, change: impl Fn(Self) -> Self) -> Self;
    /// Atomic compare-and-swap; the value before, whether or not it was equal.
    fn compare_and_swap(atomic: &Self::Atomic, compare: Self, new: Self) -> Self;
    /// The word in the first `BYTES` bytes of `bytes`, in native byte order, at any alignment. A
    /// shorter slice reads as zero: callers have checked lengths, and nothing may panic here.
    fn from_bytes(bytes: &[u8]) -> Self;
    /// Writes the word to the first `BYTES` bytes, in native byte order; nothing to a shorter slice.
    fn to_bytes(self, bytes: &mut [u8]);
}

macro_rules! word {
    ($word:ident, $atomic:ident) => {
        impl Word for $word {
            type Atomic = $atomic;
            const BYTES: usize = size_of::<Self>();
            const ALIGN: usize = size_of::<Self>();
            const ZERO: Self = 0;

            #[inline]
            unsafe fn at<'a>(at: *mut u8) -> &'a $atomic {
                debug_assert_eq!(at.addr() & (Self::BYTES - 1), 0, "misaligned atomic access");
                // SAFETY: the caller grants alignment, validity, and that no reference but to atomics
                // covers the bytes; every bit pattern is an integer.
                unsafe { $atomic::from_ptr(at.cast()) }
            }
            #[inline]
            fn store(atomic: &$atomic, value: Self) {
                atomic.store(value, Relaxed);
            }
            #[inline]
            fn update(atomic: &$atomic, change: impl Fn(Self) -> Self) -> Self {
                let mut old = atomic.load(Relaxed);
                loop {
                    match atomic.compare_exchange_weak(old, change(old), Relaxed, Relaxed) {
                        Ok(before) => return before,
                        Err(now) => old = now,
                    }
                }
            }
            #[inline]
            fn compare_and_swap(atomic: &$atomic, compare: Self, new: Self) -> Self {
                match atomic.compare_exchange(compare, new, Relaxed, Relaxed) {
                    Ok(before) | Err(before) => before,
                }
            }
            #[inline]
            fn from_bytes(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(0, |bytes| Self::from_ne_bytes(*bytes))
            }
            #[inline]
            fn to_bytes(self, bytes: &mut [u8]) {
                if let Some(bytes) = bytes.first_chunk_mut() {
                    *bytes = self.to_ne_bytes();
                }
            }
        }
    };
}

word!(u8, AtomicU8);
word!(u16, AtomicU16);
word!(u32, AtomicU32);
word!(u64, AtomicU64);

/// A 16-byte element. No processor that we run on promises an atomic of this size on every model, so its
/// two halves are loaded and stored one after the other.
///
/// That is enough for what MPI asks (MPI-4.1 section 13.7.1: accumulates of one type to one location are
/// atomic towards each other): elements of this size never take the fabric's atomics (`path`), so every
/// accumulate on the window is executed by its owner's engine, which is used by one thread at a time. Where
/// several processes map one window and each executes its own accumulates, that is not enough any more:
/// [`Wide::update`] and [`Wide::replace`] are the two places that then take a lock shared by the
/// processes, chosen by the element's address.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Wide([AtomicU64; 2]);

impl Wide {
    fn load(&self) -> u128 {
        let halves = [self.0[0].load(Relaxed).to_ne_bytes(), self.0[1].load(Relaxed).to_ne_bytes()];
        u128::from_bytes(halves.as_flattened())
    }

    fn put(&self, value: u128) {
        let bytes = value.to_ne_bytes();
        for (half, bytes) in self.0.iter().zip(bytes.chunks_exact(8)) {
            half.store(u64::from_bytes(bytes), Relaxed);
        }
    }

    /// Read-modify-write; the value before. What does not change is not written.
    fn update(&self, change: impl Fn(u128) -> u128) -> u128 {
        let old = self.load();
        let new = change(old);
        if new != old {
            self.put(new);
        }
        old
    }

    fn replace(&self, value: u128) {
        self.put(value);
    }
}

impl Word for u128 {
    type Atomic = Wide;
    const BYTES: usize = size_of::<Self>();
    const ALIGN: usize = size_of::<u64>();
    const ZERO: Self = 0;

    #[inline]
    unsafe fn at<'a>(at: *mut u8) -> &'a Wide {
        debug_assert_eq!(at.addr() & (Self::ALIGN - 1), 0, "misaligned atomic access");
        // SAFETY: the caller grants alignment for the halves, validity for both, and that no reference but
        // to atomics covers the bytes; `Wide` is two atomics, and every bit pattern is one.
        unsafe { &*at.cast::<Wide>() }
    }
    #[inline]
    fn store(atomic: &Wide, value: Self) {
        atomic.replace(value);
    }
    #[inline]
    fn update(atomic: &Wide, change: impl Fn(Self) -> Self) -> Self {
        atomic.update(change)
    }
    #[inline]
    fn compare_and_swap(atomic: &Wide, compare: Self, new: Self) -> Self {
        atomic.update(|old| if old == compare { new } else { old })
    }
    #[inline]
    fn from_bytes(bytes: &[u8]) -> Self {
        bytes.first_chunk().map_or(0, |bytes| Self::from_ne_bytes(*bytes))
    }
    #[inline]
    fn to_bytes(self, bytes: &mut [u8]) {
        if let Some(bytes) = bytes.first_chunk_mut() {
            *bytes = self.to_ne_bytes();
        }
    }
}
