//! Locks that nobody is in the way of, where words can be swapped within the call: all of it in one or two swaps, each of
//! which says what it expects. Where one of them does not find that, the rest is not done, and the lock goes the way of the
//! [machine](super::WordLock), with what was done.

use super::line::{alone, holder_of, Tickets};
use super::Word;
use crate::ids::Rank;
use crate::mutation::Mutation;

/// A word, what is expected there, and what is put in its place.
pub type Swap = (Word, u64, u64);

impl Tickets {
    /// Whether a ticket can be drawn that carries nowhere, nor its end.
    fn is_plain(self) -> bool {
        self.next() != Self::LAST
    }

    /// Takes the lock alone, where nobody has it or waits for it; one after the other. The second word is free, or nothing
    /// comes of it.
    #[inline]
    pub fn take_alone(self, me: Rank) -> Option<[Swap; 2]> {
        let is_free = self.is_plain() && self.next() == self.served() && self.next() == self.admitted();
        let free = u64::from(Mutation::NowPassesLockAll.is_on());
        let drawn = self.0.wrapping_add(Self::DRAW);
        is_free.then_some([(Word::Tickets, self.0, drawn), (Word::Holder, free, alone(me))])
    }

    /// Takes it beside others that share it, where nobody waits: draws a ticket, and lets the next one in.
    #[inline]
    pub fn take_shared(self) -> Option<[Swap; 1]> {
        let is_open = self.next() == self.admitted() || Mutation::NowShareUnasked.is_on();
        let passed = self.0.wrapping_add(Self::DRAW).wrapping_add(Self::admit(None));
        (self.is_plain() && is_open).then_some([(Word::Tickets, self.0, passed)])
    }

    /// Gives back what [`Tickets::take_alone`] has taken, where nobody has come since.
    #[inline]
    pub fn leave_alone(self, me: Rank) -> [Swap; 2] {
        let left = self.0.wrapping_add(Self::SERVE).wrapping_add(Self::admit(None));
        // In this order: who waits for the dead would else see nobody alone, and a turn that does not come.
        [(Word::Tickets, self.0, left), (Word::Holder, alone(me), 0)]
    }

    /// The same of [`Tickets::take_shared`].
    #[inline]
    pub fn leave_shared(self) -> [Swap; 1] {
        [(Word::Tickets, self.0, self.0.wrapping_add(Self::SERVE))]
    }
}

/// Counts this rank among those that have locked all, where nobody is alone.
#[inline]
pub fn take_everywhere(holder: u64) -> Option<[Swap; 1]> {
    let is_open = holder_of(holder).is_none() || Mutation::NowPassesAlone.is_on();
    is_open.then_some([(Word::Holder, holder, holder.wrapping_add(1))])
}

/// The same no more.
#[inline]
pub fn leave_everywhere(holder: u64) -> [Swap; 1] {
    [(Word::Holder, holder, holder.wrapping_sub(1))]
}
