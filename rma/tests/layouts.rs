//! Layouts between ranks, by both layers.

mod common;

use common::*;
use rma::raw::{ArrayOrder, Buffer, Layout, RawWindow, TargetBuffer};
use rma::{Blocks, Complex, Dtype, Error, Job, LockType, Rank, ReduceOp};

const ROWS: usize = 40;
const COLUMNS: usize = 30;

fn next(job: &Job) -> Rank {
    Rank((job.rank().0 + 1) % job.size())
}

fn before(job: &Job) -> u32 {
    (job.rank().0 + job.size() - 1) % job.size()
}

/// A part of a matrix goes to the next rank, transposed, and comes back as it was.
fn transposes(job: &Job, wants_requests: bool) -> Result<(), Error> {
    let window = RawWindow::allocate(job, ROWS * COLUMNS * 4, 4)?;
    let int = Layout::of(Dtype::I32);
    let sizes = [ROWS as u64, COLUMNS as u64];
    let part = Layout::subarray(&sizes, &[20, 10], &[3, 4], ArrayOrder::RowMajor, &int).expect("small");
    // A row of the origin becomes a column of the target.
    let column = Layout::vector(20, 1, COLUMNS as i64, &int).and_then(|column| column.resized(0, 4));
    let columns = column.and_then(|column| Layout::contiguous(10, &column)).expect("small");
    let matrix: Vec<i32> = (0..ROWS * COLUMNS).map(|at| at as i32 + 10_000 * job.rank().0 as i32).collect();
    let mut back = vec![-1; matrix.len()];
    let target = |disp, layout| TargetBuffer { rank: next(job), disp, count: 1, layout };
    let origin = Buffer::new(matrix.as_ptr().cast(), 1, &part);
    let result = Buffer::new(back.as_mut_ptr().cast(), 1, &part);
    window.lock(LockType::Exclusive, next(job), false)?;
    if wants_requests {
        // SAFETY: the matrix stays until unlock.
        let mut put = unsafe { window.rput_layout(origin, target(5, &columns)) }?;
        job.wait(&mut put)?;
        window.flush(next(job))?;
        // SAFETY: the buffer is not touched until unlock.
        let mut get = unsafe { window.rget_layout(result, target(5, &columns)) }?;
        job.wait(&mut get)?;
    } else {
        // SAFETY: the matrix stays until unlock.
        unsafe { window.put_layout(origin, target(5, &columns)) }?;
        window.flush(next(job))?;
        // SAFETY: the buffer is not touched until unlock.
        unsafe { window.get_layout(result, target(5, &columns)) }?;
    }
    window.unlock(next(job))?;
    for (at, (&back, &sent)) in back.iter().zip(&matrix).enumerate() {
        let is_part = (3..23).contains(&(at / COLUMNS)) && (4..14).contains(&(at % COLUMNS));
        assert_eq!(back, if is_part { sent } else { -1 }, "element {at}");
    }
    job.barrier()?;
    // The data are row by row at the origin, and column by column here.
    for index in 0..200 {
        let from = (3 + index / 10) * COLUMNS + 4 + index % 10;
        let to = 5 + (index % 20) * COLUMNS + index / 20;
        // SAFETY: inside of the window's memory.
        let place = unsafe { window.base().cast::<i32>().add(to) };
        // SAFETY: as above; nobody writes it now.
        let found = unsafe { place.read_volatile() };
        assert_eq!(found, from as i32 + 10_000 * before(job) as i32, "datum {index}");
    }
    job.barrier()?;
    window.free()
}

#[test]
fn a_part_of_a_matrix_is_transposed() {
    ranks("a_part_of_a_matrix_is_transposed", 2, |job| transposes(job, false));
}

#[test]
fn a_part_of_a_matrix_is_transposed_with_requests() {
    ranks("a_part_of_a_matrix_is_transposed_with_requests", 2, |job| transposes(job, true));
}

/// Halos of a matrix in every kind of scope, by the typed layer.
#[test]
fn columns_are_exchanged_in_scopes() {
    ranks("columns_are_exchanged_in_scopes", 3, |job| {
        let window = job.allocate::<f64>(ROWS * COLUMNS)?;
        let column = Blocks::<f64>::vector(ROWS, 1, COLUMNS as isize)?;
        let row = Blocks::row(ROWS)?;
        let value = f64::from(job.rank().0 + 1);
        let mine = vec![value; ROWS];
        let matrix: Vec<f64> = (0..ROWS * COLUMNS).map(|at| at as f64).collect();
        let mut seen = vec![0.0; ROWS * COLUMNS];
        window.fence(|epoch| {
            epoch.put_blocks(next(job), 0, &column, &mine, &row)?;
            epoch.put_blocks(next(job), 1, &column, &matrix, &column)?;
            epoch.accumulate_blocks(next(job), 2, &column, &mine, &row, ReduceOp::Sum)
        })?;
        window.lock(next(job), LockType::Shared, |epoch| {
            epoch.get_blocks(0, &column, &mut seen, &column)?;
            epoch.accumulate_blocks(2, &column, &mine, &row, ReduceOp::Prod)
        })?;
        assert!(seen.iter().step_by(COLUMNS).all(|&element| element == value));
        assert_eq!(seen.iter().filter(|&&element| element != 0.0).count(), ROWS);
        job.barrier()?;
        let (local, theirs) = (window.local().to_vec()?, f64::from(before(job) + 1));
        for (index, row) in local.chunks(COLUMNS).enumerate() {
            let own = (index * COLUMNS) as f64;
            assert_eq!(row[..4], [theirs, own, theirs * theirs, 0.0], "row {index}");
        }
        job.barrier()?;
        window.free().map(drop)
    });
}

#[test]
fn blocks_stay_in_their_slices() {
    ranks("blocks_stay_in_their_slices", 1, |job| {
        let window = job.allocate::<Complex<f32>>(10)?;
        let source = [Complex { re: 1.0, im: 2.0 }; 6];
        let (row, far) = (Blocks::row(3)?, Blocks::vector(3, 1, 3)?);
        let back = Blocks::<Complex<f32>>::indexed(&[(1, -1), (2, 0)])?;
        for elements in [&far, &back] {
            let outside = window.fence(|epoch| epoch.put_blocks(Rank(0), 0, &row, &source, elements));
            let text = outside.expect_err("outside of the slice").to_string();
            assert!(text.contains("outside of the slice"), "{text}");
        }
        let uneven = window.fence(|epoch| epoch.put_blocks(Rank(0), 0, &row, &source, &Blocks::row(4)?));
        assert!(uneven.expect_err("not as many").to_string().contains("same bytes"));
        window.fence(|epoch| epoch.put_blocks(Rank(0), 1, &back, &source, &row))?;
        assert_eq!(window.local().to_vec()?.iter().filter(|element| element.re == 1.0).count(), 3);
        let part = Blocks::<f64>::subarray(&[4], &[3], &[2]).expect_err("not inside");
        assert!(part.to_string().contains("start + subsize"), "{part}");
        assert_eq!((far.len(), far.is_empty(), Blocks::<f64>::row(0)?.is_empty()), (3, false, true));
        window.free().map(drop)
    });
}
