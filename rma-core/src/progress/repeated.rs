//! What a lock epoch that is repeated with a neighbour does to the target (`table/repeated.rs`).
#![allow(unsafe_code)] // the user's buffers come as raw pointers

use super::parked::{leave, take, take_and_put, take_share_and_put, Taken, TRIES};
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::lock::words::Claim;
use crate::provider::{Endpoint, RemoteAddr};
use crate::table::{RepeatedLock, RepeatedStage};
use crate::window::NearTarget;

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
        if *stage != RepeatedStage::Called {
            // SAFETY: the caller's promise.
            return unsafe { self.put_in_opened(repeated, at, (origin, len)) };
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

    /// The same where the lock is held, and in an epoch of lock_all, whose first put takes the target's share.
    ///
    /// # Safety
    /// The source is readable.
    #[inline(always)]
    unsafe fn put_in_opened(
        &mut self,
        repeated: &mut RepeatedLock,
        at: RemoteAddr,
        (origin, len): (*const u8, usize),
    ) -> bool {
        let RepeatedLock { stage, place, near, .. } = repeated;
        if *stage != RepeatedStage::AllCalled {
            // SAFETY: the caller's promise.
            return unsafe { self.endpoint.put_now(near.peer, origin, len, at) };
        }
        for _ in 0..TRIES {
            let by = (&mut self.endpoint, &mut self.counters);
            // SAFETY: as above.
            match unsafe { take_share_and_put(by, near, *place, ((origin, len), at)) } {
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
        let (claim, held) = match stage {
            RepeatedStage::Called => (Claim::of(*lock_type, false), RepeatedStage::Held),
            RepeatedStage::AllCalled => (Claim::Everywhere, RepeatedStage::AllHeld),
            _ => return true,
        };
        let by = (&mut self.endpoint, &mut self.counters);
        let taken = take(by, near, *place, (claim, self.rank));
        match taken {
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
    pub(crate) fn take_repeated_everywhere(&mut self, repeated: &mut RepeatedLock) -> bool {
        let (me, own) = (self.rank, &mut repeated.own);
        let Some(place) = own.place else { return false };
        if !self.is_undisturbed(own.forgotten()) {
            return false;
        }
        let by = (&mut self.endpoint, &mut self.counters);
        if !matches!(take(by, own, place, (Claim::Everywhere, me)), Taken::All) {
            return false;
        }
        self.steps_at_once += 1;
        repeated.stage = RepeatedStage::AllCalled;
        true
    }

    /// Ends it. `false`: the target's share, or the own one, could not be given back at once.
    #[inline(always)]
    pub(crate) fn leave_repeated_everywhere(&mut self, repeated: &mut RepeatedLock) -> bool {
        let RepeatedLock { stage, near, own, .. } = repeated;
        if !self.is_undisturbed(own.forgotten()) {
            return false;
        }
        if *stage == RepeatedStage::AllHeld {
            if !self.leave_repeated_share(near) {
                return false;
            }
            *stage = RepeatedStage::AllCalled;
        }
        if !self.leave_repeated_share(own) {
            return false;
        }
        // A swap is a full fence: row UNLOCK_ALL of docs/shared-memory.md.
        self.on_full_fence();
        *stage = RepeatedStage::AllEnded;
        true
    }

    /// Gives back the share of a rank, this one or the target. Nobody is to be woken for that: who waits for shares looks.
    #[inline(always)]
    fn leave_repeated_share(&mut self, near: &mut NearTarget) -> bool {
        let Some(place) = near.place else { return false };
        for _ in 0..TRIES {
            let by = (&mut self.endpoint, &mut self.counters);
            match leave(by, near, place, (Claim::Everywhere, self.rank)) {
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

    /// Ends such an epoch with one rank. `false`: its lock could not be given back at once, or it is one of lock_all.
    #[inline(always)]
    pub(crate) fn leave_repeated(&mut self, repeated: &mut RepeatedLock) -> bool {
        let RepeatedLock { lock_type, stage, place, near, .. } = repeated;
        if !self.is_undisturbed(near.forgotten()) {
            return false;
        }
        if *stage != RepeatedStage::Held {
            let is_called = *stage == RepeatedStage::Called;
            if is_called {
                *stage = RepeatedStage::Ended;
            }
            return is_called;
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
