//! The control connection between a rank and its launcher: a stream socket that never blocks, with
//! whole messages going in and coming out. Both ends use it.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{sockopt, AddressFamily, RecvFlags, SendFlags, SocketType};

use crate::wire::{encode_frame, FrameReader, Message, WireError};

/// Most bytes that wait to be sent. A side that reads so little that this fills is taken for dead.
pub const UNSENT_BYTES_MAX: usize = 256 * 1024;

/// Bytes taken from the socket by one call.
const RECEIVE_BYTES: usize = 4096;

/// One end of a control connection.
#[derive(Debug)]
pub struct Control {
    socket: OwnedFd,
    reader: FrameReader,
    unsent: Vec<u8>,
    ended: bool,
}

/// Why a control connection is of no use any more.
#[derive(Debug)]
pub enum ControlError {
    /// The other side closed it.
    Closed,
    /// The other side sent what is no message, or this side tried to.
    Wire(WireError),
    /// The other side does not read what is sent to it.
    Overflow,
    /// The operating system failed it.
    System(io::Error),
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the other side closed the control connection"),
            Self::Wire(error) => error.fmt(f),
            Self::Overflow => write!(f, "the other side left more than {UNSENT_BYTES_MAX} bytes unread"),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ControlError {}

impl Control {
    /// Takes over a connected stream socket.
    ///
    /// # Errors
    /// When it cannot be made close-on-exec and non-blocking.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        // The children of a rank must not keep the connection: its end tells the launcher something.
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        let flags = rustix::fs::fcntl_getfl(&socket)?;
        rustix::fs::fcntl_setfl(&socket, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self { socket, reader: FrameReader::default(), unsent: Vec::new(), ended: false })
    }

    /// Sends a message as far as the socket takes it; the rest goes out with the next call.
    ///
    /// # Errors
    /// When the message breaks a limit of the protocol, or the other side is gone or does not read.
    pub fn send(&mut self, message: &impl Message) -> Result<(), ControlError> {
        if self.unsent.len() > UNSENT_BYTES_MAX {
            return Err(ControlError::Overflow);
        }
        encode_frame(message, &mut self.unsent).map_err(ControlError::Wire)?;
        self.flush()
    }

    /// Sends what waits to be sent, as far as the socket takes it.
    ///
    /// # Errors
    /// When the other side is gone.
    pub fn flush(&mut self) -> Result<(), ControlError> {
        while !self.unsent.is_empty() {
            match rustix::net::send(&self.socket, &self.unsent, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(ControlError::Closed),
                Err(errno) => return Err(ControlError::System(errno.into())),
            }
        }
        Ok(())
    }

    /// Whether something waits to be sent.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The next message that has arrived, if any. Never blocks.
    ///
    /// # Errors
    /// When the other side closed the connection (after everything it sent has been returned), or
    /// sent what is no message.
    pub fn receive<M: Message>(&mut self) -> Result<Option<M>, ControlError> {
        loop {
            if let Some(message) = self.reader.poll().map_err(ControlError::Wire)? {
                return Ok(Some(message));
            }
            if self.ended {
                return Err(ControlError::Closed);
            }
            let mut bytes = [0; RECEIVE_BYTES];
            let wanted = self.reader.room().min(RECEIVE_BYTES);
            match rustix::net::recv(&self.socket, &mut bytes[..wanted], RecvFlags::empty()) {
                Ok((_, 0)) | Err(Errno::CONNRESET) => self.ended = true,
                Ok((_, received)) => {
                    self.reader.push(&bytes[..received]);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(errno) => return Err(ControlError::System(errno.into())),
            }
        }
    }

    /// Sleeps until something can be received (or, with `or_writable`, sent), at most `timeout`.
    /// Returns whether it can.
    ///
    /// # Errors
    /// When the operating system refuses to wait.
    pub fn wait(&self, or_writable: bool, timeout: Duration) -> io::Result<bool> {
        let wanted = if or_writable { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds = [PollFd::new(&self.socket, wanted)];
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
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Set when the inherited descriptor has found its owner: a second owner would close it twice.
static ADOPTED: AtomicBool = AtomicBool::new(false);

/// Takes over the control connection that this process inherited as descriptor `fd`.
///
/// # Errors
/// A message that says why the descriptor is not a control connection (any more) and what to do.
pub(crate) fn adopt(fd: i32) -> Result<Control, String> {
    if ADOPTED.swap(true, Ordering::AcqRel) {
        return Err("this process has joined its job before: the bootstrap can be detected once".into());
    }
    // SAFETY: `ADOPTED` makes this the only adoption in the process, and `rmarun` passed the descriptor
    // for this use alone. ManuallyDrop keeps it from being closed before it is known to be a socket; a
    // number that is not open makes the calls below fail with EBADF and is never closed.
    let socket = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    let is_unix_stream = sockopt::socket_type(&*socket) == Ok(SocketType::STREAM)
        && sockopt::socket_domain(&*socket) == Ok(AddressFamily::UNIX);
    if !is_unix_stream {
        ADOPTED.store(false, Ordering::Release);
        return Err(format!(
            "RMA_CONTROL_FD={fd} is no control connection in this process; if a rank started it, it is not a rank \
             itself: start it with the RMA_* variables unset, or with RMA_SINGLE=1 for a job of one rank"
        ));
    }
    Control::new(ManuallyDrop::into_inner(socket))
        .map_err(|error| format!("control connection {fd}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Request;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn pair() -> (Control, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Control::new(ours.into()).unwrap(), theirs)
    }

    #[test]
    fn messages_before_the_end_are_delivered() {
        let (mut ours, mut theirs) = pair();
        assert!(matches!(ours.receive::<Request>(), Ok(None)));
        let mut bytes = Vec::new();
        encode_frame(&Request::Finalize, &mut bytes).unwrap();
        theirs.write_all(&bytes).unwrap();
        theirs.write_all(&bytes[..2]).unwrap();
        drop(theirs);
        assert!(matches!(ours.receive::<Request>(), Ok(Some(Request::Finalize))));
        assert!(matches!(ours.receive::<Request>(), Err(ControlError::Closed)));
        assert!(matches!(ours.send(&Request::Finalize), Err(ControlError::Closed)));
    }

    #[test]
    fn a_reader_that_never_reads_overflows_and_blocks_nobody() {
        let (mut ours, _theirs) = pair();
        let message = Request::Put { request: 0, key: "k".into(), value: vec![0; 1024] };
        let sent = (0..10_000).take_while(|_| ours.send(&message).is_ok()).count();
        assert!(sent < 10_000);
        assert!(matches!(ours.send(&message), Err(ControlError::Overflow)));
    }

    #[test]
    fn waits_no_longer_than_told() {
        let (ours, mut theirs) = pair();
        assert!(!ours.wait(false, Duration::from_millis(1)).unwrap());
        assert!(ours.wait(true, Duration::from_secs(10)).unwrap());
        theirs.write_all(b"x").unwrap();
        assert!(ours.wait(false, Duration::from_secs(10)).unwrap());
    }
}
