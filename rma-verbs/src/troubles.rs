//! What devices refuse for a while, and what becomes of connections that are made meanwhile.

use std::time::{Duration, Instant};

use rma_core::provider::{Completion, CompletionBatch, Endpoint, PostError, SendClass};

use crate::close::PATIENCE;
use crate::connect::{ORIGIN, TARGET};
use crate::peer::Stage;
use crate::sys::emulated::{cause, partitions, Trouble, NAME};
use crate::wire::{Kind, Message};
use crate::world::World;
use crate::{Options, VerbsEndpoint};

const NONE: Trouble = Trouble { is_port_down: false, makes_no_queues: false, lets_none_send: false };
const PORT_DOWN: Trouble = Trouble { is_port_down: true, ..NONE };
const NO_QUEUES: Trouble = Trouble { makes_no_queues: true, ..NONE };
const SENDS_NOTHING: Trouble = Trouble { lets_none_send: true, ..NONE };

/// A test that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

fn world(nodes: usize) -> World<VerbsEndpoint> {
    let device = Some(NAME.to_str().unwrap().to_owned());
    let options = Options { device, partition_index: 1, ..Options::default() };
    World::new((0..nodes).map(|_| VerbsEndpoint::open(&options).unwrap()).collect())
}

/// What `from` says when it wants to send `to` something.
fn post(world: &mut World<VerbsEndpoint>, from: usize, to: usize) -> Result<(), PostError> {
    let peer = world.nodes[from].peers[to];
    world.nodes[from].ep.send(peer, b"again", b"", SendClass::Request)
}

/// Everybody wants to send, and nothing comes of it.
fn nothing_goes(world: &mut World<VerbsEndpoint>, pairs: &[(usize, usize)]) {
    for _ in 0..1000 {
        for &(from, to) in pairs {
            assert_eq!(post(world, from, to), Err(PostError::Again), "from {from} to {to}");
        }
        world.poll();
    }
}

fn everything_goes(world: &mut World<VerbsEndpoint>, pairs: &[(usize, usize)]) {
    for &(from, to) in pairs {
        world.send(from, to, b"request", b"");
        assert_eq!(world.receive(to), b"request");
    }
    assert!(world.nodes.iter().all(|node| node.downs.is_empty()));
}

#[test]
fn a_broken_queue_pair_for_datagrams_comes_back() {
    let mut world = world(3);
    // The first Ask is on its way, so that the device learns of the trouble when it sends.
    assert_eq!(post(&mut world, 0, 1), Err(PostError::Again));
    cause(PORT_DOWN);
    world.until("the queue pair breaks", |world| world.nodes[0].ep.datagrams.is_broken());
    assert!(!world.nodes[0].ep.arm_wait(), "who sleeps would not bring it back");
    nothing_goes(&mut world, &[(0, 1)]);
    cause(NONE);
    // Also to whom it speaks for the first time, and who speaks to it.
    everything_goes(&mut world, &[(0, 1), (0, 2), (1, 0), (2, 0)]);
    assert!(partitions().len() > 3 && partitions().iter().all(|&partition| partition == 1));
}

#[test]
fn a_queue_pair_for_datagrams_that_never_sends_ends_the_endpoint() {
    let mut endpoint = world(1).nodes.pop().unwrap().ep;
    let own = endpoint.address();
    let peer = endpoint.connect(&own).unwrap();
    assert_eq!(endpoint.send(peer, b"x", b"", SendClass::Request), Err(PostError::Again));
    cause(PORT_DOWN);
    let mut batch = CompletionBatch::new();
    let mut said = Vec::new();
    while !endpoint.datagrams.is_broken() {
        endpoint.poll(&mut batch);
    }
    endpoint.datagrams.exhaust_mends();
    for _ in 0..1000 {
        endpoint.poll(&mut batch);
        said.extend(std::iter::from_fn(|| batch.pop()));
    }
    assert!(matches!(said[..], [Completion::EndpointDown(code)] if code.code == 2), "{said:?}");
}

#[test]
fn a_way_that_is_not_there_at_first_is_looked_for_again() {
    let mut world = world(2);
    cause(PORT_DOWN);
    nothing_goes(&mut world, &[(0, 1), (1, 0)]);
    cause(NONE);
    everything_goes(&mut world, &[(0, 1), (1, 0)]);
}

#[test]
fn queue_pairs_that_cannot_be_made_now_are_made_later() {
    let mut world = world(2);
    cause(NO_QUEUES);
    nothing_goes(&mut world, &[(0, 1)]);
    cause(NONE);
    // The target's.
    assert_eq!(post(&mut world, 0, 1), Err(PostError::Again));
    world.until("the origin asks", |world| {
        let peer = world.nodes[0].peers[1].0 as usize;
        let _ = post(world, 0, 1);
        world.nodes[0].ep.peers[peer].links[ORIGIN].stage == Stage::Asking
    });
    cause(NO_QUEUES);
    nothing_goes(&mut world, &[(0, 1)]);
    cause(NONE);
    everything_goes(&mut world, &[(0, 1)]);
}

/// The second step was refused after the first: the first cannot be made twice.
#[test]
fn queue_pairs_that_may_only_receive_at_first_send_later() {
    for is_known in [false, true] {
        let mut world = world(2);
        if is_known {
            // The target can make its half, and the origin cannot.
            let _ = post(&mut world, 0, 1);
            world.until("the target answers", |world| {
                let _ = post(world, 0, 1);
                world.nodes[1].ep.peers.iter().any(|peer| peer.links[TARGET].stage == Stage::Answered)
            });
        }
        cause(SENDS_NOTHING);
        nothing_goes(&mut world, &[(0, 1), (1, 0)]);
        cause(NONE);
        everything_goes(&mut world, &[(0, 1), (1, 0)]);
    }
}

#[test]
fn refusals_that_lie_far_apart_lose_nobody() {
    let mut world = world(2);
    let datagrams = &mut world.nodes[0].ep.datagrams;
    (datagrams.refused_for, datagrams.forgotten_after) = (Duration::ZERO, Duration::ZERO);
    cause(NO_QUEUES);
    let started = Instant::now();
    let peer = world.nodes[0].peers[1].0 as usize;
    let mut refusals = 0;
    // As many as would lose it if they counted together.
    while refusals < 10 {
        assert!(started.elapsed() < LIMIT, "{refusals} refusals");
        // As if the time between two had passed.
        world.nodes[0].ep.peers[peer].links[ORIGIN].next_try = None;
        assert_eq!(post(&mut world, 0, 1), Err(PostError::Again));
        refusals += 1;
        world.poll();
    }
    cause(NONE);
    everything_goes(&mut world, &[(0, 1)]);
}

/// Each try takes a place, and one that is leaving its own is enough for all of them.
#[test]
fn what_is_refused_for_want_of_room_closes_one_connection_at_a_time() {
    const OTHERS: usize = 6;
    let mut world = world(OTHERS + 2);
    for other in 1..=OTHERS {
        everything_goes(&mut world, &[(0, other)]);
    }
    let is_idle = |world: &mut World<VerbsEndpoint>| {
        world.nodes[0].ep.peers.iter().all(|peer| peer.links[ORIGIN].posted == 0)
    };
    world.until("nothing is under way", is_idle);
    cause(NO_QUEUES);
    let last = world.nodes[0].peers[OTHERS + 1].0 as usize;
    let started = Instant::now();
    for _ in 0..4 {
        // As if the time between two had passed; the targets compute.
        world.nodes[0].ep.peers[last].links[ORIGIN].next_try = None;
        assert_eq!(post(&mut world, 0, OTHERS + 1), Err(PostError::Again));
    }
    let closing =
        world.nodes[0].ep.peers.iter().filter(|peer| peer.links[ORIGIN].stage == Stage::Closing).count();
    // One more in the place of each that has not gone for so long.
    let most = 1 + started.elapsed().as_millis() / PATIENCE.as_millis();
    assert!((1..=most).contains(&(closing as u128)), "{closing} are closed where {most} would do");
    cause(NONE);
    everything_goes(&mut world, &[(0, OTHERS + 1)]);
}

#[test]
fn a_peer_for_whom_everything_is_refused_for_long_is_lost_at_both() {
    for trouble in [PORT_DOWN, NO_QUEUES] {
        let mut world = world(2);
        world.nodes[0].ep.datagrams.refused_for = Duration::ZERO;
        cause(trouble);
        world.until("the peer is lost", |world| {
            let _ = post(world, 0, 1);
            !world.nodes[0].downs.is_empty()
        });
        cause(NONE);
        world.until("the other one is told", |world| {
            let _ = post(world, 1, 0);
            !world.nodes[1].downs.is_empty()
        });
        for (node, said) in [(0, "the device "), (1, "the peer refused")] {
            let (_, code) = world.nodes[node].downs[0];
            // What has a number is taken for a sign that the peer has ended.
            assert!(code.code == 0 && code.text.starts_with(said), "{code}");
        }
    }
}

/// What node 0 says of its connection to node 1 as its origin.
fn message(world: &World<VerbsEndpoint>, kind: Kind) -> Message {
    let ep = &world.nodes[0].ep;
    let known = &ep.peers[world.nodes[0].peers[1].0 as usize];
    let link = &known.links[ORIGIN];
    Message {
        kind,
        to: known.location.nonce,
        from: ep.location,
        number: known.asked,
        queue: link.queue(),
        sequence: link.sequence,
        of_queue: link.remote_queue,
    }
}

#[test]
fn an_ask_that_comes_late_makes_no_connection() {
    let mut world = world(2);
    everything_goes(&mut world, &[(0, 1)]);
    let peer = world.nodes[0].peers[1];
    let index = peer.0 as usize;
    let late = message(&world, Kind::Ask);
    world.until("nothing is under way", |world| world.nodes[0].ep.peers[index].links[ORIGIN].posted == 0);
    world.nodes[0].ep.disconnect(peer);
    world
        .until("the connection is closed", |world| world.nodes.iter().all(|node| node.ep.connections() == 0));
    let target = world.nodes[1].ep.peers.iter().position(|peer| peer.location == late.from).unwrap();
    // Every fourth datagram is lost, so some of these arrive.
    for _ in 0..50 {
        world.nodes[0].ep.say_message(index, &late);
        for _ in 0..20 {
            world.poll();
            assert_eq!(world.nodes[1].ep.peers[target].links[TARGET].stage, Stage::Idle);
        }
    }
    let address = world.nodes[1].ep.address();
    assert_eq!(world.nodes[0].ep.connect(&address).unwrap(), peer);
    everything_goes(&mut world, &[(0, 1)]);
}
