//! Window locks.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::ids::Rank;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::wire::PacketKind;

use super::Make;
use crate::{Spec, World};

/// A call that is not done although everything in flight has arrived.
fn is_stuck<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    rank: u32,
    sync: &mut rma_core::engine::SyncCall,
) -> bool {
    for _ in 0..5 {
        world.settle();
        if let Poll::Ready(done) = world.engines[rank as usize].poll(sync) {
            done.unwrap();
            return false;
        }
    }
    true
}

/// While one rank holds the lock exclusively, neither an exclusive nor a shared request gets in.
///
/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_LOCK_EXCLUSIVE, MPI_LOCK_SHARED, rule: lock-exclusive, rule: lock-shared, MPI-4.1 13.5.3.
pub fn exclusive_excludes<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    world.lock(0, window, 2, Exclusive).unwrap();
    let one = 1u64.to_le_bytes();
    world.put(0, window, 2, 0, &one).unwrap();
    world.flush(0, window, 2).unwrap();
    for lock_type in [Exclusive, Shared] {
        world.lock(1, window, 2, lock_type).unwrap();
        let mut got = [0; 8];
        world.get(1, window, 2, 0, &mut got).unwrap();
        let mut sync = world.engines[1].start_unlock(window, Rank(2)).unwrap();
        assert!(is_stuck(&mut world, 1, &mut sync), "{lock_type:?} got in");
        let two = 2u64.to_le_bytes();
        world.put(0, window, 2, 0, &two).unwrap();
        world.unlock(0, window, 2).unwrap();
        world.wait(1, Ok(sync)).unwrap();
        assert_eq!(got, two, "saw all of the holder's epoch");
        world.lock(0, window, 2, Exclusive).unwrap();
        let one = 1u64.to_le_bytes();
        world.put(0, window, 2, 0, &one).unwrap();
        world.flush(0, window, 2).unwrap();
    }
    world.unlock(0, window, 2).unwrap();
    world.check_idle();
}

/// Requests are granted in the order in which they reach the target.
///
/// Shows: notes: lock state, MPI_Win_lock.
pub fn first_come_first_served<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(5));
    let window = world.allocate(64);
    world.lock(4, window, 4, Exclusive).unwrap();
    let values: Vec<_> = (0..4u64).map(u64::to_le_bytes).collect();
    let mut old = [[0; 8]; 4];
    let mut calls = Vec::new();
    for rank in 0..4u32 {
        world.lock(rank, window, 4, Exclusive).unwrap();
        let (value, old) = (&values[rank as usize], &mut old[rank as usize]);
        world.get_accumulate(rank, window, 4, 0, value, old, Dtype::U64, ReduceOp::Replace).unwrap();
        let batches =
            |world: &World<E, B>| world.target_counters(4).packets_received[PacketKind::Batch as usize];
        let (before, looks) = (batches(&world), world.counters(rank).lock_retries);
        let mut sync = world.engines[rank as usize].start_unlock(window, Rank(4)).unwrap();
        // Who looks again at words has drawn its ticket.
        let is_in_line =
            |world: &World<E, B>| batches(world) > before || world.counters(rank).lock_retries > looks;
        world.step_until("the request is in line", is_in_line);
        assert!(is_stuck(&mut world, rank, &mut sync));
        calls.push((rank, sync));
    }
    let first = 99u64.to_le_bytes();
    world.put(4, window, 4, 0, &first).unwrap();
    world.unlock(4, window, 4).unwrap();
    world.wait_all(calls).unwrap();
    assert_eq!(old.map(u64::from_le_bytes), [99, 0, 1, 2]);
    world.check_idle();
}

/// With room for one waiter the others are told to ask again, and all get their turn.
///
/// Shows: rule: lock-exclusive.
pub fn full_queue_asks_again<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(6).with(|config| config.lock_waiters = 1));
    let window = world.allocate(64);
    world.lock(5, window, 5, Exclusive).unwrap();
    let one = 1u64.to_le_bytes();
    let mut calls = Vec::new();
    for rank in 0..5 {
        world.lock(rank, window, 5, Exclusive).unwrap();
        world.accumulate(rank, window, 5, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        calls.push((rank, world.engines[rank as usize].start_unlock(window, Rank(5)).unwrap()));
    }
    // Rank 5 has the lock, one waits for it, and the queue has no room for another.
    world.step_until("three ask again", |world| {
        (0..5).filter(|&rank| world.counters(rank).lock_retries > 0).count() >= 3
    });
    world.unlock(5, window, 5).unwrap();
    world.wait_all(calls).unwrap();
    assert_eq!(world.word(5, window, 0), 5);
    world.check_idle();
}

/// Operations that come with a lock request wait with it, kept at the target or sent again.
///
/// Shows: rule: lock-may-return, notes: nonblocking lock.
pub fn operations_wait_with_their_lock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for deferred_bytes in [0, 64, 8192] {
        let mut world = make(Spec::ranks(4).with(|config| config.deferred_bytes = deferred_bytes));
        let window = world.allocate(64);
        world.lock(3, window, 3, Exclusive).unwrap();
        let one = 1u64.to_le_bytes();
        let mut calls = Vec::new();
        for rank in 0..3 {
            world.lock(rank, window, 3, Exclusive).unwrap();
            world.accumulate(rank, window, 3, 8, &one, Dtype::U64, ReduceOp::Sum).unwrap();
            calls.push((rank, world.engines[rank as usize].start_unlock(window, Rank(3)).unwrap()));
        }
        world.settle();
        assert_eq!(world.word(3, window, 8), 0, "nothing happens before its lock");
        world.unlock(3, window, 3).unwrap();
        world.wait_all(calls).unwrap();
        assert_eq!(world.word(3, window, 8), 3, "{deferred_bytes} bytes of room");
        world.check_idle();
    }
}

/// lock_all of all ranks at once, with accumulates everywhere; and an exclusive lock waits for it.
///
/// Shows: MPI_Win_lock_all, MPI_Win_unlock_all, rule: lock-all-shared, rule: lock-all-excludes, MPI-4.1 13.5.3.
pub fn lock_all_counts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(5));
    let window = world.allocate(8);
    let one = 1u64.to_le_bytes();
    for no_check in [false, true] {
        for rank in 0..5 {
            let started = world.engines[rank as usize].start_lock_all(window, no_check);
            world.wait(rank, started).unwrap();
        }
        for rank in 0..5 {
            for target in 0..5 {
                world.accumulate(rank, window, target, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
            }
            let started = world.engines[rank as usize].start_flush_all(window);
            world.wait(rank, started).unwrap();
        }
        if !no_check {
            // Rank 0 holds its own window shared, as everybody who has touched it.
            let (target, sums) = (0, 5);
            assert_eq!(world.word(target, window, 0), sums);
        }
        let calls = (0..5).map(|rank| (rank, world.engines[rank as usize].start_unlock_all(window).unwrap()));
        let calls = calls.collect();
        world.wait_all(calls).unwrap();
    }
    for rank in 0..5 {
        assert_eq!(world.word(rank, window, 0), 10);
    }
    world.check_idle();
}

/// lock of the own window is not lazy: its memory may be loaded and stored directly.
///
/// Shows: rule: lock-own, MPI-4.1 13.5.3.
pub fn own_window_is_locked_at_once<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    world.lock(0, window, 1, Exclusive).unwrap();
    world.put(0, window, 1, 0, &[1; 8]).unwrap();
    world.flush(0, window, 1).unwrap();
    for all in [false, true] {
        let started = if all {
            world.engines[1].start_lock_all(window, false)
        } else {
            world.engines[1].start_lock(window, Rank(1), Exclusive, false)
        };
        let mut sync = started.unwrap();
        assert!(is_stuck(&mut world, 1, &mut sync));
        world.unlock(0, window, 1).unwrap();
        world.wait(1, Ok(sync)).unwrap();
        let started = if all {
            world.engines[1].start_unlock_all(window)
        } else {
            world.engines[1].start_unlock(window, Rank(1))
        };
        world.wait(1, started).unwrap();
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &[2; 8]).unwrap();
        world.flush(0, window, 1).unwrap();
    }
    world.unlock(0, window, 1).unwrap();
    world.check_idle();
}

/// A lock call that its caller gives up opens no epoch, and nobody is kept out by it later.
pub fn abandoned_lock_is_nobodys<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    for all in [false, true] {
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &[1; 8]).unwrap();
        world.flush(0, window, 1).unwrap();
        let started = if all {
            world.engines[1].start_lock_all(window, false)
        } else {
            world.engines[1].start_lock(window, Rank(1), Exclusive, false)
        };
        let mut sync = started.unwrap();
        assert!(is_stuck(&mut world, 1, &mut sync));
        world.engines[1].abandon(&sync);
        world.unlock(0, window, 1).unwrap();
        world.settle();
        // No epoch was opened, also where the request had left. The queue is empty, so that the next one gets in.
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &[2; 8]).unwrap();
        world.unlock(0, window, 1).unwrap();
        world.lock(1, window, 1, Exclusive).unwrap();
        world.unlock(1, window, 1).unwrap();
    }
    world.check_idle();
}
