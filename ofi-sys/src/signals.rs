//! The program's signal handlers, kept while libraries are loaded.
//!
//! What libfabric is linked to may install handlers when it is loaded: Debian's does by way of libinfinipath, for
//! SIGTERM, SIGSEGV, SIGABRT and more, which call `exit` in the handler. That deadlocks where the signal meets a
//! lock of the loader's or the library's, and hides from whoever waits for the process what ended it. Ranks of `rmarun`
//! start with `IPATH_NO_BACKTRACE`, which keeps that library from doing so in the first place.

use core::ffi::c_int;
use core::{mem::MaybeUninit, ptr};
use std::sync::{Mutex, PoisonError};

/// Signals are numbered from 1 to this.
const SIGNAL_MAX: c_int = 64;

/// One at a time, or what one load has installed would be noted down by another as the program's.
static LOADING: Mutex<()> = Mutex::new(());

/// Runs `load`; then every signal is handled as before.
pub(crate) fn keeping_handlers<T>(load: impl FnOnce() -> T) -> T {
    let _guard = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    let handlers: Vec<_> = (1..=SIGNAL_MAX).filter_map(|signal| Some((signal, action(signal)?))).collect();
    let loaded = load();
    for (signal, before) in &handlers {
        if action(*signal).is_some_and(|now| now.sa_sigaction != before.sa_sigaction) {
            // SAFETY: `before` was in force a moment ago, and is so again.
            unsafe { libc::sigaction(*signal, before, ptr::null_mut()) };
        }
    }
    loaded
}

/// What is done on a signal; nothing for those that nobody may ask about.
fn action(signal: c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action it only writes the present one.
    let status = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroes are a valid action, and so is what the call has written.
    (status == 0).then(|| unsafe { action.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Library;

    fn actions() -> Vec<usize> {
        let all = (1..=SIGNAL_MAX).filter_map(|signal| Some(action(signal)?.sa_sigaction));
        keeping_handlers(|| all.collect())
    }

    #[test]
    fn opening_leaves_the_programs_handlers_in_force() {
        extern "C" fn handler(_: c_int) {}
        let before = actions();
        assert!(before.len() > 30, "the handlers can be asked for");
        // Where the library is, and is linked to what installs handlers; Debian's is.
        drop(Library::open(None));
        assert_eq!(actions(), before);
        let address = handler as extern "C" fn(c_int) as libc::sighandler_t;
        // SAFETY: the handler does nothing; nobody else cares for this signal.
        keeping_handlers(|| unsafe { libc::signal(libc::SIGWINCH, address) });
        assert_eq!(actions(), before);
    }
}
