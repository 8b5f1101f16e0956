//! Processes that are killed while it is their turn to change elements, or while they begin with turns: the others go on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rma_core::bootstrap::AddressBytes;
use rma_core::dtype::Dtype;
use rma_core::ids::RemoteKey;
use rma_core::mem::{Sharing, WindowMemory};
use rma_core::op::ReduceOp;
use rma_core::provider::{Atomic, Endpoint, MemoryRegion, RemoteAddr};
use rma_shm::{Memory, Options, Reach, ShmEndpoint};

use crate::child::{address_of_parent, CHILD};
use crate::victims::Victims;
use crate::{ALONE, LIMIT_S};

/// Processes at a time.
const PROCESSES: u64 = 3;
const KILLS: u32 = 30;
/// Changes of one that it is killed behind, at least.
const LEAST: u64 = 20;
/// Elements, behind a word for each process, which counts its changes.
const ELEMENTS: usize = 32 << 10;
const KEY: RemoteKey = RemoteKey(9);

fn options() -> Options {
    // Few places: those of the dead are needed.
    Options { reach: Some(Reach::Mapped), senders_max: PROCESSES as usize, ..Options::default() }
}

#[test]
fn a_turn_of_the_killed_is_anothers() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ep = ShmEndpoint::open(&options()).unwrap();
    let len = 8 * (PROCESSES as usize + ELEMENTS);
    let memory = Memory::new(len).unwrap();
    // SAFETY: the memory lives longer than the region, which is dropped before it.
    let region = unsafe { ep.register(memory.base(), len, KEY) }.unwrap();
    let changes = region.changes().unwrap();
    let word = |number: u64| {
        let word = memory.base().as_ptr().cast::<u64>().wrapping_add(number as usize);
        // SAFETY: inside of the memory, aligned, and changed by atomics, or by stores of a word.
        unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Relaxed)
    };
    // SAFETY: mapped until the end, and no reference to it lives.
    let own = unsafe { WindowMemory::new(memory.base().as_ptr(), len) }.shared(Sharing::Peers(changes));
    let victims = Victims { name: "turning_process", at_one_time: PROCESSES, kills: KILLS, least: LEAST };
    victims.kill(&mut ep, word, |_| {
        // This one's own changes end, whoever was killed in the middle of its own.
        own.accumulate(8 * PROCESSES, Dtype::U64, ReduceOp::Sum, &[0; 4096]).unwrap();
        own.accumulate(8 * PROCESSES, Dtype::U64, ReduceOp::Sum, &[0; 8]).unwrap();
    });
    drop(region);
}

/// Not a test: what changes elements, nearly all the time in its turn or in another's, until it is killed.
#[test]
#[ignore = "a process that other tests start"]
fn turning_process() {
    let Some(address): Option<AddressBytes> = address_of_parent() else { return };
    let number: u64 = std::env::var(CHILD).unwrap().parse().unwrap();
    let mut ep = ShmEndpoint::open(&options()).unwrap();
    let peer = ep.connect(&address).unwrap();
    let at = |index: u64| RemoteAddr { addr: 8 * index, key: KEY };
    assert!(ep.reaches(peer, at(0)));
    let operand = vec![1_u64; ELEMENTS];
    let mut add = |index: u64, count: usize| {
        let atomic = Atomic::Reduce { operand: operand.as_ptr().cast() };
        let begun = Instant::now();
        // SAFETY: the operand has as many elements as there are.
        while !unsafe { ep.atomic_now(peer, (atomic, count), at(index), Dtype::U64, ReduceOp::Sum) } {
            assert!(begun.elapsed() < Duration::from_secs(LIMIT_S), "it is never this one's turn");
            std::thread::yield_now();
        }
    };
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(LIMIT_S) {
        add(PROCESSES, ELEMENTS);
        // Turns end now and then, and begin again.
        for _ in 0..if number == 0 { 70 } else { 1 } {
            add(number, 1);
        }
    }
}
