//! A window cannot be freed while an epoch is open on it.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    window.lock_all(|epoch| {
        window.free()?;
        epoch.put(rma::Rank(0), 0, &[1])
    })
}
