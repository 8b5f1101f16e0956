//! Each rank writes a greeting into the window of the next one.
//!
//! `rmarun -n 4 target/debug/examples/hello_put`

use rma::{Job, LockType, Rank};

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let window = job.allocate::<u8>(64)?;
    let greeting = format!("hello from rank {} of {}", job.rank(), job.size());
    let next = Rank((job.rank().0 + 1) % job.size());

    // Lock, put and unlock are one packet, and one comes back; the other rank does nothing for it.
    window.lock(next, LockType::Exclusive, |epoch| epoch.put(0, greeting.as_bytes()))?;

    // Every rank has been greeted when every rank has greeted.
    job.barrier()?;
    let received = window.local().to_vec()?;
    let received = String::from_utf8_lossy(&received);
    let received = received.trim_end_matches('\0');
    let previous = (job.rank().0 + job.size() - 1) % job.size();
    assert_eq!(received, format!("hello from rank {previous} of {}", job.size()));
    println!("rank {}: {received}", job.rank());

    window.free()?;
    job.finalize()
}
