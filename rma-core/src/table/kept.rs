//! The passage to the neighbour with which a program repeats puts, gets and atomics, kept beside the shortcut, which says whether it
//! leads to its target. It outlives that: the next epoch with the same neighbour has it again.

use crate::ids::{Rank, WindowId};
use crate::pool::NONE;

/// `P` is the [`Passage`](crate::provider::Passage) of the endpoint.
#[derive(Debug)]
pub(crate) struct KeptPassage<P> {
    window: WindowId,
    rank: Rank,
    pub(crate) way: Option<P>,
}

impl<P> KeptPassage<P> {
    /// None.
    pub(crate) const NONE: Self = Self { window: WindowId(NONE), rank: Rank(NONE), way: None };

    /// One to this rank's part of the window, or that there is none.
    pub(crate) fn to(window: WindowId, rank: Rank, way: Option<P>) -> Self {
        Self { window, rank, way }
    }

    /// Whether it was asked for one to there; there may be none.
    pub(crate) fn is_to(&self, window: WindowId, rank: Rank) -> bool {
        self.window == window && self.rank == rank
    }

    /// Gives it back when its window is freed, so that nothing of that stays mapped.
    pub(crate) fn forget(&mut self, window: WindowId) {
        if self.window == window {
            *self = Self::NONE;
        }
    }
}
