//! Operations of one rank, such that no two that may run at the same time conflict.

use rma_core::dtype::Dtype;
use rma_core::engine::Change;
use rma_core::info::{AccumulateOps, AccumulateOrdering};
use rma_core::op::ReduceOp;

use super::super::plan::{Form, OperationPlan, Payload, Role, Span, Verb};
use super::Draw;
use crate::random::Random;

/// Most elements of one accumulate: the fabric executes them one by one.
const ELEMENTS_MAX: usize = 600;

/// What a rank has under way at a span of its own, since the last remote completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// Puts below this offset in the span.
    Puts(usize),
    Gets,
    /// Accumulates on this type: ordered among each other (MPI-4.1 section 13.7.2).
    Accumulates(Dtype),
    /// Accumulates below this offset: where their order is not kept, or their reductions may not meet.
    Apart(usize),
    /// Notified puts below this offset, and how many. Never forgotten: who waits for them looks at the data.
    Notes(usize, u64),
}

/// A rank's uses of the spans of a phase.
#[derive(Clone, Debug)]
pub(super) struct Uses {
    uses: Vec<Option<Use>>,
    /// Something may be under way there, also where an order call lets anything follow.
    is_unsettled: Vec<bool>,
    /// When each span was used last, in operations.
    stamps: Vec<u64>,
    clock: u64,
    /// Flushes with a request: window, target (all, if `None`), and when.
    flushes: Vec<(usize, Option<u32>, u64)>,
    /// Requests that were not waited for.
    pub(super) requests: u64,
}

impl Uses {
    pub(super) fn new(spans: &[Span]) -> Self {
        let (uses, is_unsettled, stamps) =
            (vec![None; spans.len()], vec![false; spans.len()], vec![0; spans.len()]);
        Self { uses, is_unsettled, stamps, clock: 0, flushes: Vec::new(), requests: 0 }
    }

    /// What a thread begins with. The requests are the first one's.
    pub(super) fn of_thread(&self, is_first: bool) -> Self {
        let of_others = Self { flushes: Vec::new(), requests: 0, ..self.clone() };
        if is_first {
            self.clone()
        } else {
            of_others
        }
    }

    /// Threads that began with these have come to their ends; each span was one's.
    pub(super) fn join(&mut self, threads: &[Self], whose: impl Fn(usize) -> Option<usize>) {
        for index in 0..self.uses.len() {
            let Some(thread) = whose(index).and_then(|thread| threads.get(thread)) else { continue };
            (self.uses[index], self.stamps[index]) = (thread.uses[index], thread.stamps[index]);
            self.is_unsettled[index] = thread.is_unsettled[index];
        }
        // Of a flush that a thread began it is not known what others posted before.
        let fork = self.clock;
        let old = threads.first().map(|first| first.flushes.iter().filter(|flush| flush.2 <= fork));
        self.flushes = old.into_iter().flatten().copied().collect();
        self.requests = threads.iter().map(|thread| thread.requests).sum();
        self.clock = threads.iter().map(|thread| thread.clock).max().unwrap_or(fork);
    }

    /// Operations on the window (on `target`, or all targets) are complete: anything may follow.
    pub(super) fn complete(&mut self, spans: &[Span], window: usize, target: Option<u32>) {
        self.complete_before(spans, window, target, u64::MAX);
    }

    fn complete_before(&mut self, spans: &[Span], window: usize, target: Option<u32>, stamp: u64) {
        for (index, (slot, span)) in self.uses.iter_mut().zip(spans).enumerate() {
            let is_meant = span.window == window && target.is_none_or(|target| target == span.rank);
            if is_meant && self.stamps[index] <= stamp && !matches!(slot, Some(Use::Notes(..))) {
                (*slot, self.is_unsettled[index]) = (None, false);
            }
        }
    }

    /// Anything may follow, and comes behind what is under way: but for what does not come through the library.
    pub(super) fn order(&mut self, spans: &[Span], window: usize, target: Option<u32>) {
        let is_unsettled = self.is_unsettled.clone();
        self.complete(spans, window, target);
        self.is_unsettled = is_unsettled;
    }

    /// Whether nothing of this rank's is under way at a span.
    pub(super) fn is_settled(&self, index: usize) -> bool {
        !self.is_unsettled[index]
    }

    /// A flush with a request is under way.
    pub(super) fn request_flush(&mut self, window: usize, target: Option<u32>) {
        self.flushes.push((window, target, self.clock));
    }

    /// All requests are done: what was used behind a flush is still in use.
    pub(super) fn await_all(&mut self, spans: &[Span]) {
        self.requests = 0;
        for (window, target, stamp) in core::mem::take(&mut self.flushes) {
            self.complete_before(spans, window, target, stamp);
        }
    }
}

impl Draw<'_> {
    /// The next operation of `rank` on one of the spans of `candidates`, if it finds something to do.
    pub(super) fn operation(
        &mut self,
        rank: u32,
        spans: &[Span],
        candidates: &[usize],
        uses: &mut Uses,
    ) -> Option<OperationPlan> {
        if candidates.is_empty() {
            return None;
        }
        let index = self.random.pick(candidates);
        let span = spans[index];
        let window = &self.windows[span.window];
        let unit = window.disp_unit[span.rank as usize] as usize;
        let options = &window.options;
        let is_strict = options.accumulate_ordering == AccumulateOrdering::STRICT;
        let has_no_op = options.accumulate_ops == AccumulateOps::SameOpNoOp;
        let mut shape = Shape { random: &mut self.random, span, index, unit, is_strict, has_no_op };
        uses.clock += 1;
        (uses.stamps[index], uses.is_unsettled[index]) = (uses.clock, true);
        match span.role {
            Role::Owned(owner) | Role::Absent(owner) | Role::Vanishing(owner) if owner == rank => {
                shape.owned(&mut uses.uses[index])
            }
            Role::Noted(owner) if owner == rank => shape.noted(&mut uses.uses[index]),
            Role::Owned(_) | Role::Noted(_) | Role::Absent(_) | Role::Vanishing(_) | Role::Counter => None,
            Role::Shared(dtype, op) => shape.shared(dtype, op),
            Role::Ticket => Some(shape.ticket()),
            Role::Swap => Some(shape.swap()),
            Role::ReadOnly => shape.read(),
        }
    }
}

/// The spans that `rank` may use: of a window, at a target (or all), in epochs of a parity (or all).
pub(super) fn candidates(
    rank: u32,
    spans: &[Span],
    window: usize,
    target: Option<u32>,
    parity: Option<u8>,
) -> Vec<usize> {
    let is_allowed = |span: &Span| match span.role {
        Role::Owned(owner) | Role::Noted(owner) => owner == rank,
        Role::Counter | Role::Absent(_) | Role::Vanishing(_) => false,
        _ => true,
    };
    let is_meant = |span: &Span| {
        span.window == window
            && target.is_none_or(|target| target == span.rank)
            && parity.is_none_or(|parity| parity == span.parity)
            && is_allowed(span)
    };
    (0..spans.len()).filter(|&index| is_meant(&spans[index])).collect()
}

/// Draws one operation at one span.
struct Shape<'a> {
    random: &'a mut Random,
    span: Span,
    index: usize,
    unit: usize,
    /// Accumulates keep their order.
    is_strict: bool,
    /// no_op may meet other reductions.
    has_no_op: bool,
}

impl Shape<'_> {
    fn owned(&mut self, slot: &mut Option<Use>) -> Option<OperationPlan> {
        let chosen = slot.unwrap_or_else(|| match self.random.below(10) {
            0..4 => Use::Puts(0),
            4..6 => Use::Gets,
            _ if !self.is_strict || !self.has_no_op => Use::Apart(0),
            _ => Use::Accumulates(self.random.pick(&Dtype::ALL)),
        });
        *slot = Some(chosen);
        match chosen {
            Use::Puts(start) => {
                let dtype = self.random.pick(&Dtype::ALL);
                let (offset, len) = self.range(dtype, start, usize::MAX)?;
                *slot = Some(Use::Puts(offset + len - self.span.offset));
                Some(self.plan(Verb::Put, dtype, ReduceOp::Replace, offset, len))
            }
            Use::Gets | Use::Notes(..) => self.read(),
            Use::Accumulates(dtype) => self.accumulate(dtype, 0),
            Use::Apart(start) => {
                let dtype = self.random.pick(&Dtype::ALL);
                let plan = self.accumulate(dtype, start)?;
                *slot = Some(Use::Apart(plan.offset + plan.len - self.span.offset));
                Some(plan)
            }
        }
    }

    /// A put of which the word at the beginning of the span tells: it counts them.
    fn noted(&mut self, slot: &mut Option<Use>) -> Option<OperationPlan> {
        let Use::Notes(start, count) = *slot.get_or_insert(Use::Notes(8, 0)) else { return None };
        let dtype = self.random.pick(&[Dtype::U8, Dtype::U32, Dtype::U64]);
        let (offset, len) = match self.range(dtype, start, usize::MAX) {
            Some(range) => range,
            // Only the word.
            None => (self.span.offset, 0),
        };
        *slot = Some(Use::Notes(start.max(offset + len - self.span.offset), count + 1));
        let is_set = self.is_strict && self.random.chance(400);
        let change = if is_set { Change::Set(count + 1) } else { Change::Add(1) };
        let plan = self.plan(Verb::Put, dtype, ReduceOp::Replace, offset, len);
        Some(OperationPlan { form: Form::Notified { word: self.span.offset, change }, ..plan })
    }

    fn read(&mut self) -> Option<OperationPlan> {
        let dtype = self.random.pick(&Dtype::ALL);
        let (offset, len) = self.range(dtype, 0, usize::MAX)?;
        Some(self.plan(Verb::Get, dtype, ReduceOp::NoOp, offset, len))
    }

    /// Any accumulate. The bytes there are any bytes, which is good for integers and truth values only: the
    /// others are moved.
    fn accumulate(&mut self, dtype: Dtype, start: usize) -> Option<OperationPlan> {
        let op = loop {
            let op = self.random.pick(&ReduceOp::ALL);
            let is_exact = dtype.has_compare_and_swap() || matches!(op, ReduceOp::Replace | ReduceOp::NoOp);
            if op.is_defined_for(dtype) && is_exact {
                break op;
            }
        };
        let is_single = self.random.chance(400);
        let most = dtype.size() * if is_single { 1 } else { ELEMENTS_MAX };
        let (offset, len) = self.range(dtype, start, most)?;
        let verb = match self.random.below(4) {
            0 if is_single && dtype.has_compare_and_swap() => Verb::CompareAndSwap,
            1 if is_single => Verb::FetchAndOp,
            2 => Verb::GetAccumulate,
            _ if op == ReduceOp::NoOp => Verb::GetAccumulate,
            _ => Verb::Accumulate,
        };
        Some(self.plan(verb, dtype, op, offset, len))
    }

    fn shared(&mut self, dtype: Dtype, op: ReduceOp) -> Option<OperationPlan> {
        let is_single = self.random.chance(400);
        let most = dtype.size() * if is_single { 1 } else { ELEMENTS_MAX };
        let (offset, len) = self.range(dtype, 0, most)?;
        // Reading with NO_OP may be mixed with any one operation.
        let (verb, op) = match self.random.below(5) {
            0 if is_single => (Verb::FetchAndOp, op),
            1 => (Verb::GetAccumulate, op),
            2 if self.has_no_op => (Verb::GetAccumulate, ReduceOp::NoOp),
            _ => (Verb::Accumulate, op),
        };
        Some(self.plan(verb, dtype, op, offset, len))
    }

    fn ticket(&mut self) -> OperationPlan {
        let verb = if self.random.chance(700) { Verb::FetchAndOp } else { Verb::GetAccumulate };
        let plan = self.plan(verb, Dtype::U64, ReduceOp::Sum, self.span.offset, 8);
        OperationPlan { payload: Payload::Number(1), ..plan }
    }

    fn swap(&mut self) -> OperationPlan {
        self.plan(Verb::CompareAndSwap, Dtype::U64, ReduceOp::Replace, self.span.offset, 8)
    }

    fn plan(&mut self, verb: Verb, dtype: Dtype, op: ReduceOp, offset: usize, len: usize) -> OperationPlan {
        let payload = Payload::Seed(self.random.bits());
        let Span { window, rank: target, .. } = self.span;
        let span = self.index;
        OperationPlan { verb, window, target, offset, len, dtype, op, span, payload, form: Form::Plain }
    }

    /// A range of whole elements at `start` or later in the span, at most `most` bytes, whose beginning can be
    /// said in displacement units.
    fn range(&mut self, dtype: Dtype, start: usize, most: usize) -> Option<(usize, usize)> {
        let Span { offset: base, len, .. } = self.span;
        // Both are powers of two.
        let step = self.unit.max(dtype.size());
        let first = (base + start).next_multiple_of(step);
        let end = base + len;
        let places = end.checked_sub(first + dtype.size())? / step;
        // Near the beginning, so that several puts find room one behind the other.
        let places = if self.random.chance(700) { places.min(4) } else { places };
        let offset = first + self.random.index(places + 1) * step;
        let elements_max = ((end - offset) / dtype.size()).min((most / dtype.size()).max(1));
        let elements = match self.random.below(10) {
            0..5 => 1,
            5..8 => 1 + self.random.index(elements_max.min(16)),
            8 => 1 + self.random.index(elements_max),
            _ => elements_max,
        };
        Some((offset, elements.min(elements_max) * dtype.size()))
    }
}
