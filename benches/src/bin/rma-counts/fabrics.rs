//! What the epochs are counted over: endpoints that are all in this process.

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::config::Config;
use rma_core::engine::Engine;
use rma_core::error::RmaError;
use rma_core::ids::Rank;
use rma_core::info::LockProtocol;
use rma_core::provider::Endpoint;
use rma_ofi::{Ofi, OfiEndpoint};
use rma_shm::{Reach, ShmEndpoint};
use rma_sim::{FabricConfig, SimEndpoint, SimFabric};

use crate::counts::{count, Counts};
use crate::epochs::{Epoch, EPOCHS};
use crate::ranks::Ranks;

/// One kind of endpoint, and settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fabric {
    pub(crate) name: &'static str,
    kind: Kind,
    /// Locks are words of the target's memory.
    word_locks: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A simulated fabric that does all by itself.
    Simulated,
    /// One that has packets only.
    Packets,
    SharedMemory,
    Tcp,
}

/// All of them, in the order of the table.
pub(crate) const FABRICS: [Fabric; 5] = [
    Fabric { name: "sim", kind: Kind::Simulated, word_locks: false },
    Fabric { name: "sim-packets", kind: Kind::Packets, word_locks: false },
    Fabric { name: "shm", kind: Kind::SharedMemory, word_locks: false },
    Fabric { name: "shm-word-locks", kind: Kind::SharedMemory, word_locks: true },
    Fabric { name: "tcp", kind: Kind::Tcp, word_locks: false },
];

/// The counts of every epoch over this fabric.
///
/// # Errors
/// When something does not open, a call fails, or epochs of one kind do not all cost the same; in words for users.
pub(crate) fn measure(fabric: &Fabric) -> Result<Vec<(&'static Epoch, Counts)>, String> {
    EPOCHS.iter().map(|epoch| Ok((epoch, measure_one(fabric, epoch)?))).collect()
}

fn measure_one(fabric: &Fabric, epoch: &Epoch) -> Result<Counts, String> {
    let lock_protocol = if fabric.word_locks { LockProtocol::Nic } else { LockProtocol::Message };
    let config = Config { lock_protocol, ..Config::default() };
    let failed = |error: &dyn std::fmt::Display| format!("{} over {}: {error}", epoch.name, fabric.name);
    match fabric.kind {
        Kind::Simulated => simulated(FabricConfig::unit(epoch.ranks), fabric, epoch, &config),
        Kind::Packets => simulated(FabricConfig::messages_only(epoch.ranks), fabric, epoch, &config),
        Kind::SharedMemory => {
            let options = rma_shm::Options { reach: Some(Reach::Allocated), ..rma_shm::Options::default() };
            let open = || ShmEndpoint::open(&options).map_err(|error| failed(&error));
            in_process((0..epoch.ranks).map(|_| open()).collect::<Result<_, _>>()?, fabric, epoch, &config)
        }
        Kind::Tcp => {
            let options = tcp_options();
            let choice = Ofi::discover(&options).map_err(|error| failed(&error))?;
            let open = || OfiEndpoint::open(&choice, &options).map_err(|error| failed(&error));
            in_process((0..epoch.ranks).map(|_| open()).collect::<Result<_, _>>()?, fabric, epoch, &config)
        }
    }
}

/// The version of libfabric that `tcp` is measured over.
///
/// # Errors
/// When it has no such provider, in words for users.
pub(crate) fn libfabric() -> Result<String, String> {
    let options = tcp_options();
    let choice = Ofi::discover(&options).map_err(|error| error.to_string())?;
    let endpoint = OfiEndpoint::open(&choice, &options).map_err(|error| error.to_string())?;
    let (major, minor) = endpoint.description().library_version;
    Ok(format!("{major}.{minor}"))
}

fn tcp_options() -> rma_ofi::Options {
    rma_ofi::Options {
        provider: Some("tcp;ofi_rxm".to_owned()),
        single_host: true,
        ..rma_ofi::Options::default()
    }
}

fn simulated(
    config: FabricConfig,
    fabric: &Fabric,
    epoch: &Epoch,
    engine: &Config,
) -> Result<Counts, String> {
    let simulation = SimFabric::new(config);
    simulation.reserve(RESERVED);
    let engines = (0..epoch.ranks).map(|rank| {
        let endpoint: SimEndpoint = simulation.open(rank).map_err(|error| error.to_string())?;
        let bootstrap = simulation.bootstrap(rank);
        Engine::open(endpoint, bootstrap, engine.clone()).map_err(|error| error.to_string())
    });
    let engines = engines.collect::<Result<_, String>>()?;
    let advance = Box::new(move || simulation.advance().is_some());
    count(fabric.name, epoch, &mut ranks(engines, advance)?)
}

fn in_process<E: Endpoint>(
    endpoints: Vec<E>,
    fabric: &Fabric,
    epoch: &Epoch,
    config: &Config,
) -> Result<Counts, String> {
    let addresses: Vec<_> = endpoints.iter().map(Endpoint::address).collect();
    let engines = endpoints.into_iter().enumerate().map(|(rank, endpoint)| {
        let bootstrap = InProcess { rank: rank as u32, addresses: addresses.clone() };
        Engine::open(endpoint, bootstrap, config.clone()).map_err(|error| error.to_string())
    });
    let engines = engines.collect::<Result<_, String>>()?;
    count(fabric.name, epoch, &mut ranks(engines, Box::new(|| false))?)
}

fn ranks<E: Endpoint, B: Bootstrap>(
    engines: Vec<Engine<E, B>>,
    advance: Box<dyn Fn() -> bool>,
) -> Result<Ranks<E, B>, String> {
    Ranks::new(engines, advance).map_err(|error: RmaError| error.to_string())
}

/// The bootstrap of ranks whose addresses are all known.
#[derive(Debug)]
struct InProcess {
    rank: u32,
    addresses: Vec<AddressBytes>,
}

impl Bootstrap for InProcess {
    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> u32 {
        self.addresses.len() as u32
    }

    fn publish(&mut self, _address: &AddressBytes) -> Result<(), BootstrapError> {
        Ok(())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        Ok(self.addresses.get(rank.index()).map_or(Lookup::Pending, |address| Lookup::Found(*address)))
    }
}

/// Messages that the simulated fabric has room for, so that it does not allocate.
const RESERVED: usize = 10_000;
