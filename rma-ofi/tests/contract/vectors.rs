//! Puts and gets of several pieces, at both sides.

use rma_core::ids::Tag;
use rma_core::provider::{CompletionScope, Endpoint, LocalPiece, PostError, RemotePiece};

use crate::world::{Window, World};

/// Bytes between two pieces, which must stay as they are.
const GAP: usize = 13;

/// Cuts `total` bytes into pieces of different lengths with gaps between: offset and length of each.
fn pieces(total: usize, count: usize) -> Vec<(usize, usize)> {
    let (mut offset, mut left) = (GAP, total);
    (0..count)
        .map(|index| {
            let last = index + 1 == count;
            let len = if last { left } else { (left / (count - index) + index).saturating_sub(count / 2) };
            let piece = (offset, len);
            (offset, left) = (offset + len + GAP, left - len);
            piece
        })
        .collect()
}

fn local_pieces(base: *mut u8, pieces: &[(usize, usize)]) -> Vec<LocalPiece> {
    pieces.iter().map(|&(offset, len)| LocalPiece { base: base.wrapping_add(offset), len }).collect()
}

fn remote_pieces<E: Endpoint>(window: &Window<E>, pieces: &[(usize, usize)]) -> Vec<RemotePiece> {
    pieces.iter().map(|&(offset, len)| RemotePiece { at: window.at(offset), len }).collect()
}

/// What lies in the pieces, one behind the other.
fn gathered(memory: &[u8], pieces: &[(usize, usize)]) -> Vec<u8> {
    pieces.iter().flat_map(|&(offset, len)| memory[offset..offset + len].iter().copied()).collect()
}

/// Everything outside of the pieces holds `fill`.
fn is_untouched(memory: &[u8], pieces: &[(usize, usize)], fill: u8) -> bool {
    let inside = |at: usize| pieces.iter().any(|&(offset, len)| (offset..offset + len).contains(&at));
    memory.iter().enumerate().all(|(at, &byte)| byte == fill || inside(at))
}

fn snapshot<E: Endpoint>(window: &Window<E>, len: usize) -> Vec<u8> {
    (0..len).map(|offset| window.byte(offset)).collect()
}

/// Line 10: a vector moves the bytes of its pieces and no others, and has one tag; what is not offered fails.
pub(crate) fn line_10_vectors_move_their_pieces<E: Endpoint>(mut world: World<E>) {
    let limits = *world.nodes[0].ep.limits();
    let mut tag = 0;
    for total in [200, 5_000, 150_000] {
        let room = total + (limits.vector_local_max.max(limits.vector_remote_max) + 2) * GAP;
        for locals in 1..=limits.vector_local_max {
            for remotes in 1..=limits.vector_remote_max {
                if limits.offers_vectors() {
                    tag += 10;
                    one_vector(&mut world, [total, room], [locals, remotes], tag);
                }
            }
        }
    }
    refused(&mut world);
}

fn one_vector<E: Endpoint>(
    world: &mut World<E>,
    [total, room]: [usize; 2],
    [locals, remotes]: [usize; 2],
    tag: u64,
) {
    let window = Window::<E>::new(&mut world.nodes[1].ep, room, tag);
    let (near, far) = (pieces(total, locals), pieces(total, remotes));
    let mut source: Vec<u8> = (0..room).map(|index| (index * 7 + index / 251) as u8 | 1).collect();
    let (from, into) = (local_pieces(source.as_mut_ptr(), &near), remote_pieces(&window, &far));
    let peer = world.nodes[0].peers[1];
    world.operate((0, tag), "put_vector", |world| {
        // SAFETY: the source outlives the wait below.
        unsafe { world.nodes[0].ep.put_vector(peer, &from, &into, Tag(tag)) }
    });
    world.finish(0, tag);
    if world.nodes[0].ep.limits().put_completes == CompletionScope::Local {
        world.flush(0, 1, tag + 1);
    }
    let what = format!("{total} bytes of {locals} pieces in {remotes}");
    let memory = snapshot(&window, room);
    assert!(gathered(&memory, &far) == gathered(&source, &near), "put of {what}");
    assert!(is_untouched(&memory, &far, 0), "put of {what}: bytes outside");

    let mut sink = vec![0xee_u8; room];
    let into = local_pieces(sink.as_mut_ptr(), &near);
    let from = remote_pieces(&window, &far);
    world.operate((0, tag + 2), "get_vector", |world| {
        // SAFETY: the sink outlives the wait below.
        unsafe { world.nodes[0].ep.get_vector(peer, &into, &from, Tag(tag + 2)) }
    });
    world.finish(0, tag + 2);
    assert!(gathered(&sink, &near) == gathered(&source, &near), "get of {what}");
    assert!(is_untouched(&sink, &near, 0xee), "get of {what}: bytes outside");
    let outcomes = &world.nodes[0].outcomes;
    for tag in [tag, tag + 2] {
        assert_eq!(outcomes.iter().filter(|(said, _)| *said == tag).count(), 1, "{what}: one tag");
    }
}

/// More pieces than are offered, sides that differ, and nothing at all.
fn refused<E: Endpoint>(world: &mut World<E>) {
    let limits = *world.nodes[0].ep.limits();
    let window = Window::<E>::new(&mut world.nodes[1].ep, 4096, 9);
    let mut memory = vec![0_u8; 4096];
    let peer = world.nodes[0].peers[1];
    let wrong = [
        (pieces(800, limits.vector_local_max + 1), pieces(800, 1)),
        (pieces(800, 1), pieces(800, limits.vector_remote_max + 1)),
        (pieces(800, 1), pieces(801, 1)),
        (vec![], vec![]),
    ];
    for (near, far) in wrong {
        let (local, remote) = (local_pieces(memory.as_mut_ptr(), &near), remote_pieces(&window, &far));
        // SAFETY: the memory outlives the test's world, which nothing is posted to.
        let put = unsafe { world.nodes[0].ep.put_vector(peer, &local, &remote, Tag(1)) };
        // SAFETY: as above.
        let get = unsafe { world.nodes[0].ep.get_vector(peer, &local, &remote, Tag(1)) };
        assert!(
            matches!((put, get), (Err(PostError::Failed(_)), Err(PostError::Failed(_)))),
            "{near:?} {far:?}"
        );
    }
}
