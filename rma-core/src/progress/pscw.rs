//! post-start-complete-wait: the notices of a target, the questions and COMPLETEs of an origin. Whatever the
//! fabric does not take at once, or must wait for a post, is left to progress.

use super::Process;
use crate::bootstrap::Bootstrap;
use crate::epoch::PostSeen;
use crate::error::FabricCode;
use crate::ids::Rank;
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::provider::{Endpoint, PostError};
use crate::state::{TargetLockState, WindowState};
use crate::table::{Sync, TargetError};
use crate::window::{Told, Window};
use crate::wire::{BatchFlags, Header, Metadata, PacketKind, PostFlags, Reader, WireError};

/// Notices, or questions, that one call of progress sends on one window at most.
const NOTICES_MAX: usize = 16;

/// Why a packet did not go.
enum NotSent {
    /// No room now.
    Again,
    /// The rank cannot be reached any more.
    Lost(FabricCode),
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// What post, start and complete have left to progress.
    #[inline]
    pub(crate) fn advance_pscw(&mut self, w: &mut Window<E::Region>) {
        if w.exposure.poll_notice().is_some() {
            self.send_notices(w);
        }
        if w.line.is_some() {
            self.hear_epochs(w);
        }
        if w.access.is_open() {
            self.advance_access(w);
        }
    }

    #[cold]
    #[inline(never)]
    fn advance_access(&mut self, w: &mut Window<E::Region>) {
        self.send_questions(w);
        if w.access.is_completing() {
            self.complete_untouched(w);
            if w.has_leftover() {
                self.finish_leftover(w);
            }
        }
    }

    /// Tells the members of the exposure epoch's group that the window is exposed to them.
    pub(crate) fn send_notices(&mut self, w: &mut Window<E::Region>) {
        for _ in 0..NOTICES_MAX {
            let Some(rank) = w.exposure.poll_notice() else { return };
            if rank == self.rank {
                w.exposure.on_noticed();
                if w.access.on_post(rank) == PostSeen::Granted {
                    self.on_granted(w, rank, None);
                }
                continue;
            }
            match self.send_notice(w, rank) {
                Ok(()) => {}
                Err(NotSent::Again) => return,
                Err(NotSent::Lost(code)) => w.exposure.on_lost(rank, code),
            }
            w.exposure.on_noticed();
        }
    }

    fn send_notice(&mut self, w: &mut Window<E::Region>, rank: Rank) -> Result<(), NotSent> {
        if let Some(told) = self.tell_of_epoch(w, Told::Post, rank) {
            return self.sent(rank, told);
        }
        let (flags, metadata) = match w.symmetric {
            Some(_) => (PostFlags::default(), None),
            None => (PostFlags::METADATA, Some(w.own.to_bytes())),
        };
        let header = self.header_about(w, PacketKind::Post, flags.0, 0);
        let payload = metadata.as_ref().map_or(&[][..], |bytes| &bytes[..]);
        self.send_to_rank(rank, &header, payload)?;
        let from = self.rank;
        if let Some(line) = &mut w.line {
            line.on_packet_of_post(from, rank);
        }
        Ok(())
    }

    /// A header without records.
    fn header_about(&self, w: &Window<E::Region>, kind: PacketKind, flags: u16, token: u32) -> Header {
        Header { kind, flags, count: 0, window: w.id, sender: self.rank, token }
    }

    fn send_to_rank(&mut self, rank: Rank, header: &Header, payload: &[u8]) -> Result<(), NotSent> {
        let peer = match self.waiting_peer(rank) {
            Ok(Some(peer)) => peer,
            Ok(None) => return Err(NotSent::Again),
            Err(code) => return Err(NotSent::Lost(code)),
        };
        let posted = self.send(peer, header.kind, &header.encode(), payload);
        self.sent(rank, posted)
    }

    fn sent(&mut self, rank: Rank, posted: Result<(), PostError>) -> Result<(), NotSent> {
        match posted {
            Ok(()) => Ok(()),
            Err(PostError::Again) => Err(NotSent::Again),
            Err(PostError::Failed(code)) => {
                self.note_peer_failure(rank, code);
                Err(NotSent::Lost(code))
            }
        }
    }

    /// A target says that its window is exposed to this process, or answers that it was.
    pub(crate) fn on_post(
        &mut self,
        w: &mut Window<E::Region>,
        header: &Header,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let flags = PostFlags(header.flags);
        let has_metadata = flags.has(PostFlags::METADATA);
        let metadata = if has_metadata { Some(Metadata::decode(reader)?) } else { None };
        let unexpected = Err(WireError::Flags(header.flags));
        if flags.has(PostFlags::ANSWER) {
            // The notice may have come before the answer; then nobody wants that any more.
            if w.access.on_answer(header.sender, header.token) {
                w.notices.on_made_up_for();
                self.on_granted(w, header.sender, metadata);
            }
            return Ok(());
        }
        match w.access.on_post(header.sender) {
            PostSeen::Granted => self.on_granted(w, header.sender, metadata),
            PostSeen::Early if w.notices.on_early(header.sender, metadata) => {}
            PostSeen::Early | PostSeen::Repeated => return unexpected,
        }
        Ok(())
    }

    /// Operations to the member may leave now.
    pub(super) fn on_granted(&mut self, w: &mut Window<E::Region>, rank: Rank, metadata: Option<Metadata>) {
        if let Some(t) = w.slots.find(&self.targets, rank) {
            if let Some(metadata) = metadata {
                self.targets[t].metadata = Some(metadata);
                self.check_pending_ranges(w, t, &metadata);
            }
            self.targets[t].lock.on_grant().unwrap_or_default();
            self.refresh_direct(t);
        } else {
            w.notices.keep(rank, metadata);
        }
        self.note_all_granted(w);
        w.dirty = true;
    }

    /// The window's state follows when the last member has posted.
    pub(crate) fn note_all_granted(&mut self, w: &mut Window<E::Region>) {
        if w.state() == WindowState::PscwIssued && w.access.all_granted() {
            let _ = w.transition(WindowState::on_posts);
        }
    }

    /// Takes the notices that came before the epoch, and asks for those that found no room.
    pub(crate) fn begin_access(&mut self, w: &mut Window<E::Region>) {
        let Window { access, notices, .. } = w;
        while let Some(rank) = notices.poll_early(|rank| access.contains(rank)) {
            // A member of an epoch that has just begun: granted by its first notice.
            access.on_post(rank);
        }
        if w.exposure.is_exposed_to(self.rank) {
            w.access.on_post(self.rank);
        }
        self.hear_posts(w);
        let has_losses = self.lose_the_dead(w);
        // Who was found dead before this epoch says nothing any more; asking finds the others out.
        if w.notices.has_dropped() || has_losses {
            w.access.ask();
            self.send_questions(w);
        }
        self.note_all_granted(w);
    }

    /// Asks members whether they have posted: their notices may have found no room here.
    fn send_questions(&mut self, w: &mut Window<E::Region>) {
        for _ in 0..NOTICES_MAX {
            let Some(rank) = w.access.poll_ask() else { return };
            if rank != self.rank {
                let header = self.header_about(w, PacketKind::PostQuery, 0, w.access.sequence());
                match self.send_to_rank(rank, &header, &[]) {
                    Ok(()) => self.counters.post_queries += 1,
                    Err(NotSent::Again) => return,
                    Err(NotSent::Lost(code)) => self.lose_member(w, rank, code),
                }
            }
            w.access.on_asked();
        }
    }

    /// An origin asks whether the window is exposed to it. If not, its notice is yet to come.
    pub(crate) fn on_post_query(&mut self, w: &Window<E::Region>, query: &Header) {
        // A neighbour's word says so, or will: an answer would be one notice more.
        let is_told = self.word_to_tell(w, Told::Post, query.sender).is_some();
        if !is_told && w.exposure.is_exposed_to(query.sender) {
            let flags = PostFlags::ANSWER | PostFlags::METADATA;
            let header = self.header_about(w, PacketKind::Post, flags.0, query.token);
            self.answer_with_metadata(w, query.sender, &header);
        }
    }

    /// Sends COMPLETE to the members that have posted and have no element to which it is left; where ghosts
    /// serve, to those whose ghosts have acknowledged everything.
    pub(crate) fn complete_untouched(&mut self, w: &mut Window<E::Region>) {
        let is_hasty = w.is_served && Mutation::CompleteBeforeGhosts.is_on();
        if w.is_served && !w.acks.is_empty() && !is_hasty {
            // Ghosts owe them, whose packets nothing orders before those that go from rank to rank.
            return;
        }
        let mut from = 0;
        while let Some((place, rank)) = w.access.poll_close(from) {
            from = place + 1;
            let element = w.slots.find(&self.targets, rank);
            let is_told_here = rank == self.rank || w.is_served;
            if element.is_some_and(|t| !is_told_here || self.sync_phase(t).is_some() && !is_hasty) {
                continue;
            }
            if rank == self.rank {
                w.exposure.on_complete(rank);
                self.close_member(w, rank);
                continue;
            }
            let sent = match self.tell_complete(w, rank) {
                Some(told) => self.sent(rank, told),
                None => {
                    let header = self.header_about(w, PacketKind::Batch, BatchFlags::COMPLETE.0, 0);
                    self.send_to_rank(rank, &header, &[])
                }
            };
            match sent {
                Ok(()) => self.close_member(w, rank),
                Err(NotSent::Again) => return,
                Err(NotSent::Lost(code)) => self.lose_member(w, rank, code),
            }
        }
    }

    /// The member has got COMPLETE.
    pub(crate) fn close_member(&mut self, w: &mut Window<E::Region>, rank: Rank) {
        w.access.on_closed(rank);
        w.notices.forget(rank);
    }

    /// The rank cannot be reached any more: no post of it, and no COMPLETE, is waited for.
    pub(crate) fn lose_member(&mut self, w: &mut Window<E::Region>, rank: Rank, code: FabricCode) {
        w.exposure.on_lost(rank, code);
        self.lose_poster(w, rank, code);
    }

    /// The same of a rank of which a COMPLETE may still come.
    pub(crate) fn lose_poster(&mut self, w: &mut Window<E::Region>, rank: Rank, code: FabricCode) {
        if w.access.on_lost(rank) {
            w.notices.forget(rank);
            self.note_late_error(w, rank, TargetError::Peer(code));
            self.note_all_granted(w);
        }
    }

    /// Whether complete may return as far as one target is concerned: its part is done, or nothing of it
    /// needs the user any more and it waits for a post (weak synchronization).
    pub(crate) fn may_return_from_complete(&self, t: u32) -> bool {
        let te = &self.targets[t];
        let waits_for_post = te.lock == TargetLockState::Issued && !te.is_dead();
        (waits_for_post && te.is_locally_complete()) || self.sync_phase(t).is_none()
    }

    /// Frees the elements of targets whose part of a completing epoch is done, and counts their phases of waiting; what
    /// went wrong is kept.
    pub(crate) fn free_completed(&mut self, w: &mut Window<E::Region>, counted: &mut u8) {
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            t = w.slots.next(&self.targets, index);
            self.count_phases(counted, index);
            let te = &self.targets[index];
            let rank = te.rank;
            let is_done = te.sync == Sync::Complete && self.sync_phase(index).is_none();
            // This process's own part is told by `complete_untouched`, to itself; and every one with ghosts.
            if is_done && (rank != self.rank && !w.is_served || w.access.is_closed(rank)) {
                if let Some(error) = te.error {
                    self.note_late_error(w, rank, error);
                }
                self.free_target(w, index);
            }
        }
    }

    /// What a complete that has returned left behind: the epoch is over when nothing is left.
    fn finish_leftover(&mut self, w: &mut Window<E::Region>) {
        // The call that would wait has returned.
        let mut counted = u8::MAX;
        self.free_completed(w, &mut counted);
        if w.access.is_over() && w.slots.count() == 0 {
            w.access.end();
        }
    }
}
