//! put, get, accumulate, get_accumulate, fetch_and_op, compare_and_swap.
#![allow(unsafe_code)] // user buffers come as raw pointers

use core::task::Poll;

use super::layout::{apply_layouts, check_span};
use super::own::apply;
use super::{epoch_error, Engine};
use crate::bootstrap::Bootstrap;
use crate::check::AccessKind;
use crate::dtype::Dtype;
use crate::error::{Call, ErrorClass, RmaError, Rule};
use crate::ids::{PeerAddr, Rank, WindowId};
use crate::layout::Layouts;
use crate::mutation::Mutation;
use crate::op::ReduceOp;
use crate::path::Path;
use crate::progress::{DoneAtOnce, TagKind};
use crate::provider::{Accepted, Atomic, Endpoint, Post, PostError, RemoteAddr};
use crate::state::{TargetLockState, WindowState};
use crate::table::{Direct, Notification, Sync, TargetError};
use crate::window::{SelfLock, Window};
use crate::wire::{Metadata, OpKind};

/// One operation as the user gives it; see the methods of [`Engine`] for which fields count.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The call, for error messages.
    pub call: Call,
    /// What it does.
    pub kind: OpKind,
    /// Element type; [`Dtype::U8`] for put and get.
    pub dtype: Dtype,
    /// Reduction; [`ReduceOp::Replace`] where there is none.
    pub op: ReduceOp,
    /// Whose window.
    pub target: Rank,
    /// Displacement from its beginning, in the target's displacement units.
    pub disp: u64,
    /// Bytes at the target.
    pub len: usize,
    /// The origin's data; unused by get and by [`ReduceOp::NoOp`].
    pub origin: *const u8,
    /// Where the target's data go; unused by put and accumulate.
    pub result: *mut u8,
    /// The value to compare with; compare-and-swap only.
    pub compare: *const u8,
}

/// What is wanted of an operation besides that it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wanted {
    /// Nothing.
    Nothing,
    /// That it is in an element, if it is not complete at once.
    Element,
    /// The same, and it is a notification.
    Note,
    /// The same, and that a notification follows.
    Notification(Notification),
}

/// What became of a posted operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posted {
    /// It is done.
    Complete,
    /// The fabric has it, and only its target element counts it.
    Counted,
    /// It is, or was, in this operation element, in this generation of it.
    Element(u32, u32),
}

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// A put or get that goes the whole way of an operation.
    ///
    /// # Safety
    /// As for [`Engine::put`] or [`Engine::get`].
    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)]
    pub(super) unsafe fn transfer(
        &mut self,
        window: WindowId,
        kind: OpKind,
        target: Rank,
        disp: u64,
        origin: *const u8,
        result: *mut u8,
        len: usize,
    ) -> Poll<Result<(), RmaError>> {
        let operation = Operation {
            call: if kind == OpKind::Put { Call::Put } else { Call::Get },
            kind,
            dtype: Dtype::U8,
            op: ReduceOp::Replace,
            target,
            disp,
            len,
            origin,
            result,
            compare: core::ptr::null(),
        };
        // SAFETY: the caller's promise. It is no atomic, of which `post` asks first.
        unsafe { self.post_slow(window, &operation) }
    }

    /// Posts any operation. `Pending`: no resources now, nothing happened; make progress and call again.
    ///
    /// # Safety
    /// Every buffer that the operation's kind uses stays valid until the operation is locally complete:
    /// `origin` readable for `len` bytes (one element for compare-and-swap), `result` writable and
    /// otherwise unused for `len` bytes. `compare` must be readable for one element during the call.
    ///
    /// # Errors
    /// When no epoch is open, the rank is not in the window, the range is known to be outside, or the
    /// reduction is not defined for the type. A range that only the target can judge is reported by the
    /// call that completes the operation. No bytes are in range at every displacement: nothing is accessed.
    ///
    /// Implements: MPI_Put, MPI_Get, MPI_Accumulate, MPI_Get_accumulate, MPI_Fetch_and_op, MPI_Compare_and_swap, rule: access-epoch-required.
    #[inline]
    pub unsafe fn post(&mut self, window: WindowId, operation: &Operation) -> Poll<Result<(), RmaError>> {
        // SAFETY: the caller's promise.
        if unsafe { self.atomic_direct(window, operation) } {
            return Poll::Ready(Ok(()));
        }
        // SAFETY: the caller's promise.
        unsafe { self.post_by_packet(window, operation) }
    }

    /// One that is not complete at once, as far as is known.
    ///
    /// # Safety
    /// As for [`Engine::post`].
    #[inline(never)]
    unsafe fn post_by_packet(
        &mut self,
        window: WindowId,
        operation: &Operation,
    ) -> Poll<Result<(), RmaError>> {
        // SAFETY: the caller's promise.
        if unsafe { self.post_by_shortcut(window, operation) } {
            return Poll::Ready(Ok(()));
        }
        // SAFETY: as above.
        unsafe { self.post_slow(window, operation) }
    }

    /// # Safety
    /// As for [`Engine::post`].
    #[inline(never)]
    unsafe fn post_slow(&mut self, window: WindowId, operation: &Operation) -> Poll<Result<(), RmaError>> {
        // SAFETY: the caller's promise.
        unsafe { self.post_tracked(window, operation, None, Wanted::Nothing) }.map_ok(|_| ())
    }

    /// What an operation to the target waits for that [`Engine::post`] left pending, for people who look at a job
    /// that does not move.
    pub fn operation_waits_for(&self, window: WindowId, target: Rank) -> &'static str {
        let Some(w) = self.windows.peek(window) else { return "nothing: the window was freed" };
        if w.state() == WindowState::LockAllIssued {
            return "the locks of all ranks, which lock_all takes when target elements run out";
        }
        if !w.is_own(self.process.rank, target) {
            return "room for the operation: elements, which come back when earlier operations are complete";
        }
        if w.state().is_pscw() && !w.access.is_granted(target) {
            return "this rank's own post: it is in the group that start was given, and has not exposed its window to \
                    itself";
        }
        "the operations to this rank itself that came before an order call"
    }

    /// The same, with layouts if they are not all contiguous, and with what is wanted of it besides; says where
    /// the operation is.
    ///
    /// # Safety
    /// As for [`Engine::post`].
    #[inline]
    pub(super) unsafe fn post_tracked(
        &mut self,
        window: WindowId,
        operation: &Operation,
        layouts: Option<&Layouts>,
        wanted: Wanted,
    ) -> Poll<Result<Posted, RmaError>> {
        if let Err(error) = self.check_operation(window, operation) {
            return Poll::Ready(Err(error));
        }
        if operation.target == Rank::NULL {
            return Poll::Ready(Ok(Posted::Complete));
        }
        let Some(w) = self.windows.get_mut(window) else {
            return Poll::Ready(Err(RmaError::Window { call: operation.call, window }));
        };
        // Only the fabric's atomicity domain keeps an operation on the own window from the CPU.
        let by_cpu = matches!(operation.kind, OpKind::Put | OpKind::Get)
            || w.paths.of(operation.kind, operation.dtype, operation.op) == Path::Message;
        if w.is_own(self.process.rank, operation.target) && by_cpu {
            // After start, direct access waits for the own post.
            let rank = operation.target;
            let waits_for_post = w.state().is_pscw() && w.access.contains(rank) && !w.access.is_granted(rank);
            if waits_for_post || !self.process.self_may_go(w) {
                return self.process.wait_to_begin(w.state(), operation.call);
            }
            // SAFETY: the caller's promise; the operation is complete on return.
            let done = unsafe { self.post_to_self(window, operation, layouts) };
            return Poll::Ready(done.map(|()| Posted::Complete));
        }
        let is_plain = wanted == Wanted::Nothing && layouts.is_none();
        // SAFETY: the caller's promise.
        if is_plain && w.near.is_some() && unsafe { self.process.atomic_near(w, operation) } {
            return Poll::Ready(Ok(Posted::Counted));
        }
        let t = match self.process.find_or_make_target(w, operation, layouts) {
            Poll::Ready(Ok(t)) => t,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return self.process.wait_to_begin(w.state(), operation.call),
        };
        if operation.len == 0 {
            w.fence_active = true;
            return Poll::Ready(Ok(Posted::Complete));
        }
        if let Some(metadata) = self.process.targets[t].metadata.as_ref().or(w.uniform.as_ref()) {
            if let Err(error) = check_range(operation, layouts, metadata) {
                return Poll::Ready(Err(error));
            }
        }
        w.fence_active = true;
        if is_plain && w.words.is_some() && self.process.targets[t].direct.is_none() {
            self.process.take_near_lock(w, t);
        }
        // SAFETY: the caller's promise.
        if is_plain && unsafe { self.process.post_counted(w, t, operation) } {
            return Poll::Ready(Ok(Posted::Counted));
        }
        let Some(op) = self.process.poll_operation_element(w, t) else {
            return self.process.wait_to_begin(w.state(), operation.call);
        };
        if self.process.targets[t].is_dead() {
            // Found out just now, by what was issued to win the element back.
            self.process.operations.give(&mut w.operations, op);
            return Poll::Ready(self.process.take_error(t, operation.call).map(|()| Posted::Complete));
        }
        // SAFETY: the caller's promise.
        let generation = unsafe { self.process.enqueue(w, t, op, operation, layouts, wanted) };
        Poll::Ready(Ok(Posted::Element(op, generation)))
    }

    fn check_operation(&mut self, window: WindowId, operation: &Operation) -> Result<(), RmaError> {
        let &Operation { call, kind, dtype, op, target, len, .. } = operation;
        if target != Rank::NULL {
            self.check_rank(call, target)?;
        }
        let w = self.window(call, window)?;
        let (state, is_closing) = (w.state(), w.is_closing);
        if !state.is_access_epoch() {
            return Err(epoch_error(call, Some(target), state, Rule::NoEpoch));
        }
        if is_closing {
            return Err(epoch_error(call, Some(target), state, Rule::Busy));
        }
        if kind == OpKind::Accumulate && op == ReduceOp::NoOp {
            let what =
                "no_op only reads, and an accumulate returns nothing: use get_accumulate or fetch_and_op";
            return Err(RmaError::Invalid { call, class: ErrorClass::Op, what, rule: Rule::NoOpFetches });
        }
        let is_swap = kind == OpKind::CompareAndSwap;
        if !op.is_defined_for(dtype) || (is_swap && !dtype.has_compare_and_swap()) {
            let op = if is_swap { "compare_and_swap" } else { op.name() };
            return Err(RmaError::Operation { call, op, dtype: dtype.name() });
        }
        if !dtype.fills(len) || (is_swap && len != dtype.size()) {
            let (what, rule) = match is_swap {
                true => ("the buffers are not of exactly one element; give one", Rule::OneElement),
                false => (
                    "the length is not a whole number of elements; give a multiple of the type's size",
                    Rule::WholeElements,
                ),
            };
            return Err(RmaError::Argument { call, what, rule });
        }
        Ok(())
    }

    /// An operation of this process on its own window: loads and stores, complete at once.
    ///
    /// # Safety
    /// The buffers are valid as for [`Engine::post`].
    unsafe fn post_to_self(
        &mut self,
        window: WindowId,
        operation: &Operation,
        layouts: Option<&Layouts>,
    ) -> Result<(), RmaError> {
        let call = operation.call;
        // It is made of stores by this processor, as operations on neighbours are.
        self.process.at_once = DoneAtOnce::UNFENCED;
        let w = self.window(call, window)?;
        let state = w.state();
        if state == WindowState::PerTarget && w.self_lock == SelfLock::None {
            return Err(epoch_error(call, Some(operation.target), state, Rule::NotLocked));
        }
        if state.is_pscw() && !w.access.contains(operation.target) {
            return Err(epoch_error(call, Some(operation.target), state, Rule::NotInGroup));
        }
        if operation.len == 0 {
            w.fence_active = true;
            self.process.counters.self_operations += 1;
            return Ok(());
        }
        check_range(operation, layouts, &w.own)?;
        w.fence_active = true;
        let (address, len_bytes) = (operation.disp * u64::from(w.own.disp_unit), operation.len as u64);
        if let Some(layouts) = layouts {
            // SAFETY: the caller's promise.
            let done = unsafe { apply_layouts(w, operation, layouts, address) };
            self.process.counters.self_operations += 1;
            return done;
        }
        let Some((memory, offset)) = w.place(address, len_bytes) else {
            return Err(RmaError::NotAttached { call, target: operation.target, address, len_bytes });
        };
        // SAFETY: the caller's promise.
        let done = unsafe { apply(memory, operation, offset) };
        let (what, kind) = ((operation.dtype, operation.op), AccessKind::Operation(operation.kind));
        let conflict = w.check_own(operation.target, kind, what, address, len_bytes);
        self.process.counters.self_operations += 1;
        done.map_err(|_| operation.undefined())?;
        conflict.map_or(Ok(()), |conflict| Err(conflict.report(call, operation.target)))
    }
}

impl Operation {
    /// What it does to each element, if it is an atomic.
    #[inline]
    pub(super) fn atomic(&self) -> Option<Atomic> {
        let &Self { kind, origin: operand, result, compare, .. } = self;
        match kind {
            OpKind::Accumulate => Some(Atomic::Reduce { operand }),
            OpKind::GetAccumulate => Some(Atomic::Fetch { operand, result }),
            OpKind::CompareAndSwap => Some(Atomic::Swap { operand, compare, result }),
            OpKind::Put | OpKind::Get => None,
        }
    }

    /// The error of a reduction that is not defined.
    #[cold]
    pub(super) fn undefined(&self) -> RmaError {
        RmaError::Operation { call: self.call, op: self.op.name(), dtype: self.dtype.name() }
    }
}

/// The error of an access that does not fit the window.
#[cold]
pub(super) fn outside(operation: &Operation, metadata: &Metadata, offset: u64, len: u64) -> RmaError {
    TargetError::Record(metadata.outside(offset, len)).report(operation.call, operation.target)
}

pub(super) fn check_range(
    operation: &Operation,
    layouts: Option<&Layouts>,
    metadata: &Metadata,
) -> Result<(), RmaError> {
    if let Some(layout) = layouts.and_then(|layouts| layouts.target.as_ref()) {
        return check_span(operation, layout, metadata);
    }
    let len = operation.len as u64;
    let located = metadata.locate(operation.disp, len).map(|_| ());
    located.map_err(|offset| outside(operation, metadata, offset, len))
}

impl<E: Endpoint, B: Bootstrap> crate::progress::Process<E, B> {
    /// Whether a put or get of `len` bytes is one of the fabric's: not empty, and not too long.
    #[inline]
    pub(super) fn is_one_message(&self, len: usize) -> bool {
        len.wrapping_sub(1) < self.limits.message_bytes_max
    }

    /// No element is free for an operation, or one on the own window has to wait for those before an order call. In a
    /// fence epoch that a death keeps from its beginning none ever comes back, as nothing leaves.
    #[cold]
    fn wait_to_begin<T>(&mut self, state: WindowState, call: Call) -> Poll<Result<T, RmaError>> {
        let is_cut_off = self.is_cut_off();
        match &self.failure {
            Some(failure) if is_cut_off => Poll::Ready(Err(failure.report(call))),
            Some(failure) if state == WindowState::FenceIssued && !Mutation::RoomAwaitedFromDead.is_on() => {
                Poll::Ready(Err(failure.report(call)))
            }
            _ => Poll::Pending,
        }
    }

    /// The target's element; makes one where the epoch allows it.
    fn find_or_make_target(
        &mut self,
        w: &mut Window<E::Region>,
        operation: &Operation,
        layouts: Option<&Layouts>,
    ) -> Poll<Result<u32, RmaError>> {
        let &Operation { call, target, .. } = operation;
        if let Some(t) = w.find(&self.targets, target) {
            if self.targets[t].is_dead() {
                return Poll::Ready(self.take_error(t, call).map(|()| t));
            }
            if self.targets[t].sync == Sync::Unlock {
                return Poll::Ready(Err(epoch_error(call, Some(target), w.state(), Rule::Busy)));
            }
            return Poll::Ready(Ok(t));
        }
        let state = w.state();
        if state == WindowState::PerTarget && !(target == self.rank && w.self_lock != SelfLock::None) {
            match w.parked.find(target) {
                None => return Poll::Ready(Err(epoch_error(call, Some(target), state, Rule::NotLocked))),
                Some(lock) if lock.is_closing => {
                    return Poll::Ready(Err(epoch_error(call, Some(target), state, Rule::Busy)));
                }
                Some(_) => {}
            }
        }
        if state == WindowState::LockAllIssued {
            return Poll::Pending;
        }
        if state.is_pscw() && !w.access.contains(target) {
            return Poll::Ready(Err(epoch_error(call, Some(target), state, Rule::NotInGroup)));
        }
        let known = w.words.as_ref().and_then(|words| words.metadata_of(target));
        let metadata = if target == self.rank { Some(&w.own) } else { w.uniform.as_ref().or(known.as_ref()) };
        // What is refused leaves no element: one of a fence without operations would be there in the next epoch.
        if let (1.., Some(metadata)) = (operation.len, metadata) {
            if let Err(error) = check_range(operation, layouts, metadata) {
                return Poll::Ready(Err(error));
            }
        }
        let Some(t) = self.poll_target_element(w, target) else {
            return Poll::Pending;
        };
        let is_own = w.is_own(self.rank, target);
        self.adopt_target(w, t, is_own);
        Poll::Ready(Ok(t))
    }

    /// Gives a new element the lock state that the window's epoch implies.
    pub(crate) fn adopt_target(&mut self, w: &mut Window<E::Region>, t: u32, is_self: bool) {
        let state = w.state();
        self.order_behind_detached(w, t);
        if let Some(mut lock) = w.parked.remove(self.targets[t].rank) {
            // It was given up while its target was locked, or was not there yet; the table has it now.
            lock.no_check &= !Mutation::UncheckedLockForgotten.is_on();
            return self.unpark(w, t, lock);
        }
        let te = &mut self.targets[t];
        if state == WindowState::LockAllCalled && !is_self {
            // Per-target protocol: locked when the first operation leaves.
            return;
        }
        te.lock = TargetLockState::Granted;
        if state.is_pscw() {
            if !w.access.is_granted(te.rank) {
                te.lock = TargetLockState::Issued;
            }
            te.metadata = te.metadata.or_else(|| w.notices.metadata(te.rank));
        }
        if is_self {
            // Nobody sends packets to himself, so nobody would answer where the window is.
            te.metadata = Some(w.own);
        }
        let is_unlocked = state == WindowState::LockAllGranted && w.lock_all_no_check;
        // Who is told of COMPLETE is not who executes: `complete_untouched` tells him.
        te.no_check = is_self || is_unlocked || (state.is_pscw() && w.is_served);
        self.resolve(w, t);
    }

    /// Posts a native put or get without an operation element, and an atomic where it is complete at once. `false`: not
    /// possible now.
    ///
    /// # Safety
    /// As for [`Engine::post`].
    #[inline(always)]
    unsafe fn post_counted(&mut self, w: &mut Window<E::Region>, t: u32, operation: &Operation) -> bool {
        let te = &self.targets[t];
        let is_transfer = matches!(operation.kind, OpKind::Put | OpKind::Get);
        // Of what is a packet in any case no more is asked.
        let may_be =
            is_transfer || !te.is_unmarked() || te.direct.as_ref().is_some_and(|direct| direct.at_once);
        // SAFETY: the caller's promise.
        may_be && unsafe { self.post_if_native(w, t, operation) }
    }

    /// # Safety
    /// As for [`Engine::post`].
    #[inline(never)]
    unsafe fn post_if_native(&mut self, w: &mut Window<E::Region>, t: u32, operation: &Operation) -> bool {
        let &Operation { kind, disp, len, dtype, op, .. } = operation;
        if !self.targets[t].is_unmarked() {
            self.settle_marks(t);
            self.settle_order(w, t);
        }
        let te = &self.targets[t];
        let is_transfer = matches!(kind, OpKind::Put | OpKind::Get);
        if !is_transfer && !te.direct.as_ref().is_some_and(|direct| direct.at_once) {
            return false;
        }
        let Some(Direct { peer, metadata, at_once }) = te.direct else { return false };
        let is_native = w.paths.of(kind, dtype, op) == Path::Native;
        if !is_transfer && !is_native {
            // SAFETY: the caller's promise.
            return unsafe { self.atomic_without_packet(w, t, operation) };
        }
        // One element is one operation of the fabric; and what is complete at once is behind nothing but what failed.
        let is_one = is_transfer || (at_once && len == dtype.size() && te.native_outstanding() == 0);
        let possible = w.state().may_issue()
            && te.pending.is_empty()
            && len <= self.limits.message_bytes_max
            && is_one
            && is_native;
        if !possible {
            return false;
        }
        // What the target says of its window may be anything.
        let offset = disp.wrapping_mul(metadata.disp_unit.into());
        let at = RemoteAddr { addr: metadata.base.wrapping_add(offset), key: metadata.key };
        // SAFETY: the caller's promise; atomics go only to where their buffers are free on return.
        let posted = unsafe { self.post_native(peer, operation, at, t) };
        let accepted = match posted {
            Ok(accepted) => accepted,
            Err(error) => {
                self.counters.again += u64::from(error == PostError::Again);
                return false;
            }
        };
        let is_tracked = accepted == Accepted::Tracked;
        self.at_once.note(!is_tracked);
        self.shortcut.note_posted();
        let te = &mut self.targets[t];
        match kind {
            OpKind::Get => {
                te.native_gets += u32::from(is_tracked);
                self.counters.native_gets += 1;
            }
            OpKind::Put => {
                te.native_puts += u32::from(is_tracked);
                te.unflushed |= is_tracked && self.puts_need_flush;
                self.counters.native_puts += 1;
            }
            // One that is tracked has failed, and is counted as a put until that is said.
            _ => {
                te.native_puts += u32::from(is_tracked);
                self.counters.native_atomics += 1;
            }
        }
        self.counters.native_bytes += len as u64;
        if at_once && is_transfer {
            self.remember_near(w, t);
        }
        true
    }

    /// Asks the fabric for an operation of one piece.
    ///
    /// # Safety
    /// As for [`Engine::post`]; and the values of an atomic stay readable, unless the fabric has no use for them when
    /// this returns.
    #[inline]
    unsafe fn post_native(&mut self, peer: PeerAddr, operation: &Operation, at: RemoteAddr, t: u32) -> Post {
        let &Operation { kind, dtype, op, len, origin, result, compare, .. } = operation;
        let tag = match kind {
            OpKind::Get => TagKind::CountedGet.tag(0, t),
            _ => TagKind::CountedPut.tag(0, t),
        };
        match kind {
            // SAFETY: the caller's promise is the endpoint's; so for all of these.
            OpKind::Put => unsafe { self.endpoint.put(peer, origin, len, at, tag) },
            // SAFETY: as above.
            OpKind::Get => unsafe { self.endpoint.get(peer, result, len, at, tag) },
            // SAFETY: as above.
            OpKind::Accumulate => unsafe { self.endpoint.atomic(peer, origin, 1, at, dtype, op, tag) },
            // SAFETY: as above.
            OpKind::GetAccumulate => unsafe {
                self.endpoint.fetch_atomic(peer, origin, result, 1, at, dtype, op, tag)
            },
            // SAFETY: as above.
            OpKind::CompareAndSwap => unsafe {
                self.endpoint.compare_atomic(peer, origin, compare, result, at, dtype, tag)
            },
        }
    }
}
