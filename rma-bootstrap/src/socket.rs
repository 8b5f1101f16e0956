//! A connected stream socket that never blocks: bytes wait in here until it takes them, and what has
//! arrived is handed out. What the bytes mean is for [`crate::control`] and [`crate::pmi::channel`].

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{sockopt, RecvFlags, SendFlags, SocketType};

use crate::control::ControlError;

/// Most bytes that wait to be sent. A side that reads so little that this fills is taken for dead.
pub const UNSENT_BYTES_MAX: usize = 256 * 1024;

/// Bytes taken from the socket by one call.
const RECEIVE_BYTES: usize = 4096;

/// The socket and what waits to be sent.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    unsent: Vec<u8>,
    unsent_max: usize,
    ended: bool,
    traffic: Traffic,
}

/// Bytes that have passed a connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traffic {
    /// Bytes that the socket has taken.
    pub sent: u64,
    /// Bytes that have arrived.
    pub received: u64,
}

impl Socket {
    /// Takes over a connected stream socket.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        // The children of a rank must not keep the connection: its end tells the launcher something.
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self {
            fd,
            unsent: Vec::new(),
            unsent_max: UNSENT_BYTES_MAX,
            ended: false,
            traffic: Traffic::default(),
        })
    }

    /// Lets more than [`UNSENT_BYTES_MAX`] bytes wait, on a connection that carries what many ranks say.
    pub(crate) fn set_unsent_max(&mut self, max: usize) {
        self.unsent_max = max;
    }

    /// How many bytes wait to be sent.
    pub(crate) fn unsent_len(&self) -> usize {
        self.unsent.len()
    }

    /// What has passed so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Where the bytes of the next message are appended, unless the other side does not read.
    pub(crate) fn unsent(&mut self) -> Result<&mut Vec<u8>, ControlError> {
        if self.unsent.len() > self.unsent_max {
            return Err(ControlError::Overflow(self.unsent_max));
        }
        Ok(&mut self.unsent)
    }

    /// Whether something waits to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends what waits to be sent, as far as the socket takes it.
    pub(crate) fn flush(&mut self) -> Result<(), ControlError> {
        while !self.unsent.is_empty() {
            match rustix::net::send(&self.fd, &self.unsent, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    self.traffic.sent += sent as u64;
                    drop(self.unsent.drain(..sent));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(ControlError::Closed),
                Err(errno) => return Err(ControlError::System(errno.into())),
            }
        }
        Ok(())
    }

    /// Hands at most `wanted` bytes that have arrived to `take`. Returns whether there were any; none
    /// have arrived yet otherwise.
    pub(crate) fn receive<T>(
        &mut self,
        wanted: usize,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<bool, ControlError> {
        if self.ended {
            return Err(ControlError::Closed);
        }
        let mut bytes = [0; RECEIVE_BYTES];
        let wanted = wanted.min(RECEIVE_BYTES);
        loop {
            match rustix::net::recv(&self.fd, &mut bytes[..wanted], RecvFlags::empty()) {
                Ok((_, 0)) | Err(Errno::CONNRESET) => {
                    self.ended = true;
                    return Err(ControlError::Closed);
                }
                Ok((_, received)) => {
                    self.traffic.received += received as u64;
                    take(&bytes[..received]);
                    return Ok(true);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(ControlError::System(errno.into())),
            }
        }
    }

    /// Leaves the connection open until the process ends, whatever becomes of this value.
    pub(crate) fn keep_until_exit(&self) {
        // A process that may open nothing more has it end with this value.
        if let Ok(kept) = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0) {
            std::mem::forget(kept);
        }
    }

    /// Sleeps until something can be received (or, with `or_writable`, sent), at most `timeout`.
    /// Returns whether it can.
    pub(crate) fn wait(&self, or_writable: bool, timeout: Duration) -> io::Result<bool> {
        let wanted = if or_writable { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        wait_fd(self.fd.as_fd(), wanted, timeout)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sleeps until one of these events is there, at most `timeout`. Returns whether it is.
pub(crate) fn wait_fd(fd: BorrowedFd<'_>, wanted: PollFlags, timeout: Duration) -> io::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(fd, wanted)];
    let timeout = Timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        // A signal is no message: the caller looks again and comes back.
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Set when the inherited descriptor has found its owner: a second owner would close it twice.
static ADOPTED: AtomicBool = AtomicBool::new(false);

/// Takes over the connection that this process inherited as descriptor `fd`, whose number was in
/// `variable`.
///
/// # Errors
/// A message that says why the descriptor is not the connection to a launcher (any more) and what to do.
pub(crate) fn adopt(fd: i32, variable: &str) -> Result<OwnedFd, String> {
    if ADOPTED.swap(true, Ordering::AcqRel) {
        return Err(
            "this process has joined its job already, and can do so once; use the job of the first call"
                .into(),
        );
    }
    // SAFETY: `ADOPTED` makes this the only adoption in the process, and the launcher passed the descriptor
    // for this use alone. ManuallyDrop keeps it from being closed before it is known to be a socket; a
    // number that is not open makes the calls below fail with EBADF and is never closed.
    let socket = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    if sockopt::socket_type(&*socket) != Ok(SocketType::STREAM) {
        ADOPTED.store(false, Ordering::Release);
        return Err(format!(
            "{variable}={fd} is no control connection in this process; if a rank started it, it is not a rank \
             itself: start it without the launcher's variables, or with RMA_BOOTSTRAP=single for a job of one rank"
        ));
    }
    Ok(ManuallyDrop::into_inner(socket))
}

/// Keeps an inherited connection that this process does not use itself from programs that it starts: a
/// program of theirs could join the job in its place.
pub(crate) fn keep_from_children(fd: i32) {
    if fd <= 2 {
        return;
    }
    // SAFETY: the descriptor is only borrowed, to set a flag; a number that is not open makes the call fail.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // It may have been closed on the way here, and then nobody inherits it.
    let _ = rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC);
}
