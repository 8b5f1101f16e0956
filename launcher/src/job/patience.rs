//! What a job waits for a while: ranks that do not join, and the end of one that has left or wants to.

use std::time::Duration;

use super::{ExitStatus, Job, Phase, Report, CODE_MISBEHAVED, SIGKILL, SIGTERM};
use crate::session::State;

/// How long the job waits, after a failure, for the end of a rank that had left before. The process of a rank that fails
/// by itself ends within a moment after its connection.
const MOMENT: Duration = Duration::from_millis(500);

/// How long a rank that aborts the job may take to end by itself. What it says last often comes after the abort: a
/// program that returns an error from `main` drops its job before the error is printed.
const FAREWELL: Duration = Duration::from_secs(15);

/// Why the job ends as soon as a rank that is about to leave has ended.
///
/// Either a rank failed while another one had left without finalizing: both may have failed by themselves, or the one
/// because it needed the other, whose process merely takes longer to end, and its status will tell. Or a rank aborted
/// the job: nobody is asked to end before it has said why.
#[derive(Clone, Debug)]
pub(super) struct Suspicion {
    code: u8,
    report: Report,
    /// The one that aborted the job; `None`: whoever has left is waited for.
    aborting: Option<u32>,
    /// When nobody is waited for any more.
    until: Duration,
}

impl Suspicion {
    /// The exit code of the job and what the user is told.
    pub(super) fn verdict(self) -> (u8, Report) {
        (self.code, self.report)
    }
}

impl Job {
    /// A rank wants the job to end with this code, and has a moment to end by itself.
    pub(super) fn abort(&mut self, rank: u32, code: i32, message: String, now: Duration) {
        if self.phase != Phase::Running {
            return;
        }
        // The exit code of a process has 8 bits, and a job that was aborted did not go well.
        let code = u8::try_from(code).ok().filter(|code| *code > 0).unwrap_or(CODE_MISBEHAVED);
        let (report, until) = (Report::Aborted(rank, message), now + FAREWELL);
        self.suspicion.get_or_insert(Suspicion { code, report, aborting: Some(rank), until });
    }

    /// Whether the job ends because of an abort: how other ranks end meanwhile is no reason of its own.
    pub(super) fn is_aborting(&self) -> bool {
        self.suspicion.as_ref().is_some_and(|suspicion| suspicion.aborting.is_some())
    }

    /// A rank's process failed. The job ends, after a moment where another one has left before it.
    pub(super) fn on_bad_exit(&mut self, rank: u32, status: ExitStatus, now: Duration) {
        let gone = self.gone_rank();
        match gone {
            // A rank has not caused that one, whoever has left.
            _ if status == ExitStatus::Signal(SIGKILL) => {}
            Some(gone) if self.phase == Phase::Running && !self.wishes.keep_going => {
                let (code, report) = (status.job_code(), Report::FailedAfter(rank, status, gone));
                let until = now + MOMENT;
                self.suspicion.get_or_insert(Suspicion { code, report, aborting: None, until });
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
        let Some(suspicion) = &self.suspicion else { return };
        let is_awaited = match suspicion.aborting {
            Some(rank) => self.state(rank) != State::Ended,
            None => self.gone_rank().is_some(),
        };
        if now >= suspicion.until || !is_awaited {
            let (code, report) = suspicion.clone().verdict();
            self.end(code, report, SIGTERM, now);
        }
    }

    /// When [`Job::settle_suspicion`] is to be called, if at all.
    pub(super) fn suspicion_until(&self) -> Option<Duration> {
        self.suspicion.as_ref().map(|suspicion| suspicion.until)
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
