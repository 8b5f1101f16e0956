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

fn table(own: &str, names: &[String], rows: &[&Comparison<'_>]) -> Table {
    let mut titles = vec!["Size".to_owned(), own.to_owned(), "best".to_owned()];
    for name in names {
        titles.extend([name, "best", "/ median", "/ best", "/ rounds"].map(str::to_owned));
    }
    let mut table = Table::new(&titles);
    for row in rows {
        let digits = row.own.unit.digits();
        let mut cells = vec![
            Cell::Number(row.own.text("size")),
            Cell::decimal(row.own.series.median(), digits),
            Cell::decimal(best(row.own), digits),
        ];
        for standing in &row.peers {
            let values = standing.map_or([f64::NAN; 5], |its| {
                [its.peer.series.median(), best(its.peer), its.medians, its.best, its.rounds]
            });
            let digits = [digits, digits, 2, 2, 2];
            cells.extend(values.iter().zip(digits).map(|(value, digits)| Cell::decimal(*value, digits)));
        }
        table.row(cells);
    }
    table
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
