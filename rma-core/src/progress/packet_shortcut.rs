//! What the operation by packet that a program repeats does with its target (`table/packet_shortcut.rs`): the steps of
//! [`issue_alone`](super::issue_alone), and of an answer, without those that are known to find nothing.

use super::{Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::dtype::Dtype;
use crate::flush::Phase;
use crate::path::Path;
use crate::provider::Endpoint;
use crate::table::{
    AtomicKind, FlushedAlone, LeftCall, List, OperationState, PacketShortcut, PacketStage, Sync,
    TargetElement,
};
use crate::window::{Walk, Window};
use crate::wire::{
    BatchFlags, Header, Notifies, OpKind, PacketKind, Reader, Record, ReplyFlags, ResultRecord, Writer,
};

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Notes what a flush has sent alone, for the next one of its kind.
    #[inline]
    pub(super) fn note_alone(&self, w: &mut Window<E::Region>, t: u32, op: u32) {
        let element = &self.operations[op];
        let is_element =
            element.len == element.dtype.size() as u64 && element.len <= Dtype::U64.size() as u64;
        let is_atomic = !matches!(element.kind, OpKind::Put | OpKind::Get);
        let atomic = (element.kind, element.dtype, element.op);
        let is_again = w.flushed_alone.is_some_and(|before| (before.target, before.atomic) == (t, atomic));
        let sent = FlushedAlone { target: t, atomic, is_again };
        w.flushed_alone = (is_element && is_atomic).then_some(sent);
    }

    /// The way for operations like the one that was flushed alone, now that the flush is over, if nothing stands against it.
    #[cold]
    #[inline(never)]
    pub(crate) fn find_packet_shortcut(
        &self,
        w: &Window<E::Region>,
        atomic: AtomicKind,
        t: u32,
    ) -> Option<PacketShortcut> {
        let (config, te) = (&self.config, &self.targets[t]);
        let direct = te.direct.filter(|direct| !direct.at_once)?;
        let keeps_back = config.piggyback && config.lazy_targets && config.piggyback_threshold > 1;
        let by_packet = w.paths.of(atomic.0, atomic.1, atomic.2) == Path::Message;
        let may_go = keeps_back && by_packet && is_plain(w) && te.is_idle() && self.failure.is_none();
        may_go.then(|| {
            let (place, element) = ((w.id, te.rank), (t, direct.peer));
            PacketShortcut::to(place, element, &direct.metadata, atomic, self.disturbances)
        })
    }

    /// An operation that was filled in is pending at its target, alone, until something asks for it.
    #[inline]
    pub(crate) fn keep_alone(&mut self, t: u32, op: u32) {
        let share = self.packet_share(op);
        let (te, element) = (&mut self.targets[t], &mut self.operations[op]);
        element.is_short = true;
        te.pending = List::of(element, op);
        te.pending_bytes = share;
    }

    /// Sends it, because of a flush. `false`: not this way, and nothing has left.
    #[inline]
    pub(crate) fn send_alone(&mut self, way: &mut PacketShortcut, w: &mut Window<E::Region>) -> bool {
        let (t, op, has_result) = (way.target, way.operation, way.has_result());
        if !way.is_undisturbed(self.disturbances) || self.targets[t].has_natives() {
            return false;
        }
        let flags = if has_result { BatchFlags::ACK_WITH_RESULT } else { BatchFlags::DONE };
        let header = self.batch_header(w, t, flags, 1);
        self.stage[..Header::BYTES].copy_from_slice(&header.encode());
        let element = &mut self.operations[op];
        let record = Record {
            kind: element.kind,
            dtype: element.dtype,
            op: element.op,
            len: element.len as u32,
            disp: element.disp,
            offset: 0,
            handle: op,
            generation: element.generation,
            notifies: Notifies::No,
        };
        let mut out = Writer::new(&mut self.stage, Header::BYTES);
        let is_written = record.encode(&mut out);
        let Some(place) = out.reserve(record.payload_bytes()).filter(|_| is_written) else { return false };
        element.gather(0, place);
        let (copied, len) = (place.len() as u64, out.len());
        if self.send_stage(way.peer, PacketKind::Batch, len).is_err() {
            return false;
        }
        self.counters.payload_bytes_copied += copied;
        self.counters.message_operations += 1;
        way.stage = PacketStage::Sent;
        self.await_answer(w, (t, op), has_result);
        true
    }

    /// It was sent.
    #[inline]
    fn await_answer(&mut self, w: &mut Window<E::Region>, (t, op): (u32, u32), has_result: bool) {
        let (te, element) = (&mut self.targets[t], &mut self.operations[op]);
        (te.sync, te.phases) = (Sync::Flush, te.phases | Phase::Acknowledgement.bit());
        (te.pending, te.pending_bytes) = (List::EMPTY, 0);
        element.posted = element.len;
        if has_result {
            (element.outstanding, element.state) = (1, OperationState::Issued);
            te.issued = List::of(element, op);
            te.requests += 1;
        } else {
            te.done_sent = te.done_sent.wrapping_add(1);
            self.free_operation(w, t, op);
        }
    }

    /// Takes the answer, if that is what the packet is and it says nothing else. `false`: it goes the way of other packets, and
    /// nothing has happened.
    #[inline]
    pub(super) fn take_answer(
        &mut self,
        windows: &mut Windows<E::Region, E::Passage>,
        header: &Header,
        reader: &Reader<'_>,
    ) -> bool {
        windows.packet_shortcut.is_at(header.window, header.sender, PacketStage::Sent)
            && self.take_answer_alone(windows, header, reader)
    }

    #[inline(never)]
    fn take_answer_alone(
        &mut self,
        windows: &mut Windows<E::Region, E::Passage>,
        header: &Header,
        reader: &Reader<'_>,
    ) -> bool {
        let Some((way, w)) = windows.by_packet_shortcut() else { return false };
        let is_awaited =
            way.is_undisturbed(self.disturbances) && self.targets[way.target].sync == Sync::Flush;
        let is_taken = match way.has_result() {
            _ if !is_awaited => false,
            true => self.take_result_alone(w, (way.target, way.operation), header, reader),
            false => self.take_done_alone(way.target, header),
        };
        if is_taken {
            way.stage = PacketStage::Answered;
            self.calm += u32::from(!w.dirty);
        }
        is_taken
    }

    fn take_result_alone(
        &mut self,
        w: &mut Window<E::Region>,
        (t, op): (u32, u32),
        header: &Header,
        reader: &Reader<'_>,
    ) -> bool {
        let Ok((result, bytes)) = ResultRecord::decode(&mut reader.clone()) else { return false };
        let element = &mut self.operations[op];
        let is_plain = header.flags == 0 && header.count == 1;
        let is_its = result.handle == op && result.generation == element.generation && result.offset == 0;
        // One without bytes says that it has failed.
        if !is_plain || !is_its || bytes.len() as u64 != element.len || !element.take_result(0, bytes) {
            return false;
        }
        self.counters.payload_bytes_copied += bytes.len() as u64;
        let te = &mut self.targets[t];
        te.issued = List::EMPTY;
        te.requests = te.requests.saturating_sub(1);
        self.free_operation(w, t, op);
        true
    }

    fn take_done_alone(&mut self, t: u32, header: &Header) -> bool {
        let te = &mut self.targets[t];
        let is_its = header.token == te.done_sent;
        let is_taken = is_its && header.flags == ReplyFlags::DONE_ACK.0 && header.count == 0;
        if is_taken {
            te.done_acked = te.done_sent;
        }
        is_taken
    }

    /// Ends the flush whose answer has come. Nothing else was under way when it began, and what has been posted since, by another
    /// thread, is not its business.
    #[inline]
    pub(crate) fn end_alone(&mut self, t: u32) {
        let te = &mut self.targets[t];
        (te.sync, te.phases) = (Sync::None, 0);
    }
}

/// Whether nothing about the window keeps an operation from waiting alone, or makes more of its flush.
fn is_plain<R>(w: &Window<R>) -> bool {
    let is_open = w.usable && w.state().is_passive() && w.state().may_issue() && !w.is_closing;
    let is_settled = w.walk == Walk::None && w.acks.is_empty() && w.late.is_empty() && !w.pressure;
    let is_usual = w.dynamic.is_none() && w.checker.is_none() && !w.is_served && w.may_skip_flush;
    is_open && is_settled && is_usual
}

impl TargetElement {
    /// Whether nothing is posted, under way or wanted.
    fn is_idle(&self) -> bool {
        let is_complete = self.is_flushed() && self.requests == 0 && self.completed_count == 0;
        let is_unwanted = self.sync == Sync::None && !self.lock_wanted && !self.hurried;
        is_complete
            && is_unwanted
            && self.notes == 0
            && self.is_unmarked()
            && self.words.is_idle()
            && self.left == LeftCall::None
            && self.error.is_none()
    }
}
