//! The guard around the engine: a lock that the thread which made it, its owner, enters without an atomic instruction
//! as long as no other thread of the program has come.
//!
//! The owner says that it is inside, by a plain store, and then looks whether it may be. Another thread takes the lock,
//! says that the owner may not, makes every processor that runs a thread of this process pass a full fence (the kernel's
//! `membarrier`), and then looks whether the owner is inside. So either the owner sees that it may not, or the other sees
//! that it is inside and waits: the fence that the owner would need on every entry is paid by who comes seldom.
//!
//! | state | who enters how |
//! | --- | --- |
//! | `OWNED` | the owner by its word alone; whoever else takes the lock first changes the state |
//! | `GUEST` | one that comes and goes has the lock: the owner has its privilege again when it leaves |
//! | `SHARING` | everybody by the lock, for good: two threads of the program take turns. The owner may still be inside |
//! | `SHARED` | the same, and the owner is out: who has the lock is in |

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::lock::Lock;
use crate::platform::{
    can_fence_all, fence_all, fence_own, is_this_thread, sleep, this_thread, yield_now, AtomicBool,
    AtomicU32, Ordering, ThreadMark,
};

/// The owner enters by its word; see the table above.
const OWNED: u32 = 0;
const GUEST: u32 = 1;
const SHARING: u32 = 2;
const SHARED: u32 = 3;

/// Times that who takes the privilege away yields until the owner is out, before it naps.
const YIELDS: u32 = 64;

/// Such a nap. The owner leaves after an operation, or a batch of polls.
const NAP: Duration = Duration::from_micros(20);

/// A value, and who may use it. The value comes first, so that who has the guard's address has the value's.
#[repr(C)]
pub(crate) struct Guard<T> {
    value: UnsafeCell<T>,
    /// Changed under the lock only.
    state: AtomicU32,
    /// The owner is inside, or about to look whether it may be; written by its thread alone.
    is_inside: AtomicBool,
    owner: ThreadMark,
    lock: Lock,
}

// SAFETY: the value is lent to one thread at a time, which is what the guard is for.
unsafe impl<T: Send> Sync for Guard<T> {}

/// What is undone when the guard is left. A number and no `enum`: a `Result` of [`Held`] would be told apart by one of
/// the values that an `enum` has not, which costs each call a look; so it is by the reference, which is never null.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leave(u8);

impl Leave {
    /// The owner's word.
    const WORD: Self = Self(0);
    /// The lock.
    const LOCK: Self = Self(1);
    /// The owner's word, then the lock.
    const BOTH: Self = Self(2);
    /// The state `GUEST`, then the lock.
    const GUEST: Self = Self(3);
}

/// The value, as long as this lives. It stays in its thread.
pub(crate) struct Held<'guard, T> {
    guard: &'guard Guard<T>,
    leave: Leave,
    value: PhantomData<(&'guard mut T, *const ())>,
}

impl<T> Guard<T> {
    /// The calling thread is the owner.
    pub(crate) fn new(value: T) -> Self {
        let state = if can_fence_all() { OWNED } else { SHARED };
        Self {
            state: AtomicU32::new(state),
            is_inside: AtomicBool::new(false),
            owner: this_thread(),
            lock: Lock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, unless somebody has it now.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        self.try_lock_quickly().or_else(|| self.try_lock_slowly())
    }

    /// The same where the state needs no change; `None` says nothing.
    #[inline]
    pub(crate) fn try_lock_quickly(&self) -> Option<Held<'_, T>> {
        match self.state.load(Ordering::Relaxed) {
            OWNED if self.enters_as_owner() => Some(self.held(Leave::WORD)),
            // Seen once, it is so for good.
            SHARED if self.lock.try_take() => Some(self.held(Leave::LOCK)),
            _ => None,
        }
    }

    /// The same for the owner, where nobody else has come: what leaves it again is known beforehand, and needs no call.
    #[inline]
    pub(crate) fn try_lock_as_owner(&self) -> Option<Held<'_, T>> {
        let may_be = self.state.load(Ordering::Relaxed) == OWNED && self.enters_as_owner();
        may_be.then(|| self.held(Leave::WORD))
    }

    /// The value, when it is this thread's turn.
    pub(crate) fn lock(&self) -> Held<'_, T> {
        if let Some(held) = self.try_lock_as_owner() {
            return held;
        }
        // It would wait for itself, or be let in twice.
        let is_inside = is_this_thread(self.owner) && self.is_inside.load(Ordering::Relaxed);
        assert!(!is_inside, "a call of the library was made inside of another one, in the same thread");
        self.lock.take();
        self.enter_for_good()
    }

    /// The value, unless somebody has it now, for a thread that comes seldom and leaves soon.
    pub(crate) fn try_lock_as_guest(&self) -> Option<Held<'_, T>> {
        // The owner is not disturbed by a fence that would not let this thread in.
        if self.is_inside.load(Ordering::Relaxed) || !self.lock.try_take() {
            return None;
        }
        let is_owned = self.state.load(Ordering::Relaxed) == OWNED;
        if is_owned {
            self.state.store(GUEST, Ordering::Relaxed);
            fence_all();
        }
        if !self.is_inside.load(Ordering::Acquire) {
            return Some(if is_owned { self.held_marked(Leave::GUEST) } else { self.held(Leave::LOCK) });
        }
        if is_owned {
            self.state.store(OWNED, Ordering::Release);
        }
        self.lock.give();
        None
    }

    /// Whether the calling thread is the owner, may enter by its word, and has.
    #[inline]
    fn enters_as_owner(&self) -> bool {
        // Inside already: a signal interrupted it there.
        if !is_this_thread(self.owner) || self.is_inside.load(Ordering::Relaxed) {
            return false;
        }
        self.is_inside.store(true, Ordering::Relaxed);
        fence_own();
        // Acquire: what the last guest did is seen.
        if self.state.load(Ordering::Acquire) == OWNED {
            return true;
        }
        self.is_inside.store(false, Ordering::Release);
        false
    }

    #[cold]
    #[inline(never)]
    fn try_lock_slowly(&self) -> Option<Held<'_, T>> {
        let is_owner = is_this_thread(self.owner);
        // By a signal's handler that interrupted the owner inside, this returns nothing.
        if is_owner && self.is_inside.load(Ordering::Relaxed) || !self.lock.try_take() {
            return None;
        }
        if is_owner {
            return Some(self.enter_for_good());
        }
        self.share();
        if !self.is_inside.load(Ordering::Acquire) {
            return Some(self.held_for_good());
        }
        self.lock.give();
        None
    }

    /// Enters with the lock, and waits until the owner is out if it has entered without.
    fn enter_for_good(&self) -> Held<'_, T> {
        if is_this_thread(self.owner) {
            if self.state.load(Ordering::Relaxed) != OWNED {
                return self.held_for_good();
            }
            // A signal's handler in this thread must not enter by the owner's word now.
            self.is_inside.store(true, Ordering::Relaxed);
            fence_own();
            return self.held_marked(Leave::BOTH);
        }
        self.share();
        let mut yields = 0;
        while self.is_inside.load(Ordering::Acquire) {
            match yields < YIELDS {
                true => yield_now(),
                false => sleep(NAP),
            }
            yields += 1;
        }
        self.held_for_good()
    }

    /// The owner has lost its privilege and is out, which this thread has seen under the lock.
    fn held_for_good(&self) -> Held<'_, T> {
        self.state.store(SHARED, Ordering::Relaxed);
        self.held(Leave::LOCK)
    }

    /// With the lock, and something to be undone before that is given back.
    fn held_marked(&self, leave: Leave) -> Held<'_, T> {
        self.lock.mark();
        self.held(leave)
    }

    /// Takes the owner's privilege away, under the lock; it may still be inside.
    fn share(&self) {
        if self.state.load(Ordering::Relaxed) == OWNED {
            self.state.store(SHARING, Ordering::Relaxed);
            fence_all();
        }
    }

    /// Leaves where others wait for the lock, or where the lock is not all: that it is marked leads here.
    #[cold]
    #[inline(never)]
    fn leave_slowly(&self, leave: Leave) {
        if leave == Leave::GUEST {
            self.state.store(OWNED, Ordering::Release);
        } else if leave == Leave::BOTH {
            self.is_inside.store(false, Ordering::Release);
        }
        self.lock.give();
    }

    #[inline]
    fn held(&self, leave: Leave) -> Held<'_, T> {
        Held { guard: self, leave, value: PhantomData }
    }
}

impl<T> fmt::Debug for Guard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state.load(Ordering::Relaxed) {
            OWNED => "owned",
            GUEST => "a guest's",
            _ => "shared",
        };
        f.debug_struct("Guard").field("state", &state).finish_non_exhaustive()
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard lets nobody else in as long as this lives.
        unsafe { &*self.guard.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this is borrowed mutably.
        unsafe { &mut *self.guard.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.leave == Leave::WORD {
            // Release: who is let in by it sees what was done here.
            self.guard.is_inside.store(false, Ordering::Release);
        } else if !self.guard.lock.try_give() {
            // By its parts, which stay in registers so.
            self.guard.leave_slowly(self.leave);
        }
    }
}
