//! Operations of a script: what they write, what is in flight, and what came back.

use std::collections::VecDeque;
use std::rc::Rc;

use rma_core::dtype::Dtype;

use super::super::draw::numbers;
use super::super::library::{Library, OriginBuffers, Posted, Progress};
use super::super::memory::Buffer;
use super::super::oracle::Expectation;
use super::super::plan::{Form, OperationPlan, Payload, Role, Verb};
use super::super::shape::Shape;
use super::{RankScript, Section, Stage};
use crate::random::Random;
use crate::world::{Fault, Step};

/// An operation that is posted and not known to be complete.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Its name, which is also that of its request.
    pub(super) id: u64,
    /// When it was posted.
    pub(super) stamp: u64,
    pub(super) plan: OperationPlan,
    expectation: Expectation,
    origin: Buffer,
    compare: Buffer,
    result: Buffer,
}

/// Buffers that the library must not touch any more: poisoned, and kept for a while, so that a library
/// which does touch them reads nonsense and does no harm.
#[derive(Default, Debug)]
pub(super) struct Graves {
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

impl<L: Library> RankScript<L> {
    /// A flush that began at `since` has returned: where operations went, the lock must have been acquired.
    pub(super) fn note_held(&mut self, window: usize, target: Option<u32>, since: u64) -> Result<(), String> {
        let mut shared = self.shared.borrow_mut();
        let here = self.sections.iter().filter(|section| section.window == window && !section.no_check);
        for section in here {
            for &(touched, _) in section.touched.iter().filter(|(_, stamp)| *stamp < since) {
                if target.is_none_or(|target| target == touched) {
                    shared.oracle.on_held(window, touched, self.rank, section.is_exclusive)?;
                }
            }
        }
        Ok(())
    }

    /// The operations to `target` (to all, if `None`) that were posted before `since`, by any thread, are complete
    /// at this rank: results are there, and sources may be overwritten.
    pub(super) fn complete(&mut self, window: usize, target: Option<u32>, since: u64) -> Result<(), String> {
        let is_meant = |entry: &InFlight| {
            entry.stamp < since
                && entry.plan.window == window
                && target.is_none_or(|target| target == entry.plan.target)
        };
        self.complete_those(is_meant)
    }

    /// The same for some of the operations in flight.
    pub(super) fn complete_those(&mut self, is_meant: impl FnMut(&InFlight) -> bool) -> Result<(), String> {
        let (done, left): (Vec<_>, Vec<_>) = self.in_flight.drain(..).partition(is_meant);
        self.in_flight = left;
        for InFlight { plan, expectation, origin, compare, result, .. } in done {
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

    pub(super) fn post(&mut self, plan: &OperationPlan) -> Result<Step, Fault> {
        let shared = Rc::clone(&self.shared);
        let place = self.place(plan.window, plan.target);
        let role = self.role(plan);
        let (payload, compare) = self.payload(plan, role);
        let result_len = if plan.verb.has_result() { plan.len } else { 0 };
        let shape = if self.library.takes_layouts() { self.shapes.of(plan) } else { None };
        let (origin, result) = match shape {
            Some(shape) => {
                let origin = if payload.is_empty() { Vec::new() } else { shape.scatter(&payload) };
                (Buffer::of(&origin), Buffer::of(&shape.empty_result(result_len)))
            }
            None => (Buffer::of(&payload), Buffer::new(result_len)),
        };
        let compare_buffer = Buffer::of(&compare);
        let expectation = Expectation::Anything;
        let id = self.names;
        let stamp = u64::MAX;
        let entry = InFlight { id, stamp, plan: *plan, expectation, origin, compare: compare_buffer, result };
        let buffers = OriginBuffers {
            id,
            origin: entry.origin.base(),
            compare: entry.compare.base(),
            result: entry.result.base(),
        };
        // SAFETY: the buffers are kept in `in_flight` until a call that completes the operation has
        // returned, and in `graves` after that.
        #[allow(unsafe_code)]
        let posted = unsafe { self.library.post(self.current, plan, place, &buffers) };
        if posted.as_ref().is_err_and(|error| self.is_stray_of_own(plan, role, error)) {
            self.advance();
            return Ok(Step::Busy);
        }
        let posted = posted.map_err(|error| self.blame_post(plan, &error))?;
        if posted == Posted::NotNow {
            // A notified put to oneself may have been made, and will be again.
            if matches!(plan.form, Form::Notified { .. }) && plan.target == self.rank {
                self.last_posted.insert(plan.span, stamp);
            }
            return self.progress(Step::Waiting);
        }
        let expectation = shared.borrow_mut().oracle.on_post(plan, &payload, &compare);
        let entry = InFlight { expectation, ..entry };
        self.last_posted.insert(plan.span, stamp);
        self.note_stray(plan, role);
        self.unique += 1;
        self.names += 1;
        if posted == Posted::UnderWay {
            self.thread_mut().posting = Some(entry);
        } else {
            self.on_posted(entry);
        }
        Ok(Step::Busy)
    }

    /// Whether the operation that another thread of the process posts is posted.
    pub(super) fn poll_posting(&mut self, entry: InFlight) -> Result<Step, Fault> {
        let polled = self.library.poll(self.current);
        match polled.map_err(|error| self.blame_post(&entry.plan, &error))? {
            Progress::Returned => {
                self.on_posted(entry);
                Ok(Step::Busy)
            }
            Progress::Moved | Progress::Waiting => {
                self.thread_mut().posting = Some(entry);
                Ok(Step::Waiting)
            }
        }
    }

    fn on_posted(&mut self, mut entry: InFlight) {
        let OperationPlan { window, target, span, .. } = entry.plan;
        entry.stamp = self.tick();
        self.last_posted.insert(span, entry.stamp);
        self.touch(window, target, entry.stamp);
        self.in_flight.push(entry);
        self.advance();
    }

    fn blame_post(&self, plan: &OperationPlan, error: &str) -> Fault {
        Fault::Engine(format!("{plan:?} in {}: {error}", self.whereabouts()))
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
        let Stage::Phase(index) = self.stage else { return None };
        Some(self.shared.borrow().plan.phases[index].spans[plan.span].role)
    }

    /// The section under which an operation runs has now to be acquired.
    fn touch(&mut self, window: usize, target: u32, stamp: u64) {
        let is_meant = |section: &&mut Section| {
            section.window == window && section.target.is_none_or(|locked| locked == target)
        };
        if let Some(section) = self.sections.iter_mut().find(is_meant) {
            if !section.touched.iter().any(|(touched, _)| *touched == target) {
                section.touched.push((target, stamp));
            }
        }
    }

    /// What the operation writes and compares with.
    pub(super) fn payload(&self, plan: &OperationPlan, role: Option<Role>) -> (Vec<u8>, Vec<u8>) {
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
