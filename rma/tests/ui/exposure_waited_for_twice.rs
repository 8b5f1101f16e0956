//! An exposure epoch ends once.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    let exposure = window.post(&job.group(&[])?)?;
    exposure.wait()?;
    exposure.wait()
}
