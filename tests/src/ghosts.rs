//! Worlds whose ranks have ghosts, over any endpoints: the ghosts make progress when the fabric is moved.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::config::Config;
use rma_core::counters::Counters;
use rma_core::engine::Engine;
use rma_core::ids::Rank;
use rma_core::provider::Endpoint;
use rma_sim::ghosts::{Link, Served};

use crate::{Driver, World};

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

/// Moves the ghosts, and then the fabric.
struct Haunted<E: Endpoint, D> {
    ghosts: Vec<Served<E>>,
    fabric: D,
}

impl<E: Endpoint, D: Driver> Driver for Haunted<E, D> {
    fn advance(&mut self) -> bool {
        let events: usize = self.ghosts.iter().map(|ghost| ghost.engine().progress()).sum();
        self.fabric.advance() || events > 0
    }

    fn now_ns(&self) -> Option<u64> {
        self.fabric.now_ns()
    }

    fn target_counters(&self, rank: u32) -> Option<Counters> {
        self.ghosts.get(rank as usize).map(|ghost| ghost.engine().counters())
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
        .map(|(endpoint, rank)| Served::new(endpoint, Rank(rank), size, config))
        .collect();
    let engines = endpoints.into_iter().zip(0..).zip(&ghosts).map(|((endpoint, rank), ghost)| {
        let bootstrap = BookBootstrap { rank, book: Arc::clone(&book) };
        let link = Box::new(Link::new(ghost, true));
        Engine::open_with_ghost(endpoint, bootstrap, config.clone(), link).expect("the engine opens")
    });
    let world = World::new(engines.collect(), Haunted { ghosts: ghosts.clone(), fabric });
    (world, Launcher(book))
}

fn locked(book: &Book) -> MutexGuard<'_, Vec<Page>> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}
