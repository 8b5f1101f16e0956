//! Closing connections that nobody uses, so that there are no more of them than [`crate::Options::connections_max`],
//! however many peers this process has.
//!
//! When there are too many, a hand goes round and takes the first that is idle and was not used since the hand came by
//! last. Only its origin closes it, for only the origin knows whether puts and gets are under way: it posts nothing
//! more and tells the target, which closes its half when its replies have been acknowledged, and says so; then the
//! origin closes its own. A target with too many asks the origin to begin. As both sides were idle nothing is lost,
//! and whoever needs the connection again makes a new one.
//!
//! A device may throw away what a queue pair has received when it is destroyed, also what was not read from the
//! completion queue yet. So the half is broken first and destroyed when a last request on it has come back: what
//! came before that has been read.

use std::time::{Duration, Instant};

use crate::connect::{Waiting, ORIGIN, TARGET};
use crate::endpoint::VerbsEndpoint;
use crate::memory::CLASSES;
use crate::objects::Qp;
use crate::peer::{Link, Stage};
use crate::poll::{work_id, RETIRED};
use crate::sys;
use crate::wire::{Kind, Message};

/// Halves of connections that wait for their last request at one time; others are closed later.
pub(crate) const RETIRED_MAX: usize = 8;
/// Connections that are being closed at one time.
const CLOSING_MAX: usize = 16;
/// While there are too many the hand passes so many links,
const LOOKS: usize = 64;
/// at such intervals.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Connections beyond the bound from which on a new one waits for those that are being closed,
const SLACK: usize = 4;
/// but only for so long, as their targets may compute.
pub(crate) const PATIENCE: Duration = Duration::from_millis(200);

/// The connections that exist, and those about to be destroyed.
#[derive(Debug)]
pub(crate) struct Connections {
    /// Queue pairs that wait for their last request.
    retired: [Option<Qp>; RETIRED_MAX],
    /// Links that have a queue pair: twice the peer, and the role.
    open: Vec<u32>,
    /// Links of lost peers, whose queue pairs are broken and not yet about to be destroyed.
    pub(crate) lost: Vec<u32>,
    hand: usize,
    max: usize,
    /// When the hand moves again by itself.
    next_look: Option<Instant>,
    /// How many links the hand has passed since it last closed one, or one was opened.
    passed: usize,
    /// Targets' halves whose origins were asked to close, since when.
    yielding: (usize, Option<Instant>),
}

impl Connections {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            retired: [const { None }; RETIRED_MAX],
            open: Vec::new(),
            lost: Vec::new(),
            hand: 0,
            max,
            next_look: None,
            passed: 0,
            yielding: (0, None),
        }
    }

    /// Whether there are more than there should be.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.open.len() > self.max
    }

    /// Whether there may be idle ones among them that are still to be found: the second time that the hand comes by a
    /// link it knows.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_over() && self.passed < 2 * self.open.len()
    }

    /// Queue pairs that exist, in whichever state.
    pub(crate) fn len(&self) -> usize {
        self.open.len() + self.retired.iter().flatten().count()
    }

    /// A link has no queue pair any more.
    fn forget(&mut self, link: u32) {
        if let Some(index) = self.open.iter().position(|&open| open == link) {
            self.open.remove(index);
            self.hand -= usize::from(index < self.hand);
        }
    }
}

impl VerbsEndpoint {
    /// Connections that exist now, those included that are being made or closed: two for each peer with whom this
    /// process is both an origin and a target.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// A link has got a queue pair.
    pub(crate) fn on_opened(&mut self, peer: usize, role: usize) {
        self.peers[peer].links[role].is_used = true;
        self.connections.open.push((peer * CLASSES + role) as u32);
        self.connections.passed = 0;
        // The first time round may have to forget what was used.
        self.close_excess(2 * self.connections.open.len());
    }

    /// While there are too many: looks now and then for those that have become idle.
    #[cold]
    #[inline(never)]
    pub(crate) fn keep_to_bound(&mut self) {
        let now = Instant::now();
        if self.connections.next_look.is_none_or(|time| now >= time) {
            self.connections.next_look = Some(now + LOOK_INTERVAL);
            self.close_excess(LOOKS.min(self.connections.open.len()));
        }
    }

    /// Whether a new connection has to wait until others are closed.
    pub(crate) fn waits_for_closing(&self) -> bool {
        self.connections.open.len() >= self.connections.max + SLACK && self.is_one_closing()
    }

    /// Whether one began to close so lately that it is worth waiting for.
    fn is_one_closing(&self) -> bool {
        let is_young = |waiting: &Waiting| {
            let link = &self.peers[waiting.peer as usize].links[waiting.role];
            link.stage == Stage::Closing && link.asked.is_some_and(|asked| asked.elapsed() < PATIENCE)
        };
        self.waiting.iter().any(is_young)
    }

    /// Targets' halves whose origins were lately asked to close.
    fn yielding(&mut self) -> usize {
        if self.connections.yielding.1.is_none_or(|since| since.elapsed() >= PATIENCE) {
            self.connections.yielding = (0, Some(Instant::now()));
        }
        self.connections.yielding.0
    }

    /// Begins to close as many idle connections as there are too many, among the next so many.
    fn close_excess(&mut self, looks: usize) {
        let is_over = self.connections.open.len().saturating_sub(self.connections.max);
        if is_over == 0 {
            return;
        }
        let closing = self.waiting.iter().filter(|waiting| self.is_closing(waiting)).count();
        let leaving = closing + self.yielding();
        let wanted = is_over.saturating_sub(leaving).min(CLOSING_MAX.saturating_sub(closing));
        self.close_idle(wanted, looks);
    }

    /// Begins to close one that is idle, if there is one and none is leaving its place already.
    pub(crate) fn close_one(&mut self) {
        let is_one_retired = self.connections.retired.iter().any(Option::is_some);
        if self.yielding() == 0 && !is_one_retired && !self.is_one_closing() {
            self.close_idle(1, 2 * self.connections.open.len());
        }
    }

    /// Begins to close so many connections that are idle and were not used for a while, among the next so many.
    fn close_idle(&mut self, mut wanted: usize, looks: usize) {
        for _ in 0..looks {
            let count = self.connections.open.len();
            if wanted == 0 || count == 0 {
                return;
            }
            let hand = self.connections.hand % count;
            self.connections.hand = hand + 1;
            self.connections.passed = self.connections.passed.saturating_add(1);
            let (peer, role) = split(self.connections.open[hand]);
            let known = &mut self.peers[peer];
            let link = &mut known.links[role];
            if known.down.is_some()
                || link.stage != Stage::Ready
                || link.posted > 0
                || core::mem::take(&mut link.is_used)
            {
                continue;
            }
            wanted -= 1;
            if role == ORIGIN {
                self.connections.passed = 0;
                self.begin_to_close(peer);
            } else {
                // If it does not, another is asked the next time.
                link.is_used = true;
                self.connections.yielding.0 += 1;
                self.say(peer, TARGET, Kind::Yield);
            }
        }
    }

    fn is_closing(&self, waiting: &Waiting) -> bool {
        self.peers[waiting.peer as usize].links[waiting.role].stage == Stage::Closing
    }

    fn begin_to_close(&mut self, peer: usize) {
        let link = &mut self.peers[peer].links[ORIGIN];
        link.stage = Stage::Closing;
        link.is_wanted = false;
        self.say(peer, ORIGIN, Kind::Close);
        self.wait_for(peer, ORIGIN);
    }

    /// The target has too many connections.
    pub(crate) fn on_yield(&mut self, peer: usize, message: &Message) {
        let link = &self.peers[peer].links[ORIGIN];
        if link.stage == Stage::Ready && link.posted == 0 && is_about(link, message) {
            self.begin_to_close(peer);
        }
    }

    /// The origin has stopped.
    pub(crate) fn on_close(&mut self, peer: usize, message: &Message) {
        let link = &self.peers[peer].links[TARGET];
        if link.qp.is_some() && is_about(link, message) {
            let has_something_to_say = link.posted > 0 || link.stage == Stage::Answered && link.is_wanted;
            // It asks again.
            if has_something_to_say || !self.retire(peer, TARGET) {
                return;
            }
        }
        // Also when it was closed before, and the answer got lost.
        let answer = Message {
            kind: Kind::Closed,
            to: message.from.nonce,
            from: self.location,
            number: message.number,
            queue: message.of_queue,
            sequence: message.sequence,
            of_queue: message.queue,
        };
        self.say_message(peer, &answer);
    }

    /// The target's half is closed.
    pub(crate) fn on_closed(&mut self, peer: usize, message: &Message) {
        let link = &self.peers[peer].links[ORIGIN];
        let is_ours = message.of_queue == link.queue() && message.sequence == link.sequence;
        if link.stage != Stage::Closing || !is_ours {
            return;
        }
        let is_wanted = link.is_wanted;
        if self.retire(peer, ORIGIN) && is_wanted {
            self.want(peer, ORIGIN);
        }
    }

    /// Breaks our half, which is idle, and has it destroyed when all that it has brought was read. `false`: not now.
    pub(crate) fn retire(&mut self, peer: usize, role: usize) -> bool {
        let Some(place) = self.connections.retired.iter().position(Option::is_none) else { return false };
        let link = &mut self.peers[peer].links[role];
        let Some(qp) = link.qp.take() else { return false };
        if link.stage == Stage::Answered {
            self.answered -= 1;
        }
        *link = Link::new();
        qp.fail();
        // A device that does not take it has nothing more to bring, either: the queue pair is destroyed here.
        if post_last(&qp, place) {
            self.connections.retired[place] = Some(qp);
        }
        self.connections.forget((peer * CLASSES + role) as u32);
        true
    }

    /// Destroys our half of a connection that was not made.
    pub(crate) fn discard(&mut self, peer: usize, role: usize) {
        if self.peers[peer].links[role].qp.take().is_some() {
            self.connections.forget((peer * CLASSES + role) as u32);
        }
    }

    /// The peer's queue pairs are broken: they are destroyed when everything that was under way has come back.
    pub(crate) fn on_lost(&mut self, peer: usize) {
        for role in [ORIGIN, TARGET] {
            if self.peers[peer].links[role].qp.is_some() {
                self.connections.lost.push((peer * CLASSES + role) as u32);
            }
        }
        self.retire_lost();
    }

    /// Posts the last request of queue pairs of lost peers, as far as there are places. Their links go on counting
    /// what comes back.
    #[cold]
    #[inline(never)]
    pub(crate) fn retire_lost(&mut self) {
        let mut index = 0;
        while let Some(&lost) = self.connections.lost.get(index) {
            let Some(place) = self.connections.retired.iter().position(Option::is_none) else { return };
            let (peer, role) = split(lost);
            // What waits in the list must be refused by the queue pair, one by one.
            let is_listed = role == ORIGIN && self.list.is_for(peer);
            let link = &mut self.peers[peer].links[role];
            let is_posted = !is_listed && link.qp.as_ref().is_some_and(|qp| post_last(qp, place));
            if is_listed || !is_posted && link.posted > 0 {
                index += 1;
                continue;
            }
            link.stage = Stage::Idle;
            let qp = link.qp.take();
            if is_posted {
                self.connections.retired[place] = qp;
            }
            self.connections.lost.swap_remove(index);
            self.connections.forget(lost);
        }
    }

    /// The last request of a half that was broken has come back.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_retired(&mut self, place: usize) {
        if let Some(qp) = self.connections.retired.get_mut(place) {
            *qp = None;
        }
    }

    /// The engine forgets a peer: its connection goes, if it is idle.
    pub(crate) fn on_forgotten(&mut self, peer: usize) {
        let Some(known) = self.peers.get(peer) else { return };
        let link = &known.links[ORIGIN];
        if known.connections == 0 && known.down.is_none() && link.stage == Stage::Ready && link.posted == 0 {
            self.begin_to_close(peer);
        }
    }
}

/// Whether the other side means this connection, and not one before it.
fn is_about(link: &Link, message: &Message) -> bool {
    message.of_queue == link.queue()
        && message.queue == link.remote_queue
        && message.sequence == link.remote_sequence
}

/// Posts the request on a broken queue pair behind which nothing comes; whether the device took it.
fn post_last(qp: &Qp, place: usize) -> bool {
    let nowhere = sys::Wr { rdma: sys::Rdma { remote_addr: 0, rkey: 0 } };
    let (id, flags) = (work_id(RETIRED, place as u32), sys::IBV_SEND_SIGNALED);
    let mut last = sys::ibv_send_wr::new(id, sys::IBV_WR_RDMA_WRITE, flags, &mut [], nowhere);
    // SAFETY: the request names no memory.
    unsafe { qp.post(&mut last) == 0 }
}

fn split(link: u32) -> (usize, usize) {
    (link as usize / CLASSES, link as usize % CLASSES)
}
