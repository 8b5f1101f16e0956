//! Flushes that nobody waits for, and flushes of several targets at once.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, Request};
use rma_core::error::{Call, RmaError, Rule};
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::{pattern, Make};
use crate::{Spec, World};

fn iflush<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId, target: u32) -> Request {
    world.engines[0].flush_request(window, Some(Rank(target)), false).unwrap()
}

fn lock_all<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
}

fn unlock_all<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started).unwrap();
}

/// What was posted before is at the target when the request is done, whatever it was.
///
/// Shows: ours: iflush.
pub fn a_flush_that_nobody_waits_for<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for len in [8, 600, 5000, 1 << 17] {
        let mut world = make(Spec::ranks(2));
        let window = world.allocate(1 << 18);
        let data = pattern(len, 2);
        let mut got = vec![1; len];
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &data).unwrap();
        world.accumulate(0, window, 1, 1 << 17, &data, Dtype::U64, ReduceOp::Replace).unwrap();
        let mut request = iflush(&mut world, window, 1);
        world.wait_request(0, &mut request).unwrap();
        let memory = world.memory(1, window);
        assert!(memory[..len] == data && memory[1 << 17..][..len] == data, "{len} bytes");
        world.get(0, window, 1, 0, &mut got).unwrap();
        let mut request = iflush(&mut world, window, 1);
        world.wait_request(0, &mut request).unwrap();
        assert_eq!(got, data, "{len} bytes");
        world.unlock(0, window, 1).unwrap();
        world.check_idle();
    }
}

/// A put, an atomic and a get of one target, each flushed, of which the word at `disp` was `value`.
fn one_of_each<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    window: WindowId,
    (target, disp): (u32, u64),
    value: u64,
) {
    let (first, three) = (value.to_le_bytes(), 3_u64.to_le_bytes());
    let (mut before, mut got) = ([0; 8], [0; 8]);
    world.put(0, window, target, disp, &first).unwrap();
    world.flush(0, window, target).unwrap();
    assert_eq!(world.word(target, window, disp as usize), value);
    world.get_accumulate(0, window, target, disp, &three, &mut before, Dtype::U64, ReduceOp::Sum).unwrap();
    world.flush(0, window, target).unwrap();
    world.get(0, window, target, disp, &mut got).unwrap();
    world.flush(0, window, target).unwrap();
    assert_eq!((before, got), (first, (value + 3).to_le_bytes()), "of rank {target}");
}

/// What goes to one target again and again, or to two by turns, gets where it should, and ends with the target's epoch.
///
/// Shows: MPI_Win_flush, MPI_ERR_RMA_SYNC, rule: access-epoch-required, rule: flush-passive-only.
pub fn what_is_repeated_ends_with_its_epoch<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let (window, other) = (world.allocate(64), world.allocate(64));
    let rule_of = |done: Result<(), RmaError>| done.unwrap_err().rule();
    let (data, mut result) = ([9; 8], [0; 8]);
    // Of the first epoch what is needed is learnt.
    for value in [10, 20, 30] {
        world.lock(0, window, 1, Exclusive).unwrap();
        (0..3).for_each(|_| one_of_each(&mut world, window, (1, 8), value));
        world.lock(0, window, 2, Shared).unwrap();
        (0..3).for_each(|_| {
            one_of_each(&mut world, window, (2, 16), value + 1);
            one_of_each(&mut world, window, (1, 8), value + 2);
        });
        (0..3).for_each(|_| one_of_each(&mut world, window, (2, 16), value + 3));
        world.unlock(0, window, 2).unwrap();
        assert_eq!(rule_of(world.put(0, window, 2, 16, &data)), Some(Rule::NotLocked));
        assert_eq!(rule_of(world.flush(0, window, 2)), Some(Rule::NotLocked));
        (0..3).for_each(|_| one_of_each(&mut world, window, (1, 8), value + 4));
        world.unlock(0, window, 1).unwrap();
        let (dtype, op) = (Dtype::U64, ReduceOp::Sum);
        let added = world.get_accumulate(0, window, 1, 8, &data, &mut result, dtype, op);
        assert_eq!(rule_of(added), Some(Rule::NoEpoch));
        assert_eq!(rule_of(world.put(0, window, 1, 8, &data)), Some(Rule::NoEpoch));
        assert_eq!(rule_of(world.get(0, window, 1, 8, &mut result)), Some(Rule::NoEpoch));
        assert_eq!(rule_of(world.flush(0, window, 1)), Some(Rule::FlushOutsidePassive));
        for window in [window, other] {
            lock_all(&mut world, window);
            for target in [1, 2, 1, 1, 1, 2, 2, 2] {
                one_of_each(&mut world, window, (target, 24), value + u64::from(target));
            }
        }
        unlock_all(&mut world, window);
        assert_eq!(rule_of(world.put(0, window, 2, 24, &data)), Some(Rule::NoEpoch));
        one_of_each(&mut world, other, (2, 24), value);
        unlock_all(&mut world, other);
        assert_eq!(rule_of(world.flush(0, other, 2)), Some(Rule::FlushOutsidePassive));
    }
    assert_eq!([1, 2].map(|rank| world.word(rank, window, 0)), [0, 0], "nothing went elsewhere");
    world.check_idle();
}

/// What was repeated is as any other operation once there is more to be kept of its target: it waits for the lock, and for what
/// it is ordered behind.
///
/// Shows: MPI_Win_lock, MPI_Win_flush, ours: order.
pub fn what_is_repeated_overtakes_nothing<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    let (five, seven) = (5.0_f64.to_le_bytes(), 7_u64.to_le_bytes());
    for round in 0..4 {
        world.lock(0, window, 1, Exclusive).unwrap();
        (0..3).for_each(|_| one_of_each(&mut world, window, (1, 8), 10 + round));
        world.accumulate(0, window, 1, 16, &five, Dtype::F64, ReduceOp::Replace).unwrap();
        world.engines[0].order(window, Rank(1)).unwrap();
        world.put(0, window, 1, 16, &seven).unwrap();
        world.flush(0, window, 1).unwrap();
        assert_eq!(world.word(1, window, 16), 7, "a put went past what it is ordered behind");
        (0..3).for_each(|_| one_of_each(&mut world, window, (1, 8), 20 + round));
        // Nothing is done, and nothing under way.
        world.put(0, window, 1, 8, &[]).unwrap();
        world.unlock(0, window, 1).unwrap();
        let refused = world.put(0, window, 1, 8, &seven).unwrap_err();
        assert_eq!(refused.rule(), Some(Rule::NoEpoch));

        world.lock(2, window, 1, Exclusive).unwrap();
        world.put(2, window, 1, 24, &five).unwrap();
        world.flush(2, window, 1).unwrap();
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 24, &seven).unwrap();
        world.settle();
        assert_eq!(world.word(1, window, 24), 5.0_f64.to_bits(), "a put without the lock");
        world.unlock(2, window, 1).unwrap();
        world.unlock(0, window, 1).unwrap();
        assert_eq!(world.word(1, window, 24), 7);
    }
    world.check_idle();
}

/// Operations that are posted later, one after the other without end, do not delay it.
///
/// Shows: ours: iflush.
pub fn later_operations_delay_nothing<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(1 << 14);
    let (data, later) = (pattern(700, 2), pattern(900, 3));
    world.lock(0, window, 1, Shared).unwrap();
    for _ in 0..3 {
        world.put(0, window, 1, 0, &data).unwrap();
        world.accumulate(0, window, 1, 1024, &data[..8], Dtype::U64, ReduceOp::Replace).unwrap();
        let mut request = iflush(&mut world, window, 1);
        let mut is_done = false;
        for _ in 0..20_000 {
            // There is always something under way.
            world.put(0, window, 1, 4096, &later).unwrap();
            world.accumulate(0, window, 1, 8192, &later[..8], Dtype::U64, ReduceOp::Sum).unwrap();
            is_done = world.is_done(0, &mut request);
            if is_done {
                break;
            }
            // More events than are made, so that the fabric does not fall behind.
            for _ in 0..8 {
                world.step();
            }
        }
        assert!(is_done, "the flush waits for what came after it");
        let memory = world.memory(1, window);
        assert!(memory[..700] == data && memory[1024..1032] == data[..8]);
    }
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.memory(1, window)[4096..4996], later);
    world.check_idle();
}

/// Many of them under way at one time, each done no later than those after it.
///
/// Shows: ours: iflush.
pub fn many_flushes_under_way<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(1 << 14);
    world.lock(0, window, 1, Exclusive).unwrap();
    let data: Vec<Vec<u8>> = (0..9).map(|index| pattern(1000, index)).collect();
    let mut requests = Vec::new();
    for (index, data) in data.iter().enumerate() {
        world.put(0, window, 1, 1024 * index as u64, data).unwrap();
        requests.push(iflush(&mut world, window, 1));
    }
    while requests.iter().any(|request| !request.is_null()) {
        let done: Vec<bool> = requests.iter_mut().map(|request| world.is_done(0, request)).collect();
        assert!(done.windows(2).all(|pair| pair[0] || !pair[1]), "{done:?}");
        for index in done.iter().enumerate().filter(|(_, done)| **done).map(|(index, _)| index) {
            assert_eq!(world.memory(1, window)[1024 * index..][..1000], data[index]);
        }
        world.step();
    }
    world.unlock(0, window, 1).unwrap();
    world.check_idle();
}

/// All targets with one request; at the origin only.
///
/// Shows: ours: iflush_all, ours: iflush_local, ours: iflush_local_all.
pub fn flushes_of_all_and_local<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(5));
    let window = world.allocate(4096);
    lock_all(&mut world, window);
    for is_local in [false, true] {
        for target in [None, Some(Rank(3))] {
            let mut data: Vec<Vec<u8>> = (0..5).map(|target| pattern(900, target)).collect();
            let expected = data.clone();
            for (target, data) in (0..5).zip(&data) {
                world.put(0, window, target, 0, data).unwrap();
            }
            let mut request = world.engines[0].flush_request(window, target, is_local).unwrap();
            world.wait_request(0, &mut request).unwrap();
            let is_meant = |rank: u32| target.is_none_or(|target| target == Rank(rank));
            if is_local {
                // The buffers are the program's again.
                (0..5).filter(|&rank| is_meant(rank)).for_each(|rank| data[rank as usize].fill(0));
                let started = world.engines[0].start_flush_all(window);
                world.wait(0, started).unwrap();
            }
            for rank in (0..5).filter(|&rank| is_meant(rank)) {
                assert_eq!(world.memory(rank, window)[..900], expected[rank as usize], "{target:?}");
            }
            let started = world.engines[0].start_flush_all(window);
            world.wait(0, started).unwrap();
        }
    }
    unlock_all(&mut world, window);
    world.check_idle();
}

/// A flush of nothing is done at once and sends nothing; one of a lock that was not asked for asks for it.
///
/// Shows: ours: iflush, ours: iflush_all.
pub fn flushes_of_nothing<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    let before = world.counters(0);
    lock_all(&mut world, window);
    let mut all = world.engines[0].flush_request(window, None, false).unwrap();
    let mut one = iflush(&mut world, window, 1);
    assert!(world.is_done(0, &mut all) && world.is_done(0, &mut one));
    assert_eq!(world.counters(0).since(&before).out(), 0);
    world.put(0, window, 1, 0, &[7; 8]).unwrap();
    let mut one = iflush(&mut world, window, 1);
    world.wait_request(0, &mut one).unwrap();
    assert_eq!(world.memory(1, window)[..8], [7; 8]);
    let before = world.counters(0);
    let mut one = iflush(&mut world, window, 1);
    assert!(world.is_done(0, &mut one));
    assert_eq!(world.counters(0).since(&before).out(), 0);
    unlock_all(&mut world, window);
    world.check_idle();
}

/// A request of a flush that is dropped, or that its epoch outruns.
///
/// Shows: ours: iflush, ours: iflush_all.
pub fn flush_requests_outlive_their_epoch<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(1 << 14);
    let data = pattern(5000, 1);
    for _ in 0..3 {
        lock_all(&mut world, window);
        world.put(0, window, 1, 0, &data).unwrap();
        drop(iflush(&mut world, window, 1));
        world.put(0, window, 2, 0, &data).unwrap();
        let mut all = world.engines[0].flush_request(window, None, false).unwrap();
        unlock_all(&mut world, window);
        assert!(world.is_done(0, &mut all));
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 8000, &data).unwrap();
        let mut one = iflush(&mut world, window, 1);
        world.unlock(0, window, 1).unwrap();
        assert!(world.is_done(0, &mut one));
    }
    world.check_idle();
}

/// Few elements: targets are given up and made again between the calls.
///
/// Shows: ours: iflush, ours: iflush_all, ours: flush_targets, seed: RESTORE_TARGET_ELEM_RESOURCES.
pub fn flushes_with_few_elements<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for (operations, targets) in [(1, 1), (2, 2)] {
        let config = Config {
            operation_pool: operations,
            operation_pool_global: 0,
            target_pool: targets,
            target_pool_global: 0,
            ..Config::default()
        };
        let mut world = make(Spec { ranks: 5, config });
        let window = world.allocate(4096);
        lock_all(&mut world, window);
        let data: Vec<Vec<u8>> = (0..4).map(|index| pattern(300, index)).collect();
        for round in 0..4u64 {
            let mut requests = Vec::new();
            for target in 1..5u32 {
                world.put(0, window, target, 300 * round, &data[round as usize]).unwrap();
                requests.push((target, iflush(&mut world, window, target)));
                world.put(0, window, target, 3000, &data[0]).unwrap();
            }
            let mut all = world.engines[0].flush_request(window, None, false).unwrap();
            for (target, mut request) in requests {
                world.wait_request(0, &mut request).unwrap();
                let memory = world.memory(target, window);
                assert_eq!(memory[300 * round as usize..][..300], data[round as usize]);
            }
            world.wait_request(0, &mut all).unwrap();
            for target in 1..5 {
                assert_eq!(world.memory(target, window)[3000..3300], data[0]);
            }
            let zeros = [0; 300];
            (1..5).for_each(|target| world.put(0, window, target, 3000, &zeros).unwrap());
            let targets: Vec<Rank> = (1..5).map(Rank).collect();
            let started = world.engines[0].start_flush_targets(window, &targets);
            world.wait(0, started).unwrap();
            (1..5).for_each(|target| assert_eq!(world.memory(target, window)[3000..3300], zeros));
        }
        unlock_all(&mut world, window);
        world.check_idle();
    }
}

/// Several targets are flushed with one wait for all; others are left alone.
///
/// Shows: ours: flush_targets.
pub fn targets_are_flushed_together<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(6));
    let window = world.allocate(64);
    let value = 5u64.to_le_bytes();
    lock_all(&mut world, window);
    let all: Vec<Rank> = (1..6).map(Rank).collect();
    for _ in 0..2 {
        for target in 1..6 {
            world.accumulate(0, window, target, 0, &value, Dtype::F64, ReduceOp::Replace).unwrap();
        }
        let started = world.engines[0].start_flush_targets(window, &all);
        world.wait(0, started).unwrap();
    }
    world.settle();
    let (before, start) = (world.counters(0), world.now_ns());
    for target in 1..6 {
        world.accumulate(0, window, target, 8, &value, Dtype::F64, ReduceOp::Replace).unwrap();
    }
    let words = |world: &World<E, B>| (1..6).map(|target| world.word(target, window, 8)).collect::<Vec<_>>();
    // On neighbours it is done already, without a packet.
    let done = words(&world);
    let near = done[..4].iter().filter(|word| **word == 5).count() as u64;
    let started = world.engines[0].start_flush_targets(window, &all[..4]);
    world.wait(0, started).unwrap();
    let trips = u64::from(near < 4);
    if let (Some(start), Some(end)) = (start, world.now_ns()) {
        assert_eq!((end - start) / 2000, trips, "by the clock");
    }
    let cost = world.counters(0).since(&before);
    let packets: u64 = cost.packets_sent.iter().sum();
    assert_eq!((packets, cost.back(), cost.round_trips), (4 - near, 4 - near, trips), "{cost:?}");
    assert_eq!(words(&world), [5, 5, 5, 5, done[4]]);
    let mut nothing = world.engines[0].start_flush_targets(window, &[]).unwrap();
    assert_eq!(world.engines[0].poll(&mut nothing), Poll::Ready(Ok(())));
    unlock_all(&mut world, window);
    world.check_idle();
}

/// A flush of some targets waits for no other, though another thread has come to flush that: its lock may be to come only when
/// what the first one has locked is given back.
///
/// Shows: ours: flush_targets.
pub fn targets_of_others_are_not_waited_for<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(64);
    let value = 6u64.to_le_bytes();
    world.lock(3, window, 2, Exclusive).unwrap();
    world.put(3, window, 2, 0, &value).unwrap();
    world.flush(3, window, 2).unwrap();
    for target in [1, 2] {
        world.lock(0, window, target, Exclusive).unwrap();
        world.put(0, window, target, 8, &value).unwrap();
    }
    let one = world.engines[0].start_flush_targets(window, &[Rank(1)]);
    let mut other = world.engines[0].start_flush_targets(window, &[Rank(2)]).unwrap();
    world.wait(0, one).unwrap();
    assert_eq!(world.word(1, window, 8), 6);
    // The same target by two, of which one is given up.
    world.put(0, window, 1, 16, &value).unwrap();
    let left = world.engines[0].start_flush_targets(window, &[Rank(1), Rank(2)]).unwrap();
    let one = world.engines[0].start_flush_targets(window, &[Rank(1)]);
    world.engines[0].abandon(&left);
    world.wait(0, one).unwrap();
    assert!(world.engines[0].poll(&mut other).is_pending(), "the lock is another's");
    world.unlock(0, window, 1).unwrap();
    world.unlock(3, window, 2).unwrap();
    world.wait(0, Ok(other)).unwrap();
    let words = [(1, 8), (1, 16), (2, 0), (2, 8)].map(|(target, disp)| world.word(target, window, disp));
    assert_eq!(words, [6; 4]);
    world.unlock(0, window, 2).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// Errors: outside of lock epochs, of unlocked ranks, and what an operation met.
///
/// Shows: ours: iflush, ours: flush_targets, MPI_ERR_RMA_SYNC, MPI_ERR_RMA_RANGE.
pub fn flush_requests_report_errors<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate_uneven(|rank| 64 + 64 * rank as usize, |_| 1);
    world.fence(window, FenceAssert::default()).unwrap();
    let error = world.engines[0].flush_request(window, Some(Rank(1)), false).unwrap_err();
    let (call, rule) = (Call::RequestFlush, Rule::FlushOutsidePassive);
    assert_eq!(error, RmaError::Epoch { call, target: Some(Rank(1)), state: "FenceGranted", rule });
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    world.lock(0, window, 1, Shared).unwrap();
    let error = world.engines[0].start_flush_targets(window, &[Rank(1), Rank(2)]).unwrap_err();
    let (call, rule) = (Call::FlushTargets, Rule::NotLocked);
    assert_eq!(error, RmaError::Epoch { call, target: Some(Rank(2)), state: "PerTarget", rule });
    // Nobody here knows how large the window is there.
    world.put(0, window, 1, 1000, &[1; 8]).unwrap();
    let mut request = iflush(&mut world, window, 1);
    let error = world.wait_request(0, &mut request).unwrap_err();
    assert!(matches!(error, RmaError::Range { call: Call::RequestFlush, .. }), "{error:?}");
    let error = world.unlock(0, window, 1).unwrap_err();
    assert!(matches!(error, RmaError::Range { call: Call::Unlock, .. }), "{error:?}");
    world.check_idle();
}
