//! Atomics that are messages, which are done at once on a neighbour all the same: by this processor, where it reaches the memory
//! ([`Endpoint::atomic_now`]); or by the neighbour's, which is asked in the place of a packet as long as it polls
//! ([`Endpoint::assist`]).
#![allow(unsafe_code)] // user buffers come as raw pointers

use super::operation::Operation;
use crate::bootstrap::Bootstrap;
use crate::ids::PeerAddr;
use crate::mutation::Mutation;
use crate::progress::{DoneAtOnce, Process};
use crate::provider::{Endpoint, RemoteAddr};
use crate::table::Direct;
use crate::window::Window;

/// What a processor changes in a millisecond or two.
const BYTES_MAX: usize = 1 << 20;

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Does an atomic that is a message, or has the target do it, which does one element. `false`: nothing happened, and a packet
    /// has to do it.
    ///
    /// # Safety
    /// As for [`Engine::post`](super::Engine::post).
    #[inline(never)]
    pub(super) unsafe fn atomic_without_packet(
        &mut self,
        w: &Window<E::Region>,
        t: u32,
        operation: &Operation,
    ) -> bool {
        let &Operation { dtype, disp, len, .. } = operation;
        let Some(Direct { peer, metadata, .. }) = self.targets[t].direct else { return false };
        let state = w.state();
        // Of a window of which nothing is native the memory is not registered.
        let is_possible = w.paths.put && state.may_issue() && self.is_done_in_one_call(len);
        if !is_possible {
            return false;
        }
        // What the target says of its window may be anything.
        let offset = disp.wrapping_mul(metadata.disp_unit.into());
        let at = RemoteAddr { addr: metadata.base.wrapping_add(offset), key: metadata.key };
        let may_go = !self.is_behind_packets(w, t) || Mutation::AskedPastPackets.is_on();
        let (size, near) = (dtype.size(), usize::from(w.paths.near_atomics));
        let is_word = near > 0 && size <= size_of::<u64>() && (len == size || size >= near);
        // SAFETY: the caller's promise.
        let is_done = is_word && may_go && unsafe { self.atomic_by_processor((peer, at), operation) };
        // In an epoch of start nobody waits for the packet, with which COMPLETE travels.
        // SAFETY: as above.
        let is_done = is_done
            || !state.is_pscw()
                && len == dtype.size()
                && unsafe { self.ask_target((peer, at), operation, may_go) };
        if is_done {
            self.shortcut.note_posted();
            self.counters.native_bytes += len as u64;
        }
        is_done
    }

    /// Whether so many bytes may be changed one element after the other by one call, during which this rank does nothing else
    /// for others, nor its other threads for themselves.
    #[inline]
    pub(super) fn is_done_in_one_call(&self, len: usize) -> bool {
        len.wrapping_sub(1) < BYTES_MAX.min(self.limits.message_bytes_max)
    }

    /// Whether anything that was posted to the target before may still be executed there, also what an element that was given
    /// up has left: accumulates of one origin are executed in order.
    fn is_behind_packets(&self, w: &Window<E::Region>, t: u32) -> bool {
        let te = &self.targets[t];
        !te.is_flushed() || te.requests > 0 || te.notes > 0 || !w.acks.is_empty()
    }

    /// # Safety
    /// As for [`Engine::post`](super::Engine::post).
    unsafe fn atomic_by_processor(
        &mut self,
        (peer, at): (PeerAddr, RemoteAddr),
        operation: &Operation,
    ) -> bool {
        let Some(atomic) = operation.atomic() else { return false };
        let (dtype, op) = (operation.dtype, operation.op);
        let elements = (atomic, operation.len / dtype.size());
        // SAFETY: the caller's promise; so for the other one, which looks the place up before.
        let is_done = unsafe { self.endpoint.atomic_now(peer, elements, at, dtype, op) }
            || self.endpoint.reaches(peer, at)
                // SAFETY: as above.
                && unsafe { self.endpoint.atomic_now(peer, elements, at, dtype, op) };
        if is_done {
            self.counters.native_atomics += 1;
            // By line 16.
            self.at_once = DoneAtOnce::FENCED;
        }
        is_done
    }

    /// # Safety
    /// As for [`Engine::post`](super::Engine::post).
    unsafe fn ask_target(
        &mut self,
        (peer, at): (PeerAddr, RemoteAddr),
        operation: &Operation,
        may_go: bool,
    ) -> bool {
        let Some(atomic) = operation.atomic() else { return false };
        // So that whoever says that operations are complete ends the burst.
        self.at_once = DoneAtOnce::UNFENCED;
        let is_short = self.burst.go_on();
        if !is_short || !may_go {
            return false;
        }
        // SAFETY: the caller's promise.
        let is_done = unsafe { self.endpoint.assist(peer, atomic, at, operation.dtype, operation.op) };
        self.counters.assists += u64::from(is_done);
        is_done
    }
}
