//! Two endpoints and a window, for tests of the fabric itself.
#![allow(dead_code, unreachable_pub)] // shared by test binaries, each of which uses its own part

use std::ptr::NonNull;

use rma_core::bootstrap::{Bootstrap, Lookup};
use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, Rank, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Completion, CompletionBatch, Endpoint, MemoryRegion, Post, PostError, RemoteAddr, SendClass,
};
use rma_sim::{FabricConfig, SimEndpoint, SimFabric, SimRegion};

/// Bytes that the fabric may read and write behind our back.
pub struct Memory {
    base: NonNull<[u8]>,
}

impl Memory {
    pub const BYTES: usize = 8192;

    pub fn new() -> Self {
        // 64-bit words, so that elements are aligned.
        let words = Box::leak(vec![0_u64; Self::BYTES / 8].into_boxed_slice());
        Self { base: NonNull::slice_from_raw_parts(NonNull::from(words).cast(), Self::BYTES) }
    }

    pub fn as_ptr(&self, offset: usize) -> *mut u8 {
        assert!(offset < Self::BYTES);
        self.base.cast::<u8>().as_ptr().wrapping_add(offset)
    }

    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: freed by `drop` only, and nobody writes during the copy: one thread.
        unsafe { self.base.as_ref() }.to_vec()
    }

    pub fn u64_at(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.bytes()[offset..offset + 8].try_into().unwrap())
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= Self::BYTES);
        // SAFETY: inside the memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_ptr(offset), bytes.len()) };
    }

    pub fn write_u64(&self, offset: usize, value: u64) {
        self.write(offset, &value.to_ne_bytes());
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let words = NonNull::slice_from_raw_parts(self.base.cast::<u64>(), Self::BYTES / 8);
        // SAFETY: the words came from a leaked box and are freed once.
        drop(unsafe { Box::from_raw(words.as_ptr()) });
    }
}

/// What polls said, summed up.
#[derive(Default, Debug)]
pub struct Seen {
    pub done: Vec<u64>,
    pub failed: Vec<u64>,
    pub packets: Vec<Vec<u8>>,
    pub downs: usize,
}

impl Seen {
    pub fn add(&mut self, other: Self) {
        self.done.extend(other.done);
        self.failed.extend(other.failed);
        self.packets.extend(other.packets);
        self.downs += other.downs;
    }
}

/// Rank 0 that operates on rank 1's memory. Dropped in order: the fabric and the region before the memory that they
/// reach.
pub struct Pair {
    pub fabric: SimFabric,
    pub endpoints: Vec<SimEndpoint>,
    pub peers: [PeerAddr; 2],
    pub region: Option<SimRegion>,
    pub target: Memory,
    /// What operations read; each test's puts take the next bytes of it.
    pub source: Memory,
    pub result: Memory,
    source_used: usize,
    address: RemoteAddr,
}

impl Pair {
    pub fn new(config: FabricConfig) -> Self {
        let fabric = SimFabric::new(config);
        let mut endpoints: Vec<_> = (0..2).map(|rank| fabric.open(rank).unwrap()).collect();
        let mut bootstraps: Vec<_> = (0..2).map(|rank| fabric.bootstrap(rank)).collect();
        for (endpoint, bootstrap) in endpoints.iter().zip(&mut bootstraps) {
            bootstrap.publish(&endpoint.address()).unwrap();
        }
        let peers = [0, 1].map(|rank| {
            let address = loop {
                if let Lookup::Found(address) = bootstraps[rank].lookup(Rank(1 - rank as u32)).unwrap() {
                    break address;
                }
            };
            endpoints[rank].connect(&address).unwrap()
        });
        let target = Memory::new();
        let base = NonNull::new(target.as_ptr(0)).unwrap();
        // SAFETY: the memory is freed after the region (the order of fields), and is accessed through pointers.
        let region = unsafe { endpoints[1].register(base, Memory::BYTES, RemoteKey(7)) }.unwrap();
        let address = RemoteAddr { addr: region.remote_base(), key: region.remote_key() };
        let (source, result) = (Memory::new(), Memory::new());
        Self {
            fabric,
            endpoints,
            peers,
            region: Some(region),
            target,
            source,
            result,
            source_used: 0,
            address,
        }
    }

    pub fn at(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.address.addr.wrapping_add(offset as u64), key: self.address.key }
    }

    pub fn put_from(&mut self, bytes: &[u8], offset: usize, tag: u64) -> Post {
        self.put_at(bytes, self.at(offset), tag)
    }

    pub fn put_at(&mut self, bytes: &[u8], at: RemoteAddr, tag: u64) -> Post {
        let start = self.source_used;
        self.source.write(start, bytes);
        let src = self.source.as_ptr(start);
        // SAFETY: memory that outlives the endpoint, readable.
        let post = unsafe { self.endpoints[0].put(self.peers[0], src, bytes.len(), at, Tag(tag)) };
        if post.is_ok() {
            self.source_used += bytes.len();
        }
        post
    }

    pub fn get_into(&mut self, offset: usize, len: usize, tag: u64) -> Post {
        let (dst, at) = (self.result.as_ptr(0), self.at(offset));
        // SAFETY: memory that outlives the endpoint, writable.
        unsafe { self.endpoints[0].get(self.peers[0], dst, len, at, Tag(tag)) }
    }

    /// Adds to a `u64`; the old value goes to word `tag` of `result`.
    pub fn fetch_add(&mut self, offset: usize, value: u64, tag: u64) -> Post {
        let start = self.source_used.next_multiple_of(8);
        self.source.write_u64(start, value);
        self.source_used = start + 8;
        let (operand, result) = (self.source.as_ptr(start), self.result.as_ptr(tag as usize * 8));
        let (at, to, op) = (self.at(offset), self.peers[0], ReduceOp::Sum);
        // SAFETY: memory that outlives the endpoint, readable and writable.
        unsafe { self.endpoints[0].fetch_atomic(to, operand, result, 1, at, Dtype::U64, op, Tag(tag)) }
    }

    /// Compares and swaps a `u64`; the old value goes to word `tag` of `result`.
    pub fn compare_and_swap(&mut self, offset: usize, compare: u64, new: u64, tag: u64) -> Post {
        let start = self.source_used.next_multiple_of(8);
        self.source.write_u64(start, compare);
        self.source.write_u64(start + 8, new);
        self.source_used = start + 16;
        let (compare, operand) = (self.source.as_ptr(start), self.source.as_ptr(start + 8));
        let (result, at, to) = (self.result.as_ptr(tag as usize * 8), self.at(offset), self.peers[0]);
        // SAFETY: memory that outlives the endpoint, readable and writable.
        unsafe { self.endpoints[0].compare_atomic(to, operand, compare, result, at, Dtype::U64, Tag(tag)) }
    }

    pub fn send(&mut self, packet: &[u8]) -> Result<(), PostError> {
        self.endpoints[0].send(self.peers[0], packet, &[], SendClass::Request)
    }

    /// One poll of one rank, with packets released.
    pub fn poll(&mut self, rank: usize) -> Seen {
        let mut batch = CompletionBatch::new();
        self.endpoints[rank].poll(&mut batch);
        drain(&mut self.endpoints[rank], &mut batch)
    }

    /// One delivery and one poll of everybody; false when nothing is left.
    pub fn step(&mut self, done: &mut Vec<u64>) -> bool {
        let advanced = self.fabric.advance().is_some();
        let seen = self.poll_all();
        let found = !seen.done.is_empty();
        done.extend(seen.done);
        advanced || found
    }

    fn poll_all(&mut self) -> Seen {
        let mut seen = Seen::default();
        for rank in 0..self.endpoints.len() {
            seen.add(self.poll(rank));
        }
        seen
    }

    /// Everything that is on the way arrives.
    pub fn settle(&mut self) -> Seen {
        let mut seen = Seen::default();
        loop {
            seen.add(self.poll_all());
            let is_ready = (0..2).any(|rank| self.fabric.is_ready(rank));
            if self.fabric.advance().is_none() && !is_ready {
                return seen;
            }
            (0..2).for_each(|rank| self.fabric.clear_retry(rank));
        }
    }
}

/// Empties a batch, releasing its packets.
pub fn drain(endpoint: &mut SimEndpoint, batch: &mut CompletionBatch) -> Seen {
    let mut seen = Seen::default();
    while let Some(completion) = batch.pop() {
        match completion {
            Completion::Done(tag) => seen.done.push(tag.0),
            Completion::Failed(tag, _) => seen.failed.push(tag.0),
            Completion::Packet(packet) => {
                // SAFETY: just handed out by this endpoint's poll.
                seen.packets.push(unsafe { packet.bytes() }.to_vec());
                endpoint.release(packet);
            }
            Completion::PeerDown(..) => seen.downs += 1,
            Completion::EndpointDown(code) => panic!("endpoint down: {code}"),
        }
    }
    seen
}
