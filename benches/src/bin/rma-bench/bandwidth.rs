//! `rma-bench bandwidth`: many large operations at once.

use rma_bench::record::{Record, Unit};
use serde_json::json;

use crate::cli::{Bandwidth, Measurement};
use crate::exchange::{Exchange, Row};
use crate::ground::{Operation, Room};
use crate::pattern::Pattern;
use crate::session::{self, Reporter};
use crate::team::Team;
use crate::{measure, Outcome};

/// Bytes that are outstanding at once at most: larger operations have fewer at once, so that windows stay within
/// what laptops have.
const OUTSTANDING_BYTES: usize = 64 << 20;

/// Runs the command.
pub(crate) fn run(options: &Bandwidth) -> Outcome<()> {
    if let Some(other) =
        options.measurement.operation.iter().find(|op| !matches!(op, Operation::Put | Operation::Get))
    {
        return Err(
            format!("bandwidth is of put and get; '{}' has 'rate' and 'latency'", other.name()).into()
        );
    }
    session::run("bandwidth", 2, &options.measurement.output, |team, reporter| {
        measure(team, reporter, options)
    })
}

fn measure(team: &Team<'_>, reporter: &mut Reporter, options: &Bandwidth) -> Outcome<()> {
    let Measurement { operation: operations, epochs, amount, .. } = &options.measurement;
    let sizes = options.range.sizes.all();
    let rows_of = |operation: Operation| -> Vec<Row> {
        let row = |&size| Row::new(operation, size, outstanding(options.outstanding, size));
        sizes.iter().map(row).collect()
    };
    let bytes_max = rows_of(Operation::Put).iter().map(|row| row.size * row.outstanding).max().unwrap_or(0);
    let room = Room {
        kind: epochs.window,
        pattern: if options.bidirectional { Pattern::Exchange } else { Pattern::Pairs },
        pairs: u32::MAX,
        size_max: sizes.last().copied().unwrap_or(0),
        bytes_max,
    };
    let mut exchange = Exchange::new(team, epochs.manner(), &room)?;
    for &operation in operations {
        let rows = rows_of(operation);
        let measured = measure::rows(&mut exchange, &rows, &amount.effort())?;
        let records: Vec<Record> = rows
            .iter()
            .zip(&measured)
            .map(|(row, measured)| {
                let key = session::key(json!({
                    "benchmark": "bandwidth",
                    "operation": operation.name(),
                    "direction": if options.bidirectional { "both ways" } else { "one way" },
                    "window": epochs.window.name(),
                    "sync": epochs.name(),
                    "size": row.size,
                    "outstanding": row.outstanding,
                }));
                let bytes = (row.size * row.outstanding) as f64;
                let values = measured.rates.iter().map(|rate| rate * bytes / 1e6);
                reporter.record(key, Unit::Megabytes, values, session::counts(measured))
            })
            .collect();
        reporter.group(&records, &["size", "outstanding"])?;
    }
    exchange.free()
}

/// Operations at once: as many as were asked for, and at least one.
pub(crate) fn outstanding(wanted: usize, size: usize) -> usize {
    wanted.min(OUTSTANDING_BYTES / size).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_bounds_what_is_outstanding() {
        assert_eq!(outstanding(64, 8), 64);
        assert_eq!(outstanding(64, 4 << 20), 16);
        assert_eq!(outstanding(64, 1 << 30), 1);
    }
}
