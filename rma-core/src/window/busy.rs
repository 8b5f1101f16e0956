//! Targets that have kept a lock request waiting, and how many epochs their words are taken instead.

use crate::ids::Rank;
use crate::pool::NONE;

/// Targets that are remembered at one time; of those that share a place the last one.
const PLACES: usize = 8;

/// Epochs that a target is spared when it has kept somebody waiting for the first time, and at most.
const FIRST: u16 = 16;
const MOST: u16 = 4096;

/// How much longer a target is spared that is as busy as before when it is asked again.
const GROWTH: u16 = 8;

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Busy {
    rank: Rank,
    /// Epochs until it is asked by a packet again.
    left: u16,
    /// How many there were; half as many for each answer in time, so that one long wait is not held against it for ever.
    span: u16,
}

/// What is remembered of them in a window whose locks may be had in both ways.
#[derive(Debug)]
pub(crate) struct BusyTargets([Busy; PLACES]);

impl BusyTargets {
    pub(crate) const NONE: Self = Self([Busy { rank: Rank(NONE), left: 0, span: 0 }; PLACES]);

    fn place(&mut self, rank: Rank) -> &mut Busy {
        &mut self.0[rank.0 as usize % PLACES]
    }

    /// A request was not answered while its origin spun. Says it of each request once: who is spared is not asked.
    pub(crate) fn on_kept_waiting(&mut self, rank: Rank) {
        let busy = self.place(rank);
        if busy.rank != rank {
            *busy = Busy { rank, left: FIRST, span: FIRST };
        } else if busy.left == 0 {
            busy.span = busy.span.saturating_mul(GROWTH).clamp(FIRST, MOST);
            busy.left = busy.span;
        }
    }

    /// An epoch is about to lock the target: whether it is spared.
    pub(crate) fn is_spared(&mut self, rank: Rank) -> bool {
        let busy = self.place(rank);
        if busy.rank != rank {
            return false;
        }
        let is_spared = busy.left > 0;
        busy.left = busy.left.saturating_sub(1);
        is_spared
    }

    /// A request was answered; in time, if the target is not spared for it by now.
    pub(crate) fn on_answered(&mut self, rank: Rank) {
        let busy = self.place(rank);
        if busy.rank == rank && busy.left == 0 {
            busy.span /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Epochs by words until the target is asked again.
    fn spared(busy: &mut BusyTargets, rank: Rank) -> u32 {
        (0..).find(|_| !busy.is_spared(rank)).unwrap_or_default()
    }

    #[test]
    fn who_stays_busy_is_spared_for_longer_and_longer() {
        let (mut busy, rank) = (BusyTargets::NONE, Rank(3));
        assert!(!busy.is_spared(rank));
        let spans = [(); 5].map(|()| {
            busy.on_kept_waiting(rank);
            // The same request is still not answered.
            busy.on_kept_waiting(rank);
            // That it is answered at last makes it no better.
            busy.on_answered(rank);
            spared(&mut busy, rank)
        });
        assert_eq!(spans, [16, 128, 1024, 4096, 4096]);
        // Answers at once for a while; it does not matter how often the fabric refuses a request.
        for _ in 0..20 {
            assert_eq!((spared(&mut busy, rank), spared(&mut busy, rank)), (0, 0));
            busy.on_answered(rank);
        }
        busy.on_kept_waiting(rank);
        assert_eq!(spared(&mut busy, rank), 16);
    }

    #[test]
    fn the_last_one_in_a_place_is_remembered() {
        let mut busy = BusyTargets::NONE;
        let (one, other) = (Rank(1), Rank(1 + PLACES as u32));
        busy.on_kept_waiting(one);
        assert!(busy.is_spared(one) && !busy.is_spared(other));
        busy.on_kept_waiting(other);
        assert!(busy.is_spared(other) && !busy.is_spared(one));
    }
}
