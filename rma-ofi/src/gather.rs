//! Puts that follow each other are gathered into one message.
//!
//! Over a stream of bytes a message costs system calls at both sides and an answer, whatever is in it. So while something of
//! this endpoint's is under way to a peer, further small puts to one region there wait for each other, as segments of a TCP
//! connection do by Nagle's algorithm: until as many are there as one message may name, until anything but a reply goes to the
//! peer, or a put waits that is another region's, and at the latest until the next poll. Who waits for any of them polls; who does
//! not may have an agent that polls when what is under way is answered. A put with nothing before it goes at once.
//!
//! Each keeps its slot and its tag. The message's context is the first one's slot, and each slot says which is next.

use core::ptr;

use ofi_sys as fi;
use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::provider::{
    Accepted, Completion, CompletionBatch, FabricCode, Limits, Post, PostError, RemoteAddr,
};

use crate::calls;
use crate::endpoint::{OfiEndpoint, Peer};
use crate::memory::NO_SLOT;
use crate::profile::Profile;

/// Larger puts fill a message by themselves.
const PUT_BYTES_MAX: usize = 64 * 1024;

/// Most puts of one message.
const PUTS_MAX: usize = 4;

/// The puts that wait for each other, to one peer and one region: what one of them fails of all fail of.
#[derive(Debug)]
pub(crate) struct Gather {
    /// As many as one message may name; less than 2: nothing is gathered.
    most: usize,
    count: usize,
    to: PeerAddr,
    key: RemoteKey,
    local: [fi::iovec; PUTS_MAX],
    remote: [fi::fi_rma_iov; PUTS_MAX],
    /// The first and the last one's slot.
    ends: [u32; 2],
    /// Messages of several puts, and their puts.
    #[cfg(test)]
    posted: [u64; 2],
}

// SAFETY: the pointers are the program's buffers, which the caller of `put` has promised until their tags come back; whoever
// holds the endpoint is its only user.
unsafe impl Send for Gather {}

impl Gather {
    /// Of an endpoint with these limits; `is_wanted` unless the user says otherwise.
    pub(crate) fn new(limits: &Limits, profile: &Profile, is_wanted: bool) -> Self {
        let named = limits.vector_local_max.min(limits.vector_remote_max).min(PUTS_MAX);
        Self {
            most: if is_wanted && profile.messages_cost_calls() { named } else { 1 },
            count: 0,
            to: PeerAddr(0),
            key: RemoteKey(0),
            local: [fi::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PUTS_MAX],
            remote: [fi::fi_rma_iov { addr: 0, len: 0, key: 0 }; PUTS_MAX],
            ends: [NO_SLOT; 2],
            #[cfg(test)]
            posted: [0; 2],
        }
    }

    /// As many as one completion may end; at least 1.
    #[inline]
    pub(crate) fn puts_max(&self) -> usize {
        self.most.max(1)
    }

    /// Whether none wait.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl OfiEndpoint {
    /// Whether a put waits for others.
    #[inline]
    pub(crate) fn gathers(&self, to: PeerAddr, len: usize) -> bool {
        let is_under_way = |peer: &Peer| peer.outstanding > 0;
        self.gather.most > 1
            && len <= PUT_BYTES_MAX
            && self.peers.get(to.0 as usize).is_some_and(is_under_way)
    }

    /// Keeps a put for the next message.
    ///
    /// # Safety
    /// The source is readable until the tag comes back.
    #[inline(never)]
    pub(crate) unsafe fn gather(
        &mut self,
        to: PeerAddr,
        (src, len): (*const u8, usize),
        at: RemoteAddr,
        tag: Tag,
    ) -> Post {
        let is_alike = self.gather.to == to && self.gather.key == at.key;
        if !self.gather.is_empty() && (!is_alike || self.gather.count >= self.gather.most) {
            self.post_gathered()?;
        }
        // Behind that, which may have given slots back.
        let ticket = self.ticket(to, len)?;
        let key = ticket.key(at);
        let slot = ticket.slot() as u32;
        let gather = &mut self.gather;
        let index = gather.count;
        gather.local[index] = fi::iovec { iov_base: src.cast_mut().cast(), iov_len: len };
        gather.remote[index] = fi::fi_rma_iov { addr: at.addr, len, key };
        gather.count += 1;
        let [first, last] = gather.ends;
        if index == 0 {
            (gather.to, gather.key) = (to, at.key);
            gather.ends = [slot; 2];
        } else {
            gather.ends = [first, slot];
            let before = self.live.memory.slot(last as usize);
            // SAFETY: the slot exists, and the provider does not touch this member of it.
            unsafe { (*before).next = slot };
        }
        self.takes_flight(&ticket, to, tag);
        if self.gather.count >= self.gather.most {
            // What finds no room now goes with the next call.
            let _ = self.post_gathered();
        }
        Ok(Accepted::Tracked)
    }

    /// Posts what waits for the peer, so that what is posted next is behind it. To be called before that has a ticket: slots may
    /// be given back.
    #[inline]
    pub(crate) fn post_gathered_to(&mut self, to: PeerAddr) -> Result<(), PostError> {
        if self.gather.is_empty() || self.gather.to != to {
            return Ok(());
        }
        self.post_gathered()
    }

    /// Posts what waits. `Again`: it waits still; if it cannot be posted at all, that is said of each.
    #[inline(never)]
    pub(crate) fn post_gathered(&mut self) -> Result<(), PostError> {
        let to = self.gather.to;
        let result = match self.check_peer(to) {
            Ok(_) => self.write_gathered(),
            Err(error) => Err(error),
        };
        let [first, _] = self.gather.ends;
        match result {
            Err(PostError::Again) => return Err(PostError::Again),
            Err(PostError::Failed(code)) => self.end_chain(first, code),
            Ok(()) => {}
        }
        #[cfg(test)]
        {
            self.gather.posted[0] += 1;
            self.gather.posted[1] += self.gather.count as u64;
        }
        self.gather.count = 0;
        Ok(())
    }

    fn write_gathered(&mut self) -> Result<(), PostError> {
        let Gather { count, to, local, remote, ends: [first, _], .. } = &self.gather;
        let message = fi::fi_msg_rma {
            msg_iov: local.as_ptr(),
            desc: ptr::null_mut(),
            iov_count: *count,
            addr: to.0,
            rma_iov: remote.as_ptr(),
            rma_iov_count: *count,
            context: self.live.memory.slot(*first as usize).cast(),
            data: 0,
        };
        let (ledger, to) = (self.live.domain.ledger(), *to);
        // SAFETY: the endpoint is open; message and lists are read during the call; the sources are the promise of those who
        // posted them.
        let result = unsafe { calls::writemsg(ledger, self.ep, &message, self.put_flags) };
        if result == 0 {
            Ok(())
        } else {
            Err(self.refused(to, result))
        }
    }

    /// The slot behind this one in its message, which it is not any more.
    #[inline]
    pub(crate) fn take_next(&mut self, slot: usize) -> u32 {
        let raw = self.live.memory.slot(slot);
        // SAFETY: the slot exists, and the provider does not touch this member of it.
        let next = unsafe { &mut (*raw).next };
        core::mem::replace(next, NO_SLOT)
    }

    /// Says that an operation has failed, and with it those that were in its message.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_chain(&mut self, first: u32, code: FabricCode) {
        let mut slot = first;
        while slot != NO_SLOT {
            let next = self.take_next(slot as usize);
            if let Some(tag) = self.retire(slot as usize, false) {
                self.ready.push_back(Completion::Failed(tag, code));
            }
            slot = next;
        }
    }

    /// Says the end of the puts from this one on, which were in the message of one that has ended well.
    #[inline(never)]
    pub(crate) fn say_chain(&mut self, first: u32, out: &mut CompletionBatch) {
        let mut slot = first;
        while slot != NO_SLOT {
            let next = self.take_next(slot as usize);
            if let Some(tag) = self.retire(slot as usize, true) {
                self.say(out, Completion::Done(tag));
            }
            slot = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::ptr::NonNull;
    use std::time::{Duration, Instant};

    use rma_core::provider::{Endpoint, MemoryRegion, SendClass};

    use super::*;
    use crate::data::second;
    use crate::error::fabric_code;
    use crate::region::OfiRegion;
    use crate::{Ofi, Options};

    /// Nothing that is bounded takes so long.
    const LIMIT: Duration = Duration::from_secs(60);
    const PUTS: usize = 64;
    const LEN: usize = 8;

    fn open(provider: &str, library: Option<&Path>, gather: bool) -> OfiEndpoint {
        let options = Options {
            provider: Some(provider.to_owned()),
            library: library.map(Path::to_owned),
            single_host: true,
            gather,
            ..Options::default()
        };
        OfiEndpoint::open(&Ofi::discover(&options).unwrap(), &options).unwrap()
    }

    /// An origin, and a target with two regions one behind the other.
    struct Pair {
        origin: OfiEndpoint,
        target: OfiEndpoint,
        to: PeerAddr,
        memory: Vec<u8>,
        regions: [OfiRegion; 2],
        source: Vec<u8>,
        done: Vec<u64>,
        failed: Vec<u64>,
        packets: usize,
    }

    impl Pair {
        fn new(provider: &str, library: Option<&Path>, gather: bool) -> Self {
            let (mut origin, mut target) = (open(provider, library, gather), open(provider, library, gather));
            let to = origin.connect(&target.address()).unwrap();
            target.connect(&origin.address()).unwrap();
            let mut memory = vec![0; 2 * PUTS * LEN];
            let regions = [0, 1].map(|half| {
                let base = NonNull::from(&mut memory[half * PUTS * LEN]);
                // SAFETY: the memory outlives the regions, and is looked at between operations.
                unsafe { target.register(base, PUTS * LEN, RemoteKey(half as u64 + 1)) }.unwrap()
            });
            let source = (0..2 * PUTS * LEN).map(|at| at as u8 | 1).collect();
            let (done, failed) = (Vec::new(), Vec::new());
            Self { origin, target, to, memory, regions, source, done, failed, packets: 0 }
        }

        fn poll(&mut self) {
            let mut batch = CompletionBatch::new();
            self.origin.poll(&mut batch);
            while let Some(completion) = batch.pop() {
                match completion {
                    Completion::Done(Tag(tag)) => self.done.push(tag),
                    Completion::Failed(Tag(tag), _) => self.failed.push(tag),
                    Completion::PeerDown(..) => {}
                    other => panic!("{other:?}"),
                }
            }
            self.target.poll(&mut batch);
            while let Some(completion) = batch.pop() {
                let Completion::Packet(packet) = completion else { panic!("{completion:?}") };
                self.packets += 1;
                self.target.release(packet);
            }
        }

        fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
            let deadline = Instant::now() + LIMIT;
            while !holds(self) {
                assert!(Instant::now() < deadline, "{what}");
                self.poll();
            }
        }

        /// Puts the bytes of one place, of those of both regions in a row; its number is the tag.
        fn put(&mut self, place: usize) {
            let region = &self.regions[place / PUTS];
            let at = RemoteAddr {
                addr: region.remote_base() + (place % PUTS * LEN) as u64,
                key: region.remote_key(),
            };
            let source = self.source[place * LEN..].as_ptr();
            self.until("a put", |pair| {
                // SAFETY: the source is there as long as the world.
                let posted = unsafe { pair.origin.put(pair.to, source, LEN, at, Tag(place as u64)) };
                assert!(!matches!(posted, Err(PostError::Failed(_))), "{posted:?}");
                posted.is_ok()
            });
        }

        /// All places but the first have been put, each once.
        fn check(&mut self) {
            self.until("all puts", |pair| pair.done.len() >= 2 * PUTS);
            self.done.sort_unstable();
            assert!(self.done.iter().copied().eq(0..2 * PUTS as u64), "{:?}", self.done);
            assert!(self.memory == self.source);
            let tracked = self.origin.live.memory.sizes().tracked;
            assert_eq!(self.origin.free_tracked.len(), tracked);
        }
    }

    fn few_messages_over(provider: &str, library: Option<&Path>) {
        let mut pair = Pair::new(provider, library, true);
        // A connection is made on first use.
        pair.put(0);
        pair.until("the first put", |pair| pair.done.len() == 1);
        assert_eq!(pair.origin.gather.posted, [0, 0], "one alone goes at once");
        pair.done.clear();
        for place in 0..2 * PUTS {
            pair.put(place);
        }
        pair.check();
        let most = pair.origin.gather.most as u64;
        let [messages, puts] = pair.origin.gather.posted;
        // Those that found no room waited for a poll, which sends what there is.
        assert!(most > 1 && puts > PUTS as u64 && messages * 2 < puts, "{messages} messages of {puts} puts");
    }

    #[test]
    fn puts_that_follow_each_other_are_few_messages() {
        few_messages_over("net", None);
        few_messages_over("tcp;ofi_rxm", None);
    }

    #[test]
    fn version_2_puts_that_follow_each_other_are_few_messages() {
        let Some(library) = second::library("not run") else { return };
        few_messages_over("tcp", Some(&library));
        few_messages_over("tcp;ofi_rxm", Some(&library));
    }

    #[test]
    fn each_goes_by_itself_where_that_is_asked_for_or_nothing_is_known() {
        for (provider, gather) in [("net", false), ("sockets", true)] {
            let mut pair = Pair::new(provider, None, gather);
            (0..2 * PUTS).for_each(|place| pair.put(place));
            pair.check();
            assert_eq!(pair.origin.gather.posted, [0, 0], "{provider}");
        }
    }

    /// Packets, gets and flushes to the peer are behind what waits for it, and a poll sends it.
    #[test]
    fn what_waits_goes_before_anything_else_and_with_the_next_poll() {
        let mut pair = Pair::new("net", None, true);
        pair.put(0);
        let mut sink = [0u8; LEN];
        for kind in 0..4 {
            pair.until("the first", |pair| pair.done.contains(&0));
            pair.done.clear();
            // The second waits, as the first is under way.
            pair.put(1);
            pair.put(2);
            assert_eq!(pair.origin.gather.count, 1, "kind {kind}");
            let packets = pair.packets;
            pair.until("what is behind it", |pair| match kind {
                0 => pair.origin.send(pair.to, &[1], &[], SendClass::Request).is_ok(),
                1 => {
                    let at = RemoteAddr { addr: pair.regions[0].remote_base(), key: RemoteKey(1) };
                    // SAFETY: the sink lives until all tags are back, below.
                    unsafe { pair.origin.get(pair.to, sink.as_mut_ptr(), LEN, at, Tag(3)) }.is_ok()
                }
                2 => pair.origin.flush(pair.to, Tag(3)).is_ok(),
                _ => {
                    pair.poll();
                    true
                }
            });
            assert!(pair.origin.gather.is_empty(), "kind {kind}");
            assert!(kind == 3 || pair.origin.gather.posted[0] > 0);
            pair.until("both", |pair| pair.done.contains(&1) && pair.done.contains(&2));
            pair.until("the rest", |pair| match kind {
                0 => pair.packets > packets,
                1 | 2 => pair.done.contains(&3),
                _ => true,
            });
            assert_eq!(pair.memory[LEN..3 * LEN], pair.source[LEN..3 * LEN]);
            pair.memory[..3 * LEN].fill(0);
            pair.put(0);
        }
        pair.until("the last", |pair| pair.done.contains(&0));
    }

    /// What waits is found to be lost by a put to somebody else, which wants a slot then.
    #[test]
    fn the_end_of_a_message_gives_back_its_own_slots_and_no_others() {
        let mut pair = Pair::new("net", None, true);
        let mut other = open("net", None, true);
        let to_other = pair.origin.connect(&other.address()).unwrap();
        other.connect(&pair.origin.address()).unwrap();
        let mut memory = vec![0u8; LEN];
        // SAFETY: the memory outlives the region, and nobody looks at it.
        let region =
            unsafe { other.register(NonNull::new(memory.as_mut_ptr()).unwrap(), LEN, RemoteKey(9)) }.unwrap();
        let at = RemoteAddr { addr: region.remote_base(), key: region.remote_key() };
        let source = [7u8; LEN];
        let mut put_other = |pair: &mut Pair, tag| {
            let mut batch = CompletionBatch::new();
            pair.until("a put to the other", |pair| {
                other.poll(&mut batch);
                // SAFETY: the source lives until all tags are back, below.
                unsafe { pair.origin.put(to_other, source.as_ptr(), LEN, at, Tag(tag)) }.is_ok()
            });
        };
        pair.put(0);
        pair.until("the first put", |pair| pair.done.len() == 1);
        put_other(&mut pair, 100);
        (1..4).for_each(|place| pair.put(place));
        assert_eq!(pair.origin.gather.count, 2, "two wait for the first");
        pair.origin.abandon(pair.to, fabric_code(fi::FI_EHOSTDOWN));
        for tag in 101..105 {
            put_other(&mut pair, tag);
        }
        let free = &pair.origin.free_tracked;
        let mut once = free.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), free.len(), "a slot is free twice");
        for &slot in free {
            let raw = pair.origin.live.memory.slot(slot as usize);
            // SAFETY: the slot exists, and is free.
            assert!(!unsafe { (*raw).is_in_flight }, "a free slot is in flight");
        }
        let mut batch = CompletionBatch::new();
        pair.until("their ends", |pair| {
            other.poll(&mut batch);
            pair.done.len() + pair.failed.len() == 4 + 5
        });
        pair.done.sort_unstable();
        assert!(pair.done.ends_with(&[100, 101, 102, 103, 104]), "{:?} {:?}", pair.done, pair.failed);
    }

    #[test]
    fn who_waits_for_a_peer_that_is_lost_fails_once() {
        let mut pair = Pair::new("net", None, true);
        pair.put(0);
        pair.until("the first put", |pair| pair.done.len() == 1);
        (1..4).for_each(|place| pair.put(place));
        assert_eq!(pair.origin.gather.count, 2);
        pair.origin.abandon(pair.to, fabric_code(fi::FI_EHOSTDOWN));
        pair.until("their ends", |pair| pair.done.len() + pair.failed.len() == 4);
        pair.failed.sort_unstable();
        // The first was under way, and may have arrived.
        assert!(pair.failed.ends_with(&[2, 3]), "{:?} {:?}", pair.done, pair.failed);
        assert!(pair.origin.gather.is_empty());
        assert_eq!(pair.memory[2 * LEN..4 * LEN], [0; 2 * LEN]);
    }
}
