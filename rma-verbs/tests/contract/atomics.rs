//! Fetch-add and compare-and-swap of 64 bits.

use rma_core::dtype::Dtype;
use rma_core::ids::Tag;
use rma_core::op::ReduceOp;
use rma_core::provider::{Endpoint, Post, PostError, RemoteAddr};

use crate::world::{Window, World};

fn fetch_add<E: Endpoint>(
    world: &mut World<E>,
    from: usize,
    at: RemoteAddr,
    add: u64,
    old: *mut u64,
    tag: u64,
) -> Post {
    let to = world.nodes[from].peers[0];
    let (operand, result) = ((&raw const add).cast(), old.cast());
    // SAFETY: the operand is read during the call, and callers keep the result until the tag has come back.
    unsafe {
        world.nodes[from].ep.fetch_atomic(to, operand, result, 1, at, Dtype::U64, ReduceOp::Sum, Tag(tag))
    }
}

fn swap<E: Endpoint>(
    world: &mut World<E>,
    from: usize,
    at: RemoteAddr,
    [compare, new]: [u64; 2],
    tag: u64,
) -> u64 {
    let mut old = 0u64;
    world.operate((from, tag), "compare_atomic", |world| {
        let to = world.nodes[from].peers[0];
        let (operand, compare) = ((&raw const new).cast(), (&raw const compare).cast());
        // SAFETY: the operands are read during the call, and the result lives until the tag has come back.
        unsafe {
            let result = (&raw mut old).cast();
            world.nodes[from].ep.compare_atomic(to, operand, compare, result, at, Dtype::U64, Tag(tag))
        }
    });
    world.finish(from, tag);
    old
}

/// Two origins add at the same time: each sum is seen once. A swap succeeds only on what it expects.
pub(crate) fn atomics_of_the_device_are_atomic<E: Endpoint>(mut world: World<E>) {
    const COUNT: usize = 100;
    let window = Window::<E>::new(&mut world.nodes[0].ep, 4096, 1);
    let mut olds = vec![u64::MAX; 2 * COUNT];
    let first = olds.as_mut_ptr();
    for index in 0..2 * COUNT {
        world.operate((1 + index % 2, index as u64), "fetch_atomic", |world| {
            let old = first.wrapping_add(index);
            fetch_add(world, 1 + index % 2, window.at(64), 3, old, index as u64)
        });
    }
    for index in 0..2 * COUNT {
        world.finish(1 + index % 2, index as u64);
    }
    olds.sort_unstable();
    assert_eq!(olds, (0..2 * COUNT as u64).map(|index| 3 * index).collect::<Vec<_>>());
    let sum = 6 * COUNT as u64;
    assert_eq!(window.word(64), sum);
    assert_eq!([window.word(56), window.word(72)], [0, 0]);

    assert_eq!(swap(&mut world, 1, window.at(64), [sum + 1, 5], 1000), sum, "another value: no swap");
    assert_eq!(window.word(64), sum);
    assert_eq!(swap(&mut world, 2, window.at(64), [sum, u64::MAX], 1001), sum);
    assert_eq!(window.word(64), u64::MAX);
}

/// A location that is not aligned, and more than one element.
pub(crate) fn atomics_that_would_break_the_connection_are_refused<E: Endpoint>(mut world: World<E>) {
    let window = Window::<E>::new(&mut world.nodes[0].ep, 4096, 1);
    world.put(1, 0, &[0; 8], window.at(0), 1);
    let mut old = 7;
    let refused = fetch_add(&mut world, 1, window.at(4), 3, &raw mut old, 2);
    assert!(matches!(refused, Err(PostError::Failed(_))), "{refused:?}");
    let to = world.nodes[1].peers[0];
    let (operand, result) = ([1u64; 2], [0u64; 2]);
    let at = window.at(8);
    // SAFETY: refused, so that nothing is read or written.
    let refused = unsafe {
        let operand = operand.as_ptr().cast();
        let result = result.as_ptr().cast_mut().cast();
        world.nodes[1].ep.fetch_atomic(to, operand, result, 2, at, Dtype::U64, ReduceOp::Sum, Tag(3))
    };
    assert!(matches!(refused, Err(PostError::Failed(_))), "{refused:?}");
    assert_eq!(old, 7);
    // The connection is still good.
    world.put(1, 0, &[9; 8], window.at(0), 4);
    assert_eq!(window.byte(0), 9);
}
