//! Rules of MPI-4.1's section on synchronization, one body each.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, SyncCall};
use rma_core::error::{RmaError, Rule};
use rma_core::ids::{Rank, WindowId};
use rma_core::info::WindowInfo;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::{pattern, Make};
use crate::{Spec, World};

pub(super) const END: FenceAssert =
    FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

pub(super) fn word(value: u64) -> [u8; 8] {
    value.to_le_bytes()
}

pub(super) fn value(bytes: [u8; 8]) -> u64 {
    u64::from_le_bytes(bytes)
}

pub(super) fn lock_all<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, rank: u32, window: WindowId) {
    let started = world.engines[rank as usize].start_lock_all(window, false);
    world.wait(rank, started).expect("lock_all succeeds");
}

pub(super) fn unlock_all<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, rank: u32, window: WindowId) {
    let started = world.engines[rank as usize].start_unlock_all(window);
    world.wait(rank, started).expect("unlock_all succeeds");
}

/// A call that is not done although everything in flight has arrived.
fn is_stuck<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, rank: u32, sync: &mut SyncCall) -> bool {
    (0..10).all(|_| {
        world.settle();
        world.engines[rank as usize].poll(sync).is_pending()
    })
}

fn is_epoch_error(result: Result<impl Sized, RmaError>, wanted: Rule) -> bool {
    matches!(result, Err(RmaError::Epoch { rule, .. }) if rule == wanted)
}

/// An access epoch excludes every other of its window at its process.
///
/// Shows: rule: access-epochs-disjoint, MPI_ERR_RMA_SYNC, MPI-4.1 13.5.
pub fn access_epochs_are_disjoint<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    lock_all(&mut world, 0, window);
    assert!(is_epoch_error(world.lock(0, window, 1, Shared), Rule::OtherEpochOpen));
    let fence = world.engines[0].start_fence(window, END);
    assert!(is_epoch_error(fence, Rule::OtherEpochOpen));
    let again = world.engines[0].start_lock_all(window, false);
    assert!(again.is_err());
    unlock_all(&mut world, 0, window);
    world.check_idle();
}

/// Epochs of different windows, of different kinds, are open at one time.
///
/// Shows: rule: windows-overlap, MPI-4.1 13.5.
pub fn epochs_of_two_windows<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let (fenced, locked) = (world.allocate(8), world.allocate(8));
    let (one, two) = (word(1), word(2));
    world.fence(fenced, FenceAssert::default()).unwrap();
    world.lock(0, locked, 1, Exclusive).unwrap();
    world.put(0, fenced, 1, 0, &one).unwrap();
    world.put(0, locked, 1, 0, &two).unwrap();
    world.fence(fenced, END).unwrap();
    world.unlock(0, locked, 1).unwrap();
    assert_eq!((world.word(1, fenced, 0), world.word(1, locked, 0)), (1, 2));
    world.check_idle();
}

/// Locks of different windows at one target have nothing to do with each other.
///
/// Shows: MPI_Win_lock, rule: windows-overlap, MPI-4.1 13.5.3.
pub fn locks_of_two_windows<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let (first, second) = (world.allocate(8), world.allocate(8));
    let (one, two) = (word(1), word(2));
    for (rank, window, data) in [(0, first, &one), (1, second, &two)] {
        world.lock(rank, window, 2, Exclusive).unwrap();
        world.put(rank, window, 2, 0, data).unwrap();
        world.flush(rank, window, 2).unwrap();
    }
    world.unlock(0, first, 2).unwrap();
    world.unlock(1, second, 2).unwrap();
    assert_eq!((world.word(2, first, 0), world.word(2, second, 0)), (1, 2));
    world.check_idle();
}

/// Two origins exchange data through a third rank, which calls nothing.
///
/// Shows: rule: bulletin-board, rule: passive-without-target, MPI-4.1 13.5.
pub fn data_through_a_third_rank<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(256);
    let (data, mut got) = (pattern(256, 5), vec![0; 256]);
    world.lock(0, window, 2, Exclusive).unwrap();
    world.put(0, window, 2, 0, &data).unwrap();
    world.unlock(0, window, 2).unwrap();
    world.lock(1, window, 2, Shared).unwrap();
    world.get(1, window, 2, 0, &mut got).unwrap();
    world.unlock(1, window, 2).unwrap();
    assert_eq!(got, data);
    world.check_idle();
}

/// An operation after a fence does not touch a target that has not come to that fence.
///
/// Shows: rule: fence-opens, seed: FENCE_ISSUED, MPI-4.1 13.5.1.
pub fn operations_wait_for_the_targets_fence<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    let (data, first) = (word(7), FenceAssert { no_precede: true, ..FenceAssert::default() });
    let started = world.engines[0].start_fence(window, first);
    world.wait(0, started).unwrap();
    world.put(0, window, 1, 0, &data).unwrap();
    world.settle();
    assert_eq!(world.word(1, window, 0), 0, "the target may still store");
    let started = world.engines[1].start_fence(window, first);
    world.wait(1, started).unwrap();
    world.fence(window, END).unwrap();
    assert_eq!(world.word(1, window, 0), 7);
    world.check_idle();
}

/// A fence ends at no rank before every rank has come.
///
/// Shows: MPI_Win_fence, rule: fence-completes-target, MPI-4.1 13.5.1.
pub fn a_closing_fence_waits_for_everybody<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(8);
    let data = word(3);
    world.fence(window, FenceAssert::default()).unwrap();
    world.put(0, window, 1, 0, &data).unwrap();
    let mut first = world.engines[0].start_fence(window, END).unwrap();
    let mut second = world.engines[1].start_fence(window, END).unwrap();
    assert!(is_stuck(&mut world, 0, &mut first) && is_stuck(&mut world, 1, &mut second));
    let third = world.engines[2].start_fence(window, END).unwrap();
    world.wait_all(vec![(0, first), (1, second), (2, third)]).unwrap();
    assert_eq!(world.word(1, window, 0), 3);
    world.check_idle();
}

/// The same for flush, whose epoch goes on.
///
/// Shows: MPI_Win_flush, rule: flush-completes-both, rule: flush-keeps-epoch, MPI-4.1 13.5.4.
pub fn flush_completes_and_the_epoch_goes_on<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    let values: Vec<_> = (1..10).map(word).collect();
    world.lock(0, window, 1, Exclusive).unwrap();
    for data in &values {
        world.put(0, window, 1, 0, data).unwrap();
        world.flush(0, window, 1).unwrap();
        assert_eq!(world.word(1, window, 0), value(*data));
    }
    world.unlock(0, window, 1).unwrap();
    world.check_idle();
}

/// flush_all completes at every target, under single locks as well.
///
/// Shows: MPI_Win_flush_all, rule: flush-all-targets, MPI-4.1 13.5.4.
pub fn flush_all_is_for_every_target<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(8);
    let data = word(6);
    for target in 1..4 {
        world.lock(0, window, target, Shared).unwrap();
        world.put(0, window, target, 0, &data).unwrap();
    }
    let started = world.engines[0].start_flush_all(window);
    world.wait(0, started).unwrap();
    for target in 1..4 {
        assert_eq!(world.word(target, window, 0), 6);
        world.unlock(0, window, target).unwrap();
    }
    world.check_idle();
}

/// flush of one target says nothing of another, and harms it not.
///
/// Shows: MPI_Win_flush, MPI-4.1 13.5.4.
pub fn flush_is_for_one_target<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(8);
    let data = word(6);
    lock_all(&mut world, 0, window);
    world.put(0, window, 1, 0, &data).unwrap();
    world.put(0, window, 2, 0, &data).unwrap();
    world.flush(0, window, 1).unwrap();
    assert_eq!(world.word(1, window, 0), 6);
    unlock_all(&mut world, 0, window);
    assert_eq!(world.word(2, window, 0), 6);
    world.check_idle();
}

/// Outside of passive target epochs every flush is refused.
///
/// Shows: rule: flush-passive-only, MPI_ERR_RMA_SYNC, MPI-4.1 13.5.4.
pub fn flushes_need_a_passive_epoch<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    for is_fenced in [false, true] {
        if is_fenced {
            world.fence(window, FenceAssert::default()).unwrap();
        }
        let engine = &mut world.engines[0];
        for flush in [
            engine.start_flush(window, Rank(1)),
            engine.start_flush_all(window),
            engine.start_flush_local(window, Rank(1)),
            engine.start_flush_local_all(window),
        ] {
            assert!(is_epoch_error(flush, Rule::FlushOutsidePassive));
        }
    }
    world.fence(window, END).unwrap();
    world.check_idle();
}

/// free is refused while the window's epoch is open, and completes what the fence before has begun.
///
/// Shows: rule: free-completes, MPI_Win_free, MPI-4.1 13.2.5.
pub fn free_needs_closed_epochs<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    world.lock(0, window, 1, Shared).unwrap();
    let free = world.engines[0].start_free(window);
    assert!(is_epoch_error(free, Rule::FreeInsideEpoch));
    world.unlock(0, window, 1).unwrap();
    // A fence that nothing follows: its barrier may still be under way.
    world.fence(window, FenceAssert { no_precede: true, ..FenceAssert::default() }).unwrap();
    world.free(window).unwrap();
    assert_eq!(world.engines[0].window_count(), 0);
    world.check_idle();
}

/// The same program with and without assertions has the same outcome.
///
/// Shows: rule: asserts-are-hints, MPI_MODE_NOSTORE/fence, MPI_MODE_NOPUT/fence, MPI-4.1 13.5.5.
pub fn assertions_change_no_result<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut outcomes = Vec::new();
    for with in [false, true] {
        let mut world = make(Spec::ranks(3));
        let window = world.allocate(16);
        let (data, mut got) = (word(11), [0; 8]);
        let none = FenceAssert::default();
        world.fence(window, FenceAssert { no_precede: with, no_store: with, ..none }).unwrap();
        world.put(0, window, 1, 0, &data).unwrap();
        world.fence(window, FenceAssert { no_store: with, no_put: with, ..none }).unwrap();
        world.get(2, window, 1, 0, &mut got).unwrap();
        world.fence(window, FenceAssert { no_store: with, no_put: with, no_succeed: with, ..none }).unwrap();
        outcomes.push((got, world.memory(1, window)));
        world.free(window).unwrap();
        world.check_idle();
    }
    assert_eq!(outcomes[0], outcomes[1]);
    assert_eq!(value(outcomes[0].0), 11);
}

/// One kind of epoch after the other on one window.
///
/// Shows: rule: mode-change, seed: PER_TARGET, MPI-4.1 13.5.6.
pub fn every_kind_of_epoch_in_turn<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    let one = word(1);
    for _ in 0..3 {
        world.fence(window, FenceAssert::default()).unwrap();
        world.accumulate(0, window, 1, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        world.fence(window, END).unwrap();
        world.lock(0, window, 1, Exclusive).unwrap();
        world.accumulate(0, window, 1, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        world.unlock(0, window, 1).unwrap();
        lock_all(&mut world, 0, window);
        world.accumulate(0, window, 1, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        unlock_all(&mut world, 0, window);
    }
    assert_eq!(world.word(1, window, 0), 9);
    world.check_idle();
}

/// Shared locks of all ranks at one target are held at one time.
///
/// Shows: rule: lock-shared, MPI_LOCK_SHARED, MPI-4.1 13.5.3.
pub fn shared_locks_are_held_together<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(32);
    let data: Vec<_> = (0..4).map(|rank| word(rank + 1)).collect();
    for rank in 0..4 {
        world.lock(rank, window, 0, Shared).unwrap();
        world.put(rank, window, 0, u64::from(rank) * 8, &data[rank as usize]).unwrap();
        // Held, and not only asked for.
        world.flush(rank, window, 0).unwrap();
    }
    for rank in 0..4 {
        world.unlock(rank, window, 0).unwrap();
        assert_eq!(world.word(0, window, rank as usize * 8), u64::from(rank) + 1);
    }
    world.check_idle();
}

/// An exclusive lock waits for a target that lock_all has touched, and lock_all for an exclusive lock.
///
/// Shows: rule: lock-all-excludes, rule: lock-exclusive, MPI_Win_lock_all, MPI-4.1 13.5.3.
pub fn lock_all_and_exclusive_exclude<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(8);
    let (one, two) = (word(1), word(2));
    lock_all(&mut world, 0, window);
    world.put(0, window, 2, 0, &one).unwrap();
    world.flush(0, window, 2).unwrap();
    world.lock(1, window, 2, Exclusive).unwrap();
    world.put(1, window, 2, 0, &two).unwrap();
    let mut second = world.engines[1].start_unlock(window, Rank(2)).unwrap();
    assert!(is_stuck(&mut world, 1, &mut second));
    assert_eq!(world.word(2, window, 0), 1);
    unlock_all(&mut world, 0, window);
    world.wait(1, Ok(second)).unwrap();
    assert_eq!(world.word(2, window, 0), 2);
    world.check_idle();
}

/// lock and unlock without operations send nothing, and keep nobody out.
///
/// Shows: MPI_Win_lock, rule: lock-may-return, MPI-4.1 13.5.3.
pub fn empty_lock_epochs_cost_nothing<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(8);
    world.settle();
    let before = world.counters(0);
    for target in [1, 2] {
        world.lock(0, window, target, Exclusive).unwrap();
        world.unlock(0, window, target).unwrap();
    }
    assert_eq!(world.counters(0).since(&before).out(), 0);
    world.check_idle();
}

/// NOCHECK for lock_all: no lock packet at any target, and the data is there.
///
/// Shows: MPI_MODE_NOCHECK/lock_all, seed: LOCK_ALL_GRANTED, MPI-4.1 13.5.5.
pub fn lock_all_without_check<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(8);
    let data = word(5);
    let started = world.engines[0].start_lock_all(window, true);
    world.wait(0, started).unwrap();
    let state = world.engines[0].window_state(window).map(|state| state.name());
    assert_eq!(state, Some("LockAllGranted"));
    for target in 1..4 {
        world.put(0, window, target, 0, &data).unwrap();
    }
    unlock_all(&mut world, 0, window);
    for target in 1..4 {
        assert_eq!(world.word(target, window, 0), 5);
    }
    world.check_idle();
}

/// The states of a lock epoch: nothing is asked for before an operation has to leave.
///
/// Shows: seed: LOCK_CALLED, seed: LOCK_ALL_CALLED, seed: UNSET, rule: lock-may-return.
pub fn locks_are_asked_for_late<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    let name = |world: &World<E, B>| world.engines[0].window_state(window).map(|state| state.name());
    assert_eq!(name(&world), Some("Unset"));
    world.settle();
    let before = world.counters(0);
    world.lock(0, window, 1, Exclusive).unwrap();
    world.settle();
    assert_eq!((name(&world), world.counters(0).since(&before).out()), (Some("PerTarget"), 0));
    world.unlock(0, window, 1).unwrap();
    lock_all(&mut world, 0, window);
    assert_eq!((name(&world), world.counters(0).since(&before).out()), (Some("LockAllCalled"), 0));
    unlock_all(&mut world, 0, window);
    assert_eq!(name(&world), Some("Unset"));
    world.check_idle();
}

/// A fence without operations to complete leaves its barrier under way; a fence with them is granted.
///
/// Shows: seed: FENCE_ISSUED, seed: FENCE_GRANTED, rule: fence-no-precede.
pub fn fences_are_issued_then_granted<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    let first = FenceAssert { no_precede: true, ..FenceAssert::default() };
    let started = world.engines[0].start_fence(window, first);
    world.wait(0, started).unwrap();
    let name = |world: &World<E, B>| world.engines[0].window_state(window).map(|state| state.name());
    assert_eq!(name(&world), Some("FenceIssued"));
    let started = world.engines[1].start_fence(window, first);
    world.wait(1, started).unwrap();
    world.step_until("the barrier ends", |world| name(world) == Some("FenceGranted"));
    world.fence(window, END).unwrap();
    assert_eq!(name(&world), Some("Unset"));
    world.check_idle();
}

/// An info value that the key cannot have is an error, and changes nothing.
///
/// Shows: MPI_ERR_INFO_VALUE, MPI-4.1 13.2.1.
pub fn wrong_info_values_are_refused<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let mut info = WindowInfo::new();
    let wrong = info.set("no_locks", "perhaps").unwrap_err();
    assert_eq!(wrong.class().name(), "MPI_ERR_INFO_VALUE");
    let window = world.allocate_with(8, &info.options());
    world.lock(0, window, 1, Shared).unwrap();
    world.unlock(0, window, 1).unwrap();
    world.check_idle();
}

/// A lock call returns although another rank holds the lock; so do small operations under it.
///
/// Shows: rule: lock-may-return, notes: nonblocking lock, MPI-4.1 13.5.3.
pub fn lock_returns_before_it_is_held<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(8);
    let (one, two) = (word(1), word(2));
    world.lock(0, window, 2, Exclusive).unwrap();
    world.put(0, window, 2, 0, &one).unwrap();
    world.flush(0, window, 2).unwrap();
    let mut lock = world.engines[1].start_lock(window, Rank(2), Exclusive, false).unwrap();
    assert!(matches!(world.engines[1].poll(&mut lock), Poll::Ready(Ok(()))), "without a step of anybody");
    world.put(1, window, 2, 0, &two).unwrap();
    world.settle();
    assert_eq!(world.word(2, window, 0), 1, "it waits for the lock all the same");
    world.unlock(0, window, 2).unwrap();
    world.unlock(1, window, 2).unwrap();
    assert_eq!(world.word(2, window, 0), 2);
    world.check_idle();
}
