//! The run table of a record: which bytes of the target's window its data belong to, as runs of blocks at
//! equal distances, in the order of the data.
//!
//! A table begins with its length (two bytes, those not counted). A run is, in numbers of 7 bits a byte, low
//! ones first: twice the length of its blocks, plus 1 when there are several; the distance of its first byte
//! from the end of the run before (from the displacement, for the first), its sign in the lowest bit; and if
//! there are several blocks their number and their distance. So a vector of any length takes some ten bytes,
//! and an irregular block three or four.

use super::{Reader, WireError, Writer};
use crate::layout::Run;

/// Bytes of the largest run: four numbers of ten bytes.
pub const RUN_BYTES_MAX: usize = 40;

/// Bytes of the largest table that is sent, with its length.
pub const TABLE_BYTES_MAX: usize = 1024;

/// Bytes of a table's length.
pub const TABLE_HEADER_BYTES: usize = 2;

/// A table under construction; its length is written when it is taken.
#[derive(Debug)]
pub struct RunTable {
    bytes: [u8; TABLE_BYTES_MAX],
    len: usize,
    /// Where the last run ended.
    end: i64,
}

impl RunTable {
    /// A table of no runs.
    pub fn new() -> Self {
        Self { bytes: [0; TABLE_BYTES_MAX], len: TABLE_HEADER_BYTES, end: 0 }
    }

    /// Bytes so far, its length included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no runs.
    pub fn is_empty(&self) -> bool {
        self.len == TABLE_HEADER_BYTES
    }

    /// Adds a run if the table stays within `room` bytes; `false`, with nothing added, otherwise.
    #[must_use]
    pub fn push(&mut self, run: &Run, room: usize) -> bool {
        let mut bytes = [0; RUN_BYTES_MAX];
        let mut out = Writer::new(&mut bytes, 0);
        let several = run.count > 1;
        // Lengths are those of a piece, far from the highest bit.
        let written = put_number(&mut out, run.len << 1 | u64::from(several))
            && put_signed(&mut out, run.offset.wrapping_sub(self.end))
            && (!several || (put_number(&mut out, run.count) && put_signed(&mut out, run.stride)));
        let len = out.len();
        match self.bytes.get_mut(self.len..self.len + len) {
            Some(place) if written && self.len + len <= room => {
                place.copy_from_slice(&bytes[..len]);
                self.len += len;
                self.end = end_of(run);
                true
            }
            _ => false,
        }
    }

    /// The table's bytes.
    pub fn bytes(&mut self) -> &[u8] {
        let len = (self.len - TABLE_HEADER_BYTES) as u16;
        self.bytes[..TABLE_HEADER_BYTES].copy_from_slice(&len.to_le_bytes());
        &self.bytes[..self.len]
    }
}

impl Default for RunTable {
    fn default() -> Self {
        Self::new()
    }
}

/// The runs of a received table.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    reader: Reader<'a>,
    end: i64,
}

impl<'a> Runs<'a> {
    /// Takes a table off the front.
    ///
    /// # Errors
    /// When bytes are missing.
    pub fn take(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let len = reader.u16()?;
        let bytes = reader.take(len.into())?;
        Ok(Self { reader: Reader::new(bytes), end: 0 })
    }

    fn read(&mut self) -> Result<Run, WireError> {
        let head = number(&mut self.reader)?;
        let offset = self.end.checked_add(signed(&mut self.reader)?).ok_or(WireError::Runs)?;
        let several = head & 1 == 1;
        let count = if several { number(&mut self.reader)? } else { 1 };
        let stride = if several { signed(&mut self.reader)? } else { 0 };
        let run = Run { offset, len: head >> 1, count, stride };
        if run.len == 0 || run.count == 0 || run.size().is_none() || run.bounds().is_none() {
            return Err(WireError::Runs);
        }
        self.end = end_of(&run);
        Ok(run)
    }
}

impl Iterator for Runs<'_> {
    type Item = Result<Run, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.reader.remaining() > 0).then(|| self.read())
    }
}

/// Where a run's last block ends; wraps where a sender's layout reaches so far, which it does not.
fn end_of(run: &Run) -> i64 {
    run.block(run.count - 1).wrapping_add(run.len as i64)
}

fn put_number(out: &mut Writer<'_>, mut number: u64) -> bool {
    loop {
        let low = number as u8 & 0x7f;
        number >>= 7;
        let more = number > 0;
        if !out.put(&[low | if more { 0x80 } else { 0 }]) {
            return false;
        }
        if !more {
            return true;
        }
    }
}

fn put_signed(out: &mut Writer<'_>, number: i64) -> bool {
    put_number(out, (number << 1 ^ number >> 63) as u64)
}

fn number(reader: &mut Reader<'_>) -> Result<u64, WireError> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = reader.u8()?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return Err(WireError::Runs);
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(WireError::Runs)
}

fn signed(reader: &mut Reader<'_>) -> Result<i64, WireError> {
    let number = number(reader)?;
    Ok((number >> 1) as i64 ^ -((number & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;
    use std::vec::Vec;

    fn there_and_back(runs: &[Run]) -> Vec<u8> {
        let mut table = RunTable::new();
        for run in runs {
            assert!(table.push(run, TABLE_BYTES_MAX));
        }
        let bytes = table.bytes().to_vec();
        let mut reader = Reader::new(&bytes);
        let back: Result<Vec<_>, _> = Runs::take(&mut reader).unwrap().collect();
        assert_eq!(back.unwrap(), runs);
        assert_eq!(reader.remaining(), 0);
        bytes
    }

    #[test]
    fn tables_are_small_and_say_what_was_put_into_them() {
        let vector = Run { offset: 40, len: 8, count: 1_000_000, stride: 24 };
        assert_eq!(there_and_back(&[vector]), [6, 0, 17, 80, 0xc0, 0x84, 0x3d, 48]);
        let block = |offset, len| Run { offset, len, count: 1, stride: 0 };
        assert_eq!(there_and_back(&[block(0, 8), block(20, 8), block(-4, 8)]).len(), 2 + 6);
        there_and_back(&[block(i64::MIN / 4, 1 << 40), block(i64::MAX / 4, 3)]);
        there_and_back(&[Run { offset: 100, len: 5, count: 3, stride: -50 }, vector]);
        there_and_back(&[]);
    }

    #[test]
    fn a_table_that_is_full_takes_no_more() {
        let mut table = RunTable::new();
        let run = Run { offset: 1 << 40, len: 1 << 40, count: 1 << 40, stride: -1 << 40 };
        assert!(table.push(&run, 30));
        let len = table.len();
        assert!(!table.push(&run, 30));
        assert_eq!((table.len(), table.bytes().len()), (len, len));
        while table.push(&run, usize::MAX) {}
        assert!(table.len() <= TABLE_BYTES_MAX);
    }

    #[test]
    fn nonsense_is_refused() {
        let read = |body: &[u8]| {
            let mut bytes = Vec::from([body.len() as u8, 0]);
            bytes.extend(body);
            let mut runs = Runs::take(&mut Reader::new(&bytes)).unwrap();
            runs.find(Result::is_err).unwrap()
        };
        let endless = [0xff; 11];
        assert_eq!(read(&[0, 0]), Err(WireError::Runs), "no length");
        assert_eq!(read(&[17, 0, 0, 0]), Err(WireError::Runs), "no blocks");
        assert_eq!(read(&[16]), Err(WireError::Truncated));
        assert_eq!(read(&[0x80]), Err(WireError::Truncated));
        assert_eq!(read(&endless), Err(WireError::Runs));
        let mut far = Vec::from([3, 0]);
        far.extend([0xff; 9]);
        far.push(1);
        far.extend([0xff; 9]);
        far.push(1);
        assert_eq!(read(&far), Err(WireError::Runs), "further than can be counted");
        assert_eq!(Runs::take(&mut Reader::new(&[9, 0, 1])).err(), Some(WireError::Truncated));
    }
}
