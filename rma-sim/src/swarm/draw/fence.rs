//! Phases of fences: all ranks, one window, several epochs.

use super::super::plan::{Action, FenceAssertions, Phase, Span, Verb};
use super::direct::{given, taken};
use super::operation::{candidates, Uses};
use super::thread::outside_forks;
use super::Draw;

impl Draw<'_> {
    /// Two sets of spans take turns: what an epoch wrote stays as it is until every rank has seen the fence
    /// that closed it. A fence with NOPRECEDE waits for nobody, so the same set is used again after it.
    pub(super) fn fence_phase(&mut self) -> Phase {
        let window = self.random.index(self.windows.len());
        let mut spans = Vec::new();
        self.spans(window, false, &mut spans);
        self.idle_regions(&[], &mut spans);
        let stores = self.stores(&spans);
        let mut scripts = vec![Vec::new(); self.ranks as usize];

        let mut assertions =
            FenceAssertions { no_precede: self.random.chance(600), ..FenceAssertions::default() };
        let (mut closes, mut parity) = (None, 0);
        for left in (0..self.random.between(1, 4)).rev() {
            let mut part = self.epoch(window, &spans, parity);
            let is_empty = part.iter().all(Vec::is_empty);
            if !is_empty {
                let handed = self.hand_over(window, &spans, parity, |_, _| true);
                for (rank, (script, part)) in (0..).zip(scripts.iter_mut().zip(&mut part)) {
                    script.extend(given(&handed, rank));
                    part.splice(0..0, taken(&handed, rank));
                }
            }
            self.fence(&mut scripts, window, assertions, closes, &part);
            for (script, actions) in scripts.iter_mut().zip(&part) {
                script.extend(actions);
            }
            assertions = FenceAssertions {
                // Only true, and only allowed, if nobody did anything.
                no_precede: is_empty && left > 0 && self.random.chance(500),
                no_succeed: left == 0 && self.random.chance(600),
                ..FenceAssertions::default()
            };
            closes = (!assertions.no_precede).then_some(parity);
            parity ^= u8::from(closes.is_some());
        }
        self.fence(&mut scripts, window, assertions, closes, &[]);
        for script in &mut scripts {
            if !self.random.chance(100) {
                continue;
            }
            let away = self.random.between(1, 200) as u32;
            let at = self.random.index(script.len());
            script.insert(outside_forks(script, at), Action::Away(away));
        }
        Phase { name: "fence", stores, spans, scripts }
    }

    /// The operations of one epoch, rank by rank.
    fn epoch(&mut self, window: usize, spans: &[Span], parity: u8) -> Vec<Vec<Action>> {
        let is_empty = self.random.chance(150);
        let mut parts = Vec::new();
        for rank in 0..self.ranks {
            let mut uses = Uses::new(spans);
            let chosen = candidates(rank, spans, window, None, Some(parity));
            let mut part = Vec::new();
            if !is_empty {
                self.operations(rank, window, spans, &chosen, &mut uses, &mut part);
            }
            parts.push(part);
        }
        parts
    }

    /// The same fence at every rank, with each rank's own promises about its memory where they are true.
    fn fence(
        &mut self,
        scripts: &mut [Vec<Action>],
        window: usize,
        agreed: FenceAssertions,
        closes: Option<u8>,
        next: &[Vec<Action>],
    ) {
        let written = |rank: u32| {
            let mut actions = next.iter().flatten();
            actions.any(|action| match action {
                Action::Operation(plan) => plan.verb != Verb::Get && plan.target == rank,
                _ => false,
            })
        };
        let is_shared = self.windows[window].is_shared;
        for (rank, script) in scripts.iter_mut().enumerate() {
            let is_first = closes.is_none() && script.is_empty();
            let assertions = FenceAssertions {
                // Owners store only before the first fence of a phase, unless others may store too.
                no_store: !is_first && self.random.chance(300) && !is_shared,
                no_put: !written(rank as u32) && self.random.chance(300),
                ..agreed
            };
            script.push(Action::Fence { window, assertions, closes });
        }
    }
}
