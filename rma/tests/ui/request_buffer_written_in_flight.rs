//! What a put with a request reads cannot be written before the request was waited for.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    let mut source = [0; 4];
    window.lock(rma::Rank(0), rma::LockType::Shared, |epoch| {
        let request = epoch.rput(0, &source)?;
        source[0] = 1;
        request.wait().map(drop)
    })
}
