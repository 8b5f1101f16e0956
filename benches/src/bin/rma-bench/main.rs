//! `rma-bench`: measures one-sided communication, and says what it would run on.

mod agent;
mod bandwidth;
mod cli;
mod compare;
mod exchange;
mod ground;
mod info;
mod job;
mod latency;
mod limits;
mod locks;
mod measure;
mod notified;
mod optimizations;
mod overlap;
mod pattern;
mod peers;
mod progress;
mod rate;
mod raw;
mod report;
mod session;
mod stale;
mod team;
mod threads;
mod windows;
mod words;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

/// Anything that ends the program, in words for users.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Latency(options) => latency::run(&options),
        Command::Bandwidth(options) => bandwidth::run(&options),
        Command::Rate(options) => rate::run(&options),
        Command::Overlap(options) => overlap::run(&options),
        Command::Locks(options) => locks::run(&options),
        Command::Windows(options) => windows::run(&options),
        Command::Notified(options) => notified::run(&options),
        Command::Stale(options) => stale::run(&options),
        Command::Limits(options) => limits::run(&options),
        Command::Peers(options) => peers::run(&options),
        Command::Compare(options) => compare::run(&options),
        Command::Report(options) => report::run(&options),
        Command::Optimizations(options) => optimizations::run(&options),
        Command::Threads(options) => threads::run(&options),
        Command::Agent(options) => agent::run(&options),
        Command::Info(options) => info::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A reader that has seen enough, such as `head`, is no failure.
            if is_closed_pipe(error.as_ref()) {
                return ExitCode::SUCCESS;
            }
            let _ = writeln!(std::io::stderr(), "rma-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
