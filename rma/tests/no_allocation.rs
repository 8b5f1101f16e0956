//! Once a window is made and every rank knows the others, no operation and no epoch call allocates, in no
//! thread of the process.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use rma::{Blocks, Change, Error, Group, Job, LockType, Notification, Rank, ReduceOp, Request, Window};

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Every operation, small and large, in every epoch, to every rank.
fn everything(job: &Job, window: &Window<u64>, small: &[u64], large: &[u64]) -> Result<(), Error> {
    let (mut seen, mut block) = ([0; 4], [0; 1024]);
    for target in (0..job.size()).map(Rank) {
        for lock_type in [LockType::Shared, LockType::Exclusive] {
            window.lock(target, lock_type, |epoch| {
                epoch.put(0, small)?;
                epoch.accumulate(4, small, ReduceOp::Sum)?;
                epoch.get_accumulate(8, small, &mut seen, ReduceOp::Max)
            })?;
        }
        window.lock_all(|epoch| {
            epoch.put(target, 0, large)?;
            epoch.flush(target)?;
            epoch.batch(|batch| batch.get(target, 0, &mut block))?;
            epoch.put_value(target, 1, 2)?;
            epoch.get_value(target, 1)?;
            epoch.fetch_and_op(target, 1, 1, ReduceOp::Sum)?;
            epoch.compare_and_swap(target, 1, 3, 4)?;
            epoch.flush_all()
        })?;
        window.fence(|epoch| {
            epoch.put(target, 0, large)?;
            epoch.accumulate(target, 1024, small, ReduceOp::Prod)
        })?;
        job.barrier()?;
    }
    window.local().read(0, &mut seen)
}

/// What is made once, before the epochs that use it.
struct Made {
    group: Group,
    column: Blocks<u64>,
    row: Blocks<u64>,
    targets: Vec<Rank>,
}

impl Made {
    fn new(job: &Job) -> Result<Self, Error> {
        let targets: Vec<Rank> = (0..job.size()).map(Rank).collect();
        let (column, row) = (Blocks::vector(64, 2, 8)?, Blocks::row(128)?);
        Ok(Self { group: job.group(&targets)?, column, row, targets })
    }
}

/// Requests, notified puts, order, flushes without waiting, layouts, and post-start-complete-wait.
fn the_rest(job: &Job, window: &Window<u64>, made: &Made, large: &[u64]) -> Result<(), Error> {
    let (mut block, mut source, mut seen) = ([0; 1024], [7; 1024], [0; 128]);
    let note = Notification { disp: 2047, change: Change::Add(1) };
    for &target in &made.targets {
        window.lock_all(|epoch| {
            let mut requests =
                [epoch.rput(target, 0, &mut source[..])?, epoch.rget(target, 1024, &mut block)?];
            while Request::wait_any(&mut requests)?.is_some() {}
            let [put, get] = requests;
            let (source, block) = (put.wait()?, get.wait()?);
            epoch.raccumulate(target, 0, &*source, ReduceOp::Sum)?.wait().map(drop)?;
            epoch.rget_accumulate(target, 0, &*source, block, ReduceOp::Max)?.wait().map(drop)?;
            let mut flushed = [epoch.iflush(target)?, epoch.iflush_all()?];
            epoch.put_notify(target, 0, large, note)?;
            epoch.order(target)?;
            epoch.put_notify(target, 0, &large[..1], note)?;
            Request::wait_all(&mut flushed)?;
            epoch.put_blocks(target, 0, &made.column, large, &made.row)?;
            epoch.get_blocks(target, 0, &made.column, &mut seen, &made.row)?;
            epoch.flush_targets(&made.targets)
        })?;
    }
    window.test_notification(2047)?;
    // A window that is locked cannot be exposed.
    job.barrier()?;
    let exposure = window.post(&made.group)?;
    window.start(&made.group, |epoch| {
        epoch.put(made.targets[0], 0, large)?;
        epoch.accumulate(made.targets[1], 1024, &large[..4], ReduceOp::Sum)?;
        epoch.put_blocks(made.targets[1], 0, &made.column, large, &made.row)
    })?;
    exposure.wait()?;
    job.barrier()
}

#[test]
fn nothing_is_allocated_after_creation() {
    ranks("nothing_is_allocated_after_creation", 2, |job| nothing_is_allocated(job, 50));
}

/// Also where every call is remembered, and forgotten again because there is no room.
#[test]
fn nothing_is_allocated_while_calls_are_traced() {
    let path = std::env::temp_dir().join(format!("rma-no-allocation-{}.json", std::process::id()));
    let settings = [("RMA_TRACE", path.to_str().unwrap()), ("RMA_TRACE_EVENTS", "64")];
    ranks_with("nothing_is_allocated_while_calls_are_traced", 2, &settings, |job| {
        nothing_is_allocated(job, 5)
    });
    if !is_rank() {
        let traced = std::fs::read_to_string(&path).unwrap();
        assert!(traced.contains(r#""name":"unlock""#), "calls were remembered");
        std::fs::remove_file(&path).unwrap();
    }
}

fn nothing_is_allocated(job: &Job, rounds: u32) -> Result<(), Error> {
    let window = job.allocate::<u64>(2048)?;
    let (small, large, made) = ([1, 2, 3, 4], [5; 1024], Made::new(job)?);
    for _ in 0..5 {
        everything(job, &window, &small, &large)?;
        the_rest(job, &window, &made, &large)?;
    }
    job.barrier()?;
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..rounds {
        everything(job, &window, &small, &large)?;
        the_rest(job, &window, &made, &large)?;
    }
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert_eq!(allocated, 0, "allocations at rank {}", job.rank());
    assert!(before > 0, "the counter counts");
    job.barrier()?;
    window.free().map(drop)
}
