//! The predefined reductions on plain bytes (MPI-4.1, Predefined Reduction Operations), written apart from the engine's so that
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

integer!(i8, i16, i32, i64, u8, u16, u32, u64);
float!(f32, f64);

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
        _ => false,
    }
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
        let results = ReduceOp::ALL.map(|op| {
            let out = apply(Dtype::I16, op, 12_i16.to_ne_bytes(), (-5_i16).to_ne_bytes());
            i16::from_ne_bytes(out)
        });
        assert_eq!(results, [7, -60, -5, 12, 1, 1, 0, 12 & -5, 12 | -5, 12 ^ -5, -5, 12]);
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
