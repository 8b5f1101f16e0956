//! Calls that take longer than `RMA_TIMEOUT`: the program gets an error, and may go on.

mod common;

use common::*;
use rma::raw::RawWindow;
use rma::{
    Call, Error, Job, LockType, PostAssert, Rank, ReduceOp, RmaError, Rule, StartAssert, Window,
    WindowOptions,
};

/// Holds the lock of its own window as long as another rank's calls are to take too long.
const HOLDER: Rank = Rank(1);

/// Longest time of a call; others that are to succeed wait for a busy machine at most.
const LIMIT: [(&str, &str); 1] = [("RMA_TIMEOUT", "10")];

/// Lets `body` of rank 0 run while the window of [`HOLDER`] is locked by its owner.
fn while_locked(
    job: &Job,
    window: &Window<u64>,
    body: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    let flags = job.allocate::<u64>(1)?;
    if job.rank() == HOLDER {
        window.lock(HOLDER, LockType::Exclusive, |_| {
            job.barrier()?;
            while flags.local().get(0)? == 0 {
                if job.progress() == 0 {
                    std::thread::yield_now();
                }
            }
            Ok(())
        })?;
    } else {
        job.barrier()?;
        body()?;
        flags.lock(HOLDER, LockType::Shared, |epoch| epoch.put(0, &[1]))?;
    }
    flags.free().map(drop)
}

/// The call has taken too long, and no more is wrong; which call it says.
fn stalls<T: std::fmt::Debug>(result: Result<T, Error>) -> Call {
    let error = result.unwrap_err();
    assert!(matches!(error.rma(), Some(RmaError::Stalled { .. })), "{error}");
    error.rma().unwrap().call()
}

/// The values of such operations are the library's, so that nothing of the program's is in danger.
#[test]
fn operations_that_are_waited_for_fail_and_leave_the_process_alone() {
    let name = "operations_that_are_waited_for_fail_and_leave_the_process_alone";
    ranks_at_once(name, 2, &LIMIT, |job| {
        let window = job.allocate::<u64>(2)?;
        while_locked(job, &window, || {
            stalls(window.lock_all(|epoch| {
                assert_eq!(stalls(epoch.get_value(HOLDER, 0)), Call::GetValue);
                assert_eq!(stalls(epoch.fetch_and_op(HOLDER, 0, 5, ReduceOp::Sum)), Call::FetchAndOp);
                Ok(())
            }));
            Ok(())
        })?;
        // The values that came late have gone nowhere, and what they belonged to was done.
        let before =
            window.lock(HOLDER, LockType::Shared, |epoch| epoch.fetch_and_op(0, 1, ReduceOp::Sum))?;
        job.barrier()?;
        assert!(job.rank() == HOLDER || before >= 5, "{before}");
        window.free().map(drop)
    });
}

#[test]
fn the_next_call_ends_a_scope_that_took_too_long() {
    ranks_at_once("the_next_call_ends_a_scope_that_took_too_long", 2, &LIMIT, |job| {
        let window = job.allocate::<u64>(2)?;
        while_locked(job, &window, || {
            stalls(window.lock(HOLDER, LockType::Exclusive, |epoch| epoch.put(0, &[7])));
            stalls(window.lock_all(|_| -> Result<(), Error> { panic!("the last epoch is not over") }));
            Ok(())
        })?;
        window.lock_all(|epoch| epoch.put_value(HOLDER, 1, 8))?;
        job.barrier()?;
        assert!(job.rank() != HOLDER || window.local().to_vec()? == [7, 8]);
        window.free().map(drop)
    });
}

#[test]
fn free_ends_a_scope_that_took_too_long() {
    ranks_at_once("free_ends_a_scope_that_took_too_long", 2, &LIMIT, |job| {
        let (window, exposed) = (job.create(vec![0u64])?, job.allocate::<u64>(1)?);
        while_locked(job, &window, || {
            stalls(window.lock(HOLDER, LockType::Exclusive, |epoch| epoch.put(0, &[7])));
            let group = job.group(&[HOLDER])?;
            stalls(exposed.post(&group)?.wait());
            Ok(())
        })?;
        if job.rank() == HOLDER {
            exposed.start(&job.group(&[Rank(0)])?, |epoch| epoch.put(Rank(0), 0, &[9]))?;
        }
        exposed.free()?;
        let memory = window.free()?;
        assert!(job.rank() != HOLDER || memory == [7]);
        Ok(())
    });
}

/// The locks of shared memory are had on return. Those of a call that took too long are given back as they come, by a rank
/// that makes no call on the window meanwhile.
#[test]
fn locks_of_shared_memory_that_took_too_long_are_given_back() {
    let name = "locks_of_shared_memory_that_took_too_long_are_given_back";
    ranks_at_once(name, 2, &LIMIT, |job| {
        let window = RawWindow::allocate_shared(job, 8, 1, &WindowOptions::DEFAULT)?;
        let flags = job.allocate::<u64>(1)?;
        if job.rank() == HOLDER {
            window.lock(LockType::Exclusive, HOLDER, false)?;
            job.barrier()?;
            while flags.local().get(0)? == 0 {
                if job.progress() == 0 {
                    std::thread::yield_now();
                }
            }
            window.unlock(HOLDER)?;
            for rank in [Rank(0), HOLDER] {
                window.lock(LockType::Exclusive, rank, false)?;
                window.unlock(rank)?;
            }
        } else {
            job.barrier()?;
            assert_eq!(stalls(window.lock_all(false)), Call::LockAll);
            assert!(window.unlock_all().is_err(), "no epoch was opened");
            flags.lock(HOLDER, LockType::Shared, |epoch| epoch.put_value(0, 1))?;
        }
        job.barrier()?;
        window.lock_all(false)?;
        window.unlock_all()?;
        flags.free()?;
        window.free().map(drop)
    });
}

/// A rank that has come to a barrier has come to it, however long it waits: the next call is no barrier more.
#[test]
fn the_next_call_ends_a_barrier_that_took_too_long() {
    ranks_at_once("the_next_call_ends_a_barrier_that_took_too_long", 2, &LIMIT, |job| {
        let flags = job.allocate::<u64>(1)?;
        if job.rank() == HOLDER {
            while flags.local().get(0)? == 0 {
                if job.progress() == 0 {
                    std::thread::yield_now();
                }
            }
        } else {
            assert_eq!(stalls(job.barrier()), Call::Barrier);
            flags.lock(HOLDER, LockType::Shared, |epoch| epoch.put_value(0, 1))?;
        }
        for _ in 0..3 {
            job.barrier()?;
        }
        flags.free().map(drop)
    });
}

/// An unlock, and a complete, of `rma::raw` that took too long are called again, and the window is as good as new.
#[test]
fn what_ends_an_epoch_of_a_raw_window_is_called_again() {
    let name = "what_ends_an_epoch_of_a_raw_window_is_called_again";
    ranks_at_once(name, 2, &LIMIT, |job| {
        const LEN: usize = 64 << 10;
        let window = RawWindow::allocate(job, LEN, 1)?;
        let guard = job.allocate::<u64>(1)?;
        let (source, other) = (vec![7u8; LEN], Rank(1 - job.rank().0));
        if job.rank() == HOLDER {
            window.lock(LockType::Exclusive, HOLDER, false)?;
        }
        while_locked(job, &guard, || {
            window.lock(LockType::Exclusive, HOLDER, false)?;
            // SAFETY: the source lives until everything is complete.
            unsafe { window.put(source.as_ptr(), 8, HOLDER, 0) }?;
            assert_eq!(stalls(window.unlock(HOLDER)), Call::Unlock);
            Ok(())
        })?;
        window.unlock(HOLDER)?;
        job.barrier()?;
        while_locked(job, &guard, || {
            window.start(&job.group(&[HOLDER])?, StartAssert::default())?;
            // SAFETY: as above.
            unsafe { window.put(source.as_ptr(), LEN, HOLDER, 0) }?;
            assert_eq!(stalls(window.complete()), Call::Complete);
            Ok(())
        })?;
        if job.rank() == HOLDER {
            window.post(&job.group(&[other])?, PostAssert::default())?;
            window.wait()?;
        } else {
            window.complete()?;
        }
        window.lock_all(false)?;
        window.unlock_all()?;
        guard.free()?;
        window.free().map(drop)
    });
}

/// A window that one rank does not wait to be freed is in nobody's way.
#[test]
fn windows_are_made_after_one_that_was_not_freed_in_time() {
    let name = "windows_are_made_after_one_that_was_not_freed_in_time";
    ranks_at_once(name, 2, &LIMIT, |job| {
        let (window, guard) = (RawWindow::allocate(job, 8, 1)?, job.allocate::<u64>(1)?);
        let mut window = Some(window);
        while_locked(job, &guard, || {
            let freed = window.take().unwrap().free();
            assert_eq!(stalls(freed), Call::Free);
            Ok(())
        })?;
        if let Some(window) = window {
            window.free()?;
        }
        for _ in 0..3 {
            RawWindow::allocate(job, 8, 1)?.free()?;
        }
        guard.free().map(drop)
    });
}

/// Threads of a rank make and free windows all at once, which MPI forbids, as nobody knows which ranks' calls meet: it goes well,
/// or is an error that says why, and no call waits for ever.
#[test]
fn collective_calls_of_several_threads_are_in_order_or_errors() {
    fn make_and_free(job: &Job) -> Result<(), Error> {
        for _ in 0..20 {
            let window = match job.allocate::<u64>(1) {
                Ok(window) => window,
                // At every rank.
                Err(error) if error.rma().and_then(RmaError::rule) == Some(Rule::SameCalls) => continue,
                Err(error) => return Err(error),
            };
            window.fence(|epoch| epoch.put(Rank(1 - job.rank().0), 0, &[7]))?;
            assert_eq!(window.local().get(0)?, 7);
            window.free()?;
        }
        Ok(())
    }
    let name = "collective_calls_of_several_threads_are_in_order_or_errors";
    ranks_at_once(name, 2, &[("RMA_TIMEOUT", "60")], |job| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| (scope, job.clone())).collect();
            let threads: Vec<_> =
                threads.into_iter().map(|(scope, job)| scope.spawn(move || make_and_free(&job))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
        job.barrier()
    });
}

/// After start, operations to oneself wait for one's own post, and an error says so.
#[test]
fn an_operation_to_oneself_says_that_the_own_post_is_missing() {
    let name = "an_operation_to_oneself_says_that_the_own_post_is_missing";
    ranks_at_once(name, 1, &[("RMA_TIMEOUT", "5")], |job| {
        let window = RawWindow::allocate(job, 8, 1)?;
        let own = job.group(&[job.rank()])?;
        let source = [5u8; 8];
        window.start(&own, StartAssert::default())?;
        // SAFETY: the source lives until complete.
        let put = || unsafe { window.put(source.as_ptr(), source.len(), job.rank(), 0) };
        let error = put().unwrap_err();
        assert!(matches!(error.rma(), Some(RmaError::Stalled { .. })), "{error}");
        assert!(error.to_string().contains("still waiting for this rank's own post"), "{error}");
        window.post(&own, PostAssert::default())?;
        put()?;
        window.complete()?;
        window.wait()?;
        window.free().map(drop)
    });
}
