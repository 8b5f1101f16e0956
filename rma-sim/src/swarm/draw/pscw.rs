//! Phases of post, start, complete and wait: on one window, several rounds of random pairs.

use super::super::plan::{Action, FenceAssertions, Members, Phase, Span};
use super::direct::{given, taken, Handed};
use super::operation::{candidates, Uses};
use super::Draw;

/// Who accesses whom in one round.
#[derive(Debug)]
struct Round {
    /// Of each rank: the ranks that it accesses, and those that access it.
    targets: Vec<Members>,
    origins: Vec<Members>,
    /// Of each rank: it posts only after its complete.
    is_late: Vec<bool>,
}

impl Draw<'_> {
    /// Every span is used in one round only: who is ahead of the others must not change what they look at.
    pub(super) fn pscw_phase(&mut self) -> Phase {
        let window = self.random.index(self.windows.len());
        let rounds = self.random.between(1, 4) as u8;
        let mut spans = Vec::new();
        self.spans(window, false, &mut spans);
        self.idle_regions(&[], &mut spans);
        for span in &mut spans {
            span.parity = self.random.below(u64::from(rounds)) as u8;
        }
        let stores = self.stores(&spans);
        let mut scripts = vec![Vec::new(); self.ranks as usize];
        for number in 0..rounds {
            let round = self.round();
            // A fence elsewhere, so that every post is known to be over.
            let no_check = number == 0 && self.windows.len() > 1 && self.random.chance(250);
            let handed = self.hand_over(window, &spans, number, |origin, target| {
                round.targets[origin as usize].contains(target)
            });
            for (rank, script) in (0..).zip(&mut scripts) {
                self.part(rank, window, number, &round, no_check, &spans, &handed, script);
            }
        }
        Phase { name: "post and start", stores, spans, scripts }
    }

    /// Who posts late waits, in its complete, for posts that nothing holds up: those of ranks that post early.
    fn round(&mut self) -> Round {
        let ranks = self.ranks as usize;
        let is_dense = self.random.chance(300);
        let lates = self.random.pick(&[0, 300, 700]);
        let is_late: Vec<bool> = (0..ranks).map(|_| self.random.chance(lates)).collect();
        let mut round = Round {
            targets: vec![Members::default(); ranks],
            origins: vec![Members::default(); ranks],
            is_late,
        };
        for origin in 0..ranks {
            for target in 0..ranks {
                // A few partners each, or many.
                let wanted = if is_dense { 600 } else { 2000 / ranks as u32 + 50 };
                if (round.is_late[origin] && round.is_late[target]) || !self.random.chance(wanted) {
                    continue;
                }
                round.targets[origin].insert(target as u32);
                round.origins[target].insert(origin as u32);
            }
        }
        round
    }

    /// One rank's part of a round.
    #[allow(clippy::too_many_arguments)]
    fn part(
        &mut self,
        rank: u32,
        window: usize,
        number: u8,
        round: &Round,
        no_check: bool,
        spans: &[Span],
        handed: &[Handed],
        script: &mut Vec<Action>,
    ) {
        let (targets, origins) = (round.targets[rank as usize], round.origins[rank as usize]);
        // Empty groups are legal, and calls without a partner may as well be left out.
        let posts = !origins.is_empty() || self.random.chance(100);
        let starts = !targets.is_empty() || self.random.chance(100);
        let is_late = round.is_late[rank as usize] && !no_check;
        let post = Action::Post { window, group: origins, no_check };
        if posts && !is_late {
            script.extend(given(handed, rank));
            script.push(post);
        }
        if no_check {
            let other = (window + 1) % self.windows.len();
            let assertions = FenceAssertions { no_succeed: true, ..FenceAssertions::default() };
            script.push(Action::Fence { window: other, assertions, closes: None });
        }
        if self.random.chance(100) {
            script.push(Action::Away(self.random.between(1, 100) as u32));
        }
        if starts {
            script.push(Action::Start { window, group: targets, no_check });
            script.extend(taken(handed, rank));
            let mut uses = Uses::new(spans);
            let mut chosen = candidates(rank, spans, window, None, Some(number));
            chosen.retain(|&index| targets.contains(spans[index].rank));
            self.operations(rank, window, spans, &chosen, &mut uses, script);
            script.push(Action::Complete { window });
        }
        if posts && is_late {
            script.extend(given(handed, rank));
            script.push(post);
        }
        if posts {
            script.push(Action::Wait { window, closes: number, by_test: self.random.chance(300) });
        }
    }
}
