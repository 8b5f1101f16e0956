//! Run tables of operations whose data lie in several blocks of the target's window.

use super::issue_message::REPLY_OVERHEAD;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::layout::{Layout, Run};
use crate::provider::Endpoint;
use crate::table::OperationElement;
use crate::wire::{Header, OpKind, ResultRecord, RunTable, RECORD_BYTES_MAX, TABLE_BYTES_MAX};

/// What one packet and its answer can hold of an operation.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Bytes of table and payload together.
    request: u64,
    /// Bytes of the result.
    reply: u64,
}

/// Adds all runs of `layout` from position `at` to `end`; `false` when they do not fit a table.
pub(super) fn fill_table(table: &mut RunTable, layout: &Layout, mut at: u64, end: u64) -> bool {
    while at < end {
        let run = layout.run_at(at, end);
        if !table.push(&run, TABLE_BYTES_MAX) {
            return false;
        }
        at += run.len * run.count;
    }
    true
}

/// How many bytes of data from the operation's position on fit, and the table's bytes for them. Whole blocks,
/// or whole elements of a block that does not fit.
fn fill(element: &OperationElement, layout: &Layout, room: Room) -> (u64, usize) {
    let has_payload = element.payload_len() > 0;
    let has_result = element.kind.has_result();
    let granule = element.dtype.size() as u64;
    let mut table = RunTable::new();
    let (start, end) = (element.posted, element.len);
    let mut at = start;
    while at < end {
        let mut run = layout.run_at(at, end);
        let done = at - start;
        let table_room = room.request.saturating_sub(if has_payload { done } else { 0 });
        let request = table_room.saturating_sub((table.len() + RUN_RESERVE) as u64);
        let mut left = if has_payload { request } else { u64::MAX };
        if has_result {
            left = left.min(room.reply.saturating_sub(done));
        }
        let is_cut = left < run.len.saturating_mul(run.count);
        if is_cut {
            run = cut(&run, left, granule);
        }
        if run.len == 0 || !table.push(&run, table_room as usize) {
            break;
        }
        at += run.len * run.count;
        if is_cut {
            break;
        }
    }
    (at - start, table.len())
}

/// As many whole blocks as `left` bytes hold, or else as many whole elements of the first.
fn cut(run: &Run, left: u64, granule: u64) -> Run {
    match left / run.len {
        0 => Run { len: left / granule * granule, count: 1, ..*run },
        count => Run { count, ..*run },
    }
}

/// What a run takes at most in the table.
const RUN_RESERVE: usize = crate::wire::RUN_BYTES_MAX;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// How many bytes of an operation fit a packet of their own, with their table.
    pub(super) fn piece_with_table(&self, op: u32, request: u64, reply: u64) -> u64 {
        let element = &self.operations[op];
        match &element.layouts.target {
            Some(layout) => fill(element, layout, Room { request, reply }).0,
            None => 0,
        }
    }

    /// Decides how a new operation with layouts travels, and what its table takes of a packet.
    pub(crate) fn plan_layouts(&mut self, op: u32) {
        let request = (self.stage.len() - Header::BYTES - RECORD_BYTES_MAX) as u64;
        let reply = (self.limits.send_bytes_max - REPLY_OVERHEAD - ResultRecord::BYTES) as u64;
        let element = &self.operations[op];
        let blocks = element.layouts.blocks_of(element.len);
        let is_transfer = matches!(element.kind, OpKind::Put | OpKind::Get);
        let packed = is_transfer && element.len / blocks.max(1) < self.config.native_block_bytes_min as u64;
        let table_bytes = match &element.layouts.target {
            None => 0,
            Some(layout) => match fill(element, layout, Room { request, reply }) {
                (len, table_bytes) if len == element.len => table_bytes,
                // More than any packet: it travels in pieces.
                _ => self.stage.len(),
            },
        };
        let element = &mut self.operations[op];
        (element.packed, element.table_bytes) = (packed, table_bytes as u32);
    }
}
