//! Memory of allocated windows over shared memory: what there is not is an error of all ranks, and what the settings ask
//! for is had.

mod common;
#[path = "../../rma-shm/tests/taken/mod.rs"]
mod taken;

use std::ops::RangeInclusive;

use rma::raw::RawWindow;
use rma::{Error, ErrorClass, Job, LockProtocol, LockType, Rank, RmaError};
use taken::taken;

/// With shared memory for the ranks of this host.
const SHARED: [&str; 2] = ["shm", "shm+net"];

/// Runs `body` in two ranks over each of these.
fn pairs(name: &str, variables: &[(&str, &str)], body: impl FnOnce(&Job) -> Result<(), Error>) {
    if common::is_rank() {
        return common::run_body(body);
    }
    launch(name, variables);
}

/// Two ranks over each.
fn launch(name: &str, variables: &[(&str, &str)]) {
    for provider in SHARED {
        let output = common::launch(name, 2, provider, variables);
        assert!(output.status.success(), "over {provider}: {}", common::text(&output));
        println!("over {provider}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

/// The other rank writes all of this one's memory, which is there afterwards.
fn is_usable(job: &Job, words: usize) -> Result<(), Error> {
    let window = job.allocate::<u64>(words)?;
    let (other, values) = (Rank(1 - job.rank().0), vec![u64::from(job.rank().0) + 1; words]);
    window.lock(other, LockType::Exclusive, |epoch| epoch.put(0, &values))?;
    job.barrier()?;
    let expected = u64::from(other.0) + 1;
    assert!(window.local().to_vec()?.iter().all(|&value| value == expected));
    job.barrier()?;
    window.free().map(drop)
}

/// The words by which neighbours tell each other of fences (docs/shared-memory.md), beside a window's own: pages are taken when
/// the first word in them is told.
const BOARD: u64 = 32 << 10;

/// The page of the words of windows' locks, which neighbours have by default (docs/locks.md).
const LOCK_WORDS: u64 = 4096;

/// Runs `body` with locks by message and as they are by default; it is told what a window has taken besides its own
/// memory, at least and at most.
fn each_protocol(
    name: &str,
    variables: &[(&str, &str)],
    body: fn(&Job, RangeInclusive<u64>) -> Result<(), Error>,
) {
    if common::is_rank() {
        return common::run_body(|job| {
            let words = if job.config().lock_protocol == LockProtocol::Message { 0 } else { LOCK_WORDS };
            body(job, words..=words + BOARD)
        });
    }
    for locks in [&[("RMA_LOCK_PROTOCOL", "message")][..], &[]] {
        launch(name, &[variables, locks].concat());
    }
}

/// Shows: MPI_ERR_NO_MEM, MPI_Win_allocate.
#[test]
fn more_than_there_is_is_an_error_of_all_ranks_with_both_numbers() {
    pairs("more_than_there_is_is_an_error_of_all_ranks_with_both_numbers", &[], |job| {
        // Of one rank, then of both.
        for asks in [[false, true], [true, true]] {
            let asks_here = asks[job.rank().index()];
            let words = if asks_here { 1 << 43 } else { 8 };
            let error = job.allocate::<u64>(words).unwrap_err();
            assert_eq!(error.class(), ErrorClass::NoMemory, "{error}");
            let text = error.to_string();
            if asks_here {
                let asked = format!("{} bytes of memory were asked for, and ", 8_u64 << 43);
                assert!(text.contains(&asked) && text.contains(" bytes can be had "), "{text}");
            } else {
                let names_it = matches!(error.rma(), Some(RmaError::Elsewhere { target: Rank(1), .. }));
                assert!(names_it && text.contains("rank 1"), "{text}");
            }
        }
        is_usable(job, 1000)
    });
}

#[test]
fn windows_are_reserved_if_that_is_wished() {
    each_protocol("windows_are_reserved_if_that_is_wished", &[("RMA_SHM_RESERVE", "1")], |job, besides| {
        let said = job.provider_description();
        assert!(said.contains("memory of a window   reserved when it is made"), "{said}");
        let window = RawWindow::allocate(job, 1 << 20, 1)?;
        let taken = taken();
        let beyond = taken.checked_sub(1 << 20);
        assert!(
            beyond.is_some_and(|beyond| besides.contains(&beyond)),
            "{taken} before anybody has touched a page"
        );
        window.free()?;
        is_usable(job, 100_000)
    });
}

#[test]
fn windows_are_not_touched_otherwise() {
    each_protocol("windows_are_not_touched_otherwise", &[], |job, besides| {
        let said = job.provider_description();
        assert!(said.contains("taken when it is touched, ordinary pages"), "{said}");
        let window = RawWindow::allocate(job, 64 << 20, 1)?;
        let taken = taken();
        assert!(besides.contains(&taken), "{taken}");
        window.free()
    });
}

/// Each page is a file, and a process has few of these. Windows that come later have the places of those that are gone.
#[test]
fn windows_share_the_pages_of_the_words_of_their_locks() {
    pairs("windows_share_the_pages_of_the_words_of_their_locks", &[], |job| {
        let (other, value) = (Rank(1 - job.rank().0), [1]);
        for turn in 0..2 {
            let windows = (0..32).map(|_| job.allocate::<u64>(1)).collect::<Result<Vec<_>, _>>()?;
            // Of the windows' own memory nothing is touched before both have looked. Six have one board. Whose numbers are
            // free again the ranks have not told each other yet, so that the first that comes then has the next one.
            let (taken, pages) = (taken(), 1 + turn);
            assert!((LOCK_WORDS..=pages * LOCK_WORDS + 6 * BOARD).contains(&taken), "{taken}");
            job.barrier()?;
            for window in &windows {
                window.lock(other, LockType::Exclusive, |epoch| epoch.put(0, &value))?;
            }
            job.barrier()?;
            for window in windows {
                assert_eq!(window.local().get(0)?, 1);
                window.free()?;
            }
        }
        Ok(())
    });
}

#[test]
fn transparent_huge_pages_are_as_good_as_others() {
    let variables = [("RMA_SHM_HUGE_PAGES", "transparent"), ("RMA_SHM_RESERVE", "1")];
    pairs("transparent_huge_pages_are_as_good_as_others", &variables, |job| is_usable(job, 1 << 19));
}

/// Where the pool of huge pages has none, as on most machines, the error says so.
#[test]
fn huge_pages_are_had_or_an_error_of_all_ranks() {
    let variables = [("RMA_SHM_HUGE_PAGES", "2M")];
    pairs("huge_pages_are_had_or_an_error_of_all_ranks", &variables, |job| {
        // Both ranks' windows, of 4 MiB each.
        match is_usable(job, 1 << 19) {
            Ok(()) => println!("4 MiB in huge pages"),
            Err(error) => {
                assert_eq!(error.class(), ErrorClass::NoMemory, "{error}");
                let is_elsewhere = matches!(error.rma(), Some(RmaError::Elsewhere { .. }));
                let text = error.to_string();
                let asked = "4194304 bytes of memory were asked for in 2 huge pages of 2 MiB, and ";
                assert!(is_elsewhere || text.contains(asked) && text.contains(" bytes can be had"), "{text}");
                println!("{text}");
            }
        }
        Ok(())
    });
}
