//! The control connection between a rank and its launcher: a stream socket that never blocks, with
//! whole messages going in and coming out. Both ends use it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::pmi::wire::PmiError;
use crate::socket::Socket;
use crate::wire::{encode_frame, FrameReader, Message, WireError};

pub use crate::socket::{Traffic, UNSENT_BYTES_MAX};

/// One end of a control connection.
#[derive(Debug)]
pub struct Control {
    socket: Socket,
    reader: FrameReader,
}

/// Why a control connection is of no use any more.
#[derive(Debug)]
pub enum ControlError {
    /// The other side closed it.
    Closed,
    /// The other side sent what is no message, or this side tried to.
    Wire(WireError),
    /// The same on a connection that speaks PMI.
    Pmi(PmiError),
    /// The other side does not read what is sent to it: more than this many bytes wait.
    Overflow(usize),
    /// The operating system failed it.
    System(io::Error),
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the other side closed the control connection"),
            Self::Wire(error) => error.fmt(f),
            Self::Pmi(error) => error.fmt(f),
            Self::Overflow(max) => write!(f, "the other side left more than {max} bytes unread"),
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
        Ok(Self { socket: Socket::new(socket)?, reader: FrameReader::default() })
    }

    /// As [`Control::new`], for a connection that carries what many ranks say: up to `max` bytes may wait to be
    /// sent before the other side is taken for dead.
    ///
    /// # Errors
    /// As [`Control::new`].
    pub fn with_unsent_max(socket: OwnedFd, max: usize) -> io::Result<Self> {
        let mut control = Self::new(socket)?;
        control.socket.set_unsent_max(max);
        Ok(control)
    }

    /// Queues a message without sending anything; [`Control::flush`] does.
    ///
    /// # Errors
    /// When the message breaks a limit of the protocol, or the other side does not read.
    pub fn queue(&mut self, message: &impl Message) -> Result<(), ControlError> {
        encode_frame(message, self.socket.unsent()?).map_err(ControlError::Wire)
    }

    /// How many bytes wait to be sent.
    pub fn unsent_len(&self) -> usize {
        self.socket.unsent_len()
    }

    /// What has passed this connection so far.
    pub fn traffic(&self) -> Traffic {
        self.socket.traffic()
    }

    /// Sends a message as far as the socket takes it; the rest goes out with the next call.
    ///
    /// # Errors
    /// When the message breaks a limit of the protocol, or the other side is gone or does not read.
    pub fn send(&mut self, message: &impl Message) -> Result<(), ControlError> {
        self.queue(message)?;
        self.flush()
    }

    /// Sends what waits to be sent, as far as the socket takes it.
    ///
    /// # Errors
    /// When the other side is gone.
    pub fn flush(&mut self) -> Result<(), ControlError> {
        self.socket.flush()
    }

    /// Whether something waits to be sent.
    pub fn has_unsent(&self) -> bool {
        self.socket.has_unsent()
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
            let reader = &mut self.reader;
            if !self.socket.receive(reader.room(), |bytes| reader.push(bytes))? {
                return Ok(None);
            }
        }
    }

    /// Sleeps until something can be received (or, with `or_writable`, sent), at most `timeout`.
    /// Returns whether it can.
    ///
    /// # Errors
    /// When the operating system refuses to wait.
    pub fn wait(&self, or_writable: bool, timeout: Duration) -> io::Result<bool> {
        self.socket.wait(or_writable, timeout)
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A connection whose bytes are handed on as they are: what they mean is for somebody else.
#[derive(Debug)]
pub struct Relay {
    socket: Socket,
}

impl Relay {
    /// Takes over a connected stream socket.
    ///
    /// # Errors
    /// When it cannot be made close-on-exec and non-blocking.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { socket: Socket::new(socket)? })
    }

    /// Sends bytes as far as the socket takes them; the rest goes out with the next call.
    ///
    /// # Errors
    /// When the other side is gone or does not read.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        self.socket.unsent()?.extend_from_slice(bytes);
        self.flush()
    }

    /// Sends what waits to be sent, as far as the socket takes it.
    ///
    /// # Errors
    /// When the other side is gone.
    pub fn flush(&mut self) -> Result<(), ControlError> {
        self.socket.flush()
    }

    /// Whether something waits to be sent.
    pub fn has_unsent(&self) -> bool {
        self.socket.has_unsent()
    }

    /// At most `max` bytes that have arrived, if any. Never blocks.
    ///
    /// # Errors
    /// When the other side closed the connection, after all that it sent has been returned.
    pub fn receive(&mut self, max: usize) -> Result<Option<Vec<u8>>, ControlError> {
        let mut taken = Vec::new();
        let is_there = self.socket.receive(max, |bytes| taken.extend_from_slice(bytes))?;
        Ok(is_there.then_some(taken))
    }
}

impl AsFd for Relay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
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
        assert!(matches!(ours.send(&message), Err(ControlError::Overflow(_))));
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
