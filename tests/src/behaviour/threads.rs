//! Calls of several threads of one rank, in the orders that matter: an engine sees threads as calls that are
//! under way at the same time.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, SyncCall};
use rma_core::error::{RmaError, Rule};
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType::Exclusive;
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::Make;
use crate::{Spec, World};

/// Adds 1 at rank 0's target: small, so that it is kept back until something sends it.
fn add<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId, target: u32, one: &[u8; 8]) {
    world.accumulate(0, window, target, 0, one, Dtype::U64, ReduceOp::Sum).unwrap();
}

/// The start of each kind of flush by rank 0.
fn start<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId, kind: usize) -> SyncCall {
    let engine = &mut world.engines[0];
    match kind {
        0 => engine.start_flush(window, Rank(1)),
        1 => engine.start_flush_all(window),
        2 => engine.start_flush_local(window, Rank(1)),
        4 => engine.start_flush_targets(window, &[Rank(1)]),
        _ => engine.start_flush_local_all(window),
    }
    .unwrap()
}

/// Two flushes are under way. One ends, and before the other one looks, a third thread posts an operation that
/// would be kept back: the other flush ends all the same, whichever kinds they are.
///
/// Shows: MPI_Win_flush, MPI_Win_flush_all, MPI_Win_flush_local, MPI_Win_flush_local_all, seed: WIN_FLUSH + WIN_FLUSH.
pub fn operation_between_two_flushes<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(4096);
    let (one, block, mut seen) = (1u64.to_le_bytes(), [7; 1024], [0; 1024]);
    let mut expected = 0;
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    for first in 0..4 {
        for second in 0..4 {
            add(&mut world, window, 1, &one);
            world.put(0, window, 1, 1024, &block).unwrap();
            let (first, mut second) = (start(&mut world, window, first), start(&mut world, window, second));
            world.wait(0, Ok(first)).unwrap();
            add(&mut world, window, 1, &one);
            // What refers to memory of the program's is what a local flush waits for.
            world.get(0, window, 1, 1024, &mut seen).unwrap();
            let polled = world.engines[0].poll(&mut second);
            if polled.is_pending() {
                world.wait(0, Ok(second)).unwrap();
            }
            world.flush(0, window, 1).unwrap();
            expected += 2;
            assert_eq!(world.word(1, window, 0), expected);
        }
    }
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started).unwrap();
    world.check_idle();
}

/// A flush ends when what was posted before it is complete, although another thread posts to the same rank again each
/// time that the flush looks, and never stops before the flush is over.
///
/// Shows: MPI_Win_flush, MPI_Win_flush_all, MPI_Win_flush_local, MPI_Win_flush_local_all, ours: flush_targets, MPI-4.1 13.5.4.
pub fn a_flush_ends_while_others_post<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    const LOOKS_MAX: usize = 50_000;
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(4096);
    let (one, block) = (1u64.to_le_bytes(), [7; 1024]);
    let mut expected = 0;
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    for kind in 0..5 {
        add(&mut world, window, 1, &one);
        world.put(0, window, 1, 1024, &block).unwrap();
        expected += 1;
        let mut call = start(&mut world, window, kind);
        let mut looks = 0;
        while world.engines[0].poll(&mut call).is_pending() {
            world.step();
            add(&mut world, window, 1, &one);
            world.put(0, window, 1, 2048, &block).unwrap();
            expected += 1;
            looks += 1;
            assert!(looks < LOOKS_MAX, "flush {kind} waits for what comes later");
        }
        if ![2, 3].contains(&kind) {
            assert!(world.word(1, window, 0) > 0 && world.memory(1, window)[1024..2048] == block);
        }
        world.flush(0, window, 1).unwrap();
        assert_eq!(world.word(1, window, 0), expected);
    }
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started).unwrap();
    world.check_idle();
}

/// A fence waits for the operations of its epoch when another thread posts to a rank that was not touched yet: the
/// fence ends, and the next one completes whatever it left.
///
/// Shows: MPI_Win_fence, MPI-4.1 13.5.1, seed: PUT/GET/ACC + WIN_FENCE.
pub fn operation_during_a_fence<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    let one = 1u64.to_le_bytes();
    world.fence(window, FenceAssert { no_precede: true, ..FenceAssert::default() }).unwrap();
    add(&mut world, window, 1, &one);
    let mut calls = Vec::new();
    for rank in world.ranks() {
        let mut call = world.engines[rank as usize].start_fence(window, FenceAssert::default()).unwrap();
        assert!(world.engines[rank as usize].poll(&mut call).is_pending());
        calls.push((rank, call));
    }
    add(&mut world, window, 2, &one);
    world.wait_all(calls).unwrap();
    assert_eq!(world.word(1, window, 0), 1, "of the epoch that ended");
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    assert_eq!(world.word(2, window, 0), 1);
    world.check_idle();
}

/// While one thread is in unlock, unlock_all or free, another one is refused, and so is what another one posts to
/// the epoch that ends.
///
/// Shows: MPI_Win_unlock_all, MPI_Win_free, MPI_ERR_RMA_SYNC.
pub fn closing_twice_at_once<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    let one = 1u64.to_le_bytes();
    fn busy<T: std::fmt::Debug>(refused: Result<T, RmaError>) {
        assert!(matches!(refused, Err(RmaError::Epoch { rule: Rule::Busy, .. })), "{refused:?}");
    }
    world.lock(0, window, 1, Exclusive).unwrap();
    world.put(0, window, 1, 8, &one).unwrap();
    world.flush(0, window, 1).unwrap();
    add(&mut world, window, 1, &one);
    let mut unlock = world.engines[0].start_unlock(window, Rank(1)).unwrap();
    if world.engines[0].poll(&mut unlock).is_pending() {
        busy(world.engines[0].start_unlock(window, Rank(1)));
        busy(world.put(0, window, 1, 8, &one));
    } else {
        assert!(world.completes_at_once(0, 1), "the lock cannot have been given back yet");
    }
    world.wait(0, Ok(unlock)).unwrap();
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    add(&mut world, window, 1, &one);
    let mut unlock = world.engines[0].start_unlock_all(window).unwrap();
    if world.engines[0].poll(&mut unlock).is_pending() {
        busy(world.engines[0].start_unlock_all(window));
        for target in [1, 2] {
            busy(world.put(0, window, target, 8, &one));
        }
    } else {
        assert!(world.completes_at_once(0, 1), "the locks cannot have been given back yet");
    }
    world.wait(0, Ok(unlock)).unwrap();
    assert_eq!([world.word(1, window, 0), world.word(1, window, 8), world.word(2, window, 8)], [2, 1, 0]);
    let mut calls = Vec::new();
    for rank in world.ranks() {
        calls.push((rank, world.engines[rank as usize].start_free(window).unwrap()));
        busy(world.engines[rank as usize].start_free(window));
    }
    world.wait_all(calls).unwrap();
    world.check_idle();
}
