//! `rma-counts`: counts what each epoch costs (packets, bytes, round trips, copies, allocations, system calls) over real
//! providers and the simulated fabric, and compares with a file: what does not depend on the machine, as a gate.

mod allocations;
mod calls;
mod counts;
mod epochs;
mod fabrics;
mod gate;
mod ranks;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::{Parser, Subcommand};
use serde_json::{json, Map, Value};

use calls::Calls;
use fabrics::FABRICS;

/// Counts what each epoch costs, the same on every machine.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "Examples:
  rma-counts show                                count, and print a table
  rma-counts show --calls                        the system calls of each epoch, by name
  rma-counts check benches/counts.json           compare with the file; a rise fails (ci/counts.sh does this)
  rma-counts check --update FILE --page PAGE     count, and write the file, and the table in the page";

#[derive(Subcommand, Debug)]
enum Action {
    /// Count and print.
    Show {
        /// Print the system calls by name instead.
        #[arg(long)]
        calls: bool,
    },
    /// Count and compare with a file.
    Check {
        /// The file.
        file: PathBuf,
        /// Write the file instead of comparing.
        #[arg(long)]
        update: bool,
        /// A page that has the file's table between two marks.
        #[arg(long)]
        page: Option<PathBuf>,
        /// Fail also where a count cannot be compared here: no system calls, or those of another libfabric.
        #[arg(long)]
        skip_nothing: bool,
    },
    /// What runs under strace: all epochs.
    #[command(hide = true)]
    Measure,
}

/// All that was counted.
struct Measured {
    /// By fabric, then by epoch.
    counts: Map<String, Value>,
    libfabric: String,
    /// Or why strace may not trace here.
    calls: Result<Calls, String>,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().action {
        Action::Show { calls } => measured().and_then(|measured| show(&measured, calls)),
        Action::Check { file, update: true, page, .. } => {
            measured().and_then(|measured| gate::write(&file, page.as_deref(), &measured)).map(|()| true)
        }
        Action::Check { file, page, skip_nothing, .. } => {
            measured().and_then(|measured| gate::check(&file, page.as_deref(), &measured, skip_nothing))
        }
        Action::Measure => measure(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("rma-counts: {message}");
            ExitCode::from(2)
        }
    }
}

/// Counts everything, and prints it for the process that started this one.
fn measure() -> Result<bool, String> {
    // The first file that is not there makes the standard library ask the kernel what it can.
    calls::mark("none", "none", calls::END);
    let mut by_fabric = Map::new();
    for fabric in &FABRICS {
        let epochs = fabrics::measure(fabric)?.into_iter();
        let epochs: Map<_, _> =
            epochs.map(|(epoch, counts)| (epoch.name.to_owned(), counts.to_json().into())).collect();
        by_fabric.insert(fabric.name.to_owned(), epochs.into());
    }
    println!("{}", json!({ "libfabric": fabrics::libfabric()?, "epochs": by_fabric }));
    Ok(true)
}

/// Runs this program again, under strace where that is allowed, and reads what it has counted.
fn measured() -> Result<Measured, String> {
    let program = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let log = std::env::temp_dir().join(format!("rma-counts.{}.log", std::process::id()));
    let traceable = calls::may_trace();
    let mut command = match &traceable {
        Ok(()) => calls::traced(&program, &log),
        Err(_) => Command::new(&program),
    };
    let printed = run(&mut command);
    let log_read = traceable.map(|()| read(&log));
    // Left behind only when strace failed before it wrote.
    let _ = std::fs::remove_file(&log);
    let document: Value = serde_json::from_str(&printed?).map_err(|error| format!("no counts: {error}"))?;
    // Where strace may trace, a log that is not understood is no reason to go without.
    let calls = match log_read {
        Ok(calls) => Ok(calls?),
        Err(reason) => Err(reason),
    };
    let counts = document["epochs"].as_object().ok_or("no counts")?.clone();
    let libfabric = document["libfabric"].as_str().ok_or("no version of libfabric")?.to_owned();
    Ok(with_calls(Measured { counts, libfabric, calls }))
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command
        .arg("measure")
        // Each endpoint has so many receive buffers, whose memory takes most of the time.
        .env("FI_OFI_RXM_MSG_RX_SIZE", "256")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run the epochs: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("the epochs ended with {}", output.status)),
    }
}

fn read(log: &Path) -> Result<Calls, String> {
    let bytes = std::fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
    calls::parse(&String::from_utf8_lossy(&bytes))
}

/// The number of system calls beside the other counts of an epoch.
fn with_calls(mut measured: Measured) -> Measured {
    let Ok(calls) = &measured.calls else { return measured };
    for ((fabric, epoch), by_name) in calls {
        let count = calls::per_epoch(by_name.values().sum());
        if let Some(counts) = measured.counts.get_mut(fabric).and_then(|epochs| epochs.get_mut(epoch)) {
            counts[SYSTEM_CALLS] = count.into();
        }
    }
    measured
}

fn show(measured: &Measured, by_name: bool) -> Result<bool, String> {
    if !by_name {
        print!("{}", table::of(&measured.counts));
        if let Err(reason) = &measured.calls {
            println!("system calls were not counted: {reason}");
        }
        return Ok(true);
    }
    for ((fabric, epoch), calls) in measured.calls.as_ref().map_err(Clone::clone)? {
        let named: BTreeMap<_, _> =
            calls.iter().map(|(name, &count)| (name.as_str(), calls::per_epoch(count))).collect();
        println!("{fabric:<16} {epoch:<30} {named:?}");
    }
    Ok(true)
}

/// The name of a count that is not the engine's to make.
const SYSTEM_CALLS: &str = "system_calls";
