//! The engine as scripts see it: the only place of the swarm that knows the engine's interface.

use core::task::Poll;

use rma_core::config::Config;
use rma_core::engine::{Engine, FenceAssert, Operation, PostAssert, StartAssert, SyncCall};
use rma_core::error::{Call as Name, RmaError};
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType;
use rma_core::wire::OpKind;

use super::library::{Call, Library, OriginBuffers, Progress};
use super::memory::Exposed;
use super::plan::{FenceAssertions, Members, OperationPlan, Verb};
use super::shape::Shape;
use crate::bootstrap::SimBootstrap;
use crate::fabric::{SimEndpoint, SimFabric};

/// An engine on the simulated fabric.
pub type SimEngine = Engine<SimEndpoint, SimBootstrap>;

/// One rank's engine, its windows by their place in the plan, and the call under way.
#[derive(Debug)]
pub struct EngineLibrary {
    engine: SimEngine,
    windows: Vec<WindowId>,
    under_way: Option<SyncCall>,
    /// The window that is tested until it is over.
    testing: Option<WindowId>,
}

impl EngineLibrary {
    /// Opens the endpoint of `rank` and an engine on it.
    ///
    /// # Errors
    /// What the fabric or the engine says.
    pub fn open(fabric: &SimFabric, rank: u32, config: &Config) -> Result<Self, String> {
        let endpoint = fabric.open(rank).map_err(|error| error.to_string())?;
        let bootstrap = fabric.bootstrap(rank);
        let engine = Engine::open(endpoint, bootstrap, config.clone()).map_err(say)?;
        Ok(Self { engine, windows: Vec::new(), under_way: None, testing: None })
    }

    /// The engine.
    pub fn engine(&self) -> &SimEngine {
        &self.engine
    }

    fn begin(&mut self, call: &Call) -> Result<SyncCall, RmaError> {
        let engine = &mut self.engine;
        match *call {
            Call::Create { memory, len, disp_unit, .. } => {
                let (window, sync) = match memory {
                    // SAFETY: the script keeps the memory until the window is freed, and accesses it
                    // through pointers only.
                    #[allow(unsafe_code)]
                    Some(base) => unsafe { engine.start_create(base.as_ptr(), len, disp_unit) }?,
                    None => engine.start_allocate(len, disp_unit)?,
                };
                self.windows.push(window);
                Ok(sync)
            }
            Call::Free { window } => engine.start_free(self.windows[window]),
            Call::Fence { window, assertions } => {
                engine.start_fence(self.windows[window], assert(assertions))
            }
            Call::Lock { window, target, is_exclusive, no_check } => {
                let lock_type = if is_exclusive { LockType::Exclusive } else { LockType::Shared };
                engine.start_lock(self.windows[window], Rank(target), lock_type, no_check)
            }
            Call::Unlock { window, target } => engine.start_unlock(self.windows[window], Rank(target)),
            Call::LockAll { window, no_check } => engine.start_lock_all(self.windows[window], no_check),
            Call::UnlockAll { window } => engine.start_unlock_all(self.windows[window]),
            Call::Post { window, group, no_check } => {
                let assert = PostAssert { no_check, ..PostAssert::default() };
                engine.start_post(self.windows[window], &group_of(group)?, assert)
            }
            Call::Start { window, group, no_check } => {
                engine.start_start(self.windows[window], &group_of(group)?, StartAssert { no_check })
            }
            Call::Complete { window } => engine.start_complete(self.windows[window]),
            Call::Wait { window, .. } => engine.start_wait(self.windows[window]),
            Call::Flush { window, target: Some(target), is_local: false } => {
                engine.start_flush(self.windows[window], Rank(target))
            }
            Call::Flush { window, target: Some(target), is_local: true } => {
                engine.start_flush_local(self.windows[window], Rank(target))
            }
            Call::Flush { window, target: None, is_local: false } => {
                engine.start_flush_all(self.windows[window])
            }
            Call::Flush { window, target: None, is_local: true } => {
                engine.start_flush_local_all(self.windows[window])
            }
        }
    }
}

impl Library for EngineLibrary {
    fn start(&mut self, call: &Call) -> Result<(), String> {
        if let Call::Wait { window, by_test: true } = *call {
            self.testing = Some(self.windows[window]);
            return Ok(());
        }
        self.under_way = Some(self.begin(call).map_err(say)?);
        Ok(())
    }

    fn poll(&mut self) -> Result<Progress, String> {
        if let Some(window) = self.testing {
            if self.engine.test(window).map_err(say)? {
                self.testing = None;
                return Ok(Progress::Returned);
            }
            return self.progress();
        }
        let Some(sync) = &mut self.under_way else { return Err("no call is under way".into()) };
        match self.engine.poll(sync) {
            Poll::Ready(result) => {
                self.under_way = None;
                result.map(|()| Progress::Returned).map_err(say)
            }
            Poll::Pending => self.progress(),
        }
    }

    #[allow(unsafe_code)]
    unsafe fn post(
        &mut self,
        plan: &OperationPlan,
        disp: u64,
        buffers: &OriginBuffers,
    ) -> Result<bool, String> {
        let window = self.windows[plan.window];
        let (target, len) = (Rank(plan.target), plan.len);
        let (origin, result) = (buffers.origin.as_ptr().cast_const(), buffers.result.as_ptr());
        if let Some(shape) = Shape::of(plan) {
            let operation = operation(plan, disp, buffers);
            // SAFETY: the caller's promise is the engine's; the buffers were made for the layouts.
            let posted = unsafe { self.engine.post_with_layouts(window, &operation, shape.layouts()) };
            return match posted {
                Poll::Ready(result) => result.map(|()| true).map_err(say),
                Poll::Pending => Ok(false),
            };
        }
        let posted = match plan.verb {
            // SAFETY: the caller's promise is the engine's.
            Verb::Put => unsafe { self.engine.put(window, target, disp, origin, len) },
            // SAFETY: the caller's promise is the engine's.
            Verb::Get => unsafe { self.engine.get(window, target, disp, result, len) },
            _ => {
                let operation = operation(plan, disp, buffers);
                // SAFETY: the caller's promise is the engine's.
                unsafe { self.engine.post(window, &operation) }
            }
        };
        match posted {
            Poll::Ready(result) => result.map(|()| true).map_err(say),
            Poll::Pending => Ok(false),
        }
    }

    fn takes_layouts(&self) -> bool {
        true
    }

    fn progress(&mut self) -> Result<Progress, String> {
        Ok(if self.engine.progress() > 0 { Progress::Moved } else { Progress::Waiting })
    }

    fn exposed(&self, window: usize) -> Exposed {
        let memory = self.windows.get(window).and_then(|&id| self.engine.window_memory(id));
        let base = memory.and_then(|(base, len)| Some((core::ptr::NonNull::new(base)?, len)));
        match base {
            // SAFETY: the window's memory stays until it is freed, after which the oracle does not look.
            #[allow(unsafe_code)]
            Some((base, len)) => unsafe { Exposed::new(base, len) },
            None => Exposed::NONE,
        }
    }

    fn check_idle(&self) -> Result<(), String> {
        let in_use = self.engine.elements_in_use();
        if in_use != (0, 0) {
            return Err(format!("{} operation and {} target elements are still in use", in_use.0, in_use.1));
        }
        let malformed = self.engine.counters().malformed_packets;
        if malformed > 0 {
            return Err(format!("{malformed} packets made no sense to their receiver"));
        }
        match self.engine.window_count() {
            0 => Ok(()),
            count => Err(format!("{count} windows still exist")),
        }
    }

    fn describe(&self) -> String {
        let states: Vec<_> = self.windows.iter().filter_map(|&id| self.engine.window_state(id)).collect();
        let waiting_for = self.under_way.as_ref().map_or("nothing", SyncCall::waiting_for);
        let (operations, targets) = self.engine.elements_in_use();
        format!(
            "engine waits for {waiting_for}, windows {states:?}, {operations} operation and {targets} target \
             elements in use"
        )
    }
}

fn group_of(members: Members) -> Result<Group, RmaError> {
    let ranks: Vec<Rank> = members.iter().map(Rank).collect();
    Group::new(&ranks, Members::RANKS_MAX)
}

fn say(error: RmaError) -> String {
    error.to_string()
}

fn assert(assertions: FenceAssertions) -> FenceAssert {
    let FenceAssertions { no_store, no_put, no_precede, no_succeed } = assertions;
    FenceAssert { no_store, no_put, no_precede, no_succeed }
}

fn operation(plan: &OperationPlan, disp: u64, buffers: &OriginBuffers) -> Operation {
    let (call, kind) = match plan.verb {
        Verb::Put => (Name::Put, OpKind::Put),
        Verb::Get => (Name::Get, OpKind::Get),
        Verb::Accumulate => (Name::Accumulate, OpKind::Accumulate),
        Verb::GetAccumulate => (Name::GetAccumulate, OpKind::GetAccumulate),
        Verb::FetchAndOp => (Name::FetchAndOp, OpKind::GetAccumulate),
        Verb::CompareAndSwap => (Name::CompareAndSwap, OpKind::CompareAndSwap),
    };
    let has_result = plan.verb.has_result();
    Operation {
        call,
        kind,
        dtype: plan.dtype,
        op: plan.op,
        target: Rank(plan.target),
        disp,
        len: plan.len,
        origin: buffers.origin.as_ptr(),
        result: if has_result { buffers.result.as_ptr() } else { core::ptr::null_mut() },
        compare: buffers.compare.as_ptr(),
    }
}
