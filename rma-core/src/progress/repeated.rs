//! What a lock epoch that is repeated with a neighbour does to the target (`table/repeated.rs`).
#![allow(unsafe_code)] // the user's buffers come as raw pointers

use super::swaps::{leave, take, take_and_put, take_share_and_put, Taken, TRIES};
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::lock::words::Claim;
use crate::provider::{Endpoint, Passage};
use crate::table::{RepeatedLock, RepeatedStage};
use crate::window::NearTarget;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// A put in such an epoch. `false`: it was not put. An epoch that is open is written down when somebody dies, and a passage
    /// knows when its way is gone: neither is to be asked after here. Of other failures the call hears that ends the epoch.
    ///
    /// # Safety
    /// The source is readable.
    #[inline(always)]
    pub(crate) unsafe fn put_in_repeated(
        &mut self,
        repeated: &mut RepeatedLock<E::Passage>,
        disp: u64,
        from: (*const u8, usize),
    ) -> bool {
        let RepeatedLock { lock_type, stage, put_bytes_max, near, passage, .. } = repeated;
        if from.1.wrapping_sub(1) >= *put_bytes_max {
            return false;
        }
        let (Some(offset), Some(passage)) = (near.offset(disp, from.1), passage) else { return false };
        if *stage != RepeatedStage::Called {
            // SAFETY: the caller's promise.
            return unsafe { self.put_in_opened((stage, near, passage), offset, from) };
        }
        let by = (&mut *passage, &mut self.endpoint, &mut self.counters);
        // SAFETY: as above, and the offset was checked.
        match unsafe { take_and_put(by, near, (*lock_type, self.rank), (from, offset)) } {
            Some(Ok(is_put)) => {
                self.steps_at_once += 1;
                *stage = RepeatedStage::Held;
                is_put
            }
            Some(Err(1..)) => {
                *stage = RepeatedStage::Drawn;
                false
            }
            Some(Err(0)) | None => false,
        }
    }

    /// The same where the lock is held, and in an epoch of lock_all, whose first put takes the target's share.
    ///
    /// # Safety
    /// The source is readable, and the bytes from the offset on are inside of the window.
    #[inline(always)]
    unsafe fn put_in_opened(
        &mut self,
        (stage, near, passage): (&mut RepeatedStage, &mut NearTarget, &mut E::Passage),
        offset: u64,
        from: (*const u8, usize),
    ) -> bool {
        if *stage != RepeatedStage::AllCalled {
            // SAFETY: the caller's promise.
            return unsafe { passage.put(&mut self.endpoint, from, offset) };
        }
        for _ in 0..TRIES {
            let by = (&mut *passage, &mut self.endpoint, &mut self.counters);
            // SAFETY: as above.
            match unsafe { take_share_and_put(by, near, (from, offset)) } {
                Some(Ok(is_put)) => {
                    self.steps_at_once += 1;
                    *stage = RepeatedStage::AllHeld;
                    return is_put;
                }
                // Others have come or gone, whose shares are in nobody's way.
                Some(Err(_)) => {}
                None => return false,
            }
        }
        false
    }

    /// A get, as [`Process::put_in_repeated`].
    ///
    /// # Safety
    /// The result is writable.
    #[inline(always)]
    pub(crate) unsafe fn get_in_repeated(
        &mut self,
        repeated: &mut RepeatedLock<E::Passage>,
        disp: u64,
        into: (*mut u8, usize),
    ) -> bool {
        let near = &repeated.near;
        if into.1.wrapping_sub(1) >= repeated.get_bytes_max {
            return false;
        }
        let Some(offset) = near.offset(disp, into.1) else { return false };
        if !self.hold_repeated(repeated) {
            return false;
        }
        let Some(passage) = &mut repeated.passage else { return false };
        // SAFETY: the caller's promise, and the offset was checked.
        unsafe { passage.get(&mut self.endpoint, into, offset) }
    }

    /// Makes sure that its lock is held.
    #[inline(always)]
    fn hold_repeated(&mut self, repeated: &mut RepeatedLock<E::Passage>) -> bool {
        let RepeatedLock { lock_type, stage, near, passage, .. } = repeated;
        let (claim, held) = match stage {
            RepeatedStage::Called => (Claim::of(*lock_type, false), RepeatedStage::Held),
            RepeatedStage::AllCalled => (Claim::Everywhere, RepeatedStage::AllHeld),
            _ => return true,
        };
        let Some(passage) = passage else { return false };
        let by = (&mut *passage, &mut self.endpoint, &mut self.counters);
        match take(by, near, (claim, self.rank)) {
            Taken::All => {
                self.steps_at_once += 1;
                *stage = held;
            }
            Taken::Ticket => *stage = RepeatedStage::Drawn,
            Taken::Nothing => {}
        }
        *stage == held
    }

    /// Begins such an epoch of lock_all. `false`: the own share could not be had at once.
    #[inline(always)]
    pub(crate) fn take_repeated_everywhere(&mut self, repeated: &mut RepeatedLock<E::Passage>) -> bool {
        let RepeatedLock { disturbances, stage, own, own_passage, .. } = repeated;
        let Some(passage) = own_passage else { return false };
        if *disturbances != self.disturbances {
            return false;
        }
        let by = (&mut *passage, &mut self.endpoint, &mut self.counters);
        if !matches!(take(by, own, (Claim::Everywhere, self.rank)), Taken::All) {
            return false;
        }
        self.steps_at_once += 1;
        *stage = RepeatedStage::AllCalled;
        true
    }

    /// Ends it. `false`: the target's share, or the own one, could not be given back at once.
    #[inline(always)]
    pub(crate) fn leave_repeated_everywhere(&mut self, repeated: &mut RepeatedLock<E::Passage>) -> bool {
        let RepeatedLock { disturbances, stage, near, passage, own, own_passage, .. } = repeated;
        if *disturbances != self.disturbances {
            return false;
        }
        if *stage == RepeatedStage::AllHeld {
            if !self.leave_repeated_share(near, passage) {
                return false;
            }
            *stage = RepeatedStage::AllCalled;
        }
        if !self.leave_repeated_share(own, own_passage) {
            return false;
        }
        // A swap is a full fence: row UNLOCK_ALL of docs/shared-memory.md.
        self.on_full_fence();
        *stage = RepeatedStage::AllEnded;
        true
    }

    /// Gives back the share of a rank, this one or the target. Nobody is to be woken for that: who waits for shares looks.
    #[inline(always)]
    fn leave_repeated_share(&mut self, near: &mut NearTarget, passage: &mut Option<E::Passage>) -> bool {
        let Some(passage) = passage else { return false };
        for _ in 0..TRIES {
            match self.leave_by(passage, near, Claim::Everywhere) {
                Some(Ok(())) => {
                    self.steps_at_once += 1;
                    return true;
                }
                // Others have come or gone.
                Some(Err(_)) => {}
                None => return false,
            }
        }
        false
    }

    #[inline(always)]
    fn leave_by(
        &mut self,
        passage: &mut E::Passage,
        near: &mut NearTarget,
        claim: Claim,
    ) -> Option<Result<(), usize>> {
        let Self { endpoint, counters, rank, .. } = self;
        leave((passage, endpoint, counters), near, (claim, *rank))
    }

    /// Ends such an epoch with one rank. `false`: its lock could not be given back at once, or it is one of lock_all.
    #[inline(always)]
    pub(crate) fn leave_repeated(&mut self, repeated: &mut RepeatedLock<E::Passage>) -> bool {
        let RepeatedLock { disturbances, lock_type, stage, near, passage, .. } = repeated;
        if *disturbances != self.disturbances {
            return false;
        }
        if *stage != RepeatedStage::Held {
            let is_called = *stage == RepeatedStage::Called;
            if is_called {
                *stage = RepeatedStage::Ended;
            }
            return is_called;
        }
        let Some(passage) = passage else { return false };
        let expected = near.tickets;
        match self.leave_by(passage, near, Claim::of(*lock_type, false)) {
            Some(Ok(())) => {
                self.steps_at_once += 1;
                // A swap is a full fence: row UNLOCK of docs/shared-memory.md.
                self.on_full_fence();
                *stage = RepeatedStage::Ended;
                true
            }
            Some(Err(1..)) => {
                self.steps_at_once += 1;
                *stage = RepeatedStage::Noted;
                false
            }
            Some(Err(0)) | None => {
                // Who waits is to be woken: whoever gives the lock back next must not find these tickets right.
                near.tickets = expected;
                false
            }
        }
    }
}
