//! Processes of a job that have left their rank's process group: `timeout(1)`, `setsid(1)` and shells with job control
//! make groups of their own, of which nobody tells.
//!
//! They are known by their environment, which names the job and the rank, and which they have from the rank that they
//! come from. A process that shall outlive the job is started without (`env -u RMA_JOB_ID`), and so is a keeper.

use std::collections::BTreeSet;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rma_bootstrap::environment::Place;
use rustix::process::{getpid, kill_process, pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};

use crate::leftovers;
use crate::proc_stat;

/// The variable that names the job.
pub(crate) const JOB_VARIABLE: &str = "RMA_JOB_ID";

/// What stands in front of the rank's number.
const RANK_PREFIX: &[u8] = b"RMA_RANK=";

/// How often processes are looked for that do not go at once.
const INTERVAL: Duration = Duration::from_millis(1);

/// By what the processes are known that the ranks of one host have started. Several hosts may be one machine in truth.
#[derive(Debug, Default)]
pub(crate) struct Escapees {
    /// The variable with its value.
    job: Vec<u8>,
    ranks: BTreeSet<u32>,
}

impl Escapees {
    /// Of these ranks of a job.
    pub(crate) fn new(job_id: &str, ranks: impl IntoIterator<Item = u32>) -> Self {
        Self { job: job_entry(job_id), ranks: ranks.into_iter().collect() }
    }

    /// Of this rank, too.
    pub(crate) fn add(&mut self, place: &Place) {
        self.job = job_entry(&place.job_id);
        self.ranks.insert(place.rank);
    }

    /// Kills them all, and those that they start meanwhile, until none is left or `patience` is over.
    pub(crate) fn kill(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut killed = BTreeSet::new();
        loop {
            let pass = self.kill_some();
            let is_settled = pass.killed.is_empty() && !pass.is_starting;
            killed.extend(pass.killed);
            if is_settled || Instant::now() >= deadline {
                break;
            }
            // Nothing tells of the end of processes that are nobody's children, nor of new ones.
            sleep(INTERVAL);
        }
        killed.into_iter().filter_map(Pid::from_raw).for_each(leftovers::remove_of);
    }

    /// Kills those that are there now.
    fn kill_some(&self) -> Pass {
        let mut pass = Pass::default();
        if self.ranks.is_empty() {
            return pass;
        }
        let Ok(entries) = fs::read_dir("/proc") else { return pass };
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let own = getpid().as_raw_nonzero().get();
        for number in numbers.filter(|number: &i32| *number > 1 && *number != own) {
            match self.look_at(number) {
                Seen::Marked => {
                    self.kill_one(number);
                    pass.killed.push(number);
                }
                Seen::Starting => pass.is_starting = true,
                Seen::Other => {}
            }
        }
        pass
    }

    fn kill_one(&self, number: i32) {
        let Some(process) = Pid::from_raw(number) else { return };
        // Old kernels have no such descriptors; then the number has to be somebody else's within microseconds to be
        // mistaken.
        let sent = match pidfd_open(process, PidfdFlags::empty()) {
            Ok(fd) if self.is_there(number) => pidfd_send_signal(fd, Signal::KILL),
            Ok(_) => return,
            Err(_) => kill_process(process, Signal::KILL),
        };
        // Already gone is as good as killed, and what has become another user's is not ours to kill.
        let _ = sent;
    }

    /// Whether this process is one of them.
    fn is_there(&self, number: i32) -> bool {
        matches!(self.look_at(number), Seen::Marked)
    }

    /// What this process is; of others' processes and of the dead nothing can be read.
    fn look_at(&self, number: i32) -> Seen {
        match fs::read(format!("/proc/{number}/environ")) {
            Ok(environment) if self.is_marked(&environment) => Seen::Marked,
            Ok(environment) if environment.is_empty() && is_starting(number) => Seen::Starting,
            _ => Seen::Other,
        }
    }

    fn is_marked(&self, environment: &[u8]) -> bool {
        let (mut is_of_job, mut is_of_ranks) = (false, false);
        for variable in environment.split(|byte| *byte == 0) {
            is_of_job |= variable == self.job;
            let rank = variable.strip_prefix(RANK_PREFIX).and_then(|rank| std::str::from_utf8(rank).ok());
            is_of_ranks |=
                rank.and_then(|rank| rank.parse().ok()).is_some_and(|rank| self.ranks.contains(&rank));
        }
        is_of_job && is_of_ranks
    }
}

/// What one look at all processes has found.
#[derive(Debug, Default)]
struct Pass {
    killed: Vec<i32>,
    /// Whether a process was about to become another program, which may be one of the job's.
    is_starting: bool,
}

/// What a process is found to be.
enum Seen {
    /// One of the job's.
    Marked,
    /// It is about to become another program (exec), whose environment it shows a moment later.
    Starting,
    /// None of the job's, or not to be looked into.
    Other,
}

/// Whether a process that shows no environment has a program whose environment is not in place yet. That of a program
/// without variables is in place, and empty; the kernel's own processes and the dead have no program.
fn is_starting(number: i32) -> bool {
    let has_program = fs::read_link(format!("/proc/{number}/exe")).is_ok();
    has_program && proc_stat::field(number, proc_stat::ENVIRONMENT_START).as_deref() == Some("0")
}

fn job_entry(job_id: &str) -> Vec<u8> {
    format!("{JOB_VARIABLE}={job_id}").into_bytes()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::*;

    #[test]
    fn only_ranks_of_this_host_and_job_are_marked() {
        let escapees = Escapees::new("a-1", [0, 7]);
        for (environment, is_marked) in [
            (&b"PATH=/bin\0RMA_RANK=7\0RMA_JOB_ID=a-1\0"[..], true),
            (b"RMA_JOB_ID=a-1\0RMA_RANK=0", true),
            (b"RMA_JOB_ID=a-1\0RMA_RANK=1\0", false),
            (b"RMA_JOB_ID=a-12\0RMA_RANK=7\0", false),
            (b"RMA_JOB_ID=a-1\0", false),
            (b"XRMA_JOB_ID=a-1\0RMA_RANK=7\0", false),
            (b"RMA_JOB_ID=a-1\0RMA_RANK=\xff\0", false),
            (b"", false),
        ] {
            assert_eq!(escapees.is_marked(environment), is_marked, "{environment:?}");
        }
        assert!(!Escapees::default().is_marked(b"RMA_JOB_ID=\0RMA_RANK=0\0"));
    }

    #[test]
    fn what_has_no_environment_at_all_is_not_waited_for() {
        let mut other = Command::new("sleep").arg("300").env_clear().spawn().unwrap();
        let number = i32::try_from(other.id()).unwrap();
        // Until exec has put it in place.
        let deadline = Instant::now() + Duration::from_secs(20);
        while is_starting(number) && Instant::now() < deadline {
            sleep(INTERVAL);
        }
        let start = proc_stat::field(number, proc_stat::ENVIRONMENT_START).unwrap();
        assert!(start.parse::<u64>().unwrap() > 0, "{start}");
        assert!(!is_starting(number));
        assert!(matches!(Escapees::new("nobody's", [0]).look_at(number), Seen::Other));
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!is_starting(number), "the dead have no program");
    }

    #[test]
    fn kills_its_own_and_nobody_else() {
        let job_id = format!("escapees-{}", std::process::id());
        let start = |rank: &str| -> Child {
            let mut command = Command::new("sleep");
            command.arg("300").env(JOB_VARIABLE, &job_id).env("RMA_RANK", rank).process_group(0);
            command.spawn().unwrap()
        };
        let (mut own, mut other) = (start("3"), start("4"));
        Escapees::new(&job_id, [3]).kill(Duration::from_secs(20));
        assert!(!own.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none(), "a rank of another host was killed");
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
