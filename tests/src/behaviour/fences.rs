//! fence epochs.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::FenceAssert;
use rma_core::error::{RmaError, Rule};
use rma_core::lock::LockType::Exclusive;
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::{pattern, Make};
use crate::Spec;

const NONE: FenceAssert =
    FenceAssert { no_precede: false, no_succeed: false, no_store: false, no_put: false };

/// After a fence every rank sees what every rank did, large and small, native and not.
///
/// Shows: MPI_Win_fence, MPI_Put, MPI_Get, MPI_Accumulate, rule: fence-completes-origin, rule: fence-completes-target, rule: target-completion-fence, MPI-4.1 13.5.1.
pub fn everybody_sees_everything<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for ranks in [1, 2, 3, 5] {
        let mut world = make(Spec::ranks(ranks));
        let window = world.allocate(64 * 1024);
        world.fence(window, FenceAssert { no_precede: true, ..NONE }).unwrap();
        for round in 0..3u64 {
            let data: Vec<_> =
                world.ranks().map(|rank| pattern(5000, round * 100 + u64::from(rank))).collect();
            let one = 1u64.to_le_bytes();
            for rank in world.ranks() {
                for target in world.ranks() {
                    let disp = 8 + 5000 * u64::from(rank);
                    world.put(rank, window, target, disp, &data[rank as usize]).unwrap();
                    world.accumulate(rank, window, target, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
                }
            }
            world.fence(window, NONE).unwrap();
            for target in world.ranks() {
                assert_eq!(world.word(target, window, 0), u64::from(ranks) * (round + 1));
                assert_eq!(world.memory(target, window)[8..8 + 5000 * ranks as usize], data.concat());
            }
            let mut got = vec![vec![0; 5000]; ranks as usize];
            for rank in world.ranks() {
                let target = (rank + 1) % ranks;
                world.get(rank, window, target, 8, &mut got[rank as usize]).unwrap();
            }
            world.fence(window, NONE).unwrap();
            assert!(got.iter().all(|bytes| bytes == &data[0]));
        }
        world.fence(window, FenceAssert { no_succeed: true, ..NONE }).unwrap();
        world.check_idle();
    }
}

/// Fences without operations between them, with every assertion, in any number.
///
/// Shows: MPI_Win_fence, MPI_MODE_NOSUCCEED, rule: fence-closes, rule: fence-no-succeed, MPI-4.1 13.5.1, MPI-4.1 13.5.5.
pub fn fences_in_a_row<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    for index in 0..24u32 {
        let assert = FenceAssert {
            no_precede: index % 2 == 0,
            no_succeed: index % 3 == 0,
            no_store: index % 5 == 0,
            no_put: index % 7 == 0,
        };
        world.fence(window, assert).unwrap();
    }
    // Operations posted while the barrier of a NOPRECEDE fence still runs wait for it.
    let assert = FenceAssert { no_precede: true, ..NONE };
    let value = 4u64.to_le_bytes();
    let sync = world.engines[0].start_fence(window, assert);
    world.wait(0, sync).unwrap();
    world.put(0, window, 1, 0, &value).unwrap();
    world.settle();
    assert_eq!(world.word(1, window, 0), 0, "rank 1 has not reached the fence");
    let calls = (1..3).map(|rank| (rank, world.engines[rank as usize].start_fence(window, assert).unwrap()));
    let calls = calls.collect();
    world.wait_all(calls).unwrap();
    world.fence(window, FenceAssert { no_succeed: true, ..NONE }).unwrap();
    assert_eq!(world.word(1, window, 0), 4);
    // NOSUCCEED has begun no epoch: an operation behind it is in none.
    let refused = world.put(0, window, 1, 0, &value).unwrap_err();
    assert!(matches!(refused, RmaError::Epoch { rule: Rule::NoEpoch, .. }), "{refused:?}");
    world.check_idle();
}

/// A fence that no operation follows may be followed by a lock.
///
/// Shows: rule: mode-change, MPI_Win_lock, MPI_Win_fence.
pub fn fence_then_lock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    world.fence(window, NONE).unwrap();
    world.lock(0, window, 1, Exclusive).unwrap();
    let value = 3u64.to_le_bytes();
    world.put(0, window, 1, 0, &value).unwrap();
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.word(1, window, 0), 3);
    world.fence(window, FenceAssert { no_succeed: true, ..NONE }).unwrap();
    world.check_idle();
}
