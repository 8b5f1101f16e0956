//! Notifications: what has to follow a put, after its data are visible and not before.
//!
//! In a packet the notification is a second record behind the put's last bytes. Behind a native put it is a packet
//! of its own, at once where the fabric keeps packets behind puts, else when the put is complete; or, where the
//! fabric does the window's atomics, one of those when it is complete. Notifications of one origin to one target
//! keep the order of their calls; nothing else waits for them.

use super::issue::Again;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::dtype::Dtype;
use crate::mutation::Mutation;
use crate::op::ReduceOp;
use crate::path::Path;
use crate::pool::NONE;
use crate::provider::{CompletionScope, Endpoint};
use crate::table::{is_before, Notification, OperationState, NOTE_BYTES, NOTE_PAYLOAD_BYTES};
use crate::window::Window;
use crate::wire::{BatchFlags, Header, Notifies, OpKind, PacketKind, Record, Writer};

/// The record of a notification.
pub(super) fn note_record(disp: u64, op: ReduceOp, notifies: Notifies) -> Record {
    Record {
        kind: OpKind::Accumulate,
        dtype: Dtype::U64,
        op,
        len: NOTE_PAYLOAD_BYTES as u32,
        disp,
        offset: 0,
        handle: 0,
        generation: 0,
        notifies,
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Whether notifications are the fabric's atomics.
    pub(crate) fn notes_are_native(&self, w: &Window<E::Region>) -> bool {
        w.paths.of(OpKind::Accumulate, Dtype::U64, ReduceOp::Sum) == Path::Native
    }

    /// An operation that was posted shall be followed by a notification.
    pub(crate) fn expect_note(&mut self, w: &Window<E::Region>, t: u32, op: u32, note: Notification) {
        let notes_are_native = self.notes_are_native(w);
        let element = &mut self.operations[op];
        element.notify = Some(note);
        // In one packet with it where that saves a wait.
        element.packed |= !notes_are_native && element.len <= self.config.small_bytes_max as u64;
        if self.is_native(w, op) {
            self.operations[op].counts_note = true;
            self.targets[t].notes += 1;
        }
    }

    /// The notification of an element has left, or never will.
    pub(crate) fn drop_note(&mut self, t: u32, op: u32) {
        let element = &mut self.operations[op];
        element.notify = None;
        self.targets[t].notes -= u32::from(core::mem::take(&mut element.counts_note));
    }

    /// Sends the notifications of native puts whose turn has come.
    pub(crate) fn issue_notes(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<(), Again> {
        let mut op = self.targets[t].issued.head;
        while op != NONE && self.targets[t].notes > 0 {
            let element = &self.operations[op];
            let next = element.next;
            let (Some(note), true) = (element.notify, element.native) else {
                op = next;
                continue;
            };
            if self.pending_note_before(t, self.operations[op].number) || !self.note_is_due(w, t, op)? {
                return Ok(());
            }
            if self.notes_are_native(w) {
                self.targets[t].issued.remove(&mut self.operations, op);
                self.drop_note(t, op);
                self.note_pending(t, op, note);
                // It leaves in the next round.
                w.dirty = true;
            } else {
                self.send_note(w, t, op, note)?;
                self.drop_note(t, op);
                if self.operations[op].is_finished() {
                    self.complete_operation(t, op);
                    // Its element is taken back in the next round.
                    w.dirty = true;
                }
            }
            op = next;
        }
        Ok(())
    }

    /// Turns an element that is in no list into its notification, which is the next to leave.
    fn note_pending(&mut self, t: u32, op: u32, note: Notification) {
        let referred = self.operations[op].refers_to_user_memory();
        self.targets[t].user_references -= u32::from(referred);
        self.operations[op].become_note(note);
        self.relink_pending_front(t, op);
        self.targets[t].hurried = true;
    }

    /// The put went as a packet, and the notification is the fabric's: it is ordered behind.
    pub(crate) fn note_behind_packet(
        &mut self,
        w: &mut Window<E::Region>,
        t: u32,
        op: u32,
        note: Notification,
    ) {
        let referred = self.operations[op].refers_to_user_memory();
        self.targets[t].user_references -= u32::from(referred);
        self.drop_note(t, op);
        self.targets[t].order.begin();
        self.close_direct(t);
        self.operations[op].section = self.targets[t].order.section;
        self.operations[op].become_note(note);
        self.link_note(t, op);
        self.targets[t].hurried = true;
        w.dirty = true;
    }

    /// Makes a notification pending in front of later ones, which wait for it.
    fn link_note(&mut self, t: u32, op: u32) {
        let number = self.operations[op].number;
        let mut later = self.targets[t].pending.head;
        while later != NONE {
            let element = &self.operations[later];
            if element.is_note && is_before(number, element.number) {
                self.operations[op].state = OperationState::Pending;
                self.targets[t].pending_bytes += self.packet_share(op);
                self.targets[t].pending.insert_before(&mut self.operations, op, later);
                return;
            }
            later = element.next;
        }
        self.link_pending(t, op);
    }

    /// Whether a notification without data, which the fabric makes, has to wait for an earlier one.
    pub(crate) fn note_must_wait(&self, t: u32, op: u32) -> bool {
        let element = &self.operations[op];
        element.is_note
            && !Mutation::NotesOvertake.is_on()
            && (self.pending_note_before(t, element.number) || self.has_note_before(t, element.number))
    }

    /// Whether the data of a native put that was posted wholly are visible to whoever sees what is sent now.
    fn note_is_due(&mut self, w: &mut Window<E::Region>, t: u32, op: u32) -> Result<bool, Again> {
        let element = &self.operations[op];
        if (self.limits.order.put_before_send && !self.notes_are_native(w))
            || Mutation::NoteBeforeData.is_on()
        {
            return Ok(true);
        }
        if element.outstanding > 0 {
            return Ok(false);
        }
        if self.limits.put_completes == CompletionScope::Remote {
            return Ok(true);
        }
        let te = &self.targets[t];
        match element.note_flush() {
            Some(flush) => Ok(!is_before(te.flushes_done, flush)),
            None if te.unflushed && te.flush_outstanding => Ok(false),
            None => {
                if te.unflushed {
                    self.post_flush(w, t)?;
                }
                let posted = self.targets[t].flushes_posted;
                self.operations[op].await_flush(posted);
                Ok(!is_before(self.targets[t].flushes_done, posted))
            }
        }
    }

    /// Whether a pending operation is, or ends with, an earlier notification.
    fn pending_note_before(&self, t: u32, number: u32) -> bool {
        let mut op = self.targets[t].pending.head;
        while op != NONE {
            let element = &self.operations[op];
            if (element.is_note || element.notify.is_some()) && is_before(element.number, number) {
                return true;
            }
            op = element.next;
        }
        false
    }

    /// Whether a packet with this operation may leave, as far as notifications of native puts are concerned.
    pub(crate) fn note_may_go(&self, w: &Window<E::Region>, t: u32, op: u32) -> bool {
        let te = &self.targets[t];
        let element = &self.operations[op];
        let is_noted = element.notify.is_some() || (element.is_note && !Mutation::NotesOvertake.is_on());
        if te.notes == 0 || (!is_noted && !te.order.in_force) {
            return true;
        }
        // Behind an earlier notification; in order, behind what such a one belongs to.
        let is_behind = |earlier: u32| {
            let earlier = &self.operations[earlier];
            let is_section = te.order.in_force && earlier.section != element.section;
            earlier.counts_note && is_before(earlier.number, element.number) && (is_noted || is_section)
        };
        let mut issued = te.issued.head;
        while issued != NONE {
            if is_behind(issued) {
                return false;
            }
            issued = self.operations[issued].next;
        }
        let mut pending = te.pending.head;
        while pending != op && pending != NONE {
            if self.is_native(w, pending) && is_behind(pending) {
                return false;
            }
            pending = self.operations[pending].next;
        }
        true
    }

    /// Whether an issued put, before the number, still has its notification to come.
    pub(crate) fn has_note_before(&self, t: u32, number: u32) -> bool {
        let mut op = if self.targets[t].notes > 0 { self.targets[t].issued.head } else { NONE };
        while op != NONE {
            let element = &self.operations[op];
            if element.counts_note && is_before(element.number, number) {
                return true;
            }
            op = element.next;
        }
        false
    }

    /// Whether an issued put of another section, which is an earlier one, still has its notification to come.
    pub(crate) fn has_note_of_other_section(&self, t: u32, section: u32) -> bool {
        let mut op = if self.targets[t].notes > 0 { self.targets[t].issued.head } else { NONE };
        while op != NONE {
            let element = &self.operations[op];
            if element.counts_note && element.section != section {
                return true;
            }
            op = element.next;
        }
        false
    }

    /// A packet with one notification.
    fn send_note(
        &mut self,
        w: &mut Window<E::Region>,
        t: u32,
        op: u32,
        note: Notification,
    ) -> Result<(), Again> {
        let section = self.operations[op].section;
        let Some(peer) = self.targets[t].peer else { return Err(Again) };
        let (reduction, value) = note.change.operand();
        let header = self.batch_header(w, t, BatchFlags::default(), 1);
        let mut packet = [0; Header::BYTES + NOTE_BYTES];
        packet[..Header::BYTES].copy_from_slice(&header.encode());
        let mut out = Writer::new(&mut packet, Header::BYTES);
        let is_whole = note_record(note.disp, reduction, Notifies::Yes).encode(&mut out)
            && out.put(&value.to_ne_bytes());
        debug_assert!(is_whole, "the packet is as long as a notification");
        match self.send(peer, PacketKind::Batch, &packet, &[]) {
            Ok(()) => {
                self.note_messages(t, section);
                self.targets[t].needs_done = true;
                Ok(())
            }
            Err(error) => Err(self.refused(w, t, error)),
        }
    }
}
