//! Locks that nobody is in the way of, where words can be swapped within the call: all of it in one or two swaps, each of
//! which says what it expects. Where one of them does not find that, nothing is kept of the rest, and the lock goes the
//! way of the [machine](super::WordLock).

use super::line::{alone, Tickets};
use super::{Claim, Memo, Phase, Word, WordLock};
use crate::ids::Rank;
use crate::mutation::Mutation;

/// A word, what is expected there, and what is put in its place.
pub type Swap = (Word, u64, u64);

/// What takes a lock, or gives it back, and what the first word says then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swaps<const N: usize> {
    /// One after the other, each only if the one before was as expected.
    pub swaps: [Swap; N],
    /// The first word behind them.
    pub tickets: Tickets,
}

impl Tickets {
    /// Whether a ticket can be drawn that carries nowhere, nor its end.
    fn is_plain(self) -> bool {
        self.next() != Self::LAST
    }

    /// Takes the lock alone, where nobody has it or waits for it. The second word is free, or nothing comes of it.
    pub fn take_alone(self, me: Rank) -> Option<Swaps<2>> {
        let is_free = self.is_plain() && self.next() == self.served() && self.next() == self.admitted();
        let tickets = Self(self.0.wrapping_add(Self::DRAW));
        let free = if Mutation::NowPassesLockAll.is_on() { 1 } else { 0 };
        let swaps = [(Word::Tickets, self.0, tickets.0), (Word::Holder, free, alone(me))];
        is_free.then_some(Swaps { swaps, tickets })
    }

    /// Takes it beside others that share it, where nobody waits: draws a ticket, and lets the next one in.
    pub fn take_shared(self) -> Option<Swaps<1>> {
        let is_open =
            self.is_plain() && (self.next() == self.admitted() || Mutation::NowShareUnasked.is_on());
        let tickets = Self(self.0.wrapping_add(Self::DRAW).wrapping_add(Self::admit(None)));
        is_open.then_some(Swaps { swaps: [(Word::Tickets, self.0, tickets.0)], tickets })
    }

    /// Gives back what [`Tickets::take_alone`] has taken, where nobody has come since.
    pub fn leave_alone(self, me: Rank) -> Swaps<2> {
        let tickets = Self(self.0.wrapping_add(Self::SERVE).wrapping_add(Self::admit(None)));
        // Who has locked all comes in a moment before the others could.
        let swaps = [(Word::Holder, alone(me), 0), (Word::Tickets, self.0, tickets.0)];
        Swaps { swaps, tickets }
    }

    /// The same of [`Tickets::take_shared`].
    pub fn leave_shared(self) -> Swaps<1> {
        let tickets = Self(self.0.wrapping_add(Self::SERVE));
        Swaps { swaps: [(Word::Tickets, self.0, tickets.0)], tickets }
    }
}

impl WordLock {
    /// What is left to be given back of a lock that was to be taken, or given back, in one go: its ticket, and the
    /// second word, if `is_noted`.
    pub fn leaving(claim: Claim, me: Rank, is_noted: bool) -> Self {
        let held = Self::resumed(claim, me, Memo::Held);
        Self { phase: Phase::Leaving, is_noted: held.is_noted && is_noted, ..held }
    }
}
