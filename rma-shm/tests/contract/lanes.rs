//! Lanes: who comes again, who finds no room, and who sleeps meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::provider::{
    Accepted, CompletionBatch, Endpoint, MemoryRegion, PostError, RemoteAddr, SendClass,
};
use rma_shm::{Options, Reach, ShmEndpoint};

use crate::helper::Helper;
use crate::world::World;
use crate::Setup;

/// Packets of a class keep their order when their sender forgets the receiver and connects again, read or
/// not.
pub(crate) fn packets_keep_their_order_across_connections<E: Endpoint>(mut world: World<E>) {
    let address = world.nodes[1].ep.address();
    let mut expected = 0_u64;
    for round in 0..200_u64 {
        for index in 0..3 {
            world.send(0, 1, &(3 * round + index).to_le_bytes(), b"");
        }
        let peer = world.nodes[0].peers[1];
        world.nodes[0].ep.disconnect(peer);
        let refused = world.nodes[0].ep.send(peer, b"x", b"", SendClass::Request);
        assert!(matches!(refused, Err(PostError::Failed(_))), "{refused:?}");
        let again = world.nodes[0].ep.connect(&address).unwrap();
        assert_ne!(again, peer, "a name is one connection's");
        world.nodes[0].peers[1] = again;
        // Another one comes and goes between, and does not get the lane.
        if round % 5 == 0 {
            let other = &mut world.nodes[2];
            other.ep.disconnect(other.peers[1]);
            other.peers[1] = other.ep.connect(&address).unwrap();
        }
        if round % 7 == 0 {
            while expected < 3 * round {
                assert_eq!(world.receive(1), expected.to_le_bytes());
                expected += 1;
            }
        }
    }
    while expected < 600 {
        assert_eq!(world.receive(1), expected.to_le_bytes());
        expected += 1;
    }
}

/// Whether the descriptor becomes readable; the limit is only there for a bug.
fn is_woken(ep: &ShmEndpoint) -> bool {
    is_woken_within(ep, 20_000)
}

/// The same, within so many milliseconds.
pub(crate) fn is_woken_within(ep: &ShmEndpoint, limit: i32) -> bool {
    let mut wait = libc::pollfd { fd: ep.wait_fd().unwrap(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, valid during the call.
    unsafe { libc::poll(&mut wait, 1, limit) > 0 }
}

/// Who found no room for a packet may sleep, and is woken when there is some.
#[test]
fn a_refused_sender_is_woken_by_room() {
    let mut world = Setup.world(2);
    let peer = world.nodes[0].peers[1];
    for class in [SendClass::Request, SendClass::Reply] {
        for _ in 0..3 {
            while world.nodes[0].ep.send(peer, &[1; 1000], b"", class).is_ok() {}
            world.nodes[0].poll();
            assert!(world.nodes[0].ep.arm_wait(), "nothing has changed");
            world.nodes[1].poll();
            assert!(is_woken(&world.nodes[0].ep), "slept although there was room");
            assert_eq!(world.nodes[0].ep.send(peer, &[1; 1000], b"", class), Ok(()));
        }
        // Room that there is already is noticed before the sleep.
        while world.nodes[0].ep.send(peer, &[1; 1000], b"", class).is_ok() {}
        world.nodes[1].poll();
        assert!(!world.nodes[0].ep.arm_wait(), "there is room");
        while world.nodes[1].poll() > 0 {}
    }
}

/// Who sleeps is woken by the end of a peer's process.
#[test]
fn a_sleeper_is_woken_by_a_death() {
    let mut world = World::new(vec![Setup.endpoint()]);
    let own = world.nodes[0].ep.address();
    let mut helper = Helper::start(&Setup, &[own]);
    let peer = world.nodes[0].ep.connect(&helper.address).unwrap();
    while !world.nodes[0].ep.arm_wait() {
        world.nodes[0].poll();
    }
    helper.kill();
    assert!(is_woken(&world.nodes[0].ep));
    assert!(!world.nodes[0].ep.arm_wait(), "there is something to say");
    world.nodes[0].poll();
    assert_eq!(world.nodes[0].downs.iter().map(|(down, _)| *down).collect::<Vec<_>>(), [peer]);
    assert_eq!(world.nodes[0].ep.connect(&helper.address).unwrap(), peer, "it is still known");
    world.nodes[0].ep.disconnect(peer);
    world.nodes[0].ep.disconnect(peer);
    let gone = world.nodes[0].ep.connect(&helper.address).unwrap_err();
    assert!(gone.message.contains("connect to process"), "{gone}");
}

/// An endpoint that is closed is down for those that know it, once; what it has sent arrives.
#[test]
fn closed_endpoints_are_down() {
    let mut world = Setup.world(3);
    world.send(1, 0, b"last words", b"");
    let peer = world.nodes[0].peers[1];
    assert_eq!(world.receive(0), b"last words");
    world.send(1, 0, b"very last words", b"");
    world.nodes[0].poll();
    while !world.nodes[0].ep.arm_wait() {
        world.nodes[0].poll();
    }
    drop(world.nodes.remove(1));
    assert!(is_woken(&world.nodes[0].ep), "who sleeps must see that the peer is closed");
    assert_eq!(world.receive(0), b"very last words");
    world.until("the peer is down", |world| !world.nodes[0].downs.is_empty());
    assert!(matches!(world.nodes[0].ep.flush(peer, Tag(1)), Err(PostError::Failed(_))));
    for _ in 0..1000 {
        world.poll();
    }
    assert_eq!(world.nodes[0].downs.iter().map(|(down, _)| *down).collect::<Vec<_>>(), [peer]);
}

/// Small puts and gets of memory that is not mapped are done by a peer that polls, which says that it did something; by the
/// kernel where none does. Both at one time, and two that ask each other, end and bring what was put.
#[test]
fn peers_that_poll_do_small_copies_themselves() {
    const ROUNDS_MIN: u64 = 2000;
    const SERVED_MIN: usize = 100;
    let mut world = Setup.world(2);
    let (mut windows, mut places) = (Vec::new(), Vec::new());
    for node in 0..2 {
        let mut window = vec![0_u64; 256].into_boxed_slice();
        // SAFETY: the window outlives the region, and only peers access it until then.
        let region = unsafe {
            world.nodes[node].ep.register(
                std::ptr::NonNull::from(&mut window[0]).cast(),
                2048,
                RemoteKey(node as u64),
            )
        };
        let region = region.unwrap();
        places.push(RemoteAddr { addr: region.remote_base(), key: region.remote_key() });
        windows.push((region, window));
    }
    let mut nodes = world.nodes.drain(..);
    let (one, other) = (nodes.next().unwrap(), nodes.next().unwrap());
    // How often the endpoints did something, of which they said nothing else; both must run at one time for that.
    let (served, begun) = (AtomicUsize::new(0), Instant::now());
    let goes_on = |round: u64| {
        let is_late = begun.elapsed() > Duration::from_secs(crate::LIMIT_S / 2);
        round < ROUNDS_MIN || (served.load(Ordering::Relaxed) < SERVED_MIN && !is_late)
    };
    let exchange = |mut node: crate::world::Node<ShmEndpoint>, peer: PeerAddr, at: RemoteAddr| {
        let mut batch = CompletionBatch::new();
        let mut brought = vec![0_u64; 256];
        for round in (1..).take_while(|&round| goes_on(round)) {
            let len = 8 * (1 + round as usize % 256);
            let source = vec![round; 256];
            // SAFETY: both are there until the call returns, with which the operation is over.
            let put = unsafe { node.ep.put(peer, source.as_ptr().cast(), len, at, Tag(1)) };
            // SAFETY: as above.
            let get = unsafe { node.ep.get(peer, brought.as_mut_ptr().cast(), len, at, Tag(2)) };
            assert_eq!((put, get), (Ok(Accepted::Complete), Ok(Accepted::Complete)));
            assert!(brought[..len / 8].iter().all(|&word| word == round), "round {round}");
            let other = vec![!round; 256];
            // SAFETY: as above; so for both.
            assert!(unsafe { node.ep.put_now(peer, other.as_ptr().cast(), len, at) }, "round {round}");
            // SAFETY: as above.
            assert!(unsafe { node.ep.get_now(peer, brought.as_mut_ptr().cast(), len, at) }, "round {round}");
            assert!(brought[..len / 8].iter().all(|&word| word == !round), "round {round}");
            served.fetch_add(node.ep.poll(&mut batch), Ordering::Relaxed);
            assert!(batch.is_empty());
        }
        node
    };
    let (peer_of_one, peer_of_other) = (one.peers[1], other.peers[0]);
    let (exchange, at) = (&exchange, [places[1], places[0]]);
    std::thread::scope(|scope| {
        let first = scope.spawn(move || exchange(one, peer_of_one, at[0]));
        let other = exchange(other, peer_of_other, at[1]);
        // Nobody closes while the other one still asks.
        drop((first.join().unwrap(), other));
    });
    let served = served.load(Ordering::Relaxed);
    assert!(served >= SERVED_MIN, "{served} copies were done by a peer's processor");
    drop(windows);
}

/// Too many senders, and sizes that are not everybody's: errors that name the option.
#[test]
fn who_cannot_connect_says_why() {
    let open = |change: fn(&mut Options)| {
        let mut options = Options { reach: Some(Reach::Packets), senders_max: 2, ..Options::default() };
        change(&mut options);
        ShmEndpoint::open(&options).unwrap()
    };
    let target = open(|_| ());
    let mut others: Vec<ShmEndpoint> = (0..3).map(|_| open(|_| ())).collect();
    let peers: Vec<_> = others[..2].iter_mut().map(|ep| ep.connect(&target.address()).unwrap()).collect();
    let refused = others[2].connect(&target.address()).unwrap_err();
    assert!(refused.message.contains("senders_max"), "{refused}");
    others[0].disconnect(peers[0]);
    others[2].connect(&target.address()).unwrap();
    for change in [
        (|options| options.regions_max = 100_000 / 2) as fn(&mut Options),
        |options| options.packet_bytes = 1024,
        |options| options.senders_max = 1,
    ] {
        let refused = open(change).connect(&target.address()).unwrap_err();
        assert!(refused.message.contains("same options"), "{refused}");
    }
}
