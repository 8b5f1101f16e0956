//! In programs that are built for debugging: what of memory is registered, so that each buffer that libfabric is given
//! can be looked up there. Providers in software do not look at descriptors, and devices are not everywhere.

use core::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ofi_sys as fi;

/// A registration that is live.
#[derive(Debug)]
struct Line {
    base: usize,
    len: usize,
    access: u64,
    desc: usize,
}

type Lines = Mutex<Vec<Arc<Line>>>;

/// The registrations of one domain.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Absent where buffers need no descriptor, and in programs that are not built for debugging.
    lines: Option<Arc<Lines>>,
}

/// One line of a ledger, struck out when dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    line: Option<(Arc<Lines>, Arc<Line>)>,
}

fn locked(lines: &Lines) -> MutexGuard<'_, Vec<Arc<Line>>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ledger {
    /// Of a domain that is given registered buffers only, or any.
    pub(crate) fn new(is_kept: bool) -> Self {
        Self { lines: (cfg!(debug_assertions) && is_kept).then(Arc::default) }
    }

    /// Notes a registration.
    pub(crate) fn enter(&self, base: *const u8, len: usize, access: u64, desc: *mut c_void) -> Entry {
        let line = self.lines.as_ref().map(|lines| {
            let line = Arc::new(Line { base: base as usize, len, access, desc: desc as usize });
            locked(lines).push(Arc::clone(&line));
            (Arc::clone(lines), line)
        });
        Entry { line }
    }

    /// What is about to be given to libfabric lies in a registration that allows this access and is named, or needs
    /// none and names none.
    #[inline]
    pub(crate) fn check(&self, base: *const c_void, len: usize, desc: *mut c_void, access: u64) {
        if cfg!(debug_assertions) {
            self.look_up(base as usize, len, desc, access);
        }
    }

    /// The same for all buffers of a list.
    ///
    /// # Safety
    /// There are so many buffers, and as many descriptors or none.
    #[inline]
    pub(crate) unsafe fn check_list(
        &self,
        buffers: *const fi::iovec,
        descs: *mut *mut c_void,
        count: usize,
        access: u64,
    ) {
        if cfg!(debug_assertions) {
            for index in 0..count {
                // SAFETY: by the caller's promise; so below.
                let buffer = unsafe { buffers.add(index) };
                // SAFETY: as above.
                let buffer = unsafe { *buffer };
                let desc = if descs.is_null() {
                    descs.cast()
                } else {
                    // SAFETY: as above.
                    let desc = unsafe { descs.add(index) };
                    // SAFETY: as above.
                    unsafe { *desc }
                };
                self.check(buffer.iov_base, buffer.iov_len, desc, access);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self, base: usize, len: usize, desc: *mut c_void, access: u64) {
        let Some(lines) = &self.lines else {
            assert!(desc.is_null(), "a buffer has a descriptor that nobody asked for");
            return;
        };
        let covers = |line: &Arc<Line>| {
            line.desc == desc as usize
                && line.access & access == access
                && line.base <= base
                && len <= line.len
                && base - line.base <= line.len - len
        };
        assert!(
            locked(lines).iter().any(covers),
            "no live registration with descriptor {desc:?} and access {access:#x} has {len} bytes at {base:#x}"
        );
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some((lines, line)) = &self.line {
            locked(lines).retain(|other| !Arc::ptr_eq(other, line));
        }
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::panic::{catch_unwind, AssertUnwindSafe};

    use super::*;

    fn passes(ledger: &Ledger, base: usize, len: usize, desc: usize, access: u64) -> bool {
        let check = || ledger.check(base as *const c_void, len, desc as *mut c_void, access);
        catch_unwind(AssertUnwindSafe(check)).is_ok()
    }

    #[test]
    fn what_is_not_in_a_live_registration_is_noticed() {
        let ledger = Ledger::new(true);
        let entry = ledger.enter(1000 as *const u8, 100, fi::FI_READ | fi::FI_WRITE, 7 as *mut c_void);
        assert!(passes(&ledger, 1000, 100, 7, fi::FI_WRITE) && passes(&ledger, 1099, 1, 7, fi::FI_READ));
        for (base, len, desc, access) in [
            (999, 2, 7, fi::FI_WRITE),
            (1099, 2, 7, fi::FI_WRITE),
            (1000, 100, 8, fi::FI_WRITE),
            (1000, 100, 0, fi::FI_WRITE),
            (1000, 100, 7, fi::FI_SEND),
        ] {
            assert!(!passes(&ledger, base, len, desc, access), "{base} {len} {desc} {access:#x}");
        }
        drop(entry);
        assert!(!passes(&ledger, 1000, 100, 7, fi::FI_WRITE));
    }

    #[test]
    fn where_none_is_asked_for_none_is_given() {
        let ledger = Ledger::new(false);
        assert!(passes(&ledger, 1000, 100, 0, fi::FI_WRITE));
        assert!(!passes(&ledger, 1000, 100, 7, fi::FI_WRITE));
    }
}
