//! Every operation in every kind of epoch, by the raw layer.
//!
//! Shows: MPI_Put.

mod common;

use common::*;
use rma::raw::{RawWindow, Request};
use rma::{Dtype, Error, FenceAssert, Job, LockType, Rank, ReduceOp};

/// Elements of each rank's window.
const ELEMENTS: usize = 64;

fn window(job: &Job) -> Result<RawWindow, Error> {
    RawWindow::allocate(job, ELEMENTS * 8, 8)
}

/// This rank's own element. Only for moments when nobody writes it.
fn own(window: &RawWindow, index: usize) -> u64 {
    assert!(index < ELEMENTS);
    // SAFETY: inside of the window's memory.
    let element = unsafe { window.base().cast::<u64>().add(index) };
    // SAFETY: aligned, and initialised by the library.
    unsafe { element.read_volatile() }
}

/// Shows: ours: checker.
#[test]
fn what_is_not_compared_is_counted() -> Result<(), Error> {
    let job = Job::init()?;
    let options = rma::WindowOptions { check: Some(true), ..Default::default() };
    let window = RawWindow::allocate_with(&job, 3000 * 16, 1, &options)?;
    let data = [1u8; 8];
    window.fence(FenceAssert::default())?;
    for index in 0..3000 {
        // SAFETY: the data live until the fence.
        unsafe { window.put(data.as_ptr(), data.len(), job.rank(), 16 * index) }?;
    }
    window.fence(FenceAssert { no_succeed: true, ..FenceAssert::default() })?;
    assert_eq!(window.accesses_forgotten(), 3000 - 1024);
    window.free()?;
    job.finalize()
}

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

/// Every operation, to the next rank, in an epoch that is open; complete when the epoch ends.
struct Operations {
    values: [u64; 4],
    results: [u64; 4],
}

impl Operations {
    /// What comes back must not have come before.
    const UNSET: u64 = 0xdead_beef;

    fn new(job: &Job) -> Box<Self> {
        Box::new(Self { values: [100 + u64::from(job.rank().0); 4], results: [Self::UNSET; 4] })
    }

    /// # Safety
    /// `self` stays where it is and is not touched until the epoch's end.
    unsafe fn post(&mut self, window: &RawWindow, target: Rank) -> Result<(), Error> {
        let value = self.values.as_ptr().cast::<u8>();
        let result = |index: usize| self.results.as_ptr().wrapping_add(index).cast_mut().cast::<u8>();
        let (one, two) = (7u64, 9u64);
        // SAFETY: the buffers stay by the caller's promise; `one` and `two` are read during the call.
        unsafe { window.put(value, 8, target, 0) }?;
        // SAFETY: as above.
        unsafe { window.accumulate(value, 2, Dtype::U64, target, 1, ReduceOp::Sum) }?;
        // SAFETY: as above.
        unsafe { window.get(result(0), 8, target, 8) }?;
        // SAFETY: as above.
        unsafe { window.get_accumulate(value, result(1), 1, Dtype::U64, target, 9, ReduceOp::Max) }?;
        // SAFETY: as above.
        unsafe { window.fetch_and_op(value, result(2), Dtype::U64, target, 10, ReduceOp::Sum) }?;
        let (new, old) = ((&raw const two).cast(), (&raw const one).cast());
        // SAFETY: as above.
        unsafe { window.compare_and_swap(new, old, result(3), Dtype::U64, target, 11) }
    }

    fn check(&self, target: Rank) {
        let seed = u64::from(target.0) * 1000;
        assert_eq!(self.results, [seed + 8, seed + 9, seed + 10, 7]);
    }
}

/// Gives the window's elements known values; nobody accesses it meanwhile.
fn seed(job: &Job, window: &RawWindow) -> Result<(), Error> {
    job.barrier()?;
    for index in 0..ELEMENTS {
        let value = if index == 11 { 7 } else { u64::from(job.rank().0) * 1000 + index as u64 };
        // SAFETY: inside of the window's memory.
        let element = unsafe { window.base().cast::<u64>().add(index) };
        // SAFETY: aligned and ours.
        unsafe { element.write_volatile(value) };
    }
    job.barrier()
}

/// What the rank before this one has left here.
fn check_own(job: &Job, window: &RawWindow) {
    let before = (job.rank().0 + job.size() - 1) % job.size();
    let (value, base) = (100 + u64::from(before), u64::from(job.rank().0) * 1000);
    let expected =
        [value, base + 1 + value, base + 2 + value, base + 8, value.max(base + 9), base + 10 + value, 9];
    let found = [0, 1, 2, 8, 9, 10, 11].map(|index| own(window, index));
    assert_eq!(found, expected);
}

/// Each call that asks or waits for requests reports each of them once. What it hands them to may call the library.
///
/// Shows: MPI_Wait, MPI_Waitall, MPI_Waitany, MPI_Waitsome, MPI_Test, MPI_Testall, MPI_Testany, MPI_Testsome.
#[test]
fn every_call_on_requests() {
    type Next = fn(&Job, &mut [Request], &mut dyn FnMut(usize)) -> Result<usize, Error>;
    let some: [Next; 5] = [
        |job, requests, each| job.wait_some(requests, each),
        |job, requests, each| job.test_some(requests, each),
        |job, requests, each| job.wait_any(requests).map(|found| found.into_iter().map(each).count()),
        |job, requests, each| job.test_any(requests).map(|found| found.into_iter().map(each).count()),
        |job, requests, each| {
            let Some(index) = requests.iter().position(|request| !request.is_null()) else { return Ok(0) };
            let is_done = job.test(&mut requests[index])?;
            Ok(is_done.then_some(index).into_iter().map(each).count())
        },
    ];
    ranks("every_call_on_requests", 3, |job| {
        let window = window(job)?;
        seed(job, &window)?;
        window.lock_all(false)?;
        for next in some {
            let mut results = Box::new([0_u64; REQUESTS]);
            let mut requests = gets(job, &window, &mut results)?;
            let mut found = [0; REQUESTS];
            let mut count = 0;
            while count < REQUESTS {
                count += next(job, &mut requests, &mut |index| {
                    found[index] += 1;
                    job.progress();
                })?;
            }
            assert_eq!(found, [1; REQUESTS]);
            assert!(requests.iter().all(Request::is_null));
            assert_eq!(next(job, &mut requests, &mut |index| panic!("{index} was reported before"))?, 0);
            check_gets(job, &results);
        }
        let mut results = Box::new([0_u64; REQUESTS]);
        let mut requests = gets(job, &window, &mut results)?;
        job.wait(&mut requests[1])?;
        job.wait_all(&mut requests)?;
        assert!(job.test_all(&mut requests)?);
        check_gets(job, &results);
        window.unlock_all()?;
        job.barrier()?;
        window.free()
    });
}

const REQUESTS: usize = 6;

/// Requests for elements of all ranks in turn.
fn gets(job: &Job, window: &RawWindow, results: &mut [u64; REQUESTS]) -> Result<Vec<Request>, Error> {
    let get = |(index, result): (usize, &mut u64)| {
        let target = Rank(index as u32 % job.size());
        // SAFETY: the result is boxed and not touched before the request was reported done.
        unsafe { window.rget((&raw mut *result).cast(), 8, target, index as u64) }
    };
    results.iter_mut().enumerate().map(get).collect()
}

fn check_gets(job: &Job, results: &[u64; REQUESTS]) {
    for (index, result) in results.iter().enumerate() {
        assert_eq!(*result, u64::from(index as u32 % job.size()) * 1000 + index as u64);
    }
}

#[derive(Clone, Copy, Debug)]
enum Epoch {
    Fence,
    Lock(LockType),
    LockAll,
    LockFlush,
}

fn every_operation(job: &Job, epoch: Epoch) -> Result<(), Error> {
    let window = window(job)?;
    seed(job, &window)?;
    let target = next(job);
    let mut operations = Operations::new(job);
    match epoch {
        Epoch::Fence => {
            window.fence(FenceAssert { no_precede: true, ..FenceAssert::default() })?;
            // SAFETY: not touched until the second fence.
            unsafe { operations.post(&window, target) }?;
            window.fence(FenceAssert { no_succeed: true, ..FenceAssert::default() })?;
        }
        Epoch::Lock(lock_type) => {
            window.lock(lock_type, target, false)?;
            // SAFETY: not touched until unlock.
            unsafe { operations.post(&window, target) }?;
            window.unlock(target)?;
        }
        Epoch::LockAll => {
            window.lock_all(false)?;
            // SAFETY: not touched until unlock_all.
            unsafe { operations.post(&window, target) }?;
            window.unlock_all()?;
        }
        Epoch::LockFlush => {
            window.lock(LockType::Shared, target, false)?;
            // SAFETY: not touched until the flush.
            unsafe { operations.post(&window, target) }?;
            window.flush_local(target)?;
            window.flush(target)?;
            operations.check(target);
            window.flush_all()?;
            window.flush_local_all()?;
            window.unlock(target)?;
        }
    }
    operations.check(target);
    job.barrier()?;
    check_own(job, &window);
    window.free()
}

fn every_epoch(job: &Job) -> Result<(), Error> {
    for _ in 0..20 {
        every_operation(job, Epoch::Fence)?;
        every_operation(job, Epoch::Lock(LockType::Shared))?;
        every_operation(job, Epoch::Lock(LockType::Exclusive))?;
        every_operation(job, Epoch::LockAll)?;
        every_operation(job, Epoch::LockFlush)?;
    }
    Ok(())
}

#[test]
fn every_operation_in_every_epoch() {
    ranks("every_operation_in_every_epoch", 3, every_epoch);
}

#[test]
fn every_operation_by_messages() {
    ranks_with("every_operation_by_messages", 3, &[("RMA_FORCE_MESSAGE_PATH", "1")], every_epoch);
}

#[test]
fn every_operation_with_pools_of_one() {
    let variables = [
        ("RMA_TARGET_POOL", "1"),
        ("RMA_TARGET_POOL_GLOBAL", "0"),
        ("RMA_OPERATION_POOL", "1"),
        ("RMA_OPERATION_POOL_GLOBAL", "0"),
        ("RMA_SLOTS", "1"),
    ];
    ranks_with("every_operation_with_pools_of_one", 3, &variables, every_epoch);
}

#[test]
fn every_operation_without_any_optimization_or_agent() {
    let variables = [
        ("RMA_SINGLE_OP_LOCK", "0"),
        ("RMA_PIGGYBACK", "0"),
        ("RMA_COALESCE", "0"),
        ("RMA_GET_TO_TAIL", "0"),
        ("RMA_LAZY_TARGETS", "0"),
        ("RMA_PROGRESS", "none"),
    ];
    ranks_with("every_operation_without_any_optimization_or_agent", 3, &variables, every_epoch);
}
