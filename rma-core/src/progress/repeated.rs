//! What a lock epoch that is repeated with a neighbour does to the target (`table/repeated.rs`).
#![allow(unsafe_code)] // the user's buffers come as raw pointers

use super::parked::{leave, take, take_and_put, Taken};
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::lock::words::Claim;
use crate::provider::Endpoint;
use crate::table::{RepeatedLock, RepeatedStage};

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Whether all is as it was when so many addresses had been forgotten, and nobody has died.
    #[inline(always)]
    pub(crate) fn is_undisturbed(&self, forgotten: u32) -> bool {
        self.failure.is_none() && self.losses.is_empty() && self.peers.forgotten() == forgotten
    }

    /// A put in such an epoch. `false`: it was not put.
    ///
    /// # Safety
    /// The source is readable.
    #[inline(always)]
    pub(crate) unsafe fn put_in_repeated(
        &mut self,
        repeated: &mut RepeatedLock,
        disp: u64,
        (origin, len): (*const u8, usize),
    ) -> bool {
        let RepeatedLock { lock_type, stage, put_bytes_max, place, near, .. } = repeated;
        if len.wrapping_sub(1) >= *put_bytes_max || !self.is_undisturbed(near.forgotten()) {
            return false;
        }
        let Some(at) = near.locate(disp, len) else { return false };
        if *stage == RepeatedStage::Held {
            // SAFETY: the caller's promise.
            return unsafe { self.endpoint.put_now(near.peer, origin, len, at) };
        }
        let (by, put) = ((&mut self.endpoint, &mut self.counters), ((origin, len), at));
        // SAFETY: as above.
        let done = unsafe { take_and_put(by, near, *place, (*lock_type, self.rank), put) };
        match done {
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

    /// A get, as [`Process::put_in_repeated`].
    ///
    /// # Safety
    /// The result is writable.
    #[inline(always)]
    pub(crate) unsafe fn get_in_repeated(
        &mut self,
        repeated: &mut RepeatedLock,
        disp: u64,
        (result, len): (*mut u8, usize),
    ) -> bool {
        let near = &repeated.near;
        if len.wrapping_sub(1) >= repeated.get_bytes_max || !self.is_undisturbed(near.forgotten()) {
            return false;
        }
        let Some(at) = near.locate(disp, len) else { return false };
        if !self.hold_repeated(repeated) {
            return false;
        }
        // SAFETY: the caller's promise.
        unsafe { self.endpoint.get_now(repeated.near.peer, result, len, at) }
    }

    /// Makes sure that its lock is held.
    #[inline(always)]
    fn hold_repeated(&mut self, repeated: &mut RepeatedLock) -> bool {
        let RepeatedLock { lock_type, stage, place, near, .. } = repeated;
        if *stage == RepeatedStage::Held {
            return true;
        }
        let by = (&mut self.endpoint, &mut self.counters);
        let taken = take(by, near, *place, (Claim::of(*lock_type, false), self.rank));
        match taken {
            Taken::All => {
                self.steps_at_once += 1;
                *stage = RepeatedStage::Held;
            }
            Taken::Ticket => *stage = RepeatedStage::Drawn,
            Taken::Nothing => {}
        }
        *stage == RepeatedStage::Held
    }

    /// Ends such an epoch. `false`: its lock could not be given back at once.
    #[inline(always)]
    pub(crate) fn leave_repeated(&mut self, repeated: &mut RepeatedLock) -> bool {
        let RepeatedLock { lock_type, stage, place, near, .. } = repeated;
        if !self.is_undisturbed(near.forgotten()) {
            return false;
        }
        if *stage == RepeatedStage::Called {
            *stage = RepeatedStage::Ended;
            return true;
        }
        let expected = near.tickets;
        let by = (&mut self.endpoint, &mut self.counters);
        match leave(by, near, *place, (Claim::of(*lock_type, false), self.rank)) {
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
