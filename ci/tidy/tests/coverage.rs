//! The coverage page's parts, on made-up rows and sources.

use tidy::coverage::{behaviours, check, citations, page, rows};

const ROWS: &str = "# a comment\n== item Calls\nMPI_Put | write\nMPI_Get | read | nobody reads\n\n== rule Rules\nrule: a b | one\n";

const CODE: &str = "\
/// Writes.
///
/// Implements: MPI_Put.
#[inline]
pub(crate) const unsafe fn put_it(&self) {}

//! Implements: rule: a b.
    /// Shows: MPI_Put, rule: a b, MPI-4.1 13.3.1.
    pub fn puts<E>(make: &impl Make<E>) {}
    /// Shows: MPI_MODE_NOPRECEDE/fence.
    NoPrecede,
";

fn messages(rows_text: &str, code: &str) -> Vec<String> {
    let tables = rows(rows_text).unwrap();
    check(&tables, &citations("tests/src/behaviour/x.rs", code))
        .into_iter()
        .map(|found| found.message)
        .collect()
}

#[test]
fn citations_name_their_item() {
    let found = citations("tests/src/behaviour/x.rs", CODE);
    let places: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.is_test, it.place.as_str())).collect();
    let expected = [
        ("MPI_Put", false, "x: put_it"),
        ("rule: a b", false, "x"),
        ("MPI_Put", true, "x: puts"),
        ("rule: a b", true, "x: puts"),
        ("MPI-4.1 13.3.1", true, "x: puts"),
        ("MPI_MODE_NOPRECEDE", true, "x: NoPrecede"),
    ];
    assert_eq!(places, expected);
    assert_eq!(found[0].line, 3);
}

#[test]
fn what_is_missing_or_unknown_is_found() {
    assert_eq!(messages(ROWS, CODE), ["`MPI_MODE_NOPRECEDE` is no row of ci/tidy/data/coverage.txt"]);
    let lacking = messages(ROWS, "/// Shows: MPI_Get.\nfn x() {}\n");
    assert_eq!(lacking.len(), 3, "{lacking:?}");
    assert!(lacking[0].contains("`MPI_Put` has no item"));
    assert!(lacking[1].contains("`MPI_Get` is cited"));
    assert!(lacking[2].contains("`rule: a b` has no test"));
    assert!(messages("== rule R\nx | y | z\nx | y | z\n", "")[0].contains("twice"));
    // What only has an item is not shown.
    let unshown = messages("== rule R\nMPI_INT | a type\n", "/// Implements: MPI_INT.\nfn x() {}\n");
    assert_eq!(unshown, ["`MPI_INT` has no test that shows it, and no reason"]);
}

#[test]
fn malformed_rows_are_refused_with_their_line() {
    for (text, line) in [("a | b", 1), ("== item T\nalone", 2), ("== thing T", 1), ("\n== item", 2)] {
        assert_eq!(rows(text).unwrap_err().line, line, "{text}");
    }
}

#[test]
fn the_page_lists_rows_reasons_and_sections() {
    let text = page(&rows(ROWS).unwrap(), &citations("tests/src/behaviour/x.rs", CODE), 7);
    for part in [
        "3 rows, 1 of them absent",
        "7 behaviours",
        "| `MPI_Put` | write | `x: put_it` | `x: puts` |",
        "| `MPI_Get` | read | absent: nobody reads |  |",
        "| a b | one |",
        "| 13.3.1 | `x: puts` |",
    ] {
        assert!(text.contains(part), "{part} missing in:\n{text}");
    }
    let many: String = (0..6).map(|n| format!("/// Shows: MPI_Put.\nfn t{n}() {{}}\n")).collect();
    assert!(page(&rows(ROWS).unwrap(), &citations("a.rs", &many), 0).contains("and 2 more"));
}

#[test]
fn behaviours_are_bodies_that_take_a_world() {
    let text = "pub fn a<E>(make: &impl Make<E, B>) {}\nfn b() {}\npub fn c() {}\n";
    assert_eq!(behaviours("tests/src/behaviour/x.rs", text), 1);
    assert_eq!(behaviours("rma/src/x.rs", text), 0);
}
