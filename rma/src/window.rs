//! Windows of typed elements, and the scopes in which they are accessed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::time::Duration;

use rma_core::engine::{FenceAssert, SyncCall, WindowAttributes};
use rma_core::error::{Call, RmaError, Rule};
use rma_core::ids::{Rank, WindowId};
use rma_core::info::WindowOptions;
use rma_core::lock::LockType;
use rma_core::path::Path;
use rma_core::state::WindowState;

use crate::element::Element;
use crate::epoch::{Epoch, LockAllEpoch, LockEpoch};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::local::Local;
use crate::operands::Operands;
use crate::platform::{say, Engine};
use crate::raw::RawWindow;

/// Opens a fence epoch; nothing can precede it, because every fence scope closes with `CLOSE_FENCE`.
const OPEN_FENCE: FenceAssert =
    FenceAssert { no_precede: true, no_succeed: false, no_store: false, no_put: false };

/// Closes it, and opens no other.
const CLOSE_FENCE: FenceAssert =
    FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

/// How long an epoch may take to close when the program panics in it.
pub(crate) const PANIC_PATIENCE: Duration = Duration::from_secs(10);

/// Memory of every rank that all ranks of the job may access: `T`s that other ranks put to, get from and
/// accumulate into while this rank does something else.
///
/// Every rank of the job makes it together ([`Job::allocate`], [`Job::create`]) and frees it together
/// ([`Window::free`]). It is accessed within epochs, and an epoch is a scope: operations exist only on
/// what the scope hands to its closure, buffers stay borrowed until the scope ends, and when it has
/// ended, also by an error or a panic, all its operations are complete at both sides.
///
/// A scope that cannot be ended within [`crate::Options::timeout`] is an error, and the next call that opens an epoch
/// or frees the window first goes on with its end, for as long.
///
/// ```
/// use rma::{Job, LockType, Rank};
///
/// let job = Job::init()?;
/// let window = job.allocate::<u64>(8)?;
/// let target = Rank((job.rank().0 + 1) % job.size());
/// window.lock(target, LockType::Shared, |epoch| {
///     epoch.put(3, &[1, 2, 3])
/// })?;
/// job.barrier()?;
/// assert_eq!(window.local().to_vec()?, [0, 0, 0, 1, 2, 3, 0, 0]);
/// window.free()?;
/// job.finalize()?;
/// # Ok::<(), rma::Error>(())
/// ```
///
/// A window belongs to one thread at a time; it may move between threads. One that is dropped without
/// `free` stays, with its memory, until the job's end.
pub struct Window<T: Element> {
    raw: RawWindow,
    memory: Option<Memory<T>>,
    open: Cell<Open>,
    /// Scopes that are open, one in the other, also those of batches.
    scopes: Cell<u32>,
    /// The program has lent buffers to operations since the innermost of them was opened, or operations of an outer one have
    /// been posted in one that is over.
    has_lent: Cell<bool>,
    operands: Operands<T>,
    /// Calls that end epochs and have taken too long, for the next call to go on with.
    unclosed: RefCell<Vec<SyncCall>>,
    /// The same of an exposure epoch.
    unwaited: Cell<bool>,
}

/// The scopes that are open on a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Open {
    Nothing,
    Fence,
    Start,
    /// That many lock or lock_all scopes.
    Locks(u32),
}

/// A scope that is open; when it is over, what was open before it is again.
pub(crate) struct OpenScope<'w> {
    open: &'w Cell<Open>,
    before: Open,
}

impl Drop for OpenScope<'_> {
    fn drop(&mut self) {
        self.open.set(self.before);
    }
}

/// A vector that was taken apart, so that nothing claims its elements while others write them.
struct Memory<T> {
    base: *mut T,
    len: usize,
    capacity: usize,
}

// SAFETY: it owns the elements as a vector does.
unsafe impl<T: Send> Send for Memory<T> {}

impl<T> Memory<T> {
    fn new(elements: Vec<T>) -> Self {
        let mut elements = ManuallyDrop::new(elements);
        Self { base: elements.as_mut_ptr(), len: elements.len(), capacity: elements.capacity() }
    }

    fn into_vec(self) -> Vec<T> {
        let parts = ManuallyDrop::new(self);
        // SAFETY: the parts of a vector, put together once because `self` is gone.
        unsafe { Vec::from_raw_parts(parts.base, parts.len, parts.capacity) }
    }
}

impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        // SAFETY: the parts of a vector; `into_vec` does not come here.
        drop(unsafe { Vec::from_raw_parts(self.base, self.len, self.capacity) });
    }
}

impl Job {
    /// Makes a window of `elements` zeros at this rank; other ranks may have more or fewer, or none, of the same type.
    /// Collective. The host gives its pages when they are touched, unless the fabric pins them or a ghost serves
    /// the window: all windows together may have more than the host has free. Over shared memory a window that is alone
    /// larger than that is an error, and `RMA_SHM_RESERVE=1` takes its pages at once (docs/shared-memory.md).
    ///
    /// # Errors
    /// When there is not as much memory (the message says how much was asked for and, over shared memory, how much there is),
    /// or the fabric cannot register it (the message names the limit).
    pub fn allocate<T: Element>(&self, elements: usize) -> Result<Window<T>> {
        self.allocate_with(elements, &WindowOptions::DEFAULT)
    }

    /// [`Job::allocate`] with options.
    ///
    /// ```
    /// # let job = rma::Job::init()?;
    /// let options = rma::WindowOptions { no_locks: true, ..Default::default() };
    /// let window = job.allocate_with::<u32>(4, &options)?;
    /// assert!(window.options()?.no_locks);
    /// window.free()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`Job::allocate`].
    pub fn allocate_with<T: Element>(&self, elements: usize, options: &WindowOptions) -> Result<Window<T>> {
        // More than can be counted is more than there is: an error of all ranks, who are on their way as well.
        let len = elements.saturating_mul(size_of::<T>());
        let raw = RawWindow::allocate_with(self, len, T::DTYPE.size() as u32, options)?;
        Ok(Window::new(raw, None))
    }

    /// Makes a window of what `memory` (a vector or a boxed slice) holds at this rank, which may be
    /// nothing. [`Window::free`] gives it back. Collective.
    ///
    /// # Errors
    /// When the fabric cannot register the memory; it then stays with the job until its end.
    pub fn create<T: Element>(&self, memory: impl Into<Vec<T>>) -> Result<Window<T>> {
        self.create_with(memory, &WindowOptions::DEFAULT)
    }

    /// [`Job::create`] with options.
    ///
    /// # Errors
    /// As for [`Job::create`].
    pub fn create_with<T: Element>(
        &self,
        memory: impl Into<Vec<T>>,
        options: &WindowOptions,
    ) -> Result<Window<T>> {
        let memory = Memory::new(memory.into());
        let (base, len) = (memory.base.cast::<u8>(), memory.len * size_of::<T>());
        // SAFETY: the elements are valid until `Memory` is dropped. The window keeps it until it is freed,
        // and hands it to the job otherwise, which drops it after the engine. Nobody has a reference.
        match unsafe { RawWindow::create_over(self, base, len, T::DTYPE.size() as u32, options) } {
            Ok(raw) => Ok(Window::new(raw, Some(memory))),
            Err(error) => {
                // It may have failed half-way, with the memory already known to others.
                self.keep(Box::new(memory));
                Err(error)
            }
        }
    }
}

impl<T: Element> Window<T> {
    fn new(raw: RawWindow, memory: Option<Memory<T>>) -> Self {
        let (open, scopes, has_lent) = (Cell::new(Open::Nothing), Cell::new(0), Cell::new(false));
        let (operands, unclosed, unwaited) = (Operands::new(), RefCell::default(), Cell::new(false));
        Self { raw, memory, open, scopes, has_lent, operands, unclosed, unwaited }
    }

    /// Frees the window, and gives back the memory that it was created over (nothing, if it was
    /// allocated). Collective: every rank has completed its epochs by then.
    ///
    /// # Errors
    /// When a rank cannot be reached any more, or an epoch that could not be ended within
    /// [`crate::Options::timeout`] still cannot; the memory then stays with the job until its end.
    pub fn free(mut self) -> Result<Vec<T>> {
        let (access, exposure) = (self.resume(), self.resume_exposure());
        let resumed = access.and(exposure);
        if resumed.as_ref().is_err_and(Error::is_stalled) {
            return resumed.map(|()| Vec::new());
        }
        self.raw.free_in_place()?;
        resumed?;
        Ok(self.memory.take().map(Memory::into_vec).unwrap_or_default())
    }

    /// This rank's own elements.
    pub fn local(&self) -> Local<'_, T> {
        Local::new(&self.raw)
    }

    /// A fence epoch (MPI-4.1 section 13.5.1): all ranks enter it, access each other, and leave it together.
    /// When it returns, the operations of all ranks are complete. Collective.
    ///
    /// ```
    /// # let job = rma::Job::init()?;
    /// let window = job.allocate::<f64>(4)?;
    /// let mut seen = [0.0; 2];
    /// window.fence(|epoch| epoch.put(job.rank(), 1, &[2.5, 3.5]))?;
    /// window.fence(|epoch| epoch.get(job.rank(), 1, &mut seen))?;
    /// assert_eq!(seen, [2.5, 3.5]);
    /// window.free()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// When another epoch is open, an operation failed, or `body` says so.
    /// When it takes longer than [`crate::Options::timeout`], which may end the process: see there.
    pub fn fence<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Epoch<'scope, 'env, T>) -> Result<R>,
    ) -> Result<R> {
        let _open = self.open(Call::Fence, None, Open::Fence)?;
        self.raw.fence(OPEN_FENCE)?;
        let epoch = Epoch::new(self);
        self.epoch(|| body(&epoch), |engine, id| engine.start_fence(id, CLOSE_FENCE))
    }

    /// A lock epoch to `target` (MPI-4.1 section 13.5.3): this rank alone enters it, and the target need do nothing.
    /// While it lasts, nobody else holds a lock on the target's window that conflicts with `lock_type`.
    ///
    /// Small operations, the lock and the unlock travel in one packet, so that nothing has happened before
    /// the scope ends: results are there after it. Operations that give back their result at once
    /// ([`LockEpoch::fetch_and_op`]) cost a round trip of their own.
    ///
    /// So the lock of another rank is taken by the scope's first operation, or not before its end; that of this rank's own
    /// window at once. Who opens one such scope inside of another and relies on the order of the locks, so that ranks do not wait
    /// for each other in a circle, gives the outer one an operation first, and waits for it ([`LockEpoch::get_value`]).
    ///
    /// # Errors
    /// When another epoch is open or this rank has locked the target already, an operation
    /// failed, or `body` says so.
    /// When it takes longer than [`crate::Options::timeout`], which may end the process: see there.
    pub fn lock<'env, R>(
        &'env self,
        target: Rank,
        lock_type: LockType,
        body: impl for<'scope> FnOnce(&'scope LockEpoch<'scope, 'env, T>) -> Result<R>,
    ) -> Result<R> {
        let _open = self.open(Call::Lock, Some(target), Open::Locks(1))?;
        self.raw.lock(lock_type, target, false)?;
        let epoch = LockEpoch::new(Epoch::new(self), target);
        self.epoch(|| body(&epoch), |engine, id| engine.start_unlock(id, target))
    }

    /// A lock epoch to all ranks at once, shared (MPI-4.1 section 13.5.3). Ranks that are not accessed cost
    /// nothing.
    ///
    /// # Errors
    /// When another epoch is open, an operation failed, or `body` says so.
    /// When it takes longer than [`crate::Options::timeout`], which may end the process: see there.
    pub fn lock_all<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope LockAllEpoch<'scope, 'env, T>) -> Result<R>,
    ) -> Result<R> {
        let _open = self.open(Call::LockAll, None, Open::Locks(1))?;
        self.raw.lock_all(false)?;
        let epoch = LockAllEpoch::new(Epoch::new(self));
        self.epoch(|| body(&epoch), |engine, id| engine.start_unlock_all(id))
    }

    /// The window's number, the same at every rank.
    pub fn id(&self) -> WindowId {
        self.raw.id()
    }

    /// Gives the window a name at this rank, which errors of its calls have instead of its number.
    ///
    /// ```
    /// # let job = rma::Job::init()?;
    /// let window = job.allocate::<u64>(4)?;
    /// window.set_name("temperatures");
    /// let error = window.local().get(4).unwrap_err();
    /// assert!(error.to_string().starts_with("window 'temperatures' at rank 0: "));
    /// # window.free()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    pub fn set_name(&self, name: &str) {
        self.raw.set_name(name);
    }

    /// The window's name at this rank, empty if it has none.
    pub fn name(&self) -> String {
        self.raw.name()
    }

    /// The job that the window belongs to.
    pub fn job(&self) -> &Job {
        self.raw.job()
    }

    /// Bytes that the library holds for the window besides its memory, whatever the job's size.
    pub fn bytes_held(&self) -> usize {
        self.raw.bytes_held()
    }

    /// How put, get and accumulates travel on this window.
    pub fn paths(&self) -> [Path; 3] {
        self.raw.paths(T::DTYPE)
    }

    /// Whether ghosts serve the window, and not the calls of its ranks (`RMA_PROGRESS=ghost`).
    pub fn is_served(&self) -> bool {
        self.raw.is_served()
    }

    /// The options that are in force.
    ///
    /// # Errors
    /// When the window exists no more.
    pub fn options(&self) -> Result<WindowOptions> {
        self.raw.options()
    }

    /// Base, size, displacement unit, flavor and memory model.
    ///
    /// # Errors
    /// When the window exists no more.
    pub fn attributes(&self) -> Result<WindowAttributes> {
        self.raw.attributes()
    }

    pub(crate) fn raw(&self) -> &RawWindow {
        &self.raw
    }

    /// Memory for values of operations that are complete when they return.
    pub(crate) fn operands(&self) -> &Operands<T> {
        &self.operands
    }

    /// Notes that an operation has buffers of the program's.
    #[inline]
    pub(crate) fn lend(&self) {
        self.has_lent.set(true);
    }

    /// Notes that a scope is open, as long as the result lives. `target`: of a call that names one.
    pub(crate) fn open(&self, call: Call, target: Option<Rank>, wanted: Open) -> Result<OpenScope<'_>> {
        self.resume()?;
        let before = self.open.get();
        let after = match (before, wanted) {
            (Open::Nothing, wanted) => wanted,
            (Open::Locks(count), Open::Locks(_)) => Open::Locks(count + 1),
            _ => {
                let state = self.raw.core().enter_anyway().engine.window_state(self.raw.id());
                let state = state.map_or("Unset", WindowState::name);
                let rule = Rule::OtherEpochOpen;
                return Err(self.raw.fail(RmaError::Epoch { call, target, state, rule }));
            }
        };
        self.open.set(after);
        Ok(OpenScope { open: &self.open, before })
    }

    /// Runs the body of an epoch, and ends the epoch whatever becomes of it. If that takes too long the window's
    /// next call goes on with it.
    pub(crate) fn epoch<R>(
        &self,
        body: impl FnOnce() -> Result<R>,
        close: impl FnOnce(&mut Engine, WindowId) -> std::result::Result<SyncCall, RmaError>,
    ) -> Result<R> {
        self.scope(body, close, |sync| self.unclosed.borrow_mut().push(sync))
    }

    /// Runs `body`, and closes what it was opened for whatever becomes of it. `left` gets the closing call if that
    /// takes too long.
    pub(crate) fn scope<R>(
        &self,
        body: impl FnOnce() -> Result<R>,
        close: impl FnOnce(&mut Engine, WindowId) -> std::result::Result<SyncCall, RmaError>,
        left: impl FnOnce(SyncCall),
    ) -> Result<R> {
        let (outer, lent_outside) = (self.scopes.get(), self.has_lent.replace(false));
        self.scopes.set(outer + 1);
        let outcome = catch_unwind(AssertUnwindSafe(body));
        let core = self.raw.core();
        let limit = if outcome.is_err() { Some(PANIC_PATIENCE) } else { core.timeout() };
        let has_lent = self.has_lent.get();
        let lent = Lent::new(has_lent || lent_outside);
        let closed = core
            .close(limit, |engine| close(engine, self.raw.id()), left)
            .map_err(|error| self.raw.named(error));
        match &closed {
            Err(error) if has_lent => core.settle(self.raw.id(), error),
            _ => {}
        }
        // What was posted in this scope may be of an outer one, which this scope's end has not completed.
        let lent_still = has_lent && outer > 0 && !core.is_locally_complete(self.raw.id());
        lent.give_back();
        self.scopes.set(outer);
        self.has_lent.set(lent_outside || lent_still);
        match outcome {
            Ok(result) => result.and_then(|value| closed.map(|()| value)),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Goes on with calls that have ended scopes and taken too long; what went wrong in their epochs is
    /// reported here.
    #[inline]
    pub(crate) fn resume(&self) -> Result<()> {
        if self.unclosed.borrow().is_empty() {
            return Ok(());
        }
        self.resume_unclosed()
    }

    /// The same with the end of an exposure epoch.
    pub(crate) fn resume_exposure(&self) -> Result<()> {
        if self.unwaited.get() {
            return self.end_exposure(self.raw.wait());
        }
        Ok(())
    }

    /// Notes how the wait for the end of an exposure epoch has ended.
    pub(crate) fn end_exposure(&self, waited: Result<()>) -> Result<()> {
        self.unwaited.set(waited.as_ref().is_err_and(Error::is_stalled));
        waited
    }

    #[cold]
    #[inline(never)]
    fn resume_unclosed(&self) -> Result<()> {
        let mut result = Ok(());
        for mut sync in self.unclosed.take() {
            let ended = self.raw.core().resume(&mut sync).map_err(|error| self.raw.named(error));
            if ended.as_ref().is_err_and(Error::is_stalled) {
                self.unclosed.borrow_mut().push(sync);
            }
            result = result.and(ended);
        }
        result
    }
}

/// Buffers of the program that operations may use until the scope is closed. Who unwinds meanwhile, whyever, would give them
/// back: the process ends instead.
struct Lent {
    any: bool,
}

impl Lent {
    fn new(any: bool) -> Self {
        Self { any }
    }

    /// They are the program's again.
    fn give_back(self) {
        std::mem::forget(self);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.any {
            say(format_args!(
                "a panic while an epoch was closed; its operations may still access the program's buffers, so the process \
                 ends here"
            ));
            std::process::abort();
        }
    }
}

impl<T: Element> Drop for Window<T> {
    fn drop(&mut self) {
        // Not freed: other ranks may go on accessing the memory.
        if let Some(memory) = self.memory.take() {
            self.raw.job().keep(Box::new(memory));
        }
    }
}

impl<T: Element> fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({:?}, {:?})", self.raw, self.local())
    }
}
