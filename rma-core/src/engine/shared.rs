//! Windows whose memory the ranks of one host load and store directly (MPI-4.1 section 13.2.3). Who has the
//! memory mapped is the caller's business; here is what differs for the engine: a lock must be held, and a
//! barrier be over, when the call returns, because the accesses that follow do not come here; and
//! synchronization calls are memory barriers.
#![allow(unsafe_code)] // window memory comes as a raw pointer

use alloc::boxed::Box;
use core::ptr::NonNull;
use core::task::Poll;

use super::agreement;
use super::window::Making;
use super::{Engine, Stage, SyncCall};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, RmaError};
use crate::ids::{Rank, WindowId};
use crate::info::{Flavor, WindowOptions};
use crate::mem::WindowMemory;
use crate::provider::Endpoint;
use crate::state::{TargetLockState, WindowState};
use crate::window::OwnedMemory;

pub use crate::provider::Mapping;

/// This rank's part of a window of shared memory.
#[derive(Debug)]
pub struct SharedPart {
    /// First byte.
    pub base: NonNull<u8>,
    /// Bytes.
    pub len: usize,
    /// Keeps them mapped.
    pub mapping: Box<dyn Mapping>,
    /// The endpoint takes them for memory of its own ([`Endpoint::allocate`]). The same at all ranks.
    pub is_allocated: bool,
}

/// Numbers of an agreement.
pub const AGREE_VALUES: usize = 4;

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Begins to find the largest of each number that the ranks give. Collective; what a layer above needs to
    /// set something up together. The result is [`Engine::agreed`], as long as no other collective call of the
    /// job is polled.
    ///
    /// # Errors
    /// When the endpoint is broken. When polled, also when another rank has come to another collective call.
    pub fn start_agree(&mut self, call: Call, values: [u64; AGREE_VALUES]) -> Result<SyncCall, RmaError> {
        self.check_endpoint(call)?;
        self.agreeing = values;
        Ok(SyncCall::new(call, SyncCall::NO_WINDOW, Stage::Agree { sequence: None }))
    }

    pub(super) fn poll_agree(
        &mut self,
        sync: &mut SyncCall,
        sequence: Option<u32>,
    ) -> Poll<Result<(), RmaError>> {
        let result = self.poll_reduce(sequence, |engine| {
            let mut values = agreement::come_for(agreement::AGREEMENT);
            values[..AGREE_VALUES].copy_from_slice(&engine.agreeing);
            values
        });
        match result {
            Ok(()) => Poll::Ready(agreement::all_came_for_one(sync.call, self.process.reduce.values())),
            Err(sequence) => {
                sync.stage = Stage::Agree { sequence };
                self.process.failure(sync.call)
            }
        }
    }

    /// The outcome of the agreement that became ready just now.
    pub fn agreed(&self) -> [u64; AGREE_VALUES] {
        let mut agreed = [0; AGREE_VALUES];
        agreed.copy_from_slice(&self.process.reduce.values()[..AGREE_VALUES]);
        agreed
    }

    /// Begins to make a window over memory that the ranks of the host have mapped (MPI-4.1 section 13.2.3).
    /// Collective. A rank that could not map it says why instead, and then every rank fails.
    ///
    /// Implements: MPI_Win_allocate_shared.
    ///
    /// # Safety
    /// The part's bytes are valid for reads and writes until its mapping is dropped, and accessed by whoever
    /// else only as shared memory that others may change.
    ///
    /// # Errors
    /// When the endpoint is broken.
    pub unsafe fn start_shared(
        &mut self,
        part: Result<SharedPart, RmaError>,
        disp_unit: u32,
        options: &WindowOptions,
    ) -> Result<(WindowId, SyncCall), RmaError> {
        let (call, flavor) = (Call::AllocateShared, Flavor::Shared);
        let (base, len, owned, is_allocated, error) = match part {
            Ok(SharedPart { base, len, mapping, is_allocated }) => {
                let base = base.as_ptr();
                (base, len, Some(OwnedMemory::mapped(mapping)), is_allocated, None)
            }
            Err(error) => (core::ptr::null_mut(), 0, None, false, Some(error)),
        };
        // SAFETY: the caller's promise; the window keeps the mapping, and is dropped with it.
        let memory = unsafe { WindowMemory::new(base, len) };
        let remote = None;
        self.start_window(Making {
            call,
            flavor,
            memory,
            owned,
            is_allocated,
            disp_unit,
            options,
            remote,
            error,
        })
    }

    /// Waits for the lock of a rank whose memory is accessed directly.
    pub(super) fn poll_lock_grant(
        &mut self,
        sync: &mut SyncCall,
        target: Rank,
    ) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        let is_awaited = w.parked.find(target).is_some_and(|lock| lock.lock != TargetLockState::Granted);
        let t = match w.find(&self.process.targets, target) {
            Some(t) => t,
            None if is_awaited => {
                let Some(t) = self.process.poll_target_element(w, target) else { return Poll::Pending };
                self.process.adopt_target(w, t, false);
                t
            }
            None => {
                // Seed table: LOCK, MEM_SYNC after PROC_SYNC, which the user has passed before (NOCHECK).
                w.mem_sync();
                return Poll::Ready(Ok(()));
            }
        };
        let te = &self.process.targets[t];
        if te.lock == TargetLockState::Granted {
            // Seed table: LOCK, MEM_SYNC after PROC_SYNC.
            w.mem_sync();
            return Poll::Ready(Ok(()));
        }
        if te.is_dead() && te.words.is_busy() {
            return Poll::Pending;
        }
        if te.is_dead() {
            // No epoch is opened to the dead.
            let result = self.process.take_error(t, sync.call);
            self.process.free_target(w, t);
            self.process.leave_per_target(w);
            return Poll::Ready(result);
        }
        if te.lock == TargetLockState::Called && !te.lock_wanted {
            self.process.targets[t].lock_wanted = true;
            w.dirty = true;
            self.process.make_rma_progress_target(w, t);
        }
        Poll::Pending
    }

    /// Waits for the posts of all members of the group.
    pub(super) fn poll_start_grant(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        self.process.hear_epochs(w);
        if w.state() == WindowState::PscwIssued {
            // Who is gone is not waited for: complete says so.
            return Poll::Pending;
        }
        // Seed table: START, MEM_SYNC after PROC_SYNC.
        w.mem_sync();
        Poll::Ready(Ok(()))
    }

    /// Waits for the locks of all ranks, which the window protocol asks for.
    pub(super) fn poll_lock_all_grant(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        if w.state() == WindowState::LockAllCalled {
            self.process.lock_all_ranks(w);
        }
        self.process.settle(w);
        if w.state() == WindowState::LockAllGranted {
            // Seed table: LOCK_ALL, MEM_SYNC after PROC_SYNC.
            w.mem_sync();
            return Poll::Ready(Ok(()));
        }
        // Who is gone is not waited for: unlock_all says so.
        Poll::Pending
    }
}
