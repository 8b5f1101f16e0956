//! Windows, what is said about them, and windows over the memory of others.

use rma_core::info::{AccumulateOps, AccumulateOrdering, WindowOptions};

use super::super::plan::{Over, WindowPlan};
use super::span::GRAIN;
use crate::random::Random;

/// Windows that not every plan has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) has_dynamic: bool,
    pub(super) has_shared: bool,
}

/// One to three windows, sometimes one more whose memory is that of another, and a dynamic one if it is wanted; one
/// of them is shared if that is.
pub(super) fn windows(ranks: u32, wanted: Wanted, random: &mut Random) -> Vec<WindowPlan> {
    let mut windows: Vec<_> = (0..random.between(1, 3)).map(|_| window(ranks, random)).collect();
    if wanted.has_shared {
        let one = random.index(windows.len());
        share(&mut windows[one]);
    }
    if random.chance(250) {
        let below = random.index(windows.len());
        let upper = over(below, &windows[below], random);
        windows.push(upper);
    }
    if wanted.has_dynamic {
        let disp_unit = vec![1; ranks as usize];
        let mut window = window(ranks, random);
        (window.is_dynamic, window.is_allocated, window.disp_unit) = (true, false, disp_unit);
        windows.push(window);
    }
    for window in &mut windows {
        window.options = options(window, random);
        window.options.alloc_shared_noncontig = window.is_shared && random.chance(400);
    }
    windows
}

/// Makes the ranks share a window. Its parts may lie one behind the other.
fn share(window: &mut WindowPlan) {
    (window.is_shared, window.is_allocated) = (true, false);
    window.bytes.iter_mut().for_each(|bytes| *bytes = *bytes / GRAIN * GRAIN);
}

fn window(ranks: u32, random: &mut Random) -> WindowPlan {
    let largest = random.pick(&[48_u64, 256, 2048, 16384, 65536]).min((1 << 20) / u64::from(ranks));
    let is_symmetric = random.chance(400);
    let (bytes, unit) = (largest as usize, random.pick(&[1, 4, 8]));
    let draw_bytes = |random: &mut Random| match random.below(5) {
        0 => 0,
        1 => random.below(largest + 1) as usize,
        _ => bytes,
    };
    let ranks = 0..ranks;
    WindowPlan {
        bytes: ranks.clone().map(|_| if is_symmetric { bytes } else { draw_bytes(random) }).collect(),
        disp_unit: ranks.map(|_| if is_symmetric { unit } else { random.pick(&[1, 2, 4, 8, 16]) }).collect(),
        is_allocated: random.chance(300),
        is_dynamic: false,
        is_shared: false,
        over: None,
        options: WindowOptions::DEFAULT,
    }
}

/// A window over the memory of another, from some place on.
fn over(window: usize, lower: &WindowPlan, random: &mut Random) -> WindowPlan {
    let skip = random.pick(&[0, 0, 16, 64]);
    let unit = random.pick(&[1, 8]);
    WindowPlan {
        bytes: lower.bytes.iter().map(|bytes| bytes.saturating_sub(skip)).collect(),
        disp_unit: lower.disp_unit.iter().map(|_| unit).collect(),
        is_allocated: false,
        is_dynamic: false,
        is_shared: false,
        over: Some(Over { window, skip }),
        options: WindowOptions::DEFAULT,
    }
}

/// What is true of a window may be said of it.
fn options(window: &WindowPlan, random: &mut Random) -> WindowOptions {
    if random.chance(400) {
        return WindowOptions::DEFAULT;
    }
    let is_same_size = window.bytes.iter().all(|bytes| *bytes == window.bytes[0]);
    let is_same_unit = window.disp_unit.iter().all(|unit| *unit == window.disp_unit[0]);
    let mut draw = |per_mille| random.chance(per_mille);
    let any = AccumulateOrdering { rar: draw(500), raw: draw(500), war: draw(500), waw: draw(500) };
    WindowOptions {
        no_locks: draw(150),
        accumulate_ordering: if draw(400) { any } else { AccumulateOrdering::STRICT },
        accumulate_ops: if draw(250) { AccumulateOps::SameOp } else { AccumulateOps::SameOpNoOp },
        same_size: is_same_size && draw(500),
        same_disp_unit: is_same_unit && draw(500),
        accumulate_granularity: random.pick(&[0, 0, 1, 8, 16, 4096]),
        memory_alignment: random.pick(&[0, 0, 64, 8192]),
        ..WindowOptions::DEFAULT
    }
}
