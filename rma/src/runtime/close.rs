//! The ends of scopes, which come whatever becomes of the program's part in them.

use std::task::Poll;
use std::time::Duration;

use rma_core::engine::SyncCall;
use rma_core::error::{Call, RmaError};
use rma_core::ids::WindowId;

use super::timeline::Site;
use super::wait::Awaited;
use super::{Core, Guarded, Held};
use crate::error::{Error, Result};
use crate::events;
use crate::platform::{say, Engine};

/// How long operations of a failed epoch may take to let go of the program's buffers.
const SETTLE: Duration = Duration::from_secs(5);

/// A window none of whose operations refers to the program's memory.
#[derive(Debug)]
struct Settled {
    window: WindowId,
}

impl Awaited for Settled {
    fn poll(&mut self, engine: &mut Engine) -> Poll<std::result::Result<(), RmaError>> {
        if engine.is_locally_complete(self.window) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn call(&self) -> Call {
        Call::FlushLocalAll
    }

    fn window(&self) -> Option<WindowId> {
        Some(self.window)
    }

    fn waiting_for(&self, _: &Engine) -> &'static str {
        "operations that use the program's buffers"
    }
}

impl Core {
    /// Starts the call that ends a scope and waits for its end: also when the job has been finalized
    /// meanwhile, and at most for `limit`. `left` gets the call if it takes longer, and may [`Core::resume`] it.
    pub(crate) fn close(
        &self,
        limit: Option<Duration>,
        start: impl FnOnce(&mut Engine) -> std::result::Result<SyncCall, RmaError>,
        left: impl FnOnce(SyncCall),
    ) -> Result<()> {
        let mut guarded = self.enter_anyway();
        let begun = guarded.begin();
        let mut sync = start(&mut guarded.engine).map_err(|error| self.fail(error))?;
        let at = Site { window: sync.window(), target: sync.target() };
        let closed = match begun {
            Some(_) => self.wait(guarded, &mut sync, limit),
            None => self.wait_unless_over(guarded, &mut sync, limit),
        };
        if let Some(begun) = begun {
            self.enter_anyway().note_call(begun, sync.call(), at, closed.as_ref().err());
        }
        match &closed {
            Ok(()) => events::called(sync.call(), self.rank, at.window, at.target),
            Err(error) if error.is_stalled() => left(sync),
            Err(_) => {}
        }
        closed
    }

    /// Waits for a call that may be over already, as epochs with neighbours are: progress, which others want now and then
    /// only, would look at every window.
    #[inline]
    fn wait_unless_over(
        &self,
        mut guarded: Held<'_, Guarded>,
        sync: &mut SyncCall,
        limit: Option<Duration>,
    ) -> Result<()> {
        match guarded.engine.poll(sync) {
            Poll::Ready(result) => {
                self.posted(&mut guarded);
                self.hand_over(&mut guarded);
                result.map_err(|error| self.fail(error))
            }
            Poll::Pending => self.wait(guarded, sync, limit),
        }
    }

    /// Goes on waiting for a call that has taken too long.
    #[cold]
    pub(crate) fn resume(&self, sync: &mut SyncCall) -> Result<()> {
        self.wait(self.enter_anyway(), sync, self.timeout)
    }

    /// Whether no operation on the window refers to the program's memory.
    pub(crate) fn is_locally_complete(&self, window: WindowId) -> bool {
        self.enter_anyway().engine.is_locally_complete(window)
    }

    /// Waits until no operation on the window refers to the program's memory any more, after a call that
    /// should have seen to it has failed with `error`. Where that cannot be had, ends the process: the
    /// fabric could write to buffers that the program believes to be its own again.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle(&self, window: WindowId, error: &Error) {
        let mut settled = Settled { window };
        if self.wait(self.enter_anyway(), &mut settled, Some(SETTLE)).is_err() {
            say(format_args!(
                "rank {}: {error}; operations of the epoch on window {window} may still access the program's \
                 buffers, so the process ends here",
                self.rank
            ));
            self.write_outputs(
                "it has ended itself, because operations may still access the program's buffers",
            );
            std::process::abort();
        }
    }
}
