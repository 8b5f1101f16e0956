//! Starting one rank: a process with its own process group, pipes for its output, and one end of a
//! control connection.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rma_bootstrap::control::Control;
use rma_bootstrap::environment::Place;
use rustix::io::FdFlags;
use rustix::process::{Pid, Resource, Rlimit, Signal};

use crate::keeper::{tell_group, Keeper};

/// What all ranks of a job have in common.
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

/// A rank that has been started.
#[derive(Debug)]
pub(crate) struct Started {
    /// Its process, which also is its process group.
    pub(crate) process: Pid,
    /// The launcher's end of its control connection.
    pub(crate) control: Control,
    /// Where its standard input comes from; rank 0 only.
    pub(crate) stdin: Option<OwnedFd>,
    /// Its standard output.
    pub(crate) stdout: OwnedFd,
    /// Its standard error.
    pub(crate) stderr: OwnedFd,
}

/// Starts one rank.
///
/// # Errors
/// When the program cannot be run, as the operating system has it, or processes or files run out.
pub(crate) fn start(program: &Program, place: &Place, keeper: Option<&Keeper>) -> io::Result<Started> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = OwnedFd::from(theirs);
    let mut command = Command::new(&program.path);
    command.args(&program.arguments).envs(program.variables.iter().map(|(name, value)| (name, value)));
    if let Some(directory) = &program.directory {
        command.current_dir(directory);
    }
    set_place(&mut command, place, &theirs);
    let watches = program.stderr_is_terminal && place.rank == 0;
    command.env("RMA_STDERR_IS_TERMINAL", if watches { "1" } else { "0" });
    command.stdin(if place.rank == 0 { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);

    let launcher = rustix::process::getpid();
    let open_files = program.open_files;
    let (control_fd, keeper_fd) = (theirs.as_raw_fd(), keeper.map(|keeper| keeper.line().as_raw_fd()));
    // SAFETY: the closure runs in the child between fork and exec, and `become_rank` keeps to what is
    // allowed there: system calls without allocation, locks or anything that may be held elsewhere.
    unsafe { command.pre_exec(move || become_rank(launcher, control_fd, keeper_fd, open_files)) };

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
    Ok(Started { process, control: Control::new(ours.into())?, stdin, stdout, stderr })
}

fn set_place(command: &mut Command, place: &Place, control: &OwnedFd) {
    command.env("RMA_RANK", place.rank.to_string());
    command.env("RMA_SIZE", place.size.to_string());
    command.env("RMA_LOCAL_RANK", place.local_rank.to_string());
    command.env("RMA_LOCAL_SIZE", place.local_size.to_string());
    command.env("RMA_JOB_ID", &place.job_id);
    command.env("RMA_CONTROL_FD", control.as_raw_fd().to_string());
}

/// What the child does before it becomes the program. No allocation, no lock.
fn become_rank(launcher: Pid, control_fd: i32, keeper_fd: Option<i32>, open_files: Rlimit) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The launcher may have died before the line above: then no signal comes.
    if rustix::process::getppid() != Some(launcher) {
        return Err(io::ErrorKind::NotConnected.into());
    }
    if let Some(keeper_fd) = keeper_fd {
        // SAFETY: the launcher keeps the keeper's line open while it starts ranks, and the child has it too.
        let line = unsafe { BorrowedFd::borrow_raw(keeper_fd) };
        tell_group(line, rustix::process::getpid());
    }
    rustix::process::setrlimit(Resource::Nofile, open_files)?;
    // SAFETY: the launcher holds this end of the control connection open until the program runs.
    let control = unsafe { BorrowedFd::borrow_raw(control_fd) };
    // Of all descriptors besides the standard streams the program inherits this one.
    rustix::io::fcntl_setfd(control, FdFlags::empty())?;
    Ok(())
}
