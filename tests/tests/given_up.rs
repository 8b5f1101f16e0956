//! Operations that are given up while parts of them are at a target that lives: what comes of them later is nobody's.

use std::task::Poll;

use rma_conformance::behaviour::deaths_late::is_mapped;
use rma_conformance::{Driver, World};
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{Engine, FenceAssert};
use rma_core::error::{RmaError, Rule};
use rma_core::ids::{Rank, WindowId};
use rma_core::info::WindowOptions;
use rma_core::lock::LockType::Shared;
use rma_core::op::ReduceOp;
use rma_core::provider::NativeOps;
use rma_sim::{FabricConfig, SimBootstrap, SimEndpoint, SimFabric};

/// Bytes of an operation: several packets.
const LEN: usize = 1 << 18;

/// Bytes that a target has: more than any allocator takes back without giving it to the system.
const WINDOW: usize = 1 << 26;

/// More polls than any call here takes.
const POLLS: usize = 10_000;

/// Fills memory that the engine may have an old pointer to.
const OWN: u8 = 0xdd;

/// Moves a fabric whose rules are broken on purpose.
#[derive(Debug)]
struct Forgiving(SimFabric);

impl Driver for Forgiving {
    fn advance(&mut self) -> bool {
        self.0.advance().is_some()
    }

    fn now_ns(&self) -> Option<u64> {
        Some(self.0.now_ns())
    }
}

/// Ranks whose puts and gets are native, with a window of which rank 1 has half the bytes, though it was promised to be as
/// long as rank 0's: what the origin lets go then the fabric refuses.
fn with_a_promise_that_is_not_kept(ranks: u32) -> (World<SimEndpoint, SimBootstrap>, WindowId) {
    let mut config = FabricConfig::unit(ranks);
    config.native = NativeOps { put: true, get: true, ..NativeOps::default() };
    let fabric = SimFabric::new(config);
    let engines = (0..ranks).map(|rank| {
        let endpoint = fabric.open(rank).unwrap();
        Engine::open(endpoint, fabric.bootstrap(rank), Config::default()).unwrap()
    });
    let mut world = World::new(engines.collect(), Forgiving(fabric.clone()));
    let options = WindowOptions { same_size: true, ..WindowOptions::DEFAULT };
    let window = world.make(|engine, rank| {
        engine.start_allocate_with(if rank == 0 { 2 * WINDOW } else { WINDOW }, 1, &options)
    });
    (world, window)
}

/// A get_accumulate in pieces, some of them out and some not, when a put to the same target fails in the fabric: the flush
/// says so and gives the buffers back, and the pieces' results come behind that.
#[test]
fn results_that_come_late_are_written_nowhere() {
    let (mut world, window) = with_a_promise_that_is_not_kept(2);
    world.lock(0, window, 1, Shared).unwrap();
    world.put(0, window, 1, 0, &[0; 8]).unwrap();
    world.flush(0, window, 1).unwrap();

    let (source, mut result) = (vec![1; LEN], vec![0; LEN]);
    world.get_accumulate(0, window, 1, 0, &source, &mut result, Dtype::U8, ReduceOp::Sum).unwrap();
    for _ in 0..100 {
        world.step_alone(0);
    }
    let sent: u64 = world.counters(0).packets_sent.iter().sum();
    assert!(sent > 4, "no pieces are out: {sent} packets");
    world.put(0, window, 1, WINDOW as u64, &[2; 8]).unwrap();
    let mut flush = world.engines[0].start_flush(window, Rank(1)).unwrap();
    let ended = (0..POLLS).find_map(|_| {
        world.step_alone(0);
        match world.engines[0].poll(&mut flush) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => None,
        }
    });
    ended.expect("the flush hangs").unwrap_err();
    assert!(world.engines[0].is_locally_complete(window));

    // The program's own again, from here on.
    result.fill(OWN);
    let received: u64 = world.counters(0).packets_received.iter().sum();
    world.settle();
    assert!(world.counters(0).packets_received.iter().sum::<u64>() > received, "nothing has come late");
    assert!(result.iter().all(|&byte| byte == OWN), "a result was written to memory that was given back");
}

/// Rank 1, which lives, is lost to rank 0.
fn lose_a_rank(world: &mut World<SimEndpoint, SimBootstrap>, window: WindowId) {
    world.lock(0, window, 1, Shared).unwrap();
    world.put(0, window, 1, 0, &[0; 8]).unwrap();
    world.flush(0, window, 1).unwrap();
    let posted = world.put(0, window, 1, WINDOW as u64, &[2; 8]);
    let unlocked = world.unlock(0, window, 1);
    let failed = posted.and(unlocked).unwrap_err();
    assert!(matches!(failed, RmaError::Peer { target: Rank(1), .. }), "{failed:?}");
}

/// Rank 1 is lost, and is told that it is.
fn say_who_is_lost(ended: &[Result<(), RmaError>]) {
    for (rank, ended) in ended.iter().enumerate() {
        match ended {
            Err(RmaError::Invalid { rule: Rule::AllRanksOrNone, .. }) if rank == 1 => {}
            Err(RmaError::Peer { target: Rank(1), .. }) if rank != 1 => {}
            _ => panic!("{rank}: {ended:?}"),
        }
    }
}

/// Every rank frees the window, after operations of rank 0 to rank 1, which lives, were given up: what was sent may come to the
/// memory yet, so no other rank gives it back; and none waits for rank 0. All learn who is lost.
fn nobody_else_frees(world: &mut World<SimEndpoint, SimBootstrap>, window: WindowId) {
    let started = |engine: &mut Engine<_, _>| engine.start_free(window).unwrap();
    let frees = (0..).zip(world.engines.iter_mut().map(started)).collect();
    let memory: Vec<_> = world.engines.iter().map(|engine| engine.window_memory(window).unwrap()).collect();
    say_who_is_lost(&world.wait_each(frees));
    for (rank, (base, len)) in memory.into_iter().enumerate() {
        assert!(world.engines[rank].window_memory(window).is_none(), "rank {rank} has not freed the window");
        assert!(is_mapped(base.addr(), len), "rank {rank} has given the memory back");
    }
}

#[test]
fn memory_that_may_still_be_written_to_is_not_given_back() {
    for ranks in [2, 3, 7] {
        let (mut world, window) = with_a_promise_that_is_not_kept(ranks);
        lose_a_rank(&mut world, window);
        nobody_else_frees(&mut world, window);
    }
}

/// The fence that fails is one at rank 0 only: the others have passed it.
#[test]
fn a_fence_that_fails_at_one_rank_only_leaves_nobody_waiting() {
    for ranks in [2, 3, 7] {
        let (mut world, window) = with_a_promise_that_is_not_kept(ranks);
        world.fence(window, FenceAssert::default()).unwrap();
        let posted = world.put(0, window, 1, WINDOW as u64, &[2; 8]);
        let started = |engine: &mut Engine<_, _>| engine.start_fence(window, FenceAssert::default()).unwrap();
        let fences = (0..).zip(world.engines.iter_mut().map(started)).collect();
        let ended = world.wait_each(fences);
        let failed = posted.and_then(|()| ended[0].clone()).unwrap_err();
        assert!(matches!(failed, RmaError::Peer { target: Rank(1), .. }), "{failed:?}");
        assert!(ended[1..].iter().all(Result::is_ok), "{ended:?}");
        nobody_else_frees(&mut world, window);
    }
}

/// Rank 0 frees the window while the others are in a fence, to which it does not come any more: none waits for it, and all say who is
/// lost.
#[test]
fn a_fence_that_one_rank_does_not_come_to_names_who_is_lost_to_it() {
    for ranks in [2, 3, 7] {
        let (mut world, window) = with_a_promise_that_is_not_kept(ranks);
        lose_a_rank(&mut world, window);
        let calls = (0..).zip(&mut world.engines).map(|(rank, engine)| match rank {
            0 => (rank, engine.start_free(window).unwrap()),
            _ => (rank, engine.start_fence(window, FenceAssert::default()).unwrap()),
        });
        let calls = calls.collect();
        say_who_is_lost(&world.wait_each(calls));
    }
}

/// What rank 2 has kept for a fence which the others do not pass is given up: its buffers are the program's again.
#[test]
fn what_is_kept_for_such_a_fence_is_given_back() {
    for (ranks, target) in [(3, 1), (7, 3)] {
        let (mut world, window) = with_a_promise_that_is_not_kept(ranks);
        lose_a_rank(&mut world, window);
        let opened =
            world.engines[2].start_fence(window, FenceAssert { no_precede: true, ..FenceAssert::default() });
        assert!(world.engines[2].poll(&mut opened.unwrap()).is_ready());
        let source = vec![3; LEN];
        world.put(2, window, target, 0, &source).unwrap();
        assert!(!world.engines[2].is_locally_complete(window), "it is not kept");
        let free = world.engines[0].start_free(window).unwrap();
        world.wait_each(vec![(0, free)])[0].clone().unwrap_err();
        let closed = world.engines[2].start_fence(window, FenceAssert::default()).unwrap();
        let ended = world.wait_each(vec![(2, closed)]);
        assert!(matches!(ended[0], Err(RmaError::Peer { target: Rank(1), .. })), "{ended:?}");
        assert!(world.engines[2].is_locally_complete(window), "the put keeps its buffer");
        world.settle();
        assert_eq!(world.word(target, window, 0), 0, "the put has left");
        let free = world.engines[2].start_free(window).unwrap();
        let ended = world.wait_each(vec![(2, free)]);
        assert!(matches!(ended[0], Err(RmaError::Peer { target: Rank(1), .. })), "{ended:?}");
        assert!(world.engines[2].window_memory(window).is_none(), "it has not freed the window");
        // Others still use the number, which is no other window's, and nobody has one.
        let started = |engine: &mut Engine<_, _>| engine.start_allocate(8, 1).unwrap().1;
        let made: Vec<_> = (0..).zip(world.engines.iter_mut().map(started)).collect();
        assert_eq!(world.engines[2].window_count(), 0);
        let ended = world.wait_each(made);
        assert!(matches!(ended[2], Err(RmaError::Peer { target: Rank(1), .. })), "{ended:?}");
        assert!(ended.iter().all(Result::is_err), "{ended:?}");
    }
}
