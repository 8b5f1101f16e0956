//! Operation elements: all that is known of one posted operation until it is complete.
#![allow(unsafe_code)] // reads the user's buffers through raw pointers

use core::ptr;

use crate::dtype::Dtype;
use crate::layout::{each_block, Layouts};
use crate::op::ReduceOp;
use crate::pool::{Arena, NONE};
use crate::wire::OpKind;

use super::arena::{Place, INLINE_BYTES};

/// Bytes of a notification's payload, and of its record with payload in a packet.
pub(crate) const NOTE_PAYLOAD_BYTES: usize = 8;
pub(crate) const NOTE_BYTES: usize = 16 + NOTE_PAYLOAD_BYTES;

/// What a put does, when its data are there, to a word of the target's window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notification {
    /// Where the word is, in the target's displacement units: 8 bytes, at an address that is a multiple of 8.
    pub disp: u64,
    /// What happens to it.
    pub change: Change,
}

/// The change of a notified word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Something is added: a counter.
    Add(u64),
    /// It becomes this: a flag, or a sequence number.
    Set(u64),
}

impl Change {
    /// The reduction and its operand.
    pub(crate) const fn operand(self) -> (ReduceOp, u64) {
        match self {
            Self::Add(value) => (ReduceOp::Sum, value),
            Self::Set(value) => (ReduceOp::Replace, value),
        }
    }
}

/// PENDING and ISSUED are the design's; the others bracket them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OperationState {
    /// In the pool.
    Free,
    /// Posted by the user, not (wholly) handed to the fabric.
    Pending,
    /// Handed to the fabric, not complete.
    Issued,
    /// Complete, to be cleaned up.
    Complete,
}

/// One operation.
///
/// Implements: seed: OP_ELEM.
#[derive(Debug)]
pub(crate) struct OperationElement {
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// Counts the uses of the element, so that a late completion of an earlier use is recognized.
    pub(crate) generation: u32,
    /// The generation of the last one that failed; 0: none did. Stays when the element serves others.
    failed_in: u32,
    /// The target element whose list holds it.
    pub(crate) target: u32,
    /// Which of its target's operations it is, and in which section of their order.
    pub(crate) number: u32,
    pub(crate) section: u32,
    pub(crate) state: OperationState,
    pub(crate) kind: OpKind,
    pub(crate) dtype: Dtype,
    pub(crate) op: ReduceOp,
    /// Sent together with a lock request: kept until the target says whether it was executed.
    pub(crate) with_lock: bool,
    /// Executed by the fabric, not by a packet.
    pub(crate) native: bool,
    /// It did not happen, or not wholly. Stays when the element is freed, for who has a request of it.
    pub(crate) failed: bool,
    /// Travels as a packet though the fabric could do it natively: its blocks are small, or it goes together
    /// with a notification.
    pub(crate) packed: bool,
    /// A put or get to a dynamic window that goes natively as soon as the region is known.
    pub(crate) regional: bool,
    /// There is a request of it.
    named: bool,
    /// Its target element counts the notification that has to follow it.
    pub(crate) counts_note: bool,
    /// It is a notification: what it was behind is done.
    pub(crate) is_note: bool,
    /// It goes the short way when it is alone: found when it was posted, alone.
    pub(crate) is_short: bool,
    /// Its notification waits for `note_flush`.
    awaits_flush: bool,
    inline_len: u8,
    /// The flush of the provider that the notification has to wait for, when it was posted.
    note_flush: u32,
    /// Most bytes of the run table, when all of the operation is in one packet.
    pub(crate) table_bytes: u32,
    /// Pieces (packets or native operations) handed out and not answered.
    pub(crate) outstanding: u32,
    /// Bytes at the target.
    pub(crate) len: u64,
    /// Bytes handed out so far.
    pub(crate) posted: u64,
    pub(crate) disp: u64,
    origin: *const u8,
    pub(crate) result: *mut u8,
    /// Where the data are in the buffers and in the window, if not in a row.
    pub(crate) layouts: Layouts,
    /// What has to follow a put.
    pub(crate) notify: Option<Notification>,
    inline: Place,
}

/// The payload of most operations that are messages: copied without a call.
const WORD: usize = size_of::<u64>();

// SAFETY: the pointers are the user's buffers, which stay valid and unshared until the operation is
// complete, by the contract of the engine's unsafe operation calls; the element may move between
// threads meanwhile.
unsafe impl Send for OperationElement {}

/// Bits of a generation.
const GENERATIONS: u32 = u32::MAX >> 4;

impl OperationElement {
    /// A free element that keeps small payloads in `inline`.
    pub(super) fn new(inline: Place) -> Self {
        Self {
            prev: NONE,
            next: NONE,
            generation: 0,
            failed_in: 0,
            target: NONE,
            number: 0,
            section: 0,
            state: OperationState::Free,
            kind: OpKind::Put,
            dtype: Dtype::U8,
            op: ReduceOp::Replace,
            with_lock: false,
            native: false,
            failed: false,
            packed: false,
            regional: false,
            named: false,
            counts_note: false,
            is_note: false,
            is_short: false,
            awaits_flush: false,
            inline_len: 0,
            note_flush: 0,
            notify: None,
            table_bytes: 0,
            outstanding: 0,
            len: 0,
            posted: 0,
            disp: 0,
            origin: ptr::null(),
            result: ptr::null_mut(),
            layouts: Layouts::NONE,
            inline,
        }
    }

    /// Takes over a new operation.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn begin(
        &mut self,
        kind: OpKind,
        dtype: Dtype,
        op: ReduceOp,
        disp: u64,
        len: u64,
        origin: *const u8,
        result: *mut u8,
    ) {
        self.generation = self.generation.wrapping_add(1) & GENERATIONS;
        self.state = OperationState::Pending;
        (self.kind, self.dtype, self.op, self.disp, self.len) = (kind, dtype, op, disp, len);
        (self.origin, self.result) = (origin, result);
        (self.with_lock, self.native, self.failed, self.inline_len) = (false, false, false, 0);
        (self.outstanding, self.posted) = (0, 0);
        (self.packed, self.regional, self.is_short, self.table_bytes) = (false, false, false, 0);
        self.layouts = Layouts::NONE;
        (self.named, self.counts_note, self.is_note) = (false, false, false);
        (self.notify, self.awaits_flush) = (None, false);
    }

    /// It did not happen, or not wholly. Whether there is a request to be told of it.
    pub(crate) fn fail(&mut self) -> bool {
        let is_news = !core::mem::replace(&mut self.failed, true);
        self.failed_in = self.generation;
        is_news && self.named
    }

    /// There is a request of it. Whether it has failed already.
    pub(crate) fn name(&mut self) -> bool {
        self.named = true;
        self.failed
    }

    /// Whether the operation of an earlier generation may have failed: that or a later one did.
    pub(crate) fn may_have_failed(&self, generation: u32) -> bool {
        let later = self.failed_in.wrapping_sub(generation) & GENERATIONS;
        self.failed_in != 0 && later <= GENERATIONS / 2
    }

    /// The put is done; what is left of the element is its notification.
    pub(crate) fn become_note(&mut self, notification: Notification) {
        let (op, value) = notification.change.operand();
        (self.kind, self.dtype, self.op) = (OpKind::Accumulate, Dtype::U64, op);
        (self.disp, self.len, self.posted) = (notification.disp, NOTE_PAYLOAD_BYTES as u64, 0);
        (self.notify, self.awaits_flush, self.is_note, self.is_short) = (None, false, true, false);
        (self.native, self.packed, self.regional, self.table_bytes) = (false, false, false, 0);
        self.layouts = Layouts::NONE;
        (self.origin, self.result) = (ptr::null(), ptr::null_mut());
        self.inline.write(0, &value.to_ne_bytes());
        self.inline_len = NOTE_PAYLOAD_BYTES as u8;
        self.state = OperationState::Pending;
    }

    /// The flush that its notification waits for, once it is known.
    pub(crate) fn note_flush(&self) -> Option<u32> {
        self.awaits_flush.then_some(self.note_flush)
    }

    /// Its notification waits for a flush.
    pub(crate) fn await_flush(&mut self, flush: u32) {
        (self.note_flush, self.awaits_flush) = (flush, true);
    }

    /// Bytes of the notification's record in a packet, if one follows.
    pub(crate) fn note_bytes(&self) -> usize {
        if self.notify.is_some() {
            NOTE_BYTES
        } else {
            0
        }
    }

    /// Bytes of data that the origin contributes.
    pub(crate) fn payload_len(&self) -> usize {
        match self.kind {
            OpKind::Put | OpKind::Accumulate => self.len as usize,
            OpKind::GetAccumulate if self.op != ReduceOp::NoOp => self.len as usize,
            OpKind::CompareAndSwap => 2 * self.dtype.size(),
            OpKind::Get | OpKind::GetAccumulate => 0,
        }
    }

    /// Copies the payload into the element if it fits, so that the user's buffer is free.
    ///
    /// # Safety
    /// The origin pointer given to [`OperationElement::begin`] is readable for the payload.
    pub(crate) unsafe fn keep_inline(&mut self) {
        let len = self.payload_len();
        if len == WORD && self.layouts.origin.is_none() && !self.origin.is_null() {
            // SAFETY: readable for the payload by the caller's promise.
            let word = unsafe { self.origin.cast::<[u8; WORD]>().read() };
            self.inline.write(0, &word);
            self.inline_len = WORD as u8;
        } else if len > 0 && len <= INLINE_BYTES && !self.origin.is_null() {
            let mut inline = [0; INLINE_BYTES];
            self.gather(0, &mut inline[..len]);
            self.inline.write(0, &inline[..len]);
            self.inline_len = len as u8;
            self.layouts.origin = None;
        }
    }

    /// Sets the payload of a compare-and-swap: compare value, then the new one.
    pub(crate) fn set_inline_pair(&mut self, compare: &[u8], operand: &[u8]) {
        let len = compare.len() + operand.len();
        self.inline.write(0, compare);
        self.inline.write(compare.len(), operand);
        self.inline_len = len as u8;
    }

    /// Bytes of the payload that are in the element.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.inline_len.into()
    }

    /// Whether the user's memory is read or written until the operation is complete.
    pub(crate) fn refers_to_user_memory(&self) -> bool {
        !self.result.is_null() || (self.payload_len() > 0 && self.inline_len == 0)
    }

    /// The byte of the origin's buffer `offset` bytes from its beginning, wherever the payload is kept.
    pub(crate) fn payload_ptr(&self, offset: i64) -> *const u8 {
        let base = if self.inline_len > 0 { self.inline.as_ptr() } else { self.origin };
        base.wrapping_offset(offset as isize)
    }

    /// Copies the payload's bytes from position `at` on, as many as `place` has.
    pub(crate) fn gather(&self, at: u64, place: &mut [u8]) {
        let end = at + place.len() as u64;
        if place.is_empty() {
            return;
        }
        each_block(self.layouts.origin.as_ref(), at, end, |offset, range| {
            let block = &mut place[range];
            // SAFETY: the user promised (engine's unsafe calls) that the origin buffer stays readable, for
            // the whole payload in its layout, until the operation is complete, and it is not complete; a
            // payload in the element is as long. `block` is the stage's or the stack's.
            unsafe { ptr::copy_nonoverlapping(self.payload_ptr(offset), block.as_mut_ptr(), block.len()) };
        });
    }

    /// Writes a piece of the result to the user's buffer. `false`: it does not belong there. Of a piece without bytes the
    /// operation has failed, which the caller notes: a target that does not execute it answers so.
    pub(crate) fn take_result(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let Some(end) = offset.checked_add(bytes.len() as u64) else {
            return false;
        };
        if self.result.is_null() || end > self.len || self.outstanding == 0 {
            return false;
        }
        let word = <&[u8; WORD]>::try_from(bytes).ok().filter(|_| self.layouts.result.is_none());
        if let Some(&word) = word {
            let place = self.result.wrapping_add(offset as usize).cast();
            // SAFETY: the user promised that the result buffer is writable for `len` bytes until the operation is complete,
            // and `end <= len` was checked; `result` is not null.
            unsafe { ptr::write_unaligned(place, word) };
            self.outstanding -= 1;
            return true;
        }
        each_block(self.layouts.result.as_ref(), offset, end, |offset, range| {
            let (place, block) = (self.result.wrapping_offset(offset as isize), &bytes[range]);
            // SAFETY: the user promised that the result buffer is writable for `len` bytes in its layout
            // until the operation is complete, and `end <= len` was checked; `result` is not null.
            unsafe { ptr::copy_nonoverlapping(block.as_ptr(), place, block.len()) };
        });
        self.outstanding -= 1;
        true
    }

    /// Whether an accumulate reads the target for its origin, and whether it writes it.
    pub(crate) fn accesses(&self) -> (bool, bool) {
        (self.kind.has_result(), self.kind == OpKind::CompareAndSwap || self.op != ReduceOp::NoOp)
    }

    /// Whether everything was handed out and answered.
    pub(crate) fn is_finished(&self) -> bool {
        let is_notified = !self.native || self.notify.is_none();
        self.posted == self.len && self.outstanding == 0 && !self.with_lock && is_notified
    }
}

/// A doubly linked list of operation elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) count: u32,
}

impl List {
    pub(crate) const EMPTY: Self = Self { head: NONE, tail: NONE, count: 0 };

    /// A list of this element alone.
    pub(crate) fn of(element: &mut OperationElement, index: u32) -> Self {
        (element.prev, element.next) = (NONE, NONE);
        Self { head: index, tail: index, count: 1 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn push_back(&mut self, arena: &mut Arena<OperationElement>, index: u32) {
        arena[index].prev = self.tail;
        arena[index].next = NONE;
        if self.tail == NONE {
            self.head = index;
        } else {
            arena[self.tail].next = index;
        }
        self.tail = index;
        self.count += 1;
    }

    pub(crate) fn push_front(&mut self, arena: &mut Arena<OperationElement>, index: u32) {
        arena[index].prev = NONE;
        arena[index].next = self.head;
        if self.head == NONE {
            self.tail = index;
        } else {
            arena[self.head].prev = index;
        }
        self.head = index;
        self.count += 1;
    }

    /// In front of one that is in the list.
    pub(crate) fn insert_before(&mut self, arena: &mut Arena<OperationElement>, index: u32, follower: u32) {
        let prev = arena[follower].prev;
        if prev == NONE {
            return self.push_front(arena, index);
        }
        (arena[index].prev, arena[index].next) = (prev, follower);
        (arena[prev].next, arena[follower].prev) = (index, index);
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, arena: &mut Arena<OperationElement>, index: u32) {
        let (prev, next) = (arena[index].prev, arena[index].next);
        if prev == NONE {
            self.head = next;
        } else {
            arena[prev].next = next;
        }
        if next == NONE {
            self.tail = prev;
        } else {
            arena[next].prev = prev;
        }
        self.count -= 1;
    }
}
