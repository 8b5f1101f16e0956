//! What is left of a rank that cannot be reached any more: nothing waits for it, and what it held is free.

use alloc::vec::Vec;

use super::peers::Place;
use super::{Failure, Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::error::FabricCode;
use crate::ids::Rank;
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::provider::Endpoint;
use crate::table::TargetError;
use crate::window::Window;
use crate::wire::{BatchFlags, Header, PacketKind, ReplyFlags};

/// The reason in errors about a rank that lives, but has given the window up.
pub(super) const WINDOW_GONE: FabricCode =
    FabricCode { code: 0, text: "it freed its part of the window after another rank's death" };

/// The reason in errors about a rank of whose death the launcher told.
const PROCESS_ENDED: FabricCode = FabricCode { code: 0, text: "its process has ended, as the launcher says" };

/// Deaths for which room is kept, so that a death is remembered where nothing may be allocated.
const LOSSES_ROOM: usize = 32;

/// Ranks that are known to have died, in order, each with what was said of it first.
#[derive(Debug)]
pub(crate) struct Losses {
    ranks: Vec<(Rank, FabricCode)>,
}

impl Losses {
    pub(crate) fn new() -> Self {
        Self { ranks: Vec::with_capacity(LOSSES_ROOM) }
    }

    /// Remembers a death, unless that takes more room and none may be made. `false`: known before.
    fn add(&mut self, rank: Rank, code: FabricCode, may_grow: bool) -> bool {
        match self.ranks.binary_search_by_key(&rank, |(rank, _)| *rank) {
            Ok(_) => false,
            Err(place) => {
                if may_grow || self.ranks.len() < self.ranks.capacity() {
                    self.ranks.insert(place, (rank, code));
                }
                true
            }
        }
    }

    /// What is known of a rank's death.
    pub(crate) fn reason(&self, rank: Rank) -> Option<FabricCode> {
        let place = self.ranks.binary_search_by_key(&rank, |(rank, _)| *rank).ok()?;
        Some(self.ranks[place].1)
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// A rank's death, as the fabric or the launcher tells of it.
    #[cold]
    #[inline(never)]
    pub(super) fn lose_process(&mut self, windows: &mut Windows<E::Region>, rank: Rank, code: FabricCode) {
        self.note_peer_failure(rank, code);
        if Mutation::DeathIgnored.is_on() {
            return;
        }
        self.losses.add(rank, code, !self.is_deferring);
        for w in windows.iter_mut() {
            self.lose_rank(w, rank, code);
        }
    }

    /// Takes in what the launcher says of deaths; returns how many were news. A fabric that hides the end of a
    /// peer is told to expect nothing of it.
    pub(crate) fn hear_of_losses(&mut self, windows: &mut Windows<E::Region>) -> usize {
        let mut count = 0;
        while let Some(rank) = self.bootstrap.poll_lost() {
            if rank.0 >= self.size || rank == self.rank || self.losses.reason(rank).is_some() {
                continue;
            }
            count += 1;
            self.lose_process(windows, rank, PROCESS_ENDED);
            for place in [Place::of(rank), Place::ghost_of(rank)] {
                if let Some(peer) = self.peers.get(place) {
                    self.endpoint.abandon(peer, PROCESS_ENDED);
                }
            }
        }
        count
    }

    /// Whether a packet comes from somebody who is known to be dead: his requests would hold locks for ever.
    #[inline]
    pub(super) fn is_from_the_dead(&self, sender: Rank) -> bool {
        self.failure.is_some() && self.losses.reason(sender).is_some()
    }

    /// An epoch begins whose group may have members that are dead: these are done before it begins. Whether
    /// anybody is dead.
    pub(crate) fn lose_the_dead(&mut self, w: &mut Window<E::Region>) -> bool {
        let Some((rank, code)) = self.failure.as_ref().and_then(Failure::peer) else { return false };
        self.lose_member(w, rank, code);
        let mut place = 0;
        while let Some(&(rank, code)) = self.losses.ranks.get(place) {
            self.lose_member(w, rank, code);
            place += 1;
        }
        true
    }

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
