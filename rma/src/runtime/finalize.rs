//! The end of a job: nobody closes its endpoint while another rank may still wait for its packets.

use std::task::Poll;
use std::time::Duration;

use rma_core::engine::SyncCall;
use rma_core::error::{Call, RmaError};
use rma_core::ids::WindowId;

use super::wait::Awaited;
use super::{Core, Phase};
use crate::error::{Error, Result};
use crate::platform::{Engine, Instant};

/// The barrier before it, under the name of the call that the program made.
struct LastBarrier(SyncCall);

impl Awaited for LastBarrier {
    fn poll(&mut self, engine: &mut Engine) -> Poll<std::result::Result<(), RmaError>> {
        engine.poll(&mut self.0).map_err(|error| error.on_behalf_of(Call::Finalize))
    }

    fn call(&self) -> Call {
        Call::Finalize
    }

    fn window(&self) -> Option<WindowId> {
        None
    }

    fn waiting_for(&self, _: &Engine) -> &'static str {
        "the other ranks to finalize"
    }
}

/// A part's second barrier, which no launcher stands for. Whoever closes its endpoint has had it, so everybody has come to it,
/// and has had the first: that somebody is gone ends it as well as that all have come, and so does the time that it may
/// take where a fabric does not tell of such an end.
struct Leave {
    barrier: SyncCall,
    until: Instant,
}

impl Awaited for Leave {
    fn poll(&mut self, engine: &mut Engine) -> Poll<std::result::Result<(), RmaError>> {
        match engine.poll(&mut self.barrier) {
            Poll::Pending if Instant::now() < self.until => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }

    fn call(&self) -> Call {
        Call::Finalize
    }

    fn window(&self) -> Option<WindowId> {
        None
    }

    fn waiting_for(&self, _: &Engine) -> &'static str {
        "the other ranks to leave"
    }
}

/// How long a part's rank waits at most for the others to know that all have come to its end.
const LEAVE_PATIENCE: Duration = Duration::from_secs(5);

/// All ranks, as the launcher knows them.
struct AllFinalized;

impl Awaited for AllFinalized {
    fn poll(&mut self, engine: &mut Engine) -> Poll<std::result::Result<(), RmaError>> {
        match engine.bootstrap().poll_all_finalized() {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(error) => {
                Poll::Ready(Err(RmaError::Bootstrap { call: Call::Finalize, message: error.message }))
            }
        }
    }

    fn call(&self) -> Call {
        Call::Finalize
    }

    fn window(&self) -> Option<WindowId> {
        None
    }

    fn waiting_for(&self, _: &Engine) -> &'static str {
        "the launcher to say that all ranks have finalized"
    }
}

impl Core {
    /// Waits for all ranks, tells the launcher, and goes on making progress until it says that all ranks
    /// are done. Each part takes at most `limit`: what another rank waits for in a barrier of its own is
    /// met by the first, and then it may never come to the second. When a rank has died the barrier fails, but
    /// those who are left wait for each other all the same.
    pub(crate) fn finalize(&self, limit: Option<Duration>) -> Result<()> {
        let guarded = self.enter_anyway();
        if guarded.phase == Phase::Finalized {
            return Ok(());
        }
        drop(guarded);
        // A thread that is in a collective call meanwhile has it.
        if let Ok(mut left) = self.left_barrier.try_lock() {
            match self.end_left(&mut left, limit) {
                // As of the barrier below.
                Err(error) if !matches!(error.rma(), Some(RmaError::Peer { .. })) => return Err(error),
                _ => {}
            }
        }
        let mut guarded = self.enter_anyway();
        guarded.engine.leave_windows();
        let barrier = guarded.engine.start_barrier();
        let barrier = barrier.map_err(|error| self.fail(error.on_behalf_of(Call::Finalize)))?;
        let barrier = self.wait(guarded, &mut LastBarrier(barrier), limit);
        match barrier.as_ref().map_err(Error::rma) {
            Ok(()) | Err(Some(RmaError::Peer { .. })) => {}
            Err(_) => return barrier,
        }
        let mut guarded = self.enter_anyway();
        guarded.phase = Phase::Finalized;
        guarded.engine.leave();
        if guarded.engine.bootstrap().is_part() {
            // Where that fails somebody has left.
            if let Ok(barrier) = guarded.engine.start_barrier() {
                let until = Instant::now() + LEAVE_PATIENCE;
                self.wait(guarded, &mut Leave { barrier, until }, None)?;
            }
            return barrier;
        }
        let told = guarded.engine.bootstrap().finalize();
        told.map_err(|error| {
            self.fail(RmaError::Bootstrap { call: Call::Finalize, message: error.message })
        })?;
        self.wait(guarded, &mut AllFinalized, limit).and(barrier)
    }

    /// Whether all epochs are closed, so that nothing is lost when the job ends.
    pub(crate) fn check_closed(&self) -> Result<()> {
        let open = self.enter_anyway().engine.open_epoch();
        match open {
            Some((window, state)) => {
                Err(self.fail(RmaError::Unclosed { call: Call::Finalize, window, state }))
            }
            None => Ok(()),
        }
    }

    /// Whether the job has been finalized.
    pub(crate) fn is_finalized(&self) -> bool {
        self.enter_anyway().phase == Phase::Finalized
    }
}
