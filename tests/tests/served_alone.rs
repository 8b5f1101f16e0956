//! A packet that holds one atomic of one element is served in a way of its own. One byte behind the record, which says nothing, and it
//! is served as every batch: an origin that is played by an endpoint alone sends both, and hears the same.
#![allow(unsafe_code)] // reads packets that endpoints lend, and a window's memory

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::Engine;
use rma_core::ids::{PeerAddr, Rank, WindowId};
use rma_core::op::ReduceOp;
use rma_core::provider::{Completion, CompletionBatch, Endpoint, SendClass};
use rma_core::wire::{BatchFlags, Header, Notifies, OpKind, PacketKind, Record, Writer};
use rma_sim::{FabricConfig, SimBootstrap, SimEndpoint, SimFabric};

const WINDOW_BYTES: usize = 64;

/// A target, and an origin without an engine.
struct Pair {
    fabric: SimFabric,
    target: Engine<SimEndpoint, SimBootstrap>,
    window: WindowId,
    origin: SimEndpoint,
    peer: PeerAddr,
}

impl Pair {
    fn new() -> Self {
        let fabric = SimFabric::new(FabricConfig::unit(2));
        let open = |rank| fabric.open(rank).expect("the endpoint opens");
        let opened = Engine::open(open(0), fabric.bootstrap(0), Config::default());
        let (mut target, mut origin) = (opened.expect("the engine opens"), open(1));
        fabric.bootstrap(1).publish(&origin.address()).expect("it publishes");
        // It can be accessed before all ranks know that.
        let (window, _sync) = target.start_allocate(WINDOW_BYTES, 1).expect("the window starts");
        let peer = origin.connect(&target.endpoint().address()).expect("the target is there");
        Self { fabric, target, window, origin, peer }
    }

    /// A copy of the window.
    fn memory(&self) -> Vec<u8> {
        let (base, len) = self.target.window_memory(self.window).expect("the window is there");
        // SAFETY: the window owns `len` bytes at `base`, and nothing runs meanwhile.
        unsafe { std::slice::from_raw_parts(base, len) }.to_vec()
    }

    /// What is answered to a batch of this record, with so many bytes behind it.
    fn ask(&mut self, flags: BatchFlags, record: &Record, behind: usize) -> Vec<Vec<u8>> {
        let (kind, window, sender) = (PacketKind::Batch, self.window, Rank(1));
        let header = Header { kind, flags: flags.0, count: 1, window, sender, token: 77 };
        let mut packet: [u8; 128] = core::array::from_fn(|index| index as u8);
        let mut out = Writer::new(&mut packet, 0);
        assert!(out.put(&header.encode()) && record.encode(&mut out));
        let len = out.len() + record.payload_bytes() + behind;
        self.origin.send(self.peer, &packet[..len], &[], SendClass::Request).expect("there is room");
        while self.fabric.advance().is_some() {
            self.target.progress();
        }
        let (mut batch, mut answers) = (CompletionBatch::new(), Vec::new());
        self.origin.poll(&mut batch);
        while let Some(completion) = batch.pop() {
            let Completion::Packet(packet) = completion else { continue };
            // SAFETY: the packet was not released.
            answers.push(unsafe { packet.bytes() }.to_vec());
            self.origin.release(packet);
        }
        answers
    }
}

/// Everything that can be asked so: with a result and without, in the window and outside, defined and not.
fn records() -> impl Iterator<Item = Record> {
    let kinds = [OpKind::Put, OpKind::Get, OpKind::Accumulate, OpKind::GetAccumulate, OpKind::CompareAndSwap];
    let dtypes = [Dtype::U8, Dtype::I32, Dtype::U64, Dtype::F64];
    let ops = [ReduceOp::Sum, ReduceOp::NoOp, ReduceOp::Replace, ReduceOp::BitXor];
    let codes = kinds.into_iter().flat_map(move |kind| dtypes.map(|dtype| (kind, dtype)));
    let codes = codes.flat_map(move |(kind, dtype)| ops.map(|op| (kind, dtype, op)));
    codes.flat_map(|(kind, dtype, op)| {
        let (handle, generation) = if kind.has_result() { (3, 4) } else { (0, 0) };
        let len = dtype.size() as u32;
        [0, 8, 13, 60, 64, u64::MAX].map(|disp| Record {
            kind,
            dtype,
            op,
            len,
            disp,
            offset: 0,
            handle,
            generation,
            notifies: Notifies::No,
        })
    })
}

#[test]
fn an_atomic_alone_is_answered_as_a_batch_of_it() {
    let (mut alone, mut in_batch) = (Pair::new(), Pair::new());
    let all = [
        BatchFlags::default(),
        BatchFlags::DONE,
        BatchFlags::ACK_WITH_RESULT,
        BatchFlags::DONE | BatchFlags::ACK_WITH_RESULT,
    ];
    let mut answers = [0; 3];
    for (flags, record) in all.into_iter().flat_map(|flags| records().map(move |record| (flags, record))) {
        let (first, second) = (alone.ask(flags, &record, 0), in_batch.ask(flags, &record, 1));
        assert_eq!(first, second, "{flags:?}, {record:?}");
        answers[first.len()] += 1;
        assert_eq!(alone.memory(), in_batch.memory(), "{flags:?}, {record:?}");
        let [mut counters, other] = [&alone, &in_batch].map(|pair| pair.target.counters());
        // The bytes behind the records.
        counters.packet_bytes_received = other.packet_bytes_received;
        assert_eq!(counters, other, "{flags:?}, {record:?}");
    }
    assert!(answers.iter().all(|&count| count > 50), "with none, one and two answers: {answers:?}");
}
