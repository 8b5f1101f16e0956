//! The provider contract over shared memory where peers map each other's windows: all memory of these
//! processes is in files that can be mapped.

#[path = "../../../rma-ofi/tests/contract/at_once.rs"]
mod at_once;
#[path = "../../../rma-verbs/tests/contract/atomics.rs"]
#[allow(dead_code)] // what only devices refuse
mod atomics;
mod heap;
#[path = "../../../rma-ofi/tests/contract/helper.rs"]
mod helper;
#[path = "../../../rma-ofi/tests/contract/one_process.rs"]
#[allow(dead_code)] // what is about packets
mod one_process;
mod regions;
#[path = "../../../rma-ofi/tests/contract/two_processes.rs"]
#[allow(dead_code)] // what is about packets
mod two_processes;
#[path = "../../../rma-ofi/tests/contract/vectors.rs"]
mod vectors;
#[path = "../../../rma-ofi/tests/contract/world.rs"]
mod world;

use std::process::Command;

use heap::Heap;
use rma_shm::{Options, Reach, ShmEndpoint};
use world::World;

#[global_allocator]
static HEAP: Heap = Heap::new();

/// Longest time that anything bounded takes, seconds.
const LIMIT_S: u64 = 120;

/// How the endpoints are opened here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup;

const HELPER: &str = "RMA_TEST_HELPER_SHM";

impl Setup {
    /// Tells a helper's process that it is one.
    pub(crate) fn tell(&self, helper: &mut Command) {
        helper.env(HELPER, "1");
    }

    /// What a helper's process was told; `None` in any other.
    pub(crate) fn of_helper() -> Option<Self> {
        std::env::var_os(HELPER).map(|_| Self)
    }

    pub(crate) fn endpoint(&self) -> ShmEndpoint {
        HEAP.begin();
        ShmEndpoint::open(&Options { reach: Some(Reach::Mapped), ..Options::default() }).unwrap()
    }

    fn world(&self, nodes: usize) -> World<ShmEndpoint> {
        World::new((0..nodes).map(|_| self.endpoint()).collect())
    }
}

/// Not a test: what the tests with several processes start.
#[test]
#[ignore = "a helper that other tests start"]
fn helper_process() {
    helper::serve();
}

macro_rules! contract {
    ($($nodes:literal $module:ident $body:ident;)*) => {$(
        #[test]
        fn $body() {
            $module::$body(Setup.world($nodes));
        }
    )*};
}

contract! {
    2 one_process line_2_again_has_no_side_effect;
    2 one_process line_3_every_tag_comes_back_once;
    3 one_process line_6_completed_puts_are_visible;
    2 one_process line_7_claimed_orders_hold;
    2 one_process line_8_poll_serves_the_target_role;
    2 at_once line_12_what_is_complete_when_it_is_accepted_is_over;
    2 at_once line_17_memory_for_neighbours_has_one_name;
    2 at_once news_last_until_the_next_poll;
    2 one_process flush_covers_what_was_posted_before;
    2 one_process a_wrong_key_fails_the_operation;
    1 one_process an_endpoint_reaches_itself;
    2 vectors line_10_vectors_move_their_pieces;
    3 atomics atomics_of_the_device_are_atomic;
    2 regions regions_that_are_gone_are_refused;
    2 regions nothing_outside_of_a_region_is_touched;
    2 regions more_regions_than_are_remembered;
    2 regions regions_under_another_providers_names;
}

#[test]
fn line_6_a_third_process_reads_completed_puts() {
    two_processes::line_6_a_third_process_reads_completed_puts(&Setup);
}

#[test]
fn line_3_a_killed_peer_gives_errors_and_no_hang() {
    two_processes::line_3_a_killed_peer_gives_errors_and_no_hang(&Setup);
}

#[test]
fn line_3_an_idle_peer_that_died_is_noticed() {
    two_processes::line_3_an_idle_peer_that_died_is_noticed(&Setup);
}
