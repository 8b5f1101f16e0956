//! ISSUE_OPS_*: hands pending operations, lock requests, DONE and UNLOCK to the fabric.

use super::{Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::provider::{Accepted, CompletionScope, Endpoint};
use crate::state::TargetLockState;
use crate::table::Sync;
use crate::window::Window;
use crate::wire::{BatchFlags, Header, PacketKind};

use super::tag::TagKind;

/// The fabric had no room: go on after the next poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Again;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// ISSUE_OPS_GLOBAL: issues for every window.
    ///
    /// Implements: seed: ISSUE_OPS_GLOBAL.
    pub(crate) fn issue_ops_global(&mut self, windows: &mut Windows<E::Region, E::Passage>) -> u32 {
        windows.iter_mut().map(|w| self.issue_ops_win(w)).sum()
    }

    /// ISSUE_OPS_WIN: issues for every target, round-robin from where it stopped last, so that no
    /// target is overloaded while others wait. Returns how many operations were issued; the window
    /// stays marked when something is left.
    ///
    /// Implements: seed: ISSUE_OPS_WIN.
    #[inline]
    pub(crate) fn issue_ops_win(&mut self, w: &mut Window<E::Region>) -> u32 {
        if !w.dirty {
            return 0;
        }
        self.issue_ops_of_dirty(w)
    }

    #[inline(never)]
    fn issue_ops_of_dirty(&mut self, w: &mut Window<E::Region>) -> u32 {
        w.dirty = false;
        let (mut issued, mut left) = (0, w.slots.count());
        let mut t = w.issue_cursor;
        while left > 0 {
            let Some(next) = w.slots.next(&self.targets, t).or_else(|| w.slots.next(&self.targets, NONE))
            else {
                break;
            };
            t = next;
            left -= 1;
            match self.issue_ops_target(w, t) {
                Ok(count) => issued += count,
                Err(Again) => w.dirty = true,
            }
        }
        w.issue_cursor = t;
        if self.walk(w) == Err(Again) || self.issue_seats(w) == Err(Again) {
            w.dirty = true;
        }
        issued
    }

    /// ISSUE_OPS_TARGET: issues what may go to one target now; returns how many operations went.
    ///
    /// Implements: seed: ISSUE_OPS_TARGET.
    pub(crate) fn issue_ops_target(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<u32, Again> {
        let issued = self.issue_what_may_go(w, t);
        if self.targets[t].sync != Sync::None {
            self.note_phase(w, t);
        }
        issued
    }

    fn issue_what_may_go(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<u32, Again> {
        let te = &self.targets[t];
        // What complete has left behind goes on whatever the window's state is by now.
        let may_issue = self.may_issue(w) || te.sync == Sync::Complete;
        if !te.wants_issue() || te.is_dead() || !may_issue {
            return Ok(0);
        }
        if self.is_alone(w, t) {
            return self.issue_alone(w, t);
        }
        let lock = te.lock;
        match lock {
            TargetLockState::Called if w.words.is_none() => return self.issue_lock(w, t),
            TargetLockState::Called if !self.locks_by_words(w, t)? => return self.issue_lock(w, t),
            TargetLockState::Called => self.issue_word_lock(w, t)?,
            TargetLockState::Issued => self.issue_words(w, t)?,
            TargetLockState::Granted => {}
        }
        if self.targets[t].lock != TargetLockState::Granted || self.targets[t].is_dead() {
            // The grant wakes this up again.
            return Ok(0);
        }
        if !self.resolve(w, t) {
            return Err(Again);
        }
        if !self.targets[t].words.is_idle() {
            self.issue_words(w, t)?;
        }
        let native = self.issue_native(w, t)?;
        self.issue_notes(w, t)?;
        let messages = self.issue_messages(w, t)?;
        // Notifications of natives may have waited for those in packets.
        w.dirty |= messages > 0 && self.targets[t].notes > 0;
        self.issue_order(w, t)?;
        self.issue_marks(w, t)?;
        self.issue_sync(w, t)?;
        Ok(native + messages)
    }

    /// Whether operations may leave, as far as the window's epoch is concerned.
    fn may_issue(&self, w: &Window<E::Region>) -> bool {
        let is_early = w.state().is_fence() && Mutation::FenceIssuesEarly.is_on();
        w.state().may_issue() || is_early
    }

    /// Whether native operations allow UNLOCK or COMPLETE to leave: it must not overtake them.
    pub(crate) fn may_close_behind_natives(&self, w: &Window<E::Region>, t: u32) -> bool {
        let te = &self.targets[t];
        if Mutation::UnlockOvertakesPuts.is_on() {
            return true;
        }
        if te.native_gets > 0 || te.native_atomics > 0 || te.flush_outstanding {
            return false;
        }
        let puts_arrived = te.native_puts == 0 && !te.unflushed;
        let is_behind = self.config.piggyback && self.limits.order.put_before_send;
        puts_arrived || (is_behind && !self.closes_when_flushed(w))
    }

    /// Whether what ends an epoch waits for puts that are complete only locally: UNLOCK and COMPLETE end what is known of
    /// these, and the records of regions must not be given back before they have arrived.
    pub(crate) fn closes_when_flushed(&self, w: &Window<E::Region>) -> bool {
        w.dynamic.is_some() && self.puts_need_flush
    }

    /// DONE, UNLOCK or COMPLETE in a packet of their own, and the provider's flush, where they are needed.
    fn issue_sync(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<(), Again> {
        let te = &self.targets[t];
        if te.sync < Sync::Flush || !te.pending.is_empty() || te.notes > 0 || te.sync_sent {
            return Ok(());
        }
        let closing = te.closing();
        let closing_follows = closing.is_some() && self.may_close_behind_natives(w, t);
        if !closing_follows && self.targets[t].unflushed && !self.targets[t].flush_outstanding {
            self.post_flush(w, t)?;
        }
        if let Some(closing) = closing {
            let apart = !self.config.piggyback && !self.is_done(t);
            if !closing_follows || apart {
                return if apart && self.targets[t].needs_done { self.send_done(w, t) } else { Ok(()) };
            }
            let flags = closing | self.done_for_errors(w, t, closing, false);
            if flags == BatchFlags::COMPLETE {
                let rank = self.targets[t].rank;
                if let Some(told) = self.tell_complete(w, rank) {
                    told.map_err(|error| self.refused(w, t, error))?;
                    self.after_flags(w, t, flags);
                    return Ok(());
                }
            }
            return self.send_control(w, t, flags);
        }
        if self.targets[t].needs_done {
            return self.send_done(w, t);
        }
        Ok(())
    }

    /// Whether every packet of operations is acknowledged.
    fn is_done(&self, t: u32) -> bool {
        let te = &self.targets[t];
        !te.needs_done
            && te.done_acked == te.done_sent
            && te.issued.is_empty()
            && te.native_outstanding() == 0
    }

    /// The DONE that goes with COMPLETE where only the target knows whether the operations were inside of its
    /// window, or in conflict with others; nothing else asks for an acknowledgement of theirs.
    pub(crate) fn done_for_errors(
        &self,
        w: &Window<E::Region>,
        t: u32,
        closing: BatchFlags,
        writes: bool,
    ) -> BatchFlags {
        let te = &self.targets[t];
        let is_judged = te.metadata.is_none() || w.checker.is_some();
        let is_wanted = closing == BatchFlags::COMPLETE && is_judged && (te.needs_done || writes);
        if is_wanted {
            BatchFlags::DONE
        } else {
            BatchFlags::default()
        }
    }

    fn send_done(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<(), Again> {
        self.send_control(w, t, BatchFlags::DONE)
    }

    /// A batch without operations.
    pub(crate) fn send_control(
        &mut self,
        w: &mut Window<E::Region>,
        t: u32,
        flags: BatchFlags,
    ) -> Result<(), Again> {
        let Some(peer) = self.targets[t].peer else { return Err(Again) };
        let header = self.batch_header(w, t, flags, 0);
        match self.send(peer, PacketKind::Batch, &header.encode(), &[]) {
            Ok(()) => {
                self.after_flags(w, t, flags);
                Ok(())
            }
            Err(error) => Err(self.refused(w, t, error)),
        }
    }

    pub(crate) fn batch_header(
        &self,
        w: &Window<E::Region>,
        t: u32,
        flags: BatchFlags,
        count: u16,
    ) -> Header {
        Header {
            kind: PacketKind::Batch,
            flags: (flags | w.check_flags(self.targets[t].order.section > 0) | w.unlock_flags(flags)).0,
            count,
            window: w.id,
            sender: self.rank,
            token: self.targets[t].done_sent.wrapping_add(1),
        }
    }

    /// What the flags of a packet that was sent mean for its target element.
    pub(crate) fn after_flags(&mut self, w: &mut Window<E::Region>, t: u32, flags: BatchFlags) {
        let te = &mut self.targets[t];
        if flags.has(BatchFlags::DONE) {
            te.done_sent = te.done_sent.wrapping_add(1);
            te.needs_done = false;
        }
        if flags.any(BatchFlags::UNLOCK | BatchFlags::COMPLETE) {
            te.sync_sent = true;
            te.needs_done = false;
            te.unflushed = false;
            self.shortcut.forget(t);
        }
        if flags.has(BatchFlags::COMPLETE) {
            let rank = te.rank;
            self.close_member(w, rank);
        }
    }

    /// Asks the provider to say when all puts so far have arrived.
    pub(crate) fn post_flush(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<(), Again> {
        let Some(peer) = self.targets[t].peer else { return Err(Again) };
        if self.limits.put_completes == CompletionScope::Remote {
            return Ok(());
        }
        match self.endpoint.flush(peer, TagKind::Flush.tag(0, t)) {
            Ok(accepted) => {
                self.counters.native_flushes += 1;
                let te = &mut self.targets[t];
                (te.unflushed, te.flush_outstanding) = (false, accepted == Accepted::Tracked);
                te.flushes_posted = te.flushes_posted.wrapping_add(1);
                if accepted == Accepted::Complete {
                    (te.flushes_done, te.accumulates_unseen) = (te.flushes_posted, false);
                    w.dirty = true;
                }
                self.shortcut.forget(t);
                Ok(())
            }
            Err(error) => Err(self.refused(w, t, error)),
        }
    }
}
