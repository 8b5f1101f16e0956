//! Programs whose ranks have ghosts: beside each rank an endpoint and an engine of its own with the target role of the
//! rank's windows, which the scheduler steps like a rank.

use rma_core::config::Config;
use rma_core::ids::Rank;

use crate::fabric::{FabricConfig, SimEndpoint, SimFabric};
use crate::ghosts::{Link, Served};
use crate::world::{Failure, Fault, RankProgram, Step};

/// One in so many seeds has ghosts.
const HAUNTED_EVERY: u64 = 8;

/// Which of them.
const HAUNTED: u64 = 1;

/// Whether the ranks of a seed's program have ghosts.
pub fn has_ghosts(seed: u64) -> bool {
    seed % HAUNTED_EVERY == HAUNTED
}

/// The fabric of a seed's program, with endpoints for the ghosts, if it has some, behind those of the ranks.
pub(super) fn fabric_for(seed: u64, config: &FabricConfig) -> SimFabric {
    let endpoints = if has_ghosts(seed) { 2 } else { 1 };
    SimFabric::new(FabricConfig { ranks: endpoints * config.ranks, ..config.clone() })
}

/// The ghost of a rank.
#[derive(Clone, Debug)]
pub(super) struct SimGhost {
    served: Served<SimEndpoint>,
    fabric: SimFabric,
    /// Its endpoint.
    place: u32,
}

impl SimGhost {
    /// The ghost of `rank`, if the ranks of the seed's program have some.
    pub(super) fn open(
        seed: u64,
        fabric: &SimFabric,
        rank: u32,
        ranks: u32,
        config: &Config,
    ) -> Result<Option<Self>, String> {
        if !has_ghosts(seed) {
            return Ok(None);
        }
        let place = rank + ranks;
        let endpoint = fabric.open(place).map_err(|error| error.to_string())?;
        let served = Served::new(endpoint, Rank(rank), ranks, config);
        Ok(Some(Self { served, fabric: fabric.clone(), place }))
    }

    /// The rank's way to it.
    pub(super) fn link(&self, tells_of_deaths: bool) -> Box<Link<SimEndpoint>> {
        Box::new(Link::new(&self.served, tells_of_deaths))
    }

    /// Nothing is left in it, and nothing that it got made no sense.
    fn check_idle(&self) -> Result<(), Failure> {
        let engine = self.served.engine();
        let (malformed, windows) = (engine.counters().malformed_packets, engine.window_count());
        let (lent, regions) = (self.fabric.lent_packets(self.place), self.fabric.live_regions(self.place));
        if (malformed, windows, lent, regions) == (0, 0, 0, 0) {
            return Ok(());
        }
        let text = format!(
            "ghost: {malformed} packets made no sense, {windows} windows, {lent} packets, {regions} regions are left"
        );
        Err(Failure::Program { rank: self.place, fault: Fault::Engine(text) })
    }
}

/// Whom the scheduler steps.
#[derive(Debug)]
pub(super) enum Actor<P> {
    Rank(P),
    Ghost(SimGhost),
}

impl<P: RankProgram> RankProgram for Actor<P> {
    fn step(&mut self) -> Result<Step, Fault> {
        match self {
            Self::Rank(program) => program.step(),
            // Always at its end, and stepped as long as there are ranks that are not.
            Self::Ghost(ghost) if !ghost.fabric.is_up(ghost.place) => Ok(Step::Finished),
            Self::Ghost(ghost) => {
                let moved = ghost.served.engine().progress();
                Ok(if moved > 0 { Step::Busy } else { Step::Finished })
            }
        }
    }

    fn milestones(&self) -> u64 {
        match self {
            Self::Rank(program) => program.milestones(),
            Self::Ghost(_) => 0,
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Rank(program) => program.describe(),
            Self::Ghost(ghost) => format!("ghost with {} windows", ghost.served.engine().window_count()),
        }
    }
}

/// The ranks' programs, and then the ghosts.
pub(super) fn cast<P>(programs: Vec<(P, Option<SimGhost>)>) -> Vec<Actor<P>> {
    let (programs, ghosts): (Vec<_>, Vec<_>) = programs.into_iter().unzip();
    let ghosts = ghosts.into_iter().flatten().map(Actor::Ghost);
    programs.into_iter().map(Actor::Rank).chain(ghosts).collect()
}

/// The ranks' programs, after a look at the ghosts.
pub(super) fn dismiss<P>(actors: Vec<Actor<P>>) -> Result<Vec<P>, Failure> {
    let mut programs = Vec::new();
    for actor in actors {
        match actor {
            Actor::Rank(program) => programs.push(program),
            Actor::Ghost(ghost) => ghost.check_idle()?,
        }
    }
    Ok(programs)
}
