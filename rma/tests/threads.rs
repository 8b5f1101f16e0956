//! Several threads of each rank at once, over real providers.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

use common::*;
use rma::raw::RawWindow;
use rma::{Dtype, Error, FenceAssert, LockType, Rank, ReduceOp, RmaError, Rule};

/// Threads of a rank.
const THREADS: usize = 4;

/// Operations of each.
const OPERATIONS: u64 = 100;

/// Epochs of each where elements are few: every one of them waits for the others.
const LOCKS: u64 = 30;

const OPEN: FenceAssert = FenceAssert { no_precede: true, no_succeed: false, no_store: false, no_put: false };
const CLOSE: FenceAssert =
    FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

static ONE: u64 = 1;

/// Adds 1 to a word of the target.
fn add(window: &RawWindow, target: Rank, disp: u64) -> Result<(), Error> {
    let origin = std::ptr::from_ref(&ONE).cast();
    // SAFETY: the origin lives for ever.
    unsafe { window.accumulate(origin, 1, Dtype::U64, target, disp, ReduceOp::Sum) }
}

/// Adds 1 and returns what was there.
fn ticket(window: &RawWindow, target: Rank, disp: u64) -> Result<u64, Error> {
    let (origin, mut old) = (std::ptr::from_ref(&ONE).cast(), u64::MAX);
    let result = std::ptr::from_mut(&mut old).cast();
    // SAFETY: the origin lives for ever, and `old` until the flush has succeeded or the test has failed.
    unsafe { window.fetch_and_op(origin, result, Dtype::U64, target, disp, ReduceOp::Sum) }.unwrap();
    window.flush(target).unwrap();
    Ok(old)
}

/// A word of the own window.
fn own(window: &RawWindow, disp: usize) -> u64 {
    assert!(disp < window.len() / 8);
    // SAFETY: inside of the window and aligned; what others do to it meanwhile is atomic.
    let word = unsafe { &*window.base().cast::<AtomicU64>().wrapping_add(disp) };
    word.load(Ordering::SeqCst)
}

/// Runs `body` in each thread; `body` gets the thread's number.
fn together(body: impl Fn(usize) -> Result<(), Error> + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let body = &body;
            scope.spawn(move || body(thread).unwrap());
        }
    });
}

/// Every ticket of both counters is given once, whatever threads of whatever rank ask at the same time.
///
/// Shows: MPI_Fetch_and_op, MPI-4.1 13.7.1, seed: PUT/GET/ACC + PUT/GET/ACC.
#[test]
fn tickets_are_given_once() {
    ranks("tickets_are_given_once", 2, |job| {
        let window = RawWindow::allocate(job, 64, 8)?;
        let mine = Mutex::new(Vec::new());
        window.lock_all(false)?;
        together(|thread| {
            for _ in 0..OPERATIONS {
                let ticket = ticket(&window, Rank(thread as u32 % 2), 0)?;
                mine.lock().unwrap().push((thread as u32 % 2, ticket));
            }
            Ok(())
        });
        window.unlock_all()?;
        job.barrier()?;
        assert_eq!(own(&window, 0), THREADS as u64 * OPERATIONS);
        let mut mine = mine.into_inner().unwrap();
        let all = mine.len();
        mine.sort_unstable();
        mine.dedup();
        assert_eq!(mine.len(), all, "a ticket was given twice");
        job.barrier()?;
        window.free()
    });
}

/// Threads post while one of them fences; at the end nothing is missing.
///
/// Shows: MPI_Win_fence, MPI-4.1 13.5.1, seed: PUT/GET/ACC + WIN_FENCE.
#[test]
fn threads_post_while_one_fences() {
    ranks("threads_post_while_one_fences", 2, |job| {
        let window = RawWindow::allocate(job, 64, 8)?;
        let target = Rank(1 - job.rank().0);
        let meet = Barrier::new(THREADS);
        together(|thread| {
            if thread == 0 {
                window.fence(OPEN)?;
            }
            meet.wait();
            for _ in 0..OPERATIONS {
                match thread {
                    0 => {}
                    _ => add(&window, target, thread as u64)?,
                }
            }
            if thread == 0 {
                (0..5).try_for_each(|_| window.fence(FenceAssert::default()))?;
            }
            meet.wait();
            Ok(())
        });
        window.fence(CLOSE)?;
        for thread in 1..THREADS {
            assert_eq!(own(&window, thread), OPERATIONS);
        }
        job.barrier()?;
        window.free()
    });
}

/// Threads flush in every way while others post and flush.
///
/// Shows: MPI_Win_flush, MPI_Win_flush_all, MPI_Win_flush_local, MPI_Win_flush_local_all, MPI-4.1 13.5.4, ours: flush_targets, seed: PUT/GET/ACC + WIN_FLUSH, seed: WIN_FLUSH + WIN_FLUSH.
#[test]
fn threads_flush_while_others_post_and_flush() {
    ranks("threads_flush_while_others_post_and_flush", 2, |job| {
        let window = RawWindow::allocate(job, 64, 8)?;
        let target = Rank(1 - job.rank().0);
        window.lock_all(false)?;
        together(|thread| {
            for round in 0..OPERATIONS as usize {
                add(&window, target, thread as u64)?;
                match (thread + round) % (THREADS + 1) {
                    0 => window.flush(target)?,
                    1 => window.flush_all()?,
                    2 => window.flush_targets(&[Rank(0), Rank(1)])?,
                    3 => window.flush_local(target)?,
                    _ => window.flush_local_all()?,
                }
            }
            Ok(())
        });
        window.unlock_all()?;
        job.barrier()?;
        assert!((0..THREADS).all(|thread| own(&window, thread) == OPERATIONS));
        job.barrier()?;
        window.free()
    });
}

/// While a thread waits in a barrier, asleep or not, the operations of another one go on: it neither keeps the guard
/// nor what the other one waits for. The barrier cannot end before: the rank that is missing waits for the last of
/// these operations. That nobody sleeps longer than he must is looked at in every interleaving (`interleavings`).
///
/// Shows: MPI-4.1 13.7.3.
#[test]
fn a_waiting_thread_keeps_no_other_from_going_on() {
    ranks("a_waiting_thread_keeps_no_other_from_going_on", 2, |job| {
        let window = RawWindow::allocate(job, 64, 8)?;
        if job.rank() == Rank(1) {
            // Enters the barrier that rank 0's other thread waits in when rank 0's operations are done.
            while own(&window, 1) == 0 {
                job.progress();
                std::thread::yield_now();
            }
            assert_eq!(own(&window, 0), 10 * OPERATIONS);
            job.barrier()?;
        } else {
            window.lock_all(false)?;
            let is_over = AtomicBool::new(false);
            let sent = || job.counters().packets_sent.iter().sum::<u64>();
            let before = sent();
            let was_over = std::thread::scope(|scope| {
                scope.spawn(|| {
                    job.barrier().unwrap();
                    is_over.store(true, Ordering::SeqCst);
                });
                // The barrier has begun when its first packet has left.
                while sent() == before {
                    std::thread::yield_now();
                }
                let begun = Instant::now();
                for _ in 0..10 * OPERATIONS {
                    ticket(&window, Rank(1), 0).unwrap();
                }
                println!("beside a waiting thread {:?}", begun.elapsed());
                let was_over = is_over.load(Ordering::SeqCst);
                ticket(&window, Rank(1), 1).unwrap();
                was_over
            });
            window.unlock_all()?;
            assert!(!was_over, "a barrier ended that a rank had not come to");
        }
        job.barrier()?;
        window.free()
    });
}

/// Two threads unlock what was locked once: one is told so, again and again, and the window stays good.
///
/// Shows: MPI_Win_unlock, MPI_ERR_RMA_SYNC, MPI-4.1 13.5.3.
#[test]
fn of_two_unlocks_one_is_refused() {
    ranks("of_two_unlocks_one_is_refused", 2, |job| {
        let window = RawWindow::allocate(job, 64, 8)?;
        let target = Rank(1 - job.rank().0);
        for round in 0..50 {
            window.lock(LockType::Exclusive, target, false)?;
            add(&window, target, 0)?;
            let unlock = || window.unlock(target);
            let outcomes = std::thread::scope(|scope| {
                let other = scope.spawn(unlock);
                [unlock(), other.join().unwrap()]
            });
            let refused: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
            assert_eq!(refused.len(), 1, "round {round}");
            assert!(
                matches!(
                    refused[0].rma(),
                    Some(RmaError::Epoch { rule: Rule::Busy | Rule::NoSuchEpoch, .. })
                ),
                "{}",
                refused[0]
            );
        }
        job.barrier()?;
        assert_eq!(own(&window, 0), 50);
        job.barrier()?;
        window.free()
    });
}

/// Threads lock a rank each, and there are fewer elements than threads: each lock stands until its unlock, whatever the
/// other threads lock and unlock meanwhile, and each thread gets its turn.
///
/// Shows: MPI_Win_lock, MPI_Win_unlock, rule: lock-several, seed: RESTORE_TARGET_ELEM_RESOURCES.
#[test]
fn locks_of_threads_with_few_elements() {
    let few = [("RMA_TARGET_POOL", "1"), ("RMA_TARGET_POOL_GLOBAL", "0")];
    ranks_with("locks_of_threads_with_few_elements", 1 + THREADS as u32, &few, |job| {
        let window = RawWindow::allocate(job, 64, 8)?;
        if job.rank() == Rank(0) {
            together(|thread| {
                let target = Rank(1 + thread as u32);
                for round in 0..LOCKS {
                    window.lock(LockType::Exclusive, target, false)?;
                    add(&window, target, 0)?;
                    if round % 3 == 0 {
                        window.flush(target)?;
                        add(&window, target, 1)?;
                    }
                    window.unlock(target)?;
                }
                Ok(())
            });
        }
        job.barrier()?;
        let expected = if job.rank() == Rank(0) { [0, 0] } else { [LOCKS, LOCKS.div_ceil(3)] };
        assert_eq!([own(&window, 0), own(&window, 1)], expected);
        job.barrier()?;
        window.free()
    });
}

/// At one rank a thread frees a window while another makes one, at the other the one comes before the other: these are calls
/// on two things, which have no order between them.
///
/// Shows: MPI_Win_free, MPI_Win_allocate, MPI-4.1 11.6.2.
#[test]
fn a_window_is_freed_while_another_is_made() {
    ranks("a_window_is_freed_while_another_is_made", 2, |job| {
        for round in 0..40 {
            let old = RawWindow::allocate(job, 64, 8)?;
            let new = if u64::from(job.rank().0) == round % 2 {
                old.free()?;
                RawWindow::allocate(job, 64, 8)?
            } else {
                std::thread::scope(|scope| {
                    let freed = scope.spawn(|| old.free());
                    let made = RawWindow::allocate(job, 64, 8);
                    freed.join().unwrap()?;
                    made
                })?
            };
            new.fence(OPEN)?;
            add(&new, Rank(1 - job.rank().0), 0)?;
            new.fence(CLOSE)?;
            assert_eq!(own(&new, 0), 1, "round {round}");
            new.free()?;
        }
        Ok(())
    });
}
