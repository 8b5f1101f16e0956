//! Locks of neighbours that have no target element: taken by the first operation, and given back by unlock, in one swap of
//! words or two, where nobody is in the way. As every operation on such a neighbour is over when its call returns, there is
//! nothing that an element would have to keep. Whatever is not so simple makes one, and goes the usual way.

use super::near::change;
use super::tag::LockSeat;
use super::waiters::NearWords;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::counters::Counters;
use crate::ids::Rank;
use crate::lock::words::{Claim, Memo, Ran, Swaps, Tickets, Word, WordLock};
use crate::lock::LockType;
use crate::provider::Endpoint;
use crate::state::TargetLockState;
use crate::window::{NearTarget, Window};

/// How many times it is tried to take a lock at once: the second time with what the first has found.
const TRIES: usize = 2;

/// What came of a try to take a lock at once.
enum Taken {
    All,
    Nothing,
    /// A ticket, whose turn has come; but somebody has locked all ranks.
    Ticket,
}

/// Swaps words; how many were as expected, and what the first word may be from now on. `None`: that cannot be done at once.
#[inline(always)]
fn swap<const N: usize>(
    (endpoint, counters): (&mut impl Endpoint, &mut Counters),
    near: &mut NearTarget,
    Swaps { swaps, tickets }: Swaps<N>,
) -> Option<usize> {
    let done = endpoint.swap_now(near.peer, swaps.map(|swap| near.swap(swap)))?;
    counters.lock_atomics += N.min(done.count + 1) as u64;
    match swaps.get(done.count) {
        Some((word, ..)) => near.learn(*word, done.other),
        None => near.tickets = tickets,
    }
    Some(done.count)
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// The neighbour to which an operation may go at once, as its lock is held without an element; takes that if it was only
    /// called and nobody is in the way.
    #[inline]
    pub(crate) fn hold_parked<'w>(
        &mut self,
        w: &'w mut Window<E::Region>,
        target: Rank,
    ) -> Option<&'w NearTarget> {
        if w.parked.count() == 0 || self.is_mourning() {
            return None;
        }
        let lock = w.parked.find(target).filter(|lock| !lock.is_closing)?;
        let forgotten = self.peers.forgotten();
        match (lock.lock, lock.words) {
            (TargetLockState::Granted, Memo::Held) => {}
            (TargetLockState::Called, Memo::None) if !lock.no_check => {
                let lock_type = lock.lock_type;
                let near = w.words.as_mut()?.near.find(target, forgotten)?;
                self.steps_at_once += 1;
                match self.take_at_once(near, lock_type) {
                    Taken::All => {}
                    Taken::Nothing => return None,
                    Taken::Ticket => {
                        let words = NearWords { peer: near.peer, at: near.place };
                        self.leave_rest(w, words, WordLock::leaving(Claim::Exclusive, self.rank, false));
                        return None;
                    }
                }
                let lock = w.parked.find_mut(target)?;
                // No packet of the epoch says LOCK or UNLOCK.
                (lock.lock, lock.words, lock.no_check) = (TargetLockState::Granted, Memo::Held, true);
            }
            _ => return None,
        }
        w.words.as_mut()?.near.find(target, forgotten).map(|near| &*near)
    }

    #[inline(always)]
    fn take_at_once(&mut self, near: &mut NearTarget, lock_type: LockType) -> Taken {
        let Self { endpoint, counters, rank, .. } = self;
        for _ in 0..TRIES {
            let count =
                match lock_type {
                    LockType::Exclusive => near.tickets.take_alone(*rank).map(|swaps| {
                        swap((&mut *endpoint, &mut *counters), near, swaps).map(|count| (count, 2))
                    }),
                    LockType::Shared => near.tickets.take_shared().map(|swaps| {
                        swap((&mut *endpoint, &mut *counters), near, swaps).map(|count| (count, 1))
                    }),
                };
            match count {
                // Somebody was in the way when it was looked at last: the next epoch finds out what is there then.
                None => {
                    near.tickets = Tickets::free(0);
                    return Taken::Nothing;
                }
                Some(None) => return Taken::Nothing,
                Some(Some((count, all))) if count == all => return Taken::All,
                Some(Some((0, _))) => {}
                Some(Some(_)) => return Taken::Ticket,
            }
        }
        Taken::Nothing
    }

    /// Ends the epoch of a lock without element, if what is held can be given back at once. `false`: the lock is as it was,
    /// or as much of it as is left.
    #[inline]
    pub(crate) fn leave_parked(&mut self, w: &mut Window<E::Region>, target: Rank) -> bool {
        if self.is_mourning() {
            return false;
        }
        let Some(lock) = w.parked.find(target).filter(|lock| !lock.is_closing) else { return false };
        let lock_type = lock.lock_type;
        match (lock.lock, lock.words) {
            // Nothing was done, and nothing was locked.
            (TargetLockState::Called, Memo::None) => {
                w.parked.remove(target);
                return true;
            }
            (TargetLockState::Granted, Memo::Held) => {}
            _ => return false,
        }
        let forgotten = self.peers.forgotten();
        let near = w.words.as_mut().and_then(|words| words.near.find(target, forgotten));
        let Some(near) = near else { return false };
        self.steps_at_once += 1;
        let Self { endpoint, counters, rank, .. } = self;
        let (left, all) = match lock_type {
            LockType::Exclusive => {
                let swaps = near.tickets.leave_alone(*rank);
                (swap((endpoint, counters), near, swaps), 2)
            }
            LockType::Shared => (swap((endpoint, counters), near, near.tickets.leave_shared()), 1),
        };
        let Some(count) = left else { return false };
        if count == all {
            // A swap is a full fence.
            self.is_unfenced = false;
        } else {
            let words = NearWords { peer: near.peer, at: near.place };
            let lock = WordLock::leaving(Claim::of(lock_type, false), self.rank, count == 0);
            if !self.leave_rest(w, words, lock) {
                return false;
            }
        }
        w.parked.remove(target);
        true
    }

    /// Gives back what is left of a lock, and wakes whose turn comes. Whether that could be done at once.
    #[cold]
    #[inline(never)]
    fn leave_rest(&mut self, w: &Window<E::Region>, near: NearWords, mut lock: WordLock) -> bool {
        loop {
            let Self { endpoint, counters, .. } = self;
            let ran = lock.run(|word, atomic| {
                counters.lock_atomics += 1;
                change(endpoint, near, word, atomic, LockSeat::Waiters.tag(Word::Tickets, 0))
            });
            match ran {
                Ran::Over => return lock.is_idle(),
                Ran::LetIn(ticket) => self.wake_waiter(w, near, ticket),
                // Its target has died.
                Ran::Refused(_, _, posted) => {
                    self.on_refused_word(posted);
                    return false;
                }
            }
        }
    }

    /// Remembers a neighbour whose lock was taken by its words for operations that go at once: the next epoch needs no
    /// element.
    pub(crate) fn remember_near(&mut self, w: &mut Window<E::Region>, t: u32) {
        let te = &self.targets[t];
        let (Some(peer), Some(metadata)) = (te.peer, te.metadata) else { return };
        let rank = te.rank;
        let Some(words) = w.words.as_mut() else { return };
        let forgotten = self.peers.forgotten();
        let Some(place) = words.place_of(rank, self.rank).filter(|_| w.dynamic.is_none()) else { return };
        let base = crate::provider::RemoteAddr { addr: metadata.base, key: metadata.key };
        if words.near.find(rank, forgotten).is_some() || !self.is_reached(peer, base) {
            return;
        }
        words.near.learn(NearTarget::new(rank, (peer, forgotten), place, metadata));
    }
}
