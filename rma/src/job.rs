//! A job: this process, the others, and what they share.

mod split;

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rma_bootstrap::environment::Environment;
use rma_bootstrap::JobBootstrap;
use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::counters::Counters;
use rma_core::error::RmaError;
use rma_core::ids::Rank;
use rma_core::provider::Endpoint as _;

use crate::cancellation::Uncancelled;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::events;
use crate::fabric::{self, Description, FabricEndpoint, Opened};
use crate::ghost::Child;
use crate::observation::Observation;
use crate::options::{Options, Progress};
use crate::platform::{self, say, Engine};
use crate::raw::unserved::Said;
use crate::runtime::Core;
use crate::trace::metrics;

/// How long a job that is dropped without [`Job::finalize`] waits for the other ranks.
const DROP_PATIENCE: Duration = Duration::from_secs(5);

/// How long the endpoint of a job that is dropped after a failed call stays open, if the process goes on so long: for the
/// program to say what went wrong before the others notice.
const LAST_WORDS_PATIENCE: Duration = Duration::from_secs(5);

/// This process's membership in a job. Cloning is cheap; all clones are the same membership, and so is
/// what windows hold.
///
/// Call order: [`Job::init`]; make windows and use them; free them; [`Job::finalize`]. Every thread may
/// call everything; calls of different threads take turns. Collective calls come in one order at every rank (docs/threads.md).
///
/// Dropped without `finalize`, the last clone waits for the other ranks for five seconds, and asks the
/// launcher to end the job if they do not finalize; after an error, or in a panic, it does not wait, so
/// that a program that fails ends at once. What the program says then, such as the error of its `main`, still
/// reaches the output of `rmarun`: a rank that asked for the end has some seconds to end by itself. After an error the
/// endpoint stays open for as long, unserved, so that the others notice that the rank is gone when it has said why; not so
/// where a window was made over memory that the program has lent ([`crate::raw`]), which it may free at once.
///
/// ```
/// let job = rma::Job::init()?;
/// println!("rank {} of {}", job.rank(), job.size());
/// job.finalize()?;
/// # Ok::<(), rma::Error>(())
/// ```
#[derive(Clone)]
pub struct Job {
    shared: Arc<Shared>,
}

/// One membership. Dropped in order: the agent ends, and then the core closes and frees what it has.
struct Shared {
    driver: Mutex<Driver>,
    core: Arc<Core>,
    place: Place,
    /// The ranks on this host, where they are known.
    neighbours: Option<Arc<[Rank]>>,
    /// The process id of this rank's ghost.
    ghost: Option<u32>,
    /// Of which kinds of windows was said that no ghost serves them.
    unserved: Said,
    launcher: String,
    description: Description,
    /// The address of this host that was tried with other hosts, and the options, for parts.
    host_address: Option<String>,
    options: Options,
    /// A part's. Dropped last: the whole job ends behind its parts.
    origin: Option<split::Origin>,
    /// Where there is an agent, of the thread that joined: behind all that may be inside of the library.
    _uncancelled: Option<Uncancelled>,
}

/// Where this process is.
#[derive(Clone, Copy, Debug)]
struct Place {
    local_rank: u32,
    local_size: u32,
}

impl Job {
    /// Joins the job that this process was started for: by `rmarun`, by a launcher that speaks PMIx or PMI
    /// (`srun`, `mpiexec`, `mpirun`), or alone as a job of one rank. Reads the settings, chooses and opens a
    /// provider, and starts the progress agent.
    ///
    /// # Errors
    /// When a setting is wrong, the launcher cannot be reached, the provider that was asked for or every one
    /// cannot be had, or this process has joined before.
    pub fn init() -> Result<Self> {
        Self::init_with(Options::load()?)
    }

    /// The same with options that the program has looked at or changed.
    ///
    /// # Errors
    /// As for [`Job::init`].
    pub fn init_with(options: Options) -> Result<Self> {
        // Before a ghost is started with them.
        options.config.check()?;
        // Before anything is there that a process cannot share.
        let child = (options.progress == Progress::Ghost).then(|| Child::fork(&options)).transpose()?;
        let ghost = child.as_ref().map(Child::pid);
        let mut bootstrap = rma_bootstrap::detect_with(&Environment::of_this_process(), &options.settings)?;
        // `rmarun` has said it for its ranks; of the others one is enough.
        if !matches!(bootstrap, JobBootstrap::Launcher(_)) && bootstrap.rank() == Rank(0) {
            for warning in options.settings.warnings() {
                say(format_args!("{warning}"));
            }
        }
        let observation = Observation::begin(&options, &bootstrap)?;
        let place = Place { local_rank: bootstrap.local_rank(), local_size: bootstrap.local_size() };
        let neighbours = bootstrap.local_ranks().map(Arc::from);
        let launcher = bootstrap.launcher();
        let at = fabric::Place {
            size: bootstrap.size(),
            local_rank: bootstrap.local_rank(),
            local_size: bootstrap.local_size(),
            has_ghost: child.is_some(),
            in_handlers: options.progress == Progress::Signal,
        };
        let Opened { endpoint, description, host_address } =
            fabric::open(&options.fabric, &at, |addresses| Ok(bootstrap.prove_address(addresses)?))?;
        let warning = fabric::no_lock_atomics(
            options.config.lock_protocol,
            [endpoint.native_allocated(), endpoint.native_near()],
        );
        if let Some(warning) = warning.filter(|_| bootstrap.rank() == Rank(0)) {
            say(format_args!("{warning}"));
        }
        let engine = match child {
            None => Engine::open(endpoint, bootstrap, options.config.clone())?,
            Some(child) => {
                let link = child.join(bootstrap.rank().0, &at, host_address.as_deref())?;
                Engine::open_with_ghost(endpoint, bootstrap, options.config.clone(), Box::new(link))?
            }
        };
        let core = Arc::new(Core::new(engine, options.timeout, options.host_processors)?);
        let driver = Driver::start(&core, options.progress, options.signal)?;
        observation.start(&core)?;
        events::joined(Rank(core.rank), core.size, &launcher, &description.provider, &description.candidates);
        let uncancelled = driver.is_thread().then(Uncancelled::this_thread);
        let shared = Shared {
            driver: Mutex::new(driver),
            core,
            place,
            neighbours,
            ghost,
            unserved: Said::default(),
            launcher,
            description,
            host_address,
            options,
            origin: None,
            _uncancelled: uncancelled,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        Rank(self.core().rank)
    }

    /// Number of ranks in the job.
    pub fn size(&self) -> u32 {
        self.core().size
    }

    /// This process's rank among those on its host.
    pub fn local_rank(&self) -> u32 {
        self.shared.place.local_rank
    }

    /// Number of ranks on this host.
    pub fn local_size(&self) -> u32 {
        self.shared.place.local_size
    }

    /// The ranks on this host, as the launcher counts them, in order; this one is among them. `None`: the launcher
    /// says only how many they are, as PMI servers without `PMI_process_mapping` and older versions of `rmarun` do.
    ///
    /// The parts of a shared window that this process can load and store are theirs
    /// ([`RawWindow::allocate_shared`](crate::raw::RawWindow::allocate_shared)).
    ///
    /// ```
    /// let job = rma::Job::init()?;
    /// let here = job.local_ranks().expect("a launcher that says it");
    /// assert!(here.contains(&job.rank()));
    /// # Ok::<(), rma::Error>(())
    /// ```
    pub fn local_ranks(&self) -> Option<&[Rank]> {
        self.shared.neighbours.as_deref()
    }

    /// Which launcher this process belongs to and how it is spoken to, for people.
    pub fn launcher(&self) -> &str {
        &self.shared.launcher
    }

    /// The process that has the target role of this rank's windows (`RMA_PROGRESS=ghost`), by its number; `None`:
    /// this one has.
    pub fn ghost(&self) -> Option<u32> {
        self.shared.ghost
    }

    /// Of which kinds of windows was said that no ghost serves them.
    pub(crate) fn unserved(&self) -> &Said {
        &self.shared.unserved
    }

    /// Returns when every rank has called it. It says nothing about operations on windows. Where it takes longer than
    /// [`Options::timeout`] the rank has come to it all the same, and the next barrier waits for its end, or before that the next call
    /// that makes a window, [`Job::split`] or [`Job::finalize`].
    ///
    /// # Errors
    /// When the endpoint is broken or a rank cannot be reached any more.
    pub fn barrier(&self) -> Result<()> {
        self.core().barrier()
    }

    /// Makes progress once, without waiting: serves other ranks, completes what is complete. For loops that
    /// wait for something of their own, such as an element of [`crate::Window::local`] to change. Returns how
    /// many things happened.
    pub fn progress(&self) -> usize {
        let core = self.core();
        core.progress(&mut core.enter_anyway())
    }

    /// What happened so far: packets, bytes, round trips, operations by path, pools.
    pub fn counters(&self) -> Counters {
        self.core().enter_anyway().engine.counters()
    }

    /// The same as text, in the format that Prometheus reads. `RMA_METRICS` writes it to a file when the rank leaves the
    /// job.
    ///
    /// ```
    /// # let job = rma::Job::init()?;
    /// assert!(job.metrics().contains("rma_round_trips_total{rank=\"0\"} 0"));
    /// # Ok::<(), rma::Error>(())
    /// ```
    pub fn metrics(&self) -> String {
        metrics::text(&self.counters(), self.rank().0)
    }

    /// Bytes that this process holds for the job beside its windows and the endpoint's buffers.
    pub fn shared_bytes(&self) -> usize {
        self.core().enter_anyway().engine.shared_bytes()
    }

    /// What was opened, why this was chosen, and what else there is: a few lines for people.
    pub fn provider_description(&self) -> String {
        let description = &self.shared.description;
        format!("{description}\ncandidates:\n{}", description.candidates)
    }

    /// What was opened, field by field.
    pub fn provider(&self) -> &Description {
        &self.shared.description
    }

    /// The settings of the engine.
    pub fn config(&self) -> Config {
        self.core().enter_anyway().engine.config().clone()
    }

    /// Changes the optimizations' switches and thresholds, for instance to measure what they gain. To
    /// be called while no epoch is open; sizes of pools stay as they are.
    pub fn set_switches(&self, config: &Config) {
        self.core().enter_anyway().engine.set_switches(config);
    }

    /// Lets `body` use the endpoint directly, for instance to measure it. No other thread of this process,
    /// the agent included, makes progress meanwhile.
    ///
    /// # Safety
    /// `body` leaves the endpoint in its place, takes no completion of an operation that it has not posted
    /// itself, and releases every packet that it takes. Packets that it sends must be meant for a rank whose
    /// process takes them the same way.
    pub unsafe fn with_endpoint<R>(&self, body: impl FnOnce(&mut FabricEndpoint) -> R) -> R {
        body(self.core().enter_anyway().engine.endpoint())
    }

    /// Lets `body` use the engine directly, for a runtime that is built on it. No other thread of this
    /// process, the agent included, makes progress meanwhile.
    ///
    /// # Safety
    /// `body` leaves the engine in its place, and frees no window that it has not made itself.
    pub unsafe fn with_engine<R>(&self, body: impl FnOnce(&mut Engine) -> R) -> R {
        body(&mut self.core().enter_anyway().engine)
    }

    /// Ends this process's part in the job: waits until every rank has called it, and returns when
    /// nobody needs this process's endpoint any more. After a death it waits for those who are left, whom it serves
    /// meanwhile, as long as `RMA_BOOTSTRAP_TIMEOUT` says, and then they cannot reach this process any more. Free windows
    /// before. What clones and windows are asked to do after it is refused.
    ///
    /// # Errors
    /// When an epoch is open on a window (`MPI_ERR_RMA_SYNC`): nothing has happened then, and the job can be finalized
    /// when it is closed. When a rank cannot be reached any more, or the launcher is gone.
    pub fn finalize(self) -> Result<()> {
        self.core().check_closed()?;
        let finalized = self.core().finalize(self.core().timeout());
        self.core().write_outputs(if finalized.is_ok() { "finalized" } else { "finalize has failed" });
        if matches!(finalized.as_ref().map_err(Error::rma), Err(Some(RmaError::Peer { .. }))) {
            self.stay_for_the_living();
        }
        finalized
    }

    pub(crate) fn neighbours(&self) -> Option<&Arc<[Rank]>> {
        self.shared.neighbours.as_ref()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.shared.core
    }

    /// Keeps memory of a window that was not freed until nobody can access it any more.
    pub(crate) fn keep(&self, memory: Box<dyn Any + Send>) {
        self.shared.core.keep(memory);
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job(rank {} of {}, {})", self.rank(), self.size(), self.shared.description.provider)
    }
}

impl Shared {
    /// Finalizes a job that is dropped without having been. `true`: it was aborted.
    fn end(&self) -> bool {
        let has_failed = self.core.has_failed();
        // A part's process may live on, and no launcher tells the others that it has left the part.
        if self.core.is_finalized() || has_failed && self.origin.is_none() || thread::panicking() {
            return false;
        }
        match self.core.finalize(Some(DROP_PATIENCE)) {
            Ok(()) => {}
            // The program knows of its error.
            Err(_) if has_failed => {}
            Err(error) if error.is_stalled() => {
                let message = "the job was dropped without Job::finalize, and other ranks were still at work";
                say(format_args!("rank {}: {message}", self.core.rank));
                // The launcher may be gone; it ends the job then by itself.
                let _ = self.core.enter_anyway().engine.bootstrap().abort(1, message);
                return true;
            }
            Err(error) => say(format_args!("rank {}: {error}", self.core.rank)),
        }
        false
    }

    /// Keeps the endpoint open until the process ends. Were it closed now, other ranks would see that and say so before
    /// this one has said why it ends.
    fn leave_open(&self) {
        static LEFT: Mutex<Vec<Arc<Core>>> = Mutex::new(Vec::new());
        LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&self.core));
    }

    /// The same for some seconds: a program that lives on without its job should be gone for the others then.
    fn leave_open_for_a_while(&self) {
        let core = Arc::clone(&self.core);
        let close = move || {
            platform::sleep(LAST_WORDS_PATIENCE);
            drop(core);
        };
        // Without a thread it is closed now: the words still arrive, after what the others may say.
        drop(platform::spawn("rma-left", close));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let is_aborted = self.end();
        self.core.write_outputs(match (thread::panicking(), self.core.has_failed()) {
            (true, _) => "a panic",
            (_, true) => "dropped after a call has failed",
            _ => "dropped",
        });
        // Then nobody but this value holds the core, unless it stays open, or its outputs are being written: with it everything
        // stays that others may access.
        self.driver.get_mut().unwrap_or_else(PoisonError::into_inner).stop();
        // What was lent the program may free when this returns.
        let may_stay = !self.core.has_lent_memory();
        if may_stay && is_aborted {
            self.leave_open();
        } else if may_stay && self.core.has_failed() && !self.core.is_finalized() {
            self.leave_open_for_a_while();
        }
    }
}
