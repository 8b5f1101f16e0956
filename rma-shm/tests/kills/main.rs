//! Several processes at a time, of which some are killed in the middle of sends, puts and atomics: the others
//! notice nothing, what the dead have sent arrives in order or not at all, their places are others', and
//! nothing is left.

mod atomics;
mod child;
mod turns;
mod victims;

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rma_core::ids::{PeerAddr, RemoteKey};
use rma_core::provider::{Completion, CompletionBatch, Endpoint, PostError, SendClass};
use rma_shm::{Memory, Options, Reach, ShmEndpoint, ShmRegion};

use child::{Packet, CHILD, HEAP_KEY, MEMORY_KEY, PARENT};

/// Longest time that anything bounded takes, seconds.
const LIMIT_S: u64 = 300;

/// Processes at a time, beside the one that listens to all.
const CHILDREN: usize = 5;
/// Bytes of the windows: a word for each process that ever was, and before them one for all.
const WINDOW_WORDS: usize = 512;

/// With next to no places, so that those of the dead are needed.
fn options() -> Options {
    Options {
        reach: Some(Reach::Attached),
        senders_max: CHILDREN + 2,
        ring_bytes: 4096,
        packet_bytes: 1024,
        ..Options::default()
    }
}

/// A process, as the listener sees it.
struct Known {
    process: Child,
    peer: Option<PeerAddr>,
    /// Packets that have come, of each class.
    come: [u64; 2],
    /// It was killed, or told to end.
    may_end: bool,
    is_said_to_be_down: bool,
}

struct Listener {
    ep: ShmEndpoint,
    batch: CompletionBatch,
    /// By a number of ours, which is never used twice.
    known: BTreeMap<u32, Known>,
    _regions: [ShmRegion; 2],
    memory: Memory,
    heap: Box<[u64]>,
    begun: Instant,
}

impl Listener {
    fn new() -> Self {
        let mut ep = ShmEndpoint::open(&options()).unwrap();
        let memory = Memory::new(8 * WINDOW_WORDS).unwrap();
        let mut heap = vec![0_u64; WINDOW_WORDS].into_boxed_slice();
        let base = std::ptr::NonNull::from(&mut heap[0]).cast();
        // SAFETY: the memory lives as long as the listener, whose fields are dropped after their regions.
        let mapped = unsafe { ep.register(memory.base(), 8 * WINDOW_WORDS, RemoteKey(MEMORY_KEY)) }.unwrap();
        // SAFETY: as above.
        let attached = unsafe { ep.register(base, 8 * WINDOW_WORDS, RemoteKey(HEAP_KEY)) }.unwrap();
        let regions = [mapped, attached];
        let (batch, known) = (CompletionBatch::new(), BTreeMap::new());
        Self { ep, batch, known, _regions: regions, memory, heap, begun: Instant::now() }
    }

    fn start(&mut self, number: u32) {
        let process = start_process("child_process", &self.ep, number);
        let known = Known { process, peer: None, come: [0; 2], may_end: false, is_said_to_be_down: false };
        self.known.insert(number, known);
    }

    /// Polls once and answers what has come.
    fn turn(&mut self) {
        assert!(self.begun.elapsed().as_secs() < LIMIT_S, "no end");
        if self.ep.poll(&mut self.batch) == 0 {
            std::thread::yield_now();
        }
        while let Some(completion) = self.batch.pop() {
            match completion {
                Completion::Packet(packet) => {
                    // SAFETY: just polled and not yet released.
                    let bytes = unsafe { packet.bytes() }.to_vec();
                    self.ep.release(packet);
                    self.hear(&bytes);
                }
                Completion::PeerDown(peer, _) => {
                    let known = self.known.values_mut().find(|known| known.peer == Some(peer)).unwrap();
                    assert!(known.may_end, "a living process is said to be down");
                    assert!(!std::mem::replace(&mut known.is_said_to_be_down, true), "said twice");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        let packet = Packet::decode(bytes);
        let known = self.known.get_mut(&packet.from).expect("a number that was given");
        let class = packet.class as usize;
        assert_eq!(packet.index, known.come[class], "process {}, class {class}: out of order", packet.from);
        known.come[class] += 1;
        // Who has been killed is met no more.
        if known.peer.is_none() && !known.may_end {
            known.peer = self.ep.connect(&packet.address()).ok();
        }
        if let Some(peer) = known.peer {
            // An answer now and then gets no room, or has nobody to go to.
            let _ = self.ep.send(peer, b"heard", b"", SendClass::Reply);
        }
    }

    /// The word of a process in the mapped window, and in the attached one.
    fn words(&self, index: usize) -> [u64; 2] {
        let mapped = self.memory.base().cast::<u64>().as_ptr().wrapping_add(index);
        let attached = (&raw const self.heap[index]).cast_mut();
        // SAFETY: both are within their windows; volatile, because others write them.
        [mapped, attached].map(|word| unsafe { word.read_volatile() })
    }

    fn come(&self, number: u32) -> u64 {
        self.known[&number].come.iter().sum()
    }

    fn kill(&mut self, number: u32) {
        let known = self.known.get_mut(&number).unwrap();
        known.may_end = true;
        known.process.kill().unwrap();
        known.process.wait().unwrap();
    }

    /// What can be said of a killed one: posts fail from now on, and it is gone.
    fn bury(&mut self, number: u32) {
        while self.known[&number].peer.is_some() && !self.known[&number].is_said_to_be_down {
            self.turn();
        }
        // What it had sent comes, if it was published.
        for _ in 0..40 {
            self.turn();
        }
        if let Some(peer) = self.known[&number].peer {
            let post = self.ep.send(peer, b"x", b"", SendClass::Request);
            assert!(matches!(post, Err(PostError::Failed(_))), "{post:?}");
            self.ep.disconnect(peer);
        }
        self.known.get_mut(&number).unwrap().peer = None;
        let [mapped, attached] = self.words(number as usize);
        let come = self.come(number);
        // Both were put before the packet that says so was sent.
        assert!(mapped >= come && attached >= come, "process {number}: {mapped} {attached} {come}");
    }
}

/// Starts this executable again, for one of its tests that are none, and tells it an endpoint's address.
fn start_process(name: &str, ep: &ShmEndpoint, number: u32) -> Child {
    let address: String = ep.address().as_slice().iter().map(|byte| format!("{byte:02x}")).collect();
    Command::new(std::env::current_exe().unwrap())
        .args([name, "--ignored", "--nocapture"])
        .env(CHILD, number.to_string())
        .env(PARENT, address)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Descriptors, and mappings of the provider's, that this process has.
fn holdings() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| line.contains("rma-shm")).count())
}

/// One test at a time: one looks at what this process holds.
static ALONE: Mutex<()> = Mutex::new(());

/// One process after the other is killed in the middle of everything, and another takes its place.
#[test]
fn killed_processes_harm_nobody() {
    const KILLS: u32 = 12;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = holdings();
    let mut listener = Listener::new();
    let alone = holdings();
    let mut living: Vec<u32> = (1..=CHILDREN as u32).collect();
    living.iter().for_each(|&number| listener.start(number));
    for (next, round) in (CHILDREN as u32 + 1..).zip(0..KILLS as usize) {
        // Everybody has come a bit further, so that nobody stands in anybody's way.
        let marks: Vec<u64> = living.iter().map(|&number| listener.come(number)).collect();
        while living.iter().zip(&marks).any(|(&number, mark)| listener.come(number) < mark + 15) {
            listener.turn();
        }
        let victim = living.remove(round * 7 % CHILDREN);
        listener.kill(victim);
        listener.bury(victim);
        listener.start(next);
        living.push(next);
    }
    for &number in &living {
        while listener.known[&number].peer.is_none() {
            listener.turn();
        }
        let peer = listener.known[&number].peer.unwrap();
        listener.known.get_mut(&number).unwrap().may_end = true;
        while listener.ep.send(peer, b"finish", b"", SendClass::Request) == Err(PostError::Again) {
            listener.turn();
        }
    }
    finish(&mut listener, &living);
    for &number in &living {
        let peer = listener.known[&number].peer.unwrap();
        listener.ep.disconnect(peer);
    }
    assert_eq!(holdings(), alone, "descriptors or mappings of processes that are gone");
    drop(listener);
    assert_eq!(holdings(), before);
}

/// The living end in order, and everything that they have done is there.
fn finish(listener: &mut Listener, living: &[u32]) {
    for &number in living {
        let status = loop {
            listener.turn();
            let known = listener.known.get_mut(&number).unwrap();
            if let Some(status) = known.process.try_wait().unwrap() {
                break status;
            }
        };
        assert!(status.success(), "process {number}: {status}");
        while listener.words(number as usize) != [listener.come(number); 2] {
            listener.turn();
        }
    }
}

/// Not a test: what is started, and killed.
#[test]
#[ignore = "a process that other tests start"]
fn child_process() {
    child::run();
}
