//! Native path: the fabric reads and writes the target's registered memory.
#![allow(unsafe_code)] // posts raw pointers to the user's buffers

use super::burst::DoneAtOnce;
use super::issue::Again;
use super::tag::TagKind;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::ids::{PeerAddr, Tag};
use crate::info::AccumulateOrdering;
use crate::layout::{block_at, Layouts};
use crate::mutation::Mutation;
use crate::path::Path;
use crate::pool::NONE;
use crate::provider::{Accepted, CompletionScope, Endpoint, Post, PostError, RemoteAddr};
use crate::table::OperationState;
use crate::window::Window;
use crate::wire::{encode_data, BatchFlags, Metadata, OpKind};

/// What is known of the place of an operation's data at the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RemotePlace {
    /// The location of displacement 0, and the key.
    Known(Metadata),
    /// The target was asked, or has to be.
    Awaited,
    /// It was read just now, and some that are pending may be gone because of it.
    Learnt,
    /// The operation goes by message.
    Message,
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Whether the operation waits for the fabric, not for a packet.
    pub(crate) fn is_native(&self, w: &Window<E::Region>, op: u32) -> bool {
        let element = &self.operations[op];
        let path = w.paths.of(element.kind, element.dtype, element.op);
        !element.packed && (element.regional || path == Path::Native)
    }

    /// Posts pending native operations, as many as the fabric takes.
    pub(crate) fn issue_native(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<u32, Again> {
        if !w.paths.any() && w.dynamic.is_none() {
            return Ok(0);
        }
        let mut count = 0;
        let mut op = self.targets[t].pending.head;
        while op != NONE {
            let next = self.operations[op].next;
            if self.is_native(w, op) && !self.note_must_wait(t, op) {
                let metadata = match self.remote_place(w, t, op)? {
                    RemotePlace::Known(metadata) => metadata,
                    RemotePlace::Awaited => return Ok(count),
                    RemotePlace::Learnt => {
                        op = self.targets[t].pending.head;
                        continue;
                    }
                    RemotePlace::Message => {
                        op = next;
                        continue;
                    }
                };
                if !self.native_may_go(w, t, op) || !self.issue_native_one(w, t, op, &metadata)? {
                    return Ok(count);
                }
                count += 1;
            }
            op = next;
        }
        Ok(count)
    }

    /// Where the operation's data are in the provider's terms, as far as it is known.
    fn remote_place(&mut self, w: &mut Window<E::Region>, t: u32, op: u32) -> Result<RemotePlace, Again> {
        if self.operations[op].regional {
            return self.region_of(w, t, op);
        }
        match self.targets[t].metadata {
            Some(metadata) => Ok(RemotePlace::Known(metadata)),
            None => self.find_out_place(w, t),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_out_place(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<RemotePlace, Again> {
        if self.learn_part(w, t) {
            return Ok(RemotePlace::Learnt);
        }
        self.request_metadata(w, t).map(|()| RemotePlace::Awaited)
    }

    /// Posts all pieces of one operation. `false`: it has to wait for an earlier one.
    fn issue_native_one(
        &mut self,
        w: &mut Window<E::Region>,
        t: u32,
        op: u32,
        metadata: &Metadata,
    ) -> Result<bool, Again> {
        let Some(peer) = self.targets[t].peer else { return Err(Again) };
        let atomic = !matches!(self.operations[op].kind, OpKind::Put | OpKind::Get);
        if atomic && !self.atomic_may_go(w, t, op)? {
            return Ok(false);
        }
        let takes_vectors = self.takes_vectors(op);
        while self.operations[op].posted < self.operations[op].len {
            let closing = if takes_vectors { None } else { self.closing_data(w, t, op, peer) };
            let posted = if takes_vectors {
                self.post_vector(peer, op, metadata)
            } else {
                self.post_piece(peer, op, metadata, closing.map(|(_, data)| data))
            };
            match posted {
                Ok((len, accepted)) => self.count_piece(t, op, len, accepted),
                Err(error) => return Err(self.refused(w, t, error)),
            }
            let is_over = self.operations[op].posted == self.operations[op].len;
            if let Some((flags, _)) = closing.filter(|_| is_over) {
                self.counters.native_puts_with_data += 1;
                self.after_flags(w, t, flags);
            }
        }
        self.unlink_pending(t, op);
        self.link_issued(t, op);
        if self.operations[op].outstanding == 0 {
            // All of it was complete at once: no completion will say so.
            if self.operations[op].is_finished() {
                self.complete_operation(t, op);
            }
            w.dirty = true;
        }
        Ok(true)
    }

    /// What the last piece of a put may say as its data: that the epoch ends, when nothing else is left to leave and
    /// the data pass nothing of it that is under way.
    ///
    /// Implements: ours: put with data.
    #[inline]
    fn closing_data(
        &self,
        w: &Window<E::Region>,
        t: u32,
        op: u32,
        peer: PeerAddr,
    ) -> Option<(BatchFlags, u64)> {
        if self.config.put_data != Some(true) {
            return None;
        }
        let (element, te) = (&self.operations[op], &self.targets[t]);
        let is_last = element.kind == OpKind::Put && te.pending.count == 1 && te.notes == 0;
        let may_close = self.config.piggyback && !self.closes_when_flushed(w);
        if !(is_last && element.notify.is_none() && may_close) {
            return None;
        }
        let flags = te.closing().filter(|_| !te.sync_sent)?;
        let is_behind_all = self.may_close_behind_natives(w, t) || Mutation::DataOvertakePuts.is_on();
        // What a packet would have to say besides that.
        let is_all = w.checker.is_none() && self.done_for_errors(w, t, flags, false) == BatchFlags::default();
        if !(is_behind_all && is_all) {
            return None;
        }
        let said = flags | w.unlock_flags(flags);
        let data = encode_data(said, w.id, self.rank, self.endpoint.data_bytes(peer))?;
        Some((flags, data))
    }

    /// Whether a native accumulate may leave as far as earlier ones of its target are concerned. MPI orders those
    /// of one origin to one location, unless the window's `accumulate_ordering` gives orders up (MPI-4.1 section
    /// 13.7.2); fabrics need not keep any, so what must stay behind another waits for it.
    ///
    /// Implements: accumulate_ordering.
    fn atomic_may_go(&mut self, w: &mut Window<E::Region>, t: u32, op: u32) -> Result<bool, Again> {
        let element = &self.operations[op];
        let (reads, writes) = element.accesses();
        // Notifications keep the order of their calls whatever else does not.
        let order = if element.is_note { AccumulateOrdering::STRICT } else { w.options.accumulate_ordering };
        // Its own pieces are at other locations.
        let own = element.outstanding;
        let is_fresh = element.posted == 0;
        let te = &self.targets[t];
        let reading = te.atomics_reading > if reads { own } else { 0 };
        let writing = te.atomics_writing > if writes { own } else { 0 };
        let read_waits = reads && (order.rar && reading || order.raw && writing);
        let write_waits = writes && (order.war && reading || order.waw && writing);
        if read_waits || write_waits {
            return Ok(false);
        }
        // Where completion is local, what is complete may still be on its way.
        let follows_writes = reads && order.raw || writes && order.waw;
        if follows_writes && is_fresh && te.accumulates_unseen {
            if te.unflushed && !te.flush_outstanding {
                self.post_flush(w, t)?;
            }
            return Ok(false);
        }
        Ok(true)
    }

    fn count_piece(&mut self, t: u32, op: u32, len: u64, accepted: Accepted) {
        let element = &mut self.operations[op];
        element.native = true;
        element.posted += len;
        self.counters.native_bytes += len;
        match element.kind {
            OpKind::Put => self.counters.native_puts += 1,
            OpKind::Get => self.counters.native_gets += 1,
            _ => self.counters.native_atomics += 1,
        }
        if accepted == Accepted::Complete {
            self.at_once = DoneAtOnce::UNFENCED;
            return;
        }
        element.outstanding += 1;
        let te = &mut self.targets[t];
        te.tracked_pieces += 1;
        match element.kind {
            OpKind::Put => {
                te.native_puts += 1;
                te.unflushed = self.puts_need_flush;
            }
            OpKind::Get => te.native_gets += 1,
            _ => {
                te.native_atomics += 1;
                let (reads, writes) = element.accesses();
                te.atomics_reading += u32::from(reads);
                te.atomics_writing += u32::from(writes);
                let is_local =
                    self.limits.put_completes == CompletionScope::Local && element.kind == OpKind::Accumulate;
                te.unflushed |= is_local;
                te.accumulates_unseen |= is_local;
            }
        }
    }

    /// Posts the next piece; returns its length, and how it was accepted.
    fn post_piece(
        &mut self,
        peer: PeerAddr,
        op: u32,
        metadata: &Metadata,
        closing: Option<u64>,
    ) -> Result<(u64, Accepted), PostError> {
        let element = &self.operations[op];
        debug_assert_eq!(element.state, OperationState::Pending);
        let tag = TagKind::Operation.tag(element.generation, op);
        // One piece for each pair of blocks that are in a row at both sides.
        let Layouts { origin, result, target } = &element.layouts;
        let (target_at, target_len) = block_at(target.as_ref(), element.posted, element.len);
        let (origin_at, origin_len) = block_at(origin.as_ref(), element.posted, element.len);
        let (result_at, result_len) = block_at(result.as_ref(), element.posted, element.len);
        let first = metadata.base.wrapping_add(element.disp.wrapping_mul(metadata.disp_unit.into()));
        let at = RemoteAddr { addr: first.wrapping_add_signed(target_at), key: metadata.key };
        let left = target_len.min(if element.kind == OpKind::Put { origin_len } else { result_len });
        let origin = element.payload_ptr(origin_at);
        let result = element.result.wrapping_offset(result_at as isize);
        let (dtype, reduction) = (element.dtype, element.op);
        let size = dtype.size() as u64;
        let (len, posted): (u64, Post) = match element.kind {
            OpKind::Put => {
                let len = left.min(self.limits.message_bytes_max as u64);
                let data = closing.filter(|_| element.posted + len == element.len);
                // SAFETY: the origin buffer (or the element itself, which is not freed before its tags
                // are back) stays readable until the operation is complete.
                (len, unsafe { put(&mut self.endpoint, peer, (origin, len as usize), at, tag, data) })
            }
            OpKind::Get => {
                let len = left.min(self.limits.message_bytes_max as u64);
                // SAFETY: the result buffer stays writable until the operation is complete.
                (len, unsafe { self.endpoint.get(peer, result, len as usize, at, tag) })
            }
            OpKind::Accumulate => {
                // SAFETY: as for put; one element.
                (size, unsafe { self.endpoint.atomic(peer, origin, 1, at, dtype, reduction, tag) })
            }
            OpKind::GetAccumulate => {
                // SAFETY: as for put and get; one element.
                (size, unsafe {
                    self.endpoint.fetch_atomic(peer, origin, result, 1, at, dtype, reduction, tag)
                })
            }
            OpKind::CompareAndSwap => {
                let operand = element.payload_ptr(size as i64);
                // SAFETY: compare value and operand lie in the element, the result buffer stays
                // writable; all until the operation is complete.
                (size, unsafe { self.endpoint.compare_atomic(peer, operand, origin, result, at, dtype, tag) })
            }
        };
        if posted == Err(PostError::Again) {
            self.counters.again += 1;
        }
        posted.map(|accepted| (len, accepted))
    }
}

/// A put, with data if there are any.
///
/// # Safety
/// As for [`Endpoint::put`].
unsafe fn put<E: Endpoint>(
    endpoint: &mut E,
    peer: PeerAddr,
    (src, len): (*const u8, usize),
    at: RemoteAddr,
    tag: Tag,
    data: Option<u64>,
) -> Post {
    match data {
        // SAFETY: the caller's promise.
        Some(data) => unsafe { endpoint.put_with_data(peer, src, len, at, tag, data) },
        // SAFETY: as above.
        None => unsafe { endpoint.put(peer, src, len, at, tag) },
    }
}
