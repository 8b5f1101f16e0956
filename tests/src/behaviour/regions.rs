//! Native access to regions of dynamic windows: records, and how they are taken back.

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::error::ErrorClass;
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::path::Path;
use rma_core::provider::Endpoint;
use rma_core::wire::PacketKind;

use super::dynamic::{attach, class, dynamic, Region};
use super::{pattern, Make};
use crate::{Spec, World};

/// From so many bytes on the bodies want native transfers.
const NATIVE: usize = 256;

pub(super) fn spec(ranks: u32) -> Spec {
    Spec::ranks(ranks).with(|config| config.native_region_bytes_min = NATIVE)
}

/// Whether the fabric puts and gets natively, as other windows have it.
fn is_native<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>) -> bool {
    // Of the program's own memory: what the provider allocates it may reach better.
    let memory = world.allocate(8);
    let window = world.create_over(memory, 0, 8);
    let paths = world.engines[0].window_paths(window, Dtype::U8).unwrap();
    world.free(window).unwrap();
    world.free(memory).unwrap();
    paths[0] == Path::Native && paths[1] == Path::Native
}

/// Packets of this kind that a rank has sent.
fn sent<E: Endpoint, B: Bootstrap>(world: &World<E, B>, rank: u32, kind: PacketKind) -> u64 {
    world.counters(rank).packets_sent[kind as usize]
}

pub(super) fn lock_all<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, rank: u32, window: WindowId) {
    let started = world.engines[rank as usize].start_lock_all(window, false);
    world.wait(rank, started).unwrap();
}

pub(super) fn unlock_all<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, rank: u32, window: WindowId) {
    let started = world.engines[rank as usize].start_unlock_all(window);
    world.wait(rank, started).unwrap();
}

/// Puts of any size from the threshold on are the fabric's, where it has any; smaller ones, and accumulates, are
/// messages.
///
/// Shows: ours: native regions, MPI-4.1 13.2.4.
pub fn large_transfers_are_native<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(2));
    let is_native = is_native(&mut world);
    let window = dynamic(&mut world);
    let mut region = Region::new(1 << 16);
    attach(&mut world, 1, window, region.base(), 1 << 16).unwrap();
    for (len, is_large) in [(NATIVE - 8, false), (NATIVE, true), (1 << 16, true)] {
        let data = pattern(len, len as u64);
        let mut got = vec![0; len];
        world.lock(0, window, 1, Exclusive).unwrap();
        // What fits goes with the lock.
        world.put(0, window, 1, region.address(), &[1; 8]).unwrap();
        world.flush(0, window, 1).unwrap();
        let before = world.counters(0);
        world.put(0, window, 1, region.address(), &data).unwrap();
        world.flush(0, window, 1).unwrap();
        world.get(0, window, 1, region.address(), &mut got).unwrap();
        world.flush(0, window, 1).unwrap();
        world.accumulate(0, window, 1, region.address(), &data[..8], Dtype::U8, ReduceOp::Max).unwrap();
        world.unlock(0, window, 1).unwrap();
        assert!(got == data && region.bytes()[..len] == data, "{len} bytes");
        let after = world.counters(0).since(&before);
        assert_eq!(after.native_puts > 0 && after.native_gets > 0, is_native && is_large, "{len} bytes");
        assert!(after.message_operations >= 1);
    }
    world.detach(1, window, region.base()).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// The record is asked for once, and serves every epoch until the region is detached.
///
/// Shows: ours: native regions.
pub fn a_region_is_asked_for_once<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(2));
    let is_native = is_native(&mut world);
    let window = dynamic(&mut world);
    let mut region = Region::new(4096);
    attach(&mut world, 1, window, region.base(), 4096).unwrap();
    for round in 0..6u64 {
        let data = pattern(1024, round);
        world.lock(0, window, 1, Shared).unwrap();
        // What fits goes with the lock.
        world.put(0, window, 1, region.address(), &[1; 8]).unwrap();
        world.flush(0, window, 1).unwrap();
        for part in 0..4 {
            world.put(0, window, 1, region.address() + 1024 * part, &data).unwrap();
        }
        world.unlock(0, window, 1).unwrap();
        assert_eq!(region.bytes(), data.repeat(4));
    }
    assert_eq!(sent(&world, 0, PacketKind::RegionQuery), u64::from(is_native));
    world.detach(1, window, region.base()).unwrap();
    assert_eq!(sent(&world, 1, PacketKind::Revoke), u64::from(is_native));
    world.free(window).unwrap();
    world.check_idle();
}

/// A region that was detached is an error of who accesses it with what he remembers; one that is attached again,
/// at the same address and of another length, works at once.
///
/// Shows: MPI_Win_attach, MPI_Win_detach, MPI_ERR_RMA_RANGE, MPI-4.1 13.2.4.
pub fn regions_change_between_accesses<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(8192);
    let address = region.address();
    lock_all(&mut world, 0, window);
    for round in 0..8u64 {
        let len = 8192 - 512 * round as usize;
        let data = pattern(len, round);
        attach(&mut world, 1, window, region.base(), len).unwrap();
        world.put(0, window, 1, address, &data[..NATIVE]).unwrap();
        world.flush(0, window, 1).unwrap();
        // One byte too many, with the record in hand.
        world.put(0, window, 1, address + 1, &data).unwrap();
        assert_eq!(class(world.flush(0, window, 1)), ErrorClass::RmaRange);
        world.put(0, window, 1, address, &data).unwrap();
        world.flush(0, window, 1).unwrap();
        assert!(region.bytes()[..len] == data, "round {round}");
        world.detach(1, window, region.base()).unwrap();
        let mut got = vec![7; len];
        world.get(0, window, 1, address, &mut got).unwrap();
        assert_eq!(class(world.flush(0, window, 1)), ErrorClass::RmaRange);
        let other = pattern(len, 99);
        world.put(0, window, 1, address, &other).unwrap();
        assert_eq!(class(world.flush(0, window, 1)), ErrorClass::RmaRange);
        assert!(got == vec![7; len] && region.bytes()[..len] == data, "round {round}");
    }
    unlock_all(&mut world, 0, window);
    world.free(window).unwrap();
    world.check_idle();
}

/// A transfer that the fabric has begun is complete, or an error, when detach returns; either way nothing touches
/// the memory afterwards.
///
/// Shows: MPI_Win_detach, MPI-4.1 13.2.4.
pub fn detach_waits_for_transfers<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(3));
    let window = dynamic(&mut world);
    let mut region = Region::new(1 << 17);
    let len = 1 << 17;
    attach(&mut world, 2, window, region.base(), len).unwrap();
    let small = pattern(NATIVE, 1);
    for origin in 0..2 {
        lock_all(&mut world, origin, window);
        world.put(origin, window, 2, region.address(), &small).unwrap();
        world.flush(origin, window, 2).unwrap();
    }
    let data = [pattern(len, 2), pattern(len, 3)];
    for origin in 0..2u32 {
        world.put(origin, window, 2, region.address(), &data[origin as usize]).unwrap();
    }
    world.detach(2, window, region.base()).unwrap();
    let left = region.bytes();
    for origin in 0..2 {
        // Complete before the detach, or refused after it.
        let started = world.engines[origin as usize].start_unlock_all(window);
        match world.wait(origin, started) {
            Ok(()) => {}
            Err(error) => assert_eq!(error.class(), ErrorClass::RmaRange),
        }
    }
    world.settle();
    assert!(region.bytes() == left, "the memory was touched after detach");
    world.free(window).unwrap();
    world.check_idle();
}

/// More regions than an origin remembers: it asks again, and every byte is where it belongs.
///
/// Shows: MPI_Win_attach, ours: native regions.
pub fn more_regions_than_records<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    const REGIONS: usize = 40;
    let mut world = make(spec(2).with(|config| config.region_records = 3));
    let window = dynamic(&mut world);
    let held = world.engines[0].window_bytes(window).unwrap();
    let mut regions: Vec<_> = (0..REGIONS).map(|_| Region::new(512)).collect();
    for region in &mut regions {
        attach(&mut world, 1, window, region.base(), 512).unwrap();
    }
    lock_all(&mut world, 0, window);
    let data: Vec<_> = (0..REGIONS).map(|index| pattern(512, index as u64)).collect();
    for index in 0..REGIONS {
        let at = index * 7 % REGIONS;
        world.put(0, window, 1, regions[at].address(), &data[at]).unwrap();
    }
    unlock_all(&mut world, 0, window);
    for (region, data) in regions.iter_mut().zip(&data) {
        assert_eq!(&region.bytes(), data);
    }
    assert_eq!(world.engines[0].window_bytes(window).unwrap(), held, "what is remembered has its place");
    for region in &mut regions {
        world.detach(1, window, region.base()).unwrap();
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// More origins than a rank remembers to have given records to: the others use messages.
///
/// Shows: ours: native regions.
pub fn more_origins_than_holders<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(5).with(|config| config.region_holders = 2));
    let is_native = is_native(&mut world);
    let window = dynamic(&mut world);
    let mut region = Region::new(5 * 512);
    attach(&mut world, 0, window, region.base(), 5 * 512).unwrap();
    let data: Vec<_> = (0..5).map(|rank| pattern(512, rank)).collect();
    for origin in 1..5u32 {
        lock_all(&mut world, origin, window);
        let disp = region.address() + 512 * u64::from(origin);
        for part in [&data[origin as usize][..8], &data[origin as usize]] {
            world.put(origin, window, 0, disp, part).unwrap();
            world.flush(origin, window, 0).unwrap();
        }
        assert_eq!(world.counters(origin).native_puts, u64::from(is_native && origin < 3));
    }
    assert_eq!(region.bytes()[512..], data[1..].concat());
    world.detach(0, window, region.base()).unwrap();
    assert_eq!(sent(&world, 0, PacketKind::Revoke), if is_native { 2 } else { 0 });
    for origin in 1..5 {
        world.put(origin, window, 0, region.address(), &data[0]).unwrap();
        assert_eq!(class(world.flush(origin, window, 0)), ErrorClass::RmaRange);
        unlock_all(&mut world, origin, window);
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// Regions below the threshold are never registered, and never asked for.
///
/// Shows: ours: native regions.
pub fn small_regions_take_messages<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(4096);
    attach(&mut world, 1, window, region.base(), 4096).unwrap();
    let data = pattern(4096, 5);
    world.lock(0, window, 1, Shared).unwrap();
    world.put(0, window, 1, region.address(), &data).unwrap();
    world.unlock(0, window, 1).unwrap();
    assert_eq!(region.bytes(), data);
    let before = world.counters(1).packets_sent;
    world.detach(1, window, region.base()).unwrap();
    assert_eq!(world.counters(1).packets_sent, before, "nobody has to be asked");
    assert_eq!(sent(&world, 0, PacketKind::RegionQuery), 0);
    world.free(window).unwrap();
    world.check_idle();
}

/// An access that spans two adjacent regions is an error, also when both are known.
///
/// Shows: MPI_ERR_RMA_RANGE, MPI-4.1 13.2.4.
pub fn native_accesses_stay_in_one_region<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(2048);
    let address = region.address();
    attach(&mut world, 1, window, region.base(), 1024).unwrap();
    attach(&mut world, 1, window, region.base().wrapping_add(1024), 1024).unwrap();
    let (data, across) = (pattern(1024, 1), pattern(512, 2));
    lock_all(&mut world, 0, window);
    for disp in [address, address + 1024] {
        world.put(0, window, 1, disp, &data).unwrap();
        world.flush(0, window, 1).unwrap();
    }
    for disp in [address + 1024 - 256, address - 256, address + 2048 - 256, 0, u64::MAX - 1024] {
        world.put(0, window, 1, disp, &across).unwrap();
        assert_eq!(class(world.flush(0, window, 1)), ErrorClass::RmaRange, "{disp:#x}");
    }
    assert_eq!(region.bytes(), data.repeat(2));
    // One goes: its neighbour is accessed as before.
    world.detach(1, window, region.base()).unwrap();
    world.put(0, window, 1, address + 1024, &across).unwrap();
    world.flush(0, window, 1).unwrap();
    world.put(0, window, 1, address, &across).unwrap();
    assert_eq!(class(world.flush(0, window, 1)), ErrorClass::RmaRange);
    unlock_all(&mut world, 0, window);
    assert_eq!(region.bytes(), [&data[..], &across, &data[512..]].concat());
    world.free(window).unwrap();
    world.check_idle();
}

/// A region goes while many transfers to it wait for their turn: each is done, or an error; none hangs.
///
/// Shows: MPI_Win_detach, MPI_ERR_RMA_RANGE.
pub fn a_region_goes_half_way<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(1 << 16);
    let data = pattern(1 << 12, 1);
    lock_all(&mut world, 0, window);
    for round in 0..4 {
        attach(&mut world, 1, window, region.base(), 1 << 16).unwrap();
        for part in 0..16u64 {
            world.put(0, window, 1, region.address() + (part << 12), &data).unwrap();
        }
        for _ in 0..round {
            world.step();
        }
        let detach = world.engines[1].start_detach(window, region.base()).unwrap();
        let flush = world.engines[0].start_flush(window, Rank(1)).unwrap();
        let results = world.wait_each(vec![(1, detach), (0, flush)]);
        assert_eq!(results[0], Ok(()));
        if let Err(error) = &results[1] {
            assert_eq!(error.class(), ErrorClass::RmaRange);
        }
    }
    unlock_all(&mut world, 0, window);
    world.free(window).unwrap();
    world.check_idle();
}

/// With one element of each kind, and records for one region, everything still comes to its end.
///
/// Shows: MPI_Win_attach, ours: native regions.
pub fn regions_with_few_elements<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(4).with(|config| {
        *config = Config {
            slots: 1,
            operation_pool: 1,
            operation_pool_global: 0,
            target_pool: 1,
            target_pool_global: 0,
            reply_buffers: 1,
            region_records: 1,
            region_holders: 1,
            ..config.clone()
        };
    }));
    let window = dynamic(&mut world);
    let mut regions: Vec<_> = (0..4).map(|_| Region::new(512)).collect();
    for round in 0..3u64 {
        for rank in 1..4u32 {
            attach(&mut world, rank, window, regions[rank as usize].base(), 512).unwrap();
        }
        lock_all(&mut world, 0, window);
        let data: Vec<_> = (0..4).map(|rank| pattern(512, 4 * round + rank)).collect();
        for target in [1, 2, 3, 1, 3, 2u32] {
            let disp = regions[target as usize].address();
            world.put(0, window, target, disp, &data[target as usize]).unwrap();
        }
        unlock_all(&mut world, 0, window);
        for rank in 1..4u32 {
            assert_eq!(regions[rank as usize].bytes(), data[rank as usize]);
            world.detach(rank, window, regions[rank as usize].base()).unwrap();
        }
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// Two windows with the same memory attached: what one detaches stays the other's.
///
/// Shows: MPI_Win_attach, MPI_Win_detach.
pub fn regions_of_two_windows<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(spec(2));
    let windows = [dynamic(&mut world), dynamic(&mut world)];
    let mut region = Region::new(1024);
    for window in windows {
        attach(&mut world, 1, window, region.base(), 1024).unwrap();
        lock_all(&mut world, 0, window);
    }
    for round in 0..2u64 {
        for (index, window) in windows.into_iter().enumerate().skip(round as usize) {
            let data = pattern(1024, 2 * round + index as u64);
            world.put(0, window, 1, region.address(), &data).unwrap();
            world.flush(0, window, 1).unwrap();
            assert_eq!(region.bytes(), data);
        }
        world.detach(1, windows[round as usize], region.base()).unwrap();
    }
    for window in windows {
        world.put(0, window, 1, region.address(), &[1; 1024]).unwrap();
        assert_eq!(class(world.flush(0, window, 1)), ErrorClass::RmaRange);
        unlock_all(&mut world, 0, window);
        world.free(window).unwrap();
    }
    world.check_idle();
}

/// Everybody has everybody's records, and all detach at one time: nobody waits for ever.
///
/// Shows: MPI_Win_detach, MPI-4.1 13.7.3.
pub fn regions_detached_by_all_at_once<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    const RANKS: u32 = 4;
    let mut world = make(spec(RANKS));
    let window = dynamic(&mut world);
    let mut regions: Vec<_> = (0..2 * RANKS).map(|_| Region::new(512)).collect();
    let data = pattern(512, 1);
    for round in 0..2 {
        for (index, region) in regions.iter_mut().enumerate() {
            attach(&mut world, index as u32 % RANKS, window, region.base(), 512).unwrap();
        }
        for rank in 0..RANKS {
            lock_all(&mut world, rank, window);
            for (index, region) in regions.iter_mut().enumerate() {
                if index as u32 % RANKS != rank {
                    let disp = region.address();
                    world.put(rank, window, index as u32 % RANKS, disp, &data).unwrap();
                }
            }
            if round == 0 {
                unlock_all(&mut world, rank, window);
            } else {
                let started = world.engines[rank as usize].start_flush_all(window);
                world.wait(rank, started).unwrap();
            }
        }
        // Two of each rank at one time.
        let calls = regions.iter_mut().enumerate().map(|(index, region)| {
            let rank = index as u32 % RANKS;
            (rank, world.engines[rank as usize].start_detach(window, region.base()).unwrap())
        });
        let calls = calls.collect();
        world.wait_all(calls).unwrap();
    }
    for rank in 0..RANKS {
        unlock_all(&mut world, rank, window);
    }
    world.free(window).unwrap();
    world.check_idle();
}
