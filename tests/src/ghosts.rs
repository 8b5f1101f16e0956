//! Worlds whose ranks have ghosts, over any endpoints: the ghosts make progress when the fabric is moved.

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::config::Config;
use rma_core::counters::Counters;
use rma_core::engine::Engine;
use rma_core::ghost::{Ghost, GhostError, Introduced, Part, Wanted};
use rma_core::ids::{Rank, WindowId};
use rma_core::provider::Endpoint;

use crate::{Driver, World};

/// The engine of a ghost, which its rank and the world share.
type Served<E> = Arc<Mutex<Engine<E, Introduced>>>;

/// What the launcher knows of a rank, and is going to tell it.
#[derive(Clone, Debug, Default)]
struct Page {
    address: Option<AddressBytes>,
    losses: VecDeque<Rank>,
}

/// A page for each rank.
type Book = Arc<Mutex<Vec<Page>>>;

/// Who tells ranks of deaths.
#[derive(Clone, Debug)]
pub struct Launcher(Book);

impl Launcher {
    /// Tells one rank that the process of another has ended.
    pub fn tell(&self, rank: u32, lost: u32) {
        locked(&self.0)[rank as usize].losses.push_back(Rank(lost));
    }
}

/// A bootstrap over a book that all ranks have.
#[derive(Clone, Debug)]
pub struct BookBootstrap {
    rank: u32,
    book: Book,
}

impl Bootstrap for BookBootstrap {
    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> u32 {
        locked(&self.book).len() as u32
    }

    fn publish(&mut self, address: &AddressBytes) -> Result<(), BootstrapError> {
        locked(&self.book)[self.rank as usize].address = Some(*address);
        Ok(())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        Ok(locked(&self.book)[rank.index()].address.map_or(Lookup::Pending, Lookup::Found))
    }

    fn poll_lost(&mut self) -> Option<Rank> {
        locked(&self.book)[self.rank as usize].losses.pop_front()
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
        assert!(!base.is_null(), "memory for a test's window");
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
struct Link<E: Endpoint>(Served<E>);

impl<E: Endpoint> std::fmt::Debug for Link<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

impl<E: Endpoint> Ghost for Link<E> {
    fn address(&self) -> AddressBytes {
        locked(&self.0).ghost_address()
    }

    fn serve(&mut self, wanted: &Wanted) -> Result<Part, GhostError> {
        let memory = Arc::new(Memory::new(wanted)?);
        let base = memory.base;
        let kept = Box::new(Arc::clone(&memory));
        // SAFETY: as long as the mapping is kept; the tests use it as shared memory.
        let remote = unsafe { locked(&self.0).add_window(wanted, base, kept) };
        let remote = remote.map_err(|error| GhostError::Other(error.to_string()))?;
        Ok(Part { base, mapping: Box::new(memory), remote })
    }

    fn release(&mut self, window: WindowId) {
        locked(&self.0).drop_window(window);
    }

    fn lost(&mut self, rank: Rank) {
        locked(&self.0).lose(rank);
    }
}

/// Moves the ghosts, and then the fabric.
struct Haunted<E: Endpoint, D> {
    ghosts: Vec<Served<E>>,
    fabric: D,
}

impl<E: Endpoint, D: Driver> Driver for Haunted<E, D> {
    fn advance(&mut self) -> bool {
        let events: usize = self.ghosts.iter().map(|ghost| locked(ghost).progress()).sum();
        self.fabric.advance() || events > 0
    }

    fn now_ns(&self) -> Option<u64> {
        self.fabric.now_ns()
    }

    fn target_counters(&self, rank: u32) -> Option<Counters> {
        self.ghosts.get(rank as usize).map(|ghost| locked(ghost).counters())
    }
}

/// A world of ranks with ghosts. The endpoints are the ranks' and then the ghosts'.
pub fn haunted_world<E: Endpoint + 'static>(
    endpoints: Vec<E>,
    config: &Config,
    fabric: impl Driver + 'static,
) -> World<E, BookBootstrap> {
    haunted_world_and_launcher(endpoints, config, fabric).0
}

/// The same, and who tells its ranks of deaths.
pub fn haunted_world_and_launcher<E: Endpoint + 'static>(
    mut endpoints: Vec<E>,
    config: &Config,
    fabric: impl Driver + 'static,
) -> (World<E, BookBootstrap>, Launcher) {
    let ranks = endpoints.len() / 2;
    let size = ranks as u32;
    let book: Book = Arc::new(Mutex::new(vec![Page::default(); ranks]));
    let ghosts: Vec<Served<E>> = endpoints
        .drain(ranks..)
        .zip(0..)
        .map(|(endpoint, rank)| Arc::new(Mutex::new(Engine::serve(endpoint, Rank(rank), size, config))))
        .collect();
    let engines = endpoints.into_iter().zip(0..).zip(&ghosts).map(|((endpoint, rank), ghost)| {
        let bootstrap = BookBootstrap { rank, book: Arc::clone(&book) };
        let link = Box::new(Link(Arc::clone(ghost)));
        Engine::open_with_ghost(endpoint, bootstrap, config.clone(), link).expect("the engine opens")
    });
    let world = World::new(engines.collect(), Haunted { ghosts: ghosts.clone(), fabric });
    (world, Launcher(book))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
