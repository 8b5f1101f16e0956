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

fn names_the_dead(result: Result<(), RmaError>) {
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
