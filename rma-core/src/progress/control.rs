//! Packets that are neither operations nor answers: barrier and reduction rounds, metadata requests, and
//! the window protocol's walk over all ranks.

use super::issue::Again;
use super::process::REDUCE_VALUES;
use super::{Failure, Process};
use crate::bootstrap::Bootstrap;
use crate::epoch::{Dissemination, Round};
use crate::ids::{Rank, WindowId};
use crate::pool::NONE;
use crate::provider::{Endpoint, PostError, SendClass};
use crate::state::TargetLockState;
use crate::table::{Sync, TargetError};
use crate::window::{Walk, Window};
use crate::wire::{BatchFlags, Header, PacketKind, Purposes, Reader, WireError};

/// The window number in packets of the reduction, which belongs to no window.
pub(crate) const NO_WINDOW: WindowId = WindowId(NONE);

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    /// Sends the rounds of the reduction that are ready.
    #[inline]
    pub(crate) fn send_reduce_rounds(&mut self) {
        if self.reduce.is_running() {
            self.send_rounds_of_reduction();
        }
    }

    #[inline(never)]
    fn send_rounds_of_reduction(&mut self) {
        while let Some(round) = self.reduce.poll_send() {
            if !self.send_round(SendClass::Reply, PacketKind::Reduce, NO_WINDOW, &round) {
                return;
            }
            self.reduce.on_sent(round.sequence);
        }
    }

    pub(super) fn send_round<const K: usize>(
        &mut self,
        class: SendClass,
        kind: PacketKind,
        window: WindowId,
        round: &Round<K>,
    ) -> bool {
        let header = Header {
            kind,
            flags: round.purposes.bits(),
            count: round.round,
            window,
            sender: self.rank,
            token: round.sequence,
        };
        let mut payload = [0u8; 8 * REDUCE_VALUES];
        for (place, value) in payload.chunks_exact_mut(8).zip(round.values) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        let Ok(Some(peer)) = self.waiting_peer(round.to) else { return false };
        match self.send_as(class, peer, kind, &header.encode(), &payload[..8 * K]) {
            Ok(()) => true,
            Err(PostError::Again) => false,
            Err(PostError::Failed(code)) => {
                self.note_failure(Failure::Peer(round.to, code));
                false
            }
        }
    }

    /// A round arrived.
    pub(crate) fn on_round<const K: usize>(
        barrier: &mut Dissemination<K>,
        header: &Header,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let mut values = [0; K];
        for value in &mut values {
            *value = reader.u64()?;
        }
        let purposes = Purposes::from_bits(header.flags.into());
        let valid = barrier.on_round(header.token, header.count, purposes, values);
        valid.then_some(()).ok_or(WireError::Length(header.token))
    }

    /// Asks a target for its window's metadata, once.
    pub(crate) fn request_metadata(&mut self, w: &mut Window<E::Region>, t: u32) -> Result<(), Again> {
        let te = &self.targets[t];
        if te.metadata_requested {
            return Ok(());
        }
        let Some(peer) = te.peer else { return Err(Again) };
        let header = Header {
            kind: PacketKind::MetadataRequest,
            flags: 0,
            count: 0,
            window: w.id,
            sender: self.rank,
            token: 0,
        };
        match self.send(peer, PacketKind::MetadataRequest, &header.encode(), &[]) {
            Ok(()) => {
                self.targets[t].metadata_requested = true;
                Ok(())
            }
            Err(error) => Err(self.refused(w, t, error)),
        }
    }

    /// Tells a target whose element is about to be freed to acknowledge to the window.
    pub(crate) fn send_detached_done(&mut self, w: &mut Window<E::Region>, rank: Rank) -> Result<(), Again> {
        // So many at one time that everybody who owes an acknowledgement is known by rank.
        if w.acks.is_full() {
            return Err(Again);
        }
        if self.send_detached(w, rank, BatchFlags::DONE)? {
            w.acks.insert(rank);
            self.shortcut.note_posted();
        }
        Ok(())
    }

    /// `false`: the rank cannot be reached any more, which is remembered as the window's error.
    pub(super) fn send_detached(
        &mut self,
        w: &mut Window<E::Region>,
        rank: Rank,
        flags: BatchFlags,
    ) -> Result<bool, Again> {
        let header = Header {
            kind: PacketKind::Batch,
            flags: (flags | BatchFlags::DETACHED).0,
            count: 0,
            window: w.id,
            sender: self.rank,
            token: 0,
        };
        let code = match self.target_peer(w, rank) {
            Ok(Some(peer)) => match self.send(peer, PacketKind::Batch, &header.encode(), &[]) {
                Ok(()) => return Ok(true),
                Err(PostError::Again) => return Err(Again),
                Err(PostError::Failed(code)) => code,
            },
            Ok(None) => return Err(Again),
            Err(code) => code,
        };
        self.note_failure(Failure::Peer(rank, code));
        self.note_late_error(w, rank, TargetError::Peer(code));
        Ok(false)
    }

    /// Goes on with the window protocol's walk: a lock, or an unlock, for every rank.
    ///
    /// Implements: seed: LOCK_ALL window protocol.
    pub(crate) fn walk(&mut self, w: &mut Window<E::Region>) -> Result<(), Again> {
        if matches!(w.walk, Walk::None | Walk::GivenUp) {
            return Ok(());
        }
        while let Some(rank) = w.cursor.poll_rank() {
            let element = w.slots.find(&self.targets, rank);
            if w.is_own(self.rank, rank) {
                w.cursor.on_skipped();
            } else if let (Walk::Lock, Some(t)) = (w.walk, element) {
                // Its own element asks for its lock.
                if self.targets[t].lock == TargetLockState::Called {
                    self.targets[t].lock_wanted = true;
                    w.dirty = true;
                }
                w.cursor.on_skipped();
            } else if w.walk == Walk::Lock && w.parked.remove(rank).is_some() {
                // It is locked, and from now on like all others.
                w.cursor.on_skipped();
            } else if self.walks_by_words(w, rank)? {
                self.walk_words(w, rank)?;
            } else {
                let lock = BatchFlags::LOCK_SHARED | BatchFlags::OVERTAKE;
                let flags = if w.walk == Walk::Lock {
                    lock
                } else {
                    BatchFlags::UNLOCK | w.unlock_flags(BatchFlags::UNLOCK)
                };
                match self.send_detached(w, rank, flags)? {
                    true => w.cursor.on_asked(),
                    // The others still want to be asked; the error is reported at the end.
                    false => w.cursor.on_skipped(),
                }
            }
        }
        Ok(())
    }

    /// Whether the walk is over: every rank has answered, those with an element too.
    pub(crate) fn walk_is_done(&self, w: &Window<E::Region>) -> bool {
        if !w.cursor.is_done() {
            return false;
        }
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            let te = &self.targets[index];
            if te.lock != TargetLockState::Granted && !te.is_dead() {
                return false;
            }
            t = w.slots.next(&self.targets, index);
        }
        true
    }

    /// Sets what a synchronization call wants of every target of the window.
    pub(crate) fn set_sync_all(&mut self, w: &mut Window<E::Region>, sync: Sync) {
        let mut t = w.slots.next(&self.targets, NONE);
        while let Some(index) = t {
            let te = &mut self.targets[index];
            te.sync = te.sync.max(sync);
            t = w.slots.next(&self.targets, index);
        }
        w.dirty = true;
    }
}
