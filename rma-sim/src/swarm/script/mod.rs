//! One rank's part of a plan, run step by step, with the oracle asked at every return.

mod direct;
mod operation;
mod regions;
mod requests;
mod threads;

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use self::operation::{Graves, InFlight};
use self::regions::Stray;
use self::requests::FlushRequest;
use self::threads::Thread;
use super::library::{Call, Library, Place, Progress};
use super::memory::Buffer;
use super::plan::{Action, Over};
use super::shape::Shapes;
use super::shared::Shared;
use crate::random::Random;
use crate::world::{Fault, RankProgram, Step};

/// Where a script is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Creating(usize),
    /// At the meeting of this number, having arrived.
    Meeting(usize),
    Phase(usize),
    /// So many windows are freed.
    Freeing(usize),
    Finished,
}

/// A lock that was called for.
#[derive(Debug)]
struct Section {
    window: usize,
    target: Option<u32>,
    is_exclusive: bool,
    no_check: bool,
    /// Ranks that got operations, and when first: only there the lock must have been acquired.
    touched: Vec<(u32, u64)>,
}

/// A rank that runs its script on a library.
pub(super) struct RankScript<L> {
    rank: u32,
    library: L,
    shared: Rc<RefCell<Shared>>,
    stage: Stage,
    /// One, unless the phase is at a fork.
    threads: Vec<Thread>,
    /// Which of them is stepped.
    current: usize,
    /// Which is stepped next.
    turns: Random,
    in_flight: Vec<InFlight>,
    /// Of the operation that is being posted.
    shapes: Shapes,
    flush_requests: Vec<FlushRequest>,
    /// How many operations and requests there were: their names.
    names: u64,
    /// Counts the calls begun and the operations posted: what was posted before a flush began is what it is for.
    clock: u64,
    /// When the latest operation on each span of the phase was posted; at the end of time if it is being posted.
    last_posted: BTreeMap<usize, u64>,
    sections: Vec<Section>,
    /// Operations that are errors, or may be.
    strays: Vec<Stray>,
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
        let seed = shared.borrow().plan.seed;
        Self {
            rank,
            library,
            shared,
            stage: Stage::Creating(0),
            threads: vec![Thread::default()],
            current: 0,
            turns: Random::new(seed ^ u64::from(rank + 1).rotate_right(16)),
            in_flight: Vec::new(),
            shapes: Shapes::default(),
            flush_requests: Vec::new(),
            names: 0,
            clock: 0,
            last_posted: BTreeMap::new(),
            sections: Vec::new(),
            strays: Vec::new(),
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

    pub(super) fn library_mut(&mut self) -> &mut L {
        &mut self.library
    }

    /// Whether it waits for the other ranks outside of the library.
    pub(super) fn is_meeting(&self) -> bool {
        matches!(self.stage, Stage::Meeting(_))
    }

    /// What comes next, when no call is under way.
    fn proceed(&mut self) -> Result<Step, Fault> {
        match self.stage {
            Stage::Creating(window) => self.create(window),
            Stage::Meeting(number) => self.wait_for_meeting(number),
            Stage::Phase(index) => self.act(index),
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
        let rank = self.rank as usize;
        let Some(plan) = self.shared.borrow().plan.windows.get(window).cloned() else { return self.meet(0) };
        let (len, disp_unit) = (plan.bytes[rank], plan.disp_unit[rank]);
        let is_own = !plan.is_allocated && plan.over.is_none();
        self.windows.push(Buffer::new(if is_own { len } else { 0 }));
        let own = self.windows[window].base();
        let memory = match plan.over {
            // Where there is nothing below, there is nothing here.
            Some(Over { window, skip }) => Some(self.library.exposed(window).place(skip).unwrap_or(own)),
            None => is_own.then_some(own),
        };
        let (is_dynamic, is_shared, options) = (plan.is_dynamic, plan.is_shared, plan.options);
        self.call(Call::Create { window, memory, len, disp_unit, is_dynamic, is_shared, options })
    }

    /// The last one first: it may lie over the memory of one before it.
    fn free(&mut self, freed: usize) -> Result<Step, Fault> {
        if let Some(window) = self.windows.len().checked_sub(freed + 1) {
            return self.call(Call::Free { window });
        }
        self.stage = Stage::Finished;
        Ok(Step::Finished)
    }

    fn meet(&mut self, number: usize) -> Result<Step, Fault> {
        self.stage = Stage::Meeting(number);
        self.guesses.clear();
        self.last_posted.clear();
        self.threads = vec![Thread::default()];
        let is_last = self.shared.borrow_mut().arrive().map_err(Fault::Oracle)?;
        Ok(if is_last { Step::WakesAll } else { Step::Busy })
    }

    fn wait_for_meeting(&mut self, number: usize) -> Result<Step, Fault> {
        if self.shared.borrow().meetings <= number {
            return self.progress(Step::Waiting);
        }
        let has_phase = number < self.shared.borrow().plan.phases.len();
        self.stage = if has_phase { Stage::Phase(number) } else { Stage::Freeing(0) };
        Ok(Step::Busy)
    }

    fn act(&mut self, index: usize) -> Result<Step, Fault> {
        let Some(next) = self.action() else { return self.meet(index + 1) };
        match next {
            Action::Operation(plan) => self.post(&plan),
            Action::Load { at, stored } => self.load(&at, stored),
            Action::Store { at, payload } => self.store(&at, payload),
            Action::Fork { lengths } => self.fork(&lengths),
            Action::Away(steps) => {
                self.thread_mut().away = steps;
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
                self.release(window, Some(target));
                self.call(Call::Unlock { window, target })
            }
            Action::UnlockAll { window } => {
                self.release(window, None);
                self.call(Call::UnlockAll { window })
            }
            Action::Flush { window, target, is_local } => self.call(Call::Flush { window, target, is_local }),
            Action::FlushTargets { window, targets } => self.call(Call::FlushTargets { window, targets }),
            Action::RequestFlush { window, target, is_local } => {
                self.names += 1;
                self.call(Call::RequestFlush { window, target, is_local, id: self.names - 1 })
            }
            Action::Await { which, by_test } => self.call(Call::Await { which, by_test }),
            Action::Order { window, target } => self.call(Call::Order { window, target }),
            Action::Sync { window } => self.call(Call::Sync { window }),
            Action::Attach { window, offset, len } => {
                self.call(Call::Attach { window, base: self.region(window, offset), len })
            }
            Action::Detach { window, offset, .. } => {
                self.call(Call::Detach { window, base: self.region(window, offset) })
            }
            Action::AwaitNotice { window, offset, until, .. } => {
                let disp = self.place(window, self.rank).disp(offset);
                self.call(Call::AwaitNotice { window, disp, until })
            }
            Action::Post { window, group, no_check } => self.call(Call::Post { window, group, no_check }),
            Action::Start { window, group, no_check } => self.call(Call::Start { window, group, no_check }),
            Action::Complete { window } => self.call(Call::Complete { window }),
            Action::Wait { window, by_test, .. } => self.call(Call::Wait { window, by_test }),
        }
    }

    /// Where a rank's part of a window is.
    fn place(&self, window: usize, rank: u32) -> Place {
        let shared = self.shared.borrow();
        let plan = &shared.plan.windows[window];
        let base = if plan.is_dynamic { shared.oracle.address(window, rank) } else { 0 };
        Place { base, disp_unit: plan.disp_unit[rank as usize] }
    }

    /// The next action of the phase is due.
    fn advance(&mut self) {
        self.milestones += 1;
        if let Stage::Phase(_) = self.stage {
            self.thread_mut().next += 1;
        }
    }

    fn open(&mut self, window: usize, target: Option<u32>, is_exclusive: bool, no_check: bool) {
        self.sections.push(Section { window, target, is_exclusive, no_check, touched: Vec::new() });
    }

    /// An unlock is about to begin: from now on the lock may be somebody else's, whoever else flushes here.
    fn release(&mut self, window: usize, target: Option<u32>) {
        self.sections.retain(|section| section.window != window || section.target != target);
        self.shared.borrow_mut().oracle.on_release(window, target, self.rank);
    }

    fn call(&mut self, call: Call) -> Result<Step, Fault> {
        let since = self.tick();
        let started = self.library.start(self.current, &call);
        self.thread_mut().calling = Some((call, since));
        match started {
            Ok(()) => self.poll(call, since),
            // What blocks has returned already.
            Err(error) => self.take_polled(call, since, Err(error)),
        }
    }

    fn poll(&mut self, call: Call, since: u64) -> Result<Step, Fault> {
        let polled = self.library.poll(self.current);
        self.take_polled(call, since, polled)
    }

    fn take_polled(
        &mut self,
        call: Call,
        since: u64,
        polled: Result<Progress, String>,
    ) -> Result<Step, Fault> {
        let polled = polled.or_else(|error| self.take_stray(&call, error));
        match polled.map_err(|error| self.blame(&call, &error))? {
            Progress::Returned => {}
            Progress::Moved => return Ok(Step::Busy),
            Progress::Waiting => return Ok(Step::Waiting),
        }
        self.thread_mut().calling = None;
        let place = self.whereabouts();
        let seen = self.on_return(call, since);
        seen.map_err(|text| Fault::Oracle(format!("after {call:?} in {place}: {text}")))?;
        self.advance();
        Ok(Step::Busy)
    }

    fn blame(&self, call: &Call, error: &str) -> Fault {
        Fault::Engine(format!("{call:?} in {}: {error}", self.whereabouts()))
    }

    /// A call that began at `since` is over.
    fn on_return(&mut self, call: Call, since: u64) -> Result<(), String> {
        let shared = Rc::clone(&self.shared);
        match call {
            Call::Create { window, .. } => {
                let is_dynamic = shared.borrow().plan.windows[window].is_dynamic;
                let own = self.windows[window].exposed();
                let exposed = if is_dynamic { own } else { self.library.exposed(window) };
                shared.borrow_mut().oracle.on_created(window, self.rank, exposed);
                if is_dynamic {
                    shared.borrow_mut().tell_addresses(window, self.rank)?;
                }
                self.stage = Stage::Creating(window + 1);
            }
            Call::Free { window } => self.stage = Stage::Freeing(self.windows.len() - window),
            Call::Fence { window, .. } => {
                self.complete(window, None, since)?;
                if let Some(parity) = self.closes() {
                    shared.borrow().oracle.on_fence(self.rank, window, parity)?;
                }
            }
            Call::Lock { .. } | Call::LockAll { .. } | Call::Post { .. } | Call::Start { .. } => {}
            Call::Order { .. } | Call::Attach { .. } | Call::Sync { .. } => {}
            Call::Detach { .. } => self.on_detached(),
            Call::RequestFlush { window, target, is_local, id } => {
                self.flush_requests.push(FlushRequest { id, since, window, target, is_local });
            }
            Call::Await { .. } => self.on_awaited()?,
            Call::AwaitNotice { .. } => self.on_noticed()?,
            // Whether the operations have arrived is for the targets to say.
            Call::Complete { window } => self.complete(window, None, since)?,
            Call::Wait { window, .. } => {
                if let Some(round) = self.closes() {
                    shared.borrow().oracle.on_fence(self.rank, window, round)?;
                }
            }
            Call::Unlock { window, target } => {
                self.on_unlocked(window, Some(target), since)?;
                self.expect_no_stray(window, target)?;
            }
            Call::UnlockAll { window } => self.on_unlocked(window, None, since)?,
            Call::Flush { window, target, is_local } => {
                self.complete(window, target, since)?;
                if !is_local {
                    self.on_flushed(window, target, since)?;
                }
                if let Some(target) = target.filter(|_| !is_local) {
                    self.expect_no_stray(window, target)?;
                }
            }
            Call::FlushTargets { window, targets } => {
                for target in targets.iter() {
                    self.complete(window, Some(target), since)?;
                    self.on_flushed(window, Some(target), since)?;
                }
            }
        }
        Ok(())
    }

    fn on_flushed(&mut self, window: usize, target: Option<u32>, since: u64) -> Result<(), String> {
        self.expect_written(window, target, since)?;
        self.note_held(window, target, since)
    }

    fn on_unlocked(&mut self, window: usize, target: Option<u32>, since: u64) -> Result<(), String> {
        self.complete(window, target, since)?;
        self.expect_written(window, target, since)
    }

    /// What was posted before `since` is complete at the target. Where something was posted later, anything may
    /// be.
    fn expect_written(&self, window: usize, target: Option<u32>, since: u64) -> Result<(), String> {
        let is_settled = |span| self.last_posted.get(&span).is_none_or(|&last| last < since);
        self.shared.borrow().oracle.on_complete(self.rank, window, target, is_settled)
    }

    /// The parity of the epochs that the fence or wait just returned from has closed.
    fn closes(&self) -> Option<u8> {
        match self.action()? {
            Action::Fence { closes, .. } => closes,
            Action::Wait { closes, .. } => Some(closes),
            _ => None,
        }
    }
}

impl<L: Library> RankProgram for RankScript<L> {
    fn step(&mut self) -> Result<Step, Fault> {
        if self.threads.len() > 1 {
            self.step_forked()
        } else {
            self.step_thread()
        }
    }

    fn milestones(&self) -> u64 {
        self.milestones
    }

    fn describe(&self) -> String {
        let Self { stage, threads, in_flight, .. } = self;
        let threads: Vec<_> = threads.iter().map(Thread::describe).collect();
        let in_flight = in_flight.len();
        format!(
            "{stage:?} at {}, {in_flight} operations in flight; {}",
            threads.join(" and "),
            self.library.describe()
        )
    }
}
