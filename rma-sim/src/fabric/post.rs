//! The posting side: what an endpoint's calls do to the shared state.

use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::provider::{Accepted, FabricCode, Post, PostError, RemoteAddr, SendClass};

use super::memory::MemoryPointer;
use super::operation::{Kind, Operation, OperationId};
use super::record::{PacketRecord, PacketRoute, Traffic, Verdict};
use super::state::{peer_addr, EventKind, Packet, PeerSlot, Route, State, PEER_DOWN, REFUSED};
use super::vector::Accesses;

/// Most parts that a torn put or get is cut into, so that a long one does not flood the clock.
const PARTS_MAX: usize = 64;

impl State {
    /// Makes `target` a peer of `endpoint`.
    pub(super) fn connect(&mut self, endpoint: usize, target: usize) -> PeerAddr {
        let setup_ns = self.random.below(self.config.faults.connect_ns + 1);
        let ready_ns = self.now_ns + setup_ns;
        let state = &mut self.endpoints[endpoint];
        // The direction keeps its order across a reconnect, hence its state.
        let known = state.routes.iter().position(|route| route.target == target);
        let route = known.unwrap_or_else(|| {
            state.routes.push(Route::new(target, ready_ns));
            state.routes.len() - 1
        });
        let free = state.peers.iter().position(|slot| slot.route.is_none());
        let slot = free.unwrap_or_else(|| {
            state.peers.push(PeerSlot { route: None, generation: 0 });
            state.peers.len() - 1
        });
        state.peers[slot].route = Some(route);
        state.peers[slot].generation += 1;
        peer_addr(slot, state.peers[slot].generation)
    }

    pub(super) fn disconnect(&mut self, endpoint: usize, peer: PeerAddr) {
        let Some(route) = self.endpoints[endpoint].route_of(peer) else {
            return self.violation(
                endpoint,
                "only a connected peer can be disconnected",
                format!("{peer:?}"),
            );
        };
        let outstanding = self.operations.outstanding(endpoint, route);
        if outstanding > 0 && self.endpoints[endpoint].routes[route].down.is_none() {
            let detail = format!("{outstanding} operations to {peer:?}");
            self.violation(endpoint, "nothing may be outstanding to a peer that is disconnected", detail);
        }
        self.endpoints[endpoint].peers[peer.0 as u32 as usize].route = None;
    }

    /// Finds the route of a post, or says why there is none.
    fn admit(&mut self, endpoint: usize, peer: PeerAddr) -> Result<usize, PostError> {
        let Some(route) = self.endpoints[endpoint].route_of(peer) else {
            self.violation(endpoint, "posts go to connected peers", format!("{peer:?}"));
            return Err(PostError::Failed(REFUSED));
        };
        if !self.endpoints[endpoint].is_up {
            return Err(PostError::Failed(PEER_DOWN));
        }
        if let Some(code) = self.endpoints[endpoint].routes[route].down {
            return Err(PostError::Failed(code));
        }
        let target = self.endpoints[endpoint].routes[route].target;
        if !self.endpoints[target].is_up {
            self.endpoints[endpoint].routes[route].down = Some(PEER_DOWN);
            let heard_ns = self.now_ns + self.delay_ns();
            self.schedule(heard_ns, EventKind::Down { endpoint, route });
            return Err(PostError::Failed(PEER_DOWN));
        }
        if self.random.chance(self.config.faults.again_per_mille) {
            self.endpoints[endpoint].may_retry = true;
            return Err(PostError::Again);
        }
        Ok(route)
    }

    fn again(&mut self, endpoint: usize) -> PostError {
        self.endpoints[endpoint].was_refused = true;
        PostError::Again
    }

    pub(super) fn send(
        &mut self,
        endpoint: usize,
        peer: PeerAddr,
        parts: [&[u8]; 2],
        class: SendClass,
    ) -> Result<(), PostError> {
        let len = parts[0].len() + parts[1].len();
        if len > self.config.limits.send_bytes_max {
            let detail = format!("{len} bytes to {peer:?}");
            self.violation(endpoint, "a packet is at most send_bytes_max long", detail);
            return Err(PostError::Failed(REFUSED));
        }
        let route = self.admit(endpoint, peer)?;
        if !self.endpoints[endpoint].has_credit(&self.config, class) {
            return Err(self.again(endpoint));
        }
        let mut bytes = self.take_buffer(len);
        bytes[..parts[0].len()].copy_from_slice(parts[0]);
        bytes[parts[0].len()..].copy_from_slice(parts[1]);
        self.endpoints[endpoint].sends += 1;
        self.endpoints[endpoint].requests += usize::from(class == SendClass::Request);
        let target = self.endpoints[endpoint].routes[route].target;
        let traffic = &mut self.endpoints[endpoint].routes[route].traffic;
        traffic.packets += 1;
        traffic.packet_bytes += len as u64;
        self.note("send", endpoint, target, len, packet_detail(&bytes));
        let packet = Packet { origin: endpoint, class, bytes, put: None };
        if let Some(packet) = self.inspect(endpoint, target, packet) {
            self.launch(endpoint, route, packet);
        }
        Ok(())
    }

    /// Shows the packet to the record and to the interceptor.
    fn inspect(&mut self, endpoint: usize, target: usize, mut packet: Packet) -> Option<Packet> {
        let (origin, to) = (self.endpoints[endpoint].rank, self.endpoints[target].rank);
        let time_ns = self.now_ns;
        if let Some(records) = &mut self.records {
            records.push(PacketRecord { time_ns, origin, target: to, bytes: packet.bytes.clone() });
        }
        let Some(interceptor) = &mut self.interceptor else { return Some(packet) };
        match interceptor(PacketRoute { time_ns, origin, target: to }, &mut packet.bytes) {
            Verdict::Deliver => Some(packet),
            Verdict::Drop => {
                self.note("dropped", endpoint, target, packet.bytes.len(), packet_detail(&packet.bytes));
                self.drop_packet(packet);
                None
            }
        }
    }

    fn launch(&mut self, endpoint: usize, index: usize, packet: Packet) {
        let arrival_ns = self.arrival_ns(endpoint, index, packet.bytes.len());
        let orders_puts = self.config.limits.order.put_before_send;
        let route = &mut self.endpoints[endpoint].routes[index];
        // Contract line 5: in the order sent. Equal times are delivered in the order scheduled.
        let last_ns = &mut route.last_packet_ns[packet.class as usize];
        *last_ns = arrival_ns.max(*last_ns);
        if orders_puts && packet.class == SendClass::Request {
            *last_ns = route.last_visible_ns.max(*last_ns);
        }
        let (target, time_ns) = (route.target, *last_ns);
        self.schedule(time_ns, EventKind::Packet { target, packet });
    }

    /// Posts anything but a packet.
    pub(super) fn post(&mut self, peer: PeerAddr, mut operation: Operation) -> Post {
        let endpoint = operation.origin;
        let route = match self.admit(endpoint, peer) {
            Ok(route) => route,
            Err(error) => {
                self.give_buffer(operation.buffer);
                return Err(error);
            }
        };
        let state = &self.endpoints[endpoint];
        let outstanding_max = self.config.limits.outstanding_max;
        let is_full = match operation.tag {
            Some(_) => state.outstanding >= outstanding_max,
            None => state.injected >= outstanding_max,
        };
        // The data are a request on the way.
        let has_room = operation.data.is_none() || state.has_credit(&self.config, SendClass::Request);
        if is_full || !has_room {
            self.give_buffer(operation.buffer);
            return Err(self.again(endpoint));
        }
        operation.route = route;
        operation.target = state.routes[route].target;
        operation.posted_ns = self.now_ns;
        let target = operation.target;
        operation.is_at_once = self.is_near(endpoint, target) && self.finds_at(target, &operation);
        self.check_alignment(&operation);
        self.account(&operation);
        self.cut(&mut operation);
        let kind = operation.kind;
        // Of a put with data the target knows more than the origin.
        let is_local = self.completes_locally() || operation.data.is_some();
        let is_early = is_local || (kind == Kind::Put && self.sabotage.put_early);
        let may_be_early = matches!(kind, Kind::Put | Kind::Atomic) && operation.tag.is_some();
        operation.completes_early = is_early && may_be_early && !operation.is_at_once;
        let completes_early = operation.completes_early;
        let is_at_once = operation.is_at_once;
        let id = self.operations.insert(operation);
        if is_at_once {
            self.do_at_once(id);
            return Ok(Accepted::Complete);
        }
        if kind == Kind::Flush {
            self.launch_flush(id);
        } else {
            let last_ns = self.launch_parts(id);
            self.launch_data(id, last_ns);
        }
        if completes_early {
            let jitter_ns = self.config.model.jitter_ns;
            let at_ns = self.now_ns + self.random.below(jitter_ns + 1);
            self.schedule(at_ns, EventKind::Complete(id));
        }
        Ok(Accepted::Tracked)
    }

    /// Has the target do an atomic by itself, now or not at all.
    pub(super) fn assist(&mut self, peer: PeerAddr, operation: Operation) -> bool {
        let may_be = self.config.assist_per_mille > 0 && self.is_done_at_once(peer, &operation);
        // What is done at once has no tag, and its memory is free.
        may_be
            && self.random.chance(self.config.assist_per_mille)
            && self.post(peer, operation) == Ok(Accepted::Complete)
    }

    /// Whether the one does operations on the other's memory within the post.
    pub(super) fn is_near(&self, endpoint: usize, target: usize) -> bool {
        let group = |index: usize| self.endpoints[index].rank.checked_div(self.config.near_ranks);
        group(endpoint).is_some() && group(endpoint) == group(target)
    }

    /// Whether the peer is connected and near, and the operation's memory is registered.
    pub(super) fn is_done_at_once(&self, peer: PeerAddr, operation: &Operation) -> bool {
        let endpoint = &self.endpoints[operation.origin];
        endpoint.route_of(peer).is_some_and(|route| {
            let target = endpoint.routes[route].target;
            self.is_near(operation.origin, target) && self.finds_at(target, operation)
        })
    }

    /// Whether the operation's memory is registered. What is not is reported when it is executed.
    fn finds_at(&self, target: usize, operation: &Operation) -> bool {
        let Operation { at, len, .. } = *operation;
        let registrations = &self.endpoints[target].registrations;
        operation.kind == Kind::Flush
            || Accesses::find(registrations, at, len, operation.pieces.as_ref()).is_ok()
    }

    /// All of an operation.
    fn do_at_once(&mut self, id: OperationId) {
        match self.operations.get(id).map(|operation| operation.kind) {
            // Nothing that was posted to the target before is under way.
            Some(Kind::Flush) => drop(self.on_complete(id)),
            _ => self.execute(id, 0),
        }
    }

    fn check_alignment(&mut self, operation: &Operation) {
        if !operation.is_atomic() || operation.is_assisted {
            return;
        }
        let found = self.endpoints[operation.target].registrations.find(
            operation.at.key,
            operation.at.addr,
            operation.len,
        );
        // A range that is not registered is reported when the operation is executed.
        if found.is_ok_and(|access| !access.is_aligned(operation.dtype.size())) {
            let detail =
                format!("{:?} on {} at {:#x}", operation.kind, operation.dtype.name(), operation.at.addr);
            self.violation(operation.origin, "native atomics want aligned elements", detail);
        }
    }

    fn account(&mut self, operation: &Operation) {
        let Operation { kind, origin, target, len, tag, .. } = *operation;
        let endpoint = &mut self.endpoints[origin];
        match tag {
            Some(_) => endpoint.outstanding += 1,
            None => endpoint.injected += 1,
        }
        let route = &mut endpoint.routes[operation.route];
        route.unfinished += 1;
        if operation.writes() {
            route.invisible += 1;
        }
        let bytes = len as u64;
        let name = match kind {
            Kind::Put => {
                route.traffic.puts += 1;
                route.traffic.put_bytes += bytes;
                route.traffic.puts_with_data += u64::from(operation.data.is_some());
                "put"
            }
            Kind::Get => {
                route.traffic.gets += 1;
                route.traffic.get_bytes += bytes;
                "get"
            }
            Kind::Atomic | Kind::FetchAtomic | Kind::CompareAtomic => {
                route.traffic.atomics += 1;
                "atomic"
            }
            Kind::Flush => {
                route.traffic.flushes += 1;
                "flush"
            }
        };
        self.note(name, origin, target, len, tag.map_or(u64::MAX, |tag| tag.0));
    }

    /// Decides how many parts the operation travels in, and finds memory for its result.
    fn cut(&mut self, operation: &mut Operation) {
        let torn_bytes = match self.config.faults.torn_bytes {
            0 => operation.len,
            _ if operation.is_at_once => operation.len,
            torn_bytes => torn_bytes.max(operation.len.div_ceil(PARTS_MAX)),
        };
        operation.part_bytes = operation.len.min(torn_bytes).max(1);
        let parts = operation.len.div_ceil(operation.part_bytes).max(1) as u32;
        let is_split = self.config.faults.split_atomics
            && !self.config.limits.needs_target_progress
            && !operation.is_at_once;
        operation.parts = match operation.kind {
            Kind::Flush => 0,
            Kind::Put | Kind::Get => parts,
            Kind::Atomic | Kind::FetchAtomic | Kind::CompareAtomic => 1 + u32::from(is_split),
        };
        operation.unexecuted = operation.parts;
        operation.unanswered = match operation.kind {
            Kind::Get => parts,
            Kind::FetchAtomic | Kind::CompareAtomic => 1,
            Kind::Put | Kind::Atomic | Kind::Flush => 0,
        };
        if operation.is_atomic() || operation.kind == Kind::Get {
            operation.buffer = self.take_buffer(operation.len);
        }
        if operation.is_atomic() {
            operation.update = self.take_buffer(operation.len);
        }
    }

    /// Returns when the last part arrives.
    fn launch_parts(&mut self, id: OperationId) -> u64 {
        let Some(operation) = self.operations.get(id) else { return 0 };
        let Operation { origin, route, target, kind, parts, part_bytes, .. } = *operation;
        let (is_write, is_atomic) = (operation.writes(), operation.is_atomic());
        let order = self.config.limits.order;
        let (mut at_ns, mut last_ns) = (0, 0);
        for part in 0..parts {
            if is_atomic && part > 0 {
                // The second step of an atomic: nothing of the fabric comes between, the CPU may.
                at_ns += self.config.model.latency_ns / 2;
            } else {
                at_ns = self.arrival_ns(origin, route, part_bytes);
            }
            let state = &mut self.endpoints[origin].routes[route];
            if kind == Kind::Get && order.put_before_get {
                at_ns = at_ns.max(state.last_visible_ns);
            }
            if is_atomic {
                // No atomic comes between the two steps of another.
                at_ns = at_ns.max(self.endpoints[target].atomic_free_ns);
                self.endpoints[target].atomic_free_ns = at_ns;
            }
            if is_write {
                let state = &mut self.endpoints[origin].routes[route];
                state.last_visible_ns = state.last_visible_ns.max(at_ns);
            }
            self.schedule(at_ns, EventKind::Part(id, part));
            last_ns = at_ns.max(last_ns);
        }
        last_ns
    }

    /// The data of a put follow its last part, as a request that is behind all earlier ones.
    fn launch_data(&mut self, id: OperationId, last_ns: u64) {
        let Some(operation) = self.operations.get(id) else { return };
        let (Some(data), origin, route) = (operation.data, operation.origin, operation.route) else { return };
        let len = self.config.data_bytes.min(8);
        let mut bytes = self.take_buffer(len);
        bytes.copy_from_slice(&data.to_le_bytes()[..len]);
        self.endpoints[origin].sends += 1;
        self.endpoints[origin].requests += 1;
        let route = &mut self.endpoints[origin].routes[route];
        let least_ns = if self.sabotage.data_early { 0 } else { last_ns };
        let last_packet_ns = &mut route.last_packet_ns[SendClass::Request as usize];
        *last_packet_ns = least_ns.max(*last_packet_ns);
        if self.config.limits.order.put_before_send {
            *last_packet_ns = route.last_visible_ns.max(*last_packet_ns);
        }
        let (target, time_ns) = (route.target, *last_packet_ns);
        let packet = Packet { origin, class: SendClass::Request, bytes, put: Some(id) };
        self.schedule(time_ns, EventKind::Packet { target, packet });
    }

    fn launch_flush(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        let (origin, route) = (operation.origin, operation.route);
        let route = &mut self.endpoints[origin].routes[route];
        operation.waiting = if self.sabotage.flush_early { 0 } else { route.invisible };
        let is_waiting = operation.waiting > 0;
        route.flushes.push(id);
        if !is_waiting {
            self.schedule_flush(id);
        }
    }

    /// The engine called something that the endpoint says it does not have.
    #[cold]
    pub(super) fn not_native(&mut self, endpoint: usize, call: &'static str, detail: String) -> PostError {
        self.violation(endpoint, "only native operations may be posted", format!("{call} {detail}"));
        PostError::Failed(REFUSED)
    }
}

impl Operation {
    /// An operation that is not posted yet, with nothing but what every kind has.
    pub(super) fn new(kind: Kind, origin: usize, at: RemoteAddr, len: usize, tag: Option<Tag>) -> Self {
        Self {
            kind,
            origin,
            route: 0,
            target: 0,
            tag,
            source: MemoryPointer::NULL,
            compare: MemoryPointer::NULL,
            result: MemoryPointer::NULL,
            at,
            len,
            pieces: None,
            dtype: rma_core::dtype::Dtype::U8,
            reduce: rma_core::op::ReduceOp::NoOp,
            data: None,
            buffer: Vec::new(),
            is_copied: false,
            update: Vec::new(),
            part_bytes: 1,
            parts: 0,
            unexecuted: 0,
            unanswered: 0,
            waiting: 0,
            number: 0,
            posted_ns: 0,
            is_at_once: false,
            is_assisted: false,
            failed: None,
            is_reported: false,
            completes_early: false,
        }
    }

    /// A flush, which has no remote address.
    pub(super) fn flush(origin: usize, tag: Tag) -> Self {
        Self::new(Kind::Flush, origin, RemoteAddr { addr: 0, key: RemoteKey(0) }, 0, Some(tag))
    }
}

impl Route {
    fn new(target: usize, ready_ns: u64) -> Self {
        Self {
            target,
            down: None::<FabricCode>,
            ready_ns,
            last_packet_ns: [0; 2],
            last_visible_ns: 0,
            invisible: 0,
            unfinished: 0,
            flushes: Vec::new(),
            traffic: Traffic::default(),
        }
    }
}

/// The first eight bytes of a packet, for the trace.
fn packet_detail(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    let len = bytes.len().min(8);
    first[..len].copy_from_slice(&bytes[..len]);
    u64::from_le_bytes(first)
}
