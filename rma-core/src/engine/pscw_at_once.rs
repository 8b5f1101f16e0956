//! post, start, complete and wait that are over when they return, as they are among neighbours: who tells by a word, and looks at
//! the words of a few, has nothing else to do. As of locks (`at_once.rs`), `false` says that it cannot be so, or not as far as can
//! be seen at a glance, and that nothing has happened that the usual way would not do as well; calls without promises ask here
//! first, but for test.

use super::Engine;
use crate::bootstrap::Bootstrap;
use crate::group::Group;
use crate::ids::WindowId;
use crate::info::Flavor;
use crate::progress::Process;
use crate::provider::Endpoint;
use crate::state::WindowState;
use crate::window::{Told, Window};

/// Members of a group, at most, that are told or looked at one by one.
const ONE_BY_ONE_MAX: usize = 8;

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Opens an exposure epoch and tells its members, as [`Engine::start_post`] does without promises.
    #[inline]
    pub fn post_at_once(&mut self, window: WindowId, group: &Group) -> bool {
        match self.windows.get_mut(window) {
            Some(w) if self.process.tells_by_words(w) && self.process.is_of_others(group) => {
                self.process.expose_at_once(w, group)
            }
            _ => false,
        }
    }

    /// Opens an access epoch, as [`Engine::start_start`] does without promises.
    #[inline]
    pub fn start_at_once(&mut self, window: WindowId, group: &Group) -> bool {
        match self.windows.get_mut(window) {
            Some(w) if self.process.tells_by_words(w) && self.process.is_of_others(group) => {
                self.process.access_at_once(w, group)
            }
            _ => false,
        }
    }

    /// Ends it, as [`Engine::start_complete`] does, where every member has posted, and everything is complete.
    #[inline]
    pub fn complete_at_once(&mut self, window: WindowId) -> bool {
        match self.windows.get_mut(window) {
            Some(w) if self.process.tells_by_words(w) => self.process.complete_by_words(w),
            _ => false,
        }
    }

    /// Ends the exposure epoch, as [`Engine::start_wait`] does, where every member has completed. `Some(false)`: not yet, as far
    /// as is known, and the next that completes may tell so by a word; it is worth asking once more.
    #[inline]
    pub fn wait_at_once(&mut self, window: WindowId) -> Option<bool> {
        let w = self.windows.get_mut(window)?;
        if !self.process.tells_by_words(w) || !w.exposure.has_at_most(ONE_BY_ONE_MAX) {
            return None;
        }
        match self.process.hear_members_completes(w) {
            true => Some(true),
            false => self.process.is_told_of_end(w).then_some(false),
        }
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Whether ranks tell each other of the window's epochs by words, as far as they are neighbours, and no rank has died.
    #[inline(always)]
    fn tells_by_words(&self, w: &Window<E::Region>) -> bool {
        let is_plain = w.line.is_some() && !w.is_served && w.checker.is_none();
        is_plain && w.usable && self.failure.is_none() && !self.is_mourning()
    }

    /// Whether the group is one of a few other ranks.
    #[inline(always)]
    fn is_of_others(&self, group: &Group) -> bool {
        let len = group.len();
        let is_in_job =
            len.checked_sub(1).and_then(|last| group.at(last)).is_none_or(|last| last.0 < self.size);
        len <= ONE_BY_ONE_MAX && is_in_job && group.place(self.rank).is_none()
    }

    #[inline(always)]
    fn expose_at_once(&mut self, w: &mut Window<E::Region>, group: &Group) -> bool {
        let state = w.state();
        let is_free =
            matches!(state, WindowState::Unset | WindowState::PscwIssued | WindowState::PscwGranted)
                || state.is_fence() && !w.fence_active;
        if !is_free || w.exposure.is_open() || w.is_locked() {
            return false;
        }
        // Seed table: POST, MEM_SYNC before PROC_SYNC.
        w.mem_sync();
        w.exposure.open(group, false);
        while let Some(rank) = w.exposure.poll_notice() {
            if !self.tell_at_once(w, Told::Post, rank) {
                self.send_other_notices(w);
                break;
            }
            w.exposure.on_noticed();
        }
        true
    }

    /// The notices from the first on that was not told at once.
    #[cold]
    #[inline(never)]
    fn send_other_notices(&mut self, w: &mut Window<E::Region>) {
        self.send_notices(w);
        self.lose_the_dead(w);
    }

    #[inline(always)]
    fn access_at_once(&mut self, w: &mut Window<E::Region>, group: &Group) -> bool {
        let state = w.state();
        let is_free = state == WindowState::Unset || state.is_fence() && !w.fence_active;
        // What an earlier epoch has left, or an earlier notice. Of a shared window the posts are to be here when the call returns.
        let is_clear = !w.access.is_open() && w.slots.count() == 0 && !w.is_given_up && w.notices.is_quiet();
        if !is_free || !is_clear || w.flavor == Flavor::Shared || w.transition(WindowState::on_start).is_err()
        {
            return false;
        }
        self.access_sequence = self.access_sequence.wrapping_add(1);
        w.access.open(group, false, self.access_sequence);
        self.hear_members_posts(w);
        true
    }

    #[inline(always)]
    fn complete_by_words(&mut self, w: &mut Window<E::Region>) -> bool {
        let is_open = w.state().is_pscw() && !w.access.is_completing() && !w.access.is_unchecked();
        let is_complete =
            w.slots.count() == 0 && w.acks.is_empty() && w.late.is_empty() && w.notices.is_quiet();
        if !is_open || !is_complete {
            return false;
        }
        // Who was not accessed may have posted since.
        let have_posted =
            w.access.all_granted() || w.access.has_at_most(ONE_BY_ONE_MAX) && self.hear_members_posts(w);
        if !have_posted {
            return false;
        }
        // Seed table: COMPLETE, MEM_SYNC before PROC_SYNC.
        w.mem_sync();
        let mut from = 0;
        while let Some((place, rank)) = w.access.poll_close(from) {
            if !self.tell_at_once(w, Told::Complete, rank) {
                return false;
            }
            w.access.on_closed(rank);
            from = place + 1;
        }
        w.access.end();
        // As a guard: there is a way to an element, or behind a flush, and of such epochs neither is left.
        self.shortcut.forget_window(w.id);
        w.transition(WindowState::on_complete).is_ok()
    }

    /// Takes in which members have posted; whether all have. None has an element yet.
    #[inline(always)]
    fn hear_members_posts(&mut self, w: &mut Window<E::Region>) -> bool {
        let (me, Some(line)) = (self.rank, &mut w.line) else { return false };
        let news = w.access.hear_posts(|from| line.take_told(Told::Post, from, me));
        self.steps_at_once += news;
        self.note_all_granted(w);
        w.access.all_granted()
    }

    /// Whether the member of the exposure epoch that is awaited next tells of its COMPLETE by a word, and waits for nothing that
    /// this rank has left to progress: a notice, or what a complete has kept.
    #[inline(never)]
    fn is_told_of_end(&mut self, w: &Window<E::Region>) -> bool {
        let is_all_done = w.exposure.poll_notice().is_none() && !w.has_leftover();
        is_all_done && w.exposure.awaited().is_some_and(|rank| self.is_neighbour(rank))
    }

    /// Takes in which members have completed, and ends the epoch if all have.
    #[inline(always)]
    fn hear_members_completes(&mut self, w: &mut Window<E::Region>) -> bool {
        let (me, Some(line)) = (self.rank, &mut w.line) else { return false };
        let news = w.exposure.hear_completes(|from| line.take_told(Told::Complete, from, me));
        self.steps_at_once += news;
        let is_over = w.exposure.is_over();
        if is_over {
            // Seed table: WAIT/TEST, MEM_SYNC after PROC_SYNC.
            w.mem_sync();
            w.exposure.end();
        }
        is_over
    }
}
