//! Who has records of this rank's regions, so that they can be taken back before a registration is closed.

use alloc::vec::Vec;

use crate::ids::Rank;
use crate::table::is_before;

/// A rank that may have records of regions here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Holder {
    rank: Rank,
    /// The versions at which it got the oldest record that it may still have, and the newest.
    oldest: u32,
    newest: u32,
    /// It was asked to give up those that are older than this, and has not answered.
    asked: Option<u32>,
}

/// The holders, at most as many as there was room for in the beginning.
#[derive(Debug)]
pub(crate) struct Holders {
    entries: Vec<Holder>,
    room: usize,
    /// How often records were taken back.
    version: u32,
}

impl Holders {
    pub(crate) fn with_room(room: usize) -> Self {
        Self { entries: Vec::with_capacity(room), room, version: 0 }
    }

    /// A rank is about to get a record; its version. `None`: there is no room to remember the rank.
    pub(crate) fn grant(&mut self, rank: Rank) -> Option<u32> {
        let version = self.version;
        if let Some(holder) = self.entries.iter_mut().find(|holder| holder.rank == rank) {
            holder.newest = version;
        } else if self.entries.len() < self.room {
            self.entries.push(Holder { rank, oldest: version, newest: version, asked: None });
        } else {
            return None;
        }
        Some(version)
    }

    /// Every record that was given so far is to be taken back. The version that [`Holders::await_any`] wants.
    pub(crate) fn revoke(&mut self) -> u32 {
        self.version = self.version.wrapping_add(1);
        self.version
    }

    /// The next rank to be asked to give up what is older than the version.
    pub(crate) fn next_to_ask(&self) -> Option<(Rank, u32)> {
        let version = self.version;
        let old = |holder: &&Holder| holder.asked.is_none() && is_before(holder.oldest, version);
        self.entries.iter().find(old).map(|holder| (holder.rank, version))
    }

    /// The rank was asked.
    pub(crate) fn on_asked(&mut self, rank: Rank, version: u32) {
        if let Some(holder) = self.entries.iter_mut().find(|holder| holder.rank == rank) {
            holder.asked = Some(version);
        }
    }

    /// The rank has given up what is older than `version`. `false`: it was not asked that.
    pub(crate) fn on_given_up(&mut self, rank: Rank, version: u32) -> bool {
        let asked = |holder: &Holder| holder.rank == rank && holder.asked == Some(version);
        let Some(at) = self.entries.iter().position(asked) else { return false };
        let holder = &mut self.entries[at];
        if is_before(holder.newest, version) {
            self.entries.swap_remove(at);
        } else {
            (holder.oldest, holder.asked) = (version, None);
        }
        true
    }

    /// The rank is gone.
    pub(crate) fn on_lost(&mut self, rank: Rank) {
        self.entries.retain(|holder| holder.rank != rank);
    }

    /// Whether anybody may have a record that is older than `version`.
    pub(crate) fn await_any(&self, version: u32) -> bool {
        self.entries.iter().any(|holder| is_before(holder.oldest, version))
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Holder>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_taken_back_from_who_has_them() {
        let mut holders = Holders::with_room(2);
        assert_eq!(
            (holders.grant(Rank(1)), holders.grant(Rank(2)), holders.grant(Rank(3))),
            (Some(0), Some(0), None)
        );
        let version = holders.revoke();
        assert!(holders.await_any(version));
        while let Some((rank, asked)) = holders.next_to_ask() {
            holders.on_asked(rank, asked);
        }
        assert!(!holders.on_given_up(Rank(1), version + 1) && !holders.on_given_up(Rank(3), version));
        assert!(holders.on_given_up(Rank(1), version) && holders.await_any(version));
        assert!(!holders.on_given_up(Rank(1), version), "it has answered");
        holders.on_lost(Rank(2));
        assert!(!holders.await_any(version));
        assert_eq!(holders.grant(Rank(3)), Some(version));
    }

    #[test]
    fn what_is_given_while_others_are_taken_back_stays() {
        let mut holders = Holders::with_room(1);
        holders.grant(Rank(5));
        let first = holders.revoke();
        holders.on_asked(Rank(5), first);
        assert_eq!(holders.grant(Rank(5)), Some(first));
        let second = holders.revoke();
        assert_eq!(holders.next_to_ask(), None, "one question at a time");
        assert!(holders.on_given_up(Rank(5), first));
        assert!(!holders.await_any(first) && holders.await_any(second));
        assert_eq!(holders.next_to_ask(), Some((Rank(5), second)));
        holders.on_asked(Rank(5), second);
        assert!(holders.on_given_up(Rank(5), second) && !holders.await_any(second));
    }
}
