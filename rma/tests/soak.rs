//! What comes and goes leaves nothing: neither windows nor epochs make a process grow.
//!
//! A short run by default. `RMA_TEST_SOAK=10000,1000000` makes it as long as it is meant: that many windows made
//! and freed, and that many epochs (`RMA_TEST_LIMIT` gives it the time, in seconds).

mod common;

use common::*;
use rma::{Error, Job, LockType, Rank, ReduceOp};

/// Windows and epochs of a short run.
const SHORT: (u64, u64) = (400, 20_000);

/// What the allocators of the process and of libfabric may keep for themselves, bytes.
const SLACK_BYTES: u64 = 512 << 10;

/// Resident bytes and open descriptors of this process.
fn held() -> (u64, usize) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split_whitespace().nth(1).unwrap().parse().unwrap();
    (pages * rustix::param::page_size() as u64, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

fn lengths() -> (u64, u64) {
    let Ok(wanted) = std::env::var("RMA_TEST_SOAK") else { return SHORT };
    let (windows, epochs) = wanted.split_once(',').expect("RMA_TEST_SOAK=WINDOWS,EPOCHS");
    (windows.parse().unwrap(), epochs.parse().unwrap())
}

/// Runs `body` that often; after the first fifth nothing may grow any more.
fn flat(
    job: &Job,
    what: &str,
    times: u64,
    mut body: impl FnMut(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    for round in 0..times / 5 {
        body(round)?;
    }
    job.barrier()?;
    let (bytes, descriptors) = held();
    for round in times / 5..times {
        body(round)?;
    }
    job.barrier()?;
    let (bytes_now, descriptors_now) = held();
    println!(
        "{times} {what}: resident {} KiB, then {} KiB; {descriptors} descriptors, then {descriptors_now}",
        bytes >> 10,
        bytes_now >> 10
    );
    assert_eq!(descriptors_now, descriptors, "{what}");
    assert!(bytes_now <= bytes + SLACK_BYTES, "{what}: from {bytes} to {bytes_now} bytes");
    Ok(())
}

/// Windows of changing sizes, each used once: memory and descriptors stay as they are.
///
/// Shows: MPI_Win_allocate, MPI_Win_create, MPI_Win_free, MPI-4.1 13.2.5.
#[test]
fn windows_come_and_go() {
    ranks("windows_come_and_go", 2, |job| {
        let target = Rank(1 - job.rank().0);
        flat(job, "windows", lengths().0, |round| {
            let elements = 1 + (round % 7) as usize * 300;
            let window = match round % 2 {
                0 => job.allocate::<u64>(elements)?,
                _ => job.create(vec![0u64; elements])?,
            };
            window.lock(target, LockType::Shared, |epoch| epoch.put_value(0, round))?;
            window.free().map(drop)
        })
    });
}

/// Epochs of every kind, one after the other.
///
/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_Win_lock_all, MPI_Win_fence, MPI-4.1 13.5.
#[test]
fn epochs_come_and_go() {
    ranks("epochs_come_and_go", 2, |job| {
        let window = job.allocate::<u64>(8)?;
        let target = Rank(1 - job.rank().0);
        let seven = [7];
        flat(job, "epochs", lengths().1, |round| match round % 16 {
            0 => window.fence(|epoch| epoch.put(target, 1, &seven)),
            1..4 => window.lock_all(|epoch| epoch.fetch_and_op(target, 0, 1, ReduceOp::Sum).map(drop)),
            _ => window.lock(target, LockType::Exclusive, |epoch| epoch.put(2, &seven)),
        })?;
        window.free().map(drop)
    });
}
