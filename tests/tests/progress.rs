//! What a call for progress leaves to the next one, and no further.

use rma_conformance::{simulated, Spec};
use rma_core::dtype::Dtype;
use rma_core::ids::Rank;
use rma_core::info::LockProtocol;
use rma_core::lock::LockType;
use rma_core::op::ReduceOp;
use rma_sim::{FabricConfig, Faults, SimFabric};

/// A call that finds nothing but an answer is over with it; what the fabric has refused before goes with the next call,
/// though that finds an answer, too.
#[test]
fn answers_keep_others_waiting_for_one_call() {
    let fabric = SimFabric::new(FabricConfig::messages_only(3));
    let spec = Spec::ranks(3);
    let mut world = simulated::world(&fabric, 3, &spec.config, |endpoint, _| endpoint);
    let (asked, refused) = (world.allocate(8), world.allocate(8));
    let one = 1_u64.to_le_bytes();
    for (window, target) in [(asked, 1), (refused, 2)] {
        let started = world.engines[0].start_lock_all(window, true);
        world.wait(0, started).unwrap();
        // The peer is known, and the lock there.
        world.accumulate(0, window, target, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
        world.flush(0, window, target).unwrap();
    }
    world.settle();

    fabric.set_faults(Faults { again_per_mille: 1000, ..Faults::default() });
    world.accumulate(0, refused, 2, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
    let left = world.engines[0].start_flush(refused, Rank(2)).unwrap();
    fabric.set_faults(Faults::default());
    let sent = |rank: usize, engines: &[rma_core::engine::Engine<_, _>]| -> u64 {
        engines[rank].counters().packets_sent.iter().sum()
    };
    let (before, answers) = (sent(0, &world.engines), sent(1, &world.engines));
    let mut results = [[0; 8]; 2];
    for (asked_so_far, result) in (1..).zip(&mut results) {
        world.get_accumulate(0, asked, 1, 0, &one, result, Dtype::U64, ReduceOp::Sum).unwrap();
        let mut flush = world.engines[0].start_flush(asked, Rank(1)).unwrap();
        assert_eq!(
            sent(0, &world.engines),
            before + asked_so_far,
            "the question, and not yet what was refused"
        );
        while sent(1, &world.engines) < answers + asked_so_far {
            world.step_alone(1);
        }
        // Until the answer is where rank 0 polls for it.
        for _ in 0..4 {
            world.step_alone(1);
        }
        world.engines[0].progress();
        assert!(world.engines[0].poll(&mut flush).is_ready(), "answer {asked_so_far} has come");
    }
    assert_eq!(sent(0, &world.engines), before + 3, "what was refused went behind the second answer");
    world.wait(0, Ok(left)).unwrap();
    assert_eq!((world.word(1, asked, 0), world.word(2, refused, 0)), (3, 2));
    assert_eq!(results.map(u64::from_le_bytes), [1, 2]);
    for window in [asked, refused] {
        let started = world.engines[0].start_unlock_all(window);
        world.wait(0, started).unwrap();
    }
    world.check_idle();
}

/// Epochs of lock_all that end while the fabric refuses what gives their shares back: what is left of that is done by progress, and
/// an epoch that begins before does not count its own share twice.
#[test]
fn shares_that_are_refused_are_given_back_once() {
    let mut config = FabricConfig::messages_only(2);
    (config.native.put, config.native.get) = (true, true);
    (config.near_ranks, config.near_locks) = (2, true);
    let fabric = SimFabric::new(config);
    let spec = Spec::ranks(2).with(|config| config.lock_protocol = LockProtocol::Auto);
    let mut world = simulated::world(&fabric, 2, &spec.config, |endpoint, _| endpoint);
    let window = world.allocate(16);
    let refused = Faults { again_per_mille: 600, ..Faults::default() };
    let mut over_at_once = 0;
    for epoch in 1_u64..=4000 {
        if !world.engines[0].lock_all_at_once(window) {
            let started = world.engines[0].start_lock_all(window, false);
            world.wait(0, started).unwrap();
        }
        for target in [1, 0] {
            world.put(0, window, target, 0, &epoch.to_le_bytes()).unwrap();
        }
        fabric.set_faults(refused);
        let is_over = world.engines[0].unlock_all_at_once(window);
        fabric.set_faults(Faults::default());
        over_at_once += u64::from(is_over);
        if !is_over {
            let started = world.engines[0].start_unlock_all(window);
            world.wait(0, started).unwrap();
        }
        if epoch % 50 == 0 {
            // Nobody is in the way of who wants to be alone.
            world.lock(1, window, 0, LockType::Exclusive).unwrap();
            world.put(1, window, 0, 8, &epoch.to_le_bytes()).unwrap();
            world.unlock(1, window, 0).unwrap();
            assert_eq!([0, 8].map(|at| world.word(0, window, at)), [epoch; 2]);
        }
    }
    assert!(over_at_once > 0, "no epoch was over at once");
    world.free(window).unwrap();
    world.check_idle();
}
