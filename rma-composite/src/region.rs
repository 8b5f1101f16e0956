//! Memory that is registered with both providers.

use rma_core::ids::RemoteKey;
use rma_core::provider::MemoryRegion;
use rma_shm::ShmRegion;

/// A registered region: peers name it to both providers alike, by the key and the addresses that it has in the network.
#[derive(Debug)]
pub struct CompositeRegion<R> {
    /// None where memory is not shared. Dropped first: as soon as the network's is gone another may get its key.
    pub(crate) _shm: Option<ShmRegion>,
    pub(crate) network: R,
}

impl<R: MemoryRegion> MemoryRegion for CompositeRegion<R> {
    fn remote_key(&self) -> RemoteKey {
        self.network.remote_key()
    }

    fn remote_base(&self) -> u64 {
        self.network.remote_base()
    }
}
