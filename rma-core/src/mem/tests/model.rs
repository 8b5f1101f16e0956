//! A naive model of the reductions: 128-bit integers and floats, one element at a time, sharing no
//! code with the kernels.

extern crate std;

use std::vec::Vec;

use crate::dtype::Dtype;
use crate::op::ReduceOp;

/// A small generator (splitmix64): the tests are the same on every run.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Less than `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// `count` packed elements: of any bits, or small, or zero, or special.
    pub(super) fn elements(&mut self, dtype: Dtype, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let kind = self.below(4);
            let small = self.below(7) as i64 - 3;
            let any = if kind == 0 { 0 } else { self.next() };
            match dtype {
                Dtype::F32 if kind == 1 => bytes.extend((small as f32 / 2.0).to_ne_bytes()),
                Dtype::F64 if kind == 1 => bytes.extend((small as f64 / 2.0).to_ne_bytes()),
                Dtype::F32 if kind == 2 => bytes.extend(special(self.below(6)).to_ne_bytes()),
                Dtype::F64 if kind == 2 => bytes.extend(f64::from(special(self.below(6))).to_ne_bytes()),
                _ if kind == 1 => push(&mut bytes, dtype.size(), small as u64),
                _ => push(&mut bytes, dtype.size(), any),
            }
        }
        bytes
    }
}

fn special(index: usize) -> f32 {
    [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE][index]
}

/// The element 1 of the type.
pub(super) fn one(dtype: Dtype) -> Vec<u8> {
    let mut bytes = Vec::new();
    match dtype {
        Dtype::F32 => bytes.extend(1.0_f32.to_ne_bytes()),
        Dtype::F64 => bytes.extend(1.0_f64.to_ne_bytes()),
        _ => push(&mut bytes, dtype.size(), 1),
    }
    bytes
}

/// Appends the low `size` bytes of `value`, in native order.
fn push(bytes: &mut Vec<u8>, size: usize, value: u64) {
    let all = value.to_ne_bytes();
    bytes.extend(if cfg!(target_endian = "little") { &all[..size] } else { &all[8 - size..] });
}

/// Up to 8 bytes in native order, zero-extended; a shorter slice is the low bytes.
pub(super) fn to_u64(bytes: &[u8]) -> u64 {
    let mut value = 0;
    for index in 0..bytes.len() {
        let byte = if cfg!(target_endian = "little") { bytes.len() - 1 - index } else { index };
        value = value << 8 | u64::from(bytes[byte]);
    }
    value
}

/// Compare-and-swap; whether it swapped.
pub(super) fn compare_and_swap(target: &mut [u8], compare: &[u8], operand: &[u8]) -> bool {
    let equal = target.iter().zip(compare).all(|(t, c)| t == c);
    if equal {
        target.copy_from_slice(operand);
    }
    equal
}

/// Combines `operand` into `target`; false, and nothing done, if MPI has no such reduction.
pub(super) fn reduce(dtype: Dtype, op: ReduceOp, target: &mut [u8], operand: &[u8]) -> bool {
    let float = matches!(dtype, Dtype::F32 | Dtype::F64);
    if float && (4..=9).contains(&(op as u8)) {
        return false;
    }
    let size = dtype.size();
    for at in (0..target.len()).step_by(size) {
        let (t, o) = (to_u64(&target[at..at + size]), to_u64(&operand[at..at + size]));
        let new = match op {
            ReduceOp::Replace => o,
            ReduceOp::NoOp => t,
            _ if dtype == Dtype::F64 => reduce_f64(op, t, o),
            _ if dtype == Dtype::F32 => reduce_f32(op, t as u32, o as u32),
            _ => reduce_integer(op, extend(dtype, t), extend(dtype, o)) as u64,
        };
        let mut bytes = Vec::new();
        push(&mut bytes, size, new);
        target[at..at + size].copy_from_slice(&bytes);
    }
    true
}

/// Replaces every NaN that a sum or product may have made: which bits it has is up to the processor.
pub(super) fn canonical_nans(dtype: Dtype, op: ReduceOp, elements: &mut [u8]) {
    if !matches!(op, ReduceOp::Sum | ReduceOp::Prod) {
        return;
    }
    for element in elements.chunks_exact_mut(dtype.size()) {
        let bits = to_u64(element);
        match dtype {
            Dtype::F32 if f32::from_bits(bits as u32).is_nan() => element.fill(0xFF),
            Dtype::F64 if f64::from_bits(bits).is_nan() => element.fill(0xFF),
            _ => {}
        }
    }
}

/// The value of an integer element.
fn extend(dtype: Dtype, bits: u64) -> i128 {
    match dtype {
        Dtype::I8 => i128::from(bits as i8),
        Dtype::I16 => i128::from(bits as i16),
        Dtype::I32 => i128::from(bits as i32),
        Dtype::I64 => i128::from(bits as i64),
        _ => i128::from(bits),
    }
}

fn reduce_integer(op: ReduceOp, t: i128, o: i128) -> i128 {
    match op {
        ReduceOp::Sum => t + o,
        ReduceOp::Prod => t.wrapping_mul(o),
        ReduceOp::Min => {
            if t < o {
                t
            } else {
                o
            }
        }
        ReduceOp::Max => {
            if t > o {
                t
            } else {
                o
            }
        }
        ReduceOp::LogicalAnd => i128::from(t != 0 && o != 0),
        ReduceOp::LogicalOr => i128::from(t != 0 || o != 0),
        ReduceOp::LogicalXor => i128::from((t != 0) ^ (o != 0)),
        ReduceOp::BitAnd => t & o,
        ReduceOp::BitOr => t | o,
        ReduceOp::BitXor => t ^ o,
        ReduceOp::Replace => o,
        ReduceOp::NoOp => t,
    }
}

/// Minimum and maximum as documented: a number wins over a NaN, the target over its equal.
macro_rules! reduce_float {
    ($name:ident, $float:ident, $bits:ident) => {
        fn $name(op: ReduceOp, t_bits: $bits, o_bits: $bits) -> u64 {
            let (t, o) = ($float::from_bits(t_bits), $float::from_bits(o_bits));
            let operand_wins = |better: bool| if t.is_nan() || better { o_bits } else { t_bits };
            u64::from(match op {
                ReduceOp::Sum => (t + o).to_bits(),
                ReduceOp::Prod => (t * o).to_bits(),
                ReduceOp::Min => operand_wins(o < t),
                ReduceOp::Max => operand_wins(o > t),
                _ => panic!("{op:?} is not a reduction of floats"),
            })
        }
    };
}

reduce_float!(reduce_f32, f32, u32);
reduce_float!(reduce_f64, f64, u64);
