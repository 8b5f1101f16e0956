//! The window protocol of lock_all: walk over all ranks with a cursor, never with a list of them.

use super::FewRanks;
use crate::ids::Rank;
use crate::mutation::Mutation;

/// Packets of the walk that may be unanswered at one time; so many ranks may have to be asked again.
pub const DETACHED_IN_FLIGHT: usize = FewRanks::CAPACITY;

/// A walk over the ranks 0 to `size - 1`, with at most [`DETACHED_IN_FLIGHT`] unanswered.
#[derive(Debug, Default)]
pub struct LockAllCursor {
    next: u32,
    size: u32,
    unanswered: FewRanks,
    again: [u32; DETACHED_IN_FLIGHT],
    again_count: usize,
}

impl LockAllCursor {
    /// A walk that is over.
    pub fn idle() -> Self {
        Self::default()
    }

    /// A walk that begins at rank 0.
    pub fn over(size: u32) -> Self {
        Self { size, ..Self::default() }
    }

    /// The ranks that were asked and have not answered.
    pub fn unanswered(&self) -> &FewRanks {
        &self.unanswered
    }

    /// The rank to ask next, if one may be asked now. Offered again until one of the `on_*` below.
    pub fn poll_rank(&self) -> Option<Rank> {
        if self.unanswered.is_full() {
            None
        } else if self.again_count > 0 {
            Some(Rank(self.again[self.again_count - 1]))
        } else {
            (self.next < self.size).then_some(Rank(self.next))
        }
    }

    /// The offered rank needs no packet.
    pub fn on_skipped(&mut self) {
        if self.again_count > 0 {
            self.again_count -= 1;
        } else {
            self.next += 1;
        }
    }

    /// The offered rank was asked.
    pub fn on_asked(&mut self) {
        let offered = self.poll_rank();
        self.on_skipped();
        offered.map(|rank| self.unanswered.insert(rank));
    }

    /// A rank answered. `false`: it was not asked.
    pub fn on_answer(&mut self, rank: Rank) -> bool {
        self.unanswered.remove(rank)
    }

    /// The rank cannot be reached any more: its answer is not waited for. `false`: none was.
    pub fn on_lost(&mut self, rank: Rank) -> bool {
        self.unanswered.remove_all(rank) > 0
    }

    /// A rank was too busy and must be asked again. `false`: it was not asked.
    pub fn on_retry(&mut self, rank: Rank) -> bool {
        if !self.on_answer(rank) {
            return false;
        }
        if Mutation::WalkForgetsRetry.is_on() {
            return true;
        }
        match self.again.get_mut(self.again_count) {
            Some(entry) => {
                *entry = rank.0;
                self.again_count += 1;
                true
            }
            None => false,
        }
    }

    /// Whether every rank was asked and has answered.
    pub fn is_done(&self) -> bool {
        let is_answered = self.unanswered.is_empty() || Mutation::WalkIgnoresAnswers.is_on();
        self.next >= self.size && is_answered && self.again_count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_asked_until_it_answers() {
        let mut cursor = LockAllCursor::over(100);
        let mut granted = [0; 100];
        let mut asked = alloc::collections::VecDeque::new();
        let mut step = 0;
        while !cursor.is_done() {
            while let Some(rank) = cursor.poll_rank() {
                cursor.on_asked();
                asked.push_back(rank);
            }
            assert!(asked.len() <= DETACHED_IN_FLIGHT);
            let rank = asked.pop_front().unwrap();
            step += 1;
            if step % 3 == 0 {
                assert!(cursor.on_retry(rank));
            } else {
                granted[rank.index()] += 1;
                assert!(cursor.on_answer(rank));
            }
        }
        assert!(granted.iter().all(|&count| count == 1));
        assert!(!cursor.on_answer(Rank(0)) && !cursor.on_retry(Rank(0)), "nobody was asked");
    }

    #[test]
    fn the_dead_are_not_waited_for() {
        let mut cursor = LockAllCursor::over(3);
        (0..3).for_each(|_| cursor.on_asked());
        assert!(cursor.on_answer(Rank(0)) && cursor.on_answer(Rank(2)) && !cursor.is_done());
        assert!(!cursor.on_lost(Rank(2)), "it has answered");
        assert!(cursor.on_lost(Rank(1)) && cursor.is_done());
    }
}
