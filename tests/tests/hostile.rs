//! Replays the fuzzer's corpus, and a bounded random attack, on every `cargo test`.
#![allow(unsafe_code)] // reads packets that endpoints lend

use std::path::Path;
use std::sync::OnceLock;

use rma_conformance::constructors;
use rma_conformance::hostile::feed;
use rma_conformance::simulated;
use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::Engine;
use rma_core::ids::{Rank, WindowId};
use rma_core::info::LockProtocol;
use rma_core::layout::Run;
use rma_core::lock::LockType::Exclusive;
use rma_core::op::ReduceOp;
use rma_core::provider::{Completion, CompletionBatch, Endpoint, SendClass};
use rma_core::wire::{
    encode_data, BatchFlags, Header, Notifies, OpKind, PacketKind, PostFlags, Purposes, QueryFlags, Reader,
    Record, ReplyFlags, ResultRecord, RunTable, Writer,
};
use rma_sim::{FabricConfig, Random, SimEndpoint, SimFabric};

#[test]
fn the_corpus_is_harmless() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/packets");
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
        let bytes = std::fs::read(entry.expect("an entry").path()).expect("a readable file");
        feed(&bytes);
        count += 1;
    }
    assert!(count >= 10, "only {count} files");
}

/// The corpus of layouts, and as many random ones.
#[test]
fn layouts_of_any_bytes_are_sound() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/layouts");
    let mut count = 0;
    for entry in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
        constructors::feed(&std::fs::read(entry.expect("an entry").path()).expect("a readable file"));
        count += 1;
    }
    assert!(count >= 8, "only {count} files");
    let mut random = Random::new(0x1a);
    for _ in 0..20_000 {
        let mut input = vec![0; random.between(1, 80) as usize];
        random.fill(&mut input);
        constructors::feed(&input);
    }
}

/// Packets that are nearly right go further than noise does.
#[test]
fn nearly_right_packets_are_harmless() {
    let mut random = Random::new(0x5eed);
    for _ in 0..5000 {
        let mut input = Vec::new();
        for _ in 0..random.between(1, 12) {
            let packet = nearly_right(&mut random);
            input.extend((packet.len() as u16).to_le_bytes());
            input.extend(packet);
        }
        feed(&input);
    }
}

/// Data with which puts may come that say nothing, or what cannot be: counted, and no more.
#[test]
fn data_that_make_no_sense_are_counted() {
    let fabric = SimFabric::new(FabricConfig::unit(3));
    let open = |rank| fabric.open(rank).expect("the endpoint opens");
    let mut victim = Engine::open(open(0), fabric.bootstrap(0), Config::default()).expect("the engine opens");
    let mut attacker = open(1);
    let peer = attacker.connect(&victim.endpoint().address()).expect("the victim is there");
    let unlock = |window, sender, bytes| {
        let data = encode_data(BatchFlags::UNLOCK, WindowId(window), Rank(sender), bytes);
        data.expect("it fits").to_le_bytes()[..bytes].to_vec()
    };
    let strange = [vec![0; 4], vec![3, 0, 0, 0], vec![9; 8], unlock(0, 1, 4), unlock(1023, 2, 4)];
    let strangers = [unlock(0, 3, 4), unlock(0, 0, 4), unlock(1 << 20, u32::MAX, 8)];
    for (index, data) in strange.iter().chain(&strangers).enumerate() {
        attacker.send(peer, data, &[], SendClass::Request).expect("there is room");
        while fabric.advance().is_some() {
            victim.progress();
        }
        victim.progress();
        let counters = victim.counters();
        assert_eq!(counters.malformed_packets, index as u64 + 1, "{data:?}");
        assert_eq!(counters.packets_received.iter().sum::<u64>(), 0, "they are no packets");
    }
}

/// Data that come while requests wait for reply buffers wait too, what says nothing new is dropped and counted, the room
/// does not grow; and however many there are, what another rank has to say comes through.
#[test]
fn data_without_end_do_not_pile_up() {
    const RANKS: u32 = 3;
    let mut limits = FabricConfig::unit(RANKS);
    limits.limits.receive_buffers = 8;
    let fabric = SimFabric::new(limits);
    let config = Config { reply_buffers: 1, ..Config::default() };
    let mut victim =
        Engine::open(fabric.open(0).expect("it opens"), fabric.bootstrap(0), config).expect("opens");
    let (window, _sync) = victim.start_allocate(64, 1).expect("the window starts");
    let room = victim.shared_bytes();
    let [mut attacker, mut honest] = [1, 2].map(|rank| join(&fabric, rank));
    let address = victim.endpoint().address();
    let [peer, honest_peer] =
        [&mut attacker, &mut honest].map(|endpoint| endpoint.connect(&address).expect("the victim is there"));
    let header = |kind, sender, flags: BatchFlags| {
        Header { kind, flags: flags.0, count: 0, window, sender: Rank(sender), token: 0 }.encode()
    };
    let data = |flags, window, sender| {
        encode_data(flags, WindowId(window), Rank(sender), 4).expect("it fits").to_le_bytes()
    };
    let step = |victim: &mut Engine<_, _>| {
        while fabric.advance().is_some() {}
        victim.progress();
    };
    let lock = header(PacketKind::Batch, 2, BatchFlags::LOCK_EXCLUSIVE);
    honest.send(honest_peer, &lock, &[], SendClass::Request).expect("there is room");
    let granted = (0..10).flat_map(|_| {
        step(&mut victim);
        replies(&mut honest)
    });
    assert_eq!(granted.last(), Some(ReplyFlags::GRANT));
    // Nobody takes the answers, so at last none can be given, and what comes then waits.
    let ask = header(PacketKind::MetadataRequest, 1, BatchFlags::default());
    let is_answered = (1..1000).all(|requests| {
        attacker.send(peer, &ask, &[], SendClass::Request).expect("there is room");
        step(&mut victim);
        victim.counters().packets_received[PacketKind::MetadataRequest as usize] == requests
    });
    assert!(!is_answered, "answers are always given");
    let all_locks = BatchFlags::UNLOCK | BatchFlags::OVERTAKE;
    let new = [BatchFlags::UNLOCK, BatchFlags::COMPLETE, all_locks].map(|flags| data(flags, window.0, 1));
    let in_the_name_of_the_honest = data(BatchFlags::COMPLETE, window.0, 2);
    let strange = [(window.0 + 7, 1), (window.0, RANKS), (window.0, 0)];
    let strange = strange.map(|(window, sender)| data(BatchFlags::UNLOCK, window, sender));
    let flood = new.iter().chain([&in_the_name_of_the_honest, &[0; 8]]).chain(&strange).cycle().take(500);
    let sent = flood.filter(|data| {
        let is_sent = attacker.send(peer, &data[..4], &[], SendClass::Request).is_ok();
        step(&mut victim);
        is_sent
    });
    let sent = sent.count() as u64;
    let dropped = victim.counters().malformed_packets;
    let unlock = data(BatchFlags::UNLOCK, window.0, 2);
    honest.send(honest_peer, &unlock[..4], &[], SendClass::Request).expect("there is room");
    step(&mut victim);
    assert_eq!(victim.counters().malformed_packets, dropped, "the honest rank has said so once");
    assert!(sent > 400);
    assert_eq!(sent - dropped, 4, "one for each thing that can be said");
    assert_eq!(victim.shared_bytes(), room);
    let mut answers = Vec::new();
    for _ in 0..1000 {
        replies(&mut attacker);
        answers.extend(replies(&mut honest));
        step(&mut victim);
    }
    assert!(answers.contains(&ReplyFlags::UNLOCK_ACK), "{answers:?}");
}

/// A rank without an engine, that says what it likes.
fn join(fabric: &SimFabric, rank: u32) -> SimEndpoint {
    let endpoint = fabric.open(rank).expect("the endpoint opens");
    fabric.bootstrap(rank).publish(&endpoint.address()).expect("it publishes");
    endpoint
}

/// The flags of the replies that have come, and nothing is kept of the others.
fn replies(endpoint: &mut SimEndpoint) -> Vec<ReplyFlags> {
    let mut batch = CompletionBatch::new();
    let mut flags = Vec::new();
    endpoint.poll(&mut batch);
    while let Some(completion) = batch.pop() {
        let Completion::Packet(packet) = completion else { continue };
        // SAFETY: the packet was not released.
        let header = Header::decode(&mut Reader::new(unsafe { packet.bytes() }));
        endpoint.release(packet);
        let header = header.expect("an engine sends whole packets");
        flags.extend((header.kind == PacketKind::Reply).then_some(ReplyFlags(header.flags)));
    }
    flags
}

/// Who asks for a share three times, before it has one, has one: when it has given that back, or is dead, nothing is left
/// of the others, and one who wants to be alone is.
#[test]
fn nobody_waits_for_two_shares() {
    const BROKEN: u32 = 2;
    for (how, dies) in [
        (BatchFlags::default(), false),
        (BatchFlags::default(), true),
        (BatchFlags::OVERTAKE, false),
        (BatchFlags::OVERTAKE, true),
    ] {
        let fabric = SimFabric::new(FabricConfig::unit(3));
        let config = Config { lock_protocol: LockProtocol::Nic, ..Config::default() };
        let mut world = simulated::world(&fabric, 3, &config, |endpoint, _| endpoint);
        let window = world.allocate(64);
        // Its part is played by an endpoint alone from now on.
        drop(world.engines.pop());
        let mut attacker = fabric.open(BROKEN).expect("the endpoint opens");
        let peer = attacker.connect(&world.engines[0].endpoint().address()).expect("the victim is there");
        let mut say = |flags: BatchFlags| {
            let (kind, sender) = (PacketKind::Batch, Rank(BROKEN));
            let header = Header { kind, flags: (flags | how).0, count: 0, window, sender, token: 0 };
            attacker.send(peer, &header.encode(), &[], SendClass::Request).expect("there is room");
            while fabric.advance().is_some() {}
        };
        for _ in 0..3 {
            say(BatchFlags::LOCK_SHARED);
        }
        world.settle();
        assert_eq!(world.counters(0).packets_received[PacketKind::Batch as usize], 3);
        match dies {
            true => fabric.kill_silently(BROKEN),
            false => say(BatchFlags::UNLOCK),
        }
        world.settle();
        world.lock(1, window, 0, Exclusive).expect("it can be locked");
        world.put(1, window, 0, 0, &[7; 8]).expect("it can be written");
        world.unlock(1, window, 0).expect("it can be unlocked");
    }
}

/// Who asks whether a window is exposed may hear the notice first, and free the window before the answer is there: that is
/// no packet without sense, unlike a notice of such a window, or an answer about one that never was.
#[test]
fn an_answer_may_come_when_its_window_is_gone() {
    let fabric = SimFabric::new(FabricConfig::unit(2));
    let mut world = simulated::world(&fabric, 2, &Config::default(), |endpoint, _| endpoint);
    let window = world.allocate(64);
    world.free(window).expect("it is free");
    // Its part is played by an endpoint alone from now on.
    drop(world.engines.pop());
    let mut other = fabric.open(1).expect("the endpoint opens");
    let peer = other.connect(&world.engines[0].endpoint().address()).expect("the rank is there");
    let notice = PostFlags::default();
    for (flags, window, count) in
        [(PostFlags::ANSWER, window, 0), (notice, window, 1), (PostFlags::ANSWER, WindowId(9), 2)]
    {
        let header =
            Header { kind: PacketKind::Post, flags: flags.0, count: 0, window, sender: Rank(1), token: 1 };
        other.send(peer, &header.encode(), &[], SendClass::Reply).expect("there is room");
        world.settle();
        assert_eq!(world.counters(0).malformed_packets, count, "{flags:?} of {window:?}");
    }
}

fn nearly_right(random: &mut Random) -> Vec<u8> {
    if random.chance(60) {
        return nearly_right_data(random);
    }
    if random.chance(100) {
        return nearly_alone(random);
    }
    let kinds = [
        PacketKind::Batch,
        PacketKind::Reply,
        PacketKind::Barrier,
        PacketKind::MetadataReply,
        PacketKind::Post,
        PacketKind::PostQuery,
        PacketKind::Introduction,
        PacketKind::MetadataRequest,
        PacketKind::Losses,
    ];
    let kind = random.pick(&kinds);
    let known = match kind {
        PacketKind::Batch => BatchFlags::ALL.0,
        PacketKind::Reply => ReplyFlags::ALL.0,
        PacketKind::Post => PostFlags::ALL.0,
        PacketKind::PostQuery => QueryFlags::ALL.0,
        PacketKind::Barrier => Purposes::ALL.bits(),
        _ => 0,
    };
    let header = Header {
        kind,
        flags: (random.bits() & random.bits()) as u16 & known,
        count: random.pick(&[0, 1, 1, 2, 3, 255]),
        window: WindowId(random.pick(&[0, 0, 0, 0, 1])),
        sender: Rank(random.pick(&[1, 1, 1, 1, 2, 0])),
        token: random.pick(&[0, 1, 2, u32::MAX]),
    };
    let mut buffer = [0; 512];
    let mut out = Writer::new(&mut buffer, 0);
    let mut is_written = out.put(&header.encode());
    for _ in 0..random.below(4) {
        is_written = is_written && body(header.kind, random, &mut out);
    }
    let len = out.len();
    spoil(random, &buffer[..len])
}

/// An atomic of one element that asks for its answer, which is served in a way of its own.
fn nearly_alone(random: &mut Random) -> Vec<u8> {
    let header = Header {
        kind: PacketKind::Batch,
        flags: random.pick(&[BatchFlags::DONE, BatchFlags::ACK_WITH_RESULT]).0,
        count: 1,
        window: WindowId(random.pick(&[0, 0, 0, 0, 1])),
        sender: Rank(random.pick(&[1, 1, 1, 1, 2, 0])),
        token: random.pick(&[0, 1, 2, u32::MAX]),
    };
    let dtype = random.pick(&Dtype::ALL);
    let record = Record {
        kind: random.pick(&[OpKind::Accumulate, OpKind::GetAccumulate, OpKind::CompareAndSwap]),
        dtype,
        op: random.pick(&ReduceOp::ALL),
        len: dtype.size() as u32,
        disp: random.pick(&[0, 3, 8, 248, 249, 255, 256, 1 << 61, u64::MAX]),
        offset: 0,
        handle: random.pick(&[0, 1, u32::MAX]),
        generation: 1,
        notifies: Notifies::No,
    };
    let mut buffer = [0; 128];
    random.fill(&mut buffer);
    let mut out = Writer::new(&mut buffer, 0);
    assert!(out.put(&header.encode()) && record.encode(&mut out), "it fits");
    let len = out.len() + record.payload_bytes();
    spoil(random, &buffer[..len])
}

/// Now and then another byte than it was, or fewer bytes.
fn spoil(random: &mut Random, packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    for byte in &mut packet {
        if random.chance(5) {
            *byte = random.bits() as u8;
        }
    }
    if random.chance(50) {
        packet.truncate(random.index(packet.len()));
    }
    packet
}

fn nearly_right_data(random: &mut Random) -> Vec<u8> {
    let flags = random.pick(&[BatchFlags::UNLOCK, BatchFlags::COMPLETE]);
    let (window, sender) = (random.pick(&[0, 0, 0, 1]), random.pick(&[1, 1, 1, 2, 0, 3]));
    let bytes = random.pick(&[4, 8]);
    let data = encode_data(flags, WindowId(window), Rank(sender), bytes).expect("it fits");
    let noise = if random.chance(50) { random.bits() } else { 0 };
    (data ^ noise).to_le_bytes()[..bytes].to_vec()
}

/// Where those are whom the attacker says to be: its own address, a bystander's, the ghost's, and nobody's.
fn addresses() -> &'static [[u8; 8]; 4] {
    static ADDRESSES: OnceLock<[[u8; 8]; 4]> = OnceLock::new();
    ADDRESSES.get_or_init(|| {
        let fabric = SimFabric::new(FabricConfig::unit(3));
        let of = |rank| {
            let address = fabric.open(rank).expect("the endpoint opens").address();
            address.as_slice().try_into().expect("the simulated fabric's addresses have 8 bytes")
        };
        [of(1), of(2), of(0), [7; 8]]
    })
}

/// A record that belongs into a packet of this kind.
fn body(kind: PacketKind, random: &mut Random, out: &mut Writer<'_>) -> bool {
    let handle = random.pick(&[0, 1, 2, 3, 4, 5, u32::MAX]);
    let generation = random.pick(&[0, 1, 1, 1, 2]);
    let mut payload = [0; 128];
    random.fill(&mut payload);
    if kind == PacketKind::Reply {
        let result = ResultRecord {
            handle,
            generation,
            len: random.pick(&[0, 8, 16, 17, 64]),
            offset: random.pick(&[0, 0, 1, 8, u64::MAX]),
        };
        return result.encode(out) && out.put(&payload[..result.len as usize]);
    }
    if kind == PacketKind::Introduction {
        return out.put(&random.pick(addresses()));
    }
    if kind == PacketKind::Losses {
        return out.put(&random.pick(&[0u32, 1, 2, 2, 9, u32::MAX]).to_le_bytes());
    }
    let record = Record {
        kind: random.pick(&[
            OpKind::Put,
            OpKind::Get,
            OpKind::Accumulate,
            OpKind::GetAccumulate,
            OpKind::CompareAndSwap,
        ]),
        dtype: random.pick(&Dtype::ALL),
        op: random.pick(&ReduceOp::ALL),
        len: random.pick(&[0, 1, 2, 4, 8, 8, 64, 300]),
        disp: random.pick(&[0, 8, 200, 248, 249, 255, 256, 257, u64::MAX]),
        offset: random.pick(&[0, 0, 0, 8, 255, u64::MAX]),
        handle,
        generation,
        notifies: random.pick(&[Notifies::No, Notifies::No, Notifies::Yes, Notifies::After]),
    };
    let payload_bytes = record.payload_bytes();
    let table = if random.chance(400) { table(random, record.len.into()) } else { Vec::new() };
    let is_written = payload_bytes <= payload.len() && record.encode_with(&table, out);
    is_written && out.put(&payload[..payload_bytes])
}

/// A run table that is nearly that of `len` bytes in the window of 256 bytes.
fn table(random: &mut Random, len: u64) -> Vec<u8> {
    let mut table = RunTable::new();
    let mut left = len;
    for _ in 0..random.between(1, 5) {
        let block = random.pick(&[1, 2, 4, 8, 8, 16, 64, 1 << 40, u64::MAX >> 1]);
        let count = random.pick(&[1, 1, 2, 3, 8, 1000, u64::MAX]);
        let fitting = Run {
            offset: random.pick(&[0, 0, 8, 16, 100, 248, 255]),
            len: block.min(left).max(1),
            count: count.min(left / block.min(left).max(1)).max(1),
            stride: random.pick(&[0, 8, 16, -8, 24]),
        };
        let wild = Run {
            offset: random.pick(&[-1, -300, 256, i64::MIN, i64::MAX]),
            len: block,
            count,
            stride: random.pick(&[i64::MIN, i64::MAX, -1, 1 << 40]),
        };
        let run = if random.chance(150) { wild } else { fitting };
        left = left.saturating_sub(run.len.saturating_mul(run.count));
        if !table.push(&run, 200) {
            break;
        }
    }
    table.bytes().to_vec()
}
