//! How the processes of a job learn who they are and find each other before the fabric works, and
//! the settings that every program of the project knows.
//!
//! [`detect`] decides from the environment: a process that `rmarun` started talks to it
//! ([`LauncherClient`]); a process that nobody launched is a job of one rank ([`SingleProcess`]).
//! What is neither, half of the variables or a launcher that cannot be spoken to, is an error and
//! never a silent job of one.
//!
//! Nothing is gathered from all ranks: a value is asked for when it is needed, one rank at a time.

pub mod control;
pub mod environment;
pub mod settings;
pub mod wire;

mod client;
mod requests;
mod single;

use std::time::Duration;

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::ids::Rank;

pub use client::LauncherClient;
pub use single::SingleProcess;

use environment::{Environment, Identity, Launch};
use settings::Settings;

/// The key under which a rank publishes its provider address.
pub const ADDRESS_KEY: &str = "address";

/// The answer to a get.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fetch {
    /// The value.
    Found(Vec<u8>),
    /// Not there yet: ask again later. Never returned for ever; `RMA_BOOTSTRAP_TIMEOUT` ends it.
    Pending,
}

/// The bootstrap of this process, whichever it is.
#[derive(Debug)]
pub enum JobBootstrap {
    /// Started by `rmarun`.
    Launcher(Box<LauncherClient>),
    /// Started by nobody in particular: a job of one rank.
    Single(SingleProcess),
}

/// Finds out from the environment and the settings file how this process was started and joins its
/// job. Blocks for one exchange with the launcher at most, bounded by `RMA_BOOTSTRAP_TIMEOUT`.
///
/// The control connection is taken over (and no longer inherited by children of this process), so
/// this succeeds once in a process that `rmarun` started.
///
/// # Errors
/// When the `RMA_*` variables are incomplete or malformed, when another launcher that cannot be
/// spoken to started this process, when a setting is malformed, or when `rmarun` does not answer.
pub fn detect() -> Result<JobBootstrap, BootstrapError> {
    let settings = Settings::load().map_err(|error| BootstrapError { message: error.to_string() })?;
    detect_with(&Environment::of_this_process(), &settings)
}

/// As [`detect`], from an environment and settings that were read before.
///
/// # Errors
/// As [`detect`].
pub fn detect_with(environment: &Environment, settings: &Settings) -> Result<JobBootstrap, BootstrapError> {
    let launch = environment::launch_of(environment).map_err(|message| BootstrapError { message })?;
    match launch {
        Launch::Single => Ok(JobBootstrap::Single(SingleProcess::new())),
        Launch::Rmarun(Identity { control_fd, place }) => {
            let limit = settings.seconds("RMA_BOOTSTRAP_TIMEOUT").unwrap_or(DEFAULT_TIME_LIMIT);
            let control = control::adopt(control_fd).map_err(|message| BootstrapError { message })?;
            LauncherClient::connect(control, place, limit)
                .map(|client| JobBootstrap::Launcher(Box::new(client)))
        }
    }
}

/// What holds where no setting says how long to wait for the bootstrap.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(60);

impl JobBootstrap {
    /// Rank of this process among the ranks on its host, counted from 0.
    pub fn local_rank(&self) -> u32 {
        match self {
            Self::Launcher(client) => client.local_rank(),
            Self::Single(_) => 0,
        }
    }

    /// Number of ranks on this host, at least 1.
    pub fn local_size(&self) -> u32 {
        match self {
            Self::Launcher(client) => client.local_size(),
            Self::Single(_) => 1,
        }
    }

    /// Whether all ranks of the job run on this host.
    pub fn single_host(&self) -> bool {
        self.local_size() == self.size()
    }

    /// A name that no other job on this host has at the same time.
    pub fn job_id(&self) -> &str {
        match self {
            Self::Launcher(client) => client.job_id(),
            Self::Single(single) => single.job_id(),
        }
    }

    /// Makes `value` visible to all ranks under (this rank, `key`). A key is written once.
    ///
    /// # Errors
    /// When key or value are too long, the key was written before, or the launcher is gone. A refusal
    /// by the launcher comes back from the next call.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        match self {
            Self::Launcher(client) => client.put(key, value),
            Self::Single(single) => single.put(key, value),
        }
    }

    /// The value that `rank` put under `key`; asks once and never blocks.
    ///
    /// # Errors
    /// When the rank is not in the job, has ended without publishing the key or has not published it
    /// within the time limit, or when the launcher is gone.
    pub fn get(&mut self, rank: Rank, key: &str) -> Result<Fetch, BootstrapError> {
        match self {
            Self::Launcher(client) => client.get(rank, key),
            Self::Single(single) => single.get(rank, key),
        }
    }

    /// Sleeps until the launcher has said something, at most `timeout`. Returns whether it has; asking
    /// again ([`JobBootstrap::get`]) is worth while then.
    ///
    /// # Errors
    /// When the operating system refuses to wait.
    pub fn wait_readable(&mut self, timeout: Duration) -> Result<bool, BootstrapError> {
        match self {
            Self::Launcher(client) => client.wait_readable(timeout),
            Self::Single(_) => Ok(true),
        }
    }

    /// Takes what the launcher has said, without asking anything. Never blocks.
    pub fn receive(&mut self) {
        if let Self::Launcher(client) = self {
            client.receive();
        }
    }

    /// A descriptor for a thread that sleeps until the launcher says something: readable until that is
    /// taken ([`JobBootstrap::receive`], or any call that asks). `None` where nobody will say anything.
    pub fn wait_fd(&self) -> Option<i32> {
        match self {
            Self::Launcher(client) => client.wait_fd(),
            Self::Single(_) => None,
        }
    }

    /// Says that this rank ends in an orderly way. An exit without it is a failure of the job as long
    /// as other ranks are still at work. A second call does nothing.
    ///
    /// # Errors
    /// When the launcher is gone.
    pub fn finalize(&mut self) -> Result<(), BootstrapError> {
        match self {
            Self::Launcher(client) => client.finalize(),
            Self::Single(_) => Ok(()),
        }
    }

    /// Whether every rank of the job has finalized or ended; `false` until this one has. Until then others
    /// may still wait for packets of this rank: keep its endpoint open and progressing. Never blocks.
    ///
    /// # Errors
    /// When others do not finalize within the time limit, or the launcher is gone.
    pub fn poll_all_finalized(&mut self) -> Result<bool, BootstrapError> {
        match self {
            Self::Launcher(client) => client.poll_all_finalized(),
            Self::Single(_) => Ok(true),
        }
    }

    /// Asks for the whole job to be ended with this exit code; `message` is shown to the user. The
    /// caller should exit after it.
    ///
    /// # Errors
    /// When the launcher is gone (it ends the job then by itself).
    pub fn abort(&mut self, code: i32, message: &str) -> Result<(), BootstrapError> {
        match self {
            Self::Launcher(client) => client.abort(code, message),
            Self::Single(_) => Ok(()),
        }
    }
}

impl Bootstrap for JobBootstrap {
    fn rank(&self) -> Rank {
        match self {
            Self::Launcher(client) => client.rank(),
            Self::Single(single) => single.rank(),
        }
    }

    fn size(&self) -> u32 {
        match self {
            Self::Launcher(client) => client.size(),
            Self::Single(single) => single.size(),
        }
    }

    fn publish(&mut self, address: &AddressBytes) -> Result<(), BootstrapError> {
        match self {
            Self::Launcher(client) => client.publish(address),
            Self::Single(single) => single.publish(address),
        }
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        match self {
            Self::Launcher(client) => client.lookup(rank),
            Self::Single(single) => single.lookup(rank),
        }
    }
}
