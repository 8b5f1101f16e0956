//! The buffer of a request lives as long as the scope, because the request may be forgotten.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    window.lock_all(|epoch| {
        let mut seen = [0; 4];
        epoch.rget(rma::Rank(0), 0, &mut seen)?.wait().map(drop)
    })
}
