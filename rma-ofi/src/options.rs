//! What the user may choose.

use std::path::PathBuf;

use rma_core::provider::ProviderError;

use crate::profile::RemoteCompletion;

/// Choices for [`crate::Ofi::discover`] and [`crate::OfiEndpoint::open`]. Every size is fixed from
/// opening on; the endpoint allocates nothing afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `libfabric.so.1` or its directory; `None` searches as the dynamic loader does.
    pub library: Option<PathBuf>,
    /// Provider to use, by libfabric's full name (`tcp;ofi_rxm`) or its first part (`tcp`).
    pub provider: Option<String>,
    /// `domain_attr.name` to use, such as `eth0` or `mlx5_0`.
    pub domain: Option<String>,
    /// RDMA devices to use, by name (`mlx5_0`) or PCI address, separated by commas; the ranks of a host take them
    /// in turn. `None` takes the nearest.
    pub nic: Option<String>,
    /// This process's rank among those on its host: those that may choose among equal devices share them out.
    pub local_rank: u32,
    /// Network interface (`eth0`) or IP address to bind to, for providers that use IP addresses; `ipv4` or `ipv6`: any
    /// of that kind.
    pub interface: Option<String>,
    /// An address of this host by which the launcher's own connections have come through: providers in software
    /// that use IP addresses bind to it, unless `interface` or libfabric's own variables say something else.
    pub host_address: Option<String>,
    /// All ranks are on this host: providers that use IP addresses bind to 127.0.0.1.
    pub single_host: bool,
    /// Largest packet, header and payload together, bytes; at least 512. 16 KiB with what fabrics put in front, as a longer one
    /// costs ofi_rxm another round trip.
    pub packet_bytes: usize,
    /// Packets of a class (requests, replies) that may arrive before the engine gives their buffers
    /// back.
    pub receive_buffers: usize,
    /// Packets of a class that may be on the way out.
    pub send_buffers: usize,
    /// Puts, gets and atomics that may be outstanding; fewer where the provider's queue is shorter.
    pub outstanding: usize,
    /// Lets the fabric execute accumulates where `fi_query_atomic` grants it. Off, the engine sends
    /// them as packets. Software providers emulate atomics and give up orders for them, so turn this
    /// on for hardware only, or to measure.
    pub native_atomics: bool,
    /// Registers all buffers that libfabric is given, the program's too, also where the provider does not insist on it
    /// (`FI_MR_LOCAL`).
    pub register_buffers: bool,
    /// Gathers small puts that follow each other, while others to the same peer are under way, into one message, over
    /// providers where that is cheaper ([`crate::profile::Profile::messages_cost_calls`]).
    pub gather: bool,
    /// Overrides how puts become visible at the target; `None` takes the provider's row of
    /// [`crate::profile::PROFILES`].
    pub remote_completion: Option<RemoteCompletion>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            library: None,
            provider: None,
            domain: None,
            nic: None,
            local_rank: 0,
            interface: None,
            host_address: None,
            single_host: false,
            packet_bytes: 16_368,
            receive_buffers: 128,
            send_buffers: 64,
            outstanding: 1024,
            native_atomics: false,
            register_buffers: false,
            gather: true,
            remote_completion: None,
        }
    }
}

impl Options {
    /// The defaults, with what `RMA_LIBFABRIC`, `RMA_PROVIDER`, `RMA_DOMAIN`, `RMA_NIC`,
    /// `RMA_INTERFACE`, `RMA_HOST_ADDRESS`, `RMA_MR_LOCAL` and `RMA_GATHER` say.
    /// `FI_PROVIDER` and libfabric's other variables are libfabric's own and stay in force.
    pub fn from_env() -> Self {
        let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            library: text("RMA_LIBFABRIC").map(PathBuf::from),
            // A name may say that it is libfabric's.
            provider: text("RMA_PROVIDER").map(|name| name.trim_start_matches("ofi:").to_owned()),
            domain: text("RMA_DOMAIN"),
            nic: text("RMA_NIC"),
            interface: text("RMA_INTERFACE"),
            host_address: text("RMA_HOST_ADDRESS"),
            register_buffers: text("RMA_MR_LOCAL").is_some_and(|value| value != "0"),
            gather: text("RMA_GATHER").is_none_or(|value| value != "0"),
            ..Self::default()
        }
    }

    /// Checks the sizes.
    pub(crate) fn check(&self) -> Result<(), ProviderError> {
        let wrong = |what: &str, given: usize, least: usize| {
            Err(ProviderError {
                message: format!("{what} is {given}, but must be from {least} to {SIZE_MAX}"),
            })
        };
        for (what, given, least) in [
            ("packet_bytes (RMA_EAGER_BYTES)", self.packet_bytes, 512),
            ("receive_buffers", self.receive_buffers, 1),
            ("send_buffers", self.send_buffers, 1),
            ("outstanding", self.outstanding, 1),
        ] {
            if given < least || given > SIZE_MAX {
                return wrong(what, given, least);
            }
        }
        Ok(())
    }
}

/// Larger sizes are mistakes: 64 Ki buffers of 64 KiB are 4 GiB.
const SIZE_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_out_of_range_are_errors_that_name_the_option() {
        Options::default().check().unwrap();
        let small = Options { packet_bytes: 511, ..Options::default() };
        assert!(small.check().unwrap_err().message.contains("packet_bytes (RMA_EAGER_BYTES) is 511"));
        let none = Options { receive_buffers: 0, ..Options::default() };
        assert!(none.check().unwrap_err().message.contains("receive_buffers is 0"));
        let many = Options { outstanding: SIZE_MAX + 1, ..Options::default() };
        assert!(many.check().unwrap_err().message.contains("outstanding"));
    }
}
