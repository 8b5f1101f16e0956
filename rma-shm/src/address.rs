//! What an endpoint publishes: where its shared memory is found, and on which host.

use std::sync::atomic::{AtomicU32, Ordering};

use rma_core::bootstrap::AddressBytes;
use rma_core::provider::ProviderError;

use crate::error::{call_failed, refused};

/// A host and a numbering of processes on it: only there a process number means anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    /// Drawn by the kernel when it started.
    boot: [u8; 16],
    /// The namespace of process numbers.
    namespace: u64,
}

impl Host {
    /// This process's.
    pub(crate) fn here() -> Result<Self, ProviderError> {
        let path = "/proc/sys/kernel/random/boot_id";
        let text = std::fs::read_to_string(path).map_err(|error| refused(format!("{path}: {error}")))?;
        let mut boot = [0; 16];
        let digits: Vec<u8> =
            text.bytes().filter_map(|byte| char::from(byte).to_digit(16)).map(|digit| digit as u8).collect();
        for (byte, pair) in boot.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair[0] << 4 | pair[1];
        }
        let status = rustix::fs::stat("/proc/self/ns/pid")
            .map_err(|error| call_failed("stat of /proc/self/ns/pid", error))?;
        Ok(Self { boot, namespace: status.st_ino })
    }
}

/// An endpoint's shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Location {
    pub(crate) host: Host,
    pub(crate) pid: u32,
    /// The descriptor, in that process, of the file.
    pub(crate) fd: u32,
    /// The file's number.
    pub(crate) inode: u64,
    /// Drawn at random, and in the file too.
    pub(crate) nonce: u64,
}

impl Location {
    pub(crate) fn encode(&self) -> Option<AddressBytes> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.host.boot);
        for number in [self.host.namespace, self.inode, self.nonce] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.pid, self.fd] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        AddressBytes::new(&bytes)
    }

    /// `None`: these are not the bytes of an address of this provider's.
    pub(crate) fn decode(address: &AddressBytes) -> Option<Self> {
        let bytes: &[u8; BYTES] = address.as_slice().try_into().ok()?;
        let rest = bytes.strip_prefix(MAGIC)?;
        let (boot, rest) = rest.split_first_chunk()?;
        let (namespace, rest) = rest.split_first_chunk()?;
        let (inode, rest) = rest.split_first_chunk()?;
        let (nonce, rest) = rest.split_first_chunk()?;
        let (pid, rest) = rest.split_first_chunk()?;
        let (fd, _) = rest.split_first_chunk()?;
        Some(Self {
            host: Host { boot: *boot, namespace: u64::from_le_bytes(*namespace) },
            pid: u32::from_le_bytes(*pid),
            fd: u32::from_le_bytes(*fd),
            inode: u64::from_le_bytes(*inode),
            nonce: u64::from_le_bytes(*nonce),
        })
    }
}

/// Tells this process's endpoints from one another, and from those of other living processes of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    pub(crate) serial: u32,
}

impl Identity {
    pub(crate) fn new() -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        Self { pid: std::process::id(), serial: SERIAL.fetch_add(1, Ordering::Relaxed) & SERIAL_MASK }
    }
}

/// Bits of a serial number.
pub(crate) const SERIAL_BITS: u32 = 24;
const SERIAL_MASK: u32 = (1 << SERIAL_BITS) - 1;

const MAGIC: &[u8; 8] = b"rma-shm1";
const BYTES: usize = MAGIC.len() + 16 + 3 * 8 + 2 * 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_they_were() {
        let host = Host { boot: *b"0123456789abcdef", namespace: 0x1122_3344_5566_7788 };
        let location = Location { host, pid: 77, fd: 3, inode: u64::MAX - 1, nonce: 5 };
        let address = location.encode().unwrap();
        assert_eq!(&address.as_slice()[..24], b"rma-shm10123456789abcdef");
        assert_eq!(address.as_slice().len(), 56);
        assert_eq!(address.as_slice()[48..52], [77, 0, 0, 0]);
        assert_eq!(Location::decode(&address), Some(location));
    }

    #[test]
    fn other_bytes_are_no_address() {
        let address =
            Location { host: Host::here().unwrap(), pid: 1, fd: 1, inode: 1, nonce: 1 }.encode().unwrap();
        let bytes = address.as_slice();
        let mut other = bytes.to_vec();
        other[0] ^= 1;
        for wrong in [&other[..], &bytes[..55], &[], &[bytes, &[0]].concat()] {
            assert_eq!(Location::decode(&AddressBytes::new(wrong).unwrap()), None);
        }
    }

    #[test]
    fn a_host_is_the_same_each_time() {
        let host = Host::here().unwrap();
        assert_eq!(host, Host::here().unwrap());
        assert_ne!(host.boot, [0; 16]);
    }
}
