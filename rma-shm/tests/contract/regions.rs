//! Keys and ranges, which the origin checks against the owner's table.

use rma_core::dtype::Dtype;
use rma_core::ids::{RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{Endpoint, LocalPiece, MemoryRegion, NativeOps, RemoteAddr, RemotePiece};
use rma_shm::{Memory, ShmEndpoint};

use crate::world::{Window, World};

/// Posts a put of 8 bytes: whether it was done.
fn is_put<E: Endpoint>(world: &mut World<E>, value: u64, at: RemoteAddr) -> bool {
    let src = value.to_ne_bytes();
    world.nodes[0].outcomes.clear();
    world.start_put(0, 1, &src, at, 77);
    world.until("the outcome", |world| !world.nodes[0].outcomes.is_empty());
    world.nodes[0].outcomes[0].1.is_ok()
}

/// A region that was taken back is refused at once, also while it is remembered; another with the same key is
/// not taken for it.
pub(crate) fn regions_that_are_gone_are_refused<E: Endpoint>(mut world: World<E>) {
    for round in 1..=50_u64 {
        let old = Window::<E>::new(&mut world.nodes[1].ep, 4096, 7);
        assert_eq!(old.region.remote_key(), RemoteKey(7));
        assert!(is_put(&mut world, round, old.at(8)));
        assert_eq!(old.word(8), round);
        let at = old.at(8);
        let other = Window::<E>::new(&mut world.nodes[1].ep, 4096, 7);
        assert_ne!(other.region.remote_key(), RemoteKey(7), "a key is one region's");
        assert!(is_put(&mut world, round, other.at(8)));
        drop(old);
        assert!(!is_put(&mut world, round + 1000, at), "the region is gone");
        let new = Window::<E>::new(&mut world.nodes[1].ep, 64, 7);
        assert!(is_put(&mut world, round + 2000, new.at(8)));
        assert_eq!((new.word(8), other.word(8)), (round + 2000, round));
        assert!(!is_put(&mut world, 1, new.at(64)), "the new region is smaller");
    }
}

/// Ranges that begin or end outside, or wrap around: put, get, atomics and vectors fail and touch nothing.
pub(crate) fn nothing_outside_of_a_region_is_touched<E: Endpoint>(mut world: World<E>) {
    let window = Window::<E>::new(&mut world.nodes[1].ep, 64, 3);
    let has_atomics = NativeOps::has(&world.nodes[0].ep.native().atomic, Dtype::U64, ReduceOp::Sum);
    let mut buffer = [0xaa_u8; 16];
    let base = buffer.as_mut_ptr();
    for addr in [57, 60, 64, 65, u64::MAX, u64::MAX - 7, 1 << 63] {
        let at = RemoteAddr { addr, key: window.region.remote_key() };
        assert!(!is_put(&mut world, 1, at), "put at {addr}");
        world.nodes[0].outcomes.clear();
        let peer = world.nodes[0].peers[1];
        let ep = &mut world.nodes[0].ep;
        let local = [LocalPiece { base, len: 8 }];
        let remote = [RemotePiece { at: window.at(0), len: 4 }, RemotePiece { at, len: 4 }];
        // SAFETY: the buffer outlives the world's operations.
        unsafe { ep.get(peer, base, 8, at, Tag(1)) }.unwrap();
        if addr != 57 && addr != 60 {
            // SAFETY: as above.
            unsafe { ep.put_vector(peer, &local, &remote, Tag(2)) }.unwrap();
        }
        if has_atomics {
            // SAFETY: as above.
            unsafe { ep.atomic(peer, base, 1, at, Dtype::U64, ReduceOp::Sum, Tag(3)) }.unwrap();
        }
        for _ in 0..10 {
            world.poll();
        }
        assert!(world.nodes[0].outcomes.len() >= 2 - usize::from(addr < 61));
        assert!(world.nodes[0].outcomes.iter().all(|(_, outcome)| outcome.is_err()), "at {addr}");
    }
    assert_eq!(buffer, [0xaa; 16]);
    assert!((0..64).all(|offset| window.byte(offset) == 0), "the part of a vector that fits was written");
}

/// Regions come and go, many more than an origin remembers, and all are reached.
pub(crate) fn more_regions_than_are_remembered<E: Endpoint>(mut world: World<E>) {
    let windows: Vec<Window<E>> =
        (0..200).map(|key| Window::new(&mut world.nodes[1].ep, 64, 1000 + key)).collect();
    for round in 1..=3 {
        for (index, window) in windows.iter().enumerate() {
            assert!(is_put(&mut world, round * 1000 + index as u64, window.at(0)));
        }
        for (index, window) in windows.iter().enumerate() {
            assert_eq!(window.word(0), round * 1000 + index as u64);
        }
    }
}

/// A region of another provider, which has chosen the key and counts from this address.
#[derive(Debug)]
struct Named {
    key: u64,
    base: u64,
}

impl MemoryRegion for Named {
    fn remote_key(&self) -> RemoteKey {
        RemoteKey(self.key)
    }

    fn remote_base(&self) -> u64 {
        self.base
    }
}

/// A region under the names that another provider gave: where that counts by the owner's addresses, so do peers here.
/// Names that cannot be had are refused.
pub(crate) fn regions_under_another_providers_names(mut world: World<ShmEndpoint>) {
    let memory = Memory::new(4096).unwrap();
    let base = memory.base();
    let first = base.as_ptr().addr() as u64;
    for (key, named) in [(1 << 60 | 5, first), (6, 0)] {
        let like = Named { key, base: named };
        // SAFETY: the memory outlives the region.
        let region = unsafe { world.nodes[1].ep.register_like(base, 64, &like) }.unwrap();
        assert_eq!((region.remote_key(), region.remote_base()), (RemoteKey(key), named));
        let at = |offset: u64| RemoteAddr { addr: named.wrapping_add(offset), key: RemoteKey(key) };
        assert!(is_put(&mut world, key, at(8)));
        // SAFETY: inside of the memory, at a multiple of 8, and nobody writes now.
        let put = unsafe { base.as_ptr().wrapping_add(8).cast::<u64>().read_volatile() };
        assert_eq!(put, key);
        for outside in [57, 64, u64::MAX, u64::MAX - 7] {
            assert!(!is_put(&mut world, 1, at(outside)), "{outside} from {named:#x}");
        }
        // SAFETY: as above.
        let taken = unsafe { world.nodes[1].ep.register_like(base, 64, &like) };
        assert!(taken.unwrap_err().message.contains("the key is taken"));
    }
    let elsewhere = Named { key: 7, base: first + 8 };
    // SAFETY: as above.
    assert!(unsafe { world.nodes[1].ep.register_like(base, 64, &elsewhere) }.is_err());
}
