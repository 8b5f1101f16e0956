//! Memory that the endpoint allocates, and words in it: lines 11, 14 and 15 of the contract.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{
    Accepted, Allocation, Atomic, Endpoint, MemoryRegion, NativeOps, RemoteAddr, Swapped, WordSwap,
};
use rma_shm::{Options, Reach, ShmEndpoint};

use crate::lanes::is_woken_within;
use crate::world::World;

const LEN: usize = 10_000;
const ALIGNMENT: usize = 1 << 16;

fn open(reach: Reach) -> ShmEndpoint {
    ShmEndpoint::open(&Options { reach: Some(reach), ..Options::default() }).unwrap()
}

/// Another endpoint puts, gets and adds natively, whatever other memory is reached by; the memory stays when the
/// endpoint is gone.
pub(crate) fn line_11_allocated_memory_is_reached(reach: Reach) {
    let mut world = World::new(vec![open(reach), open(reach)]);
    let ep = &mut world.nodes[1].ep;
    let native = *ep.native_allocated();
    assert!(native.put && native.get && native.is_complete_for(Dtype::U64), "{native:?}");
    assert_eq!(NativeOps::has(&ep.native().atomic, Dtype::U64, ReduceOp::Sum), reach == Reach::Mapped);
    assert_eq!(ep.native().put, reach != Reach::Allocated);
    let Allocation::Here { base, mapping } = ep.allocate(LEN, ALIGNMENT) else { panic!("no memory") };
    assert_eq!(base.as_ptr().addr() % ALIGNMENT, 0);
    // SAFETY: the endpoint's, and nobody has its address yet.
    let bytes = unsafe { std::slice::from_raw_parts(base.as_ptr(), LEN) };
    assert!(bytes.iter().all(|&byte| byte == 0));
    // SAFETY: the mapping is dropped behind the region.
    let region = unsafe { ep.register(base, LEN, RemoteKey(5)) }.unwrap();
    let at = RemoteAddr { addr: region.remote_base() + 64, key: region.remote_key() };
    world.put(0, 1, &7_u64.to_ne_bytes(), at, 1);
    let (peer, add, mut old) = (world.nodes[0].peers[1], 3_u64, 0_u64);
    world.operate((0, 2), "fetch_atomic", |world| {
        let (operand, result) = ((&raw const add).cast(), (&raw mut old).cast());
        let (dtype, op) = (Dtype::U64, ReduceOp::Sum);
        // SAFETY: both live until the tag has come back.
        unsafe { world.nodes[0].ep.fetch_atomic(peer, operand, result, 1, at, dtype, op, Tag(2)) }
    });
    world.finish(0, 2);
    assert_eq!(old, 7);
    drop(region);
    drop(world);
    let word = base.as_ptr().wrapping_add(64).cast::<u64>();
    // SAFETY: mapped as long as the mapping is there, and nobody else has it any more.
    assert_eq!(unsafe { word.read() }, 10);
    drop(mapping);
}

/// Another endpoint sets words: it wakes who sleeps, and sets nothing that is not a word of a region.
pub(crate) fn line_14_words_are_set_and_wake_who_sleeps(reach: Reach) {
    let mut world = World::new(vec![open(reach), open(reach)]);
    let Allocation::Here { base, mapping } = world.nodes[1].ep.allocate(LEN, ALIGNMENT) else {
        panic!("no memory")
    };
    // SAFETY: the mapping is dropped behind the region.
    let region = unsafe { world.nodes[1].ep.register(base, LEN, RemoteKey(5)) }.unwrap();
    let (peer, key) = (world.nodes[0].peers[1], region.remote_key());
    // SAFETY: mapped as long as the mapping is there; all access it by atomics.
    let word = unsafe { AtomicU64::from_ptr(base.as_ptr().wrapping_add(64).cast()) };
    let at = RemoteAddr { addr: region.remote_base() + 64, key };
    for round in 1..20 {
        world.until("the endpoint arms", |world| world.nodes[1].ep.arm_wait());
        assert_eq!(world.nodes[0].ep.tell(peer, at, round), Ok(true));
        assert_eq!(word.load(Ordering::Acquire), round);
        assert!(is_woken_within(&world.nodes[1].ep, 0), "round {round}: nobody was woken");
        world.nodes[1].poll();
    }
    let beside = [at.addr + 1, at.addr + LEN as u64, region.remote_base() + LEN as u64 - 4, u64::MAX];
    for addr in beside {
        assert_eq!(world.nodes[0].ep.tell(peer, RemoteAddr { addr, key }, 99), Ok(false), "{addr:#x}");
    }
    let nobodys = RemoteAddr { key: RemoteKey(key.0 ^ 0x55), ..at };
    assert_eq!(world.nodes[0].ep.tell(peer, nobodys, 99), Ok(false));
    drop(region);
    assert_eq!(world.nodes[0].ep.tell(peer, at, 99), Ok(false), "the region is gone");
    // SAFETY: nobody else has it any more.
    let bytes = unsafe { std::slice::from_raw_parts(base.as_ptr(), LEN) };
    assert!(!bytes.contains(&99), "something was set");
    drop(mapping);
}

/// Where other memory is not reached it cannot be registered, so that nothing can be meant for it.
pub(crate) fn other_memory_is_refused_where_it_is_not_reached() {
    let mut ep = open(Reach::Allocated);
    let mut heap = [0_u64; 8];
    // SAFETY: the array outlives the endpoint.
    let refused = unsafe { ep.register(NonNull::from(&mut heap).cast(), 64, RemoteKey(1)) };
    assert!(refused.unwrap_err().message.contains("Reach::Attached"));
    let mut none = open(Reach::Packets);
    assert!(matches!(none.allocate(64, 0), Allocation::Anywhere));
    assert_eq!(none.native_allocated(), &NativeOps::default());
    assert!(!none.may_tell());
}

pub(crate) fn line_16_what_is_done_now_is_done_and_else_nothing(reach: Reach) {
    let mut world = World::new(vec![open(reach), open(reach)]);
    let Allocation::Here { base, mapping } = world.nodes[1].ep.allocate(LEN, ALIGNMENT) else {
        panic!("no memory")
    };
    // SAFETY: the mapping is dropped behind the region.
    let region = unsafe { world.nodes[1].ep.register(base, LEN, RemoteKey(5)) }.unwrap();
    let (peer, key, first) = (world.nodes[0].peers[1], region.remote_key(), region.remote_base());
    let at = |offset: u64| RemoteAddr { addr: first.wrapping_add(offset), key };
    let put = |world: &mut World<ShmEndpoint>, bytes: &[u8], at| {
        // SAFETY: the bytes are there during the call.
        unsafe { world.nodes[0].ep.put_now(peer, bytes.as_ptr(), bytes.len(), at) }
    };
    let get = |world: &mut World<ShmEndpoint>, bytes: &mut [u8], at| {
        // SAFETY: as above.
        unsafe { world.nodes[0].ep.get_now(peer, bytes.as_mut_ptr(), bytes.len(), at) }
    };
    let swap = |at, from, into| WordSwap { at, from, into };
    assert!(!put(&mut world, &[1; 8], at(0)), "what was never asked for has to be looked up first");
    // SAFETY: the operand is there during the call, when all is over.
    let posted = unsafe { world.nodes[0].ep.put(peer, [7_u8; 8].as_ptr(), 8, at(0), Tag(1)) };
    assert_eq!(posted, Ok(Accepted::Complete));
    for len in [0, 1, 8, 13, 4096] {
        assert!(put(&mut world, &vec![len as u8; len], at(64)));
        let mut back = vec![0; len];
        assert!(get(&mut world, &mut back, at(64)));
        assert_eq!(back, vec![len as u8; len]);
    }
    // SAFETY: mapped as long as the mapping is there; all access them by atomics.
    let word = |offset| unsafe { AtomicU64::from_ptr(base.as_ptr().wrapping_add(offset).cast()) };
    word(128).store(5, Ordering::Relaxed);
    word(136).store(6, Ordering::Relaxed);
    let swaps = [swap(at(128), 5, 50), swap(at(136), 6, 60)];
    let ep = &mut world.nodes[0].ep;
    assert_eq!(ep.swap_now(peer, swaps), Some(Swapped { count: 2, other: 0 }));
    assert_eq!(ep.swap_now(peer, swaps), Some(Swapped { count: 0, other: 50 }), "the second is not tried");
    let half = [swap(at(128), 50, 51), swap(at(136), 6, 61)];
    assert_eq!(ep.swap_now(peer, half), Some(Swapped { count: 1, other: 60 }));
    assert_eq!([128, 136].map(|offset| word(offset).load(Ordering::Relaxed)), [51, 60]);
    // Words of which no instruction exchanges both.
    word(144).store(6, Ordering::Relaxed);
    let apart = |from, into| [swap(at(136), 60, 60), swap(at(144), from, into)];
    let ep = &mut world.nodes[0].ep;
    assert_eq!(ep.swap_now(peer, apart(5, 7)), Some(Swapped { count: 1, other: 6 }));
    assert_eq!(ep.swap_now(peer, apart(6, 7)), Some(Swapped { count: 2, other: 0 }));
    assert_eq!(word(144).load(Ordering::Relaxed), 7);
    swaps_with_puts(&mut world, peer, at, word);
    atomics_now(&mut world, peer, (at(128), at(129)));
    assert_eq!(word(128).load(Ordering::Relaxed), 51);
    // Nothing of two is done where one cannot be.
    let beside = [at(129), at(LEN as u64), at(LEN as u64 - 4), at(u64::MAX)];
    let nobodys = RemoteAddr { key: RemoteKey(key.0 ^ 0x55), ..at(0) };
    for there in beside.into_iter().chain([nobodys]) {
        assert_eq!(world.nodes[0].ep.swap_now(peer, [swap(at(128), 51, 99), swap(there, 0, 99)]), None);
        assert_eq!(world.nodes[0].ep.swap_now(peer, [swap(there, 0, 99)]), None);
        let is_there = there == beside[0];
        assert!(is_there || !put(&mut world, &[99; 8], there), "{there:?}");
        assert!(is_there || !get(&mut world, &mut [0; 8], there), "{there:?}");
    }
    drop(region);
    assert!(!put(&mut world, &[99; 8], at(0)) && !get(&mut world, &mut [0; 8], at(0)), "the region is gone");
    assert_eq!(world.nodes[0].ep.swap_now(peer, [swap(at(128), 51, 99)]), None);
    // SAFETY: nobody else has it any more.
    let bytes = unsafe { std::slice::from_raw_parts(base.as_ptr(), LEN) };
    assert!(!bytes.contains(&99), "something was done");
    drop(mapping);
}

/// The same of a program's memory, which the kernel copies, as nobody polls for the peer here: puts and gets of what was looked
/// up before, also behind a swap of words in memory that is mapped.
pub(crate) fn line_16_copies_of_a_programs_memory_are_done_now() {
    let mut world = World::new(vec![open(Reach::Attached), open(Reach::Attached)]);
    let Allocation::Here { base, mapping } = world.nodes[1].ep.allocate(LEN, ALIGNMENT) else {
        panic!("no memory")
    };
    // SAFETY: the mapping is dropped behind the region.
    let words = unsafe { world.nodes[1].ep.register(base, LEN, RemoteKey(5)) }.unwrap();
    let mut heap = vec![0_u8; LEN];
    let start = NonNull::new(heap.as_mut_ptr()).unwrap();
    // SAFETY: the vector is dropped behind the region, and nobody has a reference to its bytes meanwhile.
    let region = unsafe { world.nodes[1].ep.register(start, LEN, RemoteKey(6)) }.unwrap();
    let at = |offset: u64| RemoteAddr { addr: region.remote_base() + offset, key: region.remote_key() };
    let (peer, ep) = (world.nodes[0].peers[1], &mut world.nodes[0].ep);
    let nothing = NonNull::<u8>::dangling().as_ptr();
    // SAFETY: nobody reads a byte of none.
    assert!(!unsafe { ep.put_now(peer, nothing, 0, at(0)) }, "it has to be looked up first");
    // SAFETY: the bytes are there during the call; so for all of these.
    assert_eq!(unsafe { ep.put(peer, [7_u8; 8].as_ptr(), 8, at(0), Tag(1)) }, Ok(Accepted::Complete));
    for len in [0, 1, 8, 2048, 2049, 9000] {
        let (bytes, mut back) = (vec![len as u8 | 1; len], vec![0; len]);
        // SAFETY: as above.
        assert!(unsafe { ep.put_now(peer, bytes.as_ptr(), len, at(64)) }, "{len} bytes");
        // SAFETY: as above.
        assert!(unsafe { ep.get_now(peer, back.as_mut_ptr(), len, at(64)) }, "{len} bytes");
        assert_eq!(back, bytes);
    }
    let word = RemoteAddr { addr: words.remote_base(), key: words.remote_key() };
    let beside = RemoteAddr { addr: word.addr + 8, ..word };
    // SAFETY: as above. The words are looked up.
    assert_eq!(unsafe { ep.put(peer, [0_u8; 16].as_ptr(), 16, word, Tag(2)) }, Ok(Accepted::Complete));
    for (from, there, is_put) in [(0, at(16), true), (1, at(24), true), (2, at(LEN as u64), false)] {
        let swaps = [word, beside].map(|at| WordSwap { at, from, into: from + 1 });
        // SAFETY: as above.
        let done = unsafe { ep.swap_and_put_now(peer, swaps, ([3_u8; 8].as_ptr(), 8), there) };
        assert_eq!(done, Some((Swapped { count: 2, other: 0 }, is_put)));
    }
    let refused = [word, beside].map(|at| WordSwap { at, from: 9, into: 10 });
    // SAFETY: as above.
    let done = unsafe { ep.swap_and_put_now(peer, refused, ([99_u8; 8].as_ptr(), 8), at(16)) };
    assert_eq!(done, Some((Swapped { count: 0, other: 3 }, false)));
    let gone = at(16);
    drop(region);
    // SAFETY: as above.
    assert!(!unsafe { ep.put_now(peer, [99_u8; 8].as_ptr(), 8, gone) }, "the region is gone");
    // SAFETY: as above.
    assert!(!unsafe { ep.get_now(peer, [0_u8; 8].as_mut_ptr(), 8, gone) }, "the region is gone");
    assert_eq!((&heap[..16], &heap[16..32]), (&[[7; 8], [0; 8]].concat()[..], &[3; 16][..]));
    assert!(!heap.contains(&99), "something was done");
    drop(words);
    drop(mapping);
}

/// Swaps words and puts behind them. The words are as they were then; where something is put that must not be are bytes of 99.
fn swaps_with_puts<'a>(
    world: &mut World<ShmEndpoint>,
    peer: PeerAddr,
    at: impl Fn(u64) -> RemoteAddr,
    word: impl Fn(usize) -> &'a AtomicU64,
) {
    let ep = &mut world.nodes[0].ep;
    let swap = |place, from, into| WordSwap { at: at(place), from, into };
    let all = |count| Swapped { count, other: 0 };
    let (good, bad) = ([3_u8; 8], [99_u8; 8]);
    let (good, bad) = ((good.as_ptr(), 8), (bad.as_ptr(), 8));
    // SAFETY: the bytes are there during the call; so for all of these.
    let one = |ep: &mut ShmEndpoint, swap, from, at| unsafe { ep.swap_and_put_now(peer, [swap], from, at) };
    // SAFETY: as above.
    let two =
        |ep: &mut ShmEndpoint, swaps: [_; 2], from, at| unsafe { ep.swap_and_put_now(peer, swaps, from, at) };
    let pair = [swap(128, 51, 52), swap(136, 60, 61)];
    assert_eq!(two(ep, pair, good, at(256)), Some((all(2), true)));
    assert_eq!(word(256).swap(0, Ordering::Relaxed), u64::from_ne_bytes([3; 8]));
    assert_eq!(two(ep, pair, bad, at(256)), Some((Swapped { count: 0, other: 52 }, false)));
    let half = [swap(128, 52, 53), swap(136, 60, 61)];
    assert_eq!(two(ep, half, bad, at(256)), Some((Swapped { count: 1, other: 61 }, false)));
    assert_eq!(one(ep, swap(128, 52, 51), bad, at(256)), Some((Swapped { count: 0, other: 53 }, false)));
    assert_eq!(one(ep, swap(128, 53, 51), good, at(256)), Some((all(1), true)));
    // Words of which no instruction exchanges both.
    assert_eq!(two(ep, [swap(136, 61, 60), swap(144, 7, 8)], good, at(264)), Some((all(2), true)));
    assert_eq!(
        [256, 264].map(|place| word(place).swap(0, Ordering::Relaxed)),
        [u64::from_ne_bytes([3; 8]); 2]
    );
    // Where nothing can be put, what can be swapped is.
    for there in [at(LEN as u64), at(LEN as u64 - 4), RemoteAddr { key: RemoteKey(77), ..at(0) }] {
        assert_eq!(one(ep, swap(144, 8, 8), bad, there), Some((all(1), false)), "{there:?}");
    }
    for place in [129, LEN as u64 - 4] {
        assert_eq!(one(ep, swap(place, 0, 99), bad, at(256)), None, "{place}");
        assert_eq!(two(ep, [swap(128, 51, 99), swap(place, 0, 99)], bad, at(256)), None, "{place}");
    }
    assert_eq!([128, 136, 144].map(|place| word(place).load(Ordering::Relaxed)), [51, 60, 8]);
}

/// Adds to the word, which is 51, and swaps it back; beside it is none.
fn atomics_now(world: &mut World<ShmEndpoint>, peer: PeerAddr, (at, beside): (RemoteAddr, RemoteAddr)) {
    for (dtype, old) in [(Dtype::U64, 51_u64), (Dtype::I64, 54)] {
        let (three, mut before) = (3_u64, 0_u64);
        let (operand, result) = ((&raw const three).cast(), (&raw mut before).cast());
        let fetch = Atomic::Fetch { operand, result };
        // SAFETY: both are there during the call; so below.
        let is_done = unsafe { world.nodes[0].ep.atomic_now(peer, (fetch, 1), at, dtype, ReduceOp::Sum) };
        assert_eq!((is_done, before), (true, old));
    }
    let (from, into, mut before) = (57_u64, 51_u64, 0_u64);
    let swap_back = Atomic::Swap {
        operand: (&raw const into).cast(),
        compare: (&raw const from).cast(),
        result: (&raw mut before).cast(),
    };
    let replace = ReduceOp::Replace;
    // SAFETY: as above.
    assert!(unsafe { world.nodes[0].ep.atomic_now(peer, (swap_back, 1), at, Dtype::U64, replace) });
    assert_eq!(before, 57);
    // SAFETY: as above.
    assert!(!unsafe { world.nodes[0].ep.atomic_now(peer, (swap_back, 1), beside, Dtype::U64, replace) });
    others_now(world, peer, at);
    several_now(world, peer, at);
}

/// Two elements, of which the first is 51 before and afterwards; and more than there are.
fn several_now(world: &mut World<ShmEndpoint>, peer: PeerAddr, at: RemoteAddr) {
    let now = |world: &mut World<ShmEndpoint>, count, op, operand: [u64; 2], addr| {
        let mut before = [u64::MAX; 2];
        let (operand, result) = (operand.as_ptr().cast(), before.as_mut_ptr().cast());
        let (fetch, at) = (Atomic::Fetch { operand, result }, RemoteAddr { addr, ..at });
        // SAFETY: both are there during the call; of more than there are nothing is done.
        let is_done = unsafe { world.nodes[0].ep.atomic_now(peer, (fetch, count), at, Dtype::U64, op) };
        is_done.then_some(before)
    };
    let there = at.addr;
    world.until("the owner arms", |world| world.nodes[1].ep.arm_wait());
    let [first, second] = now(world, 2, ReduceOp::NoOp, [0; 2], there).expect("both are there");
    assert!(first == 51 && !is_woken_within(&world.nodes[1].ep, 0), "nothing has changed");
    assert_eq!(now(world, 2, ReduceOp::Sum, [1, 2], there), Some([51, second]));
    assert!(is_woken_within(&world.nodes[1].ep, 0), "one of them may be waited for");
    assert_eq!(now(world, 2, ReduceOp::Replace, [51, second], there), Some([52, second + 2]));
    assert_eq!(now(world, 2, ReduceOp::NoOp, [0; 2], there), Some([51, second]));
    assert_eq!(now(world, 2, ReduceOp::NoOp, [0; 2], there + 4), None, "no instruction covers them");
    for count in [1 << 20, usize::MAX / 8, usize::MAX] {
        assert_eq!(now(world, count, ReduceOp::NoOp, [0; 2], there), None, "{count} elements are not there");
    }
}

/// What is no sum of words: other types and reductions, and what no instruction does. The word is 51 before and afterwards.
fn others_now(world: &mut World<ShmEndpoint>, peer: PeerAddr, at: RemoteAddr) {
    let mut now = |dtype, op, operand: u64, addr| {
        let mut before = [u64::MAX; 2];
        // Operands wider than a word are not read, as nothing is done.
        let (operand, result) = ((&raw const operand).cast(), before.as_mut_ptr().cast());
        let (fetch, at) = (Atomic::Fetch { operand, result }, RemoteAddr { addr, ..at });
        // SAFETY: both are there during the call.
        let is_done = unsafe { world.nodes[0].ep.atomic_now(peer, (fetch, 1), at, dtype, op) };
        is_done.then_some(before[0])
    };
    let there = at.addr;
    let (real, sum) = (1.5_f64.to_bits(), 3.75_f64.to_bits());
    assert_eq!(now(Dtype::U64, ReduceOp::Replace, real, there), Some(51));
    assert_eq!(now(Dtype::F64, ReduceOp::Sum, 2.25_f64.to_bits(), there), Some(real));
    assert_eq!(now(Dtype::F64, ReduceOp::Min, 1e9_f64.to_bits(), there), Some(sum));
    assert_eq!(now(Dtype::F64, ReduceOp::NoOp, 0, there), Some(sum));
    assert_eq!(now(Dtype::U64, ReduceOp::BitAnd, 0, there), Some(sum));
    // A half of the word is an element, and the rest stays.
    assert_eq!(now(Dtype::U16, ReduceOp::Max, 7, there + 2), Some(u64::MAX << 16));
    assert_eq!(now(Dtype::U64, ReduceOp::Replace, 51, there), Some(7 << 16));
    assert_eq!(now(Dtype::ComplexF32, ReduceOp::Sum, 0, there + 4), None, "no instruction covers it");
    assert_eq!(now(Dtype::U128, ReduceOp::Sum, 0, there), None, "no instruction is as wide");
    assert_eq!(now(Dtype::F64, ReduceOp::BitXor, 0, there), None, "no such reduction");
    assert_eq!(now(Dtype::U64, ReduceOp::NoOp, 0, there), Some(51));
}
