//! A model of MPI in a few lines, and the same with mistakes: it shows that the plans are correct programs
//! and that the oracle finds what it is there to find.

mod tests;

use core::cell::RefCell;
use core::ops::Range;
use core::ptr::NonNull;
use std::rc::Rc;

use rma_core::dtype::Dtype;
use rma_core::engine::Change;
use rma_core::op::ReduceOp;

use super::library::{Call, Library, OriginBuffers, Place, Posted, Progress};
use super::memory::Exposed;
use super::plan::{Form, Members, OperationPlan, Verb, Which};
use crate::arithmetic;
use crate::random::Random;

/// What the model does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    None,
    /// An exclusive lock is granted whoever holds it.
    TwoExclusive,
    /// Flush and unlock return before anything has moved.
    SkipFlush,
    /// Fences do not wait for the others.
    LoneFence,
    /// Fetch-and-op and the like read first and write at the next completion.
    TornAtomic,
    /// A put is written again later, from a buffer that is the user's again.
    LatePut,
    /// Accumulates to one location may pass each other.
    Unordered,
    /// Unlock never releases.
    LostUnlock,
    /// Wait returns whether the origins have completed or not.
    EarlyWait,
    /// The word that tells of a put changes before the put is made.
    EarlyNote,
    /// What is ordered behind something passes it.
    OrderIgnored,
    /// A request is done before its operation.
    EarlyRequest,
    /// Memory that is not attached any more, or not yet, is accessed like any other.
    DetachedServed,
    /// Flush completes what its own thread has posted.
    OwnThreadOnly,
    /// Lock and start return at once, and fences that nothing precedes, though memory is shared.
    SharedUnawaited,
}

/// The attached regions of a window, with their ranks.
type Regions = Vec<(u32, Range<usize>)>;

/// What all ranks see.
struct World {
    mistake: Mistake,
    memory: Vec<Vec<Exposed>>,
    /// Of each window and rank: collective calls begun, fences begun, locks held and waited for.
    collective: Vec<Vec<usize>>,
    fences: Vec<Vec<usize>>,
    locks: Vec<Vec<Vec<Request>>>,
    /// Of each window and rank: the origins that are yet to complete, while it is exposed.
    exposed: Vec<Vec<Option<Members>>>,
    /// Of each window, if it is dynamic.
    regions: Vec<Option<Regions>>,
    /// Of each window: direct accesses follow the calls that allow them.
    is_shared: Vec<bool>,
    random: Random,
}

/// In the order of arrival; those at the front that do not conflict are granted.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Request {
    rank: u32,
    is_exclusive: bool,
}

/// An operation that was posted, and where its memory is.
#[derive(Clone, Copy)]
struct Pending {
    plan: OperationPlan,
    thread: usize,
    /// Behind so many calls of order.
    section: u64,
    origin: Exposed,
    compare: Exposed,
    result: Exposed,
}

/// Name, window, target (all, if `None`).
type Requested = (u64, usize, Option<u32>);

struct Model {
    rank: u32,
    world: Rc<RefCell<World>>,
    /// Of each thread.
    calling: Vec<Option<Call>>,
    /// Locks called for: window, target (all, if `None`), exclusive.
    wanted: Vec<(usize, Option<u32>, bool)>,
    posted: Vec<Pending>,
    /// Calls of order so far.
    sections: u64,
    /// Requests that were not found done, and the names of those that were, of each thread.
    requests: Vec<Vec<Requested>>,
    finished: Vec<Vec<u64>>,
    disp_units: Vec<u32>,
    /// The group of start.
    targets: Members,
    late: Vec<(Pending, Vec<u8>)>,
    /// An operation found no region.
    has_strayed: bool,
}

impl World {
    fn is_granted(&self, window: usize, target: u32, rank: u32) -> bool {
        let queue = &self.locks[window][target as usize];
        let Some(at) = queue.iter().position(|request| request.rank == rank) else { return false };
        self.mistake == Mistake::TwoExclusive
            || queue[..at].iter().all(|before| !before.is_exclusive && !queue[at].is_exclusive)
    }

    /// Whether the memory that an operation accesses is there.
    fn is_attached(&self, plan: &OperationPlan) -> bool {
        let within = |(rank, region): &(u32, Range<usize>)| {
            *rank == plan.target && region.start <= plan.offset && plan.offset + plan.len <= region.end
        };
        self.regions[plan.window].as_ref().is_none_or(|regions| regions.iter().any(within))
    }

    /// The place of an address in the memory of a rank.
    fn offset_of(&self, window: usize, rank: usize, base: NonNull<u8>) -> usize {
        let first = self.memory[window][rank].place(0).map_or(0, |first| first.addr().get());
        base.addr().get() - first
    }

    /// Whether calls wait for what allows direct accesses.
    fn awaits_grants(&self, window: usize) -> bool {
        self.is_shared[window] && self.mistake != Mistake::SharedUnawaited
    }

    /// Whether all ranks of the group expose a window to `rank`.
    fn is_exposed(&self, window: usize, group: Members, rank: u32) -> bool {
        let exposes =
            |target: u32| self.exposed[window][target as usize].is_some_and(|origins| origins.contains(rank));
        group.iter().all(exposes)
    }

    /// Whether all ranks have begun as many as `rank`.
    fn is_collective(begun: &[usize], rank: u32) -> bool {
        begun.iter().all(|&count| count >= begun[rank as usize])
    }
}

impl Model {
    fn acquire(&mut self, window: usize, target: u32) -> bool {
        let meant = |&&(w, t, _): &&(usize, Option<u32>, bool)| w == window && t.is_none_or(|t| t == target);
        let Some(&(_, _, is_exclusive)) = self.wanted.iter().find(meant) else { return true };
        let mut world = self.world.borrow_mut();
        let queue = &mut world.locks[window][target as usize];
        if !queue.iter().any(|request| request.rank == self.rank) {
            queue.push(Request { rank: self.rank, is_exclusive });
        }
        world.is_granted(window, target, self.rank)
    }

    /// Whether lock or lock_all (of `None`) may return: where memory is shared, when the locks are held.
    fn may_access(&mut self, window: usize, target: Option<u32>) -> bool {
        if !self.world.borrow().awaits_grants(window) {
            return true;
        }
        let ranks = self.world.borrow().locks[window].len() as u32;
        let mut targets = target.map_or(0..ranks, |target| target..target + 1);
        targets.all(|target| self.acquire(window, target))
    }

    /// Executes what was posted to the window and target; false: a lock is not granted yet.
    fn complete(&mut self, window: usize, target: Option<u32>) -> bool {
        self.complete_of(None, window, target)
    }

    /// Executes what a thread must complete that flushes: everybody's.
    fn flush(&mut self, thread: usize, window: usize, target: Option<u32>) -> bool {
        let is_narrow = self.world.borrow().mistake == Mistake::OwnThreadOnly;
        self.complete_of(is_narrow.then_some(thread), window, target)
    }

    fn complete_of(&mut self, thread: Option<usize>, window: usize, target: Option<u32>) -> bool {
        let is_meant = |posted: &Pending| {
            posted.plan.window == window
                && target.is_none_or(|target| target == posted.plan.target)
                && thread.is_none_or(|thread| thread == posted.thread)
        };
        let mut targets: Vec<_> =
            self.posted.iter().filter(|posted| is_meant(posted)).map(|posted| posted.plan.target).collect();
        targets.dedup();
        if !targets.iter().all(|&target| self.acquire(window, target)) {
            return false;
        }
        let (mut due, left): (Vec<_>, Vec<_>) = self.posted.iter().copied().partition(is_meant);
        self.posted = left;
        let mut world = self.world.borrow_mut();
        if world.mistake == Mistake::SkipFlush {
            return true;
        }
        if world.mistake == Mistake::OrderIgnored {
            due.iter_mut().for_each(|posted| posted.section = 0);
        }
        let due = world.in_some_order(due);
        for (posted, update) in core::mem::take(&mut self.late) {
            world.write(&posted, &update);
        }
        for posted in due {
            if !world.is_attached(&posted.plan) && world.mistake != Mistake::DetachedServed {
                self.has_strayed = true;
                continue;
            }
            let update = world.execute(&posted);
            let verb = posted.plan.verb;
            if world.mistake == Mistake::TornAtomic && verb == Verb::FetchAndOp {
                self.late.push((posted, update));
                continue;
            }
            if world.mistake == Mistake::LatePut && verb == Verb::Put {
                self.posted.push(posted);
            }
            world.write(&posted, &update);
            world.note(&posted);
        }
        true
    }

    /// Completes what requests are for.
    fn finish(&mut self, thread: usize, which: Which) -> bool {
        let requests = core::mem::take(&mut self.requests[thread]);
        let (count, mut is_over) = (requests.len(), true);
        for (at, (id, window, target)) in requests.into_iter().enumerate() {
            let is_meant = match which {
                Which::All => true,
                Which::Any => self.finished[thread].is_empty(),
                Which::Oldest => at == 0,
                Which::Newest => at + 1 == count,
            };
            let is_early = self.world.borrow().mistake == Mistake::EarlyRequest;
            if is_meant && (is_early || self.complete(window, target)) {
                self.finished[thread].push(id);
            } else {
                is_over &= !is_meant;
                self.requests[thread].push((id, window, target));
            }
        }
        is_over || (which == Which::Any && !self.finished[thread].is_empty())
    }

    /// The word of this rank's own window that tells of puts.
    fn noticed(&self, window: usize, disp: u64) -> u64 {
        let memory = self.exposed(window);
        let is_dynamic = self.world.borrow().regions[window].is_some();
        let base = memory.place(0).filter(|_| is_dynamic).map_or(0, |base| base.addr().get() as u64);
        let mut raw = [0; 8];
        let offset = ((disp - base) * u64::from(self.disp_units[window])) as usize;
        raw.copy_from_slice(&memory.read(offset, 8));
        u64::from_ne_bytes(raw)
    }

    fn release(&mut self, window: usize, target: Option<u32>) {
        self.wanted.retain(|&(w, t, _)| w != window || t != target);
        let mut world = self.world.borrow_mut();
        if world.mistake == Mistake::LostUnlock {
            return;
        }
        let rank = self.rank;
        for (at, queue) in world.locks[window].iter_mut().enumerate() {
            if target.is_none_or(|target| target as usize == at) {
                queue.retain(|request| request.rank != rank);
            }
        }
    }

    fn go_on(&mut self, thread: usize, call: Call) -> bool {
        match call {
            Call::Create { window, .. } | Call::Free { window } => {
                World::is_collective(&self.world.borrow().collective[window], self.rank)
            }
            Call::Fence { window, assertions } => {
                let all_here = World::is_collective(&self.world.borrow().fences[window], self.rank);
                let is_lone = self.world.borrow().mistake == Mistake::LoneFence;
                let no_wait = assertions.no_precede && !self.world.borrow().awaits_grants(window);
                no_wait || all_here || is_lone
            }
            Call::Lock { window, target, .. } => self.may_access(window, Some(target)),
            Call::LockAll { window, .. } => self.may_access(window, None),
            Call::Unlock { window, target } => {
                let done = self.acquire(window, target) && self.complete(window, Some(target));
                if done {
                    self.release(window, Some(target));
                }
                done
            }
            Call::UnlockAll { window } => {
                let done = self.complete(window, None);
                if done {
                    self.release(window, None);
                }
                done
            }
            Call::Flush { window, target, .. } => self.flush(thread, window, target),
            Call::FlushTargets { window, targets } => {
                targets.iter().all(|target| self.flush(thread, window, Some(target)))
            }
            Call::Await { which, .. } => self.finish(thread, which),
            Call::AwaitNotice { window, disp, until } => self.noticed(window, disp) >= until,
            Call::Start { window, group, .. } => {
                let world = self.world.borrow();
                !world.awaits_grants(window) || world.is_exposed(window, group, self.rank)
            }
            Call::Post { .. } | Call::Order { .. } | Call::Sync { .. } => true,
            Call::RequestFlush { .. } | Call::Attach { .. } | Call::Detach { .. } => true,
            Call::Complete { window } => {
                let (rank, targets) = (self.rank, self.targets);
                let is_exposed = self.world.borrow().is_exposed(window, targets, rank);
                if is_exposed {
                    self.complete(window, None);
                    let mut world = self.world.borrow_mut();
                    for target in targets.iter() {
                        if let Some(origins) = &mut world.exposed[window][target as usize] {
                            origins.remove(rank);
                        }
                    }
                }
                is_exposed
            }
            Call::Wait { window, .. } => {
                let mut world = self.world.borrow_mut();
                let is_over = world.exposed[window][self.rank as usize] == Some(Members::default());
                if is_over || world.mistake == Mistake::EarlyWait {
                    world.exposed[window][self.rank as usize] = None;
                }
                is_over || world.mistake == Mistake::EarlyWait
            }
        }
    }
}

impl World {
    fn write(&self, posted: &Pending, bytes: &[u8]) {
        let OperationPlan { window, target, offset, .. } = posted.plan;
        self.memory[window][target as usize].write(offset, bytes);
    }

    /// Within a section puts and gets pass each other and everything else; accumulates keep their order, and
    /// notified puts.
    fn in_some_order(&mut self, mut posted: Vec<Pending>) -> Vec<Pending> {
        let mut all = Vec::new();
        while let Some(section) = posted.iter().map(|posted| posted.section).min() {
            let mut due: Vec<_> = posted.extract_if(.., |posted| posted.section == section).collect();
            let is_free = |posted: &mut Pending| {
                !posted.plan.verb.is_ordered() && !matches!(posted.plan.form, Form::Notified { .. })
            };
            let mut later: Vec<_> = due.extract_if(.., is_free).collect();
            while !later.is_empty() {
                let chosen = later.swap_remove(self.random.index(later.len()));
                let place = self.random.index(due.len() + 1);
                due.insert(place, chosen);
            }
            if self.mistake == Mistake::Unordered {
                due.reverse();
            }
            all.append(&mut due);
        }
        all
    }

    /// Changes the word that tells of a put.
    fn note(&self, posted: &Pending) {
        let Form::Notified { word, change } = posted.plan.form else { return };
        let (op, operand) = match change {
            Change::Add(number) => (ReduceOp::Sum, number),
            Change::Set(number) => (ReduceOp::Replace, number),
        };
        let memory = self.memory[posted.plan.window][posted.plan.target as usize];
        let mut bytes = memory.read(word, 8);
        arithmetic::reduce(Dtype::U64, op, &mut bytes, &operand.to_ne_bytes());
        memory.write(word, &bytes);
    }

    /// The new bytes of the target; the old ones go to the result.
    fn execute(&mut self, posted: &Pending) -> Vec<u8> {
        let OperationPlan { verb, window, target, offset, len, dtype, op, .. } = posted.plan;
        let mut bytes = self.memory[window][target as usize].read(offset, len);
        if verb.has_result() {
            posted.result.write(0, &bytes);
        }
        if verb == Verb::Get {
            return bytes;
        }
        let operand = posted.origin.read(0, len);
        match verb {
            Verb::Put => bytes = operand,
            Verb::CompareAndSwap => {
                if arithmetic::equal(dtype, &bytes, &posted.compare.read(0, len)) {
                    bytes = operand;
                }
            }
            _ => {
                arithmetic::reduce(dtype, op, &mut bytes, &operand);
            }
        }
        bytes
    }
}

impl Library for Model {
    fn fork(&mut self, threads: usize) {
        self.calling.resize(threads, None);
        self.requests.resize(threads, Vec::new());
        self.finished.resize(threads, Vec::new());
    }

    fn join(&mut self) {
        let left = self.requests.split_off(1).into_iter().flatten();
        self.requests[0].extend(left);
        self.calling.truncate(1);
        self.finished.truncate(1);
    }

    fn start(&mut self, thread: usize, call: &Call) -> Result<(), String> {
        let mut world = self.world.borrow_mut();
        let rank = self.rank as usize;
        match *call {
            Call::Create { window, memory, len, disp_unit, is_dynamic, is_shared, .. } => {
                self.disp_units.push(disp_unit);
                world.collective[window][rank] += 1;
                let base = memory.ok_or("the plan lets this model allocate nothing")?;
                // SAFETY: the script keeps its windows until it is dropped.
                #[allow(unsafe_code)]
                let exposed = unsafe { Exposed::new(base, len) };
                world.memory[window][rank] = exposed;
                world.is_shared[window] = is_shared;
                if is_dynamic {
                    world.regions[window].get_or_insert_default();
                }
            }
            Call::Attach { window, base, len } => {
                let offset = world.offset_of(window, rank, base);
                let regions = world.regions[window].get_or_insert_default();
                regions.push((self.rank, offset..offset + len));
            }
            Call::Detach { window, base } => {
                let offset = world.offset_of(window, rank, base);
                let regions = world.regions[window].get_or_insert_default();
                regions.retain(|(of, region)| (*of, region.start) != (self.rank, offset));
            }
            Call::Free { window } => world.collective[window][rank] += 1,
            Call::Fence { window, .. } => {
                drop(world);
                // What was posted in the epoch that ends: everybody has begun it.
                self.complete(window, None);
                self.world.borrow_mut().fences[window][rank] += 1;
            }
            Call::Lock { window, target, is_exclusive, no_check } if !no_check => {
                self.wanted.push((window, Some(target), is_exclusive));
            }
            Call::Post { window, group, .. } => world.exposed[window][rank] = Some(group),
            Call::Start { group, .. } => {
                drop(world);
                self.targets = group;
            }
            Call::Order { .. } => self.sections += 1,
            Call::RequestFlush { window, target, id, .. } => self.requests[thread].push((id, window, target)),
            Call::LockAll { window, no_check } if !no_check => self.wanted.push((window, None, false)),
            _ => {}
        }
        self.calling[thread] = Some(*call);
        Ok(())
    }

    fn poll(&mut self, thread: usize) -> Result<Progress, String> {
        let Some(call) = self.calling[thread] else { return Err("no call is under way".into()) };
        let is_over = self.go_on(thread, call);
        if core::mem::take(&mut self.has_strayed) {
            return Err("MPI_ERR_RMA_RANGE".into());
        }
        Ok(if is_over { Progress::Returned } else { Progress::Waiting })
    }

    #[allow(unsafe_code)]
    unsafe fn post(
        &mut self,
        thread: usize,
        operation: &OperationPlan,
        _place: Place,
        buffers: &OriginBuffers,
    ) -> Result<Posted, String> {
        let world = self.world.borrow();
        let window = operation.window;
        if self.wanted.is_empty() && !World::is_collective(&world.fences[window], self.rank) {
            // A fence that did not wait: the others have not begun the epoch.
            let is_lone = world.mistake == Mistake::LoneFence;
            return Ok(if is_lone { Posted::Done } else { Posted::NotNow });
        }
        let len = operation.len;
        let origin_len = if operation.verb == Verb::Get { 0 } else { len };
        let compare_len = if operation.verb == Verb::CompareAndSwap { len } else { 0 };
        let result_len = if operation.verb.has_result() { len } else { 0 };
        // SAFETY: the caller keeps the buffers until a completing call has returned (and longer).
        let exposed = |base, len| unsafe { Exposed::new(base, len) };
        let mut posted = Pending {
            plan: *operation,
            thread,
            section: self.sections,
            origin: exposed(buffers.origin, origin_len),
            compare: exposed(buffers.compare, compare_len),
            result: exposed(buffers.result, result_len),
        };
        if world.mistake == Mistake::EarlyNote {
            world.note(&posted);
            posted.plan.form = Form::Plain;
        }
        drop(world);
        if operation.form == Form::Request {
            self.requests[thread].push((buffers.id, window, Some(operation.target)));
        }
        self.posted.push(posted);
        Ok(Posted::Done)
    }

    fn finished(&mut self, thread: usize) -> Vec<u64> {
        core::mem::take(&mut self.finished[thread])
    }

    fn progress(&mut self) -> Result<Progress, String> {
        Ok(Progress::Waiting)
    }

    fn exposed(&self, window: usize) -> Exposed {
        self.world.borrow().memory[window][self.rank as usize]
    }

    fn check_idle(&self) -> Result<(), String> {
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{} posted", self.posted.len())
    }
}

impl Verb {
    fn is_ordered(self) -> bool {
        !matches!(self, Self::Put | Self::Get)
    }
}
