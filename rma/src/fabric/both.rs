//! Shared memory for the ranks of one host, and a network for the others.

use rma_composite::CompositeEndpoint;
use rma_core::bootstrap::ADDRESS_BYTES_MAX;
use rma_core::provider::{Endpoint, ProviderError};
use rma_shm::ShmEndpoint;

use super::choice::{refused, Opened, Place};
use super::description::{details, memory_line};
use super::{Fabric, FabricEndpoint, FabricOptions};

/// What names of such a pair begin with.
pub(super) const SHM_AND: &str = "shm+";

/// Where something else than a network was named.
pub(super) const NO_NETWORK: &str =
    "RMA_PROVIDER=shm+NAME: beside shared memory there is a network: `ofi`, `verbs`, or one of \
     libfabric's providers, as in shm+tcp";

/// A rank publishes its ghost's address with its own, behind four bytes that say so and its own length.
const ROOM_BESIDE_GHOST: usize = (ADDRESS_BYTES_MAX - JOINED_BYTES) / 2;
const JOINED_BYTES: usize = 5;

/// Puts shared memory beside the network that was opened. What was `asked_for` has to be there, if it is any use.
pub(super) fn open_beside(
    options: &FabricOptions,
    place: &Place,
    reason: &str,
    asked_for: bool,
    network: Opened,
) -> Result<Opened, ProviderError> {
    let shm = match place.local_size {
        1 => Err(refused("no other rank is on this host".to_owned())),
        ranks => ShmEndpoint::open(&options.shm_beside_network(ranks)),
    };
    let host = network_namespace();
    let room = if place.has_ghost { ROOM_BESIDE_GHOST } else { ADDRESS_BYTES_MAX };
    let Opened { endpoint, mut description, host_address } = network;
    let between = std::mem::take(&mut description.details);
    let (fabric, details, shared) = match endpoint.0 {
        Fabric::Ofi(network) => {
            // SAFETY: libfabric's tables number peers, and the endpoint its buffers, from 0.
            let both = unsafe { CompositeEndpoint::new(network, shm, host, room) };
            let (details, shared) = (describe(&both, &between), shared_bytes(&both));
            (Fabric::ShmOfi(both), details, shared)
        }
        #[cfg(feature = "verbs")]
        Fabric::Verbs(network) => {
            // SAFETY: the endpoint numbers peers and buffers from 0.
            let both = unsafe { CompositeEndpoint::new(network, shm, host, room) };
            let (details, shared) = (describe(&both, &between), shared_bytes(&both));
            (Fabric::ShmVerbs(both), details, shared)
        }
        _ => return Err(refused(NO_NETWORK.to_owned())),
    };
    if let (true, Err(error), 2..) = (asked_for, &shared, place.local_size) {
        return Err(refused(format!(
            "{SHM_AND}{}: memory cannot be shared here: {error}; without {SHM_AND} the ranks of this host use the \
             network as well",
            description.provider
        )));
    }
    description.provider = format!("{SHM_AND}{}", description.provider);
    description.reason = reason.to_owned();
    let endpoint = FabricEndpoint(fabric);
    description.limits = *endpoint.limits();
    description.native = *endpoint.native();
    description.native_allocated = *endpoint.native_allocated();
    description.memory_bytes += shared.unwrap_or(0);
    description.details = details;
    Ok(Opened { endpoint, description, host_address })
}

/// Bytes that sharing memory takes, or why it is not shared.
fn shared_bytes<N: Endpoint>(both: &CompositeEndpoint<N>) -> Result<usize, ProviderError> {
    both.shm().map(ShmEndpoint::memory_bytes).map_err(Clone::clone)
}

/// The lines about both together, then those about the network.
fn describe<N: Endpoint>(both: &CompositeEndpoint<N>, between: &str) -> String {
    let (on_host, memory) = match both.shm() {
        Ok(shm) => (shm.description(), memory_line(shm)),
        Err(error) => (format!("the network: {error}"), String::new()),
    };
    let lines = between.lines().filter(|line| !line.is_empty());
    let between: String = lines.map(|line| format!("  {line}\n")).collect();
    let both = details("shared memory and a network", both);
    format!("{both}on this host         {on_host}\n{memory}between hosts\n{between}")
}

/// What ranks have in common that the launcher, too, would put on one host. Where one machine stands for several, as in
/// tests, each has a namespace of its own.
fn network_namespace() -> u64 {
    rustix::fs::stat("/proc/self/ns/net").map_or(0, |status| status.st_ino)
}
