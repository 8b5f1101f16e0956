//! What the user may choose.

use rma_core::provider::ProviderError;

/// How a device is found and an endpoint is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// The device's name (`mlx5_0`, `rxe0`) or PCI address; `None` takes the first with an active port, those on this process's
    /// NUMA node before others.
    pub device: Option<String>,
    /// The device's port, counted from 1; `None` takes the first active one.
    pub port: Option<u8>,
    /// Entry of the port's table of global identifiers; `None` prefers RoCE version 2 with an IPv4 address.
    pub gid_index: Option<u8>,
    /// Service level of connections and datagrams, 0 to 15: InfiniBand's virtual lanes, and RoCE's priorities in a network that
    /// keeps them by VLAN.
    pub service_level: u8,
    /// Traffic class of connections and datagrams where they have a global route, as on Ethernet, where it is the IP header's
    /// type of service: the DSCP in the upper six bits.
    pub traffic_class: u8,
    /// Entry of the port's table of partition keys.
    pub partition_index: u16,
    /// Largest packet, bytes; 512 to 65,536.
    pub packet_bytes: usize,
    /// Receive buffers of each class of packets.
    pub receive_buffers: usize,
    /// Buffers for outgoing packets of each class.
    pub send_buffers: usize,
    /// Puts, gets, and atomics that may be outstanding.
    pub outstanding: usize,
    /// Lets the device execute the atomics that it has (fetch-add and compare-and-swap on 64-bit integers). A
    /// window uses them only where it needs no other operation on the type.
    pub native_atomics: bool,
    /// Connections beyond which idle ones are closed; each takes about 0.1 MB. There are two for each peer with whom
    /// this process is both an origin and a target. There may be more while none is idle, or while peers compute
    /// and do not answer.
    pub connections_max: usize,
    /// When a put is called complete at the target.
    pub remote_completion: RemoteCompletion,
}

/// What says that a put is in the target's memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum RemoteCompletion {
    /// The acknowledgement by the target's device.
    #[default]
    Acknowledged,
    /// A read that comes behind the puts, at each flush: a device may acknowledge what is still on its way to
    /// memory, but does not let a read overtake it. One round trip more.
    ReadBack,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: None,
            port: None,
            gid_index: None,
            service_level: 0,
            traffic_class: 0,
            partition_index: 0,
            packet_bytes: 16_368,
            receive_buffers: 128,
            send_buffers: 64,
            outstanding: 1024,
            native_atomics: false,
            connections_max: 512,
            remote_completion: RemoteCompletion::Acknowledged,
        }
    }
}

impl Options {
    /// Checks the sizes.
    pub(crate) fn check(&self) -> Result<(), ProviderError> {
        for (what, given, least, most) in [
            ("packet_bytes (RMA_EAGER_BYTES)", self.packet_bytes, 512, SIZE_MAX),
            ("receive_buffers", self.receive_buffers, 1, SIZE_MAX),
            ("send_buffers", self.send_buffers, 1, SIZE_MAX),
            ("outstanding", self.outstanding, 1, SIZE_MAX),
            ("connections_max (RMA_VERBS_CONNECTIONS)", self.connections_max, 1, SIZE_MAX),
            (
                "service_level (RMA_VERBS_SERVICE_LEVEL)",
                usize::from(self.service_level),
                0,
                SERVICE_LEVEL_MAX,
            ),
        ] {
            if given < least || given > most {
                let message = format!("{what} is {given}, but must be from {least} to {most}");
                return Err(ProviderError { message });
            }
        }
        Ok(())
    }
}

/// Service levels have four bits.
const SERVICE_LEVEL_MAX: usize = 15;
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
        let level = Options { service_level: 16, ..Options::default() };
        assert!(level.check().unwrap_err().message.contains("RMA_VERBS_SERVICE_LEVEL) is 16"));
        let many = Options { outstanding: SIZE_MAX + 1, ..Options::default() };
        assert!(many.check().unwrap_err().message.contains("outstanding"));
    }
}
