//! Asynchronous events: what the device says of itself, of its port and of its queues, without being asked.
//!
//! A device or a queue that breaks ends the endpoint, a connection that breaks its peer. A port that is down may come
//! up again, so it has as long as the device gives a peer that does not answer; then the endpoint is down, too.
//! Nothing else would say so to who only waits for others.
//!
//! When a port has come back, devices repeat what was under way. The software device sometimes does not, and says nothing:
//! so a connection on which nothing has moved since then, for longer than any device repeats, is taken for broken.

use core::ffi::{c_int, c_uint};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rma_core::provider::ProviderError;

use crate::endpoint::VerbsEndpoint;
use crate::error::{call_failed, errno_code, last_errno};
use crate::sys;

/// What has been heard, and when to listen.
#[derive(Debug)]
pub(crate) struct Events {
    polls: u32,
    /// Since when the port is down.
    port_lost: Option<Instant>,
    patience: Duration,
    /// Since when it is up again, if something was under way then that nobody has looked after.
    port_back: Option<Instant>,
    /// It has been so for long enough, and what has completed meanwhile is still to be read.
    is_due: bool,
    recovery: Duration,
}

impl Events {
    pub(crate) const fn new() -> Self {
        Self {
            polls: 0,
            port_lost: None,
            patience: PATIENCE,
            port_back: None,
            is_due: false,
            recovery: RECOVERY,
        }
    }

    /// Whether connections on which nothing has moved are to be broken.
    #[inline]
    pub(crate) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Whether something is due that no event tells.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.port_lost.is_some() || self.port_back.is_some() || self.is_due
    }
}

/// One asynchronous event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) kind: c_uint,
    /// The object's address, or the port's number in the first four bytes.
    pub(crate) element: u64,
}

impl Event {
    fn port(self) -> u32 {
        let bytes = self.element.to_ne_bytes();
        u32::from_ne_bytes(std::array::from_fn(|index| bytes[index]))
    }
}

impl VerbsEndpoint {
    /// Asks for events now and then: asking is a call of the operating system's, and events are rare.
    #[inline]
    pub(crate) fn listen(&mut self) {
        self.events.polls = self.events.polls.wrapping_add(1);
        if self.events.polls % POLLS_BETWEEN == 0 || self.events.is_waiting() {
            self.take_events();
        }
    }

    /// Takes the events that are there.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_events(&mut self) {
        for _ in 0..EVENTS_AT_ONCE {
            let Some(event) = self.device.domain.next_event() else { break };
            self.on_event(event);
        }
        if self.events.port_lost.is_some_and(|since| since.elapsed() >= self.events.patience) {
            self.events.port_lost = None;
            self.endpoint_lost(errno_code(libc::ENETDOWN));
        }
        if self.events.port_back.is_some_and(|since| since.elapsed() >= self.events.recovery) {
            (self.events.port_back, self.events.is_due) = (None, true);
        }
    }

    /// The port has come back: notes what is under way.
    fn note_under_way(&mut self) {
        let links = self.peers.iter_mut().flat_map(|peer| &mut peer.links);
        for link in links {
            link.under_way = (link.posted > 0).then_some(link.completed);
            if link.under_way.is_some() {
                self.events.port_back = Some(Instant::now());
            }
        }
    }

    /// Everything that has completed was read: gives up the peers of connections on which nothing has moved since.
    #[cold]
    #[inline(never)]
    pub(crate) fn lose_stuck(&mut self) {
        self.events.is_due = false;
        for peer in 0..self.peers.len() {
            let mut is_stuck = false;
            for link in &mut self.peers[peer].links {
                is_stuck |= link.under_way.take() == Some(link.completed);
            }
            if is_stuck {
                self.peer_lost(peer, errno_code(libc::ETIMEDOUT));
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event.kind {
            sys::IBV_EVENT_DEVICE_FATAL => self.endpoint_lost(errno_code(libc::ENODEV)),
            sys::IBV_EVENT_CQ_ERR | sys::IBV_EVENT_SRQ_ERR => {
                self.endpoint_lost(errno_code(libc::ENOTRECOVERABLE));
            }
            sys::IBV_EVENT_QP_FATAL | sys::IBV_EVENT_QP_REQ_ERR | sys::IBV_EVENT_QP_ACCESS_ERR => {
                self.on_broken_queue(event.element);
            }
            sys::IBV_EVENT_PORT_ERR if event.port() == u32::from(self.device.port) => {
                self.events.port_lost.get_or_insert_with(Instant::now);
                (self.events.port_back, self.events.is_due) = (None, false);
            }
            sys::IBV_EVENT_PORT_ACTIVE if event.port() == u32::from(self.device.port) => {
                self.events.port_lost = None;
                self.note_under_way();
            }
            _ => {}
        }
    }

    /// The queue pair at this address is broken, for a reason that is not a request of ours.
    fn on_broken_queue(&mut self, address: u64) {
        if self.datagrams.qp.as_ptr() as u64 == address {
            return self.endpoint_lost(errno_code(libc::ENOTRECOVERABLE));
        }
        let is_it =
            |link: &crate::peer::Link| link.qp.as_ref().is_some_and(|qp| qp.as_ptr() as u64 == address);
        if let Some(peer) = self.peers.iter().position(|peer| peer.links.iter().any(is_it)) {
            self.peer_lost(peer, errno_code(libc::ECONNABORTED));
        }
    }
}

/// One descriptor for who sleeps: readable when a completion has come, or an event.
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn open(descriptors: [c_int; 2]) -> Result<Self, ProviderError> {
        let failed = |call| call_failed(call, "the endpoint", last_errno());
        // SAFETY: takes a number.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(failed("epoll_create1"));
        }
        // SAFETY: the descriptor was just made, and nobody else has it.
        let waker = Self(unsafe { OwnedFd::from_raw_fd(epoll) });
        for descriptor in descriptors {
            let mut wanted = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: takes descriptors, and reads the structure during the call.
            let result = unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor, &mut wanted) };
            if result != 0 {
                return Err(failed("epoll_ctl"));
            }
        }
        Ok(waker)
    }

    pub(crate) fn fd(&self) -> c_int {
        self.0.as_raw_fd()
    }
}

/// Polls between two questions for events.
const POLLS_BETWEEN: u32 = 1024;
/// Events taken at one time; others wait for the next.
const EVENTS_AT_ONCE: usize = 16;
/// A port may be down for so long: as long as it takes the device to give up a peer.
const PATIENCE: Duration = Duration::from_secs(8);
/// What was under way when a port came back has so long to move: some devices repeat for 12 s. A peer that has taken no
/// packet for so long, because it computes, is lost as well if its port or ours was down, and so is one to which a single
/// request is under way that takes longer.
const RECOVERY: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rma_core::ids::Tag;
    use rma_core::provider::{Completion, CompletionBatch, Endpoint, PostError, SendClass};

    use super::{Event, POLLS_BETWEEN};
    use crate::connect::{ORIGIN, TARGET};
    use crate::sys::{self, emulated};
    use crate::world::World;
    use crate::{Options, VerbsEndpoint};

    fn endpoint() -> VerbsEndpoint {
        let device = Some(emulated::NAME.to_str().unwrap().to_owned());
        VerbsEndpoint::open(&Options { device, ..Options::default() }).unwrap()
    }

    fn raise(endpoint: &VerbsEndpoint, kind: core::ffi::c_uint, element: u64) {
        emulated::raise(endpoint.device.domain.context(), Event { kind, element });
    }

    /// What the endpoint says in as many polls as it takes to hear everything.
    fn polled(endpoint: &mut VerbsEndpoint) -> Vec<Completion> {
        let mut batch = CompletionBatch::new();
        let mut said = Vec::new();
        for _ in 0..=POLLS_BETWEEN {
            endpoint.poll(&mut batch);
            said.extend(std::iter::from_fn(|| batch.pop()));
        }
        said
    }

    fn is_down(said: &[Completion]) -> bool {
        matches!(said, [Completion::EndpointDown(_)])
    }

    #[test]
    fn what_breaks_the_device_or_a_queue_ends_the_endpoint_once() {
        for kind in [sys::IBV_EVENT_DEVICE_FATAL, sys::IBV_EVENT_CQ_ERR, sys::IBV_EVENT_SRQ_ERR] {
            let mut endpoint = endpoint();
            raise(&endpoint, kind, 0);
            raise(&endpoint, kind, 0);
            let said = polled(&mut endpoint);
            assert!(is_down(&said), "event {kind}: {said:?}");
            let own = endpoint.address();
            let peer = endpoint.connect(&own).unwrap();
            assert!(matches!(endpoint.send(peer, b"x", b"", SendClass::Request), Err(PostError::Failed(_))));
        }
    }

    #[test]
    fn events_that_say_nothing_of_us_are_no_errors() {
        let mut endpoint = endpoint();
        let (ours, other) = (u64::from(endpoint.device.port), u64::from(endpoint.device.port) + 1);
        for (kind, element) in [(sys::IBV_EVENT_PORT_ACTIVE, ours), (4, 0), (5, 0), (15, 0), (16, 0), (99, 7)]
        {
            raise(&endpoint, kind, element);
        }
        // Another port, and a queue pair that is not ours any more.
        endpoint.events.patience = Duration::ZERO;
        raise(&endpoint, sys::IBV_EVENT_PORT_ERR, other);
        raise(&endpoint, sys::IBV_EVENT_QP_FATAL, 0x1000);
        assert!(polled(&mut endpoint).is_empty());
    }

    #[test]
    fn a_port_that_stays_down_ends_the_endpoint_and_one_that_comes_back_does_not() {
        let mut endpoint = endpoint();
        let port = u64::from(endpoint.device.port);
        raise(&endpoint, sys::IBV_EVENT_PORT_ERR, port);
        assert!(polled(&mut endpoint).is_empty());
        assert!(!endpoint.arm_wait(), "who sleeps would not see the end of its patience");
        raise(&endpoint, sys::IBV_EVENT_PORT_ACTIVE, port);
        endpoint.events.patience = Duration::ZERO;
        assert!(polled(&mut endpoint).is_empty());
        raise(&endpoint, sys::IBV_EVENT_PORT_ERR, port);
        assert!(is_down(&polled(&mut endpoint)));
    }

    /// A request that stays under way, as the target has no buffer left; the port of the origin comes back.
    fn stuck_behind_a_port_that_came_back() -> World<VerbsEndpoint> {
        let mut world = World::new((0..2).map(|_| endpoint()).collect());
        world.send(0, 1, b"first", b"");
        world.receive(1);
        world.nodes[1].holds_packets = true;
        let peer = world.nodes[0].peers[1];
        world.until("no room is left", |world| {
            let sent = world.nodes[0].ep.send(peer, b"more", b"", SendClass::Request);
            world.poll();
            sent == Err(PostError::Again)
        });
        let ep = &world.nodes[0].ep;
        let port = u64::from(ep.device.port);
        raise(ep, sys::IBV_EVENT_PORT_ERR, port);
        raise(ep, sys::IBV_EVENT_PORT_ACTIVE, port);
        world
    }

    #[test]
    fn what_does_not_move_when_a_port_is_back_breaks_its_connection() {
        let mut world = stuck_behind_a_port_that_came_back();
        let (peer, ep) = (world.nodes[0].peers[1], &mut world.nodes[0].ep);
        ep.events.recovery = Duration::ZERO;
        let said = polled(ep);
        let timed_out = crate::error::errno_code(libc::ETIMEDOUT);
        assert!(said.contains(&Completion::PeerDown(peer, timed_out)), "{said:?}");
        assert!(matches!(ep.send(peer, b"x", b"", SendClass::Request), Err(PostError::Failed(_))));
    }

    #[test]
    fn what_moves_when_a_port_is_back_goes_on() {
        let mut world = stuck_behind_a_port_that_came_back();
        let said = polled(&mut world.nodes[0].ep);
        assert!(said.is_empty(), "{said:?}");
        assert!(!world.nodes[0].ep.arm_wait(), "who sleeps would not see that nothing moves");
        world.nodes[1].let_go();
        let arrived = world.nodes[1].packets.len();
        world.until("more arrives", |world| {
            world.poll();
            world.nodes[1].packets.len() > arrived
        });
        world.nodes[0].ep.events.recovery = Duration::ZERO;
        let said = polled(&mut world.nodes[0].ep);
        assert!(said.is_empty(), "{said:?}");
        world.send(0, 1, b"last", b"");
        world.until("the last arrives", |world| {
            world.poll();
            world.nodes[1].packets.back().is_some_and(|packet| packet == b"last")
        });
    }

    #[test]
    fn a_broken_connection_is_the_end_of_its_peer_and_of_no_other() {
        for role in [ORIGIN, TARGET] {
            let mut world = World::new((0..3).map(|_| endpoint()).collect());
            for to in [1, 2] {
                world.send(0, to, b"request", b"");
                world.receive(to);
                world.send_as(to, 0, b"reply", b"", SendClass::Reply);
                world.receive(0);
            }
            let (at, of) = if role == ORIGIN { (0, 1) } else { (1, 0) };
            let peer = world.nodes[at].peers[of];
            let ep = &world.nodes[at].ep;
            let queue = ep.peers[peer.0 as usize].links[role].qp.as_ref().unwrap().as_ptr() as u64;
            raise(ep, sys::IBV_EVENT_QP_FATAL, queue);
            world.until("the peer is down", |world| !world.nodes[at].downs.is_empty());
            for _ in 0..POLLS_BETWEEN {
                world.poll();
            }
            let downs: Vec<_> = world.nodes[at].downs.iter().map(|(peer, _)| *peer).collect();
            assert_eq!(downs, [peer]);
            if role == ORIGIN {
                world.send(0, 2, b"again", b"");
                assert_eq!(world.receive(2), b"again");
            }
            let refused = world.nodes[at].ep.flush(peer, Tag(1));
            assert!(refused.is_err(), "{refused:?}");
        }
    }

    #[test]
    fn an_event_wakes_who_sleeps() {
        let mut endpoint = endpoint();
        let descriptor = endpoint.wait_fd().unwrap();
        let is_readable = || {
            let mut wanted = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, which is written during the call.
            unsafe { libc::poll(&mut wanted, 1, 0) == 1 }
        };
        assert!(endpoint.arm_wait());
        assert!(!is_readable());
        raise(&endpoint, sys::IBV_EVENT_DEVICE_FATAL, 0);
        assert!(is_readable());
        assert!(!endpoint.arm_wait(), "there is something to say");
        assert!(is_down(&polled(&mut endpoint)));
        assert!(!is_readable());
    }
}
