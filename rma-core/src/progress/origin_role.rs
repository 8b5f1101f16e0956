//! What replies mean to the origin.

use super::deaths::GOES;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::ids::{Rank, RemoteKey};
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::provider::{Endpoint, RemoteAddr};
use crate::state::TargetLockState;
use crate::table::TargetError;
use crate::window::{Walk, Window};
use crate::wire::{ErrorRecord, Header, Metadata, Reader, ReplyFlags, ResultRecord, WireError};

/// What a reply may say beside results and that a DONE was reached.
const TELLS_MORE: ReplyFlags = ReplyFlags(
    ReplyFlags::ERROR.0
        | ReplyFlags::GRANT.0
        | ReplyFlags::UNLOCK_ACK.0
        | ReplyFlags::RETRY.0
        | ReplyFlags::NOT_EXECUTED.0,
);

/// What it may say beside that an epoch is over, after which not all is.
const TELLS_OTHERWISE: ReplyFlags =
    ReplyFlags(ReplyFlags::ERROR.0 | ReplyFlags::RETRY.0 | ReplyFlags::NOT_EXECUTED.0);

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// A reply arrived for this window.
    pub(crate) fn on_reply(
        &mut self,
        w: &mut Window<E::Region>,
        header: &Header,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let flags = ReplyFlags(header.flags);
        if flags.any(GOES) {
            self.on_gone(w, header.sender, flags);
            return Ok(());
        }
        let metadata = if flags.has(ReplyFlags::METADATA) { Some(Metadata::decode(reader)?) } else { None };
        if flags.has(ReplyFlags::DETACHED) {
            return self.on_detached_reply(w, header.sender, flags, reader);
        }
        let Some(t) = w.find(&self.targets, header.sender) else {
            // An error of operations whose element was given up before it came.
            return self.on_detached_reply(w, header.sender, flags, reader);
        };
        if let Some(metadata) = metadata {
            self.targets[t].metadata = Some(metadata);
            self.check_pending_ranges(w, t, &metadata);
        }
        for _ in 0..header.count {
            let (result, bytes) = ResultRecord::decode(reader)?;
            self.on_result(t, &result, bytes)?;
        }
        if metadata.is_none() && !flags.any(TELLS_MORE) {
            self.take_done(t, flags, header.token);
            self.cleanup_ops_target(w, t);
            self.leave_reply(w, t, false);
            return Ok(());
        }
        if flags.has(ReplyFlags::ERROR) {
            let error = ErrorRecord::decode(reader)?;
            if error == ErrorRecord::LockLost {
                self.give_up_operations(w, t, TargetError::LockLost);
            }
            self.targets[t].error.get_or_insert(TargetError::Record(error));
        }
        // Of a lock by words no packet says anything.
        if w.state().is_passive() && self.targets[t].words.is_idle() {
            self.on_lock_reply(w, t, flags);
        }
        self.take_done(t, flags, header.token);
        self.targets[t].unlock_acked |= flags.has(ReplyFlags::UNLOCK_ACK);
        self.refresh_direct(t);
        self.cleanup_ops_target(w, t);
        let is_last = flags.has(ReplyFlags::UNLOCK_ACK) && !flags.any(TELLS_OTHERWISE);
        self.leave_reply(w, t, !is_last);
        Ok(())
    }

    /// Whether the window must be looked at after a reply.
    #[inline]
    fn leave_reply(&mut self, w: &mut Window<E::Region>, t: u32, has_more: bool) {
        w.dirty |= has_more || self.may_go_on(w, t);
        self.calm += u32::from(!w.dirty);
    }

    /// The acknowledgement of a DONE that was sent, and not of one that is to come.
    #[inline]
    fn take_done(&mut self, t: u32, flags: ReplyFlags, token: u32) {
        let te = &mut self.targets[t];
        let news = token.wrapping_sub(te.done_acked);
        if flags.has(ReplyFlags::DONE_ACK) && news <= te.done_sent.wrapping_sub(te.done_acked) {
            te.done_acked = token;
        }
        if Mutation::DoneAckedByAnything.is_on() {
            te.done_acked = te.done_sent;
        }
    }

    /// Whether results and acknowledgements of a target may let something go on that only looking at its window finds.
    #[inline]
    fn may_go_on(&self, w: &Window<E::Region>, t: u32) -> bool {
        let te = &self.targets[t];
        let is_other = te.order.in_force || w.walk != Walk::None || w.pressure || w.dynamic.is_some();
        (te.wants_more_than_answers() || is_other) && !Mutation::AnswersMoveNothing.is_on()
    }

    fn on_result(&mut self, t: u32, result: &ResultRecord, bytes: &[u8]) -> Result<(), WireError> {
        let op = result.handle;
        let stale = WireError::Length(result.len);
        let element = self.operations.get_mut(op).ok_or(stale)?;
        if element.generation != result.generation || element.target != t || element.native {
            return Err(stale);
        }
        if !element.take_result(result.offset, bytes) {
            return Err(stale);
        }
        if bytes.is_empty() {
            self.fail_operation(op);
        }
        self.counters.payload_bytes_copied += bytes.len() as u64;
        if self.operations[op].is_finished() {
            self.complete_operation(t, op);
        }
        self.targets[t].requests = self.targets[t].requests.saturating_sub(1);
        Ok(())
    }

    /// GRANT, RETRY and NOT_EXECUTED decide about the lock and the operations that went with it.
    fn on_lock_reply(&mut self, w: &mut Window<E::Region>, t: u32, flags: ReplyFlags) {
        if self.targets[t].lock != TargetLockState::Issued {
            return;
        }
        if let Some(words) = &mut w.words {
            words.busy.on_answered(self.targets[t].rank);
        }
        let granted = flags.any(ReplyFlags::GRANT | ReplyFlags::UNLOCK_ACK);
        if flags.has(ReplyFlags::RETRY) {
            self.counters.lock_retries += 1;
            self.targets[t].lock.on_retry().unwrap_or_default();
            self.targets[t].lock_wanted = true;
            if Mutation::RetryLosesOperations.is_on() {
                return self.confirm_with_lock(t);
            }
            self.take_back(t);
        } else if flags.has(ReplyFlags::NOT_EXECUTED) && !Mutation::NotKeptCountsAsExecuted.is_on() {
            self.targets[t].lock.on_grant().unwrap_or_default();
            self.take_back(t);
        } else if granted {
            self.targets[t].lock.on_grant().unwrap_or_default();
            self.confirm_with_lock(t);
        }
    }

    /// The operations that went with the lock request were executed.
    fn confirm_with_lock(&mut self, t: u32) {
        let mut op = self.targets[t].issued.head;
        while op != NONE {
            let element = &mut self.operations[op];
            let next = element.next;
            if core::mem::take(&mut element.with_lock) && element.is_finished() {
                self.complete_operation(t, op);
            }
            op = next;
        }
    }

    /// The operations that went with the lock request were not executed: they are pending again, in
    /// their old order, and so is the DONE or UNLOCK that went with them.
    fn take_back(&mut self, t: u32) {
        let mut op = self.targets[t].issued.tail;
        while op != NONE {
            let prev = self.operations[op].prev;
            if self.operations[op].with_lock {
                self.targets[t].issued.remove(&mut self.operations, op);
                let element = &mut self.operations[op];
                element.with_lock = false;
                let results = element.outstanding;
                // Somebody waits for a notification.
                self.targets[t].hurried |= element.is_note || element.notify.is_some();
                (element.posted, element.outstanding) = (0, 0);
                self.counters.message_operations -= 1;
                let te = &mut self.targets[t];
                te.requests = te.requests.saturating_sub(results);
                self.relink_pending_front(t, op);
                if Mutation::TakeBackReversed.is_on() {
                    self.unlink_pending(t, op);
                    self.link_pending(t, op);
                }
            }
            op = prev;
        }
        self.uncover_marks(t);
        let te = &mut self.targets[t];
        te.sync_sent = false;
        // A DONE that went with the request was not seen: its number is free again, so that one who asks
        // over and over is, after each refusal, where he was before.
        te.done_sent = te.done_acked;
    }

    /// An answer for a target that has no element.
    fn on_detached_reply(
        &mut self,
        w: &mut Window<E::Region>,
        sender: Rank,
        flags: ReplyFlags,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let unexpected = WireError::Flags(flags.0);
        if !flags.any(ReplyFlags::ERROR | ReplyFlags::DETACHED) {
            return Err(unexpected);
        }
        if flags.has(ReplyFlags::ERROR) {
            let error = ErrorRecord::decode(reader)?;
            self.note_late_error(w, sender, TargetError::Record(error));
            if error == ErrorRecord::LockLost {
                w.cursor.on_lost(sender);
            }
        }
        if !flags.has(ReplyFlags::DETACHED) {
            return Ok(());
        }
        if flags.has(ReplyFlags::DONE_ACK) {
            w.acks.remove(sender).then_some(()).ok_or(unexpected)?;
        }
        let answered = match () {
            () if flags.has(ReplyFlags::RETRY) => {
                self.counters.lock_retries += 1;
                w.cursor.on_retry(sender)
            }
            () if flags.any(ReplyFlags::GRANT | ReplyFlags::UNLOCK_ACK) => w.cursor.on_answer(sender),
            () => true,
        };
        w.dirty = true;
        answered.then_some(()).ok_or(unexpected)
    }

    /// The metadata that a target element had asked for.
    pub(crate) fn on_metadata(
        &mut self,
        w: &mut Window<E::Region>,
        sender: Rank,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let metadata = Metadata::decode(reader)?;
        if let Some(words) = &mut w.words {
            let place = RemoteAddr { addr: reader.u64()?, key: RemoteKey(reader.u64()?) };
            words.learn(sender, place, metadata);
            w.dirty = true;
        }
        // The element may be gone: then nobody wants the answer any more.
        if let Some(t) = w.find(&self.targets, sender) {
            self.targets[t].metadata = Some(metadata);
            // Where its words are may be forgotten, and asked for again.
            self.targets[t].metadata_requested = false;
            self.check_pending_ranges(w, t, &metadata);
            self.refresh_direct(t);
            w.dirty = true;
        }
        Ok(())
    }

    /// Operations that were posted before the target's size was known, and do not fit it, fail here:
    /// the fabric must never be asked for bytes outside a window.
    pub(crate) fn check_pending_ranges(&mut self, w: &mut Window<E::Region>, t: u32, metadata: &Metadata) {
        let mut op = self.targets[t].pending.head;
        while op != NONE {
            let element = &self.operations[op];
            let next = element.next;
            let located = match &element.layouts.target {
                None => metadata.locate(element.disp, element.len),
                Some(layout) => match layout.span_of(element.len) {
                    Some(span) => metadata.locate_span(element.disp, span),
                    None => Err(u64::MAX),
                },
            };
            let note = match element.notify {
                Some(note) => metadata.locate_word(note.disp),
                None if element.is_note => metadata.locate_word(element.disp),
                None => Ok(0),
            };
            let put = located.map_err(|offset| metadata.outside(offset, element.len));
            if let Err(error) = put.and(note) {
                self.targets[t].error.get_or_insert(TargetError::Record(error));
                if element.outstanding == 0 {
                    self.fail_operation(op);
                    self.unlink_pending(t, op);
                    self.free_operation(w, t, op);
                }
            }
            op = next;
        }
    }
}
