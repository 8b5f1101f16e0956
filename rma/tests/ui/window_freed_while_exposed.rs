//! A window cannot be freed while it is exposed.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    let exposure = window.post(&job.group(&[])?)?;
    window.free()?;
    exposure.wait()
}
