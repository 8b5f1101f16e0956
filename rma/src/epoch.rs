//! What can be done within an epoch.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use rma_core::error::{Call, RmaError, Rule};
use rma_core::ids::Rank;
use rma_core::op::ReduceOp;

use crate::element::{Element, Integer};
use crate::error::Result;
use crate::operands::Pointers;
use crate::platform::Engine;
use crate::raw::RawWindow;
use crate::window::Window;

/// An open access epoch: the operations to any rank.
///
/// Operations start here and are complete when the epoch's scope has ended; until then their buffers
/// stay borrowed (`'scope`), so that the compiler keeps the program from touching them. Displacements
/// (`disp`) count elements from the beginning of the target's window.
///
/// ```compile_fail
/// # let job = rma::Job::init()?;
/// # let window = job.allocate::<u64>(1)?;
/// let mut seen = [0];
/// window.fence(|epoch| {
///     epoch.get(rma::Rank(0), 0, &mut seen)?;
///     println!("{}", seen[0]); // in flight: does not compile
///     Ok(())
/// })?;
/// # Ok::<(), rma::Error>(())
/// ```
pub struct Epoch<'scope, 'env: 'scope, T: Element> {
    window: &'env Window<T>,
    /// Invariant, as for `std::thread::Scope`: the compiler must neither lengthen nor shorten it.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'scope, 'env, T: Element> Epoch<'scope, 'env, T> {
    pub(crate) fn new(window: &'env Window<T>) -> Self {
        Self { window, scope: PhantomData, env: PhantomData }
    }

    /// Writes `source` to the target.
    ///
    /// # Errors
    /// When the rank does not exist, the range is outside its window, or in a lock epoch the rank is not
    /// locked. What only the target can know is reported by the end of the scope.
    pub fn put(&self, target: Rank, disp: u64, source: &'scope [T]) -> Result<()> {
        let len = size_of_val(source);
        // SAFETY: borrowed for 'scope, at whose end the operation is complete (`Window::scope`). The window
        // is used by one thread at a time, so that nobody else synchronizes it.
        unsafe { self.lend().put(source.as_ptr().cast(), len, target, disp) }
    }

    /// Reads the target's elements to `result`.
    ///
    /// # Errors
    /// As for [`Epoch::put`].
    pub fn get(&self, target: Rank, disp: u64, result: &'scope mut [T]) -> Result<()> {
        let len = size_of_val(result);
        // SAFETY: as in `put`, and borrowed exclusively.
        unsafe { self.lend().get(result.as_mut_ptr().cast(), len, target, disp) }
    }

    /// Combines `source` into the target's elements, each atomically.
    ///
    /// # Errors
    /// As for [`Epoch::put`], and when `op` is not defined for the type.
    pub fn accumulate(&self, target: Rank, disp: u64, source: &'scope [T], op: ReduceOp) -> Result<()> {
        let origin = source.as_ptr().cast();
        // SAFETY: as in `put`.
        unsafe { self.lend().accumulate(origin, source.len(), T::DTYPE, target, disp, op) }
    }

    /// The same, and `result` gets the elements as they were before, each read and changed in one step.
    /// With [`ReduceOp::NoOp`] it is an atomic read. `result` is as long as `source`.
    ///
    /// # Errors
    /// As for [`Epoch::accumulate`], and when the lengths differ.
    pub fn get_accumulate(
        &self,
        target: Rank,
        disp: u64,
        source: &'scope [T],
        result: &'scope mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        if source.len() != result.len() {
            let what = "source and result have different lengths; they must be the same";
            return Err(self.raw().fail(RmaError::Argument {
                call: Call::GetAccumulate,
                what,
                rule: Rule::WholeElements,
            }));
        }
        let (origin, count) = (source.as_ptr().cast(), source.len());
        let result = result.as_mut_ptr().cast();
        // SAFETY: as in `put` and `get`.
        unsafe { self.lend().get_accumulate(origin, result, count, T::DTYPE, target, disp, op) }
    }

    pub(crate) fn raw(&self) -> &'env RawWindow {
        self.window.raw()
    }

    /// The same for an operation on buffers that the program has lent to the scope.
    #[inline]
    pub(crate) fn lend(&self) -> &'env RawWindow {
        self.window.lend();
        self.window.raw()
    }

    /// Operations that are complete at both sides before this returns.
    fn run_batch<'inner, R>(
        &'inner self,
        target: Option<Rank>,
        body: impl for<'batch> FnOnce(&'batch Epoch<'batch, 'inner, T>) -> Result<R>,
    ) -> Result<R> {
        let epoch = Epoch::new(self.window);
        let flush = |engine: &mut Engine, id| match target {
            Some(target) => engine.start_flush(id, target),
            None => engine.start_flush_all(id),
        };
        // What is not flushed in time is the epoch's end to complete.
        self.window.scope(|| body(&epoch), flush, drop)
    }

    /// Posts an operation on the window's own memory for values, completes it, and returns what it has found.
    /// When that takes longer than it may, the memory stays with the job, so that the fabric may come to it later.
    fn complete(
        &self,
        call: Call,
        target: Rank,
        (origin, compare): (T, T),
        post: impl FnOnce(&RawWindow, Pointers) -> Result<()>,
    ) -> Result<T> {
        let (raw, operands) = (self.raw(), self.window.operands());
        post(raw, operands.set(origin, compare)).map_err(|error| error.on_behalf_of(call))?;
        if target == Rank::NULL {
            return Ok(T::default());
        }
        let core = raw.core();
        let flushed = core
            .close(core.timeout(), |engine| engine.start_flush(raw.id(), target), drop)
            .map_err(|error| raw.named(error).on_behalf_of(call));
        if flushed.is_err() && !core.enter_anyway().engine.is_locally_complete(raw.id()) {
            raw.job().keep(Box::new(operands.take()));
        }
        flushed.map(|()| operands.result())
    }

    fn put_now(&self, target: Rank, disp: u64, value: T) -> Result<()> {
        let put = |raw: &RawWindow, at: Pointers| {
            // SAFETY: the values stay until the operation is complete: `complete` sees to it.
            unsafe { raw.put(at.origin, size_of::<T>(), target, disp) }
        };
        self.complete(Call::PutValue, target, (value, value), put).map(drop)
    }

    fn get_now(&self, target: Rank, disp: u64) -> Result<T> {
        let none = T::default();
        self.complete(Call::GetValue, target, (none, none), |raw, at| {
            // SAFETY: as in `put_now`; nobody touches the result before the operation is complete.
            unsafe { raw.get(at.result, size_of::<T>(), target, disp) }
        })
    }

    fn fetch_and_op_now(&self, target: Rank, disp: u64, operand: T, op: ReduceOp) -> Result<T> {
        self.complete(Call::FetchAndOp, target, (operand, operand), |raw, at| {
            // SAFETY: as in `get_now`.
            unsafe { raw.fetch_and_op(at.origin, at.result, T::DTYPE, target, disp, op) }
        })
    }

    fn compare_and_swap_now(&self, target: Rank, disp: u64, compare: T, new: T) -> Result<T> {
        self.complete(Call::CompareAndSwap, target, (new, compare), |raw, at| {
            // SAFETY: as in `get_now`.
            unsafe { raw.compare_and_swap(at.origin, at.compare, at.result, T::DTYPE, target, disp) }
        })
    }
}

/// A lock epoch to one rank: [`Window::lock`]. Its operations name no target.
pub struct LockEpoch<'scope, 'env: 'scope, T: Element> {
    epoch: Epoch<'scope, 'env, T>,
    target: Rank,
}

impl<'scope, 'env, T: Element> LockEpoch<'scope, 'env, T> {
    pub(crate) fn new(epoch: Epoch<'scope, 'env, T>, target: Rank) -> Self {
        Self { epoch, target }
    }

    pub(crate) fn epoch(&self) -> &Epoch<'scope, 'env, T> {
        &self.epoch
    }

    /// The locked rank.
    pub fn target(&self) -> Rank {
        self.target
    }

    /// See [`Epoch::put`].
    ///
    /// # Errors
    /// See [`Epoch::put`].
    pub fn put(&self, disp: u64, source: &'scope [T]) -> Result<()> {
        self.epoch.put(self.target, disp, source)
    }

    /// See [`Epoch::get`].
    ///
    /// # Errors
    /// See [`Epoch::get`].
    pub fn get(&self, disp: u64, result: &'scope mut [T]) -> Result<()> {
        self.epoch.get(self.target, disp, result)
    }

    /// See [`Epoch::accumulate`].
    ///
    /// # Errors
    /// See [`Epoch::accumulate`].
    pub fn accumulate(&self, disp: u64, source: &'scope [T], op: ReduceOp) -> Result<()> {
        self.epoch.accumulate(self.target, disp, source, op)
    }

    /// See [`Epoch::get_accumulate`].
    ///
    /// # Errors
    /// See [`Epoch::get_accumulate`].
    pub fn get_accumulate(
        &self,
        disp: u64,
        source: &'scope [T],
        result: &'scope mut [T],
        op: ReduceOp,
    ) -> Result<()> {
        self.epoch.get_accumulate(self.target, disp, source, result, op)
    }

    /// Completes, at both sides, all operations so far.
    ///
    /// # Errors
    /// When one of them failed.
    pub fn flush(&self) -> Result<()> {
        self.epoch.raw().flush(self.target)
    }

    /// A scope within the epoch: its operations are complete at both sides, and their buffers free,
    /// when it returns. The lock stays.
    ///
    /// # Errors
    /// When an operation failed, or `body` says so.
    pub fn batch<'inner, R>(
        &'inner self,
        body: impl for<'batch> FnOnce(&'batch LockEpoch<'batch, 'inner, T>) -> Result<R>,
    ) -> Result<R> {
        let inner = LockEpoch::new(Epoch::new(self.epoch.window), self.target);
        self.epoch.run_batch(Some(self.target), |_| body(&inner))
    }

    /// Writes one element; complete at both sides when it returns.
    ///
    /// # Errors
    /// See [`Epoch::put`].
    pub fn put_value(&self, disp: u64, value: T) -> Result<()> {
        self.epoch.put_now(self.target, disp, value)
    }

    /// Reads one element.
    ///
    /// # Errors
    /// See [`Epoch::put`].
    pub fn get_value(&self, disp: u64) -> Result<T> {
        self.epoch.get_now(self.target, disp)
    }

    /// Combines `operand` into one element, atomically, and returns what it was before.
    ///
    /// # Errors
    /// See [`Epoch::accumulate`].
    pub fn fetch_and_op(&self, disp: u64, operand: T, op: ReduceOp) -> Result<T> {
        self.epoch.fetch_and_op_now(self.target, disp, operand, op)
    }
}

impl<T: Integer> LockEpoch<'_, '_, T> {
    /// Replaces one element by `new` if it equals `compare`, atomically, and returns what it was before.
    ///
    /// # Errors
    /// See [`Epoch::accumulate`].
    pub fn compare_and_swap(&self, disp: u64, compare: T, new: T) -> Result<T> {
        self.epoch.compare_and_swap_now(self.target, disp, compare, new)
    }
}

/// A lock epoch to all ranks: [`Window::lock_all`]. It has the operations of [`Epoch`], and those that
/// complete at once.
pub struct LockAllEpoch<'scope, 'env: 'scope, T: Element> {
    epoch: Epoch<'scope, 'env, T>,
}

impl<'scope, 'env, T: Element> LockAllEpoch<'scope, 'env, T> {
    pub(crate) fn new(epoch: Epoch<'scope, 'env, T>) -> Self {
        Self { epoch }
    }

    /// Completes, at both sides, all operations to `target` so far.
    ///
    /// # Errors
    /// When one of them failed.
    pub fn flush(&self, target: Rank) -> Result<()> {
        self.epoch.raw().flush(target)
    }

    /// Completes, at both sides, all operations so far.
    ///
    /// # Errors
    /// When one of them failed.
    pub fn flush_all(&self) -> Result<()> {
        self.epoch.raw().flush_all()
    }

    /// A scope within the epoch: its operations are complete at both sides, and their buffers free,
    /// when it returns. The locks stay.
    ///
    /// # Errors
    /// When an operation failed, or `body` says so.
    pub fn batch<'inner, R>(
        &'inner self,
        body: impl for<'batch> FnOnce(&'batch Epoch<'batch, 'inner, T>) -> Result<R>,
    ) -> Result<R> {
        self.epoch.run_batch(None, body)
    }

    /// Writes one element; complete at both sides when it returns.
    ///
    /// # Errors
    /// See [`Epoch::put`].
    pub fn put_value(&self, target: Rank, disp: u64, value: T) -> Result<()> {
        self.epoch.put_now(target, disp, value)
    }

    /// Reads one element.
    ///
    /// # Errors
    /// See [`Epoch::put`].
    pub fn get_value(&self, target: Rank, disp: u64) -> Result<T> {
        self.epoch.get_now(target, disp)
    }

    /// Combines `operand` into one element, atomically, and returns what it was before.
    ///
    /// # Errors
    /// See [`Epoch::accumulate`].
    pub fn fetch_and_op(&self, target: Rank, disp: u64, operand: T, op: ReduceOp) -> Result<T> {
        self.epoch.fetch_and_op_now(target, disp, operand, op)
    }
}

impl<T: Integer> LockAllEpoch<'_, '_, T> {
    /// Replaces one element by `new` if it equals `compare`, atomically, and returns what it was before.
    ///
    /// # Errors
    /// See [`Epoch::accumulate`].
    pub fn compare_and_swap(&self, target: Rank, disp: u64, compare: T, new: T) -> Result<T> {
        self.epoch.compare_and_swap_now(target, disp, compare, new)
    }
}

impl<'scope, 'env, T: Element> Deref for LockAllEpoch<'scope, 'env, T> {
    type Target = Epoch<'scope, 'env, T>;

    fn deref(&self) -> &Self::Target {
        &self.epoch
    }
}

impl<T: Element> fmt::Debug for Epoch<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({:?})", self.window)
    }
}

impl<T: Element> fmt::Debug for LockEpoch<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockEpoch({:?}, target {})", self.epoch.window, self.target)
    }
}

impl<T: Element> fmt::Debug for LockAllEpoch<'_, '_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockAllEpoch({:?})", self.epoch.window)
    }
}
