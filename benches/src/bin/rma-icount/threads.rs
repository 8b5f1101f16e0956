//! What the guard around the engine adds to a put, and to a flush of nothing: the library's own runtime, over the null fabric. In one case the
//! thread that made it calls, as in programs with one thread; in the other a second thread has called before, so that
//! all of them take the mutex.
#![allow(unsafe_code)] // a put takes a raw pointer

use std::hint::black_box;
use std::sync::Arc;
use std::task::Poll;

use rma_bench::duo::{Duo, NullEngine, TARGET};
use rma_bench::null;
use rma_core::error::{Call, RmaError};
use rma_core::ids::{Rank, WindowId};
use rma_core::lock::LockType;

use crate::cases::{by_words, locked};
use crate::error::Result;
use crate::runtime::{Core, Guarded, Held};

pub(crate) fn run_put_of_one_thread(count: u32) -> std::result::Result<(), RmaError> {
    let (window, target) = window()?;
    put_repeatedly(&window, target, count);
    Ok(())
}

pub(crate) fn run_put_of_threads(count: u32) -> std::result::Result<(), RmaError> {
    let (window, target) = window()?;
    window.share();
    put_repeatedly(&window, target, count);
    Ok(())
}

pub(crate) fn run_flush_of_one_thread(count: u32) -> std::result::Result<(), RmaError> {
    flush_repeatedly(&window()?.0, count);
    Ok(())
}

pub(crate) fn run_flush_of_threads(count: u32) -> std::result::Result<(), RmaError> {
    let (window, _target) = window()?;
    window.share();
    flush_repeatedly(&window, count);
    Ok(())
}

/// The epoch of `near_lock_put_unlock`, as a program sees it.
pub(crate) fn run_near_epoch_of_one_thread(count: u32) -> std::result::Result<(), RmaError> {
    let duo = Duo::near(&by_words())?;
    let core = Core::new(duo.origin, None, Some(1)).expect("the null fabric has nothing that could fail");
    let window = Window { core: Arc::new(core), id: duo.window };
    let value = [7; 8];
    for _ in 0..count {
        icount_near_lock_put_unlock_of_one_thread(
            &window,
            black_box(LockType::Exclusive),
            black_box(TARGET),
            black_box(&value),
        )
        .expect("nobody is in the way");
    }
    Ok(())
}

/// As `RawWindow::lock`, `put` and `unlock`.
#[inline(never)]
#[no_mangle]
fn icount_near_lock_put_unlock_of_one_thread(
    window: &Window,
    lock_type: LockType,
    target: Rank,
    value: &[u8; 8],
) -> Result<()> {
    let Window { core, id } = window;
    if black_box(false) || !core.lock_again(*id, lock_type, target) {
        lock_anew(window, lock_type, target)?;
    }
    put_guarded(window, value.as_ptr(), value.len(), target, 0)?;
    core.unlock(*id, target)
}

#[inline(never)]
fn lock_anew(window: &Window, lock_type: LockType, target: Rank) -> Result<()> {
    window.core.lock(window.id, lock_type, target, false)
}

/// What `RawWindow` has.
struct Window {
    core: Arc<Core>,
    id: WindowId,
}

impl Window {
    /// Another thread calls.
    fn share(&self) {
        std::thread::scope(|scope| scope.spawn(|| drop(self.core.enter_anyway())).join())
            .expect("it only enters");
    }
}

/// The origin's window, in an epoch, and the target.
fn window() -> std::result::Result<(Window, NullEngine), RmaError> {
    let duo = locked(null::all_native())?;
    let core = Core::new(duo.origin, None, Some(1)).expect("the null fabric has nothing that could fail");
    Ok((Window { core: Arc::new(core), id: duo.window }, duo.target))
}

fn put_repeatedly(window: &Window, mut target: NullEngine, count: u32) {
    let value = [7; 8];
    for _ in 0..count {
        let (origin, disp, len) = (black_box(value.as_ptr()), black_box(0), black_box(8));
        icount_put_guarded(window, origin, len, black_box(TARGET), disp).expect("a put is taken");
        window.core.progress(&mut window.core.enter_anyway());
        target.progress();
    }
}

fn flush_repeatedly(window: &Window, count: u32) {
    for _ in 0..count {
        icount_flush_guarded(window, black_box(TARGET)).expect("nothing is to be flushed");
        // Not among what is counted of the flush.
        window.core.progress(&mut window.core.enter_anyway());
    }
}

/// As `RawWindow::flush`.
#[inline(never)]
#[no_mangle]
fn icount_flush_guarded(window: &Window, target: Rank) -> Result<()> {
    window.core.flush(window.id, target)
}

/// As `RawWindow::put`.
#[inline(never)]
#[no_mangle]
fn icount_put_guarded(window: &Window, origin: *const u8, len: usize, target: Rank, disp: u64) -> Result<()> {
    put_guarded(window, origin, len, target, disp)
}

#[inline(always)]
fn put_guarded(window: &Window, origin: *const u8, len: usize, target: Rank, disp: u64) -> Result<()> {
    let mut guarded = window.core.enter(Call::Put)?;
    // SAFETY: the caller keeps the value until the progress that it makes next completes the put.
    match unsafe { guarded.engine.put_inline(window.id, target, disp, origin, len) } {
        Poll::Ready(Ok(())) => {
            if guarded.is_progress_due() {
                return put_with_progress(window, guarded);
            }
            drop(guarded);
            Ok(())
        }
        Poll::Ready(Err(error)) => put_failed(window, guarded, error),
        Poll::Pending => put_later(window, guarded, (origin, len), (target, disp)),
    }
}

#[cold]
#[inline(never)]
fn put_with_progress(window: &Window, mut guarded: Held<'_, Guarded>) -> Result<()> {
    window.core.progress(&mut guarded);
    Ok(())
}

/// In the place of what names the window in the error.
#[cold]
#[inline(never)]
fn put_failed(window: &Window, _guarded: Held<'_, Guarded>, error: RmaError) -> Result<()> {
    Err(window.core.fail(error))
}

/// In the place of what waits for room.
#[cold]
#[inline(never)]
fn put_later(
    window: &Window,
    guarded: Held<'_, Guarded>,
    origin: (*const u8, usize),
    target: (Rank, u64),
) -> Result<()> {
    black_box((window, &*guarded, origin, target));
    panic!("there is no room for a put");
}
