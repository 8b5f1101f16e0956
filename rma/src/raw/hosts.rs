//! How the ranks of each host learn where the file is that the lowest of them has made for a shared window: where all are
//! on one host, by the agreement that it has been made; otherwise by a small window, from which the others read.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use rma_core::engine::SharedPart;
use rma_core::error::{Call, RmaError};
use rma_core::ids::Rank;
use rma_core::info::WindowOptions;
use rma_core::lock::LockType;

use super::RawWindow;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::runtime::NUMBERS;
use crate::segment::Founding;

/// What a rank knows of the place after all have been told: an error is its own, and the others do not know of it yet.
type Heard = std::result::Result<[u64; NUMBERS], RmaError>;

/// A rank's memory of the small window: what it says, and what it hears.
type Board = [AtomicU64; 2 * NUMBERS];

const CALL: Call = Call::AllocateShared;

/// Tells the ranks of each host where the file of its lowest one is. Collective.
pub(super) fn tell(
    job: &Job,
    founding: std::result::Result<Founding, RmaError>,
) -> Result<(Founding, Heard)> {
    let core = job.core();
    let own = founding.and_then(|founding| Ok((founding.place()?, founding)));
    if job.local_size() == job.size() {
        let place = core.agree(CALL, own.as_ref().map(|(place, _)| *place).map_err(Clone::clone))?;
        let (_, founding) = own.map_err(|error| core.fail(error))?;
        return Ok((founding, Ok(place)));
    }
    let count = own.as_ref().map(|(_, founding)| [founding.count() as u64, 0, 0]).map_err(Clone::clone);
    let [most, ..] = core.agree(CALL, count)?;
    let (place, founding) = own.map_err(|error| core.fail(error))?;
    if most == 1 {
        // Everybody has its file.
        return Ok((founding, Ok(place)));
    }
    let heard = by_window(job, &founding, place)?;
    Ok((founding, heard))
}

/// The same by a window that is gone afterwards.
fn by_window(job: &Job, founding: &Founding, place: [u64; NUMBERS]) -> Result<Heard> {
    let board: Arc<Board> = Arc::default();
    for (word, number) in board.iter().zip(place) {
        word.store(number, Ordering::Release);
    }
    let part = SharedPart {
        base: NonNull::from(&*board).cast(),
        len: size_of::<Board>(),
        mapping: Box::new(Arc::clone(&board)),
        is_allocated: false,
    };
    let window = RawWindow::make(job, CALL, |engine| {
        // SAFETY: the window keeps the board, of which everybody has atomics and pointers only.
        unsafe { engine.start_shared(Ok(part), 1, &WindowOptions::DEFAULT) }
    })?;
    let heard = match founding.elsewhere() {
        Some(first) => read(&window, &board, first),
        None => Ok(place),
    };
    // Who has the file answers until all have come here.
    window.free().map_err(|error| error.on_behalf_of(CALL))?;
    Ok(heard.map_err(|error| what_failed(&error)))
}

/// Reads what `first` says.
fn read(window: &RawWindow, board: &Board, first: Rank) -> Result<[u64; NUMBERS]> {
    let heard = &board[NUMBERS..];
    // Nobody asks for an exclusive one.
    window.lock(LockType::Shared, first, true)?;
    // SAFETY: of memory of the window's, which lives as long as anything of the fabric's may write to it.
    let got = unsafe { window.get(heard.as_ptr().cast_mut().cast(), size_of_val(heard), first, 0) };
    window.unlock(first).and(got)?;
    Ok(std::array::from_fn(|index| heard[index].load(Ordering::Acquire)))
}

/// For the agreement.
#[cold]
fn what_failed(error: &Error) -> RmaError {
    let unknown = || RmaError::Shared { call: CALL, message: error.to_string() };
    error.rma().map_or_else(unknown, |error| error.clone().on_behalf_of(CALL))
}
