//! `rmarun`: starts the ranks of a job, here or on other hosts, lets them find each other, and ends them together.
//!
//! What is decided here once: the first rank that fails ends the job and gives the exit code; every
//! rank is a process group of its own and dies with the launcher ([`keeper`]); standard input goes to
//! rank 0 and output passes through the launcher in whole lines ([`output`]). On other hosts [agents](agent) do what
//! has to be done there, and decide nothing.

mod agent;
mod binding;
mod branches;
mod cache;
mod cli;
#[cfg(test)]
mod costs;
mod driver;
mod escapees;
mod failure;
mod files;
mod help_env;
mod helper;
mod host;
#[cfg(test)]
mod hostile;
mod hosts;
mod job;
mod keeper;
mod kvs;
mod launch_agent;
mod leftovers;
mod local;
mod output;
mod places;
mod plan;
mod pmi;
mod poll;
mod proc_stat;
mod reach;
mod report;
mod session;
mod signals;
mod slurm;
mod spawn;
mod stdin;
mod topology;
mod view;
mod words;

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::CommandFactory;
use rma_bootstrap::environment::Environment;
use rma_bootstrap::interfaces::interfaces;
use rma_bootstrap::settings::Settings;

use branches::{Branches, FAN_OUT};
use cli::Cli;
use driver::{Driver, Manner, Parts};
use failure::Failure;
use files::OutputFile;
use host::HostRanks;
use job::{Job, Wishes};
use local::LocalRanks;
use plan::Plan;
use reach::Secret;
use signals::Signals;
use stdin::Stdin;

/// What holds where no setting says how long agents may take to connect.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(60);

/// How much of what ranks wait for each other the launcher waits for a rank that does not join.
const HANG_SHARE: f64 = 0.9;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == keeper::ARGUMENT) {
        keeper::run(&std::env::args_os().nth(2).unwrap_or_default().to_string_lossy());
        return ExitCode::SUCCESS;
    }
    let is_agent =
        std::env::args_os().nth(1).is_some_and(|argument| argument == launch_agent::AGENT_ARGUMENT);
    let result = if is_agent { agent::run().map(|()| 0) } else { run(&Cli::of_this_process()) };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, message }) => {
            eprintln!("rmarun: {message}");
            ExitCode::from(code)
        }
    }
}

fn run(parts: &[Cli]) -> Result<u8, Failure> {
    let [cli, ..] = parts else { return Err(Failure::usage("there is nothing to run")) };
    if let Some(text) = text_to_print(cli).map_err(Failure::system)? {
        // Whoever reads only a part of it has read enough.
        let _ = io::stdout().write_all(&text);
        return Ok(0);
    }
    let environment = Environment::of_this_process();
    let mut patience = DEFAULT_PATIENCE;
    for cli in parts {
        let settings = check_settings(cli, &environment)?;
        if cli.help_env {
            print!("{}", help_env::text(&settings));
            return Ok(0);
        }
        patience = settings.seconds("RMA_BOOTSTRAP_TIMEOUT").unwrap_or(patience);
    }
    let plan = plan::plan(parts, &environment, job_id())?;
    let size = plan.job.size;
    if let cli::Readers::One(rank) = cli.stdin {
        if rank >= size {
            return Err(Failure::usage(format!("--stdin {rank}: the job has the ranks 0 to {}", size - 1)));
        }
    }
    if plan.here.is_some() {
        parts.iter().try_for_each(check_places)?;
    }
    carry(cli, plan, patience)
}

/// Runs the job.
fn carry(cli: &Cli, plan: Plan, patience: Duration) -> Result<u8, Failure> {
    let Plan { job: task, here, elsewhere, hosts, hosts_of_ranks, programs } = plan;
    let size = task.size;
    let mut files = Vec::new();
    let file_count = if cli.output_dir.is_some() { 2 * u64::from(size) } else { 0 };
    let agents = elsewhere.len().min(FAN_OUT);
    let of_nobody = || rma_bootstrap::description::HostTask::default();
    let is_idle = here.is_none();
    // Also without ranks of its own, this process needs files.
    let ranks_here = HostRanks::prepare(&task, here.unwrap_or_else(of_nobody), agents, file_count)?;
    let ranks_here = (!is_idle).then_some(ranks_here);
    if let Some(folder) = &cli.output_dir {
        files::make_folder(folder).map_err(Failure::usage)?;
        let pairs = (0..size).map(|rank| OutputFile::pair(folder, rank));
        files = pairs.collect::<Result<_, _>>().map_err(Failure::usage)?;
    }
    let mut stdin = Stdin::new();
    (0..size).filter(|rank| cli.stdin.has(*rank)).for_each(|rank| stdin.add(rank));
    // Before the first rank starts, or its end could be missed.
    let signals = Signals::new().map_err(Failure::system)?;
    let keeper = host::start_keeper(false, &task.job_id, |why| {
        if cli.verbose {
            eprintln!("rmarun: {why}");
        }
    });
    let secret = Secret::new().map_err(Failure::system)?;
    let branches =
        Branches::start(&secret, &task, &elsewhere, patience, keeper.as_ref()).map_err(Failure::system)?;
    let (timeout, grace, keep_going) = (cli.timeout, cli.grace, cli.keep_going);
    // A little less than what ranks have, so that who hangs is named and not who waits.
    let (job_id, hosts_of_all) = (task.job_id, hosts_of_ranks.clone());
    let patience = patience.mul_f64(HANG_SHARE);
    let wishes = Wishes { size, job_id, timeout, grace, keep_going, patience, hosts: hosts_of_all };
    let local = LocalRanks::new(keeper);
    let parts = Parts { local, branches, ranks_here, hosts, hosts_of_ranks, files };
    let manner = Manner { is_verbose: cli.verbose, tags_output: cli.tag_output };
    Driver::new(Job::new(wishes).with_programs(programs), parts, stdin, signals, manner)
        .map_err(Failure::system)?
        .run()
}

/// The man page or the completions, if one of them is asked for.
fn text_to_print(cli: &Cli) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let mut command = Cli::command();
    if cli.man {
        clap_mangen::Man::new(command).render(&mut text)?;
    } else if let Some(shell) = cli.completions {
        clap_complete::generate(shell, &mut command, "rmarun", &mut text);
    } else {
        return Ok(None);
    }
    Ok(Some(text))
}

/// The settings as the ranks of this program will see them, so that a misspelt one is found here and once.
fn check_settings(cli: &Cli, environment: &Environment) -> Result<Settings, Failure> {
    for (name, _) in
        cli.exports.iter().filter(|(name, value)| value.is_none() && environment.get(name).is_none())
    {
        eprintln!("rmarun: warning: -x {name}: there is no such variable to pass on");
    }
    if let Some(name) = cli.genv.chunks_exact(2).map(|pair| &pair[0]).find(|name| !cli::is_variable(name)) {
        return Err(Failure::usage(format!("--genv {name}: no name of a variable; write --genv NAME value")));
    }
    let exports = cli.exports.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
    let all = cli.genv.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
    let mut settings = Settings::load_from(&environment.with(all.chain(exports))).map_err(Failure::usage)?;
    if let Some(provider) = &cli.provider {
        settings.set_flag("RMA_PROVIDER", provider).map_err(Failure::usage)?;
    }
    if !cli.help_env {
        for warning in settings.warnings() {
            eprintln!("rmarun: warning: {warning}");
        }
    }
    Ok(settings)
}

/// Checks that the directory and the interface exist.
fn check_places(cli: &Cli) -> Result<(), Failure> {
    if let Some(directory) = cli.wdir.as_ref().filter(|directory| !directory.is_dir()) {
        return Err(Failure::usage(format!("--wdir {}: not a directory", directory.display())));
    }
    let Some(iface) = &cli.iface else { return Ok(()) };
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    let is_own = |address: IpAddr| {
        interfaces().unwrap_or_default().iter().any(|interface| interface.address == address)
    };
    // Without the list (a restricted container) the provider will find out.
    if names.is_empty() || names.contains(iface) || iface.parse().is_ok_and(is_own) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--iface {iface}: this host has no such interface or address, but {}",
        names.join(", ")
    )))
}

/// A name that no other job on this host has had since the machine was started.
fn job_id() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", std::process::id(), since_epoch.as_micros())
}
