//! What layouts mean for packets, paths, epochs and resources.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::FenceAssert;
use rma_core::error::RmaError;
use rma_core::ids::{Rank, WindowId};
use rma_core::info::WindowOptions;
use rma_core::layout::{Layout, Layouts};
use rma_core::lock::LockType::{self, Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::path::Path;
use rma_core::provider::{Endpoint, VECTOR_PIECES_MAX};
use rma_core::wire::OpKind::{Accumulate, Get, GetAccumulate, Put};

use super::case::{fill, window, Case};
use super::vector;
use crate::behaviour::{pattern, Make};
use crate::{Spec, World};

const LAST: FenceAssert = FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

/// Where the target's size is not known when an operation is posted, the call that completes it tells.
///
/// Shows: MPI_ERR_RMA_RANGE.
pub fn outside_of_the_window_late<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate_uneven(|rank| if rank == 1 { 1000 } else { 50_000 }, |_| 1);
    fill(&mut world, window);
    let memory = world.memory(1, window);
    for (layout, kind) in [
        (vector(4, 8, 400), Put),
        (vector(4, 600, 700), Put),
        (vector(200, 4, 8), Get),
        (vector(4, 8, 400), Accumulate),
        (vector(40, 100, 110), GetAccumulate),
    ] {
        let mut case = Case::new(kind, layout.size()).target_layout(&layout);
        world.lock(0, window, 1, Exclusive).unwrap();
        let posted = case.post(&mut world, window);
        let unlocked = world.unlock(0, window, 1);
        let error = posted.and(unlocked).expect_err("an error was due");
        assert!(matches!(error, RmaError::Range { window_bytes: 1000, .. }), "{error:?}");
        assert_eq!(world.memory(1, window), memory);
    }
    world.check_idle();
}

/// Small blocks are packed, whatever the fabric can do: one packet, and no native operation.
pub fn small_blocks_are_packed<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 4096);
    let layout = vector(50, 8, 16);
    for kind in [Put, Get] {
        let before = world.counters(0);
        Case::new(kind, 400).target_layout(&layout).run(&mut world, window);
        let cost = world.counters(0).since(&before);
        assert_eq!((cost.native_puts, cost.native_gets, cost.message_operations), (0, 0, 1));
        assert_eq!(cost.out(), 1, "lock, operation and unlock");
    }
    world.check_idle();
}

/// Large blocks are moved by the fabric where it moves data at all, as many at a time as it takes.
pub fn large_blocks_are_native<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 65536);
    let layout = vector(5, 8000, 12000);
    let paths = world.engines[0].window_paths(window, Dtype::U8).expect("the window exists");
    for (kind, path) in [(Put, paths[0]), (Get, paths[1])] {
        let before = world.counters(0);
        Case::new(kind, 40_000).target_layout(&layout).run(&mut world, window);
        let cost = world.counters(0).since(&before);
        let at_once = world.engines[0].limits().vector_remote_max as u64;
        let native = if path == Path::Native { 5_u64.div_ceil(at_once) } else { 0 };
        assert_eq!(cost.native_puts + cost.native_gets, native, "{kind:?}");
        assert_eq!(cost.message_operations, u64::from(native == 0));
    }
    world.check_idle();
}

/// Where the fabric takes several pieces at a time, the blocks of both sides travel together: no more native
/// operations than its lists ask for. What is contiguous takes one place in them.
///
/// Shows: ours: vectors.
pub fn blocks_travel_together<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 65536);
    let limits = *world.engines[0].limits();
    let most = |offered: usize| offered.min(VECTOR_PIECES_MAX) as u64;
    let (near, far) = (most(limits.vector_local_max), most(limits.vector_remote_max));
    let paths = world.engines[0].window_paths(window, Dtype::U8).expect("the window exists");
    let (wide, narrow, none) = (vector(24, 1000, 1300), vector(24, 1000, 1001), None);
    for (kind, path) in [(Put, paths[0]), (Get, paths[1])] {
        for (local, target, posts) in [
            (Some(&wide), none, 24_u64.div_ceil(near)),
            (none, Some(&narrow), 24_u64.div_ceil(far)),
            (Some(&wide), Some(&narrow), 24_u64.div_ceil(near.min(far))),
        ] {
            let mut case = Case::new(kind, 24_000).at(5);
            if let Some(layout) = local {
                case = if kind == Put { case.origin(layout) } else { case.result(layout) };
            }
            if let Some(layout) = target {
                case = case.target_layout(layout);
            }
            let before = world.counters(0);
            case.run(&mut world, window);
            let cost = world.counters(0).since(&before);
            let native = if path == Path::Native { posts } else { 0 };
            assert_eq!(cost.native_puts + cost.native_gets, native, "{kind:?} {local:?} {target:?}");
            assert_eq!(cost.native_bytes, if native > 0 { 24_000 } else { 0 });
        }
    }
    world.check_idle();
}

/// Whatever travels how, the bytes are the same.
pub fn the_threshold_never_changes_results<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for native_block_bytes_min in [0, 64, 100_000] {
        let config = Config { native_block_bytes_min, ..Config::default() };
        let mut world = make(Spec { ranks: 2, config });
        let window = window(&mut world, 65536);
        for (origin, target) in [
            (vector(100, 16, 48), vector(50, 32, 33)),
            (vector(10, 3000, 3001), vector(60, 500, 510)),
            (vector(1, 600, 600), vector(600, 1, 2)),
        ] {
            let len = origin.size();
            Case::new(Put, len).origin(&origin).target_layout(&target).at(7).run(&mut world, window);
            Case::new(Get, len).result(&origin).target_layout(&target).at(9).run(&mut world, window);
        }
        world.check_idle();
    }
}

/// A thousand blocks of 8 bytes cost little more than 8000 bytes; irregular ones 4 bytes each at most.
pub fn small_blocks_cost_little<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 32768);
    let mut cost_of = |layout: &Layout| {
        let before = world.counters(0);
        Case::new(Put, 8000).target_layout(layout).run(&mut world, window);
        let cost = world.counters(0).since(&before);
        let packets: u64 = cost.packets_sent.iter().sum();
        // Each has a header, a record, and the beginning of a table.
        cost.packet_bytes_sent as i64 - 8000 - 64 * packets as i64
    };
    assert!(cost_of(&vector(1000, 8, 24)) <= 0);
    let places: Vec<i64> = (0..1000).map(|index| 24 * index + index * index % 13).collect();
    let irregular = Layout::hindexed_block(8, &places, &Layout::of(Dtype::U8)).unwrap();
    assert!(cost_of(&irregular) <= 4000);
    world.check_idle();
}

/// Operations of many packets, with blocks smaller and larger than one.
pub fn more_than_a_packet<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 1 << 20);
    let bytes = Layout::of(Dtype::U8);
    let places: Vec<(u64, i64)> =
        (0..3000_i64).map(|index| (1 + index as u64 * 7 % 40, 300 * index)).collect();
    let irregular = Layout::hindexed(&places, &bytes).unwrap();
    for layout in [vector(20_000, 3, 7), vector(3, 100_000, 200_000), irregular] {
        for kind in [Put, Get, Accumulate, GetAccumulate] {
            Case::new(kind, layout.size()).target_layout(&layout).run(&mut world, window);
        }
        Case::new(Put, layout.size()).origin(&layout).run(&mut world, window);
        Case::new(Get, layout.size()).result(&layout).at(3).run(&mut world, window);
    }
    world.check_idle();
}

/// A small operation with layouts goes with lock and unlock in one packet, and is answered with one.
///
/// Shows: seed: single operation.
pub fn layouts_ride_with_the_lock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 4096);
    let layout = vector(20, 4, 100);
    for kind in [Put, Get, GetAccumulate] {
        // The first epoch may have to learn where the window is.
        Case::new(kind, 80).target_layout(&layout).run(&mut world, window);
        world.settle();
        let before = world.counters(0);
        Case::new(kind, 80).target_layout(&layout).origin(&layout).run(&mut world, window);
        world.settle();
        let cost = world.counters(0).since(&before);
        let paths = world.engines[0].window_paths(window, Dtype::U8).expect("the window exists");
        if kind != GetAccumulate || paths[2] == Path::Message {
            assert_eq!((cost.out(), cost.back()), (1, 1), "{kind:?}");
        }
    }
    world.check_idle();
}

/// Operations with layouts that came with a request for a lock that is taken wait with it, or are sent again.
pub fn layouts_wait_for_the_lock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for deferred_bytes in [8192, 0] {
        let config = Config { deferred_bytes, ..Config::default() };
        let mut world = make(Spec { ranks: 3, config });
        let window = window(&mut world, 4096);
        let mut memory = world.memory(1, window);
        world.lock(2, window, 1, Exclusive).unwrap();
        world.put(2, window, 1, 4000, &[1, 2, 3]).unwrap();
        world.flush(2, window, 1).unwrap();
        memory[4000..4003].copy_from_slice(&[1, 2, 3]);
        let mut put = Case::new(Put, 80).target_layout(&vector(20, 4, 100)).origin(&vector(10, 8, 9));
        let mut fetch =
            Case::new(GetAccumulate, 80).target_layout(&vector(40, 2, 3)).result(&vector(8, 10, 11)).at(2000);
        world.lock(0, window, 1, Exclusive).unwrap();
        put.post(&mut world, window).unwrap();
        fetch.post(&mut world, window).unwrap();
        let unlock = world.engines[0].start_unlock(window, Rank(1)).unwrap();
        for _ in 0..200 {
            world.step();
        }
        assert_eq!(world.memory(1, window), memory, "the lock is taken");
        world.unlock(2, window, 1).unwrap();
        world.wait_all(vec![(0, unlock)]).unwrap();
        put.check_and_apply(&mut memory);
        fetch.check_and_apply(&mut memory);
        assert_eq!(world.memory(1, window), memory);
        world.check_idle();
    }
}

/// In a fence epoch, to several ranks.
///
/// Shows: MPI_Win_fence.
pub fn layouts_in_a_fence<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = window(&mut world, 16384);
    world.fence(window, FenceAssert::default()).unwrap();
    let mut cases = Vec::new();
    for target in [0, 1, 2] {
        cases.push(Case::new(Put, 400).target_layout(&vector(50, 8, 16)).to(target));
        cases.push(Case::new(Put, 6000).origin(&vector(6, 1000, 1001)).to(target).at(9000));
        cases.push(Case::new(Get, 400).target_layout(&vector(100, 4, 8)).to(target).at(1000));
    }
    let mut memories: Vec<_> = (0..3).map(|rank| world.memory(rank, window)).collect();
    for case in &mut cases {
        case.post(&mut world, window).unwrap();
    }
    world.fence(window, LAST).unwrap();
    for case in &cases {
        case.check_and_apply(&mut memories[case.target as usize]);
    }
    for (rank, memory) in memories.iter().enumerate() {
        assert!(world.memory(rank as u32, window) == *memory, "rank {rank}");
    }
    world.check_idle();
}

/// Under lock_all, with a flush between.
///
/// Shows: MPI_Win_lock_all, MPI_Win_flush.
pub fn layouts_in_lock_all<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = window(&mut world, 16384);
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    for target in [2, 1, 2] {
        let mut memory = world.memory(target, window);
        let mut put = Case::new(Put, 9000).target_layout(&vector(3000, 3, 5)).to(target);
        put.post(&mut world, window).unwrap();
        world.flush(0, window, target).unwrap();
        put.check_and_apply(&mut memory);
        assert!(world.memory(target, window) == memory);
    }
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started).unwrap();
    world.check_idle();
}

/// The engine keeps the layouts of operations in flight: the program may drop its own at once.
pub fn layouts_may_go_before_the_operation<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 65536);
    let mut memory = world.memory(1, window);
    world.lock(0, window, 1, Exclusive).unwrap();
    let (mut expected, mut posted) = (Vec::new(), Vec::new());
    for index in 0..5 {
        let mut case = Case::new(Put, 6000).target_layout(&vector(2000, 3, 5)).at(10_000 * index);
        case.post(&mut world, window).unwrap();
        expected.push(case.clone());
        // Its buffers stay, its layouts go.
        case.layouts = Layouts::NONE;
        posted.push(case);
    }
    world.unlock(0, window, 1).unwrap();
    drop(posted);
    for case in &expected {
        case.check_and_apply(&mut memory);
    }
    assert!(world.memory(1, window) == memory);
    world.check_idle();
}

/// What fits the operation element is copied when it is posted, from wherever the layout has it.
pub fn small_payloads_are_copied<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 1024);
    let mut memory = world.memory(1, window);
    world.lock(0, window, 1, Exclusive).unwrap();
    let mut case = Case::new(Put, 60).origin(&vector(20, 3, 50)).target_layout(&vector(10, 6, 8));
    let expected = case.clone();
    case.post(&mut world, window).unwrap();
    let started = world.engines[0].start_flush_local(window, Rank(1)).unwrap();
    world.wait_all(vec![(0, started)]).unwrap();
    drop(case);
    world.unlock(0, window, 1).unwrap();
    expected.check_and_apply(&mut memory);
    assert_eq!(world.memory(1, window), memory);
    world.check_idle();
}

/// The request forms take layouts too.
///
/// Shows: MPI_Rput, MPI_Rget, MPI_Raccumulate, MPI_Rget_accumulate.
pub fn requests_with_layouts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 16384);
    for kind in [Put, Get, Accumulate, GetAccumulate] {
        let mut memory = world.memory(1, window);
        let mut case = Case::new(kind, 6000).target_layout(&vector(2000, 3, 5)).result(&vector(10, 600, 700));
        world.lock(0, window, 1, Shared).unwrap();
        let operation = case.operation();
        // SAFETY: the case stays until the epoch is over.
        let posted = unsafe { world.engines[0].post_request_with_layouts(window, &operation, &case.layouts) };
        let Poll::Ready(Ok(mut request)) = posted else { panic!("{posted:?}") };
        world.wait_request(0, &mut request).unwrap();
        if kind.has_result() {
            case.check_and_apply(&mut memory.clone());
        }
        world.unlock(0, window, 1).unwrap();
        case.check_and_apply(&mut memory);
        assert!(world.memory(1, window) == memory);
    }
    world.check_idle();
}

/// One element of each kind is enough.
pub fn layouts_with_few_elements<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let config = Config {
        operation_pool: 1,
        operation_pool_global: 0,
        target_pool: 1,
        target_pool_global: 0,
        reply_buffers: 1,
        ..Config::default()
    };
    let mut world = make(Spec { ranks: 3, config });
    let window = window(&mut world, 65536);
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    let mut cases = Vec::new();
    for index in 0..6 {
        let target = 1 + (index % 2) as u32;
        cases.push(Case::new(Put, 6000).target_layout(&vector(2000, 3, 5)).at(10_000 * index).to(target));
    }
    let mut memories: Vec<_> = (0..3).map(|rank| world.memory(rank, window)).collect();
    for case in &mut cases {
        case.post(&mut world, window).unwrap();
    }
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started).unwrap();
    for case in &cases {
        case.check_and_apply(&mut memories[case.target as usize]);
    }
    for (rank, memory) in memories.iter().enumerate() {
        assert!(world.memory(rank as u32, window) == *memory, "rank {rank}");
    }
    world.check_idle();
}

/// All of the cases in one lock epoch of rank 0 at rank 1.
fn run_together<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    window: WindowId,
    lock_type: LockType,
    cases: &mut [Case],
) {
    let mut memory = world.memory(1, window);
    world.lock(0, window, 1, lock_type).unwrap();
    for case in &mut *cases {
        case.post(world, window).unwrap();
    }
    world.unlock(0, window, 1).unwrap();
    for case in cases {
        case.check_and_apply(&mut memory);
    }
    assert!(world.memory(1, window) == memory);
}

/// The optimizations' switches change costs only.
pub fn layouts_under_all_switches<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for config in [Config::default(), Config::all_off()] {
        for single_op_lock in [false, true] {
            let config = Config { single_op_lock, piggyback_threshold: 2, ..config.clone() };
            let mut world = make(Spec { ranks: 2, config });
            let window = window(&mut world, 16384);
            let mut cases: Vec<_> = (0..4)
                .flat_map(|index| {
                    let at = 4000 * index;
                    [
                        Case::new(Get, 60).target_layout(&vector(10, 6, 9)).at(at + 3500),
                        Case::new(Put, 600).target_layout(&vector(200, 3, 5)).at(at),
                        Case::new(Accumulate, 80).target_layout(&vector(10, 8, 9)).at(at + 2000),
                        Case::new(GetAccumulate, 60).target_layout(&vector(10, 6, 9)).at(at + 3000),
                    ]
                })
                .collect();
            run_together(&mut world, window, Exclusive, &mut cases);
            world.check_idle();
        }
    }
}

/// Accumulates of one origin to one location keep their order, whatever their layouts.
///
/// Shows: MPI-4.1 13.7.2.
pub fn order_with_layouts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 16384);
    let sparse = Layout::vector(500, 1, 2, &Layout::of(Dtype::U32)).unwrap();
    let dense = Layout::vector(2, 250, 260, &Layout::of(Dtype::U32)).unwrap();
    let mut cases: Vec<_> = [
        (ReduceOp::Replace, &sparse),
        (ReduceOp::Sum, &dense),
        (ReduceOp::Prod, &sparse),
        (ReduceOp::Replace, &dense),
        (ReduceOp::BitXor, &sparse),
    ]
    .into_iter()
    .flat_map(|(op, layout)| {
        let case = |kind| Case::new(kind, 2000).reducing(Dtype::U32, op).target_layout(layout);
        [case(Accumulate), case(GetAccumulate)]
    })
    .collect();
    run_together(&mut world, window, Shared, &mut cases);
    world.check_idle();
}

/// Attached memory: the displacement is an address, and blocks may lie in several regions.
///
/// Shows: MPI_Win_create_dynamic, MPI-4.1 13.2.4.
pub fn layouts_in_regions<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.make(|engine, _| engine.start_create_dynamic(&WindowOptions::DEFAULT));
    let mut memory = vec![0_u64; 1000].into_boxed_slice();
    let base: *mut u8 = memory.as_mut_ptr().cast();
    for (offset, len) in [(0, 800), (4000, 800)] {
        // SAFETY: the memory stays until the window is freed.
        unsafe { world.engines[1].attach(window, base.wrapping_add(offset), len) }.unwrap();
    }
    let layout = vector(2, 400, 4000);
    let mut put = Case::new(Put, 800).target_layout(&layout).at(base.addr() as u64 + 100);
    world.lock(0, window, 1, Exclusive).unwrap();
    put.post(&mut world, window).unwrap();
    world.flush(0, window, 1).unwrap();
    let mut get = Case::new(Get, 800).target_layout(&layout).at(base.addr() as u64 + 100);
    get.post(&mut world, window).unwrap();
    world.unlock(0, window, 1).unwrap();
    let sent = pattern(put.result.len(), 800);
    assert_eq!(get.result[512..1312], sent[512..1312]);
    world.free(window).unwrap();
    world.check_idle();
}

/// A block between two regions is an error, and the others are not touched.
///
/// Shows: MPI_ERR_RMA_RANGE, MPI-4.1 13.2.4.
pub fn holes_between_regions<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.make(|engine, _| engine.start_create_dynamic(&WindowOptions::DEFAULT));
    let mut memory = vec![0_u64; 1000].into_boxed_slice();
    let base: *mut u8 = memory.as_mut_ptr().cast();
    for rank in [0, 1] {
        for (offset, len) in [(0, 800), (4000, 800)] {
            let start = base.wrapping_add(offset + 1600 * rank as usize);
            // SAFETY: the memory stays until the window is freed.
            unsafe { world.engines[rank as usize].attach(window, start, len) }.unwrap();
        }
        let at = base.addr() as u64 + 1600 * u64::from(rank);
        let mut put = Case::new(Put, 1200).target_layout(&vector(3, 400, 2000)).at(at).to(rank);
        world.lock(0, window, rank, Exclusive).unwrap();
        let posted = put.post(&mut world, window);
        let unlocked = world.unlock(0, window, rank);
        let error = posted.and(unlocked).expect_err("an error was due");
        assert!(matches!(error, RmaError::NotAttached { len_bytes: 400, .. }), "{error:?}");
    }
    assert!(memory.iter().all(|&word| word == 0));
    world.free(window).unwrap();
    world.check_idle();
}
