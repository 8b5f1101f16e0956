//! `rma-bench agent`: what an origin sees of a target that is inside of the library, computes, or sleeps, with
//! the progress driver that RMA_PROGRESS chooses, and what the driver costs the target.

use std::time::{Duration, Instant};

use rma::raw::RawWindow;
use rma::{LockProtocol, LockType, Rank, WindowOptions};
use rma_bench::record::{rounded, Record, Unit};
use rma_bench::series::Series;
use serde_json::{json, Value};

use crate::cli::Agent;
use crate::session::{self, Reporter};
use crate::team::{compute, TargetKind, Team};
use crate::Outcome;

const ORIGIN: Rank = Rank(0);
const TARGET: Rank = Rank(1);

/// What the target does.
const TARGETS: [TargetKind; 3] = [TargetKind::Polling, TargetKind::Busy, TargetKind::Idle];

/// How long a target is away from the library between two calls.
const AWAY: Duration = Duration::from_millis(20);

/// Steps of a piece of the target's work: about 100 us.
const STEPS: u64 = 100_000;

/// What was measured with one kind of target, round by round.
#[derive(Clone, Debug, Default)]
struct Measured {
    medians: Vec<f64>,
    tails: Vec<f64>,
    work: Vec<f64>,
}

/// Runs the command.
pub(crate) fn run(options: &Agent) -> Outcome<()> {
    session::run("agent", 2, &options.output, |team, reporter| measure(team, reporter, options))
}

fn measure(team: &Team<'_>, reporter: &mut Reporter, options: &Agent) -> Outcome<()> {
    // Locks that are words of memory are nobody's to serve.
    let by_message = WindowOptions { lock_protocol: Some(LockProtocol::Message), ..WindowOptions::DEFAULT };
    let window = RawWindow::allocate_with(team.job(), size_of::<u64>(), 8, &by_message)?;
    let mut measured = vec![Measured::default(); TARGETS.len()];
    // The first round warms up.
    for round in 0..=options.rounds.rounds {
        for (&target, measured) in TARGETS.iter().zip(&mut measured) {
            let [times, tail, work] = segment(team, &window, target, options.iterations)?;
            if round > 0 {
                measured.medians.push(times);
                measured.tails.push(tail);
                measured.work.push(work);
            }
        }
    }
    window.free()?;
    let driver = std::env::var("RMA_PROGRESS").unwrap_or_else(|_| "auto".to_owned());
    let key = |measure: &str, target: TargetKind| {
        session::key(json!({
            "benchmark": "agent", "progress": driver, "measure": measure, "target": target.name(), "size": 8,
        }))
    };
    let epoch = |(&target, measured): (&TargetKind, &Measured)| -> Record {
        let tail = Series::new(measured.tails.iter().copied()).median();
        let details = json!({ "p90": rounded(tail) });
        let times = measured.medians.iter().copied();
        reporter.record(key("lock-put-unlock", target), Unit::Microseconds, times, details)
    };
    let mut records: Vec<Record> = TARGETS.iter().zip(&measured).map(epoch).collect();
    reporter.group(&records, &["target"])?;
    records.clear();
    for (&target, measured) in
        TARGETS.iter().zip(&measured).filter(|(target, _)| **target == TargetKind::Busy)
    {
        let work = measured.work.iter().copied();
        records.push(reporter.record(
            key("piece of the target's work", target),
            Unit::Microseconds,
            work,
            Value::Null,
        ));
    }
    reporter.group(&records, &["target"])
}

/// Median and 90 % of an epoch at the origin, and the median of a piece of the target's own work, microseconds; at the
/// leader. Collective.
fn segment(team: &Team<'_>, window: &RawWindow, target: TargetKind, iterations: usize) -> Outcome<[f64; 3]> {
    let (job, step) = (team.job(), team.next_step());
    let mut said = [f64::NAN; 3];
    job.barrier()?;
    if job.rank() == ORIGIN {
        let times = epochs(window, step, iterations)?;
        team.sign(TARGET, step)?;
        said[0] = times[times.len() / 2];
        said[1] = times[times.len() * 9 / 10];
    } else if job.rank() == TARGET {
        said[2] = serve(team, step, target);
        let held = value(window);
        if held != step << 32 | iterations as u64 {
            return Err(format!("the last of {iterations} puts left {held:#x}").into());
        }
    }
    job.barrier()?;
    let all = team.gather(&said)?;
    let of = |rank: Rank, at: usize| all.get(rank.0 as usize).map_or(f64::NAN, |said| said[at]);
    Ok([of(ORIGIN, 0), of(ORIGIN, 1), of(TARGET, 2)])
}

/// Sorted times of epochs, microseconds.
fn epochs(window: &RawWindow, step: u64, iterations: usize) -> Outcome<Vec<f64>> {
    let mut times = Vec::with_capacity(iterations);
    for epoch in 1..=iterations as u64 {
        let begun = Instant::now();
        put(window, step << 32 | epoch)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// An epoch with one put to the target.
fn put(window: &RawWindow, value: u64) -> Outcome<()> {
    window.lock(LockType::Exclusive, TARGET, false)?;
    // SAFETY: the word lives until unlock has completed the operation; where that fails, the process ends below before
    // its stack is used again.
    unsafe { window.put(std::ptr::from_ref(&value).cast(), size_of::<u64>(), TARGET, 0) }?;
    if let Err(error) = window.unlock(TARGET) {
        eprintln!("rma-bench: {error}");
        std::process::abort();
    }
    Ok(())
}

/// The word of the own window.
fn value(window: &RawWindow) -> u64 {
    // SAFETY: the window has a word, and the origin is past its last epoch.
    unsafe { window.base().cast::<u64>().read_volatile() }
}

/// Does what the target does until the origin is done. The median time of a piece of work: what the driver costs the
/// program.
fn serve(team: &Team<'_>, step: u64, target: TargetKind) -> f64 {
    let mut pieces = Vec::with_capacity(PIECES_MAX);
    let work = |pieces: &mut Vec<f64>| {
        let begun = Instant::now();
        compute(STEPS);
        if pieces.len() < PIECES_MAX {
            pieces.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    };
    // There is a piece to tell of, even if the origin is done before the target has had a processor.
    if target == TargetKind::Busy {
        work(&mut pieces);
    }
    while !team.has_signed(ORIGIN, step) {
        let away = Instant::now();
        match target {
            TargetKind::Polling => {}
            TargetKind::Idle => std::thread::sleep(AWAY),
            TargetKind::Busy => {
                while away.elapsed() < AWAY && !team.has_signed(ORIGIN, step) {
                    work(&mut pieces);
                }
            }
        }
        if team.job().progress() == 0 && target == TargetKind::Polling {
            std::thread::yield_now();
        }
    }
    Series::new(pieces).median()
}

/// Pieces of a round that are remembered.
const PIECES_MAX: usize = 1 << 16;
