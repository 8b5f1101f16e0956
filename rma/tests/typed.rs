//! The typed layer between ranks: every kind of scope, and what passes through other ranks.

mod common;

use common::*;
use rma::{
    Bf16, Call, Complex, Element, Error, Job, LockType, Logical, MemoryModel, Rank, ReduceOp, RmaError,
    ValueIndex, WindowOptions, F16,
};

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

fn before(job: &Job) -> u32 {
    (job.rank().0 + job.size() - 1) % job.size()
}

/// A put, an accumulate and a get of one type, to the next rank, in each kind of scope.
fn round_trip<T: Element>(job: &Job, of: fn(u32) -> T, sum: fn(u32) -> T) -> Result<(), Error> {
    round_trip_with(job, ReduceOp::Sum, of, sum)
}

/// `reduced` is what the element of 20 becomes with that of a number.
fn round_trip_with<T: Element>(
    job: &Job,
    op: ReduceOp,
    of: fn(u32) -> T,
    reduced: fn(u32) -> T,
) -> Result<(), Error> {
    let window = job.allocate::<T>(8)?;
    let (target, own, seed) = (next(job), [of(job.rank().0 + 1); 3], [of(20); 2]);
    let mut seen = [T::default(); 2];
    for kind in 0..3 {
        job.barrier()?;
        window.local().fill(T::default())?;
        window.local().write(4, &seed)?;
        job.barrier()?;
        match kind {
            0 => window.fence(|epoch| {
                epoch.put(target, 0, &own)?;
                epoch.accumulate(target, 4, &own[..1], op)?;
                epoch.get(target, 5, &mut seen[1..])
            })?,
            1 => window.lock(target, LockType::Exclusive, |epoch| {
                epoch.put(0, &own)?;
                epoch.accumulate(4, &own[..1], op)?;
                epoch.get(5, &mut seen[1..])
            })?,
            _ => window.lock_all(|epoch| {
                epoch.put(target, 0, &own)?;
                epoch.accumulate(target, 4, &own[..1], op)?;
                epoch.get(target, 5, &mut seen[1..])
            })?,
        }
        job.barrier()?;
        assert_eq!(seen, [T::default(), seed[1]]);
        let mut found = [T::default(); 6];
        window.local().read(0, &mut found)?;
        let (put, zero) = (of(before(job) + 1), T::default());
        assert_eq!(found, [put, put, put, zero, reduced(before(job) + 1), seed[1]]);
    }
    window.free().map(drop)
}

#[test]
fn every_type_in_every_scope() {
    ranks("every_type_in_every_scope", 2, |job| {
        round_trip(job, |n| n as i8, |n| 20 + n as i8)?;
        round_trip(job, |n| n as i16, |n| 20 + n as i16)?;
        round_trip(job, |n| n as i32, |n| 20 + n as i32)?;
        round_trip(job, i64::from, |n| 20 + i64::from(n))?;
        round_trip(job, |n| n as u8, |n| 20 + n as u8)?;
        round_trip(job, |n| n as u16, |n| 20 + n as u16)?;
        round_trip(job, |n| n, |n| 20 + n)?;
        round_trip(job, u64::from, |n| 20 + u64::from(n))?;
        round_trip(job, |n| n as f32, |n| 20.0 + n as f32)?;
        round_trip(job, f64::from, |n| 20.0 + f64::from(n))
    });
}

#[test]
fn types_that_rust_has_not_in_every_scope() {
    ranks("types_that_rust_has_not_in_every_scope", 2, |job| {
        round_trip(job, |n| i128::from(n) << 80, |n| (20 + i128::from(n)) << 80)?;
        round_trip(job, |n| u128::MAX - u128::from(n), |n| u128::MAX - 21 - u128::from(n))?;
        round_trip(job, |n| F16::from_f32(n as f32), |n| F16::from_f32(20.0 + n as f32))?;
        round_trip(job, |n| Bf16::from_f32(n as f32), |n| Bf16::from_f32(20.0 + n as f32))?;
        let complex = |n| Complex { re: n as f32, im: -(n as f32) };
        round_trip(job, complex, |n| Complex { re: 20.0 + n as f32, im: -20.0 - n as f32 })?;
        let complex = |n| Complex { re: f64::from(n), im: 0.5 };
        round_trip(job, complex, |n| Complex { re: 20.0 + f64::from(n), im: 1.0 })?;
        let truth = |_| Logical::TRUE;
        round_trip_with(job, ReduceOp::LogicalAnd, truth, truth)?;
        let pair = |n| ValueIndex::new(f64::from(n), n as i32);
        round_trip_with(job, ReduceOp::MinLoc, pair, pair)?;
        let pair = |n| ValueIndex::new(-(n as i16), n as i32);
        round_trip_with(job, ReduceOp::MaxLoc, pair, pair)
    });
}

#[test]
fn a_counter_counts_each_once() {
    const EACH: u64 = 300;
    ranks("a_counter_counts_each_once", 4, |job| {
        let window = job.allocate::<u64>(2)?;
        let mut last = None;
        for round in 0..EACH {
            let drawn = window.lock(Rank(0), LockType::Shared, |epoch| match round % 2 {
                0 => epoch.fetch_and_op(0, 1, ReduceOp::Sum),
                _ => increment(epoch),
            })?;
            assert!(last.is_none_or(|last| drawn > last), "{drawn} after {last:?}");
            last = Some(drawn);
        }
        job.barrier()?;
        if job.rank() == Rank(0) {
            assert_eq!(window.local().get(0)?, EACH * u64::from(job.size()));
        }
        window.free().map(drop)
    });
}

/// The same by compare-and-swap.
fn increment(epoch: &rma::LockEpoch<'_, '_, u64>) -> Result<u64, Error> {
    let mut expected = epoch.get_value(0)?;
    loop {
        match epoch.compare_and_swap(0, expected, expected + 1)? {
            found if found == expected => return Ok(found),
            found => expected = found,
        }
    }
}

#[test]
fn exclusive_locks_exclude() {
    ranks("exclusive_locks_exclude", 3, |job| {
        let window = job.allocate::<u64>(2)?;
        for _ in 0..200 {
            // Two elements that are only equal while nobody is between the two puts.
            window.lock(Rank(0), LockType::Exclusive, |epoch| {
                let (one, two) = (epoch.get_value(0)?, epoch.get_value(1)?);
                assert_eq!(one, two);
                epoch.put_value(0, one + 1)?;
                epoch.put_value(1, two + 1)
            })?;
        }
        job.barrier()?;
        if job.rank() == Rank(0) {
            assert_eq!(window.local().to_vec()?, [200 * u64::from(job.size()); 2]);
        }
        window.free().map(drop)
    });
}

#[test]
fn windows_of_different_sizes_and_large_transfers() {
    const LARGE: usize = 1 << 20;
    ranks("windows_of_different_sizes_and_large_transfers", 2, |job| {
        let elements = if job.rank() == Rank(1) { LARGE } else { 3 };
        let window = job.allocate::<u32>(elements)?;
        if job.rank() == Rank(0) {
            let source: Vec<u32> = (0..LARGE as u32).collect();
            let mut seen = vec![0; LARGE];
            window.lock(Rank(1), LockType::Exclusive, |epoch| {
                epoch.batch(|batch| batch.put(0, &source))?;
                epoch.get(0, &mut seen)
            })?;
            assert_eq!(seen, source);
            let mut old = vec![0; LARGE];
            let summed = window.lock(Rank(1), LockType::Exclusive, |epoch| {
                epoch.get_accumulate(0, &source, &mut old, ReduceOp::Sum)
            });
            // What does not fit a packet of replies is refused with a reason, or done.
            if summed.is_ok() {
                assert_eq!(old, source);
            }
        }
        window.free().map(drop)
    });
}

#[test]
fn what_the_target_refuses_is_reported_and_the_fence_still_closes_everywhere() {
    ranks("what_the_target_refuses_is_reported_and_the_fence_still_closes_everywhere", 2, |job| {
        let window = job.allocate::<u8>(if job.rank() == Rank(0) { 0 } else { 4 })?;
        for _ in 0..3 {
            let outcome = window.fence(|epoch| match job.rank() {
                Rank(0) => epoch.put(Rank(1), 3, &[1, 2]),
                _ => Ok(()),
            });
            match job.rank() {
                Rank(0) => {
                    let error = outcome.unwrap_err();
                    assert!(matches!(error.rma(), Some(RmaError::Range { window_bytes: 4, .. })), "{error}");
                }
                _ => outcome?,
            }
        }
        window.fence(|epoch| epoch.put(Rank(1), 3, &[9]))?;
        assert_eq!(window.local().to_vec()?.last().copied().unwrap_or(9), 9);
        window.free().map(drop)
    });
}

/// Shows: MPI_ERR_RMA_CONFLICT, ours: checker, MPI-4.1 13.7.
#[test]
fn copies_of_the_whole_window_are_compared_with_what_others_do() {
    ranks("copies_of_the_whole_window_are_compared_with_what_others_do", 2, |job| {
        let options =
            WindowOptions { check: Some(true), model: Some(MemoryModel::Separate), ..WindowOptions::DEFAULT };
        let window = job.allocate_with::<u64>(4, &options)?;
        if job.rank() == Rank(0) {
            let exposure = window.post(&job.group(&[Rank(1)])?)?;
            // The put is executed some time, and is not complete here before the wait.
            let came = std::time::Instant::now() + std::time::Duration::from_secs(60);
            let read = loop {
                match window.local().to_vec() {
                    Ok(elements) => assert!(std::time::Instant::now() < came, "{elements:?}"),
                    conflict => break conflict,
                }
                job.progress();
                std::thread::yield_now();
            };
            let filled = window.local().fill(7);
            for (result, expected) in [(read.map(drop), Call::LocalRead), (filled, Call::LocalWrite)] {
                let error = result.unwrap_err();
                let Some(RmaError::Conflict { call, origin: Rank(1), .. }) = error.rma() else {
                    panic!("{error}");
                };
                assert_eq!(*call, expected, "{error}");
            }
            exposure.wait()?;
            assert_eq!(window.local().to_vec()?, [1, 2, 0, 0]);
            window.local().fill(7)?;
            assert_eq!(window.local().to_vec()?, [7; 4]);
        } else {
            window.start(&job.group(&[Rank(0)])?, |epoch| epoch.put(Rank(0), 0, &[1, 2]))?;
        }
        window.free().map(drop)
    });
}
