//! Making and freeing windows: collective, by one reduction and one barrier.
#![allow(unsafe_code)] // window memory comes as a raw pointer

use core::ptr::NonNull;
use core::task::Poll;

use super::{epoch_error, Engine, Stage, SyncCall};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, RmaError, Rule};
use crate::ids::{RemoteKey, WindowId};
use crate::mem::WindowMemory;
use crate::path::Paths;
use crate::pool::NONE;
use crate::progress::REDUCE_VALUES;
use crate::provider::{Endpoint, MemoryRegion};
use crate::state::WindowState;
use crate::window::{OwnedMemory, SelfLock, Window};
use crate::wire::Metadata;

/// First registration key: fabrics treat the lowest ones specially.
const KEY_BASE: u64 = 0x1000;

/// What this rank brings to the agreement, and the index of each number's complement: equal everywhere
/// exactly when the maximum of the one is the complement of the maximum of the other.
const AGREED: usize = 5;

/// Index of the number that is not 0 when a rank cannot take part.
const FAILED: usize = 2 * AGREED;

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Begins to make a window over the user's memory (MPI-4.1 section 13.2.1). Collective. A length
    /// of 0 is legal; `base` may be null then.
    ///
    /// # Safety
    /// Until the window is freed: `base` stays valid for `len` bytes of reads and writes, and is
    /// accessed otherwise only as shared memory that others may change (no `&mut`, no `&` to it that
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
        let memory = unsafe { WindowMemory::new(base, len) };
        self.start_window(Call::Create, memory, None, disp_unit, None)
    }

    /// Begins to make a window whose memory, zeroed and page-aligned, belongs to the library (section
    /// 13.2.2). Collective.
    ///
    /// # Errors
    /// As for [`Engine::start_create`].
    pub fn start_allocate(&mut self, len: usize, disp_unit: u32) -> Result<(WindowId, SyncCall), RmaError> {
        let owned = OwnedMemory::new(len);
        let (base, len_had) =
            owned.as_ref().map_or((core::ptr::null_mut(), 0), |owned| (owned.base().as_ptr(), len));
        // SAFETY: the window keeps `owned` and is dropped with it; nobody else has the pointer but
        // through the window.
        let memory = unsafe { WindowMemory::new(base, len_had) };
        let missing = owned.is_none().then_some(RmaError::Memory { call: Call::Allocate, bytes: len });
        self.start_window(Call::Allocate, memory, owned, disp_unit, missing)
    }

    fn start_window(
        &mut self,
        call: Call,
        memory: WindowMemory,
        owned: Option<OwnedMemory>,
        disp_unit: u32,
        mut error: Option<RmaError>,
    ) -> Result<(WindowId, SyncCall), RmaError> {
        self.check_endpoint(call)?;
        let id = self.windows.next_id();
        let process = &mut self.process;
        let paths = Paths::offered(process.endpoint.native(), &process.config);
        if disp_unit == 0 {
            let what = "the displacement unit is 0; it must be at least 1 byte";
            error.get_or_insert(RmaError::Argument { call, what });
        }
        let mut region = None;
        if let (true, None, Some(base)) =
            (paths.any() && !memory.is_empty(), &error, NonNull::new(memory.base_ptr()))
        {
            let key = RemoteKey(KEY_BASE + u64::from(id.0));
            // SAFETY: the memory is valid and shared until the window is dropped, and the region is
            // dropped with it, before the memory.
            match unsafe { process.endpoint.register(base, memory.len(), key) } {
                Ok(registered) => region = Some(registered),
                Err(refused) => error = Some(RmaError::Provider { call, message: refused.message }),
            }
        }
        let own = Metadata {
            size: memory.len() as u64,
            base: region.as_ref().map_or(0, MemoryRegion::remote_base),
            key: region.as_ref().map_or(RemoteKey(0), MemoryRegion::remote_key),
            disp_unit: disp_unit.max(1),
        };
        let operations = process.operations.reserve(process.config.operation_pool);
        let targets = process.targets.reserve(process.config.target_pool);
        let mut w = Window::new(
            id,
            process.rank,
            process.size,
            &process.config,
            memory,
            owned,
            region,
            own,
            operations,
            targets,
        );
        w.paths = paths;
        self.windows.insert(w);
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
        let failed = u64::from(sync.error.is_some());
        let agreed = self.poll_reduce(sequence, |engine| {
            let mut values = engine.windows.get(id).map_or([0; REDUCE_VALUES], creation_values);
            values[FAILED] = failed;
            values
        });
        if let Err(sequence) = agreed {
            sync.stage = Stage::Create { sequence };
            return self.process.failure(sync.call);
        }
        let values = *self.process.reduce.values();
        if values[FAILED] != 0 {
            self.remove_window(id);
            let elsewhere = || RmaError::Provider {
                call: sync.call,
                message: "another rank could not provide its part of the window; its own message says why"
                    .into(),
            };
            return Poll::Ready(Err(sync.error.take().unwrap_or_else(elsewhere)));
        }
        let Some(w) = self.windows.get_mut(id) else {
            return Poll::Ready(Err(RmaError::Window { call: sync.call, window: id }));
        };
        let same = |index: usize| values[index] == !values[index + AGREED];
        if (0..4).all(same) {
            w.symmetric = Some(w.own);
        }
        // Paths are everybody's or nobody's.
        w.paths = if same(4) { Paths::from_bits(values[4]) } else { Paths::default() };
        w.usable = true;
        Poll::Ready(Ok(()))
    }

    /// Begins to free a window. Collective; its memory is not touched any more when the call is done.
    ///
    /// # Errors
    /// When an epoch is open on it at this rank.
    pub fn start_free(&mut self, window: WindowId) -> Result<SyncCall, RmaError> {
        let call = Call::Free;
        let w = self.window(call, window)?;
        let state = w.state();
        let idle = state == WindowState::Unset || (state.is_fence() && !w.fence_active);
        if !idle || w.self_lock != SelfLock::None {
            return Err(epoch_error(call, state, Rule::FreeInsideEpoch));
        }
        Ok(SyncCall::new(call, window, Stage::Free { sequence: None }))
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
            None => match w.barrier.start([]) {
                Some(sequence) => sequence,
                None => return self.process.failure(sync.call),
            },
        };
        sync.stage = Stage::Free { sequence: Some(sequence) };
        self.process.send_barrier_rounds(w);
        if !w.barrier.is_complete(sequence) {
            return self.process.failure(sync.call);
        }
        while let Some(t) = w.slots.next(&self.process.targets, NONE) {
            self.process.free_target(w, t);
        }
        self.remove_window(sync.window);
        Poll::Ready(Ok(()))
    }

    /// Drops a window and keeps its elements for the next one.
    fn remove_window(&mut self, window: WindowId) {
        if let Some(w) = self.windows.remove(window) {
            let w = *w;
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

    /// First byte and length of this rank's window memory, if there is such a window.
    pub fn window_memory(&self, window: WindowId) -> Option<(*mut u8, usize)> {
        let w = self.windows.get(window)?;
        Some((w.memory.base_ptr(), w.memory.len()))
    }

    /// Bytes that the window holds at this rank besides its memory. The same whatever the job's size.
    pub fn window_bytes(&self, window: WindowId) -> Option<usize> {
        self.windows.get(window).map(Window::bytes)
    }

    /// Which operations are native on this window: put, get, and the accumulate family on `dtype`.
    pub fn window_paths(
        &self,
        window: WindowId,
        dtype: crate::dtype::Dtype,
    ) -> Option<[crate::path::Path; 3]> {
        use crate::wire::OpKind::{Accumulate, Get, Put};
        let paths = self.windows.get(window)?.paths;
        Some([Put, Get, Accumulate].map(|kind| paths.of(kind, dtype)))
    }

    /// Windows that exist.
    pub fn window_count(&self) -> usize {
        self.windows.iter().count()
    }
}

fn creation_values<R>(w: &Window<R>) -> [u64; REDUCE_VALUES] {
    let own = [w.own.size, u64::from(w.own.disp_unit), w.own.base, w.own.key.0, w.paths.to_bits()];
    let mut values = [0; REDUCE_VALUES];
    for (index, value) in own.into_iter().enumerate() {
        values[index] = value;
        values[index + AGREED] = !value;
    }
    values
}
