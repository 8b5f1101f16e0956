//! Heat along a rod that is spread over the ranks: in each step, the cells at the ends of a rank's part
//! are put into its neighbours' windows.
//!
//! `rmarun -n 4 target/debug/examples/halo`

use rma::{Job, Rank, ReduceOp};

/// Cells of each rank.
const CELLS: usize = 100;

const STEPS: usize = 500;

/// Where the neighbours put their ends: the window is these two elements.
const FROM_LEFT: u64 = 0;
const FROM_RIGHT: u64 = 1;

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let window = job.allocate::<f64>(2)?;
    let rank = job.rank().0;
    let left = rank.checked_sub(1).map(Rank);
    let right = Some(rank + 1).filter(|right| *right < job.size()).map(Rank);

    // Hot at the beginning of the rod, cold elsewhere.
    let mut cells = vec![if rank == 0 { 100.0 } else { 0.0 }; CELLS];
    for _ in 0..STEPS {
        let ends = [cells[0], cells[CELLS - 1]];
        window.fence(|epoch| {
            if let Some(left) = left {
                epoch.put(left, FROM_RIGHT, &ends[..1])?;
            }
            if let Some(right) = right {
                epoch.put(right, FROM_LEFT, &ends[1..])?;
            }
            Ok(())
        })?;
        // Nothing flows out of the ends of the rod.
        let mut halo = [0.0; 2];
        window.local().read(0, &mut halo)?;
        let outside = [left.map_or(ends[0], |_| halo[0]), right.map_or(ends[1], |_| halo[1])];
        cells = diffuse(&cells, outside);
    }

    println!("rank {rank}: mean {:.3}", cells.iter().sum::<f64>() / CELLS as f64);
    window.free()?;
    // Heat only moves: all of it together is as much as at the beginning.
    let heat = [cells.iter().sum::<f64>()];
    let total = job.allocate::<f64>(1)?;
    total.fence(|epoch| epoch.accumulate(Rank(0), 0, &heat, ReduceOp::Sum))?;
    if rank == 0 {
        assert!((total.local().get(0)? - 100.0 * CELLS as f64).abs() < 1e-6);
    }
    total.free()?;
    job.finalize()
}

/// One step, with the values beyond both ends.
fn diffuse(cells: &[f64], [before, after]: [f64; 2]) -> Vec<f64> {
    let at = |index: usize, offset: isize| match index.checked_add_signed(offset) {
        None => before,
        Some(index) => cells.get(index).copied().unwrap_or(after),
    };
    (0..cells.len())
        .map(|index| cells[index] + 0.25 * (at(index, -1) - 2.0 * cells[index] + at(index, 1)))
        .collect()
}
