//! A rank dies: its peers get errors that name it, nothing hangs, and they go on with each other.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::FenceAssert;
use rma_core::error::RmaError;
use rma_core::ids::Rank;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::pattern;
use crate::World;

pub(crate) fn names_the_dead(result: Result<(), RmaError>) {
    match result {
        Err(RmaError::Peer { target: Rank(2), .. }) => {}
        other => panic!("an error about rank 2 was due, not {other:?}"),
    }
}

/// Rank 2 dies by `kill` while rank 0 has operations under way to it in a lock epoch, and everybody is in
/// a fence afterwards. `world` has three ranks.
///
/// Shows: MPI_ERR_OTHER.
pub fn errors_not_hangs<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let (window, fenced) = (world.allocate(1 << 16), world.allocate(64));
    let data = pattern(1 << 15, 1);
    let one = 1u64.to_le_bytes();
    let mut got = vec![0; 1 << 15];
    let mut old = [0; 8];
    world.lock(0, window, 2, Exclusive).unwrap();
    world.put(0, window, 2, 0, &data).unwrap();
    world.flush(0, window, 2).unwrap();
    kill();
    // Some of these may be refused at once; what was accepted fails at the flush or the unlock.
    let posted = [
        world.put(0, window, 2, 0, &data),
        world.get(0, window, 2, 0, &mut got),
        world.accumulate(0, window, 2, 0, &one, Dtype::U64, ReduceOp::Sum),
        world.get_accumulate(0, window, 2, 0, &one, &mut old, Dtype::U64, ReduceOp::Sum),
    ];
    for result in posted.into_iter().filter(Result::is_err) {
        names_the_dead(result);
    }
    names_the_dead(world.flush(0, window, 2));
    names_the_dead(world.unlock(0, window, 2));
    // The living go on with each other.
    world.lock(0, window, 1, Shared).unwrap();
    world.put(0, window, 1, 0, &data).unwrap();
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.memory(1, window)[..1 << 15], data);
    // A fence cannot complete without the dead.
    let fence = world.engines[0].start_fence(fenced, FenceAssert::default());
    names_the_dead(world.wait(0, fence));
    assert_eq!(world.engines[0].elements_in_use(), (0, 0));
}

/// Rank 2 dies by `kill` while rank 0 waits for its post, and for its COMPLETE. `world` has three ranks.
///
/// Shows: MPI_Win_complete, MPI_Win_wait, MPI_ERR_OTHER.
pub fn posts_and_completes_of_the_dead<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    kill: impl FnOnce(),
) {
    let (window, owed) = (world.allocate(1 << 12), world.allocate(64));
    let (data, small) = (pattern(1 << 12, 1), pattern(8, 2));
    world.expose(0, window, &[1, 2]).unwrap();
    world.start(0, window, &[1, 2]).unwrap();
    for target in [1, 2] {
        world.put(0, window, target, 0, &data).unwrap();
    }
    // An epoch of which everything is left when it has returned.
    world.start(0, owed, &[2]).unwrap();
    world.put(0, owed, 2, 0, &small).unwrap();
    world.complete(0, owed).unwrap();
    let complete = world.engines[0].start_complete(window).unwrap();
    let wait = world.engines[0].start_wait(window).unwrap();
    world.settle();
    kill();
    // The living have their part of both epochs.
    world.expose(1, window, &[0]).unwrap();
    world.start(1, window, &[0]).unwrap();
    world.put(1, window, 0, 0, &small).unwrap();
    world.complete(1, window).unwrap();
    world.wait_exposed(1, window).unwrap();
    for result in world.wait_each(vec![(0, complete), (0, wait)]) {
        names_the_dead(result);
    }
    assert_eq!(world.memory(1, window), data);
    assert_eq!(world.memory(0, window)[..8], small);
    // Both epochs are over, and the next ones are as good as any.
    world.expose(1, window, &[0]).unwrap();
    world.start(0, window, &[1]).unwrap();
    world.put(0, window, 1, 0, &small).unwrap();
    world.complete(0, window).unwrap();
    world.wait_exposed(1, window).unwrap();
    // Who is known to be dead is waited for no more, and what was owed to it is reported.
    world.start(0, owed, &[1, 2]).unwrap();
    world.expose(1, owed, &[0]).unwrap();
    names_the_dead(world.complete(0, owed));
    world.wait_exposed(1, owed).unwrap();
    world.expose(0, owed, &[2]).unwrap();
    names_the_dead(world.wait_exposed(0, owed));
    assert_eq!(world.engines[0].elements_in_use(), (0, 0));
}
