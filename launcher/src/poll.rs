//! Waiting for any of many descriptors, each with a name of what it is.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, Timespec};
use rustix::io::Errno;

/// Sleeps until something is ready, at most `timeout`; returns what is. A signal ends the sleep as well.
///
/// # Errors
/// When the operating system does not let this process wait.
pub(crate) fn poll<T>(list: Vec<(T, PollFd<'_>)>, timeout: Option<Duration>) -> io::Result<Vec<T>> {
    let (names, mut fds): (Vec<T>, Vec<PollFd<'_>>) = list.into_iter().unzip();
    // One millisecond more, so that the deadline has passed when the sleep ends.
    let timeout = timeout.map(|timeout| timespec(timeout + Duration::from_millis(1)));
    match rustix::event::poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    Ok(names.into_iter().zip(&fds).filter(|(_, fd)| is_ready(fd)).map(|(name, _)| name).collect())
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
