//! What a get writes is not there before the epoch has ended.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    let mut seen = [0; 4];
    window.fence(|epoch| {
        epoch.get(rma::Rank(0), 0, &mut seen)?;
        println!("{}", seen[0]);
        Ok(())
    })
}
