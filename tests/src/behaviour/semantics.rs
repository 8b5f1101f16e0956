//! Rules of MPI-4.1's section on semantics and correctness, one body each.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::FenceAssert;
use rma_core::ids::Rank;
use rma_core::info::{AccumulateOrdering, WindowOptions};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::rules::{lock_all, unlock_all, value, word, END};
use super::{pattern, Make};
use crate::Spec;

/// Gets are complete when the fence has returned.
///
/// Shows: MPI_Get, rule: fence-completes-origin, rule: get-buffer, rule: origin-completion, MPI-4.1 13.7.
pub fn gets_complete_with_the_fence<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(4096);
    let (data, mut got) = (pattern(4096, 9), vec![0; 4096]);
    world.lock(1, window, 1, Exclusive).unwrap();
    world.put(1, window, 1, 0, &data).unwrap();
    world.unlock(1, window, 1).unwrap();
    world.fence(window, FenceAssert::default()).unwrap();
    world.get(0, window, 1, 0, &mut got).unwrap();
    world.fence(window, END).unwrap();
    assert_eq!(got, data);
    world.check_idle();
}

/// After unlock, flush and fence the buffer of a put is the program's again.
///
/// Shows: rule: origin-completion, rule: put-buffer, MPI-4.1 13.7.
pub fn buffers_are_free_after_completion<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(30_000);
    for way in 0..3 {
        let mut data = pattern(30_000, way);
        let expected = data.clone();
        if way == 2 {
            world.fence(window, FenceAssert::default()).unwrap();
        } else {
            world.lock(0, window, 1, Exclusive).unwrap();
        }
        world.put(0, window, 1, 0, &data).unwrap();
        match way {
            0 => world.unlock(0, window, 1).unwrap(),
            1 => world.flush(0, window, 1).unwrap(),
            _ => world.fence(window, END).unwrap(),
        }
        data.fill(0xee);
        if way == 1 {
            world.unlock(0, window, 1).unwrap();
        }
        assert_eq!(world.memory(1, window), expected, "way {way}");
    }
    world.check_idle();
}

/// When unlock has returned, the operation is complete at the target: its memory holds the data.
///
/// Shows: rule: unlock-completes-both, rule: target-completion-unlock, MPI-4.1 13.7.
pub fn unlock_completes_at_the_target<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(20_000);
    for len in [1, 8, 64, 65, 1000, 20_000] {
        let data = pattern(len, len as u64);
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &data).unwrap();
        world.unlock(0, window, 1).unwrap();
        assert_eq!(world.memory(1, window)[..len], data);
    }
    world.check_idle();
}

/// Concurrent gets of one location.
///
/// Shows: rule: concurrent-reads, MPI_LOCK_SHARED, MPI-4.1 13.7.
pub fn readers_do_not_disturb_each_other<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(1000);
    let data = pattern(1000, 2);
    world.lock(3, window, 3, Exclusive).unwrap();
    world.put(3, window, 3, 0, &data).unwrap();
    world.unlock(3, window, 3).unwrap();
    let mut got = vec![vec![0; 1000]; 3];
    for rank in 0..3 {
        world.lock(rank, window, 3, Shared).unwrap();
        world.get(rank, window, 3, 0, &mut got[rank as usize]).unwrap();
    }
    for rank in 0..3 {
        world.unlock(rank, window, 3).unwrap();
        assert_eq!(got[rank as usize], data);
    }
    world.check_idle();
}

/// Concurrent accumulates of one location by all ranks.
///
/// Shows: rule: concurrent-accumulates, rule: atomic-accumulate, MPI-4.1 13.7.1.
pub fn concurrent_accumulates_all_count<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(8);
    let one = word(1);
    world.fence(window, FenceAssert::default()).unwrap();
    for _ in 0..25 {
        for rank in 0..4 {
            world.accumulate(rank, window, 2, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        }
    }
    world.fence(window, END).unwrap();
    assert_eq!(world.word(2, window, 0), 100);
    world.check_idle();
}

/// Concurrent puts to bytes that touch each other.
///
/// Shows: rule: disjoint-updates, MPI_Put, MPI-4.1 13.7.
pub fn neighbouring_bytes_are_disjoint<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate(99);
    let data: Vec<_> = (0..3).map(|rank| [rank + 1; 1]).collect();
    world.fence(window, FenceAssert::default()).unwrap();
    for byte in 0..99u64 {
        let rank = (byte % 3) as u32;
        world.put(rank, window, 3, byte, &data[rank as usize]).unwrap();
    }
    world.fence(window, END).unwrap();
    let expected: Vec<u8> = (0..99).map(|byte| byte % 3 + 1).collect();
    assert_eq!(world.memory(3, window), expected);
    world.check_idle();
}

/// fetch_and_op and accumulate of all ranks: every value is fetched once.
///
/// Shows: rule: atomic-fetch, MPI_Fetch_and_op, MPI-4.1 13.7.1.
pub fn fetched_values_are_unique<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(8);
    let one = word(1);
    let mut got = vec![[0; 8]; 30];
    for rank in 0..3 {
        lock_all(&mut world, rank, window);
    }
    for (index, result) in got.iter_mut().enumerate() {
        let rank = index as u32 % 3;
        world.get_accumulate(rank, window, 1, 0, &one, result, Dtype::U64, ReduceOp::Sum).unwrap();
    }
    for rank in 0..3 {
        unlock_all(&mut world, rank, window);
    }
    let mut values: Vec<u64> = got.into_iter().map(value).collect();
    values.sort_unstable();
    assert_eq!(values, (0..30).collect::<Vec<_>>());
    world.check_idle();
}

/// A rank's operations on its own window are atomic against those of others.
///
/// Shows: rule: atomic-self, MPI-4.1 13.7.1.
pub fn own_and_foreign_sums<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    let one = word(1);
    for rank in 0..2 {
        lock_all(&mut world, rank, window);
    }
    for _ in 0..20 {
        for rank in 0..2 {
            world.accumulate(rank, window, 1, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        }
    }
    for rank in 0..2 {
        unlock_all(&mut world, rank, window);
    }
    assert_eq!(world.word(1, window, 0), 40);
    world.check_idle();
}

/// Accumulates of one origin to one location take effect in the order of the calls.
///
/// Shows: rule: order-default, MPI_REPLACE, MPI-4.1 13.7.2.
pub fn the_last_replace_stays<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    let values: Vec<_> = (1..40).map(word).collect();
    let mut seen = vec![[0; 8]; values.len()];
    world.lock(0, window, 1, Shared).unwrap();
    for (data, seen) in values.iter().zip(&mut seen) {
        world.accumulate(0, window, 1, 0, data, Dtype::U64, ReduceOp::Replace).unwrap();
        world.get_accumulate(0, window, 1, 0, &[], seen, Dtype::U64, ReduceOp::NoOp).unwrap();
    }
    world.unlock(0, window, 1).unwrap();
    assert_eq!(seen, values);
    assert_eq!(world.word(1, window, 0), 39);
    world.check_idle();
}

/// Orders that were given up: sums do not depend on them.
///
/// Shows: rule: order-relaxed, accumulate_ordering, MPI-4.1 13.7.2.
pub fn sums_without_order<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let accumulate_ordering = AccumulateOrdering { rar: false, raw: false, war: false, waw: false };
    let options = WindowOptions { accumulate_ordering, ..WindowOptions::default() };
    let window = world.allocate_with(8, &options);
    let two = word(2);
    world.lock(0, window, 1, Shared).unwrap();
    for _ in 0..30 {
        world.accumulate(0, window, 1, 0, &two, Dtype::U64, ReduceOp::Sum).unwrap();
    }
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.word(1, window, 0), 60);
    world.check_idle();
}

/// Puts and gets are not ordered by themselves; a flush between them does it.
///
/// Shows: rule: order-none-put, MPI_Win_flush, MPI-4.1 13.7.2.
pub fn flush_orders_puts_and_gets<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(4096);
    let (first, second, mut got) = (pattern(4096, 1), pattern(4096, 2), vec![0; 4096]);
    world.lock(0, window, 1, Exclusive).unwrap();
    world.put(0, window, 1, 0, &first).unwrap();
    world.flush(0, window, 1).unwrap();
    world.put(0, window, 1, 0, &second).unwrap();
    world.flush(0, window, 1).unwrap();
    world.get(0, window, 1, 0, &mut got).unwrap();
    world.unlock(0, window, 1).unwrap();
    assert_eq!(got, second);
    world.check_idle();
}

/// Displacements count in the target's unit, not in the origin's.
///
/// Shows: MPI_WIN_DISP_UNIT, MPI_Put, MPI-4.1 13.3.1.
pub fn displacements_are_the_targets<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate_uneven(|_| 128, |rank| 1 << rank);
    let data = word(0x0102_0304_0506_0708);
    for target in 0..4 {
        world.lock(0, window, target, Exclusive).unwrap();
        world.put(0, window, target, 8, &data).unwrap();
        world.unlock(0, window, target).unwrap();
        assert_eq!(world.word(target, window, 8 << target), value(data));
    }
    world.check_idle();
}

/// Puts and gets have no alignment.
///
/// Shows: MPI_Put, MPI_Get, MPI-4.1 13.3.
pub fn odd_places_and_lengths<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let data = pattern(13, 4);
    let mut got = [0xff; 16];
    world.lock(0, window, 1, Exclusive).unwrap();
    world.put(0, window, 1, 3, &data).unwrap();
    world.flush(0, window, 1).unwrap();
    world.get(0, window, 1, 3, &mut got[1..14]).unwrap();
    world.unlock(0, window, 1).unwrap();
    assert_eq!(got[1..14], data);
    assert_eq!([got[0], got[14], got[15]], [0xff; 3], "no byte beside the buffer is touched");
    assert_eq!(world.memory(1, window)[..3], [0; 3]);
    assert_eq!(world.memory(1, window)[16..], [0; 48]);
    world.check_idle();
}

/// A swap that does not find what it compares with changes nothing.
///
/// Shows: MPI_Compare_and_swap, MPI-4.1 13.3.4.
pub fn a_swap_that_fails_changes_nothing<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    let pairs = [[1, 9], [0, 5], [0, 7], [5, 6]];
    let mut found = [99; 4];
    world.lock(0, window, 1, Exclusive).unwrap();
    for (pair, found) in pairs.iter().zip(&mut found) {
        world.compare_and_swap(0, window, 1, 0, pair, found).unwrap();
        world.flush(0, window, 1).unwrap();
    }
    world.unlock(0, window, 1).unwrap();
    assert_eq!(found, [0, 0, 5, 5]);
    assert_eq!(world.word(1, window, 0), 6);
    world.check_idle();
}

/// Two ranks that hold their own locks ask for each other's: whoever lets go first serves the other.
///
/// Shows: rule: progress-crossing, rule: progress-other-calls, MPI-4.1 13.7.3.
pub fn crossing_locks_are_served<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    let one = word(1);
    for rank in 0..2 {
        world.lock(rank, window, 1 - rank, Exclusive).unwrap();
        world.accumulate(rank, window, 1 - rank, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
    }
    let calls = (0..2).map(|rank| {
        (rank, world.engines[rank as usize].start_unlock(window, Rank(1 - rank)).expect("a lock is held"))
    });
    let calls = calls.collect();
    world.wait_all(calls).unwrap();
    assert_eq!((world.word(0, window, 0), world.word(1, window, 0)), (1, 1));
    world.check_idle();
}

/// What the owner has stored under its lock is what others get, and the other way round.
///
/// Shows: rule: private-to-public, rule: public-to-private, rule: loads-in-epochs, rule: lock-own, MPI-4.1 13.7.
pub fn stores_under_ones_own_lock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(8);
    let (base, _) = world.engines[1].window_memory(window).expect("the window exists");
    for round in 1..6u64 {
        world.lock(1, window, 1, Exclusive).unwrap();
        // SAFETY: inside of the window, aligned, and under its exclusive lock.
        let seen = unsafe { base.cast::<u64>().read_volatile() };
        assert_eq!(seen, (round - 1) * 10);
        // SAFETY: as above.
        unsafe { base.cast::<u64>().write_volatile(seen + 5) };
        world.unlock(1, window, 1).unwrap();
        let (five, mut got) = (word(5), [0; 8]);
        world.lock(0, window, 1, Exclusive).unwrap();
        world.get_accumulate(0, window, 1, 0, &five, &mut got, Dtype::U64, ReduceOp::Sum).unwrap();
        world.unlock(0, window, 1).unwrap();
        assert_eq!(value(got), seen + 5);
    }
    world.check_idle();
}
