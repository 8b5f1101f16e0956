//! The provider contract of `rma_core::provider` over shared memory: the bodies are those of `rma-ofi`, run
//! on memory that the kernel copies to, and on memory that peers map.

#[path = "../../../rma-ofi/tests/contract/helper.rs"]
mod helper;
mod lanes;
#[path = "../../../rma-ofi/tests/contract/one_process.rs"]
mod one_process;
mod regions;
#[path = "../../../rma-ofi/tests/contract/two_processes.rs"]
mod two_processes;
#[path = "../../../rma-ofi/tests/contract/vectors.rs"]
mod vectors;
#[path = "../../../rma-ofi/tests/contract/world.rs"]
mod world;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::Command;

use rma_shm::{Options, Reach, ShmEndpoint};
use world::World;

/// Longest time that anything bounded takes, seconds.
const LIMIT_S: u64 = 120;

/// Counts what the thread allocates, for line 1.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> usize {
    ALLOCATIONS.with(Cell::get)
}

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
        let endpoint = ShmEndpoint::open(&Options::default()).unwrap();
        assert_eq!(
            endpoint.reach(),
            Reach::Attached,
            "the kernel must let processes of one user at each other"
        );
        endpoint
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
    ($($nodes:literal $body:ident $(($argument:ident))?;)*) => {$(
        #[test]
        fn $body() {
            one_process::$body(Setup.world($nodes) $(, $argument)?);
        }
    )*};
    (processes: $($body:ident;)*) => {$(
        #[test]
        fn $body() {
            two_processes::$body(&Setup);
        }
    )*};
}

contract! {
    2 line_1_no_call_blocks_or_allocates(allocations);
    2 line_2_again_has_no_side_effect;
    2 line_3_every_tag_comes_back_once;
    2 line_4_sources_are_free_on_return;
    2 line_5_packets_arrive_in_order_under_pressure;
    3 line_6_completed_puts_are_visible;
    2 line_7_claimed_orders_hold;
    2 line_8_poll_serves_the_target_role;
    2 line_9_replies_find_room;
    2 line_9_replies_pass_requests_that_are_kept;
    2 flush_covers_what_was_posted_before;
    1 misuse_is_an_error;
    2 a_wrong_key_fails_the_operation;
    1 an_endpoint_reaches_itself;
    2 a_thread_can_sleep_on_the_descriptor;
}

contract! { processes:
    line_3_a_killed_peer_gives_errors_and_no_hang;
    line_3_an_idle_peer_that_died_is_noticed;
    line_3_a_peer_that_died_is_noticed_by_replies;
    a_sleeping_peer_is_not_taken_for_dead;
    line_6_a_third_process_reads_completed_puts;
}

#[test]
fn regions_that_are_gone_are_refused() {
    regions::regions_that_are_gone_are_refused(Setup.world(2));
}

#[test]
fn nothing_outside_of_a_region_is_touched() {
    regions::nothing_outside_of_a_region_is_touched(Setup.world(2));
}

#[test]
fn more_regions_than_are_remembered() {
    regions::more_regions_than_are_remembered(Setup.world(2));
}

#[test]
fn packets_keep_their_order_across_connections() {
    lanes::packets_keep_their_order_across_connections(Setup.world(3));
}

#[test]
fn line_10_vectors_move_their_pieces() {
    vectors::line_10_vectors_move_their_pieces(Setup.world(2));
}
