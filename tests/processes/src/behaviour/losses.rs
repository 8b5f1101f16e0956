//! What ranks hear of others that somebody outside cuts off or kills. Only with `--only`, and in jobs that go on
//! without the lost (`rmarun --keep-going`), with two ranks on each host.

use std::process::exit;
use std::time::{Duration, Instant};

use rma::Job;

use super::behaviours;
use crate::failure::Outcome;
use crate::window::{barrier, Words};

behaviours![a_loss_is_heard_of];

/// Ranks on each host.
const PER_HOST: u32 = 2;

/// Between one put and the next, as their buffers are kept.
const PAUSE: Duration = Duration::from_millis(5);

/// The word that is put all the time, and the one that ends it.
const PULSE: u64 = 0;
const END: u64 = 1;

/// Every rank puts to the next host until that fails or a rank that has heard of a loss says that it is enough. The
/// behaviour's limit is the bound.
fn a_loss_is_heard_of(job: &Job) -> Outcome {
    let (rank, size) = (job.rank().0, job.size());
    let window = Words::allocate(job, 2)?;
    let target = (rank + PER_HOST) % size;
    window.lock_all()?;
    barrier(job)?;
    let begun = Instant::now();
    println!("rank {rank} puts to rank {target}");
    while window.own(END as usize) == 0 {
        if let Err(error) = window.put(target, PULSE, &[1]).and_then(|()| window.flush(target)) {
            let seconds = begun.elapsed().as_secs_f64();
            println!("rank {rank} heard of the loss of rank {target} after {seconds:.1} s: {error}");
            let lost_host = target / PER_HOST;
            for other in (0..size).filter(|other| *other != rank && other / PER_HOST != lost_host) {
                // One that is lost as well needs no telling.
                let _ = window.put(other, END, &[1]).and_then(|()| window.flush(other));
            }
            exit(0);
        }
        std::thread::sleep(PAUSE);
    }
    println!("rank {rank} went on");
    // The window cannot be freed by everybody, and need not be.
    exit(0)
}
