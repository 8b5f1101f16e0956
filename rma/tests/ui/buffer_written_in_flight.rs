//! What a put reads must stay as it is until the epoch has ended.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    let mut source = [1, 2, 3];
    window.lock(rma::Rank(0), rma::LockType::Shared, |epoch| {
        epoch.put(0, &source)?;
        source[0] = 7;
        Ok(())
    })
}
