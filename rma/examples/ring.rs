//! A ring of numbers that is spread over the ranks: each number is put to where it belongs, which mostly is
//! at another rank, and gotten by whoever needs it. The checksum on standard output is the same for any
//! number of ranks, whatever started them: `rmarun`, `srun`, `mpiexec`, `mpirun`, or nobody. How many ranks
//! there were is on standard error.
//!
//! `rmarun -n 4 target/debug/examples/ring`

use rma::{Job, Rank, ReduceOp};

/// Numbers on the ring.
const NUMBERS: u64 = 840;

/// How far a number goes when it is put, and how far it comes from when it is gotten.
const STEP: u64 = 293;

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let (rank, size) = (u64::from(job.rank().0), u64::from(job.size()));
    let first_of = |rank: u64| NUMBERS * rank / size;
    let place_of = |number: u64| {
        let mut owner = number * size / NUMBERS;
        // The division above may be one off where the numbers do not divide evenly.
        while first_of(owner + 1) <= number {
            owner += 1;
        }
        (Rank(owner as u32), number - first_of(owner))
    };
    let mine: Vec<u64> = (first_of(rank)..first_of(rank + 1)).collect();
    let window = job.allocate::<u64>(mine.len())?;
    let total = job.allocate::<u64>(1)?;

    let values: Vec<u64> = mine.iter().map(|number| scramble(*number)).collect();
    window.lock_all(|epoch| {
        for (number, value) in mine.iter().zip(values.chunks(1)) {
            let (owner, disp) = place_of((number + STEP) % NUMBERS);
            epoch.put(owner, disp, value)?;
        }
        Ok(())
    })?;
    job.barrier()?;

    let mut gotten = vec![0; mine.len()];
    window.lock_all(|epoch| {
        for (number, value) in mine.iter().zip(gotten.chunks_mut(1)) {
            let (owner, disp) = place_of((number + 2 * STEP) % NUMBERS);
            epoch.get(owner, disp, value)?;
        }
        Ok(())
    })?;
    let sums = [mine.iter().zip(&gotten).fold(0u64, |sum, (number, value)| {
        assert_eq!(*value, scramble((number + STEP) % NUMBERS), "number {number}");
        sum.wrapping_add(scramble(number ^ value))
    })];
    total.lock_all(|epoch| epoch.accumulate(Rank(0), 0, &sums, ReduceOp::Sum))?;
    job.barrier()?;

    if rank == 0 {
        eprintln!("ring of {size} ranks");
        println!("checksum {:#018x}", total.local().get(0)?);
    }
    total.free()?;
    window.free()?;
    job.finalize()
}

/// A permutation of the 64-bit numbers that leaves no pattern (the finalizer of SplitMix64).
fn scramble(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
