//! Conflicting accesses are found, and legal ones are not taken for such.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::{Change, FenceAssert, Notification, PostAssert};
use rma_core::error::{Call, ErrorClass, RmaError, Rule};
use rma_core::ids::{Rank, WindowId};
use rma_core::info::{MemoryModel, WindowOptions};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::{pattern, Make};
use crate::{Spec, World};

const OPEN: FenceAssert =
    FenceAssert { no_precede: false, no_succeed: false, no_store: false, no_put: false };
const CHECK: WindowOptions = WindowOptions { check: Some(true), ..WindowOptions::DEFAULT };
const ONE: [u8; 8] = [1, 0, 0, 0, 0, 0, 0, 0];

/// Three ranks in a fence epoch of a window that is checked.
fn fenced<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) -> (World<E, B>, WindowId) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate_with(256, &CHECK);
    world.fence(window, OPEN).unwrap();
    (world, window)
}

/// The conflicts that a fence reports, with the rank that reports each.
fn conflicts_of_fence<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) -> Vec<RmaError> {
    let ranks = world.ranks();
    let calls = ranks.map(|rank| (rank, world.engines[rank as usize].start_fence(window, OPEN).unwrap()));
    let calls = calls.collect();
    let results = world.wait_each(calls);
    let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(errors.iter().all(|error| error.class() == ErrorClass::RmaConflict), "{errors:?}");
    errors
}

/// Puts of two ranks to the same bytes in one fence epoch: the later is told of the earlier.
///
/// Shows: MPI_ERR_RMA_CONFLICT, rule: conflicts, ours: checker, MPI-4.1 13.7.
pub fn two_puts_in_a_fence_epoch<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let (mut world, window) = fenced(make);
    let data = pattern(16, 1);
    world.put(0, window, 2, 32, &data).unwrap();
    world.settle();
    world.put(1, window, 2, 40, &data).unwrap();
    let expected = RmaError::Conflict {
        call: Call::Fence,
        target: Rank(2),
        access: "put",
        earlier: "put",
        origin: Rank(0),
        offset_bytes: 40,
        len_bytes: 8,
    };
    assert_eq!(conflicts_of_fence(&mut world, window), std::slice::from_ref(&expected));
    let message = expected.to_string();
    for part in ["fence", "put", "byte 40", "rank 2", "rank 0", "MPI_ERR_RMA_CONFLICT", "13.7"] {
        assert!(message.contains(part), "{message}");
    }
    // The epoch after is a new one.
    world.put(1, window, 2, 40, &data).unwrap();
    assert_eq!(conflicts_of_fence(&mut world, window), []);
    world.check_idle();
}

/// Puts of two origins to the same bytes of one exposure epoch; in the next, and side by side, they are none.
///
/// Shows: MPI_ERR_RMA_CONFLICT, MPI_Win_post, MPI_Win_complete, ours: checker, MPI-4.1 13.7.
pub fn two_puts_between_post_and_wait<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate_with(256, &CHECK);
    let data = pattern(16, 1);
    for (offset, is_conflict) in [(8, true), (16, false)] {
        world.expose(2, window, &[0, 1]).unwrap();
        for (origin, disp) in [(0, 0), (1, offset)] {
            world.start(origin, window, &[2]).unwrap();
            world.put(origin, window, 2, disp, &data).unwrap();
            let completed = world.complete(origin, window);
            let class = completed.err().map(|error| error.class());
            assert_eq!(class, (is_conflict && origin == 1).then_some(ErrorClass::RmaConflict));
            world.settle();
        }
        world.wait_exposed(2, window).unwrap();
    }
    // What both accumulate in one way, and what was read before it was written, is none.
    let mut got = [0; 8];
    world.expose(2, window, &[0, 1]).unwrap();
    for origin in [0, 1] {
        world.start(origin, window, &[2]).unwrap();
        world.accumulate(origin, window, 2, 64, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
        match origin {
            0 => world.get(0, window, 2, 128, &mut got).unwrap(),
            _ => world.put(1, window, 2, 128, &ONE).unwrap(),
        }
        world.complete(origin, window).unwrap();
    }
    world.wait_exposed(2, window).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// Puts and accumulates that arrive in an epoch for which their target has said NOPUT conflict with that; gets and its
/// own stores do not, nor do operations of the next epoch.
///
/// Shows: MPI_MODE_NOPUT/fence, MPI_ERR_RMA_CONFLICT, ours: checker, MPI-4.1 13.5.5.
pub fn no_put_is_promised_by_fence<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let (mut world, window) = fenced(make);
    for _ in 0..2 {
        promise_no_put(&mut world, window);
        let mut got = [0; 8];
        world.get(1, window, 2, 32, &mut got).unwrap();
        assert_eq!(world.engines[2].check_local(window, true, 64, 8), Ok(()));
        // Another rank has promised nothing.
        world.put(1, window, 0, 32, &ONE).unwrap();
        assert_eq!(conflicts_of_fence(&mut world, window), []);
        world.put(0, window, 2, 8, &ONE).unwrap();
        assert_eq!(conflicts_of_fence(&mut world, window), [], "the promise has ended with its epoch");

        promise_no_put(&mut world, window);
        world.put(0, window, 2, 8, &ONE).unwrap();
        world.accumulate(1, window, 2, 16, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
        let errors = conflicts_of_fence(&mut world, window);
        let [put, sum] = &errors[..] else { panic!("{errors:?}") };
        breaks_no_put(put, Call::Fence, 8);
        breaks_no_put(sum, Call::Fence, 16);
    }
    world.fence(window, FenceAssert { no_succeed: true, ..OPEN }).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// A promise about an epoch without operations does not hold in later ones, which begin for this rank's own window
/// before their barriers are complete.
///
/// Shows: MPI_MODE_NOPUT/fence, MPI_MODE_NOPRECEDE, ours: checker, MPI-4.1 13.5.5.
pub fn no_put_ends_with_an_empty_epoch<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate_with(256, &CHECK);
    let opening = FenceAssert { no_precede: true, ..OPEN };
    let begin = |world: &mut World<E, B>, rank: u32, assert| {
        let started = world.engines[rank as usize].start_fence(window, assert);
        world.wait(rank, started).unwrap();
    };
    for rank in world.ranks() {
        begin(&mut world, rank, FenceAssert { no_put: true, ..opening });
    }
    world.settle();
    begin(&mut world, 2, opening);
    begin(&mut world, 2, opening);
    world.put(2, window, 2, 8, &ONE).unwrap();
    for rank in [0, 1, 0, 1] {
        begin(&mut world, rank, opening);
    }
    assert_eq!(conflicts_of_fence(&mut world, window), []);
    world.fence(window, FenceAssert { no_succeed: true, ..OPEN }).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// The same between post and wait.
///
/// Shows: MPI_MODE_NOPUT/post, MPI_ERR_RMA_CONFLICT, ours: checker, MPI-4.1 13.5.5.
pub fn no_put_is_promised_by_post<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate_with(256, &CHECK);
    let origins = world.group(&[0]);
    for no_put in [true, false] {
        let assert = PostAssert { no_put, ..PostAssert::default() };
        let posted = world.engines[2].start_post(window, &origins, assert);
        world.wait(2, posted).unwrap();
        // The notice is there, so that complete waits for what the target says.
        world.settle();
        world.start(0, window, &[2]).unwrap();
        world.put(0, window, 2, 24, &ONE).unwrap();
        let completed = world.complete(0, window);
        match no_put {
            true => breaks_no_put(&completed.unwrap_err(), Call::Complete, 24),
            false => completed.unwrap(),
        }
        world.wait_exposed(2, window).unwrap();
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// A fence at which rank 2 says NOPUT.
fn promise_no_put<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    let ranks = world.ranks();
    let calls = ranks.map(|rank| {
        let assert = FenceAssert { no_put: rank == 2, ..OPEN };
        (rank, world.engines[rank as usize].start_fence(window, assert).unwrap())
    });
    let calls = calls.collect();
    world.wait_all(calls).unwrap();
}

fn breaks_no_put(error: &RmaError, by: Call, at: u64) {
    let RmaError::Conflict { call, target, earlier, origin, offset_bytes, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((*call, *target, *origin, *offset_bytes), (by, Rank(2), Rank(2), at));
    assert_eq!((*earlier, error.rule()), ("the assertion NOPUT", Some(Rule::NoPutKept)));
}

/// Who has seen a notification may change what it came with.
///
/// Shows: ours: checker, ours: put_notify.
pub fn notified_data_are_the_targets<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate_with(256, &CHECK);
    let data = pattern(64, 1);
    let note = Notification { disp: 128, change: Change::Add(1) };
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    world.put(0, window, 1, 0, &data).unwrap();
    world.settle();
    let early = world.engines[1].check_local(window, true, 0, 64).unwrap_err();
    assert_eq!(early.class(), ErrorClass::RmaConflict);
    world.put_notify(0, window, 1, 64, &data, &note).unwrap();
    let started = world.engines[1].start_wait_notification(window, 128, 1);
    world.wait(1, started).unwrap();
    for first in [64, 128] {
        world.engines[1].check_local(window, true, first, 8).unwrap();
    }
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// Two operations of one rank on the same bytes, in one epoch.
///
/// Shows: MPI_ERR_RMA_CONFLICT, MPI-4.1 13.7.
pub fn one_rank_conflicts_with_itself<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let (mut world, window) = fenced(make);
    let mut got = [0; 8];
    world.put(0, window, 1, 0, &ONE).unwrap();
    world.get(0, window, 1, 4, &mut got).unwrap();
    assert_eq!(conflicts_of_fence(&mut world, window).len(), 1);
    world.get(0, window, 1, 4, &mut got).unwrap();
    world.get(2, window, 1, 0, &mut got).unwrap();
    assert_eq!(conflicts_of_fence(&mut world, window), [], "reads may meet");
    world.check_idle();
}

/// Accumulates meet, if they are of one kind; with puts and gets they do not.
///
/// Shows: accumulate_ops, MPI_ERR_RMA_CONFLICT, MPI-4.1 13.7.1.
pub fn accumulates_meet_accumulates<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let (mut world, window) = fenced(make);
    let mut old = [0; 8];
    for rank in 0..2 {
        world.accumulate(rank, window, 2, 0, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
        let no_op = world.get_accumulate(rank, window, 2, 0, &ONE, &mut old, Dtype::U64, ReduceOp::NoOp);
        no_op.unwrap();
    }
    assert_eq!(conflicts_of_fence(&mut world, window), []);
    world.accumulate(0, window, 2, 0, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
    world.settle();
    world.accumulate(1, window, 2, 0, &ONE, Dtype::U64, ReduceOp::Prod).unwrap();
    assert_eq!(conflicts_of_fence(&mut world, window).len(), 1);
    world.accumulate(0, window, 2, 0, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
    world.put(1, window, 2, 0, &ONE).unwrap();
    assert_eq!(conflicts_of_fence(&mut world, window).len(), 1);
    world.check_idle();
}

/// What a rank does to its own window counts too.
///
/// Shows: MPI_ERR_RMA_CONFLICT, MPI-4.1 13.7.
pub fn own_operations_conflict_with_others<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let (mut world, window) = fenced(make);
    world.put(1, window, 1, 0, &ONE).unwrap();
    world.put(0, window, 1, 0, &ONE).unwrap();
    assert_eq!(conflicts_of_fence(&mut world, window).len(), 1);
    world.put(0, window, 1, 0, &ONE).unwrap();
    world.settle();
    let own = world.put(1, window, 1, 0, &ONE).unwrap_err();
    assert!(matches!(own, RmaError::Conflict { call: Call::Put, origin: Rank(0), .. }), "{own}");
    assert_eq!(conflicts_of_fence(&mut world, window), []);
    world.check_idle();
}

/// The owner's stores conflict with updates; its loads do so in the separate model only.
///
/// Shows: MPI_WIN_MODEL, MPI_ERR_RMA_CONFLICT, MPI-4.1 13.7.
pub fn local_accesses_conflict_by_model<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for model in [MemoryModel::Unified, MemoryModel::Separate] {
        let mut world = make(Spec::ranks(2));
        let window = world.allocate_with(64, &WindowOptions { model: Some(model), ..CHECK });
        world.fence(window, OPEN).unwrap();
        world.put(0, window, 1, 0, &ONE).unwrap();
        world.settle();
        let load = world.engines[1].check_local(window, false, 0, 8);
        assert_eq!(load.is_err(), model == MemoryModel::Separate, "{model:?}");
        let store = world.engines[1].check_local(window, true, 4, 8).unwrap_err();
        assert!(matches!(store, RmaError::Conflict { call: Call::LocalWrite, access: "local store", .. }));
        assert_eq!(world.engines[1].check_local(window, true, 16, 8), Ok(()));
        world.put(0, window, 1, 20, &ONE).unwrap();
        let error = world.fence(window, OPEN).unwrap_err();
        assert!(matches!(error, RmaError::Conflict { earlier: "local store", .. }), "{error}");
        world.check_idle();
    }
}

/// Under shared locks two updates race until one is flushed.
///
/// Shows: MPI_Win_lock, MPI_LOCK_SHARED, MPI_ERR_RMA_CONFLICT, MPI-4.1 13.7.
pub fn unflushed_updates_under_shared_locks<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate_with(64, &CHECK);
    world.lock(0, window, 2, Shared).unwrap();
    world.lock(1, window, 2, Shared).unwrap();
    world.put(0, window, 2, 0, &ONE).unwrap();
    world.settle();
    world.put(1, window, 2, 0, &ONE).unwrap();
    let error = world.flush(1, window, 2).unwrap_err();
    assert!(matches!(error, RmaError::Conflict { origin: Rank(0), target: Rank(2), .. }), "{error}");
    world.flush(0, window, 2).unwrap();
    world.put(1, window, 2, 0, &ONE).unwrap();
    world.unlock(1, window, 2).unwrap();
    world.put(0, window, 2, 0, &ONE).unwrap();
    world.unlock(0, window, 2).unwrap();
    world.check_idle();
}

/// Exclusive locks, and what is flushed before others learn of it, are no conflicts.
///
/// Shows: MPI_LOCK_EXCLUSIVE, MPI_Win_flush, MPI-4.1 13.7.
pub fn ordered_accesses_are_no_conflict<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate_with(64, &CHECK);
    for rank in [0, 1, 2, 0] {
        world.lock(rank, window, 2, Exclusive).unwrap();
        world.put(rank, window, 2, 0, &ONE).unwrap();
        world.unlock(rank, window, 2).unwrap();
    }
    for rank in 0..2 {
        let started = world.engines[rank as usize].start_lock_all(window, false);
        world.wait(rank, started).unwrap();
    }
    let mut got = [0; 8];
    for round in 0..10 {
        let rank = round % 2;
        world.put(rank, window, 2, 0, &ONE).unwrap();
        world.put(rank, window, 2, 0, &ONE).unwrap();
        world.flush(rank, window, 2).unwrap();
        world.get(1 - rank, window, 2, 0, &mut got).unwrap();
        world.flush(1 - rank, window, 2).unwrap();
        assert_eq!(world.engines[2].check_local(window, true, 0, 8), Ok(()));
    }
    for rank in 0..2 {
        let started = world.engines[rank as usize].start_unlock_all(window);
        world.wait(rank, started).unwrap();
    }
    world.check_idle();
}

/// Without the option nothing is compared, and nothing held for it.
///
/// Shows: ours: checker.
pub fn only_who_asks_is_checked<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let (window, checked) = (world.allocate(64), world.allocate_with(64, &CHECK));
    let held = |id| world.engines[0].window_bytes(id).unwrap();
    assert!(held(window) + 1024 < held(checked));
    world.fence(window, OPEN).unwrap();
    world.put(0, window, 2, 0, &ONE).unwrap();
    world.put(1, window, 2, 0, &ONE).unwrap();
    world.fence(window, OPEN).unwrap();
    world.check_idle();
}

/// The setting checks every window that does not say otherwise.
///
/// Shows: ours: checker.
pub fn the_setting_checks_every_window<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3).with(|config| config.check = true));
    let window = world.allocate(64);
    let not = world.allocate_with(64, &WindowOptions { check: Some(false), ..WindowOptions::DEFAULT });
    for (window, count) in [(window, 1), (not, 0)] {
        world.fence(window, OPEN).unwrap();
        world.put(0, window, 2, 0, &ONE).unwrap();
        world.put(1, window, 2, 0, &ONE).unwrap();
        assert_eq!(conflicts_of_fence(&mut world, window).len(), count);
    }
    world.check_idle();
}

/// A table that is full forgets, and says how often; its memory does not grow.
///
/// Shows: ours: checker.
pub fn the_table_is_bounded<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate_with(1 << 16, &CHECK);
    let held = world.engines[1].window_bytes(window);
    world.fence(window, OPEN).unwrap();
    for at in 0..2000 {
        world.put(0, window, 1, 16 * at, &ONE).unwrap();
    }
    assert_eq!(conflicts_of_fence(&mut world, window), []);
    assert_eq!(world.engines[1].accesses_forgotten(window), 2000 - 1024);
    assert_eq!(world.engines[1].window_bytes(window), held);
    world.check_idle();
}

/// In a fence epoch, too, what one rank has ordered does not conflict with itself, whether its window or that of
/// another is accessed; with what others do, it does.
///
/// Shows: ours: order, ours: order_all, ours: checker.
pub fn an_order_call_is_no_conflict<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let (mut world, window) = fenced(make);
    let data = pattern(16, 1);
    for target in [0, 2] {
        world.put(0, window, target, 32, &data).unwrap();
        world.settle();
        world.engines[0].order_all(window).unwrap();
        world.put(0, window, target, 32, &data).unwrap();
    }
    assert_eq!(conflicts_of_fence(&mut world, window), []);
    // The promise ends with the epoch, and is nobody else's.
    world.put(0, window, 2, 32, &data).unwrap();
    world.settle();
    world.engines[0].order_all(window).unwrap();
    world.put(1, window, 2, 32, &data).unwrap();
    assert_eq!(conflicts_of_fence(&mut world, window).len(), 1);
    world.put(0, window, 2, 32, &data).unwrap();
    world.settle();
    world.put(0, window, 2, 32, &data).unwrap();
    assert_eq!(conflicts_of_fence(&mut world, window).len(), 1);
}
