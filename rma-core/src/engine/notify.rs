//! Notified put: a word of the target's window is changed when the data are visible there.
#![allow(unsafe_code)] // posts operations on user buffers, which come as raw pointers

use core::task::Poll;

use super::operation::{check_range, Wanted};
use super::{Engine, Operation, Stage, SyncCall};
use crate::bootstrap::Bootstrap;
use crate::dtype::Dtype;
use crate::error::{Call, RmaError};
use crate::ids::{Rank, WindowId};
use crate::mutation::Mutation;
use crate::op::ReduceOp;
use crate::provider::Endpoint;
use crate::table::{Notification, TargetError, NOTE_PAYLOAD_BYTES};
use crate::wire::{ErrorRecord, OpKind};

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Puts `len` bytes and then changes a word of the target's window: who sees the change (at the target
    /// by [`Engine::notification`]) sees the data of this put. Leaves at once, and costs no round trip. The
    /// notifications of one origin to one target happen in the order of the calls; no order holds between
    /// them and accumulates. Belongs to any epoch in which a put may be made; the next synchronization call
    /// completes both. If the put fails, there is no notification. `Pending` as for [`Engine::post`]; a put to
    /// this process itself may be made again by the repeated call.
    ///
    /// Implements: ours: put_notify.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    ///
    /// # Errors
    /// As for [`Engine::put`], and when the word is known to be outside the window, or not at a multiple of 8 bytes
    /// in the target's memory, which counts, not its displacement. What is not known yet is an error of the call
    /// that completes the put at the latest.
    pub unsafe fn put_notify(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        origin: *const u8,
        len: usize,
        notification: &Notification,
    ) -> Poll<Result<(), RmaError>> {
        let call = Call::PutNotify;
        let (op, value) = notification.change.operand();
        let bytes = value.to_ne_bytes();
        let put = Operation {
            call,
            kind: OpKind::Put,
            dtype: Dtype::U8,
            op: ReduceOp::Replace,
            target,
            disp,
            len,
            origin,
            result: core::ptr::null_mut(),
            compare: core::ptr::null(),
        };
        let note = Operation {
            kind: OpKind::Accumulate,
            dtype: Dtype::U64,
            op,
            disp: notification.disp,
            len: NOTE_PAYLOAD_BYTES,
            origin: bytes.as_ptr(),
            ..put
        };
        if let Err(error) = self.check_note(window, &note) {
            return Poll::Ready(Err(error));
        }
        let rank = self.process.rank;
        let own = self.windows.peek(window).is_some_and(|w| w.is_own(rank, target));
        if len > 0 && !own {
            // SAFETY: the caller's promise.
            let posted =
                unsafe { self.post_tracked(window, &put, None, Wanted::Notification(*notification)) };
            return posted.map_ok(|_| ());
        }
        if len > 0 {
            // SAFETY: the caller's promise. The CPU does it, so it is complete.
            match unsafe { self.post_tracked(window, &put, None, Wanted::Nothing) } {
                Poll::Ready(Ok(_)) => core::sync::atomic::fence(core::sync::atomic::Ordering::Release),
                other => return other.map_ok(|_| ()),
            }
        }
        // SAFETY: an element copies as few bytes.
        unsafe { self.post_tracked(window, &note, None, Wanted::Note) }.map_ok(|_| ())
    }

    /// Whether the word can be notified, as far as its window is known here.
    fn check_note(&mut self, window: WindowId, note: &Operation) -> Result<(), RmaError> {
        let &Operation { call, target, .. } = note;
        let rank = self.process.rank;
        self.window(call, window)?;
        if target == Rank::NULL {
            return Ok(());
        }
        let Some(w) = self.windows.get_mut(window) else { return Ok(()) };
        let known = match w.find(&self.process.targets, target) {
            Some(t) => self.process.targets[t].metadata,
            None if target == rank => Some(w.own),
            // Its element will know it from the beginning.
            None => w.words.as_ref().and_then(|words| words.metadata_of(target)),
        };
        let located = match known.or_else(|| w.uniform.filter(|_| w.is_aligned_alike)) {
            Some(metadata) => metadata.locate_word(note.disp).map(|_| ()),
            None => return w.uniform.map_or(Ok(()), |metadata| check_range(note, None, &metadata)),
        };
        located.map_err(|error| TargetError::Record(error).report(call, target))
    }

    /// The notified word of this process's own window at `disp`, in its displacement units. What was put
    /// before the notifications that it shows is seen by loads that follow.
    ///
    /// Implements: ours: test_notification.
    ///
    /// # Errors
    /// When it is outside the window, or not aligned to 8 bytes.
    pub fn notification(&mut self, window: WindowId, disp: u64) -> Result<u64, RmaError> {
        self.load_notification(Call::TestNotification, window, disp)
    }

    /// Waits until the notified word of this process's own window is at least `until`.
    ///
    /// Implements: ours: wait_notification.
    ///
    /// # Errors
    /// As for [`Engine::notification`]; when polled, also that a process of the job cannot be reached any more:
    /// it could be the one that is waited for.
    pub fn start_wait_notification(
        &mut self,
        window: WindowId,
        disp: u64,
        until: u64,
    ) -> Result<SyncCall, RmaError> {
        let call = Call::WaitNotification;
        self.check_endpoint(call)?;
        self.load_notification(call, window, disp)?;
        Ok(SyncCall::new(call, window, Stage::Notification { disp, until }))
    }

    pub(super) fn poll_notification(
        &mut self,
        sync: &mut SyncCall,
        disp: u64,
        until: u64,
    ) -> Poll<Result<(), RmaError>> {
        match self.load_notification(sync.call, sync.window, disp) {
            Ok(value) if value >= until => Poll::Ready(Ok(())),
            Ok(_) if Mutation::NoteAwaitedFromDead.is_on() => Poll::Pending,
            Ok(_) => self.process.failure(sync.call),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn load_notification(&mut self, call: Call, window: WindowId, disp: u64) -> Result<u64, RmaError> {
        let target = self.process.rank;
        let w = self.window(call, window)?;
        let len_bytes = NOTE_PAYLOAD_BYTES as u64;
        let own = w.own;
        let outside = |offset| TargetError::Record(own.outside(offset, len_bytes)).report(call, target);
        let address = w.own.locate(disp, len_bytes).map_err(outside)?;
        let Some((memory, offset)) = w.place(address, len_bytes) else { return Err(outside(address)) };
        match memory.load_acquire(offset) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(TargetError::Record(ErrorRecord::UnalignedWord).report(call, target)),
            Err(_) => Err(outside(address)),
        }
    }
}
