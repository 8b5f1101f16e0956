//! Memory that peers access.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;

use crate::ids::RemoteKey;
use crate::mem::Changes;

/// A registered span of this process's memory; deregistered when dropped.
pub trait MemoryRegion: Send + fmt::Debug {
    /// The key that peers must present.
    fn remote_key(&self) -> RemoteKey;
    /// The `addr` of the first byte: 0 where the fabric counts offsets, else the virtual address.
    fn remote_base(&self) -> u64;
    /// How this process changes elements of the memory, where peers do it, too, with their own processors (line 18). `None`:
    /// they do not.
    fn changes(&self) -> Option<Arc<dyn Changes>> {
        None
    }
}

/// What keeps memory mapped; dropped when the window is gone, after its registration.
pub trait Mapping: Send + fmt::Debug {}

impl<T: Send + fmt::Debug> Mapping for T {}

/// The answer of [`Endpoint::allocate`](super::Endpoint::allocate).
#[derive(Debug)]
pub enum Allocation {
    /// This memory.
    Here {
        /// Its first byte.
        base: NonNull<u8>,
        /// Keeps it mapped.
        mapping: Box<dyn Mapping>,
    },
    /// The fabric reaches no memory better than any other: whatever the caller has does.
    Anywhere,
    /// There is not as much memory.
    OutOfMemory,
}
