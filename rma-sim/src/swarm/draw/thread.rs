//! Threads: each has spans of its own, so that it does not matter who of them comes first.

use super::super::plan::{Action, Role, Span, THREADS_MAX};
use super::operation::{candidates, Uses};
use super::passive::Rules;
use super::Draw;

/// Tells the source of chance that decides which plans have threads from that of everything else.
pub(super) const SOURCE: u64 = 0x0074_11ea_d500;

/// The same of that which decides where threads have exclusive locks, and what they do under them.
pub(super) const SECTIONS_SOURCE: u64 = 0x0e8c_7851_4e5e;

/// Which spans are whose.
#[derive(Clone, Copy, Debug)]
struct Shares {
    threads: usize,
    shift: usize,
}

impl Shares {
    /// The thread whose a span is; `None`: what others do there at the same time does no harm, nor what threads do.
    fn thread_of(self, spans: &[Span], index: usize) -> Option<usize> {
        let is_own = matches!(spans[index].role, Role::Owned(_) | Role::Noted(_));
        is_own.then(|| (index + self.shift) % self.threads)
    }
}

/// The part of a thread in a fork: its number, and the spans that it may use of those given.
struct Part<'a> {
    thread: usize,
    shares: Shares,
    spans: &'a [Span],
}

impl Part<'_> {
    fn of(&self, candidates: &[usize]) -> Vec<usize> {
        let Self { thread, shares, spans } = *self;
        let is_meant = |index: &usize| shares.thread_of(spans, *index).is_none_or(|owner| owner == thread);
        candidates.iter().copied().filter(is_meant).collect()
    }
}

impl Draw<'_> {
    /// Whether there are threads now.
    pub(super) fn forks(&mut self) -> bool {
        self.has_threads && self.random.chance(350)
    }

    /// Threads, each with what `draw` draws for it.
    fn fork(
        &mut self,
        spans: &[Span],
        uses: &mut Uses,
        script: &mut Vec<Action>,
        mut draw: impl FnMut(&mut Self, &Part<'_>, &mut Uses, &mut Vec<Action>),
    ) {
        let threads = 2 + self.random.index(THREADS_MAX - 1);
        let shares = Shares { threads, shift: self.random.index(threads) };
        let (mut lengths, mut actions, mut ends) = ([0; THREADS_MAX], Vec::new(), Vec::new());
        for (thread, length) in lengths.iter_mut().enumerate().take(threads) {
            let before = actions.len();
            let mut own = uses.of_thread(thread == 0);
            draw(self, &Part { thread, shares, spans }, &mut own, &mut actions);
            *length = actions.len() - before;
            ends.push(own);
        }
        uses.join(&ends, |index| shares.thread_of(spans, index));
        // One alone is no thread.
        if lengths.iter().filter(|length| **length > 0).count() > 1 {
            script.push(Action::Fork { lengths });
        }
        script.extend(actions);
    }

    /// Threads in one passive epoch, or in several: each is at one of the windows and targets.
    pub(super) fn threads_of(
        &mut self,
        rank: u32,
        spans: &[Span],
        places: &[(usize, Option<u32>)],
        uses: &mut Uses,
        script: &mut Vec<Action>,
    ) {
        self.fork(spans, uses, script, |draw, part, uses, script| {
            let (window, target) = draw.random.pick(places);
            let chosen = part.of(&candidates(rank, spans, window, target, None));
            draw.calls(rank, spans, &chosen, target, window, uses, script);
        });
    }

    /// The same where locks may be exclusive: a process holds several at a time then, and none of its threads waits
    /// for a lock while it holds one. Now and then, by a source of chance of its own.
    pub(super) fn exclusive_sections_of_threads(
        &mut self,
        rank: u32,
        spans: &[Span],
        rules: Rules,
        uses: &mut Uses,
        script: &mut Vec<Action>,
    ) {
        if let Some(chance) = self.sections.take() {
            let random = core::mem::replace(&mut self.random, chance);
            if self.random.chance(500) {
                // A flush of all ranks waits for the lock that another thread waits for.
                self.flushes_apart = true;
                self.sections_of_threads(rank, spans, rules, uses, script);
                self.flushes_apart = false;
            }
            self.sections = Some(core::mem::replace(&mut self.random, random));
        }
    }

    /// Threads that lock each for itself, not one target twice.
    pub(super) fn sections_of_threads(
        &mut self,
        rank: u32,
        spans: &[Span],
        rules: Rules,
        uses: &mut Uses,
        script: &mut Vec<Action>,
    ) {
        let windows = self.lockable();
        let mut locked = Vec::new();
        self.fork(spans, uses, script, |draw, part, uses, script| {
            let (window, target) = (draw.random.pick(&windows), draw.target());
            if locked.contains(&(window, target)) {
                return;
            }
            locked.push((window, target));
            let is_exclusive = !rules.all_shared && draw.random.chance(700);
            let no_check = rules.all_shared && draw.random.chance(300);
            script.push(Action::Lock { window, target, is_exclusive, no_check });
            let chosen = part.of(&candidates(rank, spans, window, Some(target), None));
            draw.calls(rank, spans, &chosen, Some(target), window, uses, script);
            script.push(Action::Unlock { window, target });
            uses.complete(spans, window, Some(target));
        });
    }

    /// Operations of an active epoch, by threads too.
    pub(super) fn operations(
        &mut self,
        rank: u32,
        window: usize,
        spans: &[Span],
        chosen: &[usize],
        uses: &mut Uses,
        script: &mut Vec<Action>,
    ) {
        if self.forks() {
            return self.fork(spans, uses, script, |draw, part, uses, script| {
                draw.post_some(rank, window, spans, &part.of(chosen), uses, script);
            });
        }
        self.post_some(rank, window, spans, chosen, uses, script);
    }

    fn post_some(
        &mut self,
        rank: u32,
        window: usize,
        spans: &[Span],
        chosen: &[usize],
        uses: &mut Uses,
        script: &mut Vec<Action>,
    ) {
        for _ in 0..self.random.below(self.operations + 1) {
            script.extend(self.direct(rank, spans, chosen, uses));
            script.extend(self.operation(rank, spans, chosen, uses).map(Action::Operation));
            self.order(window, None, spans, uses, script);
        }
    }
}

/// The place itself, or, if it is amid the actions of threads, that behind them.
pub(super) fn outside_forks(script: &[Action], at: usize) -> usize {
    let ends = script.iter().enumerate().filter_map(|(fork, action)| match action {
        Action::Fork { lengths } => Some((fork, fork + 1 + lengths.iter().sum::<usize>())),
        _ => None,
    });
    ends.into_iter().find(|&(fork, end)| fork < at && at < end).map_or(at, |(_, end)| end)
}
