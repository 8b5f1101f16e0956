//! post, start, complete and wait between processes, with types and with MPI's own calls.
#![allow(unsafe_code)] // raw windows

mod common;

use std::process::Command;

use common::*;
use rma::raw::RawWindow;
use rma::{Call, Error, ErrorKind, Job, PostAssert, Rank, ReduceOp, RmaError, Rule, StartAssert};

fn neighbours(job: &Job) -> (Rank, Rank) {
    let (rank, size) = (job.rank().0, job.size());
    (Rank((rank + size - 1) % size), Rank((rank + 1) % size))
}

/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait, MPI-4.1 13.5.2.
#[test]
fn a_ring_of_scopes_and_guards() {
    ranks("a_ring_of_scopes_and_guards", 3, |job| {
        let window = job.allocate::<u64>(200)?;
        let (left, right) = neighbours(job);
        let (sources, targets) = (job.group(&[left])?, job.group(&[right])?);
        for round in 1..=20 {
            let exposure = window.post(&sources)?;
            let data = vec![round * 10 + u64::from(job.rank().0); 100];
            let mut seen = [1; 4];
            window.start(&targets, |epoch| {
                epoch.put(right, 0, &data)?;
                epoch.accumulate(right, 100, &[1, 2], ReduceOp::Sum)?;
                epoch.get(right, 150, &mut seen)
            })?;
            exposure.wait()?;
            assert_eq!(seen, [0; 4]);
            let found = window.local().to_vec()?;
            assert_eq!(found[..100], [round * 10 + u64::from(left.0); 100]);
            assert_eq!(found[100..103], [round, 2 * round, 0]);
        }
        window.free().map(drop)
    });
}

/// Shows: MPI_Win_test, MPI-4.1 13.5.2.
#[test]
fn test_polls_and_a_dropped_guard_waits() {
    ranks("test_polls_and_a_dropped_guard_waits", 2, |job| {
        let window = job.allocate::<u64>(2)?;
        let other = Rank(1 - job.rank().0);
        let group = job.group(&[other])?;
        for round in 1..=10 {
            if job.rank() == Rank(0) {
                let mut exposure = window.post(&group)?;
                while !exposure.test()? {
                    std::thread::yield_now();
                }
                assert!(exposure.test()?);
                assert_eq!(window.local().get(0)?, round);
                drop(window.post(&group)?);
                assert_eq!(window.local().get(1)?, round);
            } else {
                let value = [round];
                window.start(&group, |epoch| epoch.put(other, 0, &value))?;
                window.start(&group, |epoch| epoch.put(other, 1, &value))?;
            }
        }
        window.free().map(drop)
    });
}

/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait, MPI_MODE_NOCHECK/post, MPI_MODE_NOCHECK/start.
#[test]
fn mpis_own_calls() {
    ranks("mpis_own_calls", 3, |job| {
        let window = RawWindow::allocate(job, 64, 8)?;
        let everybody = job.group(&[Rank(1), Rank(2)])?;
        let target = job.group(&[Rank(0)])?;
        for no_check in [false, true] {
            let value = u64::from(job.rank().0) * 7 + u64::from(no_check);
            if job.rank() == Rank(0) {
                window.post(&everybody, PostAssert { no_check, ..PostAssert::default() })?;
            }
            if no_check {
                job.barrier()?;
            }
            if job.rank() == Rank(0) {
                window.wait()?;
                // SAFETY: nobody accesses the window now.
                let seen = unsafe { std::slice::from_raw_parts(window.base().cast::<u64>(), 3) };
                assert_eq!(seen, [0, 7 + u64::from(no_check), 14 + u64::from(no_check)]);
            } else {
                window.start(&target, StartAssert { no_check })?;
                // SAFETY: `value` lives until complete has returned.
                unsafe { window.put((&raw const value).cast(), 8, Rank(0), job.rank().0.into()) }?;
                window.complete()?;
            }
            job.barrier()?;
        }
        window.free()
    });
}

/// Shows: MPI_ERR_RMA_SYNC, MPI-4.1 13.5.2.
#[test]
fn misuse_is_named() {
    fn rule(result: Result<impl Sized, Error>) -> (Call, Rule) {
        match result.map(|_| ()).unwrap_err().kind() {
            ErrorKind::Rma(RmaError::Epoch { call, rule, .. }) => (*call, *rule),
            other => panic!("{other:?}"),
        }
    }
    let job = Job::init().unwrap();
    let window = job.allocate::<u64>(2).unwrap();
    let own = job.group(&[job.rank()]).unwrap();
    assert!(job.group(&[Rank(0), Rank(0)]).is_err() && job.group(&[Rank(9)]).is_err());
    let exposure = window.post(&own).unwrap();
    assert_eq!(rule(window.post(&own)), (Call::Post, Rule::ExposureOpen));
    assert_eq!(rule(window.fence(|_| Ok(()))), (Call::Fence, Rule::ExposureOpen));
    assert_eq!(rule(window.lock_all(|_| Ok(()))), (Call::LockAll, Rule::LockedAndExposed));
    window
        .start(&own, |_| {
            assert_eq!(rule(window.start(&own, |_| Ok(()))), (Call::Start, Rule::OtherEpochOpen));
            Ok(())
        })
        .unwrap();
    exposure.wait().unwrap();
    let nobody = job.group(&[]).unwrap();
    let put = window.start(&nobody, |epoch| epoch.put(job.rank(), 0, &[1]));
    assert_eq!(rule(put), (Call::Put, Rule::NotInGroup));
    window.free().unwrap();
    job.finalize().unwrap();
}

/// Shows: MPI_Win_complete, MPI-4.1 13.5.2, MPI-4.1 13.7.3, lecture: PSCW program, notes: recv between post and wait.
#[test]
fn the_examples_run() {
    for (example, count, said) in
        [("pscw", "3", "was given [0, 1, 2]"), ("recv_between", "2", "before the wait")]
    {
        for provider in PROVIDERS {
            let mut command = Command::new(rmarun());
            command
                .args(["-n", count, "--timeout", "120", "--provider", provider])
                .arg(examples().join(example));
            without_settings(&mut command);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{example} over {provider}: {}", text(&output));
            assert!(text(&output).contains(said), "{example} over {provider}: {}", text(&output));
        }
    }
}
