//! A producer puts blocks into a ring at each consumer and notifies it; consumers wait for the word, not for a call.
//!
//! `rmarun -n 4 target/debug/examples/notified`

use rma::raw::{Change, Notification, RawWindow};
use rma::{Dtype, Job, Rank, ReduceOp};

/// Blocks that every consumer gets.
const BLOCKS: u64 = 100;

/// Words of a block, and blocks of a ring.
const WORDS: usize = 64;
const RING: u64 = 4;

/// Where a consumer is told of blocks, and where the producer is told, per consumer, of those that were used.
const ARRIVED: u64 = RING * WORDS as u64;
const USED: u64 = ARRIVED + 1;

const PRODUCER: Rank = Rank(0);

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let words = USED + u64::from(job.size());
    let window = RawWindow::allocate(&job, 8 * words as usize, 8)?;
    window.lock_all(false)?;
    if job.rank() == PRODUCER {
        produce(&job, &window)?;
    } else {
        let sum = consume(&job, &window)?;
        let expected = (0..BLOCKS).map(|block| block * WORDS as u64).sum::<u64>();
        assert_eq!(sum, expected, "a block was seen before it was there");
        println!("rank {} has used {BLOCKS} blocks: {sum}", job.rank());
    }
    window.unlock_all()?;
    job.barrier()?;
    window.free()?;
    job.finalize()
}

fn produce(job: &Job, window: &RawWindow) -> rma::Result<()> {
    for block in 0..BLOCKS {
        let data = [block; WORDS];
        for consumer in 1..job.size() {
            // Room in the consumer's ring.
            window.wait_notification(USED + u64::from(consumer), (block + 1).saturating_sub(RING))?;
            let disp = block % RING * WORDS as u64;
            let arrived = Notification { disp: ARRIVED, change: Change::Add(1) };
            // SAFETY: `data` is not written before the flush.
            unsafe {
                window.put_notify(data.as_ptr().cast(), size_of_val(&data), Rank(consumer), disp, arrived)?;
            }
        }
        window.flush_local_all()?;
    }
    Ok(())
}

fn consume(job: &Job, window: &RawWindow) -> rma::Result<u64> {
    let (mut sum, one) = (0, 1u64);
    for block in 0..BLOCKS {
        window.wait_notification(ARRIVED, block + 1)?;
        let place = window.base().cast::<u64>().wrapping_add(block as usize % RING as usize * WORDS);
        for word in 0..WORDS {
            // SAFETY: inside of the window, which nobody writes until this rank has said that it is used.
            sum += unsafe { place.wrapping_add(word).read_volatile() };
        }
        let used = USED + u64::from(job.rank().0);
        // SAFETY: `one` lives until the flush.
        unsafe {
            window.accumulate((&raw const one).cast(), 1, Dtype::U64, PRODUCER, used, ReduceOp::Sum)?;
        }
        window.flush(PRODUCER)?;
    }
    Ok(sum)
}
