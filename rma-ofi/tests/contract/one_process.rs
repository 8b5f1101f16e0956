//! Bodies of the contract's lines that one process can show. Each takes a world and fails by
//! panicking; each is bounded by the world's time limit.

use std::time::{Duration, Instant};

use rma_core::bootstrap::AddressBytes;
use rma_core::ids::{PeerAddr, Tag};
use rma_core::provider::{Accepted, CompletionScope, Endpoint, Limits, PostError, SendClass};

use crate::world::{Window, World};

/// A pattern that differs from put to put.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|index| (index.wrapping_mul(31) ^ seed.wrapping_mul(0x9e37_79b9)) as u8).collect()
}

/// Line 1: no call blocks or allocates. The peer does not poll, so everything piles up.
pub(crate) fn line_1_no_call_blocks_or_allocates<E: Endpoint>(
    mut world: World<E>,
    allocations: fn() -> usize,
) {
    let window = Window::<E>::new(&mut world.nodes[1].ep, 4096, 1);
    // Connections are made on first use.
    world.put(0, 1, &[1; 8], window.at(0), 1);
    world.send(0, 1, b"first", b"");
    world.receive(1);
    world.nodes[0].outcomes.reserve(100_000);

    let src = [7u8; 64];
    let before = allocations();
    let mut slowest = Duration::ZERO;
    for tag in 2..20_002 {
        let watch = Watch::start();
        let peer = world.nodes[0].peers[1];
        // SAFETY: the source outlives the drain below.
        let put = unsafe { world.nodes[0].ep.put(peer, src.as_ptr(), src.len(), window.at(64), Tag(tag)) };
        let send = world.nodes[0].ep.send(peer, &src[..40], &src, SendClass::Request);
        world.nodes[0].poll();
        slowest = slowest.max(watch.own_time());
        if put.is_err() && send.is_err() {
            break;
        }
    }
    assert_eq!(allocations(), before, "posting and polling allocate");
    assert!(slowest < Duration::from_secs(2), "a call took {slowest:?}");
    drain(&mut world, 1);
}

/// What a piece of work costs this thread by its own doing.
struct Watch {
    begun: Instant,
    processor: Duration,
    sleeps: libc::c_long,
}

impl Watch {
    fn start() -> Self {
        // SAFETY: all zeros are a valid value.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `used` is writable.
        assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut used) }, 0);
        let micros =
            |time: libc::timeval| Duration::from_micros((time.tv_sec * 1_000_000 + time.tv_usec) as u64);
        let processor = micros(used.ru_utime) + micros(used.ru_stime);
        Self { begun: Instant::now(), processor, sleeps: used.ru_nvcsw }
    }

    /// Its time on a processor; if it went to sleep, all that has passed. While others had the processor it wanted
    /// to go on.
    fn own_time(&self) -> Duration {
        let now = Self::start();
        if now.sleeps > self.sleeps {
            now.begun - self.begun
        } else {
            now.processor.saturating_sub(self.processor)
        }
    }
}

/// Polls until nothing has happened for a while and every tag is back.
fn drain<E: Endpoint>(world: &mut World<E>, to: usize) {
    let tag = u64::MAX;
    world.flush(0, to, tag);
}

/// Line 2: what was refused has not happened.
pub(crate) fn line_2_again_has_no_side_effect<E: Endpoint>(mut world: World<E>) {
    const COUNT: usize = 4096;
    let window = Window::<E>::new(&mut world.nodes[1].ep, COUNT * 8, 1);
    world.put(0, 1, &[0; 8], window.at(0), u64::MAX - 1);
    let values: Vec<u64> = (1..=COUNT as u64).collect();
    let mut accepted = vec![None; COUNT];
    let mut again = 0;
    for (index, value) in values.iter().enumerate() {
        let src = (value as *const u64).cast();
        let peer = world.nodes[0].peers[1];
        // SAFETY: the values outlive the drain below.
        match unsafe { world.nodes[0].ep.put(peer, src, 8, window.at(index * 8), Tag(index as u64)) } {
            Ok(how) => accepted[index] = Some(how),
            Err(PostError::Again) => again += 1,
            Err(PostError::Failed(code)) => panic!("{code}"),
        }
    }
    let tracked = accepted.iter().filter(|&&how| how == Some(Accepted::Tracked)).count();
    assert!(again > 0 || tracked == 0, "{COUNT} puts without a poll are more than any limit");
    world.nodes[0].outcomes.clear();
    world.until("all accepted puts", |world| world.nodes[0].outcomes.len() >= tracked);
    drain(&mut world, 1);
    for (index, &how) in accepted.iter().enumerate() {
        let expected = how.map_or(0, |_| index as u64 + 1);
        assert_eq!(window.word(index * 8), expected, "put {index}, accepted: {how:?}");
        let said = world.nodes[0].outcomes.iter().filter(|(tag, _)| *tag == index as u64).count();
        assert_eq!(said, usize::from(how == Some(Accepted::Tracked)), "tag {index}");
    }
    // And the same call is accepted after polling.
    world.put(0, 1, &7u64.to_ne_bytes(), window.at(8), COUNT as u64);
    assert_eq!(window.word(8), 7);
}

/// Line 3: every accepted tag comes back once, in a mixture of everything.
pub(crate) fn line_3_every_tag_comes_back_once<E: Endpoint>(mut world: World<E>) {
    const COUNT: u64 = 2_000;
    let window = Window::<E>::new(&mut world.nodes[1].ep, 1 << 16, 1);
    let src = pattern(8192, 3);
    let mut sink = vec![0u8; 8192];
    let into = sink.as_mut_ptr();
    for tag in 0..COUNT {
        let len = [8, 64, 500, 8192][tag as usize % 4];
        match tag % 3 {
            0 => world.start_put(0, 1, &src[..len], window.at(0), tag),
            1 => world.operate((0, tag), "get", |world| {
                let peer = world.nodes[0].peers[1];
                // SAFETY: the sink outlives the wait below.
                unsafe { world.nodes[0].ep.get(peer, into, len, window.at(8192), Tag(tag)) }
            }),
            _ => world.operate((0, tag), "flush", |world| {
                let peer = world.nodes[0].peers[1];
                world.nodes[0].ep.flush(peer, Tag(tag))
            }),
        }
    }
    world.until("all tags", |world| world.nodes[0].outcomes.len() as u64 >= COUNT);
    for _ in 0..1000 {
        world.poll();
    }
    let mut tags: Vec<u64> = world.nodes[0].outcomes.iter().map(|(tag, _)| *tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..COUNT).collect::<Vec<_>>());
    assert!(world.nodes[0].outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
}

/// Line 4: sources are free on return.
pub(crate) fn line_4_sources_are_free_on_return<E: Endpoint>(mut world: World<E>) {
    let largest = world.nodes[0].ep.limits().send_bytes_max;
    for (index, len) in [0, 1, 40, 64, 65, 512, largest].into_iter().enumerate() {
        let expected = pattern(len, index as u64);
        let mut scratch = expected.clone();
        let (header, payload) = scratch.split_at(len / 3);
        world.send(0, 1, header, payload);
        scratch.fill(0xee);
        assert_eq!(world.receive(1), expected, "{len} bytes");
    }
    let peer = world.nodes[0].peers[1];
    let too_long = vec![0; largest + 1];
    let refused = world.nodes[0].ep.send(peer, &too_long, b"", SendClass::Request);
    assert!(matches!(refused, Err(PostError::Failed(_))), "{refused:?}");
}

/// Line 5: packets of a class arrive in order, each once, unchanged, also while the receiver has no
/// buffers.
pub(crate) fn line_5_packets_arrive_in_order_under_pressure<E: Endpoint>(mut world: World<E>) {
    const COUNT: u64 = 5_000;
    // Lengths vary, so that small and large paths of the provider mix.
    let payload =
        |class: usize, index: u64| pattern([0, 8, 100, 600][index as usize % 4], index << 1 | class as u64);
    let (mut sent, mut received, mut refused) = ([0u64; 2], [0u64; 2], [0; 2]);
    let buffers = world.nodes[1].ep.limits().receive_buffers;
    world.nodes[1].holds_packets = true;
    world.until("5000 packets of each class", |world| {
        let (sender, receiver) = world.pair();
        for (class, kind) in CLASSES.into_iter().enumerate() {
            while sent[class] < COUNT {
                let header = [class as u64, sent[class]].map(u64::to_le_bytes).concat();
                match sender.ep.send(sender.peers[1], &header, &payload(class, sent[class]), kind) {
                    Ok(()) => sent[class] += 1,
                    Err(PostError::Again) => {
                        refused[class] += 1;
                        break;
                    }
                    Err(PostError::Failed(code)) => panic!("{code}"),
                }
            }
        }
        let is_over = sent == [COUNT; 2];
        if receiver.held.len() >= buffers || is_over {
            receiver.let_go();
            receiver.holds_packets = !is_over;
        }
        while let Some(packet) = receiver.packets.pop_front() {
            let class = word(&packet, 0) as usize;
            assert_eq!(word(&packet, 1), received[class], "class {class}");
            assert!(packet[16..] == payload(class, received[class]), "class {class}: {packet:?}");
            received[class] += 1;
        }
        received == [COUNT; 2]
    });
    assert!(
        refused.iter().all(|&refused| refused > 0),
        "no pressure: packets were accepted at once: {refused:?}"
    );
    for _ in 0..100 {
        world.poll();
    }
    assert!(world.nodes[1].packets.is_empty(), "a packet came twice");
}

const CLASSES: [SendClass; 2] = [SendClass::Request, SendClass::Reply];

fn word(packet: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(packet[index * 8..index * 8 + 8].try_into().unwrap())
}

/// Line 6: a completed put is in the target's memory, and a third endpoint that learns of the
/// completion reads it.
pub(crate) fn line_6_completed_puts_are_visible<E: Endpoint>(mut world: World<E>) {
    let window = Window::<E>::new(&mut world.nodes[2].ep, 1 << 20, 1);
    let remote = world.nodes[0].ep.limits().put_completes == CompletionScope::Remote;
    let mut tag = 0;
    for (len, rounds) in [(8, 300), (64, 300), (4096, 100), (1 << 20, 3)] {
        for round in 0..rounds {
            tag += 2;
            let src = pattern(len, tag);
            world.put(0, 2, &src, window.at(0), tag);
            if !remote {
                world.flush(0, 2, tag + 1);
            }
            // The target has not polled since the origin learned of the completion.
            for offset in [0, len / 2, len - 1] {
                assert_eq!(window.byte(offset), src[offset], "{len} bytes, round {round}, byte {offset}");
            }
            world.send(0, 1, &tag.to_le_bytes(), b"");
            assert_eq!(world.receive(1), tag.to_le_bytes());
            let mut seen = vec![0; len];
            world.get(1, 2, &mut seen, window.at(0), tag);
            assert!(seen == src, "{len} bytes, round {round}: a third endpoint reads something else");
        }
    }
}

/// Line 7: the orders that are claimed hold.
pub(crate) fn line_7_claimed_orders_hold<E: Endpoint>(mut world: World<E>) {
    let order = world.nodes[0].ep.limits().order;
    let window = Window::<E>::new(&mut world.nodes[1].ep, 1 << 16, 1);
    for round in 1..300u64 {
        let len = [8, 64, 4096, 1 << 16][round as usize % 4];
        let src = pattern(len, round);
        world.start_put(0, 1, &src, window.at(0), round);
        if order.put_before_send {
            world.send(0, 1, &round.to_le_bytes(), b"");
            // Only the target polls from here on where that is enough.
            assert_eq!(world.receive(1), round.to_le_bytes());
            for offset in [0, len / 2, len - 1] {
                assert_eq!(window.byte(offset), src[offset], "round {round}: the packet overtook the put");
            }
        }
        if order.put_before_get {
            let src = pattern(len, round + 1000);
            let mut seen = vec![0; len];
            world.start_put(0, 1, &src, window.at(0), round + 1000);
            world.get(0, 1, &mut seen, window.at(0), round + 2000);
            assert!(seen == src, "round {round}: the get overtook the put");
            world.finish(0, round + 1000);
        }
        world.finish(0, round);
    }
}

/// Line 8: polling progresses the target role, and says at most as much as fits.
pub(crate) fn line_8_poll_serves_the_target_role<E: Endpoint>(mut world: World<E>) {
    let mut window = Window::<E>::new(&mut world.nodes[1].ep, 4096, 1);
    window.set_word(0, 0x1234_5678_9abc_def0);
    for tag in 0..100 {
        let mut seen = [0; 8];
        world.get(0, 1, &mut seen, window.at(0), tag);
        assert_eq!(u64::from_ne_bytes(seen), 0x1234_5678_9abc_def0);
    }
    // The node that was read has said nothing: being a target needs only polls.
    assert!(world.nodes[1].outcomes.is_empty());
    let mut full = rma_core::provider::CompletionBatch::new();
    let taken = rma_core::provider::CompletionBatch::CAPACITY;
    for tag in 0..taken as u64 {
        full.push(rma_core::provider::Completion::Done(Tag(tag))).unwrap();
    }
    assert_eq!(world.nodes[0].ep.poll(&mut full), 0, "a full batch takes nothing");
}

/// Line 9 at the sender: when requests are refused, a reply still finds room.
pub(crate) fn line_9_replies_find_room<E: Endpoint>(mut world: World<E>) {
    for class in CLASSES {
        // Connections are made on first use, and until then there is room for nothing.
        world.send_as(0, 1, b"first", b"", class);
        world.receive(1);
    }
    let peer = world.nodes[0].peers[1];
    let packet = vec![1u8; 4096];
    let mut requests = 0;
    // The peer does not poll: the requests stay.
    while world.nodes[0].ep.send(peer, &packet, b"", SendClass::Request).is_ok() {
        requests += 1;
        assert!(requests < 100_000, "requests are never refused");
    }
    let mut replies = 0;
    while world.nodes[0].ep.send(peer, b"reply", b"", SendClass::Reply).is_ok() {
        replies += 1;
        assert!(replies < 100_000, "replies are never refused");
    }
    assert!(replies > 0, "{requests} requests left no room for a reply");
    world.until("all packets", |world| world.nodes[1].packets.len() == requests + replies);
    let arrived = world.nodes[1].packets.iter().filter(|packet| *packet == b"reply").count();
    assert_eq!(arrived, replies);
}

/// Line 9 at the receiver: two endpoints flood each other with requests and keep what they get, until
/// no request moves any more. Replies still pass, in both directions. `from_one_peer`: how many packets of a class from
/// the same peer may be kept.
pub(crate) fn line_9_replies_pass_requests_that_are_kept<E: Endpoint>(
    mut world: World<E>,
    from_one_peer: fn(&Limits) -> usize,
) {
    // Providers that take in what nobody receives yet accept so many; the others refuse long before.
    const REQUESTS_MAX: u64 = 4_000;
    const REFUSALS: u32 = 500;
    let buffers = from_one_peer(world.nodes[0].ep.limits());
    let (mut sent, mut refusals) = ([0u64; 2], [0; 2]);
    let packet = vec![1u8; 7_000];
    world.nodes.iter_mut().for_each(|node| node.holds_packets = true);
    world.until("two endpoints full of requests", |world| {
        for from in 0..2 {
            let node = &mut world.nodes[from];
            if sent[from] == REQUESTS_MAX {
                refusals[from] = REFUSALS;
                continue;
            }
            match node.ep.send(node.peers[1 - from], &sent[from].to_le_bytes(), &packet, SendClass::Request) {
                Ok(()) => (sent[from], refusals[from]) = (sent[from] + 1, 0),
                Err(PostError::Again) => refusals[from] += 1,
                Err(PostError::Failed(code)) => panic!("{code}"),
            }
        }
        let are_full = world.nodes.iter().all(|node| node.held.len() == buffers);
        are_full && refusals.iter().all(|&refusals| refusals >= REFUSALS)
    });
    for index in 0..buffers as u64 {
        for from in 0..2 {
            world.send_as(from, 1 - from, &index.to_le_bytes(), b"", SendClass::Reply);
        }
    }
    world.until("the replies", |world| world.nodes.iter().all(|node| node.held.len() == 2 * buffers));
    for _ in 0..100 {
        world.poll();
    }
    for (at, node) in world.nodes.iter_mut().enumerate() {
        assert_eq!(node.held.len(), 2 * buffers, "more than the buffers of both classes");
        node.let_go();
        let replies: Vec<_> =
            node.packets.drain(buffers..).map(|packet| (packet.len(), word(&packet, 0))).collect();
        assert_eq!(replies, (0..buffers as u64).map(|index| (8, index)).collect::<Vec<_>>(), "at {at}");
    }
    world
        .until("the requests", |world| (0..2).all(|at| world.nodes[at].packets.len() as u64 == sent[1 - at]));
    for node in &world.nodes {
        assert!((0..).zip(&node.packets).all(|(index, packet)| word(packet, 0) == index), "out of order");
    }
}

/// Flushes complete after everything before them, and twice in a row at once.
pub(crate) fn flush_covers_what_was_posted_before<E: Endpoint>(mut world: World<E>) {
    let window = Window::<E>::new(&mut world.nodes[1].ep, 1 << 16, 1);
    let src: Vec<Vec<u8>> = (0..50).map(|seed| pattern(1024, seed)).collect();
    for round in 0..20 {
        for (index, src) in src.iter().enumerate() {
            world.start_put(0, 1, src, window.at(index * 1024), round * 1000 + index as u64);
        }
        world.flush(0, 1, round * 1000 + 900);
        for (index, src) in src.iter().enumerate() {
            assert_eq!(window.byte(index * 1024 + 1023), src[1023], "round {round}, put {index}");
        }
        world.flush(0, 1, round * 1000 + 901);
    }
}

/// Peers that are not there, addresses that are none: errors, not panics.
pub(crate) fn misuse_is_an_error<E: Endpoint>(mut world: World<E>) {
    let node = &mut world.nodes[0];
    assert!(node.ep.connect(&AddressBytes::new(b"nonsense").unwrap()).is_err());
    assert!(node.ep.connect(&AddressBytes::new(b"").unwrap()).is_err());
    let nobody = PeerAddr(12_345);
    assert!(matches!(node.ep.send(nobody, b"x", b"", SendClass::Request), Err(PostError::Failed(_))));
    assert!(matches!(node.ep.flush(nobody, Tag(1)), Err(PostError::Failed(_))));
    node.ep.disconnect(nobody);
    // An address may be connected twice, and forgotten twice.
    let address = node.ep.address();
    let again = node.ep.connect(&address).unwrap();
    node.ep.disconnect(again);
}

/// Nothing but reading is done with a source.
pub(crate) fn a_source_may_be_a_constant<E: Endpoint>(world: World<E>) {
    constants_arrive(world, &[1, 8, 200, 4096]);
}

/// The same of one that a provider would not copy.
pub(crate) fn a_large_source_may_be_a_constant<E: Endpoint>(world: World<E>) {
    constants_arrive(world, &[4097, CONSTANT.len()]);
}

static CONSTANT: [u8; 1 << 16] = [0x5a; 1 << 16];

fn constants_arrive<E: Endpoint>(mut world: World<E>, lens: &[usize]) {
    let window = Window::<E>::new(&mut world.nodes[1].ep, CONSTANT.len(), 1);
    for (tag, &len) in (0..).zip(lens) {
        world.start_put(0, 1, &CONSTANT[..len], window.at(0), tag);
        world.until("the put", |world| world.nodes[0].outcomes.len() as u64 > tag);
        assert!(world.nodes[0].outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
    }
    world.flush(0, 1, 100);
    assert!((0..lens[lens.len() - 1]).all(|at| window.byte(at) == CONSTANT[at]));
}

/// A rank may be its own target.
pub(crate) fn an_endpoint_reaches_itself<E: Endpoint>(mut world: World<E>) {
    let window = Window::<E>::new(&mut world.nodes[0].ep, 4096, 1);
    world.send(0, 0, b"to myself", b"");
    assert_eq!(world.receive(0), b"to myself");
    world.put(0, 0, &7u64.to_ne_bytes(), window.at(8), 1);
    world.flush(0, 0, 2);
    assert_eq!(window.word(8), 7);
}

/// Where there is a descriptor, it becomes readable when there is something to do.
pub(crate) fn a_thread_can_sleep_on_the_descriptor<E: Endpoint>(mut world: World<E>) {
    let Some(descriptor) = world.nodes[1].ep.wait_fd() else {
        assert!(!world.nodes[1].ep.arm_wait(), "no descriptor, nothing to arm");
        return;
    };
    for round in 0..20u64 {
        let class = CLASSES[round as usize % 2];
        world.until("the endpoint arms", |world| world.nodes[1].ep.arm_wait());
        world.nodes[0].poll();
        let peer = world.nodes[0].peers[1];
        world.until("send", |world| world.nodes[0].ep.send(peer, &round.to_le_bytes(), b"", class).is_ok());
        // Some wake-ups bring nothing; each is followed by a poll, and armed again.
        let deadline = Instant::now() + crate::world::LIMIT;
        while world.nodes[1].packets.is_empty() {
            assert!(Instant::now() < deadline, "round {round}: nothing woke the sleeper");
            if world.nodes[1].ep.arm_wait() {
                let mut wait = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
                let left = deadline.saturating_duration_since(Instant::now()).as_millis() as i32;
                // SAFETY: one entry, valid during the call. The limit is only there for a bug.
                let woken = unsafe { libc::poll(&mut wait, 1, left) };
                assert!(woken > 0, "round {round}: slept through a packet");
            }
            world.nodes[1].poll();
            world.nodes[0].poll();
        }
        assert_eq!(world.nodes[1].packets.pop_front().unwrap(), round.to_le_bytes());
    }
}

/// An access that the target does not allow writes nothing, and where puts complete remotely it fails.
pub(crate) fn a_wrong_key_fails_the_operation<E: Endpoint>(mut world: World<E>) {
    let window = Window::<E>::new(&mut world.nodes[1].ep, 4096, 1);
    world.put(0, 1, &[0; 8], window.at(0), 1);
    let mut wrong = window.at(0);
    wrong.key.0 ^= 0x55;
    let src = [7u8; 8];
    world.start_put(0, 1, &src, wrong, 2);
    world.until("the refused put", |world| world.nodes[0].outcomes.len() == 2);
    // A local completion says nothing about the target.
    let is_local = world.nodes[0].ep.limits().put_completes == CompletionScope::Local;
    assert!(is_local || world.nodes[0].outcomes[1].1.is_err(), "{:?}", world.nodes[0].outcomes);
    for _ in 0..1000 {
        world.poll();
    }
    assert_eq!(window.word(0), 0);
}
