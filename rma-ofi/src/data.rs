//! Puts that carry data, and where the data that arrive are lent from.
//!
//! libfabric says them with a completion at the target that takes no receive buffer. So a target has *cells*, as many as
//! it has buffers for requests; who keeps more data than that gets more cells, which takes memory, and the order of what
//! comes behind is kept.

use core::ptr::NonNull;

use ofi_sys as fi;
use ofi_sys::calls;
use rma_core::ids::{PeerAddr, Tag};
use rma_core::provider::{Completion, CompletionBatch, Post, PostError, ReceivedPacket, RemoteAddr};

use crate::endpoint::OfiEndpoint;
use crate::error::fabric_code;
use crate::lane::CLASSES;

/// Places for data, at addresses that do not change.
#[derive(Debug)]
pub(crate) struct Cells {
    rows: Vec<NonNull<u64>>,
    /// Cells of a row.
    row: usize,
    free: Vec<u32>,
}

// SAFETY: the rows are owned, and used by whoever has the endpoint.
unsafe impl Send for Cells {}

impl Cells {
    /// So many.
    pub(crate) fn new(row: usize) -> Self {
        let mut cells = Self { rows: Vec::new(), row: row.max(1), free: Vec::new() };
        cells.add_row();
        cells
    }

    /// None.
    pub(crate) fn none() -> Self {
        Self { rows: Vec::new(), row: 1, free: Vec::new() }
    }

    #[cold]
    fn add_row(&mut self) {
        let first = (self.rows.len() * self.row) as u32;
        let row = Box::leak(vec![0_u64; self.row].into_boxed_slice());
        self.rows.push(NonNull::from(row).cast());
        self.free.reserve(self.rows.len() * self.row);
        self.free.extend((first..first + self.row as u32).rev());
    }

    fn cell(&self, index: u32) -> Option<NonNull<u64>> {
        let row = *self.rows.get(index as usize / self.row)?;
        // SAFETY: within the row.
        Some(unsafe { row.add(index as usize % self.row) })
    }

    /// Keeps the data; where, and in which cell.
    fn keep(&mut self, data: u64) -> Option<(NonNull<u8>, u32)> {
        if self.free.is_empty() {
            self.add_row();
        }
        let index = self.free.pop()?;
        let cell = self.cell(index)?;
        // SAFETY: a cell that is free is nobody's.
        unsafe { cell.write(data.to_le()) };
        Some((cell.cast(), index))
    }

    /// Takes a cell back.
    fn give(&mut self, index: u32) {
        self.free.push(index);
    }
}

impl Drop for Cells {
    fn drop(&mut self) {
        for row in self.rows.drain(..) {
            let row = NonNull::slice_from_raw_parts(row, self.row);
            // SAFETY: came from a leaked box of so many, and is freed once.
            drop(unsafe { Box::from_raw(row.as_ptr()) });
        }
    }
}

impl OfiEndpoint {
    /// See [`rma_core::provider::Endpoint::put_with_data`].
    ///
    /// # Safety
    /// The source is readable until the tag comes back.
    pub(crate) unsafe fn post_with_data(
        &mut self,
        to: PeerAddr,
        (src, len): (*const u8, usize),
        at: RemoteAddr,
        tag: Tag,
        data: u64,
    ) -> Post {
        if self.data_bytes == 0 || len == 0 {
            return Err(PostError::Failed(fabric_code(fi::FI_EOPNOTSUPP)));
        }
        let ticket = self.ticket(to, len)?;
        let local = fi::iovec { iov_base: src.cast_mut().cast(), iov_len: len };
        let remote = fi::fi_rma_iov { addr: at.addr, len, key: ticket.key(at) };
        let message = fi::fi_msg_rma {
            msg_iov: &local,
            desc: core::ptr::null_mut(),
            iov_count: 1,
            addr: to.0,
            rma_iov: &remote,
            rma_iov_count: 1,
            context: ticket.context,
            data,
        };
        // SAFETY: the endpoint is open; the message is read during the call; the source is the caller's promise.
        let result = unsafe { calls::writemsg(self.ep, &message, self.put_flags | fi::FI_REMOTE_CQ_DATA) };
        self.posted(&ticket, to, tag, result)
    }

    /// Data have come. Nobody asked for them where none are carried.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_data(&mut self, data: u64, out: &mut CompletionBatch) {
        if self.data_bytes == 0 {
            return;
        }
        let Some((bytes, index)) = self.cells.keep(data) else { return };
        let buffer = self.first_cell() + index;
        let packet = ReceivedPacket { data: bytes, len: self.data_bytes, buffer };
        self.say(out, Completion::Packet(packet));
    }

    /// Takes back what was lent of data. `false`: the packet is in a buffer.
    #[inline]
    pub(crate) fn release_data(&mut self, packet: &ReceivedPacket) -> bool {
        let cell = packet.buffer.checked_sub(self.first_cell());
        cell.inspect(|&index| self.cells.give(index)).is_some()
    }

    /// Buffers have the numbers below.
    #[inline]
    fn first_cell(&self) -> u32 {
        (CLASSES * self.limits.receive_buffers) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stay_where_they_are_and_there_are_always_more() {
        let mut cells = Cells::new(2);
        let kept: Vec<_> = (0..7).map(|data| cells.keep(0x0102 + data).unwrap()).collect();
        for (data, (bytes, _)) in kept.iter().enumerate() {
            // SAFETY: lent, and not given back.
            let read = unsafe { bytes.cast::<[u8; 8]>().read() };
            assert_eq!(read, (0x0102 + data as u64).to_le_bytes());
        }
        assert_eq!((cells.rows.len(), cells.free.len()), (4, 1));
        kept.iter().for_each(|(_, index)| cells.give(*index));
        assert_eq!(cells.free.len(), 8);
        assert!(cells.keep(1).is_some() && cells.rows.len() == 4);
    }
}
