//! The keeper: a second process that outlives a killed launcher just long enough to kill what the
//! launcher started.
//!
//! The kernel kills the ranks themselves when the launcher dies (`PR_SET_PDEATHSIG`), but not the
//! programs that ranks started: with `rmarun -n 4 sh -c '...'` these do the work. So each rank is
//! its own process group, tells the keeper its number before it becomes the program, and the keeper
//! kills the groups when the launcher's end of their line closes. No process can slip in between, since
//! the launcher does not reap a rank, so that a group's number is not given to anybody else.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::net::SendFlags;
use rustix::process::{kill_process_group, Pid, Signal};

/// The argument that makes this program a keeper.
pub(crate) const ARGUMENT: &str = "--internal-keeper";

/// A record: a group that exists now.
const GROUP: u8 = 1;

/// A record: the job is over and nothing is to be killed.
const OVER: u8 = 2;

/// Bytes of a record: what it is, then a process group, little-endian. Small enough to be written in
/// one piece by several processes.
const RECORD_BYTES: usize = 5;

/// Tells the keeper at the other end of `line` of a process group. Allocates nothing and takes no lock.
pub(crate) fn tell_group(line: BorrowedFd<'_>, group: Pid) {
    tell(line, &record(GROUP, group.as_raw_nonzero().get()));
}

fn tell(line: BorrowedFd<'_>, record: &[u8; RECORD_BYTES]) {
    // A keeper that is gone is a second line of defence lost, not a reason to fail; and it must not
    // end the sender by SIGPIPE.
    let _ = rustix::net::send(line, record, SendFlags::NOSIGNAL);
}

/// The launcher's side.
#[derive(Debug)]
pub(crate) struct Keeper {
    line: OwnedFd,
}

impl Keeper {
    /// Starts the keeper.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start() -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("rma-keeper").arg(ARGUMENT).stdin(OwnedFd::from(theirs));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        // In a group of its own, so that Ctrl-C does not end it before the ranks have ended.
        command.process_group(0).spawn()?;
        Ok(Self { line: ours.into() })
    }

    /// The line over which each rank [tells](tell_group) its group.
    pub(crate) fn line(&self) -> &OwnedFd {
        &self.line
    }

    /// The job is over: nothing is to be killed.
    pub(crate) fn dismiss(self) {
        tell(self.line.as_fd(), &record(OVER, 0));
    }
}

/// The keeper's side: reads records until the line ends, then kills the groups.
pub(crate) fn run() {
    let mut bytes = Vec::new();
    // An error of the line is its end.
    let _ = io::stdin().read_to_end(&mut bytes);
    for group in groups_left(&bytes) {
        // Already gone is as good as killed.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn record(kind: u8, group: i32) -> [u8; RECORD_BYTES] {
    let [a, b, c, d] = group.to_le_bytes();
    [kind, a, b, c, d]
}

fn groups_left(bytes: &[u8]) -> Vec<Pid> {
    let records = bytes.chunks_exact(RECORD_BYTES);
    if records.clone().any(|record| record[0] == OVER) {
        return Vec::new();
    }
    // Number 1 as a group would mean every process.
    let groups = records.filter(|record| record[0] == GROUP).filter_map(|record| {
        let group = i32::from_le_bytes(*record.last_chunk::<4>()?);
        Pid::from_raw(group).filter(|_| group > 1)
    });
    groups.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_what_it_was_told_of_unless_the_job_is_over() {
        let mut bytes = [70_000, 1, 0, 5].map(|group| record(GROUP, group)).concat();
        let left: Vec<i32> = groups_left(&bytes).iter().map(|group| group.as_raw_nonzero().get()).collect();
        assert_eq!(left, [70_000, 5]);
        bytes.extend(record(OVER, 0));
        assert!(groups_left(&bytes).is_empty());
    }
}
