//! An operation that was accepted and is not posted yet.

use rma_core::dtype::Dtype;
use rma_core::ids::{PeerAddr, Tag};
use rma_core::op::ReduceOp;
use rma_core::provider::{Accepted, Endpoint, LocalPiece, Post, RemoteAddr, RemotePiece, VECTOR_PIECES_MAX};

/// Largest put that is held with its bytes.
pub(super) const INJECT_BYTES_MAX: usize = 64;

/// The pieces at both sides of a vector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    local: [LocalPiece; VECTOR_PIECES_MAX],
    locals: usize,
    remote: [RemotePiece; VECTOR_PIECES_MAX],
    remotes: usize,
}

impl Pieces {
    /// Copies of the lists, whose lengths are within the limits of every endpoint.
    pub(super) fn new(local: &[LocalPiece], remote: &[RemotePiece]) -> Self {
        let mut copy = Self {
            local: [local[0]; VECTOR_PIECES_MAX],
            locals: local.len(),
            remote: [remote[0]; VECTOR_PIECES_MAX],
            remotes: remote.len(),
        };
        copy.local[..local.len()].copy_from_slice(local);
        copy.remote[..remote.len()].copy_from_slice(remote);
        copy
    }

    /// Changes where the pieces at the peer are.
    pub(super) fn change_remote(&mut self, change: impl Fn(RemoteAddr) -> RemoteAddr) {
        self.remote[..self.remotes].iter_mut().for_each(|piece| piece.at = change(piece.at));
    }

    fn local(&self) -> &[LocalPiece] {
        &self.local[..self.locals]
    }

    fn remote(&self) -> &[RemotePiece] {
        &self.remote[..self.remotes]
    }
}

/// What is to be posted. Addresses are the inner endpoint's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    PutInject {
        bytes: [u8; INJECT_BYTES_MAX],
        len: usize,
        at: RemoteAddr,
    },
    Put {
        src: *const u8,
        len: usize,
        at: RemoteAddr,
    },
    Get {
        dst: *mut u8,
        len: usize,
        at: RemoteAddr,
    },
    PutVector(Pieces),
    GetVector(Pieces),
    Atomic {
        operand: *const u8,
        count: usize,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    },
    FetchAtomic {
        operand: *const u8,
        result: *mut u8,
        count: usize,
        at: RemoteAddr,
        dtype: Dtype,
        op: ReduceOp,
    },
    CompareAtomic {
        operand: *const u8,
        compare: *const u8,
        result: *mut u8,
        at: RemoteAddr,
        dtype: Dtype,
    },
}

/// The call with its peer and, but for injected puts, its tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) to: PeerAddr,
    pub(super) tag: Option<Tag>,
    pub(super) call: Call,
}

// SAFETY: the pointers are used by one thread at a time, the endpoint's; whoever posted promised that what they name
// stays until the tag comes back, whichever thread that is.
unsafe impl Send for Held {}

impl Held {
    /// Posts it.
    ///
    /// # Safety
    /// The memory that the call names is there until the tag comes back, as [`Endpoint`] asks.
    pub(super) unsafe fn post<E: Endpoint>(&self, endpoint: &mut E) -> Post {
        let to = self.to;
        // Injected puts do not use it.
        let tag = self.tag.unwrap_or(Tag(0));
        match self.call {
            Call::PutInject { ref bytes, len, at } => {
                endpoint.put_inject(to, &bytes[..len], at).map(|()| Accepted::Complete)
            }
            // SAFETY: by the caller's promise.
            Call::Put { src, len, at } => unsafe { endpoint.put(to, src, len, at, tag) },
            // SAFETY: by the caller's promise.
            Call::Get { dst, len, at } => unsafe { endpoint.get(to, dst, len, at, tag) },
            Call::PutVector(ref pieces) => {
                // SAFETY: by the caller's promise.
                unsafe { endpoint.put_vector(to, pieces.local(), pieces.remote(), tag) }
            }
            Call::GetVector(ref pieces) => {
                // SAFETY: by the caller's promise.
                unsafe { endpoint.get_vector(to, pieces.local(), pieces.remote(), tag) }
            }
            Call::Atomic { operand, count, at, dtype, op } => {
                // SAFETY: by the caller's promise.
                unsafe { endpoint.atomic(to, operand, count, at, dtype, op, tag) }
            }
            Call::FetchAtomic { operand, result, count, at, dtype, op } => {
                // SAFETY: by the caller's promise.
                unsafe { endpoint.fetch_atomic(to, operand, result, count, at, dtype, op, tag) }
            }
            Call::CompareAtomic { operand, compare, result, at, dtype } => {
                // SAFETY: by the caller's promise.
                unsafe { endpoint.compare_atomic(to, operand, compare, result, at, dtype, tag) }
            }
        }
    }
}
