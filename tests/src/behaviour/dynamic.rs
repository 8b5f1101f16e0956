//! Dynamic windows.

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::engine::FenceAssert;
use rma_core::error::{Call, ErrorClass, RmaError};
use rma_core::ids::{Rank, WindowId};
use rma_core::info::{Flavor, WindowOptions};
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;

use super::{pattern, Make};
use crate::{Spec, World};

const LAST: FenceAssert = FenceAssert { no_precede: false, no_succeed: true, no_store: false, no_put: false };

/// Memory of a simulated rank, at an address that stays the same.
pub(super) struct Region(pub(super) Box<[u64]>);

impl Region {
    pub(super) fn new(bytes: usize) -> Self {
        Self(vec![0; bytes.div_ceil(8)].into_boxed_slice())
    }

    pub(super) fn base(&mut self) -> *mut u8 {
        self.0.as_mut_ptr().cast()
    }

    pub(super) fn address(&mut self) -> u64 {
        self.base().addr() as u64
    }

    pub(super) fn bytes(&mut self) -> Vec<u8> {
        let (base, len) = (self.base(), 8 * self.0.len());
        // SAFETY: the words are ours, and nothing runs meanwhile.
        unsafe { std::slice::from_raw_parts(base, len) }.to_vec()
    }
}

pub(super) fn dynamic<E: Endpoint, B: Bootstrap>(world: &mut World<E, B>) -> WindowId {
    world.make(|engine, _| engine.start_create_dynamic(&WindowOptions::DEFAULT))
}

pub(super) fn attach<E: Endpoint, B: Bootstrap>(
    world: &mut World<E, B>,
    rank: u32,
    window: WindowId,
    base: *mut u8,
    len: usize,
) -> Result<(), RmaError> {
    // SAFETY: the bodies keep their regions until they are detached or the window is freed.
    unsafe { world.engines[rank as usize].attach(window, base, len) }
}

pub(super) fn class(result: Result<(), RmaError>) -> ErrorClass {
    result.expect_err("an error was due").class()
}

/// What one rank attaches, another puts to and gets from at its address, large and small.
///
/// Shows: MPI_Win_create_dynamic, MPI_Win_attach, MPI_Win_detach, MPI-4.1 13.2.4.
pub fn attached_memory_is_accessed_by_address<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = dynamic(&mut world);
    let mut region = Region::new(200_000);
    attach(&mut world, 1, window, region.base(), 200_000).unwrap();
    for len in [1, 8, 100, 5000, 150_000] {
        let (data, disp) = (pattern(len, len as u64), region.address() + 40);
        let mut seen = vec![0; len];
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, disp, &data).unwrap();
        world.unlock(0, window, 1).unwrap();
        world.lock(2, window, 1, Shared).unwrap();
        world.get(2, window, 1, disp, &mut seen).unwrap();
        world.unlock(2, window, 1).unwrap();
        assert_eq!(seen, data);
        assert_eq!(region.bytes()[40..40 + len], data);
    }
    world.detach(1, window, region.base()).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// The accumulate family on attached memory.
///
/// Shows: MPI_Win_attach, MPI_Accumulate, MPI_Get_accumulate, MPI_Compare_and_swap.
pub fn every_operation_on_regions<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(64);
    attach(&mut world, 1, window, region.base(), 64).unwrap();
    let at = region.address() + 8;
    let (five, seven) = (5u64.to_le_bytes(), 7u64.to_le_bytes());
    let (mut old, mut swapped) = ([0; 8], 0);
    world.lock(0, window, 1, Shared).unwrap();
    world.accumulate(0, window, 1, at, &five, Dtype::U64, ReduceOp::Sum).unwrap();
    world.get_accumulate(0, window, 1, at, &seven, &mut old, Dtype::U64, ReduceOp::Sum).unwrap();
    world.compare_and_swap(0, window, 1, at, &[12, 30], &mut swapped).unwrap();
    world.unlock(0, window, 1).unwrap();
    assert_eq!((u64::from_le_bytes(old), swapped, region.0[1]), (5, 12, 30));
    world.free(window).unwrap();
    world.check_idle();
}

/// Every access to memory that is not attached any more is an error of the origin, and touches nothing.
///
/// Shows: MPI_Win_detach, MPI_ERR_RMA_RANGE, MPI-4.1 13.2.4.
pub fn detached_memory_is_an_error<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(1 << 16);
    let (data, small) = (pattern(1 << 16, 3), [1; 8]);
    attach(&mut world, 1, window, region.base(), 1 << 16).unwrap();
    world.lock(0, window, 1, Shared).unwrap();
    world.put(0, window, 1, region.address(), &data).unwrap();
    world.flush(0, window, 1).unwrap();
    world.detach(1, window, region.base()).unwrap();
    let mut got = vec![9; 1 << 15];
    let address = region.address();
    world.put(0, window, 1, address, &small).unwrap();
    assert_eq!(class(world.flush(0, window, 1)), ErrorClass::RmaRange);
    // Longer than a packet: what is named need not be all of it.
    world.put(0, window, 1, address, &data[1..]).unwrap();
    let error = world.flush(0, window, 1).unwrap_err();
    assert_eq!(error.class(), ErrorClass::RmaRange);
    assert!(error.to_string().contains("all of an access or what one packet had of it"), "{error}");
    world.get(0, window, 1, address, &mut got).unwrap();
    assert_eq!(class(world.flush(0, window, 1)), ErrorClass::RmaRange);
    world.accumulate(0, window, 1, address, &small, Dtype::U64, ReduceOp::Sum).unwrap();
    let error = world.unlock(0, window, 1).unwrap_err();
    let expected =
        RmaError::NotAttached { call: Call::Unlock, target: Rank(1), address, len_bytes: small.len() as u64 };
    assert_eq!(error, expected);
    assert_eq!((region.bytes(), got), (data, vec![9; 1 << 15]));
    // The lock was released all the same.
    world.lock(1, window, 1, Exclusive).unwrap();
    world.unlock(1, window, 1).unwrap();
    world.free(window).unwrap();
    world.check_idle();
}

/// A region that is attached again at the same address, also with another length, is what it is now.
///
/// Shows: MPI_Win_attach, MPI_Win_detach, MPI-4.1 13.2.4.
pub fn what_went_may_come_again<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(1024);
    let address = region.address();
    for round in 0..20u8 {
        let len = 1024 - 16 * usize::from(round);
        attach(&mut world, 1, window, region.base(), len).unwrap();
        world.lock(0, window, 1, Shared).unwrap();
        let data = vec![round; len];
        world.put(0, window, 1, address, &data).unwrap();
        world.flush(0, window, 1).unwrap();
        world.put(0, window, 1, address + len as u64 - 7, &[0xff; 8]).unwrap();
        assert_eq!(class(world.unlock(0, window, 1)), ErrorClass::RmaRange);
        assert_eq!(region.bytes()[..len], data);
        world.detach(1, window, region.base()).unwrap();
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// An access that begins in one region and ends in the next, or beyond, is refused as a whole.
///
/// Shows: MPI_ERR_RMA_RANGE, MPI-4.1 13.2.4.
pub fn accesses_stay_in_one_region<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(128);
    let address = region.address();
    attach(&mut world, 1, window, region.base(), 64).unwrap();
    attach(&mut world, 1, window, region.base().wrapping_add(64), 64).unwrap();
    world.lock(0, window, 1, Shared).unwrap();
    for disp in [address + 60, address + 121, address - 1, 0, u64::MAX - 16] {
        world.put(0, window, 1, disp, &[1; 8]).unwrap();
        assert_eq!(class(world.flush(0, window, 1)), ErrorClass::RmaRange, "{disp:#x}");
    }
    // What does not fit the address space at all is known at once, also of oneself.
    world.lock(1, window, 1, Shared).unwrap();
    for origin in [0, 1] {
        let expected =
            RmaError::NotAttached { call: Call::Put, target: Rank(1), address: u64::MAX - 3, len_bytes: 8 };
        assert_eq!(world.put(origin, window, 1, u64::MAX - 3, &[1; 8]), Err(expected));
    }
    world.unlock(1, window, 1).unwrap();
    world.put(0, window, 1, address + 56, &[2; 8]).unwrap();
    world.put(0, window, 1, address + 64, &[3; 8]).unwrap();
    world.unlock(0, window, 1).unwrap();
    assert_eq!(region.bytes()[48..80], [[0; 8], [2; 8], [3; 8], [0; 8]].concat());
    world.free(window).unwrap();
    world.check_idle();
}

/// Regions that overlap are refused, and what is attached stays.
///
/// Shows: MPI_ERR_RMA_ATTACH, MPI-4.1 13.2.4.
pub fn attached_regions_do_not_overlap<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(256);
    let base = region.base();
    attach(&mut world, 1, window, base.wrapping_add(64), 64).unwrap();
    for (offset, len) in [(64, 64), (0, 65), (127, 1), (0, 256), (64, 0)] {
        let refused = attach(&mut world, 1, window, base.wrapping_add(offset), len);
        assert_eq!(class(refused), ErrorClass::RmaAttach, "{len} bytes at {offset}");
    }
    attach(&mut world, 1, window, base, 64).unwrap();
    attach(&mut world, 1, window, base.wrapping_add(128), 128).unwrap();
    // What has no byte overlaps nothing, wherever it is, and is nobody's way to anything.
    attach(&mut world, 1, window, base.wrapping_add(100), 0).unwrap();
    world.lock(0, window, 1, Shared).unwrap();
    world.put(0, window, 1, base.addr() as u64 + 100, &[1; 8]).unwrap();
    world.unlock(0, window, 1).unwrap();
    world.detach(1, window, base.wrapping_add(100)).unwrap();
    let detached = world.detach(1, window, base.wrapping_add(1));
    assert_eq!(class(detached), ErrorClass::RmaAttach);
    // Another window may have the same memory.
    let other = dynamic(&mut world);
    attach(&mut world, 1, other, base, 256).unwrap();
    world.free(other).unwrap();
    world.free(window).unwrap();
}

/// Memory is attached to dynamic windows only.
///
/// Shows: MPI_ERR_RMA_FLAVOR.
pub fn attach_wants_a_dynamic_window<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let mut region = Region::new(64);
    assert_eq!(class(attach(&mut world, 0, window, region.base(), 64)), ErrorClass::RmaFlavor);
    assert_eq!(class(world.detach(0, window, region.base())), ErrorClass::RmaFlavor);
    let gone = WindowId(99);
    assert_eq!(class(attach(&mut world, 0, gone, region.base(), 64)), ErrorClass::Window);
}

/// What is no memory is not attached.
///
/// Shows: MPI_ERR_BASE, MPI_ERR_SIZE.
pub fn attach_wants_memory<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(8);
    for len in [0, 8] {
        let refused = attach(&mut world, 0, window, std::ptr::null_mut(), len);
        assert_eq!(class(refused), ErrorClass::Base);
    }
    assert_eq!(class(attach(&mut world, 0, window, region.base(), usize::MAX)), ErrorClass::Size);
    attach(&mut world, 0, window, region.base(), 0).unwrap();
    world.detach(0, window, region.base()).unwrap();
    world.free(window).unwrap();
}

/// As many regions as one likes, attached in any order while others access what is there.
///
/// Shows: MPI_Win_attach, MPI-4.1 13.2.4.
pub fn many_regions<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    const REGIONS: usize = 300;
    let mut world = make(Spec::ranks(2));
    let window = dynamic(&mut world);
    let mut regions: Vec<_> = (0..REGIONS).map(|_| Region::new(16)).collect();
    let small = world.engines[1].window_bytes(window).unwrap();
    world.lock(0, window, 1, Shared).unwrap();
    for index in 0..REGIONS {
        let region = &mut regions[index * 7 % REGIONS];
        attach(&mut world, 1, window, region.base(), 16).unwrap();
        let disp = region.address();
        world.put(0, window, 1, disp, &(index as u64).to_le_bytes()).unwrap();
        world.flush(0, window, 1).unwrap();
    }
    world.unlock(0, window, 1).unwrap();
    assert!((0..REGIONS).all(|index| regions[index * 7 % REGIONS].0[0] == index as u64));
    assert!(world.engines[1].window_bytes(window).unwrap() > small, "what is held is counted");
    assert_eq!(world.engines[0].window_bytes(window).unwrap(), small, "at the rank that holds it");
    world.free(window).unwrap();
    world.check_idle();
}

/// A rank accesses what it attached itself, and gets the same errors.
///
/// Shows: MPI_Win_attach, MPI_ERR_RMA_RANGE.
pub fn own_regions<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(64);
    let address = region.address();
    world.lock(1, window, 1, Exclusive).unwrap();
    assert_eq!(class(world.put(1, window, 1, address, &[1; 8])), ErrorClass::RmaRange);
    attach(&mut world, 1, window, region.base(), 64).unwrap();
    world.put(1, window, 1, address + 8, &[2; 8]).unwrap();
    let one = 1u64.to_le_bytes();
    world.accumulate(1, window, 1, address, &one, Dtype::U64, ReduceOp::Sum).unwrap();
    let mut got = [0; 16];
    world.get(1, window, 1, address, &mut got).unwrap();
    world.unlock(1, window, 1).unwrap();
    assert_eq!(got, [1, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2]);
    world.free(window).unwrap();
    world.check_idle();
}

/// A window is of one kind at all ranks.
///
/// Shows: MPI_ERR_RMA_FLAVOR, MPI-4.1 13.2.
pub fn kinds_of_windows_must_agree<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let (_, results) = world.make_each(|engine, rank| {
        if rank == 1 {
            engine.start_create_dynamic(&WindowOptions::DEFAULT)
        } else {
            engine.start_allocate(64, 1)
        }
    });
    for result in results {
        assert_eq!(class(result), ErrorClass::RmaFlavor);
    }
    let window = dynamic(&mut world);
    world.free(window).unwrap();
    world.check_idle();
}

/// A dynamic window has neither base nor size.
///
/// Shows: MPI_WIN_CREATE_FLAVOR, MPI_WIN_BASE, MPI_WIN_SIZE, MPI-4.1 13.2.6.
pub fn dynamic_attributes<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = dynamic(&mut world);
    let attributes = world.engines[0].window_attributes(window).unwrap();
    assert!(attributes.base.is_null());
    assert_eq!((attributes.len, attributes.disp_unit), (0, 1));
    assert_eq!(attributes.flavor, Flavor::Dynamic);
}

/// Fence epochs on a dynamic window; memory attached before the fence is accessed after it.
///
/// Shows: MPI_Win_fence, MPI_Win_attach.
pub fn dynamic_windows_are_fenced<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(4));
    let window = dynamic(&mut world);
    let mut regions: Vec<_> = (0..4).map(|_| Region::new(32)).collect();
    for rank in 0..4 {
        attach(&mut world, rank, window, regions[rank as usize].base(), 32).unwrap();
    }
    world.fence(window, FenceAssert::default()).unwrap();
    let data: Vec<_> = (0..4u8).map(|rank| [rank + 1; 8]).collect();
    for origin in 0..4u32 {
        let target = (origin + 1) % 4;
        let disp = regions[target as usize].address() + 8 * u64::from(origin);
        world.put(origin, window, target, disp, &data[origin as usize]).unwrap();
    }
    world.fence(window, LAST).unwrap();
    for origin in 0..4usize {
        let found = regions[(origin + 1) % 4].bytes();
        assert_eq!(found[8 * origin..8 * origin + 8], data[origin]);
    }
    world.free(window).unwrap();
    world.check_idle();
}

/// Operations that wait at the target for its lock are judged by what is attached when they are executed.
///
/// Shows: MPI_Win_detach, MPI_ERR_RMA_RANGE.
pub fn waiting_operations_find_the_region_gone<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(3));
    let window = dynamic(&mut world);
    let mut region = Region::new(64);
    attach(&mut world, 1, window, region.base(), 64).unwrap();
    world.lock(1, window, 1, Exclusive).unwrap();
    world.lock(0, window, 1, Exclusive).unwrap();
    world.put(0, window, 1, region.address(), &[1; 8]).unwrap();
    let mut unlock = world.engines[0].start_unlock(window, Rank(1)).unwrap();
    world.settle();
    assert!(world.engines[0].poll(&mut unlock).is_pending());
    world.detach(1, window, region.base()).unwrap();
    world.unlock(1, window, 1).unwrap();
    assert_eq!(class(world.wait_all(vec![(0, unlock)])), ErrorClass::RmaRange);
    assert_eq!(region.bytes(), [0; 64]);
    world.free(window).unwrap();
    world.check_idle();
}

/// Attach, and detach of what nobody accesses natively, send nothing and wait for nobody, also inside of epochs
/// of others.
///
/// Shows: MPI_Win_attach, MPI_Win_detach.
pub fn detach_waits_for_nobody<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = dynamic(&mut world);
    let mut region = Region::new(64);
    world.lock(0, window, 1, Exclusive).unwrap();
    let before = world.counters(1).packets_sent;
    attach(&mut world, 1, window, region.base(), 64).unwrap();
    world.put(0, window, 1, region.address(), &[1; 8]).unwrap();
    world.detach(1, window, region.base()).unwrap();
    assert_eq!(world.counters(1).packets_sent, before);
    assert_eq!(class(world.unlock(0, window, 1)), ErrorClass::RmaRange);
    world.free(window).unwrap();
    world.check_idle();
}
