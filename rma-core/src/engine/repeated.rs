//! Lock epochs that a program repeats with one neighbour (`table/repeated.rs`): lock or lock_all, puts and gets, unlock or
//! unlock_all, each with what it does to the target alone.
#![allow(unsafe_code)] // the user's buffers come as raw pointers

use super::Engine;
use crate::bootstrap::Bootstrap;
use crate::ids::{Rank, WindowId};
use crate::info::Flavor;
use crate::lock::words::Claim;
use crate::lock::LockType;
use crate::progress::Process;
use crate::provider::{Endpoint, RemotePiece};
use crate::state::WindowState;
use crate::table::{RepeatedLock, RepeatedStage};
use crate::window::{NearTarget, Window, OWN_SEAT};

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Begins the epoch again that the program repeats, as [`Engine::lock_at_once`] does. `false`: it is another one, and nothing
    /// has happened.
    #[inline(always)]
    pub fn repeat_lock(&mut self, window: WindowId, target: Rank, lock_type: LockType) -> bool {
        let repeated = &mut self.windows.repeated;
        let is_repeated = repeated.is_repeated_by(window, target, lock_type)
            && self.process.disturbances == repeated.disturbances;
        if is_repeated {
            repeated.stage = RepeatedStage::Called;
        }
        is_repeated
    }

    /// The same of one of lock_all, where the own share can be had at once.
    #[inline(always)]
    pub(super) fn repeat_lock_all(&mut self, window: WindowId) -> bool {
        let repeated = &mut self.windows.repeated;
        let is_repeated = repeated.is_repeated_everywhere(window);
        if !is_repeated || !self.process.take_repeated_everywhere(repeated) {
            return false;
        }
        true
    }

    /// A put of such an epoch, the first of which takes the lock. `false`: it is to be put another way, and what has been done
    /// about the lock is written down.
    ///
    /// # Safety
    /// As for [`Engine::put`].
    #[inline(always)]
    pub(super) unsafe fn put_repeated(&mut self, disp: u64, origin: *const u8, len: usize) -> bool {
        let (repeated, process) = (&mut self.windows.repeated, &mut self.process);
        // SAFETY: the caller's promise.
        let is_put = unsafe { process.put_in_repeated(repeated, disp, (origin, len)) };
        if is_put {
            process.count_put(len);
        } else {
            self.windows.write_down();
        }
        is_put
    }

    /// A get, likewise.
    ///
    /// # Safety
    /// As for [`Engine::get`].
    #[inline(always)]
    pub(super) unsafe fn get_repeated(&mut self, disp: u64, result: *mut u8, len: usize) -> bool {
        let (repeated, process) = (&mut self.windows.repeated, &mut self.process);
        // SAFETY: the caller's promise.
        let is_got = unsafe { process.get_in_repeated(repeated, disp, (result, len)) };
        if is_got {
            process.count_get(len);
        } else {
            self.windows.write_down();
        }
        is_got
    }

    /// Expects such an epoch next.
    #[inline(never)]
    pub(super) fn expect(&mut self, repeated: RepeatedLock<E::Passage>) {
        if core::mem::take(&mut self.windows.is_disturbed) {
            // Programs repeat what has disturbed it, too: not so soon again.
            self.process.left_before = None;
            return;
        }
        // One of another window may be open.
        self.windows.write_down();
        self.windows.repeated = repeated;
    }

    /// Ends such an epoch. `false`: it is another one, or it is written down how far its lock was given back.
    #[inline(always)]
    pub(super) fn end_repeated(&mut self, window: WindowId, target: Rank) -> bool {
        let (repeated, process) = (&mut self.windows.repeated, &mut self.process);
        if !repeated.is_open(window, target) {
            return false;
        }
        let is_over = process.leave_repeated(repeated);
        if !is_over {
            self.windows.write_down();
        }
        is_over
    }

    /// The same of one of lock_all.
    #[inline(always)]
    pub(super) fn end_repeated_everywhere(&mut self, window: WindowId) -> bool {
        let (repeated, process) = (&mut self.windows.repeated, &mut self.process);
        if !repeated.is_open_everywhere(window) {
            return false;
        }
        let is_over = process.leave_repeated_everywhere(repeated);
        if !is_over {
            self.windows.write_down();
        }
        is_over
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// An epoch with a neighbour has ended, as the one before it did, and nothing else is under way in its window: it is
    /// expected once more. `None` for the target: it was one of lock_all.
    #[inline(always)]
    pub(super) fn expect_again(
        &mut self,
        w: &mut Window<E::Region>,
        target: Option<Rank>,
    ) -> Option<RepeatedLock<E::Passage>> {
        let left = self.left.take()?;
        let (window, rank, claim) = left;
        let is_repeated = self.left_before.replace(left) == Some(left);
        let is_this = (window, target.unwrap_or(rank)) == (w.id, rank)
            && (claim == Claim::Everywhere) == target.is_none();
        if !is_repeated || !is_this || w.state() != WindowState::Unset {
            return None;
        }
        // Of a shared window the lock is to be held when the call returns, and somewhere it has to be written down.
        // Before progress, which may disturb it.
        let disturbances = self.disturbances;
        let is_disturbed = self.failure.is_some() || self.is_mourning();
        let may_be = !is_disturbed && w.flavor != Flavor::Shared && w.acks.is_empty() && w.parked.has_room();
        if !may_be || w.words.as_ref().is_none_or(|words| words.has_far()) {
            return None;
        }
        let forgotten = self.peers.forgotten();
        let near = *w.near.as_mut()?.find(rank, forgotten)?;
        let (lock_type, stage, own) = match claim {
            Claim::Exclusive => (LockType::Exclusive, RepeatedStage::Ended, NearTarget::NONE),
            Claim::Shared => (LockType::Shared, RepeatedStage::Ended, NearTarget::NONE),
            Claim::Everywhere => {
                let own = *w.near.as_mut()?.find(self.rank, forgotten)?;
                (LockType::Shared, RepeatedStage::AllEnded, own)
            }
        };
        // Its epochs have marked the window for progress, which would disturb the next ones to find nothing there.
        self.make_rma_progress_win(w);
        // What the fabric has not taken of giving the own share back is still to be done.
        if w.words.as_ref().is_none_or(|words| !words.seat(OWN_SEAT).lock.is_idle()) {
            return None;
        }
        let passage = self.endpoint.passage(near.peer, Some(near.place?), near.memory()?)?;
        let own_passage = match own.place {
            // Its words are all that is accessed.
            Some(place) => {
                let words = RemotePiece { at: place, len: 2 * size_of::<u64>() };
                Some(self.endpoint.passage(own.peer, Some(place), words)?)
            }
            None => None,
        };
        let most = self.limits.message_bytes_max;
        Some(RepeatedLock {
            window,
            disturbances,
            lock_type,
            stage,
            put_bytes_max: if w.paths.put { most } else { 0 },
            get_bytes_max: if w.paths.get { most } else { 0 },
            near,
            passage: Some(passage),
            own,
            own_passage,
        })
    }
}
