//! A target that sleeps outside of the library does not stall its origins: the agent serves them.

mod common;

use std::time::{Duration, Instant};

use common::*;
use rma::{Error, Job, LockType, Rank, ReduceOp, Window};

/// How long the target sleeps.
const SLEEP: Duration = Duration::from_secs(1);

/// Times that each operation is measured, with either kind of target.
const REPEATS: usize = 40;

/// What an operation may take longer with a sleeping target, if a thread serves it.
const FACTOR: f64 = 20.0;

/// The same where a tick of the signal's timer has to come first for each packet.
const FACTOR_SIGNAL: f64 = 200.0;

/// The whole measurement is repeated when the machine was busy with something else.
const TRIES: u32 = 3;

const OPERATIONS: [&str; 4] = ["put+flush", "get", "fetch_and_op", "lock-put-unlock"];

/// Median microseconds of each operation.
fn measure(window: &Window<u64>) -> Result<[f64; 4], Error> {
    let target = Rank(1);
    let mut medians = [0.0; 4];
    for (operation, median) in medians.iter_mut().enumerate() {
        let mut times = Vec::with_capacity(REPEATS);
        let mut timed = |body: &mut dyn FnMut() -> Result<(), Error>| {
            let begun = Instant::now();
            body()?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            Ok::<_, Error>(())
        };
        for round in 0..REPEATS as u64 {
            match operation {
                3 => timed(&mut || window.lock(target, LockType::Exclusive, |epoch| epoch.put(1, &[7])))?,
                _ => window.lock_all(|epoch| {
                    // The first operation of an epoch takes the lock, which is not what is measured.
                    epoch.get_value(target, 0)?;
                    timed(&mut || match operation {
                        0 => epoch.put_value(target, 0, round),
                        1 => epoch.get_value(target, 0).map(drop),
                        _ => epoch.fetch_and_op(target, 0, 1, ReduceOp::Sum).map(drop),
                    })
                })?,
            }
        }
        times.sort_by(f64::total_cmp);
        *median = times[REPEATS / 2];
    }
    Ok(medians)
}

/// The target's part of one measurement: polls until the origin says that it is done, or sleeps.
fn serve(job: &Job, done: &Window<u64>, round: u64, sleeps: bool) -> Result<(), Error> {
    if sleeps {
        std::thread::sleep(SLEEP);
    }
    while done.local().get(0)? < round {
        if job.progress() == 0 {
            std::thread::yield_now();
        }
    }
    Ok(())
}

/// Shows: notes: agent as a thread, MPI-4.1 13.7.3.
#[test]
fn a_sleeping_target_does_not_stall_its_origins() {
    let name = "a_sleeping_target_does_not_stall_its_origins";
    ranks_with(name, 2, &[("RMA_PROGRESS", "thread")], |job| compare(job, FACTOR));
}

/// Shows: notes: agent as a signal, MPI-4.1 13.7.3.
#[test]
fn a_sleeping_target_is_served_by_signals() {
    let name = "a_sleeping_target_is_served_by_signals";
    ranks_with(name, 2, &[("RMA_PROGRESS", "signal")], |job| compare(job, FACTOR_SIGNAL));
}

/// Shows: notes: agent as a process, MPI-4.1 13.7.3.
#[test]
fn a_sleeping_target_is_served_by_its_ghost() {
    let name = "a_sleeping_target_is_served_by_its_ghost";
    ranks_with(name, 2, &[("RMA_PROGRESS", "ghost")], |job| compare(job, FACTOR));
}

/// Without a driver the origin waits until the target is back: what the others are compared with.
#[test]
fn without_a_driver_a_sleeping_target_serves_nobody() {
    let name = "without_a_driver_a_sleeping_target_serves_nobody";
    ranks_with(name, 2, &[("RMA_PROGRESS", "none")], |job| {
        let (window, done) = (job.allocate::<u64>(2)?, job.allocate::<u64>(2)?);
        job.barrier()?;
        if job.rank() == Rank(0) {
            // Lets the target fall asleep: what it did not take before, it takes after.
            std::thread::sleep(SLEEP / 10);
            let begun = Instant::now();
            window.lock(Rank(1), LockType::Exclusive, |epoch| epoch.put(1, &[7]))?;
            let took = begun.elapsed();
            assert!(took > SLEEP / 2, "{took:?}");
            done.lock_all(|epoch| epoch.put_value(Rank(1), 0, 1))?;
        } else {
            serve(job, &done, 1, true)?;
        }
        job.barrier()?;
        done.free()?;
        window.free().map(drop)
    });
}

/// Measures every operation with a target that polls and one that sleeps.
fn compare(job: &Job, factor: f64) -> Result<(), Error> {
    let (window, done) = (job.allocate::<u64>(2)?, job.allocate::<u64>(2)?);
    let mut round = 0;
    let mut last_word = String::new();
    let mut is_fine = false;
    for _ in 0..TRIES {
        let mut medians = [[0.0; 4]; 2];
        let mut in_time = true;
        for (sleeps, medians) in [false, true].into_iter().zip(&mut medians) {
            round += 1;
            job.barrier()?;
            if job.rank() == Rank(0) {
                let begun = Instant::now();
                *medians = measure(&window)?;
                in_time &= begun.elapsed() < SLEEP;
                done.lock_all(|epoch| epoch.put_value(Rank(1), 0, round))?;
            } else {
                serve(job, &done, round, sleeps)?;
            }
        }
        let ratios: Vec<f64> = (0..4).map(|index| medians[1][index] / medians[0][index]).collect();
        last_word = format!("{OPERATIONS:?}: polling and sleeping {medians:.1?} us, ratios {ratios:.1?}");
        if job.rank() == Rank(0) {
            println!("{last_word}");
            is_fine = in_time && ratios.iter().all(|ratio| *ratio <= factor);
            done.lock_all(|epoch| epoch.put_value(Rank(1), 1, u64::from(is_fine)))?;
        }
        job.barrier()?;
        // Both ranks decide alike: the origin has told.
        is_fine |= done.local().get(1)? == 1;
        if is_fine {
            break;
        }
    }
    assert!(is_fine, "{TRIES} times in a row: {last_word}");
    done.free()?;
    window.free().map(drop)
}
