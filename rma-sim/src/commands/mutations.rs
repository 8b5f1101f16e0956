//! `rma-sim mutations`: deliberate mistakes of the engine, and which tool finds each.

use std::process::ExitCode;

use clap::Args;
use rma_core::mutation::Mutation;
use rma_sim::explore::{explore, scenarios, Limits, Outcome};
use rma_sim::swarm::{plan, run, Bounds, Verdict};

/// Makes the engine make each of a list of mistakes, and looks which tool finds it.
///
/// Exit codes: 0 every mistake was found, 1 one was not, 2 there is none of that name.
#[derive(Args, Debug)]
pub(crate) struct Mutations {
    /// Only the mistake of this name.
    #[arg(long)]
    only: Option<String>,
    /// Most seeds of the swarm.
    #[arg(long, default_value_t = 400)]
    seeds: u64,
    /// Most states of each scenario that is explored.
    #[arg(long, default_value_t = 1500)]
    limit: usize,
    /// Print the names, one a line.
    #[arg(long)]
    list: bool,
}

impl Mutations {
    pub(crate) fn run(&self) -> ExitCode {
        let mut selected = Mutation::ALL.to_vec();
        selected.retain(|mutation| self.only.as_ref().is_none_or(|only| format!("{mutation:?}") == *only));
        if selected.is_empty() {
            eprintln!("mutations: there is none of this name; --list prints them");
            return ExitCode::from(2);
        }
        if self.list {
            selected.iter().for_each(|mutation| println!("{mutation:?}"));
            return ExitCode::SUCCESS;
        }
        // A mistake may panic; the verdict says so.
        std::panic::set_hook(Box::new(|_| {}));
        let mut missed = 0;
        for mutation in selected {
            Mutation::select(Some(mutation));
            let (explored, swarmed) = (self.explore(), self.swarm());
            missed += usize::from(explored.is_none() && swarmed.is_none());
            let show = |found: Option<String>| found.unwrap_or_else(|| "-".into());
            let what = mutation.what().trim();
            println!("| {mutation:?} | {what} | {} | {} |", show(explored), show(swarmed));
        }
        ExitCode::from(u8::from(missed > 0))
    }

    /// The first scenario in which it shows: the small ones first, and of the larger ones not all.
    fn explore(&self) -> Option<String> {
        let mut searched = 0;
        for (ranks, pool) in [(2, 1), (2, 2), (4, 1), (3, 1)] {
            for scenario in scenarios(ranks, pool) {
                // With four ranks a deadlock shows only when everything was seen.
                let states_max = if ranks == 4 { usize::MAX } else { self.limit };
                let report = explore(&scenario, Limits { states_max });
                searched += report.states;
                if matches!(report.outcome, Outcome::Violated { .. }) {
                    let protocol = scenario.protocol.name();
                    return Some(format!("{protocol}: {}, {ranks} ranks, {searched} states", scenario.name));
                }
            }
        }
        None
    }

    /// The first seed in which it shows.
    fn swarm(&self) -> Option<String> {
        let few = Bounds { ranks_min: 2, ranks_max: 6 };
        let mut failed = (0..self.seeds).filter(|&seed| {
            let mut plan = plan(seed, few);
            plan.schedule.turns_max = plan.schedule.turns_max.min(50_000);
            run(&plan, |_| {}).verdict != Verdict::Passed
        });
        failed.next().map(|seed| format!("seed {seed}"))
    }
}
