//! Reductions of the types that are more than one number of the processor: 16-bit floats, truth values,
//! complex numbers, and values with an index. All run on the bits of a word, in a compare-exchange loop.

use super::kernel::{looped, moves, Visit};
use super::word::Word;
use crate::half;
use crate::op::ReduceOp;

macro_rules! half_reductions {
    ($name:ident, $to:path, $from:path) => {
        /// Arithmetic in `f32`, rounded once; minimum and maximum choose one of the two bit patterns.
        #[inline]
        pub(super) fn $name<V: Visit>(op: ReduceOp, visit: V) -> Option<V::Output> {
            match op {
                ReduceOp::Sum => looped::<u16, V>(visit, |t, o| $from($to(t) + $to(o))),
                ReduceOp::Prod => looped::<u16, V>(visit, |t, o| $from($to(t) * $to(o))),
                ReduceOp::Min => {
                    looped::<u16, V>(visit, |t, o| if $to(o) < $to(t) || $to(t).is_nan() { o } else { t })
                }
                ReduceOp::Max => {
                    looped::<u16, V>(visit, |t, o| if $to(o) > $to(t) || $to(t).is_nan() { o } else { t })
                }
                _ => moves::<u16, V>(op, visit),
            }
        }
    };
}

half_reductions!(f16, half::f16_to_f32, half::f16_from_f32);
half_reductions!(bf16, half::bf16_to_f32, half::bf16_from_f32);

/// Truth values: any byte but 0 is true, results are 0 or 1.
#[inline]
pub(super) fn logical<V: Visit>(op: ReduceOp, visit: V) -> Option<V::Output> {
    match op {
        ReduceOp::LogicalAnd => looped::<u8, V>(visit, |t, o| u8::from(t != 0 && o != 0)),
        ReduceOp::LogicalOr => looped::<u8, V>(visit, |t, o| u8::from(t != 0 || o != 0)),
        ReduceOp::LogicalXor => looped::<u8, V>(visit, |t, o| u8::from((t != 0) != (o != 0))),
        _ => moves::<u8, V>(op, visit),
    }
}

/// The part of an element's bytes at `at`; zeros where there is none, which does not happen.
#[inline]
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
}

macro_rules! complex_reductions {
    ($name:ident, $float:ident, $word:ident) => {
        /// Sums part by part; products by the four products of the parts, without the scaling that some C
        /// compilers add for infinities.
        #[inline]
        pub(super) fn $name<V: Visit>(op: ReduceOp, visit: V) -> Option<V::Output> {
            const HALF: usize = size_of::<$float>();
            #[inline]
            fn parts(word: $word) -> [$float; 2] {
                let bytes = word.to_ne_bytes();
                [$float::from_ne_bytes(part(&bytes, 0)), $float::from_ne_bytes(part(&bytes, HALF))]
            }
            #[inline]
            fn whole(parts: [$float; 2]) -> $word {
                let bytes = parts.map($float::to_ne_bytes);
                <$word as Word>::from_bytes(bytes.as_flattened())
            }
            match op {
                ReduceOp::Sum => looped::<$word, V>(visit, |t, o| {
                    let ([t_re, t_im], [o_re, o_im]) = (parts(t), parts(o));
                    whole([t_re + o_re, t_im + o_im])
                }),
                ReduceOp::Prod => looped::<$word, V>(visit, |t, o| {
                    let ([t_re, t_im], [o_re, o_im]) = (parts(t), parts(o));
                    whole([t_re * o_re - t_im * o_im, t_re * o_im + t_im * o_re])
                }),
                _ => moves::<$word, V>(op, visit),
            }
        }
    };
}

complex_reductions!(complex_f32, f32, u64);
complex_reductions!(complex_f64, f64, u128);

macro_rules! pair_reductions {
    ($name:ident, $value:ident, $word:ident, $index_at:literal) => {
        /// Whole elements: the target's, or the operand's where its value is better, or equal with a
        /// smaller index. A number is better than a NaN, and two NaN are equal.
        #[inline]
        pub(super) fn $name<V: Visit>(op: ReduceOp, visit: V) -> Option<V::Output> {
            #[inline]
            fn parts(word: $word) -> ($value, i32) {
                let bytes = word.to_ne_bytes();
                ($value::from_ne_bytes(part(&bytes, 0)), i32::from_ne_bytes(part(&bytes, $index_at)))
            }
            #[inline]
            fn choose(t: $word, o: $word, is_better: impl Fn(&$value, &$value) -> bool) -> $word {
                let ((t_value, t_index), (o_value, o_index)) = (parts(t), parts(o));
                // Only a NaN differs from itself.
                #[allow(clippy::eq_op)]
                let (t_nan, o_nan) = (t_value != t_value, o_value != o_value);
                let is_equal = t_value == o_value || (t_nan && o_nan);
                let wins =
                    is_better(&o_value, &t_value) || (t_nan && !o_nan) || (is_equal && o_index < t_index);
                if wins {
                    o
                } else {
                    t
                }
            }
            match op {
                ReduceOp::MinLoc => looped::<$word, V>(visit, |t, o| choose(t, o, PartialOrd::lt)),
                ReduceOp::MaxLoc => looped::<$word, V>(visit, |t, o| choose(t, o, PartialOrd::gt)),
                _ => moves::<$word, V>(op, visit),
            }
        }
    };
}

pair_reductions!(f32_index, f32, u64, 4);
pair_reductions!(i32_index, i32, u64, 4);
pair_reductions!(i16_index, i16, u64, 4);
pair_reductions!(f64_index, f64, u128, 8);
pair_reductions!(i64_index, i64, u128, 8);
