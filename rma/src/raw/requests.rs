//! Operations with a request (MPI-4.1 section 13.3.5), and the calls that wait for requests.

use std::task::Poll;

use rma_core::dtype::Dtype;
use rma_core::engine::Operation;
use rma_core::error::Call;
use rma_core::ids::Rank;
use rma_core::op::ReduceOp;
use rma_core::wire::OpKind;

pub use rma_core::engine::{Change, Notification, Request};

use super::RawWindow;
use crate::error::Result;
use crate::job::Job;
use crate::runtime::{PendingNotified, PendingRequest};

impl RawWindow {
    /// Writes `len` bytes to `target` (MPI_Rput). The request is done when `origin` may be written again;
    /// at the target the bytes are complete with the next flush or unlock. Lock and lock_all epochs only.
    ///
    /// Implements: MPI_Rput.
    ///
    /// # Safety
    /// As for [`RawWindow::put`]; `origin` is also free when the request was reported done.
    ///
    /// # Errors
    /// As for [`RawWindow::put`], and when no lock or lock_all epoch is open.
    pub unsafe fn rput(&self, origin: *const u8, len: usize, target: Rank, disp: u64) -> Result<Request> {
        let operation = Operation { len, origin, ..self.bytes(Call::RequestPut, OpKind::Put, target, disp) };
        // SAFETY: the caller's promise covers the only buffer of a put.
        unsafe { self.request(&operation) }
    }

    /// Reads `len` bytes from `target` (MPI_Rget). The request is done when they are in `result`.
    ///
    /// Implements: MPI_Rget.
    ///
    /// # Safety
    /// As for [`RawWindow::get`]; `result` is also free when the request was reported done.
    ///
    /// # Errors
    /// As for [`RawWindow::rput`].
    pub unsafe fn rget(&self, result: *mut u8, len: usize, target: Rank, disp: u64) -> Result<Request> {
        let operation = Operation { len, result, ..self.bytes(Call::RequestGet, OpKind::Get, target, disp) };
        // SAFETY: the caller's promise covers the only buffer of a get.
        unsafe { self.request(&operation) }
    }

    /// Combines `count` elements into the target's, each atomically (MPI_Raccumulate). The request is done
    /// when `origin` may be written again.
    ///
    /// Implements: MPI_Raccumulate.
    ///
    /// # Safety
    /// As for [`RawWindow::rput`], for `count` elements of `dtype`.
    ///
    /// # Errors
    /// As for [`RawWindow::rput`], and when `op` is not defined for `dtype`.
    pub unsafe fn raccumulate(
        &self,
        origin: *const u8,
        count: usize,
        dtype: Dtype,
        target: Rank,
        disp: u64,
        op: ReduceOp,
    ) -> Result<Request> {
        let kind = (Call::RequestAccumulate, OpKind::Accumulate);
        let operation = Operation { origin, ..self.elements(kind, count, dtype, target, disp, op)? };
        // SAFETY: the caller's promise covers the only buffer of an accumulate.
        unsafe { self.request(&operation) }
    }

    /// The same, and `result` gets the elements as they were before (MPI_Rget_accumulate). The request is done
    /// when they are there.
    ///
    /// Implements: MPI_Rget_accumulate.
    ///
    /// # Safety
    /// As for [`RawWindow::get_accumulate`]; both buffers are also free when the request was reported done.
    ///
    /// # Errors
    /// As for [`RawWindow::raccumulate`].
    #[allow(clippy::too_many_arguments)] // MPI's own
    pub unsafe fn rget_accumulate(
        &self,
        origin: *const u8,
        result: *mut u8,
        count: usize,
        dtype: Dtype,
        target: Rank,
        disp: u64,
        op: ReduceOp,
    ) -> Result<Request> {
        let kind = (Call::RequestGetAccumulate, OpKind::GetAccumulate);
        let operation = Operation { origin, result, ..self.elements(kind, count, dtype, target, disp, op)? };
        // SAFETY: the caller's promise.
        unsafe { self.request(&operation) }
    }

    /// A flush that nobody waits for: the request is done when everything that was posted to `target` before is
    /// complete at both sides. What is posted later does not delay it (of five or more under way to one target
    /// the last are done together).
    ///
    /// Implements: ours: iflush.
    ///
    /// # Errors
    /// As for [`RawWindow::flush`].
    pub fn iflush(&self, target: Rank) -> Result<Request> {
        self.flush_request(Call::RequestFlush, Some(target), false)
    }

    /// The same for all ranks.
    ///
    /// Implements: ours: iflush_all.
    ///
    /// # Errors
    /// As for [`RawWindow::flush`].
    pub fn iflush_all(&self) -> Result<Request> {
        self.flush_request(Call::RequestFlushAll, None, false)
    }

    /// As [`RawWindow::iflush`], at this side only: the buffers may be used again when the request is done.
    ///
    /// Implements: ours: iflush_local.
    ///
    /// # Errors
    /// As for [`RawWindow::flush`].
    pub fn iflush_local(&self, target: Rank) -> Result<Request> {
        self.flush_request(Call::RequestFlushLocal, Some(target), true)
    }

    /// The same for all ranks.
    ///
    /// Implements: ours: iflush_local_all.
    ///
    /// # Errors
    /// As for [`RawWindow::flush`].
    pub fn iflush_local_all(&self) -> Result<Request> {
        self.flush_request(Call::RequestFlushLocalAll, None, true)
    }

    fn flush_request(&self, call: Call, target: Option<Rank>, is_local: bool) -> Result<Request> {
        let mut guarded = self.core.enter(call)?;
        let made = guarded.engine.flush_request(self.id, target, is_local);
        self.core.posted(&mut guarded);
        made.map_err(|error| self.fail(error))
    }

    /// Flushes several ranks with one wait for all of them.
    ///
    /// Implements: ours: flush_targets.
    ///
    /// # Errors
    /// As for [`RawWindow::flush`], of any of them; misuse of one flushes none.
    pub fn flush_targets(&self, targets: &[Rank]) -> Result<()> {
        self.run(Call::FlushTargets, |engine| engine.start_flush_targets(self.id, targets))
    }

    /// Writes `len` bytes to `target`, and then changes a word of its window: who sees the change
    /// ([`RawWindow::wait_notification`]) sees the bytes. Leaves at once, without a round trip; flush or unlock
    /// complete both. In any epoch.
    ///
    /// Implements: ours: put_notify.
    ///
    /// # Safety
    /// As for [`RawWindow::put`].
    ///
    /// # Errors
    /// As for [`RawWindow::put`], and when the word is outside the window or its address at the target is no multiple
    /// of 8 bytes; the call that completes the put says so where this rank does not know the target's window yet.
    pub unsafe fn put_notify(
        &self,
        origin: *const u8,
        len: usize,
        target: Rank,
        disp: u64,
        notification: Notification,
    ) -> Result<()> {
        let mut guarded = self.core.enter(Call::PutNotify)?;
        // SAFETY: the caller's promise.
        match unsafe { guarded.engine.put_notify(self.id, target, disp, origin, len, &notification) } {
            Poll::Ready(Ok(())) => {
                self.core.posted(&mut guarded);
                Ok(())
            }
            Poll::Ready(Err(error)) => Err(self.fail(error)),
            Poll::Pending => {
                // SAFETY: the caller's promise.
                let mut pending =
                    unsafe { PendingNotified::new(self.id, (target, disp), (origin, len), notification) };
                self.core.wait(guarded, &mut pending, self.core.timeout()).map_err(|error| self.named(error))
            }
        }
    }

    /// The notified word of this rank's own window at `disp`, in its displacement units; makes progress. Loads
    /// that follow see what was put before the notifications that it shows.
    ///
    /// Implements: ours: test_notification.
    ///
    /// # Errors
    /// When it is outside the window or not aligned to 8 bytes.
    pub fn test_notification(&self, disp: u64) -> Result<u64> {
        let mut guarded = self.core.enter(Call::TestNotification)?;
        self.core.progress(&mut guarded);
        guarded.engine.notification(self.id, disp).map_err(|error| self.fail(error))
    }

    /// Waits until that word is at least `until`, and returns it.
    ///
    /// Implements: ours: wait_notification.
    ///
    /// # Errors
    /// As for [`RawWindow::test_notification`], and when a process of the job cannot be reached any more.
    pub fn wait_notification(&self, disp: u64, until: u64) -> Result<u64> {
        let call = Call::WaitNotification;
        self.run(call, |engine| engine.start_wait_notification(self.id, disp, until))?;
        let mut guarded = self.core.enter(call)?;
        guarded.engine.notification(self.id, disp).map_err(|error| self.fail(error))
    }

    /// Orders what follows to `target` behind what was posted to it, without waiting: whoever sees a later
    /// operation sees every earlier one. In any epoch.
    ///
    /// Implements: ours: order.
    ///
    /// # Errors
    /// When no epoch to the rank is open.
    pub fn order(&self, target: Rank) -> Result<()> {
        let mut guarded = self.core.enter(Call::Order)?;
        guarded.engine.order(self.id, target).map_err(|error| self.fail(error))
    }

    /// The same for each rank.
    ///
    /// Implements: ours: order_all.
    ///
    /// # Errors
    /// When no epoch is open.
    pub fn order_all(&self) -> Result<()> {
        let mut guarded = self.core.enter(Call::OrderAll)?;
        guarded.engine.order_all(self.id).map_err(|error| self.fail(error))
    }

    /// # Safety
    /// The operation's buffers are as [`rma_core::engine::Engine::post_request`] wants them.
    unsafe fn request(&self, operation: &Operation) -> Result<Request> {
        let mut guarded = self.core.enter(operation.call)?;
        // SAFETY: the caller's promise.
        match unsafe { guarded.engine.post_request(self.id, operation) } {
            Poll::Ready(Ok(request)) => {
                self.core.posted(&mut guarded);
                Ok(request)
            }
            Poll::Ready(Err(error)) => Err(self.fail(error)),
            Poll::Pending => {
                // SAFETY: the caller's promise.
                let mut pending = unsafe { PendingRequest::new(self.id, operation) };
                self.core
                    .wait(guarded, &mut pending, self.core.timeout())
                    .map_err(|error| self.named(error))?;
                Ok(pending.into_request())
            }
        }
    }
}

/// Requests of any windows of the job.
impl Job {
    /// Whether a request is done (MPI_Test); makes progress. A request that was reported done is null, and
    /// done from then on.
    ///
    /// Implements: MPI_Test, ours: test.
    ///
    /// # Errors
    /// When its operation failed and the reason is still known; the epoch's next synchronization call reports
    /// it in any case.
    pub fn test(&self, request: &mut Request) -> Result<bool> {
        self.core().test_requests(std::slice::from_mut(request))
    }

    /// Waits for a request (MPI_Wait). What the library has kept back of its operation leaves.
    ///
    /// Implements: MPI_Wait.
    ///
    /// # Errors
    /// As for [`Job::test`].
    pub fn wait(&self, request: &mut Request) -> Result<()> {
        self.wait_all(std::slice::from_mut(request))
    }

    /// Waits for all of them (MPI_Waitall).
    ///
    /// Implements: MPI_Waitall.
    ///
    /// # Errors
    /// The first error; all requests are done then, too, unless the call took longer than the job's time limit.
    pub fn wait_all(&self, requests: &mut [Request]) -> Result<()> {
        self.core().wait_requests(requests)
    }

    /// Waits for one of them (MPI_Waitany) and returns its index; `None` when all are null already.
    ///
    /// Implements: MPI_Waitany.
    ///
    /// # Errors
    /// As for [`Job::test`]; the failed request is null then, and so it is known by it.
    pub fn wait_any(&self, requests: &mut [Request]) -> Result<Option<usize>> {
        self.core().wait_any_request(requests)
    }

    /// Waits for at least one of them (MPI_Waitsome). Hands the index of each that is done to `each`, and
    /// returns how many there were: 0 only when all were null already.
    ///
    /// Implements: MPI_Waitsome.
    ///
    /// # Errors
    /// The first error of those that are done; the others are handed to `each` all the same.
    pub fn wait_some(&self, requests: &mut [Request], mut each: impl FnMut(usize)) -> Result<usize> {
        let first = self.wait_any(requests);
        match first {
            Ok(None) => return Ok(0),
            Ok(Some(index)) => each(index),
            Err(_) => {}
        }
        let others = self.hand_out(requests, Call::Wait, each);
        first.and(others).map(|count| count + 1)
    }

    /// Hands the index of each that is done to `each` (MPI_Testsome), and returns how many there were: 0 also when
    /// all were null already. Makes progress.
    ///
    /// Implements: MPI_Testsome.
    ///
    /// # Errors
    /// As for [`Job::wait_some`].
    pub fn test_some(&self, requests: &mut [Request], each: impl FnMut(usize)) -> Result<usize> {
        self.progress();
        self.hand_out(requests, Call::Test, each)
    }

    /// The index of one that is done (MPI_Testany), which is null then; `None` when none is, or all were null already.
    /// Makes progress.
    ///
    /// Implements: MPI_Testany.
    ///
    /// # Errors
    /// As for [`Job::wait_any`].
    pub fn test_any(&self, requests: &mut [Request]) -> Result<Option<usize>> {
        self.core().test_any_request(requests)
    }

    /// Hands the index of each that is done to `each`, which may call the library, and counts them.
    fn hand_out(&self, requests: &mut [Request], call: Call, mut each: impl FnMut(usize)) -> Result<usize> {
        let (mut count, mut failed) = (0, None);
        for (index, request) in requests.iter_mut().enumerate() {
            if request.is_null() {
                continue;
            }
            // The guard goes back before `each` is called.
            let polled = self.core().enter(call)?.engine.poll_request(request);
            match polled {
                Poll::Ready(Ok(())) => {
                    count += 1;
                    each(index);
                }
                Poll::Ready(Err(error)) => failed = failed.or(Some(error)),
                Poll::Pending => {}
            }
        }
        failed.map_or(Ok(count), |error| Err(self.core().fail(error)))
    }

    /// Whether all are done (MPI_Testall); makes progress. Those that are done are null then.
    ///
    /// Implements: MPI_Testall.
    ///
    /// # Errors
    /// As for [`Job::test`]; the first error of those that are done.
    pub fn test_all(&self, requests: &mut [Request]) -> Result<bool> {
        self.core().test_requests(requests)
    }
}
