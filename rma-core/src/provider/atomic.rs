//! An atomic of one element that a peer is asked to do by itself.

#[cfg(doc)]
use super::Endpoint;

/// What an atomic does to an element, with the origin's buffers; see [`Endpoint::assist`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Atomic {
    /// `target = target op operand`.
    Reduce {
        /// One element.
        operand: *const u8,
    },
    /// The same, and the old element goes to `result`.
    Fetch {
        /// One element; not read where the reduction is none.
        operand: *const u8,
        /// Room for one.
        result: *mut u8,
    },
    /// `if target == compare { target = operand }`; the old element goes to `result`.
    Swap {
        /// One element.
        operand: *const u8,
        /// One element.
        compare: *const u8,
        /// Room for one.
        result: *mut u8,
    },
}
