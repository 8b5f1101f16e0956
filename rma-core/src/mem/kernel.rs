//! The reductions, compiled once per pair of type and operation: which one it is gets decided
//! outside of the loop over elements.
//!
//! Signedness matters to min and max only, so every other integer reduction runs on the unsigned
//! word; floating-point reductions, and those of `compound`, run on the bit patterns of the word.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering::Relaxed};

use super::compound;
use super::word::Word;
use crate::dtype::Dtype;
use crate::op::ReduceOp;

/// What to do with the elements, for one pair of type and operation.
pub(super) trait Visit {
    /// What it says of it.
    type Output;

    /// Applies the reduction. `combine(target, operand)` is the new value of an element; `atomic`
    /// does the same to an atomic, in one instruction where the processor has one, and yields the
    /// value before.
    fn visit<W: Word>(self, combine: impl Fn(W, W) -> W, atomic: impl Fn(&W::Atomic, W) -> W)
        -> Self::Output;
}

/// Calls `visit` with the reduction of the pair; `None` where MPI defines none
/// (MPI-4.1, Predefined Reduction Operations). `NoOp` is here a reduction that keeps the target's element.
#[inline]
pub(super) fn with_reduction<V: Visit>(dtype: Dtype, op: ReduceOp, visit: V) -> Option<V::Output> {
    match dtype {
        Dtype::I8 => i8_reduction(op, visit),
        Dtype::U8 => u8_reduction(op, visit),
        Dtype::I16 => i16_reduction(op, visit),
        Dtype::U16 => u16_reduction(op, visit),
        Dtype::I32 => i32_reduction(op, visit),
        Dtype::U32 => u32_reduction(op, visit),
        Dtype::I64 => i64_reduction(op, visit),
        Dtype::U64 => u64_reduction(op, visit),
        Dtype::F32 => f32_reduction(op, visit),
        Dtype::F64 => f64_reduction(op, visit),
        Dtype::I128 => i128_reduction(op, visit),
        Dtype::U128 => u128_reduction(op, visit),
        Dtype::F16 => compound::f16(op, visit),
        Dtype::Bf16 => compound::bf16(op, visit),
        Dtype::Bool => compound::logical(op, visit),
        Dtype::ComplexF32 => compound::complex_f32(op, visit),
        Dtype::ComplexF64 => compound::complex_f64(op, visit),
        Dtype::F32Index => compound::f32_index(op, visit),
        Dtype::F64Index => compound::f64_index(op, visit),
        Dtype::I64Index => compound::i64_index(op, visit),
        Dtype::I32Index => compound::i32_index(op, visit),
        Dtype::I16Index => compound::i16_index(op, visit),
    }
}

/// A reduction that no instruction does atomically: a compare-exchange loop around `combine`.
#[inline]
pub(super) fn looped<W: Word, V: Visit>(visit: V, combine: impl Fn(W, W) -> W + Copy) -> Option<V::Output> {
    Some(visit.visit::<W>(combine, move |a, o| W::update(a, |t| combine(t, o))))
}

macro_rules! integer_reductions {
    ($word:ident, $atomic:ident, $unsigned:ident, $signed:ident, $signed_type:ident) => {
        #[inline]
        fn $unsigned<V: Visit>(op: ReduceOp, visit: V) -> Option<V::Output> {
            Some(match op {
                ReduceOp::Sum => {
                    visit.visit::<$word>($word::wrapping_add, |a: &$atomic, o| a.fetch_add(o, Relaxed))
                }
                ReduceOp::Min => visit.visit::<$word>(Ord::min, |a: &$atomic, o| a.fetch_min(o, Relaxed)),
                ReduceOp::Max => visit.visit::<$word>(Ord::max, |a: &$atomic, o| a.fetch_max(o, Relaxed)),
                ReduceOp::BitAnd => {
                    visit.visit::<$word>(|t, o| t & o, |a: &$atomic, o| a.fetch_and(o, Relaxed))
                }
                ReduceOp::BitOr => {
                    visit.visit::<$word>(|t, o| t | o, |a: &$atomic, o| a.fetch_or(o, Relaxed))
                }
                ReduceOp::BitXor => {
                    visit.visit::<$word>(|t, o| t ^ o, |a: &$atomic, o| a.fetch_xor(o, Relaxed))
                }
                ReduceOp::Replace => visit.visit::<$word>(|_, o| o, |a: &$atomic, o| a.swap(o, Relaxed)),
                ReduceOp::NoOp => visit.visit::<$word>(|t, _| t, |a: &$atomic, _| a.load(Relaxed)),
                ReduceOp::Prod => return looped::<$word, V>(visit, $word::wrapping_mul),
                ReduceOp::LogicalAnd => {
                    return looped::<$word, V>(visit, |t, o| $word::from(t != 0 && o != 0))
                }
                ReduceOp::LogicalOr => return looped::<$word, V>(visit, |t, o| $word::from(t != 0 || o != 0)),
                ReduceOp::LogicalXor => {
                    return looped::<$word, V>(visit, |t, o| $word::from((t != 0) != (o != 0)))
                }
                ReduceOp::MinLoc | ReduceOp::MaxLoc => return None,
            })
        }

        #[inline]
        fn $signed<V: Visit>(op: ReduceOp, visit: V) -> Option<V::Output> {
            match op {
                ReduceOp::Min => {
                    looped::<$word, V>(visit, |t, o| (t as $signed_type).min(o as $signed_type) as $word)
                }
                ReduceOp::Max => {
                    looped::<$word, V>(visit, |t, o| (t as $signed_type).max(o as $signed_type) as $word)
                }
                // Two's complement: the same bits whether signed or not.
                _ => $unsigned(op, visit),
            }
        }
    };
}

integer_reductions!(u8, AtomicU8, u8_reduction, i8_reduction, i8);
integer_reductions!(u16, AtomicU16, u16_reduction, i16_reduction, i16);
integer_reductions!(u32, AtomicU32, u32_reduction, i32_reduction, i32);
integer_reductions!(u64, AtomicU64, u64_reduction, i64_reduction, i64);

#[inline]
fn u128_reduction<V: Visit>(op: ReduceOp, visit: V) -> Option<V::Output> {
    match op {
        ReduceOp::Sum => looped(visit, u128::wrapping_add),
        ReduceOp::Prod => looped(visit, u128::wrapping_mul),
        ReduceOp::Min => looped::<u128, V>(visit, Ord::min),
        ReduceOp::Max => looped::<u128, V>(visit, Ord::max),
        ReduceOp::LogicalAnd => looped::<u128, V>(visit, |t, o| u128::from(t != 0 && o != 0)),
        ReduceOp::LogicalOr => looped::<u128, V>(visit, |t, o| u128::from(t != 0 || o != 0)),
        ReduceOp::LogicalXor => looped::<u128, V>(visit, |t, o| u128::from((t != 0) != (o != 0))),
        ReduceOp::BitAnd => looped::<u128, V>(visit, |t, o| t & o),
        ReduceOp::BitOr => looped::<u128, V>(visit, |t, o| t | o),
        ReduceOp::BitXor => looped::<u128, V>(visit, |t, o| t ^ o),
        ReduceOp::Replace | ReduceOp::NoOp => moves::<u128, V>(op, visit),
        ReduceOp::MinLoc | ReduceOp::MaxLoc => None,
    }
}

#[inline]
fn i128_reduction<V: Visit>(op: ReduceOp, visit: V) -> Option<V::Output> {
    match op {
        ReduceOp::Min => looped::<u128, V>(visit, |t, o| (t as i128).min(o as i128) as u128),
        ReduceOp::Max => looped::<u128, V>(visit, |t, o| (t as i128).max(o as i128) as u128),
        _ => u128_reduction(op, visit),
    }
}

/// Replace and read, which know of an element only how long it is.
#[inline]
pub(super) fn moves<W: Word, V: Visit>(op: ReduceOp, visit: V) -> Option<V::Output> {
    match op {
        ReduceOp::Replace => looped::<W, V>(visit, |_, o| o),
        ReduceOp::NoOp => looped::<W, V>(visit, |t, _| t),
        _ => None,
    }
}

macro_rules! float_reductions {
    ($name:ident, $float:ident, $word:ident, $moves:ident) => {
        #[inline]
        fn $name<V: Visit>(op: ReduceOp, visit: V) -> Option<V::Output> {
            /// The reduction of two bit patterns.
            #[inline]
            fn bits(t: $word, o: $word, reduce: impl Fn($float, $float) -> $float) -> $word {
                reduce($float::from_bits(t), $float::from_bits(o)).to_bits()
            }
            match op {
                ReduceOp::Sum => looped::<$word, V>(visit, |t, o| bits(t, o, |t, o| t + o)),
                ReduceOp::Prod => looped::<$word, V>(visit, |t, o| bits(t, o, |t, o| t * o)),
                // The target stays unless the operand is better, or the target is not a number.
                ReduceOp::Min => looped::<$word, V>(visit, |t, o| {
                    bits(t, o, |t, o| if o < t || t.is_nan() { o } else { t })
                }),
                ReduceOp::Max => looped::<$word, V>(visit, |t, o| {
                    bits(t, o, |t, o| if o > t || t.is_nan() { o } else { t })
                }),
                ReduceOp::Replace | ReduceOp::NoOp => $moves(op, visit),
                ReduceOp::LogicalAnd
                | ReduceOp::LogicalOr
                | ReduceOp::LogicalXor
                | ReduceOp::BitAnd
                | ReduceOp::BitOr
                | ReduceOp::BitXor
                | ReduceOp::MinLoc
                | ReduceOp::MaxLoc => None,
            }
        }
    };
}

float_reductions!(f32_reduction, f32, u32, u32_reduction);
float_reductions!(f64_reduction, f64, u64, u64_reduction);
