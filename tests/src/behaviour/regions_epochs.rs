//! Native access to regions of dynamic windows in every kind of epoch.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::{Change, FenceAssert, Notification, Operation};
use rma_core::error::{Call, ErrorClass, RmaError};
use rma_core::ids::Rank;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::wire::OpKind;

use super::dynamic::{attach, class, dynamic, Region};
use super::regions::{lock_all, spec, unlock_all};
use super::{pattern, Make};
use crate::world::operation;
use crate::World;

const LAST: FenceAssert = FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

/// Regions come and go between fence epochs, everybody accessing everybody.
///
/// Shows: MPI_Win_fence, MPI_Win_attach, MPI_Win_detach.
pub fn regions_under_fences<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    const RANKS: usize = 4;
    let mut world = make(spec(RANKS as u32));
    let window = dynamic(&mut world);
    let mut regions: Vec<_> = (0..RANKS).map(|_| Region::new(RANKS * 512)).collect();
    for round in 0..3 {
        for (rank, region) in (0..).zip(&mut regions) {
            attach(&mut world, rank, window, region.base(), RANKS * 512).unwrap();
        }
        world.fence(window, FenceAssert::default()).unwrap();
        let data: Vec<_> = (0..RANKS).map(|rank| pattern(512, 10 * round + rank as u64)).collect();
        for (origin, data) in (0..).zip(&data) {
            for (target, region) in (0..).zip(&mut regions).filter(|(target, _)| *target != origin) {
                let disp = region.address() + 512 * u64::from(origin);
                world.put(origin, window, target, disp, data).unwrap();
            }
        }
        world.fence(window, LAST).unwrap();
        for (target, region) in (0..).zip(&mut regions) {
            let found = region.bytes();
            let of_origins = found.chunks(512).zip(&data).enumerate();
            for (origin, (found, data)) in of_origins.filter(|(origin, _)| *origin != target as usize) {
                assert!(found == data, "of {origin} at {target}");
            }
            world.detach(target, window, region.base()).unwrap();
        }
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// A put to a region before the target has posted, and a get after it.
///
/// Shows: MPI_Win_start, MPI_Win_post, MPI_Win_attach.
pub fn regions_under_post_and_start<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(2048);
    attach(&mut world, 1, window, region.base(), 2048).unwrap();
    let (data, mut got) = (pattern(1024, 1), vec![0; 1024]);
    world.start(0, window, &[1]).unwrap();
    world.put(0, window, 1, region.address(), &data).unwrap();
    world.get(0, window, 1, region.address() + 1024, &mut got).unwrap();
    world.settle();
    assert_eq!(region.bytes()[..1024], [0; 1024], "not before the post");
    region.0[128..].fill(u64::MAX);
    world.expose(1, window, &[0]).unwrap();
    let complete = world.engines[0].start_complete(window).unwrap();
    let wait = world.engines[1].start_wait(window).unwrap();
    world.wait_all(vec![(0, complete), (1, wait)]).unwrap();
    assert_eq!((&region.bytes()[..1024], got), (&data[..], vec![0xff; 1024]));
    world.detach(1, window, region.base()).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// Large puts that notify: data first, then the word, in another region.
///
/// Shows: ours: put_notify.
pub fn notified_puts_to_regions<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(2));
    let window = dynamic(&mut world);
    let (mut region, mut words) = (Region::new(4096), Region::new(8));
    attach(&mut world, 1, window, region.base(), 4096).unwrap();
    attach(&mut world, 1, window, words.base(), 8).unwrap();
    let note = Notification { disp: words.address(), change: Change::Add(1) };
    lock_all(&mut world, 0, window);
    for round in 0..6u64 {
        let data = pattern(4096, round);
        world.put_notify(0, window, 1, region.address(), &data, &note).unwrap();
        world.flush(0, window, 1).unwrap();
        assert_eq!((words.0[0], region.bytes() == data), (round + 1, true));
    }
    world.detach(1, window, region.base()).unwrap();
    let data = pattern(4096, 77);
    world.put_notify(0, window, 1, region.address(), &data, &note).unwrap();
    assert_eq!(class(world.flush(0, window, 1)), ErrorClass::RmaRange);
    assert_eq!(words.0[0], 6, "no notification of a put that failed");
    unlock_all(&mut world, 0, window);
    world.free(window).unwrap();
    world.check_idle();
}

/// Requests of large puts and gets on regions are done when their data are.
///
/// Shows: MPI_Rput, MPI_Rget, MPI_Win_attach.
pub fn requests_to_regions<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(4096);
    attach(&mut world, 1, window, region.base(), 4096).unwrap();
    let (data, mut got) = (pattern(4096, 1), vec![0; 4096]);
    lock_all(&mut world, 0, window);
    let put = operation(Call::Put, OpKind::Put, 1, region.address(), 4096);
    let mut request = world.request(0, window, &Operation { origin: data.as_ptr(), ..put }).unwrap();
    while !world.is_done(0, &mut request) {
        world.step();
    }
    world.flush(0, window, 1).unwrap();
    let get = operation(Call::Get, OpKind::Get, 1, region.address(), 4096);
    let mut request = world.request(0, window, &Operation { result: got.as_mut_ptr(), ..get }).unwrap();
    while !world.is_done(0, &mut request) {
        world.step();
    }
    assert_eq!(got, data);
    unlock_all(&mut world, 0, window);
    world.free(window).unwrap();
    world.check_idle();
}

/// A large put that waits for its lock finds the region gone, or another one in its place.
///
/// Shows: MPI_Win_detach, MPI_Win_lock, MPI_ERR_RMA_RANGE.
pub fn regions_wait_for_the_lock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(1024);
    let (first, data) = (pattern(1024, 2), pattern(1024, 1));
    for comes_again in [true, false] {
        attach(&mut world, 1, window, region.base(), 1024).unwrap();
        world.lock(0, window, 1, Shared).unwrap();
        world.put(0, window, 1, region.address(), &first).unwrap();
        world.unlock(0, window, 1).unwrap();
        world.lock(1, window, 1, Exclusive).unwrap();
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, region.address(), &data).unwrap();
        let unlock = world.engines[0].start_unlock(window, Rank(1)).unwrap();
        world.settle();
        world.detach(1, window, region.base()).unwrap();
        if comes_again {
            attach(&mut world, 1, window, region.base(), 1024).unwrap();
        }
        region.0.fill(0);
        world.unlock(1, window, 1).unwrap();
        let result = world.wait_all(vec![(0, unlock)]);
        if comes_again {
            assert_eq!((result, region.bytes()), (Ok(()), data.clone()));
            world.detach(1, window, region.base()).unwrap();
        } else {
            assert_eq!((class(result), region.bytes()), (ErrorClass::RmaRange, vec![0; 1024]));
        }
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// No optimization changes what becomes of regions.
///
/// Shows: MPI_Win_attach, MPI_Win_detach.
pub fn regions_under_all_switches<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for bits in 0..8u32 {
        let mut world = make(spec(2).with(|config| {
            config.single_op_lock = bits & 1 != 0;
            config.piggyback = bits & 2 != 0;
            config.coalesce = bits & 4 != 0;
            config.lazy_targets = bits & 1 != 0;
            config.get_to_tail = bits & 2 != 0;
        }));
        let window = dynamic(&mut world);
        let mut region = Region::new(2048);
        attach(&mut world, 1, window, region.base(), 2048).unwrap();
        let (data, mut got) = (pattern(1024, bits.into()), vec![0; 1024]);
        let (small, one) = ([3; 8], 1u64.to_le_bytes());
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, region.address(), &data).unwrap();
        world.put(0, window, 1, region.address() + 1024, &small).unwrap();
        world.accumulate(0, window, 1, region.address() + 1040, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        world.get(0, window, 1, region.address() + 1024, &mut got).unwrap();
        world.unlock(0, window, 1).unwrap();
        assert_eq!((&region.bytes()[..1024], region.0[130]), (&data[..], 1));
        assert_eq!(got[24..], [0; 1000]);
        world.detach(1, window, region.base()).unwrap();
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// Where the end of an epoch follows its puts without waiting for them, they have arrived all the same, or are refused,
/// before detach closes the region.
///
/// Shows: MPI_Win_detach, MPI_Win_unlock, MPI_Win_complete.
pub fn regions_detached_behind_puts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for steps in 0..8 {
        for is_exposed in [false, true] {
            detach_behind_puts(&mut make(spec(3)), is_exposed, steps);
        }
    }
}

/// Ranks 0 and 2 put to a half each of what rank 1 detaches after so many steps.
fn detach_behind_puts<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, is_exposed: bool, steps: usize) {
    const ORIGINS: [u32; 2] = [0, 2];
    let window = dynamic(world);
    let mut region = Region::new(2048);
    attach(world, 1, window, region.base(), 2048).unwrap();
    let disps = [region.address(), region.address() + 1024];
    let (first, data) = (pattern(1024, 1), pattern(2048, 2));
    for (origin, disp) in ORIGINS.into_iter().zip(disps) {
        // What fits goes with the lock; and from the large put on the origin has a record.
        world.lock(origin, window, 1, Shared).unwrap();
        world.put(origin, window, 1, disp, &[1; 8]).unwrap();
        world.flush(origin, window, 1).unwrap();
        world.put(origin, window, 1, disp, &first).unwrap();
        world.unlock(origin, window, 1).unwrap();
    }
    for (origin, disp) in ORIGINS.into_iter().zip(disps) {
        if is_exposed {
            world.start(origin, window, &[1]).unwrap();
        } else {
            world.lock(origin, window, 1, Shared).unwrap();
            world.put(origin, window, 1, disp, &[1; 8]).unwrap();
            world.flush(origin, window, 1).unwrap();
        }
        let from = (disp - disps[0]) as usize;
        world.put(origin, window, 1, disp, &data[from..from + 1024]).unwrap();
    }
    let ends = ORIGINS.map(|origin| {
        let engine = &mut world.engines[origin as usize];
        let ended =
            if is_exposed { engine.start_complete(window) } else { engine.start_unlock(window, Rank(1)) };
        (origin, ended.unwrap())
    });
    if is_exposed {
        // Until now the puts have waited.
        world.expose(1, window, &ORIGINS).unwrap();
    }
    for _ in 0..steps {
        world.step();
    }
    let detach = (1, world.engines[1].start_detach(window, region.base()).unwrap());
    let results = world.wait_each(ends.into_iter().chain([detach]).collect());
    let left = region.bytes();
    for (result, half) in results.iter().zip([0..1024, 1024..2048]) {
        assert!(*result == Ok(()) || is_refused(result), "{results:?}");
        // To complete an access epoch says nothing of the target.
        let is_there = left[half.clone()] == data[half];
        assert!(is_exposed || result.is_err() || is_there, "a put was complete that had not arrived");
    }
    assert_eq!(results[2], Ok(()));
    if is_exposed {
        world.wait_exposed(1, window).unwrap();
    }
    world.settle();
    assert!(region.bytes() == left, "the memory was touched after detach");
    // What complete could not know is an error of the next call.
    let freed = world.free(window);
    assert!(freed == Ok(()) || is_exposed && is_refused(&freed), "{freed:?}");
    world.check_idle();
}

fn is_refused(result: &Result<(), RmaError>) -> bool {
    result.as_ref().is_err_and(|error| error.class() == ErrorClass::RmaRange)
}
