//! The provider contract of `rma_core::provider` on an RDMA device: the bodies are those of `rma-ofi`. Built with
//! feature `device`, and then a device there must be; ci/softroce.sh makes one in software.

#[path = "../../../rma-ofi/tests/contract/allocations.rs"]
mod allocations;
#[path = "../../../rma-ofi/tests/contract/at_once.rs"]
mod at_once;
#[path = "../../../rma-ofi/tests/contract/bodies.rs"]
mod bodies;
#[path = "../../../rma-ofi/tests/contract/data.rs"]
mod data;
#[path = "../../../rma-ofi/tests/contract/helper.rs"]
mod helper;
#[path = "../../../rma-ofi/tests/contract/one_process.rs"]
mod one_process;
#[path = "../../../rma-ofi/tests/contract/two_processes.rs"]
mod two_processes;
#[path = "../../../rma-ofi/tests/contract/vectors.rs"]
mod vectors;
#[path = "../../../rma-ofi/tests/contract/world.rs"]
mod world;

mod atomics;
mod cable;
mod connections;
mod lists;

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use allocations::allocations;
use bodies::every_body;
use rma_core::provider::Limits;
use rma_verbs::{Options, RemoteCompletion, VerbsEndpoint};
use world::World;

/// Longest time that anything bounded takes, seconds: emulated machines are slow.
const LIMIT_S: u64 = 150;

/// How the endpoints are opened here: in turn on the devices that `RMA_TEST_VERBS_DEVICES` names, separated by
/// commas, or all on the one that is chosen.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    change: fn(&mut Options),
    is_reading_back: bool,
}

const HELPER: &str = "RMA_TEST_HELPER_VERBS";
const DEVICES: &str = "RMA_TEST_VERBS_DEVICES";
/// Endpoints opened; a helper's process goes on where its parent stood.
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// The device of the next endpoint.
fn next_device() -> Option<String> {
    let devices = std::env::var(DEVICES).ok()?;
    let devices: Vec<&str> = devices.split(',').collect();
    let turn = OPENED.fetch_add(1, Ordering::Relaxed);
    Some(devices[turn % devices.len()].to_owned())
}

impl Setup {
    /// Tells a helper's process that it is one.
    pub(crate) fn tell(&self, helper: &mut Command) {
        let turn = OPENED.fetch_add(1, Ordering::Relaxed);
        helper.env(HELPER, format!("{turn} {}", u8::from(self.is_reading_back)));
    }

    /// What a helper's process was told; `None` in any other.
    pub(crate) fn of_helper() -> Option<Self> {
        let told = std::env::var(HELPER).ok()?;
        let (turn, is_reading_back) = told.split_once(' ')?;
        OPENED.store(turn.parse().ok()?, Ordering::Relaxed);
        Some(if is_reading_back == "1" { READING_BACK } else { PLAIN })
    }

    pub(crate) fn endpoint(&self) -> VerbsEndpoint {
        let mut options = Options { native_atomics: true, device: next_device(), ..Options::default() };
        (self.change)(&mut options);
        VerbsEndpoint::open(&options).expect("feature `device` promises an RDMA device")
    }

    fn world(&self, nodes: usize) -> World<VerbsEndpoint> {
        World::new((0..nodes).map(|_| self.endpoint()).collect())
    }
}

const PLAIN: Setup = Setup { change: |_| (), is_reading_back: false };
const READING_BACK: Setup =
    Setup { change: |options| options.remote_completion = RemoteCompletion::ReadBack, is_reading_back: true };

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
            two_processes::$name(&PLAIN);
        }
    };
    ($nodes:literal $module:ident $name:ident $(($argument:ident))?) => {
        #[test]
        fn $name() {
            $module::$name(PLAIN.world($nodes) $(, $argument)?);
        }
    };
}

every_body!(body);

#[test]
fn atomics_of_the_device_are_atomic() {
    atomics::atomics_of_the_device_are_atomic(PLAIN.world(3));
}

#[test]
fn atomics_that_would_break_the_connection_are_refused() {
    atomics::atomics_that_would_break_the_connection_are_refused(PLAIN.world(2));
}

/// Where flushes read back.
mod reading_back {
    use super::*;

    #[test]
    fn line_3_every_tag_comes_back_once() {
        one_process::line_3_every_tag_comes_back_once(READING_BACK.world(2));
    }

    #[test]
    fn line_6_completed_puts_are_visible() {
        one_process::line_6_completed_puts_are_visible(READING_BACK.world(3));
    }

    #[test]
    fn line_6_a_third_process_reads_completed_puts() {
        two_processes::line_6_a_third_process_reads_completed_puts(&READING_BACK);
    }

    #[test]
    fn flush_covers_what_was_posted_before() {
        one_process::flush_covers_what_was_posted_before(READING_BACK.world(2));
    }

    #[test]
    fn line_10_vectors_move_their_pieces() {
        vectors::line_10_vectors_move_their_pieces(READING_BACK.world(2));
    }

    #[test]
    fn line_12_what_is_complete_when_it_is_accepted_is_over() {
        at_once::line_12_what_is_complete_when_it_is_accepted_is_over(READING_BACK.world(2));
    }
}

/// Small puts in rows of all lengths: the device reports the last of a list only, and each tag comes back once.
#[test]
fn rows_of_small_puts_come_back_one_by_one() {
    lists::rows_of_small_puts_come_back_one_by_one(PLAIN.world(3));
}

/// Connections that come and go, by twos.
#[test]
fn traffic_survives_closing() {
    let setup = Setup { change: |options| options.connections_max = 2, ..PLAIN };
    connections::traffic_survives_closing(setup.world(4), VerbsEndpoint::connections);
}

/// Endpoints of which there can be many.
fn small(options: &mut Options) {
    (options.packet_bytes, options.receive_buffers, options.send_buffers) = (512, 8, 4);
    (options.outstanding, options.connections_max) = (16, connections::FEW);
}

#[test]
fn many_peers_few_connections() {
    let setup = Setup { change: small, ..PLAIN };
    connections::many_peers_few_connections(setup.world(201), VerbsEndpoint::connections);
}

/// Endpoints that are touched at one time.
#[test]
fn peers_touched_together_leave_few_connections() {
    let setup = Setup { change: small, ..PLAIN };
    connections::peers_touched_together_leave_few_connections(setup.world(41), VerbsEndpoint::connections);
}

#[test]
fn peers_that_come_together_leave_few_connections() {
    let setup = Setup { change: small, ..PLAIN };
    connections::peers_that_come_together_leave_few_connections(setup.world(41), VerbsEndpoint::connections);
}

#[test]
fn lost_peers_leave_their_places() {
    connections::lost_peers_leave_their_places(PLAIN.world(4), VerbsEndpoint::connections);
}

#[test]
fn a_row_that_breaks_says_which_puts_were_made() {
    lists::a_row_that_breaks_says_which_puts_were_made(PLAIN.world(2));
}

/// On two devices, and the cable between them is cut; ci/softroce.sh, part `down`.
mod cut {
    use super::*;

    #[test]
    #[ignore = "takes the network away"]
    fn a_port_that_comes_back_ends_no_endpoint() {
        cable::a_port_that_comes_back_ends_no_endpoint(PLAIN.world(4));
    }

    #[test]
    #[ignore = "takes the network away"]
    fn silence_that_passes_is_only_slow() {
        cable::silence_that_passes_is_only_slow(PLAIN.world(2));
    }

    #[test]
    #[ignore = "takes the network away"]
    fn connections_are_made_when_trouble_has_passed() {
        cable::connections_are_made_when_trouble_has_passed(PLAIN.world(2));
    }

    #[test]
    #[ignore = "takes the network away"]
    fn connections_are_made_when_a_port_is_back() {
        cable::connections_are_made_when_a_port_is_back(PLAIN.world(4));
    }

    #[test]
    #[ignore = "takes the network away"]
    fn silence_for_good_is_an_error_at_both() {
        cable::silence_for_good_is_an_error_at_both(PLAIN.world(3));
    }

    #[test]
    #[ignore = "takes the network away"]
    fn a_port_down_for_good_ends_its_endpoints() {
        cable::a_port_down_for_good_ends_its_endpoints(PLAIN.world(3));
    }
}
