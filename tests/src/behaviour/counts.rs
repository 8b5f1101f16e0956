//! What each epoch costs on the wire: packets there and back, and round trips that somebody waits for.

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::counters::Counters;
use rma_core::dtype::Dtype;
use rma_core::engine::FenceAssert;
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::path::Path;
use rma_core::provider::Endpoint;
use rma_core::wire::PacketKind;

use super::{pattern, Make};
use crate::{Spec, World};

/// What one epoch of rank 0 cost, and that the round trips it says it waited for are those that the
/// virtual clock shows, where there is one.
struct Cost {
    out: u64,
    back: u64,
    round_trips: u64,
    counters: Counters,
}

fn cost<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, epoch: impl FnOnce(&mut World<E, B>)) -> Cost {
    world.settle();
    let (before, start) = (world.counters(0), world.now_ns());
    epoch(world);
    let counters = world.counters(0).since(&before);
    if let (Some(start), Some(end)) = (start, world.now_ns()) {
        assert_eq!((end - start) / 2000, counters.round_trips, "round trips by the clock: {counters:?}");
    }
    Cost { out: counters.out(), back: counters.back(), round_trips: counters.round_trips, counters }
}

fn warm<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, len: usize) -> WindowId {
    let window = world.allocate(len);
    for target in 1..world.engines.len() as u32 {
        world.lock(0, window, target, Exclusive).unwrap();
        world.put(0, window, target, 0, &[0; 8]).unwrap();
        world.unlock(0, window, target).unwrap();
    }
    window
}

fn native_put<E: Endpoint, B: Bootstrap>(world: &World<E, B>, window: WindowId) -> bool {
    world.engines[0].window_paths(window, Dtype::U8).map(|paths| paths[0]) == Some(Path::Native)
}

/// lock, one small operation, unlock: 1 + 1 packets, 1 round trip.
///
/// Shows: seed: single operation, seed: sync_flag, seed: LOCK-UNLOCK, notes: one message for lock-put-unlock, MPI_Put, MPI_Get, MPI-4.1 13.5.3.
pub fn single_operation_lock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = warm(&mut world, 64);
    let seven = 7u64.to_le_bytes();
    for lock_type in [Exclusive, Shared] {
        let epoch = cost(&mut world, |world| {
            world.lock(0, window, 1, lock_type).unwrap();
            world.put(0, window, 1, 8, &seven).unwrap();
            world.unlock(0, window, 1).unwrap();
        });
        assert_eq!((epoch.out, epoch.back, epoch.round_trips), (1, 1, 1));
        assert_eq!(epoch.counters.packet_bytes_sent, 40);
        assert_eq!(epoch.counters.payload_bytes_copied, 16, "into the element, and into the packet");
        assert_eq!(world.word(1, window, 8), 7);
    }
    let mut got = [0; 8];
    let epoch = cost(&mut world, |world| {
        world.lock(0, window, 1, Shared).unwrap();
        world.get(0, window, 1, 8, &mut got).unwrap();
        world.unlock(0, window, 1).unwrap();
    });
    assert_eq!((epoch.out, epoch.back, epoch.round_trips), (1, 1, 1));
    assert_eq!(got, 7u64.to_le_bytes());
    world.check_idle();
}

/// lock, k small operations that fit a packet, unlock: 1 + 1, 1.
///
/// Shows: seed: RMA_COALESCE.
pub fn coalesced_lock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = warm(&mut world, 1024);
    let data: Vec<_> = (0..8).map(|index| pattern(16, index)).collect();
    let epoch = cost(&mut world, |world| {
        world.lock(0, window, 1, Exclusive).unwrap();
        for (index, bytes) in data.iter().enumerate() {
            world.put(0, window, 1, 16 * index as u64, bytes).unwrap();
        }
        world.unlock(0, window, 1).unwrap();
    });
    assert_eq!((epoch.out, epoch.back, epoch.round_trips), (1, 1, 1));
    assert_eq!(world.memory(1, window)[..128], data.concat());
    world.check_idle();
}

/// lock, small puts and a get, unlock: 1 + 1, 1; the reply to the get carries all acknowledgements.
///
/// Shows: seed: GET to tail, seed: piggyback RMA_DONE.
pub fn puts_and_get_in_one_packet<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = warm(&mut world, 1024);
    let data = pattern(32, 3);
    let mut got = [1; 8];
    let epoch = cost(&mut world, |world| {
        world.lock(0, window, 1, Exclusive).unwrap();
        world.get(0, window, 1, 512, &mut got).unwrap();
        world.put(0, window, 1, 0, &data).unwrap();
        world.put(0, window, 1, 32, &data).unwrap();
        world.unlock(0, window, 1).unwrap();
    });
    assert_eq!((epoch.out, epoch.back, epoch.round_trips), (1, 1, 1));
    assert_eq!(got, [0; 8]);
    assert_eq!(world.memory(1, window)[..64], [data.clone(), data].concat());
    world.check_idle();
}

/// lock, large puts, unlock: LOCK, writes, UNLOCK there; GRANT, UNLOCK_ACK back; 2 round trips where
/// the fabric keeps packets behind writes, one more for the flush where it does not.
///
/// Shows: seed: piggyback RMA_DONE, seed: LOCK_ISSUED, seed: LOCK_GRANTED.
pub fn large_puts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2).with(|config| config.put_data = Some(false)));
    let window = warm(&mut world, 1 << 17);
    if !native_put(&world, window) {
        return large_puts_as_packets(&mut world, window);
    }
    let ordered = {
        let endpoint = world.engines[0].endpoint();
        endpoint.limits().order.put_before_send
    };
    let data = pattern(1 << 16, 5);
    let epoch = cost(&mut world, |world| {
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &data).unwrap();
        world.put(0, window, 1, 1 << 16, &data).unwrap();
        world.unlock(0, window, 1).unwrap();
    });
    assert_eq!((epoch.out, epoch.back), (4, 2));
    assert_eq!(epoch.round_trips, if ordered { 2 } else { 3 });
    assert_eq!(world.memory(1, window), [data.clone(), data].concat());
    world.check_idle();
}

/// The same, where puts carry data and may: UNLOCK is no packet of its own. A single put's data wait for nothing, on
/// any fabric.
///
/// Shows: ours: put with data.
pub fn large_puts_carry_unlock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2).with(|config| config.put_data = Some(true)));
    let window = warm(&mut world, 1 << 17);
    let Some(bytes) = data_bytes(&mut world, window) else { return };
    let ordered = world.engines[0].endpoint().limits().order.put_before_send;
    let data = pattern(1 << 16, 5);
    for puts in [1, 2] {
        let epoch = cost(&mut world, |world| {
            world.lock(0, window, 1, Exclusive).unwrap();
            for index in 0..puts {
                world.put(0, window, 1, index << 16, &data).unwrap();
            }
            world.unlock(0, window, 1).unwrap();
        });
        let waits = puts == 2 && !ordered;
        let what = format!("{puts} puts, data of {bytes} bytes, {:?}", epoch.counters);
        let carried = u64::from(!waits);
        assert_eq!((epoch.out, epoch.back), (puts + 2 - carried, 2), "{what}");
        assert_eq!(epoch.counters.packets_sent[PacketKind::Batch as usize], 2 - carried, "{what}");
        assert_eq!(epoch.counters.native_puts_with_data, carried, "{what}");
        assert_eq!(epoch.round_trips, if waits { 3 } else { 2 }, "{what}");
    }
    assert_eq!(world.memory(1, window), [data.clone(), data].concat());
    world.check_idle();
}

/// start, a large put, complete before the post: COMPLETE is the put's data, and the epoch takes no packet.
///
/// Shows: ours: put with data, MPI_Win_complete.
pub fn a_large_put_carries_complete<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2).with(|config| config.put_data = Some(true)));
    // What is asked of a target once is known.
    let window = warm(&mut world, 1 << 16);
    if data_bytes(&mut world, window).is_none() {
        return;
    }
    let data = pattern(1 << 16, 6);
    for round in 0..2 {
        let before = world.counters(0);
        world.start(0, window, &[1]).unwrap();
        world.put(0, window, 1, 0, &data).unwrap();
        let complete = world.engines[0].start_complete(window).unwrap();
        world.expose(1, window, &[0]).unwrap();
        world.wait_all(vec![(0, complete)]).unwrap();
        world.wait_exposed(1, window).unwrap();
        let counters = world.counters(0).since(&before);
        assert_eq!(counters.native_puts_with_data, 1, "{counters:?}");
        assert_eq!(counters.packets_sent[PacketKind::Batch as usize], 0, "{round}: {counters:?}");
        assert_eq!(world.memory(1, window), data);
    }
    world.check_idle();
}

/// Bytes of data that puts from rank 0 to rank 1 carry, if puts to this window are native and any are carried.
fn data_bytes<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) -> Option<usize> {
    let is_native = native_put(world, window);
    let peer = world.engines[0].peer(Rank(1))?;
    Some(world.engines[0].endpoint().data_bytes(peer)).filter(|bytes| is_native && *bytes > 0)
}

fn large_puts_as_packets<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    let data = pattern(1 << 17, 5);
    let epoch = cost(world, |world| {
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &data).unwrap();
        world.unlock(0, window, 1).unwrap();
    });
    assert_eq!((epoch.back, epoch.round_trips), (2, 2), "grant; the last packet carries UNLOCK");
    assert_eq!(world.memory(1, window), data);
    world.check_idle();
}

/// What is left of a large accumulate when as much has left as fills packets carries DONE, as a small one does.
///
/// Shows: seed: piggyback RMA_DONE, MPI_Win_flush.
pub fn the_rest_of_a_large_accumulate_carries_done<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let packet_bytes = world.engines[0].endpoint().limits().send_bytes_max;
    // Two packets and a half, of elements that no fabric has atomics for, nor a neighbour's processor.
    let data = vec![1; (5 * packet_bytes / 2) & !15];
    let window = warm(&mut world, data.len());
    let (dtype, op) = (Dtype::U128, ReduceOp::Sum);
    world.lock(0, window, 1, Exclusive).unwrap();
    world.accumulate(0, window, 1, 0, &data[..16], dtype, op).unwrap();
    world.flush(0, window, 1).unwrap();
    for _ in 0..2 {
        let epoch = cost(&mut world, |world| {
            world.accumulate(0, window, 1, 0, &data, dtype, op).unwrap();
            world.flush(0, window, 1).unwrap();
        });
        let packets = epoch.counters.packets_sent[PacketKind::Batch as usize];
        assert_eq!((packets, epoch.out, epoch.back), (3, 3, 1), "{:?}", epoch.counters);
    }
    world.unlock(0, window, 1).unwrap();
    let twice = |from: usize| world.memory(1, window)[from..].iter().all(|&byte| byte == 2);
    assert!(twice(16) && world.memory(1, window)[..16] == [3; 16]);
    world.check_idle();
}

/// NOCHECK: no packet for the lock, none for the unlock; 1 round trip for completion, where the fabric has not done the put
/// when it takes it.
///
/// Shows: MPI_MODE_NOCHECK/lock, MPI-4.1 13.5.5.
pub fn no_check_needs_no_lock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = warm(&mut world, 64);
    let native = native_put(&world, window);
    let value = 9u64.to_le_bytes();
    let epoch = cost(&mut world, |world| {
        let started = world.engines[0].start_lock(window, Rank(1), Exclusive, true);
        world.wait(0, started).unwrap();
        world.put(0, window, 1, 0, &value).unwrap();
        world.unlock(0, window, 1).unwrap();
    });
    let is_at_once = native && world.completes_at_once(0, 1);
    assert_eq!((epoch.out, epoch.round_trips), (1, u64::from(!is_at_once)));
    assert_eq!(epoch.back, u64::from(!native), "only a packet of operations is acknowledged by a packet");
    assert_eq!(world.word(1, window, 0), 9);
    world.check_idle();
}

/// lock_all: as single locks for the targets that are touched, nothing for the others.
///
/// Shows: MPI_Win_lock_all, MPI_Win_unlock_all, seed: LOCK_ALL per-target protocol.
pub fn lock_all_touches_only_its_targets<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = warm(&mut world, 64);
    let value = 5u64.to_le_bytes();
    let epoch = cost(&mut world, |world| {
        let started = world.engines[0].start_lock_all(window, false);
        world.wait(0, started).unwrap();
        for target in [1, 3] {
            world.put(0, window, target, 0, &value).unwrap();
        }
        let started = world.engines[0].start_unlock_all(window);
        world.wait(0, started).unwrap();
    });
    assert_eq!((epoch.out, epoch.back, epoch.round_trips), (2, 2, 1));
    assert_eq!([1, 2, 3].map(|rank| world.word(rank, window, 0)), [5, 0, 5]);
    world.check_idle();
}

/// flush with nothing outstanding, and epochs without operations: nothing at all.
///
/// Shows: MPI_Win_flush, seed: FLUSH.
pub fn flush_of_nothing_is_free<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = warm(&mut world, 64);
    let epoch = cost(&mut world, |world| {
        world.lock(0, window, 1, Shared).unwrap();
        world.flush(0, window, 1).unwrap();
        let started = world.engines[0].start_flush_all(window);
        world.wait(0, started).unwrap();
        world.unlock(0, window, 1).unwrap();
    });
    assert_eq!((epoch.out, epoch.back, epoch.round_trips), (0, 0, 0));
    world.check_idle();
}

/// fence with NOPRECEDE: the barrier is started, and the call is done.
///
/// Shows: MPI_MODE_NOPRECEDE, rule: fence-no-precede, seed: fence_req, MPI-4.1 13.5.5.
pub fn fence_no_precede_returns_at_once<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = warm(&mut world, 64);
    let assert = FenceAssert { no_precede: true, ..FenceAssert::default() };
    let before = world.counters(0);
    let mut sync = world.engines[0].start_fence(window, assert).unwrap();
    assert!(world.engines[0].poll(&mut sync).is_ready(), "without a step of anybody");
    let counters = world.counters(0).since(&before);
    assert_eq!((counters.round_trips, counters.barriers_waited), (0, 0));
    let calls = (1..4).map(|rank| (rank, world.engines[rank as usize].start_fence(window, assert).unwrap()));
    let calls = calls.collect();
    world.wait_all(calls).unwrap();
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    world.check_idle();
}

/// The fence that ends an epoch: one round trip to complete the operations, and the barrier.
///
/// Shows: MPI_Win_fence, rule: fence-completes-target, seed: FENCE, MPI-4.1 13.5.1.
pub fn closing_fence<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = warm(&mut world, 64);
    world.fence(window, FenceAssert::default()).unwrap();
    let before: Vec<_> = world.ranks().map(|rank| world.counters(rank)).collect();
    let values: Vec<_> = world.ranks().map(|rank| u64::from(rank + 1).to_le_bytes()).collect();
    for rank in world.ranks() {
        world.put(rank, window, (rank + 1) % 4, 0, &values[rank as usize]).unwrap();
    }
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    for rank in world.ranks() {
        let counters = world.counters(rank).since(&before[rank as usize]);
        let waited = (counters.round_trips, counters.barriers_waited);
        // Where time is real, what is waited for may have come before anybody looks.
        assert!(waited == (1, 1) || world.now_ns().is_none() && waited.0 <= 1 && waited.1 <= 1, "{waited:?}");
        let rounds = (counters.packets_sent[PacketKind::Barrier as usize], counters.words_told);
        let is_told = |next: &u32| world.are_neighbours(rank, (rank + next) % 4, window);
        let words = [1, 2].into_iter().filter(is_told).count() as u64;
        assert_eq!(rounds, (2 - words, words), "log2 of 4 ranks");
        let puts = counters.packets_sent[PacketKind::Batch as usize] + counters.native_puts;
        assert_eq!(puts, 1);
        assert_eq!(world.word((rank + 1) % 4, window, 0), u64::from(rank + 1));
    }
    world.check_idle();
}

/// A fence of two ranks behind a put is one round trip for both: the barrier's word follows the put, where the fabric keeps
/// packets behind puts, and does not wait for its completion.
///
/// Shows: MPI_Win_fence.
pub fn fence_follows_its_puts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = warm(&mut world, 64);
    world.fence(window, FenceAssert::default()).unwrap();
    world.settle();
    let is_native = native_put(&world, window) && !world.completes_at_once(0, 1);
    // A ghost gets the put, and its rank the word.
    let is_served = world.engines[0].is_served(window) == Some(true);
    let follows = is_native && !is_served && world.engines[0].endpoint().limits().order.put_before_send;
    for value in 1..4u64 {
        let (start, bytes) = (world.now_ns(), value.to_le_bytes());
        world.put(0, window, 1, 8, &bytes).unwrap();
        world.fence(window, FenceAssert::default()).unwrap();
        assert_eq!(world.word(1, window, 8), value);
        if let (true, Some(start), Some(end)) = (follows, start, world.now_ns()) {
            assert_eq!((end - start) / 1000, 2, "one way is 1000 ns");
        }
        world.settle();
    }
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    world.check_idle();
}

/// Where a put costs the fabric as much as a packet it rides with COMPLETE, which nobody answers, or with the lock request.
///
/// Shows: MPI_Win_complete.
pub fn puts_ride_where_packets_cost_as_much<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = warm(&mut world, 8192);
    let Some(peer) = world.engines[0].peer(Rank(1)) else { return };
    let most = world.engines[0].endpoint().packet_put_bytes_max(peer);
    if !native_put(&world, window) || most < 4096 {
        return;
    }
    let data = pattern(4096, 7);
    for round in 1..3 {
        let before = world.counters(0);
        world.start(0, window, &[1]).unwrap();
        world.put(0, window, 1, 0, &data[..1000 * round]).unwrap();
        let complete = world.engines[0].start_complete(window).unwrap();
        world.expose(1, window, &[0]).unwrap();
        world.wait_all(vec![(0, complete)]).unwrap();
        world.wait_exposed(1, window).unwrap();
        let counters = world.counters(0).since(&before);
        assert_eq!((counters.native_puts, counters.round_trips), (0, 0), "{counters:?}");
        assert_eq!(counters.packets_sent[PacketKind::Batch as usize], 1, "{counters:?}");
        assert_eq!(world.memory(1, window)[..1000 * round], data[..1000 * round]);
    }
    let epoch = cost(&mut world, |world| {
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 4096, &data).unwrap();
        world.unlock(0, window, 1).unwrap();
    });
    assert_eq!((epoch.out, epoch.back, epoch.round_trips), (1, 1, 1));
    assert_eq!(world.memory(1, window)[4096..], data);
    world.check_idle();
}

/// Each switch off costs packets or round trips where the design says so, and never less.
///
/// Shows: seed: single_op_opt_threshold, seed: piggyback RMA_DONE.
pub fn every_switch_has_a_price<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let run = |config: Config| {
        let mut world = make(Spec { ranks: 2, config });
        let window = warm(&mut world, 1024);
        let data = pattern(64, 1);
        let mut got = [0; 8];
        let single = cost(&mut world, |world| {
            world.lock(0, window, 1, Exclusive).unwrap();
            world.put(0, window, 1, 0, &data[..8]).unwrap();
            world.unlock(0, window, 1).unwrap();
        });
        let several = cost(&mut world, |world| {
            world.lock(0, window, 1, Exclusive).unwrap();
            world.get(0, window, 1, 512, &mut got).unwrap();
            for index in 0..8 {
                world.put(0, window, 1, index * 8, &data[index as usize * 8..][..8]).unwrap();
            }
            world.unlock(0, window, 1).unwrap();
        });
        assert_eq!(world.memory(1, window)[..64], data);
        world.check_idle();
        [single.out + single.back, single.round_trips, several.out + several.back, several.round_trips]
    };
    let on = run(Config::default());
    assert_eq!(on, [2, 1, 2, 1]);
    let off = run(Config::all_off());
    assert!(off[1] >= 2 && off[3] >= 2, "all off: {off:?}");
    let base = Config::default;
    let single = run(Config { single_op_lock: false, ..base() });
    assert!(single[1] >= 2 && single[3] >= 2, "the lock is a round trip of its own: {single:?}");
    let coalesce = run(Config { coalesce: false, ..base() });
    assert!(coalesce[1] == 1 && coalesce[2] > on[2], "{coalesce:?}");
    let tail = run(Config { get_to_tail: false, ..base() });
    assert!(tail[2] == on[2] + 1, "the acknowledgement does not ride on the get's reply: {tail:?}");
    let piggyback = run(Config { piggyback: false, single_op_lock: false, ..base() });
    assert!(piggyback[1] == 3, "LOCK, operation, UNLOCK each wait: {piggyback:?}");
    assert!(off.iter().zip(on).all(|(off, on)| *off >= on));
}
