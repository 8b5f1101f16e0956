//! Parts of a job between real processes, over each provider: their windows, fences, deaths and ends are their own.
#![allow(unsafe_code)] // raising a signal, and a limit of the process

mod common;

use std::fs;
use std::time::{Duration, Instant};

use common::*;
use rma::raw::RawWindow;
use rma::{Error, Job, LockType, Rank, ReduceOp, RmaError, WindowOptions};

/// Two hosts, whose ranks are 0, 2 and 4, and 1 and 3.
const SPREAD: [&str; 6] = ["--launch-agent", APART, "--host", "first:3,second:2", "--map-by", "node"];

/// A provider, variables, and options of the launcher.
type Way = (&'static str, &'static [(&'static str, &'static str)], &'static [&'static str]);

/// Runs `body` in the ranks of jobs with these variables and options of the launcher.
fn each_of((name, count): (&str, u32), ways: &[Way], body: impl FnOnce(&Job) -> Result<(), Error>) {
    if is_rank() {
        return run_body(body);
    }
    for (provider, variables, options) in ways {
        let output = launch_with(name, count, provider, variables, options);
        assert!(output.status.success(), "over {provider}, {variables:?}: {}", text(&output));
    }
}

/// A grid's rows and columns: all rows and all columns have windows at the same time.
///
/// Shows: communicators.
#[test]
fn rows_and_columns() {
    ranks("rows_and_columns", 6, grid);
}

/// The same whoever makes the job's progress.
#[test]
fn whoever_makes_the_jobs_progress() {
    let ways: &[Way] = &[
        ("shm", &[("RMA_PROGRESS", "thread")], &[]),
        ("net", &[("RMA_PROGRESS", "ghost")], &[]),
        ("shm", &[("RMA_PROGRESS", "ghost")], &[]),
        ("net", &[("RMA_PROGRESS", "none")], &[]),
        ("shm", &[("RMA_PROGRESS", "none")], &[]),
    ];
    each_of(("whoever_makes_the_jobs_progress", 6), ways, grid);
}

/// As above, of programs that a sanitizer has not put its malloc into.
#[test]
fn parts_are_served_by_signals() {
    let ways: &[Way] = &[("net", &[("RMA_PROGRESS", "signal")], &[])];
    each_of(("parts_are_served_by_signals", 6), ways, grid);
}

/// Each host's ranks are a part, which shares memory, and a part of ranks of both hosts does not.
#[test]
fn parts_of_two_hosts() {
    if !is_rank() && !can_be_apart() {
        return;
    }
    let ways: &[Way] = &[("shm+net", &[], &SPREAD), ("net", &[], &SPREAD)];
    each_of(("parts_of_two_hosts", 5), ways, |job| {
        let host = job.split(Some(job.local_ranks().unwrap()[0].0), 0)?.unwrap();
        assert_eq!(host.members(), job.local_ranks());
        assert_eq!((host.local_size(), host.local_rank()), (host.size(), host.rank().0));
        check_shared(&host)?;
        // Ranks 0 and 1 are on different hosts, as are 2 and 3; 4 is alone.
        let pair = job.split(Some(job.rank().0 / 2), 0)?.unwrap();
        assert_eq!((pair.local_size(), pair.local_ranks()), (1, Some(&[pair.rank()][..])));
        let window = pair.allocate::<u32>(1)?;
        let own = [job.rank().0 + 1];
        window.fence(|epoch| epoch.put(Rank((pair.rank().0 + 1) % pair.size()), 0, &own))?;
        let other = pair.members().unwrap()[(pair.rank().0 + 1) as usize % pair.size() as usize];
        assert_eq!(window.local().get(0)?, other.0 + 1);
        window.free()?;
        pair.finalize()?;
        host.finalize()
    });
}

/// A shared window of a part, each of whose ranks stores to the next one's memory.
fn check_shared(part: &Job) -> Result<(), Error> {
    let window = RawWindow::allocate_shared(part, 8, 8, &WindowOptions::DEFAULT)?;
    let next = window.shared_query(Rank((part.rank().0 + 1) % part.size()))?;
    assert_eq!(next.len, 8);
    // SAFETY: the barriers order it with the owner's load; aligned as all parts are.
    unsafe { next.base.cast::<u64>().write_volatile(u64::from(part.rank().0) + 1) };
    part.barrier()?;
    // SAFETY: as above.
    let seen = unsafe { window.base().cast::<u64>().read_volatile() };
    assert_eq!(seen, u64::from((part.rank().0 + part.size() - 1) % part.size()) + 1);
    part.barrier()?;
    window.free()
}

fn grid(job: &Job) -> Result<(), Error> {
    const WIDTH: u32 = 3;
    let own = job.rank().0;
    let row = job.split(Some(own / WIDTH), 0)?.unwrap();
    let column = job.split(Some(own % WIDTH), 0)?.unwrap();
    let in_row: Vec<_> = (0..WIDTH).map(|place| Rank(own / WIDTH * WIDTH + place)).collect();
    let in_column: Vec<_> = (0..2).map(|place| Rank(own % WIDTH + place * WIDTH)).collect();
    assert_eq!((row.members().unwrap(), column.members().unwrap()), (&*in_row, &*in_column));
    assert_eq!((row.rank(), row.size()), (Rank(own % WIDTH), WIDTH));
    assert_eq!((column.rank(), column.size()), (Rank(own / WIDTH), 2));
    for part in [&row, &column] {
        let here = part.local_ranks().unwrap();
        assert_eq!((here.len() as u32, part.local_size()), (part.size(), part.size()));
        let window = part.allocate::<u32>(part.size() as usize)?;
        let mine = [own];
        window.fence(|epoch| {
            (0..part.size()).try_for_each(|target| epoch.put(Rank(target), u64::from(part.rank().0), &mine))
        })?;
        let seen: Vec<_> = window.local().to_vec()?.into_iter().map(Rank).collect();
        assert_eq!(seen, part.members().unwrap());
        window.free()?;
    }
    // And the whole job goes on.
    let window = job.allocate::<u32>(1)?;
    window.fence(|epoch| epoch.accumulate(Rank(0), 0, &[1], ReduceOp::Sum))?;
    assert_eq!(window.local().get(0)?, if own == 0 { job.size() } else { 0 });
    window.free()?;
    column.finalize()?;
    row.finalize()
}

/// Keys say the order; who names no color is in no part, and a part of a part is a job as well.
#[test]
fn keys_order_and_parts_have_parts() {
    ranks("keys_order_and_parts_have_parts", 5, |job| {
        let own = job.rank().0;
        let part = job.split((own != 1).then_some(9), -(own as i32))?;
        let Some(part) = part else {
            assert_eq!(own, 1);
            return Ok(());
        };
        assert_eq!(part.members().unwrap(), [4, 3, 2, 0].map(Rank));
        assert_eq!(part.members().unwrap()[part.rank().0 as usize], job.rank());
        let half = part.split(Some(part.rank().0 / 2), 0)?.unwrap();
        let expected = if part.rank().0 < 2 { [0, 1] } else { [2, 3] };
        assert_eq!(half.members().unwrap(), expected.map(Rank));
        let counter = half.allocate::<u64>(1)?;
        let tickets = [(0..100).try_fold(0, |sum, _| {
            let ticket =
                counter.lock(Rank(0), LockType::Shared, |epoch| epoch.fetch_and_op(0, 1, ReduceOp::Sum));
            ticket.map(|ticket| sum + ticket)
        })?];
        let all = half.allocate::<u64>(1)?;
        all.fence(|epoch| epoch.accumulate(Rank(1), 0, &tickets, ReduceOp::Sum))?;
        assert_eq!(all.local().get(0)?, if half.rank() == Rank(1) { (0..200).sum() } else { 0 });
        all.free()?;
        counter.free()?;
        half.finalize()?;
        part.finalize()
    });
}

/// The fences of a part wait for its own ranks, though another waits meanwhile for what they say behind them.
#[test]
fn others_are_not_waited_for() {
    ranks("others_are_not_waited_for", 3, |job| {
        let part = job.split(Some(u32::from(job.rank().0 == 0)), 0)?.unwrap();
        let flag = job.allocate::<u64>(1)?;
        if part.size() == 1 {
            while flag.lock(Rank(0), LockType::Shared, |epoch| epoch.fetch_and_op(0, 0, ReduceOp::NoOp))? < 2
            {
            }
        } else {
            let window = part.allocate::<u64>(1)?;
            for round in 1..=50 {
                let said = [round];
                window.fence(|epoch| epoch.put(Rank(1 - part.rank().0), 0, &said))?;
                assert_eq!(window.local().get(0)?, round);
            }
            part.barrier()?;
            flag.lock(Rank(0), LockType::Shared, |epoch| epoch.fetch_and_op(0, 1, ReduceOp::Sum))?;
            window.free()?;
        }
        part.finalize()?;
        flag.free().map(drop)
    });
}

/// A request that is waited for by the job that its window's job is a part of is an error, and still there.
///
/// Shows: MPI_Wait, MPI_Test, communicators.
#[test]
fn requests_are_the_business_of_their_own_job() {
    ranks("requests_are_the_business_of_their_own_job", 2, |job| {
        let part = job.split(Some(0), 0)?.expect("a part");
        let window = RawWindow::allocate(&part, 64, 1)?;
        // SAFETY: nobody accesses it yet.
        unsafe { window.base().write_bytes(7, 64) };
        part.barrier()?;
        window.lock_all(false)?;
        let mut got = [0; 64];
        let other = Rank(1 - part.rank().0);
        // SAFETY: the buffer stays until the request is done.
        let mut request = unsafe { window.rget(got.as_mut_ptr(), got.len(), other, 0)? };
        for refused in [job.wait(&mut request), job.test(&mut request).map(drop)] {
            let error = refused.expect_err("another job knows nothing of it");
            assert!(error.to_string().contains("of another job"), "{error}");
            assert!(!request.is_null(), "it is as it was");
        }
        part.wait(&mut request)?;
        assert_eq!(got, [7; 64]);
        window.unlock_all()?;
        part.barrier()?;
        window.free()?;
        part.finalize()
    });
}

/// Parts come and go, and nothing of theirs stays.
#[test]
fn parts_come_and_go() {
    ranks("parts_come_and_go", 7, |job| {
        let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
        let mut before = 0;
        for round in 0..12 {
            if round == 2 {
                job.barrier()?;
                before = descriptors();
            }
            let part = job.split(Some(0), round)?.unwrap();
            let window = part.allocate::<u64>(1)?;
            let said = [u64::from(round as u32)];
            window.fence(|epoch| epoch.put(Rank((part.rank().0 + 1) % job.size()), 0, &said))?;
            assert_eq!(window.local().get(0)?, said[0]);
            window.free()?;
            if round % 2 == 0 {
                let part = job.split(Some(0), 0)?.unwrap();
                part.finalize()?;
            } else {
                drop(part);
            }
        }
        job.barrier()?;
        // libfabric 1.17 does not close all connections of an endpoint by ofi_rxm: one for each other rank at most.
        let left = if job.provider().provider.contains("ofi_rxm") { 10 * 6 } else { 0 };
        // Connections of others may still be on their way out.
        let deadline = Instant::now() + Duration::from_secs(60);
        while descriptors() > before + left {
            assert!(Instant::now() < deadline, "{} descriptors, and {before} before", descriptors());
            job.progress();
            std::thread::yield_now();
        }
        Ok(())
    });
}

/// A rank that cannot open an endpoint fails the split of all, and the job goes on.
#[test]
fn what_one_rank_cannot_do_is_an_error_of_all() {
    const NAME: &str = "what_one_rank_cannot_do_is_an_error_of_all";
    if !is_rank() {
        // Not beside shared memory: the memory of others, which takes descriptors, too, is mapped before the endpoint is opened.
        for provider in ["shm", "tcp;ofi_rxm", "net"] {
            let output = launch(NAME, 3, provider, &[]);
            assert!(output.status.success(), "over {provider}: {}", text(&output));
        }
        return;
    }
    run_body(|job| {
        job.split(Some(0), 0)?.unwrap().finalize()?;
        let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: writes the structure.
        assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limits) }, 0);
        if job.rank() == Rank(1) {
            let none = libc::rlimit { rlim_cur: 0, ..limits };
            // SAFETY: reads the structure.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) }, 0);
        }
        let refused = job.split(Some(0), 0);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limits) }, 0);
        let refused = refused.map(|part| part.map(|part| part.rank())).unwrap_err();
        assert!(job.rank() == Rank(1) || refused.to_string().contains("rank 1"), "{refused}");
        let part = job.split(Some(job.rank().0), 0)?.unwrap();
        assert_eq!(part.size(), 1);
        part.finalize()
    });
}

/// A death concerns the parts that the dead was in: their calls fail within a bound, and the others go on.
#[test]
fn a_death_concerns_its_parts() {
    const NAME: &str = "a_death_concerns_its_parts";
    const DEAD: Rank = Rank(2);
    const SURVIVED: &str = "came to the end";
    if !is_rank() {
        // Not every fabric tells of a death: then the part hears of it by the whole job, whoever makes that one progress.
        for provider in PROVIDERS.into_iter().chain(["udp;ofi_rxd"]) {
            for progress in ["thread", "none"] {
                let output = launch_with(NAME, 5, provider, &[("RMA_PROGRESS", progress)], &["--keep-going"]);
                let text = text(&output);
                assert_eq!(text.matches(SURVIVED).count(), 4, "over {provider}, {progress}: {text}");
            }
        }
        return;
    }
    let job = Job::init().unwrap();
    let part = job.split(Some(job.rank().0 % 2), 0).unwrap().unwrap();
    // Its memory is this process's, and stays with the part.
    let window = part.create(vec![0_u64]).unwrap();
    part.barrier().unwrap();
    job.barrier().unwrap();
    if job.rank() == DEAD {
        // SAFETY: takes a number only.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    let dead = part.members().unwrap().iter().position(|&member| member == DEAD);
    let about_the_dead = |result: Result<(), Error>| {
        let expected = Rank(dead.unwrap() as u32);
        match result.as_ref().map_err(Error::rma) {
            Err(Some(RmaError::Peer { target, .. })) if *target == expected => {}
            _ => panic!("an error about rank {expected} was due, not {result:?}"),
        }
    };
    if dead.is_some() {
        about_the_dead(part.barrier());
        let target = Rank(2 - part.rank().0);
        window.lock(target, LockType::Exclusive, |epoch| epoch.put_value(0, 1)).unwrap();
        // It stays as long as it is not freed, also when one of the two has come to the end, and dropped it.
        about_the_dead(part.finalize());
        drop(window);
    } else {
        for round in 0..20 {
            let said = [round];
            window.fence(|epoch| epoch.put(Rank(1 - part.rank().0), 0, &said)).unwrap();
        }
        window.free().unwrap();
        part.finalize().unwrap();
    }
    assert!(job.finalize().is_err());
    println!("{SURVIVED}");
}
