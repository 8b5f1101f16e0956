//! A job: its ranks, its key-value space, and how it ends. Pure: what happens goes in by `on_*`, what
//! is to be done comes out of [`Job::poll_action`], and time is an argument (since the job's start).

// Said so that the fuzz target, which has this file as a module of its own, finds it, too.
#[path = "job/patience.rs"]
mod patience;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use rma_bootstrap::pmi::wire::{Message, Syntax};
use rma_bootstrap::wire::{fit_text, Reply, Request, VERSION};

use self::patience::Suspicion;
use crate::kvs::{Get, Kvs, Waiter};
use crate::pmi::{Outcome, PmiServer};
use crate::session::{Effect, Event, State};

/// The exit code of a job that ran into its time limit, as `timeout(1)` has it.
pub(crate) const CODE_TIMED_OUT: u8 = 124;

/// The exit code of a job that a rank's misbehaviour ended although no rank reported a failure.
const CODE_MISBEHAVED: u8 = 1;

/// The number of SIGKILL.
pub(crate) const SIGKILL: i32 = 9;

/// The number of SIGTERM.
const SIGTERM: i32 = 15;

/// What a program is told that joins as a rank which has joined before.
const PLACE_TAKEN: &str =
    "this rank's place is taken or used up: a program that a rank starts is no rank, so start it \
    without the variables RMA_* (or with RMA_BOOTSTRAP=pmi2 or single)";

/// How long killed processes may take to disappear before the launcher gives up on them.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExitStatus {
    /// By itself, with this status.
    Code(u8),
    /// Killed by the signal with this number.
    Signal(i32),
    /// Not known: its host is lost, or it never ran.
    Lost,
}

impl ExitStatus {
    /// The exit code of a job that this ends, as shells have it.
    fn job_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => 128 | (number & 0x7f) as u8, // they are at most 64
            Self::Lost => CODE_MISBEHAVED,
        }
    }
}

/// What the launcher has to do.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Send this to that rank.
    Send(u32, Reply),
    /// Send this to that rank over its PMI connection.
    SendPmi(u32, Message),
    /// What follows on that rank's PMI connection is in this syntax.
    SpeakPmi(u32, Syntax),
    /// Close that rank's PMI connection.
    ClosePmi(u32),
    /// Close that rank's control connection. What its socket has not taken by then is lost.
    Close(u32),
    /// Send the signal with this number to every rank that has not ended.
    Signal(i32),
    /// Tell the user.
    Say(Report),
}

/// What the user is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    /// A rank failed, which ends the job.
    Failed(u32, ExitStatus),
    /// A rank failed after another one, the second here, had left without finalizing, which ends the job.
    FailedAfter(u32, ExitStatus, u32),
    /// A rank left without finalizing while others may wait for it, which ends the job.
    Vanished(u32),
    /// A rank asked for the job to be ended.
    Aborted(u32, String),
    /// The job ran into its time limit.
    TimedOut(Duration),
    /// A signal came, which ends the job.
    Interrupted(i32),
    /// The ranks did not end in time and are killed now.
    Killing,
    /// Killed processes do not disappear.
    GaveUp,
    /// A rank has not joined the job for so long, while this one waits for it.
    NeverJoined(u32, u32, Duration),
    /// A rank cannot be started, which ends the job.
    NotStarted(u32, String),
    /// A host with these many ranks that had not ended cannot be reached, or not any more.
    HostLost(u32, u32, String),
    /// A rank's control connection was closed because of what it sent.
    ControlClosed(u32, String),
}

/// How far the end of the job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// The ranks have been asked to end.
    Ending {
        kill_at: Duration,
    },
    /// The ranks have been killed.
    Killed {
        give_up_at: Duration,
    },
    GaveUp,
}

/// What the user wants of the job.
#[derive(Clone, Debug)]
pub(crate) struct Wishes {
    /// Number of ranks, at least 1.
    pub(crate) size: u32,
    /// The job's name.
    pub(crate) job_id: String,
    /// The longest time the job may take.
    pub(crate) timeout: Option<Duration>,
    /// How long ranks that are asked to end may take.
    pub(crate) grace: Duration,
    /// Whether the job goes on when a rank fails.
    pub(crate) keep_going: bool,
    /// How long a rank may wait for another that has not joined.
    pub(crate) patience: Duration,
    /// The host of each rank, by its number; empty when all are on one.
    pub(crate) hosts: Vec<u32>,
}

/// The job.
#[derive(Debug)]
pub(crate) struct Job {
    wishes: Wishes,
    states: Vec<State>,
    statuses: Vec<Option<ExitStatus>>,
    kvs: Kvs,
    pmi: PmiServer,
    /// Whether each rank has joined over its control connection and not finalized there.
    has_own_link: Vec<bool>,
    /// Whether each rank listens on the control connection that it has joined over; who has finalized serves others, too.
    listens: Vec<bool>,
    /// Ranks that have not joined and are waited for: since when, and by whom.
    awaited: BTreeMap<u32, (Duration, u32)>,
    /// Ranks that failed, and without which the job goes on.
    lost: Vec<u32>,
    /// The job is to end, and the end of a rank that leaves is waited for, which may say why.
    suspicion: Option<Suspicion>,
    running_count: u32,
    /// Ranks that may still wait for others: not finalized and not ended.
    unfinished_count: u32,
    phase: Phase,
    code: u8,
    actions: VecDeque<Action>,
}

impl Job {
    /// The job whose ranks have all just been started.
    pub(crate) fn new(wishes: Wishes) -> Self {
        let size = wishes.size as usize;
        Self {
            states: vec![State::Started; size],
            statuses: vec![None; size],
            kvs: Kvs::new(wishes.size),
            pmi: PmiServer::new(&wishes.job_id, wishes.size, &wishes.hosts),
            has_own_link: vec![false; size],
            listens: vec![false; size],
            awaited: BTreeMap::new(),
            lost: Vec::new(),
            suspicion: None,
            running_count: wishes.size,
            unfinished_count: wishes.size,
            phase: Phase::Running,
            code: 0,
            actions: VecDeque::new(),
            wishes,
        }
    }

    /// The job, whose ranks run these programs, by their numbers; without it, all run one.
    pub(crate) fn with_programs(mut self, programs: Vec<u32>) -> Self {
        self.pmi.set_programs(programs);
        self
    }

    /// The next thing to do, in order.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The job's exit code, once every rank has ended (or cannot be ended) and nothing is to be done.
    pub(crate) fn verdict(&self) -> Option<u8> {
        let is_over = self.running_count == 0 || self.phase == Phase::GaveUp;
        (is_over && self.actions.is_empty()).then_some(self.code)
    }

    /// When [`Job::on_time`] is to be called next, if at all.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Running => {
                let until = self.awaited_until().into_iter().chain(self.suspicion_until());
                self.wishes.timeout.into_iter().chain(until).min()
            }
            Phase::Ending { kill_at } => Some(kill_at),
            Phase::Killed { give_up_at } => Some(give_up_at),
            Phase::GaveUp => None,
        }
    }

    /// Where a rank stands.
    pub(crate) fn state(&self, rank: u32) -> State {
        self.states[rank as usize]
    }

    /// How a rank ended, if it has.
    pub(crate) fn status(&self, rank: u32) -> Option<ExitStatus> {
        self.statuses[rank as usize]
    }

    /// Number of ranks.
    pub(crate) fn size(&self) -> u32 {
        self.wishes.size
    }

    /// Whether the job goes on when a rank fails.
    pub(crate) fn keeps_going(&self) -> bool {
        self.wishes.keep_going
    }

    /// Number of ranks whose processes run.
    pub(crate) fn running_count(&self) -> u32 {
        self.running_count
    }

    /// A rank said something.
    pub(crate) fn on_request(&mut self, rank: u32, request: Request, now: Duration) {
        match request {
            Request::Hello { version, rank: claimed, job, .. } => self.on_hello(rank, version, claimed, &job),
            Request::Put { request, key, value } => match self.step(rank, Event::Put) {
                Effect::Serve => self.on_put(rank, request, &key, value),
                effect => self.refuse(rank, effect, "a put"),
            },
            Request::Get { request, rank: of, key } => match self.step(rank, Event::Get) {
                Effect::Serve => self.on_get(Waiter { rank, request }, of, key, now),
                effect => self.refuse(rank, effect, "a get"),
            },
            Request::Finalize => self.on_finalize(rank, now),
            Request::Abort { code, message } => match self.step(rank, Event::Abort) {
                Effect::Abort => self.abort(rank, code, message, now),
                effect => self.refuse(rank, effect, "an abort"),
            },
        }
    }

    /// A rank's control connection ended; `why` is given when the rank is to blame.
    pub(crate) fn on_control_ended(&mut self, rank: u32, why: Option<String>) {
        if let Some(why) = why {
            self.actions.push_back(Action::Say(Report::ControlClosed(rank, why)));
        }
        (self.has_own_link[rank as usize], self.listens[rank as usize]) = (false, false);
        // A rank that has joined by PMI may never use this connection.
        if !self.pmi.is_joined(rank) && self.step(rank, Event::ControlEnded) == Effect::Withdraw {
            self.withdraw(rank);
        }
    }

    /// A rank said something over its PMI connection.
    pub(crate) fn on_pmi(&mut self, rank: u32, message: &Message, now: Duration) {
        if self.state(rank) == State::Ended {
            return;
        }
        if let Err(reason) = self.pmi.on_message(rank, message, &mut self.kvs) {
            self.actions.push_back(Action::ClosePmi(rank));
            return self.on_pmi_ended(rank, Some(reason));
        }
        self.take_pmi_outcomes(rank, now);
    }

    /// A rank's PMI connection ended; `why` is given when the rank is to blame.
    pub(crate) fn on_pmi_ended(&mut self, rank: u32, why: Option<String>) {
        if let Some(why) = why {
            self.actions.push_back(Action::Say(Report::ControlClosed(rank, why)));
        }
        let was_joined = self.pmi.is_joined(rank);
        self.pmi.on_gone(rank);
        self.take_pmi_outcomes(rank, Duration::ZERO);
        // A rank that never spoke PMI has lost nothing.
        if was_joined && self.step(rank, Event::ControlEnded) == Effect::Withdraw {
            self.withdraw(rank);
        }
    }

    /// Does what the PMI server says about `rank`.
    fn take_pmi_outcomes(&mut self, rank: u32, now: Duration) {
        while let Some(outcome) = self.pmi.poll_outcome() {
            match outcome {
                Outcome::Reply(rank, message) => self.actions.push_back(Action::SendPmi(rank, message)),
                Outcome::Speak(rank, syntax) => self.actions.push_back(Action::SpeakPmi(rank, syntax)),
                // A program may be part of the job in both ways: the first one joins, the last one finalizes.
                Outcome::Joined if self.has_own_link[rank as usize] => {}
                Outcome::Joined => drop(self.step(rank, Event::Hello)),
                Outcome::Finalized if self.has_own_link[rank as usize] => {}
                Outcome::Finalized => {
                    if self.step(rank, Event::Finalize) == Effect::Withdraw {
                        self.withdraw(rank);
                    }
                }
                Outcome::Abort(code, why) => self.abort(rank, code, why, now),
            }
        }
    }

    fn on_finalize(&mut self, rank: u32, now: Duration) {
        if self.pmi.is_joined(rank) && std::mem::take(&mut self.has_own_link[rank as usize]) {
            return self.withdraw(rank);
        }
        self.has_own_link[rank as usize] = false;
        // Those that wait for it in a barrier of theirs would do so for ever.
        self.pmi.on_gone(rank);
        self.take_pmi_outcomes(rank, now);
        match self.step(rank, Event::Finalize) {
            Effect::Withdraw => self.withdraw(rank),
            effect => self.refuse(rank, effect, "a finalize"),
        }
    }

    /// A rank's process exited. Everything that it said before must have come in by now.
    pub(crate) fn on_exit(&mut self, rank: u32, status: ExitStatus, now: Duration) {
        if self.state(rank) == State::Ended {
            return;
        }
        self.statuses[rank as usize] = Some(status);
        self.running_count -= 1;
        let went_well = status == ExitStatus::Code(0);
        let effect = self.step(rank, if went_well { Event::ExitedWell } else { Event::ExitedBadly });
        self.withdraw(rank);
        self.pmi.on_gone(rank);
        self.take_pmi_outcomes(rank, now);
        match effect {
            _ if self.is_aborting() => self.settle_suspicion(now),
            Effect::Fail => self.on_bad_exit(rank, status, now),
            Effect::Vanish if self.unfinished_count > 0 => {
                self.on_failure(&[rank], CODE_MISBEHAVED, Report::Vanished(rank), now);
            }
            _ => self.settle_suspicion(now),
        }
    }

    /// A rank cannot be started: it exists no more than one that has ended, and a job without it makes no sense.
    pub(crate) fn on_not_started(&mut self, rank: u32, code: u8, why: String, now: Duration) {
        if self.lose(rank, now) {
            self.end(code, Report::NotStarted(rank, why), SIGTERM, now);
        }
    }

    /// A rank has not been started and will not be, since the job ends.
    pub(crate) fn on_never_run(&mut self, rank: u32, now: Duration) {
        self.lose(rank, now);
    }

    /// Whether the job is being ended before its ranks have.
    pub(crate) fn is_ending(&self) -> bool {
        self.phase != Phase::Running
    }

    /// A host is lost, and all its ranks with it.
    pub(crate) fn on_host_lost(&mut self, host: u32, why: String, now: Duration) {
        let of_host = |rank: &u32| self.wishes.hosts.get(*rank as usize) == Some(&host);
        let ranks: Vec<u32> = (0..self.size()).filter(of_host).collect();
        let lost: Vec<u32> = ranks.into_iter().filter(|rank| self.lose(*rank, now)).collect();
        // A host whose ranks have all ended has nothing to lose.
        if !lost.is_empty() {
            let report = Report::HostLost(host, lost.len() as u32, why);
            self.on_failure(&lost, ExitStatus::Lost.job_code(), report, now);
        }
    }

    /// A rank's process is lost; whether there was one.
    fn lose(&mut self, rank: u32, now: Duration) -> bool {
        if self.state(rank) == State::Ended {
            return false;
        }
        self.statuses[rank as usize] = Some(ExitStatus::Lost);
        self.running_count -= 1;
        self.step(rank, Event::ExitedBadly);
        self.withdraw(rank);
        self.pmi.on_gone(rank);
        self.take_pmi_outcomes(rank, now);
        true
    }

    /// Ranks failed: the job ends, or goes on, and then the others are told, because not every fabric does.
    fn on_failure(&mut self, ranks: &[u32], code: u8, report: Report, now: Duration) {
        if !self.wishes.keep_going || self.phase != Phase::Running {
            return self.end(code, report, SIGTERM, now);
        }
        self.set_code(code);
        self.actions.push_back(Action::Say(report));
        self.lost.extend(ranks);
        for (other, _) in (0..).zip(&self.listens).filter(|(_, listens)| **listens) {
            self.actions.extend(ranks.iter().map(|&rank| Action::Send(other, Reply::Lost { rank })));
        }
    }

    /// The first reason decides the exit code.
    fn set_code(&mut self, code: u8) {
        if self.code == 0 {
            self.code = code;
        }
    }

    /// A signal that asks for the end of the job came to the launcher.
    pub(crate) fn on_signal(&mut self, number: i32, now: Duration) {
        let code = ExitStatus::Signal(number).job_code();
        match self.phase {
            // The ranks get the same signal, so that they can tell Ctrl-C from an end by other means.
            Phase::Running => self.end(code, Report::Interrupted(number), number, now),
            Phase::Ending { .. } => self.kill(now),
            Phase::Killed { .. } | Phase::GaveUp => {}
        }
    }

    /// The time of [`Job::deadline`] may have come.
    pub(crate) fn on_time(&mut self, now: Duration) {
        if self.running_count == 0 || self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.phase {
            Phase::Running => match self.wishes.timeout.filter(|limit| now >= *limit) {
                Some(limit) => self.end(CODE_TIMED_OUT, Report::TimedOut(limit), SIGTERM, now),
                None => {
                    self.settle_suspicion(now);
                    self.give_up_awaited(now);
                }
            },
            Phase::Ending { .. } => self.kill(now),
            Phase::Killed { .. } | Phase::GaveUp => {
                self.phase = Phase::GaveUp;
                self.actions.push_back(Action::Say(Report::GaveUp));
            }
        }
    }

    fn step(&mut self, rank: u32, event: Event) -> Effect {
        let state = &mut self.states[rank as usize];
        let (next, effect) = state.on(event);
        let finishes = state.may_wait() && !next.may_wait();
        *state = next;
        self.has_own_link[rank as usize] &= next != State::Ended;
        self.listens[rank as usize] &= next != State::Ended;
        if next != State::Started {
            self.awaited.remove(&rank);
        }
        if finishes {
            self.unfinished_count -= 1;
            self.tell_all_finalized();
        }
        effect
    }

    /// Lets the finalized ranks go once nobody can need them.
    fn tell_all_finalized(&mut self) {
        if self.unfinished_count > 0 {
            return;
        }
        for (rank, state) in (0..).zip(&self.states) {
            if *state == State::Finalized {
                self.actions.push_back(Action::Send(rank, Reply::AllFinalized));
            }
        }
    }

    fn on_hello(&mut self, rank: u32, version: u16, claimed: u32, job: &str) {
        let wrong = if version != VERSION {
            Some(format!(
                "the rank speaks version {version} of the control protocol, rmarun {VERSION}; use the rmarun that \
                 belongs to the program"
            ))
        } else if claimed != rank || job != self.wishes.job_id {
            let ours = &self.wishes.job_id;
            Some(format!(
                "said to be rank {claimed} of job {} and is rank {rank} of job {ours}",
                fit_text(job)
            ))
        } else {
            None
        };
        if let Some(reason) = wrong {
            return self.close_with(rank, reason);
        }
        let is_joined_otherwise = self.pmi.is_joined(rank) && !self.has_own_link[rank as usize];
        let effect = if is_joined_otherwise { Effect::Welcome } else { self.step(rank, Event::Hello) };
        match effect {
            Effect::Welcome => {
                (self.has_own_link[rank as usize], self.listens[rank as usize]) = (true, true);
                let welcome = Reply::Welcome { version: VERSION, size: self.wishes.size };
                self.actions.push_back(Action::Send(rank, welcome));
                self.actions
                    .extend(self.lost.iter().map(|&lost| Action::Send(rank, Reply::Lost { rank: lost })));
            }
            Effect::Refuse => self.close_with(rank, PLACE_TAKEN.into()),
            _ => {}
        }
    }

    fn on_put(&mut self, rank: u32, request: u32, key: &str, value: Vec<u8>) {
        match self.kvs.put(rank, key, value.clone()) {
            Ok(waiters) => {
                for waiter in waiters {
                    let reply = Reply::Value { request: waiter.request, value: value.clone() };
                    self.actions.push_back(Action::Send(waiter.rank, reply));
                }
            }
            Err(reason) => self.actions.push_back(Action::Send(rank, Reply::Refused { request, reason })),
        }
    }

    fn on_get(&mut self, asker: Waiter, of: u32, key: String, now: Duration) {
        let Waiter { rank, request } = asker;
        let size = self.wishes.size;
        let reply = if of >= size {
            Reply::Refused { request, reason: format!("rank {of} is not in this job of {size} ranks") }
        } else {
            match self.kvs.get(asker, of, key) {
                Get::Found(value) => Reply::Value { request, value },
                Get::Refused(reason) => Reply::Refused { request, reason },
                Get::Waiting if self.state(of) == State::Started => {
                    self.awaited.entry(of).or_insert((now, rank));
                    return;
                }
                Get::Waiting if self.state(of).may_put() => return,
                Get::Waiting => return self.withdraw(of),
            }
        };
        self.actions.push_back(Action::Send(rank, reply));
    }

    /// Answers everybody who waits for values of `rank`: they will not come.
    fn withdraw(&mut self, rank: u32) {
        for waiter in self.kvs.abandon(rank) {
            let reason =
                format!("rank {rank} will not publish it: it {}", self.state(rank).describe_absence());
            let reply = Reply::Missing { request: waiter.request, reason };
            self.actions.push_back(Action::Send(waiter.rank, reply));
        }
    }

    fn refuse(&mut self, rank: u32, effect: Effect, what: &str) {
        if effect == Effect::Refuse {
            let reason = format!(
                "{what} is out of order: say hello first and once, and after finalize only get and abort"
            );
            self.close_with(rank, reason);
        }
    }

    fn close_with(&mut self, rank: u32, reason: String) {
        self.actions.push_back(Action::Send(rank, Reply::Refused { request: 0, reason: reason.clone() }));
        self.actions.push_back(Action::Close(rank));
        self.on_control_ended(rank, Some(reason));
        self.withdraw(rank);
    }

    /// Begins the end of the job unless it has begun. Where a rank has failed already, that is the reason.
    fn end(&mut self, code: u8, report: Report, signal: i32, now: Duration) {
        if self.phase != Phase::Running {
            return;
        }
        let (code, report) = self.suspicion.take().map_or((code, report), Suspicion::verdict);
        self.set_code(code);
        self.phase = Phase::Ending { kill_at: now + self.wishes.grace };
        self.actions.push_back(Action::Say(report));
        if self.running_count > 0 {
            self.actions.push_back(Action::Signal(signal));
        }
    }

    fn kill(&mut self, now: Duration) {
        self.phase = Phase::Killed { give_up_at: now + KILL_PATIENCE };
        self.actions.push_back(Action::Say(Report::Killing));
        self.actions.push_back(Action::Signal(SIGKILL));
    }
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
