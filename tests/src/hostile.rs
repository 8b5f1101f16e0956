//! Packets of any bytes: they never make a process panic, and never write outside a window.

use std::task::Poll;

use rma_core::bootstrap::{Bootstrap, Lookup};
use rma_core::config::Config;
use rma_core::engine::{Engine, PostAssert, StartAssert};
use rma_core::ghost::{Introduced, Wanted};
use rma_core::group::Group;
use rma_core::ids::{PeerAddr, Rank, WindowId};
use rma_core::lock::LockType;
use rma_core::provider::{Completion, CompletionBatch, Endpoint, NativeOps, SendClass};
use rma_core::wire::{Header, PacketKind};
use rma_sim::{FabricConfig, SimBootstrap, SimEndpoint, SimFabric};

/// Bytes of the window, and of the memory before and behind it that nobody may touch.
const WINDOW_BYTES: usize = 256;
const GUARD_BYTES: usize = 4096;
const GUARD: u8 = 0xa5;

/// Largest packet of the simulated fabric here.
const PACKET_BYTES: usize = 512;

/// Takes `input` for a sequence of packets, each behind two bytes of length, and sends them from rank 1
/// to the engine of rank 0, which has a window, an epoch of each kind in turn, and operations under way. Panics
/// when the engine does, or when memory outside the window has changed. The same packets go to the ghost of a rank,
/// which serves others afterwards.
pub fn feed(input: &[u8]) {
    for epoch in [Under::LockAll, Under::PostAndStart, Under::Complete] {
        feed_under(input, epoch);
    }
    feed_ghost(input);
}

/// What the victim has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Under {
    LockAll,
    PostAndStart,
    /// The same, and complete has returned before any post.
    Complete,
}

fn feed_under(input: &[u8], epoch: Under) {
    let mut memory = vec![GUARD; GUARD_BYTES + WINDOW_BYTES + GUARD_BYTES];
    memory[GUARD_BYTES..GUARD_BYTES + WINDOW_BYTES].fill(0);
    let mut results = [0u8; 64];
    let mut config = FabricConfig { native: NativeOps::default(), ..FabricConfig::unit(3) };
    config.limits.send_bytes_max = PACKET_BYTES;
    let fabric = SimFabric::new(config);
    {
        let mut victim = open(&fabric, 0);
        let mut attacker = fabric.open(1).expect("the attacker's endpoint opens");
        let mut attacker_bootstrap = fabric.bootstrap(1);
        let window = create(&fabric, &mut victim, &mut attacker, &mut attacker_bootstrap, &mut memory);
        match epoch {
            Under::LockAll => begin_epoch(&mut victim, window, &mut results),
            _ => begin_active_epochs(&mut victim, window, &mut results, epoch == Under::Complete),
        }
        attack(&fabric, &mut victim, &mut attacker, &mut attacker_bootstrap, input);
    }
    let (before, behind) = (&memory[..GUARD_BYTES], &memory[GUARD_BYTES + WINDOW_BYTES..]);
    assert!(before.iter().chain(behind).all(|&byte| byte == GUARD), "memory outside the window was written");
}

fn open(fabric: &SimFabric, rank: u32) -> Engine<SimEndpoint, SimBootstrap> {
    let config = Config { lock_waiters: 2, deferred_bytes: 128, reply_buffers: 2, ..Config::default() };
    let endpoint = fabric.open(rank).expect("the endpoint opens");
    Engine::open(endpoint, fabric.bootstrap(rank), config).expect("the engine opens")
}

/// Makes the victim's window. The other ranks' part in it is played by engines that then go away, all
/// but the attacker's endpoint.
fn create(
    fabric: &SimFabric,
    victim: &mut Engine<SimEndpoint, SimBootstrap>,
    attacker: &mut SimEndpoint,
    attacker_bootstrap: &mut SimBootstrap,
    memory: &mut [u8],
) -> WindowId {
    let base = memory[GUARD_BYTES..].as_mut_ptr();
    // SAFETY: `memory` outlives the victim and is not touched while it lives.
    let started = unsafe { victim.start_create(base, WINDOW_BYTES, 1) };
    let (window, mut sync) = started.expect("the window starts");
    attacker_bootstrap.publish(&attacker.address()).expect("the attacker publishes");
    let mut third = open(fabric, 2);
    let (_, mut third_sync) = third.start_allocate(WINDOW_BYTES, 1).expect("the window starts");
    // Rank 1's rounds of the reduction, echoed: it agrees with whatever it hears.
    let mut batch = CompletionBatch::new();
    for _ in 0..10_000 {
        victim.progress();
        third.progress();
        attacker.poll(&mut batch);
        while let Some(completion) = batch.pop() {
            if let Completion::Packet(packet) = completion {
                // SAFETY: lent by this endpoint's poll, released below.
                let mut bytes = unsafe { packet.bytes() }.to_vec();
                attacker.release(packet);
                // Rank 1's packet of the same round goes to the rank 2^round above it.
                let to = (1 + (1 << bytes[2])) % 3;
                bytes[8] = 1;
                send(fabric, attacker, attacker_bootstrap, to, &bytes);
            }
        }
        fabric.advance();
        let done = victim.poll(&mut sync).is_ready();
        if third.poll(&mut third_sync).is_ready() && done {
            return window;
        }
    }
    panic!("the window is not made: {}", sync.waiting_for());
}

/// Leaves an exposure epoch open to ranks 1 and 2, and an access epoch with operations to rank 1 that wait for
/// its post, if `is_completed` after complete has returned.
fn begin_active_epochs(
    victim: &mut Engine<SimEndpoint, SimBootstrap>,
    window: WindowId,
    results: &mut [u8; 64],
    is_completed: bool,
) {
    let group = Group::new(&[Rank(1), Rank(2)], 3).expect("ranks of the job");
    let post = victim.start_post(window, &group, PostAssert::default());
    assert!(victim.poll(&mut post.expect("post starts")).is_ready());
    let start = victim.start_start(window, &group, StartAssert::default());
    assert!(victim.poll(&mut start.expect("start starts")).is_ready());
    for disp in [0, 248, 252] {
        let data = results.as_ptr();
        // SAFETY: `results` outlives the victim.
        let put = unsafe { victim.put(window, Rank(1), disp, data, 8) };
        assert!(matches!(put, Poll::Ready(_)));
    }
    if is_completed {
        let complete = victim.start_complete(window);
        assert!(victim.poll(&mut complete.expect("complete starts")).is_ready());
    }
}

/// Leaves operations to ranks 1 and 2 in every state.
fn begin_epoch(victim: &mut Engine<SimEndpoint, SimBootstrap>, window: WindowId, results: &mut [u8; 64]) {
    let lock = victim.start_lock_all(window, false);
    let mut lock = lock.expect("lock_all starts");
    assert!(victim.poll(&mut lock).is_ready());
    for target in [1, 2] {
        for index in 0..3usize {
            let result = results[16 * index..].as_mut_ptr();
            // SAFETY: `results` outlives the victim.
            let got = unsafe { victim.get(window, Rank(target), 0, result, 16) };
            assert!(matches!(got, Poll::Ready(Ok(()))));
        }
    }
    let flush = victim.start_flush(window, Rank(1));
    drop(flush);
    // A lock that nobody holds is asked for while the own window is locked.
    let _ = victim.start_lock(window, Rank(1), LockType::Exclusive, false);
}

fn attack(
    fabric: &SimFabric,
    victim: &mut Engine<SimEndpoint, SimBootstrap>,
    attacker: &mut SimEndpoint,
    attacker_bootstrap: &mut SimBootstrap,
    input: &[u8],
) {
    for packet in packets(input) {
        send(fabric, attacker, attacker_bootstrap, 0, packet);
        for _ in 0..3 {
            fabric.advance();
            victim.progress();
            drain(attacker);
        }
    }
}

fn send(fabric: &SimFabric, from: &mut SimEndpoint, bootstrap: &mut SimBootstrap, to: u32, packet: &[u8]) {
    let Ok(Lookup::Found(address)) = bootstrap.lookup(Rank(to)) else { return };
    let Ok(peer) = from.connect(&address) else { return };
    post(fabric, from, peer, packet);
}

/// Who asks the ghost for something when the attack is over.
const HONEST: u32 = 3;

fn feed_ghost(input: &[u8]) {
    let mut memory = vec![GUARD; GUARD_BYTES + WINDOW_BYTES + GUARD_BYTES];
    memory[GUARD_BYTES..GUARD_BYTES + WINDOW_BYTES].fill(0);
    let mut config = FabricConfig { native: NativeOps::default(), ..FabricConfig::unit(4) };
    config.limits.send_bytes_max = PACKET_BYTES;
    let fabric = SimFabric::new(config);
    {
        let config = Config { lock_waiters: 2, deferred_bytes: 128, reply_buffers: 2, ..Config::default() };
        let mut ghost =
            Engine::serve(fabric.open(0).expect("the ghost's endpoint opens"), Rank(0), 4, &config);
        let [mut attacker, mut bystander, mut honest] =
            [1, 2, HONEST].map(|rank| fabric.open(rank).expect("the endpoint opens"));
        serve_window(&mut ghost, &mut memory);
        let to = honest.connect(&ghost.ghost_address()).expect("the ghost is there");
        let mut listeners = [&mut attacker, &mut bystander];
        say(&fabric, &mut honest, to, PacketKind::Introduction, HONEST);
        let from = listeners[0].connect(&ghost.ghost_address()).expect("the ghost is there");
        say(&fabric, listeners[0], from, PacketKind::Introduction, 1);
        haunt(&fabric, &mut ghost, &mut listeners, 3);
        for packet in packets(input) {
            post(&fabric, listeners[0], from, packet);
            haunt(&fabric, &mut ghost, &mut listeners, 3);
        }
        let was_told_of_losses = ghost.counters().packets_received[PacketKind::Losses as usize] > 0;
        say(&fabric, &mut honest, to, PacketKind::MetadataRequest, HONEST);
        // Packets in the honest rank's name have answers of their own, which must not be in the way.
        let is_answered = (0..100).any(|_| {
            haunt(&fabric, &mut ghost, &mut listeners, 1);
            drain(&mut honest).contains(&(PacketKind::MetadataReply as u8))
        });
        // Who was said to be dead is not answered.
        assert!(was_told_of_losses || is_answered, "the ghost does not answer any more");
    }
    let (before, behind) = (&memory[..GUARD_BYTES], &memory[GUARD_BYTES + WINDOW_BYTES..]);
    assert!(before.iter().chain(behind).all(|&byte| byte == GUARD), "memory outside the window was written");
}

fn serve_window(ghost: &mut Engine<SimEndpoint, Introduced>, memory: &mut [u8]) {
    let window = WindowId(0);
    let wanted = Wanted { window, len: WINDOW_BYTES, disp_unit: 1, alignment: 0, is_registered: false };
    let base = memory[GUARD_BYTES..].as_mut_ptr();
    // SAFETY: `memory` outlives the ghost and is not touched while it lives.
    unsafe { ghost.add_window(&wanted, base, Box::new(())) }.expect("the window is served");
}

/// Sends a packet of a header, and of the sender's own address if it introduces itself.
fn say(fabric: &SimFabric, from: &mut SimEndpoint, to: PeerAddr, kind: PacketKind, sender: u32) {
    let header = Header { kind, flags: 0, count: 0, window: WindowId(0), sender: Rank(sender), token: 0 };
    let mut packet = header.encode().to_vec();
    if kind == PacketKind::Introduction {
        packet.extend(from.address().as_slice());
    }
    post(fabric, from, to, &packet);
}

/// Lets things happen so many times.
fn haunt(
    fabric: &SimFabric,
    ghost: &mut Engine<SimEndpoint, Introduced>,
    listeners: &mut [&mut SimEndpoint; 2],
    times: usize,
) {
    for _ in 0..times {
        fabric.advance();
        ghost.progress();
        for listener in &mut *listeners {
            drain(listener);
        }
    }
}

/// Takes every packet that has come; their kinds, as the first byte says them.
fn drain(endpoint: &mut SimEndpoint) -> Vec<u8> {
    let mut batch = CompletionBatch::new();
    let mut kinds = Vec::new();
    // What does not fit into one batch comes with the next.
    loop {
        endpoint.poll(&mut batch);
        if batch.is_empty() {
            return kinds;
        }
        while let Some(completion) = batch.pop() {
            if let Completion::Packet(packet) = completion {
                // SAFETY: the packet was not released.
                kinds.extend(unsafe { packet.bytes() }.first());
                endpoint.release(packet);
            }
        }
    }
}

/// The packets of an input.
fn packets(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = input.split_first_chunk::<2>()?;
        let len = (u16::from_le_bytes(*length) as usize).min(rest.len()).min(PACKET_BYTES);
        let (packet, rest) = rest.split_at(len);
        input = rest;
        Some(packet)
    })
}

fn post(fabric: &SimFabric, from: &mut SimEndpoint, peer: PeerAddr, packet: &[u8]) {
    for _ in 0..100 {
        if packet.is_empty() || from.send(peer, packet, &[], SendClass::Request).is_ok() {
            return;
        }
        fabric.advance();
    }
}
