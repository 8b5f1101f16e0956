//! Regions of dynamic windows: what is attached when, and accesses to what is not.

use std::ops::Range;

use rma_core::config::Config;

use super::super::plan::{Action, Phase, Role, Span, WindowPlan};
use super::operation::Uses;
use super::passive::Rules;
use super::span::GRAIN;
use super::thread::outside_forks;
use super::Draw;
use crate::random::Random;

/// Tells the source of chance for dynamic windows from that of everything else.
pub(super) const SOURCE: u64 = 0x0d11_a111_c0de;

/// Most pieces into which a gap between regions is cut.
const PIECES_MAX: u64 = 5;

/// The settings of dynamic windows: few records, for few ranks, of regions of any size.
pub(super) fn config(config: Config, random: &mut Random) -> Config {
    let drawn = Config {
        native_region_bytes_min: random.pick(&[1, 8, 64, 512, 16 << 10]),
        region_records: random.pick(&[1, 2, 64]),
        region_holders: random.pick(&[0, 1, 2, 64]),
        ..config
    };
    // As users have it, but for windows that are large enough.
    if random.chance(150) {
        return Config { native_region_bytes_min: 64, region_records: 64, region_holders: 64, ..drawn };
    }
    drawn
}

/// The attached regions of every rank of every window, in the order of their places.
#[derive(Debug)]
pub(super) struct Attached(Vec<Vec<Vec<Range<usize>>>>);

impl Attached {
    pub(super) fn new(windows: &[WindowPlan]) -> Self {
        Self(windows.iter().map(|window| vec![Vec::new(); window.bytes.len()]).collect())
    }

    fn of(&mut self, window: usize, rank: u32) -> &mut Vec<Range<usize>> {
        &mut self.0[window][rank as usize]
    }

    /// What lies between the regions.
    fn gaps(&self, window: usize, rank: u32, bytes: usize) -> Vec<Range<usize>> {
        let regions = &self.0[window][rank as usize];
        let starts = core::iter::once(0).chain(regions.iter().map(|region| region.end));
        let ends = regions.iter().map(|region| region.start).chain([bytes]);
        starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| start..end).collect()
    }
}

impl Draw<'_> {
    fn dynamic(&self) -> Vec<usize> {
        (0..self.windows.len()).filter(|&window| self.windows[window].is_dynamic).collect()
    }

    /// A phase in which regions come and go and nobody accesses anything. Always before the first of the others.
    pub(super) fn region_phase(&mut self) -> Option<Phase> {
        let windows = self.dynamic();
        let is_first = windows.iter().all(|&window| self.attached.0[window].iter().all(Vec::is_empty));
        if windows.is_empty() || !(is_first || self.random.chance(500)) {
            return None;
        }
        let mut scripts = vec![Vec::new(); self.ranks as usize];
        for window in windows {
            for (rank, script) in (0..).zip(&mut scripts) {
                self.detach_some(window, rank, script);
                self.attach_some(window, rank, script);
            }
        }
        Some(Phase { name: "attach and detach", stores: Vec::new(), spans: Vec::new(), scripts })
    }

    fn detach_some(&mut self, window: usize, rank: u32, script: &mut Vec<Action>) {
        let mut regions = core::mem::take(self.attached.of(window, rank));
        regions.retain(|region| {
            let goes = self.random.chance(400);
            if goes {
                script.push(Action::Detach { window, offset: region.start, overwrites: None });
            }
            !goes
        });
        *self.attached.of(window, rank) = regions;
    }

    /// Cuts what is not attached anew, and attaches most of it.
    fn attach_some(&mut self, window: usize, rank: u32, script: &mut Vec<Action>) {
        for gap in self.attached.gaps(window, rank, self.windows[window].bytes[rank as usize]) {
            let mut offset = gap.start;
            for left in (1..=self.random.between(1, PIECES_MAX)).rev() {
                let rest = gap.end - offset;
                if rest == 0 {
                    break;
                }
                let share = if left == 1 { rest } else { self.random.between(1, rest as u64) as usize };
                let end = (offset + share).next_multiple_of(GRAIN).min(gap.end);
                if self.random.chance(800) {
                    script.push(Action::Attach { window, offset, len: end - offset });
                    self.attached.of(window, rank).push(offset..end);
                }
                offset = end;
            }
        }
        self.attached.of(window, rank).sort_by_key(|region| region.start);
    }

    /// The regions of a rank that a phase uses: not all, so that some may go and come.
    pub(super) fn used_regions(&mut self, window: usize, rank: u32) -> Vec<Range<usize>> {
        let mut regions = self.attached.of(window, rank).clone();
        regions.retain(|_| self.random.chance(650));
        regions
    }

    /// Regions that no span is in go and come again while the phase lasts. In windows of `strayed`, which are
    /// locked, they may go under the hands of a rank that accesses them, and what is not attached is tried too.
    pub(super) fn idle_regions(&mut self, strayed: &[usize], spans: &mut Vec<Span>) {
        for window in self.dynamic() {
            let has_strays = strayed.contains(&window);
            for rank in 0..self.ranks {
                let bytes = self.windows[window].bytes[rank as usize];
                for gap in self.attached.gaps(window, rank, bytes) {
                    if has_strays && self.random.chance(500) {
                        let role = Role::Absent(self.target());
                        spans.push(span(window, rank, &gap, role));
                    }
                }
                for region in self.attached.of(window, rank).clone() {
                    let is_in = |span: &Span| {
                        span.window == window && span.rank == rank && region.contains(&span.offset)
                    };
                    if !spans.iter().any(is_in) && self.random.chance(700) {
                        self.go(window, rank, &region, has_strays, spans);
                    }
                }
            }
        }
    }

    /// A region is detached, and comes again if nobody may notice.
    fn go(
        &mut self,
        window: usize,
        rank: u32,
        region: &Range<usize>,
        has_strays: bool,
        spans: &mut Vec<Span>,
    ) {
        let (offset, len) = (region.start, region.len());
        let vanishes = has_strays && self.random.chance(800);
        let detach = Action::Detach { window, offset, overwrites: vanishes.then_some(spans.len()) };
        if !vanishes {
            self.moves.push((rank, vec![detach, Action::Attach { window, offset, len }]));
            return;
        }
        let role = Role::Vanishing(self.target());
        spans.push(span(window, rank, region, role));
        self.moves.push((rank, vec![detach]));
        self.attached.of(window, rank).retain(|attached| attached.start != offset);
    }

    /// Puts what was drawn for regions anywhere into the scripts.
    pub(super) fn move_regions(&mut self, scripts: &mut [Vec<Action>]) {
        for (rank, actions) in core::mem::take(&mut self.moves) {
            let (script, mut at) = (&mut scripts[rank as usize], 0);
            for action in actions {
                at += self.random.index(script.len() - at + 1);
                at = outside_forks(script, at);
                script.insert(at, action);
                at += 1;
            }
        }
    }

    /// A section whose operations go to memory that is not attached, or is being detached.
    pub(super) fn stray(
        &mut self,
        rank: u32,
        spans: &[Span],
        rules: Rules,
        uses: &mut Uses,
        script: &mut Vec<Action>,
    ) -> bool {
        let chosen = strays(rank, spans);
        if chosen.is_empty() || !self.random.chance(600) {
            return false;
        }
        let index = self.random.pick(&chosen);
        let Span { window, rank: target, .. } = spans[index];
        let is_exclusive = !rules.all_shared && self.random.chance(300);
        let no_check = rules.all_shared && self.random.chance(300);
        script.push(Action::Lock { window, target, is_exclusive, no_check });
        for _ in 0..self.random.between(1, 12) {
            script.extend(self.operation(rank, spans, &[index], uses).map(Action::Operation));
            if self.random.chance(300) {
                script.push(Action::Flush { window, target: Some(target), is_local: false });
                uses.complete(spans, window, Some(target));
            }
        }
        script.push(Action::Unlock { window, target });
        uses.complete(spans, window, Some(target));
        true
    }
}

/// The spans that are, or may be, not there for the accesses of a rank.
pub(super) fn strays(rank: u32, spans: &[Span]) -> Vec<usize> {
    let is_meant = |span: &Span| span.role == Role::Absent(rank) || span.role == Role::Vanishing(rank);
    (0..spans.len()).filter(|&index| is_meant(&spans[index])).collect()
}

fn span(window: usize, rank: u32, part: &Range<usize>, role: Role) -> Span {
    Span { window, rank, offset: part.start, len: part.len(), role, parity: 0 }
}
