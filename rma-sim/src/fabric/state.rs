//! Everything the endpoints of one simulated fabric share, and the clock that drives it.

use core::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use rma_core::bootstrap::AddressBytes;
use rma_core::ids::{PeerAddr, Tag};
use rma_core::provider::{CompletionScope, FabricCode, SendClass};

use super::config::FabricConfig;
use super::endpoint::Source;
use super::memory::{AccessError, Registrations};
use super::operation::{Operation, OperationId, Operations};
use super::record::{PacketRecord, PacketRoute, Sabotage, Trace, TraceEvent, Traffic, Verdict, Violation};
use crate::random::Random;

/// Looks at, changes or loses packets on their way.
pub(super) type Interceptor = Box<dyn FnMut(PacketRoute, &mut Vec<u8>) -> Verdict + Send>;

pub(super) const PEER_DOWN: FabricCode = FabricCode { code: 1, text: "simulated peer is down" };
pub(super) const REFUSED: FabricCode = FabricCode { code: 2, text: "simulated fabric refused the call" };
pub(super) const ACCESS: FabricCode = FabricCode { code: 3, text: "simulated remote access error" };

pub(super) struct State {
    pub(super) config: FabricConfig,
    pub(super) now_ns: u64,
    pub(super) random: Random,
    pub(super) endpoints: Vec<EndpointState>,
    pub(super) endpoint_of: BTreeMap<u32, usize>,
    pub(super) operations: Operations,
    pub(super) violations: Vec<Violation>,
    pub(super) trace: Trace,
    pub(super) records: Option<Vec<PacketRecord>>,
    pub(super) interceptor: Option<Interceptor>,
    pub(super) sabotage: Sabotage,
    /// Ranks of whose death the bootstrap tells, in this order.
    pub(super) lost: Vec<u32>,
    /// Deliveries are chosen by the caller, one by one.
    pub(super) is_manual: bool,
    pub(super) events: BinaryHeap<Reverse<Event>>,
    event_count: u64,
    free_buffers: Vec<Vec<u8>>,
}

/// One endpoint, at its owner's side and at everybody else's.
pub(super) struct EndpointState {
    pub(super) rank: u32,
    /// Open, and its process alive.
    pub(super) is_up: bool,
    pub(super) published: Option<AddressBytes>,
    pub(super) peers: Vec<PeerSlot>,
    pub(super) routes: Vec<Route>,
    pub(super) registrations: Registrations,
    /// What the next polls report, in no particular order.
    pub(super) completions: VecDeque<(Tag, Option<FabricCode>)>,
    pub(super) downs: VecDeque<(PeerAddr, FabricCode)>,
    /// Packets that arrived, those of each class in order; they wait here for receive buffers.
    pub(super) inboxes: [VecDeque<Packet>; 2],
    /// Where what was delivered one by one is to be found, in that order.
    pub(super) arrivals: VecDeque<Source>,
    /// What waits for the next poll where the target's process must execute it.
    pub(super) work: VecDeque<Work>,
    /// Packets handed out and not yet released.
    pub(super) lent: Vec<Option<Packet>>,
    /// Of each class: a loan of requests never keeps a reply waiting.
    pub(super) lent_counts: [usize; 2],
    /// How many of them are the data of puts.
    pub(super) lent_data: usize,
    /// Tracked operations without completion yet.
    pub(super) outstanding: usize,
    pub(super) injected: usize,
    /// Packets on the way, and how many of them are requests.
    pub(super) sends: usize,
    pub(super) requests: usize,
    /// When the link is free for the next message.
    pub(super) link_free_ns: u64,
    /// When the atomic unit, seen from the fabric, is free.
    pub(super) atomic_free_ns: u64,
    /// The last post was refused for want of resources.
    pub(super) was_refused: bool,
    /// A refused post may work now.
    pub(super) may_retry: bool,
}

pub(super) struct PeerSlot {
    pub(super) route: Option<usize>,
    pub(super) generation: u32,
}

/// One direction between a pair.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) target: usize,
    pub(super) down: Option<FabricCode>,
    pub(super) ready_ns: u64,
    /// Of each class.
    pub(super) last_packet_ns: [u64; 2],
    pub(super) last_visible_ns: u64,
    /// Puts and atomics not yet visible.
    pub(super) invisible: usize,
    /// Operations, tracked or not, that are not over.
    pub(super) unfinished: usize,
    pub(super) flushes: Vec<OperationId>,
    pub(super) traffic: Traffic,
}

#[derive(Debug)]
pub(super) struct Packet {
    pub(super) origin: usize,
    pub(super) class: SendClass,
    pub(super) bytes: Vec<u8>,
    /// The put whose data it is.
    pub(super) put: Option<OperationId>,
}

#[derive(Debug)]
pub(super) enum Work {
    Packet(Packet),
    Part(OperationId, u32),
}

#[derive(Debug)]
pub(super) enum EventKind {
    /// A packet reaches its target.
    Packet { target: usize, packet: Packet },
    /// A part of an operation reaches its target.
    Part(OperationId, u32),
    /// The result of a part is back at the origin.
    Answer(OperationId, u32),
    /// The operation's tag may be reported.
    Complete(OperationId),
    /// The endpoint learns that a peer is down.
    Down { endpoint: usize, route: usize },
}

#[derive(Debug)]
pub(super) struct Event {
    time_ns: u64,
    pub(super) number: u64,
    pub(super) kind: EventKind,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.time_ns, self.number).cmp(&(other.time_ns, other.number))
    }
}

impl State {
    pub(super) fn new(config: FabricConfig) -> Self {
        Self {
            now_ns: 0,
            random: Random::new(config.seed),
            endpoints: Vec::new(),
            endpoint_of: BTreeMap::new(),
            operations: Operations::default(),
            violations: Vec::new(),
            trace: Trace::new(config.trace_len),
            records: None,
            interceptor: None,
            sabotage: Sabotage::default(),
            lost: Vec::new(),
            is_manual: false,
            events: BinaryHeap::new(),
            event_count: 0,
            free_buffers: Vec::new(),
            config,
        }
    }

    /// Adds an endpoint; `None` when the rank does not exist or has one already.
    pub(super) fn open(&mut self, rank: u32) -> Option<usize> {
        let is_open = self.endpoint_of.get(&rank).is_some_and(|&index| self.endpoints[index].is_up);
        if rank >= self.config.ranks || is_open {
            return None;
        }
        let index = self.endpoints.len();
        self.endpoints.push(EndpointState::new(rank, &self.config));
        self.endpoint_of.insert(rank, index);
        Some(index)
    }

    pub(super) fn schedule(&mut self, time_ns: u64, kind: EventKind) {
        self.event_count += 1;
        let event = Event { time_ns: time_ns.max(self.now_ns), number: self.event_count, kind };
        self.events.push(Reverse(event));
    }

    pub(super) fn next_event_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse(event)| event.time_ns)
    }

    /// Makes the next delivery and says whom it concerns.
    pub(super) fn advance(&mut self) -> Option<u32> {
        let Reverse(event) = self.events.pop()?;
        self.now_ns = event.time_ns;
        // An event of an operation that is over concerns nobody in particular.
        Some(self.happen(event.kind).map_or(0, |index| self.endpoints[index].rank))
    }

    /// Something reaches its destination: the endpoint that it concerns most.
    pub(super) fn happen(&mut self, kind: EventKind) -> Option<usize> {
        match kind {
            EventKind::Packet { target, packet } => self.on_packet(target, packet),
            EventKind::Part(id, part) => self.on_part(id, part),
            EventKind::Answer(id, part) => self.on_answer(id, part),
            EventKind::Complete(id) => self.on_complete(id),
            EventKind::Down { endpoint, route } => self.on_down(endpoint, route),
        }
    }

    fn on_packet(&mut self, target: usize, packet: Packet) -> Option<usize> {
        if !self.endpoints[target].is_up {
            self.drop_packet(packet);
            return None;
        }
        if self.config.limits.needs_target_progress {
            self.endpoints[target].work.push_back(Work::Packet(packet));
        } else {
            self.endpoints[target].inboxes[packet.class as usize].push_back(packet);
        }
        Some(target)
    }

    fn on_part(&mut self, id: OperationId, part: u32) -> Option<usize> {
        let target = self.operations.get(id)?.target;
        if !self.endpoints[target].is_up {
            return None;
        }
        if self.config.limits.needs_target_progress {
            self.endpoints[target].work.push_back(Work::Part(id, part));
        } else {
            self.execute(id, part);
        }
        Some(target)
    }

    fn on_down(&mut self, endpoint: usize, route: usize) -> Option<usize> {
        let state = &mut self.endpoints[endpoint];
        let code = state.routes[route].down?;
        // Named as the endpoint knows it; a peer that was disconnected meanwhile has no name.
        let slot = state.peers.iter().position(|slot| slot.route == Some(route))?;
        let peer = peer_addr(slot, state.peers[slot].generation);
        state.downs.push_back((peer, code));
        Some(endpoint)
    }

    /// Gives a packet's credit back to its sender and its buffer to the pool.
    pub(super) fn drop_packet(&mut self, packet: Packet) {
        self.return_credit(packet.origin, packet.class);
        self.give_buffer(packet.bytes);
    }

    pub(super) fn return_credit(&mut self, origin: usize, class: SendClass) {
        let origin = &mut self.endpoints[origin];
        origin.sends -= 1;
        origin.requests -= usize::from(class == SendClass::Request);
        origin.note_resources();
    }

    /// How long the next message takes on top of what the link takes.
    pub(super) fn delay_ns(&mut self) -> u64 {
        let model = self.config.model;
        let faults = self.config.faults;
        let mut delay = model.latency_ns;
        if model.jitter_ns > 0 {
            delay += self.random.below(model.jitter_ns);
        }
        if self.random.chance(faults.late_per_mille) {
            delay += self.random.below(faults.late_ns);
        }
        delay
    }

    /// When a message of `bytes`, handed to the link now, reaches the route's target.
    pub(super) fn arrival_ns(&mut self, origin: usize, route: usize, bytes: usize) -> u64 {
        let delay = self.delay_ns();
        let endpoint = &mut self.endpoints[origin];
        let ready_ns = endpoint.routes[route].ready_ns.max(self.now_ns);
        if self.config.model.bytes_per_us == 0 {
            return ready_ns + delay;
        }
        let transfer_ns = bytes as u64 * 1000 / self.config.model.bytes_per_us;
        endpoint.link_free_ns = endpoint.link_free_ns.max(ready_ns) + transfer_ns;
        endpoint.link_free_ns + delay
    }

    /// A zeroed buffer of `len` bytes; the pool keeps it from being allocated again and again.
    pub(super) fn take_buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self
            .free_buffers
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(len.max(self.config.limits.send_bytes_max)));
        buffer.resize(len, 0);
        buffer
    }

    pub(super) fn give_buffer(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 {
            buffer.clear();
            self.free_buffers.push(buffer);
        }
    }

    pub(super) fn reserve(&mut self, messages: usize) {
        self.events.reserve(messages);
        self.operations.reserve(messages);
        for _ in 0..messages {
            let buffer = Vec::with_capacity(self.config.limits.send_bytes_max);
            self.free_buffers.push(buffer);
        }
        for endpoint in &mut self.endpoints {
            endpoint.completions.reserve(messages);
            endpoint.inboxes.iter_mut().for_each(|inbox| inbox.reserve(messages));
            endpoint.work.reserve(messages);
            endpoint.routes.iter_mut().for_each(|route| route.flushes.reserve(messages));
        }
    }

    /// The process of `rank` dies: its memory is out of reach, its peers will hear of it.
    pub(super) fn kill(&mut self, rank: u32) {
        let Some(&dead) = self.endpoint_of.get(&rank) else { return };
        if self.endpoints[dead].is_up {
            self.note("kill", dead, dead, 0, 0);
            self.take_down(dead, true);
        }
    }

    /// The endpoint is closed by its owner. Peers hear of it only if they had something outstanding.
    pub(super) fn close(&mut self, endpoint: usize) {
        if self.endpoints[endpoint].is_up {
            self.note("close", endpoint, endpoint, 0, 0);
            self.take_down(endpoint, false);
        }
    }

    fn take_down(&mut self, dead: usize, tell_everybody: bool) {
        self.silence(dead);
        for id in self.operations.of_target(dead) {
            self.fail(id, PEER_DOWN);
        }
        for endpoint in 0..self.endpoints.len() {
            for route in 0..self.endpoints[endpoint].routes.len() {
                self.take_down_route(endpoint, route, dead, tell_everybody);
            }
        }
    }

    /// The endpoint does nothing any more, and nothing reaches it.
    fn silence(&mut self, dead: usize) {
        self.endpoints[dead].is_up = false;
        self.endpoints[dead].registrations.remove_all();
        self.endpoints[dead].completions.clear();
        for id in self.operations.of_origin(dead) {
            self.forget(id);
        }
        let work = core::mem::take(&mut self.endpoints[dead].work);
        let inboxes = core::mem::take(&mut self.endpoints[dead].inboxes);
        let waiting = work.into_iter().filter_map(|work| match work {
            Work::Packet(packet) => Some(packet),
            Work::Part(..) => None,
        });
        waiting.chain(inboxes.into_iter().flatten()).for_each(|packet| self.drop_packet(packet));
    }

    /// The process of `rank` dies, and the fabric says nothing: what is on its way there never ends.
    pub(super) fn kill_silently(&mut self, rank: u32) {
        let Some(&dead) = self.endpoint_of.get(&rank) else { return };
        if self.endpoints[dead].is_up {
            self.note("kill silently", dead, dead, 0, 0);
            self.silence(dead);
            self.lost.push(rank);
        }
    }

    /// The origin knows that the peer is dead: what is on its way there ends now.
    pub(super) fn abandon(&mut self, origin: usize, peer: PeerAddr) {
        let Some(route) = self.endpoints[origin].route_of(peer) else { return };
        let target = self.endpoints[origin].routes[route].target;
        self.endpoints[origin].routes[route].down.get_or_insert(PEER_DOWN);
        for id in self.operations.of_target(target) {
            if self.operations.get(id).is_some_and(|operation| operation.origin == origin) {
                self.fail(id, PEER_DOWN);
            }
        }
    }

    fn take_down_route(&mut self, endpoint: usize, route: usize, dead: usize, tell_everybody: bool) {
        let state = &mut self.endpoints[endpoint].routes[route];
        if state.target != dead || endpoint == dead {
            return;
        }
        state.down = Some(PEER_DOWN);
        if tell_everybody || state.unfinished > 0 {
            let heard_ns = self.now_ns + self.delay_ns();
            self.schedule(heard_ns, EventKind::Down { endpoint, route });
        }
    }

    pub(super) fn deregister(&mut self, endpoint: usize, index: usize) {
        self.endpoints[endpoint].registrations.remove(index);
    }

    #[cold]
    pub(super) fn violation(&mut self, endpoint: usize, rule: &'static str, detail: String) {
        self.note("VIOLATION", endpoint, endpoint, 0, 0);
        let rank = self.endpoints[endpoint].rank;
        self.violations.push(Violation { time_ns: self.now_ns, rank, rule, detail });
    }

    #[cold]
    pub(super) fn access_violation(&mut self, id: OperationId, error: AccessError) {
        let Some(operation) = self.operations.get(id) else { return };
        let Operation { origin, target, at, len, kind, .. } = *operation;
        let target = self.endpoints[target].rank;
        let detail = format!("{kind:?} of {len} bytes at {:#x}, {:?}, of rank {target}", at.addr, at.key);
        self.violation(origin, error.rule(), detail);
    }

    pub(super) fn note(
        &mut self,
        what: &'static str,
        origin: usize,
        target: usize,
        bytes: usize,
        detail: u64,
    ) {
        let (origin, target) = (self.endpoints[origin].rank, self.endpoints[target].rank);
        self.trace.add(TraceEvent { time_ns: self.now_ns, what, origin, target, bytes, detail });
    }

    pub(super) fn completes_locally(&self) -> bool {
        self.config.limits.put_completes == CompletionScope::Local
    }
}

impl EndpointState {
    fn new(rank: u32, config: &FabricConfig) -> Self {
        let receive_buffers = config.limits.receive_buffers;
        Self {
            rank,
            is_up: true,
            published: None,
            peers: Vec::new(),
            routes: Vec::new(),
            registrations: Registrations::default(),
            completions: VecDeque::new(),
            downs: VecDeque::new(),
            inboxes: [VecDeque::new(), VecDeque::new()],
            arrivals: VecDeque::new(),
            work: VecDeque::new(),
            lent: (0..2 * receive_buffers).map(|_| None).collect(),
            lent_counts: [0; 2],
            lent_data: 0,
            outstanding: 0,
            injected: 0,
            sends: 0,
            requests: 0,
            link_free_ns: 0,
            atomic_free_ns: 0,
            was_refused: false,
            may_retry: false,
        }
    }

    /// Whether a poll would find something.
    pub(super) fn is_ready(&self) -> bool {
        !self.completions.is_empty()
            || !self.downs.is_empty()
            || !self.work.is_empty()
            || self.is_packet_due(SendClass::Request)
            || self.is_packet_due(SendClass::Reply)
    }

    /// Whether a packet of this class has arrived and may be handed out.
    pub(super) fn is_packet_due(&self, class: SendClass) -> bool {
        let class = class as usize;
        !self.inboxes[class].is_empty() && self.lent_counts[class] < self.lent.len() / 2
    }

    /// Something that a refused post waited for has come free.
    pub(super) fn note_resources(&mut self) {
        if core::mem::take(&mut self.was_refused) {
            self.may_retry = true;
        }
    }

    /// The route of a peer address, unless it is stale or was never given out.
    pub(super) fn route_of(&self, peer: PeerAddr) -> Option<usize> {
        let slot = self.peers.get(peer.0 as u32 as usize)?;
        slot.route.filter(|_| u64::from(slot.generation) == peer.0 >> 32)
    }

    /// Whether a packet of this class may be sent now.
    pub(super) fn has_credit(&self, config: &FabricConfig, class: SendClass) -> bool {
        // Two shares, so that neither waits for ever behind the other.
        match class {
            SendClass::Request => self.requests < config.send_depth - config.reply_reserve,
            SendClass::Reply => self.sends - self.requests < config.reply_reserve,
        }
    }
}

/// The address of a peer slot, unlike that of any earlier use of the slot.
pub(super) fn peer_addr(slot: usize, generation: u32) -> PeerAddr {
    PeerAddr(u64::from(generation) << 32 | slot as u64)
}
