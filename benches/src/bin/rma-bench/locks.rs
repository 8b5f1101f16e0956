//! `rma-bench locks`: several origins want the lock of one target at the same time.

use std::time::{Duration, Instant};

use rma::{Job, LockType, Rank, ReduceOp, Window};
use rma_bench::record::{rounded, Record, Unit};
use rma_bench::series::Distribution;
use serde_json::{json, Map, Value};

use crate::cli::{LockKind, Locks};
use crate::session::{self, Reporter};
use crate::team::{Team, LEADER};
use crate::Outcome;

/// The rank whose window is locked.
const TARGET: Rank = LEADER;
/// The element that every epoch of a round counts in.
const EPOCHS: u64 = 0;
/// The element that is read and written in exclusive epochs.
const GUARDED: u64 = 1;
/// Exclusive epochs of each origin that read and write.
const TURNS: u64 = 20;

/// What the origins reached in one round.
#[derive(Debug, Default)]
struct Rounds {
    throughput: Vec<f64>,
    fairness: Vec<f64>,
    wait: Vec<f64>,
}

/// Runs the command.
pub(crate) fn run(options: &Locks) -> Outcome<()> {
    session::run("locks", 2, &options.output, |team, reporter| measure(team, reporter, options))
}

fn measure(team: &Team<'_>, reporter: &mut Reporter, options: &Locks) -> Outcome<()> {
    let window = team.job().allocate::<u64>(2)?;
    for &kind in &options.lock {
        let mut records = Vec::new();
        for origins in numbers(&options.origins, team.job().size() - 1) {
            records.extend(row(team, reporter, &window, (kind, origins), options)?);
        }
        reporter.group(&records, &["measure", "origins"])?;
    }
    window.free()?;
    Ok(())
}

/// Those that were asked for and exist: 1, 2, 4 ... and all, if nothing was asked for.
fn numbers(asked: &[u32], all: u32) -> Vec<u32> {
    let doubled = std::iter::successors(Some(1), |origins: &u32| origins.checked_mul(2));
    let mut numbers: Vec<u32> = match asked {
        [] => doubled.take_while(|&origins| origins < all).chain([all]).collect(),
        asked => asked.iter().map(|&origins| origins.min(all)).collect(),
    };
    numbers.dedup();
    numbers
}

fn row(
    team: &Team<'_>,
    reporter: &Reporter,
    window: &Window<u64>,
    (kind, origins): (LockKind, u32),
    options: &Locks,
) -> Outcome<Vec<Record>> {
    let job = team.job();
    let is_origin = job.rank() != TARGET && job.rank().0 <= origins;
    if kind == LockKind::Exclusive {
        exclude(team, window, origins, is_origin)?;
    }
    let mut rounds = Rounds::default();
    let mut waits = Distribution::new();
    let time = options.time / u32::try_from(options.rounds.rounds)?;
    // The first round warms up.
    for round in 0..=options.rounds.rounds {
        reset(job, window)?;
        let (mut epochs, mut took) = (0, Duration::ZERO);
        let mut own = Distribution::new();
        if is_origin {
            (epochs, took) = contend(window, kind.lock_type(), time, &mut own)?;
            if round > 0 {
                waits.add_all(&own);
            }
        }
        job.barrier()?;
        let said = team.gather(&[epochs as f64, took.as_secs_f64(), own.quantile_us(0.5)])?;
        if team.leads() {
            let counts: Vec<f64> = said[1..=origins as usize].iter().map(|said| said[0]).collect();
            let counted = window.local().get(EPOCHS as usize)?;
            if counted as f64 != counts.iter().sum::<f64>() {
                return Err(format!("{counted} epochs arrived, not {}", counts.iter().sum::<f64>()).into());
            }
            if round > 0 {
                rounds
                    .throughput
                    .push(said.iter().filter(|said| said[0] > 0.0).map(|said| said[0] / said[1]).sum());
                rounds.fairness.push(fairness(&counts));
                let medians = said.iter().map(|said| said[2]).filter(|median| median.is_finite());
                rounds.wait.push(medians.fold(0.0, f64::max));
            }
        }
    }
    let worst = team.gather(&[waits.quantile_us(0.99), waits.quantile_us(1.0)])?;
    let worst = |at: usize| worst.iter().map(|said| said[at]).fold(f64::NAN, f64::max);
    Ok(records(reporter, (kind, origins), rounds, (worst(0), worst(1))))
}

/// Proves that exclusive locks exclude: each origin reads the element, and writes it back one greater.
fn exclude(team: &Team<'_>, window: &Window<u64>, origins: u32, is_origin: bool) -> Outcome<()> {
    let job = team.job();
    reset(job, window)?;
    let turns = if is_origin { TURNS } else { 0 };
    for _ in 0..turns {
        window.lock(TARGET, LockType::Exclusive, |epoch| {
            let value = epoch.get_value(GUARDED)?;
            epoch.put_value(GUARDED, value + 1)
        })?;
    }
    job.barrier()?;
    let expected = u64::from(origins) * TURNS;
    if team.leads() && window.local().get(GUARDED as usize)? != expected {
        return Err("two origins held the exclusive lock at the same time".into());
    }
    job.barrier()?;
    Ok(())
}

fn reset(job: &Job, window: &Window<u64>) -> Outcome<()> {
    job.barrier()?;
    if job.rank() == TARGET {
        window.local().fill(0)?;
    }
    Ok(job.barrier()?)
}

/// Epochs until the time is over, each with one accumulate.
fn contend(
    window: &Window<u64>,
    lock_type: LockType,
    time: Duration,
    waits: &mut Distribution,
) -> Outcome<(u64, Duration)> {
    let (begun, mut epochs) = (Instant::now(), 0);
    loop {
        let epoch = Instant::now();
        window.lock(TARGET, lock_type, |epoch| epoch.accumulate(EPOCHS, &[1], ReduceOp::Sum))?;
        waits.add(u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX), 1);
        epochs += 1;
        if begun.elapsed() >= time {
            return Ok((epochs, begun.elapsed()));
        }
    }
}

/// Jain's index of what each origin got: 1 when all got as much, 1/N when one got everything.
fn fairness(counts: &[f64]) -> f64 {
    let sum: f64 = counts.iter().sum();
    let squares: f64 = counts.iter().map(|count| count * count).sum();
    sum * sum / (counts.len() as f64 * squares)
}

fn records(
    reporter: &Reporter,
    (kind, origins): (LockKind, u32),
    rounds: Rounds,
    (p99, most): (f64, f64),
) -> Vec<Record> {
    let key = |measure: &str| -> Map<String, Value> {
        session::key(json!({
            "benchmark": "locks", "lock": kind.name(), "measure": measure, "origins": origins,
        }))
    };
    let waits = json!({ "p99": rounded(p99), "max": rounded(most) });
    vec![
        reporter.record(key("throughput"), Unit::Operations, rounds.throughput, Value::Null),
        reporter.record(key("fairness"), Unit::Share, rounds.fairness, Value::Null),
        reporter.record(key("epoch"), Unit::Microseconds, rounds.wait, waits),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_when_all_get_as_much() {
        assert_eq!(fairness(&[5.0, 5.0, 5.0]), 1.0);
        assert_eq!(fairness(&[9.0, 0.0, 0.0]), 1.0 / 3.0);
    }

    #[test]
    fn numbers_of_origins_end_with_all() {
        assert_eq!(numbers(&[], 5), [1, 2, 4, 5]);
        assert_eq!(numbers(&[], 1), [1]);
        assert_eq!(numbers(&[2, 9, 9], 3), [2, 3]);
    }
}
