//! A peer's part: what it changes in memory of the owner's that it has mapped.

use super::head::Patience;
use super::{Party, Size, TurnWord};
use crate::guard;
use crate::head::Head;
use crate::peer::Known;

/// The elements of a region that was looked up.
#[derive(Debug)]
pub(crate) struct PeerElements<'a> {
    pub(crate) head: &'a Head,
    pub(crate) lane: usize,
    pub(crate) known: &'a Known,
    pub(crate) patience: Patience,
}

impl Party for PeerElements<'_> {
    #[inline]
    fn begin(&mut self) {
        guard::begin(&self.head.busy(self.lane));
    }

    #[inline]
    fn end(&mut self) {
        guard::end(&self.head.busy(self.lane));
    }

    #[inline]
    fn is_there(&self) -> bool {
        self.known.is_there(self.head)
    }

    #[inline]
    fn word(&self) -> impl TurnWord {
        self.head.turn_word(self.known.slot)
    }

    fn settle(&self) -> bool {
        self.head.settle(Some(self.lane))
    }

    fn wait(&mut self, seen: u64, size: Size) -> bool {
        let goes_on = self.patience.pause_for(size);
        if !goes_on {
            self.head.take_turn_from_dead(self.known.slot, seen);
        }
        goes_on
    }
}
