//! `rma-bench latency`: what an operation and its completion take.

use rma_bench::record::{Record, Unit};
use serde_json::json;

use crate::cli::{Latency, Measurement};
use crate::exchange::{Exchange, Manner, Row, Sync};
use crate::ground::{Operation, Room};
use crate::measure;
use crate::pattern::Pattern;
use crate::session::{self, Reporter};
use crate::team::{TargetKind, Team};
use crate::Outcome;

/// Runs the command.
pub(crate) fn run(options: &Latency) -> Outcome<()> {
    let Latency { measurement, meanwhile, partners, .. } = options;
    check(measurement.epochs.sync, meanwhile.target, partners.pattern)?;
    session::run("latency", 2, &measurement.output, |team, reporter| measure(team, reporter, options))
}

/// Refuses what would measure something else than it says.
fn check(sync: Sync, target: TargetKind, pattern: Pattern) -> Outcome<()> {
    let is_away = target != TargetKind::Polling;
    if is_away && !sync.is_passive() {
        return Err("with fence and pscw targets take part: leave --target, or choose another --sync".into());
    }
    if is_away && pattern == Pattern::Neighbours {
        return Err(
            "neighbours are origins as well as targets: leave --target, or choose another --pattern".into()
        );
    }
    Ok(())
}

fn measure(team: &Team<'_>, reporter: &mut Reporter, options: &Latency) -> Outcome<()> {
    let Measurement { operation: operations, epochs, amount, .. } = &options.measurement;
    let (target, pattern, sizes) =
        (options.meanwhile.target, options.partners.pattern, options.range.sizes.all());
    let rows_of = |operation: Operation| -> Vec<Row> {
        let sizes = operation.sizes(&sizes);
        sizes.into_iter().map(|size| Row::new(operation, size, 1)).collect()
    };
    let size_max = operations.iter().flat_map(|&operation| rows_of(operation)).map(|row| row.size).max();
    let size_max = size_max.ok_or("no operation to measure")?;
    let room = Room { kind: epochs.window, pattern, pairs: u32::MAX, size_max, bytes_max: size_max };
    let manner = Manner { target, takes_turns: true, ..epochs.manner() };
    let mut exchange = Exchange::new(team, manner, &room)?;
    for &operation in operations {
        let rows = rows_of(operation);
        let measured = measure::rows(&mut exchange, &rows, &amount.effort())?;
        let records: Vec<Record> = rows
            .iter()
            .zip(&measured)
            .map(|(row, measured)| {
                let key = session::key(json!({
                    "benchmark": "latency",
                    "operation": operation.name(),
                    "window": epochs.window.name(),
                    "sync": epochs.name(),
                    "target": target.name(),
                    "pattern": pattern.name(),
                    "size": row.size,
                }));
                let times = measured.times.iter().copied();
                reporter.record(key, Unit::Microseconds, times, session::details(measured))
            })
            .collect();
        reporter.group(&records, &["size"])?;
    }
    exchange.free()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_cannot_be_away_where_it_takes_part() {
        assert!(check(Sync::Fence, TargetKind::Idle, Pattern::Pairs).is_err());
        assert!(check(Sync::Flush, TargetKind::Busy, Pattern::Neighbours).is_err());
        assert!(check(Sync::Lock, TargetKind::Busy, Pattern::OneToAll).is_ok());
        assert!(check(Sync::Pscw, TargetKind::Polling, Pattern::Neighbours).is_ok());
    }
}
