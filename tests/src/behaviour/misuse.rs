//! Misuse is an error value that names call, state and rule; nothing is lost or changed by it.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::{Engine, FenceAssert, SyncCall};
use rma_core::error::{Call, ErrorClass, RmaError, Rule};
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::Make;
use crate::Spec;

fn epoch(result: Result<impl Sized, RmaError>) -> (Call, &'static str, Rule) {
    match result.map(|_| ()) {
        Err(error @ RmaError::Epoch { call, state, rule, .. }) => {
            is_named(&error, call, rule, &[state]);
            (call, state, rule)
        }
        other => panic!("an epoch error was due, not {other:?}"),
    }
}

/// The message says by which call, with these words, which rule was broken.
fn is_named(error: &RmaError, call: Call, rule: Rule, words: &[&str]) {
    let message = error.to_string();
    assert_eq!(error.rule(), Some(rule), "{message}");
    assert!(message.starts_with(&format!("{call}: ")), "{message}");
    assert!(message.contains(rule.text()) && message.contains(rule.section()), "{message}");
    assert!(words.iter().all(|word| message.contains(word)), "{words:?} in: {message}");
}

/// Calls that do not fit the epoch.
///
/// Shows: MPI_ERR_RMA_SYNC, rule: access-epoch-required, rule: lock-nested, rule: unlock-unmatched, rule: lock-fence-exclude, rule: flush-passive-only, notes: epoch checked, MPI-4.1 13.6.
pub fn outside_epochs<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate(64);
    let data = [1; 8];
    assert_eq!(epoch(world.put(0, window, 1, 0, &data)), (Call::Put, "Unset", Rule::NoEpoch));
    assert_eq!(epoch(world.unlock(0, window, 1)), (Call::Unlock, "Unset", Rule::NoSuchEpoch));
    let started = world.engines[0].start_unlock_all(window);
    assert_eq!(epoch(started), (Call::UnlockAll, "Unset", Rule::NoSuchEpoch));
    assert_eq!(epoch(world.flush(0, window, 1)), (Call::Flush, "Unset", Rule::FlushOutsidePassive));

    world.lock(0, window, 1, Shared).unwrap();
    let again = world.lock(0, window, 1, Exclusive);
    assert_eq!(epoch(again), (Call::Lock, "PerTarget", Rule::AlreadyLocked));
    assert_eq!(epoch(world.put(0, window, 2, 0, &data)), (Call::Put, "PerTarget", Rule::NotLocked));
    assert_eq!(epoch(world.put(0, window, 0, 0, &data)), (Call::Put, "PerTarget", Rule::NotLocked));
    assert_eq!(epoch(world.unlock(0, window, 2)), (Call::Unlock, "PerTarget", Rule::NoSuchEpoch));
    assert_eq!(epoch(world.flush(0, window, 2)), (Call::Flush, "PerTarget", Rule::NotLocked));
    let started = world.engines[0].start_lock_all(window, false);
    assert_eq!(epoch(started), (Call::LockAll, "PerTarget", Rule::OtherEpochOpen));
    let started = world.engines[0].start_fence(window, FenceAssert::default());
    assert_eq!(epoch(started), (Call::Fence, "PerTarget", Rule::OtherEpochOpen));
    let started = world.engines[0].start_free(window);
    assert_eq!(epoch(started), (Call::Free, "PerTarget", Rule::FreeInsideEpoch));
    // The epoch is still whole after all that.
    world.put(0, window, 1, 0, &data).unwrap();
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.memory(1, window)[..8], data);

    world.fence(window, FenceAssert::default()).unwrap();
    world.put(0, window, 1, 8, &data).unwrap();
    let lock = world.lock(0, window, 1, Shared);
    assert_eq!(epoch(lock), (Call::Lock, "FenceGranted", Rule::OtherEpochOpen));
    let assert = FenceAssert { no_precede: true, ..FenceAssert::default() };
    let started = world.engines[0].start_fence(window, assert);
    assert_eq!(epoch(started), (Call::Fence, "FenceGranted", Rule::NoPrecedeBroken));
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    assert_eq!(world.memory(1, window)[8..16], data);
    world.check_idle();
}

/// Ranks, windows, displacement units, types that cannot be.
///
/// Shows: MPI_ERR_RANK, MPI_ERR_ARG, MPI_ERR_WIN, MPI_ERR_OP, MPI_ERR_DISP, MPI_ERR_NO_MEM, MPI-4.1 13.6.
pub fn wrong_arguments<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let wrong_rank = RmaError::Rank { call: Call::Lock, target: Rank(2), size: 2 };
    assert_eq!(world.lock(0, window, 2, Shared), Err(wrong_rank.clone()));
    is_named(&wrong_rank, Call::Lock, Rule::RankOfWindow, &["rank 2", "0 to 1"]);
    let missing = WindowId(77);
    let wrong_window = RmaError::Window { call: Call::Lock, window: missing };
    assert_eq!(world.lock(0, missing, 1, Shared), Err(wrong_window.clone()));
    is_named(&wrong_window, Call::Lock, Rule::WindowExists, &["window 77 does not exist"]);
    // What one rank cannot do fails at every rank, and the next window works.
    for (len, unit) in [(64, 0), (usize::MAX / 2, 1)] {
        let (_, wrong) = world.engines[0].start_allocate(len, unit).unwrap();
        let (_, right) = world.engines[1].start_allocate(64, 1).unwrap();
        let elsewhere = world.wait_each(vec![(0, wrong), (1, right)]);
        let [Err(own), Err(other)] = &elsewhere[..] else { panic!("both must fail: {elsewhere:?}") };
        match own.class() {
            ErrorClass::Disp => is_named(own, Call::Allocate, Rule::UnitPositive, &["unit is 0"]),
            ErrorClass::NoMemory => is_named(own, Call::Allocate, Rule::MemoryThere, &[&len.to_string()]),
            class => panic!("{class}: {own:?}"),
        }
        is_named(other, Call::Allocate, Rule::AllRanksOrNone, &["rank 0", own.class().name()]);
        let elsewhere = RmaError::Elsewhere { call: Call::Allocate, class: own.class(), target: Rank(0) };
        assert_eq!(other, &elsewhere);
    }
    world.lock(0, window, 1, Shared).unwrap();
    let data = [0; 8];
    let wrong_rank = Err(RmaError::Rank { call: Call::Put, target: Rank(9), size: 2 });
    assert_eq!(world.put(0, window, 9, 0, &data), wrong_rank);
    let undefined = world.accumulate(0, window, 1, 0, &data, Dtype::F64, ReduceOp::BitAnd);
    let undefined = undefined.unwrap_err();
    is_named(&undefined, Call::Accumulate, Rule::DefinedReduction, &["band", "f64", "MPI_ERR_OP"]);
    let torn = world.accumulate(0, window, 1, 0, &data[..7], Dtype::F64, ReduceOp::Sum);
    let torn = torn.unwrap_err();
    is_named(&torn, Call::Accumulate, Rule::WholeElements, &["whole number", "MPI_ERR_ARG"]);
    world.unlock(0, window, 1).unwrap();
    world.check_idle();
}

/// Ranks that meet in different collective calls all learn of it, and the next calls meet as they should.
///
/// Shows: MPI_ERR_RMA_SYNC, MPI_Win_allocate, MPI_Win_allocate_shared.
pub fn collective_calls_must_agree<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    type Start<E, B> = fn(&mut Engine<E, B>) -> Result<SyncCall, RmaError>;
    let calls: [Start<E, B>; 3] = [
        |engine| engine.start_allocate(64, 1).map(|(_, sync)| sync),
        Engine::start_barrier,
        |engine| engine.start_agree(Call::AllocateShared, [7, 0, 0, 0]),
    ];
    let mut world = make(Spec::ranks(3));
    for (index, odd) in calls.into_iter().enumerate() {
        for (_, others) in calls.into_iter().enumerate().filter(|(other, _)| *other != index) {
            let started = world.ranks().map(|rank| {
                let start = if rank == 1 { odd } else { others };
                (rank, start(&mut world.engines[rank as usize]).unwrap())
            });
            let started = started.collect();
            for result in world.wait_each(started) {
                let error = result.unwrap_err();
                assert_eq!(error.class(), ErrorClass::RmaSync);
                is_named(&error, error.call(), Rule::SameCalls, &["different collective calls"]);
            }
            assert!(world.engines.iter().all(|engine| engine.window_count() == 0));
            let barrier =
                world.ranks().map(|rank| (rank, world.engines[rank as usize].start_barrier().unwrap()));
            let barrier = barrier.collect();
            world.wait_all(barrier).unwrap();
        }
    }
    let window = world.allocate(64);
    world.free(window).unwrap();
    world.check_idle();
}

/// Ranks that free a window where others are in a fence of it: nobody's memory is given back while others may access it, all
/// learn of it, and nothing on the window waits for the others any more.
///
/// Shows: MPI_ERR_RMA_SYNC, MPI_Win_free.
pub fn a_fence_is_not_met_by_free<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let begins = FenceAssert { no_precede: true, ..FenceAssert::default() };
    for (odd, opens) in [(0, false), (1, false), (2, true), (1, true)] {
        let mut world = make(Spec::ranks(3));
        let window = world.allocate(64);
        let is_refused = |result: Result<(), RmaError>| {
            let error = result.unwrap_err();
            assert_eq!(error.class(), ErrorClass::RmaSync);
            is_named(&error, error.call(), Rule::SameCalls, &["in a fence", "others free it"]);
        };
        let others: Vec<u32> = world.ranks().filter(|rank| *rank != odd).collect();
        if opens {
            for &rank in &others {
                let opening = world.engines[rank as usize].start_fence(window, begins);
                world.wait(rank, opening).unwrap();
                world.put(rank, window, odd, 8 * u64::from(rank), &[7; 8]).unwrap();
            }
        }
        let mut calls = vec![(odd, world.engines[odd as usize].start_free(window).unwrap())];
        for &rank in &others {
            let fence = world.engines[rank as usize].start_fence(window, FenceAssert::default());
            calls.push((rank, fence.unwrap()));
        }
        world.wait_each(calls).into_iter().for_each(is_refused);
        for &rank in others.iter().filter(|_| opens) {
            let place = 8 * rank as usize;
            let memory = world.memory(odd, window);
            assert_eq!(memory[place..place + 8], [7; 8], "what was put to the window is in it");
        }
        // Each of these alone: nobody else would come.
        for rank in world.ranks() {
            let fence = world.engines[rank as usize].start_fence(window, begins);
            is_refused(world.wait(rank, fence));
            let free = world.engines[rank as usize].start_free(window);
            is_refused(world.wait(rank, free));
        }
        assert!(world.engines.iter().all(|engine| engine.window_count() == 1));
        // Other windows are as ever.
        let other = world.allocate(8);
        world.fence(other, FenceAssert::default()).unwrap();
        world.free(other).unwrap();
    }
}

/// Accesses outside the target's window, found at the origin when it knows the window, else by the
/// target, and reported by the call that completes; the lock is released all the same.
///
/// Shows: MPI_ERR_RMA_RANGE, notes: target checks at put time, MPI-4.1 13.6.
pub fn out_of_range<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let even = world.allocate(64);
    let uneven = world.allocate_uneven(|rank| 64 + 64 * rank as usize, |rank| 1 + 7 * rank);
    let data = [1; 8];
    for window in [even, uneven] {
        let last = if window == even { 64 } else { 16 };
        for disp in [last, last + 1, u64::MAX, u64::MAX / 8] {
            for _ in 0..2 {
                world.lock(0, window, 1, Exclusive).unwrap();
                let put = world.put(0, window, 1, disp, &data);
                let end = world.unlock(0, window, 1);
                let error = put.and(end).unwrap_err();
                assert!(matches!(error, RmaError::Range { target: Rank(1), .. }), "{error:?}");
                let has = if window == even { "has 64 bytes" } else { "has 128 bytes" };
                is_named(
                    &error,
                    error.call(),
                    Rule::InsideWindow,
                    &["rank 1", has, "8 bytes at byte offset"],
                );
            }
        }
        // Everything still works, for both ranks, and the good operation beside the bad one was done.
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &data).unwrap();
        let mut got = [9; 8];
        let get = world.get(0, window, 1, last, &mut got);
        let end = world.unlock(0, window, 1);
        assert!(get.and(end).is_err());
        assert_eq!(got, [9; 8]);
        world.lock(1, window, 1, Exclusive).unwrap();
        world.unlock(1, window, 1).unwrap();
        assert_eq!(world.memory(1, window)[..8], data);
    }
    world.fence(uneven, FenceAssert::default()).unwrap();
    let put = world.put(0, uneven, 1, 1000, &data);
    let fence = world.fence(uneven, FenceAssert { no_succeed: true, ..FenceAssert::default() });
    assert!(put.and(fence).is_err());
    world.check_idle();
}

/// Empty windows are legal; operations on them are not.
///
/// Shows: MPI_Win_allocate, MPI_ERR_RMA_RANGE.
pub fn empty_windows<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate_uneven(|rank| if rank == 1 { 0 } else { 64 }, |_| 1);
    let data = [1; 8];
    world.lock(0, window, 1, Shared).unwrap();
    let put = world.put(0, window, 1, 0, &data);
    let end = world.unlock(0, window, 1);
    let error = put.and(end).unwrap_err();
    assert!(matches!(error, RmaError::Range { window_bytes: 0, .. }), "{error:?}");
    world.lock(1, window, 2, Shared).unwrap();
    world.put(1, window, 2, 0, &data).unwrap();
    world.unlock(1, window, 2).unwrap();
    assert_eq!(world.memory(2, window)[..8], data);
    world.free(window).unwrap();
    let nothing = world.allocate(0);
    world.fence(nothing, FenceAssert::default()).unwrap();
    world.fence(nothing, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    world.check_idle();
}
