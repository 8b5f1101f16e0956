//! What this rank knows of others' regions: a cache of bounded size.

use alloc::vec::Vec;

use crate::ids::Rank;
use crate::table::is_before;
use crate::wire::RegionRecord;

/// Records by rank, at most as many as there was room for in the beginning; the oldest make room.
#[derive(Debug)]
pub(crate) struct Records {
    entries: Vec<(Rank, RegionRecord)>,
    room: usize,
    /// Whose turn it is to make room.
    next: usize,
}

impl Records {
    pub(crate) fn with_room(room: usize) -> Self {
        Self { entries: Vec::with_capacity(room), room, next: 0 }
    }

    /// The record of the region of `rank` that holds all of `len` bytes at address `first`.
    pub(crate) fn find(&self, rank: Rank, first: u64, len: u64) -> Option<RegionRecord> {
        let found = self.entries.iter().find(|(of, record)| *of == rank && record.holds(first, len));
        found.map(|(_, record)| *record)
    }

    /// Keeps a record. One of the same region makes room first.
    pub(crate) fn insert(&mut self, rank: Rank, record: RegionRecord) {
        let entry = (rank, record);
        let same = self.entries.iter_mut().find(|(of, kept)| *of == rank && kept.base == record.base);
        if let Some(kept) = same {
            *kept = entry;
        } else if self.entries.len() < self.room {
            self.entries.push(entry);
        } else if let Some(oldest) = self.entries.get_mut(self.next) {
            *oldest = entry;
            self.next = (self.next + 1) % self.room;
        }
    }

    /// Forgets what `rank` had given before `version`.
    pub(crate) fn forget_before(&mut self, rank: Rank, version: u32) {
        self.entries.retain(|(of, record)| *of != rank || !is_before(record.version, version));
    }

    /// Forgets all that is known of `rank`.
    pub(crate) fn forget(&mut self, rank: Rank) {
        self.entries.retain(|(of, _)| *of != rank);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(Rank, RegionRecord)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RemoteKey;

    fn record(base: u64, version: u32) -> RegionRecord {
        RegionRecord { base, len: 16, addr: 0, key: RemoteKey(1), version }
    }

    #[test]
    fn the_oldest_makes_room_and_the_size_stays() {
        let mut records = Records::with_room(3);
        let bytes = records.heap_bytes();
        for base in 0..100 {
            records.insert(Rank(1), record(16 * base, 0));
        }
        assert_eq!(records.heap_bytes(), bytes);
        assert!((97..100).all(|base| records.find(Rank(1), 16 * base, 16).is_some()));
        assert_eq!(records.find(Rank(1), 16 * 96, 16), None);
        assert_eq!((records.find(Rank(2), 16 * 99, 1), records.find(Rank(1), 16 * 99 + 1, 16)), (None, None));
    }

    #[test]
    fn what_is_taken_back_is_forgotten() {
        let mut records = Records::with_room(4);
        records.insert(Rank(1), record(0, 0));
        records.insert(Rank(2), record(0, 0));
        records.insert(Rank(1), record(16, 1));
        records.forget_before(Rank(1), 1);
        assert_eq!(records.find(Rank(1), 0, 1), None);
        assert!(records.find(Rank(1), 16, 16).is_some() && records.find(Rank(2), 0, 16).is_some());
        records.insert(Rank(1), record(16, 2));
        records.forget(Rank(1));
        assert_eq!(records.find(Rank(1), 16, 1), None);
    }
}
