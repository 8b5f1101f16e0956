//! Layouts for operations of a plan: which bytes a plan's operation touches stays as it is, but they travel
//! in another order, from and to buffers with gaps. So neither plans nor the oracle know of layouts.

use std::rc::Rc;

use rma_core::dtype::Dtype;
use rma_core::layout::{Layout, Layouts};

use super::plan::{Form, OperationPlan, Payload, Verb};
use crate::random::Random;

/// What fills the gaps of buffers; nobody reads it, and nobody may write it.
const GAP: u8 = 0xc3;

/// The layouts with which an operation is posted, if any: of origin, result and target.
pub fn layouts_of(plan: &OperationPlan) -> Option<Layouts> {
    Shape::of(plan).map(|shape| shape.layouts)
}

/// The layouts of one operation, and where they have each byte of data: counted without asking them, as the engine does,
/// and once for all bytes.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) layouts: Layouts,
    /// In the operation's range of the window.
    order: Vec<usize>,
    /// In the origin's buffer.
    origin: Vec<usize>,
    /// In the buffer for results.
    result: Vec<usize>,
}

/// The layouts of the operation that was asked for last: one that finds no room is posted again at each step.
#[derive(Debug, Default)]
pub(super) struct Shapes(Option<(OperationPlan, Option<Rc<Shape>>)>);

impl Shapes {
    /// As [`Shape::of`].
    pub(super) fn of(&mut self, plan: &OperationPlan) -> Option<Rc<Shape>> {
        match &self.0 {
            Some((last, shape)) if last == plan => shape.clone(),
            _ => {
                let shape = Shape::of(plan).map(Rc::new);
                self.0 = Some((*plan, shape.clone()));
                shape
            }
        }
    }
}

/// A layout, and where each byte of data is.
struct Placed {
    layout: Layout,
    places: Vec<usize>,
}

impl Shape {
    /// The layouts of an operation, if it has some: the same every time.
    pub(super) fn of(plan: &OperationPlan) -> Option<Self> {
        let Payload::Seed(seed) = plan.payload else { return None };
        let is_plain = !matches!(plan.form, Form::Notified { .. });
        let may_have = is_plain && !matches!(plan.verb, Verb::FetchAndOp | Verb::CompareAndSwap);
        let mut random = Random::new(seed ^ 0x001a_7007);
        if !may_have || plan.len == 0 || !random.chance(300) {
            return None;
        }
        let elements = plan.len / plan.dtype.size();
        let target = transposed(plan.dtype, elements, &mut random);
        let origin = random.chance(600).then(|| with_gaps(plan.dtype, elements, &mut random));
        let result = random.chance(600).then(|| with_gaps(plan.dtype, elements, &mut random));
        let split = |placed: Option<Placed>| match placed {
            Some(Placed { layout, places }) => (Some(layout), places),
            None => (None, (0..plan.len).collect()),
        };
        let ((origin, origin_places), (result, result_places)) = (split(origin), split(result));
        let layouts = Layouts { origin, result, target: Some(target.layout) };
        Some(Self { layouts, order: target.places, origin: origin_places, result: result_places })
    }

    /// The origin's buffer for a payload that is in the order of the window.
    pub(super) fn scatter(&self, payload: &[u8]) -> Vec<u8> {
        let places = &self.origin[..payload.len()];
        let mut buffer = vec![GAP; end_of(places)];
        for (&place, &at) in places.iter().zip(&self.order) {
            buffer[place] = payload[at];
        }
        buffer
    }

    /// The buffer for a result of `len` bytes, before anything is there.
    pub(super) fn empty_result(&self, len: usize) -> Vec<u8> {
        vec![GAP; end_of(&self.result[..len])]
    }

    /// The result in the order of the window; an error if a gap was written.
    pub(super) fn gather(&self, buffer: &[u8], len: usize) -> Result<Vec<u8>, String> {
        let mut result = vec![0; len];
        let mut rest = buffer.to_vec();
        for (&place, &at) in self.result[..len].iter().zip(&self.order) {
            result[at] = buffer[place];
            rest[place] = GAP;
        }
        match rest.iter().position(|&byte| byte != GAP) {
            Some(at) => Err(format!("byte {at} of a result's buffer was written, which is in a gap")),
            None => Ok(result),
        }
    }
}

/// All bytes of a range, column by column of blocks.
fn transposed(dtype: Dtype, elements: usize, random: &mut Random) -> Placed {
    let divisor = |of: usize, random: &mut Random| {
        let divisors: Vec<_> = (1..=of.min(64)).filter(|by| of % by == 0).collect();
        random.pick(&divisors)
    };
    let columns = divisor(elements, random);
    let block = divisor(elements / columns, random);
    // Few long blocks as often as many short ones.
    let (columns, block) = if random.chance(500) { (block, columns) } else { (columns, block) };
    let rows = elements / columns / block;
    let layout = || {
        let block = Layout::contiguous(block as u64, &Layout::of(dtype))?;
        let column = Layout::vector(rows as u64, 1, columns as i64, &block)?;
        Layout::contiguous(columns as u64, &column.resized(0, block.extent())?)
    };
    let bytes = block * dtype.size();
    let mut places = Vec::with_capacity(elements * dtype.size());
    for column in 0..columns {
        for row in 0..rows {
            let first = (row * columns + column) * bytes;
            places.extend(first..first + bytes);
        }
    }
    Placed { layout: layout().expect("smaller than a window"), places }
}

/// So many elements with gaps between some.
fn with_gaps(dtype: Dtype, elements: usize, random: &mut Random) -> Placed {
    let size = dtype.size();
    let (mut blocks, mut places) = (Vec::new(), Vec::with_capacity(elements * size));
    let (mut left, mut at) = (elements, 0);
    let is_regular = random.chance(500);
    let (mut len, mut gap) = (1 + random.index(40), 1 + random.index(3));
    while left > 0 {
        if !is_regular {
            (len, gap) = (1 + random.index(200), random.index(4));
        }
        len = len.min(left);
        blocks.push((len as u64, (at * size) as i64));
        places.extend(at * size..(at + len) * size);
        left -= len;
        at += len + gap;
    }
    Placed { layout: Layout::hindexed(&blocks, &Layout::of(dtype)).expect("smaller than a window"), places }
}

fn end_of(places: &[usize]) -> usize {
    places.iter().max().map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use rma_core::op::ReduceOp;

    use super::*;

    #[test]
    fn every_byte_is_in_the_order_once_and_buffers_say_the_same() {
        let mut count = 0;
        for seed in 0..500 {
            let dtype = Dtype::ALL[seed as usize % Dtype::COUNT];
            let len = dtype.size() * (1 + seed as usize % 90);
            let payload = Payload::Seed(seed);
            let op = ReduceOp::Replace;
            let plan = OperationPlan {
                verb: Verb::Put,
                window: 0,
                target: 0,
                offset: 0,
                len,
                dtype,
                op,
                span: 0,
                payload,
                form: Form::Plain,
            };
            let Some(mut shape) = Shape::of(&plan) else { continue };
            count += 1;
            let mut sorted = shape.order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..len), "seed {seed}");
            for (layout, places) in [
                (&shape.layouts.target, &shape.order),
                (&shape.layouts.origin, &shape.origin),
                (&shape.layouts.result, &shape.result),
            ] {
                let asked = (0..len as u64).map(|at| match layout {
                    Some(layout) => layout.run_at(at, at + 1).offset as usize,
                    None => at as usize,
                });
                assert!(asked.eq(places.iter().copied()), "seed {seed}: {layout:?}");
            }
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let buffer = shape.scatter(&bytes);
            shape.result = shape.origin.clone();
            assert_eq!(shape.gather(&buffer, len), Ok(bytes));
            assert_eq!(shape.empty_result(len).len(), buffer.len());
        }
        assert!(count > 100, "{count} of 500");
    }
}
