//! Loads and stores in memory that the ranks share: by who has a place to itself, when nothing of his is under way there.

use super::super::plan::{Action, DirectPlan, Payload, Role, Span};
use super::operation::Uses;
use super::Draw;

/// Tells the source of chance that decides which plans have shared windows from that of everything else.
pub(super) const SOURCE: u64 = 0x0005_4a2e_d000;

/// Most bytes of a direct access.
const BYTES_MAX: usize = 300;

/// Most direct accesses, one behind the other.
const ACCESSES_MAX: u64 = 4;

/// A place that its rank stores to before it exposes its memory, and that another loads from as soon as it may.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handed {
    pub(super) from: u32,
    pub(super) to: u32,
    at: DirectPlan,
    seed: u64,
}

impl Handed {
    pub(super) fn store(&self) -> Action {
        Action::Store { at: self.at, payload: Payload::Seed(self.seed) }
    }

    pub(super) fn load(&self) -> Action {
        Action::Load { at: self.at, stored: Some(self.seed) }
    }
}

/// The actions of `rank` before memory is handed over.
pub(super) fn given(handed: &[Handed], rank: u32) -> impl Iterator<Item = Action> + '_ {
    handed.iter().filter(move |one| one.from == rank).map(Handed::store)
}

/// The actions of `rank` once it has got what others have handed over.
pub(super) fn taken(handed: &[Handed], rank: u32) -> impl Iterator<Item = Action> + '_ {
    handed.iter().filter(move |one| one.to == rank).map(Handed::load)
}

impl Draw<'_> {
    /// Places of a shared window that change hands with the epochs of a parity: nobody has used them since the epoch
    /// before began, and who uses them then (`is_partner` of their rank) finds there what their rank has left.
    pub(super) fn hand_over(
        &mut self,
        window: usize,
        spans: &[Span],
        parity: u8,
        is_partner: impl Fn(u32, u32) -> bool,
    ) -> Vec<Handed> {
        let mut handed = Vec::new();
        if !self.windows[window].is_shared {
            return handed;
        }
        for (index, span) in spans.iter().enumerate() {
            let Role::Owned(to) = span.role else { continue };
            let is_meant = (span.window, span.parity) == (window, parity) && is_partner(to, span.rank);
            if is_meant && self.random.chance(400) {
                let at = DirectPlan { len: span.len.min(BYTES_MAX), ..whole(span, index) };
                handed.push(Handed { from: span.rank, to, at, seed: self.random.bits() });
            }
        }
        handed
    }

    /// Now and then some loads and stores at spans where nothing of this rank's is under way. Operations behind them
    /// find what was stored: a sync lies between.
    pub(super) fn direct(&mut self, rank: u32, spans: &[Span], chosen: &[usize], uses: &Uses) -> Vec<Action> {
        let mut actions = Vec::new();
        let is_shared = |index: &usize| self.windows[spans[*index].window].is_shared;
        if !chosen.iter().any(is_shared) || !self.random.chance(250) {
            return actions;
        }
        let is_settled = |index: &usize| uses.is_settled(*index) && is_shared(index);
        let settled: Vec<_> = chosen.iter().copied().filter(is_settled).collect();
        if settled.is_empty() {
            return actions;
        }
        let mut stored = Vec::new();
        for _ in 0..self.random.between(1, ACCESSES_MAX) {
            let index = self.random.pick(&settled);
            let span = &spans[index];
            let is_own = span.role == Role::Owned(rank);
            if !is_own && span.role != Role::ReadOnly {
                continue;
            }
            let at = self.part_of(span, index);
            if is_own && self.random.chance(500) {
                actions.push(Action::Store { at, payload: Payload::Seed(self.random.bits()) });
                stored.push(span.window);
            } else {
                actions.push(Action::Load { at, stored: None });
            }
        }
        stored.dedup();
        actions.extend(stored.into_iter().map(|window| Action::Sync { window }));
        actions
    }

    /// Some bytes of a span, aligned or not.
    fn part_of(&mut self, span: &Span, index: usize) -> DirectPlan {
        let skip = self.random.index(span.len);
        let len = 1 + self.random.index((span.len - skip).min(BYTES_MAX));
        DirectPlan { offset: span.offset + skip, len, ..whole(span, index) }
    }

    /// The same as get and put of a number: under an exclusive lock nobody stores between the two.
    pub(super) fn increments_directly(&mut self, span: &Span, index: usize) -> Option<[Action; 2]> {
        let is_shared = self.windows[span.window].is_shared;
        let at = whole(span, index);
        let store = Action::Store { at, payload: Payload::LastResultPlusOne };
        (is_shared && self.random.chance(500)).then_some([Action::Load { at, stored: None }, store])
    }
}

fn whole(span: &Span, index: usize) -> DirectPlan {
    let &Span { window, rank: target, offset, len, .. } = span;
    DirectPlan { window, target, offset, len, span: index }
}
