//! What somebody who waits for a lock sees once a rank has died, and when it gives up.
//!
//! The words name who is alone, and nobody else: those who share the lock are only counted, and of the tickets nobody
//! knows whose they are. So what does not move may be the living's, who sleep or compute, as well as the dead's. Time
//! tells, and not the number of looks: of those there may be thousands while the next one in line wakes up.

use super::line::{holder_of, Tickets};
use super::Word;
use crate::ids::Rank;

/// Parts of time.
pub(super) const PATIENCE: u8 = 20;

/// The same where somebody who lives is known to have the ticket that comes next: it is late, and not lost. Even so it may
/// have given up itself, or have left out of turn, so that there is an end to this, too.
const PATIENCE_WITH_NEXT: u8 = 4 * PATIENCE;

/// What can be said of a lock that is waited for after a death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may still come.
    Waits,
    /// It will not, unless somebody who lives is known to have this ticket, which comes next.
    Late(u32),
    /// It will not.
    Lost,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Vigil {
    /// By word, what it was after a death, and whether that has been seen since it was judged last.
    seen: [u64; 2],
    has_seen: [bool; 2],
    /// What was judged last, when nobody living was seen to hold the lock.
    last: Option<[u64; 2]>,
    /// Parts of time since this was first seen.
    age: u8,
    /// It was looked in this part.
    has_looked: bool,
}

impl Vigil {
    pub(super) const NONE: Self =
        Self { seen: [0; 2], has_seen: [false; 2], last: None, age: 0, has_looked: false };

    pub(super) fn see(&mut self, word: Word, old: u64) {
        // Who comes and draws a ticket moves nothing.
        let what = if word == Word::Tickets { Tickets(old).without_next() } else { old };
        (self.seen[word as usize], self.has_seen[word as usize]) = (what, true);
    }

    pub(super) fn on_time(&mut self, parts: u8) {
        if self.last.is_some() && core::mem::take(&mut self.has_looked) {
            self.age = self.age.saturating_add(parts);
        }
    }

    /// See [`super::WordLock::find_out`].
    pub(super) fn judge(
        &mut self,
        me: Rank,
        waits_for_turn: bool,
        is_alive: impl Fn(Rank) -> bool,
    ) -> Verdict {
        if !self.has_seen[1] || (waits_for_turn && !self.has_seen[0]) {
            return Verdict::Waits;
        }
        self.has_seen = [false; 2];
        let [tickets, holder] = self.seen;
        let alone = holder_of(holder);
        // Those who come and go under lock_all are not who has the tickets.
        let now = if waits_for_turn { [tickets, holder >> 32] } else { [0, holder] };
        if alone.is_some_and(is_alive) {
            (self.last, self.age) = (None, 0);
            return Verdict::Waits;
        }
        self.has_looked = true;
        if self.last != Some(now) {
            (self.last, self.age) = (Some(now), 0);
            return Verdict::Waits;
        }
        // Who is named and is dead will never go: what it had under way has had the time of a look.
        let is_certain = alone.is_some_and(|rank| rank != me);
        match self.age {
            _ if is_certain => Verdict::Lost,
            ..PATIENCE => Verdict::Waits,
            PATIENCE..PATIENCE_WITH_NEXT if waits_for_turn => Verdict::Late(Tickets(tickets).served()),
            _ => Verdict::Lost,
        }
    }
}
