//! How a window's locks are had, and each lock of one whose locks are words (docs/locks.md).

use super::issue::Again;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::ids::{PeerAddr, Rank, RemoteKey, WindowId};
use crate::info::{LockProtocol, WindowOptions};
use crate::lock::words::{Claim, Tickets, WordLock};
use crate::pool::NONE;
use crate::provider::{Endpoint, RemoteAddr};
use crate::state::TargetLockState;
use crate::table::Sync;
use crate::window::{has_atomics, Pages, Window, Words, FIRST_PROXY, OWN_SEAT};
use crate::wire::{BatchFlags, Metadata};

/// First key of the words with which windows are locked: apart from those of windows and of dynamic windows' regions.
const WORDS_KEY_BASE: u64 = 0x2000_0000;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Whether this rank would lock a window with these options by atomics: by what it would choose where it has a
    /// choice, and whether all ranks reach its words, or its neighbours alone.
    fn offers_words(&self, options: &WindowOptions) -> Option<(LockProtocol, bool)> {
        // The words are memory of the fabric's choice.
        let native = self.endpoint.native_allocated();
        let reaches_all = has_atomics(native);
        let is_reached = reaches_all || has_atomics(self.endpoint.native_near());
        // The checker at the target has to see where epochs end.
        let is_refused = options.no_locks || options.check == Some(true) || self.config.force_message_path;
        let protocol = options.lock_protocol.unwrap_or_default();
        let is_wanted = match protocol {
            LockProtocol::Nic => true,
            // Where all reach them though operations are packets, or need the target's process, LOCK and UNLOCK ride
            // with them.
            LockProtocol::Auto => {
                !reaches_all || (native.put && native.get && !self.limits.needs_target_progress)
            }
            LockProtocol::Message => false,
        };
        let is_offered = is_wanted && is_reached && !is_refused && self.size <= Tickets::RANKS_MAX;
        is_offered.then_some((protocol, reaches_all))
    }

    /// The words of a new window's lock, if this rank has some to offer.
    pub(crate) fn make_words(
        &mut self,
        pages: &mut Pages,
        options: &WindowOptions,
        id: WindowId,
        own: Metadata,
    ) -> Option<Words<E::Region>> {
        let offer = self.offers_words(options)?;
        let key = RemoteKey(WORDS_KEY_BASE + u64::from(id.0));
        Words::new(&mut self.endpoint, pages, (id, key), own, offer)
    }

    /// Whether a target's lock, which was called, is to be had by its words; else it is by a packet, which the target
    /// answers when it has drawn a ticket itself. `Err`: not known yet.
    pub(crate) fn locks_by_words(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<bool, Again> {
        let Some((choice, reaches_all)) = w.words.as_ref().map(|words| (words.choice, words.reaches_all))
        else {
            return Ok(false);
        };
        let rank = self.targets[t].rank;
        let is_out_of_reach = self.targets[t].is_out_of_reach;
        if is_out_of_reach || self.is_far(w, rank) {
            return Ok(false);
        }
        if choice == LockProtocol::Nic && reaches_all {
            return Ok(true);
        }
        if !self.resolve(w, t) {
            return Err(Again);
        }
        let te = &self.targets[t];
        if te.peer.is_some_and(|peer| self.endpoint.completes_at_once(peer)) {
            return Ok(true);
        }
        // All that is to be done fits the request, which is one round trip. Of lock_all, whether a rank was locked by a
        // packet must follow from the rank, as elements come and go.
        let is_small = te.sync == Sync::Unlock && !te.lock_wanted && !w.state().is_lock_all();
        let is_asked = is_small && !w.words.as_mut().is_some_and(|words| words.busy.is_spared(rank));
        Ok(reaches_all && !is_asked)
    }

    /// Whether lock_all has asked the rank by a packet, though it is a neighbour.
    pub(super) fn is_far(&self, w: &Window<E::Region>, rank: Rank) -> bool {
        w.state().is_lock_all() && w.words.as_ref().is_some_and(|words| words.is_far(rank))
    }

    /// The fabric has refused the first step to a target's lock. Where the words cannot be had here, for want of
    /// descriptors, the target is asked to draw the ticket.
    #[cold]
    pub(super) fn turns_to_packets(
        &mut self,
        w: &mut Window<E::Region>,
        t: u32,
        peer: PeerAddr,
        at: RemoteAddr,
    ) -> bool {
        let is_lock_all = w.state().is_lock_all();
        let te = &self.targets[t];
        let asked = WordLock::asked(Claim::of(te.lock_type, is_lock_all), self.rank);
        let has_not_begun = te.words == asked && te.lock == TargetLockState::Issued;
        if !has_not_begun || self.endpoint.reaches(peer, at) {
            return false;
        }
        if is_lock_all && !w.words.as_mut().is_some_and(|words| words.keep_far(te.rank)) {
            return false;
        }
        let te = &mut self.targets[t];
        (te.words, te.lock, te.no_check) = (WordLock::NONE, TargetLockState::Called, false);
        (te.lock_wanted, te.is_out_of_reach) = (true, true);
        w.dirty = true;
        true
    }

    /// The same of a rank that the walk of lock_all has come to.
    #[cold]
    pub(super) fn walks_on_by_packet(
        &mut self,
        w: &mut Window<E::Region>,
        seat: usize,
        peer: PeerAddr,
        at: RemoteAddr,
    ) -> Result<bool, Again> {
        let is_walks = (OWN_SEAT + 1..FIRST_PROXY).contains(&seat);
        let Some(words) = w.words.as_mut().filter(|_| is_walks) else { return Ok(false) };
        let (rank, asked) = (words.seat(seat).rank, WordLock::asked(Claim::Everywhere, self.rank));
        let has_begun = words.seat(seat).lock != asked;
        if has_begun || !words.has_room_far() || self.endpoint.reaches(peer, at) {
            return Ok(false);
        }
        if !self.send_detached(w, rank, BatchFlags::LOCK_SHARED | BatchFlags::OVERTAKE)? {
            w.cursor.on_lost(rank);
        }
        // Not before: who comes here again may find its words, and take them.
        if let Some(words) = &mut w.words {
            words.keep_far(rank);
        }
        self.leave_seat(w, seat);
        Ok(true)
    }

    /// A caller is about to sleep, because what it waits for on the window does not come: the targets that have not
    /// answered its lock requests are busy elsewhere, and have words that can be taken without them.
    #[cold]
    pub(crate) fn on_kept_waiting(&self, w: &mut Window<E::Region>) {
        let Some(words) = w.words.as_mut().filter(|words| words.reaches_all) else { return };
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            let te = &self.targets[index];
            if te.lock == TargetLockState::Issued && te.words.is_idle() {
                words.busy.on_kept_waiting(te.rank);
            }
            t = w.slots.next(&self.targets, index);
        }
    }

    /// The same of a rank that the walk of lock_all has come to.
    pub(super) fn walks_by_words(&mut self, w: &Window<E::Region>, rank: Rank) -> Result<bool, Again> {
        let Some(words) = &w.words else { return Ok(false) };
        if words.is_far(rank) {
            return Ok(false);
        }
        if words.reaches_all {
            return Ok(true);
        }
        match self.target_peer(w, rank) {
            Ok(Some(peer)) => Ok(self.endpoint.completes_at_once(peer)),
            Ok(None) => Err(Again),
            // Found out again by what is posted.
            Err(_) => Ok(false),
        }
    }
}
