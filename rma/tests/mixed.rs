//! Jobs whose ranks reach each other by both ways: four ranks on each of two hosts (`ci/apart.sh`), which share memory
//! there, and a network between. What one way does faster than the other must neither keep anybody waiting for ever nor
//! be seen in a result.

mod common;
#[path = "../../tests/processes/src/watchdog.rs"]
mod watchdog;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::*;
use rma::{Element, Error, Integer, Job, LockAllEpoch, LockType, Rank, ReduceOp, Window};
use watchdog::{at, Watchdog};

const PROVIDERS_OF_BOTH: [&str; 2] = ["shm+net", "shm+tcp;ofi_rxm"];

/// Ranks of each host, in the order of their numbers; more on both than a small machine has processors.
const NEIGHBOURS: u32 = 4;
const RANKS: u32 = 2 * NEIGHBOURS;

/// Longest time that a rank may take, seconds, beside what it is told to take: then it says where it is.
const LIMIT: u64 = 150;

/// Seconds for which ranks take turns. Much more than a slice of time of the system's: an owner that has one while nobody
/// else runs takes its own lock hundreds of times, which takes it no round trip.
const TURNS_SECONDS: u64 = 5;

/// The same, if somebody wants another (`RMA_TEST_LIMIT` gives the whole job its time).
const SECONDS: &str = "RMA_TEST_TURNS_SECONDS";

/// Runs `body` in eight ranks on two hosts, over both kinds of networks.
fn on_two_hosts(name: &'static str, body: impl FnOnce(&Job) -> Result<(), Error>) {
    if is_rank() {
        return run_body(|job| {
            // Turns are taken twice.
            let limit = Duration::from_secs(LIMIT) + 2 * wanted();
            let watchdog = Watchdog::start(job.rank(), limit);
            watchdog.begin(name);
            assert_two_hosts(job)?;
            body(job)
        });
    }
    if !can_be_apart() {
        return;
    }
    let hosts = format!("first:{NEIGHBOURS},second:{NEIGHBOURS}");
    for provider in PROVIDERS_OF_BOTH {
        let output = launch_with(name, RANKS, provider, &[], &["--launch-agent", APART, "--host", &hosts]);
        assert!(output.status.success(), "over {provider}: {}", text(&output));
        // For `--nocapture`: what a run has measured.
        println!("over {provider}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Everybody has talked to everybody, and has mapped the memory of the ranks of its host and of no others: without this
/// a test here could pass over one of both ways alone.
fn assert_two_hosts(job: &Job) -> Result<(), Error> {
    at("allocate");
    let window = job.allocate::<u64>(RANKS as usize)?;
    let own = u64::from(job.rank().0);
    let greeting = [own + 1];
    at("fence");
    window.fence(|epoch| (0..RANKS).try_for_each(|rank| epoch.put(Rank(rank), own, &greeting)))?;
    assert!(window.local().to_vec()?.into_iter().eq(1..=u64::from(RANKS)));
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let endpoints = maps.lines().filter(|line| line.contains("memfd:rma-shm "));
    let inodes: BTreeSet<_> = endpoints.filter_map(|line| line.split_whitespace().nth(4)).collect();
    assert_eq!(inodes.len(), NEIGHBOURS as usize, "endpoints in the memory of rank {own}: {maps}");
    window.free().map(drop)
}

/// How long the ranks take turns.
fn wanted() -> Duration {
    let seconds = std::env::var(SECONDS).ok().map(|text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds.unwrap_or(TURNS_SECONDS))
}

/// The counter's place, and the bit of it that says that it counts no further: everybody reads it under the lock, so that
/// all contend until the last turn.
const COUNTER: u64 = 0;
const OVER: u64 = 1 << 63;

/// Adds 1 to the counter of `owner` by get and put under an exclusive lock until whoever has the lock finds that it is
/// enough. Returns this rank's turns.
fn take_turns(window: &Window<u64>, owner: Rank) -> Result<u64, Error> {
    let (begun, wanted) = (Instant::now(), wanted());
    let mut turns = 0;
    loop {
        at("lock, get, put, unlock");
        let is_over = window.lock(owner, LockType::Exclusive, |epoch| {
            let count = epoch.get_value(COUNTER)?;
            if count & OVER != 0 {
                return Ok(true);
            }
            let next = count + 1;
            let is_enough = begun.elapsed() >= wanted;
            epoch.put_value(COUNTER, if is_enough { next | OVER } else { next })?;
            Ok(false)
        })?;
        if is_over {
            return Ok(turns);
        }
        turns += 1;
    }
}

/// Half of those who want the lock share memory with it, or are in its process, and half are on the other host.
///
/// Shows: MPI_Win_lock, MPI_Win_unlock, MPI_LOCK_EXCLUSIVE.
#[test]
fn a_lock_comes_to_neighbours_and_others_alike() {
    on_two_hosts("a_lock_comes_to_neighbours_and_others_alike", |job| {
        for owner in [Rank(0), Rank(RANKS - 1)] {
            let window = job.allocate::<u64>(1 + RANKS as usize)?;
            at("barrier in front of the turns");
            job.barrier()?;
            let own = take_turns(&window, owner)?;
            at("lock, put, unlock");
            window
                .lock(owner, LockType::Shared, |epoch| epoch.put_value(1 + u64::from(job.rank().0), own))?;
            at("barrier behind the turns");
            job.barrier()?;
            if job.rank() == owner {
                judge(owner, &window.local().to_vec()?);
            }
            at("free");
            window.free()?;
        }
        Ok(())
    });
}

/// The owner's counter, and everybody's turns behind it.
fn judge(owner: Rank, words: &[u64]) {
    let (count, turns) = (words[0] & !OVER, &words[1..]);
    let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    // Of the mean.
    let share = |turns: u64| (turns * u64::from(RANKS)) as f64 / count as f64;
    let report = format!(
        "lock at rank {}, {NEIGHBOURS} ranks on each host: {count} turns, of the ranks {turns:?}, {:.2} to {:.2} of the mean",
        owner.0,
        share(*least),
        share(*most)
    );
    println!("{report}");
    assert_eq!(turns.iter().sum::<u64>(), count, "two had the lock at once, or a put came late: {report}");
    // Half for who asks for a time, on a machine that does nothing else. Beside other tests the system's scheduler decides
    // as well, and a lock that is not in order still gives some of the ranks nearly nothing.
    let wanted = if std::env::var_os(SECONDS).is_some() { 0.5 } else { 0.2 };
    assert!(share(*least) >= wanted, "{report}");
}

/// Rounds of the sums. Each has windows of its own, and another target.
const ROUNDS: u32 = 100;

/// Operations of each kind, of each rank, in a round.
const EACH: u64 = 4;

/// What the kinds of operations add: each has a part of the number for itself, so that a wrong sum says which was lost.
const FETCHED: u64 = 1;
const ACCUMULATED: u64 = 1 << 20;
const SWAPPED: u64 = 1 << 40;

/// A number as an element of the window.
struct As<T> {
    of: fn(u64) -> T,
    to: fn(T) -> u64,
}

/// All ranks, the target too, add to one location of the target by every operation that can, and in another window to a
/// floating-point number.
///
/// Shows: MPI_Fetch_and_op, MPI_Accumulate, MPI_Compare_and_swap.
#[test]
fn sums_of_neighbours_and_others_are_exact() {
    on_two_hosts("sums_of_neighbours_and_others_are_exact", |job| {
        let unsigned: As<u64> = As { of: |number| number, to: |element| element };
        // Below zero, as there the sign is in every byte.
        let signed: As<i64> = As { of: |number| -(number as i64), to: |element| element.unsigned_abs() };
        for round in 0..ROUNDS {
            // By turns, so that each target has both.
            match round / RANKS % 2 {
                0 => add_up(job, round, &unsigned)?,
                _ => add_up(job, round, &signed)?,
            }
        }
        println!("{ROUNDS} rounds: every sum was exact");
        Ok(())
    });
}

/// One round: windows are allocated, or created over memory that neighbours have not mapped.
fn add_up<T: Integer>(job: &Job, round: u32, numbers: &As<T>) -> Result<(), Error> {
    let target = Rank(round % RANKS);
    let olds_each = 2 * EACH as usize;
    let elements = 1 + RANKS as usize * olds_each;
    at("allocate or create");
    let (window, reals) = if round % 3 == 0 {
        (job.create(vec![(numbers.of)(0); elements])?, job.create(vec![0.0])?)
    } else {
        (job.allocate::<T>(elements)?, job.allocate::<f64>(1)?)
    };
    let olds = add(&window, &reals, target, numbers)?;
    at("lock, put, unlock");
    let place = 1 + u64::from(job.rank().0) * olds.len() as u64;
    window.lock(target, LockType::Shared, |epoch| epoch.put(place, &olds))?;
    at("barrier behind the operations");
    job.barrier()?;
    if job.rank() == target {
        let found: Vec<u64> = window.local().to_vec()?.into_iter().map(numbers.to).collect();
        assert_exact(round, found[0], &found[1..]);
        // Multiples of a half, so that no order of the additions rounds.
        let real = 0.5 * f64::from(RANKS * (RANKS + 1) / 2) * EACH as f64;
        assert_eq!(reals.local().get(0)?, real, "round {round}");
    }
    at("free");
    window.free()?;
    reals.free().map(drop)
}

/// This rank's operations. Returns what fetch_and_op and the successful compare_and_swap found, by turns.
fn add<T: Integer>(
    window: &Window<T>,
    reals: &Window<f64>,
    target: Rank,
    numbers: &As<T>,
) -> Result<Vec<T>, Error> {
    let accumulated = [(numbers.of)(ACCUMULATED)];
    let real = [0.5 * f64::from(window.job().rank().0 + 1)];
    let mut olds = Vec::new();
    at("barrier in front of the operations");
    window.job().barrier()?;
    at("lock_all and operations");
    reals.lock_all(|real_epoch| {
        window.lock_all(|epoch| {
            for _ in 0..EACH {
                olds.push(epoch.fetch_and_op(target, 0, (numbers.of)(FETCHED), ReduceOp::Sum)?);
                epoch.accumulate(target, 0, &accumulated, ReduceOp::Sum)?;
                real_epoch.accumulate(target, 0, &real, ReduceOp::Sum)?;
                olds.push(swap(epoch, target, numbers)?);
            }
            Ok(())
        })
    })?;
    Ok(olds)
}

/// Adds by compare_and_swap; returns what was there before.
fn swap<T: Integer>(epoch: &LockAllEpoch<'_, '_, T>, target: Rank, numbers: &As<T>) -> Result<T, Error> {
    let mut expected = 0;
    loop {
        let (old, new) = ((numbers.of)(expected), (numbers.of)(expected + SWAPPED));
        let found = epoch.compare_and_swap(target, 0, old, new)?;
        if (numbers.to)(found) == expected {
            return Ok(found);
        }
        expected = (numbers.to)(found);
    }
}

/// The sum is that of all operations, and of each kind the old values show every step of its own part once.
fn assert_exact(round: u32, sum: u64, olds: &[u64]) {
    let times = u64::from(RANKS) * EACH;
    assert_eq!(
        sum,
        times * (FETCHED + ACCUMULATED + SWAPPED),
        "round {round}: {sum:#x}, {times} of each kind"
    );
    let steps = |first: usize, part: fn(u64) -> u64| {
        let mut steps: Vec<u64> = olds.iter().skip(first).step_by(2).map(|old| part(*old)).collect();
        steps.sort_unstable();
        steps
    };
    let by_fetching = steps(0, |old| old % ACCUMULATED);
    let by_swapping = steps(1, |old| old / SWAPPED);
    assert!(by_fetching.into_iter().eq(0..times), "round {round}, fetch_and_op: {olds:x?}");
    assert!(by_swapping.into_iter().eq(0..times), "round {round}, compare_and_swap: {olds:x?}");
}

/// Elements that are added to at once, and alone.
const MANY: usize = 3000;

/// Every rank adds to all elements of a target, to a part of them, and to single ones, by turns and at any time: neighbours by
/// their own processors, others by messages that the target's executes, and the target itself.
///
/// Shows: MPI_Accumulate, MPI_Get_accumulate, MPI_Fetch_and_op.
#[test]
fn large_sums_of_neighbours_and_others_are_exact() {
    on_two_hosts("large_sums_of_neighbours_and_others_are_exact", |job| {
        for round in 0..4 {
            add_many::<u64>(job, Rank(3 * round % RANKS), |number| number)?;
            add_many::<f64>(job, Rank((3 * round + 5) % RANKS), |number| number as f64)?;
        }
        Ok(())
    });
}

fn add_many<T: Element>(job: &Job, target: Rank, number_of: fn(u64) -> T) -> Result<(), Error> {
    let window = job.allocate::<T>(MANY)?;
    let (one, hundred) = (vec![number_of(1); MANY], vec![number_of(100); MANY / 3]);
    let mut seen = vec![hundred.clone(); 40];
    at("barrier in front of the operations");
    job.barrier()?;
    at("lock_all and operations");
    window.lock_all(|epoch| {
        for (step, seen) in (0..).zip(&mut seen) {
            epoch.accumulate(target, 0, &one, ReduceOp::Sum)?;
            epoch.get_accumulate(target, MANY as u64 / 3, &hundred, seen, ReduceOp::Sum)?;
            // Long enough, now and then, for single elements to be changed by atomics again.
            for index in 0..if step % 10 == 0 { 90 } else { 2 } {
                epoch.fetch_and_op(target, index, number_of(10_000), ReduceOp::Sum)?;
            }
            epoch.flush(target)?;
        }
        Ok(())
    })?;
    at("barrier behind the operations");
    job.barrier()?;
    if job.rank() == target {
        let expected = |index: usize| {
            let parts = usize::from((MANY / 3..2 * (MANY / 3)).contains(&index));
            let singles = if index < 2 { 40 } else { 4 * usize::from(index < 90) };
            number_of(u64::from(RANKS) * (40 + 4000 * parts + 10_000 * singles) as u64)
        };
        let found = window.local().to_vec()?;
        for (index, found) in found.into_iter().enumerate() {
            assert!(found == expected(index), "element {index}: {found:?}");
        }
    }
    at("free");
    window.free().map(drop)
}
