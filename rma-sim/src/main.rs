//! `rma-sim`: runs seeds, replays one that failed, and explores small programs exhaustively.

mod commands;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use clap::{Args, Parser, Subcommand};
use rma_sim::swarm::{plan, run, run_survival, run_with_death, Bounds, Census, Plan, Report, Verdict};
use rma_sim::Random;

/// Runs random one-sided programs on a simulated fabric and checks what they see.
///
/// Exit codes: 0 all passed, 1 an assertion or an error of the engine, 2 the oracle, 3 no progress.
#[derive(Parser, Debug)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    one: One,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Runs many seeds and stops at the first that fails.
    Run(Many),
    Explore(commands::explore::Explore),
    Scale(commands::scale::Scale),
    #[cfg(feature = "mutations")]
    Mutations(commands::mutations::Mutations),
}

/// Replays one seed.
#[derive(Args, Debug)]
struct One {
    /// The seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Fewest and most ranks, as in the run that failed.
    #[arg(long, value_parser = parse_ranks, default_value = "2..64")]
    ranks: Bounds,
    /// A rank dies on the way, as drawn by the seed.
    #[arg(long)]
    deaths: bool,
    /// Print the plan, and the latest events of the fabric when the seed fails.
    #[arg(long)]
    verbose: bool,
    /// How many of the latest events.
    #[arg(long, default_value_t = 256)]
    trace: usize,
}

/// Which seeds.
#[derive(Args, Debug)]
struct Many {
    /// How many seeds.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Fewest and most ranks.
    #[arg(long, value_parser = parse_ranks, default_value = "2..64")]
    ranks: Bounds,
    /// Threads, each with its own seeds.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// In every run a rank dies on the way; only the conduct of the engine is judged then.
    #[arg(long)]
    deaths: bool,
    /// Go on after a failure, and report all.
    #[arg(long)]
    keep_going: bool,
    /// Only draw the programs, and say what is in them.
    #[arg(long)]
    census: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        None => replay(&cli.one),
        Some(Command::Run(many)) => run_many(&many),
        Some(Command::Explore(explore)) => explore.run(),
        Some(Command::Scale(scale)) => scale.run(),
        #[cfg(feature = "mutations")]
        Some(Command::Mutations(mutations)) => mutations.run(),
    }
}

fn replay(one: &One) -> ExitCode {
    let mut drawn = plan(one.seed, one.ranks);
    drawn.fabric.trace_len = one.trace;
    if one.verbose {
        println!("{:?}\n{:?}\n{:?}\n{:?}", drawn.fabric, drawn.config, drawn.schedule, drawn.windows);
        for (number, phase) in drawn.phases.iter().enumerate() {
            println!("phase {number}: {}", phase.name);
            phase.spans.iter().enumerate().for_each(|(index, span)| println!("  span {index}: {span:?}"));
            for (rank, script) in phase.scripts.iter().enumerate() {
                println!("  rank {rank}:");
                script.iter().enumerate().for_each(|(index, action)| println!("    {index}: {action:?}"));
            }
        }
    }
    let report = execute(drawn, one.ranks, one.deaths);
    if one.verbose {
        report.trace.iter().for_each(|line| println!("{line}"));
    }
    tell(one.seed, one.ranks, one.deaths, &report);
    if report.verdict == Verdict::Passed {
        let Report { turns, virtual_ns, traffic, .. } = &report;
        println!("{turns} turns, {virtual_ns} ns of virtual time, {traffic:?}");
    }
    ExitCode::from(report.verdict.exit_code())
}

/// With deaths, the program of the seed with a death in it, and then the one that must survive its own.
fn execute(plan: Plan, bounds: Bounds, deaths: bool) -> Report {
    if !deaths {
        return run(&plan, |_| {});
    }
    let mut random = Random::new(!plan.seed);
    let victim = random.below(u64::from(plan.fabric.ranks)) as u32;
    let steps = 1 + random.below(3000);
    let report = run_with_death(&plan, victim, steps);
    match report.verdict {
        Verdict::Passed => run_survival(plan.seed, bounds),
        Verdict::Failed(_) => report,
    }
}

fn run_many(many: &Many) -> ExitCode {
    if many.census {
        let mut census = Census::default();
        (many.from..many.from.saturating_add(many.seeds))
            .for_each(|seed| census.add(&plan(seed, many.ranks)));
        print!("{census}");
        return ExitCode::SUCCESS;
    }
    let next = AtomicU64::new(many.from);
    let end = many.from.saturating_add(many.seeds);
    let failures = Mutex::new(Vec::new());
    let packets = AtomicU64::new(0);
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            break;
        }
        let report = execute(plan(seed, many.ranks), many.ranks, many.deaths);
        packets.fetch_add(report.traffic.packets, Ordering::Relaxed);
        if report.verdict == Verdict::Passed {
            continue;
        }
        tell(seed, many.ranks, many.deaths, &report);
        if let Ok(mut failures) = failures.lock() {
            failures.push((seed, report.verdict.exit_code()));
        }
        if !many.keep_going {
            next.store(end, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        (0..many.jobs.max(1)).for_each(|_| drop(scope.spawn(work)));
    });
    let mut failures = failures.into_inner().unwrap_or_default();
    failures.sort_unstable();
    let packets = packets.into_inner();
    println!("{} seeds from {}: {} failed; {packets} packets", many.seeds, many.from, failures.len());
    ExitCode::from(failures.first().map_or(0, |&(_, code)| code))
}

/// One line that says what happened, and one that makes it happen again.
fn tell(seed: u64, bounds: Bounds, deaths: bool, report: &Report) {
    println!("seed {seed}: {}", report.verdict);
    if report.verdict != Verdict::Passed {
        let Bounds { ranks_min, ranks_max, .. } = bounds;
        let deaths = if deaths { " --deaths" } else { "" };
        println!("  again: rma-sim --seed {seed} --ranks {ranks_min}..{ranks_max}{deaths} --verbose");
    }
}

fn parse_ranks(text: &str) -> Result<Bounds, String> {
    let wrong = || format!("{text:?} is not a range of ranks; write it like 2..64");
    let (min, max) = text.split_once("..").ok_or_else(wrong)?;
    let ranks_min = min.parse().map_err(|_| wrong())?;
    let ranks_max = max.trim_start_matches('=').parse().map_err(|_| wrong())?;
    if ranks_min == 0 || ranks_min > ranks_max {
        return Err(wrong());
    }
    Ok(Bounds::of(ranks_min, ranks_max))
}
