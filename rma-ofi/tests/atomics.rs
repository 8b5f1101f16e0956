//! Atomics that the fabric executes, where it was asked for and `fi_query_atomic` grants it.

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Completion, CompletionBatch, Endpoint, MemoryRegion, NativeOps, Post, PostError, RemoteAddr,
};
use rma_ofi::{Ofi, OfiEndpoint, Options};

fn options(provider: &str) -> Options {
    Options {
        provider: Some(provider.to_owned()),
        single_host: true,
        native_atomics: true,
        ..Options::default()
    }
}

/// An endpoint that is its own target, with 8 bytes of target memory.
struct Loop {
    ep: OfiEndpoint,
    me: PeerAddr,
    at: RemoteAddr,
    target: Box<u64>,
    _region: <OfiEndpoint as Endpoint>::Region,
}

impl Loop {
    fn new(provider: &str, register_buffers: bool) -> Self {
        let options = Options { register_buffers, ..options(provider) };
        let mut ep = OfiEndpoint::open(&Ofi::discover(&options).unwrap(), &options).unwrap();
        let me = ep.connect(&ep.address()).unwrap();
        let mut target = Box::new(0u64);
        let base = NonNull::from(&mut *target).cast();
        // SAFETY: the box outlives the region, and is only read and written between operations.
        let region = unsafe { ep.register(base, 8, RemoteKey(5)) }.unwrap();
        let at = RemoteAddr { addr: region.remote_base(), key: region.remote_key() };
        Self { ep, me, at, target, _region: region }
    }

    /// Posts until accepted and waits for the completion.
    fn run(&mut self, what: &str, mut post: impl FnMut(&mut OfiEndpoint, PeerAddr, RemoteAddr) -> Post) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut batch = CompletionBatch::new();
        let mut posted = false;
        loop {
            assert!(Instant::now() < deadline, "{what} does not complete");
            if !posted {
                posted = match post(&mut self.ep, self.me, self.at) {
                    Ok(_) => true,
                    Err(PostError::Again) => false,
                    Err(PostError::Failed(code)) => panic!("{what}: {code}"),
                };
            }
            self.ep.poll(&mut batch);
            if let Some(completion) = batch.pop() {
                assert_eq!(completion, Completion::Done(Tag(1)), "{what}");
                return;
            }
        }
    }

    fn set(&mut self, bytes: [u8; 8]) {
        // SAFETY: no operation is in flight.
        unsafe { (&raw mut *self.target).write_volatile(u64::from_ne_bytes(bytes)) }
    }

    fn value(&self) -> [u8; 8] {
        // SAFETY: no operation is in flight.
        unsafe { (&raw const *self.target).read_volatile() }.to_ne_bytes()
    }
}

/// A small number as an element of the type, in the first bytes.
fn element(dtype: Dtype, value: u8) -> [u8; 8] {
    let mut bytes = [0; 8];
    match dtype {
        Dtype::F32 => bytes[..4].copy_from_slice(&f32::from(value).to_ne_bytes()),
        Dtype::F64 => bytes.copy_from_slice(&f64::from(value).to_ne_bytes()),
        _ => bytes = u64::from(value).to_le_bytes(),
    }
    bytes
}

/// What 6 becomes with the operand 3.
fn six_and_three(op: ReduceOp) -> u8 {
    match op {
        ReduceOp::Sum => 9,
        ReduceOp::Prod => 18,
        ReduceOp::Min => 3,
        ReduceOp::Max => 6,
        ReduceOp::LogicalAnd | ReduceOp::LogicalOr => 1,
        ReduceOp::LogicalXor => 0,
        ReduceOp::BitAnd => 2,
        ReduceOp::BitOr => 7,
        ReduceOp::BitXor => 5,
        ReduceOp::Replace => 3,
        ReduceOp::NoOp => 6,
        other => panic!("no expectation for {}", other.name()),
    }
}

fn all_granted_pairs_do_what_mpi_says(provider: &str, register_buffers: bool) {
    let mut world = Loop::new(provider, register_buffers);
    let native = *world.ep.native();
    let mut tried = 0;
    for dtype in Dtype::ALL {
        for op in ReduceOp::ALL {
            let what = format!("{} on {}", op.name(), dtype.name());
            if matches!(op, ReduceOp::MinLoc | ReduceOp::MaxLoc) {
                // Defined on pairs only, which no fabric has.
                let offered =
                    [&native.atomic, &native.fetch_atomic].map(|table| NativeOps::has(table, dtype, op));
                assert_eq!(offered, [false; 2], "{what}");
                continue;
            }
            let operand = element(dtype, 3);
            let expected = element(dtype, six_and_three(op));
            if NativeOps::has(&native.fetch_atomic, dtype, op) {
                world.set(element(dtype, 6));
                let mut old = [0u8; 8];
                let result = old.as_mut_ptr();
                // SAFETY: operand and result live until the completion, for which `run` waits.
                world.run(&what, |ep, me, at| unsafe {
                    ep.fetch_atomic(me, operand.as_ptr(), result, 1, at, dtype, op, Tag(1))
                });
                assert_eq!((old, world.value()), (element(dtype, 6), expected), "fetching {what}");
                tried += 1;
            }
            if NativeOps::has(&native.atomic, dtype, op) {
                world.set(element(dtype, 6));
                // SAFETY: as above.
                world.run(&what, |ep, me, at| unsafe {
                    ep.atomic(me, operand.as_ptr(), 1, at, dtype, op, Tag(1))
                });
                assert_eq!(world.value(), expected, "{what}");
                tried += 1;
            }
        }
    }
    assert!(tried > 100, "{provider} grants only {tried} pairs");
    assert!(native.is_complete_for(Dtype::U64));
}

fn compare_and_swap_swaps_only_what_matches(provider: &str, register_buffers: bool) {
    let mut world = Loop::new(provider, register_buffers);
    let sized = |dtype: &Dtype| dtype.size() == 4 || dtype.size() == 8;
    for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.is_integer() && sized(dtype)) {
        assert!(world.ep.native().compare_atomic & (1 << dtype as u32) != 0, "{}", dtype.name());
        for (compare, expected) in [(6, 3), (5, 6)] {
            world.set(element(dtype, 6));
            let (operand, compare) = (element(dtype, 3), element(dtype, compare));
            let mut old = [0u8; 8];
            let result = old.as_mut_ptr();
            // SAFETY: all three live until the completion, for which `run` waits.
            world.run("compare and swap", |ep, me, at| unsafe {
                ep.compare_atomic(me, operand.as_ptr(), compare.as_ptr(), result, at, dtype, Tag(1))
            });
            assert_eq!(
                (old, world.value()),
                (element(dtype, 6), element(dtype, expected)),
                "{}",
                dtype.name()
            );
        }
    }
}

#[test]
fn sockets_pairs() {
    all_granted_pairs_do_what_mpi_says("sockets", false);
}

#[test]
fn sockets_pairs_in_registered_buffers() {
    all_granted_pairs_do_what_mpi_says("sockets", true);
}

#[test]
fn tcp_rxm_pairs() {
    all_granted_pairs_do_what_mpi_says("tcp;ofi_rxm", false);
}

#[test]
fn tcp_rxm_pairs_in_registered_buffers() {
    all_granted_pairs_do_what_mpi_says("tcp;ofi_rxm", true);
}

#[test]
fn sockets_compare_and_swap() {
    compare_and_swap_swaps_only_what_matches("sockets", false);
}

#[test]
fn sockets_compare_and_swap_in_registered_buffers() {
    compare_and_swap_swaps_only_what_matches("sockets", true);
}

#[test]
fn tcp_rxm_compare_and_swap() {
    compare_and_swap_swaps_only_what_matches("tcp;ofi_rxm", false);
}

#[test]
fn tcp_rxm_compare_and_swap_in_registered_buffers() {
    compare_and_swap_swaps_only_what_matches("tcp;ofi_rxm", true);
}

#[test]
fn asking_for_atomics_costs_tcp_rxm_its_order() {
    let options = options("tcp;ofi_rxm");
    let with = OfiEndpoint::open(&Ofi::discover(&options).unwrap(), &options).unwrap();
    assert!(!with.limits().order.put_before_send && !with.limits().order.put_before_get);
    let options = Options { native_atomics: false, ..options };
    let without = OfiEndpoint::open(&Ofi::discover(&options).unwrap(), &options).unwrap();
    assert!(without.limits().order.put_before_send && without.limits().order.put_before_get);
    assert_eq!(without.native().fetch_atomic, [0; Dtype::COUNT]);
}

#[test]
fn a_claim_of_atomics_without_any_grants_none() {
    let options = options("net");
    let mut ep = OfiEndpoint::open(&Ofi::discover(&options).unwrap(), &options).unwrap();
    assert_eq!(ep.native().fetch_atomic, [0; Dtype::COUNT]);
    let me = ep.connect(&ep.address()).unwrap();
    let at = RemoteAddr { addr: 0, key: RemoteKey(0) };
    let operand = 1u64;
    // SAFETY: refused, so the operand is not used after the call.
    let post =
        unsafe { ep.atomic(me, (&raw const operand).cast(), 1, at, Dtype::U64, ReduceOp::Sum, Tag(1)) };
    assert!(matches!(post, Err(PostError::Failed(_))));
}
