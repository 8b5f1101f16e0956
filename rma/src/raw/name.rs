//! Names of windows, for errors.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rma_core::engine::SyncCall;
use rma_core::error::{Call, RmaError};
use rma_core::ids::Rank;

use super::RawWindow;
use crate::error::{Error, Result};
use crate::events;
use crate::platform::Engine;

/// The name of a window, which is its number until it gets one.
#[derive(Default)]
pub(super) struct Name(Mutex<Option<Arc<str>>>);

impl Name {
    fn get(&self) -> Option<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(name) => write!(f, " '{name}'"),
            None => Ok(()),
        }
    }
}

impl RawWindow {
    /// Gives the window a name at this rank (MPI_Win_set_name), which errors of its calls have from now on instead of
    /// its number. An empty one takes it away.
    ///
    /// Implements: MPI_Win_set_name.
    pub fn set_name(&self, name: &str) {
        let name = Some(name).filter(|name| !name.is_empty()).map(Arc::from);
        *self.name.0.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// The window's name at this rank (MPI_Win_get_name), empty if it has none.
    ///
    /// Implements: MPI_Win_get_name.
    pub fn name(&self) -> String {
        self.name.get().map(|name| name.to_string()).unwrap_or_default()
    }

    /// An error of a call on this window, as the user gets it.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail(&self, error: RmaError) -> Error {
        self.named(self.core.fail(error))
    }

    /// An error with what tells which window's it is, and whose.
    #[cold]
    #[inline(never)]
    pub(crate) fn named(&self, error: Error) -> Error {
        error.of_window(self.core.rank, self.id(), self.name.get())
    }

    /// A blocking call on this window.
    pub(super) fn run(
        &self,
        call: Call,
        start: impl FnOnce(&mut Engine) -> std::result::Result<SyncCall, RmaError>,
    ) -> Result<()> {
        self.run_to(call, Rank::NULL, start)
    }

    /// The same of a call that names a target.
    #[inline]
    pub(super) fn run_to(
        &self,
        call: Call,
        target: Rank,
        start: impl FnOnce(&mut Engine) -> std::result::Result<SyncCall, RmaError>,
    ) -> Result<()> {
        let run = self.core.run_to(call, target, start);
        self.over(call, target, run)
    }

    /// The end of a blocking call on this window.
    #[inline]
    pub(super) fn over(&self, call: Call, target: Rank, run: Result<()>) -> Result<()> {
        run.map_err(|error| self.named(error))?;
        events::called(call, self.core.rank, Some(self.id), target);
        Ok(())
    }
}
