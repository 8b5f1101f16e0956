//! Layouts against a list of every byte, made by the definitions of MPI's constructors.
#![allow(clippy::unwrap_used)]

extern crate std;

use std::string::ToString;
use std::vec;
use std::vec::Vec;

use super::*;

/// Every byte of the data in its order, and the bounds.
#[derive(Clone, Debug)]
struct Naive {
    bytes: Vec<i64>,
    lower: i64,
    upper: i64,
}

impl Naive {
    fn of(dtype: Dtype) -> Self {
        let size = dtype.size() as i64;
        Self { bytes: (0..size).collect(), lower: 0, upper: size }
    }

    /// Copies at displacements in bytes.
    fn at(&self, displacements: &[i64]) -> Self {
        let bytes = displacements.iter().flat_map(|disp| self.bytes.iter().map(move |byte| byte + disp));
        let bound = |of: fn(&[i64]) -> i64, edge: i64| {
            if displacements.is_empty() || (self.bytes.is_empty() && (self.lower, self.upper) == (0, 0)) {
                0
            } else {
                of(displacements) + edge
            }
        };
        Self {
            bytes: bytes.collect(),
            lower: bound(|all| *all.iter().min().unwrap(), self.lower),
            upper: bound(|all| *all.iter().max().unwrap(), self.upper),
        }
    }

    fn extent(&self) -> i64 {
        self.upper - self.lower
    }
}

/// A small generator (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }

    fn around(&mut self, end: u64) -> i64 {
        self.below(2 * end + 1) as i64 - end as i64
    }

    /// One constructor around a layout.
    fn wrap(&mut self, old: &Layout, naive: &Naive) -> (Layout, Naive) {
        let extent = naive.extent();
        match self.below(6) {
            0 => {
                let count = self.below(4);
                let places: Vec<_> = (0..count as i64).map(|index| index * extent).collect();
                (Layout::contiguous(count, old).unwrap(), naive.at(&places))
            }
            1 => {
                let (count, block, stride) = (self.below(4), self.below(3), self.around(4));
                let places = (0..count as i64)
                    .flat_map(|pass| (0..block as i64).map(move |index| (pass * stride + index) * extent));
                (Layout::vector(count, block, stride, old).unwrap(), naive.at(&places.collect::<Vec<_>>()))
            }
            2 => {
                let (count, block, stride) = (self.below(4), 1 + self.below(2), self.around(20));
                let places = (0..count as i64)
                    .flat_map(|pass| (0..block as i64).map(move |index| pass * stride + index * extent));
                (Layout::hvector(count, block, stride, old).unwrap(), naive.at(&places.collect::<Vec<_>>()))
            }
            3 => {
                let blocks: Vec<_> = (0..self.below(4)).map(|_| (self.below(3), self.around(5))).collect();
                let places = blocks
                    .iter()
                    .flat_map(|&(len, disp)| (0..len as i64).map(move |index| (disp + index) * extent));
                (Layout::indexed(&blocks, old).unwrap(), naive.at(&places.collect::<Vec<_>>()))
            }
            4 => {
                let places: Vec<_> = (0..1 + self.below(3)).map(|_| self.around(30)).collect();
                let members: Vec<_> = places.iter().map(|&disp| (1, disp, old)).collect();
                (Layout::structure(&members).unwrap(), naive.at(&places))
            }
            _ => {
                let (lower, extent) = (self.around(8), self.around(40));
                let resized = Naive { lower, upper: lower + extent, ..naive.clone() };
                (old.resized(lower, extent).unwrap(), resized)
            }
        }
    }
}

/// The bytes of `instances` layouts, by walking runs in pieces of at most `piece`.
fn walk(layout: &Layout, instances: u64, piece: u64) -> Vec<i64> {
    let size = layout.size() * instances;
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < size {
        let end = size.min(at + piece);
        let run = layout.run_at(at, end);
        let (low, high) = run.bounds().unwrap();
        for index in 0..run.count {
            let block = run.block(index);
            assert!(low <= block && block + run.len as i64 <= high);
            bytes.extend(block..block + run.len as i64);
        }
        assert!(run.size().unwrap() > 0 && run.size().unwrap() <= end - at);
        at += run.size().unwrap();
    }
    bytes
}

#[test]
fn random_layouts_are_what_the_constructors_say() {
    let mut random = Random(1);
    for _ in 0..3000 {
        let dtype = [Dtype::U8, Dtype::I16, Dtype::F64, Dtype::F64Index][random.below(4) as usize];
        let (mut layout, mut naive) = (Layout::of(dtype), Naive::of(dtype));
        for _ in 0..random.below(4) {
            (layout, naive) = random.wrap(&layout, &naive);
        }
        assert_eq!(layout.size(), naive.bytes.len() as u64);
        assert_eq!((layout.lower_bound(), layout.extent()), (naive.lower, naive.extent()), "{layout:?}");
        let instances = 1 + random.below(3);
        let piece = [1, 3, 8, 1000][random.below(4) as usize];
        let places: Vec<_> = (0..instances as i64).map(|index| index * naive.extent()).collect();
        let expected = naive.at(&places).bytes;
        assert_eq!(walk(&layout, instances, piece), expected, "{layout:?} {naive:?}");
        if let (Some(low), Some(high)) = (expected.iter().min(), expected.iter().max()) {
            let span = layout.span_of(layout.size() * instances);
            assert_eq!(span, Some((*low, high + 1)));
            assert_eq!(layout.dtype(), Some(dtype));
        }
        let breaks = naive.bytes.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
        assert!(layout.blocks() > breaks as u64 || naive.bytes.is_empty(), "{layout:?}");
    }
}

#[test]
fn what_lies_in_a_row_is_one_block() {
    let element = Layout::of(Dtype::I32);
    let row = Layout::contiguous(10, &element).unwrap();
    assert!(row.is_contiguous() && row.blocks() == 1 && row.size() == 40);
    assert!(Layout::vector(5, 2, 2, &element).unwrap().is_contiguous());
    assert!(Layout::indexed(&[(2, 0), (3, 2)], &element).unwrap().is_contiguous());
    assert!(!Layout::indexed(&[(2, 1), (3, 3)], &element).unwrap().is_contiguous());
    let whole = Layout::subarray(&[4, 6], &[4, 6], &[0, 0], ArrayOrder::RowMajor, &element).unwrap();
    assert!(whole.is_contiguous(), "{whole:?}");
    let rows = Layout::subarray(&[4, 6], &[2, 6], &[1, 0], ArrayOrder::RowMajor, &element).unwrap();
    assert_eq!((rows.blocks(), rows.true_bounds()), (1, (24, 72)));
}

#[test]
fn regular_layouts_are_kept_as_loops() {
    let element = Layout::of(Dtype::F64);
    let vector = Layout::vector(1 << 40, 1, 2, &element).unwrap();
    assert_eq!((vector.blocks(), vector.size()), (1 << 40, 8 << 40));
    let half = 4 << 40;
    let run = vector.run_at(half, vector.size());
    assert_eq!(run, Run { offset: 8 << 40, len: 8, count: 1 << 39, stride: 16 });
    let displacements: Vec<_> = (0..1000).map(|index| 3 * index).collect();
    let indexed = Layout::indexed_block(1, &displacements, &element).unwrap();
    assert_eq!(indexed.run_at(8, 8000).count, 999);
    let rows = Layout::vector(4, 1, 2, &element).unwrap().resized(0, 64).unwrap();
    let nested = Layout::contiguous(100, &rows).unwrap();
    assert_eq!(nested.run_at(0, nested.size()).count, 400, "a loop that goes on is one loop");
}

#[test]
fn subarrays_in_both_orders() {
    let element = Layout::of(Dtype::U8);
    let expected = |order| {
        let layout = Layout::subarray(&[4, 5, 6], &[2, 1, 3], &[1, 3, 2], order, &element).unwrap();
        assert_eq!((layout.extent(), layout.lower_bound()), (120, 0));
        walk(&layout, 1, 1000)
    };
    let mut rows = Vec::new();
    for (x, z) in [(1, 2), (1, 3), (1, 4), (2, 2), (2, 3), (2, 4)] {
        rows.push((x * 5 + 3) * 6 + z);
    }
    assert_eq!(expected(ArrayOrder::RowMajor), rows);
    let mut columns = Vec::new();
    for (z, x) in [(2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2)] {
        columns.push((z * 5 + 3) * 4 + x);
    }
    assert_eq!(expected(ArrayOrder::ColumnMajor), columns);
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let element = Layout::of(Dtype::F64);
    let too_large = Err(LayoutError::TooLarge);
    assert_eq!(Layout::contiguous(u64::MAX, &element), too_large);
    assert_eq!(Layout::vector(2, 1, i64::MAX, &element), too_large);
    assert_eq!(Layout::hvector(u64::MAX, 1, 1 << 40, &element), too_large);
    assert_eq!(Layout::hvector(3, 1, i64::MIN, &element), too_large);
    assert_eq!(Layout::indexed(&[(1, i64::MIN)], &element), too_large);
    assert_eq!(element.resized(i64::MAX, 1), too_large);
    let large = Layout::contiguous(1 << 58, &element).unwrap();
    assert_eq!(large.span_of(u64::MAX / large.size() * large.size()), None);
    let mut deep = element.clone();
    let error = loop {
        match Layout::hindexed(&[(1, 0), (1, 1 << 20)], &deep) {
            Ok(next) => deep = next,
            Err(error) => break error,
        }
    };
    assert_eq!(error, LayoutError::TooDeep);
    assert!(error.to_string().contains("32 layouts"));
    for (sizes, subsizes, starts) in [
        (&[4][..], &[5][..], &[0][..]),
        (&[4], &[2], &[3]),
        (&[4, 4], &[1], &[0]),
        (&[], &[], &[]),
        (&[4], &[1], &[u64::MAX]),
    ] {
        let refused = Layout::subarray(sizes, subsizes, starts, ArrayOrder::RowMajor, &element);
        assert_eq!(refused, Err(LayoutError::Subarray));
    }
}

#[test]
fn types_are_known_when_there_is_one() {
    let (int, float) = (Layout::of(Dtype::I32), Layout::of(Dtype::F32));
    let none = Layout::contiguous(0, &float).unwrap();
    assert_eq!(Layout::structure(&[(1, 0, &int), (2, 8, &int)]).unwrap().dtype(), Some(Dtype::I32));
    assert_eq!(Layout::structure(&[(1, 0, &int), (1, 4, &float)]).unwrap().dtype(), None);
    assert_eq!(Layout::structure(&[(1, 0, &int), (1, 4, &float), (1, 8, &int)]).unwrap().dtype(), None);
    assert_eq!(Layout::structure(&[(1, 0, &int), (1, 4, &none)]).unwrap().dtype(), Some(Dtype::I32));
    assert_eq!((none.size(), none.dtype(), none.is_contiguous()), (0, None, true));
    let mut layouts = Layouts { origin: Some(int), result: None, target: Some(none) };
    layouts.drop_contiguous();
    assert!(layouts.is_none());
    assert_eq!(vec![layouts.blocks_of(100)], [1]);
}
