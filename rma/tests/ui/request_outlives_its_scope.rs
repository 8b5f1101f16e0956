//! A request cannot be carried out of its scope, and so not beyond its window.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let mut seen = [0; 4];
    let window = job.allocate::<u64>(4)?;
    let request = window.lock_all(|epoch| epoch.rget(rma::Rank(0), 0, &mut seen))?;
    window.free()?;
    request.wait().map(drop)
}
