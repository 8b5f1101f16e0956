//! Windows of every kind.

use rma::raw::RawWindow;
use rma::LockType::Shared;
use rma::{ErrorClass, Flavor, Job, Rank, ReduceOp, WindowInfo, WindowOptions};

use super::behaviours;
use crate::failure::{holds, same, Failure, Outcome};
use crate::watchdog::at;
use crate::window::{barrier, Words, WORD};

behaviours![
    windows_over_ones_own_memory,
    windows_of_different_sizes,
    many_windows_at_once,
    windows_come_and_go,
    overlapping_windows,
    attributes,
    info_is_reported,
    no_locks,
    attach_and_detach,
];

/// Shows: MPI_Win_create, MPI-4.1 13.2.1.
fn windows_over_ones_own_memory(job: &Job) -> Outcome {
    let mut memory = vec![0u64; 100];
    at("create");
    // SAFETY: `memory` outlives the window, and is not touched while it exists.
    let raw = unsafe { RawWindow::create(job, memory.as_mut_ptr().cast(), 100 * WORD, 8) }?;
    let window = Words::of(raw);
    let next = (job.rank().0 + 1) % job.size();
    window.lock(Shared, next)?;
    window.put(next, 99, &[u64::from(job.rank().0) + 1])?;
    window.unlock(next)?;
    window.free()?;
    same!(memory[99], u64::from((job.rank().0 + job.size() - 1) % job.size()) + 1);
    Ok(())
}

/// Shows: MPI_Win_allocate, MPI_WIN_DISP_UNIT, MPI_WIN_SIZE.
fn windows_of_different_sizes(job: &Job) -> Outcome {
    let own = job.rank().0;
    at("allocate");
    let window = Words::of(RawWindow::allocate(job, (own as usize + 1) * 64, 1 << (own % 4))?);
    window.fence()?;
    if own == 0 {
        for target in 0..job.size() {
            window.put(target, 8, &[u64::from(target) + 9])?;
        }
    }
    window.fence_end()?;
    same!(window.own(1 << (own % 4)), u64::from(own) + 9);
    Ok(window.free()?)
}

/// Shows: rule: windows-overlap, MPI_Win_allocate.
fn many_windows_at_once(job: &Job) -> Outcome {
    let next = (job.rank().0 + 1) % job.size();
    let windows = (0..10).map(|_| Words::allocate(job, 1)).collect::<Result<Vec<_>, _>>()?;
    for (index, window) in windows.iter().enumerate() {
        window.lock(Shared, next)?;
        window.put(next, 0, &[index as u64 + 1])?;
    }
    for window in windows.iter().rev() {
        window.unlock(next)?;
    }
    barrier(job)?;
    for (index, window) in windows.iter().enumerate() {
        same!(window.own(0), index as u64 + 1);
    }
    for window in windows {
        window.free()?;
    }
    Ok(())
}

/// Shows: MPI_Win_free, MPI-4.1 13.2.5.
fn windows_come_and_go(job: &Job) -> Outcome {
    for round in 1..20u64 {
        let window = Words::allocate(job, 2)?;
        window.fence()?;
        window.accumulate(0, 0, &[round], ReduceOp::Sum)?;
        window.fence_end()?;
        if job.rank() == Rank(0) {
            same!(window.own(0), round * u64::from(job.size()));
        }
        window.free()?;
    }
    Ok(())
}

/// Shows: rule: overlapping-windows, MPI-4.1 13.7.
fn overlapping_windows(job: &Job) -> Outcome {
    let mut memory = vec![0u64; 8];
    let base: *mut u8 = memory.as_mut_ptr().cast();
    at("create");
    // SAFETY: `memory` outlives both windows, and is not touched while they exist.
    let whole = Words::of(unsafe { RawWindow::create(job, base, 8 * WORD, 8) }?);
    // SAFETY: as above; the second half of it.
    let half = Words::of(unsafe { RawWindow::create(job, base.wrapping_add(4 * WORD), 4 * WORD, 8) }?);
    let next = (job.rank().0 + 1) % job.size();
    whole.fence()?;
    whole.put(next, 4, &[21])?;
    whole.fence_end()?;
    half.fence()?;
    let got = half.get(next, 0, 1)?;
    half.fence_end()?;
    same!(got.value(), 21);
    whole.free()?;
    Ok(half.free()?)
}

/// Shows: MPI_Win_get_attr, MPI_WIN_BASE, MPI_WIN_SIZE, MPI_WIN_CREATE_FLAVOR.
fn attributes(job: &Job) -> Outcome {
    let window = Words::allocate(job, 5)?;
    let attributes = window.raw().attributes()?;
    same!(attributes.base, window.raw().base());
    same!((attributes.len, attributes.disp_unit), (40, 8));
    same!(attributes.flavor, Flavor::Allocate);
    Ok(window.free()?)
}

/// Shows: MPI_Win_get_info, MPI_Win_set_info.
fn info_is_reported(job: &Job) -> Outcome {
    let mut info = WindowInfo::default();
    info.set("accumulate_ordering", "none").map_err(|error| Failure::new(error.to_string()))?;
    at("allocate");
    let window = Words::of(RawWindow::allocate_with(job, 64, 8, &info.options())?);
    let reported = window.raw().info()?;
    same!(reported.get("accumulate_ordering"), Some("none".to_owned()));
    same!(reported.get("no_locks"), Some("false".to_owned()));
    Ok(window.free()?)
}

/// Shows: no_locks, MPI_ERR_RMA_SYNC.
fn no_locks(job: &Job) -> Outcome {
    let options = WindowOptions { no_locks: true, ..WindowOptions::default() };
    at("allocate");
    let window = Words::of(RawWindow::allocate_with(job, 64, 8, &options)?);
    holds!(window.lock(Shared, 0).is_err());
    window.fence()?;
    window.put((job.rank().0 + 1) % job.size(), 0, &[3])?;
    window.fence_end()?;
    same!(window.own(0), 3);
    Ok(window.free()?)
}

/// Shows: MPI_Win_create_dynamic, MPI_Win_attach, MPI_Win_detach, MPI_ERR_RMA_RANGE, lecture: dynamic windows, _c, MPI-4.1 13.2.4.
fn attach_and_detach(job: &Job) -> Outcome {
    let (own, next) = (job.rank().0, (job.rank().0 + 1) % job.size());
    let mut memory = vec![0u64; 64];
    let base: *mut u8 = memory.as_mut_ptr().cast();
    let addresses = Words::allocate(job, 1)?;
    at("create_dynamic");
    let window = Words::of(RawWindow::create_dynamic(job, &WindowOptions::default())?);
    at("attach");
    // SAFETY: `memory` outlives the window, and is read only between epochs.
    unsafe { window.raw().attach(base, 64 * WORD) }?;
    addresses.store(0, base as u64);
    barrier(job)?;
    addresses.lock(Shared, next)?;
    let address = addresses.get(next, 0, 1)?;
    addresses.unlock(next)?;
    // Displacements have 64 bits in every call; there are no forms for larger ones.
    holds!(address.value() > u64::from(u32::MAX));
    window.lock(Shared, next)?;
    window.put(next, address.value() + 63 * WORD as u64, &[u64::from(own) + 1])?;
    window.unlock(next)?;
    barrier(job)?;
    at("detach");
    window.raw().detach(base)?;
    barrier(job)?;
    window.lock(Shared, next)?;
    let gone = window.put(next, address.value(), &[1]);
    let end = window.unlock(next);
    let class = gone.and(end).err().and_then(|error| error.rma().map(|error| error.class()));
    holds!(matches!(class, Some(ErrorClass::RmaRange | ErrorClass::RmaAttach)));
    window.free()?;
    addresses.free()?;
    same!([memory[0], memory[63]], [0, u64::from((own + job.size() - 1) % job.size()) + 1]);
    Ok(())
}
