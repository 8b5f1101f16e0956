//! Conformance on libfabric's software providers: real endpoints, all in this process, driven by one
//! thread. `RMA_TEST_LIBFABRIC2` names another libfabric to run the same on.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rma_conformance::{suite, Driver, Spec, World};
use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::engine::Engine;
use rma_core::ids::Rank;
use rma_ofi::{Ofi, OfiEndpoint, Options};

/// Addresses of the job, in this process's memory.
type Addresses = Arc<Mutex<Vec<Option<AddressBytes>>>>;

#[derive(Debug)]
struct InProcess {
    rank: u32,
    addresses: Addresses,
}

impl InProcess {
    fn addresses(&self) -> std::sync::MutexGuard<'_, Vec<Option<AddressBytes>>> {
        self.addresses.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Bootstrap for InProcess {
    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> u32 {
        self.addresses().len() as u32
    }

    fn publish(&mut self, address: &AddressBytes) -> Result<(), BootstrapError> {
        self.addresses()[self.rank as usize] = Some(*address);
        Ok(())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        Ok(self.addresses()[rank.index()].map_or(Lookup::Pending, Lookup::Found))
    }
}

/// Real fabrics move by themselves; a test that takes longer than this hangs.
struct Clock {
    begun: Instant,
    turns: u32,
}

const LIMIT: Duration = Duration::from_secs(120);

/// Turns between two in which the processor is offered to others, such as the threads of provider `sockets`. On
/// a machine with more to do than processors each such turn costs milliseconds.
const YIELDS_EVERY: u32 = 16;

impl Driver for Clock {
    fn advance(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        if self.turns % YIELDS_EVERY == 0 {
            assert!(self.begun.elapsed() < LIMIT, "no end after {LIMIT:?}");
            std::thread::yield_now();
        }
        true
    }

    fn now_ns(&self) -> Option<u64> {
        None
    }
}

type OfiWorld = World<OfiEndpoint, InProcess>;

fn world(spec: Spec, provider: &str, change: impl Fn(&mut Options)) -> OfiWorld {
    let ranks = if spec.ranks == 0 { 2 } else { spec.ranks };
    let mut options = Options { provider: Some(provider.into()), single_host: true, ..Options::default() };
    change(&mut options);
    let choice = Ofi::discover(&options).expect("the provider is there");
    let addresses: Addresses = Arc::new(Mutex::new(vec![None; ranks as usize]));
    let engines = (0..ranks).map(|rank| {
        let endpoint = OfiEndpoint::open(&choice, &options).expect("the endpoint opens");
        let bootstrap = InProcess { rank, addresses: addresses.clone() };
        Engine::open(endpoint, bootstrap, spec.config.clone()).expect("the engine opens")
    });
    World::new(engines.collect(), Clock { begun: Instant::now(), turns: 0 })
}

fn forced(spec: Spec) -> Spec {
    spec.with(|config| config.force_message_path = true)
}

/// The suite on one provider, natively and with forced messages, and on another libfabric beside the
/// system's where `RMA_TEST_LIBFABRIC2` names one.
fn second(spec: Spec, provider: &str) -> OfiWorld {
    world(spec, provider, |options| match std::env::var_os("RMA_TEST_LIBFABRIC2") {
        Some(path) => options.library = Some(path.into()),
        None => {
            options.provider = Some("tcp;ofi_rxm".into());
            println!("RMA_TEST_LIBFABRIC2 is not set: this ran on tcp;ofi_rxm of the default libfabric");
        }
    })
}

suite!(tcp_rxm, OfiWorld, |spec| world(spec, "tcp;ofi_rxm", |_| ()));
suite!(tcp_rxm_messages, OfiWorld, |spec| world(forced(spec), "tcp;ofi_rxm", |_| ()));
suite!(net, OfiWorld, |spec| world(spec, "net", |_| ()));
suite!(net_messages, OfiWorld, |spec| world(forced(spec), "net", |_| ()));
suite!(sockets, OfiWorld, |spec| world(spec, "sockets", |_| ()));
suite!(sockets_messages, OfiWorld, |spec| world(forced(spec), "sockets", |_| ()));
suite!(sockets_atomics, OfiWorld, |spec| world(spec, "sockets", |options| options.native_atomics = true));
suite!(udp_rxd, OfiWorld, |spec| world(spec, "udp;ofi_rxd", |_| ()));
suite!(udp_rxd_messages, OfiWorld, |spec| world(forced(spec), "udp;ofi_rxd", |_| ()));
suite!(shm, OfiWorld, |spec| world(spec, "shm", |_| ()));
suite!(shm_messages, OfiWorld, |spec| world(forced(spec), "shm", |_| ()));
suite!(version_2_tcp, OfiWorld, |spec| second(spec, "tcp"));
suite!(version_2_tcp_messages, OfiWorld, |spec| second(forced(spec), "tcp"));
suite!(version_2_tcp_rxm, OfiWorld, |spec| second(spec, "tcp;ofi_rxm"));
suite!(version_2_tcp_rxm_messages, OfiWorld, |spec| second(forced(spec), "tcp;ofi_rxm"));
