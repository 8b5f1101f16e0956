//! Elements that owner and peers change at one time, few and many: line 18 of the contract.

use std::ptr::NonNull;
use std::thread;

use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey};
use rma_core::mem::{Begun, Changes, Sharing, WindowMemory};
use rma_core::op::ReduceOp;
use rma_core::provider::{Allocation, Atomic, Endpoint, MemoryRegion, RemoteAddr};
use rma_shm::{Options, Reach, ShmEndpoint};

use crate::world::LIMIT;

/// Elements: longer changes than a slot, or a packet, has.
const ELEMENTS: usize = 4096;
const PEERS: usize = 3;
/// Changes of each.
const CHANGES: usize = 2000;

/// The elements that a change is about: now one, now some, now many, so that there are turns, and an end to them.
fn span(who: usize, number: usize) -> (usize, usize) {
    let count = match (number / 100 % 2, number % 10) {
        (0, 0..7) => ELEMENTS / 2,
        (0, 7) => 100,
        (0, _) => 7,
        _ => 1,
    };
    let first = (who * 1009 + number * 37) % (ELEMENTS - count + 1);
    (first, count)
}

/// What everybody adds to each element.
fn expected() -> Vec<u64> {
    let mut elements = vec![0; ELEMENTS];
    for (who, number) in (0..=PEERS).flat_map(|who| (0..CHANGES).map(move |number| (who, number))) {
        let (first, count) = span(who, number);
        elements[first..first + count].iter_mut().for_each(|element| *element += who as u64 + 1);
    }
    elements
}

struct Adder {
    ep: ShmEndpoint,
    peer: PeerAddr,
    who: usize,
    first: RemoteAddr,
}

impl Adder {
    /// Adds to elements of the type. Every fourth time it wants to know what was there.
    fn run<T: Copy>(&mut self, dtype: Dtype, number_of: fn(u64) -> T) {
        let operand = vec![number_of(self.who as u64 + 1); ELEMENTS];
        let mut result = operand.clone();
        assert!(self.ep.reaches(self.peer, self.first));
        for number in 0..CHANGES {
            let (first, count) = span(self.who, number);
            let at = RemoteAddr { addr: self.first.addr + (first * size_of::<T>()) as u64, ..self.first };
            let (operand, result) = (operand.as_ptr().cast(), result.as_mut_ptr().cast());
            let atomic = match number % 4 {
                0 => Atomic::Fetch { operand, result },
                _ => Atomic::Reduce { operand },
            };
            let begun = std::time::Instant::now();
            // SAFETY: both have as many elements as there are.
            while !unsafe { self.ep.atomic_now(self.peer, (atomic, count), at, dtype, ReduceOp::Sum) } {
                assert!(begun.elapsed() < LIMIT, "it is never this peer's turn");
                thread::yield_now();
            }
        }
    }
}

/// The owner's part.
fn own_part<T: Copy>(memory: &WindowMemory, dtype: Dtype, number_of: fn(u64) -> T) {
    let operand = [number_of(1); ELEMENTS];
    for number in 0..CHANGES {
        let (first, count) = span(0, number);
        // SAFETY: whole elements, as bytes.
        let bytes =
            unsafe { std::slice::from_raw_parts(operand.as_ptr().cast::<u8>(), count * size_of::<T>()) };
        let offset = (first * size_of::<T>()) as u64;
        let done = match number % 4 {
            0 => memory.get_accumulate(offset, dtype, ReduceOp::Sum, bytes, &mut vec![0; bytes.len()]),
            _ => memory.accumulate(offset, dtype, ReduceOp::Sum, bytes),
        };
        done.unwrap();
    }
}

/// Many large changes have all others by turns, and many small ones by atomics again.
fn turns_begin_and_end(memory: &WindowMemory, changes: &dyn Changes, dtype: Dtype) {
    let is_alone = || {
        let begun = changes.begin(8);
        changes.end(8, begun);
        begun != Begun::ByAtomics
    };
    let operand = vec![0; memory.len()];
    for _ in 0..(128 << 10) / operand.len() {
        memory.accumulate(0, dtype, ReduceOp::Sum, &operand).unwrap();
    }
    assert!(is_alone());
    let small = (0..100).filter(|_| is_alone()).count();
    assert!((50..80).contains(&small), "{small} of 100");
}

fn sums_are_exact<T: Copy + PartialEq + std::fmt::Debug + Send + 'static>(
    reach: Reach,
    dtype: Dtype,
    number_of: fn(u64) -> T,
) {
    let open = || ShmEndpoint::open(&Options { reach: Some(reach), ..Options::default() }).unwrap();
    let (mut owner, len) = (open(), ELEMENTS * size_of::<T>());
    let Allocation::Here { base, mapping } = owner.allocate(len, 0) else { panic!("no memory") };
    // SAFETY: the mapping is dropped behind the region.
    let region = unsafe { owner.register(base, len, RemoteKey(5)) }.unwrap();
    let first = RemoteAddr { addr: region.remote_base(), key: region.remote_key() };
    let changes = region.changes().expect("peers change elements of memory that they have mapped");
    let adders: Vec<_> = (1..=PEERS)
        .map(|who| {
            let mut ep = open();
            let peer = ep.connect(&owner.address()).unwrap();
            Adder { ep, peer, who, first }
        })
        .collect();
    // SAFETY: mapped until the end, and nobody has a reference to it.
    let memory = unsafe { WindowMemory::new(base.as_ptr(), len) };
    let memory = memory.shared(Sharing::Peers(changes.clone()));
    thread::scope(|scope| {
        for mut adder in adders {
            scope.spawn(move || adder.run(dtype, number_of));
        }
        own_part(&memory, dtype, number_of);
    });
    turns_begin_and_end(&memory, &*changes, dtype);
    drop(region);
    // SAFETY: nobody else has it any more.
    let found = unsafe { std::slice::from_raw_parts(base.as_ptr().cast::<T>(), ELEMENTS) };
    let expected: Vec<T> = expected().into_iter().map(number_of).collect();
    assert_eq!(found, expected);
    drop((memory, mapping));
}

pub(crate) fn line_18_owner_and_peers_change_elements_together(reach: Reach) {
    sums_are_exact::<u64>(reach, Dtype::U64, |number| number);
    sums_are_exact::<f64>(reach, Dtype::F64, |number| number as f64);
    sums_are_exact::<i16>(reach, Dtype::I16, |number| number as i16);
}

/// Memory that peers have not mapped is changed by its owner alone.
pub(crate) fn line_18_what_is_not_mapped_is_its_owners() {
    let mut ep = ShmEndpoint::open(&Options { reach: Some(Reach::Attached), ..Options::default() }).unwrap();
    let mut heap = [0_u64; 8];
    // SAFETY: the array outlives the region.
    let region = unsafe { ep.register(NonNull::from(&mut heap).cast(), 64, RemoteKey(1)) }.unwrap();
    assert!(region.changes().is_none());
}
