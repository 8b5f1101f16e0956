//! A target that stays outside of the library does not stall its origins: the agent serves them, or nobody needs to.
//!
//! Nothing here is a matter of time. The target blocks in a read of a connection of its own until the origin writes
//! to it, which the origin does after its operations: were they not served before the target comes back, neither
//! would go on, and the launcher's limit would end the job.

mod common;

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use common::*;
use rma::raw::RawWindow;
use rma::{Error, Job, LockProtocol, LockType, Rank, ReduceOp, Window, WindowOptions};

/// Times that each operation is done, with either kind of target.
const REPEATS: usize = 40;

/// Turns that a thread gives away before it says that what nobody serves waits.
const LOOKS: usize = 2000;

const TARGET: Rank = Rank(1);

const OPERATIONS: [&str; 4] = ["put+flush", "get", "fetch_and_op", "lock-put-unlock"];

/// Does every operation [`REPEATS`] times, checks what it did, and tells the median microseconds of each.
fn operate(window: &Window<u64>) -> Result<[f64; 4], Error> {
    let sum = window.lock_all(|epoch| epoch.get_value(TARGET, 2))?;
    let mut medians = [0.0; 4];
    for (operation, median) in medians.iter_mut().enumerate() {
        let mut times = Vec::with_capacity(REPEATS);
        let mut timed = |body: &mut dyn FnMut() -> Result<(), Error>| {
            let begun = Instant::now();
            body()?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
            Ok::<_, Error>(())
        };
        for round in 0..REPEATS as u64 {
            let value = [round];
            match operation {
                3 => timed(&mut || window.lock(TARGET, LockType::Exclusive, |epoch| epoch.put(1, &value)))?,
                _ => window.lock_all(|epoch| {
                    // The first operation of an epoch takes the lock, which is not what is measured.
                    epoch.get_value(TARGET, 0)?;
                    timed(&mut || match operation {
                        0 => epoch.put_value(TARGET, 0, round),
                        1 => epoch.get_value(TARGET, 0).map(|value| assert_eq!(value, REPEATS as u64 - 1)),
                        _ => epoch
                            .fetch_and_op(TARGET, 2, 1, ReduceOp::Sum)
                            .map(|old| assert_eq!(old, sum + round)),
                    })
                })?,
            }
        }
        times.sort_by(f64::total_cmp);
        *median = times[REPEATS / 2];
    }
    let last = window.lock_all(|epoch| Ok([epoch.get_value(TARGET, 1)?, epoch.get_value(TARGET, 2)?]))?;
    assert_eq!(last, [REPEATS as u64 - 1, sum + REPEATS as u64]);
    Ok(medians)
}

/// A connection between the two ranks that the library knows nothing of.
fn meet(job: &Job, window: &Window<u64>) -> Result<TcpStream, Error> {
    if job.rank() == TARGET {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        window.local().set(0, u64::from(listener.local_addr().unwrap().port()))?;
        job.barrier()?;
        job.barrier()?;
        return Ok(listener.accept().unwrap().0);
    }
    job.barrier()?;
    let port = window.lock_all(|epoch| epoch.get_value(TARGET, 0))?;
    job.barrier()?;
    Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, u16::try_from(port).unwrap())).unwrap())
}

/// The target's part: says that it is outside of the library, and comes back when the origin says so.
fn stay_away(origin: &mut TcpStream) {
    origin.write_all(b"away").unwrap();
    origin.read_exact(&mut [0; 4]).unwrap();
}

/// The origin's part: returns when the target is outside of the library.
fn wait_until_away(target: &mut TcpStream) {
    target.read_exact(&mut [0; 4]).unwrap();
}

/// The origin's part: lets the target come back.
fn call_back(target: &mut TcpStream) {
    target.write_all(b"back").unwrap();
}

/// Locks are messages where it matters who serves them: of words, which neighbours have by default, nobody does.
const BY_MESSAGE: (&str, &str) = ("RMA_LOCK_PROTOCOL", "message");

/// Shows: notes: agent as a thread, MPI-4.1 13.7.3.
#[test]
fn a_target_that_is_away_does_not_stall_its_origins() {
    let name = "a_target_that_is_away_does_not_stall_its_origins";
    ranks_with(name, 2, &[("RMA_PROGRESS", "thread"), BY_MESSAGE], polling_and_away);
}

/// Shows: notes: agent as a signal, MPI-4.1 13.7.3.
#[test]
fn a_target_that_is_away_is_served_by_signals() {
    let name = "a_target_that_is_away_is_served_by_signals";
    ranks_with(name, 2, &[("RMA_PROGRESS", "signal"), BY_MESSAGE], polling_and_away);
}

/// Shows: notes: agent as a process, MPI-4.1 13.7.3.
#[test]
fn a_target_that_is_away_is_served_by_its_ghost() {
    let name = "a_target_that_is_away_is_served_by_its_ghost";
    ranks_with(name, 2, &[("RMA_PROGRESS", "ghost")], polling_and_away);
}

/// The same with locks as they are by default, which are words where ranks share memory, and packets elsewhere.
///
/// Shows: notes: agent as a thread, MPI-4.1 13.7.3.
#[test]
fn a_target_that_is_away_does_not_stall_locks_of_the_default() {
    let name = "a_target_that_is_away_does_not_stall_locks_of_the_default";
    ranks_with(name, 2, &[("RMA_PROGRESS", "thread")], polling_and_away);
}

/// With nobody who serves them, neighbours have locks all the same, which nobody has to grant: a target that stays outside
/// of the library is locked, written and read, by default. It has said before where the words are.
///
/// Shows: ours: rma_lock_protocol, MPI-4.1 13.7.3.
#[test]
fn without_a_driver_neighbours_take_locks_of_a_target_that_is_away() {
    let name = "without_a_driver_neighbours_take_locks_of_a_target_that_is_away";
    if is_rank() {
        return run_body(lock_while_away);
    }
    for provider in ["shm", "shm+net"] {
        let output = launch(name, 2, provider, &[("RMA_PROGRESS", "none")]);
        assert!(output.status.success(), "over {provider}: {}", text(&output));
    }
}

/// Takes every kind of lock of a target that comes back when that is done.
fn lock_while_away(job: &Job) -> Result<(), Error> {
    let window = job.allocate::<u64>(3)?;
    let mut peer = meet(job, &window)?;
    if job.rank() == TARGET {
        stay_away(&mut peer);
    } else {
        wait_until_away(&mut peer);
        for round in 0..REPEATS as u64 {
            let value = [round];
            window.lock(TARGET, LockType::Exclusive, |epoch| epoch.put(1, &value))?;
            let old = window.lock(TARGET, LockType::Shared, |epoch| epoch.get_value(1))?;
            window.lock_all(|epoch| epoch.put_value(TARGET, 2, old + 1))?;
            assert_eq!(window.lock_all(|epoch| epoch.get_value(TARGET, 2))?, round + 1);
        }
        call_back(&mut peer);
    }
    job.barrier()?;
    window.free().map(drop)
}

/// Without a driver the origin waits for a lock by message until the target is back: what the others are compared with.
#[test]
fn without_a_driver_a_target_that_is_away_serves_nobody() {
    let name = "without_a_driver_a_target_that_is_away_serves_nobody";
    ranks_with(name, 2, &[("RMA_PROGRESS", "none"), BY_MESSAGE], |job| {
        let window = job.allocate::<u64>(3)?;
        let mut peer = meet(job, &window)?;
        if job.rank() == TARGET {
            stay_away(&mut peer);
        } else {
            wait_until_away(&mut peer);
            lock_and_look(&window, &mut peer)?;
        }
        job.barrier()?;
        window.free().map(drop)
    });
}

/// Locks a target that serves nobody, while a thread looks, and calls the target back after a while.
fn lock_and_look(window: &Window<u64>, target: &mut TcpStream) -> Result<(), Error> {
    let (has_begun, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            while !has_begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            for _ in 0..LOOKS {
                std::thread::yield_now();
            }
            let was_done = is_done.load(Ordering::Relaxed);
            call_back(target);
            was_done
        });
        has_begun.store(true, Ordering::Relaxed);
        let done = window.lock(TARGET, LockType::Exclusive, |epoch| epoch.put(1, &[7]));
        is_done.store(true, Ordering::Relaxed);
        assert!(!looks.join().unwrap(), "a lock was granted by a target that was outside of the library");
        done
    })
}

/// Without a driver who calls nothing but what is over at once serves others all the same, now and then: in epochs with
/// operations and in epochs without any.
#[test]
fn calls_that_are_over_at_once_serve_others_now_and_then() {
    let name = "calls_that_are_over_at_once_serve_others_now_and_then";
    if is_rank() {
        return run_body(serve_by_the_way);
    }
    let output = launch(name, 2, "shm", &[("RMA_PROGRESS", "none")]);
    assert!(output.status.success(), "{}", text(&output));
}

/// The origin's calls, which go to a neighbour, until that says by a connection of its own that the origin has granted its lock by
/// message: to look into the window would be a call that serves, too.
fn serve_by_the_way(job: &Job) -> Result<(), Error> {
    let by_message = WindowOptions { lock_protocol: Some(LockProtocol::Message), ..WindowOptions::default() };
    let (near, asked) = (job.allocate::<u64>(1)?, job.allocate_with::<u64>(1, &by_message)?);
    let raw = RawWindow::allocate_with(job, 8, 1, &WindowOptions::default())?;
    let peer = meet(job, &near)?;
    peer.set_nonblocking(true).unwrap();
    let served = Cell::new(false);
    let is_served = || {
        served.set(served.get() || (&peer).read(&mut [0; 1]).is_ok_and(|count| count == 1));
        served.get()
    };
    let ways: [&dyn Fn() -> Result<(), Error>; 5] = [
        &|| near.lock(TARGET, LockType::Exclusive, |epoch| epoch.put(0, &[1])),
        &|| near.lock_all(|_| Ok(())),
        &|| raw.lock(LockType::Exclusive, TARGET, false).and_then(|()| raw.unlock(TARGET)),
        &|| raw.lock_all(false).and_then(|()| raw.unlock_all()),
        &|| {
            raw.lock_all(false)?;
            while !is_served() {
                raw.flush(TARGET)?;
            }
            raw.unlock_all()
        },
    ];
    for call in ways {
        job.barrier()?;
        if job.rank() == TARGET {
            asked.lock(Rank(0), LockType::Exclusive, |epoch| epoch.put(0, &[1]))?;
            (&peer).write_all(&[1]).unwrap();
            continue;
        }
        served.set(false);
        while !is_served() {
            call()?;
        }
    }
    job.barrier()?;
    asked.free()?;
    raw.free()?;
    near.free().map(drop)
}

/// Does every operation with a target that polls, and with one that is away.
fn polling_and_away(job: &Job) -> Result<(), Error> {
    let (window, done) = (job.allocate::<u64>(3)?, job.allocate::<u64>(1)?);
    let mut peer = meet(job, &window)?;
    if job.rank() == TARGET {
        while done.local().get(0)? == 0 {
            if job.progress() == 0 {
                std::thread::yield_now();
            }
        }
        stay_away(&mut peer);
    } else {
        let polling = operate(&window)?;
        done.lock_all(|epoch| epoch.put_value(TARGET, 0, 1))?;
        wait_until_away(&mut peer);
        let away = operate(&window)?;
        call_back(&mut peer);
        println!("{OPERATIONS:?}: target polling {polling:.1?} us, away {away:.1?} us");
    }
    job.barrier()?;
    done.free()?;
    window.free().map(drop)
}
