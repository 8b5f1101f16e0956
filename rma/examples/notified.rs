//! A producer puts blocks into a ring at each consumer and notifies it; consumers wait for the word, not for a call.
//!
//! `rmarun -n 4 target/debug/examples/notified`

use rma::{Change, Job, LockAllEpoch, Notification, Rank, ReduceOp, Window};

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
    let window = job.allocate::<u64>((USED + u64::from(job.size())) as usize)?;
    window.lock_all(|epoch| match job.rank() {
        PRODUCER => produce(&window, epoch),
        _ => consume(&window, epoch),
    })?;
    job.barrier()?;
    window.free()?;
    job.finalize()
}

fn produce(window: &Window<u64>, epoch: &LockAllEpoch<'_, '_, u64>) -> rma::Result<()> {
    for block in 0..BLOCKS {
        let data = [block; WORDS];
        // `data` is free for the next block when the batch is over.
        epoch.batch(|batch| {
            for consumer in 1..window.job().size() {
                // Room in the consumer's ring.
                window.wait_notification(USED + u64::from(consumer), (block + 1).saturating_sub(RING))?;
                let arrived = Notification { disp: ARRIVED, change: Change::Add(1) };
                batch.put_notify(Rank(consumer), block % RING * WORDS as u64, &data, arrived)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn consume(window: &Window<u64>, epoch: &LockAllEpoch<'_, '_, u64>) -> rma::Result<()> {
    let rank = window.job().rank();
    let mut sum = 0;
    for block in 0..BLOCKS {
        window.wait_notification(ARRIVED, block + 1)?;
        let mut data = [0; WORDS];
        window.local().read((block % RING) as usize * WORDS, &mut data)?;
        sum += data.iter().sum::<u64>();
        // The producer waits for this word.
        epoch.fetch_and_op(PRODUCER, USED + u64::from(rank.0), 1, ReduceOp::Sum)?;
    }
    let expected = (0..BLOCKS).map(|block| block * WORDS as u64).sum::<u64>();
    assert_eq!(sum, expected, "a block was seen before it was there");
    println!("rank {rank} has used {BLOCKS} blocks: {sum}");
    Ok(())
}
