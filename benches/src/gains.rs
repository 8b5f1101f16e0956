//! What each optimization gains, for the page: bars, grids of all combinations, and what each epoch sends.

use std::fmt::Write;

use serde_json::Value;

use crate::plot::{bars, escape, sequence};
use crate::record::plain;
use crate::sequence::Message;

/// An epoch on a path: what has bars, or a grid, of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Group {
    epoch: String,
    path: String,
}

/// How many operations, and of which size.
type Point = (u64, u64);

/// The section of rows of `rma-bench optimizations` that belong together; nothing where there are none. `name` tells them from
/// others, if there are others.
pub(crate) fn section(name: &str, rows: &[Value]) -> String {
    let mut html = String::new();
    if rows.is_empty() {
        return html;
    }
    let of = if name.is_empty() { String::new() } else { format!(": {name}") };
    let _ = writeln!(
        html,
        "<section>\n<h2>What each optimization gains{}</h2>\n<p>Time of an epoch against the one with all optimizations \
         off; less than 1 is faster.</p>",
        escape(&of)
    );
    for group in groups(rows) {
        let rows: Vec<&Value> = rows.iter().filter(|row| group_of(row) == group).collect();
        let points = points(&rows);
        let switches = rows.iter().filter(|row| point_of(row) == points[0]).count();
        let _ = write!(html, "<h3>{}, {}", escape(&group.epoch), escape(&group.path));
        if let ([(operations, size)], false) = (&points[..], switches > BARS_MAX) {
            let _ = writeln!(html, " ({operations} x {size} bytes)</h3>");
            let bar = |row: &&Value| (label(row), row["ratio_all_off"].as_f64().unwrap_or(0.0));
            html.push_str(&bars(&rows.iter().map(bar).collect::<Vec<_>>(), "all off"));
        } else {
            html.push_str("</h3>\n");
            html.push_str(&grid(&rows, &points));
        }
        html.push_str(&sequences(&rows, points[0]));
    }
    html + "</section>\n"
}

fn text(row: &Value, name: &str) -> String {
    row.get(name).map(plain).unwrap_or_default()
}

fn group_of(row: &Value) -> Group {
    let path = if is_nic_lock(row) { "native".to_owned() } else { text(row, "path") };
    Group { epoch: text(row, "epoch"), path }
}

/// Whether the lock is words: such rows stand among those that they are told against.
fn is_nic_lock(row: &Value) -> bool {
    row["path"] == "nic-lock"
}

fn groups(rows: &[Value]) -> Vec<Group> {
    let mut groups = Vec::new();
    for row in rows {
        if !groups.contains(&group_of(row)) {
            groups.push(group_of(row));
        }
    }
    groups
}

fn point_of(row: &Value) -> Point {
    let number = |name: &str| row[name].as_u64().unwrap_or_default();
    (number("operations"), number("size"))
}

/// In order; at least one where there is a row.
fn points(rows: &[&Value]) -> Vec<Point> {
    let mut points: Vec<Point> = rows.iter().map(|row| point_of(row)).collect();
    points.sort_unstable();
    points.dedup();
    points
}

/// Which switches are on or off.
fn label(row: &Value) -> String {
    let switches = text(row, "switches");
    if is_nic_lock(row) {
        return "nic-lock".to_owned();
    }
    if switches.starts_with("all") {
        switches
    } else {
        format!("no {}", switches.replace('+', ", "))
    }
}

/// Combinations of switches by numbers of operations and sizes, the more coloured the more they gain.
fn grid(rows: &[&Value], points: &[Point]) -> String {
    let mut html = "<table class=\"grid\">\n<tr><th class=\"text\">operations x bytes</th>".to_owned();
    for (operations, size) in points {
        let _ = write!(html, "<th>{operations} x {size}</th>");
    }
    html.push_str("</tr>\n");
    let mut labels = Vec::new();
    for row in rows {
        if !labels.contains(&label(row)) {
            labels.push(label(row));
        }
    }
    for wanted in labels {
        let _ = write!(html, "<tr><td class=\"text\">{}</td>", escape(&wanted));
        for point in points {
            let row = rows.iter().find(|row| label(row) == wanted && point_of(row) == *point);
            match row.and_then(|row| row["ratio_all_off"].as_f64()) {
                Some(ratio) => {
                    let _ = write!(html, "<td style=\"background: {}\">{ratio:.2}</td>", shade(ratio));
                }
                None => html.push_str("<td>-</td>"),
            }
        }
        html.push_str("</tr>\n");
    }
    html + "</table>\n"
}

/// Blue where it is faster than with all off, orange where it is slower; told apart by those who do not see red and green
/// alike.
fn shade(ratio: f64) -> String {
    let strength = (ratio.max(1e-3).log2().abs() / 2.0).min(1.0) * 0.6;
    let colour = if ratio <= 1.0 { "0, 114, 178" } else { "230, 159, 0" };
    format!("rgba({colour}, {strength:.2})")
}

/// What the epoch sends with all optimizations, and without any.
fn sequences(rows: &[&Value], point: Point) -> String {
    let mut html = String::new();
    for switches in ["all-on", "all-off"] {
        let row = rows.iter().find(|row| text(row, "switches") == switches && point_of(row) == point);
        let messages = row.and_then(|row| row["messages"].as_array());
        let messages: Vec<Message> = messages.into_iter().flatten().filter_map(Message::from_json).collect();
        if !messages.is_empty() {
            let (operations, size) = point;
            let _ = writeln!(
                html,
                "<figure><figcaption>{switches}: {operations} x {size} bytes</figcaption>\n{}</figure>",
                sequence(&messages)
            );
        }
    }
    if html.is_empty() {
        return html;
    }
    format!("<div class=\"pair\">\n{html}</div>\n")
}

/// Bars of more are a grid.
const BARS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(switches: &str, operations: u64, ratio: f64) -> Value {
        json!({
            "epoch": "lock-puts-unlock", "path": "native", "switches": switches, "operations": operations, "size": 8,
            "ratio_all_off": ratio,
            "messages": [{"from": 0, "what": "LOCK + 8 puts + UNLOCK", "bytes": 208, "native": false}],
        })
    }

    #[test]
    fn one_point_has_bars_and_several_are_a_grid() {
        let one = section("a", &[row("all-on", 8, 0.25), row("coalesce", 8, 0.5), row("all-off", 8, 1.0)]);
        assert_eq!(one.matches("<rect").count(), 3, "{one}");
        assert!(
            one.contains("no coalesce") && one.contains("8 x 8 bytes") && !one.contains("class=\"grid\"")
        );
        let several =
            section("a", &[row("all-on", 8, 0.25), row("all-on", 2, 1.5), row("piggyback+coalesce", 8, 0.5)]);
        assert_eq!(several.matches("rgba(").count(), 3, "{several}");
        assert!(several.contains("no piggyback, coalesce") && several.contains("<td>-</td>"), "{several}");
        assert!(several.contains("<th>2 x 8</th><th>8 x 8</th>"), "{several}");
        assert_eq!(section("a", &[]), "");
    }

    #[test]
    fn a_lock_that_is_words_stands_among_the_switches() {
        let mut words = row("all-on", 8, 0.125);
        words["path"] = json!("nic-lock");
        let html = section("a", &[row("all-on", 8, 0.25), row("all-off", 8, 1.0), words]);
        assert_eq!((html.matches("<h3>").count(), html.matches("<rect").count()), (1, 3), "{html}");
        assert!(html.contains(">nic-lock<") && html.contains(">0.12<"), "{html}");
    }

    #[test]
    fn epochs_are_shown_message_by_message_with_and_without() {
        let html = section("a", &[row("all-on", 8, 0.25), row("coalesce", 8, 0.5), row("all-off", 8, 1.0)]);
        assert_eq!(html.matches("<figure>").count(), 2, "{html}");
        assert!(html.contains("LOCK + 8 puts + UNLOCK (208 bytes)"), "{html}");
    }

    #[test]
    fn what_is_faster_is_blue() {
        assert!(shade(0.25).contains("114") && shade(4.0).contains("159"));
        assert_eq!(shade(1.0), "rgba(0, 114, 178, 0.00)");
        assert!(!shade(0.0).contains("inf") && !shade(0.0).contains("NaN"));
    }
}
