//! Windows of shared memory: calls after which the memory is accessed directly wait for what allows it. (That
//! several processes see one memory is tested with processes.)

use std::ptr::NonNull;

use rma_core::bootstrap::Bootstrap;
use rma_core::engine::{FenceAssert, PostAssert, SharedPart, StartAssert, SyncCall};
use rma_core::error::{Call, ErrorClass, RmaError};
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_core::info::{Flavor, WindowOptions};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::provider::Endpoint;

use super::{pattern, Make};
use crate::{Spec, World};

const FIRST: FenceAssert =
    FenceAssert { no_precede: true, no_succeed: false, no_store: false, no_put: false };

fn part() -> SharedPart {
    let memory = NonNull::from(Box::leak(vec![0u64; 8].into_boxed_slice()));
    SharedPart { base: memory.cast(), len: 64, mapping: Box::new(Words(memory)), is_allocated: false }
}

/// Memory that is freed with the window.
#[derive(Debug)]
struct Words(NonNull<[u64]>);

// SAFETY: it owns the words.
unsafe impl Send for Words {}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: the words came from a leaked box and are freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

pub(super) fn shared<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>) -> WindowId {
    // SAFETY: the part keeps its words as long as the window does.
    world.make(|engine, _| unsafe { engine.start_shared(Ok(part()), 1, &WindowOptions::DEFAULT) })
}

/// A lock is held when the call returns, of one rank and of all.
///
/// Shows: MPI_Win_allocate_shared, MPI_Win_lock, MPI_Win_lock_all.
pub fn locks_are_held_on_return<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = shared(&mut world);
    assert_eq!(world.engines[0].window_attributes(window).unwrap().flavor, Flavor::Shared);
    world.lock(1, window, 2, Exclusive).unwrap();
    let mut lock = world.engines[0].start_lock(window, Rank(2), Shared, false).unwrap();
    world.settle();
    assert!(world.engines[0].poll(&mut lock).is_pending());
    world.unlock(1, window, 2).unwrap();
    world.wait_all(vec![(0, lock)]).unwrap();
    // Shared beside shared: not held up by the lock that rank 0 has.
    let all = world.engines[1].start_lock_all(window, false);
    world.wait(1, all).unwrap();
    world.unlock(0, window, 2).unwrap();
    let started = world.engines[1].start_unlock_all(window);
    world.wait(1, started).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// A fence that promises that nothing precedes waits for everybody all the same, and sync is legal anywhere.
///
/// Shows: MPI_Win_fence, MPI_MODE_NOPRECEDE, MPI_Win_sync.
pub fn fences_wait_for_everybody<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = shared(&mut world);
    world.engines[0].sync(window).unwrap();
    let mut early = world.engines[0].start_fence(window, FIRST).unwrap();
    world.settle();
    assert!(world.engines[0].poll(&mut early).is_pending());
    let late = world.engines[1].start_fence(window, FIRST).unwrap();
    world.wait_all(vec![(0, early), (1, late)]).unwrap();
    let data = pattern(8, 1);
    world.put(0, window, 1, 8, &data).unwrap();
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    assert_eq!(world.memory(1, window)[8..16], data);
    world.free(window).unwrap();
    world.check_idle();
}

/// start returns when every member has posted.
///
/// Shows: MPI_Win_start, MPI_Win_post.
pub fn start_waits_for_posts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = shared(&mut world);
    let (targets, origins) = (Group::new(&[Rank(1)], 2).unwrap(), Group::new(&[Rank(0)], 2).unwrap());
    let mut start = world.engines[0].start_start(window, &targets, StartAssert::default()).unwrap();
    world.settle();
    assert!(world.engines[0].poll(&mut start).is_pending());
    let post = world.engines[1].start_post(window, &origins, PostAssert::default());
    world.wait(1, post).unwrap();
    world.wait_all(vec![(0, start)]).unwrap();
    let complete = world.engines[0].start_complete(window);
    world.wait(0, complete).unwrap();
    let wait = world.engines[1].start_wait(window);
    world.wait(1, wait).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// A rank that cannot map its memory fails all, and is named.
///
/// Shows: MPI_ERR_RMA_SHARED.
pub fn who_cannot_map_fails_all<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let call = Call::AllocateShared;
    let (_, results) = world.make_each(|engine, rank| {
        let part = match rank {
            1 => Err(RmaError::Shared { call, message: "no".into() }),
            _ => Ok(part()),
        };
        // SAFETY: the part keeps its words as long as the window does.
        unsafe { engine.start_shared(part, 1, &WindowOptions::DEFAULT) }
    });
    let elsewhere = RmaError::Elsewhere { call, class: ErrorClass::RmaShared, target: Rank(1) };
    let own = RmaError::Shared { call, message: "no".into() };
    assert_eq!(results, [Err(elsewhere.clone()), Err(own), Err(elsewhere)]);
    world.check_idle();
}

/// Whether a call is not done although everything in flight has arrived.
fn waits<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, rank: u32, sync: &mut SyncCall) -> bool {
    let mut waits = true;
    for _ in 0..5 {
        world.settle();
        waits &= world.engines[rank as usize].poll(sync).is_pending();
    }
    waits
}

/// A lock that is held on return, and whose caller gives it up, opens no epoch: nothing may be posted, what others ask
/// for is free, also before the lock that it has waited for, and that one as soon as it has come. The next epoch begins
/// after that; one of another rank need not wait for it.
///
/// Shows: MPI_Win_lock, MPI_Win_lock_all, MPI-4.1 13.5.3.
pub fn locks_that_were_given_up_are_nobodys<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for all in [true, false] {
        let mut world = make(Spec::ranks(4));
        let window = shared(&mut world);
        let start = |world: &mut World<E, B>| match all {
            true => world.engines[1].start_lock_all(window, false),
            false => world.engines[1].start_lock(window, Rank(2), Exclusive, false),
        };
        for round in 0..2 {
            world.lock(0, window, 2, Exclusive).unwrap();
            let mut sync = start(&mut world).unwrap();
            assert!(waits(&mut world, 1, &mut sync), "rank 2 is locked by another one");
            world.engines[1].abandon(&sync);
            assert!(world.put(1, window, 2, 0, &[1; 8]).is_err(), "there is no epoch");
            world.lock(3, window, 1, Exclusive).unwrap();
            world.unlock(3, window, 1).unwrap();
            let mut again = start(&mut world).unwrap();
            assert!(waits(&mut world, 1, &mut again));
            world.engines[1].abandon(&again);
            if !all {
                world.lock(1, window, 3, Exclusive).unwrap();
                world.unlock(1, window, 3).unwrap();
            }
            let mut next = (round == 1).then(|| start(&mut world).unwrap());
            assert!(next.as_mut().is_none_or(|next| waits(&mut world, 1, next)));
            world.unlock(0, window, 2).unwrap();
            world.settle();
            if let Some(next) = next {
                world.wait_all(vec![(1, next)]).unwrap();
                let ended = match all {
                    true => world.engines[1].start_unlock_all(window),
                    false => world.engines[1].start_unlock(window, Rank(2)),
                };
                world.wait(1, ended).unwrap();
            }
            // Nobody is kept out by what has come late, whatever its caller does.
            for target in 0..4 {
                world.lock(3, window, target, Exclusive).unwrap();
                world.unlock(3, window, target).unwrap();
            }
            assert_eq!(world.engines[1].window_state(window).map(|state| state.name()), Some("Unset"));
        }
        world.lock(0, window, 2, Exclusive).unwrap();
        let mut sync = start(&mut world).unwrap();
        assert!(waits(&mut world, 1, &mut sync));
        world.engines[1].abandon(&sync);
        assert_eq!(world.engines[1].open_epoch(), None);
        world.unlock(0, window, 2).unwrap();
        // Free waits for it, too.
        world.free(window).unwrap();
        world.check_idle();
    }
}
