//! Requests, as something to be awaited.

use std::task::Poll;

use rma_core::engine::{Notification, Operation, Request};
use rma_core::error::{Call, RmaError};
use rma_core::ids::{Rank, WindowId};

use super::wait::Awaited;
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

    fn waiting_for(&self) -> &'static str {
        "room for the operation (elements, or the lock of all ranks)"
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

    fn waiting_for(&self) -> &'static str {
        "room for the operation (elements, or the lock of all ranks)"
    }
}

/// Requests of which all, or any one, are waited for.
#[derive(Debug)]
pub(crate) struct AwaitedRequests<'a> {
    requests: &'a mut [Request],
    any: bool,
    first: Option<usize>,
    error: Option<RmaError>,
}

impl<'a> AwaitedRequests<'a> {
    /// All of them.
    pub(crate) fn all(requests: &'a mut [Request]) -> Self {
        Self { requests, any: false, first: None, error: None }
    }

    /// Any one of those that are not null.
    pub(crate) fn any(requests: &'a mut [Request]) -> Self {
        Self { requests, any: true, first: None, error: None }
    }

    /// The request that was found done, when any one was waited for.
    pub(crate) fn first(&self) -> Option<usize> {
        self.first
    }

    /// The first error of those that are done, once.
    pub(crate) fn error(&mut self) -> Option<RmaError> {
        self.error.take()
    }

    /// Polls them; whether what is waited for is there.
    pub(crate) fn poll_each(&mut self, engine: &mut Engine) -> bool {
        let mut is_all = true;
        for (index, request) in self.requests.iter_mut().enumerate() {
            if request.is_null() {
                continue;
            }
            match engine.poll_request(request) {
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

impl Awaited for AwaitedRequests<'_> {
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
        self.requests.iter().find(|request| !request.is_null()).map(Request::window)
    }

    fn waiting_for(&self) -> &'static str {
        "requests"
    }
}
