//! Marks and order: flushes that nobody waits for, and what may not pass what.
//!
//! Both close the fast path to their target while they last: operations take elements then, whose numbers
//! tell on which side of a mark they are.

use super::issue::Again;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::provider::{CompletionScope, Endpoint};
use crate::state::TargetLockState;
use crate::table::{is_before, Covered, List, Mark, OperationState, Sync};
use crate::window::Window;
use crate::wire::OpKind;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Opens a mark behind everything that was posted to the target, unless all of it is complete.
    pub(crate) fn open_mark(&mut self, w: &mut Window<E::Region>, t: u32, ticket: u32, is_local: bool) {
        self.cleanup_ops_target(w, t);
        let te = &mut self.targets[t];
        let is_complete = if is_local { te.is_locally_complete() } else { te.is_flushed() };
        if is_complete || te.is_dead() {
            return;
        }
        te.marks.open(ticket, te.posted, is_local);
        self.close_direct(t);
        let te = &mut self.targets[t];
        te.hurried = !te.pending.is_empty();
        te.lock_wanted |= te.hurried && te.lock == TargetLockState::Called;
        w.dirty = true;
        self.make_rma_progress_target(w, t);
    }

    /// Lets what is before a target's mark leave. Whether all of that is complete, and if the target is dead, at rest.
    pub(crate) fn is_behind_mark(&mut self, w: &mut Window<E::Region>, t: u32, ticket: u32) -> bool {
        if self.targets[t].marks.has(ticket) {
            self.make_rma_progress_target(w, t);
            self.settle_marks(t);
        }
        let te = &self.targets[t];
        !te.marks.has(ticket) && (!te.is_dead() || self.sync_phase(t).is_none())
    }

    /// Closes the marks behind which everything is complete.
    pub(crate) fn settle_marks(&mut self, t: u32) {
        let te = &self.targets[t];
        if te.marks.is_empty() {
            return;
        }
        // An UNLOCK that is under way acknowledges what was sent before it.
        let is_unlocking = te.sync_sent && te.sync == Sync::Unlock && !te.unlock_acked;
        let all_counted_back = te.native_outstanding() == te.tracked_pieces;
        let mut marks = te.marks;
        marks.close(|mark| {
            let te = &self.targets[t];
            let is_covered = mark.covered.is_some_and(|covered| {
                !is_before(te.done_acked, covered.done) && !is_before(te.flushes_done, covered.flush)
            });
            all_counted_back
                && (mark.is_local || (is_covered && !is_unlocking))
                && (!self.has_before(&te.pending, mark) || Mutation::MarkForgetsPending.is_on())
                && !self.has_before(&te.issued, mark)
        });
        let is_over = marks.is_empty();
        self.targets[t].marks = marks;
        if is_over {
            self.refresh_direct(t);
        }
    }

    /// Whether an operation of the list has to be complete before the mark is over.
    fn has_before(&self, list: &List, mark: &Mark) -> bool {
        let mut op = list.head;
        while op != NONE {
            let element = &self.operations[op];
            if element.state != OperationState::Complete
                && is_before(element.number, mark.boundary)
                && (!mark.is_local || element.refers_to_user_memory())
            {
                return true;
            }
            op = element.next;
        }
        false
    }

    /// Sends the DONE, and posts the provider's flush, that marks want behind the operations before them.
    #[inline]
    pub(crate) fn issue_marks(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<(), Again> {
        if self.targets[t].marks.is_empty() {
            return Ok(());
        }
        self.issue_open_marks(w, t)
    }

    #[inline(never)]
    fn issue_open_marks(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<(), Again> {
        if !self.targets[t].marks.want_done() {
            return Ok(());
        }
        let marks = self.targets[t].marks;
        for mark in marks.iter().filter(|mark| !mark.is_local && mark.covered.is_none()) {
            if self.has_before(&self.targets[t].pending, mark) || self.has_note_before(t, mark.boundary) {
                break;
            }
            if self.targets[t].unflushed {
                if self.targets[t].flush_outstanding {
                    break;
                }
                self.post_flush(w, t)?;
            }
            if self.targets[t].needs_done {
                self.send_control(w, t, crate::wire::BatchFlags::DONE)?;
            }
            let te = &mut self.targets[t];
            let covered = Covered { done: te.done_sent, flush: te.flushes_posted };
            let this = te.marks.iter_mut().find(|other| other.ticket == mark.ticket);
            if let Some(this) = this {
                this.covered = Some(covered);
            }
        }
        Ok(())
    }

    /// The operations that went with a lock request come back: what was behind them is no longer.
    pub(crate) fn uncover_marks(&mut self, t: u32) {
        let te = &mut self.targets[t];
        for mark in te.marks.iter_mut() {
            mark.covered = None;
        }
        te.hurried |= !te.marks.is_empty();
    }

    /// What is posted to the target from now on is ordered behind what was posted so far.
    pub(crate) fn begin_order(&mut self, w: &mut Window<E::Region>, t: u32) {
        self.cleanup_ops_target(w, t);
        let te = &mut self.targets[t];
        let is_behind_detached = w.acks.contains(te.rank);
        let has_anything = !te.is_flushed() || is_behind_detached;
        if !has_anything || te.is_dead() || Mutation::OrderIgnored.is_on() {
            return;
        }
        te.order.begin();
        te.order.behind_detached |= is_behind_detached;
        self.close_direct(t);
    }

    /// A new element for a target to which packets of an earlier one may be under way, after an order call.
    pub(crate) fn order_behind_detached(&mut self, w: &Window<E::Region>, t: u32) {
        if w.ordered_detached && !w.acks.is_empty() {
            let order = &mut self.targets[t].order;
            order.begin();
            order.behind_detached = true;
        }
    }

    /// Opens the fast path again when nothing is left that an order call was about.
    pub(crate) fn settle_order(&mut self, w: &Window<E::Region>, t: u32) {
        let te = &mut self.targets[t];
        if !te.order.in_force {
            return;
        }
        te.order.behind_detached &= !w.acks.is_empty();
        let te = &self.targets[t];
        let section = te.order.section;
        let head = te.pending.head;
        let is_old = te.order.behind_detached
            || self.has_note_of_other_section(t, section)
            || (te.has_natives() && te.order.natives != section)
            || (self.has_messages(t) && te.order.messages != section)
            || (head != NONE && self.operations[head].section != section);
        if !is_old {
            self.targets[t].order.in_force = false;
            self.refresh_direct(t);
        }
    }

    /// Whether packets of operations are under way that are not acknowledged.
    fn has_messages(&self, t: u32) -> bool {
        let te = &self.targets[t];
        if te.needs_done || te.done_acked != te.done_sent {
            return true;
        }
        let mut op = te.issued.head;
        while op != NONE {
            if !self.operations[op].native {
                return true;
            }
            op = self.operations[op].next;
        }
        // Pieces of one that is pending.
        te.requests > 0
    }

    /// Whether a pending native operation may leave, as far as order calls are concerned.
    pub(crate) fn native_may_go(&mut self, w: &Window<E::Region>, t: u32, op: u32) -> bool {
        let te = &self.targets[t];
        if !te.order.in_force {
            return true;
        }
        let section = self.operations[op].section;
        if te.pending.head == NONE || self.operations[te.pending.head].section != section {
            return false;
        }
        if te.order.behind_detached && !w.acks.is_empty() {
            return false;
        }
        let behind_messages = self.has_messages(t) && te.order.messages != section;
        if behind_messages || self.has_note_of_other_section(t, section) {
            return false;
        }
        if !te.has_natives() {
            self.targets[t].order.natives = section;
            return true;
        }
        let reads_behind_puts = self.limits.order.put_before_get
            && self.operations[op].kind == OpKind::Get
            && te.native_gets + te.native_atomics == 0;
        te.order.natives == section || reads_behind_puts
    }

    /// Whether a packet with an operation of this section may leave, as far as natives are concerned that are
    /// under way.
    pub(crate) fn message_may_go(&self, t: u32, section: u32) -> bool {
        let te = &self.targets[t];
        if !te.order.in_force || !te.has_natives() || te.order.natives == section {
            return true;
        }
        self.limits.order.put_before_send && te.native_gets + te.native_atomics == 0
    }

    /// Whether the CPU may touch the own window, as far as order calls are concerned: where the fabric does
    /// the atomics, those to this rank itself are under way like others.
    pub(crate) fn self_may_go(&mut self, w: &mut Window<E::Region>) -> bool {
        let Some(t) = w.find(&self.targets, self.rank).filter(|&t| self.targets[t].order.in_force) else {
            return true;
        };
        if self.targets[t].unflushed && !self.targets[t].flush_outstanding {
            // What does not leave now is tried again when the caller is back.
            let _ = self.post_flush(w, t);
        }
        self.make_rma_progress_target(w, t);
        self.settle_order(w, t);
        !self.targets[t].order.in_force
    }

    /// A packet is about to leave whose first operation is of this section.
    pub(crate) fn note_messages(&mut self, t: u32, section: u32) {
        if self.targets[t].order.in_force && !self.has_messages(t) {
            self.targets[t].order.messages = section;
        }
    }

    /// Asks for the acknowledgements that a pending operation waits for because of an order call.
    #[inline]
    pub(crate) fn issue_order(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<(), Again> {
        if !self.targets[t].order.in_force {
            return Ok(());
        }
        self.issue_order_in_force(w, t)
    }

    #[inline(never)]
    fn issue_order_in_force(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<(), Again> {
        let te = &self.targets[t];
        let head = te.pending.head;
        if head == NONE {
            return Ok(());
        }
        let section = self.operations[head].section;
        let behind_natives = te.has_natives() && te.order.natives != section;
        let is_local = self.limits.put_completes == CompletionScope::Local;
        if behind_natives && is_local && te.unflushed && !te.flush_outstanding {
            self.post_flush(w, t)?;
        }
        if self.targets[t].needs_done && self.is_native(w, head) {
            self.send_control(w, t, crate::wire::BatchFlags::DONE)?;
        }
        Ok(())
    }
}

impl crate::table::TargetElement {
    /// Whether native operations are under way, or complete but perhaps not visible.
    pub(crate) fn has_natives(&self) -> bool {
        self.native_outstanding() > 0 || self.unflushed || self.flush_outstanding
    }

    /// Whether puts and gets may take the fast path as far as marks and order are concerned.
    #[inline]
    pub(crate) fn is_unmarked(&self) -> bool {
        self.marks.is_empty() && !self.order.in_force
    }
}
