//! Locks that nobody waits for any more: each is given back as soon as it is there. The call that has asked for it was told
//! that it has opened no epoch, so that the next one of its kind begins when nothing is left of this.

use crate::bootstrap::Bootstrap;
use crate::epoch::LockAllCursor;
use crate::ids::Rank;
use crate::pool::NONE;
use crate::progress::Process;
use crate::provider::Endpoint;
use crate::state::WindowState;
use crate::table::{LeftCall, Shortcut};
use crate::window::{SelfLock, Walk, Window};

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Gives up the lock of a target that has been asked for it.
    #[cold]
    pub(crate) fn give_up_lock(&mut self, w: &mut Window<E::Region>, t: u32) {
        self.targets[t].left = LeftCall::Lock;
        w.is_given_up = true;
        if w.walk == Walk::None {
            w.walk = Walk::GivenUp;
        }
        self.want_unlock(w, t);
        self.settle_given_up(w);
    }

    /// Gives up all locks of a lock_all for which others have been asked. Nothing was posted.
    #[cold]
    pub(crate) fn give_up_lock_all(&mut self, w: &mut Window<E::Region>) {
        (w.is_given_up, w.is_closing) = (true, true);
        (w.direct_put, w.direct_get) = (false, false);
        self.shortcut = Shortcut::NONE;
        self.release_self(w);
        if w.state() == WindowState::LockAllCalled {
            w.walk = Walk::GivenUp;
            let mut t = w.slots.next(&self.targets, NONE);
            while let Some(index) = t {
                self.want_unlock(w, index);
                t = w.slots.next(&self.targets, index);
            }
        }
        self.settle_given_up(w);
    }

    /// Goes on with that.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle_given_up(&mut self, w: &mut Window<E::Region>) {
        match w.state() {
            WindowState::LockAllCalled if self.sync_phase_win(w).is_some() => {}
            WindowState::LockAllCalled => self.end_given_up(w),
            // Everybody is locked first.
            WindowState::LockAllIssued => {}
            WindowState::LockAllGranted if w.walk != Walk::Unlock => {
                (w.walk, w.cursor) = (Walk::Unlock, LockAllCursor::over(self.size));
                w.dirty = true;
                while let Some(t) = w.slots.next(&self.targets, NONE) {
                    self.free_target(w, t);
                }
                // What the fabric does not take now is offered again by progress.
                let _ = self.walk(w);
            }
            WindowState::LockAllGranted if w.cursor.is_done() => self.end_given_up(w),
            WindowState::LockAllGranted => {}
            _ => self.free_given_up(w),
        }
    }

    fn end_given_up(&mut self, w: &mut Window<E::Region>) {
        while let Some(t) = w.slots.next(&self.targets, NONE) {
            self.free_target(w, t);
        }
        (w.walk, w.is_given_up) = (Walk::None, false);
        self.end_lock_all(w);
    }

    /// Frees the elements whose locks were given back.
    fn free_given_up(&mut self, w: &mut Window<E::Region>) {
        let mut is_left = false;
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            t = w.slots.next(&self.targets, index);
            if self.targets[index].left != LeftCall::Lock {
                continue;
            }
            self.cleanup_ops_target(w, index);
            match self.sync_phase(index) {
                Some(_) => is_left = true,
                None => self.free_target(w, index),
            }
        }
        if !is_left {
            (w.walk, w.is_given_up) = (Walk::None, false);
            self.leave_per_target(w);
        }
    }

    /// Locks of other ranks that were given up, and are not back yet.
    #[cold]
    pub(crate) fn count_given_up(&self, w: &Window<E::Region>) -> u32 {
        let mut count = 0;
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            count += u32::from(self.targets[index].left == LeftCall::Lock);
            t = w.slots.next(&self.targets, index);
        }
        count
    }

    /// Of a window where something was given up: whether nothing else is open there.
    #[cold]
    pub(crate) fn has_only_given_up(&self, w: &Window<E::Region>) -> bool {
        w.state() != WindowState::PerTarget
            || w.self_lock == SelfLock::None && w.remote_locks() == self.count_given_up(w)
    }

    /// Of a window where something was given up: whether it has to be over before the window's next epoch: to `target`, or to anybody.
    #[cold]
    pub(crate) fn has_given_up(&self, w: &Window<E::Region>, target: Option<Rank>) -> bool {
        let is_this = |target| {
            w.slots.find(&self.targets, target).is_some_and(|t| self.targets[t].left == LeftCall::Lock)
        };
        w.state() != WindowState::PerTarget || target.is_none_or(is_this)
    }
}
