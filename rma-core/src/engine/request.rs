//! Operations with a request of their own (MPI-4.1 section 13.3.5), and what requests are complete.
#![allow(unsafe_code)] // posts operations on user buffers, which come as raw pointers

use core::task::Poll;

use super::operation::{Posted, Wanted};
use super::{epoch_error, Engine, Operation};
use crate::bootstrap::Bootstrap;
use crate::error::{Call, RmaError, Rule};
use crate::ids::{Rank, WindowId};
use crate::layout::Layouts;
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::progress::{Failure, Process};
use crate::provider::Endpoint;
use crate::state::TargetLockState;
use crate::table::{OperationElement, OperationState};

/// Something under way that may be waited for by itself: a name, without resources of its own.
///
/// Dropping one is like `MPI_Request_free`: what it names goes on, is completed by the epoch's next
/// synchronization call, and its buffers are in use until then. A request that was reported done is null
/// (`MPI_REQUEST_NULL`), and may be asked again. It outlives its epoch and its window, whose ends complete
/// what it names.
///
/// It is recognized by the generation of its operation element, a number of 28 bits: one that is kept, and
/// not asked, while its element serves 268,435,456 other operations could be taken for a later one's.
///
/// Implements: MPI_Request_free.
#[derive(Debug)]
#[must_use = "a request that is dropped cannot be waited for; its operation goes on"]
pub struct Request {
    /// The engine that knows it.
    engine: u32,
    call: Call,
    window: WindowId,
    target: Rank,
    named: Named,
}

/// What a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Named {
    /// Nothing: it was reported.
    Null,
    /// Something that is complete, which nobody has asked yet.
    Complete,
    /// An operation.
    Operation { element: u32, generation: u32 },
    /// The marks of a flush, up to this one, at the target (at all, if it is null). `detached`: packets of
    /// elements that were given up were under way, which the window counts.
    Flush { ticket: u32, is_local: bool, detached: bool },
}

impl Request {
    /// A request of nothing (`MPI_REQUEST_NULL`), as place in an array.
    pub const NULL: Self = Self {
        engine: 0,
        call: Call::Wait,
        window: WindowId(u32::MAX),
        target: Rank::NULL,
        named: Named::Null,
    };

    /// The call that made it.
    pub fn call(&self) -> Call {
        self.call
    }

    /// The window.
    pub fn window(&self) -> WindowId {
        self.window
    }

    /// The target; null where it names a flush of all ranks.
    pub fn target(&self) -> Rank {
        self.target
    }

    /// Whether it was reported done already, or never named anything.
    pub fn is_null(&self) -> bool {
        self.named == Named::Null
    }
}

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Posts an operation and returns its request: rput, rget, raccumulate, rget_accumulate by
    /// [`Operation::kind`] and [`Operation::call`]. The request is done when the operation is complete at
    /// this rank: the buffers of a put or accumulate may be used again, the data of a get are there. Small
    /// payloads are copied, so that such a request is done at once. Completion at the target is the business
    /// of flush and unlock. `Pending` as for [`Engine::post`].
    ///
    /// Implements: MPI_Rput, MPI_Rget, MPI_Raccumulate, MPI_Rget_accumulate.
    ///
    /// # Safety
    /// As for [`Engine::post`]; the buffers are free when the request is done, also with an error.
    ///
    /// # Errors
    /// As for [`Engine::post`], and when no passive-target epoch is open.
    pub unsafe fn post_request(
        &mut self,
        window: WindowId,
        operation: &Operation,
    ) -> Poll<Result<Request, RmaError>> {
        // SAFETY: the caller's promise.
        unsafe { self.post_request_tracked(window, operation, None) }
    }

    /// The same with layouts, if they are not all contiguous.
    ///
    /// # Safety
    /// As for [`Engine::post_request`].
    pub(super) unsafe fn post_request_tracked(
        &mut self,
        window: WindowId,
        operation: &Operation,
        layouts: Option<&Layouts>,
    ) -> Poll<Result<Request, RmaError>> {
        let call = operation.call;
        let state = match self.window(call, window) {
            Ok(w) => w.state(),
            Err(error) => return Poll::Ready(Err(error)),
        };
        if state.is_access_epoch() && !state.is_passive() {
            return Poll::Ready(Err(epoch_error(
                call,
                Some(operation.target),
                state,
                Rule::RequestOutsidePassive,
            )));
        }
        // SAFETY: the caller's promise.
        let posted = unsafe { self.post_tracked(window, operation, layouts, Wanted::Element) };
        posted.map_ok(|posted| {
            let named = match posted {
                Posted::Element(element, generation) => Named::Operation { element, generation },
                Posted::Complete | Posted::Counted => Named::Complete,
            };
            let request = Request { engine: self.number, call, window, target: operation.target, named };
            match named {
                Named::Operation { element, .. } if self.is_copied(element) => {
                    Request { named: Named::Complete, ..request }
                }
                Named::Operation { element, generation } => {
                    self.note_named(element, generation);
                    request
                }
                _ => request,
            }
        })
    }

    /// Notes that there is a request of an operation, which may have failed already, and its element have been given back.
    fn note_named(&mut self, element: u32, generation: u32) {
        if self.process.operations[element].name() {
            self.process.unreported.add(element, generation);
        }
    }

    /// Whether an operation needs nothing of the user's memory any more.
    fn is_copied(&self, element: u32) -> bool {
        self.process.operations.get(element).is_some_and(|element| !element.refers_to_user_memory())
    }

    /// A flush that nobody waits for: the request is done when everything that was posted to `target` (to all
    /// ranks, if `None`) before this call is complete, at origin and target, or at the origin only with
    /// `is_local`. What is posted later does not delay it, unless five or more such flushes of one target are
    /// under way at one time: the last ones are done together then.
    ///
    /// Implements: ours: iflush, ours: iflush_all, ours: iflush_local, ours: iflush_local_all.
    ///
    /// # Errors
    /// As for [`Engine::start_flush`].
    pub fn flush_request(
        &mut self,
        window: WindowId,
        target: Option<Rank>,
        is_local: bool,
    ) -> Result<Request, RmaError> {
        let call = match (target, is_local) {
            (Some(_), false) => Call::RequestFlush,
            (None, false) => Call::RequestFlushAll,
            (Some(_), true) => Call::RequestFlushLocal,
            (None, true) => Call::RequestFlushLocalAll,
        };
        let found = self.check_flush(call, window, target)?;
        let ticket = self.next_ticket(window);
        let w = self.windows.get_mut(window).ok_or(RmaError::Window { call, window })?;
        // Seed table: FLUSH, MEM_SYNC of direct stores.
        w.mem_sync();
        match (target, found) {
            (Some(_), Some(t)) => self.process.open_mark(w, t, ticket, is_local),
            (Some(_), None) => {}
            (None, _) => {
                let mut t = w.slots.next(&self.process.targets, NONE);
                while let Some(index) = t {
                    self.process.open_mark(w, index, ticket, is_local);
                    t = w.slots.next(&self.process.targets, index);
                }
            }
        }
        let detached = !is_local
            && match target {
                // It has another element by now.
                Some(target) if found.is_some() => w.acks.contains(target),
                _ => !w.acks.is_empty(),
            };
        let named = Named::Flush { ticket, is_local, detached };
        Ok(Request { engine: self.number, call, window, target: target.unwrap_or(Rank::NULL), named })
    }

    fn poll_flush_request(
        &mut self,
        request: &Request,
        ticket: u32,
        is_local: bool,
        detached: bool,
    ) -> Poll<Result<(), RmaError>> {
        let &Request { call, window, target, .. } = request;
        let Some(w) = self.windows.get_mut(window) else { return Poll::Ready(Ok(())) };
        if detached && !w.acks.is_empty() {
            return Poll::Pending;
        }
        let process = &mut self.process;
        let (mut result, mut is_over) = (Ok(()), true);
        let mut t = w.slots.next(&process.targets, NONE);
        while let Some(index) = t {
            t = w.slots.next(&process.targets, index);
            let rank = process.targets[index].rank;
            if target != Rank::NULL && target != rank {
                continue;
            }
            is_over &= process.is_behind_mark(w, index, ticket);
            let te = &process.targets[index];
            if let (Some(error), false) = (te.error, is_local && !te.is_dead()) {
                result = result.and_then(|()| Err(error.report(call, rank)));
            }
        }
        if !is_over {
            return Poll::Pending;
        }
        let late = if target == Rank::NULL { w.late.first() } else { w.late.of(target) };
        if let Some((rank, error)) = late.filter(|_| !is_local) {
            result = result.and_then(|()| Err(error.report(call, rank)));
        }
        Poll::Ready(result)
    }

    /// Whether a request is done; lets what it waits for leave, but makes no progress itself. When it is,
    /// with or without an error, the request is null. An error of its operation is reported here when it is
    /// known, and by the epoch's next synchronization call in any case.
    ///
    /// # Errors
    /// When its operation failed, or the endpoint is broken. When it is another job's: then it stays as it is.
    pub fn poll_request(&mut self, request: &mut Request) -> Poll<Result<(), RmaError>> {
        let result = match request.named {
            Named::Null => return Poll::Ready(Ok(())),
            _ if request.engine != self.number => {
                let what = "the request is of another job; wait for it by the job of its window";
                let rule = Rule::OneJob;
                return Poll::Ready(Err(RmaError::Argument { call: request.call, what, rule }));
            }
            Named::Complete => Poll::Ready(Ok(())),
            Named::Operation { element, generation } => self.poll_operation(request, element, generation),
            Named::Flush { ticket, is_local, detached } => {
                self.poll_flush_request(request, ticket, is_local, detached)
            }
        };
        let is_cut_off = result.is_pending() && self.process.is_cut_off() && self.cut_off(request.window);
        let result = match (&self.process.failure, result) {
            (Some(failure), Poll::Pending) if is_cut_off => Poll::Ready(Err(failure.report(request.call))),
            (Some(failure @ Failure::Endpoint(_)), Poll::Pending) => {
                Poll::Ready(Err(failure.report(request.call)))
            }
            (_, result) => result,
        };
        if result.is_ready() {
            request.named = Named::Null;
            self.process.pass_fence();
        }
        result
    }

    fn poll_operation(
        &mut self,
        request: &Request,
        index: u32,
        generation: u32,
    ) -> Poll<Result<(), RmaError>> {
        if self.operation_state(index, generation) == Some(OperationState::Pending) {
            self.hurry(request.window, index);
        }
        match self.operation_state(index, generation) {
            Some(OperationState::Issued) if Mutation::RequestDoneEarly.is_on() => Poll::Ready(Ok(())),
            Some(OperationState::Pending | OperationState::Issued) => Poll::Pending,
            Some(_) if !self.process.operations[index].failed => Poll::Ready(Ok(())),
            now => match self.has_failed(index, generation) || now.is_some() {
                true => Poll::Ready(Err(self.request_error(request))),
                false => Poll::Ready(Ok(())),
            },
        }
    }

    /// Whether the operation failed that an element served, and perhaps serves no more. Of more failures than are remembered only
    /// the last of each element is known: who asks so late may be told of that one.
    fn has_failed(&mut self, index: u32, generation: u32) -> bool {
        let Process { unreported, operations, .. } = &mut self.process;
        let is_doubted = |element: &OperationElement| element.may_have_failed(generation);
        unreported.take(index, generation)
            || unreported.has_forgotten() && operations.get(index).is_some_and(is_doubted)
    }

    /// The state of an element's use; `None` when the element serves another by now.
    fn operation_state(&self, index: u32, generation: u32) -> Option<OperationState> {
        let element = self.process.operations.get(index)?;
        (element.generation == generation).then_some(element.state)
    }

    /// Somebody waits for a pending operation: it, and what is before it, must not be kept back.
    fn hurry(&mut self, window: WindowId, index: u32) {
        let Some(w) = self.windows.get_mut(window) else { return };
        let t = self.process.operations[index].target;
        let te = &mut self.process.targets[t];
        te.hurried = true;
        te.lock_wanted |= te.lock == TargetLockState::Called;
        w.dirty = true;
        self.process.make_rma_progress_target(w, t);
    }

    /// Why an operation failed, as far as it is still known; it stays for the next synchronization call.
    #[cold]
    #[inline(never)]
    fn request_error(&mut self, request: &Request) -> RmaError {
        let &Request { call, window, target, .. } = request;
        let unknown = RmaError::Reported { call, target };
        let Some(w) = self.windows.get_mut(window) else { return unknown };
        let of_element = w.find(&self.process.targets, target).and_then(|t| self.process.targets[t].error);
        let known = of_element.map(|error| (target, error)).or_else(|| w.late.of(target));
        known.map_or(unknown, |(rank, error)| error.report(call, rank))
    }
}
