//! A work counter: ranks draw pieces of work from one counter that rank 0 holds, so whoever is fast does more.
//!
//! `rmarun -n 4 target/debug/examples/shared_counter`

use rma::{Job, Rank, ReduceOp};

/// Pieces of work.
const PIECES: u64 = 1000;

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let owner = Rank(0);
    let window = job.allocate::<u64>(if job.rank() == owner { 2 } else { 0 })?;

    window.lock_all(|epoch| {
        let (mut count, mut sum) = (0, 0);
        loop {
            let piece = epoch.fetch_and_op(owner, 0, 1, ReduceOp::Sum)?;
            if piece >= PIECES {
                break;
            }
            count += 1;
            sum += piece;
        }
        println!("rank {} did {count} pieces", job.rank());
        epoch.fetch_and_op(owner, 1, sum, ReduceOp::Sum).map(drop)
    })?;

    job.barrier()?;
    if job.rank() == owner {
        let total = window.local().get(1)?;
        assert_eq!(total, PIECES * (PIECES - 1) / 2);
        println!("all {PIECES} pieces were done once: their numbers sum to {total}");
    }
    window.free()?;
    job.finalize()
}
