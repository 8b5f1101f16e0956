//! Locks and flushes.

use rma::LockType::{Exclusive, Shared};
use rma::{Job, Rank, ReduceOp};

use super::behaviours;
use crate::failure::{holds, same, Outcome};
use crate::watchdog::at;
use crate::window::{barrier, Words};

behaviours![
    exclusive_locks_exclude,
    shared_locks_share,
    everybody_locks_everybody,
    lock_all_sums,
    exclusive_against_lock_all,
    several_locks_at_once,
    locks_of_ones_own,
    no_check_in_turns,
    lock_all_no_check_in_turns,
    unlock_completes,
    flush_completes,
    flush_all_completes,
    flush_local_frees_the_buffer,
    flush_keeps_the_epoch,
    bulletin_board,
    lock_after_fence,
    empty_epochs,
    sync_in_lock_all,
];

/// Shows: MPI_Win_lock, MPI_LOCK_EXCLUSIVE, rule: lock-exclusive, rule: unlock-completes-both.
fn exclusive_locks_exclude(job: &Job) -> Outcome {
    const ROUNDS: u64 = 10;
    let window = Words::allocate(job, 1)?;
    for _ in 0..ROUNDS {
        window.lock(Exclusive, 0)?;
        let got = window.get(0, 0, 1)?;
        window.flush(0)?;
        window.put(0, 0, &[got.value() + 1])?;
        window.unlock(0)?;
    }
    barrier(job)?;
    if job.rank() == Rank(0) {
        same!(window.own(0), ROUNDS * u64::from(job.size()));
    }
    Ok(window.free()?)
}

/// All are under their locks at one time, as none leaves before the last has come.
///
/// Shows: MPI_LOCK_SHARED, rule: lock-shared, rule: concurrent-reads.
fn shared_locks_share(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    window.store(1, 5);
    barrier(job)?;
    window.lock(Shared, 0)?;
    window.accumulate(0, 0, &[1], ReduceOp::Sum)?;
    window.flush(0)?;
    barrier(job)?;
    let got = window.get(0, 0, 2)?;
    window.unlock(0)?;
    same!(got.values(), [u64::from(job.size()), 5]);
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: rule: progress-crossing, rule: lock-exclusive, MPI-4.1 13.7.3.
fn everybody_locks_everybody(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    for round in 0..5 {
        for step in 0..job.size() {
            let target = (job.rank().0 + step + round) % job.size();
            window.lock(Exclusive, target)?;
            window.accumulate(target, 0, &[1], ReduceOp::Sum)?;
            window.unlock(target)?;
        }
    }
    barrier(job)?;
    same!(window.own(0), 5 * u64::from(job.size()));
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: MPI_Win_lock_all, MPI_Win_unlock_all, rule: lock-all-shared.
fn lock_all_sums(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    window.lock_all()?;
    for round in 0..20 {
        for target in 0..job.size() {
            window.accumulate(target, round % 2, &[1], ReduceOp::Sum)?;
        }
    }
    window.unlock_all()?;
    barrier(job)?;
    same!([window.own(0), window.own(1)], [10 * u64::from(job.size()); 2]);
    barrier(job)?;
    Ok(window.free()?)
}

/// The two halves of a pair are never seen to differ.
///
/// Shows: rule: lock-all-excludes, MPI_Win_lock_all.
fn exclusive_against_lock_all(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    for round in 1..10u64 {
        if job.rank() == Rank(0) {
            window.lock(Exclusive, 0)?;
            window.put(0, 0, &[round])?;
            window.put(0, 1, &[round])?;
            window.unlock(0)?;
        } else {
            window.lock_all()?;
            let got = window.get(0, 0, 2)?;
            window.unlock_all()?;
            same!(got.values()[0], got.values()[1]);
        }
    }
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: rule: lock-several, rule: disjoint-updates.
fn several_locks_at_once(job: &Job) -> Outcome {
    let window = Words::allocate(job, job.size() as usize)?;
    for target in 0..job.size() {
        window.lock(Shared, target)?;
    }
    for target in 0..job.size() {
        window.put(target, u64::from(job.rank().0), &[u64::from(target) + 1])?;
    }
    for target in (0..job.size()).rev() {
        window.unlock(target)?;
    }
    barrier(job)?;
    for origin in 0..job.size() as usize {
        same!(window.own(origin), u64::from(job.rank().0) + 1);
    }
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: rule: lock-own, rule: loads-in-epochs.
fn locks_of_ones_own(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    let own = job.rank().0;
    for _ in 0..10 {
        window.lock(Exclusive, own)?;
        // A load and a store under the lock, while others add under theirs.
        window.store(0, window.own(0) + 1);
        window.unlock(own)?;
        let next = (own + 1) % job.size();
        window.lock(Exclusive, next)?;
        window.accumulate(next, 0, &[1], ReduceOp::Sum)?;
        window.unlock(next)?;
    }
    barrier(job)?;
    same!(window.own(0), 20);
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: MPI_MODE_NOCHECK/lock.
fn no_check_in_turns(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    for turn in 0..job.size() {
        if turn == job.rank().0 {
            at("lock with NOCHECK");
            window.raw().lock(Exclusive, Rank(0), true)?;
            window.accumulate(0, 0, &[u64::from(turn) + 1], ReduceOp::Sum)?;
            window.unlock(0)?;
        }
        barrier(job)?;
    }
    if job.rank() == Rank(0) {
        let size = u64::from(job.size());
        same!(window.own(0), size * (size + 1) / 2);
    }
    Ok(window.free()?)
}

/// Shows: MPI_MODE_NOCHECK/lock_all.
fn lock_all_no_check_in_turns(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    for turn in 0..job.size() {
        if turn == job.rank().0 {
            at("lock_all with NOCHECK");
            window.raw().lock_all(true)?;
            for target in 0..job.size() {
                window.accumulate(target, 0, &[1], ReduceOp::Sum)?;
            }
            window.unlock_all()?;
        }
        barrier(job)?;
    }
    same!(window.own(0), u64::from(job.size()));
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: MPI_Win_unlock, rule: unlock-completes-both, rule: target-completion-unlock.
fn unlock_completes(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2048)?;
    let (own, next) = (job.rank().0, (job.rank().0 + 1) % job.size());
    for count in [1, 100, 2000] {
        let values: Vec<u64> = (0..count).map(|index| index + u64::from(own) + count).collect();
        window.lock(Exclusive, next)?;
        window.put(next, 3, &values)?;
        window.unlock(next)?;
        barrier(job)?;
        let from = u64::from((own + job.size() - 1) % job.size());
        for index in 0..count {
            same!(window.own(3 + index as usize), index + from + count);
        }
        barrier(job)?;
    }
    Ok(window.free()?)
}

/// Shows: MPI_Win_flush, rule: flush-completes-both.
fn flush_completes(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    let next = (job.rank().0 + 1) % job.size();
    window.lock(Shared, next)?;
    for round in 1..20u64 {
        window.put(next, 0, &[round])?;
        window.flush(next)?;
        barrier(job)?;
        same!(window.own(0), round);
        barrier(job)?;
    }
    window.unlock(next)?;
    Ok(window.free()?)
}

/// Shows: MPI_Win_flush_all, rule: flush-all-targets.
fn flush_all_completes(job: &Job) -> Outcome {
    let window = Words::allocate(job, job.size() as usize)?;
    window.lock_all()?;
    for round in 1..10u64 {
        for target in 0..job.size() {
            window.put(target, u64::from(job.rank().0), &[round])?;
        }
        at("flush_all");
        window.raw().flush_all()?;
        barrier(job)?;
        for origin in 0..job.size() as usize {
            same!(window.own(origin), round);
        }
        barrier(job)?;
    }
    window.unlock_all()?;
    Ok(window.free()?)
}

/// Shows: MPI_Win_flush_local, MPI_Win_flush_local_all, rule: flush-local-completes-origin, rule: put-buffer.
fn flush_local_frees_the_buffer(job: &Job) -> Outcome {
    const COUNT: usize = 3000;
    let window = Words::allocate(job, 2 * COUNT)?;
    let next = (job.rank().0 + 1) % job.size();
    let mut values = vec![0u64; COUNT];
    window.lock(Shared, next)?;
    for half in 0..2u64 {
        values.fill(half + 5);
        at("put");
        // SAFETY: the buffer is not touched before flush_local has returned.
        unsafe { window.raw().put(values.as_ptr().cast(), COUNT * 8, Rank(next), half * COUNT as u64) }?;
        at("flush_local");
        if half == 0 {
            window.raw().flush_local(Rank(next))?;
        } else {
            window.raw().flush_local_all()?;
        }
        values.fill(99);
    }
    window.unlock(next)?;
    barrier(job)?;
    for index in 0..2 * COUNT {
        same!(window.own(index), 5 + (index / COUNT) as u64);
    }
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: rule: flush-keeps-epoch, MPI_Win_flush.
fn flush_keeps_the_epoch(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    window.lock(Exclusive, 0)?;
    for _ in 0..5 {
        let got = window.get(0, 0, 1)?;
        window.flush(0)?;
        window.put(0, 0, &[got.value() + 1])?;
        window.flush(0)?;
    }
    window.unlock(0)?;
    barrier(job)?;
    if job.rank() == Rank(0) {
        same!(window.own(0), 5 * u64::from(job.size()));
    }
    Ok(window.free()?)
}

/// Notes are written and read at any time; whoever reads sees a note whole, or none.
///
/// Shows: rule: bulletin-board, rule: passive-without-target, MPI-4.1 13.5.
fn bulletin_board(job: &Job) -> Outcome {
    let window = Words::allocate(job, 4)?;
    let own = u64::from(job.rank().0) + 1;
    for round in 0..6 {
        let board = (job.rank().0 + round) % job.size();
        window.lock(Exclusive, board)?;
        window.put(board, 0, &[own; 4])?;
        window.unlock(board)?;
        window.lock(Shared, board)?;
        let got = window.get(board, 0, 4)?;
        window.unlock(board)?;
        let note = got.values();
        holds!((1..=u64::from(job.size())).contains(&note[0]));
        holds!(note.iter().all(|word| *word == note[0]));
    }
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: rule: mode-change.
fn lock_after_fence(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    let next = (job.rank().0 + 1) % job.size();
    for round in 0..5u64 {
        window.fence()?;
        window.put(next, 0, &[10 * round])?;
        window.fence_end()?;
        window.lock(Shared, next)?;
        window.accumulate(next, 0, &[3], ReduceOp::Sum)?;
        window.unlock(next)?;
        barrier(job)?;
        same!(window.own(0), 10 * round + 3);
        barrier(job)?;
    }
    Ok(window.free()?)
}

/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_Win_lock_all.
fn empty_epochs(job: &Job) -> Outcome {
    let window = Words::allocate(job, 1)?;
    for target in 0..job.size() {
        window.lock(Exclusive, target)?;
        window.unlock(target)?;
        window.lock_all()?;
        window.flush(target)?;
        window.unlock_all()?;
    }
    barrier(job)?;
    Ok(window.free()?)
}

/// Shows: MPI_Win_sync, rule: sync-in-epoch, rule: unified.
fn sync_in_lock_all(job: &Job) -> Outcome {
    let window = Words::allocate(job, 2)?;
    let next = (job.rank().0 + 1) % job.size();
    window.lock_all()?;
    for round in 1..10u64 {
        window.store(0, round);
        at("sync");
        window.raw().sync()?;
        barrier(job)?;
        window.raw().sync()?;
        let got = window.get(next, 0, 1)?;
        window.flush(next)?;
        same!(got.value(), round);
        barrier(job)?;
    }
    window.unlock_all()?;
    Ok(window.free()?)
}
