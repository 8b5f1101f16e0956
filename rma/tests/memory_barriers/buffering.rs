//! Store buffering: of two ranks that each write, order that by one call, and read what the other writes, one at least sees
//! the other's. A full barrier is needed for that, on x86 as well: a processor reads before its own last store is seen.

use rma::raw::RawWindow;
use rma::{Error, Job, Rank, WindowOptions};

use super::{load, on_one_host, store, Done, TRIES};

/// Writes of each rank. They run freely, so that some meet within nanoseconds.
const WRITES: u64 = 20_000;

/// Of those that show that the check can fail.
const OVERTAKEN: u64 = 500;

/// Runs of as many, of each call.
const RUNS: u32 = 20;

/// What is between a write and a read.
type Between = fn(&RawWindow, Rank) -> Done;

const FLUSHES: [Between; 5] = [
    |window, other| window.flush(other),
    |window, _| window.flush_all(),
    |window, other| window.flush_targets(&[other]),
    |window, other| window.iflush(other).and_then(|mut request| window.job().wait(&mut request)),
    |window, _| window.sync(),
];

/// Two words that are each written by one rank, and what they have read of the other one's.
struct Pair<'j> {
    job: &'j Job,
    window: RawWindow,
    results: RawWindow,
    other: Rank,
}

impl<'j> Pair<'j> {
    fn new(job: &'j Job, window: RawWindow) -> Result<Self, Error> {
        let len = WRITES as usize * 8;
        let results = RawWindow::allocate_shared(job, len, 8, &WindowOptions::DEFAULT)?;
        Ok(Self { job, window, results, other: Rank(1 - job.rank().0) })
    }

    /// Each writes 1, 2, 3 and so on and reads with each; two writes that were both not seen by the other's read, if any were.
    fn run(
        &self,
        writes: u64,
        each: impl Fn(u64) -> Result<u64, Error>,
    ) -> Result<Option<(u64, u64)>, Error> {
        let part = |rank| Ok::<_, Error>(self.results.shared_query(rank)?.base.cast::<u64>());
        let own = part(self.job.rank())?;
        self.job.barrier()?;
        for number in 1..=writes {
            store(own.wrapping_add(number as usize - 1), each(number)?);
        }
        self.job.barrier()?;
        let (first, second) = (part(Rank(0))?, part(Rank(1))?);
        let unseen = (1..=writes).find_map(|number| {
            let seen = load(first.wrapping_add(number as usize - 1));
            // The other's next write was not seen: then it must have seen this one behind it.
            (seen < writes && load(second.wrapping_add(seen as usize)) < number).then_some((number, seen + 1))
        });
        self.job.barrier()?;
        Ok(unseen)
    }

    fn free(self) -> Done {
        self.results.free()?;
        self.window.free()
    }
}

/// Stores, loads, and calls between them, over which a flush that has nothing to do may not skip the barrier; then loads that
/// overtake the store, which must be found.
///
/// Shows: MPI_Win_flush, MPI_Win_flush_all, MPI_Win_sync, ours: flush_targets, ours: iflush, seed: MEM_SYNC.
#[test]
fn stores_are_seen_by_one() {
    on_one_host("buffering::stores_are_seen_by_one", &[2], |job| {
        let pair = Pair::new(job, RawWindow::allocate_shared(job, 128, 8, &WindowOptions::DEFAULT)?)?;
        let own: *mut u64 = pair.window.base().cast();
        let theirs: *mut u64 = pair.window.shared_query(pair.other)?.base.cast();
        let mut word = 0u64;
        pair.window.lock_all(false)?;
        // A flush behind an operation remembers that nothing is under way.
        // SAFETY: the word lives until the flush.
        unsafe { pair.window.get((&raw mut word).cast(), 8, pair.other, 8) }?;
        pair.window.flush(pair.other)?;
        for (call, between) in FLUSHES.iter().enumerate() {
            for _ in 0..RUNS {
                store(own, 0);
                let unseen = pair.run(WRITES, |number| {
                    store(own, number);
                    between(&pair.window, pair.other)?;
                    Ok(load(theirs))
                })?;
                assert_eq!(unseen, None, "neither of two writes was seen, with call {call} behind it");
            }
        }
        // Whether this processor does it by itself is its own affair.
        let mut bare = 0;
        for _ in 0..RUNS {
            store(own, 0);
            let unseen = pair.run(WRITES, |number| {
                store(own, number);
                Ok(load(theirs))
            })?;
            bare += u32::from(unseen.is_some());
        }
        println!("{bare} of {RUNS} runs without a call have two writes that neither has seen");
        let overtake = |number| {
            let seen = load(theirs);
            std::thread::yield_now();
            store(own, number);
            Ok(seen)
        };
        let mut is_found = false;
        for _ in 0..TRIES {
            store(own, 0);
            is_found |= pair.run(OVERTAKEN, overtake)?.is_some();
            // Both have looked at the same results.
            if is_found {
                break;
            }
        }
        assert!(is_found, "nothing shows that the test can fail");
        pair.window.unlock_all()?;
        pair.free()
    });
}

/// Puts that were flushed, and the other's puts in the own memory.
///
/// Shows: MPI_Put, MPI_Win_flush, seed: MEM_SYNC.
#[test]
fn puts_are_seen_by_one() {
    on_one_host("buffering::puts_are_seen_by_one", &[2], |job| {
        let pair = Pair::new(job, RawWindow::allocate(job, 128, 8)?)?;
        let own: *mut u64 = pair.window.base().cast();
        let put = |number: &u64| {
            // SAFETY: what is put lives until the flush behind it.
            unsafe { pair.window.put(std::ptr::from_ref(number).cast(), 8, pair.other, 0) }?;
            pair.window.flush(pair.other)
        };
        pair.window.lock_all(false)?;
        let reset = || put(&0).and_then(|()| job.barrier());
        for _ in 0..RUNS {
            reset()?;
            let unseen = pair.run(WRITES, |number| {
                put(&number)?;
                Ok(load(own))
            })?;
            assert_eq!(unseen, None, "neither of two puts was seen");
        }
        let overtake = |number| {
            let seen = load(own);
            std::thread::yield_now();
            put(&number)?;
            Ok(seen)
        };
        let mut is_found = false;
        for _ in 0..TRIES {
            reset()?;
            is_found |= pair.run(OVERTAKEN, overtake)?.is_some();
            if is_found {
                break;
            }
        }
        assert!(is_found, "nothing shows that the test can fail");
        pair.window.unlock_all()?;
        pair.free()
    });
}
