//! How a window's locks are had, and each lock of one whose locks are words (docs/locks.md).

use super::issue::Again;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::ids::{Rank, RemoteKey, WindowId};
use crate::info::{LockProtocol, WindowOptions};
use crate::lock::words::Tickets;
use crate::pool::NONE;
use crate::provider::Endpoint;
use crate::state::TargetLockState;
use crate::table::Sync;
use crate::window::{has_atomics, Pages, Window, Words};
use crate::wire::Metadata;

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
        if choice == LockProtocol::Nic && reaches_all {
            return Ok(true);
        }
        if !self.resolve(w, t) {
            return Err(Again);
        }
        let te = &self.targets[t];
        let rank = te.rank;
        if te.peer.is_some_and(|peer| self.endpoint.completes_at_once(peer)) {
            return Ok(true);
        }
        // All that is to be done fits the request, which is one round trip. Of lock_all, whether a rank was locked by a
        // packet must follow from the rank, as elements come and go.
        let is_small = te.sync == Sync::Unlock && !te.lock_wanted && !w.state().is_lock_all();
        let is_asked = is_small && !w.words.as_mut().is_some_and(|words| words.busy.is_spared(rank));
        Ok(reaches_all && !is_asked)
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
