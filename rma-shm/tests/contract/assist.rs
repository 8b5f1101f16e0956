//! Atomics that a peer does by itself when it is asked: line 15 of the contract.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey};
use rma_core::mem::WindowMemory;
use rma_core::op::ReduceOp;
use rma_core::provider::{Atomic, CompletionBatch, Endpoint, RemoteAddr};
use rma_shm::{Options, Reach, ShmEndpoint};

use crate::world::{Node, World};

const BYTES: usize = 64;
/// Where numbers are: of a processor's atomics, at an odd address, and longer than those.
const PLACES: [(Dtype, u64); 3] = [(Dtype::U64, 8), (Dtype::U64, 19), (Dtype::U128, 32)];

static ONE: u128 = 1;

/// Adds 1 to a number of the peer's; what was there before, if the peer has done it.
fn ask(ep: &mut ShmEndpoint, peer: PeerAddr, at: RemoteAddr, dtype: Dtype) -> Option<u128> {
    let mut old = 0_u128;
    let atomic = Atomic::Fetch { operand: (&raw const ONE).cast(), result: (&raw mut old).cast() };
    // SAFETY: both are there during the call.
    let is_done = unsafe { ep.assist(peer, atomic, at, dtype, ReduceOp::Sum) };
    assert!(is_done || old == 0, "the result of what was not done");
    is_done.then_some(old)
}

fn open(reach: Reach) -> ShmEndpoint {
    ShmEndpoint::open(&Options { reach: Some(reach), ..Options::default() }).unwrap()
}

/// Two that ask each other, and add to their own numbers as their engines would: nothing is lost or done twice, whatever
/// became of a request.
pub(crate) fn line_15_who_is_asked_does_an_atomic_at_once_or_not_at_all() {
    const ROUNDS_MIN: usize = 2000;
    const DONE_MIN: usize = 100;
    let mut world = World::new(vec![open(Reach::Attached), open(Reach::Attached)]);
    let mut windows = [0; 2].map(|_| vec![0_u64; BYTES / 8].into_boxed_slice());
    let mut regions = Vec::new();
    for (node, window) in world.nodes.iter_mut().zip(&mut windows) {
        let base = NonNull::from(&mut window[0]).cast();
        // SAFETY: the window outlives the region.
        regions.push(unsafe { node.ep.register(base, BYTES, RemoteKey(3)) }.unwrap());
    }
    let bases = windows.each_mut().map(|window| window.as_mut_ptr().expose_provenance());
    let mut nodes = world.nodes.drain(..);
    let (one, other) = (nodes.next().unwrap(), nodes.next().unwrap());
    let (begun, done, over) = (Instant::now(), AtomicUsize::new(0), AtomicUsize::new(0));
    // Of each number how often it was added to.
    let sums = [0; 2].map(|_| [0; 3].map(|_| AtomicU64::new(0)));
    let goes_on = |round: usize| {
        let is_late = begun.elapsed() > Duration::from_secs(crate::LIMIT_S / 2);
        round < ROUNDS_MIN || (done.load(Ordering::Relaxed) < DONE_MIN && !is_late)
    };
    let exchange = |mut node: Node<ShmEndpoint>, me: usize, peer: PeerAddr| {
        let mut batch = CompletionBatch::new();
        let base = core::ptr::with_exposed_provenance_mut(bases[me]);
        // SAFETY: the window is there to the end, and accessed by raw pointers and atomics only.
        let own = unsafe { WindowMemory::new(base, BYTES) };
        for round in (0..).take_while(|&round| goes_on(round)) {
            let place = round % PLACES.len();
            let (dtype, addr) = PLACES[place];
            let at = RemoteAddr { addr, key: RemoteKey(3) };
            if ask(&mut node.ep, peer, at, dtype).is_some() {
                done.fetch_add(1, Ordering::Relaxed);
                sums[1 - me][place].fetch_add(1, Ordering::Relaxed);
            }
            own.accumulate(addr, dtype, ReduceOp::Sum, &ONE.to_ne_bytes()[..dtype.size()]).unwrap();
            sums[me][place].fetch_add(1, Ordering::Relaxed);
            node.ep.poll(&mut batch);
            assert!(batch.is_empty());
        }
        // Nobody closes while the other one still asks.
        over.fetch_add(1, Ordering::Relaxed);
        while over.load(Ordering::Relaxed) < 2 {
            node.ep.poll(&mut batch);
        }
        node
    };
    let (peer_of_one, peer_of_other) = (one.peers[1], other.peers[0]);
    let exchange = &exchange;
    let nodes = std::thread::scope(|scope| {
        let first = scope.spawn(move || exchange(one, 0, peer_of_one));
        let other = exchange(other, 1, peer_of_other);
        (first.join().unwrap(), other)
    });
    drop((regions, nodes));
    let done = done.load(Ordering::Relaxed);
    assert!(done >= DONE_MIN, "{done} were done by a peer's processor");
    for (window, sums) in windows.iter().zip(sums) {
        assert_eq!(numbers(window), sums.map(|sum| u128::from(sum.into_inner())));
    }
}

/// What is in a window.
fn numbers(window: &[u64]) -> [u128; 3] {
    let bytes: Vec<u8> = window.iter().flat_map(|word| word.to_ne_bytes()).collect();
    PLACES.map(|(dtype, addr)| {
        let (mut number, addr) = ([0; 16], addr as usize);
        number[..dtype.size()].copy_from_slice(&bytes[addr..addr + dtype.size()]);
        u128::from_ne_bytes(number)
    })
}

/// Who does not poll does nothing, also later; nor is anything done where there is no such memory, or none is reached.
pub(crate) fn who_does_not_look_does_nothing() {
    for reach in [Reach::Attached, Reach::Allocated, Reach::Packets] {
        let mut world = World::new(vec![open(reach), open(reach)]);
        let mut window = [5_u64; 2];
        let base = NonNull::from(&mut window).cast();
        // SAFETY: the window outlives the region.
        let region = unsafe { world.nodes[1].ep.register(base, 16, RemoteKey(3)) };
        assert_eq!(region.is_ok(), reach != Reach::Allocated);
        let peer = world.nodes[0].peers[1];
        for addr in [0, 8, 9, 16, u64::MAX, u64::MAX - 7] {
            for key in [3, 4] {
                let at = RemoteAddr { addr, key: RemoteKey(key) };
                assert_eq!(ask(&mut world.nodes[0].ep, peer, at, Dtype::U64), None);
                world.poll();
            }
        }
        drop((region, world));
        assert_eq!(window, [5, 5]);
    }
}
