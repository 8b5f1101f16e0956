//! `rma-icount`: counts the instructions of the engine's calls above the provider, and compares them
//! with those in a file: the gate that keeps the fast path fast on every machine.

mod cases;
#[path = "../../../../rma/src/error.rs"]
#[allow(dead_code, unreachable_pub)]
mod error;
mod events;
mod fabric;
mod gate;
mod near;
mod platform;
#[path = "../../../../rma/src/runtime/mod.rs"]
#[allow(dead_code, unused_imports, unreachable_pub)]
mod runtime;
mod threads;
#[path = "../../../../rma/src/trace/mod.rs"]
#[allow(dead_code, unreachable_pub)]
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rma_bench::callgrind::{self, Profile};

use cases::{Case, CASES};

/// Counts instructions of the engine's calls above the provider, exactly, with valgrind.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 100, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "Examples:
  rma-icount show                        count every case and print the result
  rma-icount show put                    one case, with the functions that it spends most in
  rma-icount check benches/icount.json   compare with the file; a rise fails (ci/icount.sh does this)
  rma-icount check --update FILE         count, and write the file";

#[derive(Subcommand, Debug)]
enum Action {
    /// Count and print.
    Show {
        /// Cases to count; all if none is given.
        cases: Vec<String>,
    },
    /// Count and compare with a file.
    Check {
        /// The file.
        file: PathBuf,
        /// Write the file instead of comparing.
        #[arg(long)]
        update: bool,
        /// Version of the compiler that built this program, as `rustc --version` prints it.
        #[arg(long, default_value = "unknown")]
        compiler: String,
    },
    /// What runs under valgrind: one case, this many times.
    #[command(hide = true)]
    Run {
        /// The case.
        case: String,
        /// How often.
        count: u32,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().action {
        Action::Show { cases } => show(&cases),
        Action::Check { file, update, compiler } => gate::check(&file, update, &compiler),
        Action::Run { case, count } => run(&case, count),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("rma-icount: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(name: &str, count: u32) -> Result<bool, String> {
    (find(name)?.run)(count).map(|()| true).map_err(|error| error.to_string())
}

fn show(names: &[String]) -> Result<bool, String> {
    let chosen: Vec<&Case> = match names {
        [] => CASES.iter().collect(),
        names => names.iter().map(|name| find(name)).collect::<Result<_, _>>()?,
    };
    for case in chosen {
        let profile = profile(case)?;
        println!("{:>8}  {:<24} {}", per_call(&profile), case.name, case.what);
        if !names.is_empty() {
            let mut functions: Vec<_> = profile.by_function.iter().collect();
            functions.sort_by_key(|(_, &cost)| std::cmp::Reverse(cost));
            for (function, &cost) in functions.iter().take(FUNCTIONS_SHOWN) {
                println!("{:>10.1}  {function}", cost as f64 / f64::from(CALLS));
            }
        }
    }
    Ok(true)
}

fn find(name: &str) -> Result<&'static Case, String> {
    CASES.iter().find(|case| case.name == name).ok_or_else(|| {
        let names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        format!("there is no case '{name}'; there are {}", names.join(", "))
    })
}

/// Runs one case under callgrind.
fn profile(case: &Case) -> Result<Profile, String> {
    let program = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let scratch = std::env::temp_dir().join(format!("rma-icount.{}.out", std::process::id()));
    let count = CALLS.to_string();
    let profile = callgrind::count(&program, &["run", case.name, &count], "icount_*", &scratch);
    // Left behind only when valgrind failed before it wrote.
    let _ = std::fs::remove_file(&scratch);
    profile
}

/// Instructions of one call: a whole number, unless the calls differ.
fn per_call(profile: &Profile) -> f64 {
    profile.above_fabric() as f64 / f64::from(CALLS)
}

/// Calls that are counted.
const CALLS: u32 = 1000;
/// Functions in the listing of one case.
const FUNCTIONS_SHOWN: usize = 16;
