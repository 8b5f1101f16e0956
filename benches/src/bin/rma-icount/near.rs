//! Fence, and post, start, complete and wait, between two neighbours. What is waited for has always been told before.
#![allow(unsafe_code)] // a put takes a raw pointer

use std::hint::black_box;
use std::task::Poll;

use rma_bench::duo::{Duo, NullEngine, TARGET};
use rma_core::config::Config;
use rma_core::engine::{FenceAssert, PostAssert, StartAssert, SyncCall};
use rma_core::error::RmaError;
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};

/// Polls a call that has nothing to wait for.
#[inline(always)]
fn end(engine: &mut NullEngine, mut call: SyncCall) -> Result<(), RmaError> {
    match engine.poll(&mut call) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("what it waits for has been told"),
    }
}

pub(crate) fn run_near_put_fence(count: u32) -> Result<(), RmaError> {
    let mut duo = Duo::near(&Config::default())?;
    let opening = FenceAssert { no_precede: true, ..FenceAssert::default() };
    for engine in [&mut duo.origin, &mut duo.target] {
        let call = engine.start_fence(duo.window, opening)?;
        end(engine, call)?;
    }
    let value = [7; 8];
    duo.step();
    for _ in 0..count {
        let mut other = duo.target.start_fence(duo.window, FenceAssert::default())?;
        assert!(duo.target.poll(&mut other).is_pending(), "it was alone");
        icount_near_put_fence(&mut duo.origin, duo.window, black_box(TARGET), black_box(&value))?;
        end(&mut duo.target, other)?;
    }
    Ok(())
}

#[inline(never)]
#[no_mangle]
fn icount_near_put_fence(
    engine: &mut NullEngine,
    window: WindowId,
    target: Rank,
    value: &[u8; 8],
) -> Result<(), RmaError> {
    // SAFETY: the caller keeps the value until the fence is over.
    let posted = unsafe { engine.put(window, target, 0, value.as_ptr(), 8) };
    assert!(matches!(posted, Poll::Ready(Ok(()))), "a put was not taken");
    let call = engine.start_fence(window, FenceAssert::default())?;
    end(engine, call)
}

/// Epochs of both, one after the other; what is counted of them is up to the caller.
fn exposed(
    count: u32,
    mut access: impl FnMut(&mut NullEngine, WindowId, &Group, &[u8; 8]) -> Result<(), RmaError>,
    mut post: impl FnMut(&mut NullEngine, WindowId, &Group) -> Result<(), RmaError>,
    mut wait: impl FnMut(&mut NullEngine, WindowId) -> Result<(), RmaError>,
) -> Result<(), RmaError> {
    let mut duo = Duo::near(&Config::default())?;
    let [origins, targets] = [Rank(0), TARGET].map(|rank| Group::new(&[rank], 2));
    let (origins, targets, value) = (origins?, targets?, [7; 8]);
    for _ in 0..count {
        post(&mut duo.target, duo.window, black_box(&origins))?;
        access(&mut duo.origin, duo.window, black_box(&targets), black_box(&value))?;
        wait(&mut duo.target, duo.window)?;
    }
    Ok(())
}

pub(crate) fn run_near_access(count: u32) -> Result<(), RmaError> {
    exposed(count, icount_near_access, post, wait)
}

pub(crate) fn run_near_exposure(count: u32) -> Result<(), RmaError> {
    exposed(count, access, icount_near_exposure_post, icount_near_exposure_wait)
}

#[inline(never)]
#[no_mangle]
fn icount_near_access(
    engine: &mut NullEngine,
    window: WindowId,
    targets: &Group,
    value: &[u8; 8],
) -> Result<(), RmaError> {
    access(engine, window, targets, value)
}

#[inline(never)]
#[no_mangle]
fn icount_near_exposure_post(
    engine: &mut NullEngine,
    window: WindowId,
    origins: &Group,
) -> Result<(), RmaError> {
    post(engine, window, origins)
}

#[inline(never)]
#[no_mangle]
fn icount_near_exposure_wait(engine: &mut NullEngine, window: WindowId) -> Result<(), RmaError> {
    wait(engine, window)
}

#[inline(always)]
fn access(
    engine: &mut NullEngine,
    window: WindowId,
    targets: &Group,
    value: &[u8; 8],
) -> Result<(), RmaError> {
    let call = engine.start_start(window, targets, StartAssert::default())?;
    end(engine, call)?;
    // SAFETY: the caller keeps the value until the epoch is complete.
    let posted = unsafe { engine.put(window, TARGET, 0, value.as_ptr(), 8) };
    assert!(matches!(posted, Poll::Ready(Ok(()))), "a put was not taken");
    let call = engine.start_complete(window)?;
    end(engine, call)
}

#[inline(always)]
fn post(engine: &mut NullEngine, window: WindowId, origins: &Group) -> Result<(), RmaError> {
    let call = engine.start_post(window, origins, PostAssert::default())?;
    end(engine, call)
}

#[inline(always)]
fn wait(engine: &mut NullEngine, window: WindowId) -> Result<(), RmaError> {
    let call = engine.start_wait(window)?;
    end(engine, call)
}
