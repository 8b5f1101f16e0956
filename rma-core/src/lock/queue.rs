//! One window's lock: shared or exclusive, granted first come, first served.

use alloc::collections::VecDeque;

use super::deferred::Span;
use super::sharers::Sharers;
use super::words::Claim;
use crate::ids::Rank;
use crate::mutation::Mutation;

/// How a window is locked (MPI-4.1 section 13.5.3).
///
/// Implements: MPI_LOCK_SHARED, MPI_LOCK_EXCLUSIVE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockType {
    /// Together with other shared holders.
    Shared,
    /// Alone.
    Exclusive,
}

/// A request that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// Who asks.
    pub origin: Rank,
    /// For what.
    pub lock_type: LockType,
    /// The request's flags, for the answer.
    pub flags: u16,
    /// The request's token, for the answer.
    pub token: u32,
    /// Operations that came with it.
    pub count: u16,
    /// Where their bytes are; `None` with `count > 0` when there was no room to keep them.
    pub payload: Option<Span>,
    /// A shared request that does not wait behind exclusive ones which only wait themselves.
    pub overtakes: bool,
    /// Where the lock is words: which of this rank's own locks on them waits on the request's behalf.
    pub seat: Option<u8>,
}

impl Waiter {
    /// What is asked for.
    pub fn claim(&self) -> Claim {
        Claim::of(self.lock_type, self.overtakes)
    }
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// The lock is held now.
    Granted,
    /// It waits its turn.
    Queued,
    /// The queue is full: nothing is remembered, the origin must ask again.
    Full,
}

/// The lock that was to be released is not held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotHeld;

/// The lock of one window at one rank. The size depends on the queue's capacity only.
///
/// Implements: notes: lock state.
#[derive(Debug)]
pub struct WindowLock {
    shared_count: u32,
    /// Those of them that hold it under lock_all. Only where it is words, which count them apart.
    everywhere_count: u32,
    exclusive: Option<Rank>,
    /// Who shares it, as far as there is room: their locks are released should they die.
    sharers: Sharers,
    /// Who does under lock_all, where that is kept apart.
    everywhere: Option<Sharers>,
    waiters: VecDeque<Waiter>,
    capacity: usize,
}

impl WindowLock {
    /// Free, with room for `capacity` waiters.
    pub fn new(capacity: usize) -> Self {
        let waiters = VecDeque::with_capacity(capacity);
        Self {
            shared_count: 0,
            everywhere_count: 0,
            exclusive: None,
            sharers: Sharers::new(capacity > 0),
            everywhere: None,
            waiters,
            capacity,
        }
    }

    /// The lock is words, and who comes when is decided there: this only knows who holds, and who waits, which are at
    /// most so many, and one under lock_all that has a seat of its own.
    pub fn follow_words(&mut self, waiters_max: usize) {
        self.everywhere = Some(Sharers::new(self.capacity > 0));
        self.capacity = self.capacity.min(waiters_max);
        // Somebody may have asked already.
        self.waiters.shrink_to(self.capacity + 1);
        self.waiters.reserve_exact((self.capacity + 1).saturating_sub(self.waiters.len()));
    }

    /// The first waiter for whom no lock on the words waits yet; the first under lock_all, if only those are meant.
    pub fn unseated(&mut self, only_everywhere: bool) -> Option<&mut Waiter> {
        let is_meant = |waiter: &Waiter| !only_everywhere || waiter.claim() == Claim::Everywhere;
        self.waiters.iter_mut().find(|waiter| waiter.seat.is_none() && is_meant(waiter))
    }

    fn admits(&self, lock_type: LockType) -> bool {
        let is_alone = self.exclusive.is_some() && !Mutation::LockAdmitsTwo.is_on();
        !is_alone && (lock_type == LockType::Shared || self.shared_count == 0)
    }

    /// Somebody holds it from now on.
    pub fn hold(&mut self, origin: Rank, claim: Claim) {
        match (claim, &mut self.everywhere) {
            (Claim::Exclusive, _) => self.exclusive = Some(origin),
            (Claim::Everywhere, Some(everywhere)) => {
                self.shared_count += 1;
                self.everywhere_count += 1;
                everywhere.insert(origin);
            }
            (Claim::Shared | Claim::Everywhere, _) => {
                self.shared_count += 1;
                self.sharers.insert(origin);
            }
        }
    }

    /// Grants the lock if the holders admit it and nobody who came before waits; one that `overtakes`
    /// needs no more than shared holders.
    ///
    /// Who holds locks elsewhere must overtake: it would wait for an exclusive request that waits for a
    /// shared holder that may, elsewhere, wait for it in the same way.
    pub fn try_acquire(&mut self, origin: Rank, lock_type: LockType, overtakes: bool) -> bool {
        let is_next = self.waiters.is_empty()
            || (overtakes && self.shared_count > 0 && !Mutation::NoOvertaking.is_on());
        let granted = is_next && self.admits(lock_type);
        if granted {
            self.hold(origin, Claim::of(lock_type, overtakes));
        }
        granted
    }

    /// Puts a request that [`WindowLock::try_acquire`] did not grant into the queue. There is room for whoever has a seat,
    /// as there are not many.
    pub fn enqueue(&mut self, waiter: Waiter) -> Request {
        if !self.has_room() && waiter.seat.is_none() {
            return Request::Full;
        }
        self.waiters.push_back(waiter);
        Request::Queued
    }

    /// Whether anybody holds the lock.
    pub fn is_held(&self) -> bool {
        self.exclusive.is_some() || self.shared_count > 0
    }

    /// Whether [`WindowLock::enqueue`] has room for who has no seat.
    pub fn has_room(&self) -> bool {
        self.waiters.len() < self.capacity
    }

    /// Releases what `origin` holds, `overtakes` being what it has asked with; says what that was.
    ///
    /// # Errors
    /// When `origin` cannot be a holder. (Shared holders are only counted, unless the lock is words and their ranks are known,
    /// so another wrong release is found when nobody holds the lock shared.)
    pub fn release(&mut self, origin: Rank, overtakes: bool) -> Result<Claim, NotHeld> {
        if Mutation::ReleaseForgotten.is_on() {
            return Ok(Claim::Shared);
        }
        if self.exclusive == Some(origin) {
            self.exclusive = None;
            return Ok(Claim::Exclusive);
        }
        let is_words = self.everywhere.is_some();
        let claim = Claim::of(LockType::Shared, overtakes && is_words);
        let sharers = match (claim, &mut self.everywhere) {
            (Claim::Everywhere, Some(everywhere)) => everywhere,
            _ => &mut self.sharers,
        };
        if !sharers.remove(origin) && is_words && sharers.has(origin).is_some() {
            return Err(NotHeld);
        }
        self.share_less(claim)?;
        Ok(claim)
    }

    /// Whether a rank waits for a share of this kind, or has one, as far as that is known.
    pub fn wants_or_shares(&self, origin: Rank, claim: Claim) -> bool {
        let sharers = match (claim, &self.everywhere) {
            (Claim::Everywhere, Some(everywhere)) => everywhere,
            _ => &self.sharers,
        };
        let wants = |waiter: &Waiter| waiter.origin == origin && waiter.claim() == claim;
        sharers.has(origin) == Some(true) || self.waiters.iter().any(wants)
    }

    /// There is one shared holder less of this kind.
    fn share_less(&mut self, claim: Claim) -> Result<(), NotHeld> {
        let is_everywhere = claim == Claim::Everywhere;
        let left =
            if is_everywhere { self.everywhere_count } else { self.shared_count - self.everywhere_count };
        if left == 0 {
            return Err(NotHeld);
        }
        self.shared_count -= 1;
        self.everywhere_count -= u32::from(is_everywhere);
        Ok(())
    }

    /// Releases what a rank holds that cannot be reached any more, and makes it wait for nothing. Requests
    /// with kept operations stay in line, because these leave in order, with `unlock` among their flags. In jobs
    /// of more than 8192 ranks, one of those above that shares the lock with more than a few of them keeps its
    /// share. `has_left` is told of each lock that was held, `gives_up` of each seat that waits for nothing now.
    pub fn on_lost(
        &mut self,
        rank: Rank,
        unlock: u16,
        mut has_left: impl FnMut(Claim),
        mut gives_up: impl FnMut(u8),
    ) {
        if self.exclusive.take_if(|holder| *holder == rank).is_some() {
            has_left(Claim::Exclusive);
        }
        if self.sharers.remove(rank) && self.share_less(Claim::Shared).is_ok() {
            has_left(Claim::Shared);
        }
        let is_everywhere = self.everywhere.as_mut().is_some_and(|everywhere| everywhere.remove(rank));
        if is_everywhere && self.share_less(Claim::Everywhere).is_ok() {
            has_left(Claim::Everywhere);
        }
        self.waiters.retain(|waiter| {
            let stays = waiter.origin != rank || waiter.payload.is_some();
            waiter.seat.filter(|_| !stays).into_iter().for_each(&mut gives_up);
            stays
        });
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.origin == rank) {
            waiter.flags |= unlock;
        }
    }

    /// Takes what `origin` waits for out of the queue.
    pub fn forget(&mut self, origin: Rank) {
        self.waiters.retain(|waiter| waiter.origin != origin);
    }

    /// The next waiter whose turn has come; the lock is its own from now on.
    pub fn poll_grant(&mut self) -> Option<Waiter> {
        let waiter = self.waiters.remove(self.next_grant()?)?;
        self.hold(waiter.origin, waiter.claim());
        Some(waiter)
    }

    /// The first waiter whose seat has what it waited for, or never will; out of the queue. Kept operations leave in the
    /// order in which they came ([`DeferredRing`](super::DeferredRing)), also where locks are lost in another.
    pub fn poll_seated(&mut self, is_over: impl Fn(u8) -> bool) -> Option<Waiter> {
        let mut is_behind = false;
        let place = self.waiters.iter().position(|waiter| {
            let is_kept = waiter.payload.is_some();
            let is_next = waiter.seat.is_some_and(&is_over) && !(is_kept && is_behind);
            is_behind |= is_kept;
            is_next
        })?;
        self.waiters.remove(place)
    }

    /// Those who wait and came before the one of this seat; all, if none is.
    pub fn before(&self, seat: u8) -> impl Iterator<Item = &Waiter> {
        self.waiters.iter().take_while(move |waiter| waiter.seat != Some(seat))
    }

    /// Whether [`WindowLock::poll_grant`] has something to say.
    #[inline]
    pub fn has_grant(&self) -> bool {
        !self.waiters.is_empty() && self.next_grant().is_some()
    }

    fn next_grant(&self) -> Option<usize> {
        if self.admits(self.waiters.front()?.lock_type) {
            return Some(0);
        }
        let is_shared =
            (self.shared_count > 0 && !Mutation::NoOvertaking.is_on()) || Mutation::OvertakesHolder.is_on();
        // Whoever wants to be alone passes nobody, whatever its flags say.
        let may_pass = |waiter: &Waiter| waiter.overtakes && waiter.lock_type == LockType::Shared;
        self.waiters.iter().position(may_pass).filter(|_| is_shared)
    }

    /// Whether nobody holds the lock and nobody waits.
    pub fn is_free(&self) -> bool {
        self.exclusive.is_none() && self.shared_count == 0 && self.waiters.is_empty()
    }

    /// Holders: shared ones, and whether one is exclusive.
    pub fn holders(&self) -> (u32, Option<Rank>) {
        (self.shared_count, self.exclusive)
    }

    /// Bytes held beyond the structure itself.
    pub fn heap_bytes(&self) -> usize {
        let everywhere = self.everywhere.as_ref().map_or(0, Sharers::heap_bytes);
        self.waiters.capacity() * size_of::<Waiter>() + self.sharers.heap_bytes() + everywhere
    }
}

#[cfg(test)]
mod tests {
    use super::super::DeferredRing;
    use super::*;

    fn waiter(origin: u32, lock_type: LockType) -> Waiter {
        Waiter {
            origin: Rank(origin),
            lock_type,
            flags: 0,
            token: 0,
            count: 0,
            payload: None,
            overtakes: false,
            seat: None,
        }
    }

    fn lose(lock: &mut WindowLock, rank: Rank) {
        lock.on_lost(rank, 2, |_| (), |_| ());
    }

    #[test]
    fn first_come_first_served_also_past_a_shared_holder() {
        let mut lock = WindowLock::new(8);
        assert!(lock.try_acquire(Rank(0), LockType::Shared, false));
        assert!(lock.try_acquire(Rank(1), LockType::Shared, false));
        assert!(!lock.try_acquire(Rank(2), LockType::Exclusive, false));
        assert_eq!(lock.enqueue(waiter(2, LockType::Exclusive)), Request::Queued);
        assert!(!lock.try_acquire(Rank(3), LockType::Shared, false), "would overtake rank 2");
        assert_eq!(lock.enqueue(waiter(3, LockType::Shared)), Request::Queued);
        assert_eq!(lock.enqueue(waiter(4, LockType::Shared)), Request::Queued);
        assert!(lock.poll_grant().is_none());
        lock.release(Rank(0), false).unwrap();
        assert!(!lock.has_grant());
        lock.release(Rank(1), false).unwrap();
        assert_eq!(lock.poll_grant().map(|w| w.origin), Some(Rank(2)));
        assert!(lock.poll_grant().is_none(), "exclusive is exclusive");
        lock.release(Rank(2), false).unwrap();
        assert_eq!(lock.poll_grant().map(|w| w.origin), Some(Rank(3)));
        assert_eq!(lock.poll_grant().map(|w| w.origin), Some(Rank(4)));
        assert!(lock.release(Rank(3), false).and_then(|_| lock.release(Rank(4), false)).is_ok());
        assert!(lock.is_free());
    }

    #[test]
    fn who_holds_locks_elsewhere_passes_those_who_wait_for_shared_holders() {
        let mut lock = WindowLock::new(8);
        assert!(lock.try_acquire(Rank(0), LockType::Exclusive, false));
        assert_eq!(lock.enqueue(waiter(1, LockType::Shared)), Request::Queued);
        assert_eq!(lock.enqueue(waiter(2, LockType::Exclusive)), Request::Queued);
        assert!(!lock.try_acquire(Rank(3), LockType::Shared, true), "exclusive is exclusive");
        assert_eq!(lock.enqueue(Waiter { overtakes: true, ..waiter(3, LockType::Shared) }), Request::Queued);
        assert_eq!(lock.enqueue(waiter(4, LockType::Shared)), Request::Queued);
        lock.release(Rank(0), false).unwrap();
        assert_eq!(lock.poll_grant().map(|w| w.origin), Some(Rank(1)));
        assert_eq!(lock.poll_grant().map(|w| w.origin), Some(Rank(3)));
        assert!(lock.poll_grant().is_none(), "rank 4 holds nothing and waits its turn");
        assert!(lock.try_acquire(Rank(5), LockType::Shared, true));
        assert!(!lock.try_acquire(Rank(6), LockType::Exclusive, true));
        lock.enqueue(Waiter { overtakes: true, ..waiter(6, LockType::Exclusive) });
        assert!(lock.poll_grant().is_none(), "exclusive is exclusive");
        assert!([1, 3, 5].iter().all(|&rank| lock.release(Rank(rank), false).is_ok()));
        assert_eq!(lock.poll_grant().map(|w| w.origin), Some(Rank(2)));
        assert!(!lock.try_acquire(Rank(6), LockType::Shared, true));
    }

    #[test]
    fn the_dead_hold_nothing_and_wait_for_nothing() {
        let mut lock = WindowLock::new(8);
        assert!(lock.try_acquire(Rank(0), LockType::Shared, false));
        assert!(lock.try_acquire(Rank(1), LockType::Shared, false));
        assert_eq!(lock.enqueue(waiter(0, LockType::Exclusive)), Request::Queued);
        assert_eq!(lock.enqueue(waiter(2, LockType::Exclusive)), Request::Queued);
        lose(&mut lock, Rank(0));
        assert!(!lock.has_grant(), "rank 1 shares it still");
        lose(&mut lock, Rank(1));
        assert_eq!(lock.poll_grant().map(|waiter| waiter.origin), Some(Rank(2)));
        lose(&mut lock, Rank(2));
        assert!(lock.is_free());
    }

    #[test]
    fn every_sharer_is_known() {
        let mut lock = WindowLock::new(8);
        assert!((0..100).all(|rank| lock.try_acquire(Rank(rank), LockType::Shared, false)));
        assert_eq!(lock.enqueue(waiter(100, LockType::Exclusive)), Request::Queued);
        (0..100).rev().for_each(|rank| lose(&mut lock, Rank(rank)));
        assert_eq!(lock.poll_grant().map(|waiter| waiter.origin), Some(Rank(100)));
    }

    #[test]
    fn a_full_queue_says_so_and_a_wrong_release_is_found() {
        let mut lock = WindowLock::new(1);
        assert_eq!(lock.release(Rank(0), false), Err(NotHeld));
        assert!(lock.try_acquire(Rank(0), LockType::Exclusive, false));
        assert_eq!(lock.release(Rank(1), false), Err(NotHeld));
        assert_eq!(lock.enqueue(waiter(1, LockType::Shared)), Request::Queued);
        assert_eq!(lock.enqueue(waiter(2, LockType::Shared)), Request::Full);
    }

    /// The locks of those who wait may be lost in any order.
    #[test]
    fn kept_operations_leave_in_the_order_in_which_they_came() {
        let (mut lock, mut ring) = (WindowLock::new(8), DeferredRing::new(32));
        lock.follow_words(8);
        for seat in 0..4u8 {
            let payload = if seat == 2 { None } else { ring.keep(&[seat; 8]) };
            let waits = waiter(seat.into(), LockType::Exclusive);
            lock.enqueue(Waiter { seat: Some(seat), payload, ..waits });
        }
        let poll = |lock: &mut WindowLock, over: &[u8]| {
            lock.poll_seated(|seat| over.contains(&seat)).and_then(|waiter| waiter.seat)
        };
        assert_eq!(poll(&mut lock, &[1, 3]), None, "the operations of seat 0 are older");
        assert_eq!(poll(&mut lock, &[1, 2, 3]), Some(2), "it has none");
        assert_eq!([(); 4].map(|()| poll(&mut lock, &[0, 1, 3])), [Some(0), Some(1), Some(3), None]);
    }

    #[test]
    fn nobody_gives_back_what_is_anothers() {
        let mut lock = WindowLock::new(8);
        lock.follow_words(8);
        lock.hold(Rank(1), Claim::Shared);
        lock.hold(Rank(2), Claim::Everywhere);
        assert_eq!(lock.release(Rank(3), false), Err(NotHeld));
        assert_eq!(lock.release(Rank(3), true), Err(NotHeld));
        assert_eq!(lock.release(Rank(1), true), Err(NotHeld));
        assert_eq!(lock.holders(), (2, None));
        assert!(lock.release(Rank(1), false).is_ok() && lock.release(Rank(2), true).is_ok());
        assert_eq!(lock.release(Rank(1), false), Err(NotHeld));
        assert!(lock.is_free());
    }

    #[test]
    fn who_wants_a_share_is_known_as_who_has_one_is() {
        let mut lock = WindowLock::new(8);
        lock.follow_words(8);
        let asks = [(Claim::Shared, false), (Claim::Everywhere, true)];
        for (seat, (claim, overtakes)) in (0..).zip(asks) {
            for rank in [3, 9000] {
                assert!(!lock.wants_or_shares(Rank(rank), claim));
                lock.enqueue(Waiter { seat: Some(seat), overtakes, ..waiter(rank, LockType::Shared) });
                assert!(lock.wants_or_shares(Rank(rank), claim));
                let granted = lock.poll_seated(|over| over == seat).expect("it waits");
                assert!(!lock.wants_or_shares(Rank(rank), claim));
                lock.hold(granted.origin, granted.claim());
                assert!(lock.wants_or_shares(Rank(rank), claim));
            }
        }
        lock.enqueue(waiter(4, LockType::Exclusive));
        assert!(asks.iter().all(|(claim, _)| !lock.wants_or_shares(Rank(4), *claim)), "it wants to be alone");
        assert!(lock.release(Rank(3), false).is_ok());
        assert_eq!(asks.map(|(claim, _)| lock.wants_or_shares(Rank(3), claim)), [false, true]);
    }

    #[test]
    fn more_may_have_asked_early_than_may_wait_later() {
        let mut lock = WindowLock::new(64);
        assert!((0..20).all(|rank| lock.enqueue(waiter(rank, LockType::Exclusive)) == Request::Queued));
        lock.follow_words(16);
        assert!((20..100).all(|rank| lock.enqueue(waiter(rank, LockType::Exclusive)) == Request::Full));
        lock.on_lost(Rank(0), 2, |_| (), |_| ());
        assert_eq!(lock.enqueue(waiter(20, LockType::Exclusive)), Request::Full, "19 still wait");
        (0..4).for_each(|rank| lock.forget(Rank(rank)));
        assert_eq!(lock.enqueue(waiter(20, LockType::Exclusive)), Request::Full, "16 do");
        let seated = Waiter { seat: Some(3), overtakes: true, ..waiter(21, LockType::Shared) };
        assert_eq!(lock.enqueue(seated), Request::Queued, "it takes no room that others may need");
        (4..6).for_each(|rank| lock.forget(Rank(rank)));
        assert_eq!(lock.enqueue(waiter(20, LockType::Exclusive)), Request::Queued);
    }
}
