//! Who calls the one progress function while the program is outside of the library.

use std::sync::Arc;

use crate::error::Result;
use crate::options::Progress;
use crate::runtime::agent::Agent;
use crate::runtime::Core;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use crate::signal::Driver as Signals;

/// The driver of a job's progress.
#[derive(Debug)]
pub(crate) enum Driver {
    /// The program's own calls, and nobody else.
    None,
    /// A thread.
    Thread { _agent: Agent },
    /// A timer's signal in the thread that joined.
    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    Signal { _signals: Signals },
}

impl Driver {
    /// Starts what the options ask for. The calling thread is the one that a signal interrupts.
    ///
    /// # Errors
    /// When it is not possible here; the message says why, and what is.
    pub(crate) fn start(core: &Arc<Core>, progress: Progress, signal: Option<u64>) -> Result<Self> {
        match progress {
            Progress::Auto if core.size == 1 => Ok(Self::None),
            // A ghost's rank makes no progress by itself: what others want of it, they ask its ghost for.
            Progress::None | Progress::Ghost => Ok(Self::None),
            Progress::Auto | Progress::Thread => Ok(Self::Thread { _agent: Agent::start(core)? }),
            Progress::Signal => Self::start_signals(core, signal),
        }
    }

    #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn start_signals(core: &Arc<Core>, signal: Option<u64>) -> Result<Self> {
        core.set_agent_defers();
        Ok(Self::Signal { _signals: Signals::start(core, signal)? })
    }

    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    fn start_signals(_core: &Arc<Core>, _signal: Option<u64>) -> Result<Self> {
        Err(crate::Error::new(crate::ErrorKind::System(
            "RMA_PROGRESS=signal: only on Linux on x86-64 or aarch64; use RMA_PROGRESS=thread".to_owned(),
        )))
    }

    /// Whether a thread makes progress beside the program's.
    pub(crate) fn is_thread(&self) -> bool {
        matches!(self, Self::Thread { .. })
    }

    /// Ends it. When this returns, nobody but the job holds the engine.
    pub(crate) fn stop(&mut self) {
        *self = Self::None;
    }
}
