//! A thread that cannot be cancelled (`pthread_cancel`) while the library may be inside of it.
//!
//! A cancelled thread would leave the guard taken and the other ranks waiting. And that it could be costs: from the second
//! thread of a process on, glibc (2.36 at least) makes every call of the kernel that is a point of cancellation, as are `send`,
//! `recv` and `epoll_wait`, one that may be cancelled meanwhile, which takes it two atomic instructions or 50 ns; but not in a
//! thread that may be cancelled anywhere. So this one may be, as soon as it may be at all: a round trip over tcp has some
//! eight such calls in it.
#![allow(unsafe_code)] // calls of the C library

use std::cell::Cell;
use std::ffi::c_int;

use crate::platform::{is_this_thread, this_thread, ThreadMark};

// Not in the `libc` crate for Linux; the numbers are those of glibc and musl.
const DISABLE: c_int = 1;
const ASYNCHRONOUS: c_int = 1;

extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

thread_local! {
    /// How many there are in this thread, and what it was before the first of them.
    static HELD: Cell<(u32, c_int, c_int)> = const { Cell::new((0, 0, 0)) };
}

/// That the calling thread cannot be cancelled, until this is dropped there, and all others that were made there.
#[derive(Debug)]
pub(crate) struct Uncancelled {
    thread: ThreadMark,
}

impl Uncancelled {
    pub(crate) fn this_thread() -> Self {
        let (count, state, kind) = HELD.get();
        HELD.set(match count {
            // In this order: it may be cancelled anywhere only when it cannot be at all.
            0 => (1, set_state(DISABLE), set_kind(ASYNCHRONOUS)),
            _ => (count + 1, state, kind),
        });
        Self { thread: this_thread() }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // In another thread there is nothing to be done: what is that one's stays as it is.
        if !is_this_thread(self.thread) {
            return;
        }
        let (count, state, kind) = HELD.get();
        HELD.set((count - 1, state, kind));
        if count == 1 {
            set_kind(kind);
            set_state(state);
        }
    }
}

/// Sets whether the calling thread can be cancelled, and says whether it could.
fn set_state(state: c_int) -> c_int {
    let mut before = 0;
    // SAFETY: the number it was is written to a place that is there; the call fails for other states only.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}

/// Sets where it can be.
fn set_kind(kind: c_int) -> c_int {
    let mut before = 0;
    // SAFETY: as above; whoever lets it be cancelled anywhere has seen to it that it is not.
    unsafe { pthread_setcanceltype(kind, &raw mut before) };
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> (c_int, c_int) {
        let (state, kind) = (set_state(DISABLE), set_kind(ASYNCHRONOUS));
        set_kind(kind);
        set_state(state);
        (state, kind)
    }

    #[test]
    fn a_thread_is_as_it_was_behind_the_last() {
        let before = now();
        assert_ne!(before, (DISABLE, ASYNCHRONOUS));
        let (first, second) = (Uncancelled::this_thread(), Uncancelled::this_thread());
        drop(first);
        assert_eq!(now(), (DISABLE, ASYNCHRONOUS));
        drop(second);
        assert_eq!(now(), before);
    }

    #[test]
    fn another_thread_is_left_alone() {
        let here = Uncancelled::this_thread();
        let another = std::thread::spawn(|| {
            let before = now();
            let there = Uncancelled::this_thread();
            drop(here);
            assert_eq!(now(), (DISABLE, ASYNCHRONOUS));
            drop(there);
            assert_eq!(now(), before);
        });
        another.join().unwrap();
        assert_eq!(now(), (DISABLE, ASYNCHRONOUS));
    }
}
