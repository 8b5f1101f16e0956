//! What operations do, on every path.

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::FenceAssert;
use rma_core::error::ErrorClass;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::dynamic::dynamic;
use super::{is_tried, pattern, switched, Make};
use crate::Spec;

/// Reference arithmetic on one element, written apart from the engine's.
fn reduce(dtype: Dtype, op: ReduceOp, target: &[u8], operand: &[u8]) -> Vec<u8> {
    macro_rules! integer {
        ($type:ty) => {{
            let (t, o) = (
                <$type>::from_le_bytes(target.try_into().unwrap()),
                <$type>::from_le_bytes(operand.try_into().unwrap()),
            );
            let value = match op {
                ReduceOp::Sum => t.wrapping_add(o),
                ReduceOp::Prod => t.wrapping_mul(o),
                ReduceOp::Min => t.min(o),
                ReduceOp::Max => t.max(o),
                ReduceOp::LogicalAnd => (t != 0 && o != 0) as $type,
                ReduceOp::LogicalOr => (t != 0 || o != 0) as $type,
                ReduceOp::LogicalXor => ((t != 0) != (o != 0)) as $type,
                ReduceOp::BitAnd => t & o,
                ReduceOp::BitOr => t | o,
                ReduceOp::BitXor => t ^ o,
                ReduceOp::Replace => o,
                _ => t,
            };
            value.to_le_bytes().to_vec()
        }};
    }
    macro_rules! float {
        ($type:ty) => {{
            let (t, o) = (
                <$type>::from_le_bytes(target.try_into().unwrap()),
                <$type>::from_le_bytes(operand.try_into().unwrap()),
            );
            let value = match op {
                ReduceOp::Sum => t + o,
                ReduceOp::Prod => t * o,
                ReduceOp::Min => t.min(o),
                ReduceOp::Max => t.max(o),
                ReduceOp::Replace => o,
                _ => t,
            };
            value.to_le_bytes().to_vec()
        }};
    }
    match dtype {
        Dtype::I8 => integer!(i8),
        Dtype::I16 => integer!(i16),
        Dtype::I32 => integer!(i32),
        Dtype::I64 => integer!(i64),
        Dtype::U8 => integer!(u8),
        Dtype::U16 => integer!(u16),
        Dtype::U32 => integer!(u32),
        Dtype::U64 => integer!(u64),
        Dtype::F32 => float!(f32),
        Dtype::F64 => float!(f64),
        other => panic!("no reference for {other:?}"),
    }
}

/// Three elements of a type, small numbers so that floats are exact.
fn elements(dtype: Dtype, seed: u8) -> Vec<u8> {
    (0..3u8)
        .flat_map(|index| {
            let value = (seed + 2 * index) % 7;
            match dtype {
                Dtype::F32 => f32::from(value).to_le_bytes().to_vec(),
                Dtype::F64 => f64::from(value).to_le_bytes().to_vec(),
                _ => {
                    let mut bytes = vec![0; dtype.size()];
                    bytes[0] = value;
                    bytes
                }
            }
        })
        .collect()
}

/// accumulate and get_accumulate for every pair of type and reduction that MPI defines, at a remote
/// rank and at oneself.
///
/// Shows: MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T, MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T, MPI_FLOAT, MPI_DOUBLE, MPI_Accumulate, MPI_Get_accumulate, MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_REPLACE, MPI_NO_OP, MPI-4.1 13.3.4.
pub fn every_type_and_reduction<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    for target in [1, 0] {
        for dtype in Dtype::ALL.into_iter().filter(|&dtype| Dtype::F64 as u8 >= dtype as u8) {
            for op in ReduceOp::ALL.into_iter().filter(|op| op.is_defined_for(dtype)) {
                let (start, one, two) = (elements(dtype, 3), elements(dtype, 5), elements(dtype, 1));
                let size = dtype.size();
                let after = |data: &[u8], operand: &[u8]| -> Vec<u8> {
                    let pairs = data.chunks(size).zip(operand.chunks(size));
                    pairs.flat_map(|(t, o)| reduce(dtype, op, t, o)).collect()
                };
                let mut old = vec![0xee; 3 * size];
                world.lock(0, window, target, Exclusive).unwrap();
                world.accumulate(0, window, target, 8, &start, dtype, ReduceOp::Replace).unwrap();
                if op == ReduceOp::NoOp {
                    let refused = world.accumulate(0, window, target, 8, &one, dtype, op).unwrap_err();
                    assert_eq!(
                        refused.class(),
                        ErrorClass::Op,
                        "it would neither change nor return anything"
                    );
                } else {
                    world.accumulate(0, window, target, 8, &one, dtype, op).unwrap();
                }
                world.get_accumulate(0, window, target, 8, &two, &mut old, dtype, op).unwrap();
                world.unlock(0, window, target).unwrap();
                let between = after(&start, &one);
                assert_eq!(old, between, "{op:?} {dtype:?} result");
                let now = &world.memory(target, window)[8..8 + 3 * size];
                assert_eq!(now, after(&between, &two), "{op:?} {dtype:?} at the target");
            }
        }
    }
    world.check_idle();
}

/// Sizes around every limit: inline, small, packet, several packets, native pieces.
///
/// Shows: MPI_Put, MPI_Get, MPI_BYTE, rule: get-buffer, MPI-4.1 13.3.1, MPI-4.1 13.3.2.
pub fn puts_and_gets_of_all_sizes<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(3 << 20);
    for len in [1, 7, 63, 64, 65, 500, 2047, 2048, 2049, 4000, 8000, 8192, 9000, 70_001, (1 << 20) + 3] {
        let data = pattern(len, len as u64);
        let mut got = vec![0; len];
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 11, &data).unwrap();
        world.flush(0, window, 1).unwrap();
        assert_eq!(world.memory(1, window)[11..11 + len], data, "put of {len} bytes");
        world.get(0, window, 1, 11, &mut got).unwrap();
        world.unlock(0, window, 1).unwrap();
        assert_eq!(got, data, "get of {len} bytes");
    }
    // Large accumulates go in pieces too, each element once.
    let ones = 1u64.to_le_bytes().repeat(20_000);
    let mut old = vec![0; ones.len()];
    world.lock(0, window, 1, Exclusive).unwrap();
    let zeros = vec![0; ones.len()];
    world.put(0, window, 1, 0, &zeros).unwrap();
    world.flush(0, window, 1).unwrap();
    world.accumulate(0, window, 1, 0, &ones, Dtype::U64, ReduceOp::Sum).unwrap();
    world.get_accumulate(0, window, 1, 0, &ones, &mut old, Dtype::U64, ReduceOp::Sum).unwrap();
    world.unlock(0, window, 1).unwrap();
    assert_eq!(old, ones);
    assert_eq!(world.memory(1, window)[..ones.len()], 2u64.to_le_bytes().repeat(20_000));
    world.check_idle();
}

/// fetch_and_op gives everybody another ticket; compare_and_swap lets exactly one win.
///
/// Shows: MPI_Fetch_and_op, MPI_Compare_and_swap, MPI_Get_accumulate, rule: atomic-fetch, MPI-4.1 13.3.4, MPI-4.1 13.7.1.
pub fn fetching_operations<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(64);
    let one = 1u64.to_le_bytes();
    let mut tickets = [[0u8; 8]; 12];
    for round in 0..3 {
        for rank in 0..4 {
            let started = world.engines[rank as usize].start_lock_all(window, false);
            world.wait(rank, started).unwrap();
            let ticket = &mut tickets[round * 4 + rank as usize];
            world.get_accumulate(rank, window, 2, 0, &one, ticket, Dtype::U64, ReduceOp::Sum).unwrap();
        }
        let calls = (0..4).map(|rank| (rank, world.engines[rank as usize].start_unlock_all(window).unwrap()));
        let calls = calls.collect();
        world.wait_all(calls).unwrap();
    }
    let mut numbers: Vec<_> = tickets.iter().map(|ticket| u64::from_le_bytes(*ticket)).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..12).collect::<Vec<_>>());
    let pairs: Vec<[u64; 2]> = (0..4).map(|rank| [12, 100 + rank]).collect();
    let mut results = [0; 4];
    for rank in 0..4u32 {
        world.lock(rank, window, 2, Shared).unwrap();
        let index = rank as usize;
        world.compare_and_swap(rank, window, 2, 0, &pairs[index], &mut results[index]).unwrap();
        world.unlock(rank, window, 2).unwrap();
    }
    assert_eq!(results, [12, 100, 100, 100]);
    assert_eq!(world.word(2, window, 0), 100);
    world.check_idle();
}

/// Every operation works on the process's own window.
///
/// Shows: MPI_Put, MPI_Get, MPI_Get_accumulate, MPI_Compare_and_swap, rule: atomic-self.
pub fn operations_on_oneself<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let (mut got, mut old) = ([0; 8], [0; 8]);
    let mut swapped = 0;
    world.lock(1, window, 1, Exclusive).unwrap();
    let five = 5u64.to_le_bytes();
    world.put(1, window, 1, 0, &five).unwrap();
    world.get(1, window, 1, 0, &mut got).unwrap();
    let two = 2u64.to_le_bytes();
    world.get_accumulate(1, window, 1, 0, &two, &mut old, Dtype::U64, ReduceOp::Prod).unwrap();
    world.flush(1, window, 1).unwrap();
    world.compare_and_swap(1, window, 1, 0, &[10, 77], &mut swapped).unwrap();
    world.unlock(1, window, 1).unwrap();
    assert_eq!((got, old, swapped), (5u64.to_le_bytes(), 5u64.to_le_bytes(), 10));
    assert_eq!(world.word(1, window, 0), 77);
    world.check_idle();
}

/// Operations on zero bytes access nothing: they are in range at every displacement, whatever is known of the
/// window, in dynamic windows too, and do nothing.
///
/// Shows: MPI_Put, MPI_Get, MPI_Accumulate, MPI_Get_accumulate, MPI_Win_create_dynamic, MPI_ERR_RMA_RANGE, MPI-4.1 13.3.
pub fn zero_bytes<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let even = world.allocate(16);
    let uneven = world.allocate_uneven(|rank| 16 + 16 * rank as usize, |_| 8);
    let dynamic = dynamic(&mut world);
    for window in [even, uneven, dynamic] {
        for target in [1, 0] {
            world.lock(0, window, target, Exclusive).unwrap();
            for disp in [0, 16, 17, 1000, u64::MAX] {
                world.put(0, window, target, disp, &[]).unwrap();
                world.get(0, window, target, disp, &mut []).unwrap();
                world.accumulate(0, window, target, disp, &[], Dtype::F64, ReduceOp::Sum).unwrap();
                let (dtype, op) = (Dtype::U64, ReduceOp::Sum);
                world.get_accumulate(0, window, target, disp, &[], &mut [], dtype, op).unwrap();
            }
            world.unlock(0, window, target).unwrap();
        }
        world.fence(window, FenceAssert::default()).unwrap();
        world.put(0, window, 1, 1000, &[]).unwrap();
        world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    }
    assert_eq!((world.memory(1, even), world.memory(1, uneven)), (vec![0; 16], vec![0; 32]));
    // One byte is not in range where none was.
    world.lock(0, even, 1, Exclusive).unwrap();
    let put = world.put(0, even, 1, 16, &[1]);
    let end = world.unlock(0, even, 1);
    let error = put.and(end).unwrap_err();
    assert_eq!(error.class(), ErrorClass::RmaRange);
    world.check_idle();
}

/// The same program under every combination of switches leaves the same memory.
///
/// Shows: MPI_Win_lock, MPI_Win_flush, seed: optimizations off under pressure.
pub fn switches_never_change_results<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut is_real = false;
    for bits in 0..32u32 {
        if !is_tried(bits, 5, is_real) {
            continue;
        }
        let piggyback_threshold = if bits % 3 == 0 { 2 } else { 64 };
        let config = Config { piggyback_threshold, ..switched(bits) };
        let mut world = make(Spec { ranks: 3, config });
        is_real = world.now_ns().is_none();
        let window = world.allocate(4096);
        let data = pattern(1024, 7);
        let (mut got, mut old) = (vec![0; 100], [0; 8]);
        let three = 3u64.to_le_bytes();
        for target in [1, 2] {
            world.lock(0, window, target, Exclusive).unwrap();
            world.get(0, window, target, 3000, &mut got).unwrap();
            for index in 0..10 {
                world.put(0, window, target, index * 100, &data[index as usize * 100..][..100]).unwrap();
            }
            world.accumulate(0, window, target, 2048, &three, Dtype::U64, ReduceOp::Sum).unwrap();
            world.flush(0, window, target).unwrap();
            assert_eq!(world.word(target, window, 2048), 3, "switches {bits:05b}: flush completes");
            world
                .get_accumulate(0, window, target, 2048, &three, &mut old, Dtype::U64, ReduceOp::Prod)
                .unwrap();
            world.unlock(0, window, target).unwrap();
            assert_eq!((got.as_slice(), old), (&[0; 100][..], three), "switches {bits:05b}");
            assert_eq!(world.memory(target, window)[..1000], data[..1000], "switches {bits:05b}");
            assert_eq!(world.word(target, window, 2048), 9, "switches {bits:05b}");
        }
        world.check_idle();
    }
}
