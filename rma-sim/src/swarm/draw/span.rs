//! Who may do what where.

use std::ops::Range;

use rma_core::dtype::{Dtype, DtypeClass};
use rma_core::op::ReduceOp;

use super::super::plan::{Over, Role, Span, Store, WindowPlan};
use super::Draw;
use crate::random::Random;

/// Spans begin at multiples of this: the largest displacement unit and element.
pub(super) const GRAIN: usize = 16;

/// Most spans of one rank's part of a window.
const SPANS_MAX: u64 = 6;

impl Draw<'_> {
    /// Cuts every rank's part of a window into spans with roles. Counters only where locks are exclusive.
    pub(super) fn spans(&mut self, window: usize, has_counters: bool, spans: &mut Vec<Span>) {
        for rank in 0..self.ranks {
            let part = 0..self.windows[window].bytes[rank as usize];
            self.spans_of(window, rank, part, has_counters, spans);
        }
    }

    /// The same for all of some windows at one time: memory that two of them have in common is shared out.
    pub(super) fn spans_of_all(&mut self, windows: &[usize], has_counters: bool, spans: &mut Vec<Span>) {
        let whole = |window: &WindowPlan| window.bytes.iter().map(|&bytes| 0..bytes).collect::<Vec<_>>();
        let mut parts: Vec<Vec<Range<usize>>> = self.windows.iter().map(whole).collect();
        for &upper in windows {
            let Some(Over { window: lower, skip }) = self.windows[upper].over else { continue };
            if !windows.contains(&lower) {
                continue;
            }
            for (rank, &bytes) in self.windows[lower].bytes.iter().enumerate() {
                let cut = self.random.index(bytes / GRAIN + 1) * GRAIN;
                let above = cut.saturating_sub(skip).min(parts[upper][rank].end);
                if self.random.chance(500) {
                    parts[lower][rank].end = cut;
                    parts[upper][rank].start = above;
                } else {
                    parts[lower][rank].start = cut;
                    parts[upper][rank].end = above;
                }
            }
        }
        for &window in windows {
            for rank in 0..self.ranks {
                let part = parts[window][rank as usize].clone();
                self.spans_of(window, rank, part, has_counters, spans);
            }
        }
    }

    fn spans_of(
        &mut self,
        window: usize,
        rank: u32,
        part: Range<usize>,
        has_counters: bool,
        spans: &mut Vec<Span>,
    ) {
        if !self.windows[window].is_dynamic {
            return self.spans_in(window, rank, part, has_counters, spans);
        }
        for region in self.used_regions(window, rank) {
            self.spans_in(window, rank, region, has_counters, spans);
        }
    }

    fn spans_in(
        &mut self,
        window: usize,
        rank: u32,
        part: Range<usize>,
        has_counters: bool,
        spans: &mut Vec<Span>,
    ) {
        let Range { start: mut offset, end: bytes } = part;
        for left in (1..=self.random.between(1, SPANS_MAX)).rev() {
            let rest = bytes.saturating_sub(offset);
            if rest < GRAIN {
                break;
            }
            let share = if left == 1 { rest } else { self.random.between(1, rest as u64) as usize };
            let end = (offset + share).next_multiple_of(GRAIN).min(bytes);
            let role = self.role(has_counters);
            let len = match role {
                Role::Ticket | Role::Swap | Role::Counter => 8,
                _ => end - offset,
            };
            let parity = self.random.below(2) as u8;
            // Now and then a hole, which nobody may touch.
            if self.random.chance(900) {
                spans.push(Span { window, rank, offset, len, role, parity });
            }
            offset = end;
        }
    }

    fn role(&mut self, has_counters: bool) -> Role {
        let random = &mut self.random;
        match random.below(100) {
            0..38 => Role::Owned(random.below(u64::from(self.ranks)) as u32),
            38..50 => Role::Noted(random.below(u64::from(self.ranks)) as u32),
            50..68 => shared(random),
            68..78 => Role::Ticket,
            78..86 => Role::Swap,
            86..94 if has_counters => Role::Counter,
            _ => Role::ReadOnly,
        }
    }

    /// What the owners store before the phase, so that arithmetic begins at sensible numbers.
    pub(super) fn stores(&mut self, spans: &[Span]) -> Vec<Store> {
        let mut stores = Vec::new();
        for span in spans {
            let mut bytes = vec![0; span.len];
            match span.role {
                Role::Shared(dtype, _) => numbers(dtype, &mut self.random, &mut bytes),
                Role::Owned(_) | Role::ReadOnly if self.random.chance(300) => self.random.fill(&mut bytes),
                Role::Owned(_) | Role::ReadOnly => continue,
                Role::Absent(_) | Role::Vanishing(_) => continue,
                Role::Ticket | Role::Swap | Role::Counter | Role::Noted(_) => {}
            }
            stores.push(Store { window: span.window, rank: span.rank, offset: span.offset, bytes });
        }
        stores
    }
}

/// A reduction whose result does not depend on the order: also for floats, where the numbers stay small.
fn shared(random: &mut Random) -> Role {
    let dtype = random.pick(&Dtype::ALL);
    loop {
        let op = random.pick(&ReduceOp::ALL);
        let depends_on_order = matches!(op, ReduceOp::Replace | ReduceOp::NoOp);
        let is_exact = matches!(dtype.class(), DtypeClass::Integer | DtypeClass::Logical | DtypeClass::Pair);
        let may_round = !is_exact && op == ReduceOp::Prod;
        if op.is_defined_for(dtype) && !depends_on_order && !may_round {
            return Role::Shared(dtype, op);
        }
    }
}

/// Fills `bytes` with elements that arithmetic likes: any bits for integers, small whole numbers for the
/// others, so small that 16-bit floats count them exactly. A last piece that is no whole element stays as it
/// is.
pub(in crate::swarm) fn numbers(dtype: Dtype, random: &mut Random, bytes: &mut [u8]) {
    match dtype.class() {
        DtypeClass::Integer | DtypeClass::Logical => random.fill(bytes),
        DtypeClass::Float | DtypeClass::Complex | DtypeClass::Pair => {
            bytes.chunks_exact_mut(dtype.size()).for_each(|element| number(dtype, random, element));
        }
    }
}

/// One element of a small number. Half of the 16-bit ones are zero: thousands may be summed up.
fn number(dtype: Dtype, random: &mut Random, element: &mut [u8]) {
    let value = random.below(10) as i16 - 2;
    match dtype {
        Dtype::F32 => element.copy_from_slice(&f32::from(value).to_ne_bytes()),
        Dtype::F64 => element.copy_from_slice(&f64::from(value).to_ne_bytes()),
        Dtype::F16 => element.copy_from_slice(&random.pick(&[0, 0, 0x3c00, 0xbc00_u16]).to_ne_bytes()),
        Dtype::Bf16 => element.copy_from_slice(&random.pick(&[0, 0, 0x3f80, 0xbf80_u16]).to_ne_bytes()),
        Dtype::ComplexF32 => {
            element[..4].copy_from_slice(&f32::from(value).to_ne_bytes());
            element[4..].copy_from_slice(&(random.below(5) as f32).to_ne_bytes());
        }
        Dtype::ComplexF64 => {
            element[..8].copy_from_slice(&f64::from(value).to_ne_bytes());
            element[8..].copy_from_slice(&(random.below(5) as f64).to_ne_bytes());
        }
        _ => pair(dtype, random, value, element),
    }
}

/// A value that others have too, and an index. Equal pairs are equal in every byte, so that it does not
/// matter which of them stays.
fn pair(dtype: Dtype, random: &mut Random, value: i16, element: &mut [u8]) {
    element.fill(0);
    match dtype {
        Dtype::F32Index => element[..4].copy_from_slice(&f32::from(value).to_ne_bytes()),
        Dtype::F64Index => element[..8].copy_from_slice(&f64::from(value).to_ne_bytes()),
        Dtype::I64Index => element[..8].copy_from_slice(&i64::from(value).to_ne_bytes()),
        Dtype::I32Index => element[..4].copy_from_slice(&i32::from(value).to_ne_bytes()),
        _ => element[..2].copy_from_slice(&value.to_ne_bytes()),
    }
    if let Some(at) = dtype.index_offset() {
        element[at..at + 4].copy_from_slice(&(random.below(40) as i32).to_ne_bytes());
    }
}
