//! What the windows must hold: a shadow of each, kept by MPI's rules, and the checks against it.
//!
//! Plans contain only accesses whose outcome MPI-4.1 section 13.7 defines, so that one shadow is enough:
//! an operation changes it when it is posted, and the memory must agree when the operation is complete.

use rma_core::dtype::Dtype;
use rma_core::engine::Change;
use rma_core::op::ReduceOp;

use super::memory::Exposed;
use super::plan::{DirectPlan, Form, OperationPlan, Over, Phase, Role, Span, Verb, WindowPlan};
use crate::arithmetic;

/// What is known of an operation's result when it is posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Expectation {
    /// It has none, or any is allowed.
    Anything,
    /// Exactly these bytes.
    Exactly(Vec<u8>),
    /// A number that nobody else got.
    Ticket,
    /// The link of a chain of swaps.
    Swap {
        /// What it replaces.
        compare: u64,
        /// By what.
        new: u64,
    },
}

/// A lock that is known to be held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    window: usize,
    target: u32,
    holder: u32,
    is_exclusive: bool,
}

/// Numbers got, and swaps made, at one span.
#[derive(Clone, Default, Debug)]
struct Tally {
    tickets: Vec<u64>,
    swaps: Vec<(u64, u64)>,
    seen: Vec<(u64, u64)>,
}

/// The judge of one run.
#[derive(Debug)]
pub(super) struct Oracle {
    /// Of each window: which other one's memory it is, from where on.
    over: Vec<Option<Over>>,
    memory: Vec<Vec<Exposed>>,
    /// Where the ranks' parts of a dynamic window are, if they cannot be seen.
    told: Vec<Vec<u64>>,
    /// What must be there; nothing for windows over others.
    shadow: Vec<Vec<Vec<u8>>>,
    spans: Vec<Span>,
    tallies: Vec<Tally>,
    held: Vec<Held>,
    /// The only rank whose memory and operations can be seen; `None`: everybody's.
    only: Option<u32>,
    /// What the windows held at the end of each phase so far.
    history: Vec<Snapshot>,
}

/// What every rank's part of every window holds, windows first.
pub(super) type Snapshot = Vec<Vec<Vec<u8>>>;

impl Oracle {
    pub(super) fn new(windows: &[WindowPlan]) -> Self {
        let ranks = |plan: &WindowPlan| plan.bytes.len();
        let has_own = |plan: &WindowPlan| usize::from(plan.over.is_none());
        let shadow = |plan: &WindowPlan| plan.bytes.iter().map(|&len| vec![0; len * has_own(plan)]).collect();
        Self {
            over: windows.iter().map(|plan| plan.over).collect(),
            memory: windows.iter().map(|plan| vec![Exposed::NONE; ranks(plan)]).collect(),
            told: vec![Vec::new(); windows.len()],
            shadow: windows.iter().map(shadow).collect(),
            spans: Vec::new(),
            tallies: Vec::new(),
            held: Vec::new(),
            only: None,
            history: Vec::new(),
        }
    }

    /// An oracle that sees one rank.
    pub(super) fn of_rank(windows: &[WindowPlan], rank: u32) -> Self {
        Self { only: Some(rank), ..Self::new(windows) }
    }

    /// What the windows held at the end of each phase.
    pub(super) fn history(&self) -> &[Snapshot] {
        &self.history
    }

    /// A rank has made its part of a window; the memory is all zero.
    pub(super) fn on_created(&mut self, window: usize, rank: u32, memory: Exposed) {
        self.memory[window][rank as usize] = memory;
    }

    /// The owners' stores, and the rules of the phase.
    pub(super) fn begin_phase(&mut self, phase: &Phase) {
        for store in &phase.stores {
            let rank = store.rank as usize;
            if self.sees(store.rank) {
                self.memory[store.window][rank].write(store.offset, &store.bytes);
            }
            let shadow = self.shadow_mut(store.window, store.rank, store.offset, store.bytes.len());
            shadow.copy_from_slice(&store.bytes);
        }
        self.spans.clone_from(&phase.spans);
        self.tallies = vec![Tally::default(); phase.spans.len()];
    }

    /// Where a rank's part of a window is in memory, if there is any.
    pub(super) fn address(&self, window: usize, rank: u32) -> u64 {
        let seen = || self.memory[window][rank as usize].place(0).map_or(0, |base| base.addr().get() as u64);
        self.told[window].get(rank as usize).copied().unwrap_or_else(seen)
    }

    /// The ranks have said where their parts of a window are.
    pub(super) fn on_told(&mut self, window: usize, addresses: Vec<u64>) {
        self.told[window] = addresses;
    }

    /// A rank's part of a window.
    pub(super) fn part(&self, window: usize, rank: u32) -> Exposed {
        self.memory[window][rank as usize]
    }

    /// A rank has stored directly: complete at once.
    pub(super) fn on_store(&mut self, at: &DirectPlan, bytes: &[u8]) {
        self.shadow_mut(at.window, at.target, at.offset, at.len).copy_from_slice(bytes);
    }

    /// A rank has loaded directly: `stored` is what the plan says that another has left for it.
    pub(super) fn on_load(
        &mut self,
        at: &DirectPlan,
        stored: Option<&[u8]>,
        found: &[u8],
    ) -> Result<(), String> {
        if self.spans[at.span].role == Role::Counter {
            self.tallies[at.span].tickets.push(number(found));
            return Ok(());
        }
        let shadow = self.shadow_mut(at.window, at.target, at.offset, at.len);
        if let Some(stored) = stored {
            // Who left it may be another process, of which nothing else is known.
            shadow.copy_from_slice(stored);
        }
        difference(shadow, found).map_or(Ok(()), |text| Err(format!("loaded {text}")))
    }

    /// A detached span is its owner's alone, who stores something there.
    pub(super) fn on_vanished(&mut self, span: usize, bytes: &[u8]) {
        let Span { window, rank, offset, .. } = self.spans[span];
        self.memory[window][rank as usize].write(offset, bytes);
        self.shadow_mut(window, rank, offset, bytes.len()).copy_from_slice(bytes);
    }

    /// The window whose memory it is, and where there.
    fn place(&self, window: usize, offset: usize) -> (usize, usize) {
        self.over[window].map_or((window, offset), |over| (over.window, over.skip + offset))
    }

    fn shadow(&self, window: usize, rank: u32, offset: usize, len: usize) -> &[u8] {
        let (window, offset) = self.place(window, offset);
        &self.shadow[window][rank as usize][offset..offset + len]
    }

    fn shadow_mut(&mut self, window: usize, rank: u32, offset: usize, len: usize) -> &mut [u8] {
        let (window, offset) = self.place(window, offset);
        &mut self.shadow[window][rank as usize][offset..offset + len]
    }

    /// What the shadow has where an operation goes.
    pub(super) fn shadow_bytes(&self, operation: &OperationPlan) -> &[u8] {
        let &OperationPlan { window, target, offset, len, .. } = operation;
        self.shadow(window, target, offset, len)
    }

    /// A notified put was seen at its target: its data are there.
    pub(super) fn on_notified(&self, operation: &OperationPlan, payload: &[u8]) -> Result<(), String> {
        let &OperationPlan { window, target, offset, len, .. } = operation;
        let memory = self.memory[window][target as usize].read(offset, len);
        difference(payload, &memory)
            .map_or(Ok(()), |text| Err(format!("{operation:?} is noted and left {text}")))
    }

    /// An operation is posted: what it will do is done to the shadow now.
    pub(super) fn on_post(
        &mut self,
        operation: &OperationPlan,
        payload: &[u8],
        compare: &[u8],
    ) -> Expectation {
        let OperationPlan { window, target, offset, len, dtype, op, verb, form, .. } = *operation;
        let role = self.spans[operation.span].role;
        if matches!(role, Role::Absent(_) | Role::Vanishing(_)) {
            return Expectation::Anything;
        }
        if let Form::Notified { word, change } = form {
            let (op, operand) = match change {
                Change::Add(number) => (ReduceOp::Sum, number),
                Change::Set(number) => (ReduceOp::Replace, number),
            };
            let word = self.shadow_mut(window, target, word, 8);
            arithmetic::reduce(Dtype::U64, op, word, &operand.to_ne_bytes());
        }
        let shadow = self.shadow_mut(window, target, offset, len);
        let old = shadow.to_vec();
        match verb {
            Verb::Put => shadow.copy_from_slice(payload),
            Verb::Get => {}
            Verb::Accumulate | Verb::GetAccumulate | Verb::FetchAndOp => {
                arithmetic::reduce(dtype, op, shadow, payload);
            }
            // The order of contended swaps is not known before they are over.
            Verb::CompareAndSwap if role == Role::Swap => {
                return Expectation::Swap { compare: number(compare), new: number(payload) };
            }
            Verb::CompareAndSwap => {
                if arithmetic::equal(dtype, shadow, compare) {
                    shadow.copy_from_slice(payload);
                }
            }
        }
        match (verb, role) {
            (Verb::Put | Verb::Accumulate, _) | (_, Role::Shared(..) | Role::Swap) => Expectation::Anything,
            // What is put next is one more.
            (_, Role::Counter) => Expectation::Ticket,
            (_, Role::Ticket) if op != ReduceOp::NoOp => Expectation::Ticket,
            (_, Role::Ticket) => Expectation::Anything,
            (_, Role::Absent(_) | Role::Vanishing(_)) => Expectation::Anything,
            (_, Role::Owned(_) | Role::Noted(_) | Role::ReadOnly) => Expectation::Exactly(old),
        }
    }

    /// The result of a completed operation.
    pub(super) fn on_result(
        &mut self,
        operation: &OperationPlan,
        expectation: &Expectation,
        result: &[u8],
    ) -> Result<(), String> {
        let tally = &mut self.tallies[operation.span];
        match expectation {
            Expectation::Anything => Ok(()),
            Expectation::Exactly(bytes) => {
                difference(bytes, result).map_or(Ok(()), |text| Err(format!("{operation:?} got {text}")))
            }
            Expectation::Ticket => {
                tally.tickets.push(number(result));
                Ok(())
            }
            Expectation::Swap { compare, new } => {
                let old = number(result);
                if old == *compare {
                    tally.swaps.push((old, *new));
                }
                tally.seen.push((old, *compare));
                Ok(())
            }
        }
    }

    /// What `origin` did to `target` (to all, if `None`) is complete there: its own spans hold what it wrote, at this
    /// very moment, but for those that are not settled.
    pub(super) fn on_complete(
        &self,
        origin: u32,
        window: usize,
        target: Option<u32>,
        is_settled: impl Fn(usize) -> bool,
    ) -> Result<(), String> {
        let is_meant = |(index, span): &(usize, &Span)| {
            span.window == window
                && is_settled(*index)
                && matches!(span.role, Role::Owned(owner) | Role::Noted(owner) if owner == origin)
                && target.is_none_or(|target| target == span.rank)
                && self.sees(span.rank)
        };
        self.spans.iter().enumerate().filter(is_meant).try_for_each(|(_, span)| self.compare(span))
    }

    fn sees(&self, rank: u32) -> bool {
        self.only.is_none_or(|only| only == rank)
    }

    /// A fence or wait has returned at `rank`: what anybody wrote to it in the epochs it closes is there.
    pub(super) fn on_fence(&self, rank: u32, window: usize, parity: u8) -> Result<(), String> {
        let is_meant = |span: &&Span| span.window == window && span.rank == rank && span.parity == parity;
        // Of one rank alone only its own operations are known.
        let is_known = |span: &&Span| match self.only {
            Some(only) => span.role == Role::Owned(only),
            None => span.role != Role::Swap,
        };
        let compared = self.spans.iter().filter(is_meant).filter(is_known);
        compared.into_iter().try_for_each(|span| self.compare(span))
    }

    fn compare(&self, span: &Span) -> Result<(), String> {
        let Span { window, rank, offset, len, .. } = *span;
        let memory = self.memory[window][rank as usize].read(offset, len);
        let shadow = self.shadow(window, rank, offset, len);
        difference(shadow, &memory).map_or(Ok(()), |text| Err(format!("{span:?} holds {text}")))
    }

    /// All ranks are done with the phase: everything must be as it should, everywhere.
    pub(super) fn end_phase(&mut self) -> Result<(), String> {
        if let Some(held) = self.held.first() {
            return Err(format!("{held:?} is still held at the end of a phase"));
        }
        for index in 0..self.spans.len() {
            let span = self.spans[index];
            match span.role {
                Role::Ticket | Role::Counter => self.check_tickets(index)?,
                Role::Swap => self.check_swaps(index)?,
                _ => {}
            }
        }
        self.compare_all()?;
        self.history.push(self.shadow.clone());
        Ok(())
    }

    /// The one rank that can be seen is done with a phase whose end is known from elsewhere.
    pub(super) fn end_phase_alone(&mut self, end: &Snapshot) -> Result<(), String> {
        self.shadow.clone_from(end);
        let swapped = self.spans.iter().filter(|span| span.role == Role::Swap && self.sees(span.rank));
        for &Span { window, rank, offset, len, .. } in swapped {
            // Who came last is not known: its owner puts what it was elsewhere, so that later phases agree.
            let (root, place) = self.place(window, offset);
            let bytes = &end[root][rank as usize][place..place + len];
            self.memory[window][rank as usize].write(offset, bytes);
        }
        self.compare_all()
    }

    fn compare_all(&self) -> Result<(), String> {
        for (window, ranks) in self.memory.iter().enumerate() {
            for (rank, memory) in ranks.iter().enumerate().filter(|(rank, _)| self.sees(*rank as u32)) {
                let shadow = &self.shadow[window][rank];
                if let Some(text) = difference(shadow, &memory.read(0, shadow.len())) {
                    return Err(format!("at the end of a phase window {window} of rank {rank} holds {text}"));
                }
            }
        }
        Ok(())
    }

    /// Each number from the first to the last was given out once.
    fn check_tickets(&mut self, index: usize) -> Result<(), String> {
        let span = self.spans[index];
        let Span { window, rank, offset, .. } = span;
        let (root, place) = self.place(window, offset);
        let end = number(&self.shadow[root][rank as usize][place..place + 8]);
        let tickets = &mut self.tallies[index].tickets;
        tickets.sort_unstable();
        let first = end.wrapping_sub(tickets.len() as u64);
        let is_wrong = tickets.iter().enumerate().any(|(at, &ticket)| ticket != first + at as u64);
        if is_wrong {
            return Err(format!("{span:?} gave out {tickets:?}, not {first} to {end}"));
        }
        Ok(())
    }

    /// The swaps that succeeded form one chain from the first value to the last.
    fn check_swaps(&mut self, index: usize) -> Result<(), String> {
        let span = self.spans[index];
        let Span { window, rank, offset, .. } = span;
        let memory = self.memory[window][rank as usize].read(offset, 8);
        let shadow = self.shadow_mut(window, rank, offset, 8);
        let (first, last) = (number(shadow), number(&memory));
        shadow.copy_from_slice(&memory);
        let tally = &self.tallies[index];
        let mut value = first;
        let mut values = vec![first];
        // New values are unique, so each has at most one successor.
        while let Some(&(_, new)) = tally.swaps.iter().find(|(old, _)| *old == value) {
            value = new;
            values.push(new);
            if values.len() > tally.swaps.len() + 1 {
                break;
            }
        }
        if value != last || values.len() != tally.swaps.len() + 1 {
            return Err(format!("{span:?}: {:?} is no chain from {first} to {last}", tally.swaps));
        }
        let is_stray = |(old, _): &&(u64, u64)| !values.contains(old);
        match tally.seen.iter().find(is_stray) {
            Some((old, _)) => Err(format!("{span:?} was seen as {old}, which it never was")),
            None => Ok(()),
        }
    }

    /// `holder` has certainly got the lock: nobody may hold a conflicting one.
    pub(super) fn on_held(
        &mut self,
        window: usize,
        target: u32,
        holder: u32,
        is_exclusive: bool,
    ) -> Result<(), String> {
        let new = Held { window, target, holder, is_exclusive };
        let same = |held: &&Held| held.window == window && held.target == target;
        let conflicts = |held: &&Held| held.holder != holder && (held.is_exclusive || is_exclusive);
        if let Some(held) = self.held.iter().filter(same).find(conflicts) {
            return Err(format!("{new:?} although {held:?}"));
        }
        if !self.held.contains(&new) {
            self.held.push(new);
        }
        Ok(())
    }

    /// `holder` is about to give the lock back (all of the window's, if `target` is `None`).
    pub(super) fn on_release(&mut self, window: usize, target: Option<u32>, holder: u32) {
        self.held.retain(|held| {
            held.window != window
                || held.holder != holder
                || target.is_some_and(|target| target != held.target)
        });
    }
}

fn number(bytes: &[u8]) -> u64 {
    let mut raw = [0; 8];
    raw[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    u64::from_ne_bytes(raw)
}

/// The first difference, in words.
fn difference(expected: &[u8], found: &[u8]) -> Option<String> {
    if expected == found {
        return None;
    }
    let at = expected.iter().zip(found).position(|(one, other)| one != other).unwrap_or_default();
    let end = (at + 8).min(expected.len()).min(found.len());
    let count = expected.iter().zip(found).filter(|(one, other)| one != other).count();
    let (expected, found) = (&expected[at..end], &found[at..end]);
    Some(format!("{found:02x?} and not {expected:02x?} at byte {at} ({count} bytes differ)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusive_means_alone() {
        let mut oracle = Oracle::new(&[]);
        assert_eq!(oracle.on_held(0, 1, 2, false), Ok(()));
        assert_eq!(oracle.on_held(0, 1, 3, false), Ok(()));
        assert_eq!(oracle.on_held(0, 2, 4, true), Ok(()));
        assert!(oracle.on_held(0, 1, 5, true).is_err());
        oracle.on_release(0, Some(1), 2);
        oracle.on_release(0, None, 3);
        assert_eq!(oracle.on_held(0, 1, 5, true), Ok(()));
        assert!(oracle.on_held(0, 1, 2, false).is_err());
    }

    #[test]
    fn differences_are_described() {
        assert_eq!(difference(&[1, 2], &[1, 2]), None);
        let text = difference(&[1, 2, 3], &[1, 9, 3]).unwrap();
        assert_eq!(text, "[09, 03] and not [02, 03] at byte 1 (1 bytes differ)");
    }
}
