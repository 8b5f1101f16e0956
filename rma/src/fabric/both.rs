//! Shared memory for the ranks of one host, and a network for the others.

use rma_composite::CompositeEndpoint;
use rma_core::bootstrap::ADDRESS_BYTES_MAX;
use rma_core::provider::{Endpoint, ProviderError};
use rma_shm::ShmEndpoint;

use super::choice::{refused, Opened, Place, SHM};
use super::description::details;
use super::{Fabric, FabricEndpoint, FabricOptions};

/// What names of such a pair begin with.
pub(super) const SHM_AND: &str = "shm+";

/// A rank publishes its ghost's address with its own, behind four bytes that say so and its own length.
const ROOM_BESIDE_GHOST: usize = (ADDRESS_BYTES_MAX - JOINED_BYTES) / 2;
const JOINED_BYTES: usize = 5;

/// Puts shared memory beside the network that was opened.
pub(super) fn open_beside(
    options: &FabricOptions,
    place: &Place,
    reason: &str,
    network: Opened,
) -> Result<Opened, ProviderError> {
    let shm = match place.local_size {
        1 => Err(refused("no other rank is on this host".to_owned())),
        ranks => ShmEndpoint::open(&options.shm(ranks)),
    };
    let host = network_namespace();
    let room = if place.has_ghost { ROOM_BESIDE_GHOST } else { ADDRESS_BYTES_MAX };
    let Opened { endpoint, mut description, host_address } = network;
    let between = std::mem::take(&mut description.details);
    let shm_bytes = shm.as_ref().map_or(0, ShmEndpoint::memory_bytes);
    let (fabric, details) = match endpoint.0 {
        Fabric::Ofi(network) => {
            let both = CompositeEndpoint::new(network, shm, host, room)?;
            let details = describe(&both, &between);
            (Fabric::ShmOfi(both), details)
        }
        #[cfg(feature = "verbs")]
        Fabric::Verbs(network) => {
            let both = CompositeEndpoint::new(network, shm, host, room)?;
            let details = describe(&both, &between);
            (Fabric::ShmVerbs(both), details)
        }
        _ => {
            return Err(refused(format!(
                "{SHM_AND}{SHM}: beside shared memory there is a network, such as {SHM_AND}ofi"
            )))
        }
    };
    description.provider = format!("{SHM_AND}{}", description.provider);
    description.reason = reason.to_owned();
    let endpoint = FabricEndpoint(fabric);
    description.limits = *endpoint.limits();
    description.native = *endpoint.native();
    description.native_allocated = *endpoint.native_allocated();
    description.memory_bytes += shm_bytes;
    description.details = details;
    Ok(Opened { endpoint, description, host_address })
}

/// The lines about both together, then those about the network.
fn describe<N: Endpoint>(both: &CompositeEndpoint<N>, between: &str) -> String {
    let on_host = match both.shm() {
        Ok(shm) => shm.description(),
        Err(error) => format!("the network: {error}"),
    };
    let lines = between.lines().filter(|line| !line.is_empty());
    let between: String = lines.map(|line| format!("  {line}\n")).collect();
    let both = details("shared memory and a network", both);
    format!("{both}on this host         {on_host}\nbetween hosts\n{between}")
}

/// What ranks have in common that the launcher, too, would put on one host. Where one machine stands for several, as in
/// tests, each has a namespace of its own.
fn network_namespace() -> u64 {
    rustix::fs::stat("/proc/self/ns/net").map_or(0, |status| status.st_ino)
}
