//! `rmarun -n 4 rma-processes [--only NAME]... [--limit SECONDS] [--list]`: behaviours of the library, one
//! after the other, in the processes of a job. What fails is said with its rank, and what hangs with the
//! place where each rank was.
//!
//! The conformance suite in the folder above drives all ranks of a job from one thread, and so decides in
//! which order things happen. Here nobody decides: ranks are processes with their own clocks, agents and
//! memory.
#![allow(unsafe_code)] // the raw layer's calls; `window::Words` keeps their buffers

mod behaviour;
mod failure;
mod watchdog;
mod window;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use failure::{Failure, Outcome};
use rma::{Job, Rank};
use watchdog::Watchdog;

/// A behaviour: its name, and what every rank does.
pub(crate) struct Behaviour {
    name: &'static str,
    body: fn(&Job) -> Outcome,
}

/// What the command line says.
struct Options {
    only: Vec<String>,
    limit: Duration,
    lists: bool,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { only: Vec::new(), limit: Duration::from_secs(60), lists: false };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} wants a value"));
            match argument.as_str() {
                "--only" => options.only.push(value()?),
                "--limit" => {
                    let seconds = value()?.parse().map_err(|error| format!("--limit: {error}"))?;
                    options.limit = Duration::from_secs(seconds);
                }
                "--list" => options.lists = true,
                _ => return Err(format!("there is no option {argument}")),
            }
        }
        let names: Vec<&str> =
            behaviour::all().chain(behaviour::broken()).map(|behaviour| behaviour.name).collect();
        match options.only.iter().find(|name| !names.contains(&name.as_str())) {
            Some(unknown) => Err(format!("there is no behaviour {unknown}; --list names them")),
            None => Ok(options),
        }
    }
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("rma-processes: {message}");
            return ExitCode::from(2);
        }
    };
    if options.lists {
        for behaviour in behaviour::all() {
            println!("{}", behaviour.name);
        }
        return ExitCode::SUCCESS;
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Says what failed before the job is left, as the launcher ends the ranks then.
fn said(failure: impl Into<Failure>, behaviour: &'static str, rank: Rank) -> Failure {
    let failure = failure.into().of(behaviour, rank);
    eprintln!("{failure}");
    failure
}

fn run(options: &Options) -> Outcome {
    let started = Instant::now();
    let job = Job::init().map_err(|error| said(error, "start", Rank::NULL))?;
    let rank = job.rank();
    // Ranks start apart, which is no behaviour's time.
    job.barrier().map_err(|error| said(error, "start", rank))?;
    let watchdog = Watchdog::start(rank, options.limit);
    let mut count = 0;
    let is_named = |behaviour: &&Behaviour| options.only.iter().any(|name| name == behaviour.name);
    let regular = behaviour::all().filter(|behaviour| options.only.is_empty() || is_named(behaviour));
    for behaviour in regular.chain(behaviour::broken().filter(is_named)) {
        watchdog.begin(behaviour.name);
        // So that a failure is never taken for one of the behaviour before.
        job.barrier().map_err(|error| said(error, behaviour.name, rank))?;
        (behaviour.body)(&job).map_err(|failure| said(failure, behaviour.name, rank))?;
        count += 1;
    }
    watchdog.begin("finalize");
    let (size, provider) = (job.size(), job.provider().provider.clone());
    job.finalize().map_err(|error| said(error, "finalize", rank))?;
    if rank.0 == 0 {
        let seconds = started.elapsed().as_secs_f64();
        println!("{count} behaviours passed on {size} ranks over {provider} in {seconds:.1} s");
    }
    Ok(())
}
