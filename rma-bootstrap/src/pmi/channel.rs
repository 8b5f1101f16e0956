//! A connection that carries PMI messages, with whole messages going in and coming out. Both ends use it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use super::wire::{Message, Reader, Syntax};
use crate::control::ControlError;
use crate::socket::Socket;

/// One end of the connection. It begins with lines.
#[derive(Debug)]
pub struct Channel {
    socket: Socket,
    reader: Reader,
    syntax: Syntax,
}

impl Channel {
    /// Takes over a connected stream socket.
    ///
    /// # Errors
    /// When it cannot be made close-on-exec and non-blocking.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { socket: Socket::new(socket)?, reader: Reader::default(), syntax: Syntax::default() })
    }

    /// What follows, in both directions, is in this syntax.
    pub fn set_syntax(&mut self, syntax: Syntax) {
        self.syntax = syntax;
        self.reader.set_syntax(syntax);
    }

    /// Sends a message as far as the socket takes it; the rest goes out with the next call.
    ///
    /// # Errors
    /// When the message cannot be carried, or the other side is gone or does not read.
    pub fn send(&mut self, message: &Message) -> Result<(), ControlError> {
        message.encode(self.syntax, self.socket.unsent()?).map_err(ControlError::Pmi)?;
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
    pub fn receive(&mut self) -> Result<Option<Message>, ControlError> {
        loop {
            if let Some(message) = self.reader.poll().map_err(ControlError::Pmi)? {
                return Ok(Some(message));
            }
            let reader = &mut self.reader;
            if !self.socket.receive(reader.room(), |bytes| reader.push(bytes))? {
                return Ok(None);
            }
        }
    }

    /// Leaves the connection open until the process ends, whatever becomes of this value.
    pub(crate) fn keep_until_exit(&self) {
        self.socket.keep_until_exit();
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

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
