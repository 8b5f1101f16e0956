//! What ranks whose memory is in this processor's reach are told by a word of it, and tell so, instead of by packets. Who
//! looks at its own words asks nobody.
#![allow(unsafe_code)] // the fabric reads operands

use core::sync::atomic::{fence, Ordering};

use super::tag::LockSeat;
use super::{Failure, Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::dtype::Dtype;
use crate::epoch::{PostSeen, Round};
use crate::ids::{PeerAddr, Rank};
use crate::lock::words::Word;
use crate::op::ReduceOp;
use crate::provider::{Accepted, Endpoint, PostError, RemoteAddr};
use crate::window::{Told, Window};
use crate::wire::PacketKind;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Takes in what neighbours have told of the window's barrier, and tells the rounds that are ready.
    #[inline]
    pub(crate) fn advance_barrier(&mut self, w: &mut Window<E::Region>) {
        if w.barrier.is_running() {
            self.advance_rounds(w);
        }
    }

    #[inline(never)]
    fn advance_rounds(&mut self, w: &mut Window<E::Region>) {
        loop {
            if let Some(line) = &w.line {
                self.steps_at_once += w.barrier.hear(|round| line.told_of_round(round));
            }
            let Some(round) = w.barrier.poll_send() else { return };
            if !self.tell_round(w, &round) {
                return;
            }
            w.barrier.on_sent(round.sequence);
        }
    }

    /// Tells the partner of a round by its word, if it is a neighbour, else by a packet.
    fn tell_round(&mut self, w: &mut Window<E::Region>, round: &Round<0>) -> bool {
        let Some(line) = &mut w.line else { return self.send_round(PacketKind::Barrier, w.id, round) };
        let Ok(Some(peer)) = self.peer(round.to) else { return false };
        let word = line.place_of_round(round.round).filter(|_| self.endpoint.completes_at_once(peer));
        match word.and_then(|word| self.tell(peer, word)) {
            Some(Ok(())) => true,
            Some(Err(PostError::Again)) => false,
            Some(Err(PostError::Failed(code))) => {
                self.failure.get_or_insert(Failure::Peer(round.to, code));
                false
            }
            None => {
                let is_sent = self.send_round(PacketKind::Barrier, w.id, round);
                if let (true, Some(line)) = (is_sent, &mut w.line) {
                    line.on_packet_of_round(round.round);
                }
                is_sent
            }
        }
    }

    /// Adds 1 to a neighbour's word, which wakes it if it sleeps; `None`: a packet has to.
    fn tell(&mut self, peer: PeerAddr, word: RemoteAddr) -> Option<Result<(), PostError>> {
        // What this rank has done, and what it has learnt of others, is seen by whoever sees the word. Seed table: FENCE,
        // POST and COMPLETE, MEM_SYNC before PROC_SYNC, of memory that is accessed by this library alone.
        fence(Ordering::Release);
        let (one, dtype) = (1u64, Dtype::U64);
        let (operand, tag) = ((&raw const one).cast(), LockSeat::Waiters.tag(Word::Tickets, 0));
        // SAFETY: the operand is free when the call returns, also where it has failed, by line 12.
        let posted = unsafe { self.endpoint.atomic(peer, operand, 1, word, dtype, ReduceOp::Sum, tag) };
        match posted {
            Ok(Accepted::Complete) => self.counters.words_told += 1,
            // It has failed and changes nothing, by line 12, now or later: the word is out of this rank's reach, or gone with
            // what it was for.
            Ok(Accepted::Tracked) => return None,
            Err(error) => return Some(Err(error)),
        }
        Some(Ok(()))
    }

    /// The word by which a rank is told of an epoch of post and start, if it is a neighbour. Where ghosts serve, or epochs are
    /// judged at the target, packets keep what belongs together in order; and a notice has to say where the window is, unless
    /// it is at the same place everywhere.
    pub(super) fn word_to_tell(&self, w: &Window<E::Region>, told: Told, to: Rank) -> Option<RemoteAddr> {
        let is_plain = !w.is_served && w.checker.is_none() && w.symmetric.is_some();
        w.line.as_ref().filter(|_| is_plain)?.place_to_tell(told, self.rank, to)
    }

    /// Tells a neighbour; `None`: a packet has to.
    pub(super) fn tell_of_epoch(
        &mut self,
        w: &Window<E::Region>,
        told: Told,
        to: Rank,
    ) -> Option<Result<(), PostError>> {
        let word = self.word_to_tell(w, told, to)?;
        match self.peer(to) {
            Ok(Some(peer)) if self.endpoint.completes_at_once(peer) => self.tell(peer, word),
            // Once it was a packet it always is.
            Ok(None) => Some(Err(PostError::Again)),
            Ok(Some(_)) | Err(_) => None,
        }
    }

    /// Tells a neighbour that the epoch is complete; `None`: a packet has to, behind those that are under way. Operations of
    /// a neighbour's own doing are complete by now.
    pub(super) fn tell_complete(&mut self, w: &Window<E::Region>, to: Rank) -> Option<Result<(), PostError>> {
        let is_behind = w.acks.contains(to)
            || w.slots.find(&self.targets, to).is_some_and(|t| self.targets[t].has_more_under_way());
        // Who has not posted, against the user's word, refuses a packet. A word would wait there for its next epoch.
        if is_behind || w.access.is_unchecked() {
            return None;
        }
        self.tell_of_epoch(w, Told::Complete, to)
    }

    /// Takes in which neighbours have posted, and which have completed.
    pub(crate) fn hear_epochs(&mut self, w: &mut Window<E::Region>) {
        if w.exposure.is_open() {
            self.hear_completes(w);
        }
        if w.access.is_open() && !w.access.all_granted() {
            self.hear_posts(w);
        }
    }

    pub(super) fn hear_posts(&mut self, w: &mut Window<E::Region>) {
        let (me, size) = (self.rank, self.size);
        loop {
            let Window { line: Some(line), access, .. } = &mut *w else { return };
            let mut tellers = line.tellers(Told::Post, me, size);
            let Some(from) = tellers.find(|&from| access.on_post(from) == PostSeen::Granted) else { return };
            drop(tellers);
            line.take(Told::Post, from, me);
            self.steps_at_once += 1;
            self.on_granted(w, from, None);
        }
    }

    fn hear_completes(&mut self, w: &mut Window<E::Region>) {
        let Window { line: Some(line), exposure, .. } = w else { return };
        for from in line.tellers(Told::Complete, self.rank, self.size) {
            // Nothing is said of one that cannot be: whatever is there may be a broken peer's.
            if exposure.on_complete(from) {
                line.take(Told::Complete, from, self.rank);
                self.steps_at_once += 1;
            }
        }
    }

    /// Whether neighbours have told something that was not taken in yet. Who wants to sleep asks when whoever tells would
    /// wake it.
    pub(crate) fn has_been_told(&mut self, windows: &mut Windows<E::Region>) -> bool {
        let before = self.steps_at_once;
        for w in windows.iter_mut() {
            self.advance_barrier(w);
            self.hear_epochs(w);
        }
        self.steps_at_once != before
    }
}
