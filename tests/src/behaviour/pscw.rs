//! post, start, complete, wait and test: who waits for whom, and what is seen when.

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{StartAssert, SyncCall};
use rma_core::error::RmaError;
use rma_core::ids::Rank;
use rma_core::lock::LockType;
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::state::WindowState;

use super::{is_tried, pattern, Make};
use crate::{Spec, World};

/// Whether a call is not done although everything that is under way has arrived.
pub(super) fn is_stuck<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    rank: u32,
    sync: &mut SyncCall,
) -> bool {
    world.settle();
    world.engines[rank as usize].poll(sync).is_pending()
}

pub(super) fn words(values: impl IntoIterator<Item = u64>) -> Vec<[u8; 8]> {
    values.into_iter().map(u64::to_le_bytes).collect()
}

/// Rank 0 exposes its window to ranks 1 and 2, which each put their part.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait, MPI-4.1 13.5.2, seed: PSCW, lecture: PSCW program.
pub fn lectures_program<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate_uneven(|rank| if rank == 0 { 24 } else { 0 }, |_| 8);
    let values = words([10, 20]);
    world.expose(0, window, &[1, 2]).unwrap();
    for origin in [1, 2] {
        world.start(origin, window, &[0]).unwrap();
        world.put(origin, window, 0, origin.into(), &values[origin as usize - 1]).unwrap();
        world.complete(origin, window).unwrap();
    }
    world.wait_exposed(0, window).unwrap();
    assert_eq!([0, 8, 16].map(|offset| world.word(0, window, offset)), [0, 10, 20]);
    world.free(window).unwrap();
    world.check_idle();
}

/// start returns before any target has posted, and before anything moves.
///
/// Shows: MPI_Win_start, MPI-4.1 13.5.2, rule: start-returns, seed: PSCW_ISSUED, seed: PSCW_GRANTED.
pub fn start_never_waits<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    let group = world.group(&[1, 2]);
    let mut sync = world.engines[0].start_start(window, &group, StartAssert::default()).unwrap();
    assert!(world.engines[0].poll(&mut sync).is_ready(), "without a step of anybody");
    assert_eq!(world.engines[0].window_state(window), Some(WindowState::PscwIssued));
    for target in [1, 2] {
        world.expose(target, window, &[0]).unwrap();
    }
    world.step_until("every notice arrives", |world| {
        world.engines[0].window_state(window) == Some(WindowState::PscwGranted)
    });
    world.complete(0, window).unwrap();
    for target in [1, 2] {
        world.wait_exposed(target, window).unwrap();
    }
    world.check_idle();
}

/// A put whose data stay with the user does not reach the target, and complete does not return, before post.
///
/// Shows: MPI_Win_complete, MPI_Win_post, MPI-4.1 13.5.2, rule: start-waits-for-post, rule: post-returns.
pub fn puts_wait_for_the_post<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(1024);
    let data = pattern(1024, 1);
    world.start(0, window, &[1]).unwrap();
    world.put(0, window, 1, 0, &data).unwrap();
    let mut complete = world.engines[0].start_complete(window).unwrap();
    assert!(is_stuck(&mut world, 0, &mut complete));
    assert_eq!(world.memory(1, window), [0; 1024], "not exposed yet");
    world.expose(1, window, &[0]).unwrap();
    world.wait_all(vec![(0, complete)]).unwrap();
    world.wait_exposed(1, window).unwrap();
    assert_eq!(world.memory(1, window), data);
    world.check_idle();
}

/// start, a small put and complete return before the target posts; progress does the rest after post.
///
/// Shows: MPI_Win_complete, MPI-4.1 13.5, seed: PSCW, rule: weak-synchronization.
pub fn weak_synchronization<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let mut data = pattern(32, 1);
    let expected = data.clone();
    world.start(0, window, &[1]).unwrap();
    world.put(0, window, 1, 8, &data).unwrap();
    world.complete(0, window).unwrap();
    assert_eq!(world.engines[0].window_state(window), Some(WindowState::Unset));
    // The buffer is the user's again.
    data.fill(0xee);
    world.settle();
    assert_eq!(world.memory(1, window), [0; 64], "not exposed yet");
    world.expose(1, window, &[0]).unwrap();
    world.wait_exposed(1, window).unwrap();
    assert_eq!(world.memory(1, window)[8..40], expected);
    world.check_idle();
}

/// The program of the old notes: the target receives a message, here a barrier, between post and wait,
/// which the origin sends after complete.
///
/// Shows: MPI_Win_complete, MPI_Win_wait, MPI-4.1 13.7.3, notes: recv between post and wait, rule: progress-other-calls.
pub fn received_between_post_and_wait<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for origin_first in [true, false] {
        let mut world = make(Spec::ranks(2));
        let window = world.allocate(1024);
        let data = pattern(1024, 2);
        let small = pattern(8, 3);
        if !origin_first {
            world.expose(1, window, &[0]).unwrap();
        }
        world.start(0, window, &[1]).unwrap();
        world.put(0, window, 1, 0, if origin_first { &small } else { &data }).unwrap();
        world.complete(0, window).unwrap();
        let sent = world.engines[0].start_barrier().unwrap();
        if origin_first {
            world.expose(1, window, &[0]).unwrap();
        }
        let received = world.engines[1].start_barrier().unwrap();
        world.wait_all(vec![(0, sent), (1, received)]).unwrap();
        world.wait_exposed(1, window).unwrap();
        let len = if origin_first { 8 } else { 1024 };
        assert_eq!(world.memory(1, window)[..len], if origin_first { small } else { data });
        world.check_idle();
    }
}

/// The start after a weakly synchronized epoch waits for the post that the epoch is still owed.
///
/// Shows: MPI_Win_start, MPI-4.1 13.5, rule: epochs-match.
pub fn weak_epochs_in_a_row<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let values = words(1..=3);
    let group = world.group(&[1]);
    world.start(0, window, &[1]).unwrap();
    world.put(0, window, 1, 0, &values[0]).unwrap();
    world.complete(0, window).unwrap();
    for value in &values[1..] {
        let mut start = world.engines[0].start_start(window, &group, StartAssert::default()).unwrap();
        assert!(is_stuck(&mut world, 0, &mut start), "the last epoch is owed a post");
        world.expose(1, window, &[0]).unwrap();
        world.wait_exposed(1, window).unwrap();
        world.wait_all(vec![(0, start)]).unwrap();
        assert_eq!(world.word(1, window, 0), u64::from(value[0]) - 1);
        world.put(0, window, 1, 0, value).unwrap();
        world.complete(0, window).unwrap();
    }
    world.expose(1, window, &[0]).unwrap();
    world.wait_exposed(1, window).unwrap();
    assert_eq!(world.word(1, window, 0), 3);
    world.check_idle();
}

/// A target that has posted gets its operations, and its COMPLETE, while another has not posted.
///
/// Shows: MPI_Win_start, MPI_Win_wait, MPI-4.1 13.5.2, seed: PSCW.
pub fn each_target_when_it_posts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(512);
    let data = pattern(512, 4);
    world.start(0, window, &[1, 2, 3]).unwrap();
    for target in [1, 2] {
        world.put(0, window, target, 0, &data).unwrap();
    }
    let mut complete = world.engines[0].start_complete(window).unwrap();
    // In an order of their own; nothing was put to rank 3.
    for target in [3, 2] {
        assert!(is_stuck(&mut world, 0, &mut complete));
        world.expose(target, window, &[0]).unwrap();
        world.wait_exposed(target, window).unwrap();
    }
    assert_eq!(world.memory(2, window), data);
    assert_eq!(world.memory(1, window), [0; 512]);
    assert!(is_stuck(&mut world, 0, &mut complete));
    world.expose(1, window, &[0]).unwrap();
    world.wait_all(vec![(0, complete)]).unwrap();
    world.wait_exposed(1, window).unwrap();
    assert_eq!(world.memory(1, window), data);
    world.check_idle();
}

/// Groups without members: every call returns, no packet is sent.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_test, MPI-4.1 13.5.2, rule: empty-group.
pub fn nobody_in_the_group<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let before = world.counters(0);
    world.start(0, window, &[]).unwrap();
    assert_eq!(world.engines[0].window_state(window), Some(WindowState::PscwGranted));
    world.complete(0, window).unwrap();
    world.expose(0, window, &[]).unwrap();
    world.wait_exposed(0, window).unwrap();
    world.expose(0, window, &[]).unwrap();
    assert_eq!(world.engines[0].test(window), Ok(true));
    assert_eq!(world.counters(0).since(&before).out(), 0);
    world.check_idle();
}

/// Epochs without operations match like any other.
///
/// Shows: MPI_Win_complete, MPI_Win_wait, MPI-4.1 13.5.2.
pub fn no_operations_are_a_match_too<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(64);
    for weak in [false, true, false] {
        if !weak {
            (1..4).for_each(|target| world.expose(target, window, &[0]).unwrap());
        }
        world.start(0, window, &[1, 2, 3]).unwrap();
        world.complete(0, window).unwrap();
        if weak {
            world.settle();
            (1..4).for_each(|target| world.expose(target, window, &[0]).unwrap());
        }
        (1..4).for_each(|target| world.wait_exposed(target, window).unwrap());
    }
    world.check_idle();
}

/// A process may be in its own groups: it accesses its window directly, after its own post.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI-4.1 13.5.2, rule: self-in-group.
pub fn oneself_in_the_group<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let (values, mut old) = (words([7, 8, 1]), [0; 8]);
    world.expose(0, window, &[0, 1]).unwrap();
    world.start(0, window, &[0]).unwrap();
    world.put(0, window, 0, 0, &values[0]).unwrap();
    world.get_accumulate(0, window, 0, 16, &values[2], &mut old, Dtype::U64, ReduceOp::Sum).unwrap();
    let mut wait = world.engines[0].start_wait(window).unwrap();
    assert!(is_stuck(&mut world, 0, &mut wait));
    world.complete(0, window).unwrap();
    assert!(is_stuck(&mut world, 0, &mut wait), "rank 1 is missing");
    world.start(1, window, &[0]).unwrap();
    world.put(1, window, 0, 8, &values[1]).unwrap();
    world.complete(1, window).unwrap();
    world.wait_all(vec![(0, wait)]).unwrap();
    assert_eq!([0, 8, 16].map(|offset| world.word(0, window, offset)), [7, 8, 1]);
    world.check_idle();
}

/// An epoch to oneself is weakly synchronized too: complete returns before the own post, without operations.
/// An operation waits for it.
///
/// Shows: MPI_Win_complete, MPI-4.1 13.5.2.
pub fn oneself_before_its_post<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(1));
    let window = world.allocate(64);
    world.start(0, window, &[0]).unwrap();
    world.complete(0, window).unwrap();
    world.expose(0, window, &[0]).unwrap();
    world.wait_exposed(0, window).unwrap();
    let value = 5u64.to_le_bytes();
    world.start(0, window, &[0]).unwrap();
    // SAFETY: `value` lives until the epoch is complete.
    let posted = unsafe { world.engines[0].put(window, Rank(0), 0, value.as_ptr(), 8) };
    assert!(posted.is_pending(), "the own window is not exposed yet");
    world.expose(0, window, &[0]).unwrap();
    world.put(0, window, 0, 0, &value).unwrap();
    world.complete(0, window).unwrap();
    world.wait_exposed(0, window).unwrap();
    assert_eq!(world.word(0, window, 0), 5);
    world.check_idle();
}

/// wait returns when the last origin has completed, and not before.
///
/// Shows: MPI_Win_wait, MPI-4.1 13.5.2, rule: wait-completes-target, rule: target-completion-pscw.
pub fn wait_is_for_every_origin<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(64);
    let one = 1u64.to_le_bytes();
    world.expose(0, window, &[3, 1, 2]).unwrap();
    let mut wait = world.engines[0].start_wait(window).unwrap();
    for origin in [2, 3, 1] {
        assert!(is_stuck(&mut world, 0, &mut wait));
        world.start(origin, window, &[0]).unwrap();
        world.accumulate(origin, window, 0, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        assert!(is_stuck(&mut world, 0, &mut wait), "not completed");
        world.complete(origin, window).unwrap();
    }
    world.wait_all(vec![(0, wait)]).unwrap();
    assert_eq!(world.word(0, window, 0), 3);
    world.check_idle();
}

/// test is false until every origin has completed, then true once; it never waits.
///
/// Shows: MPI_Win_test, MPI-4.1 13.5.2, rule: test-is-wait, notes: MPI_Win_test.
pub fn test_tells_when_it_is_over<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(256);
    let data = pattern(128, 5);
    world.expose(0, window, &[1, 2]).unwrap();
    for origin in [1, 2] {
        world.settle();
        assert_eq!(world.engines[0].test(window), Ok(false));
        world.start(origin, window, &[0]).unwrap();
        world.put(origin, window, 0, 128 * (u64::from(origin) - 1), &data).unwrap();
        world.complete(origin, window).unwrap();
    }
    let mut polls = 0;
    while !world.engines[0].test(window).unwrap() {
        world.step();
        polls += 1;
        assert!(polls < 1_000_000, "test is never true");
    }
    assert_eq!(world.memory(0, window), [data.clone(), data].concat());
    assert!(matches!(world.engines[0].test(window), Err(RmaError::Epoch { .. })), "the epoch is over");
    world.check_idle();
}

/// Everybody exposes to one neighbour and accesses the other, a hundred times.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait, MPI-4.1 13.5.2, rule: access-exposure-overlap, rule: no-post-deadlock.
pub fn access_and_exposure_overlap<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(64);
    for round in 1..=100u64 {
        let values = words((0..4).map(|rank| 100 * round + rank));
        let mut calls = Vec::new();
        for rank in world.ranks() {
            world.expose(rank, window, &[(rank + 3) % 4]).unwrap();
            world.start(rank, window, &[(rank + 1) % 4]).unwrap();
            world.put(rank, window, (rank + 1) % 4, 8, &values[rank as usize]).unwrap();
            calls.push((rank, world.engines[rank as usize].start_complete(window).unwrap()));
        }
        world.wait_all(calls).unwrap();
        let waits =
            world.ranks().map(|rank| (rank, world.engines[rank as usize].start_wait(window).unwrap()));
        let waits = waits.collect();
        world.wait_all(waits).unwrap();
        for rank in world.ranks() {
            assert_eq!(world.word(rank, window, 8), 100 * round + (u64::from(rank) + 3) % 4);
        }
    }
    world.check_idle();
}

/// Every operation, to a target that has posted and to one that has not.
///
/// Shows: MPI_Put, MPI_Get, MPI_Accumulate, MPI_Get_accumulate, MPI_Compare_and_swap, MPI-4.1 13.5.2.
pub fn every_operation<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for post_first in [true, false] {
        let mut world = make(Spec::ranks(2));
        let window = world.allocate(64);
        let values = words([5, 1]);
        let (mut got, mut old, mut swapped) = ([1; 8], [1; 8], 1);
        if post_first {
            world.expose(1, window, &[0]).unwrap();
        }
        world.start(0, window, &[1]).unwrap();
        world.get(0, window, 1, 40, &mut got).unwrap();
        world.put(0, window, 1, 0, &values[0]).unwrap();
        world.accumulate(0, window, 1, 8, &values[1], Dtype::U64, ReduceOp::Sum).unwrap();
        world.get_accumulate(0, window, 1, 8, &values[0], &mut old, Dtype::U64, ReduceOp::Sum).unwrap();
        world.compare_and_swap(0, window, 1, 16, &[0, 9], &mut swapped).unwrap();
        let complete = world.engines[0].start_complete(window).unwrap();
        if !post_first {
            world.settle();
            world.expose(1, window, &[0]).unwrap();
        }
        world.wait_all(vec![(0, complete)]).unwrap();
        assert_eq!((got, u64::from_le_bytes(old), swapped), ([0; 8], 1, 0));
        world.wait_exposed(1, window).unwrap();
        assert_eq!([0, 8, 16].map(|offset| world.word(1, window, offset)), [5, 6, 9]);
        world.check_idle();
    }
}

/// A get reads what the target stored before its post, not what was there when get was called.
///
/// Shows: MPI_Get, MPI_Win_post, MPI-4.1 13.7.
pub fn gets_read_what_was_there_at_post<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(256);
    let mut got = vec![1; 256];
    let stored = pattern(256, 8);
    world.start(0, window, &[1]).unwrap();
    world.get(0, window, 1, 0, &mut got).unwrap();
    world.settle();
    // The owner's store, before it exposes the window.
    world.lock(1, window, 1, LockType::Exclusive).unwrap();
    world.put(1, window, 1, 0, &stored).unwrap();
    world.unlock(1, window, 1).unwrap();
    world.expose(1, window, &[0]).unwrap();
    world.complete(0, window).unwrap();
    world.wait_exposed(1, window).unwrap();
    assert_eq!(got, stored);
    world.check_idle();
}

/// Operations larger than a packet, both ways.
///
/// Shows: MPI_Win_complete, MPI-4.1 13.5.2, rule: complete-completes-origin.
pub fn large_transfers<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let len = 100_000;
    let window = world.allocate(2 * len);
    let (data, mut got) = (pattern(len, 7), vec![1; len]);
    for round in 0..2 {
        if round == 0 {
            world.expose(1, window, &[0]).unwrap();
        }
        world.start(0, window, &[1]).unwrap();
        world.put(0, window, 1, 0, &data).unwrap();
        world.get(0, window, 1, len as u64, &mut got).unwrap();
        let complete = world.engines[0].start_complete(window).unwrap();
        if round == 1 {
            world.expose(1, window, &[0]).unwrap();
        }
        world.wait_all(vec![(0, complete)]).unwrap();
        assert_eq!(got, vec![0; len]);
        world.wait_exposed(1, window).unwrap();
        assert_eq!(world.memory(1, window)[..len], data);
    }
    world.check_idle();
}

/// Epochs on different windows are independent, also in one process.
///
/// Shows: MPI_Win_start, MPI_Win_post, MPI-4.1 13.5.
pub fn two_windows_at_once<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let windows = [world.allocate(64), world.allocate(64)];
    let values = words([1, 2]);
    // The first window's epoch waits for its post; the second's does not.
    world.start(0, windows[0], &[1]).unwrap();
    world.put(0, windows[0], 1, 0, &values[0]).unwrap();
    world.expose(1, windows[1], &[0]).unwrap();
    world.start(0, windows[1], &[1]).unwrap();
    world.put(0, windows[1], 1, 0, &values[1]).unwrap();
    world.complete(0, windows[1]).unwrap();
    world.wait_exposed(1, windows[1]).unwrap();
    assert_eq!(windows.map(|window| world.word(1, window, 0)), [0, 2]);
    world.complete(0, windows[0]).unwrap();
    world.expose(1, windows[0], &[0]).unwrap();
    world.wait_exposed(1, windows[0]).unwrap();
    assert_eq!(windows.map(|window| world.word(1, window, 0)), [1, 2]);
    world.check_idle();
}

/// One program under every combination of switches: the same results.
///
/// Shows: seed: PSCW.
pub fn switches_change_nothing<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut is_real = false;
    for bits in 0..16u32 {
        if !is_tried(bits, 4, is_real) {
            continue;
        }
        let switches = |config: &mut Config| {
            config.piggyback = bits & 1 != 0;
            config.coalesce = bits & 2 != 0;
            config.get_to_tail = bits & 4 != 0;
            config.piggyback_threshold = if bits & 8 != 0 { 1 } else { 64 };
        };
        let mut world = make(Spec::ranks(3).with(switches));
        is_real = world.now_ns().is_none();
        let window = world.allocate(512);
        let (data, one) = (pattern(100, bits.into()), 1u64.to_le_bytes());
        let mut got = [[1; 8]; 2];
        world.expose(1, window, &[0]).unwrap();
        world.start(0, window, &[1, 2]).unwrap();
        for target in [1, 2] {
            world.get(0, window, target, 504, &mut got[target as usize - 1]).unwrap();
            for at in 0..4 {
                world.put(0, window, target, 100 * at, &data).unwrap();
            }
            world.accumulate(0, window, target, 400, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        }
        let complete = world.engines[0].start_complete(window).unwrap();
        world.expose(2, window, &[0]).unwrap();
        world.wait_all(vec![(0, complete)]).unwrap();
        for target in [1, 2] {
            world.wait_exposed(target, window).unwrap();
            assert_eq!(world.memory(target, window)[..400], data.repeat(4), "switches {bits:04b}");
            assert_eq!(world.word(target, window, 400), 1);
        }
        assert_eq!(got, [[0; 8]; 2]);
        world.check_idle();
    }
}
