//! Several windows over one memory.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::FenceAssert;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::{pattern, Make};
use crate::Spec;

const LAST: FenceAssert = FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

/// A fence on one window and then on the other makes what was put through the one readable through the other.
///
/// Shows: MPI-4.1 13.7, MPI_Win_create, MPI_Win_fence, rule: overlapping-windows.
pub fn fences_on_both_make_updates_visible<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let whole = world.allocate(256);
    let other = world.create_over(whole, 0, 256);
    let data = pattern(100, 1);
    let mut seen = vec![0; 100];
    world.fence(whole, FenceAssert::default()).unwrap();
    world.put(0, whole, 1, 20, &data).unwrap();
    world.fence(whole, LAST).unwrap();
    world.fence(other, FenceAssert::default()).unwrap();
    world.get(2, other, 1, 20, &mut seen).unwrap();
    world.fence(other, LAST).unwrap();
    assert_eq!(seen, data);
    world.free(other).unwrap();
    world.free(whole).unwrap();
    world.check_idle();
}

/// Windows that overlap in part: displacements count from each window's own base, and bounds are its own.
///
/// Shows: MPI-4.1 13.7, MPI_ERR_RMA_RANGE.
pub fn parts_have_their_own_bounds<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let whole = world.allocate(256);
    let (low, high) = (world.create_over(whole, 0, 160), world.create_over(whole, 96, 160));
    let data = pattern(64, 2);
    world.lock(0, low, 1, Exclusive).unwrap();
    world.put(0, low, 1, 96, &data).unwrap();
    let beyond = world.put(0, low, 1, 97, &data);
    let end = world.unlock(0, low, 1);
    assert!(beyond.and(end).is_err());
    let mut seen = vec![0; 64];
    world.lock(0, high, 1, Shared).unwrap();
    world.get(0, high, 1, 0, &mut seen).unwrap();
    world.unlock(0, high, 1).unwrap();
    assert_eq!(seen, data);
    assert_eq!(world.memory(1, whole)[96..160], data);
    for window in [high, low, whole] {
        world.free(window).unwrap();
    }
    world.check_idle();
}

/// Each window has its own lock and its own epochs: one may be locked while the other is.
///
/// Shows: MPI_Win_lock, MPI-4.1 13.5.3, rule: windows-overlap.
pub fn epochs_are_each_windows_own<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let whole = world.allocate(64);
    let other = world.create_over(whole, 0, 64);
    let one = 1u64.to_le_bytes();
    world.lock(0, whole, 1, Exclusive).unwrap();
    world.accumulate(0, whole, 1, 0, &one, Dtype::U64, ReduceOp::Sum).unwrap();
    world.flush(0, whole, 1).unwrap();
    // Would wait for ever if it were the same lock.
    world.lock(2, other, 1, Exclusive).unwrap();
    world.accumulate(2, other, 1, 8, &one, Dtype::U64, ReduceOp::Sum).unwrap();
    world.unlock(2, other, 1).unwrap();
    world.unlock(0, whole, 1).unwrap();
    assert_eq!((world.word(1, whole, 0), world.word(1, other, 8)), (1, 1));
    world.free(other).unwrap();
    world.free(whole).unwrap();
    world.check_idle();
}

/// One window may be freed while the other stays in use.
///
/// Shows: MPI_Win_free, MPI-4.1 13.2.5.
pub fn one_goes_and_the_other_stays<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let whole = world.allocate(1 << 14);
    let data = pattern(1 << 14, 5);
    for round in 0..3u8 {
        let other = world.create_over(whole, 0, 1 << 14);
        world.lock(0, other, 1, Shared).unwrap();
        let rounds = [round; 8];
        world.put(0, other, 1, 0, &rounds).unwrap();
        world.unlock(0, other, 1).unwrap();
        world.free(other).unwrap();
        assert_eq!(world.memory(1, whole)[..8], [round; 8]);
        world.lock(0, whole, 1, Shared).unwrap();
        world.put(0, whole, 1, 0, &data).unwrap();
        world.unlock(0, whole, 1).unwrap();
        assert_eq!(world.memory(1, whole), data);
    }
    world.free(whole).unwrap();
    world.check_idle();
}
