//! Atomics that are done at once.

#[cfg(doc)]
use super::Endpoint;
use super::RemoteAddr;

/// What an atomic does to each element, with the origin's buffers; see [`Endpoint::assist`] and [`Endpoint::atomic_now`].
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

/// One word for [`Endpoint::swap_now`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WordSwap {
    /// Where it is. All words of one call are in one region.
    pub at: RemoteAddr,
    /// What is expected there.
    pub from: u64,
    /// What is put in its place.
    pub into: u64,
}

/// What came of [`Endpoint::swap_now`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swapped {
    /// How many words were as expected, and were swapped.
    pub count: usize,
    /// What the next one was; of all that were swapped nothing is said.
    pub other: u64,
}
