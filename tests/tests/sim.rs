//! Conformance on the simulated fabric: native and ordered, native and unordered, messages only.
#![allow(unsafe_code)] // registers memory

use std::cell::RefCell;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::task::Poll;

use rma_conformance::behaviour::{chosen_locks, notify, regions_epochs, word_locks};
use rma_conformance::{simulated, suite, Spec, World};
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::Engine;
use rma_core::ids::{Rank, RemoteKey, WindowId};
use rma_core::info::{AccumulateOps, LockProtocol, WindowOptions};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::path::Path;
use rma_core::provider::{CompletionScope, Endpoint, NativeOps, Order};
use rma_core::wire::PacketKind;
use rma_sim::{FabricConfig, Faults, SimBootstrap, SimEndpoint, SimFabric};

type SimWorld = World<SimEndpoint, SimBootstrap>;

fn world(spec: Spec, change: impl Fn(&mut FabricConfig)) -> SimWorld {
    let mut config = FabricConfig::unit(spec.size());
    change(&mut config);
    simulated::world(&SimFabric::new(config), spec.size(), &spec.config, |endpoint, _| endpoint)
}

fn puts_and_gets(config: &mut FabricConfig) {
    config.native = NativeOps { put: true, get: true, ..NativeOps::default() };
}

suite!(ordered, SimWorld, |spec: Spec| world(spec, |config| {
    puts_and_gets(config);
    config.limits.order = Order { put_before_send: true, put_before_get: true };
}));

suite!(unordered, SimWorld, |spec: Spec| world(spec, |config| {
    puts_and_gets(config);
    (config.limits.vector_local_max, config.limits.vector_remote_max) = (8, 8);
}));

fn with_data(spec: Spec) -> Spec {
    spec.with(|config| config.put_data = Some(true))
}

// What ends an epoch is no packet of its own.
suite!(data_ordered, SimWorld, |spec: Spec| world(with_data(spec), |config| {
    puts_and_gets(config);
    config.limits.order = Order { put_before_send: true, put_before_get: true };
    config.data_bytes = 4;
}), differ: large_puts);

suite!(data_unordered, SimWorld, |spec: Spec| world(with_data(spec), |config| {
    puts_and_gets(config);
    config.limits.put_completes = CompletionScope::Local;
    config.limits.needs_target_progress = true;
    config.data_bytes = 8;
}));

suite!(local_completion, SimWorld, |spec: Spec| world(spec, |config| {
    puts_and_gets(config);
    config.limits.put_completes = CompletionScope::Local;
    (config.limits.vector_local_max, config.limits.vector_remote_max) = (4, 1);
    config.offset_addresses = false;
    config.grants_key_wishes = false;
}));

suite!(target_progress, SimWorld, |spec: Spec| world(spec, |config| {
    puts_and_gets(config);
    config.limits.needs_target_progress = true;
    (config.limits.vector_local_max, config.limits.vector_remote_max) = (1, 3);
    config.limits.order.put_before_send = true;
}));

suite!(messages, SimWorld, |spec: Spec| world(spec, |config| config.native = NativeOps::default()));

suite!(forced_messages, SimWorld, |spec: Spec| world(
    spec.with(|config| config.force_message_path = true),
    |_| ()
));

suite!(native_atomics, SimWorld, |spec: Spec| world(spec, |_| ()));

suite!(native_atomics_local_completion, SimWorld, |spec: Spec| world(spec, |config| {
    config.limits.put_completes = CompletionScope::Local;
}));

fn locked_by_words(spec: Spec) -> Spec {
    spec.with(|config| config.lock_protocol = LockProtocol::Nic)
}

// Other costs (docs/locks.md): round trips of atomics take the place of packets, nothing is kept back for a packet that
// locks, of others' locks the owner of the window knows nothing, and what was asked of a
// target once is known.
suite!(word_locks_native, SimWorld, |spec: Spec| world(locked_by_words(spec), |_| ()), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late);

// Only what the locks need is native, places differ, and a put's completion says nothing.
suite!(word_locks_alone, SimWorld, |spec: Spec| each_elsewhere(locked_by_words(spec), |config| {
    only_lock_atomics(config);
    config.limits.put_completes = CompletionScope::Local;
}), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late,
    order_among_packets_is_free, results_without_order_carry_the_acknowledgement, small_blocks_are_packed);

// What fits a packet goes by one, the rest by words. The target draws a ticket for a packet, which is a round trip here.
suite!(locks_by_choice, SimWorld, |spec: Spec| world(locked_by_choice(spec), |_| ()), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, locked_or_exposed, ranges_known_late);

// Ranks 0 and 1, which most bodies are about, are neighbours and change each other's words; others ask by packets.
suite!(neighbours_locks, SimWorld, |spec: Spec| world(locked_by_choice(spec), beside_a_network), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late, order_among_packets_is_free, closing_fence, costs_with_results);

// The same, and they do what atomics they are asked for, in the place of packets.
suite!(neighbours_that_look, SimWorld, |spec: Spec| world(locked_by_choice(spec), |config| {
    beside_a_network(config);
    config.assist_per_mille = 1000;
}), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late, order_among_packets_is_free, closing_fence, costs_with_results);

fn locked_by_choice(spec: Spec) -> Spec {
    spec.with(|config| config.lock_protocol = LockProtocol::Auto)
}

fn beside_a_network(config: &mut FabricConfig) {
    puts_and_gets(config);
    (config.near_ranks, config.near_locks) = (2, true);
}

/// A world in which addresses and keys are no two ranks' the same.
fn each_elsewhere(spec: Spec, change: impl Fn(&mut FabricConfig)) -> SimWorld {
    let mut config = FabricConfig::unit(spec.size());
    (config.offset_addresses, config.grants_key_wishes) = (false, false);
    change(&mut config);
    // Their places stay taken.
    let regions = RefCell::new(Vec::new());
    let world = simulated::world(&SimFabric::new(config), spec.size(), &spec.config, |mut endpoint, rank| {
        for key in 0..u64::from(rank) {
            static MEMORY: AtomicU64 = AtomicU64::new(0);
            // SAFETY: the memory is there as long as the process, and nobody knows of it.
            let region = unsafe { endpoint.register(NonNull::from(&MEMORY).cast(), 8, RemoteKey(key)) };
            regions.borrow_mut().push(region.expect("there is room"));
        }
        endpoint
    });
    world.keeping(regions)
}

fn only_lock_atomics(config: &mut FabricConfig) {
    let mut native = NativeOps { put: true, get: true, ..NativeOps::default() };
    native.fetch_atomic[Dtype::U64 as usize] = 1 << ReduceOp::Sum as u16;
    native.compare_atomic = 1 << Dtype::U64 as u32;
    config.native = native;
}

/// The bodies about locks that are words, where places are alike and where they are not.
#[test]
fn locks_are_words() {
    for is_alike in [true, false] {
        let make = |spec: Spec| match is_alike {
            true => world(spec, only_lock_atomics),
            false => each_elsewhere(spec, only_lock_atomics),
        };
        word_locks::all(&make);
    }
}

#[test]
fn a_lock_of_the_dead_is_lost() {
    for native in [true, false] {
        let fabric = RefCell::new(None);
        let make = |spec: Spec| {
            let mut config = FabricConfig::unit(spec.size());
            if !native {
                only_lock_atomics(&mut config);
            }
            let made = SimFabric::new(config);
            *fabric.borrow_mut() = Some(made.clone());
            simulated::world(&made, spec.size(), &spec.config, |endpoint, _| endpoint)
        };
        let kill = |rank| fabric.borrow().as_ref().expect("there is a world").kill(rank);
        word_locks::a_lock_of_the_dead_is_lost(&make, &|| kill(2));
        word_locks::a_stranger_takes_no_lock_with_it(&make, &|| kill(3));
    }
}

/// Some take the words, and some ask by packets.
#[test]
fn locks_are_words_for_some() {
    chosen_locks::all(&|spec: Spec| world(spec, beside_a_network));
    chosen_locks::all(&|spec: Spec| each_elsewhere(spec, beside_a_network));
    chosen_locks::an_epoch_chooses(&|spec: Spec| world(spec, |_| ()));
    chosen_locks::an_epoch_chooses(&|spec: Spec| each_elsewhere(spec, |_| ()));
    chosen_locks::a_busy_target_is_spared(&|spec: Spec| world(spec, |_| ()));
}

#[test]
fn deaths_where_locks_are_words_for_some() {
    let fabric = RefCell::new(None);
    let make = |spec: Spec| {
        let mut config = FabricConfig::unit(spec.size());
        beside_a_network(&mut config);
        let made = SimFabric::new(config);
        *fabric.borrow_mut() = Some(made.clone());
        simulated::world(&made, spec.size(), &spec.config, |endpoint, _| endpoint)
    };
    let kill = || fabric.borrow().as_ref().expect("there is a world").kill(3);
    chosen_locks::deaths_of_both_kinds(&make, &kill);
}

/// What of a lock was drawn, or given back, before the fabric took no more is not drawn or given back again.
#[test]
fn refused_steps_of_a_lock_are_done_once() {
    for seed in 0..200 {
        let spec = locked_by_words(Spec::ranks(4));
        let mut world = world(spec, |config| {
            beside_a_network(config);
            config.near_ranks = 4;
            (config.seed, config.faults.again_per_mille) = (seed, 300);
        });
        let window = world.allocate(64);
        for round in 0..8_u64 {
            let value = round.to_le_bytes();
            // Alone, while another one comes; then two that come while all are locked, of which the first was the last.
            world.lock(2, window, 1, Exclusive).unwrap();
            world.put(2, window, 1, 0, &value).unwrap();
            world.flush(2, window, 1).unwrap();
            world.lock(3, window, 1, Exclusive).unwrap();
            world.put(3, window, 1, 8, &value).unwrap();
            world.unlock(2, window, 1).unwrap();
            world.unlock(3, window, 1).unwrap();
            for disp in [8, 24] {
                world.lock(3, window, 1, Exclusive).unwrap();
                world.put(3, window, 1, disp, &value).unwrap();
                world.unlock(3, window, 1).unwrap();
            }
            let started = world.engines[0].start_lock_all(window, false);
            world.wait(0, started).unwrap();
            world.put(0, window, 1, 16, &value).unwrap();
            world.flush(0, window, 1).unwrap();
            for (rank, disp) in [(3, 24), (2, 32)] {
                world.lock(rank, window, 1, Exclusive).unwrap();
                world.put(rank, window, 1, disp, &value).unwrap();
            }
            let started = world.engines[0].start_unlock_all(window);
            world.wait(0, started).unwrap();
            let unlock =
                |rank: u32| (rank, world.engines[rank as usize].start_unlock(window, Rank(1)).unwrap());
            let both = [2, 3].map(unlock);
            world.wait_all(Vec::from(both)).unwrap();
            assert_eq!(world.memory(1, window)[..40], value.repeat(5), "seed {seed}");
        }
        world.check_idle();
    }
}

/// Who cannot give a neighbour's lock back, as the fabric takes nothing, says that it has done nothing: it would else go on
/// and on in the place of what makes room.
#[test]
fn what_is_refused_is_no_step() {
    let mut config = FabricConfig::unit(2);
    beside_a_network(&mut config);
    let fabric = SimFabric::new(config);
    let spec = locked_by_words(Spec::ranks(2));
    let mut world = simulated::world(&fabric, 2, &spec.config, |endpoint, _| endpoint);
    let window = world.allocate(64);
    for round in 1..=3_u8 {
        let started = world.engines[0].start_lock_all(window, false);
        world.wait(0, started).unwrap();
        let value = [round; 8];
        world.put(0, window, 1, 0, &value).unwrap();
        if round == 3 {
            assert_eq!(world.engines[0].elements_in_use(), (0, 0), "its lock is remembered without one");
            fabric.set_faults(Faults { again_per_mille: 1000, ..Faults::default() });
        }
        let mut unlock = world.engines[0].start_unlock_all(window).unwrap();
        world.engines[0].progress(); // What the epoch has done counts once.
        for _ in 0..10 {
            let is_refused = world.engines[0].poll(&mut unlock).is_pending();
            let steps = world.engines[0].progress();
            assert!(!is_refused || steps == 0, "{steps} steps in round {round}");
            assert!(is_refused || round < 3, "it was not refused");
        }
        fabric.set_faults(Faults::default());
        world.wait(0, Ok(unlock)).unwrap();
        assert_eq!(world.memory(1, window)[..8], value);
    }
    world.check_idle();
}

/// A ticket that was drawn, for which there is no element that would see that its lock can be had, is in nobody's way.
#[test]
fn a_ticket_without_an_element_is_given_back() {
    let few = |config: &mut Config| (config.target_pool, config.target_pool_global) = (2, 0);
    let mut world = world(locked_by_words(Spec::ranks(5)).with(few), |config| {
        beside_a_network(config);
        config.near_ranks = 5;
    });
    let window = world.allocate(64);
    for _ in 0..3 {
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &[1; 8]).unwrap();
        world.unlock(0, window, 1).unwrap();
    }
    // One has locked rank 2, for which rank 0 waits with an element; another one all, with rank 1.
    world.lock(3, window, 2, Exclusive).unwrap();
    world.put(3, window, 2, 0, &[3; 8]).unwrap();
    world.flush(3, window, 2).unwrap();
    let started = world.engines[4].start_lock_all(window, false);
    world.wait(4, started).unwrap();
    world.put(4, window, 1, 8, &[4; 8]).unwrap();
    world.flush(4, window, 1).unwrap();
    world.lock(0, window, 2, Exclusive).unwrap();
    world.put(0, window, 2, 8, &[2; 8]).unwrap();
    world.lock(0, window, 1, Exclusive).unwrap();
    let value = [2_u8; 8];
    // SAFETY: the bytes are there until the end of the epoch.
    let put = unsafe { world.engines[0].put(window, Rank(1), 16, value.as_ptr(), 8) };
    assert!(put.is_pending(), "the last element is for who has its lock");
    let started = world.engines[4].start_unlock_all(window);
    world.wait(4, started).unwrap();
    world.lock(3, window, 1, Exclusive).unwrap();
    world.put(3, window, 1, 24, &[3; 8]).unwrap();
    world.unlock(3, window, 1).unwrap();
    world.unlock(3, window, 2).unwrap();
    world.put(0, window, 1, 16, &value).unwrap();
    for target in [1, 2] {
        world.unlock(0, window, target).unwrap();
    }
    assert_eq!(world.memory(1, window)[..32], [[1; 8], [4; 8], [2; 8], [3; 8]].concat());
    assert_eq!(world.memory(2, window)[..16], [[3; 8], [2; 8]].concat());
    world.check_idle();
}

/// More ranks than a window remembers places of: they are asked for again.
#[test]
fn places_of_words_are_forgotten() {
    const RANKS: u32 = 70;
    let spec = locked_by_words(Spec::ranks(RANKS)).with(|config| config.target_pool = 4);
    let mut world = each_elsewhere(spec, only_lock_atomics);
    let window = world.allocate(64);
    for round in 1..=2 {
        let value = [round; 8];
        for target in 1..RANKS {
            world.lock(0, window, target, Exclusive).unwrap();
            world.put(0, window, target, 0, &value).unwrap();
            world.unlock(0, window, target).unwrap();
        }
        let started = world.engines[0].start_lock_all(window, false);
        world.wait(0, started).unwrap();
        for target in 1..RANKS {
            world.put(0, window, target, 8, &value).unwrap();
        }
        let started = world.engines[0].start_unlock_all(window);
        world.wait(0, started).unwrap();
        for target in 1..RANKS {
            assert_eq!(world.memory(target, window)[..16], [round; 16]);
        }
    }
    let asked = world.counters(0).packets_sent[PacketKind::MetadataRequest as usize];
    assert!(asked > u64::from(RANKS), "{asked}: each once, and some again");
    world.free(window).unwrap();
    world.check_idle();
}

/// Where completion is local and what ends an epoch follows puts: as a packet, or as data of the last of them. The
/// pieces of a put take each its time, and answers pass them.
#[test]
fn what_follows_puts_closes_no_region_before_them() {
    let kinds = [(true, 0, 64), (true, 4, 64), (false, 4, 64), (true, 0, 4096), (false, 4, 4096)];
    for (put_before_send, data_bytes, message_bytes_max) in kinds {
        for seed in 0..16 {
            regions_epochs::regions_detached_behind_puts(&|spec: Spec| {
                world(spec.with(|config| config.put_data = Some(data_bytes > 0)), |config| {
                    puts_and_gets(config);
                    config.limits.put_completes = CompletionScope::Local;
                    config.limits.order.put_before_send = put_before_send;
                    config.limits.message_bytes_max = message_bytes_max;
                    (config.seed, config.data_bytes) = (seed, data_bytes);
                    (config.faults.late_per_mille, config.faults.late_ns) = (300, 20_000);
                })
            });
        }
    }
}

/// Who promises that reductions do not meet gets those that the fabric has, without a packet: the fabric of this
/// test adds, and does not multiply. Without the promise the target's process executes all, and when it is taken
/// back.
#[test]
fn single_reductions_are_native() {
    let mut world = world(Spec::ranks(2), |config| {
        for table in [&mut config.native.atomic, &mut config.native.fetch_atomic] {
            let kept = 1 << ReduceOp::Sum as u16 | 1 << ReduceOp::Replace as u16;
            table.iter_mut().for_each(|bits| *bits &= kept);
        }
    });
    let same_op = WindowOptions { accumulate_ops: AccumulateOps::SameOp, ..WindowOptions::DEFAULT };
    for (options, packets) in [(WindowOptions::DEFAULT, (1, 1)), (same_op, (0, 0))] {
        let window = world.allocate_with(16, &options);
        assert_eq!(world.engines[0].window_options(window).unwrap().accumulate_ops, options.accumulate_ops);
        world.lock(0, window, 1, Shared).unwrap();
        // The lock is there, and the peer known.
        world.put(0, window, 1, 8, &3u64.to_le_bytes()).unwrap();
        world.flush(0, window, 1).unwrap();
        for (disp, op, expected) in [(0, ReduceOp::Sum, packets), (8, ReduceOp::Prod, (1, 1))] {
            let before = world.counters(0);
            let (two, mut old) = (2u64.to_le_bytes(), [0; 8]);
            world.get_accumulate(0, window, 1, disp, &two, &mut old, Dtype::U64, op).unwrap();
            world.flush(0, window, 1).unwrap();
            let counted = world.counters(0).since(&before);
            let sent: u64 = counted.packets_sent.iter().sum();
            assert_eq!((sent, counted.back()), expected, "{op:?} with {:?}", options.accumulate_ops);
        }
        world.unlock(0, window, 1).unwrap();
        assert_eq!((world.word(1, window, 0), world.word(1, window, 8)), (2, 6));
        for engine in &mut world.engines {
            engine.set_window_options(window, &WindowOptions::DEFAULT).unwrap();
            let path = engine.accumulate_path(window, Dtype::U64, ReduceOp::Sum);
            assert_eq!(path, Some(Path::Message), "the promise was taken back");
        }
        world.free(window).unwrap();
    }
    world.check_idle();
}

/// Puts are packets, and their notifications the fabric's atomics, whose completion says nothing of the target.
#[test]
fn notifications_are_native_behind_packets() {
    for order in [Order::default(), Order { put_before_send: true, ..Order::default() }] {
        let make = |spec: Spec| {
            world(spec, |config| {
                (config.native.put, config.native.get) = (false, false);
                (config.limits.put_completes, config.limits.order) = (CompletionScope::Local, order);
            })
        };
        notify::data_before_their_notification(&make);
        notify::notifications_keep_their_order(&make);
        notify::notified_puts_are_left_behind_by_complete(&make);
        notify::the_end_of_an_epoch_is_behind_its_notifications(&make);
        notify::notifications_under_all_switches(&make);
        notify::notifications_and_marks(&make);
        notify::notifications_wait_for_the_lock(&make);
    }
}

#[test]
fn a_death_gives_errors_and_no_hang() {
    with_a_death(|world, kill| rma_conformance::behaviour::deaths::errors_not_hangs(world, kill));
}

#[test]
fn a_death_ends_post_start_complete_wait() {
    with_a_death(|world, kill| {
        rma_conformance::behaviour::deaths::posts_and_completes_of_the_dead(world, kill);
    });
}

/// Runs `body` in worlds of three ranks, of which it kills the last, on every kind of fabric.
fn with_a_death(body: impl Fn(&mut World<SimEndpoint, SimBootstrap>, &dyn Fn())) {
    for native in [NativeOps::default(), rma_sim::native_all()] {
        for put_completes in [CompletionScope::Remote, CompletionScope::Local] {
            let mut config = FabricConfig { native, ..FabricConfig::unit(3) };
            config.limits.put_completes = put_completes;
            let fabric = SimFabric::new(config);
            let mut world = simulated::world(&fabric, 3, &Config::default(), |endpoint, _| endpoint);
            body(&mut world, &|| fabric.kill(2));
        }
    }
}

/// Rank 0 goes on, and the fabric delivers; the others do nothing. What `poll` said, if it was ready.
fn alone<T>(
    world: &mut SimWorld,
    fabric: &SimFabric,
    mut poll: impl FnMut(&mut Engine<SimEndpoint, SimBootstrap>) -> Poll<T>,
) -> Option<T> {
    for _ in 0..200 {
        if let Poll::Ready(done) = poll(&mut world.engines[0]) {
            return Some(done);
        }
        world.engines[0].progress();
        let _ = fabric.advance();
    }
    None
}

static SEVEN: u64 = 7;

/// Rank 0 puts a word to the target, alone.
fn put_alone(world: &mut SimWorld, fabric: &SimFabric, window: WindowId, target: u32) {
    let put = alone(world, fabric, |engine| {
        // SAFETY: a static.
        unsafe { engine.put(window, Rank(target), 32, (&raw const SEVEN).cast(), 8) }
    });
    put.expect("an element for the target").unwrap();
}

/// Rank 0, which has one target element, has sent an accumulate to rank 1, which does nothing, and then given the element
/// to rank 2 and back: a put to rank 1 is in its second one.
fn with_a_second_element() -> (SimFabric, SimWorld, WindowId) {
    let mut fabric_config = FabricConfig::unit(3);
    puts_and_gets(&mut fabric_config);
    let fabric = SimFabric::new(fabric_config);
    let config = Config { target_pool: 1, target_pool_global: 0, ..Config::default() };
    let mut world = simulated::world(&fabric, 3, &config, |endpoint, _| endpoint);
    let window = world.allocate(64);
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    let seven = SEVEN.to_le_bytes();
    for target in [1, 2] {
        // Where elements run out all are locked.
        world.put(0, window, target, 32, &seven).unwrap();
    }
    let flushed = world.engines[0].start_flush_all(window);
    world.wait(0, flushed).unwrap();
    world.settle();
    world.accumulate(0, window, 1, 0, &seven, Dtype::U64, ReduceOp::Sum).unwrap();
    put_alone(&mut world, &fabric, window, 2);
    put_alone(&mut world, &fabric, window, 1);
    (fabric, world, window)
}

fn unlock_all_of_rank_0(mut world: SimWorld, window: WindowId) {
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started).unwrap();
    world.check_idle();
}

/// Whether the put is under way or complete when the flush is called.
///
/// Shows: MPI_Win_flush, ours: iflush, seed: RESTORE_TARGET_ELEM_RESOURCES.
#[test]
fn a_flush_covers_what_went_to_an_earlier_element_of_the_target() {
    for (by_request, is_put_complete) in [(false, false), (false, true), (true, false), (true, true)] {
        let (fabric, mut world, window) = with_a_second_element();
        if is_put_complete {
            // One more: what is found again is remembered, and a flush of it asked by a short way.
            put_alone(&mut world, &fabric, window, 1);
            assert_eq!(alone(&mut world, &fabric, |_| Poll::<()>::Pending), None);
        }
        if by_request {
            let mut request = world.engines[0].flush_request(window, Some(Rank(1)), false).unwrap();
            let early = alone(&mut world, &fabric, |engine| engine.poll_request(&mut request));
            assert_eq!(early, None, "the accumulate was not executed");
            world.wait_request(0, &mut request).unwrap();
        } else {
            let mut flush = world.engines[0].start_flush(window, Rank(1)).unwrap();
            let early = alone(&mut world, &fabric, |engine| engine.poll(&mut flush));
            assert_eq!(early, None, "the accumulate was not executed");
            world.wait(0, Ok(flush)).unwrap();
        }
        assert_eq!(world.word(1, window, 0), 7);
        unlock_all_of_rank_0(world, window);
    }
}

/// Also when the second element has been given away, too, by the time of the operation behind the order call.
///
/// Shows: ours: order, ours: order_all, seed: RESTORE_TARGET_ELEM_RESOURCES.
#[test]
fn an_order_call_is_about_what_went_to_an_earlier_element_of_the_target() {
    for (is_all, has_third) in [(false, false), (false, true), (true, false), (true, true)] {
        let (fabric, mut world, window) = with_a_second_element();
        if is_all {
            world.engines[0].order_all(window).unwrap();
        } else {
            world.engines[0].order(window, Rank(1)).unwrap();
        }
        if has_third {
            put_alone(&mut world, &fabric, window, 2);
        }
        let mut got = [0_u8; 8];
        let into = got.as_mut_ptr();
        // SAFETY: the bytes are read after the epoch only.
        let get = alone(&mut world, &fabric, |engine| unsafe { engine.get(window, Rank(1), 0, into, 8) });
        let none = alone(&mut world, &fabric, |_| Poll::<()>::Pending);
        assert_eq!((none, fabric.traffic(0, 1).gets), (None, 0), "it is behind the accumulate");
        if get.is_none() {
            // Neither does it get an element before.
            world.get(0, window, 1, 0, &mut got).unwrap();
        }
        unlock_all_of_rank_0(world, window);
        assert_eq!(u64::from_le_bytes(got), 7);
    }
}
