//! The lock epoch that a program repeats: the same neighbour of the same window, locked, accessed and unlocked again and
//! again. While nothing else is done with the window, all that such an epoch needs is here, and the window is not asked.
//!
//! Whoever looks at the window for any other reason finds the epoch written down as that of any lock without element
//! ([`Window::write_down`](crate::window::Window::write_down)): [`Windows`](crate::progress::Windows), where all windows come
//! from, sees to that, so that nobody has to know of it.

use crate::ids::{Rank, WindowId};
use crate::lock::LockType;
use crate::pool::NONE;
use crate::provider::RemoteAddr;
use crate::window::NearTarget;

/// How far the epoch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RepeatedStage {
    /// There is none: the last one has ended, and the next is expected.
    Ended,
    /// lock was called.
    Called,
    /// Of the lock's words a ticket was drawn, and no more could be had. It is written down next.
    Drawn,
    Held,
    /// The ticket was given back, and no more could be. It is written down next.
    Noted,
}

/// Such an epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RepeatedLock {
    /// None, if there is no such epoch.
    pub(crate) window: WindowId,
    pub(crate) lock_type: LockType,
    pub(crate) stage: RepeatedStage,
    /// Puts, and gets, are native, and are one message up to this length.
    pub(crate) put_bytes_max: usize,
    pub(crate) get_bytes_max: usize,
    /// The lock's words.
    pub(crate) place: RemoteAddr,
    /// The neighbour; the window has the same, as it was when the epoch was repeated first.
    pub(crate) near: NearTarget,
}

impl RepeatedLock {
    /// None.
    pub(crate) const NONE: Self = Self {
        window: WindowId(NONE),
        lock_type: LockType::Shared,
        stage: RepeatedStage::Ended,
        put_bytes_max: 0,
        get_bytes_max: 0,
        place: RemoteAddr { addr: 0, key: crate::ids::RemoteKey(0) },
        near: NearTarget::NONE,
    };

    /// Whether it is an epoch with this target, open or not.
    #[inline(always)]
    fn is_to(&self, window: WindowId, target: Rank) -> bool {
        self.window == window && self.near.rank() == target
    }

    /// Whether a lock call begins this epoch again.
    #[inline(always)]
    pub(crate) fn is_repeated_by(&self, window: WindowId, target: Rank, lock_type: LockType) -> bool {
        self.is_to(window, target) && self.lock_type == lock_type && self.stage == RepeatedStage::Ended
    }

    /// The window in which such an epoch is open.
    pub(crate) fn open_in(&self) -> Option<WindowId> {
        (self.stage != RepeatedStage::Ended).then_some(self.window)
    }

    /// Whether this epoch is open.
    #[inline(always)]
    pub(crate) fn is_open(&self, window: WindowId, target: Rank) -> bool {
        self.is_to(window, target) && self.stage != RepeatedStage::Ended
    }
}
