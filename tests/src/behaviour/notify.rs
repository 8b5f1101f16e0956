//! Notified put: a word of the target's window changes after the data are there.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{Change, FenceAssert, Notification};
use rma_core::error::{Call, ErrorClass, RmaError};
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::path::Path;
use rma_core::provider::Endpoint;

use super::{is_tried, pattern, switched, Make};
use crate::{Spec, World};

/// Bytes of sizes that travel as small packets, packets, and several packets or native pieces.
const SIZES: [usize; 5] = [8, 64, 512, 5000, 1 << 17];

/// Where the word is, far behind all data.
const WORD: u64 = 1 << 18;

fn add(value: u64) -> Notification {
    Notification { disp: WORD, change: Change::Add(value) }
}

fn set(value: u64) -> Notification {
    Notification { disp: WORD, change: Change::Set(value) }
}

fn window<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>) -> WindowId {
    world.allocate(WORD as usize + 64)
}

fn await_word<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, rank: u32, window: WindowId, until: u64) {
    let started = world.engines[rank as usize].start_wait_notification(window, WORD, until);
    world.wait(rank, started).unwrap();
}

/// Whoever sees the notification sees the data, at every size; nobody calls anything for it.
///
/// Shows: ours: put_notify, ours: wait_notification, ours: test_notification.
pub fn data_before_their_notification<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world);
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    let mut expected = 0;
    for round in 0..3u64 {
        for len in SIZES {
            let data = pattern(len, round);
            let note = if round == 1 { set(expected + 3) } else { add(3) };
            world.put_notify(0, window, 1, 0, &data, &note).unwrap();
            expected += 3;
            let mut wait = world.engines[1].start_wait_notification(window, WORD, expected).unwrap();
            loop {
                let is_over = world.engines[1].poll(&mut wait).is_ready();
                let seen = world.engines[1].notification(window, WORD).unwrap();
                let is_there = world.memory(1, window)[..len] == data;
                assert!(seen < expected || is_there, "{len} bytes in round {round}");
                if is_over {
                    assert_eq!(seen, expected, "{len} bytes in round {round}");
                    break;
                }
                world.step();
            }
        }
    }
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started).unwrap();
    world.check_idle();
}

/// Small data and their notification are one packet, and nothing comes back; large native data are followed by
/// one packet or one atomic.
///
/// Shows: ours: put_notify.
pub fn notifications_cost_one_packet<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world);
    let paths = world.engines[0].window_paths(window, Dtype::U64).unwrap();
    let started = world.engines[0].start_lock_all(window, true);
    world.wait(0, started).unwrap();
    // Small, and large: where keys and addresses differ between ranks, the target is asked for its own, once.
    for data in [pattern(8, 1), pattern(1 << 17, 1)] {
        world.put_notify(0, window, 1, 0, &data, &add(1)).unwrap();
        world.flush(0, window, 1).unwrap();
    }
    for len in [8, 2000, 1 << 17] {
        world.settle();
        let before = world.counters(0);
        let data = pattern(len, 1);
        let word = world.word(1, window, WORD as usize);
        world.put_notify(0, window, 1, 0, &data, &add(1)).unwrap();
        await_word(&mut world, 1, window, word + 1);
        world.settle();
        let cost = world.counters(0).since(&before);
        let packets = cost.packets_sent.iter().sum::<u64>();
        let sent = (packets, cost.native_puts, cost.native_atomics);
        match paths {
            [Path::Native, _, Path::Native] => assert_eq!(sent, (0, 1, 1), "{len} bytes: {cost:?}"),
            [Path::Native, _, Path::Message] if len > 2048 => {
                assert_eq!((sent.0, sent.2), (1, 0), "{len} bytes: {cost:?}");
            }
            [_, _, Path::Message] if len <= 2048 => assert_eq!(sent, (1, 0, 0), "{len} bytes: {cost:?}"),
            _ => assert_eq!(sent.1, 0, "{len} bytes: {cost:?}"),
        }
        assert_eq!((cost.back(), cost.round_trips), (0, 0), "{len} bytes: {cost:?}");
    }
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started).unwrap();
    world.check_idle();
}

/// Notifications of one origin happen in the order of the calls, whatever the sizes of their data; plain puts
/// and other operations between them do not hold them up.
///
/// Shows: ours: put_notify.
pub fn notifications_keep_their_order<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world);
    let data: Vec<Vec<u8>> = (0..30).map(|index| pattern([5000, 8, 30_000, 300][index % 4], 7)).collect();
    world.lock(0, window, 1, Shared).unwrap();
    let mut seen = 0;
    for (index, data) in data.iter().enumerate() {
        world.put_notify(0, window, 1, 0, data, &set(index as u64 + 1)).unwrap();
        world.put(0, window, 1, 1 << 16, data).unwrap();
        world.step();
        let now = world.word(1, window, WORD as usize);
        assert!(now >= seen, "{now} after {seen}");
        seen = now;
    }
    for _ in 0..2000 {
        let now = world.word(1, window, WORD as usize);
        assert!(now >= seen, "{now} after {seen}");
        seen = now;
        world.step();
    }
    await_word(&mut world, 1, window, 30);
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.word(1, window, WORD as usize), 30);
    world.check_idle();
}

/// One without data waits for those before it, whose data may take longer.
///
/// Shows: ours: put_notify.
pub fn notifications_without_data_keep_their_turn<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world);
    let all: Vec<Vec<u8>> =
        (0..6).map(|round| pattern([30_000, 300, 5000][round % 3], round as u64)).collect();
    world.lock(0, window, 1, Shared).unwrap();
    for (round, data) in (0u64..).zip(&all) {
        let last = 4 * round + 4;
        for (index, data) in [&data[..], &[], &data[..8], &[]].into_iter().enumerate() {
            let note = set(4 * round + index as u64 + 1);
            world.put_notify(0, window, 1, (index << 16) as u64, data, &note).unwrap();
        }
        let mut seen = 4 * round;
        while seen < last {
            let now = world.word(1, window, WORD as usize);
            assert!(now >= seen, "{now} after {seen}");
            let is_there = world.memory(1, window)[..data.len()] == *data;
            assert!(is_there || now == 4 * round, "{now} before the data of round {round}");
            seen = now;
            world.step();
        }
        assert_eq!(seen, last);
    }
    world.unlock(0, window, 1).unwrap();
    world.check_idle();
}

/// complete leaves notified puts behind that are on their way, and the next start waits for them.
///
/// Shows: ours: put_notify, MPI_Win_complete, MPI_Win_start.
pub fn notified_puts_are_left_behind_by_complete<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world);
    let data = pattern(5000, 3);
    for round in 1..=4 {
        world.expose(1, window, &[0]).unwrap();
        world.start(0, window, &[1]).unwrap();
        world.put_notify(0, window, 1, 0, &data, &add(1)).unwrap();
        world.put_notify(0, window, 1, 8192, &data[..8], &add(1)).unwrap();
        world.put_notify(0, window, 1, 0, &[], &add(1)).unwrap();
        world.complete(0, window).unwrap();
        world.wait_exposed(1, window).unwrap();
        assert_eq!(world.word(1, window, WORD as usize), 3 * round);
    }
    world.settle();
    world.check_idle();
}

/// Small notified puts that are kept until the post, or the lock: what ends the epoch comes behind their notifications,
/// and the target that is told of the end has them.
///
/// Shows: ours: put_notify, MPI_Win_complete, MPI_Win_wait, MPI_Win_unlock.
pub fn the_end_of_an_epoch_is_behind_its_notifications<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for last in [8, 0] {
        let mut world = make(Spec::ranks(2));
        let window = window(&mut world);
        let data = pattern(8, 5);
        for round in 1..=4 {
            world.start(0, window, &[1]).unwrap();
            world.put_notify(0, window, 1, 0, &data, &add(1)).unwrap();
            world.put_notify(0, window, 1, 64, &data[..last], &add(1)).unwrap();
            let complete = world.engines[0].start_complete(window).unwrap();
            world.expose(1, window, &[0]).unwrap();
            world.wait_exposed(1, window).unwrap();
            assert_eq!(world.word(1, window, WORD as usize), 4 * round - 2, "{last} bytes last");
            world.wait_all(vec![(0, complete)]).unwrap();
            world.lock(0, window, 1, Exclusive).unwrap();
            world.put_notify(0, window, 1, 0, &data, &add(1)).unwrap();
            world.put_notify(0, window, 1, 64, &data[..last], &add(1)).unwrap();
            world.unlock(0, window, 1).unwrap();
            assert_eq!(world.word(1, window, WORD as usize), 4 * round, "{last} bytes last");
        }
        world.free(window).unwrap();
        world.check_idle();
    }
}

/// A counter that many origins raise.
///
/// Shows: ours: put_notify, ours: wait_notification.
pub fn notifications_of_many_origins<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = window(&mut world);
    let data: Vec<Vec<u8>> = (0..4).map(|rank| pattern(3000, rank)).collect();
    for rank in 0..4 {
        let started = world.engines[rank as usize].start_lock_all(window, false);
        world.wait(rank, started).unwrap();
    }
    for round in 1..=5u64 {
        for rank in 0..4 {
            let disp = 4096 * u64::from(rank);
            world.put_notify(rank, window, 2, disp, &data[rank as usize], &add(1)).unwrap();
        }
        await_word(&mut world, 2, window, 4 * round);
        for (rank, sent) in data.iter().enumerate().take(4) {
            assert_eq!(world.memory(2, window)[4096 * rank..][..3000], *sent);
        }
    }
    let calls = (0..4).map(|rank| (rank, world.engines[rank as usize].start_unlock_all(window).unwrap()));
    let calls = calls.collect();
    world.wait_all(calls).unwrap();
    assert_eq!(world.word(2, window, WORD as usize), 20);
    world.check_idle();
}

/// A put that the target, or what is known of it, refuses notifies nobody.
///
/// Shows: ours: put_notify, MPI_ERR_RMA_RANGE.
pub fn no_notification_of_a_failed_put<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate_uneven(|rank| 64 + 64 * rank as usize, |_| 1);
    for (len, disp, word) in [(8, 1000, 0), (64, 100, 8), (300, 0, 0), (16, 64, 1000)] {
        for _ in 0..2 {
            let data = pattern(len, 3);
            let note = Notification { disp: word, change: Change::Add(1) };
            world.lock(0, window, 1, Exclusive).unwrap();
            let put = world.put_notify(0, window, 1, disp, &data, &note);
            let unlock = world.unlock(0, window, 1);
            let error = put.and(unlock).unwrap_err();
            assert!(matches!(error, RmaError::Range { target: Rank(1), .. }), "{error:?}");
            assert_eq!(world.memory(1, window)[..64], [0; 64], "{len} bytes at {disp}");
        }
    }
    world.check_idle();
}

/// Words outside of the window, and between two words.
///
/// Shows: ours: put_notify, ours: wait_notification, ours: test_notification, MPI_ERR_RMA_RANGE, MPI_ERR_ARG.
pub fn words_that_cannot_be_notified<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    for (disp, is_range) in [(60, true), (64, true), (u64::MAX, true), (4, false)] {
        let started = world.engines[0].start_wait_notification(window, disp, 1).map(drop);
        let loaded = world.engines[0].notification(window, disp).map(drop);
        for error in [started.unwrap_err(), loaded.unwrap_err()] {
            let is_right = match error {
                RmaError::Range { target: Rank(0), window_bytes: 64, .. } => is_range,
                RmaError::Argument { .. } => !is_range,
                _ => false,
            };
            assert!(is_right, "{disp}: {error:?}");
        }
    }
    world.lock(0, window, 1, Shared).unwrap();
    let note = Notification { disp: 4, change: Change::Add(1) };
    let error = world.put_notify(0, window, 1, 8, &[1; 8], &note).unwrap_err();
    assert!(matches!(error, RmaError::Argument { call: Call::PutNotify, .. }), "{error:?}");
    let note = Notification { disp: 64, change: Change::Add(1) };
    let error = world.put_notify(0, window, 1, 8, &[1; 8], &note).unwrap_err();
    assert!(matches!(error, RmaError::Range { call: Call::PutNotify, .. }), "{error:?}");
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.memory(1, window), [0; 64]);
    let error = world.put_notify(0, window, 1, 8, &[1; 8], &add(1)).unwrap_err();
    assert!(matches!(error, RmaError::Epoch { .. } | RmaError::Range { .. }), "{error:?}");
    world.check_idle();
}

/// Where all ranks have as much, a wrong word is refused before anything is known of the target but that.
///
/// Shows: ours: put_notify, MPI_ERR_RMA_RANGE.
pub fn words_that_are_refused_at_once<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    // What only one rank registers: from here on no fabric that chooses keys gives both the same.
    world.allocate_uneven(|rank| 64 * rank as usize, |_| 1);
    let (locked, untouched) = (world.allocate(64), world.allocate(64));
    world.lock(0, locked, 1, Shared).unwrap();
    let started = world.engines[0].start_lock_all(untouched, false);
    world.wait(0, started).unwrap();
    for window in [locked, untouched] {
        for (disp, class) in [(64, ErrorClass::RmaRange), (4, ErrorClass::Argument)] {
            let note = Notification { disp, change: Change::Add(1) };
            // SAFETY: the data are constants.
            let noted = unsafe { world.engines[0].put_notify(window, Rank(1), 8, [1; 8].as_ptr(), 8, &note) };
            match noted {
                Poll::Ready(Err(error)) => assert_eq!(error.class(), class, "{error}"),
                other => panic!("an error was due at once, not {other:?}"),
            }
        }
    }
    world.unlock(0, locked, 1).unwrap();
    let started = world.engines[0].start_unlock_all(untouched);
    world.wait(0, started).unwrap();
    assert_eq!([world.memory(1, locked), world.memory(1, untouched)], [[0; 64]; 2]);
    world.check_idle();
}

/// No data, no rank, oneself.
///
/// Shows: ours: put_notify, MPI_PROC_NULL.
pub fn notifications_without_data<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world);
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    world.put_notify(0, window, 1, 0, &[], &add(5)).unwrap();
    await_word(&mut world, 1, window, 5);
    let data = pattern(500, 1);
    world.put_notify(0, window, 0, 0, &data, &add(2)).unwrap();
    world.put_notify(0, window, 0, 0, &[], &add(2)).unwrap();
    await_word(&mut world, 0, window, 4);
    assert_eq!(world.memory(0, window)[..500], data);
    world.put_notify(0, window, Rank::NULL.0, 0, &data, &add(1)).unwrap();
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started).unwrap();
    assert_eq!(world.word(1, window, WORD as usize), 5);
    assert_eq!(world.word(0, window, WORD as usize), 4);
    world.check_idle();
}

/// One or two elements for everything.
///
/// Shows: ours: put_notify, seed: RESTORE_OP_ELEM_RESOURCES.
pub fn notifications_with_few_elements<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for pool in [1, 2] {
        let config = Config {
            operation_pool: pool,
            operation_pool_global: 0,
            target_pool: 1,
            target_pool_global: 0,
            ..Config::default()
        };
        let mut world = make(Spec { ranks: 3, config });
        let window = window(&mut world);
        let data: Vec<Vec<u8>> = SIZES.iter().map(|&len| pattern(len, 2)).collect();
        let started = world.engines[0].start_lock_all(window, false);
        world.wait(0, started).unwrap();
        for round in 1..=2u64 {
            for data in &data {
                for target in [1, 2] {
                    world.put_notify(0, window, target, 0, data, &add(1)).unwrap();
                }
            }
            for target in [1, 2] {
                await_word(&mut world, target, window, round * SIZES.len() as u64);
            }
        }
        let started = world.engines[0].start_unlock_all(window);
        world.wait(0, started).unwrap();
        assert_eq!(world.memory(2, window)[..1 << 17], data[4]);
        world.check_idle();
    }
}

/// unlock and flush complete the notification with its put, whatever is switched off.
///
/// Shows: ours: put_notify, MPI_Win_unlock, MPI_Win_flush.
pub fn notifications_under_all_switches<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut is_real = false;
    for bits in 0..32u32 {
        if !is_tried(bits, 5, is_real) {
            continue;
        }
        let config = switched(bits);
        let mut world = make(Spec { ranks: 2, config });
        is_real = world.now_ns().is_none();
        let window = window(&mut world);
        let mut count = 0;
        for (index, len) in SIZES.into_iter().enumerate() {
            let data = pattern(len, bits.into());
            let mut got = [1; 16];
            world.lock(0, window, 1, Exclusive).unwrap();
            world.get(0, window, 1, 0, &mut got).unwrap();
            world.put_notify(0, window, 1, 64, &data, &add(1)).unwrap();
            world.put(0, window, 1, 8, &data[..8]).unwrap();
            count += 1;
            if index % 2 == 0 {
                world.flush(0, window, 1).unwrap();
                assert_eq!(world.word(1, window, WORD as usize), count, "switches {bits:05b}");
            }
            world.unlock(0, window, 1).unwrap();
            assert_eq!(world.word(1, window, WORD as usize), count, "switches {bits:05b}");
            assert_eq!(world.memory(1, window)[64..64 + len], data, "switches {bits:05b}");
        }
        world.check_idle();
    }
}

/// In a fence epoch, also before everybody has come.
///
/// Shows: ours: put_notify, MPI_Win_fence.
pub fn notifications_in_a_fence_epoch<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world);
    let data: Vec<Vec<u8>> = SIZES.iter().map(|&len| pattern(len, 2)).collect();
    let assert = FenceAssert { no_precede: true, ..FenceAssert::default() };
    for round in 1..=2 {
        world.fence(window, if round == 1 { assert } else { FenceAssert::default() }).unwrap();
        for data in &data {
            world.put_notify(0, window, 1, 0, data, &add(1)).unwrap();
        }
        await_word(&mut world, 1, window, round * SIZES.len() as u64);
    }
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    assert_eq!(world.word(1, window, WORD as usize), 2 * SIZES.len() as u64);
    world.check_idle();
}

/// A flush that nobody waits for covers notifications; what is ordered behind one comes after it.
///
/// Shows: ours: put_notify, ours: iflush, ours: order.
pub fn notifications_and_marks<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world);
    world.lock(0, window, 1, Shared).unwrap();
    let mut count = 0u64;
    for len in SIZES {
        let data = pattern(len, 4);
        world.put_notify(0, window, 1, 0, &data, &add(1)).unwrap();
        count += 1;
        let mut request = world.engines[0].flush_request(window, Some(Rank(1)), false).unwrap();
        world.put(0, window, 1, 1 << 17, &data[..8]).unwrap();
        world.wait_request(0, &mut request).unwrap();
        assert_eq!(world.word(1, window, WORD as usize), count, "{len} bytes");
        for behind in [8, 5000] {
            let flag = vec![count as u8; behind];
            world.put_notify(0, window, 1, 0, &data, &add(1)).unwrap();
            count += 1;
            world.engines[0].order(window, Rank(1)).unwrap();
            world.put(0, window, 1, (1 << 17) + 64, &flag).unwrap();
            let mut flush = world.engines[0].start_flush(window, Rank(1)).unwrap();
            while world.engines[0].poll(&mut flush).is_pending() {
                let is_seen = world.memory(1, window)[(1 << 17) + 64] == flag[0];
                let notified = world.word(1, window, WORD as usize);
                assert!(!is_seen || notified == count, "{behind} bytes behind {len}");
                world.step();
            }
            assert_eq!(world.memory(1, window)[(1 << 17) + 64], flag[0]);
        }
    }
    world.unlock(0, window, 1).unwrap();
    world.check_idle();
}

/// A notified put whose lock has to wait.
///
/// Shows: ours: put_notify, MPI-4.1 13.5.3.
pub fn notifications_wait_for_the_lock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for (deferred_bytes, lock_waiters) in [(0, 64), (8192, 64), (8192, 1)] {
        let mut world = make(Spec::ranks(4).with(|config| {
            (config.deferred_bytes, config.lock_waiters) = (deferred_bytes, lock_waiters);
        }));
        let window = window(&mut world);
        world.lock(3, window, 1, Exclusive).unwrap();
        world.put(3, window, 1, 0, &[2; 8]).unwrap();
        world.flush(3, window, 1).unwrap();
        let data = [pattern(40, 3), pattern(9000, 4)];
        for (rank, data) in [(0, &data[0]), (2, &data[1])] {
            world.lock(rank, window, 1, Shared).unwrap();
            world.put_notify(rank, window, 1, 16384 * u64::from(rank), data, &add(1)).unwrap();
        }
        for _ in 0..100 {
            assert_eq!(world.engines[1].notification(window, WORD), Ok(0), "the lock is another rank's");
            world.step();
        }
        world.unlock(3, window, 1).unwrap();
        // Nothing else is called for: notified puts are not kept back.
        await_word(&mut world, 1, window, 2);
        assert_eq!(world.memory(1, window)[..40], data[0]);
        assert_eq!(world.memory(1, window)[32768..][..9000], data[1]);
        world.unlock(0, window, 1).unwrap();
        world.unlock(2, window, 1).unwrap();
        assert_eq!(world.word(1, window, WORD as usize), 2);
        world.check_idle();
    }
}
