//! What the tasks of a run with a death call.

use core::ptr::NonNull;

use rma_core::dtype::Dtype;
use rma_core::engine::{
    Change, FenceAssert, Notification, Operation, PostAssert, SharedPart, StartAssert, SyncCall,
};
use rma_core::error::{Call, RmaError};
use rma_core::group::Group;
use rma_core::ids::Rank;
use rma_core::info::WindowOptions;
use rma_core::layout::{Layout, Layouts};
use rma_core::lock::LockType;
use rma_core::op::ReduceOp;
use rma_core::wire::OpKind;

use super::shared::{Flavor, WORD};
use super::tasks::{Task, Verb, What, DYNAMIC, EXPOSED, FENCED};
use super::{Lane, Pending, Posting, Survivor};
use crate::swarm::memory::Buffer;
use crate::world::Fault;

/// What the counter never is.
const NEVER: u64 = u64::MAX;

impl Survivor {
    /// Makes the next window.
    pub(super) fn create(&mut self, flavor: Flavor) -> Result<(), Fault> {
        let bytes = self.shared.borrow().window_bytes();
        let memory = Buffer::new(if flavor == Flavor::Allocated { 0 } else { bytes });
        let (base, options) = (memory.base(), WindowOptions::default());
        let engine = &mut self.engine;
        let started = match flavor {
            Flavor::Allocated => engine.start_allocate(bytes, 1),
            Flavor::Dynamic => engine.start_create_dynamic(&options),
            Flavor::Shared => {
                let part = SharedPart { base, len: bytes, mapping: Box::new(()), is_allocated: false };
                // SAFETY: the memory is kept until the run is over; all ranks are one thread.
                unsafe { engine.start_shared(Ok(part), 1, &options) }
            }
        };
        let (window, sync) = started.map_err(|error| self.fault(error.to_string()))?;
        self.windows.push(window);
        self.memory.push(memory);
        self.lanes[0].pending = Some(Pending::Call(sync));
        Ok(())
    }

    /// Attaches the memory that the others access in the dynamic window; they come when the window after it is made.
    pub(super) fn attach(&mut self) -> Result<(), Fault> {
        let (base, len) = (self.memory[DYNAMIC].base(), self.memory[DYNAMIC].len());
        self.shared.borrow_mut().addresses[self.rank as usize] = base.as_ptr().expose_provenance() as u64;
        // SAFETY: the memory is kept until the run is over, and accessed through pointers only.
        let attached = unsafe { self.engine.attach(self.windows[DYNAMIC], base.as_ptr(), len) };
        attached.map_err(|error| self.fault(error.to_string()))
    }

    /// Begins a task of a thread.
    pub(super) fn begin(&mut self, lane: usize, task: &Task) -> Result<(), Fault> {
        self.lanes[lane].opening = task.opens();
        match *task {
            Task::Wait { by_test: true } => {
                self.lanes[lane].pending = Some(Pending::Test(self.windows[EXPOSED]));
                Ok(())
            }
            Task::IFlush { window, target } => {
                match self.engine.flush_request(self.windows[window], target.map(Rank), false) {
                    Ok(request) => {
                        self.lanes[lane].pending = Some(Pending::Request(request));
                        Ok(())
                    }
                    Err(error) => self.end(lane, Err(error)),
                }
            }
            Task::Order { window, target } => {
                let window = self.windows[window];
                let ordered = match target {
                    Some(target) => self.engine.order(window, Rank(target)),
                    None => self.engine.order_all(window),
                };
                self.end(lane, ordered)
            }
            Task::Region => {
                let memory = Buffer::new(self.shared.borrow().part_bytes);
                let (window, base) = (self.windows[DYNAMIC], memory.base().as_ptr());
                // SAFETY: the memory is kept until the run is over, and accessed through pointers only.
                let attached = unsafe { self.engine.attach(window, base, memory.len()) };
                self.buffers.push(memory);
                attached.map_err(|error| self.fault(error.to_string()))?;
                let detached = self.engine.start_detach(window, base);
                self.wait_for(lane, detached)
            }
            Task::Operate { window, target, what } => {
                self.operate(lane, window, target, what);
                Ok(())
            }
            Task::Fork { ref threads } => {
                let begin = |tasks: &Vec<Task>| Lane { tasks: tasks.clone().into(), ..Lane::default() };
                self.lanes.extend(threads.iter().filter(|tasks| !tasks.is_empty()).map(begin));
                Ok(())
            }
            _ => {
                let started = self.start(lane, task);
                self.wait_for(lane, started)
            }
        }
    }

    /// Starts a call that is waited for.
    fn start(&mut self, lane: usize, task: &Task) -> Result<SyncCall, RmaError> {
        let size = self.shared.borrow().ranks;
        let group = |ranks: &[u32]| Group::new(&ranks.iter().copied().map(Rank).collect::<Vec<_>>(), size);
        let (engine, windows) = (&mut self.engine, &self.windows);
        match *task {
            Task::Lock { window, target, is_exclusive } => {
                let lock_type = if is_exclusive { LockType::Exclusive } else { LockType::Shared };
                engine.start_lock(windows[window], Rank(target), lock_type, false)
            }
            Task::Unlock { window, target } => engine.start_unlock(windows[window], Rank(target)),
            Task::LockAll { window } => engine.start_lock_all(windows[window], false),
            Task::UnlockAll { window } => engine.start_unlock_all(windows[window]),
            Task::Post { ref origins, no_check } => {
                let assert = PostAssert { no_check, ..PostAssert::default() };
                engine.start_post(windows[EXPOSED], &group(origins)?, assert)
            }
            Task::Start { ref targets } => {
                engine.start_start(windows[EXPOSED], &group(targets)?, StartAssert::default())
            }
            Task::Complete => engine.start_complete(windows[EXPOSED]),
            Task::Wait { .. } => engine.start_wait(windows[EXPOSED]),
            Task::Fence { no_precede, no_succeed } => {
                let fences = &mut self.shared.borrow_mut().fences[self.rank as usize];
                *fences += 1;
                self.lanes[lane].fence = (!no_precede).then_some(*fences);
                let assert = FenceAssert { no_precede, no_succeed, ..FenceAssert::default() };
                engine.start_fence(windows[FENCED], assert)
            }
            Task::Flush { window, target: Some(target), is_local: false } => {
                engine.start_flush(windows[window], Rank(target))
            }
            Task::Flush { window, target: Some(target), is_local: true } => {
                engine.start_flush_local(windows[window], Rank(target))
            }
            Task::Flush { window, target: None, is_local: false } => engine.start_flush_all(windows[window]),
            Task::Flush { window, target: None, is_local: true } => {
                engine.start_flush_local_all(windows[window])
            }
            Task::AwaitNotes { until } => {
                engine.start_wait_notification(windows[super::tasks::LOCKED], WORD as u64, until)
            }
            Task::IFlush { .. }
            | Task::Order { .. }
            | Task::Region
            | Task::Operate { .. }
            | Task::Fork { .. } => unreachable!("they are begun otherwise"),
        }
    }

    fn operate(&mut self, lane: usize, window: usize, target: u32, what: What) {
        let mut shared = self.shared.borrow_mut();
        let (part_bytes, at) = (shared.part_bytes, (target as usize, self.rank as usize));
        let part = (shared.head_bytes() + part_bytes * self.rank as usize) as u64;
        let of_part = |call, kind, value| (call, kind, ReduceOp::Replace, part, part_bytes, value);
        let of_counter = |call, kind, op, value| (call, kind, op, 0, WORD, value);
        let (sum, replace) = (ReduceOp::Sum, ReduceOp::Replace);
        let (call, kind, op, disp, len, value) = match what.verb {
            Verb::Count => of_counter(Call::Accumulate, OpKind::Accumulate, sum, 1),
            Verb::FetchCount { is_single: true } => {
                of_counter(Call::FetchAndOp, OpKind::GetAccumulate, sum, 1)
            }
            Verb::FetchCount { is_single: false } => {
                of_counter(Call::GetAccumulate, OpKind::GetAccumulate, sum, 1)
            }
            Verb::Swap => of_counter(Call::CompareAndSwap, OpKind::CompareAndSwap, replace, NEVER),
            Verb::Put(value) => of_part(Call::Put, OpKind::Put, value),
            Verb::Replace(value) => of_part(Call::Accumulate, OpKind::Accumulate, value),
            Verb::GetReplace(value) => of_part(Call::GetAccumulate, OpKind::GetAccumulate, value),
            Verb::Notify(value) => of_part(Call::PutNotify, OpKind::Put, value),
            Verb::Get => of_part(Call::Get, OpKind::Get, 0),
        };
        match what.verb {
            Verb::Count | Verb::FetchCount { .. } => shared.counted[window][at.0][at.1] += 1,
            Verb::Put(value) | Verb::Replace(value) | Verb::GetReplace(value) => {
                shared.put[window][at.0][at.1] = value;
            }
            Verb::Notify(value) => {
                shared.put[window][at.0][at.1] = value;
                shared.noted[window][at.0][at.1] += 1;
            }
            Verb::Swap | Verb::Get => {}
        }
        let base = if window == DYNAMIC { shared.addresses[at.0] } else { 0 };
        let is_atomic = !matches!(kind, OpKind::Put | OpKind::Get);
        let takes_layouts = len > WORD && !matches!(what.verb, Verb::Notify(_));
        let layouts = if what.has_layouts && takes_layouts { layouts(len) } else { None };
        drop(shared);
        // With gaps it is twice as long.
        let [origin, result] = [value, 0].map(|value| self.buffer(2 * len, value));
        let compare = self.buffer(WORD, NEVER).as_ptr().cast_const();
        let operation = Operation {
            call,
            kind,
            dtype: if is_atomic { Dtype::U64 } else { Dtype::U8 },
            op,
            target: Rank(target),
            disp: base + disp,
            len,
            origin: origin.as_ptr(),
            result: result.as_ptr(),
            compare,
        };
        let note = Notification { disp: base + WORD as u64, change: Change::Add(1) };
        let has_note = matches!(what.verb, Verb::Notify(_));
        let may_request =
            !has_note && !matches!(what.verb, Verb::Swap | Verb::FetchCount { is_single: true });
        self.lanes[lane].pending = Some(Pending::Post(Box::new(Posting {
            operation,
            window: self.windows[window],
            by_request: what.by_request && may_request,
            layouts,
            note: has_note.then_some(note),
        })));
    }

    /// Memory of an operation, kept until the end.
    fn buffer(&mut self, len: usize, value: u64) -> NonNull<u8> {
        let buffer = Buffer::of(&value.to_ne_bytes().repeat(len.div_ceil(WORD)));
        let base = buffer.base();
        self.buffers.push(buffer);
        base
    }
}

/// Every word of a range, first the even ones, from and to buffers with a gap behind each word.
fn layouts(len: usize) -> Option<Layouts> {
    let words = (len / WORD) as u64;
    let word = Layout::of(Dtype::U64);
    let spread = Layout::vector(words, 1, 2, &word).ok()?;
    let places = (0..words).step_by(2).chain((1..words).step_by(2));
    let blocks: Vec<_> = places.map(|word| (1, word as i64 * WORD as i64)).collect();
    let target = Layout::hindexed(&blocks, &word).ok()?;
    Some(Layouts { origin: Some(spread.clone()), result: Some(spread), target: Some(target) })
}
