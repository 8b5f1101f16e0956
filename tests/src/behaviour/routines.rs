//! The design's routines and pools by what they do: what is issued for one target, for one window and for all, when
//! what was kept back leaves, and how long elements stay.

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::ids::WindowId;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::provider::Endpoint;

use super::{pattern, Make};
use crate::{Spec, World};

const SIX: [u8; 8] = 6u64.to_le_bytes();

fn lock_all<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
}

fn unlock_all<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started).unwrap();
}

fn words<E: Endpoint, B: Bootstrap>(world: &World<E, B>, window: WindowId) -> [u64; 3] {
    [1, 2, 3].map(|target| world.word(target, window, 0))
}

/// So many operations of rank 0 stay, and no more of them go by themselves.
fn leaves<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, operations: u32) {
    world.step_until("what the call was about is done", |world| {
        world.engines[0].elements_in_use().0 <= operations
    });
    world.settle();
    assert_eq!(world.engines[0].elements_in_use().0, operations);
}

/// A call about one target issues and cleans up what is meant for that target, one about a window what is in that
/// window; what others keep back stays.
///
/// Shows: seed: ISSUE_OPS_TARGET, seed: CLEANUP_OPS_TARGET, seed: MAKE_RMA_PROGRESS_TARGET, seed: ISSUE_OPS_WIN, seed: CLEANUP_OPS_WIN, seed: MAKE_RMA_PROGRESS_WIN, seed: PENDING, seed: ISSUED.
pub fn one_call_issues_for_its_target_or_its_window<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let windows = [world.allocate(8), world.allocate(8)];
    for window in windows {
        lock_all(&mut world, window);
        for target in 1..4 {
            world.put(0, window, target, 0, &SIX).unwrap();
        }
    }
    world.settle();
    assert_eq!(windows.map(|window| words(&world, window)), [[0; 3]; 2], "nobody has asked for anything");
    assert_eq!(world.engines[0].elements_in_use().0, 6);
    world.flush(0, windows[0], 1).unwrap();
    leaves(&mut world, 5);
    assert_eq!(windows.map(|window| words(&world, window)), [[6, 0, 0], [0; 3]]);
    unlock_all(&mut world, windows[0]);
    leaves(&mut world, 3);
    assert_eq!(windows.map(|window| words(&world, window)), [[6; 3], [0; 3]]);
    unlock_all(&mut world, windows[1]);
    assert_eq!(words(&world, windows[1]), [6; 3]);
    world.check_idle();
}

/// Progress that nobody asked anything of goes on with every target of every window, and takes back the elements.
///
/// Shows: seed: ISSUE_OPS_GLOBAL, seed: CLEANUP_OPS_GLOBAL, seed: MAKE_RMA_PROGRESS_GLOBAL, notes: requests in one queue.
pub fn every_window_goes_on_by_itself<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    const LEN: usize = 20_000;
    let mut world = make(Spec::ranks(4));
    let windows = [world.allocate(LEN), world.allocate(LEN)];
    let data = pattern(LEN, 1);
    for window in windows {
        for target in 1..4 {
            world.lock(target, window, target, Exclusive).unwrap();
            world.put(target, window, target, 0, &data).unwrap();
            world.unlock(target, window, target).unwrap();
        }
    }
    let mut results = vec![vec![0; LEN]; 6];
    for window in windows {
        lock_all(&mut world, window);
    }
    for (index, result) in results.iter_mut().enumerate() {
        world.get(0, windows[index % 2], 1 + index as u32 / 2, 0, result).unwrap();
    }
    world.step_until("all gets are done", |world| {
        results.iter().all(|result| *result == data) && world.engines[0].elements_in_use().0 == 0
    });
    for window in windows {
        unlock_all(&mut world, window);
    }
    world.check_idle();
}

/// Small operations under a lock that was not asked for wait for the end of the epoch, so that all is one packet;
/// but no more of them than the threshold says, and none that is larger than the other threshold.
///
/// Shows: seed: piggyback_threshold, seed: single_op_opt_threshold, seed: PENDING, seed: ISSUED.
pub fn the_threshold_ends_the_waiting<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for threshold in [1, 4, 64] {
        let mut world = make(Spec::ranks(2).with(|config| config.piggyback_threshold = threshold));
        let window = world.allocate(256);
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &[0; 8]).unwrap();
        world.unlock(0, window, 1).unwrap();
        world.settle();
        let before = world.counters(0).out();
        world.lock(0, window, 1, Exclusive).unwrap();
        let waiting = threshold.min(8);
        for index in 0..waiting {
            world.put(0, window, 1, 8 * u64::from(index), &SIX).unwrap();
            world.settle();
            let out = world.counters(0).out() - before;
            assert_eq!((out, world.engines[0].elements_in_use().0), (0, index + 1), "{threshold}");
        }
        world.put(0, window, 1, 248, &SIX).unwrap();
        if threshold <= 8 {
            world.step_until("what has waited leaves", |world| world.counters(0).out() > before);
        } else {
            world.settle();
            assert_eq!(world.counters(0).out(), before, "{threshold}");
        }
        world.unlock(0, window, 1).unwrap();
        let memory = world.memory(1, window);
        let written = (0..waiting as usize).chain([31]);
        assert!(written.into_iter().all(|index| memory[8 * index..][..8] == SIX));
        world.check_idle();
    }
    only_small_operations_wait(make);
}

/// An operation waits for the end of the epoch if it is as small as the threshold says, and leaves at once otherwise.
fn only_small_operations_wait<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut got = [0; 24];
    for (threshold, bytes, waits) in [(16, 16, true), (16, 17, false), (0, 1, false), (2048, 24, true)] {
        let mut world = make(Spec::ranks(2).with(|config| config.small_bytes_max = threshold));
        let window = world.allocate(64);
        world.lock(0, window, 1, Exclusive).unwrap();
        world.get(0, window, 1, 0, &mut got[..1]).unwrap();
        world.unlock(0, window, 1).unwrap();
        world.settle();
        let before = world.counters(0).out();
        world.lock(0, window, 1, Exclusive).unwrap();
        world.get(0, window, 1, 8, &mut got[..bytes]).unwrap();
        if waits {
            world.settle();
            assert_eq!(world.counters(0).out(), before, "{bytes} of {threshold}");
        } else {
            world.step_until("it leaves", |world| world.counters(0).out() > before);
        }
        world.unlock(0, window, 1).unwrap();
        world.check_idle();
    }
}

/// What is known of a target stays when a flush has ended, so that the next operation finds it, unless the setting
/// says otherwise; the lock is held all the same.
///
/// Shows: seed: lazy deallocation.
pub fn elements_stay_until_they_are_needed<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let seven = 7u64.to_le_bytes();
    for lazy_targets in [true, false] {
        let mut world = make(Spec { ranks: 3, config: Config { lazy_targets, ..Config::default() } });
        let window = world.allocate(8);
        for target in [1, 2] {
            world.lock(0, window, target, Shared).unwrap();
            world.put(0, window, target, 0, &SIX).unwrap();
            world.flush(0, window, target).unwrap();
        }
        assert_eq!(world.engines[0].elements_in_use().1, if lazy_targets { 2 } else { 0 });
        for target in [1, 2] {
            world.put(0, window, target, 0, &seven).unwrap();
            world.unlock(0, window, target).unwrap();
            assert_eq!(world.word(target, window, 0), 7);
        }
        world.check_idle();
    }
}
