//! What choices were seen to do, so that engines do the same thing once.
//!
//! A choice concerns few parts of a state, and the other parts take very many values meanwhile. What it does to
//! its parts follows from them alone ([`Mask::of`] lists them), so it is looked up instead of done again.

use core::hash::{BuildHasherDefault, Hasher};
use std::collections::{HashMap, HashSet};

use super::parts::{Mask, Parts};
use super::world::Choice;
use crate::fabric::Delivery;

/// A map whose keys are hashes already.
pub(super) type Plain<V> = HashMap<u64, V, BuildHasherDefault<Same>>;

/// What changes: which part, and what it is then.
type Changes = Box<[(u8, u64)]>;

/// What is known of a scenario.
#[derive(Default, Debug)]
pub(super) struct Memo {
    /// As in [`crate::fabric::FabricConfig`].
    near_ranks: u32,
    effects: Plain<Changes>,
    /// Of what is on the way between two ranks, and the receiver: what may be delivered of it.
    deliveries: HashMap<(u64, u64), Box<[Delivery]>>,
    /// Programs that are over.
    finished: HashSet<u64>,
}

impl Memo {
    /// Nothing, of a fabric with such neighbours.
    pub(super) fn new(near_ranks: u32) -> Self {
        Self { near_ranks, ..Self::default() }
    }

    /// The state behind a choice, if it is known what that does.
    pub(super) fn predict(&self, parts: &Parts, choice: Choice) -> Option<Parts> {
        let changes = self.effects.get(&parts.key(choice, Mask::of(choice, self.near_ranks)))?;
        Some(parts.changed(changes))
    }

    /// A choice led from one state to another.
    pub(super) fn learn(&mut self, before: &Parts, choice: Choice, after: &Parts) {
        let (mask, changes) = (Mask::of(choice, self.near_ranks), before.changes(after));
        // What does more than it should is done every time.
        if mask.covers(&changes) {
            self.effects.insert(before.key(choice, mask), changes.into());
        }
    }

    /// Notes which programs are over.
    pub(super) fn learn_finished(&mut self, parts: &Parts, is_finished: impl Iterator<Item = bool>) {
        let finished = is_finished.enumerate().filter(|(_, is_finished)| *is_finished);
        self.finished.extend(finished.map(|(rank, _)| parts.program(rank)));
    }

    /// Whether all programs are over.
    pub(super) fn is_finished(&self, parts: &Parts, ranks: usize) -> bool {
        (0..ranks).all(|rank| self.finished.contains(&parts.program(rank)))
    }

    /// Everything that may be delivered, in order, if it is known.
    pub(super) fn deliveries(&self, parts: &Parts, ranks: usize) -> Option<Vec<Delivery>> {
        let mut all = Vec::new();
        for (origin, target) in pairs(ranks) {
            if parts.route(origin, target) != 0 {
                all.extend_from_slice(self.deliveries.get(&route_key(parts, origin, target))?);
            }
        }
        all.sort_unstable();
        Some(all)
    }

    /// All that may be delivered in a state.
    pub(super) fn learn_deliveries(&mut self, parts: &Parts, ranks: usize, all: &[Delivery]) {
        for (origin, target) in pairs(ranks) {
            let is_between = |delivery: &&Delivery| delivery.route() == (origin as u32, target as u32);
            let between = all.iter().filter(is_between).copied().collect();
            self.deliveries.insert(route_key(parts, origin, target), between);
        }
    }
}

fn pairs(ranks: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..ranks).flat_map(move |origin| (0..ranks).map(move |target| (origin, target)))
}

/// Deliveries name their ranks, which the hash of what is on the way has in it.
fn route_key(parts: &Parts, origin: usize, target: usize) -> (u64, u64) {
    (parts.route(origin, target), parts.endpoint(target))
}

/// Takes a hash for what it is.
#[derive(Default, Debug)]
pub(super) struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0.rotate_left(8) ^ u64::from(byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three ranks; every part has a number of its own.
    fn parts() -> Parts {
        let mut parts = Parts::EMPTY;
        for rank in 0..3 {
            parts.set_program(rank, 10 + rank as u64);
            parts.set_memory(rank, 20 + rank as u64);
            parts.set_endpoint(rank, 30 + rank as u64);
            parts.set_credits(rank, 40 + rank as u64);
            (0..3).for_each(|target| parts.set_route(rank, target, (50 + 3 * rank + target) as u64));
        }
        parts.set_global(60);
        parts
    }

    fn changed(change: impl FnOnce(&mut Parts)) -> Parts {
        let mut parts = parts();
        change(&mut parts);
        parts
    }

    #[test]
    fn an_effect_is_known_wherever_the_parts_are_that_it_depends_on() {
        let reply = Delivery::Packet { origin: 1, target: 0, is_reply: true };
        let arrival = Choice::Arrive(0, reply, None);
        let mut memo = Memo::default();
        assert_eq!(memo.predict(&parts(), arrival), None);
        let effect = |parts: &mut Parts| {
            parts.set_program(0, 11);
            parts.set_credits(1, 0);
            parts.set_route(1, 0, 0);
        };
        memo.learn(&parts(), arrival, &changed(effect));
        assert_eq!(memo.predict(&parts(), arrival), Some(changed(effect)));
        // Rank 2, and what rank 1 does, are not looked at.
        let elsewhere = |parts: &mut Parts| {
            (parts.set_program(2, 7), parts.set_program(1, 7), parts.set_route(1, 2, 7)).0
        };
        let behind = changed(|parts| {
            elsewhere(parts);
            effect(parts);
        });
        assert_eq!(memo.predict(&changed(elsewhere), arrival), Some(behind));
        // What it depends on is.
        assert_eq!(memo.predict(&changed(|parts| parts.set_memory(0, 7)), arrival), None);
        assert_eq!(memo.predict(&changed(|parts| parts.set_route(0, 2, 7)), arrival), None);
        assert_eq!(memo.predict(&changed(|parts| parts.set_route(1, 0, 7)), arrival), None);
        assert_eq!(memo.predict(&changed(|parts| parts.set_credits(1, 7)), arrival), None);
        assert_eq!(memo.predict(&changed(|parts| parts.set_global(7)), arrival), None);
        assert_eq!(memo.predict(&parts(), Choice::Step(0)), None);
    }

    #[test]
    fn what_changes_more_than_it_should_is_not_learned() {
        let mut memo = Memo::default();
        memo.learn(&parts(), Choice::Step(0), &changed(|parts| parts.set_memory(1, 7)));
        assert_eq!(memo.predict(&parts(), Choice::Step(0)), None);
        memo.learn(&parts(), Choice::Step(0), &changed(|parts| parts.set_memory(0, 7)));
        assert!(memo.predict(&parts(), Choice::Step(0)).is_some());
    }

    #[test]
    fn deliveries_are_known_of_each_route() {
        let delivery = |origin, target| Delivery::Packet { origin, target, is_reply: false };
        let mut memo = Memo::default();
        assert_eq!(memo.deliveries(&parts(), 3), None);
        let all = [delivery(0, 1), delivery(2, 1)];
        memo.learn_deliveries(&parts(), 3, &all);
        assert_eq!(memo.deliveries(&parts(), 3), Some(all.to_vec()));
        // Nothing is on the way from 0 to 1 any more.
        let later = changed(|parts| parts.set_route(0, 1, 0));
        assert_eq!(memo.deliveries(&later, 3), Some(vec![delivery(2, 1)]));
        // Rank 1 may have no room for it now.
        assert_eq!(memo.deliveries(&changed(|parts| parts.set_endpoint(1, 7)), 3), None);
    }
}
