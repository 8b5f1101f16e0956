//! Puts that carry data.

use rma_core::ids::Tag;
use rma_core::provider::{Endpoint, PostError, SendClass};

use crate::world::{Window, World};

/// Bytes of the largest put here, and of each put's place.
const PLACE: usize = 40_000;
const LENGTHS: [usize; 4] = [8, 300, 5_000, PLACE];
/// Puts and packets in a row, one of which in so many is a packet.
const ROW: u32 = 60;
const PACKET_EVERY: u32 = 5;
/// Refusals in a row, each with a poll of everybody, after which nothing more is accepted.
const REFUSALS: u32 = 200;
/// Least bytes of a packet; every second one is as large as packets get.
const PACKET_BYTES: usize = 20;

/// What fills the target's buffers before a row.
const BEFORE: [u8; 9] = [0xff; 9];

/// What the target has seen of a row.
struct Seen {
    data_bytes: usize,
    packet_bytes_max: usize,
    next: u32,
    /// Packets before the row.
    before: usize,
}

impl Seen {
    /// Takes what has come: the next numbers, and of puts the bytes are there.
    fn look<E: Endpoint>(&mut self, world: &mut World<E>, window: &Window<E>) {
        while let Some(packet) = world.nodes[1].packets.pop_front() {
            if packet == BEFORE {
                self.before += 1;
                continue;
            }
            let number = u32::from_le_bytes(packet[..4].try_into().unwrap());
            assert_eq!(number, self.next, "in the order posted, each once");
            if is_packet(number) {
                assert_eq!(packet.len(), packet_bytes(number, self.packet_bytes_max));
                assert!(packet[4..].iter().all(|&byte| byte == number as u8), "{number}");
            } else {
                assert_eq!(packet.len(), self.data_bytes);
                let (at, len) = (place(number), length(number));
                let expected = number as u8 | 0x80;
                for offset in [0, len / 2, len - 1] {
                    assert_eq!(window.byte(at + offset), expected, "{number}: byte {offset} of {len}");
                }
            }
            self.next += 1;
        }
    }
}

fn is_packet(number: u32) -> bool {
    number % PACKET_EVERY == PACKET_EVERY - 1
}

fn packet_bytes(number: u32, most: usize) -> usize {
    if number / PACKET_EVERY % 2 == 0 {
        most
    } else {
        PACKET_BYTES
    }
}

fn length(number: u32) -> usize {
    LENGTHS[number as usize % LENGTHS.len()]
}

fn place(number: u32) -> usize {
    number as usize * PLACE
}

fn post<E: Endpoint>(world: &mut World<E>, window: &Window<E>, src: &[u8], number: u32) -> bool {
    let peer = world.nodes[0].peers[1];
    let posted = if is_packet(number) {
        let most = world.nodes[0].ep.limits().send_bytes_max;
        let payload = vec![number as u8; packet_bytes(number, most) - 4];
        world.nodes[0].ep.send(peer, &number.to_le_bytes(), &payload, SendClass::Request)
    } else {
        let at = window.at(place(number));
        let (tag, data) = (Tag(number.into()), u64::from(number));
        // SAFETY: the source outlives the puts, all of whose tags are awaited.
        let put =
            unsafe { world.nodes[0].ep.put_with_data(peer, src.as_ptr(), length(number), at, tag, data) };
        put.map(|_| ())
    };
    match posted {
        Ok(()) => true,
        Err(PostError::Again) => false,
        Err(PostError::Failed(code)) => panic!("{number}: {code}"),
    }
}

/// Line 13: data come once, behind the bytes of their put, in the order of requests, and wait for buffers as those do.
pub(crate) fn line_13_data_come_behind_their_bytes<E: Endpoint>(mut world: World<E>) {
    let window = Window::<E>::new(&mut world.nodes[1].ep, ROW as usize * PLACE, 1);
    // Connections are made on first use.
    world.put(0, 1, &[1; 8], window.at(0), 1 << 20);
    let (peer, source) = (world.nodes[0].peers[1], vec![7; PLACE]);
    let data_bytes = world.nodes[0].ep.data_bytes(peer);
    if data_bytes == 0 {
        let at = window.at(0);
        // SAFETY: the source outlives the world, and nothing is posted.
        let put = unsafe { world.nodes[0].ep.put_with_data(peer, source.as_ptr(), 8, at, Tag(1), 1) };
        assert!(matches!(put, Err(PostError::Failed(_))), "{put:?}");
        return;
    }
    assert!(matches!(data_bytes, 4 | 8), "{data_bytes}");
    let sources: Vec<Vec<u8>> = (0..ROW).map(|number| vec![number as u8 | 0x80; PLACE]).collect();
    // First as they come, and then behind packets for which the target has no buffer.
    for keeps in [false, true] {
        world.nodes[0].outcomes.clear();
        row(&mut world, &window, &sources, keeps);
        (0..ROW).filter(|&number| !is_packet(number)).for_each(|number| world.finish(0, number.into()));
    }
    pile_up(&mut world, &window, data_bytes);
}

/// Posts a row. Where the target keeps as many packets as it has buffers, it lets them go when no more of the row
/// is accepted.
fn row<E: Endpoint>(world: &mut World<E>, window: &Window<E>, sources: &[Vec<u8>], keeps: bool) {
    let data_bytes = world.nodes[0].ep.data_bytes(world.nodes[0].peers[1]);
    let packet_bytes_max = world.nodes[0].ep.limits().send_bytes_max;
    let before = if keeps { fill(world) } else { 0 };
    let mut seen = Seen { data_bytes, packet_bytes_max, next: 0, before: 0 };
    let (mut posted, mut refused) = (0, 0);
    world.until("a row of puts with data and packets", |world| {
        seen.look(world, window);
        if posted == ROW || refused == REFUSALS {
            world.nodes[1].let_go();
        }
        match posted < ROW && post(world, window, &sources[posted as usize], posted) {
            true => (posted, refused) = (posted + 1, 0),
            false => refused += 1,
        }
        seen.next == ROW
    });
    assert_eq!(seen.before, before);
}

/// Has the target keep as many packets as it can; how many were sent for that.
fn fill<E: Endpoint>(world: &mut World<E>) -> usize {
    world.nodes[1].holds_packets = true;
    let (peer, mut sent, mut refused) = (world.nodes[0].peers[1], 0, 0);
    while world.nodes[1].held.len() < world.nodes[1].ep.limits().receive_buffers && refused < REFUSALS {
        match world.nodes[0].ep.send(peer, &BEFORE, &[], SendClass::Request) {
            Ok(()) => (sent, refused) = (sent + 1, 0),
            Err(_) => refused += 1,
        }
        world.poll();
    }
    // What was kept stays so; data are not kept, and of packets none finds a buffer.
    world.nodes[1].holds_packets = false;
    sent
}

/// More data than the target has buffers, posted while it does not look: none is lost.
fn pile_up<E: Endpoint>(world: &mut World<E>, window: &Window<E>, data_bytes: usize) {
    let receive_buffers = world.nodes[1].ep.limits().receive_buffers as u32;
    world.nodes[0].outcomes.clear();
    let (src, all) = ([9; 8], receive_buffers + 20);
    let put = |world: &mut World<E>, number: u32| {
        let (peer, at, tag) = (world.nodes[0].peers[1], window.at(8), Tag(number.into()));
        // SAFETY: the source outlives the puts, all of whose tags are awaited.
        let put = unsafe { world.nodes[0].ep.put_with_data(peer, src.as_ptr(), 8, at, tag, number.into()) };
        put.is_ok()
    };
    let mut posted = 0;
    for _ in 0..20 * all {
        posted += u32::from(posted < all && put(world, posted));
        world.nodes[0].poll();
    }
    world.until("room for the rest", |world| {
        posted += u32::from(posted < all && put(world, posted));
        posted == all
    });
    world.until("what was not looked at", |world| world.nodes[1].packets.len() == all as usize);
    for number in 0..all {
        let packet = world.nodes[1].packets.pop_front().unwrap();
        let mut expected = u64::from(number).to_le_bytes().to_vec();
        expected.truncate(data_bytes);
        assert_eq!(packet, expected, "in the order posted");
    }
    (0..all).for_each(|number| world.finish(0, number.into()));
}
