//! Line 1 of the provider contract: once the endpoint is open and room is reserved, no call allocates.

mod pair;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use pair::Pair;
use rma_core::ids::Tag;
use rma_core::provider::{Completion, CompletionBatch, Endpoint, SendClass};
use rma_sim::{FabricConfig, Faults};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are the same.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn line_1_no_call_allocates() {
    let mut config = FabricConfig::unit(2);
    config.model.jitter_ns = 10_000;
    config.faults = Faults { torn_bytes: 16, again_per_mille: 100, split_atomics: true, ..Faults::default() };
    let mut pair = Pair::new(config);
    pair.fabric.reserve(1000);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    let mut done = 0;
    for round in 0..200 {
        let mut tag = round * 4;
        // Each may be refused: that does not allocate either.
        let _ = pair.get_into(0, 64, tag);
        tag += 1;
        let at = pair.at(0);
        let _ = pair.endpoints[0].put_inject(pair.peers[0], &[1; 64], at);
        let _ = pair.endpoints[0].send(pair.peers[0], &[1; 40], &[2; 100], SendClass::Request);
        let _ = pair.endpoints[0].flush(pair.peers[0], Tag(tag));
        if round < 100 {
            let _ = pair.fetch_add(64, 1, tag + 1);
        }
        done += drive(&mut pair);
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
    assert!(done > 400, "{done} operations completed");
}

/// Delivers everything; returns the number of tags that came back.
fn drive(pair: &mut Pair) -> usize {
    let mut batch = CompletionBatch::new();
    let mut done = 0;
    loop {
        for endpoint in &mut pair.endpoints {
            endpoint.poll(&mut batch);
            while let Some(completion) = batch.pop() {
                match completion {
                    Completion::Packet(packet) => endpoint.release(packet),
                    Completion::Done(_) => done += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        if pair.fabric.advance().is_none() && !(0..2).any(|rank| pair.fabric.is_ready(rank)) {
            return done;
        }
        (0..2).for_each(|rank| pair.fabric.clear_retry(rank));
    }
}
