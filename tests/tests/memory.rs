//! Nothing grows with the number of ranks: a window in a job of 1,048,576 ranks holds what it holds in a
//! job of 2, before and after it was used with thousands of targets.

use std::task::Poll;

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{Engine, SyncCall};
use rma_core::ids::{PeerAddr, Rank, RemoteKey, Tag, WindowId};
use rma_core::info::LockProtocol;
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Accepted, Completion, CompletionBatch, Endpoint, Limits, MemoryRegion, NativeOps, NoPassage, Order, Post,
    PostError, ProviderError, ReceivedPacket, RemoteAddr, SendClass,
};
use rma_core::wire::{BatchFlags, Header, PacketKind, Reader, ReplyFlags};

/// The whole rest of a job in one place: it mirrors rank 0's rounds, as if every rank did the same at the
/// same time, and answers its requests. The engine under test is the production one.
#[derive(Debug)]
struct EverybodyElse {
    size: u32,
    limits: Limits,
    native: NativeOps,
    inbox: Vec<Box<[u8]>>,
    /// Atomics that are done, each on a word that was 0.
    done: Vec<Tag>,
    lent: Vec<Option<Box<[u8]>>>,
}

#[derive(Debug)]
struct NoRegion;

impl MemoryRegion for NoRegion {
    fn remote_key(&self) -> RemoteKey {
        RemoteKey(0)
    }

    fn remote_base(&self) -> u64 {
        0
    }
}

const NOT_OFFERED: Post = Err(PostError::Again);

// SAFETY: nothing is offered but packets, each lent as a box that does not move until released, and the atomics of locks,
// which are done at once.
unsafe impl Endpoint for EverybodyElse {
    type Region = NoRegion;
    type Passage = NoPassage;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn native(&self) -> &NativeOps {
        &self.native
    }

    fn address(&self) -> AddressBytes {
        AddressBytes::new(&0u32.to_le_bytes()).expect("four bytes fit")
    }

    fn connect(&mut self, address: &AddressBytes) -> Result<PeerAddr, ProviderError> {
        let bytes = address.as_slice().try_into().expect("four bytes");
        Ok(PeerAddr(u32::from_le_bytes(bytes).into()))
    }

    fn disconnect(&mut self, _: PeerAddr) {}

    unsafe fn register(
        &mut self,
        _: std::ptr::NonNull<u8>,
        _: usize,
        _: RemoteKey,
    ) -> Result<NoRegion, ProviderError> {
        Ok(NoRegion)
    }

    fn put_inject(&mut self, _: PeerAddr, _: &[u8], _: RemoteAddr) -> Result<(), PostError> {
        NOT_OFFERED.map(|_| ())
    }

    unsafe fn put(&mut self, _: PeerAddr, _: *const u8, _: usize, _: RemoteAddr, _: Tag) -> Post {
        NOT_OFFERED
    }

    unsafe fn get(&mut self, _: PeerAddr, _: *mut u8, _: usize, _: RemoteAddr, _: Tag) -> Post {
        NOT_OFFERED
    }

    unsafe fn atomic(
        &mut self,
        _: PeerAddr,
        _: *const u8,
        _: usize,
        _: RemoteAddr,
        _: Dtype,
        _: ReduceOp,
        _: Tag,
    ) -> Post {
        NOT_OFFERED
    }

    unsafe fn fetch_atomic(
        &mut self,
        _: PeerAddr,
        _: *const u8,
        result: *mut u8,
        _: usize,
        _: RemoteAddr,
        _: Dtype,
        _: ReduceOp,
        tag: Tag,
    ) -> Post {
        // SAFETY: writable for one element by the caller's promise.
        unsafe { result.cast::<u64>().write_unaligned(0) };
        self.done.push(tag);
        Ok(Accepted::Tracked)
    }

    unsafe fn compare_atomic(
        &mut self,
        to: PeerAddr,
        operand: *const u8,
        _: *const u8,
        result: *mut u8,
        at: RemoteAddr,
        dtype: Dtype,
        tag: Tag,
    ) -> Post {
        // SAFETY: the caller's promise is the same.
        unsafe { self.fetch_atomic(to, operand, result, 1, at, dtype, ReduceOp::Replace, tag) }
    }

    fn send(&mut self, to: PeerAddr, header: &[u8], payload: &[u8], _: SendClass) -> Result<(), PostError> {
        let packet = Header::decode(&mut Reader::new(header)).expect("the engine sends packets");
        let mut answer = packet;
        match packet.kind {
            PacketKind::Barrier | PacketKind::Reduce => {
                let below = self.size - (1 << packet.count) % self.size;
                answer.sender = Rank(below % self.size);
                self.inbox.push([&answer.encode()[..], payload].concat().into());
            }
            PacketKind::Batch => {
                let flags = BatchFlags(packet.flags);
                let mut reply = ReplyFlags::default();
                for (asked, said) in [
                    (BatchFlags::LOCK_SHARED, ReplyFlags::GRANT),
                    (BatchFlags::UNLOCK, ReplyFlags::UNLOCK_ACK),
                    (BatchFlags::DONE, ReplyFlags::DONE_ACK),
                    (BatchFlags::DETACHED, ReplyFlags::DETACHED),
                ] {
                    if flags.has(asked) {
                        reply |= said;
                    }
                }
                answer.kind = PacketKind::Reply;
                (answer.flags, answer.count) = (reply.0, 0);
                answer.sender = Rank(to.0 as u32);
                if reply != ReplyFlags::default() {
                    self.inbox.push(answer.encode().into());
                }
            }
            kind => panic!("no answer to {kind:?}"),
        }
        Ok(())
    }

    fn flush(&mut self, _: PeerAddr, _: Tag) -> Post {
        NOT_OFFERED
    }

    fn poll(&mut self, out: &mut CompletionBatch) -> usize {
        let mut count = 0;
        while out.room() > 0 {
            let Some(tag) = self.done.pop() else { break };
            out.push(Completion::Done(tag)).expect("there is room");
            count += 1;
        }
        while out.room() > 0 {
            let Some(packet) = self.inbox.pop() else { break };
            let data = std::ptr::NonNull::from(&packet[0]);
            let (len, buffer) = (packet.len(), self.lent.len() as u32);
            self.lent.push(Some(packet));
            out.push(Completion::Packet(ReceivedPacket { data, len, buffer })).expect("there is room");
            count += 1;
        }
        count
    }

    fn release(&mut self, packet: ReceivedPacket) {
        self.lent[packet.buffer as usize] = None;
        if self.lent.iter().all(Option::is_none) {
            self.lent.clear();
        }
    }
}

#[derive(Debug)]
struct Addresses(u32);

impl Bootstrap for Addresses {
    fn rank(&self) -> Rank {
        Rank(0)
    }

    fn size(&self) -> u32 {
        self.0
    }

    fn publish(&mut self, _: &AddressBytes) -> Result<(), BootstrapError> {
        Ok(())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        Ok(Lookup::Found(AddressBytes::new(&rank.0.to_le_bytes()).expect("four bytes fit")))
    }
}

type Rank0 = Engine<EverybodyElse, Addresses>;

fn wait(engine: &mut Rank0, mut sync: SyncCall) {
    for _ in 0..10_000_000 {
        if let Poll::Ready(done) = engine.poll(&mut sync) {
            return done.expect("it succeeds");
        }
        engine.progress();
    }
    panic!("hangs: {}", sync.waiting_for());
}

/// Bytes of one window and of everything else in a job of this size, after use.
fn held(size: u32, config: &Config) -> (usize, usize) {
    let mut native = NativeOps::default();
    native.fetch_atomic[Dtype::U64 as usize] = 1 << ReduceOp::Sum as u16;
    native.compare_atomic = 1 << Dtype::U64 as u32;
    let endpoint = EverybodyElse {
        size,
        limits: Limits {
            inject_bytes_max: 0,
            send_bytes_max: 4096,
            message_bytes_max: 1,
            outstanding_max: 1,
            receive_buffers: 64,
            order: Order::default(),
            put_completes: rma_core::provider::CompletionScope::Remote,
            needs_target_progress: true,
            vector_local_max: 1,
            vector_remote_max: 1,
        },
        native,
        inbox: Vec::new(),
        done: Vec::new(),
        lent: Vec::new(),
    };
    let mut engine = Engine::open(endpoint, Addresses(size), config.clone()).expect("it opens");
    let (window, sync) = engine.start_allocate(64, 8).expect("the window starts");
    wait(&mut engine, sync);
    let fresh = (engine.window_bytes(window), engine.shared_bytes());
    use_it(&mut engine, window, size);
    let is_words = config.lock_protocol == LockProtocol::Nic;
    assert_eq!(engine.counters().lock_atomics > u64::from(size), is_words, "every rank was locked so");
    let used = (engine.window_bytes(window), engine.shared_bytes());
    assert_eq!(fresh, used, "use does not grow it");
    let sync = engine.start_free(window).expect("it can be freed");
    wait(&mut engine, sync);
    (used.0.expect("the window exists"), used.1)
}

/// Many more targets than there are elements, far apart, and the window protocol with every rank.
fn use_it(engine: &mut Rank0, window: WindowId, size: u32) {
    let sync = engine.start_lock_all(window, false).expect("no epoch is open");
    wait(engine, sync);
    let value = 7u64.to_le_bytes();
    for step in 0..5000u32 {
        let target = Rank(1 + step.wrapping_mul(7919) % (size - 1));
        // SAFETY: `value` outlives the epoch.
        while unsafe { engine.put(window, target, 0, value.as_ptr(), 8) }.map(Result::unwrap).is_pending() {
            engine.progress();
        }
    }
    let sync = engine.start_unlock_all(window).expect("lock_all is open");
    wait(engine, sync);
}

/// Shows: seed: no O(P) data.
#[test]
fn a_window_of_a_million_ranks_holds_what_one_of_two_does() {
    let config = Config::default();
    let (window, shared) = held(2, &config);
    let (window_of_many, shared_of_many) = held(1 << 20, &config);
    println!("bytes per rank: window {window}, everything else {shared} (2 ranks), {shared_of_many} (2^20)");
    assert_eq!(window_of_many, window);
    assert!(window <= 64 * 1024);
    // Only the table of peers is smaller in a job that has fewer.
    assert!(shared_of_many <= shared + config.peers * 2 * 32);
    assert_eq!(held(1 << 14, &config).1, shared_of_many);
}

/// What a window may hold more where its lock is words.
const WORDS_BYTES: usize = 6 * 1024;

/// The same of one that is locked by words, of which every rank has its own.
///
/// Shows: seed: no O(P) data.
#[test]
fn so_does_one_that_is_locked_by_words() {
    let config = Config { lock_protocol: LockProtocol::Nic, ..Config::default() };
    let (by_message, _) = held(1 << 10, &Config::default());
    let (window, shared) = held(1 << 10, &config);
    println!(
        "bytes per rank: window {window}, which is {} more than one locked by messages",
        window - by_message
    );
    // The places of 32 ranks' words, a line of words, and the seats (docs/locks.md).
    assert!(window - by_message <= WORDS_BYTES, "{window} and {by_message}");
    let (window_of_many, shared_of_many) = held(1 << 20, &config);
    assert_eq!(window_of_many, window);
    assert!(window <= 64 * 1024, "{window}");
    assert!(shared_of_many <= shared + config.peers * 2 * 32);
    assert_eq!(held(1 << 14, &config).1, shared_of_many);
}
