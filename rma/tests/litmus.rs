//! Store buffering between processes: of two ranks that each write a word, complete that, and then read what the other
//! writes, one at least sees the other's. Programs that take turns by words of their own (Dekker's, Peterson's, queue
//! locks) stand on it. A processor may read before its own last store is seen by others, so something between must fence.
//!
//! With the read in front of the write the check fails at once. Without a fence it was not seen to fail on a virtual machine
//! with two processors.
//!
//! Below it, what fences say to each other: whoever is behind one sees what everybody did before it.

mod common;

use common::*;
use rma::{Error, Job, LockAllEpoch, Rank, ReduceOp, Window};

/// Writes of each rank. They run freely, so that some meet within nanoseconds: no barrier is as exact.
const WRITES: u64 = 20_000;

/// Fences, and words of some cache lines that each rank puts to each between two.
const FENCES: u64 = 1500;
const PUT: usize = 40;

/// One way to write a number where the other one looks.
type Write = fn(&LockAllEpoch<'_, '_, u64>, &Window<u64>, Rank, u64) -> Result<(), Error>;

/// And to read what the other has written.
type Read = fn(&LockAllEpoch<'_, '_, u64>, &Window<u64>, [Rank; 2]) -> Result<u64, Error>;

/// Each writes 1, 2, 3 and so on, and reads behind each; checks that no two writes went unseen by each other's reads.
fn writes_are_seen(job: &Job, write: Write, read: Read) -> Result<(), Error> {
    let (own, other) = (job.rank(), Rank(1 - job.rank().0));
    let window = job.allocate::<u64>(2)?;
    let results = job.allocate::<u64>(2 * WRITES as usize)?;
    job.barrier()?;
    let mut seen = vec![0; WRITES as usize];
    window.lock_all(|epoch| {
        for (number, seen) in (1..).zip(&mut seen) {
            write(epoch, &window, other, number)?;
            *seen = read(epoch, &window, [own, other])?;
        }
        Ok(())
    })?;
    results.lock_all(|epoch| epoch.batch(|batch| batch.put(Rank(0), u64::from(own.0) * WRITES, &seen)))?;
    job.barrier()?;
    if own == Rank(0) {
        let all = results.local().to_vec()?;
        let (first, second) = all.split_at(WRITES as usize);
        for (number, &seen) in (1..).zip(first) {
            // The other's next write was not seen: then it must have seen this one behind it.
            if let Some(&back) = second.get(seen as usize) {
                assert!(back >= number, "write {number} saw {seen} and write {} saw {back}", seen + 1);
            }
        }
    }
    job.barrier()?;
    results.free()?;
    window.free().map(drop)
}

#[test]
fn puts_that_were_flushed_are_seen() {
    ranks("puts_that_were_flushed_are_seen", 2, |job| {
        let put: Write = |epoch, _, other, number| {
            let source = [number];
            epoch.batch(|batch| batch.put(other, 0, &source))?;
            epoch.flush(other)
        };
        writes_are_seen(job, put, |epoch, _, [own, _]| epoch.get_value(own, 0))?;
        writes_are_seen(job, put, |_, window, _| window.local().get(0))
    });
}

#[test]
fn words_that_were_replaced_are_seen() {
    ranks("words_that_were_replaced_are_seen", 2, |job| {
        let replace: Write = |epoch, _, other, number| {
            let source = [number];
            epoch.batch(|batch| batch.accumulate(other, 0, &source, ReduceOp::Replace))?;
            epoch.flush(other)
        };
        writes_are_seen(job, replace, |epoch, _, [own, _]| epoch.fetch_and_op(own, 0, 0, ReduceOp::NoOp))
    });
}

#[test]
fn local_stores_are_seen() {
    ranks("local_stores_are_seen", 2, |job| {
        let store: Write = |_, window, _, number| window.local().set(1, number);
        writes_are_seen(job, store, |epoch, _, [_, other]| epoch.get_value(other, 1))
    });
}

/// What everybody has put before a fence is read by everybody behind it, also by who learns of the one through another; and
/// what is put behind the next one does not come before it was read.
#[test]
fn what_was_put_before_a_fence_is_read_behind_it() {
    ranks("what_was_put_before_a_fence_is_read_behind_it", 3, |job| {
        let (own, size) = (u64::from(job.rank().0), job.size());
        let window = job.allocate::<u64>(size as usize * PUT)?;
        for number in 1..=FENCES {
            let source = [number; PUT];
            window.fence(|epoch| {
                (0..size).try_for_each(|target| epoch.put(Rank(target), own * PUT as u64, &source))
            })?;
            let read = window.local().to_vec()?;
            assert!(read.iter().all(|&word| word == number), "behind fence {number}: {read:?}");
        }
        window.free().map(drop)
    });
}

/// What an origin has put is read by the target whose wait returns, and what the target has stored before it posted is got by
/// the origin; what it stores behind wait is not got before.
#[test]
fn what_was_put_before_complete_is_read_behind_wait() {
    ranks("what_was_put_before_complete_is_read_behind_wait", 2, |job| {
        let other = Rank(1 - job.rank().0);
        let group = job.group(&[other])?;
        let window = job.allocate::<u64>(2 * PUT)?;
        for number in 1..=FENCES {
            let (source, mut got) = ([number; PUT], [0; PUT]);
            window.local().write(PUT, &source)?;
            let exposure = window.post(&group)?;
            window.start(&group, |epoch| {
                epoch.put(other, 0, &source)?;
                epoch.get(other, PUT as u64, &mut got)
            })?;
            exposure.wait()?;
            let read = window.local().to_vec()?;
            assert!(read[..PUT] == source && got == source, "epoch {number}: {read:?}, {got:?}");
        }
        window.free().map(drop)
    });
}
