//! What only two providers together can get wrong.

use std::time::Instant;

use rma_composite::CompositeEndpoint;
use rma_core::bootstrap::AddressBytes;
use rma_core::ids::PeerAddr;
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
    let mut near = 0;
    world.until("the packet from afar", |world| {
        // There always is one more.
        while world.nodes[2].ep.send(peer, b"near", b"", SendClass::Request).is_ok() {}
        while world.nodes[0].packets.front().is_some_and(|packet| packet == b"near") {
            world.nodes[0].packets.pop_front();
            near += 1;
        }
        world.nodes[0].packets.front().is_some_and(|packet| packet == b"from afar")
    });
    assert!(near > 0, "the host's own packets were there all the time");
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
        world.post("put", |world| {
            // SAFETY: a static.
            unsafe { world.nodes[from].ep.put(peer, BYTES.as_ptr(), 8, at, rma_core::ids::Tag(tag)) }
        });
        world.until("an outcome", |world| world.nodes[from].outcomes.iter().any(|(said, _)| *said == tag));
        world.nodes[from].outcomes.iter().any(|(said, outcome)| *said == tag && outcome.is_err())
    };
    assert!(failed(2, 5) && failed(1, 6));
}

static BYTES: [u8; 8] = [0; 8];

/// An address whose shared memory is not there any more, or is nonsense, is reached over the network, each time that it
/// is connected.
#[test]
fn who_cannot_be_mapped_is_reached_over_the_network() {
    let mut world = world();
    let whole = world.nodes[2].ep.address();
    let mut wrong = whole.as_slice().to_vec();
    // The last byte of the address in shared memory: the descriptor's number.
    let shm_at = 4 + 8 + 1;
    wrong[shm_at + 35] ^= 0x40;
    let wrong = AddressBytes::new(&wrong).unwrap();
    let first = world.nodes[0].ep.connect(&wrong).unwrap();
    assert!(!Composite::is_near(first));
    world.nodes[0].ep.disconnect(first);
    let again = world.nodes[0].ep.connect(&wrong).unwrap();
    assert!(!Composite::is_near(again));
    let sent = |world: &mut World<Composite>| world.nodes[0].ep.send(again, b"x", b"", SendClass::Request);
    world.post("send", sent);
    assert_eq!(world.receive(2), b"x");
    assert!(is_near(&world, 0, 2), "who was connected before is where it was");
}

#[test]
fn other_addresses_are_refused() {
    let mut world = world();
    let network = world.nodes[1].ep.network().address();
    let error = world.nodes[0].ep.connect(&network).unwrap_err();
    assert!(error.message.contains("RMA_PROVIDER"), "{error}");
    let _: PeerAddr = world.nodes[0].peers[1];
}
