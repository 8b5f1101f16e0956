//! One HTML page with everything in it: no script, no font, no picture from elsewhere.

use std::fmt::Write;

use serde_json::Value;

use crate::environment::Environment;
use crate::gains;
use crate::plot::{escape, over_sizes, Line};
use crate::record::Record;

/// What one file holds.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The file's name.
    pub name: String,
    /// Its rows.
    pub records: Vec<Record>,
    /// Its rows of `rma-bench optimizations`.
    pub gains: Vec<Value>,
}

/// The page.
pub fn page(sources: &[Source]) -> String {
    let mut html = HEAD.to_owned();
    environments(&mut html, sources);
    for source in sources {
        html.push_str(&gains::section(&source.name, &source.gains));
    }
    for heading in headings(sources) {
        let _ = writeln!(html, "<section>\n<h2>{}</h2>", escape(&heading));
        let rows: Vec<(&Source, &Record)> =
            all(sources).filter(|(_, record)| title(record) == heading).collect();
        plot(&mut html, &rows, sources.len() > 1);
        table(&mut html, &rows, sources.len() > 1);
        html.push_str("</section>\n");
    }
    html + "</body>\n</html>\n"
}

fn all(sources: &[Source]) -> impl Iterator<Item = (&Source, &Record)> {
    sources.iter().flat_map(|source| source.records.iter().map(move |record| (source, record)))
}

/// What rows of a section have in common: what was measured, in which unit.
fn title(record: &Record) -> String {
    let (benchmark, operation) = (record.text("benchmark"), record.text("operation"));
    let parts = [benchmark, operation, record.text("measure")].into_iter().filter(|part| !part.is_empty());
    format!("{} ({})", parts.collect::<Vec<_>>().join(", "), record.unit.name())
}

fn headings(sources: &[Source]) -> Vec<String> {
    let mut headings = Vec::new();
    for (_, record) in all(sources) {
        let heading = title(record);
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    headings
}

/// What tells a row from others of its section, but for its size.
fn label(source: &Source, record: &Record, is_one_of_several: bool) -> String {
    let title = record.title(&["benchmark", "operation", "measure", "size", "outstanding"]);
    match (is_one_of_several, title.is_empty()) {
        (false, _) => title,
        (true, true) => source.name.clone(),
        (true, false) => format!("{}: {title}", source.name),
    }
}

fn plot(html: &mut String, rows: &[(&Source, &Record)], is_one_of_several: bool) {
    let mut lines: Vec<Line> = Vec::new();
    for (source, record) in rows {
        let Some(size) = record.key.get("size").and_then(Value::as_f64) else { return };
        let name = label(source, record, is_one_of_several);
        let interval = record.series.interval();
        let point = (size, record.series.median(), interval.low, interval.high);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name, points: vec![point] }),
        }
    }
    // A single size is no curve; the table says it all.
    if lines.iter().any(|line| line.points.len() > 1) {
        let unit = rows.first().map_or("", |(_, record)| record.unit.name());
        html.push_str(&over_sizes(&lines, unit));
    }
}

fn table(html: &mut String, rows: &[(&Source, &Record)], is_one_of_several: bool) {
    let has = |name: &str| rows.iter().any(|(_, record)| record.key.contains_key(name));
    let columns: Vec<&str> = ["size", "outstanding"].into_iter().filter(|name| has(name)).collect();
    html.push_str("<table>\n<tr><th class=\"text\">what</th>");
    for name in columns.iter().chain(&["median", "95 % from", "to", "99 %"]) {
        let _ = write!(html, "<th>{name}</th>");
    }
    html.push_str("</tr>\n");
    for (source, record) in rows {
        let (interval, digits) = (record.series.interval(), record.unit.digits());
        let _ =
            write!(html, "<tr><td class=\"text\">{}</td>", escape(&label(source, record, is_one_of_several)));
        for name in &columns {
            let _ = write!(html, "<td>{}</td>", escape(&record.text(name)));
        }
        let p99 = record.details.get("p99").and_then(Value::as_f64).unwrap_or(f64::NAN);
        for value in [record.series.median(), interval.low, interval.high, p99] {
            let _ = match value.is_finite() {
                true => write!(html, "<td>{value:.digits$}</td>"),
                false => write!(html, "<td>-</td>"),
            };
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
}

/// Each environment once, with the files that come from it.
fn environments(html: &mut String, sources: &[Source]) {
    let of_records = all(sources).map(|(source, record)| (source, record.environment.clone()));
    let of_gains = sources.iter().flat_map(|source| {
        source.gains.iter().map(move |row| (source, Environment::from_json(&row["environment"])))
    });
    let mut seen: Vec<(Environment, Vec<&str>)> = Vec::new();
    for (source, environment) in of_records.chain(of_gains) {
        match seen.iter_mut().find(|(other, _)| other.differences(&environment).is_empty()) {
            Some((_, names)) if names.contains(&source.name.as_str()) => {}
            Some((_, names)) => names.push(&source.name),
            None => seen.push((environment, vec![&source.name])),
        }
    }
    seen.retain(|(environment, _)| !environment.lines().is_empty());
    for (environment, names) in seen {
        let _ = writeln!(html, "<section>\n<h2>Measured on: {}</h2>\n<table>", escape(&names.join(", ")));
        for (name, value) in environment.lines() {
            let (name, value) = (escape(&name), escape(&value));
            let _ = writeln!(html, "<tr><td class=\"text\">{name}</td><td class=\"text\">{value}</td></tr>");
        }
        html.push_str("</table>\n</section>\n");
    }
}

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>rma-bench</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; } h3 { font-size: 1rem; margin: 1rem 0 .2rem; }
svg { width: 100%; max-width: 44rem; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: #333; stroke: #fff; stroke-width: 3px; paint-order: stroke; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: #ddd; stroke-width: 1; } .one { stroke: #333; stroke-dasharray: 4 3; }
table { border-collapse: collapse; margin: .7rem 0; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { text-align: right; padding: .1rem .7rem .1rem 0; border-bottom: 1px solid #eee; vertical-align: top; }
.life { stroke: #999; } .pair { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }
figure { margin: .5rem 0; flex: 1 1 20rem; max-width: 29rem; } figcaption { font-size: .85rem; }
.text { text-align: left; overflow-wrap: anywhere; }
@media print { body { margin: 0; max-width: none; font-size: 10pt; } svg, tr, figure, .pair, h2, h3 { break-inside: avoid; }
h2, h3 { break-after: avoid; } }
</style>
</head>
<body>
<h1>One-sided communication, measured</h1>
<p>Medians over rounds; bars and the columns from and to are their 95 % confidence intervals.</p>
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;
    use serde_json::json;

    fn source(name: &str) -> Source {
        let gain = json!({
            "epoch": "lock-put-unlock", "operations": 1, "path": "native", "switches": "coalesce", "ratio_all_off": 0.5,
        });
        Source {
            name: name.to_owned(),
            records: vec![record(8, &[1.0]), record(16, &[2.0])],
            gains: vec![gain],
        }
    }

    #[test]
    fn the_page_has_plots_tables_and_the_environment_and_nothing_from_outside() {
        let html = page(&[source("a<b>.jsonl")]);
        assert_eq!(html.matches("<svg").count(), 2, "{html}");
        for part in ["latency, put (us)", "no coalesce", "n1", "a&lt;b&gt;.jsonl", "<td>2.00</td>"] {
            assert!(html.contains(part), "{part} is not in\n{html}");
        }
        for outside in ["http", "<script", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert_eq!(html.matches("<section>").count(), html.matches("</section>").count());
    }

    #[test]
    fn files_are_told_apart() {
        let html = page(&[source("a"), source("b")]);
        assert!(html.contains("a: window allocate") && html.contains("b: window allocate"), "{html}");
        assert!(html.contains("Measured on: a, b"));
        let nothing = page(&[]);
        assert!(nothing.contains("</html>") && !nothing.contains("<section>"));
    }
}
