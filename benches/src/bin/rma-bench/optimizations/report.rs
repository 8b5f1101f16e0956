//! What was measured, for people and for machines.

use std::io::Write;

use rma::{Config, LockProtocol};
use rma_bench::output::Format;
use rma_bench::record::{rounded, Record, Unit};
use rma_bench::sequence::Message;
use rma_bench::stats::Tally;
use rma_bench::table::{Cell, Table};
use serde_json::{json, Value};

use super::epochs::Ground;
use super::rows::{Path, Row, Switches};
use super::trace::{self, Epoch};
use super::{Measured, Results, ORIGIN, TARGET};
use crate::cli::EpochKind;
use crate::session::{self, Reporter};
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

/// Prints the results of a point.
pub(super) fn print<'a>(
    reporter: &mut Reporter,
    results: &Results<'_>,
    rows: &'a [Row],
    measured: &'a [Measured],
) -> Outcome<()> {
    let all_off = |row: &Row| {
        rows.iter().position(|other| row.is_told_against(other)).map(|index| &measured[index].samples)
    };
    let line = |(row, measured): (&'a Row, &'a Measured)| Line {
        row,
        measured,
        ratio_raw: measured.samples.ratio_to(&results.raw_samples),
        ratio_all_off: all_off(row).map_or(f64::NAN, |other| measured.samples.ratio_to(other)),
    };
    let lines: Vec<Line<'a>> = rows.iter().zip(measured).map(line).collect();
    if results.options.output.format() != Format::Table {
        let records: Vec<Record> = lines.iter().map(|line| record(reporter, results, line)).collect();
        return reporter.group(&records, &[]);
    }
    if results.job.rank() != ORIGIN {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    write!(out, "{}", heading(results))?;
    write!(out, "\n{}", table(results, &lines))?;
    writeln!(out, "{}", notes(&lines))?;
    let raw_samples = &results.raw_samples;
    if raw_samples.median_us() > BUSY * raw_samples.quantile_us(0.01) {
        writeln!(out, "{BUSY_NOTE}")?;
    }
    out.flush()?;
    Ok(())
}

fn record(reporter: &Reporter, results: &Results<'_>, line: &Line<'_>) -> Record {
    let Line { row, measured, .. } = line;
    let Results { job, options, point, raw_samples, .. } = results;
    let counts = &measured.counts;
    let key = session::key(json!({
        "benchmark": "optimizations",
        "epoch": row.epoch.name(),
        "switches": row.switches.name(),
        "path": row.path.name(),
        "operations": Ground::operations(row.epoch, point.operations),
        "size": point.size,
    }));
    let details = json!({
        "provider": job.provider().provider,
        "ranks": job.size(),
        "packets_out": counts.packets_out.usual(),
        "packets_back": counts.packets_back.usual(),
        "bytes": counts.bytes.usual(),
        "round_trips": counts.round_trips.usual(),
        "barriers": counts.barriers.usual(),
        "counts_share": counts.usual_share(),
        "median_us": micro(measured.samples.median_us()),
        "p99_us": micro(measured.samples.quantile_us(0.99)),
        "raw_round_trip_us": micro(raw_samples.median_us()),
        "ratio_raw": rounded(line.ratio_raw),
        "ratio_all_off": rounded(line.ratio_all_off),
        "iterations": options.iterations,
        "messages": messages(results, line),
    });
    reporter.record(key, Unit::Microseconds, measured.samples.round_medians_us(), details)
}

/// The messages of an epoch, one after the other, if they are as many packets and bytes as were counted
/// over the fabric; else null.
fn messages(results: &Results<'_>, line: &Line<'_>) -> Value {
    let Line { row, measured, .. } = line;
    let operations = results.point.operations;
    if operations > SHOWN_MAX || row.path == Path::NicLock {
        return Value::Null;
    }
    let epoch = match row.epoch {
        EpochKind::LockPutUnlock => Epoch::Puts(1),
        EpochKind::LockPutsUnlock => Epoch::Puts(operations),
        EpochKind::LockPutsGetUnlock => Epoch::PutsAndGet(operations),
        EpochKind::FencePutFence => Epoch::Fences,
    };
    // The windows that are measured are locked by messages, too.
    let config = Config {
        force_message_path: row.path == Path::Message,
        lock_protocol: LockProtocol::Message,
        ..row.config(&results.job.config())
    };
    let provider = results.job.provider();
    let fabric = (provider.native_allocated, &provider.limits);
    let Some(messages) = trace::of_epoch(epoch, results.point.size, &config, fabric) else {
        return Value::Null;
    };
    let from = |rank| messages.iter().filter(|message| message.from == rank).count() as u64;
    let counts = &measured.counts;
    let bytes: usize = messages.iter().map(|message| message.bytes).sum();
    let counted = [&counts.packets_out, &counts.packets_back, &counts.bytes].map(Tally::usual);
    if counted != [from(ORIGIN), from(TARGET), bytes as u64] {
        return Value::Null;
    }
    messages.iter().map(Message::to_json).collect()
}

/// Epochs of more operations are not shown message by message.
const SHOWN_MAX: usize = 64;

/// To the nanosecond.
fn micro(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

fn heading(results: &Results<'_>) -> String {
    let Results { job, options, point, question_bytes, raw_samples } = results;
    let answer_bytes = raw::ANSWER_BYTES.min(*question_bytes);
    format!(
        "provider {}, {} ranks; {} bytes an operation, {} operations in an epoch that has several\n\
         {} rounds of {} epochs a row; times in microseconds, of rank 0, while rank 1 polls inside of the \
         library\n\
         raw round trip: {question_bytes} bytes out, {answer_bytes} bytes back, over the same endpoints, \
         in every round: median {:.2}, 99 % below {:.2}\n",
        job.provider().provider,
        job.size(),
        point.size,
        point.operations,
        options.rounds,
        options.iterations,
        raw_samples.median_us(),
        raw_samples.quantile_us(0.99),
    )
}

fn table(results: &Results<'_>, lines: &[Line<'_>]) -> Table {
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
            Switches::ALL_ON | Switches::ALL_OFF => row.switches.name(),
            some => format!("no {}", some.name()),
        };
        table.row(vec![
            row.epoch.name().into(),
            Cell::Number(Ground::operations(row.epoch, results.point.operations).to_string()),
            row.path.name().into(),
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
