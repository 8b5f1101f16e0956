//! Connections that are closed because there are too many, and made again.

use rma_core::ids::Tag;
use rma_core::provider::{Endpoint, PostError, SendClass};

use crate::world::{Window, World};

/// The bound that [`many_peers_few_connections`] wants its endpoints opened with.
pub(crate) const FEW: usize = 16;

/// What may exist beyond the bound while connections are being made and closed.
/// Peers that are late to close keep theirs for a while.
const MARGIN: usize = 2 * FEW;

/// One endpoint touches many, one after the other, twice: it never has many more connections than the bound, and data
/// and packets arrive as if it had.
pub(crate) fn many_peers_few_connections<E: Endpoint>(mut world: World<E>, connections: fn(&E) -> usize) {
    let count = world.nodes.len();
    let windows: Vec<Window<E>> =
        (1..count).map(|node| Window::new(&mut world.nodes[node].ep, 64, 1)).collect();
    let mut most = 0;
    for round in 0..2u64 {
        for node in 1..count {
            let value = round << 32 | node as u64;
            let src = value.to_le_bytes();
            let window = &windows[node - 1];
            let mut around = 1;
            let mut stage = 0;
            // Those that were touched before poll now and then, as somebody who has other things to do.
            let mut turn = |world: &mut World<E>| {
                world.nodes[0].poll();
                world.nodes[node].poll();
                for _ in 0..8 {
                    around = around % (count - 1) + 1;
                    world.nodes[around].poll();
                }
                most = most.max(connections(&world.nodes[0].ep));
            };
            let begun = std::time::Instant::now();
            while stage < 4 {
                assert!(begun.elapsed() < crate::world::LIMIT, "node {node} at stage {stage}");
                let peer = world.nodes[0].peers[node];
                let back = world.nodes[node].peers[0];
                let ep = &mut world.nodes[0].ep;
                stage += match stage {
                    // SAFETY: the source lives until the end of the loop.
                    0 => posted(unsafe { ep.put(peer, src.as_ptr(), 8, window.at(8), Tag(value)) }),
                    1 => posted(ep.send(peer, &src, b"", SendClass::Request)),
                    2 => match world.nodes[node].packets.pop_front() {
                        Some(packet) => {
                            assert_eq!(packet, src);
                            assert_eq!(window.word(8), value, "the packet came before the put");
                            posted(world.nodes[node].ep.send(back, &packet, b"", SendClass::Reply))
                        }
                        None => 0,
                    },
                    _ => match world.nodes[0].packets.pop_front() {
                        Some(packet) => {
                            assert_eq!(packet, src);
                            1
                        }
                        None => 0,
                    },
                };
                turn(&mut world);
            }
            world.finish(0, value);
            world.nodes[0].outcomes.clear();
        }
    }
    assert!(most > FEW / 2, "{most} connections: nothing was kept");
    assert!(most <= FEW + MARGIN, "{most} connections at one time");
    world.until("the last ones are closed", |world| connections(&world.nodes[0].ep) <= FEW);
}

/// One endpoint writes to many at one time, and so has a connection to each; when they are idle those above the bound go,
/// and nothing else has to happen for it. Then it does so again.
pub(crate) fn peers_touched_together_leave_few_connections<E: Endpoint>(
    mut world: World<E>,
    connections: fn(&E) -> usize,
) {
    let pairs: Vec<_> = (1..world.nodes.len()).map(|node| (0, node)).collect();
    written_together(&mut world, &pairs, connections);
}

/// The same where many write to one, which is not who closes them.
pub(crate) fn peers_that_come_together_leave_few_connections<E: Endpoint>(
    mut world: World<E>,
    connections: fn(&E) -> usize,
) {
    let pairs: Vec<_> = (1..world.nodes.len()).map(|node| (node, 0)).collect();
    written_together(&mut world, &pairs, connections);
}

fn written_together<E: Endpoint>(
    world: &mut World<E>,
    pairs: &[(usize, usize)],
    connections: fn(&E) -> usize,
) {
    let windows: Vec<Window<E>> =
        world.nodes.iter_mut().map(|node| Window::new(&mut node.ep, 8 * pairs.len(), 1)).collect();
    for round in 1..3u64 {
        let src = round.to_le_bytes();
        let mut accepted = vec![false; pairs.len()];
        world.until("every put is accepted", |world| {
            for (number, &(from, to)) in pairs.iter().enumerate() {
                if !accepted[number] {
                    let node = &mut world.nodes[from];
                    let at = windows[to].at(8 * number);
                    // SAFETY: the source lives until every put is complete.
                    let put = unsafe { node.ep.put(node.peers[to], src.as_ptr(), 8, at, Tag(number as u64)) };
                    accepted[number] = posted(put) > 0;
                }
            }
            accepted.iter().all(|&is_accepted| is_accepted)
        });
        world.until("every put is complete", |world| {
            world.nodes.iter().map(|node| node.outcomes.len()).sum::<usize>() == pairs.len()
        });
        for (number, &(_, to)) in pairs.iter().enumerate() {
            assert_eq!(windows[to].word(8 * number), round);
        }
        world.until("the connections above the bound are closed", |world| {
            world.nodes.iter().all(|node| connections(&node.ep) <= FEW)
        });
        for node in &mut world.nodes {
            assert!(node.outcomes.iter().all(|(_, outcome)| outcome.is_ok()) && node.downs.is_empty());
            node.outcomes.clear();
        }
        let left = connections(&world.nodes[0].ep);
        assert!(left > FEW / 2, "{left} connections: more were closed than had to be");
    }
}

/// Peers that have ended leave their places among the connections, of both roles.
pub(crate) fn lost_peers_leave_their_places<E: Endpoint>(mut world: World<E>, connections: fn(&E) -> usize) {
    let count = world.nodes.len();
    let windows: Vec<Window<E>> =
        (1..count).map(|node| Window::new(&mut world.nodes[node].ep, 64, 1)).collect();
    let src = 7u64.to_le_bytes();
    for node in 1..count {
        world.put(0, node, &src, windows[node - 1].at(0), node as u64);
        world.send(node, 0, &src, b"");
        assert_eq!(world.receive(0), src);
    }
    let others = count - 1;
    assert_eq!(connections(&world.nodes[0].ep), 2 * others);
    world.nodes.truncate(1);
    world.nodes[0].outcomes.clear();
    let mut accepted = 0;
    for node in 1..count {
        world.until("posts to who has ended fail", |world| {
            let peer = world.nodes[0].peers[node];
            // SAFETY: the source lives until the end.
            let post = unsafe {
                world.nodes[0].ep.put(peer, src.as_ptr(), 8, windows[node - 1].at(0), Tag(accepted as u64))
            };
            accepted += usize::from(post.is_ok());
            matches!(post, Err(PostError::Failed(_)))
        });
    }
    world.until("every accepted tag", |world| world.nodes[0].outcomes.len() == accepted);
    assert!(world.nodes[0].outcomes.iter().all(|(_, outcome)| outcome.is_err()));
    world.until("the places are free", |world| connections(&world.nodes[0].ep) == 0);
    assert_eq!(world.nodes[0].downs.len(), others);
    // The endpoint goes on.
    let mut own = Window::<E>::new(&mut world.nodes[0].ep, 64, 1);
    own.set_word(0, 0);
    world.put(0, 0, &src, own.at(0), accepted as u64);
    assert_eq!(own.word(0), 7);
}

fn posted<T>(post: Result<T, PostError>) -> u32 {
    match post {
        Ok(_) => 1,
        Err(PostError::Again) => 0,
        Err(PostError::Failed(code)) => panic!("{code}"),
    }
}

/// Everybody asks everybody and answers, and writes to everybody's memory, while connections come and go: packets of
/// a class from one to another arrive in order, each once, and what was put is there.
pub(crate) fn traffic_survives_closing<E: Endpoint>(mut world: World<E>, connections: fn(&E) -> usize) {
    const ROUNDS: u64 = 60;
    let count = world.nodes.len();
    let windows: Vec<Window<E>> =
        (0..count).map(|node| Window::new(&mut world.nodes[node].ep, 8 * count, 1)).collect();
    // By sender and receiver: what was sent, and what has come, of each class; and replies that are owed.
    let mut sent = vec![[0u64; 2]; count * count];
    let mut come = vec![[0u64; 2]; count * count];
    let values: Vec<u64> = (0..ROUNDS * count as u64).collect();
    let mut puts = vec![0u64; count * count];
    let (mut most, mut turns) = (0, 0);
    world.until("the end of the traffic", |world| {
        let mut is_over = true;
        turns += 1;
        for from in 0..count {
            for to in 0..count {
                let pair = from * count + to;
                let node = &mut world.nodes[from];
                let peer = node.peers[to];
                // In bursts, so that there is something idle between them.
                let is_its_turn = turns / 64 % count == to;
                if sent[pair][0] < ROUNDS && is_its_turn {
                    let packet = [from as u64, 0, sent[pair][0]].map(u64::to_le_bytes).concat();
                    sent[pair][0] += u64::from(posted(node.ep.send(peer, &packet, b"", SendClass::Request)));
                    let src = (&raw const values[(puts[pair] + 1) as usize]).cast();
                    let at = windows[to].at(8 * from);
                    // SAFETY: the values live until the end.
                    let post = unsafe { node.ep.put(peer, src, 8, at, Tag(pair as u64)) };
                    puts[pair] += u64::from(posted(post));
                }
                // What has come the other way is answered.
                if sent[pair][1] < come[to * count + from][0] {
                    let packet = [from as u64, 1, sent[pair][1]].map(u64::to_le_bytes).concat();
                    sent[pair][1] += u64::from(posted(node.ep.send(peer, &packet, b"", SendClass::Reply)));
                }
                is_over &= come[pair] == [ROUNDS; 2];
            }
        }
        for (to, node) in world.nodes.iter_mut().enumerate() {
            most = most.max(connections(&node.ep));
            while let Some(packet) = node.packets.pop_front() {
                let word = |at: usize| u64::from_le_bytes(packet[at * 8..at * 8 + 8].try_into().unwrap());
                let come = &mut come[word(0) as usize * count + to][word(1) as usize];
                assert_eq!(word(2), *come, "from {} to {to}, class {}", word(0), word(1));
                *come += 1;
            }
        }
        is_over
    });
    for from in 0..count {
        let expected: u64 = puts[from * count..(from + 1) * count].iter().sum();
        world.until("all puts", |world| world.nodes[from].outcomes.len() as u64 >= expected);
        assert!(world.nodes[from].outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
        assert!(world.nodes[from].downs.is_empty());
        for (to, window) in windows.iter().enumerate() {
            assert_eq!(window.word(8 * from), puts[from * count + to], "from {from} to {to}");
        }
    }
    assert!(most > 0);
}
