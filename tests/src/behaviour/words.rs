//! Words to be notified in memory that does not begin at a multiple of 8 bytes: their address counts, not their
//! displacement.

use std::ptr::NonNull;

use rma_core::bootstrap::Bootstrap;
use rma_core::engine::{Change, FenceAssert, Notification, SharedPart};
use rma_core::error::{ErrorClass, RmaError};
use rma_core::ids::WindowId;
use rma_core::info::WindowOptions;
use rma_core::lock::LockType::Exclusive;
use rma_core::provider::Endpoint;

use super::dynamic::{attach, dynamic, Region};
use super::{pattern, Make};
use crate::{Spec, World};

/// Bytes of data: none, and such as travel with their word, before it, and natively.
const SIZES: [usize; 4] = [0, 8, 300, 40_000];

/// Bytes of a window, and of the memory that it is in.
const LEN: usize = 1 << 16;
const MEMORY: usize = LEN + 64;

/// A displacement behind all data that is a multiple of 8.
const WORD: u64 = 1 << 15 | 1 << 14;

const LAST: FenceAssert = FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

/// A notified put in an epoch of each kind; the outcome is that of the put, or of the call that completes it.
fn put_notify<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    window: WindowId,
    kind: usize,
    (disp, word): (u64, u64),
    data: &[u8],
) -> Result<(), RmaError> {
    let note = Notification { disp: word, change: Change::Add(1) };
    match kind {
        0 => world.lock(0, window, 1, Exclusive).unwrap(),
        1 => {
            let started = world.engines[0].start_lock_all(window, true);
            world.wait(0, started).unwrap();
        }
        _ => world.fence(window, FenceAssert::default()).unwrap(),
    }
    let put = world.put_notify(0, window, 1, disp, data, &note);
    let closed = match kind {
        0 => world.unlock(0, window, 1),
        1 => {
            let started = world.engines[0].start_unlock_all(window);
            world.wait(0, started)
        }
        _ => world.fence(window, LAST),
    };
    put.and(closed)
}

/// Rank 0 notifies words of rank 1, at every distance from a multiple of 8 bytes in its memory; `skew` is the
/// memory's own, and `first` the displacement of its first byte.
fn check_words<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    window: WindowId,
    first: u64,
    last: u64,
    skew: u64,
) {
    let word = first + last;
    let mut count = 0;
    for (index, len) in SIZES.into_iter().enumerate() {
        let data = pattern(len, 1);
        for kind in 0..3 {
            for shift in 0..8 {
                let disp = word + shift;
                let outcome = put_notify(world, window, kind, (first, disp), &data);
                let seen = world.engines[1].notification(window, disp);
                let what = format!("{len} bytes, epoch {kind}, base {skew}, word {disp}");
                if (skew + last + shift) % 8 == 0 {
                    count += 1;
                    assert_eq!((outcome, seen), (Ok(()), Ok(count)), "{what}");
                } else {
                    let classes = (outcome.unwrap_err().class(), seen.unwrap_err().class());
                    assert_eq!(classes, (ErrorClass::Argument, ErrorClass::Argument), "{what}");
                }
            }
        }
        assert_eq!(count, 3 * (index as u64 + 1));
    }
}

/// The base's distance from a multiple of 8 bytes at each of two ranks, alike or not.
///
/// Shows: ours: put_notify, ours: test_notification, MPI_ERR_ARG.
pub fn words_are_aligned_by_address<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for skews in [[0, 0], [4, 4], [0, 4], [1, 0], [3, 6]] {
        let mut memory = [Region::new(MEMORY), Region::new(MEMORY)];
        let mut world = make(Spec::ranks(2));
        let window = world.make(|engine, rank| {
            let base = memory[rank as usize].base().wrapping_add(skews[rank as usize]);
            // SAFETY: inside of the rank's memory, which is there until the window is freed.
            unsafe { engine.start_create(base, LEN, 1) }
        });
        check_words(&mut world, window, 0, WORD, skews[1] as u64);
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// What all ranks have alike is known before anything else is: the call itself refuses.
///
/// Shows: ours: put_notify, MPI_ERR_ARG.
pub fn bases_that_are_alike_are_judged_at_once<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut memory = [Region::new(MEMORY), Region::new(MEMORY)];
    let mut world = make(Spec::ranks(2));
    let window = world.make(|engine, rank| {
        let base = memory[rank as usize].base().wrapping_add(4);
        // SAFETY: inside of the rank's memory, which is there until the window is freed.
        unsafe { engine.start_create(base, LEN, 1) }
    });
    world.lock(0, window, 1, Exclusive).unwrap();
    for (word, is_aligned) in [(64, false), (60, true)] {
        let note = Notification { disp: word, change: Change::Set(1) };
        let put = world.put_notify(0, window, 1, 0, &[1; 8], &note);
        assert_eq!(put.map_err(|error| error.class()).err(), (!is_aligned).then_some(ErrorClass::Argument));
    }
    world.unlock(0, window, 1).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// The parts of a shared window follow each other, and begin where the one before ends.
///
/// Shows: ours: put_notify, MPI_Win_allocate_shared, MPI_ERR_ARG.
pub fn words_of_shared_parts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for (first_bytes, skew) in [(12, 4), (9, 1)] {
        let mut memory = Region::new(MEMORY);
        let base = memory.base();
        let mut world = make(Spec::ranks(2));
        let window = world.make(|engine, rank| {
            let (offset, len) = if rank == 0 { (0, first_bytes) } else { (first_bytes, LEN) };
            let base = NonNull::new(base.wrapping_add(offset)).expect("memory has an address");
            let part = SharedPart { base, len, mapping: Box::new(()), is_allocated: false };
            // SAFETY: inside of the memory, which is there until the window is freed.
            unsafe { engine.start_shared(Ok(part), 1, &WindowOptions::DEFAULT) }
        });
        check_words(&mut world, window, 0, WORD, skew);
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// In a dynamic window displacements are addresses, wherever the region begins.
///
/// Shows: ours: put_notify, MPI_Win_create_dynamic, MPI_ERR_ARG.
pub fn words_of_regions<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut memory = Region::new(MEMORY);
    let mut world = make(Spec::ranks(2));
    let window = dynamic(&mut world);
    let base = memory.base().wrapping_add(4);
    attach(&mut world, 1, window, base, LEN).unwrap();
    check_words(&mut world, window, base.addr() as u64, WORD, 4);
    world.detach(1, window, base).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}
