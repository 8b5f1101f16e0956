//! Layouts made by any bytes: constructors refuse what cannot be counted, and walks stay within what a layout
//! says of itself.

use rma_core::dtype::Dtype;
use rma_core::layout::{ArrayOrder, Layout};
use rma_core::wire::{Reader, Runs};

/// Most runs that are looked at of one layout.
const RUNS_MAX: usize = 200;

/// Takes `input` for a sequence of constructor calls, walks what they make, and then for a run table. Panics
/// when a layout contradicts itself.
pub fn feed(input: &[u8]) {
    let mut bytes = Bytes(input);
    let mut made = vec![Layout::of(Dtype::F64), Layout::of(Dtype::U8)];
    while let Some(code) = bytes.byte() {
        if let Some(layout) = construct(code, &mut bytes, &made) {
            walk(&layout);
            if made.len() < 8 {
                made.push(layout);
            } else {
                let place = code as usize % made.len();
                made[place] = layout;
            }
        }
    }
    table(input);
}

/// Numbers from bytes: small ones, and now and then any.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn count(&mut self) -> u64 {
        match self.byte().unwrap_or(1) {
            255 => self.number() as u64,
            byte => u64::from(byte % 16),
        }
    }

    fn signed(&mut self) -> i64 {
        match self.byte().unwrap_or(0) {
            255 => self.number(),
            byte => i64::from(byte as i8),
        }
    }

    fn number(&mut self) -> i64 {
        (0..8).fold(0, |number, _| number << 8 | i64::from(self.byte().unwrap_or(0)))
    }
}

fn construct(code: u8, bytes: &mut Bytes<'_>, made: &[Layout]) -> Option<Layout> {
    let old = &made[bytes.byte()? as usize % made.len()];
    let blocks = |bytes: &mut Bytes<'_>| -> Vec<(u64, i64)> {
        (0..bytes.byte().unwrap_or(0) % 6).map(|_| (bytes.count(), bytes.signed())).collect()
    };
    match code % 8 {
        0 => Layout::contiguous(bytes.count(), old).ok(),
        1 => Layout::vector(bytes.count(), bytes.count(), bytes.signed(), old).ok(),
        2 => Layout::hvector(bytes.count(), bytes.count(), bytes.signed(), old).ok(),
        3 => Layout::indexed(&blocks(bytes), old).ok(),
        4 => Layout::hindexed(&blocks(bytes), old).ok(),
        5 => {
            let members: Vec<_> = blocks(bytes).into_iter().zip(made).collect();
            let members: Vec<_> =
                members.iter().map(|&((count, disp), layout)| (count, disp, layout)).collect();
            Layout::structure(&members).ok()
        }
        6 => {
            let dimensions = usize::from(bytes.byte().unwrap_or(1) % 4);
            let mut numbers = || -> Vec<u64> { (0..dimensions).map(|_| bytes.count()).collect() };
            let (starts, subsizes, sizes) = (numbers(), numbers(), numbers());
            let order = if code & 8 == 0 { ArrayOrder::RowMajor } else { ArrayOrder::ColumnMajor };
            Layout::subarray(&sizes, &subsizes, &starts, order, old).ok()
        }
        _ => old.resized(bytes.signed(), bytes.signed()).ok(),
    }
}

fn walk(layout: &Layout) {
    let (low, high) = layout.true_bounds();
    assert!(low <= high && layout.size() < 1 << 62);
    assert_eq!(layout.span_of(layout.size()), Some((low, high)), "{layout:?}");
    for instances in [1, 3] {
        let Some(size) = layout.size().checked_mul(instances) else { continue };
        let Some((low, high)) = layout.span_of(size) else { continue };
        // From the beginning, and from just before the end.
        for mut at in [0, size.saturating_sub(100)] {
            for _ in 0..RUNS_MAX {
                if at >= size {
                    break;
                }
                let run = layout.run_at(at, size);
                let bounds = run.bounds().expect("a layout's runs can be counted");
                assert!(low <= bounds.0 && bounds.1 <= high, "{run:?} of {layout:?}");
                let bytes = run.size().expect("a layout's runs can be counted");
                assert!(bytes > 0 && bytes <= size - at, "{run:?} of {layout:?}");
                at += bytes;
            }
        }
    }
}

fn table(input: &[u8]) {
    let Ok(runs) = Runs::take(&mut Reader::new(input)) else { return };
    for run in runs.take(RUNS_MAX).map_while(Result::ok) {
        let (low, high) = run.bounds().expect("the decoder has counted it");
        assert!(low < high && run.size().is_some_and(|size| size > 0));
    }
}
