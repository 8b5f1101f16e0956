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
/// Bytes of a packet.
const PACKET_BYTES: usize = 20;

/// What the target has seen of a row.
struct Seen {
    data_bytes: usize,
    next: u32,
}

impl Seen {
    /// Takes what has come: the next numbers, and of puts the bytes are there.
    fn look<E: Endpoint>(&mut self, world: &mut World<E>, window: &Window<E>) {
        while let Some(packet) = world.nodes[1].packets.pop_front() {
            let number = u32::from_le_bytes(packet[..4].try_into().unwrap());
            assert_eq!(number, self.next, "in the order posted, each once");
            if is_packet(number) {
                assert_eq!(packet.len(), PACKET_BYTES);
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

fn length(number: u32) -> usize {
    LENGTHS[number as usize % LENGTHS.len()]
}

fn place(number: u32) -> usize {
    number as usize * PLACE
}

fn post<E: Endpoint>(world: &mut World<E>, window: &Window<E>, src: &[u8], number: u32) -> bool {
    let peer = world.nodes[0].peers[1];
    let posted = if is_packet(number) {
        let mut packet = [0; PACKET_BYTES];
        packet[..4].copy_from_slice(&number.to_le_bytes());
        world.nodes[0].ep.send(peer, &packet, &[], SendClass::Request)
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
    let mut seen = Seen { data_bytes, next: 0 };
    for number in 0..ROW {
        world.until("a put with data, or a packet", |world| {
            seen.look(world, &window);
            post(world, &window, &sources[number as usize], number)
        });
    }
    world.until("what was posted", |world| {
        seen.look(world, &window);
        seen.next == ROW
    });
    (0..ROW).filter(|&number| !is_packet(number)).for_each(|number| world.finish(0, number.into()));
    keep(&mut world, &window, data_bytes);
}

/// As many data as are posted while the target keeps all that comes: none is lost.
fn keep<E: Endpoint>(world: &mut World<E>, window: &Window<E>, data_bytes: usize) {
    let receive_buffers = world.nodes[1].ep.limits().receive_buffers as u32;
    world.nodes[0].outcomes.clear();
    world.nodes[1].holds_packets = true;
    let (src, all) = ([9; 8], receive_buffers + 20);
    let put = |world: &mut World<E>, number: u32| {
        let (peer, at, tag) = (world.nodes[0].peers[1], window.at(8), Tag(number.into()));
        // SAFETY: the source outlives the puts, all of whose tags are awaited.
        let put = unsafe { world.nodes[0].ep.put_with_data(peer, src.as_ptr(), 8, at, tag, number.into()) };
        put.is_ok()
    };
    let mut posted = 0;
    for _ in 0..20 * all {
        if posted < all && put(world, posted) {
            posted += 1;
        }
        world.poll();
    }
    world.nodes[1].let_go();
    world.until("room for the rest", |world| {
        posted += u32::from(posted < all && put(world, posted));
        posted == all
    });
    world.until("what was kept and what was not", |world| world.nodes[1].packets.len() == all as usize);
    for number in 0..all {
        let packet = world.nodes[1].packets.pop_front().unwrap();
        let mut expected = u64::from(number).to_le_bytes().to_vec();
        expected.truncate(data_bytes);
        assert_eq!(packet, expected, "in the order posted");
    }
    (0..all).for_each(|number| world.finish(0, number.into()));
}
