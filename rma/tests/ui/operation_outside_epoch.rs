//! A window by itself has no operations.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    window.put(rma::Rank(0), 0, &[1, 2, 3])
}
