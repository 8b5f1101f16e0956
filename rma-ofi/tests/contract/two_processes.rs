//! What takes a second process to show: visibility to a third rank, and the death of a peer.

use std::collections::BTreeSet;
use std::time::Instant;

use rma_core::ids::Tag;
use rma_core::provider::{Accepted, CompletionScope, Endpoint, PostError, SendClass};

use crate::helper::{Ask, Helper, WINDOW_BYTES};
use crate::world::{World, LIMIT};
use crate::Setup;

/// Line 6 between processes: put to the first helper; when it is complete, tell the second one, which
/// reads from the first. Any old value is a violation.
pub(crate) fn line_6_a_third_process_reads_completed_puts(setup: &Setup) {
    let mut world = World::new(vec![setup.endpoint()]);
    let own = world.nodes[0].ep.address();
    let target = Helper::start(setup, &[own]);
    let reader = Helper::start(setup, &[own, target.address]);
    for address in [&target.address, &reader.address] {
        let peer = world.nodes[0].ep.connect(address).unwrap();
        world.nodes[0].peers.push(peer);
    }
    for round in 1..=500u64 {
        let len = [8, 64, 136, 4096][round as usize % 4];
        let src = vec![round; len / 8];
        let bytes: Vec<u8> = src.iter().flat_map(|word| word.to_ne_bytes()).collect();
        world.put(0, 1, &bytes, target.window, round);
        if world.nodes[0].ep.limits().put_completes == CompletionScope::Local {
            world.flush(0, 1, round + 1000);
        }
        let mut at = target.window;
        at.addr += len as u64 - 8;
        world.send(0, 2, &Ask::ReadFromOther(at).encode(), b"");
        let seen = u64::from_le_bytes(world.receive(0).try_into().unwrap());
        assert_eq!(seen, round, "{len} bytes: the third process read an old value");
        world.nodes[0].outcomes.clear();
    }
    target.finish();
    reader.finish();
}

/// Line 3 when the peer dies in the middle of everything: each accepted tag still comes back once,
/// the peer is reported down, and posting to it fails from then on.
pub(crate) fn line_3_a_killed_peer_gives_errors_and_no_hang(setup: &Setup) {
    let mut world = World::new(vec![setup.endpoint()]);
    let own = world.nodes[0].ep.address();
    let mut helper = Helper::start(setup, &[own]);
    let survivor = Helper::start(setup, &[own]);
    for address in [&helper.address, &survivor.address] {
        let peer = world.nodes[0].ep.connect(address).unwrap();
        world.nodes[0].peers.push(peer);
    }
    for helper in 1..=2 {
        // No tag of the loop below.
        let value = u64::MAX - helper as u64;
        world.send(0, helper, &Ask::Echo(value).encode(), b"");
        assert_eq!(world.receive(0), value.to_le_bytes());
    }

    let src = vec![7u8; WINDOW_BYTES];
    let mut sink = vec![0u8; WINDOW_BYTES];
    let (into, window) = (sink.as_mut_ptr(), helper.window);
    let peer = world.nodes[0].peers[1];
    let mut tracked = Vec::new();
    let start = Instant::now();
    for tag in 0.. {
        if tag == 2_000 {
            helper.kill();
        }
        assert!(
            start.elapsed() < LIMIT,
            "posting to a dead peer is still accepted or refused for want of resources"
        );
        let len = [8, 4096, WINDOW_BYTES][tag as usize % 3];
        let node = &mut world.nodes[0];
        let post = match tag % 3 {
            // SAFETY: source and sink outlive the wait below.
            0 => unsafe { node.ep.put(peer, src.as_ptr(), len, window, Tag(tag)) },
            // SAFETY: as above.
            1 => unsafe { node.ep.get(peer, into, len, window, Tag(tag)) },
            _ => {
                let sent = node.ep.send(peer, &Ask::Echo(tag).encode(), b"", SendClass::Request);
                // Packets have no tag that comes back.
                sent.map(|()| Accepted::Complete)
            }
        };
        match post {
            Ok(Accepted::Tracked) => tracked.push(tag),
            Ok(Accepted::Complete) | Err(PostError::Again) => {}
            Err(PostError::Failed(_)) => break,
        }
        node.poll();
    }
    world.until("every tracked tag", |world| world.nodes[0].outcomes.len() >= tracked.len());
    for _ in 0..1000 {
        world.poll();
    }
    let mut said: Vec<u64> = world.nodes[0].outcomes.iter().map(|(tag, _)| *tag).collect();
    said.sort_unstable();
    assert_eq!(said, tracked, "each tracked tag once");
    // Whether any of them failed is chance: all may have come back before the helper died.
    let downs: Vec<_> = world.nodes[0].downs.iter().map(|(peer, _)| *peer).collect();
    assert_eq!(downs, [peer], "one peer is down, said once");
    let node = &mut world.nodes[0];
    assert!(matches!(node.ep.send(peer, b"x", b"", SendClass::Reply), Err(PostError::Failed(_))));
    assert!(matches!(node.ep.flush(peer, Tag(0)), Err(PostError::Failed(_))));

    answers_although_another_died(&mut world, 2);
    survivor.finish();
}

/// Others are not affected. What the dead one has answered may come late, but not twice.
fn answers_although_another_died<E: Endpoint>(world: &mut World<E>, survivor: usize) {
    world.send(0, survivor, &Ask::Echo(u64::MAX).encode(), b"");
    let mut answered = BTreeSet::new();
    loop {
        let packet = world.receive(0);
        let value = u64::from_le_bytes(packet.as_slice().try_into().unwrap());
        if value == u64::MAX {
            break;
        }
        assert!(value % 3 == 2 && answered.insert(value), "{value} was not asked for, or answered before");
    }
}

/// Line 3 when the peer dies while nothing is in flight: what is posted afterwards fails, now or by its
/// tag, and is not refused for want of resources for ever.
pub(crate) fn line_3_an_idle_peer_that_died_is_noticed(setup: &Setup) {
    let mut world = World::new(vec![setup.endpoint()]);
    let own = world.nodes[0].ep.address();
    let mut helper = Helper::start(setup, &[own]);
    let peer = world.nodes[0].ep.connect(&helper.address).unwrap();
    world.nodes[0].peers.push(peer);
    world.send(0, 1, &Ask::Echo(1).encode(), b"");
    world.receive(0);
    helper.kill();
    for _ in 0..1000 {
        world.poll();
    }
    let src = 7u64.to_ne_bytes();
    let mut tag = 0;
    world.until("posting to the dead peer fails", |world| {
        // SAFETY: the source outlives the waits below.
        let post = unsafe { world.nodes[0].ep.put(peer, src.as_ptr(), 8, helper.window, Tag(tag)) };
        tag += u64::from(post.is_ok());
        matches!(post, Err(PostError::Failed(_)))
    });
    world.until("every accepted tag", |world| world.nodes[0].outcomes.len() as u64 >= tag);
    world.until("the peer is said to be down", |world| !world.nodes[0].downs.is_empty());
    let node = &mut world.nodes[0];
    if node.ep.limits().put_completes == CompletionScope::Remote {
        assert!(node.outcomes.iter().all(|(_, outcome)| outcome.is_err()));
    } else {
        // A put may be complete as soon as the kernel has its bytes; whether they arrived only a flush says.
        assert!(matches!(node.ep.flush(peer, Tag(tag)), Err(PostError::Failed(_))));
    }
    assert_eq!(node.downs.len(), 1);
}

/// The same when nothing but replies is sent to it, over connections that were never used before or
/// were: the peer is down for everything, and said to be so once.
pub(crate) fn line_3_a_peer_that_died_is_noticed_by_replies(setup: &Setup) {
    for is_connected in [false, true] {
        let mut world = World::new(vec![setup.endpoint()]);
        let own = world.nodes[0].ep.address();
        let mut helper = Helper::start(setup, &[own]);
        let peer = world.nodes[0].ep.connect(&helper.address).unwrap();
        world.nodes[0].peers.push(peer);
        let class = if is_connected { SendClass::Reply } else { SendClass::Request };
        world.send_as(0, 1, &Ask::Echo(1).encode(), b"", class);
        world.receive(0);
        helper.kill();
        world.until("replies to the dead peer fail", |world| {
            let reply = world.nodes[0].ep.send(peer, &Ask::Echo(2).encode(), b"", SendClass::Reply);
            matches!(reply, Err(PostError::Failed(_)))
        });
        world.until("the peer is said to be down", |world| !world.nodes[0].downs.is_empty());
        let node = &mut world.nodes[0];
        assert!(matches!(node.ep.send(peer, b"x", b"", SendClass::Request), Err(PostError::Failed(_))));
        for _ in 0..1000 {
            world.poll();
        }
        assert_eq!(world.nodes[0].downs.len(), 1);
    }
}

/// A peer that does not run for a while is not taken for dead, and asking after it does no harm.
pub(crate) fn a_sleeping_peer_is_not_taken_for_dead(setup: &Setup) {
    let mut world = World::new(vec![setup.endpoint()]);
    let own = world.nodes[0].ep.address();
    let mut helper = Helper::start(setup, &[own]);
    let peer = world.nodes[0].ep.connect(&helper.address).unwrap();
    world.nodes[0].peers.push(peer);
    // Nothing has been sent yet, so that even the connection has to wait for the peer.
    helper.pause();
    let (mut accepted, mut refused) = (0u64, 0);
    let start = Instant::now();
    while refused < 50_000 && start.elapsed() < LIMIT {
        match world.nodes[0].ep.send(peer, &Ask::Echo(accepted).encode(), b"", SendClass::Request) {
            Ok(()) => accepted += 1,
            Err(PostError::Again) => refused += 1,
            Err(PostError::Failed(code)) => panic!("the peer only sleeps: {code}"),
        }
        world.poll();
    }
    helper.resume();
    for _ in 0..10 {
        world.send(0, 1, &Ask::Echo(accepted).encode(), b"");
        accepted += 1;
    }
    for value in 0..accepted {
        assert_eq!(world.receive(0), value.to_le_bytes());
    }
    assert!(world.nodes[0].downs.is_empty());
    helper.finish();
}
