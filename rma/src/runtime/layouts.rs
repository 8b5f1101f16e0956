//! Operations with layouts, as something to be awaited.

use std::task::Poll;

use rma_core::engine::{Operation, Request};
use rma_core::error::{Call, RmaError};
use rma_core::ids::WindowId;
use rma_core::layout::Layouts;

use super::wait::Awaited;
use crate::platform::Engine;

/// An operation with layouts, with or without a request, that is to be posted.
#[derive(Debug)]
pub(crate) struct PendingLayouts<'a> {
    window: WindowId,
    operation: &'a Operation,
    layouts: &'a Layouts,
    wants_request: bool,
    request: Request,
}

impl<'a> PendingLayouts<'a> {
    /// # Safety
    /// The operation's buffers are as [`rma_core::engine::Engine::post_with_layouts`] wants them, from now on.
    pub(crate) unsafe fn new(
        window: WindowId,
        operation: &'a Operation,
        layouts: &'a Layouts,
        wants_request: bool,
    ) -> Self {
        Self { window, operation, layouts, wants_request, request: Request::NULL }
    }

    /// The request, when the operation was posted with one.
    pub(crate) fn into_request(self) -> Request {
        self.request
    }
}

impl Awaited for PendingLayouts<'_> {
    fn poll(&mut self, engine: &mut Engine) -> Poll<Result<(), RmaError>> {
        let Self { window, operation, layouts, .. } = *self;
        if self.wants_request {
            // SAFETY: promised to `new`.
            let posted = unsafe { engine.post_request_with_layouts(window, operation, layouts) };
            return posted.map_ok(|request| self.request = request);
        }
        // SAFETY: promised to `new`.
        unsafe { engine.post_with_layouts(window, operation, layouts) }
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
