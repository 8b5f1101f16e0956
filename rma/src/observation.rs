//! What a job writes for people when it ends (`RMA_TRACE`, `RMA_METRICS`), from the options to the runtime.

use std::path::PathBuf;
use std::sync::Arc;

use rma_bootstrap::JobBootstrap;
use rma_core::bootstrap::Bootstrap;

use crate::error::{Error, Result};
use crate::options::Options;
use crate::runtime::Core;
use crate::termination;
use crate::trace::{clock, file, Alignment, Origin, Outputs};

/// What is wanted.
#[derive(Debug)]
pub(crate) struct Observation {
    trace: Option<PathBuf>,
    events: usize,
    metrics: Option<PathBuf>,
    /// The clocks of several hosts are to be compared.
    has_hosts: bool,
}

impl Observation {
    /// Begins the timeline's file, at rank 0.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn begin(options: &Options, bootstrap: &JobBootstrap) -> Result<Self> {
        if let Some(path) = options.trace.as_ref().filter(|_| bootstrap.rank().0 == 0) {
            file::begin(path).map_err(|error| {
                Error::system(&format!("RMA_TRACE: {} cannot be written", path.display()), &error)
            })?;
        }
        Ok(Self {
            trace: options.trace.clone(),
            events: options.trace_events,
            metrics: options.metrics.clone(),
            has_hosts: !bootstrap.single_host(),
        })
    }

    /// Lets the runtime observe from now on. Collective where there are several hosts and a timeline is wanted.
    ///
    /// # Errors
    /// When the hosts' clocks cannot be compared, or the system refuses what it takes to hear of SIGTERM.
    pub(crate) fn start(self, core: &Arc<Core>) -> Result<()> {
        let alignment = match self.has_hosts && self.trace.is_some() {
            true => core.align_clocks(clock::host_number())?,
            false => Alignment::default(),
        };
        let (rank, size, process) = (core.rank, core.size, std::process::id());
        let origin = Origin { rank, size, host: clock::host_name(), process, alignment };
        let trace = self.trace.map(|path| (path, origin));
        let is_anything = trace.is_some() || self.metrics.is_some();
        core.observe(Outputs { trace, metrics: self.metrics }, self.events);
        if is_anything {
            termination::watch(core)?;
        }
        Ok(())
    }
}
