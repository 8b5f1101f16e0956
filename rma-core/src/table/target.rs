//! Target elements: what an origin knows of one target while it communicates with it.

use super::{FlushGroups, List, Marks, Order};
use crate::error::{Call, FabricCode, RmaError, Rule};
use crate::ids::{PeerAddr, Rank, WindowId};
use crate::lock::words::WordLock;
use crate::lock::LockType;
use crate::pool::NONE;
use crate::provider::RemoteAddr;
use crate::state::TargetLockState;
use crate::wire::{BatchFlags, ErrorRecord, Metadata};

/// What a synchronization call wants of a target (the design's `sync_flag`).
///
/// Implements: seed: sync_flag.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Sync {
    /// Nothing: operations may be kept back.
    None,
    /// Operations must leave, completion need not be acknowledged.
    Issue,
    /// Operations must be complete at the target.
    Flush,
    /// And the lock released.
    Unlock,
    /// Operations must leave, and the target must know that none follows (complete).
    Complete,
}

/// Why operations to a target failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetError {
    /// The peer or the path to it is gone.
    Peer(FabricCode),
    /// The target's lock will never be had.
    LockLost,
    /// The target did not execute an operation.
    Record(ErrorRecord),
}

impl TargetError {
    /// The error as the user sees it.
    pub(crate) fn report(self, call: Call, target: Rank) -> RmaError {
        match self {
            Self::Peer(code) => RmaError::Peer { call, target, code },
            Self::LockLost | Self::Record(ErrorRecord::LockLost) => RmaError::LockLost { call, target },
            Self::Record(ErrorRecord::Range { offset, len, size }) => {
                RmaError::Range { call, target, offset_bytes: offset, len_bytes: len, window_bytes: size }
            }
            Self::Record(ErrorRecord::Refused) => RmaError::Refused { call, target },
            Self::Record(ErrorRecord::NotHeld) => RmaError::NotHeld { call, target },
            Self::Record(ErrorRecord::NotAttached { address, len }) => {
                RmaError::NotAttached { call, target, address, len_bytes: len }
            }
            Self::Record(ErrorRecord::NotExposed) => RmaError::NotExposed { call, target },
            Self::Record(ErrorRecord::Conflict(conflict)) => conflict.report(call, target),
            Self::Record(ErrorRecord::UnalignedWord) => {
                let what =
                    "the notified word is not at a multiple of 8 bytes in its owner's memory; give the \
                            window an aligned base and a displacement unit of 8, or the word another place";
                RmaError::Argument { call, what, rule: Rule::AlignedWord }
            }
        }
    }
}

/// What the fast path needs to know of a target: all that a native put or get takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Direct {
    pub(crate) peer: PeerAddr,
    pub(crate) metadata: Metadata,
    /// What [`Endpoint::completes_at_once`](crate::provider::Endpoint::completes_at_once) says of the peer.
    pub(crate) at_once: bool,
}

impl Direct {
    /// The location of `len` bytes at `disp`; `None` when they are not inside of the window.
    #[inline]
    pub(crate) fn locate(&self, disp: u64, len: usize) -> Option<RemoteAddr> {
        let Ok(offset) = self.metadata.locate(disp, len as u64) else { return None };
        Some(RemoteAddr { addr: self.metadata.base.wrapping_add(offset), key: self.metadata.key })
    }
}

/// Where the question about a region of the target stands; one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Question {
    /// Nothing was asked.
    Idle,
    /// Asked, with this token. A record that is older than `floor` was taken back meanwhile.
    Asked {
        /// Echoed in the answer.
        token: u32,
        /// Least version of a record that counts; `None`: any does.
        floor: Option<u32>,
    },
    /// The answer came. An operation that finds no record all the same goes by message.
    Answered,
}

/// A call of a target's lock that took longer than its caller waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LeftCall {
    /// None.
    None,
    /// Nobody waits for the lock any more: it is given back when it comes.
    Lock,
    /// The unlock goes on, and who calls it again waits for it.
    Unlock,
}

/// One target.
///
/// Implements: seed: TARGET_ELEM, seed: PENDING, seed: ISSUED.
#[derive(Debug)]
pub(crate) struct TargetElement {
    pub(crate) next: u32,
    pub(crate) rank: Rank,
    pub(crate) window: WindowId,
    /// Where native puts and gets go without any further question: lock held, peer and metadata known.
    pub(crate) direct: Option<Direct>,
    pub(crate) lock: TargetLockState,
    pub(crate) lock_type: LockType,
    pub(crate) no_check: bool,
    /// Its lock, or the way to it, where locks are words.
    pub(crate) words: WordLock,
    pub(crate) sync: Sync,
    /// What the call that set `sync` had to wait for so far, a bit for each phase.
    pub(crate) phases: u8,
    /// The DONE, UNLOCK or COMPLETE that `sync` asks for is on its way.
    pub(crate) sync_sent: bool,
    /// The lock must be asked for without waiting for a synchronization call.
    pub(crate) lock_wanted: bool,
    /// The call of its lock that was left by its caller.
    pub(crate) left: LeftCall,
    /// It is asked for by a packet, as the words cannot be had.
    pub(crate) is_out_of_reach: bool,
    /// What is pending must leave: somebody waits for a part of it. Until nothing is pending.
    pub(crate) hurried: bool,
    /// Packets with operations that only a DONE or UNLOCK acknowledges were sent.
    pub(crate) needs_done: bool,
    pub(crate) unlock_acked: bool,
    pub(crate) metadata_requested: bool,
    /// Native puts were posted since the last provider flush (only where a put's completion is local).
    pub(crate) unflushed: bool,
    pub(crate) flush_outstanding: bool,
    /// A native accumulate completed only locally: the next one might pass it.
    pub(crate) accumulates_unseen: bool,
    pub(crate) peer: Option<PeerAddr>,
    pub(crate) metadata: Option<Metadata>,
    pub(crate) pending: List,
    pub(crate) issued: List,
    /// Bytes that the pending operations would take in packets, there or back.
    pub(crate) pending_bytes: u64,
    /// Issued operations that are complete and not cleaned up.
    pub(crate) completed_count: u32,
    pub(crate) user_references: u32,
    pub(crate) native_puts: u32,
    pub(crate) native_gets: u32,
    pub(crate) native_atomics: u32,
    /// Pieces of native accumulates under way that read the target, and those that write it.
    pub(crate) atomics_reading: u32,
    pub(crate) atomics_writing: u32,
    pub(crate) requests: u32,
    pub(crate) done_sent: u32,
    pub(crate) done_acked: u32,
    pub(crate) error: Option<TargetError>,
    /// Operations that took an element so far: the number of the next.
    pub(crate) posted: u32,
    /// Pieces of native operations in elements that the fabric has not completed; the other native ones are
    /// only counted.
    pub(crate) tracked_pieces: u32,
    /// Flushes of the provider, posted and complete.
    pub(crate) flushes_posted: u32,
    pub(crate) flushes_done: u32,
    /// The calls about several targets that want this one flushed.
    pub(crate) flush_groups: FlushGroups,
    /// Native puts that a notification has to follow.
    pub(crate) notes: u32,
    pub(crate) marks: Marks,
    pub(crate) order: Order,
    pub(crate) question: Question,
}

impl Default for TargetElement {
    fn default() -> Self {
        Self::new(WindowId(NONE), Rank(NONE))
    }
}

impl TargetElement {
    /// An element for `rank`, its lock called.
    #[inline]
    pub(crate) fn new(window: WindowId, rank: Rank) -> Self {
        Self {
            next: NONE,
            rank,
            window,
            direct: None,
            lock: TargetLockState::Called,
            lock_type: LockType::Shared,
            no_check: false,
            words: WordLock::NONE,
            sync: Sync::None,
            phases: 0,
            sync_sent: false,
            lock_wanted: false,
            left: LeftCall::None,
            is_out_of_reach: false,
            hurried: false,
            needs_done: false,
            unlock_acked: false,
            metadata_requested: false,
            unflushed: false,
            flush_outstanding: false,
            accumulates_unseen: false,
            peer: None,
            metadata: None,
            pending: List::EMPTY,
            issued: List::EMPTY,
            pending_bytes: 0,
            completed_count: 0,
            user_references: 0,
            native_puts: 0,
            native_gets: 0,
            native_atomics: 0,
            atomics_reading: 0,
            atomics_writing: 0,
            requests: 0,
            done_sent: 0,
            done_acked: 0,
            error: None,
            posted: 0,
            tracked_pieces: 0,
            flushes_posted: 0,
            flushes_done: 0,
            flush_groups: FlushGroups::NONE,
            notes: 0,
            marks: Marks::NONE,
            order: Order::NONE,
            question: Question::Idle,
        }
    }

    /// Whether nothing will reach the target any more.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.error, Some(TargetError::Peer(_) | TargetError::LockLost))
    }

    /// Whether the fabric has nothing of what was left when it died.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.native_outstanding() == 0
            && self.issued.is_empty()
            && !self.flush_outstanding
            && !self.words.is_busy()
    }

    /// Native operations that the fabric has not completed.
    #[inline]
    pub(crate) fn native_outstanding(&self) -> u32 {
        self.native_puts + self.native_gets + self.native_atomics
    }

    /// Whether anything that was posted may not be complete at the target, native or by packet.
    pub(crate) fn has_more_under_way(&self) -> bool {
        let is_acked = !self.needs_done && self.done_acked == self.done_sent && self.requests == 0;
        !is_acked || self.native_outstanding() > 0
    }

    /// Whether nothing is left but native puts that the fabric has.
    pub(crate) fn has_only_puts_under_way(&self) -> bool {
        let is_acked = !self.needs_done && self.done_acked == self.done_sent && self.requests == 0;
        let is_posted = self.pending.is_empty() && self.notes == 0 && self.error.is_none();
        let is_all = self.native_puts == self.native_outstanding() && !self.flush_outstanding;
        is_acked && is_posted && is_all
    }

    /// Whether puts and gets that are only counted are all that is under way, or nothing is: nothing is left to be issued, and
    /// nothing but their completions to come.
    #[inline]
    pub(crate) fn has_only_counted_under_way(&self) -> bool {
        self.pending.is_empty()
            && self.issued.is_empty()
            && self.user_references == 0
            && self.native_atomics == 0
            && self.done_acked == self.done_sent
            && self.notes == 0
            && self.marks.is_empty()
            && self.error.is_none()
            && !(self.needs_done || self.unflushed || self.flush_outstanding)
    }

    /// Whether every operation posted so far is complete at origin and target.
    pub(crate) fn is_flushed(&self) -> bool {
        self.is_locally_complete()
            && self.pending.is_empty()
            && self.issued.is_empty()
            && !self.needs_done
            && self.done_acked == self.done_sent
            && !self.unflushed
            && !self.flush_outstanding
    }

    /// Whether its lock was called, and nothing has gone out or waits to.
    pub(crate) fn is_untouched(&self) -> bool {
        self.lock == TargetLockState::Called
            && self.pending.is_empty()
            && !self.lock_wanted
            && self.error.is_none()
    }

    /// Whether the user's buffers are free: nothing refers to them any more.
    pub(crate) fn is_locally_complete(&self) -> bool {
        self.user_references == 0 && self.native_outstanding() == 0
    }

    /// What the last packet of the epoch has to say, if the epoch ends and the target must know.
    pub(crate) fn closing(&self) -> Option<BatchFlags> {
        match self.sync {
            Sync::Unlock if !self.no_check => Some(BatchFlags::UNLOCK),
            Sync::Complete if !self.no_check => Some(BatchFlags::COMPLETE),
            _ => None,
        }
    }

    /// Whether progress could do something for this target.
    #[inline]
    pub(crate) fn wants_issue(&self) -> bool {
        !self.pending.is_empty()
            || self.sync != Sync::None
            || self.lock_wanted
            || !self.marks.is_empty()
            || self.notes > 0
            || self.words.is_active()
    }

    /// Whether progress could do something for this target but wait until everything is complete.
    #[inline]
    pub(crate) fn wants_more_than_answers(&self) -> bool {
        !self.pending.is_empty()
            || (self.sync > Sync::Flush && !self.unlock_acked)
            || self.lock_wanted
            || self.left == LeftCall::Lock
            || self.needs_done
            || self.unflushed
            || !self.marks.is_empty()
            || self.notes > 0
            || self.words.is_active()
    }

    /// Whether everything that was sent is to be acknowledged.
    #[inline]
    pub(crate) fn wants_done(&self) -> bool {
        self.sync >= Sync::Flush || self.marks.want_done()
    }
}
