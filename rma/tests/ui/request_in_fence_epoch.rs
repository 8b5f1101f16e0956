//! Operations with a request belong to lock epochs (MPI-4.1 section 13.3.5).

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    let mut seen = [0; 4];
    window.fence(|epoch| epoch.rget(rma::Rank(0), 0, &mut seen)?.wait().map(drop))
}
