//! Puts and gets of several pieces of memory at either side.

use core::ptr;

use ofi_sys as fi;
use rma_core::ids::{PeerAddr, Tag};
use rma_core::provider::{LocalPiece, Post, PostError, RemotePiece, VECTOR_PIECES_MAX};

use crate::calls;
use crate::endpoint::OfiEndpoint;
use crate::error::fabric_code;
use crate::origin::NO_DESCRIPTORS;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Put,
    Get,
}

impl OfiEndpoint {
    /// Posts a vector, its lists copied to the stack in libfabric's terms.
    ///
    /// # Safety
    /// The local pieces are readable (put) or writable (get) until the tag comes back.
    pub(crate) unsafe fn post_vector(
        &mut self,
        direction: Direction,
        to: PeerAddr,
        local: &[LocalPiece],
        remote: &[RemotePiece],
        tag: Tag,
    ) -> Post {
        let len = self.check_vector(local, remote)?;
        // SAFETY: by the caller's promise.
        unsafe { self.post_pieces(direction, to, (local, remote, len), tag, None) }
    }

    /// Posts what has been checked; data go with it if there are any.
    ///
    /// # Safety
    /// As for [`Self::post_vector`].
    pub(crate) unsafe fn post_pieces(
        &mut self,
        direction: Direction,
        to: PeerAddr,
        (local, remote, len): (&[LocalPiece], &[RemotePiece], usize),
        tag: Tag,
        data: Option<u64>,
    ) -> Post {
        self.post_gathered_to(to)?;
        let ticket = self.ticket(to, len)?;
        let mut msg_iov = [fi::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; VECTOR_PIECES_MAX];
        for (entry, piece) in msg_iov.iter_mut().zip(local) {
            *entry = fi::iovec { iov_base: piece.base.cast(), iov_len: piece.len };
        }
        let (buffers, mut descriptors) = (&mut msg_iov[..local.len()], NO_DESCRIPTORS);
        // SAFETY: by the caller's promise.
        let loan = unsafe { self.lend(buffers, [direction; VECTOR_PIECES_MAX], &mut descriptors) }?;
        let mut rma_iov = [fi::fi_rma_iov { addr: 0, len: 0, key: 0 }; VECTOR_PIECES_MAX];
        for (entry, piece) in rma_iov.iter_mut().zip(remote) {
            *entry = fi::fi_rma_iov { addr: piece.at.addr, len: piece.len, key: ticket.key(piece.at) };
        }
        let message = fi::fi_msg_rma {
            msg_iov: msg_iov.as_ptr(),
            desc: self.list(&descriptors, 0),
            iov_count: local.len(),
            addr: to.0,
            rma_iov: rma_iov.as_ptr(),
            rma_iov_count: remote.len(),
            context: ticket.context,
            data: data.unwrap_or(0),
        };
        let ledger = self.live.domain.ledger();
        let flags = self.put_flags | data.map_or(0, |_| fi::FI_REMOTE_CQ_DATA);
        let result = match direction {
            // SAFETY: the endpoint is open; message and lists are read during the call; the pieces are the
            // caller's promise.
            Direction::Put => unsafe { calls::writemsg(ledger, self.ep, &message, flags) },
            // SAFETY: as above.
            Direction::Get => unsafe { calls::readmsg(ledger, self.ep, &message, fi::FI_COMPLETION) },
        };
        self.posted_with(&ticket, to, tag, result, loan)
    }

    /// The bytes of a vector that keeps the contract. Providers need not check, and some write where the
    /// lists end if the sides differ.
    fn check_vector(&self, local: &[LocalPiece], remote: &[RemotePiece]) -> Result<usize, PostError> {
        let fits = |count: usize, most: usize| (1..=most).contains(&count);
        let local_len = sum(local.iter().map(|piece| piece.len));
        let remote_len = sum(remote.iter().map(|piece| piece.len));
        match local_len {
            Some(len)
                if self.limits.offers_vectors()
                    && fits(local.len(), self.limits.vector_local_max)
                    && fits(remote.len(), self.limits.vector_remote_max)
                    && remote_len == local_len =>
            {
                Ok(len)
            }
            _ => Err(PostError::Failed(fabric_code(fi::FI_EINVAL))),
        }
    }
}

/// The sum, if it can be counted and no piece is empty.
fn sum(mut lens: impl Iterator<Item = usize>) -> Option<usize> {
    lens.try_fold(0_usize, |sum, len| sum.checked_add(len).filter(|_| len > 0))
}
