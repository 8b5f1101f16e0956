//! What is left of a rank that cannot be reached any more: nothing waits for it, and what it held is free.

use super::{Failure, Process};
use crate::bootstrap::Bootstrap;
use crate::error::FabricCode;
use crate::ids::Rank;
use crate::pool::NONE;
use crate::provider::Endpoint;
use crate::table::TargetError;
use crate::window::Window;
use crate::wire::{BatchFlags, Header, PacketKind, ReplyFlags};

/// The reason in errors about a rank that lives, but has given the window up.
pub(super) const WINDOW_GONE: FabricCode =
    FabricCode { code: 0, text: "it freed its part of the window after another rank's death" };

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Nothing will come of a rank on this window any more: as a target its operations fail, as a member of
    /// a group it is done, its answers are not waited for, and its locks are released.
    #[cold]
    #[inline(never)]
    pub(super) fn lose_rank(&mut self, w: &mut Window<E::Region>, rank: Rank, code: FabricCode) {
        match w.find(&self.targets, rank) {
            Some(t) => self.fail_target(w, t, code),
            None => self.lose_member(w, rank, code),
        }
        let owes = w.acks.remove_all(rank) > 0;
        if w.cursor.on_lost(rank) || owes {
            w.detached_error.get_or_insert((rank, TargetError::Peer(code)));
        }
        self.forget_regions(w, rank);
        w.lock.on_lost(rank, BatchFlags::UNLOCK.0);
        self.serve_grants(w);
        w.dirty = true;
    }

    /// Fails all that is left on a window that is freed without its peers.
    pub(crate) fn give_up_targets(&mut self, w: &mut Window<E::Region>, code: FabricCode) {
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            t = w.slots.next(&self.targets, index);
            self.fail_target(w, index, code);
        }
    }

    /// Somebody asks for a window that was freed without him, because a rank died. Who asks for one that
    /// never was, is answered the same.
    #[cold]
    pub(super) fn answer_gone(&mut self, request: &Header) {
        let is_broken = matches!(self.failure, Some(Failure::Peer(..)));
        if !is_broken || !request.kind.is_request() {
            return;
        }
        let Some(answer) = self.begin_answer() else { return };
        let header = Header {
            kind: PacketKind::Reply,
            flags: ReplyFlags::GONE.0,
            count: 0,
            window: request.window,
            sender: self.rank,
            token: request.token,
        };
        self.send_answer(request.sender, &header, answer);
    }
}
