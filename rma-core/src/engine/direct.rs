//! Put and get, as fast as they go: by the shortcut, directly, or the whole way of an operation.
#![allow(unsafe_code)] // the user's buffers come as raw pointers

use alloc::boxed::Box;
use core::task::Poll;

use super::{Engine, Operation};
use crate::bootstrap::Bootstrap;
use crate::error::RmaError;
use crate::ids::{Rank, WindowId};
use crate::progress::{Process, TagKind};
use crate::provider::{Accepted, Endpoint, RemoteAddr};
use crate::table::{Shortcut, TargetElement};
use crate::wire::OpKind;

/// What came of an operation, in registers: whoever takes the shortcut has no room for an error.
type Outcome = Poll<Result<(), Box<RmaError>>>;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// The element of the shortcut's target. There is a shortcut for what is not complete at once.
    #[inline(always)]
    fn shortcut_target(&mut self) -> &mut TargetElement {
        let target = self.shortcut.target;
        // SAFETY: such a shortcut is learnt from an element with this index, and an arena never gets smaller.
        unsafe { self.targets.at_mut(target) }
    }

    /// Counts the bytes of an operation that the fabric is asked to take.
    #[inline(always)]
    fn count_offered(&mut self, len: usize) {
        self.shortcut.offered = len;
        self.counters.native_bytes += len as u64;
    }

    /// Takes that back, and the shortcut.
    fn leave_shortcut(&mut self) {
        self.counters.native_bytes -= self.shortcut.offered as u64;
        self.shortcut = Shortcut::NONE;
    }
}

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Writes `len` bytes to the target at displacement `disp` (MPI-4.1 section 13.3.1). `Pending`:
    /// no resources now, nothing happened; make progress and call again.
    ///
    /// # Safety
    /// `origin` is readable for `len` bytes and not written until the operation is locally complete
    /// (flush_local, or a call that completes more).
    ///
    /// # Errors
    /// When no epoch is open, the rank is not in the window, or the range is known to be outside.
    ///
    /// Implements: MPI_Put.
    #[inline(always)]
    pub unsafe fn put(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        origin: *const u8,
        len: usize,
    ) -> Poll<Result<(), RmaError>> {
        let Some(at) = self.process.shortcut.put_at(window, target, disp, len) else {
            // SAFETY: the caller's promise.
            return unboxed(unsafe { self.put_slow(window, target, disp, origin, len) });
        };
        // SAFETY: as above.
        match unsafe { self.put_by_shortcut(at, origin, len) } {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// The same, for a caller that has a large frame of its own: what a repeated epoch does then needs no other one.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    ///
    /// # Errors
    /// As for [`Engine::put`].
    #[inline(always)]
    pub unsafe fn put_inline(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        origin: *const u8,
        len: usize,
    ) -> Poll<Result<(), RmaError>> {
        let Some(at) = self.process.shortcut.put_at(window, target, disp, len) else {
            let is_repeated = self.windows.repeated.is_open(window, target);
            // SAFETY: the caller's promise.
            if is_repeated && unsafe { self.put_repeated(disp, origin, len) } {
                return Poll::Ready(Ok(()));
            }
            // SAFETY: as above.
            return unboxed(unsafe { self.put_slow(window, target, disp, origin, len) });
        };
        // SAFETY: as above.
        match unsafe { self.put_by_shortcut(at, origin, len) } {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// A put to the place that the shortcut has found. `false`: the fabric did not take it.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    #[inline(always)]
    unsafe fn put_by_shortcut(&mut self, at: RemoteAddr, origin: *const u8, len: usize) -> bool {
        let (peer, tag) = (self.process.shortcut.peer, self.process.shortcut.put_tag);
        // Counted before, so that nothing has to be kept for afterwards.
        self.process.shortcut_target().native_puts += 1;
        self.process.counters.native_puts += 1;
        self.process.count_offered(len);
        // SAFETY: the caller's promise is the endpoint's.
        let is_refused = unsafe { self.process.endpoint.put(peer, origin, len, at, tag) }.is_err();
        if is_refused {
            self.put_refused();
        }
        !is_refused
    }

    /// Reads `len` bytes from the target at displacement `disp` (MPI-4.1 section 13.3.2). `Pending` as
    /// for [`Engine::put`].
    ///
    /// # Safety
    /// `result` is writable for `len` bytes and not accessed until the operation is complete.
    ///
    /// # Errors
    /// As for [`Engine::put`].
    ///
    /// Implements: MPI_Get.
    #[inline(always)]
    pub unsafe fn get(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        result: *mut u8,
        len: usize,
    ) -> Poll<Result<(), RmaError>> {
        let way = &self.process.shortcut;
        let Some(at) = way.get_at(window, target, disp, len) else {
            // SAFETY: the caller's promise.
            return unboxed(unsafe { self.get_slow(window, target, disp, result, len) });
        };
        let (peer, tag) = (way.peer, way.get_tag);
        // Counted before, so that nothing has to be kept for afterwards.
        self.process.shortcut_target().native_gets += 1;
        self.process.counters.native_gets += 1;
        self.process.count_offered(len);
        // SAFETY: the caller's promise is the endpoint's.
        if unsafe { self.process.endpoint.get(peer, result, len, at, tag) }.is_err() {
            self.get_refused();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// A put that did not take the shortcut.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    #[inline(never)]
    unsafe fn put_slow(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        origin: *const u8,
        len: usize,
    ) -> Outcome {
        // Each way has a frame of its own, so that none is made for those that come behind it.
        if let Some(at) = self.process.shortcut.near_put_at(window, target, disp, len) {
            // SAFETY: the caller's promise.
            return match unsafe { self.process.put_by_passage((origin, len), at) } {
                true => Poll::Ready(Ok(())),
                // SAFETY: as above.
                false => unsafe { self.put_near(at, origin, len) },
            };
        }
        if self.windows.repeated.is_open(window, target) {
            // SAFETY: as above.
            return unsafe { self.put_again(window, target, disp, origin, len) };
        }
        // SAFETY: as above.
        unsafe { self.put_any(window, target, disp, origin, len) }
    }

    /// A put to a neighbour that was put to before.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    #[inline(never)]
    unsafe fn put_near(&mut self, at: RemoteAddr, origin: *const u8, len: usize) -> Outcome {
        let peer = self.process.shortcut.peer;
        // SAFETY: the caller's promise is the endpoint's.
        if !unsafe { self.process.endpoint.put_now(peer, origin, len, at) } {
            return self.near_refused();
        }
        self.process.count_put(len);
        self.process.note_near();
        Poll::Ready(Ok(()))
    }

    /// A get from such a one.
    ///
    /// # Safety
    /// As for [`Engine::get`].
    #[inline(never)]
    unsafe fn get_near(&mut self, at: RemoteAddr, result: *mut u8, len: usize) -> Outcome {
        let peer = self.process.shortcut.peer;
        // SAFETY: the caller's promise is the endpoint's.
        if !unsafe { self.process.endpoint.get_now(peer, result, len, at) } {
            return self.near_refused();
        }
        self.process.count_get(len);
        self.process.note_near();
        Poll::Ready(Ok(()))
    }

    /// A put of a lock epoch that is repeated.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    #[inline(never)]
    unsafe fn put_again(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        origin: *const u8,
        len: usize,
    ) -> Outcome {
        // SAFETY: the caller's promise.
        if unsafe { self.put_repeated(disp, origin, len) } {
            return Poll::Ready(Ok(()));
        }
        // SAFETY: as above.
        unsafe { self.put_any(window, target, disp, origin, len) }
    }

    /// A put that is not one of a lock epoch which is repeated, or cannot be as that one's.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    #[inline(never)]
    unsafe fn put_any(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        origin: *const u8,
        len: usize,
    ) -> Outcome {
        if self.process.called == (window, target) {
            // SAFETY: the caller's promise.
            if unsafe { self.put_called(window, target, disp, origin, len) } {
                return Poll::Ready(Ok(()));
            }
        }
        // SAFETY: the caller's promise.
        if unsafe { self.put_direct(window, target, disp, origin, len) } {
            return Poll::Ready(Ok(()));
        }
        // SAFETY: the caller's promise.
        if unsafe { self.put_parked(window, target, disp, origin, len) } {
            return Poll::Ready(Ok(()));
        }
        let result = core::ptr::null_mut();
        // SAFETY: the caller's promise covers the only buffer of a put.
        unsafe { self.transfer(window, OpKind::Put, target, disp, origin, result, len) }.map_err(Box::new)
    }

    /// A get that did not, as [`Engine::put_slow`].
    ///
    /// # Safety
    /// As for [`Engine::get`].
    #[inline(never)]
    unsafe fn get_slow(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        result: *mut u8,
        len: usize,
    ) -> Outcome {
        // Each way has a frame of its own, so that none is made for those that come behind it.
        if let Some(at) = self.process.shortcut.near_get_at(window, target, disp, len) {
            // SAFETY: the caller's promise.
            return match unsafe { self.process.get_by_passage((result, len), at) } {
                true => Poll::Ready(Ok(())),
                // SAFETY: as above.
                false => unsafe { self.get_near(at, result, len) },
            };
        }
        if self.windows.repeated.is_open(window, target) {
            // SAFETY: as above.
            return unsafe { self.get_again(window, target, disp, result, len) };
        }
        // SAFETY: as above.
        unsafe { self.get_any(window, target, disp, result, len) }
    }

    /// A get of a lock epoch that is repeated.
    ///
    /// # Safety
    /// As for [`Engine::get`].
    #[inline(never)]
    unsafe fn get_again(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        result: *mut u8,
        len: usize,
    ) -> Outcome {
        // SAFETY: the caller's promise.
        if unsafe { self.get_repeated(disp, result, len) } {
            return Poll::Ready(Ok(()));
        }
        // SAFETY: as above.
        unsafe { self.get_any(window, target, disp, result, len) }
    }

    /// A get, as [`Engine::put_any`].
    ///
    /// # Safety
    /// As for [`Engine::get`].
    #[inline(never)]
    unsafe fn get_any(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        result: *mut u8,
        len: usize,
    ) -> Outcome {
        // SAFETY: the caller's promise.
        if unsafe { self.get_direct(window, target, disp, result, len) } {
            return Poll::Ready(Ok(()));
        }
        // SAFETY: the caller's promise.
        if unsafe { self.get_parked(window, target, disp, result, len) } {
            return Poll::Ready(Ok(()));
        }
        // SAFETY: the caller's promise covers the only buffer of a get.
        unsafe { self.transfer(window, OpKind::Get, target, disp, core::ptr::null(), result, len) }
            .map_err(Box::new)
    }

    /// The fabric did not take a put that went by the shortcut: nothing happened, and the next call goes the whole
    /// way, which knows what to do.
    #[cold]
    #[inline(never)]
    fn put_refused(&mut self) {
        self.process.shortcut_target().native_puts -= 1;
        self.process.counters.native_puts -= 1;
        self.process.leave_shortcut();
    }

    /// Nor a get.
    #[cold]
    #[inline(never)]
    fn get_refused(&mut self) {
        self.process.shortcut_target().native_gets -= 1;
        self.process.counters.native_gets -= 1;
        self.process.leave_shortcut();
    }

    /// A target whose operations are complete at once did not take one that went by the shortcut: nothing happened, and the
    /// next call goes the whole way.
    #[cold]
    #[inline(never)]
    fn near_refused(&mut self) -> Outcome {
        self.process.shortcut = Shortcut::NONE;
        Poll::Pending
    }

    /// A put to the target used last, whose lock is held and whose metadata is known: natively, without an element,
    /// and the next one by the shortcut. `false`: not possible now, nothing happened.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    #[inline]
    unsafe fn put_direct(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        origin: *const u8,
        len: usize,
    ) -> bool {
        let Some(w) = self.windows.get_mut(window) else { return false };
        if w.last_rank != target || !w.direct_put || !self.process.is_one_message(len) {
            return false;
        }
        let t = w.last_target;
        // Not found when nothing is remembered, and the caller's rank is none either.
        let Some(te) = self.process.targets.get(t) else { return false };
        let is_first = te.direct.is_none();
        if is_first && (w.words.is_none() || !self.process.take_near_lock(w, t)) {
            return false;
        }
        let Some(te) = self.process.targets.get_mut(t) else { return false };
        let Some(direct) = &te.direct else { return false };
        let Some(at) = direct.locate(disp, len) else { return false };
        // It rides with COMPLETE.
        let rides_to = self.process.endpoint.packet_put_bytes_max(direct.peer);
        if rides_to > 0 && len <= rides_to && w.state().is_pscw() {
            return false;
        }
        let tag = TagKind::CountedPut.tag(0, t);
        // SAFETY: the caller's promise is the endpoint's.
        let posted = unsafe { self.process.endpoint.put(direct.peer, origin, len, at, tag) };
        let Ok(accepted) = posted else { return false };
        let is_tracked = accepted == Accepted::Tracked;
        let most = self.process.limits.message_bytes_max;
        if is_first {
            // Of one operation alone nothing is to be learnt.
            self.process.shortcut.note_posted();
        } else {
            self.process.shortcut.learn_put(window, target, (t, tag), direct, most);
        }
        // Who takes the shortcut does not say it.
        te.unflushed |= self.process.puts_need_flush && !direct.at_once;
        te.native_puts += u32::from(is_tracked);
        self.process.at_once.note(!is_tracked);
        w.fence_active = true;
        self.process.counters.native_puts += 1;
        self.process.counters.native_bytes += len as u64;
        if !is_tracked && !is_first {
            self.process.take_up_passage(window, target);
        }
        true
    }

    /// A get, as [`Engine::put_direct`].
    ///
    /// # Safety
    /// As for [`Engine::get`].
    #[inline]
    unsafe fn get_direct(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        result: *mut u8,
        len: usize,
    ) -> bool {
        let Some(w) = self.windows.get_mut(window) else { return false };
        if w.last_rank != target || !w.direct_get || !self.process.is_one_message(len) {
            return false;
        }
        let t = w.last_target;
        // Not found when nothing is remembered, and the caller's rank is none either.
        let Some(te) = self.process.targets.get(t) else { return false };
        let is_first = te.direct.is_none();
        if is_first && (w.words.is_none() || !self.process.take_near_lock(w, t)) {
            return false;
        }
        let Some(te) = self.process.targets.get_mut(t) else { return false };
        let Some(direct) = &te.direct else { return false };
        let Some(at) = direct.locate(disp, len) else { return false };
        let tag = TagKind::CountedGet.tag(0, t);
        // SAFETY: the caller's promise is the endpoint's.
        let posted = unsafe { self.process.endpoint.get(direct.peer, result, len, at, tag) };
        let Ok(accepted) = posted else { return false };
        let is_tracked = accepted == Accepted::Tracked;
        let most = self.process.limits.message_bytes_max;
        if is_first {
            // Of one operation alone nothing is to be learnt.
            self.process.shortcut.note_posted();
        } else {
            self.process.shortcut.learn_get(window, target, (t, tag), direct, most);
        }
        te.native_gets += u32::from(is_tracked);
        self.process.at_once.note(!is_tracked);
        w.fence_active = true;
        self.process.counters.native_gets += 1;
        self.process.counters.native_bytes += len as u64;
        if !is_tracked && !is_first {
            self.process.take_up_passage(window, target);
        }
        true
    }
}

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// An atomic of the kind that was done last, on the target that was flushed last, with nothing else posted since: what
    /// the last one has looked at is still so, and a flush behind this one has nothing to do either. `false`: not so, and
    /// nothing happened.
    ///
    /// # Safety
    /// As for [`Engine::post`].
    #[inline(never)]
    pub(super) unsafe fn atomic_direct(&mut self, window: WindowId, operation: &Operation) -> bool {
        let &Operation { kind, dtype, op, target, disp, len, .. } = operation;
        let process = &mut self.process;
        let Some(at) = process.shortcut.near_atomic_at(window, target, disp, (kind, dtype, op)) else {
            return false;
        };
        let Some(atomic) = operation.atomic() else { return false };
        if len != dtype.size() || !process.at_once.is_nothing() || process.failure.is_some() {
            return false;
        }
        // SAFETY: the caller's promise.
        let is_done = unsafe { process.change_by_passage(atomic, at, (dtype, op)) }
            // SAFETY: as above.
            || unsafe { process.change_near(atomic, at, (dtype, op)) };
        if is_done {
            process.counters.native_atomics += 1;
            process.counters.native_bytes += len as u64;
        }
        is_done
    }
}

/// The outcome as the caller has it. The ordinary one goes by without being written down.
#[inline(always)]
fn unboxed(outcome: Outcome) -> Poll<Result<(), RmaError>> {
    match outcome {
        Poll::Ready(Ok(())) => Poll::Ready(Ok(())),
        other => unboxed_slow(other),
    }
}

#[cold]
#[inline(never)]
fn unboxed_slow(outcome: Outcome) -> Poll<Result<(), RmaError>> {
    outcome.map_err(|error| *error)
}
