//! The operation by packet that is alone, posted and flushed again and again, by the way that the last one has found
//! ([`PacketShortcut`]).
#![allow(unsafe_code)] // the user's buffers come as raw pointers

use core::task::Poll;

use super::{Engine, Operation, Stage, SyncCall};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, RmaError};
use crate::flush::Phase;
use crate::ids::{Rank, WindowId};
use crate::provider::Endpoint;
#[cfg(doc)]
use crate::table::PacketShortcut;
use crate::table::PacketStage;

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Posts an operation by that way. `false`: it goes another one, and nothing has happened.
    ///
    /// # Safety
    /// As for [`Engine::post`].
    #[inline(always)]
    pub(super) unsafe fn post_by_shortcut(&mut self, window: WindowId, operation: &Operation) -> bool {
        let &Operation { kind, dtype, op, target, disp, len, .. } = operation;
        let way = &self.windows.packet_shortcut;
        // SAFETY: the caller's promise.
        way.takes((window, target), (kind, dtype, op), (disp, len), self.process.disturbances)
            && unsafe { self.post_alone(operation) }
    }

    /// # Safety
    /// As for [`Engine::post`]; the way takes the operation.
    #[inline(never)]
    unsafe fn post_alone(&mut self, operation: &Operation) -> bool {
        let Some((way, w)) = self.windows.by_packet_shortcut() else { return false };
        let Some(op) = self.process.operations.take(&mut w.operations) else { return false };
        // SAFETY: the caller's promise.
        unsafe { self.process.begin_element(way.target, op, operation, None) };
        self.process.keep_alone(way.target, op);
        (way.stage, way.operation) = (PacketStage::Posted, op);
        way.number = self.process.operations[op].number;
        true
    }

    /// Sends what was posted so, because of a flush of this target, which waits for the answer. `None`: there is nothing, or it
    /// goes another way.
    #[inline(always)]
    pub(super) fn flush_by_shortcut(&mut self, window: WindowId, target: Rank) -> Option<SyncCall> {
        if !self.windows.packet_shortcut.is_at(window, target, PacketStage::Posted) {
            return None;
        }
        let (way, w) = self.windows.by_packet_shortcut()?;
        let stage = Stage::FlushByShortcut { target, number: way.number };
        self.process.send_alone(way, w).then(|| SyncCall::new(Call::Flush, window, stage))
    }

    /// Such a flush of the target's operation with this number. Nothing else was under way when it began.
    pub(super) fn poll_flush_by_shortcut(
        &mut self,
        sync: &mut SyncCall,
        target: Rank,
        number: u32,
    ) -> Poll<Result<(), RmaError>> {
        let way = &mut self.windows.packet_shortcut;
        let is_its = way.number == number;
        if is_its && way.is_at(sync.window, target, PacketStage::Sent) {
            return Poll::Pending;
        }
        if is_its && way.is_at(sync.window, target, PacketStage::Answered) {
            way.stage = PacketStage::Idle;
            self.process.end_alone(way.target);
            self.process.count_phase(&mut sync.counted, Phase::Acknowledgement);
            return Poll::Ready(Ok(()));
        }
        self.flush_what_has_come(sync, target)
    }

    /// A flush has ended: whether it has sent alone what the one before it did, and the next one goes that way.
    #[cold]
    #[inline(never)]
    pub(super) fn learn_packet_shortcut(&mut self, window: WindowId, t: u32) {
        // Whoever has the window has had the way forgotten.
        let Some(w) = self.windows.get_mut(window) else { return };
        let Some(sent) = &mut w.flushed_alone else { return };
        let (is_again, atomic) = (core::mem::take(&mut sent.is_again) && sent.target == t, sent.atomic);
        if !is_again {
            return;
        }
        if let Some(way) = self.process.find_packet_shortcut(w, atomic, t) {
            self.windows.packet_shortcut = way;
        }
    }
}
