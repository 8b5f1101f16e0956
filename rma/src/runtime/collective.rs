//! Calls in which all ranks of a job meet (a barrier, the making of a window, what is agreed on): a rank is in one of them at
//! a time, and its threads take turns, so that each has what its own ranks have brought.

use std::sync::PoisonError;
use std::time::Duration;

use rma_core::engine::SyncCall;
use rma_core::error::Call;

use super::Core;
use crate::error::Result;

impl Core {
    /// Makes such a call, when those of other threads are over and a barrier that took too long.
    pub(crate) fn collectively<R>(&self, body: impl FnOnce() -> Result<R>) -> Result<R> {
        let mut left = self.left_barrier.lock().unwrap_or_else(PoisonError::into_inner);
        self.end_left(&mut left, self.timeout)?;
        body()
    }

    /// Returns when every rank has called it. One that took too long goes on, and the next call of these waits for its end.
    pub(crate) fn barrier(&self) -> Result<()> {
        drop(self.enter(Call::Barrier)?);
        let mut left = self.left_barrier.lock().unwrap_or_else(PoisonError::into_inner);
        if self.end_left(&mut left, self.timeout)? {
            return Ok(());
        }
        self.close(self.timeout, |engine| engine.start_barrier(), |sync| *left = Some(sync))
    }

    /// Waits for a barrier that took too long; `false`: there was none.
    pub(super) fn end_left(&self, left: &mut Option<SyncCall>, limit: Option<Duration>) -> Result<bool> {
        let Some(mut sync) = left.take() else { return Ok(false) };
        let ended = self.wait(self.enter_anyway(), &mut sync, limit);
        if ended.as_ref().is_err_and(|error| error.is_stalled()) {
            *left = Some(sync);
        }
        ended.map(|()| true)
    }
}
