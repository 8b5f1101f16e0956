//! Conformance over shared memory: real endpoints, all in this process, driven by one thread. Windows that are
//! allocated lie in memory that peers map; others are any memory, which the kernel copies to and from, or which is not
//! reached; `shm_mapped` has all in memory that peers map.

use std::time::Duration;

use rma_conformance::behaviour::word_locks;
use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_core::info::LockProtocol;
use rma_shm::{Options, Reach, ShmEndpoint};

type ShmWorld = World<ShmEndpoint, InProcess>;

/// A test that takes longer than this hangs; under a sanitizer beside other programs the longest ones take
/// minutes.
const LIMIT: Duration = Duration::from_secs(600);

fn world(spec: Spec, reach: Reach, change: fn(&mut Options)) -> ShmWorld {
    let mut options = Options { reach: Some(reach), ..Options::default() };
    change(&mut options);
    in_process::world(&spec, LIMIT, || ShmEndpoint::open(&options).expect("the endpoint opens"))
}

fn forced(spec: Spec) -> Spec {
    spec.with(|config| config.force_message_path = true)
}

fn by_choice(spec: Spec) -> Spec {
    spec.with(|config| config.lock_protocol = LockProtocol::Auto)
}

/// As little of everything as there may be.
fn scarce(options: &mut Options) {
    (options.packet_bytes, options.ring_bytes, options.receive_buffers) = (4096, 16_384, 2);
    (options.outstanding, options.senders_max) = (2, 64);
}

// A post that is a word does not say how large the window is: that is read when the put is issued.
suite!(attached, ShmWorld, |spec| world(spec, Reach::Attached, |_| ()), differ: ranges_known_late);
// A ring holds a few packets, so that large puts as packets wait for room.
suite!(attached_messages, ShmWorld, |spec| world(forced(spec), Reach::Attached, |_| ()), differ: large_puts);
suite!(allocated, ShmWorld, |spec| world(spec, Reach::Allocated, |_| ()), differ: ranges_known_late);
// As jobs of one host lock by default, in windows of either kind of memory.
suite!(attached_locks, ShmWorld, |spec| world(by_choice(spec), Reach::Attached, |_| ()), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late);
suite!(allocated_locks, ShmWorld, |spec| world(by_choice(spec), Reach::Allocated, |_| ()), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late);
// The same over memory that a program gives, which is not mapped by others.
suite!(given_locks, ShmWorld, |spec| world(by_choice(spec), Reach::Attached, |_| ()).over_programs_memory(), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    locked_or_exposed, ranges_known_late, order_among_packets_is_free);
suite!(given, ShmWorld, |spec| world(spec, Reach::Attached, |_| ()).over_programs_memory(), differ: ranges_known_late);
suite!(packets, ShmWorld, |spec| world(spec, Reach::Packets, |options| options.ring_bytes = 1 << 18));
suite!(scarce_packets, ShmWorld, |spec| world(spec, Reach::Packets, scarce), differ: large_puts);

/// Of windows over a program's memory the locks are words that are mapped, and what is copied is over at once, too.
#[test]
fn locks_are_words_over_a_programs_memory() {
    let make = |spec| world(spec, Reach::Attached, |_| ()).over_programs_memory();
    word_locks::all(&make);
}
