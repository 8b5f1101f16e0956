//! What the two words say.

use crate::ids::Rank;
use crate::mutation::Mutation;

/// The first word, from the lowest bit: the ticket of whom comes next as a shared holder (21 bits), the next ticket
/// to be drawn (21), a guard bit, and the ticket of whom comes next alone (21), which is how many have gone.
///
/// Each number grows modulo 2^21. The highest falls off by itself. The lowest is changed by one at a time, who knows
/// what it is and takes back what it carries; the one in the middle carries into the guard bit, and who has drawn the
/// last ticket takes that back, too. The next one that could carry there draws after that, as there are no more ranks
/// than half as many tickets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tickets(pub u64);

const BITS: u32 = 21;
const GUARD: u64 = 1 << (2 * BITS);

impl Tickets {
    /// The last ticket before they begin again.
    pub const LAST: u32 = (1 << BITS) - 1;

    /// Most ranks of a job whose windows are locked so.
    pub const RANKS_MAX: u32 = 1 << (BITS - 1);

    /// Added to draw a ticket.
    pub(super) const DRAW: u64 = 1 << BITS;

    /// Added to let the next one in that wants to be alone.
    pub(super) const SERVE: u64 = 1 << (2 * BITS + 1);

    /// Nobody has the lock, and this is the next ticket.
    pub const fn free(ticket: u32) -> Self {
        let ticket = ticket as u64;
        Self(ticket * Self::SERVE + ticket * Self::DRAW + ticket)
    }

    /// The next ticket.
    pub fn next(self) -> u32 {
        (self.0 >> BITS) as u32 & Self::LAST
    }

    /// Whose turn it is to come in beside shared holders.
    pub fn admitted(self) -> u32 {
        self.0 as u32 & Self::LAST
    }

    /// Whose turn it is to come in alone.
    pub fn served(self) -> u32 {
        (self.0 >> (2 * BITS + 1)) as u32
    }

    /// The word without the next ticket: what changes when somebody comes in or goes.
    pub(super) fn without_next(self) -> u64 {
        self.0 & !(u64::from(Self::LAST) << BITS | GUARD)
    }

    /// The ticket behind this one, if somebody has drawn it.
    pub(super) fn drawn_behind(self, ticket: u32) -> Option<u32> {
        let behind = ticket.wrapping_add(1) & Self::LAST;
        (behind != self.next()).then_some(behind)
    }

    /// Added by the holder of a ticket to let the next shared one in.
    pub(super) fn admit(ticket: Option<u32>) -> u64 {
        if ticket != Some(Self::LAST) || Mutation::WordCarryKept.is_on() {
            return 1;
        }
        1_u64.wrapping_sub(Self::DRAW + GUARD)
    }
}

/// The rank that is alone, or wants to be and has come early, as the second word names it. Its lower half counts
/// those who have locked all ranks.
pub fn holder_of(word: u64) -> Option<Rank> {
    let above = (word >> 32) as u32;
    above.checked_sub(1).map(Rank)
}

/// The second word while `rank` is alone.
pub(super) fn alone(rank: Rank) -> u64 {
    (u64::from(rank.0) + 1) << 32
}
