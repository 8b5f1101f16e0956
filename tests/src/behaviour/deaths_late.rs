//! What begins, or arrives, when a rank is known to be dead already. Rank 2 dies in each body, by its last
//! argument; the others go on with each other.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, PostAssert, StartAssert};
use rma_core::ids::{Rank, WindowId};
use rma_core::info::WindowOptions;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::deaths::names_the_dead;
use super::deaths_calls::{bounded, is_freed};
use super::shared::shared;
use crate::World;

const WITHOUT_NOTICES: PostAssert = PostAssert { no_check: true, no_store: false, no_put: false };

/// Enough for what is under way to arrive.
const STEPS: usize = 200;

/// Rank 0 updates rank 1, alone.
fn is_lockable<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    let started = world.engines[0].start_lock(window, Rank(1), Exclusive, false);
    bounded(world, 0, started).unwrap();
    world.put(0, window, 1, 8, &[2; 8]).unwrap();
    let started = world.engines[0].start_unlock(window, Rank(1));
    bounded(world, 0, started).unwrap();
    assert_eq!(world.memory(1, window)[8..16], [2; 8]);
}

/// A request for a lock that is under way when its sender dies does not hold the lock for ever.
///
/// Shows: MPI_Win_lock.
pub fn late_requests<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    // Who tells of the death knows him.
    world.lock(2, window, 1, Shared).unwrap();
    world.put(2, window, 1, 0, &[1; 8]).unwrap();
    world.unlock(2, window, 1).unwrap();
    world.lock(2, window, 1, Exclusive).unwrap();
    world.put(2, window, 1, 0, &[1; 8]).unwrap();
    let mut flush = world.engines[2].start_flush(window, Rank(1)).unwrap();
    // The request has left, and nobody has had the time to see it.
    assert!(matches!(world.engines[2].poll(&mut flush), Poll::Pending));
    kill();
    world.settle();
    is_lockable(world, window);
    is_freed(world, window);
}

/// Epochs for which nothing is sent, so that nothing tells that a member is dead.
///
/// Shows: MPI_Win_post, MPI_MODE_NOCHECK/post, MPI_Win_start, MPI_MODE_NOCHECK/start, MPI_Win_wait.
pub fn epochs_without_notices<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    kill();
    world.settle();
    let (origins, targets) = (world.group(&[0, 2]), world.group(&[1, 2]));
    let started = world.engines[1].start_post(window, &origins, WITHOUT_NOTICES);
    bounded(world, 1, started).unwrap();
    let assert = StartAssert { no_check: true };
    let started = world.engines[0].start_start(window, &targets, assert);
    bounded(world, 0, started).unwrap();
    world.put(0, window, 1, 0, &[1; 8]).unwrap();
    let started = world.engines[0].start_complete(window);
    names_the_dead(bounded(world, 0, started));
    let started = world.engines[1].start_wait(window);
    names_the_dead(bounded(world, 1, started));
    assert_eq!(world.memory(1, window)[..8], [1; 8]);
    is_freed(world, window);
}

/// Attaching is one's own affair; only what goes to the dead fails.
///
/// Shows: MPI_Win_create_dynamic, MPI_Win_attach, MPI_Win_detach, MPI_Win_free.
pub fn dynamic_windows<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.make(|engine, _| engine.start_create_dynamic(&WindowOptions::DEFAULT));
    let words: *mut [u64; 8] = Box::leak(Box::new([0; 8]));
    let region = words.cast::<u64>();
    let address = region.addr() as u64;
    kill();
    world.settle();
    // SAFETY: the words are there until the region has been detached.
    unsafe { world.engines[1].attach(window, region.cast(), 64) }.unwrap();
    for (target, lock_type) in [(1, Exclusive), (2, Shared)] {
        let started = world.engines[0].start_lock(window, Rank(target), lock_type, false);
        bounded(world, 0, started).unwrap();
        let posted = world.put(0, window, target, address, &[1; 8]);
        let started = world.engines[0].start_unlock(window, Rank(target));
        let unlocked = bounded(world, 0, started);
        match target {
            1 => posted.and(unlocked).unwrap(),
            _ => names_the_dead(unlocked),
        }
    }
    // SAFETY: the words are still there, and nothing is on its way to them.
    assert_eq!(unsafe { region.read() }, u64::from_ne_bytes([1; 8]));
    let started = world.engines[1].start_detach(window, region.cast());
    bounded(world, 1, started).unwrap();
    // SAFETY: leaked above and taken back once; no rank reaches them any more.
    drop(unsafe { Box::from_raw(words) });
    is_freed(world, window);
}

/// Where memory is shared a lock is held when its call returns, and so the dead are found by that call.
///
/// Shows: MPI_Win_allocate_shared, MPI_Win_lock, MPI_Win_lock_all, MPI_Win_start.
pub fn shared_windows<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = shared(world);
    world.lock(2, window, 0, Exclusive).unwrap();
    kill();
    let started = world.engines[0].start_lock(window, Rank(2), Shared, false);
    names_the_dead(bounded(world, 0, started));
    for rank in [0, 1] {
        let started = world.engines[1].start_lock(window, Rank(rank), Exclusive, false);
        bounded(world, 1, started).unwrap();
        let started = world.engines[1].start_unlock(window, Rank(rank));
        bounded(world, 1, started).unwrap();
    }
    let started = world.engines[0].start_lock_all(window, false);
    bounded(world, 0, started).unwrap();
    let started = world.engines[0].start_unlock_all(window);
    names_the_dead(bounded(world, 0, started));
    let targets = world.group(&[2]);
    let started = world.engines[0].start_start(window, &targets, StartAssert::default());
    bounded(world, 0, started).unwrap();
    let started = world.engines[0].start_complete(window);
    names_the_dead(bounded(world, 0, started));
    is_freed(world, window);
}

/// Windows of other kinds cannot be made either, nor what is agreed on for them, and nothing is left of them.
///
/// Shows: MPI_Win_create_dynamic, MPI_Win_allocate_shared.
pub fn other_new_windows<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    kill();
    for rank in 0..2 {
        let engine = &mut world.engines[rank as usize];
        let agreement = engine.start_agree(rma_core::error::Call::AllocateShared, [1, 0, 0, 0]);
        names_the_dead(bounded(world, rank, agreement));
        let engine = &mut world.engines[rank as usize];
        let (_, sync) = engine.start_create_dynamic(&WindowOptions::DEFAULT).unwrap();
        names_the_dead(bounded(world, rank, Ok(sync)));
        assert_eq!(world.engines[rank as usize].window_count(), 1, "nothing of it is left");
    }
    is_lockable(world, window);
    is_freed(world, window);
}

/// However many share a lock, the one that dies does not keep it. `world` has more ranks than three.
///
/// Shows: MPI_LOCK_SHARED, MPI_Win_lock.
pub fn one_of_many_sharers<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    let ranks = world.engines.len() as u32;
    // He comes last.
    for rank in (3..ranks).chain([2]) {
        world.lock(rank, window, 1, Shared).unwrap();
        world.put(rank, window, 1, u64::from(rank), &[1]).unwrap();
        world.flush(rank, window, 1).unwrap();
    }
    let exclusive = world.engines[0].start_lock(window, Rank(1), Exclusive, false);
    bounded(world, 0, exclusive).unwrap();
    world.put(0, window, 1, 0, &[2]).unwrap();
    kill();
    world.settle();
    for rank in 3..ranks {
        let started = world.engines[rank as usize].start_unlock(window, Rank(1));
        bounded(world, rank, started).unwrap();
    }
    let started = world.engines[0].start_unlock(window, Rank(1));
    bounded(world, 0, started).unwrap();
    assert_eq!(world.memory(1, window)[0], 2);
}

/// What was ordered in a fence that never ends keeps nobody waiting, who goes on with his own window.
///
/// Shows: ours: order, MPI_Win_fence.
pub fn own_operations_behind_an_order<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    kill: impl FnOnce(),
) {
    let window = world.allocate(64);
    kill();
    let open = FenceAssert { no_precede: true, ..FenceAssert::default() };
    let started = world.engines[0].start_fence(window, open);
    bounded(world, 0, started).unwrap();
    world.accumulate(0, window, 0, 0, &1u64.to_le_bytes(), Dtype::U64, ReduceOp::Sum).unwrap();
    world.engines[0].order(window, Rank(0)).unwrap();
    // Where the fabric does the accumulate, that has not left.
    if let Err(error) = world.put(0, window, 0, 8, &[1; 8]) {
        names_the_dead(Err(error));
    }
    let started = world.engines[0].start_fence(window, FenceAssert::default());
    names_the_dead(bounded(world, 0, started));
    is_freed(world, window);
}

/// A fence that fails before it has begun its barrier: what others have told of theirs is not taken for a later call's, to
/// which the dead never comes. Of eight ranks, rank 5 is told by others than rank 2, and tells others. Everybody is told of
/// the death.
///
/// Shows: MPI_Win_fence, MPI_Win_free.
pub fn calls_behind_a_fence_that_failed<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    kill: impl FnOnce(),
) {
    let windows = [world.allocate(64), world.allocate(64)];
    let open = FenceAssert { no_precede: true, ..FenceAssert::default() };
    for rank in [5, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 6, 6, 7, 7] {
        for window in windows {
            let started = world.engines[rank as usize].start_fence(window, open);
            bounded(world, rank, started).unwrap();
            if rank == 5 {
                // It stays here until all have come.
                world.put(5, window, 0, 0, &[1; 8]).unwrap();
            }
        }
        if rank == 5 {
            world.settle();
        }
    }
    // Rank 5 does not look while all of it arrives.
    for rank in [0, 1, 2, 3, 4, 6, 7].repeat(STEPS) {
        world.step_alone(rank);
    }
    kill();
    world.engines[5].hear_of_losses();
    for window in windows {
        let started = world.engines[5].start_fence(window, FenceAssert::default());
        names_the_dead(bounded(world, 5, started));
    }
    world.settle();
    let started = world.engines[5].start_fence(windows[0], FenceAssert::default());
    names_the_dead(bounded(world, 5, started));
    for rank in [5, 0, 1, 3, 4, 6, 7] {
        for window in windows {
            let started = world.engines[rank as usize].start_free(window);
            names_the_dead(bounded(world, rank, started));
            assert!(world.engines[rank as usize].window_memory(window).is_none(), "it is still there");
        }
    }
}

/// The same after one that has begun it, of a caller who makes no more fences. Rank 5 has told all that the others wait
/// for, and what rank 1 tells it last comes behind the death.
///
/// Shows: MPI_Win_fence, MPI_Win_free.
pub fn a_free_behind_a_fence_that_failed<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    kill: impl FnOnce(),
) {
    let window = world.allocate(64);
    let begin = |world: &mut World<E, B>, rank: u32| {
        let engine = &mut world.engines[rank as usize];
        let mut sync = engine.start_fence(window, FenceAssert::default()).unwrap();
        // Done already if it is the last to come; polled again it says so again.
        let _ = engine.poll(&mut sync);
        sync
    };
    let mut late = begin(world, 5);
    let mut others: Vec<_> = [0, 1, 2, 3, 4, 6].map(|rank| (rank, begin(world, rank))).into();
    world.settle();
    others.push((7, begin(world, 7)));
    // Rank 5 does not look from here on.
    for step in 0..2 * STEPS {
        others.retain_mut(|(rank, sync)| world.engines[*rank as usize].poll(sync).is_pending());
        if step == STEPS {
            assert_eq!(others.len(), 0, "the others have passed the fence");
            others.extend([0, 1, 2, 3, 4, 6, 7].map(|rank| (rank, begin(world, rank))));
        }
        [0, 1, 2, 3, 4, 6, 7].into_iter().for_each(|rank| world.step_alone(rank));
    }
    assert_eq!(others.len(), 7, "rank 5 has not come");
    kill();
    world.engines[5].hear_of_losses();
    let Poll::Ready(failed) = world.engines[5].poll(&mut late) else { panic!("the fence goes on") };
    names_the_dead(failed);
    world.settle();
    let started = world.engines[5].start_free(window);
    names_the_dead(bounded(world, 5, started));
    for (rank, sync) in others.into_iter().filter(|(rank, _)| *rank != 2) {
        names_the_dead(bounded(world, rank, Ok(sync)));
        let started = world.engines[rank as usize].start_free(window);
        names_the_dead(bounded(world, rank, started));
    }
}

/// Who frees a window without the others gives none of the library's memory back: those who have not heard of the death may
/// still access it, and a fabric in software goes on with what it has begun.
///
/// Shows: MPI_Win_free, MPI_Win_allocate.
pub fn memory_of_a_window_that_is_freed_alone<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    kill: impl FnOnce(),
) {
    // More than any allocator takes back without giving it to the system; nobody touches it.
    const LEN: usize = 1 << 26;
    let window = world.allocate(LEN);
    let (base, _) = world.engines[1].window_memory(window).unwrap();
    kill();
    world.settle();
    let started = world.engines[1].start_free(window);
    names_the_dead(bounded(world, 1, started));
    assert!(world.engines[1].window_memory(window).is_none(), "it is still there");
    assert!(is_mapped(base.addr(), LEN), "its memory was given back");
}

/// Whether all of this is memory of the process.
pub fn is_mapped(base: usize, len: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ranges = maps.lines().filter_map(|line| line.split(' ').next()?.split_once('-'));
    let mut ranges = ranges.map(|(from, to)| [from, to].map(|at| usize::from_str_radix(at, 16).unwrap()));
    ranges.any(|[from, to]| from <= base && base + len <= to)
}
