//! Locks that are words once a rank has died: whether somebody who waits for one waits for the living.

use super::waiters::NearWords;
use super::{Failure, Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::ids::{PeerAddr, Rank};
use crate::lock::words::{Verdict, WordLock};
use crate::pool::NONE;
use crate::provider::Endpoint;
use crate::window::{Window, SEATS};

/// Looks of locks that wait, at which the fabric may not yet have said whose end it was that an operation has failed for.
const EARLY_LOOKS: u32 = 1000;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Whether a rank has died, so that locks may be lost with it.
    pub(crate) fn is_mourning(&self) -> bool {
        matches!(self.failure, Some(Failure::Peer(..))) || !self.losses.is_empty()
    }

    /// Remembers why calls fail from here on, if nothing else is the reason already.
    #[cold]
    pub(crate) fn note_failure(&mut self, failure: Failure) {
        if self.failure.is_none() {
            self.disturbances = self.disturbances.wrapping_add(1);
            self.failure = Some(failure);
        }
    }

    /// Asks a machine that waits whether it waits for the living; `is_mine`: another lock of this rank's may be the one
    /// that is in the word. It is the lock of the rank, at this peer.
    #[inline]
    pub(super) fn find_out(
        &mut self,
        w: &Window<E::Region>,
        lock: &mut WordLock,
        at: (Rank, Option<PeerAddr>),
        is_mine: bool,
    ) -> bool {
        self.is_mourning() && self.judge(w, lock, at, is_mine)
    }

    #[cold]
    #[inline(never)]
    fn judge(
        &mut self,
        w: &Window<E::Region>,
        lock: &mut WordLock,
        (target, peer): (Rank, Option<PeerAddr>),
        is_mine: bool,
    ) -> bool {
        let first = self.failure.as_ref().and_then(Failure::lost_peer).map(|(rank, _)| rank);
        // An operation may fail before the fabric says why. What the dead held by packets is given back only then.
        if first.is_some_and(|rank| self.losses.reason(rank).is_none()) && self.early_looks < EARLY_LOOKS {
            self.early_looks += 1;
            return false;
        }
        let me = self.rank;
        match lock.find_out(|rank| if rank == me { is_mine } else { !self.is_dead(rank) }) {
            Verdict::Waits => false,
            Verdict::Lost => true,
            Verdict::Late(ticket) => {
                let place = w.words.as_ref().and_then(|words| words.place_of(target, me));
                let near = peer.zip(place).map(|(peer, at)| NearWords { peer, at });
                let next = near.and_then(|near| self.find_waiter(near, ticket));
                let is_lost = next.is_none_or(|rank| self.is_dead(rank));
                if is_lost {
                    lock.lose();
                }
                is_lost
            }
        }
    }

    fn is_dead(&self, rank: Rank) -> bool {
        let first = self.failure.as_ref().and_then(Failure::lost_peer);
        first.is_some_and(|(first, _)| first == rank) || self.losses.reason(rank).is_some()
    }

    /// Tells the locks that are waited for that parts of time have passed.
    pub(crate) fn on_time(&mut self, windows: &mut Windows<E::Region, E::Passage>, parts: u8) {
        for w in windows.iter_mut() {
            let Some(words) = &mut w.words else { continue };
            (0..SEATS).for_each(|seat| words.seat_mut(seat).lock.on_time(parts));
            let mut t = w.slots.next(&self.targets, NONE);
            while let Some(index) = t {
                self.targets[index].words.on_time(parts);
                t = w.slots.next(&self.targets, index);
            }
        }
    }
}
