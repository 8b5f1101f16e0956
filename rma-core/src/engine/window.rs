//! Making and freeing windows: collective, by one reduction and one barrier.
#![allow(unsafe_code)] // window memory comes as a raw pointer

use alloc::boxed::Box;
use core::ptr::NonNull;
use core::task::Poll;

use super::agreement::{agree, all_came_for_one, come_for, creation_values, FAILED};
use super::pscw::Opening;
use super::{epoch_error, Engine, Stage, SyncCall, EXPOSED};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, ErrorClass, RmaError, Rule};
use crate::ghost::Registered;
use crate::ids::{Rank, RemoteKey, WindowId};
use crate::info::{Flavor, WindowOptions};
use crate::mem::{Sharing, WindowMemory};
use crate::path::Paths;
use crate::pool::NONE;
use crate::progress::{Failure, Process, NO_WINDOW};
use crate::provider::{Allocation, Endpoint, MemoryRegion};
use crate::restore::TARGETS_LEAST;
use crate::state::WindowState;
use crate::table::Shortcut;
use crate::window::{Dynamic, OwnedMemory, Remains, SelfLock, Window};
use crate::wire::{Metadata, Purposes};

/// First registration key of windows: fabrics treat the lowest ones specially.
pub(super) const KEY_BASE: u64 = 0x1000;

/// A window that is about to be made at this rank.
pub(super) struct Making<'a> {
    pub(super) call: Call,
    pub(super) flavor: Flavor,
    pub(super) memory: WindowMemory,
    pub(super) owned: Option<OwnedMemory>,
    /// The memory is the provider's ([`Endpoint::allocate`]).
    pub(super) is_allocated: bool,
    pub(super) disp_unit: u32,
    pub(super) options: &'a WindowOptions,
    /// Where the ghost has it, if it is served.
    pub(super) remote: Option<Registered>,
    /// Why this rank cannot take part.
    pub(super) error: Option<RmaError>,
}

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Begins to make a window over the user's memory (MPI-4.1 section 13.2.1). Collective. A length
    /// of 0 is legal; `base` may be null then.
    ///
    /// Implements: MPI_Win_create.
    ///
    /// # Safety
    /// Until the window is freed without an error, or the engine gone: `base` stays valid for `len` bytes of reads and
    /// writes, and is accessed otherwise only as shared memory that others may change (no `&mut`, no `&` to it that
    /// lives across a call).
    ///
    /// # Errors
    /// When the endpoint is broken. What only this rank cannot do (no memory, no registration, a
    /// `disp_unit` of 0) is reported by the call when it is polled, at every rank.
    pub unsafe fn start_create(
        &mut self,
        base: *mut u8,
        len: usize,
        disp_unit: u32,
    ) -> Result<(WindowId, SyncCall), RmaError> {
        // SAFETY: the caller's promise.
        unsafe { self.start_create_with(base, len, disp_unit, &WindowOptions::DEFAULT) }
    }

    /// [`Engine::start_create`] with options. Other windows may be made over the same memory, or parts of it.
    ///
    /// # Safety
    /// As for [`Engine::start_create`].
    ///
    /// # Errors
    /// As for [`Engine::start_create`].
    pub unsafe fn start_create_with(
        &mut self,
        base: *mut u8,
        len: usize,
        disp_unit: u32,
        options: &WindowOptions,
    ) -> Result<(WindowId, SyncCall), RmaError> {
        let call = Call::Create;
        let error = check_span(call, base, len).err();
        let len = if error.is_some() { 0 } else { len };
        // SAFETY: the caller's promise.
        let memory = unsafe { WindowMemory::new(base, len) };
        let (flavor, owned, is_allocated, remote) = (Flavor::Create, None, false, None);
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

    /// Begins to make a window whose memory, zeroed and page-aligned, belongs to the library (section
    /// 13.2.2): the provider's, where that reaches its own memory better than other. Collective.
    ///
    /// Implements: MPI_Win_allocate.
    ///
    /// # Errors
    /// As for [`Engine::start_create`].
    pub fn start_allocate(&mut self, len: usize, disp_unit: u32) -> Result<(WindowId, SyncCall), RmaError> {
        self.start_allocate_with(len, disp_unit, &WindowOptions::DEFAULT)
    }

    /// [`Engine::start_allocate`] with options.
    ///
    /// # Errors
    /// As for [`Engine::start_create`].
    pub fn start_allocate_with(
        &mut self,
        len: usize,
        disp_unit: u32,
        options: &WindowOptions,
    ) -> Result<(WindowId, SyncCall), RmaError> {
        let (call, flavor) = (Call::Allocate, Flavor::Allocate);
        if let Some(refused) = self.start_refused(call) {
            return Ok(refused);
        }
        if self.may_be_served(options) {
            return self.start_served(len, disp_unit, options);
        }
        let (base, owned, is_allocated) = self.allocate(len, options.memory_alignment as usize);
        let len_had = if owned.is_some() { len } else { 0 };
        // SAFETY: the window keeps `owned` and is dropped with it; nobody else has the pointer but
        // through the window.
        let memory = unsafe { WindowMemory::new(base, len_had) };
        let error = owned.is_none().then_some(RmaError::Memory { call, bytes: len });
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

    /// Memory for a window, its first byte, and whether it counts as the provider's: of none nobody can tell.
    fn allocate(&mut self, len: usize, alignment: usize) -> (*mut u8, Option<OwnedMemory>, bool) {
        let allocation = match len {
            0 => Allocation::Anywhere,
            _ => self.process.endpoint.allocate(len, alignment),
        };
        match allocation {
            Allocation::Here { base, mapping } => (base.as_ptr(), Some(OwnedMemory::mapped(mapping)), true),
            Allocation::Anywhere => {
                let owned = OwnedMemory::new(len, alignment);
                (owned.as_ref().map_or(core::ptr::null_mut(), OwnedMemory::base), owned, len == 0)
            }
            Allocation::OutOfMemory => (core::ptr::null_mut(), None, false),
        }
    }

    /// The call that fails, as soon as it is polled or with the others, where a rank is known to be lost, here or to another, without
    /// whom no window is made.
    /// None is begun then, neither here nor at the ghost: who frees a window alone, because of that loss, gives up a
    /// number that others still use, and what they ask for must not reach another window.
    fn start_refused(&self, call: Call) -> Option<(WindowId, SyncCall)> {
        let error = match (&self.process.failure, self.process.flood.freed_for) {
            (Some(failure), _) => failure.report(call),
            (None, Some(rank)) => self.process.lost_to_another(call, rank),
            (None, None) => return None,
        };
        let mut sync = SyncCall::new(call, NO_WINDOW, Stage::Create { sequence: None });
        sync.error = Some(error);
        Some((NO_WINDOW, sync))
    }

    pub(super) fn start_window(&mut self, making: Making<'_>) -> Result<(WindowId, SyncCall), RmaError> {
        let Making { call, flavor, memory, owned, is_allocated, disp_unit, options, remote, mut error } =
            making;
        self.check_endpoint(call)?;
        if let Some(refused) = self.start_refused(call) {
            return Ok(refused);
        }
        let id = self.next_window();
        let process = &mut self.process;
        let options = process.options_in_force(options);
        let is_dynamic = flavor == Flavor::Dynamic;
        let offered = Paths::offered(process.native(is_allocated), &process.config, &options);
        // What goes natively there is decided for each operation.
        let paths = if is_dynamic { Paths::default() } else { offered };
        if disp_unit == 0 {
            error.get_or_insert_with(|| no_unit(call));
        }
        let mut region = None;
        if paths.any() && remote.is_none() && error.is_none() {
            (region, error) = register(&mut process.endpoint, (call, id), &memory);
        }
        let memory = match remote {
            None => memory.shared(sharing(region.as_ref(), offered.has_atomics())),
            // The ghost executes what this rank asks of it, too.
            Some(_) => memory,
        };
        let served = remote.unwrap_or_default();
        let own = Metadata {
            size: if is_dynamic { Metadata::ANY_ADDRESS } else { memory.len() as u64 },
            base: region.as_ref().map_or(served.base, MemoryRegion::remote_base),
            key: region.as_ref().map_or(RemoteKey(served.key), MemoryRegion::remote_key),
            disp_unit: disp_unit.max(1),
            misalignment: memory.misalignment(),
        };
        let (has_failed, pages) = (error.is_some(), &mut self.windows.pages);
        let has_own = !has_failed && remote.is_none();
        let words = if has_own { process.make_words(pages, &options, id, own) } else { None };
        let operations = process.operations.reserve(process.config.operation_pool);
        let targets = process.targets.reserve(process.config.target_pool.max(TARGETS_LEAST));
        let mut w = Window::new(
            id,
            process.rank,
            process.size,
            &process.config,
            memory,
            owned,
            region,
            own,
            (operations, targets),
        );
        (w.paths, w.flavor, w.options, w.is_served) = (paths, flavor, options, remote.is_some());
        w.remember_flushes(process.config.lazy_targets && flavor != Flavor::Shared);
        process.make_lock_cells(id, words.is_some());
        w.words = words.map(Box::new);
        // What the provider says of memory that could not be had is to stay the last that it has said.
        if !has_failed {
            w.line = self.windows.boards.line(&mut process.endpoint, &process.config, id, &own);
        }
        w.dynamic = is_dynamic.then(|| Box::new(Dynamic::new(offered, &process.config)));
        w.checker = (w.options.check == Some(true)).then(Box::default);
        self.insert_window(w);
        let mut sync = SyncCall::new(call, id, Stage::Create { sequence: None });
        sync.error = error;
        Ok((id, sync))
    }

    pub(super) fn poll_create(
        &mut self,
        sync: &mut SyncCall,
        sequence: Option<u32>,
    ) -> Poll<Result<(), RmaError>> {
        let id = sync.window;
        let rank = self.process.rank;
        let failed =
            sync.error.as_ref().map_or(0, |error| 1 << 40 | (error.class() as u64) << 32 | u64::from(rank.0));
        let agreed = self.poll_reduce(sequence, |engine| {
            let mut values = engine.windows.peek(id).map_or_else(|| come_for(0), creation_values);
            values[FAILED] = failed;
            values
        });
        if let Err(sequence) = agreed {
            sync.stage = Stage::Create { sequence };
            let failure = self.process.failure(sync.call);
            if failure.is_ready() {
                // It has come to the reduction, perhaps, and the others have the window.
                if let Some(w) = self.windows.get_mut(id) {
                    self.process.leave_in_doubt(w);
                }
                // The user's memory must not stay registered.
                self.remove_window(id);
            }
            return failure;
        }
        let values = *self.process.reduce.values();
        if values[FAILED] != 0 {
            self.remove_window(id);
            let class = ErrorClass::from_code((values[FAILED] >> 32) as u8).unwrap_or(ErrorClass::Other);
            let elsewhere =
                RmaError::Elsewhere { call: sync.call, class, target: Rank(values[FAILED] as u32) };
            return Poll::Ready(Err(sync.error.take().unwrap_or(elsewhere)));
        }
        if let Err(error) = all_came_for_one(sync.call, &values) {
            self.remove_window(id);
            return Poll::Ready(Err(error));
        }
        let Some(w) = self.windows.get_mut(id) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: id }));
        };
        if let Err((class, rule, what)) = agree(w, &values) {
            self.remove_window(id);
            return Poll::Ready(Err(RmaError::Invalid { call: sync.call, class, what, rule }));
        }
        Poll::Ready(Ok(()))
    }

    /// Begins to free a window. Collective; its memory is not touched any more when the call is done.
    ///
    /// # Errors
    /// When an epoch is open on it at this rank.
    ///
    /// Implements: MPI_Win_free.
    pub fn start_free(&mut self, window: WindowId) -> Result<SyncCall, RmaError> {
        let call = Call::Free;
        let is_broken = self.process.failure.is_some();
        let w = self.window(call, window)?;
        if w.is_given_up {
            return Ok(Self::after_leftover(call, window, Opening::Free));
        }
        if let Some(state) = open_state(w, is_broken) {
            return Err(RmaError::Epoch { call, target: None, state, rule: Rule::FreeInsideEpoch });
        }
        let state = w.state();
        if w.has_leftover() {
            return Ok(Self::after_leftover(call, window, Opening::Free));
        }
        if core::mem::replace(&mut w.is_closing, true) {
            return Err(epoch_error(call, None, state, Rule::Busy));
        }
        Ok(SyncCall::new(call, window, Stage::Free { sequence: None }))
    }

    /// The first window with an epoch that is open at this rank, and its state: whoever finalizes would lose the
    /// epoch's operations. After a rank's death nobody is kept from leaving.
    pub fn open_epoch(&self) -> Option<(WindowId, &'static str)> {
        if self.process.failure.is_some() {
            return None;
        }
        if let Some((open, state)) = self.windows.repeated.open_in() {
            return Some((open, state.name()));
        }
        let is_open = |w: &&Window<E::Region>| !w.is_given_up || !self.process.has_only_given_up(w);
        let mut windows = self.windows.iter().filter(is_open);
        windows.find_map(|w| Some((w.id, open_state(w, false)?)))
    }

    pub(super) fn poll_free(
        &mut self,
        sync: &mut SyncCall,
        sequence: Option<u32>,
    ) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        let sequence = match sequence {
            Some(sequence) => sequence,
            // This rank's own lock may still be on its way out.
            None if w.words.as_ref().is_some_and(|words| !words.is_idle()) => return self.free_alone(sync),
            None if self.process.doubt().is_some() => return self.free_alone(sync),
            None => match w.barrier.start(Purposes::FREE, []) {
                Some(sequence) => sequence,
                None => return self.free_alone(sync),
            },
        };
        sync.stage = Stage::Free { sequence: Some(sequence) };
        self.process.advance_barrier(w);
        // What was given back last on behalf of others may still be on its way.
        if w.barrier.is_mixed()
            || !w.barrier.is_complete(sequence)
            || w.words.as_ref().is_some_and(|words| !words.is_idle())
        {
            return self.free_alone(sync);
        }
        // An operation that was kept for a fence which failed.
        if let Some((_, code)) = self.process.failure.as_ref().and_then(Failure::peer) {
            if !self.process.free_lost_targets(w, Some(code)) {
                return Poll::Pending;
            }
        }
        while let Some(t) = w.slots.next(&self.process.targets, NONE) {
            self.process.free_target(w, t);
        }
        // What a weakly synchronized epoch met after its complete had returned.
        let late = w.take_all_late();
        self.remove_window(sync.window);
        Poll::Ready(late.map_or(Ok(()), |(rank, error)| Err(error.report(sync.call, rank))))
    }

    /// This rank has ended its part in the job: it posts and completes nothing any more, of which those are told who wait for it,
    /// and serves the others.
    pub fn leave(&mut self) {
        self.process.has_left = true;
    }

    /// This rank ends its part in the job, and comes to no barrier of its windows any more. Where a rank is lost to it that may
    /// live, the others hear of that.
    pub fn leave_windows(&mut self) {
        for w in self.windows.iter_mut() {
            self.process.leave_in_doubt(w);
        }
    }

    /// Frees the window without the others when a rank is lost, to this one or to another, that will never come to the barrier: as
    /// soon as the fabric has given back what it still uses. Who asks for the window later gets an error.
    #[cold]
    fn free_alone(&mut self, sync: &SyncCall) -> Poll<Result<(), RmaError>> {
        let Some(w) = self.windows.get_mut(sync.window) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: sync.window }));
        };
        let code = match &self.process.failure {
            Some(Failure::Peer(_, code)) => Some(*code),
            Some(_) => {
                w.is_closing = false;
                self.process.leave_in_doubt(w);
                return self.process.failure(sync.call);
            }
            None if w.barrier.lost().is_some() => None,
            // Ranks met in the barrier that had come for a fence, and may access its memory: the window stays as it is.
            None if w.barrier.is_mixed() => {
                w.is_closing = false;
                return Poll::Ready(Err(self.process.broken(sync.call, &w.barrier)));
            }
            None => return Poll::Pending,
        };
        if let Some(words) = &mut w.words {
            words.lose(None);
            if !words.is_idle() {
                return Poll::Pending;
            }
        }
        if !self.process.free_lost_targets(w, code) {
            return Poll::Pending;
        }
        self.process.leave_in_doubt(w);
        let error = match w.barrier.lost() {
            Some(_) => Poll::Ready(Err(self.process.broken(sync.call, &w.barrier))),
            None => self.process.failure(sync.call),
        };
        self.remove_window(sync.window);
        error
    }

    /// Keeps a window, with room for what may have to wait for it.
    pub(super) fn insert_window(&mut self, mut w: Window<E::Region>) {
        w.near = self.process.makes_near(&w).then(Box::default);
        self.windows.insert(w);
        let Process { held, flood, config, size, .. } = &mut self.process;
        // Settings are alike in a job as a rule: where they are not, the first data make it.
        let known = if config.put_data == Some(true) { config.peers } else { 0 };
        let windows = self.windows.iter().count();
        held.make_room(windows, known.min(*size as usize));
        flood.make_room(windows);
    }

    /// Drops a window and keeps its elements for the next one.
    pub(super) fn remove_window(&mut self, window: WindowId) {
        self.process.shortcut = Shortcut::NONE;
        self.process.passage.forget(window);
        if let Some(w) = self.windows.remove(window) {
            let w = *w;
            let freed_for = &mut self.process.flood.freed_for;
            *freed_for = freed_for.or(w.barrier.lost());
            let is_alone = self.process.failure.is_some() || freed_for.is_some();
            for owed in w.dynamic.into_iter().flat_map(|dynamic| dynamic.owed) {
                self.process.replies.give(owed.index, owed.buffer);
            }
            if let Some(ghost) = self.process.ghost.as_mut().filter(|_| w.is_served) {
                ghost.release(window, is_alone);
            }
            // Who frees it without the others may be told something by those who have not heard of the loss, and they
            // may still access its memory: a fabric in software goes on with what it has begun of a region that is closed.
            match is_alone {
                false => self.windows.drop_boards(),
                true => self.process.kept.push(Remains::of(w.owned, w.words)),
            }
            self.process.operations.retire(w.operations);
            self.process.targets.retire(w.targets);
        }
    }

    /// Whether no operation on the window refers to memory of the user's any more. Who cannot leave
    /// buffers to an epoch whose closing call has failed makes progress until it is so.
    pub fn is_locally_complete(&mut self, window: WindowId) -> bool {
        let Some(w) = self.windows.get_mut(window) else { return true };
        self.process.cleanup_ops_win(w);
        let mut t = w.slots.next(&self.process.targets, NONE);
        while t.is_some_and(|index| self.process.targets[index].is_locally_complete()) {
            t = t.and_then(|index| w.slots.next(&self.process.targets, index));
        }
        t.is_none()
    }

    /// Windows that exist.
    pub fn window_count(&self) -> usize {
        self.windows.iter().count()
    }
}

/// Registers a window's memory, if there is any.
fn register<E: Endpoint>(
    endpoint: &mut E,
    (call, id): (Call, WindowId),
    memory: &WindowMemory,
) -> (Option<E::Region>, Option<RmaError>) {
    let Some(base) = NonNull::new(memory.base_ptr()).filter(|_| !memory.is_empty()) else {
        return (None, None);
    };
    let key = RemoteKey(KEY_BASE + u64::from(id.0));
    // SAFETY: the memory is valid and shared until the window is dropped, and the region is dropped with it, before the
    // memory.
    match unsafe { endpoint.register(base, memory.len(), key) } {
        Ok(region) => (Some(region), None),
        Err(refused) => (None, Some(RmaError::Provider { call, message: refused.message })),
    }
}

/// Who changes the elements of memory beside this rank's engine: peers, as its region says; else the fabric, if it may; else
/// nobody.
pub(super) fn sharing<R: MemoryRegion>(region: Option<&R>, may_fabric: bool) -> Sharing {
    match region.and_then(MemoryRegion::changes) {
        Some(changes) => Sharing::Peers(changes),
        None if may_fabric => Sharing::Atomics,
        None => Sharing::Alone,
    }
}

/// The state in which an epoch is open at this rank, if one is. A fence that a death keeps from its end lets
/// nothing leave: what waits for it is given up.
fn open_state<R>(w: &Window<R>, is_broken: bool) -> Option<&'static str> {
    let state = w.state();
    let is_stuck = state == WindowState::FenceIssued && is_broken;
    let is_idle = state == WindowState::Unset || (state.is_fence() && !w.fence_active) || is_stuck;
    if is_idle && w.exposure.is_open() {
        return Some(EXPOSED);
    }
    (!is_idle || w.self_lock != SelfLock::None).then(|| state.name())
}

#[cold]
fn no_unit(call: Call) -> RmaError {
    let what = "the displacement unit is 0; it must be at least 1 byte";
    RmaError::Invalid { call, class: ErrorClass::Disp, what, rule: Rule::UnitPositive }
}

/// Whether `len` bytes at `base` can be memory of a window.
pub(super) fn check_span(call: Call, base: *mut u8, len: usize) -> Result<(), RmaError> {
    let (class, rule, what) = if base.is_null() && len > 0 {
        let what = "the base is null, but the length is not 0; give the memory's address";
        (ErrorClass::Base, Rule::BaseThere, what)
    } else if isize::try_from(len).is_err() || base.addr().checked_add(len).is_none() {
        let what = "the memory would reach beyond the end of the address space; give its true length";
        (ErrorClass::Size, Rule::SizeFits, what)
    } else {
        return Ok(());
    };
    Err(RmaError::Invalid { call, class, what, rule })
}

impl<E: Endpoint, B> Drop for Engine<E, B> {
    /// Memory of windows that are left goes behind the endpoint, not with their registrations: a fabric in software goes on
    /// with what it has begun.
    fn drop(&mut self) {
        let remains = self.windows.iter_mut().map(|w| Remains::of(w.owned.take(), w.words.take()));
        self.process.kept.extend(remains);
    }
}
