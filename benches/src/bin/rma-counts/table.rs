//! The counts as a table of a page.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::counts::NAMES;
use crate::SYSTEM_CALLS;

/// A row for each epoch over each fabric, those of an epoch together.
pub(crate) fn of(fabrics: &Map<String, Value>) -> String {
    let mut text = String::from(HEAD);
    let epochs = fabrics
        .values()
        .next()
        .and_then(Value::as_object)
        .map_or_else(Vec::new, |first| first.keys().cloned().collect());
    for epoch in epochs {
        for (fabric, counts) in fabrics {
            let counts = &counts[&epoch];
            let _ = write!(text, "| {epoch} | {fabric} |");
            for name in NAMES.iter().chain([&SYSTEM_CALLS]) {
                let _ =
                    write!(text, " {} |", counts.get(name).map_or_else(|| "-".to_owned(), Value::to_string));
            }
            text.push('\n');
        }
    }
    text
}

/// `page` with `table` between the marks; nothing without these.
pub(crate) fn into_page(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

const BEGIN: &str = "<!-- ci/counts.sh --update writes this -->";
const END: &str = "<!-- to here -->";
const HEAD: &str = "\
| epoch | over | packets out | back | native | bytes | round trips | barriers | copied | allocations | calls |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_says_what_was_counted() {
        let counts = json!({ "packets_out": 1, "bytes": 56, "system_calls": 6 });
        let fabrics = json!({ "shm": { "put-flush": counts }, "tcp": { "put-flush": {} } });
        let table = of(fabrics.as_object().unwrap());
        let rows: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(rows[0], "| put-flush | shm | 1 | - | - | 56 | - | - | - | - | 6 |");
        assert_eq!(rows[1], "| put-flush | tcp | - | - | - | - | - | - | - | - | - |");
        assert_eq!(HEAD.lines().map(|line| line.matches('|').count()).collect::<Vec<_>>(), [12, 12]);
    }

    #[test]
    fn a_page_keeps_what_is_around_the_table() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let new = into_page(&page, "new\n").unwrap();
        assert_eq!(new, format!("before\n{BEGIN}\nnew\n{END}\nafter\n"));
        assert_eq!(into_page("no marks", "new\n"), None);
    }
}
