//! Locks without target elements: held, called and remembered when there are more of them than elements.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, Operation};
use rma_core::error::{Call, RmaError, Rule};
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::wire::OpKind;

use super::Make;
use crate::{Spec, World};

/// As few target elements as there can be: two for the window, one of them for locks that are held alone, and none for all.
fn one_target(config: &mut Config) {
    (config.target_pool, config.target_pool_global) = (1, 0);
}

fn add<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId, target: u32) {
    world.accumulate(0, window, target, 0, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
}

/// What is added: operations refer to it for as long as they like.
static ONE: [u8; 8] = 1u64.to_le_bytes();

fn rule<T: std::fmt::Debug>(result: Result<T, RmaError>) -> Rule {
    match result {
        Err(RmaError::Epoch { rule, .. }) => rule,
        other => panic!("an epoch error was due, not {other:?}"),
    }
}

/// Every call that does not fit an epoch in which rank 1 is locked and rank 2 is not is refused, and changes nothing.
fn misuse<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    for lock_type in [Shared, Exclusive] {
        for no_check in [false, true] {
            let again = world.engines[0].start_lock(window, Rank(1), lock_type, no_check);
            assert_eq!(rule(again), Rule::AlreadyLocked);
        }
    }
    let other = Rank(2);
    assert_eq!(rule(world.put(0, window, 2, 0, &ONE)), Rule::NotLocked);
    let added = world.accumulate(0, window, 2, 0, &ONE, Dtype::U64, ReduceOp::Sum);
    assert_eq!(rule(added), Rule::NotLocked);
    assert_eq!(rule(world.flush(0, window, 2)), Rule::NotLocked);
    let engine = &mut world.engines[0];
    assert_eq!(rule(engine.start_flush_local(window, other)), Rule::NotLocked);
    assert_eq!(rule(engine.start_flush_targets(window, &[Rank(1), other])), Rule::NotLocked);
    assert_eq!(rule(engine.flush_request(window, Some(other), false)), Rule::NotLocked);
    assert_eq!(rule(engine.order(window, other)), Rule::NotLocked);
    assert_eq!(rule(engine.start_unlock(window, other)), Rule::NoSuchEpoch);
    assert_eq!(rule(engine.start_lock_all(window, false)), Rule::OtherEpochOpen);
    assert_eq!(rule(engine.start_unlock_all(window)), Rule::NoSuchEpoch);
    assert_eq!(rule(engine.start_fence(window, FenceAssert::default())), Rule::OtherEpochOpen);
    assert_eq!(rule(engine.start_free(window)), Rule::FreeInsideEpoch);
    let group = world.group(&[1]);
    let started = world.engines[0].start_start(window, &group, Default::default());
    assert_eq!(rule(started), Rule::OtherEpochOpen);
}

/// A locked rank whose element was given up, after a flush or because another lock needed it, is locked all the same,
/// and nobody else is: misuse is refused and changes nothing, and the epoch goes on.
///
/// Shows: MPI_ERR_RMA_SYNC, rule: lock-nested, rule: unlock-unmatched, rule: lock-several, seed: RESTORE_TARGET_ELEM_RESOURCES.
pub fn locks_are_known_without_elements<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for by_flush in [true, false] {
        let mut world = make(Spec::ranks(4).with(|config| match by_flush {
            true => config.lazy_targets = false,
            false => one_target(config),
        }));
        let window = world.allocate(64);
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 8, &ONE).unwrap();
        world.flush(0, window, 1).unwrap();
        if !by_flush {
            world.lock(0, window, 3, Shared).unwrap();
            add(&mut world, window, 3);
        }
        misuse(&mut world, window);
        add(&mut world, window, 1);
        world.flush(0, window, 1).unwrap();
        misuse(&mut world, window);
        world.unlock(0, window, 1).unwrap();
        assert_eq!([world.word(1, window, 0), world.word(1, window, 8)], [1, 1]);
        if !by_flush {
            assert_eq!(rule(world.unlock(0, window, 1)), Rule::NoSuchEpoch);
            world.unlock(0, window, 3).unwrap();
            assert_eq!(world.word(3, window, 0), 1);
        }
        assert_eq!(rule(world.unlock(0, window, 1)), Rule::NoSuchEpoch);
        // Nobody has a lock that was not asked for, and none is left.
        for target in 0..4 {
            world.lock(2, window, target, Exclusive).unwrap();
            world.put(2, window, target, 16, &ONE).unwrap();
            world.unlock(2, window, target).unwrap();
        }
        assert_eq!(world.word(2, window, 0), 0, "it was never locked by rank 0");
        world.check_idle();
    }
}

/// lock waits for no element: it opens its epoch at once, which stays open when another thread unlocks the last other
/// rank, and which no other kind of epoch joins. An unlock of what was never touched needs no element either.
///
/// Shows: MPI_Win_lock, rule: lock-may-return, rule: lock-several, seed: PER_TARGET.
pub fn locks_wait_for_no_element<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for no_check in [false, true] {
        let mut world = make(Spec::ranks(4).with(one_target));
        let window = world.allocate(64);
        world.lock(0, window, 1, Shared).unwrap();
        add(&mut world, window, 1);
        let unlock = world.engines[0].start_unlock(window, Rank(1)).unwrap();
        // The only element has an UNLOCK to wait for.
        let mut lock = world.engines[0].start_lock(window, Rank(2), Shared, no_check).unwrap();
        assert!(matches!(world.engines[0].poll(&mut lock), Poll::Ready(Ok(()))), "it waits");
        world.lock(0, window, 3, Exclusive).unwrap();
        world.unlock(0, window, 3).unwrap();
        world.wait(0, Ok(unlock)).unwrap();
        let state = world.engines[0].window_state(window).map(|state| state.name());
        assert_eq!(state, Some("PerTarget"));
        assert_eq!(rule(world.engines[0].start_lock_all(window, false)), Rule::OtherEpochOpen);
        let fence = world.engines[0].start_fence(window, FenceAssert::default());
        assert_eq!(rule(fence), Rule::OtherEpochOpen);
        add(&mut world, window, 2);
        world.unlock(0, window, 2).unwrap();
        assert_eq!([1, 2, 3].map(|target| world.word(target, window, 0)), [1, 1, 0]);
        assert_eq!(world.engines[0].window_state(window).map(|state| state.name()), Some("Unset"));
        world.check_idle();
    }
}

/// An element that was to be won back for another thread's operation is left to an unlock that comes meanwhile: each
/// lock is released once, whichever looks first.
///
/// Shows: MPI_Win_unlock, rule: lock-several, seed: RESTORE_TARGET_ELEM_RESOURCES.
pub fn an_unlock_keeps_its_element<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for steps in 0..12 {
        let mut world = make(Spec::ranks(4).with(one_target));
        let window = world.allocate(64);
        world.lock(0, window, 1, Exclusive).unwrap();
        world.lock(0, window, 2, Exclusive).unwrap();
        add(&mut world, window, 1);
        let operation = Operation {
            call: Call::Accumulate,
            kind: OpKind::Accumulate,
            dtype: Dtype::U64,
            op: ReduceOp::Sum,
            target: Rank(2),
            disp: 0,
            len: 8,
            origin: ONE.as_ptr(),
            result: std::ptr::null_mut(),
            compare: std::ptr::null(),
        };
        // The first poll begins to win rank 1's element back.
        // SAFETY: `ONE` lives for ever.
        let mut posted = unsafe { world.engines[0].post(window, &operation) };
        for _ in 0..steps {
            world.step();
        }
        let mut unlock = world.engines[0].start_unlock(window, Rank(1)).unwrap();
        let mut unlocked = Poll::Pending;
        for _ in 0..100_000 {
            if posted.is_pending() {
                // SAFETY: as above.
                posted = unsafe { world.engines[0].post(window, &operation) };
            }
            if unlocked.is_pending() {
                unlocked = world.engines[0].poll(&mut unlock);
            }
            if posted.is_ready() && unlocked.is_ready() {
                break;
            }
            world.step();
        }
        assert_eq!((posted, unlocked), (Poll::Ready(Ok(())), Poll::Ready(Ok(()))), "after {steps} steps");
        world.unlock(0, window, 2).unwrap();
        for target in [1, 2] {
            let mut seen = [0; 8];
            world.lock(3, window, target, Exclusive).unwrap();
            world.get(3, window, target, 0, &mut seen).unwrap();
            world.unlock(3, window, target).unwrap();
            assert_eq!(seen, ONE);
        }
        world.check_idle();
    }
}

/// Of two threads that unlock a rank without an element one is refused, and so is what is posted to it meanwhile.
///
/// Shows: MPI_Win_unlock, MPI_ERR_RMA_SYNC.
pub fn a_lock_without_element_is_closed_once<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4).with(one_target));
    let window = world.allocate(64);
    for is_touched in [true, false] {
        world.lock(0, window, 1, Shared).unwrap();
        if is_touched {
            add(&mut world, window, 1);
            world.flush(0, window, 1).unwrap();
        }
        for other in [2, 3] {
            world.lock(0, window, other, Shared).unwrap();
            add(&mut world, window, other);
        }
        let unlock = world.engines[0].start_unlock(window, Rank(1)).unwrap();
        let second = rule(world.engines[0].start_unlock(window, Rank(1)));
        // That of a neighbour may be over when it is called, and that of a rank to which nothing was done.
        let may_be_over = world.completes_at_once(0, 1) || !is_touched;
        if !(may_be_over && second == Rule::NoSuchEpoch) {
            assert_eq!(second, Rule::Busy);
            assert_eq!(rule(world.put(0, window, 1, 8, &ONE)), Rule::Busy);
            let again = world.engines[0].start_lock(window, Rank(1), Shared, false);
            assert_eq!(rule(again), Rule::AlreadyLocked);
        }
        world.wait(0, Ok(unlock)).unwrap();
        assert_eq!(rule(world.unlock(0, window, 1)), Rule::NoSuchEpoch);
        (2..4).for_each(|other| world.unlock(0, window, other).unwrap());
    }
    assert_eq!([world.word(1, window, 0), world.word(1, window, 8)], [1, 0]);
    assert_eq!([2, 3].map(|other| world.word(other, window, 0)), [2; 2]);
    world.check_idle();
}

/// An operation that is refused leaves nothing behind: after a fence epoch without any other, the rank that it went to
/// is as little locked as all the others, and nobody's start epoch begins before its post.
///
/// Shows: MPI_ERR_RMA_RANGE, MPI_ERR_RMA_SYNC, rule: access-epoch-required.
pub fn refused_operations_leave_no_element<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    world.fence(window, FenceAssert::default()).unwrap();
    let outside = world.put(0, window, 2, 64, &ONE);
    assert!(matches!(outside, Err(RmaError::Range { target: Rank(2), .. })), "{outside:?}");
    assert_eq!(world.engines[0].elements_in_use().1, 0);
    world.lock(0, window, 1, Exclusive).unwrap();
    assert_eq!(rule(world.put(0, window, 2, 0, &ONE)), Rule::NotLocked);
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.engines[0].window_state(window).map(|state| state.name()), Some("Unset"));
    assert_eq!(world.word(2, window, 0), 0);
    world.check_idle();
}
