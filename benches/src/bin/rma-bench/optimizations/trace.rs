//! What an epoch sends, message by message: two engines with a real job's settings and what its fabric can do, over the
//! null fabric, with a recorder between engine and fabric. Not in the library, where another engine changes how the
//! compiler lays out the one whose instructions are counted.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use rma_bench::null::{self, NullBootstrap, NullEndpoint, NullRegion};
use rma_bench::sequence::Message;
use rma_core::bootstrap::AddressBytes;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{Engine, FenceAssert, SyncCall};
use rma_core::error::RmaError;
use rma_core::ids::{PeerAddr, Rank, RemoteKey, Tag, WindowId};
use rma_core::lock::LockType;
use rma_core::op::ReduceOp;
use rma_core::provider::{
    CompletionBatch, Endpoint, Limits, NativeOps, NoPassage, Post, PostError, ProviderError, ReceivedPacket,
    RemoteAddr, SendClass,
};
use rma_core::wire::{BatchFlags, Header, OpKind, PacketKind, Reader, Record, ReplyFlags};

use super::TARGET;

/// An epoch of rank 0 with operations to rank 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Epoch {
    /// Exclusive lock, this many puts, unlock.
    Puts(usize),
    /// The same with a get behind the first of the puts; this many operations in all.
    PutsAndGet(usize),
    /// Fence, a put, fence; without what precedes and succeeds.
    Fences,
}

/// The messages of an epoch whose operations have `size` bytes each, between ranks that know each other; nothing where
/// the engine refuses, as where the settings fit no window.
pub(super) fn of_epoch(
    epoch: Epoch,
    size: usize,
    config: &Config,
    (native, limits): (NativeOps, &Limits),
) -> Option<Vec<Message>> {
    let log = Log::default();
    let endpoints = null::pair(native).map(|inner| Recorder::new(inner, limits, Arc::clone(&log)));
    let operations = match epoch {
        Epoch::Puts(count) | Epoch::PutsAndGet(count) => count,
        Epoch::Fences => 1,
    };
    // Before the engines, which may still know them where an epoch fails, so that they are freed after them.
    let (data, mut result) = (vec![0; size], vec![0; size]);
    let mut pair = Pair::new(endpoints, config, (operations + 1) * size)?;
    for _ in 0..EPOCHS_BEFORE {
        pair.run(epoch, &data, &mut result)?;
    }
    held(&log).clear();
    pair.run(epoch, &data, &mut result)?;
    let messages = std::mem::take(&mut *held(&log));
    Some(messages)
}

/// Epochs after which ranks, and each other's windows, are known.
const EPOCHS_BEFORE: usize = 2;
/// Nothing on the null fabric takes more steps of both engines.
const STEPS_MAX: usize = 1000;

/// Both ranks and their window.
struct Pair {
    origin: Engine<Recorder, NullBootstrap>,
    target: Engine<Recorder, NullBootstrap>,
    window: WindowId,
}

impl Pair {
    fn new([first, second]: [Recorder; 2], config: &Config, window_bytes: usize) -> Option<Self> {
        let origin = Engine::open(first, NullBootstrap(Rank(0)), config.clone()).ok()?;
        let target = Engine::open(second, NullBootstrap(TARGET), config.clone()).ok()?;
        let mut pair = Self { origin, target, window: WindowId(0) };
        let (window, own) = pair.origin.start_allocate(window_bytes, 1).ok()?;
        let (_, other) = pair.target.start_allocate(window_bytes, 1).ok()?;
        pair.window = window;
        pair.finish(own, Some(other))?;
        Some(pair)
    }

    fn step(&mut self) {
        self.origin.progress();
        self.target.progress();
    }

    /// Polls a call of the origin, and one of the target, to their ends.
    fn finish(&mut self, own: SyncCall, other: Option<SyncCall>) -> Option<()> {
        let (mut own, mut other) = (Some(own), other);
        for _ in 0..STEPS_MAX {
            // The outcome of a call is asked for once.
            if let Some(Poll::Ready(outcome)) = own.as_mut().map(|call| self.origin.poll(call)) {
                outcome.ok()?;
                own = None;
            }
            if let Some(Poll::Ready(outcome)) = other.as_mut().map(|call| self.target.poll(call)) {
                outcome.ok()?;
                other = None;
            }
            if own.is_none() && other.is_none() {
                return Some(());
            }
            self.step();
        }
        None
    }

    /// Posts an operation of the origin as soon as there is room.
    fn post(&mut self, mut operation: impl FnMut(&mut Self) -> Poll<Result<(), RmaError>>) -> Option<()> {
        for _ in 0..STEPS_MAX {
            if let Poll::Ready(outcome) = operation(self) {
                return outcome.ok();
            }
            self.step();
        }
        None
    }

    fn put(&mut self, data: &[u8], disp: u64) -> Option<()> {
        // SAFETY: the data live longer than the engines, and nobody writes them.
        self.post(|pair| unsafe { pair.origin.put(pair.window, TARGET, disp, data.as_ptr(), data.len()) })
    }

    fn get(&mut self, result: &mut [u8], disp: u64) -> Option<()> {
        let (into, len) = (result.as_mut_ptr(), result.len());
        // SAFETY: the result lives longer than the engines, and nobody looks at it.
        self.post(|pair| unsafe { pair.origin.get(pair.window, TARGET, disp, into, len) })
    }

    fn run(&mut self, epoch: Epoch, data: &[u8], result: &mut [u8]) -> Option<()> {
        let place = |index: usize| (index * data.len()) as u64;
        let count = match epoch {
            Epoch::Fences => return self.fences(data),
            Epoch::Puts(count) | Epoch::PutsAndGet(count) => count,
        };
        let call = self.origin.start_lock(self.window, TARGET, LockType::Exclusive, false).ok()?;
        self.finish(call, None)?;
        for index in 0..count {
            if index == 1 && matches!(epoch, Epoch::PutsAndGet(_)) {
                self.get(result, place(count))?;
            } else {
                self.put(data, place(index))?;
            }
        }
        let call = self.origin.start_unlock(self.window, TARGET).ok()?;
        self.finish(call, None)
    }

    fn fences(&mut self, data: &[u8]) -> Option<()> {
        let opening = FenceAssert { no_precede: true, ..FenceAssert::default() };
        let closing = FenceAssert { no_succeed: true, ..FenceAssert::default() };
        self.fence(opening)?;
        self.put(data, 0)?;
        self.fence(closing)
    }

    fn fence(&mut self, assert: FenceAssert) -> Option<()> {
        let own = self.origin.start_fence(self.window, assert).ok()?;
        let other = self.target.start_fence(self.window, assert).ok()?;
        self.finish(own, Some(other))
    }
}

type Log = Arc<Mutex<Vec<Message>>>;

fn held(log: &Log) -> MutexGuard<'_, Vec<Message>> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An endpoint of the null fabric that writes down what is posted to it.
#[derive(Debug)]
struct Recorder {
    inner: NullEndpoint,
    rank: Rank,
    limits: Limits,
    log: Log,
}

impl Recorder {
    /// With the orders and completions of a real fabric, and what of its sizes the null fabric has.
    fn new(inner: NullEndpoint, real: &Limits, log: Log) -> Self {
        let own = inner.limits();
        let limits = Limits {
            send_bytes_max: real.send_bytes_max.min(own.send_bytes_max),
            message_bytes_max: real.message_bytes_max.min(own.message_bytes_max),
            order: real.order,
            put_completes: real.put_completes,
            needs_target_progress: real.needs_target_progress,
            ..*own
        };
        let rank = Rank(inner.address().as_slice().first().copied().unwrap_or_default().into());
        Self { inner, rank, limits, log }
    }

    /// Notes what was accepted.
    fn note<T>(
        &self,
        posted: Result<T, PostError>,
        what: impl FnOnce() -> String,
        bytes: usize,
        is_native: bool,
    ) -> Result<T, PostError> {
        if posted.is_ok() {
            held(&self.log).push(Message { from: self.rank, what: what(), bytes, is_native });
        }
        posted
    }
}

/// What a packet says, in the order in which it is done.
fn words(packet: &[u8]) -> String {
    let mut reader = Reader::new(packet);
    let Ok(header) = Header::decode(&mut reader) else { return "?".to_owned() };
    match header.kind {
        PacketKind::Batch => batch(&header, reader),
        PacketKind::Reply => reply(&header),
        kind => kind.name().to_uppercase(),
    }
}

fn batch(header: &Header, mut reader: Reader<'_>) -> String {
    let flags = BatchFlags(header.flags);
    let mut words = Vec::new();
    if flags.any(BatchFlags::LOCK_SHARED | BatchFlags::LOCK_EXCLUSIVE) {
        words.push("LOCK".to_owned());
    }
    let mut kinds: Vec<(OpKind, usize)> = Vec::new();
    while let Ok((record, _, _)) = Record::decode(&mut reader) {
        match kinds.last_mut() {
            Some((kind, count)) if *kind == record.kind => *count += 1,
            _ => kinds.push((record.kind, 1)),
        }
    }
    words.extend(kinds.into_iter().map(|(kind, count)| match count {
        1 => operation(kind).to_owned(),
        _ => format!("{count} {}s", operation(kind)),
    }));
    let ends =
        [(BatchFlags::DONE, "DONE"), (BatchFlags::UNLOCK, "UNLOCK"), (BatchFlags::COMPLETE, "COMPLETE")];
    words.extend(ends.into_iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, word)| word.to_owned()));
    words.join(" + ")
}

const fn operation(kind: OpKind) -> &'static str {
    match kind {
        OpKind::Put => "put",
        OpKind::Get => "get",
        OpKind::Accumulate => "accumulate",
        OpKind::GetAccumulate => "get_accumulate",
        OpKind::CompareAndSwap => "compare_and_swap",
    }
}

fn reply(header: &Header) -> String {
    let flags = ReplyFlags(header.flags);
    let said = [
        (ReplyFlags::GRANT, "GRANT"),
        (ReplyFlags::METADATA, "metadata"),
        (ReplyFlags::NOT_EXECUTED, "not executed"),
        (ReplyFlags::RETRY, "RETRY"),
        (ReplyFlags::DONE_ACK, "DONE_ACK"),
        (ReplyFlags::UNLOCK_ACK, "UNLOCK_ACK"),
        (ReplyFlags::ERROR, "error"),
    ];
    let mut words: Vec<&str> =
        said.into_iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, word)| word).collect();
    if header.count > 0 {
        words.insert(usize::from(flags.has(ReplyFlags::GRANT)), "results");
    }
    words.join(" + ")
}

// SAFETY: every call is the null fabric's, whose promises these are; what is noted beside it touches no memory of an
// operation but a packet's, during the call.
unsafe impl Endpoint for Recorder {
    type Region = NullRegion;
    type Passage = NoPassage;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn native(&self) -> &NativeOps {
        self.inner.native()
    }

    fn address(&self) -> AddressBytes {
        self.inner.address()
    }

    fn connect(&mut self, address: &AddressBytes) -> Result<PeerAddr, ProviderError> {
        self.inner.connect(address)
    }

    fn disconnect(&mut self, peer: PeerAddr) {
        self.inner.disconnect(peer);
    }

    unsafe fn register(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<NullRegion, ProviderError> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.register(base, len, key) }
    }

    unsafe fn register_near(
        &mut self,
        base: NonNull<u8>,
        len: usize,
        key: RemoteKey,
    ) -> Result<NullRegion, ProviderError> {
        // SAFETY: the caller's promise.
        unsafe { self.inner.register_near(base, len, key) }
    }

    fn put_inject(&mut self, to: PeerAddr, src: &[u8], at: RemoteAddr) -> Result<(), PostError> {
        let posted = self.inner.put_inject(to, src, at);
        self.note(posted, || "write".to_owned(), src.len(), true)
    }

    unsafe fn put(&mut self, to: PeerAddr, src: *const u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        // SAFETY: the caller's promise.
        let posted = unsafe { self.inner.put(to, src, len, at, tag) };
        self.note(posted, || "write".to_owned(), len, true)
    }

    unsafe fn get(&mut self, to: PeerAddr, dst: *mut u8, len: usize, at: RemoteAddr, tag: Tag) -> Post {
        // SAFETY: the caller's promise.
        let posted = unsafe { self.inner.get(to, dst, len, at, tag) };
        self.note(posted, || "read".to_owned(), len, true)
    }

    unsafe fn atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        count: usize,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
        tag: Tag,
    ) -> Post {
        // SAFETY: the caller's promise.
        let posted = unsafe { self.inner.atomic(to, operand, count, at, dtype, op, tag) };
        self.note(posted, || "atomic".to_owned(), count * dtype.size(), true)
    }

    unsafe fn fetch_atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        result: *mut u8,
        count: usize,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
        tag: Tag,
    ) -> Post {
        // SAFETY: the caller's promise.
        let posted = unsafe { self.inner.fetch_atomic(to, operand, result, count, at, dtype, op, tag) };
        self.note(posted, || "fetching atomic".to_owned(), count * dtype.size(), true)
    }

    unsafe fn compare_atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        compare: *const u8,
        result: *mut u8,
        at: RemoteAddr,
        dtype: Dtype,
        tag: Tag,
    ) -> Post {
        // SAFETY: the caller's promise.
        let posted = unsafe { self.inner.compare_atomic(to, operand, compare, result, at, dtype, tag) };
        self.note(posted, || "comparing atomic".to_owned(), dtype.size(), true)
    }

    fn send(
        &mut self,
        to: PeerAddr,
        header: &[u8],
        payload: &[u8],
        class: SendClass,
    ) -> Result<(), PostError> {
        let posted = self.inner.send(to, header, payload, class);
        self.note(posted, || words(&[header, payload].concat()), header.len() + payload.len(), false)
    }

    fn flush(&mut self, to: PeerAddr, tag: Tag) -> Post {
        self.inner.flush(to, tag)
    }

    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        self.inner.poll(out)
    }

    fn release(&mut self, packet: ReceivedPacket) {
        self.inner.release(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(epoch: Epoch, config: &Config, native: NativeOps) -> Vec<(u32, String, usize)> {
        let [endpoint, _] = null::pair(native);
        let messages = of_epoch(epoch, 8, config, (native, endpoint.limits())).unwrap();
        for message in &messages {
            assert_eq!(Message::from_json(&message.to_json()).as_ref(), Some(message));
        }
        messages.into_iter().map(|message| (message.from.0, message.what, message.bytes)).collect()
    }

    #[test]
    fn one_small_put_goes_with_lock_and_unlock_and_is_answered_once() {
        let on = said(Epoch::Puts(1), &Config::default(), null::all_native());
        assert_eq!(on, [(0, "LOCK + put + UNLOCK".to_owned(), 40), (1, "UNLOCK_ACK".to_owned(), 16)]);
        let off = said(Epoch::Puts(1), &Config::all_off(), null::all_native());
        assert!(off.len() > on.len(), "{off:?}");
        assert!(off.iter().any(|(_, what, _)| what == "write"), "{off:?}");
    }

    #[test]
    fn a_get_moves_behind_the_puts() {
        let by_message = Config { force_message_path: true, ..Config::default() };
        let messages = said(Epoch::PutsAndGet(4), &by_message, null::all_native());
        assert_eq!(messages[0].1, "LOCK + 3 puts + get + UNLOCK", "{messages:?}");
        assert_eq!(messages[1].1, "results + UNLOCK_ACK", "{messages:?}");
    }

    #[test]
    fn fences_have_their_put_and_a_barrier() {
        let messages = said(Epoch::Fences, &Config::default(), null::all_native());
        assert!(
            messages.iter().any(|(from, what, _)| (*from, what.as_str()) == (0, "write")),
            "{messages:?}"
        );
        assert!(messages.iter().any(|(_, what, _)| what == "BARRIER"), "{messages:?}");
    }
}
