//! Memory that is registered with both providers, or with one of them.

use std::sync::Arc;

use rma_core::ids::RemoteKey;
use rma_core::mem::Changes;
use rma_core::provider::MemoryRegion;
use rma_shm::ShmRegion;

/// A registered region.
#[derive(Debug)]
pub struct CompositeRegion<R>(Registered<R>);

#[derive(Debug)]
enum Registered<R> {
    /// Peers name it to both providers alike, by the key and the addresses that it has in the network.
    Both {
        /// None where memory is not shared. Dropped first: as soon as the network's is gone another may get its key.
        shm: Option<ShmRegion>,
        network: R,
    },
    /// Peers of this host alone reach it.
    Near(ShmRegion),
}

impl<R> CompositeRegion<R> {
    pub(crate) fn of_both(shm: Option<ShmRegion>, network: R) -> Self {
        Self(Registered::Both { shm, network })
    }

    pub(crate) fn of_network(network: R) -> Self {
        Self::of_both(None, network)
    }

    pub(crate) fn of_shm(shm: ShmRegion) -> Self {
        Self(Registered::Near(shm))
    }
}

impl<R: MemoryRegion> MemoryRegion for CompositeRegion<R> {
    fn remote_key(&self) -> RemoteKey {
        match &self.0 {
            Registered::Both { network, .. } => network.remote_key(),
            Registered::Near(shm) => shm.remote_key(),
        }
    }

    fn remote_base(&self) -> u64 {
        match &self.0 {
            Registered::Both { network, .. } => network.remote_base(),
            Registered::Near(shm) => shm.remote_base(),
        }
    }

    /// Beside shared memory the network offers no atomics.
    fn changes(&self) -> Option<Arc<dyn Changes>> {
        match &self.0 {
            Registered::Both { shm: Some(shm), .. } | Registered::Near(shm) => shm.changes(),
            Registered::Both { shm: None, network } => network.changes(),
        }
    }
}
