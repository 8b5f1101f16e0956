//! Tables for people.

use std::fmt;

/// A table with a title over each column. Text is aligned to the left, numbers to the right.
#[derive(Clone, Debug)]
pub struct Table {
    titles: Vec<String>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
enum Row {
    Cells(Vec<Cell>),
    Rule,
}

/// What stands in one place of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number, as it is to be shown.
    Number(String),
}

impl Cell {
    /// A number with this many digits after the point.
    pub fn decimal(value: f64, digits: usize) -> Self {
        Self::Number(if value.is_finite() { format!("{value:.digits$}") } else { "-".to_owned() })
    }

    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number(text) => text,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Table {
    /// An empty table.
    pub fn new<T: AsRef<str>>(titles: &[T]) -> Self {
        Self { titles: titles.iter().map(|title| title.as_ref().to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a line; cells beyond the titles are not shown.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(Row::Cells(cells));
    }

    /// Adds a line that sets what follows apart.
    pub fn rule(&mut self) {
        self.rows.push(Row::Rule);
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.titles.iter().map(|title| title.chars().count()).collect();
        for row in &self.rows {
            if let Row::Cells(cells) = row {
                for (width, cell) in widths.iter_mut().zip(cells) {
                    *width = (*width).max(cell.text().chars().count());
                }
            }
        }
        widths
    }

    /// Whether the column holds numbers, so that its title goes to the right too.
    fn is_number(&self, column: usize) -> bool {
        self.rows.iter().any(|row| match row {
            Row::Cells(cells) => matches!(cells.get(column), Some(Cell::Number(_))),
            Row::Rule => false,
        })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        let mut line = String::new();
        for (column, (title, &width)) in self.titles.iter().zip(&widths).enumerate() {
            push(&mut line, title, width, self.is_number(column));
        }
        writeln!(f, "{}", line.trim_end())?;
        for row in &self.rows {
            line.clear();
            match row {
                Row::Cells(cells) => {
                    for (cell, &width) in cells.iter().zip(&widths) {
                        push(&mut line, cell.text(), width, matches!(cell, Cell::Number(_)));
                    }
                }
                Row::Rule => {
                    let total = widths.iter().map(|width| width + GAP.len()).sum::<usize>();
                    line.extend(std::iter::repeat_n('-', total - GAP.len()));
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn push(line: &mut String, text: &str, width: usize, is_number: bool) {
    if !line.is_empty() {
        line.push_str(GAP);
    }
    if is_number {
        line.push_str(&format!("{text:>width$}"));
    } else {
        line.push_str(&format!("{text:<width$}"));
    }
}

const GAP: &str = "  ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["name", "us"]);
        table.row(vec!["a".into(), Cell::decimal(1.25, 2)]);
        table.rule();
        table.row(vec!["longer".into(), Cell::decimal(123.0, 2)]);
        table.row(vec!["none".into(), Cell::decimal(f64::NAN, 2)]);
        let expected = "name        us\na         1.25\n--------------\nlonger  123.00\nnone         -\n";
        assert_eq!(table.to_string(), expected);
    }
}
