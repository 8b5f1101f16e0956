//! The coverage page's parts, on made-up rows and sources.

use tidy::coverage::{check, citations, page, rows};
use tidy::suite::Suite;

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

const LIST: &str = "\
            $crate::suite!(@tests
                x: puts, gets,
                    others;
                layouts: vectors;
            );
        }
    (@tests $($group:ident: $($body:ident),+;)+) => {
";

/// Of three files and of a world that excepts two of their bodies.
fn suite() -> Suite {
    let mut suite = Suite::default();
    suite.read("tests/src/lib.rs", LIST);
    suite.read(
        "tests/tests/w.rs",
        "suite!(one, W, |spec| w(spec, 1), differ: gets);\nsuite!(two, W, w, differ:\n    others, gets);",
    );
    suite
}

fn messages(rows_text: &str, code: &str) -> Vec<String> {
    let tables = rows(rows_text).unwrap();
    check(&tables, &citations("tests/src/behaviour/x.rs", code, &suite()))
        .into_iter()
        .map(|found| found.message)
        .collect()
}

#[test]
fn citations_name_their_item() {
    let found = citations("tests/src/behaviour/x.rs", CODE, &suite());
    let places: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.is_test, it.place.as_str())).collect();
    let expected = [
        ("MPI_Put", false, "tests/src/behaviour/x.rs: put_it"),
        ("rule: a b", false, "tests/src/behaviour/x.rs"),
        ("MPI_Put", true, "x: puts"),
        ("rule: a b", true, "x: puts"),
        ("MPI-4.1 13.3.1", true, "x: puts"),
        ("MPI_MODE_NOPRECEDE", true, "tests/src/behaviour/x.rs: NoPrecede"),
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
    let cited = citations("tests/src/behaviour/x.rs", CODE, &suite());
    let text = page(&rows(ROWS).unwrap(), &cited, &suite());
    for part in [
        "3 rows, 1 of them absent",
        "has 4 behaviours;\n2 of them",
        "| `MPI_Put` | write | `tests/src/behaviour/x.rs: put_it` | `x: puts` |",
        "| `MPI_Get` | read | absent: nobody reads |  |",
        "| a b | one |",
        "| 13.3.1 | `x: puts` |",
    ] {
        assert!(text.contains(part), "{part} missing in:\n{text}");
    }
    let many: String = (0..6).map(|n| format!("/// Shows: MPI_Put.\nfn t{n}() {{}}\n")).collect();
    assert!(page(&rows(ROWS).unwrap(), &citations("a.rs", &many, &suite()), &suite()).contains("and 2 more"));
}

#[test]
fn only_bodies_of_the_list_run_everywhere() {
    let suite = suite();
    assert_eq!((suite.len(), suite.differing()), (4, 2));
    assert!(
        suite.has("tests/src/behaviour/x.rs", "others")
            && suite.has("tests/src/behaviour/layouts/mod.rs", "vectors")
    );
    // Of the same name elsewhere, and what is not in the list.
    assert!(!suite.has("rma/tests/x.rs", "others") && !suite.has("tests/src/behaviour/deaths.rs", "others"));
    assert!(!suite.has("tests/src/behaviour/x.rs", "vectors"));
    assert!(Suite::default().is_empty());
}
