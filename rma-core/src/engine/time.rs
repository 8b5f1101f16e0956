//! Time, of which the engine knows what it is told.

use super::Engine;
use crate::bootstrap::Bootstrap;
use crate::lock::words::WordLock;
use crate::provider::Endpoint;

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Whether locks are waited for that may be lost with a rank that has died: then the caller says how time passes, by
    /// [`Engine::on_time`], as long as that is so.
    #[inline]
    pub fn wants_time(&self) -> bool {
        self.process.wants_looks && self.process.is_mourning()
    }

    /// Parts of time have passed since it was said the last time: as many as [`Engine::PATIENCE`] are what nothing must
    /// have changed for before a lock is given up of which nobody knows who has it (docs/locks.md). Only parts between which
    /// there was progress count: who was stopped itself has not waited. The engine has no clock, and without this call
    /// such a lock is waited for.
    pub fn on_time(&mut self, parts: u8) {
        self.process.on_time(&mut self.windows, parts);
    }

    /// See [`Engine::on_time`].
    pub const PATIENCE: u8 = WordLock::PATIENCE;
}
