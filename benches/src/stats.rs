//! Times, and what is said of them.

/// Times of one thing, taken in rounds.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Of all rounds together, nanoseconds, in no order.
    all: Vec<u64>,
    /// The median of each round, nanoseconds.
    rounds: Vec<f64>,
}

impl Samples {
    /// Adds a round; its times are nanoseconds.
    pub fn add_round(&mut self, mut times: Vec<u64>) {
        times.sort_unstable();
        self.rounds.push(quantile(&times, 0.5));
        self.all.append(&mut times);
    }

    /// The median of all times, microseconds.
    pub fn median_us(&self) -> f64 {
        self.quantile_us(0.5)
    }

    /// The time below which the share `q` of all times lies, microseconds; 0 when there are none.
    pub fn quantile_us(&self, q: f64) -> f64 {
        let mut sorted = self.all.clone();
        sorted.sort_unstable();
        quantile(&sorted, q) / 1000.0
    }

    /// The median of each round, microseconds.
    pub fn round_medians_us(&self) -> impl Iterator<Item = f64> + '_ {
        self.rounds.iter().map(|nanoseconds| nanoseconds / 1000.0)
    }

    /// The median over the rounds of how much longer these took than `other` in the same round: what is
    /// left when the machine's speed changes from round to round. `NaN` when there is no round.
    pub fn ratio_to(&self, other: &Self) -> f64 {
        let mut ratios: Vec<f64> =
            self.rounds.iter().zip(&other.rounds).map(|(own, its)| own / its).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        match ratios.len() {
            0 => f64::NAN,
            count if count % 2 == 1 => ratios[count / 2],
            count => (ratios[count / 2 - 1] + ratios[count / 2]) / 2.0,
        }
    }
}

/// Of a sorted list, interpolated between neighbours; 0 for an empty one.
fn quantile(sorted: &[u64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = q.clamp(0.0, 1.0) * last as f64;
    let (below, share) = (place.floor() as usize, place.fract());
    let above = (below + 1).min(last);
    sorted[below] as f64 * (1.0 - share) + sorted[above] as f64 * share
}

/// A count that should be the same each time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Each value that occurred, with how often; the fewest, as they should be one.
    seen: Vec<(u64, u64)>,
}

impl Tally {
    /// Adds one count.
    pub fn add(&mut self, count: u64) {
        match self.seen.iter_mut().find(|(value, _)| *value == count) {
            Some((_, times)) => *times += 1,
            None => self.seen.push((count, 1)),
        }
    }

    /// The value that occurred most often, the least of those; 0 when there is none.
    pub fn usual(&self) -> u64 {
        let most = self.seen.iter().map(|&(_, times)| times).max();
        self.seen.iter().filter(|(_, times)| Some(*times) == most).map(|&(value, _)| value).min().unwrap_or(0)
    }

    /// The share of the counts that had the usual value: 1 when all were the same.
    pub fn usual_share(&self) -> f64 {
        let all: u64 = self.seen.iter().map(|(_, times)| times).sum();
        let most = self.seen.iter().map(|(_, times)| times).max();
        most.map_or(1.0, |&most| most as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(quantile(&[7], 0.99), 7.0);
        assert_eq!(quantile(&[1, 3], 0.5), 2.0);
        assert_eq!(quantile(&[0, 10, 20, 30, 40], 0.5), 20.0);
        assert_eq!(quantile(&[0, 100], 0.99), 99.0);
    }

    #[test]
    fn the_ratio_does_not_see_a_machine_that_changes_its_speed() {
        let (mut slow, mut fast) = (Samples::default(), Samples::default());
        for speed in [1, 4, 1, 1, 4] {
            slow.add_round(vec![3000 * speed; 5]);
            fast.add_round(vec![2000 * speed; 5]);
        }
        assert_eq!(slow.ratio_to(&fast), 1.5);
        assert_eq!(fast.median_us(), 2.0);
        assert_eq!(fast.round_medians_us().collect::<Vec<_>>(), [2.0, 8.0, 2.0, 2.0, 8.0]);
        assert!(Samples::default().ratio_to(&fast).is_nan());
    }

    #[test]
    fn a_tally_knows_the_usual_and_how_usual_it_is() {
        let mut tally = Tally::default();
        assert_eq!((tally.usual(), tally.usual_share()), (0, 1.0));
        tally.add(2);
        tally.add(2);
        assert_eq!((tally.usual(), tally.usual_share()), (2, 1.0));
        tally.add(5);
        tally.add(7);
        assert_eq!((tally.usual(), tally.usual_share()), (2, 0.5));
    }
}
