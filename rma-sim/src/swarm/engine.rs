//! The engine as scripts see it: the only place of the swarm that knows the engine's interface.

use core::task::Poll;

use rma_core::config::Config;
use rma_core::engine::{
    Engine, FenceAssert, Notification, Operation, PostAssert, Request, SharedPart, StartAssert, SyncCall,
};
use rma_core::error::{Call as Name, RmaError};
use rma_core::ghost::Ghost;
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_core::info::WindowOptions;
use rma_core::lock::LockType;
use rma_core::wire::OpKind;

use super::library::{Call, Library, OriginBuffers, Place, Posted, Progress};
use super::memory::Exposed;
use super::plan::{FenceAssertions, Form, Members, OperationPlan, Verb, Which};
use super::shape::Shapes;
use crate::bootstrap::SimBootstrap;
use crate::fabric::{SimEndpoint, SimFabric};

/// An engine on the simulated fabric.
pub type SimEngine = Engine<SimEndpoint, SimBootstrap>;

/// One rank's engine, its windows by their place in the plan, and what its threads are at.
#[derive(Debug)]
pub struct EngineLibrary {
    engine: SimEngine,
    windows: Vec<WindowId>,
    /// One, unless the rank has forked. They take turns at the engine as those of a process do.
    threads: Vec<Thread>,
    /// What the window being made was said to be.
    said: Option<WindowOptions>,
    /// Of the operation that is being posted.
    shapes: Shapes,
}

/// The calls of one thread.
#[derive(Default, Debug)]
struct Thread {
    under_way: Option<SyncCall>,
    /// The window that is tested until it is over.
    testing: Option<WindowId>,
    /// Requests that were not found done, by their names.
    requests: Vec<(u64, Request)>,
    finished: Vec<u64>,
    awaiting: Option<Which>,
    /// Times in a row that its call was not over.
    patience: u32,
}

/// Polls in vain after which a process would sleep, had it a clock.
const PATIENCE: u32 = 64;

impl EngineLibrary {
    /// Opens the endpoint of `rank` and an engine on it.
    ///
    /// # Errors
    /// What the fabric or the engine says.
    pub fn open(fabric: &SimFabric, rank: u32, config: &Config) -> Result<Self, String> {
        Self::open_with(fabric, rank, config, None)
    }

    /// The same, for a rank that may have a ghost.
    pub(super) fn open_with(
        fabric: &SimFabric,
        rank: u32,
        config: &Config,
        ghost: Option<Box<dyn Ghost>>,
    ) -> Result<Self, String> {
        let endpoint = fabric.open(rank).map_err(|error| error.to_string())?;
        let config = config.clone();
        let engine = match ghost {
            None => Engine::open(endpoint, fabric.bootstrap(rank), config),
            Some(ghost) => {
                Engine::open_with_ghost(endpoint, fabric.bootstrap_with_ghost(rank), config, ghost)
            }
        };
        let engine = engine.map_err(say)?;
        let threads = vec![Thread::default()];
        Ok(Self { engine, windows: Vec::new(), threads, said: None, shapes: Shapes::default() })
    }

    /// The engine.
    pub fn engine(&self) -> &SimEngine {
        &self.engine
    }

    /// Takes in what the launcher says of deaths; how many were news.
    pub(super) fn hear_of_losses(&mut self) -> usize {
        self.engine.hear_of_losses()
    }

    #[allow(unsafe_code)]
    fn create(&mut self, call: &Call) -> Result<SyncCall, RmaError> {
        let engine = &mut self.engine;
        let Call::Create { memory, len, disp_unit, is_dynamic, is_shared, ref options, .. } = *call else {
            unreachable!("who calls it has looked")
        };
        let (window, sync) = match memory {
            _ if is_dynamic => engine.start_create_dynamic(options)?,
            Some(base) if is_shared => {
                let part = SharedPart { base, len, mapping: Box::new(()), is_allocated: false };
                // SAFETY: the script keeps the memory until the window is freed; all ranks are one thread.
                unsafe { engine.start_shared(Ok(part), disp_unit, options) }?
            }
            Some(base) => {
                // SAFETY: the script keeps the memory until the window is freed, and accesses it through pointers
                // only.
                unsafe { engine.start_create_with(base.as_ptr(), len, disp_unit, options) }?
            }
            None => engine.start_allocate_with(len, disp_unit, options)?,
        };
        self.windows.push(window);
        self.said = Some(*options);
        Ok(sync)
    }

    fn begin(&mut self, call: &Call) -> Result<SyncCall, RmaError> {
        let engine = &mut self.engine;
        match *call {
            Call::Create { .. } => self.create(call),
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
            Call::FlushTargets { window, targets } => {
                let targets: Vec<_> = targets.iter().map(Rank).collect();
                engine.start_flush_targets(self.windows[window], &targets)
            }
            Call::AwaitNotice { window, disp, until } => {
                engine.start_wait_notification(self.windows[window], disp, until)
            }
            Call::Detach { window, base } => engine.start_detach(self.windows[window], base.as_ptr()),
            Call::Await { .. }
            | Call::Order { .. }
            | Call::RequestFlush { .. }
            | Call::Attach { .. }
            | Call::Sync { .. } => {
                unreachable!("they return at once, or are waited for otherwise")
            }
        }
    }

    /// Looks after the requests that are waited for.
    fn poll_requests(&mut self, thread: usize, which: Which) -> Result<bool, String> {
        let Thread { requests, finished, .. } = &mut self.threads[thread];
        let meant = match which {
            Which::All | Which::Any => 0..requests.len(),
            Which::Oldest => 0..requests.len().min(1),
            Which::Newest => requests.len().saturating_sub(1)..requests.len(),
        };
        let mut pending = 0;
        for (id, request) in &mut requests[meant] {
            match self.engine.poll_request(request) {
                Poll::Ready(result) => result.map_err(say)?,
                Poll::Pending => {
                    pending += 1;
                    continue;
                }
            }
            finished.push(*id);
            if which == Which::Any {
                break;
            }
        }
        requests.retain(|(_, request)| !request.is_null());
        Ok(pending == 0 || (which == Which::Any && !finished.is_empty()))
    }

    /// A window says of itself what was said of it.
    fn check_options(&mut self) -> Result<(), String> {
        let Some(said) = self.said.take() else { return Ok(()) };
        let found = self.windows.last().and_then(|&window| self.engine.window_options(window));
        match found {
            Some(found) if found.accumulate_ordering != said.accumulate_ordering => {}
            Some(found) if found.accumulate_ops != said.accumulate_ops => {}
            Some(found) if found.no_locks != said.no_locks || found.same_size != said.same_size => {}
            Some(found) if found.same_disp_unit != said.same_disp_unit => {}
            Some(found) if found.accumulate_granularity != said.accumulate_granularity => {}
            Some(_) => return Ok(()),
            None => {}
        }
        Err(format!("a window of {said:?} says {found:?}"))
    }
}

impl Library for EngineLibrary {
    fn fork(&mut self, threads: usize) {
        self.threads.resize_with(threads, Thread::default);
    }

    fn join(&mut self) {
        for thread in self.threads.split_off(1) {
            self.threads[0].requests.extend(thread.requests);
        }
    }

    fn start(&mut self, thread: usize, call: &Call) -> Result<(), String> {
        if let Call::Wait { window, by_test: true } = *call {
            self.threads[thread].testing = Some(self.windows[window]);
            return Ok(());
        }
        let engine = &mut self.engine;
        match *call {
            Call::Await { which, .. } => self.threads[thread].awaiting = Some(which),
            Call::Order { window, target: Some(target) } => {
                engine.order(self.windows[window], Rank(target)).map_err(say)?;
            }
            Call::Attach { window, base, len } => {
                // SAFETY: the script keeps the memory until the window is freed, and accesses it through
                // pointers only.
                #[allow(unsafe_code)]
                unsafe { engine.attach(self.windows[window], base.as_ptr(), len) }.map_err(say)?;
            }
            Call::Sync { window } => engine.sync(self.windows[window]).map_err(say)?,
            Call::Order { window, target: None } => engine.order_all(self.windows[window]).map_err(say)?,
            Call::RequestFlush { window, target, is_local, id } => {
                let request = engine.flush_request(self.windows[window], target.map(Rank), is_local);
                self.threads[thread].requests.push((id, request.map_err(say)?));
            }
            _ => self.threads[thread].under_way = Some(self.begin(call).map_err(say)?),
        }
        Ok(())
    }

    fn poll(&mut self, thread: usize) -> Result<Progress, String> {
        if let Some(window) = self.threads[thread].testing {
            if self.engine.test(window).map_err(say)? {
                self.threads[thread].testing = None;
                return Ok(Progress::Returned);
            }
            return self.progress();
        }
        if let Some(which) = self.threads[thread].awaiting {
            if self.poll_requests(thread, which)? {
                self.threads[thread].awaiting = None;
                return Ok(Progress::Returned);
            }
            return self.progress();
        }
        // What returns at once has left nothing here.
        let Some(sync) = &mut self.threads[thread].under_way else { return Ok(Progress::Returned) };
        match self.engine.poll(sync) {
            Poll::Ready(result) => {
                (self.threads[thread].under_way, self.threads[thread].patience) = (None, 0);
                result.map_err(say)?;
                self.check_options()?;
                Ok(Progress::Returned)
            }
            Poll::Pending => {
                let window = sync.window();
                let patience = &mut self.threads[thread].patience;
                *patience = (*patience + 1) % PATIENCE;
                if let (0, Some(window)) = (*patience, window) {
                    self.engine.on_kept_waiting(window);
                }
                self.progress()
            }
        }
    }

    #[allow(unsafe_code)]
    unsafe fn post(
        &mut self,
        thread: usize,
        plan: &OperationPlan,
        place: Place,
        buffers: &OriginBuffers,
    ) -> Result<Posted, String> {
        let window = self.windows[plan.window];
        let operation = operation(plan, place.disp(plan.offset), buffers);
        let shape = self.shapes.of(plan);
        let (engine, layouts) = (&mut self.engine, shape.as_ref().map(|shape| &shape.layouts));
        let posted = match (plan.form, layouts) {
            (Form::Notified { word, change }, _) => {
                let notification = Notification { disp: place.disp(word), change };
                let Operation { target, disp, origin, len, .. } = operation;
                // SAFETY: the caller's promise is the engine's.
                unsafe { engine.put_notify(window, target, disp, origin, len, &notification) }
            }
            (Form::Request, layouts) => {
                let requested = match layouts {
                    Some(layouts) => {
                        // SAFETY: the caller's promise is the engine's; the buffers were made for the layouts.
                        unsafe { engine.post_request_with_layouts(window, &operation, layouts) }
                    }
                    // SAFETY: the caller's promise is the engine's.
                    None => unsafe { engine.post_request(window, &operation) },
                };
                requested.map_ok(|request| self.threads[thread].requests.push((buffers.id, request)))
            }
            (Form::Plain, Some(layouts)) => {
                // SAFETY: the caller's promise is the engine's; the buffers were made for the layouts.
                unsafe { engine.post_with_layouts(window, &operation, layouts) }
            }
            // SAFETY: the caller's promise is the engine's.
            (Form::Plain, None) => unsafe { post_plain(engine, window, &operation) },
        };
        match posted {
            Poll::Ready(result) => result.map(|()| Posted::Done).map_err(say),
            Poll::Pending => Ok(Posted::NotNow),
        }
    }

    fn finished(&mut self, thread: usize) -> Vec<u64> {
        core::mem::take(&mut self.threads[thread].finished)
    }

    fn takes_layouts(&self) -> bool {
        true
    }

    fn progress(&mut self) -> Result<Progress, String> {
        self.engine.on_time(1);
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
        let waits = |thread: &Thread| thread.under_way.as_ref().map_or("nothing", SyncCall::waiting_for);
        let waiting_for = self.threads.iter().map(waits).collect::<Vec<_>>().join(" and ");
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

/// Puts and gets by the calls that have a fast path.
///
/// # Safety
/// As for [`Engine::post`].
#[allow(unsafe_code)]
unsafe fn post_plain(
    engine: &mut SimEngine,
    window: WindowId,
    operation: &Operation,
) -> Poll<Result<(), RmaError>> {
    let &Operation { target, disp, origin, result, len, .. } = operation;
    match operation.kind {
        // SAFETY: the caller's promise.
        OpKind::Put => unsafe { engine.put(window, target, disp, origin, len) },
        // SAFETY: the caller's promise.
        OpKind::Get => unsafe { engine.get(window, target, disp, result, len) },
        // SAFETY: the caller's promise.
        _ => unsafe { engine.post(window, operation) },
    }
}

fn operation(plan: &OperationPlan, disp: u64, buffers: &OriginBuffers) -> Operation {
    let is_requested = plan.form == Form::Request;
    let (call, kind) = match plan.verb {
        Verb::Put if is_requested => (Name::RequestPut, OpKind::Put),
        Verb::Get if is_requested => (Name::RequestGet, OpKind::Get),
        Verb::Accumulate if is_requested => (Name::RequestAccumulate, OpKind::Accumulate),
        Verb::GetAccumulate if is_requested => (Name::RequestGetAccumulate, OpKind::GetAccumulate),
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
