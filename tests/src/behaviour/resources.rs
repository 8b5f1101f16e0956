//! Elements run out, windows come and go, ranks differ.

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::FenceAssert;
use rma_core::error::RmaError;
use rma_core::ids::Rank;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::{pattern, Make};
use crate::{Spec, World};

fn tiny(config: &mut Config) {
    config.slots = 1;
    config.operation_pool = 1;
    config.operation_pool_global = 0;
    config.target_pool = 1;
    config.target_pool_global = 0;
    config.reply_buffers = 1;
    config.peers = 2;
}

fn everything<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>) {
    let window = world.allocate(256);
    let (one, data) = (1u64.to_le_bytes(), pattern(200, 9));
    let ranks = world.engines.len() as u32;
    // Several locks held at one time with fewer elements than locks.
    for target in 1..ranks {
        world.lock(0, window, target, Shared).unwrap();
    }
    for _ in 0..3 {
        for target in 1..ranks {
            world.accumulate(0, window, target, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
            world.put(0, window, target, 8, &data).unwrap();
        }
    }
    for target in 1..ranks {
        world.unlock(0, window, target).unwrap();
        assert_eq!(world.word(target, window, 0), 3);
        assert_eq!(world.memory(target, window)[8..208], data);
    }
    // NOCHECK locks whose element is taken away.
    for target in 1..ranks {
        let started = world.engines[0].start_lock(window, Rank(target), Exclusive, true);
        world.wait(0, started).unwrap();
        world.accumulate(0, window, target, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
    }
    for target in (1..ranks).rev() {
        world.unlock(0, window, target).unwrap();
        assert_eq!(world.word(target, window, 0), 4);
    }
    // fence over more targets than elements.
    world.fence(window, FenceAssert::default()).unwrap();
    for rank in 0..ranks {
        for target in 0..ranks {
            world.accumulate(rank, window, target, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        }
    }
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    for target in 1..ranks {
        assert_eq!(world.word(target, window, 0), 4 + u64::from(ranks));
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// Pools of one element, one slot, one reply buffer: slower, never wrong, never stuck.
///
/// Shows: seed: OP_ELEM, seed: TARGET_ELEM, seed: SLOT, seed: target pools, seed: RESTORE_TARGET_ELEM_RESOURCES, seed: RESTORE_OP_ELEM_RESOURCES, rule: lock-several, MPI_MODE_NOCHECK/lock.
pub fn one_element_of_each<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4).with(tiny));
    everything(&mut world);
    let restored: u64 = world.ranks().map(|rank| world.counters(rank).restored_targets).sum();
    assert!(restored > 0);
}

/// The same with pools of two, and with every optimization off.
///
/// Shows: seed: RESTORE_TARGET_ELEM_RESOURCES, seed: RESTORE_OP_ELEM_RESOURCES, seed: optimizations off under pressure.
pub fn many_targets_with_few_elements<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let two = |config: &mut Config| {
        tiny(config);
        (config.operation_pool, config.target_pool, config.slots) = (2, 2, 2);
    };
    everything(&mut make(Spec::ranks(5).with(two)));
    let off = |config: &mut Config| {
        *config = Config::all_off();
        tiny(config);
    };
    everything(&mut make(Spec::ranks(4).with(off)));
}

/// lock_all with more targets than elements falls back to locking the whole window, once.
///
/// Shows: seed: LOCK_ALL window protocol, seed: ack_count, MPI_Win_flush_all, MPI_Win_lock_all, seed: LOCK_ALL_ISSUED, seed: LOCK_ALL_GRANTED.
pub fn window_protocol<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(6).with(tiny));
    let window = world.allocate(64);
    let one = 1u64.to_le_bytes();
    for round in 1..=2u64 {
        for rank in 0..2 {
            let started = world.engines[rank as usize].start_lock_all(window, false);
            world.wait(rank, started).unwrap();
            for target in 0..6 {
                world.accumulate(rank, window, target, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
            }
            let state = world.engines[rank as usize].window_state(window).map(|state| state.name());
            assert_eq!(state, Some("LockAllGranted"));
            let started = world.engines[rank as usize].start_flush_all(window);
            world.wait(rank, started).unwrap();
            for target in 0..6 {
                assert_eq!(world.word(target, window, 0), (round - 1) * 2 + u64::from(rank) + 1);
            }
        }
        for rank in 0..2 {
            let started = world.engines[rank as usize].start_unlock_all(window);
            world.wait(rank, started).unwrap();
        }
        // All locks are free again.
        for target in 0..6 {
            world.lock(2, window, target, Exclusive).unwrap();
            let mut got = [0; 8];
            world.get(2, window, target, 0, &mut got).unwrap();
            world.unlock(2, window, target).unwrap();
            assert_eq!(got, (round * 2).to_le_bytes());
        }
    }
    world.check_idle();
}

/// An operation that fails under the window protocol is reported, and every lock is released all the same.
///
/// Shows: seed: LOCK_ALL window protocol, MPI_ERR_RMA_RANGE, MPI_Win_unlock_all.
pub fn window_protocol_releases_after_errors<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(5).with(tiny));
    let window = world.allocate_uneven(|rank| 64 * (rank as usize + 1), |_| 1);
    let data = [1; 8];
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    let mut result = Ok(());
    for target in [1, 2, 3, 4] {
        let disp = if target == 2 { 1000 } else { 0 };
        let put = world.put(0, window, target, disp, &data);
        result = result.and(put);
    }
    let started = world.engines[0].start_unlock_all(window);
    let end = world.wait(0, started);
    assert!(matches!(result.and(end), Err(RmaError::Range { target: Rank(2), .. })));
    for target in 0..5 {
        world.lock(1, window, target, Exclusive).unwrap();
        let mut got = [0; 8];
        world.get(1, window, target, 0, &mut got).unwrap();
        world.unlock(1, window, target).unwrap();
        assert_eq!(got, if target == 0 || target == 2 { [0; 8] } else { data });
    }
    world.check_idle();
}

/// Windows are made and freed in any number; their elements come back; ids are used again.
///
/// Shows: MPI_Win_allocate, MPI_Win_free, MPI_ERR_WIN, MPI-4.1 13.2.2, MPI-4.1 13.2.5.
pub fn windows_come_and_go<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let first = world.allocate(64);
    for round in 0..10u64 {
        let window = world.allocate(128);
        let value = round.to_le_bytes();
        for id in [first, window] {
            world.lock(1, id, 2, Exclusive).unwrap();
            world.put(1, id, 2, 0, &value).unwrap();
            world.unlock(1, id, 2).unwrap();
            assert_eq!(world.word(2, id, 0), round);
        }
        world.free(window).unwrap();
        assert!(world.lock(1, window, 2, Exclusive).is_err());
    }
    let bytes = world.engines[0].window_bytes(first).unwrap();
    assert!(bytes <= 64 * 1024, "a window holds {bytes} bytes");
    world.free(first).unwrap();
    assert_eq!(world.engines[0].window_count(), 0);
    world.check_idle();
}

/// Windows over the user's memory, two of them over the same bytes.
///
/// Shows: MPI_Win_create, rule: overlapping-windows, MPI-4.1 13.2.1.
pub fn windows_over_the_users_memory<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let mut memory = vec![vec![0u64; 32]; 2];
    let mut windows = Vec::new();
    for _ in 0..2 {
        let mut calls = Vec::new();
        for rank in world.ranks() {
            let base = memory[rank as usize].as_mut_ptr().cast();
            // SAFETY: `memory` outlives the windows and is read only between epochs.
            let started = unsafe { world.engines[rank as usize].start_create(base, 256, 8) };
            let (window, sync) = started.unwrap();
            windows.push(window);
            calls.push((rank, sync));
        }
        world.wait_all(calls).unwrap();
    }
    let (first, second) = (windows[0], windows[2]);
    let (one, two) = (1u64.to_le_bytes(), 2u64.to_le_bytes());
    for (window, disp, value) in [(first, 3, &one), (second, 4, &two)] {
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, disp, value).unwrap();
        world.accumulate(0, window, 1, 31, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        world.unlock(0, window, 1).unwrap();
    }
    world.free(first).unwrap();
    world.free(second).unwrap();
    assert_eq!((memory[1][3], memory[1][4], memory[1][31]), (1, 2, 2));
    assert_eq!(memory[0], [0; 32]);
    world.check_idle();
}

/// Every rank has another size and displacement unit.
///
/// Shows: MPI_Win_allocate, MPI_WIN_DISP_UNIT, MPI_WIN_SIZE, MPI-4.1 13.2.2.
pub fn uneven_windows<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = world.allocate_uneven(|rank| 64 * (rank as usize + 1), |rank| 1 << rank);
    let value = 6u64.to_le_bytes();
    let data = pattern(48, 1);
    let no_succeed = FenceAssert { no_succeed: true, ..FenceAssert::default() };
    world.fence(window, FenceAssert::default()).unwrap();
    for target in 0..4 {
        world.put(0, window, target, 2, &value).unwrap();
    }
    world.fence(window, no_succeed).unwrap();
    for target in 0..4 {
        assert_eq!(world.word(target, window, 2 << target), 6);
        world.lock(3, window, target, Exclusive).unwrap();
        world.put(3, window, target, 1, &data).unwrap();
        world.unlock(3, window, target).unwrap();
        assert_eq!(world.memory(target, window)[1 << target..][..48], data);
    }
    world.check_idle();
}

/// After flush_local the buffers of puts may be changed without changing what arrives.
///
/// Shows: MPI_Win_flush_local, MPI_Win_flush_local_all, rule: flush-local-completes-origin, rule: put-buffer, MPI-4.1 13.5.4.
pub fn flush_local_frees_buffers<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(32 * 1024);
    for len in [8, 100, 3000, 20_000] {
        let mut data = pattern(len, 2);
        let expected = data.clone();
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &data).unwrap();
        let started = world.engines[0].start_flush_local(window, Rank(1));
        world.wait(0, started).unwrap();
        data.fill(0);
        let mut got = vec![0; 8];
        world.get(0, window, 1, 0, &mut got).unwrap();
        let started = world.engines[0].start_flush_local_all(window);
        world.wait(0, started).unwrap();
        world.unlock(0, window, 1).unwrap();
        assert_eq!(world.memory(1, window)[..len], expected);
    }
    world.check_idle();
}

/// A window is made while small operations on another one are under way: what the fabric reads stays where it is.
///
/// Shows: seed: operation pools, MPI_Accumulate, MPI_Win_allocate, MPI-4.1 13.2.2.
pub fn windows_made_while_operations_are_under_way<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let few = |config: &mut Config| (config.operation_pool, config.operation_pool_global) = (16, 4);
    let mut world = make(Spec::ranks(3).with(few));
    let window = world.allocate(1024);
    let (mut made, mut others) = (Vec::new(), Vec::new());
    world.lock(0, window, 1, Shared).unwrap();
    for round in 0..6 {
        // The lock is there: what is posted now is handed to the fabric at once.
        world.flush(0, window, 1).unwrap();
        let mut expected = world.memory(1, window);
        let data = pattern(16 * 8, round);
        for (n, word) in data.chunks(8).enumerate() {
            let disp = 64 * n as u64;
            expected[64 * n..][..8].copy_from_slice(word);
            world.accumulate(0, window, 1, disp, word, Dtype::U64, ReduceOp::Replace).unwrap();
        }
        let mut calls = Vec::new();
        for rank in world.ranks() {
            let (id, sync) = world.engines[rank as usize].start_allocate(8, 1).unwrap();
            calls.push((rank, sync));
            made.push(id);
        }
        // Memory that was given back is used by others.
        others.extend((0..256).map(|n| vec![0xa5u8; 64 * n]));
        world.wait_all(calls).unwrap();
        world.flush(0, window, 1).unwrap();
        assert!(world.memory(1, window) == expected, "other bytes than were accumulated, in round {round}");
    }
    world.unlock(0, window, 1).unwrap();
    made.dedup();
    for id in made {
        world.free(id).unwrap();
    }
    world.check_idle();
}
