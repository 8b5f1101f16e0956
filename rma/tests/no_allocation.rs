//! Once a window is made and every rank knows the others, no operation and no epoch call allocates, in no
//! thread of the process.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use rma::{Error, Job, LockType, Rank, ReduceOp, Window};

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

#[test]
fn nothing_is_allocated_after_creation() {
    ranks("nothing_is_allocated_after_creation", 2, |job| {
        let window = job.allocate::<u64>(2048)?;
        let (small, large) = ([1, 2, 3, 4], [5; 1024]);
        for _ in 0..5 {
            everything(job, &window, &small, &large)?;
        }
        job.barrier()?;
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..50 {
            everything(job, &window, &small, &large)?;
        }
        let allocated = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(allocated, 0, "allocations at rank {}", job.rank());
        assert!(before > 0, "the counter counts");
        job.barrier()?;
        window.free().map(drop)
    });
}
