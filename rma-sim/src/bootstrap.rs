//! Rank, size and addresses of a simulated job.

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::ids::Rank;

use crate::fabric::{self, SimFabric};

/// How often one rank may be looked up before it has published: the simulated time limit.
const LOOKUPS_MAX: u32 = 1_000_000;

/// The bootstrap of one simulated rank: answers from the fabric's own memory.
#[derive(Debug)]
pub struct SimBootstrap {
    fabric: SimFabric,
    rank: u32,
    size: u32,
    is_published: bool,
    /// The rank asked for last, how often it was not there, and how often we say so by chance.
    asked: Option<Asked>,
    /// Deaths that this rank has been told of.
    losses_told: usize,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    rank: u32,
    pending_left: u32,
    lookups: u32,
}

impl SimBootstrap {
    /// `endpoints`: those of each rank.
    pub(crate) fn new(fabric: SimFabric, rank: u32, endpoints: u32) -> Self {
        let size = fabric.rank_count() / endpoints;
        Self { fabric, rank, size, is_published: false, asked: None, losses_told: 0 }
    }
}

impl Bootstrap for SimBootstrap {
    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn publish(&mut self, address: &AddressBytes) -> Result<(), BootstrapError> {
        let rank = self.rank;
        let is_own = |endpoint| address.as_slice().ends_with(fabric::address(endpoint).as_slice());
        let has_ghost = self.fabric.rank_count() > self.size;
        if self.is_published || !is_own(if has_ghost { rank + self.size } else { rank }) {
            return Err(BootstrapError {
                message: format!("publish: rank {rank} publishes the address of its own endpoint, once"),
            });
        }
        if !self.fabric.publish(rank, address) {
            return Err(BootstrapError {
                message: format!("publish: rank {rank} has no endpoint; open it before publishing"),
            });
        }
        self.is_published = true;
        Ok(())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        if rank.0 >= self.size {
            return Err(BootstrapError {
                message: format!("lookup: rank {rank} is not below the job's size {}", self.size),
            });
        }
        let fresh = || Asked { rank: rank.0, pending_left: self.fabric.draw_pending_lookups(), lookups: 0 };
        let mut asked = self.asked.filter(|asked| asked.rank == rank.0).unwrap_or_else(fresh);
        asked.lookups += 1;
        if asked.lookups > LOOKUPS_MAX {
            return Err(BootstrapError {
                message: format!("lookup: rank {rank} has not published its address; is it running?"),
            });
        }
        let is_hidden = asked.pending_left > 0 && self.fabric.hides_addresses();
        asked.pending_left = asked.pending_left.saturating_sub(1);
        let Some(address) = self.fabric.published(rank.0).filter(|_| !is_hidden) else {
            self.asked = Some(asked);
            return Ok(Lookup::Pending);
        };
        self.asked = None;
        Ok(Lookup::Found(address))
    }

    fn poll_lost(&mut self) -> Option<Rank> {
        let lost = self.fabric.lost(self.losses_told)?;
        self.losses_told += 1;
        Some(Rank(lost))
    }
}
