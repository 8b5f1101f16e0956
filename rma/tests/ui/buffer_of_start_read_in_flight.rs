//! What a get reads in a start epoch is there when the epoch has ended.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let window = job.allocate::<u64>(4)?;
    let group = job.group(&[rma::Rank(0)])?;
    let mut seen = [0];
    window.start(&group, |epoch| {
        epoch.get(rma::Rank(0), 0, &mut seen)?;
        println!("{}", seen[0]);
        Ok(())
    })
}
