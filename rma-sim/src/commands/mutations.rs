//! `rma-sim mutations`: deliberate mistakes of the engine, and which tool finds each.

use std::process::ExitCode;

use clap::Args;
use rma_core::config::Config;
use rma_core::mutation::Mutation;
use rma_sim::explore::{explore, scenarios, Limits, Outcome, Scenario};
use rma_sim::swarm::{plan, run, run_survival, Bounds, Plan, Verdict};

/// Mistakes that few random programs show, and where: ranks and scenario.
const KNOWN: [(Mutation, u32, &str); 12] = [
    (Mutation::NoOvertaking, 4, "two, past two who wait"),
    (Mutation::RetryLosesOperations, 3, "one packet"),
    (Mutation::TakeBackReversed, 2, "operations in order, nothing kept"),
    (Mutation::DataOvertakePuts, 2, "put with data, local completion"),
    (Mutation::DetachedAckIgnored, 3, "everybody to everybody"),
    (Mutation::FenceIssuesEarly, 2, "everybody to everybody"),
    (Mutation::NeighbourHeardTwice, 2, "two epochs of neighbours"),
    (Mutation::NeighbourWordKept, 2, "one to all, twice, of neighbours"),
    (Mutation::WordHolderIgnored, 2, "lock_all against exclusive locks"),
    (Mutation::ProxyHoldsEarly, 3, "neighbours against a long epoch"),
    (Mutation::WordLeftEarly, 2, "increment by words"),
    (Mutation::DeathIgnored, 2, "locks of the next rank"),
];

/// Mistakes that only programs with regions show, where natives use records of them for some time.
const OF_REGIONS: [Mutation; 1] = [Mutation::RevokeAnsweredEarly];

/// Mistakes that nobody sees as long as everybody lives: only programs with deaths are asked.
const OF_DEATHS: [Mutation; 4] = [
    Mutation::RoomAwaitedFromDead,
    Mutation::FenceAwaitsTheDead,
    Mutation::NoteAwaitedFromDead,
    Mutation::RecordsAwaitedFromDead,
];

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
    /// Most seeds of the swarm with more ranks, where few ranks do not show the mistake.
    #[arg(long, default_value_t = 1200)]
    more_seeds: u64,
    /// Most seeds of programs with regions.
    #[arg(long, default_value_t = 6000)]
    region_seeds: u64,
    /// Most states of each scenario that is explored.
    #[arg(long, default_value_t = 1500)]
    limit: usize,
    /// Look with both tools, also when one has found it: for the table of docs/model-checking.md.
    #[arg(long)]
    both: bool,
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
            // What is cheap first.
            let known = self.explore_known(mutation);
            let swarmed = match known {
                Some(_) if !self.both => None,
                _ if OF_DEATHS.contains(&mutation) => self.deaths(),
                _ if OF_REGIONS.contains(&mutation) => self.regions(),
                _ => self.swarm(),
            };
            let is_found = (known.is_some() || swarmed.is_some()) && !self.both;
            let explored = known.or_else(|| if is_found { None } else { self.explore() });
            missed += usize::from(explored.is_none() && swarmed.is_none());
            let nothing = if is_found { "not asked" } else { "-" };
            let show = |found: Option<String>| found.unwrap_or_else(|| nothing.into());
            let what = mutation.what().trim();
            println!("| {mutation:?} | {what} | {} | {} |", show(explored), show(swarmed));
        }
        ExitCode::from(u8::from(missed > 0))
    }

    /// The scenario that is known to show it.
    fn explore_known(&self, mutation: Mutation) -> Option<String> {
        let (_, ranks, name) = KNOWN.into_iter().find(|(known, ..)| *known == mutation)?;
        let mut scenarios = scenarios(ranks, 1).into_iter().filter(|scenario| scenario.name == name);
        scenarios.find_map(|scenario| Self::show(&scenario, &mut 0, usize::MAX))
    }

    /// Explores one scenario; where and after how many states the mistake shows.
    fn show(scenario: &Scenario, searched: &mut usize, states_max: usize) -> Option<String> {
        let report = explore(scenario, Limits { states_max, is_checked: false });
        *searched += report.states;
        let (protocol, ranks) = (scenario.protocol.name(), scenario.ranks());
        matches!(report.outcome, Outcome::Violated { .. })
            .then(|| format!("{protocol}: {}, {ranks} ranks, {searched} states", scenario.name))
    }

    /// The first scenario in which it shows: the small ones first, and of the larger ones not all.
    fn explore(&self) -> Option<String> {
        let mut searched = 0;
        for (ranks, pool) in [(2, 1), (2, 2), (4, 1), (3, 1)] {
            for scenario in scenarios(ranks, pool) {
                // With four ranks a deadlock shows only when everything was seen.
                let states_max = if ranks == 4 { usize::MAX } else { self.limit };
                let shown = Self::show(&scenario, &mut searched, states_max);
                if shown.is_some() {
                    return shown;
                }
            }
        }
        None
    }

    /// The first seed in which it shows.
    fn swarm(&self) -> Option<String> {
        let few = Bounds::of(2, 6);
        // Some show only where many wait for one.
        let more = Bounds::of(7, 33);
        let mut drawn =
            (0..self.seeds).map(|seed| (seed, few)).chain((0..self.more_seeds).map(|seed| (seed, more)));
        let failed = drawn.find(|&(seed, bounds)| fails(plan(seed, bounds)));
        failed.map(|(seed, Bounds { ranks_min, ranks_max, .. })| {
            format!("seed {seed}, {ranks_min} to {ranks_max} ranks")
        })
    }

    /// The same of programs with dynamic windows alone, where nobody is a neighbour and every region is for natives:
    /// of those that are drawn for everything, only one in thousands has a record asked back in time.
    fn regions(&self) -> Option<String> {
        let bounds = Bounds::of(2, 33);
        let plans = (0..self.region_seeds).map(|seed| plan(seed, bounds));
        let mut plans = plans.filter(|plan| plan.windows.iter().any(|window| window.is_dynamic));
        let failed = plans.find_map(|mut plan| {
            (plan.fabric.near_ranks, plan.fabric.near_locks) = (0, false);
            let seed = plan.seed;
            let records =
                Config { native_region_bytes_min: 1, region_records: 64, region_holders: 64, ..plan.config };
            plan.config = Config { force_message_path: false, ..records };
            fails(plan).then_some(seed)
        });
        failed.map(|seed| format!("seed {seed}, 2 to 33 ranks, regions for natives"))
    }

    /// The first seed of a program with a death in which it shows.
    fn deaths(&self) -> Option<String> {
        let few = Bounds::of(2, 6);
        let failed = (0..self.seeds).find(|&seed| run_survival(seed, few).verdict != Verdict::Passed);
        failed.map(|seed| format!("with deaths: seed {seed}, 2 to 6 ranks"))
    }
}

/// Whether the engine, with its mistake, does wrong in a program.
fn fails(mut plan: Plan) -> bool {
    plan.schedule.turns_max = plan.schedule.turns_max.min(50_000);
    !matches!(run(&plan, |_| {}).verdict, Verdict::Passed)
}
