//! Conformance on the simulated fabric: native and ordered, native and unordered, messages only.

use rma_conformance::{suite, Driver, Spec, World};
use rma_core::engine::Engine;
use rma_core::provider::{CompletionScope, NativeOps, Order};
use rma_sim::{FabricConfig, SimBootstrap, SimEndpoint, SimFabric};

struct SimDriver(SimFabric);

impl Driver for SimDriver {
    fn advance(&mut self) -> bool {
        let moved = self.0.advance().is_some();
        assert_eq!(self.0.violations(), []);
        moved
    }

    fn now_ns(&self) -> Option<u64> {
        Some(self.0.now_ns())
    }
}

type SimWorld = World<SimEndpoint, SimBootstrap>;

fn world(spec: Spec, change: impl Fn(&mut FabricConfig)) -> SimWorld {
    let ranks = if spec.ranks == 0 { 2 } else { spec.ranks };
    let mut config = FabricConfig::unit(ranks);
    change(&mut config);
    let fabric = SimFabric::new(config);
    let engines = (0..ranks).map(|rank| {
        let endpoint = fabric.open(rank).expect("the simulated endpoint opens");
        Engine::open(endpoint, fabric.bootstrap(rank), spec.config.clone()).expect("the engine opens")
    });
    World::new(engines.collect(), SimDriver(fabric.clone()))
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
            let engines = (0..3).map(|rank| {
                let endpoint = fabric.open(rank).expect("the simulated endpoint opens");
                Engine::open(endpoint, fabric.bootstrap(rank), Default::default()).expect("the engine opens")
            });
            let mut world = World::new(engines.collect(), SimDriver(fabric.clone()));
            body(&mut world, &|| fabric.kill(2));
        }
    }
}
