//! A lock of one word, for the guard: to take it and to give it back are an atomic instruction each, in the caller.
//!
//! It is no `std::sync::Mutex` because who holds that holds an object of it, which is carried through memory with
//! whatever is guarded; this one is given back by whoever knows that it is held.

use crate::platform::{hint_spin, AtomicU32, Ordering, Parking, SPINS};

/// Nobody has it.
const FREE: u32 = 0;
/// Somebody has it.
const TAKEN: u32 = 1;
/// Somebody has it, and others may sleep until it is free.
const AWAITED: u32 = 2;
/// Somebody has it, and does not give it back at once.
const MARKED: u32 = 3;

#[derive(Debug)]
pub(crate) struct Lock {
    word: AtomicU32,
    parking: Parking,
}

impl Lock {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(FREE), parking: Parking::new() }
    }

    /// Takes it, unless somebody has it.
    #[inline]
    pub(crate) fn try_take(&self) -> bool {
        // Acquire: what was done by who had it last is seen.
        self.word.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes it when it is this thread's turn.
    pub(crate) fn take(&self) {
        for _ in 0..SPINS {
            if self.try_take() {
                return;
            }
            if self.word.load(Ordering::Relaxed) == AWAITED {
                break;
            }
            hint_spin();
        }
        // Whether others sleep, too, this thread does not know: who gives it back looks.
        while self.word.swap(AWAITED, Ordering::Acquire) != FREE {
            self.parking.wait(&self.word, AWAITED, None);
        }
    }

    /// Makes [`Lock::try_give`] of who has it fail.
    pub(crate) fn mark(&self) {
        // Where others sleep it fails in any case.
        let _ = self.word.compare_exchange(TAKEN, MARKED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Gives it back, if that is all that there is to do. Only who has it may.
    #[inline]
    pub(crate) fn try_give(&self) -> bool {
        // Release: who has it next sees what was done.
        self.word.compare_exchange(TAKEN, FREE, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Gives it back. Only who has it may.
    pub(crate) fn give(&self) {
        if self.word.swap(FREE, Ordering::Release) == AWAITED {
            self.parking.wake_one(&self.word);
        }
    }
}
