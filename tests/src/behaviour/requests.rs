//! Operations with a request (MPI-4.1 section 13.3.5).

use rma_core::bootstrap::Bootstrap;
use rma_core::config::Config;
use rma_core::dtype::Dtype;
use rma_core::engine::{FenceAssert, Operation, Request};
use rma_core::error::{Call, RmaError, Rule};
use rma_core::ids::Rank;
use rma_core::lock::LockType::{Exclusive, Shared};
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::wire::OpKind;

use super::{is_tried, pattern, switched, Make};
use crate::world::operation;
use crate::{Spec, World};

fn rput(target: u32, disp: u64, data: &[u8]) -> Operation {
    let operation = operation(Call::RequestPut, OpKind::Put, target, disp, data.len());
    Operation { origin: data.as_ptr(), ..operation }
}

fn rget(target: u32, disp: u64, data: &mut [u8]) -> Operation {
    let operation = operation(Call::RequestGet, OpKind::Get, target, disp, data.len());
    Operation { result: data.as_mut_ptr(), ..operation }
}

fn raccumulate(target: u32, disp: u64, data: &[u8]) -> Operation {
    let operation = operation(Call::RequestAccumulate, OpKind::Accumulate, target, disp, data.len());
    Operation { origin: data.as_ptr(), dtype: Dtype::U64, op: ReduceOp::Sum, ..operation }
}

fn rget_accumulate(target: u32, disp: u64, data: &[u8], result: &mut [u8]) -> Operation {
    let operation = operation(Call::RequestGetAccumulate, OpKind::GetAccumulate, target, disp, data.len());
    let (origin, result) = (data.as_ptr(), result.as_mut_ptr());
    Operation { origin, result, dtype: Dtype::U64, op: ReduceOp::Sum, ..operation }
}

/// Every form at every size: local completion for put and accumulate, data there for the others.
///
/// Shows: MPI_Rput, MPI_Rget, MPI_Raccumulate, MPI_Rget_accumulate, MPI-4.1 13.3.5.
pub fn every_request_form<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(1 << 18);
    for target in [1, 0] {
        for len in [8, 64, 72, 2048, 5000 * 8, 1 << 17] {
            let data = pattern(len, len as u64);
            let (mut origin, mut got, mut old) = (data.clone(), vec![0; len], vec![0; len]);
            let ones = 1u64.to_le_bytes().repeat(len / 8);
            world.lock(0, window, target, Exclusive).unwrap();
            let mut request = world.request(0, window, &rput(target, 0, &origin)).unwrap();
            world.wait_request(0, &mut request).unwrap();
            // The buffer is the program's again.
            origin.fill(0xee);
            world.flush(0, window, target).unwrap();
            let mut request = world.request(0, window, &rget(target, 0, &mut got)).unwrap();
            world.wait_request(0, &mut request).unwrap();
            assert_eq!(got, data, "rget of {len} bytes");
            let mut addend = ones.clone();
            let mut request = world.request(0, window, &raccumulate(target, 0, &addend)).unwrap();
            world.wait_request(0, &mut request).unwrap();
            addend.fill(0xee);
            let fetch = rget_accumulate(target, 0, &ones, &mut old);
            let mut request = world.request(0, window, &fetch).unwrap();
            world.wait_request(0, &mut request).unwrap();
            let sum = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
            for (one, other) in data.chunks(8).zip(old.chunks(8)) {
                assert_eq!(sum(other), sum(one).wrapping_add(1), "rget_accumulate of {len} bytes");
            }
            world.unlock(0, window, target).unwrap();
            assert_eq!(sum(&world.memory(target, window)), sum(&data).wrapping_add(2));
        }
    }
    world.check_idle();
}

/// Only in epochs of lock and lock_all.
///
/// Shows: MPI_Rput, MPI_Rget, MPI_Raccumulate, MPI_Rget_accumulate, MPI_ERR_RMA_SYNC, MPI-4.1 13.3.5.
pub fn requests_are_passive<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let (data, mut got) = ([1; 8], [0; 8]);
    let mut forms = |target| {
        let mut old = [0; 8];
        [
            rput(target, 0, &data),
            rget(target, 0, &mut got),
            raccumulate(target, 0, &data),
            rget_accumulate(target, 0, &data, &mut old),
        ]
    };
    for form in forms(1) {
        let error = world.request(0, window, &form).unwrap_err();
        let rule = Rule::NoEpoch;
        assert_eq!(
            error,
            RmaError::Epoch { call: form.call, target: Some(form.target), state: "Unset", rule }
        );
    }
    world.fence(window, FenceAssert::default()).unwrap();
    for form in forms(1).into_iter().chain(forms(0)) {
        let error = world.request(0, window, &form).unwrap_err();
        let rule = Rule::RequestOutsidePassive;
        assert_eq!(
            error,
            RmaError::Epoch { call: form.call, target: Some(form.target), state: "FenceGranted", rule }
        );
    }
    world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
    world.lock(0, window, 1, Shared).unwrap();
    let error = world.request(0, window, &rput(0, 0, &data)).unwrap_err();
    assert!(matches!(error, RmaError::Epoch { rule: Rule::NotLocked, .. }), "{error:?}");
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.memory(1, window), [0; 64]);
    world.check_idle();
}

/// The payload of a small put or accumulate is copied: its request is done before anything has moved.
///
/// Shows: MPI_Rput, MPI_Raccumulate, MPI-4.1 13.3.5.
pub fn small_requests_are_done_at_once<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(256);
    let mut data = pattern(64, 9);
    let expected = data.clone();
    let mut seven = 7u64.to_le_bytes();
    world.lock(0, window, 1, Exclusive).unwrap();
    let mut request = world.request(0, window, &rput(1, 0, &data)).unwrap();
    assert!(world.is_done(0, &mut request));
    data.fill(0);
    let mut request = world.request(0, window, &raccumulate(1, 64, &seven)).unwrap();
    assert!(world.is_done(0, &mut request));
    seven.fill(0);
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.memory(1, window)[..64], expected);
    assert_eq!(world.word(1, window, 64), 7);
    world.check_idle();
}

/// Waiting lets what was kept back leave: the lock that was not asked for yet, and what is before it.
///
/// Shows: MPI_Rget, MPI-4.1 13.3.5, MPI-4.1 13.7.3.
pub fn waiting_lets_operations_leave<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(256);
    world.lock(0, window, 1, Exclusive).unwrap();
    world.put(0, window, 1, 0, &[5; 8]).unwrap();
    world.flush(0, window, 1).unwrap();
    world.unlock(0, window, 1).unwrap();
    for is_granted in [false, true] {
        let (mut got, mut old) = ([0; 8], [0; 8]);
        world.lock(0, window, 1, Exclusive).unwrap();
        if is_granted {
            world.put(0, window, 1, 128, &[1; 8]).unwrap();
            world.flush(0, window, 1).unwrap();
        }
        let mut get = world.request(0, window, &rget(1, 0, &mut got)).unwrap();
        let zero = 0u64.to_le_bytes();
        let mut fetch = world.request(0, window, &rget_accumulate(1, 0, &zero, &mut old)).unwrap();
        world.wait_request(0, &mut fetch).unwrap();
        world.wait_request(0, &mut get).unwrap();
        assert_eq!((got, old), ([5; 8], [5; 8]));
        world.unlock(0, window, 1).unwrap();
    }
    world.check_idle();
}

/// A request is not done before its operation: asking without progress changes nothing, unless the fabric does it while it
/// is posted.
///
/// Shows: MPI_Rget, ours: test.
pub fn a_request_waits_for_its_data<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(4096);
    let mut got = vec![9; 4096];
    world.lock(0, window, 1, Shared).unwrap();
    let mut request = world.request(0, window, &rget(1, 0, &mut got)).unwrap();
    assert!(!request.is_null());
    let is_at_once = world.completes_at_once(0, 1);
    for _ in 0..3 {
        let is_done = world.is_done(0, &mut request);
        assert!(is_at_once || !is_done, "no progress was made, so the data cannot be there");
    }
    world.wait_request(0, &mut request).unwrap();
    assert_eq!(got, vec![0; 4096]);
    world.unlock(0, window, 1).unwrap();
    world.check_idle();
}

/// A request that nobody waits for: the epoch's end completes its operation.
///
/// Shows: MPI_Request_free, MPI_Rput, MPI_Rget, MPI-4.1 13.3.5.
pub fn dropped_requests<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(1 << 16);
    let data = pattern(1 << 15, 4);
    let mut got = vec![1; 512];
    world.lock(0, window, 1, Exclusive).unwrap();
    drop(world.request(0, window, &rput(1, 0, &data)).unwrap());
    drop(world.request(0, window, &rget(1, 1 << 15, &mut got)).unwrap());
    world.unlock(0, window, 1).unwrap();
    assert_eq!(world.memory(1, window)[..1 << 15], data);
    assert_eq!(got, [0; 512]);
    world.check_idle();
}

/// The end of its epoch, and of its window, completes what a request names.
///
/// Shows: MPI_Rput, MPI_Rget, MPI-4.1 13.3.5.
pub fn requests_outlive_their_epoch<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(1 << 16);
    let data = pattern(1 << 15, 4);
    let mut got = vec![1; 512];
    world.lock(0, window, 1, Exclusive).unwrap();
    let mut put = world.request(0, window, &rput(1, 0, &data)).unwrap();
    let mut get = world.request(0, window, &rget(1, 1 << 15, &mut got)).unwrap();
    world.unlock(0, window, 1).unwrap();
    assert!(world.is_done(0, &mut put));
    // Its element serves others by now.
    for _ in 0..200 {
        world.lock(0, window, 1, Exclusive).unwrap();
        world.put(0, window, 1, 0, &data[..100]).unwrap();
        world.unlock(0, window, 1).unwrap();
    }
    world.free(window).unwrap();
    assert!(world.is_done(0, &mut get));
    assert!(get.is_null() && world.is_done(0, &mut get), "a null request is done");
    world.check_idle();
}

/// Requests of many targets, each done for itself, in any order.
///
/// Shows: MPI_Rget, MPI-4.1 13.3.5.
pub fn requests_to_many_targets<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(5));
    let window = world.allocate(1024);
    let started = world.engines[0].start_lock_all(window, false);
    world.wait(0, started).unwrap();
    let data: Vec<Vec<u8>> = (0..5).map(|target| pattern(600, target)).collect();
    let mut got = vec![vec![0; 600]; 5];
    let mut requests = Vec::new();
    for (target, data) in (0..5).zip(&data) {
        requests.push(world.request(0, window, &rput(target, 0, data)).unwrap());
    }
    for request in &mut requests {
        world.wait_request(0, request).unwrap();
    }
    let started = world.engines[0].start_flush_all(window);
    world.wait(0, started).unwrap();
    let mut requests: Vec<Request> = Vec::new();
    for (target, got) in (0..5).zip(&mut got) {
        requests.push(world.request(0, window, &rget(target, 0, got)).unwrap());
    }
    for request in requests.iter_mut().rev() {
        world.wait_request(0, request).unwrap();
    }
    assert_eq!(got, data);
    let started = world.engines[0].start_unlock_all(window);
    world.wait(0, started).unwrap();
    world.check_idle();
}

/// An operation that the target refuses: its request may say so, and the closing call does.
///
/// Shows: MPI_Rget, MPI_Rput, MPI_ERR_RMA_RANGE, MPI-4.1 13.3.5, MPI-4.1 13.6.
pub fn failed_requests<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate_uneven(|rank| 64 + 64 * rank as usize, |_| 1);
    let data = [1; 100];
    let mut got = [7; 100];
    for round in 0..2 {
        world.lock(0, window, 1, Exclusive).unwrap();
        let refused = |error: RmaError| {
            let is_range = matches!(error, RmaError::Range { target: Rank(1), window_bytes: 128, .. });
            assert!(is_range, "round {round}: {error:?}");
        };
        let mut errors = 0;
        for operation in [rget(1, 100, &mut got), rput(1, 100, &data)] {
            match world.request(0, window, &operation) {
                Err(error) => {
                    refused(error);
                    errors += 1;
                }
                Ok(mut request) => {
                    // A get has its answer, so its request knows.
                    let is_get = operation.kind == OpKind::Get;
                    let done = world.wait_request(0, &mut request);
                    assert!(!is_get || done.is_err(), "round {round}: a get without data is no success");
                    done.map_or_else(refused, |()| ());
                }
            }
        }
        match world.unlock(0, window, 1) {
            Err(error) => refused(error),
            Ok(()) => assert_eq!(errors, 2, "round {round}: what no call has reported is lost"),
        }
        assert_eq!(got, [7; 100]);
    }
    assert_eq!(world.memory(1, window), [0; 128]);
    world.check_idle();
}

/// A get that the target refuses, and whose element serves others before its request is asked: that is no success.
///
/// Shows: MPI_Rget, MPI-4.1 13.3.5, MPI-4.1 13.6.
pub fn failed_requests_are_remembered<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let config = Config { operation_pool: 2, operation_pool_global: 0, ..Config::default() };
    let mut world = make(Spec { ranks: 2, config });
    let window = world.allocate_uneven(|rank| 64 + 64 * rank as usize, |_| 1);
    world.lock(0, window, 1, Exclusive).unwrap();
    let mut refused = [7; 100];
    // What is known of the target at once is refused at once.
    let asked = world.request(0, window, &rget(1, 100, &mut refused));
    let mut others = [[9; 64]; 20];
    for other in &mut others {
        if let Ok(mut request) = world.request(0, window, &rget(1, 0, other)) {
            world.wait_request(0, &mut request).unwrap_or_default();
        }
    }
    let refusals = asked.and_then(|mut request| {
        let first = world.wait_request(0, &mut request);
        assert!(request.is_null() && world.is_done(0, &mut request), "it is said once");
        first
    });
    assert!(refusals.is_err(), "a get without data is no success");
    assert!(world.unlock(0, window, 1).is_err() || refused == [7; 100]);
    assert_eq!(refused, [7; 100]);
    world.check_idle();
}

/// Far more requests than elements.
///
/// Shows: MPI_Rget, MPI_Rput, seed: RESTORE_OP_ELEM_RESOURCES.
pub fn requests_with_few_elements<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for pool in [1, 2] {
        let config = Config {
            operation_pool: pool,
            operation_pool_global: 0,
            target_pool: 1,
            target_pool_global: 0,
            ..Config::default()
        };
        let mut world = make(Spec { ranks: 3, config });
        let window = world.allocate(8192);
        let started = world.engines[0].start_lock_all(window, false);
        world.wait(0, started).unwrap();
        let data: Vec<Vec<u8>> = (0..20).map(|index| pattern(200, index)).collect();
        let mut got = vec![vec![0; 200]; 20];
        let mut requests = Vec::new();
        for (index, data) in data.iter().enumerate() {
            let target = 1 + index as u32 % 2;
            requests.push(world.request(0, window, &rput(target, 200 * index as u64, data)).unwrap());
        }
        let started = world.engines[0].start_flush_all(window);
        world.wait(0, started).unwrap();
        for (index, got) in got.iter_mut().enumerate() {
            let target = 1 + index as u32 % 2;
            requests.push(world.request(0, window, &rget(target, 200 * index as u64, got)).unwrap());
        }
        for request in &mut requests {
            world.wait_request(0, request).unwrap();
        }
        assert_eq!(got, data, "pool of {pool}");
        let started = world.engines[0].start_unlock_all(window);
        world.wait(0, started).unwrap();
        world.check_idle();
    }
}

/// A request whose lock has to wait is not done, and its buffer is in use, until the lock is granted.
///
/// Shows: MPI_Rput, MPI-4.1 13.3.5, MPI-4.1 13.5.3.
pub fn requests_wait_for_the_lock<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    for deferred_bytes in [0, 8192] {
        let mut world = make(Spec::ranks(3).with(|config| config.deferred_bytes = deferred_bytes));
        let window = world.allocate(1024);
        world.lock(2, window, 1, Exclusive).unwrap();
        world.put(2, window, 1, 0, &[2; 8]).unwrap();
        world.flush(2, window, 1).unwrap();
        let mut data = pattern(500, 3);
        let expected = data.clone();
        world.lock(0, window, 1, Exclusive).unwrap();
        let mut request = world.request(0, window, &rput(1, 0, &data)).unwrap();
        for _ in 0..200 {
            assert!(!world.is_done(0, &mut request), "the lock is another rank's");
            world.step();
        }
        world.put(2, window, 1, 0, &[3; 8]).unwrap();
        world.unlock(2, window, 1).unwrap();
        world.wait_request(0, &mut request).unwrap();
        data.fill(0);
        world.unlock(0, window, 1).unwrap();
        assert_eq!(world.memory(1, window)[..500], expected);
        world.check_idle();
    }
}

/// A program on few ranks that waits for each operation at once gets the same as one that waits at the end,
/// whatever is switched off.
///
/// Shows: MPI_Rput, MPI_Rget_accumulate, seed: RMA_COALESCE.
pub fn requests_under_all_switches<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut is_real = false;
    for bits in 0..32u32 {
        if !is_tried(bits, 5, is_real) {
            continue;
        }
        let config = switched(bits);
        let mut world: World<E, B> = make(Spec { ranks: 2, config });
        is_real = world.now_ns().is_none();
        let window = world.allocate(4096);
        let data = pattern(2000, 5);
        let one = 1u64.to_le_bytes();
        let (mut got, mut old) = (vec![0; 1000], [[0; 8]; 4]);
        world.lock(0, window, 1, Shared).unwrap();
        let mut put = world.request(0, window, &rput(1, 0, &data)).unwrap();
        for old in &mut old {
            let mut fetch = world.request(0, window, &rget_accumulate(1, 2048, &one, old)).unwrap();
            world.wait_request(0, &mut fetch).unwrap();
        }
        world.flush(0, window, 1).unwrap();
        assert!(world.is_done(0, &mut put));
        let mut get = world.request(0, window, &rget(1, 500, &mut got)).unwrap();
        world.wait_request(0, &mut get).unwrap();
        world.unlock(0, window, 1).unwrap();
        assert_eq!(old.map(u64::from_le_bytes), [0, 1, 2, 3], "switches {bits:05b}");
        assert_eq!(got, data[500..1500], "switches {bits:05b}");
        world.check_idle();
    }
}

/// Every operation, in every form, to no rank succeeds and does nothing; what is wrong with it otherwise is
/// still an error.
///
/// Shows: MPI_PROC_NULL, MPI-4.1 13.3.
pub fn operations_to_no_rank<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = world.allocate(64);
    let null = Rank::NULL.0;
    let (data, mut got, mut old) = ([1; 8], [7; 8], [7; 8]);
    let mut swapped = 7;
    let error = world.put(0, window, null, 0, &data).unwrap_err();
    assert!(matches!(error, RmaError::Epoch { rule: Rule::NoEpoch, .. }), "{error:?}");
    let before = world.counters(0);
    for is_passive in [true, false] {
        if is_passive {
            world.lock(0, window, 1, Shared).unwrap();
        } else {
            world.fence(window, FenceAssert::default()).unwrap();
        }
        world.put(0, window, null, u64::MAX, &data).unwrap();
        world.get(0, window, null, 1 << 40, &mut got).unwrap();
        world.accumulate(0, window, null, 0, &data, Dtype::U64, ReduceOp::Sum).unwrap();
        world.get_accumulate(0, window, null, 0, &data, &mut old, Dtype::U64, ReduceOp::Sum).unwrap();
        world.compare_and_swap(0, window, null, 0, &[0, 1], &mut swapped).unwrap();
        let undefined = world.accumulate(0, window, null, 0, &data, Dtype::F64, ReduceOp::BitAnd);
        assert!(matches!(undefined, Err(RmaError::Operation { .. })));
        if is_passive {
            let forms = [
                rput(null, 0, &data),
                rget(null, 0, &mut got),
                raccumulate(null, 0, &data),
                rget_accumulate(null, 0, &data, &mut old),
            ];
            for form in forms {
                let mut request = world.request(0, window, &form).unwrap();
                assert!(world.is_done(0, &mut request));
            }
            world.unlock(0, window, 1).unwrap();
            let counters = world.counters(0).since(&before);
            assert_eq!((counters.out(), counters.self_operations), (0, 0), "nothing was sent");
        } else {
            world.fence(window, FenceAssert { no_succeed: true, ..FenceAssert::default() }).unwrap();
        }
    }
    assert_eq!((got, old, swapped), ([7; 8], [7; 8], 7));
    assert_eq!((world.memory(0, window), world.memory(1, window)), (vec![0; 64], vec![0; 64]));
    world.check_idle();
}
