//! The simulated fabric: any number of endpoints, one virtual clock, no threads.
//!
//! Nothing happens by itself. A post only schedules deliveries; [`SimFabric::advance`] makes the next one,
//! [`rma_core::provider::Endpoint::poll`] says what it did to one endpoint. All chance comes from
//! [`FabricConfig::seed`], so that the same calls see the same fabric again.

mod config;
mod endpoint;
mod manual;
mod memory;
mod now;
mod operation;
mod post;
mod record;
mod state;
mod vector;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rma_core::bootstrap::AddressBytes;
use rma_core::provider::ProviderError;

use crate::bootstrap::SimBootstrap;
use state::State;

pub use config::{native_all, native_locks, FabricConfig, Faults, NetworkModel};
pub use endpoint::SimEndpoint;
pub use manual::{Delivery, Stage};
pub use memory::SimRegion;
pub use record::{PacketRecord, PacketRoute, Sabotage, TraceEvent, Traffic, Verdict, Violation};

/// A handle to one simulated fabric; clones are handles to the same.
#[derive(Clone)]
pub struct SimFabric {
    // One mutex around everything: a simulation runs on one thread, and the mutex is there so that an
    // endpoint may be sent to another (`Endpoint: Send`). No call holds it while engine code runs.
    shared: Arc<Mutex<State>>,
}

impl SimFabric {
    /// A fabric without endpoints.
    pub fn new(config: FabricConfig) -> Self {
        Self { shared: Arc::new(Mutex::new(State::new(config))) }
    }

    /// Opens the endpoint of a rank.
    ///
    /// # Errors
    /// When the job has no such rank, or its endpoint is open already.
    pub fn open(&self, rank: u32) -> Result<SimEndpoint, ProviderError> {
        let opened = self.state().open(rank);
        let index = opened.ok_or_else(|| ProviderError {
            message: format!("open: rank {rank} is not a rank of this job, or its endpoint is open already"),
        })?;
        Ok(SimEndpoint::new(self.clone(), index, rank))
    }

    /// The bootstrap of a rank.
    pub fn bootstrap(&self, rank: u32) -> SimBootstrap {
        SimBootstrap::new(self.clone(), rank, 1)
    }

    /// The bootstrap of a rank in a job whose ranks have ghosts: the fabric's ranks are theirs, and then the ghosts'.
    pub fn bootstrap_with_ghost(&self, rank: u32) -> SimBootstrap {
        SimBootstrap::new(self.clone(), rank, 2)
    }

    /// Virtual time, in nanoseconds from 0.
    pub fn now_ns(&self) -> u64 {
        self.state().now_ns
    }

    /// When the next delivery is due; `None` when nothing is on the way.
    pub fn next_event_ns(&self) -> Option<u64> {
        self.state().next_event_ns()
    }

    /// Makes the next delivery, moving the clock to it, and returns the rank that it concerns most.
    /// `None` when nothing was on the way.
    pub fn advance(&self) -> Option<u32> {
        self.state().advance()
    }

    /// Whether a poll of this rank would find something, or a post of it that was refused may work now. The dead do
    /// neither.
    pub fn is_ready(&self, rank: u32) -> bool {
        let state = self.state();
        let endpoint = state.endpoint_of.get(&rank).map(|&index| &state.endpoints[index]);
        endpoint.is_some_and(|endpoint| endpoint.is_up && (endpoint.is_ready() || endpoint.may_retry))
    }

    /// Says that the rank is about to try again what was refused: until the next refusal,
    /// [`SimFabric::is_ready`] speaks of its poll only.
    pub fn clear_retry(&self, rank: u32) {
        let mut state = self.state();
        if let Some(&index) = state.endpoint_of.get(&rank) {
            state.endpoints[index].may_retry = false;
        }
    }

    /// From now on these go wrong.
    pub fn set_faults(&self, faults: Faults) {
        self.state().config.faults = faults;
    }

    /// The process of this rank dies.
    pub fn kill(&self, rank: u32) {
        self.state().kill(rank);
    }

    /// The process of this rank dies, and the fabric, as some do, never says so: only the bootstrap tells.
    pub fn kill_silently(&self, rank: u32) {
        self.state().kill_silently(rank);
    }

    /// The bootstrap tells of this rank's death, too: who never was connected to it learns of it only so.
    pub fn announce_death(&self, rank: u32) {
        self.state().lost.push(rank);
    }

    /// The rank that was announced to be dead after `known` others had.
    pub(crate) fn lost(&self, known: usize) -> Option<u32> {
        self.state().lost.get(known).copied()
    }

    /// Makes room for this many messages in flight, so that posting them allocates nothing.
    pub fn reserve(&self, messages: usize) {
        self.state().reserve(messages);
    }

    /// What went from `origin` to `target` so far.
    pub fn traffic(&self, origin: u32, target: u32) -> Traffic {
        self.sum_traffic(|from, to| from == origin && to == target)
    }

    /// What went between any two ranks so far.
    pub fn traffic_total(&self) -> Traffic {
        self.sum_traffic(|_, _| true)
    }

    fn sum_traffic(&self, wanted: impl Fn(u32, u32) -> bool) -> Traffic {
        let state = self.state();
        let mut sum = Traffic::default();
        for endpoint in &state.endpoints {
            for route in &endpoint.routes {
                if wanted(endpoint.rank, state.endpoints[route.target].rank) {
                    sum.add(&route.traffic);
                }
            }
        }
        sum
    }

    /// Operations and packets that are not over.
    pub fn in_flight(&self) -> usize {
        let state = self.state();
        state.operations.len() + state.endpoints.iter().map(|endpoint| endpoint.sends).sum::<usize>()
    }

    /// Puts, gets and atomics that the fabric has executed so far.
    pub fn executed(&self) -> u64 {
        self.state().operations.executed
    }

    /// Packets that the rank got from a poll and did not release.
    pub fn lent_packets(&self, rank: u32) -> usize {
        self.of_rank(rank, |endpoint| endpoint.lent_counts.iter().sum())
    }

    /// Memory regions that the rank has registered and not dropped.
    pub fn live_regions(&self, rank: u32) -> usize {
        self.of_rank(rank, |endpoint| endpoint.registrations.live_count())
    }

    fn of_rank(&self, rank: u32, count: impl Fn(&state::EndpointState) -> usize) -> usize {
        let state = self.state();
        state.endpoint_of.get(&rank).map_or(0, |&index| count(&state.endpoints[index]))
    }

    /// The rules that the engine broke so far, oldest first.
    pub fn violations(&self) -> Vec<Violation> {
        self.state().violations.clone()
    }

    /// Whether there are any violations: cheaper to ask after every step.
    pub fn is_violated(&self) -> bool {
        !self.state().violations.is_empty()
    }

    /// Keeps every packet sent from now on, or stops doing so.
    pub fn record_packets(&self, on: bool) {
        self.state().records = on.then(Vec::new);
    }

    /// Takes the packets recorded since [`SimFabric::record_packets`] or the last call.
    pub fn take_records(&self) -> Vec<PacketRecord> {
        self.state().records.as_mut().map(core::mem::take).unwrap_or_default()
    }

    /// Shows every packet sent from now on to `interceptor`, which may change or lose it. The
    /// interceptor must not call the fabric.
    pub fn intercept(&self, interceptor: impl FnMut(PacketRoute, &mut Vec<u8>) -> Verdict + Send + 'static) {
        self.state().interceptor = Some(Box::new(interceptor));
    }

    /// Makes the fabric lie from now on.
    pub fn sabotage(&self, sabotage: Sabotage) {
        self.state().sabotage = sabotage;
    }

    /// The latest events, oldest first; how many are kept is [`FabricConfig::trace_len`].
    pub fn trace(&self) -> Vec<TraceEvent> {
        self.state().trace.events().copied().collect()
    }

    /// Keeps what the rank has published.
    pub(crate) fn publish(&self, rank: u32, address: &AddressBytes) -> bool {
        let mut state = self.state();
        let index = state.endpoint_of.get(&rank).copied();
        index.is_some_and(|index| {
            state.endpoints[index].published = Some(*address);
            true
        })
    }

    pub(crate) fn published(&self, rank: u32) -> Option<AddressBytes> {
        let state = self.state();
        let index = state.endpoint_of.get(&rank)?;
        state.endpoints[*index].published
    }

    /// Whether the process of this rank has an endpoint and lives.
    pub(crate) fn is_up(&self, rank: u32) -> bool {
        self.of_rank(rank, |endpoint| usize::from(endpoint.is_up)) > 0
    }

    pub(crate) fn rank_count(&self) -> u32 {
        self.state().config.ranks
    }

    /// How many look-ups to answer with "not yet", by chance.
    pub(crate) fn draw_pending_lookups(&self) -> u32 {
        let mut state = self.state();
        let most = state.config.faults.pending_lookups_max;
        state.random.below(u64::from(most) + 1) as u32
    }

    pub(crate) fn hides_addresses(&self) -> bool {
        self.state().config.faults.pending_lookups_max > 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic in a test must not turn into a second one when endpoints are dropped.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SimFabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFabric").finish_non_exhaustive()
    }
}

/// What a simulated endpoint publishes: a mark and its rank.
const ADDRESS_MARK: &[u8; 4] = b"sim:";

fn address_of(rank: u32) -> AddressBytes {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(ADDRESS_MARK);
    bytes[4..].copy_from_slice(&rank.to_le_bytes());
    match AddressBytes::new(&bytes) {
        Some(address) => address,
        None => unreachable!("eight bytes fit an address"),
    }
}

fn rank_of(address: &AddressBytes) -> Option<u32> {
    let rank = address.as_slice().strip_prefix(ADDRESS_MARK)?;
    Some(u32::from_le_bytes(rank.try_into().ok()?))
}

/// The address a simulated endpoint of `rank` publishes, whether or not it is open.
pub(crate) fn address(rank: u32) -> AddressBytes {
    address_of(rank)
}
