//! The target of a few origins knows when they are done, and nobody else takes part: rank 0 exposes its
//! window to all others, and each puts its part (post, start, complete, wait).
//!
//! `rmarun -n 3 target/debug/examples/pscw`

use rma::{Job, Rank};

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let target = Rank(0);
    let window = job.allocate::<u64>(if job.rank() == target { job.size() as usize } else { 0 })?;

    if job.rank() == target {
        let origins: Vec<Rank> = (1..job.size()).map(Rank).collect();
        window.post(&job.group(&origins)?)?.wait()?;
        println!("rank 0 was given {:?}", window.local().to_vec()?);
        assert!((0..u64::from(job.size())).eq(window.local().to_vec()?));
    } else {
        let value = [u64::from(job.rank().0)];
        window.start(&job.group(&[target])?, |epoch| epoch.put(target, value[0], &value))?;
    }
    window.free()?;
    job.finalize()
}
