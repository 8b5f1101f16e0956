//! What the launcher's tests share: rmarun as a child process that cannot outlast its test.

// Each test file uses its part of this.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{kill_process, Pid, Signal};

/// Time limit of one run of rmarun: far above what any test needs.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The program that acts as a rank.
pub(crate) const RANK: &str = env!("CARGO_BIN_EXE_rmarun-test-rank");

/// A shell's command line in which a rank sleeps for longer than any test runs.
pub(crate) const SLEEP: &str = "sleep 300";

/// What a run of a program came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// rmarun with these arguments, in an environment without any setting.
pub(crate) fn rmarun<A: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rmarun"));
    command.args(arguments);
    without_settings(&mut command);
    command
}

/// Takes from a command what the environment of the tests may say to the project's programs.
pub(crate) fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["RMA_", "PMI", "OMPI_", "SLURM_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").stdin(Stdio::null());
}

/// Runs a command to its end.
pub(crate) fn finish(command: Command) -> Outcome {
    Running::start(command).finish()
}

/// Runs `rmarun -n RANKS sh -c SCRIPT` with more arguments in front of the program.
pub(crate) fn shell(ranks: u32, arguments: &[&str], script: &str) -> Command {
    let mut command = rmarun(["-n", &ranks.to_string()]);
    command.args(arguments).args(["sh", "-c", script]);
    command
}

/// Runs `rmarun -n RANKS` with the test rank and its steps.
pub(crate) fn ranks(ranks: u32, steps: &[&str]) -> Command {
    let mut command = rmarun(["-n", &ranks.to_string(), RANK]);
    command.args(steps);
    command
}

/// A command that runs; killed when it takes longer than [`LIMIT`] or is dropped.
pub(crate) struct Running {
    child: Child,
    stdout: BufReader<Box<dyn Read + Send>>,
    stderr: BufReader<ChildStderr>,
    watchdog: Watchdog,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped());
        Self::start_keeping_stdout(command)
    }

    /// As [`Running::start`], with the standard output that the command has been given.
    pub(crate) fn start_keeping_stdout(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let stdout: Box<dyn Read + Send> = match child.stdout.take() {
            Some(stdout) => Box::new(stdout),
            None => Box::new(std::io::empty()),
        };
        let stdout = BufReader::new(stdout);
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let watchdog = Watchdog::new(Pid::from_child(&child));
        Self { child, stdout, stderr, watchdog }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn stdin(&mut self) -> std::process::ChildStdin {
        self.child.stdin.take().expect("the command was given a pipe")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The next line of standard output without its end; panics when there is none.
    pub(crate) fn stdout_line(&mut self) -> String {
        line(&mut self.stdout)
    }

    /// The next bytes of standard output.
    pub(crate) fn stdout_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stdout.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The next line of standard error without its end; panics when there is none.
    pub(crate) fn stderr_line(&mut self) -> String {
        line(&mut self.stderr)
    }

    /// Closes the reading end of standard output.
    pub(crate) fn close_stdout(self) -> Outcome {
        let Self { mut child, stdout, stderr, watchdog } = self;
        drop(stdout);
        outcome(&mut child, BufReader::new(std::io::empty()), stderr, watchdog)
    }

    pub(crate) fn finish(self) -> Outcome {
        let Self { mut child, stdout, stderr, watchdog } = self;
        outcome(&mut child, stdout, stderr, watchdog)
    }
}

fn outcome(
    child: &mut Child,
    mut stdout: BufReader<impl Read + Send + 'static>,
    mut stderr: BufReader<ChildStderr>,
    watchdog: Watchdog,
) -> Outcome {
    let reader: JoinHandle<String> = std::thread::spawn(move || read_all(&mut stdout));
    let stderr = read_all(&mut stderr);
    let stdout = reader.join().unwrap();
    let code = child.wait().unwrap().code();
    assert!(!watchdog.has_barked(), "ran into the time limit; stdout:\n{stdout}\nstderr:\n{stderr}");
    Outcome { code, stdout, stderr }
}

fn read_all(reader: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.ends_with('\n'), "the output ended: '{line}'");
    line.trim_end().to_owned()
}

/// Kills a process when [`LIMIT`] has passed before the watchdog is dropped.
struct Watchdog {
    barked: mpsc::Receiver<()>,
    _leash: mpsc::Sender<()>,
}

impl Watchdog {
    fn new(pid: Pid) -> Self {
        let (leash, leash_end) = mpsc::channel::<()>();
        let (bark, barked) = mpsc::channel();
        std::thread::spawn(move || {
            if leash_end.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = bark.send(());
                let _ = kill_process(pid, Signal::KILL);
            }
        });
        Self { barked, _leash: leash }
    }

    fn has_barked(&self) -> bool {
        self.barked.try_recv().is_ok()
    }
}

/// Waits until `is_so`, which nobody announces, looking often; panics when it takes too long.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "not so after {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The letter of a process's state (`R`, `S`, `T`, ...), or `None` when it is gone or a zombie, which
/// is as good: a container's first process may not reap.
pub(crate) fn process_state(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = stat.rsplit(')').next()?.trim_start().chars().next()?;
    (state != 'Z' && state != 'X').then_some(state)
}

/// The processes that have `mark` in their environment.
pub(crate) fn processes_marked(mark: &str) -> Vec<i32> {
    let folders = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = folders.filter_map(|folder| folder.file_name().to_str()?.parse::<i32>().ok());
    let is_marked = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    pids.filter(is_marked).filter(|pid| process_state(*pid).is_some()).collect()
}

/// A folder that exists as long as the value.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
}

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rmarun-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self { path: path.canonicalize().unwrap() }
    }

    /// Writes an executable file.
    pub(crate) fn program(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        let file = self.path.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
