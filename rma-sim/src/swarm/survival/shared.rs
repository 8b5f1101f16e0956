//! What the ranks of a run with a death know of each other outside of the library.

use super::tasks::{DYNAMIC, EXPOSED, FENCED, LOCKED};
use crate::random::Random;
use crate::swarm::memory::Exposed;
use crate::world::Fault;

/// Bytes of a word.
pub(super) const WORD: usize = 8;

/// How a window is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flavor {
    Allocated,
    Shared,
    Dynamic,
}

/// What the ranks of a run know of each other outside of the library. A rank's part of a window begins with a counter,
/// in programs that use everything with a word that is notified behind it, and then has a part of each origin.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ranks: u32,
    pub(super) part_bytes: usize,
    pub(super) flavors: Vec<Flavor>,
    pub(super) victim: u32,
    pub(super) is_silent: bool,
    pub(super) is_dead: bool,
    /// Ranks that have made their windows; nobody dies before all have.
    pub(super) created: u32,
    /// Ranks that are through with their tasks.
    pub(super) arrived: Vec<bool>,
    /// Fences that each rank has begun.
    pub(super) fences: Vec<u32>,
    /// Where each rank's region of the dynamic window is.
    pub(super) addresses: Vec<u64>,
    /// By window, target and origin: increments posted, notifications, and the number put last.
    pub(super) counted: Vec<Vec<Vec<u64>>>,
    pub(super) noted: Vec<Vec<Vec<u64>>>,
    pub(super) put: Vec<Vec<Vec<u64>>>,
}

impl Shared {
    pub(super) fn new(
        ranks: u32,
        part_bytes: usize,
        victim: u32,
        is_silent: bool,
        flavors: Vec<Flavor>,
    ) -> Self {
        let each = || vec![vec![vec![0; ranks as usize]; ranks as usize]; flavors.len()];
        let (counted, noted, put) = (each(), each(), each());
        Self {
            ranks,
            part_bytes,
            victim,
            is_silent,
            is_dead: false,
            created: 0,
            arrived: vec![false; ranks as usize],
            fences: vec![0; ranks as usize],
            addresses: vec![0; ranks as usize],
            counted,
            noted,
            put,
            flavors,
        }
    }

    /// The windows of a program that uses everything.
    pub(super) fn draw_flavors(random: &mut Random) -> Vec<Flavor> {
        let mut flavors = vec![Flavor::Allocated; 4];
        for window in [LOCKED, EXPOSED, FENCED] {
            if random.chance(300) {
                flavors[window] = Flavor::Shared;
            }
        }
        flavors[DYNAMIC] = Flavor::Dynamic;
        flavors
    }

    /// Whether the programs use everything.
    pub(super) fn is_wide(&self) -> bool {
        self.flavors.len() > 2
    }

    /// Bytes before the parts.
    pub(super) fn head_bytes(&self) -> usize {
        if self.is_wide() {
            2 * WORD
        } else {
            WORD
        }
    }

    /// Bytes of each rank's part of a window.
    pub(super) fn window_bytes(&self) -> usize {
        self.head_bytes() + self.part_bytes * self.ranks as usize
    }

    /// Whether everybody who lives is through.
    pub(super) fn have_arrived(&self) -> bool {
        let is_dead = |rank: usize| self.is_dead && rank == self.victim as usize;
        self.arrived.iter().enumerate().all(|(rank, &arrived)| arrived || is_dead(rank))
    }

    /// Whether what a collective call of this number needs of the victim may be there.
    pub(super) fn has_victim_begun_fence(&self, number: u32) -> bool {
        !self.is_dead || self.fences[self.victim as usize] >= number
    }

    /// What the living have done here counts exactly; what the dead did may have come or not, and what was done between
    /// fences that failed, too.
    pub(super) fn check(&self, window: usize, rank: u32, memory: Exposed) -> Result<(), Fault> {
        let is_unsure = self.is_dead && window == FENCED;
        let word = |offset: usize| {
            let mut raw = [0; WORD];
            raw.copy_from_slice(&memory.read(offset, WORD));
            u64::from_ne_bytes(raw)
        };
        let sums = [(0, "counter", &self.counted), (WORD, "notifications", &self.noted)];
        for (offset, name, table) in sums.into_iter().take(self.head_bytes() / WORD) {
            let by_origin = &table[window][rank as usize];
            let most: u64 = by_origin.iter().sum();
            let unsure = match self.is_dead {
                true if is_unsure => most,
                true => by_origin[self.victim as usize],
                false => 0,
            };
            let found = word(offset);
            if found > most || found < most - unsure {
                let text = format!("window {window}: {name} {found} and not {most}, less {unsure}");
                return Err(Fault::Oracle(text));
            }
        }
        for (origin, &put) in self.put[window][rank as usize].iter().enumerate() {
            let begin = self.head_bytes() + origin * self.part_bytes;
            let mut words = (begin..begin + self.part_bytes).step_by(WORD).map(word);
            let is_dead = self.is_dead && origin == self.victim as usize;
            let wrong = words.find(|&found| found > put || found < put && !is_dead && !is_unsure);
            if let Some(found) = wrong {
                let text = format!("window {window}: {found} and not {put} of rank {origin}");
                return Err(Fault::Oracle(text));
            }
        }
        Ok(())
    }
}
