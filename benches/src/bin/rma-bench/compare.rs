//! `rma-bench compare`: what has changed beyond noise.

use std::io::Write;
use std::path::Path;

use rma_bench::compare::{self, Change, Verdict};
use rma_bench::environments::Environments;
use rma_bench::record::Record;
use rma_bench::table::{Cell, Table};

use crate::cli::Compare;
use crate::Outcome;

/// Runs the command.
pub(crate) fn run(options: &Compare) -> Outcome<()> {
    let (before, after) = (read(&options.before)?, read(&options.after)?);
    let (changes, alone) = compare::changes(&before, &after, options.at_least / 100.0);
    if changes.is_empty() {
        return Err("the files have no measurement in common".into());
    }
    let count = |verdict| changes.iter().filter(|change| change.verdict == verdict).count();
    let worse = count(Verdict::Worse);
    let mut out = std::io::stdout().lock();
    write!(out, "{}", environments(&before, &after))?;
    let names = Environments::of(before.iter().map(|record| &record.environment));
    let shown: Vec<&Change<'_>> =
        changes.iter().filter(|change| options.all || change.verdict != Verdict::Same).collect();
    if !shown.is_empty() {
        write!(out, "{}", table(&shown, &names))?;
    }
    writeln!(
        out,
        "{} better, {worse} worse, {} the same within noise; {alone} in one file only",
        count(Verdict::Better),
        count(Verdict::Same)
    )?;
    out.flush()?;
    if options.fail && worse > 0 {
        return Err(format!("{worse} measurements have become worse").into());
    }
    Ok(())
}

/// The rows of a file, of which there is at least one.
pub(crate) fn read(path: &Path) -> Outcome<Vec<Record>> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let (records, _) = compare::read(&text).map_err(|error| format!("{name}: {error}"))?;
    if records.is_empty() {
        return Err(format!("{name} has no row of results; 'rma-bench latency --json' writes such").into());
    }
    Ok(records)
}

/// What is different about where the two were measured, as lines.
fn environments(before: &[Record], after: &[Record]) -> String {
    let (Some(before), Some(after)) = (before.first(), after.first()) else { return String::new() };
    let differences = before.environment.differences(&after.environment);
    differences.iter().fold(String::new(), |text, difference| text + "different " + difference + "\n")
}

/// A row for each; `names` tells those of one file apart that come from several environments.
fn table(changes: &[&Change<'_>], names: &Environments) -> Table {
    let mut table = Table::new(&["measurement", "unit", "before", "after", "ratio", "from", "to", ""]);
    for change in changes {
        let digits = change.before.unit.digits();
        let title = [names.name(&change.before.environment), &change.before.title(&[])].join(": ");
        table.row(vec![
            Cell::Text(title.trim_start_matches(": ").to_owned()),
            change.before.unit.name().into(),
            Cell::decimal(change.before.series.median(), digits),
            Cell::decimal(change.after.series.median(), digits),
            Cell::decimal(change.ratio, 3),
            Cell::decimal(change.range.0, 3),
            Cell::decimal(change.range.1, 3),
            change.verdict.name().into(),
        ]);
    }
    table
}
