//! What comes and goes leaves nothing: neither windows nor epochs make a process grow.
//!
//! A short run by default. `RMA_TEST_SOAK=10000,1000000` makes it as long as it is meant: that many windows made
//! and freed, and that many epochs (`RMA_TEST_LIMIT` gives it the time, in seconds).

mod common;

use common::*;
use rma::raw::RawWindow;
use rma::{
    Blocks, Change, Error, Group, Job, LockType, Notification, Rank, ReduceOp, Request, Window, WindowOptions,
};

/// Windows and epochs of a short run.
const SHORT: (u64, u64) = (400, 20_000);

/// Epochs until the kinds repeat: seven kinds, and then locks alone, often enough that they become repeated ones.
const KINDS_OF_EPOCHS: u64 = 32;

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

/// One epoch, of the kind whose turn it is. Words: 0 a counter, 1 to 3 what is put, 4 counts notifications, and the
/// others are for more than one element.
fn epoch_of_some_kind(window: &Window<u64>, partner: &Group, target: Rank, round: u64) -> Result<(), Error> {
    let job = window.job();
    let (seven, rows) = ([7], [1, 2, 3, 4]);
    let mut seen = [0; 4];
    match round % KINDS_OF_EPOCHS {
        0 => window.fence(|epoch| epoch.put(target, 1, &seven)),
        1 => window.lock_all(|epoch| epoch.fetch_and_op(target, 0, 1, ReduceOp::Sum).map(drop)),
        // No window is exposed while it is locked.
        2 => {
            job.barrier()?;
            let exposure = window.post(partner)?;
            window.start(partner, |epoch| epoch.put(target, 3, &seven))?;
            exposure.wait()?;
            job.barrier()
        }
        3 => {
            let told = Notification { disp: 4, change: Change::Add(1) };
            window.lock_all(|epoch| {
                epoch.put_notify(target, 1, &seven, told)?;
                epoch.order(target)
            })?;
            window.wait_notification(4, 1 + round / KINDS_OF_EPOCHS).map(drop)
        }
        4 => window.lock_all(|epoch| {
            let mut sent = [epoch.rput(target, 8, &rows[..])?, epoch.rput(target, 12, &rows[..])?];
            Request::wait_all(&mut sent)?;
            epoch.rget(target, 8, &mut seen)?.wait().map(drop)?;
            epoch.iflush(target)?.wait()
        }),
        5 => {
            let every_other = Blocks::vector(2, 1, 2)?;
            window.lock(target, LockType::Shared, |epoch| {
                epoch.put_blocks(8, &every_other, &rows, &every_other)
            })
        }
        6 => window.lock(target, LockType::Shared, |epoch| {
            epoch.get_accumulate(8, &rows, &mut seen, ReduceOp::Max)?;
            epoch.flush()
        }),
        _ => window.lock(target, LockType::Exclusive, |epoch| epoch.put(2, &seven)),
    }
}

/// A window of the kind whose turn it is, of changing size; it is used once. Each rank tells the other in `addresses`
/// where the memory is that it attaches.
fn window_of_some_kind(addresses: &Window<u64>, target: Rank, round: u64) -> Result<(), Error> {
    let job = addresses.job();
    let elements = 1 + (round % 7) as usize * 300;
    let put_once = |window: Window<u64>| {
        window.lock(target, LockType::Shared, |epoch| epoch.put_value(0, round))?;
        window.free().map(drop)
    };
    let put = |window: &RawWindow, disp| {
        window.lock(LockType::Exclusive, target, false)?;
        // SAFETY: `round` lives until unlock.
        unsafe { window.put((&raw const round).cast(), size_of::<u64>(), target, disp) }?;
        window.unlock(target)
    };
    match round % 4 {
        0 => put_once(job.allocate(elements)?),
        1 => put_once(job.create(vec![0; elements])?),
        2 => {
            let window = RawWindow::allocate_shared(job, 8 * elements, 8, &WindowOptions::DEFAULT)?;
            window.shared_query(target)?;
            put(&window, 0)?;
            window.free()
        }
        _ => {
            let window = RawWindow::create_dynamic(job, &WindowOptions::DEFAULT)?;
            let mut memory = vec![0u64; elements];
            // SAFETY: `memory` lives until it is detached, and is not touched meanwhile.
            unsafe { window.attach(memory.as_mut_ptr().cast(), 8 * elements) }?;
            let address = [memory.as_ptr() as u64];
            addresses.fence(|epoch| epoch.put(target, 0, &address))?;
            put(&window, addresses.local().get(0)?)?;
            job.barrier()?;
            window.detach(memory.as_ptr().cast())?;
            window.free()
        }
    }
}

/// Epochs of every kind, one after the other, and then windows of every kind and of changing sizes, each used once.
///
/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_Win_lock_all, MPI_Win_fence, MPI_Win_post, MPI_Win_start, MPI_Win_allocate, MPI_Win_create, MPI_Win_allocate_shared, MPI_Win_create_dynamic, MPI_Win_free, MPI-4.1 13.2.5.
#[test]
fn epochs_and_windows_come_and_go() {
    ranks("epochs_and_windows_come_and_go", 2, |job| {
        let window = job.allocate::<u64>(16)?;
        let target = Rank(1 - job.rank().0);
        let partner = job.group(&[target])?;
        flat(job, "epochs", lengths().1, |round| epoch_of_some_kind(&window, &partner, target, round))?;
        flat(job, "windows", lengths().0, |round| window_of_some_kind(&window, target, round))?;
        window.free().map(drop)
    });
}
