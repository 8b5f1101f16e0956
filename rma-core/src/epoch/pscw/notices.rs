//! Post notices that came before the start that they belong to, in a table of fixed size.

use alloc::vec::Vec;

use crate::ids::Rank;
use crate::wire::Metadata;

#[derive(Clone, Copy, Debug)]
struct Notice {
    rank: Rank,
    metadata: Option<Metadata>,
    /// No epoch has used it; otherwise only the metadata are kept, for an operation that may follow.
    is_early: bool,
}

/// The notices that one window keeps. One that finds no room is dropped and counted: a later start asks.
#[derive(Debug)]
pub struct Notices {
    entries: Vec<Notice>,
    room: usize,
    dropped: u32,
}

impl Notices {
    /// Room for this many.
    pub fn with_room(room: usize) -> Self {
        Self { entries: Vec::with_capacity(room), room, dropped: 0 }
    }

    fn find(&self, rank: Rank) -> Option<usize> {
        self.entries.iter().position(|notice| notice.rank == rank)
    }

    /// Keeps an early notice. `false`: the rank has sent one before, which makes no sense.
    pub fn on_early(&mut self, rank: Rank, metadata: Option<Metadata>) -> bool {
        let place = match self.find(rank) {
            Some(place) if self.entries[place].is_early => return false,
            Some(place) => Some(place),
            None if self.entries.len() < self.room => None,
            None => match self.entries.iter().position(|notice| !notice.is_early) {
                Some(place) => Some(place),
                None => {
                    self.dropped = self.dropped.saturating_add(1);
                    return true;
                }
            },
        };
        let notice = Notice { rank, metadata, is_early: true };
        match place {
            Some(place) => self.entries[place] = notice,
            None => self.entries.push(notice),
        }
        true
    }

    /// Keeps the metadata that came with a notice which an epoch was waiting for, if there is room.
    pub fn keep(&mut self, rank: Rank, metadata: Option<Metadata>) {
        if metadata.is_some() && self.entries.len() < self.room && self.find(rank).is_none() {
            self.entries.push(Notice { rank, metadata, is_early: false });
        }
    }

    /// An early notice that `is_wanted` by an epoch that starts: the rank. Call it until there is none.
    pub fn poll_early(&mut self, is_wanted: impl Fn(Rank) -> bool) -> Option<Rank> {
        let place = self.entries.iter().position(|notice| notice.is_early && is_wanted(notice.rank))?;
        let rank = self.entries[place].rank;
        self.entries[place].is_early = false;
        if self.entries[place].metadata.is_none() {
            self.entries.swap_remove(place);
        }
        Some(rank)
    }

    /// The metadata that came with the rank's notice.
    pub fn metadata(&self, rank: Rank) -> Option<Metadata> {
        self.entries.iter().find(|notice| notice.rank == rank && !notice.is_early)?.metadata
    }

    /// Whether there are none, and none was dropped.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.entries.is_empty() && self.dropped == 0
    }

    /// The epoch that used the rank's notice is over for the rank.
    pub fn forget(&mut self, rank: Rank) {
        self.entries.retain(|notice| notice.is_early || notice.rank != rank);
    }

    /// Whether a start may miss a notice that was dropped.
    pub fn has_dropped(&self) -> bool {
        self.dropped > 0
    }

    /// An answer stood in for a notice that was dropped.
    pub fn on_made_up_for(&mut self) {
        self.dropped = self.dropped.saturating_sub(1);
    }

    /// Bytes held beyond the structure itself.
    pub fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Notice>()
    }
}
