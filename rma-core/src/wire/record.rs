//! The record of one operation inside a batch.

use super::{Reader, Runs, WireError, Writer};
use crate::dtype::Dtype;
use crate::op::ReduceOp;

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum OpKind {
    /// Write bytes to the target.
    Put = 0,
    /// Read bytes from the target.
    Get = 1,
    /// Combine elements into the target.
    Accumulate = 2,
    /// The same, and return the old elements. fetch_and_op is this with one element.
    GetAccumulate = 3,
    /// Replace one element if it equals another, and return the old one.
    CompareAndSwap = 4,
}

impl OpKind {
    const ALL: [Self; 5] =
        [Self::Put, Self::Get, Self::Accumulate, Self::GetAccumulate, Self::CompareAndSwap];

    /// Whether the target sends something back.
    #[inline]
    pub const fn has_result(self) -> bool {
        matches!(self, Self::Get | Self::GetAccumulate | Self::CompareAndSwap)
    }
}

/// Bytes of the largest record, without payload.
pub const RECORD_BYTES_MAX: usize = 32;

/// The record continues an operation: its bytes begin `offset` bytes after the displacement.
const CHUNK: u8 = 1;

/// A run table follows the record and says where its bytes are in the window; `offset` then is only where
/// they are among the operation's data.
const RUNS: u8 = 2;

/// The record is a notification: what was written before it must be seen by whoever sees it.
const NOTIFIES: u8 = 4;

/// It is executed only if the record before it in the packet was.
const AFTER: u8 = 8;

/// What a record has to do with the writes before it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Notifies {
    /// Nothing.
    #[default]
    No,
    /// Whoever sees its effect sees theirs.
    Yes,
    /// The same, and it is executed only if the record before it in the packet was.
    After,
}

impl Notifies {
    const fn bits(self) -> u8 {
        match self {
            Self::No => 0,
            Self::Yes => NOTIFIES,
            Self::After => NOTIFIES | AFTER,
        }
    }

    fn of_flags(flags: u8) -> Result<Self, WireError> {
        match flags & (NOTIFIES | AFTER) {
            0 => Ok(Self::No),
            NOTIFIES => Ok(Self::Yes),
            AFTER => Err(WireError::Flags(flags.into())),
            _ => Ok(Self::After),
        }
    }
}

/// One operation, or one piece of a large one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// What to do.
    pub kind: OpKind,
    /// Element type; [`Dtype::U8`] for put and get.
    pub dtype: Dtype,
    /// Reduction; [`ReduceOp::Replace`] where there is none.
    pub op: ReduceOp,
    /// Bytes at the target.
    pub len: u32,
    /// Displacement in the target's units.
    pub disp: u64,
    /// Bytes from the displacement to the first byte of this piece; 0 for a whole operation.
    pub offset: u64,
    /// Names the operation element in the result; only for operations that have one.
    pub handle: u32,
    /// Generation of the operation element.
    pub generation: u32,
    /// Whether it is a notification.
    pub notifies: Notifies,
}

impl Record {
    /// Bytes of the record without payload.
    #[inline]
    pub fn header_bytes(&self) -> usize {
        16 + if self.kind.has_result() { 8 } else { 0 } + if self.offset > 0 { 8 } else { 0 }
    }

    /// Bytes of payload that follow the record in the packet.
    #[inline]
    pub fn payload_bytes(&self) -> usize {
        match self.kind {
            OpKind::Put | OpKind::Accumulate => self.len as usize,
            OpKind::GetAccumulate if self.op == ReduceOp::NoOp => 0,
            OpKind::GetAccumulate => self.len as usize,
            OpKind::Get => 0,
            OpKind::CompareAndSwap => 2 * self.dtype.size(),
        }
    }

    /// Appends the record; `false`, with nothing written, when it and its payload do not fit.
    #[must_use]
    #[inline]
    pub fn encode(&self, out: &mut Writer<'_>) -> bool {
        if self.offset > 0 {
            return self.encode_with(&[], out);
        }
        let header = self.header_bytes();
        if out.room() < header + self.payload_bytes() {
            return false;
        }
        let Some(place) = out.reserve(header) else { return false };
        let codes = [self.kind as u8, self.dtype as u8, self.op as u8, self.notifies.bits()];
        let first = u64::from(self.len) << 32 | u64::from(u32::from_le_bytes(codes));
        let name = u64::from(self.generation) << 32 | u64::from(self.handle);
        // What has no result has no name, and no room for one.
        for (word, place) in [first, self.disp, name].iter().zip(place.chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        true
    }

    /// The same with a run table, if that is not empty: [`RunTable::bytes`](super::RunTable::bytes).
    #[must_use]
    pub fn encode_with(&self, table: &[u8], out: &mut Writer<'_>) -> bool {
        if out.room() < self.header_bytes() + table.len() + self.payload_bytes() {
            return false;
        }
        let mut bytes = [0; RECORD_BYTES_MAX];
        bytes[0] = self.kind as u8;
        bytes[1] = self.dtype as u8;
        bytes[2] = self.op as u8;
        let is_chunk = if self.offset > 0 { CHUNK } else { 0 };
        bytes[3] = self.notifies.bits() | is_chunk | if table.is_empty() { 0 } else { RUNS };
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.disp.to_le_bytes());
        let mut len = 16;
        if self.kind.has_result() {
            bytes[16..20].copy_from_slice(&self.handle.to_le_bytes());
            bytes[20..24].copy_from_slice(&self.generation.to_le_bytes());
            len = 24;
        }
        if self.offset > 0 {
            bytes[len..len + 8].copy_from_slice(&self.offset.to_le_bytes());
            len += 8;
        }
        out.put(&bytes[..len]) && out.put(table)
    }

    /// The record of an atomic of one element and its payload, if that is all that is left, and nothing more is said of it.
    /// What it is otherwise, or why it is none, [`Self::decode`] tells.
    #[inline]
    pub fn decode_element<'a>(reader: &Reader<'a>) -> Option<(Self, &'a [u8])> {
        let mut reader = *reader;
        let [kind, dtype, op, 0, l0, l1, l2, l3, disp @ ..] = reader.array::<16>().ok()? else { return None };
        let kind = *OpKind::ALL.get(kind as usize)?;
        let (dtype, op) = (Dtype::from_code(dtype)?, ReduceOp::from_code(op)?);
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        let is_atomic = !matches!(kind, OpKind::Put | OpKind::Get);
        if !is_atomic || len as usize != dtype.size() {
            return None;
        }
        let [h0, h1, h2, h3, generation @ ..] =
            if kind.has_result() { reader.array::<8>().ok()? } else { [0; 8] };
        let record = Self {
            kind,
            dtype,
            op,
            len,
            disp: u64::from_le_bytes(disp),
            offset: 0,
            handle: u32::from_le_bytes([h0, h1, h2, h3]),
            generation: u32::from_le_bytes(generation),
            notifies: Notifies::No,
        };
        let payload = reader.take(record.payload_bytes()).ok()?;
        (reader.remaining() == 0).then_some((record, payload))
    }

    /// Takes a record, its run table if it has one, and its payload off the front.
    ///
    /// # Errors
    /// When bytes are missing, a code is unknown, or the length is no multiple of the element.
    pub fn decode<'a>(reader: &mut Reader<'a>) -> Result<(Self, Option<Runs<'a>>, &'a [u8]), WireError> {
        // All that every record has, in one look at what is left.
        let [kind, dtype, op, flags, l0, l1, l2, l3, disp @ ..] = reader.array::<16>()?;
        if flags & !(CHUNK | RUNS | NOTIFIES | AFTER) != 0 {
            return Err(WireError::Flags(flags.into()));
        }
        let mut record = Self {
            kind: *OpKind::ALL.get(kind as usize).ok_or(WireError::OpKind(kind))?,
            dtype: Dtype::from_code(dtype).ok_or(WireError::Dtype(dtype))?,
            op: ReduceOp::from_code(op).ok_or(WireError::ReduceOp(op))?,
            len: u32::from_le_bytes([l0, l1, l2, l3]),
            disp: u64::from_le_bytes(disp),
            offset: 0,
            handle: 0,
            generation: 0,
            notifies: Notifies::of_flags(flags)?,
        };
        if record.kind.has_result() {
            record.handle = reader.u32()?;
            record.generation = reader.u32()?;
        }
        if flags & CHUNK != 0 {
            record.offset = reader.u64()?;
        }
        let element = record.dtype.size();
        let one_element = record.kind == OpKind::CompareAndSwap;
        if !record.dtype.fills(record.len as usize) || (one_element && record.len as usize != element) {
            return Err(WireError::Length(record.len));
        }
        let runs = if flags & RUNS != 0 { Some(Runs::take(reader)?) } else { None };
        if one_element && runs.is_some() {
            return Err(WireError::Flags(flags.into()));
        }
        let payload = reader.take(record.payload_bytes())?;
        Ok((record, runs, payload))
    }
}
