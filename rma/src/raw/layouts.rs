//! Operations with layouts at both sides: MPI's calls with derived datatypes.

use std::ptr;
use std::task::Poll;

use rma_core::engine::Operation;
use rma_core::error::{Call, RmaError, Rule};
use rma_core::ids::Rank;
use rma_core::layout::{Layout, Layouts};
use rma_core::op::ReduceOp;
use rma_core::wire::OpKind;

use super::{RawWindow, Request};
use crate::error::Result;
use crate::runtime::{Awaited, PendingLayouts};

/// The three arguments that say which bytes of a buffer an operation has: address, count, layout.
///
/// Of a target the address is the displacement, an argument of its own.
#[derive(Clone, Copy, Debug)]
pub struct Buffer<'a, P> {
    /// Where the first layout is placed. Its data may begin before.
    pub address: P,
    /// How many layouts, one extent apart.
    pub count: usize,
    /// Which bytes.
    pub layout: &'a Layout,
}

impl<'a, P> Buffer<'a, P> {
    /// `count` times `layout` at `address`.
    pub fn new(address: P, count: usize, layout: &'a Layout) -> Self {
        Self { address, count, layout }
    }
}

/// Which bytes of the target's window an operation has.
#[derive(Clone, Copy, Debug)]
pub struct TargetBuffer<'a> {
    /// The rank.
    pub rank: Rank,
    /// Where the first layout is placed, in the target's displacement units. What is accessed must be inside of
    /// the window; the place itself need not be.
    pub disp: u64,
    /// How many layouts, one extent apart.
    pub count: usize,
    /// Which bytes.
    pub layout: &'a Layout,
}

impl RawWindow {
    /// Writes the origin's data to the target's blocks (MPI_Put with any datatypes).
    ///
    /// # Safety
    /// As for [`RawWindow::put`], for the bytes that the origin's layouts name.
    ///
    /// # Errors
    /// As for [`RawWindow::put`], and when both sides do not have the same bytes of data.
    ///
    /// Implements: MPI_Put.
    pub unsafe fn put_layout(&self, origin: Buffer<'_, *const u8>, target: TargetBuffer<'_>) -> Result<()> {
        let (operation, layouts) = self.transfer(Call::Put, Some(origin), None, target)?;
        // SAFETY: the caller's promise.
        unsafe { self.post_layouts(&operation, &layouts, false) }.map(drop)
    }

    /// Reads the target's data to the blocks of `result` (MPI_Get with any datatypes).
    ///
    /// # Safety
    /// As for [`RawWindow::get`], for the bytes that the result's layouts name.
    ///
    /// # Errors
    /// As for [`RawWindow::put_layout`].
    ///
    /// Implements: MPI_Get.
    pub unsafe fn get_layout(&self, result: Buffer<'_, *mut u8>, target: TargetBuffer<'_>) -> Result<()> {
        let (operation, layouts) = self.transfer(Call::Get, None, Some(result), target)?;
        // SAFETY: the caller's promise.
        unsafe { self.post_layouts(&operation, &layouts, false) }.map(drop)
    }

    /// Combines the origin's elements into the target's (MPI_Accumulate with any datatypes). Their type is that
    /// of the target's layout, and the only one in both.
    ///
    /// # Safety
    /// As for [`RawWindow::put_layout`].
    ///
    /// # Errors
    /// As for [`RawWindow::put_layout`], and when the layouts have not one type, or `op` is not defined for it.
    ///
    /// Implements: MPI_Accumulate.
    pub unsafe fn accumulate_layout(
        &self,
        origin: Buffer<'_, *const u8>,
        target: TargetBuffer<'_>,
        op: ReduceOp,
    ) -> Result<()> {
        let (operation, layouts) = self.combine(Call::Accumulate, Some(origin), None, target, op)?;
        // SAFETY: the caller's promise.
        unsafe { self.post_layouts(&operation, &layouts, false) }.map(drop)
    }

    /// The same, and `result` gets the elements as they were before (MPI_Get_accumulate with any datatypes).
    /// With [`ReduceOp::NoOp`] there need be no origin.
    ///
    /// # Safety
    /// As for [`RawWindow::put_layout`] and [`RawWindow::get_layout`].
    ///
    /// # Errors
    /// As for [`RawWindow::accumulate_layout`].
    ///
    /// Implements: MPI_Get_accumulate.
    pub unsafe fn get_accumulate_layout(
        &self,
        origin: Option<Buffer<'_, *const u8>>,
        result: Buffer<'_, *mut u8>,
        target: TargetBuffer<'_>,
        op: ReduceOp,
    ) -> Result<()> {
        let (operation, layouts) = self.combine(Call::GetAccumulate, origin, Some(result), target, op)?;
        // SAFETY: the caller's promise.
        unsafe { self.post_layouts(&operation, &layouts, false) }.map(drop)
    }

    /// [`RawWindow::put_layout`] with a request (MPI_Rput).
    ///
    /// # Safety
    /// As for [`RawWindow::put_layout`]; the origin is also free when the request was reported done.
    ///
    /// # Errors
    /// As for [`RawWindow::put_layout`], and when no lock or lock_all epoch is open.
    ///
    /// Implements: MPI_Rput.
    pub unsafe fn rput_layout(
        &self,
        origin: Buffer<'_, *const u8>,
        target: TargetBuffer<'_>,
    ) -> Result<Request> {
        let (operation, layouts) = self.transfer(Call::RequestPut, Some(origin), None, target)?;
        // SAFETY: the caller's promise.
        unsafe { self.post_layouts(&operation, &layouts, true) }
    }

    /// [`RawWindow::get_layout`] with a request (MPI_Rget).
    ///
    /// # Safety
    /// As for [`RawWindow::get_layout`]; the result is also free when the request was reported done.
    ///
    /// # Errors
    /// As for [`RawWindow::rput_layout`].
    ///
    /// Implements: MPI_Rget.
    pub unsafe fn rget_layout(
        &self,
        result: Buffer<'_, *mut u8>,
        target: TargetBuffer<'_>,
    ) -> Result<Request> {
        let (operation, layouts) = self.transfer(Call::RequestGet, None, Some(result), target)?;
        // SAFETY: the caller's promise.
        unsafe { self.post_layouts(&operation, &layouts, true) }
    }

    /// [`RawWindow::accumulate_layout`] with a request (MPI_Raccumulate).
    ///
    /// # Safety
    /// As for [`RawWindow::rput_layout`].
    ///
    /// # Errors
    /// As for [`RawWindow::accumulate_layout`] and [`RawWindow::rput_layout`].
    ///
    /// Implements: MPI_Raccumulate.
    pub unsafe fn raccumulate_layout(
        &self,
        origin: Buffer<'_, *const u8>,
        target: TargetBuffer<'_>,
        op: ReduceOp,
    ) -> Result<Request> {
        let (operation, layouts) = self.combine(Call::RequestAccumulate, Some(origin), None, target, op)?;
        // SAFETY: the caller's promise.
        unsafe { self.post_layouts(&operation, &layouts, true) }
    }

    /// [`RawWindow::get_accumulate_layout`] with a request (MPI_Rget_accumulate).
    ///
    /// # Safety
    /// As for [`RawWindow::get_accumulate_layout`]; the buffers are also free when the request was reported done.
    ///
    /// # Errors
    /// As for [`RawWindow::accumulate_layout`] and [`RawWindow::rput_layout`].
    ///
    /// Implements: MPI_Rget_accumulate.
    pub unsafe fn rget_accumulate_layout(
        &self,
        origin: Option<Buffer<'_, *const u8>>,
        result: Buffer<'_, *mut u8>,
        target: TargetBuffer<'_>,
        op: ReduceOp,
    ) -> Result<Request> {
        let (operation, layouts) =
            self.combine(Call::RequestGetAccumulate, origin, Some(result), target, op)?;
        // SAFETY: the caller's promise.
        unsafe { self.post_layouts(&operation, &layouts, true) }
    }

    /// A put (with an origin) or get (with a result).
    fn transfer(
        &self,
        call: Call,
        origin: Option<Buffer<'_, *const u8>>,
        result: Option<Buffer<'_, *mut u8>>,
        target: TargetBuffer<'_>,
    ) -> Result<(Operation, Layouts)> {
        let kind = if origin.is_some() { OpKind::Put } else { OpKind::Get };
        let base = self.bytes(call, kind, target.rank, target.disp);
        self.describe(base, origin, result, target)
    }

    /// An operation of the accumulate family.
    fn combine(
        &self,
        call: Call,
        origin: Option<Buffer<'_, *const u8>>,
        result: Option<Buffer<'_, *mut u8>>,
        target: TargetBuffer<'_>,
        op: ReduceOp,
    ) -> Result<(Operation, Layouts)> {
        if origin.is_none() && op != ReduceOp::NoOp {
            let what = "only a reduction that reads, no_op, goes without an origin buffer";
            return Err(self.fail(RmaError::Argument { call, what, rule: Rule::NoOpFetches }));
        }
        let kind = if result.is_some() { OpKind::GetAccumulate } else { OpKind::Accumulate };
        let base = self.bytes(call, kind, target.rank, target.disp);
        // A layout of no type or several has no data, or is refused by the engine.
        let dtype = target.layout.dtype().unwrap_or(base.dtype);
        self.describe(Operation { dtype, op, ..base }, origin, result, target)
    }

    fn describe(
        &self,
        operation: Operation,
        origin: Option<Buffer<'_, *const u8>>,
        result: Option<Buffer<'_, *mut u8>>,
        target: TargetBuffer<'_>,
    ) -> Result<(Operation, Layouts)> {
        let wrong = |rule, what| Err(self.fail(RmaError::Argument { call: operation.call, what, rule }));
        let bytes = |count: usize, layout: &Layout| {
            usize::try_from(layout.size()).ok().and_then(|size| size.checked_mul(count))
        };
        let Some(len) = bytes(target.count, target.layout) else {
            return wrong(Rule::BuffersFit, "more data than memory can hold; use a smaller count");
        };
        let of_origin = origin.map(|buffer| bytes(buffer.count, buffer.layout));
        let of_result = result.map(|buffer| bytes(buffer.count, buffer.layout));
        if [of_origin, of_result].into_iter().flatten().any(|bytes| bytes != Some(len)) {
            return wrong(
                Rule::WholeElements,
                "the buffers and the target do not have the same bytes of data; check counts and layouts",
            );
        }
        let layouts = Layouts {
            origin: origin.map(|buffer| buffer.layout.clone()),
            result: result.map(|buffer| buffer.layout.clone()),
            target: Some(target.layout.clone()),
        };
        let origin = origin.map_or(ptr::null(), |buffer| buffer.address);
        let result = result.map_or(ptr::null_mut(), |buffer| buffer.address);
        Ok((Operation { len, origin, result, ..operation }, layouts))
    }

    /// Posts the operation, when there is room for it.
    ///
    /// # Safety
    /// The operation's buffers are as [`rma_core::engine::Engine::post_with_layouts`] wants them.
    unsafe fn post_layouts(
        &self,
        operation: &Operation,
        layouts: &Layouts,
        wants_request: bool,
    ) -> Result<Request> {
        // SAFETY: the caller's promise.
        let mut pending = unsafe { PendingLayouts::new(self.id, operation, layouts, wants_request) };
        let mut guarded = self.core.enter(operation.call)?;
        match pending.poll(&mut guarded.engine) {
            Poll::Ready(Ok(())) => self.core.posted(&mut guarded),
            Poll::Ready(Err(error)) => return Err(self.fail(error)),
            Poll::Pending => self
                .core
                .wait(guarded, &mut pending, self.core.timeout())
                .map_err(|error| self.named(error))?,
        }
        Ok(pending.into_request())
    }
}
