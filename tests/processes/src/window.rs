//! A window of `u64`, with the raw layer's calls; it keeps the buffers of operations, so that bodies need
//! not, and notes each call for the watchdog.

use std::cell::{RefCell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use rma::raw::{RawWindow, Request};
use rma::{Dtype, Error, FenceAssert, Job, LockType, Rank, ReduceOp};

use crate::watchdog::at;

/// Bytes of an element, and of a displacement.
pub(crate) const WORD: usize = 8;

/// What an operation reads or writes while it is under way. Looked at only by [`Got::values`].
struct Buffer(UnsafeCell<Box<[u64]>>);

/// What an operation has brought, once the call that completes it has returned.
pub(crate) struct Got(Rc<Buffer>);

impl Got {
    /// The elements; only after the operation completed.
    pub(crate) fn values(&self) -> Vec<u64> {
        // SAFETY: the operation has completed, so that nobody writes; there is one thread.
        unsafe { &*self.0 .0.get() }.to_vec()
    }

    /// The first of them.
    pub(crate) fn value(&self) -> u64 {
        self.values()[0]
    }
}

/// A window of elements.
pub(crate) struct Words {
    raw: RawWindow,
    /// Buffers of operations, until the window is freed; what it frees them after is collective and last.
    /// Leaked with a window that was not freed, as operations may still be under way.
    kept: ManuallyDrop<RefCell<Vec<Rc<Buffer>>>>,
}

impl Words {
    /// `count` elements of the library's memory at each rank.
    #[track_caller]
    pub(crate) fn allocate(job: &Job, count: usize) -> Result<Self, Error> {
        at("allocate");
        RawWindow::allocate(job, count * WORD, WORD as u32).map(Self::of)
    }

    /// A window that was made otherwise.
    pub(crate) fn of(raw: RawWindow) -> Self {
        Self { raw, kept: ManuallyDrop::default() }
    }

    /// The raw layer's window.
    pub(crate) fn raw(&self) -> &RawWindow {
        &self.raw
    }

    #[track_caller]
    pub(crate) fn free(self) -> Result<(), Error> {
        at("free");
        let Self { raw, kept } = self;
        raw.free()?;
        drop(ManuallyDrop::into_inner(kept));
        Ok(())
    }

    fn keep(&self, values: &[u64]) -> (Got, *mut u8) {
        let buffer = Rc::new(Buffer(UnsafeCell::new(values.into())));
        // SAFETY: just made; the pointer stays valid as long as the box does, which is not replaced.
        let pointer = unsafe { &mut *buffer.0.get() }.as_mut_ptr().cast();
        self.kept.borrow_mut().push(Rc::clone(&buffer));
        (Got(buffer), pointer)
    }

    #[track_caller]
    pub(crate) fn put(&self, target: u32, index: u64, values: &[u64]) -> Result<(), Error> {
        at("put");
        let (_, origin) = self.keep(values);
        // SAFETY: the buffer is kept until the window is freed.
        unsafe { self.raw.put(origin, values.len() * WORD, Rank(target), index) }
    }

    #[track_caller]
    pub(crate) fn get(&self, target: u32, index: u64, count: usize) -> Result<Got, Error> {
        at("get");
        let (got, result) = self.keep(&vec![u64::MAX; count]);
        // SAFETY: as for `put`.
        unsafe { self.raw.get(result, count * WORD, Rank(target), index) }.map(|()| got)
    }

    #[track_caller]
    pub(crate) fn accumulate(
        &self,
        target: u32,
        index: u64,
        values: &[u64],
        op: ReduceOp,
    ) -> Result<(), Error> {
        at("accumulate");
        let (_, origin) = self.keep(values);
        // SAFETY: as for `put`.
        unsafe { self.raw.accumulate(origin, values.len(), Dtype::U64, Rank(target), index, op) }
    }

    #[track_caller]
    pub(crate) fn get_accumulate(
        &self,
        target: u32,
        index: u64,
        values: &[u64],
        op: ReduceOp,
    ) -> Result<Got, Error> {
        at("get_accumulate");
        let (_, origin) = self.keep(values);
        let (got, result) = self.keep(values);
        let (count, target) = (values.len(), Rank(target));
        // SAFETY: as for `put`, for both buffers.
        unsafe { self.raw.get_accumulate(origin, result, count, Dtype::U64, target, index, op) }.map(|()| got)
    }

    #[track_caller]
    pub(crate) fn fetch_and_op(
        &self,
        target: u32,
        index: u64,
        value: u64,
        op: ReduceOp,
    ) -> Result<Got, Error> {
        at("fetch_and_op");
        let (_, origin) = self.keep(&[value]);
        let (got, result) = self.keep(&[0]);
        // SAFETY: as for `put`, for both buffers.
        unsafe { self.raw.fetch_and_op(origin, result, Dtype::U64, Rank(target), index, op) }.map(|()| got)
    }

    #[track_caller]
    pub(crate) fn compare_and_swap(
        &self,
        target: u32,
        index: u64,
        [expected, new]: [u64; 2],
    ) -> Result<Got, Error> {
        at("compare_and_swap");
        let ((_, origin), (_, compare)) = (self.keep(&[new]), self.keep(&[expected]));
        let (got, result) = self.keep(&[0]);
        let target = Rank(target);
        // SAFETY: as for `put`, for the three buffers.
        unsafe { self.raw.compare_and_swap(origin, compare, result, Dtype::U64, target, index) }.map(|()| got)
    }

    #[track_caller]
    pub(crate) fn rput(&self, target: u32, index: u64, values: &[u64]) -> Result<Request, Error> {
        at("rput");
        let (_, origin) = self.keep(values);
        // SAFETY: as for `put`.
        unsafe { self.raw.rput(origin, values.len() * WORD, Rank(target), index) }
    }

    #[track_caller]
    pub(crate) fn rget(&self, target: u32, index: u64, count: usize) -> Result<(Request, Got), Error> {
        at("rget");
        let (got, result) = self.keep(&vec![u64::MAX; count]);
        // SAFETY: as for `put`.
        unsafe { self.raw.rget(result, count * WORD, Rank(target), index) }.map(|request| (request, got))
    }

    #[track_caller]
    pub(crate) fn fence(&self) -> Result<(), Error> {
        self.fence_with(FenceAssert::default())
    }

    #[track_caller]
    pub(crate) fn fence_with(&self, assert: FenceAssert) -> Result<(), Error> {
        at("fence");
        self.raw.fence(assert)
    }

    #[track_caller]
    pub(crate) fn fence_end(&self) -> Result<(), Error> {
        self.fence_with(FenceAssert { no_succeed: true, ..FenceAssert::default() })
    }

    #[track_caller]
    pub(crate) fn lock(&self, lock_type: LockType, target: u32) -> Result<(), Error> {
        at("lock");
        self.raw.lock(lock_type, Rank(target), false)
    }

    #[track_caller]
    pub(crate) fn unlock(&self, target: u32) -> Result<(), Error> {
        at("unlock");
        self.raw.unlock(Rank(target))
    }

    #[track_caller]
    pub(crate) fn lock_all(&self) -> Result<(), Error> {
        at("lock_all");
        self.raw.lock_all(false)
    }

    #[track_caller]
    pub(crate) fn unlock_all(&self) -> Result<(), Error> {
        at("unlock_all");
        self.raw.unlock_all()
    }

    #[track_caller]
    pub(crate) fn flush(&self, target: u32) -> Result<(), Error> {
        at("flush");
        self.raw.flush(Rank(target))
    }

    /// This rank's own element, as it is in memory now.
    pub(crate) fn own(&self, index: usize) -> u64 {
        assert!(index * WORD < self.raw.len(), "inside of the window");
        // SAFETY: inside of the window's memory.
        let element = unsafe { self.raw.base().cast::<u64>().add(index) };
        // SAFETY: aligned, initialised, and alive as long as the window; others write it atomically or not at all.
        let element = unsafe { AtomicU64::from_ptr(element) };
        element.load(Ordering::Acquire)
    }

    /// Stores to this rank's own element.
    pub(crate) fn store(&self, index: usize, value: u64) {
        assert!(index * WORD < self.raw.len(), "inside of the window");
        // SAFETY: inside of the window's memory.
        let element = unsafe { self.raw.base().cast::<u64>().add(index) };
        // SAFETY: aligned, and alive as long as the window; bodies store only where nobody else accesses.
        let element = unsafe { AtomicU64::from_ptr(element) };
        element.store(value, Ordering::Release);
    }
}

/// A barrier that is noted.
#[track_caller]
pub(crate) fn barrier(job: &Job) -> Result<(), Error> {
    at("barrier");
    job.barrier()
}
