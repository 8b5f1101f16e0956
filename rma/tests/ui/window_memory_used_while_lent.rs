//! Memory that a window was made of belongs to it until it is freed.

fn main() -> rma::Result<()> {
    let job = rma::Job::init()?;
    let memory = vec![0u64; 4];
    let window = job.create(memory)?;
    println!("{}", memory[0]);
    window.free().map(drop)
}
