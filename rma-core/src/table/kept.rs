//! The passage to the neighbour with which a program repeats puts, gets and atomics, kept beside the shortcut, which says whether it
//! leads to its target. It outlives that: the next epoch with the same neighbour has it again.

use crate::ids::{Rank, RemoteKey, WindowId};
use crate::pool::NONE;
use crate::provider::{RemoteAddr, RemotePiece};

/// No memory.
const NOWHERE: RemotePiece = RemotePiece { at: RemoteAddr { addr: 0, key: RemoteKey(0) }, len: 0 };

/// `P` is the [`Passage`](crate::provider::Passage) of the endpoint.
#[derive(Debug)]
pub(crate) struct KeptPassage<P> {
    window: WindowId,
    rank: Rank,
    /// What the rank's part of the window was when it was asked for.
    memory: RemotePiece,
    pub(crate) way: Option<P>,
}

impl<P> KeptPassage<P> {
    /// None.
    pub(crate) const NONE: Self =
        Self { window: WindowId(NONE), rank: Rank(NONE), memory: NOWHERE, way: None };

    /// One to this rank's part of the window.
    pub(crate) fn to(window: WindowId, rank: Rank, memory: RemotePiece, way: P) -> Self {
        Self { window, rank, memory, way: Some(way) }
    }

    /// Whether it leads to this memory of a rank's. Places are looked for in what a rank has said of its part last: one that
    /// has said something else since is not led there.
    #[inline]
    pub(crate) fn is_to(&self, window: WindowId, rank: Rank, memory: RemotePiece) -> bool {
        self.window == window && self.rank == rank && self.memory == memory && self.way.is_some()
    }

    /// Gives it back when its window is freed, so that nothing of that stays mapped.
    pub(crate) fn forget(&mut self, window: WindowId) {
        if self.window == window {
            *self = Self::NONE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_leads_to_what_it_was_asked_for() {
        let memory = |addr, key, len| RemotePiece { at: RemoteAddr { addr, key: RemoteKey(key) }, len };
        let mut kept = KeptPassage::to(WindowId(1), Rank(2), memory(16, 3, 100), ());
        assert!(kept.is_to(WindowId(1), Rank(2), memory(16, 3, 100)));
        for other in [memory(0, 3, 100), memory(16, 4, 100), memory(16, 3, 1 << 40)] {
            assert!(!kept.is_to(WindowId(1), Rank(2), other), "{other:?}");
        }
        assert!(!kept.is_to(WindowId(0), Rank(2), memory(16, 3, 100)));
        assert!(!kept.is_to(WindowId(1), Rank(0), memory(16, 3, 100)));
        kept.forget(WindowId(0));
        assert!(kept.way.is_some());
        kept.forget(WindowId(1));
        assert!(!kept.is_to(WindowId(1), Rank(2), memory(16, 3, 100)));
        assert!(!KeptPassage::<()>::NONE.is_to(WindowId(NONE), Rank(NONE), NOWHERE));
    }
}
