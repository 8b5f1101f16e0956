//! The records inside a reply.

use super::{Reader, WireError, Writer};
use crate::check::{Access, AccessKind};
use crate::error::{Call, RmaError};
use crate::ids::{Rank, RemoteKey};

/// What an origin must know of a target's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// Bytes of the window at the target.
    pub size: u64,
    /// Provider address of its first byte.
    pub base: u64,
    /// Key of its registration.
    pub key: RemoteKey,
    /// Bytes of one displacement unit there, at least 1.
    pub disp_unit: u32,
    /// The owner's address of its first byte, modulo 8. Where providers count from the window's beginning, `base`
    /// does not tell it.
    pub misalignment: u8,
}

impl Metadata {
    /// Bytes of an encoded record.
    pub const BYTES: usize = 29;

    /// The record as bytes.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.base.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.key.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.disp_unit.to_le_bytes());
        bytes[28] = self.misalignment;
        bytes
    }

    /// Appends the record; `false` when it does not fit.
    #[must_use]
    pub fn encode(&self, out: &mut Writer<'_>) -> bool {
        out.put(&self.to_bytes())
    }

    /// Takes a record off the front.
    ///
    /// # Errors
    /// When bytes are missing, the displacement unit is 0, or the misalignment is 8 or more.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let metadata = Self {
            size: reader.u64()?,
            base: reader.u64()?,
            key: RemoteKey(reader.u64()?),
            disp_unit: reader.u32()?,
            misalignment: reader.u8()?,
        };
        if metadata.disp_unit == 0 {
            return Err(WireError::Length(0));
        }
        if u64::from(metadata.misalignment) >= Self::WORD {
            return Err(WireError::Length(metadata.misalignment.into()));
        }
        Ok(metadata)
    }

    /// Where the word at displacement `disp` begins, if it lies in the window and at a multiple of 8 bytes of its
    /// owner's memory.
    pub fn locate_word(&self, disp: u64) -> Result<u64, ErrorRecord> {
        let offset = self.locate(disp, Self::WORD).map_err(|offset| self.outside(offset, Self::WORD))?;
        let is_aligned = (offset % Self::WORD + u64::from(self.misalignment)) % Self::WORD == 0;
        is_aligned.then_some(offset).ok_or(ErrorRecord::UnalignedWord)
    }

    /// First byte of an access of `len` bytes at displacement `disp`, and whether it lies in the
    /// window. An offset that does not fit 64 bits comes back as the largest.
    #[inline]
    pub fn locate(&self, disp: u64, len: u64) -> Result<u64, u64> {
        let offset = disp.checked_mul(u64::from(self.disp_unit)).ok_or(Self::FAR_OUTSIDE)?;
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(offset),
            _ => Err(offset),
        }
    }
}

impl Metadata {
    /// The size in the metadata of a dynamic window: any address may be attached.
    pub const ANY_ADDRESS: u64 = u64::MAX;

    const WORD: u64 = 8;

    /// The offset of what 64 bits cannot count. It is no negative number, as offsets before the window are.
    const FAR_OUTSIDE: u64 = i64::MAX as u64;

    /// Why an access that does not fit is an error.
    #[cold]
    pub fn outside(&self, offset: u64, len: u64) -> ErrorRecord {
        match self.size {
            Self::ANY_ADDRESS => ErrorRecord::NotAttached { address: offset, len },
            size => ErrorRecord::Range { offset, len, size },
        }
    }

    /// The byte at displacement `disp`, and whether all from `low` to before `high`, counted from it, are in
    /// the window; that byte itself need not be. The error is the first byte of the access, before the window modulo
    /// 2^64.
    pub fn locate_span(&self, disp: u64, (low, high): (i64, i64)) -> Result<u64, u64> {
        let offset = disp.checked_mul(u64::from(self.disp_unit)).ok_or(Self::FAR_OUTSIDE)?;
        let first = i128::from(offset) + i128::from(low);
        let is_inside = first >= 0 && i128::from(offset) + i128::from(high) <= i128::from(self.size);
        is_inside.then_some(offset).ok_or_else(|| offset.wrapping_add_signed(low))
    }
}

/// Head of one operation's result; its bytes follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResultRecord {
    /// The operation element, as the batch named it.
    pub handle: u32,
    /// Its generation.
    pub generation: u32,
    /// Bytes that follow.
    pub len: u32,
    /// Where in the operation's result they begin.
    pub offset: u64,
}

impl ResultRecord {
    /// Bytes of an encoded head.
    pub const BYTES: usize = 20;

    /// The head as bytes.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&self.handle.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.offset.to_le_bytes());
        bytes
    }

    /// Appends the head; `false`, with nothing written, when it and its bytes do not fit.
    #[must_use]
    pub fn encode(&self, out: &mut Writer<'_>) -> bool {
        out.room() >= Self::BYTES + self.len as usize && out.put(&self.to_bytes())
    }

    /// Takes a head and its bytes off the front.
    ///
    /// # Errors
    /// When bytes are missing.
    pub fn decode<'a>(reader: &mut Reader<'a>) -> Result<(Self, &'a [u8]), WireError> {
        let [h0, h1, h2, h3, g0, g1, g2, g3, l0, l1, l2, l3, offset @ ..] = reader.array::<20>()?;
        let record = Self {
            handle: u32::from_le_bytes([h0, h1, h2, h3]),
            generation: u32::from_le_bytes([g0, g1, g2, g3]),
            len: u32::from_le_bytes([l0, l1, l2, l3]),
            offset: u64::from_le_bytes(offset),
        };
        let bytes = reader.take(record.len as usize)?;
        Ok((record, bytes))
    }
}

/// Two accesses that conflict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict {
    /// What the later one does.
    pub kind: AccessKind,
    /// What the earlier one does.
    pub earlier: AccessKind,
    /// Whose the earlier one is.
    pub origin: Rank,
    /// First byte in the window that both access.
    pub first: u64,
    /// Bytes that both access.
    pub len: u32,
}

impl Conflict {
    /// The later access and the earlier one that it conflicts with.
    pub fn of(later: &Access, earlier: &Access) -> Self {
        let first = later.first.max(earlier.first);
        let end = (later.first.saturating_add(later.len)).min(earlier.first.saturating_add(earlier.len));
        let len = u32::try_from(end.saturating_sub(first)).unwrap_or(u32::MAX);
        Self { kind: later.kind, earlier: earlier.kind, origin: earlier.origin, first, len }
    }

    /// The error as the user sees it.
    pub fn report(self, call: Call, target: Rank) -> RmaError {
        let (access, earlier) = (self.kind.name(), self.earlier.name());
        let (offset_bytes, len_bytes) = (self.first, self.len.into());
        RmaError::Conflict { call, target, access, earlier, origin: self.origin, offset_bytes, len_bytes }
    }
}

/// Why the target did not execute an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorRecord {
    /// The access reaches outside the window.
    Range {
        /// First byte of the access.
        offset: u64,
        /// Bytes accessed.
        len: u64,
        /// Bytes of the window.
        size: u64,
    },
    /// The reduction is not defined for the type, or the packet made no sense.
    Refused,
    /// The lock to be released is not held.
    NotHeld,
    /// Not all of the bytes are in one region that is attached to the dynamic window.
    NotAttached {
        /// Address of the first byte.
        address: u64,
        /// Bytes accessed.
        len: u64,
    },
    /// An access epoch was completed to a window that was not exposed to the origin.
    NotExposed,
    /// The operation was executed, but conflicts with another access to the window.
    Conflict(Conflict),
    /// The word to be notified is not at a multiple of 8 bytes.
    UnalignedWord,
    /// The lock that was asked for will never be had: a rank that has died held it, or waited for it.
    LockLost,
}

impl ErrorRecord {
    /// Bytes of an encoded record.
    pub const BYTES: usize = 28;

    /// Appends the record; `false` when it does not fit.
    #[must_use]
    pub fn encode(&self, out: &mut Writer<'_>) -> bool {
        let (code, offset, len, size) = match *self {
            Self::Range { offset, len, size } => (0u32, offset, len, size),
            Self::Refused => (1, 0, 0, 0),
            Self::NotHeld => (2, 0, 0, 0),
            Self::NotAttached { address, len } => (3, address, len, 0),
            Self::NotExposed => (4, 0, 0, 0),
            Self::Conflict(Conflict { kind, earlier, origin, first, len }) => {
                let kinds = u32::from(kind.code()) << 8 | u32::from(earlier.code()) << 16;
                (5 | kinds, first, len.into(), origin.0.into())
            }
            Self::UnalignedWord => (6, 0, 0, 0),
            Self::LockLost => (7, 0, 0, 0),
        };
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&code.to_le_bytes());
        bytes[4..12].copy_from_slice(&offset.to_le_bytes());
        bytes[12..20].copy_from_slice(&len.to_le_bytes());
        bytes[20..28].copy_from_slice(&size.to_le_bytes());
        out.put(&bytes)
    }

    /// Takes a record off the front.
    ///
    /// # Errors
    /// When bytes are missing or the code is unknown.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let code = reader.u32()?;
        let (offset, len, size) = (reader.u64()?, reader.u64()?, reader.u64()?);
        match code {
            0 => Ok(Self::Range { offset, len, size }),
            1 => Ok(Self::Refused),
            2 => Ok(Self::NotHeld),
            3 => Ok(Self::NotAttached { address: offset, len }),
            4 => Ok(Self::NotExposed),
            6 => Ok(Self::UnalignedWord),
            7 => Ok(Self::LockLost),
            code if code & 0xff == 5 => {
                let wrong = WireError::Kind(code as u8);
                let kind = |shift: u32| AccessKind::from_code((code >> shift) as u8).ok_or(wrong);
                let number = |value: u64| u32::try_from(value).map_err(|_| wrong);
                let (kind, earlier) = (kind(8)?, kind(16)?);
                let (origin, len) = (Rank(number(size)?), number(len)?);
                Ok(Self::Conflict(Conflict { kind, earlier, origin, first: offset, len }))
            }
            _ => Err(WireError::Kind(code as u8)),
        }
    }
}
