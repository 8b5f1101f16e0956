//! What is left of a rank that cannot be reached any more: nothing waits for it, and what it held is free.

use alloc::vec::Vec;

use super::control::NO_WINDOW;
use super::peers::Place;
use super::{Failure, Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::error::FabricCode;
use crate::ids::{PeerAddr, Rank};
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::provider::{Endpoint, PostError, SendClass};
use crate::table::{KeptPassage, TargetError};
use crate::window::Window;
use crate::wire::{BatchFlags, Header, PacketKind, QueryFlags, Reader, ReplyFlags, WireError};

/// The reason in errors about a rank that lives, but has given the window up.
pub(super) const WINDOW_GONE: FabricCode =
    FabricCode { code: 0, text: "it freed its part of the window after another rank's death" };

/// The reason in errors about a rank of whose death the launcher told.
const PROCESS_ENDED: FabricCode = FabricCode { code: 0, text: "its process has ended, as the launcher says" };

/// The reason in errors about operations that were kept for a fence to which not all have come.
pub(crate) const LEFT: FabricCode = FabricCode {
    code: 0,
    text: "the fence before was left by a rank which cannot reach another one any more",
};

/// The reason in errors about a rank whose ghost is given up.
const DEAF: FabricCode = FabricCode { code: 0, text: "its ghost process takes no packets any more" };

/// Deaths for which room is kept, so that a death is remembered where nothing may be allocated.
const LOSSES_ROOM: usize = 32;

/// What a reply says of a rank of which something does not come any more.
pub(super) const GOES: ReplyFlags =
    ReplyFlags(ReplyFlags::GONE.0 | ReplyFlags::NO_POST.0 | ReplyFlags::NO_COMPLETE.0);

/// Ranks in one packet of news.
const NEWS_MAX: usize = 16;

/// What is known of a death.
#[derive(Clone, Copy, Debug)]
struct Loss {
    rank: Rank,
    /// What was said of it first.
    code: FabricCode,
    /// The launcher has said that the process has ended: it is more than unreachable, and more than its ghost's end.
    has_ended: bool,
}

/// Ranks that are known to have died, in order.
#[derive(Debug)]
pub(crate) struct Losses {
    known: Vec<Loss>,
    /// The place from which ghosts are told of ended processes next.
    next_news: usize,
}

impl Losses {
    pub(crate) fn new() -> Self {
        Self { known: Vec::with_capacity(LOSSES_ROOM), next_news: 0 }
    }

    /// Whether none is known.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Those whose processes have ended.
    pub(crate) fn ended(&self) -> impl Iterator<Item = Rank> + '_ {
        self.known.iter().filter(|loss| loss.has_ended).map(|loss| loss.rank)
    }

    /// Remembers a death, unless that takes more room and none may be made.
    fn add(&mut self, rank: Rank, code: FabricCode, may_grow: bool) {
        if let Err(place) = self.known.binary_search_by_key(&rank, |loss| loss.rank) {
            if may_grow || self.known.len() < self.known.capacity() {
                self.known.insert(place, Loss { rank, code, has_ended: false });
            }
        }
    }

    fn of(&self, rank: Rank) -> Option<&Loss> {
        let place = self.known.binary_search_by_key(&rank, |loss| loss.rank).ok()?;
        self.known.get(place)
    }

    /// What is known of a rank's death.
    pub(crate) fn reason(&self, rank: Rank) -> Option<FabricCode> {
        self.of(rank).map(|loss| loss.code)
    }

    /// The launcher says that the process of a rank that is known to have died has ended. `true`: that is news.
    fn end(&mut self, rank: Rank) -> bool {
        let Ok(place) = self.known.binary_search_by_key(&rank, |loss| loss.rank) else { return false };
        !core::mem::replace(&mut self.known[place].has_ended, true)
    }

    /// Writes some of the ranks whose processes have ended, others each time until all were; how many.
    fn take_news(&mut self, out: &mut [[u8; 4]; NEWS_MAX]) -> usize {
        let mut count = 0;
        for _ in 0..self.known.len() {
            let loss = &self.known[self.next_news % self.known.len()];
            if loss.has_ended {
                let Some(entry) = out.get_mut(count) else { break };
                *entry = loss.rank.0.to_le_bytes();
                count += 1;
            }
            self.next_news = (self.next_news + 1) % self.known.len();
        }
        count
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// A rank's death, as the fabric or the launcher tells of it.
    #[cold]
    #[inline(never)]
    pub(super) fn lose_process(
        &mut self,
        windows: &mut Windows<E::Region, E::Passage>,
        rank: Rank,
        code: FabricCode,
    ) {
        self.note_peer_failure(rank, code);
        if Mutation::DeathIgnored.is_on() {
            return;
        }
        if self.losses.reason(rank).is_none() {
            self.disturbances = self.disturbances.wrapping_add(1);
        }
        self.losses.add(rank, code, !self.is_deferring);
        (self.shortcut.has_passage, self.passage) = (false, KeptPassage::NONE);
        for w in windows.iter_mut() {
            self.lose_rank(w, rank, code);
        }
    }

    /// Takes in what the launcher says of deaths; returns how many were news.
    pub(crate) fn hear_of_losses(&mut self, windows: &mut Windows<E::Region, E::Passage>) -> usize {
        let mut count = 0;
        while let Some(rank) = self.bootstrap.poll_lost() {
            count += usize::from(self.hear_of_loss(windows, rank));
        }
        count
    }

    /// The launcher has told that a rank's process has ended; whether its death is news. A fabric that hides the
    /// end of a peer is told to expect nothing of it. The ghost must know, too: the locks that it gave are with the
    /// dead otherwise.
    #[cold]
    #[inline(never)]
    pub(crate) fn hear_of_loss(&mut self, windows: &mut Windows<E::Region, E::Passage>, rank: Rank) -> bool {
        if rank.0 >= self.size || rank == self.rank {
            return false;
        }
        let is_news = self.losses.reason(rank).is_none();
        if is_news {
            self.lose_process(windows, rank, PROCESS_ENDED);
            for place in [Place::of(rank), Place::ghost_of(rank)] {
                if let Some(peer) = self.peers.get(place) {
                    self.endpoint.abandon(peer, PROCESS_ENDED);
                }
            }
        }
        if self.losses.end(rank) {
            if let Some(ghost) = &mut self.ghost {
                ghost.lost(rank);
            }
        }
        is_news
    }

    /// Somebody who waits for this ghost tells whose processes have ended, because the ghost's own rank may be
    /// elsewhere and listen to nobody.
    #[cold]
    pub(super) fn on_losses(
        &mut self,
        windows: &mut Windows<E::Region, E::Passage>,
        header: &Header,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        for _ in 0..header.count {
            let rank = Rank(reader.u32()?);
            self.hear_of_loss(windows, rank);
        }
        Ok(())
    }

    /// Tells a ghost whose processes have ended, if that is known of anybody.
    fn tell_of_losses(&mut self, peer: PeerAddr) -> Result<(), PostError> {
        let mut ranks = [[0; 4]; NEWS_MAX];
        let count = self.losses.take_news(&mut ranks);
        if count == 0 {
            return Ok(());
        }
        let (kind, sender) = (PacketKind::Losses, self.rank);
        let header = Header { kind, flags: 0, count: count as u16, window: NO_WINDOW, sender, token: 0 };
        self.send(peer, kind, &header.encode(), ranks[..count].as_flattened())
    }

    /// Sends a ghost, which owes an answer about the window, what needs none, to learn whether it is there. `true`:
    /// the fabric has no room for it; a ghost for which it `is_hopeless` to wait for room is given up.
    pub(crate) fn probe_ghost(&mut self, w: &mut Window<E::Region>, rank: Rank, is_hopeless: bool) -> bool {
        let Some(peer) = self.peers.get(Place::of_target(w, rank)) else { return false };
        let code = match self.reintroduce(peer).and_then(|()| self.tell_of_losses(peer)) {
            Ok(()) => return false,
            Err(PostError::Again) if !is_hopeless => return true,
            Err(PostError::Again) => DEAF,
            Err(PostError::Failed(code)) => code,
        };
        self.lose_rank(w, rank, code);
        false
    }

    /// Whether a packet comes from somebody who is known to be dead: his requests would hold locks for ever.
    #[inline]
    pub(super) fn is_from_the_dead(&self, sender: Rank) -> bool {
        self.failure.is_some() && self.losses.reason(sender).is_some()
    }

    /// An epoch begins whose group may have members that are dead: these are done before it begins. Whether
    /// anybody is dead.
    pub(crate) fn lose_the_dead(&mut self, w: &mut Window<E::Region>) -> bool {
        if !self.is_mourning() {
            return false;
        }
        if let Some((rank, code)) = self.failure.as_ref().and_then(Failure::lost_peer) {
            self.lose_member(w, rank, code);
        }
        let mut place = 0;
        while let Some(&Loss { rank, code, .. }) = self.losses.known.get(place) {
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
        w.exposure.on_lost(rank, code);
        self.lose_target(w, rank, code);
    }

    /// The same of a rank that may have sent a COMPLETE.
    fn lose_target(&mut self, w: &mut Window<E::Region>, rank: Rank, code: FabricCode) {
        match w.find(&self.targets, rank) {
            Some(t) => self.fail_as_target(w, t, code),
            None => self.lose_poster(w, rank, code),
        }
        let owes = w.acks.remove_all(rank) > 0;
        if w.cursor.on_lost(rank) || owes {
            self.note_late_error(w, rank, TargetError::Peer(code));
        }
        self.forget_regions(w, rank);
        if let Some(words) = &mut w.words {
            words.lose(Some(rank));
        }
        self.leave_lost_seats(w, rank);
        self.release_lost(w, rank, BatchFlags::UNLOCK.0);
        self.serve_grants(w);
        w.dirty = true;
    }

    /// Notes that operations to a rank are given up. Unless its process has ended it may live, and what was sent may come to its
    /// memory yet; and the others need not hear that it is lost to this one.
    pub(crate) fn note_doubt(&mut self, rank: Rank, code: FabricCode) {
        if code != PROCESS_ENDED && code != WINDOW_GONE {
            self.doubt.get_or_insert(rank);
        }
    }

    /// Frees the targets of a window whose operations come to nothing: with a reason, because a rank is lost to this one. `false`:
    /// the fabric still has some of them.
    pub(crate) fn free_lost_targets(&mut self, w: &mut Window<E::Region>, code: Option<FabricCode>) -> bool {
        match code {
            Some(code) => self.give_up_targets(w, code),
            None => self.give_up_left(w),
        }
        while let Some(t) = w.slots.next(&self.targets, NONE) {
            self.cleanup_ops_target(w, t);
            if self.sync_phase(t).is_some() {
                return false;
            }
            self.free_target(w, t);
        }
        true
    }

    /// Fails all that is left on a window that is freed without its peers.
    fn give_up_targets(&mut self, w: &mut Window<E::Region>, code: FabricCode) {
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            t = w.slots.next(&self.targets, index);
            self.fail_target(w, index, code);
        }
    }

    /// Whether windows may have been freed without the others. A ghost may not know why its rank has done so.
    pub(super) fn may_have_freed_alone(&self) -> bool {
        matches!(self.failure, Some(Failure::Peer(..))) || !self.kept.is_empty() || self.flood.has_begun
    }

    /// Somebody asks for a window that was freed without him, because a rank died. Who asks for one that
    /// never was, is answered the same.
    #[cold]
    pub(super) fn answer_gone(&mut self, request: &Header) {
        if !self.may_have_freed_alone() || !request.kind.is_request() {
            return;
        }
        if is_question(request) {
            return self.answer_question(request, ReplyFlags::GONE);
        }
        let Some(answer) = self.begin_answer() else { return };
        let header = self.gone_header(request, ReplyFlags::GONE);
        self.send_answer(request.sender, &header, answer);
    }

    fn gone_header(&self, request: &Header, flags: ReplyFlags) -> Header {
        let (kind, flags) = (PacketKind::Reply, flags.0);
        Header { kind, flags, count: 0, window: request.window, sender: self.rank, token: request.token }
    }

    /// Answers a question, if that can be done now: it is asked again. What is said of posts goes their way, and what is said of
    /// COMPLETE the way of that.
    fn answer_question(&mut self, question: &Header, window: ReplyFlags) {
        let query = QueryFlags(question.flags);
        let (class, flags) = match (query.has(QueryFlags::BEHIND_REQUESTS), query.has(QueryFlags::COMING)) {
            (true, _) => (SendClass::Request, ReplyFlags::NO_COMPLETE),
            (false, true) => (SendClass::Reply, window | ReplyFlags::NO_POST),
            (false, false) => (SendClass::Reply, window),
        };
        let header = self.gone_header(question, flags);
        if self.replies.has_waiting(question.sender) {
            return;
        }
        if let Ok(Some(peer)) = self.peer_at(Place::of(question.sender)) {
            let _ = self.send_as(class, peer, header.kind, &header.encode(), &[]);
        }
    }

    /// A question about a window that is there: who has left the job posts and completes nothing any more, but for what it has
    /// left to be sent.
    pub(super) fn on_question(&mut self, w: &Window<E::Region>, question: &Header) {
        let query = QueryFlags(question.flags);
        if !self.has_left || !query.has(QueryFlags::COMING) {
            return;
        }
        let sender = question.sender;
        let is_left_to_send = match query.has(QueryFlags::BEHIND_REQUESTS) {
            true => w.access.contains(sender) && !w.access.is_closed(sender),
            false => w.exposure.poll_notice().is_some(),
        };
        if !is_left_to_send {
            self.answer_question(question, ReplyFlags::default());
        }
    }

    /// Somebody has freed the window alone, or left the job, and says what does not come of it.
    #[cold]
    #[inline(never)]
    pub(super) fn on_gone(&mut self, w: &mut Window<E::Region>, rank: Rank, flags: ReplyFlags) {
        // What it has told by words before counts.
        self.hear_epochs(w);
        // For what it has sent, and waits here for room, it is asked again.
        if flags.has(ReplyFlags::NO_COMPLETE) && self.held.is_empty() {
            w.exposure.on_lost(rank, WINDOW_GONE);
            w.dirty = true;
        }
        if flags.has(ReplyFlags::GONE) {
            return self.lose_target(w, rank, WINDOW_GONE);
        }
        // An epoch of start: no lock is held at the same time.
        if flags.has(ReplyFlags::NO_POST) && w.access.is_awaited(rank) {
            match w.find(&self.targets, rank) {
                Some(t) => self.end_target(w, t, WINDOW_GONE),
                None => self.lose_poster(w, rank, WINDOW_GONE),
            }
        }
    }
}

/// Whether it only asks whether the window is there.
pub(super) fn is_question(header: &Header) -> bool {
    header.kind == PacketKind::PostQuery && QueryFlags(header.flags).has(QueryFlags::PRESENCE)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::error::{Call, RmaError};

    #[test]
    fn errors_about_the_dead_guess_only_where_nothing_is_known() {
        let said = |code| RmaError::Peer { call: Call::Put, target: Rank(2), code }.to_string();
        let known = said(PROCESS_ENDED);
        assert!(known.contains("any more: its process has ended, as the launcher says ["), "{known}");
        let guessed = said(FabricCode { code: 107, text: "not connected" });
        assert!(
            guessed.contains("any more: not connected (code 107); its process probably ended ["),
            "{guessed}"
        );
    }
}
