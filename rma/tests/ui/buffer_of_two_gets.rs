//! Two operations of one epoch cannot write to the same buffer.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    let mut seen = [0; 2];
    window.lock_all(|epoch| {
        epoch.get(rma::Rank(0), 0, &mut seen)?;
        epoch.get(rma::Rank(0), 2, &mut seen)
    })
}
