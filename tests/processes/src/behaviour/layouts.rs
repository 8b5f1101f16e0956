//! Elements that are not in a row, on either side.

use rma::{Blocks, Job, LockType, Rank, ReduceOp};

use super::behaviours;
use crate::failure::{holds, same, Outcome};
use crate::watchdog::at;
use crate::window::barrier;

behaviours![
    columns_there_and_back,
    blocks_in_any_order,
    a_part_of_an_array_is_accumulated,
    long_blocks_and_many_blocks,
];

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

fn previous(job: &Job) -> u64 {
    u64::from((job.rank().0 + job.size() - 1) % job.size())
}

/// Shows: MPI_Put, MPI_Get, MPI-4.1 13.3.
fn columns_there_and_back(job: &Job) -> Outcome {
    const ROWS: usize = 30;
    const COLUMNS: usize = 20;
    let window = job.allocate::<u64>(ROWS * COLUMNS)?;
    let (row, column) = (Blocks::row(ROWS)?, Blocks::vector(ROWS, 1, COLUMNS as isize)?);
    let own: Vec<u64> = (0..ROWS as u64).map(|at| at * 10 + u64::from(job.rank().0)).collect();
    let mut back = vec![0; ROWS * COLUMNS];
    at("put of a column");
    window.fence(|epoch| epoch.put_blocks(next(job), 3, &column, &own, &row))?;
    at("get of a column");
    window.fence(|epoch| epoch.get_blocks(next(job), 3, &column, &mut back, &column))?;
    let found = window.local().to_vec()?;
    for at in 0..ROWS * COLUMNS {
        let (line, place) = ((at / COLUMNS) as u64 * 10, at % COLUMNS);
        same!(found[at], if place == 3 { line + previous(job) } else { 0 });
        same!(back[at], if place == 0 { line + u64::from(job.rank().0) } else { 0 });
    }
    window.free()?;
    Ok(())
}

/// Shows: MPI_Put, MPI-4.1 13.3.
fn blocks_in_any_order(job: &Job) -> Outcome {
    let window = job.allocate::<u64>(16)?;
    // 5 elements from the end of the slice on back, to pairs with holes.
    let backwards = Blocks::indexed(&[(1, 4), (1, 3), (1, 2), (1, 1), (1, 0)])?;
    let pairs = Blocks::indexed(&[(2, 8), (1, 0), (2, 4)])?;
    let own: Vec<u64> = (1..6).map(|at| at + 10 * u64::from(job.rank().0)).collect();
    at("put of blocks");
    window.lock(next(job), LockType::Exclusive, |epoch| epoch.put_blocks(1, &pairs, &own, &backwards))?;
    barrier(job)?;
    let from = 10 * previous(job);
    let mut expected = [0; 16];
    for (place, value) in [(9, 5), (10, 4), (1, 3), (5, 2), (6, 1)] {
        expected[place] = from + value;
    }
    same!(window.local().to_vec()?, expected);
    window.free()?;
    Ok(())
}

/// Shows: MPI_Accumulate, rule: concurrent-accumulates.
fn a_part_of_an_array_is_accumulated(job: &Job) -> Outcome {
    let window = job.allocate::<i32>(8 * 8)?;
    let part = Blocks::subarray(&[8, 8], &[3, 4], &[2, 1])?;
    let own = [1; 12];
    at("accumulate of a part");
    window.lock_all(|epoch| {
        (0..job.size()).map(Rank).try_for_each(|target| {
            epoch.accumulate_blocks(target, 0, &part, &own, &Blocks::row(12)?, ReduceOp::Sum)
        })
    })?;
    barrier(job)?;
    let is_inside = |at: usize| (2..5).contains(&(at / 8)) && (1..5).contains(&(at % 8));
    let found = window.local().to_vec()?;
    holds!((0..64).all(|at| found[at] == if is_inside(at) { job.size() as i32 } else { 0 }));
    window.free()?;
    Ok(())
}

/// Long blocks go one by one, short ones packed; both are split where a message ends.
///
/// Shows: MPI_Put, MPI_Get, MPI-4.1 13.3.
fn long_blocks_and_many_blocks(job: &Job) -> Outcome {
    const LEN: usize = 60_000;
    let window = job.allocate::<u64>(2 * LEN)?;
    let own: Vec<u64> = (0..LEN as u64).map(|at| at + u64::from(job.rank().0)).collect();
    for (count, block) in [(LEN / 2, 2), (6, LEN / 6)] {
        let apart = Blocks::vector(count, block, 2 * block as isize)?;
        let mut back = vec![0; LEN];
        at("put of long blocks");
        window.lock(next(job), LockType::Exclusive, |epoch| {
            epoch.batch(|batch| batch.put_blocks(0, &apart, &own, &Blocks::row(LEN)?))?;
            epoch.get_blocks(0, &apart, &mut back, &Blocks::row(LEN)?)
        })?;
        holds!(back == own);
        barrier(job)?;
        let found = window.local().to_vec()?;
        let is_there = |at: usize| {
            let place = at / block * 2 * block + at % block;
            found[place] == at as u64 + previous(job) && found[place + block] == 0
        };
        holds!((0..LEN).all(is_there));
        barrier(job)?;
        window.local().fill(0)?;
        barrier(job)?;
    }
    window.free()?;
    Ok(())
}
