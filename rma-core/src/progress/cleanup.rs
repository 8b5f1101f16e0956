//! CLEANUP_OPS_*: operation elements of completed operations go back to the pool.

use super::{Place, Process, Windows};
use crate::bootstrap::Bootstrap;
use crate::layout::Layouts;
use crate::mutation::Mutation;
use crate::pool::NONE;
use crate::provider::Endpoint;
use crate::table::{OperationState, TargetElement};
use crate::window::Window;
use crate::wire::RECORD_BYTES_MAX;

/// What a thread that waits for a target element is to be told. Freeing one is no event of the fabric, and who does
/// it may have nothing more to poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetNews {
    /// Nobody has asked for an element in vain since.
    None,
    /// Somebody has.
    Wanted,
    /// One came free then.
    Free,
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// CLEANUP_OPS_TARGET: frees the completed operations of one target; returns how many.
    ///
    /// Implements: seed: CLEANUP_OPS_TARGET.
    #[inline]
    pub(crate) fn cleanup_ops_target(&mut self, w: &mut Window<E::Region>, t: u32) -> u32 {
        match self.targets[t].completed_count {
            0 => 0,
            count => self.cleanup_completed(w, t, count),
        }
    }

    fn cleanup_completed(&mut self, w: &mut Window<E::Region>, t: u32, count: u32) -> u32 {
        let mut left = count;
        let mut op = self.targets[t].issued.head;
        while left > 0 && op != NONE {
            let next = self.operations[op].next;
            if self.operations[op].state == OperationState::Complete {
                self.targets[t].issued.remove(&mut self.operations, op);
                self.free_operation(w, t, op);
                left -= 1;
            }
            op = next;
        }
        self.targets[t].completed_count = 0;
        count
    }

    /// CLEANUP_OPS_GLOBAL: the same for every window where something has happened.
    ///
    /// Implements: seed: CLEANUP_OPS_GLOBAL.
    pub(crate) fn cleanup_ops_global(&mut self, windows: &mut Windows<E::Region, E::Passage>) -> u32 {
        windows.iter_mut().filter(|w| w.dirty).map(|w| self.cleanup_ops_win(w)).sum()
    }

    /// CLEANUP_OPS_WIN: the same for every target of the window.
    ///
    /// Implements: seed: CLEANUP_OPS_WIN.
    pub(crate) fn cleanup_ops_win(&mut self, w: &mut Window<E::Region>) -> u32 {
        let mut count = 0;
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            count += self.cleanup_ops_target(w, index);
            t = w.slots.next(&self.targets, index);
        }
        count
    }

    /// Marks an issued operation complete.
    pub(crate) fn complete_operation(&mut self, t: u32, op: u32) {
        if self.operations[op].state == OperationState::Issued {
            self.operations[op].state = OperationState::Complete;
            self.targets[t].completed_count += 1;
        }
    }

    /// An operation has failed, which its element knows until it serves another one; of a request that is remembered longer.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail_operation(&mut self, op: u32) {
        let element = &mut self.operations[op];
        if element.fail() {
            self.unreported.add(op, element.generation);
        }
    }

    /// Gives an element that is in no list back to the pools.
    pub(crate) fn free_operation(&mut self, w: &mut Window<E::Region>, t: u32, op: u32) {
        let element = &mut self.operations[op];
        debug_assert_eq!(
            element.outstanding, 0,
            "a result would be written to memory that is the program's again"
        );
        self.targets[t].user_references -= u32::from(element.refers_to_user_memory());
        element.state = OperationState::Free;
        element.layouts = Layouts::NONE;
        self.drop_note(t, op);
        self.operations.give(&mut w.operations, op);
    }

    /// What a pending operation adds to a packet, or its result to the reply, whichever is more.
    pub(super) fn packet_share(&self, op: u32) -> u64 {
        let element = &self.operations[op];
        let result = if element.kind.has_result() { element.len } else { 0 };
        let head = RECORD_BYTES_MAX as u64 + u64::from(element.table_bytes) + element.note_bytes() as u64;
        head + result.max(element.payload_len() as u64)
    }

    pub(crate) fn link_pending(&mut self, t: u32, op: u32) {
        self.targets[t].pending_bytes += self.packet_share(op);
        if Mutation::PendingReversed.is_on() {
            return self.targets[t].pending.push_front(&mut self.operations, op);
        }
        self.targets[t].pending.push_back(&mut self.operations, op);
    }

    pub(crate) fn relink_pending_front(&mut self, t: u32, op: u32) {
        self.operations[op].state = OperationState::Pending;
        self.targets[t].pending_bytes += self.packet_share(op);
        self.targets[t].pending.push_front(&mut self.operations, op);
    }

    pub(crate) fn unlink_pending(&mut self, t: u32, op: u32) {
        self.targets[t].pending_bytes -= self.packet_share(op);
        self.targets[t].pending.remove(&mut self.operations, op);
        self.targets[t].hurried &= !self.targets[t].pending.is_empty();
    }

    pub(crate) fn link_issued(&mut self, t: u32, op: u32) {
        self.operations[op].state = OperationState::Issued;
        self.targets[t].issued.push_back(&mut self.operations, op);
    }

    /// Takes the element of a target out of the table. Nothing of it is outstanding.
    pub(crate) fn free_target(&mut self, w: &mut Window<E::Region>, t: u32) {
        let te: &TargetElement = &self.targets[t];
        debug_assert!(te.pending.is_empty() && te.issued.is_empty() && te.native_outstanding() == 0);
        debug_assert!(!te.words.is_busy(), "its atomics' results would be taken for another's");
        debug_assert!(!te.flush_outstanding, "its completion would be taken for one of whoever comes next");
        let rank = te.rank;
        if te.peer.is_some() {
            self.peers.unpin(Place::of_target(w, rank));
        }
        w.forget(t);
        self.shortcut.forget(t);
        if w.issue_cursor == t {
            w.issue_cursor = NONE;
        }
        if w.restore_victim == t {
            w.restore_victim = NONE;
        }
        w.slots.remove(&mut self.targets, t);
        self.targets[t] = TargetElement::default();
        self.targets.give(&mut w.targets, t);
        if self.target_news == TargetNews::Wanted {
            self.target_news = TargetNews::Free;
        }
    }
}
