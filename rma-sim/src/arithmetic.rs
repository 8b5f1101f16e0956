//! The predefined reductions on plain bytes (MPI-4.1 sections 6.9.2 and 6.9.4), written apart from the engine's so that
//! one checks the other. Little-endian or big-endian does not matter: values are the machine's own.

use rma_core::dtype::Dtype;
use rma_core::op::ReduceOp;

/// A type that reductions work on.
trait Element: Copy + PartialOrd {
    const BYTES: usize;
    fn load(bytes: &[u8]) -> Self;
    fn store(self, bytes: &mut [u8]);
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    /// The logical and bitwise ones; `None` where they are not defined.
    fn combine(self, op: ReduceOp, other: Self) -> Option<Self>;
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Element for $type {
            const BYTES: usize = size_of::<Self>();
            fn load(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<Self>()];
                raw.copy_from_slice(bytes);
                Self::from_ne_bytes(raw)
            }
            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn combine(self, op: ReduceOp, other: Self) -> Option<Self> {
                Some(match op {
                    ReduceOp::LogicalAnd => Self::from(self != 0 && other != 0),
                    ReduceOp::LogicalOr => Self::from(self != 0 || other != 0),
                    ReduceOp::LogicalXor => Self::from((self != 0) != (other != 0)),
                    ReduceOp::BitAnd => self & other,
                    ReduceOp::BitOr => self | other,
                    ReduceOp::BitXor => self ^ other,
                    _ => return None,
                })
            }
        }
    )*};
}

macro_rules! float {
    ($($type:ty),*) => {$(
        impl Element for $type {
            const BYTES: usize = size_of::<Self>();
            fn load(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<Self>()];
                raw.copy_from_slice(bytes);
                Self::from_ne_bytes(raw)
            }
            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }
            fn sum(self, other: Self) -> Self {
                self + other
            }
            fn product(self, other: Self) -> Self {
                self * other
            }
            fn combine(self, _op: ReduceOp, _other: Self) -> Option<Self> {
                None
            }
        }
    )*};
}

integer!(i8, i16, i32, i64, i128, u8, u16, u32, u64, u128);
float!(f32, f64);

/// A truth value.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Truth(u8);

impl Element for Truth {
    const BYTES: usize = 1;
    fn load(bytes: &[u8]) -> Self {
        Self(bytes[0])
    }
    fn store(self, bytes: &mut [u8]) {
        bytes[0] = self.0;
    }
    fn sum(self, _other: Self) -> Self {
        self
    }
    fn product(self, _other: Self) -> Self {
        self
    }
    fn combine(self, op: ReduceOp, other: Self) -> Option<Self> {
        u8::from(self.0 != 0).combine(op, u8::from(other.0 != 0)).map(Self)
    }
}

/// A 16-bit float of `E` exponent bits: computed in `f64`, which holds sums and products exactly, and
/// rounded by looking for the nearest of all values.
#[derive(Clone, Copy)]
struct Half<const E: u32>(u16);

impl<const E: u32> Half<E> {
    const INFINITY: u16 = 0x8000 - (1 << (15 - E));

    fn value(self) -> f64 {
        let magnitude = self.0 & 0x7fff;
        let fraction_bits = 15 - E;
        let exponent = i32::from(magnitude >> fraction_bits);
        let fraction = f64::from(magnitude & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
        let bias = (1 << (E - 1)) - 1;
        let value = match (exponent, magnitude) {
            (0, _) => fraction * 2_f64.powi(1 - bias),
            _ if magnitude == Self::INFINITY => f64::INFINITY,
            _ if magnitude > Self::INFINITY => f64::NAN,
            _ => (1.0 + fraction) * 2_f64.powi(exponent - bias),
        };
        if self.0 & 0x8000 == 0 {
            value
        } else {
            -value
        }
    }

    fn nearest(value: f64) -> Self {
        if value.is_nan() {
            return Self(Self::INFINITY | 1 << (14 - E));
        }
        let magnitude = value.abs();
        // The largest that is not above; values grow with their bits.
        let (mut below, mut above) = (0, Self::INFINITY);
        while above - below > 1 {
            let middle = below + (above - below) / 2;
            if Self(middle).value() <= magnitude {
                below = middle;
            } else {
                above = middle;
            }
        }
        // Where infinity is, the next power of two would be.
        let next = if above == Self::INFINITY { 2_f64.powi(1 << (E - 1)) } else { Self(above).value() };
        let (down, up) = (magnitude - Self(below).value(), next - magnitude);
        let bits = if down < up || (down == up && below % 2 == 0) { below } else { above };
        Self(bits | if value.is_sign_negative() { 0x8000 } else { 0 })
    }
}

impl<const E: u32> PartialEq for Half<E> {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}

impl<const E: u32> PartialOrd for Half<E> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        self.value().partial_cmp(&other.value())
    }
}

impl<const E: u32> Element for Half<E> {
    const BYTES: usize = 2;
    fn load(bytes: &[u8]) -> Self {
        Self(u16::load(bytes))
    }
    fn store(self, bytes: &mut [u8]) {
        self.0.store(bytes);
    }
    fn sum(self, other: Self) -> Self {
        Self::nearest(self.value() + other.value())
    }
    fn product(self, other: Self) -> Self {
        Self::nearest(self.value() * other.value())
    }
    fn combine(self, _op: ReduceOp, _other: Self) -> Option<Self> {
        None
    }
}

/// Real and imaginary part.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Complex<T>(T, T);

macro_rules! complex {
    ($($type:ty),*) => {$(
        impl Element for Complex<$type> {
            const BYTES: usize = 2 * size_of::<$type>();
            fn load(bytes: &[u8]) -> Self {
                let (real, imaginary) = bytes.split_at(size_of::<$type>());
                Self(<$type>::load(real), <$type>::load(imaginary))
            }
            fn store(self, bytes: &mut [u8]) {
                let (real, imaginary) = bytes.split_at_mut(size_of::<$type>());
                self.0.store(real);
                self.1.store(imaginary);
            }
            fn sum(self, other: Self) -> Self {
                Self(self.0 + other.0, self.1 + other.1)
            }
            fn product(self, other: Self) -> Self {
                let real = self.0 * other.0 - self.1 * other.1;
                Self(real, self.0 * other.1 + self.1 * other.0)
            }
            fn combine(self, _op: ReduceOp, _other: Self) -> Option<Self> {
                None
            }
        }
    )*};
}

complex!(f32, f64);

/// `target = target op operand`, element by element. Returns false, and changes nothing, when the
/// operation is not defined for the type or the lengths are not whole and equal.
pub fn reduce(dtype: Dtype, op: ReduceOp, target: &mut [u8], operand: &[u8]) -> bool {
    if !op.is_defined_for(dtype) || target.len() % dtype.size() != 0 {
        return false;
    }
    if op == ReduceOp::NoOp {
        return true;
    }
    if target.len() != operand.len() {
        return false;
    }
    match dtype {
        Dtype::I8 => each::<i8>(op, target, operand),
        Dtype::I16 => each::<i16>(op, target, operand),
        Dtype::I32 => each::<i32>(op, target, operand),
        Dtype::I64 => each::<i64>(op, target, operand),
        Dtype::U8 => each::<u8>(op, target, operand),
        Dtype::U16 => each::<u16>(op, target, operand),
        Dtype::U32 => each::<u32>(op, target, operand),
        Dtype::U64 => each::<u64>(op, target, operand),
        Dtype::F32 => each::<f32>(op, target, operand),
        Dtype::F64 => each::<f64>(op, target, operand),
        Dtype::I128 => each::<i128>(op, target, operand),
        Dtype::U128 => each::<u128>(op, target, operand),
        Dtype::F16 => each::<Half<5>>(op, target, operand),
        Dtype::Bf16 => each::<Half<8>>(op, target, operand),
        Dtype::Bool => each::<Truth>(op, target, operand),
        Dtype::ComplexF32 => each::<Complex<f32>>(op, target, operand),
        Dtype::ComplexF64 => each::<Complex<f64>>(op, target, operand),
        Dtype::F32Index => each_pair::<f32>(dtype, op, target, operand),
        Dtype::F64Index => each_pair::<f64>(dtype, op, target, operand),
        Dtype::I64Index => each_pair::<i64>(dtype, op, target, operand),
        Dtype::I32Index => each_pair::<i32>(dtype, op, target, operand),
        Dtype::I16Index => each_pair::<i16>(dtype, op, target, operand),
        _ => false,
    }
}

/// Pairs are moved whole, padding and all.
fn each_pair<T: Element>(dtype: Dtype, op: ReduceOp, target: &mut [u8], operand: &[u8]) -> bool {
    let Some(at) = dtype.index_offset() else { return false };
    for (t, o) in target.chunks_exact_mut(dtype.size()).zip(operand.chunks_exact(dtype.size())) {
        let pair = |bytes: &[u8]| (T::load(&bytes[..T::BYTES]), i32::load(&bytes[at..at + 4]));
        let ((t_value, t_index), (o_value, o_index)) = (pair(t), pair(o));
        let takes_operand = match op {
            ReduceOp::Replace => true,
            ReduceOp::MinLoc => o_value < t_value || (o_value == t_value && o_index < t_index),
            ReduceOp::MaxLoc => o_value > t_value || (o_value == t_value && o_index < t_index),
            _ => return false,
        };
        if takes_operand {
            t.copy_from_slice(o);
        }
    }
    true
}

/// Whether two elements are equal as a compare-and-swap compares them: by value, which for floats
/// differs from equal bytes at zero and not-a-number.
pub fn equal(dtype: Dtype, one: &[u8], other: &[u8]) -> bool {
    match dtype {
        Dtype::F32 => f32::load(one) == f32::load(other),
        Dtype::F64 => f64::load(one) == f64::load(other),
        _ => one == other,
    }
}

fn each<T: Element>(op: ReduceOp, target: &mut [u8], operand: &[u8]) -> bool {
    for (target, operand) in target.chunks_exact_mut(T::BYTES).zip(operand.chunks_exact(T::BYTES)) {
        let (old, given) = (T::load(target), T::load(operand));
        let new = match op {
            ReduceOp::Sum => old.sum(given),
            ReduceOp::Prod => old.product(given),
            ReduceOp::Min if given < old => given,
            ReduceOp::Max if given > old => given,
            ReduceOp::Min | ReduceOp::Max => old,
            ReduceOp::Replace => given,
            _ => match old.combine(op, given) {
                Some(new) => new,
                None => return false,
            },
        };
        new.store(target);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply<const N: usize>(dtype: Dtype, op: ReduceOp, mut target: [u8; N], operand: [u8; N]) -> [u8; N] {
        assert!(reduce(dtype, op, &mut target, &operand), "{} of {}", op.name(), dtype.name());
        target
    }

    #[test]
    fn every_operation_on_one_type() {
        let defined = ReduceOp::ALL.into_iter().filter(|op| op.is_defined_for(Dtype::I16));
        let results = defined.map(|op| {
            let out = apply(Dtype::I16, op, 12_i16.to_ne_bytes(), (-5_i16).to_ne_bytes());
            i16::from_ne_bytes(out)
        });
        assert!(results.eq([7, -60, -5, 12, 1, 1, 0, 12 & -5, 12 | -5, 12 ^ -5, -5, 12]));
    }

    #[test]
    fn sixteen_bits_of_float_round_to_even() {
        let f16 = |bits: u16| bits.to_ne_bytes();
        // 2048 + 1 lies between 2048 and 2050; 2050 + 1 between 2050 and 2052.
        assert_eq!(apply(Dtype::F16, ReduceOp::Sum, f16(0x6800), f16(0x3c00)), f16(0x6800));
        assert_eq!(apply(Dtype::F16, ReduceOp::Sum, f16(0x6801), f16(0x3c00)), f16(0x6802));
        assert_eq!(apply(Dtype::F16, ReduceOp::Prod, f16(0x7bff), f16(0x4000)), f16(0x7c00));
        // 256 + 1 in bfloat16.
        assert_eq!(apply(Dtype::Bf16, ReduceOp::Sum, f16(0x4380), f16(0x3f80)), f16(0x4380));
        assert_eq!(apply(Dtype::Bf16, ReduceOp::Max, f16(0xbf80), f16(0x3f80)), f16(0x3f80));
    }

    #[test]
    fn located_extrema_take_the_smaller_index() {
        let pair = |value: i32, index: i32| {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&value.to_ne_bytes());
            bytes[4..].copy_from_slice(&index.to_ne_bytes());
            bytes
        };
        assert_eq!(apply(Dtype::I32Index, ReduceOp::MinLoc, pair(3, 9), pair(3, 2)), pair(3, 2));
        assert_eq!(apply(Dtype::I32Index, ReduceOp::MaxLoc, pair(3, 1), pair(2, 0)), pair(3, 1));
        assert!(!reduce(Dtype::I32Index, ReduceOp::Sum, &mut [0; 8], &[0; 8]));
    }

    #[test]
    fn truth_and_complex_numbers() {
        assert_eq!(apply(Dtype::Bool, ReduceOp::LogicalXor, [7], [9]), [0]);
        assert_eq!(apply(Dtype::Bool, ReduceOp::LogicalAnd, [7], [9]), [1]);
        let mut number = [1_f32.to_ne_bytes(), 2_f32.to_ne_bytes()].concat();
        let operand = [3_f32.to_ne_bytes(), (-1_f32).to_ne_bytes()].concat();
        assert!(reduce(Dtype::ComplexF32, ReduceOp::Prod, &mut number, &operand));
        assert_eq!(number, [5_f32.to_ne_bytes(), 5_f32.to_ne_bytes()].concat());
    }

    #[test]
    fn integers_wrap_and_floats_have_no_bits() {
        assert_eq!(apply(Dtype::U8, ReduceOp::Sum, [250], [10]), [4]);
        assert_eq!(
            apply(Dtype::F64, ReduceOp::Prod, 1.5_f64.to_ne_bytes(), 4_f64.to_ne_bytes()),
            6_f64.to_ne_bytes()
        );
        assert!(!reduce(Dtype::F32, ReduceOp::BitAnd, &mut [0; 4], &[0; 4]));
        assert!(!reduce(Dtype::U32, ReduceOp::Sum, &mut [0; 4], &[0; 8]));
    }

    #[test]
    fn floats_compare_by_value() {
        assert!(equal(Dtype::F64, &0_f64.to_ne_bytes(), &(-0_f64).to_ne_bytes()));
        assert!(!equal(Dtype::F32, &f32::NAN.to_ne_bytes(), &f32::NAN.to_ne_bytes()));
        assert!(equal(Dtype::U64, &1_u64.to_ne_bytes(), &1_u64.to_ne_bytes()));
    }
}
