//! The table of LOCK_ALL, FLUSH and UNLOCK_ALL, and SYNC where the table has FLUSH.

use rma::{Change, Job, LockType, Notification, Rank};

use super::{are_all, load, on_one_host, rounds, store, store_all, Done, Ring, LOOSE, ROUNDS, SIZES, WORDS};

/// Rounds in one epoch of lock_all. `there` orders a rank's accesses in front of the next one's loads; a barrier tells the
/// rank before that it may go on.
fn passive(ring: &Ring<'_>, write: impl Fn(u64) -> Done, there: impl Fn(u64) -> Done) -> Done {
    ring.window.lock_all(false)?;
    let back = |_| {
        ring.window.sync()?;
        ring.job.barrier()?;
        ring.window.sync()
    };
    rounds(write, |number| Ok(are_all(ring.own(), number)), (there, back))?;
    ring.window.unlock_all()
}

/// What tells the next rank: PROC_SYNC.
type Tell = fn(&Ring<'_>, u64) -> Done;

const BY_BARRIER: Tell = |ring, _| ring.job.barrier();

const BY_NOTIFICATION: Tell = |ring, number| {
    let word = Notification { disp: 2 * WORDS as u64, change: Change::Set(number) };
    // SAFETY: nothing is put but the word.
    unsafe { ring.window.put_notify(ring.result(0).cast(), 0, ring.next, 0, word) }?;
    ring.window.wait_notification(2 * WORDS as u64, number).map(drop)
};

const BY_FLAG: Tell = |ring, number| {
    store(ring.part(ring.next)?.wrapping_add(2 * WORDS), number);
    while load(ring.own().wrapping_add(2 * WORDS)) < number {
        std::thread::yield_now();
    }
    Ok(())
};

/// The table's FLUSH, or SYNC in its place: stores, MEM_SYNC, PROC_SYNC by a barrier, a notification, or a flag that is a
/// word of the same window, and MEM_SYNC of who loads.
fn tells(is_flush: bool, ring: &Ring<'_>, tell: Tell) -> Done {
    let write = |number| {
        store_all(ring.part(ring.next)?, number);
        Ok(())
    };
    let there = |number| {
        if is_flush {
            ring.window.flush(ring.next)?;
        } else {
            ring.window.sync()?;
        }
        tell(ring, number)?;
        ring.window.sync()
    };
    passive(ring, write, there)
}

/// Shows: MPI_Win_lock_all, MPI_Win_flush, ours: put_notify, seed: MEM_SYNC.
#[test]
fn flush_of_stores() {
    on_one_host("passive::flush_of_stores", &SIZES, |job| {
        for tell in [BY_BARRIER, BY_NOTIFICATION, BY_FLAG] {
            let ring = Ring::shared(job)?;
            tells(true, &ring, tell)?;
            ring.window.free()?;
        }
        Ok(())
    });
}

/// Shows: MPI_Win_lock_all, MPI_Win_sync, ours: put_notify, seed: MEM_SYNC.
#[test]
fn sync_of_stores() {
    on_one_host("passive::sync_of_stores", &SIZES, |job| {
        for tell in [BY_BARRIER, BY_NOTIFICATION, BY_FLAG] {
            let ring = Ring::shared(job)?;
            tells(false, &ring, tell)?;
            ring.window.free()?;
        }
        Ok(())
    });
}

/// The table's FLUSH, of puts: the target loads them from its memory behind PROC_SYNC and SYNC.
///
/// Shows: MPI_Win_lock_all, MPI_Win_flush, MPI_Win_sync, ours: put_notify, seed: MEM_SYNC.
#[test]
fn flush_of_puts() {
    on_one_host("passive::flush_of_puts", &SIZES, |job| {
        for tell in [BY_BARRIER, BY_NOTIFICATION] {
            let ring = Ring::allocated(job)?;
            let there = |number| {
                ring.window.flush(ring.next)?;
                tell(&ring, number)?;
                ring.window.sync()
            };
            passive(&ring, |number| ring.put(ring.next, number), there)?;
            ring.window.free()?;
        }
        Ok(())
    });
}

/// The table as it stands: LOCK_ALL, accesses and FLUSH of one rank, PROC_SYNC, and LOCK, loads and UNLOCK of the others; or
/// UNLOCK_ALL instead of FLUSH (`is_end`).
fn one_writes(
    ring: &Ring<'_>,
    (is_no_check, is_end): (bool, bool),
    write: impl Fn(Rank, u64) -> Done,
) -> Done {
    let (job, window, own) = (ring.job, &ring.window, ring.job.rank());
    let others = || (1..job.size()).map(Rank);
    let mut stale = 0;
    if own == Rank(0) {
        window.lock_all(is_no_check)?;
    }
    for number in 1..=ROUNDS + LOOSE {
        let is_told = number <= ROUNDS;
        if own == Rank(0) {
            others().try_for_each(|rank| write(rank, number))?;
            match is_end {
                _ if !is_told => {}
                true => window.unlock_all()?,
                false => others().try_for_each(|rank| window.flush(rank))?,
            }
        }
        if is_told {
            job.barrier()?;
        }
        if own != Rank(0) {
            window.lock(LockType::Shared, own, is_no_check)?;
            stale += u64::from(!are_all(ring.own(), number));
            window.unlock(own)?;
        }
        if is_told {
            assert_eq!(stale, 0, "a stale value in round {number}");
            job.barrier()?;
        }
        if own == Rank(0) && is_told && is_end {
            window.lock_all(is_no_check)?;
        }
    }
    assert!(own == Rank(0) || stale > 0, "nothing shows that the test can fail");
    if own == Rank(0) {
        window.unlock_all()?;
    }
    Ok(())
}

fn one_writes_by_stores_and_puts(job: &Job, is_end: bool) -> Done {
    for is_no_check in [false, true] {
        let ring = Ring::shared(job)?;
        one_writes(&ring, (is_no_check, is_end), |rank, number| {
            store_all(ring.part(rank)?, number);
            Ok(())
        })?;
        ring.window.free()?;
        let ring = Ring::allocated(job)?;
        one_writes(&ring, (is_no_check, is_end), |rank, number| ring.put(rank, number))?;
        ring.window.free()?;
    }
    Ok(())
}

/// Shows: MPI_Win_lock_all, MPI_MODE_NOCHECK/lock_all, MPI_Win_flush, MPI_Win_lock, seed: MEM_SYNC.
#[test]
fn flush_is_before_the_locks_of_others() {
    on_one_host("passive::flush_is_before_the_locks_of_others", &SIZES, |job| {
        one_writes_by_stores_and_puts(job, false)
    });
}

/// Shows: MPI_Win_lock_all, MPI_MODE_NOCHECK/lock_all, MPI_Win_lock, MPI_Win_unlock_all, seed: MEM_SYNC.
#[test]
fn unlock_all_is_before_the_locks_of_others() {
    on_one_host("passive::unlock_all_is_before_the_locks_of_others", &SIZES, |job| {
        one_writes_by_stores_and_puts(job, true)
    });
}
