//! The words of the command line before they are parsed: programs are told apart, and options in the way that
//! users of `mpiexec` type them become ours.

use std::ffi::OsString;

use clap::{Arg, Command};

/// The word between two programs.
const NEXT_PROGRAM: &str = ":";

/// Options of other launchers that ask for what holds here anyway.
const IGNORED: [&str; 4] = ["genvall", "oversubscribe", "allow-run-as-root", "quiet"];

/// Options of other launchers that are none here, and what is written in their place.
const OF_OTHERS: [(&[&str], &str); 10] = [
    (
        &["N"],
        "the number of nodes for srun and of ranks on each node for Open MPI; write --ppn N for N ranks on each host, \
         and name the hosts with --host",
    ),
    (&["t", "time"], "a time in minutes for srun; write --timeout S, in seconds"),
    (&["c", "cpus-per-task", "cpu-bind", "cpu-set"], "for srun and Open MPI what --bind-to core, numa or socket is here"),
    (
        &["o", "e", "output", "error", "outfile-pattern", "errfile-pattern", "output-filename"],
        "a file for what ranks write; write --output-dir DIR, for DIR/rank-5.out and DIR/rank-5.err of rank 5",
    ),
    (&["i", "input", "s"], "about who reads standard input; write --stdin RANK, all or none"),
    (&["envlist", "genvlist"], "a list of variables for Hydra; write -x NAME for each"),
    (&["configfile", "app", "multi-prog"], "a file of programs; write them one after the other, with ':' in between"),
    (&["mca", "gmca", "prtemca"], "a parameter of Open MPI; rmarun --help-env lists the settings of rmarun and its ranks"),
    (&["rr"], "one rank for each host in turn; write --map-by node"),
    (&["launcher", "launcher-exec", "rsh"], "about how other hosts are reached; write --launch-agent COMMAND"),
];

/// What to write in the place of an option that is known from other launchers.
pub(crate) fn advice(word: &str) -> Option<String> {
    let option = word.split('=').next().unwrap_or(word);
    // The value of a short one may follow without a space.
    let name = option.trim_start_matches('-').trim_end_matches(|letter: char| letter.is_ascii_digit());
    let (_, advice) = OF_OTHERS.iter().find(|(names, _)| names.contains(&name))?;
    Some(format!("{option} is {advice}"))
}

/// The words of each program, without the name of this one. Options come first in each; after a `--` in front of a
/// program everything belongs to that program.
pub(crate) fn programs(words: impl IntoIterator<Item = OsString>, command: &Command) -> Vec<Vec<OsString>> {
    let mut rest: Vec<OsString> = words.into_iter().collect();
    let mut programs = Vec::new();
    loop {
        let next = match program_at(&mut rest, command) {
            Some(begin) => rest[begin..].iter().position(|word| word == NEXT_PROGRAM).map(|at| begin + at),
            None => None,
        };
        let Some(at) = next else { break };
        let after = rest.split_off(at + 1);
        rest.truncate(at);
        programs.push(std::mem::replace(&mut rest, after));
    }
    programs.push(rest);
    programs
}

/// Makes the options ours, and returns where the program begins, unless a `--` stands in front of it.
fn program_at(words: &mut Vec<OsString>, command: &Command) -> Option<usize> {
    let mut index = 0;
    // The first word that is no option is the program; what follows is the program's.
    while let Some(word) =
        words.get(index).and_then(|word| word.to_str()).filter(|word| word.starts_with('-'))
    {
        if word == "--" {
            return None;
        }
        if IGNORED.contains(&word.trim_start_matches('-')) {
            words.remove(index);
            continue;
        }
        if word.trim_start_matches('-') == "env" && words.len() > index + 2 {
            join_variable(words, index);
            index += 2;
            continue;
        }
        let word = ours(word, command);
        let behind = values_behind(&word, command);
        words[index] = word.into();
        index += 1 + behind;
    }
    Some(index.min(words.len()))
}

/// `-env NAME VALUE`, which is of one program, becomes `-x NAME=VALUE`.
fn join_variable(words: &mut Vec<OsString>, index: usize) {
    let mut variable = words.remove(index + 1);
    variable.push("=");
    variable.push(&words[index + 1]);
    words[index] = "-x".into();
    words[index + 1] = variable;
}

/// `-np 4` would mean `-n p` as a group of short options, and `-host a` something else again: a word with one dash
/// that is the name of a long option is that option.
fn ours(word: &str, command: &Command) -> String {
    let (option, value) = word.split_at(word.find('=').unwrap_or(word.len()));
    let name = option.trim_start_matches('-');
    let is_long = name.len() > 1 && command.get_arguments().any(|option| has_long(option, name));
    match name {
        "np" | "ntasks" => format!("-n{value}"),
        name if is_long => format!("--{name}{value}"),
        _ => word.into(),
    }
}

/// How many of the next words are values of the option.
fn values_behind(word: &str, command: &Command) -> usize {
    let is_this = |option: &&Arg| match word.strip_prefix("--") {
        Some(name) => has_long(option, name),
        None => {
            let mut shorts =
                option.get_short().into_iter().chain(option.get_all_short_aliases().unwrap_or_default());
            shorts.any(|short| word == format!("-{short}"))
        }
    };
    let option = command.get_arguments().find(is_this).filter(|option| option.get_action().takes_values());
    option.map_or(0, |option| option.get_num_args().map_or(1, |range| range.min_values()))
}

fn has_long(option: &Arg, name: &str) -> bool {
    option.get_long() == Some(name) || option.get_all_aliases().unwrap_or_default().contains(&name)
}
