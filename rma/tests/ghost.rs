//! Ranks whose target role is a process beside them.

mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::*;
use rma::raw::RawWindow;
use rma::{Dtype, Error, Job, LockType, Rank, ReduceOp, WindowOptions};

const GHOST: (&str, &str) = ("RMA_PROGRESS", "ghost");

/// Longest time that anything in here may take, beside a job's own limit.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a ghost's process is called, if there is such a process.
fn name_of(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(PathBuf::from(format!("/proc/{pid}/comm"))).ok()?;
    Some(name.trim().to_owned())
}

/// The ghosts that the ranks of a job have told of.
fn ghosts_in(output: &str) -> Vec<u32> {
    let told = output.lines().filter_map(|line| line.split_once("my ghost is "));
    told.filter_map(|(_, pid)| pid.trim().parse().ok()).collect()
}

/// Waits until none of the ghosts is there any more.
fn all_end(ghosts: &[u32]) {
    let begun = Instant::now();
    while let Some(pid) = ghosts.iter().find(|&&pid| name_of(pid).is_some_and(|name| name == "rma-ghost")) {
        assert!(begun.elapsed() < PATIENCE, "the ghost {pid} is left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn tell_of_ghost(job: &Job) -> u32 {
    let pid = job.ghost().expect("a rank with a ghost");
    assert_eq!(name_of(pid).as_deref(), Some("rma-ghost"));
    println!("my ghost is {pid}");
    pid
}

/// While a rank is outside of the library its windows are served, and its own process has no part in it.
///
/// Shows: notes: agent as a process, MPI-4.1 13.7.3.
#[test]
fn a_rank_that_is_away_executes_nothing() {
    ranks_with("a_rank_that_is_away_executes_nothing", 2, &[GHOST], |job| {
        let window = job.allocate::<u64>(4)?;
        assert!(window.is_served());
        job.barrier()?;
        if job.rank() == Rank(0) {
            let mut got = [0; 1];
            for round in 0..20 {
                let value = [round];
                window.lock(Rank(1), LockType::Exclusive, |epoch| {
                    assert_eq!(epoch.fetch_and_op(0, 2, ReduceOp::Sum)?, 2 * round);
                    epoch.put(1, &value)
                })?;
                window.lock_all(|epoch| epoch.get(Rank(1), 1, &mut got))?;
                assert_eq!(got, [round]);
            }
            window.lock(Rank(1), LockType::Shared, |epoch| epoch.put(3, &[1]))?;
        } else {
            let before = job.counters();
            let begun = Instant::now();
            // Loads of its own memory, and sleep: no call that makes progress.
            while window.local().get(3)? == 0 {
                assert!(begun.elapsed() < PATIENCE, "nobody serves this rank");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(job.counters(), before);
            assert_eq!(window.local().to_vec()?, [40, 19, 0, 1]);
        }
        job.barrier()?;
        window.free().map(drop)
    });
}

/// One lock and one atomicity domain for a rank and the others.
///
/// Shows: notes: agent as a process, MPI-4.1 13.7.1.
#[test]
fn a_rank_shares_its_window_with_the_others() {
    const ROUNDS: u64 = 50;
    ranks_with("a_rank_shares_its_window_with_the_others", 3, &[GHOST], |job| {
        let window = job.allocate::<u64>(2)?;
        for _ in 0..ROUNDS {
            window.lock_all(|epoch| epoch.fetch_and_op(Rank(1), 0, 1, ReduceOp::Sum).map(drop))?;
            // Not atomic, but for the lock.
            window.lock(Rank(1), LockType::Exclusive, |epoch| {
                let seen = epoch.fetch_and_op(1, 0, ReduceOp::NoOp)?;
                epoch.put_value(1, seen + 1)
            })?;
        }
        job.barrier()?;
        if job.rank() == Rank(1) {
            assert_eq!(window.local().to_vec()?, [3 * ROUNDS, 3 * ROUNDS]);
            // Under its own lock a rank loads and stores directly.
            window.lock(Rank(1), LockType::Exclusive, |_| window.local().set(0, 7))?;
        }
        job.barrier()?;
        let mut seen = [0];
        window.fence(|epoch| epoch.get(Rank(1), 0, &mut seen))?;
        assert_eq!(seen, [7]);
        window.free().map(drop)
    });
}

/// What a ghost cannot map stays with its rank.
///
/// Shows: notes: agent as a process.
#[test]
fn windows_over_the_users_memory_stay_with_their_rank() {
    ranks_with("windows_over_the_users_memory_stay_with_their_rank", 2, &[GHOST], |job| {
        let window = job.create(vec![0u32; 8])?;
        assert!(!window.is_served());
        window.fence(|epoch| epoch.accumulate(Rank(0), 0, &[1; 8], ReduceOp::Sum))?;
        if job.rank() == Rank(0) {
            assert_eq!(window.local().to_vec()?, [2; 8]);
        }
        window.free().map(drop)
    });
}

/// Once for each kind of window, at one rank, and with the remedy.
///
/// Shows: notes: agent as a process.
#[test]
fn what_no_ghost_serves_is_said() {
    let name = "what_no_ghost_serves_is_said";
    if is_rank() {
        return run_body(|job| {
            let checked = WindowOptions { check: Some(true), ..WindowOptions::default() };
            for _ in 0..2 {
                job.allocate::<u64>(1)?.free()?;
                job.create(vec![0_u32; 8])?.free()?;
                RawWindow::allocate_shared(job, 64, 1, &WindowOptions::default())?.free()?;
                RawWindow::create_dynamic(job, &WindowOptions::default())?.free()?;
                RawWindow::allocate_with(job, 64, 1, &checked)?.free()?;
            }
            Ok(())
        });
    }
    let kinds = [
        "windows over the program's own memory",
        "windows of shared memory",
        "dynamic windows",
        "windows that are checked",
    ];
    for (variables, times) in [(&[GHOST][..], 1), (&[], 0)] {
        let output = launch(name, 2, "net", variables);
        let text = text(&output);
        assert!(output.status.success(), "{text}");
        for kind in kinds {
            let said = text.lines().filter(|line| line.contains(&format!("does not serve {kind}")));
            let said: Vec<_> = said.collect();
            assert_eq!(said.len(), times, "{kind}: {text}");
            assert!(said.iter().all(|line| line.contains("rank 0") && line.contains("RMA_PROGRESS=thread")));
        }
        assert_eq!(text.matches("does not serve").count(), times * kinds.len(), "{text}");
    }
}

/// Ghosts end with their ranks, whether these finalize or are killed.
#[test]
fn nothing_is_left() {
    let name = "nothing_is_left";
    if is_rank() {
        return run_body(|job| {
            let window = job.allocate::<u64>(1)?;
            tell_of_ghost(job);
            job.barrier()?;
            if std::env::var_os("RMA_TEST_IS_KILLED").is_some() && job.rank() == Rank(1) {
                let own = std::process::id().to_string();
                assert!(std::process::Command::new("kill").args(["-9", &own]).status().unwrap().success());
            }
            window.free().map(drop)
        });
    }
    for variables in [&[GHOST][..], &[GHOST, ("RMA_TEST_IS_KILLED", "1")]] {
        let output = launch(name, 2, "net", variables);
        assert_eq!(output.status.success(), variables.len() == 1, "{}", text(&output));
        let mut ghosts = ghosts_in(&text(&output));
        // The launcher repeats the last lines of one that failed.
        ghosts.sort_unstable();
        ghosts.dedup();
        assert_eq!(ghosts.len(), 2, "{}", text(&output));
        all_end(&ghosts);
    }
}

/// The death of a ghost is that of its rank's target role: errors, and no hang.
///
/// Shows: notes: agent as a process, MPI_ERR_OTHER.
#[test]
fn the_death_of_a_ghost_is_an_error() {
    let name = "the_death_of_a_ghost_is_an_error";
    if is_rank() {
        let job = Job::init().unwrap();
        let window = job.allocate::<u64>(2).unwrap();
        let put = |value| {
            let value = [value];
            window.lock(Rank(1), LockType::Exclusive, |epoch| epoch.put(0, &value))
        };
        if job.rank() == Rank(0) {
            put(1).unwrap();
        }
        job.barrier().unwrap();
        let is_killer = job.rank() == Rank(1);
        if is_killer {
            let pid = tell_of_ghost(&job);
            let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
            assert!(killed.unwrap().success());
        }
        // Everybody finds out, the rank itself too.
        let begun = Instant::now();
        let error = loop {
            if let Err(error) = put(2) {
                break error;
            }
            assert!(begun.elapsed() < PATIENCE, "the ghost is dead, and nobody says so");
        };
        assert!(error.to_string().contains("rank 1"), "{error}");
        println!("{} was told: {error}", job.rank());
        // The living go on, and the rank too as an origin: each ends when both were told.
        let own = u64::from(job.rank().0);
        window.lock(Rank(0), LockType::Shared, |epoch| epoch.put_value(own, 5)).unwrap();
        let mut both = [0; 2];
        while both != [5, 5] {
            assert!(begun.elapsed() < PATIENCE, "the other rank was not told");
            std::thread::sleep(Duration::from_millis(5));
            window.lock(Rank(0), LockType::Shared, |epoch| epoch.get(0, &mut both)).unwrap();
        }
        // There is no barrier with the dead; the launcher ends the job.
        std::process::exit(3);
    }
    for provider in PROVIDERS {
        let output = launch(name, 2, provider, &[GHOST]);
        let said = text(&output);
        assert!(said.contains("0 was told") && said.contains("1 was told"), "over {provider}: {said}");
        all_end(&ghosts_in(&said));
    }
}

/// A rank dies with a lock that a ghost gave it, whose own rank is elsewhere: who waits gets it all the same.
///
/// Shows: notes: agent as a process, MPI_Win_lock, MPI-4.1 13.7.3.
#[test]
fn the_dead_give_back_their_locks() {
    let name = "the_dead_give_back_their_locks";
    if is_rank() {
        let job = Job::init().unwrap();
        let (window, news) = (job.allocate::<u64>(2).unwrap(), job.allocate::<u64>(1).unwrap());
        let begun = Instant::now();
        let wait_for = |what: &str, is_there: &dyn Fn() -> bool| {
            while !is_there() {
                assert!(begun.elapsed() < PATIENCE, "{what}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        job.barrier().unwrap();
        match job.rank() {
            Rank(0) => {
                wait_for("rank 2 takes no lock", &|| news.local().get(0).unwrap() == 1);
                let own = std::process::id().into();
                window.lock(Rank(1), LockType::Exclusive, |epoch| epoch.put_value(1, own)).unwrap();
                println!("rank 0 has got the lock");
            }
            // Looks at its own memory, and calls nothing that makes progress. What is put may be there before rank 0 has
            // unlocked, which wants the ghost, so it stays until rank 0 has ended.
            Rank(1) => {
                let other = || window.local().get(1).unwrap();
                wait_for("rank 0 does not get the lock", &|| other() != 0);
                let line = format!("/proc/{}/cmdline", other());
                // The dead have none, be it that nobody has waited for them yet.
                let has_ended = || std::fs::read(&line).map_or(true, |line| line.is_empty());
                wait_for("rank 0 does not end", &has_ended);
            }
            _ => window
                .lock(Rank(1), LockType::Exclusive, |epoch| {
                    epoch.put_value(0, 7)?;
                    epoch.flush()?;
                    news.lock(Rank(0), LockType::Exclusive, |news| news.put_value(0, 1))?;
                    let own = std::process::id().to_string();
                    std::process::Command::new("kill").args(["-9", &own]).status().map(drop).unwrap();
                    unreachable!("lives on after SIGKILL");
                })
                .unwrap(),
        }
        // There is no barrier with the dead.
        std::process::exit(0);
    }
    for provider in PROVIDERS {
        let output = launch_with(name, 3, provider, &[GHOST], &["--keep-going"]);
        let said = text(&output);
        assert!(said.contains("rank 0 has got the lock"), "over {provider}: {said}");
        assert_eq!(said.matches("panicked").count(), 0, "over {provider}: {said}");
    }
}

/// Every rank has a ghost, or none.
#[test]
fn all_or_none() {
    let name = "all_or_none";
    if is_rank() {
        let mut options = rma::Options::load().unwrap();
        if std::env::var("RMA_RANK").as_deref() == Ok("0") {
            options.progress = rma::Progress::Ghost;
        }
        let job = Job::init_with(options).unwrap();
        let error: Error = job.allocate::<u64>(1).unwrap_err();
        assert!(error.to_string().contains("RMA_PROGRESS"), "{error}");
        assert_eq!(job.config().peers, rma::Config::default().peers);
        return job.finalize().unwrap();
    }
    let output = launch(name, 2, "net", &[]);
    assert!(output.status.success(), "{}", text(&output));
}

/// Elements of 16 bytes are whole for the rank itself too: it asks like the others.
///
/// Shows: notes: agent as a process, rule: atomic-self.
#[test]
fn wide_elements_are_atomic() {
    ranks_with("wide_elements_are_atomic", 2, &[GHOST], |job| {
        let window = RawWindow::allocate(job, 16, 16)?;
        window.lock_all(false)?;
        let one = 1u128 | 1 << 64;
        for _ in 0..200 {
            // SAFETY: the operand outlives the flush.
            unsafe { window.accumulate((&raw const one).cast(), 1, Dtype::U128, Rank(0), 0, ReduceOp::Sum)? };
            window.flush(Rank(0))?;
        }
        window.unlock_all()?;
        job.barrier()?;
        if job.rank() == Rank(0) {
            // SAFETY: the window's own 16 bytes, which nobody changes any more.
            let sum = unsafe { window.base().cast::<u128>().read_unaligned() };
            assert_eq!(sum, 400 | 400 << 64);
        }
        job.barrier()?;
        window.free()
    });
}
