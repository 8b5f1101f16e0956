//! How many operations are timed together, and how many times: found from what they take.

use std::time::{Duration, Instant};

/// Finds out when a row has warmed up: connections are made, pages are touched, processors run at their speed.
///
/// It has when two blocks in a row are not faster than what came before them.
#[derive(Clone, Debug, Default)]
pub struct WarmUp {
    best: Option<f64>,
    steady: u32,
}

impl WarmUp {
    /// Adds the median of a block of batches; whether the row has warmed up.
    pub fn add(&mut self, median: f64) -> bool {
        let is_steady = self.best.is_some_and(|best| median >= best * STEADY);
        self.steady = if is_steady { self.steady + 1 } else { 0 };
        self.best = Some(self.best.map_or(median, |best| best.min(median)));
        self.steady >= STEADY_BLOCKS
    }
}

/// A block that takes less than this of the fastest so far still warms up.
const STEADY: f64 = 0.97;
/// Blocks in a row that have to be steady.
const STEADY_BLOCKS: u32 = 2;

/// Longest time that a row may take to warm up.
pub const WARM_UP_MAX: Duration = Duration::from_secs(2);

/// Nanoseconds that a batch takes at least, so that reading the clock before and after it does not matter.
pub fn batch_nanoseconds() -> f64 {
    let start = Instant::now();
    for _ in 0..CLOCK_READS {
        std::hint::black_box(Instant::now());
    }
    let each = start.elapsed().as_nanos() as f64 / f64::from(CLOCK_READS);
    each * CLOCK_SHARE
}

const CLOCK_READS: u32 = 1000;
/// Reading the clock is at most one part in this many of what is timed.
const CLOCK_SHARE: f64 = 100.0;

/// The operations to time together when `batch` took `nanoseconds`: more, if that was too short to tell.
pub fn next_batch(batch: u64, nanoseconds: f64, least: f64) -> u64 {
    if nanoseconds >= least {
        return batch;
    }
    let factor = (least / nanoseconds.max(1.0)).clamp(2.0, 16.0);
    ((batch as f64 * factor).ceil() as u64).min(BATCH_MAX)
}

/// Operations in a batch at most.
const BATCH_MAX: u64 = 1 << 20;

/// Batches in each of `rounds` rounds: as many operations together as were asked for, or, if that is open, as fit in
/// `time` when a batch takes `nanoseconds`.
pub fn batches(iterations: Option<u64>, time: Duration, rounds: u64, batch: u64, nanoseconds: f64) -> u64 {
    let rounds = rounds.max(1);
    match iterations {
        Some(iterations) => iterations.div_ceil(rounds).div_ceil(batch.max(1)).max(1),
        None => {
            let fit = time.as_nanos() as f64 / rounds as f64 / nanoseconds.max(1.0);
            (fit as u64).clamp(1, BATCHES_MAX)
        }
    }
}

/// Batches in a round at most where their number is open.
const BATCHES_MAX: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warming_up_ends_when_nothing_gets_faster() {
        let mut warm_up = WarmUp::default();
        let blocks = [100.0, 50.0, 20.0, 19.9, 15.0, 15.0, 15.1, 99.0];
        let ends: Vec<bool> = blocks.iter().map(|&median| warm_up.add(median)).collect();
        assert_eq!(ends, [false, false, false, false, false, false, true, true]);
    }

    #[test]
    fn batches_grow_until_the_clock_does_not_matter() {
        assert_eq!(next_batch(1, 5000.0, 2500.0), 1);
        assert_eq!(next_batch(1, 1250.0, 2500.0), 2);
        assert_eq!(next_batch(8, 0.0, 2500.0), 128);
        assert_eq!(next_batch(BATCH_MAX, 0.0, 2500.0), BATCH_MAX);
        assert!(batch_nanoseconds() > 0.0);
    }

    #[test]
    fn iterations_are_at_least_as_many_as_asked_for() {
        let time = Duration::from_millis(110);
        assert_eq!(batches(Some(1000), time, 10, 16, 1.0), 7);
        assert_eq!(batches(Some(1), time, 10, 16, 1.0), 1);
        assert_eq!(batches(None, time, 11, 1, 10_000.0), 1000);
        assert_eq!(batches(None, time, 11, 1, 1e12), 1);
        assert_eq!(batches(None, time, 0, 1, 0.0), BATCHES_MAX);
    }
}
