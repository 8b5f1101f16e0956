//! Connections, made when they are first needed, by datagrams between the endpoints.
//!
//! A rank as an origin and a rank as a target have one connection: puts, gets, atomics and requests go one way,
//! replies the other. They receive into different shared queues, so that requests which wait for a buffer never
//! stand in the way of replies. The origin asks with its queue pair's number, the target answers with its own,
//! and the origin says that it is ready; a target that has something to say first calls the origin to ask.
//! Datagrams get lost, so whoever waits repeats what it said last.
//!
//! That nobody answers does not mean that the peer has ended: it may compute, and nothing answers datagrams for
//! it. The device does answer on connections: where there is one in the other direction, an empty write tells.

use std::time::{Duration, Instant};

use rma_core::ids::PeerAddr;
use rma_core::provider::{Completion, FabricCode, PostError, ProviderError};

use crate::datagram::Cause;
use crate::endpoint::{random_sequence, VerbsEndpoint, READS_MAX};
use crate::error::{errno_code, refusal};
use crate::memory::CLASSES;
use crate::objects::{blank_attributes, Qp};
use crate::peer::{Link, Peer, Stage, FIRST_INTERVAL, LAST_INTERVAL};
use crate::poll::{work_id, END, PROBE};
use crate::sys;
use crate::wire::{Kind, Location, Message, MESSAGE_BYTES};

/// Index of the link on which we are the origin.
pub(crate) const ORIGIN: usize = 0;
/// Index of the link on which we are the target.
pub(crate) const TARGET: usize = 1;

/// A connection whose next word must come from the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub(crate) peer: u32,
    pub(crate) role: usize,
}

impl VerbsEndpoint {
    /// A connection is needed and not there: begins to make it, if that has not begun.
    #[cold]
    #[inline(never)]
    pub(crate) fn want(&mut self, peer: usize, role: usize) -> PostError {
        if self.peers[peer].links[role].stage == Stage::Idle && role == ORIGIN && self.waits_for_closing() {
            return PostError::Again;
        }
        let link = &mut self.peers[peer].links[role];
        if link.stage == Stage::Idle && link.next_try.is_some_and(|time| Instant::now() < time) {
            return PostError::Again;
        }
        if core::mem::replace(&mut link.is_wanted, true) || link.stage == Stage::Closing {
            return PostError::Again;
        }
        match (link.stage, role) {
            (Stage::Idle, TARGET) => {
                link.stage = Stage::Calling;
                self.say(peer, role, Kind::Call);
            }
            (Stage::Idle, _) if !self.ask(peer) => return PostError::Again,
            _ => {}
        }
        self.wait_for(peer, role);
        PostError::Again
    }

    /// Repeats what is due, and forgets what has been answered.
    #[cold]
    #[inline(never)]
    pub(crate) fn settle_waiting(&mut self) {
        let now = Instant::now();
        let mut place = 0;
        while let Some(&Waiting { peer, role }) = self.waiting.get(place) {
            let known = &mut self.peers[peer as usize];
            let link = &mut known.links[role];
            if known.down.is_some() || !link.is_waiting() {
                self.waiting.swap_remove(place);
                continue;
            }
            if link.next_try.is_some_and(|time| now < time) {
                place += 1;
                continue;
            }
            if !self.datagrams.can_send() {
                // It stays due.
                break;
            }
            place += 1;
            let (stage, asked, interval) = (link.stage, link.asked, link.interval);
            link.interval =
                (interval * 2).min(if stage == Stage::Answered { LAST_ANSWER } else { LAST_INTERVAL });
            let kind = match stage {
                Stage::Calling => Kind::Call,
                Stage::Asking => Kind::Ask,
                Stage::Closing => Kind::Close,
                _ => Kind::Answer,
            };
            self.say(peer as usize, role, kind);
            // The kernel may have looked for the peer's host for seconds: others wait for the next poll then.
            let said = Instant::now();
            self.peers[peer as usize].links[role].next_try = Some(said + interval);
            if said.duration_since(now) > SLOW {
                break;
            }
            if asked.is_some_and(|time| now.duration_since(time) >= SUSPICION) {
                self.probe(peer as usize, now);
            }
        }
    }

    pub(crate) fn wait_for(&mut self, peer: usize, role: usize) {
        let now = Instant::now();
        let link = &mut self.peers[peer].links[role];
        link.asked = Some(now);
        link.interval = FIRST_INTERVAL;
        link.next_try = Some(now + FIRST_INTERVAL);
        let waiting = Waiting { peer: peer as u32, role };
        if !self.waiting.contains(&waiting) {
            self.waiting.push(waiting);
        }
    }

    /// As an origin: makes our queue pair and names it. `false` where the device has refused it: whoever wants the
    /// connection then finds it idle and wants it again.
    fn ask(&mut self, peer: usize) -> bool {
        if let Err(code) = self.make_queue(peer, ORIGIN) {
            let link = &mut self.peers[peer].links[ORIGIN];
            link.is_wanted = false;
            link.next_try = Some(Instant::now() + link.interval);
            link.interval = (link.interval * 2).min(LAST_INTERVAL);
            self.on_no_queue(peer, code);
            return false;
        }
        let known = &mut self.peers[peer];
        known.asked = known.asked.wrapping_add(1);
        known.links[ORIGIN].stage = Stage::Asking;
        self.say(peer, ORIGIN, Kind::Ask);
        true
    }

    /// The device did not make a queue pair. An idle one that goes leaves its place, unless one is going already.
    fn on_no_queue(&mut self, peer: usize, code: i32) {
        if code == libc::ENOMEM {
            self.close_one();
        }
        self.on_refusal(peer, Cause::Queue, code);
    }

    /// Makes our queue pair of a connection.
    fn make_queue(&mut self, peer: usize, role: usize) -> Result<(), i32> {
        // An origin receives replies, a target requests.
        let srq = &self.lanes[CLASSES - 1 - role].srq;
        let opened = Qp::open(&self.device.domain, &self.cq, Some(srq), sys::IBV_QPT_RC, self.depths);
        let (qp, _) = opened?;
        let mut attributes = blank_attributes();
        attributes.qp_state = sys::IBV_QPS_INIT;
        attributes.port_num = self.device.port;
        attributes.pkey_index = self.device.partition_index;
        attributes.qp_access_flags = (sys::IBV_ACCESS_REMOTE_WRITE
            | sys::IBV_ACCESS_REMOTE_READ
            | sys::IBV_ACCESS_REMOTE_ATOMIC) as u32;
        let mask = sys::IBV_QP_STATE | sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_ACCESS_FLAGS;
        qp.modify(&mut attributes, mask)?;
        let link = &mut self.peers[peer].links[role];
        link.sequence = random_sequence(&mut self.random);
        (link.qp, link.receives_from) = (Some(qp), None);
        self.on_opened(peer, role);
        Ok(())
    }

    /// Lets our queue pair receive from, and send to, the peer's.
    fn join(&mut self, peer: usize, role: usize, queue: u32, sequence: u32) -> Result<(), i32> {
        let known = &mut self.peers[peer];
        let location = known.location;
        let link = &mut known.links[role];
        let Some(qp) = &link.qp else { return Err(libc::EINVAL) };
        let mut attributes = blank_attributes();
        // Where the device refused the second step alone, the first cannot be made again.
        if link.receives_from != Some((queue, sequence)) {
            attributes.qp_state = sys::IBV_QPS_RTR;
            attributes.ah_attr = self.device.way_to(&location);
            attributes.path_mtu = u32::from(self.location.mtu.min(location.mtu));
            attributes.dest_qp_num = queue;
            attributes.rq_psn = sequence;
            attributes.max_dest_rd_atomic = self.location.reads;
            attributes.min_rnr_timer = RECEIVER_NOT_READY_TIMER;
            let mask = sys::IBV_QP_STATE
                | sys::IBV_QP_AV
                | sys::IBV_QP_PATH_MTU
                | sys::IBV_QP_DEST_QPN
                | sys::IBV_QP_RQ_PSN
                | sys::IBV_QP_MAX_DEST_RD_ATOMIC
                | sys::IBV_QP_MIN_RNR_TIMER;
            qp.modify(&mut attributes, mask)?;
            link.receives_from = Some((queue, sequence));
        }
        attributes.qp_state = sys::IBV_QPS_RTS;
        attributes.timeout = TIMEOUT;
        attributes.retry_cnt = RETRIES;
        attributes.rnr_retry = RETRIES_WITHOUT_END;
        attributes.sq_psn = link.sequence;
        let initiates = self.device.attributes.max_qp_init_rd_atom.clamp(0, READS_MAX) as u8;
        attributes.max_rd_atomic = initiates.min(location.reads);
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_TIMEOUT
            | sys::IBV_QP_RETRY_CNT
            | sys::IBV_QP_RNR_RETRY
            | sys::IBV_QP_SQ_PSN
            | sys::IBV_QP_MAX_QP_RD_ATOMIC;
        qp.modify(&mut attributes, mask)?;
        link.remote_queue = queue;
        link.remote_sequence = sequence;
        known.refusals[Cause::Queue as usize] = None;
        Ok(())
    }

    /// A datagram has come, from anybody.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_datagram(&mut self, index: usize, len: usize) {
        let mut bytes = [0; MESSAGE_BYTES];
        let is_one = len == sys::GRH_BYTES + MESSAGE_BYTES;
        if is_one {
            let buffer = self.memory.datagram_in(index);
            // SAFETY: the device has filled the buffer this far.
            let body = unsafe { buffer.add(sys::GRH_BYTES) };
            // SAFETY: as above.
            unsafe { core::ptr::copy_nonoverlapping(body.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        }
        self.post_datagram_receive(index);
        let message = Message::decode(&bytes).filter(|message| message.to == self.location.nonce);
        let Some(message) = message.filter(|message| {
            message.from.is_ethernet == self.location.is_ethernet && self.peers.len() < PEERS_MAX
        }) else {
            return;
        };
        let peer = self.peer_at(message.from);
        if self.peers[peer].down.is_some() {
            return self.on_lost_peer(peer, message.kind);
        }
        match message.kind {
            Kind::Call => self.on_call(peer),
            Kind::Ask => self.on_ask(peer, &message),
            Kind::Answer => self.on_answer(peer, &message),
            Kind::Ready if message.number == self.peers[peer].answered => {
                self.on_ready(peer, message.of_queue)
            }
            Kind::Ready => {}
            Kind::Yield => self.on_yield(peer, &message),
            Kind::Close => self.on_close(peer, &message),
            Kind::Closed => self.on_closed(peer, &message),
            Kind::Refuse => self.peer_lost(peer, refusal(libc::ECONNREFUSED)),
        }
    }

    /// A peer that was given up here waits for us: it is told, so that both sides know.
    fn on_lost_peer(&mut self, peer: usize, kind: Kind) {
        if matches!(kind, Kind::Call | Kind::Ask | Kind::Answer | Kind::Close) {
            self.say(peer, TARGET, Kind::Refuse);
        }
    }

    /// The target has something to say.
    fn on_call(&mut self, peer: usize) {
        let link = &mut self.peers[peer].links[ORIGIN];
        match link.stage {
            Stage::Idle => {
                self.want(peer, ORIGIN);
            }
            // It has closed its half, and we have not heard that yet.
            Stage::Closing => link.is_wanted = true,
            _ => {}
        }
    }

    /// The origin has named its queue pair. It numbers its connections, so that an Ask that comes late makes none.
    fn on_ask(&mut self, peer: usize, message: &Message) {
        let known = &self.peers[peer];
        let link = &known.links[TARGET];
        if message.number == known.answered && link.qp.is_some() && link.remote_queue == message.queue {
            // It did not hear the answer.
            return self.say(peer, TARGET, Kind::Answer);
        }
        if message.number.wrapping_sub(known.answered) as i32 <= 0 {
            return;
        }
        // It has made another meanwhile, so it does not use the one before. It asks again where that cannot go now.
        if link.qp.is_some() && (link.posted > 0 || !self.retire(peer, TARGET)) {
            return;
        }
        let made = self
            .make_queue(peer, TARGET)
            .and_then(|()| self.join(peer, TARGET, message.queue, message.sequence));
        if let Err(code) = made {
            self.discard(peer, TARGET);
            self.on_no_queue(peer, code);
            if self.peers[peer].down.is_some() {
                self.say(peer, TARGET, Kind::Refuse);
            }
            return;
        }
        self.peers[peer].answered = message.number;
        self.peers[peer].links[TARGET].stage = Stage::Answered;
        self.answered += 1;
        self.say(peer, TARGET, Kind::Answer);
        self.wait_for(peer, TARGET);
    }

    /// The target has named its queue pair.
    fn on_answer(&mut self, peer: usize, message: &Message) {
        let known = &self.peers[peer];
        let link = &known.links[ORIGIN];
        if message.number != known.asked || message.of_queue != link.queue() {
            return;
        }
        match link.stage {
            Stage::Asking => {
                if let Err(code) = self.join(peer, ORIGIN, message.queue, message.sequence) {
                    // What may pass is tried again with the next answer.
                    return self.on_refusal(peer, Cause::Queue, code);
                }
                self.peers[peer].links[ORIGIN].stage = Stage::Ready;
                self.say(peer, ORIGIN, Kind::Ready);
            }
            // It did not hear that we are ready.
            Stage::Ready | Stage::Closing if link.remote_queue == message.queue => {
                self.say(peer, ORIGIN, Kind::Ready)
            }
            _ => {}
        }
    }

    /// The origin's half receives, too.
    fn on_ready(&mut self, peer: usize, queue: u32) {
        let link = &mut self.peers[peer].links[TARGET];
        if link.stage == Stage::Answered && link.queue() == queue {
            link.stage = Stage::Ready;
            self.answered -= 1;
        }
    }

    /// A packet has come by this queue pair of ours, so the peer's half receives: it sends.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_first_packet(&mut self, queue: u32) {
        // Who has answered waits to hear that the peer is ready, so it is among these.
        let is_of = |waiting: &&Waiting| self.peers[waiting.peer as usize].links[TARGET].queue() == queue;
        if let Some(&Waiting { peer, .. }) = self.waiting.iter().find(is_of) {
            self.on_ready(peer as usize, queue);
        }
    }

    /// Asks the device at the other end of a connection whether it still has that connection.
    fn probe(&mut self, peer: usize, now: Instant) {
        let known = &mut self.peers[peer];
        if self.probes >= PROBES_MAX
            || known.is_probed
            || known.last_probe.is_some_and(|time| now.duration_since(time) < SUSPICION)
        {
            return;
        }
        let has_room = |link: &Link| link.stage == Stage::Ready && link.posted < self.depths.sends;
        let Some(role) = known.links.iter().position(has_room) else { return };
        let link = &mut known.links[role];
        let Some(qp) = &link.qp else { return };
        let nowhere = sys::Wr { rdma: sys::Rdma { remote_addr: 0, rkey: 0 } };
        let mut request = sys::ibv_send_wr::new(
            work_id(PROBE, (peer * CLASSES + role) as u32),
            sys::IBV_WR_RDMA_WRITE,
            sys::IBV_SEND_SIGNALED,
            &mut [],
            nowhere,
        );
        // SAFETY: the request names no memory.
        if unsafe { qp.post(&mut request) } == 0 {
            link.posted += 1;
            self.probes += 1;
            known.is_probed = true;
            known.last_probe = Some(now);
        }
    }

    /// Posts a last request on the connection as its origin, whose completion says that nothing is under way there.
    #[cold]
    pub(crate) fn post_end(&mut self, peer: usize) {
        let known = &mut self.peers[peer];
        let link = &mut known.links[ORIGIN];
        let nowhere = sys::Wr { rdma: sys::Rdma { remote_addr: 0, rkey: 0 } };
        let id = work_id(END, peer as u32);
        let mut request =
            sys::ibv_send_wr::new(id, sys::IBV_WR_RDMA_WRITE, sys::IBV_SEND_SIGNALED, &mut [], nowhere);
        let has_room = self.probes < PROBES_MAX;
        // SAFETY: the request names no memory.
        let is_posted = has_room && link.qp.as_ref().is_some_and(|qp| unsafe { qp.post(&mut request) } == 0);
        if is_posted {
            link.posted += 1;
            self.probes += 1;
        } else {
            self.endpoint_lost(errno_code(libc::EIO));
        }
    }

    /// The peer at this location, known or new.
    fn peer_at(&mut self, location: Location) -> usize {
        if let Some(&index) = self.by_nonce.get(&location.nonce) {
            return index as usize;
        }
        let index = self.peers.len();
        self.by_nonce.insert(location.nonce, index as u32);
        self.peers.push(Peer::new(location));
        index
    }

    /// Makes a peer of the location of an address.
    pub(crate) fn admit(&mut self, location: Location) -> Result<PeerAddr, ProviderError> {
        if self.peers.len() >= PEERS_MAX {
            return Err(ProviderError { message: format!("more than {PEERS_MAX} peers") });
        }
        let index = self.peer_at(location);
        self.peers[index].connections += 1;
        // Room for this peer's last word.
        self.ready.reserve(self.ready_room());
        self.announce_down(index);
        Ok(PeerAddr(index as u64))
    }

    /// Nothing will be posted to this peer any more; what is in flight comes back with an error.
    #[cold]
    #[inline(never)]
    pub(crate) fn peer_lost(&mut self, peer: usize, code: FabricCode) {
        let Some(known) = self.peers.get_mut(peer) else { return };
        if known.down.is_none() {
            known.down = Some(code);
            // What waits in the list comes back with the rest.
            self.ring();
            let known = &mut self.peers[peer];
            for qp in known.links.iter().filter_map(|link| link.qp.as_ref()) {
                qp.fail();
            }
            if known.links[TARGET].stage == Stage::Answered {
                known.links[TARGET].stage = Stage::Idle;
                self.answered -= 1;
            }
            self.on_lost(peer);
        }
        self.announce_down(peer);
    }

    /// Says once that a peer is down, if its address was ever connected.
    fn announce_down(&mut self, peer: usize) {
        let known = &mut self.peers[peer];
        if let (Some(code), false, 1..) = (known.down, known.is_announced, known.connections) {
            known.is_announced = true;
            self.ready.push_back(Completion::PeerDown(PeerAddr(peer as u64), code));
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn endpoint_lost(&mut self, code: FabricCode) {
        if !core::mem::replace(&mut self.is_down, true) {
            self.ready.push_back(Completion::EndpointDown(code));
        }
    }
}

/// Whether the device may do later what it refused with this error: ways to a peer come and go with a network's ports, and
/// memory and queue pairs with other connections.
pub(crate) const fn may_pass(code: i32) -> bool {
    matches!(
        code,
        libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::ETIMEDOUT
            | libc::EDESTADDRREQ
            | libc::EAGAIN
            | libc::EBUSY
            | libc::ENOMEM
    )
}

/// An origin that wants the connection repeats its Ask, which is answered at once. So this is only for one that has joined, and
/// whose words that it has were all lost, or that is gone.
const LAST_ANSWER: Duration = Duration::from_secs(60);

/// What takes longer is no datagram handed to the device.
const SLOW: Duration = Duration::from_millis(20);

/// A peer that has not answered for so long may have ended.
const SUSPICION: Duration = Duration::from_secs(1);
/// Peers that are asked whether they live at one time: the completion queue has room for so many.
pub(crate) const PROBES_MAX: usize = 8;
/// More peers than this is a mistake.
const PEERS_MAX: usize = 1 << 26;

/// The device sends again when no acknowledgement comes for 4.096 us x 2^17, about half a second,
const TIMEOUT: u8 = 17;
/// and so often, before it says that the peer is gone: after 4 to 16 seconds. The software device takes 7 for
/// "for ever", as it does for the next one.
const RETRIES: u8 = 6;
/// A peer without a free receive buffer is asked again for ever: it may compute. 7 has this meaning.
const RETRIES_WITHOUT_END: u8 = 7;
/// It is asked again after 0.16 ms, as InfiniBand numbers its times.
const RECEIVER_NOT_READY_TIMER: u8 = 8;
