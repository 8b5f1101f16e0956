//! What a page begins with: one value of each measurement, in a table that fits a screen.

use std::fmt::Write;

use serde_json::Value;

use crate::plot::escape;
use crate::record::{Record, Unit};

/// A measurement of any size, from each place that has it.
struct Row<'a> {
    title: String,
    unit: Unit,
    records: Vec<(usize, &'a Record)>,
}

/// The table: a row for each measurement that has sizes, a column for each of `names`, by whose index rows come. Times are
/// those of the smallest size, rates those of the largest. Empty where there would be less than two numbers.
pub(crate) fn table(names: &[String], records: &[(usize, &Record)]) -> String {
    let rows = rows(records);
    if rows.iter().map(|row| row.records.len()).sum::<usize>() < 2 {
        return String::new();
    }
    let has_value = |column: &usize| rows.iter().any(|row| row.value(*column).is_some());
    let columns: Vec<usize> = (0..names.len()).filter(has_value).collect();
    let mut html = "<table>\n<tr><th class=\"text\">median</th><th>unit</th><th>bytes</th>".to_owned();
    for &column in &columns {
        let _ = write!(html, "<th>{}</th>", escape(&names[column]));
    }
    html.push_str("</tr>\n");
    for row in &rows {
        let _ = write!(
            html,
            "<tr><td class=\"text\">{}</td><td>{}</td><td>{}</td>",
            escape(&row.title),
            row.unit.name(),
            row.size()
        );
        for &column in &columns {
            let _ = match row.value(column) {
                Some(record) => write!(html, "<td>{:.*}</td>", row.unit.digits(), record.series.median()),
                None => write!(html, "<td>-</td>"),
            };
        }
        html.push_str("</tr>\n");
    }
    html + "</table>\n"
}

/// Shares, and what is only a part of a measurement, are left to the sections.
fn rows<'a>(records: &[(usize, &'a Record)]) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for &(column, record) in records {
        if record.unit == Unit::Share || record.key.contains_key("measure") || size_of(record).is_none() {
            continue;
        }
        let title = record.title(&["size", "outstanding"]);
        match rows.iter_mut().find(|row| row.title == title && row.unit == record.unit) {
            Some(row) => row.records.push((column, record)),
            None => rows.push(Row { title, unit: record.unit, records: vec![(column, record)] }),
        }
    }
    rows
}

fn size_of(record: &Record) -> Option<u64> {
    record.key.get("size").and_then(Value::as_u64)
}

impl<'a> Row<'a> {
    /// The size that is shown.
    fn size(&self) -> u64 {
        let sizes = self.records.iter().filter_map(|(_, record)| size_of(record));
        let size = if self.unit.less_is_better() { sizes.min() } else { sizes.max() };
        size.unwrap_or_default()
    }

    /// What a column shows of it.
    fn value(&self, column: usize) -> Option<&'a Record> {
        let size = self.size();
        let is_shown =
            |(index, record): &&(usize, &Record)| *index == column && size_of(record) == Some(size);
        self.records.iter().find(is_shown).map(|(_, record)| *record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn times_are_of_the_smallest_size_and_rates_of_the_largest() {
        let names = ["shm".to_owned(), "t<p".to_owned(), "nothing".to_owned()];
        let (small, large, other) = (record(8, &[1.5]), record(4096, &[9.0]), record(8, &[7.25]));
        let rates = [
            Record { unit: Unit::Megabytes, ..small.clone() },
            Record { unit: Unit::Megabytes, ..large.clone() },
        ];
        let html = table(&names, &[(0, &small), (0, &large), (1, &other), (1, &rates[0]), (1, &rates[1])]);
        assert!(html.contains("t&lt;p") && !html.contains("nothing"), "{html}");
        assert!(html.contains("<td>us</td><td>8</td><td>1.50</td><td>7.25</td>"), "{html}");
        assert!(html.contains("<td>MB/s</td><td>4096</td><td>-</td><td>9.00</td>"), "{html}");
    }

    #[test]
    fn parts_and_shares_and_single_numbers_make_no_table() {
        let one = record(8, &[1.0]);
        let mut part = one.clone();
        part.key.insert("measure".to_owned(), Value::from("both"));
        let share = Record { unit: Unit::Share, ..one.clone() };
        assert_eq!(table(&["a".to_owned()], &[(0, &one), (0, &part), (0, &share)]), "");
    }
}
