//! Where operations wait that came with a lock request which cannot be granted yet.

use alloc::boxed::Box;
use alloc::vec;

/// Bytes kept in a [`DeferredRing`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    start: usize,
    len: usize,
    /// Bytes left unused before `start` because the span did not fit before the ring's end.
    skipped: usize,
}

/// A ring of bytes. Lock requests are granted in the order in which they came, so their operations
/// leave in that order too, and a ring is all it takes.
#[derive(Debug)]
pub struct DeferredRing {
    bytes: Box<[u8]>,
    tail: usize,
    used: usize,
}

impl DeferredRing {
    /// A ring of `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self { bytes: vec![0; capacity].into_boxed_slice(), tail: 0, used: 0 }
    }

    /// Keeps a copy of `payload`, or not when there is no room in one piece.
    pub fn keep(&mut self, payload: &[u8]) -> Option<Span> {
        let capacity = self.bytes.len();
        let to_end = capacity - self.tail;
        let skipped = if payload.len() > to_end { to_end } else { 0 };
        if payload.is_empty() || self.used + skipped + payload.len() > capacity {
            return None;
        }
        let start = if skipped > 0 { 0 } else { self.tail };
        self.bytes[start..start + payload.len()].copy_from_slice(payload);
        self.tail = (start + payload.len()) % capacity;
        self.used += skipped + payload.len();
        Some(Span { start, len: payload.len(), skipped })
    }

    /// The kept bytes.
    pub fn bytes(&self, span: Span) -> &[u8] {
        &self.bytes[span.start..span.start + span.len]
    }

    /// Gives up the oldest span.
    pub fn release(&mut self, span: Span) {
        self.used -= span.skipped + span.len;
        if self.used == 0 {
            self.tail = 0;
        }
    }

    /// Bytes held beyond the structure itself.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_come_and_go_in_order_without_overlap() {
        let mut ring = DeferredRing::new(100);
        let mut kept = alloc::collections::VecDeque::new();
        let mut refused = 0;
        for step in 0..1000u32 {
            let len = 1 + (step as usize * 37) % 60;
            match ring.keep(&vec![step as u8; len]) {
                Some(span) => kept.push_back((span, step as u8, len)),
                None => {
                    refused += 1;
                    let (span, value, len) = kept.pop_front().unwrap();
                    assert_eq!(ring.bytes(span), &vec![value; len][..]);
                    ring.release(span);
                }
            }
            for &(span, value, len) in &kept {
                assert_eq!(ring.bytes(span), &vec![value; len][..]);
            }
        }
        assert!(refused > 100);
        assert!(ring.keep(&[0; 101]).is_none() && ring.keep(&[]).is_none());
    }
}
