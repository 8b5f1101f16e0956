//! What was measured, for people and for machines.

use std::io::Write;

use rma::Job;
use rma_bench::stats::{Samples, Tally};
use rma_bench::table::{Cell, Table};
use serde_json::{json, Value};

use super::epochs::Ground;
use super::rows::{Row, Switches};
use super::Measured;
use crate::cli::Optimizations;
use crate::{raw, Outcome};

/// The raw round trip's median is this many times its fastest hundredth: then something else runs.
const BUSY: f64 = 3.0;
const BUSY_NOTE: &str = "\
The raw round trip varied widely: other programs, or more ranks than processors, share the processors. \
The counts\nhold all the same; the times say little.";

/// One row with all that is said about it.
struct Line<'a> {
    row: &'a Row,
    measured: &'a Measured,
    ratio_raw: f64,
    ratio_all_off: f64,
}

/// Prints the results.
pub(super) fn print(
    job: &Job,
    options: &Optimizations,
    question_bytes: usize,
    raw_samples: &Samples,
    rows: &[Row],
    measured: &[Measured],
) -> Outcome<()> {
    let all_off = |row: &Row| {
        let same = |other: &Row| {
            (other.epoch, other.is_native, other.switches) == (row.epoch, row.is_native, Switches::AllOff)
        };
        rows.iter().position(same).map(|index| &measured[index].samples)
    };
    let lines = rows.iter().zip(measured).map(|(row, measured)| Line {
        row,
        measured,
        ratio_raw: measured.samples.ratio_to(raw_samples),
        ratio_all_off: all_off(row).map_or(f64::NAN, |other| measured.samples.ratio_to(other)),
    });
    let mut out = std::io::stdout().lock();
    if options.json {
        for line in lines {
            writeln!(out, "{}", object(job, options, raw_samples, &line))?;
        }
    } else {
        let lines: Vec<Line<'_>> = lines.collect();
        write!(out, "{}", heading(job, options, question_bytes, raw_samples))?;
        write!(out, "\n{}", table(options, &lines))?;
        write!(out, "{}", notes(&lines))?;
        if raw_samples.median_us() > BUSY * raw_samples.quantile_us(0.01) {
            writeln!(out, "{BUSY_NOTE}")?;
        }
    }
    out.flush()?;
    Ok(())
}

fn object(job: &Job, options: &Optimizations, raw_samples: &Samples, line: &Line<'_>) -> Value {
    let Line { row, measured, .. } = line;
    let counts = &measured.counts;
    json!({
        "epoch": row.epoch.name(),
        "switches": row.switches.name(),
        "path": row.path(),
        "provider": job.provider().provider,
        "ranks": job.size(),
        "operations": Ground::operations(row.epoch, options.operations),
        "size": options.size,
        "packets_out": counts.packets_out.usual(),
        "packets_back": counts.packets_back.usual(),
        "bytes": counts.bytes.usual(),
        "round_trips": counts.round_trips.usual(),
        "barriers": counts.barriers.usual(),
        "counts_share": counts.usual_share(),
        "median_us": micro(measured.samples.median_us()),
        "p99_us": micro(measured.samples.quantile_us(0.99)),
        "raw_round_trip_us": micro(raw_samples.median_us()),
        "ratio_raw": micro(line.ratio_raw),
        "ratio_all_off": micro(line.ratio_all_off),
        "rounds": options.rounds,
        "iterations": options.iterations,
    })
}

/// To the nanosecond, or the thousandth.
fn micro(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

fn heading(job: &Job, options: &Optimizations, question_bytes: usize, raw_samples: &Samples) -> String {
    let answer_bytes = raw::ANSWER_BYTES.min(question_bytes);
    format!(
        "provider {}, {} ranks; {} bytes an operation, {} operations in an epoch that has several\n\
         {} rounds of {} epochs a row; times in microseconds, of rank 0, while rank 1 polls inside of the \
         library\n\
         raw round trip: {question_bytes} bytes out, {answer_bytes} bytes back, over the same endpoints, \
         in every round: median {:.2}, 99 % below {:.2}\n",
        job.provider().provider,
        job.size(),
        options.size,
        options.operations,
        options.rounds,
        options.iterations,
        raw_samples.median_us(),
        raw_samples.quantile_us(0.99),
    )
}

fn table(options: &Optimizations, lines: &[Line<'_>]) -> Table {
    let mut table = Table::new(&[
        "epoch",
        "ops",
        "path",
        "switches",
        "out",
        "back",
        "bytes",
        "round trips",
        "barriers",
        "median",
        "99 %",
        "/ all off",
        "/ raw",
    ]);
    let mut last = None;
    for Line { row, measured, ratio_raw, ratio_all_off } in lines {
        if last.is_some_and(|last| last != row.epoch) {
            table.rule();
        }
        last = Some(row.epoch);
        let Measured { samples, counts } = measured;
        let switches = match row.switches {
            Switches::Without(_) => format!("no {}", row.switches.name()),
            _ => row.switches.name().to_owned(),
        };
        table.row(vec![
            row.epoch.name().into(),
            Cell::Number(Ground::operations(row.epoch, options.operations).to_string()),
            row.path().into(),
            Cell::Text(switches),
            count(&counts.packets_out),
            count(&counts.packets_back),
            count(&counts.bytes),
            count(&counts.round_trips),
            count(&counts.barriers),
            Cell::decimal(samples.median_us(), 2),
            Cell::decimal(samples.quantile_us(0.99), 2),
            Cell::decimal(*ratio_all_off, 2),
            Cell::decimal(*ratio_raw, 2),
        ]);
    }
    table
}

/// The usual count, marked when it was not always that.
fn count(tally: &Tally) -> Cell {
    let mark = if tally.usual_share() < 1.0 { "~" } else { "" };
    Cell::Number(format!("{mark}{}", tally.usual()))
}

fn notes(lines: &[Line<'_>]) -> String {
    let share = lines.iter().fold(1.0_f64, |share, line| share.min(line.measured.counts.usual_share()));
    if share == 1.0 {
        return "\nCounts are exact: every epoch of a row had the same.\n".to_owned();
    }
    format!(
        "\nCounts with ~ were not the same in every epoch (a packet of the next one may be early, or a rank \
         was not\nrunning when the other waited for it); they are what at least {:.2} % of a row's epochs had.\n",
        share * 100.0
    )
}
