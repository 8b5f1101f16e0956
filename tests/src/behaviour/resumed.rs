//! Calls that took longer than their callers wait, and are called again; and windows that come while others go.

use rma_core::bootstrap::Bootstrap;
use rma_core::engine::SyncCall;
use rma_core::error::{RmaError, Rule};
use rma_core::ids::Rank;
use rma_core::lock::LockType::Exclusive;
use rma_core::provider::Endpoint;

use super::pscw::is_stuck;
use super::{pattern, Make};
use crate::Spec;

fn is_busy<T: std::fmt::Debug>(result: &Result<T, RmaError>) -> bool {
    matches!(result, Err(RmaError::Epoch { rule: Rule::Busy, .. }))
}

/// An unlock that its caller leaves goes on, whoever waits for it, and is called again to end its epoch.
///
/// Shows: MPI_Win_unlock.
pub fn an_unlock_is_called_again<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    for is_left_till_the_end in [false, true] {
        world.lock(1, window, 1, Exclusive).unwrap();
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &[7; 8]).unwrap();
        let mut unlock = world.engines[0].start_unlock(window, Rank(1)).unwrap();
        assert!(is_stuck(&mut world, 0, &mut unlock));
        assert!(is_busy(&world.engines[0].start_unlock(window, Rank(1))), "somebody is in it");
        world.engines[0].abandon(&unlock);
        let mut again = world.engines[0].start_unlock(window, Rank(1)).unwrap();
        assert!(is_stuck(&mut world, 0, &mut again));
        assert!(is_busy(&world.engines[0].start_unlock(window, Rank(1))), "somebody is in it again");
        if is_left_till_the_end {
            world.engines[0].abandon(&again);
        }
        world.unlock(1, window, 1).unwrap();
        // The lock is given back whether somebody waits for that or not.
        world.lock(2, window, 1, Exclusive).unwrap();
        world.flush(2, window, 1).unwrap();
        world.unlock(2, window, 1).unwrap();
        if is_left_till_the_end {
            again = world.engines[0].start_unlock(window, Rank(1)).unwrap();
        }
        world.wait_all(vec![(0, again)]).unwrap();
        assert_eq!(world.memory(1, window)[..8], [7; 8]);
        world.lock(0, window, 1, Exclusive).unwrap();
        world.unlock(0, window, 1).unwrap();
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// So does a complete whose operations wait for a post.
///
/// Shows: MPI_Win_complete.
pub fn a_complete_is_called_again<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(1024);
    for seed in 0..2 {
        let data = pattern(1024, seed);
        world.start(0, window, &[1]).unwrap();
        world.put(0, window, 1, 0, &data).unwrap();
        let mut complete = world.engines[0].start_complete(window).unwrap();
        assert!(is_stuck(&mut world, 0, &mut complete));
        assert!(is_busy(&world.engines[0].start_complete(window)), "somebody is in it");
        world.engines[0].abandon(&complete);
        world.expose(1, window, &[0]).unwrap();
        // Nobody waits for it, and the target gets what it waits for.
        world.wait_exposed(1, window).unwrap();
        assert_eq!(world.memory(1, window), data);
        let again = world.engines[0].start_complete(window).unwrap();
        world.wait_all(vec![(0, again)]).unwrap();
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// Ranks make a window while one that they free is gone at some and not at others: at each its own thread frees it.
///
/// Shows: MPI_Win_free, MPI_Win_allocate, MPI-4.1 11.6.2.
pub fn a_window_comes_while_another_goes<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let kept = world.allocate(64);
    let mut going = world.allocate(64);
    for turn in 0..4_u32 {
        let mut frees: Vec<_> = world
            .ranks()
            .map(|rank| (rank, world.engines[rank as usize].start_free(going).unwrap()))
            .collect();
        // As soon as one rank has come to its end, nobody looks at the others' any more.
        frees.rotate_left(turn as usize % 3);
        let mut steps = 0;
        let over = loop {
            let is_over =
                |(rank, free): &mut (u32, SyncCall)| world.engines[*rank as usize].poll(free).is_ready();
            if let Some(over) = frees.iter_mut().position(is_over) {
                break over;
            }
            world.step();
            steps += 1;
            assert!(steps < STEPS_MAX, "a free that all have called is not over");
        };
        let _over = frees.remove(over);
        let made: Vec<_> = world
            .ranks()
            .map(|rank| (rank, world.engines[rank as usize].start_allocate(64, 1).unwrap()))
            .collect();
        let ids: Vec<_> = made.iter().map(|(_, (id, _))| *id).collect();
        assert!(ids.iter().all(|id| *id == ids[0] && *id != kept), "{ids:?}");
        world.wait_all(made.into_iter().map(|(rank, (_, sync))| (rank, sync)).collect()).unwrap();
        world.wait_all(frees).unwrap();
        world.lock(0, ids[0], 1, Exclusive).unwrap();
        world.put(0, ids[0], 1, 0, &[turn as u8; 8]).unwrap();
        world.unlock(0, ids[0], 1).unwrap();
        going = ids[0];
    }
    world.free(going).unwrap();
    world.free(kept).unwrap();
    world.check_idle();
}

/// More than any free takes.
const STEPS_MAX: u32 = 1_000_000;
