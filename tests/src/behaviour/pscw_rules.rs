//! post, start, complete, wait and test: what they cost, and what happens to calls that do not fit.

use rma_core::bootstrap::Bootstrap;
use rma_core::counters::Counters;
use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, PostAssert, StartAssert, SyncCall};
use rma_core::error::{Call, RmaError, Rule};
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::path::Path;
use rma_core::provider::Endpoint;
use rma_core::state::WindowState;

use super::pscw::is_stuck;
use super::{pattern, Make};
use crate::{Spec, World};

/// What something cost rank 0; round trips agree with the virtual clock, where there is one.
fn cost<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, part: impl FnOnce(&mut World<E, B>)) -> Counters {
    world.settle();
    let (before, start) = (world.counters(0), world.now_ns());
    part(world);
    let counters = world.counters(0).since(&before);
    if let (Some(start), Some(end)) = (start, world.now_ns()) {
        assert_eq!((end - start) / 2000, counters.round_trips, "round trips by the clock: {counters:?}");
    }
    counters
}

/// One epoch of rank 0 to all others, `body` within it: the cost at the origin, from start to the return of
/// complete, and the packets of each target.
fn epoch<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    window: WindowId,
    body: impl FnOnce(&mut World<E, B>),
) -> (Counters, Vec<u64>) {
    let targets: Vec<u32> = world.ranks().skip(1).collect();
    let before: Vec<_> = targets.iter().map(|&target| told(&world.counters(target))).collect();
    for &target in &targets {
        world.expose(target, window, &[0]).unwrap();
    }
    let origin = cost(world, |world| {
        world.start(0, window, &targets).unwrap();
        body(world);
        world.complete(0, window).unwrap();
    });
    for &target in &targets {
        world.wait_exposed(target, window).unwrap();
    }
    let sent = targets.iter().zip(before).map(|(&target, before)| told(&world.counters(target)) - before);
    let sent = sent.collect();
    world.settle();
    (origin, sent)
}

/// Packets and native operations; and neighbours' words, each of which takes the place of a packet.
fn told(counters: &Counters) -> u64 {
    counters.out() + counters.words_told
}

/// That so many round trips were waited for. Where time is real, what is waited for may be there already.
fn waits<E: Endpoint, B: Bootstrap>(world: &World<E, B>, origin: &Counters, round_trips: u64) {
    let waited = origin.round_trips;
    assert!(waited == round_trips || (world.now_ns().is_none() && waited < round_trips), "{origin:?}");
}

/// Makes a window whose peers are known, so that no connection is counted.
fn warm<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, len: usize) -> WindowId {
    let window = world.allocate(len);
    epoch(world, window, |_| ());
    window
}

fn native_put<E: Endpoint, B: Bootstrap>(world: &World<E, B>, window: WindowId) -> bool {
    world.engines[0].window_paths(window, Dtype::U8).map(|paths| paths[0]) == Some(Path::Native)
}

/// A post that comes between start and the first operation is seen by that, where ranks tell each other by words, and one
/// that comes behind complete by complete, without progress.
///
/// Shows: MPI_Win_start, MPI_Win_complete, MPI-4.1 13.5.2, seed: PSCW.
pub fn posts_are_seen_by_who_wants_them<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = warm(&mut world, 64);
    let (data, mut result) = (pattern(8, 1), [0; 8]);
    // Who was accessed before is remembered, where its part of the window is known without being asked for.
    let mut needs_element = true;
    for _ in 0..2 {
        world.expose(1, window, &[0]).unwrap();
        world.start(0, window, &[1]).unwrap();
        world.put(0, window, 1, 8, &data).unwrap();
        needs_element = world.engines[0].elements_in_use().1 > 0;
        world.complete(0, window).unwrap();
        world.wait_exposed(1, window).unwrap();
    }
    let are_near = world.are_neighbours(0, 1, window) && world.are_neighbours(1, 0, window);
    let is_seen = native_put(&world, window) && are_near && !needs_element;
    let group = world.group(&[0]);
    let post = |world: &mut World<E, B>| {
        let mut post = world.engines[1].start_post(window, &group, PostAssert::default()).unwrap();
        assert!(world.engines[1].poll(&mut post).is_ready());
    };
    world.start(0, window, &[1]).unwrap();
    post(&mut world);
    world.put(0, window, 1, 0, &data).unwrap();
    if is_seen {
        assert_eq!(world.engines[0].elements_in_use().1, 0, "as if it had come before start");
        assert_eq!(world.memory(1, window)[..8], data);
    }
    world.complete(0, window).unwrap();
    world.wait_exposed(1, window).unwrap();
    world.start(0, window, &[1]).unwrap();
    world.get(0, window, 1, 0, &mut result).unwrap();
    let mut complete = world.engines[0].start_complete(window).unwrap();
    assert!(world.engines[0].poll(&mut complete).is_pending());
    post(&mut world);
    assert!(world.engines[0].poll(&mut complete).is_ready() || !is_seen);
    world.wait_all(vec![(0, complete)]).unwrap();
    world.wait_exposed(1, window).unwrap();
    assert_eq!(result[..], data);
    world.check_idle();
}

/// Neighbours' calls that are over when they return, and what keeps them from it: nothing has happened then.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait, seed: PSCW.
pub fn what_is_over_at_once<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = warm(&mut world, 64);
    let words = |world: &World<E, B>| world.counters(0).words_told;
    let before = words(&world);
    epoch(&mut world, window, |_| ());
    // Others send packets, or one of the two does.
    if words(&world) != before + 2 {
        return;
    }
    let [origins, targets, all] = [&[0][..], &[1, 2], &[0, 1, 2]].map(|ranks| world.group(ranks));
    let state = |world: &World<E, B>| world.engines[0].window_state(window);
    for turn in 0..3 {
        assert!(!world.engines[0].complete_at_once(window), "there is no epoch");
        assert_eq!(world.engines[1].wait_at_once(window), None, "nor another");
        assert!(
            !world.engines[0].start_at_once(window, &all) && !world.engines[1].post_at_once(window, &all)
        );
        assert_eq!(state(&world), Some(WindowState::Unset), "a rank's own part is the usual way's");
        assert!(world.engines[0].start_at_once(window, &targets));
        assert!(!world.engines[0].start_at_once(window, &targets), "it is open");
        assert!(!world.engines[0].complete_at_once(window), "nobody has posted");
        for target in [1, 2] {
            assert!(world.engines[target].post_at_once(window, &origins));
            assert!(!world.engines[target].post_at_once(window, &origins), "it is exposed");
            assert_eq!(world.engines[target].wait_at_once(window), Some(false), "it may be told soon");
        }
        let before = words(&world);
        if turn > 0 {
            assert!(world.engines[0].complete_at_once(window));
        } else {
            world.complete(0, window).unwrap();
        }
        assert_eq!((words(&world), state(&world)), (before + 2, Some(WindowState::Unset)), "a word each");
        assert_eq!(world.engines[1].wait_at_once(window), Some(true));
        world.wait_exposed(2, window).unwrap();
    }
    left_behind_is_not_over_at_once(&mut world, window);
    world.check_idle();
}

/// What a complete has left behind is done first, by progress.
fn left_behind_is_not_over_at_once<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    let [origins, targets] = [0, 1].map(|rank| world.group(&[rank]));
    world.start(0, window, &[1]).unwrap();
    world.put(0, window, 1, 0, &pattern(8, 5)).unwrap();
    assert!(!world.engines[0].complete_at_once(window), "the put is kept");
    world.complete(0, window).unwrap();
    assert!(!world.engines[0].start_at_once(window, &targets));
    assert!(world.engines[0].post_at_once(window, &targets), "its own part may be exposed meanwhile");
    assert_eq!(world.engines[0].wait_at_once(window), None, "the other waits for what progress has to send");
    assert!(world.engines[1].post_at_once(window, &origins));
    world.wait_exposed(1, window).unwrap();
    assert_eq!(world.memory(1, window)[..8], pattern(8, 5));
    world.start(1, window, &[0]).unwrap();
    world.complete(1, window).unwrap();
    assert_eq!(world.engines[0].wait_at_once(window), Some(true));
}

/// One packet from each target for its post, none for start; complete rides on the last operation, nobody
/// acknowledges it, and only native operations are waited for.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_complete, seed: PSCW.
pub fn costs_of_an_epoch<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = warm(&mut world, 64);
    let native = native_put(&world, window);
    let data = pattern(8, 1);
    for puts in [1, 4] {
        let (origin, targets) = epoch(&mut world, window, |world| {
            for target in [1, 2] {
                (0..puts).for_each(|at| world.put(0, window, target, 8 * at, &data).unwrap());
            }
        });
        // A native put is a write, and COMPLETE a packet; else one packet carries everything.
        let out = if native { 2 * puts + 2 } else { 2 };
        assert_eq!((told(&origin), origin.back()), (out, 0), "{puts} puts");
        waits(&world, &origin, u64::from(native));
        assert_eq!(targets, [1, 1], "the notice, and nothing else");
        assert_eq!(world.memory(2, window)[..8], data);
    }
    world.check_idle();
}

/// An operation with a result costs its reply, and complete one round trip.
///
/// Shows: MPI_Win_complete, MPI_Get.
pub fn costs_with_results<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = warm(&mut world, 64);
    let native = native_put(&world, window);
    let (data, mut got) = (pattern(8, 1), [1; 8]);
    let (origin, targets) = epoch(&mut world, window, |world| {
        world.get(0, window, 1, 32, &mut got).unwrap();
        world.put(0, window, 1, 0, &data).unwrap();
    });
    let (out, replies) = if native { (3, 0) } else { (1, 1) };
    assert_eq!((told(&origin), origin.back()), (out, replies));
    waits(&world, &origin, 1);
    assert_eq!(targets, [1 + replies]);
    assert_eq!(got, [0; 8]);
    world.check_idle();
}

/// Without operations: the notice and COMPLETE, nobody waits.
///
/// Shows: MPI_Win_complete.
pub fn costs_without_operations<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = warm(&mut world, 64);
    let (origin, targets) = epoch(&mut world, window, |_| ());
    assert_eq!((told(&origin), origin.back(), origin.round_trips), (3, 0, 0));
    assert_eq!(targets, [1, 1, 1]);
    world.check_idle();
}

fn broken(result: Result<impl Sized, RmaError>) -> (Call, &'static str, Rule) {
    match result.map(|_| ()) {
        Err(RmaError::Epoch { call, state, rule, .. }) => (call, state, rule),
        other => panic!("an epoch error was due, not {other:?}"),
    }
}

fn try_post<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    window: WindowId,
) -> Result<SyncCall, RmaError> {
    let group = world.group(&[1]);
    world.engines[0].start_post(window, &group, PostAssert::default())
}

fn try_start<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    window: WindowId,
) -> Result<SyncCall, RmaError> {
    let group = world.group(&[1]);
    world.engines[0].start_start(window, &group, StartAssert::default())
}

/// Calls that open what is open, or close what is not.
///
/// Shows: MPI_ERR_RMA_SYNC, MPI-4.1 13.5, MPI-4.1 13.6, rule: exposure-epochs-disjoint, rule: access-epochs-disjoint.
pub fn calls_that_do_not_fit<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let complete = world.engines[0].start_complete(window);
    assert_eq!(broken(complete), (Call::Complete, "Unset", Rule::NoSuchEpoch));
    let wait = world.engines[0].start_wait(window);
    assert_eq!(broken(wait), (Call::Wait, "NotExposed", Rule::NoSuchEpoch));
    let test = world.engines[0].test(window);
    assert_eq!(broken(test), (Call::Test, "NotExposed", Rule::NoSuchEpoch));
    world.start(0, window, &[1]).unwrap();
    let again = try_start(&mut world, window);
    assert_eq!(broken(again), (Call::Start, "PscwIssued", Rule::OtherEpochOpen));
    assert_eq!(broken(world.lock(0, window, 1, Shared)), (Call::Lock, "PscwIssued", Rule::OtherEpochOpen));
    let lock_all = world.engines[0].start_lock_all(window, false);
    assert_eq!(broken(lock_all), (Call::LockAll, "PscwIssued", Rule::OtherEpochOpen));
    let fence = world.engines[0].start_fence(window, FenceAssert::default());
    assert_eq!(broken(fence), (Call::Fence, "PscwIssued", Rule::OtherEpochOpen));
    let flush = world.engines[0].start_flush_all(window);
    assert_eq!(broken(flush), (Call::FlushAll, "PscwIssued", Rule::FlushOutsidePassive));
    let free = world.engines[0].start_free(window);
    assert_eq!(broken(free), (Call::Free, "PscwIssued", Rule::FreeInsideEpoch));
    world.expose(0, window, &[1]).unwrap();
    let again = try_post(&mut world, window);
    assert_eq!(broken(again), (Call::Post, "Exposed", Rule::ExposureOpen));
    // Both epochs are still whole.
    world.expose(1, window, &[0]).unwrap();
    world.start(1, window, &[0]).unwrap();
    for rank in [0, 1] {
        world.complete(rank, window).unwrap();
    }
    let free = world.engines[0].start_free(window);
    assert_eq!(broken(free), (Call::Free, "Exposed", Rule::FreeInsideEpoch));
    for rank in [0, 1] {
        world.wait_exposed(rank, window).unwrap();
    }
    let missing = WindowId(9);
    let gone = Err(RmaError::Window { call: Call::Post, window: missing });
    assert_eq!(try_post(&mut world, missing).map(|_| ()), gone);
    world.check_idle();
}

/// Operations go to members only, groups hold ranks of the job only.
///
/// Shows: MPI_Win_start, MPI_ERR_RMA_SYNC, MPI_ERR_RANK, MPI-4.1 13.5.2, rule: start-group.
pub fn members_only<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    let data = [1; 8];
    world.start(0, window, &[1]).unwrap();
    for stranger in [2, 0] {
        let put = world.put(0, window, stranger, 0, &data);
        assert_eq!(broken(put), (Call::Put, "PscwIssued", Rule::NotInGroup));
    }
    world.put(0, window, 1, 0, &data).unwrap();
    world.expose(1, window, &[0]).unwrap();
    world.complete(0, window).unwrap();
    world.wait_exposed(1, window).unwrap();
    assert_eq!(world.memory(1, window)[..8], data);
    let larger = Group::new(&[Rank(1), Rank(3)], 4).unwrap();
    let stranger = RmaError::Rank { call: Call::Start, target: Rank(3), size: 3 };
    let started = world.engines[0].start_start(window, &larger, StartAssert::default());
    assert_eq!(started.map(|_| ()), Err(stranger));
    let stranger = RmaError::Rank { call: Call::Post, target: Rank(3), size: 3 };
    let started = world.engines[0].start_post(window, &larger, PostAssert::default());
    assert_eq!(started.map(|_| ()), Err(stranger));
    world.check_idle();
}

/// A window is not locked and exposed at the same time; locks on others do not matter.
///
/// Shows: MPI_Win_post, MPI_Win_lock, MPI_ERR_RMA_SYNC, MPI-4.1 13.5.3.
pub fn locked_or_exposed<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    let data = [3; 8];
    world.lock(0, window, 0, Exclusive).unwrap();
    let post = try_post(&mut world, window);
    assert_eq!(broken(post), (Call::Post, "Locked", Rule::LockedAndExposed));
    world.unlock(0, window, 0).unwrap();
    world.lock(1, window, 0, Shared).unwrap();
    world.put(1, window, 0, 0, &data).unwrap();
    world.flush(1, window, 0).unwrap();
    assert_eq!(broken(try_post(&mut world, window)), (Call::Post, "Locked", Rule::LockedAndExposed));
    world.unlock(1, window, 0).unwrap();
    world.expose(0, window, &[1]).unwrap();
    assert_eq!(broken(world.lock(0, window, 0, Shared)), (Call::Lock, "Exposed", Rule::LockedAndExposed));
    let lock_all = world.engines[0].start_lock_all(window, true);
    assert_eq!(broken(lock_all), (Call::LockAll, "Exposed", Rule::LockedAndExposed));
    // A passive access epoch to another rank overlaps with the exposure epoch.
    world.lock(0, window, 2, Exclusive).unwrap();
    world.put(0, window, 2, 0, &data).unwrap();
    world.start(1, window, &[0]).unwrap();
    world.complete(1, window).unwrap();
    world.wait_exposed(0, window).unwrap();
    world.expose(0, window, &[]).unwrap();
    world.wait_exposed(0, window).unwrap();
    world.unlock(0, window, 2).unwrap();
    assert_eq!(world.memory(2, window)[..8], data);
    world.check_idle();
}

/// Fence epochs and post or start: one after the other, not at the same time.
///
/// Shows: MPI_Win_fence, MPI_Win_post, MPI_Win_start, MPI_ERR_RMA_SYNC, MPI-4.1 13.5.1.
pub fn fences_around<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let data = pattern(24, 1);
    world.fence(window, FenceAssert::default()).unwrap();
    world.put(0, window, 1, 0, &data[..8]).unwrap();
    let post = try_post(&mut world, window);
    assert_eq!(broken(post), (Call::Post, "FenceGranted", Rule::OtherEpochOpen));
    let start = try_start(&mut world, window);
    assert_eq!(broken(start), (Call::Start, "FenceGranted", Rule::OtherEpochOpen));
    world.fence(window, FenceAssert::default()).unwrap();
    // The last fence opened an epoch that nobody uses.
    world.expose(1, window, &[0]).unwrap();
    world.start(0, window, &[1]).unwrap();
    world.put(0, window, 1, 8, &data[8..16]).unwrap();
    world.complete(0, window).unwrap();
    let fence = world.engines[1].start_fence(window, FenceAssert::default());
    assert_eq!(broken(fence).2, Rule::ExposureOpen);
    world.wait_exposed(1, window).unwrap();
    // A fence whose barrier is still under way when start is called.
    let no_precede = FenceAssert { no_precede: true, ..FenceAssert::default() };
    let fence = world.engines[0].start_fence(window, no_precede);
    world.wait(0, fence).unwrap();
    world.start(0, window, &[1]).unwrap();
    world.put(0, window, 1, 16, &data[16..]).unwrap();
    let fence = world.engines[1].start_fence(window, no_precede);
    world.wait(1, fence).unwrap();
    world.expose(1, window, &[0]).unwrap();
    world.complete(0, window).unwrap();
    world.wait_exposed(1, window).unwrap();
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    assert_eq!(world.memory(1, window)[..24], data);
    world.check_idle();
}

/// A window with a weakly synchronized epoch under way is freed when that is over.
///
/// Shows: MPI_Win_free, MPI-4.1 13.2.5, rule: free-completes.
pub fn free_waits_for_what_is_left<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let data = pattern(8, 1);
    world.start(0, window, &[1]).unwrap();
    world.put(0, window, 1, 0, &data).unwrap();
    world.complete(0, window).unwrap();
    let mut free = world.engines[0].start_free(window).unwrap();
    assert!(is_stuck(&mut world, 0, &mut free));
    world.expose(1, window, &[0]).unwrap();
    world.wait_exposed(1, window).unwrap();
    assert_eq!(world.memory(1, window)[..8], data);
    let other = world.engines[1].start_free(window).unwrap();
    world.wait_all(vec![(0, free), (1, other)]).unwrap();
    world.check_idle();
    assert_eq!(world.engines[0].window_count(), 0);
}

/// lock, lock_all and fence wait for what a weakly synchronized epoch has left, as start does.
///
/// Shows: MPI_Win_lock, MPI_Win_lock_all, MPI_Win_fence, MPI-4.1 13.5.
pub fn every_opening_waits_for_what_is_left<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    let data = pattern(8, 2);
    for opening in 0..3 {
        world.start(0, window, &[1]).unwrap();
        world.put(0, window, 1, 8 * opening, &data).unwrap();
        world.complete(0, window).unwrap();
        let engine = &mut world.engines[0];
        let mut begun = match opening {
            0 => engine.start_lock(window, Rank(2), Exclusive, false),
            1 => engine.start_lock_all(window, false),
            _ => engine.start_fence(window, FenceAssert { no_precede: true, ..FenceAssert::default() }),
        }
        .unwrap();
        assert!(is_stuck(&mut world, 0, &mut begun));
        world.expose(1, window, &[0]).unwrap();
        world.wait_exposed(1, window).unwrap();
        world.wait_all(vec![(0, begun)]).unwrap();
        if opening < 2 {
            world.put(0, window, 2, 8 * opening, &data).unwrap();
        }
        match opening {
            0 => world.unlock(0, window, 2).unwrap(),
            1 => {
                let started = world.engines[0].start_unlock_all(window);
                world.wait(0, started).unwrap();
            }
            _ => {
                // The others' part of the fence, and the one that closes it.
                for rank in [1, 2] {
                    let assert = FenceAssert { no_precede: true, ..FenceAssert::default() };
                    let started = world.engines[rank as usize].start_fence(window, assert);
                    world.wait(rank, started).unwrap();
                }
                world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
            }
        }
        assert_eq!(world.memory(1, window)[8 * opening as usize..][..8], data);
    }
    assert_eq!(world.memory(2, window)[..16], data.repeat(2));
    world.check_idle();
}

/// NOCHECK at the origin, and no post at the target: the target refuses, and the origin hears of it.
///
/// Shows: MPI_MODE_NOCHECK/start, MPI_ERR_RMA_SYNC, MPI-4.1 13.5.5.
pub fn promises_that_do_not_hold<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let group = world.group(&[1]);
    let started = world.engines[0].start_start(window, &group, StartAssert { no_check: true });
    world.wait(0, started).unwrap();
    world.complete(0, window).unwrap();
    world.step_until("the target refuses", |world| world.counters(1).malformed_packets > 0);
    world.settle();
    assert_eq!(world.counters(1).malformed_packets, 1);
    // The next epoch that completes reports it.
    world.expose(1, window, &[0]).unwrap();
    world.start(0, window, &[1]).unwrap();
    let late = RmaError::NotExposed { call: Call::Complete, target: Rank(1) };
    assert_eq!(world.complete(0, window), Err(late));
    world.wait_exposed(1, window).unwrap();
    world.step_until("nothing is left in the pools", |world| {
        world.engines.iter().all(|engine| engine.elements_in_use() == (0, 0))
    });
    world.settle();
    assert_eq!((0..2).map(|rank| world.engines[rank].elements_in_use()).max(), Some((0, 0)));
}
