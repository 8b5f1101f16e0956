//! Neighbours whose locks are words: what an epoch to one takes that is over as soon as each call returns, so that it needs
//! no target element.

use crate::ids::{PeerAddr, Rank, RemoteKey};
use crate::lock::words::{Swap, Tickets, Word};
use crate::pool::NONE;
use crate::provider::{RemoteAddr, WordSwap};
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
    /// Its first word.
    pub(crate) place: RemoteAddr,
    pub(crate) metadata: Metadata,
    /// What that word may say now.
    pub(crate) tickets: Tickets,
}

impl NearTarget {
    /// A neighbour; `forgotten` is how many addresses were so far.
    pub(crate) fn new(
        rank: Rank,
        (peer, forgotten): (PeerAddr, u32),
        place: RemoteAddr,
        metadata: Metadata,
    ) -> Self {
        Self { rank, forgotten, peer, place, metadata, tickets: Tickets::free(0) }
    }

    const NONE: Self = Self {
        rank: Rank(NONE),
        forgotten: 0,
        peer: PeerAddr(0),
        place: RemoteAddr { addr: 0, key: RemoteKey(0) },
        metadata: Metadata { base: 0, size: 0, disp_unit: 1, key: RemoteKey(0), misalignment: 0 },
        tickets: Tickets(0),
    };

    /// The location of `len` bytes at `disp`; `None` when they are not inside of the window.
    #[inline]
    pub(crate) fn locate(&self, disp: u64, len: usize) -> Option<RemoteAddr> {
        let offset = self.metadata.locate(disp, len as u64).ok()?;
        Some(RemoteAddr { addr: self.metadata.base.wrapping_add(offset), key: self.metadata.key })
    }

    /// The same of a swap.
    #[inline]
    pub(crate) fn swap(&self, (word, from, into): Swap) -> WordSwap {
        let addr = self.place.addr.wrapping_add(super::offset_of(word));
        WordSwap { at: RemoteAddr { addr, ..self.place }, from, into }
    }

    /// The first word was something else than expected.
    #[inline]
    pub(crate) fn learn(&mut self, word: Word, other: u64) {
        if word == Word::Tickets {
            self.tickets = Tickets(other);
        }
    }
}

/// The neighbours of a window that are remembered.
#[derive(Debug)]
pub(crate) struct NearTargets([NearTarget; NEAR]);

impl NearTargets {
    /// None.
    pub(crate) const NONE: Self = Self([NearTarget::NONE; NEAR]);

    /// The neighbour, if it is remembered and its address has not been forgotten since.
    #[inline]
    pub(crate) fn find(&mut self, rank: Rank, forgotten: u32) -> Option<&mut NearTarget> {
        let near = &mut self.0[rank.index() % NEAR];
        (near.rank == rank && near.forgotten == forgotten).then_some(near)
    }

    /// Remembers one in the place of another.
    pub(crate) fn learn(&mut self, near: NearTarget) {
        self.0[near.rank.index() % NEAR] = near;
    }
}
