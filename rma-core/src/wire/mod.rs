//! Packets as bytes: fixed sizes, little-endian, coded field by field. No packet makes the decoder panic.
//!
//! A packet is a 16-byte [`Header`] and, by its kind, records. The largest header of an operation that
//! carries data (packet header, put record) is 32 bytes, so lock + 8-byte put + unlock takes 40.

mod data;
mod header;
mod purposes;
mod record;
mod region;
mod reply;
mod runs;

pub use data::{decode_data, encode_data, is_data};
pub use header::{BatchFlags, Header, PacketKind, PostFlags, QueryFlags, ReplyFlags};
pub use purposes::Purposes;
pub use record::{Notifies, OpKind, Record, RECORD_BYTES_MAX};
pub use region::{RegionQuery, RegionRecord};
pub use reply::{Conflict, ErrorRecord, Metadata, ResultRecord};
pub use runs::{RunTable, Runs, RUN_BYTES_MAX, TABLE_BYTES_MAX, TABLE_HEADER_BYTES};

/// Why bytes are not a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// Fewer bytes than the field or payload needs.
    Truncated,
    /// The packet kind is unknown.
    Kind(u8),
    /// The operation kind is unknown.
    OpKind(u8),
    /// The element type is unknown.
    Dtype(u8),
    /// The reduction is unknown.
    ReduceOp(u8),
    /// The flags contradict each other or the kind.
    Flags(u16),
    /// A run table that cannot be: no bytes, no blocks, further than can be counted, or not the record's data.
    Runs,
    /// Lengths that cannot be: not a multiple of the element, or more than is there.
    Length(u32),
}

/// A cursor over received bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A cursor at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Bytes left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        if len > self.bytes.len() {
            return Err(WireError::Truncated);
        }
        let (head, tail) = self.bytes.split_at(len);
        self.bytes = tail;
        Ok(head)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, tail) = self.bytes.split_first_chunk::<N>().ok_or(WireError::Truncated)?;
        self.bytes = tail;
        Ok(*head)
    }

    /// The next byte.
    ///
    /// # Errors
    /// When nothing is left.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    /// The next 16-bit number.
    ///
    /// # Errors
    /// When fewer bytes are left.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// The next 32-bit number.
    ///
    /// # Errors
    /// When fewer bytes are left.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// The next 64-bit number.
    ///
    /// # Errors
    /// When fewer bytes are left.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}

/// A cursor over a buffer of fixed size; writing past the end is refused, not grown.
#[derive(Debug)]
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    /// A cursor that has written `len` bytes of `buffer` already.
    #[inline]
    pub fn new(buffer: &'a mut [u8], len: usize) -> Self {
        Self { buffer, len }
    }

    /// Bytes written.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.buffer.len() - self.len
    }

    /// Appends bytes; `false`, with nothing written, when they do not fit.
    #[inline]
    #[must_use]
    pub fn put(&mut self, bytes: &[u8]) -> bool {
        match self.buffer.get_mut(self.len..self.len + bytes.len()) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.len += bytes.len();
                true
            }
            None => false,
        }
    }

    /// The next `len` bytes, to be filled in place; `None` when they do not fit.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Option<&mut [u8]> {
        let start = self.len;
        let place = self.buffer.get_mut(start..start + len)?;
        self.len += len;
        Some(place)
    }
}

#[cfg(test)]
mod tests;
