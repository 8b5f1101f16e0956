//! Two engines of one job in one thread, over the null fabric: rank 0 is the origin, rank 1 the target.

use std::task::Poll;

use rma_core::config::Config;
use rma_core::engine::{Engine, SyncCall};
use rma_core::error::RmaError;
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType;
use rma_core::provider::NativeOps;

use crate::null::{self, NullBootstrap, NullEndpoint};

/// An engine over the null fabric.
pub type NullEngine = Engine<NullEndpoint, NullBootstrap>;

/// The rank that is accessed.
pub const TARGET: Rank = Rank(1);
/// Bytes of each rank's window.
pub const WINDOW_BYTES: usize = 4096;

/// Both ranks, and a window that both have allocated.
#[derive(Debug)]
pub struct Duo {
    /// Rank 0.
    pub origin: NullEngine,
    /// Rank 1.
    pub target: NullEngine,
    /// The window, displacement unit 1.
    pub window: WindowId,
}

impl Duo {
    /// Opens both engines and allocates the window.
    ///
    /// # Errors
    /// When a call fails, which on this fabric is a mistake in the program.
    pub fn new(native: NativeOps, config: &Config) -> Result<Self, RmaError> {
        Self::over(null::pair(native), config)
    }

    /// The same of neighbours.
    ///
    /// # Errors
    /// As for [`Duo::new`].
    pub fn near(config: &Config) -> Result<Self, RmaError> {
        Self::over(null::near_pair(), config)
    }

    fn over([first, second]: [NullEndpoint; 2], config: &Config) -> Result<Self, RmaError> {
        let origin = Engine::open(first, NullBootstrap(Rank(0)), config.clone())?;
        let target = Engine::open(second, NullBootstrap(TARGET), config.clone())?;
        let mut duo = Self { origin, target, window: WindowId(0) };
        let (window, mut call) = duo.target.start_allocate(WINDOW_BYTES, 1)?;
        let (_, mut own_call) = duo.origin.start_allocate(WINDOW_BYTES, 1)?;
        duo.window = window;
        for _ in 0..STEPS_MAX {
            let (own, other) = (duo.origin.poll(&mut own_call)?, duo.target.poll(&mut call)?);
            if own.is_ready() && other.is_ready() {
                return Ok(duo);
            }
            duo.step();
        }
        stalled("creation of the window")
    }

    /// Progress at both ranks.
    pub fn step(&mut self) {
        self.origin.progress();
        self.target.progress();
    }

    /// Polls a call of the origin to its end.
    ///
    /// # Errors
    /// The call's own.
    pub fn finish(&mut self, mut call: SyncCall) -> Result<(), RmaError> {
        for _ in 0..STEPS_MAX {
            if let Poll::Ready(result) = self.origin.poll(&mut call) {
                return result;
            }
            self.step();
        }
        stalled(call.waiting_for())
    }

    /// Begins a shared-lock epoch of the origin to the target, as far as the call goes.
    ///
    /// # Errors
    /// As for the engine's call.
    pub fn lock(&mut self) -> Result<(), RmaError> {
        let call = self.origin.start_lock(self.window, TARGET, LockType::Shared, false)?;
        self.finish(call)
    }

    /// Completes everything posted to the target.
    ///
    /// # Errors
    /// As for the engine's call.
    pub fn flush(&mut self) -> Result<(), RmaError> {
        let call = self.origin.start_flush(self.window, TARGET)?;
        self.finish(call)
    }

    /// Ends the epoch.
    ///
    /// # Errors
    /// As for the engine's call.
    pub fn unlock(&mut self) -> Result<(), RmaError> {
        let call = self.origin.start_unlock(self.window, TARGET)?;
        self.finish(call)
    }

    /// A put of the origin to the target, at displacement 0.
    ///
    /// # Safety
    /// `bytes` stays as it is until the put is locally complete.
    ///
    /// # Errors
    /// As for the engine's call.
    pub unsafe fn put(&mut self, bytes: &[u8]) -> Result<(), RmaError> {
        for _ in 0..STEPS_MAX {
            // SAFETY: the caller's promise.
            let posted = unsafe { self.origin.put(self.window, TARGET, 0, bytes.as_ptr(), bytes.len()) };
            if let Poll::Ready(result) = posted {
                return result;
            }
            self.step();
        }
        stalled("room for a put")
    }
}

/// Nothing on this fabric takes longer.
const STEPS_MAX: u32 = 1000;

fn stalled<T>(what: &str) -> T {
    panic!("both ranks made progress {STEPS_MAX} times and still wait for {what}")
}
