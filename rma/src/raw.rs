//! The MPI-shaped layer: raw pointers, displacements, and the user's word for both. For ports of MPI
//! programs and for bindings; [`crate::Window`] is the safe way.
//!
//! Names, arguments and meaning are those of MPI-4.1 chapter 13. Every call may be made from every
//! thread; calls that MPI lets block return when they are complete.

mod hosts;
mod kinds;
mod layouts;
mod name;
mod pscw;
mod requests;
mod shared;
pub(crate) mod unserved;

use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::task::Poll;

use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, Operation, SyncCall};
use rma_core::error::{Call, RmaError, Rule};
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType;
use rma_core::op::ReduceOp;
use rma_core::path::Path;
use rma_core::wire::OpKind;

use crate::error::Result;
use crate::events;
use crate::job::Job;
use crate::platform::{say, Engine};
use crate::runtime::{Core, Guarded, Held, PendingOperation};
use crate::segment::Segment;

pub use layouts::{Buffer, TargetBuffer};
pub use requests::{Change, Notification, Request};
pub use rma_core::layout::{ArrayOrder, Layout, LayoutError};

/// A window of raw memory.
///
/// Every rank of the job makes it together and frees it together. A window that is dropped without
/// [`RawWindow::free`] stays until the job's end.
///
/// Displacements (`disp`) are in units of the target's `disp_unit`; lengths are bytes, or elements where
/// a type is given.
pub struct RawWindow {
    /// Before `job`: what the job frees last, it frees when nobody else holds its engine.
    core: Arc<Core>,
    job: Job,
    id: WindowId,
    base: *mut u8,
    len: usize,
    /// What is mapped, if the window's memory is shared.
    segment: Option<Arc<Segment>>,
    name: name::Name,
}

// SAFETY: `base` is an address that is only handed out; everything else is shared between threads by
// the job's guard.
unsafe impl Send for RawWindow {}
// SAFETY: as above.
unsafe impl Sync for RawWindow {}

impl RawWindow {
    /// Makes a window over memory of the caller's (MPI_Win_create). Collective. `len` may be 0, and `base`
    /// null then; each rank may have its own `len` and `disp_unit` (bytes per unit of displacement).
    ///
    /// # Safety
    /// Until the window is freed without an error, or the job's last clone is dropped: `base` is valid for reads and writes of
    /// `len` bytes, and accessed otherwise only as shared memory that others may change (no reference
    /// to it lives across a call).
    ///
    /// # Errors
    /// When `disp_unit` is 0 or the fabric cannot register the memory (the message names the limit).
    ///
    /// Implements: MPI_Win_create.
    pub unsafe fn create(job: &Job, base: *mut u8, len: usize, disp_unit: u32) -> Result<Self> {
        job.core().lend_memory();
        Self::make(job, Call::Create, |engine| {
            // SAFETY: the caller's promise.
            unsafe { engine.start_create(base, len, disp_unit) }
        })
    }

    /// Makes a window over `len` zeroed bytes of the library's, aligned to a page (MPI_Win_allocate).
    /// Collective. The host gives the pages as for [`Job::allocate`].
    ///
    /// # Errors
    /// As for [`RawWindow::create`], and when the memory cannot be had.
    ///
    /// Implements: MPI_Win_allocate.
    pub fn allocate(job: &Job, len: usize, disp_unit: u32) -> Result<Self> {
        Self::make(job, Call::Allocate, |engine| engine.start_allocate(len, disp_unit))
    }

    fn make(
        job: &Job,
        call: Call,
        start: impl FnOnce(&mut Engine) -> std::result::Result<(WindowId, SyncCall), RmaError>,
    ) -> Result<Self> {
        let core = Arc::clone(job.core());
        let (mut made, mut refusal) = (None, None);
        let begin = |engine: &mut Engine| {
            let started = start(engine);
            refusal = engine.endpoint().refusal().map(str::to_owned);
            let (id, sync) = started?;
            // None of a call that is about to fail.
            made = engine.window_memory(id).map(|(base, len)| (id, base, len));
            Ok(sync)
        };
        core.collectively(|| core.run(call, begin)).map_err(|error| error.without_memory(refusal))?;
        core.contact_all(call)?;
        match made {
            Some((id, base, len)) => {
                events::made(call, core.rank, id, len);
                let name = name::Name::default();
                let window = Self { job: job.clone(), core, id, base, len, segment: None, name };
                window.tell_if_unserved(call);
                Ok(window)
            }
            // `run` succeeds only with a window.
            None => Err(RmaError::Window { call, window: WindowId(u32::MAX) }.into()),
        }
    }

    /// Frees the window (MPI_Win_free). Collective; no epoch may be open on it.
    ///
    /// # Errors
    /// When an epoch is open, or the endpoint is broken: the window then stays until the job's end. When a rank cannot be
    /// reached any more; the window is freed at this rank then, but others may access its memory until the job's end.
    ///
    /// Implements: MPI_Win_free.
    pub fn free(self) -> Result<()> {
        self.free_in_place()
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn free_in_place(&self) -> Result<()> {
        let forgotten = self.accesses_forgotten();
        if forgotten > 0 {
            say(format_args!(
                "rank {}: window {}{:?}: {forgotten} accesses were not compared with later ones, because the \
                 table of those was full; conflicts may be left; shorter epochs need less",
                self.job.rank(),
                self.id,
                self.name
            ));
        }
        self.run(Call::Free, |engine| engine.start_free(self.id))
    }

    /// The first byte of this rank's window memory; dangling when it has none, or, in a shared window, where it
    /// would be. Valid until the window is freed, and until then others may write what it points to.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes of this rank's window memory.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether this rank's window has no memory.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The window's number, the same at every rank.
    pub fn id(&self) -> WindowId {
        self.id
    }

    /// The job that the window belongs to.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Bytes that the library holds for the window at this rank besides its memory. The same whatever the
    /// job's size.
    pub fn bytes_held(&self) -> usize {
        self.core.enter_anyway().engine.window_bytes(self.id).unwrap_or(0)
    }

    /// What is native on this window: put, get, and accumulates on elements of `dtype`.
    pub fn paths(&self, dtype: Dtype) -> [Path; 3] {
        let guarded = self.core.enter_anyway();
        guarded.engine.window_paths(self.id, dtype).unwrap_or([Path::Message; 3])
    }

    /// Whether ghosts serve the window (`RMA_PROGRESS=ghost`): those that were allocated. Memory of the program's
    /// own, and shared and dynamic windows, are served by their ranks' calls.
    pub fn is_served(&self) -> bool {
        self.core.enter_anyway().engine.is_served(self.id).unwrap_or(false)
    }

    /// Writes `len` bytes to `target` (MPI_Put).
    ///
    /// # Safety
    /// `origin` is readable for `len` bytes, and is not written, until the operation is locally complete:
    /// until a flush_local to the target, or a call that completes more, which began after this call was over, has
    /// returned `Ok`. (Other threads may synchronize the window meanwhile; what began before may not have met the operation.)
    ///
    /// # Errors
    /// When no epoch to the target is open, the rank does not exist, or the range is outside its window. What
    /// only the target can know is reported by the call that completes the operation; as complete need not wait for its targets,
    /// of an epoch of start by that or by the next call that ends an epoch of the window, and by free at the latest.
    ///
    /// Implements: MPI_Put, _c.
    #[inline]
    pub unsafe fn put(&self, origin: *const u8, len: usize, target: Rank, disp: u64) -> Result<()> {
        let mut guarded = self.core.enter(Call::Put)?;
        // SAFETY: the caller's promise.
        let posted = unsafe { guarded.engine.put_inline(self.id, target, disp, origin, len) };
        match posted {
            Poll::Ready(Ok(())) => {
                if guarded.is_progress_due() {
                    return self.posted_with_progress(guarded);
                }
                drop(guarded);
                Ok(())
            }
            Poll::Ready(Err(error)) => self.post_failed(guarded, error),
            // SAFETY: the caller's promise.
            Poll::Pending => unsafe { self.put_later(guarded, (origin, len), (target, disp)) },
        }
    }

    // What is seldom takes guard and window as they are: whatever a put keeps for it, it saves and restores.

    /// A put or get that was taken, behind so many that it is time to make progress.
    #[cold]
    #[inline(never)]
    fn posted_with_progress(&self, mut guarded: Held<'_, Guarded>) -> Result<()> {
        self.core.progress(&mut guarded);
        Ok(())
    }

    /// A put or get that the engine refuses.
    #[cold]
    #[inline(never)]
    fn post_failed(&self, _guarded: Held<'_, Guarded>, error: RmaError) -> Result<()> {
        Err(self.fail(error))
    }

    /// A put for which there was no room.
    ///
    /// # Safety
    /// As for [`RawWindow::put`].
    #[cold]
    #[inline(never)]
    unsafe fn put_later(
        &self,
        guarded: Held<'_, Guarded>,
        (origin, len): (*const u8, usize),
        (target, disp): (Rank, u64),
    ) -> Result<()> {
        let operation = Operation { len, origin, ..self.bytes(Call::Put, OpKind::Put, target, disp) };
        // SAFETY: the caller's promise.
        unsafe { self.post_slow(guarded, &operation) }
    }

    /// Reads `len` bytes from `target` (MPI_Get).
    ///
    /// # Safety
    /// `result` is writable for `len` bytes, and not accessed otherwise, until the operation is complete: until
    /// a flush to the target, or a call that completes more, has returned `Ok`.
    ///
    /// # Errors
    /// As for [`RawWindow::put`].
    ///
    /// Implements: MPI_Get.
    #[inline]
    pub unsafe fn get(&self, result: *mut u8, len: usize, target: Rank, disp: u64) -> Result<()> {
        let mut guarded = self.core.enter(Call::Get)?;
        // SAFETY: the caller's promise.
        let posted = unsafe { guarded.engine.get(self.id, target, disp, result, len) };
        match posted {
            Poll::Ready(Ok(())) => {
                if guarded.is_progress_due() {
                    return self.posted_with_progress(guarded);
                }
                drop(guarded);
                Ok(())
            }
            Poll::Ready(Err(error)) => self.post_failed(guarded, error),
            // SAFETY: the caller's promise.
            Poll::Pending => unsafe { self.get_later(guarded, (result, len), (target, disp)) },
        }
    }

    /// A get for which there was no room.
    ///
    /// # Safety
    /// As for [`RawWindow::get`].
    #[cold]
    #[inline(never)]
    unsafe fn get_later(
        &self,
        guarded: Held<'_, Guarded>,
        (result, len): (*mut u8, usize),
        (target, disp): (Rank, u64),
    ) -> Result<()> {
        let operation = Operation { len, result, ..self.bytes(Call::Get, OpKind::Get, target, disp) };
        // SAFETY: the caller's promise covers the only buffer of a get.
        unsafe { self.post_slow(guarded, &operation) }
    }

    /// Combines `count` elements into the target's, each atomically (MPI_Accumulate).
    ///
    /// # Safety
    /// As for [`RawWindow::put`], for `count` elements of `dtype`.
    ///
    /// # Errors
    /// As for [`RawWindow::put`], and when `op` is not defined for `dtype`.
    ///
    /// Implements: MPI_Accumulate.
    pub unsafe fn accumulate(
        &self,
        origin: *const u8,
        count: usize,
        dtype: Dtype,
        target: Rank,
        disp: u64,
        op: ReduceOp,
    ) -> Result<()> {
        let kind = (Call::Accumulate, OpKind::Accumulate);
        let operation = Operation { origin, ..self.elements(kind, count, dtype, target, disp, op)? };
        // SAFETY: the caller's promise covers the only buffer of an accumulate.
        unsafe { self.post_operation(&operation) }
    }

    /// The same, and `result` gets the elements as they were before (MPI_Get_accumulate). With
    /// [`ReduceOp::NoOp`] it is an atomic read, and `origin` may be null.
    ///
    /// # Safety
    /// `origin` as for [`RawWindow::accumulate`], `result` as for [`RawWindow::get`].
    ///
    /// # Errors
    /// As for [`RawWindow::accumulate`].
    ///
    /// Implements: MPI_Get_accumulate.
    #[allow(clippy::too_many_arguments)] // MPI's own
    pub unsafe fn get_accumulate(
        &self,
        origin: *const u8,
        result: *mut u8,
        count: usize,
        dtype: Dtype,
        target: Rank,
        disp: u64,
        op: ReduceOp,
    ) -> Result<()> {
        let kind = (Call::GetAccumulate, OpKind::GetAccumulate);
        let operation = Operation { origin, result, ..self.elements(kind, count, dtype, target, disp, op)? };
        // SAFETY: the caller's promise.
        unsafe { self.post_operation(&operation) }
    }

    /// [`RawWindow::get_accumulate`] of one element (MPI_Fetch_and_op).
    ///
    /// # Safety
    /// As for [`RawWindow::get_accumulate`], for one element.
    ///
    /// # Errors
    /// As for [`RawWindow::accumulate`].
    ///
    /// Implements: MPI_Fetch_and_op.
    pub unsafe fn fetch_and_op(
        &self,
        origin: *const u8,
        result: *mut u8,
        dtype: Dtype,
        target: Rank,
        disp: u64,
        op: ReduceOp,
    ) -> Result<()> {
        let kind = (Call::FetchAndOp, OpKind::GetAccumulate);
        let operation = Operation { origin, result, ..self.elements(kind, 1, dtype, target, disp, op)? };
        // SAFETY: the caller's promise.
        unsafe { self.post_operation(&operation) }
    }

    /// Replaces the target's element by `origin` if it equals `compare`; `result` gets the element as it was
    /// before (MPI_Compare_and_swap). Integers and truth values only. Bytes are compared: truth values of 1 and 2 are
    /// both true, and not equal.
    ///
    /// # Safety
    /// `origin` and `compare` are readable for one element during the call; `result` as for [`RawWindow::get`].
    ///
    /// # Errors
    /// As for [`RawWindow::accumulate`].
    ///
    /// Implements: MPI_Compare_and_swap.
    pub unsafe fn compare_and_swap(
        &self,
        origin: *const u8,
        compare: *const u8,
        result: *mut u8,
        dtype: Dtype,
        target: Rank,
        disp: u64,
    ) -> Result<()> {
        let kind = (Call::CompareAndSwap, OpKind::CompareAndSwap);
        let operation = Operation {
            origin,
            result,
            compare,
            ..self.elements(kind, 1, dtype, target, disp, ReduceOp::Replace)?
        };
        // SAFETY: the caller's promise.
        unsafe { self.post_operation(&operation) }
    }

    /// Ends the fence epoch, if one is open, and opens the next (MPI_Win_fence). Collective.
    ///
    /// # Errors
    /// When a lock epoch is open, an assertion does not hold, or an operation of the epoch failed.
    ///
    /// Implements: MPI_Win_fence.
    pub fn fence(&self, assert: FenceAssert) -> Result<()> {
        self.run(Call::Fence, |engine| engine.start_fence(self.id, assert))
    }

    /// Opens a lock epoch to `target` (MPI_Win_lock). `no_check`: the caller knows that nobody holds or asks for
    /// a conflicting lock (MPI_MODE_NOCHECK).
    ///
    /// # Errors
    /// When another kind of epoch is open, or this process has locked the rank already.
    ///
    /// Implements: MPI_Win_lock.
    pub fn lock(&self, lock_type: LockType, target: Rank, no_check: bool) -> Result<()> {
        if !no_check && self.core.lock_again(self.id, lock_type, target) {
            return self.over(Call::Lock, target, Ok(()));
        }
        self.lock_anew(lock_type, target, no_check)
    }

    #[inline(never)]
    fn lock_anew(&self, lock_type: LockType, target: Rank, no_check: bool) -> Result<()> {
        let run = self.core.lock(self.id, lock_type, target, no_check);
        self.over(Call::Lock, target, run)
    }

    /// Ends the lock epoch to `target` (MPI_Win_unlock): its operations are complete at both sides.
    ///
    /// # Errors
    /// When this process has not locked the rank, or an operation failed.
    ///
    /// Implements: MPI_Win_unlock.
    pub fn unlock(&self, target: Rank) -> Result<()> {
        let run = self.core.unlock(self.id, target);
        self.over(Call::Unlock, target, run)
    }

    /// Opens a shared lock epoch to all ranks (MPI_Win_lock_all).
    ///
    /// # Errors
    /// When another epoch is open.
    ///
    /// Implements: MPI_Win_lock_all.
    pub fn lock_all(&self, no_check: bool) -> Result<()> {
        let run = self.core.lock_all(self.id, no_check);
        self.over(Call::LockAll, Rank::NULL, run)
    }

    /// Ends it (MPI_Win_unlock_all): its operations are complete at both sides.
    ///
    /// # Errors
    /// When no lock_all epoch is open, or an operation failed.
    ///
    /// Implements: MPI_Win_unlock_all.
    pub fn unlock_all(&self) -> Result<()> {
        let run = self.core.unlock_all(self.id);
        self.over(Call::UnlockAll, Rank::NULL, run)
    }

    /// Completes all operations to `target` at both sides (MPI_Win_flush).
    ///
    /// # Errors
    /// When no lock or lock_all epoch to the rank is open, or an operation failed.
    ///
    /// Implements: MPI_Win_flush.
    pub fn flush(&self, target: Rank) -> Result<()> {
        let run = self.core.flush(self.id, target);
        self.over(Call::Flush, target, run)
    }

    /// The same for all ranks (MPI_Win_flush_all).
    ///
    /// # Errors
    /// As for [`RawWindow::flush`].
    ///
    /// Implements: MPI_Win_flush_all.
    pub fn flush_all(&self) -> Result<()> {
        self.run(Call::FlushAll, |engine| engine.start_flush_all(self.id))
    }

    /// Completes all operations to `target` at this side: their buffers may be used again
    /// (MPI_Win_flush_local).
    ///
    /// # Errors
    /// As for [`RawWindow::flush`].
    ///
    /// Implements: MPI_Win_flush_local.
    pub fn flush_local(&self, target: Rank) -> Result<()> {
        self.run_to(Call::FlushLocal, target, |engine| engine.start_flush_local(self.id, target))
    }

    /// The same for all ranks (MPI_Win_flush_local_all).
    ///
    /// # Errors
    /// As for [`RawWindow::flush`].
    ///
    /// Implements: MPI_Win_flush_local_all.
    pub fn flush_local_all(&self) -> Result<()> {
        self.run(Call::FlushLocalAll, |engine| engine.start_flush_local_all(self.id))
    }

    /// A put or get without its buffer.
    #[inline]
    fn bytes(&self, call: Call, kind: OpKind, target: Rank, disp: u64) -> Operation {
        Operation {
            call,
            kind,
            dtype: Dtype::U8,
            op: ReduceOp::Replace,
            target,
            disp,
            len: 0,
            origin: ptr::null(),
            result: ptr::null_mut(),
            compare: ptr::null(),
        }
    }

    /// An operation of the accumulate family without its buffers.
    #[inline]
    fn elements(
        &self,
        (call, kind): (Call, OpKind),
        count: usize,
        dtype: Dtype,
        target: Rank,
        disp: u64,
        op: ReduceOp,
    ) -> Result<Operation> {
        let Some(len) = count.checked_mul(dtype.size()) else {
            let what = "more elements than memory can hold; use a smaller count";
            return Err(self.fail(RmaError::Argument { call, what, rule: Rule::BuffersFit }));
        };
        Ok(Operation { len, dtype, op, ..self.bytes(call, kind, target, disp) })
    }

    /// # Safety
    /// The operation's buffers are as [`rma_core::engine::Engine::post`] wants them.
    #[inline]
    unsafe fn post_operation(&self, operation: &Operation) -> Result<()> {
        let mut guarded = self.core.enter(operation.call)?;
        // SAFETY: the caller's promise.
        let posted = unsafe { guarded.engine.post(self.id, operation) };
        match posted {
            Poll::Ready(Ok(())) => {
                self.core.posted(&mut guarded);
                Ok(())
            }
            Poll::Ready(Err(error)) => Err(self.fail(error)),
            // SAFETY: the caller's promise.
            Poll::Pending => unsafe { self.post_slow(guarded, operation) },
        }
    }

    /// Makes progress until there is room for the operation.
    ///
    /// # Safety
    /// As for [`RawWindow::post_operation`].
    #[cold]
    #[inline(never)]
    unsafe fn post_slow(&self, guarded: Held<'_, Guarded>, operation: &Operation) -> Result<()> {
        // SAFETY: the caller's promise.
        let mut pending = unsafe { PendingOperation::new(self.id, operation) };
        self.core.wait(guarded, &mut pending, self.core.timeout()).map_err(|error| self.named(error))
    }
}

impl fmt::Debug for RawWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawWindow({}{:?} of {:?}, {} bytes)", self.id, self.name, self.job, self.len)
    }
}
