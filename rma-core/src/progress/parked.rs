//! Epochs to neighbours that need no target element: as every operation on such a neighbour is over when its call returns,
//! there is nothing that an element would have to keep. A lock by words is taken by the first operation, and given back at
//! the end, in one swap or two, where nobody is in the way; it is written down meanwhile as that of an element which was
//! given up. Whatever is not so simple makes an element, and goes the usual way.
#![allow(unsafe_code)] // the user's buffers come as raw pointers

use core::task::Poll;

use super::burst::DoneAtOnce;
use super::near::change;
use super::swaps::{by_address, leave, take, take_and_put, Taken};
use super::tag::LockSeat;
use super::waiters::NearWords;
use super::{Process, NOTHING_CALLED};
use crate::bootstrap::Bootstrap;
use crate::ids::Rank;
use crate::lock::words::{Claim, Memo, Ran, Word, WordLock};
use crate::lock::LockType;
use crate::provider::{Endpoint, RemoteAddr};
use crate::state::{TargetLockState, WindowState};
use crate::table::ParkedLock;
use crate::window::{NearTarget, SelfLock, Window, OWN_SEAT};

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// The neighbour to which an operation may go at once and without an element, in whichever epoch there is. A lock that
    /// was only called is taken, if nobody is in the way.
    #[inline(always)]
    pub(crate) fn near_way<'w>(
        &mut self,
        w: &'w mut Window<E::Region>,
        target: Rank,
    ) -> Option<&'w NearTarget> {
        let forgotten = self.peers.forgotten();
        if w.near.is_none() || self.is_mourning() || target == self.rank {
            return None;
        }
        match w.state() {
            WindowState::PerTarget => self.hold_parked(w, target)?,
            // What an element knows of earlier operations counts; and what is left of one that was given up.
            _ if w.slots.find(&self.targets, target).is_some() || !w.acks.is_empty() => return None,
            WindowState::LockAllCalled => self.hold_share(w, target)?,
            WindowState::PscwIssued | WindowState::PscwGranted => {
                if !w.access.is_granted(target) && !self.await_post(w, target) {
                    return None;
                }
            }
            WindowState::LockAllGranted if w.is_closing => return None,
            WindowState::FenceGranted | WindowState::LockAllGranted => {}
            WindowState::Unset | WindowState::FenceIssued | WindowState::LockAllIssued => return None,
        }
        w.near.as_mut()?.find(target, forgotten).map(|near| &*near)
    }

    /// Makes sure that a lock which was called is held.
    #[inline(always)]
    fn hold_parked(&mut self, w: &mut Window<E::Region>, target: Rank) -> Option<()> {
        let lock = w.parked.find(target).filter(|lock| !lock.is_closing)?;
        match (lock.lock, lock.words) {
            (TargetLockState::Granted, Memo::Held) => Some(()),
            _ if lock.is_only_called() => {
                let claim = Claim::of(lock.lock_type, false);
                let taken = self.take_at_once(w, target, claim);
                let lock = w.parked.find_mut(target)?;
                match taken {
                    Taken::All => lock.on_taken(),
                    Taken::Ticket => lock.on_drawn(),
                    Taken::Nothing => {}
                }
                matches!(taken, Taken::All).then_some(())
            }
            _ => None,
        }
    }

    /// Takes a lock that was only called, if nobody is in the way, and does the put that wants it. `false`: nothing was put, but
    /// the lock may be held, or its ticket drawn.
    ///
    /// # Safety
    /// The source is readable.
    #[inline(never)]
    pub(crate) unsafe fn lock_and_put(
        &mut self,
        w: &mut Window<E::Region>,
        target: Rank,
        disp: u64,
        from: (*const u8, usize),
    ) -> bool {
        let may_be = !self.is_mourning() && target != self.rank;
        if !may_be || w.words.as_ref().is_none_or(|words| words.has_far()) {
            return false;
        }
        let (me, forgotten) = (self.rank, self.peers.forgotten());
        let Some(near) = w.near.as_mut().and_then(|near| near.find(target, forgotten)) else { return false };
        let (Some(place), Some(offset)) = (near.place, near.offset(disp, from.1)) else { return false };
        let Some(lock) = w.parked.find_mut(target).filter(|lock| lock.is_only_called()) else { return false };
        let by = (&mut by_address(near, place), &mut self.endpoint, &mut self.counters);
        // SAFETY: the caller's promise.
        match unsafe { take_and_put(by, near, (lock.lock_type, me), (from, offset)) } {
            Some(Ok(is_put)) => {
                self.steps_at_once += 1;
                lock.on_taken();
                is_put
            }
            Some(Err(1..)) => {
                lock.on_drawn();
                false
            }
            Some(Err(0)) | None => false,
        }
    }

    /// Makes sure that a rank is locked under lock_all.
    #[inline(never)]
    fn hold_share(&mut self, w: &mut Window<E::Region>, target: Rank) -> Option<()> {
        if w.is_closing || w.self_lock == SelfLock::Waiting {
            return None;
        }
        if w.parked.contains(target) {
            return Some(());
        }
        if w.words.is_none() || !w.parked.has_room() {
            return None;
        }
        if !matches!(self.take_at_once(w, target, Claim::Everywhere), Taken::All) {
            return None;
        }
        let called = ParkedLock::called(target, LockType::Shared, true);
        w.parked.insert(ParkedLock { words: Memo::Held, ..called });
        Some(())
    }

    #[inline(never)]
    fn take_at_once(&mut self, w: &mut Window<E::Region>, target: Rank, claim: Claim) -> Taken {
        if w.words.as_ref().is_none_or(|words| words.has_far()) && self.is_far(w, target) {
            return Taken::Nothing;
        }
        let near = w.near.as_mut().and_then(|near| near.find(target, self.peers.forgotten()));
        let Some((near, place)) = near.and_then(|near| near.place.map(|place| (near, place))) else {
            return Taken::Nothing;
        };
        let me = self.rank;
        let by = (&mut by_address(near, place), &mut self.endpoint, &mut self.counters);
        let taken = take(by, near, (claim, me));
        // What was tried in vain is no step: it is tried again by who counts those.
        self.steps_at_once += usize::from(matches!(taken, Taken::All));
        taken
    }

    /// Ends the epoch of a lock without element, if what is held can be given back at once. `false`: the lock is as it was,
    /// or as much of it as is left.
    #[inline(always)]
    pub(crate) fn leave_parked(&mut self, w: &mut Window<E::Region>, target: Rank) -> bool {
        if self.is_mourning() {
            return false;
        }
        let Some(lock) = w.parked.find(target).filter(|lock| !lock.is_closing) else { return false };
        self.shortcut.forget_rank(w.id, target);
        self.called = NOTHING_CALLED;
        let claim = Claim::of(lock.lock_type, w.state().is_lock_all());
        match (lock.lock, lock.words) {
            // Nothing was done, and nothing was locked.
            (TargetLockState::Called, Memo::None) => {
                w.parked.forget(target);
                return true;
            }
            (TargetLockState::Granted, Memo::Held) => {}
            _ => return false,
        }
        let (me, forgotten) = (self.rank, self.peers.forgotten());
        let near = w.near.as_mut().and_then(|near| near.find(target, forgotten));
        let Some((near, place)) = near.and_then(|near| near.place.map(|place| (near, place))) else {
            return false;
        };
        let by = (&mut by_address(near, place), &mut self.endpoint, &mut self.counters);
        match leave(by, near, (claim, me)) {
            // A swap is a full fence.
            Some(Ok(())) => {
                self.steps_at_once += 1;
                self.on_full_fence();
            }
            Some(Err(count)) => {
                let words = NearWords { peer: near.peer, at: place };
                let held = if count == 0 { Memo::Held } else { Memo::Noted };
                let left = self.leave_rest(w, words, (claim, held));
                // What is refused as a whole is no step: who counts those does nothing else.
                self.steps_at_once += usize::from(count > 0 || left != held);
                if left != Memo::None {
                    if let Some(lock) = w.parked.find_mut(target) {
                        lock.words = left;
                    }
                    return false;
                }
            }
            None => return false,
        }
        self.left = Some((w.id, target, claim));
        w.parked.forget(target);
        true
    }

    /// What was done is seen by everybody, as behind [`Process::pass_fence`].
    #[inline(always)]
    pub(super) fn on_full_fence(&mut self) {
        self.at_once = DoneAtOnce::NOTHING;
        self.burst.end();
    }

    /// Gives back the share of a rank that has no element, at the end of lock_all, where it could not be done at once: as the
    /// rank has been forgotten meanwhile, or another has died. `Pending`: it is looked up.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll_leave_share(&mut self, w: &mut Window<E::Region>, rank: Rank) -> Poll<()> {
        let place = w.near.as_ref().and_then(|near| near.place_of(rank));
        let found =
            place.map(|at| self.target_peer(w, rank).map(|peer| peer.map(|peer| NearWords { peer, at })));
        match found {
            Some(Ok(None)) => return Poll::Pending,
            Some(Ok(Some(words))) if self.endpoint.completes_at_once(words.peer) => {
                let left = self.leave_rest(w, words, (Claim::Everywhere, Memo::Held));
                // What was refused is done later, but where the rank is gone.
                if left != Memo::None && !self.is_mourning() {
                    return Poll::Pending;
                }
            }
            // Nobody will ask for the lock of one that is gone.
            _ => {}
        }
        w.parked.remove(rank);
        Poll::Ready(())
    }

    /// Gives back what is held of a lock, and wakes whose turn comes. Returns what is held still, as the fabric did not take
    /// it at once.
    #[cold]
    #[inline(never)]
    fn leave_rest(&mut self, w: &Window<E::Region>, near: NearWords, (claim, held): (Claim, Memo)) -> Memo {
        let mut lock = WordLock::resumed(claim, self.rank, held);
        lock.release();
        self.run_rest(w, near, &mut lock);
        lock.memo()
    }

    /// Does what can be done at once of giving a lock back, and wakes whose turn comes.
    #[cold]
    #[inline(never)]
    fn run_rest(&mut self, w: &Window<E::Region>, near: NearWords, lock: &mut WordLock) {
        loop {
            let Self { endpoint, counters, .. } = self;
            let ran = lock.run(|word, atomic| {
                counters.lock_atomics += 1;
                change(endpoint, near, word, atomic, LockSeat::Waiters.tag(Word::Tickets, 0))
            });
            match ran {
                Ran::Over => return,
                Ran::LetIn(ticket) => self.wake_waiter(w, near, ticket),
                // Of a target that has died it may have been taken, and fails, which whoever does it again finds out.
                Ran::Refused(_, _, posted) => {
                    return self.on_refused_word(posted);
                }
            }
        }
    }

    /// There is no element for a lock of which a ticket was drawn: nobody would see that it could be had, and those behind it
    /// may hold what an element waits for. What the fabric does not take is done another time.
    #[cold]
    pub(crate) fn forgo_drawn(&mut self, w: &mut Window<E::Region>, rank: Rank) {
        let Some(lock) = w.parked.find(rank).filter(|lock| lock.words == Memo::Drawn) else { return };
        let mut rest = WordLock::resumed(Claim::of(lock.lock_type, false), self.rank, Memo::Drawn);
        rest.forgo();
        let Some(at) = w.near.as_ref().and_then(|near| near.place_of(rank)) else { return };
        let Ok(Some(peer)) = self.target_peer(w, rank) else { return };
        if !self.endpoint.completes_at_once(peer) {
            return;
        }
        self.run_rest(w, NearWords { peer, at }, &mut rest);
        if let Some(lock) = w.parked.find_mut(rank).filter(|_| rest.is_idle()) {
            lock.on_forgone();
        }
    }

    /// Locks the own window for lock_all in one go. `false`: nothing has happened.
    #[inline]
    pub(crate) fn take_own_share(&mut self, w: &mut Window<E::Region>) -> bool {
        let (me, forgotten) = (self.rank, self.peers.forgotten());
        let Some(words) = w.words.as_mut().filter(|words| words.seat(OWN_SEAT).lock.is_idle()) else {
            return false;
        };
        let own = words.own();
        let Some(near) = w.near.as_mut().and_then(|near| near.find(me, forgotten)) else { return false };
        if self.is_mourning() {
            return false;
        }
        self.steps_at_once += 1;
        let by = (&mut by_address(near, own), &mut self.endpoint, &mut self.counters);
        let is_taken = matches!(take(by, near, (Claim::Everywhere, me)), Taken::All);
        if is_taken {
            words.sit(OWN_SEAT, me, WordLock::resumed(Claim::Everywhere, me, Memo::Held));
        }
        is_taken
    }

    /// Gives the own window's lock back so. `false`: it is as it was.
    #[inline]
    pub(crate) fn leave_own_share(&mut self, w: &mut Window<E::Region>) -> bool {
        let (me, forgotten) = (self.rank, self.peers.forgotten());
        let Some(words) = &w.words else { return false };
        let (own, lock) = (words.own(), &words.seat(OWN_SEAT).lock);
        let is_plain = lock.is_held() && lock.is_settled() && lock.claim() == Claim::Everywhere;
        let Some(near) = w.near.as_mut().and_then(|near| near.find(me, forgotten)) else { return false };
        if !is_plain || self.is_mourning() {
            return false;
        }
        self.steps_at_once += 1;
        let by = (&mut by_address(near, own), &mut self.endpoint, &mut self.counters);
        if leave(by, near, (Claim::Everywhere, me)) != Some(Ok(())) {
            return false;
        }
        self.on_full_fence();
        w.self_lock = SelfLock::None;
        self.leave_seat(w, OWN_SEAT);
        true
    }

    /// Whether neighbours of a new window can be remembered.
    pub(crate) fn makes_near(&self, w: &Window<E::Region>) -> bool {
        let is_plain = w.dynamic.is_none() && w.checker.is_none() && !w.is_served;
        is_plain && self.endpoint.may_complete_at_once()
    }

    /// Remembers a target to which an operation was over at once: the next epoch to it needs no element.
    #[cold]
    #[inline(never)]
    pub(crate) fn remember_near(&mut self, w: &mut Window<E::Region>, t: u32) {
        let te = &self.targets[t];
        let (Some(peer), Some(metadata)) = (te.peer, te.metadata) else { return };
        let (rank, me, forgotten) = (te.rank, self.rank, self.peers.forgotten());
        let place = w.words.as_ref().and_then(|words| words.place_of(rank, me));
        let Some(near) = &mut w.near else { return };
        if let Some(near) = near.find(rank, forgotten) {
            near.place = near.place.or(place);
            return;
        }
        let base = RemoteAddr { addr: metadata.base, key: metadata.key };
        // Of one that is locked without an element, what is known is needed to give the lock back.
        if near.rival(rank).is_some_and(|rival| w.parked.contains(rival)) {
            return;
        }
        if self.is_reached(peer, base) {
            let Some(near) = &mut w.near else { return };
            near.keep(NearTarget::new(rank, (peer, forgotten), place, metadata));
        }
    }

    /// The same of this rank itself, for its own lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn remember_own(&mut self, w: &mut Window<E::Region>) {
        let (me, forgotten, own) = (self.rank, self.peers.forgotten(), w.own);
        let Some(words) = &w.words else { return };
        let (peer, place) = (words.seat(OWN_SEAT).peer, words.own());
        let (Some(peer), Some(near)) = (peer, &mut w.near) else { return };
        if near.rival(me).is_some_and(|rival| w.parked.contains(rival)) {
            return;
        }
        near.keep(NearTarget::new(me, (peer, forgotten), Some(place), own));
    }
}
