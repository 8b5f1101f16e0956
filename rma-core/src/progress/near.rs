//! Locks whose words are near, where an atomic is over when its call returns (as over shared memory): taken by the
//! operation that wants one first, and given back by unlock, as far as nobody is in the way. What is left then, and all that
//! is seldom, goes the way of every lock by words (`progress/words.rs`), from where this has come to.
#![allow(unsafe_code)] // the fabric accesses operands

use core::ptr::NonNull;

use super::tag::LockSeat;
use super::waiters::NearWords;
use super::{Place, Process};
use crate::bootstrap::Bootstrap;
use crate::dtype::Dtype;
use crate::ids::{PeerAddr, Tag};
use crate::lock::words::{Atomic, Claim, Ran, Turn, Word, WordLock};
use crate::op::ReduceOp;
use crate::provider::{Accepted, Endpoint, Post, PostError, RemoteAddr};
use crate::state::TargetLockState;
use crate::table::Sync;
use crate::window::{offset_of, Window, OWN_SEAT};

/// Does something to a word that is near. `Err`: what the fabric said in the place of doing it.
#[inline(always)]
pub(super) fn change(
    endpoint: &mut impl Endpoint,
    NearWords { peer, at }: NearWords,
    word: Word,
    atomic: Atomic,
    tag: Tag,
) -> Result<u64, Post> {
    let at = RemoteAddr { addr: at.addr.wrapping_add(offset_of(word)), key: at.key };
    let mut before = 0_u64;
    let (into, dtype) = ((&raw mut before).cast(), Dtype::U64);
    let posted = match atomic {
        Atomic::Add(operand) => {
            let from = (&raw const operand).cast();
            // SAFETY: both are free when the call returns, also where it has failed, by line 12.
            unsafe { endpoint.fetch_atomic(peer, from, into, 1, at, dtype, ReduceOp::Sum, tag) }
        }
        Atomic::Swap(compare, operand) => {
            let (compare, from) = ((&raw const compare).cast(), (&raw const operand).cast());
            // SAFETY: as above.
            unsafe { endpoint.compare_atomic(peer, from, compare, into, at, dtype, tag) }
        }
    };
    match posted {
        Ok(Accepted::Complete) => Ok(before),
        other => Err(other),
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Where a target's words are, if they are near and nothing is under way there.
    #[inline(always)]
    fn near_words(&self, w: &Window<E::Region>, t: u32) -> Option<NearWords> {
        let te = &self.targets[t];
        let peer = te.peer.filter(|peer| self.endpoint.completes_at_once(*peer))?;
        let at = w.words.as_ref()?.place_of(te.rank, self.rank)?;
        (!self.is_mourning() && !te.words.is_busy()).then_some(NearWords { peer, at })
    }

    /// Takes the lock of a target for an operation, if it was only called, its words are near, and nobody is in the way.
    /// Whether the operation may go natively then.
    #[inline(never)]
    pub(crate) fn take_near_lock(&mut self, w: &mut Window<E::Region>, t: u32) -> bool {
        let te = &self.targets[t];
        let is_called = te.lock == TargetLockState::Called && te.sync == Sync::None && te.is_untouched();
        if w.words.is_none() || !is_called {
            return false;
        }
        if te.peer.is_none() {
            // Unlike `resolve`: whether operations may go directly is found out below.
            let Some(peer) = self.peers.get_pinned(Place::of_target(w, te.rank)) else { return false };
            self.targets[t].peer = Some(peer);
        }
        let Some(near) = self.near_words(w, t) else { return false };
        if w.words.as_ref().is_some_and(|words| words.has_far()) && self.is_far(w, self.targets[t].rank) {
            return false;
        }
        let me = self.rank;
        let te = &mut self.targets[t];
        te.words = WordLock::asked(Claim::of(te.lock_type, w.state().is_lock_all()), me);
        // No packet of the epoch says LOCK or UNLOCK.
        te.no_check = true;
        te.lock.on_issue().unwrap_or_default();
        self.run_target(w, t, near);
        let te = &mut self.targets[t];
        if te.words.is_held() {
            te.lock.on_grant().unwrap_or_default();
            self.refresh_direct(t);
            self.remember_near(w, t);
            return self.targets[t].direct.is_some();
        }
        w.dirty = true;
        if let (true, Some(words)) = (self.targets[t].words.is_waiting(), &mut w.words) {
            (words.has_waiters, self.wants_looks) = (true, true);
        }
        false
    }

    /// Gives back the lock of a target whose epoch ends, if it is held by words that are near, and everything is complete.
    /// Whether there is nothing left to be done for it.
    #[inline(never)]
    pub(crate) fn leave_near_lock(&mut self, w: &mut Window<E::Region>, t: u32) -> bool {
        let te = &self.targets[t];
        let is_over = te.words.is_held() && te.error.is_none() && te.is_unmarked() && te.notes == 0;
        if !is_over || !te.is_flushed() {
            return false;
        }
        let Some(near) = self.near_words(w, t) else { return false };
        self.targets[t].words.release();
        self.run_target(w, t, near);
        self.targets[t].words.is_idle()
    }

    /// Does for a target's lock what can be done at once.
    #[inline(always)]
    fn run_target(&mut self, w: &mut Window<E::Region>, t: u32, near: NearWords) {
        self.steps_at_once += 1;
        loop {
            let Self { endpoint, counters, targets, .. } = self;
            let lock = &mut targets[t].words;
            let ran = lock.run(|word, atomic| {
                counters.lock_atomics += 1;
                change(endpoint, near, word, atomic, LockSeat::Target.tag(word, t))
            });
            match ran {
                Ran::Over => break,
                Ran::LetIn(ticket) => self.wake_waiter(w, near, ticket),
                Ran::Refused(word, turn, posted) => {
                    keep(lock, word, turn, posted);
                    self.on_refused_word(posted);
                    w.dirty = true;
                    return;
                }
            }
        }
        if let Some(ticket) = self.targets[t].words.waits_with() {
            self.write_down_waiter(near, ticket);
        }
    }

    /// Whether puts to a place of a peer's are over when their call returns, by what is known of it already.
    #[inline(never)]
    pub(super) fn is_reached(&mut self, peer: PeerAddr, at: RemoteAddr) -> bool {
        // SAFETY: nobody reads a byte of none.
        unsafe { self.endpoint.put_now(peer, NonNull::dangling().as_ptr(), 0, at) }
    }

    /// Takes the lock of the own window, if its words are near and nobody is in the way. `false`: it is not held, nothing
    /// was posted, and what was begun is given back.
    pub(crate) fn take_own_words(&mut self, w: &mut Window<E::Region>, claim: Claim) -> bool {
        let me = self.rank;
        let Some(words) = w.words.as_mut().filter(|words| words.seat(OWN_SEAT).lock.is_idle()) else {
            return false;
        };
        words.sit(OWN_SEAT, me, WordLock::asked(claim, me));
        self.run_own_seat(w);
        let Some(lock) = w.words.as_ref().map(|words| words.seat(OWN_SEAT).lock) else { return false };
        if lock.is_held() {
            return true;
        }
        // Words of a network are asked for, and not taken at once.
        match lock == WordLock::asked(claim, me) {
            true => self.leave_seat(w, OWN_SEAT),
            false => self.leave_own_words(w),
        }
        false
    }

    /// Does for the lock of the own window what can be done at once.
    pub(super) fn run_own_seat(&mut self, w: &mut Window<E::Region>) {
        let is_settled = |w: &Window<E::Region>| {
            w.words.as_ref().is_none_or(|words| words.seat(OWN_SEAT).lock.is_settled())
        };
        // Of one that is settled there may be no seat.
        if is_settled(w) || self.is_mourning() {
            return;
        }
        let Ok(Some(peer)) = self.seat_peer(w, OWN_SEAT) else { return };
        if !self.endpoint.completes_at_once(peer) {
            return;
        }
        self.steps_at_once += 1;
        loop {
            let Some(words) = &mut w.words else { return };
            let near = NearWords { peer, at: words.own() };
            let Self { endpoint, counters, .. } = self;
            let lock = &mut words.seat_mut(OWN_SEAT).lock;
            if lock.is_busy() {
                return;
            }
            let ran = lock.run(|word, atomic| {
                counters.lock_atomics += 1;
                change(endpoint, near, word, atomic, LockSeat::Window(OWN_SEAT).tag(word, w.id.0))
            });
            let (is_idle, ticket) = (lock.is_idle(), lock.waits_with());
            match ran {
                Ran::LetIn(ticket) => self.wake_waiter(w, near, ticket),
                Ran::Over if is_idle => return self.leave_seat(w, OWN_SEAT),
                Ran::Over => {
                    if let Some(ticket) = ticket {
                        self.write_down_waiter(near, ticket);
                    }
                    return;
                }
                Ran::Refused(word, turn, posted) => {
                    keep(lock, word, turn, posted);
                    self.on_refused_word(posted);
                    return;
                }
            }
        }
    }

    /// An atomic that was counted was not done.
    #[cold]
    pub(super) fn on_refused_word(&mut self, posted: Post) {
        self.counters.lock_atomics -= u64::from(posted.is_err());
        self.counters.again += u64::from(posted == Err(PostError::Again));
    }
}

/// Notes of a lock that the fabric has something of it, if it has taken it: it has failed, which its tag will say. What was
/// refused is posted again.
#[cold]
fn keep(lock: &mut WordLock, word: Word, turn: Turn, posted: Post) {
    if posted.is_ok() {
        lock.on_posted(word, turn);
    }
}
