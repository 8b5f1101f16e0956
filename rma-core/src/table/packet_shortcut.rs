//! The way of the operation by packet that a program repeats: an atomic of one element, posted to a target where nothing
//! else is under way, and completed by a flush before the next one.
//!
//! Like [`Shortcut`](super::Shortcut) it is a copy of what such an operation has found when it was over, and nothing else
//! knows of it: the operation has its element and is in its target's lists as any other, so that whoever looks finds it there.
//! It is good as long as nobody does anything to its window's targets: [`Windows`](crate::progress::Windows), where all windows
//! come from, forgets it before it lends the window to anybody who may.

use super::AtomicKind;
use crate::dtype::Dtype;
use crate::ids::{PeerAddr, Rank, WindowId};
use crate::op::ReduceOp;
use crate::pool::NONE;
use crate::wire::{Metadata, OpKind};

/// An atomic of one element that a flush has sent alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlushedAlone {
    /// Its target's element.
    pub(crate) target: u32,
    pub(crate) atomic: AtomicKind,
    /// So was the one before it, and the same; nobody has asked since.
    pub(crate) is_again: bool,
}

/// How far the operation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PacketStage {
    /// There is none.
    Idle,
    /// It is pending, alone.
    Posted,
    /// So that it is flushed it was sent, and its answer is awaited.
    Sent,
    /// The answer has come.
    Answered,
}

/// Such a way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PacketShortcut {
    /// None, if there is no such way.
    pub(crate) window: WindowId,
    rank: Rank,
    /// The target's element.
    pub(crate) target: u32,
    pub(crate) peer: PeerAddr,
    /// What it does, to which type, and by which reduction.
    atomic: AtomicKind,
    /// What [`Process::disturbances`](crate::progress::Process) was when the way was found.
    disturbances: u32,
    pub(crate) stage: PacketStage,
    /// Its element, and which of its target's operations it is.
    pub(crate) operation: u32,
    pub(crate) number: u32,
    disp_unit: u64,
    /// The first offset in the window at which the element does not fit any more.
    offset_end: u64,
}

impl PacketShortcut {
    /// None.
    pub(crate) const NONE: Self = Self {
        window: WindowId(NONE),
        rank: Rank(NONE),
        target: NONE,
        peer: PeerAddr(0),
        atomic: (OpKind::Put, Dtype::U8, ReduceOp::Replace),
        disturbances: 0,
        stage: PacketStage::Idle,
        operation: NONE,
        number: 0,
        disp_unit: 0,
        offset_end: 0,
    };

    /// The way of such an operation to an element of a target with these metadata.
    pub(crate) fn to(
        (window, rank): (WindowId, Rank),
        (target, peer): (u32, PeerAddr),
        metadata: &Metadata,
        atomic: AtomicKind,
        disturbances: u32,
    ) -> Self {
        // What the target says of its window may be anything.
        let last = metadata.size.checked_sub(atomic.1.size() as u64);
        let offset_end = last.map_or(0, |last| last.saturating_add(1));
        let disp_unit = metadata.disp_unit.into();
        Self { window, rank, target, peer, atomic, disturbances, disp_unit, offset_end, ..Self::NONE }
    }

    /// Whether an operation of `len` bytes goes this way, now.
    #[inline(always)]
    pub(crate) fn takes(
        &self,
        (window, rank): (WindowId, Rank),
        atomic: AtomicKind,
        (disp, len): (u64, usize),
        disturbances: u32,
    ) -> bool {
        self.is_at(window, rank, PacketStage::Idle)
            && self.atomic == atomic
            && len == atomic.1.size()
            && self.is_undisturbed(disturbances)
            && disp.checked_mul(self.disp_unit).is_some_and(|offset| offset < self.offset_end)
    }

    /// Whether it leads to this target, and its operation is so far.
    #[inline(always)]
    pub(crate) fn is_at(&self, window: WindowId, rank: Rank, stage: PacketStage) -> bool {
        self.window == window && self.rank == rank && self.stage == stage
    }

    /// Whether nobody has died, and nothing has failed, since it was found.
    #[inline(always)]
    pub(crate) fn is_undisturbed(&self, disturbances: u32) -> bool {
        self.disturbances == disturbances
    }

    /// Whether its operations have results.
    #[inline(always)]
    pub(crate) fn has_result(&self) -> bool {
        self.atomic.0.has_result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::RemoteKey;

    #[test]
    fn it_takes_what_fits_the_window() {
        let (place, atomic) = ((WindowId(1), Rank(2)), (OpKind::GetAccumulate, Dtype::U64, ReduceOp::Sum));
        let values = [0, 1, 2, 8, 12, 24, 39, 40, 41, 96, 100, u64::MAX / 8, u64::MAX / 8 + 1, u64::MAX];
        for (size, disp_unit) in
            [(0, 1), (7, 1), (8, 8), (41, 1), (100, 8), (u64::MAX >> 1, 1), (100, u32::MAX)]
        {
            let metadata = Metadata { base: 16, size, disp_unit, key: RemoteKey(9), misalignment: 0 };
            let way = PacketShortcut::to(place, (3, PeerAddr(4)), &metadata, atomic, 5);
            for disp in values {
                let expected = metadata.locate(disp, 8).is_ok();
                assert_eq!(way.takes(place, atomic, (disp, 8), 5), expected, "{size} {disp_unit} {disp}");
                assert!(!way.takes(place, atomic, (disp, 16), 5) && !way.takes(place, atomic, (disp, 8), 6));
            }
        }
    }

    #[test]
    fn it_is_for_one_target_and_one_kind_of_operation_at_a_time() {
        let (place, atomic) = ((WindowId(1), Rank(2)), (OpKind::Accumulate, Dtype::U64, ReduceOp::Sum));
        let metadata = Metadata { base: 16, size: 8, disp_unit: 8, key: RemoteKey(9), misalignment: 0 };
        let mut way = PacketShortcut::to(place, (3, PeerAddr(4)), &metadata, atomic, 0);
        assert!(way.takes(place, atomic, (0, 8), 0) && !way.has_result());
        assert!(!way.takes((WindowId(0), Rank(2)), atomic, (0, 8), 0), "another window");
        assert!(!way.takes((WindowId(1), Rank(1)), atomic, (0, 8), 0), "another rank");
        assert!(
            !way.takes(place, (OpKind::Accumulate, Dtype::I64, ReduceOp::Sum), (0, 8), 0),
            "another type"
        );
        way.stage = PacketStage::Posted;
        assert!(!way.takes(place, atomic, (0, 8), 0), "one is under way");
        assert!(!PacketShortcut::NONE.takes(
            (WindowId(NONE), Rank(NONE)),
            PacketShortcut::NONE.atomic,
            (0, 1),
            0
        ));
    }
}
