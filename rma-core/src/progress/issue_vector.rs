//! Native path of operations with layouts, where the fabric takes several pieces of memory at once.
#![allow(unsafe_code)] // posts raw pointers to the user's buffers

use core::ptr;

use super::tag::TagKind;
use super::Process;
use crate::bootstrap::Bootstrap;
use crate::ids::{PeerAddr, RemoteKey};
use crate::layout::block_at;
use crate::provider::{
    Accepted, Endpoint, Limits, LocalPiece, PostError, RemoteAddr, RemotePiece, VECTOR_PIECES_MAX,
};
use crate::table::{OperationElement, OperationState};
use crate::wire::{Metadata, OpKind};

/// The pieces of one put or get, on the stack.
struct Vector {
    local: [LocalPiece; VECTOR_PIECES_MAX],
    locals: usize,
    remote: [RemotePiece; VECTOR_PIECES_MAX],
    remotes: usize,
    /// Bytes of the pieces of either side.
    len: u64,
}

impl Vector {
    const EMPTY: Self = Self {
        local: [LocalPiece { base: ptr::null_mut(), len: 0 }; VECTOR_PIECES_MAX],
        locals: 0,
        remote: [RemotePiece { at: RemoteAddr { addr: 0, key: RemoteKey(0) }, len: 0 }; VECTOR_PIECES_MAX],
        remotes: 0,
        len: 0,
    };

    /// What comes next of a put or get: from its position on, as much as one post may say. At least one byte.
    fn next(element: &OperationElement, metadata: &Metadata, limits: &Limits) -> Self {
        let first = metadata.base.wrapping_add(element.disp.wrapping_mul(metadata.disp_unit.into()));
        let end = element.len.min(element.posted.saturating_add(limits.message_bytes_max as u64));
        let layouts = &element.layouts;
        let is_put = element.kind == OpKind::Put;
        let local_layout = if is_put { &layouts.origin } else { &layouts.result };
        let mut vector = Self::EMPTY;
        let mut position = element.posted;
        while position < end {
            let (target_at, target_len) = block_at(layouts.target.as_ref(), position, end);
            let (local_at, local_len) = block_at(local_layout.as_ref(), position, end);
            let base = if is_put {
                element.payload_ptr(local_at).cast_mut()
            } else {
                element.result.wrapping_offset(local_at as isize)
            };
            let at = RemoteAddr { addr: first.wrapping_add_signed(target_at), key: metadata.key };
            let len = target_len.min(local_len);
            if !vector.push(base, at, len, limits) {
                break;
            }
            position += len;
        }
        vector
    }

    /// Adds bytes that are in a row at both sides; `false` when a list is full. What continues the last piece
    /// of a side makes that one longer.
    fn push(&mut self, base: *mut u8, at: RemoteAddr, len: u64, limits: &Limits) -> bool {
        let continues_local = self.locals > 0 && {
            let last = &self.local[self.locals - 1];
            last.base.wrapping_add(last.len) == base
        };
        let continues_remote = self.remotes > 0 && {
            let last = &self.remote[self.remotes - 1];
            last.at.addr.wrapping_add(last.len as u64) == at.addr
        };
        let has_room = |count: usize, most: usize| count < most.clamp(1, VECTOR_PIECES_MAX);
        if !(continues_local || has_room(self.locals, limits.vector_local_max))
            || !(continues_remote || has_room(self.remotes, limits.vector_remote_max))
        {
            return false;
        }
        if !continues_local {
            self.local[self.locals] = LocalPiece { base, len: 0 };
            self.locals += 1;
        }
        if !continues_remote {
            self.remote[self.remotes] = RemotePiece { at, len: 0 };
            self.remotes += 1;
        }
        self.local[self.locals - 1].len += len as usize;
        self.remote[self.remotes - 1].len += len as usize;
        self.len += len;
        true
    }
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Whether the pieces of the operation may be posted several at a time.
    pub(super) fn takes_vectors(&self, op: u32) -> bool {
        let element = &self.operations[op];
        self.limits.offers_vectors()
            && !element.layouts.is_none()
            && matches!(element.kind, OpKind::Put | OpKind::Get)
    }

    /// Posts as many of the next pieces of a put or get as one vector holds; returns their bytes, and how they were
    /// accepted.
    ///
    /// Implements: ours: vectors.
    pub(super) fn post_vector(
        &mut self,
        peer: PeerAddr,
        op: u32,
        metadata: &Metadata,
    ) -> Result<(u64, Accepted), PostError> {
        let element = &self.operations[op];
        debug_assert_eq!(element.state, OperationState::Pending);
        let tag = TagKind::Operation.tag(element.generation, op);
        let is_put = element.kind == OpKind::Put;
        let vector = Vector::next(element, metadata, &self.limits);
        let (local, remote) = (&vector.local[..vector.locals], &vector.remote[..vector.remotes]);
        let posted = match (local, remote) {
            // SAFETY: the origin buffer (or the element itself, which is not freed before its tags are back)
            // stays readable until the operation is complete.
            ([from], [into]) if is_put => unsafe {
                self.endpoint.put(peer, from.base, from.len, into.at, tag)
            },
            // SAFETY: as above.
            _ if is_put => unsafe { self.endpoint.put_vector(peer, local, remote, tag) },
            // SAFETY: the result buffer stays writable until the operation is complete.
            ([into], [from]) => unsafe { self.endpoint.get(peer, into.base, into.len, from.at, tag) },
            // SAFETY: as above.
            _ => unsafe { self.endpoint.get_vector(peer, local, remote, tag) },
        };
        if posted == Err(PostError::Again) {
            self.counters.again += 1;
        }
        posted.map(|accepted| (vector.len, accepted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{CompletionScope, Order};

    fn limits(vector_local_max: usize, vector_remote_max: usize) -> Limits {
        Limits {
            inject_bytes_max: 0,
            send_bytes_max: 512,
            message_bytes_max: 1024,
            outstanding_max: 1,
            receive_buffers: 1,
            order: Order::default(),
            put_completes: CompletionScope::Remote,
            needs_target_progress: false,
            vector_local_max,
            vector_remote_max,
        }
    }

    fn push(vector: &mut Vector, local: usize, remote: u64, limits: &Limits) -> bool {
        let at = RemoteAddr { addr: remote, key: RemoteKey(1) };
        vector.push(ptr::without_provenance_mut(local), at, 8, limits)
    }

    #[test]
    fn what_continues_a_piece_needs_no_room() {
        let limits = limits(1, 2);
        let mut vector = Vector::EMPTY;
        assert!(push(&mut vector, 64, 0, &limits));
        assert!(push(&mut vector, 72, 8, &limits));
        assert!(push(&mut vector, 80, 100, &limits));
        assert!(!push(&mut vector, 88, 200, &limits), "three pieces at the target");
        assert!(!push(&mut vector, 96, 108, &limits), "two pieces at the origin");
        assert!(push(&mut vector, 88, 108, &limits));
        assert_eq!((vector.locals, vector.remotes, vector.len), (1, 2, 32));
        assert_eq!((vector.local[0].len, vector.remote[0].len, vector.remote[1].len), (32, 16, 16));
    }

    #[test]
    fn no_provider_is_asked_for_more_than_the_lists_hold() {
        let limits = limits(usize::MAX, usize::MAX);
        let mut vector = Vector::EMPTY;
        let taken =
            (0..100).take_while(|&index| push(&mut vector, 64 + 16 * index, 16 * index as u64, &limits));
        assert_eq!(taken.count(), VECTOR_PIECES_MAX);
    }
}
