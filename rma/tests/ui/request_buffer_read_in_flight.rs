//! A request has the buffer until it was waited for.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    let mut seen = [0; 4];
    window.lock_all(|epoch| {
        let request = epoch.rget(rma::Rank(0), 0, &mut seen)?;
        println!("{}", seen[0]);
        request.wait().map(drop)
    })
}
