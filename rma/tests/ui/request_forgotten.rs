//! The buffer of a request that was forgotten stays borrowed until the scope ends.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    let mut seen = [0; 4];
    window.lock_all(|epoch| {
        std::mem::forget(epoch.rget(rma::Rank(0), 0, &mut seen)?);
        println!("{}", seen[0]);
        Ok(())
    })
}
