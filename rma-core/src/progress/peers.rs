//! Ranks whose provider address is known: looked up on first contact, kept in a table of fixed size,
//! the least recently used forgotten first.

use alloc::boxed::Box;
use alloc::vec;

use crate::ids::{PeerAddr, Rank};
use crate::window::Window;

/// Where a peer is: a rank's own process, or its ghost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place(u32);

/// Set in the places of ghosts. Jobs are smaller.
const GHOST: u32 = 1 << 31;

impl Place {
    /// The rank's own process.
    #[inline]
    pub(crate) fn of(rank: Rank) -> Self {
        Self(rank.0)
    }

    /// The rank's ghost.
    #[inline]
    pub(crate) fn ghost_of(rank: Rank) -> Self {
        Self(rank.0 | GHOST)
    }

    /// Where the operations on a rank's part of the window go.
    #[inline]
    pub(crate) fn of_target<R>(w: &Window<R>, rank: Rank) -> Self {
        if w.is_served {
            Self::ghost_of(rank)
        } else {
            Self::of(rank)
        }
    }

    pub(crate) fn rank(self) -> Rank {
        Rank(self.0 & !GHOST)
    }

    pub(crate) fn is_ghost(self) -> bool {
        self.0 & GHOST != 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// A [`Place`].
    place: u32,
    pins: u32,
    peer: PeerAddr,
    recent: bool,
}

const VACANT: u32 = u32::MAX;

/// A hash table with linear probing; at most half of its places are used.
#[derive(Debug)]
pub(crate) struct PeerTable {
    entries: Box<[Entry]>,
    count: usize,
    capacity: usize,
    hand: usize,
    forgotten: u32,
}

impl PeerTable {
    pub(crate) fn new(capacity: usize) -> Self {
        let places = (2 * capacity).next_power_of_two();
        let vacant = Entry { place: VACANT, pins: 0, peer: PeerAddr(0), recent: false };
        Self { entries: vec![vacant; places].into_boxed_slice(), count: 0, capacity, hand: 0, forgotten: 0 }
    }

    #[inline]
    fn home(&self, rank: u32) -> usize {
        (rank.wrapping_mul(0x9e37_79b9) as usize) & (self.entries.len() - 1)
    }

    #[inline]
    fn position(&self, place: Place) -> Result<usize, usize> {
        let mut at = self.home(place.0);
        while self.entries[at].place != place.0 {
            if self.entries[at].place == VACANT {
                return Err(at);
            }
            at = (at + 1) & (self.entries.len() - 1);
        }
        Ok(at)
    }

    #[inline]
    pub(crate) fn get(&mut self, place: Place) -> Option<PeerAddr> {
        let at = self.position(place).ok()?;
        self.entries[at].recent = true;
        Some(self.entries[at].peer)
    }

    /// How many addresses were forgotten so far, modulo 2^32: while this is the same each that was known still is.
    #[inline]
    pub(crate) fn forgotten(&self) -> u32 {
        self.forgotten
    }

    /// The rank that has this address, or whose ghost has it.
    pub(crate) fn rank_of(&self, peer: PeerAddr) -> Option<Rank> {
        self.entries
            .iter()
            .find(|entry| entry.place != VACANT && entry.peer == peer)
            .map(|entry| Place(entry.place).rank())
    }

    /// A target element keeps the rank's address: it must not be forgotten meanwhile.
    pub(crate) fn pin(&mut self, place: Place) {
        if let Ok(at) = self.position(place) {
            self.entries[at].pins += 1;
        }
    }

    /// The same of a rank whose address is known, which it gives.
    #[inline]
    pub(crate) fn get_pinned(&mut self, place: Place) -> Option<PeerAddr> {
        let at = self.position(place).ok()?;
        let entry = &mut self.entries[at];
        (entry.recent, entry.pins) = (true, entry.pins + 1);
        Some(entry.peer)
    }

    #[inline]
    pub(crate) fn unpin(&mut self, place: Place) {
        if let Ok(at) = self.position(place) {
            self.entries[at].pins -= 1;
        }
    }

    /// Makes room for one more: the peer to be forgotten, if the table is full and one can be spared.
    pub(crate) fn make_room(&mut self) -> Option<PeerAddr> {
        if self.count < self.capacity {
            return None;
        }
        // Twice around: the first time clears the marks of recent use.
        for _ in 0..2 * self.entries.len() {
            let at = self.hand;
            self.hand = (at + 1) & (self.entries.len() - 1);
            let entry = &mut self.entries[at];
            if entry.place == VACANT || entry.pins > 0 {
                continue;
            }
            if core::mem::take(&mut entry.recent) {
                continue;
            }
            let peer = entry.peer;
            self.remove(at);
            return Some(peer);
        }
        self.grow();
        None
    }

    /// Every peer is in use by a target element at this moment: more targets than `RMA_PEERS`.
    #[cold]
    fn grow(&mut self) {
        let mut larger = Self { forgotten: self.forgotten, ..Self::new(2 * self.capacity) };
        for entry in self.entries.iter().filter(|entry| entry.place != VACANT) {
            larger.put(*entry);
        }
        *self = larger;
    }

    fn remove(&mut self, mut at: usize) {
        let mask = self.entries.len() - 1;
        self.count -= 1;
        self.forgotten = self.forgotten.wrapping_add(1);
        let mut next = (at + 1) & mask;
        while self.entries[next].place != VACANT {
            let home = self.home(self.entries[next].place);
            // Move back what could not be found any more from its home.
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(at) & mask) {
                self.entries[at] = self.entries[next];
                at = next;
            }
            next = (next + 1) & mask;
        }
        self.entries[at].place = VACANT;
    }

    fn put(&mut self, entry: Entry) {
        if let Err(at) = self.position(Place(entry.place)) {
            self.entries[at] = entry;
            self.count += 1;
        }
    }

    pub(crate) fn insert(&mut self, place: Place, peer: PeerAddr) {
        self.put(Entry { place: place.0, pins: 0, peer, recent: true });
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_stays_small_and_finds_what_it_keeps() {
        let mut table = PeerTable::new(8);
        let mut kept = alloc::collections::BTreeMap::new();
        for rank in 0..500u32 {
            let rank = rank * 16;
            if let Some(forgotten) = table.make_room() {
                assert!(kept.remove(&forgotten.0).is_some());
            }
            table.insert(Place(rank), PeerAddr(rank.into()));
            kept.insert(u64::from(rank), ());
            assert!(table.count <= 8);
            for &peer in kept.keys() {
                assert_eq!(table.get(Place(peer as u32)), Some(PeerAddr(peer)));
            }
        }
    }

    #[test]
    fn pinned_peers_stay() {
        let mut table = PeerTable::new(2);
        for rank in 0..2 {
            table.insert(Place(rank), PeerAddr(u64::from(rank)));
            table.pin(Place(rank));
        }
        assert_eq!(table.make_room(), None, "grows instead");
        table.insert(Place(2), PeerAddr(2));
        assert!((0..3).all(|rank| table.get(Place(rank)).is_some()));
        table.unpin(Place(0));
        table.capacity = 3;
        assert_eq!(table.rank_of(PeerAddr(1)), Some(Rank(1)));
        table.unpin(Place(1));
        assert!(table.make_room().is_some());
    }
}
