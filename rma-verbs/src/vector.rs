//! Puts and gets of several pieces of this process's memory: the device gathers and scatters. At the peer there is one
//! piece, as everywhere in ibverbs.

use core::ptr;

use rma_core::ids::{PeerAddr, Tag};
use rma_core::provider::{Accepted, LocalPiece, Post, PostError, RemotePiece};

use crate::endpoint::VerbsEndpoint;
use crate::error::errno_code;
use crate::list::{Request, PIECES_MAX};
use crate::memory::BOUNCE_BYTES;
use crate::objects::piece;
use crate::origin::{Holding, Part};
use crate::post::Local;
use crate::sys;

impl VerbsEndpoint {
    /// See [`rma_core::provider::Endpoint::put_vector`] (`opcode` a write) and `get_vector` (a read).
    ///
    /// # Safety
    /// The local pieces are readable (put) or writable (get) until the tag comes back.
    pub(crate) unsafe fn post_vector(
        &mut self,
        opcode: u32,
        to: PeerAddr,
        local: &[LocalPiece],
        remote: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        let invalid = PostError::Failed(errno_code(libc::EINVAL));
        let (Some(len), [at]) = (sum(local), remote) else { return Err(invalid) };
        if local.len() > self.limits.vector_local_max || at.len != len {
            return Err(invalid);
        }
        let rkey = self.check(to, len, at.at.key)?;
        let is_get = opcode == sys::IBV_WR_RDMA_READ;
        let mut pieces = [piece(ptr::null(), 0, 0); PIECES_MAX];
        let pieces = &mut pieces[..local.len()];
        let (holding, flags) = if len <= self.inline_bytes && !is_get {
            for (entry, part) in pieces.iter_mut().zip(local) {
                *entry = piece(part.base, part.len, 0);
            }
            (Holding::Nothing, sys::IBV_SEND_INLINE)
        } else {
            // SAFETY: by the caller's promise.
            (unsafe { self.hold_pieces(is_get, local, pieces) }?, 0)
        };
        let wr = sys::Wr { rdma: sys::Rdma { remote_addr: at.at.addr, rkey } };
        let request =
            Request { opcode, flags, pieces, wr, data: 0, may_wait: !is_get && len <= BOUNCE_BYTES };
        self.track(to, &request, Part { holding, into: ptr::null_mut(), len: len as u32 }, tag);
        if !is_get {
            self.remember_put(to, at.at, rkey, len);
        }
        Ok(Accepted::Tracked)
    }

    /// Makes each piece known to the device, as it is done for single ones.
    ///
    /// # Safety
    /// As for [`Self::post_vector`].
    unsafe fn hold_pieces(
        &mut self,
        is_get: bool,
        local: &[LocalPiece],
        pieces: &mut [sys::ibv_sge],
    ) -> Result<Holding, PostError> {
        let Some(bundle) = self.bundles.take() else { return Err(PostError::Again) };
        for (index, part) in local.iter().enumerate() {
            let held = if is_get {
                // SAFETY: by the caller's promise.
                unsafe { self.destination(part.base, part.len) }
            } else {
                // SAFETY: as above.
                unsafe { self.source_in_memory(part.base, part.len) }
            };
            match held {
                Ok(Local { piece, holding, into, .. }) => {
                    pieces[index] = piece;
                    self.bundles.add(bundle, Part { holding, into, len: part.len as u32 });
                }
                Err(error) => {
                    // SAFETY: nothing was posted, so no bytes go anywhere.
                    unsafe { self.give_back_bundle(bundle, false) };
                    return Err(error);
                }
            }
        }
        Ok(Holding::Bundle(bundle))
    }

    /// Gives back what the pieces of a vector held; with `has_arrived`, what was read goes to its places.
    ///
    /// # Safety
    /// With `has_arrived`, the destinations are writable.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn give_back_bundle(&mut self, bundle: u32, has_arrived: bool) {
        while let Some(part) = self.bundles.remove(bundle) {
            // SAFETY: by the caller's promise.
            unsafe { self.give_back(part, has_arrived) };
        }
        self.bundles.give_back(bundle);
    }
}

/// The bytes of all pieces, if there are any, none is empty, and the sum can be counted.
fn sum(pieces: &[LocalPiece]) -> Option<usize> {
    let sum =
        pieces.iter().try_fold(0_usize, |sum, piece| sum.checked_add(piece.len).filter(|_| piece.len > 0));
    sum.filter(|&sum| sum > 0)
}
