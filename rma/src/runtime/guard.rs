//! The guard around the engine: a mutex that the thread which made it, its owner, enters without an atomic instruction
//! as long as no other thread of the program has come.
//!
//! The owner says that it is inside, by a plain store, and then looks whether it may be. Another thread takes the mutex,
//! says that the owner may not, makes every processor that runs a thread of this process pass a full fence (the kernel's
//! `membarrier`), and then looks whether the owner is inside. So either the owner sees that it may not, or the other sees
//! that it is inside and waits: the fence that the owner would need on every entry is paid by who comes seldom.
//!
//! | state | who enters how |
//! | --- | --- |
//! | `OWNED` | the owner by its word alone; whoever else takes the mutex first changes the state |
//! | `GUEST` | one that comes and goes has the mutex: the owner has its privilege again when it leaves |
//! | `SHARED` | everybody by the mutex, for good: two threads of the program take turns |

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use crate::platform::{
    can_fence_all, fence_all, fence_own, sleep, this_thread, yield_now, AtomicBool, AtomicU32, Condvar,
    Mutex, MutexGuard, Ordering, ThreadMark,
};

/// The owner enters by its word; see the table above.
const OWNED: u32 = 0;
const GUEST: u32 = 1;
const SHARED: u32 = 2;

/// Times that who takes the privilege away yields until the owner is out, before it naps.
const YIELDS: u32 = 64;

/// Such a nap. The owner leaves after an operation, or a batch of polls.
const NAP: Duration = Duration::from_micros(20);

/// A value, and who may use it.
pub(crate) struct Guard<T> {
    /// Changed under the mutex only.
    state: AtomicU32,
    /// The owner is inside, or about to look whether it may be; written by its thread alone.
    is_inside: AtomicBool,
    owner: ThreadMark,
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is lent to one thread at a time, which is what the guard is for.
unsafe impl<T: Send> Sync for Guard<T> {}

/// What is undone when the guard is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leave {
    /// The owner's word.
    Inside,
    /// The state `GUEST`.
    Guest,
    /// Nothing: the mutex is all.
    Mutex,
}

/// The value, as long as this lives.
pub(crate) struct Held<'guard, T> {
    guard: &'guard Guard<T>,
    /// `None`: the owner, by its word. Given back after `leave` has been undone.
    lock: Option<MutexGuard<'guard, ()>>,
    leave: Leave,
    /// Shared between threads only if references to the value may be; the lock keeps it in its thread.
    value: PhantomData<&'guard mut T>,
}

impl<T> Guard<T> {
    /// The calling thread is the owner.
    pub(crate) fn new(value: T) -> Self {
        let state = if can_fence_all() { OWNED } else { SHARED };
        Self {
            state: AtomicU32::new(state),
            is_inside: AtomicBool::new(false),
            owner: this_thread(),
            mutex: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, unless somebody has it now.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Held<'_, T>> {
        if self.enters_as_owner() {
            return Some(self.held(None, Leave::Inside));
        }
        self.try_lock_by_mutex()
    }

    /// The value, when it is this thread's turn.
    pub(crate) fn lock(&self) -> Held<'_, T> {
        if self.enters_as_owner() {
            return self.held(None, Leave::Inside);
        }
        // It would wait for itself, or be let in twice.
        let is_inside = self.owner == this_thread() && self.is_inside.load(Ordering::Relaxed);
        assert!(!is_inside, "a call of the library was made inside of another one, in the same thread");
        let lock = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
        self.enter_for_good(lock)
    }

    /// The value, unless somebody has it now, for a thread that comes seldom and leaves soon.
    pub(crate) fn try_lock_as_guest(&self) -> Option<Held<'_, T>> {
        // The owner is not disturbed by a fence that would not let this thread in.
        if self.is_inside.load(Ordering::Relaxed) {
            return None;
        }
        let lock = self.try_mutex()?;
        if self.state.load(Ordering::Relaxed) == OWNED {
            self.state.store(GUEST, Ordering::Relaxed);
            fence_all();
            if !self.is_inside.load(Ordering::Acquire) {
                return Some(self.held(Some(lock), Leave::Guest));
            }
            self.state.store(OWNED, Ordering::Release);
            return None;
        }
        let is_out = !self.is_inside.load(Ordering::Acquire);
        is_out.then(|| self.held(Some(lock), Leave::Mutex))
    }

    /// Lets others in until `news` is told, at most `length`.
    pub(crate) fn wait<'guard>(
        mut held: Held<'guard, T>,
        news: &Condvar,
        length: Duration,
    ) -> Held<'guard, T> {
        let guard = held.guard;
        let lock = held.lock.take();
        drop(held);
        let Some(lock) = lock else {
            // Nobody else has come, so nobody tells.
            sleep(length);
            return guard.lock();
        };
        let (lock, _) = news.wait_timeout(lock, length).unwrap_or_else(PoisonError::into_inner);
        guard.enter_for_good(lock)
    }

    /// Whether the calling thread is the owner, may enter by its word, and has.
    #[inline]
    fn enters_as_owner(&self) -> bool {
        let may_enter = self.state.load(Ordering::Relaxed) == OWNED && self.owner == this_thread();
        // Inside already: a signal interrupted it there.
        if !may_enter || self.is_inside.load(Ordering::Relaxed) {
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

    #[inline(never)]
    fn try_lock_by_mutex(&self) -> Option<Held<'_, T>> {
        if self.owner == this_thread() {
            // By a signal's handler that interrupted it inside, this returns nothing.
            let is_out = !self.is_inside.load(Ordering::Relaxed);
            return is_out.then(|| self.try_mutex()).flatten().map(|lock| self.enter_for_good(lock));
        }
        let lock = self.try_mutex()?;
        self.share();
        let is_out = !self.is_inside.load(Ordering::Acquire);
        is_out.then(|| self.held(Some(lock), Leave::Mutex))
    }

    /// Enters with the mutex, and waits until the owner is out if it has entered without.
    fn enter_for_good<'guard>(&'guard self, lock: MutexGuard<'guard, ()>) -> Held<'guard, T> {
        if self.owner == this_thread() {
            if self.state.load(Ordering::Relaxed) != OWNED {
                return self.held(Some(lock), Leave::Mutex);
            }
            // A signal's handler in this thread must not enter by the owner's word now.
            self.is_inside.store(true, Ordering::Relaxed);
            fence_own();
            return self.held(Some(lock), Leave::Inside);
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
        self.held(Some(lock), Leave::Mutex)
    }

    /// Takes the owner's privilege away, under the mutex; it may still be inside.
    fn share(&self) {
        if self.state.load(Ordering::Relaxed) == OWNED {
            self.state.store(SHARED, Ordering::Relaxed);
            fence_all();
        }
    }

    fn try_mutex(&self) -> Option<MutexGuard<'_, ()>> {
        match self.mutex.try_lock() {
            Ok(lock) => Some(lock),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    fn held<'guard>(&'guard self, lock: Option<MutexGuard<'guard, ()>>, leave: Leave) -> Held<'guard, T> {
        Held { guard: self, lock, leave, value: PhantomData }
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
        // Release: who is let in by it sees what was done here.
        match self.leave {
            Leave::Inside => self.guard.is_inside.store(false, Ordering::Release),
            Leave::Guest => self.guard.state.store(OWNED, Ordering::Release),
            Leave::Mutex => {}
        }
    }
}
