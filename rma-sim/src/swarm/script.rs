//! One rank's part of a plan, run step by step, with the oracle asked at every return.

use core::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;

use rma_core::dtype::Dtype;

use super::draw::numbers;
use super::library::{Call, Library, OriginBuffers, Progress};
use super::memory::Buffer;
use super::oracle::{Expectation, Oracle, Snapshot};
use super::plan::{Action, OperationPlan, Payload, Plan, Role, Verb};
use super::shape::Shape;
use crate::random::Random;
use crate::world::{Fault, RankProgram, Step};

/// What the ranks of a run share outside the simulated library.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plan: Plan,
    oracle: Oracle,
    /// Meetings that are over. Phase `n` lies between meetings `n` and `n + 1`.
    meetings: usize,
    arrived: u32,
    /// The others are elsewhere.
    alone: Option<Alone>,
}

/// What a rank needs whose fellows are other processes.
pub(super) struct Alone {
    /// What the windows hold at the end of each phase.
    pub(super) ends: Vec<Snapshot>,
    /// Waits until all ranks have come.
    pub(super) barrier: Box<dyn FnMut() -> Result<(), String>>,
}

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alone").field("ends", &self.ends.len()).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(plan: &Plan) -> Rc<RefCell<Self>> {
        let oracle = Oracle::new(&plan.windows);
        Rc::new(RefCell::new(Self { plan: plan.clone(), oracle, meetings: 0, arrived: 0, alone: None }))
    }

    /// For one rank of a job whose others are elsewhere.
    pub(super) fn of_rank(plan: &Plan, rank: u32, alone: Alone) -> Rc<RefCell<Self>> {
        let oracle = Oracle::of_rank(&plan.windows, rank);
        let (plan, alone) = (plan.clone(), Some(alone));
        Rc::new(RefCell::new(Self { plan, oracle, meetings: 0, arrived: 0, alone }))
    }

    pub(super) fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// A rank arrives; true when it was the last, and all go on.
    fn arrive(&mut self) -> Result<bool, String> {
        if let Some(alone) = &mut self.alone {
            (alone.barrier)()?;
            if let Some(end) = self.meetings.checked_sub(1).and_then(|phase| alone.ends.get(phase)) {
                self.oracle.end_phase_alone(end)?;
            }
            if let Some(phase) = self.plan.phases.get(self.meetings) {
                self.oracle.begin_phase(phase);
            }
            (alone.barrier)()?;
            self.meetings += 1;
            return Ok(true);
        }
        self.arrived += 1;
        if self.arrived < self.plan.fabric.ranks {
            return Ok(false);
        }
        if self.meetings > 0 {
            self.oracle.end_phase()?;
        }
        if let Some(phase) = self.plan.phases.get(self.meetings) {
            self.oracle.begin_phase(phase);
        }
        self.meetings += 1;
        self.arrived = 0;
        Ok(true)
    }
}

/// Where a script is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Creating(usize),
    /// At the meeting of this number, having arrived.
    Meeting(usize),
    Phase {
        index: usize,
        action: usize,
    },
    Freeing(usize),
    Finished,
}

/// An operation that is posted and not known to be complete.
#[derive(Debug)]
struct InFlight {
    plan: OperationPlan,
    expectation: Expectation,
    origin: Buffer,
    compare: Buffer,
    result: Buffer,
}

/// Buffers that the library must not touch any more: poisoned, and kept for a while, so that a library
/// which does touch them reads nonsense and does no harm.
#[derive(Default, Debug)]
struct Graves {
    buffers: VecDeque<Buffer>,
    bytes: usize,
}

impl Graves {
    const BYTES_MAX: usize = 1 << 20;

    fn bury(&mut self, buffer: Buffer) {
        buffer.poison();
        self.bytes += buffer.len();
        self.buffers.push_back(buffer);
        while self.bytes > Self::BYTES_MAX {
            self.bytes -= self.buffers.pop_front().map_or(0, |oldest| oldest.len());
        }
    }
}

/// A lock that was called for.
#[derive(Debug)]
struct Section {
    window: usize,
    target: Option<u32>,
    is_exclusive: bool,
    no_check: bool,
    /// Ranks that got operations: only there the lock must have been acquired.
    touched: Vec<u32>,
}

/// A rank that runs its script on a library.
pub(super) struct RankScript<L> {
    rank: u32,
    library: L,
    shared: Rc<RefCell<Shared>>,
    stage: Stage,
    calling: Option<Call>,
    away: u32,
    in_flight: Vec<InFlight>,
    sections: Vec<Section>,
    /// The memory of created windows.
    windows: Vec<Buffer>,
    graves: Graves,
    last_result: u64,
    /// What each swap span was seen as last, and how many values were made up.
    guesses: BTreeMap<usize, u64>,
    unique: u64,
    /// Calls returned and operations posted.
    milestones: u64,
}

impl<L: Library> RankScript<L> {
    pub(super) fn new(rank: u32, library: L, shared: Rc<RefCell<Shared>>) -> Self {
        Self {
            rank,
            library,
            shared,
            stage: Stage::Creating(0),
            calling: None,
            away: 0,
            in_flight: Vec::new(),
            sections: Vec::new(),
            windows: Vec::new(),
            graves: Graves::default(),
            last_result: 0,
            guesses: BTreeMap::new(),
            unique: 0,
            milestones: 0,
        }
    }

    pub(super) fn library(&self) -> &L {
        &self.library
    }

    /// What comes next, when no call is under way.
    fn proceed(&mut self) -> Result<Step, Fault> {
        match self.stage {
            Stage::Creating(window) => self.create(window),
            Stage::Meeting(number) => self.wait_for_meeting(number),
            Stage::Phase { index, action } => self.act(index, action),
            Stage::Freeing(window) => self.free(window),
            Stage::Finished => {
                // Busy keeps the rank stepped; that it has finished is known already.
                self.progress(Step::Finished)
            }
        }
    }

    fn progress(&mut self, otherwise: Step) -> Result<Step, Fault> {
        match self.library.progress().map_err(Fault::Engine)? {
            Progress::Moved => Ok(Step::Busy),
            Progress::Returned | Progress::Waiting => Ok(otherwise),
        }
    }

    fn create(&mut self, window: usize) -> Result<Step, Fault> {
        let drawn = {
            let shared = self.shared.borrow();
            let rank = self.rank as usize;
            shared
                .plan
                .windows
                .get(window)
                .map(|plan| (plan.bytes[rank], plan.disp_unit[rank], plan.is_allocated))
        };
        let Some((len, disp_unit, is_allocated)) = drawn else { return self.meet(0) };
        self.windows.push(Buffer::new(if is_allocated { 0 } else { len }));
        let memory = (!is_allocated).then(|| self.windows[window].base());
        self.call(Call::Create { window, memory, len, disp_unit })
    }

    fn free(&mut self, window: usize) -> Result<Step, Fault> {
        if window < self.windows.len() {
            return self.call(Call::Free { window });
        }
        self.stage = Stage::Finished;
        Ok(Step::Finished)
    }

    fn meet(&mut self, number: usize) -> Result<Step, Fault> {
        self.stage = Stage::Meeting(number);
        self.guesses.clear();
        let is_last = self.shared.borrow_mut().arrive().map_err(Fault::Oracle)?;
        Ok(if is_last { Step::WakesAll } else { Step::Busy })
    }

    fn wait_for_meeting(&mut self, number: usize) -> Result<Step, Fault> {
        if self.shared.borrow().meetings <= number {
            return self.progress(Step::Waiting);
        }
        let has_phase = number < self.shared.borrow().plan.phases.len();
        self.stage = if has_phase { Stage::Phase { index: number, action: 0 } } else { Stage::Freeing(0) };
        Ok(Step::Busy)
    }

    fn act(&mut self, index: usize, action: usize) -> Result<Step, Fault> {
        let next = {
            let shared = self.shared.borrow();
            shared.plan.phases[index].scripts[self.rank as usize].get(action).copied()
        };
        let Some(next) = next else { return self.meet(index + 1) };
        match next {
            Action::Operation(plan) => self.post(&plan),
            Action::Away(steps) => {
                self.away = steps;
                self.advance();
                Ok(Step::Busy)
            }
            Action::Fence { window, assertions, .. } => self.call(Call::Fence { window, assertions }),
            Action::Lock { window, target, is_exclusive, no_check } => {
                self.open(window, Some(target), is_exclusive, no_check);
                self.call(Call::Lock { window, target, is_exclusive, no_check })
            }
            Action::LockAll { window, no_check } => {
                self.open(window, None, false, no_check);
                self.call(Call::LockAll { window, no_check })
            }
            Action::Unlock { window, target } => {
                self.shared.borrow_mut().oracle.on_release(window, Some(target), self.rank);
                self.call(Call::Unlock { window, target })
            }
            Action::UnlockAll { window } => {
                self.shared.borrow_mut().oracle.on_release(window, None, self.rank);
                self.call(Call::UnlockAll { window })
            }
            Action::Flush { window, target, is_local } => self.call(Call::Flush { window, target, is_local }),
            Action::Post { window, group, no_check } => self.call(Call::Post { window, group, no_check }),
            Action::Start { window, group, no_check } => self.call(Call::Start { window, group, no_check }),
            Action::Complete { window } => self.call(Call::Complete { window }),
            Action::Wait { window, by_test, .. } => self.call(Call::Wait { window, by_test }),
        }
    }

    /// The next action of the phase is due.
    fn advance(&mut self) {
        self.milestones += 1;
        if let Stage::Phase { action, .. } = &mut self.stage {
            *action += 1;
        }
    }

    fn open(&mut self, window: usize, target: Option<u32>, is_exclusive: bool, no_check: bool) {
        self.sections.push(Section { window, target, is_exclusive, no_check, touched: Vec::new() });
    }

    fn call(&mut self, call: Call) -> Result<Step, Fault> {
        self.library.start(&call).map_err(|error| self.blame(&call, &error))?;
        self.calling = Some(call);
        self.poll(call)
    }

    fn poll(&mut self, call: Call) -> Result<Step, Fault> {
        match self.library.poll().map_err(|error| self.blame(&call, &error))? {
            Progress::Returned => {}
            Progress::Moved => return Ok(Step::Busy),
            Progress::Waiting => return Ok(Step::Waiting),
        }
        self.calling = None;
        let stage = self.stage;
        self.on_return(call).map_err(|text| Fault::Oracle(format!("after {call:?} in {stage:?}: {text}")))?;
        self.advance();
        Ok(Step::Busy)
    }

    fn blame(&self, call: &Call, error: &str) -> Fault {
        Fault::Engine(format!("{call:?} in {:?}: {error}", self.stage))
    }

    fn on_return(&mut self, call: Call) -> Result<(), String> {
        let shared = Rc::clone(&self.shared);
        match call {
            Call::Create { window, .. } => {
                let exposed = self.library.exposed(window);
                shared.borrow_mut().oracle.on_created(window, self.rank, exposed);
                self.stage = Stage::Creating(window + 1);
            }
            Call::Free { window } => self.stage = Stage::Freeing(window + 1),
            Call::Fence { window, .. } => {
                self.complete(window, None)?;
                if let Some(parity) = self.closes() {
                    shared.borrow().oracle.on_fence(self.rank, window, parity)?;
                }
            }
            Call::Lock { .. } | Call::LockAll { .. } | Call::Post { .. } | Call::Start { .. } => {}
            // Whether the operations have arrived is for the targets to say.
            Call::Complete { window } => self.complete(window, None)?,
            Call::Wait { window, .. } => {
                if let Some(round) = self.closes() {
                    shared.borrow().oracle.on_fence(self.rank, window, round)?;
                }
            }
            Call::Unlock { window, target } => self.on_unlocked(window, Some(target))?,
            Call::UnlockAll { window } => self.on_unlocked(window, None)?,
            Call::Flush { window, target, is_local } => {
                self.complete(window, target)?;
                if !is_local {
                    shared.borrow().oracle.on_complete(self.rank, window, target)?;
                    self.note_held(window, target)?;
                }
            }
        }
        Ok(())
    }

    fn on_unlocked(&mut self, window: usize, target: Option<u32>) -> Result<(), String> {
        self.sections.retain(|section| section.window != window || section.target != target);
        self.complete(window, target)?;
        self.shared.borrow().oracle.on_complete(self.rank, window, target)
    }

    /// The parity of the epochs that the fence or wait just returned from has closed.
    fn closes(&self) -> Option<u8> {
        let Stage::Phase { index, action } = self.stage else { return None };
        match self.shared.borrow().plan.phases[index].scripts[self.rank as usize].get(action) {
            Some(Action::Fence { closes, .. }) => *closes,
            Some(Action::Wait { closes, .. }) => Some(*closes),
            _ => None,
        }
    }

    /// A flush has returned: where operations went, the lock must have been acquired.
    fn note_held(&mut self, window: usize, target: Option<u32>) -> Result<(), String> {
        let mut shared = self.shared.borrow_mut();
        let here = self.sections.iter().filter(|section| section.window == window && !section.no_check);
        for section in here {
            for &touched in &section.touched {
                if target.is_none_or(|target| target == touched) {
                    shared.oracle.on_held(window, touched, self.rank, section.is_exclusive)?;
                }
            }
        }
        Ok(())
    }

    /// The operations to `target` (to all, if `None`) are complete at this rank: results are there, and
    /// sources may be overwritten.
    fn complete(&mut self, window: usize, target: Option<u32>) -> Result<(), String> {
        let is_meant = |entry: &InFlight| {
            entry.plan.window == window && target.is_none_or(|target| target == entry.plan.target)
        };
        let (done, left): (Vec<_>, Vec<_>) = self.in_flight.drain(..).partition(is_meant);
        self.in_flight = left;
        for InFlight { plan, expectation, origin, compare, result } in done {
            let mut bytes = result.exposed().read(0, result.len());
            if let Some(shape) = self.shape(&plan).filter(|_| plan.verb.has_result()) {
                bytes = shape.gather(&bytes, plan.len)?;
            }
            self.shared.borrow_mut().oracle.on_result(&plan, &expectation, &bytes)?;
            if let Ok(number) = bytes.try_into().map(u64::from_ne_bytes) {
                self.last_result = number;
                self.guesses.insert(plan.span, number);
            }
            for buffer in [origin, compare, result] {
                self.graves.bury(buffer);
            }
        }
        Ok(())
    }

    fn post(&mut self, plan: &OperationPlan) -> Result<Step, Fault> {
        let shared = Rc::clone(&self.shared);
        let disp_unit = shared.borrow().plan.windows[plan.window].disp_unit[plan.target as usize];
        let role = self.role(plan);
        let (payload, compare) = self.payload(plan, role);
        let result_len = if plan.verb.has_result() { plan.len } else { 0 };
        let (origin, result) = match self.shape(plan) {
            Some(shape) => {
                let origin = if payload.is_empty() { Vec::new() } else { shape.scatter(&payload) };
                (Buffer::of(&origin), Buffer::of(&shape.empty_result(result_len)))
            }
            None => (Buffer::of(&payload), Buffer::new(result_len)),
        };
        let compare_buffer = Buffer::of(&compare);
        let expectation = Expectation::Anything;
        let entry = InFlight { plan: *plan, expectation, origin, compare: compare_buffer, result };
        let buffers = OriginBuffers {
            origin: entry.origin.base(),
            compare: entry.compare.base(),
            result: entry.result.base(),
        };
        let disp = plan.offset as u64 / u64::from(disp_unit);
        // SAFETY: the buffers are kept in `in_flight` until a call that completes the operation has
        // returned, and in `graves` after that.
        #[allow(unsafe_code)]
        let posted = unsafe { self.library.post(plan, disp, &buffers) };
        let is_posted =
            posted.map_err(|error| Fault::Engine(format!("{plan:?} in {:?}: {error}", self.stage)))?;
        if !is_posted {
            return self.progress(Step::Waiting);
        }
        let expectation = shared.borrow_mut().oracle.on_post(plan, &payload, &compare);
        self.in_flight.push(InFlight { expectation, ..entry });
        self.touch(plan.window, plan.target);
        self.unique += 1;
        self.advance();
        Ok(Step::Busy)
    }

    /// The layouts of an operation, where the library takes them.
    fn shape(&self, plan: &OperationPlan) -> Option<Shape> {
        if self.library.takes_layouts() {
            Shape::of(plan)
        } else {
            None
        }
    }

    fn role(&self, plan: &OperationPlan) -> Option<Role> {
        let Stage::Phase { index, .. } = self.stage else { return None };
        Some(self.shared.borrow().plan.phases[index].spans[plan.span].role)
    }

    /// The section under which an operation runs has now to be acquired.
    fn touch(&mut self, window: usize, target: u32) {
        let is_meant = |section: &&mut Section| {
            section.window == window && section.target.is_none_or(|locked| locked == target)
        };
        if let Some(section) = self.sections.iter_mut().find(is_meant) {
            if !section.touched.contains(&target) {
                section.touched.push(target);
            }
        }
    }

    /// What the operation writes and compares with.
    fn payload(&self, plan: &OperationPlan, role: Option<Role>) -> (Vec<u8>, Vec<u8>) {
        let mut bytes = vec![0; if plan.verb == Verb::Get { 0 } else { plan.len }];
        let seed = match plan.payload {
            Payload::Seed(seed) => seed,
            Payload::Number(number) => return (number.to_ne_bytes()[..bytes.len()].to_vec(), Vec::new()),
            Payload::LastResultPlusOne => return ((self.last_result + 1).to_ne_bytes().to_vec(), Vec::new()),
        };
        let mut random = Random::new(seed);
        let dtype = if plan.verb == Verb::Put { Dtype::U8 } else { plan.dtype };
        numbers(dtype, &mut random, &mut bytes);
        let compare = match (plan.verb, role) {
            (Verb::CompareAndSwap, Some(Role::Swap)) => {
                // Never used twice in a phase, and never the 0 with which a phase begins.
                bytes.copy_from_slice(&(u64::from(self.rank + 1) << 32 | self.unique).to_ne_bytes());
                self.guesses.get(&plan.span).copied().unwrap_or_default().to_ne_bytes().to_vec()
            }
            (Verb::CompareAndSwap, _) if random.chance(500) => {
                self.shared.borrow().oracle.shadow_bytes(plan).to_vec()
            }
            (Verb::CompareAndSwap, _) => bytes.clone(),
            _ => Vec::new(),
        };
        (bytes, compare)
    }
}

impl<L: Library> RankProgram for RankScript<L> {
    fn step(&mut self) -> Result<Step, Fault> {
        if self.away > 0 {
            self.away -= 1;
            return Ok(Step::Busy);
        }
        match self.calling {
            Some(call) => self.poll(call),
            None => self.proceed(),
        }
    }

    fn milestones(&self) -> u64 {
        self.milestones
    }

    fn describe(&self) -> String {
        let Self { stage, calling, away, in_flight, .. } = self;
        let mut text = format!("{stage:?}");
        if let Some(call) = calling {
            text.push_str(&format!(" in {call:?}"));
        }
        if *away > 0 {
            text.push_str(&format!(" away for {away} steps"));
        }
        format!("{text}, {} operations in flight; {}", in_flight.len(), self.library.describe())
    }
}
