//! Time, of which the engine knows what it is told.

use super::Engine;
use crate::bootstrap::Bootstrap;
use crate::lock::words::WordLock;
use crate::provider::Endpoint;

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Whether a rank is lost, so that locks may be with it, and others free windows alone: then the caller says how time
    /// passes, by [`Engine::on_time`], and has it asked now and then who is still there, by [`Engine::inquire`].
    #[inline]
    pub fn wants_time(&self) -> bool {
        self.process.must_inquire()
    }

    /// Parts of time have passed since it was said the last time: as many as [`Engine::PATIENCE`] are what nothing must
    /// have changed for before a lock is given up of which nobody knows who has it (docs/locks.md). Only parts between which
    /// there was progress count: who was stopped itself has not waited. The engine has no clock, and without this call
    /// such a lock is waited for.
    pub fn on_time(&mut self, parts: u8) {
        self.process.on_time(&mut self.windows, parts);
    }

    /// Asks those whom this rank waits for, in calls or for what calls have left, whether they still have the window: where a
    /// rank is lost, who has freed it alone never comes, and says so when it is asked. For a caller that has waited for long, a
    /// few times a second; what comes of it comes by progress.
    #[cold]
    pub fn inquire(&mut self) {
        self.process.inquire(&mut self.windows);
    }

    /// See [`Engine::on_time`].
    pub const PATIENCE: u8 = WordLock::PATIENCE;
}
