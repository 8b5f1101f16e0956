//! Neighbours, to which each operation is over when its call returns: what an epoch to one takes, so that it needs no target
//! element.

use crate::ids::{PeerAddr, Rank, RemoteKey};
use crate::lock::words::{Tickets, Word};
use crate::pool::NONE;
use crate::provider::{RemoteAddr, RemotePiece};
use crate::table::Direct;
use crate::wire::Metadata;

/// Neighbours that are remembered, by rank.
const NEAR: usize = 8;

/// What is remembered of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NearTarget {
    rank: Rank,
    /// How many addresses were forgotten when its own was known.
    forgotten: u32,
    pub(crate) peer: PeerAddr,
    pub(crate) metadata: Metadata,
    /// The first of its words, where its lock is words and they are known.
    pub(crate) place: Option<RemoteAddr>,
    /// What the first may say now.
    pub(crate) tickets: Tickets,
    /// And the second.
    pub(crate) holder: u64,
}

impl NearTarget {
    /// A neighbour; `forgotten` is how many addresses were so far.
    pub(crate) fn new(
        rank: Rank,
        (peer, forgotten): (PeerAddr, u32),
        place: Option<RemoteAddr>,
        metadata: Metadata,
    ) -> Self {
        Self { rank, forgotten, peer, metadata, place, tickets: Tickets::free(0), holder: 0 }
    }

    pub(crate) const NONE: Self = Self {
        rank: Rank(NONE),
        forgotten: 0,
        peer: PeerAddr(0),
        metadata: Metadata { base: 0, size: 0, disp_unit: 1, key: RemoteKey(0), misalignment: 0 },
        place: None,
        tickets: Tickets(0),
        holder: 0,
    };

    /// Whose it is.
    #[inline]
    pub(crate) fn rank(&self) -> Rank {
        self.rank
    }

    /// The same as the way of an element.
    #[inline]
    pub(crate) fn direct(&self) -> Direct {
        Direct { peer: self.peer, metadata: self.metadata, at_once: true }
    }

    /// How far behind the window's first byte `len` bytes at `disp` begin; `None` when they are not inside of the window.
    #[inline]
    pub(crate) fn offset(&self, disp: u64, len: usize) -> Option<u64> {
        self.metadata.locate(disp, len as u64).ok()
    }

    /// The location of such bytes.
    #[inline]
    pub(crate) fn locate(&self, disp: u64, len: usize) -> Option<RemoteAddr> {
        let offset = self.offset(disp, len)?;
        Some(RemoteAddr { addr: self.metadata.base.wrapping_add(offset), key: self.metadata.key })
    }

    /// The window's memory.
    pub(crate) fn memory(&self) -> Option<RemotePiece> {
        let Metadata { base, size, key, .. } = self.metadata;
        Some(RemotePiece { at: RemoteAddr { addr: base, key }, len: usize::try_from(size).ok()? })
    }

    /// What was expected of a word, and is there.
    #[inline]
    pub(crate) fn learn(&mut self, word: Word, is_there: u64) {
        match word {
            Word::Tickets => self.tickets = Tickets(is_there),
            Word::Holder => self.holder = is_there,
        }
    }
}

/// The neighbours of a window that are remembered.
#[derive(Debug)]
pub(crate) struct NearTargets([NearTarget; NEAR]);

impl Default for NearTargets {
    fn default() -> Self {
        Self([NearTarget::NONE; NEAR])
    }
}

impl NearTargets {
    /// The neighbour, if it is remembered and its address has not been forgotten since.
    #[inline]
    pub(crate) fn find(&mut self, rank: Rank, forgotten: u32) -> Option<&mut NearTarget> {
        let near = &mut self.0[rank.index() % NEAR];
        (near.rank == rank && near.forgotten == forgotten).then_some(near)
    }

    /// Where the words of a rank are that is remembered, whatever was forgotten since.
    pub(crate) fn place_of(&self, rank: Rank) -> Option<RemoteAddr> {
        Some(&self.0[rank.index() % NEAR]).filter(|near| near.rank == rank)?.place
    }

    /// Who would be forgotten for a rank.
    pub(crate) fn rival(&self, rank: Rank) -> Option<Rank> {
        Some(self.0[rank.index() % NEAR].rank).filter(|rival| *rival != rank && *rival != Rank(NONE))
    }

    /// Remembers one in the place of another.
    pub(crate) fn keep(&mut self, near: NearTarget) {
        self.0[near.rank.index() % NEAR] = near;
    }
}
