//! Windows of shared memory in jobs of several hosts (`ci/apart.sh`): one segment on each, and operations to all ranks.
//!
//! The ranks of a host are not neighbours in number: 0, 2 and 4 are on the first, 1 and 3 on the second.
#![allow(unsafe_code)] // the raw layer's calls, and memory that others change

mod common;

use std::process::Command;

use common::*;
use rma::raw::RawWindow;
use rma::{
    Dtype, Error, ErrorClass, FenceAssert, Job, LockType, Rank, ReduceOp, RmaError, SharedMemory,
    WindowOptions,
};

const RANKS: u32 = 5;
const HOSTS: [&[u32]; 2] = [&[0, 2, 4], &[1, 3]];
const SPREAD: [&str; 6] = ["--launch-agent", APART, "--host", "first:3,second:2", "--map-by", "node"];

/// Shared memory beside a network, and a network alone, which reaches neighbours as it reaches others.
const NETWORKS: [&str; 3] = ["shm+net", "shm+tcp;ofi_rxm", "net"];

const DEFAULT: WindowOptions = WindowOptions::DEFAULT;
const FIRST: FenceAssert =
    FenceAssert { no_precede: true, no_succeed: false, no_store: false, no_put: false };
const LAST: FenceAssert = FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

/// Runs `body` in the ranks of two hosts.
fn on_two_hosts(name: &str, body: impl FnOnce(&Job) -> Result<(), Error>) {
    on_two_hosts_with(name, &NETWORKS.map(|provider| (provider, "auto")), body);
}

/// The same over these networks, joined in these ways.
fn on_two_hosts_with(name: &str, ways: &[(&str, &str)], body: impl FnOnce(&Job) -> Result<(), Error>) {
    if is_rank() {
        return run_body(|job| {
            let local: Vec<u32> = job.local_ranks().unwrap().iter().map(|rank| rank.0).collect();
            assert_eq!(local, here(job), "rank {}", job.rank());
            assert_eq!((job.local_size(), job.size()), (local.len() as u32, RANKS));
            assert_eq!(local[job.local_rank() as usize], job.rank().0);
            body(job)
        });
    }
    if !can_be_apart() {
        return;
    }
    for (provider, bootstrap) in ways {
        let output = launch_with(name, RANKS, provider, &[("RMA_BOOTSTRAP", bootstrap)], &SPREAD);
        assert!(output.status.success(), "over {provider}, by {bootstrap}: {}", text(&output));
    }
}

/// The ranks of this host.
fn here(job: &Job) -> &'static [u32] {
    HOSTS[job.rank().0 as usize % 2]
}

/// The next rank of this host, and the next of the job, which is on the other host but for the last rank's.
fn next(job: &Job) -> (Rank, Rank) {
    let (own, local) = (job.rank().0, here(job));
    let index = local.iter().position(|rank| *rank == own).unwrap();
    (Rank(local[(index + 1) % local.len()]), Rank((own + 1) % RANKS))
}

fn part(window: &RawWindow, rank: u32) -> Result<SharedMemory, Error> {
    window.shared_query(Rank(rank))
}

/// A word of a rank's part, which this process has mapped.
fn word(window: &RawWindow, rank: Rank, index: usize) -> Result<*mut u64, Error> {
    let found = window.shared_query(rank)?;
    assert!(!found.base.is_null() && 8 * index < found.len, "word {index} of rank {rank}: {found:?}");
    Ok(found.base.cast::<u64>().wrapping_add(index))
}

fn store(to: *mut u64, value: u64) {
    // SAFETY: a word of the window's parts, by a synchronized program; volatile, as others access it.
    unsafe { to.write_volatile(value) };
}

// A frame of its own, which ci/races.txt names.
#[inline(never)]
fn load(from: *mut u64) -> u64 {
    // SAFETY: as in `store`.
    unsafe { from.read_volatile() }
}

/// Descriptors and mappings of windows that this process has.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let windows = maps.lines().filter(|line| line.contains("rma-window")).count();
    (std::fs::read_dir("/proc/self/fd").unwrap().count(), windows)
}

/// Shows: MPI_Win_allocate_shared, MPI_Win_shared_query, alloc_shared_noncontig, MPI-4.1 13.2.3.
#[test]
fn parts_lie_together_on_each_host() {
    on_two_hosts("parts_lie_together_on_each_host", |job| {
        let own = job.rank().0;
        // Ranks 0 and 1, the lowest of their hosts, have nothing.
        let len = |rank: u32| 24 * (rank as usize / 2);
        let window = RawWindow::allocate_shared(job, len(own), own + 1, &DEFAULT)?;
        let mut expected = part(&window, here(job)[0])?.base;
        assert!(!expected.is_null());
        for &rank in here(job) {
            let found = part(&window, rank)?;
            assert_eq!((found.base, found.len, found.disp_unit), (expected, len(rank), rank + 1), "{rank}");
            expected = expected.wrapping_add(found.len);
        }
        for rank in (0..RANKS).filter(|rank| !here(job).contains(rank)) {
            let found = part(&window, rank)?;
            assert_eq!((found.base.is_null(), found.len, found.disp_unit), (true, 0, 1), "{rank}");
        }
        assert_eq!(window.shared_query(Rank::NULL)?, part(&window, here(job)[1])?);
        assert_eq!((window.base(), window.len()), (part(&window, own)?.base, len(own)));
        assert_eq!(part(&window, RANKS).unwrap_err().class(), ErrorClass::Rank);
        window.free()?;

        let apart = WindowOptions { alloc_shared_noncontig: true, memory_alignment: 16384, ..DEFAULT };
        // Of one host nobody has memory.
        let window = RawWindow::allocate_shared(job, if own % 2 == 0 { 8 } else { 0 }, 8, &apart)?;
        for &rank in here(job) {
            assert_eq!(part(&window, rank)?.base.addr() % 16384, 0);
        }
        let first = window.shared_query(Rank::NULL)?;
        let expected = if own % 2 == 0 { part(&window, 0)? } else { SharedMemory { len: 0, ..first } };
        assert_eq!((first, first.base.is_null()), (expected, own % 2 != 0));
        window.free()
    });
}

/// The same ranks are neighbours by what PMI says.
///
/// Shows: MPI_Win_allocate_shared.
#[test]
fn pmi_says_who_is_on_the_host() {
    let ways = [("shm+net", "pmi1"), ("net", "pmi2")];
    on_two_hosts_with("pmi_says_who_is_on_the_host", &ways, |job| {
        assert!(job.launcher().starts_with("PMI-"), "{}", job.launcher());
        let window = RawWindow::allocate_shared(job, 8, 8, &DEFAULT)?;
        for rank in 0..RANKS {
            assert_eq!(part(&window, rank)?.base.is_null(), !here(job).contains(&rank), "{rank}");
        }
        window.free()
    });
}

/// Words of a part: stored by the neighbour before, put by the rank before, what all add up, and what the ranks of the
/// host put, each to its own.
const STORED: usize = 0;
const PUT: usize = 1;
const SUM: usize = 2;
const OWN: usize = 3;
const WORDS: usize = OWN + RANKS as usize;

/// Shows: MPI_Win_allocate_shared, MPI_Put, MPI_Get, MPI_Accumulate, MPI_Win_fence, MPI-4.1 13.2.3.
#[test]
fn neighbours_store_and_others_put() {
    on_two_hosts("neighbours_store_and_others_put", |job| {
        let window = RawWindow::allocate_shared(job, 8 * WORDS, 8, &DEFAULT)?;
        let own = u64::from(job.rank().0);
        let (neighbour, after) = next(job);
        for round in 0..20 {
            let (value, one) = (1000 * round + own, 1u64);
            let value_bytes = (&raw const value).cast();
            window.fence(if round == 0 { FIRST } else { FenceAssert::default() })?;
            store(word(&window, neighbour, STORED)?, value);
            for (target, place) in [(after, PUT as u64), (neighbour, OWN as u64 + own)] {
                // SAFETY: the buffers live until the fence.
                unsafe { window.put(value_bytes, 8, target, place)? };
            }
            for rank in (0..RANKS).map(Rank) {
                let one = (&raw const one).cast();
                // SAFETY: as above.
                unsafe { window.accumulate(one, 1, Dtype::U64, rank, SUM as u64, ReduceOp::Sum)? };
            }
            window.fence(FenceAssert::default())?;
            check_part_of_neighbours(job, &window, round)?;
            let mut found = [[0u64; WORDS]; RANKS as usize];
            for (rank, words) in (0..RANKS).map(Rank).zip(&mut found) {
                // SAFETY: as above.
                unsafe { window.get(words.as_mut_ptr().cast(), 8 * WORDS, rank, 0)? };
            }
            window.fence(FenceAssert::default())?;
            for (rank, words) in (0..RANKS).zip(&found) {
                let before = u64::from((rank + RANKS - 1) % RANKS);
                assert_eq!((words[PUT], words[SUM]), (1000 * round + before, u64::from(RANKS) * (round + 1)));
            }
        }
        window.fence(LAST)?;
        window.free()
    });
}

/// What the ranks of this host find in each other's parts after a fence.
fn check_part_of_neighbours(job: &Job, window: &RawWindow, round: u64) -> Result<(), Error> {
    let local = here(job);
    for (index, &rank) in local.iter().enumerate() {
        let before = local[(index + local.len() - 1) % local.len()];
        let value = 1000 * round + u64::from(before);
        assert_eq!(load(word(window, Rank(rank), STORED)?), value, "stored to rank {rank}");
        assert_eq!(load(word(window, Rank(rank), OWN + before as usize)?), value, "put to rank {rank}");
        let sum = u64::from(RANKS) * (round + 1);
        assert_eq!(load(word(window, Rank(rank), SUM)?), sum, "added to rank {rank}");
    }
    Ok(())
}

/// Of a counter at a rank of each host: who is on that host loads and stores, the others get and put.
///
/// Shows: MPI_Win_lock, MPI_LOCK_EXCLUSIVE, MPI_Win_flush, MPI_Fetch_and_op, MPI-4.1 13.5.3.
#[test]
fn an_exclusive_lock_guards_both_ways() {
    const TURNS: u64 = 20;
    on_two_hosts("an_exclusive_lock_guards_both_ways", |job| {
        let window = RawWindow::allocate_shared(job, 16, 8, &DEFAULT)?;
        for owner in [Rank(1), Rank(2)] {
            let is_here = here(job).contains(&owner.0);
            for _ in 0..TURNS {
                window.lock(LockType::Exclusive, owner, false)?;
                if is_here {
                    let counter = word(&window, owner, 0)?;
                    store(counter, load(counter) + 1);
                } else {
                    let mut value = 0u64;
                    // SAFETY: the value lives until the flush.
                    unsafe { window.get((&raw mut value).cast(), 8, owner, 0)? };
                    window.flush(owner)?;
                    value += 1;
                    // SAFETY: the value lives until the flush.
                    unsafe { window.put((&raw const value).cast(), 8, owner, 0)? };
                    window.flush(owner)?;
                }
                window.unlock(owner)?;
            }
            let (one, mut old) = (1u64, u64::MAX);
            window.lock_all(false)?;
            let (one, result) = ((&raw const one).cast(), (&raw mut old).cast());
            // SAFETY: both live until the epoch's end.
            unsafe { window.fetch_and_op(one, result, Dtype::U64, owner, 1, ReduceOp::Sum)? };
            window.unlock_all()?;
            assert!(old < u64::from(RANKS), "{old}");
            job.barrier()?;
            if is_here {
                window.lock(LockType::Shared, owner, false)?;
                let found = (load(word(&window, owner, 0)?), load(word(&window, owner, 1)?));
                window.unlock(owner)?;
                assert_eq!(found, (TURNS * u64::from(RANKS), u64::from(RANKS)));
            }
        }
        job.barrier()?;
        window.free()
    });
}

/// One host's memory is an error of all, and what was made and freed leaves nothing.
///
/// Shows: MPI_ERR_RMA_SHARED, MPI_Win_free, MPI-4.1 13.6.
#[test]
fn what_one_host_lacks_is_an_error_of_all_and_nothing_stays() {
    const ROUNDS: u64 = 30;
    const BARRIERS: u64 = 300;
    on_two_hosts("what_one_host_lacks_is_an_error_of_all_and_nothing_stays", |job| {
        let make = |len| RawWindow::allocate_shared(job, len, 8, &DEFAULT);
        let use_and_free = |round: u64| {
            let window = make(4096)?;
            let (neighbour, after) = next(job);
            window.fence(FIRST)?;
            store(word(&window, neighbour, STORED)?, round);
            for target in [neighbour, after] {
                // SAFETY: the round lives until the fence.
                unsafe { window.put((&raw const round).cast(), 8, target, PUT as u64)? };
            }
            window.fence(LAST)?;
            for index in [STORED, PUT] {
                assert_eq!(load(word(&window, job.rank(), index)?), round);
            }
            window.free()
        };
        // Whatever is opened once for all.
        use_and_free(0)?;
        job.barrier()?;
        let before = held();
        for lacking in [3, 4] {
            let error = make(if job.rank() == Rank(lacking) { 1 << 55 } else { 64 }).unwrap_err();
            let message = error.to_string();
            assert_eq!(error.class(), ErrorClass::RmaShared, "{message}");
            // The lowest rank of a host lays it out.
            let lowest = Rank(lacking % 2);
            let expected = match job.rank() == lowest {
                true => "bytes of shared memory were asked for, and ".to_owned(),
                false => format!("rank {lowest}"),
            };
            assert!(message.contains(&expected), "no '{expected}' in {message}");
        }
        for round in 1..=ROUNDS {
            use_and_free(round)?;
        }
        // What neighbours have freed is unmapped by the way, a neighbour at a time.
        for _ in 0..BARRIERS {
            job.barrier()?;
        }
        let after = held();
        // A neighbour that is woken for the first time costs one, and the last window may be mapped at who has put to it.
        let is_kept = after.0 >= before.0 + ROUNDS as usize / 2 || after.1 >= job.local_size() as usize;
        assert!(!is_kept, "descriptors and mappings of windows: {before:?}, then {after:?}");
        Ok(())
    });
}

/// Shows: MPI_Win_allocate_shared.
#[test]
fn one_rank_on_each_host_shares_with_itself() {
    let body = |job: &Job| {
        assert_eq!(job.local_ranks(), Some(&[job.rank()][..]));
        let window = RawWindow::allocate_shared(job, 8, 8, &DEFAULT)?;
        let (value, other) = (7 + u64::from(job.rank().0), Rank(1 - job.rank().0));
        window.fence(FIRST)?;
        // SAFETY: the value lives until the fence.
        unsafe { window.put((&raw const value).cast(), 8, other, 0)? };
        window.fence(LAST)?;
        assert_eq!(load(word(&window, job.rank(), 0)?), 7 + u64::from(other.0));
        assert!(part(&window, other.0)?.base.is_null());
        window.free()
    };
    if is_rank() {
        return run_body(body);
    }
    if !can_be_apart() {
        return;
    }
    let spread = ["--launch-agent", APART, "--host", "first:1,second:1"];
    // Where shared memory was asked for as well, it is none, as nobody is there to share it with.
    for provider in NETWORKS {
        let output = launch_with("one_rank_on_each_host_shares_with_itself", 2, provider, &[], &spread);
        assert!(output.status.success(), "over {provider}: {}", text(&output));
    }
}

/// Ranks that the launcher counts to one host, each in a PID namespace of its own, as in containers: on one host, and
/// on one of two.
///
/// Shows: MPI_ERR_RMA_SHARED.
#[test]
fn who_cannot_map_is_an_error_of_all() {
    let name = "who_cannot_map_is_an_error_of_all";
    if is_rank() {
        return run_body(|job| {
            let error = RawWindow::allocate_shared(job, 64, 8, &DEFAULT).unwrap_err();
            assert_eq!(error.class(), ErrorClass::RmaShared, "{error}");
            let first = job.local_ranks().unwrap()[0];
            let says = |text: &str| error.to_string().contains(text);
            if job.rank() == first {
                assert!(matches!(error.rma(), Some(RmaError::Elsewhere { .. })), "{error}");
            } else {
                assert!(says("another PID namespace") && says(&format!("rank {first}")), "{error}");
            }
            // The job goes on.
            RawWindow::allocate(job, 64, 8)?.free()
        });
    }
    if !can_be_apart() {
        return;
    }
    for (count, hosts) in [(2, &[][..]), (4, &["--launch-agent", APART, "--host", "first:2,second:2"][..])] {
        let mut command = Command::new(rmarun());
        command.args(hosts).args(["-n", &count.to_string(), "--timeout", "100", "--provider", "net"]);
        command.args([APART, "rank"]).arg(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
        without_settings(&mut command);
        let output = command.env("RMA_TEST_IS_RANK", "1").output().unwrap();
        assert!(output.status.success(), "{count} ranks: {}", text(&output));
    }
}

/// A launcher that says how many ranks are on a host, and not which.
///
/// Shows: MPI_ERR_RMA_SHARED.
#[test]
fn who_is_not_told_of_neighbours_says_so() {
    let name = "who_is_not_told_of_neighbours_says_so";
    if is_rank() {
        return run_body(|job| {
            // Of the first host, where the launcher's word was lost.
            assert_eq!(job.local_ranks().is_some(), job.rank().0 % 2 == 1);
            let error = RawWindow::allocate_shared(job, 64, 8, &DEFAULT).unwrap_err();
            assert_eq!(error.class(), ErrorClass::RmaShared, "{error}");
            let expected = match job.local_ranks() {
                None => "counts 3 ranks to this host, and does not say which",
                Some(_) => "rank 4",
            };
            assert!(error.to_string().contains(expected), "{error}");
            Ok(())
        });
    }
    if !can_be_apart() {
        return;
    }
    let mut command = Command::new(rmarun());
    command.args(SPREAD).args([
        "-n",
        &RANKS.to_string(),
        "--timeout",
        "100",
        "--provider",
        "net",
        "sh",
        "-c",
    ]);
    command.arg("[ $RMA_LOCAL_SIZE = 2 ] || unset RMA_LOCAL_RANKS; exec \"$0\" \"$@\"");
    command.arg(std::env::current_exe().unwrap()).args([name, "--exact", "--nocapture", "--test-threads=1"]);
    without_settings(&mut command);
    let output = command.env("RMA_TEST_IS_RANK", "1").output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

/// The lowest rank of a host dies instead of making the window: as on one host, the others hear of it, and go on with
/// what they have.
///
/// Shows: MPI_Win_allocate_shared.
#[test]
fn a_death_is_an_error_of_the_others() {
    const DEAD: Rank = Rank(1);
    const SURVIVED: &str = "came to the end";
    static ONE: u64 = 1;
    let name = "a_death_is_an_error_of_the_others";
    if is_rank() {
        let job = Job::init().unwrap();
        let window = RawWindow::allocate_shared(&job, 64, 8, &DEFAULT).unwrap();
        window.fence(FIRST).unwrap();
        window.fence(LAST).unwrap();
        if job.rank() == DEAD {
            // Others may still need what he sends for the fence: whoever is behind it says so.
            let own = window.base().cast::<u64>();
            while (0..RANKS).filter(|rank| load(own.wrapping_add(*rank as usize)) != 0).count() + 1
                < RANKS as usize
            {
                job.progress();
            }
            // SAFETY: takes a number only.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        // He may be dead before he has answered.
        let _ = window.lock(LockType::Shared, DEAD, false).and_then(|()| {
            // SAFETY: the word is always there.
            let put = unsafe { window.put((&raw const ONE).cast(), 8, DEAD, job.rank().0.into()) };
            window.unlock(DEAD).and(put)
        });
        let error = RawWindow::allocate_shared(&job, 64, 8, &DEFAULT).map(drop).unwrap_err();
        assert!(matches!(error.rma(), Some(RmaError::Peer { target: DEAD, .. })), "{error}");
        // What was mapped stays, also that of the dead.
        for &rank in here(&job) {
            let own = word(&window, Rank(rank), job.rank().index()).unwrap();
            store(own, 7);
            assert_eq!(load(own), 7);
        }
        assert!(window.free().is_err() && job.finalize().is_err());
        return println!("{SURVIVED}");
    }
    if !can_be_apart() {
        return;
    }
    let options = [&SPREAD[..], &["--keep-going"]].concat();
    for provider in NETWORKS {
        let output = launch_with(name, RANKS, provider, &[], &options);
        let text = text(&output);
        assert_eq!(text.matches(SURVIVED).count(), RANKS as usize - 1, "over {provider}: {text}");
    }
}
