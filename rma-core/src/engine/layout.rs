//! Operations whose data are not in a row, at the origin, at the target or at both (MPI-4.1 section 13.3, with
//! any datatypes).
#![allow(unsafe_code)] // user buffers come as raw pointers

use core::task::Poll;

use super::operation::{outside, Wanted};
use super::own::apply;
use super::{Engine, Operation, Request};
use crate::bootstrap::Bootstrap;
use crate::error::{RmaError, Rule};
use crate::ids::WindowId;
use crate::layout::{block_at, Layout, Layouts};
use crate::provider::Endpoint;
use crate::window::Window;
use crate::wire::{Metadata, OpKind};

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Posts an operation with layouts. [`Operation::len`] is the bytes of data, a whole number of every
    /// layout that is given; which bytes of origin, result and target those are, the layouts say, from the
    /// buffers' pointers and the displacement on. A displacement within a layout may be negative if what is
    /// accessed is inside of the window. Layouts are referred to, not copied: nothing is allocated.
    ///
    /// Blocks of the target's layout must not overlap unless the operation only reads. Of an operation on the
    /// own window the pieces are moved one after the other, so that buffers that overlap the window are as
    /// undefined here as MPI leaves them.
    ///
    /// Implements: MPI_Put, MPI_Get, MPI_Accumulate, MPI_Get_accumulate.
    ///
    /// # Safety
    /// As for [`Engine::post`]; a buffer with a layout is valid where its layout has data.
    ///
    /// # Errors
    /// As for [`Engine::post`], and when the length is no whole number of the layouts, or an accumulate's
    /// layout is not made of the operation's type alone.
    pub unsafe fn post_with_layouts(
        &mut self,
        window: WindowId,
        operation: &Operation,
        layouts: &Layouts,
    ) -> Poll<Result<(), RmaError>> {
        if let Err(error) = check_layouts(operation, layouts) {
            return Poll::Ready(Err(error));
        }
        let mut needed = layouts.clone();
        needed.drop_contiguous();
        let needed = (!needed.is_none()).then_some(&needed);
        // SAFETY: the caller's promise.
        unsafe { self.post_tracked(window, operation, needed, Wanted::Nothing) }.map_ok(|_| ())
    }

    /// [`Engine::post_request`] with layouts.
    ///
    /// # Safety
    /// As for [`Engine::post_with_layouts`] and [`Engine::post_request`].
    ///
    /// # Errors
    /// As for [`Engine::post_with_layouts`] and [`Engine::post_request`].
    pub unsafe fn post_request_with_layouts(
        &mut self,
        window: WindowId,
        operation: &Operation,
        layouts: &Layouts,
    ) -> Poll<Result<Request, RmaError>> {
        if let Err(error) = check_layouts(operation, layouts) {
            return Poll::Ready(Err(error));
        }
        let mut needed = layouts.clone();
        needed.drop_contiguous();
        let needed = (!needed.is_none()).then_some(&needed);
        // SAFETY: the caller's promise.
        unsafe { self.post_request_tracked(window, operation, needed) }
    }
}

/// Whether the layouts fit the operation.
fn check_layouts(operation: &Operation, layouts: &Layouts) -> Result<(), RmaError> {
    let &Operation { call, kind, dtype, len, .. } = operation;
    let wrong = |rule, what| Err(RmaError::Argument { call, what, rule });
    let is_transfer = matches!(kind, OpKind::Put | OpKind::Get);
    if kind == OpKind::CompareAndSwap && !layouts.is_none() {
        return wrong(Rule::OneElement, "compare_and_swap takes one element, without layouts");
    }
    for layout in layouts.all() {
        if layout.size() == 0 && len > 0 || layout.size() > 0 && len as u64 % layout.size() != 0 {
            return wrong(
                Rule::WholeElements,
                "the length is not a whole number of layouts; origin, result and target need the same bytes of data",
            );
        }
        if len > 0 && !is_transfer && layout.dtype() != Some(dtype) {
            return wrong(
                Rule::OneType,
                "an accumulate wants layouts made of one predefined type, the same as its own",
            );
        }
        if layout.span_of(len as u64).is_none() {
            return wrong(
                Rule::LayoutFits,
                "the layouts reach further than memory does; use a smaller count",
            );
        }
    }
    Ok(())
}

/// Whether the target's data are inside of the window.
#[cold]
#[inline(never)]
pub(super) fn check_span(
    operation: &Operation,
    layout: &Layout,
    metadata: &Metadata,
) -> Result<(), RmaError> {
    // It was counted when the operation was checked.
    let span = layout.span_of(operation.len as u64).unwrap_or((0, i64::MAX));
    let located = metadata.locate_span(operation.disp, span).map(|_| ());
    located.map_err(|offset| outside(operation, metadata, offset, span.0.abs_diff(span.1)))
}

/// An operation with layouts on this process's own window; its span is inside of it.
///
/// # Safety
/// The operation's buffers are valid.
#[cold]
#[inline(never)]
pub(super) unsafe fn apply_layouts<R>(
    w: &Window<R>,
    operation: &Operation,
    layouts: &Layouts,
    base: u64,
) -> Result<(), RmaError> {
    // Regions of a dynamic window may have holes: all is checked before anything is touched.
    for step in [Step::Check, Step::Do] {
        let mut at = 0;
        let end = operation.len as u64;
        while at < end {
            let (target_at, target_len) = block_at(layouts.target.as_ref(), at, end);
            let (origin_at, origin_len) = block_at(layouts.origin.as_ref(), at, end);
            let (result_at, result_len) = block_at(layouts.result.as_ref(), at, end);
            let len_bytes = target_len.min(origin_len).min(result_len);
            let address = base.wrapping_add_signed(target_at);
            let Some((memory, offset)) = w.place(address, len_bytes) else {
                let Operation { call, target, .. } = *operation;
                return Err(RmaError::NotAttached { call, target, address, len_bytes });
            };
            if step == Step::Do {
                let piece = Operation {
                    len: len_bytes as usize,
                    origin: moved(operation.origin.cast_mut(), origin_at),
                    result: moved(operation.result, result_at),
                    ..*operation
                };
                // SAFETY: a piece of the operation's buffers, valid by the caller's promise.
                unsafe { apply(memory, &piece, offset) }.map_err(|_| operation.undefined())?;
            }
            at += len_bytes;
        }
    }
    Ok(())
}

/// What [`apply_layouts`] does with a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Check,
    Do,
}

/// A pointer `by` bytes further; null stays null.
fn moved(pointer: *mut u8, by: i64) -> *mut u8 {
    if pointer.is_null() {
        pointer
    } else {
        pointer.wrapping_offset(by as isize)
    }
}
