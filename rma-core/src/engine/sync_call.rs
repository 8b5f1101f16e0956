//! A blocking call between two polls: where it is, and what it waits for.

use super::bounded::{Scope, Watch};
use super::fence::FenceAssert;
use super::pscw;
use crate::error::{Call, RmaError};
use crate::group::Group;
use crate::ids::{Rank, WindowId};
use crate::lock::LockType;
use crate::table::FlushGroups;
#[cfg(doc)]
use crate::table::PacketShortcut;

/// An epoch's first operation takes its lock.
const REMOTE_COMPLETION: &str =
    "remote completion (in a lock epoch also the lock, if nothing was completed under it before)";

/// A blocking call under way: to be polled until it is ready, on the engine that started it.
#[derive(Debug)]
#[must_use = "the call has no effect until it is polled to its end"]
pub struct SyncCall {
    pub(super) call: Call,
    pub(super) window: WindowId,
    pub(super) counted: u8,
    /// How often a flush has looked in vain, modulo 256.
    pub(super) looks: u8,
    pub(super) stage: Stage,
    /// The group of a start that waits for what is left of the window's last epoch.
    pub(super) group: Option<Group>,
    /// An error that is reported when the call's collective part is over.
    pub(super) error: Option<RmaError>,
}

/// Where a blocking call is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Create {
        sequence: Option<u32>,
    },
    Free {
        sequence: Option<u32>,
    },
    Barrier {
        sequence: Option<u32>,
    },
    Agree {
        sequence: Option<u32>,
    },
    LockGrant {
        target: Rank,
    },
    LockAllGrant,
    OwnGrant,
    StartGrant,
    SelfLock {
        lock_type: LockType,
        queued: bool,
    },
    Unlock {
        target: Rank,
    },
    UnlockAll,
    UnlockWalk,
    Flush {
        target: Rank,
    },
    FlushCounted {
        target: Rank,
        element: u32,
    },
    /// Of an operation by packet that is alone ([`PacketShortcut`]).
    FlushByShortcut {
        target: Rank,
        number: u32,
    },
    FlushAll,
    FlushTargets {
        group: FlushGroups,
    },
    Notification {
        disp: u64,
        until: u64,
    },
    FlushLocal {
        target: Rank,
    },
    FlushLocalAll,
    Watched {
        scope: Scope,
        watch: Watch,
    },
    FenceComplete {
        assert: FenceAssert,
    },
    FenceBegin {
        assert: FenceAssert,
    },
    FenceBarrier {
        assert: FenceAssert,
        sequence: u32,
    },
    Complete,
    Wait,
    Leftover {
        opening: pscw::Opening,
    },
    Detach {
        version: u32,
    },
    AtOnce {
        target: Rank,
    },
    Done,
}

impl SyncCall {
    /// In the place of a window.
    pub(super) const NO_WINDOW: WindowId = WindowId(u32::MAX);

    pub(super) fn new(call: Call, window: WindowId, stage: Stage) -> Self {
        Self { call, window, counted: 0, looks: 0, stage, group: None, error: None }
    }

    /// The call.
    pub fn call(&self) -> Call {
        self.call
    }

    /// The window, if the call is on one and not on the whole job.
    pub fn window(&self) -> Option<WindowId> {
        (self.window != Self::NO_WINDOW).then_some(self.window)
    }

    /// The rank whose operations or lock the call ends; [`Rank::NULL`] if it names none, or is over.
    pub fn target(&self) -> Rank {
        match self.stage {
            Stage::Unlock { target }
            | Stage::Flush { target }
            | Stage::FlushCounted { target, .. }
            | Stage::FlushByShortcut { target, .. }
            | Stage::FlushLocal { target }
            | Stage::Watched { scope: Scope::One(target) | Scope::OneLocally(target), .. }
            | Stage::AtOnce { target } => target,
            _ => Rank::NULL,
        }
    }

    /// What it waits for, for people who look at a job that does not move.
    pub fn waiting_for(&self) -> &'static str {
        match self.stage {
            Stage::Create { .. } => {
                "the other ranks to create the window (all make their collective calls in the same order)"
            }
            Stage::Free { .. } => {
                "the other ranks to free the window (all make their collective calls in the same order)"
            }
            Stage::Barrier { .. } => {
                "the other ranks to reach the barrier (all make their collective calls in the same order)"
            }
            Stage::Agree { .. } => {
                "the other ranks to make the window (all make their collective calls in the same order)"
            }
            Stage::StartGrant => "the posts of ranks whose memory is shared (none comes of one with NOCHECK)",
            Stage::LockGrant { .. } | Stage::LockAllGrant => "the locks of ranks whose memory is shared",
            Stage::SelfLock { .. } | Stage::OwnGrant => "the lock of this rank's own window",
            Stage::Unlock { .. } | Stage::UnlockAll | Stage::UnlockWalk => {
                "the target's acknowledgement of unlock"
            }
            Stage::Flush { .. }
            | Stage::FlushCounted { .. }
            | Stage::FlushByShortcut { .. }
            | Stage::FlushAll
            | Stage::FlushTargets { .. } => REMOTE_COMPLETION,
            Stage::Notification { .. } => "a notification",
            Stage::FlushLocal { .. } | Stage::FlushLocalAll => "local completion",
            Stage::Watched { scope: Scope::OneLocally(_) | Scope::AllLocally, .. } => "local completion",
            Stage::Watched { .. } => REMOTE_COMPLETION,
            Stage::FenceComplete { .. } => "completion of the fence epoch's operations",
            Stage::FenceBegin { .. } | Stage::FenceBarrier { .. } => {
                "the other ranks to reach the fence (all make their collective calls in the same order)"
            }
            Stage::Complete => {
                "the targets' posts (none comes of one with NOCHECK), or completion of the operations"
            }
            Stage::Wait => {
                "the origins to complete (they cannot if post had NOCHECK and their start had not)"
            }
            Stage::Leftover { .. } => {
                "the targets of the last complete to post (none comes of a post with NOCHECK)"
            }
            Stage::Detach { .. } => "the ranks that access the region natively to let it go",
            Stage::AtOnce { .. } | Stage::Done => "nothing",
        }
    }
}
