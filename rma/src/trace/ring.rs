//! What is remembered of the calls: the last of them, in memory that is taken once.

use rma_core::counters::Counters;
use rma_core::error::{Call, ErrorClass};
use rma_core::ids::{Rank, WindowId};

/// Something that took time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    /// Nanoseconds of this host's monotonic clock.
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) what: What,
    pub(crate) window: Option<WindowId>,
    /// [`Rank::NULL`] where no rank is meant.
    pub(crate) target: Rank,
    /// The calling thread, by its number.
    pub(crate) thread: u32,
    /// What the call has failed with.
    pub(crate) error: Option<ErrorClass>,
    /// Operations that the rank had issued, and bytes that it had sent with them, when this ended.
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
}

/// What it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// A call that synchronizes.
    Call {
        call: Call,
        /// The window is in a fence epoch after it.
        is_fence: bool,
    },
    /// The part of a call in which it waited, and for what.
    Wait { call: Call, waiting_for: &'static str },
    /// Progress while the program was outside of the library, and how much has moved.
    Served { moved: u32 },
}

/// The last records. When it is full the oldest goes.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Never grows beyond the capacity that it was made with.
    records: Vec<Record>,
    capacity: usize,
    /// Records there have been.
    count: u64,
}

impl Ring {
    /// An empty one with room for `capacity` records, which is all that it ever allocates.
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { records: Vec::with_capacity(capacity), capacity, count: 0 }
    }

    /// Remembers a record.
    pub(crate) fn push(&mut self, record: Record) {
        let index = self.next();
        match self.records.get_mut(index) {
            Some(oldest) => *oldest = record,
            None => self.records.push(record),
        }
        self.count += 1;
    }

    /// The last record, unless something else was remembered since.
    pub(crate) fn last_mut(&mut self) -> Option<&mut Record> {
        let index = self.next().checked_sub(1).unwrap_or(self.capacity - 1);
        self.records.get_mut(index)
    }

    /// The records that are left, the oldest first.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> + Clone {
        let (later, earlier) = self.records.split_at(self.next().min(self.records.len()));
        earlier.iter().chain(later)
    }

    /// How many are lost.
    pub(crate) fn dropped(&self) -> u64 {
        self.count - self.records.len() as u64
    }

    /// The place of the next record.
    fn next(&self) -> usize {
        (self.count % self.capacity as u64) as usize
    }
}

/// Operations that the counters know of, and the bytes that have left with them.
pub(crate) fn traffic(counters: &Counters) -> (u64, u64) {
    let natives = counters.native_puts + counters.native_gets + counters.native_atomics + counters.assists;
    let operations = natives + counters.message_operations + counters.self_operations;
    (operations, counters.native_bytes + counters.packet_bytes_sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(begun: u64) -> Record {
        Record {
            begun,
            ended: begun + 1,
            what: What::Served { moved: 1 },
            window: None,
            target: Rank::NULL,
            thread: 0,
            error: None,
            operations: 0,
            bytes: 0,
        }
    }

    /// What the documentation says that an event takes.
    #[test]
    fn a_record_is_small() {
        assert!(size_of::<Record>() <= 80, "{} bytes", size_of::<Record>());
    }

    #[test]
    fn the_last_ones_stay_and_the_others_are_counted() {
        for capacity in [1, 2, 3, 7] {
            let mut ring = Ring::new(capacity);
            assert_eq!(ring.last_mut(), None);
            assert_eq!((ring.records().count(), ring.dropped()), (0, 0));
            let room = ring.records.capacity();
            for begun in 0..20 {
                ring.push(record(begun));
                assert_eq!(ring.last_mut().map(|record| record.begun), Some(begun));
                let left: Vec<u64> = ring.records().map(|record| record.begun).collect();
                let first = (begun + 1).saturating_sub(capacity as u64);
                assert_eq!(left, (first..=begun).collect::<Vec<_>>(), "{capacity} after {begun}");
                assert_eq!(ring.dropped(), first);
            }
            assert_eq!(ring.records.capacity(), room, "it does not grow");
        }
    }
}
