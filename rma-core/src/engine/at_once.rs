//! Calls of passive targets that are over when they return, as they are among neighbours. Where one cannot be, or not as far as
//! can be seen at a glance, the answer is `false`, and nothing has happened that the usual way would not do as well. Every
//! call asks here first: the blocking ones of the layer above before anything that waits is made, `start_*` otherwise.
//!
//! What is here only knows in which cases the usual way has nothing else to do, and calls the same parts of it.

use super::Engine;
use crate::bootstrap::Bootstrap;
use crate::ids::{Rank, WindowId};
use crate::info::Flavor;
use crate::lock::words::{holder_of, Claim, Word};
use crate::lock::LockType;
use crate::pool::NONE;
use crate::progress::Process;
use crate::provider::Endpoint;
use crate::state::{TargetLockState, WindowState};
use crate::table::{ParkedLock, Sync};
use crate::window::{SelfLock, Walk, Window, Words};

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Begins a lock epoch to another rank, as [`Engine::start_lock`] does, where that is all to be done.
    #[inline]
    pub fn lock_at_once(&mut self, window: WindowId, target: Rank, lock_type: LockType) -> bool {
        self.repeat_lock(window, target, lock_type) || self.lock_anew(window, target, lock_type)
    }

    #[inline(never)]
    fn lock_anew(&mut self, window: WindowId, target: Rank, lock_type: LockType) -> bool {
        match self.windows.get_mut(window) {
            Some(w) if self.process.has_words(w) => self.process.lock_by_words(w, target, lock_type),
            _ => false,
        }
    }

    /// Ends it, as [`Engine::start_unlock`] does, where everything is complete and the lock can be given back at once.
    #[inline]
    pub fn unlock_at_once(&mut self, window: WindowId, target: Rank) -> bool {
        self.end_repeated(window, target) || self.unlock_any(window, target)
    }

    #[inline(never)]
    fn unlock_any(&mut self, window: WindowId, target: Rank) -> bool {
        match self.windows.get_mut(window) {
            Some(w) if self.process.has_words(w) => {
                if !self.process.unlock_by_words(w, target) {
                    return false;
                }
                if let Some(repeated) = self.process.expect_again(w, Some(target)) {
                    self.expect(repeated);
                }
                true
            }
            _ => false,
        }
    }

    /// Begins a lock_all epoch, as [`Engine::start_lock_all`] does, where the own window's lock is free.
    #[inline]
    pub fn lock_all_at_once(&mut self, window: WindowId) -> bool {
        self.repeat_lock_all(window) || self.lock_all_anew(window)
    }

    #[inline(never)]
    fn lock_all_anew(&mut self, window: WindowId) -> bool {
        match self.windows.get_mut(window) {
            Some(w) if self.process.has_words(w) => self.process.lock_all_by_words(w),
            _ => false,
        }
    }

    /// Ends it, as [`Engine::start_unlock_all`] does, where everything is complete and every lock can be given back at once.
    #[inline]
    pub fn unlock_all_at_once(&mut self, window: WindowId) -> bool {
        self.end_repeated_everywhere(window) || self.unlock_all_any(window)
    }

    #[inline(never)]
    fn unlock_all_any(&mut self, window: WindowId) -> bool {
        match self.windows.get_mut(window) {
            Some(w) if self.process.has_words(w) => {
                if !self.process.unlock_all_by_words(w) {
                    return false;
                }
                if let Some(repeated) = self.process.expect_again(w, None) {
                    self.expect(repeated);
                }
                true
            }
            _ => false,
        }
    }

    /// Completes what was posted to a target, as [`Engine::start_flush`] does, where that was complete at once; who has asked
    /// [`Engine::is_flushed`] in vain asks here.
    #[inline]
    pub fn flush_at_once(&mut self, window: WindowId, target: Rank) -> bool {
        !self.process.at_once.is_nothing()
            && (self.find_flushed(window, target) || self.flush_parked(window, target))
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Whether the window is locked by words, no rank has died, and the last epoch has left nothing behind. All calls look
    /// here, and most need no more.
    #[inline]
    fn has_words(&self, w: &Window<E::Region>) -> bool {
        w.words.is_some() && w.usable && !w.has_leftover() && self.failure.is_none()
    }

    #[inline(always)]
    fn lock_by_words(&mut self, w: &mut Window<E::Region>, target: Rank, lock_type: LockType) -> bool {
        let is_idle = matches!(w.state(), WindowState::Unset | WindowState::PerTarget);
        let is_other = target.0 < self.size && target != self.rank;
        // Of a shared window the lock is to be held when the call returns.
        if !is_idle || !is_other || w.flavor == Flavor::Shared || w.parked.contains(target) {
            return false;
        }
        // Whichever element is given up later, the lock that it was for can be written down.
        let has_room = w.parked.make_room(w.slots.count() + 1);
        if !has_room || w.find(&self.targets, target).is_some() || w.transition(|s| s.on_lock()).is_err() {
            return false;
        }
        if !self.park_lock(w, target, lock_type) {
            self.open_lock(w, ParkedLock::called(target, lock_type, false));
            // The next operation is to this one.
            w.find(&self.targets, target);
        }
        true
    }

    #[inline(always)]
    fn unlock_by_words(&mut self, w: &mut Window<E::Region>, target: Rank) -> bool {
        if w.state() != WindowState::PerTarget || target == self.rank || !w.late.is_empty() {
            return false;
        }
        // Seed table: UNLOCK, MEM_SYNC before PROC_SYNC.
        w.mem_sync();
        if w.parked.count() == 0 || !self.leave_parked(w, target) {
            let Some(t) = w.find(&self.targets, target) else { return false };
            if !self.leave_at_once(w, t) {
                return false;
            }
            self.free_target(w, t);
        }
        self.leave_per_target(w);
        self.pass_fence();
        true
    }

    /// Row LOCK_ALL of docs/shared-memory.md: the own share is taken by a swap, or is held already by an epoch that took it so;
    /// those of others are taken by the operations that want them.
    #[inline(never)]
    fn lock_all_by_words(&mut self, w: &mut Window<E::Region>) -> bool {
        if w.state() != WindowState::Unset || w.exposure.is_open() || w.flavor == Flavor::Shared {
            return false;
        }
        // Who asks in vain gives the lock back when it comes, and asks again.
        let is_taken = |words: &Words<E::Region>| holder_of(words.look()[Word::Holder as usize]).is_some();
        if w.words.as_deref().is_some_and(is_taken) {
            return false;
        }
        if !self.take_own_share(w) {
            if !self.take_own_words(w, Claim::Everywhere) {
                return false;
            }
            self.remember_own(w);
        }
        (w.self_lock, w.lock_all_no_check) = (SelfLock::Held, false);
        let is_open = w.transition(|state| state.on_lock_all()).is_ok();
        self.pass_fence();
        is_open
    }

    #[inline(never)]
    fn unlock_all_by_words(&mut self, w: &mut Window<E::Region>) -> bool {
        let is_settled = w.walk == Walk::None && w.acks.is_empty() && w.late.is_empty();
        let is_open = w.state() == WindowState::LockAllCalled && w.self_lock == SelfLock::Held;
        if !is_settled || !is_open || w.is_closing {
            return false;
        }
        // Seed table: UNLOCK_ALL, MEM_SYNC before PROC_SYNC.
        w.mem_sync();
        let is_of_one = w.parked.count() == 1 && w.slots.count() == 0;
        while let Some(rank) = w.parked.last() {
            if !self.leave_parked(w, rank) {
                return false;
            }
        }
        while let Some(t) = w.slots.next(&self.targets, NONE) {
            if !self.leave_at_once(w, t) {
                return false;
            }
            self.free_target(w, t);
        }
        if !is_of_one {
            self.left = None;
        }
        self.leave_own_share(w);
        self.end_lock_all(w);
        self.pass_fence();
        true
    }

    /// Gives back the lock of a target whose epoch ends, if there is nothing else to be done for that.
    #[inline]
    fn leave_at_once(&mut self, w: &mut Window<E::Region>, t: u32) -> bool {
        let te = &self.targets[t];
        let is_plain = te.lock == TargetLockState::Granted && te.sync == Sync::None && te.phases == 0;
        is_plain && self.leave_near_lock(w, t)
    }
}
