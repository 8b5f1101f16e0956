//! How ranks find each other before the fabric works.

use alloc::string::String;
use core::fmt;

use crate::ids::Rank;

/// Longest provider address that the bootstrap carries, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 256;

/// A provider address as plain bytes: what one rank publishes and another looks up.
#[derive(Clone, Copy)]
pub struct AddressBytes {
    bytes: [u8; ADDRESS_BYTES_MAX],
    len: usize,
}

impl AddressBytes {
    /// The address with these bytes, or `None` when they are more than [`ADDRESS_BYTES_MAX`].
    pub fn new(address: &[u8]) -> Option<Self> {
        let mut bytes = [0; ADDRESS_BYTES_MAX];
        bytes.get_mut(..address.len())?.copy_from_slice(address);
        Some(Self { bytes, len: address.len() })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Debug for AddressBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AddressBytes").field(&self.as_slice()).finish()
    }
}

/// The answer to a look-up.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::large_enum_variant)] // returned by value once per first contact, never stored
pub enum Lookup {
    /// The rank has published this address.
    Found(AddressBytes),
    /// Not known yet: ask again later. Never returned for ever (the implementation has a time limit
    /// of its own and then fails).
    Pending,
}

/// Rank, size and the exchange of provider addresses. Everything else needs no bootstrap.
///
/// Both calls must not block longer than one exchange with a process on the same host takes; an
/// answer that is not there yet is [`Lookup::Pending`].
pub trait Bootstrap: Send {
    /// This process.
    fn rank(&self) -> Rank;

    /// Number of ranks in the job, at least 1.
    fn size(&self) -> u32;

    /// Makes this rank's provider address visible to the others. Called once.
    ///
    /// # Errors
    /// When the launcher cannot be reached or refuses the address.
    fn publish(&mut self, address: &AddressBytes) -> Result<(), BootstrapError>;

    /// The provider address that `rank` published.
    ///
    /// # Errors
    /// When the launcher is gone, or the rank has not published within the time limit.
    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError>;

    /// A rank whose process has ended before its time, each once, as far as the launcher has said so and was
    /// listened to. Not every launcher says it, hence the default.
    fn poll_lost(&mut self) -> Option<Rank> {
        None
    }
}

/// Why the bootstrap could not serve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BootstrapError {
    /// What was being done, what happened, and what the user can do about it.
    pub message: String,
}

impl fmt::Display for BootstrapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl core::error::Error for BootstrapError {}
