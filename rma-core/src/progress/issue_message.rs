//! Message path: operations of one epoch share packets; LOCK, DONE, UNLOCK and COMPLETE ride on them.

use super::issue::Again;
use super::issue_layout::fill_table;
use super::notes::note_record;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::dtype::Dtype;
use crate::ids::PeerAddr;
use crate::info::AccumulateOrdering;
use crate::layout::Layout;
use crate::lock::LockType;
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::provider::Endpoint;
use crate::table::{List, Sync};
use crate::window::Window;
use crate::wire::{
    BatchFlags, ErrorRecord, Header, Metadata, Notifies, OpKind, PacketKind, Record, ResultRecord, RunTable,
    Writer, RECORD_BYTES_MAX,
};

/// Bytes of a reply that are not results: header, metadata, error.
pub(super) const REPLY_OVERHEAD: usize = Header::BYTES + Metadata::BYTES + ErrorRecord::BYTES;

/// Pieces with results that may be unanswered at one target: its replies need room here.
const REQUESTS_MAX: u32 = 16;

/// Operations that were put into the stage.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Packed {
    count: u32,
    /// Records of them: a notified put has two.
    records: u16,
    pub(super) results: u32,
    /// Packet bytes.
    len: usize,
    /// Bytes of the last operation that are in the packet, when it is a piece of a large one.
    piece: Option<u64>,
    ends_with_result: bool,
    /// Operations without result are among them.
    pub(super) writes: bool,
    /// Notifications follow that are the fabric's: what ends the epoch must not come before them.
    is_followed: bool,
    /// The section of the first, as to order.
    section: u32,
}

impl Packed {
    /// A packet of which there is the header.
    pub(super) fn nothing() -> Self {
        Self { len: Header::BYTES, ..Self::default() }
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Whether an operation of this size can share a packet with a lock request and others.
    pub(crate) fn fits_packet(&self, packet_bytes: u64) -> bool {
        let reply_room = self.limits.send_bytes_max - REPLY_OVERHEAD;
        packet_bytes <= (reply_room.min(self.limits.send_bytes_max - Header::BYTES)) as u64
    }

    /// Sends the lock request, with the epoch's operations when they fit, and with UNLOCK or DONE when
    /// they are all there and a synchronization call asks for it.
    ///
    /// Implements: seed: single operation, notes: one message for lock-put-unlock, notes: nonblocking lock.
    pub(crate) fn issue_lock(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<u32, Again> {
        let te = &self.targets[t];
        let pending = te.pending.count;
        if te.sync == Sync::None && !te.lock_wanted && !(w.pressure && pending > 0) {
            return Ok(0);
        }
        if !self.resolve(w, t) {
            return Err(Again);
        }
        let Some(peer) = self.targets[t].peer else { return Err(Again) };
        if self.targets[t].sync >= Sync::Flush {
            self.sort_gets_to_tail(w, t);
        }
        // What goes with the lock is complete by the grant, which the checker at the target cannot tell.
        let carry =
            self.config.single_op_lock && w.checker.is_none() && (pending == 1 || self.config.coalesce);
        let packed = if carry { self.pack_with_lock(w, t, pending) } else { Packed::default() };
        if packed.count > 0 {
            self.note_messages(t, self.operations[self.targets[t].pending.head].section);
        }
        let te = &self.targets[t];
        let all = packed.count == pending && packed.piece.is_none();
        let mut flags = match te.lock_type {
            LockType::Shared if w.state().is_lock_all() => BatchFlags::LOCK_SHARED | BatchFlags::OVERTAKE,
            LockType::Shared => BatchFlags::LOCK_SHARED,
            LockType::Exclusive => BatchFlags::LOCK_EXCLUSIVE,
        };
        if te.metadata.is_none() {
            flags |= BatchFlags::WANT_METADATA;
        }
        if all && pending > 0 {
            flags |= match te.sync {
                Sync::Unlock => BatchFlags::UNLOCK,
                _ if te.wants_done() && packed.writes => BatchFlags::DONE,
                _ => BatchFlags::default(),
            };
        }
        if packed.ends_with_result {
            flags |= BatchFlags::ACK_WITH_RESULT;
        }
        self.send_packed(w, t, peer, flags, packed)?;
        self.take_packed(w, t, packed, true);
        let te = &mut self.targets[t];
        te.lock_wanted = false;
        te.lock.on_issue().unwrap_or_default();
        self.after_flags(w, t, flags);
        Ok(packed.count)
    }

    /// Sends pending message operations, unless they may be kept back for a later packet.
    pub(crate) fn issue_messages(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<u32, Again> {
        let mut issued = 0;
        if self.targets[t].pending.is_empty() || self.may_keep_back(w, t) {
            return Ok(0);
        }
        if self.targets[t].sync >= Sync::Flush {
            self.sort_gets_to_tail(w, t);
        }
        let Some(peer) = self.targets[t].peer else { return Err(Again) };
        if w.line.is_some() && self.targets[t].metadata.is_none() {
            // A neighbour that has posted by a word has not said where its part is: what is outside is found before it
            // leaves, and COMPLETE needs no answer.
            self.learn_part(w, t);
        }
        loop {
            let most = if self.config.coalesce { u32::MAX } else { 1 };
            let packed = self.pack(w, t, most, false);
            if packed.count == 0 {
                return Ok(issued);
            }
            let te = &self.targets[t];
            let last = packed.count == te.pending.count && packed.piece.is_none() && te.notes == 0;
            let flags = self.piggyback_flags(w, t, &packed, last);
            self.send_packed(w, t, peer, flags, packed)?;
            self.note_messages(t, packed.section);
            self.take_packed(w, t, packed, false);
            self.targets[t].needs_done |= packed.writes;
            self.after_flags(w, t, flags);
            issued += packed.count;
            // What is left of a large operation leaves with the call that asks for it, and with DONE, as a small one does. One with a
            // result has that as its acknowledgement.
            let is_rest = packed.piece.is_some() && !packed.ends_with_result;
            if is_rest && self.may_keep_back(w, t) {
                return Ok(issued);
            }
        }
    }

    pub(super) fn may_keep_back(&self, w: &Window<E::Region>, t: u32) -> bool {
        let te = &self.targets[t];
        te.sync == Sync::None
            && !te.hurried
            && self.config.piggyback
            && !w.pressure
            // The sooner the target knows, the more it finds.
            && w.checker.is_none()
            && te.pending.count < self.config.piggyback_threshold
            && (self.fits_packet(te.pending_bytes) || self.is_rest_short(t))
    }

    /// Whether so much of the first operation that is pending was posted that a packet has room for the rest of them.
    #[inline(never)]
    fn is_rest_short(&self, t: u32) -> bool {
        let te = &self.targets[t];
        let posted = self.operations.get(te.pending.head).map_or(0, |element| element.posted);
        posted > 0 && self.fits_packet(te.pending_bytes.saturating_sub(posted))
    }

    /// DONE, UNLOCK or COMPLETE for the last packet of operations.
    pub(super) fn piggyback_flags(
        &self,
        w: &Window<E::Region>,
        t: u32,
        packed: &Packed,
        last: bool,
    ) -> BatchFlags {
        let te = &self.targets[t];
        let mut flags = BatchFlags::default();
        if last && self.config.piggyback {
            if let Some(closing) = te.closing() {
                if !packed.is_followed && self.may_close_behind_natives(w, t) {
                    flags |= closing | self.done_for_errors(w, t, closing, packed.writes);
                }
            } else if te.wants_done() && (te.needs_done || packed.writes) {
                flags |= BatchFlags::DONE;
            }
        }
        if packed.ends_with_result {
            flags |= BatchFlags::ACK_WITH_RESULT;
        }
        flags
    }

    /// Moves GETs behind everything else, so that the packet's last operation has a result and the
    /// reply carries the acknowledgement. A get is not ordered against other operations of an epoch; nor is an
    /// accumulate that fetches, where the window's `accumulate_ordering` is none.
    fn sort_gets_to_tail(&mut self, w: &Window<E::Region>, t: u32) {
        let te = &self.targets[t];
        if te.pending.count < 2 || !self.config.get_to_tail || te.order.in_force {
            return;
        }
        let is_unordered = w.options.accumulate_ordering == AccumulateOrdering::NONE;
        let moves_all = is_unordered || Mutation::AccumulatesToTail.is_on();
        let mut gets = List::EMPTY;
        let mut op = self.targets[t].pending.head;
        while op != NONE {
            let next = self.operations[op].next;
            let kind = self.operations[op].kind;
            let is_moved = kind == OpKind::Get || (kind.has_result() && moves_all);
            if is_moved && next != NONE {
                self.targets[t].pending.remove(&mut self.operations, op);
                gets.push_back(&mut self.operations, op);
            }
            op = next;
        }
        while gets.head != NONE {
            let op = gets.head;
            gets.remove(&mut self.operations, op);
            self.targets[t].pending.push_back(&mut self.operations, op);
        }
    }

    /// Puts what may go with a lock request into the stage.
    fn pack_with_lock(&mut self, w: &Window<E::Region>, t: u32, pending: u32) -> Packed {
        let mut packed = Packed::nothing();
        let head = self.targets[t].pending.head;
        let may_go = pending == 1 && {
            let is_transfer = matches!(self.operations[head].kind, OpKind::Put | OpKind::Get);
            is_transfer || !self.is_native(w, head)
        };
        if may_go && self.pack_alone(w, t, &mut packed) {
            return packed;
        }
        self.pack(w, t, pending, true)
    }

    /// Puts up to `most` pending message operations into the stage, whole ones only if `whole`.
    fn pack(&mut self, w: &Window<E::Region>, t: u32, most: u32, with_lock: bool) -> Packed {
        let mut packed = Packed::nothing();
        let mut reply_room = self.limits.send_bytes_max - REPLY_OVERHEAD;
        let mut op = self.targets[t].pending.head;
        let mut left_behind = None;
        while op != NONE && packed.count < most {
            let element = &self.operations[op];
            let next = element.next;
            // Puts and gets may travel either way; accumulates keep to their window's atomicity domain.
            let is_atomic = !matches!(element.kind, OpKind::Put | OpKind::Get);
            if with_lock && element.notify.is_some() && self.notes_are_native(w) {
                break;
            }
            if self.is_native(w, op) && (!with_lock || is_atomic) {
                op = next;
                if with_lock {
                    break;
                }
                left_behind.get_or_insert(element.section);
                continue;
            }
            // In order behind a native operation that could not leave yet, or that is under way.
            let is_behind = left_behind.is_some_and(|section| section != element.section);
            if !with_lock && (is_behind || !self.message_may_go(t, element.section)) {
                break;
            }
            if !with_lock && !self.note_may_go(w, t, op) {
                break;
            }
            let left = element.len - element.posted;
            let result = if element.kind.has_result() { ResultRecord::BYTES as u64 + left } else { 0 };
            let extra = u64::from(element.table_bytes) + element.note_bytes() as u64;
            let whole = RECORD_BYTES_MAX as u64 + extra + element.payload_len() as u64
                - element.posted.min(element.payload_len() as u64);
            // How large the table of a rest is shows when it is made.
            let is_rest = element.posted > 0 && element.layouts.target.is_some();
            let fits =
                !is_rest && whole <= (self.stage.len() - packed.len) as u64 && result <= reply_room as u64;
            if !fits {
                if packed.count == 0 && !with_lock {
                    self.pack_piece(w, t, op, &mut packed);
                }
                break;
            }
            if element.kind.has_result()
                && !with_lock
                && self.targets[t].requests + packed.results >= REQUESTS_MAX
            {
                break;
            }
            if !self.pack_record(w, op, left, &mut packed) {
                break;
            }
            reply_room -= result as usize;
            op = next;
        }
        packed
    }

    /// Puts as much of a large operation into the stage as packet and reply hold.
    fn pack_piece(&mut self, w: &Window<E::Region>, t: u32, op: u32, packed: &mut Packed) {
        let element = &self.operations[op];
        if element.kind.has_result() && self.targets[t].requests >= REQUESTS_MAX {
            return;
        }
        let room = self.stage.len() - Header::BYTES - RECORD_BYTES_MAX - element.note_bytes();
        let reply_room = self.limits.send_bytes_max - REPLY_OVERHEAD - ResultRecord::BYTES;
        // A multiple of the largest element, so that no element is torn.
        let most = (room.min(reply_room) & !(Dtype::SIZE_MAX - 1)) as u64;
        let left = element.len - element.posted;
        let piece = match &element.layouts.target {
            None => left.min(most),
            Some(_) => self.piece_with_table(op, room as u64, reply_room as u64),
        };
        if self.pack_record(w, op, piece, packed) && piece < left {
            packed.piece = Some(piece);
        }
    }

    pub(super) fn pack_record(
        &mut self,
        w: &Window<E::Region>,
        op: u32,
        len: u64,
        packed: &mut Packed,
    ) -> bool {
        let element = &self.operations[op];
        let record = Record {
            kind: element.kind,
            dtype: element.dtype,
            op: element.op,
            len: len as u32,
            disp: element.disp,
            offset: element.posted,
            handle: op,
            generation: element.generation,
            notifies: if element.is_note { Notifies::Yes } else { Notifies::No },
        };
        // The notification travels with the last bytes, unless it is the fabric's.
        let is_last = element.posted + len == element.len;
        let note = match element.notify.filter(|_| is_last) {
            Some(_) if self.notes_are_native(w) => {
                packed.is_followed = true;
                None
            }
            note => note,
        };
        let mut out = Writer::new(&mut self.stage, packed.len);
        let is_written = match &element.layouts.target {
            None => record.encode(&mut out),
            Some(layout) => encode_with_table(&record, layout, &mut out),
        };
        let Some(place) = out.reserve(record.payload_bytes()).filter(|_| is_written) else { return false };
        self.counters.payload_bytes_copied += place.len() as u64;
        element.gather(element.posted, place);
        if let Some(note) = note {
            let (op, value) = note.change.operand();
            let record = note_record(note.disp, op, Notifies::After);
            if !(record.encode(&mut out) && out.put(&value.to_ne_bytes())) {
                return false;
            }
            packed.records += 1;
        }
        packed.records += 1;
        packed.len = out.len();
        if packed.count == 0 {
            packed.section = element.section;
        }
        packed.count += 1;
        packed.ends_with_result = element.kind.has_result();
        packed.results += u32::from(element.kind.has_result());
        packed.writes |= !element.kind.has_result();
        true
    }

    pub(super) fn send_packed(
        &mut self,
        w: &mut Window<E::Region>,
        t: u32,
        peer: PeerAddr,
        flags: BatchFlags,
        packed: Packed,
    ) -> Result<(), Again> {
        let header = self.batch_header(w, t, flags, packed.records);
        self.stage[..Header::BYTES].copy_from_slice(&header.encode());
        let len = packed.len.max(Header::BYTES);
        self.send_stage(peer, PacketKind::Batch, len).map_err(|error| self.refused(w, t, error))
    }

    /// The packet was sent: its operations are issued, or complete.
    fn take_packed(&mut self, w: &mut Window<E::Region>, t: u32, packed: Packed, with_lock: bool) {
        let mut op = self.targets[t].pending.head;
        let mut left = packed.count;
        while left > 0 && op != NONE {
            let next = self.operations[op].next;
            let native = self.is_native(w, op);
            if native && !with_lock {
                op = next;
                continue;
            }
            left -= 1;
            let piece = if left == 0 { packed.piece } else { None };
            self.take_one(w, t, op, piece, with_lock);
            op = next;
        }
        self.targets[t].requests += packed.results;
    }

    pub(super) fn take_one(
        &mut self,
        w: &mut Window<E::Region>,
        t: u32,
        op: u32,
        piece: Option<u64>,
        with_lock: bool,
    ) {
        let element = &mut self.operations[op];
        element.outstanding += u32::from(element.kind.has_result());
        if let Some(len) = piece {
            element.posted += len;
            return;
        }
        self.counters.message_operations += 1;
        self.unlink_pending(t, op);
        let element = &mut self.operations[op];
        element.posted = element.len;
        element.with_lock = with_lock;
        let note = if self.notes_are_native(w) { self.operations[op].notify } else { None };
        let element = &self.operations[op];
        if let Some(note) = note {
            self.note_behind_packet(w, t, op, note);
        } else if element.with_lock || element.outstanding > 0 {
            self.link_issued(t, op);
        } else {
            self.free_operation(w, t, op);
        }
    }
}

/// Writes the record of a piece whose bytes are not in a row at the target.
#[inline(never)]
fn encode_with_table(record: &Record, layout: &Layout, out: &mut Writer<'_>) -> bool {
    let mut table = RunTable::new();
    let end = record.offset + u64::from(record.len);
    fill_table(&mut table, layout, record.offset, end) && {
        let table = if table.is_empty() { &[] } else { table.bytes() };
        record.encode_with(table, out)
    }
}
