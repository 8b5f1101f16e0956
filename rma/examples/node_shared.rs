//! Heat along a rod, as in `halo`, with the cells in shared windows (in MPI, "MPI+MPI"): a rank reads the end of a
//! neighbour on its host where it is, and has that of one on another host put into its own part. Whether it is the one or
//! the other, `shared_query` says.
//!
//! `rmarun -n 4 target/debug/examples/node_shared`

#![allow(unsafe_code)] // memory that others load and store

use rma::raw::RawWindow;
use rma::{FenceAssert, Job, Rank, ReduceOp, SharedMemory, WindowOptions};

/// Cells of each rank.
const CELLS: usize = 100;

const STEPS: usize = 500;

/// A part: the cells of even steps, those of odd ones, and of both what was put from the left and from the right.
const HALO: usize = 2 * CELLS;
const PART: usize = HALO + 4;

const BYTES: usize = size_of::<f64>();

/// The end of a neighbour's part.
enum Beyond {
    /// The rod has none.
    Nothing,
    /// Of a rank on this host: it is read there.
    Here(SharedMemory),
    /// Of another one, which puts it.
    Elsewhere(Rank),
}

fn main() -> rma::Result<()> {
    let job = Job::init()?;
    let window = RawWindow::allocate_shared(&job, PART * BYTES, BYTES as u32, &WindowOptions::DEFAULT)?;
    let rank = job.rank().0;
    let own = window.shared_query(job.rank())?;
    let left = beyond(&window, rank.checked_sub(1).map(Rank))?;
    let right = beyond(&window, Some(rank + 1).filter(|right| *right < job.size()).map(Rank))?;

    // Hot at the beginning of the rod, cold elsewhere.
    let mut cells = vec![if rank == 0 { 100.0 } else { 0.0 }; CELLS];
    window.fence(FenceAssert { no_precede: true, ..FenceAssert::default() })?;
    for step in 0..STEPS {
        // Others may still read what was there in the step before; the fences keep them from being further behind.
        let turn = step % 2;
        for (index, cell) in cells.iter().enumerate() {
            store(&own, turn * CELLS + index, *cell);
        }
        for (side, to) in [&left, &right].into_iter().enumerate() {
            if let Beyond::Elsewhere(to) = to {
                let end = word(&own, turn * CELLS + side * (CELLS - 1)).cast::<u8>();
                // To its other side.
                let place = (HALO + 2 * turn + 1 - side) as u64;
                // SAFETY: the cell stays as it is until the step after the next, far behind the fence.
                unsafe { window.put(end, BYTES, *to, place)? };
            }
        }
        window.fence(FenceAssert::default())?;
        let value = |beyond: &Beyond, side: usize, end: f64| match beyond {
            // Nothing flows out of the ends of the rod.
            Beyond::Nothing => end,
            // Its last cell is to the left, its first one to the right.
            Beyond::Here(part) => load(part, turn * CELLS + (1 - side) * (CELLS - 1)),
            Beyond::Elsewhere(_) => load(&own, HALO + 2 * turn + side),
        };
        let outside = [value(&left, 0, cells[0]), value(&right, 1, cells[CELLS - 1])];
        cells = diffuse(&cells, outside);
    }
    window.fence(FenceAssert { no_succeed: true, ..FenceAssert::default() })?;
    window.free()?;

    let mean = cells.iter().sum::<f64>() / CELLS as f64;
    println!("rank {rank}, on a host with {:?}: mean {mean:.3}", job.local_ranks().unwrap_or_default());
    check(&job, rank, &cells)?;
    job.finalize()
}

fn beyond(window: &RawWindow, rank: Option<Rank>) -> rma::Result<Beyond> {
    let Some(rank) = rank else { return Ok(Beyond::Nothing) };
    let part = window.shared_query(rank)?;
    Ok(if part.base.is_null() { Beyond::Elsewhere(rank) } else { Beyond::Here(part) })
}

/// A number of a part that this process can load and store.
fn word(part: &SharedMemory, index: usize) -> *mut f64 {
    assert!((index + 1) * BYTES <= part.len);
    part.base.cast::<f64>().wrapping_add(index)
}

fn load(part: &SharedMemory, index: usize) -> f64 {
    // SAFETY: inside of the part, and aligned; a fence lies behind who has written it. Volatile, as that was another process.
    unsafe { word(part, index).read_volatile() }
}

fn store(part: &SharedMemory, index: usize, value: f64) {
    // SAFETY: as in `load`; nobody reads it before the next fence.
    unsafe { word(part, index).write_volatile(value) };
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

/// The cells are those of a rod that one process computes alone, and heat only moves: all of it together is as much as
/// at the beginning.
fn check(job: &Job, rank: u32, cells: &[f64]) -> rma::Result<()> {
    let mut rod = vec![0.0; CELLS * job.size() as usize];
    rod[..CELLS].fill(100.0);
    for _ in 0..STEPS {
        let ends = [rod[0], rod[rod.len() - 1]];
        rod = diffuse(&rod, ends);
    }
    let expected = &rod[rank as usize * CELLS..][..CELLS];
    let is_same = cells.iter().zip(expected).all(|(cell, expected)| (cell - expected).abs() < 1e-9);
    assert!(is_same, "rank {rank}: {cells:?} and not {expected:?}");
    let heat = [cells.iter().sum::<f64>()];
    let total = job.allocate::<f64>(1)?;
    total.fence(|epoch| epoch.accumulate(Rank(0), 0, &heat, ReduceOp::Sum))?;
    if rank == 0 {
        assert!((total.local().get(0)? - 100.0 * CELLS as f64).abs() < 1e-6);
    }
    total.free().map(drop)
}
