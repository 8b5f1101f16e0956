//! Operations whose data lie in several blocks of the target's window.

use core::ops::Range;

use super::execute::{result_of, Watch};
use crate::layout::Run;
use crate::mem::{Regions, WindowMemory};
use crate::wire::{Conflict, ErrorRecord, Metadata, OpKind, Record, Runs, Writer};

/// The memory that an operation may touch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) memory: &'a WindowMemory,
    pub(super) regions: Option<&'a Regions>,
    pub(super) metadata: &'a Metadata,
}

impl<'a> Place<'a> {
    /// The memory of `len` bytes at `address`, and where in it they begin.
    fn find(&self, address: u64, len: u64) -> Result<(&'a WindowMemory, u64), ErrorRecord> {
        match self.regions {
            None => {
                let outside = |_| self.metadata.outside(address, len);
                self.memory.check(address, len).map(|()| (self.memory, address)).map_err(outside)
            }
            Some(regions) => regions.find(address, len).ok_or(ErrorRecord::NotAttached { address, len }),
        }
    }
}

/// Compares each run of an operation that was executed; the first conflict.
pub(super) fn note_runs(
    place: &Place<'_>,
    record: &Record,
    runs: Runs<'_>,
    watch: &mut Watch<'_>,
) -> Option<Conflict> {
    let base = check(place, record, runs).ok()?;
    let mut found = None;
    let walked = each_block(base, runs, |address, range| {
        let conflict = watch.note_at(record, address, range.len() as u64);
        found = found.or(conflict);
        Ok(())
    });
    walked.ok().and(found)
}

/// Executes one record with a run table. All of it is checked before anything is touched.
pub(super) fn execute_runs(
    place: &Place<'_>,
    record: &Record,
    runs: Runs<'_>,
    payload: &[u8],
    out: &mut Writer<'_>,
) -> Result<(), ErrorRecord> {
    // What follows is then bounded by the bytes of a packet, whatever the table says.
    if record.kind.has_result() && record.len as usize > out.room() {
        return Err(ErrorRecord::Refused);
    }
    let base = check(place, record, runs)?;
    let result: &mut [u8] = if record.kind.has_result() { result_of(record, out)? } else { &mut [] };
    each_block(base, runs, |address, range| {
        let (memory, offset) = place.find(address, range.len() as u64)?;
        let operand = payload.get(range.clone()).unwrap_or_default();
        let result = result.get_mut(range).unwrap_or_default();
        let Record { kind, dtype, op, .. } = *record;
        let done = match kind {
            OpKind::Put => memory.write(offset, operand).map_err(Into::into),
            OpKind::Get => memory.read(offset, result).map_err(Into::into),
            OpKind::Accumulate => memory.accumulate(offset, dtype, op, operand),
            OpKind::GetAccumulate => memory.get_accumulate(offset, dtype, op, operand, result),
            OpKind::CompareAndSwap => return Err(ErrorRecord::Refused),
        };
        done.map_err(|_| ErrorRecord::Refused)
    })
}

/// The byte at the displacement, if every block is inside of the window and the blocks are the record's data.
fn check(place: &Place<'_>, record: &Record, runs: Runs<'_>) -> Result<u64, ErrorRecord> {
    let mut total = 0_u64;
    let mut base = 0;
    for run in runs {
        let run = run.map_err(|_| ErrorRecord::Refused)?;
        let bounds = run.bounds().ok_or(ErrorRecord::Refused)?;
        total = run.size().and_then(|size| total.checked_add(size)).ok_or(ErrorRecord::Refused)?;
        if total > u64::from(record.len) || !record.dtype.fills(run.len as usize) {
            return Err(ErrorRecord::Refused);
        }
        let located = place.metadata.locate_span(record.disp, bounds);
        base = located.map_err(|offset| place.metadata.outside(offset, bounds.0.abs_diff(bounds.1)))?;
        if place.regions.is_some() {
            each_block_of(base, &run, 0, &mut |address, range| {
                place.find(address, range.len() as u64).map(|_| ())
            })?;
        }
    }
    if total == u64::from(record.len) {
        Ok(base)
    } else {
        Err(ErrorRecord::Refused)
    }
}

/// Calls `visit` with the address of every block and the positions that it has in the record's data.
fn each_block(
    base: u64,
    runs: Runs<'_>,
    mut visit: impl FnMut(u64, Range<usize>) -> Result<(), ErrorRecord>,
) -> Result<(), ErrorRecord> {
    let mut start = 0;
    for run in runs {
        let run = run.map_err(|_| ErrorRecord::Refused)?;
        start = each_block_of(base, &run, start, &mut visit)?;
    }
    Ok(())
}

/// The same for one run that was checked; where the next one's data begin.
fn each_block_of(
    base: u64,
    run: &Run,
    mut start: usize,
    visit: &mut impl FnMut(u64, Range<usize>) -> Result<(), ErrorRecord>,
) -> Result<usize, ErrorRecord> {
    for index in 0..run.count {
        let end = start + run.len as usize;
        visit(base.wrapping_add_signed(run.block(index)), start..end)?;
        start = end;
    }
    Ok(start)
}
