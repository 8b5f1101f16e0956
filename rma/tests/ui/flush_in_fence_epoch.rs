//! Flush belongs to lock epochs.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    window.fence(|epoch| epoch.flush(rma::Rank(0)))
}
