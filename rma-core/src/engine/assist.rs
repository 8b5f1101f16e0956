//! Atomics that are messages, which a neighbour does at once all the same, as long as it polls: its processor is asked in the
//! place of a packet ([`Endpoint::assist`]).
#![allow(unsafe_code)] // user buffers come as raw pointers

use super::operation::Operation;
use crate::bootstrap::Bootstrap;
use crate::mutation::Mutation;
use crate::progress::{DoneAtOnce, Process};
use crate::provider::{Endpoint, RemoteAddr};
use crate::table::Direct;
use crate::window::Window;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Has the target do an atomic of one element that is a message. `false`: it has not, nothing happened, and a packet
    /// has to do it.
    ///
    /// # Safety
    /// As for [`Engine::post`](super::Engine::post).
    #[inline(never)]
    pub(super) unsafe fn ask_target(&mut self, w: &Window<E::Region>, t: u32, operation: &Operation) -> bool {
        let &Operation { dtype, op, disp, len, .. } = operation;
        let Some(atomic) = operation.atomic() else { return false };
        let te = &self.targets[t];
        let Some(Direct { peer, metadata, .. }) = te.direct else { return false };
        let state = w.state();
        // Of a window of which nothing is native the memory is not registered. In an epoch of start nobody waits for the
        // packet, with which COMPLETE travels.
        let is_possible = w.paths.put && state.may_issue() && !state.is_pscw() && len == dtype.size();
        if !is_possible {
            return false;
        }
        // So that whoever says that operations are complete ends the burst.
        self.at_once = DoneAtOnce::UNFENCED;
        let is_short = self.burst.go_on();
        // Packets that wait or are under way come first, also those of an element that was given up.
        let te = &self.targets[t];
        let is_behind = !te.is_flushed() || te.requests > 0 || te.notes > 0 || !w.acks.is_empty();
        if !is_short || (is_behind && !Mutation::AskedPastPackets.is_on()) {
            return false;
        }
        // What the target says of its window may be anything.
        let offset = disp.wrapping_mul(metadata.disp_unit.into());
        let at = RemoteAddr { addr: metadata.base.wrapping_add(offset), key: metadata.key };
        // SAFETY: the caller's promise.
        let is_done = unsafe { self.endpoint.assist(peer, atomic, at, dtype, op) };
        if is_done {
            self.shortcut.note_posted();
            self.counters.assists += 1;
            self.counters.native_bytes += len as u64;
        }
        is_done
    }
}
