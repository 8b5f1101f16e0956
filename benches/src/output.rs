//! Rows for people and for machines.

use std::io::{self, Write};

use serde_json::{Map, Value};

use crate::record::{plain, Record};
use crate::table::{Cell, Table};

/// In which form rows are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A table, as OSU's benchmarks print.
    Table,
    /// One JSON object a line, with everything.
    Json,
    /// Comma-separated values, with a line of names.
    Csv,
}

/// Prints groups of rows.
#[derive(Debug)]
pub struct Printer<W> {
    out: W,
    format: Format,
    /// Columns of the CSV, once its first line is written.
    columns: Vec<String>,
    groups: usize,
}

impl<W: Write> Printer<W> {
    /// Prints to `out`.
    pub fn new(out: W, format: Format) -> Self {
        Self { out, format, columns: Vec::new(), groups: 0 }
    }

    /// Prints rows that differ in the values of `columns` of their keys only; what they have in common is the title.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn group(&mut self, records: &[Record], columns: &[&'static str]) -> io::Result<()> {
        match self.format {
            Format::Table => self.table(records, columns)?,
            Format::Json => {
                for record in records {
                    writeln!(self.out, "{}", record.to_json())?;
                }
            }
            Format::Csv => self.csv(records)?,
        }
        self.groups += 1;
        self.out.flush()
    }

    fn table(&mut self, records: &[Record], columns: &[&'static str]) -> io::Result<()> {
        let Some(first) = records.first() else { return Ok(()) };
        if self.groups > 0 {
            writeln!(self.out)?;
        }
        writeln!(self.out, "# rma-bench {}", first.title(columns))?;
        let environment = &first.environment;
        let [provider, domain, host, ranks, build] =
            ["provider", "domain", "host", "ranks", "build"].map(|name| environment.text(name));
        writeln!(self.out, "# {provider} ({domain}), {ranks} ranks, rank 0 on {host}, {build} build")?;
        // A table has one unit; rows with others follow in a table of their own.
        for unit in units(records) {
            let rows: Vec<&Record> = records.iter().filter(|record| record.unit == unit).collect();
            let details = detail_names(&rows);
            let mut titles: Vec<String> = columns.iter().map(|name| title(name)).collect();
            titles.extend([unit.name().to_owned(), "95 % from".to_owned(), "to".to_owned()]);
            titles.extend(details.iter().map(|name| title(name)));
            if let Some(title) = titles.first_mut() {
                title.insert_str(0, "# ");
            }
            let mut table = Table::new(&titles);
            for row in rows {
                table.row(cells(row, columns, &details));
            }
            write!(self.out, "{table}")?;
        }
        Ok(())
    }

    fn csv(&mut self, records: &[Record]) -> io::Result<()> {
        let rows: Vec<Map<String, Value>> = records.iter().map(flat).collect();
        let mut writer = csv::Writer::from_writer(&mut self.out);
        if self.columns.is_empty() {
            // Rows of one command may differ in their details.
            for name in rows.iter().flat_map(Map::keys) {
                if !self.columns.contains(name) {
                    self.columns.push(name.clone());
                }
            }
            writer.write_record(&self.columns)?;
        }
        for row in rows {
            writer
                .write_record(self.columns.iter().map(|name| row.get(name).map(plain).unwrap_or_default()))?;
        }
        writer.flush()
    }
}

fn units(records: &[Record]) -> Vec<crate::record::Unit> {
    let mut units = Vec::new();
    for record in records {
        if !units.contains(&record.unit) {
            units.push(record.unit);
        }
    }
    units
}

/// The details that any of the rows has, in the order in which they come first.
fn detail_names(rows: &[&Record]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in rows.iter().flat_map(|row| row.details.keys()) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn title(name: &str) -> String {
    match name {
        "p99" => "99 %".to_owned(),
        "size" => "Size".to_owned(),
        name => name.replace('_', " "),
    }
}

fn cells(row: &Record, columns: &[&'static str], details: &[String]) -> Vec<Cell> {
    let (interval, digits) = (row.series.interval(), row.unit.digits());
    let key = columns.iter().map(|name| match row.key.get(*name) {
        Some(Value::Number(number)) => Cell::Number(number.to_string()),
        other => Cell::Text(other.map(plain).unwrap_or_default()),
    });
    let own = [row.series.median(), interval.low, interval.high].map(|value| Cell::decimal(value, digits));
    let details = details.iter().map(|name| match row.details.get(name) {
        Some(Value::Number(number)) if number.is_f64() => {
            Cell::decimal(number.as_f64().unwrap_or(f64::NAN), digits)
        }
        Some(Value::Null) | None => Cell::Number("-".to_owned()),
        Some(other) => Cell::Number(plain(other)),
    });
    key.chain(own).chain(details).collect()
}

/// A row without lists: its key, its values, and what tells environments apart.
fn flat(record: &Record) -> Map<String, Value> {
    let Value::Object(mut row) = record.to_json() else { return Map::new() };
    row.retain(|_, value| !value.is_array() && !value.is_object());
    for name in
        ["time", "version", "build", "host", "provider", "domain", "libfabric", "ranks", "places", "settings"]
    {
        row.insert(name.to_owned(), Value::String(record.environment.text(name)));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    fn printed(format: Format, groups: &[&[Record]]) -> String {
        let mut out = Vec::new();
        let mut printer = Printer::new(&mut out, format);
        for group in groups {
            printer.group(group, &["size"]).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_table_has_what_rows_share_as_its_title() {
        let text = printed(Format::Table, &[&[record(8, &[1.5]), record(16, &[2.0, 2.5])]]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "# rma-bench latency, put, window allocate");
        assert!(lines[1].contains("rank 0 on n1"), "{text}");
        let names: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(names, ["#", "Size", "us", "95", "%", "from", "to", "99", "%"]);
        let values: Vec<&str> = lines[4].split_whitespace().collect();
        assert_eq!(values, ["16", "2.25", "2.00", "2.50", "9.50"]);
    }

    #[test]
    fn json_has_a_row_on_each_line() {
        let text = printed(Format::Json, &[&[record(8, &[1.5])], &[record(16, &[2.0])]]);
        let sizes: Vec<u64> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["size"].as_u64().unwrap())
            .collect();
        assert_eq!(sizes, [8, 16]);
    }

    #[test]
    fn csv_has_its_names_once_and_quotes_what_needs_it() {
        let mut odd = record(16, &[2.0]);
        odd.key.insert("operation".to_owned(), Value::from("a,\"b\""));
        let text = printed(Format::Csv, &[&[record(8, &[1.5])], &[odd]]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("benchmark,operation,window,size,unit,median,low,high,confidence,p99"));
        assert!(lines[1].starts_with("latency,put,allocate,8,us,1.5"), "{text}");
        assert!(lines[2].starts_with("latency,\"a,\"\"b\"\"\",allocate,16"), "{text}");
        assert_eq!(lines.len(), 3);
    }
}
