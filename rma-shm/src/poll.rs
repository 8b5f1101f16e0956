//! What happens in `poll`: tags and losses are said, packets are taken from the rings.

use core::sync::atomic::{fence, Ordering};
use std::sync::Arc;

use rma_core::provider::{Completion, CompletionBatch, ReceivedPacket, SendClass};
use rustix::event::{epoll, Timespec};
use rustix::io::Errno;

use crate::assist;
use crate::bell;
use crate::endpoint::{Inbox, ShmEndpoint};
use crate::error::NONSENSE;
use crate::head::CLASSES;
use crate::lane;
use crate::own::Own;
use crate::ring::{Nonsense, Reader};

impl Inbox {
    #[inline]
    fn take_marks(&mut self, own: &Own) -> bool {
        let mut any = 0;
        let used = own.head.lanes_used().div_ceil(64);
        for (index, todo) in self.todo.iter_mut().take(used).enumerate() {
            *todo |= own.head.take_marks(index);
            any |= *todo;
        }
        any != 0
    }

    /// Does the small copy or atomic that the sender of a lane has asked for, if it has.
    #[inline]
    fn serve_slot(&mut self, own: &Own, lane: usize) {
        let slot = own.head.slot(lane);
        self.served +=
            usize::from(assist::serve(&slot, || slot.read(), |request| own.serve(&request, &slot)));
    }

    /// Does what others ask for in their slots, and leaves their packets for later.
    #[inline]
    pub(crate) fn serve_slots(&mut self, own: &Own) {
        if !self.take_marks(own) {
            return;
        }
        let mut next = next_lane(&self.todo, 0);
        while let Some(lane) = next {
            self.serve_slot(own, lane);
            next = next_lane(&self.todo, lane + 1);
        }
    }
}

impl ShmEndpoint {
    /// See [`rma_core::provider::Endpoint::poll`].
    #[inline]
    pub(crate) fn poll_all(&mut self, out: &mut CompletionBatch) -> usize {
        let room = out.room();
        if room == 0 {
            return 0;
        }
        self.polls = self.polls.wrapping_add(1);
        if self.polls % POLLS_TO_WATCH == 0 {
            self.watch();
        }
        while out.room() > 0 {
            let Some(completion) = self.next_ready() else { break };
            say(out, completion);
        }
        if self.take_marks() {
            self.receive(out);
        }
        room - out.room() + core::mem::take(&mut self.inbox.served)
    }

    /// Notes which lanes have news; whether any lane is to be looked at.
    #[inline]
    fn take_marks(&mut self) -> bool {
        self.inbox.take_marks(&self.own)
    }

    /// Takes packets from the lanes that have some, a few from each, and goes on with the next lane the next
    /// time.
    fn receive(&mut self, out: &mut CompletionBatch) {
        let first = self.inbox.next;
        let mut from = first;
        let mut has_wrapped = false;
        while out.room() > 0 {
            let Some(lane) = next_lane(&self.inbox.todo, from) else {
                if has_wrapped {
                    return;
                }
                (from, has_wrapped) = (0, true);
                continue;
            };
            if has_wrapped && lane >= first {
                return;
            }
            self.visit(lane, out);
            from = lane + 1;
            // Who found no buffer is first when there is one.
            if self.inbox.held == [None; CLASSES] {
                let is_cut_off = out.room() == 0 && self.inbox.todo[lane / 64] & 1 << (lane % 64) != 0;
                self.inbox.next = lane + usize::from(!is_cut_off);
            }
        }
    }

    /// Takes a few packets of each class from a lane, replies first.
    fn visit(&mut self, lane: usize, out: &mut CompletionBatch) {
        let (word, bit) = (lane / 64, 1 << (lane % 64));
        let own = Arc::clone(&self.own);
        self.inbox.serve_slot(&own, lane);
        let body = own.head.mapping.at(own.head.shape.body_at(lane), own.head.shape.body_bytes());
        let mut has_more = false;
        for class in [SendClass::Reply as usize, SendClass::Request as usize] {
            let ring = own.head.ring(lane, class, body);
            let mut taken = 0;
            let is_left = loop {
                if !self.inbox.readers[lane][class].has_packet(&ring) {
                    break false;
                }
                if !self.buffers.has_free(class) {
                    self.inbox.blocked[class][word] |= bit;
                    self.inbox.held[class].get_or_insert(lane);
                    break false;
                }
                if taken == BURST || out.room() == 0 {
                    break true;
                }
                match self.take(lane, class, &ring) {
                    Ok(packet) => {
                        if let Some(packet) = packet {
                            say(out, Completion::Packet(packet));
                        }
                        taken += 1;
                    }
                    Err(Nonsense) => {
                        self.on_nonsense(&own, lane);
                        return;
                    }
                }
            };
            has_more |= is_left;
            if taken > 0 {
                tell_of_room(&own, lane, class);
            }
        }
        if !has_more {
            self.inbox.todo[word] &= !bit;
        }
    }

    #[inline]
    fn take(
        &mut self,
        lane: usize,
        class: usize,
        ring: &impl crate::ring::Ring,
    ) -> Result<Option<ReceivedPacket>, Nonsense> {
        let reader: &mut Reader = &mut self.inbox.readers[lane][class];
        let Some(buffer) = self.buffers.next(class) else { return Ok(None) };
        let Some(len) = reader.pop(ring, buffer)? else { return Ok(None) };
        let Some((data, buffer)) = self.buffers.lend(class) else { return Ok(None) };
        Ok(Some(ReceivedPacket { data, len, buffer }))
    }

    /// The lane is read no more, and its sender is a peer no more.
    #[cold]
    #[inline(never)]
    fn on_nonsense(&mut self, own: &Own, lane: usize) {
        let by = lane::break_off(&own.head, lane).by;
        self.inbox.todo[lane / 64] &= !(1 << (lane % 64));
        for index in 0..self.places() {
            let Some((name, peer)) = self.at_place(index) else { continue };
            if peer.location.pid == by.pid {
                self.peer_lost(name, NONSENSE);
            }
        }
    }

    /// See [`rma_core::provider::Endpoint::release`].
    #[inline]
    pub(crate) fn take_back(&mut self, packet: &ReceivedPacket) {
        let class = self.buffers.take_back(packet.buffer);
        let Some(first) = self.inbox.held[class].take() else { return };
        self.inbox.next = first;
        for (todo, blocked) in self.inbox.todo.iter_mut().zip(&mut self.inbox.blocked[class]) {
            *todo |= core::mem::take(blocked);
        }
    }

    /// Looks for peers that have ended or closed their endpoints, and forgets regions that are gone.
    #[cold]
    #[inline(never)]
    pub(crate) fn watch(&mut self) {
        if self.watched > 0 {
            let nothing =
                epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
            let mut events = [nothing; EVENTS];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let found = epoll::wait(&self.events, &mut events[..], Some(&at_once)).unwrap_or(0);
            for event in &events[..found.min(EVENTS)] {
                self.process_ended(event.data.u64());
            }
        }
        for index in 0..self.places() {
            let Some((name, peer)) = self.at_place(index) else { continue };
            if let (None, Some(code)) = (peer.down, peer.loss()) {
                self.peer_lost(name, code);
            }
        }
        if self.places() > 0 {
            self.next_swept = (self.next_swept + 1) % self.places();
            if let Some((_, peer)) = self.at_place(self.next_swept) {
                peer.sweep();
            }
        }
    }

    /// See [`rma_core::provider::Endpoint::arm_wait`].
    pub(crate) fn arm(&mut self) -> bool {
        // Wake-ups of the past; those that come from here on stay.
        let mut sink = [0; 64];
        loop {
            match rustix::io::read(&self.own.listener, &mut sink) {
                Ok(count) if count == sink.len() => {}
                Err(Errno::INTR) => {}
                _ => break,
            }
        }
        self.watch();
        let has_work = !self.failures.is_empty()
            || !self.downs.is_empty()
            || self.inbox.todo.iter().any(|&word| word != 0);
        let waits_for_turn = core::mem::take(&mut self.waits_for_turn);
        if has_work || waits_for_turn || self.has_room_again() {
            return false;
        }
        bell::may_sleep(&self.own.head, &mut self.sleeps)
    }

    /// Asks the peers that had no room for a packet to wake this process when there is some; whether there is
    /// by now.
    fn has_room_again(&mut self) -> bool {
        if !self.is_refused {
            return false;
        }
        let (mut has_room, mut still_wants) = (false, false);
        for index in 0..self.places() {
            let Some((_, peer)) = self.at_place(index) else { continue };
            for class in 0..CLASSES {
                let Some(needed) = peer.refused[class].filter(|_| peer.down.is_none()) else { continue };
                peer.head.wants_room(peer.lane, class).store(1, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                let (ring, writer) = peer.ring(class);
                if writer.has_room(&ring, needed).unwrap_or(true) {
                    // Said once: whoever wanted it may want it no more.
                    peer.refused[class] = None;
                    has_room = true;
                } else {
                    still_wants = true;
                }
            }
        }
        self.is_refused = still_wants;
        has_room
    }
}

/// Wakes the sender of a lane that sleeps until there is room.
#[inline]
fn tell_of_room(own: &Own, lane: usize, class: usize) {
    // Between giving back and looking, as there is one between asking and looking at the other side.
    fence(Ordering::SeqCst);
    let wants = own.head.wants_room(lane, class);
    if wants.load(Ordering::Relaxed) != 0 {
        wants.store(0, Ordering::Relaxed);
        if !own.wake_sender(lane) {
            // It goes on wanting it, and is told with the next packet that is taken.
            wants.store(1, Ordering::Relaxed);
        }
    }
}

/// The first lane from `from` on that has its bit set.
#[inline]
fn next_lane(todo: &[u64], from: usize) -> Option<usize> {
    let first = from / 64;
    let behind = todo.get(first)? & (u64::MAX << (from % 64));
    if behind != 0 {
        return Some(first * 64 + behind.trailing_zeros() as usize);
    }
    let word = (first + 1..todo.len()).find(|&word| todo[word] != 0)?;
    Some(word * 64 + todo[word].trailing_zeros() as usize)
}

/// Hands a completion out; callers have looked that there is room.
#[inline]
fn say(out: &mut CompletionBatch, completion: Completion) {
    let pushed = out.push(completion);
    debug_assert!(pushed.is_ok(), "there was room");
}

/// Polls between two looks at whether peers are still there.
const POLLS_TO_WATCH: u32 = 512;
/// Packets of a class that one visit takes from a lane.
const BURST: usize = 8;
/// Ended processes that one look finds.
const EVENTS: usize = 16;

#[cfg(test)]
mod tests {
    use rma_core::dtype::Dtype;
    use rma_core::ids::{RemoteKey, Tag};
    use rma_core::op::ReduceOp;
    use rma_core::provider::{Atomic, Endpoint, PostError, RemoteAddr};

    use super::*;
    use crate::bell::Bell;
    use crate::options::{Options, Reach};
    use crate::ring::Ring;

    /// Two endpoints that know each other, with little room.
    fn pair() -> [ShmEndpoint; 2] {
        let options = Options {
            reach: Some(Reach::Attached),
            senders_max: 3,
            regions_max: 4,
            ring_bytes: 2048,
            packet_bytes: 512,
            receive_buffers: 4,
            ..Options::default()
        };
        let mut both = [0; 2].map(|_| ShmEndpoint::open(&options).unwrap());
        let addresses = both.each_ref().map(|endpoint| endpoint.address());
        for (endpoint, other) in both.iter_mut().zip(addresses.iter().rev()) {
            endpoint.connect(other).unwrap();
        }
        both
    }

    #[test]
    fn a_position_that_cannot_be_makes_the_peer_be_down() {
        let [mut one, mut other] = pair();
        let head = &one.own.head;
        let body = head.mapping.at(head.shape.body_at(0), head.shape.body_bytes());
        head.ring(0, 0, body).publish(u64::MAX - 7);
        head.mark(0);
        let mut out = CompletionBatch::new();
        assert_eq!(one.poll(&mut out), 0);
        one.poll(&mut out);
        let Some(Completion::PeerDown(peer, code)) = out.pop() else { panic!("the peer is down") };
        assert_eq!(code, NONSENSE);
        assert_eq!(one.send(peer, b"x", b"", SendClass::Reply), Err(PostError::Failed(NONSENSE)));
        assert_eq!(other.poll(&mut out), 0);
    }

    /// Whatever a process of this user writes there: no call panics, and nothing is lent that is not a
    /// packet.
    #[test]
    fn any_bytes_in_the_shared_memory_do_no_harm() {
        let mut random = 1_u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        for _ in 0..60 {
            let both = pair();
            let [mut one, other] = both;
            let peer = other.own.location;
            let (name, _) = one.at_place(0).unwrap();
            let mut out = CompletionBatch::new();
            let mut bytes = [7; 64];
            for _ in 0..40 {
                for head in [&one.own.head, &other.own.head] {
                    let words = head.mapping.len() / 8;
                    // Everything but the word that says that the endpoint is closed, mostly where the lanes
                    // are.
                    let at = if next() % 2 == 0 {
                        32 + next() as usize % 200
                    } else {
                        32 + next() as usize % (words - 32)
                    };
                    let value = [next(), next() % 4096, next() % 8, u64::MAX][next() as usize % 4];
                    head.mapping.word(8 * at).store(value, Ordering::Relaxed);
                }
                let _ = one.send(name, b"header", &bytes[..next() as usize % 64], SendClass::Request);
                let at = RemoteAddr { addr: next() % 100, key: RemoteKey(next() % 8) };
                // SAFETY: the buffer outlives the call, in which everything happens.
                let _ = unsafe { one.get(name, bytes.as_mut_ptr(), 8, at, Tag(1)) };
                let (operand, result) = (bytes.as_ptr(), bytes[32..].as_mut_ptr());
                let atomic = Atomic::Fetch { operand, result };
                // SAFETY: as above.
                unsafe { one.assist(name, atomic, at, Dtype::U64, ReduceOp::Sum) };
                one.poll(&mut out);
                while let Some(completion) = out.pop() {
                    if let Completion::Packet(packet) = completion {
                        assert!(packet.len <= 512);
                        one.release(packet);
                    }
                }
                one.arm_wait();
            }
            assert_eq!(peer.pid, std::process::id());
        }
    }

    #[test]
    fn lanes_are_found_in_turn() {
        let todo = [1 << 63 | 1 << 3, 0, 1];
        for (from, expected) in [
            (0, Some(3)),
            (3, Some(3)),
            (4, Some(63)),
            (64, Some(128)),
            (128, Some(128)),
            (129, None),
            (192, None),
        ] {
            assert_eq!(next_lane(&todo, from), expected, "from {from}");
        }
    }
}
