//! `rmarun`: starts the ranks of a job on this host, lets them find each other, and ends them together.
//!
//! What is decided here once: the first rank that fails ends the job and gives the exit code; every
//! rank is a process group of its own and dies with the launcher ([`keeper`]); standard input goes to
//! rank 0 and output passes through the launcher in whole lines ([`output`]).

mod cli;
mod driver;
mod help_env;
#[cfg(test)]
mod hostile;
mod job;
mod keeper;
mod kvs;
mod output;
mod pmi;
mod report;
mod session;
mod signals;
mod spawn;
mod stdin;

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use rma_bootstrap::environment::{Environment, Place};
use rma_bootstrap::settings::Settings;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

use cli::Cli;
use driver::Driver;
use job::{Job, Wishes};
use keeper::Keeper;
use signals::Signals;
use spawn::Program;

/// The exit code of a wrong command line or setting.
const CODE_USAGE: u8 = 2;

/// The exit code of a job whose program exists and cannot be run, as shells have it.
const CODE_NOT_RUNNABLE: u8 = 126;

/// The exit code of a job whose program is not found, as shells have it.
const CODE_NOT_FOUND: u8 = 127;

/// The exit code of a launcher that the operating system fails.
const CODE_SYSTEM: u8 = 1;

/// Files that the launcher has open besides those of the ranks, with room to spare.
const OPEN_FILES_BASE: u64 = 32;

/// Files that the launcher has open for each rank: control connection, PMI connection, output, errors.
const OPEN_FILES_PER_RANK: u64 = 4;

/// Why no job could be carried out.
#[derive(Debug)]
struct Failure {
    code: u8,
    message: String,
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == keeper::ARGUMENT) {
        keeper::run();
        return ExitCode::SUCCESS;
    }
    let cli = Cli::of_this_process();
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, message }) => {
            eprintln!("rmarun: {message}");
            ExitCode::from(code)
        }
    }
}

fn run(cli: Cli) -> Result<u8, Failure> {
    let usage = |message: String| Failure { code: CODE_USAGE, message };
    let environment = Environment::of_this_process();
    for (name, _) in
        cli.exports.iter().filter(|(name, value)| value.is_none() && environment.get(name).is_none())
    {
        eprintln!("rmarun: warning: -x {name}: there is no such variable to pass on");
    }
    // What the ranks will see, so that a misspelt setting is found here and once.
    let exports = cli.exports.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
    let mut settings =
        Settings::load_from(&environment.with(exports)).map_err(|error| usage(error.to_string()))?;
    if let Some(provider) = &cli.provider {
        settings.set_flag("RMA_PROVIDER", provider).map_err(|error| usage(error.to_string()))?;
    }
    if cli.help_env {
        print!("{}", help_env::text(&settings));
        return Ok(0);
    }
    for warning in settings.warnings() {
        eprintln!("rmarun: warning: {warning}");
    }
    if let Some(directory) = cli.wdir.as_ref().filter(|directory| !directory.is_dir()) {
        return Err(usage(format!("--wdir {}: not a directory", directory.display())));
    }
    let open_files = reserve_open_files(cli.ranks)?;
    let system = |error: io::Error| Failure { code: CODE_SYSTEM, message: error.to_string() };
    // Before the first rank starts, or its end could be missed.
    let signals = Signals::new().map_err(system)?;
    let program = program(&cli, open_files);
    let keeper = start_keeper(cli.verbose);
    let wishes = Wishes { size: cli.ranks, job_id: job_id(), timeout: cli.timeout, grace: cli.grace };
    let job_id = wishes.job_id.clone();
    let mut driver = Driver::new(Job::new(wishes), signals, keeper, cli.verbose).map_err(system)?;
    for rank in 0..cli.ranks {
        let place =
            Place { rank, size: cli.ranks, local_rank: rank, local_size: cli.ranks, job_id: job_id.clone() };
        match spawn::start(&program, &place, driver.keeper()) {
            Ok(started) => driver.add(started, cli.tag_output.then(|| format!("[{rank}] "))),
            Err(error) => {
                driver.give_up();
                return Err(start_failure(&program, rank, &error));
            }
        }
    }
    driver.run().map_err(system)
}

fn program(cli: &Cli, open_files: Rlimit) -> Program {
    let mut words = cli.program.iter().cloned();
    // On this host a rank has every variable of the launcher anyway: those without a value are there.
    let exports = cli.exports.iter().filter_map(|(name, value)| Some((name.into(), value.as_ref()?.into())));
    let mut variables: Vec<(OsString, OsString)> = exports.collect();
    if let Some(provider) = &cli.provider {
        variables.push(("RMA_PROVIDER".into(), provider.into()));
    }
    Program {
        path: words.next().unwrap_or_default(),
        arguments: words.collect(),
        directory: cli.wdir.clone(),
        variables,
        open_files,
        // Lines that are marked come line by line, which leaves nothing to watch.
        stderr_is_terminal: io::stderr().is_terminal() && !cli.tag_output,
    }
}

fn start_keeper(is_verbose: bool) -> Option<Keeper> {
    match Keeper::start() {
        Ok(keeper) => Some(keeper),
        Err(error) => {
            if is_verbose {
                eprintln!(
                    "rmarun: no keeper ({error}): programs that ranks start may outlive a killed rmarun"
                );
            }
            None
        }
    }
}

/// Raises this process's limit of open files if the ranks need it; returns the limit as it was.
fn reserve_open_files(ranks: u32) -> Result<Rlimit, Failure> {
    let before = getrlimit(Resource::Nofile);
    let wanted = OPEN_FILES_BASE + OPEN_FILES_PER_RANK * u64::from(ranks);
    // No value means no limit.
    if before.current.is_none_or(|current| current >= wanted) {
        return Ok(before);
    }
    let raised = Rlimit { current: Some(wanted), maximum: before.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| Failure {
        code: CODE_SYSTEM,
        message: format!(
            "{ranks} ranks need {wanted} open files and the limit is {}; raise it with `ulimit -n {wanted}`",
            before.maximum.unwrap_or(u64::MAX)
        ),
    })?;
    Ok(before)
}

/// A name that no other job on this host has had since the machine was started.
fn job_id() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", std::process::id(), since_epoch.as_micros())
}

fn start_failure(program: &Program, rank: u32, error: &io::Error) -> Failure {
    let name = program.path.to_string_lossy();
    let is_path = name.contains('/');
    let in_directory =
        |path: &OsStr| program.directory.as_deref().unwrap_or_else(|| Path::new(".")).join(path);
    match error.kind() {
        ErrorKind::NotFound if is_path && in_directory(&program.path).exists() => Failure {
            code: CODE_NOT_RUNNABLE,
            message: format!(
                "cannot run {name}: the interpreter that its first line or its header names is missing"
            ),
        },
        ErrorKind::NotFound => {
            let hint = match (is_path, in_directory(&program.path).is_file()) {
                (false, true) => format!("; it is in the working directory: write ./{name}"),
                (false, false) => " in PATH".into(),
                (true, _) => String::new(),
            };
            Failure { code: CODE_NOT_FOUND, message: format!("program {name} not found{hint}") }
        }
        ErrorKind::PermissionDenied => Failure {
            code: CODE_NOT_RUNNABLE,
            message: format!("cannot run {name}: {error}; is it a program, and executable (chmod +x)?"),
        },
        ErrorKind::WouldBlock | ErrorKind::OutOfMemory => Failure {
            code: CODE_NOT_RUNNABLE,
            message: format!(
                "cannot start rank {rank}: {error}; too many processes (ulimit -u) or too little memory?"
            ),
        },
        _ => Failure {
            code: CODE_NOT_RUNNABLE,
            message: format!("cannot start rank {rank} ({name}): {error}"),
        },
    }
}
