//! Lock, put, unlock, as a lecture shows it: rank 0 puts a number into the window of rank 1, which calls
//! nothing for it.
//!
//! `rmarun -n 2 target/debug/examples/lecture_lock`

use rma::{Job, LockType, Rank};

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let target = Rank(1 % job.size());
    // Only the target's window has memory.
    let window = job.allocate::<i32>(if job.rank() == target { 2 } else { 0 })?;
    if job.rank() == Rank(0) {
        window.lock(target, LockType::Shared, |epoch| epoch.put(1, &[42]))?;
    }
    // So that the target knows when to look; the put itself is complete since the unlock.
    job.barrier()?;
    if job.rank() == target {
        let numbers = window.local().to_vec()?;
        assert_eq!(numbers, [0, 42]);
        println!("rank {target} has {numbers:?}");
    }
    window.free()?;
    job.finalize()
}
