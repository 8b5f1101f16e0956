//! An origin completes before its target has posted, and then meets it, which lets the target go on to post:
//! start, put and complete wait for nobody as long as the library can keep what was put.
//!
//! | origin | target |
//! | --- | --- |
//! | start, put, complete | |
//! | barrier (send) | barrier (receive) |
//! | | post, wait |
//!
//! And the other way round: the target posts first, and receives before it waits. Its receive must let the
//! put arrive.
//!
//! `rmarun -n 2 target/debug/examples/recv_between`

use rma::{Exposure, Job, Rank};

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let (origin, target) = (Rank(0), Rank(job.size() - 1));
    let window = job.allocate::<u64>(2)?;
    let (origins, targets) = (job.group(&[origin])?, job.group(&[target])?);
    let (is_origin, is_target) = (job.rank() == origin, job.rank() == target);

    if is_origin && !is_target {
        window.start(&targets, |epoch| epoch.put(target, 0, &[1]))?;
    }
    job.barrier()?;
    if is_target && !is_origin {
        window.post(&origins)?.wait()?;
        assert_eq!(window.local().get(0)?, 1);
        println!("completed before the post");
    }

    job.barrier()?;
    let exposure = if is_target { Some(window.post(&origins)?) } else { None };
    if is_origin {
        window.start(&targets, |epoch| epoch.put(target, 1, &[2]))?;
    }
    job.barrier()?;
    exposure.map(Exposure::wait).transpose()?;
    if is_target {
        assert_eq!(window.local().get(1)?, 2);
        println!("completed before the receive that came before the wait");
    }
    window.free()?;
    job.finalize()
}
