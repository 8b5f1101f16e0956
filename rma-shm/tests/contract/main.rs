//! The provider contract of `rma_core::provider` over shared memory: the bodies are those of `rma-ofi`, run
//! on memory that the kernel copies to, and on memory that peers map.

mod allocated;
#[path = "../../../rma-ofi/tests/contract/allocations.rs"]
mod allocations;
mod assist;
#[path = "../../../rma-ofi/tests/contract/at_once.rs"]
mod at_once;
#[path = "../../../rma-ofi/tests/contract/bodies.rs"]
mod bodies;
#[path = "../../../rma-ofi/tests/contract/data.rs"]
mod data;
#[path = "../../../rma-ofi/tests/contract/helper.rs"]
mod helper;
mod lanes;
#[path = "../../../rma-ofi/tests/contract/one_process.rs"]
mod one_process;
mod passage;
mod regions;
mod turns;
#[path = "../../../rma-ofi/tests/contract/two_processes.rs"]
mod two_processes;
#[path = "../../../rma-ofi/tests/contract/vectors.rs"]
mod vectors;
#[path = "../../../rma-ofi/tests/contract/world.rs"]
mod world;

use std::process::Command;

use allocations::allocations;
use bodies::every_body;
use rma_core::provider::Limits;
use rma_shm::{Options, Reach, ShmEndpoint};
use world::World;

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

/// Packets of a class from one peer that may be kept: all.
fn from_one_peer(limits: &Limits) -> usize {
    limits.receive_buffers
}

/// Not a test: what the tests with several processes start.
#[test]
#[ignore = "a helper that other tests start"]
fn helper_process() {
    helper::serve();
}

macro_rules! body {
    (processes $name:ident) => {
        #[test]
        fn $name() {
            two_processes::$name(&Setup);
        }
    };
    ($nodes:literal $module:ident $name:ident $(($argument:ident))?) => {
        #[test]
        fn $name() {
            $module::$name(Setup.world($nodes) $(, $argument)?);
        }
    };
}

every_body!(body);
body!(2 regions regions_that_are_gone_are_refused);
body!(2 regions nothing_outside_of_a_region_is_touched);
body!(2 regions more_regions_than_are_remembered);
body!(2 regions regions_under_another_providers_names);
body!(3 lanes packets_keep_their_order_across_connections);

#[test]
fn line_11_allocated_memory_is_reached() {
    for reach in [Reach::Mapped, Reach::Attached, Reach::Allocated] {
        allocated::line_11_allocated_memory_is_reached(reach);
    }
}

#[test]
fn line_14_words_are_set_and_wake_who_sleeps() {
    for reach in [Reach::Mapped, Reach::Attached, Reach::Allocated] {
        allocated::line_14_words_are_set_and_wake_who_sleeps(reach);
    }
}

#[test]
fn line_15_who_is_asked_does_an_atomic_at_once_or_not_at_all() {
    assist::line_15_who_is_asked_does_an_atomic_at_once_or_not_at_all();
}

#[test]
fn who_does_not_look_does_nothing() {
    assist::who_does_not_look_does_nothing();
}

#[test]
fn line_16_what_is_done_now_is_done_and_else_nothing() {
    for reach in [Reach::Mapped, Reach::Attached, Reach::Allocated] {
        allocated::line_16_what_is_done_now_is_done_and_else_nothing(reach);
    }
}

#[test]
fn line_16_copies_of_a_programs_memory_are_done_now() {
    allocated::line_16_copies_of_a_programs_memory_are_done_now();
}

#[test]
fn line_18_owner_and_peers_change_elements_together() {
    for reach in [Reach::Mapped, Reach::Attached, Reach::Allocated] {
        turns::line_18_owner_and_peers_change_elements_together(reach);
    }
}

#[test]
fn line_18_what_is_not_mapped_is_its_owners() {
    turns::line_18_what_is_not_mapped_is_its_owners();
}

#[test]
fn line_19_a_passage_does_what_its_endpoint_would_do() {
    passage::line_19_a_passage_does_what_its_endpoint_would_do();
}

#[test]
fn line_19_words_are_changed_and_wake_who_sleeps() {
    passage::line_19_words_are_changed_and_wake_who_sleeps();
}

#[test]
fn line_19_who_falls_asleep_meanwhile_is_woken() {
    passage::line_19_who_falls_asleep_meanwhile_is_woken();
}

#[test]
fn line_19_a_passage_to_what_is_gone_leads_nowhere() {
    passage::line_19_a_passage_to_what_is_gone_leads_nowhere();
}

#[test]
fn other_memory_is_refused_where_it_is_not_reached() {
    allocated::other_memory_is_refused_where_it_is_not_reached();
}
