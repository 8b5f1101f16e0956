//! One operation with layouts, posted and compared with what it means byte by byte.

use std::fmt;
use std::task::Poll;

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::Operation;
use rma_core::error::{Call, RmaError};
use rma_core::ids::WindowId;
use rma_core::layout::{Layout, Layouts};
use rma_core::lock::LockType::Exclusive;
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::wire::OpKind;
use rma_sim::arithmetic;

use super::super::pattern;
use crate::world::{operation, STEPS_MAX};
use crate::World;

/// An operation of rank 0. Buffers are as large as needed, layouts begin `ORIGIN` bytes into them.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) kind: OpKind,
    pub(super) dtype: Dtype,
    pub(super) op: ReduceOp,
    pub(super) target: u32,
    pub(super) disp: u64,
    /// Bytes of data.
    pub(super) len: u64,
    pub(super) layouts: Layouts,
    data: Vec<u8>,
    pub(super) result: Vec<u8>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, dtype, op, target, disp, len, layouts, .. } = self;
        write!(f, "{kind:?} {dtype:?} {op:?} of {len} bytes at {disp} of rank {target}, {layouts:?}")
    }
}

/// Where buffers' layouts are placed, so that they may reach back.
const PLACE: usize = 512;

impl Case {
    /// An operation on `len` bytes at displacement 0 of rank 1; sums of `u8` where it is an accumulate.
    pub(super) fn new(kind: OpKind, len: u64) -> Self {
        let op = if matches!(kind, OpKind::Put | OpKind::Get) { ReduceOp::Replace } else { ReduceOp::Sum };
        let layouts = Layouts::NONE;
        Self { kind, dtype: Dtype::U8, op, target: 1, disp: 0, len, layouts, data: vec![], result: vec![] }
            .with_buffers()
    }

    pub(super) fn at(self, disp: u64) -> Self {
        Self { disp, ..self }
    }

    pub(super) fn to(self, target: u32) -> Self {
        Self { target, ..self }
    }

    pub(super) fn reducing(self, dtype: Dtype, op: ReduceOp) -> Self {
        Self { dtype, op, ..self }
    }

    pub(super) fn origin(self, layout: &Layout) -> Self {
        let layouts = Layouts { origin: Some(layout.clone()), ..self.layouts.clone() };
        Self { layouts, ..self }.with_buffers()
    }

    pub(super) fn result(self, layout: &Layout) -> Self {
        let layouts = Layouts { result: Some(layout.clone()), ..self.layouts.clone() };
        Self { layouts, ..self }.with_buffers()
    }

    pub(super) fn target_layout(self, layout: &Layout) -> Self {
        let layouts = Layouts { target: Some(layout.clone()), ..self.layouts.clone() };
        Self { layouts, ..self }
    }

    fn with_buffers(mut self) -> Self {
        let room = |layout: Option<&Layout>| {
            let end = layout.map_or(self.len as i64, |layout| layout.span_of(self.len).expect("small").1);
            PLACE + end.max(0) as usize + 16
        };
        self.data = pattern(room(self.layouts.origin.as_ref()), self.len);
        self.result = vec![0xee; room(self.layouts.result.as_ref())];
        self
    }

    /// The operation as the engine gets it; its buffers are the case's.
    pub(super) fn operation(&mut self) -> Operation {
        let call = match self.kind {
            OpKind::Put => Call::Put,
            OpKind::Get => Call::Get,
            OpKind::Accumulate => Call::Accumulate,
            OpKind::GetAccumulate => Call::GetAccumulate,
            OpKind::CompareAndSwap => Call::CompareAndSwap,
        };
        let has_result = self.kind.has_result();
        Operation {
            dtype: self.dtype,
            op: self.op,
            origin: self.data.as_ptr().wrapping_add(PLACE),
            compare: self.data.as_ptr().wrapping_add(PLACE),
            result: if has_result {
                self.result.as_mut_ptr().wrapping_add(PLACE)
            } else {
                std::ptr::null_mut()
            },
            ..operation(call, self.kind, self.target, self.disp, self.len as usize)
        }
    }

    /// Posts it, without completing it.
    pub(super) fn post<E: Endpoint, B: Bootstrap>(
        &mut self,
        world: &mut World<E, B>,
        window: WindowId,
    ) -> Result<(), RmaError> {
        let operation = self.operation();
        for _ in 0..STEPS_MAX {
            let engine = &mut world.engines[0];
            // SAFETY: bodies keep the case until the call that completes the operation.
            let done = unsafe { engine.post_with_layouts(window, &operation, &self.layouts) };
            if let Poll::Ready(done) = done {
                return done;
            }
            world.step();
        }
        panic!("hangs: no resources for {self:?}");
    }

    /// Changes `memory` as the operation does, and checks the result against what was there.
    pub(super) fn check_and_apply(&self, memory: &mut [u8]) {
        let place = |base: usize, byte: i64| (base as i64 + byte) as usize;
        let bytes = |layout| bytes_of(layout, self.len);
        let (targets, origins, results) = (
            bytes(self.layouts.target.as_ref()),
            bytes(self.layouts.origin.as_ref()),
            bytes(self.layouts.result.as_ref()),
        );
        let old: Vec<u8> = targets.iter().map(|&byte| memory[place(self.disp as usize, byte)]).collect();
        let given: Vec<u8> = origins.iter().map(|&byte| self.data[place(PLACE, byte)]).collect();
        let mut expected = vec![0xee; self.result.len()];
        if self.kind.has_result() {
            for (&byte, &old) in results.iter().zip(&old) {
                expected[place(PLACE, byte)] = old;
            }
        }
        assert!(self.result == expected, "the result of {self:?}");
        let mut new = old;
        match self.kind {
            OpKind::Put => new = given,
            OpKind::Get => {}
            _ => assert!(arithmetic::reduce(self.dtype, self.op, &mut new, &given)),
        }
        for (&byte, new) in targets.iter().zip(new) {
            memory[place(self.disp as usize, byte)] = new;
        }
    }

    /// Runs it in a lock epoch of its own, and checks result and window.
    pub(super) fn run<E: Endpoint, B: Bootstrap>(mut self, world: &mut World<E, B>, window: WindowId) {
        let mut memory = world.memory(self.target, window);
        world.lock(0, window, self.target, Exclusive).unwrap();
        self.post(world, window).unwrap();
        world.unlock(0, window, self.target).unwrap();
        self.check_and_apply(&mut memory);
        assert!(world.memory(self.target, window) == memory, "the window after {self:?}");
    }

    /// It is refused when it is posted, and changes nothing.
    pub(super) fn refused<E: Endpoint, B: Bootstrap>(
        mut self,
        world: &mut World<E, B>,
        window: WindowId,
    ) -> RmaError {
        let memory = world.memory(self.target, window);
        world.lock(0, window, self.target, Exclusive).unwrap();
        let error = self.post(world, window).expect_err("an error was due");
        world.unlock(0, window, self.target).unwrap();
        assert_eq!(world.memory(self.target, window), memory);
        assert!(self.result.iter().all(|&byte| byte == 0xee));
        error
    }
}

/// Every byte of `len` bytes of data, one by one.
fn bytes_of(layout: Option<&Layout>, len: u64) -> Vec<i64> {
    match layout {
        None => (0..len as i64).collect(),
        Some(layout) => (0..len).map(|at| layout.run_at(at, at + 1).offset).collect(),
    }
}

/// A window of random bytes at every rank.
pub(super) fn window<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, len: usize) -> WindowId {
    let window = world.allocate(len);
    fill(world, window);
    window
}

/// Fills every rank's part of a window with random bytes.
pub(super) fn fill<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>, window: WindowId) {
    for rank in world.ranks() {
        let (base, len) = world.engines[rank as usize].window_memory(window).expect("the window exists");
        let bytes = pattern(len, 77 + u64::from(rank));
        // SAFETY: the window has `len` bytes at `base`, and nothing runs meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), base, len) };
    }
}
