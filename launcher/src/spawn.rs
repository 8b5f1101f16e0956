//! Starting one rank: a process with its own process group, pipes for its output, and one end each of a
//! control connection and a PMI connection.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rma_bootstrap::control::{Control, Relay};
use rma_bootstrap::environment::Place;
use rma_bootstrap::neighbours;
use rustix::io::FdFlags;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;

use crate::keeper::{tell_group, Keeper};

/// What all ranks of a program have in common.
#[derive(Debug)]
pub(crate) struct Program {
    /// The program to run, looked for in PATH unless it has a slash.
    pub(crate) path: OsString,
    /// Its arguments.
    pub(crate) arguments: Vec<OsString>,
    /// Its working directory, if not this process's.
    pub(crate) directory: Option<PathBuf>,
    /// Variables to set besides those that this process has.
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// The limit of open files with which this process was started.
    pub(crate) open_files: Rlimit,
    /// Whether a person watches this process's standard error.
    pub(crate) stderr_is_terminal: bool,
}

/// What a rank has for itself besides its place in the job.
#[derive(Debug)]
pub(crate) struct Own {
    /// The processors that it may use, if not those of this process.
    pub(crate) processors: Option<CpuSet>,
    /// How many processors the ranks of this host have together, if they are bound.
    pub(crate) processors_together: Option<usize>,
    /// Whether it reads this process's standard input; the others read `/dev/null`.
    pub(crate) reads_stdin: bool,
}

/// A rank that has been started.
#[derive(Debug)]
pub(crate) struct Started {
    /// Its process, which also is its process group.
    pub(crate) process: Pid,
    /// The launcher's end of its control connection.
    pub(crate) control: Control,
    /// The launcher's end of the connection over which it may speak PMI.
    pub(crate) pmi: Relay,
    /// Where its standard input comes from, if it reads the launcher's.
    pub(crate) stdin: Option<OwnedFd>,
    /// Its standard output.
    pub(crate) stdout: OwnedFd,
    /// Its standard error.
    pub(crate) stderr: OwnedFd,
}

/// Keeps libinfinipath, which Debian's libfabric is linked to, from installing handlers of SIGTERM and others when it is
/// loaded. They call `exit`, which deadlocks or frees what other threads use, and hides the signal. The library itself
/// puts the program's handlers back, but a job that is ended while its ranks start would meet those in between.
const NO_HANDLERS: &str = "IPATH_NO_BACKTRACE";

/// Starts one rank.
///
/// # Errors
/// When the program cannot be run, as the operating system has it, or processes or files run out.
pub(crate) fn start(
    program: &Program,
    place: &Place,
    own: &Own,
    keeper: Option<&Keeper>,
) -> io::Result<Started> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs);
    let (our_pmi, their_pmi) = UnixStream::pair()?;
    let their_pmi = OwnedFd::from(their_pmi);
    let mut command = Command::new(&program.path);
    command.env(NO_HANDLERS, "1");
    command.args(&program.arguments).envs(program.variables.iter().map(|(name, value)| (name, value)));
    if let Some(directory) = &program.directory {
        command.current_dir(directory);
    }
    set_place(&mut command, place, &theirs);
    match own.processors_together {
        Some(count) => command.env("RMA_HOST_PROCESSORS", count.to_string()),
        // That of an outer job is none of this one's.
        None => command.env_remove("RMA_HOST_PROCESSORS"),
    };
    set_pmi(&mut command, place, &their_pmi);
    let watches = program.stderr_is_terminal && place.rank == 0;
    command.env("RMA_STDERR_IS_TERMINAL", if watches { "1" } else { "0" });
    command.stdin(if own.reads_stdin { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);

    let launcher = rustix::process::getpid();
    let open_files = program.open_files;
    let processors = own.processors;
    let (connections, keeper_fd) =
        ([theirs.as_raw_fd(), their_pmi.as_raw_fd()], keeper.map(|keeper| keeper.line().as_raw_fd()));
    // SAFETY: the closure runs in the child between fork and exec, and `become_rank` keeps to what is
    // allowed there: system calls without allocation, locks or anything that may be held elsewhere.
    unsafe {
        command.pre_exec(move || become_rank(launcher, connections, keeper_fd, open_files, processors))
    };

    let mut child = command.spawn()?;
    let missing = || io::Error::other("a pipe of the rank is missing");
    let stdout = OwnedFd::from(child.stdout.take().ok_or_else(missing)?);
    let stderr = OwnedFd::from(child.stderr.take().ok_or_else(missing)?);
    let stdin = child.stdin.take().map(OwnedFd::from);
    for fd in [Some(&stdout), Some(&stderr), stdin.as_ref()].into_iter().flatten() {
        let flags = rustix::fs::fcntl_getfl(fd)?;
        rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?;
    }
    let process = Pid::from_child(&child);
    let (control, pmi) = (Control::new(ours.into())?, Relay::new(our_pmi.into())?);
    Ok(Started { process, control, pmi, stdin, stdout, stderr })
}

fn set_place(command: &mut Command, place: &Place, control: &OwnedFd) {
    command.env("RMA_RANK", place.rank.to_string());
    command.env("RMA_SIZE", place.size.to_string());
    command.env("RMA_LOCAL_RANK", place.local_rank.to_string());
    command.env("RMA_LOCAL_SIZE", place.local_size.to_string());
    command.env("RMA_LOCAL_RANKS", neighbours::describe(&place.local_ranks));
    command.env("RMA_JOB_ID", &place.job_id);
    command.env("RMA_CONTROL_FD", control.as_raw_fd().to_string());
}

/// For programs of others. What an outer launcher has set for this process is none of theirs.
fn set_pmi(command: &mut Command, place: &Place, pmi: &OwnedFd) {
    for outer in OUTER_VARIABLES {
        command.env_remove(outer);
    }
    command.env("PMI_FD", pmi.as_raw_fd().to_string());
    command.env("PMI_RANK", place.rank.to_string());
    command.env("PMI_SIZE", place.size.to_string());
    command.env("MPI_LOCALRANKID", place.local_rank.to_string());
    command.env("MPI_LOCALNRANKS", place.local_size.to_string());
}

/// What makes a process a rank of another launcher's job.
const OUTER_VARIABLES: [&str; 5] = ["PMI_PORT", "PMI_ID", "PMI_JOBID", "PMIX_NAMESPACE", "PMIX_RANK"];

/// What every child does before it becomes its program: it dies with its parent, and so does what it starts, which
/// the keeper sees to. No allocation, no lock.
pub(crate) fn become_child(parent: Pid, keeper_fd: Option<i32>) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the line above: then no signal comes.
    if rustix::process::getppid() != Some(parent) {
        return Err(io::ErrorKind::NotConnected.into());
    }
    if let Some(keeper_fd) = keeper_fd {
        // SAFETY: the parent keeps the keeper's line open while it starts children, and the child has it too.
        let line = unsafe { BorrowedFd::borrow_raw(keeper_fd) };
        tell_group(line, rustix::process::getpid());
    }
    Ok(())
}

/// What the child does before it becomes the program of a rank. No allocation, no lock.
fn become_rank(
    launcher: Pid,
    connections: [i32; 2],
    keeper_fd: Option<i32>,
    open_files: Rlimit,
    processors: Option<CpuSet>,
) -> io::Result<()> {
    become_child(launcher, keeper_fd)?;
    rustix::process::setrlimit(Resource::Nofile, open_files)?;
    if let Some(processors) = processors {
        rustix::thread::sched_setaffinity(None, &processors)?;
    }
    for connection in connections {
        // SAFETY: the launcher holds this end of the connection open until the program runs.
        let connection = unsafe { BorrowedFd::borrow_raw(connection) };
        // Of all descriptors besides the standard streams the program inherits these.
        rustix::io::fcntl_setfd(connection, FdFlags::empty())?;
    }
    Ok(())
}
