//! Locks that are words of the target's memory: what is different about them. What is not is in the other bodies,
//! which run with them as well.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::FenceAssert;
use rma_core::error::RmaError;
use rma_core::ids::{Rank, WindowId};
use rma_core::info::{LockProtocol, WindowOptions};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::Make;
use crate::{Spec, World};

/// Everything here that needs no rank to die.
pub fn all<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    an_epoch_takes_no_packet(make);
    a_lock_is_taken_once(make);
    tickets_are_served_in_order(make);
    tickets_begin_again(make);
    the_protocol_is_agreed(make);
    lock_all_passes_those_who_wait(make);
    unlock_all_goes_on_where_it_was(make);
    what_a_fence_refuses_holds_no_lock(make);
}

/// A job whose windows are locked by the fabric's atomics.
fn spec(ranks: u32) -> Spec {
    Spec::ranks(ranks).with(|config| config.lock_protocol = LockProtocol::Nic)
}

fn protocol<E: Endpoint, B: Bootstrap>(world: &World<E, B>, rank: u32, window: WindowId) -> LockProtocol {
    let options = world.engines[rank as usize].window_options(window).expect("the window exists");
    options.lock_protocol.expect("it is said of every window")
}

/// An epoch of native operations takes no packet, and nobody in the way is one round trip for the lock, one for the
/// operations and one for the release; or none at all, where the fabric does them while they are posted.
pub fn an_epoch_takes_no_packet<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(2));
    let window = world.allocate(64);
    assert_eq!(protocol(&world, 0, window), LockProtocol::Nic);
    for (round, lock_type, atomics) in [(0, Exclusive, 4), (1, Exclusive, 4), (2, Shared, 3), (3, Shared, 3)]
    {
        world.settle();
        let (before, start) = (world.counters(0), world.now_ns());
        world.lock(0, window, 1, lock_type).unwrap();
        let value = [7 + round; 8];
        world.put(0, window, 1, 8, &value).unwrap();
        let elements = world.engines[0].elements_in_use();
        world.flush(0, window, 1).unwrap();
        assert_eq!(world.memory(1, window)[8..16], value);
        let flushed = world.counters(0).since(&before);
        world.unlock(0, window, 1).unwrap();
        let cost = world.counters(0).since(&before);
        if world.completes_at_once(0, 1) {
            // Who was there before is remembered: of a program's memory from the second time on, when it was looked up. Tickets
            // that begin again may take one more.
            assert!(round < 3 || elements == (0, 0), "{lock_type:?}: {elements:?}");
            // Words are swapped for what they are expected to be, and once more for what was found.
            assert!((2..=atomics + 1).contains(&cost.lock_atomics), "{lock_type:?}: {}", cost.lock_atomics);
            assert_eq!(cost.lock_retries, 0, "{lock_type:?}");
        } else {
            assert_eq!((cost.lock_atomics, cost.lock_retries), (atomics, 0), "{lock_type:?}");
        }
        if round % 2 == 1 {
            // Whatever had to be asked for once is known.
            let sent: u64 = cost.packets_sent.iter().sum();
            assert_eq!((sent, cost.back(), cost.native_puts), (0, 0, 1), "{lock_type:?}");
            let trips = if world.completes_at_once(0, 1) { (0, 0) } else { (2, 3) };
            assert_eq!((flushed.round_trips, cost.round_trips), trips, "{lock_type:?}");
            if let (Some(start), Some(end)) = (start, world.now_ns()) {
                assert_eq!((end - start) / 2000, cost.round_trips, "round trips by the clock");
            }
        }
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// Whichever operation is the first of its epoch takes the lock, and the next ones find it taken: also where another lock was
/// called meanwhile. What is taken twice would not be free for others behind one unlock.
pub fn a_lock_is_taken_once<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(4));
    let window = world.allocate(64);
    for (round, lock_type) in (1..=3_u64).flat_map(|round| [(2 * round, Shared), (2 * round + 1, Exclusive)])
    {
        let (value, mut seen) = (round.to_le_bytes(), [0; 8]);
        world.lock(0, window, 1, lock_type).unwrap();
        world.get(0, window, 1, 0, &mut seen).unwrap();
        world.put(0, window, 1, 0, &value).unwrap();
        world.lock(0, window, 2, lock_type).unwrap();
        world.put(0, window, 1, 8, &value).unwrap();
        world.lock(0, window, 3, lock_type).unwrap();
        world.put(0, window, 2, 0, &value).unwrap();
        world.put(0, window, 3, 0, &value).unwrap();
        for target in 1..=3 {
            world.unlock(0, window, target).unwrap();
        }
        for target in 1..=3 {
            let mut found = [0; 8];
            world.lock(3, window, target, Exclusive).unwrap();
            world.get(3, window, target, 0, &mut found).unwrap();
            world.unlock(3, window, target).unwrap();
            assert_eq!(found, value, "round {round} at rank {target}, {lock_type:?}");
        }
    }
    world.check_idle();
}

/// Exclusive requests are granted in the order in which they draw their tickets, and the target does nothing for it.
pub fn tickets_are_served_in_order<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(5));
    let window = world.allocate(64);
    world.lock(4, window, 4, Exclusive).unwrap();
    let values: Vec<_> = (0..4u64).map(u64::to_le_bytes).collect();
    let mut old = [[0; 8]; 4];
    let mut calls = Vec::new();
    for rank in 0..4u32 {
        world.lock(rank, window, 4, Exclusive).unwrap();
        let (value, old) = (&values[rank as usize], &mut old[rank as usize]);
        world.get_accumulate(rank, window, 4, 0, value, old, Dtype::U64, ReduceOp::Replace).unwrap();
        let mut sync = world.engines[rank as usize].start_unlock(window, Rank(4)).unwrap();
        // Who looks again has its ticket.
        world.step_until("the rank waits", |world| world.counters(rank).lock_retries > 2);
        assert_eq!(world.engines[rank as usize].poll(&mut sync), Poll::Pending);
        calls.push((rank, sync));
    }
    let first = 99u64.to_le_bytes();
    world.put(4, window, 4, 0, &first).unwrap();
    world.unlock(4, window, 4).unwrap();
    world.wait_all(calls).unwrap();
    assert_eq!(old.map(u64::from_le_bytes), [99, 0, 1, 2]);
    world.check_idle();
}

/// More locks than tickets are left before they begin again, of every kind, and of the own window, too.
pub fn tickets_begin_again<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(3));
    let window = world.allocate(64);
    for round in 1..=6_u64 {
        for lock_type in [Exclusive, Shared] {
            for rank in 0..3 {
                world.lock(rank, window, 0, lock_type).unwrap();
                let one = 1u64.to_le_bytes();
                world.accumulate(rank, window, 0, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
                world.unlock(rank, window, 0).unwrap();
            }
        }
        assert_eq!(world.word(0, window, 0), 6 * round);
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// An unlock_all that was given up while it walks over the ranks goes on where it was: no lock is given back twice, and
/// nobody else's is.
pub fn unlock_all_goes_on_where_it_was<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    const RANKS: u32 = 5;
    let spec =
        spec(RANKS).with(|config| (config.target_pool, config.target_pool_global, config.slots) = (1, 0, 1));
    let mut world = make(spec);
    let window = world.allocate(64);
    let holders = |world: &World<E, B>| -> Vec<u64> {
        let words = |rank: u32| world.engines[rank as usize].lock_words(window).expect("locks are words");
        world.ranks().map(|rank| words(rank)[1]).collect()
    };
    for steps in 0..24 {
        let value = [steps; 8];
        for rank in [0, 1] {
            let locked = world.engines[rank as usize].start_lock_all(window, false);
            world.wait(rank, locked).unwrap();
            for target in 2..RANKS {
                world.put(rank, window, target, 8 * u64::from(rank), &value).unwrap();
            }
        }
        let mut sync = world.engines[0].start_unlock_all(window).unwrap();
        let mut over = world.engines[0].poll(&mut sync);
        for _ in 0..steps {
            if over.is_pending() {
                world.step();
                over = world.engines[0].poll(&mut sync);
            }
        }
        if over.is_pending() {
            world.engines[0].abandon(&sync);
            let again = world.engines[0].start_unlock_all(window);
            world.wait(0, again).unwrap();
        }
        assert_eq!(
            holders(&world)[2..],
            [1; RANKS as usize - 2],
            "rank 1 has its locks, after {steps} steps"
        );
        let unlocked = world.engines[1].start_unlock_all(window);
        world.wait(1, unlocked).unwrap();
        // One's own lock is given back behind the call.
        world.step_until("every lock is given back", |world| holders(world) == [0; RANKS as usize]);
        world.settle();
        assert_eq!(holders(&world), [0; RANKS as usize], "and none twice");
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// An operation that a fence refuses, on a rank that is known from a lock, leaves nothing that the next lock takes for
/// its own.
pub fn what_a_fence_refuses_holds_no_lock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(3));
    let window = world.allocate_uneven(|rank| 64 + 64 * rank as usize, |_| 1);
    world.lock(0, window, 1, Exclusive).unwrap();
    world.put(0, window, 1, 0, &[1; 8]).unwrap();
    world.unlock(0, window, 1).unwrap();
    world.fence(window, FenceAssert::default()).unwrap();
    let refused = world.put(0, window, 1, 125, &[2; 8]).unwrap_err();
    assert!(matches!(refused, RmaError::Range { .. }), "{refused:?}");
    world.lock(2, window, 1, Exclusive).unwrap();
    world.put(2, window, 1, 0, &[3; 8]).unwrap();
    world.flush(2, window, 1).unwrap();
    world.lock(0, window, 1, Exclusive).unwrap();
    world.put(0, window, 1, 0, &[4; 8]).unwrap();
    let mut sync = world.engines[0].start_unlock(window, Rank(1)).unwrap();
    for _ in 0..100 {
        world.step();
        assert_eq!(world.engines[0].poll(&mut sync), Poll::Pending);
    }
    assert_eq!(world.memory(1, window)[..8], [3; 8]);
    world.unlock(2, window, 1).unwrap();
    world.wait_all(vec![(0, sync)]).unwrap();
    assert_eq!(world.memory(1, window)[..8], [4; 8]);
    world.free(window).unwrap();
    world.check_idle();
}

/// What the ranks do not all want, or do not all have, nobody has; and each says what is in force.
///
/// Shows: ours: rma_lock_protocol.
pub fn the_protocol_is_agreed<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let of = |protocol| WindowOptions { lock_protocol: Some(protocol), ..WindowOptions::DEFAULT };
    let none = WindowOptions { no_locks: true, ..of(LockProtocol::Nic) };
    let checked = WindowOptions { check: Some(true), ..of(LockProtocol::Nic) };
    for (wanted, expected) in [
        ([of(LockProtocol::Nic); 3], LockProtocol::Nic),
        ([of(LockProtocol::Nic), of(LockProtocol::Message), of(LockProtocol::Nic)], LockProtocol::Message),
        ([WindowOptions::DEFAULT; 3], LockProtocol::Message),
        ([none; 3], LockProtocol::Message),
        ([checked; 3], LockProtocol::Message),
    ] {
        let mut calls = Vec::new();
        let mut window = WindowId(0);
        for (rank, options) in (0..).zip(&wanted) {
            let started = world.engines[rank as usize].start_allocate_with(64, 1, options);
            let (id, sync) = started.expect("memory can be had");
            window = id;
            calls.push((rank, sync));
        }
        world.wait_all(calls).expect("a window is created");
        assert!((0..3).all(|rank| protocol(&world, rank, window) == expected), "{wanted:?}");
        let before = world.counters(0);
        if !wanted[0].no_locks {
            world.lock(0, window, 1, Exclusive).unwrap();
            world.put(0, window, 1, 0, &[5; 8]).unwrap();
            world.unlock(0, window, 1).unwrap();
            assert_eq!(world.memory(1, window)[..8], [5; 8]);
            let atomics = world.counters(0).since(&before).lock_atomics;
            assert_eq!(atomics > 0, expected == LockProtocol::Nic);
        }
        world.free(window).unwrap();
    }
    world.check_idle();
}

/// Under lock_all one passes those who wait to be alone, or two of each could wait for each other.
pub fn lock_all_passes_those_who_wait<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(4));
    let window = world.allocate(64);
    let one = 1u64.to_le_bytes();
    let mut all = Vec::new();
    for rank in 0..2 {
        let started = world.engines[rank as usize].start_lock_all(window, false);
        world.wait(rank, started).unwrap();
    }
    let mut alone = Vec::new();
    for (rank, target) in [(2, 0), (3, 1)] {
        world.lock(rank, window, target, Exclusive).unwrap();
        world.accumulate(rank, window, target, 8, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        alone.push((rank, world.engines[rank as usize].start_unlock(window, Rank(target)).unwrap()));
        world.step_until("the rank waits", |world| world.counters(rank).lock_retries > 2);
    }
    for rank in 0..2 {
        world.accumulate(rank, window, 1 - rank, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        let started = world.engines[rank as usize].start_flush(window, Rank(1 - rank));
        world.wait(rank, started).unwrap();
        all.push((rank, world.engines[rank as usize].start_unlock_all(window).unwrap()));
    }
    world.wait_all(all).unwrap();
    world.wait_all(alone).unwrap();
    for rank in 0..2 {
        assert_eq!((world.word(rank, window, 0), world.word(rank, window, 8)), (1, 1));
    }
    world.check_idle();
}

/// What a rank held that died is lost, which is said, and nobody waits for ever; the window can be freed. The last
/// rank is killed.
pub fn a_lock_of_the_dead_is_lost<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>, kill: &dyn Fn()) {
    for held in [Exclusive, Shared] {
        let mut world = make(spec(3));
        let window = world.allocate(64);
        world.lock(2, window, 0, held).unwrap();
        world.put(2, window, 0, 0, &[1; 8]).unwrap();
        world.flush(2, window, 0).unwrap();
        world.lock(1, window, 0, Exclusive).unwrap();
        let one = 1u64.to_le_bytes();
        world.accumulate(1, window, 0, 8, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        let waits = world.engines[1].start_unlock(window, Rank(0)).unwrap();
        let own = world.engines[0].start_lock(window, Rank(0), Exclusive, false).unwrap();
        for _ in 0..100 {
            world.step();
        }
        kill();
        // Who has nothing to do with the dead hears of it when it speaks to it.
        for rank in 0..2 {
            let _ = world.lock(rank, window, 2, Shared);
            let _ = world.put(rank, window, 2, 0, &one);
            assert!(world.unlock(rank, window, 2).is_err(), "rank {rank} heard of the death");
        }
        let lost = world.wait_each(vec![(1, waits), (0, own)]);
        for error in lost {
            assert!(matches!(error, Err(RmaError::LockLost { target: Rank(0), .. })), "{held:?}: {error:?}");
        }
        assert_eq!(world.word(0, window, 8), 0, "nothing happens without the lock");
        // Other locks are as good as ever.
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &[9; 8]).unwrap();
        world.unlock(0, window, 1).unwrap();
        for rank in 0..2 {
            let started = world.engines[rank as usize].start_free(window);
            assert!(matches!(world.wait(rank, started), Err(RmaError::Peer { target: Rank(2), .. })));
            assert_eq!(world.engines[rank as usize].window_count(), 0);
            assert_eq!(world.engines[rank as usize].elements_in_use(), (0, 0));
        }
    }
}

/// Whose turn has come may sleep, and one who shares the lock may keep it, when a rank dies that has nothing to do with it:
/// who waits behind them goes on waiting, however often it looks meanwhile. The last rank is killed.
pub fn a_stranger_takes_no_lock_with_it<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>, kill: &dyn Fn()) {
    for is_shared in [false, true] {
        let mut world = make(spec(4));
        let window = world.allocate(64);
        let one = 1u64.to_le_bytes();
        world.lock(0, window, 0, if is_shared { Shared } else { Exclusive }).unwrap();
        world.put(0, window, 0, 0, &[1; 8]).unwrap();
        let mut waits = Vec::new();
        for rank in [1, 2] {
            world.lock(rank, window, 0, Exclusive).unwrap();
            world.accumulate(rank, window, 0, 8, &one, Dtype::U64, ReduceOp::Sum).unwrap();
            waits.push((rank, world.engines[rank as usize].start_unlock(window, Rank(0)).unwrap()));
            world.step_until("the rank waits", |world| world.counters(rank).lock_retries > 2);
        }
        kill();
        for rank in 0..3 {
            let _ = world.lock(rank, window, 3, Shared);
            let _ = world.put(rank, window, 3, 0, &one);
            assert!(world.unlock(rank, window, 3).is_err(), "rank {rank} heard of the death");
        }
        if !is_shared {
            world.unlock(0, window, 0).unwrap();
        }
        let before = world.counters(2).lock_retries;
        for _ in 0..10_000 {
            world.step_alone(2);
            assert_eq!(world.engines[2].poll(&mut waits[1].1), Poll::Pending, "shared: {is_shared}");
        }
        assert!(world.counters(2).lock_retries > before + 1000, "it looked often");
        if is_shared {
            world.unlock(0, window, 0).unwrap();
        }
        for error in world.wait_each(waits) {
            assert_eq!(error, Ok(()), "shared: {is_shared}");
        }
        assert_eq!(world.word(0, window, 8), 2);
        let mut free = |rank: u32| (rank, world.engines[rank as usize].start_free(window).unwrap());
        let freed = [0, 1, 2].map(&mut free).into();
        assert!(world.wait_each(freed).iter().all(Result::is_err), "a rank is missing");
    }
}
