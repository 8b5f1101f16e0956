//! Operations that are waited for one by one: requests with types.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;
use std::slice;
use std::task::Poll;

use rma_core::error::{Call, RmaError, Rule};
use rma_core::ids::Rank;
use rma_core::op::ReduceOp;

use crate::element::Element;
use crate::epoch::{Epoch, LockAllEpoch, LockEpoch};
use crate::error::Result;
use crate::platform::Engine;
use crate::raw::{RawWindow, Request as RawRequest};
use crate::runtime::HasRequest;

/// An operation of a lock or lock_all scope that can be waited for by itself (MPI-4.1 section 13.3.5), before
/// the scope's end. It has the operation's buffers, and [`Request::wait`] gives them back.
///
/// ```
/// use rma::{Job, Rank, Request};
///
/// let job = Job::init()?;
/// let window = job.allocate::<u64>(8)?;
/// let (mut first, mut second) = ([0; 4], [0; 4]);
/// window.lock_all(|epoch| {
///     epoch.put_value(Rank(0), 5, 7)?;
///     let mut requests = [epoch.rget(Rank(0), 0, &mut first)?, epoch.rget(Rank(0), 4, &mut second)?];
///     // Something else could be done meanwhile.
///     Request::wait_all(&mut requests)?;
///     let [_, second] = requests;
///     assert_eq!(second.wait()?, [0, 7, 0, 0]);
///     Ok(())
/// })?;
/// window.free()?;
/// job.finalize()?;
/// # Ok::<(), rma::Error>(())
/// ```
///
/// Done means what it means in MPI: the buffers are free, and the data of a get are there. What was put or
/// accumulated is complete at the target after a flush, an [`LockAllEpoch::iflush`], or the end of the scope.
///
/// A request that is dropped, or even forgotten, leaves its buffers borrowed until the scope ends, which completes
/// its operation.
///
/// ```compile_fail
/// # let job = rma::Job::init()?;
/// # let window = job.allocate::<u64>(1)?;
/// let mut seen = [0];
/// window.lock_all(|epoch| {
///     let request = epoch.rget(rma::Rank(0), 0, &mut seen)?;
///     println!("{}", seen[0]); // the request has it: does not compile
///     request.wait().map(drop)
/// })?;
/// # Ok::<(), rma::Error>(())
/// ```
#[must_use = "a request that is dropped cannot be waited for; its buffers are borrowed until the scope ends"]
pub struct Request<'scope, B> {
    raw: RawRequest,
    window: &'scope RawWindow,
    /// Not used before the operation is done, and without a claim on what they refer to, as the fabric accesses it
    /// meanwhile.
    buffers: MaybeUninit<B>,
    /// It is done because it failed, which was reported.
    has_failed: bool,
}

impl<'scope, B> Request<'scope, B> {
    /// `buffers` are there; the operation's pointers come from them where they are, because a reference that moves
    /// claims what it refers to.
    fn new(raw: RawRequest, window: &'scope RawWindow, buffers: MaybeUninit<B>) -> Self {
        Self { raw, window, buffers, has_failed: false }
    }

    /// Waits until the operation is done, and gives its buffers back. What the library has kept back of it leaves.
    ///
    /// # Errors
    /// When the operation failed; the buffers stay borrowed until the scope ends, which reports it too.
    pub fn wait(mut self) -> Result<B> {
        Self::wait_all(slice::from_mut(&mut self))?;
        if self.has_failed {
            let (call, target) = (Call::Wait, self.raw.target());
            return Err(self.window.fail(RmaError::Reported { call, target }));
        }
        // SAFETY: they are there from the beginning, and nobody takes them but this call, which consumes the request.
        Ok(unsafe { self.buffers.assume_init() })
    }

    /// Whether the operation is done; makes progress. When it is, [`Request::wait`] gives the buffers back at once.
    ///
    /// # Errors
    /// When the operation failed.
    pub fn test(&mut self) -> Result<bool> {
        Self::test_all(slice::from_mut(self))
    }

    /// Waits until all of them are done.
    ///
    /// # Errors
    /// The first error of an operation; all are done then, too, unless the call took longer than the job's time limit.
    pub fn wait_all(requests: &mut [Self]) -> Result<()> {
        match Self::first_window(requests)? {
            Some(window) => window.core().wait_requests(requests).map_err(|error| window.named(error)),
            None => Ok(()),
        }
    }

    /// Waits until one of them is done, and returns its index; `None` when all were known to be done before.
    ///
    /// ```
    /// # use rma::{Rank, Request};
    /// # let job = rma::Job::init()?;
    /// let window = job.allocate::<u64>(64)?;
    /// let mut blocks = [[0; 32]; 2];
    /// window.lock_all(|epoch| {
    ///     let [first, second] = &mut blocks;
    ///     let mut requests = [epoch.rget(Rank(0), 0, first)?, epoch.rget(Rank(0), 32, second)?];
    ///     while let Some(index) = Request::wait_any(&mut requests)? {
    ///         println!("block {index} is there");
    ///     }
    ///     Ok(())
    /// })?;
    /// # window.free()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the operation that is done failed.
    pub fn wait_any(requests: &mut [Self]) -> Result<Option<usize>> {
        match Self::first_window(requests)? {
            Some(window) => window.core().wait_any_request(requests).map_err(|error| window.named(error)),
            None => Ok(None),
        }
    }

    /// The window of the first of them; all are of one job, since another one's would not know them.
    fn first_window(requests: &[Self]) -> Result<Option<&'scope RawWindow>> {
        let Some(window) = requests.first().map(|first| first.window) else { return Ok(None) };
        if requests.iter().all(|request| ptr::eq(request.window.core(), window.core())) {
            return Ok(Some(window));
        }
        let (call, what) = (Call::Wait, "the requests are of different jobs; wait for those of each alone");
        Err(window.fail(RmaError::Argument { call, what, rule: Rule::OneJob }))
    }

    /// Whether all of them are done; makes progress.
    ///
    /// # Errors
    /// The first error of those that are done.
    pub fn test_all(requests: &mut [Self]) -> Result<bool> {
        match Self::first_window(requests)? {
            Some(window) => window.core().test_requests(requests).map_err(|error| window.named(error)),
            None => Ok(true),
        }
    }
}

impl<B> HasRequest for Request<'_, B> {
    fn request(&self) -> &RawRequest {
        &self.raw
    }

    fn poll(&mut self, engine: &mut Engine) -> Poll<std::result::Result<(), RmaError>> {
        let polled = engine.poll_request(&mut self.raw);
        self.has_failed |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }
}

impl<B> fmt::Debug for Request<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({:?})", self.raw)
    }
}

/// What an operation with a request reads: a slice, an array or a vector, by `&` or by `&mut`. The latter may be
/// written again when [`Request::wait`] has given it back. Cannot be implemented outside of this crate.
pub trait Source<'scope, T: Element>: sealed::Slice<T> {}

mod sealed {
    /// A reference to elements that do not move while it is borrowed.
    pub trait Slice<T> {
        /// The elements.
        fn elements(&self) -> &[T];
    }
}

macro_rules! source {
    ($([$($generic:tt)*] $container:ty;)+) => {$(
        impl<'scope, T: Element, $($generic)*> Source<'scope, T> for &'scope $container {}
        impl<'scope, T: Element, $($generic)*> Source<'scope, T> for &'scope mut $container {}

        impl<T: Element, $($generic)*> sealed::Slice<T> for &$container {
            fn elements(&self) -> &[T] {
                &self[..]
            }
        }

        impl<T: Element, $($generic)*> sealed::Slice<T> for &mut $container {
            fn elements(&self) -> &[T] {
                &self[..]
            }
        }
    )+};
}

source! {
    [] [T];
    [const N: usize] [T; N];
    [] Vec<T>;
}

/// The operations of both kinds of lock epochs.
impl<'scope, T: Element> Epoch<'scope, '_, T> {
    fn request_put<S: Source<'scope, T>>(
        &self,
        target: Rank,
        disp: u64,
        source: S,
    ) -> Result<Request<'scope, S>> {
        let mut buffers = MaybeUninit::uninit();
        let elements = buffers.write(source).elements();
        let (origin, len) = (elements.as_ptr().cast(), size_of_val(elements));
        // SAFETY: borrowed for 'scope, at whose end the operation is complete (see `Epoch::put`); the request gives
        // it back before only if it is done.
        let raw = unsafe { self.lend().rput(origin, len, target, disp) }?;
        Ok(Request::new(raw, self.raw(), buffers))
    }

    fn request_get(
        &self,
        target: Rank,
        disp: u64,
        result: &'scope mut [T],
    ) -> Result<Request<'scope, &'scope mut [T]>> {
        let mut buffers = MaybeUninit::uninit();
        let result: &mut &'scope mut [T] = buffers.write(result);
        let (len, result) = (size_of_val(&**result), result.as_mut_ptr().cast());
        // SAFETY: as in `request_put`, and borrowed exclusively.
        let raw = unsafe { self.lend().rget(result, len, target, disp) }?;
        Ok(Request::new(raw, self.raw(), buffers))
    }

    fn request_accumulate<S: Source<'scope, T>>(
        &self,
        target: Rank,
        disp: u64,
        source: S,
        op: ReduceOp,
    ) -> Result<Request<'scope, S>> {
        let mut buffers = MaybeUninit::uninit();
        let elements = buffers.write(source).elements();
        let (origin, count) = (elements.as_ptr().cast(), elements.len());
        // SAFETY: as in `request_put`.
        let raw = unsafe { self.lend().raccumulate(origin, count, T::DTYPE, target, disp, op) }?;
        Ok(Request::new(raw, self.raw(), buffers))
    }

    fn request_get_accumulate<S: Source<'scope, T>>(
        &self,
        target: Rank,
        disp: u64,
        source: S,
        result: &'scope mut [T],
        op: ReduceOp,
    ) -> Result<Request<'scope, (S, &'scope mut [T])>> {
        let mut buffers = MaybeUninit::uninit();
        let (source, result): &mut (S, &'scope mut [T]) = buffers.write((source, result));
        let elements = source.elements();
        if elements.len() != result.len() {
            let call = Call::RequestGetAccumulate;
            let what = "source and result have different lengths; they must be the same";
            return Err(self.raw().fail(RmaError::Argument { call, what, rule: Rule::WholeElements }));
        }
        let (origin, count) = (elements.as_ptr().cast(), elements.len());
        let result = result.as_mut_ptr().cast();
        // SAFETY: as in `request_put` and `request_get`.
        let raw = unsafe { self.lend().rget_accumulate(origin, result, count, T::DTYPE, target, disp, op) }?;
        Ok(Request::new(raw, self.raw(), buffers))
    }
}

/// Operations with requests.
impl<'scope, T: Element> LockEpoch<'scope, '_, T> {
    /// See [`LockAllEpoch::rput`].
    ///
    /// # Errors
    /// See [`Epoch::put`].
    pub fn rput<S: Source<'scope, T>>(&self, disp: u64, source: S) -> Result<Request<'scope, S>> {
        self.epoch().request_put(self.target(), disp, source)
    }

    /// See [`LockAllEpoch::rget`].
    ///
    /// # Errors
    /// See [`Epoch::put`].
    pub fn rget(&self, disp: u64, result: &'scope mut [T]) -> Result<Request<'scope, &'scope mut [T]>> {
        self.epoch().request_get(self.target(), disp, result)
    }

    /// See [`LockAllEpoch::raccumulate`].
    ///
    /// # Errors
    /// See [`Epoch::accumulate`].
    pub fn raccumulate<S: Source<'scope, T>>(
        &self,
        disp: u64,
        source: S,
        op: ReduceOp,
    ) -> Result<Request<'scope, S>> {
        self.epoch().request_accumulate(self.target(), disp, source, op)
    }

    /// See [`LockAllEpoch::rget_accumulate`].
    ///
    /// # Errors
    /// See [`Epoch::get_accumulate`].
    pub fn rget_accumulate<S: Source<'scope, T>>(
        &self,
        disp: u64,
        source: S,
        result: &'scope mut [T],
        op: ReduceOp,
    ) -> Result<Request<'scope, (S, &'scope mut [T])>> {
        self.epoch().request_get_accumulate(self.target(), disp, source, result, op)
    }

    /// See [`LockAllEpoch::iflush`].
    ///
    /// # Errors
    /// See [`LockEpoch::flush`].
    pub fn iflush(&self) -> Result<Request<'scope, ()>> {
        let window = self.epoch().raw();
        Ok(Request::new(window.iflush(self.target())?, window, MaybeUninit::new(())))
    }
}

/// Operations with requests.
impl<'scope, T: Element> LockAllEpoch<'scope, '_, T> {
    /// Writes `source` to the target. The request is done when `source` was read (MPI_Rput).
    ///
    /// ```
    /// # use rma::Rank;
    /// # let job = rma::Job::init()?;
    /// let window = job.allocate::<u64>(300)?;
    /// let mut block = [1; 100];
    /// window.lock_all(|epoch| {
    ///     // `&mut`, so that it can be written again when it was sent.
    ///     let block = epoch.rput(Rank(0), 0, &mut block)?.wait()?;
    ///     block.fill(2);
    ///     epoch.put(Rank(0), 100, block)
    /// })?;
    /// assert_eq!(window.local().get(99)?, 1);
    /// assert_eq!(window.local().get(100)?, 2);
    /// # window.free()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Epoch::put`].
    pub fn rput<S: Source<'scope, T>>(
        &self,
        target: Rank,
        disp: u64,
        source: S,
    ) -> Result<Request<'scope, S>> {
        self.request_put(target, disp, source)
    }

    /// Reads the target's elements to `result`, which are there when the request is done (MPI_Rget).
    ///
    /// # Errors
    /// See [`Epoch::put`].
    pub fn rget(
        &self,
        target: Rank,
        disp: u64,
        result: &'scope mut [T],
    ) -> Result<Request<'scope, &'scope mut [T]>> {
        self.request_get(target, disp, result)
    }

    /// Combines `source` into the target's elements, each atomically. The request is done when `source` was
    /// read (MPI_Raccumulate).
    ///
    /// # Errors
    /// See [`Epoch::accumulate`].
    pub fn raccumulate<S: Source<'scope, T>>(
        &self,
        target: Rank,
        disp: u64,
        source: S,
        op: ReduceOp,
    ) -> Result<Request<'scope, S>> {
        self.request_accumulate(target, disp, source, op)
    }

    /// The same, and `result` has the elements as they were before when the request is done
    /// (MPI_Rget_accumulate).
    ///
    /// ```
    /// # use rma::{Rank, ReduceOp};
    /// # let job = rma::Job::init()?;
    /// let window = job.allocate::<i64>(2)?;
    /// let mut before = [0; 2];
    /// window.lock_all(|epoch| {
    ///     epoch.raccumulate(Rank(0), 0, &[5, 6], ReduceOp::Sum)?.wait()?;
    ///     let request = epoch.rget_accumulate(Rank(0), 0, &[7, 4], &mut before, ReduceOp::Max)?;
    ///     let (_, before) = request.wait()?;
    ///     assert_eq!(before, [5, 6]);
    ///     Ok(())
    /// })?;
    /// assert_eq!(window.local().to_vec()?, [7, 6]);
    /// # window.free()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`Epoch::get_accumulate`].
    pub fn rget_accumulate<S: Source<'scope, T>>(
        &self,
        target: Rank,
        disp: u64,
        source: S,
        result: &'scope mut [T],
        op: ReduceOp,
    ) -> Result<Request<'scope, (S, &'scope mut [T])>> {
        self.request_get_accumulate(target, disp, source, result, op)
    }

    /// A flush that nobody waits for: the request is done when all operations to `target` so far are complete
    /// at both sides. Later ones do not delay it.
    ///
    /// ```
    /// # use rma::Rank;
    /// # let job = rma::Job::init()?;
    /// let window = job.allocate::<u64>(4)?;
    /// window.lock_all(|epoch| {
    ///     epoch.put(Rank(0), 0, &[1, 2])?;
    ///     let flushed = epoch.iflush(Rank(0))?;
    ///     epoch.put(Rank(0), 2, &[3, 4])?;
    ///     flushed.wait() // the first two are there
    /// })?;
    /// # window.free()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// See [`LockAllEpoch::flush`].
    pub fn iflush(&self, target: Rank) -> Result<Request<'scope, ()>> {
        Ok(Request::new(self.raw().iflush(target)?, self.raw(), MaybeUninit::new(())))
    }

    /// The same for all ranks.
    ///
    /// # Errors
    /// See [`LockAllEpoch::flush`].
    pub fn iflush_all(&self) -> Result<Request<'scope, ()>> {
        Ok(Request::new(self.raw().iflush_all()?, self.raw(), MaybeUninit::new(())))
    }

    /// Completes, at both sides, all operations so far to each of `targets`, with one wait for all.
    ///
    /// ```
    /// # let job = rma::Job::init()?;
    /// # let window = job.allocate::<u64>(4)?;
    /// let neighbours = [rma::Rank(0), rma::Rank(job.size() - 1)];
    /// window.lock_all(|epoch| {
    ///     for target in neighbours {
    ///         epoch.put(target, 0, &[1, 2])?;
    ///     }
    ///     epoch.flush_targets(&neighbours)
    /// })?;
    /// # window.free()?;
    /// # Ok::<(), rma::Error>(())
    /// ```
    ///
    /// # Errors
    /// When an operation to one of them failed.
    pub fn flush_targets(&self, targets: &[Rank]) -> Result<()> {
        self.raw().flush_targets(targets)
    }
}
