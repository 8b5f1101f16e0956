//! The keeper: a second process that outlives a killed launcher just long enough to kill what the
//! launcher started.
//!
//! The kernel kills the ranks themselves when the launcher dies (`PR_SET_PDEATHSIG`), but not the
//! programs that ranks started: with `rmarun -n 4 sh -c '...'` these do the work. So each rank is
//! its own process group, tells the keeper its number before it becomes the program, and the keeper
//! kills the groups when the launcher's end of their line closes. No process can slip in between, since
//! the launcher does not reap a rank, so that a group's number is not given to anybody else. Then it removes
//! what the killed have left in shared memory ([`leftovers`]); those that lead no group, as a rank behind a shell, it
//! is told of when they join.
//!
//! What has left the groups it finds by the names of the job and its ranks ([`escapees`](crate::escapees)).
//!
//! That of an agent also kills the agent if it is found stopped when whoever started it has given it up: it could not
//! end its ranks itself.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{getppid, kill_process, kill_process_group, Pid, Signal};

use crate::escapees::{Escapees, JOB_VARIABLE};
use crate::leftovers;
use crate::poll::poll;
use crate::proc_stat;

/// The argument that makes this program a keeper.
pub(crate) const ARGUMENT: &str = "--internal-keeper";

/// A record: a group that exists now.
const GROUP: u8 = 1;

/// A record: the job is over and nothing is to be killed.
const OVER: u8 = 2;

/// A record: a rank that is about to be started.
const RANK: u8 = 3;

/// A record: the process of a rank that was started by another one, such as a shell, and is in its group.
const PROCESS: u8 = 4;

/// Bytes of a record: what it is, then a process group, a rank or a process, little-endian. Small enough to be written in
/// one piece by several processes.
const RECORD_BYTES: usize = 5;

/// How long processes may take to be gone, on a busy host too; what they have left stays if they do not go.
const PATIENCE: Duration = Duration::from_secs(30);

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
    /// Starts the keeper. That of an agent shares its standard error, whose other end is held by what has started the
    /// agent.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start(is_of_agent: bool, job_id: &str) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("rma-keeper").args([ARGUMENT, job_id]).stdin(OwnedFd::from(theirs));
        command.stdout(Stdio::null()).stderr(if is_of_agent { Stdio::inherit() } else { Stdio::null() });
        // Within a rank of an outer job it outlasts that, as long as it has something to do.
        command.env_remove(JOB_VARIABLE);
        // In a group of its own, so that Ctrl-C does not end it before the ranks have ended.
        command.process_group(0).spawn()?;
        Ok(Self { line: ours.into() })
    }

    /// The line over which each rank [tells](tell_group) its group.
    pub(crate) fn line(&self) -> &OwnedFd {
        &self.line
    }

    /// Tells of a rank that is about to be started.
    pub(crate) fn tell_rank(&self, rank: u32) {
        tell(self.line.as_fd(), &record(RANK, rank as i32));
    }

    /// Tells of a process that may leave something although it leads no group that was told of.
    pub(crate) fn tell_process(&self, process: Pid) {
        tell(self.line.as_fd(), &record(PROCESS, process.as_raw_nonzero().get()));
    }

    /// The job is over: nothing is to be killed.
    pub(crate) fn dismiss(self) {
        tell(self.line.as_fd(), &record(OVER, 0));
    }
}

/// The keeper's side: reads records until the line ends, then kills the groups unless the job is over, and removes
/// what they have left.
pub(crate) fn run(job_id: &str) {
    let bytes = listen();
    let groups = groups(&bytes);
    if !is_over(&bytes) {
        for group in &groups {
            // Already gone is as good as killed.
            let _ = kill_process_group(*group, Signal::KILL);
        }
        Escapees::new(job_id, ranks(&bytes)).kill(PATIENCE);
    }
    let deadline = Instant::now() + PATIENCE;
    for process in groups.into_iter().chain(processes(&bytes)) {
        // Nothing tells of the end of processes that are nobody's children.
        while !is_dead(process) && Instant::now() < deadline {
            sleep(Duration::from_millis(1));
        }
        if is_dead(process) {
            leftovers::remove_of(process);
        }
    }
}

/// What was said until the line ended.
fn listen() -> Vec<u8> {
    let (stdin, stderr, launcher) = (rustix::stdio::stdin(), rustix::stdio::stderr(), getppid());
    let (mut bytes, mut is_starter_there) = (Vec::new(), true);
    loop {
        let mut list = vec![(false, PollFd::from_borrowed_fd(stdin, PollFlags::IN))];
        if is_starter_there {
            // Whether the other end is gone is told unasked.
            list.push((true, PollFd::from_borrowed_fd(stderr, PollFlags::empty())));
        }
        // An error of the line is its end.
        let Ok(ready) = poll(list, None) else { return bytes };
        for is_starter in ready {
            if is_starter {
                is_starter_there = false;
                if let Some(agent) = launcher.filter(|agent| getppid() == Some(*agent) && is_stopped(*agent))
                {
                    // Then its line ends, which does the rest.
                    let _ = kill_process(agent, Signal::KILL);
                }
                continue;
            }
            let mut part = [0; 4096];
            match rustix::io::read(stdin, &mut part) {
                Ok(len @ 1..) => bytes.extend(&part[..len]),
                Err(Errno::INTR) => {}
                Ok(0) | Err(_) => return bytes,
            }
        }
    }
}

/// Whether a process is stopped by a signal.
fn is_stopped(process: Pid) -> bool {
    state(process) == Some('T')
}

/// Whether a process has ended, reaped or not: the first process of a container may reap nobody.
fn is_dead(process: Pid) -> bool {
    matches!(state(process), None | Some('Z' | 'X'))
}

/// The letter of a process's state; none when there is no such process.
fn state(process: Pid) -> Option<char> {
    proc_stat::field(process.as_raw_nonzero().get(), proc_stat::STATE)?.chars().next()
}

fn record(kind: u8, group: i32) -> [u8; RECORD_BYTES] {
    let [a, b, c, d] = group.to_le_bytes();
    [kind, a, b, c, d]
}

fn records(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.chunks_exact(RECORD_BYTES)
}

fn is_over(bytes: &[u8]) -> bool {
    records(bytes).any(|record| record[0] == OVER)
}

fn groups(bytes: &[u8]) -> Vec<Pid> {
    numbers(bytes, GROUP).collect()
}

fn processes(bytes: &[u8]) -> impl Iterator<Item = Pid> + '_ {
    numbers(bytes, PROCESS)
}

fn numbers(bytes: &[u8], kind: u8) -> impl Iterator<Item = Pid> + '_ {
    records(bytes).filter(move |record| record[0] == kind).filter_map(|record| {
        let number = i32::from_le_bytes(*record.last_chunk::<4>()?);
        // Number 1 as a group would mean every process.
        Pid::from_raw(number).filter(|_| number > 1)
    })
}

fn ranks(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let ranks = records(bytes).filter(|record| record[0] == RANK);
    ranks.filter_map(|record| Some(u32::from_le_bytes(*record.last_chunk::<4>()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_who_is_stopped_and_who_is_dead() {
        let mut child = Command::new("sleep").arg("300").spawn().unwrap();
        let process = Pid::from_child(&child);
        assert!(!is_stopped(process));
        kill_process(process, Signal::STOP).unwrap();
        let begun = Instant::now();
        while !is_stopped(process) {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
        assert!(!is_dead(process));
        child.kill().unwrap();
        while !is_dead(process) {
            assert!(begun.elapsed() < Duration::from_secs(20), "it counts as dead before anybody reaps it");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_dead(process) && !is_stopped(process), "there is none");
    }

    #[test]
    fn knows_the_groups_the_ranks_and_whether_the_job_is_over() {
        let mut bytes = [70_000, 1, 0, 5].map(|group| record(GROUP, group)).concat();
        let told: Vec<i32> = groups(&bytes).iter().map(|group| group.as_raw_nonzero().get()).collect();
        assert_eq!((told.as_slice(), is_over(&bytes)), (&[70_000, 5][..], false));
        bytes.extend(record(RANK, 9));
        bytes.extend([record(PROCESS, 8), record(PROCESS, 1)].concat());
        assert_eq!(processes(&bytes).map(|process| process.as_raw_nonzero().get()).collect::<Vec<_>>(), [8]);
        assert_eq!((groups(&bytes).len(), ranks(&bytes).collect::<Vec<_>>()), (2, vec![9]));
        bytes.extend(record(OVER, 0));
        assert!(is_over(&bytes));
    }
}
