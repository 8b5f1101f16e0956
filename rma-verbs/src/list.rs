//! Lists of work requests: how they reach the device, several at a time, and which of them it reports.
//!
//! Telling the device of new requests (its "doorbell") costs more than most requests, and so does reading what it
//! reports of each. So small puts to a peer to whom something is under way wait in a list for each other: it goes to
//! the device with the next poll, when it is full, or with whatever else is posted. The first of a row never waits,
//! and its completion makes the caller poll, so none waits longer than the one before it is under way.
//!
//! Of a list the device reports the last request only: a connection completes its requests in order, so those before
//! are complete, too. A request that fails is reported in any case. As each list ends with a request that is reported,
//! no more than a list is ever unreported.

use rma_core::ids::PeerAddr;
use rma_core::provider::{Completion, CompletionBatch, FabricCode, PostError};

use crate::connect::ORIGIN;
use crate::endpoint::VerbsEndpoint;
use crate::error::errno_code;
use crate::poll::{work_id, OUTGOING, TRACKED};
use crate::sys;

/// Requests of a list at most.
pub(crate) const LIST_MAX: usize = 16;
/// Pieces of memory that a request names at most.
pub(crate) const PIECES_MAX: usize = 8;

/// No request.
pub(crate) const NONE: u32 = u32::MAX;

/// Requests to one peer that the device has not been told of.
pub(crate) struct List {
    requests: [sys::ibv_send_wr; LIST_MAX],
    pieces: [[sys::ibv_sge; PIECES_MAX]; LIST_MAX],
    len: usize,
    peer: u32,
}

impl core::fmt::Debug for List {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("List").field("len", &self.len).field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl List {
    pub(crate) fn new() -> Self {
        let nowhere = sys::Wr { rdma: sys::Rdma { remote_addr: 0, rkey: 0 } };
        let piece = sys::ibv_sge { addr: 0, length: 0, lkey: 0 };
        Self {
            requests: [sys::ibv_send_wr::new(0, 0, 0, &mut [], nowhere); LIST_MAX],
            pieces: [[piece; PIECES_MAX]; LIST_MAX],
            len: 0,
            peer: 0,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether requests to this peer wait in it.
    pub(crate) fn is_for(&self, peer: usize) -> bool {
        self.len > 0 && self.peer as usize == peer
    }

    /// Links the requests with their neighbours and their pieces, and marks the last.
    #[inline]
    fn link(&mut self) -> *mut sys::ibv_send_wr {
        let first = self.requests.as_mut_ptr();
        for index in 0..self.len {
            let is_last = index + 1 == self.len;
            let request = &mut self.requests[index];
            request.sg_list = self.pieces[index].as_mut_ptr();
            request.next = if is_last { core::ptr::null_mut() } else { first.wrapping_add(index + 1) };
            request.send_flags &= !sys::IBV_SEND_SIGNALED;
            if is_last {
                request.send_flags |= sys::IBV_SEND_SIGNALED;
            }
        }
        first
    }

    /// Takes out the first `count` requests.
    fn forget(&mut self, count: usize) {
        self.requests.copy_within(count..self.len, 0);
        self.pieces.copy_within(count..self.len, 0);
        self.len -= count;
    }
}

/// A request for [`VerbsEndpoint::submit`].
pub(crate) struct Request<'a> {
    pub(crate) opcode: u32,
    pub(crate) flags: u32,
    pub(crate) pieces: &'a [sys::ibv_sge],
    pub(crate) wr: sys::Wr,
    /// What the device of the peer says with its completion, where the opcode has that.
    pub(crate) data: u32,
    /// It may wait for others to the same peer while something is under way.
    pub(crate) may_wait: bool,
}

impl VerbsEndpoint {
    /// Sees to it that [`Self::submit`] finds room for a request to this peer.
    #[inline]
    pub(crate) fn make_room(&mut self, peer: PeerAddr) -> Result<(), PostError> {
        if !self.list.is_empty() && (u64::from(self.list.peer) != peer.0 || self.list.len == LIST_MAX) {
            self.ring();
            if !self.list.is_empty() {
                return Err(PostError::Again);
            }
        }
        Ok(())
    }

    /// Takes a request to a peer, as its origin. `number` is [`Self::number_of_packet`]'s, or the operation's slot.
    /// The caller has checked the connection and asked [`Self::make_room`].
    #[inline]
    pub(crate) fn submit(&mut self, peer: PeerAddr, number: u32, request: &Request<'_>) {
        let known = &mut self.peers[peer.0 as usize];
        let link = &mut known.links[ORIGIN];
        let waits = request.may_wait && link.posted > 0 && self.list.len + 1 < LIST_MAX;
        link.posted += 1;
        link.is_used = true;
        self.order[number as usize] = NONE;
        match known.newest {
            NONE => known.oldest = number,
            newest => self.order[newest as usize] = number,
        }
        known.newest = number;
        let tracked = self.tracked.len() as u32;
        let id =
            if number < tracked { work_id(TRACKED, number) } else { work_id(OUTGOING, number - tracked) };
        let list = &mut self.list;
        list.peer = peer.0 as u32;
        list.pieces[list.len][..request.pieces.len()].copy_from_slice(request.pieces);
        let entry = &mut list.requests[list.len];
        entry.wr_id = id;
        entry.num_sge = request.pieces.len() as i32;
        entry.opcode = request.opcode;
        entry.send_flags = request.flags;
        entry.imm_data = request.data.to_be();
        entry.wr = request.wr;
        list.len += 1;
        if !waits {
            self.ring();
        }
    }

    /// The number of an outgoing request's buffer among all that a connection completes in order.
    #[inline]
    pub(crate) fn number_of_packet(&self, buffer: u32) -> u32 {
        self.tracked.len() as u32 + buffer
    }

    /// Tells the device of the list. What it does not take stays for the next poll.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if self.list.is_empty() {
            return;
        }
        let first = self.list.link();
        let peer = self.list.peer as usize;
        let Some(qp) = &self.peers[peer].links[ORIGIN].qp else {
            return self.refused_from(0, libc::ENOTCONN);
        };
        let mut bad = core::ptr::null_mut();
        // SAFETY: the requests and their pieces are the list's own and stay during the call. The memory that they
        // name is the endpoint's until their completion, or the caller's promise until the tag comes back.
        let result = unsafe { qp.post_list(first, &mut bad) };
        if result == 0 {
            self.list.len = 0;
            return;
        }
        let taken = (bad as usize).wrapping_sub(first as usize) / size_of::<sys::ibv_send_wr>();
        // A driver that does not say which one has taken none.
        self.refused_from(if taken < self.list.len { taken } else { 0 }, result);
    }

    /// The device took so many requests of the list and no more.
    #[cold]
    #[inline(never)]
    fn refused_from(&mut self, taken: usize, result: i32) {
        self.list.forget(taken);
        // Its queue is full: it drains as others complete, and the rest goes to it with a later poll. Its last
        // request reports those that were taken, too.
        if matches!(result, libc::ENOMEM | libc::EAGAIN) {
            return;
        }
        let (peer, code) = (self.list.peer as usize, errno_code(result));
        let count = core::mem::take(&mut self.list.len);
        for number in self.cut_newest(peer, count) {
            if let Some(completion) = self.finish(number, Err(code)) {
                self.ready.push_back(completion);
            }
        }
        // What was taken before is reported with the end of the connection.
        self.post_end(peer);
        self.peer_lost(peer, code);
    }

    /// Takes the newest `count` requests out of the order of the peer's.
    fn cut_newest(&mut self, peer: usize, count: usize) -> Vec<u32> {
        let (mut all, mut number) = (Vec::new(), self.peers[peer].oldest);
        while number != NONE {
            all.push(number);
            number = self.order[number as usize];
        }
        let cut = all.split_off(all.len().saturating_sub(count));
        let known = &mut self.peers[peer];
        match all.last() {
            Some(&last) => {
                known.newest = last;
                self.order[last as usize] = NONE;
            }
            None => (known.oldest, known.newest) = (NONE, NONE),
        }
        cut
    }

    /// The device has reported the request with this number: those before it are complete.
    #[inline]
    pub(crate) fn settle(
        &mut self,
        peer: usize,
        number: u32,
        outcome: Result<(), FabricCode>,
        out: &mut CompletionBatch,
    ) {
        loop {
            let known = &mut self.peers[peer];
            let oldest = known.oldest;
            if oldest == NONE {
                return;
            }
            known.oldest = self.order[oldest as usize];
            if known.oldest == NONE {
                known.newest = NONE;
            }
            let is_last = oldest == number;
            if let Some(completion) = self.finish(oldest, if is_last { outcome } else { Ok(()) }) {
                self.say_completion(out, completion);
            }
            if is_last {
                return;
            }
        }
    }

    /// The request with this number is complete, and in no order any more.
    #[inline]
    fn finish(&mut self, number: u32, outcome: Result<(), FabricCode>) -> Option<Completion> {
        match number.checked_sub(self.tracked.len() as u32) {
            None => Some(self.finish_tracked(number, outcome)),
            Some(buffer) => {
                self.finish_packet(buffer, ORIGIN);
                None
            }
        }
    }
}
