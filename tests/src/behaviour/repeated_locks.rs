//! Lock epochs that a program repeats with one neighbour, which the engine remembers apart from their window: whatever else
//! is done with it finds them there, as far as they are.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, SyncCall};
use rma_core::error::RmaError;
use rma_core::ids::{Rank, WindowId};
use rma_core::info::LockProtocol;
use rma_core::lock::LockType::{self, Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::state::WindowState;

use super::Make;
use crate::{Spec, World};

/// Whose window is locked.
const TARGET: u32 = 1;

fn world<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) -> (World<E, B>, WindowId) {
    let mut world = make(Spec::ranks(3).with(|config| config.lock_protocol = LockProtocol::Nic));
    let window = world.allocate(64);
    (world, window)
}

/// So many epochs in a row are enough that the next is one that is repeated: the first ones learn the target and its lock.
const EPOCHS: u64 = 8;

/// How rank 0 locks the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Lock(LockType),
    LockAll,
}

const KINDS: [Kind; 3] = [Kind::Lock(Exclusive), Kind::Lock(Shared), Kind::LockAll];

impl Kind {
    fn begin<E: Endpoint, B: Bootstrap>(self, world: &mut World<E, B>, window: WindowId) {
        match self {
            Self::Lock(lock_type) => world.lock(0, window, TARGET, lock_type),
            Self::LockAll => {
                let started = world.engines[0].start_lock_all(window, false);
                world.wait(0, started)
            }
        }
        .unwrap();
    }

    fn start_end<E: Endpoint, B: Bootstrap>(
        self,
        world: &mut World<E, B>,
        window: WindowId,
    ) -> Result<SyncCall, RmaError> {
        match self {
            Self::Lock(_) => world.engines[0].start_unlock(window, Rank(TARGET)),
            Self::LockAll => world.engines[0].start_unlock_all(window),
        }
    }

    fn end<E: Endpoint, B: Bootstrap>(
        self,
        world: &mut World<E, B>,
        window: WindowId,
    ) -> Result<(), RmaError> {
        let started = self.start_end(world, window);
        world.wait(0, started)
    }
}

/// Epochs of rank 0 that are all the same.
fn repeat<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId, kind: Kind) {
    for value in 1..=EPOCHS {
        let (value, mut seen) = (value.to_le_bytes(), [0; 8]);
        kind.begin(world, window);
        world.put(0, window, TARGET, 0, &value).unwrap();
        world.get(0, window, TARGET, 0, &mut seen).unwrap();
        kind.end(world, window).unwrap();
        if world.completes_at_once(0, TARGET) {
            assert_eq!(seen, value);
        }
    }
}

/// What the target's window holds at its beginning, as another rank sees it alone, which can have rank 0 alone as well.
fn seen_by_another<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) -> u64 {
    let mut seen = [0; 8];
    world.lock(2, window, 0, Exclusive).unwrap();
    world.put(2, window, 0, 0, &[3; 8]).unwrap();
    world.unlock(2, window, 0).unwrap();
    world.lock(2, window, TARGET, Exclusive).unwrap();
    world.get(2, window, TARGET, 0, &mut seen).unwrap();
    world.unlock(2, window, TARGET).unwrap();
    u64::from_le_bytes(seen)
}

type Between<E, B> = fn(&mut World<E, B>, WindowId, Kind);
type Refused<E, B> = fn(&mut World<E, B>, WindowId) -> Option<RmaError>;

/// Rank 2 takes its shares of both ranks, and gives them back.
fn share_for_a_while<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    let started = world.engines[2].start_lock_all(window, false);
    world.wait(2, started).unwrap();
    for target in [TARGET, 0] {
        world.put(2, window, target, 24, &[7; 8]).unwrap();
        world.flush(2, window, target).unwrap();
    }
    let started = world.engines[2].start_unlock_all(window);
    world.wait(2, started).unwrap();
}

/// Other calls on the window, and progress, after lock or after the first put: the epoch is open, what it puts is complete
/// behind its end, and its lock is free then.
pub fn what_comes_between_finds_the_epoch<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let between: [Between<E, B>; 9] = [
        |world, window, _| world.flush(0, window, TARGET).unwrap(),
        |world, _, _| _ = world.step(),
        |world, window, kind| {
            let state = world.engines[0].window_state(window).unwrap();
            assert_eq!(state == WindowState::PerTarget, kind != Kind::LockAll, "{state:?}");
            assert_eq!(state.is_lock_all(), kind == Kind::LockAll, "{state:?}");
            assert_eq!(world.engines[0].open_epoch().map(|(open, _)| open), Some(window));
        },
        |world, window, _| {
            let one = 1_u64.to_le_bytes();
            world.accumulate(0, window, TARGET, 8, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        },
        |world, window, kind| {
            if kind != Kind::LockAll {
                world.lock(0, window, 2, Shared).unwrap();
            }
            world.put(0, window, 2, 16, &[5; 8]).unwrap();
            if kind != Kind::LockAll {
                world.unlock(0, window, 2).unwrap();
            }
        },
        |world, window, kind| {
            if kind == Kind::LockAll {
                world.put(0, window, 0, 16, &[6; 8]).unwrap();
                world.flush(0, window, 0).unwrap();
                assert_eq!(world.memory(0, window)[16..24], [6; 8]);
            }
        },
        |world, window, kind| {
            if kind != Kind::Lock(Exclusive) {
                share_for_a_while(world, window);
            }
        },
        |world, window, _| {
            let started = world.engines[0].start_flush_all(window);
            world.wait(0, started).unwrap();
        },
        |world, window, _| {
            let (one, mut old) = (1_u64.to_le_bytes(), [0; 8]);
            world.get_accumulate(0, window, TARGET, 8, &one, &mut old, Dtype::U64, ReduceOp::Sum).unwrap();
            world.flush(0, window, TARGET).unwrap();
        },
    ];
    let (mut world, window) = world(make);
    let mut value = 100_u64;
    for (case, between) in between.iter().enumerate() {
        for (kind, is_held) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            repeat(&mut world, window, kind);
            value += 1;
            let (first, second) = ((value + 1000).to_le_bytes(), value.to_le_bytes());
            kind.begin(&mut world, window);
            if is_held {
                world.put(0, window, TARGET, 0, &first).unwrap();
            }
            between(&mut world, window, kind);
            world.flush(0, window, TARGET).unwrap();
            world.put(0, window, TARGET, 0, &second).unwrap();
            kind.end(&mut world, window).unwrap();
            assert_eq!(seen_by_another(&mut world, window), value, "{case}, {kind:?}, {is_held}");
        }
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// Calls that do not fit the epoch are refused, and it goes on.
pub fn what_is_refused_leaves_the_epoch<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let refused: [Refused<E, B>; 5] = [
        |world, window| world.lock(0, window, TARGET, Exclusive).err(),
        |world, window| world.engines[0].start_lock_all(window, false).err(),
        |world, window| world.engines[0].start_free(window).err(),
        |world, window| world.engines[0].start_fence(window, FenceAssert::default()).err(),
        |world, window| world.unlock(0, window, 2).err(),
    ];
    let (mut world, window) = world(make);
    for (case, call) in refused.iter().enumerate() {
        for (kind, is_held) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            repeat(&mut world, window, kind);
            let value = (200 + case as u64).to_le_bytes();
            kind.begin(&mut world, window);
            if is_held {
                world.put(0, window, TARGET, 0, &value).unwrap();
            }
            assert!(call(&mut world, window).is_some(), "{case}, {kind:?}, {is_held}");
            world.flush(0, window, TARGET).unwrap();
            world.put(0, window, TARGET, 0, &value).unwrap();
            kind.end(&mut world, window).unwrap();
            assert_eq!(
                seen_by_another(&mut world, window).to_le_bytes(),
                value,
                "{case}, {kind:?}, {is_held}"
            );
        }
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// Another rank that has the lock, or waits for it, is in the way of the next epoch as of any other.
pub fn others_come_in_between<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let (mut world, window) = world(make);
    for (kind, value) in KINDS.into_iter().zip(300_u64..) {
        repeat(&mut world, window, kind);
        // It holds the lock when the epoch wants it.
        let (mine, other) = (value.to_le_bytes(), (value + 1000).to_le_bytes());
        world.lock(2, window, TARGET, Exclusive).unwrap();
        world.put(2, window, TARGET, 0, &other).unwrap();
        world.flush(2, window, TARGET).unwrap();
        kind.begin(&mut world, window);
        world.put(0, window, TARGET, 0, &mine).unwrap();
        let mut waiting = kind.start_end(&mut world, window).unwrap();
        world.step();
        assert_eq!(world.engines[0].poll(&mut waiting), Poll::Pending, "{kind:?}");
        assert_eq!(world.word(TARGET, window, 0), value + 1000, "{kind:?}");
        world.unlock(2, window, TARGET).unwrap();
        world.wait_all(vec![(0, waiting)]).unwrap();
        assert_eq!(seen_by_another(&mut world, window), value, "{kind:?}");
        // It waits when the epoch ends, and comes in then.
        repeat(&mut world, window, kind);
        kind.begin(&mut world, window);
        world.put(0, window, TARGET, 0, &mine).unwrap();
        if world.word(TARGET, window, 0) != value {
            // The lock may be asked for by the end of the epoch only.
            world.flush(0, window, TARGET).unwrap();
        }
        world.lock(2, window, TARGET, Exclusive).unwrap();
        world.put(2, window, TARGET, 0, &other).unwrap();
        let waiting = world.engines[2].start_unlock(window, Rank(TARGET)).unwrap();
        kind.end(&mut world, window).unwrap();
        world.wait_all(vec![(2, waiting)]).unwrap();
        assert_eq!(world.word(TARGET, window, 0), value + 1000, "{kind:?}");
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// An operation outside of the window fails in such an epoch as in any other, and changes nothing.
pub fn its_puts_and_gets_stay_inside<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let (mut world, window) = world(make);
    for (disp, is_held) in
        [57, 64, u64::MAX, u64::MAX - 7].into_iter().flat_map(|disp| [(disp, false), (disp, true)])
    {
        let (value, mut seen) = (EPOCHS.to_le_bytes(), [0; 8]);
        for (kind, is_put) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            repeat(&mut world, window, kind);
            kind.begin(&mut world, window);
            if is_held {
                world.put(0, window, TARGET, 0, &value).unwrap();
            }
            let posted = match is_put {
                true => world.put(0, window, TARGET, disp, &[9; 8]),
                false => world.get(0, window, TARGET, disp, &mut seen),
            };
            let ended = kind.end(&mut world, window);
            assert!(posted.is_err() || ended.is_err(), "{disp}, {kind:?}, {is_held}, {is_put}");
        }
        assert_eq!(world.memory(TARGET, window)[8..], [0; 56], "{disp}");
        assert_eq!(seen_by_another(&mut world, window), EPOCHS);
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// Epochs of another window within such an epoch, which are repeated as well: each ends, and its lock is free then.
pub fn epochs_within_epochs<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let (mut world, outer) = world(make);
    let inner = world.allocate(64);
    let pairs = KINDS.into_iter().flat_map(|kind| KINDS.map(|other| (kind, other)));
    for ((kind, other), is_held) in pairs.flat_map(|kinds| [(kinds, true), (kinds, false)]) {
        repeat(&mut world, outer, kind);
        let value = 77_u64.to_le_bytes();
        for round in 1..=3 {
            kind.begin(&mut world, outer);
            if is_held {
                world.put(0, outer, TARGET, 0, &value).unwrap();
            }
            for _ in 0..round * EPOCHS {
                other.begin(&mut world, inner);
                world.put(0, inner, TARGET, 0, &value).unwrap();
                other.end(&mut world, inner).unwrap();
            }
            world.put(0, outer, TARGET, 0, &value).unwrap();
            kind.end(&mut world, outer).unwrap();
        }
        assert_eq!([outer, inner].map(|window| seen_by_another(&mut world, window)), [77, 77]);
    }
    for window in [inner, outer] {
        world.free(window).unwrap();
    }
    world.check_idle();
}
