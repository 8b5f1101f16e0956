//! A state of a scenario as numbers, one for each part: what a choice depends on, and what it changes.

use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;

use super::world::Choice;
use crate::fabric::Delivery;

/// Most ranks of a scenario.
pub(super) const RANKS_MAX: usize = 4;

/// How many numbers a state has.
const LEN: usize = GLOBAL + 1;

/// A rank's engine, and where its program is.
const PROGRAM: usize = 0;
/// Its memory.
const MEMORY: usize = PROGRAM + RANKS_MAX;
/// What the fabric keeps for it.
const ENDPOINT: usize = MEMORY + RANKS_MAX;
/// What it may still post.
const CREDITS: usize = ENDPOINT + RANKS_MAX;
/// What is on the way from one rank to another, row by row.
const ROUTES: usize = CREDITS + RANKS_MAX;
/// Who is dead, and who certainly holds a lock.
const GLOBAL: usize = ROUTES + RANKS_MAX * RANKS_MAX;

/// A state. Those whose numbers are all the same have the same future.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts([u64; LEN]);

/// A choice of parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mask(u64);

impl Parts {
    /// Nothing known yet.
    pub(super) const EMPTY: Self = Self([0; LEN]);

    pub(super) fn program(&self, rank: usize) -> u64 {
        self.0[PROGRAM + rank]
    }

    pub(super) fn endpoint(&self, rank: usize) -> u64 {
        self.0[ENDPOINT + rank]
    }

    /// 0 when nothing is on the way.
    pub(super) fn route(&self, origin: usize, target: usize) -> u64 {
        self.0[ROUTES + RANKS_MAX * origin + target]
    }

    pub(super) fn set_program(&mut self, rank: usize, number: u64) {
        self.0[PROGRAM + rank] = number;
    }

    pub(super) fn set_memory(&mut self, rank: usize, number: u64) {
        self.0[MEMORY + rank] = number;
    }

    pub(super) fn set_endpoint(&mut self, rank: usize, number: u64) {
        self.0[ENDPOINT + rank] = number;
    }

    pub(super) fn set_credits(&mut self, rank: usize, number: u64) {
        self.0[CREDITS + rank] = number;
    }

    pub(super) fn set_route(&mut self, origin: usize, target: usize, number: u64) {
        self.0[ROUTES + RANKS_MAX * origin + target] = number;
    }

    pub(super) fn set_global(&mut self, number: u64) {
        self.0[GLOBAL] = number;
    }

    /// All numbers in one.
    pub fn fingerprint(&self) -> u64 {
        self.0.iter().fold(0, |hash, &number| mix(hash, number))
    }

    /// The chosen numbers, and the choice that depends on nothing else, in one.
    pub(super) fn key(&self, choice: Choice, mask: Mask) -> u64 {
        let mut hasher = DefaultHasher::new();
        choice.hash(&mut hasher);
        mask.places().fold(hasher.finish(), |hash, place| mix(hash, self.0[place]))
    }

    /// Which numbers of the other state differ, and what they are there.
    pub(super) fn changes(&self, after: &Self) -> Vec<(u8, u64)> {
        let places = (0..LEN).filter(|&place| self.0[place] != after.0[place]);
        places.map(|place| (place as u8, after.0[place])).collect()
    }

    /// The state behind these changes.
    pub(super) fn changed(mut self, changes: &[(u8, u64)]) -> Self {
        for &(place, number) in changes {
            self.0[place as usize] = number;
        }
        self
    }
}

impl Mask {
    /// What a choice depends on, and all that it may change.
    ///
    /// A rank's calls see its own engine, memory and endpoint, and what it has on the way to others; a packet
    /// leaves its route and gives its sender credit; the fabric reads and writes memory on behalf of the
    /// origin. A death is seen by everybody. A rank sees the memory of its neighbours, too.
    pub(super) fn of(choice: Choice, near_ranks: u32) -> Self {
        let global = Self::place(GLOBAL);
        match choice {
            Choice::Step(rank) => Self::own(rank).and(Self::near(rank, near_ranks)).and(global),
            Choice::Arrive(rank, first, second) => {
                let arrived = |mask: Self, delivery: Delivery| {
                    let (origin, target) = delivery.route();
                    let (origin, target) = (origin as usize, target as usize);
                    mask.and(Self::place(ROUTES + RANKS_MAX * origin + target))
                        .and(Self::place(CREDITS + origin))
                };
                let arrivals = [Some(first), second].into_iter().flatten();
                arrivals.fold(Self::own(rank).and(Self::near(rank, near_ranks)).and(global), arrived)
            }
            Choice::Execute(delivery) => {
                let (origin, target) = delivery.route();
                Self::own(origin)
                    .and(Self::place(MEMORY + target as usize))
                    .and(Self::place(ENDPOINT + target as usize))
                    .and(global)
            }
            Choice::Kill(_) => Self((1 << LEN) - 1),
        }
    }

    /// A rank's own parts, and what it has on the way.
    fn own(rank: u32) -> Self {
        let rank = rank as usize;
        let kinds = [PROGRAM, MEMORY, ENDPOINT, CREDITS].into_iter();
        let own = kinds.fold(Self(0), |mask, kind| mask.and(Self::place(kind + rank)));
        (0..RANKS_MAX).fold(own, |mask, other| mask.and(Self::place(ROUTES + RANKS_MAX * rank + other)))
    }

    /// The memory of those who share theirs with a rank.
    fn near(rank: u32, near_ranks: u32) -> Self {
        let group = |rank: usize| (rank as u32).checked_div(near_ranks);
        let neighbours =
            (0..RANKS_MAX).filter(|&other| near_ranks > 0 && group(other) == group(rank as usize));
        neighbours.fold(Self(0), |mask, other| {
            mask.and(Self::place(MEMORY + other)).and(Self::place(ENDPOINT + other))
        })
    }

    fn place(place: usize) -> Self {
        Self(1 << place)
    }

    fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn places(self) -> impl Iterator<Item = usize> {
        (0..LEN).filter(move |place| self.0 >> place & 1 != 0)
    }

    /// Whether these changes are all of chosen parts.
    pub(super) fn covers(self, changes: &[(u8, u64)]) -> bool {
        changes.iter().all(|(place, _)| self.0 >> place & 1 != 0)
    }
}

/// Adds a number to a hash: one to one for each of the two, and every bit of both counts.
fn mix(hash: u64, number: u64) -> u64 {
    let mut mixed = hash.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
