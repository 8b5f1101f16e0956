//! `rma-bench report`: one HTML page from files of results.

use std::io::Write;
use std::path::Path;

use rma_bench::compare;
use rma_bench::page::{page, Source};
use serde_json::Value;

use crate::cli::Report;
use crate::Outcome;

/// Runs the command.
pub(crate) fn run(options: &Report) -> Outcome<()> {
    let sources = options.files.iter().map(|path| read(path)).collect::<Outcome<Vec<Source>>>()?;
    if sources.iter().all(|source| source.records.is_empty() && source.gains.is_empty()) {
        return Err("no row of results in these files; 'rma-bench latency --json' writes such".into());
    }
    let html = page(&sources);
    match &options.output {
        Some(path) => std::fs::write(path, html).map_err(|error| format!("{}: {error}", path.display()))?,
        None => {
            let mut out = std::io::stdout().lock();
            out.write_all(html.as_bytes())?;
            out.flush()?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Outcome<Source> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let (mut records, _) = compare::read(&text).map_err(|error| format!("{name}: {error}"))?;
    // What optimizations gain has bars and grids instead of a curve.
    records.retain(|record| !record.key.contains_key("switches"));
    let rows = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let gains = rows.filter(|row| row["switches"].is_string() && row["ratio_all_off"].is_number()).collect();
    let name = path.file_name().map_or_else(|| name.to_string(), |name| name.to_string_lossy().into_owned());
    Ok(Source { name, records, gains })
}
