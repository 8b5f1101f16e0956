//! Who pays for the fences between two processes.
//!
//! A store and a look at either side stand against each other in [`crate::guard`], which takes a full fence at both. One
//! side comes with every access, the other when a region is taken back. The kernel lets the seldom side fence for both: `membarrier` makes every processor pass a full fence that runs a
//! process which has registered for that. So an owner that can says so in its head, and a peer that has registered, too,
//! then only keeps its accesses in the order of the program. Who has not fences for itself, which is as right.

use core::sync::atomic::{compiler_fence, fence, Ordering};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::thread::{membarrier, membarrier_query, MembarrierCommand};

/// Whether this process can fence for others that can, and they for it (Linux 4.16, where nothing forbids the call). It
/// registers when it is first asked.
pub(crate) fn are_shared() -> bool {
    static ARE: OnceLock<bool> = OnceLock::new();
    *ARE.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::GlobalExpedited)
            && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
    })
}

/// The frequent side's fence. `is_shared`: the other side fences for both.
#[inline]
pub(crate) fn frequent(is_shared: bool) {
    if is_shared {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The seldom side's. `is_shared`: it fences for the others. `false`: it could not, as the program has forbidden itself the call
/// since (seccomp).
#[cold]
pub(crate) fn seldom(is_shared: bool) -> bool {
    fence(Ordering::SeqCst);
    !is_shared || membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// The same, for who cannot do without.
#[cold]
pub(crate) fn seldom_anyhow(is_shared: bool) {
    if !seldom(is_shared) {
        // No processor is known to keep a store back for so long, which is no promise of any.
        std::thread::sleep(Duration::from_millis(1));
    }
}
