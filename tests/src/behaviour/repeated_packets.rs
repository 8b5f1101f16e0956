//! An atomic that a program repeats, alone, with one target and behind each other's flush: the engine remembers its way, which
//! is good until anything else is done with the window. Whatever that is finds the operation, and the flush finds what it was.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::SyncCall;
use rma_core::error::RmaError;
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType::Shared;
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::Make;
use crate::{Spec, World};

const TARGET: u32 = 1;

/// What is added: the fabric may read it until the flush.
static ONE: [u8; 8] = 1_u64.to_ne_bytes();

/// As many behind each other's flush are enough that the next one goes the way of the last.
const BEFORE: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Fetch,
    Swap,
    Accumulate,
}

const KINDS: [Kind; 3] = [Kind::Fetch, Kind::Swap, Kind::Accumulate];

/// Rank 0 and the word that it counts up, at the beginning of the target's window.
struct Counting<E: Endpoint, B: Bootstrap> {
    world: World<E, B>,
    window: WindowId,
    /// Another one, of which the same is known.
    other: WindowId,
    kind: Kind,
    count: u64,
    /// Where the last operation's result goes, what that is, and the operands, which may be read until the flush.
    fetched: Box<[u8; 8]>,
    swapped: Box<u64>,
    expected: u64,
    operands: Box<[u64; 2]>,
}

impl<E: Endpoint, B: Bootstrap> Counting<E, B> {
    fn new(make: &impl Make<E, B>, kind: Kind) -> Self {
        let mut world = make(Spec::ranks(3));
        let (window, other) = (world.allocate(64), world.allocate(64));
        for (window, target) in [(window, TARGET), (window, 2), (other, TARGET)] {
            world.lock(0, window, target, Shared).unwrap();
        }
        // So that what it asks of rank 0 later comes without anything else.
        world.lock(TARGET, window, 0, Shared).unwrap();
        let (fetched, swapped, operands) = (Box::new([0; 8]), Box::new(0), Box::new([0; 2]));
        let mut counting =
            Self { world, window, other, kind, count: 0, fetched, swapped, expected: 0, operands };
        for _ in 0..BEFORE {
            counting.post();
            counting.flush();
        }
        counting
    }

    /// Posts the next one.
    fn post(&mut self) {
        self.expected = self.count;
        self.count += 1;
        (*self.fetched, *self.swapped) = ([0xff; 8], u64::MAX);
        *self.operands = [self.expected, self.count];
        let Self { world, window, kind, fetched, swapped, operands, .. } = self;
        match kind {
            Kind::Fetch => {
                let (dtype, op) = (Dtype::U64, ReduceOp::Sum);
                world.get_accumulate(0, *window, TARGET, 0, &ONE, &mut fetched[..], dtype, op)
            }
            Kind::Swap => world.compare_and_swap(0, *window, TARGET, 0, operands, swapped),
            Kind::Accumulate => world.accumulate(0, *window, TARGET, 0, &ONE, Dtype::U64, ReduceOp::Sum),
        }
        .unwrap();
    }

    fn flush(&mut self) {
        self.world.flush(0, self.window, TARGET).unwrap();
        self.check();
    }

    /// What a flush promises.
    fn check(&mut self) {
        let result = match self.kind {
            Kind::Fetch => u64::from_ne_bytes(*self.fetched),
            Kind::Swap => *self.swapped,
            Kind::Accumulate => self.expected,
        };
        assert_eq!(result, self.expected, "{:?}", self.kind);
        assert_eq!(self.world.word(TARGET, self.window, 0), self.count, "{:?}", self.kind);
    }

    fn start_flush(&mut self) -> SyncCall {
        self.world.engines[0].start_flush(self.window, Rank(TARGET)).unwrap()
    }

    /// Ends all of it.
    fn end(mut self) {
        for (window, target) in [(self.window, TARGET), (self.window, 2), (self.other, TARGET)] {
            self.world.unlock(0, window, target).unwrap();
        }
        self.world.unlock(TARGET, self.window, 0).unwrap();
        assert_eq!(self.world.word(TARGET, self.window, 0), self.count);
        self.world.check_idle();
    }
}

type Between<E, B> = fn(&mut Counting<E, B>);

/// Adds to a word of the target's window.
fn add<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId, target: u32, disp: u64) {
    world.accumulate(0, window, target, disp, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
}

/// The target does the same to rank 0, which has its own operation under way: the first goes with the request for the lock, those
/// behind it come alone.
fn serve<E: Endpoint, B: Bootstrap>(it: &mut Counting<E, B>) {
    let (window, before) = (it.window, it.world.word(0, it.window, 40));
    for index in 0..4 {
        let mut seen = [0xff; 8];
        let fetched =
            it.world.get_accumulate(TARGET, window, 0, 40, &ONE, &mut seen, Dtype::U64, ReduceOp::Sum);
        fetched.unwrap();
        it.world.flush(TARGET, window, 0).unwrap();
        assert_eq!(u64::from_ne_bytes(seen), before + 2 * index);
        it.world.accumulate(TARGET, window, 0, 40, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
        it.world.flush(TARGET, window, 0).unwrap();
        assert_eq!(it.world.word(0, window, 40), before + 2 * index + 2);
    }
}

/// Another call between the operation and its flush.
pub fn what_comes_before_the_flush<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let between: [Between<E, B>; 14] = [
        |_| {},
        |it| _ = it.world.step(),
        |it| it.world.put(0, it.window, TARGET, 8, &[5; 8]).unwrap(),
        |it| {
            let mut seen = [0; 8];
            it.world.get(0, it.window, TARGET, 8, &mut seen).unwrap();
            it.world.flush(0, it.window, TARGET).unwrap();
        },
        |it| add(&mut it.world, it.window, TARGET, 16),
        |it| add(&mut it.world, it.window, 2, 16),
        |it| add(&mut it.world, it.other, TARGET, 16),
        |it| {
            let sync = it.world.engines[0].start_flush_local(it.window, Rank(TARGET));
            it.world.wait(0, sync).unwrap();
        },
        |it| {
            let sync = it.world.engines[0].start_flush_all(it.window);
            it.world.wait(0, sync).unwrap();
            it.check();
        },
        |it| {
            it.world.unlock(0, it.window, TARGET).unwrap();
            it.check();
            it.world.lock(0, it.window, TARGET, Shared).unwrap();
        },
        |it| {
            let outside = it.world.accumulate(0, it.window, TARGET, 60, &ONE, Dtype::U64, ReduceOp::Sum);
            let flushed = it.world.flush(0, it.window, TARGET);
            assert!(matches!(outside.and(flushed), Err(RmaError::Range { target: Rank(TARGET), .. })));
        },
        |it| {
            it.world.lock(2, it.window, TARGET, Shared).unwrap();
            it.world.put(2, it.window, TARGET, 24, &[7; 8]).unwrap();
            it.world.unlock(2, it.window, TARGET).unwrap();
        },
        |it| {
            it.world.lock(2, it.window, 0, Shared).unwrap();
            it.world.put(2, it.window, 0, 24, &[7; 8]).unwrap();
            it.world.unlock(2, it.window, 0).unwrap();
        },
        serve,
    ];
    for kind in KINDS {
        for (number, between) in between.iter().enumerate() {
            let mut it = Counting::new(make, kind);
            for _ in 0..2 {
                it.post();
                between(&mut it);
                it.flush();
            }
            let added = it.world.word(TARGET, it.window, 16) + it.world.word(2, it.window, 16);
            if (4..=5).contains(&number) {
                it.world.flush(0, it.window, 2).unwrap();
                let now = it.world.word(TARGET, it.window, 16) + it.world.word(2, it.window, 16);
                assert_eq!(now, 2, "{kind:?}, {number}: {added} before");
            }
            it.post();
            it.flush();
            it.end();
        }
    }
}

/// Another call while a flush waits for the answer: both end, and the first one with its result.
pub fn what_comes_while_a_flush_waits<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let between: [Between<E, B>; 7] = [
        |_| {},
        |it| it.world.put(0, it.window, TARGET, 8, &[5; 8]).unwrap(),
        |it| add(&mut it.world, it.window, TARGET, 16),
        |it| {
            add(&mut it.world, it.window, TARGET, 16);
            it.world.flush(0, it.window, TARGET).unwrap();
        },
        |it| it.world.flush(0, it.window, TARGET).unwrap(),
        |it| {
            it.world.lock(2, it.window, 0, Shared).unwrap();
            it.world.put(2, it.window, 0, 24, &[7; 8]).unwrap();
            it.world.unlock(2, it.window, 0).unwrap();
        },
        serve,
    ];
    for kind in KINDS {
        for between in between {
            let mut it = Counting::new(make, kind);
            it.post();
            let mut waiting = it.start_flush();
            let is_over = it.world.engines[0].poll(&mut waiting) == Poll::Ready(Ok(()));
            between(&mut it);
            if !is_over {
                it.world.wait(0, Ok(waiting)).unwrap();
            }
            it.check();
            it.post();
            it.flush();
            it.end();
        }
    }
}

/// A flush that was left by its caller, as one that takes too long: the next one ends all the same.
pub fn a_flush_that_was_left<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for kind in KINDS {
        let mut it = Counting::new(make, kind);
        it.post();
        let left = it.start_flush();
        it.world.engines[0].abandon(&left);
        it.flush();
        it.post();
        it.flush();
        it.end();
    }
}

/// What does not fit the window is refused where the last one was posted, and nothing of it is left.
pub fn each_stays_inside<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut it = Counting::new(make, Kind::Accumulate);
    for disp in [57, 64, u64::MAX, u64::MAX - 7] {
        let posted = it.world.accumulate(0, it.window, TARGET, disp, &ONE, Dtype::U64, ReduceOp::Sum);
        let flushed = it.world.flush(0, it.window, TARGET);
        assert!(matches!(posted.and(flushed), Err(RmaError::Range { .. })), "{disp}");
        it.post();
        it.flush();
    }
    it.world.accumulate(0, it.window, TARGET, 56, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
    it.flush();
    assert_eq!(it.world.word(TARGET, it.window, 56), 1);
    it.end();
}
