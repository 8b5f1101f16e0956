//! A process that starts an agent on another host, ssh for instance: it is given the description of the job over its
//! standard input, and what it says on standard error is kept for a message.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{kill_process_group, waitid, Pid, Signal, WaitId, WaitIdOptions};

use crate::keeper::Keeper;
use crate::report::signal_name;
use crate::spawn::become_child;

/// How much of the end of what it says is remembered, in bytes.
const TAIL_BYTES: usize = 4096;

/// How many of the last lines are shown.
const TAIL_LINES: usize = 12;

/// Bytes read or written at once.
const CHUNK_BYTES: usize = 4096;

/// The process.
#[derive(Debug)]
pub(crate) struct Helper {
    program: String,
    /// The process, or why it could not be started.
    child: Result<Child, String>,
    /// Its standard input, what it is given, and how much of that it has.
    input: Option<(OwnedFd, Vec<u8>, usize)>,
    errors: Option<OwnedFd>,
    tail: VecDeque<u8>,
}

impl Helper {
    /// Starts the process, which will be given `input`. That it cannot be started is said by [`Helper::end`].
    pub(crate) fn start(mut command: Command, input: Vec<u8>, keeper: Option<&Keeper>) -> Self {
        let program = command.get_program().to_string_lossy().into_owned();
        // What a login shell prints on standard output is nobody's business.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let parent = rustix::process::getpid();
        let keeper = keeper.map(|keeper| keeper.line().as_raw_fd());
        // SAFETY: the closure runs in the child between fork and exec, and `become_child` keeps to what is
        // allowed there: system calls without allocation, locks or anything that may be held elsewhere.
        unsafe {
            command.pre_exec(move || become_child(parent, keeper));
        }
        let child = command.spawn().map_err(|error| error.to_string());
        let mut helper = Self { program, child, input: None, errors: None, tail: VecDeque::new() };
        if let Ok(child) = &mut helper.child {
            helper.input = child.stdin.take().map(|fd| (OwnedFd::from(fd), input, 0));
            helper.errors = child.stderr.take().map(OwnedFd::from);
        }
        let fds = [helper.input.as_ref().map(|(fd, ..)| fd), helper.errors.as_ref()];
        let failed = fds.into_iter().flatten().find_map(|fd| without_blocking(fd).err());
        if let Some(error) = failed {
            helper.kill();
            helper.child = Err(error.to_string());
        }
        helper
    }

    /// What to poll for writability.
    pub(crate) fn wants_to_write(&self) -> Option<BorrowedFd<'_>> {
        self.input.as_ref().map(|(fd, ..)| fd.as_fd())
    }

    /// What to poll for readability.
    pub(crate) fn errors(&self) -> Option<BorrowedFd<'_>> {
        self.errors.as_ref().map(OwnedFd::as_fd)
    }

    /// Writes once; the standard input ends when it has everything.
    pub(crate) fn write_some(&mut self) {
        let Some((fd, bytes, given)) = &mut self.input else { return };
        match rustix::io::write(&*fd, &bytes[*given..]) {
            Ok(count) => *given += count,
            Err(Errno::INTR | Errno::AGAIN) => return,
            // It does not want it; why is said by how it ends.
            Err(_) => *given = bytes.len(),
        }
        self.input.take_if(|(_, bytes, given)| *given == bytes.len());
    }

    /// Reads once what it says. Returns whether there may be more.
    pub(crate) fn read_some(&mut self) -> bool {
        let Some(fd) = &self.errors else { return false };
        let mut bytes = [0; CHUNK_BYTES];
        match rustix::io::read(fd, &mut bytes) {
            Ok(count @ 1..) => {
                self.tail.extend(&bytes[..count]);
                let excess = self.tail.len().saturating_sub(TAIL_BYTES);
                self.tail.drain(..excess);
                true
            }
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            Ok(0) | Err(_) => {
                self.errors = None;
                false
            }
        }
    }

    /// How it ended, in words, if it has.
    pub(crate) fn end(&self) -> Option<String> {
        let program = &self.program;
        let process = match &self.child {
            Ok(child) => Pid::from_child(child),
            Err(why) => return Some(format!("{program} cannot be run: {why}")),
        };
        // Not reaped, so that the number of its group stays its own until this process ends.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(process), options).ok()??;
        Some(match status.terminating_signal() {
            Some(number) => format!("{program} was killed by {}", signal_name(number)),
            None => format!("{program} exited with status {}", status.exit_status().unwrap_or(0)),
        })
    }

    /// The last lines it said, after taking what is there.
    pub(crate) fn last_lines(&mut self) -> Vec<String> {
        while self.read_some() {}
        let bytes: Vec<u8> = self.tail.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].iter().map(|line| (*line).to_owned()).collect()
    }

    /// Kills it and what it started.
    pub(crate) fn kill(&mut self) {
        self.input = None;
        if let Ok(child) = &self.child {
            // Already gone is as good as killed.
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.kill();
    }
}

fn without_blocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_given_its_input_and_its_last_words_are_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "wc -c >&2; echo why >&2; exit 3"]);
        let mut helper = Helper::start(command, vec![7; 200_000], None);
        let mut end = None;
        while end.is_none() {
            let fds = [
                (helper.wants_to_write(), rustix::event::PollFlags::OUT),
                (helper.errors(), rustix::event::PollFlags::IN),
            ];
            let fds = fds
                .into_iter()
                .filter_map(|(fd, flags)| Some(rustix::event::PollFd::from_borrowed_fd(fd?, flags)));
            let mut fds: Vec<_> = fds.collect();
            let patience = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
            assert!(fds.is_empty() || rustix::event::poll(&mut fds, Some(&patience)).unwrap() > 0);
            drop(fds);
            helper.write_some();
            helper.read_some();
            end = helper.end();
        }
        assert_eq!(end.unwrap(), "sh exited with status 3");
        assert_eq!(helper.last_lines(), ["200000", "why"]);
    }

    #[test]
    fn what_cannot_be_run_is_named() {
        let helper = Helper::start(Command::new("/nonexistent/ssh"), Vec::new(), None);
        assert!(helper.end().is_some_and(|end| end.contains("/nonexistent/ssh cannot be run")));
        assert!(helper.wants_to_write().is_none() && helper.errors().is_none());
    }

    #[test]
    fn what_does_not_end_is_killed() {
        let mut command = Command::new("sleep");
        command.arg("300");
        let mut helper = Helper::start(command, Vec::new(), None);
        assert!(helper.end().is_none());
        helper.kill();
        let begun = std::time::Instant::now();
        while helper.end().is_none() {
            assert!(begun.elapsed().as_secs() < 20);
            std::thread::yield_now();
        }
        assert_eq!(helper.end().unwrap(), "sleep was killed by SIGKILL");
    }
}
