//! Conformance on an RDMA device: real endpoints, all in this process, driven by one thread. Built with feature
//! `verbs`, and then a device there must be; ci/softroce.sh makes one in software.

use std::cell::Cell;
use std::time::Duration;

use rma_conformance::behaviour::{chosen_locks, word_locks};
use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_core::info::LockProtocol;
use rma_verbs::{Options, VerbsEndpoint};

type VerbsWorld = World<VerbsEndpoint, InProcess>;

/// A test that takes longer than this hangs. Emulated machines are slow.
const LIMIT: Duration = Duration::from_secs(600);

/// The devices to take in turn, separated by commas: ranks on different ones are on different hosts, as far as the
/// network goes.
const DEVICES: &str = "RMA_TEST_VERBS_DEVICES";

fn world(spec: Spec, options: &Options) -> VerbsWorld {
    let named = std::env::var(DEVICES).unwrap_or_default();
    let devices: Vec<&str> = named.split(',').filter(|name| !name.is_empty()).collect();
    let turn = Cell::new(0);
    in_process::world(&spec, LIMIT, || {
        let mut options = options.clone();
        if !devices.is_empty() {
            options.device = Some(devices[turn.get() % devices.len()].to_owned());
            turn.set(turn.get() + 1);
        }
        VerbsEndpoint::open(&options).expect("feature `verbs` promises an RDMA device")
    })
}

fn forced(spec: Spec) -> Spec {
    spec.with(|config| config.force_message_path = true)
}

// The device chooses keys, and addresses are each process's own, so what an origin must know of a target's window
// comes with the lock or is asked for: one more packet, once, where there is no lock, and ranges are known late.
suite!(verbs, VerbsWorld, |spec| world(spec, &Options::default()),
    differ: no_check_needs_no_lock);
suite!(verbs_atomics, VerbsWorld, |spec| {
    world(spec, &Options { native_atomics: true, ..Options::default() })
}, differ: no_check_needs_no_lock);
// What ends an epoch is no packet of its own.
suite!(verbs_data, VerbsWorld, |spec: Spec| {
    world(spec.with(|config| config.put_data = Some(true)), &Options::default())
}, differ: no_check_needs_no_lock, large_puts);
fn locked_by_words(spec: Spec) -> VerbsWorld {
    let spec = spec.with(|config| config.lock_protocol = LockProtocol::Nic);
    world(spec, &Options { native_atomics: true, ..Options::default() })
}

// What is different about these locks is beside the suites on the simulated fabric. The device has few atomics, so most
// accumulates are packets under a lock that is none: the first asks for the target's ranges, which no lock has brought, and
// none carries the end of the epoch.
suite!(verbs_word_locks, VerbsWorld, locked_by_words, differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, large_puts_carry_unlock,
    every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late,
    order_among_packets_is_free, results_without_order_carry_the_acknowledgement, small_blocks_are_packed);

#[test]
fn verbs_word_locks_are_words() {
    let make = |spec: Spec| world(spec, &Options { native_atomics: true, ..Options::default() });
    word_locks::all(&make);
}

// What fits a packet goes by one, the rest by words.
suite!(verbs_locks_by_choice, VerbsWorld, |spec: Spec| {
    let spec = spec.with(|config| config.lock_protocol = LockProtocol::Auto);
    world(spec, &Options { native_atomics: true, ..Options::default() })
}, differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, large_puts_carry_unlock,
    every_switch_has_a_price, lock_all_touches_only_its_targets, locked_or_exposed, ranges_known_late);

#[test]
fn verbs_locks_by_choice_are_chosen() {
    let make = |spec: Spec| world(spec, &Options { native_atomics: true, ..Options::default() });
    chosen_locks::an_epoch_chooses(&make);
    chosen_locks::a_busy_target_is_spared(&make);
}

suite!(verbs_messages, VerbsWorld, |spec| world(forced(spec), &Options::default()));
