//! What the standard does not have: notified puts, flushes that nobody waits for, order.

use std::time::{Duration, Instant};

use rma::{Change, Job, LockType, Notification, Rank, ReduceOp, Request};

use super::behaviours;
use crate::failure::{holds, same, Outcome};
use crate::watchdog::at;
use crate::window::barrier;

behaviours![
    notified_puts_around_a_ring,
    notifications_of_everybody,
    later_operations_are_behind_earlier_ones,
    flushes_in_the_background,
    one_flush_of_several_ranks,
    typed_requests_give_their_buffers_back,
];

/// Longest time that a loop of a body waits.
const PATIENCE: Duration = Duration::from_secs(30);

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

fn previous(job: &Job) -> u64 {
    u64::from((job.rank().0 + job.size() - 1) % job.size())
}

/// Data of all sizes are there when their notification is.
///
/// Shows: ours: put_notify, ours: wait_notification.
fn notified_puts_around_a_ring(job: &Job) -> Outcome {
    const LEN: usize = 12_000;
    let window = job.allocate::<u64>(LEN + 2)?;
    let (arrived, used) = (LEN as u64, LEN as u64 + 1);
    for (round, len) in (1u64..).zip([1, 8, 100, 1000, LEN, 3, LEN]) {
        let own = vec![round * 1000 + u64::from(job.rank().0); len];
        let mut seen = vec![0; len];
        window.lock_all(|epoch| {
            // The next rank has read what it got before.
            at("wait_notification");
            window.wait_notification(used, round - 1)?;
            at("put_notify");
            epoch.put_notify(
                next(job),
                0,
                &own,
                Notification { disp: arrived, change: Change::Set(round) },
            )?;
            at("wait_notification");
            window.wait_notification(arrived, round)?;
            window.local().read(0, &mut seen)?;
            epoch.fetch_and_op(Rank(previous(job) as u32), used, 1, ReduceOp::Sum).map(drop)
        })?;
        holds!(seen.iter().all(|value| *value == round * 1000 + previous(job)));
    }
    barrier(job)?;
    window.free()?;
    Ok(())
}

/// Shows: ours: put_notify, ours: test_notification.
fn notifications_of_everybody(job: &Job) -> Outcome {
    const EACH: u64 = 30;
    let size = u64::from(job.size());
    let window = job.allocate::<u64>(size as usize + 1)?;
    let note = Notification { disp: size, change: Change::Add(1) };
    let own: Vec<u64> = (1..=EACH).collect();
    window.lock_all(|epoch| {
        for value in own.chunks(1) {
            for target in (0..job.size()).map(Rank) {
                at("put_notify");
                epoch.put_notify(target, u64::from(job.rank().0), value, note)?;
            }
            // One rank's puts to one place have no order of their own.
            epoch.order_all()?;
        }
        Ok(())
    })?;
    at("test_notification");
    let begun = Instant::now();
    while window.test_notification(size)? < EACH * size {
        holds!(begun.elapsed() < PATIENCE);
    }
    same!(window.test_notification(size)?, EACH * size);
    holds!(window.local().to_vec()?[..size as usize].iter().all(|value| *value == EACH));
    window.free()?;
    Ok(())
}

/// Shows: ours: order.
fn later_operations_are_behind_earlier_ones(job: &Job) -> Outcome {
    const LEN: usize = 3000;
    let window = job.allocate::<u64>(LEN + 1)?;
    for round in 1..20u64 {
        let (data, flag) = (vec![round; LEN], [round]);
        window.lock(next(job), LockType::Shared, |epoch| {
            epoch.put(0, &data)?;
            at("order");
            epoch.order()?;
            epoch.put(LEN as u64, &flag)?;
            epoch.flush()?;
            at("a loop of reads");
            while window.local().get(LEN)? < round {
                job.progress();
            }
            Ok(())
        })?;
        let found = window.local().to_vec()?;
        holds!(found.iter().all(|value| *value == round));
        barrier(job)?;
    }
    window.free()?;
    Ok(())
}

/// Shows: ours: iflush, ours: iflush_all.
fn flushes_in_the_background(job: &Job) -> Outcome {
    let window = job.allocate::<u64>(2 * job.size() as usize)?;
    let (slot, own) = (2 * u64::from(job.rank().0), [u64::from(job.rank().0) + 1; 2]);
    window.lock_all(|epoch| {
        let mut flushed = Vec::new();
        for target in (0..job.size()).map(Rank) {
            epoch.put(target, slot, &own)?;
            at("iflush");
            flushed.push(epoch.iflush(target)?);
        }
        flushed.push(epoch.iflush_all()?);
        at("wait_any");
        while Request::wait_any(&mut flushed)?.is_some() {}
        // They are there without an unlock.
        for target in (0..job.size()).map(Rank) {
            at("get_value");
            assert_eq!(epoch.get_value(target, slot + 1)?, own[1]);
        }
        Ok(())
    })?;
    barrier(job)?;
    let expected: Vec<u64> = (0..2 * u64::from(job.size())).map(|at| at / 2 + 1).collect();
    same!(window.local().to_vec()?, expected);
    window.free()?;
    Ok(())
}

/// Shows: ours: flush_targets.
fn one_flush_of_several_ranks(job: &Job) -> Outcome {
    let window = job.allocate::<u64>(2000 * job.size() as usize)?;
    let (slot, own) = (2000 * u64::from(job.rank().0), vec![u64::from(job.rank().0) + 1; 2000]);
    let targets: Vec<Rank> = (0..job.size()).map(Rank).filter(|rank| *rank != job.rank()).collect();
    window.lock_all(|epoch| {
        targets.iter().try_for_each(|target| epoch.put(*target, slot, &own))?;
        at("flush_targets");
        epoch.flush_targets(&targets)?;
        for target in &targets {
            at("get_value");
            assert_eq!(epoch.get_value(*target, slot + 1999)?, own[0]);
        }
        Ok(())
    })?;
    barrier(job)?;
    window.free()?;
    Ok(())
}

/// Shows: MPI_Rput, MPI_Rget, MPI_Raccumulate, MPI_Rget_accumulate, MPI-4.1 13.3.5.
fn typed_requests_give_their_buffers_back(job: &Job) -> Outcome {
    const LEN: usize = 5000;
    let window = job.allocate::<u64>(2 * LEN)?;
    let (target, second) = (next(job), LEN as u64);
    let (mut source, mut seen) = (vec![1; LEN], vec![0; LEN]);
    let seen = window.lock_all(|epoch| {
        at("rput");
        let source = epoch.rput(target, 0, &mut source)?.wait()?;
        source.fill(2);
        at("raccumulate");
        epoch.raccumulate(target, second, &*source, ReduceOp::Sum)?.wait()?;
        epoch.flush(target)?;
        at("rget_accumulate");
        let request = epoch.rget_accumulate(target, second, &*source, &mut seen, ReduceOp::Prod)?;
        let (_, seen) = request.wait()?;
        let before = seen.to_vec();
        at("rget");
        let mut requests = [epoch.rget(target, 0, seen)?];
        Request::wait_all(&mut requests)?;
        let [request] = requests;
        Ok([before, request.wait()?.to_vec()])
    })?;
    holds!(seen[0].iter().all(|value| *value == 2));
    holds!(seen[1].iter().all(|value| *value == 1));
    barrier(job)?;
    same!([window.local().get(0)?, window.local().get(2 * LEN - 1)?], [1, 4]);
    window.free()?;
    Ok(())
}
