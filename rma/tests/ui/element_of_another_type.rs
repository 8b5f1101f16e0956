//! Windows are made of numbers, all of whose bits are values.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    job.allocate::<bool>(4)?;
    let window = job.allocate::<f64>(4)?;
    window.lock_all(|epoch| epoch.compare_and_swap(rma::Rank(0), 0, 1.0, 2.0).map(drop))
}
