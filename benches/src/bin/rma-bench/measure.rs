//! Rows in rounds: warmed up, in batches of a length that is found, one row after the other in each round.

use std::time::{Duration, Instant};

use rma_bench::plan::{self, WarmUp};
use rma_bench::series::{Distribution, Series};

use crate::exchange::{Batches, Times};
use crate::progress::Progress;
use crate::team::Team;
use crate::Outcome;

/// Something that can be measured in rows.
pub(crate) trait Subject {
    /// What tells rows apart.
    type Row;

    /// All ranks.
    fn team(&self) -> &Team<'_>;

    /// Threads of a rank that work at once.
    fn threads(&self) -> usize;

    /// Epochs in what is timed as one: two where both sides take turns.
    fn turns(&self) -> f64;

    /// Batches of one row, checked. Collective; times at those who measure.
    fn segment(&mut self, row: &Self::Row, batches: Batches) -> Outcome<Times>;
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Epochs of a row, all rounds together; open: as many as fit in `time`.
    pub(crate) iterations: Option<u64>,
    /// Epochs before them; open: until batches are stable.
    pub(crate) warm_up: Option<u64>,
    /// For each row, all rounds together.
    pub(crate) time: Duration,
    pub(crate) rounds: usize,
}

/// What was measured of a row; complete at the leader only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    /// Microseconds of an epoch, in each round the mean over origins of each one's median.
    pub(crate) times: Vec<f64>,
    /// Epochs a second, in each round the sum over origins of epochs by the time that they took together.
    pub(crate) rates: Vec<f64>,
    pub(crate) p99: f64,
    pub(crate) least: f64,
    /// Epochs that each origin timed in each of its threads.
    pub(crate) epochs: u64,
    /// Of them, those timed together.
    pub(crate) batch: u64,
    pub(crate) warm_up: u64,
}

/// Measures all rows in each of the rounds, so that a machine which changes its speed does so for all of them.
/// Collective.
pub(crate) fn rows<S: Subject>(subject: &mut S, rows: &[S::Row], effort: &Effort) -> Outcome<Vec<Measured>> {
    let mut progress = Progress::new(rows.len() * (effort.rounds + 1), subject.team().leads());
    let mut measured = vec![Measured::default(); rows.len()];
    let mut plans = Vec::with_capacity(rows.len());
    for (index, row) in rows.iter().enumerate() {
        plans.push(warm_up(subject, row, effort, &mut measured[index])?);
        progress.show(index + 1);
    }
    let mut all: Vec<Distribution> = rows.iter().map(|_| Distribution::new()).collect();
    for round in 0..effort.rounds {
        for step in 0..rows.len() {
            // Each round begins with another row, so that none always follows the same one.
            let index = (round + step) % rows.len();
            let times = subject.segment(&rows[index], plans[index])?;
            times.batches.iter().for_each(|&time| all[index].add(time, plans[index].epochs));
            add_round(subject, &times, plans[index], &mut measured[index])?;
            progress.show((round + 1) * rows.len() + step + 1);
        }
    }
    progress.clear();
    for (measured, own) in measured.iter_mut().zip(&all) {
        let said = subject.team().gather(&[own.quantile_us(0.99), own.least_us()])?;
        let turns = subject.turns();
        measured.p99 = said.iter().map(|said| said[0] / turns).fold(f64::NAN, f64::max);
        measured.least = said.iter().map(|said| said[1] / turns).fold(f64::NAN, f64::min);
    }
    Ok(measured)
}

/// Warms a row up and finds how many of its epochs are timed together, and how often. Collective.
fn warm_up<S: Subject>(
    subject: &mut S,
    row: &S::Row,
    effort: &Effort,
    measured: &mut Measured,
) -> Outcome<Batches> {
    let least = plan::batch_nanoseconds();
    let (mut seen, begun) = (WarmUp::default(), Instant::now());
    let mut batches = Batches { count: 1, epochs: 1 };
    loop {
        let times = subject.segment(row, batches)?;
        measured.warm_up += batches.count * batches.epochs;
        let own = Series::new(times.batches.iter().map(|&time| time as f64)).median();
        let said = subject.team().gather(&[own])?;
        // What the slowest needs, all do.
        let median = said.iter().map(|said| said[0]).fold(f64::NAN, f64::max);
        let epochs = plan::next_batch(batches.epochs, median, least);
        let each = median / batches.epochs as f64;
        let left = effort.warm_up.map(|wanted| wanted.saturating_sub(measured.warm_up));
        let is_long_enough = epochs == batches.epochs;
        let is_steady = batches.count > 1 && is_long_enough && seen.add(each);
        let is_done = match left {
            Some(left) => left == 0 && is_long_enough,
            None => is_steady || begun.elapsed() > plan::WARM_UP_MAX,
        };
        // The last is what is measured in each round.
        let count = if is_done {
            let nanoseconds = each * epochs as f64;
            plan::batches(effort.iterations, effort.time, effort.rounds as u64, epochs, nanoseconds)
        } else {
            left.map_or(WARM_UP_BATCHES, |left| left.div_ceil(epochs)).clamp(1, WARM_UP_BATCHES)
        };
        let [epochs, count, is_done] = subject.team().tell([epochs, count, u64::from(is_done)])?;
        batches = Batches { count, epochs };
        if is_done == 1 {
            measured.batch = epochs;
            return Ok(batches);
        }
    }
}

fn add_round(
    subject: &impl Subject,
    times: &Times,
    batches: Batches,
    measured: &mut Measured,
) -> Outcome<()> {
    let threads = subject.threads() as f64;
    let epochs = batches.count * batches.epochs;
    let median = Series::new(times.batches.iter().map(|&time| time as f64)).median();
    let each = median / batches.epochs as f64 / 1000.0 / subject.turns();
    let rate = epochs as f64 * threads * 1e9 / times.wall as f64;
    let said = subject.team().gather(&[each, rate])?;
    let of = |at: usize| said.iter().map(move |said| said[at]).filter(|value| value.is_finite());
    let origins = of(0).count() as f64;
    measured.times.push(of(0).sum::<f64>() / origins);
    measured.rates.push(of(1).sum());
    measured.epochs += epochs;
    Ok(())
}

/// Batches between two looks at whether a row has warmed up.
const WARM_UP_BATCHES: u64 = 8;
