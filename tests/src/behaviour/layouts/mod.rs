//! Operations whose data are not in a row, at the origin, at the target, or at both.

mod case;
mod protocol;

pub use protocol::*;

use rma_core::bootstrap::Bootstrap;
use rma_core::dtype::Dtype;
use rma_core::error::RmaError;
use rma_core::layout::{ArrayOrder, Layout};
use rma_core::lock::LockType::Exclusive;
use rma_core::op::ReduceOp;
use rma_core::provider::Endpoint;
use rma_core::wire::OpKind::{Accumulate, CompareAndSwap, Get, GetAccumulate, Put};

use self::case::{window, Case};
use super::Make;
use crate::Spec;

/// `count` blocks of `block` bytes, `stride` bytes apart.
fn vector(count: u64, block: u64, stride: i64) -> Layout {
    Layout::vector(count, block, stride, &Layout::of(Dtype::U8)).expect("small")
}

/// Every second double of the origin goes in a row.
///
/// Shows: MPI_Put, MPI_Type_vector, MPI-4.1 13.3.1.
pub fn vector_to_contiguous<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 4096);
    let doubles = Layout::vector(40, 1, 2, &Layout::of(Dtype::F64)).unwrap();
    Case::new(Put, 320).origin(&doubles).at(16).run(&mut world, window);
    Case::new(Put, 960).origin(&doubles).at(16).run(&mut world, window);
    world.check_idle();
}

/// A row of bytes goes to blocks, and what lies between them stays.
///
/// Shows: MPI_Put, MPI_Type_create_hvector.
pub fn contiguous_to_vector<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 8192);
    for (count, block, stride) in [(40, 8, 16), (7, 3, 5), (3, 1000, 1500), (100, 1, 64)] {
        let layout = vector(count, block, stride);
        Case::new(Put, layout.size()).target_layout(&layout).at(11).run(&mut world, window);
    }
    world.check_idle();
}

/// Blocks of different lengths at both sides: pieces end where either does.
///
/// Shows: MPI_Put, MPI-4.1 13.3.
pub fn vector_to_another_vector<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 16384);
    for (origin, target) in [
        (vector(6, 10, 30), vector(10, 6, 25)),
        (vector(2, 3000, 4000), vector(3, 2000, 5000)),
        (vector(60, 1, 3), vector(4, 15, 16)),
    ] {
        Case::new(Put, 60.max(origin.size())).origin(&origin).target_layout(&target).run(&mut world, window);
    }
    world.check_idle();
}

/// The same the other way.
///
/// Shows: MPI_Get, MPI-4.1 13.3.2.
pub fn gets_of_vectors<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 16384);
    let (few, many) = (vector(2, 3000, 4000), vector(600, 10, 12));
    Case::new(Get, 6000).target_layout(&few).at(3).run(&mut world, window);
    Case::new(Get, 6000).result(&few).at(3).run(&mut world, window);
    Case::new(Get, 6000).target_layout(&many).result(&few).run(&mut world, window);
    Case::new(Get, 6000).target_layout(&few).result(&many).run(&mut world, window);
    Case::new(Get, 12000).target_layout(&vector(1, 1, 1)).result(&many).run(&mut world, window);
    world.check_idle();
}

/// Blocks of different lengths in any order, back and forth.
///
/// Shows: MPI_Type_indexed, MPI_Type_create_hindexed, MPI_Type_create_indexed_block, MPI_Type_create_hindexed_block.
pub fn indexed_blocks<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 8192);
    let int = Layout::of(Dtype::I32);
    let layouts = [
        Layout::indexed(&[(3, 40), (1, 7), (0, 99), (10, 300), (2, 0)], &int).unwrap(),
        Layout::hindexed(&[(4, 1001), (12, 5)], &int).unwrap(),
        Layout::indexed_block(4, &[9, 1, 100, 50], &int).unwrap(),
        Layout::hindexed_block(2, &[77, 7, 700, 7000, 1777, 2777, 3333, 17], &int).unwrap(),
    ];
    for (index, layout) in layouts.iter().enumerate() {
        assert_eq!(layout.size(), 64);
        Case::new(Put, 64).target_layout(layout).run(&mut world, window);
        Case::new(Put, 64).origin(layout).at(1).run(&mut world, window);
        Case::new(Get, 64).target_layout(layout).run(&mut world, window);
        // The others have elements at odd addresses, which fabrics do not combine.
        if index % 2 == 0 {
            let case = Case::new(Accumulate, 64).reducing(Dtype::I32, ReduceOp::Sum);
            case.target_layout(layout).run(&mut world, window);
        }
    }
    world.check_idle();
}

/// Members of several types: puts and gets do not ask which.
///
/// Shows: MPI_Type_create_struct, MPI_Type_contiguous.
pub fn structures<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 4096);
    let (byte, int, double) = (Layout::of(Dtype::U8), Layout::of(Dtype::I32), Layout::of(Dtype::F64));
    let member = Layout::structure(&[(3, 0, &byte), (2, 4, &int), (1, 16, &double)]).unwrap();
    let array = Layout::contiguous(30, &member.resized(0, 32).unwrap()).unwrap();
    assert_eq!((array.size(), array.dtype()), (570, None));
    Case::new(Put, 570).origin(&array).target_layout(&array).at(8).run(&mut world, window);
    Case::new(Get, 570).target_layout(&array).run(&mut world, window);
    Case::new(Get, 19 * 20)
        .target_layout(&member.resized(0, 32).unwrap())
        .result(&member)
        .run(&mut world, window);
    world.check_idle();
}

/// Rows at the origin, columns at the target.
///
/// Shows: MPI_Type_create_subarray, MPI_Type_contiguous.
pub fn a_transpose<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 4096);
    let int = Layout::of(Dtype::I32);
    let column = Layout::vector(16, 1, 20, &int).unwrap().resized(0, 4).unwrap();
    let columns = Layout::contiguous(20, &column).unwrap();
    Case::new(Put, 1280).target_layout(&columns).at(64).run(&mut world, window);
    let part = |order| Layout::subarray(&[8, 9, 10], &[2, 3, 4], &[5, 1, 6], order, &int).unwrap();
    let (rows, columns) = (part(ArrayOrder::RowMajor), part(ArrayOrder::ColumnMajor));
    Case::new(Put, 96).target_layout(&rows).run(&mut world, window);
    Case::new(Put, 96).origin(&columns).target_layout(&rows).run(&mut world, window);
    Case::new(Get, 96).target_layout(&columns).result(&rows).run(&mut world, window);
    world.check_idle();
}

/// Layouts of layouts of layouts.
pub fn nested_layouts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 32768);
    let inner = Layout::indexed(&[(1, 0), (2, 3)], &Layout::of(Dtype::U16)).unwrap();
    let middle = Layout::vector(5, 2, 3, &inner).unwrap();
    let outer = Layout::structure(&[(1, 100, &inner), (3, 200, &middle), (2, 4000, &middle)]).unwrap();
    Case::new(Put, 2 * outer.size()).target_layout(&outer).run(&mut world, window);
    let len = outer.size() * middle.size();
    Case::new(Put, len / 4).origin(&inner).at(5).run(&mut world, window);
    Case::new(Accumulate, outer.size())
        .reducing(Dtype::U16, ReduceOp::BitXor)
        .target_layout(&outer)
        .run(&mut world, window);
    world.check_idle();
}

/// An extent that is smaller than the data, or negative, places one layout into another's holes.
///
/// Shows: MPI_Type_create_resized.
pub fn resized_layouts_interleave<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 2048);
    let sparse = vector(10, 4, 40);
    let woven = sparse.resized(0, 4).unwrap();
    Case::new(Put, 400).target_layout(&woven).at(8).run(&mut world, window);
    Case::new(Put, 400).origin(&woven).run(&mut world, window);
    let backwards = sparse.resized(0, -4).unwrap();
    Case::new(Put, 200).target_layout(&backwards).at(100).run(&mut world, window);
    Case::new(Get, 200).target_layout(&backwards).result(&woven).at(100).run(&mut world, window);
    world.check_idle();
}

/// Accumulates of every type with a layout at the target, at the origin, and at both.
///
/// Shows: MPI_Accumulate, MPI-4.1 13.3.4.
pub fn accumulates_with_layouts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 4096);
    for dtype in Dtype::ALL {
        let op = if dtype.is_integer() { ReduceOp::Sum } else { ReduceOp::Replace };
        let element = Layout::of(dtype);
        let (sparse, pairs) =
            (Layout::vector(12, 1, 3, &element).unwrap(), Layout::vector(4, 3, 5, &element).unwrap());
        let case = || Case::new(Accumulate, sparse.size()).reducing(dtype, op).at(32);
        case().target_layout(&sparse).run(&mut world, window);
        case().origin(&pairs).run(&mut world, window);
        case().origin(&sparse).target_layout(&pairs).run(&mut world, window);
    }
    world.check_idle();
}

/// Origin, result and target each with a layout of its own.
///
/// Shows: MPI_Get_accumulate, MPI-4.1 13.3.4.
pub fn fetching_with_three_layouts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 8192);
    for dtype in [Dtype::U8, Dtype::I32, Dtype::U64, Dtype::U128] {
        let element = Layout::of(dtype);
        let layout = |count, block, stride| Layout::vector(count, block, stride, &element).unwrap();
        let (origin, result, target) = (layout(12, 2, 3), layout(4, 6, 7), layout(24, 1, 2));
        for op in [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Replace] {
            let case = Case::new(GetAccumulate, target.size()).reducing(dtype, op).at(48);
            case.origin(&origin).result(&result).target_layout(&target).run(&mut world, window);
        }
    }
    world.check_idle();
}

/// No element of 16 bytes is torn, however the data are cut into packets.
pub fn accumulates_of_wide_elements<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 65536);
    let wide = Layout::of(Dtype::U128);
    let rows = Layout::vector(3, 1000, 1100, &wide).unwrap();
    let case = |kind| Case::new(kind, rows.size()).reducing(Dtype::U128, ReduceOp::Sum);
    case(Accumulate).target_layout(&rows).run(&mut world, window);
    case(GetAccumulate).target_layout(&rows).result(&rows).run(&mut world, window);
    world.check_idle();
}

/// NO_OP reads atomically what the layout says; the origin counts for nothing.
///
/// Shows: MPI_NO_OP.
pub fn reads_with_layouts<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 32768);
    for count in [10, 3000] {
        let layout = Layout::vector(count, 1, 2, &Layout::of(Dtype::I32)).unwrap();
        let case = Case::new(GetAccumulate, layout.size()).reducing(Dtype::I32, ReduceOp::NoOp);
        case.target_layout(&layout).run(&mut world, window);
    }
    world.check_idle();
}

/// A layout may reach back from its displacement, as long as all of it is in the window; the displacement
/// itself need not be.
///
/// Shows: MPI-4.1 13.3.
pub fn negative_displacements<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 2048);
    let back = Layout::hindexed(&[(8, -100), (8, 20), (8, -40)], &Layout::of(Dtype::U8)).unwrap();
    Case::new(Put, 24).target_layout(&back).at(100).run(&mut world, window);
    Case::new(Get, 24).target_layout(&back).at(2020).run(&mut world, window);
    Case::new(Put, 24).origin(&back).result(&back).run(&mut world, window);
    let far = Layout::hindexed(&[(600, -3000), (600, -2000)], &Layout::of(Dtype::U8)).unwrap();
    Case::new(Put, 1200).target_layout(&far).at(3000).run(&mut world, window);
    Case::new(Accumulate, 1200).target_layout(&far).at(3400).run(&mut world, window);
    world.check_idle();
}

/// One byte before the window, or behind it, is one too many, and nothing is touched.
///
/// Shows: MPI_ERR_RMA_RANGE.
pub fn outside_of_the_window<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 1024);
    let layout = Layout::hindexed(&[(8, -16), (8, 500)], &Layout::of(Dtype::U8)).unwrap();
    for (kind, disp, offset_bytes) in [
        (Put, 15, u64::MAX),
        (Get, 517, 501),
        (Accumulate, 0, u64::MAX - 15),
        (GetAccumulate, 1000, 984),
        (Put, u64::MAX, u64::MAX - 16),
        (Get, 1 << 63, (1 << 63) - 16),
    ] {
        for target in [0, 1] {
            let case = Case::new(kind, 16).target_layout(&layout).at(disp).to(target);
            let error = case.refused(&mut world, window);
            let named = match offset_bytes as i64 {
                before @ ..0 => format!("byte offset {before} (unsigned: {offset_bytes}) reach"),
                offset => format!("byte offset {offset} reach"),
            };
            assert!(error.to_string().contains(&named), "{error}");
            let RmaError::Range { offset_bytes: at, len_bytes, window_bytes: 1024, .. } = error else {
                panic!("{kind:?} at {disp}: {error:?}");
            };
            assert_eq!((at, len_bytes), (offset_bytes, 524), "{kind:?} at {disp}");
        }
    }
    Case::new(Put, 16).target_layout(&layout).at(16).run(&mut world, window);
    Case::new(Put, 16).target_layout(&layout).at(516).run(&mut world, window);
    world.check_idle();
}

/// Lengths that are no whole number of a layout are refused.
///
/// Shows: MPI_ERR_ARG.
pub fn lengths_must_agree<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 1024);
    let (four, ten) = (vector(2, 2, 3), vector(5, 2, 3));
    let none = Layout::contiguous(0, &four).unwrap();
    for case in [
        Case::new(Put, 10).origin(&four),
        Case::new(Get, 4).target_layout(&ten),
        Case::new(Put, 30).origin(&ten).target_layout(&four),
        Case::new(Get, 4).result(&none),
    ] {
        let error = case.refused(&mut world, window);
        assert!(matches!(error, RmaError::Argument { .. }), "{error:?}");
    }
    world.check_idle();
}

/// An accumulate's layouts are made of its own type alone.
///
/// Shows: MPI_ERR_ARG, MPI-4.1 13.3.4.
pub fn types_must_agree<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 1024);
    let (int, float) = (Layout::of(Dtype::I32), Layout::of(Dtype::F32));
    let mixed = Layout::structure(&[(1, 0, &int), (1, 8, &float)]).unwrap();
    let floats = Layout::vector(2, 1, 2, &float).unwrap();
    for layout in [&mixed, &floats] {
        for case in [
            Case::new(Accumulate, 8).target_layout(layout),
            Case::new(Accumulate, 8).origin(layout),
            Case::new(GetAccumulate, 8).result(layout),
        ] {
            let error = case.reducing(Dtype::I32, ReduceOp::Sum).refused(&mut world, window);
            assert!(error.to_string().contains("one predefined type"), "{error}");
        }
        Case::new(Put, 8).target_layout(layout).run(&mut world, window);
    }
    world.check_idle();
}

/// compare_and_swap is of one element.
///
/// Shows: MPI_Compare_and_swap.
pub fn swaps_take_no_layout<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 64);
    let layout = Layout::of(Dtype::U8);
    let error = Case::new(CompareAndSwap, 1).target_layout(&layout).refused(&mut world, window);
    assert!(matches!(error, RmaError::Argument { .. }), "{error:?}");
    world.check_idle();
}

/// No bytes, in layouts of none or of many, also where nothing would fit.
pub fn layouts_of_nothing<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 64);
    let some = vector(5, 2, 300);
    let none = Layout::vector(0, 5, 1, &some).unwrap();
    for kind in [Put, Get, Accumulate, GetAccumulate] {
        Case::new(kind, 0).origin(&some).result(&none).target_layout(&some).run(&mut world, window);
        Case::new(kind, 0).origin(&none).target_layout(&none).at(64).run(&mut world, window);
    }
    world.check_idle();
}

/// The same bytes of the origin may be sent twice.
///
/// Shows: MPI-4.1 13.3.1.
pub fn blocks_at_the_origin_may_overlap<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 8192);
    let again = Layout::hvector(4, 100, 10, &Layout::of(Dtype::U8)).unwrap();
    Case::new(Put, 400).origin(&again).run(&mut world, window);
    let same = Layout::hvector(500, 8, 0, &Layout::of(Dtype::U8)).unwrap();
    Case::new(Put, 4000).origin(&same).target_layout(&vector(2, 2000, 3000)).run(&mut world, window);
    world.check_idle();
}

/// Every kind of operation, with every layout, on the process's own window.
pub fn layouts_on_oneself<E: Endpoint, B: Bootstrap>(make: &impl Make<E, B>) {
    let mut world = make(Spec::ranks(2));
    let window = window(&mut world, 4096);
    let (one, other) = (vector(6, 10, 30), vector(10, 6, 25));
    for kind in [Put, Get, Accumulate, GetAccumulate] {
        let case = || Case::new(kind, 60).to(0).at(100);
        case().target_layout(&one).run(&mut world, window);
        case().origin(&one).result(&other).run(&mut world, window);
        case().origin(&other).result(&one).target_layout(&other).run(&mut world, window);
    }
    // A put of the window's own bytes.
    let (base, _) = world.engines[0].window_memory(window).expect("the window exists");
    let mut memory = world.memory(0, window);
    let mut put = Case::new(Put, 60).to(0).at(2000).target_layout(&one);
    let operation = rma_core::engine::Operation { origin: base, ..put.operation() };
    world.lock(0, window, 0, Exclusive).unwrap();
    // SAFETY: the window's memory stays; the spans are apart.
    let posted = unsafe { world.engines[0].post_with_layouts(window, &operation, &put.layouts) };
    assert!(posted.is_ready());
    world.unlock(0, window, 0).unwrap();
    for block in 0..6 {
        memory.copy_within(10 * block..10 * block + 10, 2000 + 30 * block);
    }
    assert_eq!(world.memory(0, window), memory);
    world.check_idle();
}
