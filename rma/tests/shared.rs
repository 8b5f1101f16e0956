//! Windows of shared memory, with a process for each rank.

mod common;

use rma::raw::RawWindow;
use rma::{Dtype, Error, ErrorClass, FenceAssert, Flavor, Job, LockType, Rank, ReduceOp, WindowOptions};

const RANKS: u32 = 4;
const DEFAULT: WindowOptions = WindowOptions::DEFAULT;
const FIRST: FenceAssert =
    FenceAssert { no_precede: true, no_succeed: false, no_store: false, no_put: false };
const LAST: FenceAssert = FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

/// The words of a rank's part.
fn words(window: &RawWindow, rank: u32) -> Result<*mut u64, Error> {
    Ok(window.shared_query(Rank(rank))?.base.cast())
}

fn store(to: *mut u64, value: u64) {
    // SAFETY: the tests pass words of the window's parts, and synchronize; volatile, as others access them.
    unsafe { to.write_volatile(value) };
}

fn load(from: *mut u64) -> u64 {
    // SAFETY: as in `store`.
    unsafe { from.read_volatile() }
}

/// Shows: MPI_Win_allocate_shared, MPI_Win_shared_query, MPI_Win_fence, seed: MEM_SYNC, MPI-4.1 13.2.3.
#[test]
fn stores_are_seen_by_everybody_after_a_fence() {
    common::ranks("stores_are_seen_by_everybody_after_a_fence", RANKS, |job| {
        let window = RawWindow::allocate_shared(job, 64, 8, &DEFAULT)?;
        let rank = job.rank().0;
        assert_eq!(window.attributes()?.flavor, Flavor::Shared);
        for round in 0..50 {
            // The next rank's memory, directly, at once after a fence that waits for nobody else's operations.
            window.fence(if round == 0 { FIRST } else { FenceAssert::default() })?;
            store(words(&window, (rank + 1) % RANKS)?, 1000 * round + u64::from(rank));
            window.fence(FenceAssert::default())?;
            for other in 0..RANKS {
                let writer = (other + RANKS - 1) % RANKS;
                assert_eq!(load(words(&window, other)?), 1000 * round + u64::from(writer));
            }
        }
        window.fence(LAST)?;
        window.free()
    });
}

/// Shows: MPI_Win_allocate_shared, alloc_shared_noncontig, MPI-4.1 13.2.3.
#[test]
fn parts_are_where_they_should_be() {
    common::ranks("parts_are_where_they_should_be", RANKS, |job| {
        // Rank 0 has nothing, the others 24, 48, 72 bytes, one behind the other.
        let len = 24 * job.rank().0 as usize;
        let window = RawWindow::allocate_shared(job, len, 8, &DEFAULT)?;
        let parts: Result<Vec<_>, _> = (0..RANKS).map(|rank| window.shared_query(Rank(rank))).collect();
        let parts = parts?;
        // Also what is empty has its place, so that each part is found from any other and the lengths.
        assert_eq!((parts[0].base, parts[0].len), (parts[1].base, 0));
        assert_eq!(parts[2].base, parts[1].base.wrapping_add(24));
        assert_eq!(parts[3].base, parts[2].base.wrapping_add(48));
        assert_eq!(window.shared_query(Rank::NULL)?, parts[1]);
        assert_eq!(parts[job.rank().index()].len, len);
        assert_eq!(window.base(), parts[job.rank().index()].base);
        assert_eq!(window.attributes()?.base, window.base());
        let beyond = window.shared_query(Rank(RANKS)).unwrap_err();
        assert_eq!(beyond.class(), ErrorClass::Rank);
        window.free()?;
        let apart = WindowOptions { alloc_shared_noncontig: true, memory_alignment: 16384, ..DEFAULT };
        let window = RawWindow::allocate_shared(job, 8, 8, &apart)?;
        for rank in 0..RANKS {
            assert_eq!(words(&window, rank)?.addr() % 16384, 0);
        }
        window.free()
    });
}

/// Shows: MPI_Win_lock, MPI_LOCK_EXCLUSIVE, seed: MEM_SYNC, MPI-4.1 13.5.3.
#[test]
fn an_exclusive_lock_guards_direct_accesses() {
    common::ranks("an_exclusive_lock_guards_direct_accesses", RANKS, |job| {
        let window = RawWindow::allocate_shared(job, 8, 8, &DEFAULT)?;
        let counter = words(&window, 1)?;
        for _ in 0..100 {
            window.lock(LockType::Exclusive, Rank(1), false)?;
            let value = load(counter);
            std::thread::yield_now();
            store(counter, value + 1);
            window.unlock(Rank(1))?;
        }
        job.barrier()?;
        window.lock(LockType::Shared, Rank(1), false)?;
        assert_eq!(load(counter), 100 * u64::from(RANKS));
        window.unlock(Rank(1))?;
        job.barrier()?;
        window.free()
    });
}

/// Shows: MPI_Win_lock_all, MPI_Win_sync, MPI-4.1 13.5.4.
#[test]
fn lock_all_and_sync_pass_values_on() {
    common::ranks("lock_all_and_sync_pass_values_on", RANKS, |job| {
        let window = RawWindow::allocate_shared(job, 16, 8, &DEFAULT)?;
        let (rank, own) = (job.rank().0, words(&window, job.rank().0)?);
        let before = words(&window, (rank + RANKS - 1) % RANKS)?;
        window.lock_all(false)?;
        for round in 1..=50u64 {
            // Data, then the flag; the next rank waits for the flag.
            store(own.wrapping_add(1), round * 7 + u64::from(rank));
            window.sync()?;
            store(own, round);
            while load(before) < round {
                std::thread::yield_now();
            }
            window.sync()?;
            let expected = round * 7 + u64::from((rank + RANKS - 1) % RANKS);
            assert_eq!(load(before.wrapping_add(1)), expected);
            job.barrier()?;
        }
        window.unlock_all()?;
        window.free()
    });
}

/// Shows: MPI_Win_allocate_shared, MPI_Put, MPI_Accumulate, MPI-4.1 13.4.
#[test]
fn operations_and_direct_accesses_meet_in_one_memory() {
    common::ranks("operations_and_direct_accesses_meet_in_one_memory", RANKS, |job| {
        let window = RawWindow::allocate_shared(job, 64, 8, &DEFAULT)?;
        let target = Rank((job.rank().0 + 1) % RANKS);
        let (value, one) = (100 + u64::from(job.rank().0), 1u64);
        window.fence(FIRST)?;
        let value_bytes = (&raw const value).cast();
        // SAFETY: the buffers of all three operations live until the fence.
        unsafe { window.put(value_bytes, 8, target, 1) }?;
        for rank in 0..RANKS {
            // SAFETY: as above.
            unsafe {
                window.accumulate((&raw const one).cast(), 1, Dtype::U64, Rank(rank), 2, ReduceOp::Sum)
            }?;
        }
        window.fence(LAST)?;
        for rank in 0..RANKS {
            let part = words(&window, rank)?;
            let writer = u64::from((rank + RANKS - 1) % RANKS);
            assert_eq!(load(part.wrapping_add(1)), 100 + writer);
            assert_eq!(load(part.wrapping_add(2)), u64::from(RANKS));
        }
        job.barrier()?;
        window.free()
    });
}

/// Shows: MPI_ERR_RMA_SHARED, MPI-4.1 13.6.
#[test]
fn memory_that_cannot_be_had_is_an_error_of_every_rank() {
    common::ranks("memory_that_cannot_be_had_is_an_error_of_every_rank", RANKS, |job| {
        let len = if job.rank() == Rank(2) { 1 << 55 } else { 64 };
        let error = RawWindow::allocate_shared(job, len, 8, &DEFAULT).unwrap_err();
        assert_eq!(error.class(), ErrorClass::RmaShared, "{error}");
        if job.rank() == Rank(0) {
            let message = error.to_string();
            assert!(message.contains("asked for") && message.contains("can be had"), "{message}");
        }
        // The next one works.
        let window = RawWindow::allocate_shared(job, 64, 8, &DEFAULT)?;
        window.free()
    });
}

/// Shows: MPI_Win_shared_query, MPI_ERR_RMA_FLAVOR, MPI_ERR_RANK, MPI-4.1 13.2.3.
#[test]
fn memory_out_of_reach_has_no_bytes() {
    common::ranks("memory_out_of_reach_has_no_bytes", 2, |job| {
        let (own, other) = (job.rank(), Rank(1 - job.rank().0));
        let mut words = [7u64; 4];
        let base = words.as_mut_ptr().cast();
        // SAFETY: the words live until both windows are freed, and are accessed through pointers only.
        let created = unsafe { RawWindow::create(job, base, 32, 4) }?;
        for (window, len, disp_unit) in [(created, 32, 4), (RawWindow::allocate(job, 16, 8)?, 16, 8)] {
            let found = window.shared_query(own)?;
            assert_eq!((found.base, found.len, found.disp_unit), (window.base(), len, disp_unit));
            assert_eq!(window.shared_query(Rank::NULL)?, found);
            let beyond = window.shared_query(other)?;
            assert_eq!((beyond.base.is_null(), beyond.len, beyond.disp_unit), (true, 0, 1));
            assert_eq!(window.shared_query(Rank(2)).unwrap_err().class(), ErrorClass::Rank);
            window.free()?;
        }
        let empty = RawWindow::allocate(job, 0, 8)?;
        for rank in [own, other, Rank::NULL] {
            let found = empty.shared_query(rank)?;
            assert!(found.base.is_null() && found.len == 0);
        }
        empty.free()?;
        let dynamic = RawWindow::create_dynamic(job, &DEFAULT)?;
        let refused = dynamic.shared_query(own).unwrap_err();
        assert_eq!(refused.class(), ErrorClass::RmaFlavor, "{refused}");
        dynamic.free()
    });
}

#[test]
fn a_job_of_one_shares_with_itself() -> Result<(), Error> {
    if common::is_rank() {
        return Ok(());
    }
    let job = Job::init()?;
    let window = RawWindow::allocate_shared(&job, 16, 8, &DEFAULT)?;
    window.fence(FIRST)?;
    store(words(&window, 0)?, 7);
    window.fence(LAST)?;
    window.sync()?;
    assert_eq!(load(window.base().cast()), 7);
    window.free()?;
    job.finalize()
}
