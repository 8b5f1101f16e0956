//! What a program gives up by its hints, and what it gains.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::ids::WindowId;
use rma_core::info::{AccumulateOrdering, WindowOptions};
use rma_core::lock::LockType::Shared;
use rma_core::op::ReduceOp;
use rma_core::path::Path;
use rma_core::provider::Endpoint;

use super::Make;
use crate::{Spec, World};

const ZERO: [u8; 8] = [0; 8];

const COUNT: usize = 12;

const STRICT: AccumulateOrdering = AccumulateOrdering::STRICT;
const NONE: AccumulateOrdering = AccumulateOrdering::NONE;

fn window<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, ordering: AccumulateOrdering) -> WindowId {
    let options = WindowOptions { accumulate_ordering: ordering, ..WindowOptions::DEFAULT };
    world.allocate_with(8 * COUNT, &options)
}

/// Whether the fabric does the accumulates of the window, and time is virtual.
fn is_timed<E: Endpoint, B: Bootstrap>(world: &World<E, B>, window: WindowId) -> bool {
    world.engines[0].window_paths(window, Dtype::U64).unwrap()[2] == Path::Native && world.now_ns().is_some()
}

/// Virtual time of a call sequence, 0 where there is none.
fn time<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, calls: impl FnOnce(&mut World<E, B>)) -> u64 {
    let before = world.now_ns().unwrap_or(0);
    calls(world);
    world.now_ns().unwrap_or(0) - before
}

/// Accumulates to different locations, fetching and not, one after the other.
fn accumulates<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId, fetches: bool) -> u64 {
    let one = 1u64.to_le_bytes();
    let mut old = [[9u8; 8]; COUNT];
    world.lock(0, window, 1, Shared).unwrap();
    world.accumulate(0, window, 1, 0, &ZERO, Dtype::U64, ReduceOp::Sum).unwrap();
    world.flush(0, window, 1).unwrap();
    let took = time(world, |world| {
        for (index, old) in old.iter_mut().enumerate() {
            let disp = 8 * index as u64;
            if fetches {
                world.get_accumulate(0, window, 1, disp, &one, old, Dtype::U64, ReduceOp::Sum).unwrap();
            } else {
                world.accumulate(0, window, 1, disp, &one, Dtype::U64, ReduceOp::Sum).unwrap();
            }
        }
        world.flush(0, window, 1).unwrap();
    });
    world.unlock(0, window, 1).unwrap();
    assert!(!fetches || old.iter().all(|old| u64::from_le_bytes(*old) == 0));
    assert!((0..COUNT).all(|index| world.word(1, window, 8 * index) == 1));
    took
}

/// Native accumulates leave one by one, as MPI orders them; with `none` they leave together.
///
/// Shows: accumulate_ordering, MPI-4.1 13.7.2.
pub fn accumulates_without_order_do_not_wait<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for fetches in [true, false] {
        let took = [STRICT, NONE].map(|ordering| {
            let mut world = make(Spec::ranks(2));
            let window = window(&mut world, ordering);
            let took = accumulates(&mut world, window, fetches);
            let is_timed = is_timed(&world, window);
            world.free(window).unwrap();
            world.check_idle();
            (is_timed, took)
        });
        if took[0].0 {
            // A round trip for each, or one for all (and one more where completion is local).
            assert!(took[0].1 >= COUNT as u64 * 2000, "{took:?}");
            assert!(took[1].1 <= 3 * 2000, "{took:?}");
        }
    }
}

/// What is given up in part is kept in part: reads need not follow writes, but writes follow each other.
///
/// Shows: accumulate_ordering, MPI-4.1 13.7.2.
pub fn accumulates_are_ordered_in_part<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let only_writes = AccumulateOrdering { waw: true, ..NONE };
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, only_writes);
    assert_eq!(world.engines[0].window_options(window).unwrap().accumulate_ordering, only_writes);
    let is_timed = is_timed(&world, window);
    let writes = accumulates(&mut world, window, false);
    let mut old = [[0u8; 8]; COUNT];
    world.lock(0, window, 1, Shared).unwrap();
    world.accumulate(0, window, 1, 0, &ZERO, Dtype::U64, ReduceOp::Sum).unwrap();
    world.flush(0, window, 1).unwrap();
    let reads = time(&mut world, |world| {
        for (index, old) in old.iter_mut().enumerate() {
            let disp = 8 * index as u64;
            world.get_accumulate(0, window, 1, disp, &[0; 8], old, Dtype::U64, ReduceOp::NoOp).unwrap();
        }
        world.flush(0, window, 1).unwrap();
    });
    world.unlock(0, window, 1).unwrap();
    assert!(old.iter().all(|old| u64::from_le_bytes(*old) == 1));
    if is_timed {
        assert!(writes >= COUNT as u64 * 2000 && reads <= 2 * 2000, "{writes} {reads}");
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// In packets, an accumulate that fetches goes to the end where no order is wanted, so that its reply carries
/// the acknowledgement.
///
/// Shows: accumulate_ordering.
pub fn results_without_order_carry_the_acknowledgement<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for (ordering, replies) in [(STRICT, 2), (NONE, 1)] {
        let mut world = make(Spec::ranks(2));
        let window = window(&mut world, ordering);
        let [_, _, atomics] = world.engines[0].window_paths(window, Dtype::U64).unwrap();
        let (one, mut old) = (1u64.to_le_bytes(), [9; 8]);
        world.lock(0, window, 1, Shared).unwrap();
        world.get_accumulate(0, window, 1, 0, &one, &mut old, Dtype::U64, ReduceOp::Sum).unwrap();
        world.accumulate(0, window, 1, 8, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        let before = world.counters(0);
        world.unlock(0, window, 1).unwrap();
        // On a neighbour this rank does them itself.
        if atomics == Path::Message && world.counters(0).native_atomics == 0 {
            let back = world.counters(0).since(&before).back();
            assert_eq!(back, replies, "{ordering:?}");
        }
        assert_eq!((old, world.word(1, window, 0), world.word(1, window, 8)), ([0; 8], 1, 1));
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// Without locks there is no memory for them.
///
/// Shows: no_locks.
pub fn windows_without_locks_are_smaller<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let windows = [false, true].map(|no_locks| {
        let options = WindowOptions { no_locks, ..WindowOptions::DEFAULT };
        world.allocate_with(64, &options)
    });
    let [with, without] = windows.map(|window| world.engines[0].window_bytes(window).unwrap());
    let deferred = world.engines[0].config().deferred_bytes;
    assert!(without + deferred <= with, "{without} and {with}");
    for window in windows {
        world.free(window).unwrap();
    }
    world.check_idle();
}
