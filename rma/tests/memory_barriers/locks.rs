//! The table of LOCK and UNLOCK.

use rma::{Error, LockType, Rank};

use super::{load, on_one_host, store_all, Done, Ring, LOOSE, ROUNDS, SIZES, TRIES};

/// Increments of each rank between two looks at a counter.
const TURNS: u64 = 500;

/// Takes a word from one number to the next, in the epoch that is open; whether it was that number.
type Step = fn(&Ring<'_>, Rank, u64) -> Result<u64, Error>;

const DIRECT: Step = |ring, target, _| {
    let word = ring.part(target)?;
    let value = load(word);
    // Others may come between, if nothing keeps them out.
    std::thread::yield_now();
    store_all(word, value + 1);
    Ok(value)
};

const BY_OPERATIONS: Step = |ring, target, number| {
    ring.get(target, 0, number)?;
    ring.window.flush(target)?;
    let value = load(ring.result(number));
    std::thread::yield_now();
    ring.put_now(target, value + 1)?;
    Ok(value)
};

/// The ranks take turns at one word, told so by a barrier: what the last one has left is found.
fn turns(ring: &Ring<'_>, step: Step) -> Done {
    let (window, target) = (&ring.window, Rank(1));
    let is_turn = |number: u64| number % u64::from(ring.job.size()) == u64::from(ring.job.rank().0);
    for number in 1..=ROUNDS {
        if is_turn(number) {
            window.lock(LockType::Exclusive, target, number % 5 == 0)?;
            let value = step(ring, target, number)?;
            window.unlock(target)?;
            assert_eq!(value, number - 1, "a stale value");
        }
        ring.job.barrier()?;
    }
    let mut stale = 0;
    window.lock(LockType::Shared, target, false)?;
    for number in (ROUNDS + 1..=ROUNDS + LOOSE).filter(|&number| is_turn(number)) {
        stale += u64::from(step(ring, target, number)? != number - 1);
    }
    window.unlock(target)?;
    ring.job.barrier()?;
    // Who does not wait for the others' turns finds what it has left itself.
    assert_ne!(stale, 0, "nothing shows that the test can fail");
    Ok(())
}

/// The table's LOCK and UNLOCK, with PROC_SYNC between the epochs; of the own rank as well, and with NOCHECK.
///
/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_MODE_NOCHECK/lock, seed: MEM_SYNC.
#[test]
fn locks_that_follow_each_other() {
    on_one_host("locks::locks_that_follow_each_other", &SIZES, |job| {
        let ring = Ring::shared(job)?;
        turns(&ring, DIRECT)?;
        ring.window.free()?;
        let ring = Ring::allocated(job)?;
        turns(&ring, BY_OPERATIONS)?;
        ring.window.free()
    });
}

/// Increments of all ranks, each in a lock epoch of its own; how many are lost.
fn lost(ring: &Ring<'_>, step: Step, lock_type: LockType) -> Result<u64, Error> {
    let (window, target) = (&ring.window, Rank(1));
    let read = || {
        window.lock(LockType::Shared, target, false)?;
        ring.get(target, 0, 0)?;
        window.unlock(target)?;
        ring.job.barrier()?;
        Ok::<_, Error>(load(ring.result(0)))
    };
    let before = read()?;
    for turn in 1..=TURNS {
        window.lock(lock_type, target, false)?;
        step(ring, target, turn)?;
        window.unlock(target)?;
    }
    ring.job.barrier()?;
    Ok((before + TURNS * u64::from(ring.job.size())).saturating_sub(read()?))
}

fn exclusions(ring: &Ring<'_>, step: Step) -> Done {
    assert_eq!(lost(ring, step, LockType::Exclusive)?, 0, "increments were lost");
    // All ranks see the same number of them, so all stop at once.
    let is_seen = (0..TRIES).map(|_| lost(ring, step, LockType::Shared)).find(|lost| !matches!(lost, Ok(0)));
    assert!(is_seen.transpose()?.is_some(), "nothing shows that the test can fail");
    Ok(())
}

/// The table's UNLOCK before PROC_SYNC (lock released), and PROC_SYNC (lock granted) before LOCK's end, with nothing else
/// between; where the lock is shared, increments are lost.
///
/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_LOCK_EXCLUSIVE, seed: MEM_SYNC.
#[test]
fn unlock_is_before_the_next_lock() {
    on_one_host("locks::unlock_is_before_the_next_lock", &SIZES, |job| {
        let ring = Ring::shared(job)?;
        exclusions(&ring, DIRECT)?;
        ring.window.free()?;
        let ring = Ring::allocated(job)?;
        exclusions(&ring, BY_OPERATIONS)?;
        ring.window.free()
    });
}

/// A get and a put in an epoch each, and nothing else in them: from the eighth on such epochs are repeated. `None`: by lock_all.
fn short_epochs(ring: &Ring<'_>, lock_type: Option<LockType>, number: u64) -> Result<u64, Error> {
    let (window, target) = (&ring.window, Rank(1));
    let begin = || match lock_type {
        Some(lock_type) => window.lock(lock_type, target, false),
        None => window.lock_all(false),
    };
    let end = || match lock_type {
        Some(_) => window.unlock(target),
        None => window.unlock_all(),
    };
    begin()?;
    ring.get(target, 0, number)?;
    end()?;
    let value = load(ring.result(number));
    std::thread::yield_now();
    begin()?;
    ring.put(target, number)?;
    end()?;
    Ok(value)
}

/// The same rows where nothing but the unlock completes what was posted, as with the most usual epochs. Each rank overwrites the
/// word with its turn's number.
///
/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_Win_lock_all, MPI_Win_unlock_all, seed: MEM_SYNC.
#[test]
fn short_epochs_that_follow_each_other() {
    on_one_host("locks::short_epochs_that_follow_each_other", &SIZES, |job| {
        let ring = Ring::allocated(job)?;
        let is_turn = |number: u64| number % u64::from(job.size()) == u64::from(job.rank().0);
        for (kind, lock_type) in (0..).zip([Some(LockType::Exclusive), Some(LockType::Shared), None]) {
            let first = kind * (ROUNDS / 4);
            for number in first + 1..=first + ROUNDS / 4 {
                if is_turn(number) {
                    assert_eq!(short_epochs(&ring, lock_type, number)?, number - 1, "a stale value");
                }
                job.barrier()?;
            }
        }
        let (mut stale, last) = (0, 3 * (ROUNDS / 4));
        for number in (last + 1..=last + LOOSE).filter(|&number| is_turn(number)) {
            stale += u64::from(short_epochs(&ring, Some(LockType::Shared), number)? != number - 1);
        }
        job.barrier()?;
        assert_ne!(stale, 0, "nothing shows that the test can fail");
        ring.window.free()
    });
}
