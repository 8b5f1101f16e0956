//! `rma-bench windows`: what making, first touching and freeing a window costs.

use std::time::Instant;

use rma::{LockType, Rank};
use rma_bench::record::{Record, Unit};
use serde_json::json;

use crate::cli::Windows;
use crate::ground::{Ground, Operation, Room, WindowKind};
use crate::pattern::{Part, Pattern};
use crate::session::{self, Reporter};
use crate::team::Team;
use crate::Outcome;

/// What is timed, in this order, in each round.
const STEPS: [&str; 6] = ["create", "first put", "next put", "first touch", "next touch", "free"];

/// Bytes between two stores of a touch.
const PAGE: usize = 4096;

/// Runs the command.
pub(crate) fn run(options: &Windows) -> Outcome<()> {
    session::run("windows", 2, &options.output, |team, reporter| measure(team, reporter, options))
}

fn measure(team: &Team<'_>, reporter: &mut Reporter, options: &Windows) -> Outcome<()> {
    for &kind in &options.window {
        let mut records = Vec::new();
        for size in options.sizes.all() {
            let mut times = vec![Vec::with_capacity(options.rounds.rounds); STEPS.len()];
            // The first round warms up.
            for round in 0..=options.rounds.rounds {
                let steps = life(team, kind, size)?;
                let said = team.gather(&steps)?;
                if round == 0 {
                    continue;
                }
                for (at, times) in times.iter_mut().enumerate() {
                    // Calls that all ranks make are over when the last has returned.
                    times.push(said.iter().map(|said| said[at]).fold(f64::NAN, f64::max));
                }
            }
            let measured =
                STEPS.iter().zip(times).filter(|(_, times)| times.iter().any(|time| time.is_finite()));
            records.extend(measured.map(|(step, times)| -> Record {
                let key = session::key(json!({
                    "benchmark": "windows", "window": kind.name(), "step": step, "size": size,
                }));
                reporter.record(key, Unit::Microseconds, times, json!({}))
            }));
        }
        reporter.group(&records, &["size", "step"])?;
    }
    Ok(())
}

/// Microseconds of each step at this rank; `NaN` where it does not take part.
fn life(team: &Team<'_>, kind: WindowKind, size: usize) -> Outcome<[f64; STEPS.len()]> {
    let job = team.job();
    let part = Part::new(Pattern::Exchange, job.rank(), job.size(), 1);
    let room = Room { kind, pattern: Pattern::Exchange, pairs: 1, size_max: WORD, bytes_max: size.max(WORD) };
    let mut times = [f64::NAN; STEPS.len()];
    job.barrier()?;
    let mut ground = Ground::new(team, &part, &room)?;
    times[0] = ground.creation.as_secs_f64() * 1e6;
    job.barrier()?;
    if job.rank() == Rank(0) {
        for time in &mut times[1..=2] {
            *time = put(&mut ground)?;
        }
    }
    job.barrier()?;
    if job.rank() == Rank(0) && kind != WindowKind::Dynamic {
        for time in &mut times[3..=4] {
            *time = touch(&ground);
        }
    }
    job.barrier()?;
    times[5] = ground.free()?.as_secs_f64() * 1e6;
    Ok(times)
}

/// A lock epoch with a put of a word, which is then proved to be there.
fn put(ground: &mut Ground) -> Outcome<f64> {
    ground.begin(Operation::Put, WORD, 1)?;
    let Some(&(target, _)) = ground.partners.first() else { return Ok(f64::NAN) };
    let begun = Instant::now();
    ground.window.lock(LockType::Exclusive, target, false)?;
    ground.next_epoch();
    ground.issue_all(Operation::Put)?;
    ground.window.unlock(target)?;
    let time = microseconds(begun);
    ground.check(Operation::Put)?;
    Ok(time)
}

/// Stores to each page of the own window.
fn touch(ground: &Ground) -> f64 {
    let begun = Instant::now();
    for offset in (0..ground.window.len()).step_by(PAGE) {
        let byte = ground.window.base().wrapping_add(offset);
        // SAFETY: the byte is inside of the window, and nobody else accesses this window now.
        unsafe { byte.write_volatile(1) };
    }
    microseconds(begun)
}

fn microseconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e6
}

/// Bytes of a put.
const WORD: usize = 8;
