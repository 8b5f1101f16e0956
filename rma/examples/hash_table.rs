//! A hash table that is spread over the ranks, and counts words: each rank counts its part of a text, and any rank
//! finds any count. Nobody serves anybody: a key is claimed by compare-and-swap, and counted by fetch_and_op.
//!
//! `rmarun -n 4 target/debug/examples/hash_table`

use rma::{Job, LockAllEpoch, Rank, ReduceOp, Window};

/// Places for keys at each rank, some more than there are keys at most.
const PLACES: u64 = 256;

/// Words of a place: the key, and its count.
const KEY: u64 = 0;
const COUNT: u64 = 1;
const WORDS: u64 = 2;

/// The key of a place that nobody has claimed.
const FREE: u64 = 0;

/// Different keys, and how many of them each rank counts.
const KEYS: u64 = 120;
const COUNTED: u64 = 300;

/// A table: the window has each rank's places.
struct Table {
    window: Window<u64>,
    size: u32,
}

impl Table {
    fn new(job: &Job) -> rma::Result<Self> {
        Ok(Self { window: job.allocate((PLACES * WORDS) as usize)?, size: job.size() })
    }

    /// Lets `body` use the table, at the same time as other ranks do.
    fn session<R>(&self, body: impl FnOnce(&Session<'_, '_, '_>) -> rma::Result<R>) -> rma::Result<R> {
        self.window.lock_all(|epoch| body(&Session { epoch, size: self.size }))
    }
}

/// The table while all its ranks are locked, shared.
struct Session<'a, 'scope, 'env> {
    epoch: &'a LockAllEpoch<'scope, 'env, u64>,
    size: u32,
}

impl Session<'_, '_, '_> {
    /// Adds to the count of a key, which is inserted if it is new. Gives back the count before.
    fn add(&self, key: u64, amount: u64) -> rma::Result<u64> {
        assert_ne!(key, FREE);
        for (owner, place) in self.places(key) {
            let found = self.epoch.compare_and_swap(owner, place + KEY, FREE, key)?;
            if found == FREE || found == key {
                return self.epoch.fetch_and_op(owner, place + COUNT, amount, ReduceOp::Sum);
            }
        }
        panic!("the table is full");
    }

    /// The count of a key, 0 if it is not there.
    fn count(&self, key: u64) -> rma::Result<u64> {
        for (owner, place) in self.places(key) {
            // Atomic reads, because others may change the words now.
            match self.epoch.fetch_and_op(owner, place + KEY, 0, ReduceOp::NoOp)? {
                FREE => return Ok(0),
                found if found == key => {
                    return self.epoch.fetch_and_op(owner, place + COUNT, 0, ReduceOp::NoOp)
                }
                _ => {}
            }
        }
        Ok(0)
    }

    /// Where a key may be: at its rank, from its place on.
    fn places(&self, key: u64) -> impl Iterator<Item = (Rank, u64)> {
        let hash = hash(key);
        let owner = Rank((hash % u64::from(self.size)) as u32);
        (0..PLACES).map(move |step| (owner, (hash / 1024 + step) % PLACES * WORDS))
    }
}

/// Spreads numbers over all 64 bits.
fn hash(key: u64) -> u64 {
    let mixed = (key ^ (key >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// The word that a rank finds at a place of its text.
fn word(rank: u32, at: u64) -> u64 {
    1 + hash(u64::from(rank) * COUNTED + at) % KEYS
}

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let table = Table::new(&job)?;
    let new = table.session(|session| {
        let mut new = 0;
        for at in 0..COUNTED {
            new += u64::from(session.add(word(job.rank().0, at), 1)? == 0);
        }
        Ok(new)
    })?;
    println!("rank {} was the first with {new} keys", job.rank());

    // Each rank looks up every key, and compares with the words of all texts.
    job.barrier()?;
    let mut expected = [0; KEYS as usize + 1];
    for rank in 0..job.size() {
        (0..COUNTED).for_each(|at| expected[word(rank, at) as usize] += 1);
    }
    table.session(|session| {
        for (key, expected) in (1..=KEYS).zip(&expected[1..]) {
            assert_eq!(session.count(key)?, *expected, "key {key}");
        }
        assert_eq!(session.count(KEYS + 1)?, 0);
        Ok(())
    })?;
    println!("rank {} found all counts as they must be", job.rank());
    job.barrier()?;
    table.window.free()?;
    job.finalize()
}
