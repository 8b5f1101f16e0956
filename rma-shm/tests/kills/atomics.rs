//! Several processes that change the same words of a process which does nothing, and some that have it change words.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{Accepted, Atomic, CompletionBatch, Endpoint, PostError, RemoteAddr};
use rma_shm::{Memory, Options, Reach, ShmEndpoint};

use crate::child::{address_of_parent, CHILD};
use crate::victims::Victims;
use crate::{start_process, ALONE, LIMIT_S};

/// Processes at a time.
const PROCESSES: u64 = 4;
/// What each adds to the first word, one at a time.
const SUMS: u64 = 20_000;
/// What each adds to the second, by compare-and-swap.
const SWAPS: u64 = 2_000;
/// Where a word is that no atomic of the processor's covers, and in two of its lines.
const UNALIGNED: u64 = 61;
const KEY: RemoteKey = RemoteKey(9);

fn options() -> Options {
    Options { reach: Some(Reach::Mapped), ..Options::default() }
}

/// Nothing that is added is lost, and the target's process need not do anything.
#[test]
fn atomics_of_several_processes_all_count() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ep = ShmEndpoint::open(&options()).unwrap();
    let memory = Memory::new(4096).unwrap();
    // SAFETY: the memory lives longer than the region, which is dropped before it.
    let region = unsafe { ep.register(memory.base(), 4096, KEY) }.unwrap();
    let children: Vec<_> =
        (0..PROCESSES).map(|number| start_process("adding_process", &ep, number as u32)).collect();
    for mut child in children {
        let status = child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
    drop(region);
    let words = memory.base().cast::<[u64; 3]>();
    // SAFETY: nobody else has the memory any more.
    assert_eq!(unsafe { words.read() }, [PROCESSES * SUMS, PROCESSES * SWAPS, 0]);
    let unaligned = memory.base().as_ptr().wrapping_add(UNALIGNED as usize).cast::<u64>();
    // SAFETY: as above.
    assert_eq!(unsafe { unaligned.read_unaligned() }, PROCESSES * SUMS);
}

struct Adder {
    ep: ShmEndpoint,
    peer: PeerAddr,
}

impl Adder {
    fn add(&mut self, addr: u64, value: u64) -> u64 {
        let mut old = 0_u64;
        let (operand, result) = ((&raw const value).cast(), (&raw mut old).cast());
        let at = RemoteAddr { addr, key: KEY };
        let mut post = || {
            let (peer, dtype, op) = (self.peer, Dtype::U64, ReduceOp::Sum);
            // SAFETY: both are there until the call returns, which completes it.
            unsafe { self.ep.fetch_atomic(peer, operand, result, 1, at, dtype, op, Tag(1)) }
        };
        let posted = loop {
            match post() {
                // Another one is at the same word.
                Err(PostError::Again) if addr == UNALIGNED => std::thread::yield_now(),
                posted => break posted,
            }
        };
        assert_eq!(posted, Ok(Accepted::Complete));
        old
    }

    fn swap(&mut self, addr: u64, [compare, new]: [u64; 2]) -> u64 {
        let mut old = 0_u64;
        let (operand, compare) = ((&raw const new).cast(), (&raw const compare).cast());
        let (result, at) = ((&raw mut old).cast(), RemoteAddr { addr, key: KEY });
        // SAFETY: all are there until the call returns, which completes it.
        let post =
            unsafe { self.ep.compare_atomic(self.peer, operand, compare, result, at, Dtype::U64, Tag(1)) };
        assert_eq!(post, Ok(Accepted::Complete));
        old
    }
}

/// Not a test: what adds.
#[test]
#[ignore = "a process that other tests start"]
fn adding_process() {
    let Some(address): Option<AddressBytes> = address_of_parent() else { return };
    let mut ep = ShmEndpoint::open(&options()).unwrap();
    let peer = ep.connect(&address).unwrap();
    let mut adder = Adder { ep, peer };
    let mut last = None;
    for _ in 0..SUMS {
        let old = adder.add(0, 1);
        assert!(last < Some(old), "a value came twice: {old}");
        last = Some(old);
        adder.add(UNALIGNED, 1);
    }
    for _ in 0..SWAPS {
        let mut seen = adder.add(8, 0);
        loop {
            let found = adder.swap(8, [seen, seen + 1]);
            if found == seen {
                break;
            }
            seen = found;
        }
    }
}

/// Processes that are killed, and what each has added by then.
const KILLS: u32 = 24;
const LEAST: u64 = 300;

fn attached() -> Options {
    // Few places: those of the dead are needed.
    Options { reach: Some(Reach::Attached), senders_max: PROCESSES as usize, ..Options::default() }
}

/// Each process has the same word changed as the one before it in its place, which was killed in the middle of that: what the
/// dead have asked for is done once at most, and by no means with what the next one asks for.
#[test]
fn what_the_killed_have_asked_for_is_done_once_at_most() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ep = ShmEndpoint::open(&attached()).unwrap();
    let words: Vec<AtomicU64> = (0..PROCESSES).map(|_| AtomicU64::new(0)).collect();
    let base = NonNull::from(&words[0]).cast();
    // SAFETY: the words live longer than the region, which is dropped before them.
    let region = unsafe { ep.register(base, words.len() * 8, KEY) }.unwrap();
    let victims = Victims { name: "asking_process", at_one_time: PROCESSES, kills: KILLS, least: LEAST };
    let mut batch = CompletionBatch::new();
    victims.kill(
        &mut ep,
        |number| words[number as usize].load(Ordering::Relaxed),
        |ep| {
            ep.poll(&mut batch);
            assert!(batch.is_empty());
        },
    );
    drop(region);
}

/// Not a test: what asks, until it is killed.
#[test]
#[ignore = "a process that other tests start"]
fn asking_process() {
    let Some(address): Option<AddressBytes> = address_of_parent() else { return };
    let number: u64 = std::env::var(CHILD).unwrap().parse().unwrap();
    let mut ep = ShmEndpoint::open(&attached()).unwrap();
    let peer = ep.connect(&address).unwrap();
    let at = RemoteAddr { addr: 8 * number, key: KEY };
    let (mut begun, mut last) = (Instant::now(), None);
    while begun.elapsed() < Duration::from_secs(LIMIT_S) {
        let (one, mut old) = (1_u64, 0_u64);
        let atomic = Atomic::Fetch { operand: (&raw const one).cast(), result: (&raw mut old).cast() };
        // SAFETY: both are there during the call.
        if unsafe { ep.assist(peer, atomic, at, Dtype::U64, ReduceOp::Sum) } {
            assert!(last.is_none_or(|last: u64| old == last + 1), "{old} behind {last:?}");
            (begun, last) = (Instant::now(), Some(old));
        }
    }
}
