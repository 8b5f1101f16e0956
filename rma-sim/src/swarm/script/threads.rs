//! Threads of a script: each has a part of the rank's actions, and they take turns by chance.

use super::super::library::{Call, Library};
use super::super::plan::{Action, THREADS_MAX};
use super::operation::InFlight;
use super::{RankScript, Stage};
use crate::world::{Fault, Step};

/// What one thread is at.
#[derive(Debug)]
pub(super) struct Thread {
    /// The next of the rank's actions.
    pub(super) next: usize,
    /// The first that is not this thread's.
    end: usize,
    /// The call under way, and when it began.
    pub(super) calling: Option<(Call, u64)>,
    /// The operation that is being posted.
    pub(super) posting: Option<InFlight>,
    pub(super) away: u32,
    /// It waits for others, and nothing has moved since.
    is_waiting: bool,
}

impl Default for Thread {
    /// The rank's own thread, at its first action.
    fn default() -> Self {
        Self::of(0, usize::MAX)
    }
}

impl Thread {
    fn of(next: usize, end: usize) -> Self {
        Self { next, end, calling: None, posting: None, away: 0, is_waiting: false }
    }

    /// Nothing is under way.
    fn is_idle(&self) -> bool {
        self.calling.is_none() && self.posting.is_none()
    }

    fn is_done(&self) -> bool {
        self.next >= self.end && self.is_idle() && self.away == 0
    }

    pub(super) fn describe(&self) -> String {
        let Self { next, calling, posting, away, .. } = self;
        let mut text = format!("action {next}");
        if let Some((call, _)) = calling {
            text.push_str(&format!(" in {call:?}"));
        }
        if let Some(InFlight { plan, .. }) = posting {
            text.push_str(&format!(" posting {plan:?}"));
        }
        if *away > 0 {
            text.push_str(&format!(" away for {away} steps"));
        }
        text
    }
}

impl<L: Library> RankScript<L> {
    pub(super) fn thread_mut(&mut self) -> &mut Thread {
        &mut self.threads[self.current]
    }

    /// The action that the thread is at; `None` at the end of the phase, and outside of one.
    pub(super) fn action(&self) -> Option<Action> {
        let Stage::Phase(index) = self.stage else { return None };
        let shared = self.shared.borrow();
        let script = &shared.plan.phases[index].scripts[self.rank as usize];
        script.get(self.threads[self.current].next).copied()
    }

    /// For messages: where the thread is.
    pub(super) fn whereabouts(&self) -> String {
        let Self { stage, threads, current, .. } = self;
        let of = if threads.len() > 1 { format!(" of thread {current}") } else { String::new() };
        format!("{stage:?} at action {}{of}", threads[*current].next)
    }

    /// The next moment.
    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub(super) fn fork(&mut self, lengths: &[usize; THREADS_MAX]) -> Result<Step, Fault> {
        self.advance();
        let mut next = self.threads[self.current].next;
        self.threads.clear();
        for &length in lengths.iter().filter(|length| **length > 0) {
            self.threads.push(Thread::of(next, next + length));
            next += length;
        }
        self.library.fork(self.threads.len());
        Ok(Step::Busy)
    }

    /// Steps one of the threads.
    pub(super) fn step_forked(&mut self) -> Result<Step, Fault> {
        self.current = self.choose();
        let step = self.step_thread()?;
        if step == Step::Waiting {
            self.thread_mut().is_waiting = true;
        } else {
            self.threads.iter_mut().for_each(|thread| thread.is_waiting = false);
        }
        if self.threads.iter().all(Thread::is_done) {
            return self.join();
        }
        let all_wait = self.threads.iter().all(|thread| thread.is_waiting || thread.is_done());
        // One that waits does not speak for those that can go on.
        Ok(if all_wait { Step::Waiting } else { Step::Busy })
    }

    fn join(&mut self) -> Result<Step, Fault> {
        let next = self.threads.iter().map(|thread| thread.end).max().unwrap_or_default();
        self.library.join();
        (self.threads, self.current) = (vec![Thread::of(next, usize::MAX)], 0);
        Ok(Step::Busy)
    }

    /// Which thread is stepped: any that is not done. Those of a real library go on by themselves: then one that has
    /// nothing under way, if there is any.
    fn choose(&mut self) -> usize {
        let mut chosen: Vec<_> = (0..self.threads.len()).filter(|&at| !self.threads[at].is_done()).collect();
        if self.library.has_real_threads() && chosen.iter().any(|&at| self.threads[at].is_idle()) {
            chosen.retain(|&at| self.threads[at].is_idle());
        }
        self.turns.pick(&chosen)
    }

    pub(super) fn step_thread(&mut self) -> Result<Step, Fault> {
        let thread = self.thread_mut();
        if thread.away > 0 {
            thread.away -= 1;
            return Ok(Step::Busy);
        }
        if let Some(entry) = thread.posting.take() {
            return self.poll_posting(entry);
        }
        match self.threads[self.current].calling {
            Some((call, since)) => self.poll(call, since),
            None => self.proceed(),
        }
    }
}
