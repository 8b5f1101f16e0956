//! What the launcher tells the user, as text.

use std::fmt::Write;
use std::time::Duration;

use crate::job::{ExitStatus, Job, Report, SIGKILL};
use crate::session::State;

/// Most ranks that a report about all ranks lists.
const RANKS_LISTED_MAX: u32 = 64;

/// What a report needs to know about a rank besides the job.
pub(crate) trait Ranks {
    /// The process of a rank.
    fn process_id(&self, rank: u32) -> u32;
    /// The host of a rank.
    fn host(&self, rank: u32) -> &str;
    /// A host, by its number.
    fn host_name(&self, host: u32) -> &str;
    /// The last lines a rank wrote to standard error, or else to standard output.
    fn last_lines(&self, rank: u32) -> Vec<String>;
}

/// The text of a report, lines with their ends.
pub(crate) fn text(report: &Report, job: &Job, ranks: &dyn Ranks) -> String {
    let name =
        |rank: &u32| format!("rank {rank} (pid {}, host {})", ranks.process_id(*rank), ranks.host(*rank));
    let with_lines = |rank: &u32, mut text: String| {
        let lines = ranks.last_lines(*rank);
        if !lines.is_empty() {
            let _ = write!(text, "; its last lines:");
            lines.iter().for_each(|line| text += &format!("\nrmarun:   | {line}"));
        }
        text
    };
    let then = if job.keeps_going() { "the job goes on" } else { "the job ends" };
    let text = match report {
        // The one signal that a rank cannot have caused by a mistake of its own.
        Report::Failed(rank, ExitStatus::Signal(SIGKILL)) => with_lines(
            rank,
            format!("{} was killed by SIGKILL (out of memory? see dmesg); {then}", name(rank)),
        ),
        Report::Failed(rank, status) => {
            with_lines(rank, format!("{} {}; {then}", name(rank), status_text(*status)))
        }
        Report::FailedAfter(rank, status, gone) => with_lines(
            rank,
            format!("{} {}{}; {then}", name(rank), status_text(*status), others(*rank, *gone, job, &name)),
        ),
        Report::Vanished(rank) => with_lines(
            rank,
            format!(
                "{} exited with status 0 without finalizing while others may wait for it; {then}",
                name(rank)
            ),
        ),
        Report::Aborted(rank, message) => {
            with_lines(rank, format!("{} aborted the job: {message}", name(rank)))
        }
        Report::TimedOut(limit) => {
            let places = places(job, ranks);
            format!(
                "the job ran into its time limit of {} s and ends; where its ranks were:{places}",
                limit.as_secs_f64()
            )
        }
        Report::Interrupted(number) => {
            let (signal, count) = (signal_name(*number), ranks_text(job.running_count()));
            format!("{signal}: asking {count} to end (a second signal kills)")
        }
        Report::Killing => {
            let count = ranks_text(job.running_count());
            format!("{count} not ended after being asked to; killing now")
        }
        Report::GaveUp => {
            let stuck = (0..job.size()).filter(|rank| job.state(*rank) != State::Ended);
            let stuck: Vec<String> = stuck.map(|rank| name(&rank)).collect();
            format!("killed and still there, probably stuck in the kernel: {}", stuck.join(", "))
        }
        Report::NeverJoined(rank, asker, limit) => {
            with_lines(rank, never_joined(&name(rank), *asker, *limit, then))
        }
        Report::NotStarted(rank, why) => {
            format!("rank {rank} cannot be started on host {}: {why}; the job ends", ranks.host(*rank))
        }
        Report::HostLost(host, count, why) => host_lost(ranks.host_name(*host), *count, why, then),
        Report::ControlClosed(rank, why) => format!("closed the control connection of {}: {why}", name(rank)),
    };
    format!("rmarun: {text}\n")
}

/// What became of `gone`, who had left without finalizing when `failed` failed: who needs a rank that has gone may fail
/// sooner than the gone one's process ends.
fn others(failed: u32, gone: u32, job: &Job, name: &dyn Fn(&u32) -> String) -> String {
    let is_bad = |rank: &u32| job.status(*rank).is_some_and(|status| status != ExitStatus::Code(0));
    let more = (0..job.size()).filter(|rank| ![failed, gone].contains(rank) && is_bad(rank)).count() as u32;
    let mut text = match job.status(gone).filter(|_| is_bad(&gone)) {
        Some(status) => format!(", and {} {}", name(&gone), status_text(status)),
        None => format!(" after {} had left without finalizing", name(&gone)),
    };
    if more > 0 {
        let _ = write!(text, ", and {} more failed", ranks_text(more));
    }
    text
}

fn never_joined(name: &str, asker: u32, limit: Duration, then: &str) -> String {
    let limit = limit.as_secs_f64();
    format!(
        "{name} has not joined the job for {limit} s (RMA_BOOTSTRAP_TIMEOUT), and rank {asker} waits for it; {then}"
    )
}

fn host_lost(host: &str, count: u32, why: &str, then: &str) -> String {
    let (mut lines, count) = (why.lines(), ranks_text(count));
    let why = lines.next().unwrap_or_default();
    let mut text = format!("host {host} is lost with {count}: {why}; {then}");
    lines.for_each(|line| text += &format!("\nrmarun:   | {line}"));
    text
}

/// The end of a process in words.
pub(crate) fn status_text(status: ExitStatus) -> String {
    match status {
        ExitStatus::Code(code) => format!("exited with status {code}"),
        ExitStatus::Signal(number) => format!("was killed by {}", signal_name(number)),
        ExitStatus::Lost => "is lost".to_owned(),
    }
}

/// The name of a signal.
pub(crate) fn signal_name(number: i32) -> String {
    const NAMES: [(i32, &str); 18] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (10, "SIGUSR1"),
        (11, "SIGSEGV"),
        (12, "SIGUSR2"),
        (13, "SIGPIPE"),
        (14, "SIGALRM"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (25, "SIGXFSZ"),
        (31, "SIGSYS"),
    ];
    let name = NAMES.iter().find(|(known, _)| *known == number);
    name.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}

fn ranks_text(count: u32) -> String {
    match count {
        1 => "1 rank".into(),
        count => format!("{count} ranks"),
    }
}

fn places(job: &Job, ranks: &dyn Ranks) -> String {
    let mut text = String::new();
    for rank in 0..job.size().min(RANKS_LISTED_MAX) {
        let place = job.status(rank).map_or_else(|| job.state(rank).describe().to_owned(), status_text);
        let (process, host) = (ranks.process_id(rank), ranks.host(rank));
        let _ = write!(text, "\nrmarun:   rank {rank} (pid {process}, host {host}): {place}");
        if let Some(line) = ranks.last_lines(rank).last() {
            let _ = write!(text, "; last line: {line}");
        }
    }
    if job.size() > RANKS_LISTED_MAX {
        let _ = write!(text, "\nrmarun:   and {} ranks more", job.size() - RANKS_LISTED_MAX);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Wishes;
    use rma_bootstrap::wire::{Request, VERSION};

    struct Plain;

    impl Ranks for Plain {
        fn process_id(&self, rank: u32) -> u32 {
            100 + rank
        }

        fn host(&self, _rank: u32) -> &str {
            "a"
        }

        fn host_name(&self, _host: u32) -> &str {
            "a"
        }

        fn last_lines(&self, _rank: u32) -> Vec<String> {
            Vec::new()
        }
    }

    /// A job whose ranks have joined, and of which rank 0 has left.
    fn job_without_rank_0() -> Job {
        let (job_id, second) = ("j".to_owned(), Duration::from_secs(1));
        let (timeout, hosts, keep_going) = (None, Vec::new(), false);
        let mut job =
            Job::new(Wishes { size: 3, job_id, timeout, grace: second, keep_going, patience: second, hosts });
        for rank in 0..3 {
            let hello = Request::Hello { version: VERSION, rank, process: 1, job: "j".to_owned() };
            job.on_request(rank, hello, Duration::ZERO);
        }
        job.on_control_ended(0, None);
        job
    }

    #[test]
    fn who_fails_with_others_is_not_said_to_have_failed_because_of_them() {
        let failed = ExitStatus::Code(1);
        let report = Report::FailedAfter(1, failed, 0);
        let mut job = job_without_rank_0();
        job.on_exit(1, failed, Duration::ZERO);
        let before = text(&report, &job, &Plain);
        let left =
            "rank 1 (pid 101, host a) exited with status 1 after rank 0 (pid 100, host a) had left without";
        assert!(before.contains(left), "{before}");
        job.on_exit(0, ExitStatus::Signal(11), Duration::ZERO);
        let after = text(&report, &job, &Plain);
        let both = "exited with status 1, and rank 0 (pid 100, host a) was killed by SIGSEGV; the job ends";
        assert!(after.contains(both), "{after}");
        job.on_exit(2, failed, Duration::ZERO);
        assert!(text(&report, &job, &Plain).contains("SIGSEGV, and 1 rank more failed; the job ends"));
    }
}
