//! `rma-bench agent`: what an origin sees of a target that is inside of the library, computes, or sleeps, with
//! the progress driver that RMA_PROGRESS chooses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rma::raw::RawWindow;
use rma::{Job, LockType, Rank};
use rma_bench::table::{Cell, Table};

use crate::cli::Agent;
use crate::{job, Outcome};

/// What the target does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Polls,
    Computes,
    Sleeps,
}

impl Target {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Polls, "polls"), (Self::Computes, "computes"), (Self::Sleeps, "sleeps")];
}

/// How long a target is away from the library between two calls.
const AWAY: Duration = Duration::from_millis(20);

/// Runs the command.
pub(crate) fn run(options: &Agent) -> Outcome<()> {
    let job = job::join(options.provider.as_deref())?;
    let outcome = measure(&job, options.iterations);
    job::leave(job, outcome)
}

fn measure(job: &Job, iterations: usize) -> Outcome<()> {
    if job.size() != 2 {
        return Err("agent needs two ranks: rmarun -n 2 rma-bench agent".into());
    }
    let (window, flag) = (RawWindow::allocate(job, 64, 8)?, RawWindow::allocate(job, 8, 8)?);
    let mut table = Table::new(&["target", "median us", "90 % us", "target's time for its work, us"]);
    for (round, (target, name)) in (1u64..).zip(Target::ALL) {
        job.barrier()?;
        if job.rank() == Rank(0) {
            let times = epochs(&window, iterations)?;
            put(&flag, round)?;
            let at = |share: usize| Cell::decimal(times[times.len() * share / 100], 1);
            job.barrier()?;
            let work = value(&flag);
            table.row(vec![Cell::from(name), at(50), at(90), Cell::decimal(f64::from_bits(work), 1)]);
        } else {
            let work = serve(job, &flag, round, target);
            flag.lock(LockType::Exclusive, Rank(0), false)?;
            // SAFETY: the word lives until unlock.
            unsafe { flag.put(std::ptr::from_ref(&work.to_bits()).cast(), 8, Rank(0), 0) }?;
            flag.unlock(Rank(0))?;
            job.barrier()?;
        }
    }
    if job.rank() == Rank(0) {
        let driver = std::env::var("RMA_PROGRESS").unwrap_or_else(|_| "auto".to_owned());
        println!("lock, put of 8 bytes, unlock; RMA_PROGRESS={driver}, {}", job.provider().provider);
        print!("{table}");
    }
    flag.free()?;
    window.free()?;
    Ok(())
}

/// Sorted times of epochs, microseconds.
fn epochs(window: &RawWindow, iterations: usize) -> Outcome<Vec<f64>> {
    let mut times = Vec::with_capacity(iterations);
    for round in 0..iterations as u64 {
        let begun = Instant::now();
        put(window, round)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// An epoch with one put to rank 1.
fn put(window: &RawWindow, value: u64) -> Outcome<()> {
    window.lock(LockType::Exclusive, Rank(1), false)?;
    // SAFETY: eight bytes are copied by the call, or live until unlock has completed the operation.
    unsafe { window.put(std::ptr::from_ref(&value).cast(), 8, Rank(1), 0) }?;
    Ok(window.unlock(Rank(1))?)
}

/// The first word of the own window.
fn value(window: &RawWindow) -> u64 {
    // SAFETY: the window has at least a word, which others write whole.
    unsafe { &*window.base().cast::<AtomicU64>() }.load(Ordering::SeqCst)
}

/// Does what the target does until the origin is done. The median time of a piece of work that takes about
/// 100 us: what the driver costs the program.
fn serve(job: &Job, flag: &RawWindow, round: u64, target: Target) -> f64 {
    let mut pieces = Vec::with_capacity(1 << 16);
    while value(flag) < round {
        let away = Instant::now();
        match target {
            Target::Polls => {}
            Target::Sleeps => std::thread::sleep(AWAY),
            Target::Computes => {
                while away.elapsed() < AWAY && value(flag) < round {
                    let begun = Instant::now();
                    work();
                    if pieces.len() < pieces.capacity() {
                        pieces.push(begun.elapsed().as_secs_f64() * 1e6);
                    }
                }
            }
        }
        if job.progress() == 0 && target == Target::Polls {
            std::thread::yield_now();
        }
    }
    pieces.sort_by(f64::total_cmp);
    pieces.iter().sum::<f64>() / pieces.len() as f64
}

fn work() {
    let mut state = 1u64;
    for _ in 0..100_000 {
        state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
