//! The launcher's standard input on its way to rank 0.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

/// What is read ahead of rank 0, in bytes.
const QUEUE_BYTES_MAX: usize = 64 * 1024;

/// Bytes read or written at once.
const CHUNK_BYTES: usize = 4096;

/// Copies standard input to rank 0 until either side ends.
#[derive(Debug)]
pub(crate) struct Stdin {
    /// The way to rank 0; `None` once it is closed.
    to_rank: Option<OwnedFd>,
    queue: VecDeque<u8>,
    has_ended: bool,
    is_terminal: bool,
}

impl Stdin {
    /// Copies to `to_rank`, which does not block.
    pub(crate) fn new(to_rank: Option<OwnedFd>) -> Self {
        let is_terminal = std::io::stdin().is_terminal();
        Self { to_rank, queue: VecDeque::new(), has_ended: false, is_terminal }
    }

    /// Whether standard input is to be polled for readability now.
    ///
    /// A job in the background of a terminal must not read it: the kernel would stop the launcher.
    pub(crate) fn wants_to_read(&self) -> bool {
        self.may_read() && (!self.is_terminal || is_foreground())
    }

    /// Whether [`Stdin::wants_to_read`] may change its mind without an event.
    pub(crate) fn is_parked(&self) -> bool {
        self.may_read() && self.is_terminal && !is_foreground()
    }

    /// What to poll for writability, while something is queued.
    pub(crate) fn wants_to_write(&self) -> Option<BorrowedFd<'_>> {
        self.to_rank.as_ref().filter(|_| !self.queue.is_empty()).map(AsFd::as_fd)
    }

    /// Reads once; to be called when standard input polls as readable.
    pub(crate) fn read_some(&mut self) {
        let mut bytes = [0; CHUNK_BYTES];
        match rustix::io::read(std::io::stdin(), &mut bytes) {
            Ok(0) => self.has_ended = true,
            Ok(count) => self.queue.extend(&bytes[..count]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // A terminal that has gone away, for instance.
            Err(_) => self.has_ended = true,
        }
        self.close_if_done();
    }

    /// Writes once; to be called when rank 0's end polls as writable.
    pub(crate) fn write_some(&mut self) {
        let Some(to_rank) = &self.to_rank else { return };
        match rustix::io::write(to_rank, self.queue.as_slices().0) {
            Ok(count) => drop(self.queue.drain(..count)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Rank 0 does not read any more, which is its good right.
            Err(_) => self.close(),
        }
        self.close_if_done();
    }

    /// Rank 0 has ended: what is left of the input stays where it is.
    pub(crate) fn close(&mut self) {
        self.to_rank = None;
        self.queue.clear();
    }

    fn may_read(&self) -> bool {
        self.to_rank.is_some() && !self.has_ended && self.queue.len() < QUEUE_BYTES_MAX
    }

    fn close_if_done(&mut self) {
        if self.has_ended && self.queue.is_empty() {
            self.to_rank = None;
        }
    }
}

fn is_foreground() -> bool {
    rustix::termios::tcgetpgrp(std::io::stdin()) == Ok(rustix::process::getpgrp())
}
