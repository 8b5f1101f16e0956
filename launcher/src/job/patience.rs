//! What a job waits for a while: ranks that do not join, and the end of one that has left.

use std::time::Duration;

use super::{ExitStatus, Job, Phase, Report, CODE_MISBEHAVED, SIGKILL, SIGTERM};
use crate::session::State;

/// How long the job waits, after a failure, for the end of a rank that had left before. The process of a rank that fails
/// by itself ends within a moment after its connection.
const MOMENT: Duration = Duration::from_millis(500);

/// A rank failed while another one had left without finalizing. Both may have failed by themselves, or the one because
/// it needed the other, whose process merely takes longer to end: its status will tell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspicion {
    failed: u32,
    status: ExitStatus,
    /// The one that had left.
    gone: u32,
    /// When its end is not waited for any more.
    until: Duration,
}

impl Suspicion {
    /// The exit code of the job and what the user is told.
    pub(super) fn verdict(self) -> (u8, Report) {
        (self.status.job_code(), Report::FailedAfter(self.failed, self.status, self.gone))
    }
}

impl Job {
    /// A rank's process failed. The job ends, after a moment where another one has left before it.
    pub(super) fn on_bad_exit(&mut self, rank: u32, status: ExitStatus, now: Duration) {
        let gone = self.gone_rank();
        match gone {
            // A rank has not caused that one, whoever has left.
            _ if status == ExitStatus::Signal(SIGKILL) => {}
            Some(gone) if self.phase == Phase::Running && !self.wishes.keep_going => {
                let until = now + MOMENT;
                self.suspicion.get_or_insert(Suspicion { failed: rank, status, gone, until });
                return;
            }
            _ => {}
        }
        self.on_failure(&[rank], status.job_code(), Report::Failed(rank, status), now);
    }

    /// The first rank that has left without finalizing and whose process has not ended.
    fn gone_rank(&self) -> Option<u32> {
        (0..self.size()).find(|rank| self.state(*rank) == State::Severed)
    }

    /// Ends the job for a failure whose cause need not be waited for any longer.
    pub(super) fn settle_suspicion(&mut self, now: Duration) {
        let Some(suspicion) = self.suspicion else { return };
        if now >= suspicion.until || self.gone_rank().is_none() {
            let (code, report) = suspicion.verdict();
            self.end(code, report, SIGTERM, now);
        }
    }

    /// When [`Job::settle_suspicion`] is to be called, if at all.
    pub(super) fn suspicion_until(&self) -> Option<Duration> {
        self.suspicion.map(|suspicion| suspicion.until)
    }

    /// When the first of the ranks that are waited for will have been so for too long.
    pub(super) fn awaited_until(&self) -> Option<Duration> {
        let since = self.awaited.values().map(|(since, _)| *since).min();
        since.map(|since| since + self.wishes.patience)
    }

    /// Ranks that have not joined for too long are not waited for any more.
    pub(super) fn give_up_awaited(&mut self, now: Duration) {
        let patience = self.wishes.patience;
        let is_late = |(since, _): &(Duration, u32)| now >= *since + patience;
        let late: Vec<_> = self
            .awaited
            .iter()
            .filter(|(_, wait)| is_late(wait))
            .map(|(rank, wait)| (*rank, wait.1))
            .collect();
        for (rank, asker) in late {
            self.awaited.remove(&rank);
            self.on_failure(&[], CODE_MISBEHAVED, Report::NeverJoined(rank, asker, patience), now);
            self.withdraw(rank);
        }
    }
}
