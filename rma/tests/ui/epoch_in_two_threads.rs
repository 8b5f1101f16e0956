//! A window belongs to one thread at a time.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    std::thread::scope(|threads| {
        threads.spawn(|| window.lock_all(|epoch| epoch.put(rma::Rank(0), 0, &[1])));
        threads.spawn(|| window.lock_all(|epoch| epoch.put(rma::Rank(0), 1, &[1])));
    });
    Ok(())
}
