//! What ranks whose memory is in this processor's reach are told by a word of it, and tell so, instead of by packets. Who
//! looks at its own words asks nobody.
#![allow(unsafe_code)] // the fabric reads operands

use core::sync::atomic::{fence, Ordering};

use super::tag::LockSeat;
use super::{Failure, Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::dtype::Dtype;
use crate::epoch::Round;
use crate::ids::PeerAddr;
use crate::lock::words::Word;
use crate::op::ReduceOp;
use crate::provider::{Endpoint, PostError, RemoteAddr};
use crate::window::Window;
use crate::wire::PacketKind;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Takes in what neighbours have told of the window's barrier, and tells the rounds that are ready.
    #[inline]
    pub(crate) fn advance_barrier(&mut self, w: &mut Window<E::Region>) {
        if !w.barrier.is_running() {
            return;
        }
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
        match word.map(|word| self.tell(peer, word)) {
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

    /// Adds 1 to a neighbour's word, which wakes it if it sleeps.
    fn tell(&mut self, peer: PeerAddr, word: RemoteAddr) -> Result<(), PostError> {
        // What this rank has done, and what it has learnt of others, is seen by whoever sees the word.
        fence(Ordering::Release);
        let (one, dtype) = (1u64, Dtype::U64);
        let (operand, tag) = ((&raw const one).cast(), LockSeat::Waiters.tag(Word::Tickets, 0));
        // SAFETY: the operand is free when the call returns, also where it has failed, by line 12.
        let posted = unsafe { self.endpoint.atomic(peer, operand, 1, word, dtype, ReduceOp::Sum, tag) };
        // What is tracked has failed, as at a rank that has given its part up: nobody there waits for it.
        posted.map(|_| self.counters.words_told += 1)
    }

    /// Whether neighbours have told something that was not taken in yet. Who wants to sleep asks when whoever tells would
    /// wake it.
    pub(crate) fn has_been_told(&mut self, windows: &mut Windows<E::Region>) -> bool {
        let before = self.steps_at_once;
        windows.iter_mut().for_each(|w| self.advance_barrier(w));
        self.steps_at_once != before
    }
}
