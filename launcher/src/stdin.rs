//! The launcher's standard input on its way to the ranks that read it.

use std::collections::VecDeque;
use std::io::IsTerminal;

use rma_bootstrap::tree::{Down, CHUNK_BYTES_MAX};
use rustix::io::Errno;

use crate::local::INPUT_BYTES_MAX;

/// What is read ahead of the slowest reader, in bytes.
const QUEUE_BYTES_MAX: usize = 64 * 1024;

/// Bytes read at once.
const CHUNK_BYTES: usize = 4096;

/// A rank that reads standard input.
#[derive(Debug)]
struct Reader {
    rank: u32,
    /// How many bytes of the queue it has been given.
    given: usize,
    /// How many bytes are on their way to it.
    on_way: usize,
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
    pub(crate) fn add(&mut self, rank: u32) {
        self.readers.push(Reader { rank, given: 0, on_way: 0 });
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
    }

    /// What can be given to the readers now.
    pub(crate) fn give(&mut self) -> Vec<Down> {
        let mut given = Vec::new();
        for reader in &mut self.readers {
            let (begin, rank) = (reader.given, reader.rank);
            let end = self.queue.len().min(begin + (INPUT_BYTES_MAX - reader.on_way));
            let bytes: Vec<u8> = self.queue.range(begin..end).copied().collect();
            given.extend(
                bytes.chunks(CHUNK_BYTES_MAX).map(|chunk| Down::Input { rank, bytes: chunk.to_vec() }),
            );
            (reader.given, reader.on_way) = (end, reader.on_way + bytes.len());
        }
        if self.has_ended {
            let queued = self.queue.len();
            let has_all = |reader: &Reader| reader.given == queued;
            let done = self.readers.iter().filter(|reader| has_all(reader));
            given.extend(done.map(|reader| Down::EndInput { rank: reader.rank }));
            self.readers.retain(|reader| !has_all(reader));
        }
        self.forget_given();
        given
    }

    /// Bytes have reached a reader.
    pub(crate) fn on_taken(&mut self, rank: u32, count: u32) {
        if let Some(reader) = self.readers.iter_mut().find(|reader| reader.rank == rank) {
            reader.on_way = reader.on_way.saturating_sub(count as usize);
        }
    }

    /// The rank does not read any more: what is left of the input stays where it is.
    pub(crate) fn close(&mut self, rank: u32) {
        self.readers.retain(|reader| reader.rank != rank);
        self.forget_given();
    }

    fn may_read(&self) -> bool {
        !self.readers.is_empty() && !self.has_ended && self.queue.len() < QUEUE_BYTES_MAX
    }

    /// Forgets what every reader has been given.
    fn forget_given(&mut self) {
        let given = self.readers.iter().map(|reader| reader.given).min().unwrap_or(self.queue.len());
        self.queue.drain(..given);
        self.readers.iter_mut().for_each(|reader| reader.given -= given);
    }
}

fn is_foreground() -> bool {
    rustix::termios::tcgetpgrp(std::io::stdin()) == Ok(rustix::process::getpgrp())
}
