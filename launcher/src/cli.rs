//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use clap_complete::Shell;
use rma_bootstrap::settings::parse_seconds;

use crate::binding::{BindTo, MapBy};
use crate::words;

/// Most ranks that a job may have.
pub(crate) const RANKS_MAX: u32 = 65_536;

/// Starts the ranks of a job, here or on other hosts, lets them find each other, and ends them together.
///
/// The job's exit code is that of the first rank that fails (128 + signal for a killed one), else 0.
/// The time limit gives 124, a program that cannot be run 126, one that is not found 127, and Ctrl-C
/// 130. Ctrl-C asks the ranks to end; a second one kills them.
#[derive(Parser, Debug)]
#[command(name = "rmarun", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(override_usage = "rmarun -n <N> [OPTIONS] [--] <PROGRAM> [ARGUMENTS]... [: -n <N> <PROGRAM> ...]")]
pub(crate) struct Cli {
    /// Number of ranks (-np is understood as well); by default one for each slot of the hosts
    #[arg(short = 'n', value_name = "N", value_parser = parse_ranks)]
    pub(crate) ranks: Option<u32>,

    /// Provider that the ranks use: shm, verbs, ofi or one of libfabric's, such as 'tcp;ofi_rxm' (sets RMA_PROVIDER)
    #[arg(long, value_name = "P")]
    pub(crate) provider: Option<String>,

    /// Network interface that the ranks use (sets libfabric's FI_TCP_IFACE and its like), or an address of this host, by
    /// which then only agents connect
    #[arg(long, value_name = "NAME|ADDRESS")]
    pub(crate) iface: Option<String>,

    /// End the job after this many seconds, with exit code 124
    #[arg(long, value_name = "S", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,

    /// Seconds that ranks have to end when asked to, before they are killed
    #[arg(long, value_name = "S", value_parser = parse_time, default_value = "2")]
    pub(crate) grace: Duration,

    /// Let the job go on when a rank fails: the others learn it as errors of what they do with it
    #[arg(long)]
    pub(crate) keep_going: bool,

    /// Say which process each rank is, and how it ended
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Set a variable for the ranks; without a value, make sure that it is passed on
    #[arg(short = 'x', long = "export", value_name = "VAR[=VALUE]", value_parser = parse_variable)]
    #[arg(help_heading = PROGRAM)]
    pub(crate) exports: Vec<(String, Option<String>)>,

    /// Set a variable for the ranks of all programs, as Hydra's mpiexec has it
    #[arg(long, num_args = 2, value_names = ["VAR", "VALUE"], allow_hyphen_values = true)]
    pub(crate) genv: Vec<String>,

    /// Working directory of the ranks
    #[arg(long, value_name = "DIR", short_alias = 'D', aliases = ["wd", "chdir"], help_heading = PROGRAM)]
    pub(crate) wdir: Option<PathBuf>,

    /// Hosts and how many ranks each takes, such as a:2,b or n[1-4,7]:8 or me@c, IPv6 addresses in brackets; may be given again
    #[arg(short = 'H', long, value_name = "LIST", short_alias = 'w', aliases = ["hosts", "nodelist"])]
    #[arg(conflicts_with = "hostfile", help_heading = PLACES)]
    pub(crate) host: Vec<String>,

    /// File with a host on each line: NAME [slots=N]; # begins a comment
    #[arg(short = 'f', long, value_name = "FILE", alias = "machinefile", help_heading = PLACES)]
    pub(crate) hostfile: Option<PathBuf>,

    /// Most ranks on each host
    #[arg(long, value_name = "N", value_parser = parse_ranks, help_heading = PLACES)]
    #[arg(aliases = ["ranks-per-host", "npernode", "ntasks-per-node", "perhost"])]
    pub(crate) ppn: Option<u32>,

    /// In which order ranks take their places; core and numa bind as well, unless --bind-to says otherwise
    #[arg(long, value_name = "PLACE", value_enum, default_value = "slot", help_heading = PLACES)]
    pub(crate) map_by: MapBy,

    /// Keep each rank on the processors of one core, NUMA node or socket [default: none]
    #[arg(long, value_name = "PLACE", value_enum, help_heading = PLACES)]
    pub(crate) bind_to: Option<BindTo>,

    /// Command that starts agents on other hosts: it is given HOST and a command line, as ssh is [default: ssh;
    /// srun within a Slurm allocation, if it is there; RMA_LAUNCH_AGENT]
    #[arg(long, value_name = "COMMAND", help_heading = PLACES)]
    pub(crate) launch_agent: Option<String>,

    /// Where rmarun is on the other hosts [default: where it is here]
    #[arg(long, value_name = "PATH", help_heading = PLACES)]
    pub(crate) agent_path: Option<PathBuf>,

    /// Say on which processors each rank may run
    #[arg(long, help_heading = PLACES)]
    pub(crate) report_bindings: bool,

    /// Write the rank in brackets in front of every line that a rank writes
    #[arg(long, short_alias = 'l', aliases = ["prepend-rank", "label"], help_heading = STREAMS)]
    pub(crate) tag_output: bool,

    /// Write what ranks write to files rank-N.out and rank-N.err in this directory, and not here
    #[arg(long, value_name = "DIR", conflicts_with = "tag_output", help_heading = STREAMS)]
    pub(crate) output_dir: Option<PathBuf>,

    /// Who reads the standard input of rmarun: the number of a rank, all or none
    #[arg(long, value_name = "WHO", value_parser = parse_readers, default_value = "0")]
    #[arg(help_heading = STREAMS)]
    pub(crate) stdin: Readers,

    /// List the RMA_* variables and settings, and exit
    #[arg(long, help_heading = MORE)]
    pub(crate) help_env: bool,

    /// Print the man page, and exit: rmarun --man > rmarun.1
    #[arg(long, help_heading = MORE)]
    pub(crate) man: bool,

    /// Print what completes the options in a shell, and exit
    #[arg(long, value_name = "SHELL", value_enum, help_heading = MORE)]
    pub(crate) completions: Option<Shell>,

    /// The program that each rank runs, and its arguments; a ':' and another program may follow
    #[arg(value_name = "PROGRAM", trailing_var_arg = true)]
    #[arg(required_unless_present_any = ["help_env", "man", "completions"])]
    pub(crate) program: Vec<OsString>,
}

const PLACES: &str = "Places";
const STREAMS: &str = "Standard streams";
const PROGRAM: &str = "Of one program (each may have its own, between ':')";
const MORE: &str = "More to read";

/// Options that each program has for itself; the others are the job's.
const OF_A_PROGRAM: [&str; 4] = ["ranks", "exports", "wdir", "program"];

const EXAMPLES: &str = "\
Examples:
  rmarun -n 2 rma-bench optimizations        two ranks of a program in PATH
  rmarun -n 4 --tag-output ./halo 512        every line begins with its rank
  rmarun -n 2 --provider tcp ./halo          over TCP, whatever else there is
  rmarun -n 8 --timeout 60 -- ./halo -n 3    ended after a minute; -n 3 is the program's own
  rmarun -n 2 -x RMA_COALESCE=0 ./halo       with a setting changed (see --help-env)
  rmarun -n 8 --bind-to core --report-bindings ./halo
                                             each rank on a core of its own
  rmarun -n 1 ./reader : -n 3 ./worker       rank 0 runs one program, ranks 1 to 3 another
  rmarun --host n[1-4]:8 ./halo              8 ranks on each of 4 hosts, which ssh reaches
  rmarun -n 64 --output-dir out ./halo       what rank 5 says is in out/rank-5.out

Options of mpiexec such as -np, -ppn, -host, -hostfile, -genv, -env and -wdir are understood with one dash,
and of srun --ntasks, --ntasks-per-node, --nodelist (-w), --chdir (-D) and --label (-l).
After '--' everything belongs to the program, a ':' as well.";

/// Who reads the launcher's standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Readers {
    /// Nobody.
    None,
    /// This rank.
    One(u32),
    /// Every rank, all of it.
    All,
}

impl Readers {
    /// Whether this rank reads it.
    pub(crate) fn has(self, rank: u32) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => one == rank,
            Self::All => true,
        }
    }
}

impl Cli {
    /// The command line of this process: one part for each program, the first with what holds for the job. Wrong
    /// ones end the process with a message and exit code 2.
    pub(crate) fn of_this_process() -> Vec<Self> {
        Self::parse_words(std::env::args_os().skip(1)).unwrap_or_else(|error| error.exit())
    }

    fn parse_words(words: impl IntoIterator<Item = OsString>) -> Result<Vec<Self>, clap::Error> {
        let mut command = Self::command();
        let programs = words::programs(words, &command);
        let mut parts = Vec::new();
        if programs.len() > 1 && programs.iter().any(Vec::is_empty) {
            let message = "a ':' stands between two programs, and there is none on one of its sides";
            return Err(command.error(ErrorKind::MissingRequiredArgument, message));
        }
        for (index, words) in programs.into_iter().enumerate() {
            let name = std::iter::once(OsString::from("rmarun"));
            let found = command.try_get_matches_from_mut(name.chain(words.iter().cloned()));
            let mut matches = found.map_err(|error| with_whole_word(error, &words, &mut command))?;
            if let Some(option) = (index > 0).then(|| job_option(&matches)).flatten() {
                let message = format!(
                    "--{} is for the whole job: write it before the first program",
                    option.replace('_', "-")
                );
                return Err(command.error(ErrorKind::ArgumentConflict, message));
            }
            parts.push(Self::from_arg_matches_mut(&mut matches)?);
        }
        if parts.len() > 1 && parts.iter().any(|part| part.ranks.is_none()) {
            let message = "of several programs, each needs its number of ranks: -n <N>";
            return Err(command.error(ErrorKind::MissingRequiredArgument, message));
        }
        Ok(parts)
    }
}

/// The error, unless it is an unknown option: of one that other launchers have it says what to write, and one that
/// resembles none it names as it was typed. Of `-genvlist` clap sees the letters.
fn with_whole_word(error: clap::Error, words: &[OsString], command: &mut clap::Command) -> clap::Error {
    let Some(ContextValue::String(part)) = error.get(ContextKind::InvalidArg) else { return error };
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let has = |word: &&str| match part.strip_prefix('-').filter(|rest| !rest.starts_with('-')) {
        Some(letter) => word.starts_with('-') && !word.starts_with("--") && word.contains(letter),
        None => *word == part,
    };
    let word = words.iter().filter_map(|word| word.to_str()).find(has).unwrap_or(part);
    if let Some(advice) = words::advice(word) {
        return command.error(ErrorKind::UnknownArgument, advice);
    }
    if error.get(ContextKind::SuggestedArg).is_some() {
        return error;
    }
    let message = format!("'{word}' is no option of rmarun; rmarun --help lists them, and '--' ends them");
    command.error(ErrorKind::UnknownArgument, message)
}

/// An option among `matches` that was typed and is not of one program.
fn job_option(matches: &ArgMatches) -> Option<String> {
    let is_typed = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
    let is_known = |name: &str| matches.try_contains_id(name).is_ok();
    let names = matches.ids().map(clap::Id::as_str);
    let mut typed = names.filter(|name| is_known(name) && is_typed(name) && *name != "Cli");
    typed.find(|name| !OF_A_PROGRAM.contains(name)).map(str::to_owned)
}

fn parse_ranks(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("a job has at least 1 rank".into()),
        Ok(count) if count <= RANKS_MAX => Ok(count),
        Ok(_) => Err(format!("a job has at most {RANKS_MAX} ranks")),
        Err(_) => Err(format!("the number of ranks is a whole number from 1 to {RANKS_MAX}")),
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    parse_seconds(text).ok_or_else(|| "a time is a number of seconds above 0, such as 30 or 0.5".into())
}

fn parse_readers(text: &str) -> Result<Readers, String> {
    match text {
        "none" => Ok(Readers::None),
        "all" => Ok(Readers::All),
        number => number
            .parse()
            .map(Readers::One)
            .map_err(|_| "standard input goes to the number of a rank, to all or to none".into()),
    }
}

fn parse_variable(text: &str) -> Result<(String, Option<String>), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    if !is_variable(name) {
        return Err(format!("'{name}' is no name of a variable; write -x NAME or -x NAME=value"));
    }
    Ok((name.to_owned(), value))
}

/// Whether a variable may have this name.
pub(crate) fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
#[path = "cli_tests.rs"]
mod tests;
