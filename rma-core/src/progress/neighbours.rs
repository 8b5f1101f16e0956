//! What ranks whose memory is in this processor's reach are told by a word of it, and tell so, instead of by packets. Who
//! looks at its own words asks nobody.

use super::burst::DoneAtOnce;
use super::{Failure, Place, Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::epoch::{PostSeen, Round};
use crate::ids::{PeerAddr, Rank};
use crate::pool::NONE;
use crate::provider::{Endpoint, PostError, RemoteAddr, SendClass};
use crate::state::WindowState;
use crate::window::{Line, Told, Window};
use crate::wire::{PacketKind, Purposes};

/// Times that an operation looks for the post of its target: the post is a line's way from one cache to another, as a rule.
const LOOKS_FOR_POST: u32 = 32;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Takes in what neighbours have told of the window's barrier, and tells the rounds that are ready.
    #[inline]
    pub(crate) fn advance_barrier(&mut self, w: &mut Window<E::Region>) {
        if w.barrier.is_running() {
            self.advance_rounds(w);
        }
    }

    /// Begins the barrier of a fence whose puts are under way, if they go to nobody but the partner of its first round,
    /// and packets stay behind them: its word then says that they have arrived as well. Who learns of this rank's coming
    /// from the partner learns it behind the puts; so the others, whom this rank tells itself, are told when they are over.
    pub(crate) fn begin_barrier_behind_puts(&mut self, w: &mut Window<E::Region>) {
        if w.fence_begun.is_none() && w.state() == WindowState::FenceGranted && self.partner_learns_of_puts(w)
        {
            w.fence_begun = w.barrier.start_held(Purposes::FENCE, []);
            self.advance_barrier(w);
        }
    }

    fn partner_learns_of_puts(&self, w: &Window<E::Region>) -> bool {
        // A ghost gets the puts, and its rank the packet.
        let keeps_behind = self.config.piggyback && self.limits.order.put_before_send;
        if !keeps_behind || w.is_served || w.checker.is_some() || !w.acks.is_empty() {
            return false;
        }
        let partner = Rank((self.rank.0 + 1) % self.size);
        let mut t = NONE;
        while let Some(next) = w.slots.next(&self.targets, t) {
            t = next;
            let is_left = self.sync_phase(t).is_some();
            if is_left && !(self.targets[t].rank == partner && self.targets[t].has_only_puts_under_way()) {
                return false;
            }
        }
        true
    }

    /// The fence that has begun its barrier before its puts were over is given up.
    #[cold]
    pub(crate) fn give_up_begun(&mut self, w: &mut Window<E::Region>) {
        let Some(sequence) = w.fence_begun.take() else { return };
        w.barrier.release(sequence);
        if w.transition(|state| state.on_fence()).is_ok() {
            w.fence_sequence = Some(sequence);
            (w.fence_active, w.has_ordered) = (false, false);
        }
        self.advance_barrier(w);
    }

    /// What is ready is told before it is looked at what was told here: the partner's word is the partner's to wait for, and
    /// the look may have to fetch a line from its cache.
    #[inline(never)]
    fn advance_rounds(&mut self, w: &mut Window<E::Region>) {
        loop {
            while let Some(round) = w.barrier.poll_send() {
                if !self.tell_round(w, &round) {
                    break;
                }
                w.barrier.on_sent(round.sequence);
            }
            let Some(line) = &w.line else { return };
            let news = w.barrier.hear(|round| line.told_of_round(round));
            if news == 0 {
                return;
            }
            self.steps_at_once += news;
        }
    }

    /// Tells the partner of a round by its word, if it is a neighbour, else by a packet.
    fn tell_round(&mut self, w: &mut Window<E::Region>, round: &Round<0>) -> bool {
        // Only requests stay behind puts.
        let follows_puts = w.fence_begun == Some(round.sequence);
        let class = if follows_puts { SendClass::Request } else { SendClass::Reply };
        let Some(line) = &mut w.line else { return self.send_round(class, PacketKind::Barrier, w.id, round) };
        let Ok(Some(peer)) = self.waiting_peer(round.to) else { return false };
        let word = line.place_of_round(round.round).filter(|_| self.endpoint.completes_at_once(peer));
        let told = word.map_or(Ok(false), |word| self.tell(peer, word, w.barrier.told_of(round.round)));
        match told {
            Ok(true) => true,
            Ok(false) => self.send_round_of_words(w, class, round),
            Err(PostError::Again) => false,
            Err(PostError::Failed(code)) => {
                self.note_failure(Failure::Peer(round.to, code));
                false
            }
        }
    }

    /// The partner has no word that can be set, now and from here on.
    #[cold]
    fn send_round_of_words(&mut self, w: &mut Window<E::Region>, class: SendClass, round: &Round<0>) -> bool {
        let is_sent = self.send_round(class, PacketKind::Barrier, w.id, round);
        if let (true, Some(line)) = (is_sent, &mut w.line) {
            line.on_packet_of_round(round.round);
        }
        is_sent
    }

    /// Sets a neighbour's word, which wakes it if it sleeps; `false`: a packet has to. What this rank has done, and what it
    /// has learnt of others, is seen by whoever sees the word, and by everybody before what this rank reads from here on:
    /// line 14. Seed table: FENCE, POST and COMPLETE, MEM_SYNC before PROC_SYNC, of memory that is accessed by this library
    /// alone.
    #[inline(always)]
    fn tell(&mut self, peer: PeerAddr, at: RemoteAddr, word: u64) -> Result<bool, PostError> {
        let told = self.endpoint.tell(peer, at, word);
        if told == Ok(true) {
            self.counters.words_told += 1;
            self.at_once = DoneAtOnce::NOTHING;
            self.burst.end();
        }
        told
    }

    /// Whether the rank is connected, and tells this one by words where it may.
    pub(crate) fn is_neighbour(&mut self, rank: Rank) -> bool {
        self.peers.get(Place::of(rank)).is_some_and(|peer| self.endpoint.completes_at_once(peer))
    }

    /// Reads where a neighbour's part of the window is, and how large, and refuses what is pending and outside of it. `false`:
    /// it cannot be read, and the target has to be asked.
    pub(super) fn learn_part(&mut self, w: &mut Window<E::Region>, t: u32) -> bool {
        let te = &self.targets[t];
        let (Some(peer), Some(line)) = (te.peer.filter(|_| !te.metadata_requested), &w.line) else {
            return false;
        };
        // A ghost's memory is not the rank's, and where epochs are judged at the target it says more than that.
        if w.is_served || w.checker.is_some() || !self.endpoint.completes_at_once(peer) {
            return false;
        }
        let Some(metadata) = line.read(&mut self.endpoint, peer) else { return false };
        let rank = te.rank;
        if let Some(words) = &mut w.words {
            // Remembered, as what a rank says when it is asked.
            if let Some(place) = words.place_of(rank, self.rank) {
                words.learn(rank, place, metadata);
            }
        }
        self.targets[t].metadata = Some(metadata);
        self.check_pending_ranges(w, t, &metadata);
        self.refresh_direct(t);
        true
    }

    /// The word by which a rank is told of an epoch of post and start, if it is a neighbour. Where ghosts serve, or epochs are
    /// judged at the target, packets keep what belongs together in order. A word need not say where the window is, as a notice
    /// does: who wants to know reads that where this rank has written it down.
    pub(super) fn word_to_tell(&self, w: &Window<E::Region>, told: Told, to: Rank) -> Option<RemoteAddr> {
        let is_plain = !w.is_served && w.checker.is_none();
        w.line.as_ref().filter(|_| is_plain)?.place_to_tell(told, self.rank, to)
    }

    /// Tells a neighbour whose address is known, in a window whose ranks tell each other so. `false`: it was not told.
    #[inline(always)]
    pub(crate) fn tell_at_once(&mut self, w: &mut Window<E::Region>, told: Told, to: Rank) -> bool {
        let place = w.line.as_ref().and_then(|line| line.place_to_tell(told, self.rank, to));
        let Some(at) = place.filter(|_| to != self.rank) else { return false };
        let (Some(peer), Some(line)) = (self.peers.get(Place::of(to)), &mut w.line) else { return false };
        let is_told = self.endpoint.completes_at_once(peer)
            && self.tell(peer, at, line.next_to_tell(told, to)) == Ok(true);
        if is_told {
            line.on_told(told, to);
        }
        is_told
    }

    /// Tells a neighbour; `None`: a packet has to.
    pub(super) fn tell_of_epoch(
        &mut self,
        w: &mut Window<E::Region>,
        told: Told,
        to: Rank,
    ) -> Option<Result<(), PostError>> {
        let at = self.word_to_tell(w, told, to)?;
        let line = w.line.as_mut()?;
        match self.waiting_peer(to) {
            Ok(Some(peer)) if self.endpoint.completes_at_once(peer) => {
                let is_told = self.tell(peer, at, line.next_to_tell(told, to));
                match is_told {
                    Ok(true) => line.on_told(told, to),
                    Ok(false) => return None,
                    Err(error) => return Some(Err(error)),
                }
                Some(Ok(()))
            }
            // Once it was a packet it always is.
            Ok(None) => Some(Err(PostError::Again)),
            Ok(Some(_)) => None,
            // A packet would not find it either, and the address would be looked up once more for it, for ever.
            Err(code) => Some(Err(PostError::Failed(code))),
        }
    }

    /// Tells a neighbour that the epoch is complete; `None`: a packet has to, behind those that are under way. Operations of
    /// a neighbour's own doing are complete by now.
    pub(super) fn tell_complete(
        &mut self,
        w: &mut Window<E::Region>,
        to: Rank,
    ) -> Option<Result<(), PostError>> {
        let is_behind = w.acks.contains(to)
            || w.slots.find(&self.targets, to).is_some_and(|t| self.targets[t].has_more_under_way());
        // Who has not posted, against the user's word, refuses a packet. A word would wait there for its next epoch.
        if is_behind || w.access.is_unchecked() {
            return None;
        }
        self.tell_of_epoch(w, Told::Complete, to)
    }

    /// Takes in which neighbours have posted, and which have completed.
    #[inline(never)]
    pub(crate) fn hear_epochs(&mut self, w: &mut Window<E::Region>) {
        if w.exposure.is_open() {
            self.hear_completes(w);
        }
        if w.access.is_open() && (!w.access.all_granted() || w.access.is_unchecked()) {
            self.hear_posts(w);
        }
    }

    pub(super) fn hear_posts(&mut self, w: &mut Window<E::Region>) {
        let Some(line) = &w.line else { return };
        for from in line.tellers(Told::Post, self.rank, self.size) {
            let Window { line: Some(line), access, .. } = &mut *w else { return };
            match access.on_post(from) {
                PostSeen::Granted => {
                    line.take(Told::Post, from);
                    self.steps_at_once += 1;
                    self.on_granted(w, from, None);
                }
                // The epoch was begun without it, against the target's word or a broken one's: it is not the next one's.
                PostSeen::Repeated => line.take(Told::Post, from),
                // One that is early waits where it is.
                PostSeen::Early => {}
            }
        }
    }

    /// Takes in which neighbours have posted since complete was called, and sends them what was kept for them.
    #[inline]
    pub(crate) fn hear_late_posts(&mut self, w: &mut Window<E::Region>) {
        if w.line.is_some() && !w.access.all_granted() {
            let before = self.steps_at_once;
            self.hear_posts(w);
            if self.steps_at_once != before {
                self.make_rma_progress_win(w);
            }
        }
    }

    /// Looks whether a neighbour has posted by now, for about as long as the way by an element would take longer.
    #[cold]
    #[inline(never)]
    pub(super) fn await_post(&mut self, w: &mut Window<E::Region>, target: Rank) -> bool {
        let (me, forgotten) = (self.rank, self.peers.forgotten());
        let is_told = |line: &Line| (0..LOOKS_FOR_POST).any(|_| line.has_told(Told::Post, target, me));
        // Others post by packets.
        let is_near = w.near.as_mut().is_some_and(|near| near.find(target, forgotten).is_some());
        if !is_near || !w.access.contains(target) || !w.line.as_ref().is_some_and(is_told) {
            return false;
        }
        self.hear_posts(w);
        w.access.is_granted(target)
    }

    fn hear_completes(&mut self, w: &mut Window<E::Region>) {
        let Window { line: Some(line), exposure, .. } = w else { return };
        for from in line.tellers(Told::Complete, self.rank, self.size) {
            // Nothing is said of one that cannot be: whatever is there may be a broken peer's.
            if exposure.on_complete(from) {
                line.take(Told::Complete, from);
                self.steps_at_once += 1;
            }
        }
    }

    /// Whether neighbours have told something that was not taken in yet, or that an operation has taken in since progress was
    /// made last. Who wants to sleep asks when whoever tells would wake it.
    pub(crate) fn has_been_told(&mut self, windows: &mut Windows<E::Region, E::Passage>) -> bool {
        for w in windows.iter_mut() {
            self.advance_barrier(w);
            self.hear_epochs(w);
        }
        self.steps_at_once != 0
    }
}
