//! What is counted: one function of each case, `icount_<name>`, called a given number of times.
#![allow(unsafe_code)] // operations take raw pointers

use std::hint::black_box;
use std::task::Poll;

use rma_bench::duo::{Duo, NullEngine, TARGET};
use rma_bench::null;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{Operation, SyncCall};
use rma_core::error::{Call, RmaError};
use rma_core::ids::{Rank, WindowId};
use rma_core::info::LockProtocol;
use rma_core::lock::LockType;
use rma_core::op::ReduceOp;
use rma_core::provider::NativeOps;
use rma_core::wire::OpKind;

use crate::{near, threads};

/// One thing whose instructions are counted.
#[derive(Debug)]
pub(crate) struct Case {
    /// Name; `icount_` and the name is the function that is counted.
    pub(crate) name: &'static str,
    /// What the count covers.
    pub(crate) what: &'static str,
    /// Calls the function this many times.
    pub(crate) run: fn(u32) -> Result<(), RmaError>,
}

/// Every case, in the order of the report.
pub(crate) const CASES: &[Case] = &[
    Case { name: "put", what: "native put of 8 bytes, lock held", run: run_put },
    Case {
        name: "put_of_one_thread",
        what: "the same through the guard of a program with one thread",
        run: threads::run_put_of_one_thread,
    },
    Case {
        name: "put_of_threads",
        what: "the same where another thread has called, too",
        run: threads::run_put_of_threads,
    },
    Case { name: "get", what: "native get of 8 bytes, lock held", run: run_get },
    Case {
        name: "put_completed",
        what: "progress that meets the completion of one put",
        run: run_put_completed,
    },
    Case { name: "progress_idle", what: "progress when nothing happened", run: run_progress_idle },
    Case { name: "flush_idle", what: "flush with nothing outstanding", run: run_flush_idle },
    Case {
        name: "flush_of_one_thread",
        what: "the same through the guard of a program with one thread",
        run: threads::run_flush_of_one_thread,
    },
    Case {
        name: "flush_of_threads",
        what: "the same where another thread has called, too",
        run: threads::run_flush_of_threads,
    },
    Case {
        name: "flush_put",
        what: "flush of one native put, with the progress it takes",
        run: run_flush_put,
    },
    Case {
        name: "fetch_and_op",
        what: "posting an 8-byte fetch_and_op that travels as a packet",
        run: run_fetch_and_op,
    },
    Case {
        name: "fetch_and_op_flush",
        what: "the same and its flush, all that the origin does: one packet out, one back",
        run: run_fetch_and_op_flush,
    },
    Case {
        name: "serve_fetch_and_op",
        what: "the same at the target: the packet, its execution, its answer",
        run: run_serve_fetch_and_op,
    },
    Case {
        name: "lock_put_unlock",
        what: "lock, 8-byte put, unlock at the origin: one packet out, one back",
        run: run_lock_put_unlock,
    },
    Case { name: "serve_lock_put_unlock", what: "the same at the target", run: run_serve_lock_put_unlock },
    Case {
        name: "near_put_fence",
        what: "8-byte put and fence among neighbours",
        run: near::run_near_put_fence,
    },
    Case {
        name: "near_access",
        what: "start, 8-byte put, complete among neighbours",
        run: near::run_near_access,
    },
    Case { name: "near_exposure", what: "post and wait among neighbours", run: near::run_near_exposure },
    Case {
        name: "near_lock_put_unlock",
        what: "lock, 8-byte put, unlock of a neighbour, alone, by words",
        run: run_near_exclusive,
    },
    Case {
        name: "near_lock_put_unlock_of_one_thread",
        what: "the same through the guard of a program with one thread",
        run: threads::run_near_epoch_of_one_thread,
    },
    Case { name: "near_shared_put_unlock", what: "near_lock_put_unlock, shared", run: run_near_shared },
    Case {
        name: "near_lock_all_put_unlock_all",
        what: "lock_all, 8-byte put to a neighbour, unlock_all",
        run: run_near_lock_all,
    },
    Case {
        name: "near_put_flush",
        what: "8-byte put to a neighbour, lock held, and flush",
        run: run_near_put_flush,
    },
    Case {
        name: "near_fetch_and_op",
        what: "8-byte fetch_and_op on a neighbour, lock held, and flush",
        run: run_near_fetch_and_op,
    },
];

/// Windows that neighbours lock by words.
pub(crate) fn by_words() -> Config {
    Config { lock_protocol: LockProtocol::Auto, ..Config::default() }
}

/// An epoch in which a put was flushed already: the target's metadata is known.
pub(crate) fn locked(native: NativeOps) -> Result<Duo, RmaError> {
    let mut duo = Duo::new(native, &Config::default())?;
    duo.lock()?;
    // SAFETY: the flush right after it completes the put.
    unsafe { duo.put(&[0; 8]) }?;
    duo.flush()?;
    Ok(duo)
}

fn run_put(count: u32) -> Result<(), RmaError> {
    let mut duo = locked(null::all_native())?;
    let value = [7; 8];
    for _ in 0..count {
        let (origin, disp, len) = (black_box(value.as_ptr()), black_box(0), black_box(8));
        let taken = icount_put(&mut duo.origin, duo.window, black_box(TARGET), disp, origin, len);
        assert!(taken, "a put was not taken");
        duo.step();
    }
    duo.unlock()
}

#[inline(never)]
#[no_mangle]
fn icount_put(
    engine: &mut NullEngine,
    window: WindowId,
    target: Rank,
    disp: u64,
    origin: *const u8,
    len: usize,
) -> bool {
    // SAFETY: the caller keeps the value until the progress that it makes next completes the put.
    let posted = unsafe { engine.put(window, target, disp, origin, len) };
    matches!(posted, Poll::Ready(Ok(())))
}

fn run_get(count: u32) -> Result<(), RmaError> {
    let mut duo = locked(null::all_native())?;
    let mut value = [0; 8];
    for _ in 0..count {
        let (result, disp, len) = (black_box(value.as_mut_ptr()), black_box(0), black_box(8));
        let taken = icount_get(&mut duo.origin, duo.window, black_box(TARGET), disp, result, len);
        assert!(taken, "a get was not taken");
        duo.step();
    }
    duo.unlock()
}

#[inline(never)]
#[no_mangle]
fn icount_get(
    engine: &mut NullEngine,
    window: WindowId,
    target: Rank,
    disp: u64,
    result: *mut u8,
    len: usize,
) -> bool {
    // SAFETY: the caller keeps the value until the progress that it makes next completes the get.
    let posted = unsafe { engine.get(window, target, disp, result, len) };
    matches!(posted, Poll::Ready(Ok(())))
}

fn run_put_completed(count: u32) -> Result<(), RmaError> {
    let mut duo = locked(null::all_native())?;
    for _ in 0..count {
        // SAFETY: the progress after it completes the put, and the value is a constant.
        unsafe { duo.put(&[7; 8]) }?;
        icount_put_completed(&mut duo.origin);
    }
    duo.unlock()
}

#[inline(never)]
#[no_mangle]
fn icount_put_completed(engine: &mut NullEngine) -> usize {
    engine.progress()
}

fn run_progress_idle(count: u32) -> Result<(), RmaError> {
    let mut duo = locked(null::all_native())?;
    for _ in 0..count {
        icount_progress_idle(&mut duo.origin);
    }
    duo.unlock()
}

#[inline(never)]
#[no_mangle]
fn icount_progress_idle(engine: &mut NullEngine) -> usize {
    engine.progress() + 1
}

fn run_flush_idle(count: u32) -> Result<(), RmaError> {
    let mut duo = locked(null::all_native())?;
    for _ in 0..count {
        icount_flush_idle(&mut duo.origin, duo.window, black_box(TARGET))?;
    }
    duo.unlock()
}

#[inline(never)]
#[no_mangle]
fn icount_flush_idle(engine: &mut NullEngine, window: WindowId, target: Rank) -> Result<(), RmaError> {
    if engine.is_flushed(window, target) {
        return Ok(());
    }
    flush_slowly(engine, window, target)
}

#[cold]
#[inline(never)]
fn flush_slowly(engine: &mut NullEngine, window: WindowId, target: Rank) -> Result<(), RmaError> {
    let call = engine.start_flush(window, target)?;
    wait(engine, call)
}

fn run_flush_put(count: u32) -> Result<(), RmaError> {
    let mut duo = locked(null::all_native())?;
    for _ in 0..count {
        // SAFETY: the flush after it completes the put, and the value is a constant.
        unsafe { duo.put(&[7; 8]) }?;
        icount_flush_put(&mut duo.origin, duo.window, black_box(TARGET))?;
    }
    duo.unlock()
}

#[inline(never)]
#[no_mangle]
fn icount_flush_put(engine: &mut NullEngine, window: WindowId, target: Rank) -> Result<(), RmaError> {
    if engine.is_flushed(window, target) {
        return Ok(());
    }
    let call = engine.start_flush(window, target)?;
    wait(engine, call)
}

/// A sum of 8 bytes at the window's beginning.
fn fetch_and_op(operand: &[u8; 8], result: &mut [u8; 8]) -> Operation {
    Operation {
        call: Call::FetchAndOp,
        kind: OpKind::GetAccumulate,
        dtype: Dtype::U64,
        op: ReduceOp::Sum,
        target: TARGET,
        disp: 0,
        len: operand.len(),
        origin: operand.as_ptr(),
        result: result.as_mut_ptr(),
        compare: std::ptr::null(),
    }
}

fn run_fetch_and_op(count: u32) -> Result<(), RmaError> {
    let mut duo = locked(NativeOps::default())?;
    let (operand, mut result) = (1_u64.to_ne_bytes(), [0; 8]);
    for _ in 0..count {
        let operation = fetch_and_op(&operand, &mut result);
        assert!(icount_fetch_and_op(&mut duo.origin, duo.window, &operation), "it was not taken");
        duo.flush()?;
    }
    assert_eq!(u64::from_ne_bytes(result), u64::from(count) - 1);
    duo.unlock()
}

#[inline(never)]
#[no_mangle]
fn icount_fetch_and_op(engine: &mut NullEngine, window: WindowId, operation: &Operation) -> bool {
    // SAFETY: the caller keeps the buffers until the flush that it makes next.
    let posted = unsafe { engine.post(window, operation) };
    matches!(posted, Poll::Ready(Ok(())))
}

fn run_fetch_and_op_flush(count: u32) -> Result<(), RmaError> {
    let mut duo = locked(NativeOps::default())?;
    let (operand, mut result) = (1_u64.to_ne_bytes(), [0; 8]);
    for _ in 0..count {
        let operation = fetch_and_op(&operand, &mut result);
        // Both are parts of one count: valgrind counts every function whose name fits.
        let mut call = icount_fetch_and_op_flush(&mut duo.origin, duo.window, black_box(&operation))?;
        duo.target.progress();
        icount_fetch_and_op_flush_end(&mut duo.origin, &mut call)?;
    }
    assert_eq!(u64::from_ne_bytes(result), u64::from(count) - 1);
    duo.unlock()
}

#[inline(never)]
#[no_mangle]
fn icount_fetch_and_op_flush(
    engine: &mut NullEngine,
    window: WindowId,
    operation: &Operation,
) -> Result<SyncCall, RmaError> {
    // SAFETY: the caller keeps the buffers until the flush is done.
    let posted = unsafe { engine.post(window, operation) };
    assert!(matches!(posted, Poll::Ready(Ok(()))), "it was not taken");
    let mut call = engine.start_flush(window, operation.target)?;
    let answered = engine.poll(&mut call);
    assert!(answered.is_pending(), "the flush was done before the target saw the operation");
    Ok(call)
}

#[inline(never)]
#[no_mangle]
fn icount_fetch_and_op_flush_end(engine: &mut NullEngine, call: &mut SyncCall) -> Result<(), RmaError> {
    engine.progress();
    match engine.poll(call) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the target's answer did not end the flush"),
    }
}

fn run_serve_fetch_and_op(count: u32) -> Result<(), RmaError> {
    let mut duo = locked(NativeOps::default())?;
    let (operand, mut result) = (1_u64.to_ne_bytes(), [0; 8]);
    for _ in 0..count {
        let operation = fetch_and_op(&operand, &mut result);
        // SAFETY: the flush right after it completes the operation.
        let posted = unsafe { duo.origin.post(duo.window, &operation) };
        assert!(matches!(posted, Poll::Ready(Ok(()))), "it was not taken");
        let mut call = duo.origin.start_flush(duo.window, TARGET)?;
        assert!(duo.origin.poll(&mut call)?.is_pending(), "the flush was done before the target saw it");
        icount_serve_fetch_and_op(&mut duo.target);
        duo.finish(call)?;
    }
    assert_eq!(u64::from_ne_bytes(result), u64::from(count) - 1);
    duo.unlock()
}

#[inline(never)]
#[no_mangle]
fn icount_serve_fetch_and_op(engine: &mut NullEngine) -> usize {
    engine.progress()
}

fn run_lock_put_unlock(count: u32) -> Result<(), RmaError> {
    let mut duo = Duo::new(null::all_native(), &Config::default())?;
    let value = [7; 8];
    for _ in 0..count {
        // Both are parts of one count: valgrind counts every function whose name fits.
        let value = black_box(&value);
        let mut call = icount_lock_put_unlock(&mut duo.origin, duo.window, black_box(TARGET), value)?;
        duo.target.progress();
        icount_lock_put_unlock_end(&mut duo.origin, &mut call)?;
    }
    Ok(())
}

#[inline(never)]
#[no_mangle]
fn icount_lock_put_unlock(
    engine: &mut NullEngine,
    window: WindowId,
    target: Rank,
    value: &[u8; 8],
) -> Result<SyncCall, RmaError> {
    let call = engine.start_lock(window, target, LockType::Exclusive, false)?;
    wait(engine, call)?;
    // SAFETY: the caller keeps the value until the unlock is done.
    let posted = unsafe { engine.put(window, target, 0, value.as_ptr(), 8) };
    assert!(matches!(posted, Poll::Ready(Ok(()))), "a put was not taken");
    let mut call = engine.start_unlock(window, target)?;
    let answered = engine.poll(&mut call);
    assert!(answered.is_pending(), "the unlock was done before the target saw it");
    Ok(call)
}

#[inline(never)]
#[no_mangle]
fn icount_lock_put_unlock_end(engine: &mut NullEngine, call: &mut SyncCall) -> Result<(), RmaError> {
    engine.progress();
    match engine.poll(call) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("the target's answer did not end the unlock"),
    }
}

fn run_serve_lock_put_unlock(count: u32) -> Result<(), RmaError> {
    let mut duo = Duo::new(null::all_native(), &Config::default())?;
    for _ in 0..count {
        duo.lock()?;
        // SAFETY: the unlock after it completes the put, and the value is a constant.
        unsafe { duo.put(&[7; 8]) }?;
        let mut call = duo.origin.start_unlock(duo.window, TARGET)?;
        icount_serve_lock_put_unlock(&mut duo.target);
        duo.origin.progress();
        match duo.origin.poll(&mut call) {
            Poll::Ready(result) => result?,
            Poll::Pending => panic!("the target's answer did not end the unlock"),
        }
    }
    Ok(())
}

#[inline(never)]
#[no_mangle]
fn icount_serve_lock_put_unlock(engine: &mut NullEngine) -> usize {
    engine.progress()
}

fn run_near_exclusive(count: u32) -> Result<(), RmaError> {
    let mut duo = Duo::near(&by_words())?;
    for _ in 0..count {
        icount_near_lock_put_unlock(&mut duo.origin, duo.window, black_box(LockType::Exclusive))?;
    }
    Ok(())
}

fn run_near_shared(count: u32) -> Result<(), RmaError> {
    let mut duo = Duo::near(&by_words())?;
    for _ in 0..count {
        icount_near_lock_put_unlock(&mut duo.origin, duo.window, black_box(LockType::Shared))?;
    }
    Ok(())
}

#[inline(never)]
#[no_mangle]
fn icount_near_lock_put_unlock(
    engine: &mut NullEngine,
    window: WindowId,
    lock_type: LockType,
) -> Result<(), RmaError> {
    let target = black_box(TARGET);
    assert!(engine.lock_at_once(window, target, lock_type), "somebody is in the way");
    near_put(engine, window, target);
    assert!(engine.unlock_at_once(window, target), "something is left to be done");
    Ok(())
}

#[inline(always)]
fn near_put(engine: &mut NullEngine, window: WindowId, target: Rank) {
    let value = [7; 8];
    // SAFETY: it is complete when the call returns, as everything here.
    let posted = unsafe { engine.put(window, target, 0, value.as_ptr(), 8) };
    assert!(matches!(posted, Poll::Ready(Ok(()))), "a put was not taken");
}

fn run_near_lock_all(count: u32) -> Result<(), RmaError> {
    let mut duo = Duo::near(&by_words())?;
    for _ in 0..count {
        icount_near_lock_all_put_unlock_all(&mut duo.origin, duo.window)?;
    }
    Ok(())
}

#[inline(never)]
#[no_mangle]
fn icount_near_lock_all_put_unlock_all(engine: &mut NullEngine, window: WindowId) -> Result<(), RmaError> {
    assert!(engine.lock_all_at_once(window), "somebody is in the way");
    near_put(engine, window, black_box(TARGET));
    assert!(engine.unlock_all_at_once(window), "something is left to be done");
    Ok(())
}

fn run_near_put_flush(count: u32) -> Result<(), RmaError> {
    let mut duo = Duo::near(&by_words())?;
    duo.lock()?;
    for _ in 0..count {
        icount_near_put_flush(&mut duo.origin, duo.window, TARGET);
    }
    duo.unlock()
}

#[inline(never)]
#[no_mangle]
fn icount_near_put_flush(engine: &mut NullEngine, window: WindowId, target: Rank) {
    near_put(engine, window, target);
    let is_flushed = engine.is_flushed(window, target) || engine.flush_at_once(window, target);
    assert!(is_flushed, "something is under way");
}

fn run_near_fetch_and_op(count: u32) -> Result<(), RmaError> {
    let mut duo = Duo::near(&by_words())?;
    duo.lock()?;
    let (operand, mut result) = (1_u64.to_ne_bytes(), [0; 8]);
    let operation = Operation {
        call: Call::FetchAndOp,
        kind: OpKind::GetAccumulate,
        dtype: Dtype::U64,
        op: ReduceOp::Sum,
        target: TARGET,
        disp: 0,
        len: 8,
        origin: operand.as_ptr(),
        result: result.as_mut_ptr(),
        compare: std::ptr::null(),
    };
    for _ in 0..count {
        assert!(icount_near_fetch_and_op(&mut duo.origin, duo.window, &operation)?, "it was not taken");
    }
    assert_eq!(u64::from_ne_bytes(result), u64::from(count) - 1);
    duo.unlock()
}

#[inline(never)]
#[no_mangle]
fn icount_near_fetch_and_op(
    engine: &mut NullEngine,
    window: WindowId,
    operation: &Operation,
) -> Result<bool, RmaError> {
    // SAFETY: it is complete when the call returns.
    let posted = unsafe { engine.post(window, operation) };
    let is_flushed =
        engine.is_flushed(window, operation.target) || engine.flush_at_once(window, operation.target);
    assert!(is_flushed, "something is under way");
    Ok(matches!(posted, Poll::Ready(Ok(()))))
}

/// A blocking call: polls until done, makes progress in between.
#[inline]
fn wait(engine: &mut NullEngine, mut call: SyncCall) -> Result<(), RmaError> {
    for _ in 0..PROGRESS_MAX {
        if let Poll::Ready(result) = engine.poll(&mut call) {
            return result;
        }
        engine.progress();
    }
    panic!("after {PROGRESS_MAX} times progress the call still waits for {}", call.waiting_for())
}

/// Nothing that [`wait`] waits for takes longer here.
const PROGRESS_MAX: u32 = 4;
