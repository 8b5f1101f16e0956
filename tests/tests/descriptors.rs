//! Neighbours over shared memory when a process has no descriptor left for the words by which they tell each other how far
//! they are. The limit on open files is the process's, so that nothing else is tested here.

use std::time::Duration;

use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{Spec, World};
use rma_core::engine::{FenceAssert, PostAssert, StartAssert};
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType;
use rma_shm::{Options, Reach, ShmEndpoint};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

type ShmWorld = World<ShmEndpoint, InProcess>;

/// A test that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(600);

const RANKS: u32 = 4;

fn next(rank: u32) -> u32 {
    (rank + 1) % RANKS
}

/// Each puts to the next one between two fences.
fn fence_around(world: &mut ShmWorld, window: WindowId, number: u8) {
    world.fence(window, FenceAssert::default()).unwrap();
    for rank in 0..RANKS {
        world.put(rank, window, next(rank), 0, &[number]).unwrap();
    }
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    assert!((0..RANKS).all(|rank| world.memory(rank, window)[0] == number));
}

/// The same in epochs of post and start.
fn post_around(world: &mut ShmWorld, window: WindowId, number: u8) {
    let alone = |rank: u32| Group::new(&[Rank(rank)], RANKS).unwrap();
    for rank in 0..RANKS {
        let started =
            world.engines[next(rank) as usize].start_post(window, &alone(rank), PostAssert::default());
        world.wait(next(rank), started).unwrap();
    }
    for rank in 0..RANKS {
        let started =
            world.engines[rank as usize].start_start(window, &alone(next(rank)), StartAssert::default());
        world.wait(rank, started).unwrap();
        world.put(rank, window, next(rank), 1, &[number]).unwrap();
        let started = world.engines[rank as usize].start_complete(window);
        world.wait(rank, started).unwrap();
    }
    for rank in 0..RANKS {
        let started = world.engines[rank as usize].start_wait(window);
        world.wait(rank, started).unwrap();
        assert_eq!(world.memory(rank, window)[1], number);
    }
}

fn words_told(world: &ShmWorld) -> u64 {
    (0..RANKS).map(|rank| world.counters(rank).words_told).sum()
}

/// Whoever cannot map a neighbour's words tells it by packets, and goes on with packets where a word could overtake them.
#[test]
fn words_that_cannot_be_mapped_are_packets() {
    let plenty = getrlimit(Resource::Nofile);
    let none = Rlimit { current: Some(0), ..plenty };
    for is_told_before in [false, true] {
        let options = Options { reach: Some(Reach::Allocated), ..Options::default() };
        let open = || ShmEndpoint::open(&options).expect("the endpoint opens");
        let mut world = in_process::world(&Spec::ranks(RANKS), LIMIT, open);
        let window = world.allocate(64);
        // The window's own memory is mapped, and the words' is not unless somebody has been told.
        for rank in 0..RANKS {
            world.lock(rank, window, next(rank), LockType::Exclusive).unwrap();
            for _ in 0..2 {
                world.put(rank, window, next(rank), 0, &[9; 2]).unwrap();
                world.flush(rank, window, next(rank)).unwrap();
            }
            world.unlock(rank, window, next(rank)).unwrap();
        }
        if is_told_before {
            fence_around(&mut world, window, 8);
        }
        let told = words_told(&world);
        assert_eq!(told > 0, is_told_before);
        setrlimit(Resource::Nofile, none).unwrap();
        for number in 1..=5 {
            fence_around(&mut world, window, number);
            post_around(&mut world, window, number);
        }
        let told_meanwhile = words_told(&world);
        setrlimit(Resource::Nofile, plenty).unwrap();
        assert_eq!(told_meanwhile > told, is_told_before);
        for number in 6..=9 {
            fence_around(&mut world, window, number);
            post_around(&mut world, window, number);
        }
        assert!(words_told(&world) > told_meanwhile, "an epoch's end is told by a word again");
        world.free(window).unwrap();
        world.check_idle();
    }
}
