//! Locks that are words for some, and asked for by packets by others, who are served in one line. Ranks 0 and 1 are
//! neighbours who reach each other's words, and so are 2 and 3; they ask the others by packets.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::error::RmaError;
use rma_core::ids::{Rank, WindowId};
use rma_core::info::{LockProtocol, WindowOptions};
use rma_core::lock::LockType::{self, Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::Make;
use crate::{Spec, World};

/// Everything here that needs no rank to die.
pub fn all<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    both_ways_wait_in_one_line(make);
    shared_holders_of_both_kinds(make);
    lock_all_passes_by_both_ways(make);
    lock_all_passes_who_fill_the_line(make);
    more_ask_than_may_wait(make);
    who_asks_early_waits(make);
}

fn spec() -> Spec {
    Spec::ranks(4).with(|config| config.lock_protocol = LockProtocol::Auto)
}

fn steps<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, count: u32) {
    for _ in 0..count {
        world.step();
    }
}

fn choice<E: Endpoint, B: Bootstrap>(world: &World<E, B>, window: WindowId) -> Option<LockProtocol> {
    world.engines[0].window_options(window).and_then(|options| options.lock_protocol)
}

/// One who waits on a neighbour's words, and two who ask by packets, get the lock in the order in which they came.
///
/// Shows: MPI-4.1 13.5.3.
pub fn both_ways_wait_in_one_line<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec());
    let window = world.allocate(64);
    assert_eq!(choice(&world, window), Some(LockProtocol::Auto));
    world.lock(1, window, 1, Exclusive).unwrap();
    let order = [2u32, 0, 3];
    let values = order.map(|rank| u64::from(rank).to_le_bytes());
    let mut old = [[0; 8]; 3];
    let mut calls = Vec::new();
    for ((rank, value), old) in order.into_iter().zip(&values).zip(&mut old) {
        let tickets = world.counters(1).lock_atomics;
        world.lock(rank, window, 1, Exclusive).unwrap();
        world.get_accumulate(rank, window, 1, 0, value, old, Dtype::U64, ReduceOp::Replace).unwrap();
        let mut sync = world.engines[rank as usize].start_unlock(window, Rank(1)).unwrap();
        if rank == 0 {
            world.step_until("it has looked in vain", |world| world.counters(0).lock_retries > 2);
        } else {
            world.step_until("the ticket is drawn", |world| world.counters(1).lock_atomics > tickets + 1);
        }
        assert_eq!(world.engines[rank as usize].poll(&mut sync), Poll::Pending);
        calls.push((rank, sync));
    }
    let first = 99u64.to_le_bytes();
    world.put(1, window, 1, 0, &first).unwrap();
    world.unlock(1, window, 1).unwrap();
    world.wait_all(calls).unwrap();
    assert_eq!(old.map(u64::from_le_bytes), [99, 2, 0]);
    world.free(window).unwrap();
    world.check_idle();
}

/// Shared locks of both kinds are held at one time, and one who wants to be alone waits for all of them.
pub fn shared_holders_of_both_kinds<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec());
    let window = world.allocate(64);
    let one = 1u64.to_le_bytes();
    // As often as tickets begin again.
    for round in 1..=4u64 {
        for rank in [0, 2, 3] {
            world.lock(rank, window, 1, Shared).unwrap();
            world.accumulate(rank, window, 1, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
            world.flush(rank, window, 1).unwrap();
        }
        let alone = world.engines[1].start_lock(window, Rank(1), Exclusive, false);
        let mut alone = alone.unwrap();
        for rank in [3, 0, 2] {
            steps(&mut world, 20);
            assert_eq!(world.engines[1].poll(&mut alone), Poll::Pending, "rank {rank} holds it");
            world.unlock(rank, window, 1).unwrap();
        }
        world.wait_all(vec![(1, alone)]).unwrap();
        assert_eq!(world.word(1, window, 0), 3 * round);
        world.unlock(1, window, 1).unwrap();
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// lock_all passes those who wait to be alone, whichever way either of both has taken; and is counted apart from other
/// shared locks when it ends.
///
/// Shows: MPI_Win_lock_all.
pub fn lock_all_passes_by_both_ways<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec());
    let window = world.allocate(64);
    let one = 1u64.to_le_bytes();
    for (holder, alone, passing) in [(2, 0, 3), (0, 2, 3), (2, 3, 0)] {
        world.lock(holder, window, 1, Shared).unwrap();
        world.put(holder, window, 1, 8, &one).unwrap();
        world.flush(holder, window, 1).unwrap();
        world.lock(alone, window, 1, Exclusive).unwrap();
        world.accumulate(alone, window, 1, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        let waits = world.engines[alone as usize].start_unlock(window, Rank(1)).unwrap();
        steps(&mut world, 50);
        let all = world.engines[passing as usize].start_lock_all(window, false);
        world.wait(passing, all).unwrap();
        world.accumulate(passing, window, 1, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        let flush = world.engines[passing as usize].start_flush(window, Rank(1));
        world.wait(passing, flush).unwrap();
        let end = world.engines[passing as usize].start_unlock_all(window);
        world.wait(passing, end).unwrap();
        world.unlock(holder, window, 1).unwrap();
        world.wait_all(vec![(alone, waits)]).unwrap();
    }
    assert_eq!(world.word(1, window, 0), 6);
    world.free(window).unwrap();
    world.check_idle();
}

/// Two ranks that hold lock_all in part, each at another target, want the other's target as well, where others wait to be
/// alone, as many as may wait: they wait for both, and pass none of them on.
///
/// Shows: MPI_Win_lock_all.
pub fn lock_all_passes_who_fill_the_line<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec { ranks: 8, ..spec() }.with(|config| config.lock_waiters = 1));
    let window = world.allocate(64);
    let one = 1u64.to_le_bytes();
    let passing = [(4, [0, 2]), (6, [2, 0])];
    let add = |world: &mut World<E, B>, rank: u32, target: u32| {
        world.accumulate(rank, window, target, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        world.engines[rank as usize].start_flush(window, Rank(target))
    };
    for (rank, [first, _]) in passing {
        let all = world.engines[rank as usize].start_lock_all(window, false);
        world.wait(rank, all).unwrap();
        let flush = add(&mut world, rank, first);
        world.wait(rank, flush).unwrap();
    }
    let mut waiting = Vec::new();
    for (rank, target) in [(1, 2), (5, 2), (3, 0), (7, 0)] {
        waiting.push(ask(&mut world, (window, target), rank));
    }
    steps(&mut world, 100);
    let mut flushes = Vec::new();
    for (rank, [_, second]) in passing {
        flushes.push((rank, add(&mut world, rank, second).unwrap()));
    }
    world.wait_all(flushes).unwrap();
    for (rank, sync) in &mut waiting {
        assert_eq!(world.engines[*rank as usize].poll(sync), Poll::Pending, "rank {rank} is not alone");
    }
    for (rank, _) in passing {
        let end = world.engines[rank as usize].start_unlock_all(window);
        world.wait(rank, end).unwrap();
    }
    world.wait_all(waiting).unwrap();
    for target in [0, 2] {
        assert_eq!((world.word(target, window, 0), world.word(target, window, 8)), (2, 2));
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// Who finds no place to wait is told to ask again, and comes in all the same.
pub fn more_ask_than_may_wait<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec().with(|config| config.lock_waiters = 1));
    let window = world.allocate(64);
    world.lock(1, window, 1, Exclusive).unwrap();
    let one = 1u64.to_le_bytes();
    let mut calls = Vec::new();
    for rank in [2, 3, 0] {
        world.lock(rank, window, 1, Exclusive).unwrap();
        world.accumulate(rank, window, 1, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        calls.push((rank, world.engines[rank as usize].start_unlock(window, Rank(1)).unwrap()));
    }
    world.step_until("one was told to ask again", |world| {
        [2, 3].iter().any(|&rank| world.counters(rank).lock_retries > 1)
    });
    world.unlock(1, window, 1).unwrap();
    world.wait_all(calls).unwrap();
    assert_eq!(world.word(1, window, 0), 3);
    world.free(window).unwrap();
    world.check_idle();
}

/// Requests may come before their target has learnt what all agreed on, and whether the lock is words: they wait, in line.
pub fn who_asks_early_waits<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for protocol in [LockProtocol::Auto, LockProtocol::Message] {
        let mut world = make(spec());
        let options = WindowOptions { lock_protocol: Some(protocol), ..WindowOptions::DEFAULT };
        let mut starts = Vec::new();
        for rank in 0..4u32 {
            // One that wants no words is told of by the agreement only.
            let options = if rank == 1 { &WindowOptions::DEFAULT } else { &options };
            starts.push(world.engines[rank as usize].start_allocate_with(64, 1, options).unwrap());
        }
        let window = starts[0].0;
        let mut calls: Vec<_> = (0..).zip(starts).map(|(rank, (_, sync))| (rank, sync)).collect();
        let (late_rank, mut late) = calls.remove(1);
        assert_eq!(world.engines[1].poll(&mut late), Poll::Pending);
        world.wait_all(calls).unwrap();
        let asked = [2, 3].map(|rank| ask(&mut world, (window, 1), rank));
        steps(&mut world, 100);
        let mut calls = Vec::from(asked);
        for (rank, sync) in &mut calls {
            assert_eq!(world.engines[*rank as usize].poll(sync), Poll::Pending, "rank 1 has no window yet");
        }
        calls.push((late_rank, late));
        world.wait_all(calls).unwrap();
        let everywhere = world.engines[3].start_lock_all(window, false);
        world.wait(3, everywhere).unwrap();
        world.put(3, window, 1, 0, &[7; 8]).unwrap();
        let end = world.engines[3].start_unlock_all(window);
        world.wait(3, end).unwrap();
        assert_eq!((world.word(1, window, 8), world.memory(1, window)[0]), (2, 7));
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// All of a small epoch goes by one packet, and what does not fit one takes the words. Where all ranks reach them.
pub fn an_epoch_chooses<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec());
    let window = world.allocate(64);
    for is_known in [false, true] {
        let before = world.counters(0);
        world.lock(0, window, 2, Exclusive).unwrap();
        world.put(0, window, 2, 0, &[1; 8]).unwrap();
        world.unlock(0, window, 2).unwrap();
        let cost = world.counters(0).since(&before);
        assert_eq!((cost.packets_sent.iter().sum::<u64>(), cost.lock_atomics), (1, 0));
        let before = world.counters(0);
        world.lock(0, window, 2, Exclusive).unwrap();
        for value in [[2; 8], [3; 8]] {
            world.put(0, window, 2, 0, &value).unwrap();
            world.flush(0, window, 2).unwrap();
        }
        world.unlock(0, window, 2).unwrap();
        let cost = world.counters(0).since(&before);
        if is_known {
            assert_eq!((cost.packets_sent.iter().sum::<u64>(), cost.lock_atomics), (0, 4));
        }
        assert_eq!(world.word(2, window, 0), u64::from_le_bytes([3; 8]));
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// A target that keeps a request waiting is spared the next ones, and asked again later. Where all ranks reach the words.
pub fn a_busy_target_is_spared<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec());
    let window = world.allocate(64);
    let epoch = |world: &mut World<E, B>, is_kept_waiting: bool| {
        let before = world.counters(0);
        world.lock(0, window, 2, Exclusive).unwrap();
        world.put(0, window, 2, 0, &[1; 8]).unwrap();
        let mut sync = world.engines[0].start_unlock(window, Rank(2)).unwrap();
        assert_eq!(world.engines[0].poll(&mut sync), Poll::Pending);
        if is_kept_waiting {
            world.engines[0].on_kept_waiting(window);
            world.engines[0].on_kept_waiting(window);
        }
        world.wait_all(vec![(0, sync)]).unwrap();
        u64::from(world.counters(0).since(&before).lock_atomics == 0)
    };
    assert_eq!(epoch(&mut world, false), 1);
    assert_eq!(epoch(&mut world, true), 1);
    let asked: Vec<_> = (0..20).map(|_| epoch(&mut world, false)).collect();
    assert_eq!(asked, [[0; 16].as_slice(), &[1; 4]].concat());
    // As busy as before: for longer, though each answer in time makes it shorter.
    assert_eq!(epoch(&mut world, true), 1);
    for spared in [16, 64] {
        assert_eq!((0..200).take_while(|_| epoch(&mut world, false) == 0).count(), spared);
        assert_eq!(epoch(&mut world, true), 1);
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// What was asked for by a packet is given back by the target when its holder dies, and others come in; what a neighbour
/// held that dies is lost for those who ask by packets, too. The last rank is killed.
pub fn deaths_of_both_kinds<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>, kill: &dyn Fn()) {
    for held in [Exclusive, Shared] {
        by_a_packet(make, held, kill);
        by_words(make, held, kill);
    }
}

fn hear_of_it<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    for rank in 0..3 {
        let _ = world.lock(rank, window, 3, Shared);
        let _ = world.put(rank, window, 3, 0, &[1; 8]);
        assert!(world.unlock(rank, window, 3).is_err(), "rank {rank} heard of the death");
    }
}

fn ask<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    (window, target): (WindowId, u32),
    rank: u32,
) -> (u32, rma_core::engine::SyncCall) {
    let one = 1u64.to_le_bytes();
    world.lock(rank, window, target, Exclusive).unwrap();
    world.accumulate(rank, window, target, 8, &one, Dtype::U64, ReduceOp::Sum).unwrap();
    (rank, world.engines[rank as usize].start_unlock(window, Rank(target)).unwrap())
}

fn by_a_packet<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>, held: LockType, kill: &dyn Fn()) {
    let mut world = make(spec());
    let window = world.allocate(64);
    world.lock(3, window, 0, held).unwrap();
    world.put(3, window, 0, 0, &[1; 8]).unwrap();
    world.flush(3, window, 0).unwrap();
    let far = ask(&mut world, (window, 0), 2);
    steps(&mut world, 100);
    kill();
    hear_of_it(&mut world, window);
    let calls = world.wait_each(vec![far]);
    assert!(calls.iter().all(Result::is_ok), "{held:?}: {calls:?}");
    // A neighbour's turn comes as ever.
    let near = ask(&mut world, (window, 0), 1);
    world.wait_all(vec![near]).unwrap();
    assert_eq!(world.word(0, window, 8), 2);
}

fn by_words<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>, held: LockType, kill: &dyn Fn()) {
    let mut world = make(spec());
    let window = world.allocate(64);
    world.lock(3, window, 2, held).unwrap();
    world.put(3, window, 2, 0, &[1; 8]).unwrap();
    world.flush(3, window, 2).unwrap();
    let calls = vec![ask(&mut world, (window, 2), 0), ask(&mut world, (window, 2), 1)];
    steps(&mut world, 100);
    kill();
    hear_of_it(&mut world, window);
    for error in world.wait_each(calls) {
        assert!(matches!(error, Err(RmaError::LockLost { target: Rank(2), .. })), "{held:?}: {error:?}");
    }
    assert_eq!(world.word(2, window, 8), 0, "nothing happens without the lock");
    for rank in 0..3 {
        let started = world.engines[rank as usize].start_free(window);
        assert!(matches!(world.wait(rank, started), Err(RmaError::Peer { target: Rank(3), .. })));
        assert_eq!(world.engines[rank as usize].elements_in_use(), (0, 0));
    }
}
