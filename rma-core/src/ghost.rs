//! A process beside a rank that owns the rank's target role: what other ranks, and the rank itself, ask of
//! its windows is executed there, whatever the rank is doing meanwhile.
//!
//! The *ghost* has an endpoint of its own and runs this same engine, opened by [`crate::engine::Engine::serve`].
//! The memory of a *served* window is mapped by both processes, and registered by the ghost. Batches, and the
//! fabric's puts and gets, go to the ghost; fences, posts and COMPLETEs go from rank to rank as ever, and leave
//! when the ghosts have acknowledged what comes before them.
//!
//! Implements: notes: agent as a process.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use crate::ids::{Rank, WindowId};
pub use crate::provider::Mapping;

/// Memory of a window that the ghost is to serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The window.
    pub window: WindowId,
    /// Bytes; may be 0.
    pub len: usize,
    /// Bytes of one unit of displacement.
    pub disp_unit: u32,
    /// A multiple of which the memory is to begin at, here; 0 or a power of two.
    pub alignment: usize,
    /// The fabric is to read and write it.
    pub is_registered: bool,
}

/// Memory that rank and ghost have mapped.
#[derive(Debug)]
pub struct Part {
    /// Its first byte at the rank; null when it is empty.
    pub base: *mut u8,
    /// Keeps it mapped there.
    pub mapping: Box<dyn Mapping>,
    /// Where peers find it at the ghost, and by which key.
    pub remote: Registered,
}

/// What peers must know of memory that is registered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Registered {
    /// The provider's address of the first byte.
    pub base: u64,
    /// The key that peers must present.
    pub key: u64,
}

/// Why a ghost cannot serve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GhostError {
    /// There is not as much memory.
    Memory,
    /// Anything else: what was being done, what happened, and what the user can do about it.
    Other(String),
}

impl fmt::Display for GhostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("the memory cannot be had"),
            Self::Other(message) => f.write_str(message),
        }
    }
}

impl core::error::Error for GhostError {}

/// How a rank speaks with its ghost. It does so only where windows are made and freed, and when a rank has died, and
/// waits no longer than an exchange with a process on the same host takes.
pub trait Ghost: Send + fmt::Debug {
    /// The address of the ghost's endpoint.
    fn address(&self) -> AddressBytes;

    /// Whether the endpoints take the memory that it makes for memory of their own
    /// ([`crate::provider::Endpoint::allocate`]). The same at all ranks.
    fn makes_allocated(&self) -> bool {
        false
    }

    /// Makes memory, all zeros, and has the ghost serve it.
    ///
    /// # Safety
    /// The implementation promises what the engine relies on: the part's bytes are valid for reads and writes
    /// until its mapping is dropped, and accessed by whoever else only as shared memory.
    ///
    /// # Errors
    /// When memory or registration cannot be had, or the ghost is gone.
    fn serve(&mut self, wanted: &Wanted) -> Result<Part, GhostError>;

    /// The window is freed. `alone`: its rank has not waited for the others, who may still access it.
    fn release(&mut self, window: WindowId, alone: bool);

    /// The process of this rank has ended, as the launcher says: [`crate::engine::Engine::lose`] at the ghost.
    fn lost(&mut self, rank: Rank);
}

/// What an address that names two endpoints begins with.
const JOINED: [u8; 4] = [0, b'2', b'E', b'P'];

/// The address of a rank and that of its ghost as one; `None` when they are too long together.
pub(crate) fn join(own: &AddressBytes, ghost: &AddressBytes) -> Option<AddressBytes> {
    let mut joined = Vec::with_capacity(JOINED.len() + 1 + own.as_slice().len() + ghost.as_slice().len());
    joined.extend(JOINED);
    joined.push(u8::try_from(own.as_slice().len()).ok()?);
    joined.extend(own.as_slice());
    joined.extend(ghost.as_slice());
    AddressBytes::new(&joined)
}

/// The address of a rank and, if it has one, that of its ghost.
pub(crate) fn split(address: &AddressBytes) -> (AddressBytes, Option<AddressBytes>) {
    let parts = || {
        let [len, rest @ ..] = address.as_slice().strip_prefix(&JOINED)? else { return None };
        let (own, ghost) = rest.split_at_checked((*len).into())?;
        Some((AddressBytes::new(own)?, AddressBytes::new(ghost)?))
    };
    match parts() {
        Some((own, ghost)) => (own, Some(ghost)),
        None => (*address, None),
    }
}

/// The bootstrap of a ghost, which looks nobody up: whoever asks something of it says first where to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Introduced {
    rank: Rank,
    size: u32,
}

impl Introduced {
    /// For the ghost of `rank` in a job of `size` ranks.
    pub(crate) fn new(rank: Rank, size: u32) -> Self {
        Self { rank, size }
    }
}

impl Bootstrap for Introduced {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    /// Its rank publishes the address with its own.
    fn publish(&mut self, _address: &AddressBytes) -> Result<(), BootstrapError> {
        Ok(())
    }

    fn lookup(&mut self, _rank: Rank) -> Result<Lookup, BootstrapError> {
        Ok(Lookup::Pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_addresses_are_one_and_two_again() {
        let (own, ghost) = (AddressBytes::new(&[2; 51]).unwrap(), AddressBytes::new(&[3; 40]).unwrap());
        let joined = join(&own, &ghost).unwrap();
        let (first, second) = split(&joined);
        assert_eq!((first.as_slice(), second.unwrap().as_slice()), (own.as_slice(), ghost.as_slice()));
        let (first, second) = split(&own);
        assert!(first.as_slice() == own.as_slice() && second.is_none());
        assert!(join(&AddressBytes::new(&[2; 200]).unwrap(), &ghost).is_some());
        assert!(join(&AddressBytes::new(&[2; 220]).unwrap(), &ghost).is_none());
    }

    #[test]
    fn half_an_address_is_none() {
        let mut bytes = JOINED.to_vec();
        for more in [&[][..], &[9], &[9, 1, 2]] {
            bytes.truncate(JOINED.len());
            bytes.extend(more);
            assert!(split(&AddressBytes::new(&bytes).unwrap()).1.is_none());
        }
    }
}
