//! How a layout is kept: blocks, loops, and sequences of both.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Run;

/// Some bytes, from a place on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Node {
    /// So many in a row.
    Block(u64),
    /// The same several times.
    Loop(Arc<Loop>),
    /// One thing after the other; at least two.
    Sequence(Arc<[Part]>),
}

/// The same bytes at equal distances.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Loop {
    count: u64,
    stride: i64,
    /// Bytes of data of one pass; not 0.
    size: u64,
    body: Node,
}

/// A member of a sequence.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// Bytes of data before it.
    start: u64,
    placed: Placed,
}

/// A node and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    pub(super) offset: i64,
    pub(super) node: Node,
}

impl Node {
    /// Bytes of data. Constructors have checked that they can be counted.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Block(len) => *len,
            Self::Loop(loops) => loops.count * loops.size,
            Self::Sequence(parts) => parts.last().map_or(0, |part| part.start + part.placed.node.size()),
        }
    }
}

impl Placed {
    /// No bytes.
    pub(super) const EMPTY: Self = Self { offset: 0, node: Node::Block(0) };

    /// Itself `count` times. Bytes that come to lie in a row are merged.
    pub(super) fn repeated(self, count: u64, stride: i64) -> Self {
        let size = self.node.size();
        if count == 0 || size == 0 {
            return Self::EMPTY;
        }
        if count == 1 {
            return self;
        }
        let Self { offset, node } = self;
        let node = match node {
            Node::Block(len) if stride == len as i64 => Node::Block(len * count),
            // A loop that goes on where its last pass ended is a longer loop.
            Node::Loop(inner) if inner.stride.checked_mul(inner.count as i64) == Some(stride) => {
                let Loop { count: times, stride, size, body } = &*inner;
                Node::Loop(Arc::new(Loop {
                    count: times * count,
                    stride: *stride,
                    size: *size,
                    body: body.clone(),
                }))
            }
            body => Node::Loop(Arc::new(Loop { count, stride, size, body })),
        };
        Self { offset, node }
    }

    /// One after the other. Neighbours are merged, and blocks at equal distances become a loop.
    pub(super) fn sequence(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut merged: Vec<Self> = Vec::new();
        for part in parts.into_iter().filter(|part| part.node.size() > 0) {
            match (merged.last_mut(), &part.node) {
                (Some(Self { offset, node: Node::Block(len) }), Node::Block(more))
                    if offset.checked_add(*len as i64) == Some(part.offset) =>
                {
                    *len += more;
                }
                _ => merged.push(part),
            }
        }
        if merged.len() <= 1 {
            return merged.pop().unwrap_or(Self::EMPTY);
        }
        if let Some(stride) = regular(&merged) {
            return merged.swap_remove(0).repeated(merged.len() as u64 + 1, stride);
        }
        let mut start = 0;
        let parts = merged.into_iter().map(|placed| {
            let part = Part { start, placed };
            start += part.placed.node.size();
            part
        });
        Self { offset: 0, node: Node::Sequence(parts.collect()) }
    }

    /// The blocks from position `at` on; `at` is less than the size.
    #[inline]
    pub(super) fn run_at(&self, mut at: u64) -> Run {
        let (mut offset, mut node) = (self.offset, &self.node);
        loop {
            match node {
                Node::Block(len) => {
                    return Run { offset: offset + at as i64, len: len - at, count: 1, stride: 0 };
                }
                Node::Loop(loops) => {
                    let Loop { count, stride, size, body } = &**loops;
                    let (pass, rest) = (at / size, at % size);
                    offset += stride * pass as i64;
                    if let (Node::Block(len), 0) = (body, rest) {
                        return Run { offset, len: *len, count: count - pass, stride: *stride };
                    }
                    (node, at) = (body, rest);
                }
                Node::Sequence(parts) => {
                    let next = parts.partition_point(|part| part.start <= at);
                    // The first part starts at 0.
                    let part = &parts[next.saturating_sub(1)];
                    offset += part.placed.offset;
                    (node, at) = (&part.placed.node, at - part.start);
                }
            }
        }
    }
}

/// The distance of blocks of one length, if all have the same.
fn regular(parts: &[Placed]) -> Option<i64> {
    let stride = parts[1].offset.checked_sub(parts[0].offset)?;
    let is_block = matches!(parts[0].node, Node::Block(_));
    let follows = |pair: &[Placed]| {
        pair[0].node == pair[1].node && pair[1].offset.checked_sub(pair[0].offset) == Some(stride)
    };
    (is_block && parts.windows(2).all(follows)).then_some(stride)
}
