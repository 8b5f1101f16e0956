//! `rma-bench latency`: what an operation and its completion take.

use rma_bench::record::{Record, Unit};
use serde_json::json;

use crate::cli::Latency;
use crate::exchange::{Exchange, Manner, Row, Sync};
use crate::ground::{Operation, Room};
use crate::measure;
use crate::pattern::Pattern;
use crate::session::{self, Reporter};
use crate::team::{TargetKind, Team};
use crate::Outcome;

/// Runs the command.
pub(crate) fn run(options: &Latency) -> Outcome<()> {
    check(options.epochs.sync, options.target, options.pattern)?;
    session::run("latency", 2, &options.output, |team, reporter| measure(team, reporter, options))
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
    let sizes = options.sizes.all();
    let rows_of = |operation: Operation| -> Vec<Row> {
        let sizes = operation.sizes(&sizes);
        sizes.into_iter().map(|size| Row { operation, size, outstanding: 1 }).collect()
    };
    let size_max =
        options.operation.iter().flat_map(|&operation| rows_of(operation)).map(|row| row.size).max();
    let size_max = size_max.ok_or("no operation to measure")?;
    let room = Room {
        kind: options.epochs.window,
        pattern: options.pattern,
        pairs: u32::MAX,
        size_max,
        bytes_max: size_max,
    };
    let manner = Manner {
        sync: options.epochs.sync,
        lock_type: options.epochs.lock_type(),
        target: options.target,
        takes_turns: true,
        threads: 1,
    };
    let mut exchange = Exchange::new(team, manner, &room)?;
    for &operation in &options.operation {
        let rows = rows_of(operation);
        let measured = measure::rows(&mut exchange, &rows, &options.amount.effort())?;
        let records: Vec<Record> = rows
            .iter()
            .zip(&measured)
            .map(|(row, measured)| {
                let key = session::key(json!({
                    "benchmark": "latency",
                    "operation": operation.name(),
                    "window": options.epochs.window.name(),
                    "sync": options.epochs.name(),
                    "target": name(options.target),
                    "pattern": options.pattern.name(),
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

const fn name(target: TargetKind) -> &'static str {
    match target {
        TargetKind::Idle => "idle",
        TargetKind::Busy => "busy",
        TargetKind::Polling => "polling",
    }
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
