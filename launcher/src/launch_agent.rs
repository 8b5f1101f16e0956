//! How an agent is started on another host: by ssh, inside a Slurm allocation by srun, or by what the user says.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use rma_bootstrap::environment::Environment;

/// The argument that makes this program an agent.
pub(crate) const AGENT_ARGUMENT: &str = "--agent";

/// ssh as it is called by default. It must not ask: many of it run at the same time, and nobody could tell what is
/// typed for which.
const SSH: [&str; 6] = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"];

/// srun as it is called inside an allocation: one process on the host, beside whatever runs there already.
const SRUN: [&str; 10] = [
    "srun",
    "--nodes=1",
    "--ntasks=1",
    "--overlap",
    "--mpi=none",
    "--cpu-bind=none",
    "--quiet",
    "--kill-on-bad-exit=0",
    "--unbuffered",
    "--nodelist",
];

/// The words of the command that is given a host and a command line: what the user says (`--launch-agent`,
/// `RMA_LAUNCH_AGENT`), else srun where it can be used, else ssh.
pub(crate) fn words(asked: Option<&str>, is_in_allocation: bool, environment: &Environment) -> Vec<String> {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let asked = asked.or_else(|| environment.get("RMA_LAUNCH_AGENT")).map(str::split_whitespace);
    match asked.map(|words| words.map(str::to_owned).collect::<Vec<_>>()) {
        Some(words) if !words.is_empty() => words,
        _ if is_in_allocation && is_in_path("srun", environment) => owned(&SRUN),
        _ => owned(&SSH),
    }
}

/// The command that starts an agent on `host`.
pub(crate) fn command(words: &[String], host: &str, agent: &[String]) -> Option<Command> {
    let (program, arguments) = words.split_first()?;
    let mut command = Command::new(program);
    command.args(arguments).arg(host);
    // srun runs the words as they are, and ssh (as what stands in for it) gives them to a shell.
    let is_srun = Path::new(program).file_name().is_some_and(|name| name == "srun");
    command.args(agent.iter().map(|word| if is_srun { word.into() } else { OsString::from(quoted(word)) }));
    Some(command)
}

/// A word that a shell takes for itself.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn is_in_path(program: &str, environment: &Environment) -> bool {
    let path = environment.get("PATH").unwrap_or_default();
    path.split(':').any(|folder| Path::new(folder).join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_starts_agents() {
        let path = Environment::from_pairs([("PATH", "/nonexistent")]);
        assert_eq!(words(None, false, &path)[0], "ssh");
        assert_eq!(words(None, true, &path)[0], "ssh", "there is no srun");
        assert_eq!(words(Some("rsh -n"), true, &path), ["rsh", "-n"]);
        let set = Environment::from_pairs([("RMA_LAUNCH_AGENT", "my agent")]);
        assert_eq!(words(None, false, &set), ["my", "agent"]);
        assert_eq!(words(Some("other"), false, &set), ["other"]);
    }

    #[test]
    fn words_are_for_a_shell_unless_srun_takes_them() {
        let line = |program: &str| {
            let agent = ["/opt/my rma/rmarun".to_owned(), AGENT_ARGUMENT.to_owned()];
            let command = command(&[program.to_owned()], "b", &agent).unwrap();
            command.get_args().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(line("ssh"), ["b", "'/opt/my rma/rmarun'", "--agent"]);
        assert_eq!(line("/usr/bin/srun"), ["b", "/opt/my rma/rmarun", "--agent"]);
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert!(command(&[], "b", &[]).is_none());
    }
}
