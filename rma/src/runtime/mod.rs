//! What turns the non-blocking engine into blocking calls from any thread: a guard around the engine,
//! the loop that waits, and the agent that makes progress while the program is elsewhere.
//!
//! | what | guarded by |
//! | --- | --- |
//! | the engine, `posts`, `is_finalized` | the guard |
//! | `activity`, `sleepers` | written by who holds or just held the guard, read by the agent |
//! | the agent's thread | [`agent::Agent`], held by the job alone |

pub(crate) mod agent;
pub(crate) mod finalize;
mod requests;
mod sleep;
mod wait;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::Thread;
use std::time::Duration;

use rma_bootstrap::JobBootstrap;
use rma_core::engine::Engine as CoreEngine;
use rma_core::error::{Call, RmaError};
use rma_core::provider::Endpoint;
use rma_ofi::OfiEndpoint;

use crate::error::{Error, ErrorKind, Result};
use sleep::Sleeper;

pub(crate) use requests::{AwaitedRequests, PendingRequest};
pub(crate) use wait::PendingOperation;

/// The engine over libfabric, as every job of this crate runs it.
pub type Engine = CoreEngine<OfiEndpoint, JobBootstrap>;

/// Posted operations between two times that posting makes progress, so that a program that only posts
/// still serves the other ranks.
const POSTS_PER_PROGRESS: u32 = 32;

/// What the guard guards.
#[derive(Debug)]
pub(crate) struct Guarded {
    pub(crate) engine: Engine,
    /// Operations posted since the last progress.
    posts: u32,
    is_finalized: bool,
}

/// Everything of a job that its threads and its agent share.
#[derive(Debug)]
pub(crate) struct Core {
    guard: Mutex<Guarded>,
    /// Changes whenever the program makes progress by itself.
    activity: AtomicU64,
    /// Threads of the program that sleep in a blocking call, and so serve the endpoint when it wakes
    /// them.
    sleepers: AtomicU32,
    /// Whether the agent sleeps until the last sleeper is back.
    agent_is_parked: AtomicBool,
    agent_thread: OnceLock<Thread>,
    /// Whether a call failed: then the end of the job is probably not an orderly one.
    has_failed: AtomicBool,
    /// Where the program's threads sleep; `None` where the fabric has no descriptor.
    sleeper: Option<Sleeper>,
    /// The descriptors of endpoint and bootstrap, if the endpoint has one to sleep on.
    descriptors: Vec<i32>,
    /// Ranks on this host do not outnumber its processors, so that waiting may spin.
    may_spin: bool,
    /// There are processors for the agents of this host's ranks besides those of their programs.
    has_spare_processors: bool,
    timeout: Option<Duration>,
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

impl Core {
    pub(crate) fn new(mut engine: Engine, timeout: Option<Duration>) -> Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let (rank, size) = (engine.rank().0, engine.size());
        let wait_fd = engine.endpoint().wait_fd();
        let descriptors: Vec<i32> = match wait_fd {
            Some(fd) => [fd].into_iter().chain(engine.bootstrap().wait_fd()).collect(),
            None => Vec::new(),
        };
        let sleeper = wait_fd.map(|_| Sleeper::new(&descriptors, None)).transpose()?;
        Ok(Self {
            activity: AtomicU64::new(0),
            sleepers: AtomicU32::new(0),
            agent_is_parked: AtomicBool::new(false),
            agent_thread: OnceLock::new(),
            has_failed: AtomicBool::new(false),
            sleeper,
            descriptors,
            has_spare_processors: 2 * engine.bootstrap().local_size() as usize <= processors,
            may_spin: engine.bootstrap().local_size() as usize <= processors,
            timeout,
            rank,
            size,
            guard: Mutex::new(Guarded { engine, posts: 0, is_finalized: false }),
        })
    }

    /// The engine, for a call that needs the job to be at work.
    #[inline]
    pub(crate) fn enter(&self, call: Call) -> Result<MutexGuard<'_, Guarded>> {
        let guarded = self.enter_anyway();
        if guarded.is_finalized {
            return Err(self.finalized(call));
        }
        Ok(guarded)
    }

    /// The engine, whatever state the job is in. The standard mutex, because it never allocates; a thread
    /// that panicked with it has left an engine whose calls are each complete.
    #[inline]
    pub(crate) fn enter_anyway(&self) -> MutexGuard<'_, Guarded> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine, unless somebody has it now.
    pub(crate) fn try_enter(&self) -> Option<MutexGuard<'_, Guarded>> {
        match self.guard.try_lock() {
            Ok(guarded) => Some(guarded),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Notes that an operation was posted; makes progress now and then.
    #[inline]
    pub(crate) fn posted(&self, guarded: &mut Guarded) {
        guarded.posts += 1;
        if guarded.posts >= POSTS_PER_PROGRESS {
            self.progress(guarded);
        }
    }

    /// Makes progress for the program; the agent sees it and stays away.
    pub(crate) fn progress(&self, guarded: &mut Guarded) -> usize {
        guarded.posts = 0;
        // Under the guard, so a load and a store count well enough.
        let activity = self.activity.load(Ordering::Relaxed);
        self.activity.store(activity.wrapping_add(1), Ordering::Relaxed);
        guarded.engine.progress()
    }

    /// An error as the user gets it.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail(&self, error: RmaError) -> Error {
        self.has_failed.store(true, Ordering::Relaxed);
        error.into()
    }

    /// Whether a call has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Longest time that a blocking call may take.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    #[cold]
    #[inline(never)]
    fn finalized(&self, call: Call) -> Error {
        Error::new(ErrorKind::Finalized { call })
    }
}
