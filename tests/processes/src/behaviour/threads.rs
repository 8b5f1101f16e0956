//! Several threads of every rank, and memory that ranks share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::thread;

use rma::raw::RawWindow;
use rma::{Error, FenceAssert, Job, LockType, Rank, ReduceOp, WindowOptions};

use super::behaviours;
use crate::failure::{holds, same, Failure, Outcome};
use crate::watchdog::at;
use crate::window::{barrier, Words};

behaviours![
    threads_draw_tickets,
    threads_have_windows_of_their_own,
    a_thread_waits_while_others_work,
    shared_memory_is_stored_to_and_put_to,
];

const THREADS: u64 = 3;

/// Runs `body` in each thread of this rank, and gives their first error back.
fn together(body: impl Fn(u64) -> Result<(), Error> + Sync) -> Outcome {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| (thread, &body)).collect();
        let threads: Vec<_> =
            threads.into_iter().map(|(thread, body)| scope.spawn(move || body(thread))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(outcome) => Ok(outcome?),
            Err(_) => Err(Failure::new("a thread has panicked".to_owned())),
        })
    })
}

/// Adds 1 to the word of a target, and returns what was there.
fn ticket(window: &RawWindow, target: Rank) -> Result<u64, Error> {
    static ONE: u64 = 1;
    let old = Box::leak(Box::new(u64::MAX));
    let result: *mut u64 = old;
    let (origin, dtype) = (std::ptr::from_ref(&ONE).cast(), rma::Dtype::U64);
    // SAFETY: both are there until the flush has completed the operation, and the result is looked at after it.
    unsafe { window.fetch_and_op(origin, result.cast(), dtype, target, 0, ReduceOp::Sum) }?;
    window.flush(target)?;
    // SAFETY: leaked above and taken back once; the operation is complete, so that nobody writes.
    Ok(*unsafe { Box::from_raw(result) })
}

/// Shows: MPI_Fetch_and_op, MPI-4.1 13.7.1, seed: PUT/GET/ACC + PUT/GET/ACC, seed: WIN_FLUSH + WIN_FLUSH.
fn threads_draw_tickets(job: &Job) -> Outcome {
    const EACH: u64 = 25;
    let window = RawWindow::allocate(job, 8, 8)?;
    at("lock_all");
    window.lock_all(false)?;
    let drawn = Mutex::new(Vec::new());
    at("tickets of threads");
    together(|_| {
        for _ in 0..EACH {
            let ticket = ticket(&window, Rank(0))?;
            drawn.lock().map(|mut drawn| drawn.push(ticket)).unwrap_or(());
        }
        Ok(())
    })?;
    at("unlock_all");
    window.unlock_all()?;
    let mut drawn = drawn.into_inner().unwrap_or_default();
    drawn.sort_unstable();
    drawn.dedup();
    same!(drawn.len() as u64, THREADS * EACH);
    barrier(job)?;
    let window = Words::of(window);
    if job.rank() == Rank(0) {
        same!(window.own(0), u64::from(job.size()) * THREADS * EACH);
    }
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: MPI_Win_lock, MPI_Win_lock_all, MPI_Win_unlock, MPI-4.1 13.5.3.
fn threads_have_windows_of_their_own(job: &Job) -> Outcome {
    const ROUNDS: u64 = 20;
    let windows = (0..THREADS).map(|_| job.allocate::<u64>(2)).collect::<Result<Vec<_>, _>>()?;
    let windows: Vec<_> = windows.into_iter().map(|window| Mutex::new(Some(window))).collect();
    at("windows of threads");
    together(|thread| {
        let Some(window) = windows[thread as usize].lock().ok().and_then(|mut window| window.take()) else {
            return Ok(());
        };
        for round in 0..ROUNDS {
            let target = Rank((job.rank().0 + round as u32) % job.size());
            window.lock(target, LockType::Exclusive, |epoch| {
                let before = epoch.get_value(0)?;
                epoch.put_value(0, before + 1)
            })?;
            window.lock_all(|epoch| epoch.fetch_and_op(target, 1, 1, ReduceOp::Sum).map(drop))?;
        }
        if let Ok(mut place) = windows[thread as usize].lock() {
            *place = Some(window);
        }
        Ok(())
    })?;
    barrier(job)?;
    for window in windows {
        let Ok(Some(window)) = window.into_inner() else {
            return Err(Failure::new("a thread has lost its window".to_owned()));
        };
        same!(window.local().to_vec()?, [ROUNDS; 2]);
        barrier(job)?;
        window.free()?;
    }
    Ok(())
}

/// A thread waits in a barrier that the other ranks enter only when this rank's other threads have worked.
///
/// Shows: MPI-4.1 13.7.3, rule: progress-other-calls.
fn a_thread_waits_while_others_work(job: &Job) -> Outcome {
    let window = RawWindow::allocate(job, 8, 8)?;
    at("lock_all");
    window.lock_all(false)?;
    at("work of threads beside a barrier");
    if job.rank() == Rank(0) {
        let work = THREADS as usize - 1;
        together(|thread| match thread {
            0 => job.barrier(),
            _ => (0..job.size()).map(Rank).try_for_each(|target| ticket(&window, target).map(drop)),
        })?;
        same!(work, 2);
    } else {
        // SAFETY: the window's only word, aligned; others change it atomically.
        let word = unsafe { AtomicU64::from_ptr(window.base().cast()) };
        while word.load(Ordering::Acquire) < THREADS - 1 {
            job.progress();
        }
        job.barrier()?;
    }
    at("unlock_all");
    window.unlock_all()?;
    barrier(job)?;
    window.free()?;
    Ok(())
}

/// Shows: MPI_Win_allocate_shared, MPI_Win_shared_query, rule: loads-in-epochs, MPI-4.1 13.2.3.
fn shared_memory_is_stored_to_and_put_to(job: &Job) -> Outcome {
    let (own, next) = (u64::from(job.rank().0), Rank((job.rank().0 + 1) % job.size()));
    let previous = u64::from((job.rank().0 + job.size() - 1) % job.size());
    // The same among the ranks of this host.
    let here = job.local_ranks().unwrap_or_default();
    let index = here.iter().position(|rank| *rank == job.rank());
    holds!(index.is_some());
    let at_index = |index: usize| here[index % here.len()];
    let (neighbour, other) =
        index.map_or((next, next), |index| (at_index(index + 1), at_index(index + here.len() - 1)));
    at("allocate_shared");
    let window = Words::of(RawWindow::allocate_shared(job, 32, 8, &WindowOptions::default())?);
    let part = window.raw().shared_query(neighbour)?;
    same!(part.len, 32);
    holds!(!part.base.is_null());
    // Of other hosts there is nothing to be loaded and stored.
    let is_reached = !window.raw().shared_query(next)?.base.is_null();
    same!(is_reached, here.contains(&next));
    for round in 1..20u64 {
        window.fence_with(FenceAssert::default())?;
        window.put(next.0, 1, &[round * 10 + own])?;
        let word = part.base.cast::<u64>();
        // SAFETY: the neighbour's first word, aligned; only this rank stores to it, and its owner reads after a fence.
        unsafe { word.write_volatile(round + own) };
        window.fence_with(FenceAssert::default())?;
        same!([window.own(0), window.own(1)], [round + u64::from(other.0), round * 10 + previous]);
    }
    window.fence_end()?;
    Ok(window.free()?)
}
