//! The design's tables of memory barriers (docs/shared-memory.md), between processes that have one memory: what is stored or
//! put in front of a synchronization is loaded or got behind it, and what is loaded behind one is not what is stored behind
//! the next. Loads and stores are plain ones, which order nothing by themselves.
//!
//! Every test then does the same accesses without what should order them, and checks that stale values are found: nothing
//! else keeps the ranks in step. Each test runs with the messages of words and with those of packets.

#[path = "../common/mod.rs"]
mod common;

mod active;
mod buffering;
mod locks;
mod passive;

use std::cell::Cell;

use rma::raw::RawWindow;
use rma::{Error, Job, Rank, WindowOptions};

/// Rounds with synchronization, and behind them those without.
const ROUNDS: u64 = 1000;
const LOOSE: u64 = 1000;

/// Words that are written in each round: two cache lines.
const WORDS: usize = 16;

/// Repetitions in which what is not ordered must be seen once.
const TRIES: u32 = 1000;

const SIZES: [u32; 2] = [2, 3];
const BY_PACKETS: (&str, &str) = ("RMA_FORCE_MESSAGE_PATH", "1");

type Done = Result<(), Error>;

/// Runs the body in jobs of these sizes over shared memory.
fn on_one_host(name: &str, sizes: &[u32], body: impl FnOnce(&Job) -> Done) {
    if common::is_rank() {
        return common::run_body(body);
    }
    for &size in sizes {
        for variables in [&[][..], &[BY_PACKETS]] {
            let output = common::launch(name, size, "shm", variables);
            let text = common::text(&output);
            assert!(output.status.success(), "{size} ranks with {variables:?}: {text}");
            // For `--nocapture`: how many were stale.
            println!("{size} ranks with {variables:?}: {text}");
        }
    }
}

// Frames of their own, which ci/races.txt names; so for `load`.
#[inline(never)]
fn store(to: *mut u64, value: u64) {
    // SAFETY: the tests pass words of a window's memory; volatile, as others access them.
    unsafe { to.write_volatile(value) };
}

#[inline(never)]
fn load(from: *mut u64) -> u64 {
    // SAFETY: as in `store`.
    unsafe { from.read_volatile() }
}

/// Writes a round's number to the words.
fn store_all(to: *mut u64, number: u64) {
    (0..WORDS).for_each(|word| store(to.wrapping_add(word), number));
}

/// Whether all words are of that round.
fn are_all(from: *mut u64, number: u64) -> bool {
    (0..WORDS).all(|word| load(from.wrapping_add(word)) == number)
}

/// A window and the places in it that a rank of the ring writes and reads: each writes in the part of the next one.
struct Ring<'j> {
    window: RawWindow,
    job: &'j Job,
    next: Rank,
    before: Rank,
    /// Sources of puts, and results of gets, of all rounds: without synchronization they stay under way. Then words for one.
    buffers: Box<[Cell<u64>]>,
}

impl<'j> Ring<'j> {
    fn new(job: &'j Job, window: RawWindow) -> Self {
        let (rank, size) = (job.rank().0, job.size());
        let (next, before) = (Rank((rank + 1) % size), Rank((rank + size - 1) % size));
        let sources = (0..=ROUNDS + LOOSE).flat_map(|number| [number; WORDS]);
        let buffers = sources.chain(0..=ROUNDS + LOOSE).chain([0; WORDS]).map(Cell::new).collect();
        Self { window, job, next, before, buffers }
    }

    fn shared(job: &'j Job) -> Result<Self, Error> {
        let window = RawWindow::allocate_shared(job, 3 * WORDS * 8, 8, &WindowOptions::DEFAULT)?;
        Ok(Self::new(job, window))
    }

    fn allocated(job: &'j Job) -> Result<Self, Error> {
        Ok(Self::new(job, RawWindow::allocate(job, 3 * WORDS * 8, 8)?))
    }

    /// The own part: words of the rank before, words of its own, and one to be notified.
    fn own(&self) -> *mut u64 {
        self.window.base().cast()
    }

    /// A rank's part of a shared window.
    fn part(&self, rank: Rank) -> Result<*mut u64, Error> {
        Ok(self.window.shared_query(rank)?.base.cast())
    }

    fn buffer(&self, at: usize) -> *mut u64 {
        self.buffers.as_ptr().cast::<u64>().cast_mut().wrapping_add(at)
    }

    fn result(&self, number: u64) -> *mut u64 {
        self.buffer((ROUNDS + LOOSE + 1) as usize * WORDS + number as usize)
    }

    /// Puts a round's number to the first words of a rank.
    fn put(&self, to: Rank, number: u64) -> Done {
        self.put_from(self.buffer(number as usize * WORDS), to)
    }

    fn put_from(&self, source: *mut u64, to: Rank) -> Done {
        // SAFETY: the buffers live until the window is freed, and are not written while a put reads them.
        unsafe { self.window.put(source.cast(), WORDS * 8, to, 0) }
    }

    /// Puts any number, in place of the one that was put so before, which is complete.
    fn put_now(&self, to: Rank, number: u64) -> Done {
        let source = self.result(ROUNDS + LOOSE + 1);
        store_all(source, number);
        self.put_from(source, to)?;
        self.window.flush(to)
    }

    /// Gets one word of a rank to the result of the round, which is nothing until then.
    fn get(&self, from: Rank, word: usize, number: u64) -> Done {
        store(self.result(number), u64::MAX);
        // SAFETY: as in `put_from`; results are read by volatile loads.
        unsafe { self.window.get(self.result(number).cast(), 8, from, word as u64) }
    }
}

/// Each rank writes, says so, and reads what the others have written, which is of this round; and the same without what says
/// so, where it is of any.
fn rounds(
    write: impl Fn(u64) -> Done,
    read: impl Fn(u64) -> Result<bool, Error>,
    (there, back): (impl Fn(u64) -> Done, impl Fn(u64) -> Done),
) -> Done {
    for number in 1..=ROUNDS {
        write(number)?;
        there(number)?;
        assert!(read(number)?, "a stale value in round {number}");
        back(number)?;
    }
    let mut stale = 0;
    for number in ROUNDS + 1..=ROUNDS + LOOSE {
        write(number)?;
        stale += u64::from(!read(number)?);
    }
    println!("{stale} of {LOOSE} rounds stale without synchronization");
    assert_ne!(stale, 0, "nothing shows that the test can fail");
    Ok(())
}
