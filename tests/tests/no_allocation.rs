//! Nothing is allocated in any operation or epoch call after a window is made: an allocator counts, in
//! the simulator, over libfabric's tcp and over shared memory.
#![allow(unsafe_code)] // a counting allocator; operations on local buffers

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::task::Poll;
use std::time::{Duration, Instant};

use rma_core::bootstrap::{AddressBytes, Bootstrap, BootstrapError, Lookup};
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{Engine, FenceAssert, Operation, PostAssert, StartAssert, SyncCall};
use rma_core::error::{Call, RmaError};
use rma_core::group::Group;
use rma_core::ids::{Rank, WindowId};
use rma_core::info::LockProtocol;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::{Endpoint, NativeOps};
use rma_core::wire::OpKind;
use rma_ofi::{Ofi, OfiEndpoint, Options};
use rma_shm::{Reach, ShmEndpoint};
use rma_sim::{FabricConfig, SimFabric};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // Threads that end allocate no more; what is not countable then is not ours.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are the same.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Longest time of all rounds of one configuration; seconds, but with a sanitizer on a busy machine a minute.
const LIMIT: Duration = Duration::from_secs(400);

struct Pair<'a, E: Endpoint, B: Bootstrap> {
    engines: [Engine<E, B>; 2],
    /// Of each rank alone.
    groups: [Group; 2],
    advance: &'a dyn Fn(),
    start: Instant,
}

impl<E: Endpoint, B: Bootstrap> Pair<'_, E, B> {
    fn step(&mut self) {
        assert!(self.start.elapsed() < LIMIT, "no end after {LIMIT:?}");
        let [one, other] = &mut self.engines;
        if one.progress() + other.progress() == 0 {
            (self.advance)();
        }
    }

    fn wait(&mut self, started: Result<SyncCall, RmaError>) {
        let mut sync = started.unwrap();
        loop {
            if let Poll::Ready(done) = self.engines[0].poll(&mut sync) {
                return done.unwrap();
            }
            self.step();
        }
    }

    fn wait_both(&mut self, start: impl Fn(&mut Engine<E, B>) -> SyncCall) {
        let [one, other] = &mut self.engines;
        let mut calls = [(start(one), false), (start(other), false)];
        while calls.iter().any(|(_, done)| !done) {
            for (engine, (sync, done)) in self.engines.iter_mut().zip(&mut calls) {
                *done = *done || engine.poll(sync).map(Result::unwrap).is_ready();
            }
            self.step();
        }
    }

    fn post(&mut self, window: WindowId, operation: &Operation) {
        loop {
            // SAFETY: every buffer outlives the epoch in which it is used.
            if let Poll::Ready(done) = unsafe { self.engines[0].post(window, operation) } {
                return done.unwrap();
            }
            self.step();
        }
    }

    /// Every operation, in whatever epoch is open.
    fn operations(&mut self, window: WindowId, data: &[u8; 4096], result: &mut [u8; 4096]) {
        let base = Operation {
            call: Call::Put,
            kind: OpKind::Put,
            dtype: Dtype::U64,
            op: ReduceOp::Sum,
            target: Rank(1),
            disp: 0,
            len: 8,
            origin: data.as_ptr(),
            result: result.as_mut_ptr(),
            compare: data.as_ptr(),
        };
        let kinds =
            [OpKind::Put, OpKind::Get, OpKind::Accumulate, OpKind::GetAccumulate, OpKind::CompareAndSwap];
        for kind in kinds {
            for len in [8, 512, 4096] {
                let len = if kind == OpKind::CompareAndSwap { 8 } else { len };
                let unused = if matches!(kind, OpKind::Put | OpKind::Accumulate) {
                    std::ptr::null_mut()
                } else {
                    base.result
                };
                self.post(window, &Operation { kind, len, result: unused, ..base });
            }
        }
    }

    fn every_epoch(&mut self, window: WindowId, data: &[u8; 4096], result: &mut [u8; 4096]) {
        for lock_type in [Exclusive, Shared] {
            for no_check in [false, true] {
                let started = self.engines[0].start_lock(window, Rank(1), lock_type, no_check);
                self.wait(started);
                self.operations(window, data, result);
                let started = self.engines[0].start_flush(window, Rank(1));
                self.wait(started);
                let started = self.engines[0].start_flush_local(window, Rank(1));
                self.wait(started);
                self.operations(window, data, result);
                let started = self.engines[0].start_unlock(window, Rank(1));
                self.wait(started);
            }
        }
        let started = self.engines[0].start_lock_all(window, false);
        self.wait(started);
        self.operations(window, data, result);
        let started = self.engines[0].start_flush_all(window);
        self.wait(started);
        let started = self.engines[0].start_flush_local_all(window);
        self.wait(started);
        let started = self.engines[0].start_unlock_all(window);
        self.wait(started);
        self.post_and_start(window, data, result);
        let fence = |engine: &mut Engine<E, B>| engine.start_fence(window, FenceAssert::default()).unwrap();
        self.wait_both(fence);
        self.operations(window, data, result);
        self.wait_both(fence);
        let last = FenceAssert { no_succeed: true, ..FenceAssert::default() };
        self.wait_both(|engine| engine.start_fence(window, last).unwrap());
    }
}

impl<E: Endpoint, B: Bootstrap> Pair<'_, E, B> {
    /// Rank 1 exposes its window to rank 0: before its start, after its complete, and without notices.
    fn post_and_start(&mut self, window: WindowId, data: &[u8; 4096], result: &mut [u8; 4096]) {
        let [origin, target] = self.groups.clone();
        for (post_first, no_check) in [(true, false), (false, false), (true, true)] {
            let post = PostAssert { no_check, ..PostAssert::default() };
            let expose = |engine: &mut Engine<E, B>| {
                let mut sync = engine.start_post(window, &origin, post).unwrap();
                assert!(engine.poll(&mut sync).is_ready());
            };
            if post_first {
                expose(&mut self.engines[1]);
            }
            let started = self.engines[0].start_start(window, &target, StartAssert { no_check });
            self.wait(started);
            if post_first {
                self.operations(window, data, result);
            }
            let started = self.engines[0].start_complete(window);
            if !post_first {
                expose(&mut self.engines[1]);
            }
            self.wait(started);
            while !self.engines[1].test(window).unwrap() {
                self.step();
            }
        }
    }
}

fn check<E: Endpoint, B: Bootstrap>(engines: [Engine<E, B>; 2], advance: &dyn Fn()) {
    let groups = [0, 1].map(|rank| Group::new(&[Rank(rank)], 2).unwrap());
    let mut pair = Pair { engines, groups, advance, start: Instant::now() };
    let [one, other] = &mut pair.engines;
    let (window, one) = one.start_allocate(8192, 1).unwrap();
    let (_, other) = other.start_allocate(8192, 1).unwrap();
    let mut calls = [Some(one), Some(other)];
    while calls.iter().any(Option::is_some) {
        for (engine, call) in pair.engines.iter_mut().zip(&mut calls) {
            if call.as_mut().is_some_and(|sync| engine.poll(sync).map(Result::unwrap).is_ready()) {
                *call = None;
            }
        }
        pair.step();
    }
    let (data, mut result) = ([1; 4096], [0; 4096]);
    // The first round connects the peers, which may allocate.
    pair.every_epoch(window, &data, &mut result);
    let before = ALLOCATIONS.get();
    assert!(before > 0, "the allocator counts");
    for _ in 0..50 {
        pair.every_epoch(window, &data, &mut result);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0, "allocations in 50 rounds of every epoch");
}

fn configs() -> [Config; 3] {
    let scarce = Config {
        operation_pool: 2,
        operation_pool_global: 0,
        target_pool: 1,
        target_pool_global: 0,
        reply_buffers: 1,
        ..Config::default()
    };
    [Config::default(), Config::all_off(), scarce]
}

#[test]
fn in_the_simulator() {
    let [plain, _, scarce] = configs();
    let by_words = [plain, scarce].map(|config| Config { lock_protocol: LockProtocol::Nic, ..config });
    for config in configs().into_iter().chain(by_words) {
        for native in [NativeOps::default(), rma_sim::native_all()] {
            let fabric = SimFabric::new(FabricConfig { native, ..FabricConfig::unit(2) });
            fabric.reserve(10_000);
            let engines = [0, 1].map(|rank| {
                let endpoint = fabric.open(rank).unwrap();
                Engine::open(endpoint, fabric.bootstrap(rank), config.clone()).unwrap()
            });
            check(engines, &|| {
                fabric.advance();
            });
            assert_eq!(fabric.violations(), []);
        }
    }
}

#[derive(Debug)]
struct TwoRanks {
    rank: u32,
    addresses: [AddressBytes; 2],
}

impl Bootstrap for TwoRanks {
    fn rank(&self) -> Rank {
        Rank(self.rank)
    }

    fn size(&self) -> u32 {
        2
    }

    fn publish(&mut self, _: &AddressBytes) -> Result<(), BootstrapError> {
        Ok(())
    }

    fn lookup(&mut self, rank: Rank) -> Result<Lookup, BootstrapError> {
        Ok(Lookup::Found(self.addresses[rank.index()]))
    }
}

#[test]
fn over_tcp() {
    for provider in ["tcp;ofi_rxm", "net"] {
        for config in configs() {
            let options =
                Options { provider: Some(provider.into()), single_host: true, ..Options::default() };
            let choice = Ofi::discover(&options).unwrap();
            let endpoints = [0, 1].map(|_| OfiEndpoint::open(&choice, &options).unwrap());
            let addresses = [endpoints[0].address(), endpoints[1].address()];
            let mut rank = 0;
            let engines = endpoints.map(|endpoint| {
                let bootstrap = TwoRanks { rank, addresses };
                rank += 1;
                Engine::open(endpoint, bootstrap, config.clone()).unwrap()
            });
            check(engines, &std::thread::yield_now);
        }
    }
}

#[test]
fn over_shared_memory() {
    for reach in [Reach::Attached, Reach::Packets] {
        for config in configs() {
            let options = rma_shm::Options { reach: Some(reach), ..rma_shm::Options::default() };
            let endpoints = [0, 1].map(|_| ShmEndpoint::open(&options).unwrap());
            let addresses = [endpoints[0].address(), endpoints[1].address()];
            let mut rank = 0;
            let engines = endpoints.map(|endpoint| {
                let bootstrap = TwoRanks { rank, addresses };
                rank += 1;
                Engine::open(endpoint, bootstrap, config.clone()).unwrap()
            });
            check(engines, &std::thread::yield_now);
        }
    }
}
