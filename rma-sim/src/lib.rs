//! A deterministic simulated fabric for the one-sided communication engine.
//!
//! The engine that runs here is the one that runs over a real fabric: [`SimEndpoint`] is one more
//! implementation of [`rma_core::provider::Endpoint`]. What differs is that time is virtual, that one
//! thread drives every rank, and that everything which a reliable fabric *may* do is done, as chosen by a
//! seed: reordering, torn and late writes, `Again` at any post, full receive buffers, dying peers.

pub mod arithmetic;
mod bootstrap;
pub mod explore;
mod fabric;
pub mod ghosts;
mod random;
pub mod scale;
pub mod swarm;
mod world;

pub use bootstrap::SimBootstrap;
pub use fabric::{
    native_all, native_locks, Delivery, FabricConfig, Faults, NetworkModel, PacketRecord, PacketRoute,
    Sabotage, SimEndpoint, SimFabric, SimRegion, Stage, TraceEvent, Traffic, Verdict, Violation,
};
pub use random::Random;
pub use world::{Failure, Fault, RankProgram, Schedule, SimWorld, Step};
