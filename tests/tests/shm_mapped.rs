//! Conformance over shared memory where peers map each other's windows, and do atomics on them themselves.
//! All memory of this process is in one file that can be mapped, so that the windows are, whoever allocates
//! them.
#![allow(unsafe_code)] // an allocator

#[path = "../../rma-shm/tests/contract/heap.rs"]
mod heap;

use std::time::Duration;

use heap::Heap;
use rma_conformance::behaviour::word_locks;
use rma_conformance::in_process::{self, InProcess};
use rma_conformance::{suite, Spec, World};
use rma_core::info::LockProtocol;
use rma_shm::{Options, Reach, ShmEndpoint};

#[global_allocator]
static HEAP: Heap = Heap::new();

type ShmWorld = World<ShmEndpoint, InProcess>;

/// A test that takes longer than this hangs; under a sanitizer beside other programs the longest ones take
/// minutes.
const LIMIT: Duration = Duration::from_secs(600);

fn world(spec: Spec) -> ShmWorld {
    HEAP.begin();
    let options = Options { reach: Some(Reach::Mapped), ..Options::default() };
    in_process::world(&spec, LIMIT, || ShmEndpoint::open(&options).expect("the endpoint opens"))
}

suite!(mapped, ShmWorld, world);

fn locked_by_words(spec: Spec) -> Spec {
    spec.with(|config| config.lock_protocol = LockProtocol::Nic)
}

// What is different about these locks is beside the suites on the simulated fabric.
suite!(mapped_word_locks, ShmWorld, |spec: Spec| world(locked_by_words(spec)), differ:
    single_operation_lock, coalesced_lock, puts_and_get_in_one_packet, large_puts, every_switch_has_a_price,
    lock_all_touches_only_its_targets, one_call_issues_for_its_target_or_its_window, the_threshold_ends_the_waiting,
    windows_without_locks_are_smaller, no_locks_refuses_locks, locked_or_exposed, ranges_known_late);

#[test]
fn locks_are_words() {
    let make = |spec: Spec| world(spec);
    word_locks::all(&make);
}
