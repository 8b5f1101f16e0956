//! Requests, flushes of every kind, order, and those who wait for notified puts.

use super::super::plan::{Action, Form, Members, OperationPlan, Role, Span, Verb, Which};
use super::operation::Uses;
use super::Draw;

impl Draw<'_> {
    /// Whether an operation of a passive epoch gets a request.
    pub(super) fn form(&mut self, plan: &OperationPlan, uses: &mut Uses) -> Form {
        let may_have = !matches!(plan.verb, Verb::FetchAndOp | Verb::CompareAndSwap);
        if plan.form != Form::Plain || !may_have || !self.random.chance(250) {
            return plan.form;
        }
        uses.requests += 1;
        Form::Request
    }

    /// Waits for some requests, or for all.
    pub(super) fn requests(&mut self, spans: &[Span], uses: &mut Uses, script: &mut Vec<Action>) {
        if uses.requests == 0 || !self.random.chance(200) {
            return;
        }
        let which = self.random.pick(&[Which::All, Which::Any, Which::Oldest, Which::Newest]);
        script.push(Action::Await { which, by_test: self.random.chance(300) });
        match which {
            Which::All => uses.await_all(spans),
            _ => uses.requests -= 1,
        }
    }

    /// One of the flushes, of the locked rank, or under lock_all (`None`) of some.
    pub(super) fn flush(
        &mut self,
        locked: Option<u32>,
        window: usize,
        spans: &[Span],
        uses: &mut Uses,
        script: &mut Vec<Action>,
    ) {
        let target = match locked {
            Some(target) if self.flushes_apart => Some(target),
            _ if self.random.chance(300) => None,
            Some(target) => Some(target),
            None => Some(self.target()),
        };
        let is_local = self.random.chance(400);
        match self.random.below(10) {
            0..3 => {
                script.push(Action::RequestFlush { window, target, is_local });
                uses.requests += 1;
                if !is_local {
                    uses.request_flush(window, target);
                }
            }
            3..5 => {
                let mut targets = Members::default();
                for _ in 0..self.random.between(1, 4) {
                    targets.insert(locked.unwrap_or_else(|| self.target()));
                }
                script.push(Action::FlushTargets { window, targets });
                targets.iter().for_each(|target| uses.complete(spans, window, Some(target)));
            }
            _ => {
                script.push(Action::Flush { window, target, is_local });
                if !is_local {
                    uses.complete(spans, window, target);
                }
            }
        }
    }

    /// Now and then what follows is ordered behind what was posted: then anything may follow.
    pub(super) fn order(
        &mut self,
        window: usize,
        target: Option<u32>,
        spans: &[Span],
        uses: &mut Uses,
        script: &mut Vec<Action>,
    ) {
        if self.random.chance(60) {
            script.push(Action::Order { window, target });
            uses.order(spans, window, target);
        }
    }

    /// At the end, when a rank holds no lock any more, it may wait for puts that others notify it of.
    pub(super) fn await_notices(&mut self, spans: &[Span], scripts: &mut [Vec<Action>]) {
        for (span, &Span { window, rank, offset, role, .. }) in spans.iter().enumerate() {
            let Role::Noted(origin) = role else { continue };
            let is_meant = |action: &&Action| match action {
                Action::Operation(plan) => plan.span == span,
                _ => false,
            };
            let all = scripts[origin as usize].iter().filter(is_meant).count() as u64;
            if all > 0 && self.random.chance(700) {
                let until = if self.random.chance(500) { all } else { self.random.between(1, all) };
                scripts[rank as usize].push(Action::AwaitNotice { window, span, offset, until });
            }
        }
    }
}
