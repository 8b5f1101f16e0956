//! A buffer that is gone before the batch has ended.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    window.lock_all(|epoch| {
        epoch.batch(|batch| {
            let source = vec![1, 2, 3];
            batch.put(rma::Rank(0), 0, &source)
        })
    })
}
