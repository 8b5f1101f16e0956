//! Executes a batch's operations on the target's window and writes their results into the reply.

use core::sync::atomic::{fence, Ordering};

use crate::check::{Access, AccessKind, Checker, Group, Rules};
use crate::ids::Rank;
use crate::mem::{AccumulateError, Regions, WindowMemory};
use crate::wire::{Conflict, ErrorRecord, Metadata, Notifies, OpKind, Reader, Record, ResultRecord, Writer};

use super::runs::{execute_runs, note_runs, Place};

/// What became of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Executed {
    /// Results written to the reply.
    pub results: u16,
    /// Bytes of payloads and results that were copied.
    pub bytes: u64,
    /// The first operation that could not be executed; the others were.
    pub error: Option<ErrorRecord>,
}

/// Executes `count` operations from `reader` on `memory`, in order. Bytes that are no operation end
/// it with [`ErrorRecord::Refused`]; nothing outside the window is touched whatever the bytes are. With
/// `regions` the window is dynamic, and they are its memory.
pub fn execute(
    memory: &WindowMemory,
    regions: Option<&Regions>,
    metadata: &Metadata,
    mut watch: Option<&mut Watch<'_>>,
    count: u16,
    reader: &mut Reader<'_>,
    out: &mut Writer<'_>,
) -> Executed {
    let mut executed = Executed::default();
    let mut is_done = true;
    for _ in 0..count {
        let Ok((record, runs, payload)) = Record::decode(reader) else {
            executed.error.get_or_insert(ErrorRecord::Refused);
            break;
        };
        let before = out.len();
        let is_due = record.notifies != Notifies::After || is_done;
        if record.notifies != Notifies::No {
            // With the acquire of who reads the notification.
            fence(Ordering::Release);
        }
        is_done = is_due;
        let place = Place { memory, regions, metadata };
        let done = match runs {
            _ if !is_due => Ok(()),
            None => execute_one(memory, regions, metadata, &record, payload, out),
            Some(runs) => execute_runs(&place, &record, runs, payload, out),
        };
        let note = |watch: &mut &mut Watch<'_>| match runs {
            None => watch.note(&record, metadata),
            Some(runs) => note_runs(&place, &record, runs, watch),
        };
        if done.is_ok() && is_due {
            executed.bytes +=
                payload.len() as u64 + if record.kind.has_result() { record.len.into() } else { 0 };
        }
        if let Err(error) = done {
            executed.error.get_or_insert(error);
            is_done = false;
        } else if let Some(conflict) = watch.as_mut().filter(|_| is_due).and_then(note) {
            executed.error.get_or_insert(ErrorRecord::Conflict(conflict));
        }
        let is_notification = record.notifies != Notifies::No && is_due && is_done;
        if let Some(watch) = watch.as_mut().filter(|_| is_notification) {
            watch.checker.on_notified(watch.origin);
        }
        if record.kind.has_result() {
            // A refused operation is answered too, with nothing: the origin must not wait for ever.
            let answered = out.len() > before || result_head(&record, 0).encode(out);
            executed.results += u16::from(answered);
        }
    }
    executed
}

/// Who looks for conflicts among the operations, and what it must know of them.
#[derive(Debug)]
pub struct Watch<'a> {
    /// The window's accesses so far.
    pub checker: &'a mut Checker,
    /// What conflicts.
    pub rules: Rules,
    /// The epoch of the operations.
    pub group: Group,
    /// Whose the operations are.
    pub origin: Rank,
    /// The operations are ordered in ways that only the origin sees: they do not stay in the table.
    pub is_ordered: bool,
}

impl Watch<'_> {
    fn note(&mut self, record: &Record, metadata: &Metadata) -> Option<Conflict> {
        let first = metadata.locate(record.disp, 0).ok()?.checked_add(record.offset)?;
        self.note_at(record, first, record.len.into())
    }

    /// Compares `len` bytes at `first` that the record's operation has accessed.
    pub(super) fn note_at(&mut self, record: &Record, first: u64, len: u64) -> Option<Conflict> {
        let access = Access {
            origin: self.origin,
            kind: AccessKind::Operation(record.kind),
            dtype: record.dtype,
            op: record.op,
            first,
            len,
        };
        // But in a fence epoch, what was answered is complete.
        let is_complete = !self.group.is_fence() && record.kind.has_result();
        let earlier = self.checker.note(self.group, access, !is_complete && !self.is_ordered, &self.rules)?;
        Some(Conflict::of(&access, &earlier))
    }
}

fn execute_one(
    memory: &WindowMemory,
    regions: Option<&Regions>,
    metadata: &Metadata,
    record: &Record,
    payload: &[u8],
    out: &mut Writer<'_>,
) -> Result<(), ErrorRecord> {
    let len = u64::from(record.len);
    let offset = metadata
        .locate(record.disp, 0)
        .and_then(|first| first.checked_add(record.offset).ok_or(first))
        .map_err(|offset| metadata.outside(offset, len))?;
    let (memory, offset) = match regions {
        None => (memory, offset),
        Some(regions) => {
            regions.find(offset, len).ok_or(ErrorRecord::NotAttached { address: offset, len })?
        }
    };
    memory.check(offset, len).map_err(|_| metadata.outside(offset, len))?;
    if record.kind == OpKind::Accumulate && record.notifies != Notifies::No && !memory.is_word_at(offset) {
        return Err(ErrorRecord::UnalignedWord);
    }
    let result = if record.kind.has_result() { result_of(record, out)? } else { &mut [] };
    access(memory, offset, record, payload, result)
}

/// Executes an atomic of one element, [`Record::decode_element`], in a window that is not dynamic; `result` is as long as its
/// result, if it has one.
///
/// # Errors
/// When it was not executed. Why, [`execute`] tells.
#[inline(always)]
pub fn execute_element(
    memory: &WindowMemory,
    metadata: &Metadata,
    record: &Record,
    payload: &[u8],
    result: &mut [u8],
) -> Result<(), ErrorRecord> {
    let offset = metadata.locate(record.disp, record.len.into()).map_err(|_| ErrorRecord::Refused)?;
    access(memory, offset, record, payload, result)
}

/// The access itself, at `offset`.
#[inline(always)]
fn access(
    memory: &WindowMemory,
    offset: u64,
    record: &Record,
    payload: &[u8],
    result: &mut [u8],
) -> Result<(), ErrorRecord> {
    let refuse = |_: AccumulateError| ErrorRecord::Refused;
    match record.kind {
        OpKind::Put => memory.write(offset, payload).map_err(|_| ErrorRecord::Refused),
        OpKind::Get => memory.read(offset, result).map_err(|_| ErrorRecord::Refused),
        OpKind::Accumulate => memory.accumulate(offset, record.dtype, record.op, payload).map_err(refuse),
        OpKind::GetAccumulate => {
            memory.get_accumulate(offset, record.dtype, record.op, payload, result).map_err(refuse)
        }
        OpKind::CompareAndSwap => {
            let (compare, operand) = payload.split_at(payload.len() / 2);
            memory.compare_and_swap(offset, record.dtype, compare, operand, result).map_err(refuse)
        }
    }
}

/// Room for the record's result in the reply, behind its head.
pub(super) fn result_of<'a>(record: &Record, out: &'a mut Writer<'_>) -> Result<&'a mut [u8], ErrorRecord> {
    if !result_head(record, record.len).encode(out) {
        return Err(ErrorRecord::Refused);
    }
    out.reserve(record.len as usize).ok_or(ErrorRecord::Refused)
}

fn result_head(record: &Record, len: u32) -> ResultRecord {
    ResultRecord { handle: record.handle, generation: record.generation, len, offset: record.offset }
}
