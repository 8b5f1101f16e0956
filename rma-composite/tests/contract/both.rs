//! What only two providers together can get wrong.

use std::time::{Duration, Instant};

use rma_composite::CompositeEndpoint;
use rma_core::bootstrap::AddressBytes;
use rma_core::provider::{Endpoint, MemoryRegion, SendClass};
use rma_ofi::OfiEndpoint;

use crate::world::{Window, World, LIMIT};
use crate::{Hosts, Setup};

type Composite = CompositeEndpoint<OfiEndpoint>;

/// Endpoints 0 and 2 on one host, 1 on another.
fn world() -> World<Composite> {
    Setup::of(Hosts::Two).world(3)
}

fn is_near(world: &World<Composite>, from: usize, to: usize) -> bool {
    Composite::is_near(world.nodes[from].peers[to])
}

/// Shows: seed: SHM operations.
#[test]
fn ranks_of_the_host_are_near_and_others_are_not() {
    let world = world();
    for (from, to, near) in [(0, 2, true), (2, 0, true), (0, 0, true), (0, 1, false), (1, 2, false)] {
        assert_eq!(is_near(&world, from, to), near, "{from} to {to}");
    }
}

/// One that hears from its own host at each poll hears from the network as well.
#[test]
fn traffic_of_the_host_does_not_silence_the_network() {
    let mut world = world();
    // Once, so that the network's connection is there.
    world.send(1, 0, b"from afar", b"");
    assert_eq!(world.receive(0), b"from afar");
    world.send(1, 0, b"from afar", b"");
    let peer = world.nodes[2].peers[0];
    world.until("the packet from afar", |world| {
        // There always is one more.
        while world.nodes[2].ep.send(peer, b"near", b"", SendClass::Request).is_ok() {}
        world.nodes[0].packets.retain(|packet| packet != b"near");
        !world.nodes[0].packets.is_empty()
    });
    assert_eq!(world.receive(0), b"from afar");
}

/// Whether the descriptor is readable, or becomes so in a moment.
fn is_woken(ep: &Composite) -> bool {
    let mut wait = libc::pollfd { fd: ep.wait_fd().unwrap(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, valid during the call.
    unsafe { libc::poll(&mut wait, 1, 10) > 0 }
}

#[test]
fn a_sleeper_is_woken_by_both() {
    let mut world = world();
    for (from, text) in [(1, b"from afar"), (2, b"from near"), (1, b"from afar")] {
        world.until("quiet", |world| world.poll() == 0 && world.nodes[0].ep.arm_wait());
        world.send(from, 0, text, b"");
        // The network's packet leaves by progress of its sender; the sleeper is not polled.
        let begun = Instant::now();
        while !is_woken(&world.nodes[0].ep) {
            world.nodes[from].poll();
            assert!(begun.elapsed() < LIMIT, "slept on {}", String::from_utf8_lossy(text));
        }
        assert_eq!(world.receive(0), text);
    }
}

/// A region has one name, whichever way it is reached.
///
/// Shows: seed: SHM operations.
#[test]
fn regions_have_the_name_that_the_network_gives_them() {
    let mut world = world();
    let window = Window::new(&mut world.nodes[0].ep, 64, 7);
    assert_eq!(window.at(0).addr, window.region.remote_base());
    let at = window.at(16);
    world.put(1, 0, &1_u64.to_le_bytes(), at, 1);
    world.put(2, 0, &[2, 0, 0, 0], window.at(20), 2);
    world.flush(1, 0, 3);
    world.flush(2, 0, 4);
    assert_eq!(window.word(16).to_le(), 1 | 2 << 32);
    drop(window);
    // It is gone for both.
    let mut failed = |from: usize, tag| {
        let peer = world.nodes[from].peers[0];
        world.operate((from, tag), "put", |world| {
            // SAFETY: a static.
            unsafe { world.nodes[from].ep.put(peer, BYTES.as_ptr(), 8, at, rma_core::ids::Tag(tag)) }
        });
        world.until("an outcome", |world| world.nodes[from].outcomes.iter().any(|(said, _)| *said == tag));
        world.nodes[from].outcomes.iter().any(|(said, outcome)| *said == tag && outcome.is_err())
    };
    assert!(failed(2, 5) && failed(1, 6));
}

/// The network knows nothing of memory that is for the ranks of one host: whoever else names it is refused, and a region
/// with the name that was wished for is another.
#[test]
fn memory_for_neighbours_is_nothing_to_the_network() {
    let mut world = world();
    let near = Window::near(&mut world.nodes[0].ep, 64, 7);
    let window = Window::new(&mut world.nodes[0].ep, 64, 7);
    assert_eq!((window.at(0).key, near.at(0).addr), (rma_core::ids::RemoteKey(7), 0));
    for (word, at) in [(1_u64, near.at(8)), (2, window.at(8))] {
        world.put(2, 0, &word.to_le_bytes(), at, word);
    }
    world.put(1, 0, &3_u64.to_le_bytes(), window.at(16), 3);
    world.flush(1, 0, 4);
    assert_eq!((near.word(8).to_le(), window.word(8).to_le(), window.word(16).to_le()), (1, 2, 3));
    let peer = world.nodes[1].peers[0];
    world.operate((1, 5), "put", |world| {
        // SAFETY: a static.
        unsafe { world.nodes[1].ep.put(peer, BYTES.as_ptr(), 8, near.at(8), rma_core::ids::Tag(5)) }
    });
    world.until("an outcome", |world| world.nodes[1].outcomes.iter().any(|(tag, _)| *tag == 5));
    assert!(world.nodes[1].outcomes.iter().any(|(tag, outcome)| *tag == 5 && outcome.is_err()));
    assert_eq!(near.word(8).to_le(), 1);
}

static BYTES: [u8; 8] = [0; 8];

/// The address with one byte of the part about shared memory changed.
fn changed(address: &AddressBytes, at: usize) -> AddressBytes {
    let mut wrong = address.as_slice().to_vec();
    wrong[SHM_AT + at] ^= 0x40;
    AddressBytes::new(&wrong).unwrap()
}

/// Where shared memory's address begins, and in it the host and the descriptor's last byte.
const SHM_AT: usize = 4 + 8 + 1;
const HOST_AT: usize = 4;
const DESCRIPTOR_AT: usize = 32;

/// A neighbour that cannot be mapped, as where it belongs to another user, and one of another machine, are reached over
/// the network, each time that they are connected.
#[test]
fn who_cannot_be_mapped_is_reached_over_the_network() {
    let mut world = world();
    for at in [HOST_AT, DESCRIPTOR_AT] {
        let wrong = changed(&world.nodes[2].ep.address(), at);
        let first = world.nodes[0].ep.connect(&wrong).unwrap();
        assert!(!Composite::is_near(first));
        world.nodes[0].ep.disconnect(first);
        let again = world.nodes[0].ep.connect(&wrong).unwrap();
        assert!(!Composite::is_near(again));
        let sent =
            |world: &mut World<Composite>| world.nodes[0].ep.send(again, b"x", b"", SendClass::Request);
        world.post("send", sent);
        assert_eq!(world.receive(2), b"x");
        world.nodes[0].ep.disconnect(again);
    }
    assert!(is_near(&world, 0, 2), "who was connected before is where it was");
}

/// What was sent to a neighbour may still lie in its rings: packets over the network could overtake it.
#[test]
fn who_was_near_does_not_come_back_over_the_network() {
    let mut world = world();
    let (near, address) = (world.nodes[0].peers[2], world.nodes[2].ep.address());
    drop(world.nodes.remove(2));
    world.nodes[0].ep.disconnect(near);
    let error = world.nodes[0].ep.connect(&address).unwrap_err();
    assert!(error.message.contains("connect to process"), "{error}");
}

/// Who has no shared memory and who has meet over the network.
#[test]
fn who_has_no_shared_memory_meets_who_has() {
    let mut world = World::new(vec![Setup::of(Hosts::Two).endpoint(), Setup::of(Hosts::Unshared).endpoint()]);
    for (from, to) in [(0, 1), (1, 0)] {
        assert!(!is_near(&world, from, to) && Composite::is_near(world.nodes[0].peers[0]));
        let window = Window::new(&mut world.nodes[to].ep, 64, 5);
        world.put(from, to, &7_u64.to_le_bytes(), window.at(8), 100 + to as u64);
        world.flush(from, to, 200 + to as u64);
        assert_eq!(window.word(8).to_le(), 7);
    }
}

/// A program that seldom polls, and finds something from its own host each time, is served by the network no later for
/// that.
#[test]
fn who_polls_seldom_polls_both() {
    let mut world = world();
    world.send(1, 0, b"from afar", b"");
    assert_eq!(world.receive(0), b"from afar");
    world.send(1, 0, b"from afar", b"");
    let (near, mut polls) = (world.nodes[2].peers[0], 0);
    while !world.nodes[0].packets.iter().any(|packet| packet == b"from afar") {
        // What the network's sender has to do for it, and more than the time that is not worth a look.
        for _ in 0..100 {
            world.nodes[1].poll();
        }
        std::thread::sleep(Duration::from_millis(2));
        world.nodes[2].ep.send(near, b"near", b"", SendClass::Request).unwrap();
        world.nodes[0].poll();
        polls += 1;
        assert!(polls <= 10, "the network was left out");
    }
    assert!(world.nodes[0].packets.iter().any(|packet| packet == b"near"));
}

/// What the network alone publishes is reached over the network.
#[test]
fn other_addresses_are_the_networks() {
    let mut world = world();
    let network = world.nodes[1].ep.network().address();
    let peer = world.nodes[0].ep.connect(&network).unwrap();
    assert_eq!(peer, world.nodes[0].peers[1]);
    assert!(world.nodes[0].ep.connect(&AddressBytes::new(b"two").unwrap()).is_err());
}
