//! A few endpoints in one process, all polled by the test. Generic: nothing here knows libfabric.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{fence, Ordering};
use std::time::{Duration, Instant};

use rma_core::ids::{PeerAddr, RemoteKey, Tag};
use rma_core::provider::{
    Accepted, Completion, CompletionBatch, Endpoint, FabricCode, MemoryRegion, Post, PostError,
    ProviderError, RemoteAddr, SendClass,
};

/// Nothing that is bounded takes so long; a test that waits longer has found a hang.
pub(crate) const LIMIT: Duration = Duration::from_secs(crate::LIMIT_S);

/// One endpoint and what its polls have said.
pub(crate) struct Node<E: Endpoint> {
    pub(crate) ep: E,
    /// How this node calls each node of the world, itself included.
    pub(crate) peers: Vec<PeerAddr>,
    pub(crate) packets: VecDeque<Vec<u8>>,
    /// Outcomes by tag, in the order said; also of what was complete when it was accepted.
    pub(crate) outcomes: Vec<(u64, Result<(), FabricCode>)>,
    pub(crate) downs: Vec<(PeerAddr, FabricCode)>,
    /// Why the endpoint can do nothing any more, each time that it said so.
    pub(crate) ends: Vec<FabricCode>,
    /// Where endpoints are not meant to end, one that does fails the test.
    pub(crate) may_end: bool,
    /// Packets are kept from the provider while this is set, so that its buffers run out.
    pub(crate) holds_packets: bool,
    pub(crate) held: Vec<rma_core::provider::ReceivedPacket>,
    batch: CompletionBatch,
}

impl<E: Endpoint> Node<E> {
    pub(crate) fn new(ep: E) -> Self {
        Self {
            ep,
            peers: Vec::new(),
            packets: VecDeque::new(),
            outcomes: Vec::new(),
            downs: Vec::new(),
            ends: Vec::new(),
            may_end: false,
            holds_packets: false,
            held: Vec::new(),
            batch: CompletionBatch::new(),
        }
    }

    /// Polls once and sorts what it says.
    pub(crate) fn poll(&mut self) -> usize {
        let said = self.ep.poll(&mut self.batch);
        assert!(said <= CompletionBatch::CAPACITY);
        while let Some(completion) = self.batch.pop() {
            match completion {
                Completion::Done(Tag(tag)) => self.outcomes.push((tag, Ok(()))),
                Completion::Failed(Tag(tag), code) => self.outcomes.push((tag, Err(code))),
                Completion::Packet(packet) if self.holds_packets => self.held.push(packet),
                Completion::Packet(packet) => {
                    // SAFETY: just polled and not yet released.
                    self.packets.push_back(unsafe { packet.bytes() }.to_vec());
                    self.ep.release(packet);
                }
                Completion::PeerDown(peer, code) => self.downs.push((peer, code)),
                Completion::EndpointDown(code) => {
                    assert!(self.may_end, "the endpoint broke: {code}");
                    self.ends.push(code);
                }
            }
        }
        said
    }

    /// Gives back what was held, in the order of arrival.
    pub(crate) fn let_go(&mut self) {
        self.holds_packets = false;
        for packet in self.held.drain(..) {
            // SAFETY: polled, held, and not yet released.
            self.packets.push_back(unsafe { packet.bytes() }.to_vec());
            self.ep.release(packet);
        }
    }
}

/// Memory that a test lets others write; read and written volatile, byte by byte.
pub(crate) struct Window<E: Endpoint> {
    pub(crate) region: E::Region,
    bytes: Box<[u64]>,
    base: NonNull<u8>,
}

impl<E: Endpoint> Window<E> {
    pub(crate) fn new(ep: &mut E, len: usize, key: u64) -> Self {
        // SAFETY: below.
        Self::registered(len, |base| unsafe { ep.register(base, len, RemoteKey(key)) })
    }

    /// One for peers alone to whom all is complete at once.
    pub(crate) fn near(ep: &mut E, len: usize, key: u64) -> Self {
        // SAFETY: below.
        Self::registered(len, |base| unsafe { ep.register_near(base, len, RemoteKey(key)) })
    }

    /// The memory lives as long as the window, whose region is dropped first.
    fn registered(
        len: usize,
        register: impl FnOnce(NonNull<u8>) -> Result<E::Region, ProviderError>,
    ) -> Self {
        let mut bytes = vec![0u64; len.div_ceil(8)].into_boxed_slice();
        let base = NonNull::new(bytes.as_mut_ptr().cast()).unwrap();
        Self { region: register(base).unwrap(), bytes, base }
    }

    pub(crate) fn at(&self, offset: usize) -> RemoteAddr {
        RemoteAddr { addr: self.region.remote_base() + offset as u64, key: self.region.remote_key() }
    }

    pub(crate) fn byte(&self, offset: usize) -> u8 {
        assert!(offset < self.bytes.len() * 8);
        // SAFETY: within the memory.
        let at = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: as above; volatile because others write it.
        unsafe { at.read_volatile() }
    }

    pub(crate) fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(std::array::from_fn(|index| self.byte(offset + index)))
    }

    pub(crate) fn set_word(&mut self, offset: usize, value: u64) {
        assert!(offset % 8 == 0 && offset < self.bytes.len() * 8);
        // SAFETY: within the memory.
        let at = unsafe { self.base.as_ptr().add(offset) };
        // SAFETY: as above, and aligned; volatile because others read it.
        unsafe { at.cast::<u64>().write_volatile(value) };
    }
}

pub(crate) struct World<E: Endpoint> {
    pub(crate) nodes: Vec<Node<E>>,
}

impl<E: Endpoint> World<E> {
    /// Connects everybody with everybody, and itself.
    pub(crate) fn new(endpoints: Vec<E>) -> Self {
        let mut nodes: Vec<Node<E>> = endpoints.into_iter().map(Node::new).collect();
        let addresses: Vec<_> = nodes.iter().map(|node| node.ep.address()).collect();
        for node in &mut nodes {
            node.peers = addresses.iter().map(|address| node.ep.connect(address).unwrap()).collect();
        }
        Self { nodes }
    }

    pub(crate) fn poll(&mut self) -> usize {
        self.nodes.iter_mut().map(Node::poll).sum()
    }

    /// Polls everybody until the condition holds.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !holds(self) {
            assert!(Instant::now() < deadline, "no progress for {LIMIT:?}: {what}");
            if self.poll() == 0 {
                std::thread::yield_now();
            }
        }
    }

    /// Posts again and again until it is accepted.
    pub(crate) fn post<T>(
        &mut self,
        what: &str,
        mut post: impl FnMut(&mut Self) -> Result<T, PostError>,
    ) -> T {
        let mut accepted = None;
        self.until(what, |world| {
            accepted = match post(world) {
                Ok(accepted) => Some(accepted),
                Err(PostError::Again) => None,
                Err(PostError::Failed(code)) => panic!("{what}: {code}"),
            };
            accepted.is_some()
        });
        accepted.unwrap()
    }

    /// The same with an operation of this node's, which has this tag.
    pub(crate) fn operate(
        &mut self,
        (from, tag): (usize, u64),
        what: &str,
        post: impl FnMut(&mut Self) -> Post,
    ) {
        if self.post(what, post) == Accepted::Complete {
            fence(Ordering::SeqCst);
            self.nodes[from].outcomes.push((tag, Ok(())));
        }
    }

    /// The first two nodes.
    pub(crate) fn pair(&mut self) -> (&mut Node<E>, &mut Node<E>) {
        let (first, others) = self.nodes.split_at_mut(1);
        (&mut first[0], &mut others[0])
    }

    pub(crate) fn send(&mut self, from: usize, to: usize, header: &[u8], payload: &[u8]) {
        self.send_as(from, to, header, payload, SendClass::Request);
    }

    pub(crate) fn send_as(
        &mut self,
        from: usize,
        to: usize,
        header: &[u8],
        payload: &[u8],
        class: SendClass,
    ) {
        self.post("send", |world| {
            let peer = world.nodes[from].peers[to];
            world.nodes[from].ep.send(peer, header, payload, class)
        });
    }

    pub(crate) fn receive(&mut self, at: usize) -> Vec<u8> {
        self.until("a packet", |world| !world.nodes[at].packets.is_empty());
        self.nodes[at].packets.pop_front().unwrap()
    }

    /// Posts a put; the source must live until the tag is said.
    pub(crate) fn start_put(&mut self, from: usize, to: usize, src: &[u8], at: RemoteAddr, tag: u64) {
        self.operate((from, tag), "put", |world| {
            let peer = world.nodes[from].peers[to];
            // SAFETY: callers keep the source until the tag has come back.
            unsafe { world.nodes[from].ep.put(peer, src.as_ptr(), src.len(), at, Tag(tag)) }
        });
    }

    pub(crate) fn finish(&mut self, at: usize, tag: u64) {
        self.until("a completion", |world| world.nodes[at].outcomes.iter().any(|(said, _)| *said == tag));
        let failed = self.nodes[at].outcomes.iter().find(|(said, outcome)| *said == tag && outcome.is_err());
        assert!(failed.is_none(), "{failed:?}");
    }

    pub(crate) fn put(&mut self, from: usize, to: usize, src: &[u8], at: RemoteAddr, tag: u64) {
        // A constant may be in memory that nobody writes, for which there is a test of its own.
        let src = src.to_vec();
        self.start_put(from, to, &src, at, tag);
        self.finish(from, tag);
    }

    pub(crate) fn get(&mut self, from: usize, to: usize, dst: &mut [u8], at: RemoteAddr, tag: u64) {
        let (base, len) = (dst.as_mut_ptr(), dst.len());
        self.operate((from, tag), "get", |world| {
            let peer = world.nodes[from].peers[to];
            // SAFETY: the destination is borrowed until the tag has come back, below.
            unsafe { world.nodes[from].ep.get(peer, base, len, at, Tag(tag)) }
        });
        self.finish(from, tag);
    }

    pub(crate) fn flush(&mut self, from: usize, to: usize, tag: u64) {
        self.operate((from, tag), "flush", |world| {
            let peer = world.nodes[from].peers[to];
            world.nodes[from].ep.flush(peer, Tag(tag))
        });
        self.finish(from, tag);
    }
}
