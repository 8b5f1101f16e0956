//! What a scope hands out cannot outlive it.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    let mut kept = None;
    window.fence(|epoch| {
        kept = Some(epoch);
        Ok(())
    })?;
    if let Some(epoch) = kept {
        epoch.put(rma::Rank(0), 0, &[1])?;
    }
    Ok(())
}
