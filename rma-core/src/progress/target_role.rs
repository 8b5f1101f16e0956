//! What this process does as a target: execute batches, keep the window's lock, answer.

use alloc::boxed::Box;

use super::proxies::Proxy;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::check::Checker;
use crate::ids::Rank;
use crate::lock::words::Claim;
use crate::lock::{LockType, Request, Waiter};
use crate::message::{execute, Executed};
use crate::provider::{Endpoint, PostError};
use crate::window::{SelfLock, Window};
use crate::wire::{BatchFlags, ErrorRecord, Header, PacketKind, Reader, ReplyFlags, Writer};

/// A batch, or what is known of it after it waited for the lock.
#[derive(Clone, Copy, Debug)]
struct Batch<'a> {
    origin: Rank,
    flags: BatchFlags,
    token: u32,
    count: u16,
    /// The operations; `None` when they came with a lock request and were not kept.
    operations: Option<&'a [u8]>,
}

/// A reply under construction in its buffer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) index: usize,
    pub(super) buffer: Box<[u8]>,
    pub(super) len: usize,
    flags: ReplyFlags,
    count: u16,
}

impl Answer {
    /// An answer of a header alone, in this reply buffer.
    pub(super) fn of_buffer(index: usize, buffer: Box<[u8]>) -> Self {
        Self { index, buffer, len: Header::BYTES, flags: ReplyFlags::default(), count: 0 }
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// A batch arrived. There is a free reply buffer.
    pub(crate) fn on_batch(&mut self, w: &mut Window<E::Region>, header: &Header, operations: &[u8]) {
        let flags = BatchFlags(header.flags);
        let batch = Batch {
            origin: header.sender,
            flags,
            token: header.token,
            count: header.count,
            operations: Some(operations),
        };
        let lock_type = if flags.has(BatchFlags::LOCK_EXCLUSIVE) {
            Some(LockType::Exclusive)
        } else {
            flags.has(BatchFlags::LOCK_SHARED).then_some(LockType::Shared)
        };
        if let Some(lock_type) = lock_type {
            let proxy = self.try_lock(w, header.sender, lock_type, flags.has(BatchFlags::OVERTAKE));
            if proxy != Proxy::Held {
                self.queue_lock(w, &batch, lock_type, operations, proxy);
                return;
            }
        }
        self.execute_batch(w, &batch);
        self.serve_grants(w);
    }

    /// The lock, at once if it may be.
    fn try_lock(
        &mut self,
        w: &mut Window<E::Region>,
        origin: Rank,
        lock_type: LockType,
        overtakes: bool,
    ) -> Proxy {
        if w.words.is_some() {
            return self.ask_by_proxy(w, origin, Claim::of(lock_type, overtakes));
        }
        match w.lock.try_acquire(origin, lock_type, overtakes) {
            true => Proxy::Held,
            false => Proxy::InLine,
        }
    }

    /// The lock is not free: the request waits, with its operations if there is room for them.
    fn queue_lock(
        &mut self,
        w: &mut Window<E::Region>,
        batch: &Batch<'_>,
        lock_type: LockType,
        operations: &[u8],
        proxy: Proxy,
    ) {
        let overtakes = batch.flags.has(BatchFlags::OVERTAKE);
        // What is kept leaves in the order in which it came: not for a request that may pass others.
        let is_kept = w.lock.has_room() && !overtakes && proxy != Proxy::Full;
        let payload = if is_kept { w.deferred.keep(operations) } else { None };
        if payload.is_some() {
            self.counters.payload_bytes_copied += operations.len() as u64;
        }
        let waiter = Waiter {
            origin: batch.origin,
            lock_type,
            flags: batch.flags.0,
            token: batch.token,
            count: batch.count,
            payload,
            overtakes,
            seat: if let Proxy::Waits(seat) = proxy { Some(seat) } else { None },
        };
        if proxy == Proxy::Full || w.lock.enqueue(waiter) == Request::Full {
            let Some(mut answer) = self.begin_answer() else { return };
            answer.flags |= ReplyFlags::RETRY | detached(batch.flags);
            self.finish_answer(w, batch, answer);
        }
    }

    /// Serves the waiters whose turn has come, as long as there are reply buffers.
    #[inline(always)]
    pub(crate) fn serve_grants(&mut self, w: &mut Window<E::Region>) {
        if w.words.is_some() {
            return self.serve_proxies(w);
        }
        if w.lock.has_grant() {
            self.serve_those_granted(w);
        }
    }

    #[inline(never)]
    fn serve_those_granted(&mut self, w: &mut Window<E::Region>) {
        while w.lock.has_grant() && self.replies.has_room() {
            let Some(waiter) = w.lock.poll_grant() else { return };
            if waiter.origin == self.rank && !self.is_ghost {
                w.self_lock = SelfLock::Held;
                continue;
            }
            self.execute_waiter(w, &waiter);
        }
    }

    fn serve_proxies(&mut self, w: &mut Window<E::Region>) {
        while self.replies.has_room() {
            match self.poll_proxy_grant(w) {
                Some((waiter, true)) => self.execute_waiter(w, &waiter),
                Some((waiter, false)) => self.refuse_waiter(w, &waiter),
                None => return,
            }
        }
    }

    /// The lock is lost, and nothing that came with the request is executed.
    #[cold]
    fn refuse_waiter(&mut self, w: &mut Window<E::Region>, waiter: &Waiter) {
        if let Some(span) = waiter.payload {
            w.deferred.release(span);
        }
        let Some(mut answer) = self.begin_answer() else { return };
        let (flags, origin) = (BatchFlags(waiter.flags), waiter.origin);
        let mut out = Writer::new(&mut answer.buffer, answer.len);
        if ErrorRecord::LockLost.encode(&mut out) {
            answer.len = out.len();
        }
        answer.flags |= ReplyFlags::ERROR | detached(flags);
        let (token, count) = (waiter.token, waiter.count);
        self.finish_answer(w, &Batch { origin, flags, token, count, operations: None }, answer);
    }

    fn execute_waiter(&mut self, w: &mut Window<E::Region>, waiter: &Waiter) {
        let Some((index, buffer)) = self.replies.take() else { return };
        let mut answer = Answer::of_buffer(index, buffer);
        // Taken out as long as the window's own bytes are executed.
        let mut checker = w.checker.take();
        let operations = match waiter.payload {
            Some(span) => Some(w.deferred.bytes(span)),
            None => (waiter.count == 0).then_some(&[][..]),
        };
        let batch = Batch {
            origin: waiter.origin,
            flags: BatchFlags(waiter.flags),
            token: waiter.token,
            count: waiter.count,
            operations,
        };
        let executed = Self::execute_into(w, checker.as_deref_mut(), &batch, &mut answer);
        let batch = Batch { operations: operations.map(|_| &[][..]), ..batch };
        if let Some(span) = waiter.payload {
            w.deferred.release(span);
        }
        w.checker = checker;
        self.conclude(w, &batch, answer, executed);
    }

    fn execute_batch(&mut self, w: &mut Window<E::Region>, batch: &Batch<'_>) {
        let Some(mut answer) = self.begin_answer() else { return };
        let mut checker = w.checker.take();
        let executed = Self::execute_into(w, checker.as_deref_mut(), batch, &mut answer);
        w.checker = checker;
        self.conclude(w, batch, answer, executed);
    }

    /// Metadata and results into the answer.
    fn execute_into(
        w: &Window<E::Region>,
        checker: Option<&mut Checker>,
        batch: &Batch<'_>,
        answer: &mut Answer,
    ) -> Executed {
        let mut out = Writer::new(&mut answer.buffer, answer.len);
        if batch.flags.has(BatchFlags::WANT_METADATA) && w.own.encode(&mut out) {
            answer.flags |= ReplyFlags::METADATA;
        }
        let mut executed = Executed::default();
        if let Some(operations) = batch.operations {
            let mut watch = checker.and_then(|checker| w.watch(checker, batch.origin, batch.flags));
            let mut reader = Reader::new(operations);
            let regions = w.dynamic.as_ref().map(|dynamic| &dynamic.regions);
            executed =
                execute(&w.memory, regions, &w.own, watch.as_mut(), batch.count, &mut reader, &mut out);
        }
        answer.len = out.len();
        answer.count = executed.results;
        executed
    }

    /// Lock, acknowledgements and error into the answer, and off it goes if it says anything.
    fn conclude(
        &mut self,
        w: &mut Window<E::Region>,
        batch: &Batch<'_>,
        mut answer: Answer,
        executed: Executed,
    ) {
        self.counters.payload_bytes_copied += executed.bytes;
        let mut error = executed.error;
        let locks = batch.flags.any(BatchFlags::LOCK_SHARED | BatchFlags::LOCK_EXCLUSIVE);
        let mut acks = ReplyFlags::default();
        if batch.operations.is_none() {
            answer.flags |= ReplyFlags::GRANT | ReplyFlags::NOT_EXECUTED;
        } else {
            w.on_batch_executed(batch.origin, batch.flags);
            if batch.flags.has(BatchFlags::DONE) {
                acks |= ReplyFlags::DONE_ACK;
            }
            if batch.flags.has(BatchFlags::UNLOCK) {
                acks |= ReplyFlags::UNLOCK_ACK;
                let overtakes = batch.flags.has(BatchFlags::OVERTAKE);
                if self.release_held(w, batch.origin, overtakes).is_err() {
                    error.get_or_insert(ErrorRecord::NotHeld);
                }
            }
            if locks && !batch.flags.has(BatchFlags::UNLOCK) {
                answer.flags |= ReplyFlags::GRANT;
            }
            if batch.flags.has(BatchFlags::COMPLETE) && !w.exposure.on_complete(batch.origin) {
                self.counters.malformed_packets += 1;
                error.get_or_insert(ErrorRecord::NotExposed);
            }
        }
        // Without GET at the tail the acknowledgement is a packet of its own, as the design has it
        // (merged all the same when there is no buffer for it).
        let apart = answer.count > 0
            && acks != ReplyFlags::default()
            && !batch.flags.has(BatchFlags::ACK_WITH_RESULT);
        let second = if apart { self.begin_answer() } else { None };
        let (last, first) = match second {
            Some(second) => (second, Some(answer)),
            None => (answer, None),
        };
        if let Some(first) = first {
            self.finish_answer(w, batch, first);
        }
        let mut last = last;
        last.flags |= acks;
        if let Some(error) = error {
            let mut out = Writer::new(&mut last.buffer, last.len);
            if error.encode(&mut out) {
                last.len = out.len();
                last.flags |= ReplyFlags::ERROR;
            }
        }
        if last.count == 0 && last.flags == ReplyFlags::default() {
            self.replies.give(last.index, last.buffer);
            return;
        }
        last.flags |= detached(batch.flags);
        self.finish_answer(w, batch, last);
    }

    pub(super) fn begin_answer(&mut self) -> Option<Answer> {
        let (index, buffer) = self.replies.take()?;
        Some(Answer::of_buffer(index, buffer))
    }

    fn finish_answer(&mut self, w: &Window<E::Region>, batch: &Batch<'_>, answer: Answer) {
        let header = Header {
            kind: PacketKind::Reply,
            flags: answer.flags.0,
            count: answer.count,
            window: w.id,
            sender: self.rank,
            token: batch.token,
        };
        self.send_answer(batch.origin, &header, answer);
    }

    pub(super) fn send_answer(&mut self, to: Rank, header: &Header, mut answer: Answer) {
        answer.buffer[..Header::BYTES].copy_from_slice(&header.encode());
        let packet = &answer.buffer[..answer.len];
        let gone = !self.replies.has_waiting(to) && self.try_send_reply(to, header.kind, packet);
        if gone {
            self.replies.give(answer.index, answer.buffer);
        } else {
            self.replies.wait(to, answer.index, answer.buffer, answer.len);
        }
    }

    /// Sends a reply. `true` also when the origin is gone and nobody waits for it; or when this process cannot connect
    /// to it, and says so in the calls that it makes itself.
    pub(crate) fn try_send_reply(&mut self, to: Rank, kind: PacketKind, packet: &[u8]) -> bool {
        match self.waiting_peer(to) {
            Ok(Some(peer)) => self.send(peer, kind, packet, &[]) != Err(PostError::Again),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// An origin wants base, size, key and displacement unit of this rank's window.
    pub(crate) fn on_metadata_request(&mut self, w: &Window<E::Region>, request: &Header) {
        let header = Header {
            kind: PacketKind::MetadataReply,
            flags: 0,
            count: 0,
            window: w.id,
            sender: self.rank,
            token: request.token,
        };
        self.answer_with_metadata(w, request.sender, &header);
    }

    /// Answers with this rank's metadata behind the header. There is a free reply buffer.
    pub(crate) fn answer_with_metadata(&mut self, w: &Window<E::Region>, to: Rank, header: &Header) {
        let Some(mut answer) = self.begin_answer() else { return };
        let mut out = Writer::new(&mut answer.buffer, Header::BYTES);
        if w.own.encode(&mut out) && encode_words(w, header.kind, &mut out) {
            answer.len = out.len();
        }
        self.send_answer(to, header, answer);
    }
}

/// Where the words of this rank's lock are, behind the metadata that were asked for.
fn encode_words<R>(w: &Window<R>, kind: PacketKind, out: &mut Writer<'_>) -> bool {
    match w.words.as_ref().filter(|_| kind == PacketKind::MetadataReply) {
        Some(words) => {
            let place = words.own();
            out.put(&place.addr.to_le_bytes()) && out.put(&place.key.0.to_le_bytes())
        }
        None => true,
    }
}

fn detached(flags: BatchFlags) -> ReplyFlags {
    if flags.has(BatchFlags::DETACHED) {
        ReplyFlags::DETACHED
    } else {
        ReplyFlags::default()
    }
}
