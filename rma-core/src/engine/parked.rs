//! Puts and gets to neighbours that have no target element (`progress/parked.rs`).
#![allow(unsafe_code)] // the user's buffers come as raw pointers

use super::{Engine, Operation};
use crate::bootstrap::Bootstrap;
use crate::ids::{Rank, Tag, WindowId};
use crate::lock::words::Memo;
use crate::lock::LockType;
use crate::path::Path;
use crate::pool::NONE;
use crate::progress::{DoneAtOnce, Process, NOTHING_CALLED};
use crate::provider::Endpoint;
use crate::state::WindowState;
use crate::table::{Direct, ParkedLock};
use crate::window::{NearTarget, Window};

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// A put to the rank whose lock was called last, if that was all that happened to it, and the lock with it. `false`: as
    /// for [`Engine::put_parked`], which is to be asked next.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    #[inline(always)]
    pub(super) unsafe fn put_called(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        origin: *const u8,
        len: usize,
    ) -> bool {
        let process = &mut self.process;
        process.called = NOTHING_CALLED;
        let Some(w) = self.windows.get_mut(window) else { return false };
        if !w.direct_put || !process.is_one_message(len) || w.state() != WindowState::PerTarget {
            return false;
        }
        // SAFETY: the caller's promise.
        let is_put = unsafe { process.lock_and_put(w, target, disp, (origin, len)) };
        if is_put {
            w.fence_active = true;
            process.count_put(len);
        }
        is_put
    }

    /// A put to a neighbour without an element. `false`: not possible so, nothing happened but that the lock may be
    /// held, or its ticket drawn.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    #[inline(always)]
    pub(super) unsafe fn put_parked(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        origin: *const u8,
        len: usize,
    ) -> bool {
        let Some(w) = self.windows.get_mut(window) else { return false };
        let process = &mut self.process;
        if !w.direct_put || !process.is_one_message(len) {
            return false;
        }
        let Some(near) = process.near_way(w, target) else { return false };
        let Some(at) = near.locate(disp, len) else { return false };
        // SAFETY: the caller's promise is the endpoint's.
        if !unsafe { process.endpoint.put_now(near.peer, origin, len, at) } {
            return false;
        }
        // Of operations that no flush comes between there is little to be learnt, and of one alone nothing.
        if process.shortcut.is_flushed(window, target) {
            let most = process.limits.message_bytes_max;
            process.shortcut.learn_put(window, target, (NONE, Tag(0)), &near.direct(), most);
            process.take_up_passage(window, target);
        }
        w.fence_active = true;
        process.count_put(len);
        true
    }

    /// The same of a get.
    ///
    /// # Safety
    /// As for [`Engine::get`].
    #[inline(always)]
    pub(super) unsafe fn get_parked(
        &mut self,
        window: WindowId,
        target: Rank,
        disp: u64,
        result: *mut u8,
        len: usize,
    ) -> bool {
        let Some(w) = self.windows.get_mut(window) else { return false };
        let process = &mut self.process;
        if !w.direct_get || !process.is_one_message(len) {
            return false;
        }
        let Some(near) = process.near_way(w, target) else { return false };
        let Some(at) = near.locate(disp, len) else { return false };
        // SAFETY: the caller's promise is the endpoint's.
        if !unsafe { process.endpoint.get_now(near.peer, result, len, at) } {
            return false;
        }
        // Of operations that no flush comes between there is little to be learnt, and of one alone nothing.
        if process.shortcut.is_flushed(window, target) {
            let most = process.limits.message_bytes_max;
            process.shortcut.learn_get(window, target, (NONE, Tag(0)), &near.direct(), most);
            process.take_up_passage(window, target);
        }
        w.fence_active = true;
        process.count_get(len);
        true
    }

    /// Whether a flush of a locked target without element has nothing left to do.
    #[inline(never)]
    pub(super) fn flush_parked(&mut self, window: WindowId, target: Rank) -> bool {
        let Some(w) = self.windows.get_mut(window) else { return false };
        let is_open = |lock: &ParkedLock| !lock.is_closing && lock.words != Memo::Lost;
        let is_known = w.state().is_passive() && w.parked.find(target).is_some_and(is_open);
        let is_well = w.late.is_empty() && self.process.failure.is_none();
        let is_flushed = is_known && is_well && w.acks.is_empty();
        if is_flushed {
            if w.may_skip_flush {
                self.process.shortcut.note_flushed(window, (target, NONE));
            }
            w.mem_sync();
            self.process.pass_fence();
        }
        is_flushed
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Counts a put that is complete.
    #[inline(always)]
    pub(super) fn count_put(&mut self, len: usize) {
        self.counters.native_puts += 1;
        self.counters.native_bytes += len as u64;
        self.at_once = DoneAtOnce::UNFENCED;
    }

    /// The same of a get.
    #[inline(always)]
    pub(super) fn count_get(&mut self, len: usize) {
        self.counters.native_gets += 1;
        self.counters.native_bytes += len as u64;
        self.at_once = DoneAtOnce::UNFENCED;
    }

    /// An atomic on a neighbour, where it is the fabric's; an element is asked, where there is one, and not
    /// needed. `false`: not possible so, nothing happened but that the lock may be held.
    ///
    /// # Safety
    /// As for [`Engine::post`].
    #[inline(never)]
    pub(super) unsafe fn atomic_near(&mut self, w: &mut Window<E::Region>, operation: &Operation) -> bool {
        let &Operation { kind, dtype, op, target, disp, len, .. } = operation;
        let Some(atomic) = operation.atomic() else { return false };
        let is_native = w.paths.of(kind, dtype, op) == Path::Native;
        if !is_native || !self.is_done_in_one_call(len) || !w.state().may_issue() {
            return false;
        }
        let count = len / dtype.size();
        let (t, direct) = match w.last_rank == target {
            true => (w.last_target, self.direct_to_last(w)),
            false => (NONE, self.near_way(w, target).map(NearTarget::direct)),
        };
        let Some(direct) = direct else { return false };
        let Some(at) = direct.locate(disp, len) else { return false };
        // SAFETY: the caller's promise.
        if !unsafe { self.endpoint.atomic_now(direct.peer, (atomic, count), at, dtype, op) } {
            return false;
        }
        w.fence_active = true;
        let atomic = (kind, dtype, op);
        // As of puts; the shortcut is for one element.
        let is_learnt = count == 1 && self.shortcut.is_flushed(w.id, target);
        if is_learnt && !self.shortcut.knows_atomic(w.id, target, atomic) {
            self.shortcut.learn_atomic(w.id, target, (t, atomic), &direct, self.limits.message_bytes_max);
            self.take_up_passage(w.id, target);
        } else {
            self.shortcut.note_posted();
        }
        self.counters.native_atomics += 1;
        self.counters.native_bytes += len as u64;
        // By line 16.
        self.at_once = DoneAtOnce::FENCED;
        true
    }

    /// The way to the target used last, if what is done there at once is behind everything else.
    #[inline(always)]
    fn direct_to_last(&self, w: &Window<E::Region>) -> Option<Direct> {
        let te = self.targets.get(w.last_target)?;
        let is_first = te.pending.is_empty() && te.native_outstanding() == 0;
        te.direct.filter(|direct| direct.at_once && is_first)
    }

    /// Opens the epoch of a lock on a neighbour that was locked before, without an element. `false`: with one.
    #[inline(always)]
    pub(super) fn park_lock(&mut self, w: &mut Window<E::Region>, target: Rank, lock_type: LockType) -> bool {
        let forgotten = self.peers.forgotten();
        let near = w.near.as_mut().and_then(|near| near.find(target, forgotten));
        let is_near = near.is_some_and(|near| near.place.is_some());
        if is_near {
            w.parked.insert_called(target, lock_type);
            self.called = (w.id, target);
        }
        is_near
    }
}
