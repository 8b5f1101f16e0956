//! What is said of one row: a value for each round, their median, and how sure that is.
//!
//! Samples of one run are not independent: a machine that changes its speed slows thousands in a row, and an interval
//! over single samples would be far too narrow. So the interval is over rounds, which lie apart, and it assumes nothing
//! about how values are distributed.

use hdrhistogram::Histogram;

/// One value for each round.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Series {
    rounds: Vec<f64>,
    sorted: Vec<f64>,
}

/// Where a median lies.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// How likely such an interval holds the true median: at least [`CONFIDENCE`] from six rounds on.
    pub confidence: f64,
}

/// What intervals are to reach.
pub const CONFIDENCE: f64 = 0.95;

/// Rounds from which on an interval reaches [`CONFIDENCE`].
pub const ROUNDS_MIN: usize = 6;

impl Series {
    /// The values of rounds, in the order in which they were measured. What is not finite is left out.
    pub fn new(rounds: impl IntoIterator<Item = f64>) -> Self {
        let rounds: Vec<f64> = rounds.into_iter().filter(|value| value.is_finite()).collect();
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        Self { rounds, sorted }
    }

    /// The values in the order in which they were measured.
    pub fn rounds(&self) -> &[f64] {
        &self.rounds
    }

    /// The median; `NaN` when there is no round.
    pub fn median(&self) -> f64 {
        match (self.sorted.len(), self.sorted.len() / 2) {
            (0, _) => f64::NAN,
            (count, middle) if count % 2 == 1 => self.sorted[middle],
            (_, middle) => f64::midpoint(self.sorted[middle - 1], self.sorted[middle]),
        }
    }

    /// The least value; `NaN` when there is no round.
    pub fn least(&self) -> f64 {
        self.sorted.first().copied().unwrap_or(f64::NAN)
    }

    /// The greatest value; `NaN` when there is no round.
    pub fn most(&self) -> f64 {
        self.sorted.last().copied().unwrap_or(f64::NAN)
    }

    /// The interval between two of the sorted values that holds the median of what was measured: the narrowest that
    /// reaches [`CONFIDENCE`], or, of fewer than [`ROUNDS_MIN`] rounds, all of them.
    pub fn interval(&self) -> Interval {
        let count = self.sorted.len();
        let Some(last) = count.checked_sub(1) else {
            return Interval { low: f64::NAN, high: f64::NAN, confidence: 0.0 };
        };
        if count > EXACT_MAX {
            // Powers of a half are no longer numbers here; the normal approximation is as good.
            let cut = ((count as f64 - 1.96 * (count as f64).sqrt()) / 2.0) as usize;
            return Interval { low: self.sorted[cut], high: self.sorted[last - cut], confidence: CONFIDENCE };
        }
        // The true median is above the `cut` lowest values and below the `cut` highest unless more rounds than not fell
        // to one side of it, as coins do. `outside` is the chance of one side.
        let (mut outside, mut ways) = (0.0, 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX)));
        let (mut cut, mut confidence) = (0, 1.0);
        for below in 0..count.div_ceil(2) {
            outside += ways;
            if below > 0 && 1.0 - 2.0 * outside < CONFIDENCE {
                break;
            }
            (cut, confidence) = (below, 1.0 - 2.0 * outside);
            ways *= (count - below) as f64 / (below + 1) as f64;
        }
        Interval { low: self.sorted[cut], high: self.sorted[last - cut], confidence }
    }
}

/// How times are distributed, to three digits, in memory that does not grow with their number.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// In parts of a nanosecond, [`PARTS`] of them.
    nanoseconds: Histogram<u64>,
}

impl Distribution {
    /// An empty one.
    pub fn new() -> Self {
        let nanoseconds = Histogram::new_with_bounds(1, NANOSECONDS_MAX, 3);
        Self { nanoseconds: nanoseconds.expect("the bounds are constants that fit") }
    }

    /// Adds a time of `count` operations, as the time of each.
    pub fn add(&mut self, nanoseconds: u64, count: u64) {
        let each = nanoseconds as f64 * PARTS / count.max(1) as f64;
        self.nanoseconds.saturating_record((each as u64).max(1));
    }

    /// Adds all times of another.
    pub fn add_all(&mut self, other: &Self) {
        for recorded in other.nanoseconds.iter_recorded() {
            self.nanoseconds.saturating_record_n(recorded.value_iterated_to(), recorded.count_at_value());
        }
    }

    /// The time below which the share `q` of all lies, microseconds; `NaN` when there is none.
    pub fn quantile_us(&self, q: f64) -> f64 {
        if self.nanoseconds.is_empty() {
            return f64::NAN;
        }
        self.nanoseconds.value_at_quantile(q) as f64 / PARTS / 1000.0
    }

    /// The shortest time, microseconds; `NaN` when there is none.
    pub fn least_us(&self) -> f64 {
        if self.nanoseconds.is_empty() {
            return f64::NAN;
        }
        self.nanoseconds.min() as f64 / PARTS / 1000.0
    }
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new()
    }
}

/// Rounds up to which the interval's confidence is computed exactly.
const EXACT_MAX: usize = 1000;
/// Recorded units in a nanosecond: operations on memory of the same host take few nanoseconds.
const PARTS: f64 = 10.0;
/// An hour; what takes longer is recorded as this.
const NANOSECONDS_MAX: u64 = 3_600_000_000_000 * 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_what_tables_of_order_statistics_say() {
        let of = |count: u32| Series::new((1..=count).map(f64::from)).interval();
        // From published tables: ranks (1, 6), (2, 10), (6, 15), and the confidence that they have.
        for (count, low, high, confidence) in
            [(6, 1.0, 6.0, 0.969), (11, 2.0, 10.0, 0.988), (20, 6.0, 15.0, 0.959)]
        {
            let interval = of(count);
            assert_eq!((interval.low, interval.high), (low, high), "{count}");
            assert!((interval.confidence - confidence).abs() < 0.001, "{interval:?}");
        }
        let five = of(5);
        assert_eq!((five.low, five.high), (1.0, 5.0));
        assert!(five.confidence < CONFIDENCE && five.confidence > 0.9);
        assert!(of(ROUNDS_MIN as u32).confidence >= CONFIDENCE);
        assert_eq!(of(1).confidence, 0.0);
        assert!(of(0).low.is_nan());
        let (exact, approximate) = (of(1000), of(1001));
        assert!((exact.low - approximate.low).abs() < 3.0 && approximate.confidence >= CONFIDENCE);
    }

    #[test]
    fn the_median_lies_between_two_of_an_even_number() {
        assert_eq!(Series::new([3.0, 1.0, 2.0]).median(), 2.0);
        assert_eq!(Series::new([4.0, 1.0, 2.0, 3.0]).median(), 2.5);
        let series = Series::new([3.0, f64::NAN, 1.0]);
        assert_eq!((series.rounds(), series.least(), series.most()), (&[3.0, 1.0][..], 1.0, 3.0));
        assert!(Series::default().median().is_nan());
    }

    #[test]
    fn batches_count_as_the_time_of_one_operation() {
        let mut times = Distribution::new();
        assert!(times.quantile_us(0.5).is_nan());
        for _ in 0..99 {
            times.add(100_000, 1000);
        }
        times.add(5_000_000, 1);
        assert!((times.quantile_us(0.5) - 0.1).abs() < 0.001);
        assert!((times.least_us() - 0.1).abs() < 0.001);
        let mut both = times.clone();
        both.add_all(&times);
        assert_eq!(both.quantile_us(0.5), times.quantile_us(0.5));
        assert_eq!(both.quantile_us(0.99), times.quantile_us(0.99));
        assert!((times.quantile_us(1.0) - 5000.0).abs() < 10.0);
        times.add(u64::MAX, 1);
        assert!(times.quantile_us(1.0).is_finite());
    }
}
