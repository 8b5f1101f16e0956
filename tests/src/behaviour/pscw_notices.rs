//! Post notices: early, without room, overtaken, without need; and what they carry.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::{PostAssert, StartAssert};
use rma_core::error::RmaError;
use rma_core::ids::Rank;
use rma_core::lock::LockType;
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::state::WindowState;
use rma_core::wire::PacketKind;

use super::pscw::words;
use super::{pattern, Make};
use crate::{Spec, World};

/// Until rank 0 has received so many post notices.
fn await_notices<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, count: u64) {
    world.step_until("the notices arrive", |world| {
        let words: u64 = (1..world.engines.len() as u32).map(|rank| world.counters(rank).words_told).sum();
        words + world.counters(0).packets_received[PacketKind::Post as usize] >= count
    });
}

/// Notices that come before start are kept for it.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI-4.1 13.5.2, rule: post-returns.
pub fn notices_come_early<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(5));
    let window = world.allocate(64);
    let value = 3u64.to_le_bytes();
    for target in 1..5 {
        world.expose(target, window, &[0]).unwrap();
    }
    await_notices(&mut world, 4);
    // Not all at once, and not in the order of their coming.
    for targets in [&[4u32, 2][..], &[1], &[3]] {
        world.start(0, window, targets).unwrap();
        assert_eq!(world.engines[0].window_state(window), Some(WindowState::PscwGranted));
        for &target in targets {
            world.put(0, window, target, 0, &value).unwrap();
        }
        world.complete(0, window).unwrap();
        for &target in targets {
            world.wait_exposed(target, window).unwrap();
            assert_eq!(world.word(target, window, 0), 3);
        }
    }
    assert_eq!(world.counters(0).post_queries, 0);
    world.check_idle();
}

/// Notices that found no room are asked for by the start that needs them.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI-4.1 13.5.2, seed: PSCW.
pub fn notices_without_room<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for room in [0, 1] {
        let mut world = make(Spec::ranks(5).with(|config| config.notices = room));
        let window = world.allocate(64);
        let data = pattern(64, 9);
        for target in 1..5 {
            world.expose(target, window, &[0]).unwrap();
        }
        await_notices(&mut world, 4);
        for targets in [&[4u32, 2][..], &[1, 3]] {
            world.start(0, window, targets).unwrap();
            for &target in targets {
                world.put(0, window, target, 0, &data).unwrap();
            }
            world.complete(0, window).unwrap();
            for &target in targets {
                world.wait_exposed(target, window).unwrap();
                assert_eq!(world.memory(target, window), data);
            }
        }
        let asked = world.counters(0).post_queries;
        // The words of neighbours need no room.
        let far = (1..5).filter(|&target| !world.are_neighbours(0, target, window)).count() as u64;
        let expected = far.saturating_sub(1)..=far;
        assert!(expected.contains(&asked), "{asked} questions with room for {room}");
        // Nothing is missing any more, so nobody is asked.
        world.start(0, window, &[1]).unwrap();
        world.expose(1, window, &[0]).unwrap();
        world.complete(0, window).unwrap();
        world.wait_exposed(1, window).unwrap();
        assert_eq!(world.counters(0).post_queries, asked);
        world.check_idle();
    }
}

/// Questions that cross posts and completes in every way never grant an epoch too early.
///
/// Shows: MPI_Win_start, MPI-4.1 13.5.2.
pub fn answers_that_come_late<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4).with(|config| config.notices = 0));
    let window = world.allocate(64);
    let values = words(0..12);
    // Rank 3 keeps the exposure epochs of ranks 1 and 2 open while rank 0 asks about their next ones.
    for round in 1..12u64 {
        for target in [1, 2] {
            world.expose(target, window, &[0, 3]).unwrap();
        }
        if round % 2 == 0 {
            world.settle();
        }
        world.start(0, window, &[1, 2]).unwrap();
        for target in [1, 2] {
            world.put(0, window, target, 0, &values[round as usize]).unwrap();
        }
        world.complete(0, window).unwrap();
        let group = world.group(&[1, 2]);
        // The next epoch begins while the exposure epochs of the last are open: nothing may be granted.
        let start = world.engines[0].start_start(window, &group, StartAssert::default()).unwrap();
        if round % 3 == 0 {
            world.settle();
        }
        let early = (1000 + round).to_le_bytes();
        world.wait_all(vec![(0, start)]).unwrap();
        world.put(0, window, 1, 8, &early).unwrap();
        world.settle();
        assert_ne!(world.engines[0].window_state(window), Some(WindowState::PscwGranted), "round {round}");
        assert_ne!(world.word(1, window, 8), 1000 + round, "the window is not exposed to this epoch");
        world.start(3, window, &[1, 2]).unwrap();
        world.complete(3, window).unwrap();
        for target in [1, 2] {
            world.wait_exposed(target, window).unwrap();
            assert_eq!(world.word(target, window, 0), round);
            world.expose(target, window, &[0]).unwrap();
        }
        world.complete(0, window).unwrap();
        for target in [1, 2] {
            world.wait_exposed(target, window).unwrap();
        }
        assert_eq!(world.word(1, window, 8), 1000 + round);
    }
    world.check_idle();
}

/// NOCHECK on both sides: no notice is sent, and operations leave at once.
///
/// Shows: MPI_MODE_NOCHECK/post, MPI_MODE_NOCHECK/start, MPI_MODE_NOSTORE/post, MPI_MODE_NOPUT/post, MPI-4.1 13.5.5.
pub fn no_check_needs_no_notice<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(256);
    let data = pattern(200, 6);
    let (origins, targets) = (world.group(&[0]), world.group(&[1, 2]));
    let notices = |world: &World<E, B>| -> u64 {
        world.ranks().map(|rank| world.counters(rank).packets_sent[PacketKind::Post as usize]).sum()
    };
    let before = notices(&world);
    let mut got = vec![0; 200];
    for no_put in [false, true] {
        let assert = PostAssert { no_check: true, no_store: true, no_put };
        for target in [1, 2] {
            let started = world.engines[target as usize].start_post(window, &origins, assert);
            world.wait(target, started).unwrap();
        }
        let started = world.engines[0].start_start(window, &targets, StartAssert { no_check: true });
        world.wait(0, started).unwrap();
        assert_eq!(world.engines[0].window_state(window), Some(WindowState::PscwGranted));
        match no_put {
            false => world.put(0, window, 1, 0, &data).unwrap(),
            // What the first epoch has put is read in the second, which puts nothing.
            true => world.get(0, window, 1, 0, &mut got).unwrap(),
        }
        world.complete(0, window).unwrap();
        for target in [1, 2] {
            world.wait_exposed(target, window).unwrap();
        }
        assert_eq!(world.memory(1, window)[..200], data);
    }
    assert_eq!(got, data);
    assert_eq!(notices(&world), before);
    world.check_idle();
}

/// NOSTORE and NOPUT say nothing about notices: what is issued before the post waits for it, and results are the same.
///
/// Shows: MPI_MODE_NOSTORE/post, MPI_MODE_NOPUT/post, MPI-4.1 13.5.5, rule: asserts-are-hints.
pub fn other_promises_need_the_notice<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    let group = world.group(&[0]);
    let mut last_put = 0;
    for (round, (no_store, no_put)) in
        (1u64..).zip([(true, false), (true, true), (false, false), (false, true)])
    {
        world.start(0, window, &[1, 2]).unwrap();
        let (data, mut got) = (round.to_le_bytes(), [0xff; 8]);
        match no_put {
            false => world.put(0, window, 1, 0, &data).unwrap(),
            true => world.get(0, window, 1, 0, &mut got).unwrap(),
        }
        world.settle();
        assert_ne!(world.engines[0].window_state(window), Some(WindowState::PscwGranted), "round {round}");
        assert_eq!(world.word(1, window, 0), last_put, "nothing was put before the post of round {round}");
        assert_eq!(got, [0xff; 8], "nothing was got before the post of round {round}");
        for target in [1, 2] {
            let assert = PostAssert { no_check: false, no_store, no_put };
            let started = world.engines[target as usize].start_post(window, &group, assert);
            world.wait(target, started).unwrap();
        }
        world.complete(0, window).unwrap();
        for target in [1, 2] {
            world.wait_exposed(target, window).unwrap();
        }
        match no_put {
            false => last_put = round,
            true => assert_eq!(u64::from_le_bytes(got), last_put, "round {round}"),
        }
        assert_eq!(world.word(1, window, 0), last_put, "round {round}");
    }
    world.check_idle();
}

/// NOCHECK at the origin alone, against the rules: the notice that comes all the same is about this epoch, and is gone with
/// it. Nobody takes it for the next epoch's.
///
/// Shows: MPI_MODE_NOCHECK/start, MPI-4.1 13.5.5.
pub fn notices_that_nobody_wants<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for is_early in [false, true] {
        let mut world = make(Spec::ranks(2));
        let window = world.allocate(64);
        let group = world.group(&[1]);
        let post = |world: &mut World<E, B>| {
            world.expose(1, window, &[0]).unwrap();
            world.settle();
        };
        for round in 1..4_u64 {
            if is_early {
                post(&mut world);
            }
            let started = world.engines[0].start_start(window, &group, StartAssert { no_check: true });
            world.wait(0, started).unwrap();
            if !is_early {
                post(&mut world);
            }
            world.complete(0, window).unwrap();
            world.wait_exposed(1, window).unwrap();
            world.start(0, window, &[1]).unwrap();
            world.settle();
            assert_eq!(world.engines[0].window_state(window), Some(WindowState::PscwIssued), "{round}");
            let value = round.to_le_bytes();
            world.put(0, window, 1, 0, &value).unwrap();
            world.expose(1, window, &[0]).unwrap();
            world.complete(0, window).unwrap();
            world.wait_exposed(1, window).unwrap();
            assert_eq!(world.word(1, window, 0), round);
        }
    }
}

/// Many targets and operations with one and with two elements of each kind.
///
/// Shows: seed: RESTORE_TARGET_ELEM_RESOURCES, seed: RESTORE_OP_ELEM_RESOURCES.
pub fn elements_run_out<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for pool in [1, 2] {
        let mut world = make(Spec::ranks(6).with(|config| {
            (config.slots, config.reply_buffers, config.peers, config.notices) = (1, 1, 2, 1);
            (config.operation_pool, config.operation_pool_global) = (pool, 0);
            (config.target_pool, config.target_pool_global) = (pool, 0);
        }));
        let window = world.allocate(2048);
        let (one, data) = (1u64.to_le_bytes(), pattern(1000, 3));
        for target in 1..6 {
            world.expose(target, window, &[0]).unwrap();
        }
        world.start(0, window, &[5, 1, 2, 3, 4]).unwrap();
        for _ in 0..3 {
            for target in 1..6 {
                world.accumulate(0, window, target, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
                world.put(0, window, target, 8, &data).unwrap();
            }
        }
        world.complete(0, window).unwrap();
        for target in 1..6 {
            world.wait_exposed(target, window).unwrap();
            assert_eq!(world.word(target, window, 0), 3);
            assert_eq!(world.memory(target, window)[8..1008], data);
        }
        assert!(world.counters(0).restored_targets > 0);
        world.check_idle();
    }
}

/// Where ranks differ, the notice says where and how large the target's window is, so nobody asks for it.
///
/// Shows: MPI_Win_post, MPI-4.1 13.5.2.
pub fn metadata_come_with_the_notice<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate_uneven(|rank| 128 * rank as usize, |rank| rank + 1);
    let data = pattern(96, 1);
    for post_first in [true, false] {
        if post_first {
            (1..3).for_each(|target| world.expose(target, window, &[0]).unwrap());
            world.settle();
        }
        world.start(0, window, &[1, 2]).unwrap();
        for target in [1, 2] {
            world.put(0, window, target, 8, &data).unwrap();
        }
        let complete = world.engines[0].start_complete(window).unwrap();
        if !post_first {
            (1..3).for_each(|target| world.expose(target, window, &[0]).unwrap());
        }
        world.wait_all(vec![(0, complete)]).unwrap();
        for target in [1, 2] {
            world.wait_exposed(target, window).unwrap();
            let start = 8 * (target as usize + 1);
            assert_eq!(world.memory(target, window)[start..start + 96], data);
        }
    }
    assert_eq!(world.counters(0).packets_sent[PacketKind::MetadataRequest as usize], 0);
    world.check_idle();
}

fn range_of(result: Result<(), RmaError>, rank: u32) {
    match result {
        Err(RmaError::Range { target: Rank(target), .. }) if target == rank => {}
        other => panic!("a range error about rank {rank} was due, not {other:?}"),
    }
}

/// An operation outside of the target's window is refused at once where the size is known, and reported by
/// complete where it was not; nothing else is hurt.
///
/// Shows: MPI_ERR_RMA_RANGE, MPI-4.1 13.6.
pub fn ranges_known_late<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate_uneven(|rank| 64 * rank as usize, |_| 1);
    let (data, large) = (pattern(16, 1), pattern(80, 2));
    let epoch = |world: &mut World<E, B>, no_check: bool| {
        let group = world.group(&[1]);
        let origin = world.group(&[0]);
        let post = PostAssert { no_check, ..PostAssert::default() };
        let started = world.engines[1].start_post(window, &origin, post);
        world.wait(1, started).unwrap();
        let started = world.engines[0].start_start(window, &group, StartAssert { no_check });
        world.wait(0, started).unwrap();
    };
    // Nothing is known when the put is called: with NOCHECK nobody says it.
    epoch(&mut world, true);
    world.put(0, window, 1, 56, &data).unwrap();
    world.put(0, window, 1, 0, &data).unwrap();
    range_of(world.complete(0, window), 1);
    world.wait_exposed(1, window).unwrap();
    assert_eq!(world.memory(1, window)[..16], data);
    // The notice says it.
    epoch(&mut world, false);
    world.settle();
    range_of(world.put(0, window, 1, 0, &large), 1);
    world.complete(0, window).unwrap();
    world.wait_exposed(1, window).unwrap();
    // The notice says it, after the put, and after complete.
    world.start(0, window, &[1]).unwrap();
    world.put(0, window, 1, 60, &data).unwrap();
    world.complete(0, window).unwrap();
    world.expose(1, window, &[0]).unwrap();
    world.wait_exposed(1, window).unwrap();
    assert_eq!(world.memory(1, window)[60..], [0; 4]);
    // It is reported by the call that closes the next epoch.
    world.lock(0, window, 1, LockType::Exclusive).unwrap();
    range_of(world.unlock(0, window, 1), 1);
    world.check_idle();
}
