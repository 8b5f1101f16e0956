//! Conformance on the simulated fabric with a ghost beside every rank.

use rma_conformance::ghosts::{haunted_world, BookBootstrap};
use rma_conformance::{suite, Driver, Spec, World};
use rma_core::provider::{CompletionScope, NativeOps, Order};
use rma_sim::{FabricConfig, SimEndpoint, SimFabric};

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

fn world(spec: Spec, change: impl Fn(&mut FabricConfig)) -> World<SimEndpoint, BookBootstrap> {
    let ranks = if spec.ranks == 0 { 2 } else { spec.ranks };
    let mut config = FabricConfig::unit(2 * ranks);
    change(&mut config);
    let fabric = SimFabric::new(config);
    let endpoints = (0..2 * ranks).map(|rank| fabric.open(rank).expect("the simulated endpoint opens"));
    haunted_world(endpoints.collect(), &spec.config, SimDriver(fabric.clone()))
}

/// A suite of bodies, but for those that count what differs with ghosts:
/// lock_all holds the own lock, which costs a round trip (flushes_of_nothing, lock_all_touches_only_its_targets,
/// locks_are_asked_for_late); a rank does not know who holds its lock when it posts (locked_or_exposed); operations
/// on oneself are done no sooner than others (oneself_before_its_post, operations_on_oneself). Where there are messages
/// only, COMPLETE waits for an acknowledgement that it would be spared (costs_of_an_epoch, costs_with_results).
macro_rules! haunted {
    ($name:ident, $change:expr $(, $more:ident)*) => {
        suite!($name, World<SimEndpoint, BookBootstrap>, |spec| world(spec, $change), differ: flushes_of_nothing, lock_all_touches_only_its_targets,
            locks_are_asked_for_late, locked_or_exposed, oneself_before_its_post, operations_on_oneself $(, $more)*);
    };
}

haunted!(messages, |config| config.native = NativeOps::default(), costs_of_an_epoch, costs_with_results);

haunted!(ordered, |config| {
    config.native = NativeOps { put: true, get: true, ..NativeOps::default() };
    config.limits.order = Order { put_before_send: true, put_before_get: true };
});

haunted!(local_completion, |config| {
    config.native = NativeOps { put: true, get: true, ..NativeOps::default() };
    config.limits.put_completes = CompletionScope::Local;
    config.limits.needs_target_progress = true;
    config.offset_addresses = false;
    config.grants_key_wishes = false;
});

haunted!(native_atomics, |_| ());

/// Shows: notes: agent as a process, MPI_ERR_OTHER.
#[test]
fn a_death_gives_errors_and_no_hang() {
    // The rank with its ghost, and the ghost alone: without it the rank's target role is dead.
    for dead in [&[2, 5][..], &[5]] {
        for native in [NativeOps::default(), rma_sim::native_all()] {
            let mut config = FabricConfig { native, ..FabricConfig::unit(6) };
            config.limits.put_completes = CompletionScope::Local;
            let fabric = SimFabric::new(config);
            let endpoints = (0..6).map(|rank| fabric.open(rank).expect("the simulated endpoint opens"));
            let config = rma_core::config::Config::default();
            let mut world = haunted_world(endpoints.collect(), &config, SimDriver(fabric.clone()));
            let kill = || dead.iter().for_each(|&rank| fabric.kill(rank));
            rma_conformance::behaviour::deaths::errors_not_hangs(&mut world, kill);
        }
    }
}
