//! What an endpoint's poll has to say.
#![allow(unsafe_code)] // lends bytes behind a pointer

use core::ptr::NonNull;

#[cfg(doc)]
use super::Endpoint;
use super::FabricCode;
use crate::ids::{PeerAddr, Tag};

/// A packet lent by the provider until it is given to [`Endpoint::release`].
#[derive(Debug, PartialEq, Eq)]
pub struct ReceivedPacket {
    /// First byte.
    pub data: NonNull<u8>,
    /// Bytes.
    pub len: usize,
    /// Names the buffer to the provider.
    pub buffer: u32,
}

// SAFETY: a received packet is an exclusive loan of a buffer that does not move; only one holder
// exists at a time (the type is neither Copy nor Clone).
unsafe impl Send for ReceivedPacket {}

impl ReceivedPacket {
    /// The bytes.
    ///
    /// # Safety
    /// The packet came from the `poll` of an endpoint that is still open, and was not yet released.
    #[inline]
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: by the caller's promise the loan is alive, and providers lend `len` valid bytes.
        unsafe { core::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }
}

/// One thing that [`Endpoint::poll`] has to say.
#[derive(Debug, PartialEq, Eq)]
pub enum Completion {
    /// The operation with this tag is complete.
    Done(Tag),
    /// The operation with this tag failed.
    Failed(Tag, FabricCode),
    /// A packet arrived, or the data of a peer's [`Endpoint::put_with_data`] did, as a packet of so many bytes.
    Packet(ReceivedPacket),
    /// Nothing posted to this peer will succeed any more.
    PeerDown(PeerAddr, FabricCode),
    /// The endpoint itself is broken: nothing on it will succeed any more.
    EndpointDown(FabricCode),
}

/// Completions of one [`Endpoint::poll`], at most [`CompletionBatch::CAPACITY`].
#[derive(Debug)]
pub struct CompletionBatch {
    entries: [Option<Completion>; Self::CAPACITY],
    head: usize,
    len: usize,
}

impl CompletionBatch {
    /// Most completions that one poll returns.
    pub const CAPACITY: usize = 32;

    /// An empty batch.
    pub const fn new() -> Self {
        Self { entries: [const { None }; Self::CAPACITY], head: 0, len: 0 }
    }

    /// How many more fit.
    #[inline]
    pub fn room(&self) -> usize {
        Self::CAPACITY - (self.head + self.len)
    }

    /// Adds one. Returns it when the batch is full, so that nothing is lost silently.
    ///
    /// # Errors
    /// The completion itself, when there is no room.
    #[inline]
    pub fn push(&mut self, completion: Completion) -> Result<(), Completion> {
        match self.entries.get_mut(self.head + self.len) {
            Some(entry) => {
                *entry = Some(completion);
                self.len += 1;
                Ok(())
            }
            None => Err(completion),
        }
    }

    /// Takes the oldest.
    #[inline]
    pub fn pop(&mut self) -> Option<Completion> {
        if self.len == 0 {
            return None;
        }
        let taken = self.entries[self.head].take();
        self.head += 1;
        self.len -= 1;
        if self.len == 0 {
            self.head = 0;
        }
        taken
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for CompletionBatch {
    fn default() -> Self {
        Self::new()
    }
}
