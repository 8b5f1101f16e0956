//! The launcher's standard input on its way to the ranks that read it.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

/// What is read ahead of the slowest reader, in bytes.
const QUEUE_BYTES_MAX: usize = 64 * 1024;

/// Bytes read or written at once.
const CHUNK_BYTES: usize = 4096;

/// A rank that reads standard input.
#[derive(Debug)]
struct Reader {
    rank: usize,
    /// The way to it, which does not block.
    to_rank: OwnedFd,
    /// How many bytes of the queue it has been given.
    given: usize,
}

/// Copies standard input to each of its readers until it or the last of them ends.
#[derive(Debug)]
pub(crate) struct Stdin {
    readers: Vec<Reader>,
    /// What not every reader has been given.
    queue: VecDeque<u8>,
    has_ended: bool,
    is_terminal: bool,
}

impl Stdin {
    /// Standard input without readers.
    pub(crate) fn new() -> Self {
        let is_terminal = std::io::stdin().is_terminal();
        Self { readers: Vec::new(), queue: VecDeque::new(), has_ended: false, is_terminal }
    }

    /// Copies to this rank too; all of the readers are to be added before anything is read.
    pub(crate) fn add(&mut self, rank: usize, to_rank: OwnedFd) {
        self.readers.push(Reader { rank, to_rank, given: 0 });
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

    /// What to poll for writability: the ranks for which something is queued.
    pub(crate) fn wants_to_write(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let waiting = self.readers.iter().filter(|reader| reader.given < self.queue.len());
        waiting.map(|reader| (reader.rank, reader.to_rank.as_fd()))
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
        self.tidy_up();
    }

    /// Writes once; to be called when the rank's end polls as writable.
    pub(crate) fn write_some(&mut self, rank: usize) {
        let Some(reader) = self.readers.iter_mut().find(|reader| reader.rank == rank) else { return };
        let (head, tail) = self.queue.as_slices();
        let bytes = head.get(reader.given..).filter(|bytes| !bytes.is_empty());
        let behind = reader.given.saturating_sub(head.len());
        let bytes = bytes.or_else(|| tail.get(behind..)).unwrap_or_default();
        match rustix::io::write(&reader.to_rank, &bytes[..bytes.len().min(CHUNK_BYTES)]) {
            Ok(count) => reader.given += count,
            Err(Errno::INTR | Errno::AGAIN) => {}
            // The rank does not read any more, which is its good right.
            Err(_) => self.readers.retain(|reader| reader.rank != rank),
        }
        self.tidy_up();
    }

    /// The rank has ended: what is left of the input stays where it is.
    pub(crate) fn close(&mut self, rank: usize) {
        self.readers.retain(|reader| reader.rank != rank);
        self.tidy_up();
    }

    fn may_read(&self) -> bool {
        !self.readers.is_empty() && !self.has_ended && self.queue.len() < QUEUE_BYTES_MAX
    }

    /// Forgets what every reader has, and closes the ways of those that have everything.
    fn tidy_up(&mut self) {
        let given = self.readers.iter().map(|reader| reader.given).min().unwrap_or(self.queue.len());
        self.queue.drain(..given);
        self.readers.iter_mut().for_each(|reader| reader.given -= given);
        if self.has_ended {
            self.readers.retain(|reader| reader.given < self.queue.len());
        }
    }
}

fn is_foreground() -> bool {
    rustix::termios::tcgetpgrp(std::io::stdin()) == Ok(rustix::process::getpgrp())
}
