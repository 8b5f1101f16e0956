//! Locks that are words of the target's memory: posts what the machine (`lock/words`) wants, and tells it what came
//! of it. A target element that holds such a lock is what one of a lock without check is, and nothing of it is a
//! packet's business.
#![allow(unsafe_code)] // the fabric reads and writes the locks' cells

use super::issue::Again;
use super::tag::LockSeat;
use super::waiters::NearWords;
use super::{Place, Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::dtype::Dtype;
use crate::error::FabricCode;
use crate::ids::{PeerAddr, Rank, Tag, WindowId};
use crate::lock::words::{Atomic, Claim, Memo, Turn, Word, WordLock};
use crate::mutation::Mutation;
use crate::op::ReduceOp;
use crate::pool::NONE;
use crate::provider::{Accepted, Endpoint, Post, PostError, RemoteAddr};
use crate::state::TargetLockState;
use crate::table::{CellPlace, Sync, TargetError};
use crate::window::{offset_of, Seat, Walk, Window, FIRST_PROXY, OWN_SEAT, SEATS};
use crate::wire::{Header, PacketKind};

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Makes room for the atomics of a window that `has_words`, and for those of target elements that came with
    /// another one, as elements serve all windows.
    pub(crate) fn make_lock_cells(&mut self, id: WindowId, has_words: bool) {
        if has_words {
            self.seat_cells.make((id.0 as usize + 1) * SEATS);
        }
        if has_words || !self.lock_cells.is_empty() {
            self.lock_cells.make(self.targets.len());
        }
    }

    pub(super) fn post_word(
        &mut self,
        peer: PeerAddr,
        first: RemoteAddr,
        word: Word,
        (place, atomic): (CellPlace, Atomic),
        tag: Tag,
    ) -> Post {
        let at = RemoteAddr { addr: first.addr.wrapping_add(offset_of(word)), key: first.key };
        let CellPlace { operand, compare, result } = place;
        match atomic {
            Atomic::Add(_) => {
                // SAFETY: both are this lock's cell, which stays where it is and is used for nothing else until the
                // tag is back.
                unsafe {
                    self.endpoint.fetch_atomic(peer, operand, result, 1, at, Dtype::U64, ReduceOp::Sum, tag)
                }
            }
            Atomic::Swap(..) => {
                // SAFETY: as above.
                unsafe { self.endpoint.compare_atomic(peer, operand, compare, result, at, Dtype::U64, tag) }
            }
        }
    }

    fn count_word(&mut self, posted: Post, is_again: bool) {
        match posted {
            Ok(_) => {
                self.counters.lock_atomics += 1;
                self.counters.lock_retries += u64::from(is_again);
            }
            Err(PostError::Again) => self.counters.again += 1,
            Err(PostError::Failed(_)) => {}
        }
    }

    /// Begins to lock a target whose lock was called, if somebody wants it now.
    pub(super) fn issue_word_lock(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<(), Again> {
        let te = &self.targets[t];
        let is_wanted = te.sync != Sync::None || te.lock_wanted || (w.pressure && te.pending.count > 0);
        if !is_wanted {
            return Ok(());
        }
        if !self.resolve(w, t) {
            return Err(Again);
        }
        let me = self.rank;
        let te = &mut self.targets[t];
        te.words = WordLock::asked(Claim::of(te.lock_type, w.state().is_lock_all()), me);
        // No packet of the epoch says LOCK or UNLOCK.
        (te.lock_wanted, te.no_check) = (false, true);
        te.lock.on_issue().unwrap_or_default();
        self.issue_words(w, t)
    }

    /// Goes on with the lock of a target element: its request, and its release when the epoch is over.
    #[inline]
    pub(super) fn issue_words(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<(), Again> {
        if w.words.is_none() {
            return Ok(());
        }
        self.issue_words_slow(w, t)
    }

    #[inline(never)]
    fn issue_words_slow(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<(), Again> {
        let te = &mut self.targets[t];
        let is_over = te.is_flushed() || Mutation::WordLeftEarly.is_on();
        if te.sync == Sync::Unlock && te.words.is_held() && te.pending.is_empty() && is_over {
            te.words.release();
        }
        if let (true, Some(words)) = (te.words.is_waiting(), &mut w.words) {
            (words.has_waiters, self.wants_looks) = (true, true);
        }
        let is_mourning = self.is_mourning();
        while let Some((word, turn)) = self.targets[t].words.poll_first(is_mourning) {
            if !self.post_target_word(w, t, word, turn)? {
                break;
            }
        }
        Ok(())
    }

    /// `false`: where the words are is not known yet.
    fn post_target_word(
        &mut self,
        w: &mut Window<E::Region>,
        t: u32,
        word: Word,
        turn: Turn,
    ) -> Result<bool, Again> {
        // Of a lock that was remembered half taken it may not be known yet.
        if self.targets[t].peer.is_none() && !self.resolve(w, t) {
            return Err(Again);
        }
        let te = &self.targets[t];
        let Some(peer) = te.peer else { return Err(Again) };
        let Some(place) = w.words.as_ref().and_then(|words| words.place_of(te.rank, self.rank)) else {
            return self.request_metadata(w, t).map(|()| false);
        };
        let cell = self.lock_cells.put(t as usize, word, turn.atomic);
        let tag = LockSeat::Target.tag(word, t);
        let posted = self.post_word(peer, place, word, (cell, turn.atomic), tag);
        self.count_word(posted, turn.is_again);
        match posted {
            Ok(accepted) => {
                self.targets[t].words.on_posted(word, turn);
                if accepted == Accepted::Complete {
                    let near = NearWords { peer, at: place };
                    let next = self.on_target_word(w, t, word);
                    self.meet_waiters(
                        w,
                        near,
                        next,
                        self.targets[t].words.waits_with().filter(|_| !turn.is_again),
                    );
                    // A look in vain is no step: who counts those would never sleep.
                    let is_vain = turn.is_again && self.targets[t].words.is_waiting();
                    self.steps_at_once += usize::from(!is_vain);
                }
                Ok(true)
            }
            Err(PostError::Failed(_)) if self.turns_to_packets(w, t, peer, place) => Ok(false),
            Err(error) => Err(self.refused(w, t, error)),
        }
    }

    /// Whether a lock that was waited for has come meanwhile. Who wants to sleep asks when whoever lets it in would wake it.
    pub(crate) fn has_turn_come(&mut self, windows: &mut Windows<E::Region, E::Passage>) -> bool {
        let before = self.steps_at_once;
        if self.wants_looks {
            self.issue_looks(windows);
        }
        self.steps_at_once != before
    }

    /// Lets who waits for a lock look again, behind everything else that is to be posted; and each once before anybody
    /// does so twice, however little the fabric takes at one time.
    #[cold]
    pub(super) fn issue_looks(&mut self, windows: &mut Windows<E::Region, E::Passage>) {
        let mut is_refused = false;
        self.wants_looks = false;
        for w in windows.iter_mut() {
            if w.words.as_ref().is_some_and(|words| words.has_waiters) {
                is_refused |= self.look_in(w);
                self.serve_grants(w);
            }
        }
        if is_refused {
            return;
        }
        for w in windows.iter_mut() {
            let Some(words) = w.words.as_mut().filter(|words| words.has_waiters) else { continue };
            (0..SEATS).for_each(|seat| words.seat_mut(seat).lock.on_round());
            let mut t = w.slots.next(&self.targets, NONE);
            while let Some(index) = t {
                self.targets[index].words.on_round();
                t = w.slots.next(&self.targets, index);
            }
        }
    }

    /// The same in one window. `true`: the fabric does not take it all.
    fn look_in(&mut self, w: &mut Window<E::Region>) -> bool {
        let is_mourning = self.is_mourning();
        let (mut is_refused, mut has_waiters) = (false, false);
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            has_waiters |= self.targets[index].words.is_waiting();
            for word in Word::BOTH {
                if let Some(turn) = self.targets[index].words.poll_again(word, is_mourning) {
                    is_refused |= self.post_target_word(w, index, word, turn).is_err();
                }
            }
            t = w.slots.next(&self.targets, index);
        }
        for seat in 0..SEATS {
            let lock_of = |w: &Window<E::Region>| w.words.as_ref().map(|words| words.seat(seat).lock);
            has_waiters |= lock_of(w).is_some_and(|lock| lock.is_waiting());
            for word in Word::BOTH {
                if let Some(turn) = lock_of(w).and_then(|lock| lock.poll_again(word, is_mourning)) {
                    is_refused |= self.post_seat_word(w, seat, word, turn).is_err();
                }
            }
        }
        if let Some(words) = &mut w.words {
            words.has_waiters = has_waiters;
        }
        self.wants_looks |= has_waiters;
        is_refused
    }

    /// An atomic on a lock's word is done; or it has not been done, if the fabric `has_failed`, which fails its target
    /// later.
    pub(super) fn on_word(
        &mut self,
        windows: &mut Windows<E::Region, E::Passage>,
        seat: LockSeat,
        word: Word,
        index: u32,
    ) {
        match seat {
            LockSeat::Target => {
                let Some(w) = windows.get_mut(self.targets[index].window) else {
                    // Its window is gone, and the element waits for its atomics to be free.
                    let old = self.lock_cells.result(index as usize, word);
                    self.targets[index].words.on_done(word, old);
                    return;
                };
                let _ = self.on_target_word(w, index, word);
            }
            LockSeat::Window(seat) => {
                let Some(w) = windows.get_mut(WindowId(index)) else { return };
                let _ = self.on_seat_word(w, seat, word);
            }
            LockSeat::Waiters => {}
        }
    }

    /// Returns what [`WordLock::on_done`] does.
    fn on_target_word(&mut self, w: &mut Window<E::Region>, t: u32, word: Word) -> Option<u32> {
        let old = self.lock_cells.result(t as usize, word);
        let mut lock = self.targets[t].words;
        let next = lock.on_done(word, old);
        let (rank, peer) = (self.targets[t].rank, self.targets[t].peer);
        let is_lost = self.find_out(w, &mut lock, (rank, peer), false);
        let te = &mut self.targets[t];
        te.words = lock;
        if lock.is_held() && te.lock == TargetLockState::Issued {
            te.lock.on_grant().unwrap_or_default();
            self.refresh_direct(t);
        }
        w.dirty = true;
        if is_lost {
            self.give_up_operations(w, t, TargetError::LockLost);
        }
        next
    }

    /// The fabric has not done it.
    #[cold]
    pub(super) fn on_word_failed(
        &mut self,
        windows: &mut Windows<E::Region, E::Passage>,
        (seat, word, index): (LockSeat, Word, u32),
        code: FabricCode,
    ) {
        match seat {
            LockSeat::Target => {
                self.targets[index].words.on_failed(word);
                if let Some(w) = windows.get_mut(self.targets[index].window) {
                    self.fail_target(w, index, code);
                }
            }
            LockSeat::Window(seat) => {
                let Some(w) = windows.get_mut(WindowId(index)) else { return };
                let Some(words) = &mut w.words else { return };
                words.seat_mut(seat).lock.on_failed(word);
                self.lose_seat(w, seat, TargetError::Peer(code));
            }
            LockSeat::Waiters => {}
        }
    }

    /// Goes on with the lock of the own window, and with the walk's.
    #[inline]
    pub(crate) fn issue_seats(&mut self, w: &mut Window<E::Region>) -> Result<(), Again> {
        let mut from = 0;
        while let Some(words) = &w.words {
            let Some(seat) = words.next_taken(from) else { break };
            self.issue_seat(w, seat)?;
            from = seat + 1;
        }
        if w.words.is_none() {
            return Ok(());
        }
        self.pay_owed(w);
        self.serve_grants(w);
        Ok(())
    }

    pub(crate) fn issue_seat(&mut self, w: &mut Window<E::Region>, seat: usize) -> Result<(), Again> {
        let is_mourning = self.is_mourning();
        loop {
            let Some(words) = &mut w.words else { return Ok(()) };
            let lock = words.seat(seat).lock;
            words.has_waiters |= lock.is_waiting();
            self.wants_looks |= lock.is_waiting();
            let next = lock.poll_first(is_mourning);
            let Some((word, turn)) = next.filter(|_| Self::may_post(w, seat, &next)) else { return Ok(()) };
            if !self.post_seat_word(w, seat, word, turn)? {
                return Ok(());
            }
        }
    }

    /// `false`: it cannot be posted, now or for ever.
    fn post_seat_word(
        &mut self,
        w: &mut Window<E::Region>,
        seat: usize,
        word: Word,
        turn: Turn,
    ) -> Result<bool, Again> {
        let Some(peer) = self.seat_peer(w, seat)? else { return Ok(false) };
        let Some(words) = &mut w.words else { return Ok(false) };
        let Some(place) = words.place_of(words.seat(seat).rank, self.rank) else {
            return self.ask_for_words(w, seat, peer).map(|()| false);
        };
        let index = w.id.0 as usize * SEATS + seat;
        let cell = self.seat_cells.put(index, word, turn.atomic);
        let tag = LockSeat::Window(seat).tag(word, w.id.0);
        let posted = self.post_word(peer, place, word, (cell, turn.atomic), tag);
        self.count_word(posted, turn.is_again);
        match posted {
            Ok(accepted) => {
                words.seat_mut(seat).lock.on_posted(word, turn);
                if accepted == Accepted::Complete {
                    let near = NearWords { peer, at: place };
                    let next = self.on_seat_word(w, seat, word);
                    let lock = w.words.as_ref().map_or(WordLock::NONE, |words| words.seat(seat).lock);
                    self.meet_waiters(w, near, next, lock.waits_with().filter(|_| !turn.is_again));
                    self.steps_at_once += usize::from(!(turn.is_again && lock.is_waiting()));
                }
                Ok(true)
            }
            Err(PostError::Again) => Err(Again),
            Err(PostError::Failed(_)) if self.walks_on_by_packet(w, seat, peer, place)? => Ok(false),
            Err(PostError::Failed(code)) => {
                self.lose_seat(w, seat, TargetError::Peer(code));
                Ok(false)
            }
        }
    }

    /// The peer of a seat's rank, which stays known as long as the seat is taken; `None`: it cannot be had.
    pub(super) fn seat_peer(
        &mut self,
        w: &mut Window<E::Region>,
        seat: usize,
    ) -> Result<Option<PeerAddr>, Again> {
        let Some(Some((peer, rank))) = w.words.as_ref().map(|words| {
            let seat = words.seat(seat);
            Some((seat.peer, seat.rank))
        }) else {
            return Ok(None);
        };
        if peer.is_some() {
            return Ok(peer);
        }
        match self.target_peer(w, rank) {
            Ok(None) => Err(Again),
            Ok(peer) => {
                self.peers.pin(Place::of(rank));
                if let Some(words) = &mut w.words {
                    words.seat_mut(seat).peer = peer;
                }
                Ok(peer)
            }
            Err(code) => {
                self.lose_seat(w, seat, TargetError::Peer(code));
                Ok(None)
            }
        }
    }

    /// Asks a seat's rank where its words are, once.
    fn ask_for_words(&mut self, w: &mut Window<E::Region>, seat: usize, peer: PeerAddr) -> Result<(), Again> {
        let (kind, sender) = (PacketKind::MetadataRequest, self.rank);
        let Some(words) = &mut w.words else { return Ok(()) };
        if words.seat(seat).is_asked {
            return Ok(());
        }
        let header = Header { kind, flags: 0, count: 0, window: w.id, sender, token: 0 };
        match self.send(peer, kind, &header.encode(), &[]) {
            Ok(()) => words.seat_mut(seat).is_asked = true,
            Err(PostError::Again) => return Err(Again),
            Err(PostError::Failed(code)) => self.lose_seat(w, seat, TargetError::Peer(code)),
        }
        Ok(())
    }

    /// Returns what [`WordLock::on_done`] does.
    fn on_seat_word(&mut self, w: &mut Window<E::Region>, seat: usize, word: Word) -> Option<u32> {
        let old = self.seat_cells.result(w.id.0 as usize * SEATS + seat, word);
        w.dirty = true;
        let words = w.words.as_mut()?;
        let mut lock = words.seat(seat).lock;
        let next = lock.on_done(word, old);
        let Seat { rank, peer, .. } = *words.seat(seat);
        let is_mine = rank == self.rank && words.is_alone_beside(seat);
        let is_lost = self.find_out(w, &mut lock, (rank, peer), is_mine);
        let words = w.words.as_mut()?;
        words.seat_mut(seat).lock = lock;
        if is_lost {
            self.lose_seat(w, seat, TargetError::LockLost);
            return next;
        }
        if seat >= FIRST_PROXY {
            self.clear_proxy(w, seat);
            return next;
        }
        let is_answer = seat != OWN_SEAT && (lock.is_idle() || (lock.is_held() && lock.is_settled()));
        if is_answer {
            w.cursor.on_answer(rank);
        }
        if is_answer || lock.is_idle() || (lock.is_lost() && !lock.is_busy()) {
            self.leave_seat(w, seat);
        }
        next
    }

    /// Of a lock whose words are near: wakes who waits with the ticket `next`, and writes down that this rank waits.
    #[inline]
    fn meet_waiters(&mut self, w: &Window<E::Region>, near: NearWords, next: Option<u32>, own: Option<u32>) {
        if let Some(ticket) = next {
            self.wake_waiter(w, near, ticket);
        }
        if let Some(ticket) = own {
            self.write_down_waiter(near, ticket);
        }
    }

    /// The lock of a seat will not be had any more. That of the own window is reported by its call.
    fn lose_seat(&mut self, w: &mut Window<E::Region>, seat: usize, error: TargetError) {
        let Some(words) = &mut w.words else { return };
        let rank = words.seat(seat).rank;
        let lock = &mut words.seat_mut(seat).lock;
        lock.lose();
        let is_busy = lock.is_busy();
        if let TargetError::Peer(code) = error {
            self.note_peer_failure(rank, code);
        }
        w.dirty = true;
        if seat >= FIRST_PROXY {
            // Whoever asked is answered as it is found.
            return self.clear_proxy(w, seat);
        }
        if seat != OWN_SEAT {
            w.cursor.on_lost(rank);
            self.note_late_error(w, rank, error);
        }
        if !is_busy {
            self.leave_seat(w, seat);
        }
    }

    /// Nothing of the seat's lock is under way. One that was lost is found lost by the call that waits for it.
    pub(super) fn leave_seat(&mut self, w: &mut Window<E::Region>, seat: usize) {
        let Some(words) = &mut w.words else { return };
        let left = words.stand_up(seat);
        if seat == OWN_SEAT && left.lock.is_lost() {
            words.seat_mut(seat).lock = left.lock;
        }
        if left.peer.is_some() {
            self.peers.unpin(Place::of(left.rank));
        }
    }

    /// Gives the seats free of locks that were lost with a rank: of those with nothing under way nobody will hear again.
    pub(super) fn leave_lost_seats(&mut self, w: &mut Window<E::Region>, rank: Rank) {
        for seat in OWN_SEAT + 1..SEATS {
            let is_left = |seat: &Seat| seat.rank == rank && seat.lock.is_lost() && !seat.lock.is_busy();
            if w.words.as_ref().is_some_and(|words| is_left(words.seat(seat))) {
                self.leave_seat(w, seat);
            }
        }
    }

    /// Begins to lock the own window, as soon as the lock that it had before is done with. Whether it is held.
    pub(crate) fn poll_own_words(
        &mut self,
        w: &mut Window<E::Region>,
        claim: Claim,
        is_asked: &mut bool,
    ) -> bool {
        let (me, Some(words)) = (self.rank, &mut w.words) else { return false };
        if !*is_asked {
            let lock = &words.seat(OWN_SEAT).lock;
            let is_free = lock.is_idle() || (lock.is_lost() && !lock.is_busy());
            if !is_free {
                return false;
            }
            *is_asked = true;
            words.sit(OWN_SEAT, me, WordLock::asked(claim, me));
            self.issue_own_seat(w);
        }
        w.words.as_ref().is_some_and(|words| words.seat(OWN_SEAT).lock.is_held())
    }

    /// Gives the own window's lock up, whether it is held or waited for; what that takes goes on by itself.
    pub(crate) fn leave_own_words(&mut self, w: &mut Window<E::Region>) {
        let Some(words) = &mut w.words else { return };
        words.seat_mut(OWN_SEAT).lock.abandon();
        self.issue_own_seat(w);
    }

    fn issue_own_seat(&mut self, w: &mut Window<E::Region>) {
        self.run_own_seat(w);
        if w.words.as_ref().is_some_and(|words| !words.seat(OWN_SEAT).lock.is_settled()) {
            w.dirty |= self.issue_seat(w, OWN_SEAT).is_err();
        }
    }

    /// Locks, or unlocks, a rank without element for the walk of lock_all.
    pub(super) fn walk_words(&mut self, w: &mut Window<E::Region>, rank: Rank) -> Result<(), Again> {
        let (me, is_lock) = (self.rank, w.walk == Walk::Lock);
        let Some(words) = &mut w.words else { return Err(Again) };
        let Some(seat) = words.free_seat() else { return Err(Again) };
        let mut lock = WordLock::asked(Claim::Everywhere, me);
        if !is_lock {
            lock = WordLock::resumed(Claim::Everywhere, me, Memo::Held);
            lock.release();
        }
        words.sit(seat, rank, lock);
        w.cursor.on_asked();
        self.issue_seat(w, seat)
    }
}
