//! What programs say about windows, and what it changes.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::FenceAssert;
use rma_core::error::{Call, ErrorClass, RmaError, Rule};
use rma_core::ids::Rank;
use rma_core::info::{AccumulateOps, AccumulateOrdering, Flavor, LockProtocol, MemoryModel, WindowOptions};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::path::Path;
use rma_core::provider::Endpoint;

use super::{pattern, Make};
use crate::Spec;

const DEFAULT: WindowOptions = WindowOptions::DEFAULT;
const LAST: FenceAssert = FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

fn no_locks(call: Call, target: Option<Rank>) -> RmaError {
    RmaError::Epoch { call, target, state: "Unset", rule: Rule::NoLocks }
}

/// A window without locks refuses them, has no memory for them, and does everything else.
///
/// Shows: no_locks, MPI-4.1 13.2.1.
pub fn no_locks_refuses_locks<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let plain = world.allocate(64);
    let window = world.allocate_with(64, &WindowOptions { no_locks: true, ..DEFAULT });
    assert_eq!(world.lock(0, window, 1, Shared), Err(no_locks(Call::Lock, Some(Rank(1)))));
    assert_eq!(world.lock(0, window, 0, Exclusive), Err(no_locks(Call::Lock, Some(Rank(0)))));
    let started = world.engines[1].start_lock_all(window, true);
    assert_eq!(started.unwrap_err(), no_locks(Call::LockAll, None));
    let [with, without] = [plain, window].map(|id| world.engines[0].window_bytes(id).unwrap());
    let deferred = world.engines[0].config().deferred_bytes;
    assert!(without + deferred < with, "{without} bytes without a lock, {with} with one");
    let data = pattern(8, 1);
    world.fence(window, FenceAssert::default()).unwrap();
    world.put(0, window, 2, 8, &data).unwrap();
    world.fence(window, LAST).unwrap();
    assert_eq!(world.memory(2, window)[8..16], data);
    world.free(window).unwrap();
    world.check_idle();
}

/// What not every rank says is not in force.
///
/// Shows: MPI_Win_get_info, no_locks, MPI-4.1 13.2.1.
pub fn what_ranks_say_differently_is_not_in_force<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.make(|engine, rank| {
        let some = WindowOptions { no_locks: rank != 1, memory_alignment: 8192, ..DEFAULT };
        engine.start_allocate_with(64, 1, &some)
    });
    for engine in &world.engines {
        let options = engine.window_options(window).unwrap();
        assert!(!options.no_locks);
        assert_eq!(options.memory_alignment, 8192, "what each rank may say for itself stays");
    }
    let data = pattern(8, 2);
    world.lock(0, window, 2, Exclusive).unwrap();
    world.put(0, window, 2, 0, &data).unwrap();
    world.unlock(0, window, 2).unwrap();
    assert_eq!(world.memory(2, window)[..8], data);
    world.check_idle();
}

/// Every option that is given by all is reported by all.
///
/// Shows: MPI_Win_get_info, MPI-4.1 13.2.7.
pub fn options_are_reported<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let given = WindowOptions {
        no_locks: true,
        accumulate_ordering: AccumulateOrdering { waw: false, ..AccumulateOrdering::STRICT },
        accumulate_ops: AccumulateOps::SameOp,
        accumulate_granularity: 64,
        same_size: true,
        same_disp_unit: true,
        alloc_shared_noncontig: true,
        memory_alignment: 1 << 14,
        model: Some(MemoryModel::Separate),
        check: Some(false),
        // Nobody locks the window; messages are what there would be.
        lock_protocol: Some(LockProtocol::Message),
        ..DEFAULT
    };
    let window = world.allocate_with(64, &given);
    for engine in &world.engines {
        assert_eq!(engine.window_options(window), Some(given));
    }
    let plain = world.allocate(64);
    let lock_protocol = Some(world.engines[0].config().lock_protocol);
    let (model, check) = (Some(MemoryModel::Unified), Some(false));
    let defaults = WindowOptions { model, check, lock_protocol, ..DEFAULT };
    assert_eq!(world.engines[0].window_options(plain), Some(defaults));
}

/// The order of accumulates may change while the window exists; what decides its memory may not.
///
/// Shows: MPI_Win_set_info, accumulate_ordering, accumulate_ops, MPI-4.1 13.2.7.
pub fn set_info_changes_what_can_change<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let wish = WindowOptions {
        no_locks: true,
        accumulate_ordering: AccumulateOrdering::NONE,
        accumulate_ops: AccumulateOps::SameOp,
        ..DEFAULT
    };
    for engine in &mut world.engines {
        engine.set_window_options(window, &wish).unwrap();
        let options = engine.window_options(window).unwrap();
        assert_eq!(options.accumulate_ordering, AccumulateOrdering::NONE);
        assert_eq!(options.accumulate_ops, AccumulateOps::SameOp);
        assert!(!options.no_locks);
    }
    world.free(window).unwrap();
    let gone = world.engines[0].set_window_options(window, &wish);
    assert_eq!(gone.unwrap_err().class(), ErrorClass::Window);
}

/// With same_size and same_disp_unit nothing is compared or asked for: the origin takes its own size for
/// everybody's, and refuses what reaches beyond it without a packet.
///
/// Shows: same_size, same_disp_unit, MPI-4.1 13.2.1.
pub fn same_size_is_believed<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let options = WindowOptions { same_size: true, same_disp_unit: true, ..DEFAULT };
    let window = world.make(|engine, rank| {
        // Not the same: the program breaks its promise, and gets what it asked for.
        engine.start_allocate_with(64 + 64 * rank as usize, 1, &options)
    });
    world.lock(0, window, 1, Shared).unwrap();
    let before = world.counters(0).packets_sent;
    let beyond = world.put(0, window, 1, 64, &[1; 8]).unwrap_err();
    assert_eq!(beyond.class(), ErrorClass::RmaRange);
    assert_eq!(world.counters(0).packets_sent, before);
    world.unlock(0, window, 1).unwrap();
    world.check_idle();
}

/// While conflicts are looked for, a broken promise of the same size or unit is an error of every rank.
///
/// Shows: same_size, same_disp_unit, MPI_ERR_SIZE, MPI_ERR_DISP.
pub fn same_size_is_verified_when_checking<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let check = WindowOptions { check: Some(true), same_size: true, ..DEFAULT };
    let (_, results) =
        world.make_each(|engine, rank| engine.start_allocate_with(64 + rank as usize, 1, &check));
    assert!(results.iter().all(|result| result.as_ref().unwrap_err().class() == ErrorClass::Size));
    let check = WindowOptions { check: Some(true), same_disp_unit: true, ..DEFAULT };
    let (_, results) = world.make_each(|engine, rank| engine.start_allocate_with(64, 1 + rank, &check));
    assert!(results.iter().all(|result| result.as_ref().unwrap_err().class() == ErrorClass::Disp));
    assert!(world.engines.iter().all(|engine| engine.window_count() == 0));
    let window = world.allocate_with(64, &check);
    world.free(window).unwrap();
    world.check_idle();
}

/// Allocated memory is aligned as wished.
///
/// Shows: mpi_minimum_memory_alignment, MPI-4.1 13.2.2.
pub fn allocated_memory_is_aligned<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    for memory_alignment in [0, 64, 1 << 12, 1 << 16, 1 << 20] {
        let window = world.allocate_with(100, &WindowOptions { memory_alignment, ..DEFAULT });
        for engine in &world.engines {
            let base = engine.window_attributes(window).unwrap().base;
            assert_eq!(base.addr() % (memory_alignment as usize).max(4096), 0, "{memory_alignment}");
        }
        world.free(window).unwrap();
    }
}

/// Atomic updates of more than the fabric's atomics cover are left to the target's process.
///
/// Shows: mpi_accumulate_granularity, MPI-4.1 13.2.1.
pub fn coarse_accumulates_are_messages<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let plain = world.allocate_with(64, &DEFAULT);
    for (granularity, is_coarse) in [(0, false), (1, false), (8, false), (9, true), (4096, true)] {
        let options = WindowOptions { accumulate_granularity: granularity, ..DEFAULT };
        let window = world.allocate_with(64, &options);
        let paths = |id| world.engines[0].window_paths(id, Dtype::U64).unwrap();
        let [put, get, accumulate] = paths(window);
        assert_eq!([put, get], paths(plain)[..2]);
        assert_eq!(accumulate, if is_coarse { Path::Message } else { paths(plain)[2] });
    }
}

/// Looking for conflicts takes the message path, where the target sees every access.
///
/// Shows: ours: checker.
pub fn checking_takes_messages<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate_with(64, &WindowOptions { check: Some(true), ..DEFAULT });
    assert_eq!(world.engines[0].window_paths(window, Dtype::U64), Some([Path::Message; 3]));
}

/// Base, size, displacement unit, flavor and model are what the rank gave.
///
/// Shows: MPI_Win_get_attr, MPI_WIN_BASE, MPI_WIN_SIZE, MPI_WIN_DISP_UNIT, MPI_WIN_CREATE_FLAVOR, MPI_WIN_MODEL, MPI-4.1 13.2.6.
pub fn attributes_are_what_was_given<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = world.allocate_uneven(|rank| 64 * rank as usize, |rank| 1 + rank);
    for (rank, engine) in (0u32..).zip(&world.engines) {
        let attributes = engine.window_attributes(window).unwrap();
        assert_eq!((attributes.len, attributes.disp_unit), (64 * rank as usize, 1 + rank));
        assert_eq!((attributes.flavor, attributes.model), (world.flavor(), MemoryModel::Unified));
        assert_eq!(attributes.base.is_null(), rank == 0);
    }
    let part = world.create_over(window, 0, 0);
    assert_eq!(world.engines[2].window_attributes(part).unwrap().flavor, Flavor::Create);
    world.free(part).unwrap();
    world.free(window).unwrap();
    assert_eq!(world.engines[0].window_attributes(window), None);
}

/// The separate model can be asked for, by setting and by window; every kind of operation works in it. What a rank
/// stores is others' to read after sync under its own lock, and what they write is its own to load after another one.
///
/// Shows: MPI_WIN_MODEL, MPI-4.1 13.4, lecture: memory models.
pub fn the_separate_model_can_be_chosen<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2).with(|config| config.memory_model = MemoryModel::Separate));
    let window = world.allocate(64);
    assert_eq!(world.engines[1].window_attributes(window).unwrap().model, MemoryModel::Separate);
    let unified = WindowOptions { model: Some(MemoryModel::Unified), ..DEFAULT };
    let other = world.allocate_with(64, &unified);
    assert_eq!(world.engines[1].window_attributes(other).unwrap().model, MemoryModel::Unified);
    let (base, _) = world.engines[1].window_memory(window).unwrap();
    let data = pattern(8, 3);
    for round in 0..3_u64 {
        let (stored, count) = (100 + round, 5 * round);
        world.lock(1, window, 1, Exclusive).unwrap();
        // SAFETY: inside of the window, aligned, and under its exclusive lock.
        unsafe { base.cast::<u64>().write_volatile(stored) };
        world.engines[1].sync(window).unwrap();
        world.unlock(1, window, 1).unwrap();
        let (mut got, mut fetched) = ([0; 8], [0; 8]);
        world.lock(0, window, 1, Exclusive).unwrap();
        world.get(0, window, 1, 0, &mut got).unwrap();
        world.put(0, window, 1, 8, &data).unwrap();
        let [two, three] = [2u64, 3].map(u64::to_le_bytes);
        world.accumulate(0, window, 1, 16, &two, Dtype::U64, ReduceOp::Sum).unwrap();
        // Of one element: fetch_and_op.
        world.get_accumulate(0, window, 1, 16, &three, &mut fetched, Dtype::U64, ReduceOp::Sum).unwrap();
        world.unlock(0, window, 1).unwrap();
        assert_eq!([got, fetched].map(u64::from_le_bytes), [stored, count + 2]);
        world.lock(1, window, 1, Exclusive).unwrap();
        world.engines[1].sync(window).unwrap();
        assert_eq!(world.memory(1, window)[8..16], data);
        assert_eq!(world.word(1, window, 16), count + 5);
        world.unlock(1, window, 1).unwrap();
    }
    world.check_idle();
}

/// sync is legal in lock and lock_all epochs, completes nothing, and is an error elsewhere.
///
/// Shows: MPI_Win_sync, seed: MEM_SYNC, MPI-4.1 13.5.4, rule: sync-in-epoch.
pub fn sync_belongs_to_passive_epochs<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let outside =
        |state| RmaError::Epoch { call: Call::Sync, target: None, state, rule: Rule::SyncOutsidePassive };
    assert_eq!(world.engines[0].sync(window), Err(outside("Unset")));
    world.lock(0, window, 1, Shared).unwrap();
    let data = pattern(8, 4);
    world.put(0, window, 1, 0, &data).unwrap();
    let before = world.counters(0).packets_sent;
    world.engines[0].sync(window).unwrap();
    assert_eq!(world.counters(0).packets_sent, before);
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.memory(1, window)[..8], data);
    let started = world.engines[1].start_lock_all(window, false);
    world.wait(1, started).unwrap();
    world.engines[1].sync(window).unwrap();
    let started = world.engines[1].start_unlock_all(window);
    world.wait(1, started).unwrap();
    world.fence(window, FenceAssert::default()).unwrap();
    assert_eq!(world.engines[0].sync(window), Err(outside("FenceGranted")));
    world.fence(window, LAST).unwrap();
    world.check_idle();
}

/// What one rank cannot do is an error of every rank, which names that rank and its class.
///
/// Shows: MPI_Win_create, MPI_ERR_DISP, MPI_ERR_BASE, MPI_ERR_SIZE.
pub fn errors_of_one_rank_are_everybodys<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let mut byte = [0u8; 8];
    let good = byte.as_mut_ptr();
    let wrong = [
        (std::ptr::null_mut(), 8, 1, ErrorClass::Base),
        (good, usize::MAX, 1, ErrorClass::Size),
        (good, isize::MAX as usize + 1, 1, ErrorClass::Size),
        (good, 8, 0, ErrorClass::Disp),
    ];
    for (base, len, disp_unit, class) in wrong {
        let (_, results) = world.make_each(|engine, rank| {
            if rank == 1 {
                // SAFETY: refused before anything is accessed, or valid for as long as the window exists.
                unsafe { engine.start_create(base, len, disp_unit) }
            } else {
                engine.start_allocate(64, 1)
            }
        });
        let [first, own, last] = &results[..] else { panic!("three ranks") };
        assert_eq!(own.as_ref().unwrap_err().class(), class);
        for other in [first, last] {
            let call = Call::Allocate;
            assert_eq!(other, &Err(RmaError::Elsewhere { call, class, target: Rank(1) }));
        }
        assert!(world.engines.iter().all(|engine| engine.window_count() == 0));
    }
    let window = world.allocate(64);
    world.free(window).unwrap();
    world.check_idle();
}
