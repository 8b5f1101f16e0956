//! `rma-bench rate`: how many small operations a second, of how many pairs and threads.

use rma::Rank;
use rma_bench::record::{Record, Unit};
use serde_json::json;

use crate::cli::Rate;
use crate::exchange::{Exchange, Manner, Row};
use crate::ground::{Operation, Room};
use crate::pattern::{Part, Pattern};
use crate::session::{self, Reporter};
use crate::team::Team;
use crate::{measure, Outcome};

/// Runs the command.
pub(crate) fn run(options: &Rate) -> Outcome<()> {
    if !options.measurement.epochs.sync.is_passive() && options.threads.iter().any(|&threads| threads > 1) {
        return Err("threads need a --sync in which the target takes no part: flush, lock or lock_all".into());
    }
    session::run("rate", 2, &options.measurement.output, |team, reporter| measure(team, reporter, options))
}

fn measure(team: &Team<'_>, reporter: &mut Reporter, options: &Rate) -> Outcome<()> {
    for &operation in &options.measurement.operation {
        let mut records = Vec::new();
        for pairs in numbers_of_pairs(options, team.job().size()) {
            for &threads in &options.threads {
                records.push(row(team, reporter, options, operation, (pairs, threads))?);
            }
        }
        let is_pairs = options.partners.pattern == Pattern::Pairs;
        reporter.group(&records, if is_pairs { &["pairs", "threads"] } else { &["threads"] })?;
    }
    Ok(())
}

/// Those that were asked for and exist: 1, 2, 4 ... and all, if nothing was asked for.
fn numbers_of_pairs(options: &Rate, ranks: u32) -> Vec<u32> {
    let all = ranks / 2;
    if options.partners.pattern != Pattern::Pairs {
        return vec![all];
    }
    let doubled = std::iter::successors(Some(1), |pairs: &u32| pairs.checked_mul(2));
    let mut pairs: Vec<u32> = match &options.pairs[..] {
        [] => doubled.take_while(|&pairs| pairs < all).chain([all]).collect(),
        asked => asked.iter().map(|&pairs| pairs.min(all)).collect(),
    };
    pairs.dedup();
    pairs
}

fn row(
    team: &Team<'_>,
    reporter: &Reporter,
    options: &Rate,
    operation: Operation,
    (pairs, threads): (u32, usize),
) -> Outcome<Record> {
    let (epochs, pattern) = (&options.measurement.epochs, options.partners.pattern);
    let size = operation.sizes(&[options.size]).first().copied().unwrap_or(options.size);
    let row = Row::new(operation, size, options.outstanding);
    let bytes_max = size.checked_mul(options.outstanding).ok_or("more bytes than memory can hold")?;
    let room = Room { kind: epochs.window, pattern, pairs, size_max: size, bytes_max };
    let manner = Manner { threads, ..epochs.manner() };
    let mut exchange = Exchange::new(team, manner, &room)?;
    let measured = measure::rows(&mut exchange, &[row], &options.measurement.amount.effort())?;
    exchange.free()?;
    let measured = measured.first().ok_or("nothing was measured")?;
    let mut key = session::key(json!({
        "benchmark": "rate",
        "operation": operation.name(),
        "size": size,
        "window": epochs.window.name(),
        "sync": epochs.name(),
        "outstanding": options.outstanding,
        "pattern": pattern.name(),
    }));
    if pattern == Pattern::Pairs {
        key.insert("pairs".to_owned(), json!(pairs));
    }
    key.insert("threads".to_owned(), json!(threads));
    let each = (options.outstanding * partners_of_an_origin(pattern, team.job().size())) as f64;
    let values = measured.rates.iter().map(|rate| rate * each);
    Ok(reporter.record(key, Unit::Operations, values, session::counts(measured)))
}

/// The same for every origin of a pattern.
fn partners_of_an_origin(pattern: Pattern, ranks: u32) -> usize {
    let parts = (0..ranks).map(|rank| Part::new(pattern, Rank(rank), ranks, u32::MAX));
    parts.filter(Part::is_origin).map(|part| part.partners.len()).next().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_for_each_partner() {
        assert_eq!(partners_of_an_origin(Pattern::Pairs, 6), 1);
        assert_eq!(partners_of_an_origin(Pattern::OneToAll, 6), 5);
        assert_eq!(partners_of_an_origin(Pattern::AllToOne, 6), 1);
        assert_eq!(partners_of_an_origin(Pattern::Neighbours, 6), 2);
    }
}
