//! Post, start, complete, wait; with the typed layer's scopes and guards where they do.

use std::time::{Duration, Instant};

use rma::raw::RawWindow;
use rma::{Job, PostAssert, Rank, ReduceOp, StartAssert};

use super::behaviours;
use crate::failure::{holds, same, Outcome};
use crate::watchdog::at;
use crate::window::{barrier, Words};

behaviours![
    pscw_around_a_ring,
    pscw_of_everybody_with_everybody,
    pscw_with_test,
    pscw_of_large_puts_and_results,
    pscw_with_nobody,
    pscw_without_notices,
    pscw_of_one_origin_with_many_targets,
];

/// Longest time that a loop of a body waits.
const PATIENCE: Duration = Duration::from_secs(30);

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

fn previous(job: &Job) -> Rank {
    Rank((job.rank().0 + job.size() - 1) % job.size())
}

/// Shows: MPI_Win_post, MPI_Win_start, MPI_Win_complete, MPI_Win_wait, rule: wait-completes-target, MPI-4.1 13.5.2.
fn pscw_around_a_ring(job: &Job) -> Outcome {
    let window = job.allocate::<u64>(3)?;
    let (origins, targets) = (job.group(&[previous(job)])?, job.group(&[next(job)])?);
    for round in 1..40u64 {
        at("post");
        let exposure = window.post(&origins)?;
        let own = [round, 100 * round + u64::from(job.rank().0)];
        at("start");
        window.start(&targets, |epoch| epoch.put(next(job), 1, &own))?;
        at("wait");
        exposure.wait()?;
        same!(window.local().to_vec()?, [0, round, 100 * round + u64::from(previous(job).0)]);
    }
    window.free()?;
    Ok(())
}

/// Each rank is origin and target of all ranks, itself among them.
///
/// Shows: MPI_Win_post, MPI_Win_start, MPI_Accumulate, rule: self-in-group, MPI-4.1 13.5.2.
fn pscw_of_everybody_with_everybody(job: &Job) -> Outcome {
    let size = job.size();
    let window = job.allocate::<u64>(size as usize + 1)?;
    let everybody = job.group(&(0..size).map(Rank).collect::<Vec<_>>())?;
    let (slot, rank) = (u64::from(job.rank().0) + 1, u64::from(job.rank().0));
    for round in 1..10u64 {
        at("post");
        let exposure = window.post(&everybody)?;
        let (own, one) = ([round * 1000 + rank], [1]);
        at("start");
        window.start(&everybody, |epoch| {
            for target in (0..size).map(Rank) {
                epoch.put(target, slot, &own)?;
                epoch.accumulate(target, 0, &one, ReduceOp::Sum)?;
            }
            Ok(())
        })?;
        at("wait");
        exposure.wait()?;
        let found = window.local().to_vec()?;
        same!(found[0], round * u64::from(size));
        holds!(found[1..].iter().zip(0..).all(|(value, rank)| *value == round * 1000 + rank));
    }
    window.free()?;
    Ok(())
}

/// Shows: MPI_Win_test, rule: test-is-wait, MPI-4.1 13.5.2.
fn pscw_with_test(job: &Job) -> Outcome {
    let window = job.allocate::<u64>(1)?;
    let (origins, targets) = (job.group(&[previous(job)])?, job.group(&[next(job)])?);
    at("post");
    let mut exposure = window.post(&origins)?;
    let own = [u64::from(job.rank().0) + 5];
    at("start");
    window.start(&targets, |epoch| epoch.put(next(job), 0, &own))?;
    at("test");
    let begun = Instant::now();
    while !exposure.test()? {
        holds!(begun.elapsed() < PATIENCE);
    }
    holds!(exposure.test()?);
    same!(window.local().get(0)?, u64::from(previous(job).0) + 5);
    exposure.wait()?;
    window.free()?;
    Ok(())
}

/// Shows: MPI_Win_complete, rule: target-completion-pscw, MPI_Get, MPI_Get_accumulate, MPI-4.1 13.5.2.
fn pscw_of_large_puts_and_results(job: &Job) -> Outcome {
    const LEN: usize = 30_000;
    let window = job.allocate::<u64>(2 * LEN + 2)?;
    window.local().write(2 * LEN, &[40 + u64::from(job.rank().0), 50])?;
    let (origins, targets) = (job.group(&[previous(job)])?, job.group(&[next(job)])?);
    let source: Vec<u64> = (0..LEN as u64).map(|at| at * 7 + u64::from(job.rank().0)).collect();
    let (mut seen, mut before) = ([0], [0]);
    at("post");
    let exposure = window.post(&origins)?;
    at("start");
    window.start(&targets, |epoch| {
        epoch.put(next(job), 0, &source)?;
        epoch.put(next(job), LEN as u64, &source)?;
        epoch.get(next(job), 2 * LEN as u64, &mut seen)?;
        epoch.get_accumulate(next(job), 2 * LEN as u64 + 1, &source[..1], &mut before, ReduceOp::Sum)
    })?;
    same!((seen, before), ([40 + u64::from(next(job).0)], [50]));
    at("wait");
    exposure.wait()?;
    let found = window.local().to_vec()?;
    let expected = |index: usize| (index % LEN) as u64 * 7 + u64::from(previous(job).0);
    holds!((0..2 * LEN).all(|index| found[index] == expected(index)));
    same!(found[2 * LEN + 1], 50 + u64::from(previous(job).0));
    window.free()?;
    Ok(())
}

/// Shows: MPI_Win_start, MPI_Win_post, rule: empty-group, MPI-4.1 13.5.2.
fn pscw_with_nobody(job: &Job) -> Outcome {
    let window = job.allocate::<u64>(1)?;
    let nobody = job.group(&[])?;
    at("post");
    let mut exposure = window.post(&nobody)?;
    holds!(exposure.test()?);
    at("start");
    window.start(&nobody, |_| Ok(()))?;
    exposure.wait()?;
    window.free()?;
    Ok(())
}

/// Shows: MPI_MODE_NOCHECK/post, MPI_MODE_NOCHECK/start, MPI-4.1 13.5.5.
fn pscw_without_notices(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    let (origins, targets) = (job.group(&[previous(job)])?, job.group(&[next(job)])?);
    for round in 1..10u64 {
        at("post with NOCHECK");
        window.raw().post(&origins, PostAssert { no_check: true, ..PostAssert::default() })?;
        // Everybody has posted before anybody starts, as the assertion says.
        barrier(job)?;
        at("start with NOCHECK");
        window.raw().start(&targets, StartAssert { no_check: true })?;
        window.put(next(job).0, 0, &[round])?;
        at("complete");
        window.raw().complete()?;
        at("wait");
        window.raw().wait()?;
        same!(window.own(0), round);
    }
    Ok(window.free()?)
}

/// Shows: MPI_Win_start, MPI_Win_wait, lecture: PSCW program.
fn pscw_of_one_origin_with_many_targets(job: &Job) -> Outcome {
    let window: RawWindow = RawWindow::allocate(job, 64, 8)?;
    let window = Words::of(window);
    let origin = job.group(&[Rank(0)])?;
    let targets = job.group(&(1..job.size()).map(Rank).collect::<Vec<_>>())?;
    for round in 1..15u64 {
        if job.rank() == Rank(0) {
            at("start");
            window.raw().start(&targets, StartAssert::default())?;
            for target in 1..job.size() {
                window.put(target, round % 8, &[round + u64::from(target)])?;
            }
            at("complete");
            window.raw().complete()?;
        } else {
            at("post");
            window.raw().post(&origin, PostAssert::default())?;
            at("wait");
            window.raw().wait()?;
            same!(window.own((round % 8) as usize), round + u64::from(job.rank().0));
        }
    }
    barrier(job)?;
    Ok(window.free()?)
}
