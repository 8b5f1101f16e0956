//! Both sides of a ghost ([`crate::ghost`]): the rank that has one, and the engine that it runs.
#![allow(unsafe_code)] // window memory comes as a raw pointer

use alloc::boxed::Box;
use core::ptr::NonNull;
use core::task::Poll;

use super::window::{sharing, Making, KEY_BASE};
use super::{next_number, Engine, SyncCall};
use crate::bootstrap::{AddressBytes, Bootstrap};
use crate::config::Config;
use crate::error::{Call, RmaError};
use crate::ghost::{self, Ghost, GhostError, Introduced, Registered, Wanted};
use crate::ids::{Rank, RemoteKey, WindowId};
use crate::info::{Flavor, WindowOptions};
use crate::mem::WindowMemory;
use crate::path::Paths;
use crate::pool::NONE;
use crate::progress::{Process, Windows};
use crate::provider::{Endpoint, Mapping, MemoryRegion};
use crate::state::{TargetLockState, WindowState};
use crate::table::Shortcut;
use crate::window::{OwnedMemory, Remains, Window};
use crate::wire::Metadata;

/// Ranks have numbers below this in jobs with ghosts, whose own have the highest bit set.
const RANKS_MAX: u32 = 1 << 31;

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// [`Engine::open`] for a rank that has a ghost: windows that are allocated from now on are served by it.
    /// Every rank of the job has one, or none has.
    ///
    /// # Errors
    /// As for [`Engine::open`], and when two of the endpoint's addresses are more than the bootstrap carries.
    pub fn open_with_ghost(
        endpoint: E,
        mut bootstrap: B,
        config: Config,
        ghost: Box<dyn Ghost>,
    ) -> Result<Self, RmaError> {
        config.check()?;
        let failed = |message| RmaError::Bootstrap { call: Call::Init, message };
        let joined = ghost::join(&endpoint.address(), &ghost.address());
        let joined = joined.filter(|_| bootstrap.size() < RANKS_MAX).ok_or_else(|| {
            let longest = crate::bootstrap::ADDRESS_BYTES_MAX;
            failed(alloc::format!(
                "the addresses of a rank and its ghost have more than the {longest} bytes that the bootstrap \
                 carries; choose another provider, or another RMA_PROGRESS"
            ))
        })?;
        bootstrap.publish(&joined).map_err(|error| failed(error.message))?;
        let mut process = Process::new(endpoint, bootstrap, config);
        process.ghost = Some(ghost);
        Ok(Self { windows: Windows::new(), process, agreeing: Default::default(), number: next_number() })
    }

    /// Whether ghosts have the target role of the window; `None`: there is no such window.
    pub fn is_served(&self, window: WindowId) -> Option<bool> {
        self.windows.peek(window).map(|w| w.is_served)
    }

    /// Sends something that needs no answer to every ghost that owes one: the fabric says of a connection that
    /// broke only to who sends. Where a process is known to have ended they are told that, too: it may hold the lock
    /// that is waited for. For a caller that has waited for long; what it finds comes by progress.
    /// `true`: the fabric did not take it all, so that it is to be done again soon; when it `is_hopeless`, ghosts
    /// to which it takes nothing are given up, because not every fabric says that a peer is gone.
    #[cold]
    #[inline(never)]
    pub fn probe_ghosts(&mut self, is_hopeless: bool) -> bool {
        let mut is_left = false;
        for w in self.windows.iter_mut().filter(|w| w.is_served) {
            let mut t = w.slots.next(&self.process.targets, NONE);
            while let Some(index) = t {
                let te = &self.process.targets[index];
                let waits_for_lock = te.lock == TargetLockState::Issued;
                let (rank, owes) = (te.rank, waits_for_lock || te.sync_sent || !te.is_flushed());
                if owes && !te.is_dead() {
                    is_left |= self.process.probe_ghost(w, rank, is_hopeless);
                }
                t = w.slots.next(&self.process.targets, index);
            }
            let (walked, acknowledging) = (w.cursor.unanswered().clone(), w.acks.clone());
            for rank in walked.iter().chain(acknowledging.iter()) {
                is_left |= self.process.probe_ghost(w, rank, is_hopeless);
            }
        }
        is_left
    }

    /// Whether a window with these options is the ghost's to serve. The checker compares what both execute, and
    /// so wants all of it in one process.
    pub(super) fn may_be_served(&self, options: &WindowOptions) -> bool {
        self.process.ghost.is_some() && self.process.options_in_force(options).check != Some(true)
    }

    /// Begins to make a window whose memory is shared with the ghost. Collective.
    pub(super) fn start_served(
        &mut self,
        len: usize,
        disp_unit: u32,
        options: &WindowOptions,
    ) -> Result<(WindowId, SyncCall), RmaError> {
        let (call, flavor) = (Call::Allocate, Flavor::Allocate);
        self.check_endpoint(call)?;
        let in_force = self.process.options_in_force(options);
        let is_allocated = self.process.ghost.as_ref().is_some_and(|ghost| ghost.makes_allocated());
        let paths = Paths::offered(self.process.native(is_allocated), &self.process.config, &in_force);
        let wanted = Wanted {
            window: self.next_window(),
            len,
            disp_unit: disp_unit.max(1),
            alignment: options.memory_alignment as usize,
            is_registered: paths.any() && len > 0,
        };
        let part = match &mut self.process.ghost {
            Some(ghost) => ghost.serve(&wanted),
            None => Err(GhostError::Other("this rank has no ghost process".into())),
        };
        let (base, len, owned, remote, error) = match part {
            Ok(part) => (part.base, len, Some(OwnedMemory::mapped(part.mapping)), Some(part.remote), None),
            Err(error) => {
                let error = match error {
                    GhostError::Memory => RmaError::Memory { call, bytes: len },
                    GhostError::Other(message) => RmaError::Provider { call, message },
                };
                (core::ptr::null_mut(), 0, None, None, Some(error))
            }
        };
        // SAFETY: by the promise of `Ghost`; the window keeps the mapping, and is dropped with it.
        let memory = unsafe { WindowMemory::new(base, len) };
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

    /// lock_all of a served window has the own lock on return, because the memory may be loaded and stored
    /// directly. The ghost has the lock, so it is asked like every other.
    pub(super) fn poll_own_grant(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        let rank = self.process.rank;
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        if w.state() != WindowState::LockAllCalled {
            // Elements have run out meanwhile, and all ranks are being locked.
            self.process.settle(w);
            return if w.state() == WindowState::LockAllIssued { Poll::Pending } else { Poll::Ready(Ok(())) };
        }
        if w.find(&self.process.targets, rank).is_none()
            && self.process.poll_target_element(w, rank).is_none()
        {
            return Poll::Pending;
        }
        let result = self.poll_lock_grant(sync, rank);
        if let (Poll::Ready(Err(_)), Some(w)) = (&result, self.windows.get_mut(sync.window)) {
            let _ = w.transition(|state| state.on_unlock_all());
            self.process.shortcut = Shortcut::NONE;
        }
        result
    }
}

impl<E: Endpoint> Engine<E, Introduced> {
    /// The engine of the ghost of `rank` in a job of `size` ranks. It executes and answers, and nothing else;
    /// whoever runs it makes progress.
    pub fn serve(endpoint: E, rank: Rank, size: u32, config: &Config) -> Self {
        let config = Config {
            slots: 1,
            operation_pool: 1,
            operation_pool_global: 1,
            target_pool: 1,
            target_pool_global: 1,
            notices: 1,
            group_members: 1,
            ..config.clone()
        };
        let mut process = Process::new(endpoint, Introduced::new(rank, size), config);
        process.is_ghost = true;
        Self { windows: Windows::new(), process, agreeing: Default::default(), number: next_number() }
    }

    /// The address that the rank publishes with its own.
    pub fn ghost_address(&self) -> AddressBytes {
        self.process.endpoint.address()
    }

    /// Serves a window of the rank's from now on.
    ///
    /// # Safety
    /// `base` is valid for `len` bytes of reads and writes until `mapping` is dropped, and accessed by whoever
    /// else only as shared memory that others may change.
    ///
    /// # Errors
    /// When the fabric cannot register the memory, or there is such a window already.
    pub unsafe fn add_window(
        &mut self,
        wanted: &Wanted,
        base: *mut u8,
        mapping: Box<dyn Mapping>,
    ) -> Result<Registered, RmaError> {
        let (call, id) = (Call::Allocate, wanted.window);
        if self.windows.peek(id).is_some() {
            return Err(RmaError::Window { call, window: id });
        }
        let mut region = None;
        if let (true, Some(first)) = (wanted.is_registered, NonNull::new(base)) {
            let key = RemoteKey(KEY_BASE + u64::from(id.0));
            // SAFETY: the memory is valid and shared until the window is dropped, and the region is dropped
            // with it, before the mapping.
            let registered = unsafe { self.process.endpoint.register(first, wanted.len, key) };
            region =
                Some(registered.map_err(|refused| RmaError::Provider { call, message: refused.message })?);
        }
        let sharing = sharing(region.as_ref(), region.is_some());
        // SAFETY: the caller's promise; the window keeps the mapping.
        let memory = unsafe { WindowMemory::new(base, wanted.len) }.shared(sharing);
        let own = Metadata {
            size: wanted.len as u64,
            base: region.as_ref().map_or(0, MemoryRegion::remote_base),
            key: region.as_ref().map_or(RemoteKey(0), MemoryRegion::remote_key),
            disp_unit: wanted.disp_unit.max(1),
            misalignment: memory.misalignment(),
        };
        let process = &mut self.process;
        let operations = process.operations.reserve(process.config.operation_pool);
        let targets = process.targets.reserve(process.config.target_pool);
        let owned = Some(OwnedMemory::mapped(mapping));
        let (rank, size, config) = (process.rank, process.size, &process.config);
        let mut w = Window::new(id, rank, size, config, memory, owned, region, own, (operations, targets));
        (w.usable, w.flavor) = (true, Flavor::Allocate);
        self.insert_window(w);
        Ok(Registered { base: own.base, key: own.key.0 })
    }

    /// The launcher has told the rank that this rank's process has ended: what it holds here is free.
    pub fn lose(&mut self, rank: Rank) {
        self.process.hear_of_loss(&mut self.windows, rank);
    }

    /// Serves the window no more: its registration ends, and its mapping is dropped; with the engine, if it is freed by its rank
    /// `alone`, and who asks for it then is told that it is gone.
    pub fn drop_window(&mut self, window: WindowId, alone: bool) {
        if let Some(w) = self.windows.get_mut(window).filter(|_| alone) {
            self.process.kept.push(Remains::of(w.owned.take(), w.words.take()));
        }
        self.remove_window(window);
    }
}
