//! Rows of small puts, which go to the device several at a time and of which it reports only some.

use rma_core::ids::Tag;
use rma_core::provider::{Accepted, Endpoint, PostError};

use crate::world::{Window, World};

/// Rows longer than a list, and than two.
const ROWS: [usize; 9] = [1, 2, 3, 15, 16, 17, 31, 33, 70];

/// To two peers in turn and to one, with gets between: tags come back once, and the bytes are there.
pub(crate) fn rows_of_small_puts_come_back_one_by_one<E: Endpoint>(mut world: World<E>) {
    let windows = [1, 2].map(|node| Window::<E>::new(&mut world.nodes[node].ep, 4096, 1));
    let mut values = vec![0u64; 512];
    let mut seen = 0u64;
    let into: *mut u8 = (&raw mut seen).cast();
    let mut tag = 0;
    for alternating in [false, true] {
        for row in ROWS {
            world.nodes[0].outcomes.clear();
            let first = tag;
            for (index, value) in values[..row].iter_mut().enumerate() {
                *value = 1_000 * tag + index as u64;
                let to = if alternating { index % 2 } else { 0 };
                let (src, at) = ((&raw const *value).cast(), windows[to].at(index * 8));
                world.operate((0, tag), "put", |world| {
                    let peer = world.nodes[0].peers[1 + to];
                    // SAFETY: the values outlive the wait below.
                    unsafe { world.nodes[0].ep.put(peer, src, 8, at, Tag(tag)) }
                });
                tag += 1;
            }
            world.operate((0, tag), "get", |world| {
                let peer = world.nodes[0].peers[1];
                // SAFETY: the destination outlives the wait below.
                unsafe { world.nodes[0].ep.get(peer, into, 8, windows[0].at(0), Tag(tag)) }
            });
            tag += 1;
            let count = row + 1;
            world.until("all tags of the row", |world| world.nodes[0].outcomes.len() >= count);
            for _ in 0..50 {
                world.poll();
            }
            let mut said: Vec<u64> = world.nodes[0].outcomes.iter().map(|(tag, _)| *tag).collect();
            said.sort_unstable();
            assert_eq!(said, (first..tag).collect::<Vec<_>>(), "a row of {row}");
            assert!(world.nodes[0].outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
            for (index, value) in values[..row].iter().enumerate() {
                let to = if alternating { index % 2 } else { 0 };
                assert_eq!(windows[to].word(index * 8), *value, "put {index} of {row}");
            }
            // SAFETY: written by the get that has come back.
            assert_eq!(unsafe { into.cast::<u64>().read() }, values[0]);
        }
    }
}

/// One put in the middle names memory that the target does not lend: those before it were made, it and those behind
/// it were not, and each tag says which.
pub(crate) fn a_row_that_breaks_says_which_puts_were_made<E: Endpoint>(mut world: World<E>) {
    const ROW: usize = 14;
    const WRONG: usize = 7;
    let window = Window::<E>::new(&mut world.nodes[1].ep, 4096, 1);
    world.put(0, 1, &[0; 8], window.at(0), 100);
    world.nodes[0].outcomes.clear();
    let values: Vec<u64> = (1..=ROW as u64).collect();
    let peer = world.nodes[0].peers[1];
    for (index, value) in values.iter().enumerate() {
        let mut at = window.at(index * 8);
        if index == WRONG {
            at.key.0 ^= 0x55;
        }
        let src = (&raw const *value).cast();
        // SAFETY: the values outlive the wait below.
        let post = unsafe { world.nodes[0].ep.put(peer, src, 8, at, Tag(index as u64)) };
        assert_eq!(post, Ok(Accepted::Tracked), "put {index}");
    }
    world.until("all tags of the row", |world| world.nodes[0].outcomes.len() >= ROW);
    for _ in 0..1000 {
        world.poll();
    }
    let mut outcomes = world.nodes[0].outcomes.clone();
    outcomes.sort_unstable_by_key(|(tag, _)| *tag);
    let expected: Vec<(u64, bool)> = (0..ROW).map(|index| (index as u64, index < WRONG)).collect();
    let said: Vec<(u64, bool)> = outcomes.iter().map(|(tag, outcome)| (*tag, outcome.is_ok())).collect();
    assert_eq!(said, expected);
    for (index, value) in values.iter().enumerate() {
        let made = if index < WRONG { *value } else { 0 };
        assert_eq!(window.word(index * 8), made, "put {index}");
    }
    // SAFETY: refused, so that nothing is read.
    let refused = unsafe { world.nodes[0].ep.put(peer, values.as_ptr().cast(), 8, window.at(0), Tag(99)) };
    assert!(matches!(refused, Err(PostError::Failed(_))), "{refused:?}");
}
