//! `rma-bench`: measures one-sided communication, and says what it would run on.

mod agent;
mod cli;
mod info;
mod job;
mod optimizations;
mod progress;
mod raw;
mod threads;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

/// Anything that ends the program, in words for users.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
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
