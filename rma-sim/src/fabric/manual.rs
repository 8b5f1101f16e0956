//! Deliveries chosen by the caller instead of by the clock: what an exhaustive exploration drives.
//!
//! A fabric in this mode has no time: everything that was posted is on the way until somebody delivers it,
//! in any order that the provider contract allows. Two fabrics with the same parts have the same future.

use core::fmt;
use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;

use rma_core::provider::SendClass;

use super::endpoint::Source;
use super::operation::{Kind, OperationId};
use super::state::{EndpointState, Event, EventKind, State, Work};
use super::SimFabric;

/// Which step of a native operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// It reaches the target's memory.
    Execute,
    /// Its result reaches the origin.
    Answer,
    /// Its tag may be reported.
    Complete,
}

/// Something that may be delivered now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Delivery {
    /// The oldest packet of its class between two ranks.
    Packet {
        /// Who sent it.
        origin: u32,
        /// To whom.
        target: u32,
        /// It is a reply.
        is_reply: bool,
    },
    /// A step of a native operation.
    Operation {
        /// Who posted it.
        origin: u32,
        /// Whose memory it concerns.
        target: u32,
        /// Its place among the operations under way between the two, the oldest first.
        index: u32,
        /// Which part of it.
        part: u32,
        /// The step.
        stage: Stage,
    },
    /// A rank learns that another is gone.
    Down {
        /// Who learns it.
        rank: u32,
        /// Which of its routes.
        route: u32,
    },
}

impl Delivery {
    /// The rank whose next poll reports it; `None` when no process takes part in it.
    pub fn polled_by(&self) -> Option<u32> {
        match *self {
            Self::Packet { target, .. } => Some(target),
            Self::Operation { stage: Stage::Execute, .. } => None,
            Self::Operation { origin, .. } => Some(origin),
            Self::Down { rank, .. } => Some(rank),
        }
    }

    /// Between which two ranks it is on the way; news of a death is on the way from a rank to itself.
    pub fn route(&self) -> (u32, u32) {
        match *self {
            Self::Packet { origin, target, .. } | Self::Operation { origin, target, .. } => (origin, target),
            Self::Down { rank, .. } => (rank, rank),
        }
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Packet { origin, target, is_reply } => {
                write!(f, "{target}<{origin}{}", if is_reply { "reply" } else { "request" })
            }
            Self::Operation { origin, target, index, part, stage } => {
                write!(f, "{origin}>{target}#{index}.{part}{stage:?}")
            }
            Self::Down { rank, route } => write!(f, "{rank}!{route}"),
        }
    }
}

impl SimFabric {
    /// From now on deliveries are made by [`SimFabric::deliver`] only, and polls report things in the order
    /// in which they were delivered. To be called while nothing is on the way, on a fabric without faults,
    /// jitter, torn transfers and split atomics, which are choices of the clock's.
    pub fn set_manual(&self) {
        self.state().is_manual = true;
    }

    /// What may be delivered now, in an order that depends on nothing but the fabric's state.
    pub fn deliveries(&self) -> Vec<Delivery> {
        let state = self.state();
        let events: Vec<&Event> = state.events.iter().map(|event| &event.0).collect();
        let enabled = events.iter().filter(|event| state.may_deliver(event, &events));
        let mut deliveries: Vec<_> = enabled.filter_map(|event| state.delivery_of(event)).collect();
        deliveries.sort_unstable();
        deliveries
    }

    /// Makes deliveries, one behind the other; `false`, and nothing is done, when one of them may not be made.
    pub fn deliver(&self, deliveries: &[Delivery]) -> bool {
        let mut state = self.state();
        let numbers: Option<Vec<u64>> = {
            let events: Vec<&Event> = state.events.iter().map(|event| &event.0).collect();
            let number_of = |delivery: &Delivery| {
                let is_meant = |event: &&&Event| {
                    state.delivery_of(event) == Some(*delivery) && state.may_deliver(event, &events)
                };
                events.iter().filter(is_meant).map(|event| event.number).min()
            };
            deliveries.iter().map(number_of).collect()
        };
        let is_possible = numbers.is_some();
        numbers.into_iter().flatten().for_each(|number| state.take_event(number));
        is_possible
    }

    /// Everything that the next posts, polls and deliveries depend on, part by part: fabrics of which all parts
    /// are the same have the same future (up to collisions of a 64-bit hash).
    pub(crate) fn parts(&self) -> FabricParts {
        let state = self.state();
        let endpoints = state.endpoints.iter();
        FabricParts {
            endpoints: endpoints.clone().map(|endpoint| state.endpoint_part(endpoint)).collect(),
            credits: endpoints.map(EndpointState::credits_part).collect(),
            routes: state.route_parts(),
        }
    }
}

/// A simulated fabric as numbers, one for each part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FabricParts {
    /// Of each rank: what its own calls, and deliveries to it, change.
    pub(crate) endpoints: Vec<u64>,
    /// Of each rank: what it may still post, which also changes when others take its packets.
    pub(crate) credits: Vec<u64>,
    /// Of each two ranks, row by row: what is on the way from the one to the other, 0 where nothing is.
    pub(crate) routes: Vec<u64>,
}

impl State {
    fn rank(&self, endpoint: usize) -> u32 {
        self.endpoints[endpoint].rank
    }

    /// The operations under way between two endpoints, the oldest first.
    fn under_way(&self, origin: usize, target: usize) -> Vec<OperationId> {
        let mut ids = self.operations.of_origin(origin);
        ids.retain(|&id| self.operations.get(id).is_some_and(|operation| operation.target == target));
        ids.sort_by_key(|&id| self.operations.get(id).map(|operation| operation.number));
        ids
    }

    /// What an event delivers; `None` when its operation is over.
    fn delivery_of(&self, event: &Event) -> Option<Delivery> {
        let operation = |id: OperationId, part, stage| {
            let found = self.operations.get(id)?;
            let (origin, target) = (found.origin, found.target);
            let index = self.under_way(origin, target).iter().position(|&other| other == id)? as u32;
            Some(Delivery::Operation {
                origin: self.rank(origin),
                target: self.rank(target),
                index,
                part,
                stage,
            })
        };
        match &event.kind {
            EventKind::Packet { target, packet } => Some(Delivery::Packet {
                origin: self.rank(packet.origin),
                target: self.rank(*target),
                is_reply: packet.class == SendClass::Reply,
            }),
            EventKind::Part(id, part) => operation(*id, *part, Stage::Execute),
            EventKind::Answer(id, part) => operation(*id, *part, Stage::Answer),
            EventKind::Complete(id) => operation(*id, 0, Stage::Complete),
            EventKind::Down { endpoint, route } => {
                Some(Delivery::Down { rank: self.rank(*endpoint), route: *route as u32 })
            }
        }
    }

    /// Whether the orders that the fabric keeps allow the event to happen before the other ones.
    fn may_deliver(&self, event: &Event, events: &[&Event]) -> bool {
        let order = self.config.limits.order;
        let earlier = || events.iter().filter(|other| other.number < event.number);
        let is_write = |other: &Event, origin: usize, target: usize| match other.kind {
            EventKind::Part(id, _) => self.operations.get(id).is_some_and(|operation| {
                operation.writes() && operation.origin == origin && operation.target == target
            }),
            _ => false,
        };
        match &event.kind {
            EventKind::Packet { target, packet } => {
                let is_first = !earlier().any(|other| match &other.kind {
                    EventKind::Packet { target: to, packet: before } => {
                        to == target && before.origin == packet.origin && before.class == packet.class
                    }
                    _ => false,
                });
                let follows_put = earlier()
                    .any(|other| matches!(other.kind, EventKind::Part(id, _) if Some(id) == packet.put));
                let waits_for_puts = order.put_before_send && packet.class == SendClass::Request;
                let follows =
                    waits_for_puts && earlier().any(|other| is_write(other, packet.origin, *target));
                let endpoint = &self.endpoints[*target];
                let class = packet.class as usize;
                let kept = endpoint.lent_counts[class] + endpoint.inboxes[class].len();
                is_first && !follows_put && !follows && kept < endpoint.lent.len() / 2
            }
            EventKind::Part(id, _) => self.operations.get(*id).is_some_and(|operation| {
                let (origin, target) = (operation.origin, operation.target);
                let waits_for_puts = order.put_before_get && operation.kind == Kind::Get;
                !(waits_for_puts && earlier().any(|other| is_write(other, origin, target)))
            }),
            _ => true,
        }
    }

    /// Makes one event happen, and forgets those of operations that are over.
    fn take_event(&mut self, number: u64) {
        let mut taken = None;
        for event in core::mem::take(&mut self.events).into_vec() {
            if event.0.number == number {
                taken = Some(event.0.kind);
            } else if self.delivery_of(&event.0).is_some() {
                self.events.push(event);
            }
        }
        let Some(kind) = taken else { return };
        let source = match &kind {
            EventKind::Packet { target, packet } => Some((*target, Source::Inbox(packet.class))),
            EventKind::Part(..) => None,
            EventKind::Answer(id, _) | EventKind::Complete(id) => {
                self.operations.get(*id).map(|operation| (operation.origin, Source::Completions))
            }
            EventKind::Down { endpoint, .. } => Some((*endpoint, Source::Downs)),
        };
        if let Some((endpoint, source)) = source {
            self.endpoints[endpoint].arrivals.push_back(source);
        }
        self.happen(kind);
    }

    fn endpoint_part(&self, endpoint: &EndpointState) -> u64 {
        let mut hasher = DefaultHasher::new();
        (endpoint.rank, endpoint.is_up, endpoint.published.is_some()).hash(&mut hasher);
        endpoint.completions.len().hash(&mut hasher);
        for (tag, failed) in &endpoint.completions {
            (tag.0, failed.map(|code| code.code)).hash(&mut hasher);
        }
        for (peer, code) in &endpoint.downs {
            (peer.0, code.code).hash(&mut hasher);
        }
        for packet in endpoint.inboxes.iter().flatten() {
            (packet.origin, packet.class as u8, &packet.bytes).hash(&mut hasher);
        }
        for (buffer, packet) in endpoint.lent.iter().enumerate() {
            if let Some(packet) = packet {
                (buffer, packet.origin, packet.class as u8, &packet.bytes).hash(&mut hasher);
            }
        }
        for work in &endpoint.work {
            match work {
                Work::Packet(packet) => (packet.origin, &packet.bytes).hash(&mut hasher),
                Work::Part(id, part) => {
                    (self.operations.get(*id).map(|operation| operation.number), part).hash(&mut hasher);
                }
            }
        }
        for slot in &endpoint.peers {
            (slot.route, slot.generation).hash(&mut hasher);
        }
        for route in &endpoint.routes {
            (route.target, route.down.map(|code| code.code), route.invisible).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn route_parts(&self) -> Vec<u64> {
        let ranks = self.endpoints.len();
        let items = self.items_on_the_way();
        let mut parts = Vec::with_capacity(ranks * ranks);
        for origin in 0..ranks {
            for target in 0..ranks {
                let between = (self.rank(origin), self.rank(target));
                let items = items.iter().filter(|(delivery, _)| delivery.route() == between);
                let operations = self.under_way(origin, target);
                if items.clone().next().is_none() && operations.is_empty() {
                    parts.push(0);
                    continue;
                }
                let mut hasher = DefaultHasher::new();
                // In the order posted: what a flush waits for is what comes before it.
                for id in operations {
                    let Some(operation) = self.operations.get(id) else { continue };
                    operation.hash_future(&mut hasher);
                }
                items.for_each(|item| item.hash(&mut hasher));
                parts.push(hasher.finish());
            }
        }
        parts
    }

    /// What is on the way. Where nothing orders two things on one route their order is left out.
    fn items_on_the_way(&self) -> Vec<(Delivery, u64)> {
        let order = self.config.limits.order;
        let mut events: Vec<&Event> = self.events.iter().map(|event| &event.0).collect();
        events.sort_unstable_by_key(|event| event.number);
        let mut items: Vec<(Delivery, u64)> = Vec::with_capacity(events.len());
        for event in events {
            let Some(delivery) = self.delivery_of(event) else { continue };
            let mut content = DefaultHasher::new();
            if let EventKind::Packet { packet, .. } = &event.kind {
                packet.bytes.hash(&mut content);
            }
            items.push((delivery, content.finish()));
        }
        if !(order.put_before_send || order.put_before_get) {
            // Packets of one class share a key, and a stable sort keeps their order.
            items.sort_by_key(|(delivery, _)| *delivery);
        }
        items
    }
}

impl EndpointState {
    fn credits_part(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.outstanding, self.injected, self.sends, self.requests).hash(&mut hasher);
        hasher.finish()
    }
}
