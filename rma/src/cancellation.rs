//! A thread that cannot be cancelled (`pthread_cancel`) while the library may be inside of it.
//!
//! A cancelled thread would leave the guard taken and the other ranks waiting. And that it could be costs: from the second
//! thread of a process on, glibc (2.36 at least) makes every call of the kernel that is a point of cancellation, as are `send`,
//! `recv` and `epoll_wait`, one that may be cancelled meanwhile, which takes it two atomic instructions or 50 ns; but not in a
//! thread that may be cancelled anywhere. So this one may be, as soon as it may be at all: a round trip over tcp has some
//! eight such calls in it.
#![allow(unsafe_code)] // calls of the C library

use std::ffi::c_int;

use crate::platform::{is_this_thread, this_thread, ThreadMark};

// Not in the `libc` crate for Linux; the numbers are those of glibc and musl.
const DISABLE: c_int = 1;
const ASYNCHRONOUS: c_int = 1;

extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// That the calling thread cannot be cancelled, until this is dropped there.
#[derive(Debug)]
pub(crate) struct Uncancelled {
    thread: ThreadMark,
    state: c_int,
    kind: c_int,
}

impl Uncancelled {
    pub(crate) fn this_thread() -> Self {
        // In this order: it may be cancelled anywhere only when it cannot be at all.
        let state = set_state(DISABLE);
        Self { thread: this_thread(), state, kind: set_kind(ASYNCHRONOUS) }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        if is_this_thread(self.thread) {
            set_kind(self.kind);
            set_state(self.state);
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

    #[test]
    fn a_thread_is_as_it_was_afterwards() {
        let now = || {
            let state = set_state(DISABLE);
            let kind = set_kind(ASYNCHRONOUS);
            set_kind(kind);
            set_state(state);
            (state, kind)
        };
        let before = now();
        assert_ne!(before, (DISABLE, ASYNCHRONOUS));
        let uncancelled = Uncancelled::this_thread();
        assert_eq!(now(), (DISABLE, ASYNCHRONOUS));
        let uncancelled = std::thread::spawn(move || {
            let here = now();
            drop(uncancelled);
            assert_eq!(now(), here);
            Uncancelled::this_thread()
        })
        .join()
        .unwrap();
        assert_eq!(now(), (DISABLE, ASYNCHRONOUS));
        // That thread's.
        drop(uncancelled);
        assert_eq!(now(), (DISABLE, ASYNCHRONOUS));
        set_kind(before.1);
        set_state(before.0);
    }
}
