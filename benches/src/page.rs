//! One HTML page with everything in it: no script, no font, no picture from elsewhere.

use std::fmt::Write;

use serde_json::Value;

use crate::environment::Environment;
use crate::environments::Environments;
use crate::gains;
use crate::glance;
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

/// Where a row comes from: one file, one environment.
#[derive(Clone, Copy, Debug)]
struct Origin<'a> {
    source: &'a Source,
    environment: &'a Environment,
}

/// All that a page is made of.
struct Contents<'a> {
    sources: &'a [Source],
    environments: Environments,
}

/// The page.
pub fn page(sources: &[Source]) -> String {
    let of_gains: Vec<Environment> =
        sources.iter().flat_map(|source| &source.gains).map(environment_of).collect();
    let of_records = sources.iter().flat_map(|source| &source.records).map(|record| &record.environment);
    let environments = Environments::of(of_records.chain(&of_gains));
    Contents { sources, environments }.page()
}

impl Contents<'_> {
    fn page(&self) -> String {
        let headings = self.headings();
        let mut html = HEAD.to_owned();
        self.summary(&mut html);
        self.navigation(&mut html, &headings);
        self.glance(&mut html);
        self.gains(&mut html);
        for (number, heading) in headings.iter().enumerate() {
            let _ = writeln!(html, "<section id=\"s{number}\">\n<h2>{}</h2>", escape(heading));
            let rows: Vec<(Origin<'_>, &Record)> =
                self.all().filter(|(_, record)| title(record) == *heading).collect();
            self.plot(&mut html, &rows);
            self.table(&mut html, &rows);
            html.push_str("</section>\n");
        }
        self.all_environments(&mut html);
        html + "</body>\n</html>\n"
    }

    fn all(&self) -> impl Iterator<Item = (Origin<'_>, &Record)> {
        self.sources.iter().flat_map(|source| {
            source
                .records
                .iter()
                .map(move |record| (Origin { source, environment: &record.environment }, record))
        })
    }

    /// Rows of optimizations, with what those that belong together are called.
    fn all_gains(&self) -> Vec<(String, Vec<Value>)> {
        let mut groups: Vec<(String, Vec<Value>)> = Vec::new();
        for source in self.sources {
            for row in &source.gains {
                let name = self.name(Origin { source, environment: &environment_of(row) });
                match groups.iter_mut().find(|(other, _)| *other == name) {
                    Some((_, rows)) => rows.push(row.clone()),
                    None => groups.push((name, vec![row.clone()])),
                }
            }
        }
        groups
    }

    /// What rows from there are called: by the file, if there are several, and by the environment, if there are several.
    fn name(&self, origin: Origin<'_>) -> String {
        let environment = self.environments.name(origin.environment);
        let file = if self.sources.len() > 1 { origin.source.name.as_str() } else { "" };
        [file, environment].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    }

    fn headings(&self) -> Vec<String> {
        let mut headings = Vec::new();
        for (_, record) in self.all() {
            let heading = title(record);
            if !headings.contains(&heading) {
                headings.push(heading);
            }
        }
        headings
    }

    /// Where and when, in a sentence.
    fn summary(&self, html: &mut String) {
        let said = |name: &str, before: &str| match self.environments.values(name) {
            values if values.is_empty() => String::new(),
            values => format!("{before}{}", values.join(", ")),
        };
        let times = self.all().map(|(origin, _)| origin.environment.text("time"));
        let mut days: Vec<String> =
            times.filter_map(|time| time.split('T').next().map(str::to_owned)).collect();
        days.retain(|day| !day.is_empty());
        days.sort_unstable();
        days.dedup();
        let day = if days.is_empty() { String::new() } else { format!("; {}", days.join(", ")) };
        let text = said("host", " on ") + &said("processor", ", ") + &said("provider", ", over ") + &day;
        if !text.is_empty() {
            let _ = writeln!(
                html,
                "<p>Measured{}. <a href=\"#environments\">All about it</a></p>",
                escape(&text)
            );
        }
    }

    fn navigation(&self, html: &mut String, headings: &[String]) {
        if headings.len() < 2 {
            return;
        }
        html.push_str("<nav>\n");
        for (number, heading) in headings.iter().enumerate() {
            let _ = writeln!(html, "<a href=\"#s{number}\">{}</a>", escape(heading));
        }
        html.push_str("</nav>\n");
    }

    fn glance(&self, html: &mut String) {
        let mut origins: Vec<String> = Vec::new();
        let mut column = |origin| {
            let name = self.name(origin);
            let known = origins.iter().position(|other| *other == name);
            known.unwrap_or_else(|| {
                origins.push(name);
                origins.len() - 1
            })
        };
        let rows: Vec<(usize, &Record)> =
            self.all().map(|(origin, record)| (column(origin), record)).collect();
        let table = glance::table(&origins, &rows);
        if !table.is_empty() {
            let _ = writeln!(html, "<section>\n<h2>At a glance</h2>\n{table}</section>");
        }
    }

    fn gains(&self, html: &mut String) {
        for (name, rows) in self.all_gains() {
            html.push_str(&gains::section(&name, &rows));
        }
    }

    /// What tells a row from others of its section, but for its size.
    fn label(&self, origin: Origin<'_>, record: &Record) -> String {
        let (name, title) =
            (self.name(origin), record.title(&["benchmark", "operation", "measure", "size", "outstanding"]));
        [name, title].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    }

    fn plot(&self, html: &mut String, rows: &[(Origin<'_>, &Record)]) {
        let mut lines: Vec<Line> = Vec::new();
        for (origin, record) in rows {
            let Some(size) = record.key.get("size").and_then(Value::as_f64) else { return };
            let name = self.label(*origin, record);
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

    fn table(&self, html: &mut String, rows: &[(Origin<'_>, &Record)]) {
        let has = |name: &str| rows.iter().any(|(_, record)| record.key.contains_key(name));
        let columns: Vec<&str> = ["size", "outstanding"].into_iter().filter(|name| has(name)).collect();
        html.push_str("<table>\n<tr><th class=\"text\">what</th>");
        for name in columns.iter().chain(&["median", "95 % from", "to", "99 %"]) {
            let _ = write!(html, "<th>{name}</th>");
        }
        html.push_str("</tr>\n");
        for (origin, record) in rows {
            let (interval, digits) = (record.series.interval(), record.unit.digits());
            let _ = write!(html, "<tr><td class=\"text\">{}</td>", escape(&self.label(*origin, record)));
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

    /// Each environment in a column, what is the same in all of them once.
    fn all_environments(&self, html: &mut String) {
        let all: Vec<(&Environment, &str)> = self.environments.iter().collect();
        let lines: Vec<Vec<(String, String)>> =
            all.iter().map(|(environment, _)| environment.lines()).collect();
        if lines.iter().all(Vec::is_empty) {
            return;
        }
        html.push_str("<section id=\"environments\">\n<h2>Environments</h2>\n<table>\n");
        if all.len() > 1 {
            html.push_str("<tr><th></th>");
            for (_, name) in &all {
                let _ = write!(html, "<th class=\"text\">{}</th>", escape(name));
            }
            html.push_str("</tr>\n");
        }
        let mut names: Vec<&String> = Vec::new();
        for (name, _) in lines.iter().flatten() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        for name in names {
            let value = |lines: &Vec<(String, String)>| -> String {
                lines
                    .iter()
                    .find(|(other, _)| other == name)
                    .map(|(_, text)| text.clone())
                    .unwrap_or_default()
            };
            let values: Vec<String> = lines.iter().map(value).collect();
            let _ = write!(html, "<tr><td class=\"text\">{}</td>", escape(name));
            if values.iter().all(|value| *value == values[0]) {
                let _ = write!(
                    html,
                    "<td class=\"text\" colspan=\"{}\">{}</td>",
                    values.len(),
                    escape(&values[0])
                );
            } else {
                for value in &values {
                    let _ = write!(html, "<td class=\"text\">{}</td>", escape(value));
                }
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</table>\n</section>\n");
    }
}

fn environment_of(row: &Value) -> Environment {
    Environment::from_json(&row["environment"])
}

/// What rows of a section have in common: what was measured, in which unit.
fn title(record: &Record) -> String {
    let (benchmark, operation) = (record.text("benchmark"), record.text("operation"));
    let parts = [benchmark, operation, record.text("measure")].into_iter().filter(|part| !part.is_empty());
    format!("{} ({})", parts.collect::<Vec<_>>().join(", "), record.unit.name())
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
nav { columns: 3 14rem; font-size: .85rem; } nav a { display: block; } a { color: #0072b2; }
.text { text-align: left; overflow-wrap: anywhere; }
@media print { body { margin: 0; max-width: none; font-size: 10pt; } svg, tr, figure, .pair, h2, h3 { break-inside: avoid; }
nav { display: none; } a { color: inherit; text-decoration: none; }
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
        for part in
            ["latency, put (us)", "no coalesce", "n1", "At a glance", "<td>2.00</td>", "Measured on n1."]
        {
            assert!(html.contains(part), "{part} is not in\n{html}");
        }
        for outside in ["http", "<script", "src=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert_eq!(html.matches("<section").count(), html.matches("</section>").count());
    }

    #[test]
    fn files_are_told_apart() {
        let html = page(&[source("a<b"), source("b")]);
        assert!(html.contains("a&lt;b: window allocate") && html.contains("b: window allocate"), "{html}");
        assert!(html.contains("<th>a&lt;b</th><th>b</th>"), "{html}");
        let nothing = page(&[]);
        assert!(nothing.contains("</html>") && !nothing.contains("<section"));
    }

    #[test]
    fn providers_of_one_file_are_told_apart() {
        let mut both = source("a");
        let over = |name: &str| json!({"host": "n1", "processor": "P", "provider": name, "time": "2026-01-02T03:04:05Z"});
        let near = |record: &Record, name: &str| Record {
            environment: Environment::from_json(&over(name)),
            ..record.clone()
        };
        let (small, large) = (both.records[0].clone(), both.records[1].clone());
        both.records =
            vec![near(&small, "shm"), near(&large, "shm"), near(&small, "tcp"), near(&large, "tcp")];
        let mut gains = both.gains.remove(0);
        for name in ["shm", "tcp"] {
            gains["environment"] = over(name);
            both.gains.push(gains.clone());
        }
        let html = page(&[both]);
        for part in [
            "<p>Measured on n1, P, over shm, tcp; 2026-01-02.",
            "<th>shm</th><th>tcp</th>",
            "shm: window allocate",
            "tcp: window allocate",
            "What each optimization gains: tcp",
            "<td class=\"text\" colspan=\"2\">n1</td>",
            "<td class=\"text\">shm</td><td class=\"text\">tcp</td>",
        ] {
            assert!(html.contains(part), "{part} is not in\n{html}");
        }
        // A line for each in the plot: one colour of two points, and another.
        assert_eq!(html.matches("<circle").count(), 4, "{html}");
        assert_eq!(
            html.matches("stroke-width=\"1.5\"").count(),
            4,
            "two lines, and two in the legend\n{html}"
        );
    }
}
