//! Sleeping on descriptors. All that is unsafe here is to borrow them by number.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

/// Descriptors at one time: the endpoint's, the bootstrap's, the agent's event.
pub(crate) const DESCRIPTORS: usize = 3;

/// Sleeps until one of the descriptors can be read, at most `timeout`. A signal ends it early, and so
/// does an error: the caller looks for itself in any case.
pub(crate) fn until_readable(descriptors: [Option<i32>; DESCRIPTORS], timeout: Duration) {
    let Some(some) = descriptors.iter().flatten().next() else {
        return std::thread::sleep(timeout);
    };
    let borrowed = descriptors.map(|fd| {
        // SAFETY: the callers keep what owns the descriptors open: endpoint and bootstrap until the job's
        // threads and its agent have ended, the agent's own event as long as it runs.
        unsafe { BorrowedFd::borrow_raw(fd.unwrap_or(*some)) }
    });
    let mut fds: [PollFd<'_>; DESCRIPTORS] =
        std::array::from_fn(|index| PollFd::from_borrowed_fd(borrowed[index], PollFlags::IN));
    let timeout = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let _ = rustix::event::poll(&mut fds, Some(&timeout));
}
