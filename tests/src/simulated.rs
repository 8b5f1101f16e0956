//! Worlds on a simulated fabric, which moves when the ranks have nothing more to do.

use rma_core::config::Config;
use rma_core::engine::Engine;
use rma_core::provider::Endpoint;
use rma_sim::{SimBootstrap, SimEndpoint, SimFabric};

use crate::{Driver, World};

/// Moves the fabric, and sees to it that nobody has violated its rules.
#[derive(Debug)]
pub struct SimDriver(pub SimFabric);

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

/// A world of so many ranks on a fabric, each on what `wrap` makes of its endpoint.
///
/// # Panics
/// When an endpoint or an engine does not open.
pub fn world<E: Endpoint>(
    fabric: &SimFabric,
    ranks: u32,
    config: &Config,
    wrap: impl Fn(SimEndpoint, u32) -> E,
) -> World<E, SimBootstrap> {
    let engines = (0..ranks).map(|rank| {
        let endpoint = fabric.open(rank).expect("the simulated endpoint opens");
        Engine::open(wrap(endpoint, rank), fabric.bootstrap(rank), config.clone()).expect("the engine opens")
    });
    World::new(engines.collect(), SimDriver(fabric.clone()))
}
