//! What all windows of this process share: the endpoint, the shared pools, peers, replies, counters.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{fence, Ordering};

use super::burst::{Burst, DoneAtOnce};
use super::cleanup::TargetNews;
use super::control::NO_WINDOW;
use super::deaths::{Losses, WINDOW_GONE};
use super::flood::Flood;
use super::held::HeldRequests;
use super::issue::Again;
use super::peers::{PeerTable, Place};
use super::replies::Replies;
use crate::bootstrap::{AddressBytes, Bootstrap, Lookup};
use crate::config::Config;
use crate::counters::Counters;
use crate::epoch::Dissemination;
use crate::error::{Call, FabricCode, RmaError};
use crate::ghost::{self, Ghost};
use crate::ids::{PeerAddr, Rank, WindowId};
use crate::info::WindowOptions;
use crate::lock::words::Claim;
use crate::mutation::Mutation;
use crate::pool::{Arena, NONE};
use crate::provider::{CompletionBatch, CompletionScope, Endpoint, Limits, NativeOps, PostError, SendClass};
use crate::state::TargetLockState;
use crate::table::{
    Direct, KeptPassage, LockCells, Marks, OperationArena, OperationState, Order, Shortcut, TargetElement,
    TargetError, Unreported,
};
use crate::window::{Remains, Window};
use crate::wire::{Header, PacketKind, WireError};

/// Numbers in the reduction with which windows are made. The last are the windows that some rank has.
pub(crate) const REDUCE_VALUES: usize = 18;

/// The reason in errors about a rank whose address cannot be had; the bootstrap's own message is
/// reported once beside it.
pub(crate) const NO_ADDRESS: FabricCode = FabricCode { code: 0, text: "its provider address cannot be had" };

/// So often calls are pending while somebody waits in vain for a word: for some seconds where who waits sleeps, and most
/// of one where there is always something to do. That the rank has died is known earlier as a rule.
const UNANSWERED_POLLS_MAX: u32 = 1 << 18;

/// The reason in errors about a rank without ghost.
const NO_GHOST: FabricCode = FabricCode { code: 0, text: "it has no ghost process" };

/// Something that ends the usefulness of the whole engine, or of one peer, for good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// The endpoint is broken.
    Endpoint(FabricCode),
    /// A rank cannot be reached any more; barriers with it will never complete.
    Peer(Rank, FabricCode),
    /// A rank's address could not be had.
    Bootstrap(String),
}

impl Failure {
    /// The rank that is lost, if it is one.
    pub(crate) fn peer(&self) -> Option<(Rank, FabricCode)> {
        match self {
            Self::Peer(rank, code) => Some((*rank, *code)),
            Self::Endpoint(_) | Self::Bootstrap(_) => None,
        }
    }

    /// The same of one that is not only gone from a window.
    pub(crate) fn lost_peer(&self) -> Option<(Rank, FabricCode)> {
        self.peer().filter(|(_, code)| *code != WINDOW_GONE)
    }

    pub(crate) fn report(&self, call: Call) -> RmaError {
        match self {
            Self::Endpoint(code) => RmaError::Endpoint { call, code: *code },
            Self::Peer(target, code) => RmaError::Peer { call, target: *target, code: *code },
            Self::Bootstrap(message) => RmaError::Bootstrap { call, message: message.clone() },
        }
    }
}

/// No lock was called.
pub(crate) const NOTHING_CALLED: (WindowId, Rank) = (WindowId(NONE), Rank(NONE));

/// This process's side of the fabric.
#[derive(Debug)]
pub(crate) struct Process<E: Endpoint, B> {
    pub(crate) endpoint: E,
    pub(crate) bootstrap: B,
    pub(crate) rank: Rank,
    pub(crate) size: u32,
    pub(crate) config: Config,
    pub(crate) limits: Limits,
    /// A put's completion says nothing about the target: [`Limits::put_completes`] is local.
    pub(crate) puts_need_flush: bool,
    pub(crate) operations: OperationArena,
    pub(crate) unreported: Unreported,
    pub(crate) targets: Arena<TargetElement>,
    /// The way of operations to the target used last.
    pub(crate) shortcut: Shortcut,
    pub(crate) passage: KeptPassage<E::Passage>,
    /// The lock that was called last: an operation there may be the first of its epoch. A hint, which has to be looked up.
    pub(crate) called: (WindowId, Rank),
    /// The neighbour that was unlocked last without an element, and its lock; and the one before, when it has been looked
    /// whether the epoch is repeated.
    pub(crate) left: Option<(WindowId, Rank, Claim)>,
    pub(crate) left_before: Option<(WindowId, Rank, Claim)>,
    pub(crate) target_news: TargetNews,
    /// What the fabric needs for locks that are words: of the target elements, and of the windows' seats.
    pub(crate) lock_cells: LockCells,
    pub(crate) seat_cells: LockCells,
    /// In some window somebody may have to look again for such a lock.
    pub(crate) wants_looks: bool,
    /// Steps of such locks that were complete at once, and what neighbours have told by words, since progress was made
    /// last: no completion tells of them.
    pub(crate) steps_at_once: usize,
    /// Not 0 behind a call for progress that found nothing but answers which let nothing go on; in one, how many so far.
    pub(crate) calm: u32,
    pub(crate) peers: PeerTable,
    pub(crate) replies: Replies,
    /// Numbers the access epochs of start, on all windows.
    pub(crate) access_sequence: u32,
    /// Requests that arrived while no reply buffer was free, in order.
    pub(crate) held: HeldRequests,
    pub(crate) batch: CompletionBatch,
    /// Where packets are put together.
    pub(crate) stage: Box<[u8]>,
    pub(crate) reduce: Dissemination<REDUCE_VALUES>,
    pub(crate) counters: Counters,
    pub(crate) failure: Option<Failure>,
    /// Forgotten addresses of ranks, losses and failures, modulo 2^32: while it is the same, so is what is known of neighbours.
    pub(crate) disturbances: u32,
    /// The first rank that may live of those to which operations were given up.
    pub(super) doubt: Option<Rank>,
    pub(crate) flood: Flood,
    /// The rank that waits to hear of this process, which cannot connect to it.
    pub(crate) unanswered: Option<Rank>,
    /// How often calls were pending since.
    unanswered_polls: u32,
    /// Since everything was complete the last time ([`Process::pass_fence`]).
    pub(crate) at_once: DoneAtOnce,
    /// Atomics since then that neighbours are asked for.
    pub(crate) burst: Burst,
    /// Regions registered so far: no two of them, near in time, wish for the same key.
    pub(crate) regions_registered: u32,
    pub(crate) losses: Losses,
    /// Looks of locks since the first failure that came before a loss.
    pub(crate) early_looks: u32,
    /// This rank has ended its part in the job: it comes to nothing any more, and serves others.
    pub(crate) has_left: bool,
    /// How often those who are waited for were asked whether they have the window.
    pub(super) inquiries: u32,
    /// Nobody may be contacted for the first time now.
    pub(crate) is_deferring: bool,
    /// The process that has the target role of this rank's served windows.
    pub(crate) ghost: Option<Box<dyn Ghost>>,
    /// This process is the ghost of the rank, and has no other role.
    pub(crate) is_ghost: bool,
    /// A ghost that was contacted and does not know yet where to answer.
    introducing: Option<(Place, PeerAddr)>,
    /// Memory of windows that were freed while others might still access it. Behind the endpoint, which is closed before it.
    pub(crate) kept: Vec<Remains>,
}

impl<E: Endpoint, B: Bootstrap> Process<E, B> {
    pub(crate) fn new(endpoint: E, bootstrap: B, config: Config) -> Self {
        let mut config = config.normalized();
        config.put_data = config.put_data.or_else(|| Some(endpoint.puts_cost_packets()));
        let limits = *endpoint.limits();
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        Self {
            ghost: None,
            is_ghost: false,
            introducing: None,
            kept: Vec::new(),
            endpoint,
            bootstrap,
            rank,
            size,
            limits,
            puts_need_flush: limits.put_completes == CompletionScope::Local
                && !Mutation::LocalCountsAsRemote.is_on(),
            operations: OperationArena::new(config.operation_pool_global),
            unreported: Unreported::new(),
            targets: Arena::new(config.target_pool_global),
            shortcut: Shortcut::NONE,
            passage: KeptPassage::NONE,
            called: NOTHING_CALLED,
            left: None,
            left_before: None,
            target_news: TargetNews::None,
            lock_cells: LockCells::new(),
            seat_cells: LockCells::new(),
            wants_looks: false,
            steps_at_once: 0,
            calm: 0,
            peers: PeerTable::new(config.peers.min(size as usize + 1)),
            replies: Replies::new(config.reply_buffers, limits.send_bytes_max),
            access_sequence: 0,
            held: HeldRequests::new(limits.receive_buffers),
            batch: CompletionBatch::new(),
            stage: vec![0; limits.send_bytes_max].into_boxed_slice(),
            reduce: Dissemination::new(rank, size),
            counters: Counters::default(),
            failure: None,
            disturbances: 0,
            doubt: None,
            flood: Flood::default(),
            unanswered: None,
            unanswered_polls: 0,
            at_once: DoneAtOnce::NOTHING,
            burst: Burst::default(),
            regions_registered: 0,
            losses: Losses::new(),
            early_looks: 0,
            has_left: false,
            inquiries: 0,
            is_deferring: false,
            config,
        }
    }

    /// What the fabric executes on memory of its own, or on any.
    pub(crate) fn native(&self, is_allocated: bool) -> &NativeOps {
        if is_allocated {
            self.endpoint.native_allocated()
        } else {
            self.endpoint.native()
        }
    }

    /// The options of a window with what the settings say where they say nothing.
    pub(crate) fn options_in_force(&self, options: &WindowOptions) -> WindowOptions {
        WindowOptions {
            model: options.model.or(Some(self.config.memory_model)),
            check: options.check.or(Some(self.config.check)),
            lock_protocol: options.lock_protocol.or(Some(self.config.lock_protocol)),
            ..*options
        }
    }

    /// The peer of a rank; `None` while its address is being looked up.
    pub(crate) fn peer(&mut self, rank: Rank) -> Result<Option<PeerAddr>, FabricCode> {
        if let Some(peer) = self.peers.get(Place::of(rank)) {
            return Ok(Some(peer));
        }
        self.connect_slow(Place::of(rank))
    }

    /// The same of a rank that waits to hear of this process.
    #[inline]
    pub(crate) fn waiting_peer(&mut self, rank: Rank) -> Result<Option<PeerAddr>, FabricCode> {
        match self.peers.get(Place::of(rank)) {
            Some(peer) => Ok(Some(peer)),
            None => self.connect_to_waiting(rank),
        }
    }

    #[cold]
    #[inline(never)]
    fn connect_to_waiting(&mut self, rank: Rank) -> Result<Option<PeerAddr>, FabricCode> {
        let found = self.connect_slow(Place::of(rank));
        if found.is_err() {
            self.unanswered = self.unanswered.or(Some(rank));
        } else if self.unanswered == Some(rank) {
            (self.unanswered, self.unanswered_polls) = (None, 0);
        }
        found
    }

    /// The peer to which operations on a rank's part of the window go.
    pub(crate) fn target_peer(
        &mut self,
        w: &Window<E::Region>,
        rank: Rank,
    ) -> Result<Option<PeerAddr>, FabricCode> {
        self.peer_at(Place::of_target(w, rank))
    }

    /// The peer at a place.
    pub(super) fn peer_at(&mut self, place: Place) -> Result<Option<PeerAddr>, FabricCode> {
        if let Some(peer) = self.peers.get(place) {
            return Ok(Some(peer));
        }
        self.connect_slow(place)
    }

    #[cold]
    #[inline(never)]
    fn connect_slow(&mut self, place: Place) -> Result<Option<PeerAddr>, FabricCode> {
        if let Some(code) = self.losses.reason(place.rank()) {
            return Err(code);
        }
        if self.is_deferring {
            return Ok(None);
        }
        if let Some((first, _)) = self.introducing {
            let introduced = self.introduce();
            if first == place || (introduced.is_none() && place.is_ghost()) {
                return Ok(introduced);
            }
        }
        let address = match self.bootstrap.lookup(place.rank()) {
            Ok(Lookup::Found(joined)) => match (place.is_ghost(), ghost::split(&joined)) {
                (false, (own, _)) => own,
                (true, (_, Some(ghost))) => ghost,
                (true, (_, None)) => return Err(NO_GHOST),
            },
            Ok(Lookup::Pending) => return Ok(None),
            Err(error) => {
                self.note_failure(Failure::Bootstrap(error.message));
                return Err(NO_ADDRESS);
            }
        };
        if let Some(forgotten) = self.peers.make_room() {
            self.shortcut.forget_without_element();
            self.passage = KeptPassage::NONE;
            self.disturbances = self.disturbances.wrapping_add(1);
            self.endpoint.disconnect(forgotten);
        }
        match self.endpoint.connect(&address) {
            Ok(peer) if place.is_ghost() => {
                self.introducing = Some((place, peer));
                Ok(self.introduce())
            }
            Ok(peer) => {
                self.peers.insert(place, peer);
                Ok(Some(peer))
            }
            Err(error) => {
                self.note_failure(Failure::Bootstrap(error.message));
                Err(NO_ADDRESS)
            }
        }
    }

    /// Tells a ghost that was contacted where to answer; packets that follow find it knowing. Its peer
    /// address then; `None`: the fabric has no room yet.
    fn introduce(&mut self) -> Option<PeerAddr> {
        let (place, peer) = self.introducing?;
        if self.reintroduce(peer) == Err(PostError::Again) {
            return None;
        }
        // One that is gone is found out by what follows.
        self.peers.insert(place, peer);
        self.introducing = None;
        Some(peer)
    }

    /// Says it once, or once more, which changes nothing.
    pub(crate) fn reintroduce(&mut self, peer: PeerAddr) -> Result<(), PostError> {
        let kind = PacketKind::Introduction;
        let header = Header { kind, flags: 0, count: 0, window: NO_WINDOW, sender: self.rank, token: 0 };
        let address = self.endpoint.address();
        self.send(peer, kind, &header.encode(), address.as_slice())
    }

    /// Remembers, in a ghost, where an origin is to be answered.
    pub(crate) fn on_introduction(&mut self, sender: Rank, address: &[u8]) -> Result<(), WireError> {
        if self.peers.get(Place::of(sender)).is_some() {
            return Ok(());
        }
        let malformed = WireError::Length(address.len() as u32);
        let address = AddressBytes::new(address).ok_or(malformed)?;
        let peer = self.endpoint.connect(&address).map_err(|_| malformed)?;
        // For good: nobody could tell the address again. One that is known takes no room from others.
        let _ = self.peers.make_room();
        self.peers.insert(Place::of(sender), peer);
        self.peers.pin(Place::of(sender));
        Ok(())
    }

    /// Makes sure that a target element knows its peer. `false`: not yet, or never (then it has an error).
    pub(crate) fn resolve(&mut self, w: &mut Window<E::Region>, t: u32) -> bool {
        if self.targets[t].peer.is_some() {
            return true;
        }
        let rank = self.targets[t].rank;
        match self.target_peer(w, rank) {
            Ok(Some(peer)) => {
                self.peers.pin(Place::of_target(w, rank));
                self.targets[t].peer = Some(peer);
                self.refresh_direct(t);
                true
            }
            Ok(None) => false,
            Err(code) => {
                self.fail_target(w, t, code);
                false
            }
        }
    }

    /// Recomputes whether native puts and gets may go to the target without a question.
    pub(crate) fn refresh_direct(&mut self, t: u32) {
        self.shortcut.forget(t);
        let te = &mut self.targets[t];
        te.direct = match (te.peer, te.metadata) {
            (Some(peer), Some(metadata))
                if te.lock == TargetLockState::Granted
                    && te.error.is_none()
                    && te.is_unmarked()
                    && te.sync != crate::table::Sync::Unlock =>
            {
                Some(Direct { peer, metadata, at_once: self.endpoint.completes_at_once(peer) })
            }
            _ => None,
        };
    }

    /// Native puts and gets may not go to the target without a question from now on.
    pub(crate) fn close_direct(&mut self, t: u32) {
        self.shortcut.forget(t);
        self.targets[t].direct = None;
    }

    /// What this process did by itself is seen by everybody before anything that it reads from here on. Whoever says that
    /// operations are complete passes this before.
    ///
    /// Implements: seed: MEM_SYNC.
    #[inline]
    pub(crate) fn pass_fence(&mut self) {
        let done = core::mem::replace(&mut self.at_once, DoneAtOnce::NOTHING);
        if done.is_nothing() {
            return;
        }
        if done.is_unfenced() {
            fence(Ordering::SeqCst);
        }
        self.burst.end();
    }

    /// Sends a packet and counts it. A peer that is gone is not an error here: it is found when the
    /// target's operations, or a barrier, are waited for.
    pub(crate) fn send(
        &mut self,
        peer: PeerAddr,
        kind: PacketKind,
        packet: &[u8],
        payload: &[u8],
    ) -> Result<(), PostError> {
        let class = if kind.is_request() { SendClass::Request } else { SendClass::Reply };
        self.send_as(class, peer, kind, packet, payload)
    }

    /// The same in a class that is not the kind's.
    pub(crate) fn send_as(
        &mut self,
        class: SendClass,
        peer: PeerAddr,
        kind: PacketKind,
        packet: &[u8],
        payload: &[u8],
    ) -> Result<(), PostError> {
        let posted = self.endpoint.send(peer, packet, payload, class);
        self.count_send(kind, packet.len() + payload.len(), posted)
    }

    /// Sends the first `len` bytes of the stage.
    pub(crate) fn send_stage(
        &mut self,
        peer: PeerAddr,
        kind: PacketKind,
        len: usize,
    ) -> Result<(), PostError> {
        let class = if kind.is_request() { SendClass::Request } else { SendClass::Reply };
        let posted = self.endpoint.send(peer, &self.stage[..len], &[], class);
        self.count_send(kind, len, posted)
    }

    #[inline]
    fn count_send(
        &mut self,
        kind: PacketKind,
        len: usize,
        posted: Result<(), PostError>,
    ) -> Result<(), PostError> {
        match posted {
            Ok(()) => {
                self.counters.packets_sent[kind as usize] += 1;
                self.counters.packet_bytes_sent += len as u64;
            }
            Err(PostError::Again) => self.counters.again += 1,
            Err(PostError::Failed(_)) => {}
        }
        posted
    }

    /// Turns a refused post into what issue routines return; a peer that is gone fails its target.
    #[cold]
    pub(crate) fn refused(&mut self, w: &mut Window<E::Region>, t: u32, error: PostError) -> Again {
        if let PostError::Failed(code) = error {
            self.fail_target(w, t, code);
        }
        Again
    }

    /// Whether calls of this process that are pending have to fail: somebody waits for a word that will never come, as
    /// this process cannot connect. Were it to wait in turn, for whoever waits for it, nobody would ever know. That the
    /// rank has died, which is no harm, may come to be known later than that it cannot be reached.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_cut_off(&mut self) -> bool {
        let Some(rank) = self.unanswered else { return false };
        if self.losses.reason(rank).is_some() {
            (self.unanswered, self.unanswered_polls) = (None, 0);
            return false;
        }
        self.unanswered_polls = self.unanswered_polls.saturating_add(1);
        self.unanswered_polls > UNANSWERED_POLLS_MAX
    }

    /// Remembers that a rank cannot be reached any more, if it is the first.
    pub(crate) fn note_peer_failure(&mut self, rank: Rank, code: FabricCode) {
        let is_only_gone =
            |failure: &Failure| matches!(failure, Failure::Peer(_, code) if *code == WINDOW_GONE);
        if self.failure.as_ref().is_none_or(|failure| is_only_gone(failure) && code != WINDOW_GONE) {
            self.failure = None;
            self.note_failure(Failure::Peer(rank, code));
        }
    }

    /// Nothing will reach this target any more: its operations end with an error.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail_target(&mut self, w: &mut Window<E::Region>, t: u32, code: FabricCode) {
        w.exposure.on_lost(self.targets[t].rank, code);
        self.fail_as_target(w, t, code);
    }

    /// The same of one of which a COMPLETE may still come.
    pub(super) fn fail_as_target(&mut self, w: &mut Window<E::Region>, t: u32, code: FabricCode) {
        let rank = self.targets[t].rank;
        self.note_peer_failure(rank, code);
        self.note_doubt(rank, code);
        if !self.targets[t].is_dead() {
            self.end_target(w, t, code);
        }
    }

    /// Nothing comes of the target that was waited for, which is no failure of its process.
    pub(super) fn end_target(&mut self, w: &mut Window<E::Region>, t: u32, code: FabricCode) {
        let rank = self.targets[t].rank;
        if w.access.on_lost(rank) {
            w.notices.forget(rank);
            self.note_all_granted(w);
        }
        self.give_up_operations(w, t, TargetError::Peer(code));
    }

    /// Ends the operations to a target, none of which will come of: it is dead to this process from now on.
    #[cold]
    pub(crate) fn give_up_operations(&mut self, w: &mut Window<E::Region>, t: u32, error: TargetError) {
        self.close_direct(t);
        let te = &mut self.targets[t];
        te.error = Some(error);
        te.words.lose();
        (te.marks, te.order) = (Marks::NONE, Order::NONE);
        (te.needs_done, te.unflushed, te.lock_wanted) = (false, false, false);
        (te.done_acked, te.unlock_acked, te.requests) = (te.done_sent, true, 0);
        w.dirty = true;
        while self.targets[t].pending.head != NONE {
            let op = self.targets[t].pending.head;
            self.fail_operation(op);
            self.unlink_pending(t, op);
            if self.operations[op].native && self.operations[op].outstanding > 0 {
                // Its tags are still out: the fabric may touch the user's memory until they are back.
                self.operations[op].posted = self.operations[op].len;
                self.link_issued(t, op);
            } else {
                // Of a message in pieces some may be out: what comes of them later finds nothing that waits for it.
                self.operations[op].outstanding = 0;
                self.free_operation(w, t, op);
            }
        }
        let mut op = self.targets[t].issued.head;
        while op != NONE {
            let next = self.operations[op].next;
            if self.operations[op].state == OperationState::Issued {
                self.fail_operation(op);
            }
            self.operations[op].with_lock = false;
            self.drop_note(t, op);
            let element = &mut self.operations[op];
            if element.native && element.outstanding == 0 {
                self.complete_operation(t, op);
            } else if !element.native {
                element.outstanding = 0;
                self.complete_operation(t, op);
            }
            op = next;
        }
        self.cleanup_ops_target(w, t);
    }
}
