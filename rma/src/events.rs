//! What happens in a job, as events of the `tracing` crate, with the target `rma` (feature `tracing`). Without the
//! feature there are none, and nothing is asked.
//!
//! Errors are told while this process's other threads wait for the engine: a subscriber must not call the library.

use rma_core::error::{Call, RmaError};
use rma_core::ids::{Rank, WindowId};

/// This process has joined a job.
#[inline]
pub(crate) fn joined(rank: Rank, size: u32, launcher: &str, provider: &str, candidates: &str) {
    #[cfg(feature = "tracing")]
    {
        tracing::info!(target: "rma", rank = rank.0, size, launcher, provider, "joined a job");
        tracing::debug!(target: "rma", rank = rank.0, provider, candidates, "chose a provider");
    }
    #[cfg(not(feature = "tracing"))]
    let _ = (rank, size, launcher, provider, candidates);
}

/// A window was made.
#[inline]
pub(crate) fn made(call: Call, rank: u32, window: WindowId, bytes: usize) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "rma", rank, window = window.0, bytes, call = call.name(), "made a window");
    #[cfg(not(feature = "tracing"))]
    let _ = (call, rank, window, bytes);
}

/// A call that synchronizes has succeeded: an epoch is open, or over, or the window is freed.
#[inline]
pub(crate) fn called(call: Call, rank: u32, window: Option<WindowId>, target: Rank) {
    #[cfg(feature = "tracing")]
    {
        let (window, target) = (window.map(|id| id.0), Some(target.0).filter(|_| target != Rank::NULL));
        if call == Call::Free {
            tracing::debug!(target: "rma", rank, window, call = call.name(), "freed a window");
        } else {
            tracing::trace!(target: "rma", rank, window, target_rank = target, call = call.name(), "synchronized");
        }
    }
    #[cfg(not(feature = "tracing"))]
    let _ = (call, rank, window, target);
}

/// A call has failed.
#[inline]
pub(crate) fn failed(rank: u32, error: &RmaError) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "rma", rank, class = error.class().name(), %error, "a call has failed");
    #[cfg(not(feature = "tracing"))]
    let _ = (rank, error);
}
