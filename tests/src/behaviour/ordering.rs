//! Order: of accumulates, which MPI promises (MPI-4.1 section 13.7.2), and of anything, which is asked for.

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, SyncCall};
use rma_core::error::{Call, RmaError, Rule};
use rma_core::ids::Rank;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::path::Path;
use rma_core::provider::Endpoint;

use super::{pattern, Make};
use crate::{Spec, World};

const U64: Dtype = Dtype::U64;

/// Bytes of sizes that travel as small packets, packets, and several packets or native pieces.
const SIZES: [usize; 4] = [8, 512, 5000, 1 << 17];

fn switches(bits: u32) -> Config {
    let on = |bit: u32| bits & 1 << bit != 0;
    Config {
        single_op_lock: on(0),
        piggyback: on(1),
        coalesce: on(2),
        get_to_tail: on(3),
        lazy_targets: on(4),
        ..Config::default()
    }
}

/// Accumulates of one origin to one location happen in the order of the calls, each seeing what those before
/// it have left: writes behind writes, reads behind writes, writes behind reads, reads behind reads.
///
/// Shows: MPI_Accumulate, MPI_Get_accumulate, MPI_REPLACE, MPI_NO_OP, MPI-4.1 13.7.2.
pub fn accumulates_of_one_origin_are_ordered<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for bits in [0, 7, 12, 31] {
        let mut world = make(Spec { ranks: 2, config: switches(bits) });
        let window = world.allocate(64);
        let mut expected = 0u64;
        let operands: Vec<[u8; 8]> = (0..40u64).map(|index| (index * 3 + 1).to_le_bytes()).collect();
        let (mut olds, mut expectations) = (vec![[0u8; 8]; operands.len()], Vec::new());
        world.lock(0, window, 1, Shared).unwrap();
        for (index, (operand, old)) in operands.iter().zip(&mut olds).enumerate() {
            let value = u64::from_le_bytes(*operand);
            let op = [ReduceOp::Replace, ReduceOp::Sum, ReduceOp::Prod, ReduceOp::BitXor, ReduceOp::NoOp]
                [index % 5];
            expectations.push(expected);
            if index % 3 == 0 || op == ReduceOp::NoOp {
                world.get_accumulate(0, window, 1, 8, operand, old, U64, op).unwrap();
            } else {
                world.accumulate(0, window, 1, 8, operand, U64, op).unwrap();
                *old = expected.to_le_bytes();
            }
            expected = match op {
                ReduceOp::Replace => value,
                ReduceOp::Sum => expected.wrapping_add(value),
                ReduceOp::Prod => expected.wrapping_mul(value),
                ReduceOp::BitXor => expected ^ value,
                _ => expected,
            };
        }
        world.unlock(0, window, 1).unwrap();
        let olds: Vec<u64> = olds.into_iter().map(u64::from_le_bytes).collect();
        assert_eq!(olds, expectations, "switches {bits:05b}");
        assert_eq!(world.word(1, window, 8), expected, "switches {bits:05b}");
        world.check_idle();
    }
}

/// The same where operations are so large that they go in pieces, and elements few.
///
/// Shows: MPI_Accumulate, MPI_Get_accumulate, MPI-4.1 13.7.2, seed: RESTORE_OP_ELEM_RESOURCES.
pub fn large_accumulates_are_ordered<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for pool in [1, 3, 128] {
        let config = Config { operation_pool: pool, operation_pool_global: 0, ..Config::default() };
        let mut world = make(Spec { ranks: 2, config });
        let count = 3000;
        let window = world.allocate(8 * count);
        let operand = |value: u64| value.to_le_bytes().repeat(count);
        let (five, two, three) = (operand(5), operand(2), operand(3));
        let (mut first, mut second) = (vec![0; 8 * count], vec![0; 8 * count]);
        world.lock(0, window, 1, Exclusive).unwrap();
        world.accumulate(0, window, 1, 0, &five, U64, ReduceOp::Replace).unwrap();
        world.accumulate(0, window, 1, 8, &three[..8], U64, ReduceOp::Sum).unwrap();
        world.get_accumulate(0, window, 1, 0, &two, &mut first, U64, ReduceOp::Prod).unwrap();
        world.accumulate(0, window, 1, 0, &three, U64, ReduceOp::Sum).unwrap();
        world.get_accumulate(0, window, 1, 0, &two, &mut second, U64, ReduceOp::NoOp).unwrap();
        world.accumulate(0, window, 1, 0, &two, U64, ReduceOp::Replace).unwrap();
        world.unlock(0, window, 1).unwrap();
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
        };
        let with_second = |value: u64, second: u64| {
            let mut expected = vec![value; count];
            expected[1] = second;
            expected
        };
        assert_eq!(words(&first), with_second(5, 8), "pool of {pool}");
        assert_eq!(words(&second), with_second(13, 19), "pool of {pool}");
        assert_eq!(words(&world.memory(1, window)), vec![2; count], "pool of {pool}");
        world.check_idle();
    }
}

/// Accumulates that came with a lock request which had to wait, or was told to ask again, keep their order with
/// those behind them.
///
/// Shows: MPI_Accumulate, MPI-4.1 13.7.2, MPI-4.1 13.5.3.
pub fn accumulates_that_wait_are_ordered<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for (deferred_bytes, lock_waiters) in [(8192, 64), (0, 64), (8192, 1)] {
        let mut world = make(Spec::ranks(4).with(|config| {
            (config.deferred_bytes, config.lock_waiters) = (deferred_bytes, lock_waiters);
        }));
        let window = world.allocate(64);
        world.lock(3, window, 1, Exclusive).unwrap();
        world.put(3, window, 1, 32, &[1; 8]).unwrap();
        world.flush(3, window, 1).unwrap();
        let (four, three, five) = (4u64.to_le_bytes(), 3u64.to_le_bytes(), 5u64.to_le_bytes());
        let mut flushes = Vec::new();
        for rank in [0, 2] {
            world.lock(rank, window, 1, Exclusive).unwrap();
            world.accumulate(rank, window, 1, 0, &four, U64, ReduceOp::Replace).unwrap();
            world.accumulate(rank, window, 1, 0, &three, U64, ReduceOp::Prod).unwrap();
            let started = world.engines[rank as usize].start_flush(window, Rank(1)).unwrap();
            world.accumulate(rank, window, 1, 0, &five, U64, ReduceOp::Sum).unwrap();
            flushes.push((rank, started));
        }
        for _ in 0..50 {
            world.step();
        }
        world.unlock(3, window, 1).unwrap();
        // Whoever's request came first has the lock first, and the other waits for its unlock.
        while !flushes.is_empty() {
            let engines = &mut world.engines;
            let is_ready =
                |(rank, flush): &mut (u32, SyncCall)| engines[*rank as usize].poll(flush).is_ready();
            match flushes.iter_mut().position(is_ready) {
                Some(index) => world.unlock(flushes.remove(index).0, window, 1).unwrap(),
                None => {
                    world.step();
                }
            }
        }
        assert_eq!(world.word(1, window, 0), 17, "waiters {lock_waiters}, ring {deferred_bytes}");
        world.check_idle();
    }
}

/// Every call of the accumulate family is atomic against every other, from every rank, the target itself among
/// them.
///
/// Shows: MPI_Accumulate, MPI_Get_accumulate, MPI_Fetch_and_op, MPI_Compare_and_swap, MPI-4.1 13.7.1.
pub fn accumulates_are_atomic<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    for rank in 0..3 {
        let started = world.engines[rank as usize].start_lock_all(window, false);
        world.wait(rank, started).unwrap();
    }
    let one = 1u64.to_le_bytes();
    let (mut tickets, mut swapped) = (vec![[0u8; 8]; 30], vec![0u64; 30]);
    let pairs: Vec<[u64; 2]> = (0..30).map(|index| [u64::MAX, index]).collect();
    for (index, (ticket, swap)) in tickets.iter_mut().zip(&mut swapped).enumerate() {
        let rank = index as u32 % 3;
        world.get_accumulate(rank, window, 2, 0, &one, ticket, U64, ReduceOp::Sum).unwrap();
        world.accumulate(rank, window, 2, 8, &one, U64, ReduceOp::Sum).unwrap();
        // Never equal, so never swapped, but a store of what it has read would lose an addition.
        world.compare_and_swap(rank, window, 2, 8, &pairs[index], swap).unwrap();
    }
    let calls = (0..3).map(|rank| (rank, world.engines[rank as usize].start_unlock_all(window).unwrap()));
    let calls = calls.collect();
    world.wait_all(calls).unwrap();
    let mut tickets: Vec<_> = tickets.into_iter().map(u64::from_le_bytes).collect();
    tickets.sort_unstable();
    assert_eq!(tickets, (0..30).collect::<Vec<_>>());
    assert_eq!((world.word(2, window, 0), world.word(2, window, 8)), (30, 30));
    assert!(swapped.iter().all(|&seen| seen <= 30), "{swapped:?}");
    world.check_idle();
}

/// Puts data, orders, puts a flag: whoever sees the flag sees the data, at every size of either.
///
/// Shows: ours: order.
pub fn a_flag_behind_its_data<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(1 << 19);
    let flag_disp = 1 << 18;
    for data_len in SIZES {
        for flag_len in SIZES {
            let (data, flag) = (pattern(data_len, flag_len as u64), vec![flag_len as u8 | 1; flag_len]);
            world.lock(0, window, 1, Shared).unwrap();
            world.put(0, window, 1, 0, &data).unwrap();
            world.engines[0].order(window, Rank(1)).unwrap();
            world.put(0, window, 1, flag_disp as u64, &flag).unwrap();
            let mut flush = world.engines[0].start_flush(window, Rank(1)).unwrap();
            let mut is_done = false;
            while !is_done {
                is_done = world.engines[0].poll(&mut flush).is_ready();
                let memory = world.memory(1, window);
                let is_seen = memory[flag_disp..flag_disp + flag_len].iter().any(|&byte| byte != 0);
                assert!(!is_seen || memory[..data_len] == data, "{data_len} bytes behind {flag_len}");
                assert!(is_seen || !is_done, "flush completes");
                world.step();
            }
            // For the next round.
            let zeros = vec![0; flag_len];
            world.put(0, window, 1, flag_disp as u64, &zeros).unwrap();
            world.unlock(0, window, 1).unwrap();
        }
    }
    world.check_idle();
}

/// A get behind a put, an accumulate behind a put, a put behind an accumulate, a put behind a get: each in the
/// order of the calls.
///
/// Shows: ours: order, ours: order_all.
pub fn any_operation_behind_any<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for len in SIZES {
        let mut world = make(Spec::ranks(3));
        let window = world.allocate(1 << 17);
        let started = world.engines[0].start_lock_all(window, false);
        world.wait(0, started).unwrap();
        for target in [1, 2, 0] {
            let (one, two) = (pattern(len, 1), pattern(len, 2));
            let three = pattern(len, 3);
            let (mut first, mut second, mut third) = (vec![9; len], vec![9; len], vec![9; len]);
            let mut old = vec![9; len];
            let order = |world: &mut World<E, B>| world.engines[0].order(window, Rank(target)).unwrap();
            world.put(0, window, target, 0, &one).unwrap();
            order(&mut world);
            world.get(0, window, target, 0, &mut first).unwrap();
            order(&mut world);
            world.accumulate(0, window, target, 0, &two, U64, ReduceOp::Replace).unwrap();
            order(&mut world);
            world.get(0, window, target, 0, &mut second).unwrap();
            world.engines[0].order_all(window).unwrap();
            world.put(0, window, target, 0, &three).unwrap();
            world.engines[0].order_all(window).unwrap();
            world.get_accumulate(0, window, target, 0, &one, &mut old, U64, ReduceOp::Replace).unwrap();
            order(&mut world);
            world.get(0, window, target, 0, &mut third).unwrap();
            world.flush(0, window, target).unwrap();
            let is_right = (&first, &second, &old, &third) == (&one, &two, &three, &one);
            assert!(is_right, "{len} bytes at rank {target}");
        }
        let started = world.engines[0].start_unlock_all(window);
        world.wait(0, started).unwrap();
        world.check_idle();
    }
}

/// Order among packets costs nothing; order of nothing costs nothing.
///
/// Shows: ours: order.
pub fn order_among_packets_is_free<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let (one, two) = (1u64.to_le_bytes(), 2u64.to_le_bytes());
    for _ in 0..2 {
        world.settle();
        let before = world.counters(0);
        world.lock(0, window, 1, Exclusive).unwrap();
        world.engines[0].order(window, Rank(1)).unwrap();
        world.put(0, window, 1, 0, &one).unwrap();
        world.engines[0].order(window, Rank(1)).unwrap();
        world.put(0, window, 1, 0, &two).unwrap();
        world.engines[0].order(window, Rank(1)).unwrap();
        world.accumulate(0, window, 1, 0, &one, Dtype::U8, ReduceOp::Sum).unwrap_or_default();
        world.unlock(0, window, 1).unwrap();
        let cost = world.counters(0).since(&before);
        if world.engines[0].window_paths(window, Dtype::U8).map(|paths| paths[2]) == Some(Path::Message) {
            assert_eq!((cost.out(), cost.back(), cost.round_trips), (1, 1, 1), "{cost:?}");
        }
        assert_eq!(world.word(1, window, 0), 3);
    }
    world.check_idle();
}

/// When what was ordered is complete, puts are native and without elements again.
///
/// Shows: ours: order.
pub fn order_ends<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(4096);
    let data = pattern(1024, 6);
    world.lock(0, window, 1, Shared).unwrap();
    for _ in 0..3 {
        world.put(0, window, 1, 0, &data).unwrap();
        world.engines[0].order(window, Rank(1)).unwrap();
        world.put(0, window, 1, 1024, &data).unwrap();
        world.flush(0, window, 1).unwrap();
    }
    if world.engines[0].window_paths(window, Dtype::U8).map(|paths| paths[0]) == Some(Path::Native) {
        let before = world.counters(0);
        for _ in 0..10 {
            world.put(0, window, 1, 2048, &data).unwrap();
        }
        if world.now_ns().is_some() {
            // A real fabric may have no room for a put, which takes an element then.
            assert_eq!(world.engines[0].elements_in_use().0, 0, "an element is in use for a plain put");
        }
        world.flush(0, window, 1).unwrap();
        let cost = world.counters(0).since(&before);
        assert_eq!(cost.native_puts, 10);
    }
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.memory(1, window)[1024..2048], data);
    world.check_idle();
}

/// Many sections in a row, with few elements and targets that are given up between them.
///
/// Shows: ours: order, ours: order_all, seed: RESTORE_TARGET_ELEM_RESOURCES.
pub fn order_with_few_elements<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for (operations, targets) in [(1, 1), (2, 1), (5, 2)] {
        for is_all in [false, true] {
            let config = Config {
                operation_pool: operations,
                operation_pool_global: 0,
                target_pool: targets,
                target_pool_global: 0,
                ..Config::default()
            };
            let mut world = make(Spec { ranks: 4, config });
            let window = world.allocate(4096);
            let started = world.engines[0].start_lock_all(window, false);
            world.wait(0, started).unwrap();
            let values: Vec<Vec<u8>> = (0..12u8).map(|value| vec![value; 800]).collect();
            for value in &values {
                for target in 1..4 {
                    world.put(0, window, target, 0, &value[..800]).unwrap();
                    world.accumulate(0, window, target, 1024, value, U64, ReduceOp::Replace).unwrap();
                    if is_all {
                        world.engines[0].order_all(window).unwrap();
                    } else {
                        world.engines[0].order(window, Rank(target)).unwrap();
                    }
                    world.put(0, window, target, 1024, &value[..800]).unwrap();
                    world.engines[0].order(window, Rank(target)).unwrap();
                }
            }
            let started = world.engines[0].start_unlock_all(window);
            world.wait(0, started).unwrap();
            for target in 1..4 {
                let memory = world.memory(target, window);
                assert_eq!((&memory[..800], &memory[1024..1824]), (&values[11][..], &values[11][..]));
            }
            world.check_idle();
        }
    }
}

/// Order in a fence epoch, also while its barrier is under way.
///
/// Shows: ours: order, MPI_MODE_NOPRECEDE.
pub fn order_in_a_fence_epoch<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(1 << 13);
    let assert = FenceAssert { no_precede: true, ..FenceAssert::default() };
    world.fence(window, assert).unwrap();
    let (one, two) = (vec![1; 3000], vec![2; 3000]);
    for value in [&one, &two] {
        world.put(0, window, 1, 0, value).unwrap();
        world.engines[0].order(window, Rank(1)).unwrap();
        world.accumulate(0, window, 1, 0, value, U64, ReduceOp::Sum).unwrap();
        world.engines[0].order_all(window).unwrap();
    }
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    assert_eq!(world.memory(1, window)[..3000], [4; 3000]);
    world.check_idle();
}

/// Order belongs to epochs.
///
/// Shows: ours: order, ours: order_all, MPI_ERR_RMA_SYNC.
pub fn order_outside_epochs<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    let no_epoch = |call, target| Err(RmaError::Epoch { call, target, state: "Unset", rule: Rule::NoEpoch });
    assert_eq!(world.engines[0].order(window, Rank(1)), no_epoch(Call::Order, Some(Rank(1))));
    assert_eq!(world.engines[0].order_all(window), no_epoch(Call::OrderAll, None));
    world.lock(0, window, 1, Shared).unwrap();
    world.engines[0].order(window, Rank(1)).unwrap();
    let error = world.engines[0].order(window, Rank(2)).unwrap_err();
    assert!(
        matches!(error, RmaError::Epoch { target: Some(Rank(2)), rule: Rule::NotLocked, .. }),
        "{error:?}"
    );
    let error = world.engines[0].order(window, Rank(3)).unwrap_err();
    assert_eq!(error, RmaError::Rank { call: Call::Order, target: Rank(3), size: 3 });
    world.unlock(0, window, 1).unwrap();
    world.check_idle();
}
