//! Waiting gives the buffers back, once.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    let mut seen = [0; 4];
    window.lock_all(|epoch| {
        let request = epoch.rget(rma::Rank(0), 0, &mut seen)?;
        let (one, two) = (request.wait()?, request.wait()?);
        one[0] = two[0];
        Ok(())
    })
}
