//! One rank of a plan on a library of another kind, its fellows being other processes.

use std::rc::Rc;

use super::library::Library;
use super::plan::Plan;
use super::run::{outcome_of, Verdict};
use super::script::RankScript;
use super::shared::{Alone, Shared};
use crate::world::{Fault, RankProgram, Step};

/// Runs one rank's part of a plan. What the windows hold at the end of each phase, and what the rank must read,
/// is taken from a simulated run of the same plan.
///
/// `barrier` returns when all ranks have called it, `exchange` the numbers that the ranks have called it with.
///
/// # Errors
/// What the library reported, or did wrong; or that the plan fails in the simulator too.
pub fn run_rank<L: Library>(
    plan: &Plan,
    rank: u32,
    library: L,
    barrier: impl FnMut() -> Result<(), String> + 'static,
    exchange: impl FnMut(u64) -> Result<Vec<u64>, String> + 'static,
) -> Result<(), Fault> {
    let ends = match outcome_of(plan) {
        (Verdict::Passed, ends) => ends,
        (verdict, _) => return Err(Fault::Engine(format!("in the simulator: {verdict}"))),
    };
    let shared =
        Shared::of_rank(plan, rank, Alone { ends, barrier: Box::new(barrier), exchange: Box::new(exchange) });
    let mut script = RankScript::new(rank, library, Rc::clone(&shared));
    loop {
        match script.step() {
            Ok(Step::Finished) => return Ok(()),
            Ok(_) => {}
            Err(fault) => {
                // Its fellows may still write to its windows, and the library to the buffers of its operations.
                core::mem::forget(script);
                return Err(fault);
            }
        }
    }
}
