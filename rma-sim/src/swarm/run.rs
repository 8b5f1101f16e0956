//! Runs plans on the engine and judges the outcome.

use core::cell::RefCell;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;

use rma_core::ghost::Ghost;

use super::engine::EngineLibrary;
use super::haunt::{cast, dismiss, fabric_for, Actor, SimGhost};
use super::library::Library;
use super::oracle::Snapshot;
use super::plan::Plan;
use super::script::RankScript;
use super::shared::Shared;
use crate::fabric::{SimFabric, Traffic};
use crate::world::{Failure, Fault, SimWorld};

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// As it must.
    Passed,
    /// Not so.
    Failed(Failure),
}

impl Verdict {
    /// The exit code of a program that reports it: 1 an assertion or an error of the engine, 2 the oracle,
    /// 3 liveness.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed(Failure::Contract(_) | Failure::Program { fault: Fault::Engine(_), .. }) => 1,
            Self::Failed(Failure::Program { fault: Fault::Oracle(_), .. }) => 2,
            Self::Failed(Failure::Stall(_)) => 3,
        }
    }

    /// Whether the oracle found something.
    pub fn is_oracle(&self) -> bool {
        self.exit_code() == 2
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(Failure::Contract(text)) => write!(f, "contract broken: {text}"),
            Self::Failed(Failure::Program { rank, fault: Fault::Engine(text) }) => {
                write!(f, "engine error at rank {rank}: {text}")
            }
            Self::Failed(Failure::Program { rank, fault: Fault::Oracle(text) }) => {
                write!(f, "oracle at rank {rank}: {text}")
            }
            Self::Failed(Failure::Stall(text)) => write!(f, "stall: {text}"),
        }
    }
}

/// The verdict on a run.
pub(super) fn judge(outcome: Result<(), Failure>) -> Verdict {
    match outcome {
        Ok(()) => Verdict::Passed,
        Err(failure) => Verdict::Failed(failure),
    }
}

/// A run that is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// How it ended.
    pub verdict: Verdict,
    /// Turns of the world.
    pub turns: u64,
    /// Virtual time.
    pub virtual_ns: u64,
    /// What went over the fabric.
    pub traffic: Traffic,
    /// The fabric's latest events, for a run that failed.
    pub trace: Vec<String>,
}

/// Runs a plan. `prepare` may do something to the fabric first: record packets, or break it.
///
/// A panic of the engine is a failed run, not a panic of the caller.
pub fn run(plan: &Plan, prepare: impl FnOnce(&SimFabric)) -> Report {
    let fabric = fabric_for(plan.seed, &plan.fabric);
    prepare(&fabric);
    supervise(&fabric, |turns| run_on(plan, &fabric, &Shared::new(plan), turns))
}

/// Runs something on a fabric, whatever becomes of it.
pub(super) fn supervise(fabric: &SimFabric, run: impl FnOnce(&mut u64) -> Result<(), Failure>) -> Report {
    let mut turns = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut turns)));
    let outcome = outcome.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(Failure::Contract(format!("panic: {text}")))
    });
    let trace = match outcome {
        Ok(()) => Vec::new(),
        Err(_) => fabric.trace().iter().map(ToString::to_string).collect(),
    };
    Report {
        verdict: judge(outcome),
        turns,
        virtual_ns: fabric.now_ns(),
        traffic: fabric.traffic_total(),
        trace,
    }
}

/// Runs a plan and says what its windows held at the end of each phase.
pub(super) fn outcome_of(plan: &Plan) -> (Verdict, Vec<Snapshot>) {
    let fabric = fabric_for(plan.seed, &plan.fabric);
    let shared = Shared::new(plan);
    let report = supervise(&fabric, |turns| run_on(plan, &fabric, &shared, turns));
    // A run that panicked may have left it borrowed, and then nobody asks for what it has seen.
    let ends = shared.try_borrow().map(|shared| shared.oracle.history().to_vec());
    (report.verdict, ends.unwrap_or_default())
}

pub(super) type SharedCell = Rc<RefCell<Shared>>;

pub(super) fn scripts(
    plan: &Plan,
    fabric: &SimFabric,
    shared: &SharedCell,
) -> Result<Vec<RankScript<EngineLibrary>>, Failure> {
    let open = |rank| {
        let library = EngineLibrary::open(fabric, rank, &plan.config).map_err(|text| failed(rank, text))?;
        Ok(RankScript::new(rank, library, Rc::clone(shared)))
    };
    (0..plan.fabric.ranks).map(open).collect()
}

fn failed(rank: u32, text: String) -> Failure {
    Failure::Program { rank, fault: Fault::Engine(text) }
}

/// The scripts of ranks that may have ghosts.
fn actors(
    plan: &Plan,
    fabric: &SimFabric,
    shared: &SharedCell,
) -> Result<Vec<Actor<RankScript<EngineLibrary>>>, Failure> {
    let open = |rank| {
        let ghost = SimGhost::open(plan.seed, fabric, rank, plan.fabric.ranks, &plan.config)?;
        let link = ghost.as_ref().map(|ghost| -> Box<dyn Ghost> { ghost.link(true) });
        let library = EngineLibrary::open_with(fabric, rank, &plan.config, link)?;
        Ok((RankScript::new(rank, library, Rc::clone(shared)), ghost))
    };
    let opened = (0..plan.fabric.ranks).map(|rank| open(rank).map_err(|text| failed(rank, text)));
    Ok(cast(opened.collect::<Result<_, _>>()?))
}

fn run_on(plan: &Plan, fabric: &SimFabric, shared: &SharedCell, turns: &mut u64) -> Result<(), Failure> {
    let actors = actors(plan, fabric, shared)?;
    let mut world = SimWorld::new(fabric.clone(), actors, plan.schedule, plan.seed);
    let outcome = world.run();
    *turns = world.turns();
    outcome?;
    for (rank, script) in (0..).zip(dismiss(world.into_programs())?) {
        script.library().check_idle().map_err(|text| failed(rank, text))?;
        let (lent, regions) = (fabric.lent_packets(rank), fabric.live_regions(rank));
        if lent > 0 || regions > 0 {
            return Err(failed(rank, format!("{lent} packets not released, {regions} regions not dropped")));
        }
    }
    Ok(())
}
