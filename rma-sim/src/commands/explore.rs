//! `rma-sim explore`: every interleaving of the small programs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use rma_sim::explore::{explore, scenarios, Grounds, Limits, Outcome, Protocol, Report, Scenario, World};

use super::scale::rewrite;

const HEAD: &str = "\
    | protocol | scenario | ranks | pool | states | transitions | longest path | ends | verdict |\n\
    | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";

/// Explores every interleaving of small programs.
///
/// Exit codes: 0 everything holds, 1 something is wrong, 2 nothing matches.
#[derive(Args, Debug)]
pub(crate) struct Explore {
    /// Only scenarios of this protocol.
    #[arg(long, value_parser = parse_protocol)]
    protocol: Option<Selected>,
    /// Only for so many ranks.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=4))]
    ranks: Option<u32>,
    /// Only with pools of this size.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=2))]
    pool: Option<u32>,
    /// Only scenarios whose name contains this.
    #[arg(long)]
    name: Option<String>,
    /// Most states of one scenario.
    #[arg(long, default_value_t = 1_000_000)]
    limit: usize,
    /// Let engines make every choice, also where it is known what it does, and compare.
    #[arg(long)]
    check: bool,
    /// Write the table and its sums into this page, between its marks: docs/model-checking.md.
    #[arg(long)]
    write: Option<PathBuf>,
    /// How many at a time.
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
    /// Do what a violation printed as its schedule, on the one scenario that is selected.
    #[arg(long)]
    replay: Option<String>,
}

/// One protocol, or all.
#[derive(Clone, Copy, Debug)]
struct Selected(Option<Protocol>);

impl Explore {
    pub(crate) fn run(&self) -> ExitCode {
        let selected = self.selected();
        if selected.is_empty() {
            eprintln!("explore: no scenario matches; without options all of them do");
            return ExitCode::from(2);
        }
        if let Some(schedule) = &self.replay {
            return replay(&selected[0], schedule);
        }
        let start = Instant::now();
        let (mut states, mut transitions, mut executed, mut failed) = (0, 0, 0, 0);
        let mut table = String::from(HEAD);
        for (scenario, report) in selected.iter().zip(self.explore_all(&selected)) {
            states += report.states;
            transitions += report.transitions;
            executed += report.executed;
            failed += usize::from(matches!(report.outcome, Outcome::Violated { .. }));
            table.push_str(&report.row(scenario));
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("{} scenarios, {states} states, {failed} violated, {seconds:.1} s", selected.len());
        let sums = format!(
            "{} scenarios have {states} states and {transitions} transitions. Engines made {executed} of these.\n\n",
            selected.len()
        );
        if let Some(Err(error)) = self.write.as_ref().map(|path| rewrite(path, &(sums + &table))) {
            eprintln!("explore: {error}");
            return ExitCode::from(1);
        }
        ExitCode::from(u8::from(failed > 0))
    }

    /// As many at a time as were asked for; told in their order.
    fn explore_all(&self, selected: &[Scenario]) -> Vec<Report> {
        let limits = Limits { states_max: self.limit, is_checked: self.check };
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Done { reports: Vec::new(), early: BTreeMap::new() });
        let work = || loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(scenario) = selected.get(index) else { break };
            let report = explore(scenario, limits);
            // Where another one has panicked the command ends so, when all are done.
            done.lock().unwrap_or_else(PoisonError::into_inner).add(index, report, selected);
        };
        std::thread::scope(|scope| {
            (0..self.jobs.max(1)).for_each(|_| drop(scope.spawn(work)));
        });
        done.into_inner().unwrap_or_else(PoisonError::into_inner).reports
    }

    fn selected(&self) -> Vec<Scenario> {
        let mut all = Vec::new();
        for ranks in 2..=4 {
            for pool in 1..=2 {
                if self.ranks.is_none_or(|wanted| wanted == ranks)
                    && self.pool.is_none_or(|wanted| wanted == pool)
                {
                    all.extend(scenarios(ranks, pool));
                }
            }
        }
        let protocol = self.protocol.and_then(|selected| selected.0);
        all.retain(|scenario| protocol.is_none_or(|protocol| protocol == scenario.protocol));
        let name = self.name.as_deref().unwrap_or_default();
        all.retain(|scenario| scenario.name.contains(name));
        all
    }
}

/// What has been explored.
struct Done {
    /// Of the first scenarios, all that have been told.
    reports: Vec<Report>,
    /// Of those that were done before one in front of them.
    early: BTreeMap<usize, Report>,
}

impl Done {
    fn add(&mut self, index: usize, report: Report, selected: &[Scenario]) {
        self.early.insert(index, report);
        while let Some(report) = self.early.remove(&self.reports.len()) {
            tell(&selected[self.reports.len()], &report);
            self.reports.push(report);
        }
    }
}

fn tell(scenario: &Scenario, report: &Report) {
    let Report { states, transitions, executed, longest, ends, outcome } = report;
    let (protocol, name) = (scenario.protocol.name(), scenario.name);
    let (ranks, pool) = (scenario.ranks(), scenario.pool);
    println!(
        "{protocol:9} {name:42} ranks {ranks} pool {pool}: {states:7} states {transitions:8} transitions \
         {executed:7} executed longest {longest:4} ends {ends:3}: {}",
        outcome.name()
    );
    if let Outcome::Violated { what, schedule } = outcome {
        println!("  {what}");
        println!(
            "  again: rma-sim explore --protocol {protocol} --name {name:?} --ranks {ranks} --pool {pool} \
             --replay {:?}",
            schedule.join(" ")
        );
    }
}

/// Does what a schedule says, and says what came of it.
fn replay(scenario: &Scenario, schedule: &str) -> ExitCode {
    println!("{} {}", scenario.protocol.name(), scenario.name);
    for (rank, acts) in scenario.acts.iter().enumerate() {
        println!("rank {rank}: {acts:?}");
    }
    let grounds = Grounds::new(scenario);
    let mut world = match World::new(scenario, &grounds) {
        Ok(world) => world,
        Err(fault) => {
            println!("{fault:?}");
            return ExitCode::from(1);
        }
    };
    for wanted in schedule.split_whitespace() {
        let Some(choice) = world.choices().into_iter().find(|choice| choice.to_string() == wanted) else {
            println!("{wanted} is not possible here:\n{}", world.describe());
            return ExitCode::from(2);
        };
        println!("--- {wanted}");
        if let Err(fault) = world.apply(choice) {
            println!("{fault:?}\n{}", world.describe());
            return ExitCode::from(1);
        }
        println!("{}", world.describe());
    }
    if world.is_over() {
        if let Err(fault) = world.check_end() {
            println!("{fault:?}");
            return ExitCode::from(1);
        }
    }
    ExitCode::SUCCESS
}

fn parse_protocol(text: &str) -> Result<Selected, String> {
    if text == "all" {
        return Ok(Selected(None));
    }
    let names = || Protocol::ALL.map(Protocol::name).join(", ");
    let found = Protocol::ALL.into_iter().find(|protocol| protocol.name() == text);
    found.map(|protocol| Selected(Some(protocol))).ok_or_else(|| format!("it is one of all, {}", names()))
}
