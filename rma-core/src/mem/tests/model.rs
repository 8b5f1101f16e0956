//! A naive model of the reductions: 128-bit integers and floats, one element at a time, sharing no
//! code with the kernels.

extern crate std;

use std::vec::Vec;

use crate::dtype::{Dtype, DtypeClass};
use crate::half;
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
                Dtype::F16 if kind == 1 => bytes.extend(half::f16_from_f32(small as f32 / 2.0).to_ne_bytes()),
                Dtype::Bf16 if kind == 1 => {
                    bytes.extend(half::bf16_from_f32(small as f32 / 2.0).to_ne_bytes())
                }
                Dtype::ComplexF32 if kind == 1 => {
                    bytes.extend((small as f32).to_ne_bytes());
                    bytes.extend((self.below(5) as f32).to_ne_bytes());
                }
                Dtype::ComplexF64 if kind == 1 => {
                    bytes.extend((small as f64).to_ne_bytes());
                    bytes.extend((self.below(5) as f64).to_ne_bytes());
                }
                _ if kind == 3 && dtype.class() == DtypeClass::Pair => self.pair(dtype, &mut bytes),
                _ if dtype.size() == 16 => {
                    push(&mut bytes, 8, if kind == 1 { small as u64 } else { any });
                    push(&mut bytes, 8, if kind == 1 { (small >> 63) as u64 } else { self.next() });
                }
                _ if kind == 1 => push(&mut bytes, dtype.size(), small as u64),
                _ => push(&mut bytes, dtype.size(), any),
            }
        }
        bytes
    }

    /// A pair of a value that others have too, or none at all, and an index.
    fn pair(&mut self, dtype: Dtype, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.resize(start + dtype.size(), 0x77);
        let element = &mut bytes[start..];
        let value = self.below(3) as i16;
        match dtype {
            Dtype::F32Index if value == 2 => element[..4].copy_from_slice(&f32::NAN.to_ne_bytes()),
            Dtype::F64Index if value == 2 => element[..8].copy_from_slice(&f64::NAN.to_ne_bytes()),
            Dtype::F32Index => element[..4].copy_from_slice(&f32::from(value).to_ne_bytes()),
            Dtype::F64Index => element[..8].copy_from_slice(&f64::from(value).to_ne_bytes()),
            Dtype::I64Index => element[..8].copy_from_slice(&i64::from(-value).to_ne_bytes()),
            Dtype::I32Index => element[..4].copy_from_slice(&i32::from(-value).to_ne_bytes()),
            _ => element[..2].copy_from_slice(&(-value).to_ne_bytes()),
        }
        let at = dtype.index_offset().expect("a pair has an index");
        element[at..at + 4].copy_from_slice(&(self.below(5) as i32 - 2).to_ne_bytes());
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

/// Up to 8 bytes in native order, zero-extended; a shorter slice is the low bytes, and of a longer one the
/// first 8 count.
pub(super) fn to_u64(bytes: &[u8]) -> u64 {
    let bytes = &bytes[..bytes.len().min(8)];
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
    let code = op as u8;
    let is_defined = match dtype.class() {
        DtypeClass::Integer => code < 12,
        DtypeClass::Float => code < 4 || code == 10 || code == 11,
        DtypeClass::Logical => (4..7).contains(&code) || code == 10 || code == 11,
        DtypeClass::Complex => code < 2 || code == 10 || code == 11,
        DtypeClass::Pair => code >= 10,
    };
    if !is_defined {
        return false;
    }
    let size = dtype.size();
    for (t, o) in target.chunks_exact_mut(size).zip(operand.chunks_exact(size)) {
        match op {
            ReduceOp::Replace => t.copy_from_slice(o),
            ReduceOp::NoOp => {}
            _ => reduce_one(dtype, op, t, o),
        }
    }
    true
}

fn reduce_one(dtype: Dtype, op: ReduceOp, target: &mut [u8], operand: &[u8]) {
    let (t, o) = (to_u64(target), to_u64(operand));
    let mut bytes = Vec::new();
    match dtype {
        Dtype::F64 => push(&mut bytes, 8, reduce_f64(op, t, o)),
        Dtype::F32 => push(&mut bytes, 4, reduce_f32(op, t as u32, o as u32)),
        Dtype::F16 => {
            let new = reduce_half(op, [t as u16, o as u16], half::f16_to_f32, half::f16_from_f32);
            push(&mut bytes, 2, new.into());
        }
        Dtype::Bf16 => {
            let new = reduce_half(op, [t as u16, o as u16], half::bf16_to_f32, half::bf16_from_f32);
            push(&mut bytes, 2, new.into());
        }
        Dtype::ComplexF32 => {
            let parts = |bytes: &[u8]| [f32_at(bytes, 0), f32_at(bytes, 4)].map(f64::from);
            for part in reduce_complex(op, parts(target), parts(operand), |value| f64::from(value as f32)) {
                bytes.extend((part as f32).to_ne_bytes());
            }
        }
        Dtype::ComplexF64 => {
            let parts = |bytes: &[u8]| [f64_at(bytes, 0), f64_at(bytes, 8)];
            for part in reduce_complex(op, parts(target), parts(operand), |value| value) {
                bytes.extend(part.to_ne_bytes());
            }
        }
        Dtype::I128 => {
            let (t, o) = (i128_of(target), i128_of(operand));
            let new = match op {
                ReduceOp::Sum => t.wrapping_add(o),
                _ => reduce_integer(op, t, o),
            };
            bytes.extend(new.to_ne_bytes());
        }
        Dtype::U128 => {
            bytes.extend(reduce_u128(op, i128_of(target) as u128, i128_of(operand) as u128).to_ne_bytes())
        }
        _ if dtype.class() == DtypeClass::Pair => {
            let is_operand = operand_wins(dtype, op == ReduceOp::MaxLoc, target, operand);
            bytes.extend_from_slice(if is_operand { operand } else { target });
        }
        _ => push(&mut bytes, dtype.size(), reduce_integer(op, extend(dtype, t), extend(dtype, o)) as u64),
    }
    target.copy_from_slice(&bytes);
}

fn i128_of(bytes: &[u8]) -> i128 {
    i128::from_ne_bytes(bytes.try_into().expect("16 bytes"))
}

fn f32_at(bytes: &[u8], at: usize) -> f32 {
    f32::from_bits(to_u64(&bytes[at..at + 4]) as u32)
}

fn f64_at(bytes: &[u8], at: usize) -> f64 {
    f64::from_bits(to_u64(&bytes[at..at + 8]))
}

fn reduce_u128(op: ReduceOp, t: u128, o: u128) -> u128 {
    match op {
        ReduceOp::Sum => t.wrapping_add(o),
        ReduceOp::Prod => t.wrapping_mul(o),
        ReduceOp::Min if o < t => o,
        ReduceOp::Max if o > t => o,
        ReduceOp::Min | ReduceOp::Max => t,
        _ => reduce_integer(op, t as i128, o as i128) as u128,
    }
}

fn reduce_half(op: ReduceOp, [t, o]: [u16; 2], to: fn(u16) -> f32, from: fn(f32) -> u16) -> u16 {
    let operand_wins = |better: bool| if to(t).is_nan() || better { o } else { t };
    match op {
        ReduceOp::Sum => from(to(t) + to(o)),
        ReduceOp::Prod => from(to(t) * to(o)),
        ReduceOp::Min => operand_wins(to(o) < to(t)),
        ReduceOp::Max => operand_wins(to(o) > to(t)),
        _ => panic!("{op:?} is not a reduction of floats"),
    }
}

/// In `f64`, rounded by `round` where the type would.
fn reduce_complex(op: ReduceOp, t: [f64; 2], o: [f64; 2], round: impl Fn(f64) -> f64) -> [f64; 2] {
    match op {
        ReduceOp::Sum => [round(t[0] + o[0]), round(t[1] + o[1])],
        _ => {
            let times = |one: f64, other: f64| round(one * other);
            let re = times(t[0], o[0]) - times(t[1], o[1]);
            [round(re), round(times(t[0], o[1]) + times(t[1], o[0]))]
        }
    }
}

/// Whether the operand's pair is the one to keep.
fn operand_wins(dtype: Dtype, max: bool, target: &[u8], operand: &[u8]) -> bool {
    // Every value exactly, and whether it is one; no two types here need more than 64 bits.
    let value = |bytes: &[u8]| match dtype {
        Dtype::F32Index => Some(f32_at(bytes, 0)).filter(|value| !value.is_nan()).map(|v| (f64::from(v), 0)),
        Dtype::F64Index => Some(f64_at(bytes, 0)).filter(|value| !value.is_nan()).map(|v| (v, 0)),
        Dtype::I64Index => Some((0.0, to_u64(&bytes[..8]) as i64)),
        Dtype::I32Index => Some((0.0, i64::from(to_u64(&bytes[..4]) as i32))),
        _ => Some((0.0, i64::from(to_u64(&bytes[..2]) as i16))),
    };
    let at = dtype.index_offset().expect("a pair has an index");
    let index = |bytes: &[u8]| to_u64(&bytes[at..at + 4]) as i32;
    match (value(target), value(operand)) {
        (None, Some(_)) => true,
        (Some(_), None) => false,
        (None, None) => index(operand) < index(target),
        (Some(t), Some(o)) if t == o => index(operand) < index(target),
        (Some(t), Some(o)) => (o > t) == max,
    }
}

/// Replaces every NaN that a sum or product may have made: which bits it has is up to the processor.
pub(super) fn canonical_nans(dtype: Dtype, op: ReduceOp, elements: &mut [u8]) {
    if !matches!(op, ReduceOp::Sum | ReduceOp::Prod) {
        return;
    }
    let (part, is_nan): (usize, fn(u64) -> bool) = match dtype {
        Dtype::F32 | Dtype::ComplexF32 => (4, |bits| f32::from_bits(bits as u32).is_nan()),
        Dtype::F64 | Dtype::ComplexF64 => (8, |bits| f64::from_bits(bits).is_nan()),
        Dtype::F16 => (2, |bits| half::f16_to_f32(bits as u16).is_nan()),
        Dtype::Bf16 => (2, |bits| half::bf16_to_f32(bits as u16).is_nan()),
        _ => return,
    };
    for element in elements.chunks_exact_mut(part) {
        if is_nan(to_u64(element)) {
            element.fill(0xFF);
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
        ReduceOp::MinLoc | ReduceOp::MaxLoc => panic!("{op:?} is not a reduction of integers"),
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
