//! `rma-bench threads`: what several threads of one rank reach together.

use std::sync::Barrier;
use std::time::Instant;

use rma::raw::RawWindow;
use rma::{Dtype, Job, Rank, ReduceOp};
use rma_bench::table::{Cell, Table};

use crate::cli::Threads;
use crate::{job, Outcome};

/// Operations that a thread puts between two flushes.
const PUTS: usize = 64;

/// Runs the command.
pub(crate) fn run(options: &Threads) -> Outcome<()> {
    let job = job::join(options.provider.as_deref())?;
    let outcome = measure(&job, options);
    job::leave(job, outcome)
}

fn measure(job: &Job, options: &Threads) -> Outcome<()> {
    if job.size() < 2 {
        return Err("threads needs two ranks: rmarun -n 2 rma-bench threads".into());
    }
    let window = RawWindow::allocate(job, 4096, 8)?;
    let mut table = Table::new(&["threads", "puts a second", "fetch_and_op a second"]);
    for &threads in &options.threads {
        job.barrier()?;
        if job.rank() == Rank(0) {
            window.lock_all(false)?;
            let mut cells = vec![Cell::decimal(threads as f64, 0)];
            for operation in [put as Operation, fetch_and_op] {
                together(&window, threads, options.iterations / 10, operation)?;
                let seconds = together(&window, threads, options.iterations, operation)?;
                cells.push(Cell::decimal((threads * options.iterations) as f64 / seconds, 0));
            }
            window.unlock_all()?;
            table.row(cells);
        }
        // The others serve here.
        job.barrier()?;
    }
    if job.rank() == Rank(0) {
        println!(
            "8 bytes to rank 1, {} iterations a thread, over {}",
            options.iterations,
            job.provider().provider
        );
        print!("{table}");
    }
    window.free()?;
    Ok(())
}

/// What each thread does that often, in a part of the window of its own.
type Operation = fn(&RawWindow, usize, usize) -> Result<(), rma::Error>;

/// Seconds until all threads are done.
fn together(window: &RawWindow, threads: usize, iterations: usize, operation: Operation) -> Outcome<f64> {
    let start = Barrier::new(threads + 1);
    let (begun, outcomes) = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    operation(window, thread, iterations)
                })
            })
            .collect();
        start.wait();
        let begun = Instant::now();
        let outcomes: Vec<_> = started.into_iter().map(|thread| thread.join()).collect();
        (begun, outcomes)
    });
    for outcome in outcomes {
        outcome.map_err(|_| "a thread has panicked")??;
    }
    Ok(begun.elapsed().as_secs_f64())
}

fn put(window: &RawWindow, thread: usize, iterations: usize) -> Result<(), rma::Error> {
    static SOURCE: u64 = 1;
    for iteration in 1..=iterations {
        // SAFETY: the source lives for ever.
        unsafe { window.put(std::ptr::from_ref(&SOURCE).cast(), 8, Rank(1), thread as u64) }?;
        if iteration % PUTS == 0 || iteration == iterations {
            window.flush(Rank(1))?;
        }
    }
    Ok(())
}

fn fetch_and_op(window: &RawWindow, thread: usize, iterations: usize) -> Result<(), rma::Error> {
    static ONE: u64 = 1;
    for _ in 0..iterations {
        let mut old = 0u64;
        let (one, result) = (std::ptr::from_ref(&ONE).cast(), std::ptr::from_mut(&mut old).cast());
        // SAFETY: `one` lives for ever, and `old` until the flush: where that fails, the process ends without
        // making progress again in this thread, and aborts before its stack goes.
        unsafe { window.fetch_and_op(one, result, Dtype::U64, Rank(1), thread as u64, ReduceOp::Sum) }?;
        if let Err(error) = window.flush(Rank(1)) {
            eprintln!("rma-bench: {error}");
            std::process::abort();
        }
    }
    Ok(())
}
