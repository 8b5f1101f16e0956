//! The provider contract of `rma_core::provider`, one test per line, on every libfabric provider that
//! a machine without special hardware has.

mod helper;
mod one_process;
mod strays;
mod two_processes;
mod vectors;
mod world;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::PathBuf;
use std::process::Command;

use rma_ofi::profile::RemoteCompletion;
use rma_ofi::{exceptions, Ofi, OfiEndpoint, Options};
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

/// How a provider is opened here.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) provider: &'static str,
    pub(crate) library: Option<PathBuf>,
    pub(crate) remote_completion: Option<RemoteCompletion>,
}

const PROVIDER: &str = "RMA_TEST_HELPER_PROVIDER";
const LIBRARY: &str = "RMA_TEST_HELPER_LIBRARY";
const READ_BACK: &str = "RMA_TEST_HELPER_READ_BACK";

impl Setup {
    /// Tells a helper's process how to open its provider.
    pub(crate) fn tell(&self, helper: &mut Command) {
        helper.env(PROVIDER, self.provider);
        if let Some(library) = &self.library {
            helper.env(LIBRARY, library);
        }
        if self.remote_completion == Some(RemoteCompletion::ReadBack) {
            helper.env(READ_BACK, "1");
        }
    }

    /// What a helper's process was told; `None` in any other.
    pub(crate) fn of_helper() -> Option<Self> {
        let provider = std::env::var(PROVIDER).ok()?;
        Some(Self {
            provider: Box::leak(provider.into_boxed_str()),
            library: std::env::var_os(LIBRARY).map(Into::into),
            remote_completion: std::env::var_os(READ_BACK).map(|_| RemoteCompletion::ReadBack),
        })
    }

    fn options(&self) -> Options {
        Options {
            library: self.library.clone(),
            provider: Some(self.provider.to_owned()),
            single_host: true,
            remote_completion: self.remote_completion,
            ..Options::default()
        }
    }

    pub(crate) fn endpoint(&self) -> OfiEndpoint {
        let options = self.options();
        let choice = Ofi::discover(&options).unwrap();
        assert_eq!(choice.candidate().provider, self.provider);
        OfiEndpoint::open(&choice, &options).unwrap()
    }

    fn world(&self, nodes: usize) -> World<OfiEndpoint> {
        World::new((0..nodes).map(|_| self.endpoint()).collect())
    }
}

/// Not a test: what the tests with several processes start.
#[test]
#[ignore = "a helper that other tests start"]
fn helper_process() {
    helper::serve();
}

/// Whether the test can pass on this provider; says why where it cannot.
fn applies(setup: &Setup, test: &str) -> bool {
    let exception = exceptions::of(setup.provider, test);
    if let Some(exception) = exception {
        println!("exception: {exception}");
    }
    exception.is_none()
}

macro_rules! contract {
    ($($module:ident: $setup:expr;)*) => {$(
        mod $module {
            use super::*;

            fn setup(test: &str) -> Option<Setup> {
                let setup: Option<Setup> = $setup;
                setup.filter(|setup| applies(setup, test))
            }

            contract!(@ 2, line_1_no_call_blocks_or_allocates(allocations));
            contract!(@ 2, line_2_again_has_no_side_effect);
            contract!(@ 2, line_3_every_tag_comes_back_once);
            contract!(@ processes, line_3_a_killed_peer_gives_errors_and_no_hang);
            contract!(@ processes, line_3_an_idle_peer_that_died_is_noticed);
            contract!(@ processes, line_3_a_peer_that_died_is_noticed_by_replies);
            contract!(@ processes, a_sleeping_peer_is_not_taken_for_dead);
            contract!(@ 2, line_4_sources_are_free_on_return);
            contract!(@ 2, line_5_packets_arrive_in_order_under_pressure);
            contract!(@ 3, line_6_completed_puts_are_visible);
            contract!(@ processes, line_6_a_third_process_reads_completed_puts);
            contract!(@ 2, line_7_claimed_orders_hold);
            contract!(@ 2, line_8_poll_serves_the_target_role);
            contract!(@ 2, line_9_replies_find_room);
            contract!(@ 2, line_9_replies_pass_requests_that_are_kept);
            contract!(@ vectors, line_10_vectors_move_their_pieces);
            contract!(@ 2, flush_covers_what_was_posted_before);
            contract!(@ 1, misuse_is_an_error);
            contract!(@ 2, a_wrong_key_fails_the_operation);
            contract!(@ strays, packets_for_another_endpoint_are_dropped);
            contract!(@ strays, keys_of_another_endpoint_open_nothing);
            contract!(@ 1, an_endpoint_reaches_itself);
            contract!(@ 2, a_thread_can_sleep_on_the_descriptor);
        }
    )*};
    (@ processes, $name:ident) => {
        #[test]
        fn $name() {
            if let Some(setup) = setup(stringify!($name)) {
                two_processes::$name(&setup);
            }
        }
    };
    (@ strays, $name:ident) => {
        #[test]
        fn $name() {
            if let Some(setup) = setup(stringify!($name)) {
                strays::$name(setup.world(3));
            }
        }
    };
    (@ vectors, $name:ident) => {
        #[test]
        fn $name() {
            if let Some(setup) = setup(stringify!($name)) {
                vectors::$name(setup.world(2));
            }
        }
    };
    (@ $nodes:literal, $name:ident $(($argument:ident))?) => {
        #[test]
        fn $name() {
            if let Some(setup) = setup(stringify!($name)) {
                one_process::$name(setup.world($nodes) $(, $argument)?);
            }
        }
    };
}

/// The system's library, which must have the provider.
fn system(provider: &'static str) -> Option<Setup> {
    Some(Setup { provider, library: None, remote_completion: None })
}

fn read_back(provider: &'static str) -> Option<Setup> {
    Some(Setup { provider, library: None, remote_completion: Some(RemoteCompletion::ReadBack) })
}

/// A libfabric 2.x, where the machine has one: `RMA_TEST_LIBFABRIC2` names it.
fn second(provider: &'static str) -> Option<Setup> {
    let library = std::env::var_os("RMA_TEST_LIBFABRIC2").map(PathBuf::from);
    if library.is_none() {
        eprintln!("not run: RMA_TEST_LIBFABRIC2 names no libfabric 2.x");
    }
    Some(Setup { provider, library: Some(library?), remote_completion: None })
}

contract! {
    tcp_rxm: system("tcp;ofi_rxm");
    net: system("net");
    sockets: system("sockets");
    udp_rxd: system("udp;ofi_rxd");
    shm: system("shm");
    net_reading_back: read_back("net");
    tcp_rxm_reading_back: read_back("tcp;ofi_rxm");
    version_2_tcp: second("tcp");
    version_2_tcp_rxm: second("tcp;ofi_rxm");
}
