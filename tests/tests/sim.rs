//! Conformance on the simulated fabric: native and ordered, native and unordered, messages only.

use rma_conformance::{simulated, suite, Spec, World};
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::info::{AccumulateOps, WindowOptions};
use rma_core::lock::LockType::Shared;
use rma_core::op::ReduceOp;
use rma_core::path::Path;
use rma_core::provider::{CompletionScope, NativeOps, Order};
use rma_sim::{FabricConfig, SimBootstrap, SimEndpoint, SimFabric};

type SimWorld = World<SimEndpoint, SimBootstrap>;

fn world(spec: Spec, change: impl Fn(&mut FabricConfig)) -> SimWorld {
    let mut config = FabricConfig::unit(spec.size());
    change(&mut config);
    simulated::world(&SimFabric::new(config), spec.size(), &spec.config, |endpoint, _| endpoint)
}

fn puts_and_gets(config: &mut FabricConfig) {
    config.native = NativeOps { put: true, get: true, ..NativeOps::default() };
}

suite!(ordered, SimWorld, |spec: Spec| world(spec, |config| {
    puts_and_gets(config);
    config.limits.order = Order { put_before_send: true, put_before_get: true };
}));

suite!(unordered, SimWorld, |spec: Spec| world(spec, |config| {
    puts_and_gets(config);
    (config.limits.vector_local_max, config.limits.vector_remote_max) = (8, 8);
}));

suite!(local_completion, SimWorld, |spec: Spec| world(spec, |config| {
    puts_and_gets(config);
    config.limits.put_completes = CompletionScope::Local;
    (config.limits.vector_local_max, config.limits.vector_remote_max) = (4, 1);
    config.offset_addresses = false;
    config.grants_key_wishes = false;
}));

suite!(target_progress, SimWorld, |spec: Spec| world(spec, |config| {
    puts_and_gets(config);
    config.limits.needs_target_progress = true;
    (config.limits.vector_local_max, config.limits.vector_remote_max) = (1, 3);
    config.limits.order.put_before_send = true;
}));

suite!(messages, SimWorld, |spec: Spec| world(spec, |config| config.native = NativeOps::default()));

suite!(forced_messages, SimWorld, |spec: Spec| world(
    spec.with(|config| config.force_message_path = true),
    |_| ()
));

suite!(native_atomics, SimWorld, |spec: Spec| world(spec, |_| ()));

suite!(native_atomics_local_completion, SimWorld, |spec: Spec| world(spec, |config| {
    config.limits.put_completes = CompletionScope::Local;
}));

/// Who promises that reductions do not meet gets those that the fabric has, without a packet: the fabric of this
/// test adds, and does not multiply. Without the promise the target's process executes all, and when it is taken
/// back.
#[test]
fn single_reductions_are_native() {
    let mut world = world(Spec::ranks(2), |config| {
        for table in [&mut config.native.atomic, &mut config.native.fetch_atomic] {
            let kept = 1 << ReduceOp::Sum as u16 | 1 << ReduceOp::Replace as u16;
            table.iter_mut().for_each(|bits| *bits &= kept);
        }
    });
    let same_op = WindowOptions { accumulate_ops: AccumulateOps::SameOp, ..WindowOptions::DEFAULT };
    for (options, packets) in [(WindowOptions::DEFAULT, (1, 1)), (same_op, (0, 0))] {
        let window = world.allocate_with(16, &options);
        assert_eq!(world.engines[0].window_options(window).unwrap().accumulate_ops, options.accumulate_ops);
        world.lock(0, window, 1, Shared).unwrap();
        // The lock is there, and the peer known.
        world.put(0, window, 1, 8, &3u64.to_le_bytes()).unwrap();
        world.flush(0, window, 1).unwrap();
        for (disp, op, expected) in [(0, ReduceOp::Sum, packets), (8, ReduceOp::Prod, (1, 1))] {
            let before = world.counters(0);
            let (two, mut old) = (2u64.to_le_bytes(), [0; 8]);
            world.get_accumulate(0, window, 1, disp, &two, &mut old, Dtype::U64, op).unwrap();
            world.flush(0, window, 1).unwrap();
            let counted = world.counters(0).since(&before);
            let sent: u64 = counted.packets_sent.iter().sum();
            assert_eq!((sent, counted.back()), expected, "{op:?} with {:?}", options.accumulate_ops);
        }
        world.unlock(0, window, 1).unwrap();
        assert_eq!((world.word(1, window, 0), world.word(1, window, 8)), (2, 6));
        for engine in &mut world.engines {
            engine.set_window_options(window, &WindowOptions::DEFAULT).unwrap();
            let path = engine.accumulate_path(window, Dtype::U64, ReduceOp::Sum);
            assert_eq!(path, Some(Path::Message), "the promise was taken back");
        }
        world.free(window).unwrap();
    }
    world.check_idle();
}

#[test]
fn a_death_gives_errors_and_no_hang() {
    with_a_death(|world, kill| rma_conformance::behaviour::deaths::errors_not_hangs(world, kill));
}

#[test]
fn a_death_ends_post_start_complete_wait() {
    with_a_death(|world, kill| {
        rma_conformance::behaviour::deaths::posts_and_completes_of_the_dead(world, kill);
    });
}

/// Runs `body` in worlds of three ranks, of which it kills the last, on every kind of fabric.
fn with_a_death(body: impl Fn(&mut World<SimEndpoint, SimBootstrap>, &dyn Fn())) {
    for native in [NativeOps::default(), rma_sim::native_all()] {
        for put_completes in [CompletionScope::Remote, CompletionScope::Local] {
            let mut config = FabricConfig { native, ..FabricConfig::unit(3) };
            config.limits.put_completes = put_completes;
            let fabric = SimFabric::new(config);
            let mut world = simulated::world(&fabric, 3, &Config::default(), |endpoint, _| endpoint);
            body(&mut world, &|| fabric.kill(2));
        }
    }
}
