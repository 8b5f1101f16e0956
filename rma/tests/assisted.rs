//! Atomics that are messages, on neighbours. On memory that these have not mapped a target that polls does them itself when it is
//! asked, one that is away gets them as packets, and neither way loses or repeats one. On memory that they have mapped they do them.

mod common;

use std::time::{Duration, Instant};

use common::{is_rank, launch, run_body, text};
use rma::raw::RawWindow;
use rma::{Complex, Counters, Dtype, Element, Error, Job, LockAllEpoch, Rank, ReduceOp, ValueIndex, Window};

/// Over these ranks of one host share memory.
const PROVIDERS: [&str; 2] = ["shm", "shm+net"];

const TARGET: Rank = Rank(1);

/// Operations that a target is to have done itself, at least, and for how long at most they are waited for: for that both ranks
/// must run at one time.
const ASSISTED_MIN: u64 = 100;
const WAIT: Duration = Duration::from_secs(100);

fn near(name: &str, count: u32, variables: &[(&str, &str)], body: impl FnOnce(&Job) -> Result<(), Error>) {
    if is_rank() {
        return run_body(body);
    }
    for provider in PROVIDERS {
        let output = launch(name, count, provider, variables);
        assert!(output.status.success(), "over {provider}: {}", text(&output));
    }
}

fn packets(counters: &Counters) -> u64 {
    counters.packets_sent.iter().sum()
}

/// Looks for work until the origin has said that all is over, and does something else between two looks.
fn serve(job: &Job, over: &Window<u64>, mut between: impl FnMut()) -> Result<(), Error> {
    while over.local().get(0)? == 0 {
        job.progress();
        between();
    }
    Ok(())
}

/// Adds 1 to the target's element in each way by turns, and compares what was there before; returns how many were added.
/// Each is the target's doing without a packet, or a message.
fn add(
    job: &Job,
    epoch: &LockAllEpoch<'_, '_, u64>,
    is_enough: impl Fn(&Counters) -> bool,
) -> Result<u64, Error> {
    let (begun, first, mut count) = (Instant::now(), job.counters(), 0);
    while count < 3 * ASSISTED_MIN || (!is_enough(&job.counters().since(&first)) && begun.elapsed() < WAIT) {
        let before = job.counters();
        let found = match count % 3 {
            0 => epoch.fetch_and_op(TARGET, 0, 1, ReduceOp::Sum)?,
            1 => epoch.compare_and_swap(TARGET, 0, count, count + 1)?,
            _ => {
                epoch.accumulate(TARGET, 0, &[1], ReduceOp::Sum)?;
                epoch.flush(TARGET)?;
                count
            }
        };
        let cost = job.counters().since(&before);
        assert_eq!(found, count);
        assert_eq!(cost.assists + cost.message_operations, 1, "{cost:?}");
        assert!(cost.assists == 0 || packets(&cost) == 0, "a packet for what is done: {cost:?}");
        count += 1;
    }
    assert!(is_enough(&job.counters().since(&first)), "{:?}", job.counters().since(&first));
    Ok(count)
}

fn origin_and_target(
    job: &Job,
    is_enough: impl Fn(&Counters) -> bool,
    between: impl FnMut(),
) -> Result<(), Error> {
    let (window, over) = (job.create(vec![0_u64])?, job.allocate::<u64>(1)?);
    if job.rank() == TARGET {
        serve(job, &over, between)?;
    } else {
        let count = window.lock_all(|epoch| add(job, epoch, is_enough))?;
        over.lock_all(|epoch| epoch.put_value(TARGET, 0, count))?;
    }
    job.barrier()?;
    assert_eq!(window.local().get(0)?, over.local().get(0)?, "one was lost, or done twice");
    over.free()?;
    window.free().map(drop)
}

/// Shows: MPI_Fetch_and_op, MPI_Compare_and_swap, MPI_Accumulate, MPI_Win_create.
#[test]
fn a_target_that_polls_does_atomics_without_a_packet() {
    let name = "a_target_that_polls_does_atomics_without_a_packet";
    near(name, 2, &[], |job| origin_and_target(job, |counts| counts.assists >= ASSISTED_MIN, || {}))
}

/// Shows: MPI_Fetch_and_op, MPI_Compare_and_swap, MPI_Accumulate, MPI_Win_create.
#[test]
fn a_target_that_computes_gets_them_as_packets() {
    // Longer than it is waited for.
    let compute = || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(50) {
            std::hint::spin_loop();
        }
    };
    let is_enough = |counts: &Counters| counts.message_operations >= ASSISTED_MIN;
    near("a_target_that_computes_gets_them_as_packets", 2, &[("RMA_PROGRESS", "none")], |job| {
        origin_and_target(job, is_enough, compute)
    });
}

/// Shows: MPI_Fetch_and_op, MPI_Win_create.
#[test]
fn nobody_is_asked_where_all_are_messages() {
    near("nobody_is_asked_where_all_are_messages", 2, &[("RMA_FORCE_MESSAGE_PATH", "1")], |job| {
        let is_enough = |counts: &Counters| counts.assists == 0 && counts.message_operations > 0;
        origin_and_target(job, is_enough, || {})
    });
}

/// Elements of which one is changed by itself, and the others together.
const ELEMENTS: usize = 6;

/// Atomics of each kind that is no swap, on one element and on several, to a target that is not there; each element is what
/// `of(3)` is afterwards.
fn without_the_target<T: Element>(job: &Job, of: fn(u8) -> T, op: ReduceOp) -> Result<(), Error> {
    let (window, over) = (job.allocate::<T>(ELEMENTS)?, job.allocate::<u64>(1)?);
    if job.rank() == TARGET {
        (0..ELEMENTS).try_for_each(|place| window.local().set(place, of(0)))?;
    }
    job.barrier()?;
    if job.rank() != TARGET {
        window.lock_all(|epoch| {
            // The lock, and where the window is.
            epoch.get_value(TARGET, 0)?;
            let before = job.counters();
            assert_eq!(epoch.fetch_and_op(TARGET, 0, of(1), op)?, of(0));
            let (numbers, mut found) =
                ([of(1), of(2)].map(|number| [number; ELEMENTS - 1]), [of(9); ELEMENTS - 1]);
            epoch.batch(|batch| batch.accumulate(TARGET, 0, &numbers[1][..1], op))?;
            epoch.batch(|batch| batch.get_accumulate(TARGET, 1, &numbers[0], &mut found, op))?;
            assert!(found.iter().all(|found| *found == of(0)), "{}", T::DTYPE.name());
            epoch.batch(|batch| batch.accumulate(TARGET, 1, &numbers[1], op))?;
            let cost = job.counters().since(&before);
            assert_eq!(
                (cost.native_atomics, packets(&cost), cost.assists),
                (4, 0, 0),
                "{}: {cost:?}",
                T::DTYPE.name()
            );
            Ok(())
        })?;
        over.lock_all(|epoch| epoch.put_value(TARGET, 0, 1))?;
    } else {
        // No call of the library, so that nothing is done here.
        while over.local().get(0)? == 0 {
            std::thread::yield_now();
        }
    }
    job.barrier()?;
    if job.rank() == TARGET {
        for place in 0..ELEMENTS {
            assert!(window.local().get(place)? == of(3), "{} {place}", T::DTYPE.name());
        }
    }
    over.free()?;
    window.free().map(drop)
}

/// Beside a network integers are messages to ranks of other hosts; floats, pairs and complex numbers are everywhere.
///
/// Shows: MPI_Fetch_and_op, MPI_Accumulate, MPI_Win_allocate.
#[test]
fn atomics_on_mapped_memory_want_nothing_of_the_target() {
    let name = "atomics_on_mapped_memory_want_nothing_of_the_target";
    near(name, 2, &[("RMA_PROGRESS", "none")], |job| {
        without_the_target(job, |number| number, ReduceOp::Sum)?;
        without_the_target(job, |number| 100 * i16::from(number), ReduceOp::Sum)?;
        without_the_target(job, u32::from, ReduceOp::Sum)?;
        without_the_target(job, |number| i64::from(number) << 40, ReduceOp::Sum)?;
        without_the_target(job, f32::from, ReduceOp::Sum)?;
        without_the_target(job, |number| f64::from(number) / 4.0, ReduceOp::Sum)?;
        let complex = |number| Complex { re: f32::from(number), im: -f32::from(number) };
        without_the_target(job, complex, ReduceOp::Sum)?;
        // The greatest is the last one.
        without_the_target(job, |number| ValueIndex::new(i32::from(number.min(2)), 5), ReduceOp::MaxLoc)
    });
}

/// The owner of an element that a neighbour's processor changes reads and writes all of it.
///
/// Shows: MPI_Accumulate, MPI_Win_allocate.
#[test]
fn owners_find_elements_of_two_parts_whole() {
    near("owners_find_elements_of_two_parts_whole", 2, &[], |job| {
        const TIMES: i32 = 20_000;
        let (window, over) = (job.allocate::<ValueIndex<i32>>(1)?, job.allocate::<u64>(1)?);
        let of = |number: i32| ValueIndex::new(number, -number);
        let is_whole = |element: ValueIndex<i32>| element.index() == -element.value();
        if job.rank() == TARGET {
            let mut number = 0;
            while over.local().get(0)? == 0 {
                assert!(is_whole(window.local().get(0)?), "{:?}", window.local().get(0));
                number += 1;
                window.local().set(0, of(-number))?;
            }
        } else {
            window.lock_all(|epoch| {
                (1..=TIMES).try_for_each(|number| {
                    let found = epoch.fetch_and_op(TARGET, 0, of(number), ReduceOp::Replace)?;
                    assert!(is_whole(found), "{found:?}");
                    Ok(())
                })
            })?;
            over.lock_all(|epoch| epoch.put_value(TARGET, 0, 1))?;
        }
        job.barrier()?;
        over.free()?;
        window.free().map(drop)
    });
}

const RANKS: u32 = 3;
const THREADS: u64 = 2;
const ROUNDS: u64 = 100;

/// Where the numbers are: words, and one that is floating-point.
const FETCHED: u64 = 0;
const SWAPPED: u64 = 1;
const ACCUMULATED: u64 = 2;
const REAL: u64 = 3;

/// Every thread of every rank adds to numbers of every rank, its own too, in each way.
///
/// Shows: MPI_Fetch_and_op, MPI_Compare_and_swap, MPI_Accumulate, MPI_Win_create.
#[test]
fn sums_of_threads_and_ranks_are_exact() {
    near("sums_of_threads_and_ranks_are_exact", RANKS, &[], |job| {
        let mut memory = vec![0_u64; 4];
        // SAFETY: the memory outlives the window, and is read when that is freed.
        let window = unsafe { RawWindow::create(job, memory.as_mut_ptr().cast(), 32, 8) }?;
        window.lock_all(false)?;
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| rounds(&window).unwrap());
            }
        });
        window.unlock_all()?;
        job.barrier()?;
        let counts = job.counters();
        window.free()?;
        let times = u64::from(RANKS) * THREADS * ROUNDS;
        assert_eq!(memory[..3], [times, times, times], "rank {}, {counts:?}", job.rank().0);
        // Multiples of a half: no order of the additions rounds.
        assert_eq!(f64::from_bits(memory[3]), 0.5 * times as f64);
        Ok(())
    });
}

fn rounds(window: &RawWindow) -> Result<(), Error> {
    let (one, half) = (1_u64, 0.5_f64);
    let one_at = (&raw const one).cast();
    let mut last = [0; RANKS as usize];
    for round in 0..ROUNDS {
        for target in (0..RANKS).map(Rank) {
            let mut old = u64::MAX;
            let into = (&raw mut old).cast();
            // SAFETY: the numbers live until the flush that follows; so for all of these.
            unsafe { window.fetch_and_op(one_at, into, Dtype::U64, target, FETCHED, ReduceOp::Sum) }?;
            window.flush(target)?;
            let last = &mut last[target.0 as usize];
            assert!(round == 0 || old > *last, "an addition of this thread is not seen by its next");
            *last = old;
            swap(window, target)?;
            let real = (&raw const half).cast();
            // SAFETY: as above.
            unsafe { window.accumulate(real, 1, Dtype::F64, target, REAL, ReduceOp::Sum) }?;
            // SAFETY: as above.
            unsafe { window.accumulate(one_at, 1, Dtype::U64, target, ACCUMULATED, ReduceOp::Sum) }?;
            // Several that nobody completes in between, by turns.
            if round % 4 == 0 {
                window.flush(target)?;
            }
        }
    }
    window.flush_all()
}

/// Adds 1 by compare_and_swap.
fn swap(window: &RawWindow, target: Rank) -> Result<(), Error> {
    let (mut expected, mut found) = (0_u64, u64::MAX);
    loop {
        let new = expected + 1;
        let (origin, compare) = ((&raw const new).cast(), (&raw const expected).cast());
        let result = (&raw mut found).cast();
        // SAFETY: the numbers live until the flush.
        unsafe { window.compare_and_swap(origin, compare, result, Dtype::U64, target, SWAPPED) }?;
        window.flush(target)?;
        if found == expected {
            return Ok(());
        }
        expected = found;
    }
}
