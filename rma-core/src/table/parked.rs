//! Locks whose targets have no element: each is called, or held, wholly or by half, and nothing of its epoch is under way.

use alloc::vec::Vec;

use crate::ids::Rank;
use crate::lock::words::Memo;
use crate::lock::LockType;
use crate::state::TargetLockState;

/// What is known of a locked target that has no element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ParkedLock {
    pub(crate) rank: Rank,
    pub(crate) lock_type: LockType,
    pub(crate) no_check: bool,
    /// Called: no packet has gone out. Granted: it is held, or none is needed. Issued: a ticket was drawn, and nothing is
    /// under way; an answer would need the element.
    pub(crate) lock: TargetLockState,
    /// What is held of the target's words.
    pub(crate) words: Memo,
    /// A thread is in unlock.
    pub(crate) is_closing: bool,
}

impl ParkedLock {
    const CALLED: Self = Self {
        rank: Rank::NULL,
        lock_type: LockType::Shared,
        no_check: false,
        lock: TargetLockState::Called,
        words: Memo::None,
        is_closing: false,
    };

    /// A lock that was called just now.
    #[inline]
    pub(crate) fn called(rank: Rank, lock_type: LockType, no_check: bool) -> Self {
        let mut lock = TargetLockState::Called;
        if no_check {
            lock.on_no_check().unwrap_or_default();
        }
        Self { rank, lock_type, no_check, lock, ..Self::CALLED }
    }

    /// Whether it was called, and nothing else was done about it.
    #[inline]
    pub(crate) fn is_only_called(&self) -> bool {
        let is_called = self.lock == TargetLockState::Called && self.words == Memo::None;
        is_called && !self.no_check && !self.is_closing
    }

    /// Its words were taken.
    #[inline]
    pub(crate) fn on_taken(&mut self) {
        // No packet of the epoch says LOCK or UNLOCK.
        (self.lock, self.words, self.no_check) = (TargetLockState::Granted, Memo::Held, true);
    }

    /// Of its words a ticket was drawn whose turn has come, and no more could be had.
    #[cold]
    pub(crate) fn on_drawn(&mut self) {
        (self.lock, self.words, self.no_check) = (TargetLockState::Issued, Memo::Drawn, true);
    }

    /// Its ticket was given back, and the second word not.
    #[cold]
    pub(crate) fn on_half_left(&mut self) {
        self.on_taken();
        self.words = Memo::Noted;
    }

    /// The ticket was given back.
    pub(crate) fn on_forgone(&mut self) {
        (self.lock, self.words, self.no_check) = (TargetLockState::Called, Memo::None, false);
    }

    /// Whether the target, or its words, know of the lock, so that its end must be told.
    pub(crate) fn is_known(&self) -> bool {
        self.words != Memo::None || (self.lock == TargetLockState::Granted && !self.no_check)
    }
}

/// Such locks of one window, in the order of their ranks. There are no more than the program holds: room for one
/// more is made when lock is called, so that no element has to be kept because it cannot be written down.
#[derive(Debug)]
pub(crate) struct ParkedLocks {
    locks: Vec<ParkedLock>,
}

impl ParkedLocks {
    /// None, and room for `count`.
    pub(crate) fn with_room(count: u32) -> Self {
        Self { locks: Vec::with_capacity(count as usize) }
    }

    /// Makes room for `count` more. `false`: there is no memory.
    #[inline]
    pub(crate) fn make_room(&mut self, count: u32) -> bool {
        self.locks.capacity() - self.locks.len() >= count as usize || self.grow(count)
    }

    /// Whether there is room for one more.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.locks.len() < self.locks.capacity()
    }

    /// Any of them.
    pub(crate) fn last(&self) -> Option<Rank> {
        self.locks.last().map(|lock| lock.rank)
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, count: u32) -> bool {
        self.locks.try_reserve(count as usize).is_ok()
    }

    /// How many there are.
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.locks.len() as u32
    }

    #[inline(always)]
    fn place(&self, rank: Rank) -> Result<usize, usize> {
        match &*self.locks {
            [] => Err(0),
            [lock] if lock.rank == rank => Ok(0),
            _ => self.search(rank),
        }
    }

    #[cold]
    #[inline(never)]
    fn search(&self, rank: Rank) -> Result<usize, usize> {
        self.locks.binary_search_by_key(&rank, |lock| lock.rank)
    }

    /// The lock of `rank`, if its target has no element.
    #[inline(always)]
    pub(crate) fn find(&self, rank: Rank) -> Option<&ParkedLock> {
        self.locks.get(self.place(rank).ok()?)
    }

    /// The same, to be changed.
    #[inline(always)]
    pub(crate) fn find_mut(&mut self, rank: Rank) -> Option<&mut ParkedLock> {
        let place = self.place(rank).ok()?;
        self.locks.get_mut(place)
    }

    /// Whether there is one of `rank`.
    #[inline]
    pub(crate) fn contains(&self, rank: Rank) -> bool {
        !self.locks.is_empty() && self.place(rank).is_ok()
    }

    /// Adds a lock, whose rank has none here.
    pub(crate) fn insert(&mut self, lock: ParkedLock) {
        if let Err(place) = self.place(lock.rank) {
            self.locks.insert(place, lock);
        }
    }

    /// Adds a lock that was called just now.
    #[inline(always)]
    pub(crate) fn insert_called(&mut self, rank: Rank, lock_type: LockType) {
        if !self.locks.is_empty() || !self.has_room() {
            return self.insert(ParkedLock::called(rank, lock_type, false));
        }
        // Written where it is: one that is put together of bytes, and then copied as words, waits for these bytes.
        self.locks.push(const { ParkedLock::CALLED });
        if let Some(lock) = self.locks.last_mut() {
            (lock.rank, lock.lock_type) = (rank, lock_type);
        }
    }

    /// Takes the lock of `rank` out.
    pub(crate) fn remove(&mut self, rank: Rank) -> Option<ParkedLock> {
        self.place(rank).ok().map(|place| self.locks.remove(place))
    }

    /// Forgets the lock of `rank`.
    #[inline(always)]
    pub(crate) fn forget(&mut self, rank: Rank) {
        match &*self.locks {
            [lock] if lock.rank == rank => self.locks.clear(),
            _ => drop(self.remove(rank)),
        }
    }

    /// Bytes held beyond the structure itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.locks.capacity() * size_of::<ParkedLock>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::LockType::{Exclusive, Shared};

    #[test]
    fn locks_are_found_by_rank_in_whatever_order_they_came() {
        let mut parked = ParkedLocks::with_room(2);
        for rank in [7, 3, 9, 0] {
            assert!(parked.make_room(1) && !parked.contains(Rank(rank)));
            parked.insert(ParkedLock::called(Rank(rank), Shared, rank == 3));
        }
        assert_eq!(parked.count(), 4);
        assert!([0, 3, 7, 9].iter().all(|&rank| parked.find(Rank(rank)).unwrap().rank == Rank(rank)));
        assert_eq!(parked.find(Rank(8)), None);
        parked.find_mut(Rank(7)).unwrap().is_closing = true;
        assert!(parked.remove(Rank(7)).unwrap().is_closing);
        assert_eq!((parked.remove(Rank(7)), parked.count()), (None, 3));
    }

    #[test]
    fn the_end_is_told_where_the_target_or_its_words_know_of_the_lock() {
        let called = ParkedLock::called(Rank(1), Exclusive, false);
        assert!(!called.is_known() && !ParkedLock::called(Rank(1), Exclusive, true).is_known());
        assert!(ParkedLock { lock: TargetLockState::Granted, ..called }.is_known());
        let ends: [fn(&mut ParkedLock); 2] = [ParkedLock::on_taken, ParkedLock::on_drawn];
        for end in ends {
            let mut lock = called;
            end(&mut lock);
            assert!(lock.is_known() && !lock.is_only_called());
        }
    }

    #[test]
    fn room_is_made_in_advance() {
        let mut parked = ParkedLocks::with_room(2);
        let bytes = parked.heap_bytes();
        assert!(parked.make_room(2));
        assert_eq!(parked.heap_bytes(), bytes);
        assert!(parked.make_room(3) && parked.heap_bytes() > bytes);
    }
}
