//! `rmarun`: starts the ranks of a job on this host, lets them find each other, and ends them together.
//!
//! What is decided here once: the first rank that fails ends the job and gives the exit code; every
//! rank is a process group of its own and dies with the launcher ([`keeper`]); standard input goes to
//! rank 0 and output passes through the launcher in whole lines ([`output`]).

mod binding;
mod cli;
mod driver;
mod failure;
mod files;
mod help_env;
#[cfg(test)]
mod hostile;
mod hosts;
mod job;
mod keeper;
mod kvs;
mod output;
mod pmi;
#[cfg_attr(not(test), allow(dead_code, unused_imports))] // used by the agents of other hosts
mod reach;
mod report;
mod session;
mod signals;
mod spawn;
mod stdin;
mod topology;
mod words;

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::CommandFactory;
use rma_bootstrap::environment::{Environment, Place};
use rma_bootstrap::settings::Settings;
use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use rustix::thread::CpuSet;

use binding::Binding;
use cli::Cli;
use driver::Driver;
use failure::{start_failure, Failure};
use files::OutputFile;
use job::{Job, Wishes};
use keeper::Keeper;
use signals::Signals;
use spawn::{Own, Program};
use topology::Topology;

/// Files that the launcher has open besides those of the ranks, with room to spare.
const OPEN_FILES_BASE: u64 = 32;

/// Files that the launcher has open for each rank: control connection, PMI connection, output, errors.
const OPEN_FILES_PER_RANK: u64 = 4;

/// Variables by which libfabric's providers are told their network interface.
const IFACE_VARIABLES: [&str; 4] = ["FI_TCP_IFACE", "FI_SOCKETS_IFACE", "FI_UDP_IFACE", "FI_VERBS_IFACE"];

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == keeper::ARGUMENT) {
        keeper::run();
        return ExitCode::SUCCESS;
    }
    match run(&Cli::of_this_process()) {
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
    for cli in parts {
        let settings = check_settings(cli, &environment)?;
        if cli.help_env {
            print!("{}", help_env::text(&settings));
            return Ok(0);
        }
        check_places(cli)?;
    }
    let counts = rank_counts(parts)?;
    let size = counts.iter().sum();
    if let cli::Readers::One(rank) = cli.stdin {
        if rank >= size {
            return Err(Failure::usage(format!("--stdin {rank}: the job has the ranks 0 to {}", size - 1)));
        }
    }
    let bindings = bindings(cli, size)?;
    if let Some(folder) = &cli.output_dir {
        files::make_folder(folder).map_err(Failure::usage)?;
    }
    let extra_files = if cli.output_dir.is_some() { 2 } else { 0 };
    let stdin_files = if cli.stdin == cli::Readers::All { 1 } else { 0 };
    let open_files = reserve_open_files(size, OPEN_FILES_PER_RANK + extra_files + stdin_files)?;
    let programs: Vec<Program> = parts.iter().map(|part| program(part, cli, open_files)).collect();
    // Before the first rank starts, or its end could be missed.
    let signals = Signals::new().map_err(Failure::system)?;
    let keeper = start_keeper(cli.verbose);
    let (timeout, grace, keep_going) = (cli.timeout, cli.grace, cli.keep_going);
    let wishes = Wishes { size, job_id: job_id(), timeout, grace, keep_going };
    let place = Place { rank: 0, size, local_rank: 0, local_size: size, job_id: wishes.job_id.clone() };
    let driver = Driver::new(Job::new(wishes), signals, keeper, cli.verbose).map_err(Failure::system)?;
    let mut starter = Starter { cli, driver, place, bindings };
    for (program, count) in programs.iter().zip(counts) {
        for _ in 0..count {
            if let Err(failure) = starter.start_next(program) {
                starter.driver.give_up();
                return Err(failure);
            }
        }
    }
    starter.driver.run().map_err(Failure::system)
}

/// Starts the ranks one by one.
struct Starter<'a> {
    cli: &'a Cli,
    driver: Driver,
    /// Where the next rank stands.
    place: Place,
    /// The binding of each rank, unless they are not bound.
    bindings: Vec<Binding>,
}

impl Starter<'_> {
    fn start_next(&mut self, program: &Program) -> Result<(), Failure> {
        let rank = self.place.rank;
        let binding = self.bindings.get(rank as usize);
        if self.cli.report_bindings {
            self.driver.say(&binding::report(rank, binding));
        }
        let processors = binding.map(|binding| processor_set(&binding.processors));
        let own = Own { processors, reads_stdin: self.cli.stdin.has(rank) };
        let files = self.cli.output_dir.as_deref().map(|folder| OutputFile::pair(folder, rank)).transpose();
        let files = files.map_err(Failure::usage)?;
        let started = spawn::start(program, &self.place, &own, self.driver.keeper())
            .map_err(|error| start_failure(program, rank, &error))?;
        self.driver.add(started, self.cli.tag_output.then(|| format!("[{rank}] ")), files);
        (self.place.rank, self.place.local_rank) = (rank + 1, rank + 1);
        Ok(())
    }
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
    // Without the list (a restricted container) the provider will find out.
    if names.is_empty() || names.contains(iface) {
        return Ok(());
    }
    Err(Failure::usage(format!("--iface {iface}: this host has no such interface, but {}", names.join(", "))))
}

/// The number of ranks of each program.
fn rank_counts(parts: &[Cli]) -> Result<Vec<u32>, Failure> {
    let [cli, others @ ..] = parts else { return Ok(Vec::new()) };
    let hosts = match (&cli.host, &cli.hostfile) {
        (Some(list), _) => {
            hosts::parse_list(list).map_err(|error| Failure::usage(format!("--host {list}: {error}")))?
        }
        (None, Some(path)) => {
            let wrong = |error: String| Failure::usage(format!("--hostfile {}: {error}", path.display()));
            let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
            hosts::parse_file(&text).map_err(wrong)?
        }
        (None, None) => Vec::new(),
    };
    let own_name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let of_others: Vec<u32> = others.iter().filter_map(|part| part.ranks).collect();
    // Each is at most 65,536 and a command line is finite, yet their sum may be above 32 bits.
    let sum = of_others.iter().try_fold(0, |sum: u32, count| sum.checked_add(*count)).unwrap_or(u32::MAX);
    let asked = cli.ranks.map(|ranks| ranks.saturating_add(sum));
    let size = hosts::ranks_here(asked, cli.ppn, &hosts, &own_name).map_err(Failure::usage)?;
    Ok(std::iter::once(cli.ranks.unwrap_or(size)).chain(of_others).collect())
}

/// The binding of each rank; empty unless they are bound.
fn bindings(cli: &Cli, size: u32) -> Result<Vec<Binding>, Failure> {
    let bind_to = cli.bind_to.unwrap_or_else(|| cli.map_by.binding());
    if bind_to == binding::BindTo::None {
        return Ok(Vec::new());
    }
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|error| Failure::system(format!("which processors may be used is not known: {error}")))?;
    let topology = Topology::read(Path::new(topology::ROOT), |processor| allowed.is_set(processor))
        .map_err(|error| Failure::system(format!("ranks cannot be bound: {error}; use --bind-to none")))?;
    binding::bindings(&topology, cli.map_by, bind_to, size).map_err(Failure::usage)
}

fn processor_set(processors: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    processors.iter().for_each(|processor| set.set(*processor));
    set
}

/// The program of `part`, in the job that `cli` describes.
fn program(part: &Cli, cli: &Cli, open_files: Rlimit) -> Program {
    let mut words = part.program.iter().cloned();
    let of_all = cli.genv.chunks_exact(2).map(|pair| (OsString::from(&pair[0]), OsString::from(&pair[1])));
    // On this host a rank has every variable of the launcher anyway: those without a value are there.
    let exports = part.exports.iter().filter_map(|(name, value)| Some((name.into(), value.as_ref()?.into())));
    let mut variables: Vec<(OsString, OsString)> = Vec::new();
    if let Some(iface) = &cli.iface {
        variables.extend(IFACE_VARIABLES.map(|name| (name.into(), iface.into())));
    }
    variables.extend(of_all.chain(exports));
    if let Some(provider) = &cli.provider {
        variables.push(("RMA_PROVIDER".into(), provider.into()));
    }
    Program {
        path: words.next().unwrap_or_default(),
        arguments: words.collect(),
        directory: part.wdir.clone(),
        variables,
        open_files,
        // Lines that are marked come line by line, which leaves nothing to watch.
        stderr_is_terminal: io::stderr().is_terminal() && !cli.tag_output && cli.output_dir.is_none(),
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
fn reserve_open_files(ranks: u32, files_per_rank: u64) -> Result<Rlimit, Failure> {
    let before = getrlimit(Resource::Nofile);
    let wanted = OPEN_FILES_BASE + files_per_rank * u64::from(ranks);
    // No value means no limit.
    if before.current.is_none_or(|current| current >= wanted) {
        return Ok(before);
    }
    let raised = Rlimit { current: Some(wanted), maximum: before.maximum };
    setrlimit(Resource::Nofile, raised).map_err(|_| {
        Failure::system(format!(
            "{ranks} ranks need {wanted} open files and the limit is {}; raise it with `ulimit -n {wanted}`",
            before.maximum.unwrap_or(u64::MAX)
        ))
    })?;
    Ok(before)
}

/// A name that no other job on this host has had since the machine was started.
fn job_id() -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", std::process::id(), since_epoch.as_micros())
}
