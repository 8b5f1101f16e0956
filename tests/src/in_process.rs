//! What endpoints of a real fabric need to be a world in one process: a bootstrap in its memory, and time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::engine::Engine;
use rma_core::ids::Rank;
use rma_core::provider::Endpoint;

use crate::{Driver, Spec, World};

/// Addresses of the job, in this process's memory.
type Addresses = Arc<Mutex<Vec<Option<AddressBytes>>>>;

/// The bootstrap of one rank.
#[derive(Debug)]
pub struct InProcess {
    rank: u32,
    addresses: Addresses,
}

impl InProcess {
    fn addresses(&self) -> MutexGuard<'_, Vec<Option<AddressBytes>>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
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
    limit: Duration,
    turns: u32,
}

/// Turns between two in which the processor is offered to others, such as the threads of provider `sockets`. On
/// a machine with more to do than processors each such turn costs milliseconds.
const YIELDS_EVERY: u32 = 16;

impl Driver for Clock {
    fn advance(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        if self.turns % YIELDS_EVERY == 0 {
            assert!(self.begun.elapsed() < self.limit, "no end after {:?}", self.limit);
            std::thread::yield_now();
        }
        true
    }

    fn now_ns(&self) -> Option<u64> {
        None
    }
}

/// A world of the ranks that `spec` asks for, each on an endpoint that `open` makes, which ends within `limit` or
/// fails.
///
/// # Panics
/// When an engine does not open.
pub fn world<E: Endpoint>(spec: &Spec, limit: Duration, mut open: impl FnMut() -> E) -> World<E, InProcess> {
    let ranks = spec.size();
    let addresses: Addresses = Arc::new(Mutex::new(vec![None; ranks as usize]));
    let engines = (0..ranks).map(|rank| {
        let bootstrap = InProcess { rank, addresses: addresses.clone() };
        Engine::open(open(), bootstrap, spec.config.clone()).expect("the engine opens")
    });
    World::new(engines.collect(), Clock { begun: Instant::now(), limit, turns: 0 })
}
