//! Where bytes are.

use crate::ids::RemoteKey;

/// A location in a peer's registered memory, in the provider's terms: `addr` is what
/// [`MemoryRegion::remote_base`](super::MemoryRegion::remote_base) said at the owner plus the offset in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteAddr {
    /// Address or offset, as the provider counts it.
    pub addr: u64,
    /// Key of the region.
    pub key: RemoteKey,
}

/// A piece of this process's memory that a vector reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalPiece {
    /// First byte; only read by [`Endpoint::put_vector`](super::Endpoint::put_vector).
    pub base: *mut u8,
    /// Bytes, at least 1.
    pub len: usize,
}

/// A piece of a peer's registered memory that a vector reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemotePiece {
    /// First byte.
    pub at: RemoteAddr,
    /// Bytes, at least 1.
    pub len: usize,
}
