//! The cable between two devices does not work for a while, or for good: errors or recovery, never a hang or wrong
//! data. The first endpoint is on the device at one end, the second at the other, the third where the first is.
//!
//! `RMA_TEST_CABLE` names the program that changes the cable, as ci/softroce.sh does: `PROGRAM cable STATE`, and
//! `PROGRAM cable STATE SECONDS`, which ends when the cable is in order again.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rma_core::ids::Tag;
use rma_core::provider::{Endpoint, PostError, SendClass};

use crate::world::{Window, World};

/// What may be wrong with the cable.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// The port of the first device is down.
    PortDown,
    /// Everything looks well, and nothing arrives.
    Silence,
}

impl Trouble {
    fn state(self) -> &'static str {
        match self {
            Self::PortDown => "down",
            Self::Silence => "silent",
        }
    }
}

/// Seconds that trouble lasts which passes, and what it takes to mend: devices send again, and do not give up yet.
const A_WHILE: &str = "0.3";

/// A port may be down for longer before its endpoints are: long enough for every datagram to be repeated a few times.
const A_LONGER_WHILE: Duration = Duration::from_secs(2);

/// A cable in trouble; in order again when dropped.
struct Cable;

impl Cable {
    fn cut(trouble: Trouble) -> Self {
        Self::change(&[trouble.state()]).wait().unwrap();
        Self
    }

    /// Trouble that passes when this process has ended.
    fn cut_for_a_while(trouble: Trouble) -> Child {
        Self::change(&[trouble.state(), A_WHILE])
    }

    fn change(how: &[&str]) -> Child {
        let program = std::env::var("RMA_TEST_CABLE").expect("RMA_TEST_CABLE names what changes the cable");
        Command::new(program).arg("cable").args(how).spawn().unwrap()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = Self::change(&["up"]).wait();
    }
}

/// Packets and puts from each node of a pair to the other, numbered.
struct Traffic<E: Endpoint> {
    nodes: [usize; 2],
    /// At each of the two.
    windows: [Window<E>; 2],
    /// By the one from which they go.
    sent: [u64; 2],
    come: [u64; 2],
    puts: [u64; 2],
    is_refused: [bool; 2],
    values: Vec<u64>,
}

/// Puts and packets that one side posts at most; tags of one direction are below this.
const COUNT_MAX: u64 = 1 << 20;

impl<E: Endpoint> Traffic<E> {
    fn new(world: &mut World<E>, nodes: [usize; 2]) -> Self {
        let windows = nodes.map(|node| Window::new(&mut world.nodes[node].ep, 64, 1));
        let values = (0..=COUNT_MAX).collect();
        Self { nodes, windows, sent: [0; 2], come: [0; 2], puts: [0; 2], is_refused: [false; 2], values }
    }

    /// Each side posts a put and the packet behind it, if there is room, and reads what has come.
    fn turn(&mut self, world: &mut World<E>) {
        for from in 0..2 {
            let to = 1 - from;
            let node = &mut world.nodes[self.nodes[from]];
            let peer = node.peers[self.nodes[to]];
            let (number, at) = (self.puts[from] + 1, self.windows[to].at(0));
            if number < COUNT_MAX && self.puts[from] == self.sent[from] {
                let src = (&raw const self.values[number as usize]).cast();
                // SAFETY: the values live as long as the traffic, which is longer than the endpoints.
                let put = unsafe { node.ep.put(peer, src, 8, at, Tag(number)) };
                self.puts[from] += self.count(from, put);
            }
            if self.puts[from] > self.sent[from] {
                let packet = self.puts[from].to_le_bytes();
                let sent = node.ep.send(peer, &packet, b"", SendClass::Request);
                self.sent[from] += self.count(from, sent);
            }
        }
        world.poll();
        for to in 0..2 {
            let node = &mut world.nodes[self.nodes[to]];
            while let Some(packet) = node.packets.pop_front() {
                let come = &mut self.come[1 - to];
                *come += 1;
                assert_eq!(packet, come.to_le_bytes(), "to node {}", self.nodes[to]);
                let word = self.windows[to].word(0);
                assert!(word >= *come && word < COUNT_MAX, "{word} is not what was put before packet {come}");
            }
        }
    }

    fn count<T>(&mut self, from: usize, post: Result<T, PostError>) -> u64 {
        self.is_refused[from] |= matches!(post, Err(PostError::Failed(_)));
        u64::from(post.is_ok())
    }

    /// Goes on until so many more packets have come to each side.
    fn carry(&mut self, world: &mut World<E>, more: u64) {
        let wanted = self.come.map(|come| come + more);
        world.until("traffic in both directions", |world| {
            self.turn(world);
            assert_eq!(self.is_refused, [false; 2], "{:?}", world.nodes[self.nodes[0]].downs);
            (0..2).all(|from| self.come[from] >= wanted[from])
        });
    }

    /// Goes on until trouble has passed, whatever arrives.
    fn go_on_during(&mut self, world: &mut World<E>, mut trouble: Child) {
        world.until("the end of the trouble", |world| {
            self.turn(world);
            trouble.try_wait().unwrap().is_some_and(|status| {
                assert!(status.success(), "the cable did not change: {status}");
                true
            })
        });
    }

    /// Waits until each put has come back, and holds that it did once.
    fn settle(&self, world: &mut World<E>) {
        for from in 0..2 {
            let (at, puts) = (self.nodes[from], self.puts[from]);
            world.until("every accepted tag", |world| world.nodes[at].outcomes.len() as u64 >= puts);
            for _ in 0..1000 {
                world.poll();
            }
            let mut tags: Vec<u64> = world.nodes[at].outcomes.iter().map(|(tag, _)| *tag).collect();
            tags.sort_unstable();
            assert!(tags.iter().copied().eq(1..=puts), "each accepted tag once at node {at}");
        }
    }

    /// Holds that all has been done and nothing refused.
    fn arrives(&self, world: &mut World<E>) {
        self.settle(world);
        for (from, at) in self.nodes.into_iter().enumerate() {
            let node = &world.nodes[at];
            assert!(node.outcomes.iter().all(|(_, outcome)| outcome.is_ok()), "node {at}");
            assert!(node.downs.is_empty(), "node {at}: {:?}", node.downs);
            assert_eq!(self.windows[1 - from].word(0), self.puts[from], "from node {at}");
        }
        assert_eq!(self.is_refused, [false; 2]);
    }
}

/// Silence that passes is only slow: all arrives, in order and once, and nobody is taken for dead.
pub(crate) fn silence_that_passes_is_only_slow<E: Endpoint>(mut world: World<E>) {
    let mut traffic = Traffic::new(&mut world, [0, 1]);
    for _ in 0..2 {
        traffic.carry(&mut world, 50);
        traffic.go_on_during(&mut world, Cable::cut_for_a_while(Trouble::Silence));
    }
    traffic.carry(&mut world, 50);
    traffic.arrives(&mut world);
}

/// A port that comes back ends no endpoint: who was connected over it goes on, or has an error where the device gives
/// up connections at once, and others connect.
pub(crate) fn a_port_that_comes_back_ends_no_endpoint<E: Endpoint>(mut world: World<E>) {
    let mut traffic = Traffic::new(&mut world, [0, 1]);
    traffic.carry(&mut world, 50);
    traffic.go_on_during(&mut world, Cable::cut_for_a_while(Trouble::PortDown));
    let wanted = traffic.come.map(|come| come + 50);
    world.until("traffic in both directions, or an error at both", |world| {
        traffic.turn(world);
        traffic.is_refused == [true; 2] || (0..2).all(|from| traffic.come[from] >= wanted[from])
    });
    if traffic.is_refused == [false; 2] {
        traffic.arrives(&mut world);
    } else {
        traffic.settle(&mut world);
        assert!(world.nodes[..2].iter().all(|node| node.downs.len() == 1));
    }
    let mut later = Traffic::new(&mut world, [2, 3]);
    later.carry(&mut world, 50);
    later.arrives(&mut world);
}

/// The same when the connection is not made yet.
pub(crate) fn connections_are_made_when_trouble_has_passed<E: Endpoint>(mut world: World<E>) {
    let mut traffic = Traffic::new(&mut world, [0, 1]);
    let cable = Cable::cut(Trouble::Silence);
    for _ in 0..1000 {
        traffic.turn(&mut world);
    }
    assert_eq!((traffic.puts, traffic.come), ([0; 2], [0; 2]), "the cable is not cut");
    drop(cable);
    traffic.carry(&mut world, 50);
    traffic.arrives(&mut world);
}

/// A port is down while connections are made over it, one of which was asked for before: they are made when it is back, and
/// so are those of others that speak for the first time then. Nobody is lost.
pub(crate) fn connections_are_made_when_a_port_is_back<E: Endpoint>(mut world: World<E>) {
    let mut before = Traffic::new(&mut world, [0, 1]);
    let mut during = Traffic::new(&mut world, [2, 3]);
    let mut after = Traffic::new(&mut world, [0, 3]);
    // Its first datagram goes while all is well, and nobody answers before the trouble begins.
    let peer = world.nodes[0].peers[1];
    let asked = world.nodes[0].ep.send(peer, b"", b"", SendClass::Request);
    assert!(matches!(asked, Err(PostError::Again)), "{asked:?}");
    let cable = Cable::cut(Trouble::PortDown);
    let begun = Instant::now();
    world.until("the end of the trouble", |world| {
        before.turn(world);
        during.turn(world);
        begun.elapsed() >= A_LONGER_WHILE
    });
    assert_eq!((before.come, during.come), ([0; 2], [0; 2]), "the port is not down");
    drop(cable);
    for traffic in [&mut before, &mut during, &mut after] {
        traffic.carry(&mut world, 50);
        traffic.settle(&mut world);
        for at in traffic.nodes {
            assert!(world.nodes[at].outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
            world.nodes[at].outcomes.clear();
        }
    }
    assert!(world.nodes.iter().all(|node| node.downs.is_empty()));
}

/// A cable that stays silent is an error at both who use it, and nobody else's: who is on the same device goes on.
pub(crate) fn silence_for_good_is_an_error_at_both<E: Endpoint>(mut world: World<E>) {
    let mut traffic = Traffic::new(&mut world, [0, 1]);
    traffic.carry(&mut world, 50);
    let mut beside = Traffic::new(&mut world, [0, 2]);
    let cable = Cable::cut(Trouble::Silence);
    world.until("an error at both", |world| {
        traffic.turn(world);
        world.nodes[..2].iter().all(|node| !node.downs.is_empty())
    });
    traffic.settle(&mut world);
    for (at, of) in [(0, 1), (1, 0)] {
        let node = &mut world.nodes[at];
        let peer = node.peers[of];
        let downs: Vec<_> = node.downs.iter().map(|(peer, _)| *peer).collect();
        assert_eq!(downs, [peer], "one peer of node {at} is down, said once");
        let refused = node.ep.send(peer, b"x", b"", SendClass::Request);
        assert!(matches!(refused, Err(PostError::Failed(_))), "{refused:?}");
        node.outcomes.clear();
    }
    beside.carry(&mut world, 50);
    beside.settle(&mut world);
    assert!(world.nodes[0].outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
    drop(cable);
}

/// A port that stays down ends its endpoints, also one that only waits, after all that was under way has come back.
pub(crate) fn a_port_down_for_good_ends_its_endpoints<E: Endpoint>(mut world: World<E>) {
    let mut traffic = Traffic::new(&mut world, [0, 1]);
    traffic.carry(&mut world, 50);
    world.nodes.iter_mut().for_each(|node| node.may_end = true);
    let cable = Cable::cut(Trouble::PortDown);
    world.until("the end of all endpoints", |world| {
        traffic.turn(world);
        world.nodes.iter().all(|node| !node.ends.is_empty())
    });
    traffic.settle(&mut world);
    assert_eq!(traffic.is_refused, [true; 2]);
    for node in &mut world.nodes {
        assert_eq!(node.ends.len(), 1, "{:?}", node.ends);
        let refused = node.ep.send(node.peers[1], b"x", b"", SendClass::Request);
        assert!(matches!(refused, Err(PostError::Failed(_))), "{refused:?}");
    }
    drop(cable);
}
