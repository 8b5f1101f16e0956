//! What the user may choose of the fabric, with one name for each meaning whatever the provider.

use std::path::PathBuf;

use rma_shm::HugePages;

/// Which provider a job communicates over, and the endpoint's sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FabricOptions {
    /// `shm` (shared memory), `verbs` (InfiniBand and RoCE without libfabric), `ofi` (the best that libfabric has),
    /// or a provider of libfabric by its full name (`tcp;ofi_rxm`), the first part of it, or `ofi:` and either, which
    /// `ofi:shm` and `ofi:verbs` must be asked for with. `shm+` and any of these but `shm`: shared
    /// memory among the ranks of a host, and that provider between hosts. `None`: shared memory where all ranks are on one
    /// host, else `shm+ofi`, or `ofi` where `native_atomics` is set or progress is made by signals. The same at all ranks.
    pub provider: Option<String>,
    /// `libfabric.so.1` or its directory; `None` searches as the dynamic loader does.
    pub library: Option<PathBuf>,
    /// Device of the provider to use: libfabric's domain, such as `eth0`, or an RDMA device, such as `mlx5_0`.
    pub domain: Option<String>,
    /// RDMA devices to use, by name (`mlx5_0`) or PCI address, separated by commas; the ranks of a host take them
    /// in turn. `None` takes the nearest.
    pub nic: Option<String>,
    /// Network interface (`eth0`) or IP address to bind to, for providers that use IP addresses; `ipv4` or `ipv6`: any
    /// of that kind.
    pub interface: Option<String>,
    /// An address of this host by which the launcher's own connections have come through: providers in software
    /// that use IP addresses bind to it, unless `interface` or libfabric's own variables say something else.
    pub host_address: Option<String>,
    /// Largest packet, header and payload together, bytes; at least 512. `None`: what serves the provider best.
    pub packet_bytes: Option<usize>,
    /// Packets of a class (requests, replies) that may arrive before the engine gives their buffers back.
    pub receive_buffers: usize,
    /// Puts, gets and atomics that may be outstanding; fewer where the provider's queue is shorter.
    pub outstanding: usize,
    /// Lets a network execute accumulates where it can. Off, the engine sends them as packets. In shared memory the
    /// processors execute them, whatever this says.
    pub native_atomics: bool,
    /// Registers the program's buffers before libfabric is given them, also where its provider does not insist on it
    /// (docs/libfabric.md).
    pub register_buffers: bool,
    /// Gathers small puts that follow each other into one message, over libfabric's tcp providers.
    pub gather: bool,
    /// What `verbs` alone is asked for.
    pub verbs: VerbsOptions,
    /// Takes the memory of allocated windows in shared memory when they are made, and not when it is touched: what there
    /// is not is an error then (docs/shared-memory.md).
    pub shm_reserve: bool,
    /// Makes that memory of huge pages.
    pub shm_huge_pages: HugePages,
    /// Lets ranks of the host copy from and to memory of the program's. Where the kernel wants leave for that, it is given to
    /// all processes of this user, and with it leave to trace this one (docs/shared-memory.md).
    pub shm_attach: bool,
}

/// What the provider on ibverbs is asked for (docs/verbs.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerbsOptions {
    /// The device's port, counted from 1; `None` takes the first active one.
    pub port: Option<u8>,
    /// Entry of the port's table of global identifiers; `None` prefers RoCE version 2 with an IPv4 address.
    pub gid_index: Option<u8>,
    /// Connections of a rank beyond which idle ones are closed.
    pub connections: usize,
    /// Puts are complete when a read behind them has come back, and not when the target's device has acknowledged them.
    pub read_back: bool,
    /// Service level, 0 to 15.
    pub service_level: u8,
    /// Traffic class; on RoCE the DSCP in the upper six bits.
    pub traffic_class: u8,
    /// Entry of the port's table of partition keys.
    pub partition_index: u16,
}

impl Default for VerbsOptions {
    fn default() -> Self {
        Self {
            port: None,
            gid_index: None,
            connections: 512,
            read_back: false,
            service_level: 0,
            traffic_class: 0,
            partition_index: 0,
        }
    }
}

impl Default for FabricOptions {
    fn default() -> Self {
        let rma_ofi::Options { receive_buffers, outstanding, native_atomics, .. } =
            rma_ofi::Options::default();
        Self {
            provider: None,
            library: None,
            domain: None,
            nic: None,
            interface: None,
            host_address: None,
            packet_bytes: None,
            receive_buffers,
            outstanding,
            native_atomics,
            register_buffers: false,
            gather: true,
            verbs: VerbsOptions::default(),
            shm_reserve: false,
            shm_huge_pages: HugePages::No,
            shm_attach: true,
        }
    }
}

impl FabricOptions {
    /// What libfabric is asked with, were any of its providers wanted.
    pub fn libfabric(&self) -> rma_ofi::Options {
        rma_ofi::Options {
            library: self.library.clone(),
            domain: self.domain.clone(),
            nic: self.nic.clone(),
            interface: self.interface.clone(),
            host_address: self.host_address.clone(),
            packet_bytes: self.packet_bytes.unwrap_or_else(|| rma_ofi::Options::default().packet_bytes),
            receive_buffers: self.receive_buffers,
            outstanding: self.outstanding,
            native_atomics: self.native_atomics,
            register_buffers: self.register_buffers,
            gather: self.gather,
            ..rma_ofi::Options::default()
        }
    }

    /// What the provider on ibverbs is asked with at the rank with this number on its host.
    #[cfg(feature = "verbs")]
    pub(crate) fn verbs(&self, local_rank: u32) -> rma_verbs::Options {
        let words = |text: &str| -> Vec<String> {
            text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        let nics = self.nic.as_deref().map(words).unwrap_or_default();
        let in_turn = nics.get(local_rank as usize % nics.len().max(1));
        let VerbsOptions { port, gid_index, service_level, traffic_class, partition_index, .. } = self.verbs;
        rma_verbs::Options {
            device: self.domain.as_ref().or(in_turn).cloned(),
            port,
            gid_index,
            service_level,
            traffic_class,
            partition_index,
            connections_max: self.verbs.connections,
            remote_completion: if self.verbs.read_back {
                rma_verbs::RemoteCompletion::ReadBack
            } else {
                rma_verbs::RemoteCompletion::Acknowledged
            },
            packet_bytes: self.packet_bytes.unwrap_or_else(|| rma_verbs::Options::default().packet_bytes),
            receive_buffers: self.receive_buffers,
            outstanding: self.outstanding,
            native_atomics: self.native_atomics,
            ..rma_verbs::Options::default()
        }
    }

    /// What the shared-memory provider is asked with in a job of so many ranks.
    pub(crate) fn shm(&self, ranks: u32) -> rma_shm::Options {
        self.shm_with(ranks, rma_shm::Options::default().packet_bytes)
    }

    /// The same, beside a network, whose packets are not to be shorter because of it.
    pub(crate) fn shm_beside_network(&self, ranks: u32) -> rma_shm::Options {
        self.shm_with(ranks, rma_ofi::Options::default().packet_bytes)
    }

    fn shm_with(&self, ranks: u32, packet_bytes: usize) -> rma_shm::Options {
        let defaults = rma_shm::Options::default();
        let packet_bytes = self.packet_bytes.unwrap_or(packet_bytes);
        // Two packets and what each takes beside its bytes; a size out of range is the provider's to refuse.
        let least = packet_bytes.saturating_add(PACKET_HEADROOM).saturating_mul(2);
        let ring_bytes = least.checked_next_power_of_two().unwrap_or(usize::MAX);
        // Each rank and its ghost; by words of marks, which every poll looks through.
        let senders = (2 * ranks as usize).next_multiple_of(u64::BITS as usize);
        rma_shm::Options {
            packet_bytes,
            ring_bytes: ring_bytes.max(defaults.ring_bytes),
            senders_max: senders.min(SENDERS_MAX),
            regions_max: REGIONS_MAX,
            receive_buffers: self.receive_buffers,
            outstanding: self.outstanding,
            pages: rma_shm::Pages { reserve: self.shm_reserve, huge: self.shm_huge_pages },
            reach: if self.shm_attach { None } else { Some(rma_shm::Reach::Allocated) },
        }
    }
}

const PACKET_HEADROOM: usize = 16;

/// What the shared-memory provider takes at most.
const SENDERS_MAX: usize = 65_536;

/// Each window has one region at a rank, and a dynamic window one for each piece of memory.
const REGIONS_MAX: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_any_packet_and_job_fit_the_shared_memory() {
        for (packet_bytes, ranks) in [(512, 1), (8192, 2), (65_536, 100), (16_368, 32_768), (16_369, 65_536)]
        {
            let options = FabricOptions { packet_bytes: Some(packet_bytes), ..FabricOptions::default() };
            let shm = options.shm(ranks);
            assert!(
                shm.ring_bytes.is_power_of_two() && shm.ring_bytes >= 2 * (packet_bytes + PACKET_HEADROOM)
            );
            assert!(shm.senders_max >= (2 * ranks as usize).min(SENDERS_MAX), "{shm:?}");
        }
    }

    /// Packets to other hosts are no shorter where hosts share memory, and the rings hold two of them.
    #[test]
    fn packets_are_as_long_as_serves_the_provider() {
        let unset = FabricOptions::default();
        let shm = unset.shm_beside_network(2);
        assert_eq!(unset.libfabric().packet_bytes, shm.packet_bytes);
        assert_eq!(unset.shm(2), FabricOptions { packet_bytes: Some(8192), ..unset.clone() }.shm(2));
        assert_eq!(unset.shm(2).ring_bytes, shm.ring_bytes);
        let set = FabricOptions { packet_bytes: Some(4096), ..unset };
        assert_eq!([set.shm(2), set.shm_beside_network(2)].map(|shm| shm.packet_bytes), [4096; 2]);
        assert_eq!(set.libfabric().packet_bytes, 4096);
    }

    #[cfg(feature = "verbs")]
    #[test]
    fn unset_options_of_verbs_are_those_of_the_provider() {
        let unset = rma_verbs::Options::default();
        let FabricOptions { receive_buffers, outstanding, native_atomics, .. } = FabricOptions::default();
        let expected = rma_verbs::Options { receive_buffers, outstanding, native_atomics, ..unset };
        assert_eq!(FabricOptions::default().verbs(0), expected);
    }

    #[cfg(feature = "verbs")]
    #[test]
    fn ranks_of_a_host_take_devices_in_turn() {
        let options = FabricOptions { nic: Some("mlx5_0, mlx5_1".into()), ..FabricOptions::default() };
        let device = |options: &FabricOptions, rank| options.verbs(rank).device;
        assert_eq!(device(&options, 0).as_deref(), Some("mlx5_0"));
        assert_eq!(device(&options, 3).as_deref(), Some("mlx5_1"));
        assert_eq!(device(&FabricOptions::default(), 3), None);
        let named = FabricOptions { domain: Some("rxe0".into()), ..FabricOptions::default() };
        assert_eq!(device(&named, 1).as_deref(), Some("rxe0"));
    }
}
