//! What turns the non-blocking engine into blocking calls from any thread: a guard around the engine,
//! the loop that waits, and the agent that makes progress while the program is elsewhere.
//!
//! | what | guarded by |
//! | --- | --- |
//! | the engine and everything else in [`Guarded`] | the guard |
//! | `activity`, `sleepers` | written under the guard, read by the agent |
//! | `contenders`, `turns` | atomics of their own: who waits for the guard says so |
//! | the agent's thread | [`agent::Agent`], held by the job alone |
//!
//! Everything here is compiled twice: for the library, and over the simulated fabric with the model
//! checker's own threads and locks (`tests/interleavings`), which is why threads, locks and descriptors
//! come from `crate::platform`.

pub(crate) mod agent;
mod agreement;
mod at_once;
mod close;
mod collective;
mod contact;
pub(crate) mod finalize;
mod guard;
mod layouts;
mod lock;
mod pscw;
mod requests;
mod timeline;
mod turns;
mod wait;

use std::any::Any;
use std::sync::PoisonError;
use std::time::Duration;

use rma_core::engine::SyncCall;
use rma_core::error::{Call, RmaError};
use rma_core::ids::Rank;
use rma_core::provider::Endpoint;

use crate::error::{Error, ErrorKind, Result};
use crate::events;
use crate::platform::{
    processors, AtomicBool, AtomicU32, AtomicU64, Descriptors, Engine, Event, Instant, Mutex, OnceLock,
    Ordering, Parking, Sleeper, Thread,
};
use crate::trace::{Outputs, Ring};

use guard::Guard;

pub(crate) use agreement::NUMBERS;
pub(crate) use guard::Held;
pub(crate) use layouts::PendingLayouts;
pub(crate) use pscw::start_complete;
pub(crate) use requests::{HasRequest, PendingNotified, PendingRequest};
pub(crate) use wait::{Awaited, PendingOperation};

/// Posted operations between two times that posting makes progress, so that a program that only posts
/// still serves the other ranks.
const POSTS_PER_PROGRESS: u32 = 32;

/// Times that the program makes progress between two looks at what the launcher says.
const PROGRESS_PER_LOOK: u64 = 1024;

/// What the guard guards.
#[derive(Debug)]
pub(crate) struct Guarded {
    pub(crate) engine: Engine,
    /// Operations that may be posted until posting makes progress.
    posts_left: u32,
    /// Those that there were when an epoch or a flush ended last.
    left_at_end: u32,
    phase: Phase,
    /// What is remembered of the calls, where a timeline is wanted.
    trace: Option<Ring>,
    outputs: Outputs,
    /// Who sleeps in a blocking call and wants to be told of progress.
    sleeping: Sleeping,
    /// When the engine was told last that time has passed, if it ever wanted to know.
    told_time: Option<Instant>,
}

/// [`Engine::PATIENCE`] of these are five seconds, of which a process that is stopped misses one part at most.
const TIME_PART: Duration = Duration::from_millis(250);

impl Guarded {
    /// Whether calls have nothing to ask but the engine.
    #[inline]
    pub(super) fn is_at_work(&self) -> bool {
        self.phase == Phase::AtWork
    }

    /// Counts an operation that was posted: whether it is time to make progress.
    #[inline]
    pub(crate) fn is_progress_due(&mut self) -> bool {
        self.posts_left -= 1;
        self.posts_left == 0
    }

    /// Tells the engine when a part of the time is over for which locks are waited for that may be lost, and lets it ask who is
    /// still there.
    #[cold]
    #[inline(never)]
    fn tell_time(&mut self) {
        let now = Instant::now();
        let since = *self.told_time.get_or_insert(now);
        if now.saturating_duration_since(since) >= TIME_PART {
            self.told_time = Some(now);
            self.engine.on_time(1);
            self.engine.inquire();
        }
    }
}

/// Where the job is, as far as a call has to know: one look tells both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing is to be observed.
    AtWork,
    /// Blocking calls are remembered.
    Traced,
    /// Calls are refused.
    Finalized,
}

/// The threads that sleep in blocking calls: one on the descriptors, the others until they are told.
#[derive(Debug, Default)]
struct Sleeping {
    /// A thread sleeps on the descriptors.
    has_sentinel: bool,
    /// The sentinel was told that something has moved.
    is_rung: bool,
    /// A descriptor had changed when it woke the last time.
    is_stirred: bool,
    /// Threads that sleep until they are told.
    listeners: u32,
}

/// Everything of a job that its threads and its agent share.
#[derive(Debug)]
pub(crate) struct Core {
    guard: Guard<Guarded>,
    /// Threads that wait for the guard, and how often such a thread got it.
    contenders: AtomicU32,
    turns: AtomicU32,
    /// Changes whenever the program makes progress by itself.
    activity: AtomicU64,
    /// Threads of the program that sleep in a blocking call, and so serve the endpoint when it wakes
    /// them.
    sleepers: AtomicU32,
    /// Whether the agent sleeps until the last sleeper is back.
    agent_is_parked: AtomicBool,
    agent_thread: OnceLock<Thread>,
    /// The agent cannot contact a rank for the first time.
    agent_defers: AtomicBool,
    /// Whether a call failed: then the end of the job is probably not an orderly one.
    has_failed: AtomicBool,
    /// Whether the program has lent memory to a window that it may free when the job is dropped.
    has_lent: AtomicBool,
    /// Held by who writes what the job leaves, until it is written: whoever would end the process meanwhile waits.
    writing: Mutex<()>,
    /// Where one of the program's threads sleeps; `None` where the fabric has no descriptor.
    sleeper: Option<Sleeper>,
    /// Wakes it.
    bell: Event,
    /// Times that the others were told, changed under the guard; where they sleep until it changes.
    told: AtomicU32,
    news: Parking,
    /// What is slept on besides an event, if the endpoint has a descriptor.
    descriptors: Descriptors,
    /// Ranks on this host do not outnumber its processors, so that waiting may spin.
    may_spin: bool,
    /// There are processors for the agents of this host's ranks besides those of their programs.
    has_spare_processors: bool,
    timeout: Option<Duration>,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    /// Ranks of whose death the launcher has told, for the jobs that are parts of this one.
    pub(crate) lost: Mutex<Vec<Rank>>,
    /// Held by who is in a call in which all ranks meet. A barrier that took too long, for the next of them to end.
    left_barrier: Mutex<Option<SyncCall>>,
    /// Memory of windows that were not freed: others may access it until the engine has closed the endpoint. The last field, so
    /// that it is freed behind that, whoever holds the core last.
    kept: Mutex<Vec<Box<dyn Any + Send>>>,
}

impl Core {
    /// `host_processors`: those of all ranks of this host together, where it is known.
    pub(crate) fn new(
        mut engine: Engine,
        timeout: Option<Duration>,
        host_processors: Option<usize>,
    ) -> Result<Self> {
        let own_processors = processors();
        let processors = host_processors.unwrap_or(own_processors);
        let (rank, size) = (engine.rank().0, engine.size());
        let wait_fd = engine.endpoint().wait_fd();
        let of_fabric = wait_fd.unwrap_or(-1);
        let settles = engine.endpoint().wait_fd_settles();
        let descriptors = Descriptors { of_fabric, settles, other: engine.bootstrap().wait_fd() };
        let bell = Event::new("the event that wakes sleeping threads")?;
        let sleeper = wait_fd.map(|_| Sleeper::new(&descriptors, &bell)).transpose()?;
        Ok(Self {
            contenders: AtomicU32::new(0),
            turns: AtomicU32::new(0),
            bell,
            told: AtomicU32::new(0),
            news: Parking::new(),
            activity: AtomicU64::new(0),
            sleepers: AtomicU32::new(0),
            agent_is_parked: AtomicBool::new(false),
            agent_thread: OnceLock::new(),
            agent_defers: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            has_lent: AtomicBool::new(false),
            writing: Mutex::new(()),
            sleeper,
            descriptors,
            // A rank that is bound to one shares it with its agent, however many others there are.
            has_spare_processors: own_processors > 1
                && 2 * engine.bootstrap().local_size() as usize <= processors,
            may_spin: engine.bootstrap().local_size() as usize <= processors,
            timeout,
            rank,
            size,
            lost: Mutex::new(Vec::new()),
            left_barrier: Mutex::new(None),
            kept: Mutex::new(Vec::new()),
            guard: Guard::new(Guarded {
                engine,
                posts_left: POSTS_PER_PROGRESS,
                left_at_end: POSTS_PER_PROGRESS,
                phase: Phase::AtWork,
                trace: None,
                outputs: Outputs::default(),
                sleeping: Sleeping::default(),
                told_time: None,
            }),
        })
    }

    /// Keeps memory of a window that was not freed until nobody can access it any more.
    pub(crate) fn keep(&self, memory: Box<dyn Any + Send>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }

    /// The engine, for a call that needs the job to be at work.
    #[inline]
    pub(crate) fn enter(&self, call: Call) -> Result<Held<'_, Guarded>> {
        let guarded = self.enter_anyway();
        if guarded.phase == Phase::Finalized {
            return Err(self.finalized(guarded, call));
        }
        Ok(guarded)
    }

    /// Notes that an operation was posted; makes progress now and then.
    #[inline]
    pub(crate) fn posted(&self, guarded: &mut Guarded) {
        if guarded.is_progress_due() {
            self.progress(guarded);
        }
    }

    /// Notes that a flush or an epoch was over at once, which counts like an operation where none was posted since the last.
    #[inline]
    pub(crate) fn ended(&self, guarded: &mut Guarded) {
        if guarded.posts_left == guarded.left_at_end {
            self.posted(guarded);
        }
        guarded.left_at_end = guarded.posts_left;
    }

    /// Makes progress for the program; the agent sees it and stays away.
    pub(crate) fn progress(&self, guarded: &mut Guarded) -> usize {
        guarded.posts_left = POSTS_PER_PROGRESS;
        // Under the guard, so a load and a store count well enough.
        let activity = self.activity.load(Ordering::Relaxed);
        self.activity.store(activity.wrapping_add(1), Ordering::Relaxed);
        if activity % PROGRESS_PER_LOOK == 0 {
            self.hear(guarded);
        }
        self.progress_unnoticed(guarded)
    }

    /// Takes what the launcher has said; that a rank has died may be what somebody waits for.
    #[cold]
    #[inline(never)]
    fn hear(&self, guarded: &mut Guarded) {
        guarded.engine.bootstrap().receive();
        let news = guarded.engine.hear_of_losses();
        if guarded.engine.ended_ranks().next().is_some() {
            *self.lost.lock().unwrap_or_else(PoisonError::into_inner) =
                guarded.engine.ended_ranks().collect();
        }
        if news > 0 && guarded.sleeping.is_anybody() {
            self.tell(guarded);
        }
    }

    /// The same for a part of the job, unless somebody is at work.
    pub(crate) fn hear_as_guest(&self) {
        if let Some(mut guarded) = self.try_visit() {
            self.hear(&mut guarded);
        }
    }

    /// Makes progress for the agent, which does not tell itself to stay away.
    pub(crate) fn progress_unnoticed(&self, guarded: &mut Guarded) -> usize {
        if guarded.engine.wants_time() {
            guarded.tell_time();
        }
        let moved = guarded.engine.progress();
        if moved > 0 && guarded.sleeping.is_anybody() {
            self.tell(guarded);
        }
        moved
    }

    /// An error as the user gets it.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail(&self, error: RmaError) -> Error {
        self.has_failed.store(true, Ordering::Relaxed);
        events::failed(self.rank, &error);
        error.into()
    }

    /// Nobody waits for the other ranks when the job is dropped: they were told that it failed.
    pub(crate) fn give_up(&self) {
        self.enter_anyway().phase = Phase::Finalized;
    }

    /// Whether a call has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// A window is made over memory that is the program's again when the job is gone.
    pub(crate) fn lend_memory(&self) {
        self.has_lent.store(true, Ordering::Relaxed);
    }

    /// Whether there ever was such a window: then nothing may stay open behind a dropped job.
    pub(crate) fn has_lent_memory(&self) -> bool {
        self.has_lent.load(Ordering::Relaxed)
    }

    /// Longest time that a blocking call may take.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    #[cold]
    #[inline(never)]
    fn finalized(&self, _guarded: Held<'_, Guarded>, call: Call) -> Error {
        Error::new(ErrorKind::Finalized { call })
    }
}
