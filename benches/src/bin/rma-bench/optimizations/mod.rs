//! `rma-bench optimizations`: each epoch with every optimization on, each alone off, and all off.
//!
//! Machines change their speed while a program runs, so nothing is measured in one piece: each round
//! measures the raw round trip and then every row, and ratios are taken within a round.

mod epochs;
mod report;
mod rows;
mod trace;

use std::time::Instant;

use rma::{Counters, Job, Rank};
use rma_bench::stats::{Samples, Tally};
use rma_core::wire::PacketKind;

use crate::cli::{EpochKind, Optimizations};
use crate::progress::Progress;
use crate::session::{self, Reporter};
use crate::{raw, Outcome};

use epochs::Ground;
use rows::Row;

/// The rank that measures.
const ORIGIN: Rank = Rank(0);
/// The rank that is accessed.
const TARGET: Rank = Rank(1);

/// Runs the command.
pub(crate) fn run(options: &Optimizations) -> Outcome<()> {
    session::run("optimizations", 2, &options.output, |team, reporter| measure(team.job(), reporter, options))
}

/// One point of what is measured.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Operations in an epoch that has several.
    operations: usize,
    size: usize,
}

/// What was measured of one row.
#[derive(Debug, Default)]
struct Measured {
    samples: Samples,
    counts: Counts,
}

/// What one epoch sends and waits for.
#[derive(Debug, Default)]
struct Counts {
    packets_out: Tally,
    packets_back: Tally,
    bytes: Tally,
    round_trips: Tally,
    barriers: Tally,
}

impl Counts {
    fn add(&mut self, epoch: &Counters) {
        let barrier = PacketKind::Reduce as usize;
        if epoch.packets_sent[barrier] + epoch.packets_received[barrier] > 0 {
            // Another rank has entered the barrier that ends the batch: no packet of the epoch.
            return;
        }
        self.packets_out.add(epoch.out());
        self.packets_back.add(epoch.back());
        self.bytes.add(epoch.packet_bytes_sent + epoch.packet_bytes_received + epoch.native_bytes);
        self.round_trips.add(epoch.round_trips);
        self.barriers.add(epoch.barriers_waited);
    }

    /// The share of epochs that had the counts that are reported.
    fn usual_share(&self) -> f64 {
        [&self.packets_out, &self.packets_back, &self.bytes, &self.round_trips, &self.barriers]
            .iter()
            .fold(1.0, |share, tally| share.min(tally.usual_share()))
    }
}

fn measure(job: &Job, reporter: &mut Reporter, options: &Optimizations) -> Outcome<()> {
    for size in options.sizes() {
        for (index, operations) in options.operations().into_iter().enumerate() {
            let point = Point { operations, size };
            // Epochs of a single operation are the same for all numbers of operations.
            let is_wanted = |epoch: EpochKind| {
                let is_asked = options.epochs.is_empty() || options.epochs.contains(&epoch);
                is_asked && (index == 0 || Ground::operations(epoch, operations) > 1)
            };
            measure_point(job, reporter, options, point, is_wanted)?;
        }
    }
    Ok(())
}

fn measure_point(
    job: &Job,
    reporter: &mut Reporter,
    options: &Optimizations,
    point: Point,
    is_wanted: impl Fn(EpochKind) -> bool,
) -> Outcome<()> {
    let mut ground = Ground::new(job, point.operations, point.size)?;
    let rows = rows::plan(is_wanted, options.grid, ground.offered());
    let question_bytes = raw::question_bytes(point.size, job.provider().limits.send_bytes_max);
    let mut raw_samples = Samples::default();
    let mut measured: Vec<Measured> = rows.iter().map(|_| Measured::default()).collect();
    let mut progress = Progress::new(options.rounds * rows.len(), job.rank() == ORIGIN);
    for round in 0..options.rounds {
        job.barrier()?;
        if let Some(times) = raw_batch(job, question_bytes, options)? {
            raw_samples.add_round(times);
        }
        for step in 0..rows.len() {
            // Each round begins with another row, so that none always follows the same one.
            let index = (round + step) % rows.len();
            batch(job, &mut ground, &rows[index], options, &mut measured[index])?;
            progress.show(round * rows.len() + step + 1);
        }
    }
    progress.clear();
    if !rows.is_empty() {
        report::print(
            reporter,
            &Results { job, options, point, question_bytes, raw_samples },
            &rows,
            &measured,
        )?;
    }
    ground.free()
}

/// What the rows of a point have in common.
struct Results<'a> {
    job: &'a Job,
    options: &'a Optimizations,
    point: Point,
    question_bytes: usize,
    raw_samples: Samples,
}

/// The raw round trip; times at the origin only.
fn raw_batch(job: &Job, bytes: usize, options: &Optimizations) -> Outcome<Option<Vec<u64>>> {
    let count = options.warm_up + options.iterations;
    match job.rank() {
        ORIGIN => Ok(Some(raw::ask(job, TARGET, bytes, count)?.split_off(options.warm_up))),
        TARGET => raw::answer(job, ORIGIN, bytes, count).map(|()| None),
        _ => Ok(None),
    }
}

/// One row in one round, at every rank.
fn batch(
    job: &Job,
    ground: &mut Ground,
    row: &Row,
    options: &Optimizations,
    measured: &mut Measured,
) -> Outcome<()> {
    job.set_switches(&row.config(&job.config()));
    ground.begin_batch();
    job.barrier()?;
    let count = options.warm_up + options.iterations;
    if job.rank() == ORIGIN {
        let mut times = Vec::with_capacity(options.iterations);
        for index in 0..count {
            ground.prepare();
            let before = job.counters();
            let start = Instant::now();
            ground.epoch(row)?;
            let time = start.elapsed();
            let counters = job.counters().since(&before);
            ground.check_result(row)?;
            if index >= options.warm_up {
                times.push(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
                measured.counts.add(&counters);
            }
        }
        measured.samples.add_round(times);
    } else {
        ground.take_part(row, count)?;
    }
    // The others have been in here, polling, since the batch began.
    job.barrier()?;
    if job.rank() == TARGET {
        ground.check_memory(row, count)?;
    }
    Ok(())
}
