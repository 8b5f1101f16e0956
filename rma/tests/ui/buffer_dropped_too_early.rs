//! A buffer that is gone before the epoch has ended.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    window.fence(|epoch| {
        let source = vec![1, 2, 3];
        epoch.put(rma::Rank(0), 0, &source)
    })
}
