//! What each call does about a dead rank: an error that names it, or nothing, but never a hang. Rank 2 of
//! three dies in each body, by its last argument.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, Request, SyncCall};
use rma_core::error::{Call, RmaError};
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType::{self, Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::wire::OpKind;

use super::deaths::names_the_dead;
use crate::world::operation;
use crate::World;

/// Steps within which a call must end. A round trip takes some ten.
const BOUND: usize = 20_000;

/// A call of a rank, to its end within the bound.
pub(super) fn bounded<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    rank: u32,
    started: Result<SyncCall, RmaError>,
) -> Result<(), RmaError> {
    let mut sync = started?;
    for _ in 0..BOUND {
        if let Poll::Ready(done) = world.engines[rank as usize].poll(&mut sync) {
            return done;
        }
        world.step();
    }
    panic!("rank {rank} hangs in {:?}, waiting for {:?}", sync.call(), sync.waiting_for());
}

fn bounded_request<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    mut request: Request,
) -> Result<(), RmaError> {
    for _ in 0..BOUND {
        if let Poll::Ready(done) = world.engines[0].poll_request(&mut request) {
            return done;
        }
        world.step();
    }
    panic!("{request:?} hangs");
}

/// The living can free the window: an error says that not all did, and nothing of it is left.
pub(super) fn is_freed<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    for rank in 0..2 {
        let started = world.engines[rank as usize].start_free(window);
        names_the_dead(bounded(world, rank, started));
        assert!(world.engines[rank as usize].window_memory(window).is_none(), "it is still there");
        assert_eq!(world.engines[rank as usize].elements_in_use(), (0, 0));
    }
}

/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_Win_free.
pub fn lock_and_unlock<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    kill();
    world.settle();
    for lock_type in [Shared, Exclusive] {
        let started = world.engines[0].start_lock(window, Rank(2), lock_type, false);
        bounded(world, 0, started).unwrap();
        if let Err(error) = world.put(0, window, 2, 0, &[1; 8]) {
            names_the_dead(Err(error));
        }
        let started = world.engines[0].start_unlock(window, Rank(2));
        names_the_dead(bounded(world, 0, started));
    }
    is_freed(world, window);
}

/// What the dead held is free: the next in line gets the lock.
///
/// Shows: MPI_Win_lock.
pub fn exclusive_locks_of_the_dead<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    locks_of_the_dead(world, kill, Exclusive);
}

/// Shows: MPI_Win_lock.
pub fn shared_locks_of_the_dead<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    locks_of_the_dead(world, kill, Shared);
}

fn locks_of_the_dead<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    kill: impl FnOnce(),
    lock_type: LockType,
) {
    let window = world.allocate(64);
    world.lock(2, window, 1, lock_type).unwrap();
    world.put(2, window, 1, 0, &[1; 8]).unwrap();
    world.flush(2, window, 1).unwrap();
    world.lock(0, window, 1, Exclusive).unwrap();
    world.put(0, window, 1, 8, &[2; 8]).unwrap();
    world.settle();
    kill();
    let started = world.engines[0].start_unlock(window, Rank(1));
    bounded(world, 0, started).unwrap();
    assert_eq!(world.memory(1, window)[8..16], [2; 8]);
    is_freed(world, window);
}

/// Shows: MPI_Win_lock_all, MPI_Win_unlock_all.
pub fn lock_all_and_unlock_all<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    world.put(0, window, 2, 0, &[1; 8]).unwrap();
    world.put(0, window, 1, 0, &[1; 8]).unwrap();
    kill();
    let started = world.engines[0].start_unlock_all(window);
    names_the_dead(bounded(world, 0, started));
    assert_eq!(world.memory(1, window)[..8], [1; 8]);
    is_freed(world, window);
}

/// Elements run out, so that all ranks are locked, one of them for ever.
///
/// Shows: MPI_Win_unlock_all, seed: LOCK_ALL window protocol.
pub fn window_protocol<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    world.put(0, window, 2, 0, &[1; 8]).unwrap();
    world.put(0, window, 1, 0, &[1; 8]).unwrap();
    world.put(0, window, 2, 8, &[1; 8]).unwrap();
    kill();
    let started = world.engines[0].start_unlock_all(window);
    names_the_dead(bounded(world, 0, started));
    is_freed(world, window);
}

/// Few enough elements for [`window_protocol`].
pub fn one_element(config: &mut Config) {
    (config.target_pool, config.target_pool_global) = (1, 0);
}

/// Shows: MPI_Win_flush, MPI_Win_flush_all, MPI_Win_flush_local, MPI_Win_flush_local_all.
pub fn every_flush<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(1 << 16);
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    let mut got = vec![0; 1 << 15];
    world.get(0, window, 2, 0, &mut got).unwrap();
    kill();
    let started = world.engines[0].start_flush_local(window, Rank(2));
    names_the_dead(bounded(world, 0, started));
    let started = world.engines[0].start_flush_local_all(window);
    names_the_dead(bounded(world, 0, started));
    let started = world.engines[0].start_flush(window, Rank(2));
    names_the_dead(bounded(world, 0, started));
    let started = world.engines[0].start_flush_all(window);
    names_the_dead(bounded(world, 0, started));
    let started = world.engines[0].start_flush(window, Rank(1));
    bounded(world, 0, started).unwrap();
    let started = world.engines[0].start_unlock_all(window);
    names_the_dead(bounded(world, 0, started));
    is_freed(world, window);
}

/// Shows: MPI_Rput, MPI_Rget, MPI_Raccumulate, MPI_Rget_accumulate, ours: iflush.
pub fn requests<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(1 << 16);
    let (data, mut got) = (vec![1; 1 << 15], vec![0; 1 << 15]);
    world.lock(0, window, 2, Shared).unwrap();
    let put = operation(Call::RequestPut, OpKind::Put, 2, 0, data.len());
    let put = rma_core::engine::Operation { origin: data.as_ptr(), ..put };
    let get = operation(Call::RequestGet, OpKind::Get, 2, 0, got.len());
    let get = rma_core::engine::Operation { result: got.as_mut_ptr(), ..get };
    let requests = [world.request(0, window, &put).unwrap(), world.request(0, window, &get).unwrap()];
    let flushes = [false, true].map(|is_local| {
        world.engines[0].flush_request(window, Some(Rank(2)), is_local).expect("an epoch is open")
    });
    kill();
    for request in requests.into_iter().chain(flushes) {
        names_the_dead(bounded_request(world, request));
    }
    let started = world.engines[0].start_unlock(window, Rank(2));
    names_the_dead(bounded(world, 0, started));
    is_freed(world, window);
}

/// Shows: MPI_Accumulate, MPI_Get_accumulate, MPI_Compare_and_swap.
pub fn accumulates<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    let (one, mut old, mut swapped) = (1u64.to_le_bytes(), [0; 8], 0);
    world.lock(0, window, 2, Exclusive).unwrap();
    world.accumulate(0, window, 2, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
    world.get_accumulate(0, window, 2, 8, &one, &mut old, Dtype::U64, ReduceOp::Sum).unwrap();
    world.compare_and_swap(0, window, 2, 16, &[0, 1], &mut swapped).unwrap();
    kill();
    let started = world.engines[0].start_unlock(window, Rank(2));
    names_the_dead(bounded(world, 0, started));
    is_freed(world, window);
}

/// What waits for a fence that never ends is given up with the window.
///
/// Shows: MPI_Win_fence, MPI_Win_free.
pub fn fences<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    kill();
    let open = FenceAssert { no_precede: true, ..FenceAssert::default() };
    for rank in 0..2 {
        let started = world.engines[rank as usize].start_fence(window, open);
        bounded(world, rank, started).unwrap();
    }
    world.put(0, window, 1, 0, &[1; 8]).unwrap();
    for rank in 0..2 {
        let started = world.engines[rank as usize].start_fence(window, FenceAssert::default());
        names_the_dead(bounded(world, rank, started));
    }
    is_freed(world, window);
}

/// Shows: MPI_Win_start, MPI_Win_complete.
pub fn start_and_complete<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    world.expose(1, window, &[0]).unwrap();
    world.start(0, window, &[1, 2]).unwrap();
    world.put(0, window, 1, 0, &[1; 8]).unwrap();
    world.put(0, window, 2, 0, &[1; 8]).unwrap();
    world.settle();
    kill();
    world.settle();
    let started = world.engines[0].start_complete(window);
    names_the_dead(bounded(world, 0, started));
    let started = world.engines[1].start_wait(window);
    bounded(world, 1, started).unwrap();
    assert_eq!(world.memory(1, window)[..8], [1; 8]);
    is_freed(world, window);
}

/// Shows: MPI_Win_post, MPI_Win_wait, MPI_Win_test.
pub fn post_and_wait<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    world.expose(0, window, &[1, 2]).unwrap();
    world.expose(1, window, &[2]).unwrap();
    world.start(1, window, &[0]).unwrap();
    world.complete(1, window).unwrap();
    kill();
    let started = world.engines[0].start_wait(window);
    names_the_dead(bounded(world, 0, started));
    world.settle();
    names_the_dead(world.engines[1].test(window).map(|is_over| assert!(is_over)));
    is_freed(world, window);
}

/// A window cannot be made any more; what there was goes on.
///
/// Shows: MPI_Win_allocate, MPI_Win_create_dynamic, MPI_Win_attach.
pub fn new_windows<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    kill();
    for rank in 0..2u32 {
        let windows = world.engines[rank as usize].window_count();
        let (_, sync) = world.engines[rank as usize].start_allocate(64, 1).unwrap();
        names_the_dead(bounded(world, rank, Ok(sync)));
        assert_eq!(world.engines[rank as usize].window_count(), windows, "nothing of it is left");
    }
    world.lock(0, window, 1, Exclusive).unwrap();
    world.put(0, window, 1, 0, &[1; 8]).unwrap();
    let started = world.engines[0].start_unlock(window, Rank(1));
    bounded(world, 0, started).unwrap();
    let barrier = world.engines[0].start_barrier();
    names_the_dead(bounded(world, 0, barrier));
    is_freed(world, window);
}

/// One frees the window after the death, another one still has operations to it.
///
/// Shows: MPI_Win_free.
pub fn who_frees_early<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    world.lock(0, window, 1, Shared).unwrap();
    kill();
    world.settle();
    let started = world.engines[1].start_free(window);
    names_the_dead(bounded(world, 1, started));
    let mut got = [0; 8];
    world.get(0, window, 1, 0, &mut got).unwrap();
    let started = world.engines[0].start_unlock(window, Rank(1));
    match bounded(world, 0, started) {
        Err(RmaError::Peer { target: Rank(1), .. }) => {}
        other => panic!("an error about rank 1 was due, not {other:?}"),
    }
    let started = world.engines[0].start_free(window);
    names_the_dead(bounded(world, 0, started));
}

/// One frees the window after the death and begins to make others, another one still uses the one that he knows:
/// he never gets to one of the others.
///
/// Shows: MPI_Win_free, MPI_Win_allocate.
pub fn who_frees_and_goes_on<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    kill();
    world.settle();
    let started = world.engines[1].start_free(window);
    names_the_dead(bounded(world, 1, started));
    let (_, late) = world.engines[1].start_allocate(4096, 1).unwrap();
    let started = world.engines[0].start_lock(window, Rank(1), Shared, false);
    let mut got = [7; 8];
    let result =
        bounded(world, 0, started).and_then(|()| world.get(0, window, 1, 0, &mut got)).and_then(|()| {
            world.engines[0].start_unlock(window, Rank(1)).and_then(|sync| bounded(world, 0, Ok(sync)))
        });
    match result {
        Err(RmaError::Peer { target: Rank(1), .. }) => {}
        other => panic!("an error about rank 1 was due, not {other:?}"),
    }
    assert_eq!(got, [7; 8], "nothing was read");
    names_the_dead(bounded(world, 1, Ok(late)));
    assert_eq!(world.engines[1].window_count(), 0, "nothing of it is left");
}

/// Rank 0 has repeated an atomic, and its flush, so often that the next one goes the way of the last.
fn repeated_atomics<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>) -> WindowId {
    let window = world.allocate(64);
    world.lock(0, window, 2, Shared).unwrap();
    for _ in 0..3 {
        world.accumulate(0, window, 2, 0, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
        world.flush(0, window, 2).unwrap();
    }
    window
}

/// What is added.
static ONE: [u8; 8] = 1_u64.to_ne_bytes();

/// It dies when such an atomic was posted.
pub fn a_repeated_atomic_that_was_posted<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    kill: impl FnOnce(),
) {
    let window = repeated_atomics(world);
    world.accumulate(0, window, 2, 0, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
    let is_done = world.completes_at_once(0, 2);
    kill();
    let started = world.engines[0].start_flush(window, Rank(2));
    let flushed = bounded(world, 0, started);
    if !is_done {
        names_the_dead(flushed);
    }
    let again = world.accumulate(0, window, 2, 0, &ONE, Dtype::U64, ReduceOp::Sum);
    let started = world.engines[0].start_unlock(window, Rank(2));
    let ended = bounded(world, 0, started);
    names_the_dead(again.and(ended));
    assert_eq!(world.engines[0].elements_in_use(), (0, 0));
}

/// It dies when such an atomic was sent, and a flush waits for the answer.
pub fn a_repeated_atomic_that_was_sent<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    kill: impl FnOnce(),
) {
    let window = repeated_atomics(world);
    world.accumulate(0, window, 2, 0, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
    let mut sync = world.engines[0].start_flush(window, Rank(2)).unwrap();
    let is_over = world.engines[0].poll(&mut sync).is_ready();
    kill();
    if !is_over {
        names_the_dead(bounded(world, 0, Ok(sync)));
    }
    let again = world.accumulate(0, window, 2, 0, &ONE, Dtype::U64, ReduceOp::Sum);
    let started = world.engines[0].start_unlock(window, Rank(2));
    let ended = bounded(world, 0, started);
    names_the_dead(again.and(ended));
    assert_eq!(world.engines[0].elements_in_use(), (0, 0));
}
