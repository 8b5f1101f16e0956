//! A counter at rank 0 from which every rank draws tickets: `rmarun -n 4 target/debug/examples/tickets`.

use rma::{Job, Rank, ReduceOp};

fn main() -> Result<(), rma::Error> {
    let job = Job::init()?;
    // Only rank 0 has the counter; the others' windows are empty, which is legal.
    let window = job.allocate::<u64>(usize::from(job.rank() == Rank(0)))?;

    let tickets = window.lock_all(|epoch| {
        (0..3).map(|_| epoch.fetch_and_op(Rank(0), 0, 1, ReduceOp::Sum)).collect::<Result<Vec<u64>, _>>()
    })?;
    println!("rank {} drew {tickets:?}", job.rank());

    job.barrier()?;
    if job.rank() == Rank(0) {
        assert_eq!(window.local().get(0)?, 3 * u64::from(job.size()));
    }
    window.free()?;
    job.finalize()
}
