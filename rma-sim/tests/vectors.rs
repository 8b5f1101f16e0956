//! Puts and gets of several pieces on the simulated fabric: line 10 of the provider contract.

mod pair;

use pair::Pair;
use rma_core::ids::Tag;
use rma_core::provider::{CompletionScope, Endpoint, LocalPiece, Post, PostError, RemotePiece};
use rma_sim::{FabricConfig, Faults, Traffic};

/// A fabric that takes vectors and tears them wherever it may.
fn torn(seed: u64) -> FabricConfig {
    let mut config = FabricConfig::unit(2);
    config.seed = seed;
    config.model.jitter_ns = 50_000;
    config.limits.vector_local_max = 3;
    config.limits.vector_remote_max = 4;
    config.limits.put_completes =
        if seed % 2 == 0 { CompletionScope::Local } else { CompletionScope::Remote };
    config.faults = Faults { late_per_mille: 100, late_ns: 100_000, torn_bytes: 7, ..Faults::default() };
    config
}

fn near(base: *mut u8, pieces: &[(usize, usize)]) -> Vec<LocalPiece> {
    pieces.iter().map(|&(offset, len)| LocalPiece { base: base.wrapping_add(offset), len }).collect()
}

fn far(pair: &Pair, pieces: &[(usize, usize)]) -> Vec<RemotePiece> {
    pieces.iter().map(|&(offset, len)| RemotePiece { at: pair.at(offset), len }).collect()
}

fn put(pair: &mut Pair, from: &[(usize, usize)], into: &[(usize, usize)], tag: u64) -> Post {
    let (from, into) = (near(pair.source.as_ptr(0), from), far(pair, into));
    // SAFETY: memory that outlives the endpoint, readable.
    unsafe { pair.endpoints[0].put_vector(pair.peers[0], &from, &into, Tag(tag)) }
}

fn get(pair: &mut Pair, into: &[(usize, usize)], from: &[(usize, usize)], tag: u64) -> Post {
    let (into, from) = (near(pair.result.as_ptr(0), into), far(pair, from));
    // SAFETY: memory that outlives the endpoint, writable.
    unsafe { pair.endpoints[0].get_vector(pair.peers[0], &into, &from, Tag(tag)) }
}

fn gathered(memory: &[u8], pieces: &[(usize, usize)]) -> Vec<u8> {
    pieces.iter().flat_map(|&(offset, len)| memory[offset..offset + len].iter().copied()).collect()
}

const NEAR: [(usize, usize); 3] = [(100, 50), (200, 1), (8, 49)];
const FAR: [(usize, usize); 4] = [(4000, 3), (0, 40), (1000, 56), (77, 1)];

#[test]
fn line_10_vectors_are_one_operation() {
    for seed in 0..50 {
        let mut pair = Pair::new(torn(seed));
        let bytes: Vec<u8> = (0..300).map(|index| index as u8 | 1).collect();
        pair.source.write(0, &bytes);
        put(&mut pair, &NEAR, &FAR, 1).unwrap();
        assert_eq!(pair.settle().done, [1], "seed {seed}");
        let expected = gathered(&bytes, &NEAR);
        let memory = pair.target.bytes();
        assert_eq!(gathered(&memory, &FAR), expected);
        assert_eq!(memory.iter().filter(|&&byte| byte != 0).count(), 100, "nothing else was written");

        get(&mut pair, &NEAR, &FAR, 2).unwrap();
        assert_eq!(pair.settle().done, [2], "seed {seed}");
        let result = pair.result.bytes();
        assert_eq!(gathered(&result, &NEAR), expected);
        assert_eq!(result.iter().filter(|&&byte| byte != 0).count(), 100, "nothing else was written");
        let once = Traffic { puts: 1, put_bytes: 100, gets: 1, get_bytes: 100, ..Traffic::default() };
        assert_eq!(pair.fabric.traffic(0, 1), once);
        assert_eq!(pair.fabric.violations(), []);
    }
}

/// The source is free once the tag is back, also where parts are still on their way.
#[test]
fn line_10_sources_are_free_when_the_tag_is_back() {
    for seed in (0..40).step_by(2) {
        let mut pair = Pair::new(torn(seed));
        pair.source.write(0, &[5; 300]);
        put(&mut pair, &NEAR, &FAR, 1).unwrap();
        while pair.poll(0).done.is_empty() {
            pair.fabric.advance();
        }
        pair.source.write(0, &[9; 300]);
        pair.settle();
        assert_eq!(gathered(&pair.target.bytes(), &FAR), [5; 100], "seed {seed}");
    }
}

#[test]
fn line_10_wrong_vectors_are_reported() {
    let mut pair = Pair::new(torn(1));
    let one = [(0, 8)];
    let many = [(0, 2), (8, 2), (16, 2), (24, 1), (32, 1)];
    type Pieces<'a> = &'a [(usize, usize)];
    let wrong: [(Pieces<'_>, Pieces<'_>); 6] = [
        (&many[..4], &one),
        (&one, &many),
        (&one, &[(0, 9)]),
        (&[], &[]),
        (&one, &[(0, 8), (9, 0)]),
        (&one, &[]),
    ];
    for (index, (local, remote)) in wrong.into_iter().enumerate() {
        assert!(
            matches!(put(&mut pair, local, remote, 1), Err(PostError::Failed(_))),
            "{local:?} {remote:?}"
        );
        assert!(
            matches!(get(&mut pair, local, remote, 1), Err(PostError::Failed(_))),
            "{local:?} {remote:?}"
        );
        assert_eq!(pair.fabric.violations().len(), 2 * index + 2);
    }
}

/// One piece outside of the region, and nothing is written at all.
#[test]
fn line_10_each_piece_is_checked() {
    let mut pair = Pair::new(torn(1));
    pair.source.write(0, &[5; 16]);
    put(&mut pair, &[(0, 16)], &[(0, 8), (pair::Memory::BYTES - 7, 8)], 1).unwrap();
    assert_eq!(pair.settle().failed, [1]);
    assert!(pair.target.bytes().iter().all(|&byte| byte == 0));
    assert_eq!(pair.fabric.violations().len(), 1);
}
