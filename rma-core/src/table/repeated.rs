//! The lock epoch that a program repeats: the same neighbour of the same window, locked, accessed and unlocked again and
//! again, or accessed alone of all between lock_all and unlock_all. While nothing else is done with the window, all that such an
//! epoch needs is here, and the window is not asked.
//!
//! Whoever looks at the window for any other reason finds the epoch written down as that of any lock without element
//! ([`Window::write_down`](crate::window::Window::write_down)): [`Windows`](crate::progress::Windows), where all windows come
//! from, sees to that, so that nobody has to know of it.

use crate::ids::{Rank, WindowId};
use crate::lock::LockType;
use crate::pool::NONE;
use crate::state::WindowState;
use crate::window::NearTarget;

/// How far the epoch is, in an order in which the questions of every call are single comparisons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(crate) enum RepeatedStage {
    /// There is none: the last one has ended, and the next is expected.
    Ended,
    /// Likewise, of lock_all.
    AllEnded,
    /// lock was called.
    Called,
    /// Of the lock's words a ticket was drawn, and no more could be had. It is written down next.
    Drawn,
    Held,
    /// The ticket was given back, and no more could be. It is written down next.
    Noted,
    /// lock_all was called, and the own share is held.
    AllCalled,
    /// So is the target's.
    AllHeld,
}

/// Such an epoch; `P` is the [`Passage`](crate::provider::Passage) of the endpoint.
#[derive(Debug)]
pub(crate) struct RepeatedLock<P> {
    /// None, if there is no such epoch.
    pub(crate) window: WindowId,
    /// What [`Process::disturbances`](crate::progress::Process) was when the epoch was repeated first: nobody had died then, and
    /// nothing had failed.
    pub(crate) disturbances: u32,
    /// Shared under lock_all, too.
    pub(crate) lock_type: LockType,
    pub(crate) stage: RepeatedStage,
    /// Puts, and gets, are native, and are one message up to this length.
    pub(crate) put_bytes_max: usize,
    pub(crate) get_bytes_max: usize,
    /// The neighbour; the window has the same, as it was when the epoch was repeated first.
    pub(crate) near: NearTarget,
    /// The way to its lock and its memory; there is one, if there is such an epoch.
    pub(crate) passage: Option<P>,
    /// This rank itself, of which lock_all holds a share as well, and the way to its lock; nobody, if it is another epoch.
    pub(crate) own: NearTarget,
    pub(crate) own_passage: Option<P>,
}

impl<P> RepeatedLock<P> {
    /// None.
    pub(crate) const NONE: Self = Self {
        window: WindowId(NONE),
        disturbances: 0,
        lock_type: LockType::Shared,
        stage: RepeatedStage::Ended,
        put_bytes_max: 0,
        get_bytes_max: 0,
        near: NearTarget::NONE,
        passage: None,
        own: NearTarget::NONE,
        own_passage: None,
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

    /// Whether a lock_all call begins this epoch again.
    #[inline(always)]
    pub(crate) fn is_repeated_everywhere(&self, window: WindowId) -> bool {
        self.window == window && self.stage == RepeatedStage::AllEnded
    }

    /// The window in which such an epoch is open, and its state.
    pub(crate) fn open_in(&self) -> Option<(WindowId, WindowState)> {
        let state = match self.stage {
            RepeatedStage::Ended | RepeatedStage::AllEnded => return None,
            RepeatedStage::AllCalled | RepeatedStage::AllHeld => WindowState::LockAllCalled,
            _ => WindowState::PerTarget,
        };
        Some((self.window, state))
    }

    /// Whether this epoch, or one of lock_all with this target, is open.
    #[inline(always)]
    pub(crate) fn is_open(&self, window: WindowId, target: Rank) -> bool {
        self.is_to(window, target) && self.stage > RepeatedStage::AllEnded
    }

    /// Whether this is one of lock_all, and open.
    #[inline(always)]
    pub(crate) fn is_open_everywhere(&self, window: WindowId) -> bool {
        self.window == window && self.stage >= RepeatedStage::AllCalled
    }
}
