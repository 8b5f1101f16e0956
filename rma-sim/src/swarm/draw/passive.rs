//! Phases of locks: every rank for itself, on all windows.

use rma_core::dtype::Dtype;
use rma_core::op::ReduceOp;

use super::super::plan::{Action, Form, OperationPlan, Payload, Phase, Role, Span, Verb};
use super::operation::{candidates, Uses};
use super::region::strays;
use super::Draw;

/// What holds for all ranks of a phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Every lock is shared: only then may a rank hold several at a time (locks may be acquired later than
    /// they are called for, so no order of calls makes nested exclusive locks safe), and only then may
    /// NOCHECK be said.
    pub(super) all_shared: bool,
}

impl Draw<'_> {
    pub(super) fn passive_phase(&mut self) -> Phase {
        let rules = Rules { all_shared: self.random.chance(400) };
        let mut spans = Vec::new();
        self.spans_of_all(&self.lockable(), !rules.all_shared, &mut spans);
        self.idle_regions(&self.lockable(), &mut spans);
        let stores = self.stores(&spans);
        let mut scripts: Vec<_> =
            (0..self.ranks).map(|rank| self.passive_script(rank, &spans, rules)).collect();
        self.await_notices(&spans, &mut scripts);
        Phase { name: if rules.all_shared { "shared locks" } else { "locks" }, stores, spans, scripts }
    }

    /// The windows that may be locked.
    pub(super) fn lockable(&self) -> Vec<usize> {
        (0..self.windows.len()).filter(|&window| !self.windows[window].options.no_locks).collect()
    }

    fn any_lockable(&mut self) -> usize {
        let windows = self.lockable();
        self.random.pick(&windows)
    }

    fn passive_script(&mut self, rank: u32, spans: &[Span], rules: Rules) -> Vec<Action> {
        let mut script = Vec::new();
        let mut uses = Uses::new(spans);
        // Regions that are to vanish under somebody's hands want hands.
        let fewest = if strays(rank, spans).is_empty() { 0 } else { 3 };
        for _ in 0..self.random.between(fewest, fewest + 4) {
            if self.random.chance(100) {
                script.push(Action::Away(self.random.between(1, 300) as u32));
            }
            if self.stray(rank, spans, rules, &mut uses, &mut script) {
                continue;
            }
            if rules.all_shared && self.forks() {
                self.sections_of_threads(rank, spans, rules, &mut uses, &mut script);
            }
            if !rules.all_shared {
                self.exclusive_sections_of_threads(rank, spans, rules, &mut uses, &mut script);
            }
            match self.random.below(10) {
                0..3 => self.lock_all(rank, spans, rules, &mut uses, &mut script),
                3..5 if rules.all_shared => self.nested(rank, spans, &mut uses, &mut script),
                5..7 if !rules.all_shared => self.increment(spans, &mut script),
                _ => self.section(rank, spans, rules, &mut uses, &mut script),
            }
        }
        script
    }

    /// lock, operations and flushes, unlock.
    fn section(
        &mut self,
        rank: u32,
        spans: &[Span],
        rules: Rules,
        uses: &mut Uses,
        script: &mut Vec<Action>,
    ) {
        let window = self.any_lockable();
        let target = self.target();
        let is_exclusive = !rules.all_shared && self.random.chance(500);
        let no_check = rules.all_shared && self.random.chance(300);
        for _ in 0..self.epochs() {
            script.push(Action::Lock { window, target, is_exclusive, no_check });
            let chosen = candidates(rank, spans, window, Some(target), None);
            self.body(rank, spans, &chosen, Some(target), window, uses, script);
            script.push(Action::Unlock { window, target });
            uses.complete(spans, window, Some(target));
        }
    }

    /// Several shared locks at a time, on any windows.
    fn nested(&mut self, rank: u32, spans: &[Span], uses: &mut Uses, script: &mut Vec<Action>) {
        let mut locked: Vec<(usize, u32)> = Vec::new();
        for _ in 0..self.random.between(2, 6) {
            let one = (self.any_lockable(), self.target());
            if !locked.contains(&one) {
                locked.push(one);
                let no_check = self.random.chance(200);
                let (window, target) = one;
                script.push(Action::Lock { window, target, is_exclusive: false, no_check });
            }
            let (window, target) = self.random.pick(&locked);
            let chosen = candidates(rank, spans, window, Some(target), None);
            self.calls(rank, spans, &chosen, Some(target), window, uses, script);
        }
        if self.forks() {
            let places: Vec<_> = locked.iter().map(|&(window, target)| (window, Some(target))).collect();
            self.threads_of(rank, spans, &places, uses, script);
        }
        while !locked.is_empty() {
            let (window, target) = locked.swap_remove(self.random.index(locked.len()));
            script.push(Action::Unlock { window, target });
            uses.complete(spans, window, Some(target));
        }
    }

    fn lock_all(
        &mut self,
        rank: u32,
        spans: &[Span],
        rules: Rules,
        uses: &mut Uses,
        script: &mut Vec<Action>,
    ) {
        let window = self.any_lockable();
        let no_check = rules.all_shared && self.random.chance(300);
        script.push(Action::LockAll { window, no_check });
        let chosen = candidates(rank, spans, window, None, None);
        self.body(rank, spans, &chosen, None, window, uses, script);
        script.push(Action::UnlockAll { window });
        uses.complete(spans, window, None);
    }

    /// Under an exclusive lock: get a number, put the next one.
    fn increment(&mut self, spans: &[Span], script: &mut Vec<Action>) {
        let counters = (0..spans.len()).filter(|&index| spans[index].role == Role::Counter);
        let counters: Vec<_> = counters.collect();
        if counters.is_empty() {
            return;
        }
        // Few of them, so that they are contended.
        let index = counters[self.random.index(counters.len().min(3))];
        let Span { window, rank: target, offset, .. } = spans[index];
        let access = |verb, op, payload| {
            let dtype = Dtype::U64;
            Action::Operation(OperationPlan {
                verb,
                window,
                target,
                offset,
                len: 8,
                dtype,
                op,
                span: index,
                payload,
                form: Form::Plain,
            })
        };
        for _ in 0..self.epochs() {
            script.push(Action::Lock { window, target, is_exclusive: true, no_check: false });
            if let Some(direct) = self.increments_directly(&spans[index], index) {
                script.extend(direct);
                script.push(Action::Unlock { window, target });
                continue;
            }
            script.push(access(Verb::Get, ReduceOp::NoOp, Payload::Number(0)));
            script.push(Action::Flush { window, target: Some(target), is_local: self.random.chance(500) });
            script.push(access(Verb::Put, ReduceOp::Replace, Payload::LastResultPlusOne));
            if self.random.chance(300) {
                script.push(Action::Flush { window, target: Some(target), is_local: false });
            }
            script.push(Action::Unlock { window, target });
        }
    }

    /// Operations with flushes between them, by threads too.
    #[allow(clippy::too_many_arguments)]
    fn body(
        &mut self,
        rank: u32,
        spans: &[Span],
        chosen: &[usize],
        target: Option<u32>,
        window: usize,
        uses: &mut Uses,
        script: &mut Vec<Action>,
    ) {
        if self.forks() {
            self.threads_of(rank, spans, &[(window, target)], uses, script);
        }
        self.calls(rank, spans, chosen, target, window, uses, script);
    }

    /// Operations with flushes between them.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn calls(
        &mut self,
        rank: u32,
        spans: &[Span],
        chosen: &[usize],
        target: Option<u32>,
        window: usize,
        uses: &mut Uses,
        script: &mut Vec<Action>,
    ) {
        // One operation is the case that the design optimizes most.
        let most = if self.random.chance(300) { 1 } else { self.operations };
        for _ in 0..self.random.below(most + 1) {
            script.extend(self.direct(rank, spans, chosen, uses));
            if let Some(plan) = self.operation(rank, spans, chosen, uses) {
                let form = self.form(&plan, uses);
                script.push(Action::Operation(OperationPlan { form, ..plan }));
            }
            if self.random.chance(150) {
                self.flush(target, window, spans, uses, script);
            }
            self.order(window, target, spans, uses, script);
            self.requests(spans, uses, script);
        }
    }

    pub(super) fn target(&mut self) -> u32 {
        self.random.below(u64::from(self.ranks)) as u32
    }
}
