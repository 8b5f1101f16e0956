//! The non-blocking API. Every call that MPI lets block is `start_*`, which returns a [`SyncCall`], and
//! [`Engine::poll`]; whoever calls makes [`Engine::progress`] between two polls. An operation that needs
//! resources that are not there answers `Poll::Pending`, has no effect, and is called again.

mod agreement;
mod assist;
mod at_once;
mod attributes;
mod bounded;
mod direct;
mod dynamic;
mod enqueue;
mod fence;
mod flush;
mod layout;
mod lock;
mod lock_all;
mod notify;
mod operation;
mod order;
mod own;
mod packet_shortcut;
mod parked;
mod passage;
mod pscw;
mod pscw_at_once;
mod repeated;
mod request;
mod serve;
mod shared;
mod sync_call;
mod time;
mod window;

use core::sync::atomic::{AtomicU32, Ordering};
use core::task::Poll;

use crate::bootstrap::Bootstrap;
use crate::config::Config;
use crate::counters::Counters;
use crate::error::{Call, RmaError};
use crate::flush::Phase;
use crate::ids::{PeerAddr, Rank, WindowId};
use crate::pool::{Arena, NONE};
use crate::progress::{Failure, Place, Process, TargetNews, Windows, NO_ADDRESS, REDUCE_VALUES};
use crate::provider::{Completion, Endpoint, Limits};
use crate::state::WindowState;
use crate::table::{OperationArena, TargetElement, TargetError};
use crate::window::Window;
use crate::wire::Purposes;

pub use crate::table::{Change, Notification};
pub use attributes::WindowAttributes;
pub use fence::FenceAssert;
pub use operation::Operation;
pub use pscw::{PostAssert, StartAssert};
pub use request::Request;
pub use shared::{Mapping, SharedPart, AGREE_VALUES};
use sync_call::Stage;
pub use sync_call::SyncCall;

/// In the reduction with which windows are made: a bit for each id that a rank has in use.
const IN_USE: usize = REDUCE_VALUES - 1;

/// One process's one-sided communication: its endpoint, its windows, and both of its roles.
///
/// Use it from one thread at a time (it is `Send`). Call order: [`Engine::open`]; create windows;
/// epochs and operations; [`Engine::progress`] as often as possible; free the windows.
#[derive(Debug)]
pub struct Engine<E: Endpoint, B> {
    /// Windows go before the endpoint that their regions belong to.
    windows: Windows<E::Region, E::Passage>,
    process: Process<E, B>,
    /// This rank's numbers for the next agreement.
    agreeing: [u64; AGREE_VALUES],
    /// What tells it from others of the process, for requests.
    number: u32,
}

/// A number for the next engine of this process. Others may have had it, where there were four billion since.
fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl<E: Endpoint, B: Bootstrap> Engine<E, B> {
    /// Publishes the endpoint's address and allocates what all windows share.
    ///
    /// # Errors
    /// When a size in `config` is above its limit, or the bootstrap does not take the address.
    pub fn open(endpoint: E, mut bootstrap: B, config: Config) -> Result<Self, RmaError> {
        config.check()?;
        bootstrap
            .publish(&endpoint.address())
            .map_err(|error| RmaError::Bootstrap { call: Call::Init, message: error.message })?;
        Ok(Self {
            windows: Windows::new(),
            process: Process::new(endpoint, bootstrap, config),
            agreeing: [0; AGREE_VALUES],
            number: next_number(),
        })
    }

    /// This process's rank.
    pub fn rank(&self) -> Rank {
        self.process.rank
    }

    /// Ranks in the job.
    pub fn size(&self) -> u32 {
        self.process.size
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.process.config
    }

    /// Changes the optimizations' switches and thresholds; sizes of existing pools stay, and so do the
    /// paths of existing windows. To be called while no epoch is open (a measuring program compares
    /// settings in one run with it).
    pub fn set_switches(&mut self, config: &Config) {
        let put_data = config.put_data.unwrap_or_else(|| self.process.endpoint.puts_cost_packets());
        let own = &mut self.process.config;
        own.single_op_lock = config.single_op_lock;
        own.piggyback = config.piggyback;
        own.put_data = Some(put_data);
        own.piggyback_threshold = config.piggyback_threshold.max(1);
        own.coalesce = config.coalesce;
        own.get_to_tail = config.get_to_tail;
        own.lazy_targets = config.lazy_targets;
        own.small_bytes_max = config.small_bytes_max;
        own.native_block_bytes_min = config.native_block_bytes_min;
        own.force_message_path = config.force_message_path;
    }

    /// The endpoint, for what the engine does not do (describe it, sleep on it, measure it raw).
    pub fn endpoint(&mut self) -> &mut E {
        &mut self.process.endpoint
    }

    /// The endpoint's name for a rank that was contacted before.
    pub fn peer(&mut self, rank: Rank) -> Option<PeerAddr> {
        self.process.peers.get(Place::of(rank))
    }

    /// Whether ranks that were never contacted are left alone for now. First contact is all that allocates
    /// in [`Engine::progress`]; who calls it where nothing may be allocated sets this meanwhile. What needs a
    /// first contact waits for a later call.
    pub fn set_deferring(&mut self, is_deferring: bool) {
        self.process.is_deferring = is_deferring;
    }

    /// Learns the address of a rank before it is needed. `Pending`: it is being looked up; make progress and
    /// ask again.
    ///
    /// # Errors
    /// When the rank does not exist or its address cannot be had.
    pub fn contact(&mut self, call: Call, rank: Rank) -> Poll<Result<(), RmaError>> {
        if let Err(error) = self.check_rank(call, rank) {
            return Poll::Ready(Err(error));
        }
        if rank == self.process.rank {
            return Poll::Ready(Ok(()));
        }
        match self.process.peer(rank) {
            Ok(Some(_)) => Poll::Ready(Ok(())),
            Ok(None) => Poll::Pending,
            Err(_) => self.process.failure(call),
        }
    }

    /// Acts on something that was taken from the endpoint by another than the engine, and was meant for
    /// the engine. To be given in the order in which the endpoint gave it.
    pub fn hand_back(&mut self, completion: Completion) {
        self.process.on_completion(&mut self.windows, completion);
    }

    /// The bootstrap.
    pub fn bootstrap(&mut self) -> &mut B {
        &mut self.process.bootstrap
    }

    /// Sizes and orders of the endpoint.
    pub fn limits(&self) -> &Limits {
        &self.process.limits
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        let mut counters = self.process.counters;
        counters.operations_in_use_max = self.process.operations.in_use_max().into();
        counters.targets_in_use_max = self.process.targets.in_use_max().into();
        counters
    }

    /// Elements in use now: operation elements, target elements. Both are 0 when no epoch is open.
    pub fn elements_in_use(&self) -> (u32, u32) {
        (self.process.operations.in_use(), self.process.targets.in_use())
    }

    /// Whether a target element came free since this was asked, for which a call of another thread may wait: it
    /// should be polled, although nothing has arrived.
    #[inline]
    pub fn take_target_news(&mut self) -> bool {
        let is_free = self.process.target_news == TargetNews::Free;
        if is_free {
            self.process.target_news = TargetNews::None;
        }
        is_free
    }

    /// Whether a lock is waited for of which perhaps nobody will tell: its words have to be looked at again
    /// (docs/locks.md). Who sleeps meanwhile should not sleep long.
    pub fn wants_looks(&self) -> bool {
        self.process.wants_looks
    }

    /// Prepares to sleep on the endpoint's descriptor ([`Endpoint::arm_wait`]). `false`: poll and make progress first,
    /// something is there.
    pub fn arm_wait(&mut self) -> bool {
        self.process.endpoint.arm_wait()
            && !self.process.has_been_told(&mut self.windows)
            && !self.process.has_turn_come(&mut self.windows)
    }

    /// The caller has polled in vain for as long as it spins, and will sleep, in a call on this window. Targets that owe an
    /// answer to a lock request are taken for busy: their locks are had without them for some epochs, where both ways are
    /// open ([`LockProtocol::Auto`](crate::info::LockProtocol::Auto)).
    #[cold]
    pub fn on_kept_waiting(&mut self, window: WindowId) {
        if let Some(w) = self.windows.get_mut(window) {
            self.process.on_kept_waiting(w);
        }
    }

    /// Bytes that the engine holds beside its windows; independent of the number of ranks beyond
    /// `RMA_PEERS`.
    pub fn shared_bytes(&self) -> usize {
        let config = &self.process.config;
        size_of::<Self>()
            + self.process.peers.bytes()
            + self.process.limits.send_bytes_max * (config.reply_buffers + 1)
            + config.operation_pool_global as usize * OperationArena::element_bytes()
            + config.target_pool_global as usize * Arena::<TargetElement>::element_bytes()
            + self.process.held.bytes()
            + self.process.lock_cells.bytes()
            + self.process.seat_cells.bytes()
    }

    /// MAKE_RMA_PROGRESS_GLOBAL: progresses every window, both roles. Never blocks; bounded work.
    /// Returns how many things happened; 0 means that a waiting caller may yield or sleep.
    pub fn progress(&mut self) -> usize {
        self.process.make_rma_progress_global(&mut self.windows)
    }

    /// Takes in which ranks have died as far as the bootstrap knows, for what the fabric does not tell; returns
    /// how many were news. For callers that have listened to the launcher, and not for each progress.
    pub fn hear_of_losses(&mut self) -> usize {
        self.process.hear_of_losses(&mut self.windows)
    }

    /// The ranks whose processes have ended before their time, as the bootstrap has said, in order.
    pub fn ended_ranks(&self) -> impl Iterator<Item = Rank> + '_ {
        self.process.losses.ended()
    }

    /// Begins a barrier of all ranks of the job.
    ///
    /// # Errors
    /// When the endpoint is broken. When polled, also when another rank has come to another collective call.
    pub fn start_barrier(&mut self) -> Result<SyncCall, RmaError> {
        self.check_endpoint(Call::Barrier)?;
        Ok(SyncCall::new(Call::Barrier, SyncCall::NO_WINDOW, Stage::Barrier { sequence: None }))
    }

    /// Whether a call is done; does what can be done for it now, but makes no progress itself.
    #[inline]
    pub fn poll(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        if sync.stage == Stage::Done && self.process.failure.is_none() {
            self.process.pass_fence();
            return Poll::Ready(Ok(()));
        }
        self.poll_further(sync)
    }

    fn poll_further(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        let mut result = self.poll_stage(sync);
        if result.is_pending() && self.process.unanswered.is_some() {
            result = self.poll_cut_off(sync);
        }
        if result.is_ready() {
            sync.stage = Stage::Done;
            self.process.pass_fence();
        }
        result
    }

    /// A call is pending while somebody waits in vain to hear of this process.
    #[cold]
    #[inline(never)]
    fn poll_cut_off(&mut self, sync: &SyncCall) -> Poll<Result<(), RmaError>> {
        if !self.process.is_cut_off() || !self.cut_off(sync.window) {
            return Poll::Pending;
        }
        self.abandon(sync);
        self.process.failure(sync.call)
    }

    /// Gives up what was posted on the window. `false`: the fabric may still access buffers of it.
    #[cold]
    pub(super) fn cut_off(&mut self, window: WindowId) -> bool {
        let Some(w) = self.windows.get_mut(window) else { return true };
        let mut is_at_rest = true;
        let mut t = w.slots.next(&self.process.targets, NONE);
        while let Some(index) = t {
            if !self.process.targets[index].is_dead() {
                self.process.note_doubt(self.process.targets[index].rank, NO_ADDRESS);
                self.process.give_up_operations(w, index, TargetError::Peer(NO_ADDRESS));
            }
            is_at_rest &= self.process.targets[index].is_at_rest();
            t = w.slots.next(&self.process.targets, index);
        }
        is_at_rest
    }

    /// Whether a peer asks for progress ([`Endpoint::has_news`]).
    #[inline]
    pub fn has_news(&self) -> bool {
        self.process.endpoint.has_news()
    }

    /// Whether the call waits for what neighbours may tell by words: polled again it may be done, although no progress was
    /// made.
    pub fn is_told_by_words(&mut self, sync: &SyncCall) -> bool {
        let Some(w) = self.windows.peek(sync.window).filter(|w| w.line.is_some()) else { return false };
        let awaited = match sync.stage {
            Stage::FenceBarrier { .. } => w.barrier.awaited(),
            Stage::Wait => w.exposure.awaited(),
            Stage::StartGrant | Stage::Complete => w.access.awaited(),
            _ => None,
        };
        awaited.is_some_and(|rank| self.process.is_neighbour(rank))
    }

    fn poll_stage(&mut self, sync: &mut SyncCall) -> Poll<Result<(), RmaError>> {
        if let Some(Failure::Endpoint(_)) = self.process.failure {
            return self.process.failure(sync.call);
        }
        match sync.stage {
            Stage::Create { sequence } => self.poll_create(sync, sequence),
            Stage::Free { sequence } => self.poll_free(sync, sequence),
            Stage::Barrier { sequence } => self.poll_barrier(sync, sequence),
            Stage::Agree { sequence } => self.poll_agree(sync, sequence),
            Stage::LockGrant { target } => self.poll_lock_grant(sync, target),
            Stage::LockAllGrant => self.poll_lock_all_grant(sync),
            Stage::OwnGrant => self.poll_own_grant(sync),
            Stage::StartGrant => self.poll_start_grant(sync),
            Stage::SelfLock { lock_type, queued } => self.poll_self_lock(sync, lock_type, queued),
            Stage::Unlock { target } => self.poll_unlock(sync, target),
            Stage::UnlockAll => self.poll_unlock_all(sync),
            Stage::UnlockWalk => self.poll_unlock_walk(sync),
            Stage::Flush { target } => self.poll_flush(sync, target),
            Stage::FlushCounted { target, element } => self.poll_flush_counted(sync, (target, element)),
            Stage::FlushByShortcut { target, number } => self.poll_flush_by_shortcut(sync, target, number),
            Stage::FlushAll => self.poll_flush_all(sync),
            Stage::Notification { disp, until } => self.poll_notification(sync, disp, until),
            Stage::FlushTargets { group } => self.poll_flush_targets(sync, group),
            Stage::FlushLocal { target } => self.poll_flush_local(sync, target),
            Stage::FlushLocalAll => self.poll_flush_local_all(sync),
            Stage::Watched { scope, watch } => self.poll_watched(sync, scope, watch),
            Stage::FenceComplete { assert } => self.poll_fence_complete(sync, assert),
            Stage::FenceBegin { assert } => self.poll_fence_begin(sync, assert),
            Stage::FenceBarrier { assert, sequence } => self.poll_fence_barrier(sync, assert, sequence),
            Stage::Complete => self.poll_complete(sync),
            Stage::Wait => self.poll_exposure(sync.call, sync.window),
            Stage::Leftover { opening } => self.poll_leftover(sync, opening),
            Stage::Detach { version } => self.poll_detach(sync, version),
            Stage::AtOnce { .. } | Stage::Done => Poll::Ready(Ok(())),
        }
    }

    fn poll_barrier(&mut self, sync: &mut SyncCall, sequence: Option<u32>) -> Poll<Result<(), RmaError>> {
        match self.poll_reduce(sequence, |_| agreement::come_for(agreement::BARRIER)) {
            Ok(()) => Poll::Ready(agreement::all_came_for_one(sync.call, self.process.reduce.values())),
            Err(sequence) => {
                sync.stage = Stage::Barrier { sequence };
                self.process.failure(sync.call)
            }
        }
    }

    /// One step of a reduction over all ranks; `Err` carries the sequence to go on with.
    fn poll_reduce(
        &mut self,
        sequence: Option<u32>,
        values: impl FnOnce(&Self) -> [u64; REDUCE_VALUES],
    ) -> Result<(), Option<u32>> {
        let sequence = match sequence {
            Some(sequence) => sequence,
            None if self.process.reduce.is_running() => return Err(None),
            None => {
                let mut values = values(self);
                values[IN_USE] = self.windows.in_use();
                self.process.reduce.start(Purposes::NONE, values).ok_or(None)?
            }
        };
        self.process.send_reduce_rounds();
        if self.process.reduce.is_complete(sequence) {
            Ok(())
        } else {
            Err(Some(sequence))
        }
    }

    /// The id of the window that is made next.
    fn next_window(&self) -> WindowId {
        self.windows.next_id(self.process.reduce.values()[IN_USE])
    }

    /// Counts a phase of waiting and says that the call is not done.
    fn wait(&mut self, sync: &mut SyncCall, phase: Phase) -> Poll<Result<(), RmaError>> {
        self.process.count_phase(&mut sync.counted, phase);
        Poll::Pending
    }

    fn check_endpoint(&self, call: Call) -> Result<(), RmaError> {
        match &self.process.failure {
            Some(failure @ Failure::Endpoint(_)) => Err(failure.report(call)),
            _ => Ok(()),
        }
    }

    fn check_rank(&self, call: Call, target: Rank) -> Result<(), RmaError> {
        let size = self.process.size;
        if target.0 < size {
            Ok(())
        } else {
            Err(RmaError::Rank { call, target, size })
        }
    }

    fn window(&mut self, call: Call, window: WindowId) -> Result<&mut Window<E::Region>, RmaError> {
        match self.windows.get_mut(window) {
            Some(w) if w.usable => Ok(w),
            _ => Err(RmaError::Window { call, window }),
        }
    }

    /// The epoch state of a window, if there is such a window.
    pub fn window_state(&self, window: WindowId) -> Option<WindowState> {
        self.windows.state(window)
    }
}

/// The state of a window that is exposed by post, in errors.
const EXPOSED: &str = "Exposed";

/// The same of one that is not.
const NOT_EXPOSED: &str = "NotExposed";

/// The same of one that some rank holds a lock of.
const LOCKED: &str = "Locked";

/// An error about the state that a call met; `target`: of a call that names one.
fn epoch_error(call: Call, target: Option<Rank>, state: WindowState, rule: crate::error::Rule) -> RmaError {
    RmaError::Epoch { call, target, state: state.name(), rule }
}
