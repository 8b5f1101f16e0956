//! Who else changes a window's elements while its owner does, and what that asks of the owner.

use alloc::sync::Arc;
use core::fmt;

/// A region whose elements are changed by its owner's peers, too, with their own processors: as a rule each by an atomic,
/// and everybody at any time; where many are changed at once, by one process after the other, each of which then has all of
/// them to itself. The provider, whose peers do it, knows which it is, and says so to the owner (docs/provider.md, line 18).
pub trait Changes: Send + Sync + fmt::Debug {
    /// The owner begins to change `bytes` bytes of elements, by one thread at a time. It may have to wait for the end of a
    /// peer's change, and not for a peer that has died.
    fn begin(&self, bytes: usize) -> Begun;

    /// The change of `bytes` bytes that was begun is done.
    fn end(&self, bytes: usize, begun: Begun);
}

/// How the owner may change elements until [`Changes::end`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// Each by an atomic, as peers do at the same time.
    ByAtomics,
    /// In whatever way: nobody else does. The number is the provider's.
    Alone(u64),
}

/// The longest change that peers hear of: who makes a longer one lets them at the elements between its pieces.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// Who changes the elements of a [`WindowMemory`](super::WindowMemory) while it does.
#[derive(Clone, Debug)]
pub enum Sharing {
    /// Others, each element by an atomic.
    Atomics,
    /// Nobody: only this thread, or others between its calls.
    Alone,
    /// Peers, as the provider says.
    Peers(Arc<dyn Changes>),
}

impl Sharing {
    /// Bytes of the longest change.
    #[inline]
    pub(super) fn bytes_max(&self) -> usize {
        if matches!(self, Self::Peers(_)) {
            PIECE_BYTES
        } else {
            usize::MAX
        }
    }

    /// Makes a change of `bytes` bytes of elements, which is told whether it is alone.
    #[inline]
    pub(super) fn change<T>(&self, bytes: usize, change: impl FnOnce(bool) -> T) -> T {
        match self {
            Self::Atomics => change(false),
            Self::Alone => change(true),
            Self::Peers(peers) => {
                let begun = peers.begin(bytes);
                let done = change(begun != Begun::ByAtomics);
                peers.end(bytes, begun);
                done
            }
        }
    }
}
