//! MAKE_RMA_PROGRESS_*: poll the endpoint, act on what it says, issue what can go. Bounded work per call.
#![allow(unsafe_code)] // reads packets that the provider lends

use super::deaths::{is_question, GOES};
use super::flood::tells_of_loss;
use super::held::Held;
use super::issue::Again;
use super::serve_alone::may_be_alone;
use super::tag::{LockSeat, TagKind};
use super::{Failure, Place, Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::error::FabricCode;
use crate::ids::{PeerAddr, Tag};
use crate::provider::{Completion, Endpoint, ReceivedPacket};
use crate::table::Sync;
use crate::window::Window;
use crate::wire::{
    decode_data, is_data, BatchFlags, Header, PacketKind, PostFlags, Reader, ReplyFlags, WireError,
};

/// Rounds of cleanup and issue in one call, while there is something to do.
const ROUNDS_MAX: usize = 4;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// MAKE_RMA_PROGRESS_GLOBAL: all windows and the target role. Returns how many things happened. The
    /// endpoint is polled once, so that a caller whose answer has come is not kept for another look.
    ///
    /// Implements: seed: MAKE_RMA_PROGRESS_GLOBAL, notes: requests in one queue.
    pub(crate) fn make_rma_progress_global(&mut self, windows: &mut Windows<E::Region, E::Passage>) -> usize {
        let was_calm = core::mem::take(&mut self.calm) > 0;
        let (mut events, is_calm) = self.poll_endpoint(windows);
        // Answers, perhaps what the caller waits for, and nothing that they let go on: what else there is waits for the next
        // call, and not for one after that. Others that have asked for something, and wait for room, do not wait for this.
        self.calm = u32::from(is_calm && !was_calm);
        if self.calm > 0 {
            if self.held.is_empty() && self.replies.waiting_count() == 0 {
                return events + core::mem::take(&mut self.steps_at_once);
            }
            self.calm = 0;
        }
        self.flush_replies();
        // Those that are held may be for any window.
        let mut is_dirty = !self.held.is_empty();
        for w in windows.iter_to_advance() {
            // Grants before requests: who asks again and again for a lock must not use up the reply
            // buffers with which the lock would go on.
            self.serve_grants(w);
            self.advance_epoch(w);
            is_dirty |= w.dirty;
        }
        self.serve_held(windows);
        for _ in 0..if is_dirty { ROUNDS_MAX } else { 0 } {
            let moved = self.cleanup_ops_global(windows) + self.issue_ops_global(windows);
            events += moved as usize;
            if moved == 0 {
                break;
            }
        }
        if self.wants_looks {
            self.issue_looks(windows);
        }
        self.send_reduce_rounds();
        self.spread_losses();
        events + core::mem::take(&mut self.steps_at_once)
    }

    /// MAKE_RMA_PROGRESS_WIN: what calls about several targets do at once.
    ///
    /// Implements: seed: MAKE_RMA_PROGRESS_WIN.
    pub(crate) fn make_rma_progress_win(&mut self, w: &mut Window<E::Region>) -> u32 {
        self.cleanup_ops_win(w) + self.issue_ops_win(w)
    }

    /// MAKE_RMA_PROGRESS_TARGET: what calls about one target do at once. What the fabric does not take
    /// stays, and the window stays marked.
    ///
    /// Implements: seed: MAKE_RMA_PROGRESS_TARGET.
    pub(crate) fn make_rma_progress_target(&mut self, w: &mut Window<E::Region>, t: u32) -> u32 {
        let issued = self.issue_ops_target(w, t).unwrap_or_else(|Again| {
            w.dirty = true;
            0
        });
        issued + self.cleanup_ops_target(w, t)
    }

    /// The window's barrier, the window protocol of lock_all, and what post and complete have left.
    fn advance_epoch(&mut self, w: &mut Window<E::Region>) {
        self.settle(w);
        self.settle_revokes(w);
        self.advance_pscw(w);
        self.advance_barrier(w);
        if let Some(sequence) = w.fence_sequence {
            self.settle_fence(w, sequence);
        }
    }

    /// What is kept for a fence goes, or is given up, when its barrier is over.
    #[inline(never)]
    fn settle_fence(&mut self, w: &mut Window<E::Region>, sequence: u32) {
        let is_complete = w.barrier.is_complete(sequence);
        if is_complete || w.barrier.lost().is_some() {
            w.fence_sequence = None;
            if !is_complete {
                self.give_up_kept(w);
            }
            // Not a fence epoch any more when NOSUCCEED or another epoch came meanwhile.
            let _ = w.transition(|state| state.on_fence_barrier());
        }
    }

    /// Returns how many things happened, and whether all of them were answers that let nothing else go on.
    fn poll_endpoint(&mut self, windows: &mut Windows<E::Region, E::Passage>) -> (usize, bool) {
        let mut count = self.endpoint.poll(&mut self.batch);
        count = count.max(usize::from(!self.batch.is_empty()));
        let mut seen = 0;
        while let Some(completion) = self.batch.pop() {
            seen += 1;
            self.on_completion(windows, completion);
        }
        (count, seen > 0 && self.calm == seen)
    }

    #[inline]
    pub(crate) fn on_completion(
        &mut self,
        windows: &mut Windows<E::Region, E::Passage>,
        completion: Completion,
    ) {
        match completion {
            Completion::Done(tag) => self.on_done(windows, tag),
            Completion::Failed(tag, code) => self.on_failed(windows, tag, code),
            Completion::Packet(packet) => self.on_packet(windows, packet),
            Completion::PeerDown(peer, code) => self.on_peer_down(windows, peer, code),
            Completion::EndpointDown(code) => {
                self.failure = None;
                self.note_failure(Failure::Endpoint(code));
            }
        }
    }

    #[inline]
    fn on_done(&mut self, windows: &mut Windows<E::Region, E::Passage>, tag: Tag) {
        let (kind, generation, index) = TagKind::parse(tag);
        let t = match kind {
            TagKind::Operation => {
                let element = &mut self.operations[index];
                debug_assert_eq!(element.generation, generation, "a completion of an earlier use");
                element.outstanding -= 1;
                let (t, native_kind) = (element.target, element.kind);
                if element.is_finished() {
                    self.complete_operation(t, index);
                }
                let te = &mut self.targets[t];
                te.tracked_pieces -= 1;
                if te.notes > 0 {
                    if let Some(w) = windows.get_mut(te.window) {
                        w.dirty = true;
                    }
                }
                match native_kind {
                    crate::wire::OpKind::Put => te.native_puts -= 1,
                    crate::wire::OpKind::Get => te.native_gets -= 1,
                    _ => {
                        let (reads, writes) = self.operations[index].accesses();
                        te.native_atomics -= 1;
                        te.atomics_reading -= u32::from(reads);
                        te.atomics_writing -= u32::from(writes);
                    }
                }
                t
            }
            TagKind::CountedPut => {
                self.targets[index].native_puts -= 1;
                index
            }
            TagKind::CountedGet => {
                self.targets[index].native_gets -= 1;
                index
            }
            TagKind::Flush => {
                let te = &mut self.targets[index];
                te.flush_outstanding = false;
                te.flushes_done = te.flushes_posted;
                if te.notes > 0 {
                    if let Some(w) = windows.get_mut(te.window) {
                        w.dirty = true;
                    }
                }
                // What was posted after the flush is not covered by it.
                te.accumulates_unseen &= te.unflushed;
                index
            }
            TagKind::Lock => {
                let (seat, word) = LockSeat::parse(generation);
                return self.on_word(windows, seat, word, index);
            }
        };
        let te = &self.targets[t];
        if te.sync != Sync::None || te.completed_count > 0 || !te.pending.is_empty() {
            if let Some(w) = windows.get_mut(te.window) {
                w.dirty = true;
            }
        }
    }

    #[cold]
    fn on_failed(&mut self, windows: &mut Windows<E::Region, E::Passage>, tag: Tag, code: FabricCode) {
        let (kind, generation, index) = TagKind::parse(tag);
        if kind == TagKind::Lock {
            let (seat, word) = LockSeat::parse(generation);
            return self.on_word_failed(windows, (seat, word, index), code);
        }
        let t = if kind == TagKind::Operation {
            self.fail_operation(index);
            self.operations[index].target
        } else {
            index
        };
        self.on_done(windows, tag);
        if let Some(w) = windows.get_mut(self.targets[t].window) {
            self.fail_target(w, t, code);
            self.cleanup_ops_target(w, t);
        }
    }

    #[cold]
    fn on_peer_down(
        &mut self,
        windows: &mut Windows<E::Region, E::Passage>,
        peer: PeerAddr,
        code: FabricCode,
    ) {
        let Some(rank) = self.peers.rank_of(peer) else { return };
        self.lose_process(windows, rank, code);
    }

    fn on_packet(&mut self, windows: &mut Windows<E::Region, E::Passage>, packet: ReceivedPacket) {
        // SAFETY: the packet came from this endpoint's poll just now and is released below or kept whole.
        let bytes = unsafe { packet.bytes() };
        if bytes.len() < Header::BYTES {
            return self.on_short_packet(windows, packet);
        }
        let kind = PacketKind::of_first_byte(bytes[0]);
        // News of deaths need no room: the room may be waiting for the dead.
        let is_request = matches!(kind, Ok(kind) if kind.is_request() && kind != PacketKind::Losses);
        if is_request && !(self.held.is_empty() && self.replies.has_room()) {
            self.held.keep_packet(packet);
            return;
        }
        self.serve_packet(windows, packet);
    }

    /// The data of a put, which are a request, or nothing. What is kept of them is a copy: the loan ends now.
    #[cold]
    #[inline(never)]
    fn on_short_packet(&mut self, windows: &mut Windows<E::Region, E::Passage>, packet: ReceivedPacket) {
        if is_data(packet.len) && !(self.held.is_empty() && self.replies.has_room()) {
            // SAFETY: the packet came from this endpoint's poll just now, and is released below.
            let bytes = unsafe { packet.bytes() };
            let is_kept = self.may_data_wait(windows, bytes) && self.held.keep_data(bytes);
            self.counters.malformed_packets += u64::from(!is_kept);
            self.endpoint.release(packet);
            return;
        }
        self.serve_packet(windows, packet);
    }

    /// Whether data that cannot be served now are of a rank that may send them, and of a window that is, or was: who asks
    /// for one that was freed without him is answered.
    fn may_data_wait(&mut self, windows: &Windows<E::Region, E::Passage>, bytes: &[u8]) -> bool {
        let Ok(header) = decode_data(bytes) else { return false };
        header.sender.0 < self.size && self.may_come(&header) && windows.has_had(header.window)
    }

    /// Requests that had to wait for a reply buffer.
    #[inline]
    fn serve_held(&mut self, windows: &mut Windows<E::Region, E::Passage>) {
        if !self.held.is_empty() {
            self.serve_those_held(windows);
        }
    }

    #[cold]
    #[inline(never)]
    fn serve_those_held(&mut self, windows: &mut Windows<E::Region, E::Passage>) {
        while self.replies.has_room() {
            match self.held.pop() {
                Some(Held::Packet(packet)) => self.serve_packet(windows, packet),
                Some(Held::Data { word, len }) => {
                    let bytes = word.get(..usize::from(len)).unwrap_or_default();
                    self.serve_bytes(windows, bytes);
                }
                None => return,
            }
        }
    }

    fn serve_packet(&mut self, windows: &mut Windows<E::Region, E::Passage>, packet: ReceivedPacket) {
        // SAFETY: the packet came from this endpoint's poll and is released only after this use.
        let bytes = unsafe { packet.bytes() };
        self.serve_bytes(windows, bytes);
        self.endpoint.release(packet);
    }

    #[inline]
    fn serve_bytes(&mut self, windows: &mut Windows<E::Region, E::Passage>, bytes: &[u8]) {
        if self.dispatch(windows, bytes).is_err() {
            self.counters.malformed_packets += 1;
        }
    }

    /// Whether such a packet can come from such a sender. Nobody sends packets to himself, but a rank and its
    /// ghost; and who has not said where he is cannot be answered by a ghost.
    fn may_come(&mut self, header: &Header) -> bool {
        use PacketKind::{Batch, Introduction, Losses, MetadataReply, MetadataRequest, PostQuery, Reply};
        if self.is_ghost {
            let is_known = self.peers.get(Place::of(header.sender)).is_some();
            return match header.kind {
                Introduction => true,
                Batch | MetadataRequest | Losses => is_known,
                PostQuery => is_known && is_question(header),
                _ => false,
            };
        }
        match header.kind {
            Introduction | Losses => false,
            Reply | MetadataReply => header.sender != self.rank || self.ghost.is_some(),
            _ => header.sender != self.rank,
        }
    }

    /// Acts on one packet, whatever its bytes are.
    fn dispatch(
        &mut self,
        windows: &mut Windows<E::Region, E::Passage>,
        bytes: &[u8],
    ) -> Result<(), WireError> {
        let mut reader = Reader::new(bytes);
        let header = match Header::decode(&mut reader) {
            Ok(header) => {
                self.counters.packets_received[header.kind as usize] += 1;
                self.counters.packet_bytes_received += bytes.len() as u64;
                header
            }
            Err(error) => {
                reader = Reader::new(&[]);
                header_of_data(bytes).ok_or(error)?
            }
        };
        if header.sender.0 >= self.size || !self.may_come(&header) {
            return Err(WireError::Length(header.sender.0));
        }
        if self.is_from_the_dead(header.sender) {
            return Ok(());
        }
        match header.kind {
            PacketKind::Reply if self.take_answer(windows, &header, &reader) => return Ok(()),
            PacketKind::Batch if may_be_alone(&header) && self.serve_alone(windows, &header, &reader) => {
                return Ok(());
            }
            PacketKind::Introduction => {
                return self.on_introduction(header.sender, reader.take(reader.remaining())?);
            }
            PacketKind::Losses => return self.on_losses(windows, &header, &mut reader),
            PacketKind::Reduce => return Self::on_round(&mut self.reduce, &header, &mut reader),
            _ => {}
        }
        self.dispatch_to_window(windows, &header, &mut reader)
    }

    /// The same of one about a window.
    #[inline(always)]
    fn dispatch_to_window(
        &mut self,
        windows: &mut Windows<E::Region, E::Passage>,
        header: &Header,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let Some(w) = windows.get_mut(header.window) else {
            return self.on_no_window(windows, header);
        };
        match header.kind {
            PacketKind::Batch => {
                if w.refuses_lock(BatchFlags(header.flags)) || w.is_served && !is_mere_complete(header) {
                    return Err(WireError::Flags(header.flags));
                }
                let operations = reader.take(reader.remaining())?;
                self.on_batch(w, header, operations);
                Ok(())
            }
            PacketKind::Reply => self.on_reply(w, header, reader),
            PacketKind::Barrier if tells_of_loss(header) => self.on_lost_barrier(w, header),
            PacketKind::Barrier => Self::on_round(&mut w.barrier, header, reader),
            PacketKind::MetadataRequest => {
                self.on_metadata_request(w, header);
                Ok(())
            }
            PacketKind::MetadataReply => self.on_metadata(w, header.sender, reader),
            PacketKind::Post => self.on_post(w, header, reader),
            PacketKind::PostQuery if is_question(header) => {
                self.on_question(w, header);
                Ok(())
            }
            PacketKind::PostQuery => {
                self.on_post_query(w, header);
                Ok(())
            }
            PacketKind::RegionQuery => self.on_region_query(w, header, reader),
            PacketKind::RegionReply => self.on_region_reply(w, header, reader),
            PacketKind::Revoke => self.on_revoke(w, header),
            PacketKind::RevokeReply => Self::on_revoke_reply(w, header),
            PacketKind::Reduce | PacketKind::Introduction | PacketKind::Losses => Ok(()),
        }
    }

    /// A packet about a window that is not there.
    #[cold]
    #[inline(never)]
    fn on_no_window(
        &mut self,
        windows: &Windows<E::Region, E::Passage>,
        header: &Header,
    ) -> Result<(), WireError> {
        // A notice was faster than the answer to a question, and with it the epoch and the window are over; or it comes to
        // who has freed the window alone, as the question whether it has, and the answer to one of its own.
        let is_notice = header.kind == PacketKind::Post;
        let is_answer = is_notice && PostFlags(header.flags).has(PostFlags::ANSWER);
        let is_goodbye = header.kind == PacketKind::Reply && ReplyFlags(header.flags).any(GOES);
        let is_alone = (is_notice || is_goodbye) && self.may_have_freed_alone();
        let may_be_late = is_answer || is_question(header) || is_alone;
        let is_late = may_be_late && windows.has_had(header.window);
        self.answer_gone(header);
        // Nobody waits in the barrier of a window that is not there.
        if is_late || tells_of_loss(header) {
            return Ok(());
        }
        Err(WireError::Length(header.window.0))
    }

    fn flush_replies(&mut self) {
        if self.replies.waiting_count() == 0 {
            return;
        }
        let mut replies = core::mem::take(&mut self.replies);
        replies.flush(|to, packet| {
            let kind = packet.first().and_then(|&byte| PacketKind::of_first_byte(byte).ok());
            let kind = kind.unwrap_or(PacketKind::Reply);
            self.try_send_reply(to, kind, packet)
        });
        self.replies = replies;
    }
}

/// Whether a batch says that its origin has completed, and nothing else: all that a rank is told of a window
/// that its ghost serves.
fn is_mere_complete(header: &Header) -> bool {
    header.flags == BatchFlags::COMPLETE.0 && header.count == 0
}

/// What the data of a put stand for, if that is what the bytes are.
#[cold]
#[inline(never)]
fn header_of_data(bytes: &[u8]) -> Option<Header> {
    decode_data(bytes).ok()
}
