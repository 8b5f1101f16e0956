//! What of MPI's one-sided chapter and of the design is there, where, and what shows it.
//!
//! The rows stand in `data/coverage.txt`. Doc comments cite them: `Implements: NAME, NAME.` at the item
//! that does it, `Shows: NAME, NAME.` at the test. [`page`] makes docs/mpi-coverage.md of both, and
//! [`check`] finds rows without either, and citations of rows that there are not.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use crate::suite::{Suite, BODIES, LIST};
use crate::Finding;

/// Where the page is, relative to the root.
pub const PAGE: &str = "docs/mpi-coverage.md";

/// Where the rows are, relative to the root.
pub const ROWS: &str = "ci/tidy/data/coverage.txt";

/// Tests that are named in one row; more are counted.
const NAMED_MAX: usize = 4;

/// What a row needs to be complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// An item that does it and a test that shows it.
    Item,
    /// A test that shows it.
    Rule,
}

/// One row of the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// What citations say.
    pub name: String,
    /// What it is, for people.
    pub what: String,
    /// Why it is absent.
    pub reason: Option<String>,
    /// Its line in the data, counted from 1.
    pub line: usize,
}

/// One table of the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// What each of its rows needs.
    pub need: Need,
    /// The heading.
    pub title: String,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A name in a doc comment.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Citation {
    /// The name of a row.
    pub name: String,
    /// Whether a test shows it, instead of an item doing it.
    pub is_test: bool,
    /// The item that the comment belongs to, with its file.
    pub place: String,
    /// The file.
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
}

/// Reads the rows; the error names the line.
///
/// # Errors
/// When a line is neither a comment, a heading nor a row.
pub fn rows(text: &str) -> Result<Vec<Table>, Finding> {
    let wrong =
        |line: usize, message: &str| Finding { path: ROWS.to_owned(), line, message: message.to_owned() };
    let mut tables: Vec<Table> = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let line = index + 1;
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        if let Some(heading) = text.strip_prefix("== ") {
            let (kind, title) =
                heading.split_once(' ').ok_or_else(|| wrong(line, "a heading without title"))?;
            let need = match kind {
                "item" => Need::Item,
                "rule" => Need::Rule,
                _ => return Err(wrong(line, "a heading is `== item|rule TITLE`")),
            };
            tables.push(Table { need, title: title.to_owned(), rows: Vec::new() });
            continue;
        }
        let table = tables.last_mut().ok_or_else(|| wrong(line, "a row before the first heading"))?;
        let mut cells = text.split(" | ").map(str::trim);
        let (Some(name), Some(what)) = (cells.next(), cells.next()) else {
            return Err(wrong(line, "a row is `NAME | WHAT` or `NAME | WHAT | REASON`"));
        };
        let reason = cells.next().map(str::to_owned);
        table.rows.push(Row { name: name.to_owned(), what: what.to_owned(), reason, line });
    }
    Ok(tables)
}

/// The citations in the doc comments of a Rust file.
pub fn citations(path: &str, text: &str, suite: &Suite) -> Vec<Citation> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some((is_inner, comment)) = doc_comment(line) else { continue };
        let (is_test, names) = match (comment.strip_prefix("Implements: "), comment.strip_prefix("Shows: ")) {
            (Some(names), _) => (false, names),
            (_, Some(names)) => (true, names),
            _ => continue,
        };
        let item = if is_inner { None } else { lines[index..].iter().find_map(|line| item_name(line)) };
        let place = place(path, item, suite);
        for name in names.trim_end_matches('.').split(", ") {
            // Said of a call that has no others of that name.
            let name =
                name.trim().strip_suffix("/fence").filter(|name| ONLY_FENCE.contains(name)).unwrap_or(name);
            let name = name.trim().to_owned();
            found.push(Citation {
                name,
                is_test,
                place: place.clone(),
                path: path.to_owned(),
                line: index + 1,
            });
        }
    }
    found
}

/// Assertions of fences that no other call has.
const ONLY_FENCE: [&str; 2] = ["MPI_MODE_NOPRECEDE", "MPI_MODE_NOSUCCEED"];

/// The text of a doc comment, and whether it is about what it stands in.
fn doc_comment(line: &str) -> Option<(bool, &str)> {
    let outer = line.strip_prefix("/// ").map(|text| (false, text));
    outer.or_else(|| line.strip_prefix("//! ").map(|text| (true, text)))
}

/// The name of the item that a line of code begins.
fn item_name(line: &str) -> Option<&str> {
    if line.is_empty() || line.starts_with("//") || line.starts_with('#') {
        return None;
    }
    let words: Vec<&str> = line
        .split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(|word| !word.is_empty())
        .collect();
    let keywords =
        ["fn", "struct", "enum", "trait", "mod", "type", "const", "static", "macro_rules", "union"];
    let keyword = words.iter().position(|word| keywords.contains(word));
    let name = match keyword {
        // `const fn name`
        Some(at) if words[at] == "const" && words.get(at + 1) == Some(&"fn") => words.get(at + 2),
        Some(at) if words[at] == "const" && words.get(at + 1) == Some(&"unsafe") => words.get(at + 3),
        Some(at) => words.get(at + 1),
        None => words.iter().find(|word| !["pub", "crate", "super", "impl"].contains(word)),
    };
    name.copied()
}

/// An item with its file; a body that runs on every kind of world without the file's folder.
fn place(path: &str, item: Option<&str>, suite: &Suite) -> String {
    let short = match path.strip_prefix(BODIES) {
        Some(file) if item.is_some_and(|item| suite.has(path, item)) => file.trim_end_matches(".rs"),
        _ => path,
    };
    item.map_or_else(|| short.to_owned(), |item| format!("{short}: {item}"))
}

/// A section of the standard: these need no rows.
fn section(name: &str) -> Option<&str> {
    let number = name.strip_prefix("MPI-4.1 ")?;
    // Perhaps one of its figures.
    let number = number.split_once(" figure ").map_or(number, |(number, _)| number);
    let is_number =
        number.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    is_number.then_some(number)
}

/// Rows that are not complete, and citations of no row.
pub fn check(tables: &[Table], citations: &[Citation]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut known: BTreeMap<&str, &Row> = BTreeMap::new();
    for (table, row) in tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row))) {
        let mut say = |message| findings.push(Finding { path: ROWS.to_owned(), line: row.line, message });
        if known.insert(&row.name, row).is_some() {
            say(format!("`{}` is there twice", row.name));
        }
        let done = citations.iter().any(|citation| citation.name == row.name && !citation.is_test);
        let shown = citations.iter().any(|citation| citation.name == row.name && citation.is_test);
        let lack = match (table.need, &row.reason) {
            (_, Some(_)) if done || shown => "is cited: its reason for absence has to go",
            (_, Some(_)) => continue,
            (Need::Item, None) if !done => "has no item that implements it, and no reason",
            (Need::Item | Need::Rule, None) if !shown => "has no test that shows it, and no reason",
            _ => continue,
        };
        say(format!("`{}` {lack}", row.name));
    }
    for citation in citations {
        if !known.contains_key(citation.name.as_str()) && section(&citation.name).is_none() {
            let message = format!("`{}` is no row of {ROWS}", citation.name);
            findings.push(Finding { path: citation.path.clone(), line: citation.line, message });
        }
    }
    findings
}

/// The page.
pub fn page(tables: &[Table], citations: &[Citation], suite: &Suite) -> String {
    let mut text = String::from(HEAD);
    let rows = tables.iter().flat_map(|table| &table.rows);
    let (absent, all) = (rows.clone().filter(|row| row.reason.is_some()).count(), rows.count());
    let _ = writeln!(
        text,
        "{all} rows, {absent} of them absent for the reason given. The conformance suite has {} behaviours;\n\
         {} of them, most about costs, cannot hold on some kind of world, whose suite names them behind `differ`.",
        suite.len(),
        suite.differing()
    );
    for table in tables {
        let _ = write!(
            text,
            "\n## {}\n\n| name | what | where | shown by |\n| --- | --- | --- | --- |\n",
            table.title
        );
        for row in &table.rows {
            let (done, shown) = (listed(citations, &row.name, false), listed(citations, &row.name, true));
            let (done, shown) = match &row.reason {
                Some(reason) => (format!("absent: {reason}"), String::new()),
                None => (done, shown),
            };
            let _ = writeln!(text, "| {} | {} | {done} | {shown} |", code(&row.name), row.what);
        }
    }
    text += "\n## By section of MPI-4.1\n\n| section | shown by |\n| --- | --- |\n";
    let mut sections: Vec<(Vec<u32>, &str)> = citations
        .iter()
        .filter_map(|citation| section(&citation.name).map(|number| (number, citation)))
        .map(|(number, citation)| {
            (number.split('.').filter_map(|part| part.parse().ok()).collect(), citation.name.as_str())
        })
        .collect();
    sections.sort();
    sections.dedup();
    for (_, name) in sections {
        let number = section(name).unwrap_or(name);
        let _ = writeln!(text, "| {number} | {} |", listed(citations, name, true));
    }
    text
}

/// Names of MPI's and of the code's are set as code, others as words.
fn code(name: &str) -> String {
    match name.split_once(": ") {
        Some((_, words)) => words.to_owned(),
        None => format!("`{name}`"),
    }
}

fn listed(citations: &[Citation], name: &str, is_test: bool) -> String {
    let mut places: Vec<&str> = citations
        .iter()
        .filter(|citation| citation.name == name && citation.is_test == is_test)
        .map(|citation| citation.place.as_str())
        .collect();
    places.sort_unstable();
    places.dedup();
    let more = places.len().saturating_sub(NAMED_MAX);
    places.truncate(NAMED_MAX);
    let mut text = places.iter().map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", ");
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}

const HEAD: &str = "\
# Coverage

What of MPI-4.1's one-sided chapter (13), of MPICH's \"New RMA Design\" and of the other texts that the library grew from
is there: where it is, and what shows it. Made of `ci/tidy/data/coverage.txt` and of the citations in the code by
`cargo run -p tidy -- coverage --write`; do not edit it.

A test without a path is a body in `tests/src/behaviour/` that the suite in `tests/src/lib.rs` lists. It runs on every kind
of world in `tests/tests/`: simulated fabrics, libfabric's providers, shared memory, and shared memory beside a network,
nearly all of them natively and with forced messages. The suites over ibverbs run where there is an RDMA device
(`ci/softroce.sh`), and those called `version_2_*` are of libfabric 2.x only where `RMA_TEST_LIBFABRIC2` names one.

Every other test has its path, and runs as it says there. Bodies about deaths (`deaths*.rs`) are for simulated fabrics alone,
and so is `a_lock_of_the_dead_is_lost`; the other bodies of `word_locks.rs` run on simulated fabrics, mapped shared memory and
ibverbs: where there are locks that are words. Rows under *absent* say why.

";

/// Reads everything below `root`; the findings, and the page as it ought to be.
///
/// # Errors
/// When a file cannot be read.
pub fn run(root: &Path) -> io::Result<(Vec<Finding>, String)> {
    let tables = match rows(&fs::read_to_string(root.join(ROWS))?) {
        Ok(tables) => tables,
        Err(finding) => return Ok((vec![finding], String::new())),
    };
    let mut files: Vec<_> = crate::text_files(root)?;
    files.retain(|(name, _)| name.ends_with(".rs") && !name.starts_with("ci/tidy/"));
    let mut suite = Suite::default();
    // The list has to be known before the names of it that worlds except.
    files.iter().filter(|(name, _)| name == LIST).for_each(|(name, text)| suite.read(name, text));
    files.iter().filter(|(name, _)| name != LIST).for_each(|(name, text)| suite.read(name, text));
    let mut cited: Vec<_> = files.iter().flat_map(|(name, text)| citations(name, text, &suite)).collect();
    cited.sort();
    let mut findings = check(&tables, &cited);
    if suite.is_empty() {
        let message = "the suite's list of bodies was not found".to_owned();
        findings.push(Finding { path: LIST.to_owned(), line: 1, message });
    }
    Ok((findings, page(&tables, &cited, &suite)))
}
