//! The provider contract of `rma_core::provider` over shared memory and a network together: the bodies are those of
//! `rma-ofi`, run with all endpoints on one host, each on its own, and both kinds mixed. The network is libfabric's `net`.

#[path = "../../../rma-ofi/tests/contract/allocations.rs"]
mod allocations;
#[path = "../../../rma-ofi/tests/contract/at_once.rs"]
mod at_once;
#[path = "../../../rma-ofi/tests/contract/bodies.rs"]
mod bodies;
mod both;
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

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use allocations::allocations;
use bodies::every_body;
use rma_composite::CompositeEndpoint;
use rma_core::bootstrap::ADDRESS_BYTES_MAX;
use rma_core::provider::Limits;
use rma_ofi::{Ofi, OfiEndpoint, Options};
use rma_shm::ShmEndpoint;
use world::World;

/// Longest time that anything bounded takes, seconds.
const LIMIT_S: u64 = 120;

/// Where the endpoints are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hosts {
    /// All on one host.
    One,
    /// Each on its own.
    Many,
    /// By turns on two hosts.
    Two,
    /// All on one, where memory cannot be shared.
    Unshared,
}

/// How the endpoints are opened here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    hosts: Hosts,
    /// Of this process; a helper's process was told.
    host: u64,
}

const HELPER: &str = "RMA_TEST_HELPER_HOST";
const UNSHARED: &str = "RMA_TEST_HELPER_UNSHARED";

impl Setup {
    fn of(hosts: Hosts) -> Self {
        Self { hosts, host: 0 }
    }

    /// The host of the endpoint with this number.
    fn host(&self, number: u64) -> u64 {
        match self.hosts {
            Hosts::One | Hosts::Unshared => self.host,
            Hosts::Two => self.host + number % 2,
            Hosts::Many => self.host + number,
        }
    }

    /// Tells a helper's process that it is one. Those of two hosts are on the other host by turns, as the test is on
    /// the first.
    pub(crate) fn tell(&self, helper: &mut Command) {
        static HELPERS: AtomicU64 = AtomicU64::new(1);
        helper.env(HELPER, self.host(HELPERS.fetch_add(1, Ordering::Relaxed)).to_string());
        if matches!(self.hosts, Hosts::Unshared) {
            helper.env(UNSHARED, "1");
        }
    }

    /// What a helper's process was told; `None` in any other.
    pub(crate) fn of_helper() -> Option<Self> {
        let host = std::env::var(HELPER).ok()?.parse().expect("a host's number");
        let is_unshared = std::env::var_os(UNSHARED).is_some();
        Some(Self { hosts: if is_unshared { Hosts::Unshared } else { Hosts::One }, host })
    }

    pub(crate) fn endpoint(&self) -> CompositeEndpoint<OfiEndpoint> {
        self.endpoint_on(self.host)
    }

    fn endpoint_on(&self, host: u64) -> CompositeEndpoint<OfiEndpoint> {
        // Both take packets as long as each other's, as the runtime has them.
        let packet_bytes = rma_shm::Options::default().packet_bytes;
        let options = Options {
            provider: Some("net".to_owned()),
            single_host: true,
            packet_bytes,
            ..Options::default()
        };
        let network = OfiEndpoint::open(&Ofi::discover(&options).unwrap(), &options).unwrap();
        let reach = matches!(self.hosts, Hosts::Unshared).then_some(rma_shm::Reach::Allocated);
        let shm = ShmEndpoint::open(&rma_shm::Options { reach, ..rma_shm::Options::default() });
        // SAFETY: libfabric's tables number peers, and the endpoint its buffers, from 0.
        let endpoint = unsafe { CompositeEndpoint::new(network, shm, host, ADDRESS_BYTES_MAX) };
        assert_eq!(endpoint.shm().is_err(), reach.is_some());
        endpoint
    }

    fn world(&self, nodes: usize) -> World<CompositeEndpoint<OfiEndpoint>> {
        World::new((0..nodes).map(|number| self.endpoint_on(self.host(number as u64))).collect())
    }
}

/// Packets of a class from one peer that may be kept: half of all, since each of both providers has buffers of its own
/// and a peer comes over one of them.
fn from_one_peer(_: &Limits) -> usize {
    rma_shm::Options::default().receive_buffers
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
            two_processes::$name(&setup());
        }
    };
    ($nodes:literal $module:ident $name:ident $(($argument:ident))?) => {
        #[test]
        fn $name() {
            $module::$name(setup().world($nodes) $(, $argument)?);
        }
    };
}

macro_rules! contract {
    ($($module:ident: $hosts:expr;)*) => {$(
        mod $module {
            use super::*;

            fn setup() -> Setup {
                Setup::of($hosts)
            }

            every_body!(body);
        }
    )*};
}

contract! {
    one_host: Hosts::One;
    two_hosts: Hosts::Two;
    many_hosts: Hosts::Many;
    one_host_unshared: Hosts::Unshared;
}
