//! Errors of operations whose target's element was given up before anybody asked: each is reported by the next call that
//! covers its target, and by none that does not.

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::engine::FenceAssert;
use rma_core::error::{ErrorClass, RmaError};
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType::Shared;
use rma_core::provider::Endpoint;

use super::dynamic::{attach, class, dynamic, Region};
use super::Make;
use crate::{Spec, World};

/// As few target elements as there can be, so that another rank's operation wins an element back.
fn one_target(config: &mut Config) {
    (config.target_pool, config.target_pool_global) = (1, 0);
}

/// Where nobody attaches anything.
const NOWHERE: u64 = 8;

/// What is put: operations refer to it for as long as they like.
static ONE: [u8; 8] = 1u64.to_le_bytes();

/// A dynamic window, and a region of each rank that is attached to it.
fn attached<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>) -> (WindowId, Vec<Region>) {
    let window = dynamic(world);
    let mut regions: Vec<_> = world.ranks().map(|_| Region::new(64)).collect();
    for (rank, region) in regions.iter_mut().enumerate() {
        attach(world, rank as u32, window, region.base(), 64).unwrap();
    }
    (window, regions)
}

/// Puts of rank 0 to these ranks, and then to all of the others, so that no element is left that has an error.
fn put_nowhere<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    window: WindowId,
    regions: &mut [Region],
    bad: &[u32],
) {
    for &target in bad {
        world.put(0, window, target, NOWHERE, &ONE).unwrap();
    }
    for target in (1..regions.len() as u32).filter(|target| !bad.contains(target)) {
        world.put(0, window, target, regions[target as usize].address(), &ONE).unwrap();
    }
}

fn lock_all<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
}

fn unlock_all<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) -> Result<(), RmaError> {
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started)
}

/// Every call of these after which nothing may be left to report.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Flush,
    FlushAll,
    FlushTargets,
    Nothing,
}

/// Two operations to ranks that are locked one by one have failed, and the elements of both serve others by now. Each
/// rank's flush, or its unlock, reports its own.
///
/// Shows: MPI_Win_unlock, MPI_Win_flush, MPI_Win_flush_all, MPI_ERR_RMA_RANGE, seed: RESTORE_TARGET_ELEM_RESOURCES.
pub fn every_locks_error_is_reported<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for ends in [Ends::Flush, Ends::FlushAll, Ends::FlushTargets, Ends::Nothing] {
        let mut world = make(Spec::ranks(5).with(one_target));
        let (window, mut regions) = attached(&mut world);
        (1..5).for_each(|target| world.lock(0, window, target, Shared).unwrap());
        put_nowhere(&mut world, window, &mut regions, &[1, 2]);
        match ends {
            Ends::Flush => {
                for target in [2, 1] {
                    let flushed = world.flush(0, window, target);
                    assert!(names(&flushed, target), "{flushed:?}");
                }
            }
            Ends::FlushAll => {
                let started = world.engines[0].start_flush_all(window);
                assert_eq!(class(world.wait(0, started)), ErrorClass::RmaRange);
            }
            Ends::FlushTargets => {
                for target in [3, 1, 2] {
                    let started = world.engines[0].start_flush_targets(window, &[Rank(4), Rank(target)]);
                    let flushed = world.wait(0, started);
                    assert!(
                        if target == 3 { flushed.is_ok() } else { names(&flushed, target) },
                        "{flushed:?}"
                    );
                }
            }
            Ends::Nothing => {}
        }
        for target in [2, 1, 3, 4] {
            let unlocked = world.unlock(0, window, target);
            let is_left = matches!(ends, Ends::Nothing) && target < 3;
            assert!(
                if is_left { names(&unlocked, target) } else { unlocked.is_ok() },
                "{ends:?}: {unlocked:?}"
            );
        }
        assert_eq!([1, 2, 3, 4].map(|rank| regions[rank].0[0]), [0, 0, 1, 1]);
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// Whether an access to memory that is not attached at this rank was reported.
fn names(result: &Result<(), RmaError>, rank: u32) -> bool {
    matches!(result, Err(RmaError::NotAttached { target, address: NOWHERE, .. }) if *target == Rank(rank))
}

/// The rank has another element by now, and everything that was posted to that is well.
///
/// Shows: MPI_Win_flush, MPI_ERR_RMA_RANGE, seed: RESTORE_TARGET_ELEM_RESOURCES.
pub fn errors_outlast_the_next_element<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for is_all in [false, true] {
        let mut world = make(Spec::ranks(5).with(one_target));
        let (window, mut regions) = attached(&mut world);
        match is_all {
            true => lock_all(&mut world, window),
            false => (1..5).for_each(|target| world.lock(0, window, target, Shared).unwrap()),
        }
        put_nowhere(&mut world, window, &mut regions, &[1, 2]);
        for target in [2, 1] {
            let address = regions[target as usize].address();
            world.put(0, window, target, address, &ONE).unwrap();
            let started = world.engines[0].flush_request(window, Some(Rank(target)), false);
            let mut request = started.unwrap();
            let reported = world.wait_request(0, &mut request);
            assert!(names(&reported, target), "{reported:?}");
            let flushed = world.flush(0, window, target);
            assert!(names(&flushed, target), "a request takes nothing away: {flushed:?}");
            world.put(0, window, target, address + 8, &ONE).unwrap();
            assert_eq!(world.flush(0, window, target), Ok(()));
            assert_eq!(regions[target as usize].0[..2], [1, 1]);
        }
        match is_all {
            true => unlock_all(&mut world, window).unwrap(),
            false => (1..5).for_each(|target| world.unlock(0, window, target).unwrap()),
        }
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// The same in epochs of all ranks, of which each flush is about one, and the end about all.
///
/// Shows: MPI_Win_unlock_all, MPI_Win_fence, MPI_Win_flush, MPI_ERR_RMA_RANGE, seed: RESTORE_TARGET_ELEM_RESOURCES.
pub fn errors_of_epochs_of_all_ranks<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(5).with(one_target));
    let (window, mut regions) = attached(&mut world);
    lock_all(&mut world, window);
    put_nowhere(&mut world, window, &mut regions, &[1, 2, 3]);
    for target in [2, 3] {
        let flushed = world.flush(0, window, target);
        assert!(names(&flushed, target), "{flushed:?}");
        assert_eq!(world.flush(0, window, target), Ok(()));
    }
    let unlocked = unlock_all(&mut world, window);
    assert!(names(&unlocked, 1), "{unlocked:?}");
    let fences = [FenceAssert::default(), FenceAssert { no_succeed: true, ..FenceAssert::default() }];
    world.fence(window, fences[0]).unwrap();
    put_nowhere(&mut world, window, &mut regions, &[1, 2]);
    assert_eq!(class(world.fence(window, fences[0])), ErrorClass::RmaRange);
    assert_eq!(world.fence(window, fences[1]), Ok(()));
    world.free(window).unwrap();
    world.check_idle();
}

/// More ranks have failed than are kept apart: no call about any of them is a success before one about all of them has
/// reported it.
///
/// Shows: MPI_Win_flush, MPI_Win_flush_all, MPI_Win_unlock, MPI_ERR_RMA_RANGE.
pub fn errors_of_many_ranks<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    const BAD: [u32; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
    for is_all in [false, true] {
        let mut world = make(Spec::ranks(14).with(one_target));
        let (window, mut regions) = attached(&mut world);
        match is_all {
            true => lock_all(&mut world, window),
            false => (1..14).for_each(|target| world.lock(0, window, target, Shared).unwrap()),
        }
        put_nowhere(&mut world, window, &mut regions, &BAD);
        // All of them are there, so that they are more than are kept apart.
        world.settle();
        for target in BAD {
            assert_eq!(class(world.flush(0, window, target)), ErrorClass::RmaRange, "{target}");
        }
        let started = world.engines[0].start_flush_all(window);
        assert_eq!(class(world.wait(0, started)), ErrorClass::RmaRange, "that of all of them");
        for target in 1..14 {
            assert_eq!(world.flush(0, window, target), Ok(()));
        }
        put_nowhere(&mut world, window, &mut regions, &BAD);
        match is_all {
            true => assert_eq!(class(unlock_all(&mut world, window)), ErrorClass::RmaRange),
            false => {
                for target in 1..14 {
                    let unlocked = world.unlock(0, window, target);
                    assert!(target > 11 || class(unlocked) == ErrorClass::RmaRange, "{target}");
                }
            }
        }
        lock_all(&mut world, window);
        assert_eq!(unlock_all(&mut world, window), Ok(()), "nothing is left");
        world.free(window).unwrap();
        world.check_idle();
    }
}
