//! Every reduction against an independent model, the boundaries of the window, and concurrency.
#![allow(clippy::unwrap_used)]

extern crate std;

use std::string::ToString;
use std::sync::Arc;
use std::thread;
use std::vec::Vec;

use self::model::{compare_and_swap, reduce, Random};
use super::*;

mod model;

/// Memory for windows, held as a raw pointer so that no reference to the bytes lives.
struct Storage {
    words: *mut u64,
    count: usize,
}

// SAFETY: the threads of a test share the storage through raw pointers only.
unsafe impl Sync for Storage {}

impl Storage {
    /// Eight-byte aligned storage, random.
    fn new(len: usize, random: &mut Random) -> Self {
        let words: Vec<u64> = (0..len.div_ceil(8)).map(|_| random.next()).collect();
        let words = std::boxed::Box::leak(words.into_boxed_slice());
        Self { words: words.as_mut_ptr(), count: words.len() }
    }

    /// Over the first `len` bytes.
    fn window(&self, len: usize) -> WindowMemory {
        assert!(len <= self.count * 8);
        // SAFETY: the storage outlives the window in every test and is used through windows only.
        unsafe { WindowMemory::new(self.words.cast(), len) }
    }

    /// What it holds.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = std::vec![0; self.count * 8];
        self.window(bytes.len()).read(0, &mut bytes).unwrap();
        bytes
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let words = ptr::slice_from_raw_parts_mut(self.words, self.count);
        // SAFETY: from `Box::leak` in `new`, once.
        drop(unsafe { std::boxed::Box::from_raw(words) });
    }
}

/// Runs every (type, operation) pair at aligned and unaligned places against the model, with
/// `get_accumulate` when `fetch`, else with `accumulate`, on up to so many elements of memory that is shared like this.
fn against_model(fetch: bool, seed: u64, (elements, sharing): (usize, &Sharing)) {
    let len = 16 * (elements + 1);
    let mut random = Random(seed);
    for dtype in Dtype::ALL {
        for op in ReduceOp::ALL {
            for round in 0..200 {
                let size = dtype.size();
                let count = random.below(elements + 1);
                let mut offset = random.below(len - count * size + 1);
                if round % 2 == 0 {
                    offset -= offset % size;
                }
                let storage = Storage::new(len, &mut random);
                let window = storage.window(len).shared(sharing.clone());
                window.write(offset as u64, &random.elements(dtype, count)).unwrap();
                let operand = random.elements(dtype, count);
                let before = storage.bytes();
                let mut result = std::vec![0xA5; count * size];
                let done = if fetch {
                    window.get_accumulate(offset as u64, dtype, op, &operand, &mut result)
                } else {
                    window.accumulate(offset as u64, dtype, op, &operand)
                };
                let mut expected = before.clone();
                let span = offset..offset + count * size;
                if reduce(dtype, op, &mut expected[span.clone()], &operand) {
                    done.unwrap();
                    if fetch {
                        assert_eq!(result, before[span.clone()], "result of {op:?} on {dtype:?}");
                    }
                } else {
                    assert_eq!(done, Err(AccumulateError::UndefinedReduction { op, dtype }));
                }
                let mut after = storage.bytes();
                model::canonical_nans(dtype, op, &mut after[span.clone()]);
                model::canonical_nans(dtype, op, &mut expected[span.clone()]);
                assert_eq!(after, expected, "{op:?} on {count} {dtype:?} at {offset}");
            }
        }
    }
}

#[test]
fn accumulate_equals_the_model() {
    against_model(false, 1, (4, &Sharing::Atomics));
}

#[test]
fn get_accumulate_equals_the_model() {
    against_model(true, 2, (4, &Sharing::Atomics));
}

#[test]
fn whoever_is_alone_computes_the_same() {
    // Loops over vectors, and what is left of them.
    for elements in [4, 40] {
        against_model(false, 4, (elements, &Sharing::Alone));
        against_model(true, 5, (elements, &Sharing::Alone));
    }
}

/// Peers that say by turns how elements may be changed, and count.
#[derive(Default, Debug)]
struct Peers {
    begun: AtomicU64,
    ended: AtomicU64,
    bytes: AtomicU64,
}

impl Changes for Peers {
    fn begin(&self, bytes: usize) -> Begun {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        match self.begun.fetch_add(1, Ordering::Relaxed) {
            number if number % 2 == 0 => Begun::ByAtomics,
            number => Begun::Alone(number),
        }
    }

    fn end(&self, bytes: usize, begun: Begun) {
        let number = self.ended.fetch_add(1, Ordering::Relaxed);
        assert_eq!(begun, if number % 2 == 0 { Begun::ByAtomics } else { Begun::Alone(number) });
        self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// The elements of a change that would take long are peers' between its pieces.
#[test]
fn a_long_change_is_several_to_peers() {
    const LEN: usize = 5 << 19;
    let peers = Arc::new(Peers::default());
    let storage = Storage::new(LEN, &mut Random(9));
    let window = storage.window(LEN).shared(Sharing::Peers(peers.clone()));
    let before = storage.bytes();
    let (operand, mut result) = (std::vec![1; LEN], std::vec![0; LEN]);
    window.accumulate(0, Dtype::U8, ReduceOp::Sum, &operand).unwrap();
    assert_eq!(peers.begun.load(Ordering::Relaxed), 3);
    window.get_accumulate(0, Dtype::U8, ReduceOp::NoOp, &[], &mut result).unwrap();
    assert_eq!(result, storage.bytes());
    window.get_accumulate(0, Dtype::U8, ReduceOp::Sum, &operand, &mut result).unwrap();
    assert_eq!((peers.begun.load(Ordering::Relaxed), peers.ended.load(Ordering::Relaxed)), (9, 9));
    let plus = |number: u8| before.iter().map(move |byte| byte.wrapping_add(number));
    assert!(result.into_iter().eq(plus(1)) && storage.bytes().into_iter().eq(plus(2)));
    // All of it is checked before.
    assert!(window.accumulate(8, Dtype::U8, ReduceOp::Sum, &operand).is_err());
    assert!(storage.bytes().into_iter().eq(plus(2)));
}

/// Each change of elements is announced to peers, and its end is, too; what is refused, copied or empty need not be.
#[test]
fn peers_hear_of_every_change_and_its_end() {
    let peers = Arc::new(Peers::default());
    let counted = |change: &dyn Fn()| {
        let before = peers.begun.load(Ordering::Relaxed);
        change();
        assert_eq!(peers.bytes.load(Ordering::Relaxed), 0, "what was begun has not ended");
        peers.begun.load(Ordering::Relaxed) - before
    };
    let shared = Sharing::Peers(peers.clone());
    against_model(false, 6, (20, &shared));
    against_model(true, 7, (20, &shared));
    let storage = Storage::new(64, &mut Random(8));
    let window = storage.window(64).shared(shared);
    let (dtype, sum) = (Dtype::U64, ReduceOp::Sum);
    assert_eq!(counted(&|| window.accumulate(0, dtype, sum, &[1; 32]).unwrap()), 1);
    assert_eq!(counted(&|| window.get_accumulate(0, dtype, sum, &[1; 32], &mut [0; 32]).unwrap()), 1);
    assert_eq!(counted(&|| window.compare_and_swap(0, dtype, &[1; 8], &[2; 8], &mut [0; 8]).unwrap()), 1);
    assert_eq!(counted(&|| window.write(0, &[7; 64]).unwrap()), 0);
    assert_eq!(counted(&|| assert!(window.accumulate(40, dtype, sum, &[1; 32]).is_err())), 0);
}

#[test]
fn compare_and_swap_equals_the_model() {
    let mut random = Random(3);
    let (mut swapped, mut kept) = (0, 0);
    for dtype in Dtype::ALL {
        for round in 0..200_usize {
            let size = dtype.size();
            let storage = Storage::new(32, &mut random);
            let window = storage.window(32);
            let offset =
                if round % 2 == 0 { size * random.below(32 / size) } else { random.below(32 - size + 1) };
            let before = storage.bytes();
            let (operand, mut compare) = (random.elements(dtype, 1), random.elements(dtype, 1));
            if random.below(2) == 0 {
                compare.copy_from_slice(&before[offset..offset + size]);
            }
            let mut result = std::vec![0; size];
            let done = window.compare_and_swap(offset as u64, dtype, &compare, &operand, &mut result);
            if !dtype.has_compare_and_swap() {
                assert_eq!(done, Err(AccumulateError::UndefinedCompareAndSwap { dtype }));
                assert_eq!(storage.bytes(), before);
                continue;
            }
            done.unwrap();
            assert_eq!(result, before[offset..offset + size]);
            let mut expected = before;
            if compare_and_swap(&mut expected[offset..offset + size], &compare, &operand) {
                swapped += 1;
            } else {
                kept += 1;
            }
            assert_eq!(storage.bytes(), expected, "{dtype:?} at {offset}");
        }
    }
    assert!(swapped > 100 && kept > 100, "{swapped} swapped, {kept} kept: not both tested");
}

#[test]
fn no_op_needs_no_operand_and_other_buffers_must_match() {
    let storage = Storage::new(16, &mut Random(4));
    let window = storage.window(16);
    let before = storage.bytes();
    let mut result = [0; 8];
    window.get_accumulate(0, Dtype::I32, ReduceOp::NoOp, &[], &mut result).unwrap();
    assert_eq!(result, before[..8]);

    let short = window.get_accumulate(0, Dtype::I32, ReduceOp::Sum, &[0; 4], &mut result);
    assert_eq!(short, Err(AccumulateError::BufferLength { buffer: "operand", len: 4, expected: 8 }));
    let partial = window.accumulate(0, Dtype::I32, ReduceOp::Sum, &[1; 6]);
    assert_eq!(partial, Err(AccumulateError::BufferLength { buffer: "operand", len: 6, expected: 4 }));
    let partial = window.get_accumulate(0, Dtype::U16, ReduceOp::NoOp, &[], &mut result[..3]);
    assert_eq!(partial, Err(AccumulateError::BufferLength { buffer: "result", len: 3, expected: 2 }));
    for (compare, operand, len) in [(4, 8, 8), (8, 0, 8), (8, 8, 7)] {
        let done = window.compare_and_swap(
            0,
            Dtype::U64,
            &before[..compare],
            &before[..operand],
            &mut result[..len],
        );
        assert!(matches!(done, Err(AccumulateError::BufferLength { expected: 8, .. })), "{done:?}");
    }
    assert_eq!(storage.bytes(), before);
}

#[test]
fn nothing_outside_of_the_window_is_reached() {
    const LEN: u64 = 24;
    let storage = Storage::new(40, &mut Random(5));
    let before = storage.bytes();
    let window = storage.window(LEN as usize);
    let offsets = [17, LEN - 1, LEN, LEN + 1, 1 << 32, u64::MAX / 2, u64::MAX - 8, u64::MAX - 7, u64::MAX];
    for offset in offsets {
        let refused = OutOfWindow { offset, len: 8, window_len: LEN };
        let mut result = [0x5A; 8];
        assert_eq!(window.check(offset, 8), Err(refused));
        assert_eq!(window.write(offset, &[1; 8]), Err(refused));
        assert_eq!(window.read(offset, &mut result), Err(refused));
        for dtype in Dtype::ALL.into_iter().filter(|dtype| dtype.size() == 8) {
            for op in ReduceOp::ALL.into_iter().filter(|op| op.is_defined_for(dtype)) {
                let refused = Err(AccumulateError::OutOfWindow(refused));
                assert_eq!(window.accumulate(offset, dtype, op, &[1; 8]), refused);
                assert_eq!(window.get_accumulate(offset, dtype, op, &[1; 8], &mut result), refused);
            }
        }
        let swap = window.compare_and_swap(offset, Dtype::U64, &[1; 8], &[2; 8], &mut result);
        assert_eq!(swap, Err(AccumulateError::OutOfWindow(refused)));
        assert_eq!(result, [0x5A; 8]);
    }
    assert_eq!(window.check(0, u64::MAX), Err(OutOfWindow { offset: 0, len: u64::MAX, window_len: LEN }));
    assert_eq!(storage.bytes(), before);
}

#[test]
fn the_ends_of_the_window_are_inside() {
    let storage = Storage::new(24, &mut Random(6));
    let window = storage.window(24);
    for offset in [0, 1, 16] {
        let mut read = [0; 8];
        window.write(offset, &[offset as u8; 8]).unwrap();
        window.read(offset, &mut read).unwrap();
        assert_eq!(read, [offset as u8; 8]);
        window.accumulate(offset, Dtype::U64, ReduceOp::Replace, &[7; 8]).unwrap();
        window.get_accumulate(offset, Dtype::U64, ReduceOp::NoOp, &[], &mut read).unwrap();
        assert_eq!(read, [7; 8]);
    }
    for offset in [0, 24] {
        window.check(offset, 0).unwrap();
        window.write(offset, &[]).unwrap();
        window.read(offset, &mut []).unwrap();
        window.accumulate(offset, Dtype::F64, ReduceOp::Sum, &[]).unwrap();
        window.get_accumulate(offset, Dtype::F64, ReduceOp::Sum, &[], &mut []).unwrap();
    }
    assert!(window.check(25, 0).is_err());
}

#[test]
fn an_empty_window_may_have_no_address() {
    for len in [0, 8] {
        // SAFETY: null makes an empty window.
        let window = unsafe { WindowMemory::new(ptr::null_mut(), len) };
        assert!(window.is_empty());
        assert_eq!(window.len(), 0);
        window.write(0, &[]).unwrap();
        // SAFETY: nothing is copied.
        unsafe { window.write_from_ptr(0, ptr::null(), 0) }.unwrap();
        // SAFETY: nothing is copied.
        unsafe { window.read_to_ptr(0, ptr::null_mut(), 0) }.unwrap();
        let refused = window.write(0, &[1]).unwrap_err().to_string();
        assert_eq!(refused, "access to 1 bytes at byte 0 is outside of the window of 0 bytes");
    }
}

#[test]
fn copies_may_overlap_the_window() {
    let mut random = Random(7);
    for _ in 0..500 {
        let storage = Storage::new(64, &mut random);
        let window = storage.window(64);
        let mut expected = storage.bytes();
        let len = random.below(64);
        let (from, to) = (random.below(64 - len), random.below(64 - len));
        expected.copy_within(from..from + len, to);
        let (src, dst) = (window.base_ptr().wrapping_add(from), window.base_ptr().wrapping_add(to));
        if random.below(2) == 0 {
            // SAFETY: `len` bytes from `from` on are inside the storage.
            unsafe { window.write_from_ptr(to as u64, src, len) }.unwrap();
        } else {
            // SAFETY: `len` bytes from `to` on are inside the storage.
            unsafe { window.read_to_ptr(from as u64, dst, len) }.unwrap();
        }
        assert_eq!(storage.bytes(), expected, "{len} bytes from {from} to {to}");
    }
}

/// Runs `body` on `THREADS` threads at once, each with its own window over `storage`.
fn concurrently<R: Send>(
    storage: &Storage,
    len: usize,
    body: impl Fn(usize, WindowMemory) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|index| {
                let body = &body;
                scope.spawn(move || body(index, storage.window(len)))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

const THREADS: usize = 4;
const ROUNDS: usize = 5_000;

#[test]
fn concurrent_sums_lose_nothing() {
    // Additions, one type after the other in slots of 8 bytes: integers go through the fetch-and-add
    // instruction, floats through the compare-exchange loop. Elements of 16 bytes are not atomic between
    // threads, and 16-bit floats do not count that far.
    let dtypes = || {
        let atomic = |dtype: &Dtype| dtype.size() <= 8 && ReduceOp::Sum.is_defined_for(*dtype);
        let wide = |dtype: &Dtype| !matches!(dtype, Dtype::F16 | Dtype::Bf16 | Dtype::ComplexF32);
        Dtype::ALL.into_iter().filter(atomic).filter(wide)
    };
    let len = 8 * dtypes().count();
    let storage = Storage::new(len, &mut Random(8));
    let window = storage.window(len);
    window.write(0, &std::vec![0; len]).unwrap();
    concurrently(&storage, len, |_, window| {
        for _ in 0..ROUNDS {
            for (index, dtype) in dtypes().enumerate() {
                window.accumulate(8 * index as u64, dtype, ReduceOp::Sum, &model::one(dtype)).unwrap();
            }
        }
    });
    let total = (THREADS * ROUNDS) as u64;
    for (index, dtype) in dtypes().enumerate() {
        let mut sum = [0; 8];
        window.read(8 * index as u64, &mut sum[..dtype.size()]).unwrap();
        let (bits, expected) = match dtype {
            Dtype::F32 => (model::to_u64(&sum), u64::from((total as f32).to_bits())),
            Dtype::F64 => (model::to_u64(&sum), (total as f64).to_bits()),
            _ => (model::to_u64(&sum), total & (u64::MAX >> (64 - 8 * dtype.size()))),
        };
        assert_eq!(bits, expected, "{dtype:?}");
    }
}

#[test]
fn concurrent_extrema_and_products_are_exact() {
    let storage = Storage::new(32, &mut Random(9));
    let window = storage.window(32);
    window.accumulate(0, Dtype::I64, ReduceOp::Replace, &i64::MAX.to_ne_bytes()).unwrap();
    window.accumulate(8, Dtype::F64, ReduceOp::Replace, &f64::MIN.to_ne_bytes()).unwrap();
    window.accumulate(16, Dtype::U64, ReduceOp::Replace, &1_u64.to_ne_bytes()).unwrap();
    window.accumulate(24, Dtype::U64, ReduceOp::Replace, &0_u64.to_ne_bytes()).unwrap();
    concurrently(&storage, 32, |index, window| {
        for round in 0..ROUNDS {
            let value = (round * THREADS + index) as i64;
            window.accumulate(0, Dtype::I64, ReduceOp::Min, &(-value).to_ne_bytes()).unwrap();
            window.accumulate(8, Dtype::F64, ReduceOp::Max, &(value as f64).to_ne_bytes()).unwrap();
            window.accumulate(16, Dtype::U64, ReduceOp::Prod, &3_u64.to_ne_bytes()).unwrap();
            window.accumulate(24, Dtype::U64, ReduceOp::LogicalXor, &9_u64.to_ne_bytes()).unwrap();
        }
    });
    let last = (ROUNDS * THREADS - 1) as i64;
    let mut after = [0; 32];
    window.read(0, &mut after).unwrap();
    let product = (0..ROUNDS * THREADS).fold(1_u64, |product, _| product.wrapping_mul(3));
    let expected = [(-last) as u64, (last as f64).to_bits(), product, 0];
    let after: [u64; 4] = core::array::from_fn(|index| model::to_u64(&after[8 * index..8 * index + 8]));
    assert_eq!(after, expected);
}

#[test]
fn concurrent_tickets_are_unique() {
    let storage = Storage::new(8, &mut Random(10));
    storage.window(8).write(0, &[0; 8]).unwrap();
    let drawn = concurrently(&storage, 8, |_, window| {
        let mut mine = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let mut ticket = [0; 8];
            window.get_accumulate(0, Dtype::U64, ReduceOp::Sum, &1_u64.to_ne_bytes(), &mut ticket).unwrap();
            mine.push(u64::from_ne_bytes(ticket));
        }
        assert!(mine.windows(2).all(|pair| pair[0] < pair[1]), "one thread's tickets go backwards");
        mine
    });
    let mut all: Vec<u64> = drawn.into_iter().flatten().collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..(THREADS * ROUNDS) as u64));
}

#[test]
fn concurrent_swaps_elect_one_winner_each_time() {
    let storage = Storage::new(8, &mut Random(11));
    storage.window(8).write(4, &[0; 4]).unwrap();
    let wins = concurrently(&storage, 8, |_, window| {
        let mut wins = 0;
        for round in 0..ROUNDS as u32 {
            let (from, to) = (round.to_ne_bytes(), (round + 1).to_ne_bytes());
            let mut before = [0; 4];
            window.compare_and_swap(4, Dtype::I32, &from, &to, &mut before).unwrap();
            wins += usize::from(before == from);
        }
        wins
    });
    assert_eq!(wins.into_iter().sum::<usize>(), ROUNDS);
}

#[test]
fn concurrent_pairs_and_complex_numbers_are_whole() {
    let storage = Storage::new(16, &mut Random(12));
    let pair = |value: i32, index: i32| [value.to_ne_bytes(), index.to_ne_bytes()].concat();
    let complex = |re: f32, im: f32| [re.to_ne_bytes(), im.to_ne_bytes()].concat();
    let window = storage.window(16);
    window.write(0, &pair(i32::MAX, i32::MAX)).unwrap();
    window.write(8, &complex(0.0, 0.0)).unwrap();
    concurrently(&storage, 16, |thread, window| {
        for round in (0..ROUNDS).rev() {
            let operand = pair((round / 2) as i32, (10 * round + thread) as i32);
            window.accumulate(0, Dtype::I32Index, ReduceOp::MinLoc, &operand).unwrap();
            window.accumulate(8, Dtype::ComplexF32, ReduceOp::Sum, &complex(1.0, -2.0)).unwrap();
        }
    });
    let mut after = [0; 16];
    window.read(0, &mut after).unwrap();
    let count = (THREADS * ROUNDS) as f32;
    assert_eq!(after[..8], pair(0, 0));
    assert_eq!(after[8..], complex(count, -2.0 * count));
}
