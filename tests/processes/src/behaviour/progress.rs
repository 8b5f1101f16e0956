//! Ranks that wait or compute serve others all the same.

use std::time::{Duration, Instant};

use rma::LockType::{Exclusive, Shared};
use rma::{Job, Rank, ReduceOp};

use super::behaviours;
use crate::failure::{holds, same, Outcome};
use crate::watchdog::at;
use crate::window::{barrier, Words};

behaviours![
    a_computing_target_is_served,
    a_rank_in_a_barrier_serves,
    a_flag_is_seen_by_loads,
    a_waiting_lock_keeps_serving,
    message_passing_by_puts,
];

/// Longest time that a loop of a body waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// Rank 0 makes no call of the library until all others are through.
///
/// Shows: rule: progress-passive, rule: passive-without-target, notes: agent as a thread, MPI-4.1 13.7.3.
fn a_computing_target_is_served(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    barrier(job)?;
    if job.rank() == Rank(0) {
        at("a loop without calls");
        let (started, mut sum) = (Instant::now(), 0u64);
        while window.own(0) < u64::from(job.size()) - 1 {
            sum = sum.wrapping_mul(31).wrapping_add(1);
            std::hint::black_box(sum);
            holds!(started.elapsed() < PATIENCE);
        }
    } else {
        window.lock(Exclusive, 0)?;
        window.accumulate(0, 1, &[3], ReduceOp::Sum)?;
        window.unlock(0)?;
        window.lock(Shared, 0)?;
        window.accumulate(0, 0, &[1], ReduceOp::Sum)?;
        window.unlock(0)?;
    }
    barrier(job)?;
    if job.rank() == Rank(0) {
        same!(window.own(1), 3 * (u64::from(job.size()) - 1));
    }
    Ok(window.free()?)
}

/// Shows: rule: progress-other-calls, MPI-4.1 13.7.3.
fn a_rank_in_a_barrier_serves(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    if job.rank() == Rank(0) {
        // The last of the others comes only after it was served.
        barrier(job)?;
    } else {
        for _ in 0..20 {
            window.lock(Exclusive, 0)?;
            window.accumulate(0, 0, &[1], ReduceOp::Sum)?;
            window.unlock(0)?;
        }
        barrier(job)?;
    }
    if job.rank() == Rank(0) {
        same!(window.own(0), 20 * (u64::from(job.size()) - 1));
    }
    Ok(window.free()?)
}

/// Data first, then the flag; who sees the flag sees the data.
///
/// Shows: rule: registers, rule: unified, rule: public-to-private, MPI-4.1 13.7.4.
fn a_flag_is_seen_by_loads(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    let next = (job.rank().0 + 1) % job.size();
    window.lock_all()?;
    for round in 1..20u64 {
        window.put(next, 0, &[round * 7])?;
        window.flush(next)?;
        window.accumulate(next, 1, &[round], ReduceOp::Replace)?;
        window.flush(next)?;
        at("a loop of loads");
        let started = Instant::now();
        while window.own(1) < round {
            std::thread::yield_now();
            holds!(started.elapsed() < PATIENCE);
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        same!(window.own(0), round * 7);
        barrier(job)?;
    }
    window.unlock_all()?;
    Ok(window.free()?)
}

/// Shows: rule: progress-other-calls, rule: lock-exclusive.
fn a_waiting_lock_keeps_serving(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    // Each holds its own lock while it asks for the next one's, except the last, who breaks the ring.
    let (own, next) = (job.rank().0, job.rank().0 + 1);
    for _ in 0..5 {
        window.lock(Exclusive, own)?;
        if next < job.size() {
            window.lock(Exclusive, next)?;
            window.accumulate(next, 0, &[1], ReduceOp::Sum)?;
            window.unlock(next)?;
        }
        window.unlock(own)?;
    }
    barrier(job)?;
    same!(window.own(0), if own == 0 { 0 } else { 5 });
    barrier(job)?;
    Ok(window.free()?)
}

/// A token goes around the ring by puts and loads alone.
///
/// Shows: rule: progress-passive, rule: flush-completes-both.
fn message_passing_by_puts(job: &Job) -> Outcome {
    const LAPS: u64 = 5;
    let window = Words::allocate(job, 1)?;
    let (own, size) = (u64::from(job.rank().0), u64::from(job.size()));
    window.lock_all()?;
    for lap in 0..LAPS {
        let token = lap * size + own;
        at("a loop of loads");
        // For each lap, as there may be more ranks than processors: a token that comes is none that is lost.
        let started = Instant::now();
        while token > 0 && window.own(0) < token {
            job.progress();
            if started.elapsed() >= PATIENCE {
                same!(window.own(0), token);
            }
        }
        let next = (job.rank().0 + 1) % job.size();
        window.accumulate(next, 0, &[token + 1], ReduceOp::Replace)?;
        window.flush(next)?;
    }
    window.unlock_all()?;
    barrier(job)?;
    let expected = if own == 0 { LAPS * size } else { (LAPS - 1) * size + own };
    same!(window.own(0), expected);
    barrier(job)?;
    Ok(window.free()?)
}
