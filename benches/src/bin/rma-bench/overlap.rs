//! `rma-bench overlap`: how much of an operation's time passes while the origin computes.

use std::time::Instant;

use rma_bench::record::{Record, Unit};
use serde_json::{json, Value};

use crate::cli::{Measurement, Overlap};
use crate::exchange::{Exchange, Manner, Row, Work};
use crate::ground::{Operation, Room};
use crate::measure::{self, Effort, Measured};
use crate::pattern::Pattern;
use crate::session::{self, Reporter};
use crate::team::{compute, Team};
use crate::Outcome;

/// What is timed of each size, next to each other in each round.
const PARTS: [&str; 3] = ["communication", "computation", "both"];

/// Runs the command.
pub(crate) fn run(options: &Overlap) -> Outcome<()> {
    if !options.measurement.epochs.sync.is_passive() {
        return Err(
            "with fence and pscw targets take part: choose a --sync of flush, flush_local, lock or lock_all"
                .into(),
        );
    }
    session::run("overlap", 2, &options.measurement.output, |team, reporter| measure(team, reporter, options))
}

fn measure(team: &Team<'_>, reporter: &mut Reporter, options: &Overlap) -> Outcome<()> {
    let Measurement { operation: operations, epochs, amount, .. } = &options.measurement;
    let sizes = options.sizes.all();
    let sizes_of = |operation: Operation| operation.sizes(&sizes);
    let size_max = operations.iter().flat_map(|&operation| sizes_of(operation)).max();
    let size_max = size_max.ok_or("no operation to measure")?;
    let (kind, pattern) = (epochs.window, Pattern::Pairs);
    let room = Room { kind, pattern, pairs: u32::MAX, size_max, bytes_max: size_max };
    let manner = Manner { target: options.meanwhile.target, ..epochs.manner() };
    let mut exchange = Exchange::new(team, manner, &room)?;
    let effort = amount.effort();
    for &operation in operations {
        let rows: Vec<Row> =
            sizes_of(operation).into_iter().map(|size| Row::new(operation, size, 1)).collect();
        let rows = with_work(&mut exchange, team, &rows, &effort, options.slices)?;
        let measured = measure::rows(&mut exchange, &rows, &effort)?;
        let mut records = Vec::new();
        for (rows, measured) in rows.chunks(PARTS.len()).zip(measured.chunks(PARTS.len())) {
            records.extend(of_a_size(reporter, options, &rows[0], measured));
        }
        reporter.group(&records, &["size", "measure"])?;
    }
    exchange.free()
}

/// For each row itself, a computation that takes as long and no operation, and both. Collective.
fn with_work(
    exchange: &mut Exchange<'_>,
    team: &Team<'_>,
    rows: &[Row],
    effort: &Effort,
    slices: u32,
) -> Outcome<Vec<Row>> {
    let measured = measure::rows(exchange, rows, &Effort { rounds: 1, ..*effort })?;
    let step = nanoseconds_of_a_step();
    let mut all = Vec::with_capacity(PARTS.len() * rows.len());
    for (row, measured) in rows.iter().zip(&measured) {
        let microseconds = measured.times.first().copied().unwrap_or(0.0);
        let [steps] = team.tell([((microseconds * 1000.0 / step) as u64).max(1)])?;
        let work = Work { steps, slices };
        all.extend([*row, Row { outstanding: 0, work, ..*row }, Row { work, ..*row }]);
    }
    Ok(all)
}

/// The fastest of several attempts: what disturbs makes slower only.
fn nanoseconds_of_a_step() -> f64 {
    let attempt = || {
        let begun = Instant::now();
        compute(STEPS);
        begun.elapsed().as_nanos() as f64 / STEPS as f64
    };
    (0..5).map(|_| attempt()).fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE)
}

/// The rows of the parts, and of the share that was hidden.
fn of_a_size(reporter: &Reporter, options: &Overlap, row: &Row, measured: &[Measured]) -> Vec<Record> {
    let key = |measure: &str| {
        session::key(json!({
            "benchmark": "overlap",
            "operation": row.operation.name(),
            "measure": measure,
            "window": options.measurement.epochs.window.name(),
            "sync": options.measurement.epochs.name(),
            "target": options.meanwhile.target.name(),
            "slices": options.slices,
            "size": row.size,
        }))
    };
    let time = |(part, measured): (&&str, &Measured)| {
        let times = measured.times.iter().copied();
        reporter.record(key(part), Unit::Microseconds, times, Value::Null)
    };
    let mut records: Vec<Record> = PARTS.iter().zip(measured).map(time).collect();
    if let [communication, computation, both] = measured {
        let rounds = communication.times.iter().zip(&computation.times).zip(&both.times);
        let shares =
            rounds.map(|((communication, computation), both)| hidden(*communication, *computation, *both));
        records.push(reporter.record(key("overlap"), Unit::Share, shares, Value::Null));
    }
    records
}

/// The share of the communication that `both` did not take longer than the computation alone.
fn hidden(communication: f64, computation: f64, both: f64) -> f64 {
    (1.0 - (both - computation) / communication).clamp(0.0, 1.0)
}

/// Steps of an attempt.
const STEPS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_hidden_where_both_take_as_long_as_the_computation() {
        assert_eq!(hidden(10.0, 10.0, 10.0), 1.0);
        assert_eq!(hidden(10.0, 10.0, 20.0), 0.0);
        assert_eq!(hidden(10.0, 10.0, 15.0), 0.5);
        // Noise may make both slower than one after the other, or faster than either.
        assert_eq!(hidden(10.0, 10.0, 25.0), 0.0);
        assert_eq!(hidden(10.0, 10.0, 9.0), 1.0);
    }

    #[test]
    fn a_step_takes_some_time() {
        assert!(nanoseconds_of_a_step() > 0.0);
    }
}
