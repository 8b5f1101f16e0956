//! Who has the guard, who gets it next, and who is woken when something has moved.
//!
//! A thread that waits for its call makes progress for all of them, so it must neither keep the guard from
//! a thread that wants to post, nor sleep on when another thread took from the endpoint what it waits
//! for. Hence two rules. Who waits for the guard says so, and who polls in a loop then stops, and does not
//! come back before somebody else had his turn. And who makes something move tells those who sleep: one
//! thread, the *sentinel*, sleeps on the descriptors; the others, the *listeners*, sleep until they are
//! told, and one of them becomes the next sentinel when it has left.

use std::time::Duration;

use super::{Core, Guarded, Held, Sleeping};
use crate::platform::{yield_now, Ordering, Sleeper};

/// Times that a thread which polls in a loop yields for another one that wants the guard.
const YIELDS: u32 = 64;

impl Sleeping {
    /// Whether somebody wants to be told.
    #[inline]
    pub(super) fn is_anybody(&self) -> bool {
        self.listeners > 0 || (self.has_sentinel && !self.is_rung)
    }
}

impl Core {
    /// The engine, whatever state the job is in. A thread that panicked with it has left an engine whose calls are
    /// each complete.
    #[inline]
    pub(crate) fn enter_anyway(&self) -> Held<'_, Guarded> {
        match self.guard.try_lock_quickly() {
            Some(guarded) => guarded,
            None => self.enter_slowly(),
        }
    }

    #[cold]
    #[inline(never)]
    fn enter_slowly(&self) -> Held<'_, Guarded> {
        if let Some(guarded) = self.guard.try_lock() {
            return guarded;
        }
        self.contenders.fetch_add(1, Ordering::SeqCst);
        let guarded = self.guard.lock();
        self.turns.fetch_add(1, Ordering::SeqCst);
        self.contenders.fetch_sub(1, Ordering::SeqCst);
        guarded
    }

    /// The engine, for a thread that only polls: as long as another one does that, it need not hurry, and does
    /// not take the other's turn. Bounded: then it asks as everybody does.
    pub(super) fn enter_to_poll(&self) -> Held<'_, Guarded> {
        for _ in 0..YIELDS {
            if let Some(guarded) = self.try_enter() {
                return guarded;
            }
            yield_now();
        }
        self.enter_anyway()
    }

    /// The engine, unless somebody has it now.
    pub(crate) fn try_enter(&self) -> Option<Held<'_, Guarded>> {
        self.guard.try_lock()
    }

    /// The same for the agent, which comes when the program is elsewhere.
    pub(super) fn try_visit(&self) -> Option<Held<'_, Guarded>> {
        self.guard.try_lock_as_guest()
    }

    /// Whether another thread waits for the guard.
    #[inline]
    pub(super) fn is_contended(&self) -> bool {
        self.contenders.load(Ordering::Relaxed) > 0
    }

    /// Gives the guard to whoever waits for it, before this thread asks for it again. Bounded: a thread
    /// that was woken and does not run must not stop the others.
    pub(super) fn give_turn(&self, guarded: Held<'_, Guarded>) {
        let seen = self.turns.load(Ordering::SeqCst);
        drop(guarded);
        for _ in 0..YIELDS {
            if !self.is_contended() || self.turns.load(Ordering::SeqCst) != seen {
                return;
            }
            yield_now();
        }
    }

    /// Wakes those who sleep in blocking calls: what they wait for may be there.
    #[cold]
    #[inline(never)]
    pub(super) fn tell(&self, guarded: &mut Guarded) {
        let sleeping = &mut guarded.sleeping;
        if sleeping.listeners > 0 {
            sleeping.listeners = 0;
            self.told.fetch_add(1, Ordering::Relaxed);
            self.news.wake_all(&self.told);
        }
        if sleeping.has_sentinel && !sleeping.is_rung {
            sleeping.is_rung = true;
            self.bell.ring();
        }
    }

    /// A thread leaves a blocking call: somebody else must watch the descriptors for those who listen, and who waits
    /// for what the call has given back must look.
    #[inline]
    pub(super) fn hand_over(&self, guarded: &mut Guarded) {
        let is_unwatched = guarded.sleeping.listeners > 0 && !guarded.sleeping.has_sentinel;
        let has_news = guarded.engine.take_target_news() && guarded.sleeping.is_anybody();
        if is_unwatched || has_news {
            self.tell(guarded);
        }
    }

    /// Sleeps on the descriptors, at most `length`. Returns at once when something is there already.
    pub(super) fn sleep_as_sentinel<'core>(
        &'core self,
        mut guarded: Held<'core, Guarded>,
        sleeper: &Sleeper,
        length: Duration,
    ) -> Held<'core, Guarded> {
        if !guarded.engine.arm_wait() {
            self.give_turn(guarded);
            yield_now();
            return self.enter_anyway();
        }
        self.hear(&mut guarded);
        (guarded.sleeping.has_sentinel, guarded.sleeping.is_rung) = (true, false);
        self.fall_asleep();
        drop(guarded);
        let is_stirred = sleeper.sleep(length);
        let mut guarded = self.enter_anyway();
        (guarded.sleeping.has_sentinel, guarded.sleeping.is_stirred) = (false, is_stirred);
        if guarded.sleeping.is_rung {
            self.bell.clear();
        }
        self.wake_up();
        guarded
    }

    /// Sleeps until somebody says that something has moved, at most `length`.
    pub(super) fn sleep_as_listener<'core>(
        &'core self,
        mut guarded: Held<'core, Guarded>,
        length: Duration,
    ) -> Held<'core, Guarded> {
        let told = self.told.load(Ordering::Relaxed);
        guarded.sleeping.listeners += 1;
        self.fall_asleep();
        drop(guarded);
        // Who is told between the two does not fall asleep: the number is another one.
        self.news.wait(&self.told, told, Some(length));
        let mut guarded = self.guard.lock();
        // Who tells has counted the listeners down.
        if self.told.load(Ordering::Relaxed) == told {
            guarded.sleeping.listeners -= 1;
        }
        self.wake_up();
        guarded
    }

    /// Sleeps without being told, for a while.
    pub(super) fn sleep_deaf<'core>(
        &'core self,
        guarded: Held<'core, Guarded>,
        length: Duration,
    ) -> Held<'core, Guarded> {
        self.fall_asleep();
        drop(guarded);
        crate::platform::sleep(length);
        let guarded = self.enter_anyway();
        self.wake_up();
        guarded
    }

    /// Under the guard, so that nobody can tell between this and the sleep without knowing of it.
    fn fall_asleep(&self) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
    }

    fn wake_up(&self) {
        if self.sleepers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.unpark_agent();
        }
    }
}
