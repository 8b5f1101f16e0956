//! Who waits for a lock that is words of memory in reach of this processor, and is woken when its turn comes. Of words
//! behind a network nobody is told: the answer to each look paces the next one.
#![allow(unsafe_code)] // the fabric accesses operands

use super::tag::LockSeat;
use super::{Place, Process};
use crate::bootstrap::Bootstrap;
use crate::dtype::Dtype;
use crate::ids::{PeerAddr, Rank};
use crate::lock::words::Word;
use crate::op::ReduceOp;
use crate::provider::{Accepted, Endpoint, NativeOps, RemoteAddr};
use crate::window::{offset_of_waiter, Window};

/// One lock's words, at a peer to which all is complete at once.
#[derive(Clone, Copy)]
pub(super) struct NearWords {
    pub(super) peer: PeerAddr,
    /// The first word.
    pub(super) at: RemoteAddr,
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Writes down beside the words that this rank waits with the ticket. Who waits with another one and has the same
    /// place is forgotten, and finds its turn by looking.
    #[cold]
    pub(super) fn write_down_waiter(&mut self, words: NearWords, ticket: u32) {
        let waiter = u64::from(ticket) << 32 | (u64::from(self.rank.0) + 1);
        let _ = self.change_waiter(words, ticket, waiter, ReduceOp::Replace);
    }

    /// Wakes the rank that waits with the ticket, whose turn has come, if it is written down. It looks again by itself
    /// in any case, so that nothing is lost where it is not.
    #[cold]
    pub(super) fn wake_waiter(&mut self, w: &Window<E::Region>, words: NearWords, ticket: u32) {
        let Some(rank) = self.find_waiter(words, ticket) else { return };
        let Some(at) = w.words.as_ref().and_then(|words| words.place_of(rank, self.rank)) else { return };
        // One to which this rank has no way yet is not worth one, and may have died meanwhile.
        let Some(peer) = self.peers.get(Place::of_target(w, rank)) else { return };
        let has_atomic = NativeOps::has(&self.endpoint.native_near().atomic, Dtype::U64, ReduceOp::Sum);
        if !has_atomic || !self.endpoint.completes_at_once(peer) {
            return;
        }
        let nothing = 0u64;
        let (operand, dtype, tag) =
            ((&raw const nothing).cast(), Dtype::U64, LockSeat::Waiters.tag(Word::Tickets, 0));
        // Whoever changes a word of a rank's memory without asking for what was there wakes it, also by nothing.
        // SAFETY: the operand is free when the call returns, also where it has failed, by line 12.
        let posted = unsafe { self.endpoint.atomic(peer, operand, 1, at, dtype, ReduceOp::Sum, tag) };
        self.counters.lock_atomics += u64::from(posted.is_ok());
    }

    /// The rank that waits with the ticket, if it is another one and written down.
    pub(super) fn find_waiter(&mut self, words: NearWords, ticket: u32) -> Option<Rank> {
        // The memory is the target's, and anything may be there.
        let waiter = self.change_waiter(words, ticket, 0, ReduceOp::Sum)?;
        let rank = (waiter as u32).checked_sub(1).map(Rank);
        let is_meant = waiter >> 32 == u64::from(ticket);
        rank.filter(|rank| is_meant && rank.0 < self.size && *rank != self.rank)
    }

    /// Does something to the ticket's place; what was there before, if the fabric could do it.
    fn change_waiter(&mut self, words: NearWords, ticket: u32, operand: u64, op: ReduceOp) -> Option<u64> {
        let dtype = Dtype::U64;
        let NearWords { peer, at } = words;
        let tag = LockSeat::Waiters.tag(Word::Tickets, 0);
        let has_atomic = NativeOps::has(&self.endpoint.native_near().fetch_atomic, dtype, op);
        if !has_atomic || !self.endpoint.completes_at_once(peer) {
            return None;
        }
        let at = RemoteAddr { addr: at.addr.wrapping_add(offset_of_waiter(ticket)), ..at };
        let mut before = 0u64;
        let (from, into) = ((&raw const operand).cast(), (&raw mut before).cast());
        // SAFETY: both are free when the call returns, also where it has failed, by line 12.
        let posted = unsafe { self.endpoint.fetch_atomic(peer, from, into, 1, at, dtype, op, tag) };
        self.counters.lock_atomics += u64::from(posted.is_ok());
        // What is tracked has failed, as of a peer that is gone: whatever is done to the lock itself will say so.
        (posted == Ok(Accepted::Complete)).then_some(before)
    }
}
