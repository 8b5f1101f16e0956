//! Ghosts in the process of their ranks, over any endpoints: for simulations and tests, in which one thread drives
//! everybody.
#![allow(unsafe_code)] // memory that two engines have in common

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_core::bootstrap::AddressBytes;
use rma_core::config::Config;
use rma_core::engine::Engine;
use rma_core::ghost::{Ghost, GhostError, Introduced, Part, Wanted};
use rma_core::ids::{Rank, WindowId};
use rma_core::provider::Endpoint;

/// The engine of a ghost, which its rank's [`Link`] and whoever makes its progress share.
#[derive(Debug)]
pub struct Served<E: Endpoint>(Arc<Mutex<Engine<E, Introduced>>>);

impl<E: Endpoint> Clone for Served<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E: Endpoint> Served<E> {
    /// The ghost of `rank` in a job of `size` ranks.
    pub fn new(endpoint: E, rank: Rank, size: u32, config: &Config) -> Self {
        Self(Arc::new(Mutex::new(Engine::serve(endpoint, rank, size, config))))
    }

    /// The engine. Not to be kept while the rank's engine is called.
    pub fn engine(&self) -> MutexGuard<'_, Engine<E, Introduced>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory that rank and ghost have in common.
#[derive(Debug)]
struct Memory {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: it owns what it points to.
unsafe impl Send for Memory {}
// SAFETY: it is only kept and dropped.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(wanted: &Wanted) -> Result<Self, GhostError> {
        let none = |_| GhostError::Memory;
        let layout = Layout::from_size_align(wanted.len.max(1), wanted.alignment.max(4096)).map_err(none)?;
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            return Err(GhostError::Memory);
        }
        Ok(Self { base, layout })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it came from `alloc_zeroed` with this layout, and is freed once.
        unsafe { dealloc(self.base, self.layout) };
    }
}

/// A rank's way to its ghost: the same thread.
pub struct Link<E: Endpoint> {
    ghost: Served<E>,
    tells_of_deaths: bool,
}

impl<E: Endpoint> Link<E> {
    /// To this ghost. Without `tells_of_deaths` it is as though the rank were away when somebody dies.
    pub fn new(ghost: &Served<E>, tells_of_deaths: bool) -> Self {
        Self { ghost: ghost.clone(), tells_of_deaths }
    }
}

impl<E: Endpoint> std::fmt::Debug for Link<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

impl<E: Endpoint + 'static> Ghost for Link<E> {
    fn address(&self) -> AddressBytes {
        self.ghost.engine().ghost_address()
    }

    fn serve(&mut self, wanted: &Wanted) -> Result<Part, GhostError> {
        let memory = Arc::new(Memory::new(wanted)?);
        let base = memory.base;
        let kept = Box::new(Arc::clone(&memory));
        // SAFETY: as long as the mapping is kept; both engines use it as shared memory.
        let remote = unsafe { self.ghost.engine().add_window(wanted, base, kept) };
        let remote = remote.map_err(|error| GhostError::Other(error.to_string()))?;
        Ok(Part { base, mapping: Box::new(memory), remote })
    }

    fn release(&mut self, window: WindowId, alone: bool) {
        self.ghost.engine().drop_window(window, alone);
    }

    fn lost(&mut self, rank: Rank) {
        if self.tells_of_deaths {
            self.ghost.engine().lose(rank);
        }
    }
}
