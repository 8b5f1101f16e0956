//! The short way of an operation by message that is alone: nothing else is pending at its target, the fabric has nothing of
//! it, and its packet has room for all of it. What it does is ISSUE_OPS_TARGET, without the steps that find nothing then.

use super::issue::Again;
use super::issue_message::Packed;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::mutation::Mutation;
use crate::provider::Endpoint;
use crate::state::TargetLockState;
use crate::window::Window;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Whether an operation that was put into its target's list is alone there and may be kept back: until something asks
    /// for it there is nothing to be issued.
    pub(crate) fn waits_alone(&mut self, w: &Window<E::Region>, t: u32, op: u32) -> bool {
        let is_alone = self.is_alone(w, t);
        if is_alone {
            self.operations[op].is_short = true;
        }
        is_alone && self.may_keep_back(w, t)
    }

    /// Whether what is pending at the target is one operation that goes the short way.
    #[inline]
    pub(super) fn is_alone(&self, w: &Window<E::Region>, t: u32) -> bool {
        self.is_one_at(t) && self.is_short(w, t)
    }

    /// Whether one operation is pending at the target, and nothing else is under way there.
    #[inline]
    fn is_one_at(&self, t: u32) -> bool {
        let te = &self.targets[t];
        let is_idle = te.lock == TargetLockState::Granted
            && te.pending.count == 1
            && te.requests == 0
            && te.words.is_idle();
        let is_first = te.notes == 0 && te.is_unmarked() && !te.has_natives();
        is_idle && (is_first || Mutation::AloneOvertakes.is_on())
    }

    /// Whether the first operation that is pending goes by one packet and one record. That stays so while it is there.
    #[inline]
    fn is_short(&self, w: &Window<E::Region>, t: u32) -> bool {
        let te = &self.targets[t];
        self.config.piggyback
            && w.dynamic.is_none()
            && te.peer.is_some()
            && te.metadata.is_some()
            && self.fits_packet(te.pending_bytes)
            && self.is_one_record(te.pending.head)
            && !self.is_native(w, te.pending.head)
    }

    /// Whether the operation is one record and its payload.
    fn is_one_record(&self, op: u32) -> bool {
        let element = &self.operations[op];
        element.posted == 0 && element.layouts.target.is_none() && element.notify.is_none()
    }

    /// The same, because of a flush that begins to wait for it. `false`: that takes the long way.
    pub(crate) fn flush_alone(&mut self, w: &mut Window<E::Region>, t: u32) -> bool {
        let te = &self.targets[t];
        let may_go = w.state().may_issue() && te.error.is_none() && self.is_one_at(t);
        let op = te.pending.head;
        let is_short = may_go && (self.operations[op].is_short || self.is_short(w, t));
        if is_short && self.issue_alone(w, t).is_ok() {
            self.note_alone(w, t, op);
            self.note_phase(w, t);
            return true;
        }
        false
    }

    /// Puts an operation that is alone into the stage. `false`: it needs more than one record.
    pub(super) fn pack_alone(&mut self, w: &Window<E::Region>, t: u32, packed: &mut Packed) -> bool {
        let te = &self.targets[t];
        let op = te.pending.head;
        if te.pending.count != 1 || !self.fits_packet(te.pending_bytes) || !self.is_one_record(op) {
            return false;
        }
        let len = self.operations[op].len;
        self.pack_record(w, op, len, packed)
    }

    /// Sends the operation, unless it may be kept back, with DONE, UNLOCK or COMPLETE where one is wanted.
    pub(super) fn issue_alone(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<u32, Again> {
        let te = &self.targets[t];
        let (Some(peer), op) = (te.peer, te.pending.head) else { return Err(Again) };
        if self.may_keep_back(w, t) {
            return Ok(0);
        }
        let mut packed = Packed::nothing();
        let len = self.operations[op].len;
        if !self.pack_record(w, op, len, &mut packed) {
            return Err(Again);
        }
        let flags = self.piggyback_flags(w, t, &packed, true);
        self.send_packed(w, t, peer, flags, packed)?;
        self.take_one(w, t, op, None, false);
        let te = &mut self.targets[t];
        te.requests += packed.results;
        te.needs_done |= packed.writes;
        self.after_flags(w, t, flags);
        Ok(1)
    }
}
