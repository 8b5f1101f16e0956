//! Conformance over shared memory where peers map each other's windows, and do atomics on them themselves.
//! All memory of this process is in one file that can be mapped, so that the windows are, whoever allocates
//! them.
#![allow(unsafe_code)] // an allocator

#[path = "../../rma-shm/tests/contract/heap.rs"]
mod heap;

use std::os::fd::BorrowedFd;
use std::task::Poll;
use std::time::Duration;

use heap::Heap;
use rma_conformance::behaviour::word_locks;
use rma_conformance::imposed::{Imposed, WORD_BY_WORD};
use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_core::engine::{FenceAssert, PostAssert, StartAssert};
use rma_core::group::Group;
use rma_core::ids::Rank;
use rma_core::info::LockProtocol;
use rma_core::lock::LockType;
use rma_core::provider::Endpoint;
use rma_shm::{Options, Reach, ShmEndpoint};

#[global_allocator]
static HEAP: Heap = Heap::new();

type ShmWorld = World<ShmEndpoint, InProcess>;

/// A test that takes longer than this hangs; under a sanitizer beside other programs the longest ones take
/// minutes.
const LIMIT: Duration = Duration::from_secs(600);

fn world(spec: Spec) -> ShmWorld {
    HEAP.begin();
    let options = Options { reach: Some(Reach::Mapped), ..Options::default() };
    in_process::world(&spec, LIMIT, || ShmEndpoint::open(&options).expect("the endpoint opens"))
}

// A post that is a word does not say how large the window is: that is read when the put is issued.
suite!(mapped, ShmWorld, world, differ: ranges_known_late);

fn locked_by_words(spec: Spec) -> Spec {
    spec.with(|config| config.lock_protocol = LockProtocol::Nic)
}

// What is different about these locks is beside the suites on the simulated fabric.
suite!(mapped_word_locks, ShmWorld, |spec: Spec| world(locked_by_words(spec)), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late);

type WordByWord = World<Imposed<ShmEndpoint>, InProcess>;

fn word_by_word(spec: Spec) -> WordByWord {
    HEAP.begin();
    let options = Options { reach: Some(Reach::Mapped), ..Options::default() };
    let mut ranks = 0..;
    in_process::world(&locked_by_words(spec), LIMIT, || {
        let endpoint = ShmEndpoint::open(&options).expect("the endpoint opens");
        Imposed::new(endpoint, WORD_BY_WORD, ranks.next().expect("ranks do not end"))
    })
}

// The same, and now and then one of a lock's two words is had and the other one not.
suite!(mapped_word_by_word, WordByWord, word_by_word, differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late);

#[test]
fn locks_are_words() {
    let make = |spec: Spec| world(spec);
    word_locks::all(&make);
}

/// Whether somebody who sleeps on the rank's descriptor would wake.
fn would_wake(world: &mut ShmWorld, rank: usize) -> bool {
    let descriptor = world.engines[rank].endpoint().wait_fd().expect("shared memory has a descriptor");
    // SAFETY: the world's endpoint keeps it open.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let mut watched = [rustix::event::PollFd::from_borrowed_fd(descriptor, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut watched, Some(&rustix::event::Timespec::default())).unwrap() > 0
}

/// Who waits for a lock and sleeps is woken by whoever lets it in, and the others are not.
#[test]
fn whose_turn_has_come_is_woken() {
    for lock_types in [[LockType::Exclusive; 3], [LockType::Exclusive, LockType::Shared, LockType::Shared]] {
        let mut world = world(locked_by_words(Spec::ranks(4)));
        let window = world.allocate(64);
        let [holder, waiters @ ..] = lock_types;
        world.lock(0, window, 3, holder).unwrap();
        world.put(0, window, 3, 0, &[1]).unwrap();
        world.flush(0, window, 3).unwrap();
        let mut calls = Vec::new();
        for (rank, lock_type) in (1u32..).zip(waiters) {
            world.lock(rank, window, 3, lock_type).unwrap();
            world.put(rank, window, 3, u64::from(rank), &[1]).unwrap();
            let mut sync = world.engines[rank as usize].start_unlock(window, Rank(3)).unwrap();
            world.step_until("the rank waits", |world| world.counters(rank).lock_retries > 0);
            assert_eq!(world.engines[rank as usize].poll(&mut sync), Poll::Pending);
            calls.push((rank, sync));
        }
        world.settle();
        for rank in 1..=2 {
            assert!(world.engines[rank].wants_looks());
            assert!(world.engines[rank].endpoint().arm_wait(), "rank {rank} may sleep");
            assert!(!would_wake(&mut world, rank));
        }
        // By the holder alone: nobody else makes progress.
        let mut leaves = world.engines[0].start_unlock(window, Rank(3)).unwrap();
        assert_eq!(world.engines[0].poll(&mut leaves), Poll::Ready(Ok(())));
        assert!(would_wake(&mut world, 1), "its turn has come: {lock_types:?}");
        assert!(!would_wake(&mut world, 2), "it is not its turn: {lock_types:?}");
        // A shared one lets the next in when it comes in, any other when it goes.
        let is_over = (0..100).any(|_| {
            world.engines[1].progress();
            world.engines[1].poll(&mut calls[0].1).is_ready()
        });
        assert!(is_over, "{lock_types:?}");
        assert!(would_wake(&mut world, 2), "its turn has come: {lock_types:?}");
        world.wait_all(calls.split_off(1)).unwrap();
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// The same behind an epoch that the holder has repeated, while nobody made progress for it.
#[test]
fn who_waits_behind_a_repeated_epoch_is_woken() {
    for lock_type in [LockType::Exclusive, LockType::Shared] {
        let mut world = world(locked_by_words(Spec::ranks(3)));
        let window = world.allocate(64);
        let begin = |world: &mut ShmWorld| {
            world.lock(0, window, 2, lock_type).unwrap();
            world.put(0, window, 2, 0, &[1]).unwrap();
        };
        for _ in 0..8 {
            begin(&mut world);
            world.unlock(0, window, 2).unwrap();
        }
        begin(&mut world);
        world.lock(1, window, 2, LockType::Exclusive).unwrap();
        world.put(1, window, 2, 8, &[1]).unwrap();
        let mut waits = world.engines[1].start_unlock(window, Rank(2)).unwrap();
        let is_waiting = (0..1000).any(|_| {
            world.engines[1].progress();
            assert_eq!(world.engines[1].poll(&mut waits), Poll::Pending);
            world.counters(1).lock_retries > 1
        });
        assert!(is_waiting && world.engines[1].endpoint().arm_wait() && !would_wake(&mut world, 1));
        let mut leaves = world.engines[0].start_unlock(window, Rank(2)).unwrap();
        assert_eq!(world.engines[0].poll(&mut leaves), Poll::Ready(Ok(())));
        assert!(would_wake(&mut world, 1), "its turn has come: {lock_type:?}");
        world.wait_all(vec![(1, waits)]).unwrap();
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// Whose turn came while it was about to sleep does not.
#[test]
fn whose_turn_has_come_does_not_fall_asleep() {
    let mut world = world(locked_by_words(Spec::ranks(3)));
    let window = world.allocate(64);
    world.lock(0, window, 2, LockType::Exclusive).unwrap();
    world.put(0, window, 2, 0, &[1]).unwrap();
    world.flush(0, window, 2).unwrap();
    world.lock(1, window, 2, LockType::Exclusive).unwrap();
    world.put(1, window, 2, 8, &[1]).unwrap();
    let mut waits = world.engines[1].start_unlock(window, Rank(2)).unwrap();
    world.step_until("the rank waits", |world| world.counters(1).lock_retries > 0);
    assert_eq!(world.engines[1].poll(&mut waits), Poll::Pending);
    world.settle();
    let mut leaves = world.engines[0].start_unlock(window, Rank(2)).unwrap();
    assert_eq!(world.engines[0].poll(&mut leaves), Poll::Ready(Ok(())));
    // Nobody could wake it: it did not say that it sleeps.
    assert!(!would_wake(&mut world, 1));
    let may_sleep = (0..3).all(|_| world.engines[1].arm_wait());
    assert!(!may_sleep, "it has the lock");
    world.wait_all(vec![(1, waits)]).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// A fence of ranks that reach each other's memory is log2 P words, and no packet.
///
/// Shows: MPI_Win_fence.
#[test]
fn neighbours_fence_without_packets() {
    for (ranks, rounds) in [(2, 1), (4, 2)] {
        let mut world = world(Spec::ranks(ranks));
        let window = world.allocate(64);
        world.fence(window, FenceAssert::default()).unwrap();
        let before: Vec<_> = world.ranks().map(|rank| world.counters(rank)).collect();
        for rank in world.ranks() {
            world.put(rank, window, (rank + 1) % ranks, 0, &[1 + rank as u8]).unwrap();
        }
        world.fence(window, FenceAssert::default()).unwrap();
        for rank in world.ranks() {
            let counters = world.counters(rank).since(&before[rank as usize]);
            let packets: u64 = counters.packets_sent.iter().sum();
            assert_eq!((packets, counters.words_told, counters.native_puts), (0, rounds, 1));
            assert_eq!(world.memory((rank + 1) % ranks, window)[0], 1 + rank as u8);
        }
        world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// Who sleeps in a fence is woken by its neighbour's word; who has been told already must not sleep.
#[test]
fn who_sleeps_in_a_fence_is_woken() {
    let mut world = world(Spec::ranks(2));
    let window = world.allocate(64);
    world.fence(window, FenceAssert::default()).unwrap();
    world.settle();
    for is_told_first in [false, true] {
        let mut calls = Vec::new();
        let begin = |world: &mut ShmWorld, rank: usize| {
            let mut sync = world.engines[rank].start_fence(window, FenceAssert::default()).unwrap();
            (world.engines[rank].poll(&mut sync), sync)
        };
        let (polled, sync) = begin(&mut world, 1);
        assert_eq!(polled, Poll::Pending);
        calls.push((1, sync));
        if !is_told_first {
            assert!(world.engines[1].arm_wait(), "nobody has told yet");
            assert!(!would_wake(&mut world, 1));
        }
        let (polled, _) = begin(&mut world, 0);
        assert_eq!(polled, Poll::Ready(Ok(())), "both have come");
        match is_told_first {
            true => assert!(!world.engines[1].arm_wait(), "it has been told"),
            false => assert!(would_wake(&mut world, 1)),
        }
        assert_eq!(world.engines[1].poll(&mut calls[0].1), Poll::Ready(Ok(())), "without any progress");
        world.engines[1].progress();
    }
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// Post, start, complete and wait of ranks that reach each other's memory are a word each way, and no packet: around, where each
/// is origin and target, and again.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait.
#[test]
fn neighbours_post_and_complete_without_packets() {
    for ranks in [2u32, 4] {
        let mut world = world(Spec::ranks(ranks));
        let window = world.allocate(64);
        world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
        for number in 1..=3u8 {
            let before: Vec<_> = world.ranks().map(|rank| world.counters(rank)).collect();
            let (next, last) = (|rank: u32| (rank + 1) % ranks, |rank: u32| (rank + ranks - 1) % ranks);
            let group = |rank: u32| Group::new(&[Rank(rank)], ranks).unwrap();
            for rank in world.ranks() {
                let engine = &mut world.engines[rank as usize];
                let started = engine.start_post(window, &group(last(rank)), PostAssert::default());
                world.wait(rank, started).unwrap();
            }
            for rank in world.ranks() {
                let engine = &mut world.engines[rank as usize];
                let started = engine.start_start(window, &group(next(rank)), StartAssert::default());
                world.wait(rank, started).unwrap();
                world.put(rank, window, next(rank), 0, &[number]).unwrap();
                let started = world.engines[rank as usize].start_complete(window);
                world.wait(rank, started).unwrap();
            }
            for rank in world.ranks() {
                let started = world.engines[rank as usize].start_wait(window);
                world.wait(rank, started).unwrap();
                assert_eq!(world.memory(rank, window)[0], number);
                let counters = world.counters(rank).since(&before[rank as usize]);
                let packets: u64 = counters.packets_sent.iter().sum();
                assert_eq!((packets, counters.words_told, counters.native_puts), (0, 2, 1));
            }
        }
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// Who sleeps in wait is woken by the word that says that the epoch is complete, and who sleeps in complete by the post.
#[test]
fn who_sleeps_in_complete_or_wait_is_woken() {
    let mut world = world(Spec::ranks(2));
    let window = world.allocate(64);
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    let (origin, target) = (Group::new(&[Rank(0)], 2).unwrap(), Group::new(&[Rank(1)], 2).unwrap());
    let started = world.engines[0].start_start(window, &target, StartAssert::default());
    world.wait(0, started).unwrap();
    let data = [7; 100];
    world.put(0, window, 1, 0, &data[..64]).unwrap();
    let mut completes = world.engines[0].start_complete(window).unwrap();
    let _ = world.engines[0].poll(&mut completes);
    world.settle();
    assert!(world.engines[0].arm_wait() && !would_wake(&mut world, 0), "nobody has posted");
    let started = world.engines[1].start_post(window, &origin, PostAssert::default());
    let mut posts = started.unwrap();
    assert_eq!(world.engines[1].poll(&mut posts), Poll::Ready(Ok(())));
    assert!(would_wake(&mut world, 0), "it was posted to");
    let mut waits = world.engines[1].start_wait(window).unwrap();
    assert_eq!(world.engines[1].poll(&mut waits), Poll::Pending);
    assert!(world.engines[1].arm_wait() && !would_wake(&mut world, 1), "nobody has completed");
    let is_over = (0..100).any(|_| {
        world.engines[0].progress();
        world.engines[0].poll(&mut completes).is_ready() && world.engines[0].elements_in_use() == (0, 0)
    });
    assert!(is_over && would_wake(&mut world, 1), "it is complete");
    assert_eq!(world.engines[1].poll(&mut waits), Poll::Ready(Ok(())), "without any progress");
    assert_eq!(world.memory(1, window), data[..64]);
    world.free(window).unwrap();
    world.check_idle();
}
