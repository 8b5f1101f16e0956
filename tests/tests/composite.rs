//! Conformance over shared memory and a network together: real endpoints, all in this process, driven by one thread.
//! Ranks are on several hosts, so that each window is reached by both ways.

use std::time::Duration;

use rma_composite::CompositeEndpoint;
use rma_conformance::behaviour::chosen_locks;
use rma_conformance::imposed::{Addresses, Fabric, Imposed, VERBS};
use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_core::bootstrap::ADDRESS_BYTES_MAX;
use rma_core::dtype::Dtype;
use rma_core::engine::FenceAssert;
use rma_core::ids::WindowId;
use rma_core::info::LockProtocol;
use rma_core::op::ReduceOp;
use rma_core::provider::ProviderError;
use rma_ofi::profile::RemoteCompletion;
use rma_ofi::{Ofi, OfiEndpoint};
use rma_shm::ShmEndpoint;

type Both = World<CompositeEndpoint<OfiEndpoint>, InProcess>;

/// A test that takes longer than this hangs; under a sanitizer beside other programs the longest ones take minutes.
const LIMIT: Duration = Duration::from_secs(600);

/// `host` says on which host the rank with this number is; `None`: on the first, without shared memory.
fn world(spec: Spec, provider: &str, host: fn(u64) -> Option<u64>) -> Both {
    let provider = Some(provider.into());
    let options = rma_ofi::Options { provider, single_host: true, ..rma_ofi::Options::default() };
    let choice = Ofi::discover(&options).expect("the provider is there");
    let mut ranks = 0..;
    in_process::world(&spec, LIMIT, || {
        let network = OfiEndpoint::open(&choice, &options).expect("the network's endpoint opens");
        let host = ranks.next().map(host).expect("ranks do not end");
        let shm = match host {
            Some(_) => ShmEndpoint::open(&rma_shm::Options::default()),
            None => Err(ProviderError { message: "not here".to_owned() }),
        };
        assert_eq!(shm.is_ok(), host.is_some());
        // SAFETY: libfabric's tables number peers, and the endpoint its buffers, from 0.
        unsafe { CompositeEndpoint::new(network, shm, host.unwrap_or(0), ADDRESS_BYTES_MAX) }
    })
}

/// A network whose adapters choose keys, so that no two ranks' are the same.
const CHOOSING: Fabric = Fabric { addresses: Addresses::Offsets, ..VERBS };

type Choosing = World<CompositeEndpoint<Imposed<OfiEndpoint>>, InProcess>;

fn choosing(spec: Spec, host: fn(u64) -> u64) -> Choosing {
    let options = rma_ofi::Options {
        provider: Some("net".into()),
        single_host: true,
        remote_completion: Some(RemoteCompletion::ReadBack),
        ..rma_ofi::Options::default()
    };
    let choice = Ofi::discover(&options).expect("the provider is there");
    let mut ranks = 0..;
    in_process::world(&spec, LIMIT, || {
        let network = OfiEndpoint::open(&choice, &options).expect("the network's endpoint opens");
        let rank = ranks.next().expect("ranks do not end");
        let network = Imposed::new(network, CHOOSING, rank as u32);
        let shm = ShmEndpoint::open(&rma_shm::Options::default());
        // SAFETY: libfabric's tables number peers, and the endpoint its buffers, from 0.
        unsafe { CompositeEndpoint::new(network, shm, host(rank), ADDRESS_BYTES_MAX) }
    })
}

/// On two hosts by turns, but one rank that does without shared memory.
fn by_turns(rank: u64) -> Option<u64> {
    (rank != 1).then_some(rank % 2)
}

/// Ranks 0 and 1, which most bodies are about, are on one host; the others are not.
fn in_pairs(rank: u64) -> Option<u64> {
    Some(rank / 2)
}

fn by_choice(spec: Spec) -> Spec {
    spec.with(|config| config.lock_protocol = LockProtocol::Auto)
}

fn forced(spec: Spec) -> Spec {
    spec.with(|config| config.force_message_path = true)
}

// A post that is a word does not say how large the window is: that is read when the put is issued.
suite!(pairs, Both, |spec| world(spec, "net", in_pairs), differ: ranges_known_late);
suite!(turns, Both, |spec| world(spec, "tcp;ofi_rxm", by_turns));
// Neighbours change each other's words; the others ask by packets.
suite!(pairs_locks, Both, |spec| world(by_choice(spec), "net", in_pairs), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late, order_among_packets_is_free);
// The same over memory that a program gives.
suite!(pairs_given, Both, |spec| world(by_choice(spec), "net", in_pairs).over_programs_memory(), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late, order_among_packets_is_free);
// Puts to other hosts carry data, those to neighbours do not.
suite!(turns_data, Both, |spec: Spec| {
    world(spec.with(|config| config.put_data = Some(true)), "net", by_turns)
}, differ: large_puts);
// A ring holds a few packets, so that large puts as packets wait for room.
suite!(pairs_messages, Both, |spec| world(forced(spec), "net", in_pairs), differ: large_puts);

// Where a window is differs from rank to rank. Neighbours read it, as above. Of the network no put is complete without a flush.
suite!(pairs_keys, Choosing, |spec| choosing(spec, |rank| rank / 2), differ: ranges_known_late, large_puts);

/// Each puts to the next one, in epochs of both kinds; the packets and the words of all by then.
fn epochs_around(world: &mut Choosing, window: WindowId, number: u8) -> (u64, u64) {
    let ranks = world.engines.len() as u32;
    let next = |rank: u32| (rank + 1) % ranks;
    let data = [number];
    for rank in world.ranks() {
        world.put(rank, window, next(rank), 0, &data).unwrap();
    }
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    for rank in world.ranks() {
        world.expose(rank, window, &[(rank + ranks - 1) % ranks]).unwrap();
    }
    for rank in world.ranks() {
        world.start(rank, window, &[next(rank)]).unwrap();
        world.put(rank, window, next(rank), 1, &data).unwrap();
        let started = world.engines[rank as usize].start_complete(window);
        world.wait(rank, started).unwrap();
    }
    for rank in world.ranks() {
        let started = world.engines[rank as usize].start_wait(window);
        world.wait(rank, started).unwrap();
        assert_eq!(world.memory(rank, window)[..2], [number; 2]);
    }
    world.fence(window, FenceAssert { no_precede: true, ..FenceAssert::default() }).unwrap();
    let all = world.ranks().map(|rank| world.counters(rank));
    all.fold((0, 0), |(packets, words), counters| {
        (packets + counters.packets_sent.iter().sum::<u64>(), words + counters.words_told)
    })
}

/// Ranks of one host tell each other by words, and nobody asks where a window is, whatever the network's keys are.
///
/// Shows: MPI_Win_fence, MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait.
#[test]
fn epochs_of_neighbours_are_no_packets_whatever_the_network_chooses() {
    let mut world = choosing(Spec::ranks(4), |_| 0);
    let window = world.allocate(64);
    world.fence(window, FenceAssert::default()).unwrap();
    let mut before = epochs_around(&mut world, window, 1);
    for number in 2..=4 {
        let now = epochs_around(&mut world, window, number);
        // Each ends one of both kinds, and begins one.
        assert_eq!((now.0 - before.0, now.1 - before.1), (0, 4 * (2 * 2 + 2)));
        before = now;
    }
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// Accumulates are packets there, and COMPLETE goes with them; nobody answers.
///
/// Shows: MPI_Win_start, MPI_Win_complete, MPI_Accumulate.
#[test]
fn accumulates_of_an_epoch_are_one_packet_whatever_the_network_chooses() {
    let mut world = choosing(Spec::ranks(2), |_| 0);
    let window = world.allocate(64);
    for number in 1..=3_u8 {
        let value = f64::from(number).to_le_bytes();
        let before = [0, 1].map(|rank| world.counters(rank));
        world.expose(1, window, &[0]).unwrap();
        world.start(0, window, &[1]).unwrap();
        for disp in [0, 8] {
            world.accumulate(0, window, 1, disp, &value, Dtype::F64, ReduceOp::Replace).unwrap();
        }
        let started = world.engines[0].start_complete(window);
        world.wait(0, started).unwrap();
        let started = world.engines[1].start_wait(window);
        world.wait(1, started).unwrap();
        assert_eq!(world.memory(1, window)[..16], [value, value].concat());
        let packets = [0, 1].map(|rank| {
            let sent = world.counters(rank).since(&before[rank as usize]).packets_sent;
            sent.iter().sum::<u64>()
        });
        assert_eq!(packets, [1, 0]);
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// Neighbours take the words, and the others ask by packets.
#[test]
fn locks_are_words_for_neighbours() {
    chosen_locks::all(&|spec: Spec| world(spec, "net", in_pairs));
}
