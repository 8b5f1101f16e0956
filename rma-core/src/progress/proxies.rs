//! Locks that are words of this rank's memory, taken on behalf of ranks that ask by packets: because the words are out
//! of their reach, or because all of a small epoch fits the request. Each request draws a ticket of its own, so that
//! those who ask and those who change the words themselves are served in one order.

use super::Process;
use crate::bootstrap::Bootstrap;
use crate::ids::Rank;
use crate::lock::words::{Claim, Memo, Turn, Word, WordLock};
use crate::lock::{NotHeld, Waiter};
use crate::mutation::Mutation;
use crate::provider::Endpoint;
use crate::window::{Window, FIRST_PROXY, RELEASE_SEAT};

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Proxy {
    /// The lock is held now.
    Held,
    /// It waits, in this seat.
    Waits(u8),
    /// It waits in the line of a lock that is no words, or may be none.
    InLine,
    /// There is no seat for it.
    Full,
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Draws a ticket for a request that came in a packet.
    pub(super) fn ask_by_proxy(&mut self, w: &mut Window<E::Region>, origin: Rank, claim: Claim) -> Proxy {
        // Each share draws a ticket, of which there are 2^21 at one time: nobody has two, or waits for a second one.
        if claim != Claim::Exclusive && w.lock.wants_or_shares(origin, claim) {
            return Proxy::Full;
        }
        // Under lock_all one passes those who wait to be alone, and takes no room that they could fill.
        let may_pass = w.usable && claim == Claim::Everywhere;
        if !may_pass && !w.lock.has_room() {
            return Proxy::Full;
        }
        // Others may have agreed on the window before this rank knows whether its lock is words.
        if !w.usable || (!may_pass && w.lock.unseated(false).is_some()) {
            return Proxy::InLine;
        }
        let Some(seat) = self.take_proxy_seat(w, claim) else { return Proxy::Full };
        let is_held = w.words.as_ref().is_some_and(|words| words.seat(seat).lock.is_held());
        if is_held || Mutation::ProxyHoldsEarly.is_on() {
            self.hold_by_proxy(w, seat, origin, claim);
            return Proxy::Held;
        }
        Proxy::Waits(seat as u8)
    }

    fn take_proxy_seat(&mut self, w: &mut Window<E::Region>, claim: Claim) -> Option<usize> {
        let (me, words) = (self.rank, w.words.as_mut()?);
        let seat = words.free_proxy(claim, w.lock.has_room())?;
        words.sit(seat, me, WordLock::asked(claim, me));
        w.dirty |= self.issue_seat(w, seat).is_err();
        Some(seat)
    }

    /// Draws the tickets of those who have asked too early, in their order, which lock_all does not wait for.
    fn seat_waiters(&mut self, w: &mut Window<E::Region>) {
        for only_everywhere in [true, false] {
            while let Some(claim) =
                w.lock.unseated(only_everywhere).filter(|_| w.usable).map(|waiter| waiter.claim())
            {
                let Some(seat) = self.take_proxy_seat(w, claim) else { break };
                if let Some(waiter) = w.lock.unseated(only_everywhere) {
                    waiter.seat = Some(seat as u8);
                }
            }
        }
    }

    /// Whoever asked is told that it holds the lock.
    fn hold_by_proxy(&mut self, w: &mut Window<E::Region>, seat: usize, origin: Rank, claim: Claim) {
        w.lock.hold(origin, claim);
        if let Some(words) = &mut w.words {
            words.seat_mut(seat).is_told = true;
        }
        self.clear_proxy(w, seat);
    }

    /// The next request whose turn has come, or will never come: then the lock is lost.
    pub(super) fn poll_proxy_grant(&mut self, w: &mut Window<E::Region>) -> Option<(Waiter, bool)> {
        self.seat_waiters(w);
        let words = w.words.as_ref()?;
        let is_over = |seat: u8| {
            let lock = &words.seat(seat.into()).lock;
            lock.is_held() || lock.is_lost()
        };
        let waiter = w.lock.poll_seated(is_over)?;
        let seat = usize::from(waiter.seat?);
        if words.seat(seat).lock.is_held() {
            self.hold_by_proxy(w, seat, waiter.origin, waiter.claim());
            return Some((waiter, true));
        }
        self.dismiss_proxy(w, seat);
        Some((waiter, false))
    }

    /// Nobody waits for the seat's lock any more.
    fn dismiss_proxy(&mut self, w: &mut Window<E::Region>, seat: usize) {
        let Some(words) = &mut w.words else { return };
        let seat_of_it = words.seat_mut(seat);
        seat_of_it.is_told = true;
        seat_of_it.lock.abandon();
        w.dirty |= self.issue_seat(w, seat).is_err();
        self.clear_proxy(w, seat);
    }

    /// Makes the seat free if nothing more is to be done for its lock.
    pub(super) fn clear_proxy(&mut self, w: &mut Window<E::Region>, seat: usize) {
        let is_done = |w: &Window<E::Region>| {
            w.words
                .as_ref()
                .is_some_and(|words| words.seat(seat).rank == self.rank && words.seat(seat).is_done_with())
        };
        if seat >= FIRST_PROXY && is_done(w) {
            self.leave_seat(w, seat);
            w.dirty = true;
        }
    }

    /// Releases what `origin` holds, which has asked for it by a packet.
    pub(super) fn release_held(
        &mut self,
        w: &mut Window<E::Region>,
        origin: Rank,
        overtakes: bool,
    ) -> Result<(), NotHeld> {
        let claim = w.lock.release(origin, overtakes)?;
        self.give_back(w, claim);
        Ok(())
    }

    /// The same of a rank that is gone.
    pub(super) fn release_lost(&mut self, w: &mut Window<E::Region>, rank: Rank, unlock: u16) {
        let mut claims = [None; 3];
        let mut seats = 0u64;
        w.lock.on_lost(
            rank,
            unlock,
            |claim| claims[claim as usize] = Some(claim),
            |seat| seats |= 1 << (u32::from(seat) % u64::BITS),
        );
        for claim in claims.into_iter().flatten() {
            self.give_back(w, claim);
        }
        for seat in (FIRST_PROXY..RELEASE_SEAT).filter(|&seat| seats >> seat & 1 == 1) {
            self.dismiss_proxy(w, seat);
        }
    }

    fn give_back(&mut self, w: &mut Window<E::Region>, claim: Claim) {
        let Some(words) = &mut w.words else { return };
        match (claim, words.alone()) {
            (Claim::Exclusive, Some(seat)) => {
                words.seat_mut(seat).lock.release();
                w.dirty |= self.issue_seat(w, seat).is_err();
                self.clear_proxy(w, seat);
            }
            (Claim::Exclusive, None) => {}
            (Claim::Shared | Claim::Everywhere, _) => words.owe(claim),
        }
        self.pay_owed(w);
    }

    /// Gives back what was held together with others, as far as the seat for it is free.
    pub(super) fn pay_owed(&mut self, w: &mut Window<E::Region>) {
        let me = self.rank;
        while let Some(claim) = w.words.as_mut().and_then(|words| words.poll_owed()) {
            let Some(words) = &mut w.words else { return };
            let mut lock = WordLock::resumed(claim, me, Memo::Held);
            lock.release();
            words.sit(RELEASE_SEAT, me, lock);
            words.seat_mut(RELEASE_SEAT).is_told = true;
            w.dirty |= self.issue_seat(w, RELEASE_SEAT).is_err();
            self.clear_proxy(w, RELEASE_SEAT);
        }
    }

    /// Whether what a seat's lock wants next may be posted. What came with requests leaves in the order in which they
    /// came, so their tickets are drawn in that order, one after the other.
    pub(super) fn may_post(w: &Window<E::Region>, seat: usize, next: &Option<(Word, Turn)>) -> bool {
        let Some(words) = w.words.as_ref().filter(|_| seat >= FIRST_PROXY) else { return true };
        let draws = |seat: u8| words.seat(seat.into()).lock.wants_ticket();
        !words.seat(seat).lock.wants_ticket() || next.is_none() || {
            let mut earlier = w.lock.before(seat as u8).filter_map(|waiter| waiter.seat);
            !earlier.any(draws)
        }
    }
}
