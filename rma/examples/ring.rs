//! Every rank writes its number into the window of the next one: `rmarun -n 4 target/debug/examples/ring`.

use rma::{Job, LockType, Rank};

fn main() -> Result<(), rma::Error> {
    let job = Job::init()?;
    let (rank, size) = (job.rank().0, job.size());

    // One u64 at every rank, zeroed.
    let window = job.allocate::<u64>(1)?;

    // Lock, put and unlock leave as one packet; when the scope ends, the bytes are at the target.
    let mine = [u64::from(rank)];
    window.lock(Rank((rank + 1) % size), LockType::Exclusive, |epoch| epoch.put(0, &mine))?;

    // Everybody has written.
    job.barrier()?;
    println!("rank {rank} of {size} heard from rank {}", window.local().get(0)?);

    window.free()?;
    job.finalize()
}
