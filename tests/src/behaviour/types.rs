//! Every predefined type, with every reduction that is defined on it, against arithmetic written apart
//! from the engine's.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::{Dtype, DtypeClass};
use rma_core::error::{Call, RmaError};
use rma_core::half;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::wire::OpKind;
use rma_sim::arithmetic;

use super::{pattern, Make};
use crate::world::operation;
use crate::{Spec, World};

/// Elements per operation.
const COUNT: usize = 5;

/// Where they are in the window: a multiple of every alignment.
const DISP: u64 = 16;

/// `COUNT` elements, small where arithmetic should be exact; differ from seed to seed.
fn elements(dtype: Dtype, seed: u64) -> Vec<u8> {
    let bytes = pattern(COUNT * dtype.size(), seed);
    let values = pattern(2 * COUNT, seed + 100);
    let small = |index: usize| f32::from(values[index] % 9) - 2.0;
    let element = |index: usize| -> Vec<u8> {
        let any = &bytes[index * dtype.size()..][..dtype.size()];
        match dtype {
            Dtype::F32 => small(index).to_ne_bytes().to_vec(),
            Dtype::F64 => f64::from(small(index)).to_ne_bytes().to_vec(),
            Dtype::F16 => half::f16_from_f32(small(index)).to_ne_bytes().to_vec(),
            Dtype::Bf16 => half::bf16_from_f32(small(index)).to_ne_bytes().to_vec(),
            Dtype::Bool => vec![values[index] % 2],
            Dtype::ComplexF32 => [small(index), small(COUNT + index)].map(f32::to_ne_bytes).concat(),
            Dtype::ComplexF64 => {
                [small(index), small(COUNT + index)].map(|value| f64::from(value).to_ne_bytes()).concat()
            }
            _ if dtype.class() == DtypeClass::Pair => pair(dtype, values[index] % 3, values[index] / 3),
            _ => any.to_vec(),
        }
    };
    (0..COUNT).flat_map(element).collect()
}

/// A pair with recognizable padding.
fn pair(dtype: Dtype, value: u8, index: u8) -> Vec<u8> {
    let mut bytes = vec![index ^ 0x5a; dtype.size()];
    let value = match dtype {
        Dtype::F32Index => f32::from(value).to_ne_bytes().to_vec(),
        Dtype::F64Index => f64::from(value).to_ne_bytes().to_vec(),
        Dtype::I64Index => i64::from(value).to_ne_bytes().to_vec(),
        Dtype::I32Index => i32::from(value).to_ne_bytes().to_vec(),
        _ => i16::from(value).to_ne_bytes().to_vec(),
    };
    bytes[..value.len()].copy_from_slice(&value);
    let at = dtype.index_offset().expect("a pair has an index");
    bytes[at..at + 4].copy_from_slice(&i32::from(index).to_ne_bytes());
    bytes
}

/// accumulate and get_accumulate of every reduction on one type, at a remote rank and at oneself.
fn all_reductions<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, dtype: Dtype) {
    let window = world.allocate(512);
    let start = elements(dtype, 1);
    for target in [1, 0] {
        for op in ReduceOp::ALL.into_iter().filter(|op| op.is_defined_for(dtype)) {
            let (one, two) = (elements(dtype, 2), elements(dtype, 3));
            let mut old = vec![0xee; start.len()];
            world.lock(0, window, target, Exclusive).unwrap();
            world.accumulate(0, window, target, DISP, &start, dtype, ReduceOp::Replace).unwrap();
            if op != ReduceOp::NoOp {
                world.accumulate(0, window, target, DISP, &one, dtype, op).unwrap();
            }
            world.get_accumulate(0, window, target, DISP, &two, &mut old, dtype, op).unwrap();
            world.unlock(0, window, target).unwrap();
            let mut expected = start.clone();
            assert!(arithmetic::reduce(dtype, op, &mut expected, &one));
            assert_eq!(old, expected, "result of {} on {}", op.name(), dtype.name());
            assert!(arithmetic::reduce(dtype, op, &mut expected, &two));
            let memory = world.memory(target, window);
            let (before, rest) = memory.split_at(DISP as usize);
            assert_eq!(rest[..start.len()], expected, "{} on {}", op.name(), dtype.name());
            assert!(before.iter().chain(&rest[start.len()..]).all(|&byte| byte == 0), "beside the elements");
        }
    }
    world.free(window).unwrap();
}

fn all_reductions_of<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>, dtypes: &[Dtype]) {
    let mut world = make(Spec::ranks(2));
    for &dtype in dtypes {
        all_reductions(&mut world, dtype);
    }
    world.check_idle();
}

/// Signed and unsigned 16-byte integers.
///
/// Shows: i128, u128, MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI-4.1 13.7.1.
pub fn sixteen_byte_integers<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    all_reductions_of(make, &[Dtype::I128, Dtype::U128]);
}

/// Both 16-bit floating-point formats.
///
/// Shows: f16, bf16.
pub fn sixteen_bit_floats<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    all_reductions_of(make, &[Dtype::F16, Dtype::Bf16]);
}

/// Truth values, with the logical reductions.
///
/// Shows: MPI_C_BOOL, MPI_LAND, MPI_LOR, MPI_LXOR.
pub fn truth_values<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    all_reductions_of(make, &[Dtype::Bool]);
}

/// Complex numbers of both sizes.
///
/// Shows: MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX.
pub fn complex_numbers<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    all_reductions_of(make, &[Dtype::ComplexF32, Dtype::ComplexF64]);
}

/// The five pairs of value and index.
///
/// Shows: MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_LONG_INT, MPI_2INT, MPI_SHORT_INT, MPI_MINLOC, MPI_MAXLOC.
pub fn values_with_index<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    use Dtype::{F32Index, F64Index, I16Index, I32Index, I64Index};
    all_reductions_of(make, &[F32Index, F64Index, I64Index, I32Index, I16Index]);
}

/// Of equal values the smaller index stays, whoever has it, and the padding is that of the pair that stays.
///
/// Shows: MPI_MINLOC, MPI_MAXLOC, MPI-4.1 6.9.4.
pub fn equal_values_take_the_smaller_index<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.class() == DtypeClass::Pair) {
        for op in [ReduceOp::MinLoc, ReduceOp::MaxLoc] {
            let pairs = [pair(dtype, 1, 30), pair(dtype, 1, 20), pair(dtype, 1, 40)];
            world.lock(0, window, 2, Exclusive).unwrap();
            world.accumulate(0, window, 2, 0, &pairs[0], dtype, ReduceOp::Replace).unwrap();
            world.unlock(0, window, 2).unwrap();
            for (rank, pair) in [(0, &pairs[1]), (1, &pairs[2])] {
                world.lock(rank, window, 2, Shared).unwrap();
                world.accumulate(rank, window, 2, 0, pair, dtype, op).unwrap();
                world.unlock(rank, window, 2).unwrap();
            }
            assert_eq!(world.memory(2, window)[..dtype.size()], pairs[1], "{} {}", op.name(), dtype.name());
        }
    }
    world.check_idle();
}

/// What MPI does not define is refused when it is posted, and names reduction and type.
///
/// Shows: MPI_ERR_OP, MPI-4.1 6.9.2.
pub fn undefined_reductions_are_refused<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    world.lock(0, window, 1, Exclusive).unwrap();
    let data = [0; Dtype::SIZE_MAX];
    for dtype in Dtype::ALL {
        for op in ReduceOp::ALL.into_iter().filter(|op| !op.is_defined_for(dtype)) {
            let refused = world.accumulate(0, window, 1, 0, &data[..dtype.size()], dtype, op);
            let expected = RmaError::Operation { call: Call::Accumulate, op: op.name(), dtype: dtype.name() };
            assert_eq!(refused, Err(expected));
        }
    }
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.memory(1, window), [0; 64]);
    world.check_idle();
}

/// compare_and_swap of one element; the old one.
fn swap<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    window: rma_core::ids::WindowId,
    target: u32,
    dtype: Dtype,
    [compare, new]: [&[u8]; 2],
) -> Result<Vec<u8>, RmaError> {
    let mut old = vec![0xee; dtype.size()];
    let call = operation(Call::CompareAndSwap, OpKind::CompareAndSwap, target, DISP, dtype.size());
    let call = rma_core::engine::Operation {
        dtype,
        origin: new.as_ptr(),
        compare: compare.as_ptr(),
        result: old.as_mut_ptr(),
        ..call
    };
    world.lock(0, window, target, Exclusive)?;
    let posted = world.post(0, window, &call);
    world.unlock(0, window, target)?;
    posted.map(|()| old)
}

/// Integers of every size and truth values can be swapped, at a remote rank and at oneself.
///
/// Shows: MPI_Compare_and_swap, MPI-4.1 13.3.4.
pub fn compare_and_swap_of_every_type<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.has_compare_and_swap()) {
        let (zero, one, two) = (vec![0; dtype.size()], vec![1; dtype.size()], vec![2; dtype.size()]);
        for target in [1, 0] {
            let mut swap = |compare: &[u8], new: &[u8]| {
                swap(&mut world, window, target, dtype, [compare, new]).expect("defined on the type")
            };
            assert_eq!(swap(&zero, &one), zero, "{}", dtype.name());
            assert_eq!(swap(&zero, &two), one, "{}: not equal", dtype.name());
            assert_eq!(swap(&one, &two), one, "{}", dtype.name());
            assert_eq!(swap(&two, &zero), two, "{}", dtype.name());
        }
    }
    assert_eq!(world.memory(1, window), [0; 64]);
    world.check_idle();
}

/// Floats, complex numbers and pairs cannot be swapped.
///
/// Shows: MPI_Compare_and_swap, MPI-4.1 13.3.4.
pub fn compare_and_swap_wants_integers<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    for dtype in Dtype::ALL.into_iter().filter(|dtype| !dtype.has_compare_and_swap()) {
        let data = vec![0; dtype.size()];
        let refused = swap(&mut world, window, 1, dtype, [&data, &data]);
        let op = "compare_and_swap";
        let expected = RmaError::Operation { call: Call::CompareAndSwap, op, dtype: dtype.name() };
        assert_eq!(refused, Err(expected));
    }
    world.check_idle();
}

/// Reading with NO_OP needs no origin buffer, whatever the type.
///
/// Shows: MPI_NO_OP, MPI_Get_accumulate.
pub fn atomic_reads_of_every_type<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let data = pattern(64, 3);
    world.lock(0, window, 1, Exclusive).unwrap();
    world.put(0, window, 1, 0, &data).unwrap();
    world.flush(0, window, 1).unwrap();
    for dtype in Dtype::ALL {
        let mut got = vec![0; 2 * dtype.size()];
        world.get_accumulate(0, window, 1, DISP, &[], &mut got, dtype, ReduceOp::NoOp).unwrap();
        world.flush(0, window, 1).unwrap();
        assert_eq!(got, data[DISP as usize..][..got.len()], "{}", dtype.name());
    }
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.memory(1, window), data);
    world.check_idle();
}

/// Elements of 16 bytes that fill many packets: no element is torn between two of them.
///
/// Shows: MPI_Accumulate, MPI-4.1 13.7.1.
pub fn long_vectors_of_wide_elements<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let count = 5000;
    let window = world.allocate(16 * count);
    let ones = u128::MAX.to_ne_bytes().repeat(count);
    let mut old = vec![0; ones.len()];
    world.lock(0, window, 1, Exclusive).unwrap();
    // Minus one, minus two, minus three: every sum carries through both halves.
    world.accumulate(0, window, 1, 0, &ones, Dtype::U128, ReduceOp::Sum).unwrap();
    world.accumulate(0, window, 1, 0, &ones, Dtype::I128, ReduceOp::Sum).unwrap();
    world.get_accumulate(0, window, 1, 0, &ones, &mut old, Dtype::U128, ReduceOp::Sum).unwrap();
    world.unlock(0, window, 1).unwrap();
    assert_eq!(old, (u128::MAX - 1).to_ne_bytes().repeat(count));
    assert_eq!(world.memory(1, window), (u128::MAX - 2).to_ne_bytes().repeat(count));
    world.check_idle();
}

/// Sums of all ranks on one wide element, mixed with the owner's own: none is lost.
///
/// Shows: MPI-4.1 13.7.1.
pub fn wide_sums_of_all_ranks<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(64);
    let step = (1_u128 << 64 | 1).to_ne_bytes();
    for _ in 0..5 {
        let mut calls = Vec::new();
        for rank in 0..4_u32 {
            let started = world.engines[rank as usize].start_lock_all(window, false);
            world.wait(rank, started).unwrap();
            world.accumulate(rank, window, 2, DISP, &step, Dtype::U128, ReduceOp::Sum).unwrap();
            calls.push((rank, world.engines[rank as usize].start_unlock_all(window).unwrap()));
        }
        world.wait_all(calls).unwrap();
    }
    let sum = &world.memory(2, window)[DISP as usize..][..16];
    assert_eq!(sum, (20_u128 << 64 | 20).to_ne_bytes());
    world.check_idle();
}

/// Sums of 16-bit floats are rounded after every step, to the even neighbour.
///
/// Shows: f16, bf16.
pub fn sixteen_bit_floats_round_each_time<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    type Rounding = fn(f32) -> u16;
    let formats: [(Dtype, Rounding, f32); 2] =
        [(Dtype::F16, half::f16_from_f32, 2048.0), (Dtype::Bf16, half::bf16_from_f32, 256.0)];
    for (dtype, bits, large) in formats {
        let (large, one, three) = (bits(large), bits(1.0), bits(3.0));
        let values = [large, one, three].map(u16::to_ne_bytes);
        world.lock(0, window, 1, Exclusive).unwrap();
        world.accumulate(0, window, 1, 0, &values[0], dtype, ReduceOp::Replace).unwrap();
        for _ in 0..10 {
            // Halfway between two numbers, and the even one is the old one.
            world.accumulate(0, window, 1, 0, &values[1], dtype, ReduceOp::Sum).unwrap();
        }
        let mut old = [0; 2];
        world.get_accumulate(0, window, 1, 0, &values[2], &mut old, dtype, ReduceOp::Sum).unwrap();
        world.unlock(0, window, 1).unwrap();
        assert_eq!(u16::from_ne_bytes(old), large, "{}", dtype.name());
        // Halfway again, and the even one is two steps up.
        assert_eq!(world.memory(1, window)[..2], (large + 2).to_ne_bytes(), "{}", dtype.name());
    }
    world.check_idle();
}

/// A length that is no whole number of elements is refused.
///
/// Shows: MPI_ERR_ARG.
pub fn torn_elements_are_refused<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    world.lock(0, window, 1, Exclusive).unwrap();
    for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.size() > 1) {
        let data = vec![0; dtype.size() + 1];
        let refused = world.accumulate(0, window, 1, 0, &data, dtype, ReduceOp::Replace);
        assert!(matches!(refused, Err(RmaError::Argument { .. })), "{}: {refused:?}", dtype.name());
    }
    world.unlock(0, window, 1).unwrap();
    world.check_idle();
}
