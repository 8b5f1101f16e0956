//! Sleeping until the fabric, the launcher or the job has something to say.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{epoll, Timespec};

use crate::error::{Error, Result};

/// Descriptors on which one thread at a time sleeps.
///
/// They are watched for changes (edges), not for states: the descriptors of some providers stay readable when
/// nothing is to be done (libfabric's net, 1.16 and 1.17, does not reset its own when it is armed), and a
/// thread that sleeps on those would not sleep. Who sleeps has made progress until nothing moved; what comes
/// after that is an edge, and ends the sleep even if it comes before the sleep begins.
#[derive(Debug)]
pub(crate) struct Sleeper {
    set: OwnedFd,
}

impl Sleeper {
    /// A sleeper on these descriptors, which stay open as long as it is used.
    pub(crate) fn new(descriptors: &[i32], event: Option<&OwnedFd>) -> Result<Self> {
        let failed = |error| Error::system("a set of descriptors to sleep on cannot be made", &error);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        for &descriptor in descriptors {
            // SAFETY: the caller's endpoint and bootstrap keep their descriptors open meanwhile.
            let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&set, descriptor, epoll::EventData::new_u64(0), flags).map_err(failed)?;
        }
        if let Some(event) = event {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&set, event.as_fd(), data, epoll::EventFlags::IN).map_err(failed)?;
        }
        Ok(Self { set })
    }

    /// Sleeps until something changes, at most `timeout`. A signal ends it early, and so does an error: the
    /// caller looks for itself in any case.
    pub(crate) fn sleep(&self, timeout: Duration) {
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let nothing = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let _ = epoll::wait(&self.set, &mut [nothing; 4], Some(&timeout));
    }
}
