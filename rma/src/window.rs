//! Windows of typed elements, and the scopes in which they are accessed.

use std::cell::Cell;
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

use crate::element::Element;
use crate::epoch::{Epoch, LockAllEpoch, LockEpoch};
use crate::error::Result;
use crate::job::Job;
use crate::local::Local;
use crate::platform::Engine;
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
/// assert_eq!(window.local().to_vec(), [0, 0, 0, 1, 2, 3, 0, 0]);
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
    /// Makes a window of `elements` zeros at this rank; other ranks may have more or fewer, or none.
    /// Collective.
    ///
    /// # Errors
    /// When there is not as much memory, or the fabric cannot register it (the message names the limit).
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
        let Some(len) = elements.checked_mul(size_of::<T>()) else {
            let bytes = usize::MAX;
            return Err(self.core().fail(RmaError::Memory { call: Call::Allocate, bytes }));
        };
        let raw = RawWindow::allocate_with(self, len, T::DTYPE.size() as u32, options)?;
        Ok(Window { raw, memory: None, open: Cell::new(Open::Nothing) })
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
        match unsafe { RawWindow::create_with(self, base, len, T::DTYPE.size() as u32, options) } {
            Ok(raw) => Ok(Window { raw, memory: Some(memory), open: Cell::new(Open::Nothing) }),
            Err(error) => {
                // It may have failed half-way, with the memory already known to others.
                self.keep(Box::new(memory));
                Err(error)
            }
        }
    }
}

impl<T: Element> Window<T> {
    /// Frees the window, and gives back the memory that it was created over (nothing, if it was
    /// allocated). Collective: every rank has completed its epochs by then.
    ///
    /// # Errors
    /// When a rank cannot be reached any more; the memory then stays with the job until its end.
    pub fn free(mut self) -> Result<Vec<T>> {
        self.raw.free_in_place()?;
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
    pub fn fence<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Epoch<'scope, 'env, T>) -> Result<R>,
    ) -> Result<R> {
        let _open = self.open(Call::Fence, Open::Fence)?;
        self.raw.fence(OPEN_FENCE)?;
        let epoch = Epoch::new(self);
        self.scope(|| body(&epoch), |engine, id| engine.start_fence(id, CLOSE_FENCE))
    }

    /// A lock epoch to `target` (MPI-4.1 section 13.5.3): this rank alone enters it, and the target need do nothing.
    /// While it lasts, nobody else holds a lock on the target's window that conflicts with `lock_type`.
    ///
    /// Small operations, the lock and the unlock travel in one packet, so that nothing has happened before
    /// the scope ends: results are there after it. Operations that give back their result at once
    /// ([`LockEpoch::fetch_and_op`]) cost a round trip of their own.
    ///
    /// # Errors
    /// When an epoch of another kind is open or this rank has locked the target already, an operation
    /// failed, or `body` says so.
    pub fn lock<'env, R>(
        &'env self,
        target: Rank,
        lock_type: LockType,
        body: impl for<'scope> FnOnce(&'scope LockEpoch<'scope, 'env, T>) -> Result<R>,
    ) -> Result<R> {
        let _open = self.open(Call::Lock, Open::Locks(1))?;
        self.raw.lock(lock_type, target, false)?;
        let epoch = LockEpoch::new(Epoch::new(self), target);
        self.scope(|| body(&epoch), |engine, id| engine.start_unlock(id, target))
    }

    /// A lock epoch to all ranks at once, shared (MPI-4.1 section 13.5.3). Ranks that are not accessed cost
    /// nothing.
    ///
    /// # Errors
    /// When another epoch is open, an operation failed, or `body` says so.
    pub fn lock_all<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope LockAllEpoch<'scope, 'env, T>) -> Result<R>,
    ) -> Result<R> {
        let _open = self.open(Call::LockAll, Open::Locks(1))?;
        self.raw.lock_all(false)?;
        let epoch = LockAllEpoch::new(Epoch::new(self));
        self.scope(|| body(&epoch), |engine, id| engine.start_unlock_all(id))
    }

    /// The window's number, the same at every rank.
    pub fn id(&self) -> WindowId {
        self.raw.id()
    }

    /// Gives the window a name at this rank, with which errors of its calls begin.
    ///
    /// ```
    /// # let job = rma::Job::init()?;
    /// let window = job.allocate::<u64>(4)?;
    /// window.set_name("temperatures");
    /// let error = window.local().get(4).unwrap_err();
    /// assert!(error.to_string().starts_with("window 'temperatures': "));
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

    /// Notes that a scope is open, as long as the result lives.
    pub(crate) fn open(&self, call: Call, wanted: Open) -> Result<OpenScope<'_>> {
        let before = self.open.get();
        let after = match (before, wanted) {
            (Open::Nothing, wanted) => wanted,
            (Open::Locks(count), Open::Locks(_)) => Open::Locks(count + 1),
            _ => {
                let state = match before {
                    Open::Fence => "inside of a fence scope",
                    Open::Start => "inside of a start scope",
                    Open::Nothing | Open::Locks(_) => "inside of a lock scope",
                };
                let rule = Rule::OtherEpochOpen;
                return Err(self.raw.fail(RmaError::Epoch { call, state, rule }));
            }
        };
        self.open.set(after);
        Ok(OpenScope { open: &self.open, before })
    }

    /// Runs `body`, and closes what it was opened for whatever becomes of it.
    pub(crate) fn scope<R>(
        &self,
        body: impl FnOnce() -> Result<R>,
        close: impl FnOnce(&mut Engine, WindowId) -> std::result::Result<SyncCall, RmaError>,
    ) -> Result<R> {
        let outcome = catch_unwind(AssertUnwindSafe(body));
        let core = self.raw.core();
        let limit = if outcome.is_err() { Some(PANIC_PATIENCE) } else { core.timeout() };
        let closed =
            core.close(limit, |engine| close(engine, self.raw.id())).map_err(|error| self.raw.named(error));
        if let Err(error) = &closed {
            core.settle(self.raw.id(), error);
        }
        match outcome {
            Ok(result) => result.and_then(|value| closed.map(|()| value)),
            Err(panic) => resume_unwind(panic),
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
