//! `rma-bench threads`: what several threads of one rank reach together, on one window.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Barrier;
use std::time::Instant;

use rma::raw::RawWindow;
use rma::{Dtype, Rank, ReduceOp};
use rma_bench::record::{Record, Unit};
use serde_json::{json, Value};

use crate::cli::Threads;
use crate::session::{self, Reporter};
use crate::team::Team;
use crate::Outcome;

/// The rank whose threads measure, and the one that they access.
const ORIGIN: Rank = Rank(0);
const TARGET: Rank = Rank(1);

/// Operations that a thread puts between two flushes.
const PUTS: usize = 64;

/// What puts write: another value in each round. Static, as the fabric may still read it where a call fails.
static SOURCE: AtomicU64 = AtomicU64::new(0);

/// What each thread does that often, in a word of the window of its own.
type Operation = fn(&RawWindow, usize, usize) -> Result<(), rma::Error>;

/// The operations, and whether they count in the word or write it.
const OPERATIONS: [(&str, Operation, bool); 2] = [("put", put, false), ("fetch_and_op", fetch_and_op, true)];

/// Runs the command.
pub(crate) fn run(options: &Threads) -> Outcome<()> {
    session::run("threads", 2, &options.output, |team, reporter| measure(team, reporter, options))
}

fn measure(team: &Team<'_>, reporter: &mut Reporter, options: &Threads) -> Outcome<()> {
    let words = options.threads.iter().copied().max().ok_or("no number of threads")?;
    let window = RawWindow::allocate(team.job(), words * WORD, WORD as u32)?;
    let rows: Vec<(usize, usize)> = (0..OPERATIONS.len())
        .flat_map(|at| options.threads.iter().map(move |&threads| (at, threads)))
        .collect();
    let mut rates = vec![Vec::new(); rows.len()];
    // The first round warms up.
    for round in 0..=options.rounds.rounds {
        for step in 0..rows.len() {
            // Each round begins with another row, so that none always follows the same one.
            let index = (round + step) % rows.len();
            let rate = segment(team, &window, rows[index], options.iterations, round as u64 + 1)?;
            if round > 0 {
                rates[index].push(rate);
            }
        }
    }
    window.free()?;
    for (at, (name, ..)) in OPERATIONS.iter().enumerate() {
        let own = rows.iter().zip(&rates).filter(|((operation, _), _)| *operation == at);
        let record = |((_, threads), rates): (&(usize, usize), &Vec<f64>)| -> Record {
            let key = session::key(json!({
                "benchmark": "threads", "operation": name, "size": WORD, "threads": threads,
            }));
            reporter.record(key, Unit::Operations, rates.iter().copied(), Value::Null)
        };
        let records: Vec<Record> = own.map(record).collect();
        reporter.group(&records, &["threads"])?;
    }
    Ok(())
}

/// Operations a second of all threads together, whose effect at the target is checked. Collective; a number at the
/// origin only.
fn segment(
    team: &Team<'_>,
    window: &RawWindow,
    (at, threads): (usize, usize),
    iterations: usize,
    round: u64,
) -> Outcome<f64> {
    let (job, (name, operation, counts)) = (team.job(), OPERATIONS[at]);
    let mut rate = f64::NAN;
    if job.rank() == TARGET {
        (0..threads).for_each(|thread| word(window, thread).store(0, Ordering::SeqCst));
    }
    job.barrier()?;
    if job.rank() == ORIGIN {
        SOURCE.store(round, Ordering::SeqCst);
        window.lock_all(false)?;
        rate = (threads * iterations) as f64 / together(window, threads, iterations, operation)?;
        window.unlock_all()?;
    }
    // The others serve here.
    job.barrier()?;
    if job.rank() == TARGET {
        let expected = if counts { iterations as u64 } else { round };
        let is_wrong = |&thread: &usize| word(window, thread).load(Ordering::SeqCst) != expected;
        if let Some(thread) = (0..threads).find(is_wrong) {
            return Err(
                format!("{name} of thread {thread} of {threads} left another value than {expected}").into()
            );
        }
    }
    Ok(rate)
}

/// A thread's word in the own window.
fn word(window: &RawWindow, thread: usize) -> &AtomicU64 {
    let word = window.base().cast::<AtomicU64>().wrapping_add(thread);
    // SAFETY: the window has an aligned word for each thread, which others write whole.
    unsafe { &*word }
}

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
    for iteration in 1..=iterations {
        // SAFETY: the source lives for ever, and is changed only between epochs.
        unsafe { window.put(SOURCE.as_ptr().cast_const().cast(), WORD, TARGET, thread as u64) }?;
        if iteration % PUTS == 0 || iteration == iterations {
            window.flush(TARGET)?;
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
        unsafe { window.fetch_and_op(one, result, Dtype::U64, TARGET, thread as u64, ReduceOp::Sum) }?;
        if let Err(error) = window.flush(TARGET) {
            eprintln!("rma-bench: {error}");
            std::process::abort();
        }
    }
    Ok(())
}

/// Bytes of an operation.
const WORD: usize = size_of::<u64>();
