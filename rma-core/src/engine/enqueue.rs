//! How an operation gets into its target's list.
#![allow(unsafe_code)] // user buffers come as raw pointers

use super::operation::{Operation, Wanted};
use crate::bootstrap::Bootstrap;
use crate::info::LockProtocol;
use crate::layout::Layouts;
use crate::path::Path;
use crate::provider::Endpoint;
use crate::state::TargetLockState;
use crate::table::Sync;
use crate::window::Window;
use crate::wire::OpKind;

impl<E: Endpoint, B: Bootstrap> crate::progress::Process<E, B> {
    /// Fills an element and puts it into its target's list; issues what need not be kept back. Returns the
    /// element's generation.
    ///
    /// # Safety
    /// As for [`Engine::post`].
    pub(super) unsafe fn enqueue(
        &mut self,
        w: &mut Window<E::Region>,
        t: u32,
        op: u32,
        operation: &Operation,
        layouts: Option<&Layouts>,
        wanted: Wanted,
    ) -> u32 {
        let kind = operation.kind;
        // SAFETY: the caller's promise.
        let generation = unsafe { self.begin_element(t, op, operation, layouts) };
        if layouts.is_some() {
            self.plan_layouts(op);
        }
        if let Some(dynamic) = &w.dynamic {
            let element = &mut self.operations[op];
            element.regional =
                element.layouts.target.is_none() && dynamic.is_native(kind, element.len) && !element.packed;
        }
        if let Wanted::Notification(note) = wanted {
            self.expect_note(w, t, op, note);
        }
        self.link_pending(t, op);
        if layouts.is_none() && kind == OpKind::Put && w.state().is_pscw() && !w.is_served {
            self.let_ride(w, t, op);
        }
        // Somebody waits for a notification.
        self.operations[op].is_note = wanted == Wanted::Note;
        self.targets[t].hurried |= matches!(wanted, Wanted::Note | Wanted::Notification(_));
        // What it may have to wait for must not be kept back, unless all of it may go with the lock request.
        let te = &self.targets[t];
        if te.order.in_force && te.lock != TargetLockState::Called && self.is_native(w, op) {
            self.targets[t].hurried = true;
        }
        if !self.waits_alone(w, t, op) {
            self.issue_queued(w, t, operation);
        }
        generation
    }

    /// Fills an element with an operation, which is in no list yet. Returns its generation.
    ///
    /// # Safety
    /// As for [`Engine::post`].
    #[inline(always)]
    pub(super) unsafe fn begin_element(
        &mut self,
        t: u32,
        op: u32,
        operation: &Operation,
        layouts: Option<&Layouts>,
    ) -> u32 {
        let &Operation { kind, dtype, op: reduction, disp, len, origin, result, compare, .. } = operation;
        let element = &mut self.operations[op];
        element.begin(kind, dtype, reduction, disp, len as u64, origin, result);
        element.target = t;
        let te = &mut self.targets[t];
        (element.number, element.section) = (te.posted, te.order.section);
        te.posted = te.posted.wrapping_add(1);
        let generation = element.generation;
        if let Some(layouts) = layouts {
            element.layouts = layouts.clone();
        }
        if kind == OpKind::CompareAndSwap {
            // SAFETY: readable for one element by the caller's promise.
            let compare = unsafe { core::slice::from_raw_parts(compare, len) };
            // SAFETY: readable for one element by the caller's promise.
            let operand = unsafe { core::slice::from_raw_parts(origin, len) };
            element.set_inline_pair(compare, operand);
        } else {
            // SAFETY: `origin` is readable for the payload by the caller's promise.
            unsafe { element.keep_inline() };
        }
        self.shortcut.note_posted();
        self.counters.payload_bytes_copied += self.operations[op].kept_bytes();
        self.targets[t].user_references += u32::from(self.operations[op].refers_to_user_memory());
        generation
    }

    /// Issues what is in the target's list and need not be kept back.
    #[inline(always)]
    fn issue_queued(&mut self, w: &mut Window<E::Region>, t: u32, operation: &Operation) {
        let te = &self.targets[t];
        if te.lock == TargetLockState::Called && te.sync == Sync::None {
            let may_wait = self.may_wait_for_sync(w, t, operation) && !self.takes_words_first(w, t);
            let te = &mut self.targets[t];
            te.lock_wanted |= te.hurried || !may_wait;
            if w.words.is_none() && !te.lock_wanted && !w.pressure {
                // All that is pending waits for the epoch's end.
                return;
            }
        }
        w.dirty = true;
        // What the fabric does not take now stays pending; progress tries again.
        self.make_rma_progress_target(w, t);
    }

    /// A small put of start's epoch rides with COMPLETE where the fabric would make a packet of it all the same: nobody
    /// answers it then.
    #[cold]
    #[inline(never)]
    fn let_ride(&mut self, w: &mut Window<E::Region>, t: u32, op: u32) {
        let rides = self.operations[op].len <= self.packet_put_bytes_max(w, t) as u64;
        if rides && self.is_native(w, op) && self.operations[op].notify.is_none() {
            (self.operations[op].packed, self.operations[op].regional) = (true, false);
        }
    }

    /// What the fabric says of puts in packets to the target, which is not known to be another's before it is resolved.
    #[cold]
    #[inline(never)]
    fn packet_put_bytes_max(&mut self, w: &mut Window<E::Region>, t: u32) -> usize {
        let peer = if self.resolve(w, t) { self.targets[t].peer } else { None };
        peer.map_or(0, |peer| self.endpoint.packet_put_bytes_max(peer))
    }

    /// Whether the lock is words that are to be taken whatever the epoch will be.
    fn takes_words_first(&mut self, w: &mut Window<E::Region>, t: u32) -> bool {
        let Some(words) = &w.words else { return false };
        if words.choice == LockProtocol::Nic && words.reaches_all {
            return true;
        }
        self.resolve(w, t) && self.targets[t].peer.is_some_and(|peer| self.endpoint.completes_at_once(peer))
    }

    /// Whether the lock request may wait for the epoch's end, so that all goes in one packet.
    fn may_wait_for_sync(&mut self, w: &mut Window<E::Region>, t: u32, operation: &Operation) -> bool {
        let is_small = operation.len <= self.config.small_bytes_max
            || operation.kind == OpKind::Put && operation.len <= self.packet_put_bytes_max(w, t);
        let te = &self.targets[t];
        let together = if te.pending.count == 1 { true } else { self.config.coalesce };
        let atomic = !matches!(operation.kind, OpKind::Put | OpKind::Get);
        self.config.single_op_lock
            && w.checker.is_none()
            && together
            && is_small
            && te.pending.count <= self.config.piggyback_threshold
            && self.fits_packet(te.pending_bytes)
            && !(atomic && w.paths.of(operation.kind, operation.dtype, operation.op) == Path::Native)
    }
}
