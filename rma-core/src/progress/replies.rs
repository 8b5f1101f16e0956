//! Replies of the target role: for each there is a buffer before its request is executed, so that an executed
//! request can always be answered, however long the fabric has no room.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::ids::Rank;

/// A reply that waits for room in the fabric.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    to: Rank,
    buffer: usize,
    len: usize,
}

/// Reply buffers: free ones, and those that wait.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    buffers: Vec<Box<[u8]>>,
    free: Vec<usize>,
    waiting: VecDeque<Waiting>,
}

impl Replies {
    pub(crate) fn new(count: usize, bytes: usize) -> Self {
        Self {
            buffers: (0..count).map(|_| vec![0; bytes].into_boxed_slice()).collect(),
            free: (0..count).collect(),
            waiting: VecDeque::with_capacity(count),
        }
    }

    /// Whether a request may be executed now: there is a buffer.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Takes a buffer out.
    pub(crate) fn take(&mut self) -> Option<(usize, Box<[u8]>)> {
        let index = self.free.pop()?;
        Some((index, core::mem::take(&mut self.buffers[index])))
    }

    /// Puts a buffer back.
    pub(crate) fn give(&mut self, index: usize, buffer: Box<[u8]>) {
        self.buffers[index] = buffer;
        self.free.push(index);
    }

    /// Puts a buffer back with a reply in it that could not be sent yet.
    pub(crate) fn wait(&mut self, to: Rank, index: usize, buffer: Box<[u8]>, len: usize) {
        self.buffers[index] = buffer;
        self.waiting.push_back(Waiting { to, buffer: index, len });
    }

    /// Whether a reply to this rank waits, so that a new one must queue up behind it.
    #[inline]
    pub(crate) fn has_waiting(&self, to: Rank) -> bool {
        self.waiting.iter().any(|waiting| waiting.to == to)
    }

    /// Offers what waits to `send`, the replies to one rank in order, until it says that one is gone.
    pub(crate) fn flush(&mut self, mut send: impl FnMut(Rank, &[u8]) -> bool) {
        let mut at = 0;
        while let Some(&waiting) = self.waiting.get(at) {
            let behind = self.waiting.iter().take(at).any(|earlier| earlier.to == waiting.to);
            if !behind && send(waiting.to, &self.buffers[waiting.buffer][..waiting.len]) {
                self.waiting.remove(at);
                self.free.push(waiting.buffer);
            } else {
                at += 1;
            }
        }
    }

    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.len()
    }
}
