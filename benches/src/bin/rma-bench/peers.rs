//! `rma-bench peers`: own results beside those of others.

use std::io::Write;
use std::path::Path;

use rma_bench::peers::{best, side_by_side, Comparison};
use rma_bench::record::Record;
use rma_bench::table::{Cell, Table};

use crate::cli::Peers;
use crate::{compare, Outcome};

/// Runs the command.
pub(crate) fn run(options: &Peers) -> Outcome<()> {
    let own = compare::read(&options.own)?;
    let peers = options.peers.iter().map(|path| compare::read(path)).collect::<Outcome<Vec<_>>>()?;
    let names: Vec<String> = options.peers.iter().map(|path| name(path)).collect();
    let (compared, alone) = side_by_side(&own, &peers);
    let mut out = std::io::stdout().lock();
    let is_shared = |row: &&Comparison<'_>| row.peers.iter().any(Option::is_some);
    let mut groups: Vec<(String, Vec<&Comparison<'_>>)> = Vec::new();
    for row in compared.iter().filter(is_shared) {
        let title = format!("{} ({})", row.own.title(&["size"]), row.own.unit.name());
        match groups.last_mut() {
            Some((last, rows)) if *last == title => rows.push(row),
            _ => groups.push((title, vec![row])),
        }
    }
    for (title, rows) in &groups {
        writeln!(out, "# {title}\n{}", table(&name(&options.own), &names, rows))?;
    }
    let own_alone = compared.iter().filter(|row| !is_shared(row)).map(|row| row.own);
    let rest: Vec<&Record> = own_alone.chain(alone).collect();
    if !rest.is_empty() {
        writeln!(out, "# measured by one of them only\n{}", single(&rest))?;
    }
    out.flush()?;
    if groups.is_empty() {
        return Err("the files have no measurement in common".into());
    }
    Ok(())
}

fn name(path: &Path) -> String {
    path.file_stem().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// A line for each that has the measurement, ours first.
fn table(own: &str, names: &[String], rows: &[&Comparison<'_>]) -> Table {
    let mut table = Table::new(&["Size", "who", "median", "best", "/ median", "/ best", "/ rounds"]);
    for (index, row) in rows.iter().enumerate() {
        if index > 0 {
            table.rule();
        }
        table.row(line(row.own, own, [f64::NAN; 3]));
        for (name, standing) in names.iter().zip(&row.peers) {
            if let Some(its) = standing {
                table.row(line(its.peer, name, [its.medians, its.best, its.rounds]));
            }
        }
    }
    table
}

fn line(record: &Record, name: &str, ratios: [f64; 3]) -> Vec<Cell> {
    let digits = record.unit.digits();
    let mut cells = vec![
        Cell::Number(record.text("size")),
        name.into(),
        Cell::decimal(record.series.median(), digits),
        Cell::decimal(best(record), digits),
    ];
    cells.extend(ratios.map(|ratio| Cell::decimal(ratio, 2)));
    cells
}

fn single(rows: &[&Record]) -> Table {
    let mut table = Table::new(&["measurement", "unit", "median", "best"]);
    for row in rows {
        let digits = row.unit.digits();
        table.row(vec![
            Cell::Text(row.title(&[])),
            row.unit.name().into(),
            Cell::decimal(row.series.median(), digits),
            Cell::decimal(best(row), digits),
        ]);
    }
    table
}
