//! The swarm's programs with a death on the way. A rank whose call fails because another died ends, too, as processes
//! do by default [MPI-4.1 section 9.3]: so in the end everybody is through, or dead, and nobody waits for ever.

use core::cell::RefCell;
use std::rc::Rc;

use super::engine::EngineLibrary;
use super::plan::Plan;
use super::run::{scripts, supervise, Report};
use super::script::RankScript;
use super::shared::Shared;
use crate::fabric::SimFabric;
use crate::world::{Failure, Fault, RankProgram, SimWorld, Step};

/// Who has died, and how the others hear of it.
#[derive(Debug)]
struct Deaths {
    fabric: SimFabric,
    /// The fabric never says so: only the launcher does.
    is_silent: bool,
    dead: Vec<u32>,
}

impl Deaths {
    fn kill(&mut self, rank: u32) {
        self.dead.push(rank);
        if self.is_silent {
            self.fabric.kill_silently(rank);
        } else {
            self.fabric.kill(rank);
            self.fabric.announce_death(rank);
        }
    }

    /// Whether an error of the engine says that one of them is gone, or what was lost with one.
    fn explain(&self, error: &str) -> bool {
        let names = |rank: &u32| {
            error.contains(&format!("rank {rank} cannot be reached any more"))
                || error.contains(&format!("the operation to rank {rank} failed, and a synchronization call"))
        };
        self.dead.iter().any(names)
            || (!self.dead.is_empty() && error.contains("was lost with a rank that has died"))
    }
}

/// A rank that dies after some steps, or when a call fails because another has died.
struct Mortal {
    program: RankScript<EngineLibrary>,
    deaths: Rc<RefCell<Deaths>>,
    rank: u32,
    /// Steps until it dies; `None`: it lives on.
    steps_left: Option<u64>,
    is_dead: bool,
}

impl Mortal {
    fn die(&mut self) -> Step {
        self.is_dead = true;
        self.deaths.borrow_mut().kill(self.rank);
        Step::WakesAll
    }

    fn is_time_to_die(&mut self) -> bool {
        let Some(left) = self.steps_left.as_mut() else { return false };
        *left = left.saturating_sub(1);
        *left == 0
    }

    /// Whether it waits for another rank where the library knows nothing of it, and so can say nothing.
    fn waits_elsewhere(&self) -> bool {
        !self.is_dead && self.program.is_meeting()
    }
}

impl RankProgram for Mortal {
    fn step(&mut self) -> Result<Step, Fault> {
        if self.is_dead {
            return Ok(Step::Finished);
        }
        if self.is_time_to_die() {
            return Ok(self.die());
        }
        let heard = self.program.library_mut().hear_of_losses();
        let fault = match self.program.step() {
            Ok(Step::Waiting) if heard > 0 => return Ok(Step::Busy),
            Ok(step) => return Ok(step),
            Err(fault) => fault,
        };
        let is_excused = match &fault {
            Fault::Engine(error) => self.deaths.borrow().explain(error),
            // What the dead have done, and what came of it, nobody can tell.
            Fault::Oracle(_) => !self.deaths.borrow().dead.is_empty(),
        };
        if is_excused {
            return Ok(self.die());
        }
        Err(fault)
    }

    fn milestones(&self) -> u64 {
        self.program.milestones()
    }

    fn describe(&self) -> String {
        format!("{}, after the deaths of {:?}", self.program.describe(), self.deaths.borrow().dead)
    }
}

/// Runs a plan in which `victim` dies after so many of its steps. Nothing may panic, nor touch memory that is not
/// its own; no call waits for ever, and none fails but for the dead. Who waits for a dead rank where the ranks meet
/// outside of the library ends when nobody can do anything else: that is the only wait without an end.
pub fn run_with_death(plan: &Plan, victim: u32, steps: u64) -> Report {
    run_on(&SimFabric::new(plan.fabric.clone()), plan, victim, steps)
}

fn run_on(fabric: &SimFabric, plan: &Plan, victim: u32, steps: u64) -> Report {
    let is_silent = plan.seed & 2 != 0;
    let deaths = Rc::new(RefCell::new(Deaths { fabric: fabric.clone(), is_silent, dead: Vec::new() }));
    // Ghosts and deaths together are the other program's affair.
    supervise(fabric, |turns| {
        let scripts = (0..).zip(scripts(plan, fabric, &Shared::new(plan))?);
        let mortal = |(rank, program)| Mortal {
            program,
            deaths: Rc::clone(&deaths),
            rank,
            steps_left: (rank == victim).then_some(steps.max(1)),
            is_dead: false,
        };
        let programs = scripts.map(mortal).collect();
        let mut world = SimWorld::new(fabric.clone(), programs, plan.schedule, plan.seed);
        let outcome = run_to_the_end(&mut world, plan.fabric.ranks);
        *turns = world.turns();
        outcome
    })
}

/// Runs until everybody is through or dead. Without a death nobody's wait is excused.
fn run_to_the_end(world: &mut SimWorld<Mortal>, ranks: u32) -> Result<(), Failure> {
    loop {
        let outcome = world.run();
        let Err(Failure::Stall(_)) = &outcome else { return outcome };
        let is_any_dead = (0..ranks).any(|rank| world.program(rank).is_dead);
        let waiting = (0..ranks).filter(|&rank| is_any_dead && world.program(rank).waits_elsewhere());
        let waiting: Vec<_> = waiting.collect();
        if waiting.is_empty() {
            return outcome;
        }
        for rank in waiting {
            world.program_mut(rank).die();
        }
        world.resume();
    }
}

#[cfg(test)]
mod tests {
    use rma_core::error::{Call, RmaError};
    use rma_core::ids::Rank;
    use rma_core::provider::FabricCode;

    use super::*;
    use crate::fabric::FabricConfig;
    use crate::swarm::{plan, Bounds};

    #[test]
    fn only_the_dead_are_an_excuse() {
        let fabric = SimFabric::new(FabricConfig::unit(4));
        let mut deaths = Deaths { fabric, is_silent: false, dead: Vec::new() };
        let code = FabricCode { code: 0, text: "gone" };
        let unreachable = |rank| RmaError::Peer { call: Call::Put, target: Rank(rank), code }.to_string();
        let lost = RmaError::LockLost { call: Call::Unlock, target: Rank(0) }.to_string();
        assert!(!deaths.explain(&unreachable(1)) && !deaths.explain(&lost), "nobody has died");
        deaths.kill(1);
        assert!(deaths.explain(&unreachable(1)) && deaths.explain(&lost));
        assert!(!deaths.explain(&unreachable(2)), "rank 2 lives");
        let other = RmaError::NotHeld { call: Call::Put, target: Rank(1) }.to_string();
        assert!(!deaths.explain(&other), "{other}");
    }

    /// Nothing arrives any more before anybody dies: so nobody's wait is excused.
    #[test]
    fn a_stall_without_a_death_is_one() {
        let plan = plan(0, Bounds::of(2, 6));
        let fabric = SimFabric::new(plan.fabric.clone());
        fabric.intercept(|_, _| crate::fabric::Verdict::Drop);
        let report = run_on(&fabric, &plan, 0, u64::MAX);
        assert_eq!(report.verdict.exit_code(), 3, "{}", report.verdict);
    }
}
