//! Neighbours over shared memory when a process has no descriptor left for the words by which they tell each other how far
//! they are. The limit on open files is the process's, so that nothing else is tested here.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{Spec, World};
use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, PostAssert, StartAssert, SyncCall};
use rma_core::error::RmaError;
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_core::info::LockProtocol;
use rma_core::lock::LockType;
use rma_core::op::ReduceOp;
use rma_shm::{Options, Reach, ShmEndpoint};
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

type ShmWorld = World<ShmEndpoint, InProcess>;

/// A test that takes longer than this hangs.
const LIMIT: Duration = Duration::from_secs(600);

const RANKS: u32 = 4;

fn next(rank: u32) -> u32 {
    (rank + 1) % RANKS
}

/// The limit is one for all.
struct Turn {
    plenty: Rlimit,
    _turn: MutexGuard<'static, ()>,
}

fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Turn { plenty: getrlimit(Resource::Nofile), _turn }
}

impl Turn {
    /// No descriptor can be had.
    fn exhaust(&self) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..self.plenty }).unwrap();
    }

    /// Some can.
    fn relieve(&self) {
        setrlimit(Resource::Nofile, self.plenty).unwrap();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.relieve();
    }
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
    let turn = turn();
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
        turn.exhaust();
        for number in 1..=5 {
            fence_around(&mut world, window, number);
            post_around(&mut world, window, number);
        }
        let told_meanwhile = words_told(&world);
        turn.relieve();
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

const ONE: [u8; 8] = 1_u64.to_le_bytes();

/// Where the ranks count.
const COUNT: u64 = 8;

fn add(world: &mut ShmWorld, rank: u32, window: WindowId, target: u32) {
    world.accumulate(rank, window, target, COUNT, &ONE, Dtype::U64, ReduceOp::Sum).unwrap();
}

/// Every rank adds at every rank, each time under a lock of its own.
fn add_under_locks(world: &mut ShmWorld, window: WindowId, lock_type: LockType) {
    for rank in 0..RANKS {
        for target in 0..RANKS {
            world.lock(rank, window, target, lock_type).unwrap();
            add(world, rank, window, target);
            world.unlock(rank, window, target).unwrap();
        }
    }
}

/// The same under lock_all.
fn add_under_lock_all(world: &mut ShmWorld, window: WindowId) {
    for rank in 0..RANKS {
        let started = world.engines[rank as usize].start_lock_all(window, false);
        world.wait(rank, started).unwrap();
        (0..RANKS).for_each(|target| add(world, rank, window, target));
        let started = world.engines[rank as usize].start_unlock_all(window);
        world.wait(rank, started).unwrap();
    }
}

/// Rank 2 waits until rank 0 has unlocked rank 1.
fn wait_in_line(world: &mut ShmWorld, window: WindowId) {
    world.lock(0, window, 1, LockType::Exclusive).unwrap();
    add(world, 0, window, 1);
    world.flush(0, window, 1).unwrap();
    world.lock(2, window, 1, LockType::Exclusive).unwrap();
    add(world, 2, window, 1);
    let mut unlock = world.engines[2].start_unlock(window, Rank(1)).unwrap();
    let before = world.word(1, window, COUNT as usize);
    for _ in 0..1000 {
        world.step();
        assert_eq!(world.engines[2].poll(&mut unlock), Poll::Pending);
    }
    assert_eq!(world.word(1, window, COUNT as usize), before);
    world.unlock(0, window, 1).unwrap();
    world.wait(2, Ok(unlock)).unwrap();
    assert_eq!(world.word(1, window, COUNT as usize), before + 1);
}

/// Whoever cannot map a neighbour's words asks it for the lock by a packet, and is in one line with those that have mapped
/// them.
#[test]
fn locks_whose_words_cannot_be_mapped_are_asked_for_by_packets() {
    let turn = turn();
    for (protocol, pool) in [(LockProtocol::Auto, 32), (LockProtocol::Auto, 2), (LockProtocol::Nic, 32)] {
        let options = Options { reach: Some(Reach::Allocated), ..Options::default() };
        let open = || ShmEndpoint::open(&options).expect("the endpoint opens");
        let spec = Spec::ranks(RANKS).with(|config| {
            config.lock_protocol = protocol;
            (config.target_pool, config.target_pool_global) = (pool, 0);
        });
        let mut world = in_process::world(&spec, LIMIT, open);
        let window = world.allocate(64);
        // The window's own memory is mapped everywhere, and the words of its locks only by rank 0.
        world.fence(window, FenceAssert::default()).unwrap();
        for (rank, target) in (0..RANKS * RANKS).map(|pair| (pair / RANKS, pair % RANKS)) {
            world.put(rank, window, target, rank.into(), &[1]).unwrap();
        }
        world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
        world.lock(0, window, 1, LockType::Exclusive).unwrap();
        add(&mut world, 0, window, 1);
        world.unlock(0, window, 1).unwrap();
        let is_one_of_words = |world: &ShmWorld, rank: u32| world.counters(rank).lock_atomics > 0;
        turn.exhaust();
        wait_in_line(&mut world, window);
        add_under_locks(&mut world, window, LockType::Exclusive);
        add_under_locks(&mut world, window, LockType::Shared);
        add_under_lock_all(&mut world, window);
        wait_in_line(&mut world, window);
        turn.relieve();
        wait_in_line(&mut world, window);
        add_under_locks(&mut world, window, LockType::Exclusive);
        add_under_lock_all(&mut world, window);
        let counts = (0..RANKS).map(|rank| world.word(rank, window, COUNT as usize));
        assert_eq!(counts.collect::<Vec<_>>(), [20, 27, 20, 20], "{protocol:?}");
        assert!((0..RANKS).all(|rank| is_one_of_words(&world, rank)), "words are taken again");
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// Polls after which a call has given up what it cannot have, and some.
const MANY: usize = 1 << 19;

/// Until each of the calls has failed, as its rank cannot connect.
fn fail_each(world: &mut ShmWorld, calls: &mut [SyncCall]) {
    let mut failed = [false; RANKS as usize];
    for _ in 0..MANY {
        if failed == [true; RANKS as usize] {
            break;
        }
        world.step();
        for ((call, failed), engine) in calls.iter_mut().zip(&mut failed).zip(&mut world.engines) {
            match if *failed { Poll::Pending } else { engine.poll(call) } {
                Poll::Pending => {}
                Poll::Ready(Err(RmaError::Bootstrap { message, .. })) => {
                    assert!(message.contains("Too many open files"), "{message}");
                    *failed = true;
                }
                Poll::Ready(other) => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(failed, [true; RANKS as usize]);
}

/// Processes that cannot connect, and so never answer those that wait for them, do not wait for each other: each says so.
#[test]
fn who_cannot_answer_waits_for_nobody() {
    let turn = turn();
    let options = Options { reach: Some(Reach::Allocated), ..Options::default() };
    let open = || ShmEndpoint::open(&options).expect("the endpoint opens");
    let spec = Spec::ranks(RANKS).with(|config| config.force_message_path = true);
    let mut world = in_process::world(&spec, LIMIT, open);
    // By this each rank is connected to the next two, and none to the one before it.
    let window = world.allocate(64);
    turn.exhaust();
    let mut calls = Vec::new();
    for rank in 0..RANKS {
        world.lock(rank, window, next(rank), LockType::Exclusive).unwrap();
        world.put(rank, window, next(rank), 0, &[1]).unwrap();
        calls.push(world.engines[rank as usize].start_unlock(window, Rank(next(rank))).unwrap());
    }
    fail_each(&mut world, &mut calls);
}

/// The same of notices: who exposes its window to one that it cannot tell so does not wait for another's post.
#[test]
fn who_cannot_tell_of_its_post_waits_for_nobody() {
    let turn = turn();
    let options = Options { reach: Some(Reach::Allocated), ..Options::default() };
    let open = || ShmEndpoint::open(&options).expect("the endpoint opens");
    let mut world = in_process::world(&Spec::ranks(RANKS), LIMIT, open);
    let window = world.allocate(100);
    turn.exhaust();
    let mut calls = Vec::new();
    for rank in 0..RANKS {
        // Each posts to the one before it, to whom none is connected, and starts to the next.
        world.expose(rank, window, &[(rank + RANKS - 1) % RANKS]).unwrap();
        world.start(rank, window, &[next(rank)]).unwrap();
        world.put(rank, window, next(rank), 0, &[1; 100]).unwrap();
        calls.push(world.engines[rank as usize].start_complete(window).unwrap());
    }
    fail_each(&mut world, &mut calls);
}
