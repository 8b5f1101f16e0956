//! What an endpoint publishes: where its shared memory is found, and on which host.

use std::sync::atomic::{AtomicU32, Ordering};

use rma_core::bootstrap::AddressBytes;
use rma_core::provider::ProviderError;

use crate::error::{call_failed, refused};

/// A host and a numbering of processes on it: only there a process number means anything. A hash of both, as addresses
/// are to be short. If two hosts had the same, a rank would look here for a file of the other host's, and find none, or one
/// without its number and nonce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Host(u64);

impl Host {
    /// This process's.
    pub(crate) fn here() -> Result<Self, ProviderError> {
        // Drawn by the kernel when it started.
        let path = "/proc/sys/kernel/random/boot_id";
        let boot = std::fs::read_to_string(path).map_err(|error| refused(format!("{path}: {error}")))?;
        let namespace = rustix::fs::stat("/proc/self/ns/pid")
            .map_err(|error| call_failed("stat of /proc/self/ns/pid", error))?;
        Ok(Self::of(&boot, namespace.st_ino))
    }

    /// FNV-1a: the same in all builds of the library.
    fn of(boot: &str, namespace: u64) -> Self {
        let bytes = boot.bytes().chain(namespace.to_le_bytes());
        Self(
            bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            }),
        )
    }
}

/// A number for this process's host and its numbering of processes: who has the same one finds files of this process's
/// under `/proc`, as far as it may look there.
///
/// # Errors
/// When the kernel does not say it.
pub fn host_number() -> Result<u64, ProviderError> {
    Host::here().map(|host| host.0)
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
        for number in [self.host.0, self.inode, self.nonce] {
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
        let (host, rest) = rest.split_first_chunk()?;
        let (inode, rest) = rest.split_first_chunk()?;
        let (nonce, rest) = rest.split_first_chunk()?;
        let (pid, rest) = rest.split_first_chunk()?;
        let (fd, _) = rest.split_first_chunk()?;
        Some(Self {
            host: Host(u64::from_le_bytes(*host)),
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

    /// Both as one number, never 0: no process has that one.
    pub(crate) fn turn(self) -> u64 {
        u64::from(self.pid) << SERIAL_BITS | u64::from(self.serial)
    }

    /// And back.
    pub(crate) fn of_turn(turn: u64) -> Self {
        Self { pid: (turn >> SERIAL_BITS) as u32, serial: turn as u32 & SERIAL_MASK }
    }
}

/// Bits of a serial number.
pub(crate) const SERIAL_BITS: u32 = 24;
const SERIAL_MASK: u32 = (1 << SERIAL_BITS) - 1;

const MAGIC: &[u8; 4] = b"shm2";
const BYTES: usize = MAGIC.len() + 3 * 8 + 2 * 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_they_were() {
        let host = Host(0x1122_3344_5566_7788);
        let location = Location { host, pid: 77, fd: 3, inode: u64::MAX - 1, nonce: 5 };
        let address = location.encode().unwrap();
        assert_eq!(&address.as_slice()[..8], b"shm2\x88\x77\x66\x55");
        assert_eq!(address.as_slice().len(), 36);
        assert_eq!(address.as_slice()[28..32], [77, 0, 0, 0]);
        assert_eq!(Location::decode(&address), Some(location));
    }

    #[test]
    fn other_bytes_are_no_address() {
        let address =
            Location { host: Host::here().unwrap(), pid: 1, fd: 1, inode: 1, nonce: 1 }.encode().unwrap();
        let bytes = address.as_slice();
        let mut other = bytes.to_vec();
        other[0] ^= 1;
        for wrong in [&other[..], &bytes[..35], &[], &[bytes, &[0]].concat()] {
            assert_eq!(Location::decode(&AddressBytes::new(wrong).unwrap()), None);
        }
    }

    #[test]
    fn a_host_is_the_same_each_time() {
        let host = Host::here().unwrap();
        assert_eq!(host, Host::here().unwrap());
        for (boot, namespace) in [("5e8a", 7), ("5e8b", 7), ("5e8a", 8)] {
            let is_same = Host::of(boot, namespace) == Host::of("5e8a", 7);
            assert_eq!(is_same, (boot, namespace) == ("5e8a", 7));
        }
    }
}
