//! Requests, as something to be awaited.

use std::task::Poll;

use rma_core::engine::{Notification, Operation, Request};
use rma_core::error::{Call, RmaError};
use rma_core::ids::{Rank, WindowId};

use super::wait::Awaited;
use super::Core;
use crate::platform::Engine;

/// An operation with a request, for which there were no resources.
#[derive(Debug)]
pub(crate) struct PendingRequest<'a> {
    window: WindowId,
    operation: &'a Operation,
    request: Request,
}

impl<'a> PendingRequest<'a> {
    /// # Safety
    /// The operation's buffers are as [`rma_core::engine::Engine::post_request`] wants them, from now on.
    pub(crate) unsafe fn new(window: WindowId, operation: &'a Operation) -> Self {
        Self { window, operation, request: Request::NULL }
    }

    /// The request, when the operation was posted.
    pub(crate) fn into_request(self) -> Request {
        self.request
    }
}

impl Awaited for PendingRequest<'_> {
    fn poll(&mut self, engine: &mut Engine) -> Poll<Result<(), RmaError>> {
        // SAFETY: promised to `new`.
        unsafe { engine.post_request(self.window, self.operation) }.map_ok(|request| self.request = request)
    }

    fn call(&self) -> Call {
        self.operation.call
    }

    fn window(&self) -> Option<WindowId> {
        Some(self.window)
    }

    fn waiting_for(&self, engine: &Engine) -> &'static str {
        engine.operation_waits_for(self.window, self.operation.target)
    }
}

/// A notified put for which there were no resources.
#[derive(Debug)]
pub(crate) struct PendingNotified {
    window: WindowId,
    at: (Rank, u64),
    data: (*const u8, usize),
    notification: Notification,
}

impl PendingNotified {
    /// # Safety
    /// The data are as [`rma_core::engine::Engine::put_notify`] wants them, from now until they are put.
    pub(crate) unsafe fn new(
        window: WindowId,
        at: (Rank, u64),
        data: (*const u8, usize),
        notification: Notification,
    ) -> Self {
        Self { window, at, data, notification }
    }
}

impl Awaited for PendingNotified {
    fn poll(&mut self, engine: &mut Engine) -> Poll<Result<(), RmaError>> {
        let ((target, disp), (origin, len)) = (self.at, self.data);
        // SAFETY: promised to `new`.
        unsafe { engine.put_notify(self.window, target, disp, origin, len, &self.notification) }
    }

    fn call(&self) -> Call {
        Call::PutNotify
    }

    fn window(&self) -> Option<WindowId> {
        Some(self.window)
    }

    fn waiting_for(&self, engine: &Engine) -> &'static str {
        engine.operation_waits_for(self.window, self.at.0)
    }
}

/// What has a request: the raw layer's itself, and the typed layer's with its buffers.
pub(crate) trait HasRequest {
    /// The request.
    fn request(&self) -> &Request;

    /// Whether it is done, as [`rma_core::engine::Engine::poll_request`] has it.
    fn poll(&mut self, engine: &mut Engine) -> Poll<Result<(), RmaError>>;
}

impl HasRequest for Request {
    fn request(&self) -> &Request {
        self
    }

    fn poll(&mut self, engine: &mut Engine) -> Poll<Result<(), RmaError>> {
        engine.poll_request(self)
    }
}

/// Requests of which all, or any one, are waited for.
#[derive(Debug)]
pub(crate) struct AwaitedRequests<'a, R> {
    requests: &'a mut [R],
    any: bool,
    first: Option<usize>,
    error: Option<RmaError>,
}

impl<'a, R: HasRequest> AwaitedRequests<'a, R> {
    /// All of them.
    pub(crate) fn all(requests: &'a mut [R]) -> Self {
        Self { requests, any: false, first: None, error: None }
    }

    /// Any one of those that are not null.
    pub(crate) fn any(requests: &'a mut [R]) -> Self {
        Self { requests, any: true, first: None, error: None }
    }

    /// Polls them; whether what is waited for is there.
    fn poll_each(&mut self, engine: &mut Engine) -> bool {
        let mut is_all = true;
        for (index, held) in self.requests.iter_mut().enumerate() {
            if held.request().is_null() {
                continue;
            }
            match held.poll(engine) {
                Poll::Pending => is_all = false,
                Poll::Ready(result) => {
                    if let Err(error) = result {
                        self.error.get_or_insert(error);
                    }
                    if self.any {
                        self.first = Some(index);
                        return true;
                    }
                }
            }
        }
        is_all
    }
}

impl<R: HasRequest> Awaited for AwaitedRequests<'_, R> {
    fn poll(&mut self, engine: &mut Engine) -> Poll<Result<(), RmaError>> {
        if self.poll_each(engine) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }

    fn call(&self) -> Call {
        Call::Wait
    }

    fn window(&self) -> Option<WindowId> {
        self.requests.iter().map(R::request).find(|request| !request.is_null()).map(Request::window)
    }

    fn waiting_for(&self, _: &Engine) -> &'static str {
        "requests"
    }
}

/// The calls that ask and wait for requests, for both layers.
impl Core {
    /// Makes progress; whether all are done.
    pub(crate) fn test_requests<R: HasRequest>(&self, requests: &mut [R]) -> crate::error::Result<bool> {
        let mut guarded = self.enter(Call::Test)?;
        self.progress(&mut guarded);
        let mut awaited = AwaitedRequests::all(requests);
        let is_done = awaited.poll_each(&mut guarded.engine);
        drop(guarded);
        awaited.error.map_or(Ok(is_done), |error| Err(self.fail(error)))
    }

    /// Makes progress; the index of one that is done, if one is.
    pub(crate) fn test_any_request<R: HasRequest>(
        &self,
        requests: &mut [R],
    ) -> crate::error::Result<Option<usize>> {
        let mut guarded = self.enter(Call::Test)?;
        self.progress(&mut guarded);
        let mut awaited = AwaitedRequests::any(requests);
        awaited.poll_each(&mut guarded.engine);
        drop(guarded);
        match awaited.error {
            Some(error) => Err(self.fail(error)),
            None => Ok(awaited.first),
        }
    }

    /// Waits for all of them; the first error, when all are done.
    pub(crate) fn wait_requests<R: HasRequest>(&self, requests: &mut [R]) -> crate::error::Result<()> {
        self.wait_awaited(AwaitedRequests::all(requests)).map(drop)
    }

    /// Waits for one of them, and returns its index; `None` when all are null.
    pub(crate) fn wait_any_request<R: HasRequest>(
        &self,
        requests: &mut [R],
    ) -> crate::error::Result<Option<usize>> {
        if requests.iter().all(|held| held.request().is_null()) {
            return Ok(None);
        }
        self.wait_awaited(AwaitedRequests::any(requests))
    }

    fn wait_awaited<R: HasRequest>(
        &self,
        mut awaited: AwaitedRequests<'_, R>,
    ) -> crate::error::Result<Option<usize>> {
        let mut guarded = self.enter(Call::Wait)?;
        if awaited.poll_each(&mut guarded.engine) {
            self.posted(&mut guarded);
        } else {
            self.wait(guarded, &mut awaited, self.timeout())?;
        }
        match awaited.error {
            Some(error) => Err(self.fail(error)),
            None => Ok(awaited.first),
        }
    }
}
