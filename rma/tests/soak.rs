//! What comes and goes leaves nothing: neither windows nor epochs make a process grow.
//!
//! A short run by default. `RMA_TEST_SOAK=10000,1000000` makes it as long as it is meant: that many windows made
//! and freed, and that many epochs (`RMA_TEST_LIMIT` gives it the time, in seconds).

mod common;

use common::*;
use rma::{Error, Job, LockType, Rank, ReduceOp};

/// Windows and epochs of a short run.
const SHORT: (u64, u64) = (400, 20_000);

/// Looks at what is held.
const PARTS: u64 = 8;

/// What the allocators of the process and of libfabric may keep for themselves, bytes.
const SLACK_BYTES: u64 = 512 << 10;

/// Descriptors that a process opens once and at no known time: the bell of its only neighbour, which it needs when
/// it first finds that neighbour asleep.
const SLACK_DESCRIPTORS: usize = 1;

/// What this process holds.
#[derive(Clone, Copy)]
struct Held {
    /// Bytes of memory that it could write to, touched or not.
    data_bytes: u64,
    resident_bytes: u64,
    descriptors: usize,
}

fn held() -> Held {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let bytes = |field: usize| {
        let pages: u64 = pages.split_whitespace().nth(field).unwrap().parse().unwrap();
        pages * rustix::param::page_size() as u64
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    Held { data_bytes: bytes(5), resident_bytes: bytes(1), descriptors }
}

/// Windows and epochs, and whether it is a long run: only that touches all of the buffers which libfabric
/// reserves when it opens, and takes in turn, so that resident memory has stopped growing at its half.
fn lengths() -> (u64, u64, bool) {
    let Ok(wanted) = std::env::var("RMA_TEST_SOAK") else { return (SHORT.0, SHORT.1, false) };
    let (windows, epochs) = wanted.split_once(',').expect("RMA_TEST_SOAK=WINDOWS,EPOCHS");
    (windows.parse().unwrap(), epochs.parse().unwrap(), true)
}

/// Runs `body` that often, and looks after each eighth: in the last half nothing may grow any more.
fn flat(
    job: &Job,
    what: &str,
    times: u64,
    mut body: impl FnMut(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut seen = Vec::new();
    for part in 0..PARTS {
        for round in part * times / PARTS..(part + 1) * times / PARTS {
            body(round)?;
        }
        job.barrier()?;
        seen.push(held());
    }
    let kib = |bytes: fn(&Held) -> u64| seen.iter().map(|held| bytes(held) >> 10).collect::<Vec<_>>();
    let (half, end) = (seen[seen.len() / 2 - 1], seen[seen.len() - 1]);
    let report = format!(
        "{times} {what}: data {:?} KiB, resident {:?} KiB, descriptors {} and {}",
        kib(|held| held.data_bytes),
        kib(|held| held.resident_bytes),
        half.descriptors,
        end.descriptors
    );
    println!("{report}");
    assert!(end.descriptors <= half.descriptors + SLACK_DESCRIPTORS, "{report}");
    assert!(end.data_bytes <= half.data_bytes + SLACK_BYTES, "{report}");
    assert!(!lengths().2 || end.resident_bytes <= half.resident_bytes + SLACK_BYTES, "{report}");
    Ok(())
}

/// Epochs of every kind, one after the other, and then windows of changing sizes, each used once.
///
/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_Win_lock_all, MPI_Win_fence, MPI_Win_allocate, MPI_Win_create, MPI_Win_free, MPI-4.1 13.2.5.
#[test]
fn epochs_and_windows_come_and_go() {
    ranks("epochs_and_windows_come_and_go", 2, |job| {
        let window = job.allocate::<u64>(8)?;
        let target = Rank(1 - job.rank().0);
        let seven = [7];
        flat(job, "epochs", lengths().1, |round| match round % 16 {
            0 => window.fence(|epoch| epoch.put(target, 1, &seven)),
            1..4 => window.lock_all(|epoch| epoch.fetch_and_op(target, 0, 1, ReduceOp::Sum).map(drop)),
            _ => window.lock(target, LockType::Exclusive, |epoch| epoch.put(2, &seven)),
        })?;
        window.free()?;
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
