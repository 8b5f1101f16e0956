//! What ranks tell each other about the regions of dynamic windows.

use super::{Reader, WireError, Writer};
use crate::ids::RemoteKey;

/// What an origin must know of an attached region to access it natively.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionRecord {
    /// Address of the region's first byte, as displacements name it.
    pub base: u64,
    /// Bytes of the region.
    pub len: u64,
    /// Provider address of its first byte.
    pub addr: u64,
    /// Key of its registration.
    pub key: RemoteKey,
    /// How often the target had taken its records back when it gave this one.
    pub version: u32,
}

impl RegionRecord {
    /// Bytes of an encoded record.
    pub const BYTES: usize = 36;

    /// Appends the record; `false` when it does not fit.
    #[must_use]
    pub fn encode(&self, out: &mut Writer<'_>) -> bool {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.base.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.addr.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.key.0.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.version.to_le_bytes());
        out.put(&bytes)
    }

    /// Takes a record off the front.
    ///
    /// # Errors
    /// When bytes are missing.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            base: reader.u64()?,
            len: reader.u64()?,
            addr: reader.u64()?,
            key: RemoteKey(reader.u64()?),
            version: reader.u32()?,
        })
    }

    /// Whether all of `len` bytes at address `first` are in the region.
    pub fn holds(&self, first: u64, len: u64) -> bool {
        let offset = first.checked_sub(self.base);
        offset.is_some_and(|offset| offset <= self.len && len <= self.len - offset)
    }
}

/// The bytes about whose region an origin asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionQuery {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes.
    pub len: u64,
}

impl RegionQuery {
    /// Bytes of an encoded question.
    pub const BYTES: usize = 16;

    /// The question as bytes.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Takes a question off the front.
    ///
    /// # Errors
    /// When bytes are missing.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { address: reader.u64()?, len: reader.u64()? })
    }
}
