//! One of the living frees the window after a death, while another one waits for something of it: it never comes, and who waits
//! is told. Rank 2 of four dies in each body, rank 1 frees, rank 0 waits.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::engine::{PostAssert, StartAssert, SyncCall};
use rma_core::error::RmaError;
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::provider::Endpoint;

use super::deaths::names_the_dead;
use super::deaths_calls::bounded;
use crate::World;

/// Steps after which a call must have ended, and between two times that it is asked who is there.
const BOUND: usize = 20_000;
const STEPS_PER_INQUIRY: usize = 100;

/// A call of rank 0, to its end within the bound.
fn waited<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    started: Result<SyncCall, RmaError>,
) -> Result<(), RmaError> {
    let mut sync = started?;
    for step in 0..BOUND {
        if let Poll::Ready(done) = world.engines[0].poll(&mut sync) {
            return done;
        }
        world.step();
        if step % STEPS_PER_INQUIRY == 0 && world.engines[0].wants_time() {
            world.engines[0].inquire();
        }
    }
    panic!("rank 0 hangs in {:?}, waiting for {:?}", sync.call(), sync.waiting_for());
}

/// The death comes to be known, and rank 1 frees.
fn die_and_free<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId, kill: impl FnOnce()) {
    die(world, kill);
    let started = world.engines[1].start_free(window);
    names_the_dead(bounded(world, 1, started));
}

fn names_who_left(result: Result<(), RmaError>) {
    match result {
        Err(RmaError::Peer { target: Rank(1), .. }) => {}
        other => panic!("an error about rank 1 was due, not {other:?}"),
    }
}

/// Rank 0 can free what is left.
fn is_freed_by_the_last<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    let started = world.engines[0].start_free(window);
    names_the_dead(waited(world, started));
    assert_eq!(world.engines[0].elements_in_use(), (0, 0));
    let malformed: u64 = world.engines.iter().map(|engine| engine.counters().malformed_packets).sum();
    assert_eq!(malformed, 0, "questions and answers are no mistakes");
}

fn of<E: Endpoint, B: Bootstrap>(world: &World<E, B>, rank: u32) -> Group {
    Group::new(&[Rank(rank)], world.engines[0].size()).unwrap()
}

/// In the line of a lock that somebody holds.
///
/// Shows: MPI_Win_lock, MPI_Win_free.
pub fn who_waits_for_a_lock<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    world.lock(3, window, 1, Exclusive).unwrap();
    world.put(3, window, 1, 0, &[1; 8]).unwrap();
    world.flush(3, window, 1).unwrap();
    world.lock(0, window, 1, Exclusive).unwrap();
    world.put(0, window, 1, 8, &[2; 8]).unwrap();
    let unlock = world.engines[0].start_unlock(window, Rank(1));
    world.settle();
    die_and_free(world, window, kill);
    names_who_left(waited(world, unlock));
    is_freed_by_the_last(world, window);
}

/// For a post, with a get that needs it.
///
/// Shows: MPI_Win_start, MPI_Win_complete.
pub fn who_waits_for_a_post<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    let group = of(world, 1);
    let mut got = [0; 8];
    let start = world.engines[0].start_start(window, &group, StartAssert::default());
    waited(world, start).unwrap();
    world.get(0, window, 1, 0, &mut got).unwrap();
    die_and_free(world, window, kill);
    let complete = world.engines[0].start_complete(window);
    names_who_left(waited(world, complete));
    is_freed_by_the_last(world, window);
}

/// For a post, behind a complete that has returned: free waits for what is left.
///
/// Shows: MPI_Win_complete, MPI_Win_free.
pub fn who_has_left_a_put<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    let group = of(world, 1);
    let start = world.engines[0].start_start(window, &group, StartAssert::default());
    waited(world, start).unwrap();
    world.put(0, window, 1, 0, &[1; 8]).unwrap();
    let complete = world.engines[0].start_complete(window);
    waited(world, complete).unwrap();
    die_and_free(world, window, kill);
    is_freed_by_the_last(world, window);
}

/// For a COMPLETE, in an epoch that began before the death.
///
/// Shows: MPI_Win_post, MPI_Win_wait.
pub fn who_waits_for_a_complete<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    let group = of(world, 1);
    let post = world.engines[0].start_post(window, &group, PostAssert::default());
    waited(world, post).unwrap();
    world.settle();
    die_and_free(world, window, kill);
    let wait = world.engines[0].start_wait(window);
    names_who_left(waited(world, wait));
    is_freed_by_the_last(world, window);
}

/// The same where it posts when the other has freed.
///
/// Shows: MPI_Win_post, MPI_Win_test.
pub fn who_posts_late<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    let group = of(world, 1);
    die_and_free(world, window, kill);
    let post = world.engines[0].start_post(window, &group, PostAssert::default());
    waited(world, post).unwrap();
    for step in 0..BOUND {
        match world.engines[0].test(window) {
            Ok(false) => {
                world.step();
            }
            ended => {
                names_who_left(ended.map(drop));
                return is_freed_by_the_last(world, window);
            }
        }
        if step % STEPS_PER_INQUIRY == 0 {
            world.engines[0].inquire();
        }
    }
    panic!("rank 0 tests for ever");
}

/// The death comes to be known to those who are looked at here.
fn die<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    kill();
    world.settle();
    // Where the fabric says nothing of it, whoever has to do with the dead finds it out.
    for rank in [0, 1] {
        let barrier = world.engines[rank].start_barrier();
        names_the_dead(bounded(world, rank as u32, barrier));
    }
}

/// For a COMPLETE of one that leaves the job with the window: its memory is served as before.
///
/// Shows: MPI_Win_wait.
pub fn who_waits_for_one_that_leaves<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    kill: impl FnOnce(),
) {
    let window = world.allocate(64);
    let group = of(world, 1);
    let post = world.engines[0].start_post(window, &group, PostAssert::default());
    waited(world, post).unwrap();
    world.lock(0, window, 1, Shared).unwrap();
    world.put(0, window, 1, 0, &[3; 8]).unwrap();
    world.flush(0, window, 1).unwrap();
    die(world, kill);
    world.engines[1].leave();
    let wait = world.engines[0].start_wait(window);
    names_who_left(waited(world, wait));
    world.put(0, window, 1, 8, &[4; 8]).unwrap();
    world.unlock(0, window, 1).unwrap();
    world.lock(3, window, 1, Exclusive).unwrap();
    world.put(3, window, 1, 16, &[5; 8]).unwrap();
    world.unlock(3, window, 1).unwrap();
    assert_eq!(world.memory(1, window)[..24], [[3; 8], [4; 8], [5; 8]].concat());
    is_freed_by_the_last(world, window);
}

/// What a complete has left behind for a post comes of one that has left the job, too.
///
/// Shows: MPI_Win_complete, MPI_Win_wait.
pub fn what_was_left_behind_comes<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    let group = of(world, 0);
    let start = world.engines[1].start_start(window, &group, StartAssert::default());
    bounded(world, 1, start).unwrap();
    world.put(1, window, 0, 0, &[6; 8]).unwrap();
    let complete = world.engines[1].start_complete(window);
    bounded(world, 1, complete).unwrap();
    die(world, kill);
    world.engines[1].leave();
    let group = of(world, 1);
    let post = world.engines[0].start_post(window, &group, PostAssert::default());
    waited(world, post).unwrap();
    world.engines[0].inquire();
    let wait = world.engines[0].start_wait(window);
    waited(world, wait).unwrap();
    assert_eq!(world.memory(0, window)[..8], [6; 8]);
}

/// Who has the window is not taken for one who has freed it, however often it is asked.
///
/// Shows: MPI_Win_post, MPI_Win_complete.
pub fn who_is_late_is_waited_for<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, kill: impl FnOnce()) {
    let window = world.allocate(64);
    let group = of(world, 1);
    let post = world.engines[0].start_post(window, &group, PostAssert::default());
    waited(world, post).unwrap();
    die(world, kill);
    for _ in 0..20 {
        world.engines[0].inquire();
        world.settle();
    }
    assert!(!world.engines[0].test(window).unwrap(), "nobody has completed");
    let group = of(world, 0);
    let start = world.engines[1].start_start(window, &group, StartAssert::default());
    bounded(world, 1, start).unwrap();
    world.put(1, window, 0, 0, &[7; 8]).unwrap();
    let complete = world.engines[1].start_complete(window);
    bounded(world, 1, complete).unwrap();
    let wait = world.engines[0].start_wait(window);
    waited(world, wait).unwrap();
    assert_eq!(world.memory(0, window)[..8], [7; 8]);
}
