//! Blocking calls that are over at once, as a rule: flush of a target, and, among neighbours, lock, unlock, lock_all and
//! unlock_all. Each asks the engine in few instructions, and hands all else to a function of its own, so that nothing is put into
//! memory for what does not happen.

use rma_core::error::Call;
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType;

use super::{Core, Guarded, Held};
use crate::error::Result;

impl Core {
    /// Opens a lock epoch that the program repeats, in a program with one thread. `false`: it is another one, and nothing has
    /// happened.
    #[inline]
    pub(crate) fn lock_again(&self, window: WindowId, lock_type: LockType, target: Rank) -> bool {
        let Some(mut guarded) = self.guard.try_lock_as_owner() else { return false };
        // It only says what is to come: what follows makes progress now and then, and nothing was given back.
        guarded.is_at_work() && guarded.engine.repeat_lock(window, target, lock_type)
    }

    /// Opens a lock epoch.
    pub(crate) fn lock(
        &self,
        window: WindowId,
        lock_type: LockType,
        target: Rank,
        no_check: bool,
    ) -> Result<()> {
        let mut guarded = self.enter_anyway();
        let may_be = guarded.is_at_work() && !no_check;
        // As for those that are repeated.
        if may_be && guarded.engine.lock_at_once(window, target, lock_type) {
            return Ok(());
        }
        self.run_slowly(guarded, (Call::Lock, target), |engine| {
            engine.start_lock(window, target, lock_type, no_check)
        })
    }

    /// Ends it.
    #[inline]
    pub(crate) fn unlock(&self, window: WindowId, target: Rank) -> Result<()> {
        let mut guarded = self.enter_anyway();
        if guarded.is_at_work() && guarded.engine.unlock_at_once(window, target) {
            self.leave_ended(guarded);
            return Ok(());
        }
        self.unlock_slowly(guarded, window, target)
    }

    #[cold]
    #[inline(never)]
    fn unlock_slowly(&self, guarded: Held<'_, Guarded>, window: WindowId, target: Rank) -> Result<()> {
        self.run_slowly(guarded, (Call::Unlock, target), |engine| engine.start_unlock(window, target))
    }

    /// Opens an epoch of shared locks of all ranks.
    #[inline]
    pub(crate) fn lock_all(&self, window: WindowId, no_check: bool) -> Result<()> {
        let mut guarded = self.enter_anyway();
        let may_be = guarded.is_at_work() && !no_check;
        match may_be && guarded.engine.lock_all_at_once(window) {
            true => Ok(()),
            false => self.lock_all_slowly(guarded, window, no_check),
        }
    }

    #[cold]
    #[inline(never)]
    fn lock_all_slowly(&self, guarded: Held<'_, Guarded>, window: WindowId, no_check: bool) -> Result<()> {
        self.run_slowly(guarded, (Call::LockAll, Rank::NULL), |engine| {
            engine.start_lock_all(window, no_check)
        })
    }

    /// Ends it.
    #[inline]
    pub(crate) fn unlock_all(&self, window: WindowId) -> Result<()> {
        let mut guarded = self.enter_anyway();
        if guarded.is_at_work() && guarded.engine.unlock_all_at_once(window) {
            self.leave_ended(guarded);
            return Ok(());
        }
        self.unlock_all_slowly(guarded, window)
    }

    #[cold]
    #[inline(never)]
    fn unlock_all_slowly(&self, guarded: Held<'_, Guarded>, window: WindowId) -> Result<()> {
        self.run_slowly(guarded, (Call::UnlockAll, Rank::NULL), |engine| engine.start_unlock_all(window))
    }

    /// A flush of one target, which often finds that nothing is under way.
    #[inline]
    pub(crate) fn flush(&self, window: WindowId, target: Rank) -> Result<()> {
        let mut guarded = self.enter_anyway();
        if guarded.is_at_work() && guarded.engine.is_flushed(window, target) {
            self.leave_ended(guarded);
            return Ok(());
        }
        self.flush_slowly(guarded, window, target)
    }

    #[cold]
    #[inline(never)]
    fn flush_slowly(&self, mut guarded: Held<'_, Guarded>, window: WindowId, target: Rank) -> Result<()> {
        if guarded.is_at_work() && guarded.engine.flush_at_once(window, target) {
            self.leave_ended(guarded);
            return Ok(());
        }
        self.run_slowly(guarded, (Call::Flush, target), |engine| engine.start_flush(window, target))
    }

    /// The end of a blocking call that was over at once, and has given something back.
    #[inline(always)]
    pub(super) fn leave_ended(&self, mut guarded: Held<'_, Guarded>) {
        self.ended(&mut guarded);
        self.hand_over(&mut guarded);
    }
}
