//! A halo exchange with fences: each rank owns a strip of a ring of cells, smooths it, and sends its
//! border cells to its neighbours in every step: `rmarun -n 4 target/debug/examples/halo`.

use rma::{Job, Rank};

/// Cells of a strip; the window has one more at each end for the neighbours' borders.
const CELLS: usize = 100;

fn main() -> Result<(), rma::Error> {
    let job = Job::init()?;
    let (rank, size) = (job.rank().0, job.size());
    let (left, right) = (Rank((rank + size - 1) % size), Rank((rank + 1) % size));
    let window = job.allocate::<f64>(CELLS + 2)?;
    // All the heat is at rank 0.
    let mut cells = vec![if rank == 0 { 1.0 } else { 0.0 }; CELLS];

    for _ in 0..50 {
        let (first, last) = ([cells[0]], [cells[CELLS - 1]]);
        // The fence that opens the epoch and the one that closes it are the scope's.
        window.fence(|epoch| {
            epoch.put(left, CELLS as u64 + 1, &first)?;
            epoch.put(right, 0, &last)
        })?;
        let local = window.local();
        let (before, behind) = (local.get(0)?, local.get(CELLS + 1)?);
        let strip = [&[before][..], &cells, &[behind]].concat();
        cells = strip.windows(3).map(|three| three.iter().sum::<f64>() / 3.0).collect();
    }

    println!("rank {rank}: heat {:.3}", cells.iter().sum::<f64>() / CELLS as f64);
    window.free()?;
    job.finalize()
}
