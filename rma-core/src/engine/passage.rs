//! The puts, gets and atomics that are repeated with one neighbour, by the passage to it: it is found when the shortcut to that
//! neighbour has been taken some times, and kept until another one is ([`KeptPassage`]).
#![allow(unsafe_code)] // the user's buffers come as raw pointers

#[cfg(doc)]
use super::Engine;
use crate::bootstrap::Bootstrap;
use crate::dtype::Dtype;
use crate::ids::{Rank, WindowId};
use crate::op::ReduceOp;
use crate::progress::Process;
use crate::provider::{Atomic, Endpoint, Passage, RemoteAddr, WordChange};
use crate::table::KeptPassage;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// A put by the passage that is kept. `false`: there is none to that place, or it leads nowhere any more.
    ///
    /// # Safety
    /// As for [`Engine::put`]; the place is one of the shortcut's.
    #[inline(always)]
    pub(super) unsafe fn put_by_passage(&mut self, from: (*const u8, usize), at: RemoteAddr) -> bool {
        let Self { shortcut, passage, endpoint, .. } = self;
        let (true, Some(passage)) = (shortcut.has_passage, &mut passage.way) else { return false };
        // SAFETY: the caller's promise; the shortcut's places are inside of the memory.
        let is_put = unsafe { passage.put(endpoint, from, shortcut.offset_of(at)) };
        if is_put {
            self.count_put(from.1);
        }
        is_put
    }

    /// A get, likewise.
    ///
    /// # Safety
    /// As for [`Engine::get`]; the place is one of the shortcut's.
    #[inline(always)]
    pub(super) unsafe fn get_by_passage(&mut self, into: (*mut u8, usize), at: RemoteAddr) -> bool {
        let Self { shortcut, passage, endpoint, .. } = self;
        let (true, Some(passage)) = (shortcut.has_passage, &mut passage.way) else { return false };
        // SAFETY: as for puts.
        let is_got = unsafe { passage.get(endpoint, into, shortcut.offset_of(at)) };
        if is_got {
            self.count_get(into.1);
        }
        is_got
    }

    /// A shortcut was learnt, to a neighbour or not: whether the passage that is kept leads there.
    #[inline]
    pub(super) fn take_up_passage(&mut self, window: WindowId, target: Rank) {
        let memory = self.shortcut.memory();
        self.shortcut.has_passage = memory.is_some_and(|memory| self.passage.is_to(window, target, memory));
    }

    /// A put or get was complete at once, and went by the shortcut, and by no passage: there is none, or it leads nowhere any
    /// more.
    #[inline]
    pub(super) fn note_near(&mut self) {
        if self.shortcut.has_passage {
            (self.shortcut.has_passage, self.passage) = (false, KeptPassage::NONE);
        }
        if self.shortcut.wants_passage() {
            self.find_passage();
        }
    }

    /// Asks for a passage to the shortcut's target.
    #[cold]
    #[inline(never)]
    fn find_passage(&mut self) {
        let Some((window, rank, peer)) = self.shortcut.near_target() else { return };
        let Some(memory) = self.shortcut.memory() else { return };
        if let Some(way) = self.endpoint.passage(peer, None, memory) {
            self.passage = KeptPassage::to(window, rank, memory, way);
            self.shortcut.has_passage = true;
        }
    }

    /// Adds to a word, or swaps it, by the passage that is kept. `false`: it is another atomic, there is no passage to that
    /// place, or it leads nowhere any more.
    ///
    /// # Safety
    /// As for [`Engine::post`]; the place is one of the shortcut's.
    #[inline(always)]
    pub(super) unsafe fn change_by_passage(
        &mut self,
        atomic: Atomic,
        at: RemoteAddr,
        (dtype, op): (Dtype, ReduceOp),
    ) -> bool {
        let Self { shortcut, passage, endpoint, .. } = self;
        let (true, Some(passage)) = (shortcut.has_passage, &mut passage.way) else { return false };
        if !matches!(dtype, Dtype::U64 | Dtype::I64) {
            return false;
        }
        // SAFETY: by the caller's promise.
        let read = |from: *const u8| unsafe { from.cast::<u64>().read_unaligned() };
        let (change, into) = match atomic {
            Atomic::Fetch { operand, result } if op == ReduceOp::Sum => {
                (WordChange::Add(read(operand)), result)
            }
            Atomic::Swap { operand, compare, result } => {
                (WordChange::Swap(read(compare), read(operand)), result)
            }
            Atomic::Reduce { operand } if op == ReduceOp::Sum => {
                (WordChange::Tell(read(operand)), core::ptr::null_mut())
            }
            Atomic::Reduce { .. } | Atomic::Fetch { .. } => return false,
        };
        // SAFETY: the shortcut's places are inside of the memory.
        let before = unsafe { passage.change(endpoint, change, shortcut.offset_of(at)) };
        if let (Some(before), false) = (before, into.is_null()) {
            // SAFETY: by the caller's promise.
            unsafe { into.cast::<u64>().write_unaligned(before) };
        }
        before.is_some()
    }

    /// The same of any atomic, by the endpoint.
    ///
    /// # Safety
    /// As for [`Engine::post`].
    #[inline(never)]
    pub(super) unsafe fn change_near(
        &mut self,
        atomic: Atomic,
        at: RemoteAddr,
        (dtype, op): (Dtype, ReduceOp),
    ) -> bool {
        // SAFETY: the caller's promise.
        let is_done = unsafe { self.endpoint.atomic_now(self.shortcut.peer, (atomic, 1), at, dtype, op) };
        // What a passage has not done is another atomic, as a rule, and the next one may be one of its again.
        if is_done && !self.shortcut.has_passage {
            self.note_near();
        }
        is_done
    }
}
