//! What a world does with requests.

use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::engine::{Notification, Operation, Request};
use rma_core::error::RmaError;
use rma_core::ids::{Rank, WindowId};
use rma_core::provider::Endpoint;

use crate::world::STEPS_MAX;
use crate::World;

impl<E: Endpoint, B: Bootstrap> World<E, B> {
    /// Repeats an operation with a request until it is accepted.
    pub fn request(
        &mut self,
        rank: u32,
        window: WindowId,
        operation: &Operation,
    ) -> Result<Request, RmaError> {
        for _ in 0..STEPS_MAX {
            let engine = &mut self.engines[rank as usize];
            // SAFETY: bodies keep the buffers of their operations until the call that completes them.
            if let Poll::Ready(done) = unsafe { engine.post_request(window, operation) } {
                return done;
            }
            self.step();
        }
        panic!("hangs: rank {rank} gets no resources for {operation:?}");
    }

    /// Whether a request is done, without progress.
    pub fn is_done(&mut self, rank: u32, request: &mut Request) -> bool {
        match self.engines[rank as usize].poll_request(request) {
            Poll::Ready(result) => {
                result.expect("the request succeeds");
                true
            }
            Poll::Pending => false,
        }
    }

    /// A notified put of bytes that the body keeps.
    pub fn put_notify(
        &mut self,
        rank: u32,
        window: WindowId,
        target: u32,
        disp: u64,
        data: &[u8],
        notification: &Notification,
    ) -> Result<(), RmaError> {
        for _ in 0..STEPS_MAX {
            let engine = &mut self.engines[rank as usize];
            let (target, origin) = (Rank(target), data.as_ptr());
            // SAFETY: bodies keep the buffers of their operations until the call that completes them.
            let done = unsafe { engine.put_notify(window, target, disp, origin, data.len(), notification) };
            if let Poll::Ready(done) = done {
                return done;
            }
            self.step();
        }
        panic!("hangs: rank {rank} gets no resources for a notified put");
    }

    /// Waits for a request.
    pub fn wait_request(&mut self, rank: u32, request: &mut Request) -> Result<(), RmaError> {
        for _ in 0..STEPS_MAX {
            if let Poll::Ready(result) = self.engines[rank as usize].poll_request(request) {
                assert!(request.is_null(), "a request that was reported is null");
                return result;
            }
            self.step();
        }
        panic!("hangs: {request:?} of rank {rank}");
    }
}
