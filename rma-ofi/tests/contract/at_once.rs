//! Line 12: what is complete when it is accepted. Line 17: memory for those to whom all is. And what these see of each other.

use std::sync::atomic::{fence, Ordering};

use rma_core::ids::{RemoteKey, Tag};
use rma_core::provider::{Accepted, Endpoint, MemoryRegion, RemoteAddr, SendClass};

use crate::world::{Window, World};

/// Bytes of the puts and gets: none, a word, what is not whole words, and much.
const LENGTHS: [usize; 4] = [0, 8, 99, 8192];

/// A put and a get of each length. What is accepted as complete has happened, wants nothing of its memory any more, and is
/// not said again; and to peers of whom the endpoint says so everything is.
pub(crate) fn line_12_what_is_complete_when_it_is_accepted_is_over<E: Endpoint>(mut world: World<E>) {
    const ROUNDS: u64 = 50;
    let window = Window::<E>::new(&mut world.nodes[1].ep, 1 << 14, 1);
    let peer = world.nodes[0].peers[1];
    let is_near = world.nodes[0].ep.completes_at_once(peer);
    let mut complete = Vec::new();
    for round in 0..ROUNDS {
        for (index, len) in LENGTHS.into_iter().enumerate() {
            let tag = round * 8 + 2 * index as u64;
            let mut source: Vec<u8> = (0..len).map(|at| (at as u64 + 13 * tag) as u8 | 1).collect();
            let expected = source.clone();
            let from = source.as_ptr();
            let accepted = world.post("put", |world| {
                // SAFETY: the source outlives what is awaited below.
                unsafe { world.nodes[0].ep.put(peer, from, len, window.at(8), Tag(tag)) }
            });
            if settle(&mut world, accepted, tag, &mut complete) {
                source.fill(0);
            }
            let arrived = (0..len).all(|at| window.byte(8 + at) == expected[at]);
            assert!(arrived, "put of {len} bytes, round {round}");
            let mut sink = vec![0; len];
            let into = sink.as_mut_ptr();
            let accepted = world.post("get", |world| {
                // SAFETY: the sink outlives what is awaited below.
                unsafe { world.nodes[0].ep.get(peer, into, len, window.at(8), Tag(tag + 1)) }
            });
            settle(&mut world, accepted, tag + 1, &mut complete);
            assert!(sink == expected, "get of {len} bytes, round {round}");
        }
        let accepted = world.post("flush", |world| world.nodes[0].ep.flush(peer, Tag(u64::MAX - round)));
        settle(&mut world, accepted, u64::MAX - round, &mut complete);
    }
    assert!(!is_near || complete.len() as u64 == ROUNDS * (2 * LENGTHS.len() as u64 + 1));
    what_fails_is_said(&mut world, &window);
    for _ in 0..1000 {
        world.poll();
    }
    let is_said_again = |&(tag, _): &(u64, _)| complete.contains(&tag);
    assert!(!world.nodes[0].outcomes.iter().any(is_said_again), "a tag of what was complete came back");
}

/// Awaits what is tracked; whether the operation was complete.
fn settle<E: Endpoint>(world: &mut World<E>, accepted: Accepted, tag: u64, complete: &mut Vec<u64>) -> bool {
    if accepted == Accepted::Tracked {
        world.finish(0, tag);
        if tag < u64::MAX / 2 {
            world.flush(0, 1, u64::MAX / 2 + tag);
        }
        return false;
    }
    fence(Ordering::SeqCst);
    complete.push(tag);
    true
}

/// A put with a key that is nobody's is never complete.
fn what_fails_is_said<E: Endpoint>(world: &mut World<E>, window: &Window<E>) {
    const TAG: u64 = 1 << 40;
    let peer = world.nodes[0].peers[1];
    if !world.nodes[0].ep.completes_at_once(peer) {
        // Some fabrics end the connection, which other tests look at.
        return;
    }
    let nobodys = RemoteKey(window.region.remote_key().0 ^ 0x00ff_0000);
    let at = RemoteAddr { key: nobodys, ..window.at(0) };
    let source = [1_u8; 8];
    let accepted = world.post("put", |world| {
        // SAFETY: the source outlives what is awaited below.
        unsafe { world.nodes[0].ep.put(peer, source.as_ptr(), 8, at, Tag(TAG)) }
    });
    assert_eq!(accepted, Accepted::Tracked);
    let is_it = |&(tag, outcome): &(u64, Result<(), _>)| tag == TAG && outcome.is_err();
    world.until("the failure", |world| world.nodes[0].outcomes.iter().any(is_it));
}

/// Each registers the same, for those alone to whom all is complete at once: the name is the same at each, and names the memory
/// of whoever is asked.
pub(crate) fn line_17_memory_for_neighbours_has_one_name<E: Endpoint>(mut world: World<E>) {
    // Others, whose keys the fabric may choose, are not the same at both.
    let _other = Window::<E>::new(&mut world.nodes[1].ep, 64, 1);
    let near: Vec<_> = world.nodes.iter_mut().map(|node| Window::<E>::near(&mut node.ep, 64, 2)).collect();
    let (at, peer) = (near[1].at(8), world.nodes[0].peers[1]);
    if !world.nodes[0].ep.completes_at_once(peer) {
        return;
    }
    assert_eq!(near[0].at(8), at, "at the other");
    world.put(0, 1, &[7; 8], at, 1);
    assert_eq!((near[0].byte(8), near[1].byte(8)), (0, 7));
}

/// A packet of one who sets words in the other's memory is news there until that one polls, and no longer.
pub(crate) fn news_last_until_the_next_poll<E: Endpoint>(mut world: World<E>) {
    for class in [SendClass::Request, SendClass::Reply] {
        world.until("quiet", |world| world.poll() == 0 && !world.nodes[1].ep.has_news());
        let peer = world.nodes[0].peers[1];
        let is_near = world.nodes[0].ep.completes_at_once(peer) && world.nodes[0].ep.may_tell();
        let is_sent = world.nodes[0].ep.send(peer, b"news", b"", class).is_ok();
        assert!(is_sent || !is_near, "refused with nothing under way");
        assert_eq!(world.nodes[1].ep.has_news(), is_near);
        assert!(!world.nodes[0].ep.has_news());
        if is_sent {
            assert!(world.nodes[1].poll() > 0 || !is_near);
            assert!(!world.nodes[1].ep.has_news());
            assert_eq!(world.receive(1), b"news");
        }
    }
}
