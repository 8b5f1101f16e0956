//! How the processes of a job learn who they are and find each other before the fabric works, and
//! the settings that every program of the project knows.
//!
//! [`detect`] decides from the environment, in this order: `rmarun` ([`LauncherClient`]), a launcher that
//! speaks PMIx ([`PmixClient`]) or PMI ([`PmiClient`]), or nobody, which makes a job of one rank
//! ([`SingleProcess`]). What is neither, half of the variables or a launcher that cannot be spoken to, is an
//! error and never a silent job of one.
//!
//! Nothing is gathered from all ranks: a value is asked for when it is needed, one rank at a time.

pub mod control;
pub mod description;
pub mod environment;
#[doc(hidden)]
pub mod hostile;
pub mod interfaces;
pub mod pmi;
pub mod pmix;
pub mod settings;
pub mod tree;
pub mod wire;

mod client;
mod family;
mod last_words;
mod launch;
mod member;
pub mod neighbours;
mod part;
mod reach;
mod requests;
mod single;
mod socket;

use std::net::IpAddr;
use std::time::Duration;

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::ids::Rank;

pub use client::LauncherClient;
pub use part::{Part, PartMember, Whole};
pub use pmi::PmiClient;
pub use pmix::PmixClient;
pub use single::SingleProcess;

use control::Control;
use environment::{Environment, Identity};
use launch::{Launch, Pmi};
use member::Member;
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
    /// Started by a launcher that speaks PMIx.
    Pmix(Box<PmixClient>),
    /// Started by a launcher that speaks PMI-1 or PMI-2.
    Pmi(Box<PmiClient>),
    /// Started by nobody in particular: a job of one rank.
    Single(SingleProcess),
    /// Split off another job.
    Part(Box<Part>),
}

/// Finds out from the environment and the settings file how this process was started and joins its
/// job. Blocks for a few exchanges with the launcher at most, bounded by `RMA_BOOTSTRAP_TIMEOUT`.
///
/// The connection to the launcher is taken over (and no longer inherited by children of this process), so
/// this succeeds once in a process that was launched.
///
/// # Errors
/// When the launcher's variables are incomplete or malformed, when another launcher that cannot be
/// spoken to started this process, when a setting is malformed, or when the launcher does not answer.
pub fn detect() -> Result<JobBootstrap, BootstrapError> {
    let settings = Settings::load().map_err(|error| BootstrapError { message: error.to_string() })?;
    detect_with(&Environment::of_this_process(), &settings)
}

/// As [`detect`], from an environment and settings that were read before.
///
/// # Errors
/// As [`detect`].
pub fn detect_with(environment: &Environment, settings: &Settings) -> Result<JobBootstrap, BootstrapError> {
    let failed = |message| BootstrapError { message };
    let wanted = settings.text("RMA_BOOTSTRAP").unwrap_or("auto");
    let limit = settings.seconds("RMA_BOOTSTRAP_TIMEOUT").unwrap_or(DEFAULT_TIME_LIMIT);
    match launch::launch_of(environment, wanted).map_err(failed)? {
        Launch::Single => Ok(JobBootstrap::Single(SingleProcess::new())),
        Launch::Rmarun(Identity { control_fd, place }) => {
            let socket = socket::adopt(control_fd, "RMA_CONTROL_FD").map_err(failed)?;
            if let Some(fd) = environment.get("PMI_FD").and_then(|fd| fd.parse().ok()) {
                socket::keep_from_children(fd);
            }
            let control = Control::new(socket)
                .map_err(|error| failed(format!("control connection {control_fd}: {error}")))?;
            LauncherClient::connect(control, place, limit)
                .map(|client| JobBootstrap::Launcher(Box::new(client)))
        }
        Launch::Pmi(pmi) => join_pmi(&pmi, limit),
        Launch::Pmix(identity, pmi) => {
            match (PmixClient::join(&identity, settings.text("RMA_PMIX"), limit), pmi) {
                (Ok(joined), _) => joined.map(|client| JobBootstrap::Pmix(Box::new(client))),
                (Err(_), Some(pmi)) => join_pmi(&pmi, limit),
                (Err(what), None) => Err(failed(format!(
                    "this process is rank {} of the PMIx job {}: {what}; or start the job with a launcher that speaks \
                     PMI (`srun --mpi=pmi2`, `mpiexec`) or with `rmarun`",
                    identity.rank, identity.namespace
                ))),
            }
        }
    }
}

fn join_pmi(pmi: &Pmi, limit: Duration) -> Result<JobBootstrap, BootstrapError> {
    let joined = PmiClient::join(&pmi.target, pmi.version, pmi.local_place, limit);
    joined.map(|client| JobBootstrap::Pmi(Box::new(client)))
}

/// What holds where no setting says how long to wait for the bootstrap.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(60);

impl JobBootstrap {
    fn member(&self) -> &dyn Member {
        match self {
            Self::Launcher(client) => &**client,
            Self::Pmix(client) => &**client,
            Self::Pmi(client) => &**client,
            Self::Single(single) => single,
            Self::Part(part) => &**part,
        }
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        match self {
            Self::Launcher(client) => &mut **client,
            Self::Pmix(client) => &mut **client,
            Self::Pmi(client) => &mut **client,
            Self::Single(single) => single,
            Self::Part(part) => &mut **part,
        }
    }

    /// Which launcher this process belongs to and how it is spoken to, for people.
    pub fn launcher(&self) -> String {
        match self {
            Self::Launcher(_) => "rmarun".to_owned(),
            Self::Pmix(client) => format!("PMIx, library {}", client.version()),
            Self::Pmi(client) => match client.version() {
                pmi::Version::One => "PMI-1".to_owned(),
                pmi::Version::Two => "PMI-2".to_owned(),
            },
            Self::Single(_) => "none, a job of one rank".to_owned(),
            Self::Part(_) => "none, a part of another job".to_owned(),
        }
    }

    /// Rank of this process among the ranks on its host, counted from 0.
    pub fn local_rank(&self) -> u32 {
        self.member().local_rank()
    }

    /// Number of ranks on this host, at least 1.
    pub fn local_size(&self) -> u32 {
        self.member().local_size()
    }

    /// The ranks on this host, in order, this one among them; `None` where the launcher says only how many they are.
    pub fn local_ranks(&self) -> Option<Vec<Rank>> {
        let (rank, size, count) = (self.rank().0, self.size(), self.local_size());
        neighbours::of_job(rank, size, count, self.member().local_ranks())
    }

    /// Whether it is some ranks of another job, whom no launcher knows as a job.
    pub fn is_part(&self) -> bool {
        matches!(self, Self::Part(_))
    }

    /// Whether all ranks of the job run on this host.
    pub fn single_host(&self) -> bool {
        self.local_size() == self.size()
    }

    /// A name that no other job on this host has at the same time.
    pub fn job_id(&self) -> &str {
        self.member().job_id()
    }

    /// Finds out by which of `addresses`, the best first, ranks on other hosts reach this one, by trying, if there are
    /// other hosts; all ranks' are of the same family. Every rank of the job calls it, with whatever it has, or none,
    /// before it publishes its address; it blocks until all have. `None` where there is nothing to find out, or no way:
    /// servers of PMIx before version 4 may keep what they knew of a rank first.
    ///
    /// # Errors
    /// When the launcher is gone, a rank does not call it within the time limit, nothing gets through (then the message
    /// lists what was tried and how it failed), or no family of addresses serves all hosts (then it says who has which).
    pub fn prove_address(&mut self, addresses: &[IpAddr]) -> Result<Option<IpAddr>, BootstrapError> {
        match self {
            Self::Launcher(client) if client.local_size() != client.size() => {
                reach::prove_address(&mut **client, addresses)
            }
            Self::Pmi(client) if client.is_spread() => reach::prove_address(&mut **client, addresses),
            Self::Pmix(client) if client.can_share() => reach::prove_address(&mut **client, addresses),
            _ => Ok(None),
        }
    }

    /// Makes `value` visible to all ranks under (this rank, `key`). A key is written once, and before the
    /// address is [published](Bootstrap::publish): PMI launchers carry nothing after it.
    ///
    /// # Errors
    /// When key or value are too long, the key was written before, or the launcher is gone. A refusal
    /// by the launcher comes back from the next call.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), BootstrapError> {
        self.member_mut().put(key, value)
    }

    /// The value that `rank` put under `key`; asks once and never blocks.
    ///
    /// # Errors
    /// When the rank is not in the job, has ended without publishing the key or has not published it
    /// within the time limit, or when the launcher is gone.
    pub fn get(&mut self, rank: Rank, key: &str) -> Result<Fetch, BootstrapError> {
        self.member_mut().get(rank, key)
    }

    /// Sleeps until the launcher has said something, at most `timeout`. Returns whether it has; asking
    /// again ([`JobBootstrap::get`]) is worth while then.
    ///
    /// # Errors
    /// When the operating system refuses to wait.
    pub fn wait_readable(&mut self, timeout: Duration) -> Result<bool, BootstrapError> {
        self.member_mut().wait_readable(timeout)
    }

    /// Takes what the launcher has said, without asking anything. Never blocks.
    pub fn receive(&mut self) {
        self.member_mut().receive();
    }

    /// A descriptor for a thread that sleeps until the launcher says something: readable until that is
    /// taken ([`JobBootstrap::receive`], or any call that asks). `None` where nobody will say anything.
    pub fn wait_fd(&self) -> Option<i32> {
        self.member().wait_fd()
    }

    /// Says that this rank ends in an orderly way. An exit without it is a failure of the job as long
    /// as other ranks are still at work. A second call does nothing.
    ///
    /// # Errors
    /// When the launcher is gone.
    pub fn finalize(&mut self) -> Result<(), BootstrapError> {
        self.member_mut().finalize()
    }

    /// Whether every rank of the job has finalized or ended; `false` until this one has. Until then others
    /// may still wait for packets of this rank: keep its endpoint open and progressing. Never blocks for
    /// longer than one exchange with a process on the same host takes.
    ///
    /// # Errors
    /// When others do not finalize within the time limit, or the launcher is gone.
    pub fn poll_all_finalized(&mut self) -> Result<bool, BootstrapError> {
        self.member_mut().poll_all_finalized()
    }

    /// Asks for the whole job to be ended with this exit code (launchers that are not `rmarun` may choose
    /// their own); `message` is shown to the user. The caller should exit after it.
    ///
    /// # Errors
    /// When the launcher is gone (it ends the job then by itself).
    pub fn abort(&mut self, code: i32, message: &str) -> Result<(), BootstrapError> {
        self.member_mut().abort(code, message)
    }
}

impl Bootstrap for JobBootstrap {
    fn rank(&self) -> Rank {
        self.member().rank()
    }

    fn size(&self) -> u32 {
        self.member().size()
    }

    fn publish(&mut self, address: &AddressBytes) -> Result<(), BootstrapError> {
        self.member_mut().publish(address)
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        self.member_mut().lookup(rank)
    }

    fn poll_lost(&mut self) -> Option<Rank> {
        self.member_mut().poll_lost()
    }
}
