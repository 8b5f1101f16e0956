//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use rma_bootstrap::settings::parse_seconds;

/// Most ranks that one host may be asked to run.
const RANKS_MAX: u32 = 65_536;

/// Starts the ranks of a job on this host, lets them find each other, and ends them together.
///
/// The job's exit code is that of the first rank that fails (128 + signal for a killed one), else 0.
/// The time limit gives 124, a program that cannot be run 126, one that is not found 127, and Ctrl-C
/// 130. Ctrl-C asks the ranks to end; a second one kills them.
#[derive(Parser, Debug)]
#[command(name = "rmarun", version, after_help = EXAMPLES, max_term_width = 100)]
#[command(override_usage = "rmarun -n <N> [OPTIONS] [--] <PROGRAM> [ARGUMENTS]...")]
pub(crate) struct Cli {
    /// Number of ranks (-np is understood as well)
    #[arg(short = 'n', value_name = "N", value_parser = parse_ranks)]
    #[arg(required = false, required_unless_present = "help_env", default_value_if("help_env", "true", "1"))]
    pub(crate) ranks: u32,

    /// Provider that the ranks use, such as 'tcp;ofi_rxm' (sets RMA_PROVIDER)
    #[arg(long, value_name = "P")]
    pub(crate) provider: Option<String>,

    /// End the job after this many seconds, with exit code 124
    #[arg(long, value_name = "S", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,

    /// Seconds that ranks have to end when asked to, before they are killed
    #[arg(long, value_name = "S", value_parser = parse_time, default_value = "2")]
    pub(crate) grace: Duration,

    /// Mark every line with the rank that wrote it
    #[arg(long, alias = "prepend-rank", help = "Write '[rank] ' in front of every line that a rank writes")]
    pub(crate) tag_output: bool,

    /// Say which process each rank is, and how it ended
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Set a variable for the ranks; without a value, make sure that it is passed on
    #[arg(short = 'x', long = "export", value_name = "VAR[=VALUE]", value_parser = parse_variable)]
    pub(crate) exports: Vec<(String, Option<String>)>,

    /// Working directory of the ranks
    #[arg(long, value_name = "DIR", alias = "wd")]
    pub(crate) wdir: Option<PathBuf>,

    /// List the RMA_* variables and settings, and exit
    #[arg(long)]
    pub(crate) help_env: bool,

    /// The program that each rank runs, and its arguments
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, required_unless_present = "help_env")]
    pub(crate) program: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  rmarun -n 2 rma-bench optimizations        two ranks of a program in PATH
  rmarun -n 4 --tag-output ./halo 512        every line begins with its rank
  rmarun -n 2 --provider tcp ./halo          over TCP, whatever else there is
  rmarun -n 8 --timeout 60 -- ./halo -n 3    ended after a minute; -n 3 is the program's own
  rmarun -n 2 -x RMA_COALESCE=0 ./halo       with a setting changed (see --help-env)

Standard input goes to rank 0, the other ranks read /dev/null.";

impl Cli {
    /// The command line of this process. Wrong ones end the process with a message and exit code 2.
    pub(crate) fn of_this_process() -> Self {
        let arguments = with_n_for_np(std::env::args_os().collect(), &Self::command());
        Self::parse_from(arguments)
    }
}

/// Users of mpiexec type `-np 4`: as a group of short options it would mean `-n p`.
fn with_n_for_np(mut arguments: Vec<OsString>, command: &clap::Command) -> Vec<OsString> {
    let mut index = 1;
    while let Some(argument) = arguments.get(index).and_then(|argument| argument.to_str()) {
        // The first word that is no option is the program; what follows is the program's.
        if argument == "--" || !argument.starts_with('-') {
            break;
        }
        let is_np = matches!(argument, "-np" | "--np");
        let takes_next = is_np || takes_value(command, argument);
        if is_np {
            arguments[index] = "-n".into();
        }
        index += if takes_next { 2 } else { 1 };
    }
    arguments
}

/// Whether the option takes the next word as its value.
fn takes_value(command: &clap::Command, argument: &str) -> bool {
    let is_this = |option: &&clap::Arg| {
        let is_long = |name: &str| argument.strip_prefix("--") == Some(name);
        let short = option.get_short().map(|short| format!("-{short}"));
        short.as_deref() == Some(argument)
            || option.get_long().is_some_and(is_long)
            || option.get_all_aliases().unwrap_or_default().into_iter().any(is_long)
    };
    command.get_arguments().find(is_this).is_some_and(|option| option.get_action().takes_values())
}

fn parse_ranks(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) => Err("a job has at least 1 rank".into()),
        Ok(count) if count <= RANKS_MAX => Ok(count),
        Ok(_) => Err(format!("more than {RANKS_MAX} ranks do not fit on one host")),
        Err(_) => Err(format!("the number of ranks is a whole number from 1 to {RANKS_MAX}")),
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    parse_seconds(text).ok_or_else(|| "a time is a number of seconds above 0, such as 30 or 0.5".into())
}

fn parse_variable(text: &str) -> Result<(String, Option<String>), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(format!("'{name}' is no name of a variable; write -x NAME or -x NAME=value"));
    }
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        let arguments = std::iter::once("rmarun").chain(words.iter().copied()).map(OsString::from).collect();
        Cli::try_parse_from(with_n_for_np(arguments, &Cli::command()))
    }

    fn error(words: &[&str]) -> String {
        parse(words).unwrap_err().to_string()
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn number_of_ranks_as_people_type_it() {
        for words in [&["-n", "4", "p"][..], &["-n4", "p"], &["-np", "4", "p"], &["--np", "4", "p"]] {
            assert_eq!(parse(words).unwrap().ranks, 4, "{words:?}");
        }
        assert!(error(&["-n", "0", "p"]).contains("at least 1 rank"));
        assert!(error(&["-n", "x", "p"]).contains("whole number"));
        assert!(error(&["-n", "-1", "p"]).contains("-1"));
        assert!(error(&["-n", "70000", "p"]).contains("65536"));
        assert!(error(&["p"]).contains("-n"));
        assert!(error(&["-n", "2"]).contains("PROGRAM"));
    }

    #[test]
    fn the_program_keeps_its_own_options() {
        for words in
            [&["-n", "2", "p", "-np", "3", "--", "-x"][..], &["-n", "2", "--", "p", "-np", "3", "--", "-x"]]
        {
            assert_eq!(parse(words).unwrap().program, ["p", "-np", "3", "--", "-x"], "{words:?}");
        }
        let cli = parse(&["--wd", "-np", "-np", "2", "p"]);
        assert!(cli.is_err(), "a value of an option is not an option");
        assert!(error(&["-n", "2", "--tga-output", "p"]).contains("--tag-output"));
    }

    #[test]
    fn times_and_variables() {
        let cli = parse(&["-n", "1", "--timeout", "0.5", "-x", "A", "-x", "B=c=d", "p"]).unwrap();
        assert_eq!(cli.timeout, Some(Duration::from_millis(500)));
        assert_eq!(cli.exports, [("A".into(), None), ("B".into(), Some("c=d".into()))]);
        assert_eq!(cli.grace, Duration::from_secs(2));
        assert!(error(&["-n", "1", "--timeout", "0", "p"]).contains("above 0"));
        assert!(error(&["-n", "1", "-x", "=1", "p"]).contains("-x NAME"));
        assert!(parse(&["--help-env"]).unwrap().help_env);
    }
}
