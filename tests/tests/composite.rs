//! Conformance over shared memory and a network together: real endpoints, all in this process, driven by one thread.
//! Ranks are on several hosts, so that each window is reached by both ways.

use std::time::Duration;

use rma_composite::CompositeEndpoint;
use rma_conformance::behaviour::chosen_locks;
use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_core::bootstrap::ADDRESS_BYTES_MAX;
use rma_core::info::LockProtocol;
use rma_core::provider::ProviderError;
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

suite!(pairs, Both, |spec| world(spec, "net", in_pairs));
suite!(turns, Both, |spec| world(spec, "tcp;ofi_rxm", by_turns));
// Neighbours change each other's words; the others ask by packets.
suite!(pairs_locks, Both, |spec| world(by_choice(spec), "net", in_pairs), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late, order_among_packets_is_free);
// Puts to other hosts carry data, those to neighbours do not.
suite!(turns_data, Both, |spec: Spec| {
    world(spec.with(|config| config.put_data = true), "net", by_turns)
}, differ: large_puts);
// A ring holds a few packets, so that large puts as packets wait for room.
suite!(pairs_messages, Both, |spec| world(forced(spec), "net", in_pairs), differ: large_puts);

/// Neighbours take the words, and the others ask by packets.
#[test]
fn locks_are_words_for_neighbours() {
    chosen_locks::all(&|spec: Spec| world(spec, "net", in_pairs));
}
